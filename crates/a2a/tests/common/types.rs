//! Every message of the proto by name: reads JSON as our type and writes it again.

use a2a::*;

macro_rules! types {
    ($( $name:ident, )*) => {
        pub(crate) const NAMES: &[&str] = &[$( stringify!($name), )*];

        pub(crate) fn reencode(name: &str, json: &serde_json::Value) -> Result<serde_json::Value, String> {
            let text = json.to_string();
            match name {
                $( stringify!($name) => {
                    let value: $name = decode(text.as_bytes()).map_err(|error| error.to_string())?;
                    let again: $name = decode(&serde_json::to_vec(&value).unwrap()).unwrap();
                    assert_eq!(again, value, "what we write we read");
                    Ok(serde_json::to_value(&value).unwrap())
                } )*
                _ => panic!("{name} is not one of our types"),
            }
        }
    };
}

types! {
    APIKeySecurityScheme, AgentCapabilities, AgentCard, AgentCardSignature, AgentExtension, AgentInterface, AgentProvider,
    AgentSkill, Artifact, AuthenticationInfo, AuthorizationCodeOAuthFlow, CancelTaskRequest, ClientCredentialsOAuthFlow,
    DeleteTaskPushNotificationConfigRequest, DeviceCodeOAuthFlow, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, HTTPAuthSecurityScheme, ImplicitOAuthFlow,
    ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse, ListTasksRequest, ListTasksResponse,
    Message, MutualTlsSecurityScheme, OAuth2SecurityScheme, OAuthFlows, OpenIdConnectSecurityScheme, Part,
    PasswordOAuthFlow, SecurityRequirement, SecurityScheme, SendMessageConfiguration, SendMessageRequest,
    SendMessageResponse, StreamResponse, StringList, SubscribeToTaskRequest, Task, TaskArtifactUpdateEvent,
    TaskPushNotificationConfig, TaskStatus, TaskStatusUpdateEvent,
}
