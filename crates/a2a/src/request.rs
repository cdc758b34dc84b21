//! The requests and responses of the eleven operations, and the push notification configuration.

use crate::wire::{message, oneof};
use crate::{JsonObject, Message, Task, TaskState, Zoned};

message! {
    /// SendMessage and SendStreamingMessage.
    pub struct SendMessageRequest {
        implicit tenant "tenant": String,
        mandatory message "message": Message,
        optional configuration "configuration": SendMessageConfiguration,
        optional metadata "metadata": JsonObject,
    }
}

message! {
    /// How a message is to be worked on.
    pub struct SendMessageConfiguration {
        implicit accepted_output_modes "acceptedOutputModes": Vec<String>,
        optional task_push_notification_config "taskPushNotificationConfig": TaskPushNotificationConfig,
        optional history_length "historyLength": i32,
        implicit return_immediately "returnImmediately": bool,
    }
}

oneof! {
    /// The answer to SendMessage.
    pub enum SendMessageResponse {
        Task(Task) = task "task",
        Message(Message) = message "message",
    }
}

message! {
    pub struct GetTaskRequest {
        implicit tenant "tenant": String,
        always id "id": String,
        optional history_length "historyLength": i32,
    }
}

message! {
    pub struct ListTasksRequest {
        implicit tenant "tenant": String,
        implicit context_id "contextId": String,
        implicit status "status": TaskState,
        optional page_size "pageSize": i32,
        implicit page_token "pageToken": String,
        optional history_length "historyLength": i32,
        optional status_timestamp_after "statusTimestampAfter": Zoned,
        optional include_artifacts "includeArtifacts": bool,
    }
}

message! {
    pub struct ListTasksResponse {
        always tasks "tasks": Vec<Task>,
        /// Empty on the last page.
        always next_page_token "nextPageToken": String,
        always page_size "pageSize": i32,
        always total_size "totalSize": i32,
    }
}

message! {
    pub struct CancelTaskRequest {
        implicit tenant "tenant": String,
        always id "id": String,
        optional metadata "metadata": JsonObject,
    }
}

message! {
    pub struct SubscribeToTaskRequest {
        implicit tenant "tenant": String,
        always id "id": String,
    }
}

message! {
    /// Where to tell somebody about a task; also the request and the answer of CreateTaskPushNotificationConfig.
    pub struct TaskPushNotificationConfig {
        implicit tenant "tenant": String,
        implicit id "id": String,
        implicit task_id "taskId": String,
        always url "url": String,
        implicit token "token": String,
        optional authentication "authentication": AuthenticationInfo,
    }
}

message! {
    /// How to authenticate at a webhook: an HTTP authentication scheme and its credentials.
    pub struct AuthenticationInfo {
        always scheme "scheme": String,
        implicit credentials "credentials": String,
    }
}

message! {
    pub struct GetTaskPushNotificationConfigRequest {
        implicit tenant "tenant": String,
        always task_id "taskId": String,
        always id "id": String,
    }
}

message! {
    pub struct DeleteTaskPushNotificationConfigRequest {
        implicit tenant "tenant": String,
        always task_id "taskId": String,
        always id "id": String,
    }
}

message! {
    pub struct ListTaskPushNotificationConfigsRequest {
        implicit tenant "tenant": String,
        always task_id "taskId": String,
        implicit page_size "pageSize": i32,
        implicit page_token "pageToken": String,
    }
}

message! {
    pub struct ListTaskPushNotificationConfigsResponse {
        implicit configs "configs": Vec<TaskPushNotificationConfig>,
        implicit next_page_token "nextPageToken": String,
    }
}

message! {
    pub struct GetExtendedAgentCardRequest {
        implicit tenant "tenant": String,
    }
}
