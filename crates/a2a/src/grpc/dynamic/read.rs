//! From the wire to JSON.
//!
//! The bytes are checked first, by the rules of `prost`, and written as JSON by a second walk over them. The members of an object are
//! sorted by their names. Of a name that is there twice the last entry counts, as protobuf has it for maps; of a message that is there twice in one
//! place the fields are merged.

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field};
use serde::ser::{self, Serialize, SerializeMap, SerializeSeq, Serializer};

use super::Misfit;
use crate::{Json, JsonObject};

/// How many messages may stand inside of each other, as in `prost`.
const LEVELS: u32 = 100;

/// Up to here a double holds every whole number.
const WHOLE: f64 = 9_007_199_254_740_992.0;

/// The JSON of a `Struct`.
pub(super) fn object(message: &[u8]) -> Result<JsonObject, Misfit> {
    check(Shape::Struct, message, LEVELS).map_err(|Malformed| Misfit::malformed())?;
    JsonObject::of(&Object(Pieces::of(message))).map_err(|error| Misfit::new(error.to_string()))
}

/// The JSON of a `Value`.
pub(super) fn value(message: &[u8]) -> Result<Json, Misfit> {
    check(Shape::Value, message, LEVELS).map_err(|Malformed| Misfit::malformed())?;
    Json::of(&Written(&Pieces::of(message))).map_err(|error| Misfit::new(error.to_string()))
}

/// A `Struct` without the member of that name, and the number that it was.
pub(super) fn without(message: Vec<u8>, name: &str) -> (Vec<u8>, Option<f64>) {
    let is_named = |(tag, content): &(u32, Content<'_>)| match content {
        Content::Bytes(entry) if *tag == 1 => name_of(entry) == name,
        _ => false,
    };
    let Some((_, Content::Bytes(entry))) = Fields(&message).filter(is_named).last() else {
        return (message, None);
    };
    let number = match Kind::of(&value_of(entry)) {
        Kind::Number(number) => Some(number),
        _ => None,
    };
    let mut rest = Vec::with_capacity(message.len());
    for field in Fields(&message) {
        if let (tag, Content::Bytes(entry)) = field
            && !is_named(&field)
        {
            encode_key(tag, WireType::LengthDelimited, &mut rest);
            encode_varint(entry.len() as u64, &mut rest);
            rest.extend_from_slice(entry);
        }
    }
    (rest, number)
}

/// The bytes are not such a message.
struct Malformed;

/// The messages that a `Struct` is made of.
#[derive(Clone, Copy)]
enum Shape {
    Struct,
    Entry,
    Value,
    List,
}

/// Whether the bytes are a message of that shape, with no more levels below it.
fn check(shape: Shape, mut bytes: &[u8], levels: u32) -> Result<(), Malformed> {
    while !bytes.is_empty() {
        let (tag, wire_type) = decode_key(&mut bytes).map_err(|_| Malformed)?;
        let inner = match (shape, tag) {
            (Shape::Struct, 1) => Some(Shape::Entry),
            (Shape::Entry, 2) | (Shape::List, 1) => Some(Shape::Value),
            (Shape::Value, 5) => Some(Shape::Struct),
            (Shape::Value, 6) => Some(Shape::List),
            _ => None,
        };
        let expected = match (shape, tag) {
            _ if inner.is_some() => WireType::LengthDelimited,
            (Shape::Entry, 1) | (Shape::Value, 3) => WireType::LengthDelimited,
            (Shape::Value, 1 | 4) => WireType::Varint,
            (Shape::Value, 2) => WireType::SixtyFourBit,
            _ => {
                skip_field(wire_type, tag, &mut bytes, DecodeContext::default()).map_err(|_| Malformed)?;
                continue;
            }
        };
        if wire_type != expected {
            return Err(Malformed);
        }
        match (content(wire_type, tag, &mut bytes).ok_or(Malformed)?, inner) {
            (Content::Bytes(inside), Some(inner)) => {
                let levels = levels.checked_sub(1).ok_or(Malformed)?;
                check(inner, inside, levels)?;
            }
            (Content::Bytes(text), None) if std::str::from_utf8(text).is_err() => return Err(Malformed),
            _ => {}
        }
    }
    Ok(())
}

/// The content of a field.
#[derive(Clone, Copy)]
enum Content<'a> {
    Varint(u64),
    Double(f64),
    Bytes(&'a [u8]),
    Other,
}

/// Reads what follows a key.
fn content<'a>(wire_type: WireType, tag: u32, bytes: &mut &'a [u8]) -> Option<Content<'a>> {
    Some(match wire_type {
        WireType::Varint => Content::Varint(decode_varint(bytes).ok()?),
        WireType::SixtyFourBit => {
            let (double, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            Content::Double(f64::from_le_bytes(*double))
        }
        WireType::LengthDelimited => {
            let length = usize::try_from(decode_varint(bytes).ok()?).ok()?;
            let (inside, rest) = bytes.split_at_checked(length)?;
            *bytes = rest;
            Content::Bytes(inside)
        }
        WireType::StartGroup | WireType::EndGroup | WireType::ThirtyTwoBit => {
            skip_field(wire_type, tag, bytes, DecodeContext::default()).ok()?;
            Content::Other
        }
    })
}

/// The fields of a message that was checked, with their numbers.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = (u32, Content<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let (tag, wire_type) = decode_key(&mut self.0).ok()?;
        Some((tag, content(wire_type, tag, &mut self.0)?))
    }
}

/// The pieces that together are one message.
enum Pieces<'a> {
    One(&'a [u8]),
    Many(Vec<&'a [u8]>),
}

impl<'a> Pieces<'a> {
    fn of(message: &'a [u8]) -> Self {
        Self::One(message)
    }

    fn add(&mut self, piece: &'a [u8]) {
        match self {
            _ if piece.is_empty() => {}
            Self::One([]) => *self = Self::One(piece),
            Self::One(first) => *self = Self::Many(vec![*first, piece]),
            Self::Many(pieces) => pieces.push(piece),
        }
    }

    fn fields(&self) -> impl Iterator<Item = (u32, Content<'a>)> {
        let pieces = match self {
            Self::One(piece) => std::slice::from_ref(piece),
            Self::Many(pieces) => pieces.as_slice(),
        };
        pieces.iter().flat_map(|piece| Fields(piece))
    }
}

/// The name of an entry of a `Struct`.
fn name_of(entry: &[u8]) -> &str {
    let name = Fields(entry).filter(|(tag, _)| *tag == 1).last();
    match name {
        Some((_, Content::Bytes(name))) => text(name),
        _ => "",
    }
}

/// The value of an entry of a `Struct`.
fn value_of(entry: &[u8]) -> Pieces<'_> {
    let mut value = Pieces::of(&[]);
    for field in Fields(entry) {
        if let (2, Content::Bytes(piece)) = field {
            value.add(piece);
        }
    }
    value
}

fn text(bytes: &[u8]) -> &str {
    // It was checked.
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// The kinds of a `Value`.
enum Kind<'a> {
    Null,
    Bool(bool),
    Number(f64),
    Text(&'a [u8]),
    Struct(Pieces<'a>),
    List(Pieces<'a>),
}

impl<'a> Kind<'a> {
    /// The last member of the oneof counts. A message that follows one of the same kind is merged with it.
    fn of(value: &Pieces<'a>) -> Self {
        let mut kind = Self::Null;
        for (tag, content) in value.fields() {
            match (tag, content) {
                (1, Content::Varint(_)) => kind = Self::Null,
                (2, Content::Double(number)) => kind = Self::Number(number),
                (3, Content::Bytes(text)) => kind = Self::Text(text),
                (4, Content::Varint(flag)) => kind = Self::Bool(flag != 0),
                (5, Content::Bytes(piece)) => match &mut kind {
                    Self::Struct(pieces) => pieces.add(piece),
                    _ => kind = Self::Struct(Pieces::of(piece)),
                },
                (6, Content::Bytes(piece)) => match &mut kind {
                    Self::List(pieces) => pieces.add(piece),
                    _ => kind = Self::List(Pieces::of(piece)),
                },
                _ => {}
            }
        }
        kind
    }
}

/// A `Value` that is written as JSON.
struct Written<'a, 'p>(&'p Pieces<'a>);

impl Serialize for Written<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match Kind::of(self.0) {
            Kind::Null => serializer.serialize_unit(),
            Kind::Bool(flag) => serializer.serialize_bool(flag),
            Kind::Text(bytes) => serializer.serialize_str(text(bytes)),
            Kind::Number(number) if !number.is_finite() => Err(ser::Error::custom("a number must be finite")),
            // Exact: it is whole and in range.
            Kind::Number(number) if number.fract() == 0.0 && number.abs() <= WHOLE => {
                serializer.serialize_i64(number as i64)
            }
            Kind::Number(number) => serializer.serialize_f64(number),
            Kind::Struct(pieces) => Object(pieces).serialize(serializer),
            Kind::List(pieces) => {
                let mut list = serializer.serialize_seq(None)?;
                for field in pieces.fields() {
                    if let (1, Content::Bytes(item)) = field {
                        list.serialize_element(&Written(&Pieces::of(item)))?;
                    }
                }
                list.end()
            }
        }
    }
}

/// A `Struct` that is written as JSON.
struct Object<'a>(Pieces<'a>);

impl<'a> Object<'a> {
    /// The names of its entries, and the entries.
    fn entries(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.0.fields().filter_map(|field| match field {
            (1, Content::Bytes(entry)) => Some((name_of(entry), entry)),
            _ => None,
        })
    }

    /// The entries in order, the last of each name.
    fn sorted(&self) -> Vec<(&'a str, &'a [u8])> {
        let mut sorted: Vec<(&str, &[u8])> = Vec::new();
        for entry in self.entries() {
            if sorted.len() == sorted.capacity() {
                // Of entries with the same name only one is kept, however many come.
                sort(&mut sorted);
                if sorted.len() > sorted.capacity() / 2 {
                    sorted.reserve(sorted.len().max(8));
                }
            }
            sorted.push(entry);
        }
        sort(&mut sorted);
        sorted
    }
}

/// Sorts entries by their names and keeps the last of each.
fn sort(entries: &mut Vec<(&str, &[u8])>) {
    // What came later lies further on in the same bytes.
    entries.sort_unstable_by_key(|(name, entry)| (*name, entry.as_ptr().addr()));
    entries.dedup_by(|later, kept| {
        let is_same = later.0 == kept.0;
        if is_same {
            *kept = *later;
        }
        is_same
    });
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let mut write = |(name, entry): (&str, &[u8])| map.serialize_entry(name, &Written(&value_of(entry)));
        if self.entries().is_sorted_by(|before, after| before.0 < after.0) {
            self.entries().try_for_each(&mut write)?;
        } else {
            self.sorted().into_iter().try_for_each(&mut write)?;
        }
        map.end()
    }
}
