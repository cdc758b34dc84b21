//! The kinds of agents: what `kind` may say in a file, and who makes an agent of that kind's own table.
//!
//! A new kind is a module with a [`Kind`], and its line in [`KINDS`]. What every agent has, whatever its kind, is read by
//! [`crate::file`].

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use exchange::{Agent, Delivery, Profile};
use store::AgentId;

use crate::{
    command::{self, Quarters},
    file::Table,
    mind,
    model::Models,
    queue,
    remote::{self, Remotes},
};

/// Every kind there is.
pub const KINDS: &[Kind] = &[command::KIND, mind::KIND, queue::KIND, remote::KIND];

/// One kind of agent.
#[derive(Clone, Copy)]
pub struct Kind {
    /// What `kind` says, and the name of the kind's own table.
    pub name: &'static str,
    /// Keys of every agent that older files have in this kind's table. They are read there too, with a warning.
    pub moved: &'static [&'static str],
    /// The keys of its own table, see [`crate::file::keys_of`].
    pub keys: fn() -> Vec<String>,
    /// What its agents have where their files say nothing.
    pub prepare: fn(&mut Profile),
    /// Makes an agent of the kind's own table, which is empty where a file has none. An error says what is wrong.
    pub build: fn(Table<'_>, &Context) -> Result<Built, String>,
}

/// An agent of a kind.
pub struct Built {
    /// What runs.
    pub agent: Arc<dyn Agent>,
    /// Who does its work.
    pub delivery: Delivery,
    /// What its own table says of it, for where the file says nothing.
    pub described: Option<Described>,
    /// What its operator should know: each a sentence about the agent, without its name.
    pub warnings: Vec<String>,
}

/// What callers see of an agent, as its own table has it.
pub struct Described {
    /// Its name on the card.
    pub name: String,
    /// Its description on the card.
    pub description: String,
    /// Its skills on the card.
    pub skills: Vec<a2a::AgentSkill>,
    /// The commands that it may use.
    pub commands: Vec<String>,
}

/// What a file does not say of itself.
pub struct Context {
    /// The agent's id.
    pub id: AgentId,
    /// Names of the tenants that see it.
    pub tenants: Option<BTreeSet<String>>,
    /// Where its programs live.
    pub quarters: Quarters,
    /// The remotes that there are, where agents run.
    pub remotes: Option<Remotes>,
    /// The models that there are, where agents run.
    pub models: Option<Models>,
    pub(crate) directory: PathBuf,
    /// Whether something in the file is meant from the directory.
    pub(crate) relative: Cell<bool>,
    /// Files that are part of the agent: it is made anew when they change.
    pub(crate) watched: RefCell<Vec<PathBuf>>,
}

impl Context {
    /// A path of the file, which is meant from the file's directory.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        self.relative.set(self.relative.get() || path.is_relative());
        // Joined with nothing, a path would end in a slash.
        if path.as_os_str().is_empty() { self.directory.clone() } else { self.directory.join(path) }
    }
}
