//! Changes of tenants, tokens and settings, each with its entry of the audit log in the same transaction.
//!
//! They run beside the writer, on connections of their own, and one after the other in the whole installation: each takes
//! the same advisory lock first and keeps it until its commit. So what was looked up stays true until the change is made,
//! and entries of the audit log become visible in the order of their numbers. There are a few a day, not thousands
//! a second. A change whose commit was not answered is [`Error::Unavailable`] and may have been made.

use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_postgres::{Transaction, error::SqlState};

use super::{
    pool::{Pool, give_up, silent},
    registry::{TENANT, TOKEN, read_tenant, read_token},
};
use crate::{
    AuditEntry, Change, Changed, Error, NewToken, Result, Tenant, TenantId, Token,
    audit::{self, detail, tenant_state, token_state},
    clock, codec,
};

/// The name of a tenant's first token.
const FIRST: &str = "first";

/// The advisory lock of whoever changes something here.
const LOCK: i64 = 0x5357_4954_4348_0002;

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
        if matches!(outcome, Err(Error::Unavailable(_))) {
            give_up(session);
        }
        outcome
    }};
}

pub(super) async fn administer(pool: &Pool, actor: &str, change: &Change) -> Result<Changed> {
    in_turn!(pool, |tx| apply(&tx, actor, change).await)
}

pub(super) async fn create_tenant(pool: &Pool, actor: &str, name: &str) -> Result<Tenant> {
    in_turn!(pool, |tx| insert_tenant(&tx, actor, name).await)
}

pub(super) async fn add_token(pool: &Pool, actor: &str, new: &NewToken) -> Result<Token> {
    in_turn!(pool, |tx| audited_token(&tx, actor, new).await)
}

pub(super) async fn set_setting(pool: &Pool, actor: &str, name: &str, value: &[u8]) -> Result<()> {
    in_turn!(pool, |tx| replace_setting(&tx, actor, name, value).await)
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
    match grown.await {
        // Who may not make temporary tables has the heartbeat alone.
        Ok(Err(error)) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => Ok(()),
        Ok(grown) => Ok(grown?),
        Err(_) => {
            give_up(session);
            Err(silent())
        }
    }
}

/// A write that means the same if it is done twice, so that a lost answer does not matter.
async fn write_again(pool: &Pool, sql: &str, values: super::pool::Values<'_>) -> Result<()> {
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

async fn apply(tx: &Transaction<'_>, actor: &str, change: &Change) -> Result<Changed> {
    match change {
        Change::CreateTenant { name, hash } => {
            refuse_known_hash(tx, hash).await?;
            let tenant = insert_tenant(tx, actor, name).await?;
            let first = NewToken { tenant: tenant.id, hash: *hash, name: FIRST.to_owned(), expires: None };
            let token = insert_token(tx, &first).await?;
            Ok(Changed { tenant, token: Some(token) })
        }
        Change::SetEnabled { tenant, enabled } => {
            let tenant = set_enabled(tx, actor, *tenant, *enabled).await?;
            Ok(Changed { tenant, token: None })
        }
        Change::AddToken(new) => {
            let token = audited_token(tx, actor, new).await?;
            Ok(Changed { tenant: find_tenant(tx, new.tenant).await?, token: Some(token) })
        }
        Change::RevokeToken { tenant, token } => {
            let (tenant, token) = revoke(tx, actor, *tenant, *token).await?;
            Ok(Changed { tenant, token: Some(token) })
        }
        Change::Rotate(new) => rotate(tx, actor, new).await,
    }
}

async fn insert_tenant(tx: &Transaction<'_>, actor: &str, name: &str) -> Result<Tenant> {
    let created_at = clock::now();
    let insert = "INSERT INTO tenants (name, enabled, created_at) VALUES ($1, true, $2)
                  ON CONFLICT (name) DO NOTHING RETURNING id";
    let row = tx.query_opt(insert, &[&name, &created_at.as_millis()]).await?.ok_or(Error::Exists)?;
    let id = TenantId(row.try_get(0)?);
    let tenant = Tenant { id, name: name.to_owned(), enabled: true, created_at };
    write_down(tx, actor, "create_tenant", &detail("tenant", id.0, Value::Null, tenant_state(&tenant))).await?;
    Ok(tenant)
}

async fn audited_token(tx: &Transaction<'_>, actor: &str, new: &NewToken) -> Result<Token> {
    find_tenant(tx, new.tenant).await?;
    let token = insert_token(tx, new).await?;
    write_down(tx, actor, "create_token", &detail("token", token.id, Value::Null, token_state(&token))).await?;
    Ok(token)
}

async fn replace_setting(tx: &Transaction<'_>, actor: &str, name: &str, value: &[u8]) -> Result<()> {
    tx.execute(UPSERT, &[&name, &value]).await?;
    let detail = audit::of_setting(name);
    write_down(tx, actor, "set_setting", &detail).await
}

async fn set_enabled(tx: &Transaction<'_>, actor: &str, id: TenantId, enabled: bool) -> Result<Tenant> {
    let before = find_tenant(tx, id).await?;
    if before.enabled == enabled {
        return Ok(before);
    }
    tx.execute("UPDATE tenants SET enabled = $2 WHERE id = $1", &[&id.0, &enabled]).await?;
    let after = Tenant { enabled, ..before.clone() };
    let detail = detail("tenant", id.0, tenant_state(&before), tenant_state(&after));
    write_down(tx, actor, "update_tenant", &detail).await?;
    Ok(after)
}

async fn revoke(tx: &Transaction<'_>, actor: &str, tenant: TenantId, token: i64) -> Result<(Tenant, Token)> {
    let owner = find_tenant(tx, tenant).await?;
    let sql = format!("SELECT {TOKEN} FROM tokens k WHERE k.id = $1 AND k.tenant_id = $2");
    let row = tx.query_opt(&sql, &[&token, &tenant.0]).await?;
    let mut token = read_token(&row.ok_or(Error::NotFound)?)?;
    if token.revoked_at.is_none() {
        let before = token_state(&token);
        let at = clock::now();
        tx.execute("UPDATE tokens SET revoked_at = $2 WHERE id = $1", &[&token.id, &at.as_millis()]).await?;
        token.revoked_at = Some(at);
        write_down(tx, actor, "revoke_token", &detail("token", token.id, before, token_state(&token))).await?;
    }
    Ok((owner, token))
}

async fn rotate(tx: &Transaction<'_>, actor: &str, new: &NewToken) -> Result<Changed> {
    let tenant = find_tenant(tx, new.tenant).await?;
    refuse_known_hash(tx, &new.hash).await?;
    let now = clock::now();
    // Those that had run out are ended too, but they are not what the rotation took away.
    let end = "UPDATE tokens SET revoked_at = $2 WHERE tenant_id = $1 AND revoked_at IS NULL RETURNING id, expires";
    let mut ended: Vec<i64> = Vec::new();
    for row in tx.query(end, &[&new.tenant.0, &now.as_millis()]).await? {
        if row.try_get::<_, Option<i64>>(1)?.is_none_or(|expires| expires > now.as_millis()) {
            ended.push(row.try_get(0)?);
        }
    }
    ended.sort_unstable();
    let token = insert_token(tx, new).await?;
    let detail = detail("tenant", tenant.id.0, json!({"tokens": ended}), json!({"tokens": [token.id]}));
    write_down(tx, actor, "rotate_tenant_token", &detail).await?;
    Ok(Changed { tenant, token: Some(token) })
}

async fn find_tenant(tx: &Transaction<'_>, id: TenantId) -> Result<Tenant> {
    let row = tx.query_opt(&format!("SELECT {TENANT} FROM tenants WHERE id = $1"), &[&id.0]).await?;
    read_tenant(&row.ok_or(Error::NotFound)?)
}

async fn refuse_known_hash(tx: &Transaction<'_>, hash: &[u8; 32]) -> Result<()> {
    let known = tx.query_opt("SELECT 1 FROM tokens WHERE hash = $1", &[&hash.as_slice()]).await?;
    if known.is_some() { Err(Error::Exists) } else { Ok(()) }
}

async fn insert_token(tx: &Transaction<'_>, new: &NewToken) -> Result<Token> {
    let created_at = clock::now();
    let insert = "INSERT INTO tokens (tenant_id, hash, name, created_at, expires) VALUES ($1, $2, $3, $4, $5)
                  ON CONFLICT (hash) DO NOTHING RETURNING id";
    let expires = new.expires.map(|at| at.as_millis());
    let values: super::pool::Values<'_> =
        &[&new.tenant.0, &new.hash.as_slice(), &new.name, &created_at.as_millis(), &expires];
    let row = tx.query_opt(insert, values).await?.ok_or(Error::Exists)?;
    Ok(Token {
        id: row.try_get(0)?,
        tenant: new.tenant,
        hash: new.hash,
        name: new.name.clone(),
        expires: new.expires,
        created_at,
        revoked_at: None,
        used_at: None,
    })
}

async fn write_down(tx: &Transaction<'_>, actor: &str, action: &str, detail: &Value) -> Result<()> {
    let insert = "INSERT INTO audit (at, actor, action, detail) VALUES ($1, $2, $3, $4)";
    tx.execute(insert, &[&clock::now().as_millis(), &actor, &action, &detail.to_string()]).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{
        super::{registry, testing},
        *,
    };

    /// As many instances as there are callers: each has connections of its own.
    #[tokio::test(flavor = "multi_thread")]
    async fn instances_that_race_leave_one_winner() {
        let database = testing::database().await;
        let mut calls = Vec::new();
        for n in 0..8u8 {
            let pool = database.writers();
            calls.push(tokio::spawn(async move {
                let key = create_setting(&pool, "key", &[n; 4]).await.unwrap();
                let create = Change::CreateTenant { name: "acme".into(), hash: [n; 32] };
                let created = administer(&pool, "admin", &create).await;
                assert!(matches!(created, Ok(_) | Err(Error::Exists)), "{created:?}");
                let named = create_tenant(&pool, audit::SYSTEM, &format!("tenant {n}")).await.unwrap();
                let hash = NewToken { tenant: named.id, hash: [99; 32], name: "one".into(), expires: None };
                let token = add_token(&pool, audit::SYSTEM, &hash).await;
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
        let tenant = create_tenant(&pool, audit::SYSTEM, "acme").await.unwrap().id;
        let mut calls = Vec::new();
        for n in 0..8u8 {
            let pool = database.writers();
            let new = NewToken { tenant, hash: [n; 32], name: n.to_string(), expires: None };
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
        create_tenant(&pool, audit::SYSTEM, "acme").await.unwrap();
        for _ in 0..10 {
            assert!(matches!(create_tenant(&pool, audit::SYSTEM, "acme").await, Err(Error::Exists)));
        }
        heartbeat(&pool).await.unwrap();
        database.cut().await;
        heartbeat(&pool).await.unwrap();
        touch_token(&pool, 1).await.unwrap();
        set_setting(&pool, "admin", "key", b"value").await.unwrap();
        assert_eq!(registry::setting(&database.readers(), "key").await.unwrap(), Some(b"value".to_vec()));
    }
}
