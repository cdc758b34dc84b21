//! What belongs to the installation: settings, and reading tenants, tokens and usage. Changing them is `administer`'s.

use tokio_postgres::Row;

use super::pool::Pool;
use crate::{
    AdminToken, Bearer, Error, Reach, Result, StoredAgent, StoredCard, Tenant, TenantId, Token, Usage, clock, codec,
};

/// The columns that [`read_tenant`] reads.
pub(super) const TENANT: &str = "id, name, enabled, created_at";
/// The columns that [`read_agent`] reads.
pub(super) const AGENT: &str = "tenant_id, agent_id, definition, created_at, updated_at";
/// The columns that [`read_token`] reads, of `tokens k`.
const TOKEN: &str =
    "k.id, k.tenant_id, k.hash, k.name, k.expires, k.created_at, k.revoked_at, k.used_at, k.scopes, k.agents";
/// What makes `tokens k` of `tenants t` live, at the time that is the first value.
const LIVE: &str = "k.revoked_at IS NULL AND (k.expires IS NULL OR k.expires > $1) AND t.enabled";
/// The same, whether the tenant is enabled or not.
const GOOD: &str = "k.revoked_at IS NULL AND (k.expires IS NULL OR k.expires > $1)";
/// The query for all tokens of administrators; [`read_admin_token`] reads what it finds.
pub(super) const ADMIN_TOKENS: &str =
    "SELECT id, hash, name, expires, created_at, revoked_at FROM admin_tokens ORDER BY id";

pub(super) async fn setting(pool: &Pool, name: &str) -> Result<Option<Vec<u8>>> {
    let row = pool.query_opt("SELECT value FROM settings WHERE name = $1", &[&name]).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

pub(super) async fn tenants(pool: &Pool) -> Result<Vec<Tenant>> {
    let rows = pool.query(&format!("SELECT {TENANT} FROM tenants ORDER BY name"), &[]).await?;
    rows.iter().map(read_tenant).collect()
}

/// The token and its tenant, if it is not expired or revoked.
pub(super) async fn token(pool: &Pool, hash: &[u8; 32]) -> Result<Option<Bearer>> {
    let sql = format!(
        "SELECT {TOKEN}, t.name, t.created_at, t.enabled FROM tokens k JOIN tenants t ON t.id = k.tenant_id
         WHERE {GOOD} AND k.hash = $2"
    );
    let Some(row) = pool.query_opt(&sql, &[&clock::now().as_millis(), &hash.as_slice()]).await? else {
        return Ok(None);
    };
    let token = read_token(&row)?;
    let tenant = Tenant {
        id: token.tenant,
        name: row.try_get(10)?,
        enabled: row.try_get(12)?,
        created_at: codec::time(row.try_get(11)?),
    };
    Ok(Some(Bearer { token, tenant }))
}

pub(super) async fn live_tokens(pool: &Pool, tokens: &[i64]) -> Result<Vec<i64>> {
    let sql = format!("SELECT k.id FROM tokens k JOIN tenants t ON t.id = k.tenant_id WHERE {LIVE} AND k.id = ANY($2)");
    let rows = pool.query(&sql, &[&clock::now().as_millis(), &tokens]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

pub(super) async fn credentials_revision(pool: &Pool) -> Result<i64> {
    Ok(pool.query_one("SELECT revision FROM credentials_revision", &[]).await?.try_get(0)?)
}

pub(super) async fn admin_tokens(pool: &Pool) -> Result<Vec<AdminToken>> {
    pool.query(ADMIN_TOKENS, &[]).await?.iter().map(read_admin_token).collect()
}

pub(super) fn read_admin_token(row: &Row) -> Result<AdminToken> {
    let time = |at: Option<i64>| at.map(codec::time);
    Ok(AdminToken {
        id: row.try_get(0)?,
        hash: hash_of(row.try_get(1)?)?,
        name: row.try_get(2)?,
        expires: time(row.try_get(3)?),
        created_at: codec::time(row.try_get(4)?),
        revoked_at: time(row.try_get(5)?),
    })
}

fn hash_of(bytes: &[u8]) -> Result<[u8; 32]> {
    bytes.try_into().map_err(|_| Error::Damaged("a token's hash has not 32 bytes".into()))
}

pub(super) async fn tokens(pool: &Pool, tenant: TenantId) -> Result<Vec<Token>> {
    pool.query(&tokens_of(), &[&tenant.0]).await?.iter().map(read_token).collect()
}

/// The query for a tenant's tokens.
pub(super) fn tokens_of() -> String {
    format!("SELECT {TOKEN} FROM tokens k WHERE k.tenant_id = $1 ORDER BY k.id")
}

/// The sum over all shards; one of them alone may be below zero.
pub(super) async fn usage(pool: &Pool, tenant: TenantId) -> Result<Usage> {
    let sql = "SELECT coalesce(sum(tasks), 0)::bigint, coalesce(sum(bytes), 0)::bigint
               FROM tenant_usage WHERE tenant_id = $1";
    let row = pool.query_opt(sql, &[&tenant.0]).await?;
    let row = row.ok_or_else(|| Error::Damaged("a sum without a row".into()))?;
    Ok(Usage { tasks: codec::unsigned(row.try_get(0)?), bytes: codec::unsigned(row.try_get(1)?) })
}

pub(super) fn read_tenant(row: &Row) -> Result<Tenant> {
    Ok(Tenant {
        id: TenantId(row.try_get(0)?),
        name: row.try_get(1)?,
        enabled: row.try_get(2)?,
        created_at: codec::time(row.try_get(3)?),
    })
}

pub(super) async fn cards(pool: &Pool, tenant: TenantId, most_bytes: u64) -> Result<Vec<StoredCard>> {
    let weight = "SELECT coalesce(sum(octet_length(card)), 0)::bigint FROM cards WHERE tenant_id = $1";
    weigh(pool, weight, tenant, most_bytes).await?;
    let sql = "SELECT agent_id, card, updated_at FROM cards WHERE tenant_id = $1 ORDER BY agent_id";
    pool.query(sql, &[&tenant.0]).await?.iter().map(read_card).collect()
}

pub(super) async fn card(pool: &Pool, tenant: TenantId, agent: &str) -> Result<Option<StoredCard>> {
    let sql = "SELECT agent_id, card, updated_at FROM cards WHERE tenant_id = $1 AND agent_id = $2";
    pool.query_opt(sql, &[&tenant.0, &agent]).await?.as_ref().map(read_card).transpose()
}

pub(super) async fn own_agent(pool: &Pool, tenant: TenantId, id: &str) -> Result<Option<StoredAgent>> {
    let sql = format!("SELECT {AGENT} FROM tenant_agents WHERE tenant_id = $1 AND agent_id = $2");
    pool.query_opt(&sql, &[&tenant.0, &id]).await?.map(|row| read_agent(&row, 0)).transpose()
}

pub(super) async fn own_agents(pool: &Pool, tenant: TenantId, most_bytes: u64) -> Result<Vec<StoredAgent>> {
    let weight = "SELECT coalesce(sum(octet_length(definition)), 0)::bigint FROM tenant_agents WHERE tenant_id = $1";
    weigh(pool, weight, tenant, most_bytes).await?;
    let sql = format!("SELECT {AGENT} FROM tenant_agents WHERE tenant_id = $1 ORDER BY agent_id");
    pool.query(&sql, &[&tenant.0]).await?.iter().map(|row| read_agent(row, 0)).collect()
}

/// Refuses to read more than that.
async fn weigh(pool: &Pool, sum: &str, tenant: TenantId, most_bytes: u64) -> Result<()> {
    let bytes = codec::unsigned(pool.query_one(sum, &[&tenant.0]).await?.try_get(0)?);
    if bytes > most_bytes { Err(Error::Heavy { bytes }) } else { Ok(()) }
}

/// One statement, so that both are of one moment.
pub(super) async fn all_agents(pool: &Pool) -> Result<(i64, Vec<StoredAgent>)> {
    let sql = format!(
        "SELECT r.revision, {AGENT} FROM agents_revision r LEFT JOIN tenant_agents ON true
         ORDER BY tenant_id, agent_id"
    );
    let rows = pool.query(&sql, &[]).await?;
    let first = rows.first().ok_or_else(|| Error::Damaged("the agents have no revision".into()))?;
    let revision = first.try_get(0)?;
    let mut agents = Vec::with_capacity(rows.len());
    for row in &rows {
        // The revision comes even when there is no agent to go with it.
        if row.try_get::<_, Option<i64>>(1)?.is_some() {
            agents.push(read_agent(row, 1)?);
        }
    }
    Ok((revision, agents))
}

pub(super) async fn agents_revision(pool: &Pool) -> Result<i64> {
    Ok(pool.query_one("SELECT revision FROM agents_revision", &[]).await?.try_get(0)?)
}

/// An agent whose columns, those of [`AGENT`], begin at `first`.
pub(super) fn read_agent(row: &Row, first: usize) -> Result<StoredAgent> {
    Ok(StoredAgent {
        tenant: TenantId(row.try_get(first)?),
        id: codec::parse_agent(row.try_get(first + 1)?)?,
        definition: row.try_get(first + 2)?,
        created_at: codec::time(row.try_get(first + 3)?),
        updated_at: codec::time(row.try_get(first + 4)?),
    })
}

fn read_card(row: &Row) -> Result<StoredCard> {
    let agent: &str = row.try_get(0)?;
    let agent = agent.parse().map_err(|_| Error::Damaged("a card is of no agent".into()))?;
    Ok(StoredCard { agent, card: row.try_get(1)?, updated_at: codec::time(row.try_get(2)?) })
}

pub(super) fn read_token(row: &Row) -> Result<Token> {
    let time = |at: Option<i64>| at.map(codec::time);
    Ok(Token {
        id: row.try_get(0)?,
        tenant: TenantId(row.try_get(1)?),
        hash: hash_of(row.try_get(2)?)?,
        name: row.try_get(3)?,
        expires: time(row.try_get(4)?),
        created_at: codec::time(row.try_get(5)?),
        revoked_at: time(row.try_get(6)?),
        used_at: time(row.try_get(7)?),
        reach: Reach::of_columns(row.try_get(8)?, row.try_get(9)?)?,
    })
}
