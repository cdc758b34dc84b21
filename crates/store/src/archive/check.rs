//! What a record has to hold before it is written: whoever made the archive may mean no good.
//!
//! The database would take more than this: numbers that no task ever has, bodies that end a frame of a stream where they are
//! spliced in, records of tenants that do not exist. What is refused here is refused with its line, and nothing is kept.

use std::{collections::HashSet, ops::RangeInclusive};

use serde::de::IgnoredAny;

use super::record::{Record, Task};
use crate::{AgentId, TaskId, check_tenant_name, codec};

/// What is wrong with a record.
type Wrong = &'static str;

/// The last millisecond that a timestamp can say: the end of the year 9999.
const LAST: i64 = 253_402_300_799_999;

/// A count of something; PostgreSQL keeps some in 32 bits.
const COUNT: RangeInclusive<i64> = 0..=i32::MAX as i64;

/// What was seen so far that later records name.
#[derive(Default)]
pub(super) struct Checker {
    tenants: HashSet<i64>,
}

impl Checker {
    pub(super) fn check(&mut self, record: &Record) -> Result<(), Wrong> {
        match record {
            Record::Tenant(r) => {
                check_tenant_name(&r.name)?;
                is(r.id > 0 && time(r.created_at), RANGE)?;
                is(self.tenants.insert(r.id), "there is such a tenant already")
            }
            Record::Token(r) => {
                self.tenant(r.tenant)?;
                is(r.hash.0.len() == 32, "this is no hash of a token")?;
                is(COUNT.contains(&r.scopes), RANGE)?;
                is(r.id > 0 && time(r.created_at) && [r.expires, r.revoked_at, r.used_at].iter().all(optional), RANGE)
            }
            Record::Admin(r) => {
                is(r.hash.0.len() == 32, "this is no hash of a token")?;
                is(r.id > 0 && time(r.created_at) && [r.expires, r.revoked_at].iter().all(optional), RANGE)
            }
            Record::Setting(r) => is(!r.name.is_empty() && r.name.len() <= 256, "this is no name of a setting"),
            Record::Audit(r) => is(r.id > 0 && time(r.at), RANGE),
            Record::Task(r) => {
                self.tenant(r.tenant)?;
                agent(&r.agent)?;
                task(r)
            }
            Record::Message(r) => {
                task_id(&r.task)?;
                is(matches!(r.role.as_str(), "user" | "agent"), "this is no role")?;
                is(COUNT.contains(&r.turn) && time(r.created_at), RANGE)?;
                json(&r.body.0)
            }
            Record::Artifact(r) => {
                task_id(&r.task)?;
                is(COUNT.contains(&r.turn), RANGE)?;
                json(&r.body.0)
            }
            Record::Event(r) => {
                task_id(&r.task)?;
                is(r.seq > 0 && time(r.at), RANGE)?;
                let kind = codec::parse_kind(r.code).map_err(|_| "this is no kind of event")?;
                if kind.has_frame() { json(&r.body.0) } else { Ok(()) }
            }
            Record::Key(r) => {
                self.tenant(r.tenant)?;
                task_id(&r.task)?;
                is(r.key.0.len() == 32 && r.fingerprint.0.len() == 32, "this is no idempotency key")?;
                is(COUNT.contains(&r.turn), RANGE)
            }
            Record::Card(r) => {
                self.tenant(r.tenant)?;
                agent(&r.agent)?;
                is(time(r.updated_at), RANGE)?;
                json(&r.card.0)
            }
            Record::Push(r) => {
                self.tenant(r.tenant)?;
                task_id(&r.task)?;
                let counts = [r.dialect, r.part, r.state, r.attempt, r.letters];
                let numbers = [r.seq, r.owed, r.generation, r.bytes];
                is(counts.iter().all(|n| COUNT.contains(n)) && numbers.iter().all(|n| *n >= 0), RANGE)?;
                is(time(r.created_at), RANGE)
            }
            Record::Agent(r) => {
                self.tenant(r.tenant)?;
                agent(&r.id)?;
                is(time(r.created_at) && time(r.updated_at), RANGE)
            }
        }
    }

    fn tenant(&self, id: i64) -> Result<(), Wrong> {
        is(self.tenants.contains(&id), "there is no such tenant")
    }
}

const RANGE: Wrong = "a number is out of range";

fn task(r: &Task) -> Result<(), Wrong> {
    task_id(&r.id)?;
    codec::parse_state(&r.state).map_err(|_| "this is no state of a task")?;
    let counts = [r.status_turn, r.attempt, r.releases, r.turn, r.waiting];
    let numbers = [r.seq, r.generation, r.kept, r.kept_before, r.input_tokens, r.output_tokens];
    let flags = [(r.parking, 1), (r.queued, 1), (r.hidden, 2), (r.dead, 2), (r.aftermath, 4)];
    is(counts.iter().all(|n| COUNT.contains(n)) && numbers.iter().all(|n| *n >= 0), RANGE)?;
    is(flags.iter().all(|(flag, most)| (0..=*most).contains(flag)), RANGE)?;
    is(r.max_attempts.is_none_or(|most| COUNT.contains(&most)), RANGE)?;
    is(i32::try_from(r.priority).is_ok(), RANGE)?;
    is(time(r.created_at) && time(r.updated_at) && time(r.status_at), RANGE)?;
    for text in [&r.status_message, &r.origin, &r.errors].into_iter().flatten() {
        json(text.as_bytes())?;
    }
    Ok(())
}

fn is(holds: bool, otherwise: Wrong) -> Result<(), Wrong> {
    if holds { Ok(()) } else { Err(otherwise) }
}

fn time(millis: i64) -> bool {
    (0..=LAST).contains(&millis)
}

fn optional(millis: &Option<i64>) -> bool {
    millis.is_none_or(time)
}

fn task_id(text: &str) -> Result<(), Wrong> {
    is(TaskId::parse(text).is_some(), "this is no task id")
}

fn agent(text: &str) -> Result<(), Wrong> {
    is(text.parse::<AgentId>().is_ok(), "this is no agent id")
}

/// Bodies are spliced into answers and streams as they are: JSON on one line, and nothing else.
fn json(body: &[u8]) -> Result<(), Wrong> {
    let one_line = !body.iter().any(|byte| matches!(byte, b'\n' | b'\r'));
    is(one_line && serde_json::from_slice::<IgnoredAny>(body).is_ok(), "a body is not JSON on one line")
}
