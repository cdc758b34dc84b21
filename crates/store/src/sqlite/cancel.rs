//! Canceling, and showing what was held back.

use a2a::TaskState;

use super::{
    row::{Hidden, TaskRow},
    writer::Batch,
};
use crate::{CancelMark, Error, Result, TaskId, TenantId, clock};

pub(super) fn mark(batch: &mut Batch<'_>, tenant: TenantId, task: TaskId) -> Result<CancelMark> {
    let mut row = TaskRow::load_visible(batch.conn, tenant, task)?;
    if row.state == TaskState::Canceled {
        return Ok(CancelMark::Canceled { already: true });
    }
    if row.state.is_terminal() {
        return Ok(CancelMark::NotCancelable(row.state));
    }
    if row.owner.is_none() {
        row.cancel_mark = true;
        row.cancel(batch, clock::now())?;
        row.save(batch)?;
        return Ok(CancelMark::Canceled { already: false });
    }
    if !row.cancel_mark {
        row.cancel_mark = true;
        row.changed();
        row.save(batch)?;
        batch.poke = true;
    }
    Ok(CancelMark::Running)
}

pub(super) fn force(batch: &mut Batch<'_>, tenant: TenantId, task: TaskId) -> Result<()> {
    let mut row = TaskRow::load_visible(batch.conn, tenant, task)?;
    if row.state == TaskState::Canceled {
        return Ok(());
    }
    if row.state.is_terminal() {
        return Err(Error::Terminal(row.state));
    }
    if !row.cancel_mark {
        return Err(Error::Illegal(TaskState::Canceled));
    }
    row.cancel(batch, clock::now())?;
    row.generation += 1;
    row.save(batch)
}

pub(super) fn reveal(batch: &mut Batch<'_>, tenant: TenantId, task: TaskId) -> Result<()> {
    let mut row = TaskRow::load(batch.conn, tenant, task)?;
    match row.hidden {
        Hidden::No => Ok(()),
        // The direct reply was faster.
        Hidden::Direct => Err(Error::Terminal(row.state)),
        Hidden::Undecided => {
            row.show();
            row.save(batch)
        }
    }
}
