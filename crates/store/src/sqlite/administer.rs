//! Changes of tenants, tokens and settings, each with its entry of the audit log in the same transaction.
//!
//! Whatever is refused is refused before the first write, as the writer asks of its operations.

use rusqlite::{Connection, params};
use serde_json::{Value, json};

use super::{registry, writer::Batch};
use crate::{
    AuditEntry, Change, Changed, Error, NewToken, Result, Tenant, TenantId, Token,
    audit::{self, detail, tenant_state, token_state},
    clock, codec,
};

/// The name of a tenant's first token.
const FIRST: &str = "first";

pub(super) fn administer(batch: &Batch<'_>, actor: &str, change: &Change) -> Result<Changed> {
    let conn = batch.conn;
    match change {
        Change::CreateTenant { name, hash } => {
            refuse_known_hash(conn, hash)?;
            let tenant = create_tenant(batch, actor, name)?;
            let first = NewToken { tenant: tenant.id, hash: *hash, name: FIRST.to_owned(), expires: None };
            let token = insert_token(conn, &first)?;
            Ok(Changed { tenant, token: Some(token) })
        }
        Change::SetEnabled { tenant, enabled } => {
            let tenant = set_enabled(conn, actor, *tenant, *enabled)?;
            Ok(Changed { tenant, token: None })
        }
        Change::AddToken(new) => {
            let token = add_token(batch, actor, new)?;
            Ok(Changed { tenant: registry::tenant(conn, new.tenant)?, token: Some(token) })
        }
        Change::RevokeToken { tenant, token } => {
            let (tenant, token) = revoke(conn, actor, *tenant, *token)?;
            Ok(Changed { tenant, token: Some(token) })
        }
        Change::Rotate(new) => rotate(conn, actor, new),
    }
}

pub(super) fn create_tenant(batch: &Batch<'_>, actor: &str, name: &str) -> Result<Tenant> {
    let conn = batch.conn;
    if conn.prepare_cached("SELECT 1 FROM tenants WHERE name = ?1")?.exists([name])? {
        return Err(Error::Exists);
    }
    let created_at = clock::now();
    conn.prepare_cached("INSERT INTO tenants (name, enabled, created_at) VALUES (?1, 1, ?2)")?
        .execute(params![name, created_at.as_millis()])?;
    let id = TenantId(conn.last_insert_rowid());
    let tenant = Tenant { id, name: name.to_owned(), enabled: true, created_at };
    write_down(conn, actor, "create_tenant", &detail("tenant", id.0, Value::Null, tenant_state(&tenant)))?;
    Ok(tenant)
}

pub(super) fn add_token(batch: &Batch<'_>, actor: &str, new: &NewToken) -> Result<Token> {
    let conn = batch.conn;
    registry::tenant(conn, new.tenant)?;
    refuse_known_hash(conn, &new.hash)?;
    let token = insert_token(conn, new)?;
    write_down(conn, actor, "create_token", &detail("token", token.id, Value::Null, token_state(&token)))?;
    Ok(token)
}

pub(super) fn set_setting(batch: &Batch<'_>, actor: &str, name: &str, value: &[u8]) -> Result<()> {
    let conn = batch.conn;
    conn.prepare_cached("INSERT OR REPLACE INTO settings (name, value) VALUES (?1, ?2)")?
        .execute(params![name, value])?;
    let detail = audit::of_setting(name);
    write_down(conn, actor, "set_setting", &detail)
}

pub(super) fn audit(conn: &Connection, before: Option<i64>, limit: usize) -> Result<Vec<AuditEntry>> {
    let mut entries =
        conn.prepare_cached("SELECT id, at, actor, action, detail FROM audit WHERE id < ?1 ORDER BY id DESC LIMIT ?2")?;
    let before = before.unwrap_or(i64::MAX);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let entries = entries.query_map(params![before, limit], |row| {
        Ok(AuditEntry {
            id: row.get(0)?,
            at: codec::time(row.get(1)?),
            actor: row.get(2)?,
            action: row.get(3)?,
            detail: row.get(4)?,
        })
    })?;
    Ok(entries.collect::<Result<_, _>>()?)
}

fn set_enabled(conn: &Connection, actor: &str, id: TenantId, enabled: bool) -> Result<Tenant> {
    let before = registry::tenant(conn, id)?;
    if before.enabled == enabled {
        return Ok(before);
    }
    conn.prepare_cached("UPDATE tenants SET enabled = ?2 WHERE id = ?1")?.execute(params![id.0, enabled])?;
    let after = Tenant { enabled, ..before.clone() };
    let detail = detail("tenant", id.0, tenant_state(&before), tenant_state(&after));
    write_down(conn, actor, "update_tenant", &detail)?;
    Ok(after)
}

fn revoke(conn: &Connection, actor: &str, tenant: TenantId, token: i64) -> Result<(Tenant, Token)> {
    let owner = registry::tenant(conn, tenant)?;
    let found = registry::tokens(conn, tenant)?.into_iter().find(|found| found.id == token);
    let mut token = found.ok_or(Error::NotFound)?;
    if token.revoked_at.is_none() {
        let before = token_state(&token);
        let at = clock::now();
        conn.prepare_cached("UPDATE tokens SET revoked_at = ?2 WHERE id = ?1")?
            .execute(params![token.id, at.as_millis()])?;
        token.revoked_at = Some(at);
        write_down(conn, actor, "revoke_token", &detail("token", token.id, before, token_state(&token)))?;
    }
    Ok((owner, token))
}

fn rotate(conn: &Connection, actor: &str, new: &NewToken) -> Result<Changed> {
    let tenant = registry::tenant(conn, new.tenant)?;
    refuse_known_hash(conn, &new.hash)?;
    let now = clock::now();
    let live = |token: &Token| token.is_live(now);
    let ended: Vec<i64> = registry::tokens(conn, new.tenant)?.into_iter().filter(live).map(|token| token.id).collect();
    conn.prepare_cached("UPDATE tokens SET revoked_at = ?2 WHERE tenant_id = ?1 AND revoked_at IS NULL")?
        .execute(params![new.tenant.0, now.as_millis()])?;
    let token = insert_token(conn, new)?;
    let detail = detail("tenant", tenant.id.0, json!({"tokens": ended}), json!({"tokens": [token.id]}));
    write_down(conn, actor, "rotate_tenant_token", &detail)?;
    Ok(Changed { tenant, token: Some(token) })
}

fn refuse_known_hash(conn: &Connection, hash: &[u8; 32]) -> Result<()> {
    if conn.prepare_cached("SELECT 1 FROM tokens WHERE hash = ?1")?.exists([hash])? {
        return Err(Error::Exists);
    }
    Ok(())
}

fn insert_token(conn: &Connection, new: &NewToken) -> Result<Token> {
    let created_at = clock::now();
    conn.prepare_cached("INSERT INTO tokens (tenant_id, hash, name, created_at, expires) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![
            new.tenant.0,
            new.hash,
            new.name,
            created_at.as_millis(),
            new.expires.map(|at| at.as_millis())
        ])?;
    Ok(Token {
        id: conn.last_insert_rowid(),
        tenant: new.tenant,
        hash: new.hash,
        name: new.name.clone(),
        expires: new.expires,
        created_at,
        revoked_at: None,
        used_at: None,
    })
}

fn write_down(conn: &Connection, actor: &str, action: &str, detail: &Value) -> Result<()> {
    conn.prepare_cached("INSERT INTO audit (at, actor, action, detail) VALUES (?1, ?2, ?3, ?4)")?.execute(params![
        clock::now().as_millis(),
        actor,
        action,
        detail.to_string()
    ])?;
    Ok(())
}
