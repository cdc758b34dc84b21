//! The rules of administration: what may be changed of tenants, tokens and settings, and what the audit log says of it.
//!
//! Administration has a transaction of its own, [`RegistryTx`], beside [`Tx`](super::Tx): on PostgreSQL it runs on a
//! connection of its own and waits for each answer, so its methods are asynchronous. SQLite answers at once.

use a2a::Timestamp;
use serde_json::{Value, json};

use crate::{
    AdminToken, AgentId, Change, Changed, Error, NewAdminToken, NewToken, Reach, Result, Scope, StoredAgent,
    StoredCard, Tenant, TenantId, Token, clock,
};

/// The name of a tenant's first token.
const FIRST: &str = "first";

/// The transaction that a change is part of. No other change runs beside it: what was looked up stays true.
pub(crate) trait RegistryTx {
    /// The tenant; [`Error::NotFound`] when there is none.
    async fn tenant(&self, id: TenantId) -> Result<Tenant>;
    /// Whether a tenant has this name.
    async fn has_name(&self, name: &str) -> Result<bool>;
    /// All tokens of a tenant, oldest first.
    async fn tokens(&self, tenant: TenantId) -> Result<Vec<Token>>;
    /// Whether a token has this hash, be it revoked.
    async fn has_hash(&self, hash: &[u8; 32]) -> Result<bool>;

    /// Adds a tenant that is enabled.
    async fn insert_tenant(&self, name: &str, at: Timestamp) -> Result<TenantId>;
    /// Adds a token and gives its number.
    async fn insert_token(&self, new: &NewToken, at: Timestamp) -> Result<i64>;
    /// Whether a tenant's tokens are honoured.
    async fn set_enabled(&self, tenant: TenantId, enabled: bool) -> Result<()>;
    /// Whether a tenant has tasks, be they hidden.
    async fn has_tasks(&self, tenant: TenantId) -> Result<bool>;
    /// Removes a tenant and all that is kept by it, but for its tasks.
    async fn delete_tenant(&self, tenant: TenantId) -> Result<()>;
    /// The end of a token.
    async fn revoke(&self, token: i64, at: Timestamp) -> Result<()>;
    /// A value of the installation.
    async fn setting(&self, name: &str) -> Result<Option<Vec<u8>>>;
    /// Makes or replaces a value of the installation.
    async fn put_setting(&self, name: &str, value: &[u8]) -> Result<()>;
    /// The agents that a tenant keeps cards of.
    async fn carded(&self, tenant: TenantId) -> Result<Vec<String>>;
    /// Makes or replaces a card.
    async fn upsert_card(&self, tenant: TenantId, agent: &str, card: &[u8], at: Timestamp) -> Result<()>;
    /// An agent that a tenant has defined.
    async fn own_agent(&self, tenant: TenantId, id: &str) -> Result<Option<StoredAgent>>;
    /// How many a tenant has defined.
    async fn count_agents(&self, tenant: TenantId) -> Result<u64>;
    /// Makes or replaces an agent of a tenant.
    async fn put_agent(&self, agent: &StoredAgent) -> Result<()>;
    /// Removes an agent of a tenant; says whether there was one.
    async fn delete_agent(&self, tenant: TenantId, id: &str) -> Result<bool>;
    /// Says that an agent of a tenant has changed.
    async fn raise_revision(&self) -> Result<()>;
    /// Says that who may call has changed.
    async fn raise_credentials(&self) -> Result<()>;
    /// All tokens of administrators, oldest first.
    async fn admin_tokens(&self) -> Result<Vec<AdminToken>>;
    /// Adds a token of an administrator and gives its number.
    async fn insert_admin_token(&self, new: &NewAdminToken, at: Timestamp) -> Result<i64>;
    /// The end of a token of an administrator.
    async fn revoke_admin(&self, token: i64, at: Timestamp) -> Result<()>;
    /// Adds an entry to the audit log.
    async fn write_down(&self, at: Timestamp, actor: &str, action: &str, detail: &str) -> Result<()>;
}

/// Changes tenants and tokens. Whatever is refused is refused before the first write.
pub(crate) async fn administer(registry: &impl RegistryTx, actor: &str, change: &Change) -> Result<Changed> {
    let now = clock::now();
    let (changed, action, detail) = match change {
        Change::CreateTenant { name, hash } => {
            if registry.has_name(name).await? {
                return Err(Error::Exists);
            }
            if let Some(hash) = hash {
                refuse_known(registry, hash).await?;
            }
            let id = registry.insert_tenant(name, now).await?;
            let tenant = Tenant { id, name: name.clone(), enabled: true, created_at: now };
            let token = match hash {
                Some(hash) => {
                    let reach = Reach::default();
                    let first = NewToken { tenant: id, hash: *hash, name: FIRST.to_owned(), expires: None, reach };
                    Some(insert_token(registry, &first, now).await?)
                }
                None => None,
            };
            let detail = detail("tenant", id.0, Value::Null, tenant_state(&tenant));
            (Changed { tenant, token }, "create_tenant", detail)
        }
        Change::SetEnabled { tenant, enabled } => {
            let before = registry.tenant(*tenant).await?;
            if before.enabled == *enabled {
                return Ok(Changed { tenant: before, token: None });
            }
            registry.set_enabled(*tenant, *enabled).await?;
            let after = Tenant { enabled: *enabled, ..before.clone() };
            let detail = detail("tenant", tenant.0, tenant_state(&before), tenant_state(&after));
            (Changed { tenant: after, token: None }, "update_tenant", detail)
        }
        Change::AddToken(new) => {
            let tenant = registry.tenant(new.tenant).await?;
            refuse_known(registry, &new.hash).await?;
            let token = insert_token(registry, new, now).await?;
            let detail = detail("token", token.id, Value::Null, token_state(&token));
            (Changed { tenant, token: Some(token) }, "create_token", detail)
        }
        Change::RevokeToken { tenant, token } => {
            let tenant = registry.tenant(*tenant).await?;
            let found = registry.tokens(tenant.id).await?.into_iter().find(|found| found.id == *token);
            let before = found.ok_or(Error::NotFound)?;
            if before.revoked_at.is_some() {
                return Ok(Changed { tenant, token: Some(before) });
            }
            registry.revoke(before.id, now).await?;
            let after = Token { revoked_at: Some(now), ..before.clone() };
            let detail = detail("token", after.id, token_state(&before), token_state(&after));
            (Changed { tenant, token: Some(after) }, "revoke_token", detail)
        }
        Change::Rotate(new) => {
            let tenant = registry.tenant(new.tenant).await?;
            refuse_known(registry, &new.hash).await?;
            // Those that had run out are ended too, but they are not what the rotation took away.
            let mut ended = Vec::new();
            for token in registry.tokens(tenant.id).await? {
                if token.is_live(now) {
                    ended.push(token.id);
                }
                if token.revoked_at.is_none() {
                    registry.revoke(token.id, now).await?;
                }
            }
            let token = insert_token(registry, new, now).await?;
            let detail = detail("tenant", tenant.id.0, json!({"tokens": ended}), json!({"tokens": [token.id]}));
            (Changed { tenant, token: Some(token) }, "rotate_tenant_token", detail)
        }
        Change::DeleteTenant(id) => {
            let tenant = registry.tenant(*id).await?;
            if registry.has_tasks(*id).await? {
                return Err(Error::HasTasks);
            }
            registry.delete_tenant(*id).await?;
            // Other instances have its agents.
            registry.raise_revision().await?;
            let detail = detail("tenant", id.0, tenant_state(&tenant), Value::Null);
            (Changed { tenant, token: None }, "delete_tenant", detail)
        }
    };
    registry.raise_credentials().await?;
    registry.write_down(now, actor, action, &detail.to_string()).await?;
    Ok(changed)
}

/// Adds a token of an administrator. Names are not used again: the audit log knows who did what by them.
pub(crate) async fn add_admin_token(
    registry: &impl RegistryTx,
    actor: &str,
    new: &NewAdminToken,
) -> Result<AdminToken> {
    let is_taken = |known: &AdminToken| known.name == new.name || known.hash == new.hash;
    if registry.admin_tokens().await?.iter().any(is_taken) {
        return Err(Error::Exists);
    }
    let now = clock::now();
    let token = AdminToken {
        id: registry.insert_admin_token(new, now).await?,
        hash: new.hash,
        name: new.name.clone(),
        expires: new.expires,
        created_at: now,
        revoked_at: None,
    };
    registry.raise_credentials().await?;
    let detail = detail("admin_token", token.id, Value::Null, admin_state(&token));
    registry.write_down(now, actor, "create_admin_token", &detail.to_string()).await?;
    Ok(token)
}

/// Ends a token of an administrator.
pub(crate) async fn revoke_admin_token(registry: &impl RegistryTx, actor: &str, token: i64) -> Result<AdminToken> {
    let found = registry.admin_tokens().await?.into_iter().find(|known| known.id == token);
    let before = found.ok_or(Error::NotFound)?;
    if before.revoked_at.is_some() {
        return Ok(before);
    }
    let now = clock::now();
    registry.revoke_admin(token, now).await?;
    registry.raise_credentials().await?;
    let after = AdminToken { revoked_at: Some(now), ..before.clone() };
    let detail = detail("admin_token", token, admin_state(&before), admin_state(&after));
    registry.write_down(now, actor, "revoke_admin_token", &detail.to_string()).await?;
    Ok(after)
}

/// Replaces a value of the installation. The log tells its name only: the value may be a secret.
pub(crate) async fn set_setting(registry: &impl RegistryTx, actor: &str, name: &str, value: &[u8]) -> Result<()> {
    registry.put_setting(name, value).await?;
    // The token of an administrator may be one.
    registry.raise_credentials().await?;
    let detail = detail("setting", name, Value::Null, Value::Null);
    registry.write_down(clock::now(), actor, "set_setting", &detail.to_string()).await
}

/// Replaces a value of the installation that nobody else has replaced.
pub(crate) async fn replace_setting(
    registry: &impl RegistryTx,
    actor: &str,
    name: &str,
    was: &[u8],
    value: &[u8],
) -> Result<bool> {
    if registry.setting(name).await?.as_deref() != Some(was) {
        return Ok(false);
    }
    set_setting(registry, actor, name, value).await?;
    Ok(true)
}

/// Keeps a card in the place of the one that was there. A tenant's own doing: the audit log does not tell it.
pub(crate) async fn put_card(
    registry: &impl RegistryTx,
    tenant: TenantId,
    agent: &AgentId,
    card: &[u8],
    most: u64,
) -> Result<(StoredCard, bool)> {
    registry.tenant(tenant).await?;
    let known = registry.carded(tenant).await?;
    let is_new = known.iter().all(|id| id != agent.as_str());
    if is_new && known.len() as u64 >= most {
        return Err(Error::TooManyCards { limit: most });
    }
    let now = clock::now();
    registry.upsert_card(tenant, agent.as_str(), card, now).await?;
    Ok((StoredCard { agent: agent.clone(), card: card.to_vec(), updated_at: now }, is_new))
}

/// Keeps an agent that was not there. A tenant's own doing, as all that follows: the audit log does not tell it.
pub(crate) async fn create_agent(
    registry: &impl RegistryTx,
    tenant: TenantId,
    id: &AgentId,
    definition: &[u8],
    most: u64,
) -> Result<StoredAgent> {
    registry.tenant(tenant).await?;
    if registry.own_agent(tenant, id.as_str()).await?.is_some() {
        return Err(Error::Exists);
    }
    if registry.count_agents(tenant).await? >= most {
        return Err(Error::TooManyAgents { limit: most });
    }
    let now = clock::now();
    let agent =
        StoredAgent { tenant, id: id.clone(), definition: definition.to_vec(), created_at: now, updated_at: now };
    registry.put_agent(&agent).await?;
    registry.raise_revision().await?;
    Ok(agent)
}

/// Replaces what defines an agent. Whoever has seen it before knows by its time that it is another one.
pub(crate) async fn replace_agent(
    registry: &impl RegistryTx,
    tenant: TenantId,
    id: &AgentId,
    definition: &[u8],
) -> Result<StoredAgent> {
    let before = registry.own_agent(tenant, id.as_str()).await?.ok_or(Error::NotFound)?;
    let next = Timestamp::from_millis(before.updated_at.as_millis().saturating_add(1));
    let updated_at = clock::now().max(next);
    let agent = StoredAgent { definition: definition.to_vec(), updated_at, ..before };
    registry.put_agent(&agent).await?;
    registry.raise_revision().await?;
    Ok(agent)
}

/// Forgets an agent, if it is there.
pub(crate) async fn remove_agent(registry: &impl RegistryTx, tenant: TenantId, id: &AgentId) -> Result<bool> {
    let was_there = registry.delete_agent(tenant, id.as_str()).await?;
    if was_there {
        registry.raise_revision().await?;
    }
    Ok(was_there)
}

async fn refuse_known(registry: &impl RegistryTx, hash: &[u8; 32]) -> Result<()> {
    if registry.has_hash(hash).await? { Err(Error::Exists) } else { Ok(()) }
}

async fn insert_token(registry: &impl RegistryTx, new: &NewToken, at: Timestamp) -> Result<Token> {
    Ok(Token {
        id: registry.insert_token(new, at).await?,
        tenant: new.tenant,
        hash: new.hash,
        name: new.name.clone(),
        expires: new.expires,
        created_at: at,
        revoked_at: None,
        used_at: None,
        reach: new.reach.clone(),
    })
}

fn detail(kind: &str, id: impl Into<Value>, before: Value, after: Value) -> Value {
    json!({"target_kind": kind, "target_id": id.into(), "before": before, "after": after})
}

fn tenant_state(tenant: &Tenant) -> Value {
    json!({"name": tenant.name, "disabled": !tenant.enabled})
}

fn token_state(token: &Token) -> Value {
    let mut state = json!({"tenant_id": token.tenant.0, "name": token.name, "revoked": token.revoked_at.is_some()});
    if token.reach != Reach::default() {
        state["scopes"] = token.reach.scopes.iter().map(Scope::name).collect();
        state["agents"] = token.reach.agents.iter().map(AgentId::as_str).collect();
    }
    state
}

fn admin_state(token: &AdminToken) -> Value {
    json!({"name": token.name, "revoked": token.revoked_at.is_some()})
}
