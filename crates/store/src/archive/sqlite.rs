//! Archives of the journal on SQLite: one snapshot out, one transaction in.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use a2a::signature::SigningKey;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, TransactionBehavior, params};

use super::{
    Error, Imported, Kind, OF_INSTALLATION, Phase, Progress, Reader, Result, Sums, Writer, compare, count_rows,
    record::{
        Admin, Agent, Artifact, Audit, Body, Card, Event, Hex, Key, Message, Push, Record, Setting, Task, Tenant, Token,
    },
};
use crate::sqlite::{self, FILE, schema, tx::positions};

/// Page cache of a connection, in KiB.
const CACHE: u32 = 32 * 1024;

/// The tables whose rows make a store one that is not empty, and what their rows are called.
pub(super) const TABLES: [(&str, &str); 13] = [
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

/// A connection to the journal in `dir` that can only read.
pub(super) fn open_source(dir: &Path) -> Result<Connection> {
    let conn = open_of_any_version(dir)?;
    check_schema(&conn)?;
    Ok(conn)
}

/// The same, whatever version has written it.
pub(super) fn open_of_any_version(dir: &Path) -> Result<Connection> {
    let file = dir.join(FILE);
    if fs::metadata(&file).map_or(0, |metadata| metadata.len()) == 0 {
        return Err(Error::NoJournal(dir.display().to_string()));
    }
    Ok(schema::open_reader(&file, CACHE)?)
}

/// A setting of the installation.
pub(super) fn setting(dir: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    let conn = open_source(dir)?;
    Ok(conn.query_row("SELECT value FROM settings WHERE name = ?1", [name], |row| row.get(0)).optional()?)
}

/// Refuses a journal whose columns are not those that this version knows.
pub(super) fn check_schema(conn: &Connection) -> Result<()> {
    let (found, known) = (schema::version(conn)?, schema::known());
    if found > known {
        return Err(crate::Error::FromTheFuture { found, known }.into());
    }
    if found < known {
        return Err(Error::OldSchema { found, known });
    }
    Ok(())
}

/// Writes everything to `out`, as of one moment.
pub(super) fn export(
    conn: &Connection,
    out: &mut dyn Write,
    signer: Option<&SigningKey>,
    progress: Progress<'_>,
) -> Result<Sums> {
    conn.execute_batch("BEGIN")?;
    let sums = write_all(conn, out, signer, Phase::Copying, progress);
    // Nothing was written; what was read has been read.
    let _ = conn.execute_batch("ROLLBACK");
    sums
}

/// What the journal holds, within the caller's transaction if there is one.
pub(super) fn sums(conn: &Connection, progress: Progress<'_>) -> Result<Sums> {
    write_all(conn, &mut io::sink(), None, Phase::Verifying, progress)
}

fn write_all(
    conn: &Connection,
    out: &mut dyn Write,
    signer: Option<&SigningKey>,
    phase: Phase,
    progress: Progress<'_>,
) -> Result<Sums> {
    let mut writer = Writer::new(out, format!("sqlite {}", schema::known()), phase, progress)?;
    dump(conn, &mut writer)?;
    writer.finish(signer)
}

/// Takes an archive into the journal in `dir`, which must not have anything in it.
pub(super) fn import(dir: &Path, reader: Reader<'_>, progress: Progress<'_>) -> Result<Imported> {
    if sqlite::is_open(dir) {
        return Err(Error::InUse);
    }
    let file = dir.join(FILE);
    let made = !file.try_exists()?;
    sqlite::create_private_dir(dir)?;
    sqlite::create_private_file(&file)?;
    let outcome = import_file(&file, reader, progress);
    if outcome.is_err() && made {
        remove_journal(dir);
    }
    outcome
}

/// Removes a journal that this process has made just now and that came to nothing.
pub(super) fn remove_journal(dir: &Path) {
    for ending in ["", "-wal", "-shm"] {
        // What is not there need not go.
        let _ = fs::remove_file(dir.join(format!("{FILE}{ending}")));
    }
}

fn import_file(file: &Path, mut reader: Reader<'_>, progress: Progress<'_>) -> Result<Imported> {
    let mut conn = schema::open_writer(file, CACHE)?;
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    refuse_content(&tx)?;
    let mut numbers = Numbers::default();
    while let Some(record) = reader.next()? {
        insert(&tx, &record, &mut numbers)?;
    }
    let proven = reader.finish()?;
    derive(&tx)?;
    let imported = compare(proven, sums(&tx, progress)?)?;
    tx.commit()?;
    Ok(imported)
}

fn refuse_content(conn: &Connection) -> Result<()> {
    for (table, name) in TABLES {
        let count: i64 = conn.query_row(&count_rows(table), (), |row| row.get(0))?;
        if count > 0 {
            return Err(Error::NotEmpty(format!("{count} {name}")));
        }
    }
    Ok(())
}

/// What is summed up of the records: counts of tasks, and what tenants use.
fn derive(conn: &Connection) -> Result<()> {
    conn.execute_batch(
        "DELETE FROM task_counts;
         INSERT INTO task_counts (tenant_id, agent_id, state, n)
         SELECT tenant_id, agent_id, state, count(*) FROM a2a_tasks WHERE hidden = 0 GROUP BY tenant_id, agent_id, state;
         DELETE FROM tenant_usage;
         INSERT INTO tenant_usage (tenant_id, tasks, bytes)
         SELECT tenant_id,
                sum(state NOT IN ('completed', 'failed', 'canceled', 'rejected')),
                sum((SELECT coalesce(sum(length(body)), 0) FROM a2a_events WHERE task = pk)
                  + (SELECT coalesce(sum(length(body)), 0) FROM messages
                     WHERE pos >= pk << 32 AND pos < (pk + 1) << 32)
                  + (SELECT coalesce(sum(length(body)), 0) FROM a2a_artifacts
                     WHERE pos >= pk << 32 AND pos < (pk + 1) << 32)
                  + (SELECT coalesce(sum(bytes), 0) FROM push_configs WHERE task = pk))
         FROM a2a_tasks GROUP BY tenant_id;
         UPDATE a2a_tasks SET pushes = (SELECT count(*) FROM push_configs WHERE task = pk)
         WHERE pk IN (SELECT task FROM push_configs);",
    )?;
    Ok(())
}

fn dump(conn: &Connection, writer: &mut Writer<'_>) -> Result<()> {
    each(conn, writer, "SELECT id, name, enabled, created_at FROM tenants ORDER BY id", |row| {
        Ok(Record::Tenant(Tenant { id: row.get(0)?, name: row.get(1)?, enabled: row.get(2)?, created_at: row.get(3)? }))
    })?;
    let tokens = "SELECT id, tenant_id, hash, name, created_at, expires, revoked_at, used_at, scopes, agents
                  FROM tokens ORDER BY id";
    each(conn, writer, tokens, |row| {
        Ok(Record::Token(Token {
            id: row.get(0)?,
            tenant: row.get(1)?,
            hash: Hex(row.get(2)?),
            name: row.get(3)?,
            created_at: row.get(4)?,
            expires: row.get(5)?,
            revoked_at: row.get(6)?,
            used_at: row.get(7)?,
            scopes: row.get(8)?,
            agents: row.get(9)?,
        }))
    })?;
    each(conn, writer, &format!("SELECT name, value FROM settings WHERE {OF_INSTALLATION} ORDER BY name"), |row| {
        Ok(Record::Setting(Setting { name: row.get(0)?, value: Body(row.get(1)?) }))
    })?;
    each(conn, writer, "SELECT id, at, actor, action, detail FROM audit ORDER BY id", |row| {
        Ok(Record::Audit(Audit {
            id: row.get(0)?,
            at: row.get(1)?,
            actor: row.get(2)?,
            action: row.get(3)?,
            detail: row.get(4)?,
        }))
    })?;
    let tasks = "SELECT task_id, tenant_id, agent_id, context_id, state, created_at, updated_at, status_at,
                   status_message, status_turn, seq, hidden,
                   CASE WHEN owner IS NOT NULL AND due_at > updated_at THEN updated_at ELSE due_at END,
                   owner IS NOT NULL OR interrupted, generation, attempt, turn, waiting, cancel_mark, remembers, releases,
                   parking = 1, kept, kept_before, queued, from_agent, priority, max_attempts, replays, dead, errors,
                   origin, aftermath, input_tokens, output_tokens
                 FROM a2a_tasks ORDER BY task_id";
    each(conn, writer, tasks, |row| {
        Ok(Record::Task(Box::new(Task {
            id: row.get(0)?,
            tenant: row.get(1)?,
            agent: row.get(2)?,
            context: row.get(3)?,
            state: row.get(4)?,
            created_at: row.get(5)?,
            updated_at: row.get(6)?,
            status_at: row.get(7)?,
            status_message: row.get(8)?,
            status_turn: row.get(9)?,
            seq: row.get(10)?,
            hidden: row.get(11)?,
            due_at: row.get(12)?,
            interrupted: row.get(13)?,
            generation: row.get(14)?,
            attempt: row.get(15)?,
            turn: row.get(16)?,
            waiting: row.get(17)?,
            cancel_mark: row.get(18)?,
            remembers: row.get(19)?,
            releases: row.get(20)?,
            parking: row.get(21)?,
            kept: row.get(22)?,
            kept_before: row.get(23)?,
            queued: row.get(24)?,
            from_agent: row.get(25)?,
            priority: row.get(26)?,
            max_attempts: row.get(27)?,
            replays: row.get(28)?,
            dead: row.get(29)?,
            errors: row.get(30)?,
            origin: row.get(31)?,
            aftermath: row.get(32)?,
            input_tokens: row.get(33)?,
            output_tokens: row.get(34)?,
        })))
    })?;
    // Two loops and no join, so that nothing is sorted and nothing has to fit into memory.
    let messages = "SELECT message_id, role, status, turn, created_at, body FROM messages
                    WHERE pos >= ?1 AND pos < ?2 ORDER BY pos";
    each_of_tasks(conn, writer, messages, |task, row| {
        Ok(Record::Message(Message {
            task,
            id: without_nul(row.get(0)?),
            role: row.get(1)?,
            status: row.get(2)?,
            turn: row.get(3)?,
            created_at: row.get(4)?,
            body: Body(row.get(5)?),
        }))
    })?;
    let artifacts = "SELECT turn, artifact_id, append, body FROM a2a_artifacts
                     WHERE pos >= ?1 AND pos < ?2 ORDER BY pos";
    each_of_tasks(conn, writer, artifacts, |task, row| {
        Ok(Record::Artifact(Artifact {
            task,
            turn: row.get(0)?,
            id: without_nul(row.get(1)?),
            append: row.get(2)?,
            body: Body(row.get(3)?),
        }))
    })?;
    let events = "SELECT t.task_id, e.seq, e.at, e.kind, e.body
                  FROM a2a_events e CROSS JOIN a2a_tasks t ON t.pk = e.task ORDER BY e.pos";
    each(conn, writer, events, |row| {
        Ok(Record::Event(Event {
            task: row.get(0)?,
            seq: row.get(1)?,
            at: row.get(2)?,
            code: row.get(3)?,
            body: Body(row.get(4)?),
        }))
    })?;
    let keys = "SELECT i.tenant_id, i.key, i.fingerprint, t.task_id, i.turn, i.expires
                FROM idempotency i CROSS JOIN a2a_tasks t ON t.pk = i.task ORDER BY i.tenant_id, i.key";
    each(conn, writer, keys, |row| {
        Ok(Record::Key(Key {
            tenant: row.get(0)?,
            key: Hex(row.get(1)?),
            fingerprint: Hex(row.get(2)?),
            task: row.get(3)?,
            turn: row.get(4)?,
            expires: row.get(5)?,
        }))
    })?;
    let cards = "SELECT tenant_id, agent_id, card, updated_at FROM cards ORDER BY tenant_id, agent_id";
    each(conn, writer, cards, |row| {
        Ok(Record::Card(Card {
            tenant: row.get(0)?,
            agent: row.get(1)?,
            card: Body(row.get(2)?),
            updated_at: row.get(3)?,
        }))
    })?;
    let pushes =
        "SELECT t.task_id, c.config_id, c.tenant_id, c.url, c.receiver, c.scheme, c.sealed, c.dialect, c.chunks,
                    c.created_at, c.seq, c.part, c.owed, c.state,
                    CASE WHEN c.owner IS NOT NULL THEN min(c.due_at, c.created_at) ELSE c.due_at END, c.generation,
                    c.attempt, c.letters, c.record, c.bytes
                  FROM push_configs c JOIN a2a_tasks t ON t.pk = c.task ORDER BY t.task_id, c.config_id";
    each(conn, writer, pushes, |row| {
        Ok(Record::Push(Box::new(Push {
            task: row.get(0)?,
            id: row.get(1)?,
            tenant: row.get(2)?,
            url: row.get(3)?,
            receiver: row.get(4)?,
            scheme: row.get(5)?,
            sealed: Body(row.get(6)?),
            dialect: row.get(7)?,
            chunks: row.get(8)?,
            created_at: row.get(9)?,
            seq: row.get(10)?,
            part: row.get(11)?,
            owed: row.get(12)?,
            state: row.get(13)?,
            due_at: row.get(14)?,
            generation: row.get(15)?,
            attempt: row.get(16)?,
            letters: row.get(17)?,
            record: row.get(18)?,
            bytes: row.get(19)?,
        })))
    })?;
    let agents = "SELECT tenant_id, agent_id, definition, created_at, updated_at FROM tenant_agents
                  ORDER BY tenant_id, agent_id";
    each(conn, writer, agents, |row| {
        Ok(Record::Agent(Agent {
            tenant: row.get(0)?,
            id: row.get(1)?,
            definition: Body(row.get(2)?),
            created_at: row.get(3)?,
            updated_at: row.get(4)?,
        }))
    })?;
    let admins = "SELECT id, hash, name, created_at, expires, revoked_at FROM admin_tokens ORDER BY id";
    each(conn, writer, admins, |row| {
        Ok(Record::Admin(Admin {
            id: row.get(0)?,
            hash: Hex(row.get(1)?),
            name: row.get(2)?,
            created_at: row.get(3)?,
            expires: row.get(4)?,
            revoked_at: row.get(5)?,
        }))
    })
}

/// An id that an agent made up. No text of PostgreSQL holds a NUL; the body keeps what was said.
fn without_nul(id: String) -> String {
    if id.contains('\0') { id.replace('\0', "\u{fffd}") } else { id }
}

fn each(
    conn: &Connection,
    writer: &mut Writer<'_>,
    sql: &str,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<Record>,
) -> Result<()> {
    let mut statement = conn.prepare(sql)?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        writer.write(&read(row)?)?;
    }
    Ok(())
}

/// The rows of every task, task by task in the order of their ids; the statement takes the bounds of its positions.
fn each_of_tasks(
    conn: &Connection,
    writer: &mut Writer<'_>,
    sql: &str,
    read: impl Fn(String, &Row<'_>) -> rusqlite::Result<Record>,
) -> Result<()> {
    let mut tasks = conn.prepare("SELECT task_id, pk FROM a2a_tasks ORDER BY task_id")?;
    let mut tasks = tasks.query(())?;
    let mut statement = conn.prepare(sql)?;
    while let Some(task) = tasks.next()? {
        let id: String = task.get(0)?;
        let (first, end) = positions(task.get(1)?);
        let mut rows = statement.query(params![first, end])?;
        while let Some(row) = rows.next()? {
            writer.write(&read(id.clone(), row)?)?;
        }
    }
    Ok(())
}

/// The numbers that records get as they come.
#[derive(Default)]
struct Numbers {
    /// Of the last task.
    pk: i64,
    /// Of the last message or artifact, in its task.
    part: Option<(Kind, String, i64)>,
}

impl Numbers {
    /// The number of the next message or artifact of this task, from 1. They come task by task. There are never more
    /// of them than events, by which later ones are numbered.
    fn next(&mut self, kind: Kind, task: &str) -> i64 {
        match &mut self.part {
            Some((last, of, number)) if *last == kind && of == task => {
                *number += 1;
                *number
            }
            _ => {
                self.part = Some((kind, task.to_owned(), 1));
                1
            }
        }
    }
}

/// Writes one record.
fn insert(conn: &Connection, record: &Record, numbers: &mut Numbers) -> Result<()> {
    match record {
        Record::Tenant(r) => run(
            conn,
            "INSERT INTO tenants (id, name, enabled, created_at) VALUES (?1, ?2, ?3, ?4)",
            params![r.id, r.name, r.enabled, r.created_at],
        ),
        Record::Token(r) => run(
            conn,
            "INSERT INTO tokens (id, tenant_id, hash, name, created_at, expires, revoked_at, used_at, scopes, agents)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            params![
                r.id,
                r.tenant,
                r.hash.0,
                r.name,
                r.created_at,
                r.expires,
                r.revoked_at,
                r.used_at,
                r.scopes,
                r.agents
            ],
        ),
        Record::Admin(r) => run(
            conn,
            "INSERT INTO admin_tokens (id, hash, name, created_at, expires, revoked_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![r.id, r.hash.0, r.name, r.created_at, r.expires, r.revoked_at],
        ),
        Record::Setting(r) => {
            run(conn, "INSERT INTO settings (name, value) VALUES (?1, ?2)", params![r.name, r.value.0])
        }
        Record::Audit(r) => run(
            conn,
            "INSERT INTO audit (id, at, actor, action, detail) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![r.id, r.at, r.actor, r.action, r.detail],
        ),
        Record::Task(r) => {
            numbers.pk += 1;
            let pk = numbers.pk;
            run(
                conn,
                "INSERT INTO a2a_tasks (pk, task_id, tenant_id, agent_id, context_id, state, created_at, updated_at,
                   status_at, status_message, status_turn, seq, hidden, due_at, interrupted, generation, attempt,
                   turn, waiting, cancel_mark, remembers, releases, parking, kept, kept_before, queued,
                   from_agent, priority, max_attempts, replays, dead, errors, origin, aftermath, input_tokens,
                   output_tokens)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20,
                   ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35, ?36)",
                params![
                    pk,
                    r.id,
                    r.tenant,
                    r.agent,
                    r.context,
                    r.state,
                    r.created_at,
                    r.updated_at,
                    r.status_at,
                    r.status_message,
                    r.status_turn,
                    r.seq,
                    r.hidden,
                    r.due_at,
                    r.interrupted,
                    r.generation,
                    r.attempt,
                    r.turn,
                    r.waiting,
                    r.cancel_mark,
                    r.remembers,
                    r.releases,
                    r.parking,
                    r.kept,
                    r.kept_before,
                    r.queued,
                    r.from_agent,
                    r.priority,
                    r.max_attempts,
                    r.replays,
                    r.dead,
                    r.errors,
                    r.origin,
                    r.aftermath,
                    r.input_tokens,
                    r.output_tokens,
                ],
            )
        }
        // What belongs to no task is not inserted, and missed when it is counted.
        Record::Message(r) => run(
            conn,
            "INSERT INTO messages (pos, task, message_id, role, status, turn, created_at, body)
             SELECT (pk << 32) + ?1, pk, ?3, ?4, ?5, ?6, ?7, ?8 FROM a2a_tasks WHERE task_id = ?2",
            params![
                numbers.next(Kind::Message, &r.task),
                r.task,
                r.id,
                r.role,
                r.status,
                r.turn,
                r.created_at,
                r.body.0
            ],
        ),
        Record::Artifact(r) => run(
            conn,
            "INSERT INTO a2a_artifacts (pos, task, turn, artifact_id, append, body)
             SELECT (pk << 32) + ?1, pk, ?3, ?4, ?5, ?6 FROM a2a_tasks WHERE task_id = ?2",
            params![numbers.next(Kind::Artifact, &r.task), r.task, r.turn, r.id, r.append, r.body.0],
        ),
        Record::Event(r) => run(
            conn,
            "INSERT INTO a2a_events (task, seq, at, kind, body)
             SELECT pk, ?2, ?3, ?4, ?5 FROM a2a_tasks WHERE task_id = ?1",
            params![r.task, r.seq, r.at, r.code, r.body.0],
        ),
        Record::Key(r) => run(
            conn,
            "INSERT INTO idempotency (tenant_id, key, fingerprint, task, turn, expires)
             SELECT ?1, ?2, ?3, pk, ?5, ?6 FROM a2a_tasks WHERE task_id = ?4",
            params![r.tenant, r.key.0, r.fingerprint.0, r.task, r.turn, r.expires],
        ),
        Record::Card(r) => run(
            conn,
            "INSERT INTO cards (tenant_id, agent_id, card, updated_at) VALUES (?1, ?2, ?3, ?4)",
            params![r.tenant, r.agent, r.card.0, r.updated_at],
        ),
        Record::Push(r) => run(
            conn,
            "INSERT INTO push_configs (task, config_id, tenant_id, url, receiver, scheme, sealed, dialect, chunks,
               created_at, seq, part, owed, state, due_at, generation, attempt, letters, record, bytes)
             SELECT pk, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20
             FROM a2a_tasks WHERE task_id = ?1",
            params![
                r.task,
                r.id,
                r.tenant,
                r.url,
                r.receiver,
                r.scheme,
                r.sealed.0,
                r.dialect,
                r.chunks,
                r.created_at,
                r.seq,
                r.part,
                r.owed,
                r.state,
                r.due_at,
                r.generation,
                r.attempt,
                r.letters,
                r.record,
                r.bytes,
            ],
        ),
        Record::Agent(r) => run(
            conn,
            "INSERT INTO tenant_agents (tenant_id, agent_id, definition, created_at, updated_at)
             VALUES (?1, ?2, ?3, ?4, ?5)",
            params![r.tenant, r.id, r.definition.0, r.created_at, r.updated_at],
        ),
    }
}

fn run(conn: &Connection, sql: &str, params: &[&dyn rusqlite::ToSql]) -> Result<()> {
    match conn.prepare_cached(sql)?.execute(params) {
        Ok(_) => Ok(()),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
            Err(Error::Altered("two of its records contradict each other".into()))
        }
        Err(error) => Err(error.into()),
    }
}
