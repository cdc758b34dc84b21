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

use super::{fetch::task_id, pool::Pool, read};
use crate::{Error, Position, Result, Tailed, TenantId};

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
        let transaction: &str = row.try_get(0)?;
        let bad = |_| Error::Damaged(format!("{transaction:?} is no transaction id"));
        position = Position { transaction: transaction.parse().map_err(bad)?, pos: row.try_get(1)? };
        let (tenant, task) = (TenantId(row.try_get(2)?), task_id(row.try_get(3)?));
        tailed.push(Tailed { tenant, task, event: read::event(row, 4)? });
    }
    Ok((tailed, position))
}
