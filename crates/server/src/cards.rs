//! Agent cards: what is served at the well-known paths and as the extended card, signed and tagged by [`Signing`].
//!
//! The gateway's public card names no agent. Whatever names one is made for a caller who may see it. URLs come from the
//! configuration. Only who is on this machine, and calls it by a name of loopback, gets a card with that name.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use a2a::{
    APIKeySecurityScheme, AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentSkill, Error,
    HTTPAuthSecurityScheme, PROTOCOL_VERSION, PUSH_CHUNKS, SecurityRequirement, SecurityScheme, StringList,
    v03::{self, arbiter},
};
use exchange::{Agents, Caller, Entry, Profile, RESUME_CURSOR};

use crate::{reply::Tagged, signing::Signing};

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
    /// interface off its origin, and others take no other form of address. For the same reason no public card of an agent does.
    pub(crate) grpc: Option<String>,
}

/// What holds for all agents here, and stands on their cards or decides who reads them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// Callers authenticate; cards say how.
    pub(crate) auth: bool,
    /// The cards of agents that everybody may call can be read by everybody.
    pub(crate) public: bool,
    /// Webhooks are told about tasks.
    pub(crate) push: bool,
    pub(crate) compat: Compat,
}

/// Makes cards.
#[derive(Clone)]
pub(crate) struct Cards {
    addresses: Addresses,
    terms: Terms,
    signing: Arc<Signing>,
}

impl Addresses {
    /// The same at another address of this machine: a scheme, a host and perhaps a port.
    fn reached_at(&self, base: String) -> Self {
        let host = base.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
        let port = self.grpc.as_ref().and_then(|target| target.rsplit_once(':')).map(|(_, port)| port);
        let grpc = host.zip(port).map(|(host, port)| format!("{host}:{port}"));
        Self { base, grpc }
    }

    fn of_gateway(&self) -> Vec<AgentInterface> {
        self.interfaces(&format!("{}/a2a", self.base), "", self.grpc.as_deref())
    }

    fn of_agent(&self, id: &str, grpc: Option<&str>) -> Vec<AgentInterface> {
        self.interfaces(&format!("{}/a2a/agents/{id}", self.base), id, grpc)
    }

    /// JSON-RPC stands first: a client that takes the first interface it finds gets the one that all of them speak. URLs name
    /// the agent; where there is only a port, the field `tenant` does.
    fn interfaces(&self, prefix: &str, tenant: &str, grpc: Option<&str>) -> Vec<AgentInterface> {
        let interface = |binding: &str, url: String, tenant: &str| AgentInterface {
            url,
            protocol_binding: binding.to_owned(),
            tenant: tenant.to_owned(),
            protocol_version: PROTOCOL_VERSION.to_owned(),
        };
        let mut interfaces =
            vec![interface("JSONRPC", format!("{prefix}/jsonrpc"), ""), interface("HTTP+JSON", prefix.to_owned(), "")];
        if let Some(target) = grpc {
            interfaces.extend(["GRPC", STRUCT_BINDING].map(|binding| interface(binding, target.to_owned(), tenant)));
        }
        interfaces
    }
}

impl Cards {
    /// Cards with these addresses.
    pub(crate) fn new(addresses: Addresses, terms: Terms, signing: Signing) -> Self {
        Self { addresses, terms, signing: Arc::new(signing) }
    }

    /// Those for who has reached the server at another address than the configured one.
    pub(crate) fn reached_at(&self, base: Option<String>) -> Cow<'_, Self> {
        match base {
            None => Cow::Borrowed(self),
            Some(base) => Cow::Owned(Self { addresses: self.addresses.reached_at(base), ..self.clone() }),
        }
    }

    async fn sign(&self, card: Vec<u8>) -> Tagged {
        self.signing.sign(card, &self.addresses.base).await
    }

    /// What URLs begin with.
    pub(crate) fn base(&self) -> &str {
        &self.addresses.base
    }

    /// Whether cards of agents need no credential where the agent is everybody's.
    pub(crate) fn are_public(&self) -> bool {
        self.terms.public
    }

    /// Who signs them.
    pub(crate) fn signing(&self) -> &Signing {
        &self.signing
    }

    /// The gateway's card, for everybody. It names the agents only where nobody authenticates: there is nobody else to name
    /// them to.
    pub(crate) async fn gateway(&self, everybodys: &[Arc<Entry>]) -> Result<Tagged, Error> {
        self.made(&self.naming(everybodys), self.terms.compat == Compat::All).await
    }

    /// Whether there are extended cards.
    pub(crate) fn are_extended(&self) -> bool {
        self.terms.auth
    }

    /// The gateway's card for one caller: with the agents that this caller may see.
    pub(crate) async fn extended(&self, agents: &Agents, caller: &Caller) -> Result<Tagged, Error> {
        self.made(&self.naming(&agents.visible(caller)), false).await
    }

    fn naming(&self, agents: &[Arc<Entry>]) -> AgentCard {
        let mut card = gateway(&self.addresses, self.terms);
        card.skills.extend(agents.iter().map(|entry| skill_of(&entry.profile)));
        card
    }

    /// An agent's own card, in 1.0, with every interface.
    pub(crate) async fn agent(&self, profile: &Profile) -> Result<Tagged, Error> {
        self.made(&self.card(profile, self.addresses.grpc.as_deref()), false).await
    }

    /// An agent's card at its well-known paths, with the interfaces of its own origin, and with the fields of 0.3 for who does not
    /// say that it speaks 1.0.
    pub(crate) async fn agent_at_origin(&self, profile: &Profile, speaks_1_0: bool) -> Result<Tagged, Error> {
        self.made(&self.card(profile, None), !speaks_1_0 && self.terms.compat != Compat::None).await
    }

    /// A card as it is served, with the fields of 0.3 or without.
    async fn made(&self, card: &AgentCard, with_03: bool) -> Result<Tagged, Error> {
        let bytes = if with_03 { v03::compat_card(card, &self.addresses.base) } else { written(card)? };
        Ok(self.sign(bytes).await)
    }

    fn card(&self, profile: &Profile, grpc: Option<&str>) -> AgentCard {
        let mut card = AgentCard {
            name: profile.name.clone(),
            description: profile.description.clone(),
            version: profile.version.clone(),
            supported_interfaces: self.addresses.of_agent(profile.id.as_str(), grpc),
            capabilities: capabilities(&profile.extensions, self.terms),
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
        secure(&mut card, self.terms.auth);
        card
    }

    /// An agent's card under `/v1/a2a`, in both sets of fields.
    pub(crate) async fn arbiter(&self, profile: &Profile) -> Tagged {
        let nobody = arbiter::describe("", "");
        let description = if profile.description.is_empty() { &nobody } else { &profile.description };
        let facts = arbiter::AgentFacts {
            id: profile.id.as_str(),
            name: &profile.name,
            description,
            version: &profile.version,
            commands: &profile.commands,
            auth: self.terms.auth,
        };
        self.sign(arbiter::agent_card(&facts, &self.addresses.base)).await
    }

    /// A card of 0.3 that says what this one of 1.0 does.
    pub(crate) async fn in_03(&self, card: &AgentCard) -> Result<Tagged, Error> {
        let card = v03::AgentCard::from(card);
        let bytes = serde_json::to_vec(&card).map_err(|_| unwritable())?;
        Ok(self.sign(bytes).await)
    }
}

fn gateway(addresses: &Addresses, terms: Terms) -> AgentCard {
    let base = &addresses.base;
    let (authenticate, listed) = if terms.auth {
        (
            "Authenticate with a token, as `Authorization: Bearer <token>` or `x-sb-token: <token>`. ",
            "The extended card lists the agents that you may call.",
        )
    } else {
        ("", "The skills after the first are the agents.")
    };
    let description = format!(
        "A gateway to the agents of this installation. {authenticate}An agent is called at {base}/a2a/agents/{{id}}; its card \
         is at {base}/a2a/agents/{{id}}/.well-known/agent-card.json. {listed}"
    );
    let mut card = AgentCard {
        name: "Switchboard".to_owned(),
        description,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        supported_interfaces: addresses.of_gateway(),
        capabilities: capabilities(&[], terms),
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
    secure(&mut card, terms.auth);
    card
}

/// A card for those who have authenticated there is only where somebody does.
fn capabilities(extensions: &[AgentExtension], terms: Terms) -> AgentCapabilities {
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
    if terms.push {
        all.push(AgentExtension {
            uri: PUSH_CHUNKS.to_owned(),
            description:
                "Asked for in `A2A-Extensions` when a push notification configuration is made, it brings every chunk \
                          of an artifact as it comes, and not the whole when it is finished."
                    .to_owned(),
            ..AgentExtension::default()
        });
    }
    all.extend_from_slice(extensions);
    AgentCapabilities {
        streaming: Some(true),
        push_notifications: Some(terms.push),
        extended_agent_card: Some(terms.auth),
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

fn written(card: &AgentCard) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(card).map_err(|_| unwritable())
}

fn unwritable() -> Error {
    Error::internal("the card cannot be written as JSON")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    async fn cards(base: &str, auth: bool, compat: Compat) -> Cards {
        of_terms(base, Terms { auth, public: true, push: false, compat }).await
    }

    async fn of_terms(base: &str, terms: Terms) -> Cards {
        let directory = tempfile::tempdir().unwrap();
        let store = store::sqlite::open(directory.path(), store::sqlite::Options::default()).unwrap();
        let addresses = Addresses { base: base.to_owned(), grpc: None };
        Cards::new(addresses, terms, Signing::new(store, base).await.unwrap())
    }

    fn parsed(tagged: &Tagged) -> Value {
        serde_json::from_slice(&tagged.bytes).unwrap()
    }

    #[tokio::test]
    async fn the_gateway_says_where_and_how() {
        let card = parsed(&cards("https://sb.example", true, Compat::Agents).await.gateway(&[]).await.unwrap());
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

    #[tokio::test]
    async fn without_auth_no_scheme_is_named() {
        let card = parsed(&cards("http://127.0.0.1:1", false, Compat::Agents).await.gateway(&[]).await.unwrap());
        assert!(card.get("securitySchemes").is_none());
        assert!(card.get("securityRequirements").is_none());
        assert!(!card["description"].as_str().unwrap().contains("token"));
    }

    #[tokio::test]
    async fn a_compatible_card_has_both_sets_of_fields() {
        let card = parsed(&cards("https://sb.example", true, Compat::All).await.gateway(&[]).await.unwrap());
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

    #[tokio::test]
    async fn an_agent_has_its_own_addresses() {
        let mut profile = Profile::new("echo".parse().unwrap(), "builtin");
        profile.extensions.push(AgentExtension { uri: "urn:x".into(), required: true, ..AgentExtension::default() });
        let card = parsed(&cards("http://a", false, Compat::Agents).await.agent(&profile).await.unwrap());
        assert_eq!(card["name"], "echo");
        assert_eq!(card["supportedInterfaces"][0]["url"], "http://a/a2a/agents/echo/jsonrpc");
        assert_eq!(card["supportedInterfaces"][1]["url"], "http://a/a2a/agents/echo");
        assert_eq!(card["capabilities"]["extensions"][1], json!({"uri": "urn:x", "required": true}));
        assert_eq!(card["skills"][0]["id"], "echo");
        assert_eq!(card["skills"][0]["tags"], json!(["builtin"]));
    }

    #[tokio::test]
    async fn x_6_every_card_but_those_of_v1_says_whether_webhooks_are_told() {
        let profile = Profile::new("echo".parse().unwrap(), "builtin");
        for push in [false, true] {
            let cards = of_terms("http://a", Terms { auth: false, public: true, push, compat: Compat::All }).await;
            let in_1_0 = cards.agent(&profile).await.unwrap();
            let in_03 = cards.in_03(&serde_json::from_slice(&in_1_0.bytes).unwrap()).await.unwrap();
            let both = cards.agent_at_origin(&profile, false).await.unwrap();
            for card in [in_1_0, in_03, both, cards.gateway(&[]).await.unwrap()] {
                let capabilities = parsed(&card)["capabilities"].take();
                assert_eq!(capabilities["pushNotifications"], push);
                let extensions = capabilities["extensions"].as_array().unwrap();
                assert_eq!(extensions.iter().any(|extension| extension["uri"] == PUSH_CHUNKS), push);
            }
            let arbiters = parsed(&cards.arbiter(&profile).await);
            assert_eq!(arbiters["capabilities"]["pushNotifications"], false, "S0-26");
        }
    }
}
