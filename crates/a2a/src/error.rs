//! The error model: one error, one table of codes, and its JSON encodings.
//!
//! A2A 1.0.1 section 5.4 says which JSON-RPC code, HTTP status and gRPC status each error has; [`ErrorKind::codes`] is that
//! table, with the HTTP-level errors of this server added. The reason of `google.rpc.ErrorInfo` stands in it too.

use std::fmt;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

mod remote;

pub use remote::{RemoteError, parse_error_body};

/// The `domain` of every `google.rpc.ErrorInfo` that A2A defines.
pub const DOMAIN: &str = "a2a-protocol.org";

/// How much of somebody's input a message repeats, in characters.
pub const EXCERPT_CHARS: usize = 200;

/// No message is longer, whatever it was built from.
const MESSAGE_CHARS: usize = 1000;

/// Why a request was refused or failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Error {
    pub kind: ErrorKind,
    pub message: String,
    /// Takes the place of the kind's own reason.
    pub reason: Option<&'static str>,
    /// Context for `google.rpc.ErrorInfo`.
    pub metadata: Vec<(&'static str, String)>,
    /// What is wrong with which field, for `google.rpc.BadRequest`.
    pub violations: Vec<FieldViolation>,
    /// After how many seconds trying again makes sense.
    pub retry_after: Option<u32>,
}

/// One wrong field. The path is in the JSON spelling, `message.parts[0].text`; empty for the request as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldViolation {
    pub field: String,
    pub description: String,
}

/// What kind of error it is. All its codes follow from this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    ParseError,
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    Internal,
    TaskNotFound,
    TaskNotCancelable,
    PushNotificationNotSupported,
    UnsupportedOperation,
    ContentTypeNotSupported,
    InvalidAgentResponse,
    ExtendedAgentCardNotConfigured,
    ExtensionSupportRequired,
    VersionNotSupported,
    /// No such agent, or one of another tenant.
    AgentNotFound,
    Unauthenticated,
    PermissionDenied,
    /// No such route.
    NotFound,
    MethodNotAllowed,
    /// The request's body did not arrive in time.
    RequestTimeout,
    /// The name is taken.
    AlreadyExists,
    /// What is asked for is not possible as things stand; the reason says why.
    Conflict,
    PayloadTooLarge,
    /// The request itself has a media type that the route does not read.
    UnsupportedMediaType,
    ResourceExhausted,
    Unavailable,
    /// Somebody else, who had to be asked, cannot be reached or is broken.
    BadGateway,
}

/// How an error looks in each binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Codes {
    pub jsonrpc: i32,
    pub http: u16,
    pub grpc: Grpc,
    pub reason: &'static str,
}

/// The gRPC status codes in use, with their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grpc {
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

impl ErrorKind {
    pub const ALL: [Self; 27] = [
        Self::ParseError,
        Self::InvalidRequest,
        Self::MethodNotFound,
        Self::InvalidParams,
        Self::Internal,
        Self::TaskNotFound,
        Self::TaskNotCancelable,
        Self::PushNotificationNotSupported,
        Self::UnsupportedOperation,
        Self::ContentTypeNotSupported,
        Self::InvalidAgentResponse,
        Self::ExtendedAgentCardNotConfigured,
        Self::ExtensionSupportRequired,
        Self::VersionNotSupported,
        Self::AgentNotFound,
        Self::Unauthenticated,
        Self::PermissionDenied,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::RequestTimeout,
        Self::AlreadyExists,
        Self::Conflict,
        Self::PayloadTooLarge,
        Self::UnsupportedMediaType,
        Self::ResourceExhausted,
        Self::Unavailable,
        Self::BadGateway,
    ];

    /// The table.
    ///
    /// JSON-RPC has no code for the errors of HTTP; where one has to be given, it is the nearest standard code, or -32000,
    /// the one server error code that A2A leaves free.
    pub const fn codes(self) -> Codes {
        let (jsonrpc, http, grpc, reason) = match self {
            Self::ParseError => (-32700, 400, Grpc::InvalidArgument, "PARSE_ERROR"),
            Self::InvalidRequest => (-32600, 400, Grpc::InvalidArgument, "INVALID_REQUEST"),
            Self::MethodNotFound => (-32601, 404, Grpc::Unimplemented, "METHOD_NOT_FOUND"),
            Self::InvalidParams => (-32602, 400, Grpc::InvalidArgument, "INVALID_PARAMS"),
            Self::Internal => (-32603, 500, Grpc::Internal, "INTERNAL"),
            Self::TaskNotFound => (-32001, 404, Grpc::NotFound, "TASK_NOT_FOUND"),
            Self::TaskNotCancelable => (-32002, 400, Grpc::FailedPrecondition, "TASK_NOT_CANCELABLE"),
            Self::PushNotificationNotSupported => {
                (-32003, 400, Grpc::FailedPrecondition, "PUSH_NOTIFICATION_NOT_SUPPORTED")
            }
            Self::UnsupportedOperation => (-32004, 400, Grpc::FailedPrecondition, "UNSUPPORTED_OPERATION"),
            Self::ContentTypeNotSupported => (-32005, 400, Grpc::InvalidArgument, "CONTENT_TYPE_NOT_SUPPORTED"),
            Self::InvalidAgentResponse => (-32006, 500, Grpc::Internal, "INVALID_AGENT_RESPONSE"),
            Self::ExtendedAgentCardNotConfigured => {
                (-32007, 400, Grpc::FailedPrecondition, "EXTENDED_AGENT_CARD_NOT_CONFIGURED")
            }
            Self::ExtensionSupportRequired => (-32008, 400, Grpc::FailedPrecondition, "EXTENSION_SUPPORT_REQUIRED"),
            Self::VersionNotSupported => (-32009, 400, Grpc::FailedPrecondition, "VERSION_NOT_SUPPORTED"),
            Self::AgentNotFound => (-32602, 404, Grpc::NotFound, "AGENT_NOT_FOUND"),
            Self::Unauthenticated => (-32000, 401, Grpc::Unauthenticated, "UNAUTHENTICATED"),
            Self::PermissionDenied => (-32000, 403, Grpc::PermissionDenied, "PERMISSION_DENIED"),
            Self::NotFound => (-32601, 404, Grpc::NotFound, "NOT_FOUND"),
            Self::MethodNotAllowed => (-32600, 405, Grpc::Unimplemented, "METHOD_NOT_ALLOWED"),
            Self::RequestTimeout => (-32000, 408, Grpc::DeadlineExceeded, "REQUEST_TIMEOUT"),
            Self::AlreadyExists => (-32000, 409, Grpc::AlreadyExists, "ALREADY_EXISTS"),
            Self::Conflict => (-32000, 409, Grpc::FailedPrecondition, "CONFLICT"),
            Self::PayloadTooLarge => (-32600, 413, Grpc::ResourceExhausted, "PAYLOAD_TOO_LARGE"),
            Self::UnsupportedMediaType => (-32005, 415, Grpc::InvalidArgument, "UNSUPPORTED_MEDIA_TYPE"),
            Self::ResourceExhausted => (-32000, 429, Grpc::ResourceExhausted, "RESOURCE_EXHAUSTED"),
            Self::Unavailable => (-32603, 503, Grpc::Unavailable, "UNAVAILABLE"),
            Self::BadGateway => (-32000, 502, Grpc::Unavailable, "REMOTE_FAILED"),
        };
        Codes { jsonrpc, http, grpc, reason }
    }

    /// The kind that a JSON-RPC code and, when there is one, a reason stand for. The reason decides where it is known.
    pub fn from_jsonrpc(code: i64, reason: Option<&str>) -> Option<Self> {
        Self::from_reason(reason).or_else(|| Self::ALL.into_iter().find(|kind| i64::from(kind.codes().jsonrpc) == code))
    }

    /// The kind that an HTTP status and, when there is one, a reason stand for. The reason decides where it is known.
    pub fn from_http(status: u16, reason: Option<&str>) -> Option<Self> {
        if let Some(kind) = Self::from_reason(reason) {
            return Some(kind);
        }
        match status {
            400 => Some(Self::InvalidParams),
            404 => Some(Self::NotFound),
            500 => Some(Self::Internal),
            _ => Self::ALL.into_iter().find(|kind| kind.codes().http == status),
        }
    }

    /// The kind that a gRPC status and, when there is one, a reason stand for. The reason decides where it is known.
    pub fn from_grpc(number: i32, reason: Option<&str>) -> Option<Self> {
        if let Some(kind) = Self::from_reason(reason) {
            return Some(kind);
        }
        match number {
            3 => Some(Self::InvalidParams),
            5 => Some(Self::NotFound),
            8 => Some(Self::ResourceExhausted),
            9 => Some(Self::UnsupportedOperation),
            12 => Some(Self::MethodNotFound),
            13 => Some(Self::Internal),
            _ => Self::ALL.into_iter().find(|kind| kind.codes().grpc.number() == number),
        }
    }

    fn from_reason(reason: Option<&str>) -> Option<Self> {
        let reason = reason?;
        Self::ALL.into_iter().find(|kind| kind.codes().reason == reason)
    }
}

impl Grpc {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::NotFound => "NOT_FOUND",
            Self::AlreadyExists => "ALREADY_EXISTS",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Self::FailedPrecondition => "FAILED_PRECONDITION",
            Self::Unimplemented => "UNIMPLEMENTED",
            Self::Internal => "INTERNAL",
            Self::Unavailable => "UNAVAILABLE",
            Self::Unauthenticated => "UNAUTHENTICATED",
        }
    }

    pub const fn number(self) -> i32 {
        self as i32
    }
}

impl Error {
    /// Control characters in the message are escaped and its length is bounded. Input goes through [`excerpt`] first.
    pub fn new(kind: ErrorKind, message: impl AsRef<str>) -> Self {
        Self {
            kind,
            message: clean(message.as_ref(), MESSAGE_CHARS),
            reason: None,
            metadata: Vec::new(),
            violations: Vec::new(),
            retry_after: None,
        }
    }

    pub fn task_not_found(id: &str) -> Self {
        Self::new(ErrorKind::TaskNotFound, format!("task not found: {}", excerpt(id))).with_metadata("taskId", id)
    }

    /// InvalidParams with one violation.
    pub fn invalid(field: impl AsRef<str>, description: impl AsRef<str>) -> Self {
        let field = clean(field.as_ref(), EXCERPT_CHARS);
        let description = clean(description.as_ref(), EXCERPT_CHARS);
        let message =
            if field.is_empty() { description.clone() } else { format!("invalid parameters: {field}: {description}") };
        let mut error = Self::new(ErrorKind::InvalidParams, message);
        error.violations.push(FieldViolation { field, description });
        error
    }

    pub fn internal(message: impl AsRef<str>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    #[must_use]
    pub fn with_reason(mut self, reason: &'static str) -> Self {
        self.reason = Some(reason);
        self
    }

    #[must_use]
    pub fn with_metadata(mut self, key: &'static str, value: impl AsRef<str>) -> Self {
        self.metadata.push((key, clean(value.as_ref(), EXCERPT_CHARS)));
        self
    }

    #[must_use]
    pub fn with_violation(mut self, field: impl AsRef<str>, description: impl AsRef<str>) -> Self {
        self.violations.push(FieldViolation {
            field: clean(field.as_ref(), EXCERPT_CHARS),
            description: clean(description.as_ref(), EXCERPT_CHARS),
        });
        self
    }

    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// The reason of the ErrorInfo: the error's own or that of its kind.
    pub fn reason(&self) -> &'static str {
        self.reason.unwrap_or(self.kind.codes().reason)
    }

    pub fn http_status(&self) -> u16 {
        self.kind.codes().http
    }

    /// The `error` member of a JSON-RPC response.
    pub fn jsonrpc_object(&self) -> impl Serialize + '_ {
        self.jsonrpc_object_with_code(self.kind.codes().jsonrpc)
    }

    /// The same with another code, for a dialect that numbers its errors differently.
    pub fn jsonrpc_object_with_code(&self, code: i32) -> impl Serialize + '_ {
        JsonRpcObject { error: self, code }
    }

    /// The body of an HTTP error response: google.rpc.Status as JSON.
    pub fn status_body(&self) -> Vec<u8> {
        // Strings, numbers and lists of them always serialise.
        serde_json::to_vec(&StatusBody(self)).unwrap_or_default()
    }

    /// The `google.rpc` detail objects, the same in every binding.
    pub fn details(&self) -> impl Serialize + '_ {
        Details(self)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// At most [`EXCERPT_CHARS`] characters of somebody's input, with control characters escaped.
pub fn excerpt(input: &str) -> String {
    clean(input, EXCERPT_CHARS)
}

/// Escapes control characters and characters that change the direction of text; cuts at `limit` characters.
pub(crate) fn clean(text: &str, limit: usize) -> String {
    let mut cleaned = String::with_capacity(text.len().min(limit));
    for (count, character) in text.chars().enumerate() {
        if count == limit {
            cleaned.push('…');
            break;
        }
        let hidden = matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if character.is_control() || hidden {
            cleaned.extend(character.escape_default());
        } else {
            cleaned.push(character);
        }
    }
    cleaned
}

struct JsonRpcObject<'a> {
    error: &'a Error,
    code: i32,
}

impl Serialize for JsonRpcObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("code", &self.code)?;
        map.serialize_entry("message", &self.error.message)?;
        map.serialize_entry("data", &Details(self.error))?;
        map.end()
    }
}

struct StatusBody<'a>(&'a Error);

impl Serialize for StatusBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("error", &Status(self.0))?;
        map.end()
    }
}

struct Status<'a>(&'a Error);

impl Serialize for Status<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let codes = self.0.kind.codes();
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("code", &codes.http)?;
        map.serialize_entry("status", codes.grpc.as_str())?;
        map.serialize_entry("message", &self.0.message)?;
        map.serialize_entry("details", &Details(self.0))?;
        map.end()
    }
}

struct Details<'a>(&'a Error);

impl Serialize for Details<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        list.serialize_element(&ErrorInfo(self.0))?;
        if !self.0.violations.is_empty() {
            list.serialize_element(&BadRequest(&self.0.violations))?;
        }
        if let Some(seconds) = self.0.retry_after {
            list.serialize_element(&RetryInfo(seconds))?;
        }
        list.end()
    }
}

struct ErrorInfo<'a>(&'a Error);

impl Serialize for ErrorInfo<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("@type", "type.googleapis.com/google.rpc.ErrorInfo")?;
        map.serialize_entry("reason", self.0.reason())?;
        map.serialize_entry("domain", DOMAIN)?;
        if !self.0.metadata.is_empty() {
            map.serialize_entry("metadata", &Pairs(&self.0.metadata))?;
        }
        map.end()
    }
}

struct Pairs<'a>(&'a [(&'static str, String)]);

impl Serialize for Pairs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

struct BadRequest<'a>(&'a [FieldViolation]);

impl Serialize for BadRequest<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("@type", "type.googleapis.com/google.rpc.BadRequest")?;
        map.serialize_entry("fieldViolations", self.0)?;
        map.end()
    }
}

impl Serialize for FieldViolation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("field", &self.field)?;
        map.serialize_entry("description", &self.description)?;
        map.end()
    }
}

struct RetryInfo(u32);

impl Serialize for RetryInfo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("@type", "type.googleapis.com/google.rpc.RetryInfo")?;
        map.serialize_entry("retryDelay", &format_args!("{}s", self.0))?;
        map.end()
    }
}

#[cfg(test)]
mod tests;
