//! How far work may be handed on: depth, circles, how many calls a task makes, a deadline, and a budget of calls for all of it.
//!
//! The guard is asked before any call, be it to an agent of this installation or to a remote, and what it refuses is an error that the calling
//! agent can answer. What it knows travels with the task. **The budget is kept without asking anybody:** a call costs one, and gives half of
//! what is left to the one called, so that all calls that come of a task, wherever they are made, are no more than its budget.
//!
//! Another Switchboard that is known as one is told all of it in the metadata of the request. That does not reach every remote: some are told
//! nothing beside the text, and of some no card is known. So the id of each message that is sent to a remote says how deep the work is and how
//! many calls are left ([`message_id`]). A message needs an id in every binding and dialect, and it arrives under whatever URL is called.
//!
//! A relay that gives messages new ids may pass `traceparent` on. The span in it says the same to the installation that made it ([`span`]).
//! The trace alone says nothing: an honest caller sends any number of messages in one trace.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use store::{TenantId, clock};
use tokio::time::Instant;

use crate::{convert, page_token::Key};

/// The longest chain that is read from a caller, and the longest name in it.
const LONGEST_CHAIN: usize = 64;
const LONGEST_NAME: usize = 128;

/// Stands between the begin of a message id and what it says about the delegation.
const TELLS: char = '~';
/// Number of hexadecimal digits of a mark in a message id.
const MARK: usize = 12;
/// Maximum number of marks in a message id. The agents that were called last have theirs in it.
const MOST_MARKS: usize = 8;

/// Number of bits of a span for the logarithm of the number of calls, and for what sets it apart from other spans.
const CALLS: u32 = 5;
const UNIQUE: u32 = 21;

/// How far work may be handed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DelegationLimits {
    /// How many agents may stand behind each other.
    pub depth: u32,
    /// How many calls one turn may make.
    pub fan_out: u32,
    /// How many calls may come of one task in all.
    pub calls: u32,
    /// How long what is handed on may take.
    pub time: Option<Duration>,
}

impl Default for DelegationLimits {
    fn default() -> Self {
        Self { depth: 8, fan_out: 32, calls: 1000, time: None }
    }
}

/// How far a task has been handed on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Delegation {
    /// How many agents stand before it.
    pub depth: u32,
    /// Who they are, the first one first: `INSTALLATION/AGENT`.
    pub chain: Vec<String>,
    /// Until when its caller waits.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Deadline>,
    /// How many calls may come of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<u32>,
}

/// A moment of this process's steady clock. No wall clock that is set moves it.
///
/// Another installation is told the time that is left (`remaining`, in milliseconds), which does not depend on anybody's clock. Older
/// versions know only a moment of the sender's wall clock (`deadline`, in milliseconds since 1970). It is sent beside that, and turned into
/// the time that is left when it arrives. In the journal it stands by the store's clock, see [`Origin`](crate::Origin).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "Told", try_from = "Told")]
pub struct Deadline(Instant);

/// A deadline as one installation tells it to another.
#[derive(Serialize, Deserialize)]
struct Told {
    #[serde(default)]
    deadline: Option<i64>,
    #[serde(default)]
    remaining: Option<u64>,
}

/// The longest time to a deadline. Clocks cannot count on for ever.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);

impl Deadline {
    /// So long from now.
    pub fn after(left: Duration) -> Self {
        Self(Instant::now() + left.min(LONGEST))
    }

    /// How long until it has come.
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

impl From<Deadline> for Told {
    fn from(deadline: Deadline) -> Self {
        let left = u64::try_from(deadline.left().as_millis()).unwrap_or(u64::MAX);
        let at = clock::now().as_millis().saturating_add(i64::try_from(left).unwrap_or(i64::MAX));
        Self { deadline: Some(at), remaining: Some(left) }
    }
}

impl TryFrom<Told> for Deadline {
    type Error = &'static str;

    fn try_from(told: Told) -> Result<Self, Self::Error> {
        let by_wall_clock = |at: i64| u64::try_from(at.saturating_sub(clock::now().as_millis())).unwrap_or(0);
        let left = told.remaining.or_else(|| told.deadline.map(by_wall_clock)).ok_or("there is no deadline")?;
        Ok(Self::after(Duration::from_millis(left)))
    }
}

/// Why work is not handed on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Too many stand behind each other.
    #[error("delegation refused: {depth} agents deep, and {limit} is the limit")]
    TooDeep {
        /// How many.
        depth: u32,
        /// How many may.
        limit: u32,
    },
    /// The agent waits for itself.
    #[error("delegation refused: a circle, `{agent}` is at work on this already")]
    Circle {
        /// Which.
        agent: String,
    },
    /// The turn has made enough calls.
    #[error("delegation refused: this turn has made {limit} calls, which is the limit")]
    FanOut {
        /// How many it may make.
        limit: u32,
    },
    /// All that belongs to the task has made enough calls.
    #[error("delegation refused: the budget of calls is used up")]
    Budget,
    /// Nobody waits any more.
    #[error("delegation refused: the deadline has passed")]
    Late,
}

/// What a turn may hand on, and has handed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    limits: DelegationLimits,
    me: String,
    from: Delegation,
    made: u32,
    left: u32,
}

impl Delegation {
    /// Nobody has handed it on.
    pub(crate) fn is_first(&self) -> bool {
        *self == Self::default()
    }

    /// What a caller says of it, within bounds.
    pub(crate) fn bounded(mut said: Self) -> Self {
        said.chain.truncate(LONGEST_CHAIN);
        said.chain.retain(|name| name.len() <= LONGEST_NAME);
        said.depth = said.depth.max(u32::try_from(said.chain.len()).unwrap_or(u32::MAX));
        said
    }

    /// Takes over what another source says about the same work. The stricter of the two counts.
    pub(crate) fn join(&mut self, other: Self) {
        self.depth = self.depth.max(other.depth);
        self.deadline = self.deadline.into_iter().chain(other.deadline).min();
        self.calls = self.calls.into_iter().chain(other.calls).min();
        let room = LONGEST_CHAIN.saturating_sub(self.chain.len());
        let fresh: Vec<String> = other.chain.into_iter().filter(|name| !self.chain.contains(name)).collect();
        self.chain.extend(fresh.into_iter().take(room));
        self.depth = self.depth.max(u32::try_from(self.chain.len()).unwrap_or(u32::MAX));
    }

    /// What the id of a message says about its delegation; `None` for an id that says nothing. `own` are the agents of this installation, as
    /// `INSTALLATION/AGENT`. They are only asked for when the id has marks, and those whose mark it has are the chain.
    pub(crate) fn of_message<I: IntoIterator<Item = String>>(id: &str, own: impl FnOnce() -> I) -> Option<Self> {
        let (base, told) = id.rsplit_once(TELLS)?;
        let mut told = told.splitn(3, '.');
        let depth = told.next()?.parse().ok()?;
        let calls = told.next()?.parse().ok()?;
        let marks = told.next()?;
        if !marks.is_ascii() || marks.len() % MARK != 0 || marks.len() / MARK > MOST_MARKS {
            return None;
        }
        let mut chain = Vec::new();
        if !marks.is_empty() {
            let own: Vec<(String, String)> = own().into_iter().map(|name| (mark(base, &name), name)).collect();
            for at in (0..marks.len()).step_by(MARK) {
                let is_it = |(mark, _): &&(String, String)| marks[at..at + MARK] == *mark;
                chain.extend(own.iter().find(is_it).map(|(_, name)| name.clone()));
            }
        }
        Some(Self::bounded(Self { depth, chain, deadline: None, calls: Some(calls) }))
    }

    /// What a span says about the delegation of the message that was sent with it, if it is one of this installation's.
    pub(crate) fn of_span(key: &Key, trace: &str, span: &str) -> Option<Self> {
        let span = u64::from_str_radix(span, 16).ok()?.to_be_bytes();
        let (said, seal) = span.split_first_chunk::<4>()?;
        if seal_span(key, trace, *said) != seal {
            return None;
        }
        let said = u32::from_be_bytes(*said) >> UNIQUE;
        let calls = 2_u32.pow(said & (2_u32.pow(CALLS) - 1)) - 1;
        Some(Self { depth: (said >> CALLS) + 1, calls: Some(calls), ..Self::default() })
    }

    /// How long until its deadline.
    pub fn time_left(&self) -> Option<Duration> {
        self.deadline.map(Deadline::left)
    }
}

/// The id of a message that goes to a remote: `base`, which no other message has, and what the remote's work may cost. `base~1.499.MARKS` is
/// work that is one agent deep, with 499 calls left.
///
/// The agents that stand before it have a mark each: a digest of their names and of `base`. An installation recognizes its own agents by them.
/// To everybody else they are random, and no two messages have the same.
pub fn message_id(base: &str, delegation: &Delegation) -> String {
    let Delegation { depth, chain, calls, .. } = delegation;
    let last = &chain[chain.len().saturating_sub(MOST_MARKS)..];
    let marks: String = last.iter().map(|name| mark(base, name)).collect();
    format!("{base}{TELLS}{depth}.{}.{marks}", calls.unwrap_or(u32::MAX))
}

/// The span of a turn in a `traceparent`, by which the installation recognizes work that comes back. `turn` is what no other turn has.
///
/// The first half says the depth less one (6 bits, enough for the largest `delegation.depth`), the logarithm of the number of calls that are
/// left, and some bits of a digest of `turn`. The second half is a keyed digest of the first and of the trace: one of 2³² foreign spans passes
/// for one of these. The number of calls is rounded down to one less than a power of two. A call costs one and takes half of the rest, which
/// keeps that form, so only the first number is rounded.
pub(crate) fn span(key: &Key, trace: &str, turn: &str, delegation: &Delegation) -> String {
    let depth = delegation.depth.saturating_sub(1).min(63);
    let calls = delegation.calls.unwrap_or(u32::MAX).saturating_add(1).ilog2();
    let [.., a, b, c, d] = convert::digest(&[turn.as_bytes()]);
    let unique = u32::from_be_bytes([a, b, c, d]) >> (u32::BITS - UNIQUE);
    let said = (((depth << CALLS) | calls) << UNIQUE) | unique;
    let seal = u32::from_be_bytes(seal_span(key, trace, said.to_be_bytes()));
    format!("{said:08x}{seal:08x}")
}

fn seal_span(key: &Key, trace: &str, said: [u8; 4]) -> [u8; 4] {
    let purpose = convert::digest(&[b"a span of a turn"]);
    // Work may come back by way of another tenant.
    let [a, b, c, d, ..] = key.mac(TenantId(0), &purpose, &[trace.as_bytes(), &said].concat());
    [a, b, c, d]
}

fn mark(base: &str, name: &str) -> String {
    let digest = Sha256::digest(format!("{base}\0{name}"));
    digest.iter().take(MARK / 2).map(|byte| format!("{byte:02x}")).collect()
}

/// Of a turn that nobody handed on, with the usual limits.
impl Default for Ledger {
    fn default() -> Self {
        Self::new(DelegationLimits::default(), String::new(), Delegation::default())
    }
}

impl Ledger {
    /// What an agent, `INSTALLATION/AGENT`, may hand on of a task that came so far.
    pub fn new(limits: DelegationLimits, me: String, from: Delegation) -> Self {
        let left = from.calls.map_or(limits.calls, |given| given.min(limits.calls));
        Self { limits, me, from, made: 0, left }
    }

    /// Goes on after a crash: so many calls were made.
    pub fn resume(&mut self, made: u32) {
        for _ in self.made..made {
            self.spend();
        }
    }

    /// How many calls were made.
    pub fn made(&self) -> u32 {
        self.made
    }

    /// Asks for a call. `to` is an agent of this installation, as `INSTALLATION/AGENT`, if it is one. Gives what the one called is told.
    pub fn delegate(&mut self, to: Option<&str>) -> Result<Delegation, Refusal> {
        let depth = self.from.depth.saturating_add(1);
        if depth > self.limits.depth {
            return Err(Refusal::TooDeep { depth, limit: self.limits.depth });
        }
        let at_work = |name: &str| self.from.chain.iter().any(|before| before == name);
        if at_work(&self.me) {
            return Err(Refusal::Circle { agent: self.me.clone() });
        }
        if let Some(to) = to.filter(|to| *to == self.me || at_work(to)) {
            return Err(Refusal::Circle { agent: to.to_owned() });
        }
        if self.from.time_left().is_some_and(|left| left.is_zero()) {
            return Err(Refusal::Late);
        }
        if self.made >= self.limits.fan_out {
            return Err(Refusal::FanOut { limit: self.limits.fan_out });
        }
        if self.left == 0 {
            return Err(Refusal::Budget);
        }
        let calls = self.spend();
        let mut chain = self.from.chain.clone();
        chain.push(self.me.clone());
        let own = self.limits.time.map(Deadline::after);
        let deadline = self.from.deadline.into_iter().chain(own).min();
        Ok(Delegation { depth, chain, deadline, calls: Some(calls) })
    }

    /// Counts a call. Gives how many the one called may cause.
    fn spend(&mut self) -> u32 {
        self.made += 1;
        let rest = self.left.saturating_sub(1);
        let given = rest / 2;
        self.left = rest - given;
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(from: Delegation) -> Ledger {
        Ledger::new(DelegationLimits::default(), "here/me".to_owned(), from)
    }

    #[test]
    fn work_is_handed_on_only_so_deep() {
        let mut from = Delegation::default();
        for depth in 1..=8 {
            from = Ledger::new(DelegationLimits::default(), format!("here/{depth}"), from).delegate(None).unwrap();
            assert_eq!(from.depth, depth);
        }
        assert_eq!(ledger(from).delegate(None), Err(Refusal::TooDeep { depth: 9, limit: 8 }));
        let liar = Delegation { depth: u32::MAX, ..Delegation::default() };
        assert!(matches!(ledger(liar).delegate(None), Err(Refusal::TooDeep { .. })));
    }

    #[test]
    fn nobody_waits_for_itself() {
        let chain = vec!["here/first".to_owned(), "there/me".to_owned()];
        let from = Delegation { chain, ..Delegation::default() };
        assert!(ledger(from.clone()).delegate(Some("here/other")).is_ok(), "the same name elsewhere is another");
        for circle in ["here/first", "here/me"] {
            let refused = ledger(from.clone()).delegate(Some(circle));
            assert_eq!(refused, Err(Refusal::Circle { agent: circle.to_owned() }));
        }
        let again = Delegation { chain: vec!["here/me".to_owned()], ..Delegation::default() };
        assert!(matches!(ledger(again).delegate(None), Err(Refusal::Circle { .. })), "it came back from elsewhere");
    }

    #[test]
    fn a_turn_makes_only_so_many_calls() {
        let limits = DelegationLimits { fan_out: 2, ..DelegationLimits::default() };
        let mut ledger = Ledger::new(limits, "here/me".to_owned(), Delegation::default());
        assert!(ledger.delegate(None).is_ok());
        let mut resumed = Ledger::new(limits, "here/me".to_owned(), Delegation::default());
        resumed.resume(ledger.made());
        assert_eq!(resumed, ledger, "also over a crash");
        assert!(ledger.delegate(None).is_ok());
        assert_eq!(ledger.delegate(None), Err(Refusal::FanOut { limit: 2 }));
    }

    /// Makes every call that is allowed, and so does everyone called.
    fn exhaust(limits: DelegationLimits, me: u32, from: Delegation) -> u32 {
        let mut ledger = Ledger::new(limits, format!("here/{me}"), from);
        let mut calls = 0;
        while let Ok(child) = ledger.delegate(None) {
            calls += 1 + exhaust(limits, me + 1, child);
        }
        calls
    }

    #[test]
    fn all_calls_together_are_no_more_than_the_budget() {
        for calls in [0, 1, 2, 3, 10, 64, 1000] {
            let limits = DelegationLimits { calls, depth: 100, fan_out: 1000, time: None };
            assert_eq!(exhaust(limits, 0, Delegation::default()), calls, "all of it can be used");
        }
        let mut poor = ledger(Delegation { calls: Some(1), ..Delegation::default() });
        assert_eq!(poor.delegate(None).unwrap().calls, Some(0));
        assert_eq!(poor.delegate(None), Err(Refusal::Budget));
    }

    #[test]
    fn a_deadline_only_comes_nearer() {
        let soon = Deadline::after(Duration::from_secs(10));
        let from = Delegation { deadline: Some(soon), ..Delegation::default() };
        let limits = |time| DelegationLimits { time: Some(time), ..DelegationLimits::default() };
        let deadline = |time: u64, from: &Delegation| {
            let mut ledger = Ledger::new(limits(Duration::from_secs(time)), "here/me".to_owned(), from.clone());
            ledger.delegate(None).unwrap().deadline.unwrap()
        };
        assert_eq!(deadline(3600, &from), soon);
        assert!(deadline(1, &from) < soon);
        let late = Delegation { deadline: Some(Deadline::after(Duration::ZERO)), ..Delegation::default() };
        assert_eq!(ledger(late).delegate(None), Err(Refusal::Late));
    }

    #[test]
    fn no_wall_clock_moves_a_deadline() {
        let told = |from: &Delegation| serde_json::to_value(from).unwrap();
        let heard = |told: serde_json::Value| serde_json::from_value::<Delegation>(told).unwrap();
        let hour = Duration::from_secs(3600);
        let is_hour =
            |left: Option<Duration>| left.is_some_and(|left| left <= hour && left + Duration::from_secs(60) > hour);
        let given = Delegation { depth: 1, deadline: Some(Deadline::after(hour)), ..Delegation::default() };
        let on_the_wire = told(&given);
        let only_wall = serde_json::json!({ "depth": 1, "deadline": on_the_wire["deadline"] });
        let from_older = heard(only_wall);
        clock::bend(Some(|millis| millis + 25 * 3_600_000));
        assert!(is_hour(given.time_left()), "here: {:?}", given.time_left());
        assert!(is_hour(heard(on_the_wire).time_left()), "at another installation, whose clock differs");
        assert!(is_hour(from_older.time_left()), "once it has arrived: {:?}", from_older.time_left());
        clock::bend(None);
        assert_eq!(heard(serde_json::json!({ "depth": 1 })).deadline, None);
        assert_eq!(
            told(&Delegation { depth: 1, ..Delegation::default() }),
            serde_json::json!({ "depth": 1, "chain": [] })
        );
    }

    #[test]
    fn the_id_of_a_message_says_how_far_it_was_handed_on() {
        let given = ledger(Delegation::default()).delegate(None).unwrap();
        let id = message_id("m-1", &given);
        let own = || ["here/other", "here/me"].map(str::to_owned);
        let told = Delegation::of_message(&id, own).unwrap();
        assert_eq!((told.depth, told.calls), (1, Some(499)));
        assert_eq!(told.chain, ["here/me"], "the installation knows its own agents");
        assert_eq!(ledger(told).delegate(None), Err(Refusal::Circle { agent: "here/me".to_owned() }));
        let elsewhere = Delegation::of_message(&id, || ["there/me".to_owned()]).unwrap();
        assert_eq!((elsewhere.depth, elsewhere.chain.len()), (1, 0));
        assert!(!id.contains("here") && !id.contains("me"), "it names nobody: {id}");
        assert_ne!(mark("m-1", "here/me"), mark("m-2", "here/me"), "two messages have nothing in common");
        let deep = Delegation { depth: 12, chain: (0..12).map(|n| format!("here/{n}")).collect(), ..given };
        let id = message_id("m-1", &deep);
        assert!(id.len() < 128, "{id}");
        let told = Delegation::of_message(&id, || (0..12).map(|n| format!("here/{n}"))).unwrap();
        assert_eq!((told.depth, told.chain.len(), told.chain[0].as_str()), (12, 8, "here/4"));
    }

    #[test]
    fn an_id_of_somebody_elses_says_nothing() {
        for id in [
            "",
            "m-1",
            "a~b",
            "a~1",
            "a~1.2",
            "a~x.2.",
            "a~1.x.",
            "a~-1.2.",
            "a~1.2.abc",
            "a~1.2.öööööö",
            "a~9999999999.1.",
        ] {
            assert_eq!(Delegation::of_message(id, || [String::from("here/me")]), None, "{id}");
        }
        let many = format!("a~1.2.{}", "0".repeat(MARK * (MOST_MARKS + 1)));
        assert_eq!(Delegation::of_message(&many, Vec::new), None);
        assert_eq!(Delegation::of_message("a~b~3.7.", Vec::new).unwrap().depth, 3);
    }

    #[test]
    fn of_two_sources_the_stricter_counts() {
        let deadline = Some(Deadline::after(Duration::from_secs(9)));
        let mut one = Delegation { depth: 1, chain: vec!["a/b".to_owned()], deadline, calls: None };
        let other =
            Delegation { depth: 3, chain: vec!["a/b".to_owned(), "c/d".to_owned()], deadline: None, calls: Some(7) };
        one.join(other);
        let chain = vec!["a/b".to_owned(), "c/d".to_owned()];
        assert_eq!(one, Delegation { depth: 3, chain, deadline, calls: Some(7) });
    }

    #[test]
    fn what_a_caller_says_is_bounded() {
        let chain = vec!["x".repeat(200); 3].into_iter().chain(vec!["a/b".to_owned(); 100]).collect();
        let bounded = Delegation::bounded(Delegation { chain, ..Delegation::default() });
        assert_eq!(bounded.chain.len(), 61);
        assert_eq!(bounded.depth, 61, "nobody is less deep than the chain is long");
    }

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    #[test]
    fn a_span_is_recognized_where_it_was_made_and_nowhere_else() {
        let (key, other) = (Key([7; 32]), Key([8; 32]));
        for (depth, calls, left) in [(1, 499, 255), (64, 1, 1), (8, 0, 0), (2, 63, 63), (3, 1_000_000, 524_287)] {
            let given = Delegation { depth, calls: Some(calls), ..Delegation::default() };
            let made = span(&key, TRACE, "task 1", &given);
            assert_eq!(made.len(), 16);
            let known = Delegation { depth, calls: Some(left), ..Delegation::default() };
            assert_eq!(Delegation::of_span(&key, TRACE, &made), Some(known), "{calls}");
            assert_eq!(Delegation::of_span(&other, TRACE, &made), None, "another installation");
            assert_eq!(Delegation::of_span(&key, &TRACE.replace('0', "1"), &made), None, "another trace");
            assert_eq!(span(&key, TRACE, "task 1", &given), made, "retries link");
            assert_ne!(span(&key, TRACE, "task 2", &given), made);
            for at in 0..16 {
                let digit = if &made[at..=at] == "0" { "1" } else { "0" };
                let changed = format!("{}{digit}{}", &made[..at], &made[at + 1..]);
                assert_eq!(Delegation::of_span(&key, TRACE, &changed), None, "{changed}");
            }
        }
    }

    #[test]
    fn calls_of_work_that_is_known_by_its_span_alone_are_no_more_than_the_budget() {
        fn exhaust(key: &Key, limits: DelegationLimits, me: u32, from: Delegation) -> u32 {
            let mut ledger = Ledger::new(limits, format!("here/{me}"), from);
            let mut calls = 0;
            while let Ok(child) = ledger.delegate(None) {
                let back = Delegation::of_span(key, TRACE, &span(key, TRACE, "task", &child)).unwrap();
                calls += 1 + exhaust(key, limits, me + 1, back);
            }
            calls
        }
        for calls in [0, 1, 2, 7, 64] {
            let limits = DelegationLimits { calls, depth: 64, fan_out: 1000, time: None };
            let made = exhaust(&Key([7; 32]), limits, 0, Delegation::default());
            assert!(made <= calls && made >= calls / 2, "{made} of {calls}");
        }
    }
}
