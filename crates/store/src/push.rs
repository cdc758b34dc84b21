//! Notifications that are owed. A task's log is gapless, so a configuration is its own outbox: a cursor over the log, in
//! one row that can be leased. Nothing of the log is copied.
//!
//! **What is owed.** `owed` is the last event of the log that the configuration may have to tell of, written in the transaction
//! that logs it, and `seq` with `part` is how far it has told. A task knows how many configurations it has, so a task without any
//! writes nothing here. A configuration is told of what was logged after it was made.
//!
//! **The lease** is that of [`crate::lease`], with two differences. Whoever tells somebody outside cannot be fenced
//! there, so a holder begins no attempt that might last longer than its lease (see [`PushLease`]), keeps the lease by settling, and one
//! that has run out is taken over without a last call, by its own instance too. What that costs is a notification that comes twice. (A process that is
//! stopped in the middle of an attempt and goes on after its lease may tell it after a later one. Nothing can be done about that here; the
//! receiver knows it by its id.)
//! Whatever else changes the row, a new address or a replay, raises the generation and leaves the lease its holder and its time: that one settles nothing any more,
//! and nobody tells beside it. The first generation is a number of chance, so that one that was removed and made again is not mistaken for itself.
//!
//! **Fairness.** Claims go over pairs of tenant and receiver, so that one that does not answer delays neither
//! another tenant nor another receiver of the same tenant. A claim visits only so many pairs and the next one goes on from there, round
//! and round: a tenant that has webhooks at a hundred thousand names makes the round longer, not the claim.

use std::time::Duration;

use a2a::{Dialect, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{LeaseTime, Result, TaskId, TenantId, Term, codec, lease};

/// How many configurations a task may have.
pub const MOST_CONFIGS: u32 = 10;

/// How many dead letters a configuration keeps. Behind the last of them it stops, and what it owes waits in the log.
pub const MOST_LETTERS: usize = 100;

/// How many pairs of tenant and receiver one claim visits.
pub const VISITS: usize = 500;

/// How many attempts are remembered of a configuration.
const MOST_ATTEMPTS: usize = 50;

/// A configuration to make, or to put in the place of the one with the same id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPush {
    /// Its name in the task.
    pub id: String,
    /// Where to tell.
    pub url: String,
    /// The host and port of that: what is slow or dead together.
    pub receiver: String,
    /// The HTTP authentication scheme; empty for none.
    pub scheme: String,
    /// What nobody may read here: sealed by whoever gave it. Empty when there is nothing to hide.
    pub sealed: Vec<u8>,
    /// The generation of the protocol in which it is told.
    pub dialect: Dialect,
    /// Every chunk of an artifact is told, and not the whole when it is finished.
    pub chunks: bool,
}

/// A configuration, and how far it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushConfig {
    /// Of which task.
    pub task: TaskId,
    /// Whose.
    pub tenant: TenantId,
    /// What it is.
    pub config: NewPush,
    /// Since when.
    pub created_at: Timestamp,
    /// How far it has told.
    pub told: Place,
    /// The last event that it may have to tell of.
    pub owed: u64,
    /// Whether it tells at all.
    pub state: PushState,
    /// How often the next notification was tried.
    pub attempt: u32,
    /// When it is tried next, or when its holder's time is over; none when nothing is owed.
    pub due: Option<LeaseTime>,
    /// What happened to it.
    pub record: PushRecord,
}

/// A place in what a configuration tells. Most events are told by one notification; some need several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The event.
    pub seq: u64,
    /// The last of its notifications that was told, from 1; all of them when it is zero.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub part: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// Whether a configuration tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PushState {
    /// It does.
    #[default]
    Active = 0,
    /// Its receiver has said that it is gone.
    Gone = 1,
    /// It has as many dead letters as it may have.
    Stopped = 2,
}

impl PushState {
    /// As it is stored.
    pub(crate) fn from_code(code: i64) -> Self {
        match code {
            0 => Self::Active,
            1 => Self::Gone,
            _ => Self::Stopped,
        }
    }
}

/// What happened to a configuration: what was given up, and the last attempts. It holds nothing of what was told or
/// answered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushRecord {
    /// Notifications that were given up, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub letters: Vec<Letter>,
    /// The last attempts, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
}

/// A notification that was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// Which.
    #[serde(flatten)]
    pub place: Place,
    /// When, in milliseconds since 1970.
    pub at: i64,
    /// After how many attempts.
    pub attempts: u32,
    /// What the last one came to.
    pub outcome: String,
    /// Somebody wants it to be sent again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replay: bool,
}

/// An attempt to tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Of which notification.
    #[serde(flatten)]
    pub place: Place,
    /// When it began, in milliseconds since 1970.
    pub at: i64,
    /// How long it took, in milliseconds.
    pub ms: u64,
    /// The HTTP status, if there was an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What it came to, in a word or two.
    pub outcome: String,
}

/// The right to tell. Whoever has it begins nothing that might end after `until` of its own clock: what was asked for is
/// counted from before it was asked, so that the store's time is never earlier.
#[derive(Debug, Clone)]
pub struct PushLease {
    /// What is to be told, as of the claim.
    pub config: PushConfig,
    /// For whom and how long.
    pub term: Term,
    /// Grows with each lease.
    pub generation: u64,
}

/// A wish for configurations that are due.
#[derive(Debug, Clone)]
pub struct PushClaim {
    /// On whose behalf, and for how long.
    pub term: Term,
    /// How many in all.
    pub slots: usize,
    /// How many of one tenant may be held at once, those in `busy` included.
    pub per_tenant: usize,
    /// The same for one receiver of a tenant.
    pub per_receiver: usize,
    /// Whom the claimer is telling now, each as often as it does.
    pub busy: Vec<(TenantId, String)>,
    /// Who has not answered of late: such receivers have one place each, and half of their tenant's together.
    pub silent: Vec<(TenantId, String)>,
    /// The pair that was visited last: the next one is first in line.
    pub after: Option<(TenantId, String)>,
}

/// What a claim found.
#[derive(Debug, Clone, Default)]
pub struct Claimed {
    /// What the claimer may tell.
    pub leases: Vec<PushLease>,
    /// The pair that was visited last, for the next claim.
    pub after: Option<(TenantId, String)>,
    /// Every pair was visited: what is due and was not leased has no room.
    pub is_round: bool,
}

/// What became of a lease's time: where the configuration stands, and what follows.
#[derive(Debug, Clone)]
pub struct Settlement {
    /// How far it has told.
    pub told: Place,
    /// Whether it goes on telling.
    pub state: PushState,
    /// How often the next notification was tried.
    pub attempt: u32,
    /// What happened to it.
    pub record: PushRecord,
    /// What follows.
    pub next: Next,
}

/// What follows a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Its holder goes on, for a lease's time from now.
    Keep,
    /// It is given back, and is due again after this.
    After(Duration),
    /// It is given back, and is due when something is owed beyond what it has told.
    Idle,
    /// It is given back, and not due before somebody says so.
    Rest,
}

/// Which configurations of a tenant to list.
#[derive(Debug, Clone, Default)]
pub struct PushFilter {
    /// Of this task only.
    pub task: Option<TaskId>,
    /// Only those that have dead letters or do not tell any more.
    pub troubled: bool,
    /// Those after this one.
    pub after: Option<(TaskId, String)>,
    /// At most so many.
    pub limit: usize,
}

/// Which dead letters to send again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// All of them.
    All,
    /// Those of this event.
    Event(u64),
}

impl NewPush {
    /// A first generation.
    pub(crate) fn first_generation() -> i64 {
        // Away from either end: it is counted on.
        codec::signed(uuid::Uuid::new_v4().as_u64_pair().0 >> 4)
    }

    /// How many bytes it takes, about.
    pub(crate) fn size(&self) -> usize {
        self.id.len() + self.url.len() + self.receiver.len() + self.scheme.len() + self.sealed.len()
    }
}

impl PushConfig {
    /// Whether somebody should look at it.
    pub fn is_troubled(&self) -> bool {
        !self.record.letters.is_empty() || self.state != PushState::Active
    }

    /// Marks dead letters as wanted again. Says how many there were.
    pub(crate) fn replay(&mut self, which: Replay) -> usize {
        let mut replayed = 0;
        for letter in &mut self.record.letters {
            if which == Replay::All || which == Replay::Event(letter.place.seq) {
                letter.replay = true;
                replayed += 1;
            }
        }
        replayed
    }
}

impl PushRecord {
    /// Remembers an attempt, and forgets the oldest.
    pub fn remember(&mut self, attempt: Attempt) {
        self.attempts.push(attempt);
        let beyond = self.attempts.len().saturating_sub(MOST_ATTEMPTS);
        self.attempts.drain(..beyond);
    }

    /// As it is stored.
    pub(crate) fn encode(&self) -> Result<String> {
        Ok(serde_json::to_string(self)?)
    }

    /// As it was stored. What cannot be read is no reason not to tell.
    pub(crate) fn decode(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_else(|error| {
            tracing::error!(%error, "the record of a push configuration cannot be read and begins anew");
            Self::default()
        })
    }
}

/// As it stands in `push_configs.dialect`.
pub(crate) fn dialect_code(dialect: Dialect) -> i64 {
    match dialect {
        Dialect::V1 => 1,
        Dialect::V03 => 3,
    }
}

pub(crate) fn parse_dialect(code: i64) -> Dialect {
    if code == 3 { Dialect::V03 } else { Dialect::V1 }
}

impl PushClaim {
    /// How much each pair of tenant and receiver gets, of those that have something due: the tenants in line, one of
    /// each in turn, and of each its receivers in turn.
    pub(crate) fn shares(&self, due: Vec<(TenantId, String)>) -> Vec<(TenantId, String, usize)> {
        let mut tenants: Vec<TenantId> = due.iter().map(|(tenant, _)| *tenant).collect();
        tenants.sort_unstable();
        tenants.dedup();
        let held = |wanted: TenantId| self.busy.iter().filter(|(tenant, _)| *tenant == wanted).count();
        let mut lines = Vec::new();
        for tenant in lease::in_line(tenants, self.after.as_ref().map(|(tenant, _)| *tenant)) {
            let receivers: Vec<&String> = due.iter().filter(|(of, _)| *of == tenant).map(|(_, to)| to).collect();
            let is_silent = |to: &String| self.silent.iter().any(|(of, other)| *of == tenant && other == to);
            let waits = self.busy.iter().filter(|(of, to)| *of == tenant && is_silent(to)).count();
            let mut for_silent = (self.per_tenant / 2).max(1).saturating_sub(waits);
            let mut room = Vec::new();
            for to in &receivers {
                let busy = self.busy.iter().filter(|(of, other)| *of == tenant && other == *to).count();
                if is_silent(to) {
                    let one = usize::from(busy == 0 && for_silent > 0);
                    for_silent -= one;
                    room.push(one);
                } else {
                    room.push(self.per_receiver.saturating_sub(busy));
                }
            }
            let shares = lease::share(self.per_tenant.saturating_sub(held(tenant)), &room);
            // One place of the line for each that may be taken, the receivers in turn.
            let each = receivers.into_iter().zip(shares).map(|(to, share)| vec![(tenant, to.clone()); share]);
            lines.push(lease::one_by_one(each.collect()));
        }
        let mut shares: Vec<(TenantId, String, usize)> = Vec::new();
        for (tenant, to) in lease::one_by_one(lines).into_iter().take(self.slots) {
            match shares.iter_mut().find(|(of, known, _)| *of == tenant && *known == to) {
                Some((.., share)) => *share += 1,
                None => shares.push((tenant, to, 1)),
            }
        }
        shares
    }
}

/// What a claim has visited.
pub(crate) struct Visited {
    /// The pairs that have something due.
    pub(crate) due: Vec<(TenantId, String)>,
    /// The last one, if there are more.
    pub(crate) last: Option<(TenantId, String)>,
    /// These were all there are.
    pub(crate) is_round: bool,
}

/// What a store reads of a configuration's row, in whatever order.
pub(crate) struct PushColumns {
    pub(crate) tenant: i64,
    pub(crate) id: String,
    pub(crate) url: String,
    pub(crate) receiver: String,
    pub(crate) scheme: String,
    pub(crate) sealed: Vec<u8>,
    pub(crate) dialect: i64,
    pub(crate) chunks: bool,
    pub(crate) created_at: i64,
    pub(crate) seq: i64,
    pub(crate) part: i64,
    pub(crate) owed: i64,
    pub(crate) state: i64,
    pub(crate) attempt: i64,
    pub(crate) due_at: Option<i64>,
    pub(crate) record: String,
}

impl PushColumns {
    /// Their names, in the order in which stores read them; the task and the generation stand before.
    pub(crate) const NAMES: &str = "tenant_id, config_id, url, receiver, scheme, sealed, dialect, chunks, created_at, seq, part, \
         owed, state, attempt, due_at, record";

    pub(crate) fn config(self, task: TaskId) -> PushConfig {
        PushConfig {
            task,
            tenant: TenantId(self.tenant),
            config: NewPush {
                id: self.id,
                url: self.url,
                receiver: self.receiver,
                scheme: self.scheme,
                sealed: self.sealed,
                dialect: parse_dialect(self.dialect),
                chunks: self.chunks,
            },
            created_at: codec::time(self.created_at),
            told: Place { seq: codec::unsigned(self.seq), part: codec::small(self.part) },
            owed: codec::unsigned(self.owed),
            state: PushState::from_code(self.state),
            attempt: codec::small(self.attempt),
            due: self.due_at.map(LeaseTime),
            record: PushRecord::decode(&self.record),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_the_newest_attempts_and_no_more() {
        let mut record = PushRecord::default();
        for seq in 1..=70 {
            let place = Place { seq, part: 0 };
            record.remember(Attempt { place, at: 0, ms: 0, status: Some(500), outcome: "put off".into() });
        }
        let remembered: Vec<u64> = record.attempts.iter().map(|attempt| attempt.place.seq).collect();
        assert_eq!(remembered, (21..=70).collect::<Vec<_>>());
    }
}
