//! What the last process takes upon itself before it becomes the program: limits, and walls to others of the same user.

use std::{fs, io};

use landlock::{AccessFs, Ruleset, RulesetAttr, RulesetStatus, Scope};
use rustix::{
    process::{Resource, Rlimit, Signal, getrlimit, getuid, set_parent_process_death_signal, setrlimit},
    thread::{
        CapabilitySet, CapabilitySets, clear_ambient_capability_set, remove_capability_from_bounding_set,
        set_capabilities, set_no_new_privs,
    },
};
use serde::{Deserialize, Serialize};

use super::{Order, group};

/// What a program may use up; 0 is no bound. Each of its processes has these, except for their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Bytes of memory that it writes to.
    pub memory: u64,
    /// Processes and threads: beside those that its user has already, or in its world if that is its own.
    pub processes: u64,
    /// Open files.
    pub files: u64,
    /// Bytes of a file that it writes.
    pub file_size: u64,
    /// Seconds of computing.
    pub cpu_seconds: u64,
}

/// How far Landlock keeps a program from other processes of its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Walls {
    /// It can neither look into them nor send them signals.
    Signals,
    /// It cannot look into them.
    Looks,
    /// This system has no Landlock.
    None,
}

impl Walls {
    /// What a process that tried them ends with.
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Signals => 10,
            Self::Looks => 11,
            Self::None => 12,
        }
    }
}

/// A moment between the signal that a program may catch and the one that it cannot.
const LAST_SECONDS: u64 = 5;

/// Takes all of it upon this process. An error says what could not be done.
pub(super) fn take(order: &Order) -> Result<(), (&'static str, io::Error)> {
    let fail = |what| move |error: rustix::io::Errno| (what, io::Error::from(error));
    // The keeper ends what it finds; if it was killed itself, the program at least goes with it.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(fail("tie the program to its keeper"))?;
    if let Some(group) = order.group.as_ref().filter(|_| order.world.is_none()) {
        group::join(group).map_err(|error| ("join the cgroup", error))?;
    }
    limit(order).map_err(fail("set limits"))?;
    if order.world.is_some() {
        give_up_rights().map_err(fail("give up rights"))?;
    }
    if order.walled {
        set_no_new_privs(true).map_err(fail("forbid new rights"))?;
        // As far as this system can; `sb doctor` says how far that is.
        let _ = walls();
    }
    Ok(())
}

fn limit(order: &Order) -> rustix::io::Result<()> {
    let bounds = order.bounds;
    let own_world = order.world.is_some();
    let processes = match bounds.processes {
        0 => 0,
        more if own_world => more,
        more => more + processes_of_user(),
    };
    for (resource, bound, last) in [
        (Resource::Data, bounds.memory, 0),
        (Resource::Nproc, processes, 0),
        (Resource::Nofile, bounds.files, 0),
        (Resource::Fsize, bounds.file_size, 0),
        (Resource::Cpu, bounds.cpu_seconds, LAST_SECONDS),
    ] {
        if bound > 0 {
            let highest = getrlimit(resource).maximum.unwrap_or(u64::MAX);
            let maximum = Some(highest.min(bound.saturating_add(last)));
            setrlimit(resource, Rlimit { current: Some(bound.min(highest)), maximum })?;
        }
    }
    // What a program has in its memory is not left on disks.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })
}

/// The system counts all processes and threads of a user together.
fn processes_of_user() -> u64 {
    let user = getuid().as_raw().to_string();
    let Ok(processes) = fs::read_dir("/proc") else { return 0 };
    let mut count = 0;
    for process in processes.flatten() {
        if !process.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        let Ok(status) = fs::read_to_string(process.path().join("status")) else { continue };
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
        if field("Uid:") == Some(&user) {
            count += field("Threads:").and_then(|threads| threads.parse::<u64>().ok()).unwrap_or(1);
        }
    }
    count
}

/// Nothing of what made the world is left to who lives in it, root or not.
fn give_up_rights() -> rustix::io::Result<()> {
    clear_ambient_capability_set()?;
    for capability in CapabilitySet::all().iter() {
        match remove_capability_from_bounding_set(capability) {
            // A system that does not know it has nothing to give up.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(error),
        }
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
}

/// Keeps this process, and all that come of it, from looking into other processes and from sending them signals, as far as
/// this system can. Nothing else changes: the one right that it has to give up, making block devices, is root's.
pub(super) fn walls() -> io::Result<Walls> {
    let raise = || {
        let ruleset = Ruleset::default().handle_access(AccessFs::MakeBlock)?.scope(Scope::Signal)?;
        Ok::<_, landlock::RulesetError>(ruleset.create()?.restrict_self()?.ruleset)
    };
    match raise().map_err(io::Error::other)? {
        RulesetStatus::FullyEnforced => Ok(Walls::Signals),
        RulesetStatus::PartiallyEnforced => Ok(Walls::Looks),
        RulesetStatus::NotEnforced => Ok(Walls::None),
    }
}
