//! Who may work on what: what is due, renewing, taking over. Claiming is the writer's (see [`super::fetch`]).
//!
//! None of these decides anything that a lost answer could spoil: said twice, they mean the same.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

use super::{
    fetch::{line, task_id, uuid},
    instances::lock_key,
    pool::Pool,
    retention,
};
use crate::{
    AgentId, Due, Holder, InstanceId, Lease, LeaseTime, Result, TaskId, codec, fault,
    lease::{self, MANY, among},
};

/// A lock that is free must still be so after this to prove anything: sessions that a restart has cut off are back by then.
const SECOND_LOOK: Duration = Duration::from_secs(9);

/// A server that has just been started is not asked who lives: nobody has had the time to come back.
const SETTLED_MS: i64 = 8000;

/// Whose lock was found free, and when first.
#[derive(Default)]
pub(super) struct Suspects(Mutex<HashMap<String, Suspect>>);

struct Suspect {
    since: Instant,
    /// When the last of its leases runs out. One that moves was renewed, and only the living renew.
    lasts_until: Option<i64>,
    /// When the server was started that said so.
    server: i64,
}

impl Suspects {
    /// Takes in who has no session now; gives those who had none at an earlier look at the same server either.
    fn confirm(&self, free: &[(String, Option<i64>)], server: i64, now: Instant) -> Vec<String> {
        let mut suspects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        suspects.retain(|id, suspect| {
            let known = Some(&suspect.lasts_until);
            suspect.server == server && free.iter().find(|(other, _)| other == id).map(|(_, until)| until) == known
        });
        let mut dead = Vec::new();
        for (id, lasts_until) in free {
            let suspect = Suspect { since: now, lasts_until: *lasts_until, server };
            let suspect = suspects.entry(id.clone()).or_insert(suspect);
            if now.saturating_duration_since(suspect.since) >= SECOND_LOOK {
                dead.push(id.clone());
            }
        }
        dead
    }
}

/// The agents that have anything due or running. Their tasks are stepped over.
const BUSY: &str = "WITH RECURSIVE busy (agent) AS (
       (SELECT t.agent_id FROM a2a_tasks t WHERE t.due_at IS NOT NULL AND NOT t.queued ORDER BY t.agent_id LIMIT 1)
       UNION ALL
       SELECT (SELECT t.agent_id FROM a2a_tasks t WHERE t.agent_id > b.agent AND t.due_at IS NOT NULL AND NOT t.queued
          ORDER BY t.agent_id LIMIT 1)
       FROM busy b WHERE b.agent IS NOT NULL)
     SELECT agent FROM busy WHERE agent IS NOT NULL";

pub(super) async fn next_due(readers: &Pool, agents: &[AgentId]) -> Result<Due> {
    let sql = concat!(
        line!(),
        "SELECT lease_now(), min(due_at), array_agg(DISTINCT agent) FILTER (WHERE due_at <= lease_now()) FROM line"
    );
    let busy = if agents.len() > MANY {
        let busy: Vec<String> =
            readers.query(BUSY, &[]).await?.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        Some(among(agents, &busy))
    } else {
        None
    };
    let agents: Vec<&str> = busy.as_deref().unwrap_or(agents).iter().map(AgentId::as_str).collect();
    let row = readers.query_one(sql, &[&agents]).await?;
    let due: Option<Vec<&str>> = row.try_get(2)?;
    let agents = due.unwrap_or_default().into_iter().map(codec::parse_agent).collect::<Result<_>>()?;
    Ok(Due { now: LeaseTime(row.try_get(0)?), next: row.try_get::<_, Option<i64>>(1)?.map(LeaseTime), agents })
}

/// Maximum time for which a renewal waits for rows that somebody has locked.
const LOCK_WAIT: &str = "SET LOCAL lock_timeout = '2s'";

/// Prolongs the leases that are still their holders'; returns the others. Rows are locked in the order of every writer.
///
/// Rows that somebody else has locked are waited for only when all others are prolonged: a lock that is held for longer than a lease
/// must not cost another task its lease.
pub(super) async fn renew(writers: &Pool, leases: &[Lease], lasts: Duration) -> Result<Vec<Lease>> {
    if leases.is_empty() {
        return Ok(Vec::new());
    }
    let sql = |passes_over: &str| {
        format!(
            "WITH held AS (
               SELECT t.task_id, t.generation, t.owner
               FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[]) AS l (task_id, tenant_id, generation, holder)
               JOIN a2a_tasks t ON t.task_id = l.task_id AND t.tenant_id = l.tenant_id AND t.generation = l.generation
                 AND t.owner = l.holder
               ORDER BY t.task_id FOR UPDATE OF t{passes_over})
             UPDATE a2a_tasks t SET due_at = lease_clock() + $5, interrupted = false, overdue = false FROM held
             WHERE t.task_id = held.task_id AND t.generation = held.generation AND t.owner = held.owner
             RETURNING t.task_id, t.generation"
        )
    };
    let lasts = lease::millis(lasts);
    let columns = LeaseColumns::of(leases.iter());
    let rows = writers.query(&sql(" SKIP LOCKED"), &columns.values(&lasts)).await?;
    if fault::is_on("no-fence") {
        return Ok(Vec::new());
    }
    let others = without(leases.iter().collect(), &rows)?;
    if others.is_empty() {
        return Ok(Vec::new());
    }
    // Locked, or lost.
    let columns = LeaseColumns::of(others.iter().copied());
    let rows = retention::run(writers, async |tx| {
        tx.batch_execute(LOCK_WAIT).await?;
        Ok(tx.query(&tx.prepare_cached(&sql("")).await?, &columns.values(&lasts)).await?)
    });
    let lost = without(others, &rows.await?)?;
    Ok(lost.into_iter().cloned().collect())
}

/// The leases that are not among the rows with the task and the generation of each that was prolonged.
fn without<'a>(leases: Vec<&'a Lease>, rows: &[Row]) -> Result<Vec<&'a Lease>> {
    let mut held = HashSet::new();
    for row in rows {
        held.insert((task_id(row.try_get(0)?), codec::unsigned(row.try_get(1)?)));
    }
    Ok(leases.into_iter().filter(|lease| !held.contains(&(lease.task, lease.generation))).collect())
}

struct LeaseColumns<'a> {
    tasks: Vec<Uuid>,
    tenants: Vec<i64>,
    generations: Vec<i64>,
    holders: Vec<&'a str>,
}

impl<'a> LeaseColumns<'a> {
    fn of(leases: impl Iterator<Item = &'a Lease> + Clone) -> Self {
        Self {
            tasks: leases.clone().map(|lease| uuid(lease.task)).collect(),
            tenants: leases.clone().map(|lease| lease.tenant.0).collect(),
            generations: leases.clone().map(|lease| codec::signed(lease.generation)).collect(),
            holders: leases.map(|lease| lease.holder.as_str()).collect(),
        }
    }

    fn values<'v>(&'v self, lasts: &'v i64) -> [&'v (dyn ToSql + Sync); 5] {
        [&self.tasks, &self.tenants, &self.generations, &self.holders, lasts]
    }
}

/// The other instances that are known, by themselves or by leases they hold, and that are gone: their locks were free at
/// an earlier look, and still are.
///
/// The lock is tried for the length of the statement only. When in doubt an instance lives.
pub(super) async fn dead_instances(readers: &Pool, me: &str, suspects: &Suspects) -> Result<Vec<String>> {
    let known = "SELECT k.id, max(k.due_at) FROM (
                   SELECT id, NULL::bigint AS due_at FROM instances WHERE id <> $1
                   UNION ALL SELECT owner, due_at FROM a2a_tasks WHERE due_at IS NOT NULL AND NOT queued AND owner <> $1
                   UNION ALL SELECT owner, due_at FROM a2a_tasks
                     WHERE queued AND owner IS NOT NULL AND due_at IS NOT NULL AND owner <> $1) k
                 GROUP BY k.id";
    let mut ids: Vec<String> = Vec::new();
    let mut untils: HashMap<String, Option<i64>> = HashMap::new();
    let mut keys: Vec<i64> = Vec::new();
    for row in readers.query(known, &[&me]).await? {
        let id: String = row.try_get(0)?;
        // Holders that are no instance have no lock; their leases run out.
        let Some(instance) = InstanceId::parse(&id) else { continue };
        keys.push(lock_key(instance));
        untils.insert(id.clone(), row.try_get(1)?);
        ids.push(id);
    }
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let server = "SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000)::bigint,
                         (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let server = readers.query_one(server, &[]).await?;
    let (started, now): (i64, i64) = (server.try_get(0)?, server.try_get(1)?);
    if now - started < SETTLED_MS {
        return Ok(Vec::new());
    }
    let free = "SELECT i.id FROM unnest($1::text[], $2::bigint[]) AS i (id, lock_key)
                WHERE pg_try_advisory_xact_lock(i.lock_key)";
    let mut found = Vec::new();
    for row in readers.query(free, &[&ids, &keys]).await? {
        let id: String = row.try_get(0)?;
        let until = untils.get(&id).copied().flatten();
        found.push((id, until));
    }
    Ok(suspects.confirm(&found, started, Instant::now()))
}

/// Makes the leases of dead instances due. The owner stays: fencing goes by it until somebody takes the work. What somebody
/// writes to at this moment is passed over; the next call finds it.
pub(super) async fn reclaim(writers: &Pool, dead: &[String]) -> Result<usize> {
    // What is due has an index for each kind of it, and no index has both.
    let mut reclaimed = 0;
    for due in ["due_at IS NOT NULL AND NOT queued", "queued AND owner IS NOT NULL AND due_at IS NOT NULL"] {
        let sql = format!(
            "WITH held AS (
               SELECT task_id FROM a2a_tasks WHERE {due} AND NOT interrupted AND owner = ANY ($1::text[])
               ORDER BY task_id FOR UPDATE SKIP LOCKED)
             UPDATE a2a_tasks t SET due_at = least(t.due_at, lease_now()), interrupted = true
             FROM held WHERE t.task_id = held.task_id AND t.owner = ANY ($1::text[])
             RETURNING t.task_id"
        );
        reclaimed += writers.query(&sql, &[&dead]).await?.len();
    }
    writers.query("DELETE FROM instances WHERE id = ANY ($1::text[])", &[&dead]).await?;
    Ok(reclaimed)
}

/// The tasks that these holders have and that carry a cancel mark.
pub(super) async fn marked(readers: &Pool, holders: &[Holder]) -> Result<Vec<TaskId>> {
    let sql = "SELECT task_id FROM a2a_tasks WHERE cancel_mark AND owner = ANY ($1::text[])";
    let holders: Vec<&str> = holders.iter().map(Holder::as_str).collect();
    let mut tasks = Vec::new();
    for row in readers.query(sql, &[&holders]).await? {
        tasks.push(task_id(row.try_get(0)?));
    }
    Ok(tasks)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Options, fetch::tests::accept, open, testing},
        *,
    };
    use crate::{Claim, Room, Term};

    const MINUTE: Duration = Duration::from_secs(60);

    /// Somebody holds the row of one task for longer than a renewal waits.
    #[tokio::test]
    async fn a_locked_task_keeps_no_other_lease_from_being_renewed() {
        let database = testing::database().await;
        let store = open(&database.url, Options::default()).await.unwrap();
        let tenant = store.create_tenant("acme").await.unwrap().id;
        for _ in 0..2 {
            store.accept(tenant, accept(TaskId::mint(), 1000)).await.unwrap();
        }
        let term = Term { holder: Holder::from(InstanceId::mint()), lasts: MINUTE };
        let claim = Claim::new(term, vec![Room::new("echo".parse().unwrap(), 2)]);
        let mut leases: Vec<Lease> = store.claim(claim).await.unwrap().into_iter().map(|leased| leased.lease).collect();
        leases.sort_by_key(|lease| lease.task);
        let (locked, other) = (uuid(leases[0].task), uuid(leases[1].task));
        let holder = database.client().await;
        holder.batch_execute("BEGIN").await.unwrap();
        holder.execute("SELECT FROM a2a_tasks WHERE task_id = $1 FOR UPDATE", &[&locked]).await.unwrap();

        let due = async || -> i64 {
            let client = database.client().await;
            client.query_one("SELECT due_at FROM a2a_tasks WHERE task_id = $1", &[&other]).await.unwrap().get(0)
        };
        let before = due().await;
        let mut renewal = std::pin::pin!(store.renew(&leases, MINUTE * 10));
        let prolonged = async {
            while due().await == before {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            biased;
            renewed = &mut renewal => panic!("the row of one is locked: {renewed:?}"),
            () = prolonged => {}
        }
        assert!(renewal.await.is_err(), "the lease whose row is locked is neither prolonged nor lost");
        holder.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(store.renew(&leases, MINUTE).await.unwrap(), []);
        let lost = Lease { generation: leases[0].generation + 1, ..leases[0].clone() };
        assert_eq!(store.renew(&[lost.clone(), leases[1].clone()], MINUTE).await.unwrap(), [lost]);
    }

    #[test]
    fn one_look_is_no_proof() {
        let suspects = Suspects::default();
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        let (a, b) = (("a".to_owned(), Some(7)), ("b".to_owned(), None));
        let both = [a.clone(), b];
        let names = |of: &[(String, Option<i64>)]| of.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>();
        assert!(suspects.confirm(&both, 1, start).is_empty(), "the first look");
        assert!(suspects.confirm(&both, 1, later(1)).is_empty(), "too soon");
        // One of them is back; the server was not.
        let one = std::slice::from_ref(&a);
        assert_eq!(suspects.confirm(one, 1, later(10)), names(one));
        assert_eq!(suspects.confirm(&both, 1, later(11)), names(one), "the other one's time begins anew");
        assert!(
            suspects.confirm(&both, 2, later(30)).is_empty(),
            "another server knows nothing of the sessions before"
        );
        assert_eq!(suspects.confirm(&both, 2, later(40)), names(&both));
        // Who has no session and renews all the same is alive.
        let renewed = [("a".to_owned(), Some(8))];
        assert!(suspects.confirm(&renewed, 2, later(50)).is_empty());
        assert_eq!(suspects.confirm(&renewed, 2, later(60)), names(&renewed));
    }
}
