//! The corpus: hostile requests as data.
//!
//! A file holds `cases`, one request each, and `wrong`, tables that make one request for each wrong value of each field at
//! each place where the message can be sent. A case has a `name`, what to `send` (`"POST /a2a/message:send"`) and what to
//! `expect` ([`super::expect`]). The request is that of a well-behaved client of the first tenant; the rest says
//! where it is not:
//!
//! - `target` goes behind the path of `send`: text, or a list of pieces.
//! - `headers`: added; a list of values is the header several times, null takes a header away.
//! - the body: `json` any value, `body` text or pieces, or `call`, `[method, params]` of a JSON-RPC request with the id "h".
//! - `raw`: instead of all that, the bytes themselves; the client then closes its side.
//! - `id`: the id that a JSON-RPC answer has to carry, when it is not "h" for a `call` and null otherwise.
//!
//! A piece is text, `{"repeat": ["x", 3]}`, `{"base64": "/w=="}` or `{"nest": 3}`, which is `[[[]]]`. In every text
//! stand for themselves: `$TASK` and `$CONTEXT`, a finished task of the caller; `$OPEN`, one that waits for input; `$THEIRS`,
//! `$THEIR_CONTEXT` and `$THEIR_PAGE`, another tenant's; `$PAGE`, a page token of the caller's own list; `$UNKNOWN`, an id
//! that never was; `$TOKEN` and `$THEIR_TOKEN`; `$HOST`.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::wire::Request;

const FILES: [(&str, &str); 7] = [
    ("json", include_str!("corpus/json.json")),
    ("messages", include_str!("corpus/messages.json")),
    ("wrong", include_str!("corpus/wrong.json")),
    ("rpc", include_str!("corpus/rpc.json")),
    ("http", include_str!("corpus/http.json")),
    ("ids", include_str!("corpus/ids.json")),
    ("v1", include_str!("corpus/v1.json")),
];

/// One hostile request.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    /// Whether the client says that nothing more comes.
    pub(crate) and_close: bool,
    pub(crate) expect: String,
    /// The id of a JSON-RPC answer.
    pub(crate) id: Value,
}

/// What stands for what in the corpus.
pub(crate) type Names = Vec<(&'static str, String)>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "about")]
    _about: String,
    #[serde(default)]
    cases: Vec<Written>,
    #[serde(default)]
    wrong: Vec<Wrong>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    #[serde(default)]
    send: String,
    #[serde(default)]
    target: Pieces,
    #[serde(default)]
    headers: BTreeMap<String, Value>,
    json: Option<Value>,
    body: Option<Pieces>,
    call: Option<(String, Value)>,
    raw: Option<Pieces>,
    /// Null is an id here, too.
    #[serde(default, deserialize_with = "given")]
    id: Option<Value>,
    expect: String,
}

/// A message with one field after the other wrong.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wrong {
    message: String,
    /// Where it can be sent: a path for the message as it is, `path method` for a JSON-RPC endpoint; behind an
    /// exclamation mark when the answer is of 0.3 and names no field in its details.
    at: Vec<String>,
    /// It is right like that.
    base: Value,
    fields: Vec<Field>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Field {
    /// The path in the message, as the error names it.
    set: String,
    #[serde(default)]
    to: Vec<Value>,
    /// Leaving it out is wrong, too.
    #[serde(default)]
    required: bool,
}

#[derive(Deserialize, Default)]
#[serde(untagged)]
enum Pieces {
    #[default]
    None,
    Text(String),
    List(Vec<Piece>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Piece {
    Text(String),
    Repeat { repeat: (String, usize) },
    Base64 { base64: String },
    Nest { nest: usize },
}

/// All cases, their names filled in, for a server at `host`.
pub(crate) fn read(names: &Names, host: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, text) in FILES {
        let file: File = serde_json::from_str(text).unwrap_or_else(|error| panic!("corpus/{name}.json: {error}"));
        for written in file.cases {
            cases.push(written.case(name, names, host));
        }
        for table in &file.wrong {
            table.cases(&mut |written| cases.push(written.case(name, names, host)));
        }
    }
    cases
}

impl Written {
    fn case(self, file: &str, names: &Names, host: &str) -> Case {
        let name = format!("{file}: {}", self.name);
        let id = self.id.unwrap_or(if self.call.is_some() { json!("h") } else { Value::Null });
        if let Some(raw) = self.raw {
            return Case { name, bytes: raw.bytes(names), and_close: true, expect: self.expect, id };
        }
        let (method, path) = self.send.split_once(' ').unwrap_or_else(|| panic!("{name}: what to send?"));
        let mut target = filled(path, names).into_bytes();
        target.extend(self.target.bytes(names));
        let mut request = Request::new(method, target);
        // Whoever calls a method of 0.3 names no version, or that one.
        let is_older = self.call.as_ref().is_some_and(|(method, _)| method.contains('/'));
        let body = match (self.json, self.body, self.call) {
            (Some(json), None, None) => Some(filled(&json.to_string(), names).into_bytes()),
            (None, Some(body), None) => Some(body.bytes(names)),
            (None, None, Some((method, params))) => {
                let call = json!({"jsonrpc": "2.0", "id": "h", "method": method, "params": params});
                Some(filled(&call.to_string(), names).into_bytes())
            }
            (None, None, None) => None,
            _ => panic!("{name}: more than one body"),
        };
        let mut headers = vec![("Authorization", "Bearer $TOKEN")];
        if !is_older {
            headers.push(("A2A-Version", "1.0"));
        }
        if let Some(body) = body {
            request.body = body;
            headers.push(("Content-Type", "application/json"));
        }
        let given = |name: &str| self.headers.keys().any(|known| known.eq_ignore_ascii_case(name));
        for (name, value) in headers.into_iter().filter(|(name, _)| !given(name)) {
            request = request.header(name, filled(value, names));
        }
        for (name, value) in &self.headers {
            let values = match value {
                Value::Null => &[],
                Value::Array(values) => values.as_slice(),
                other => std::slice::from_ref(other),
            };
            for value in values {
                let value: Pieces = serde_json::from_value(value.clone()).expect("a header is text or pieces");
                request = request.header(name, value.bytes(names));
            }
        }
        Case { name, bytes: request.bytes(host), and_close: false, expect: self.expect, id }
    }
}

impl Wrong {
    fn cases(&self, add: &mut dyn FnMut(Written)) {
        for place in &self.at {
            for field in &self.fields {
                let missing = field.required.then_some(None);
                for value in missing.into_iter().chain(field.to.iter().map(Some)) {
                    add(self.written(place, field, value));
                }
            }
        }
    }

    /// Without a value the field is left out.
    fn written(&self, place: &str, field: &Field, value: Option<&Value>) -> Written {
        let mut message = self.base.clone();
        set(&mut message, &field.set, value);
        let said = value.map_or_else(|| "missing".to_owned(), ToString::to_string);
        let (place, is_old) = place.strip_prefix('!').map_or((place, false), |place| (place, true));
        let (path, method) = place.split_once(' ').map_or((place, None), |(path, method)| (path, Some(method)));
        Written {
            name: format!("{} at {place}: {} is {said}", self.message, field.set),
            send: format!("POST {path}"),
            target: Pieces::None,
            headers: BTreeMap::new(),
            json: method.is_none().then(|| message.clone()),
            body: None,
            call: method.map(|method| (method.to_owned(), message)),
            raw: None,
            id: None,
            expect: match method {
                None => format!("rest 400 INVALID_PARAMS {}", field.set),
                Some(_) if is_old => format!("v03 -32602 - {}", field.set),
                Some(_) => format!("rpc -32602 INVALID_PARAMS {}", field.set),
            },
        }
    }
}

fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Sets a field by its path, `message.parts[0].text`.
fn set(message: &mut Value, path: &str, value: Option<&Value>) {
    let pointer = format!("/{}", path.replace(['.', '['], "/").replace(']', ""));
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer begins with a slash");
    let parent = message.pointer_mut(parent).unwrap_or_else(|| panic!("the base has no {parent}"));
    match (parent, value) {
        (Value::Object(object), Some(value)) => {
            object.insert(name.to_owned(), value.clone());
        }
        (Value::Object(object), None) => {
            object.remove(name);
        }
        (Value::Array(list), value) => {
            let index: usize = name.parse().expect("an index is a number");
            list[index] = value.cloned().unwrap_or_default();
        }
        (other, _) => panic!("nothing can be set in {other}"),
    }
}

impl Pieces {
    fn bytes(&self, names: &Names) -> Vec<u8> {
        match self {
            Self::None => Vec::new(),
            Self::Text(text) => filled(text, names).into_bytes(),
            Self::List(pieces) => pieces.iter().flat_map(|piece| piece.bytes(names)).collect(),
        }
    }
}

impl Piece {
    fn bytes(&self, names: &Names) -> Vec<u8> {
        match self {
            Self::Text(text) => filled(text, names).into_bytes(),
            Self::Repeat { repeat: (text, times) } => text.repeat(*times).into_bytes(),
            Self::Base64 { base64 } => STANDARD.decode(base64).expect("base64"),
            Self::Nest { nest } => format!("{}{}", "[".repeat(*nest), "]".repeat(*nest)).into_bytes(),
        }
    }
}

fn filled(text: &str, names: &Names) -> String {
    let mut text = text.to_owned();
    // The longest names first, so that none is taken for the beginning of another.
    let mut names: Vec<_> = names.iter().collect();
    names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    for (name, value) in names {
        text = text.replace(name, value);
    }
    text
}
