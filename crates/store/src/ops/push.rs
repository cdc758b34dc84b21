//! Push configurations as part of their tasks: making, replacing and removing them. How they tell is in [`crate::push`].

use a2a::Timestamp;

use super::{TaskRow, Tx};
use crate::{Error, MOST_CONFIGS, NewPush, Result, TaskId, TenantId, clock};

/// Makes or replaces a configuration of a task that callers see.
pub(crate) fn put_push(tx: &mut impl Tx, tenant: TenantId, task: TaskId, new: &NewPush) -> Result<()> {
    let mut row = tx.load(tenant, task)?.visible()?;
    let room = Room::of(tx, &row, new)?;
    let from = row.seq;
    room.put(tx, &mut row, new, from, clock::now())?;
    row.save(tx)
}

/// Removes a configuration; says whether there was one.
pub(crate) fn remove_push(tx: &mut impl Tx, tenant: TenantId, task: TaskId, id: &str) -> Result<bool> {
    let mut row = tx.load(tenant, task)?.visible()?;
    if row.pushes == 0 {
        return Ok(false);
    }
    let Some((_, bytes)) = tx.pushes(&row)?.into_iter().find(|(known, _)| known == id) else { return Ok(false) };
    row.changed();
    row.pushes -= 1;
    row.removed(bytes);
    tx.remove_push(&row, id)?;
    row.save(tx)?;
    Ok(true)
}

/// Removes all configurations of a task: nobody sees it, and nothing comes of it any more.
pub(super) fn remove_all(tx: &mut impl Tx, row: &mut TaskRow) -> Result<()> {
    if row.pushes == 0 {
        return Ok(());
    }
    for (id, bytes) in tx.pushes(row)? {
        row.removed(bytes);
        tx.remove_push(row, &id)?;
    }
    row.changed();
    row.pushes = 0;
    Ok(())
}

/// That there is room for a configuration, known before anything is written.
pub(super) struct Room {
    /// The bytes of the one that it replaces.
    replaces: Option<i64>,
}

impl Room {
    pub(super) fn of(tx: &mut impl Tx, row: &TaskRow, new: &NewPush) -> Result<Self> {
        if row.pushes == 0 {
            return Ok(Self { replaces: None });
        }
        let known = tx.pushes(row)?;
        let replaces = known.into_iter().find(|(id, _)| *id == new.id).map(|(_, bytes)| bytes);
        if replaces.is_none() && row.pushes >= MOST_CONFIGS {
            return Err(Error::TooManyPushes { limit: MOST_CONFIGS });
        }
        Ok(Self { replaces })
    }

    pub(super) fn put(
        self,
        tx: &mut impl Tx,
        row: &mut TaskRow,
        new: &NewPush,
        from: u64,
        at: Timestamp,
    ) -> Result<()> {
        row.changed();
        match self.replaces {
            Some(bytes) => row.removed(bytes),
            None => row.pushes += 1,
        }
        row.wrote(new.size());
        tx.put_push(row, new, from, at)
    }
}
