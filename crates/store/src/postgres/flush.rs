//! Writing what a batch has changed: one statement a table, whatever the number of operations, and the COMMIT, all sent
//! together.
//!
//! **A commit whose answer is lost can be looked up.** The transaction inserts the batch's own id into `commits`. If the
//! connection breaks before the answer, [`settle`] inserts the same id with a mark that it is void. Either that finds the
//! batch's row: it was committed. Or it does not: then the batch is not committed, and never will be, since its own
//! insert of the id would fail from then on; the insert waits for a transaction that is still running. An attempt to
//! settle that is cut off itself can be repeated, because the mark tells whose row is there (tests:
//! `a_commit_whose_answer_is_lost_is_not_repeated`, `a_commit_that_never_arrived_is_repeated`).
//!
//! **Counters have shards.** Each instance adds to rows of its own and sums are read over all of them, so instances do
//! not wait for each other's commits. They are written last and sorted, in case two instances do share a shard
//! (every test with two instances ends with `check_sums`).
//!
//! **NOTIFY is a hint.** It names the tasks whose logs have grown, and the server delivers it after the commit. Whoever
//! hears it reads the log; whoever does not finds the log by looking.

use futures_util::future::join_all;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{
    batch::{Batch, Change, Put, Use},
    fetch::{Sql, number, uuid},
    writer::Session,
};
use crate::{
    LeaseTime, NewPush, News, TaskId, codec,
    ops::{
        Owes, TaskRow,
        columns::{self, Column, Columns},
        task_columns,
    },
    push::dialect_code,
    wake,
};

/// The parameters of a statement.
type Values<'a> = Vec<&'a (dyn ToSql + Sync)>;

/// What a batch is written with.
pub(super) struct Seal<'a> {
    /// The batch's id.
    pub(super) id: Uuid,
    /// The shard of counters that this instance adds to.
    pub(super) shard: i16,
    /// What other instances are told.
    pub(super) notice: Option<&'a str>,
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    Committed,
    /// It never was committed and never will be.
    Void,
}

const COMMITS: &str = "INSERT INTO commits (id, at) VALUES ($1, lease_now())";

/// A void one has a negative time.
const VOID: &str = "INSERT INTO commits (id, at) VALUES ($1, -lease_now()) ON CONFLICT (id) DO NOTHING";
const SETTLED: &str = "SELECT at >= 0, lease_now() FROM commits WHERE id = $1";

/// Rows that are due and cannot be read are not looked at again for an hour.
const STEP_ASIDE: &str = "UPDATE a2a_tasks SET due_at = lease_now() + 3600000 WHERE task_id = ANY ($1::uuid[])";

static INSERT_TASKS: Sql = Sql::new(|| {
    let names = columns::list(columns::all(), |(name, _)| (*name).to_owned());
    let arrays = arrays(columns::all());
    format!("INSERT INTO a2a_tasks (task_id, {names}) SELECT * FROM unnest($1::uuid[], {arrays})").leak()
});

static UPDATE_TASKS: Sql = Sql::new(|| {
    let changing = || columns::CHANGING.iter();
    let sets = columns::list(changing(), |(name, _)| format!("{name} = u.{name}"));
    let names = columns::list(changing(), |(name, _)| (*name).to_owned());
    let arrays = arrays(changing());
    format!(
        "UPDATE a2a_tasks t SET {sets} FROM unnest($1::uuid[], {arrays}) AS u (task_id, {names})
         WHERE t.task_id = u.task_id"
    )
    .leak()
});

/// The parameters from `$2` on, an array for each column.
fn arrays<'c>(columns: impl Iterator<Item = &'c Column>) -> String {
    let arrays = columns.zip(2..).map(|((_, sql), n)| format!("${n}::{sql}[]"));
    arrays.collect::<Vec<_>>().join(", ")
}

/// What a running turn says changes no indexed column.
const TOUCH_TASKS: &str = "UPDATE a2a_tasks t SET seq = u.seq, updated_at = u.updated_at
     FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS u (task_id, seq, updated_at) WHERE t.task_id = u.task_id";

const EVENTS: &str = "INSERT INTO a2a_events (task, seq, at, kind, body)
     SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::smallint[], $5::bytea[])";

const MESSAGES: &str = "INSERT INTO messages (task, message_id, role, status, turn, body, created_at)
     SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::integer[], $6::bytea[], $7::bigint[])";

const MOVE_MESSAGES: &str = "UPDATE messages m SET status = u.status
     FROM unnest($1::uuid[], $2::integer[], $3::text[]) AS u (task, turn, status)
     WHERE m.task = u.task AND m.turn = u.turn AND m.status IN ('pending', 'in_progress')";

const CHANGE_KEYS: &str = "INSERT INTO idempotency (tenant_id, key, fingerprint, task, turn, expires)
     SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::uuid[], $5::integer[], $6::bigint[])
     ON CONFLICT (tenant_id, key) DO UPDATE
       SET fingerprint = excluded.fingerprint, task = excluded.task, turn = excluded.turn, expires = excluded.expires";

const FREE_KEYS: &str = "DELETE FROM idempotency i USING unnest($1::bigint[], $2::bytea[]) AS k (tenant_id, key)
     WHERE i.tenant_id = k.tenant_id AND i.key = k.key";

const COUNTS: &str = "INSERT INTO task_counts AS c (tenant_id, agent_id, state, n, shard)
     SELECT *, $5::smallint FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[])
     ON CONFLICT (tenant_id, agent_id, state, shard) DO UPDATE SET n = c.n + excluded.n";

/// Removes artifacts, `$4` to `$8`, and takes what they held off what the tenants use.
const USAGE: &str = "WITH gone AS (
       DELETE FROM a2a_artifacts a
       USING unnest($4::bigint[], $5::uuid[], $6::text[], $7::integer[], $8::bigint[])
         AS r (tenant_id, task, artifact_id, turn, after)
       WHERE a.task = r.task AND (r.artifact_id IS NULL OR a.artifact_id = r.artifact_id)
         AND (r.turn IS NULL OR a.turn = r.turn) AND (r.after IS NULL OR a.seq > r.after)
       RETURNING r.tenant_id, length(a.body) AS bytes),
     changed (tenant_id, tasks, bytes) AS (
       SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[])
       UNION ALL SELECT tenant_id, 0, -bytes FROM gone)
     INSERT INTO tenant_usage AS u (tenant_id, tasks, bytes, shard)
     SELECT tenant_id, sum(tasks), sum(bytes), $9::smallint FROM changed GROUP BY tenant_id ORDER BY tenant_id
     ON CONFLICT (tenant_id, shard) DO UPDATE SET tasks = u.tasks + excluded.tasks, bytes = u.bytes + excluded.bytes";

const ARTIFACTS: &str = "INSERT INTO a2a_artifacts (task, turn, artifact_id, append, body, seq)
     SELECT * FROM unnest($1::uuid[], $2::integer[], $3::text[], $4::boolean[], $5::bytea[], $6::bigint[])";

/// Makes or replaces push configurations: what is the same, and what becomes of a lease, is as in `sqlite/push.rs`.
static PUT_PUSHES: Sql = Sql::new(|| {
    let same = "((c.url, c.scheme, c.dialect, c.chunks, c.state)
         = (excluded.url, excluded.scheme, excluded.dialect, excluded.chunks, 0))";
    format!(
        "INSERT INTO push_configs AS c
           (task, tenant_id, config_id, url, receiver, scheme, sealed, dialect, chunks, created_at, seq, bytes, generation, owed)
         SELECT *, n.seq FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[],
                                     $8::bigint[], $9::boolean[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[])
           AS n (task, tenant_id, config_id, url, receiver, scheme, sealed, dialect, chunks, created_at, seq, bytes, generation)
         ON CONFLICT (task, config_id) DO UPDATE
         SET sealed = excluded.sealed, bytes = excluded.bytes, url = excluded.url, receiver = excluded.receiver,
             scheme = excluded.scheme, dialect = excluded.dialect, chunks = excluded.chunks,
             created_at = CASE WHEN {same} THEN c.created_at ELSE excluded.created_at END,
             part = CASE WHEN {same} THEN c.part ELSE 0 END,
             attempt = CASE WHEN {same} THEN c.attempt ELSE 0 END,
             state = 0,
             generation = CASE WHEN {same} THEN c.generation ELSE c.generation + 1 END,
             due_at = CASE WHEN c.owner IS NOT NULL OR ({same} AND c.due_at IS NOT NULL) THEN c.due_at
                           WHEN c.due_at IS NOT NULL OR c.owed > c.seq OR c.part > 0 OR c.letters > 0 THEN lease_clock() END"
    )
    .leak()
});

const REMOVE_PUSHES: &str = "DELETE FROM push_configs c USING unnest($1::uuid[], $2::text[]) AS r (task, config_id)
     WHERE c.task = r.task AND c.config_id = r.config_id";

/// Whoever tells these tasks' events has something to tell. `owed` is written whatever the lease, see `push.rs`.
const OWE: &str = "UPDATE push_configs c
     SET owed = o.seq, due_at = CASE WHEN c.due_at IS NULL AND c.state = 0 THEN lease_clock() ELSE c.due_at END
     FROM unnest($1::uuid[], $2::bigint[], $3::boolean[]) AS o (task, seq, everyone)
     WHERE c.task = o.task AND (c.chunks OR o.everyone)";

const NOTIFY: &str = "SELECT pg_notify($1, $2)";

/// Prepared on every writing session.
pub(super) fn statements() -> [&'static str; 19] {
    [
        STEP_ASIDE,
        COMMITS,
        VOID,
        SETTLED,
        *INSERT_TASKS,
        *UPDATE_TASKS,
        TOUCH_TASKS,
        EVENTS,
        MESSAGES,
        MOVE_MESSAGES,
        CHANGE_KEYS,
        FREE_KEYS,
        COUNTS,
        USAGE,
        ARTIFACTS,
        *PUT_PUSHES,
        REMOVE_PUSHES,
        OWE,
        NOTIFY,
    ]
}

/// What other instances are to hear of a batch.
pub(super) fn news(batch: &Batch) -> News {
    News::of(batch.events.iter().map(|(task, event)| (*task, event.seq)), batch.poke)
}

/// Writes the batch and commits it. When it fails with an answer of the server's, nothing was committed.
pub(super) async fn flush(session: &Session, batch: &Batch, seal: &Seal<'_>) -> Result<(), tokio_postgres::Error> {
    let of = |change| batch.tasks.values().filter(move |entry| entry.change == change).map(|entry| &entry.row);
    let inserted = TaskColumns::of(of(Change::Inserted));
    let updated = TaskColumns::of(of(Change::Saved));
    let touched = TaskColumns::of(of(Change::Touched));
    let events = EventColumns::of(batch);
    let messages = MessageColumns::of(batch);
    let moved = MovedColumns::of(batch);
    let keys = KeyColumns::of(batch);
    let counts = CountColumns::of(batch);
    let usage = UsageColumns::of(batch);
    let artifacts = ArtifactColumns::of(batch);
    let pushes = PutColumns::of(batch);
    let owed = OwedColumns::of(batch);
    let shard = seal.shard;

    let mut writes: Vec<(&'static str, Values<'_>)> = vec![(COMMITS, vec![&seal.id])];
    let mut write_if = |needed: bool, sql: &'static str, values: Vec<_>| {
        if needed {
            writes.push((sql, values));
        }
    };
    write_if(!batch.unreadable.is_empty(), STEP_ASIDE, vec![&batch.unreadable]);
    write_if(!inserted.ids.is_empty(), *INSERT_TASKS, inserted.all());
    write_if(!updated.ids.is_empty(), *UPDATE_TASKS, updated.changing());
    write_if(!touched.ids.is_empty(), TOUCH_TASKS, vec![&touched.ids, &touched.seq, &touched.updated_at]);
    write_if(!events.tasks.is_empty(), EVENTS, events.all());
    write_if(!messages.tasks.is_empty(), MESSAGES, messages.all());
    write_if(!moved.tasks.is_empty(), MOVE_MESSAGES, vec![&moved.tasks, &moved.turns, &moved.statuses]);
    write_if(!keys.tenants.is_empty(), CHANGE_KEYS, keys.changed());
    write_if(!keys.freed_tenants.is_empty(), FREE_KEYS, vec![&keys.freed_tenants, &keys.freed_keys]);
    write_if(!counts.tenants.is_empty(), COUNTS, counts.all(&shard));
    write_if(!usage.is_empty(), USAGE, usage.all(&shard));
    write_if(!artifacts.tasks.is_empty(), ARTIFACTS, artifacts.all());
    // What was removed and made again is another one.
    write_if(!pushes.removed.is_empty(), REMOVE_PUSHES, vec![&pushes.removed, &pushes.removed_ids]);
    write_if(!pushes.tasks.is_empty(), *PUT_PUSHES, pushes.all());
    write_if(!owed.tasks.is_empty(), OWE, vec![&owed.tasks, &owed.seqs, &owed.everyone]);
    write_if(seal.notice.is_some(), NOTIFY, vec![&wake::CHANNEL, &seal.notice]);

    // Sent in this order without waiting in between. After a failure the server refuses the rest, and the COMMIT of a
    // transaction that has failed rolls it back.
    let (written, committed) = tokio::join!(
        biased;
        join_all(writes.iter().map(|(sql, values)| session.execute(sql, values))),
        session.client.batch_execute("COMMIT"),
    );
    for statement in written {
        statement?;
    }
    committed
}

/// Finds out what became of the batch, and makes sure that it stays so. Also says what time it is there.
pub(super) async fn settle(session: &Session, id: Uuid) -> Result<(Settled, LeaseTime), tokio_postgres::Error> {
    session.execute(VOID, &[&id]).await?;
    let rows = session.query(SETTLED, &[&id]).await?;
    let Some(row) = rows.first() else { return Ok((Settled::Void, LeaseTime(i64::MAX))) };
    let settled = if row.try_get(0)? { Settled::Committed } else { Settled::Void };
    Ok((settled, LeaseTime(row.try_get(1)?)))
}

macro_rules! define {
    ($([$once:ident $once_sql:ident $once_type:ty])*; $([$name:ident $sql:ident $type:ty])*) => {
        #[derive(Default)]
        struct TaskColumns<'a> {
            ids: Vec<Uuid>,
            $($once: Vec<$once_type>,)*
            $($name: Vec<$type>,)*
        }

        impl<'a> TaskColumns<'a> {
            fn add(&mut self, task: TaskId, columns: Columns<'a>) {
                self.ids.push(uuid(task));
                $(self.$once.push(columns.$once);)*
                $(self.$name.push(columns.$name);)*
            }

            fn all(&self) -> Values<'_> {
                vec![&self.ids, $(&self.$once,)* $(&self.$name),*]
            }

            fn changing(&self) -> Values<'_> {
                vec![&self.ids, $(&self.$name),*]
            }
        }
    };
}
task_columns!(define);

impl<'a> TaskColumns<'a> {
    fn of(rows: impl Iterator<Item = &'a TaskRow>) -> Self {
        let mut columns = Self::default();
        for row in rows {
            columns.add(row.task, Columns::of(row));
        }
        columns
    }
}

#[derive(Default)]
struct EventColumns<'a> {
    tasks: Vec<Uuid>,
    seqs: Vec<i64>,
    ats: Vec<i64>,
    kinds: Vec<i16>,
    bodies: Vec<&'a [u8]>,
}

impl<'a> EventColumns<'a> {
    fn of(batch: &'a Batch) -> Self {
        let mut columns = Self::default();
        for (task, event) in &batch.events {
            columns.tasks.push(uuid(*task));
            columns.seqs.push(codec::signed(event.seq));
            columns.ats.push(event.at.as_millis());
            columns.kinds.push(i16::try_from(codec::kind_code(event.kind)).unwrap_or(i16::MAX));
            columns.bodies.push(&event.body);
        }
        columns
    }

    fn all(&self) -> Values<'_> {
        vec![&self.tasks, &self.seqs, &self.ats, &self.kinds, &self.bodies]
    }
}

#[derive(Default)]
struct MessageColumns<'a> {
    tasks: Vec<Uuid>,
    ids: Vec<&'a str>,
    roles: Vec<&'a str>,
    statuses: Vec<&'a str>,
    turns: Vec<i32>,
    bodies: Vec<&'a [u8]>,
    ats: Vec<i64>,
}

impl<'a> MessageColumns<'a> {
    fn of(batch: &'a Batch) -> Self {
        let mut columns = Self::default();
        for message in &batch.messages {
            columns.tasks.push(uuid(message.task));
            columns.ids.push(&message.id);
            columns.roles.push(message.role);
            columns.statuses.push(message.status);
            columns.turns.push(number(message.turn));
            columns.bodies.push(&message.body);
            columns.ats.push(message.at);
        }
        columns
    }

    fn all(&self) -> Values<'_> {
        vec![&self.tasks, &self.ids, &self.roles, &self.statuses, &self.turns, &self.bodies, &self.ats]
    }
}

#[derive(Default)]
struct MovedColumns {
    tasks: Vec<Uuid>,
    turns: Vec<i32>,
    statuses: Vec<&'static str>,
}

impl MovedColumns {
    fn of(batch: &Batch) -> Self {
        let mut columns = Self::default();
        for ((task, turn), status) in &batch.moved {
            columns.tasks.push(uuid(*task));
            columns.turns.push(number(*turn));
            columns.statuses.push(status);
        }
        columns
    }
}

#[derive(Default)]
struct KeyColumns<'a> {
    tenants: Vec<i64>,
    keys: Vec<&'a [u8]>,
    fingerprints: Vec<&'a [u8]>,
    tasks: Vec<Uuid>,
    turns: Vec<i32>,
    expires: Vec<Option<i64>>,
    freed_tenants: Vec<i64>,
    freed_keys: Vec<&'a [u8]>,
}

impl<'a> KeyColumns<'a> {
    /// Most keys were reserved as what they became, and need nothing more.
    fn of(batch: &'a Batch) -> Self {
        let mut columns = Self::default();
        for ((tenant, hash), key) in &batch.keys {
            match &key.used {
                Some(used) if key.changed && key.reserved.as_ref() != Some(used) => {
                    let Use { fingerprint, task, turn, expires } = used;
                    columns.tenants.push(tenant.0);
                    columns.keys.push(hash);
                    columns.fingerprints.push(fingerprint);
                    columns.tasks.push(uuid(*task));
                    columns.turns.push(number(*turn));
                    columns.expires.push(*expires);
                }
                _ if key.reserved.is_some() && !key.changed => {
                    columns.freed_tenants.push(tenant.0);
                    columns.freed_keys.push(hash);
                }
                _ => {}
            }
        }
        columns
    }

    fn changed(&self) -> Values<'_> {
        vec![&self.tenants, &self.keys, &self.fingerprints, &self.tasks, &self.turns, &self.expires]
    }
}

#[derive(Default)]
struct CountColumns<'a> {
    tenants: Vec<i64>,
    agents: Vec<&'a str>,
    states: Vec<&'a str>,
    numbers: Vec<i64>,
}

impl<'a> CountColumns<'a> {
    fn of(batch: &'a Batch) -> Self {
        let mut columns = Self::default();
        for ((tenant, agent, state), n) in batch.counts.iter().filter(|(_, n)| **n != 0) {
            columns.tenants.push(tenant.0);
            columns.agents.push(agent.as_str());
            columns.states.push(state);
            columns.numbers.push(*n);
        }
        columns
    }

    fn all<'v>(&'v self, shard: &'v i16) -> Values<'v> {
        vec![&self.tenants, &self.agents, &self.states, &self.numbers, shard]
    }
}

#[derive(Default)]
struct UsageColumns<'a> {
    tenants: Vec<i64>,
    tasks: Vec<i64>,
    bytes: Vec<i64>,
    removal_tenants: Vec<i64>,
    removal_tasks: Vec<Uuid>,
    removal_ids: Vec<Option<&'a str>>,
    removal_turns: Vec<Option<i32>>,
    removal_afters: Vec<Option<i64>>,
}

impl<'a> UsageColumns<'a> {
    fn of(batch: &'a Batch) -> Self {
        let mut columns = Self::default();
        for (tenant, used) in batch.usage.iter().filter(|(_, used)| used.tasks != 0 || used.bytes != 0) {
            columns.tenants.push(tenant.0);
            columns.tasks.push(used.tasks);
            columns.bytes.push(used.bytes);
        }
        for removal in &batch.removals {
            columns.removal_tenants.push(removal.tenant.0);
            columns.removal_tasks.push(uuid(removal.task));
            columns.removal_ids.push(removal.id.as_deref());
            columns.removal_turns.push(removal.turn.map(number));
            columns.removal_afters.push(removal.after.map(codec::signed));
        }
        columns
    }

    fn is_empty(&self) -> bool {
        self.tenants.is_empty() && self.removal_tenants.is_empty()
    }

    fn all<'v>(&'v self, shard: &'v i16) -> Values<'v> {
        let mut values: Values<'v> = vec![&self.tenants, &self.tasks, &self.bytes];
        values.extend([&self.removal_tenants as &(dyn ToSql + Sync), &self.removal_tasks, &self.removal_ids]);
        values.extend([&self.removal_turns as &(dyn ToSql + Sync), &self.removal_afters, shard]);
        values
    }
}

#[derive(Default)]
struct ArtifactColumns<'a> {
    tasks: Vec<Uuid>,
    turns: Vec<i32>,
    ids: Vec<&'a str>,
    appends: Vec<bool>,
    bodies: Vec<&'a [u8]>,
    seqs: Vec<i64>,
}

impl<'a> ArtifactColumns<'a> {
    fn of(batch: &'a Batch) -> Self {
        let mut columns = Self::default();
        for artifact in &batch.artifacts {
            columns.tasks.push(uuid(artifact.task));
            columns.turns.push(number(artifact.turn));
            columns.ids.push(&artifact.id);
            columns.appends.push(artifact.append);
            columns.bodies.push(&artifact.body);
            columns.seqs.push(codec::signed(artifact.seq));
        }
        columns
    }

    fn all(&self) -> Values<'_> {
        vec![&self.tasks, &self.turns, &self.ids, &self.appends, &self.bodies, &self.seqs]
    }
}

#[derive(Default)]
struct PutColumns<'a> {
    tasks: Vec<Uuid>,
    tenants: Vec<i64>,
    ids: Vec<&'a str>,
    urls: Vec<&'a str>,
    receivers: Vec<&'a str>,
    schemes: Vec<&'a str>,
    sealed: Vec<&'a [u8]>,
    dialects: Vec<i64>,
    chunks: Vec<bool>,
    ats: Vec<i64>,
    froms: Vec<i64>,
    bytes: Vec<i64>,
    generations: Vec<i64>,
    removed: Vec<Uuid>,
    removed_ids: Vec<&'a str>,
}

impl<'a> PutColumns<'a> {
    fn of(batch: &'a Batch) -> Self {
        let mut columns = Self::default();
        for ((task, _), Put { tenant, new, from, at }) in &batch.push_puts {
            columns.tasks.push(uuid(*task));
            columns.tenants.push(tenant.0);
            columns.ids.push(&new.id);
            columns.urls.push(&new.url);
            columns.receivers.push(&new.receiver);
            columns.schemes.push(&new.scheme);
            columns.sealed.push(&new.sealed);
            columns.dialects.push(dialect_code(new.dialect));
            columns.chunks.push(new.chunks);
            columns.ats.push(*at);
            columns.froms.push(codec::signed(*from));
            columns.bytes.push(i64::try_from(new.size()).unwrap_or(i64::MAX));
            columns.generations.push(NewPush::first_generation());
        }
        for (task, id) in &batch.push_removals {
            columns.removed.push(uuid(*task));
            columns.removed_ids.push(id);
        }
        columns
    }

    fn all(&self) -> Values<'_> {
        let mut values: Values<'_> = vec![&self.tasks, &self.tenants, &self.ids, &self.urls, &self.receivers];
        values.extend([&self.schemes as &(dyn ToSql + Sync), &self.sealed, &self.dialects, &self.chunks]);
        values.extend([&self.ats as &(dyn ToSql + Sync), &self.froms, &self.bytes, &self.generations]);
        values
    }
}

#[derive(Default)]
struct OwedColumns {
    tasks: Vec<Uuid>,
    seqs: Vec<i64>,
    everyone: Vec<bool>,
}

impl OwedColumns {
    fn of(batch: &Batch) -> Self {
        let mut columns = Self::default();
        for (task, (seq, owes)) in &batch.owed {
            columns.tasks.push(uuid(*task));
            columns.seqs.push(codec::signed(*seq));
            columns.everyone.push(*owes == Owes::All);
        }
        columns
    }
}
