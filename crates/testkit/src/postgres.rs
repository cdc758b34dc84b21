//! PostgreSQL databases for tests, on the server that `SB_TEST_POSTGRES` names.

use std::thread;

use store::postgres;
use tokio::runtime::{self, Runtime};
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

/// A database of its own, dropped with this value.
pub struct Database {
    name: String,
    url: String,
}

impl Database {
    /// Creates a database that has the tables of the present schema and no rows, as a copy of the server's template.
    pub fn create() -> Self {
        let server = server();
        let template = template(&server);
        Self::on(&server, &format!(" TEMPLATE {template}"))
    }

    /// Creates a database without tables.
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
pub(crate) struct Session {
    pub(crate) client: Client,
    runtime: Option<Runtime>,
}

impl Session {
    pub(crate) fn open(url: &str) -> Result<Self, tokio_postgres::Error> {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime can be made");
        let client = block_on(&runtime, async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(connection);
            Ok(client)
        })?;
        Ok(Self { client, runtime: Some(runtime) })
    }

    pub(crate) fn run<T: Send>(&self, work: impl Future<Output = T> + Send) -> T {
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
