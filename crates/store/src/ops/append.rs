//! Writing what a turn produces, and its end.

use std::time::Duration;

use a2a::{JsonObject, TaskState};

use super::{
    Tx, push,
    row::{Dead, Hidden, Owes, Parking, TaskRow, step_from},
};
use crate::{
    Append, Appended, Draft, Error, EventKind, Lease, LeaseTime, Only, Result, Tokens, Turn, TurnEnd, clock,
    draft::Content, fault, machine::Step,
};

/// As long as it takes. What nobody wakes stays parked.
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);

/// How the turn ends, decided before anything is written.
enum Decision {
    /// It does not.
    Goes,
    /// With this status; `next` when another message waits and the lease is kept for it. `failed` says why
    /// the attempt failed, and whether the task is a dead letter.
    Ends { status: Draft, next: Option<Turn>, failed: Option<(String, bool)> },
    /// With this status, and another message waits in the queue.
    Queues { status: Draft },
    /// With a direct reply. The status is only kept as what was said.
    Replies { reply: Draft, status: Draft },
    /// It does not, but another attempt has to finish it.
    Again { due: LeaseTime, released: bool, interrupted: bool, error: Option<String> },
    /// It does not, and rests until then.
    Parks { due: LeaseTime },
    /// Another attempt was wanted, but the task was canceled.
    Canceled,
}

pub(crate) fn append(tx: &mut impl Tx, lease: &Lease, append: &Append) -> Result<Appended> {
    let mut row = tx.load(lease.tenant, lease.task)?;
    let unfenced = fault::is_on("no-fence") && !row.state.is_terminal();
    if !row.is_held_under(lease) && !unfenced {
        return Err(Error::LeaseLost);
    }
    let is_so = match append.only {
        Only::Held => true,
        Only::Kept(kept) => row.kept == kept,
        Only::Lapsed => row.due_at.is_some_and(|due| due <= tx.now().0),
    };
    if !is_so {
        return Err(Error::Moved);
    }
    let decision = decide(tx, &row, append)?;
    // Whoever let it run out has no part in what becomes of it.
    if append.only == Only::Lapsed {
        row.generation += 1;
        row.changed();
    }
    row.spend(append.tokens);
    let says_nothing = append.drafts.is_empty() && append.tokens == Tokens::default();
    if says_nothing && matches!(decision, Decision::Goes) {
        return Ok(Appended { seq: row.seq, state: row.state, next: None });
    }

    let has_output = append.drafts.iter().any(Draft::is_output);
    if row.hidden == Hidden::Undecided && (has_output || matches!(decision, Decision::Ends { .. })) {
        row.show();
    }
    // Whoever writes lives: a last call is answered by it.
    if row.overdue {
        row.answer_call();
    }
    for draft in &append.drafts {
        write(tx, &mut row, draft)?;
    }
    let mut next_turn = None;
    match decision {
        Decision::Goes => {}
        Decision::Ends { status, next, failed } => {
            let state = status.state().unwrap_or(TaskState::Unspecified);
            if let Some((error, dead)) = &failed {
                row.failed(error, status.at);
                // A cancel mark has the last word.
                row.dead = if *dead && state == TaskState::Failed { Dead::Letter } else { Dead::No };
            }
            row.set_status(tx, &status, EventKind::Status { state, ends_turn: true })?;
            row.end_turn(tx)?;
            if next.is_some() {
                row.begin_turn(tx)?;
            } else {
                row.release(None);
            }
            next_turn = next;
        }
        Decision::Queues { status } => {
            let state = status.state().unwrap_or(TaskState::Unspecified);
            row.set_status(tx, &status, EventKind::Status { state, ends_turn: true })?;
            row.end_turn(tx)?;
            row.release(Some(tx.now().0));
            tx.poke();
        }
        Decision::Replies { reply, status } => {
            row.reply(tx, &reply, &status)?;
            push::remove_all(tx, &mut row)?;
            row.end_turn(tx)?;
            row.release(None);
        }
        Decision::Again { due, released, interrupted, error } => {
            let at = clock::now();
            if let Some(error) = &error {
                row.failed(error, at);
            }
            // In the queue it waits again, and says so; elsewhere it goes on by itself.
            if row.queued {
                let state = row.next(Step::Requeue)?;
                let draft =
                    Draft::status(row.task, &row.context, state, None, waits_again(&row, error.as_deref()), at)?;
                row.set_status(tx, &draft, EventKind::Status { state, ends_turn: false })?;
            }
            // Who waits for a direct reply has to learn of the task: it may take a while from here.
            if row.hidden == Hidden::Undecided {
                row.reveal(tx)?;
            }
            row.releases += u32::from(released);
            let is_forgotten = row.queued && !released && fault::is_on("queue-forgets");
            row.release((!is_forgotten).then_some(due.0));
            row.interrupted = interrupted && !fault::is_on("release-again");
            tx.poke();
        }
        Decision::Parks { due } => {
            if row.hidden == Hidden::Undecided {
                row.reveal(tx)?;
            }
            row.park(due);
            tx.poke();
        }
        Decision::Canceled => row.cancel(tx, clock::now())?,
    }
    let appended = Appended { seq: row.seq, state: row.state, next: next_turn };
    row.save(tx)?;
    Ok(appended)
}

/// Asks the machine about every step before the first is taken.
fn decide(tx: &mut impl Tx, row: &TaskRow, append: &Append) -> Result<Decision> {
    let mut state = row.state;
    for draft in &append.drafts {
        match &draft.content {
            Content::Status { state: to, .. } => state = step_from(state, Step::Report(*to))?,
            Content::Artifact { .. } | Content::Note | Content::Kept(_) => {}
            // A reply is an end.
            Content::Reply => return Err(Error::Illegal(TaskState::Completed)),
        }
    }
    let again = |due, released, interrupted, error| {
        if row.cancel_mark { Decision::Canceled } else { Decision::Again { due, released, interrupted, error } }
    };
    match &append.end {
        None => Ok(Decision::Goes),
        Some(TurnEnd::Status(status)) => end(tx, row, state, status),
        Some(TurnEnd::GiveUp { status, error, dead }) => match end(tx, row, state, status)? {
            Decision::Ends { status, next, .. } => {
                Ok(Decision::Ends { status, next, failed: Some((error.clone(), *dead)) })
            }
            decision => Ok(decision),
        },
        Some(TurnEnd::Reply { reply, otherwise }) => {
            let is_first = row.hidden == Hidden::Undecided && !append.drafts.iter().any(Draft::is_output);
            if is_first && !row.cancel_mark && row.waiting == 0 {
                // A reply is the whole answer: it leaves no other state than COMPLETED.
                step_from(state, Step::End { state: TaskState::Completed, canceled: false, waiting: false })?;
                if reply.content != Content::Reply || otherwise.state() != Some(TaskState::Completed) {
                    return Err(Error::Illegal(TaskState::Completed));
                }
                Ok(Decision::Replies { reply: reply.clone(), status: otherwise.clone() })
            } else {
                end(tx, row, state, otherwise)
            }
        }
        Some(TurnEnd::Retry { after, error }) => Ok(again(tx.now().after(*after), false, false, Some(error.clone()))),
        Some(TurnEnd::Release { begun }) => Ok(again(tx.now(), true, *begun, None)),
        // Nobody would go on with an entry that rests: it waits for whoever asks.
        Some(TurnEnd::Park { .. }) if row.queued => Ok(again(tx.now(), true, false, None)),
        Some(TurnEnd::Park { at_most }) => {
            // What it would wait for has happened: it is told so, a cancel too. Who was told of that and rests all the same
            // has had its chance.
            let was_woken = row.parking == Parking::Woken;
            if row.cancel_mark && !was_woken {
                return Ok(Decision::Canceled);
            }
            let due = if was_woken { tx.now() } else { tx.now().after(at_most.unwrap_or(FOR_EVER)) };
            Ok(Decision::Parks { due })
        }
    }
}

fn end(tx: &mut impl Tx, row: &TaskRow, state: TaskState, status: &Draft) -> Result<Decision> {
    let wanted = status.state().unwrap_or(TaskState::Unspecified);
    let waiting = row.waiting > 0;
    let becomes = step_from(state, Step::End { state: wanted, canceled: row.cancel_mark, waiting })?;
    // Whoever works on an entry is done with it; what waits behind it waits for whoever asks next.
    if becomes == TaskState::Working && row.queued {
        return Ok(Decision::Queues { status: status.with_state(step_from(state, Step::Requeue)?)? });
    }
    let status = if becomes == wanted { status.clone() } else { status.with_state(becomes)? };
    let next = if becomes == TaskState::Working {
        let waiting = row.waiting_turn(tx)?;
        Some(waiting.ok_or_else(|| Error::Damaged(format!("the inbox of {} is short", row.task)))?)
    } else {
        None
    };
    Ok(Decision::Ends { status, next, failed: None })
}

/// What a status says of an entry that waits again.
fn waits_again(row: &TaskRow, error: Option<&str>) -> Option<JsonObject> {
    let error = error?;
    JsonObject::from_value(&serde_json::json!({ "attempt": row.attempt, "error": error }))
}

fn write(tx: &mut impl Tx, row: &mut TaskRow, draft: &Draft) -> Result<()> {
    match &draft.content {
        Content::Status { state, .. } => {
            row.set_status(tx, draft, EventKind::Status { state: *state, ends_turn: false })
        }
        Content::Artifact { artifact_id, append, last, artifact } => {
            // A task that has only been born and started has nothing to replace.
            if !append && row.seq > 2 {
                let removed = tx.remove_artifact(row, artifact_id)?;
                row.removed(removed);
            }
            tx.add_artifact(row, artifact_id, *append, artifact)?;
            row.wrote(artifact.len());
            if *last {
                row.owe(Owes::All);
            }
            row.log(tx, draft.at, EventKind::Artifact, draft.body.clone())
        }
        Content::Note => row.log(tx, draft.at, EventKind::Note, draft.body.clone()),
        Content::Kept(owing) => {
            row.log(tx, draft.at, EventKind::Kept, draft.body.clone())?;
            row.keep(*owing);
            Ok(())
        }
        Content::Reply => Err(Error::Illegal(TaskState::Completed)),
    }
}
