//! What belongs to the installation: settings, tenants, tokens.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{codec, writer::Batch};
use crate::{Error, NewToken, Result, Tenant, TenantId, Token, clock};

/// Written by [`heartbeat`] only.
const HEARTBEAT: &str = "journal.heartbeat";

pub(super) fn setting(conn: &Connection, name: &str) -> Result<Option<Vec<u8>>> {
    Ok(conn
        .prepare_cached("SELECT value FROM settings WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
        .optional()?)
}

pub(super) fn create_setting(batch: &Batch<'_>, name: &str, value: &[u8]) -> Result<Vec<u8>> {
    if let Some(first) = setting(batch.conn, name)? {
        return Ok(first);
    }
    batch.conn.prepare_cached("INSERT INTO settings (name, value) VALUES (?1, ?2)")?.execute(params![name, value])?;
    Ok(value.to_vec())
}

/// A write that says nothing but that writing works.
pub(super) fn heartbeat(batch: &Batch<'_>) -> Result<()> {
    let now = clock::now().as_millis().to_string();
    batch
        .conn
        .prepare_cached("INSERT OR REPLACE INTO settings (name, value) VALUES (?1, ?2)")?
        .execute(params![HEARTBEAT, now.as_bytes()])?;
    Ok(())
}

pub(super) fn create_tenant(batch: &Batch<'_>, name: &str) -> Result<Tenant> {
    let taken = batch.conn.prepare_cached("SELECT 1 FROM tenants WHERE name = ?1")?.exists([name])?;
    if taken {
        return Err(Error::Exists);
    }
    let created_at = clock::now();
    batch
        .conn
        .prepare_cached("INSERT INTO tenants (name, enabled, created_at) VALUES (?1, 1, ?2)")?
        .execute(params![name, created_at.as_millis()])?;
    let id = TenantId(batch.conn.last_insert_rowid());
    Ok(Tenant { id, name: name.to_owned(), enabled: true, created_at })
}

pub(super) fn tenants(conn: &Connection) -> Result<Vec<Tenant>> {
    let mut all = conn.prepare_cached("SELECT id, name, enabled, created_at FROM tenants ORDER BY name")?;
    let all = all.query_map((), |row| {
        Ok(Tenant {
            id: TenantId(row.get(0)?),
            name: row.get(1)?,
            enabled: row.get(2)?,
            created_at: codec::time(row.get(3)?),
        })
    })?;
    Ok(all.collect::<Result<_, _>>()?)
}

pub(super) fn add_token(batch: &Batch<'_>, token: &NewToken) -> Result<Token> {
    let conn = batch.conn;
    if !conn.prepare_cached("SELECT 1 FROM tenants WHERE id = ?1")?.exists([token.tenant.0])? {
        return Err(Error::NotFound);
    }
    if conn.prepare_cached("SELECT 1 FROM tokens WHERE hash = ?1")?.exists([token.hash])? {
        return Err(Error::Exists);
    }
    let created_at = clock::now();
    conn.prepare_cached("INSERT INTO tokens (tenant_id, hash, name, created_at, expires) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![
            token.tenant.0,
            token.hash,
            token.name,
            created_at.as_millis(),
            token.expires.map(|at| at.as_millis())
        ])?;
    Ok(Token {
        id: conn.last_insert_rowid(),
        tenant: token.tenant,
        hash: token.hash,
        name: token.name.clone(),
        expires: token.expires,
        created_at,
    })
}

/// The token, if it is not expired or revoked and its tenant is enabled.
pub(super) fn token(conn: &Connection, hash: &[u8; 32]) -> Result<Option<Token>> {
    let read = |row: &Row<'_>| {
        Ok(Token {
            id: row.get(0)?,
            tenant: TenantId(row.get(1)?),
            hash: row.get(2)?,
            name: row.get(3)?,
            expires: row.get::<_, Option<i64>>(4)?.map(codec::time),
            created_at: codec::time(row.get(5)?),
        })
    };
    Ok(conn
        .prepare_cached(
            "SELECT k.id, k.tenant_id, k.hash, k.name, k.expires, k.created_at
             FROM tokens k JOIN tenants t ON t.id = k.tenant_id
             WHERE k.hash = ?1 AND k.revoked_at IS NULL AND (k.expires IS NULL OR k.expires > ?2) AND t.enabled = 1",
        )?
        .query_row(params![hash, clock::now().as_millis()], read)
        .optional()?)
}
