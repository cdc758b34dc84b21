//! The statements behind the changes of tenants, tokens and settings, and the audit log. The rules are [`ops`]'.

use a2a::Timestamp;
use futures_util::FutureExt;
use rusqlite::{Connection, params};

use super::{registry, writer::Batch};
use crate::{
    AdminToken, AgentId, AuditEntry, Change, Changed, Error, NewAdminToken, NewToken, Result, StoredAgent, StoredCard,
    Tenant, TenantId, Token, codec,
    ops::{self, RegistryTx},
};

pub(super) fn administer(batch: &Batch<'_>, actor: &str, change: &Change) -> Result<Changed> {
    at_once(ops::administer(batch.conn, actor, change))
}

pub(super) fn set_setting(batch: &Batch<'_>, actor: &str, name: &str, value: &[u8]) -> Result<()> {
    at_once(ops::set_setting(batch.conn, actor, name, value))
}

pub(super) fn replace_setting(batch: &Batch<'_>, actor: &str, name: &str, was: &[u8], value: &[u8]) -> Result<bool> {
    at_once(ops::replace_setting(batch.conn, actor, name, was, value))
}

pub(super) fn add_admin_token(batch: &Batch<'_>, actor: &str, new: &NewAdminToken) -> Result<AdminToken> {
    at_once(ops::add_admin_token(batch.conn, actor, new))
}

pub(super) fn revoke_admin_token(batch: &Batch<'_>, actor: &str, token: i64) -> Result<AdminToken> {
    at_once(ops::revoke_admin_token(batch.conn, actor, token))
}

pub(super) fn put_card(
    batch: &Batch<'_>,
    tenant: TenantId,
    agent: &AgentId,
    card: &[u8],
    most: u64,
) -> Result<(StoredCard, bool)> {
    at_once(ops::put_card(batch.conn, tenant, agent, card, most))
}

pub(super) fn create_agent(
    batch: &Batch<'_>,
    tenant: TenantId,
    id: &AgentId,
    definition: &[u8],
    most: u64,
) -> Result<StoredAgent> {
    at_once(ops::create_agent(batch.conn, tenant, id, definition, most))
}

pub(super) fn replace_agent(
    batch: &Batch<'_>,
    tenant: TenantId,
    id: &AgentId,
    definition: &[u8],
) -> Result<StoredAgent> {
    at_once(ops::replace_agent(batch.conn, tenant, id, definition))
}

pub(super) fn remove_agent(batch: &Batch<'_>, tenant: TenantId, id: &AgentId) -> Result<bool> {
    at_once(ops::remove_agent(batch.conn, tenant, id))
}

/// Runs a change, which has nothing to wait for here.
fn at_once<T>(change: impl Future<Output = Result<T>>) -> Result<T> {
    change.now_or_never().unwrap_or_else(|| Err(Error::Unavailable("a change has to wait".into())))
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

impl RegistryTx for Connection {
    async fn tenant(&self, id: TenantId) -> Result<Tenant> {
        registry::tenant(self, id)
    }

    async fn has_name(&self, name: &str) -> Result<bool> {
        Ok(self.prepare_cached("SELECT 1 FROM tenants WHERE name = ?1")?.exists([name])?)
    }

    async fn tokens(&self, tenant: TenantId) -> Result<Vec<Token>> {
        registry::tokens(self, tenant)
    }

    async fn has_hash(&self, hash: &[u8; 32]) -> Result<bool> {
        Ok(self.prepare_cached("SELECT 1 FROM tokens WHERE hash = ?1")?.exists([hash])?)
    }

    async fn insert_tenant(&self, name: &str, at: Timestamp) -> Result<TenantId> {
        let insert = "INSERT INTO tenants (name, enabled, created_at) VALUES (?1, 1, ?2)";
        Ok(TenantId(self.prepare_cached(insert)?.insert(params![name, at.as_millis()])?))
    }

    async fn has_tasks(&self, tenant: TenantId) -> Result<bool> {
        let any = "SELECT EXISTS (SELECT 1 FROM a2a_tasks WHERE tenant_id = ?1)";
        Ok(self.prepare_cached(any)?.query_row([tenant.0], |row| row.get(0))?)
    }

    async fn delete_tenant(&self, tenant: TenantId) -> Result<()> {
        for delete in [
            "DELETE FROM tokens WHERE tenant_id = ?1",
            "DELETE FROM cards WHERE tenant_id = ?1",
            "DELETE FROM tenant_agents WHERE tenant_id = ?1",
            "DELETE FROM settings WHERE name = 'push.signing.' || ?1",
            "DELETE FROM idempotency WHERE tenant_id = ?1",
            "DELETE FROM task_counts WHERE tenant_id = ?1",
            "DELETE FROM tenant_usage WHERE tenant_id = ?1",
            "DELETE FROM tenants WHERE id = ?1",
        ] {
            self.prepare_cached(delete)?.execute([tenant.0])?;
        }
        Ok(())
    }

    async fn insert_token(&self, new: &NewToken, at: Timestamp) -> Result<i64> {
        let insert = "INSERT INTO tokens (tenant_id, hash, name, created_at, expires, scopes, agents)
                      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let expires = new.expires.map(|end| end.as_millis());
        let (scopes, agents) = (new.reach.scopes.bits(), new.reach.agents_column());
        let values = params![new.tenant.0, new.hash, new.name, at.as_millis(), expires, scopes, agents];
        Ok(self.prepare_cached(insert)?.insert(values)?)
    }

    async fn set_enabled(&self, tenant: TenantId, enabled: bool) -> Result<()> {
        self.prepare_cached("UPDATE tenants SET enabled = ?2 WHERE id = ?1")?.execute(params![tenant.0, enabled])?;
        Ok(())
    }

    async fn revoke(&self, token: i64, at: Timestamp) -> Result<()> {
        let end = "UPDATE tokens SET revoked_at = ?2 WHERE id = ?1";
        self.prepare_cached(end)?.execute(params![token, at.as_millis()])?;
        Ok(())
    }

    async fn setting(&self, name: &str) -> Result<Option<Vec<u8>>> {
        registry::setting(self, name)
    }

    async fn put_setting(&self, name: &str, value: &[u8]) -> Result<()> {
        registry::put_setting(self, name, value)
    }

    async fn carded(&self, tenant: TenantId) -> Result<Vec<String>> {
        let mut ids = self.prepare_cached("SELECT agent_id FROM cards WHERE tenant_id = ?1")?;
        let ids = ids.query_map([tenant.0], |row| row.get(0))?;
        Ok(ids.collect::<Result<_, _>>()?)
    }

    async fn upsert_card(&self, tenant: TenantId, agent: &str, card: &[u8], at: Timestamp) -> Result<()> {
        let upsert = "INSERT OR REPLACE INTO cards (tenant_id, agent_id, card, updated_at) VALUES (?1, ?2, ?3, ?4)";
        self.prepare_cached(upsert)?.execute(params![tenant.0, agent, card, at.as_millis()])?;
        Ok(())
    }

    async fn own_agent(&self, tenant: TenantId, id: &str) -> Result<Option<StoredAgent>> {
        registry::own_agent(self, tenant, id)
    }

    async fn count_agents(&self, tenant: TenantId) -> Result<u64> {
        let mut count = self.prepare_cached("SELECT count(*) FROM tenant_agents WHERE tenant_id = ?1")?;
        Ok(codec::unsigned(count.query_row([tenant.0], |row| row.get(0))?))
    }

    async fn put_agent(&self, agent: &StoredAgent) -> Result<()> {
        let put = "INSERT OR REPLACE INTO tenant_agents (tenant_id, agent_id, definition, created_at, updated_at)
                   VALUES (?1, ?2, ?3, ?4, ?5)";
        let (created, updated) = (agent.created_at.as_millis(), agent.updated_at.as_millis());
        let values = params![agent.tenant.0, agent.id.as_str(), agent.definition, created, updated];
        self.prepare_cached(put)?.execute(values)?;
        Ok(())
    }

    async fn delete_agent(&self, tenant: TenantId, id: &str) -> Result<bool> {
        let mut delete = self.prepare_cached("DELETE FROM tenant_agents WHERE tenant_id = ?1 AND agent_id = ?2")?;
        Ok(delete.execute(params![tenant.0, id])? > 0)
    }

    async fn raise_revision(&self) -> Result<()> {
        self.prepare_cached("UPDATE agents_revision SET revision = revision + 1")?.execute(())?;
        Ok(())
    }

    async fn raise_credentials(&self) -> Result<()> {
        self.prepare_cached("UPDATE credentials_revision SET revision = revision + 1")?.execute(())?;
        Ok(())
    }

    async fn admin_tokens(&self) -> Result<Vec<AdminToken>> {
        registry::admin_tokens(self)
    }

    async fn insert_admin_token(&self, new: &NewAdminToken, at: Timestamp) -> Result<i64> {
        let insert = "INSERT INTO admin_tokens (hash, name, created_at, expires) VALUES (?1, ?2, ?3, ?4)";
        let expires = new.expires.map(|end| end.as_millis());
        Ok(self.prepare_cached(insert)?.insert(params![new.hash, new.name, at.as_millis(), expires])?)
    }

    async fn revoke_admin(&self, token: i64, at: Timestamp) -> Result<()> {
        let end = "UPDATE admin_tokens SET revoked_at = ?2 WHERE id = ?1";
        self.prepare_cached(end)?.execute(params![token, at.as_millis()])?;
        Ok(())
    }

    async fn write_down(&self, at: Timestamp, actor: &str, action: &str, detail: &str) -> Result<()> {
        let insert = "INSERT INTO audit (at, actor, action, detail) VALUES (?1, ?2, ?3, ?4)";
        self.prepare_cached(insert)?.execute(params![at.as_millis(), actor, action, detail])?;
        Ok(())
    }
}
