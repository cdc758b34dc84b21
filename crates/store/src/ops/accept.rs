//! Taking a message in: a new task or the continuation of one.

use std::sync::Arc;

use a2a::TaskState;

use super::{Aftermath, Dead, Hidden, Made, TaskRow, Tx, push};
use crate::{
    Accept, Accepted, Draft, Error, EventKind, IdempotencyKey, Result, Start, Target, TenantId, Term, machine::Step,
    queue,
};

pub(crate) fn accept(tx: &mut impl Tx, tenant: TenantId, accept: &Accept) -> Result<Accepted> {
    if let Some(key) = &accept.idempotency
        && let Some(first) = find_first(tx, tenant, key)?
    {
        return Ok(first);
    }
    let (pk, accepted) = match &accept.target {
        Target::New { .. } => begin(tx, tenant, accept)?,
        Target::Continue { .. } => proceed(tx, tenant, accept)?,
    };
    if let Some(key) = &accept.idempotency {
        tx.remember(tenant, key, Made { pk, task: accepted.task, turn: accepted.turn })?;
    }
    Ok(accepted)
}

/// A message that begins a task. Returns the key of the task's row.
fn begin(tx: &mut impl Tx, tenant: TenantId, accept: &Accept) -> Result<(i64, Accepted)> {
    let Target::New { task, agent, context, created, hold, remembers, post, origin, tells_cancel } = &accept.target
    else {
        return Err(Error::NotFound);
    };
    // Whoever ends the parent after this finds the child; whoever has ended it before leaves none behind.
    if let Some(parent) = &accept.parent {
        let is_running = match tx.load(tenant, parent.task) {
            Ok(row) => row.is_held_under(parent) && !row.cancel_mark,
            Err(Error::NotFound) => false,
            Err(error) => return Err(error),
        };
        if !is_running {
            return Err(Error::LeaseLost);
        }
    }
    let replayed = match post.replays {
        Some(letter) => Some(tx.load(tenant, letter)?.visible()?),
        None => None,
    };
    if replayed.as_ref().is_some_and(|letter| letter.dead != Dead::Letter) {
        return Err(Error::NotDead);
    }
    tx.check_quota(tenant, accept.quota, true)?;
    if let Some(mut letter) = replayed {
        letter.dead = Dead::Replayed;
        letter.changed();
        letter.save(tx)?;
    }
    let hidden = if *hold { Hidden::Undecided } else { Hidden::No };
    let pk = tx.new_key()?;
    let mut row = TaskRow::new(pk, *task, tenant, agent.clone(), context.clone(), hidden, accept.at);
    row.remembers = *remembers;
    row.queued = post.queued;
    row.from = Arc::clone(&post.from);
    row.priority = post.priority.min(queue::HIGHEST);
    row.max_attempts = post.max_attempts;
    row.replays = post.replays.map(|letter| letter.to_string());
    row.origin.clone_from(origin);
    if *tells_cancel {
        row.aftermath = Aftermath::IfKept;
    }
    if let Some(new) = &accept.push {
        push::Room::of(tx, &row, new)?.put(tx, &mut row, new, 0, accept.at)?;
    }
    row.log(tx, accept.at, EventKind::Created { held: *hold }, created.clone())?;
    let turn = 1;
    if let Some(request) = &accept.request {
        row.add_request(tx, request, turn, accept.at)?;
    }
    if let Some(term) = &accept.lease {
        row.add_input(tx, &accept.message_id, &accept.message, turn, "in_progress", accept.at)?;
        start(tx, &mut row, accept, term)?;
    } else {
        row.add_input(tx, &accept.message_id, &accept.message, turn, "pending", accept.at)?;
        row.waiting = 1;
        row.due_at = Some(tx.now().after(post.delay).0);
        tx.poke();
    }
    let accepted = outcome(&row, turn, 0);
    row.insert(tx)?;
    Ok((pk, accepted))
}

/// A message for a task that exists. Returns the key of the task's row.
fn proceed(tx: &mut impl Tx, tenant: TenantId, accept: &Accept) -> Result<(i64, Accepted)> {
    let Target::Continue { task, max_waiting, submitted } = &accept.target else {
        return Err(Error::NotFound);
    };
    let mut row = tx.load(tenant, *task)?.visible()?;
    let running = row.is_due_or_running();
    let state = row.next(Step::Message { running })?;
    if running && row.waiting >= *max_waiting {
        return Err(Error::InboxFull);
    }
    tx.check_quota(tenant, accept.quota, false)?;
    let push = match &accept.push {
        Some(new) => Some((new, push::Room::of(tx, &row, new)?)),
        None => None,
    };
    let ahead = turns_ahead(tx, &row)?;
    // What stands in the queue waits for whoever asks, whoever has room for it.
    let lease = accept.lease.as_ref().filter(|_| !row.queued);
    let turn = row.turn + row.waiting + 1;

    row.changed();
    if let Some((new, room)) = push {
        let from = row.seq;
        room.put(tx, &mut row, new, from, accept.at)?;
    }
    if !running {
        // The history reads in the order of the talk: what the agent asked comes before the answer.
        row.retire_status_message(tx, accept.at)?;
    }
    row.log(tx, accept.at, EventKind::Input, accept.message.clone())?;
    if let Some(request) = &accept.request {
        row.add_request(tx, request, turn, accept.at)?;
    }
    if running {
        row.add_input(tx, &accept.message_id, &accept.message, turn, "pending", accept.at)?;
        row.waiting += 1;
    } else if let Some(term) = lease {
        row.add_input(tx, &accept.message_id, &accept.message, turn, "in_progress", accept.at)?;
        start(tx, &mut row, accept, term)?;
    } else {
        row.add_input(tx, &accept.message_id, &accept.message, turn, "pending", accept.at)?;
        row.waiting += 1;
        row.set_status(tx, &in_state(submitted, state)?, EventKind::Status { state, ends_turn: false })?;
        row.due_at = Some(tx.now().0);
        tx.poke();
    }
    let accepted = outcome(&row, turn, ahead);
    let pk = row.pk;
    row.save(tx)?;
    Ok((pk, accepted))
}

/// Leases the turn of the message that was just added.
fn start(tx: &mut impl Tx, row: &mut TaskRow, accept: &Accept, term: &Term) -> Result<()> {
    let state = row.next(Step::Start)?;
    row.next_turn();
    row.lease_to(term, tx.now());
    row.set_status(tx, &in_state(&accept.working, state)?, EventKind::Started(Start::First))
}

/// The machine, not the caller, names the state.
fn in_state(draft: &Draft, state: TaskState) -> Result<Draft> {
    if draft.state() == Some(state) { Ok(draft.clone()) } else { draft.with_state(state) }
}

/// How many turns run or wait.
fn turns_ahead(tx: &mut impl Tx, row: &TaskRow) -> Result<u32> {
    let runs = row.owner.is_some() || (row.is_due_or_running() && tx.has_current_turn(row)?);
    Ok(row.waiting + u32::from(runs))
}

fn outcome(row: &TaskRow, turn: u32, ahead: u32) -> Accepted {
    let lease = if row.turn == turn { row.lease() } else { None };
    Accepted { task: row.task, seq: row.seq, duplicate: false, ahead, lease, turn, request: row.request(turn) }
}

fn find_first(tx: &mut impl Tx, tenant: TenantId, key: &IdempotencyKey) -> Result<Option<Accepted>> {
    let Some(first) = tx.find_key(tenant, key)? else {
        return Ok(None);
    };
    if first.fingerprint != key.fingerprint {
        return Err(Error::IdempotencyConflict);
    }
    let turn = first.turn;
    let row = tx.load(tenant, first.task)?;
    let ahead = if turn > row.turn {
        // Those that wait before it, and the one that runs.
        turns_ahead(tx, &row)?.saturating_sub(row.waiting) + (turn - row.turn - 1)
    } else {
        0
    };
    Ok(Some(Accepted { task: row.task, seq: row.seq, duplicate: true, ahead, lease: None, turn, request: None }))
}
