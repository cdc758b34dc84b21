//! What the operations read and write, as statements on the writer's connection.

use a2a::{TaskState, Timestamp};
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use super::{
    lease, push, queue, row,
    writer::{Batch, Hot},
};
use crate::{
    AgentId, Claim, Error, Event, IdempotencyKey, LeaseTime, Line, NewPush, Quota, Result, TaskId, TenantId, codec,
    ops::{FirstUse, InboxMessage, Made, NewMessage, Owes, TaskRow, Tx, columns::Columns, task_columns},
};

/// How many bits of a message's or artifact's position are its number in its task.
const NUMBER_BITS: u32 = 32;

/// The positions of a task's messages or artifacts: the first, and the first that is not one.
pub(crate) fn positions(pk: i64) -> (i64, i64) {
    (pk << NUMBER_BITS, (pk + 1) << NUMBER_BITS)
}

/// The position of a message or artifact. Its number must fit: a log of billions of events is refused, not mixed up
/// with the next task's.
fn position(row: &TaskRow, number: u64) -> Result<i64> {
    if number >> NUMBER_BITS > 0 || row.pk >> (63 - NUMBER_BITS) > 0 {
        return Err(Error::Unavailable(format!("the log of {} is too long", row.task)));
    }
    Ok((row.pk << NUMBER_BITS) + codec::signed(number))
}

impl Tx for Batch<'_> {
    fn now(&self) -> LeaseTime {
        self.now
    }

    fn poke(&mut self) {
        self.poke = true;
    }

    fn new_key(&mut self) -> Result<i64> {
        self.allocate_pk()
    }

    fn load(&mut self, tenant: TenantId, task: TaskId) -> Result<TaskRow> {
        match self.rows.take(task) {
            Some(row) if row.tenant == tenant => Ok(row),
            Some(_) => Err(Error::NotFound),
            None => row::load(self.conn, tenant, task),
        }
    }

    fn due(&mut self, claim: &Claim) -> Result<Vec<TaskRow>> {
        let mut due = Vec::new();
        for room in &claim.room {
            due.extend(match claim.line {
                Line::Running => lease::due(self, claim, room)?,
                Line::Queue(only) => queue::due(self, claim, room, only)?,
            });
        }
        Ok(due)
    }

    fn insert(&mut self, row: TaskRow) -> Result<()> {
        let columns = Columns::of(&row);
        macro_rules! bind {
            ($([$once:ident $once_sql:ident $once_type:ty])*; $([$name:ident $sql:ident $type:ty])*) => {
                params![row.pk, row.task.hyphenated(&mut [0; TaskId::LENGTH]), $(columns.$once,)* $(columns.$name),*]
            };
        }
        self.statement(Hot::InsertTask)?.execute(task_columns!(bind))?;
        self.rows.keep(row);
        Ok(())
    }

    fn save(&mut self, row: TaskRow) -> Result<()> {
        let columns = Columns::of(&row);
        macro_rules! bind {
            ($([$once:ident $once_sql:ident $once_type:ty])*; $([$name:ident $sql:ident $type:ty])*) => {
                params![$(columns.$name,)* row.pk]
            };
        }
        self.statement(Hot::SaveTask)?.execute(task_columns!(bind))?;
        self.rows.keep(row);
        Ok(())
    }

    fn touch(&mut self, row: TaskRow) -> Result<()> {
        self.statement(Hot::TouchTask)?.execute(params![row.pk, codec::signed(row.seq), row.updated_at])?;
        self.rows.keep(row);
        Ok(())
    }

    fn log(&mut self, row: &TaskRow, event: Event) -> Result<()> {
        self.statement(Hot::Log)?.execute(params![
            row.pk,
            codec::signed(event.seq),
            event.at.as_millis(),
            codec::kind_code(event.kind),
            &event.body[..]
        ])?;
        self.logged(row.task, event);
        Ok(())
    }

    fn add_message(&mut self, row: &TaskRow, message: NewMessage<'_>) -> Result<()> {
        let NewMessage { id, role, status, turn, body, at } = message;
        // Between two events at most one message of each side is added, a caller's first.
        let number = 2 * row.seq + u64::from(role == "agent");
        self.statement(Hot::AddMessage)?.execute(params![
            position(row, number)?,
            row.pk,
            id,
            role,
            status,
            turn,
            &body[..],
            at.as_millis()
        ])?;
        Ok(())
    }

    fn has_current_turn(&mut self, row: &TaskRow) -> Result<bool> {
        Ok(self.current_message(row)?.is_some())
    }

    fn current_message(&mut self, row: &TaskRow) -> Result<Option<InboxMessage>> {
        let (first, end) = positions(row.pk);
        let body = self
            .conn
            .prepare_cached(
                "SELECT length(body), CASE WHEN length(body) <= ?4 THEN body END FROM messages
                 WHERE pos >= ?1 AND pos < ?2 AND turn = ?3 AND status = 'in_progress'",
            )?
            .query_row(params![first, end, row.turn, InboxMessage::most(row.queued)], inbox_message)
            .optional()?;
        Ok(body)
    }

    fn waiting_message(&mut self, row: &TaskRow) -> Result<Option<InboxMessage>> {
        let (first, end) = positions(row.pk);
        let body = self
            .conn
            .prepare_cached(
                "SELECT length(body), CASE WHEN length(body) <= ?3 THEN body END FROM messages
                 WHERE pos >= ?1 AND pos < ?2 AND status = 'pending' ORDER BY pos LIMIT 1",
            )?
            .query_row(params![first, end, InboxMessage::most(row.queued)], inbox_message)
            .optional()?;
        Ok(body)
    }

    fn begin_turn(&mut self, row: &TaskRow) -> Result<()> {
        self.conn
            .prepare_cached(
                "UPDATE messages SET status = 'in_progress' WHERE pos =
                   (SELECT pos FROM messages WHERE pos >= ?1 AND pos < ?2 AND status = 'pending'
                    ORDER BY pos LIMIT 1)",
            )?
            .execute(positions(row.pk))?;
        Ok(())
    }

    fn end_turn(&mut self, row: &TaskRow) -> Result<()> {
        self.statement(Hot::EndTurn)?.execute(positions(row.pk))?;
        Ok(())
    }

    fn add_artifact(&mut self, row: &TaskRow, artifact_id: &str, append: bool, body: &Bytes) -> Result<()> {
        // Each comes with an event of its own, which is logged next.
        let position = position(row, row.seq + 1)?;
        self.statement(Hot::AddArtifact)?.execute(params![
            position,
            row.pk,
            row.turn,
            artifact_id,
            append,
            &body[..]
        ])?;
        Ok(())
    }

    fn remove_artifact(&mut self, row: &TaskRow, artifact_id: &str) -> Result<i64> {
        let (first, end) = positions(row.pk);
        remove(
            self.conn,
            "DELETE FROM a2a_artifacts WHERE pos >= ?1 AND pos < ?2 AND artifact_id = ?3 RETURNING length(body)",
            params![first, end, artifact_id],
        )
    }

    fn remove_artifacts_of_turn(&mut self, row: &TaskRow, after: u64) -> Result<i64> {
        let (_, end) = positions(row.pk);
        remove(
            self.conn,
            "DELETE FROM a2a_artifacts WHERE pos > ?1 AND pos < ?2 AND turn = ?3 RETURNING length(body)",
            params![position(row, after)?, end, row.turn],
        )
    }

    fn find_key(&mut self, tenant: TenantId, key: &IdempotencyKey) -> Result<Option<FirstUse>> {
        let found = self
            .conn
            .prepare_cached(
                "SELECT i.fingerprint, i.turn, t.task_id FROM idempotency i JOIN a2a_tasks t ON t.pk = i.task
                 WHERE i.tenant_id = ?1 AND i.key = ?2 AND (i.expires IS NULL OR i.expires > ?3)",
            )?
            .query_row(params![tenant.0, key.key, self.now.0], |row| {
                Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, u32>(1)?, row.get::<_, String>(2)?))
            })
            .optional()?;
        let Some((fingerprint, turn, task)) = found else {
            return Ok(None);
        };
        Ok(Some(FirstUse { fingerprint, turn, task: codec::parse_task(&task)? }))
    }

    fn remember(&mut self, tenant: TenantId, key: &IdempotencyKey, made: Made) -> Result<()> {
        self.conn
            .prepare_cached(
                "INSERT OR REPLACE INTO idempotency (tenant_id, key, fingerprint, task, turn, expires)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![
                tenant.0,
                key.key,
                key.fingerprint,
                made.pk,
                made.turn,
                key.keep.map(|keep| self.now.after(keep).0)
            ])?;
        Ok(())
    }

    fn pushes(&mut self, row: &TaskRow) -> Result<Vec<(String, i64)>> {
        push::of_task(self.conn, row.pk)
    }

    fn put_push(&mut self, row: &TaskRow, new: &NewPush, from: u64, at: Timestamp) -> Result<()> {
        push::put(self, row, new, from, at)
    }

    fn remove_push(&mut self, row: &TaskRow, id: &str) -> Result<()> {
        push::remove(self, row, id)
    }

    fn owe(&mut self, row: &TaskRow, owes: Owes) -> Result<()> {
        self.owed += 1;
        push::owe(self, row, owes)
    }

    fn count(&mut self, tenant: TenantId, agent: &AgentId, state: TaskState, n: i64) {
        self.change_count(tenant, agent, state, n);
    }

    fn add_usage(&mut self, tenant: TenantId, tasks: i64, bytes: i64) {
        self.ledger.add(tenant, tasks, bytes);
    }

    fn check_quota(&mut self, tenant: TenantId, quota: Quota, begins: bool) -> Result<()> {
        self.ledger.check(self.conn, tenant, quota, begins)
    }
}

/// A message with its length before it. One that somebody has written by hand may be text.
fn inbox_message(row: &Row<'_>) -> rusqlite::Result<InboxMessage> {
    Ok(match row.get_ref(1)?.as_bytes_or_null()? {
        Some(body) => InboxMessage::Here(Bytes::copy_from_slice(body)),
        None => InboxMessage::Large(codec::unsigned(row.get(0)?)),
    })
}

/// Runs a DELETE that returns the length of each body it removes; gives their sum.
fn remove(conn: &Connection, delete: &str, arguments: impl Params) -> Result<i64> {
    let mut delete = conn.prepare_cached(delete)?;
    let mut rows = delete.query(arguments)?;
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        bytes += row.get::<_, i64>(0)?;
    }
    Ok(bytes)
}
