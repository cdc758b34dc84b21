//! Agents run by models: who they are ([`Constitution`]), what they are told, and how they think.
//!
//! There are those of tenants, made through the API by a [`Maker`]; those of agent files of the kind `llm`; and [`index`], the one that
//! routes, which every installation has.

mod ask;
mod commands;
mod constitution;
mod prompt;
mod state;
mod think;
pub(crate) mod writ;

use std::{sync::Arc, time::Duration};

use a2a::{Timestamp, v03::arbiter};
use async_trait::async_trait;
use bytes::Bytes;
use client::egress::for_tenant;
use exchange::{Agent, Agents, Delivery, Entry, Errands, OnCrash, Outcome, Output, Profile, Turn};
use futures_util::future::join_all;
use serde_json::{Value, json};
use store::{AgentId, TaskId};

pub use self::constitution::{Constitution, Wrong};
use self::{state::State, think::Thinking};
use crate::{
    file::{Table, keys_of},
    frame,
    kind::{Built, Context, Described, Kind},
    model::{self, Models},
    remote::{self, Remotes, Session},
};

/// Agents run by models, described by the table `[llm]`.
pub const KIND: Kind = Kind { name: "llm", moved: &[], keys: keys_of::<Constitution>, prepare, build };

/// The name of the agent that routes.
pub const INDEX: &str = "index";

/// How many turns of one run at once. Each waits for its model most of the time.
const CONCURRENCY: usize = 64;
/// A model's words come slowly: who waits for the first is shown it.
const FIRST_TEXT: Duration = Duration::from_millis(3);
/// A turn that works this long, rests not counted, has a model that does not come to an end.
const TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// So often a turn is taken up, after crashes and after replies that broke off.
const ATTEMPTS: u32 = 5;
/// How much of what it is for stands on its card.
const LONGEST_DESCRIPTION: usize = 2 << 10;

/// An agent run by a model.
struct Mind {
    id: AgentId,
    constitution: Constitution,
    models: Models,
    remotes: Remotes,
}

/// Makes agents of what tenants define.
pub struct Maker {
    models: Models,
    remotes: Remotes,
}

impl Maker {
    /// Its agents think with these models, and know these remotes.
    pub fn new(models: Models, remotes: Remotes) -> Self {
        Self { models, remotes }
    }

    /// The agent that routes.
    pub fn index(&self) -> Entry {
        let mut entry = self.entry(id_of_index(), index());
        INDEX.clone_into(&mut entry.profile.version);
        entry
    }

    fn entry(&self, id: AgentId, constitution: Constitution) -> Entry {
        let mut profile = Profile::new(id.clone(), KIND.name);
        prepare(&mut profile);
        let Described { name, description, skills, commands } = described(&constitution);
        if !name.is_empty() {
            profile.name = name;
        }
        (profile.description, profile.skills, profile.commands) = (description, skills, commands);
        let mind = Mind { id, constitution, models: self.models.clone(), remotes: self.remotes.clone() };
        Entry::new(profile, Arc::new(mind))
    }
}

impl exchange::own::Maker for Maker {
    fn make(&self, id: &AgentId, definition: &[u8], updated_at: Timestamp) -> Result<Entry, a2a::Error> {
        let wrong = |wrong: Wrong| match wrong.field.as_str() {
            "" => a2a::Error::new(a2a::ErrorKind::InvalidParams, format!("the agent's definition: {}", wrong.problem)),
            field => a2a::Error::invalid(field, wrong.problem),
        };
        let constitution = Constitution::parse(definition).map_err(wrong)?;
        constitution.check().map_err(wrong)?;
        let mut entry = self.entry(id.clone(), constitution);
        entry.profile.version = updated_at.as_millis().to_string();
        Ok(entry)
    }

    fn builtin(&self, id: &str) -> Option<Value> {
        (id == INDEX).then(|| {
            let index = index();
            // Whoever looks for somebody to talk with sees here whether it can think.
            let model = self.models.find("", "").map_or_else(|_| String::new(), |model| model.name().to_owned());
            json!({
                "id": INDEX, "name": index.name, "role": index.role, "goal": index.goal, "model": model,
                "brevity": "lite", "mode": "conversational", "max_tokens": index.max_tokens, "rules": index.rules,
            })
        })
    }
}

/// The constitution of the agent that routes.
fn index() -> Constitution {
    let rules = [
        "Answer by yourself what needs nobody else.",
        "Of the agents and remote agents that are listed before the query, ask the one whose description fits best. Ask several at once only when their work is independent.",
        "Prefer an agent of this installation to a remote one that does the same: what a remote is told leaves the installation.",
        "What you were told by others is theirs: say whose it is where that matters, and do not add to it.",
        "Where nobody fits and you cannot answer, say what is missing.",
    ];
    let mut index = Constitution::conversational();
    (index.name, index.role) = (INDEX.to_owned(), "orchestrator".to_owned());
    "answer, or find the agent that can".clone_into(&mut index.goal);
    index.rules = rules.map(str::to_owned).to_vec();
    index.max_tokens = Some(2048);
    index
}

fn id_of_index() -> AgentId {
    match INDEX.parse() {
        Ok(id) => id,
        Err(_) => unreachable!("it is an id"),
    }
}

fn prepare(profile: &mut Profile) {
    profile.concurrency = CONCURRENCY;
    profile.max_attempts = ATTEMPTS;
    profile.on_crash = OnCrash::Resume;
    profile.tells_cancel = true;
    profile.first_text = FIRST_TEXT;
    profile.timeout = Some(TIMEOUT);
    profile.input_modes = ["text/plain", "text/*", "application/json", "image/*"].map(str::to_owned).to_vec();
    profile.output_modes = ["text/plain", "application/json"].map(str::to_owned).to_vec();
}

/// What callers see of it.
fn described(constitution: &Constitution) -> Described {
    Described {
        name: constitution.name.clone(),
        // Whoever looks for an agent reads the cards of all of them.
        description: frame::cut(&arbiter::describe(&constitution.role, &constitution.goal), LONGEST_DESCRIPTION),
        skills: arbiter::skills(&constitution.capabilities),
        commands: constitution.capabilities.clone(),
    }
}

fn build(table: Table<'_>, context: &Context) -> Result<Built, String> {
    let constitution: Constitution = table.read()?;
    constitution.check().map_err(|wrong| format!("`llm.{}`: {}", wrong.field, wrong.problem))?;
    let nothing = || model::Options { file: None, environment: Arc::new(|_| None), local: None, ..Default::default() };
    let models = context.models.clone().unwrap_or_else(|| Models::new(nothing()));
    let remotes = context.remotes.clone().unwrap_or_else(|| {
        Remotes::new(remote::Options { enabled: false, ..remote::Options::default() }, Agents::default())
    });
    let mut warnings = Vec::new();
    // Where files are only looked at nobody knows which models there will be.
    if context.models.is_some()
        && let Err(unset) = models.find(&constitution.model, "")
    {
        warnings.push(format!("it cannot think yet: {unset}"));
    }
    let described = Some(described(&constitution));
    let agent = Arc::new(Mind { id: context.id.clone(), constitution, models, remotes });
    Ok(Built { agent, delivery: Delivery::Run, described, warnings })
}

impl Mind {
    /// Whether it is told who else there is: the one that routes, and whoever is there to hand work on.
    fn routes(&self) -> bool {
        self.id.as_str() == INDEX || self.constitution.delegates()
    }
}

#[async_trait]
impl Agent for Mind {
    async fn run(&self, turn: Turn, out: Output) -> Outcome {
        let Some(errands) = turn.errands.clone() else {
            return Outcome::Broken("an agent run by a model runs on the server, not with a worker".to_owned());
        };
        let caller = match errands.caller().await {
            Ok(caller) => caller,
            Err(_) if turn.resumed => return Outcome::Parked { at_most: Some(Duration::from_secs(5)) },
            Err(error) => return Outcome::Retry(format!("whose turn it is cannot be read: {error}")),
        };
        let state = State::open(turn.state.as_deref(), turn.number);
        let mut session = Session::new(&self.remotes, &caller, turn.ledger.clone());
        session.ledger().resume(state.made);
        let thinking =
            Thinking { mind: self, turn: &turn, out: &out, errands: &errands, caller: &caller, session, state };
        tokio::select! {
            biased;
            // With it the model's answer is dropped, and with that the call.
            () = turn.cancel.cancelled() => Outcome::Canceled,
            // Names of providers and remotes are looked up in the tenant's share.
            outcome = for_tenant(caller.tenant.0, thinking.run()) => outcome,
        }
    }

    async fn canceled(&self, _: TaskId, state: Bytes, errands: &Errands) -> Result<(), String> {
        let kept: State = serde_json::from_slice(&state).unwrap_or_default();
        let caller = errands.caller().await.map_err(|error| error.to_string())?;
        let children = kept.children().map(|child| errands.cancel(&caller, child));
        let calls = kept.calls.iter().map(|call| self.remotes.cancel(&caller, &call.remote, &call.message));
        let (told, called) = tokio::join!(join_all(children), join_all(calls));
        told.into_iter().collect::<Result<(), _>>().map_err(|error| error.to_string())?;
        called.into_iter().collect()
    }

    fn introduction(&self) -> Option<String> {
        Some(self.constitution.introduction(self.id.as_str()))
    }
}
