//! Canceling, waking what is parked, and showing what was held back.

use a2a::TaskState;

use super::{Aftermath, Hidden, TaskRow, Tx, row::Parking};
use crate::{CancelMark, Error, Result, TaskId, TenantId, clock};

pub(crate) fn mark(tx: &mut impl Tx, tenant: TenantId, task: TaskId) -> Result<CancelMark> {
    let mut row = tx.load(tenant, task)?.visible()?;
    if row.state == TaskState::Canceled {
        return Ok(CancelMark::Canceled { already: true });
    }
    if row.state.is_terminal() {
        return Ok(CancelMark::NotCancelable(row.state));
    }
    if row.owner.is_none() && !row.is_parked() {
        row.cancel_mark = true;
        row.cancel(tx, clock::now())?;
        row.save(tx)?;
        return Ok(CancelMark::Canceled { already: false });
    }
    if !row.cancel_mark {
        row.cancel_mark = true;
        row.changed();
        rouse(tx, &mut row);
        row.save(tx)?;
        tx.poke();
    }
    Ok(CancelMark::Running)
}

pub(crate) fn wake(tx: &mut impl Tx, tenant: TenantId, task: TaskId) -> Result<bool> {
    let mut row = tx.load(tenant, task)?;
    let is_parked = row.is_parked();
    let is_there = row.owner.is_some() || is_parked;
    // Who is due already keeps its place in the line.
    let is_awake = if is_parked { row.due_at <= Some(tx.now().0) } else { row.parking == Parking::Woken };
    if is_there && !is_awake {
        row.changed();
        rouse(tx, &mut row);
        row.save(tx)?;
        tx.poke();
    }
    Ok(is_there)
}

/// What is parked goes on now. What runs is not to fall asleep over it.
fn rouse(tx: &mut impl Tx, row: &mut TaskRow) {
    if row.is_parked() {
        row.due_at = row.due_at.min(Some(tx.now().0));
    } else {
        row.parking = Parking::Woken;
    }
}

pub(crate) fn force(tx: &mut impl Tx, tenant: TenantId, task: TaskId) -> Result<()> {
    let mut row = tx.load(tenant, task)?.visible()?;
    if row.state == TaskState::Canceled {
        return Ok(());
    }
    if row.state.is_terminal() {
        return Err(Error::Terminal(row.state));
    }
    if !row.cancel_mark {
        return Err(Error::Illegal(TaskState::Canceled));
    }
    row.cancel(tx, clock::now())?;
    row.generation += 1;
    row.save(tx)
}

/// The agent of a task that has ended was asked to end what others do for it, as was owed under this generation.
pub(crate) fn settle(tx: &mut impl Tx, tenant: TenantId, task: TaskId, generation: u64) -> Result<()> {
    let mut row = tx.load(tenant, task)?;
    if row.aftermath == Aftermath::Owed && row.generation == generation {
        row.aftermath = Aftermath::No;
        row.changed();
        row.save(tx)?;
    }
    Ok(())
}

/// Others may have begun work for a task that has ended, after its agent was asked to end what they do. A cancel that is owed still may be
/// under way, and does not find that work: it is owed under another generation, so that what settles it does not settle this.
pub(crate) fn owe_again(tx: &mut impl Tx, tenant: TenantId, task: TaskId) -> Result<()> {
    let mut row = tx.load(tenant, task)?;
    let is_cut_short = row.state.is_terminal() && row.state != TaskState::Completed;
    if is_cut_short {
        row.aftermath = Aftermath::Owed;
        row.generation += 1;
        row.changed();
        row.save(tx)?;
    }
    Ok(())
}

pub(crate) fn reveal(tx: &mut impl Tx, tenant: TenantId, task: TaskId) -> Result<()> {
    let mut row = tx.load(tenant, task)?;
    match row.hidden {
        Hidden::No => Ok(()),
        // The direct reply was faster.
        Hidden::Direct => Err(Error::Terminal(row.state)),
        Hidden::Undecided => {
            row.reveal(tx)?;
            row.save(tx)
        }
    }
}
