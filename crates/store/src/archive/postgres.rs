//! Archives of the journal on PostgreSQL: one snapshot out, one transaction in.
//!
//! Rows come out of a stream that waits for its reader and go in as arrays of a bounded size, so that neither way needs
//! more memory for a larger store. Everything is ordered by what an archive orders it by: the log by transaction and
//! position, which is the order in which whoever tails it sees it.

use std::{io, io::Write, pin::pin};

use a2a::signature::SigningKey;
use futures_util::TryStreamExt;
use tokio_postgres::{Client, IsolationLevel, Row, Transaction, types::ToSql};

use super::{
    Error, Imported, Kind, OF_INSTALLATION, Phase, Progress, Reader, Result, Sums, Writer, compare, count_rows,
    record::{
        Admin, Agent, Artifact, Audit, Body, Card, Event, Hex, Key, Message, Push, Record, Setting, Task, Tenant, Token,
    },
};
use crate::postgres::{self, Url, schema};

/// How many rows, and about how many bytes, one statement inserts.
const ROWS: usize = 500;
const BYTES: usize = 1 << 20;

/// The tables whose rows make a store one that is not empty, and what their rows are called.
const TABLES: [(&str, &str); 13] = [
    ("tenants", "tenants"),
    ("tokens", "tokens"),
    ("settings", "settings"),
    ("audit", "audit entries"),
    ("a2a_tasks", "tasks"),
    ("messages", "messages"),
    ("a2a_artifacts", "artifacts"),
    ("a2a_events", "events"),
    ("idempotency", "idempotency keys"),
    ("cards", "cards"),
    ("push_configs", "push configurations"),
    ("tenant_agents", "agents of tenants"),
    ("admin_tokens", "tokens of administrators"),
];

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Store(error.into())
    }
}

/// Writes everything to `out`, as of one moment.
pub(super) async fn export(
    url: &Url,
    out: &mut dyn Write,
    signer: Option<&SigningKey>,
    progress: Progress<'_>,
) -> Result<Sums> {
    let mut client = session(url).await?;
    check_schema(url, &client).await?;
    let tx = client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true).start().await?;
    write_all(&tx, out, signer, Phase::Copying, progress).await
}

/// A setting of the installation.
pub(super) async fn setting(url: &Url, name: &str) -> Result<Option<Vec<u8>>> {
    let client = session(url).await?;
    check_schema(url, &client).await?;
    let found = client.query_opt("SELECT value FROM settings WHERE name = $1", &[&name]).await?;
    Ok(found.map(|row| row.try_get(0)).transpose()?)
}

/// Takes an archive into the database, which must not have anything in it.
pub(super) async fn import(url: &Url, mut reader: Reader<'_>, progress: Progress<'_>) -> Result<Imported> {
    postgres::migrate(url).await?;
    let mut client = session(url).await?;
    // Seen before anything is locked, so that a server that works here is not held up.
    refuse_server(url).await?;
    refuse_content(&client).await?;
    let tx = client.transaction().await?;
    let tables = TABLES.map(|(table, _)| table).join(", ");
    tx.batch_execute(&format!("SET LOCAL lock_timeout = '5s'; LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")).await?;
    refuse_content(tx.client()).await?;
    load(&tx, &mut reader).await?;
    let proven = reader.finish()?;
    derive(&tx).await?;
    let stored = write_all(&tx, &mut io::sink(), None, Phase::Verifying, progress).await?;
    let imported = compare(proven, stored)?;
    tx.commit().await?;
    // Only so that the first queries are planned well.
    if let Err(error) = client.batch_execute(&format!("ANALYZE {tables}")).await {
        tracing::warn!(%error, "cannot analyze the tables");
    }
    Ok(imported)
}

/// A session in which a statement may take as long as it takes.
async fn session(url: &Url) -> Result<Client> {
    let client = postgres::session(url).await?;
    client.batch_execute("SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0").await?;
    Ok(client)
}

async fn check_schema(url: &Url, client: &Client) -> Result<()> {
    let known = schema::known();
    let Some(found) = schema::version(client).await? else {
        return Err(Error::NoJournal(url.to_string()));
    };
    if found > known {
        return Err(crate::Error::FromTheFuture { found, known }.into());
    }
    if found < known {
        return Err(Error::OldSchema { found, known });
    }
    Ok(())
}

/// Also asked of the server itself by `sb doctor`: whose advisory lock is held, lives.
async fn refuse_server(url: &Url) -> Result<()> {
    let found = postgres::inspect(url).await?.journal.unwrap_or_default();
    if found.live.is_empty() { Ok(()) } else { Err(Error::InUse) }
}

async fn refuse_content(client: &Client) -> Result<()> {
    for (table, name) in TABLES {
        let count: i64 = client.query_one(&count_rows(table), &[]).await?.try_get(0)?;
        if count > 0 {
            return Err(Error::NotEmpty(format!("{count} {name}")));
        }
    }
    Ok(())
}

/// What is summed up of the records: counts of tasks, what tenants use, and the next numbers.
async fn derive(tx: &Transaction<'_>) -> Result<()> {
    tx.batch_execute(
        "DELETE FROM task_counts;
         INSERT INTO task_counts (tenant_id, shard, agent_id, state, n)
         SELECT tenant_id, 0, agent_id, state, count(*) FROM a2a_tasks WHERE hidden = 0
         GROUP BY tenant_id, agent_id, state;
         DELETE FROM tenant_usage;
         INSERT INTO tenant_usage (tenant_id, shard, tasks, bytes)
         SELECT t.tenant_id, 0,
                count(*) FILTER (WHERE t.state NOT IN ('completed', 'failed', 'canceled', 'rejected')),
                coalesce(sum(b.bytes), 0)
         FROM a2a_tasks t LEFT JOIN (
           SELECT task, sum(bytes) AS bytes FROM (
             SELECT task, octet_length(body) AS bytes FROM a2a_events
             UNION ALL SELECT task, octet_length(body) FROM messages
             UNION ALL SELECT task, octet_length(body) FROM a2a_artifacts
             UNION ALL SELECT task, bytes FROM push_configs) AS parts
           GROUP BY task) AS b ON b.task = t.task_id
         GROUP BY t.tenant_id;
         UPDATE a2a_tasks t SET pushes = c.n FROM (SELECT task, count(*) AS n FROM push_configs GROUP BY task) c
         WHERE t.task_id = c.task;
         SELECT setval(pg_get_serial_sequence('tenants', 'id'), max(id)) FROM tenants;
         SELECT setval(pg_get_serial_sequence('tokens', 'id'), max(id)) FROM tokens;
         SELECT setval(pg_get_serial_sequence('admin_tokens', 'id'), max(id)) FROM admin_tokens;
         SELECT setval(pg_get_serial_sequence('audit', 'id'), max(id)) FROM audit;",
    )
    .await?;
    Ok(())
}

async fn write_all(
    tx: &Transaction<'_>,
    out: &mut dyn Write,
    signer: Option<&SigningKey>,
    phase: Phase,
    progress: Progress<'_>,
) -> Result<Sums> {
    let mut writer = Writer::new(out, format!("postgres {}", schema::known()), phase, progress)?;
    for kind in Kind::ALL {
        dump(tx, kind, &mut writer).await?;
    }
    writer.finish(signer)
}

/// All records of a kind, in order.
async fn dump(tx: &Transaction<'_>, kind: Kind, writer: &mut Writer<'_>) -> Result<()> {
    let settings = format!("SELECT name, value FROM settings WHERE {OF_INSTALLATION} ORDER BY name");
    let sql = match kind {
        Kind::Tenant => "SELECT id, name, enabled, created_at FROM tenants ORDER BY id",
        Kind::Token => {
            "SELECT id, tenant_id, hash, name, created_at, expires, revoked_at, used_at, scopes, agents
             FROM tokens ORDER BY id"
        }
        Kind::Setting => &settings,
        Kind::Audit => "SELECT id, at, actor, action, detail FROM audit ORDER BY id",
        Kind::Task => {
            "SELECT task_id::text, tenant_id, agent_id, context_id, state, created_at, updated_at, status_at,
               status_message, status_turn::bigint, seq, hidden::bigint,
               CASE WHEN owner IS NOT NULL AND due_at > updated_at THEN updated_at ELSE due_at END,
               owner IS NOT NULL OR interrupted, generation, attempt::bigint, turn::bigint, waiting::bigint, cancel_mark,
               remembers, releases::bigint, (parking = 1)::int::bigint, kept, kept_before,
               queued::int::bigint, from_agent, priority::bigint, max_attempts::bigint, replays, dead::bigint, errors,
               origin, aftermath::bigint, input_tokens, output_tokens
             FROM a2a_tasks ORDER BY task_id"
        }
        Kind::Message => {
            "SELECT task::text, message_id, role, status, turn::bigint, created_at, body FROM messages
             ORDER BY task, pos"
        }
        Kind::Artifact => {
            "SELECT task::text, turn::bigint, artifact_id, append, body FROM a2a_artifacts ORDER BY task, pos"
        }
        Kind::Event => "SELECT task::text, seq, at, kind::bigint, body FROM a2a_events ORDER BY xid, pos",
        Kind::Key => {
            "SELECT tenant_id, key, fingerprint, task::text, turn::bigint, expires FROM idempotency
             ORDER BY tenant_id, key"
        }
        Kind::Card => "SELECT tenant_id, agent_id, card, updated_at FROM cards ORDER BY tenant_id, agent_id",
        Kind::Push => {
            "SELECT task::text, config_id, tenant_id, url, receiver, scheme, sealed, dialect::bigint, chunks, created_at,
               seq, part::bigint, owed, state::bigint,
               CASE WHEN owner IS NOT NULL THEN least(due_at, created_at) ELSE due_at END, generation, attempt::bigint,
               letters::bigint, record, bytes
             FROM push_configs ORDER BY task, config_id"
        }
        Kind::Agent => {
            "SELECT tenant_id, agent_id, definition, created_at, updated_at FROM tenant_agents
             ORDER BY tenant_id, agent_id"
        }
        Kind::Admin => "SELECT id, hash, name, created_at, expires, revoked_at FROM admin_tokens ORDER BY id",
    };
    let nothing: [&(dyn ToSql + Sync); 0] = [];
    let mut rows = pin!(tx.query_raw(sql, nothing).await?);
    while let Some(row) = rows.try_next().await? {
        writer.write(&read(kind, &row)?)?;
    }
    Ok(())
}

fn read(kind: Kind, row: &Row) -> Result<Record, tokio_postgres::Error> {
    Ok(match kind {
        Kind::Tenant => Record::Tenant(Tenant {
            id: row.try_get(0)?,
            name: row.try_get(1)?,
            enabled: row.try_get(2)?,
            created_at: row.try_get(3)?,
        }),
        Kind::Token => Record::Token(Token {
            id: row.try_get(0)?,
            tenant: row.try_get(1)?,
            hash: Hex(row.try_get(2)?),
            name: row.try_get(3)?,
            created_at: row.try_get(4)?,
            expires: row.try_get(5)?,
            revoked_at: row.try_get(6)?,
            used_at: row.try_get(7)?,
            scopes: row.try_get(8)?,
            agents: row.try_get(9)?,
        }),
        Kind::Setting => Record::Setting(Setting { name: row.try_get(0)?, value: Body(row.try_get(1)?) }),
        Kind::Audit => Record::Audit(Audit {
            id: row.try_get(0)?,
            at: row.try_get(1)?,
            actor: row.try_get(2)?,
            action: row.try_get(3)?,
            detail: row.try_get(4)?,
        }),
        Kind::Task => Record::Task(Box::new(Task {
            id: row.try_get(0)?,
            tenant: row.try_get(1)?,
            agent: row.try_get(2)?,
            context: row.try_get(3)?,
            state: row.try_get(4)?,
            created_at: row.try_get(5)?,
            updated_at: row.try_get(6)?,
            status_at: row.try_get(7)?,
            status_message: row.try_get(8)?,
            status_turn: row.try_get(9)?,
            seq: row.try_get(10)?,
            hidden: row.try_get(11)?,
            due_at: row.try_get(12)?,
            interrupted: row.try_get(13)?,
            generation: row.try_get(14)?,
            attempt: row.try_get(15)?,
            turn: row.try_get(16)?,
            waiting: row.try_get(17)?,
            cancel_mark: row.try_get(18)?,
            remembers: row.try_get(19)?,
            releases: row.try_get(20)?,
            parking: row.try_get(21)?,
            kept: row.try_get(22)?,
            kept_before: row.try_get(23)?,
            queued: row.try_get(24)?,
            from_agent: row.try_get(25)?,
            priority: row.try_get(26)?,
            max_attempts: row.try_get(27)?,
            replays: row.try_get(28)?,
            dead: row.try_get(29)?,
            errors: row.try_get(30)?,
            origin: row.try_get(31)?,
            aftermath: row.try_get(32)?,
            input_tokens: row.try_get(33)?,
            output_tokens: row.try_get(34)?,
        })),
        Kind::Message => Record::Message(Message {
            task: row.try_get(0)?,
            id: row.try_get(1)?,
            role: row.try_get(2)?,
            status: row.try_get(3)?,
            turn: row.try_get(4)?,
            created_at: row.try_get(5)?,
            body: Body(row.try_get(6)?),
        }),
        Kind::Artifact => Record::Artifact(Artifact {
            task: row.try_get(0)?,
            turn: row.try_get(1)?,
            id: row.try_get(2)?,
            append: row.try_get(3)?,
            body: Body(row.try_get(4)?),
        }),
        Kind::Event => Record::Event(Event {
            task: row.try_get(0)?,
            seq: row.try_get(1)?,
            at: row.try_get(2)?,
            code: row.try_get(3)?,
            body: Body(row.try_get(4)?),
        }),
        Kind::Key => Record::Key(Key {
            tenant: row.try_get(0)?,
            key: Hex(row.try_get(1)?),
            fingerprint: Hex(row.try_get(2)?),
            task: row.try_get(3)?,
            turn: row.try_get(4)?,
            expires: row.try_get(5)?,
        }),
        Kind::Card => Record::Card(Card {
            tenant: row.try_get(0)?,
            agent: row.try_get(1)?,
            card: Body(row.try_get(2)?),
            updated_at: row.try_get(3)?,
        }),
        Kind::Push => Record::Push(Box::new(Push {
            task: row.try_get(0)?,
            id: row.try_get(1)?,
            tenant: row.try_get(2)?,
            url: row.try_get(3)?,
            receiver: row.try_get(4)?,
            scheme: row.try_get(5)?,
            sealed: Body(row.try_get(6)?),
            dialect: row.try_get(7)?,
            chunks: row.try_get(8)?,
            created_at: row.try_get(9)?,
            seq: row.try_get(10)?,
            part: row.try_get(11)?,
            owed: row.try_get(12)?,
            state: row.try_get(13)?,
            due_at: row.try_get(14)?,
            generation: row.try_get(15)?,
            attempt: row.try_get(16)?,
            letters: row.try_get(17)?,
            record: row.try_get(18)?,
            bytes: row.try_get(19)?,
        })),
        Kind::Agent => Record::Agent(Agent {
            tenant: row.try_get(0)?,
            id: row.try_get(1)?,
            definition: Body(row.try_get(2)?),
            created_at: row.try_get(3)?,
            updated_at: row.try_get(4)?,
        }),
        Kind::Admin => Record::Admin(Admin {
            id: row.try_get(0)?,
            hash: Hex(row.try_get(1)?),
            name: row.try_get(2)?,
            created_at: row.try_get(3)?,
            expires: row.try_get(4)?,
            revoked_at: row.try_get(5)?,
        }),
    })
}

async fn load(tx: &Transaction<'_>, reader: &mut Reader<'_>) -> Result<()> {
    let mut rows: Vec<Record> = Vec::new();
    let mut bytes = 0;
    while let Some(record) = reader.next()? {
        let full = rows.len() >= ROWS || bytes >= BYTES;
        if full || rows.first().is_some_and(|first| first.kind() != record.kind()) {
            insert(tx, &rows).await?;
            rows.clear();
            bytes = 0;
        }
        bytes += weight(&record);
        rows.push(record);
    }
    insert(tx, &rows).await
}

/// About how many bytes a record is, as far as records differ in it.
fn weight(record: &Record) -> usize {
    match record {
        Record::Setting(setting) => setting.value.0.len(),
        Record::Task(task) => task.status_message.as_ref().map_or(0, String::len),
        Record::Message(message) => message.body.0.len(),
        Record::Artifact(artifact) => artifact.body.0.len(),
        Record::Event(event) => event.body.0.len(),
        Record::Card(card) => card.card.0.len(),
        Record::Push(push) => push.record.len() + push.sealed.0.len(),
        Record::Agent(agent) => agent.definition.0.len(),
        Record::Tenant(_) | Record::Token(_) | Record::Admin(_) | Record::Audit(_) | Record::Key(_) => 0,
    }
}

/// Inserts records of one kind with one statement, in their order.
async fn insert(tx: &Transaction<'_>, rows: &[Record]) -> Result<()> {
    /// One array for each column of the records of this kind.
    macro_rules! columns {
        ($kind:ident, $sql:expr, $row:ident => $($column:expr),+ $(,)?) => {{
            let rows = || rows.iter().filter_map(|record| match record {
                Record::$kind($row) => Some($row),
                _ => None,
            });
            tx.execute($sql, &[$(&rows().map(|$row| $column).collect::<Vec<_>>()),+]).await
        }};
    }
    let Some(first) = rows.first() else {
        return Ok(());
    };
    let inserted = match first.kind() {
        Kind::Tenant => columns!(Tenant,
            "INSERT INTO tenants (id, name, enabled, created_at)
             SELECT id, name, enabled, created_at
             FROM unnest($1::bigint[], $2::text[], $3::boolean[], $4::bigint[]) AS r (id, name, enabled, created_at)",
            r => r.id, r.name.as_str(), r.enabled, r.created_at),
        Kind::Token => columns!(Token,
            "INSERT INTO tokens (id, tenant_id, hash, name, created_at, expires, revoked_at, used_at, scopes, agents)
             SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::text[], $5::bigint[], $6::bigint[],
               $7::bigint[], $8::bigint[], $9::bigint[], $10::text[])",
            r => r.id, r.tenant, r.hash.0.as_slice(), r.name.as_str(), r.created_at, r.expires, r.revoked_at, r.used_at,
                r.scopes, r.agents.as_str()),
        Kind::Admin => columns!(Admin,
            "INSERT INTO admin_tokens (id, hash, name, created_at, expires, revoked_at)
             SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[])",
            r => r.id, r.hash.0.as_slice(), r.name.as_str(), r.created_at, r.expires, r.revoked_at),
        Kind::Setting => columns!(Setting,
            "INSERT INTO settings (name, value) SELECT * FROM unnest($1::text[], $2::bytea[])",
            r => r.name.as_str(), r.value.0.as_slice()),
        Kind::Audit => columns!(Audit,
            "INSERT INTO audit (id, at, actor, action, detail)
             SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[])",
            r => r.id, r.at, r.actor.as_str(), r.action.as_str(), r.detail.as_str()),
        Kind::Task => columns!(Task,
            "INSERT INTO a2a_tasks (task_id, tenant_id, agent_id, context_id, state, created_at, updated_at, status_at,
               status_message, status_turn, seq, hidden, due_at, interrupted, generation, attempt, turn, waiting,
               cancel_mark, remembers, releases, parking, kept, kept_before, queued, from_agent, priority, max_attempts,
               replays, dead, errors, origin, aftermath, input_tokens, output_tokens)
             SELECT task::uuid, tenant, agent, context, state, created, updated, status, message, status_turn, seq,
               hidden, due, interrupted, generation, attempt, turn, waiting, cancel_mark, remembers, releases,
               parking, kept, kept_before, queued = 1, from_agent, priority, max_attempts, replays, dead, errors,
               origin, aftermath, input_tokens, output_tokens
             FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[],
               $8::bigint[], $9::text[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::boolean[],
               $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[], $19::boolean[], $20::boolean[], $21::bigint[],
               $22::bigint[], $23::bigint[], $24::bigint[], $25::bigint[], $26::text[], $27::bigint[], $28::bigint[],
               $29::text[], $30::bigint[], $31::text[], $32::text[], $33::bigint[], $34::bigint[],
               $35::bigint[])
             AS r (task, tenant, agent, context, state, created, updated, status, message, status_turn, seq, hidden,
               due, interrupted, generation, attempt, turn, waiting, cancel_mark, remembers, releases, parking, kept,
               kept_before, queued, from_agent, priority, max_attempts, replays, dead, errors, origin, aftermath,
               input_tokens, output_tokens)",
            r => r.id.as_str(), r.tenant, r.agent.as_str(), r.context.as_str(), r.state.as_str(), r.created_at,
                r.updated_at, r.status_at, r.status_message.as_deref(), r.status_turn, r.seq, r.hidden, r.due_at,
                r.interrupted, r.generation, r.attempt, r.turn, r.waiting, r.cancel_mark, r.remembers, r.releases,
                r.parking, r.kept, r.kept_before, r.queued, r.from_agent.as_str(), r.priority, r.max_attempts,
                r.replays.as_deref(), r.dead, r.errors.as_deref(), r.origin.as_deref(), r.aftermath,
                r.input_tokens, r.output_tokens),
        // Positions are given in the order of the lines.
        Kind::Message => columns!(Message,
            "INSERT INTO messages (task, message_id, role, status, turn, created_at, body)
             SELECT task::uuid, id, role, status, turn, created, body
             FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bytea[])
             WITH ORDINALITY AS r (task, id, role, status, turn, created, body, n) ORDER BY n",
            r => r.task.as_str(), r.id.as_str(), r.role.as_str(), r.status.as_str(), r.turn, r.created_at,
                r.body.0.as_slice()),
        Kind::Artifact => columns!(Artifact,
            "INSERT INTO a2a_artifacts (task, turn, artifact_id, append, body)
             SELECT task::uuid, turn, id, append, body
             FROM unnest($1::text[], $2::bigint[], $3::text[], $4::boolean[], $5::bytea[])
             WITH ORDINALITY AS r (task, turn, id, append, body, n) ORDER BY n",
            r => r.task.as_str(), r.turn, r.id.as_str(), r.append, r.body.0.as_slice()),
        Kind::Event => columns!(Event,
            "INSERT INTO a2a_events (task, seq, at, kind, body)
             SELECT task::uuid, seq, at, kind, body
             FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[])
             WITH ORDINALITY AS r (task, seq, at, kind, body, n) ORDER BY n",
            r => r.task.as_str(), r.seq, r.at, r.code, r.body.0.as_slice()),
        Kind::Key => columns!(Key,
            "INSERT INTO idempotency (tenant_id, key, fingerprint, task, turn, expires)
             SELECT tenant, key, fingerprint, task::uuid, turn, expires
             FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::text[], $5::bigint[], $6::bigint[])
             AS r (tenant, key, fingerprint, task, turn, expires)",
            r => r.tenant, r.key.0.as_slice(), r.fingerprint.0.as_slice(), r.task.as_str(), r.turn, r.expires),
        Kind::Card => columns!(Card,
            "INSERT INTO cards (tenant_id, agent_id, card, updated_at)
             SELECT * FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::bigint[])",
            r => r.tenant, r.agent.as_str(), r.card.0.as_slice(), r.updated_at),
        Kind::Push => columns!(Push,
            "INSERT INTO push_configs (task, config_id, tenant_id, url, receiver, scheme, sealed, dialect, chunks,
               created_at, seq, part, owed, state, due_at, generation, attempt, letters, record, bytes)
             SELECT task::uuid, id, tenant, url, receiver, scheme, sealed, dialect, chunks, created, seq, part, owed, state,
               due, generation, attempt, letters, record, bytes
             FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::bytea[],
               $8::bigint[], $9::boolean[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[],
               $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[], $19::text[], $20::bigint[])
             AS r (task, id, tenant, url, receiver, scheme, sealed, dialect, chunks, created, seq, part, owed, state, due,
               generation, attempt, letters, record, bytes)",
            r => r.task.as_str(), r.id.as_str(), r.tenant, r.url.as_str(), r.receiver.as_str(), r.scheme.as_str(),
                r.sealed.0.as_slice(), r.dialect, r.chunks, r.created_at, r.seq, r.part, r.owed, r.state, r.due_at,
                r.generation, r.attempt, r.letters, r.record.as_str(), r.bytes),
        Kind::Agent => columns!(Agent,
            "INSERT INTO tenant_agents (tenant_id, agent_id, definition, created_at, updated_at)
             SELECT * FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::bigint[], $5::bigint[])",
            r => r.tenant, r.id.as_str(), r.definition.0.as_slice(), r.created_at, r.updated_at),
    };
    let inserted = inserted.map_err(|error| match error.code() {
        // What a column cannot hold (22), and what contradicts another row (23).
        Some(code) if code.code().starts_with("22") || code.code().starts_with("23") => {
            Error::Altered("a record cannot be kept, or contradicts another".into())
        }
        _ => error.into(),
    })?;
    if inserted != rows.len() as u64 {
        return Err(Error::Differs {
            what: format!("{} {} were written, {inserted} kept", rows.len(), first.kind().name()),
        });
    }
    Ok(())
}
