//! Reading tasks: heads, snapshots, lists, logs and histories. Each function runs on one snapshot.

use std::{collections::HashMap, sync::LazyLock};

use a2a::TaskState;
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, Statement, params, params_from_iter, types::Value};

use super::{row, tx::positions};
use crate::{
    AgentId, CHILDREN_SCANNED, Error, Event, FeedEvent, FeedLimit, FeedPage, Filter, MOST_COUNTED, Most, OwedCancel,
    Page, PageKey, Position, Result, Snapshot, Tailed, TaskHead, TaskId, TenantId, View, codec,
    lease::{MANY, among},
    ops::{Hidden, TaskRow},
    retention::refuse_pruned,
    talk::{Room, Talk},
};

pub(super) fn head(conn: &Connection, tenant: TenantId, task: TaskId) -> Result<TaskHead> {
    let row = row::load(conn, tenant, task)?;
    Ok(TaskHead {
        agent: row.agent,
        context: row.context,
        state: row.state,
        seq: row.seq,
        hidden: row.hidden != Hidden::No,
        turn: row.turn,
        kept: row.kept,
        origin: row.origin,
    })
}

pub(super) fn task(conn: &Connection, tenant: TenantId, task: TaskId, view: View) -> Result<Snapshot> {
    let row = row::load(conn, tenant, task)?.visible()?;
    let bytes = weight(conn, &row, view)?;
    if bytes > view.most {
        return Err(Error::Heavy { bytes });
    }
    snapshot(conn, row, view)
}

/// How many bytes a snapshot will have. The length of what is stored is known without reading it.
fn weight(conn: &Connection, row: &TaskRow, view: View) -> Result<u64> {
    let mut bytes = row.status_message.as_ref().map_or(0, |message| message.len() as u64);
    if view.most == u64::MAX {
        return Ok(bytes);
    }
    let (first, end) = positions(row.pk);
    if view.history != Some(0) {
        let mut said = conn.prepare_cached(
            "SELECT coalesce(sum(n), 0) FROM (
               SELECT length(body) AS n FROM messages WHERE pos >= ?1 AND pos < ?2 ORDER BY pos DESC LIMIT ?3)",
        )?;
        bytes += codec::unsigned(said.query_row(params![first, end, limit_of(view.history)], |row| row.get(0))?);
    }
    if view.artifacts {
        let mut made = conn
            .prepare_cached("SELECT coalesce(sum(length(body)), 0) FROM a2a_artifacts WHERE pos >= ?1 AND pos < ?2")?;
        bytes += codec::unsigned(made.query_row(params![first, end], |row| row.get(0))?);
    }
    Ok(bytes)
}

/// A negative limit is none.
fn limit_of(messages: Option<u32>) -> i64 {
    messages.map_or(-1, i64::from)
}

fn snapshot(conn: &Connection, row: TaskRow, view: View) -> Result<Snapshot> {
    let (artifacts, made_in) = if view.artifacts { artifacts(conn, row.pk)? } else { Default::default() };
    Ok(Snapshot {
        history: messages(conn, row.pk, view.history)?,
        artifacts,
        made_in,
        task: row.task,
        agent: row.agent,
        context: row.context,
        state: row.state,
        status_at: codec::time(row.status_at),
        status_message: row.status_message,
        seq: row.seq,
        tokens: row.tokens,
    })
}

/// The last `limit` messages, oldest first.
fn messages(conn: &Connection, pk: i64, limit: Option<u32>) -> Result<Vec<Bytes>> {
    if limit == Some(0) {
        return Ok(Vec::new());
    }
    let (first, end) = positions(pk);
    let mut last =
        conn.prepare_cached("SELECT body FROM messages WHERE pos >= ?1 AND pos < ?2 ORDER BY pos DESC LIMIT ?3")?;
    let last = last.query_map(params![first, end, limit_of(limit)], |row| row.get::<_, Vec<u8>>(0).map(Bytes::from))?;
    let mut messages: Vec<Bytes> = last.collect::<Result<_, _>>()?;
    messages.reverse();
    Ok(messages)
}

/// The chunks of each artifact, in order of first appearance, and the turns that made them.
fn artifacts(conn: &Connection, pk: i64) -> Result<(Vec<Vec<Bytes>>, Vec<u32>)> {
    let mut chunks = conn.prepare_cached(
        "SELECT artifact_id, body, turn FROM a2a_artifacts WHERE pos >= ?1 AND pos < ?2 ORDER BY pos",
    )?;
    let mut rows = chunks.query(positions(pk))?;
    let (mut artifacts, mut made_in): (Vec<Vec<Bytes>>, Vec<u32>) = Default::default();
    let mut places: HashMap<String, usize> = HashMap::new();
    while let Some(row) = rows.next()? {
        let place = *places.entry(row.get(0)?).or_insert(artifacts.len());
        if place == artifacts.len() {
            artifacts.push(Vec::new());
            made_in.push(row.get(2)?);
        }
        artifacts[place].push(row.get::<_, Vec<u8>>(1)?.into());
    }
    Ok((artifacts, made_in))
}

/// The most lists that one statement merges; SQLite takes up to 500.
const MERGED: usize = 100;
/// Statements of so many lists are worth keeping.
const KEPT: usize = 4;

/// An agent, a state, and how many visible tasks there are of both, where that is known.
type Group = (String, String, i64);

/// A page: the newest of the lists of all agents and states that match, merged.
pub(super) fn list(conn: &Connection, tenant: TenantId, filter: &Filter) -> Result<Page> {
    let groups = match &filter.context {
        Some(context) => groups_of_context(conn, tenant, context)?,
        None => groups(conn, tenant)?,
    };
    let matches = |(agent, state, _): &Group| {
        filter.agent.as_ref().is_none_or(|wanted| wanted.as_str() == agent)
            && (filter.among.is_empty() || filter.among.iter().any(|one| one.as_str() == agent))
            && filter.state.is_none_or(|wanted| codec::state_name(wanted) == state)
    };
    let groups: Vec<Group> = groups.into_iter().filter(matches).collect();
    let total = if filter.context.is_none() && filter.since.is_none() {
        groups.iter().map(|(_, _, n)| n).sum()
    } else {
        count(conn, tenant, filter, &groups)?
    };
    // One more than asked for tells whether there is another page.
    let wanted = usize::try_from(filter.limit).unwrap_or(usize::MAX).saturating_add(1);
    let mut found: Vec<(i64, TaskId)> = Vec::new();
    for groups in groups.chunks(MERGED) {
        let arms: Vec<_> = groups.iter().map(|group| of_group(tenant, filter, group)).collect();
        find(conn, &arms, filter, wanted, &mut found)?;
    }
    if groups.len() > MERGED {
        found.sort_by_key(|key| std::cmp::Reverse(*key));
    }
    let mut more = found.len() >= wanted;
    found.truncate(wanted - 1);
    let mut tasks: Vec<Snapshot> = Vec::new();
    let mut room = filter.view.most;
    for (_, task) in found {
        let row = row::load(conn, tenant, task)?;
        let bytes = weight(conn, &row, filter.view)?;
        if bytes > room {
            if tasks.is_empty() {
                return Err(Error::Heavy { bytes });
            }
            more = true;
            break;
        }
        room -= bytes;
        tasks.push(snapshot(conn, row, filter.view)?);
    }
    let next = tasks.last().filter(|_| more).map(|last| PageKey { status_at: last.status_at, task: last.task });
    Ok(Page { tasks, next, total: codec::unsigned(total) })
}

/// The agents and states of the visible tasks of a tenant.
fn groups(conn: &Connection, tenant: TenantId) -> Result<Vec<Group>> {
    let mut groups =
        conn.prepare_cached("SELECT agent_id, state, n FROM task_counts WHERE tenant_id = ?1 AND n > 0")?;
    let groups = groups.query_map([tenant.0], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(groups.collect::<Result<_, _>>()?)
}

/// The next agent and state of a context: the next state of the same agent, or the first of the next one. As one comparison it would be a
/// walk over all tasks of the group.
const NEXT_GROUP: &str = "SELECT * FROM (SELECT agent_id, state FROM a2a_tasks
       WHERE hidden = 0 AND tenant_id = ?1 AND context_id = ?2 AND agent_id = ?3 AND state > ?4 ORDER BY state LIMIT 1)
     UNION ALL
     SELECT * FROM (SELECT agent_id, state FROM a2a_tasks
       WHERE hidden = 0 AND tenant_id = ?1 AND context_id = ?2 AND agent_id > ?3 ORDER BY agent_id, state LIMIT 1)
     LIMIT 1";

/// The same of a context: there are few, and each is one step in the index.
fn groups_of_context(conn: &Connection, tenant: TenantId, context: &str) -> Result<Vec<Group>> {
    let mut next = conn.prepare_cached(NEXT_GROUP)?;
    let mut groups: Vec<Group> = Vec::new();
    loop {
        let (agent, state) = groups.last().map_or(("", ""), |(agent, state, _)| (agent, state));
        let found = next.query_row(params![tenant.0, context, agent, state], |row| Ok((row.get(0)?, row.get(1)?, 0)));
        match found.optional()? {
            Some(group) => groups.push(group),
            None => return Ok(groups),
        }
    }
}

/// The WHERE clause of the tasks of one group that a filter matches, without its page key, and its arguments.
fn of_group(tenant: TenantId, filter: &Filter, (agent, state, _): &Group) -> (String, Vec<Value>) {
    let mut sql = String::from("hidden = 0 AND tenant_id = ? AND agent_id = ? AND state = ?");
    let mut arguments = vec![Value::Integer(tenant.0), Value::Text(agent.clone()), Value::Text(state.clone())];
    if let Some(context) = &filter.context {
        sql.push_str(" AND context_id = ?");
        arguments.push(Value::Text(context.clone()));
    }
    if let Some(since) = filter.since {
        sql.push_str(" AND status_at >= ?");
        arguments.push(Value::Integer(since.as_millis()));
    }
    (sql, arguments)
}

/// How many tasks a filter matches, up to [`MOST_COUNTED`].
fn count(conn: &Connection, tenant: TenantId, filter: &Filter, groups: &[Group]) -> Result<i64> {
    let most = codec::signed(MOST_COUNTED);
    let mut total = 0;
    for group in groups {
        let (sql, arguments) = count_statement(of_group(tenant, filter, group), most - total);
        let mut count = conn.prepare_cached(&sql)?;
        total += count.query_row(params_from_iter(arguments), |row| row.get::<_, i64>(0))?;
        if total >= most {
            break;
        }
    }
    Ok(total)
}

fn count_statement((conditions, mut arguments): (String, Vec<Value>), most: i64) -> (String, Vec<Value>) {
    arguments.push(Value::Integer(most));
    (format!("SELECT count(*) FROM (SELECT 1 FROM a2a_tasks WHERE {conditions} LIMIT ?)"), arguments)
}

/// Adds the times and ids of the first `wanted` tasks of several lists, merged.
fn find(
    conn: &Connection,
    lists: &[(String, Vec<Value>)],
    filter: &Filter,
    wanted: usize,
    found: &mut Vec<(i64, TaskId)>,
) -> Result<()> {
    if lists.is_empty() {
        return Ok(());
    }
    let (sql, arguments) = page_statement(lists, filter, wanted);
    // Many agents make many statements; they must not push those of every day out of the cache.
    let (mut kept, mut made);
    let list: &mut Statement<'_> = if lists.len() <= KEPT {
        kept = conn.prepare_cached(&sql)?;
        &mut kept
    } else {
        made = conn.prepare(&sql)?;
        &mut made
    };
    let mut rows = list.query(params_from_iter(arguments))?;
    while let Some(row) = rows.next()? {
        found.push((row.get(0)?, codec::parse_task(row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?)?));
    }
    Ok(())
}

fn page_statement(lists: &[(String, Vec<Value>)], filter: &Filter, wanted: usize) -> (String, Vec<Value>) {
    let mut sql = String::new();
    let mut arguments = Vec::new();
    for (conditions, given) in lists {
        if !sql.is_empty() {
            sql.push_str(" UNION ALL ");
        }
        sql.push_str("SELECT status_at, task_id FROM a2a_tasks WHERE ");
        sql.push_str(conditions);
        arguments.extend_from_slice(given);
        if let Some(after) = filter.after {
            sql.push_str(" AND (status_at, task_id) < (?, ?)");
            arguments.push(Value::Integer(after.status_at.as_millis()));
            arguments.push(Value::Text(after.task.to_string()));
        }
    }
    sql.push_str(" ORDER BY status_at DESC, task_id DESC LIMIT ?");
    arguments.push(Value::Integer(i64::try_from(wanted).unwrap_or(i64::MAX)));
    (sql, arguments)
}

pub(super) fn events(
    conn: &Connection,
    tenant: TenantId,
    task: TaskId,
    after: u64,
    most: Most,
) -> Result<(Vec<Event>, bool)> {
    let (pk, end) = {
        let row = row::load(conn, tenant, task)?;
        (row.pk, row.seq)
    };
    let limit = i64::try_from(most.events).unwrap_or(i64::MAX);
    let mut events = conn.prepare_cached(
        "SELECT seq, at, kind, body, length(body) FROM a2a_events WHERE task = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
    )?;
    let mut rows = events.query(params![pk, codec::signed(after), limit])?;
    let mut events = Vec::new();
    let mut room = most.bytes;
    while let Some(row) = rows.next()? {
        let bytes = codec::unsigned(row.get(4)?);
        if bytes > room {
            if events.is_empty() {
                return Err(Error::Heavy { bytes });
            }
            break;
        }
        room -= bytes;
        events.push(event(row, 0)?);
    }
    refuse_pruned(&events, after, end)?;
    let more = events.last().is_some_and(|last| last.seq < end);
    Ok((events, more))
}

pub(super) fn tail(conn: &Connection, after: Position, limit: usize) -> Result<(Vec<Tailed>, Position)> {
    let mut tail = conn.prepare_cached(
        "SELECT e.pos, t.tenant_id, t.task_id, e.seq, e.at, e.kind, e.body
         FROM a2a_events e CROSS JOIN a2a_tasks t ON t.pk = e.task
         WHERE e.pos > ?1 ORDER BY e.pos LIMIT ?2",
    )?;
    let mut rows = tail.query(params![after.pos, i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let mut tailed = Vec::new();
    let mut position = after;
    while let Some(row) = rows.next()? {
        position.pos = row.get(0)?;
        let task = codec::parse_task(row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?)?;
        tailed.push(Tailed { tenant: TenantId(row.get(1)?), task, event: event(row, 3)? });
    }
    Ok((tailed, position))
}

/// What is looked at of the log for a feed. Bodies stay unread.
const FEED: &str = "SELECT e.pos, t.tenant_id = ?3 AND t.hidden = 0, e.kind, t.agent_id, length(e.body), e.seq, e.at,
       t.task_id, t.context_id, t.origin
     FROM a2a_events e CROSS JOIN a2a_tasks t ON t.pk = e.task
     WHERE e.pos > ?1 ORDER BY e.pos LIMIT ?2";

pub(super) fn feed(
    conn: &Connection,
    tenant: TenantId,
    agents: &[AgentId],
    after: Position,
    limit: FeedLimit,
) -> Result<FeedPage> {
    let mut scan = conn.prepare_cached(FEED)?;
    let mut body_of = conn.prepare_cached("SELECT body FROM a2a_events WHERE pos = ?1")?;
    let mut rows = scan.query(params![after.pos, i64::try_from(limit.scanned).unwrap_or(i64::MAX), tenant.0])?;
    let mut page = FeedPage { position: after, ..FeedPage::default() };
    let (mut room, mut scanned) = (limit.most.bytes, 0);
    while let Some(row) = rows.next()? {
        scanned += 1;
        let pos: i64 = row.get(0)?;
        let position = Position { pos, ..after };
        if row.get(1)? {
            let kind = codec::parse_kind(row.get(2)?)?;
            let agent = row.get_ref(3)?.as_str().map_err(rusqlite::Error::from)?;
            if kind.is_fed() && (agents.is_empty() || agents.iter().any(|one| one.as_str() == agent)) {
                let bytes = if kind.is_fed_with_body() { codec::unsigned(row.get(4)?) } else { 0 };
                if bytes > room || page.events.len() >= limit.most.events {
                    if page.position == after {
                        return Err(Error::Heavy { bytes });
                    }
                    page.more = true;
                    return Ok(page);
                }
                room -= bytes;
                let body = match bytes {
                    0 => Bytes::new(),
                    _ => body_of.query_row([pos], |row| row.get::<_, Vec<u8>>(0))?.into(),
                };
                let event = Event { seq: codec::unsigned(row.get(5)?), at: codec::time(row.get(6)?), kind, body };
                page.events.push(FeedEvent {
                    position,
                    task: codec::parse_task(row.get_ref(7)?.as_str().map_err(rusqlite::Error::from)?)?,
                    agent: codec::parse_agent(agent)?,
                    context: row.get(8)?,
                    origin: row.get(9)?,
                    event,
                });
            }
        }
        page.position = position;
    }
    page.more = scanned >= limit.scanned;
    Ok(page)
}

pub(super) fn log_end(conn: &Connection) -> Result<Position> {
    let end = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'a2a_events'";
    let pos = conn.prepare_cached(end)?.query_row((), |row| row.get(0))?;
    Ok(Position { pos, ..Position::default() })
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

pub(super) fn history(conn: &Connection, tenant: TenantId, task: TaskId, most: u64) -> Result<Vec<a2a::Message>> {
    let row = row::load(conn, tenant, task)?;
    let mut room = Room::default();
    let messages = talk(conn, &row, true, &mut room, most)?;
    within(&room, most)?;
    Ok(messages)
}

/// Refuses messages that have more bytes together than may be read.
fn within(room: &Room, most: u64) -> Result<()> {
    if room.heard() > most { Err(Error::Heavy { bytes: room.heard() }) } else { Ok(()) }
}

pub(super) fn turn_message(conn: &Connection, tenant: TenantId, task: TaskId, turn: u32) -> Result<a2a::Message> {
    let row = row::load(conn, tenant, task)?;
    let (first, end) = positions(row.pk);
    let mut body = conn.prepare_cached(
        "SELECT body FROM messages WHERE pos >= ?1 AND pos < ?2 AND turn = ?3 AND status = 'in_progress'",
    )?;
    let mut rows = body.query(params![first, end, turn])?;
    let Some(row) = rows.next()? else { return Err(Error::NotFound) };
    Ok(serde_json::from_slice(row.get_ref(0)?.as_bytes().map_err(rusqlite::Error::from)?)?)
}

/// Older tasks of the same context.
static OLDER: LazyLock<String> = LazyLock::new(|| {
    let of = "tenant_id = ?1 AND context_id = ?2 AND task_id < ?3 AND agent_id = ?4";
    format!("{} WHERE {of} ORDER BY task_id DESC", *row::SELECT)
});

pub(super) fn context_history(
    conn: &Connection,
    tenant: TenantId,
    agent: &AgentId,
    context: &str,
    before: TaskId,
    limit: usize,
    most: u64,
) -> Result<Vec<a2a::Message>> {
    let mut older = conn.prepare_cached(&OLDER)?;
    let mut rows = older.query(params![tenant.0, context, before.to_string(), agent.as_str()])?;
    // Newest first, until there is enough.
    let mut messages = Vec::new();
    let mut room = Room::default();
    while messages.len() < limit {
        let Some(row) = rows.next()? else { break };
        let row = row::read(row)?;
        let with_status = row.state.is_terminal();
        messages.extend(talk(conn, &row, with_status, &mut room, most)?.into_iter().rev());
    }
    within(&room, most)?;
    messages.truncate(limit);
    messages.reverse();
    Ok(messages)
}

pub(super) fn context_state(
    conn: &Connection,
    tenant: TenantId,
    agent: &AgentId,
    context: &str,
    before: TaskId,
) -> Result<Option<(TaskId, Event)>> {
    let mut state = conn.prepare_cached(
        "SELECT t.task_id, e.seq, e.at, e.kind, e.body FROM a2a_tasks t
           JOIN a2a_events e ON e.task = t.pk AND e.seq = t.kept
         WHERE t.tenant_id = ?1 AND t.context_id = ?2 AND t.task_id < ?3 AND t.agent_id = ?4 AND t.kept > 0
         ORDER BY t.task_id DESC LIMIT 1",
    )?;
    let mut rows = state.query(params![tenant.0, context, before.to_string(), agent.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let task = codec::parse_task(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?)?;
    Ok(Some((task, event(row, 1)?)))
}

pub(super) fn children(conn: &Connection, tenant: TenantId, task: TaskId, limit: usize) -> Result<Vec<TaskId>> {
    let mut children = conn.prepare_cached(
        "SELECT task_id FROM (SELECT task_id, tenant_id, hidden, origin FROM a2a_tasks
           WHERE task_id > ?1 ORDER BY task_id LIMIT ?2)
         WHERE tenant_id = ?3 AND hidden = 0 AND json_extract(origin, '$.parent') = ?4 LIMIT ?5",
    )?;
    let from = task.a_second_before().to_string();
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = children.query(params![from, CHILDREN_SCANNED, tenant.0, task.to_string(), limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(codec::parse_task(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?)?);
    }
    Ok(found)
}

pub(super) fn owed_cancels(conn: &Connection, agents: &[AgentId], limit: usize) -> Result<Vec<OwedCancel>> {
    let mut owed = conn.prepare_cached(
        "SELECT tenant_id, task_id, kept, generation FROM a2a_tasks WHERE aftermath = 2 AND agent_id = ?1
         ORDER BY status_at LIMIT ?2",
    )?;
    let mut found = Vec::new();
    let owing = if agents.len() > MANY {
        let mut owing = conn.prepare_cached("SELECT DISTINCT agent_id FROM a2a_tasks WHERE aftermath = 2")?;
        let owing: Vec<String> = owing.query_map((), |row| row.get(0))?.collect::<Result<_, _>>()?;
        Some(among(agents, &owing))
    } else {
        None
    };
    for agent in owing.as_deref().unwrap_or(agents) {
        let left = i64::try_from(limit.saturating_sub(found.len())).unwrap_or(i64::MAX);
        let mut rows = owed.query(params![agent.as_str(), left])?;
        while let Some(row) = rows.next()? {
            found.push(OwedCancel {
                tenant: TenantId(row.get(0)?),
                task: codec::parse_task(&row.get::<_, String>(1)?)?,
                agent: agent.clone(),
                kept: codec::unsigned(row.get(2)?),
                generation: codec::unsigned(row.get(3)?),
            });
        }
    }
    Ok(found)
}

/// What was said in the turns so far. What waits in the inbox has not been heard yet.
/// The conversation of a task. Once there is more than may be read, only its bytes are counted.
fn talk(conn: &Connection, row: &TaskRow, with_status: bool, room: &mut Room, most: u64) -> Result<Vec<a2a::Message>> {
    let (first, end) = positions(row.pk);
    let mut talk = Talk::new(row.task, &row.context);
    let status = row.status_message.as_ref().filter(|_| with_status);
    let status = status.filter(|message| room.hears(message.len() as u64));
    let mut said = conn.prepare_cached(
        "SELECT turn, pos, length(body) FROM messages WHERE pos >= ?1 AND pos < ?2 AND turn <= ?3
         ORDER BY turn DESC, pos DESC",
    )?;
    let mut rows = said.query(params![first, end, row.turn])?;
    let mut heard: Vec<(u32, i64)> = Vec::new();
    while let Some(next) = rows.next()? {
        if !room.hears(codec::unsigned(next.get(2)?)) {
            break;
        }
        heard.push((next.get(0)?, next.get(1)?));
    }
    if room.heard() > most {
        return Ok(vec![a2a::Message::default(); heard.len()]);
    }
    let mut body = conn.prepare_cached("SELECT body FROM messages WHERE pos = ?1")?;
    for (turn, pos) in heard.into_iter().rev() {
        let mut rows = body.query([pos])?;
        if let Some(row) = rows.next()? {
            talk.hear(turn, row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?)?;
        }
    }
    if let Some(message) = status {
        talk.hear(row.status_turn, message)?;
    }
    // The turn that runs has not replied yet.
    let replied = if row.state == TaskState::Completed { row.turn } else { row.turn.saturating_sub(1) };
    let mut made = conn.prepare_cached(
        "SELECT artifact_id, body FROM a2a_artifacts WHERE pos >= ?1 AND pos < ?2 AND turn = ?3 ORDER BY pos",
    )?;
    for turn in talk.silent_turns(replied) {
        let mut rows = made.query(params![first, end, turn])?;
        while let Some(next) = rows.next()? {
            let (id, body) = (next.get_ref(0)?.as_str(), next.get_ref(1)?.as_blob());
            if !talk.make(turn, id.map_err(rusqlite::Error::from)?, body.map_err(rusqlite::Error::from)?, room)? {
                break;
            }
        }
    }
    Ok(talk.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::schema;

    /// Every combination of what a list can be asked for, of several agents and states.
    #[test]
    fn every_list_is_a_search_in_an_index() {
        let dir = tempfile::tempdir().unwrap();
        let conn = schema::open_writer(&dir.path().join("new.db"), 1024).unwrap();
        let plan = |sql: &str, arguments: Vec<Value>| -> String {
            let mut explained = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let rows = explained.query_map(params_from_iter(arguments), |row| row.get::<_, String>("detail"));
            rows.unwrap().collect::<Result<Vec<_>, _>>().unwrap().join("; ")
        };
        let groups: Vec<Group> = ["echo", "slow"]
            .iter()
            .flat_map(|agent| ["working", "failed"].map(|state| (agent.to_string(), state.into(), 1)))
            .collect();
        for bits in 0..8 {
            let has = |bit: u32| bits & (1 << bit) != 0;
            let filter = Filter {
                agent: None,
                among: Vec::new(),
                context: has(0).then(|| "one".to_owned()),
                state: None,
                since: has(1).then(|| codec::time(9)),
                after: has(2).then(|| PageKey { status_at: codec::time(10), task: TaskId::mint() }),
                limit: 50,
                view: View::FULL,
            };
            let index = if has(0) { "a2a_tasks_in_context" } else { "a2a_tasks_listed" };
            let arms: Vec<_> = groups.iter().map(|group| of_group(TenantId(1), &filter, group)).collect();
            for (sql, arguments) in [page_statement(&arms, &filter, 51), count_statement(arms[0].clone(), 9)] {
                let plan = plan(&sql, arguments);
                assert!(plan.contains(index), "{filter:?}: {plan}");
                assert!(!plan.contains("SCAN a2a_tasks") && !plan.contains("TEMP B-TREE"), "{filter:?}: {plan}");
                assert!(!plan.contains("status_at") || has(1) || has(2), "{filter:?}: {plan}");
                let searches = plan.matches("SEARCH a2a_tasks").count();
                assert_eq!(searches, plan.matches("agent_id=? AND state=?").count(), "{filter:?}: {plan}");
                assert_eq!(searches, plan.matches(index).count(), "{filter:?}: {plan}");
            }
        }
        let next = plan(NEXT_GROUP, vec![Value::Null; 4]);
        assert!(next.contains("agent_id=? AND state>?") && next.contains("context_id=? AND agent_id>?"), "{next}");
        assert!(!next.contains("TEMP"), "{next}");
    }

    #[test]
    fn x_52_a_total_is_exact_unless_more_than_ten_thousand_tasks_have_to_be_counted() {
        let dir = tempfile::tempdir().unwrap();
        let conn = schema::open_writer(&dir.path().join("new.db"), 1024).unwrap();
        conn.execute_batch(
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 10001)
             INSERT INTO a2a_tasks (task_id, pk, tenant_id, agent_id, context_id, state, created_at, updated_at, status_at, seq)
               SELECT printf('00000000-0000-7000-8000-%012x', n), n, 1, 'echo', 'one', 'working', 1, 1, n, 1 FROM n;
             INSERT INTO task_counts (tenant_id, agent_id, state, n) VALUES (1, 'echo', 'working', 10001)",
        )
        .unwrap();
        for (context, since, total) in [
            (None, None, 10_001),
            (Some("one"), None, 10_000),
            (None, Some(1), 10_000),
            (None, Some(3), 9_999),
            (Some("one"), Some(3), 9_999),
        ] {
            let filter = Filter {
                agent: None,
                among: Vec::new(),
                context: context.map(str::to_owned),
                state: None,
                since: since.map(codec::time),
                after: None,
                limit: 0,
                view: View::FULL,
            };
            assert_eq!(list(&conn, TenantId(1), &filter).unwrap().total, total, "{filter:?}");
        }
    }
}
