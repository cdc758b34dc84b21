//! The verbs of the card registry.

use a2a::{AgentCapabilities, AgentCard, AgentInterface, AgentSkill};
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use crate::{
    failure::Failure,
    output::{self, Format},
    routes::RouteArgs,
    table::table,
};

#[derive(Debug, clap::Subcommand)]
#[expect(clippy::enum_variant_names, reason = "they stand beside the verbs of the queue")]
pub(super) enum Verb {
    /// Keep a card of an agent that is not served here, or replace it
    #[command(after_help = "Examples:\n  sb a2a card-upsert agent.research.v1 \"Research Agent\" \\\n    \
                            --capabilities-json '[\"summarize\",\"retrieve\"]' --endpoint internal://a2a/research\n  \
                            sb a2a card-upsert review Review --endpoint https://agents.example.org/a2a")]
    CardUpsert(Upsert),
    /// List the cards of the registry: of agents that are served, and those that are kept
    CardList(List),
    /// Print a card of the registry
    CardShow(One),
    /// Forget a card that is kept
    CardRemove(One),
}

#[derive(Debug, clap::Args)]
pub(super) struct Upsert {
    /// The agent's id
    id: String,
    /// The agent's name
    name: String,
    /// What it does
    #[arg(long, value_name = "TEXT", default_value = "")]
    description: String,
    /// What it can do: a list of names or of skills, or an object with A2A's capabilities
    #[arg(long, value_name = "JSON")]
    capabilities_json: Option<String>,
    /// Where it is [default: internal://a2a/ID, which only the queue reaches]
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// How it is spoken to there [default: JSONRPC]
    #[arg(long, value_name = "BINDING", requires = "endpoint", default_value = "")]
    endpoint_binding: String,
    #[command(flatten)]
    common: RouteArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct List {
    #[command(flatten)]
    common: RouteArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct One {
    /// The agent's id
    id: String,
    #[command(flatten)]
    common: RouteArgs,
}

/// A card of the registry, as the server tells it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    agent_id: String,
    source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    updated_at: Option<String>,
    card: Box<RawValue>,
}

impl Verb {
    pub(super) fn routes(&mut self) -> &mut RouteArgs {
        match self {
            Self::CardUpsert(args) => &mut args.common,
            Self::CardList(args) => &mut args.common,
            Self::CardShow(args) | Self::CardRemove(args) => &mut args.common,
        }
    }

    pub(super) async fn perform(self) -> Result<(), Failure> {
        match self {
            Self::CardUpsert(args) => upsert(&args).await,
            Self::CardList(args) => list(&args.common).await,
            Self::CardShow(args) => show(&args).await,
            Self::CardRemove(args) => remove(&args).await,
        }
    }
}

async fn upsert(args: &Upsert) -> Result<(), Failure> {
    let mut card = AgentCard { name: args.name.clone(), description: args.description.clone(), ..AgentCard::default() };
    if let Some(json) = &args.capabilities_json {
        add_capabilities(&mut card, json)
            .map_err(|why| Failure::usage("cannot use --capabilities-json").because(why))?;
    }
    if let Some(endpoint) = &args.endpoint {
        card.supported_interfaces.push(AgentInterface {
            url: endpoint.clone(),
            protocol_binding: args.endpoint_binding.clone(),
            ..AgentInterface::default()
        });
    }
    // Plain data always serialises.
    let body = serde_json::to_vec(&card).unwrap_or_default();
    let entry: Entry = args.common.call(Method::PUT, &["v1", "cards", &args.id], &[], Some(body)).await?;
    args.common.print(&entry, &format!("kept the card of {}", entry.agent_id));
    Ok(())
}

/// A list of names, each of which becomes a skill; a list of skills; or the card's capabilities themselves.
fn add_capabilities(card: &mut AgentCard, json: &str) -> Result<(), String> {
    let value: Value = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let list = match value {
        Value::Object(_) => {
            card.capabilities = a2a::decode::<AgentCapabilities>(json.as_bytes()).map_err(|error| error.message)?;
            return Ok(());
        }
        Value::Array(list) => list,
        _ => return Err("it has to be a list or an object".to_owned()),
    };
    for entry in list {
        card.skills.push(match entry {
            Value::String(name) if !name.is_empty() => AgentSkill {
                id: name.clone(),
                name: name.clone(),
                description: format!("{} can {name}.", card.name),
                tags: vec![name],
                ..AgentSkill::default()
            },
            Value::Object(_) => a2a::decode(entry.to_string().as_bytes()).map_err(|error| error.message)?,
            _ => return Err("an entry of the list is neither a name nor a skill".to_owned()),
        });
    }
    Ok(())
}

async fn list(common: &RouteArgs) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct All {
        cards: Vec<Entry>,
    }
    let All { cards } = common.call(Method::GET, &["v1", "cards"], &[], None).await?;
    if common.format() == Format::Json {
        for entry in &cards {
            common.print(entry, "");
        }
        return Ok(());
    }
    let mut rows = Vec::new();
    for entry in &cards {
        let card: AgentCard = a2a::decode(entry.card.get().as_bytes()).unwrap_or_default();
        let first = card.supported_interfaces.first().map(|interface| interface.url.clone()).unwrap_or_default();
        rows.push(vec![
            entry.agent_id.clone(),
            output::single_line(&card.name),
            entry.source.clone(),
            card.skills.len().to_string(),
            output::single_line(&first),
        ]);
    }
    output::print(&table(&["ID", "NAME", "SOURCE", "SKILLS", "AT"], &rows));
    Ok(())
}

async fn show(args: &One) -> Result<(), Failure> {
    let entry: Entry = args.common.call(Method::GET, &["v1", "cards", &args.id], &[], None).await?;
    match args.common.format() {
        Format::Json => output::line(&output::one_line(entry.card.get())),
        Format::Text => output::print_foreign(&format!("{}\n", output::indented(entry.card.get()))),
    }
    Ok(())
}

async fn remove(args: &One) -> Result<(), Failure> {
    let entry: Entry = args.common.call(Method::DELETE, &["v1", "cards", &args.id], &[], None).await?;
    args.common.print(&entry, &format!("forgot the card of {}", entry.agent_id));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_names_skills_or_flags() {
        let made = |json: &str| {
            let mut card = AgentCard { name: "A".to_owned(), ..AgentCard::default() };
            add_capabilities(&mut card, json).map(|()| card)
        };
        let named = made(r#"["summarize","retrieve"]"#).unwrap();
        assert_eq!(named.skills.iter().map(|skill| skill.id.as_str()).collect::<Vec<_>>(), ["summarize", "retrieve"]);
        assert_eq!(made(r#"[{"id":"s","name":"S","description":"d","tags":["t"]}]"#).unwrap().skills[0].name, "S");
        assert_eq!(made(r#"{"streaming":true}"#).unwrap().capabilities.streaming, Some(true));
        for wrong in ["", "1", "[1]", r#"[""]"#, r#"{"streaming":"x"}"#] {
            assert!(made(wrong).is_err(), "{wrong}");
        }
    }
}
