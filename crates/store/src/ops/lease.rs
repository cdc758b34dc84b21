//! Taking due work. What may be taken is said in [`crate::lease`].

use a2a::{JsonObject, TaskState, Timestamp};

use super::{TaskRow, Tx};
use crate::{
    Claim, Draft, Error, EventKind, LeasedTurn, Result, Room, Start, TaskId, TenantId, Term, Turn, clock, machine::Step,
};

/// What a due task needs.
enum Work {
    /// The next message of its inbox.
    First(Turn),
    /// Another attempt at the current turn.
    Again(Turn),
}

/// Takes one entry of the queue by its id.
pub(crate) fn claim_task(
    tx: &mut impl Tx,
    tenant: TenantId,
    task: TaskId,
    term: &Term,
    resumes: bool,
) -> Result<LeasedTurn> {
    let row = tx.load(tenant, task)?.visible()?;
    if row.state.is_terminal() {
        return Err(Error::Terminal(row.state));
    }
    if !row.queued || row.owner.is_some() || row.due_at.is_none() || row.cancel_mark {
        return Err(Error::NotWaiting);
    }
    let work = find_work(tx, &row)?.ok_or(Error::NotWaiting)?;
    take(tx, row, work, term, resumes, clock::now())?.ok_or(Error::NotWaiting)
}

pub(crate) fn claim(tx: &mut impl Tx, claim: &Claim) -> Result<Vec<LeasedTurn>> {
    let now = clock::now();
    let due = tx.due(claim)?;
    let mut leased = Vec::with_capacity(due.len());
    for mut row in due {
        if row.state.is_terminal() {
            // Nobody could have written that. It must not stand first in line for ever either.
            tracing::error!(task.id = %row.task, "a task that has ended was due");
            row.release(None);
            row.save(tx)?;
            continue;
        }
        // A turn that is parked may have to tell others that it is canceled.
        let is_parked = row.is_parked();
        if row.cancel_mark && !is_parked {
            row.cancel(tx, now)?;
            row.save(tx)?;
            continue;
        }
        if claim.comes_too_soon(row.owner.as_deref(), row.interrupted, row.overdue) {
            row.call_holder(tx.now().after(claim.term.lasts / 2));
            row.save(tx)?;
            continue;
        }
        match find_work(tx, &row) {
            Ok(Some(Work::Again(turn))) if is_parked => leased.extend(go_on(tx, row, turn, &claim.term)?),
            Ok(Some(work)) => {
                let is_theirs = |room: &&Room| room.agent == row.agent && room.tenants.have(row.tenant);
                let resumes = claim.room.iter().find(is_theirs).is_some_and(|room| room.resumes);
                leased.extend(take(tx, row, work, &claim.term, resumes, now)?);
            }
            // What cannot be run now can never be run: it must not stand first in line for ever.
            Ok(None) => give_up(tx, row, "the task has no message to work on", now)?,
            Err(Error::Damaged(why)) => {
                tracing::error!(task.id = %row.task, error = %why, "the message of a due task cannot be read");
                give_up(tx, row, "the message cannot be read", now)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(leased)
}

fn find_work(tx: &mut impl Tx, row: &TaskRow) -> Result<Option<Work>> {
    if let Some(turn) = row.current_turn(tx)? {
        return Ok(Some(Work::Again(turn)));
    }
    Ok(row.waiting_turn(tx)?.map(Work::First))
}

/// Lets a turn that was parked go on. It is the same attempt, and nothing of it is news to anyone.
fn go_on(tx: &mut impl Tx, mut row: TaskRow, turn: Turn, term: &Term) -> Result<Option<LeasedTurn>> {
    row.lease_to(term, tx.now());
    let canceled = row.cancel_mark;
    let leased = row.lease().map(|lease| LeasedTurn { lease, turn, interrupted: false, rested: true, canceled });
    row.save(tx)?;
    Ok(leased)
}

fn take(
    tx: &mut impl Tx,
    mut row: TaskRow,
    work: Work,
    term: &Term,
    resumes: bool,
    now: Timestamp,
) -> Result<Option<LeasedTurn>> {
    let state = row.next(Step::Start)?;
    let interrupted = row.owner.is_some() || row.interrupted;
    row.lease_to(term, tx.now());
    let (turn, start) = match work {
        Work::First(turn) => {
            row.begin_turn(tx)?;
            (turn, Start::First)
        }
        Work::Again(turn) => {
            row.attempt += 1;
            // The new attempt makes anew what the one before made, or what that made since it last kept its state.
            if !resumes {
                row.kept = row.kept_before;
            }
            let after = if row.kept > row.kept_before { row.kept } else { 0 };
            let removed = tx.remove_artifacts_of_turn(&row, after)?;
            row.removed(removed);
            (turn, if resumes { Start::Resumed } else { Start::Again })
        }
    };
    row.set_status(tx, &working(&row, state, now)?, EventKind::Started(start))?;
    let leased = row.lease().map(|lease| LeasedTurn { lease, turn, interrupted, rested: false, canceled: false });
    row.save(tx)?;
    Ok(leased)
}

/// Ends a task that can never be run.
fn give_up(tx: &mut impl Tx, mut row: TaskRow, why: &str, now: Timestamp) -> Result<()> {
    let step = Step::End { state: TaskState::Failed, canceled: false, waiting: false };
    let state = row.next(step)?;
    let message = a2a::Message {
        message_id: format!("{}-x{}", row.task, row.generation + 1),
        role: a2a::Role::Agent,
        task_id: row.task.to_string(),
        context_id: row.context.to_string(),
        parts: vec![a2a::Part::text(why)],
        ..a2a::Message::default()
    };
    let draft = Draft::status(row.task, &row.context, state, Some(message), None, now)?;
    row.show();
    row.set_status(tx, &draft, EventKind::Status { state, ends_turn: true })?;
    row.end_turn(tx)?;
    row.release(None);
    row.save(tx)
}

fn working(row: &TaskRow, state: TaskState, now: Timestamp) -> Result<Draft> {
    let metadata =
        if row.attempt > 1 { JsonObject::from_value(&serde_json::json!({ "attempt": row.attempt })) } else { None };
    Draft::status(row.task, &row.context, state, None, metadata, now)
}
