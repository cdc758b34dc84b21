//! Agent cards: what is served at the well-known paths and as the extended card, with entity tags.
//!
//! The gateway's public card names no agent. Whatever names one is made for a caller who may see it. URLs come from the
//! configuration, never from a request.

use std::collections::BTreeMap;

use a2a::{
    APIKeySecurityScheme, AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentSkill, Error,
    HTTPAuthSecurityScheme, PROTOCOL_VERSION, SecurityRequirement, SecurityScheme, StringList,
    v03::{self, arbiter},
};
use exchange::{Agents, Caller, Profile, RESUME_CURSOR};
use sha2::{Digest, Sha256};

use crate::reply::Tagged;

/// Which cards the fields of A2A 0.3 stand on, beside those of 1.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compat {
    /// On the cards of agents, for whoever does not say that it speaks 1.0. Clients that are made for one agent are often older.
    #[default]
    Agents,
    /// On the gateway's public card too.
    All,
    /// On none but those under `/v1/a2a`, which is older.
    None,
}

/// The custom binding over gRPC whose messages are `google.protobuf.Struct`.
const STRUCT_BINDING: &str = "https://secondbrain.local/a2a/bindings/grpc-struct/v1";

/// Where agents are called.
#[derive(Debug, Clone)]
pub(crate) struct Addresses {
    /// What URLs begin with.
    pub(crate) base: String,
    /// `host:port` of the port for gRPC alone. Without one no card names gRPC: some clients refuse a card with any
    /// interface off its origin, and others take no other form of address.
    pub(crate) grpc: Option<String>,
}

/// Makes cards.
pub(crate) struct Cards {
    addresses: Addresses,
    auth: bool,
    public: bool,
    compat: Compat,
    gateway: Tagged,
}

impl Addresses {
    fn of_gateway(&self) -> Vec<AgentInterface> {
        self.interfaces(&format!("{}/a2a", self.base), "")
    }

    fn of_agent(&self, id: &str) -> Vec<AgentInterface> {
        self.interfaces(&format!("{}/a2a/agents/{id}", self.base), id)
    }

    /// JSON-RPC stands first: a client that takes the first interface it finds gets the one that all of them speak. URLs name
    /// the agent; where there is only a port, the field `tenant` does.
    fn interfaces(&self, prefix: &str, tenant: &str) -> Vec<AgentInterface> {
        let interface = |binding: &str, url: String, tenant: &str| AgentInterface {
            url,
            protocol_binding: binding.to_owned(),
            tenant: tenant.to_owned(),
            protocol_version: PROTOCOL_VERSION.to_owned(),
        };
        let mut interfaces =
            vec![interface("JSONRPC", format!("{prefix}/jsonrpc"), ""), interface("HTTP+JSON", prefix.to_owned(), "")];
        if let Some(target) = &self.grpc {
            interfaces.extend(["GRPC", STRUCT_BINDING].map(|binding| interface(binding, target.clone(), tenant)));
        }
        interfaces
    }
}

impl Cards {
    /// Cards with these addresses, which say how to authenticate when `auth` is on. With `public` those of agents that
    /// everybody may call can be read by everybody.
    pub(crate) fn new(addresses: Addresses, auth: bool, public: bool, compat: Compat) -> Result<Self, Error> {
        let card = gateway(&addresses, auth);
        let gateway = match compat {
            Compat::All => tag(v03::compat_card(&card, &addresses.base)),
            Compat::Agents | Compat::None => tagged(&card)?,
        };
        Ok(Self { addresses, auth, public, compat, gateway })
    }

    /// Whether cards of agents need no credential where the agent is everybody's.
    pub(crate) fn are_public(&self) -> bool {
        self.public
    }

    /// The gateway's card, for everybody.
    pub(crate) fn gateway(&self) -> &Tagged {
        &self.gateway
    }

    /// Whether there are extended cards.
    pub(crate) fn are_extended(&self) -> bool {
        self.auth
    }

    /// The gateway's card for one caller: with the agents that this caller may see.
    pub(crate) fn extended(&self, agents: &Agents, caller: &Caller) -> Result<Tagged, Error> {
        let mut card = gateway(&self.addresses, self.auth);
        for entry in agents.visible(caller) {
            card.skills.push(skill_of(&entry.profile));
        }
        tagged(&card)
    }

    /// An agent's own card, in 1.0.
    pub(crate) fn agent(&self, profile: &Profile) -> Result<Tagged, Error> {
        tagged(&self.card(profile))
    }

    /// The same for clients of whatever version.
    pub(crate) fn agent_for_all(&self, profile: &Profile) -> Result<Tagged, Error> {
        let card = self.card(profile);
        if self.compat == Compat::None { tagged(&card) } else { Ok(tag(v03::compat_card(&card, &self.addresses.base))) }
    }

    fn card(&self, profile: &Profile) -> AgentCard {
        let mut card = AgentCard {
            name: profile.name.clone(),
            description: profile.description.clone(),
            version: profile.version.clone(),
            supported_interfaces: self.addresses.of_agent(profile.id.as_str()),
            capabilities: capabilities(&profile.extensions, self.auth),
            default_input_modes: profile.input_modes.clone(),
            default_output_modes: profile.output_modes.clone(),
            skills: profile.skills.clone(),
            ..AgentCard::default()
        };
        if card.description.is_empty() {
            card.description = format!("The agent {}.", profile.name);
        }
        if card.skills.is_empty() {
            card.skills.push(skill_of(profile));
        }
        secure(&mut card, self.auth);
        card
    }

    /// An agent's card under `/v1/a2a`, in both sets of fields.
    pub(crate) fn arbiter(&self, profile: &Profile) -> Tagged {
        let nobody = arbiter::describe("", "");
        let description = if profile.description.is_empty() { &nobody } else { &profile.description };
        let facts = arbiter::AgentFacts {
            id: profile.id.as_str(),
            name: &profile.name,
            description,
            version: &profile.version,
            // Only agents with a model have commands.
            commands: &[],
        };
        tag(arbiter::agent_card(&facts, &self.addresses.base))
    }
}

fn gateway(addresses: &Addresses, auth: bool) -> AgentCard {
    let base = &addresses.base;
    let authenticate = if auth {
        "Authenticate with a token, as `Authorization: Bearer <token>` or `x-sb-token: <token>`. "
    } else {
        ""
    };
    let description = format!(
        "A gateway to the agents of this installation. {authenticate}Name an agent in the request's `tenant` field, or \
         call it at {base}/a2a/agents/{{id}}; its card is at {base}/a2a/agents/{{id}}/.well-known/agent-card.json. The \
         extended card lists the agents that you may call."
    );
    let mut card = AgentCard {
        name: "Switchboard".to_owned(),
        description,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        supported_interfaces: addresses.of_gateway(),
        capabilities: capabilities(&[], auth),
        default_input_modes: vec!["text/plain".to_owned(), "application/json".to_owned()],
        default_output_modes: vec!["text/plain".to_owned(), "application/json".to_owned()],
        skills: vec![AgentSkill {
            id: "relay".to_owned(),
            name: "Relay".to_owned(),
            description: "Passes a message on to the agent that it is for, and keeps the task until it is done."
                .to_owned(),
            tags: vec!["gateway".to_owned()],
            ..AgentSkill::default()
        }],
        ..AgentCard::default()
    };
    secure(&mut card, auth);
    card
}

/// A card for those who have authenticated there is only where somebody does.
fn capabilities(extensions: &[AgentExtension], auth: bool) -> AgentCapabilities {
    let resume = AgentExtension {
        uri: RESUME_CURSOR.to_owned(),
        description:
            "Every event of a stream has its sequence number as SSE id. SubscribeToTask with `Last-Event-ID` or \
                      `?afterSequence=N` replays what came after it, also when the task has ended. Over gRPC, who activates this \
             extension finds the number in each event's metadata, and says `after_sequence` in its own."
                .to_owned(),
        ..AgentExtension::default()
    };
    let mut all = vec![resume];
    all.extend_from_slice(extensions);
    AgentCapabilities {
        streaming: Some(true),
        push_notifications: Some(false),
        extended_agent_card: Some(auth),
        extensions: all,
    }
}

/// Either of two schemes is enough, so each is a requirement of its own.
fn secure(card: &mut AgentCard, auth: bool) {
    if !auth {
        return;
    }
    let bearer = HTTPAuthSecurityScheme { scheme: "Bearer".to_owned(), ..HTTPAuthSecurityScheme::default() };
    let token = APIKeySecurityScheme {
        location: "header".to_owned(),
        name: "x-sb-token".to_owned(),
        ..APIKeySecurityScheme::default()
    };
    for (name, scheme) in
        [("bearerAuth", SecurityScheme::HttpAuth(bearer)), ("sbTokenAuth", SecurityScheme::ApiKey(token))]
    {
        card.security_schemes.insert(name.to_owned(), scheme);
        let schemes = BTreeMap::from([(name.to_owned(), StringList::default())]);
        card.security_requirements.push(SecurityRequirement { schemes });
    }
}

/// An agent as one skill.
fn skill_of(profile: &Profile) -> AgentSkill {
    let mut tags: Vec<String> = Vec::new();
    for tag in profile.skills.iter().flat_map(|skill| &skill.tags) {
        if !tags.contains(tag) {
            tags.push(tag.clone());
        }
    }
    if tags.is_empty() {
        tags.push(profile.kind.to_owned());
    }
    let described = !profile.description.is_empty();
    AgentSkill {
        id: profile.id.to_string(),
        name: profile.name.clone(),
        description: if described { profile.description.clone() } else { format!("The agent {}.", profile.name) },
        tags,
        input_modes: profile.input_modes.clone(),
        output_modes: profile.output_modes.clone(),
        ..AgentSkill::default()
    }
}

fn tagged(card: &AgentCard) -> Result<Tagged, Error> {
    let bytes = serde_json::to_vec(card).map_err(|_| Error::internal("the card cannot be written as JSON"))?;
    Ok(tag(bytes))
}

fn tag(bytes: Vec<u8>) -> Tagged {
    let digest = Sha256::digest(&bytes);
    let mut etag = String::from("W/\"");
    for byte in &digest[..12] {
        etag.push_str(&format!("{byte:02x}"));
    }
    etag.push('"');
    Tagged { bytes: bytes.into(), etag: etag.into() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cards(base: &str, auth: bool, compat: Compat) -> Result<Cards, Error> {
        Cards::new(Addresses { base: base.to_owned(), grpc: None }, auth, true, compat)
    }

    fn parsed(tagged: &Tagged) -> Value {
        serde_json::from_slice(&tagged.bytes).unwrap()
    }

    #[test]
    fn the_gateway_says_where_and_how() {
        let card = parsed(cards("https://sb.example", true, Compat::Agents).unwrap().gateway());
        assert_eq!(
            card["supportedInterfaces"],
            json!([
                {"url": "https://sb.example/a2a/jsonrpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
                {"url": "https://sb.example/a2a", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
            ])
        );
        assert_eq!(card["securitySchemes"]["bearerAuth"]["httpAuthSecurityScheme"]["scheme"], "Bearer");
        assert_eq!(
            card["securitySchemes"]["sbTokenAuth"]["apiKeySecurityScheme"],
            json!({"location": "header", "name": "x-sb-token"})
        );
        let requirements = card["securityRequirements"].as_array().unwrap();
        assert_eq!(requirements.len(), 2);
        assert!(requirements[0]["schemes"]["bearerAuth"].is_object());
        assert!(requirements[1]["schemes"]["sbTokenAuth"].is_object());
        assert_eq!(card["capabilities"]["streaming"], true);
        assert_eq!(card["capabilities"]["extendedAgentCard"], true);
        assert_eq!(card["capabilities"]["extensions"][0]["uri"], RESUME_CURSOR);
        assert_eq!(card["skills"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn without_auth_no_scheme_is_named() {
        let card = parsed(cards("http://127.0.0.1:1", false, Compat::Agents).unwrap().gateway());
        assert!(card.get("securitySchemes").is_none());
        assert!(card.get("securityRequirements").is_none());
        assert!(!card["description"].as_str().unwrap().contains("token"));
    }

    #[test]
    fn a_compatible_card_has_both_sets_of_fields() {
        let card = parsed(cards("https://sb.example", true, Compat::All).unwrap().gateway());
        assert_eq!(card["supportedInterfaces"][0]["url"], "https://sb.example/a2a/jsonrpc");
        assert_eq!(
            (&card["url"], &card["preferredTransport"]),
            (&json!("https://sb.example/a2a/jsonrpc"), &json!("JSONRPC"))
        );
        assert_eq!(card["protocolVersion"], "0.3.0");
        let bearer = &card["securitySchemes"]["bearerAuth"];
        assert_eq!((&bearer["type"], &bearer["scheme"]), (&json!("http"), &json!("Bearer")));
        assert_eq!(bearer["httpAuthSecurityScheme"]["scheme"], "Bearer");
        assert_eq!(card["security"], json!([{"bearerAuth": []}, {"sbTokenAuth": []}]));
    }

    #[test]
    fn the_tag_follows_the_bytes() {
        let one = cards("http://a", true, Compat::Agents).unwrap();
        let two = cards("http://b", true, Compat::Agents).unwrap();
        assert_ne!(one.gateway().etag, two.gateway().etag);
        assert_eq!(one.gateway().etag, cards("http://a", true, Compat::Agents).unwrap().gateway().etag);
        assert!(one.gateway().etag.starts_with("W/\"") && one.gateway().etag.ends_with('"'));
    }

    #[test]
    fn an_agent_has_its_own_addresses() {
        let mut profile = Profile::new("echo".parse().unwrap(), "builtin");
        profile.extensions.push(AgentExtension { uri: "urn:x".into(), required: true, ..AgentExtension::default() });
        let card = parsed(&cards("http://a", false, Compat::Agents).unwrap().agent(&profile).unwrap());
        assert_eq!(card["name"], "echo");
        assert_eq!(card["supportedInterfaces"][0]["url"], "http://a/a2a/agents/echo/jsonrpc");
        assert_eq!(card["supportedInterfaces"][1]["url"], "http://a/a2a/agents/echo");
        assert_eq!(card["capabilities"]["extensions"][1], json!({"uri": "urn:x", "required": true}));
        assert_eq!(card["skills"][0]["id"], "echo");
        assert_eq!(card["skills"][0]["tags"], json!(["builtin"]));
    }
}
