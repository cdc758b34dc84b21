//! What turns keep: how far they have come, and what their agents go on from.
//!
//! A state that grows is kept once: an event that keeps it anew says which earlier event of its task it begins like, how far, and what
//! follows. A log only grows, so that what an event refers to is there for as long as the event is.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use store::{Error, Event, Journal, Result, TaskId, TenantId, fault};

use crate::scribe::Progress;

/// A state of fewer bytes in common with an earlier one is written anew.
const LEAST_SHARED: usize = 16 << 10;
/// What adds more than so much is what later states refer to.
const ADDS_MUCH: usize = 64 << 10;
/// The most events that a state is put together from.
const MOST_EVENTS: u32 = 16;

/// The first line of an event that keeps something. An older version that reads one which adds to another fails, and does not go on from
/// half a state.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Head {
    Adds { adds: Adds, progress: Progress },
    Whole(Progress),
}

/// The state that an event kept, as far as another one begins like it.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Adds {
    to: u64,
    length: usize,
}

/// What an event kept.
pub(crate) struct Kept {
    pub(crate) progress: Progress,
    pub(crate) state: Option<Bytes>,
    /// What later states may begin like.
    pub(crate) base: Option<Base>,
}

/// An event whose state others refer to.
#[derive(Debug, Clone)]
pub(crate) struct Base {
    seq: u64,
    state: Bytes,
    /// How many events it is put together from.
    events: u32,
}

/// A body that was sealed, and what is known of its event once that has a number.
pub(crate) struct Sealed {
    pub(crate) body: Bytes,
    /// Later states refer to it, and this is its state and how many events that is put together from.
    pub(crate) base: Option<(Bytes, u32)>,
}

impl Base {
    pub(crate) fn new(seq: u64, (state, events): (Bytes, u32)) -> Self {
        Self { seq, state, events }
    }
}

/// The body of an event: a line of JSON, and what the agent made of the rest.
pub(crate) fn seal(progress: &Progress, state: Option<&Bytes>, base: Option<&Base>) -> Result<Sealed> {
    let progress = progress.with_state(state.is_some());
    let state = state.cloned().unwrap_or_default();
    let base = base.filter(|base| base.events < MOST_EVENTS && !fault::is_on("keep-whole"));
    let shared = base.map(|base| (base, shared(&base.state, &state))).filter(|(_, length)| *length >= LEAST_SHARED);
    let (head, from, events) = match shared {
        Some((base, length)) => (Head::Adds { adds: Adds { to: base.seq, length }, progress }, length, base.events + 1),
        None => (Head::Whole(progress), 0, 1),
    };
    let mut body = serde_json::to_vec(&head)?;
    body.push(b'\n');
    body.extend_from_slice(&state[from..]);
    let is_base = state.len() - from > ADDS_MUCH || (from == 0 && state.len() >= LEAST_SHARED);
    Ok(Sealed { body: body.into(), base: is_base.then_some((state, events)) })
}

/// How many bytes two states begin with in common.
fn shared(one: &[u8], other: &[u8]) -> usize {
    const BLOCK: usize = 4 << 10;
    let blocks = one.chunks_exact(BLOCK).zip(other.chunks_exact(BLOCK)).take_while(|(one, other)| one == other);
    let same = blocks.count() * BLOCK;
    same + one[same..].iter().zip(&other[same..]).take_while(|(one, other)| one == other).count()
}

fn open(body: &Bytes) -> Result<(Head, Bytes)> {
    let end = body.iter().position(|byte| *byte == b'\n').unwrap_or(body.len());
    Ok((serde_json::from_slice(&body[..end])?, body.slice((end + 1).min(body.len())..)))
}

/// How many bytes the state has that an event kept.
pub(crate) fn length(event: &Event) -> Result<u64> {
    let (head, rest) = open(&event.body)?;
    let before = match head {
        Head::Adds { adds, .. } => adds.length,
        Head::Whole(_) => 0,
    };
    Ok(before.saturating_add(rest.len()) as u64)
}

/// What an event of a task kept.
pub(crate) async fn read(journal: &dyn Journal, tenant: TenantId, task: TaskId, seq: u64) -> Result<Kept> {
    let missing = || Error::Damaged("the kept state is not there".into());
    let before = seq.checked_sub(1).ok_or_else(missing)?;
    let event = journal.events(tenant, task, before, 1).await?.pop().ok_or_else(missing)?;
    read_event(journal, tenant, task, &event).await
}

/// The same of an event that was read already.
pub(crate) async fn read_event(journal: &dyn Journal, tenant: TenantId, task: TaskId, event: &Event) -> Result<Kept> {
    let wrong = || Error::Damaged("the kept state cannot be put together".into());
    let (head, rest) = open(&event.body)?;
    let (progress, mut adds) = match head {
        Head::Whole(progress) => {
            let state = progress.has_state().then_some(rest);
            let base = state.clone().filter(|state| state.len() >= LEAST_SHARED);
            let base = base.map(|state| Base { seq: event.seq, state, events: 1 });
            return Ok(Kept { progress, state, base });
        }
        Head::Adds { adds, progress } => (progress, Some(adds)),
    };
    // The newest first.
    let mut pieces: Vec<(u64, usize, Bytes)> = vec![(event.seq, 0, rest)];
    while let Some(Adds { to, length }) = adds {
        let last = pieces.last_mut().ok_or_else(wrong)?;
        // Each refers to an earlier one.
        if to == 0 || to >= last.0 {
            return Err(wrong());
        }
        last.1 = length;
        let base = journal.events(tenant, task, to - 1, 1).await?.pop().ok_or_else(wrong)?;
        let (head, rest) = open(&base.body)?;
        adds = match head {
            Head::Whole(_) => None,
            Head::Adds { adds, .. } => Some(adds),
        };
        pieces.push((to, 0, rest));
    }
    let mut state: Vec<u8> = Vec::new();
    let mut base = None;
    for (events, (seq, length, rest)) in (1..).zip(pieces.into_iter().rev()) {
        if length > state.len() {
            return Err(wrong());
        }
        state.truncate(length);
        state.extend_from_slice(&rest);
        if seq != event.seq || rest.len() > ADDS_MUCH {
            base = Some(Base { seq, state: state.clone().into(), events });
        }
    }
    Ok(Kept { progress, state: Some(state.into()), base })
}

/// How far a turn had come, by the body of an event.
#[cfg(test)]
pub(crate) fn progress(body: &Bytes) -> Result<Progress> {
    Ok(match open(body)?.0 {
        Head::Adds { progress, .. } | Head::Whole(progress) => progress,
    })
}
