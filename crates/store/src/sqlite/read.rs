//! Reading tasks: heads, snapshots, lists, logs and histories. Each function runs on one snapshot.

use std::collections::HashMap;

use bytes::Bytes;
use rusqlite::{Connection, Row, params, params_from_iter, types::Value};

use super::{
    codec,
    row::{Hidden, TaskRow, task_columns},
};
use crate::{AgentId, Event, Filter, Page, PageKey, Result, Snapshot, TaskHead, TaskId, TenantId, View};

pub(super) fn head(conn: &Connection, tenant: TenantId, task: TaskId) -> Result<TaskHead> {
    let row = TaskRow::load(conn, tenant, task)?;
    Ok(TaskHead {
        agent: row.agent,
        context: row.context,
        state: row.state,
        seq: row.seq,
        hidden: row.hidden != Hidden::No,
    })
}

pub(super) fn task(conn: &Connection, tenant: TenantId, task: TaskId, view: View) -> Result<Snapshot> {
    snapshot(conn, TaskRow::load_visible(conn, tenant, task)?, view)
}

fn snapshot(conn: &Connection, row: TaskRow, view: View) -> Result<Snapshot> {
    Ok(Snapshot {
        history: messages(conn, row.pk, view.history)?,
        artifacts: if view.artifacts { artifacts(conn, row.pk)? } else { Vec::new() },
        task: row.task,
        agent: row.agent,
        context: row.context,
        state: row.state,
        status_at: codec::time(row.status_at),
        status_message: row.status_message,
        seq: row.seq,
    })
}

/// The last `limit` messages, oldest first.
fn messages(conn: &Connection, pk: i64, limit: Option<u32>) -> Result<Vec<Bytes>> {
    if limit == Some(0) {
        return Ok(Vec::new());
    }
    // A negative limit is none.
    let limit = limit.map_or(-1, i64::from);
    let mut last = conn.prepare_cached("SELECT body FROM a2a_messages WHERE task = ?1 ORDER BY pos DESC LIMIT ?2")?;
    let last = last.query_map(params![pk, limit], |row| row.get::<_, Vec<u8>>(0).map(Bytes::from))?;
    let mut messages: Vec<Bytes> = last.collect::<Result<_, _>>()?;
    messages.reverse();
    Ok(messages)
}

/// The chunks of each artifact, in order of first appearance.
fn artifacts(conn: &Connection, pk: i64) -> Result<Vec<Vec<Bytes>>> {
    let mut chunks = conn.prepare_cached("SELECT artifact_id, body FROM a2a_artifacts WHERE task = ?1 ORDER BY pos")?;
    let mut rows = chunks.query([pk])?;
    let mut artifacts: Vec<Vec<Bytes>> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    while let Some(row) = rows.next()? {
        let place = *places.entry(row.get(0)?).or_insert(artifacts.len());
        if place == artifacts.len() {
            artifacts.push(Vec::new());
        }
        artifacts[place].push(row.get::<_, Vec<u8>>(1)?.into());
    }
    Ok(artifacts)
}

/// The WHERE clause of a filter and its arguments, without the page key.
fn conditions(tenant: TenantId, filter: &Filter) -> (String, Vec<Value>) {
    let mut sql = String::from("tenant_id = ? AND hidden = 0");
    let mut arguments = vec![Value::Integer(tenant.0)];
    let mut require = |condition: &str, value: Value| {
        sql.push_str(condition);
        arguments.push(value);
    };
    if let Some(agent) = &filter.agent {
        require(" AND agent_id = ?", Value::Text(agent.as_str().to_owned()));
    }
    if let Some(context) = &filter.context {
        require(" AND context_id = ?", Value::Text(context.clone()));
    }
    if let Some(state) = filter.state {
        require(" AND state = ?", Value::Text(codec::state_name(state).to_owned()));
    }
    if let Some(since) = filter.since {
        require(" AND status_at >= ?", Value::Integer(since.as_millis()));
    }
    (sql, arguments)
}

pub(super) fn list(conn: &Connection, tenant: TenantId, filter: &Filter) -> Result<Page> {
    let (mut sql, mut arguments) = conditions(tenant, filter);
    let total = total(conn, tenant, filter, &sql, &arguments)?;
    if let Some(after) = filter.after {
        sql.push_str(" AND (status_at, task_id) < (?, ?)");
        arguments.push(Value::Integer(after.status_at.as_millis()));
        arguments.push(Value::Text(after.task.to_string()));
    }
    // One more than asked for tells whether there is another page.
    arguments.push(Value::Integer(i64::from(filter.limit) + 1));
    let columns = task_columns!();
    let mut page = conn.prepare_cached(&format!(
        "SELECT {columns} FROM a2a_tasks WHERE {sql} ORDER BY status_at DESC, task_id DESC LIMIT ?"
    ))?;
    let mut rows = page.query(params_from_iter(arguments))?;
    let mut tasks = Vec::new();
    let mut next = None;
    while let Some(row) = rows.next()? {
        if tasks.len() as u64 == u64::from(filter.limit) {
            let key = |last: &Snapshot| PageKey { status_at: last.status_at, task: last.task };
            next = tasks.last().map(key);
            break;
        }
        tasks.push(snapshot(conn, TaskRow::read(row)?, filter.view)?);
    }
    Ok(Page { tasks, next, total })
}

fn total(conn: &Connection, tenant: TenantId, filter: &Filter, sql: &str, arguments: &[Value]) -> Result<u64> {
    let n: i64 = if filter.context.is_none() && filter.since.is_none() {
        conn.prepare_cached(
            "SELECT coalesce(sum(n), 0) FROM task_counts WHERE tenant_id = ?1
             AND (?2 IS NULL OR agent_id = ?2) AND (?3 IS NULL OR state = ?3)",
        )?
        .query_row(
            params![tenant.0, filter.agent.as_ref().map(AgentId::as_str), filter.state.map(codec::state_name)],
            |row| row.get(0),
        )?
    } else {
        conn.prepare_cached(&format!("SELECT count(*) FROM a2a_tasks WHERE {sql}"))?
            .query_row(params_from_iter(arguments), |row| row.get(0))?
    };
    Ok(codec::unsigned(n))
}

pub(super) fn events(
    conn: &Connection,
    tenant: TenantId,
    task: TaskId,
    after: u64,
    limit: usize,
) -> Result<Vec<Event>> {
    let pk = TaskRow::load(conn, tenant, task)?.pk;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut events = conn.prepare_cached(
        "SELECT seq, at, kind, body FROM a2a_events WHERE task = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
    )?;
    let mut rows = events.query(params![pk, codec::signed(after), limit])?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        events.push(event(row, 0)?);
    }
    Ok(events)
}

/// An event whose columns `seq, at, kind, body` begin at `first`.
pub(super) fn event(row: &Row<'_>, first: usize) -> Result<Event> {
    Ok(Event {
        seq: codec::unsigned(row.get(first)?),
        at: codec::time(row.get(first + 1)?),
        kind: codec::parse_kind(row.get(first + 2)?)?,
        body: row.get::<_, Vec<u8>>(first + 3)?.into(),
    })
}

pub(super) fn history(conn: &Connection, tenant: TenantId, task: TaskId) -> Result<Vec<a2a::Message>> {
    let row = TaskRow::load(conn, tenant, task)?;
    talk(conn, &row, true)
}

pub(super) fn context_history(
    conn: &Connection,
    tenant: TenantId,
    agent: &AgentId,
    context: &str,
    before: TaskId,
    limit: usize,
) -> Result<Vec<a2a::Message>> {
    let mut older = conn.prepare_cached(concat!(
        "SELECT ",
        task_columns!(),
        " FROM a2a_tasks WHERE tenant_id = ?1 AND context_id = ?2 AND task_id < ?3 AND agent_id = ?4
         ORDER BY task_id DESC"
    ))?;
    let mut rows = older.query(params![tenant.0, context, before.to_string(), agent.as_str()])?;
    // Newest first, until there is enough.
    let mut messages = Vec::new();
    while messages.len() < limit {
        let Some(row) = rows.next()? else { break };
        let row = TaskRow::read(row)?;
        let with_status = row.state.is_terminal();
        messages.extend(talk(conn, &row, with_status)?.into_iter().rev());
    }
    messages.truncate(limit);
    messages.reverse();
    Ok(messages)
}

/// What was said in the turns so far, turn by turn. What waits in the inbox has not been heard yet.
fn talk(conn: &Connection, row: &TaskRow, with_status: bool) -> Result<Vec<a2a::Message>> {
    let mut said =
        conn.prepare_cached("SELECT turn, body FROM a2a_messages WHERE task = ?1 AND turn <= ?2 ORDER BY turn, pos")?;
    let mut rows = said.query(params![row.pk, row.turn])?;
    let mut messages = Vec::new();
    // The message of the status belongs at the end of the turn that said it.
    let mut status = row.status_message.as_ref().filter(|_| with_status);
    while let Some(next) = rows.next()? {
        if next.get::<_, u32>(0)? > row.status_turn
            && let Some(message) = status.take()
        {
            messages.push(serde_json::from_slice(message)?);
        }
        let body = next.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        messages.push(serde_json::from_slice(body)?);
    }
    if let Some(message) = status {
        messages.push(serde_json::from_slice(message)?);
    }
    Ok(messages)
}
