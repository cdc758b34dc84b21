//! Who may work on what: leasing, renewing, taking over.

use a2a::{JsonObject, TaskState, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use super::{
    append::remove,
    row::{TaskRow, task_columns},
    writer::Batch,
};
use crate::{AgentId, Draft, Error, Lease, LeasedTurn, Result, TaskId, Turn, clock, fault, machine::Step};

/// Work that may run now, of the agents in the JSON list `?1`.
pub(super) const DUE: &str = concat!(
    "SELECT ",
    task_columns!(),
    " FROM a2a_tasks WHERE due_at <= ?2 AND agent_id IN (SELECT value FROM json_each(?1)) ORDER BY due_at LIMIT ?3"
);

/// What a due task needs.
enum Work {
    /// The next message of its inbox.
    First(Turn),
    /// Another attempt at the current turn.
    Again(Turn),
}

pub(super) fn lease(
    batch: &mut Batch<'_>,
    until: Timestamp,
    agents: &[AgentId],
    limit: usize,
) -> Result<Vec<LeasedTurn>> {
    let now = clock::now();
    let agents = agent_list(agents)?;
    let due = {
        let mut due = batch.conn.prepare_cached(DUE)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut rows = due.query(params![agents, now.as_millis(), limit])?;
        let mut due = Vec::new();
        while let Some(row) = rows.next()? {
            due.push(TaskRow::read(row)?);
        }
        due
    };
    let mut leased = Vec::with_capacity(due.len());
    for mut row in due {
        if row.cancel_mark {
            row.cancel(batch, now)?;
            row.save(batch)?;
            continue;
        }
        match find_work(batch.conn, &row) {
            Ok(Some(work)) => leased.push(take(batch, row, work, until, now)?),
            // One unreadable task must not keep the others from running.
            Ok(None) => tracing::error!(task.id = %row.task, "a due task has nothing to do"),
            Err(error) => {
                tracing::error!(task.id = %row.task, %error, "a due task cannot be leased")
            }
        }
    }
    Ok(leased)
}

/// Agents as the JSON list that statements take.
pub(super) fn agent_list(agents: &[AgentId]) -> Result<String> {
    let agents: Vec<&str> = agents.iter().map(AgentId::as_str).collect();
    Ok(serde_json::to_string(&agents)?)
}

pub(super) fn next_due(conn: &Connection, agents: &str) -> Result<Option<Timestamp>> {
    let mut next = conn.prepare_cached(
        "SELECT due_at FROM a2a_tasks
         WHERE due_at IS NOT NULL AND agent_id IN (SELECT value FROM json_each(?1)) ORDER BY due_at LIMIT 1",
    )?;
    let next = next.query_row([agents], |row| row.get(0)).optional()?;
    Ok(next.map(Timestamp::from_millis))
}

fn find_work(conn: &Connection, row: &TaskRow) -> Result<Option<Work>> {
    if let Some(turn) = row.current_turn(conn)? {
        return Ok(Some(Work::Again(turn)));
    }
    Ok(row.waiting_turn(conn)?.map(Work::First))
}

fn take(batch: &mut Batch<'_>, mut row: TaskRow, work: Work, until: Timestamp, now: Timestamp) -> Result<LeasedTurn> {
    let state = row.next(Step::Start)?;
    let interrupted = row.owner.is_some();
    row.changed();
    row.generation += 1;
    row.owner = Some(batch.me.to_owned());
    row.due_at = Some(until.as_millis());
    let turn = match work {
        Work::First(turn) => {
            row.begin_turn(batch)?;
            turn
        }
        Work::Again(turn) => {
            row.attempt += 1;
            // The new attempt makes them anew.
            let removed = remove(
                batch.conn,
                "DELETE FROM a2a_artifacts WHERE task = ?1 AND turn = ?2 RETURNING length(body)",
                params![row.pk, row.turn],
            )?;
            row.removed(removed);
            turn
        }
    };
    row.set_status(batch, &working(&row, state, now)?, false)?;
    let leased = LeasedTurn { lease: row.lease(), turn, interrupted };
    row.save(batch)?;
    Ok(leased)
}

fn working(row: &TaskRow, state: TaskState, now: Timestamp) -> Result<Draft> {
    let metadata =
        if row.attempt > 1 { JsonObject::from_value(&serde_json::json!({ "attempt": row.attempt })) } else { None };
    Draft::status(row.task, &row.context, state, None, metadata, now)
}

pub(super) fn renew(batch: &Batch<'_>, leases: &[Lease], until: Timestamp) -> Result<Vec<Lease>> {
    let mut renew = batch.conn.prepare_cached(
        "UPDATE a2a_tasks SET due_at = ?1 WHERE task_id = ?2 AND tenant_id = ?3 AND generation = ?4 AND owner = ?5",
    )?;
    let mut lost = Vec::new();
    for lease in leases {
        let generation = super::codec::signed(lease.generation);
        let renewed =
            renew.execute(params![until.as_millis(), lease.task.to_string(), lease.tenant.0, generation, batch.me])?;
        if renewed == 0 && !fault::is_on("no-fence") {
            lost.push(lease.clone());
        }
    }
    Ok(lost)
}

/// The other instances that are known, by themselves or by leases they hold.
pub(super) fn other_instances(conn: &Connection, me: &str) -> Result<Vec<String>> {
    let mut others = conn.prepare_cached(
        "SELECT id FROM instances WHERE id <> ?1
         UNION SELECT owner FROM a2a_tasks WHERE due_at IS NOT NULL AND owner <> ?1",
    )?;
    let others = others.query_map([me], |row| row.get(0))?;
    Ok(others.collect::<Result<_, _>>()?)
}

/// Makes the leases of dead instances due. The owner stays, so that the takeover is seen as one.
pub(super) fn reclaim(batch: &mut Batch<'_>, dead: &[String]) -> Result<usize> {
    let now = clock::now().as_millis();
    let mut reclaimed = 0;
    for id in dead {
        reclaimed += batch
            .conn
            .prepare_cached("UPDATE a2a_tasks SET due_at = ?1 WHERE due_at > ?1 AND owner = ?2")?
            .execute(params![now, id])?;
        batch.conn.prepare_cached("DELETE FROM instances WHERE id = ?1")?.execute([id])?;
    }
    batch.poke |= reclaimed > 0;
    Ok(reclaimed)
}

/// The tasks that this instance runs and that carry a cancel mark.
pub(super) fn marked(conn: &Connection, me: &str) -> Result<Vec<TaskId>> {
    let mut marked = conn.prepare_cached("SELECT task_id FROM a2a_tasks WHERE cancel_mark = 1 AND owner = ?1")?;
    let mut rows = marked.query([me])?;
    let mut tasks = Vec::new();
    while let Some(row) = rows.next()? {
        let task = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from).map_err(Error::from)?;
        tasks.push(super::codec::parse_task(task)?);
    }
    Ok(tasks)
}
