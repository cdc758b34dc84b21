//! JSON as `google.protobuf.Struct` and `Value`, and back.

use std::{collections::BTreeMap, fmt};

use prost_types::{ListValue, Struct, Value, value::Kind};
use serde::{
    de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor},
    ser::{self, Serialize, SerializeMap, SerializeSeq, Serializer},
};
use serde_json::value::RawValue;

use crate::{Error, JsonObject};

/// Readers of protobuf give up at a hundred messages inside of each other, and a level of JSON takes up to three. What is deeper
/// stands as JSON in a text.
const LEVELS: usize = 28;

/// Up to here a double holds every whole number.
const WHOLE: f64 = 9_007_199_254_740_992.0;

/// The JSON of a `Struct`.
pub fn json_of(object: &Struct) -> Result<JsonObject, Error> {
    JsonObject::of(&Members(object)).map_err(|error| Error::invalid("", error.to_string()))
}

/// The text of a JSON object as a `Struct`.
pub fn struct_of(json: &str) -> Struct {
    match value_of(json).kind {
        Some(Kind::StructValue(object)) => object,
        _ => Struct::default(),
    }
}

/// JSON text as a `Value`.
pub(super) fn value_of(json: &str) -> Value {
    let mut value = match serde_json::from_str(json) {
        Ok(Read(kind)) => Value { kind: Some(kind) },
        // There is a number in it that is beyond a double.
        Err(_) => piecewise(json),
    };
    flatten(&mut value, LEVELS);
    value
}

/// Puts what is below so many levels into a text.
fn flatten(value: &mut Value, levels: usize) {
    let is_deep = matches!(value.kind, Some(Kind::StructValue(_) | Kind::ListValue(_)));
    if is_deep && levels == 0 {
        let text = serde_json::to_string(&Written(value)).unwrap_or_default();
        value.kind = Some(Kind::StringValue(text));
        return;
    }
    match &mut value.kind {
        Some(Kind::StructValue(object)) => object.fields.values_mut().for_each(|value| flatten(value, levels - 1)),
        Some(Kind::ListValue(list)) => list.values.iter_mut().for_each(|value| flatten(value, levels - 1)),
        _ => {}
    }
}

/// The same, where each number is looked at as text. It reads a text once for each of its levels.
fn piecewise(json: &str) -> Value {
    let of = |raw: &RawValue| piecewise(raw.get());
    let kind = match json.as_bytes().first() {
        Some(b'{') => serde_json::from_str(json).map(|members: BTreeMap<String, &RawValue>| {
            let fields = members.into_iter().map(|(name, raw)| (name, of(raw))).collect();
            Kind::StructValue(Struct { fields })
        }),
        Some(b'[') => serde_json::from_str(json)
            .map(|items: Vec<&RawValue>| Kind::ListValue(ListValue { values: items.into_iter().map(of).collect() })),
        Some(b'-' | b'0'..=b'9') => {
            let number = json.parse().unwrap_or_default();
            Ok(Kind::NumberValue(f64::clamp(number, f64::MIN, f64::MAX)))
        }
        _ => serde_json::from_str(json).map(|Read(kind)| kind),
    };
    // What is kept as JSON was read as JSON before.
    Value { kind: Some(kind.unwrap_or(Kind::NullValue(0))) }
}

/// A value that is written as JSON.
pub(super) struct Written<'a>(pub(super) &'a Value);

struct Members<'a>(&'a Struct);

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0.kind {
            None | Some(Kind::NullValue(_)) => serializer.serialize_unit(),
            Some(Kind::BoolValue(value)) => serializer.serialize_bool(*value),
            Some(Kind::StringValue(text)) => serializer.serialize_str(text),
            Some(Kind::NumberValue(number)) if !number.is_finite() => {
                Err(ser::Error::custom("a number must be finite"))
            }
            // Exact: it is whole and in range.
            Some(Kind::NumberValue(number)) if number.fract() == 0.0 && number.abs() <= WHOLE => {
                serializer.serialize_i64(*number as i64)
            }
            Some(Kind::NumberValue(number)) => serializer.serialize_f64(*number),
            Some(Kind::StructValue(object)) => Members(object).serialize(serializer),
            Some(Kind::ListValue(list)) => {
                let mut items = serializer.serialize_seq(Some(list.values.len()))?;
                for item in &list.values {
                    items.serialize_element(&Written(item))?;
                }
                items.end()
            }
        }
    }
}

impl Serialize for Members<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(Some(self.0.fields.len()))?;
        for (name, value) in &self.0.fields {
            members.serialize_entry(name, &Written(value))?;
        }
        members.end()
    }
}

/// A value that is read from JSON.
struct Read(Kind);

impl<'de> Deserialize<'de> for Read {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader).map(Self)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Kind, E> {
        Ok(Kind::NullValue(0))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Kind, E> {
        Ok(Kind::BoolValue(value))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Kind, E> {
        Ok(Kind::NumberValue(number as f64))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Kind, E> {
        Ok(Kind::NumberValue(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Kind, E> {
        Ok(Kind::NumberValue(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Kind, E> {
        Ok(Kind::StringValue(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Kind, E> {
        Ok(Kind::StringValue(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Kind, A::Error> {
        let mut values = Vec::new();
        while let Some(Read(kind)) = seq.next_element()? {
            values.push(Value { kind: Some(kind) });
        }
        Ok(Kind::ListValue(ListValue { values }))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Kind, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some((name, Read(kind))) = map.next_entry()? {
            fields.insert(name, Value { kind: Some(kind) });
        }
        Ok(Kind::StructValue(Struct { fields }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_deep_for_readers_stands_in_a_text() {
        let json = format!("{}1{}", "[".repeat(60), "]".repeat(60));
        let mut value = value_of(&json);
        let mut levels = 0;
        while let Some(Kind::ListValue(list)) = value.kind {
            levels += 1;
            value = list.values.into_iter().next().unwrap();
        }
        assert_eq!(levels, LEVELS);
        let rest = format!("{}1{}", "[".repeat(60 - LEVELS), "]".repeat(60 - LEVELS));
        assert_eq!(value.kind, Some(Kind::StringValue(rest)));
    }

    fn there_and_back(text: &str) -> String {
        json_of(&struct_of(text)).unwrap().get().to_owned()
    }

    #[test]
    fn whole_numbers_stay_whole() {
        for text in [r#"{"n":0}"#, r#"{"n":-7}"#, r#"{"n":9007199254740992}"#, r#"{"n":0.5}"#, r#"{"n":1e+300}"#] {
            assert_eq!(there_and_back(text), text);
        }
        assert_eq!(there_and_back(r#"{"n":1.0,"m":1e2}"#), r#"{"m":100,"n":1}"#);
    }

    #[test]
    fn numbers_beyond_a_double_become_the_nearest() {
        assert_eq!(there_and_back(r#"{"n":18446744073709551617}"#), r#"{"n":1.8446744073709552e+19}"#);
        let text = r#"{"a":["x",true,null,{"n":1e999}],"n":-1e999}"#;
        let back: serde_json::Value = serde_json::from_str(&there_and_back(text)).unwrap();
        assert_eq!(back["a"][3]["n"], f64::MAX);
        assert_eq!(back["n"], f64::MIN);
        assert_eq!(back["a"].as_array().unwrap()[..3], [serde_json::json!("x"), true.into(), serde_json::Value::Null]);
    }

    #[test]
    fn what_is_no_json_is_refused_and_nothing_is_null() {
        let object = |kind| Struct { fields: BTreeMap::from([("n".to_owned(), Value { kind })]) };
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(json_of(&object(Some(Kind::NumberValue(number)))).is_err(), "{number}");
        }
        assert_eq!(json_of(&object(None)).unwrap().get(), r#"{"n":null}"#);
    }

    #[test]
    fn of_a_member_that_is_there_twice_the_last_counts() {
        assert_eq!(there_and_back(r#"{"n":1,"n":2}"#), r#"{"n":2}"#);
    }
}
