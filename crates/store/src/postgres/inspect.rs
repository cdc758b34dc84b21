//! A look at a database from outside, for whoever asks whether all is well. Nothing is written and nothing migrated.

use tokio_postgres::Client;

use super::{
    pool::{Connector, Limits, Role},
    schema,
    url::Url,
};
use crate::{Result, codec};

/// What the server says about itself and the journal on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// The server's version, such as `15.8`.
    pub version: String,
    /// The same as a number: 150008 is 15.8.
    pub version_number: i32,
    /// The schema's version; `None` when there is no journal yet.
    pub schema: Option<i64>,
    /// The schema that this program brings a database to.
    pub known_schema: i64,
    /// Why the journal could not be written, or set up if there is none; `None` when it could.
    pub unwritable: Option<String>,
    /// The server syncs what it commits to disk (`fsync`). Without it, a crash may lose what was acknowledged.
    pub fsync: bool,
    /// What a commit of ours waits for; `on` unless the server does not let us choose.
    pub synchronous_commit: String,
    /// The connection is encrypted.
    pub encrypted: bool,
    /// The server's bound on connections, for all its clients together.
    pub max_connections: i32,
    /// The size of the database.
    pub bytes: u64,
    /// What is in the journal, if there is one.
    pub journal: Option<Content>,
}

/// What a journal holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// Tasks, hidden ones included; beyond a million the server's estimate.
    pub tasks: u64,
    /// Events; beyond a million the server's estimate.
    pub events: u64,
    /// Instances that live.
    pub live: Vec<String>,
    /// Instances that are gone without having signed off, until someone reclaims their work.
    pub dead: Vec<String>,
}

/// Looks at the database that `url` names.
pub async fn inspect(url: &Url) -> Result<Inspection> {
    let mut client = Connector::new(url, &Limits::default())?.open(Role::Write).await?;
    let found = schema::version(&client).await?;
    let known_schema = schema::known();
    let row = client
        .query_one(
            "SELECT current_setting('server_version'), current_setting('server_version_num')::integer,
               current_setting('fsync')::boolean, current_setting('synchronous_commit'),
               coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false),
               current_setting('max_connections')::integer, pg_database_size(current_database())",
            &[],
        )
        .await?;
    // Tables of a newer program may look otherwise.
    let journal = if found.is_some_and(|found| found <= known_schema) { Some(content(&client).await?) } else { None };
    Ok(Inspection {
        version: row.try_get(0)?,
        version_number: row.try_get(1)?,
        schema: found,
        known_schema,
        unwritable: try_writing(&mut client, found.is_some()).await?,
        fsync: row.try_get(2)?,
        synchronous_commit: row.try_get(3)?,
        encrypted: row.try_get(4)?,
        max_connections: row.try_get(5)?,
        bytes: codec::unsigned(row.try_get(6)?),
        journal,
    })
}

async fn content(client: &Client) -> Result<Content> {
    let count = |table: &str| {
        format!(
            "SELECT CASE WHEN reltuples > 1e6 THEN reltuples::bigint ELSE (SELECT count(*) FROM {table}) END
             FROM pg_class WHERE oid = '{table}'::regclass"
        )
    };
    let tasks = client.query_one(&count("a2a_tasks"), &[]).await?;
    let events = client.query_one(&count("a2a_events"), &[]).await?;
    let mut content = Content {
        tasks: codec::unsigned(tasks.try_get(0)?),
        events: codec::unsigned(events.try_get(0)?),
        ..Content::default()
    };
    // Looking at who holds a lock disturbs nobody; trying to take it could make a living instance look dead to others.
    let instances = client
        .query(
            "SELECT i.id, EXISTS (
               SELECT 1 FROM pg_locks l
               WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
                 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                 AND (l.classid::bigint << 32 | l.objid::bigint) = i.lock_key
             ) FROM instances i ORDER BY i.started_at, i.id",
            &[],
        )
        .await?;
    for row in &instances {
        let list = if row.try_get(1)? { &mut content.live } else { &mut content.dead };
        list.push(row.try_get(0)?);
    }
    Ok(content)
}

/// Writes, and takes it back.
async fn try_writing(client: &mut Client, has_journal: bool) -> Result<Option<String>> {
    let attempt = if has_journal {
        "INSERT INTO settings (name, value) VALUES ('journal.inspection', '') ON CONFLICT (name) DO NOTHING"
    } else {
        "CREATE TABLE switchboard_inspection (n integer)"
    };
    let tx = client.transaction().await?;
    let outcome = tx.batch_execute(attempt).await;
    tx.rollback().await?;
    match outcome {
        Ok(()) => Ok(None),
        Err(error) if error.as_db_error().is_some() => Ok(Some(crate::Error::from(error).to_string())),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing, *};

    #[tokio::test]
    async fn a_database_is_looked_at_and_left_alone() {
        let database = testing::empty_database();
        let found = inspect(&database.url).await.unwrap();
        assert_eq!((found.schema, found.journal, found.unwritable), (None, None, None));
        let client = database.client().await;
        schema::migrate(&database.connector()).await.unwrap();
        client
            .batch_execute(
                "INSERT INTO instances (id, lock_key, started_at) VALUES ('gone', 5, 1), ('here', -7, 2), ('there', 8, 3);
                 SELECT pg_advisory_lock(-7), pg_advisory_lock(8);
                 INSERT INTO a2a_events (task, seq, at, kind, body) VALUES (gen_random_uuid(), 1, 1, 1, '')",
            )
            .await
            .unwrap();
        let found = inspect(&database.url).await.unwrap();
        assert_eq!((found.schema, found.known_schema), (Some(schema::known()), schema::known()));
        assert!(found.version_number >= 130_000 && found.bytes > 0 && found.max_connections > 0);
        assert_eq!((found.synchronous_commit.as_str(), found.encrypted), ("on", false));
        let journal = found.journal.unwrap();
        assert_eq!((journal.tasks, journal.events), (0, 1));
        assert_eq!((journal.live, journal.dead), (vec!["here".to_owned(), "there".into()], vec!["gone".to_owned()]));
        let settings: i64 = client.query_one("SELECT count(*) FROM settings", &[]).await.unwrap().get(0);
        assert_eq!(settings, 0);
    }

    #[tokio::test]
    async fn who_may_not_write_is_told_so() {
        let database = testing::database().await;
        let client = database.client().await;
        let read_only = "DO $$ BEGIN
            EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database());
        END $$";
        client.batch_execute(read_only).await.unwrap();
        let found = inspect(&database.url).await.unwrap();
        assert!(found.unwritable.is_some_and(|why| why.contains("read-only")));
        assert!(found.journal.is_some());
    }
}
