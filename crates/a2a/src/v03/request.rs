//! The parameters of the 0.3 methods and the push notification configuration, with their conversions.
//!
//! On the way down a request is refused when it names a `tenant` or a page: 0.3 has neither. On the way up only a webhook
//! with several authentication schemes is refused, of which 1.0 has one.

use super::{Message, refuse};
use crate::JsonObject;
use crate::error::Error;
use crate::wire::message;

message! {
    /// `message/send` and `message/stream`.
    pub struct MessageSendParams {
        mandatory message "message": Message,
        optional configuration "configuration": MessageSendConfiguration,
        optional metadata "metadata": JsonObject,
        /// Not in 0.3's schema, but clients send it and servers read it. The message's own counts first.
        implicit context_id "contextId": String,
    }
}

message! {
    /// How a message is to be worked on.
    pub struct MessageSendConfiguration {
        implicit accepted_output_modes "acceptedOutputModes": Vec<String>,
        optional history_length "historyLength": i32,
        optional push_notification_config "pushNotificationConfig": PushNotificationConfig,
        /// Unless it is false, the answer waits for the end of the turn.
        optional blocking "blocking": bool,
    }
}

message! {
    /// `tasks/get`
    pub struct TaskQueryParams {
        always id "id": String,
        optional history_length "historyLength": i32,
        optional metadata "metadata": JsonObject,
    }
}

message! {
    /// `tasks/cancel`, `tasks/resubscribe` and `tasks/pushNotificationConfig/list`
    pub struct TaskIdParams {
        always id "id": String,
        optional metadata "metadata": JsonObject,
    }
}

message! {
    /// `tasks/pushNotificationConfig/set` and its answer
    pub struct TaskPushNotificationConfig {
        always task_id "taskId": String,
        mandatory push_notification_config "pushNotificationConfig": PushNotificationConfig,
    }
}

message! {
    /// Where to tell somebody about a task.
    pub struct PushNotificationConfig {
        implicit id "id": String,
        always url "url": String,
        implicit token "token": String,
        optional authentication "authentication": PushNotificationAuthenticationInfo,
    }
}

message! {
    pub struct PushNotificationAuthenticationInfo {
        always schemes "schemes": Vec<String>,
        implicit credentials "credentials": String,
    }
}

message! {
    /// `tasks/pushNotificationConfig/get`
    pub struct GetTaskPushNotificationConfigParams {
        always id "id": String,
        /// Left out, it means the task's only configuration.
        implicit push_notification_config_id "pushNotificationConfigId": String,
        optional metadata "metadata": JsonObject,
    }
}

message! {
    /// `tasks/pushNotificationConfig/delete`
    pub struct DeleteTaskPushNotificationConfigParams {
        always id "id": String,
        always push_notification_config_id "pushNotificationConfigId": String,
        optional metadata "metadata": JsonObject,
    }
}

// Up: what a 0.3 client asks.

impl TryFrom<MessageSendParams> for crate::SendMessageRequest {
    type Error = Error;

    fn try_from(params: MessageSendParams) -> Result<Self, Error> {
        let mut message = crate::Message::from(params.message);
        if message.context_id.is_empty() {
            message.context_id = params.context_id;
        }
        let configuration = match params.configuration {
            Some(configuration) => Some(configuration.try_into()?),
            None => None,
        };
        Ok(Self { tenant: String::new(), message, configuration, metadata: params.metadata })
    }
}

impl TryFrom<MessageSendConfiguration> for crate::SendMessageConfiguration {
    type Error = Error;

    fn try_from(configuration: MessageSendConfiguration) -> Result<Self, Error> {
        let task_push_notification_config = match configuration.push_notification_config {
            Some(config) => Some(config_up("configuration.pushNotificationConfig", String::new(), config)?),
            None => None,
        };
        Ok(Self {
            accepted_output_modes: configuration.accepted_output_modes,
            task_push_notification_config,
            history_length: configuration.history_length,
            return_immediately: configuration.blocking == Some(false),
        })
    }
}

impl TryFrom<TaskPushNotificationConfig> for crate::TaskPushNotificationConfig {
    type Error = Error;

    fn try_from(config: TaskPushNotificationConfig) -> Result<Self, Error> {
        config_up("pushNotificationConfig", config.task_id, config.push_notification_config)
    }
}

impl From<TaskQueryParams> for crate::GetTaskRequest {
    fn from(params: TaskQueryParams) -> Self {
        Self { tenant: String::new(), id: params.id, history_length: params.history_length }
    }
}

impl From<TaskIdParams> for crate::CancelTaskRequest {
    fn from(params: TaskIdParams) -> Self {
        Self { tenant: String::new(), id: params.id, metadata: params.metadata }
    }
}

impl From<TaskIdParams> for crate::SubscribeToTaskRequest {
    fn from(params: TaskIdParams) -> Self {
        Self { tenant: String::new(), id: params.id }
    }
}

impl From<TaskIdParams> for crate::ListTaskPushNotificationConfigsRequest {
    fn from(params: TaskIdParams) -> Self {
        Self { task_id: params.id, ..Self::default() }
    }
}

/// The id stays empty where 0.3 let the client leave it out.
impl From<GetTaskPushNotificationConfigParams> for crate::GetTaskPushNotificationConfigRequest {
    fn from(params: GetTaskPushNotificationConfigParams) -> Self {
        Self { tenant: String::new(), task_id: params.id, id: params.push_notification_config_id }
    }
}

impl From<DeleteTaskPushNotificationConfigParams> for crate::DeleteTaskPushNotificationConfigRequest {
    fn from(params: DeleteTaskPushNotificationConfigParams) -> Self {
        Self { tenant: String::new(), task_id: params.id, id: params.push_notification_config_id }
    }
}

fn config_up(
    path: &str,
    task_id: String,
    config: PushNotificationConfig,
) -> Result<crate::TaskPushNotificationConfig, Error> {
    let authentication = match config.authentication {
        None => None,
        Some(PushNotificationAuthenticationInfo { mut schemes, credentials }) => {
            if schemes.len() > 1 {
                return Err(Error::invalid(
                    format!("{path}.authentication.schemes"),
                    "must name one scheme, since the credentials are for one",
                ));
            }
            Some(crate::AuthenticationInfo { scheme: schemes.pop().unwrap_or_default(), credentials })
        }
    };
    Ok(crate::TaskPushNotificationConfig {
        tenant: String::new(),
        id: config.id,
        task_id,
        url: config.url,
        token: config.token,
        authentication,
    })
}

// Down: what a 1.0 caller asks of a 0.3 server.

impl TryFrom<crate::SendMessageRequest> for MessageSendParams {
    type Error = Error;

    fn try_from(request: crate::SendMessageRequest) -> Result<Self, Error> {
        refuse("tenant", &request.tenant)?;
        let configuration = match request.configuration {
            Some(configuration) => Some(configuration_down(configuration, &request.message.task_id)?),
            None => None,
        };
        Ok(Self {
            context_id: request.message.context_id.clone(),
            message: request.message.into(),
            configuration,
            metadata: request.metadata,
        })
    }
}

fn configuration_down(
    configuration: crate::SendMessageConfiguration,
    message_task: &str,
) -> Result<MessageSendConfiguration, Error> {
    let push_notification_config = match configuration.task_push_notification_config {
        None => None,
        Some(config) => {
            let path = "configuration.taskPushNotificationConfig";
            refuse(&format!("{path}.tenant"), &config.tenant)?;
            // There the configuration is for the message's task, and says so without words.
            if config.task_id != message_task {
                refuse(&format!("{path}.taskId"), &config.task_id)?;
            }
            Some(config_down(config))
        }
    };
    Ok(MessageSendConfiguration {
        accepted_output_modes: configuration.accepted_output_modes,
        history_length: configuration.history_length,
        push_notification_config,
        blocking: Some(!configuration.return_immediately),
    })
}

impl TryFrom<crate::GetTaskRequest> for TaskQueryParams {
    type Error = Error;

    fn try_from(request: crate::GetTaskRequest) -> Result<Self, Error> {
        refuse("tenant", &request.tenant)?;
        Ok(Self { id: request.id, history_length: request.history_length, metadata: None })
    }
}

impl TryFrom<crate::CancelTaskRequest> for TaskIdParams {
    type Error = Error;

    fn try_from(request: crate::CancelTaskRequest) -> Result<Self, Error> {
        refuse("tenant", &request.tenant)?;
        Ok(Self { id: request.id, metadata: request.metadata })
    }
}

impl TryFrom<crate::SubscribeToTaskRequest> for TaskIdParams {
    type Error = Error;

    fn try_from(request: crate::SubscribeToTaskRequest) -> Result<Self, Error> {
        refuse("tenant", &request.tenant)?;
        Ok(Self { id: request.id, metadata: None })
    }
}

impl TryFrom<crate::ListTaskPushNotificationConfigsRequest> for TaskIdParams {
    type Error = Error;

    fn try_from(request: crate::ListTaskPushNotificationConfigsRequest) -> Result<Self, Error> {
        refuse("tenant", &request.tenant)?;
        refuse("pageToken", &request.page_token)?;
        if request.page_size != 0 {
            refuse("pageSize", &request.page_size.to_string())?;
        }
        Ok(Self { id: request.task_id, metadata: None })
    }
}

impl TryFrom<crate::GetTaskPushNotificationConfigRequest> for GetTaskPushNotificationConfigParams {
    type Error = Error;

    fn try_from(request: crate::GetTaskPushNotificationConfigRequest) -> Result<Self, Error> {
        refuse("tenant", &request.tenant)?;
        Ok(Self { id: request.task_id, push_notification_config_id: request.id, metadata: None })
    }
}

impl TryFrom<crate::DeleteTaskPushNotificationConfigRequest> for DeleteTaskPushNotificationConfigParams {
    type Error = Error;

    fn try_from(request: crate::DeleteTaskPushNotificationConfigRequest) -> Result<Self, Error> {
        refuse("tenant", &request.tenant)?;
        Ok(Self { id: request.task_id, push_notification_config_id: request.id, metadata: None })
    }
}

/// As an answer. A `tenant` is where the caller asked, and no part of what is answered.
impl From<crate::TaskPushNotificationConfig> for TaskPushNotificationConfig {
    fn from(config: crate::TaskPushNotificationConfig) -> Self {
        Self { task_id: config.task_id.clone(), push_notification_config: config_down(config) }
    }
}

impl TaskPushNotificationConfig {
    /// As the parameters of `tasks/pushNotificationConfig/set`.
    pub fn request(config: crate::TaskPushNotificationConfig) -> Result<Self, Error> {
        refuse("tenant", &config.tenant)?;
        Ok(Self::from(config))
    }
}

fn config_down(config: crate::TaskPushNotificationConfig) -> PushNotificationConfig {
    let authentication = config.authentication.map(|info| PushNotificationAuthenticationInfo {
        schemes: if info.scheme.is_empty() { Vec::new() } else { vec![info.scheme] },
        credentials: info.credentials,
    });
    PushNotificationConfig { id: config.id, url: config.url, token: config.token, authentication }
}
