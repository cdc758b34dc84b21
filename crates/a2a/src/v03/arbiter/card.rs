//! The card of an agent on the surface of seed 000, in both sets of fields.

use std::collections::BTreeMap;

use crate::v03::compat;
use crate::{
    AgentCapabilities, AgentCard, AgentInterface, AgentSkill, HTTPAuthSecurityScheme, PROTOCOL_VERSION,
    SecurityRequirement, SecurityScheme, StringList,
};

/// What seed 000 makes a card from.
#[derive(Debug, Clone, Copy)]
pub struct AgentFacts<'a> {
    pub id: &'a str,
    /// The id stands in for an empty name.
    pub name: &'a str,
    /// See [`describe`].
    pub description: &'a str,
    /// When the agent was last changed; `index` for the master.
    pub version: &'a str,
    /// The commands it may use, as they are written: `/fetch`.
    pub commands: &'a [String],
    /// Whether callers have to authenticate.
    pub auth: bool,
}

/// Commands that have a skill id of their own, with what they do.
const SKILLS: [(&str, &str, &str); 16] = [
    ("/fetch", "fetch-url", "Reads a page of the web."),
    ("/search", "web-search", "Searches the web."),
    ("/browse", "browse-page", "Looks at a page in a browser."),
    ("/exec", "shell-exec", "Runs a command in a sandbox."),
    ("/write", "write-file", "Writes a file."),
    ("/read", "read-file", "Reads a file."),
    ("/list", "list-files", "Lists files."),
    ("/map", "workspace-map", "Describes the files at hand."),
    ("/mem", "memory", "Remembers and looks up."),
    ("/mcp", "mcp-tools", "Uses the tools of MCP servers."),
    ("/agent", "delegate", "Hands work to another agent."),
    ("/parallel", "parallel-fanout", "Hands work to several agents at once."),
    ("/advise", "advisor-consult", "Asks an advisor."),
    ("/todo", "todos", "Keeps a list of things to do."),
    ("/schedule", "schedule", "Runs work at a later time."),
    ("/lesson", "lessons", "Keeps what it has learned."),
];

/// The description of an agent: its role and its goal.
pub fn describe(role: &str, goal: &str) -> String {
    match (role.trim(), goal.trim()) {
        ("", "") => "arbiter agent".to_owned(),
        (one, "") | ("", one) => one.to_owned(),
        (role, goal) => format!("{role} — {goal}"),
    }
}

/// The skills of an agent with these commands: it chats, and each command is one.
pub fn skills(commands: &[String]) -> Vec<AgentSkill> {
    let chat = AgentSkill {
        id: "chat".to_owned(),
        name: "Chat".to_owned(),
        description: "Takes a message and answers it.".to_owned(),
        tags: vec!["chat".to_owned()],
        ..AgentSkill::default()
    };
    std::iter::once(chat).chain(commands.iter().map(|command| skill(command))).collect()
}

/// The card as JSON. `base` is the public URL of the installation.
pub fn agent_card(agent: &AgentFacts<'_>, base: &str) -> Vec<u8> {
    let texts = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
    let bearer = HTTPAuthSecurityScheme { scheme: "bearer".to_owned(), ..HTTPAuthSecurityScheme::default() };
    let requirement = SecurityRequirement { schemes: BTreeMap::from([("bearer".to_owned(), StringList::default())]) };
    let name = if agent.name.is_empty() { agent.id } else { agent.name };
    let mut card = AgentCard {
        name: name.to_owned(),
        description: agent.description.to_owned(),
        supported_interfaces: vec![AgentInterface {
            url: format!("{}/v1/a2a/agents/{}", base.trim_end_matches('/'), agent.id),
            protocol_binding: "JSONRPC".to_owned(),
            tenant: String::new(),
            protocol_version: PROTOCOL_VERSION.to_owned(),
        }],
        version: agent.version.to_owned(),
        capabilities: AgentCapabilities {
            streaming: Some(true),
            push_notifications: Some(false),
            ..AgentCapabilities::default()
        },
        default_input_modes: texts(&["text/plain"]),
        default_output_modes: texts(&["text/plain", "application/json"]),
        skills: skills(agent.commands),
        ..AgentCard::default()
    };
    if agent.auth {
        card.security_schemes.insert("bearer".to_owned(), SecurityScheme::HttpAuth(bearer));
        card.security_requirements.push(requirement);
    }
    // Both dialects are spoken there, told apart by the method's name, and seed 000 calls that 1.0.
    compat::both(&card, &(&card).into(), PROTOCOL_VERSION)
}

fn skill(command: &str) -> AgentSkill {
    let known = SKILLS.into_iter().find(|(name, ..)| *name == command);
    let bare = command.trim_start_matches('/');
    let (id, description) = match known {
        Some((_, id, description)) => (id, description.to_owned()),
        None => (bare, format!("The agent's own command {command}.")),
    };
    AgentSkill {
        id: id.to_owned(),
        name: bare.to_owned(),
        description,
        tags: vec![command.to_owned()],
        ..AgentSkill::default()
    }
}
