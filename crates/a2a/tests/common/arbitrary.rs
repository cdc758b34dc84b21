//! Arbitrary values of the wire types. Numbers inside `data` and `metadata` are such that a double holds them exactly, since
//! that is what the other implementation reads them as.

use a2a::*;
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use serde_json::Value;

fn text() -> impl Strategy<Value = String> {
    prop_oneof![2 => Just(String::new()), 4 => "[a-zA-Z0-9 /:.-]{1,12}", 2 => any::<String>()]
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    vec(text(), 0..3)
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<i32>().prop_map(|eighths| Value::from(f64::from(eighths) / 8.0)),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(text(), inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn object() -> impl Strategy<Value = JsonObject> {
    btree_map(text(), value(), 0..3)
        .prop_map(|map| JsonObject::from_value(&Value::Object(map.into_iter().collect())).expect("it is an object"))
}

fn timestamp() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        (0..4_000_000_000_000_i64).prop_map(Timestamp::from_millis),
        any::<i64>().prop_map(Timestamp::from_millis),
    ]
}

fn state() -> impl Strategy<Value = TaskState> {
    prop::sample::select(TaskState::ALL.to_vec())
}

fn role() -> impl Strategy<Value = Role> {
    prop::sample::select(Role::ALL.to_vec())
}

pub(crate) fn part() -> impl Strategy<Value = Part> {
    let content = prop_oneof![
        text().prop_map(PartContent::Text),
        vec(any::<u8>(), 0..20).prop_map(|bytes| PartContent::Raw(bytes.into())),
        text().prop_map(PartContent::Url),
        value().prop_map(|value| PartContent::Data(Json::from_value(&value))),
    ];
    (content, of(object()), text(), text()).prop_map(|(content, metadata, filename, media_type)| Part {
        content,
        metadata,
        filename,
        media_type,
    })
}

pub(crate) fn message() -> impl Strategy<Value = Message> {
    (text(), text(), text(), role(), vec(part(), 0..4), of(object()), texts(), texts()).prop_map(
        |(message_id, context_id, task_id, role, parts, metadata, extensions, reference_task_ids)| Message {
            message_id,
            context_id,
            task_id,
            role,
            parts,
            metadata,
            extensions,
            reference_task_ids,
        },
    )
}

fn status() -> impl Strategy<Value = TaskStatus> {
    (state(), of(message()), of(timestamp())).prop_map(|(state, message, timestamp)| TaskStatus {
        state,
        message,
        timestamp,
    })
}

fn artifact() -> impl Strategy<Value = Artifact> {
    (text(), text(), text(), vec(part(), 0..3), of(object()), texts()).prop_map(
        |(artifact_id, name, description, parts, metadata, extensions)| Artifact {
            artifact_id,
            name,
            description,
            parts,
            metadata,
            extensions,
        },
    )
}

pub(crate) fn task() -> impl Strategy<Value = Task> {
    (text(), text(), status(), vec(artifact(), 0..3), vec(message(), 0..3), of(object())).prop_map(
        |(id, context_id, status, artifacts, history, metadata)| Task {
            id,
            context_id,
            status,
            artifacts,
            history,
            metadata,
        },
    )
}

pub(crate) fn stream_response() -> impl Strategy<Value = StreamResponse> {
    let status_update = (text(), text(), status(), of(object())).prop_map(|(task_id, context_id, status, metadata)| {
        TaskStatusUpdateEvent { task_id, context_id, status, metadata }
    });
    let artifact_update = (text(), text(), artifact(), any::<bool>(), any::<bool>(), of(object())).prop_map(
        |(task_id, context_id, artifact, append, last_chunk, metadata)| TaskArtifactUpdateEvent {
            task_id,
            context_id,
            artifact,
            append,
            last_chunk,
            metadata,
        },
    );
    prop_oneof![
        task().prop_map(StreamResponse::Task),
        message().prop_map(StreamResponse::Message),
        status_update.prop_map(StreamResponse::StatusUpdate),
        artifact_update.prop_map(StreamResponse::ArtifactUpdate),
    ]
}

pub(crate) fn push_config() -> impl Strategy<Value = TaskPushNotificationConfig> {
    let authentication = (text(), text()).prop_map(|(scheme, credentials)| AuthenticationInfo { scheme, credentials });
    (text(), text(), text(), text(), text(), of(authentication)).prop_map(
        |(tenant, id, task_id, url, token, authentication)| TaskPushNotificationConfig {
            tenant,
            id,
            task_id,
            url,
            token,
            authentication,
        },
    )
}

pub(crate) fn send_request() -> impl Strategy<Value = SendMessageRequest> {
    let configuration = (texts(), of(push_config()), of(any::<i32>()), any::<bool>()).prop_map(
        |(accepted_output_modes, task_push_notification_config, history_length, return_immediately)| {
            SendMessageConfiguration {
                accepted_output_modes,
                task_push_notification_config,
                history_length,
                return_immediately,
            }
        },
    );
    (text(), message(), of(configuration), of(object())).prop_map(|(tenant, message, configuration, metadata)| {
        SendMessageRequest { tenant, message, configuration, metadata }
    })
}

pub(crate) fn list_request() -> impl Strategy<Value = ListTasksRequest> {
    let filters = (text(), text(), state(), of(timestamp()), of(any::<bool>()));
    (filters, of(any::<i32>()), text(), of(any::<i32>())).prop_map(
        |(
            (tenant, context_id, status, status_timestamp_after, include_artifacts),
            page_size,
            page_token,
            history_length,
        )| {
            ListTasksRequest {
                tenant,
                context_id,
                status,
                page_size,
                page_token,
                history_length,
                status_timestamp_after: status_timestamp_after.map(a2a::Zoned),
                include_artifacts,
            }
        },
    )
}

pub(crate) fn list_response() -> impl Strategy<Value = ListTasksResponse> {
    (vec(task(), 0..3), text(), any::<i32>(), any::<i32>()).prop_map(
        |(tasks, next_page_token, page_size, total_size)| ListTasksResponse {
            tasks,
            next_page_token,
            page_size,
            total_size,
        },
    )
}

pub(crate) fn get_push_request() -> impl Strategy<Value = GetTaskPushNotificationConfigRequest> {
    (text(), text(), text()).prop_map(|(tenant, task_id, id)| GetTaskPushNotificationConfigRequest {
        tenant,
        task_id,
        id,
    })
}

pub(crate) fn delete_push_request() -> impl Strategy<Value = DeleteTaskPushNotificationConfigRequest> {
    (text(), text(), text()).prop_map(|(tenant, task_id, id)| DeleteTaskPushNotificationConfigRequest {
        tenant,
        task_id,
        id,
    })
}

pub(crate) fn list_push_request() -> impl Strategy<Value = ListTaskPushNotificationConfigsRequest> {
    (text(), text(), any::<i32>(), text()).prop_map(|(tenant, task_id, page_size, page_token)| {
        ListTaskPushNotificationConfigsRequest { tenant, task_id, page_size, page_token }
    })
}

pub(crate) fn list_push_response() -> impl Strategy<Value = ListTaskPushNotificationConfigsResponse> {
    (vec(push_config(), 0..3), text())
        .prop_map(|(configs, next_page_token)| ListTaskPushNotificationConfigsResponse { configs, next_page_token })
}

fn security_scheme() -> impl Strategy<Value = SecurityScheme> {
    let scopes = || btree_map(text(), text(), 0..3);
    let flows = prop_oneof![
        (text(), text(), text(), scopes(), any::<bool>()).prop_map(
            |(authorization_url, token_url, refresh_url, scopes, pkce_required)| {
                OAuthFlows::AuthorizationCode(AuthorizationCodeOAuthFlow {
                    authorization_url,
                    token_url,
                    refresh_url,
                    scopes,
                    pkce_required,
                })
            }
        ),
        (text(), text(), scopes()).prop_map(|(token_url, refresh_url, scopes)| {
            OAuthFlows::ClientCredentials(ClientCredentialsOAuthFlow { token_url, refresh_url, scopes })
        }),
        (text(), text(), scopes()).prop_map(|(authorization_url, refresh_url, scopes)| {
            OAuthFlows::Implicit(ImplicitOAuthFlow { authorization_url, refresh_url, scopes })
        }),
        (text(), text(), scopes()).prop_map(|(token_url, refresh_url, scopes)| {
            OAuthFlows::Password(PasswordOAuthFlow { token_url, refresh_url, scopes })
        }),
        (text(), text(), text(), scopes()).prop_map(|(device_authorization_url, token_url, refresh_url, scopes)| {
            OAuthFlows::DeviceCode(DeviceCodeOAuthFlow { device_authorization_url, token_url, refresh_url, scopes })
        }),
        Just(OAuthFlows::Unspecified),
    ];
    prop_oneof![
        (text(), text(), text()).prop_map(|(description, location, name)| {
            SecurityScheme::ApiKey(APIKeySecurityScheme { description, location, name })
        }),
        (text(), text(), text()).prop_map(|(description, scheme, bearer_format)| {
            SecurityScheme::HttpAuth(HTTPAuthSecurityScheme { description, scheme, bearer_format })
        }),
        (text(), flows, text()).prop_map(|(description, flows, oauth2_metadata_url)| {
            SecurityScheme::OAuth2(OAuth2SecurityScheme { description, flows, oauth2_metadata_url })
        }),
        (text(), text()).prop_map(|(description, open_id_connect_url)| {
            SecurityScheme::OpenIdConnect(OpenIdConnectSecurityScheme { description, open_id_connect_url })
        }),
        text().prop_map(|description| SecurityScheme::MutualTls(MutualTlsSecurityScheme { description })),
        Just(SecurityScheme::Unspecified),
    ]
}

fn requirements() -> impl Strategy<Value = Vec<SecurityRequirement>> {
    let list = texts().prop_map(|list| StringList { list });
    vec(btree_map(text(), list, 0..3).prop_map(|schemes| SecurityRequirement { schemes }), 0..3)
}

pub(crate) fn card() -> impl Strategy<Value = AgentCard> {
    let interface = (text(), text(), text(), text()).prop_map(|(url, protocol_binding, tenant, protocol_version)| {
        AgentInterface { url, protocol_binding, tenant, protocol_version }
    });
    let provider = (text(), text()).prop_map(|(url, organization)| AgentProvider { url, organization });
    let extension = (text(), text(), any::<bool>(), of(object()))
        .prop_map(|(uri, description, required, params)| AgentExtension { uri, description, required, params });
    let capabilities = (of(any::<bool>()), of(any::<bool>()), vec(extension, 0..3), of(any::<bool>())).prop_map(
        |(streaming, push_notifications, extensions, extended_agent_card)| AgentCapabilities {
            streaming,
            push_notifications,
            extensions,
            extended_agent_card,
        },
    );
    let skill = (text(), text(), text(), texts(), texts(), texts(), texts(), requirements()).prop_map(
        |(id, name, description, tags, examples, input_modes, output_modes, security_requirements)| AgentSkill {
            id,
            name,
            description,
            tags,
            examples,
            input_modes,
            output_modes,
            security_requirements,
        },
    );
    let signature = (text(), text(), of(object())).prop_map(|(protected, signature, header)| AgentCardSignature {
        protected,
        signature,
        header,
    });
    let texts_of_it = (text(), text(), text(), of(text()), of(text()), texts(), texts());
    let security = (btree_map(text(), security_scheme(), 0..3), requirements(), vec(signature, 0..2));
    (texts_of_it, vec(interface, 0..3), of(provider), capabilities, security, vec(skill, 0..3)).prop_map(
        |(texts_of_it, supported_interfaces, provider, capabilities, security, skills)| {
            let (name, description, version, documentation_url, icon_url, default_input_modes, default_output_modes) =
                texts_of_it;
            let (security_schemes, security_requirements, signatures) = security;
            AgentCard {
                name,
                description,
                supported_interfaces,
                provider,
                version,
                documentation_url,
                capabilities,
                security_schemes,
                security_requirements,
                default_input_modes,
                default_output_modes,
                skills,
                signatures,
                icon_url,
            }
        },
    )
}
