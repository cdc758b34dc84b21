//! Loading rows of `a2a_tasks`.

use std::sync::LazyLock;

use rusqlite::{Connection, Row, params};

use crate::{
    Error, Result, TaskId, TenantId, codec,
    ops::{TaskRow, columns, columns::Columns, task_columns},
};

/// The begin of every statement whose rows [`read`] reads.
pub(super) static SELECT: LazyLock<String> = LazyLock::new(|| {
    format!("SELECT pk, task_id, {} FROM a2a_tasks", columns::list(columns::all(), |(name, _)| (*name).to_owned()))
});

/// The same without what is as long as its tenant has made it.
pub(super) static SELECT_BARE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT pk, task_id, {} FROM a2a_tasks",
        columns::list(columns::all(), |(name, _)| columns::bare(name, name))
    )
});

static LOAD: LazyLock<String> = LazyLock::new(|| format!("{} WHERE task_id = ?1 AND tenant_id = ?2", *SELECT));

/// The tenant's task, hidden or not.
pub(super) fn load(conn: &Connection, tenant: TenantId, task: TaskId) -> Result<TaskRow> {
    let mut load = conn.prepare_cached(&LOAD)?;
    let mut rows = load.query(params![task.to_string(), tenant.0])?;
    match rows.next()? {
        Some(row) => read(row),
        None => Err(Error::NotFound),
    }
}

/// A row of a statement that begins with [`SELECT`].
pub(super) fn read(row: &Row<'_>) -> Result<TaskRow> {
    let mut next = 1;
    macro_rules! get {
        ($([$once:ident $once_sql:ident $once_type:ty])*; $([$name:ident $sql:ident $type:ty])*) => {
            Columns {
                $($once: { next += 1; Get::get(row, next)? },)*
                $($name: { next += 1; Get::get(row, next)? },)*
            }
        };
    }
    let columns = task_columns!(get);
    columns.row(row.get(0)?, codec::parse_task(Get::get(row, 1)?)?)
}

/// A value of a row, text without a copy of it.
trait Get<'a>: Sized {
    fn get(row: &'a Row<'_>, n: usize) -> rusqlite::Result<Self>;
}

macro_rules! get_as_it_is {
    ($($type:ty)*) => {
        $(impl Get<'_> for $type {
            fn get(row: &Row<'_>, n: usize) -> rusqlite::Result<Self> {
                row.get(n)
            }
        })*
    };
}
get_as_it_is!(i64 Option<i64> bool);

impl<'a> Get<'a> for &'a str {
    fn get(row: &'a Row<'_>, n: usize) -> rusqlite::Result<Self> {
        Ok(row.get_ref(n)?.as_str()?)
    }
}

impl<'a> Get<'a> for Option<&'a str> {
    fn get(row: &'a Row<'_>, n: usize) -> rusqlite::Result<Self> {
        Ok(row.get_ref(n)?.as_str_or_null()?)
    }
}
