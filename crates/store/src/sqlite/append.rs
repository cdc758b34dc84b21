//! Writing what a turn produces, and its end.

use a2a::TaskState;
use rusqlite::{Connection, Params, params};

use super::{
    row::{Hidden, TaskRow, step_from},
    writer::Batch,
};
use crate::{
    Append, Appended, Draft, Error, EventKind, Lease, Result, Turn, TurnEnd, clock, draft::Content, fault,
    machine::Step,
};

/// How the turn ends, decided before anything is written.
enum Decision {
    /// It does not.
    Goes,
    /// With this status; `next` when another message waits and the lease is kept for it.
    Ends { status: Draft, next: Option<Turn> },
    /// With a direct reply. The status is only kept as what was said.
    Replies { reply: Draft, status: Draft },
    /// It does not, but another attempt has to finish it.
    Again { due_at: i64, counts: bool },
    /// Another attempt was wanted, but the task was canceled.
    Canceled,
}

pub(super) fn append(batch: &mut Batch<'_>, lease: &Lease, append: &Append) -> Result<Appended> {
    let mut row = TaskRow::load(batch.conn, lease.tenant, lease.task)?;
    // A task that has ended has no owner.
    let holds = row.generation == lease.generation && row.owner.as_deref() == Some(batch.me);
    let unfenced = fault::is_on("no-fence") && !row.state.is_terminal();
    if !holds && !unfenced {
        return Err(Error::LeaseLost);
    }
    let decision = decide(batch, &row, append)?;
    if append.drafts.is_empty() && matches!(decision, Decision::Goes) {
        return Ok(Appended { seq: row.seq, state: row.state, next: None });
    }

    if row.hidden == Hidden::Undecided && (!append.drafts.is_empty() || matches!(decision, Decision::Ends { .. })) {
        row.show();
    }
    for draft in &append.drafts {
        write(batch, &mut row, draft)?;
    }
    let mut next_turn = None;
    match decision {
        Decision::Goes => {}
        Decision::Ends { status, next } => {
            row.set_status(batch, &status, true)?;
            row.end_turn(batch)?;
            if next.is_some() {
                row.begin_turn(batch)?;
            } else {
                row.release(None);
            }
            next_turn = next;
        }
        Decision::Replies { reply, status } => {
            row.reply(batch, &reply, &status)?;
            row.end_turn(batch)?;
            row.release(None);
        }
        Decision::Again { due_at, counts } => {
            if !counts {
                row.attempt = row.attempt.saturating_sub(1);
            }
            row.release(Some(due_at));
            batch.poke = true;
        }
        Decision::Canceled => row.cancel(batch, clock::now())?,
    }
    let appended = Appended { seq: row.seq, state: row.state, next: next_turn };
    row.save(batch)?;
    Ok(appended)
}

/// Asks the machine about every step before the first is taken.
fn decide(batch: &Batch<'_>, row: &TaskRow, append: &Append) -> Result<Decision> {
    let mut state = row.state;
    for draft in &append.drafts {
        match &draft.content {
            Content::Status { state: to, .. } => state = step_from(state, Step::Report(*to))?,
            Content::Artifact { .. } => {}
            // A reply is an end.
            Content::Reply => return Err(Error::Illegal(TaskState::Completed)),
        }
    }
    let again = |due_at, counts| {
        if row.cancel_mark { Decision::Canceled } else { Decision::Again { due_at, counts } }
    };
    match &append.end {
        None => Ok(Decision::Goes),
        Some(TurnEnd::Status(status)) => end(batch, row, state, status),
        Some(TurnEnd::Reply { reply, otherwise }) => {
            if row.hidden == Hidden::Undecided && append.drafts.is_empty() && !row.cancel_mark && row.waiting == 0 {
                // A reply is the whole answer: it leaves no other state than COMPLETED.
                step_from(state, Step::End { state: TaskState::Completed, canceled: false, waiting: false })?;
                if reply.content != Content::Reply || otherwise.state() != Some(TaskState::Completed) {
                    return Err(Error::Illegal(TaskState::Completed));
                }
                Ok(Decision::Replies { reply: reply.clone(), status: otherwise.clone() })
            } else {
                end(batch, row, state, otherwise)
            }
        }
        Some(TurnEnd::Retry { due }) => Ok(again(due.as_millis(), true)),
        Some(TurnEnd::Release) => Ok(again(clock::now().as_millis(), false)),
    }
}

fn end(batch: &Batch<'_>, row: &TaskRow, state: TaskState, status: &Draft) -> Result<Decision> {
    let wanted = status.state().unwrap_or(TaskState::Unspecified);
    let waiting = row.waiting > 0;
    let becomes = step_from(state, Step::End { state: wanted, canceled: row.cancel_mark, waiting })?;
    let status = if becomes == wanted { status.clone() } else { status.with_state(becomes)? };
    let next = if becomes == TaskState::Working {
        let waiting = row.waiting_turn(batch.conn)?;
        Some(waiting.ok_or_else(|| Error::Damaged(format!("the inbox of {} is short", row.task)))?)
    } else {
        None
    };
    Ok(Decision::Ends { status, next })
}

fn write(batch: &mut Batch<'_>, row: &mut TaskRow, draft: &Draft) -> Result<()> {
    match &draft.content {
        Content::Status { .. } => row.set_status(batch, draft, false),
        Content::Artifact { artifact_id, append, artifact } => {
            if !append {
                let removed = remove(
                    batch.conn,
                    "DELETE FROM a2a_artifacts WHERE task = ?1 AND artifact_id = ?2 RETURNING length(body)",
                    params![row.pk, artifact_id],
                )?;
                row.removed(removed);
            }
            batch
                .conn
                .prepare_cached(
                    "INSERT INTO a2a_artifacts (task, turn, artifact_id, append, body) VALUES (?1, ?2, ?3, ?4, ?5)",
                )?
                .execute(params![row.pk, row.turn, artifact_id, append, &artifact[..]])?;
            row.wrote(artifact.len());
            row.log(batch, draft.at, EventKind::Artifact, draft.body.clone())
        }
        Content::Reply => Err(Error::Illegal(TaskState::Completed)),
    }
}

/// Runs a DELETE that returns the length of each body it removes; gives their sum.
pub(super) fn remove(conn: &Connection, delete: &str, arguments: impl Params) -> Result<i64> {
    let mut delete = conn.prepare_cached(delete)?;
    let mut rows = delete.query(arguments)?;
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        bytes += row.get::<_, i64>(0)?;
    }
    Ok(bytes)
}
