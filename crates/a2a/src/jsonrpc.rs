//! The JSON-RPC 2.0 envelope, for servers and clients. Parameters and results stay raw: they are borrowed on the way in and
//! spliced on the way out, so that one event's bytes serve every stream.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::error::{Error, ErrorKind, RemoteError, excerpt};

/// What follows the result in a response; see [`frame_prefix`].
pub const FRAME_SUFFIX: &[u8] = b"}";

/// The longest id that is taken. It comes back in every frame of a stream.
const ID_BYTES: usize = 1024;

/// A request as it was received.
#[derive(Debug)]
pub struct Request<'a> {
    pub id: Id,
    pub method: Cow<'a, str>,
    /// An object, or nothing.
    pub params: Option<&'a RawValue>,
}

/// Which request a response belongs to: a string or a number, kept as it was written, or null.
#[derive(Debug, Clone, Default)]
pub struct Id(Option<Box<RawValue>>);

/// A body that is no request, and the id to answer it with, as far as it could be read.
#[derive(Debug)]
pub struct Rejected {
    pub id: Id,
    pub error: Error,
}

/// A response as a client received it.
#[derive(Debug)]
pub struct Response<'a> {
    pub id: Id,
    pub result: Result<&'a RawValue, RemoteError>,
}

impl Request<'_> {
    /// Takes the envelope apart.
    pub fn decode(body: &[u8]) -> Result<Request<'_>, Rejected> {
        decode_request(body)
    }
}

impl Id {
    pub const NULL: Self = Self(None);

    pub fn number(number: i64) -> Self {
        Self(serde_json::value::to_raw_value(&number).ok())
    }

    pub fn string(text: &str) -> Self {
        Self(serde_json::value::to_raw_value(text).ok())
    }

    /// The JSON text of the id.
    pub fn get(&self) -> &str {
        self.0.as_deref().map_or("null", RawValue::get)
    }

    pub fn is_null(&self) -> bool {
        self.0.is_none()
    }

    fn from_raw(raw: &RawValue) -> Option<Self> {
        let text = raw.get();
        let known = match text.as_bytes().first() {
            Some(b'n') => return Some(Self::NULL),
            Some(b'"') => serde_json::from_str::<Cow<'_, str>>(text).is_ok(),
            Some(b'-' | b'0'..=b'9') => true,
            _ => false,
        };
        (known && text.len() <= ID_BYTES).then(|| Self(Some(raw.to_owned())))
    }
}

impl PartialEq for Id {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Id {}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// Takes the envelope of a request apart. Every way in which it can be wrong comes back with the id that could be read.
pub fn decode_request(body: &[u8]) -> Result<Request<'_>, Rejected> {
    let envelope = match serde_json::from_slice::<Envelope<'_>>(body) {
        Ok(envelope) => envelope,
        Err(error) => {
            return Err(Rejected { id: Id::NULL, error: not_an_envelope(body, &error) });
        }
    };
    let reject = |id: &Id, kind, message: &str| Rejected { id: id.clone(), error: Error::new(kind, message) };

    let id = match envelope.id {
        None => Id::NULL,
        Some(raw) => match Id::from_raw(raw) {
            Some(id) => id,
            None => {
                let message = "id must be a string of at most 1024 bytes, a number or null";
                return Err(reject(&Id::NULL, ErrorKind::InvalidRequest, message));
            }
        },
    };
    if let Some(name) = envelope.duplicate {
        return Err(reject(&id, ErrorKind::InvalidRequest, &format!("{name} appears twice")));
    }
    if envelope.jsonrpc.and_then(text).as_deref() != Some("2.0") {
        return Err(reject(&id, ErrorKind::InvalidRequest, "jsonrpc must be \"2.0\""));
    }
    let Some(method) = envelope.method.and_then(text) else {
        return Err(reject(&id, ErrorKind::InvalidRequest, "method must be a string"));
    };
    let params = match envelope.params {
        None => None,
        Some(raw) => match raw.get().as_bytes().first() {
            Some(b'{') => Some(raw),
            Some(b'n') => None,
            Some(b'[') => {
                let error = Error::invalid("params", "must be an object, not an array");
                return Err(Rejected { id, error });
            }
            _ => {
                return Err(reject(&id, ErrorKind::InvalidRequest, "params must be an object"));
            }
        },
    };
    Ok(Request { id, method, params })
}

/// The error for a method that does not exist.
pub fn method_not_found(method: &str) -> Error {
    Error::new(ErrorKind::MethodNotFound, format!("method not found: {}", excerpt(method)))
}

/// A response with a result.
pub fn success(id: &Id, result: &impl Serialize) -> Vec<u8> {
    let mut body = prefix(id, 256);
    match serde_json::to_writer(&mut body, result) {
        Ok(()) => {
            body.extend_from_slice(FRAME_SUFFIX);
            body
        }
        Err(_) => failure(id, &Error::internal("the result could not be written as JSON")),
    }
}

/// A response with a result that is JSON already.
pub fn success_raw(id: &Id, result: &[u8]) -> Vec<u8> {
    let mut body = prefix(id, result.len());
    body.extend_from_slice(result);
    body.extend_from_slice(FRAME_SUFFIX);
    body
}

/// A response with an error.
pub fn failure(id: &Id, error: &Error) -> Vec<u8> {
    failure_with_code(id, error, error.kind.codes().jsonrpc)
}

/// A response with an error under another code, for a dialect that numbers its errors differently.
pub fn failure_with_code(id: &Id, error: &Error, code: i32) -> Vec<u8> {
    struct Failure<'a, E>(&'a Id, E);

    impl<E: Serialize> Serialize for Failure<'_, E> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = serializer.serialize_map(Some(3))?;
            map.serialize_entry("jsonrpc", "2.0")?;
            map.serialize_entry("id", self.0)?;
            map.serialize_entry("error", &self.1)?;
            map.end()
        }
    }

    // An id is JSON text already, and an error always serialises.
    serde_json::to_vec(&Failure(id, error.jsonrpc_object_with_code(code))).unwrap_or_default()
}

/// What goes before the result in a response. A stream makes it once and sends prefix, event, [`FRAME_SUFFIX`] for each
/// event, and so shares the event's bytes with all other streams.
pub fn frame_prefix(id: &Id) -> Bytes {
    prefix(id, 0).into()
}

fn prefix(id: &Id, room: usize) -> Vec<u8> {
    const START: &[u8] = br#"{"jsonrpc":"2.0","id":"#;
    const END: &[u8] = br#","result":"#;
    let id = id.get().as_bytes();
    let mut bytes = Vec::with_capacity(START.len() + id.len() + END.len() + room + FRAME_SUFFIX.len());
    bytes.extend_from_slice(START);
    bytes.extend_from_slice(id);
    bytes.extend_from_slice(END);
    bytes
}

/// A request, for a client to send.
pub fn encode_request(id: &Id, method: &str, params: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    struct Call<'a, P>(&'a Id, &'a str, &'a P);

    impl<P: Serialize> Serialize for Call<'_, P> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = serializer.serialize_map(Some(4))?;
            map.serialize_entry("jsonrpc", "2.0")?;
            map.serialize_entry("id", self.0)?;
            map.serialize_entry("method", self.1)?;
            map.serialize_entry("params", self.2)?;
            map.end()
        }
    }

    serde_json::to_vec(&Call(id, method, params))
}

/// Takes a response apart. What is no JSON-RPC response is an InvalidAgentResponse.
pub fn decode_response(body: &[u8]) -> Result<Response<'_>, Error> {
    match response(body)? {
        (id, Ok(Some(result))) => Ok(Response { id, result: Ok(result) }),
        (id, Err(remote)) => Ok(Response { id, result: Err(remote) }),
        (_, Ok(None)) => Err(no_response("neither result nor error is there")),
    }
}

/// The same of a method whose result says nothing: some servers then write `{}`, some `null`, and some leave it out.
pub fn decode_acknowledgement(body: &[u8]) -> Result<Result<(), RemoteError>, Error> {
    let (_, result) = response(body)?;
    Ok(result.map(|_| ()))
}

fn response(body: &[u8]) -> Result<(Id, Result<Option<&RawValue>, RemoteError>), Error> {
    let envelope: Envelope<'_> =
        serde_json::from_slice(body).map_err(|error| no_response(&excerpt(&error.to_string())))?;
    if envelope.jsonrpc.and_then(text).as_deref() != Some("2.0") {
        return Err(no_response("jsonrpc must be \"2.0\""));
    }
    let id = envelope.id.map_or(Some(Id::NULL), Id::from_raw);
    let Some(id) = id else {
        return Err(no_response("id must be a string, a number or null"));
    };
    // Some servers write `"error": null` beside a result.
    if let Some(error) = envelope.error.filter(|raw| raw.get() != "null") {
        let remote = RemoteError::from_member(error.get()).map_err(|_| no_response("the error could not be read"))?;
        return Ok((id, Err(remote)));
    }
    Ok((id, Ok(envelope.result)))
}

fn no_response(why: &str) -> Error {
    Error::new(ErrorKind::InvalidAgentResponse, format!("not a JSON-RPC response: {why}"))
}

/// The members of a request and of a response, whatever they hold, so that each can be judged by itself.
#[derive(Default)]
struct Envelope<'a> {
    jsonrpc: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
    duplicate: Option<&'static str>,
}

impl<'de> Deserialize<'de> for Envelope<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EnvelopeReader)
    }
}

struct EnvelopeReader;

impl<'de> Visitor<'de> for EnvelopeReader {
    type Value = Envelope<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON-RPC object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Envelope<'de>, A::Error> {
        let mut envelope = Envelope::default();
        while let Some(name) = map.next_key::<Member>()? {
            let (slot, name) = match name {
                Member::JsonRpc => (&mut envelope.jsonrpc, "jsonrpc"),
                Member::Id => (&mut envelope.id, "id"),
                Member::Method => (&mut envelope.method, "method"),
                Member::Params => (&mut envelope.params, "params"),
                Member::Result => (&mut envelope.result, "result"),
                Member::Error => (&mut envelope.error, "error"),
                Member::Unknown => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            if slot.replace(map.next_value()?).is_some() {
                envelope.duplicate = Some(name);
            }
        }
        Ok(envelope)
    }
}

enum Member {
    JsonRpc,
    Id,
    Method,
    Params,
    Result,
    Error,
    Unknown,
}

impl<'de> Deserialize<'de> for Member {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_identifier(MemberReader)
    }
}

struct MemberReader;

impl Visitor<'_> for MemberReader {
    type Value = Member;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member name")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Member, E> {
        Ok(match name {
            "jsonrpc" => Member::JsonRpc,
            "id" => Member::Id,
            "method" => Member::Method,
            "params" => Member::Params,
            "result" => Member::Result,
            "error" => Member::Error,
            _ => Member::Unknown,
        })
    }
}

/// The text of a JSON string, borrowed when nothing in it is escaped.
fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    match serde_json::from_str::<&str>(raw.get()) {
        Ok(borrowed) => Some(Cow::Borrowed(borrowed)),
        Err(_) => serde_json::from_str::<String>(raw.get()).ok().map(Cow::Owned),
    }
}

fn not_an_envelope(body: &[u8], error: &serde_json::Error) -> Error {
    // A body that starts like an array is refused there; whether it is JSON at all is still to be seen.
    let is_json = error.classify() == Category::Data && serde_json::from_slice::<IgnoredAny>(body).is_ok();
    if is_json {
        return Error::new(
            ErrorKind::InvalidRequest,
            "the request must be one JSON-RPC object; batches are not supported",
        );
    }
    Error::new(ErrorKind::ParseError, format!("not valid JSON: {}", excerpt(&error.to_string())))
}

#[cfg(test)]
mod tests;
