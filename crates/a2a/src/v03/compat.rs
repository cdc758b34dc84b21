//! A card that clients of both versions can read: the fields of 1.0 and those of 0.3 in one object.
//!
//! 1.0 clients that refuse unknown fields do not take it, so that it is for those who ask for it (`cards.compat`) and for the
//! surface of seed 000, which always has it.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::card::{requirements_down, scheme_in_both, skill_in_both};
use super::{AgentCard, PROTOCOL_VERSION};
use crate::AgentCapabilities;

/// The card as JSON, with the 0.3 fields beside the 1.0 ones. `url` is the card's JSON-RPC address, and `base` when it has
/// none.
///
/// Signatures are written as they are in the card. They were made over the 1.0 form: a verifier that reads the card as 1.0
/// and takes that form accepts them, one that takes every field it received does not.
pub fn compat_card(card: &crate::AgentCard, base: &str) -> Vec<u8> {
    let mut v03 = AgentCard::from(card);
    if v03.url.is_empty() {
        base.clone_into(&mut v03.url);
    }
    both(card, &v03, PROTOCOL_VERSION)
}

pub(super) fn both(card: &crate::AgentCard, v03: &AgentCard, protocol_version: &str) -> Vec<u8> {
    // Strings, booleans and JSON that was read before always serialise.
    serde_json::to_vec(&Both { card, v03, protocol_version }).unwrap_or_default()
}

struct Both<'a> {
    card: &'a crate::AgentCard,
    v03: &'a AgentCard,
    protocol_version: &'a str,
}

impl Serialize for Both<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { card, v03, .. } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("protocolVersion", self.protocol_version)?;
        map.serialize_entry("name", &card.name)?;
        map.serialize_entry("description", &card.description)?;
        map.serialize_entry("url", &v03.url)?;
        map.serialize_entry("preferredTransport", &v03.preferred_transport)?;
        if !v03.additional_interfaces.is_empty() {
            map.serialize_entry("additionalInterfaces", &v03.additional_interfaces)?;
        }
        map.serialize_entry("supportedInterfaces", &card.supported_interfaces)?;
        if let Some(provider) = &card.provider {
            map.serialize_entry("provider", provider)?;
        }
        map.serialize_entry("version", &card.version)?;
        if let Some(url) = &card.documentation_url {
            map.serialize_entry("documentationUrl", url)?;
        }
        if let Some(url) = &card.icon_url {
            map.serialize_entry("iconUrl", url)?;
        }
        map.serialize_entry("capabilities", &Capabilities(&card.capabilities))?;
        if let Some(extended) = card.capabilities.extended_agent_card {
            map.serialize_entry("supportsAuthenticatedExtendedCard", &extended)?;
        }
        if !card.security_schemes.is_empty() {
            map.serialize_entry("securitySchemes", &Schemes(card))?;
        }
        if !card.security_requirements.is_empty() {
            map.serialize_entry("securityRequirements", &card.security_requirements)?;
            map.serialize_entry("security", &requirements_down(&card.security_requirements))?;
        }
        map.serialize_entry("defaultInputModes", &card.default_input_modes)?;
        map.serialize_entry("defaultOutputModes", &card.default_output_modes)?;
        let skills: Vec<_> = card.skills.iter().map(skill_in_both).collect();
        map.serialize_entry("skills", &skills)?;
        if !card.signatures.is_empty() {
            map.serialize_entry("signatures", &card.signatures)?;
        }
        map.end()
    }
}

struct Schemes<'a>(&'a crate::AgentCard);

impl Serialize for Schemes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let schemes = self.0.security_schemes.iter();
        serializer.collect_map(schemes.map(|(name, scheme)| (name, scheme_in_both(scheme))))
    }
}

struct Capabilities<'a>(&'a AgentCapabilities);

impl Serialize for Capabilities<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(streaming) = self.0.streaming {
            map.serialize_entry("streaming", &streaming)?;
        }
        if let Some(push_notifications) = self.0.push_notifications {
            map.serialize_entry("pushNotifications", &push_notifications)?;
        }
        map.serialize_entry("stateTransitionHistory", &false)?;
        if let Some(extended) = self.0.extended_agent_card {
            map.serialize_entry("extendedAgentCard", &extended)?;
        }
        if !self.0.extensions.is_empty() {
            map.serialize_entry("extensions", &self.0.extensions)?;
        }
        map.end()
    }
}
