//! Temporary stores, on SQLite or on PostgreSQL as the test run asks.
//!
//! `SB_TEST_STORE=postgres` puts every store of a test run into a database of its own on the server that `SB_TEST_POSTGRES`
//! names; otherwise it is a file in the test's directory. Tests that are about one of the stores name it.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, types::ValueRef};
use sha2::{Digest, Sha256};
use store::{
    NewToken, Reach, Store, TenantId, Wake, postgres,
    sqlite::{self, Ticks},
};
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::postgres::{Database, Session};

/// A store in a test's directory, or in a PostgreSQL database that is dropped with this value.
pub struct TempStore {
    dir: PathBuf,
    /// For [`TempStore::look`].
    session: OnceLock<Session>,
    database: Option<Database>,
}

/// The rows that a query found: text, and bytes in hexadecimal.
pub type Rows = Vec<Vec<Option<String>>>;

impl TempStore {
    /// A store as `SB_TEST_STORE` asks. `dir` is the data directory in either case.
    pub fn new(dir: &Path) -> Self {
        let database = match std::env::var("SB_TEST_STORE").as_deref() {
            Ok("postgres") => Some(Database::create()),
            Ok("sqlite") | Err(_) => None,
            Ok(other) => panic!("SB_TEST_STORE is `sqlite` or `postgres`, not `{other}`"),
        };
        Self { dir: dir.to_owned(), session: OnceLock::new(), database }
    }

    /// A store on SQLite, for tests that are about the file.
    pub fn file(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), session: OnceLock::new(), database: None }
    }

    /// Opens the journal; several may be open at once.
    pub async fn open(&self) -> Arc<dyn Store> {
        self.open_with(None, sqlite::Options::default().look).await
    }

    /// Opens the journal with other wake-ups than the store's own, and watchers that look at the log so often.
    pub async fn open_with(&self, wake: Option<Wake>, look: Duration) -> Arc<dyn Store> {
        self.opening(wake, look, Ticks::default()).await
    }

    /// The same, on any runtime, and with a steady clock that is the test's own where the store has none by itself.
    pub fn opening(
        &self,
        wake: Option<Wake>,
        look: Duration,
        ticks: Ticks,
    ) -> impl Future<Output = Arc<dyn Store>> + Send + use<> {
        let url = self.database.as_ref().map(|database| database.url().parse().expect("it is a URL"));
        let dir = self.dir.clone();
        async move {
            let store: Arc<dyn Store> = match url {
                Some(url) => {
                    let mut options = postgres::Options { look, ..postgres::Options::default() };
                    options.wake = wake.unwrap_or(options.wake);
                    postgres::open(&url, options).await.expect("the database can be opened")
                }
                None => {
                    let mut options = sqlite::Options { look, ticks, ..sqlite::Options::default() };
                    options.wake = wake.unwrap_or(options.wake);
                    sqlite::open(&dir, options).expect("the journal can be opened")
                }
            };
            store
        }
    }

    /// Makes the database's clock the test's own from here on: what is returned sets it, in milliseconds. A file has none.
    pub fn virtual_clock(&self) -> Option<Arc<dyn Fn(i64) + Send + Sync>> {
        let database = self.database.as_ref()?;
        let session = Session::open(database.url()).expect("the database is there");
        let url = database.url().parse().expect("it is a URL");
        session.run(postgres::migrate(&url)).expect("the tables can be made");
        let replace = "CREATE TABLE virtual_clock (millis bigint NOT NULL);
             INSERT INTO virtual_clock VALUES (0);
             CREATE OR REPLACE FUNCTION lease_now() RETURNS bigint LANGUAGE sql STABLE AS
               $$ SELECT millis FROM virtual_clock $$;
             CREATE OR REPLACE FUNCTION lease_clock() RETURNS bigint LANGUAGE sql VOLATILE AS
               $$ SELECT millis FROM virtual_clock $$;";
        session.run(session.client.batch_execute(replace)).expect("the clock can be replaced");
        Some(Arc::new(move |millis| {
            let set = async { session.client.execute("UPDATE virtual_clock SET millis = $1", &[&millis]).await };
            // A database that is gone has no clock.
            let _ = session.run(set);
        }))
    }

    /// The rows of queries, as text, bytes in hexadecimal: what the tables hold, read beside whoever writes them.
    pub fn look(&self, queries: &[&str]) -> Vec<Rows> {
        match &self.database {
            Some(database) => {
                let session =
                    self.session.get_or_init(|| Session::open(database.url()).expect("the database is there"));
                let look = async {
                    let mut found = Vec::new();
                    for query in queries {
                        found.push(look_at_server(&session.client, query).await?);
                    }
                    Ok::<_, tokio_postgres::Error>(found)
                };
                session.run(look).expect("the query can be run")
            }
            None => {
                let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
                let file = Connection::open_with_flags(self.dir.join(sqlite::FILE), flags);
                let file = file.expect("the file can be opened");
                queries.iter().map(|query| look_at_file(&file, query).expect("the query can be run")).collect()
            }
        }
    }

    /// Sets the version of the schema, as a newer program does that has migrated the journal and says nothing of older ones.
    pub fn set_schema(&self, version: i64) {
        match &self.database {
            Some(_) => {
                self.look(&[&format!("UPDATE schema_version SET version = {version}")]);
            }
            None => alter(&self.dir.join(sqlite::FILE), &format!("PRAGMA user_version = {version}")),
        }
    }

    /// Registers an instance, as a program does that says of itself neither its version nor that it has gone. The journal must have
    /// been opened before.
    pub fn add_older_instance(&self) {
        match &self.database {
            // The session of these looks is the proof that it lives.
            Some(_) => {
                let insert = "INSERT INTO instances (id, lock_key, started_at) VALUES ('older', 77, 0)";
                self.look(&["SELECT pg_advisory_lock(77)::text", insert]);
            }
            None => {
                let insert = "INSERT INTO instances (id, started_at) VALUES ('older', 0)";
                alter(&self.dir.join(sqlite::FILE), insert);
            }
        }
    }

    /// What `--store` and `SB_STORE` have to say for this place, if anything.
    pub fn url(&self) -> Option<&str> {
        self.database.as_ref().map(Database::url)
    }
}

/// Runs statements on a file of SQLite, as somebody would who crafts one.
pub fn alter(file: &Path, sql: &str) {
    let conn = rusqlite::Connection::open(file).expect("a file of SQLite opens");
    conn.execute_batch(sql).expect("the statements can be run");
}

/// Makes a tenant with one token.
pub async fn add_tenant(store: &dyn Store, name: &str, token: &str) -> TenantId {
    let tenant = store.create_tenant(name).await.expect("the tenant is new").id;
    let hash = Sha256::digest(token).into();
    let token = NewToken { tenant, hash, name: "test".to_owned(), expires: None, reach: Reach::default() };
    store.add_token(token).await.expect("the token is new");
    tenant
}

async fn look_at_server(client: &Client, query: &str) -> Result<Rows, tokio_postgres::Error> {
    let mut rows = Rows::new();
    for message in client.simple_query(query).await? {
        if let SimpleQueryMessage::Row(row) = message {
            rows.push((0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect());
        }
    }
    Ok(rows)
}

fn look_at_file(file: &Connection, query: &str) -> rusqlite::Result<Rows> {
    let mut statement = file.prepare(query)?;
    let width = statement.column_count();
    let mut found = statement.query([])?;
    let mut rows = Rows::new();
    while let Some(row) = found.next()? {
        let text = |column| {
            Ok(match row.get_ref(column)? {
                ValueRef::Null => None,
                ValueRef::Integer(number) => Some(number.to_string()),
                ValueRef::Real(number) => Some(number.to_string()),
                ValueRef::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
                ValueRef::Blob(bytes) => Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
            })
        };
        rows.push((0..width).map(text).collect::<rusqlite::Result<_>>()?);
    }
    Ok(rows)
}
