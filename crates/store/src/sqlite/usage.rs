//! What each tenant uses: summed in memory while a batch runs, written once before its commit.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, params};

use crate::{Quota, Result, TenantId, Usage, codec, ops};

/// What a batch changes, by tenant.
#[derive(Default)]
pub(super) struct Ledger {
    tenants: HashMap<TenantId, Entry>,
}

#[derive(Default)]
struct Entry {
    tasks: i64,
    bytes: i64,
    /// What was committed before the batch, once somebody has asked.
    before: Option<(i64, i64)>,
}

impl Ledger {
    /// A tenant has so many more tasks that have not ended, and so many more bytes.
    pub(super) fn add(&mut self, tenant: TenantId, tasks: i64, bytes: i64) {
        if tasks != 0 || bytes != 0 {
            let entry = self.tenants.entry(tenant).or_default();
            entry.tasks += tasks;
            entry.bytes += bytes;
        }
    }

    /// Refuses a message of a tenant that has come to its bound; `begins` when it would be one task more.
    pub(super) fn check(&mut self, conn: &Connection, tenant: TenantId, quota: Quota, begins: bool) -> Result<()> {
        if quota.tasks.filter(|_| begins).is_none() && quota.bytes.is_none() {
            return Ok(());
        }
        let entry = self.tenants.entry(tenant).or_default();
        let (tasks, bytes) = match entry.before {
            Some(before) => before,
            None => *entry.before.insert(find(conn, tenant)?),
        };
        ops::within_quota(quota, begins, tasks + entry.tasks, bytes + entry.bytes)
    }

    /// Writes the sums.
    pub(super) fn write(&mut self, conn: &Connection) -> Result<()> {
        let changed = self.tenants.drain().filter(|(_, entry)| entry.tasks != 0 || entry.bytes != 0);
        for (tenant, entry) in changed {
            conn.prepare_cached(
                "INSERT INTO tenant_usage (tenant_id, tasks, bytes) VALUES (?1, ?2, ?3)
                 ON CONFLICT DO UPDATE SET tasks = tasks + excluded.tasks, bytes = bytes + excluded.bytes",
            )?
            .execute(params![tenant.0, entry.tasks, entry.bytes])?;
        }
        Ok(())
    }
}

pub(super) fn usage(conn: &Connection, tenant: TenantId) -> Result<Usage> {
    let (tasks, bytes) = find(conn, tenant)?;
    Ok(Usage { tasks: codec::unsigned(tasks), bytes: codec::unsigned(bytes) })
}

fn find(conn: &Connection, tenant: TenantId) -> Result<(i64, i64)> {
    let found = conn
        .prepare_cached("SELECT tasks, bytes FROM tenant_usage WHERE tenant_id = ?1")?
        .query_row([tenant.0], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    Ok(found.unwrap_or_default())
}
