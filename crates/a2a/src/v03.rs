//! The 0.3 dialect: its wire types, and pure conversions between them and the 1.0 types in both directions.
//!
//! A server reads a 0.3 request as one of these types and converts it up; results go down on their way out. A client that
//! calls a 0.3 server does the reverse. What 0.3 cannot say travels in `metadata` and is put back on the way up, or the
//! conversion is refused with an error that names the field. What is left behind is computed (`final`), has no meaning on
//! the other side (a `tenant` in an answer, the `metadata` of a request that only names a task), or is of a card and said
//! there.
//!
//! ```
//! let params: a2a::v03::MessageSendParams = a2a::decode(
//!     br#"{"message":{"role":"user","messageId":"m-1","parts":[{"kind":"text","text":"hello"}]}}"#,
//! )?;
//! let request = a2a::SendMessageRequest::try_from(params)?;
//! assert_eq!(request.message.parts, [a2a::Part::text("hello")]);
//! # Ok::<(), a2a::Error>(())
//! ```

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::error::excerpt;
use crate::{Error, ErrorKind, ListTaskPushNotificationConfigsResponse, Method, SendMessageResponse, StreamResponse};

pub mod arbiter;
mod card;
mod carry;
mod compat;
mod content;
mod event;
mod part;
mod request;
mod types;

pub use card::{
    AgentCapabilities, AgentCard, AgentInterface, AgentSkill, AnyCard, ImplicitOAuthFlow, OAuthFlows,
    PasswordOAuthFlow, SecurityScheme, decode_card,
};
pub use compat::compat_card;
pub use event::Event;
pub use part::{File, FileContent, Part, PartContent};
pub use request::{
    DeleteTaskPushNotificationConfigParams, GetTaskPushNotificationConfigParams, MessageSendConfiguration,
    MessageSendParams, PushNotificationAuthenticationInfo, PushNotificationConfig, TaskIdParams,
    TaskPushNotificationConfig, TaskQueryParams,
};
pub use types::{
    Artifact, ArtifactUpdateTag, Message, MessageTag, Role, StatusUpdateTag, Task, TaskArtifactUpdateEvent, TaskState,
    TaskStatus, TaskStatusUpdateEvent, TaskTag,
};

/// The version of this dialect, as it stands in a card's `protocolVersion`.
pub const PROTOCOL_VERSION: &str = "0.3.0";

/// Each operation that 0.3 has, with its method name there. ListTasks came with 1.0.
const METHODS: [(Method, &str); 10] = [
    (Method::SendMessage, "message/send"),
    (Method::SendStreamingMessage, "message/stream"),
    (Method::GetTask, "tasks/get"),
    (Method::CancelTask, "tasks/cancel"),
    (Method::SubscribeToTask, "tasks/resubscribe"),
    (Method::CreateTaskPushNotificationConfig, "tasks/pushNotificationConfig/set"),
    (Method::GetTaskPushNotificationConfig, "tasks/pushNotificationConfig/get"),
    (Method::ListTaskPushNotificationConfigs, "tasks/pushNotificationConfig/list"),
    (Method::DeleteTaskPushNotificationConfig, "tasks/pushNotificationConfig/delete"),
    (Method::GetExtendedAgentCard, "agent/getAuthenticatedExtendedCard"),
];

/// The operation that a 0.3 method name stands for.
pub fn method(name: &str) -> Option<Method> {
    METHODS.into_iter().find_map(|(method, known)| (known == name).then_some(method))
}

/// The 0.3 name of an operation; UnsupportedOperation for the one that 0.3 lacks.
pub fn method_name(method: Method) -> Result<&'static str, Error> {
    METHODS
        .into_iter()
        .find_map(|(known, name)| (known == method).then_some(name))
        .ok_or_else(|| Error::new(ErrorKind::UnsupportedOperation, format!("{method} does not exist in A2A 0.3")))
}

/// An event of a stream as the `result` of a 0.3 response.
pub fn stream_result(event: &StreamResponse) -> Event {
    Event::from(event.clone())
}

/// The answer to a message as the `result` of a 0.3 response.
pub fn send_result(response: &SendMessageResponse) -> Event {
    match response {
        SendMessageResponse::Task(task) => Event::Task(task.clone().into()),
        SendMessageResponse::Message(message) => Event::Message(message.clone().into()),
    }
}

/// The `result` of `tasks/pushNotificationConfig/list`. 0.3 has no pages, so that the list has to be whole.
pub fn list_configs_result(
    response: &ListTaskPushNotificationConfigsResponse,
) -> Result<Vec<TaskPushNotificationConfig>, Error> {
    if !response.next_page_token.is_empty() {
        return Err(Error::internal(
            "one page of push notification configurations is not the whole list that 0.3 wants",
        ));
    }
    let configs = response.configs.iter().cloned();
    Ok(configs.map(TaskPushNotificationConfig::from).collect())
}

/// The 1.0 answer that the `result` of `tasks/pushNotificationConfig/list` stands for.
pub fn list_configs_response(
    configs: Vec<TaskPushNotificationConfig>,
) -> Result<ListTaskPushNotificationConfigsResponse, Error> {
    let mut response = ListTaskPushNotificationConfigsResponse::default();
    for config in configs {
        response.configs.push(config.try_into()?);
    }
    Ok(response)
}

/// The `error` member of a 0.3 response: the code and the message alone. `google.rpc` details came with 1.0; only
/// VersionNotSupported has them always, since its reader may be of any version.
pub fn error_object(error: &Error) -> ErrorObject<'_> {
    ErrorObject { error, code: error.kind.codes().jsonrpc, details: error.kind == ErrorKind::VersionNotSupported }
}

/// See [`error_object`].
#[derive(Debug, Clone, Copy)]
pub struct ErrorObject<'a> {
    error: &'a Error,
    code: i32,
    details: bool,
}

impl ErrorObject<'_> {
    /// Another code, for a surface that numbers its errors differently.
    #[must_use]
    pub fn with_code(mut self, code: i32) -> Self {
        self.code = code;
        self
    }

    /// The `google.rpc` details in `data`, as 1.0 has them.
    #[must_use]
    pub fn with_details(mut self) -> Self {
        self.details = true;
        self
    }
}

impl Serialize for ErrorObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("code", &self.code)?;
        map.serialize_entry("message", &self.error.message)?;
        if self.details {
            map.serialize_entry("data", &self.error.details())?;
        }
        map.end()
    }
}

/// Refuses a field that 0.3 does not have.
fn refuse(field: &str, value: &str) -> Result<(), Error> {
    if value.is_empty() {
        return Ok(());
    }
    Err(Error::invalid(field, format!("A2A 0.3 cannot express it: {}", excerpt(value))))
}
