//! What 0.3 has no field for travels in `metadata`: members are put there on the way down and taken out on the way up.
//!
//! The other members keep their order, and their values the sender's bytes. An object that held nothing else is gone
//! afterwards: empty metadata and none mean the same.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use crate::{Json, JsonObject};

/// Data that was no object stands under the one member `value`. The name is that of the official Python SDK.
pub(super) const DATA_PART_COMPAT: &str = "data_part_compat";
/// The file name of a part that is not a file.
pub(super) const FILENAME: &str = "a2a.filename";
/// The media type of a part that is not a file.
pub(super) const MEDIA_TYPE: &str = "a2a.mediaType";
/// The role of a message when it has none.
pub(super) const ROLE: &str = "a2a.role";

/// The members of an object, to take some out or put some in.
pub(super) struct Members {
    list: Vec<(String, Json)>,
}

impl Members {
    pub(super) fn of(metadata: Option<&JsonObject>) -> Self {
        // A JsonObject always reads as its members.
        metadata.and_then(|object| object.parse().ok()).unwrap_or(Self { list: Vec::new() })
    }

    /// Puts a member in, in place of one of the same name.
    pub(super) fn put(&mut self, name: &str, value: &serde_json::Value) {
        self.list.retain(|(known, _)| known != name);
        self.list.push((name.to_owned(), Json::from_value(value)));
    }

    /// Takes a string out; a value of another type is somebody else's and stays.
    pub(super) fn take_string(&mut self, name: &str) -> Option<String> {
        let at = self.list.iter().position(|(known, _)| known == name)?;
        let text = self.list[at].1.parse().ok()?;
        self.list.remove(at);
        Some(text)
    }

    /// Takes `true` out.
    pub(super) fn take_flag(&mut self, name: &str) -> bool {
        let before = self.list.len();
        self.list.retain(|(known, value)| known != name || value.get() != "true");
        self.list.len() < before
    }

    /// The value of the member `name` when it is the only one.
    pub(super) fn only(mut self, name: &str) -> Option<Json> {
        match self.list.pop() {
            Some((known, value)) if known == name && self.list.is_empty() => Some(value),
            _ => None,
        }
    }

    pub(super) fn into_object(self) -> Option<JsonObject> {
        if self.list.is_empty() {
            return None;
        }
        let mut text = String::from("{");
        for (name, value) in &self.list {
            if text.len() > 1 {
                text.push(',');
            }
            // `Value` prints a string as JSON.
            text.push_str(&serde_json::Value::from(name.as_str()).to_string());
            text.push(':');
            text.push_str(value.get());
        }
        text.push('}');
        JsonObject::from_text(&text).ok()
    }
}

/// The object `{name: value}`, with the value's own bytes.
pub(super) fn object_of(name: &str, value: Json) -> Option<JsonObject> {
    let list = vec![(name.to_owned(), value)];
    Members { list }.into_object()
}

/// Whether a member of this name may be there: most metadata holds none of ours and is not taken apart.
pub(super) fn mentions(metadata: Option<&JsonObject>, names: &[&str]) -> bool {
    metadata.is_some_and(|object| names.iter().any(|name| object.get().contains(name)))
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut list = Vec::new();
                while let Some(member) = map.next_entry::<String, Json>()? {
                    list.push(member);
                }
                Ok(Members { list })
            }
        }
        deserializer.deserialize_map(Reader)
    }
}
