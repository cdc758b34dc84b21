//! An error that somebody else answered with, read from JSON-RPC, from an HTTP body or from a gRPC status. Reading never fails on the shape of
//! the details: others leave them out, or put something of their own there.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{DOMAIN, Error, ErrorKind, FieldViolation, clean, excerpt};

/// How long a message of somebody else's may be, in characters.
const MESSAGE_CHARS: usize = 1000;

/// How long an error may be to be parsed: a parsed error takes many times the memory of its bytes.
const PARSED_BYTES: usize = 64 << 10;

/// Parses the body of an HTTP response with an error status. A body of more than 64 KiB is null, and so is one that is not JSON.
pub fn parse_error_body(body: &[u8]) -> Value {
    if body.len() > PARSED_BYTES {
        return Value::Null;
    }
    serde_json::from_slice(body).unwrap_or_default()
}

/// What a remote agent answered instead of a result.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RemoteError {
    /// A JSON-RPC code, which is negative, a gRPC status, which is below 100, or an HTTP status.
    pub code: i64,
    pub message: String,
    /// The reason of the ErrorInfo in A2A's domain.
    pub reason: Option<String>,
    pub metadata: BTreeMap<String, String>,
    pub violations: Vec<FieldViolation>,
}

impl RemoteError {
    /// Reads the body of an HTTP response with an error status. Only the status counts where the body has more than 64 KiB.
    pub fn from_status_body(status: u16, body: &[u8]) -> Self {
        let parsed = parse_error_body(body);
        let mut remote = Self::from_json(&parsed["error"], "details");
        remote.code = status.into();
        if remote.message.is_empty() {
            let start = &body[..body.len().min(PARSED_BYTES)];
            remote.message = match &parsed["error"] {
                Value::String(text) => clean(text, MESSAGE_CHARS),
                _ => format!("HTTP status {status}: {}", excerpt(&String::from_utf8_lossy(start))),
            };
        }
        remote
    }

    /// Reads the `error` member of a JSON-RPC response. Only the code and the message count where it has more than 64 KiB.
    pub(crate) fn from_member(json: &str) -> Result<Self, serde_json::Error> {
        if json.len() <= PARSED_BYTES {
            return serde_json::from_str(json);
        }
        let Brief { code, message } = serde_json::from_str(json).unwrap_or_default();
        Ok(Self { code, message: clean(&message, MESSAGE_CHARS), ..Self::default() })
    }

    /// The kind of error it is, when it is one we know.
    pub fn kind(&self) -> Option<ErrorKind> {
        let reason = self.reason.as_deref();
        match u16::try_from(self.code) {
            Ok(number @ ..100) => ErrorKind::from_grpc(number.into(), reason),
            Ok(status) => ErrorKind::from_http(status, reason),
            Err(_) => ErrorKind::from_jsonrpc(self.code, reason),
        }
    }

    /// As an error of ours: the same kind where it is known, else InvalidAgentResponse.
    pub fn into_error(self) -> Error {
        let mut error = Error::new(self.kind().unwrap_or(ErrorKind::InvalidAgentResponse), &self.message);
        error.violations = self.violations;
        error
    }

    fn from_json(object: &Value, details: &str) -> Self {
        let mut remote = Self {
            code: object["code"].as_i64().unwrap_or_default(),
            message: clean(object["message"].as_str().unwrap_or_default(), MESSAGE_CHARS),
            ..Self::default()
        };
        let Some(details) = object[details].as_array() else {
            return remote;
        };
        for detail in details {
            let is = |name: &str| detail["@type"].as_str().is_some_and(|found| found.ends_with(name));
            if is("google.rpc.ErrorInfo") && detail["domain"] == DOMAIN {
                remote.reason = detail["reason"].as_str().map(excerpt);
                for (key, value) in detail["metadata"].as_object().into_iter().flatten() {
                    remote.metadata.insert(excerpt(key), excerpt(value.as_str().unwrap_or_default()));
                }
            }
            if is("google.rpc.BadRequest") {
                for violation in detail["fieldViolations"].as_array().into_iter().flatten() {
                    remote.violations.push(FieldViolation {
                        field: excerpt(violation["field"].as_str().unwrap_or_default()),
                        description: excerpt(violation["description"].as_str().unwrap_or_default()),
                    });
                }
            }
        }
        remote
    }
}

/// The members of a JSON-RPC error that are read without its details.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Brief {
    code: i64,
    message: String,
}

impl<'de> Deserialize<'de> for RemoteError {
    /// Reads the `error` member of a JSON-RPC response.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Value::deserialize(deserializer)?;
        Ok(Self::from_json(&object, "data"))
    }
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = if self.message.is_empty() { "an error without a message" } else { &self.message };
        match self.code {
            0 => f.write_str(message),
            code => write!(f, "{message} ({code})"),
        }
    }
}

impl std::error::Error for RemoteError {}
