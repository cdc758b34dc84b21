//! `google.protobuf.Struct` and `google.protobuf.Value` as their bytes.
//!
//! A tree of `prost_types::Value` takes about a hundred times the memory of its bytes. These messages keep what came on the wire, or
//! the JSON text that is to go there, and convert from one to the other without anything between.

mod read;
mod write;

use std::fmt;

use bytes::{Buf, BufMut, Bytes};
use prost::{
    DecodeError, Message,
    encoding::{
        DecodeContext, WireType, check_wire_type, decode_varint, encode_key, encode_varint, encoded_len_varint,
        key_len, skip_field,
    },
};

use self::write::Measured;
use super::field::Misfit;
use crate::{Error, Json, JsonObject};

/// The highest field number of `Struct` and `Value`.
const HIGHEST_TAG: u32 = 6;

/// A message as bytes.
#[derive(Clone)]
enum Content {
    Wire(Vec<u8>),
    Json(Measured),
}

/// `google.protobuf.Struct`: a JSON object.
#[derive(Clone, Default, PartialEq)]
pub struct Struct(Content);

/// `google.protobuf.Value`: any JSON value.
#[derive(Clone, Default, PartialEq)]
pub struct Value(Content);

impl Struct {
    /// The text of a JSON object. It is converted when the message is encoded.
    pub fn from_text(json: impl Into<Bytes>) -> Self {
        Self(Content::Json(Measured::object(json.into())))
    }

    /// The bytes of the message that the text of a JSON object stands for.
    pub fn encode_json(json: impl Into<Bytes>) -> Vec<u8> {
        Self::from_text(json).0.into_wire()
    }

    /// The JSON object that the bytes of a message stand for.
    pub fn decode_json(message: &[u8]) -> Result<JsonObject, Error> {
        read::object(message).map_err(Misfit::into_error)
    }

    /// The JSON object.
    pub(crate) fn read(self) -> Result<JsonObject, Misfit> {
        read::object(&self.0.into_wire())
    }

    /// Removes a member, and gives its number if it is one.
    pub fn take_number(&mut self, name: &str) -> Option<f64> {
        let wire = std::mem::take(&mut self.0).into_wire();
        let (wire, number) = read::without(wire, name);
        self.0 = Content::Wire(wire);
        number
    }

    /// Whether it has no members.
    pub fn is_empty(&self) -> bool {
        self.encoded_len() == 0
    }
}

impl Value {
    /// The JSON value.
    pub(crate) fn read(self) -> Result<Json, Misfit> {
        read::value(&self.0.into_wire())
    }

    /// JSON text as a message. It is converted when the message is encoded.
    pub(crate) fn from_text(json: impl Into<Bytes>) -> Self {
        Self(Content::Json(Measured::value(json.into())))
    }
}

impl Content {
    fn into_wire(self) -> Vec<u8> {
        match self {
            Self::Wire(wire) => wire,
            Self::Json(json) => {
                let mut wire = Vec::with_capacity(json.encoded_len());
                json.write(&mut wire);
                wire
            }
        }
    }

    fn encoded_len(&self) -> usize {
        match self {
            Self::Wire(wire) => wire.len(),
            Self::Json(json) => json.encoded_len(),
        }
    }

    fn encode(&self, buf: &mut impl BufMut) {
        match self {
            Self::Wire(wire) => buf.put_slice(wire),
            Self::Json(json) => json.write(buf),
        }
    }

    /// Keeps one field. The bytes of a message that is there twice follow each other, which is how protobuf merges them.
    fn keep(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        let mut wire = std::mem::take(self).into_wire();
        match wire_type {
            WireType::Varint => {
                let number = decode_varint(buf)?;
                encode_key(tag, wire_type, &mut wire);
                encode_varint(number, &mut wire);
            }
            WireType::LengthDelimited => {
                let length = decode_varint(buf)?;
                let bytes = usize::try_from(length).unwrap_or(usize::MAX);
                require(bytes, buf)?;
                if wire.is_empty() {
                    wire.reserve_exact(key_len(tag) + encoded_len_varint(length) + bytes);
                }
                encode_key(tag, wire_type, &mut wire);
                encode_varint(length, &mut wire);
                wire.put(buf.take(bytes));
            }
            WireType::SixtyFourBit | WireType::ThirtyTwoBit => {
                let bytes = if wire_type == WireType::SixtyFourBit { 8 } else { 4 };
                require(bytes, buf)?;
                encode_key(tag, wire_type, &mut wire);
                wire.put(buf.take(bytes));
            }
            WireType::StartGroup | WireType::EndGroup => {
                // No known field is a group, and an unknown one is skipped.
                if tag <= HIGHEST_TAG {
                    check_wire_type(WireType::LengthDelimited, wire_type)?;
                }
                skip_field(wire_type, tag, buf, ctx)?;
            }
        }
        *self = Self::Wire(wire);
        Ok(())
    }
}

/// The error of prost where so many bytes are not there.
fn require(bytes: usize, buf: &impl Buf) -> Result<(), DecodeError> {
    if buf.remaining() < bytes {
        decode_varint(&mut &[][..])?;
    }
    Ok(())
}

impl Default for Content {
    fn default() -> Self {
        Self::Wire(Vec::new())
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        self.clone().into_wire() == other.clone().into_wire()
    }
}

macro_rules! message {
    ($( $name:ident, )*) => {
        $( impl Message for $name {
            fn encode_raw(&self, buf: &mut impl BufMut) {
                self.0.encode(buf);
            }

            fn merge_field(
                &mut self,
                tag: u32,
                wire_type: WireType,
                buf: &mut impl Buf,
                ctx: DecodeContext,
            ) -> Result<(), DecodeError> {
                self.0.keep(tag, wire_type, buf, ctx)
            }

            fn encoded_len(&self) -> usize {
                self.0.encoded_len()
            }

            fn clear(&mut self) {
                *self = Self::default();
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({} bytes)", stringify!($name), self.0.encoded_len())
            }
        } )*
    };
}

message! { Struct, Value, }

#[cfg(test)]
mod tests;
