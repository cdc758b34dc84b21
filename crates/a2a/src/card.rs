//! The agent card: how an agent describes itself.

use std::collections::BTreeMap;

use crate::JsonObject;
use crate::security::{SecurityRequirement, SecurityScheme};
use crate::wire::message;

message! {
    pub struct AgentCard {
        always name "name": String,
        always description "description": String,
        /// In the order of the agent's preference.
        always supported_interfaces "supportedInterfaces": Vec<AgentInterface>,
        optional provider "provider": AgentProvider,
        /// The version of the agent, not of the protocol.
        always version "version": String,
        optional documentation_url "documentationUrl": String,
        // A card of somebody else's that lacks its capabilities is still of use.
        always capabilities "capabilities": AgentCapabilities,
        implicit security_schemes "securitySchemes": BTreeMap<String, SecurityScheme>,
        implicit security_requirements "securityRequirements": Vec<SecurityRequirement>,
        always default_input_modes "defaultInputModes": Vec<String>,
        always default_output_modes "defaultOutputModes": Vec<String>,
        always skills "skills": Vec<AgentSkill>,
        implicit signatures "signatures": Vec<AgentCardSignature>,
        optional icon_url "iconUrl": String,
    }
}

message! {
    /// One address at which an agent speaks one binding.
    pub struct AgentInterface {
        always url "url": String,
        /// `JSONRPC`, `GRPC`, `HTTP+JSON` or a URI of somebody else's.
        always protocol_binding "protocolBinding": String,
        implicit tenant "tenant": String,
        always protocol_version "protocolVersion": String,
    }
}

message! {
    pub struct AgentProvider {
        always url "url": String,
        always organization "organization": String,
    }
}

message! {
    pub struct AgentCapabilities {
        optional streaming "streaming": bool,
        optional push_notifications "pushNotifications": bool,
        implicit extensions "extensions": Vec<AgentExtension>,
        optional extended_agent_card "extendedAgentCard": bool,
    }
}

message! {
    /// A protocol extension that an agent supports.
    pub struct AgentExtension {
        implicit uri "uri": String,
        implicit description "description": String,
        /// A caller that does not activate it is refused.
        implicit required "required": bool,
        optional params "params": JsonObject,
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
        implicit security_requirements "securityRequirements": Vec<SecurityRequirement>,
    }
}

message! {
    /// A detached JWS over the card.
    pub struct AgentCardSignature {
        /// The protected header, base64url.
        always protected "protected": String,
        /// The signature, base64url.
        always signature "signature": String,
        optional header "header": JsonObject,
    }
}
