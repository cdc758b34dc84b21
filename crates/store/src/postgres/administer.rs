//! The statements behind the changes of tenants, tokens and settings, and the audit log. The rules are [`ops`]'.
//!
//! They run beside the writer, on connections of their own, and one after the other in the whole installation: each takes
//! the same advisory lock first and keeps it until its commit. So what was looked up stays true until the change is made,
//! and entries of the audit log become visible in the order of their numbers. There are a few a day, not thousands
//! a second. A change whose commit was not answered is [`Error::Unavailable`] and may have been made.

use a2a::Timestamp;
use deadpool_postgres::Transaction;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;

use super::{
    pool::{Pool, Values, silent},
    registry::{ADMIN_TOKENS, AGENT, TENANT, read_admin_token, read_agent, read_tenant, read_token, tokens_of},
};
use crate::{
    AdminToken, AgentId, AuditEntry, Change, Changed, Error, NewAdminToken, NewToken, Result, StoredAgent, StoredCard,
    Tenant, TenantId, Token, clock, codec,
    ops::{self, RegistryTx},
};

/// The advisory lock of whoever changes something here.
pub(super) const LOCK: i64 = 0x5357_4954_4348_0002;

/// Written by [`heartbeat`] only.
const HEARTBEAT: &str = "journal.heartbeat";

const UPSERT: &str = "INSERT INTO settings (name, value) VALUES ($1, $2)
                      ON CONFLICT (name) DO UPDATE SET value = excluded.value";

/// Runs `$body`, which sees the transaction as `$tx`, under the lock; its error undoes everything.
///
/// A macro, since a closure that borrows from the transaction it is given cannot yet be asked to be `Send`.
macro_rules! in_turn {
    ($pool:expr, |$tx:ident| $body:expr) => {{
        let mut session = $pool.checkout().await?;
        let change = async {
            let $tx = session.transaction().await?;
            $tx.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
            // On an error the transaction is dropped, which rolls it back.
            let value = $body?;
            $tx.commit().await?;
            Ok(value)
        };
        let outcome: Result<_> = timeout($pool.bound(), change).await.unwrap_or_else(|_| Err(silent()));
        if !matches!(outcome, Err(Error::Unavailable(_))) {
            session.give_back();
        }
        outcome
    }};
}

pub(super) async fn administer(pool: &Pool, actor: &str, change: &Change) -> Result<Changed> {
    in_turn!(pool, |tx| ops::administer(&tx, actor, change).await)
}

pub(super) async fn set_setting(pool: &Pool, actor: &str, name: &str, value: &[u8]) -> Result<()> {
    in_turn!(pool, |tx| ops::set_setting(&tx, actor, name, value).await)
}

pub(super) async fn replace_setting(pool: &Pool, actor: &str, name: &str, was: &[u8], value: &[u8]) -> Result<bool> {
    in_turn!(pool, |tx| ops::replace_setting(&tx, actor, name, was, value).await)
}

pub(super) async fn add_admin_token(pool: &Pool, actor: &str, new: &NewAdminToken) -> Result<AdminToken> {
    in_turn!(pool, |tx| ops::add_admin_token(&tx, actor, new).await)
}

pub(super) async fn revoke_admin_token(pool: &Pool, actor: &str, token: i64) -> Result<AdminToken> {
    in_turn!(pool, |tx| ops::revoke_admin_token(&tx, actor, token).await)
}

pub(super) async fn put_card(
    pool: &Pool,
    tenant: TenantId,
    agent: &AgentId,
    card: &[u8],
    most: u64,
) -> Result<(StoredCard, bool)> {
    in_turn!(pool, |tx| ops::put_card(&tx, tenant, agent, card, most).await)
}

pub(super) async fn create_agent(
    pool: &Pool,
    tenant: TenantId,
    id: &AgentId,
    definition: &[u8],
    most: u64,
) -> Result<StoredAgent> {
    in_turn!(pool, |tx| ops::create_agent(&tx, tenant, id, definition, most).await)
}

pub(super) async fn replace_agent(
    pool: &Pool,
    tenant: TenantId,
    id: &AgentId,
    definition: &[u8],
) -> Result<StoredAgent> {
    in_turn!(pool, |tx| ops::replace_agent(&tx, tenant, id, definition).await)
}

pub(super) async fn remove_agent(pool: &Pool, tenant: TenantId, id: &AgentId) -> Result<bool> {
    in_turn!(pool, |tx| ops::remove_agent(&tx, tenant, id).await)
}

pub(super) async fn remove_card(pool: &Pool, tenant: TenantId, agent: &str) -> Result<bool> {
    let sql = "DELETE FROM cards WHERE tenant_id = $1 AND agent_id = $2 RETURNING 1";
    Ok(!pool.query(sql, &[&tenant.0, &agent]).await?.is_empty())
}

/// A setting that the first who asks creates. The second of two at once waits for the first one's commit.
pub(super) async fn create_setting(pool: &Pool, name: &str, value: &[u8]) -> Result<Vec<u8>> {
    let insert = "INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
    // It may be said twice: the second time finds the first one's value.
    write_again(pool, insert, &[&name, &value]).await?;
    let row = pool.query_opt("SELECT value FROM settings WHERE name = $1", &[&name]).await?;
    let row = row.ok_or_else(|| Error::Unavailable(format!("the setting {name} was removed while it was made")))?;
    Ok(row.try_get(0)?)
}

pub(super) async fn touch_token(pool: &Pool, token: i64) -> Result<()> {
    let sql = "UPDATE tokens SET used_at = $2 WHERE id = $1";
    write_again(pool, sql, &[&token, &clock::now().as_millis()]).await
}

/// A write that says nothing but that writing works.
pub(super) async fn heartbeat(pool: &Pool) -> Result<()> {
    let now = clock::now().as_millis().to_string();
    write_again(pool, UPSERT, &[&HEARTBEAT, &now.as_bytes()]).await
}

/// Whether tables can grow. A heartbeat, which replaces itself, always finds a place; this does not, and leaves nothing.
pub(super) async fn find_room(pool: &Pool) -> Result<()> {
    let grow = "CREATE TEMPORARY TABLE room ON COMMIT DROP AS SELECT repeat('x', 1000) FROM generate_series(1, 500)";
    let mut session = pool.checkout().await?;
    let grown = timeout(pool.bound(), async {
        let transaction = session.transaction().await?;
        transaction.batch_execute(grow).await?;
        transaction.rollback().await
    });
    let grown = grown.await.map_err(|_| silent())?;
    session.give_back();
    match grown {
        // Who may not make temporary tables has the heartbeat alone.
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => Ok(()),
        grown => Ok(grown?),
    }
}

/// A write that means the same if it is done twice, so that a lost answer does not matter.
async fn write_again(pool: &Pool, sql: &str, values: Values<'_>) -> Result<()> {
    pool.query(sql, values).await.map(drop)
}

pub(super) async fn audit(pool: &Pool, before: Option<i64>, limit: usize) -> Result<Vec<AuditEntry>> {
    let sql = "SELECT id, at, actor, action, detail FROM audit WHERE id < $1 ORDER BY id DESC LIMIT $2";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = pool.query(sql, &[&before.unwrap_or(i64::MAX), &limit]).await?;
    let mut entries = Vec::with_capacity(rows.len());
    for row in &rows {
        entries.push(AuditEntry {
            id: row.try_get(0)?,
            at: codec::time(row.try_get(1)?),
            actor: row.try_get(2)?,
            action: row.try_get(3)?,
            detail: row.try_get(4)?,
        });
    }
    Ok(entries)
}

impl RegistryTx for Transaction<'_> {
    async fn tenant(&self, id: TenantId) -> Result<Tenant> {
        let row = self.query_opt(&format!("SELECT {TENANT} FROM tenants WHERE id = $1"), &[&id.0]).await?;
        read_tenant(&row.ok_or(Error::NotFound)?)
    }

    async fn has_name(&self, name: &str) -> Result<bool> {
        Ok(self.query_opt("SELECT 1 FROM tenants WHERE name = $1", &[&name]).await?.is_some())
    }

    async fn tokens(&self, tenant: TenantId) -> Result<Vec<Token>> {
        self.query(&tokens_of(), &[&tenant.0]).await?.iter().map(read_token).collect()
    }

    async fn has_hash(&self, hash: &[u8; 32]) -> Result<bool> {
        Ok(self.query_opt("SELECT 1 FROM tokens WHERE hash = $1", &[&hash.as_slice()]).await?.is_some())
    }

    async fn insert_tenant(&self, name: &str, at: Timestamp) -> Result<TenantId> {
        let insert = "INSERT INTO tenants (name, enabled, created_at) VALUES ($1, true, $2) RETURNING id";
        Ok(TenantId(self.query_one(insert, &[&name, &at.as_millis()]).await?.try_get(0)?))
    }

    async fn has_tasks(&self, tenant: TenantId) -> Result<bool> {
        let any = "SELECT EXISTS (SELECT 1 FROM a2a_tasks WHERE tenant_id = $1)";
        Ok(self.query_one(any, &[&tenant.0]).await?.try_get(0)?)
    }

    async fn delete_tenant(&self, tenant: TenantId) -> Result<()> {
        for delete in [
            "DELETE FROM tokens WHERE tenant_id = $1",
            "DELETE FROM cards WHERE tenant_id = $1",
            "DELETE FROM tenant_agents WHERE tenant_id = $1",
            "DELETE FROM settings WHERE name = 'push.signing.' || $1::bigint",
            "DELETE FROM idempotency WHERE tenant_id = $1",
            "DELETE FROM task_counts WHERE tenant_id = $1",
            "DELETE FROM tenant_usage WHERE tenant_id = $1",
            "DELETE FROM tenants WHERE id = $1",
        ] {
            self.execute(delete, &[&tenant.0]).await?;
        }
        Ok(())
    }

    async fn insert_token(&self, new: &NewToken, at: Timestamp) -> Result<i64> {
        let insert = "INSERT INTO tokens (tenant_id, hash, name, created_at, expires, scopes, agents)
                      VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING id";
        let expires = new.expires.map(|end| end.as_millis());
        let (hash, scopes, agents) = (new.hash.as_slice(), new.reach.scopes.bits(), new.reach.agents_column());
        let values: Values<'_> = &[&new.tenant.0, &hash, &new.name, &at.as_millis(), &expires, &scopes, &agents];
        Ok(self.query_one(insert, values).await?.try_get(0)?)
    }

    async fn set_enabled(&self, tenant: TenantId, enabled: bool) -> Result<()> {
        self.execute("UPDATE tenants SET enabled = $2 WHERE id = $1", &[&tenant.0, &enabled]).await?;
        Ok(())
    }

    async fn revoke(&self, token: i64, at: Timestamp) -> Result<()> {
        self.execute("UPDATE tokens SET revoked_at = $2 WHERE id = $1", &[&token, &at.as_millis()]).await?;
        Ok(())
    }

    async fn setting(&self, name: &str) -> Result<Option<Vec<u8>>> {
        match self.query_opt("SELECT value FROM settings WHERE name = $1", &[&name]).await? {
            Some(row) => Ok(Some(row.try_get(0)?)),
            None => Ok(None),
        }
    }

    async fn put_setting(&self, name: &str, value: &[u8]) -> Result<()> {
        self.execute(UPSERT, &[&name, &value]).await?;
        Ok(())
    }

    async fn carded(&self, tenant: TenantId) -> Result<Vec<String>> {
        let rows = self.query("SELECT agent_id FROM cards WHERE tenant_id = $1", &[&tenant.0]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    async fn upsert_card(&self, tenant: TenantId, agent: &str, card: &[u8], at: Timestamp) -> Result<()> {
        let upsert = "INSERT INTO cards (tenant_id, agent_id, card, updated_at) VALUES ($1, $2, $3, $4)
                      ON CONFLICT (tenant_id, agent_id) DO UPDATE SET card = excluded.card, updated_at = excluded.updated_at";
        self.execute(upsert, &[&tenant.0, &agent, &card, &at.as_millis()]).await?;
        Ok(())
    }

    async fn own_agent(&self, tenant: TenantId, id: &str) -> Result<Option<StoredAgent>> {
        let one = format!("SELECT {AGENT} FROM tenant_agents WHERE tenant_id = $1 AND agent_id = $2");
        self.query_opt(&one, &[&tenant.0, &id]).await?.map(|row| read_agent(&row, 0)).transpose()
    }

    async fn count_agents(&self, tenant: TenantId) -> Result<u64> {
        let count = "SELECT count(*) FROM tenant_agents WHERE tenant_id = $1";
        Ok(codec::unsigned(self.query_one(count, &[&tenant.0]).await?.try_get(0)?))
    }

    async fn put_agent(&self, agent: &StoredAgent) -> Result<()> {
        let put = "INSERT INTO tenant_agents (tenant_id, agent_id, definition, created_at, updated_at)
                   VALUES ($1, $2, $3, $4, $5)
                   ON CONFLICT (tenant_id, agent_id) DO UPDATE SET definition = excluded.definition,
                     created_at = excluded.created_at, updated_at = excluded.updated_at";
        let (created, updated) = (agent.created_at.as_millis(), agent.updated_at.as_millis());
        let definition = agent.definition.as_slice();
        self.execute(put, &[&agent.tenant.0, &agent.id.as_str(), &definition, &created, &updated]).await?;
        Ok(())
    }

    async fn delete_agent(&self, tenant: TenantId, id: &str) -> Result<bool> {
        let delete = "DELETE FROM tenant_agents WHERE tenant_id = $1 AND agent_id = $2";
        Ok(self.execute(delete, &[&tenant.0, &id]).await? > 0)
    }

    async fn raise_revision(&self) -> Result<()> {
        self.execute("UPDATE agents_revision SET revision = revision + 1", &[]).await?;
        Ok(())
    }

    async fn raise_credentials(&self) -> Result<()> {
        self.execute("UPDATE credentials_revision SET revision = revision + 1", &[]).await?;
        Ok(())
    }

    async fn admin_tokens(&self) -> Result<Vec<AdminToken>> {
        self.query(ADMIN_TOKENS, &[]).await?.iter().map(read_admin_token).collect()
    }

    async fn insert_admin_token(&self, new: &NewAdminToken, at: Timestamp) -> Result<i64> {
        let insert = "INSERT INTO admin_tokens (hash, name, created_at, expires) VALUES ($1, $2, $3, $4) RETURNING id";
        let expires = new.expires.map(|end| end.as_millis());
        let values: Values<'_> = &[&new.hash.as_slice(), &new.name, &at.as_millis(), &expires];
        Ok(self.query_one(insert, values).await?.try_get(0)?)
    }

    async fn revoke_admin(&self, token: i64, at: Timestamp) -> Result<()> {
        self.execute("UPDATE admin_tokens SET revoked_at = $2 WHERE id = $1", &[&token, &at.as_millis()]).await?;
        Ok(())
    }

    async fn write_down(&self, at: Timestamp, actor: &str, action: &str, detail: &str) -> Result<()> {
        let insert = "INSERT INTO audit (at, actor, action, detail) VALUES ($1, $2, $3, $4)";
        self.execute(insert, &[&at.as_millis(), &actor, &action, &detail]).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{
        super::{registry, testing},
        *,
    };
    use crate::Reach;

    async fn create_tenant(pool: &Pool, name: &str) -> Result<Tenant> {
        let create = Change::CreateTenant { name: name.to_owned(), hash: None };
        administer(pool, "admin", &create).await.map(|changed| changed.tenant)
    }

    /// As many instances as there are callers: each has connections of its own.
    #[tokio::test(flavor = "multi_thread")]
    async fn instances_that_race_leave_one_winner() {
        let database = testing::database().await;
        let mut calls = Vec::new();
        for n in 0..8u8 {
            let pool = database.writers();
            calls.push(tokio::spawn(async move {
                let key = create_setting(&pool, "key", &[n; 4]).await.unwrap();
                let create = Change::CreateTenant { name: "acme".into(), hash: Some([n; 32]) };
                let created = administer(&pool, "admin", &create).await;
                assert!(matches!(created, Ok(_) | Err(Error::Exists)), "{created:?}");
                let named = create_tenant(&pool, &format!("tenant {n}")).await.unwrap();
                let hash = NewToken {
                    tenant: named.id,
                    hash: [99; 32],
                    name: "one".into(),
                    expires: None,
                    reach: Reach::default(),
                };
                let token = administer(&pool, "admin", &Change::AddToken(hash)).await;
                assert!(matches!(token, Ok(_) | Err(Error::Exists)), "{token:?}");
                (key, created.is_ok(), token.is_ok())
            }));
        }
        let (mut keys, mut created, mut tokens) = (HashSet::new(), 0, 0);
        for call in calls {
            let (key, tenant, token) = call.await.unwrap();
            keys.insert(key);
            created += usize::from(tenant);
            tokens += usize::from(token);
        }
        assert_eq!((keys.len(), created, tokens), (1, 1, 1));
        let pool = database.readers();
        assert_eq!(registry::tenants(&pool).await.unwrap().len(), 9);
        // Nothing of what was refused is in the log: nine tenants, one token that was added by itself.
        assert_eq!(audit(&pool, None, 100).await.unwrap().len(), 10);
    }

    /// Two rotations at once would leave two live tokens if each looked before the other had ended.
    #[tokio::test(flavor = "multi_thread")]
    async fn rotations_at_once_leave_one_live_token() {
        let database = testing::database().await;
        let pool = database.writers();
        let tenant = create_tenant(&pool, "acme").await.unwrap().id;
        let mut calls = Vec::new();
        for n in 0..8u8 {
            let pool = database.writers();
            let new = NewToken { tenant, hash: [n; 32], name: n.to_string(), expires: None, reach: Reach::default() };
            calls.push(tokio::spawn(async move { administer(&pool, "admin", &Change::Rotate(new)).await }));
        }
        for call in calls {
            call.await.unwrap().unwrap();
        }
        let tokens = registry::tokens(&database.readers(), tenant).await.unwrap();
        assert_eq!(tokens.iter().filter(|token| token.is_live(clock::now())).count(), 1);
    }

    #[tokio::test]
    async fn a_refused_change_leaves_its_connection_usable() {
        let database = testing::database().await;
        let pool = database.writers();
        create_tenant(&pool, "acme").await.unwrap();
        for _ in 0..10 {
            assert!(matches!(create_tenant(&pool, "acme").await, Err(Error::Exists)));
        }
        heartbeat(&pool).await.unwrap();
        database.cut().await;
        heartbeat(&pool).await.unwrap();
        touch_token(&pool, 1).await.unwrap();
        set_setting(&pool, "admin", "key", b"value").await.unwrap();
        assert_eq!(registry::setting(&database.readers(), "key").await.unwrap(), Some(b"value".to_vec()));
    }
}
