//! The conversions, message by message. Fields have the same names on both sides; the compiler sees that none is missed.

use super::{
    field::{Field, Misfit},
    wire,
};
use crate::{
    APIKeySecurityScheme, AgentCapabilities, AgentCard, AgentCardSignature, AgentExtension, AgentInterface,
    AgentProvider, AgentSkill, Artifact, AuthenticationInfo, AuthorizationCodeOAuthFlow, CancelTaskRequest,
    ClientCredentialsOAuthFlow, DeleteTaskPushNotificationConfigRequest, DeviceCodeOAuthFlow,
    GetExtendedAgentCardRequest, GetTaskPushNotificationConfigRequest, GetTaskRequest, HTTPAuthSecurityScheme,
    ImplicitOAuthFlow, ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse,
    ListTasksRequest, ListTasksResponse, Message, MutualTlsSecurityScheme, OAuth2SecurityScheme, OAuthFlows,
    OpenIdConnectSecurityScheme, Part, PartContent, PasswordOAuthFlow, SecurityRequirement, SecurityScheme,
    SendMessageConfiguration, SendMessageRequest, SendMessageResponse, StreamResponse, StringList,
    SubscribeToTaskRequest, Task, TaskArtifactUpdateEvent, TaskPushNotificationConfig, TaskStatus,
    TaskStatusUpdateEvent,
};

/// A message and its fields.
macro_rules! message {
    ($name:ident = $wire:ident { $( $field:ident, )* }) => {
        impl Field<wire::$wire> for $name {
            fn read(wire: wire::$wire) -> Result<Self, Misfit> {
                Ok(Self { $( $field: Field::read(wire.$field).map_err(|misfit: Misfit| misfit.within(stringify!($field)))?, )* })
            }

            fn write(self) -> wire::$wire {
                wire::$wire { $( $field: self.$field.write(), )* }
            }
        }
    };
}

/// A message of ours that is always there, in a field that may be unset.
macro_rules! mandatory {
    ($( $name:ident = $wire:ident or $unset:expr; )*) => {
        $( impl Field<Option<wire::$wire>> for $name {
            fn read(wire: Option<wire::$wire>) -> Result<Self, Misfit> {
                match wire {
                    Some(wire) => Field::read(wire),
                    None => $unset,
                }
            }

            fn write(self) -> Option<wire::$wire> {
                Some(self.write())
            }
        } )*
    };
}

/// A message that is nothing but a oneof.
macro_rules! oneof {
    (
        $name:ident = $wire:ident.$member:ident: $module:ident::$of:ident {
            $( $variant:ident = $theirs:ident $field:literal, )*
        }
        $( or $unset:ident )?
    ) => {
        impl Field<wire::$wire> for $name {
            fn read(wire: wire::$wire) -> Result<Self, Misfit> {
                use wire::$module::$of;
                match wire.$member {
                    $( Some($of::$theirs(value)) => {
                        Field::read(value).map(Self::$variant).map_err(|misfit: Misfit| misfit.within($field))
                    } )*
                    None => oneof!(@unset $name [$( $field ),*] $( $unset )?),
                }
            }

            fn write(self) -> wire::$wire {
                use wire::$module::$of;
                wire::$wire { $member: match self {
                    $( Self::$variant(value) => Some($of::$theirs(value.write())), )*
                    $( Self::$unset => None, )?
                } }
            }
        }
    };
    (@unset $name:ident [$( $field:literal ),*] $unset:ident) => { Ok(Self::$unset) };
    (@unset $name:ident [$( $field:literal ),*]) => {
        Err(Misfit::new(format!("{} needs one of {}", stringify!($name), [$( $field ),*].join(", "))))
    };
}

mandatory! {
    Message = Message or Err(Misfit::missing());
    TaskStatus = TaskStatus or Err(Misfit::missing());
    Artifact = Artifact or Err(Misfit::missing());
    // A card of somebody else's that lacks these is still of use.
    AgentCapabilities = AgentCapabilities or Ok(Self::default());
    OAuthFlows = OAuthFlows or Ok(Self::default());
}

message! { Task = Task { id, context_id, status, artifacts, history, metadata, } }
message! { TaskStatus = TaskStatus { state, message, timestamp, } }
message! { Message = Message { message_id, context_id, task_id, role, parts, metadata, extensions, reference_task_ids, } }
message! { Artifact = Artifact { artifact_id, name, description, parts, metadata, extensions, } }
message! { TaskStatusUpdateEvent = TaskStatusUpdateEvent { task_id, context_id, status, metadata, } }
message! {
    TaskArtifactUpdateEvent = TaskArtifactUpdateEvent { task_id, context_id, artifact, append, last_chunk, metadata, }
}
oneof! {
    StreamResponse = StreamResponse.payload: stream_response::Payload {
        Task = Task "task",
        Message = Message "message",
        StatusUpdate = StatusUpdate "statusUpdate",
        ArtifactUpdate = ArtifactUpdate "artifactUpdate",
    }
}

impl Field<wire::Part> for Part {
    fn read(wire: wire::Part) -> Result<Self, Misfit> {
        use wire::part::Content;
        let content = match wire.content {
            Some(Content::Text(text)) => PartContent::Text(text),
            Some(Content::Raw(bytes)) => PartContent::Raw(bytes),
            Some(Content::Url(url)) => PartContent::Url(url),
            Some(Content::Data(data)) => {
                PartContent::Data(Field::read(data).map_err(|misfit: Misfit| misfit.within("data"))?)
            }
            None => return Err(Misfit::new("Part needs one of text, raw, url, data")),
        };
        let metadata = Field::read(wire.metadata).map_err(|misfit: Misfit| misfit.within("metadata"))?;
        Ok(Self { content, metadata, filename: wire.filename, media_type: wire.media_type })
    }

    fn write(self) -> wire::Part {
        use wire::part::Content;
        let content = match self.content {
            PartContent::Text(text) => Content::Text(text),
            PartContent::Raw(bytes) => Content::Raw(bytes),
            PartContent::Url(url) => Content::Url(url),
            PartContent::Data(data) => Content::Data(data.write()),
        };
        wire::Part {
            content: Some(content),
            metadata: self.metadata.write(),
            filename: self.filename,
            media_type: self.media_type,
        }
    }
}

message! { SendMessageRequest = SendMessageRequest { tenant, message, configuration, metadata, } }
message! {
    SendMessageConfiguration = SendMessageConfiguration {
        accepted_output_modes, task_push_notification_config, history_length, return_immediately,
    }
}
oneof! {
    SendMessageResponse = SendMessageResponse.payload: send_message_response::Payload {
        Task = Task "task",
        Message = Message "message",
    }
}
message! { GetTaskRequest = GetTaskRequest { tenant, id, history_length, } }
message! {
    ListTasksRequest = ListTasksRequest {
        tenant, context_id, status, page_size, page_token, history_length, status_timestamp_after, include_artifacts,
    }
}
message! { ListTasksResponse = ListTasksResponse { tasks, next_page_token, page_size, total_size, } }
message! { CancelTaskRequest = CancelTaskRequest { tenant, id, metadata, } }
message! { SubscribeToTaskRequest = SubscribeToTaskRequest { tenant, id, } }
message! { GetExtendedAgentCardRequest = GetExtendedAgentCardRequest { tenant, } }
message! {
    TaskPushNotificationConfig = TaskPushNotificationConfig { tenant, id, task_id, url, token, authentication, }
}
message! { AuthenticationInfo = AuthenticationInfo { scheme, credentials, } }
message! { GetTaskPushNotificationConfigRequest = GetTaskPushNotificationConfigRequest { tenant, task_id, id, } }
message! {
    ListTaskPushNotificationConfigsRequest = ListTaskPushNotificationConfigsRequest {
        tenant, task_id, page_size, page_token,
    }
}
message! {
    ListTaskPushNotificationConfigsResponse = ListTaskPushNotificationConfigsResponse { configs, next_page_token, }
}
message! { DeleteTaskPushNotificationConfigRequest = DeleteTaskPushNotificationConfigRequest { tenant, task_id, id, } }

message! {
    AgentCard = AgentCard {
        name, description, supported_interfaces, provider, version, documentation_url, capabilities, security_schemes,
        security_requirements, default_input_modes, default_output_modes, skills, signatures, icon_url,
    }
}
message! { AgentInterface = AgentInterface { url, protocol_binding, tenant, protocol_version, } }
message! { AgentProvider = AgentProvider { url, organization, } }
message! {
    AgentCapabilities = AgentCapabilities { streaming, push_notifications, extensions, extended_agent_card, }
}
message! { AgentExtension = AgentExtension { uri, description, required, params, } }
message! {
    AgentSkill = AgentSkill {
        id, name, description, tags, examples, input_modes, output_modes, security_requirements,
    }
}
message! { AgentCardSignature = AgentCardSignature { protected, signature, header, } }

oneof! {
    SecurityScheme = SecurityScheme.scheme: security_scheme::Scheme {
        ApiKey = ApiKeySecurityScheme "apiKeySecurityScheme",
        HttpAuth = HttpAuthSecurityScheme "httpAuthSecurityScheme",
        OAuth2 = Oauth2SecurityScheme "oauth2SecurityScheme",
        OpenIdConnect = OpenIdConnectSecurityScheme "openIdConnectSecurityScheme",
        MutualTls = MtlsSecurityScheme "mtlsSecurityScheme",
    }
    or Unspecified
}
message! { SecurityRequirement = SecurityRequirement { schemes, } }
message! { StringList = StringList { list, } }
message! { APIKeySecurityScheme = ApiKeySecurityScheme { description, location, name, } }
message! { HTTPAuthSecurityScheme = HttpAuthSecurityScheme { description, scheme, bearer_format, } }
message! { OAuth2SecurityScheme = OAuth2SecurityScheme { description, flows, oauth2_metadata_url, } }
message! { OpenIdConnectSecurityScheme = OpenIdConnectSecurityScheme { description, open_id_connect_url, } }
message! { MutualTlsSecurityScheme = MutualTlsSecurityScheme { description, } }
oneof! {
    OAuthFlows = OAuthFlows.flow: o_auth_flows::Flow {
        AuthorizationCode = AuthorizationCode "authorizationCode",
        ClientCredentials = ClientCredentials "clientCredentials",
        Implicit = Implicit "implicit",
        Password = Password "password",
        DeviceCode = DeviceCode "deviceCode",
    }
    or Unspecified
}
message! {
    AuthorizationCodeOAuthFlow = AuthorizationCodeOAuthFlow {
        authorization_url, token_url, refresh_url, scopes, pkce_required,
    }
}
message! { ClientCredentialsOAuthFlow = ClientCredentialsOAuthFlow { token_url, refresh_url, scopes, } }
message! { ImplicitOAuthFlow = ImplicitOAuthFlow { authorization_url, refresh_url, scopes, } }
message! { PasswordOAuthFlow = PasswordOAuthFlow { token_url, refresh_url, scopes, } }
message! { DeviceCodeOAuthFlow = DeviceCodeOAuthFlow { device_authorization_url, token_url, refresh_url, scopes, } }
