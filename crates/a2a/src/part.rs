//! One piece of content. Read in one pass; exactly one of text, raw, url and data is there, and `data: null` counts.

use std::fmt;

use bytes::Bytes;
use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::base64::{Decoded, Encoded};
use crate::wire::{self, value};
use crate::{Json, JsonObject};

/// A piece of a message or of an artifact.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    pub content: PartContent,
    pub metadata: Option<JsonObject>,
    pub filename: String,
    pub media_type: String,
}

/// What a part holds.
#[derive(Debug, Clone, PartialEq)]
pub enum PartContent {
    Text(String),
    /// The bytes of a file; base64 on the wire.
    Raw(Bytes),
    /// Where the bytes of a file are.
    Url(String),
    /// Structured data, `null` included.
    Data(Json),
}

impl Part {
    pub fn new(content: PartContent) -> Self {
        Self { content, metadata: None, filename: String::new(), media_type: String::new() }
    }

    pub fn text(text: impl Into<String>) -> Self {
        Self::new(PartContent::Text(text.into()))
    }

    pub fn data(data: Json) -> Self {
        Self::new(PartContent::Data(data))
    }

    pub fn raw(bytes: impl Into<Bytes>) -> Self {
        Self::new(PartContent::Raw(bytes.into()))
    }

    pub fn url(url: impl Into<String>) -> Self {
        Self::new(PartContent::Url(url.into()))
    }

    /// The text of a text part.
    pub fn as_text(&self) -> Option<&str> {
        match &self.content {
            PartContent::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match &self.content {
            PartContent::Text(text) => map.serialize_entry("text", text)?,
            PartContent::Raw(bytes) => map.serialize_entry("raw", &Encoded(bytes))?,
            PartContent::Url(url) => map.serialize_entry("url", url)?,
            PartContent::Data(data) => map.serialize_entry("data", data)?,
        }
        if let Some(metadata) = &self.metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        if !self.filename.is_empty() {
            map.serialize_entry("filename", &self.filename)?;
        }
        if !self.media_type.is_empty() {
            map.serialize_entry("mediaType", &self.media_type)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Reader)
    }
}

value!(Part);

wire::message!(@names
    text "text", raw "raw", url "url", data "data", metadata "metadata", filename "filename", media_type "mediaType",
);

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Part;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Part object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Part, A::Error> {
        let mut content: Option<PartContent> = None;
        let mut metadata: Option<Option<JsonObject>> = None;
        let mut filename: Option<Option<String>> = None;
        let mut media_type: Option<Option<String>> = None;
        while let Some(name) = map.next_key::<Name>()? {
            let member = match name {
                Name::text => wire::field(&mut map)?.map(PartContent::Text),
                Name::raw => wire::field(&mut map)?.map(|Decoded(bytes)| PartContent::Raw(bytes)),
                Name::url => wire::field(&mut map)?.map(PartContent::Url),
                // Null is a value of google.protobuf.Value, so that here it does not mean unset.
                Name::data => Some(PartContent::Data(map.next_value()?)),
                Name::metadata if metadata.is_some() => {
                    return Err(de::Error::duplicate_field("metadata"));
                }
                Name::metadata => {
                    metadata = Some(wire::field(&mut map)?);
                    None
                }
                Name::filename if filename.is_some() => {
                    return Err(de::Error::duplicate_field("filename"));
                }
                Name::filename => {
                    filename = Some(wire::field(&mut map)?);
                    None
                }
                Name::media_type if media_type.is_some() => {
                    return Err(de::Error::duplicate_field("mediaType"));
                }
                Name::media_type => {
                    media_type = Some(wire::field(&mut map)?);
                    None
                }
                Name::Unknown => {
                    map.next_value::<IgnoredAny>()?;
                    None
                }
            };
            if member.is_some() {
                if content.is_some() {
                    return Err(wire::two_members("Part"));
                }
                content = member;
            }
        }
        Ok(Part {
            content: content.ok_or_else(|| wire::no_member("Part", &["text", "raw", "url", "data"]))?,
            metadata: metadata.flatten(),
            filename: filename.flatten().unwrap_or_default(),
            media_type: media_type.flatten().unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Part, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn each_content_round_trips() {
        for text in [
            r#"{"text":""}"#,
            r#"{"text":"a\nb"}"#,
            r#"{"raw":"+/8=","filename":"a.bin","mediaType":"application/octet-stream"}"#,
            r#"{"raw":""}"#,
            r#"{"url":"https://example.org/x"}"#,
            r#"{"data":null}"#,
            r#"{"data":{"n":1.0},"metadata":{"k":[1]}}"#,
        ] {
            assert_eq!(serde_json::to_string(&read(text).unwrap()).unwrap(), text);
        }
    }

    #[test]
    fn base64_of_four_forms_is_one_value() {
        let expected = Part::raw(vec![0xfb, 0xff]);
        for raw in ["+/8=", "+/8", "-_8=", "-_8"] {
            assert_eq!(read(&format!(r#"{{"raw":"{raw}"}}"#)).unwrap(), expected, "{raw}");
        }
        for raw in ["+/8!", "a", "+_8=", "é"] {
            assert!(read(&format!(r#"{{"raw":"{raw}"}}"#)).is_err(), "{raw}");
        }
    }

    #[test]
    fn the_oneof_has_one_member() {
        assert_eq!(read(r#"{"text":null,"url":"u"}"#).unwrap(), Part::url("u"));
        for text in [
            "{}",
            r#"{"filename":"x"}"#,
            r#"{"text":null}"#,
            r#"{"text":"a","url":"b"}"#,
            r#"{"text":"a","data":null}"#,
            r#"{"text":"a","text":"a"}"#,
            r#"{"text":"a","mediaType":"a","media_type":"b"}"#,
            r#"["a"]"#,
            r#""a""#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
