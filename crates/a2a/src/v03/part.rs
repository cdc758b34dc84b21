//! One piece of content as 0.3 spells it: `kind` says whether it is text, a file or data.
//!
//! A part without `kind` is taken by what it holds. Data that is no object is read too, although 0.3 forbids it.

use bytes::Bytes;
use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::base64::{Decoded, Encoded};
use crate::wire::{self, message, value};
use crate::{Json, JsonObject};

/// A piece of a message or of an artifact.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    pub content: PartContent,
    pub metadata: Option<JsonObject>,
}

/// What a part holds.
#[derive(Debug, Clone, PartialEq)]
pub enum PartContent {
    Text(String),
    File(File),
    /// An object, in all that we write.
    Data(Json),
}

/// A file, inline or elsewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct File {
    pub content: FileContent,
    pub name: String,
    pub mime_type: String,
}

/// Where the bytes of a file are.
#[derive(Debug, Clone, PartialEq)]
pub enum FileContent {
    /// Base64 on the wire.
    Bytes(Bytes),
    Uri(String),
}

impl PartContent {
    /// The `kind` of the part.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::File(_) => "file",
            Self::Data(_) => "data",
        }
    }
}

impl Part {
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: PartContent::Text(text.into()), metadata: None }
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let kind = self.content.kind();
        map.serialize_entry("kind", kind)?;
        // The content stands under a member of the same name.
        match &self.content {
            PartContent::Text(text) => map.serialize_entry(kind, text)?,
            PartContent::File(file) => map.serialize_entry(kind, file)?,
            PartContent::Data(data) => map.serialize_entry(kind, data)?,
        }
        if let Some(metadata) = &self.metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}

impl Serialize for File {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match &self.content {
            FileContent::Bytes(bytes) => map.serialize_entry("bytes", &Encoded(bytes))?,
            FileContent::Uri(uri) => map.serialize_entry("uri", uri)?,
        }
        if !self.name.is_empty() {
            map.serialize_entry("name", &self.name)?;
        }
        if !self.mime_type.is_empty() {
            map.serialize_entry("mimeType", &self.mime_type)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let any = AnyPart::deserialize(deserializer)?;
        let kind = match (&any.kind, &any.text, &any.file, &any.data) {
            (Some(kind), ..) => kind.as_str(),
            (None, Some(_), None, None) => "text",
            (None, None, Some(_), None) => "file",
            (None, None, None, Some(_)) => "data",
            _ => return Err(de::Error::missing_field("kind")),
        };
        let content = match kind {
            "text" => any.text.map(PartContent::Text),
            "file" => any.file.map(PartContent::File),
            "data" => any.data.map(PartContent::Data),
            other => {
                let expected = &"`text`, `file` or `data` as the kind of a part";
                return Err(de::Error::invalid_value(de::Unexpected::Str(other), expected));
            }
        };
        let Some(content) = content else {
            return Err(de::Error::custom(format_args!("a part of kind {kind} needs {kind}")));
        };
        Ok(Self { content, metadata: any.metadata })
    }
}

impl<'de> Deserialize<'de> for File {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let any = AnyFile::deserialize(deserializer)?;
        let content = match (any.bytes, any.uri) {
            (Some(Decoded(bytes)), None) => FileContent::Bytes(bytes),
            (None, Some(uri)) => FileContent::Uri(uri),
            (Some(_), Some(_)) => return Err(wire::two_members("file")),
            (None, None) => return Err(wire::no_member("file", &["bytes", "uri"])),
        };
        Ok(Self { content, name: any.name, mime_type: any.mime_type })
    }
}

value!(Part);
value!(File);

message! {
    /// The members that parts of every kind have between them.
    #[expect(unreachable_pub, reason = "the macro makes public types")]
    pub struct AnyPart {
        optional kind "kind": String,
        optional text "text": String,
        optional file "file": File,
        optional data "data": Json,
        optional metadata "metadata": JsonObject,
    }
}

message! {
    #[expect(unreachable_pub, reason = "the macro makes public types")]
    pub struct AnyFile {
        optional bytes "bytes": Decoded,
        optional uri "uri": String,
        implicit name "name": String,
        implicit mime_type "mimeType": String,
    }
}
