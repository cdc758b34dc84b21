//! Loading rows of `a2a_tasks`.

use bytes::Bytes;
use rusqlite::{Connection, Row, params};

use crate::{
    Error, Result, TaskId, TenantId, codec,
    ops::{Hidden, TaskRow},
};

/// The columns that [`read`] reads, for every statement that loads rows.
macro_rules! task_columns {
    () => {
        "pk, task_id, tenant_id, agent_id, context_id, state, created_at, updated_at, status_at, status_message, \
         status_turn, seq, hidden, due_at, owner, generation, attempt, turn, waiting, cancel_mark, \
         remembers, releases, interrupted, overdue"
    };
}
pub(super) use task_columns;

const LOAD: &str = concat!("SELECT ", task_columns!(), " FROM a2a_tasks WHERE task_id = ?1 AND tenant_id = ?2");

/// The tenant's task, hidden or not.
pub(super) fn load(conn: &Connection, tenant: TenantId, task: TaskId) -> Result<TaskRow> {
    let mut load = conn.prepare_cached(LOAD)?;
    let mut rows = load.query(params![task.to_string(), tenant.0])?;
    match rows.next()? {
        Some(row) => read(row),
        None => Err(Error::NotFound),
    }
}

/// A row of a statement that selects `task_columns!()`.
pub(super) fn read(row: &Row<'_>) -> Result<TaskRow> {
    let text = |n| Ok::<_, Error>(row.get_ref(n)?.as_str().map_err(rusqlite::Error::from)?);
    let mut task = TaskRow::new(
        row.get(0)?,
        codec::parse_task(text(1)?)?,
        TenantId(row.get(2)?),
        codec::parse_agent(text(3)?)?,
        text(4)?.into(),
        Hidden::from_code(row.get(12)?),
        codec::time(row.get(6)?),
    );
    task.state = codec::parse_state(text(5)?)?;
    task.updated_at = row.get(7)?;
    task.status_at = row.get(8)?;
    task.status_message = row.get::<_, Option<String>>(9)?.map(Bytes::from);
    task.status_turn = row.get(10)?;
    task.seq = codec::unsigned(row.get(11)?);
    task.due_at = row.get(13)?;
    task.owner = row.get(14)?;
    task.generation = codec::unsigned(row.get(15)?);
    task.attempt = row.get(16)?;
    task.turn = row.get(17)?;
    task.waiting = row.get(18)?;
    task.cancel_mark = row.get(19)?;
    task.remembers = row.get(20)?;
    task.releases = row.get(21)?;
    task.interrupted = row.get(22)?;
    task.overdue = row.get(23)?;
    Ok(task.stored())
}
