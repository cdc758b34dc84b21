//! The names of things, as types, so that one cannot be passed for another.

use std::{
    fmt,
    str::FromStr,
    sync::{Arc, PoisonError, RwLock},
};

use uuid::Uuid;

/// Who owns tasks and tokens. Every call of the store names one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(pub i64);

/// A task's id: a UUIDv7, so that ids sort by age.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(Uuid);

/// One running process.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct InstanceId(Uuid);

/// An agent's id: `[A-Za-z0-9._-]{1,64}`, and none of the words that routes use.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AgentId(Arc<str>);

const RESERVED: [&str; 5] = ["agents", "tasks", "jsonrpc", "extendedAgentCard", ".well-known"];

/// Whether a text can be a tenant's name: 1 to 64 letters, digits, `.`, `_` and `-`. Says what is wrong.
pub fn check_tenant_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.len() > 64 {
        return Err("a tenant's name has 1 to 64 characters");
    }
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-')) {
        return Err("a tenant's name has only letters, digits, '.', '_' and '-'");
    }
    Ok(())
}

/// Where new ids come from in a test that has to be repeatable.
pub type Numbers = fn() -> u128;

static NUMBERS: RwLock<Option<Numbers>> = RwLock::new(None);

/// Makes the new ids of tasks and instances of these numbers for the whole process, in debug builds only.
pub fn number_ids(numbers: Option<Numbers>) {
    *NUMBERS.write().unwrap_or_else(PoisonError::into_inner) = numbers;
}

fn numbered() -> Option<Uuid> {
    if !cfg!(debug_assertions) {
        return None;
    }
    let numbers = *NUMBERS.read().unwrap_or_else(PoisonError::into_inner);
    numbers.map(|number| uuid::Builder::from_u128(number()).with_version(uuid::Version::SortRand).into_uuid())
}

impl TaskId {
    /// A new id.
    pub fn mint() -> Self {
        Self(numbered().unwrap_or_else(Uuid::now_v7))
    }

    /// Reads an id as a caller sends it. What is not one of ours names no task.
    pub fn parse(text: &str) -> Option<Self> {
        // Only the hyphenated form is ours: one task must not have several spellings.
        if text.len() != 36 {
            return None;
        }
        let id = Uuid::try_parse(text).ok()?;
        text.bytes().all(|b| !b.is_ascii_uppercase()).then_some(Self(id))
    }

    /// The id of the message that ends a turn of the task: one a turn, the same at every attempt.
    pub fn reply_id(self, turn: u32) -> String {
        a2a::reply_id(self, turn)
    }

    /// The id of a message that was said on the way.
    pub fn progress_id(self, turn: u32, n: u32) -> String {
        format!("{self}-s{turn}-{n}")
    }

    /// Whether an id is one of those.
    pub(crate) fn is_progress_id(self, id: &str) -> bool {
        id.strip_prefix(self.hyphenated(&mut [0; Self::LENGTH])).is_some_and(|rest| rest.starts_with("-s"))
    }

    /// Whether it is we who have named something after the task.
    pub fn is_prefix_of(self, name: &str) -> bool {
        name.strip_prefix(self.hyphenated(&mut [0; Self::LENGTH])).is_some_and(|rest| rest.starts_with('-'))
    }

    /// How long an id is as text.
    pub(crate) const LENGTH: usize = uuid::fmt::Hyphenated::LENGTH;

    /// The id as text, without an allocation.
    pub(crate) fn hyphenated(self, buffer: &mut [u8; Self::LENGTH]) -> &str {
        self.0.as_hyphenated().encode_lower(buffer)
    }

    /// The id as a number, and back.
    pub(crate) fn as_u128(self) -> u128 {
        self.0.as_u128()
    }

    pub(crate) fn from_u128(number: u128) -> Self {
        Self(Uuid::from_u128(number))
    }

    /// An id before all that were made up to a second before this one, by any clock that is no further off.
    pub(crate) fn a_second_before(self) -> Self {
        // The first 48 bits are milliseconds.
        Self::from_u128((self.as_u128() >> 80).saturating_sub(1000) << 80)
    }

    /// Spreads tasks over `n` shards by the random end of the id.
    pub(crate) fn shard(self, n: usize) -> usize {
        usize::from(self.0.as_bytes()[15]) % n
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl InstanceId {
    /// A new id.
    pub fn mint() -> Self {
        Self(numbered().unwrap_or_else(Uuid::new_v4))
    }

    /// Reads an id as it is stored.
    pub fn parse(text: &str) -> Option<Self> {
        Uuid::try_parse(text).ok().map(Self)
    }

    /// The id as bytes.
    pub(crate) fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl fmt::Debug for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl AgentId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for AgentId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() || text.len() > 64 {
            return Err("an agent id has 1 to 64 characters");
        }
        if !text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-')) {
            return Err("an agent id has only letters, digits, '.', '_' and '-'");
        }
        if RESERVED.contains(&text) || text.bytes().all(|b| b == b'.') {
            return Err("this agent id is reserved");
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x_36_agent_ids_are_what_routes_can_carry() {
        for good in ["echo", "agent.research.v1", "a_b-c", &"x".repeat(64)] {
            assert!(good.parse::<AgentId>().is_ok(), "{good}");
        }
        for bad in ["", "a:b", "a/b", "..", "ä", &"x".repeat(65)] {
            assert!(bad.parse::<AgentId>().is_err(), "{bad}");
        }
        for reserved in ["agents", "tasks", "jsonrpc", "extendedAgentCard", ".well-known"] {
            assert!(reserved.parse::<AgentId>().is_err(), "{reserved}");
        }
    }

    #[test]
    fn tenant_names_fit_a_command_line() {
        for good in ["default", "acme.eu", "a_b-c", &"x".repeat(64)] {
            assert!(check_tenant_name(good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "a/b", "ä", "\u{1b}[2J", &"x".repeat(65)] {
            assert!(check_tenant_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_task_id_has_one_spelling() {
        let id = TaskId::mint();
        assert_eq!(TaskId::parse(&id.to_string()), Some(id));
        assert_eq!(TaskId::parse(&id.to_string().to_uppercase()), None);
        assert_eq!(TaskId::parse(&id.to_string().replace('-', "")), None);
    }
}
