//! What an agent file says about the cage of its program: how it is isolated, as whom it runs, what it may use up.

use std::{path::PathBuf, time::Duration};

use serde::Deserialize;
use store::AgentId;

use super::{Mode, Program, Quarters};
#[cfg(target_os = "linux")]
use crate::launch::{Bounds, World};
use crate::units::{Size, Span};

/// How a program is kept from the rest of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// It has all rights of its user, and can gain those of others by programs that give them.
    None,
    /// It gains no rights, and is kept from other processes of its user as far as the system can.
    #[default]
    Basic,
    /// It has a world of its own.
    Strict,
}

/// Who gets what a program writes to its standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stderr {
    /// The operator: by the log, and by the record of the task.
    #[default]
    Log,
    /// The caller too, when the program fails.
    Caller,
}

/// What a program may use up: the table `[command.limits]`. 0 is no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The memory that each of its processes writes to.
    pub memory: Size,
    /// How many processes and threads it may have.
    pub processes: u64,
    /// How many files each of its processes may have open.
    pub files: u64,
    /// How large a file that it writes may be.
    pub file_size: Size,
    /// How long each of its processes may compute, unless a program that stays is not told how long.
    pub cpu_time: Option<Span>,
}

/// How long a program that is started for a turn may compute, unless the file says.
const CPU_TIME: Span = Span(Duration::from_secs(3600));

impl Default for Limits {
    fn default() -> Self {
        Self { memory: Size(2 << 30), processes: 256, files: 1024, file_size: Size(1 << 30), cpu_time: None }
    }
}

#[cfg(target_os = "linux")]
impl Limits {
    pub(super) fn bounds(&self, mode: Mode) -> Bounds {
        // What stays adds up turn after turn; how long a turn may take is its timeout.
        let cpu_time = self.cpu_time.or((mode == Mode::Turn).then_some(CPU_TIME));
        Bounds {
            memory: self.memory.0,
            processes: self.processes,
            files: self.files,
            file_size: self.file_size.0,
            cpu_seconds: cpu_time.map_or(0, |time| time.0.as_secs().max(1)),
        }
    }
}

impl Program {
    /// Whether what the file wants of the cage can be had, and is meant.
    pub(super) fn check_cage(&self, agent: &AgentId, quarters: &Quarters) -> Result<Vec<String>, String> {
        let mut warnings = Vec::new();
        let strict = self.isolation == Isolation::Strict;
        if !strict {
            let unused = [("network", self.network.is_some()), ("readable", !self.readable.is_empty())];
            let unused = unused.into_iter().filter(|(_, given)| *given);
            warnings.extend(
                unused.map(|(key, _)| format!("`command.{key}` does nothing without `isolation = \"strict\"`")),
            );
        }
        if self.gid.is_some() && self.uid.is_none() {
            return Err("`command.gid` needs a `command.uid`".to_owned());
        }
        if self.uid.is_some() {
            if !rustix::process::geteuid().is_root() {
                return Err("`command.uid` needs a server that is run by root".to_owned());
            }
            if !self.env.contains_key("HOME") {
                return Err(
                    "`command.uid` needs an `env.HOME` that is the user's own: the data directory is closed to others"
                        .to_owned(),
                );
            }
        }
        if let Some(path) = self.readable.iter().find(|path| path.is_relative()) {
            return Err(format!("`command.readable`: `{}` must be an absolute path", path.display()));
        }
        if strict {
            for path in self.readable.iter().chain([&self.cwd]) {
                if let Some(own) = quarters.shown_by(path, agent) {
                    return Err(format!(
                        "`isolation = \"strict\"`: `{}` would show the program `{}`; give it a directory of its own",
                        path.display(),
                        own.display()
                    ));
                }
            }
            self.check_machine(quarters)?;
        }
        Ok(warnings)
    }

    #[cfg(target_os = "linux")]
    fn check_machine(&self, quarters: &Quarters) -> Result<(), String> {
        let Some(launcher) = &quarters.launcher else { return Ok(()) };
        crate::launch::try_world(launcher, self.uid.map(|uid| (uid, self.gid.unwrap_or(uid)))).map_err(|why| {
            format!("`isolation = \"strict\"` cannot be had on this machine: {why}; `sb doctor` says what can")
        })
    }

    #[cfg(not(target_os = "linux"))]
    fn check_machine(&self, _quarters: &Quarters) -> Result<(), String> {
        Err("`isolation = \"strict\"` needs Linux".to_owned())
    }

    /// The world of a program under strict isolation.
    #[cfg(target_os = "linux")]
    pub(super) fn world(&self, home: PathBuf) -> Option<World> {
        (self.isolation == Isolation::Strict).then(|| World {
            home,
            readable: self.readable.clone(),
            cwd: self.cwd.clone(),
            network: self.network.unwrap_or(false),
        })
    }
}
