//! A place for a journal that a test makes and throws away, on the store that the test run is about.
//!
//! `SB_TEST_STORE=postgres` puts every journal of a test run into a database of its own on the server that
//! `SB_TEST_POSTGRES` names; otherwise it is a file in the test's directory. Tests that are about one of the stores name it.

pub mod authority;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, types::ValueRef};
use sha2::{Digest, Sha256};
use tokio::runtime::{self, Runtime};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};
use uuid::Uuid;

use crate::{
    Accept, Draft, NewToken, Post, Quota, Reach, Store, Target, TaskId, TenantId, Wake, clock,
    hub::LOOK,
    postgres,
    sqlite::{self, Ticks},
};

/// Where one journal lives, for as long as this does.
pub struct Scratch {
    dir: PathBuf,
    /// For [`Scratch::look`].
    session: OnceLock<Session>,
    database: Option<Database>,
}

/// What a query found.
pub type Rows = Vec<Vec<Option<String>>>;

/// A PostgreSQL database of its own. Dropping it drops it.
pub struct Database {
    name: String,
    url: String,
}

impl Scratch {
    /// On the store that this test run is about. `dir` is the data directory, in either case.
    ///
    /// # Panics
    /// When there is no such store, or no server to make a database on.
    pub fn new(dir: &Path) -> Self {
        let database = match std::env::var("SB_TEST_STORE").as_deref() {
            Ok("postgres") => Some(Database::create()),
            Ok("sqlite") | Err(_) => None,
            Ok(other) => panic!("SB_TEST_STORE is `sqlite` or `postgres`, not `{other}`"),
        };
        Self { dir: dir.to_owned(), session: OnceLock::new(), database }
    }

    /// On SQLite, whatever the test run is about: for what is promised about the file.
    pub fn file(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), session: OnceLock::new(), database: None }
    }

    /// Opens the journal; several may be open at once.
    ///
    /// # Panics
    /// When it cannot be opened.
    pub async fn open(&self) -> Arc<dyn Store> {
        self.open_with(None, LOOK).await
    }

    /// Opens the journal with other wake-ups than the store's own, and watchers that look at the log so often.
    ///
    /// # Panics
    /// When it cannot be opened.
    pub async fn open_with(&self, wake: Option<Wake>, look: Duration) -> Arc<dyn Store> {
        self.opening(wake, look, Ticks::default()).await
    }

    /// The same, on any runtime, and with a steady clock that is the test's own where the store has none by itself.
    ///
    /// # Panics
    /// When it cannot be opened.
    pub fn opening(
        &self,
        wake: Option<Wake>,
        look: Duration,
        ticks: Ticks,
    ) -> impl Future<Output = Arc<dyn Store>> + Send + use<> {
        let url = self.database.as_ref().map(|database| database.url.parse().expect("it is a URL"));
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
    ///
    /// # Panics
    /// When the database cannot be changed.
    pub fn virtual_clock(&self) -> Option<Arc<dyn Fn(i64) + Send + Sync>> {
        let database = self.database.as_ref()?;
        let session = Session::open(&database.url).expect("the database is there");
        let opening = self.opening(None, LOOK, Ticks::default());
        session.run(async { opening.await.close().await });
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
    ///
    /// # Panics
    /// When a query cannot be run.
    pub fn look(&self, queries: &[&str]) -> Vec<Rows> {
        match &self.database {
            Some(database) => {
                let session = self.session.get_or_init(|| Session::open(&database.url).expect("the database is there"));
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
    ///
    /// # Panics
    /// When the journal cannot be changed.
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
    ///
    /// # Panics
    /// When the journal cannot be changed.
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
        self.database.as_ref().map(|database| database.url.as_str())
    }
}

impl Database {
    /// Creates a database that has the tables of the present schema and no rows, as a copy of the server's template.
    ///
    /// # Panics
    /// When there is no server.
    pub fn create() -> Self {
        let server = server();
        let template = template(&server);
        Self::on(&server, &format!(" TEMPLATE {template}"))
    }

    /// Creates a database without tables.
    ///
    /// # Panics
    /// When there is no server.
    pub fn empty() -> Self {
        Self::on(&server(), "")
    }

    fn on(server: &str, options: &str) -> Self {
        let name = format!("sb_test_{}", Uuid::new_v4().simple());
        administer(server, &format!("CREATE DATABASE {name}{options}"));
        Self { url: url_of(server, &name), name }
    }

    /// How to connect to it.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // A server that a test has killed may still be there for a moment.
        administer(&server(), &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
    }
}

/// Runs statements on a file of SQLite, as somebody would who crafts one.
pub fn alter(file: &Path, sql: &str) {
    let conn = rusqlite::Connection::open(file).expect("a file of SQLite opens");
    conn.execute_batch(sql).expect("the statements can be run");
}

/// A message that begins a task.
///
/// # Panics
/// When the task's first status is no JSON, which it always is.
pub fn accept(text: &str) -> Accept {
    let (task, at) = (TaskId::mint(), clock::now());
    Accept {
        target: Target::New {
            task,
            agent: "echo".parse().expect("it is a name"),
            context: task.to_string().into(),
            created: format!("{{\"task\":{{\"id\":\"{task}\"}}}}").into(),
            hold: false,
            remembers: false,
            post: Post::default(),
            origin: None,
            tells_cancel: false,
        },
        message_id: task.to_string(),
        message: format!("{{\"parts\":[{{\"text\":\"{text}\"}}]}}").into(),
        idempotency: None,
        lease: None,
        working: Draft::status(task, "one", a2a::TaskState::Working, None, None, at).expect("it is JSON"),
        push: None,
        quota: Quota::default(),
        parent: None,
        request: None,
        at,
    }
}

/// Makes a tenant with one token.
///
/// # Panics
/// When there is one of that name already.
pub async fn add_tenant(store: &dyn Store, name: &str, token: &str) -> TenantId {
    let tenant = store.create_tenant(name).await.expect("the tenant is new").id;
    let hash = Sha256::digest(token).into();
    let token = NewToken { tenant, hash, name: "test".to_owned(), expires: None, reach: Reach::default() };
    store.add_token(token).await.expect("the token is new");
    tenant
}

fn server() -> String {
    std::env::var("SB_TEST_POSTGRES")
        .unwrap_or_else(|_| panic!("SB_TEST_POSTGRES is not set; start a server: eval \"$(scripts/postgres start)\""))
}

fn url_of(server: &str, database: &str) -> String {
    let (base, _) = server.rsplit_once('/').expect("the server's URL names a database");
    format!("{base}/{database}")
}

/// The name of a database with the tables of the present schema. The first test that asks a server for it makes it; it is
/// renamed when it is complete, so a test that is killed on the way leaves none that others would copy.
fn template(server: &str) -> String {
    let template = format!("sb_template_{}", postgres::schema_digest());
    let session = Session::open(server).expect("the server answers");
    session
        .run(async {
            let client = &session.client;
            // Until this session ends.
            client.execute("SELECT pg_advisory_lock(hashtext('sb_template'))", &[]).await?;
            if client.query_opt("SELECT 1 FROM pg_database WHERE datname = $1", &[&template]).await?.is_some() {
                return Ok(());
            }
            let draft = format!("{template}_{}", Uuid::new_v4().simple());
            client.batch_execute(&format!("CREATE DATABASE {draft}")).await?;
            let url = url_of(server, &draft).parse().expect("it is a URL");
            postgres::migrate(&url).await.expect("the tables can be made");
            client.batch_execute(&format!("ALTER DATABASE {draft} RENAME TO {template}")).await
        })
        .expect("the template can be made");
    template
}

/// Runs a statement on the server itself.
fn administer(server: &str, statement: &str) {
    let done = Session::open(server).and_then(|session| session.run(session.client.batch_execute(statement)));
    if let Err(error) = done {
        let error = error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string);
        // A second panic on the way out would hide the first.
        assert!(thread::panicking(), "{statement} on {server}: {error}");
    }
}

/// A connection with a runtime of its own: callers may or may not be inside of one.
struct Session {
    client: Client,
    runtime: Option<Runtime>,
}

impl Session {
    fn open(url: &str) -> Result<Self, tokio_postgres::Error> {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime can be made");
        let client = block_on(&runtime, async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(connection);
            Ok(client)
        })?;
        Ok(Self { client, runtime: Some(runtime) })
    }

    fn run<T: Send>(&self, work: impl Future<Output = T> + Send) -> T {
        block_on(self.runtime.as_ref().expect("it is taken when this is dropped"), work)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Inside of another runtime nobody may wait for its end.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Waits on a thread that belongs to no runtime.
fn block_on<T: Send>(runtime: &Runtime, work: impl Future<Output = T> + Send) -> T {
    let done = thread::scope(|scope| scope.spawn(|| runtime.block_on(work)).join());
    done.expect("the work does not panic")
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
