//! Reading tasks: heads, snapshots, lists, logs and histories.
//!
//! Each function is one statement: the server runs a statement on one snapshot, so a task is read as of one sequence
//! number and a page with its total, without a transaction and in one round trip.

use std::{collections::HashMap, sync::LazyLock};

use bytes::Bytes;
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

use super::pool::Pool;
use crate::{
    AgentId, CHILDREN_SCANNED, Error, Event, Filter, MOST_COUNTED, Most, OwedCancel, Page, PageKey, Result, Snapshot,
    TaskHead, TaskId, TenantId, Tokens, View, codec,
    retention::refuse_pruned,
    talk::{ALL_BYTES, Room, SAID_BYTES, TURN_BYTES, Talk},
};

pub(super) async fn head(pool: &Pool, tenant: TenantId, task: TaskId) -> Result<TaskHead> {
    let sql = "SELECT agent_id, context_id, state, seq, hidden, turn::bigint, kept, origin FROM a2a_tasks
               WHERE task_id = $1 AND tenant_id = $2";
    let row = pool.query_opt(sql, &[&uuid(task), &tenant.0]).await?.ok_or(Error::NotFound)?;
    Ok(TaskHead {
        agent: codec::parse_agent(row.try_get(0)?)?,
        context: row.try_get::<_, &str>(1)?.into(),
        state: codec::parse_state(row.try_get(2)?)?,
        seq: codec::unsigned(row.try_get(3)?),
        hidden: row.try_get::<_, i16>(4)? != 0,
        turn: codec::small(row.try_get(5)?),
        kept: codec::unsigned(row.try_get(6)?),
        origin: row.try_get::<_, Option<&str>>(7)?.map(Into::into),
    })
}

/// What [`snapshot`] reads of `a2a_tasks t`, `said` and `made`, of a row that `is_read` says.
fn snapshot_if(is_read: &str) -> String {
    format!(
        "t.task_id, t.agent_id, t.context_id, t.state, t.status_at, CASE WHEN {is_read} THEN t.status_message END, t.seq,
         said.bodies, made.ids, made.bodies, made.turns, t.input_tokens, t.output_tokens"
    )
}

/// The last messages and all artifacts of a task `t`, if the row is one that `is_read` says. The two values are how many messages (NULL for
/// all) and whether artifacts are wanted.
fn content(messages: &str, artifacts: &str, is_read: &str) -> String {
    format!(
        "LEFT JOIN LATERAL (
           SELECT array_agg(m.body ORDER BY m.pos) AS bodies
           FROM (SELECT pos, body FROM messages WHERE task = t.task_id AND {is_read}
                 ORDER BY pos DESC LIMIT {messages}::bigint) m
         ) said ON true
         LEFT JOIN LATERAL (
           SELECT array_agg(a.artifact_id ORDER BY a.pos) AS ids, array_agg(a.body ORDER BY a.pos) AS bodies,
             array_agg(a.turn ORDER BY a.pos) AS turns
           FROM a2a_artifacts a WHERE a.task = t.task_id AND {artifacts}::boolean AND {is_read}
         ) made ON true"
    )
}

/// How many bytes that will be, with the message of the status. The length of what is stored is known without reading it.
fn weight(messages: &str, artifacts: &str) -> String {
    format!(
        "(coalesce(octet_length(t.status_message), 0)
          + coalesce((SELECT sum(octet_length(m.body)) FROM
              (SELECT body FROM messages WHERE task = t.task_id ORDER BY pos DESC LIMIT {messages}::bigint) m), 0)
          + coalesce((SELECT sum(octet_length(a.body)) FROM a2a_artifacts a
              WHERE a.task = t.task_id AND {artifacts}::boolean), 0))::bigint"
    )
}

pub(super) async fn task(pool: &Pool, tenant: TenantId, task: TaskId, view: View) -> Result<Snapshot> {
    let (weight, content) = (weight("$3", "$4"), content("$3", "$4", "w.bytes <= $5"));
    let sql = format!(
        "SELECT w.bytes, {SNAPSHOT} FROM a2a_tasks t CROSS JOIN LATERAL (SELECT {weight} AS bytes) w {content}
         WHERE t.task_id = $1 AND t.tenant_id = $2 AND t.hidden = 0",
        SNAPSHOT = snapshot_if("w.bytes <= $5")
    );
    let messages = view.history.map(i64::from);
    let most = i64::try_from(view.most).unwrap_or(i64::MAX);
    let row = pool.query_opt(&sql, &[&uuid(task), &tenant.0, &messages, &view.artifacts, &most]).await?;
    let row = row.ok_or(Error::NotFound)?;
    let bytes: i64 = row.try_get(0)?;
    if bytes > most {
        return Err(Error::Heavy { bytes: codec::unsigned(bytes) });
    }
    snapshot(&row, 1)
}

/// A task whose columns, those of [`snapshot_if`], begin at `first`.
fn snapshot(row: &Row, first: usize) -> Result<Snapshot> {
    let said: Option<Vec<&[u8]>> = row.try_get(first + 7)?;
    let ids: Option<Vec<&str>> = row.try_get(first + 8)?;
    let chunks: Option<Vec<&[u8]>> = row.try_get(first + 9)?;
    let turns: Option<Vec<i32>> = row.try_get(first + 10)?;
    let (artifacts, made_in) =
        artifacts(&ids.unwrap_or_default(), &chunks.unwrap_or_default(), &turns.unwrap_or_default());
    Ok(Snapshot {
        task: task_id(row.try_get(first)?),
        agent: codec::parse_agent(row.try_get(first + 1)?)?,
        context: row.try_get::<_, &str>(first + 2)?.into(),
        state: codec::parse_state(row.try_get(first + 3)?)?,
        status_at: codec::time(row.try_get(first + 4)?),
        status_message: row.try_get::<_, Option<String>>(first + 5)?.map(Bytes::from),
        seq: codec::unsigned(row.try_get(first + 6)?),
        history: said.unwrap_or_default().into_iter().map(Bytes::copy_from_slice).collect(),
        artifacts,
        made_in,
        tokens: Tokens {
            input: codec::unsigned(row.try_get(first + 11)?),
            output: codec::unsigned(row.try_get(first + 12)?),
        },
    })
}

/// The chunks of each artifact, in order of first appearance.
fn artifacts(ids: &[&str], chunks: &[&[u8]], turns: &[i32]) -> (Vec<Vec<Bytes>>, Vec<u32>) {
    let (mut artifacts, mut made_in): (Vec<Vec<Bytes>>, Vec<u32>) = Default::default();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for ((id, chunk), turn) in ids.iter().zip(chunks).zip(turns) {
        let place = *places.entry(id).or_insert(artifacts.len());
        if place == artifacts.len() {
            artifacts.push(Vec::new());
            made_in.push(codec::small((*turn).into()));
        }
        artifacts[place].push(Bytes::copy_from_slice(chunk));
    }
    (artifacts, made_in)
}

/// A statement that is put together, and its values.
struct Query {
    sql: String,
    values: Vec<Box<dyn ToSql + Sync + Send>>,
}

impl Query {
    /// Adds a value; its placeholder.
    fn value(&mut self, value: impl ToSql + Sync + Send + 'static) -> String {
        self.values.push(Box::new(value));
        format!("${}", self.values.len())
    }
}

pub(super) async fn list(pool: &Pool, tenant: TenantId, filter: &Filter) -> Result<Page> {
    let query = list_query(tenant, filter);
    let values: Vec<&(dyn ToSql + Sync)> = query.values.iter().map(|value| &**value as _).collect();
    let rows = pool.query(&query.sql, &values).await?;
    let mut page = Page { tasks: Vec::new(), next: None, total: 0 };
    for row in &rows {
        page.total = codec::unsigned(row.try_get(0)?);
        // The total comes even when there is no task to go with it.
        if row.try_get::<_, Option<Uuid>>(1)?.is_none() {
            break;
        }
        let (own, all): (i64, i64) = (row.try_get(14)?, row.try_get(15)?);
        let is_cut = codec::unsigned(all) > filter.view.most;
        if is_cut && page.tasks.is_empty() {
            return Err(Error::Heavy { bytes: codec::unsigned(own) });
        }
        if is_cut || page.tasks.len() as u64 == u64::from(filter.limit) {
            let key = |last: &Snapshot| PageKey { status_at: last.status_at, task: last.task };
            page.next = page.tasks.last().map(key);
            break;
        }
        page.tasks.push(snapshot(row, 1)?);
    }
    Ok(page)
}

/// A list is made of those of all agents and states that match, each of which is a range of an index; a count is that of these ranges.
fn list_query(tenant: TenantId, filter: &Filter) -> Query {
    let mut query = Query { sql: String::new(), values: Vec::new() };
    let tenant = query.value(tenant.0);
    let mut wanted = "true".to_owned();
    if let Some(agent) = &filter.agent {
        wanted += &format!(" AND agent_id = {}", query.value(agent.as_str().to_owned()));
    }
    if !filter.among.is_empty() {
        let among: Vec<String> = filter.among.iter().map(AgentId::to_string).collect();
        wanted += &format!(" AND agent_id = ANY({})", query.value(among));
    }
    if let Some(state) = filter.state {
        wanted += &format!(" AND state = {}", query.value(codec::state_name(state)));
    }
    let mut matching = format!("tenant_id = {tenant} AND hidden = 0");
    let groups = match &filter.context {
        None => format!(
            "SELECT agent_id, state FROM task_counts WHERE tenant_id = {tenant} AND {wanted}
             GROUP BY agent_id, state HAVING sum(n) > 0"
        ),
        Some(context) => {
            let context = query.value(context.clone());
            matching += &format!(" AND context_id = {context}");
            // One step in the index for each that there is. With the context in the order no other index will do.
            format!(
                "WITH RECURSIVE present (agent_id, state) AS (
                   SELECT '' COLLATE \"C\", '' COLLATE \"C\"
                   UNION ALL
                   SELECT next.agent_id, next.state FROM present CROSS JOIN LATERAL (
                     SELECT context_id, agent_id, state FROM a2a_tasks WHERE tenant_id = {tenant} AND hidden = 0
                       AND (context_id, agent_id, state) > ({context}, present.agent_id, present.state)
                     ORDER BY context_id, agent_id, state LIMIT 1) next
                   WHERE next.context_id = {context})
                 SELECT agent_id, state FROM present WHERE agent_id <> '' AND {wanted}"
            )
        }
    };
    if let Some(since) = filter.since {
        matching += &format!(" AND status_at >= {}", query.value(since.as_millis()));
    }
    // With an order and a limit it is a range of the index, whatever is known of the tables.
    let of_groups = |columns: &str, after: &str, limit: &str| {
        format!(
            "({groups}) g CROSS JOIN LATERAL (
               SELECT {columns} FROM a2a_tasks
               WHERE {matching} AND agent_id = g.agent_id AND state = g.state{after}
               ORDER BY status_at DESC, task_id DESC LIMIT {limit}) t"
        )
    };
    let total = if filter.context.is_none() && filter.since.is_none() {
        format!("SELECT coalesce(sum(n), 0)::bigint AS n FROM task_counts WHERE tenant_id = {tenant} AND {wanted}")
    } else {
        let most = MOST_COUNTED.to_string();
        format!("SELECT count(*) AS n FROM (SELECT 1 FROM {} LIMIT {most}) c", of_groups("1", "", &most))
    };
    let mut after = String::new();
    if let Some(key) = filter.after {
        let at = query.value(key.status_at.as_millis());
        let task = query.value(uuid(key.task));
        after = format!(" AND (status_at, task_id) < ({at}, {task})");
    }
    // One more than asked for tells whether there is another page.
    let limit = query.value(i64::from(filter.limit) + 1);
    let messages = query.value(filter.view.history.map(i64::from));
    let artifacts = query.value(filter.view.artifacts);
    let most = query.value(i64::try_from(filter.view.most).unwrap_or(i64::MAX));
    let is_read = format!("t.up_to_it <= {most}");
    let (weight, content) = (weight(&messages, &artifacts), content(&messages, &artifacts, &is_read));
    let snapshot = snapshot_if(&is_read);
    let lists = of_groups("*", &after, &limit);
    query.sql = format!(
        "SELECT total.n, {snapshot}, t.bytes, t.up_to_it FROM ({total}) total
         LEFT JOIN LATERAL (
           SELECT t.*, (sum(t.bytes) OVER (ORDER BY status_at DESC, task_id DESC))::bigint AS up_to_it FROM (
             SELECT t.*, {weight} AS bytes FROM (
               SELECT t.* FROM {lists} ORDER BY t.status_at DESC, t.task_id DESC LIMIT {limit}
             ) t
           ) t
         ) t ON true
         {content}
         ORDER BY t.status_at DESC, t.task_id DESC"
    );
    query
}

pub(super) async fn events(
    pool: &Pool,
    tenant: TenantId,
    task: TaskId,
    after: u64,
    most: Most,
) -> Result<(Vec<Event>, bool)> {
    // A task without such events is a row of NULLs, no task is no row. Bodies that are too many stay where they are.
    let sql =
        "SELECT e.seq, e.at, e.kind, CASE WHEN e.up_to_it <= $5 THEN e.body END, t.seq, e.up_to_it FROM a2a_tasks t
               LEFT JOIN LATERAL (
                 SELECT seq, at, kind, body, (sum(octet_length(body)) OVER (ORDER BY seq))::bigint AS up_to_it FROM (
                   SELECT * FROM a2a_events WHERE task = t.task_id AND seq > $3 ORDER BY seq LIMIT $4
                 ) e
               ) e ON true
               WHERE t.task_id = $1 AND t.tenant_id = $2 ORDER BY e.seq";
    let limit = i64::try_from(most.events).unwrap_or(i64::MAX);
    let bytes = i64::try_from(most.bytes).unwrap_or(i64::MAX);
    let rows = pool.query(sql, &[&uuid(task), &tenant.0, &codec::signed(after), &limit, &bytes]).await?;
    let end = codec::unsigned(rows.first().ok_or(Error::NotFound)?.try_get(4)?);
    let mut events = Vec::with_capacity(rows.len());
    for row in &rows {
        let Some(up_to_it) = row.try_get::<_, Option<i64>>(5)? else { break };
        if up_to_it > bytes {
            if events.is_empty() {
                return Err(Error::Heavy { bytes: codec::unsigned(up_to_it) });
            }
            break;
        }
        events.push(event(row, 0)?);
    }
    refuse_pruned(&events, after, end)?;
    let more = events.last().is_some_and(|last| last.seq < end);
    Ok((events, more))
}

/// An event whose columns `seq, at, kind, body` begin at `first`.
pub(super) fn event(row: &Row, first: usize) -> Result<Event> {
    Ok(Event {
        seq: codec::unsigned(row.try_get(first)?),
        at: codec::time(row.try_get(first + 1)?),
        kind: codec::parse_kind(row.try_get::<_, i16>(first + 2)?.into())?,
        body: Bytes::copy_from_slice(row.try_get(first + 3)?),
    })
}

/// What was said in the turns so far of `a2a_tasks t`: what waits in the inbox has not been heard yet. The message of
/// the status, where `with_status` holds, belongs at the end of the turn that said it.
fn talk(with_status: &str) -> String {
    format!(
        "SELECT m.turn, false AS is_status, m.pos, m.body FROM messages m
         WHERE m.task = t.task_id AND m.turn <= t.turn
         UNION ALL
         SELECT t.status_turn, true, 0, convert_to(t.status_message, 'UTF8')
         WHERE t.status_message IS NOT NULL AND {with_status}"
    )
}

/// What [`conversations`] reads of `a2a_tasks t` and `said`. The turn that runs has not replied yet.
const SAID: &str =
    "t.task_id, t.context_id, t.turn - (t.state <> 'completed')::int AS replied, said.turn AS said_in, said.body";

pub(super) async fn history(pool: &Pool, tenant: TenantId, task: TaskId, most: u64) -> Result<Vec<a2a::Message>> {
    let talk = talk("true");
    let sql = format!(
        "SELECT {SAID}, said.bytes FROM a2a_tasks t LEFT JOIN LATERAL (
           SELECT turn, is_status, pos, bytes, CASE WHEN bytes <= $3 THEN body END AS body FROM (
             SELECT *, sum(octet_length(body)) OVER () AS bytes FROM (
               SELECT *, sum(octet_length(body)) OVER (ORDER BY turn DESC, is_status DESC, pos DESC)
                 - octet_length(body) AS newer FROM ({talk}) said) said
             WHERE newer < {SAID_BYTES}) said) said ON true
         WHERE t.task_id = $1 AND t.tenant_id = $2 ORDER BY said.turn, said.is_status, said.pos"
    );
    let rows = pool.query(&sql, &[&uuid(task), &tenant.0, &codec::signed(most)]).await?;
    if rows.is_empty() {
        return Err(Error::NotFound);
    }
    within(&rows, most)?;
    conversations(pool, rows).await
}

/// Refuses messages that have more bytes together than may be read.
fn within(rows: &[Row], most: u64) -> Result<()> {
    let Some(row) = rows.first() else { return Ok(()) };
    let bytes = codec::unsigned(row.try_get::<_, Option<i64>>(5)?.unwrap_or_default());
    if bytes > most { Err(Error::Heavy { bytes }) } else { Ok(()) }
}

pub(super) async fn turn_message(pool: &Pool, tenant: TenantId, task: TaskId, turn: u32) -> Result<a2a::Message> {
    let sql = "SELECT m.body FROM a2a_tasks t JOIN messages m ON m.task = t.task_id
         WHERE t.task_id = $1 AND t.tenant_id = $2 AND m.turn = $3 AND m.status = 'in_progress'";
    let turn = i32::try_from(turn).unwrap_or(i32::MAX);
    let row = pool.query_opt(sql, &[&uuid(task), &tenant.0, &turn]).await?.ok_or(Error::NotFound)?;
    Ok(serde_json::from_slice(row.try_get(0)?)?)
}

pub(super) async fn context_history(
    pool: &Pool,
    tenant: TenantId,
    agent: &AgentId,
    context: &str,
    before: TaskId,
    limit: usize,
    most: u64,
) -> Result<Vec<a2a::Message>> {
    let count = i64::try_from(limit).unwrap_or(i64::MAX);
    let (task, bytes) = (uuid(before), codec::signed(most));
    let asked: [&(dyn ToSql + Sync); 6] = [&tenant.0, &context, &task, &agent.as_str(), &count, &bytes];
    let mut rows = pool.query(&context_query(), &asked).await?;
    within(&rows, most)?;
    rows.reverse();
    let mut messages = conversations(pool, rows).await?;
    messages.drain(..messages.len().saturating_sub(limit));
    Ok(messages)
}

pub(super) async fn context_state(
    pool: &Pool,
    tenant: TenantId,
    agent: &AgentId,
    context: &str,
    before: TaskId,
) -> Result<Option<(TaskId, Event)>> {
    let sql = "SELECT t.task_id, e.seq, e.at, e.kind, e.body FROM a2a_tasks t
           JOIN a2a_events e ON e.task = t.task_id AND e.seq = t.kept
         WHERE t.tenant_id = $1 AND t.context_id = $2 AND t.task_id < $3 AND t.agent_id = $4 AND t.kept > 0
         ORDER BY t.task_id DESC LIMIT 1";
    let row = pool.query_opt(sql, &[&tenant.0, &context, &uuid(before), &agent.as_str()]).await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some((task_id(row.try_get(0)?), event(&row, 1)?)))
}

pub(super) async fn children(pool: &Pool, tenant: TenantId, task: TaskId, limit: usize) -> Result<Vec<TaskId>> {
    let sql = "SELECT task_id FROM (SELECT task_id, tenant_id, hidden, origin FROM a2a_tasks
           WHERE task_id > $1 ORDER BY task_id LIMIT $2) t
         WHERE tenant_id = $3 AND hidden = 0 AND origin::json ->> 'parent' = $4 ORDER BY task_id LIMIT $5";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let from = uuid(task.a_second_before());
    let rows = pool.query(sql, &[&from, &CHILDREN_SCANNED, &tenant.0, &task.to_string(), &limit]).await?;
    rows.iter().map(|row| Ok(task_id(row.try_get(0)?))).collect()
}

pub(super) async fn owed_cancels(pool: &Pool, agents: &[AgentId], limit: usize) -> Result<Vec<OwedCancel>> {
    let sql = "SELECT tenant_id, task_id, agent_id, kept, generation FROM a2a_tasks
         WHERE aftermath = 2 AND agent_id = ANY($1) ORDER BY status_at LIMIT $2";
    let agents: Vec<&str> = agents.iter().map(AgentId::as_str).collect();
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut found = Vec::new();
    for row in pool.query(sql, &[&agents, &limit]).await? {
        found.push(OwedCancel {
            tenant: TenantId(row.try_get(0)?),
            task: task_id(row.try_get(1)?),
            agent: codec::parse_agent(row.try_get(2)?)?,
            kept: codec::unsigned(row.try_get(3)?),
            generation: codec::unsigned(row.try_get(4)?),
        });
    }
    Ok(found)
}

/// Newest first, until there is enough: the index gives the tasks in that order, so older ones are not read.
fn context_query() -> String {
    let talk = talk("t.state IN ('completed', 'failed', 'canceled', 'rejected')");
    let newest = "task_id DESC, said_in DESC, is_status DESC, pos DESC";
    format!(
        "SELECT task_id, context_id, replied, said_in, CASE WHEN bytes <= $6 THEN body END, bytes FROM (
           SELECT *, sum(octet_length(body)) OVER () AS bytes FROM (
           SELECT *, sum(octet_length(body)) OVER (ORDER BY {newest}) - octet_length(body) AS newer FROM (
             SELECT {SAID}, said.is_status, said.pos FROM a2a_tasks t CROSS JOIN LATERAL ({talk}) said
             WHERE t.tenant_id = $1 AND t.context_id = $2 AND t.task_id < $3 AND t.agent_id = $4
             ORDER BY t.task_id DESC, said.turn DESC, said.is_status DESC, said.pos DESC LIMIT $5) said) said
           WHERE newer < {SAID_BYTES}) said ORDER BY {newest}"
    )
}

/// What turns have made, the newest turn first: of each only so much, and only so much of all.
static MADE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT n, artifact_id, body FROM (
           SELECT w.n, a.pos, a.artifact_id, a.body,
             sum(octet_length(a.body)) OVER (PARTITION BY w.n ORDER BY a.pos) - octet_length(a.body) AS of_turn,
             sum(octet_length(a.body)) OVER (ORDER BY w.n, a.pos) - octet_length(a.body) AS of_all
           FROM unnest($1::uuid[], $2::int[]) WITH ORDINALITY AS w (task, turn, n)
           JOIN a2a_artifacts a ON a.task = w.task AND a.turn = w.turn) made
         WHERE of_turn < {TURN_BYTES} AND of_all < {ALL_BYTES} ORDER BY n, pos"
    )
});

/// The messages of rows that are [`SAID`], which come task by task, with the replies that are in artifacts.
async fn conversations(pool: &Pool, rows: Vec<Row>) -> Result<Vec<a2a::Message>> {
    let mut talks = Vec::new();
    let mut silent: Vec<(usize, u32)> = Vec::new();
    for rows in rows.chunk_by(|one, next| one.get::<_, Uuid>(0) == next.get::<_, Uuid>(0)) {
        let first = &rows[0];
        let task: Uuid = first.try_get(0)?;
        let mut talk = Talk::new(task_id(task), &first.try_get::<_, &str>(1)?.into());
        for row in rows {
            if let (Some(turn), Some(body)) = (row.try_get::<_, Option<i32>>(3)?, row.try_get::<_, Option<&[u8]>>(4)?) {
                talk.hear(codec::small(turn.into()), body)?;
            }
        }
        let turns = talk.silent_turns(codec::small(first.try_get::<_, i32>(2)?.into()));
        silent.extend(turns.into_iter().rev().map(|turn| (talks.len(), turn)));
        talks.push((task, talk));
    }
    silent.reverse();
    if !silent.is_empty() {
        let tasks: Vec<Uuid> = silent.iter().map(|(at, _)| talks[*at].0).collect();
        let turns: Vec<i32> = silent.iter().map(|(_, turn)| i32::try_from(*turn).unwrap_or(i32::MAX)).collect();
        let made = pool.query(&MADE, &[&tasks, &turns]).await?;
        let told = tokio::task::spawn_blocking(move || {
            let mut room = Room::default();
            for row in &made {
                let n = usize::try_from(row.try_get::<_, i64>(0)?).unwrap_or(0).saturating_sub(1);
                let Some((at, turn)) = silent.get(n) else { continue };
                talks[*at].1.make(*turn, row.try_get(1)?, row.try_get(2)?, &mut room)?;
            }
            Ok::<_, Error>(talks)
        });
        talks = told.await.map_err(|error| Error::Unavailable(error.to_string()))??;
    }
    Ok(talks.into_iter().flat_map(|(_, talk)| talk.finish()).collect())
}

/// A task's id as the database has it.
pub(super) fn uuid(task: TaskId) -> Uuid {
    Uuid::from_u128(task.as_u128())
}

pub(super) fn task_id(uuid: Uuid) -> TaskId {
    TaskId::from_u128(uuid.as_u128())
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    };

    use tokio_postgres::Client;

    use super::{super::testing, *};

    const TENANT: TenantId = TenantId(7);

    async fn insert_task(client: &Client, task: TaskId, state: &str, status_at: i64, context: &str) {
        client
            .execute(
                "INSERT INTO a2a_tasks (task_id, tenant_id, created_at, updated_at, status_at, seq, turn, status_turn,
                   agent_id, context_id, state)
                 VALUES ($1, 7, 1, 1, $2, 1, 1, 1, 'echo', $3, $4)",
                &[&uuid(task), &status_at, &context, &state],
            )
            .await
            .unwrap();
        let count = "INSERT INTO task_counts AS c (tenant_id, shard, agent_id, state, n) VALUES (7, 1, 'echo', $1, 1)
                     ON CONFLICT (tenant_id, agent_id, state, shard) DO UPDATE SET n = c.n + 1";
        client.execute(count, &[&state]).await.unwrap();
    }

    async fn insert_message(client: &Client, task: TaskId, turn: i32, text: &str) {
        let body = format!(r#"{{"messageId":"{text}","role":"ROLE_USER","parts":[{{"text":"{text}"}}]}}"#);
        client
            .execute(
                "INSERT INTO messages (task, created_at, turn, role, status, message_id, body)
                 VALUES ($1, 1, $2, 'user', 'acked', $3, $4)",
                &[&uuid(task), &turn, &text, &body.as_bytes()],
            )
            .await
            .unwrap();
    }

    fn everything(limit: u32) -> Filter {
        Filter {
            agent: None,
            among: Vec::new(),
            context: None,
            state: None,
            since: None,
            after: None,
            limit,
            view: View::FULL,
        }
    }

    /// Every combination of what a list can be asked for.
    fn filters() -> impl Iterator<Item = Filter> {
        let key = PageKey { status_at: codec::time(9000), task: TaskId::from_u128(u128::MAX) };
        (0..64).map(move |bits| {
            let has = |bit: u32| bits & (1 << bit) != 0;
            Filter {
                agent: has(0).then(|| "echo".parse().unwrap()),
                among: if has(1) { vec!["echo".parse().unwrap(), "slow".parse().unwrap()] } else { Vec::new() },
                context: has(2).then(|| "one".to_owned()),
                state: has(3).then_some(a2a::TaskState::Working),
                since: has(4).then(|| codec::time(9990)),
                after: has(5).then_some(key),
                ..everything(20)
            }
        })
    }

    /// A reader that needs two statements would see a task whose parts do not belong together.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_task_is_read_as_of_one_moment() {
        let database = testing::database().await;
        let client = database.client().await;
        let task = TaskId::mint();
        insert_task(&client, task, "working", 1, "").await;
        insert_message(&client, task, 1, "first").await;
        let (done, seen_enough) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (stop, enough) = (Arc::clone(&done), Arc::clone(&seen_enough));
        // With every event comes a message and an artifact, in one transaction.
        let writing = tokio::spawn(async move {
            let add = "BEGIN;
                UPDATE a2a_tasks SET seq = seq + 1, status_at = status_at + 1;
                INSERT INTO messages (task, created_at, turn, role, status, message_id, body)
                  SELECT task_id, 1, 1, 'user', 'acked', 'm', 'more' FROM a2a_tasks;
                INSERT INTO a2a_artifacts (task, turn, append, artifact_id, body)
                  SELECT task_id, 1, true, 'a', 'chunk' FROM a2a_tasks;
                UPDATE task_counts SET n = n + 1;
                COMMIT";
            for n in 0..5000 {
                client.batch_execute(add).await.unwrap();
                // On a busy machine the reader has to be waited for.
                if n >= 300 && enough.load(Relaxed) {
                    break;
                }
            }
            stop.store(true, Relaxed);
        });
        let pool = database.readers();
        let mut seen = Vec::new();
        while !done.load(Relaxed) {
            let read = super::task(&pool, TENANT, task, View::FULL).await.unwrap();
            let chunks: usize = read.artifacts.iter().map(Vec::len).sum();
            assert_eq!((read.history.len() as u64, chunks as u64), (read.seq, read.seq - 1));
            let page = list(&pool, TENANT, &everything(5)).await.unwrap();
            let read = &page.tasks[0];
            assert_eq!((page.total, read.history.len() as u64), (read.seq, read.seq));
            seen.push(read.seq);
            seen.dedup();
            seen_enough.store(seen.len() > 3, Relaxed);
        }
        writing.await.unwrap();
        assert!(seen.len() > 3, "the task changed while it was read: {seen:?}");
    }

    #[tokio::test]
    async fn totals_and_usage_are_sums_over_shards() {
        let database = testing::database().await;
        let client = database.client().await;
        client
            .batch_execute(
                "INSERT INTO task_counts (tenant_id, shard, agent_id, state, n) VALUES
                   (7, 0, 'echo', 'working', -2), (7, 1, 'echo', 'working', 5), (7, 1, 'echo', 'completed', 4),
                   (7, 9, 'other', 'working', 1), (8, 0, 'echo', 'working', 100);
                 INSERT INTO tenant_usage (tenant_id, shard, tasks, bytes) VALUES (7, 0, -3, 10), (7, 5, 4, 90), (8, 0, 1, 1)",
            )
            .await
            .unwrap();
        let pool = database.readers();
        let of = |agent: Option<&str>, state| Filter {
            agent: agent.map(|agent| agent.parse().unwrap()),
            state,
            ..everything(1)
        };
        for (filter, total) in [
            (of(None, None), 8),
            (of(Some("echo"), None), 7),
            (of(None, Some(a2a::TaskState::Working)), 4),
            (of(Some("other"), Some(a2a::TaskState::Completed)), 0),
        ] {
            let page = list(&pool, TENANT, &filter).await.unwrap();
            assert_eq!((page.total, page.tasks.len(), page.next), (total, 0, None));
        }
        let usage = super::super::registry::usage(&pool, TENANT).await.unwrap();
        assert_eq!(usage, crate::Usage { tasks: 1, bytes: 100 });
    }

    #[tokio::test]
    async fn x_52_a_total_is_exact_unless_more_than_ten_thousand_tasks_have_to_be_counted() {
        let database = testing::database().await;
        let client = database.client().await;
        client
            .batch_execute(
                "INSERT INTO a2a_tasks (task_id, tenant_id, created_at, updated_at, status_at, seq, turn, agent_id,
                   context_id, state)
                 SELECT gen_random_uuid(), 7, 1, 1, n, 1, 1, 'echo', 'one', 'working' FROM generate_series(1, 10001) n;
                 INSERT INTO task_counts (tenant_id, shard, agent_id, state, n) VALUES (7, 1, 'echo', 'working', 10001)",
            )
            .await
            .unwrap();
        let pool = database.readers();
        for (context, since, total) in [
            (None, None, 10_001),
            (Some("one"), None, 10_000),
            (None, Some(1), 10_000),
            (None, Some(3), 9_999),
            (Some("one"), Some(3), 9_999),
        ] {
            let filter = Filter { context: context.map(str::to_owned), since: since.map(codec::time), ..everything(1) };
            assert_eq!(list(&pool, TENANT, &filter).await.unwrap().total, total, "{filter:?}");
        }
    }

    #[tokio::test]
    async fn artifacts_keep_their_order_and_their_chunks_together() {
        let database = testing::database().await;
        let client = database.client().await;
        let task = TaskId::mint();
        insert_task(&client, task, "working", 1, "").await;
        for (id, body) in [("b", "b1"), ("a", "a1"), ("b", "b2"), ("a", "a2"), ("c", "c1")] {
            client
                .execute(
                    "INSERT INTO a2a_artifacts (task, turn, append, artifact_id, body) VALUES ($1, 1, true, $2, $3)",
                    &[&uuid(task), &id, &body.as_bytes()],
                )
                .await
                .unwrap();
        }
        let pool = database.readers();
        let read = super::task(&pool, TENANT, task, View::FULL).await.unwrap();
        assert_eq!(read.artifacts, [vec!["b1", "b2"], vec!["a1", "a2"], vec!["c1"]]);
        let without = View { history: Some(0), artifacts: false, ..View::FULL };
        assert!(super::task(&pool, TENANT, task, without).await.unwrap().artifacts.is_empty());
    }

    /// Ten thousand tasks, of which a page or a context's end are a handful.
    #[tokio::test]
    async fn pages_and_contexts_are_found_by_their_indexes() {
        let database = testing::database().await;
        let client = database.client().await;
        client
            .batch_execute(
                "INSERT INTO a2a_tasks (task_id, tenant_id, created_at, updated_at, status_at, seq, turn, agent_id,
                   context_id, state)
                 SELECT gen_random_uuid(), 7, 1, 1, n, 1, 1, CASE n % 10 WHEN 0 THEN 'slow' ELSE 'echo' END,
                   CASE n % 3 WHEN 0 THEN 'two' ELSE 'one' END, CASE n WHEN 2 THEN 'failed' ELSE 'working' END
                 FROM generate_series(1, 10000) n;
                 INSERT INTO task_counts (tenant_id, shard, agent_id, state, n)
                   SELECT tenant_id, 1, agent_id, state, count(*) FROM a2a_tasks GROUP BY tenant_id, agent_id, state;
                 INSERT INTO messages (task, created_at, turn, role, status, message_id, body)
                   SELECT task_id, 1, 1, 'user', 'acked', 'm', convert_to('{}', 'UTF8') FROM a2a_tasks;
                 ANALYZE",
            )
            .await
            .unwrap();
        for filter in filters() {
            let query = list_query(TENANT, &filter);
            let values: Vec<&(dyn ToSql + Sync)> = query.values.iter().map(|value| &**value as _).collect();
            let plan = plan(&client, &query.sql, &values).await;
            let index = if filter.context.is_some() { "a2a_tasks_in_context" } else { "a2a_tasks_groups" };
            assert!(plan.contains(index) && plan.contains("messages_task"), "{filter:?}: {plan}");
            assert!(
                !plan.contains("Seq Scan on a2a_tasks") && !plan.contains("Seq Scan on messages"),
                "{filter:?}: {plan}"
            );
            // Each scan of the tasks reads no more than it gives.
            let most = plan.lines().filter(|line| line.contains(" on a2a_tasks")).map(|line| {
                let rows = line.split("rows=").last().and_then(|rest| rest.split([' ', '.']).next());
                rows.and_then(|rows| rows.parse::<u64>().ok()).expect("a number of rows")
            });
            let is_counted = filter.context.is_some() || filter.since.is_some();
            assert!(is_counted || most.max() <= Some(21), "{filter:?}: {plan}");
            let mut scan = "";
            let removed = plan.lines().any(|line| {
                scan = if line.contains(" Scan ") { line } else { scan };
                line.contains("Rows Removed by Filter") && scan.contains(" on a2a_tasks")
            });
            assert!(!removed, "{filter:?}: {plan}");
        }
        let before = uuid(TaskId::from_u128(u128::MAX));
        let values: [&(dyn ToSql + Sync); 6] = [&7i64, &"one", &before, &"echo", &20i64, &i64::MAX];
        let plan = self::plan(&client, &context_query(), &values).await;
        assert!(plan.contains("a2a_tasks_context") && plan.contains("Incremental Sort"), "{plan}");
    }

    async fn plan(client: &Client, sql: &str, values: &[&(dyn ToSql + Sync)]) -> String {
        let rows = client.query(&format!("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {sql}"), values).await.unwrap();
        rows.iter().map(|row| row.get::<_, String>(0) + "\n").collect()
    }

    #[tokio::test]
    async fn what_is_damaged_is_said_and_does_not_panic() {
        let database = testing::database().await;
        let client = database.client().await;
        let task = TaskId::mint();
        insert_task(&client, task, "dancing", 1, "").await;
        let pool = database.readers();
        assert!(matches!(head(&pool, TENANT, task).await, Err(Error::Damaged(_))));
        assert!(matches!(super::task(&pool, TENANT, task, View::FULL).await, Err(Error::Damaged(_))));
        assert!(matches!(list(&pool, TENANT, &everything(1)).await, Err(Error::Damaged(_))));
        client
            .batch_execute(
                "INSERT INTO a2a_events (task, seq, at, kind, body) SELECT task_id, 1, 1, 57, '' FROM a2a_tasks",
            )
            .await
            .unwrap();
        assert!(matches!(
            events(&pool, TENANT, task, 0, Most { events: 9, bytes: u64::MAX }).await,
            Err(Error::Damaged(_))
        ));
        client.batch_execute("INSERT INTO messages (task, created_at, turn, role, status, message_id, body) SELECT task_id, 1, 1, 'user', 'acked', 'm', '{' FROM a2a_tasks").await.unwrap();
        assert!(matches!(history(&pool, TENANT, task, u64::MAX).await, Err(Error::Damaged(_))));
    }
}
