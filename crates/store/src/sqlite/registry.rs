//! What belongs to the installation: settings, and reading tenants and tokens. Changing them is `administer`'s.

use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};

use super::writer::Batch;
use crate::{AdminToken, Bearer, Error, Reach, Result, StoredAgent, StoredCard, Tenant, TenantId, Token, clock, codec};

/// Written by [`heartbeat`] only.
const HEARTBEAT: &str = "journal.heartbeat";

/// How many bytes have to fit into the file before it counts as one that has room.
const ROOM: usize = 256 << 10;

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
    put_setting(batch.conn, HEARTBEAT, now.as_bytes())
}

/// A heartbeat that needs more room than a message mostly does.
pub(super) fn find_room(batch: &Batch<'_>) -> Result<()> {
    put_setting(batch.conn, HEARTBEAT, &[0; ROOM])
}

pub(super) fn put_setting(conn: &Connection, name: &str, value: &[u8]) -> Result<()> {
    conn.prepare_cached("INSERT OR REPLACE INTO settings (name, value) VALUES (?1, ?2)")?
        .execute(params![name, value])?;
    Ok(())
}

/// The columns that [`read_tenant`] reads.
const TENANT: &str = "id, name, enabled, created_at";
/// The columns that [`agents`] reads.
const AGENT: &str = "tenant_id, agent_id, definition, created_at, updated_at";
/// The columns that [`read_token`] reads, of `tokens k`.
const TOKEN: &str =
    "k.id, k.tenant_id, k.hash, k.name, k.expires, k.created_at, k.revoked_at, k.used_at, k.scopes, k.agents";
/// What makes `tokens k` of `tenants t` live, at the time that is the first value.
const LIVE: &str = "k.revoked_at IS NULL AND (k.expires IS NULL OR k.expires > ?1) AND t.enabled = 1";
/// The same, whether the tenant is enabled or not.
const GOOD: &str = "k.revoked_at IS NULL AND (k.expires IS NULL OR k.expires > ?1)";

pub(super) fn tenants(conn: &Connection) -> Result<Vec<Tenant>> {
    let mut all = conn.prepare_cached(&format!("SELECT {TENANT} FROM tenants ORDER BY name"))?;
    let all = all.query_map((), read_tenant)?;
    Ok(all.collect::<Result<_, _>>()?)
}

pub(super) fn tenant(conn: &Connection, id: TenantId) -> Result<Tenant> {
    conn.prepare_cached(&format!("SELECT {TENANT} FROM tenants WHERE id = ?1"))?
        .query_row([id.0], read_tenant)
        .optional()?
        .ok_or(Error::NotFound)
}

/// The token and its tenant, if it is not expired or revoked.
pub(super) fn token(conn: &Connection, hash: &[u8; 32]) -> Result<Option<Bearer>> {
    let mut one = conn.prepare_cached(&format!(
        "SELECT {TOKEN}, t.name, t.created_at, t.enabled FROM tokens k JOIN tenants t ON t.id = k.tenant_id
         WHERE {GOOD} AND k.hash = ?2"
    ))?;
    let mut rows = one.query(params![clock::now().as_millis(), hash])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let token = read_token(row)?;
    let tenant =
        Tenant { id: token.tenant, name: row.get(10)?, enabled: row.get(12)?, created_at: codec::time(row.get(11)?) };
    Ok(Some(Bearer { token, tenant }))
}

pub(super) fn live_tokens(conn: &Connection, tokens: &[i64]) -> Result<Vec<i64>> {
    let mut one = conn.prepare_cached(&format!(
        "SELECT 1 FROM tokens k JOIN tenants t ON t.id = k.tenant_id WHERE {LIVE} AND k.id = ?2"
    ))?;
    let now = clock::now().as_millis();
    let mut live = Vec::with_capacity(tokens.len());
    for token in tokens {
        if one.exists([now, *token])? {
            live.push(*token);
        }
    }
    Ok(live)
}

pub(super) fn credentials_revision(conn: &Connection) -> Result<i64> {
    Ok(conn.prepare_cached("SELECT revision FROM credentials_revision")?.query_row((), |row| row.get(0))?)
}

pub(super) fn admin_tokens(conn: &Connection) -> Result<Vec<AdminToken>> {
    let mut all =
        conn.prepare_cached("SELECT id, hash, name, expires, created_at, revoked_at FROM admin_tokens ORDER BY id")?;
    let time = |at: Option<i64>| at.map(codec::time);
    let all = all.query_map((), |row| {
        Ok(AdminToken {
            id: row.get(0)?,
            hash: row.get(1)?,
            name: row.get(2)?,
            expires: time(row.get(3)?),
            created_at: codec::time(row.get(4)?),
            revoked_at: time(row.get(5)?),
        })
    })?;
    Ok(all.collect::<Result<_, _>>()?)
}

pub(super) fn tokens(conn: &Connection, tenant: TenantId) -> Result<Vec<Token>> {
    let mut all = conn.prepare_cached(&format!("SELECT {TOKEN} FROM tokens k WHERE k.tenant_id = ?1 ORDER BY k.id"))?;
    let mut rows = all.query([tenant.0])?;
    let mut tokens = Vec::new();
    while let Some(row) = rows.next()? {
        tokens.push(read_token(row)?);
    }
    Ok(tokens)
}

pub(super) fn touch_token(batch: &Batch<'_>, token: i64) -> Result<()> {
    batch
        .conn
        .prepare_cached("UPDATE tokens SET used_at = ?2 WHERE id = ?1")?
        .execute(params![token, clock::now().as_millis()])?;
    Ok(())
}

pub(super) fn cards(conn: &Connection, tenant: TenantId, most_bytes: u64) -> Result<Vec<StoredCard>> {
    weigh(conn, "SELECT coalesce(sum(length(card)), 0) FROM cards WHERE tenant_id = ?1", tenant, most_bytes)?;
    let mut all =
        conn.prepare_cached("SELECT agent_id, card, updated_at FROM cards WHERE tenant_id = ?1 ORDER BY agent_id")?;
    let mut rows = all.query([tenant.0])?;
    let mut cards = Vec::new();
    while let Some(row) = rows.next()? {
        cards.push(read_card(row)?);
    }
    Ok(cards)
}

pub(super) fn card(conn: &Connection, tenant: TenantId, agent: &str) -> Result<Option<StoredCard>> {
    let mut one =
        conn.prepare_cached("SELECT agent_id, card, updated_at FROM cards WHERE tenant_id = ?1 AND agent_id = ?2")?;
    let mut rows = one.query(params![tenant.0, agent])?;
    rows.next()?.map(read_card).transpose()
}

pub(super) fn remove_card(batch: &Batch<'_>, tenant: TenantId, agent: &str) -> Result<bool> {
    let mut delete = batch.conn.prepare_cached("DELETE FROM cards WHERE tenant_id = ?1 AND agent_id = ?2")?;
    Ok(delete.execute(params![tenant.0, agent])? > 0)
}

pub(super) fn own_agent(conn: &Connection, tenant: TenantId, id: &str) -> Result<Option<StoredAgent>> {
    let one = format!("SELECT {AGENT} FROM tenant_agents WHERE tenant_id = ?1 AND agent_id = ?2");
    agents(conn, &one, params![tenant.0, id]).map(|mut found| found.pop())
}

pub(super) fn own_agents(conn: &Connection, tenant: TenantId, most_bytes: u64) -> Result<Vec<StoredAgent>> {
    let weight = "SELECT coalesce(sum(length(definition)), 0) FROM tenant_agents WHERE tenant_id = ?1";
    weigh(conn, weight, tenant, most_bytes)?;
    let of_tenant = format!("SELECT {AGENT} FROM tenant_agents WHERE tenant_id = ?1 ORDER BY agent_id");
    agents(conn, &of_tenant, params![tenant.0])
}

/// Refuses to read more than that. The length of what is stored is known without reading it.
fn weigh(conn: &Connection, sum: &str, tenant: TenantId, most_bytes: u64) -> Result<()> {
    let bytes = codec::unsigned(conn.prepare_cached(sum)?.query_row([tenant.0], |row| row.get(0))?);
    if bytes > most_bytes { Err(Error::Heavy { bytes }) } else { Ok(()) }
}

pub(super) fn all_agents(conn: &Connection) -> Result<(i64, Vec<StoredAgent>)> {
    let all = format!("SELECT {AGENT} FROM tenant_agents ORDER BY tenant_id, agent_id");
    Ok((agents_revision(conn)?, agents(conn, &all, params![])?))
}

pub(super) fn agents_revision(conn: &Connection) -> Result<i64> {
    Ok(conn.prepare_cached("SELECT revision FROM agents_revision")?.query_row((), |row| row.get(0))?)
}

fn agents(conn: &Connection, sql: &str, values: &[&dyn ToSql]) -> Result<Vec<StoredAgent>> {
    let mut found = conn.prepare_cached(sql)?;
    let mut rows = found.query(values)?;
    let mut agents = Vec::new();
    while let Some(row) = rows.next()? {
        let id: String = row.get(1)?;
        agents.push(StoredAgent {
            tenant: TenantId(row.get(0)?),
            id: codec::parse_agent(&id)?,
            definition: row.get(2)?,
            created_at: codec::time(row.get(3)?),
            updated_at: codec::time(row.get(4)?),
        });
    }
    Ok(agents)
}

fn read_card(row: &Row<'_>) -> Result<StoredCard> {
    let agent: String = row.get(0)?;
    let agent = agent.parse().map_err(|_| Error::Damaged("a card is of no agent".into()))?;
    Ok(StoredCard { agent, card: row.get(1)?, updated_at: codec::time(row.get(2)?) })
}

fn read_tenant(row: &Row<'_>) -> rusqlite::Result<Tenant> {
    Ok(Tenant {
        id: TenantId(row.get(0)?),
        name: row.get(1)?,
        enabled: row.get(2)?,
        created_at: codec::time(row.get(3)?),
    })
}

fn read_token(row: &Row<'_>) -> Result<Token> {
    let agents: String = row.get(9)?;
    let time = |at: Option<i64>| at.map(codec::time);
    Ok(Token {
        id: row.get(0)?,
        tenant: TenantId(row.get(1)?),
        hash: row.get(2)?,
        name: row.get(3)?,
        expires: time(row.get(4)?),
        created_at: codec::time(row.get(5)?),
        revoked_at: time(row.get(6)?),
        used_at: time(row.get(7)?),
        reach: Reach::of_columns(row.get(8)?, &agents)?,
    })
}
