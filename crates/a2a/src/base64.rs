//! Bytes as base64: written in the standard alphabet, read in either, padded or not.

use std::fmt;

use ::base64::{
    Engine, alphabet,
    display::Base64Display,
    engine::{
        DecodePaddingMode,
        general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD},
    },
};
use bytes::Bytes;
use serde::{
    Deserializer, Serialize, Serializer,
    de::{self, Visitor},
};

use crate::wire;

/// Writes bytes.
pub(crate) struct Encoded<'a>(pub(crate) &'a [u8]);

/// Reads bytes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Decoded(pub(crate) Bytes);

impl Serialize for Encoded<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(self.0, &STANDARD))
    }
}

impl Serialize for Decoded {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Encoded(&self.0).serialize(serializer)
    }
}

impl<'de> wire::Value<'de> for Decoded {
    fn read<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Reader)
    }
}

struct Reader;

impl Visitor<'_> for Reader {
    type Value = Decoded;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("base64")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Decoded, E> {
        const LENIENT: GeneralPurposeConfig =
            GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
        const STANDARD_ALPHABET: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
        const URL_SAFE_ALPHABET: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);
        let engine = if text.contains(['-', '_']) { URL_SAFE_ALPHABET } else { STANDARD_ALPHABET };
        match engine.decode(text) {
            Ok(bytes) => Ok(Decoded(bytes.into())),
            Err(error) => Err(E::custom(format_args!("not base64: {error}"))),
        }
    }
}
