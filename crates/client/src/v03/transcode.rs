//! Messages of a proto from their JSON, and back, by tables of their fields.
//!
//! Only what 0.3 needs: no maps, no numbers but small ones. Fields that a table does not know are skipped.

use a2a::{Timestamp, grpc::Struct};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use prost::{
    Message,
    encoding::{DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field},
};
use serde_json::{Map, Value};

use crate::lenient::tree;

/// A message, by its fields.
pub(super) type Table = &'static [Field];

/// A field of a message.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u32,
    /// In JSON.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) repeated: bool,
}

/// The content of a field.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Text,
    Bytes,
    Bool,
    Int,
    /// An enum, by the names of its numbers from 0 up.
    Word(&'static [&'static str]),
    /// `google.protobuf.Struct`.
    Struct,
    /// `google.protobuf.Timestamp`.
    Time,
    Message(Table),
}

/// The bytes are not such a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// The message that some JSON stands for. What is no member of it, or not of its type, is left out.
pub(super) fn encode(table: Table, json: &Value) -> Vec<u8> {
    let mut message = Vec::new();
    for field in table {
        match &json[field.name] {
            Value::Array(list) if field.repeated => list.iter().for_each(|one| put(field, one, &mut message)),
            one => put(field, one, &mut message),
        }
    }
    message
}

/// The JSON that a message stands for.
pub(super) fn decode(table: Table, mut message: Bytes) -> Result<Value, Malformed> {
    let mut made = Map::new();
    while !message.is_empty() {
        let (number, wire) = decode_key(&mut message).map_err(|_| Malformed)?;
        let known = table.iter().find(|field| field.number == number && field.kind.wire() == wire);
        let Some(field) = known else {
            skip_field(wire, number, &mut message, DecodeContext::default()).map_err(|_| Malformed)?;
            continue;
        };
        let value = take(field.kind, &mut message)?;
        if field.repeated {
            let list = made.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
            list.as_array_mut().ok_or(Malformed)?.push(value);
        } else {
            made.insert(field.name.to_owned(), value);
        }
    }
    Ok(Value::Object(made))
}

impl Kind {
    fn wire(self) -> WireType {
        match self {
            Self::Bool | Self::Int | Self::Word(_) => WireType::Varint,
            Self::Text | Self::Bytes | Self::Struct | Self::Time | Self::Message(_) => WireType::LengthDelimited,
        }
    }
}

fn put(field: &Field, value: &Value, message: &mut Vec<u8>) {
    let number = match (field.kind, value) {
        (Kind::Bool, Value::Bool(flag)) => Some(u64::from(*flag)),
        // As protobuf has it, a negative number is one of 64 bits.
        (Kind::Int, value) => value.as_i64().map(i64::cast_unsigned),
        (Kind::Word(words), Value::String(word)) => {
            words.iter().position(|known| known == word).and_then(|number| u64::try_from(number).ok())
        }
        _ => None,
    };
    let bytes = match (field.kind, value) {
        (Kind::Text, Value::String(text)) => Some(text.clone().into_bytes()),
        (Kind::Bytes, Value::String(text)) => STANDARD.decode(text).ok(),
        (Kind::Struct, value @ Value::Object(_)) => Some(Struct::encode_json(value.to_string())),
        (Kind::Message(table), value @ Value::Object(_)) => Some(encode(table, value)),
        // No request has a time.
        _ => None,
    };
    if let Some(number) = number {
        encode_key(field.number, WireType::Varint, message);
        encode_varint(number, message);
    }
    if let Some(bytes) = bytes {
        encode_key(field.number, WireType::LengthDelimited, message);
        encode_varint(bytes.len() as u64, message);
        message.extend(bytes);
    }
}

fn take(kind: Kind, message: &mut Bytes) -> Result<Value, Malformed> {
    // The number itself, or the length of what follows.
    let number = decode_varint(message).map_err(|_| Malformed)?;
    match kind {
        Kind::Bool => return Ok(Value::Bool(number != 0)),
        Kind::Int => return Ok(number.cast_signed().into()),
        Kind::Word(words) => {
            let word = usize::try_from(number).ok().and_then(|number| words.get(number));
            return word.map(|word| (*word).into()).ok_or(Malformed);
        }
        Kind::Text | Kind::Bytes | Kind::Struct | Kind::Time | Kind::Message(_) => {}
    }
    let length = usize::try_from(number).ok().filter(|length| *length <= message.len()).ok_or(Malformed)?;
    let bytes = message.split_to(length);
    match kind {
        Kind::Bytes => Ok(STANDARD.encode(bytes).into()),
        Kind::Message(table) => decode(table, bytes),
        Kind::Struct => {
            let json = Struct::decode_json(&bytes).map_err(|_| Malformed)?;
            tree(json.get().as_bytes()).map_err(|_| Malformed)
        }
        Kind::Time => {
            let found = prost_types::Timestamp::decode(bytes).map_err(|_| Malformed)?;
            let millis = found.seconds.saturating_mul(1000).saturating_add(i64::from(found.nanos / 1_000_000));
            Ok(Timestamp::from_millis(millis).to_string().into())
        }
        Kind::Text | Kind::Bool | Kind::Int | Kind::Word(_) => {
            String::from_utf8(bytes.into()).map(Value::String).map_err(|_| Malformed)
        }
    }
}
