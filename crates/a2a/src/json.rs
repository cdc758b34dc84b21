//! JSON that belongs to somebody else: kept as the sender's bytes, never reparsed on its way through.
//!
//! Numbers, key order and escapes stay as they came. Only line breaks and tabs between tokens are dropped, so that a value
//! is always one line and can stand in a server-sent event as it is.

use std::fmt;

use serde::de::{self, Deserialize, DeserializeOwned, Deserializer};
use serde::ser::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::wire::value;

/// Any JSON value, `null` included (google.protobuf.Value).
#[derive(Clone)]
pub struct Json(Box<RawValue>);

/// A JSON object (google.protobuf.Struct).
#[derive(Clone)]
pub struct JsonObject(Json);

impl Json {
    /// The JSON text.
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// Takes a value apart into a type of the caller's.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.get())
    }

    pub fn from_value(value: &serde_json::Value) -> Self {
        // A `Value` always serialises: its keys are strings and its numbers finite.
        Self(serde_json::value::to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned()))
    }

    /// Reads JSON text.
    pub fn from_text(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The JSON of something that can be written as it.
    #[cfg(feature = "grpc")]
    pub(crate) fn of(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self)
    }

    pub fn is_null(&self) -> bool {
        self.get() == "null"
    }

    /// How deep arrays and objects nest: 0 for a scalar.
    pub fn depth(&self) -> usize {
        depth(self.get())
    }
}

impl JsonObject {
    /// The JSON text; it starts with `{`.
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// Takes the object apart into a type of the caller's.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        self.0.parse()
    }

    /// `None` when the value is not an object.
    pub fn from_value(value: &serde_json::Value) -> Option<Self> {
        value.is_object().then(|| Self(Json::from_value(value)))
    }

    /// Reads JSON text; anything but an object is an error.
    pub fn from_text(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    pub fn as_json(&self) -> &Json {
        &self.0
    }

    /// The same object with a member more. It stands last, and counts where the name is there already.
    pub fn with_member(self, name: &str, value: &impl Serialize) -> Result<Self, serde_json::Error> {
        let mut text = String::from(self);
        text.truncate(text.trim_ascii_end().len() - 1);
        if text.trim_ascii_end().len() > 1 {
            text.push(',');
        }
        text += &serde_json::to_string(name)?;
        text.push(':');
        text += &serde_json::to_string(value)?;
        text.push('}');
        RawValue::from_string(text).map(|raw| Self(Json(raw)))
    }

    /// The JSON of something that is written as an object.
    #[cfg(feature = "grpc")]
    pub(crate) fn of(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        Json::of(value).map(Self)
    }

    /// How deep arrays and objects nest: 1 for an object of scalars.
    pub fn depth(&self) -> usize {
        self.0.depth()
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Json {}

impl PartialEq for JsonObject {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for JsonObject {}

impl From<JsonObject> for Json {
    fn from(object: JsonObject) -> Self {
        object.0
    }
}

impl From<Json> for String {
    fn from(json: Json) -> Self {
        Box::<str>::from(json.0).into()
    }
}

impl From<JsonObject> for String {
    fn from(object: JsonObject) -> Self {
        object.0.into()
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({})", self.get())
    }
}

impl fmt::Debug for JsonObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JsonObject({})", self.get())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl Serialize for JsonObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw: Box<RawValue> = Box::deserialize(deserializer)?;
        // serde_json checks raw values for syntax only, and an unpaired surrogate would fail whoever reads it next.
        if has_unpaired_surrogate(raw.get()) {
            return Err(de::Error::custom("a string holds an unpaired surrogate"));
        }
        one_line(raw).map(Self).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for JsonObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(deserializer)?;
        if json.get().starts_with('{') {
            return Ok(Self(json));
        }
        let found = match json.get().as_bytes().first() {
            Some(b'[') => de::Unexpected::Seq,
            Some(b'"') => de::Unexpected::Other("string"),
            Some(b't' | b'f') => de::Unexpected::Other("boolean"),
            Some(b'n') => de::Unexpected::Unit,
            _ => de::Unexpected::Other("number"),
        };
        Err(de::Error::invalid_type(found, &"an object"))
    }
}

value!(Json);
value!(JsonObject);

/// Drops line breaks and tabs. They are legal between tokens only, and tokens never need them to stay apart.
fn one_line(raw: Box<RawValue>) -> Result<Box<RawValue>, serde_json::Error> {
    const BREAKS: [char; 3] = ['\n', '\r', '\t'];
    if !raw.get().contains(BREAKS) {
        return Ok(raw);
    }
    RawValue::from_string(raw.get().replace(BREAKS, ""))
}

/// The text is JSON already, so that a backslash is always followed by its escape.
fn has_unpaired_surrogate(text: &str) -> bool {
    if !text.contains("\\u") {
        return false;
    }
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut high_ends_at = None;
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            at += 1;
            continue;
        }
        if bytes.get(at + 1) != Some(&b'u') {
            at += 2;
            continue;
        }
        let unit = text.get(at + 2..at + 6).and_then(|digits| u16::from_str_radix(digits, 16).ok());
        let follows_high = high_ends_at == Some(at);
        match unit {
            Some(0xD800..=0xDBFF) if high_ends_at.is_none() => high_ends_at = Some(at + 6),
            Some(0xDC00..=0xDFFF) if follows_high => high_ends_at = None,
            Some(0xD800..=0xDFFF) | None => return true,
            Some(_) if high_ends_at.is_some() => return true,
            Some(_) => {}
        }
        at += 6;
    }
    high_ends_at.is_some()
}

fn depth(text: &str) -> usize {
    let mut deepest = 0;
    let mut current = 0_usize;
    let mut in_string = false;
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if in_string => {
                bytes.next();
            }
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                current += 1;
                deepest = deepest.max(current);
            }
            b'}' | b']' if !in_string => current = current.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_kept() {
        for text in [r#"{"b": 1,"a":1.0e2}"#, "18446744073709551616", "null", r#"["😀",[ ]]"#, "1e999"] {
            let json = Json::from_text(text).unwrap();
            assert_eq!(json.get(), text);
            assert_eq!(serde_json::to_string(&json).unwrap(), text);
        }
    }

    #[test]
    fn line_breaks_are_dropped_and_escapes_are_not() {
        let json = Json::from_text("{\r\n\t\"a\":\t\"x\\n\\ty\",\n \"b\": [1,\n2]\n}").unwrap();
        assert_eq!(json.get(), r#"{"a":"x\n\ty", "b": [1,2]}"#);
    }

    #[test]
    fn objects_are_told_from_the_rest() {
        assert_eq!(JsonObject::from_text(" {} ").unwrap().get(), "{}");
        for text in ["[]", "1", "\"x\"", "null", "true"] {
            assert!(JsonObject::from_text(text).is_err(), "{text}");
        }
        assert_eq!(JsonObject::from_value(&serde_json::json!([1])), None);
        assert_eq!(JsonObject::from_value(&serde_json::json!({"a": 1})).unwrap().get(), r#"{"a":1}"#);
    }

    #[test]
    fn unpaired_surrogates_are_refused() {
        for text in [r#""\ud83d\ude00""#, r#""\\ud83d""#, r#""\u0041""#, r#"["\ud83d\ude00","\ud83d\ude00"]"#] {
            assert!(Json::from_text(text).is_ok(), "{text}");
        }
        for text in [r#""\ud83d""#, r#""\ude00""#, r#""\ud83d\u0041""#, r#"["\ud83d","\ude00"]"#, r#""\ud83d\ud83d""#] {
            assert!(Json::from_text(text).is_err(), "{text}");
        }
    }

    #[test]
    fn depth_counts_nesting_outside_strings() {
        for (text, expected) in [("1", 0), ("{}", 1), (r#"{"a":[{"b":"[[[\"["}]}"#, 3), ("[[],[]]", 2)] {
            assert_eq!(Json::from_text(text).unwrap().depth(), expected, "{text}");
        }
    }
}
