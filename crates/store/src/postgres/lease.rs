//! Who may work on what: what is due, renewing, taking over. Claiming is the writer's (see [`super::fetch`]).
//!
//! None of these decides anything that a lost answer could spoil: said twice, they mean the same.

use a2a::Timestamp;
use uuid::Uuid;

use super::{
    fetch::{task_id, uuid},
    instances::lock_key,
    pool::Pool,
};
use crate::{AgentId, InstanceId, Lease, Result, TaskId, clock, codec, fault};

pub(super) async fn next_due(readers: &Pool, agents: &[AgentId]) -> Result<Option<Timestamp>> {
    let sql = "SELECT due_at FROM a2a_tasks WHERE due_at IS NOT NULL AND agent_id = ANY ($1::text[])
               ORDER BY due_at LIMIT 1";
    let agents: Vec<&str> = agents.iter().map(AgentId::as_str).collect();
    let row = readers.query_opt(sql, &[&agents]).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?.map(Timestamp::from_millis))
}

/// Prolongs the leases that are still this instance's; returns the others. Rows are locked in the order of every writer.
pub(super) async fn renew(writers: &Pool, me: &str, leases: &[Lease], until: Timestamp) -> Result<Vec<Lease>> {
    if leases.is_empty() {
        return Ok(Vec::new());
    }
    let tasks: Vec<Uuid> = leases.iter().map(|lease| uuid(lease.task)).collect();
    let tenants: Vec<i64> = leases.iter().map(|lease| lease.tenant.0).collect();
    let generations: Vec<i64> = leases.iter().map(|lease| codec::signed(lease.generation)).collect();
    let sql = "WITH held AS (
           SELECT t.task_id, t.generation
           FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS l (task_id, tenant_id, generation)
           JOIN a2a_tasks t ON t.task_id = l.task_id AND t.tenant_id = l.tenant_id AND t.generation = l.generation
           WHERE t.owner = $4 ORDER BY t.task_id FOR UPDATE OF t)
         UPDATE a2a_tasks t SET due_at = $5 FROM held
         WHERE t.task_id = held.task_id AND t.generation = held.generation AND t.owner = $4
         RETURNING t.task_id, t.generation";
    let rows = writers.query(sql, &[&tasks, &tenants, &generations, &me, &until.as_millis()]).await?;
    if fault::is_on("no-fence") {
        return Ok(Vec::new());
    }
    let mut held = std::collections::HashSet::new();
    for row in &rows {
        held.insert((task_id(row.try_get(0)?), codec::unsigned(row.try_get(1)?)));
    }
    Ok(leases.iter().filter(|lease| !held.contains(&(lease.task, lease.generation))).cloned().collect())
}

/// The other instances that are known, by themselves or by leases they hold, and whose lock is free.
///
/// The lock is tried for the length of the statement only. When in doubt an instance lives.
pub(super) async fn dead_instances(readers: &Pool, me: &str) -> Result<Vec<String>> {
    let known = "SELECT id FROM instances WHERE id <> $1
                 UNION SELECT owner FROM a2a_tasks WHERE due_at IS NOT NULL AND owner <> $1";
    let mut ids: Vec<String> = Vec::new();
    let mut keys: Vec<i64> = Vec::new();
    for row in readers.query(known, &[&me]).await? {
        let id: String = row.try_get(0)?;
        let Some(instance) = InstanceId::parse(&id) else { continue };
        keys.push(lock_key(instance));
        ids.push(id);
    }
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let free = "SELECT i.id FROM unnest($1::text[], $2::bigint[]) AS i (id, lock_key)
                WHERE pg_try_advisory_xact_lock(i.lock_key)";
    let mut dead = Vec::new();
    for row in readers.query(free, &[&ids, &keys]).await? {
        dead.push(row.try_get(0)?);
    }
    Ok(dead)
}

/// Makes the leases of dead instances due. The owner stays, so that the takeover is seen as one. What somebody writes to
/// at this moment is passed over; the next call finds it.
pub(super) async fn reclaim(writers: &Pool, dead: &[String]) -> Result<usize> {
    let now = clock::now().as_millis();
    let sql = "WITH held AS (
           SELECT task_id FROM a2a_tasks WHERE due_at > $1 AND owner = ANY ($2::text[])
           ORDER BY task_id FOR UPDATE SKIP LOCKED),
         forgotten AS (DELETE FROM instances WHERE id = ANY ($2::text[]))
         UPDATE a2a_tasks t SET due_at = $1 FROM held WHERE t.task_id = held.task_id AND t.owner = ANY ($2::text[])
         RETURNING t.task_id";
    Ok(writers.query(sql, &[&now, &dead]).await?.len())
}

/// The tasks that this instance runs and that carry a cancel mark.
pub(super) async fn marked(readers: &Pool, me: &str) -> Result<Vec<TaskId>> {
    let sql = "SELECT task_id FROM a2a_tasks WHERE cancel_mark AND owner = $1";
    let mut tasks = Vec::new();
    for row in readers.query(sql, &[&me]).await? {
        tasks.push(task_id(row.try_get(0)?));
    }
    Ok(tasks)
}
