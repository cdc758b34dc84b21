//! Taking due work.

use a2a::{JsonObject, TaskState, Timestamp};

use super::{TaskRow, Tx};
use crate::{AgentId, Draft, LeasedTurn, Result, Turn, clock, machine::Step};

/// What a due task needs.
enum Work {
    /// The next message of its inbox.
    First(Turn),
    /// Another attempt at the current turn.
    Again(Turn),
}

pub(crate) fn lease(tx: &mut impl Tx, until: Timestamp, agents: &[AgentId], limit: usize) -> Result<Vec<LeasedTurn>> {
    let now = clock::now();
    let due = tx.due(agents, now, limit)?;
    let mut leased = Vec::with_capacity(due.len());
    for mut row in due {
        if row.cancel_mark {
            row.cancel(tx, now)?;
            row.save(tx)?;
            continue;
        }
        match find_work(tx, &row) {
            Ok(Some(work)) => leased.push(take(tx, row, work, until, now)?),
            // One unreadable task must not keep the others from running.
            Ok(None) => tracing::error!(task.id = %row.task, "a due task has nothing to do"),
            Err(error) => {
                tracing::error!(task.id = %row.task, %error, "a due task cannot be leased")
            }
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

fn take(tx: &mut impl Tx, mut row: TaskRow, work: Work, until: Timestamp, now: Timestamp) -> Result<LeasedTurn> {
    let state = row.next(Step::Start)?;
    let interrupted = row.owner.is_some();
    row.changed();
    row.generation += 1;
    row.owner = Some(tx.me().to_owned());
    row.due_at = Some(until.as_millis());
    let turn = match work {
        Work::First(turn) => {
            row.begin_turn(tx)?;
            turn
        }
        Work::Again(turn) => {
            row.attempt += 1;
            // The new attempt makes them anew.
            let removed = tx.remove_artifacts_of_turn(&row)?;
            row.removed(removed);
            turn
        }
    };
    row.set_status(tx, &working(&row, state, now)?, false)?;
    let leased = LeasedTurn { lease: row.lease(), turn, interrupted };
    row.save(tx)?;
    Ok(leased)
}

fn working(row: &TaskRow, state: TaskState, now: Timestamp) -> Result<Draft> {
    let metadata =
        if row.attempt > 1 { JsonObject::from_value(&serde_json::json!({ "attempt": row.attempt })) } else { None };
    Draft::status(row.task, &row.context, state, None, metadata, now)
}
