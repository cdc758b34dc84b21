//! The 0.3 agent card: one main address, others beside it, security schemes that say their `type`.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::Error;
use crate::wire::message;
use crate::{
    APIKeySecurityScheme, AgentCardSignature, AgentExtension, AgentProvider, AuthorizationCodeOAuthFlow,
    ClientCredentialsOAuthFlow, DeviceCodeOAuthFlow, HTTPAuthSecurityScheme, MutualTlsSecurityScheme,
    OAuth2SecurityScheme, OpenIdConnectSecurityScheme, SecurityRequirement, StringList,
};

/// The binding that both versions have under the same name and the same address.
const JSONRPC: &str = "JSONRPC";

message! {
    pub struct AgentCard {
        always protocol_version "protocolVersion": String,
        always name "name": String,
        always description "description": String,
        always url "url": String,
        /// What is spoken at `url`; JSONRPC unless it says otherwise.
        implicit preferred_transport "preferredTransport": String,
        implicit additional_interfaces "additionalInterfaces": Vec<AgentInterface>,
        optional icon_url "iconUrl": String,
        optional provider "provider": AgentProvider,
        /// The version of the agent, not of the protocol.
        always version "version": String,
        optional documentation_url "documentationUrl": String,
        always capabilities "capabilities": AgentCapabilities,
        implicit security_schemes "securitySchemes": BTreeMap<String, SecurityScheme>,
        implicit security "security": Vec<BTreeMap<String, Vec<String>>>,
        always default_input_modes "defaultInputModes": Vec<String>,
        always default_output_modes "defaultOutputModes": Vec<String>,
        always skills "skills": Vec<AgentSkill>,
        optional supports_authenticated_extended_card "supportsAuthenticatedExtendedCard": bool,
        implicit signatures "signatures": Vec<AgentCardSignature>,
    }
}

message! {
    pub struct AgentInterface {
        always url "url": String,
        always transport "transport": String,
    }
}

message! {
    pub struct AgentCapabilities {
        optional streaming "streaming": bool,
        optional push_notifications "pushNotifications": bool,
        optional state_transition_history "stateTransitionHistory": bool,
        implicit extensions "extensions": Vec<AgentExtension>,
    }
}

message! {
    pub struct AgentSkill {
        always id "id": String,
        always name "name": String,
        always description "description": String,
        always tags "tags": Vec<String>,
        implicit examples "examples": Vec<String>,
        implicit input_modes "inputModes": Vec<String>,
        implicit output_modes "outputModes": Vec<String>,
        implicit security "security": Vec<BTreeMap<String, Vec<String>>>,
    }
}

message! {
    /// The members that schemes of every type have between them.
    pub struct SecurityScheme {
        /// `apiKey`, `http`, `oauth2`, `openIdConnect` or `mutualTLS`.
        always scheme_type "type": String,
        implicit description "description": String,
        /// Of an API key: `query`, `header` or `cookie`.
        implicit placed_in "in": String,
        implicit name "name": String,
        implicit scheme "scheme": String,
        implicit bearer_format "bearerFormat": String,
        optional flows "flows": OAuthFlows,
        implicit oauth2_metadata_url "oauth2MetadataUrl": String,
        implicit open_id_connect_url "openIdConnectUrl": String,
    }
}

message! {
    /// 0.3 may name several flows where 1.0 names one. The device code flow and `pkceRequired` came with 1.0; they are written
    /// here as members that a 0.3 reader does not know.
    pub struct OAuthFlows {
        optional authorization_code "authorizationCode": AuthorizationCodeOAuthFlow,
        optional client_credentials "clientCredentials": ClientCredentialsOAuthFlow,
        optional implicit "implicit": ImplicitOAuthFlow,
        optional password "password": PasswordOAuthFlow,
        optional device_code "deviceCode": DeviceCodeOAuthFlow,
    }
}

message! {
    pub struct ImplicitOAuthFlow {
        always authorization_url "authorizationUrl": String,
        implicit refresh_url "refreshUrl": String,
        always scopes "scopes": BTreeMap<String, String>,
    }
}

message! {
    pub struct PasswordOAuthFlow {
        always token_url "tokenUrl": String,
        implicit refresh_url "refreshUrl": String,
        always scopes "scopes": BTreeMap<String, String>,
    }
}

/// A card of either version.
#[derive(Debug, Clone, PartialEq)]
pub enum AnyCard {
    V1(crate::AgentCard),
    V03(AgentCard),
}

/// Reads a card of either version. One that lists its `supportedInterfaces` is read as 1.0, also when it has the 0.3 fields
/// beside them. One that does not speaks the 0.3 dialect, whatever its `protocolVersion` says.
pub fn decode_card(bytes: &[u8]) -> Result<AnyCard, Error> {
    let shape: Shape = crate::decode(bytes)?;
    if shape.supported_interfaces.is_some() {
        return crate::decode(bytes).map(AnyCard::V1);
    }
    let card: AgentCard = crate::decode(bytes)?;
    if card.url.is_empty() {
        return Err(Error::invalid("supportedInterfaces", "is required, or url in a card of version 0.3"));
    }
    Ok(AnyCard::V03(card))
}

message! {
    #[expect(unreachable_pub, reason = "the macro makes public types")]
    pub struct Shape {
        optional supported_interfaces "supportedInterfaces": crate::Json,
    }
}

/// Down. A 0.3 client gets the addresses at which 0.3 can be spoken: those that say so, and JSON-RPC, where the method's
/// name tells the dialects apart. The paths of REST and the service of gRPC are others in 0.3.
impl From<&crate::AgentCard> for AgentCard {
    fn from(card: &crate::AgentCard) -> Self {
        let mut interfaces = card
            .supported_interfaces
            .iter()
            .filter(|interface| interface.protocol_binding == JSONRPC || interface.protocol_version.starts_with("0.3"))
            .map(|interface| AgentInterface {
                url: interface.url.clone(),
                transport: interface.protocol_binding.clone(),
            });
        let main =
            interfaces.next().unwrap_or_else(|| AgentInterface { url: String::new(), transport: JSONRPC.to_owned() });
        let mut additional_interfaces: Vec<AgentInterface> = Vec::new();
        for interface in interfaces {
            if interface != main && !additional_interfaces.contains(&interface) {
                additional_interfaces.push(interface);
            }
        }
        let security_schemes = card
            .security_schemes
            .iter()
            .filter_map(|(name, scheme)| Some((name.clone(), scheme_down(scheme)?)))
            .collect();
        Self {
            protocol_version: super::PROTOCOL_VERSION.to_owned(),
            name: card.name.clone(),
            description: card.description.clone(),
            url: main.url,
            preferred_transport: main.transport,
            additional_interfaces,
            icon_url: card.icon_url.clone(),
            provider: card.provider.clone(),
            version: card.version.clone(),
            documentation_url: card.documentation_url.clone(),
            capabilities: AgentCapabilities {
                streaming: card.capabilities.streaming,
                push_notifications: card.capabilities.push_notifications,
                state_transition_history: None,
                extensions: card.capabilities.extensions.clone(),
            },
            security_schemes,
            security: requirements_down(&card.security_requirements),
            default_input_modes: card.default_input_modes.clone(),
            default_output_modes: card.default_output_modes.clone(),
            skills: card.skills.iter().map(skill_down).collect(),
            supports_authenticated_extended_card: card.capabilities.extended_agent_card,
            // A signature is over the card's bytes, and these are other bytes.
            signatures: Vec::new(),
        }
    }
}

/// Up. Every address speaks 0.3: that is what a card of this shape means.
impl From<AgentCard> for crate::AgentCard {
    fn from(card: AgentCard) -> Self {
        let version = if card.protocol_version.starts_with("0.") {
            card.protocol_version
        } else {
            super::PROTOCOL_VERSION.to_owned()
        };
        let transport = match card.preferred_transport.as_str() {
            "" => JSONRPC.to_owned(),
            _ => card.preferred_transport,
        };
        let main = AgentInterface { url: card.url, transport };
        let mut supported_interfaces: Vec<crate::AgentInterface> = Vec::new();
        for interface in [main].into_iter().chain(card.additional_interfaces) {
            let interface = crate::AgentInterface {
                url: interface.url,
                protocol_binding: interface.transport,
                tenant: String::new(),
                protocol_version: version.clone(),
            };
            // The main address is often listed a second time.
            if !supported_interfaces.contains(&interface) {
                supported_interfaces.push(interface);
            }
        }
        let mut security_schemes = BTreeMap::new();
        for (name, scheme) in card.security_schemes {
            scheme_up(&name, scheme, &mut security_schemes);
        }
        Self {
            name: card.name,
            description: card.description,
            supported_interfaces,
            provider: card.provider,
            version: card.version,
            documentation_url: card.documentation_url,
            capabilities: crate::AgentCapabilities {
                streaming: card.capabilities.streaming,
                push_notifications: card.capabilities.push_notifications,
                extensions: card.capabilities.extensions,
                extended_agent_card: card.supports_authenticated_extended_card,
            },
            security_schemes,
            security_requirements: requirements_up(card.security),
            default_input_modes: card.default_input_modes,
            default_output_modes: card.default_output_modes,
            skills: card.skills.into_iter().map(skill_up).collect(),
            signatures: card.signatures,
            icon_url: card.icon_url,
        }
    }
}

fn skill_down(skill: &crate::AgentSkill) -> AgentSkill {
    AgentSkill {
        id: skill.id.clone(),
        name: skill.name.clone(),
        description: skill.description.clone(),
        tags: skill.tags.clone(),
        examples: skill.examples.clone(),
        input_modes: skill.input_modes.clone(),
        output_modes: skill.output_modes.clone(),
        security: requirements_down(&skill.security_requirements),
    }
}

fn skill_up(skill: AgentSkill) -> crate::AgentSkill {
    crate::AgentSkill {
        id: skill.id,
        name: skill.name,
        description: skill.description,
        tags: skill.tags,
        examples: skill.examples,
        input_modes: skill.input_modes,
        output_modes: skill.output_modes,
        security_requirements: requirements_up(skill.security),
    }
}

pub(super) fn requirements_down(requirements: &[SecurityRequirement]) -> Vec<BTreeMap<String, Vec<String>>> {
    let one = |requirement: &SecurityRequirement| {
        let schemes = requirement.schemes.iter();
        schemes.map(|(name, scopes)| (name.clone(), scopes.list.clone())).collect()
    };
    requirements.iter().map(one).collect()
}

fn requirements_up(requirements: Vec<BTreeMap<String, Vec<String>>>) -> Vec<SecurityRequirement> {
    let one = |requirement: BTreeMap<String, Vec<String>>| SecurityRequirement {
        schemes: requirement.into_iter().map(|(name, list)| (name, StringList { list })).collect(),
    };
    requirements.into_iter().map(one).collect()
}

/// Nothing for a scheme of a kind that nobody knows: 0.3 readers refuse a card with one.
pub(super) fn scheme_down(scheme: &crate::SecurityScheme) -> Option<SecurityScheme> {
    let down = match scheme.clone() {
        crate::SecurityScheme::ApiKey(key) => SecurityScheme {
            scheme_type: "apiKey".to_owned(),
            description: key.description,
            placed_in: key.location,
            name: key.name,
            ..SecurityScheme::default()
        },
        crate::SecurityScheme::HttpAuth(http) => SecurityScheme {
            scheme_type: "http".to_owned(),
            description: http.description,
            scheme: http.scheme,
            bearer_format: http.bearer_format,
            ..SecurityScheme::default()
        },
        crate::SecurityScheme::OAuth2(oauth2) => SecurityScheme {
            scheme_type: "oauth2".to_owned(),
            description: oauth2.description,
            flows: Some(flows_down(oauth2.flows)),
            oauth2_metadata_url: oauth2.oauth2_metadata_url,
            ..SecurityScheme::default()
        },
        crate::SecurityScheme::OpenIdConnect(connect) => SecurityScheme {
            scheme_type: "openIdConnect".to_owned(),
            description: connect.description,
            open_id_connect_url: connect.open_id_connect_url,
            ..SecurityScheme::default()
        },
        crate::SecurityScheme::MutualTls(tls) => SecurityScheme {
            scheme_type: "mutualTLS".to_owned(),
            description: tls.description,
            ..SecurityScheme::default()
        },
        crate::SecurityScheme::Unspecified => return None,
    };
    Some(down)
}

/// A scheme with several flows becomes several schemes: the first keeps the name, the others have the flow's name after it.
fn scheme_up(name: &str, scheme: SecurityScheme, into: &mut BTreeMap<String, crate::SecurityScheme>) {
    let description = scheme.description;
    let up = match scheme.scheme_type.as_str() {
        "apiKey" => crate::SecurityScheme::ApiKey(APIKeySecurityScheme {
            description,
            location: scheme.placed_in,
            name: scheme.name,
        }),
        "http" => crate::SecurityScheme::HttpAuth(HTTPAuthSecurityScheme {
            description,
            scheme: scheme.scheme,
            bearer_format: scheme.bearer_format,
        }),
        "oauth2" => {
            let oauth2 = |flows| {
                crate::SecurityScheme::OAuth2(OAuth2SecurityScheme {
                    description: description.clone(),
                    flows,
                    oauth2_metadata_url: scheme.oauth2_metadata_url.clone(),
                })
            };
            let mut flows = flows_up(scheme.flows.unwrap_or_default()).into_iter();
            let first = flows.next().map(|(_, flow)| flow).unwrap_or_default();
            into.insert(name.to_owned(), oauth2(first));
            for (flow_name, flow) in flows {
                into.entry(format!("{name}.{flow_name}")).or_insert(oauth2(flow));
            }
            return;
        }
        "openIdConnect" => crate::SecurityScheme::OpenIdConnect(OpenIdConnectSecurityScheme {
            description,
            open_id_connect_url: scheme.open_id_connect_url,
        }),
        "mutualTLS" => crate::SecurityScheme::MutualTls(MutualTlsSecurityScheme { description }),
        _ => crate::SecurityScheme::Unspecified,
    };
    into.insert(name.to_owned(), up);
}

fn flows_down(flows: crate::OAuthFlows) -> OAuthFlows {
    let mut down = OAuthFlows::default();
    match flows {
        crate::OAuthFlows::AuthorizationCode(flow) => down.authorization_code = Some(flow),
        crate::OAuthFlows::ClientCredentials(flow) => down.client_credentials = Some(flow),
        crate::OAuthFlows::Implicit(flow) => {
            down.implicit = Some(ImplicitOAuthFlow {
                authorization_url: flow.authorization_url,
                refresh_url: flow.refresh_url,
                scopes: flow.scopes,
            });
        }
        crate::OAuthFlows::Password(flow) => {
            down.password = Some(PasswordOAuthFlow {
                token_url: flow.token_url,
                refresh_url: flow.refresh_url,
                scopes: flow.scopes,
            });
        }
        crate::OAuthFlows::DeviceCode(flow) => down.device_code = Some(flow),
        crate::OAuthFlows::Unspecified => {}
    }
    down
}

fn flows_up(flows: OAuthFlows) -> Vec<(&'static str, crate::OAuthFlows)> {
    let mut up = Vec::new();
    if let Some(flow) = flows.authorization_code {
        up.push(("authorizationCode", crate::OAuthFlows::AuthorizationCode(flow)));
    }
    if let Some(flow) = flows.client_credentials {
        up.push(("clientCredentials", crate::OAuthFlows::ClientCredentials(flow)));
    }
    if let Some(flow) = flows.implicit {
        let flow = crate::ImplicitOAuthFlow {
            authorization_url: flow.authorization_url,
            refresh_url: flow.refresh_url,
            scopes: flow.scopes,
        };
        up.push(("implicit", crate::OAuthFlows::Implicit(flow)));
    }
    if let Some(flow) = flows.password {
        let flow =
            crate::PasswordOAuthFlow { token_url: flow.token_url, refresh_url: flow.refresh_url, scopes: flow.scopes };
        up.push(("password", crate::OAuthFlows::Password(flow)));
    }
    if let Some(flow) = flows.device_code {
        up.push(("deviceCode", crate::OAuthFlows::DeviceCode(flow)));
    }
    up
}

/// A skill in both spellings at once: 1.0's `securityRequirements` and 0.3's `security` say the same.
pub(super) fn skill_in_both(skill: &crate::AgentSkill) -> Value {
    merged(serde_json::to_value(skill), serde_json::to_value(skill_down(skill)))
}

/// A scheme in both shapes at once: 0.3's `type` and its members, and 1.0's one member beside them.
pub(super) fn scheme_in_both(scheme: &crate::SecurityScheme) -> Value {
    match scheme_down(scheme) {
        Some(down) => merged(serde_json::to_value(scheme), serde_json::to_value(down)),
        None => Value::Object(serde_json::Map::new()),
    }
}

/// Skills and schemes hold strings and nothing of anybody else's making, so that they always are objects.
fn merged(one: serde_json::Result<Value>, other: serde_json::Result<Value>) -> Value {
    let (Ok(Value::Object(mut map)), Ok(Value::Object(more))) = (one, other) else {
        return Value::Null;
    };
    map.extend(more);
    Value::Object(map)
}
