//! The log of all tasks, from a cursor.
//!
//! A position is taken when an event is inserted and becomes visible when its transaction commits, which may be in
//! another order: whoever remembers the greatest position seen would miss what is committed later with a smaller one.
//! So the cursor is (transaction, position), and only transactions below the oldest one that still runs are given:
//! none of them can bring anything more, and none that begins later has a smaller number (test:
//! `a_tail_waits_for_transactions_that_are_out_of_order`).
//!
//! The price: any transaction that has written and stays open on the server, of whatever program and in whatever
//! database, holds the tail up. The writer's own are ended by the server when they stand still.

use std::{collections::HashMap, sync::Arc};

use tokio_postgres::Row;
use uuid::Uuid;

use super::{fetch::task_id, pool::Pool, read};
use crate::{AgentId, Error, Event, FeedEvent, FeedLimit, FeedPage, Position, Result, Tailed, TenantId, codec};

const TAIL: &str = "SELECT e.xid::text, e.pos, t.tenant_id, e.task, e.seq, e.at, e.kind, e.body
     FROM a2a_events e JOIN a2a_tasks t ON t.task_id = e.task
     WHERE (e.xid, e.pos) > ($1::text::xid8, $2) AND e.xid < pg_snapshot_xmin(pg_current_snapshot())
     ORDER BY e.xid, e.pos LIMIT $3";

pub(super) async fn tail(readers: &Pool, after: Position, limit: usize) -> Result<(Vec<Tailed>, Position)> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = readers.query(TAIL, &[&after.transaction.to_string(), &after.pos, &limit]).await?;
    let mut position = after;
    let mut tailed = Vec::with_capacity(rows.len());
    for row in &rows {
        position = position_of(row)?;
        let (tenant, task) = (TenantId(row.try_get(2)?), task_id(row.try_get(3)?));
        tailed.push(Tailed { tenant, task, event: read::event(row, 4)? });
    }
    Ok((tailed, position))
}

/// A place in the log, whose columns are the first of a row.
fn position_of(row: &Row) -> Result<Position> {
    let transaction: &str = row.try_get(0)?;
    let bad = |_| Error::Damaged(format!("{transaction:?} is no transaction id"));
    Ok(Position { transaction: transaction.parse().map_err(bad)?, pos: row.try_get(1)? })
}

/// What is looked at of the log for a feed: the events of the tenant `$4` and the agents `$5`, and the last place that was
/// looked at. Bodies stay unread: the length of one is known without it. Each task is looked up by its key, since a join
/// could read all tasks.
const FEED: &str = "WITH page AS MATERIALIZED (
       SELECT e.xid, e.pos, e.task, e.seq, e.at, e.kind, octet_length(e.body)::bigint AS bytes FROM a2a_events e
       WHERE (e.xid, e.pos) > ($1::text::xid8, $2) AND e.xid < pg_snapshot_xmin(pg_current_snapshot())
       ORDER BY e.xid, e.pos LIMIT $3),
     seen AS (
       SELECT p.*, t.agent_id, t.context_id, t.origin, count(*) OVER () AS n,
         t.tenant_id = $4 AND t.hidden = 0 AND (cardinality($5::text[]) = 0 OR t.agent_id = ANY ($5)) AS is_theirs,
         row_number() OVER (ORDER BY p.xid DESC, p.pos DESC) = 1 AS is_last
       FROM page p CROSS JOIN LATERAL (
         SELECT tenant_id, hidden, agent_id, context_id, origin FROM a2a_tasks WHERE task_id = p.task LIMIT 1) t)
     SELECT xid::text, pos, is_theirs, kind, bytes, seq, at, task, agent_id, context_id, origin, n
     FROM seen WHERE is_theirs OR is_last ORDER BY xid, pos";

const BODIES: &str = "SELECT e.task, e.seq, e.body FROM unnest($1::uuid[], $2::bigint[]) AS k (task, seq)
     JOIN a2a_events e ON e.task = k.task AND e.seq = k.seq";

pub(super) async fn feed(
    readers: &Pool,
    tenant: TenantId,
    agents: &[AgentId],
    after: Position,
    limit: FeedLimit,
) -> Result<FeedPage> {
    let agents: Vec<&str> = agents.iter().map(AgentId::as_str).collect();
    let most = i64::try_from(limit.scanned).unwrap_or(i64::MAX);
    let rows = readers.query(FEED, &[&after.transaction.to_string(), &after.pos, &most, &tenant.0, &agents]).await?;
    let mut page = FeedPage { position: after, ..FeedPage::default() };
    let mut room = limit.most.bytes;
    let (mut tasks, mut seqs): (Vec<Uuid>, Vec<i64>) = Default::default();
    for row in &rows {
        let position = position_of(row)?;
        let kind = codec::parse_kind(i64::from(row.try_get::<_, i16>(3)?))?;
        if row.try_get(2)? && kind.is_fed() {
            let bytes = if kind.is_fed_with_body() { codec::unsigned(row.try_get(4)?) } else { 0 };
            if bytes > room || page.events.len() >= limit.most.events {
                if page.position == after {
                    return Err(Error::Heavy { bytes });
                }
                page.more = true;
                break;
            }
            room -= bytes;
            let (task, seq): (Uuid, i64) = (row.try_get(7)?, row.try_get(5)?);
            if bytes > 0 {
                tasks.push(task);
                seqs.push(seq);
            }
            page.events.push(FeedEvent {
                position,
                task: task_id(task),
                agent: codec::parse_agent(row.try_get(8)?)?,
                context: row.try_get::<_, &str>(9)?.into(),
                origin: row.try_get::<_, Option<&str>>(10)?.map(Arc::from),
                event: Event {
                    seq: codec::unsigned(seq),
                    at: codec::time(row.try_get(6)?),
                    kind,
                    body: bytes::Bytes::new(),
                },
            });
        }
        page.position = position;
        page.more = row.try_get::<_, i64>(11)? >= most;
    }
    if !tasks.is_empty() {
        let mut bodies = HashMap::new();
        for row in readers.query(BODIES, &[&tasks, &seqs]).await? {
            let key = (task_id(row.try_get(0)?), codec::unsigned(row.try_get(1)?));
            bodies.insert(key, bytes::Bytes::from(row.try_get::<_, Vec<u8>>(2)?));
        }
        // What was removed between the two reads is in no feed any more.
        page.events.retain_mut(|fed| match bodies.remove(&(fed.task, fed.event.seq)) {
            Some(body) => {
                fed.event.body = body;
                true
            }
            None => !fed.event.kind.is_fed_with_body(),
        });
    }
    Ok(page)
}

/// Everything below the oldest transaction that runs has been given.
pub(super) async fn log_end(readers: &Pool) -> Result<Position> {
    let row = readers.query_one("SELECT pg_snapshot_xmin(pg_current_snapshot())::text, 0::bigint", &[]).await?;
    let next = position_of(&row)?;
    Ok(Position { transaction: next.transaction.saturating_sub(1), pos: i64::MAX })
}
