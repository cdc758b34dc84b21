//! The records of an archive: what each kind holds and how it stands on its line.
//!
//! Positions and other numbers that only one database gives are left out: the order of the lines says what they
//! said. So is whatever can be counted again (counts of tasks, usage of tenants), and whatever belongs to a running
//! process (instances, heartbeats).

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, Visitor},
    ser::SerializeMap,
};

use crate::Scopes;

/// What a record is of, in the order in which an archive has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Who owns tasks and tokens.
    Tenant,
    /// A token's hash.
    Token,
    /// A value of the installation.
    Setting,
    /// An entry of the audit log.
    Audit,
    /// A task as it stands.
    Task,
    /// What was said.
    Message,
    /// A chunk of what was made.
    Artifact,
    /// An entry of the log.
    Event,
    /// An idempotency key.
    Key,
    /// A card that a tenant keeps. Archives of before there were any do not have the kind.
    Card,
    /// A push configuration of a task, and how far it has told. Archives of before there were any do not have the kind.
    Push,
    /// An agent that a tenant has defined. Archives of before there were any do not have the kind.
    Agent,
    /// A token of an administrator. Archives of before there were any do not have the kind.
    Admin,
}

impl Kind {
    /// All of them, in order.
    pub const ALL: [Self; 13] = [
        Self::Tenant,
        Self::Token,
        Self::Setting,
        Self::Audit,
        Self::Task,
        Self::Message,
        Self::Artifact,
        Self::Event,
        Self::Key,
        Self::Card,
        Self::Push,
        Self::Agent,
        Self::Admin,
    ];

    /// How many of them every archive speaks of, the oldest too.
    pub(super) const OLDEST: usize = 9;

    /// What people call many of them.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tenant => "tenants",
            Self::Token => "tokens",
            Self::Setting => "settings",
            Self::Audit => "audit",
            Self::Task => "tasks",
            Self::Message => "messages",
            Self::Artifact => "artifacts",
            Self::Event => "events",
            Self::Key => "keys",
            Self::Card => "cards",
            Self::Push => "pushes",
            Self::Agent => "agents",
            Self::Admin => "admins",
        }
    }
}

/// One line of an archive between its first and its last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Record {
    Tenant(Tenant),
    Token(Token),
    Setting(Setting),
    Audit(Audit),
    Task(Box<Task>),
    Message(Message),
    Artifact(Artifact),
    Event(Event),
    Key(Key),
    Card(Card),
    Push(Box<Push>),
    Agent(Agent),
    Admin(Admin),
}

impl Record {
    /// Whether it lets somebody in, is a secret, or makes the server act by itself: what only comes with credentials.
    pub(super) fn gives_rights(&self) -> bool {
        match self {
            // Who has a token is let in. Settings hold the hash of the admin token and the keys that sign and seal. A push
            // configuration sends to an address with sealed secrets. An agent of a tenant runs models with the operator's keys.
            Self::Token(_) | Self::Admin(_) | Self::Setting(_) | Self::Push(_) | Self::Agent(_) => true,
            Self::Tenant(_) | Self::Audit(_) | Self::Task(_) | Self::Message(_) | Self::Artifact(_) => false,
            Self::Event(_) | Self::Key(_) | Self::Card(_) => false,
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Tenant(_) => Kind::Tenant,
            Self::Token(_) => Kind::Token,
            Self::Setting(_) => Kind::Setting,
            Self::Audit(_) => Kind::Audit,
            Self::Task(_) => Kind::Task,
            Self::Message(_) => Kind::Message,
            Self::Artifact(_) => Kind::Artifact,
            Self::Event(_) => Kind::Event,
            Self::Key(_) => Kind::Key,
            Self::Card(_) => Kind::Card,
            Self::Push(_) => Kind::Push,
            Self::Agent(_) => Kind::Agent,
            Self::Admin(_) => Kind::Admin,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tenant {
    pub(super) id: i64,
    pub(super) name: String,
    pub(super) enabled: bool,
    pub(super) created_at: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Token {
    pub(super) id: i64,
    pub(super) tenant: i64,
    pub(super) hash: Hex,
    pub(super) name: String,
    pub(super) created_at: i64,
    pub(super) expires: Option<i64>,
    pub(super) revoked_at: Option<i64>,
    pub(super) used_at: Option<i64>,
    /// How far it reaches, as its columns say it. Tokens of before there were scopes have all of them.
    #[serde(default = "all_scopes", skip_serializing_if = "is_all_scopes")]
    pub(super) scopes: i64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) agents: String,
}

fn all_scopes() -> i64 {
    Scopes::ALL.bits()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_all_scopes(bits: &i64) -> bool {
    *bits == all_scopes()
}

/// A token of an administrator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Admin {
    pub(super) id: i64,
    pub(super) hash: Hex,
    pub(super) name: String,
    pub(super) created_at: i64,
    pub(super) expires: Option<i64>,
    pub(super) revoked_at: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Setting {
    pub(super) name: String,
    pub(super) value: Body,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Audit {
    pub(super) id: i64,
    pub(super) at: i64,
    pub(super) actor: String,
    pub(super) action: String,
    pub(super) detail: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(n: &i64) -> bool {
    *n == 0
}

/// A task without its lease: work that runs is work that was interrupted, and due.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Task {
    pub(super) id: String,
    pub(super) tenant: i64,
    pub(super) agent: String,
    pub(super) context: String,
    pub(super) state: String,
    pub(super) created_at: i64,
    pub(super) updated_at: i64,
    pub(super) status_at: i64,
    pub(super) status_message: Option<String>,
    pub(super) status_turn: i64,
    pub(super) seq: i64,
    pub(super) hidden: i64,
    pub(super) due_at: Option<i64>,
    /// Its turn was cut off, or somebody held a lease on it: what its agent does about an interrupted turn is to happen.
    pub(super) interrupted: bool,
    pub(super) generation: i64,
    pub(super) attempt: i64,
    /// How many of the attempts were given back on purpose.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) releases: i64,
    pub(super) turn: i64,
    pub(super) waiting: i64,
    pub(super) cancel_mark: bool,
    pub(super) remembers: bool,
    /// Its turn rests (1).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) parking: i64,
    /// The events with its agent's state: the last one, and the one before the current turn.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) kept: i64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) kept_before: i64,
    /// It stands in the queue (1).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) queued: i64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) from_agent: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) priority: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) max_attempts: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) replays: Option<String>,
    /// It is a dead letter (1), or one that was replayed (2).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) dead: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) errors: Option<String>,
    /// What it came from, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) origin: Option<String>,
    /// Others are to be told should it be canceled (1), or now (2).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) aftermath: i64,
    /// What its turns have used of models.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) input_tokens: i64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) output_tokens: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Message {
    pub(super) task: String,
    pub(super) id: String,
    pub(super) role: String,
    pub(super) status: String,
    pub(super) turn: i64,
    pub(super) created_at: i64,
    pub(super) body: Body,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Artifact {
    pub(super) task: String,
    pub(super) turn: i64,
    pub(super) id: String,
    pub(super) append: bool,
    pub(super) body: Body,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Event {
    pub(super) task: String,
    pub(super) seq: i64,
    pub(super) at: i64,
    /// As in `a2a_events.kind`, which is the same in every database.
    #[serde(rename = "kind")]
    pub(super) code: i64,
    pub(super) body: Body,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Key {
    pub(super) tenant: i64,
    pub(super) key: Hex,
    pub(super) fingerprint: Hex,
    pub(super) task: String,
    pub(super) turn: i64,
    pub(super) expires: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Card {
    pub(super) tenant: i64,
    pub(super) agent: String,
    pub(super) card: Body,
    pub(super) updated_at: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Agent {
    pub(super) tenant: i64,
    pub(super) id: String,
    pub(super) definition: Body,
    pub(super) created_at: i64,
    pub(super) updated_at: i64,
}

/// A push configuration without its lease: what was being told is due.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Push {
    pub(super) task: String,
    pub(super) id: String,
    pub(super) tenant: i64,
    pub(super) url: String,
    pub(super) receiver: String,
    pub(super) scheme: String,
    pub(super) sealed: Body,
    pub(super) dialect: i64,
    pub(super) chunks: bool,
    pub(super) bytes: i64,
    pub(super) created_at: i64,
    pub(super) seq: i64,
    pub(super) part: i64,
    pub(super) owed: i64,
    pub(super) state: i64,
    pub(super) due_at: Option<i64>,
    pub(super) generation: i64,
    pub(super) attempt: i64,
    pub(super) letters: i64,
    pub(super) record: String,
}

/// Bytes that are text nearly always: a string then, `{"base64": "…"}` otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Body(pub(super) Vec<u8>);

/// Bytes of a hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hex(pub(super) Vec<u8>);

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("base64", &STANDARD.encode(&self.0))?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Body;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a text, or an object with base64")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Body, E> {
                Ok(Body(text.as_bytes().to_vec()))
            }

            fn visit_string<E: de::Error>(self, text: String) -> Result<Body, E> {
                Ok(Body(text.into_bytes()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Body, A::Error> {
                let Some((name, text)) = map.next_entry::<String, String>()? else {
                    return Err(de::Error::missing_field("base64"));
                };
                if name != "base64" || map.next_key::<String>()?.is_some() {
                    return Err(de::Error::custom("expected base64 and nothing else"));
                }
                STANDARD.decode(text).map(Body).map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex(&self.0))
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        unhex(&text).map(Self).ok_or_else(|| de::Error::custom("expected hexadecimal digits"))
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_come_back_byte_for_byte() {
        let hostile: [&[u8]; 6] = [
            b"",
            b"{\"a\": 1.0}",
            "\u{0}\u{1f}\"\\\u{2028}\u{10ffff}\r\n".as_bytes(),
            b"\xff",
            b"a\xc3",
            &[0, 159, 146],
        ];
        for bytes in hostile {
            let setting = Setting { name: "n".into(), value: Body(bytes.to_vec()) };
            let line = serde_json::to_string(&Record::Setting(setting.clone())).unwrap();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), Record::Setting(setting));
        }
    }

    #[test]
    fn what_is_no_record_is_refused() {
        for line in [
            "{}",
            "1",
            r#"{"setting":{"name":"n"}}"#,
            r#"{"setting":{"name":"n","value":"v","more":1}}"#,
            r#"{"setting":{"name":"n","value":{"base64":"!"}}}"#,
            r#"{"setting":{"name":"n","value":{"base64":"AA==","more":1}}}"#,
            r#"{"setting":{"name":"n","value":1}}"#,
            r#"{"key":{"tenant":1,"key":"abc","fingerprint":"","task":"t","turn":1,"expires":null}}"#,
            r#"{"other":{}}"#,
        ] {
            assert!(serde_json::from_str::<Record>(line).is_err(), "{line}");
        }
    }

    #[test]
    fn digits_are_lower_case_and_come_back() {
        assert_eq!(hex(&[0, 255, 16]), "00ff10");
        assert_eq!(unhex("00ff10"), Some(vec![0, 255, 16]));
        assert_eq!(unhex("0F"), None);
        assert_eq!(unhex("0"), None);
    }
}
