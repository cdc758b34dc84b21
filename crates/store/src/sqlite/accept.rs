//! Taking a message in: a new task or the continuation of one.

use a2a::TaskState;
use rusqlite::{OptionalExtension, params};

use super::{
    codec,
    row::{Hidden, TaskRow},
    writer::Batch,
};
use crate::{Accept, Accepted, Draft, Error, EventKind, IdempotencyKey, Result, Target, TenantId, machine::Step};

pub(super) fn accept(batch: &mut Batch<'_>, tenant: TenantId, accept: &Accept) -> Result<Accepted> {
    if let Some(key) = &accept.idempotency
        && let Some(first) = find_first(batch, tenant, key, accept)?
    {
        return Ok(first);
    }
    let (row, accepted) = match &accept.target {
        Target::New { .. } => begin(batch, tenant, accept)?,
        Target::Continue { .. } => proceed(batch, tenant, accept)?,
    };
    if let Some(key) = &accept.idempotency {
        remember(batch, tenant, key, row, accepted.turn)?;
    }
    Ok(accepted)
}

/// A message that begins a task. Returns the task's number.
fn begin(batch: &mut Batch<'_>, tenant: TenantId, accept: &Accept) -> Result<(i64, Accepted)> {
    let Target::New { task, agent, context, created, hold, remembers } = &accept.target else {
        return Err(Error::NotFound);
    };
    batch.ledger.check(batch.conn, tenant, accept.quota, true)?;
    let hidden = if *hold { Hidden::Undecided } else { Hidden::No };
    let pk = batch.allocate_pk()?;
    let mut row = TaskRow::new(pk, *task, tenant, agent.clone(), context.clone(), hidden, accept.at);
    row.remembers = *remembers;
    row.log(batch, accept.at, EventKind::Created, created.clone())?;
    let turn = 1;
    if accept.lease_until.is_some() {
        row.add_input(batch, &accept.message_id, &accept.message, turn, "in_progress", accept.at)?;
        start(batch, &mut row, accept)?;
    } else {
        row.add_input(batch, &accept.message_id, &accept.message, turn, "pending", accept.at)?;
        row.waiting = 1;
        row.due_at = Some(accept.at.as_millis());
        batch.poke = true;
    }
    let accepted = outcome(&row, turn, 0, accept);
    row.insert(batch)?;
    Ok((pk, accepted))
}

/// A message for a task that exists. Returns the task's number.
fn proceed(batch: &mut Batch<'_>, tenant: TenantId, accept: &Accept) -> Result<(i64, Accepted)> {
    let Target::Continue { task, max_waiting, submitted } = &accept.target else {
        return Err(Error::NotFound);
    };
    let mut row = TaskRow::load_visible(batch.conn, tenant, *task)?;
    let running = row.is_due_or_running();
    let state = row.next(Step::Message { running })?;
    if running && row.waiting >= *max_waiting {
        return Err(Error::InboxFull);
    }
    batch.ledger.check(batch.conn, tenant, accept.quota, false)?;
    let ahead = turns_ahead(batch, &row)?;
    let turn = row.turn + row.waiting + 1;

    row.changed();
    row.log(batch, accept.at, EventKind::Input, accept.message.clone())?;
    if running {
        row.add_input(batch, &accept.message_id, &accept.message, turn, "pending", accept.at)?;
        row.waiting += 1;
    } else if accept.lease_until.is_some() {
        // The history reads in the order of the talk: what the agent asked comes before the answer.
        row.retire_status_message(batch, accept.at)?;
        row.add_input(batch, &accept.message_id, &accept.message, turn, "in_progress", accept.at)?;
        start(batch, &mut row, accept)?;
    } else {
        row.retire_status_message(batch, accept.at)?;
        row.add_input(batch, &accept.message_id, &accept.message, turn, "pending", accept.at)?;
        row.waiting += 1;
        row.set_status(batch, &in_state(submitted, state)?, false)?;
        row.due_at = Some(accept.at.as_millis());
        batch.poke = true;
    }
    let accepted = outcome(&row, turn, ahead, accept);
    let pk = row.pk;
    row.save(batch)?;
    Ok((pk, accepted))
}

/// Leases the turn of the message that was just added to this instance.
fn start(batch: &mut Batch<'_>, row: &mut TaskRow, accept: &Accept) -> Result<()> {
    let state = row.next(Step::Start)?;
    row.turn += 1;
    row.attempt = 1;
    row.generation += 1;
    row.owner = Some(batch.me.to_owned());
    row.due_at = accept.lease_until.map(|until| until.as_millis());
    row.set_status(batch, &in_state(&accept.working, state)?, false)
}

/// The machine, not the caller, names the state.
fn in_state(draft: &Draft, state: TaskState) -> Result<Draft> {
    if draft.state() == Some(state) { Ok(draft.clone()) } else { draft.with_state(state) }
}

/// How many turns run or wait.
fn turns_ahead(batch: &Batch<'_>, row: &TaskRow) -> Result<u32> {
    let runs = row.owner.is_some() || (row.is_due_or_running() && row.has_current_turn(batch.conn)?);
    Ok(row.waiting + u32::from(runs))
}

fn outcome(row: &TaskRow, turn: u32, ahead: u32, accept: &Accept) -> Accepted {
    let leased = accept.lease_until.is_some() && row.turn == turn;
    Accepted { task: row.task, seq: row.seq, duplicate: false, ahead, lease: leased.then(|| row.lease()), turn }
}

fn find_first(batch: &Batch<'_>, tenant: TenantId, key: &IdempotencyKey, accept: &Accept) -> Result<Option<Accepted>> {
    let found = batch
        .conn
        .prepare_cached(
            "SELECT i.fingerprint, i.turn, t.task_id FROM idempotency i JOIN a2a_tasks t ON t.pk = i.task
             WHERE i.tenant_id = ?1 AND i.key = ?2 AND (i.expires IS NULL OR i.expires > ?3)",
        )?
        .query_row(params![tenant.0, key.key, accept.at.as_millis()], |row| {
            Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, u32>(1)?, row.get::<_, String>(2)?))
        })
        .optional()?;
    let Some((fingerprint, turn, task)) = found else {
        return Ok(None);
    };
    if fingerprint != key.fingerprint {
        return Err(Error::IdempotencyConflict);
    }
    let row = TaskRow::load(batch.conn, tenant, codec::parse_task(&task)?)?;
    let ahead = if turn > row.turn {
        // Those that wait before it, and the one that runs.
        turns_ahead(batch, &row)?.saturating_sub(row.waiting) + (turn - row.turn - 1)
    } else {
        0
    };
    Ok(Some(Accepted { task: row.task, seq: row.seq, duplicate: true, ahead, lease: None, turn }))
}

fn remember(batch: &Batch<'_>, tenant: TenantId, key: &IdempotencyKey, task: i64, turn: u32) -> Result<()> {
    // What is replaced here has expired.
    batch
        .conn
        .prepare_cached(
            "INSERT OR REPLACE INTO idempotency (tenant_id, key, fingerprint, task, turn, expires)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![tenant.0, key.key, key.fingerprint, task, turn, key.expires.map(|at| at.as_millis())])?;
    Ok(())
}
