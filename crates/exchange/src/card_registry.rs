//! The card registry: cards that a tenant keeps of agents that are not served here, by the agent's id.
//!
//! What is served here needs no entry: its card is made of what it is. A target that only the queue reaches says so by an
//! interface of its own, `SECOND_BRAIN_LOCAL`, and is never presented as an address of HTTP (X-29, S3-23).

use a2a::{AgentCard, AgentInterface, Error as Refusal};
use store::{AgentId, Scope, StoredCard};

use crate::{Caller, Error, Exchange, Luggage};

/// The binding of a target that only the queue reaches.
pub const LOCAL_BINDING: &str = "SECOND_BRAIN_LOCAL";
/// What that binding has for a version.
pub const LOCAL_VERSION: &str = "local-queue";
/// What its URLs begin with; the target's name follows.
pub const LOCAL_PREFIX: &str = "internal://a2a/";

/// How large a card may be, in bytes.
const MAX_BYTES: usize = 64 * 1024;
/// How many cards a tenant may keep.
const MAX_CARDS: u64 = 1000;

/// The interface of a target that only the queue reaches.
pub fn local_interface(target: &str) -> AgentInterface {
    AgentInterface {
        url: format!("{LOCAL_PREFIX}{target}"),
        protocol_binding: LOCAL_BINDING.to_owned(),
        protocol_version: LOCAL_VERSION.to_owned(),
        ..AgentInterface::default()
    }
}

impl Exchange {
    /// Keeps a card, in the place of the one that was there; says whether it is new.
    pub async fn put_card(&self, caller: &Caller, id: &str, card: AgentCard) -> Result<(StoredCard, bool), Error> {
        caller.needs(Scope::Admin)?;
        let agent = agent_id(id)?;
        if !caller.covers(id) {
            return Err(Error::agent_not_found(id));
        }
        if self.agents().find(caller, id).is_some() {
            let why = "is served here, and its card is made of what it is; change the agent instead";
            return Err(Refusal::invalid("id", why).into());
        }
        let card = completed(&agent, card)?;
        let bytes = serde_json::to_vec(&card).map_err(|_| Refusal::internal("the card cannot be written as JSON"))?;
        if bytes.len() > MAX_BYTES {
            return Err(Refusal::invalid("", format!("a card has at most {MAX_BYTES} bytes")).into());
        }
        Ok(self.store().put_card(caller.tenant, &agent, bytes, MAX_CARDS).await?)
    }

    /// The cards that are kept, by id.
    pub async fn kept_cards(&self, caller: &Caller, luggage: &Luggage) -> Result<Vec<StoredCard>, Error> {
        let store = self.store();
        let mut all = self.weighed(caller, luggage, |most| store.cards(caller.tenant, most)).await?;
        all.retain(|card| caller.covers(card.agent.as_str()));
        Ok(all)
    }

    /// One that is kept.
    pub async fn kept_card(&self, caller: &Caller, id: &str) -> Result<StoredCard, Error> {
        let agent = id.parse().ok().filter(|_| caller.covers(id)).ok_or_else(|| Error::agent_not_found(id))?;
        self.store().card(caller.tenant, &agent).await?.ok_or_else(|| Error::agent_not_found(id))
    }

    /// Forgets one, and gives what it was.
    pub async fn remove_card(&self, caller: &Caller, id: &str) -> Result<StoredCard, Error> {
        caller.needs(Scope::Admin)?;
        let card = self.kept_card(caller, id).await?;
        if self.store().remove_card(caller.tenant, &card.agent).await? {
            Ok(card)
        } else {
            Err(Error::agent_not_found(id))
        }
    }
}

fn agent_id(id: &str) -> Result<AgentId, Error> {
    id.parse().map_err(|why| Refusal::invalid("id", why).into())
}

/// The card with what it leaves out, if it can be one.
fn completed(agent: &AgentId, mut card: AgentCard) -> Result<AgentCard, Refusal> {
    if card.name.trim().is_empty() {
        return Err(Refusal::invalid("name", "is required"));
    }
    if card.description.is_empty() {
        card.description = format!("The agent {}.", card.name);
    }
    if card.version.is_empty() {
        "1".clone_into(&mut card.version);
    }
    for modes in [&mut card.default_input_modes, &mut card.default_output_modes] {
        if modes.is_empty() {
            modes.push("text/plain".to_owned());
        }
    }
    if card.supported_interfaces.is_empty() {
        card.supported_interfaces.push(local_interface(agent.as_str()));
    }
    for (index, interface) in card.supported_interfaces.iter_mut().enumerate() {
        complete(interface)
            .map_err(|(member, why)| Refusal::invalid(format!("supportedInterfaces[{index}].{member}"), why))?;
    }
    Ok(card)
}

fn complete(interface: &mut AgentInterface) -> Result<(), (&'static str, String)> {
    let is_local = interface.url.starts_with("internal:");
    let (binding, version) = if is_local { (LOCAL_BINDING, LOCAL_VERSION) } else { ("JSONRPC", a2a::PROTOCOL_VERSION) };
    if interface.protocol_binding.is_empty() {
        binding.clone_into(&mut interface.protocol_binding);
    }
    if interface.protocol_version.is_empty() {
        version.clone_into(&mut interface.protocol_version);
    }
    if (interface.protocol_binding == LOCAL_BINDING) != is_local {
        return Err(("url", format!("{LOCAL_BINDING} is for {LOCAL_PREFIX}NAME, and that for nothing else")));
    }
    let url = interface.url.as_str();
    if is_local {
        let target = url.strip_prefix(LOCAL_PREFIX).and_then(|target| target.parse::<AgentId>().ok());
        if target.is_none() || interface.protocol_version != LOCAL_VERSION {
            return Err(("url", format!("a local target is {LOCAL_PREFIX}NAME with the version {LOCAL_VERSION}")));
        }
        return Ok(());
    }
    // An address of gRPC is a host and a port.
    let is_address = url.starts_with("https://") || url.starts_with("http://") || interface.protocol_binding == "GRPC";
    if !is_address || url.is_empty() || url.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(("url", format!("has to begin with https://, http:// or {LOCAL_PREFIX}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(json: &str) -> Result<AgentCard, Refusal> {
        completed(&"agent.research.v1".parse().unwrap(), a2a::decode(json.as_bytes()).unwrap())
    }

    #[test]
    fn s3_22_a_target_without_an_address_is_local() {
        let card = made(r#"{"name":"Research Agent"}"#).unwrap();
        assert_eq!(card.supported_interfaces, [local_interface("agent.research.v1")]);
        assert_eq!(card.supported_interfaces[0].url, "internal://a2a/agent.research.v1");
        assert_eq!((card.default_input_modes, card.default_output_modes).0, ["text/plain"]);
        let named = made(r#"{"name":"R","supportedInterfaces":[{"url":"internal://a2a/research"}]}"#).unwrap();
        assert_eq!(named.supported_interfaces, [local_interface("research")]);
    }

    #[test]
    fn s3_23_a_local_target_is_never_presented_as_http() {
        for interface in [
            r#"{"url":"https://h/a2a","protocolBinding":"SECOND_BRAIN_LOCAL"}"#,
            r#"{"url":"internal://a2a/x","protocolBinding":"JSONRPC"}"#,
            r#"{"url":"internal://a2a/x","protocolVersion":"1.0"}"#,
            r#"{"url":"internal://elsewhere/x"}"#,
            r#"{"url":"internal://a2a/"}"#,
            r#"{"url":"internal://a2a/a/b"}"#,
            r#"{"url":"ftp://h"}"#,
            r#"{"url":""}"#,
            r#"{"url":"https://h/ x"}"#,
        ] {
            let refusal = made(&format!(r#"{{"name":"a","supportedInterfaces":[{interface}]}}"#)).unwrap_err();
            assert_eq!(refusal.violations[0].field, "supportedInterfaces[0].url", "{interface}");
        }
        let card = made(r#"{"name":"a","supportedInterfaces":[{"url":"https://h/a2a"}]}"#).unwrap();
        assert_eq!(card.supported_interfaces[0].protocol_binding, "JSONRPC");
        assert_eq!(card.supported_interfaces[0].protocol_version, "1.0");
        assert_eq!(made(r#"{"name":" "}"#).unwrap_err().violations[0].field, "name");
    }
}
