//! From JSON to the wire.
//!
//! Before each message of protobuf stands its length. A first reading of the text measures what each object and list takes, four bytes
//! for each of them; a second one writes. Members keep their order. Of a name that is there twice both are written, and readers of
//! protobuf take the last.

use std::{borrow::Cow, fmt};

use bytes::{BufMut, Bytes};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Readers of protobuf give up at a hundred messages inside of each other, and a level of JSON takes up to three. What is deeper
/// stands as JSON in a text.
pub(super) const LEVELS: usize = 28;

/// JSON text, and what it takes on the wire.
#[derive(Clone)]
pub(super) struct Measured {
    text: Bytes,
    /// The length of each object and list, in the order in which they begin.
    lengths: Vec<u32>,
    /// Whether it is the text of an object that is written as a `Struct`.
    is_struct: bool,
    encoded_len: usize,
}

impl Measured {
    /// The text of a `Value`.
    pub(super) fn value(text: Bytes) -> Self {
        Self::new(text, false)
    }

    /// The text of a `Struct`. What is no object is an empty one.
    pub(super) fn object(text: Bytes) -> Self {
        let is_object = text.trim_ascii_start().first() == Some(&b'{');
        Self::new(if is_object { text } else { Bytes::from_static(b"{}") }, true)
    }

    fn new(text: Bytes, is_struct: bool) -> Self {
        let of = |text: Bytes| {
            let mut lengths = Vec::new();
            let value = pass(&text, Measure(&mut lengths, LEVELS))?;
            let encoded_len = if is_struct { lengths.first().map_or(0, |length| *length as usize) } else { value };
            Ok::<_, serde_json::Error>(Self { text, lengths, is_struct, encoded_len })
        };
        // Where it cannot be read, a number in it is beyond a double. What is kept as JSON was read as JSON before.
        of(text.clone()).or_else(|_| of(within_double(&text).into())).unwrap_or_else(|_| Self {
            text: Bytes::from_static(b"null"),
            lengths: Vec::new(),
            is_struct: false,
            encoded_len: if is_struct { 0 } else { Scalar::Null.encoded_len() },
        })
    }

    pub(super) fn encoded_len(&self) -> usize {
        self.encoded_len
    }

    pub(super) fn write(&self, out: &mut impl BufMut) {
        if self.encoded_len == 0 {
            return;
        }
        let place = if self.is_struct { Place::Struct } else { Place::Value };
        let mut writer = Writer { lengths: self.lengths.iter(), out };
        // The same text was read before.
        let _ = pass(&self.text, Write { writer: &mut writer, place, levels: LEVELS });
    }
}

fn pass<'de, S: DeserializeSeed<'de>>(text: &'de [u8], seed: S) -> Result<S::Value, serde_json::Error> {
    let text = std::str::from_utf8(text).map_err(serde_json::Error::custom)?;
    seed.deserialize(&mut serde_json::Deserializer::from_str(text))
}

/// The same JSON with the largest double in place of numbers that are beyond it.
fn within_double(text: &[u8]) -> String {
    let text = std::str::from_utf8(text).unwrap_or_default();
    let mut within = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.bytes().next() {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let token = match first {
            b'"' => string_len(rest),
            b'-' | b'0'..=b'9' => rest.bytes().position(|byte| !is_digit(byte)).unwrap_or(rest.len()),
            _ => rest
                .bytes()
                .position(|byte| byte == b'"' || byte == b'-' || byte.is_ascii_digit())
                .unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at(token);
        match first {
            b'-' | b'0'..=b'9' if serde_json::from_str::<f64>(token).is_err() => {
                within.push_str(if first == b'-' { "-1.7976931348623157e308" } else { "1.7976931348623157e308" });
            }
            _ => within.push_str(token),
        }
        rest = after;
    }
    within
}

/// The length of the string that a text begins with, quotes included.
fn string_len(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// A value without others in it.
enum Scalar<'a> {
    Null,
    Bool(bool),
    Number(f64),
    Text(&'a str),
}

impl Scalar<'_> {
    fn encoded_len(&self) -> usize {
        match self {
            Self::Null | Self::Bool(_) => 2,
            Self::Number(_) => 9,
            Self::Text(text) => delimited(text.len()),
        }
    }

    fn write(&self, out: &mut impl BufMut) {
        match self {
            Self::Null => out.put_slice(&[0x08, 0]),
            Self::Bool(flag) => out.put_slice(&[0x20, u8::from(*flag)]),
            Self::Number(number) => {
                out.put_u8(0x11);
                out.put_f64_le(*number);
            }
            Self::Text(text) => put(3, text.as_bytes(), out),
        }
    }
}

/// Encoded length of a field with a small number and a payload of this many bytes.
fn delimited(bytes: usize) -> usize {
    1 + encoded_len_varint(bytes as u64) + bytes
}

/// The key and the length of a field.
fn begin(tag: u32, length: usize, out: &mut impl BufMut) {
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(length as u64, out);
}

fn put(tag: u32, bytes: &[u8], out: &mut impl BufMut) {
    begin(tag, bytes.len(), out);
    out.put_slice(bytes);
}

/// Encoded length of an entry of a `Struct`, by its name and the length of its value.
fn entry_len(name: &str, value: usize) -> usize {
    // As prost writes maps: a default is left out.
    let name = if name.is_empty() { 0 } else { delimited(name.len()) };
    name + delimited(value)
}

/// Implements the visits of scalars by one method.
macro_rules! scalars {
    () => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON value")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(self.scalar(&Scalar::Null))
        }

        fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
            Ok(self.scalar(&Scalar::Bool(value)))
        }

        fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
            Ok(self.scalar(&Scalar::Number(number as f64)))
        }

        fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
            Ok(self.scalar(&Scalar::Number(number as f64)))
        }

        fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
            Ok(self.scalar(&Scalar::Number(number)))
        }

        fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
            Ok(self.scalar(&Scalar::Text(text)))
        }
    };
}

/// Content of the deepest level: a scalar, or the JSON text of anything deeper.
fn deepest<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Deepest<'de>, D::Error> {
    let raw = <&RawValue>::deserialize(deserializer)?.get();
    Ok(if raw.starts_with(['[', '{']) { Deepest::Text(raw) } else { Deepest::Scalar(raw) })
}

enum Deepest<'a> {
    Text(&'a str),
    Scalar(&'a str),
}

/// Measures a `Value` with so many levels, and gives its length.
struct Measure<'s>(&'s mut Vec<u32>, usize);

impl Measure<'_> {
    #[expect(clippy::unused_self, reason = "as in the other visitor")]
    fn scalar(self, scalar: &Scalar<'_>) -> usize {
        scalar.encoded_len()
    }

    /// Notes the length of an object or a list that began at a place, and gives that of the `Value` it is.
    fn note<E: serde::de::Error>(self, at: usize, length: usize) -> Result<usize, E> {
        let noted = u32::try_from(length).map_err(|_| E::custom("too long for protobuf"))?;
        self.0[at] = noted;
        Ok(delimited(length))
    }

    fn inner(&mut self) -> Measure<'_> {
        Measure(self.0, self.1 - 1)
    }
}

impl<'de> DeserializeSeed<'de> for Measure<'_> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        if self.1 > 0 {
            return deserializer.deserialize_any(self);
        }
        match deepest(deserializer)? {
            Deepest::Text(text) => Ok(self.scalar(&Scalar::Text(text))),
            Deepest::Scalar(text) => {
                serde_json::Deserializer::from_str(text).deserialize_any(self).map_err(D::Error::custom)
            }
        }
    }
}

impl<'de> Visitor<'de> for Measure<'_> {
    type Value = usize;

    scalars!();

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<usize, A::Error> {
        let at = self.0.len();
        self.0.push(0);
        let mut length = 0;
        while let Some(value) = list.next_element_seed(self.inner())? {
            length += delimited(value);
        }
        self.note(at, length)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<usize, A::Error> {
        let at = self.0.len();
        self.0.push(0);
        let mut length = 0;
        while let Some(Name(name)) = map.next_key()? {
            let value = map.next_value_seed(self.inner())?;
            length += delimited(entry_len(&name, value));
        }
        self.note(at, length)
    }
}

/// The name of a member.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// Where a `Value` is written.
enum Place<'a> {
    /// By itself.
    Value,
    /// By itself, without what says that it is an object.
    Struct,
    /// In a list.
    Item,
    /// In a `Struct`, under this name.
    Entry(&'a str),
}

/// Writes what was measured.
struct Writer<'s, B> {
    lengths: std::slice::Iter<'s, u32>,
    out: &'s mut B,
}

impl<B: BufMut> Writer<'_, B> {
    /// Prefix of a `Value` of that length.
    fn begin(&mut self, place: &Place<'_>, length: usize) {
        match place {
            Place::Value | Place::Struct => {}
            Place::Item => begin(1, length, self.out),
            Place::Entry(name) => {
                begin(1, entry_len(name, length), self.out);
                if !name.is_empty() {
                    put(1, name.as_bytes(), self.out);
                }
                begin(2, length, self.out);
            }
        }
    }

    /// Prefix of an object's entries and of a list's items, by the number of their field in a `Value`.
    fn begin_container(&mut self, place: &Place<'_>, tag: u32) {
        let length = self.lengths.next().map_or(0, |length| *length as usize);
        self.begin(place, delimited(length));
        if !matches!(place, Place::Struct) {
            begin(tag, length, self.out);
        }
    }
}

/// Writes a `Value`.
struct Write<'w, 's, 'p, B> {
    writer: &'w mut Writer<'s, B>,
    place: Place<'p>,
    levels: usize,
}

impl<'s, B: BufMut> Write<'_, 's, '_, B> {
    fn scalar(self, scalar: &Scalar<'_>) {
        self.writer.begin(&self.place, scalar.encoded_len());
        scalar.write(self.writer.out);
    }

    fn inner<'p>(&mut self, place: Place<'p>) -> Write<'_, 's, 'p, B> {
        Write { writer: self.writer, place, levels: self.levels - 1 }
    }
}

impl<'de, B: BufMut> DeserializeSeed<'de> for Write<'_, '_, '_, B> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.levels > 0 {
            return deserializer.deserialize_any(self);
        }
        match deepest(deserializer)? {
            Deepest::Text(text) => {
                self.scalar(&Scalar::Text(text));
                Ok(())
            }
            Deepest::Scalar(text) => {
                serde_json::Deserializer::from_str(text).deserialize_any(self).map_err(D::Error::custom)
            }
        }
    }
}

impl<'de, B: BufMut> Visitor<'de> for Write<'_, '_, '_, B> {
    type Value = ();

    scalars!();

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        self.writer.begin_container(&self.place, 6);
        while list.next_element_seed(self.inner(Place::Item))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        self.writer.begin_container(&self.place, 5);
        while let Some(Name(name)) = map.next_key()? {
            map.next_value_seed(self.inner(Place::Entry(&name)))?;
        }
        Ok(())
    }
}
