//! Who may work on what: what is due, renewing, taking over.

use std::{sync::LazyLock, time::Duration};

use rusqlite::{Connection, OptionalExtension, params};

use super::{clock::Clock, push, row, writer::Batch};
use crate::{
    AgentId, Claim, Due, Error, Holder, Lease, LeaseTime, Result, Room, TaskId, TenantId, Tenants, codec, fault,
    lease::{self, MANY, among},
    ops::TaskRow,
};

/// Work of one agent and tenant that may run now, oldest first.
pub(super) static DUE: LazyLock<String> = LazyLock::new(|| {
    format!("{} WHERE agent_id = ?1 AND tenant_id = ?2 AND due_at <= ?3 AND queued = 0 ORDER BY due_at", *row::SELECT)
});

/// The next tenant that has anything due or running with an agent, and the earliest time of it.
pub(super) const HEAD: &str = "SELECT tenant_id, due_at FROM a2a_tasks
     WHERE agent_id = ?1 AND tenant_id > ?2 AND due_at IS NOT NULL AND queued = 0 ORDER BY tenant_id, due_at LIMIT 1";

/// The next agent that has anything due or running, by id.
pub(super) const BUSY: &str = "SELECT agent_id FROM a2a_tasks
     WHERE agent_id > ?1 AND due_at IS NOT NULL AND queued = 0 ORDER BY agent_id LIMIT 1";

/// Who is known: by itself, or by leases. What is due has an index for each kind of it, and no index has both.
pub(super) const OTHERS: &str = "SELECT id FROM instances WHERE id <> ?1
     UNION SELECT owner FROM a2a_tasks WHERE due_at IS NOT NULL AND queued = 0 AND owner <> ?1
     UNION SELECT owner FROM a2a_tasks WHERE queued = 1 AND owner IS NOT NULL AND due_at IS NOT NULL AND owner <> ?1";

pub(super) const RECLAIM: [&str; 2] = [
    "UPDATE a2a_tasks SET due_at = min(due_at, ?1), interrupted = 1
     WHERE due_at IS NOT NULL AND queued = 0 AND interrupted = 0 AND owner = ?2",
    "UPDATE a2a_tasks SET due_at = min(due_at, ?1), interrupted = 1
     WHERE queued = 1 AND owner IS NOT NULL AND due_at IS NOT NULL AND interrupted = 0 AND owner = ?2",
];

/// A row that cannot be read is not looked at again for so long.
const STEP_ASIDE: Duration = Duration::from_secs(60 * 60);

/// When something of these agents is due next, and of which of them something is due now. Of each agent no more is looked at
/// than it takes to know that.
pub(super) fn next_due(conn: &Connection, agents: &[AgentId], now: LeaseTime) -> Result<Due> {
    let mut due = Due { now, next: None, agents: Vec::new() };
    let busy = if agents.len() > MANY { Some(among(agents, &busy(conn)?)) } else { None };
    for agent in busy.as_deref().unwrap_or(agents) {
        let mut after = TenantId(i64::MIN);
        while let Some((tenant, at)) = head(conn, agent, after)? {
            due.next = due.next.into_iter().chain([at]).min();
            if at <= now {
                due.agents.push(agent.clone());
                break;
            }
            after = tenant;
        }
    }
    Ok(due)
}

/// The agents that have anything due or running. Their tasks are stepped over.
fn busy(conn: &Connection) -> Result<Vec<String>> {
    let mut next = conn.prepare_cached(BUSY)?;
    let mut busy: Vec<String> = Vec::new();
    loop {
        let after = busy.last().map_or("", String::as_str);
        let Some(agent) = next.query_row([after], |row| row.get(0)).optional()? else { return Ok(busy) };
        busy.push(agent);
    }
}

fn head(conn: &Connection, agent: &AgentId, after: TenantId) -> Result<Option<(TenantId, LeaseTime)>> {
    let mut head = conn.prepare_cached(HEAD)?;
    let head = head.query_row(params![agent.as_str(), after.0], |row| Ok((row.get(0)?, row.get(1)?)));
    Ok(head.optional()?.map(|(tenant, due)| (TenantId(tenant), LeaseTime(due))))
}

/// What is due of an agent, as much as there is room for, shared among the tenants that have any.
pub(super) fn due(batch: &Batch<'_>, claim: &Claim, room: &Room) -> Result<Vec<TaskRow>> {
    let mut line = Line::of(room);
    let mut served: Vec<(TenantId, Vec<TaskRow>)> = Vec::new();
    let mut left = room.slots;
    // Who has had less than its share has no more (of what may be taken), and makes room for others.
    let mut open: Vec<usize> = Vec::new();
    while left > 0 {
        for _ in 0..left {
            let Some(tenant) = line.next(batch)? else { break };
            open.push(served.len());
            served.push((tenant, Vec::new()));
        }
        if open.is_empty() {
            break;
        }
        open.sort_by_key(|place| served[*place].1.len());
        let most = |place: &usize| room.shares.left(served[*place].0) - served[*place].1.len();
        let shares = lease::share(left, &open.iter().map(most).collect::<Vec<_>>());
        let mut still_open = Vec::new();
        for (place, share) in open.into_iter().zip(shares) {
            let (tenant, rows) = &mut served[place];
            let found = rows_of(batch, claim, room, *tenant, rows.len(), share)?;
            left -= found.len();
            let has_all = found.len() == share;
            rows.extend(found);
            if has_all && rows.len() < room.shares.left(*tenant) {
                still_open.push(place);
            }
        }
        open = still_open;
    }
    Ok(lease::one_by_one(served.into_iter().map(|(_, rows)| rows).collect()))
}

/// The tenants that have work due with an agent, the one after the last that was served first. Each is looked up when it is
/// asked for: no more of them than there is room, if they have anything that may be taken.
struct Line<'a> {
    room: &'a Room,
    after: TenantId,
    /// It went on from the first tenant, and ends with the one that was served last.
    wrapped: bool,
}

impl<'a> Line<'a> {
    fn of(room: &'a Room) -> Self {
        match room.tenants {
            // From the one before it, and no further.
            Tenants::Only(tenant) => Self { room, after: TenantId(tenant.0.saturating_sub(1)), wrapped: true },
            Tenants::AllBut(_) => {
                Self { room, after: room.after.unwrap_or(TenantId(i64::MIN)), wrapped: room.after.is_none() }
            }
        }
    }

    /// Whether a tenant stands behind the last one of the line.
    fn is_past(&self, tenant: TenantId) -> bool {
        match self.room.tenants {
            Tenants::Only(only) => tenant > only,
            Tenants::AllBut(_) => self.room.after.is_some_and(|last| tenant > last),
        }
    }

    fn next(&mut self, batch: &Batch<'_>) -> Result<Option<TenantId>> {
        loop {
            match head(batch.conn, &self.room.agent, self.after)? {
                Some((tenant, _)) if self.wrapped && self.is_past(tenant) => return Ok(None),
                Some((tenant, due)) => {
                    self.after = tenant;
                    if due <= batch.now && self.room.tenants.have(tenant) && self.room.shares.left(tenant) > 0 {
                        return Ok(Some(tenant));
                    }
                }
                None if self.wrapped => return Ok(None),
                None => {
                    self.wrapped = true;
                    self.after = TenantId(i64::MIN);
                }
            }
        }
    }
}

/// So many due rows of a tenant that may be taken, after the first `skip` of them.
fn rows_of(
    batch: &Batch<'_>,
    claim: &Claim,
    room: &Room,
    tenant: TenantId,
    mut skip: usize,
    limit: usize,
) -> Result<Vec<TaskRow>> {
    let mut due = batch.conn.prepare_cached(&DUE)?;
    let mut rows = due.query(params![room.agent.as_str(), tenant.0, batch.now.0])?;
    let mut found = Vec::new();
    let mut unreadable = Vec::new();
    while found.len() < limit
        && let Some(next) = rows.next()?
    {
        match row::read(next) {
            Ok(row) if !claim.may_have(row.owner.as_deref(), row.task) => {}
            Ok(_) if skip > 0 => skip -= 1,
            Ok(row) => found.push(row),
            Err(error) => {
                let pk: i64 = next.get(0)?;
                tracing::error!(task.pk = pk, %error, "a due task cannot be read and steps aside");
                unreadable.push(pk);
            }
        }
    }
    set_aside(batch, unreadable)?;
    Ok(found)
}

/// What cannot be read is not looked at again for a while.
pub(super) fn set_aside(batch: &Batch<'_>, unreadable: Vec<i64>) -> Result<()> {
    for pk in unreadable {
        let later = batch.now.after(STEP_ASIDE).0;
        batch.conn.prepare_cached("UPDATE a2a_tasks SET due_at = ?2 WHERE pk = ?1")?.execute(params![pk, later])?;
    }
    Ok(())
}

pub(super) fn renew(batch: &mut Batch<'_>, leases: &[Lease], lasts: Duration) -> Result<Vec<Lease>> {
    batch.rows.forget();
    let until = batch.now.after(lasts).0;
    let mut renew = batch.conn.prepare_cached(
        "UPDATE a2a_tasks SET due_at = ?1, interrupted = 0, overdue = 0
         WHERE task_id = ?2 AND tenant_id = ?3 AND generation = ?4 AND owner = ?5",
    )?;
    let mut lost = Vec::new();
    for lease in leases {
        let generation = codec::signed(lease.generation);
        let holder = lease.holder.as_str();
        let renewed = renew.execute(params![until, lease.task.to_string(), lease.tenant.0, generation, holder])?;
        if renewed == 0 && !fault::is_on("no-fence") {
            lost.push(lease.clone());
        }
    }
    // Along with what is written anyway: who renews nothing needs no commit.
    if lost.len() < leases.len() {
        Clock::save(batch.conn, batch.now)?;
    }
    Ok(lost)
}

/// The other instances that are known, by themselves or by leases they hold.
pub(super) fn other_instances(conn: &Connection, me: &str) -> Result<Vec<String>> {
    let mut others = conn.prepare_cached(OTHERS)?;
    let others = others.query_map([me], |row| row.get(0))?;
    Ok(others.collect::<Result<_, _>>()?)
}

/// Makes the leases of dead instances due. The owner stays: fencing goes by it until somebody takes the work.
pub(super) fn reclaim(batch: &mut Batch<'_>, dead: &[String]) -> Result<usize> {
    batch.rows.forget();
    let mut reclaimed = 0;
    for id in dead {
        for reclaim in RECLAIM {
            reclaimed += batch.conn.prepare_cached(reclaim)?.execute(params![batch.now.0, id])?;
        }
        batch.owed += push::reclaim(batch, id)?;
        batch.conn.prepare_cached("DELETE FROM instances WHERE id = ?1")?.execute([id])?;
    }
    batch.poke |= reclaimed > 0;
    Ok(reclaimed)
}

/// The tasks that these holders have and that carry a cancel mark.
pub(super) fn marked(conn: &Connection, holders: &[Holder]) -> Result<Vec<TaskId>> {
    let mut marked = conn.prepare_cached("SELECT task_id FROM a2a_tasks WHERE cancel_mark = 1 AND owner = ?1")?;
    let mut tasks = Vec::new();
    for holder in holders {
        let mut rows = marked.query([holder.as_str()])?;
        while let Some(row) = rows.next()? {
            let task = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from).map_err(Error::from)?;
            tasks.push(codec::parse_task(task)?);
        }
    }
    Ok(tasks)
}
