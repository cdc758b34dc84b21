//! The Agent2Agent protocol, version 1.0, and 0.3 as conversions to it ([`v03`]): wire types that read and write ProtoJSON, the JSON-RPC
//! envelope, the error model with its three encodings, request validation, and the signatures of cards; and [`Network`], which those who
//! serve it and those who call it share. This crate does no I/O.
//!
//! ```
//! let request: a2a::SendMessageRequest = a2a::decode(
//!     br#"{"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"hello"}]}}"#,
//! )?;
//! a2a::validate::validate_send(&request, &a2a::validate::Limits::default())?;
//! assert_eq!(request.message.parts, [a2a::Part::text("hello")]);
//! # Ok::<(), a2a::Error>(())
//! ```

mod base64;
mod card;
mod decode;
pub mod error;
#[cfg(feature = "grpc")]
pub mod grpc;
mod hidden;
mod json;
pub mod jsonrpc;
mod method;
mod network;
mod part;
mod request;
mod security;
pub mod signature;
mod state;
mod task;
mod timestamp;
pub mod v03;
pub mod validate;
mod wire;

pub use card::{
    AgentCapabilities, AgentCard, AgentCardSignature, AgentExtension, AgentInterface, AgentProvider, AgentSkill,
};
pub use decode::decode;
pub use error::{Error, ErrorKind, FieldViolation};
pub use hidden::{escape_line, escape_text, is_hidden};
pub use json::{Json, JsonObject};
pub use method::Method;
pub use network::Network;
pub use part::{Part, PartContent};
pub use request::{
    AuthenticationInfo, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse, ListTasksRequest, ListTasksResponse, SendMessageConfiguration,
    SendMessageRequest, SendMessageResponse, SubscribeToTaskRequest, TaskPushNotificationConfig,
};
pub use security::{
    APIKeySecurityScheme, AuthorizationCodeOAuthFlow, ClientCredentialsOAuthFlow, DeviceCodeOAuthFlow,
    HTTPAuthSecurityScheme, ImplicitOAuthFlow, MutualTlsSecurityScheme, OAuth2SecurityScheme, OAuthFlows,
    OpenIdConnectSecurityScheme, PasswordOAuthFlow, SecurityRequirement, SecurityScheme, StringList,
};
pub use state::{Role, TaskState};
pub use task::{
    Artifact, Message, StreamResponse, Task, TaskArtifactUpdateEvent, TaskStatus, TaskStatusUpdateEvent, reply_id,
};
pub use timestamp::{MalformedTimestamp, Timestamp, Zoned};
pub use validate::Limits;

/// The protocol version this crate speaks, as it stands in `A2A-Version` and in `AgentInterface.protocolVersion`.
pub const PROTOCOL_VERSION: &str = "1.0";

/// A generation of the protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Dialect {
    /// 1.0.
    #[default]
    V1,
    /// 0.3.
    V03,
}

impl Dialect {
    /// As it stands in `A2A-Version`.
    pub fn version(self) -> &'static str {
        match self {
            Self::V1 => PROTOCOL_VERSION,
            Self::V03 => "0.3",
        }
    }
}

/// The extension by which a webhook is told every chunk of an artifact as it comes, and not the whole when it is finished.
pub const PUSH_CHUNKS: &str = "urn:switchboard:a2a:push-chunks:v1";

/// The extension by which events have numbers and streams are taken up after one. Our own servers declare it.
pub const RESUME_CURSOR: &str = "urn:switchboard:a2a:resume-cursor:v1";
