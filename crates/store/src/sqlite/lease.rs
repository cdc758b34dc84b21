//! Who may work on what: what is due, renewing, taking over.

use a2a::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::{row::task_columns, writer::Batch};
use crate::{AgentId, Error, Lease, Result, TaskId, clock, codec, fault};

/// Work that may run now, of the agents in the JSON list `?1`.
pub(super) const DUE: &str = concat!(
    "SELECT ",
    task_columns!(),
    " FROM a2a_tasks WHERE due_at <= ?2 AND agent_id IN (SELECT value FROM json_each(?1)) ORDER BY due_at LIMIT ?3"
);

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

pub(super) fn renew(batch: &mut Batch<'_>, leases: &[Lease], until: Timestamp) -> Result<Vec<Lease>> {
    batch.rows.forget();
    let mut renew = batch.conn.prepare_cached(
        "UPDATE a2a_tasks SET due_at = ?1 WHERE task_id = ?2 AND tenant_id = ?3 AND generation = ?4 AND owner = ?5",
    )?;
    let mut lost = Vec::new();
    for lease in leases {
        let generation = codec::signed(lease.generation);
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
    batch.rows.forget();
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
        tasks.push(codec::parse_task(task)?);
    }
    Ok(tasks)
}
