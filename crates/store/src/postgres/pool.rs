//! Connections: how one is opened and set up, and a bounded pool of them for reading.
//!
//! A pool opens connections when they are needed and keeps them. Who finds none free waits, but not for long; who
//! finds the server gone tries again with growing pauses for as long as it would have waited, so that a restart of the
//! server is a slow answer and not an error. A read that was under way when its connection broke is tried once more on a
//! fresh one: it changes nothing, so it may run twice. What writes through
//! a pool must be such that twice is as good as once.

use std::{
    ops::{Deref, DerefMut},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use deadpool_postgres::{Connect, Hook, HookError, Manager, ManagerConfig, Object, PoolError, Runtime, Timeouts};
use futures_util::future::BoxFuture;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_postgres::{Client, Config, Row, Socket, tls::MakeTlsConnect, types::ToSql};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{tls, url::Url};
use crate::{Error, Result, TenantId, error::is_lost, share::Shares};

/// The values of a statement.
pub(super) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The half of a connection that must be driven for the other half, a `Client`, to get answers.
pub(super) type Link = tokio_postgres::Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// What can be tuned.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    /// Connections at most.
    pub(super) connections: usize,
    /// How long a caller waits for one, a lost server included.
    pub(super) wait: Duration,
    /// How long a statement of a pool may run.
    pub(super) statement: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 8, wait: Duration::from_secs(5), statement: Duration::from_secs(30) }
    }
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Reading. The server refuses a write on it.
    Read,
    /// Writing: every commit is on disk before it is answered, whatever the server's default.
    Write,
    /// Migrations, locks that are held for long and listening: the same without a bound on time.
    Session,
}

/// Opens connections.
#[derive(Clone)]
pub(super) struct Connector {
    config: Box<Config>,
    tls: MakeRustlsConnect,
    statement: Duration,
}

/// A bounded set of connections. Cheap to clone.
#[derive(Clone)]
pub(super) struct Pool {
    pool: deadpool_postgres::Pool,
    limits: Limits,
    /// Whether the last attempt to connect went well.
    connected: Arc<AtomicBool>,
    /// When a connection was last seen to be lost. Those that are older have most likely been lost with it, even if the
    /// news has not arrived, and are not used again.
    lost: Arc<Mutex<Option<std::time::Instant>>>,
    shares: Arc<Shares>,
    /// The tenant whose share of the connections is used; any number of them when there is none.
    tenant: Option<TenantId>,
}

/// Opens the connections of a pool.
struct Opener {
    connector: Connector,
    role: Role,
}

/// The longest that a client waits for a connection to be set up, whatever the URL says about a single host.
const OPEN: Duration = Duration::from_secs(15);

/// The server ends a statement at its bound; a server that does not answer at all is given up this much later.
const GRACE: Duration = Duration::from_secs(5);

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// So much later than its time for a place is the end of a caller's time for a connection, so that it learns which of the
/// two there was none of.
const AFTER: Duration = Duration::from_millis(20);

/// A connection that somebody has. One that is not given back is closed: whoever waited for its answer has gone, and the next
/// who gets it would have to wait for that answer instead.
pub(super) struct Loan(Option<deadpool_postgres::Client>);

impl Connector {
    pub(super) fn new(url: &Url, limits: &Limits) -> Result<Self> {
        Ok(Self { config: url.config.clone(), tls: tls::connector(&url.tls)?, statement: limits.statement })
    }

    /// A connection that drives itself, set up for its role. One attempt.
    pub(super) async fn open(&self, role: Role) -> Result<Client> {
        let (client, _) = timeout(OPEN, self.open_driven(role)).await.map_err(|_| silent())??;
        Ok(client)
    }

    async fn open_driven(&self, role: Role) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
        let (client, link) = self.config.connect(self.tls.clone()).await?;
        let driver = tokio::spawn(async move {
            // It ends with an error that whoever uses the client learns too.
            if let Err(error) = link.await {
                tracing::debug!(%error, "a connection to PostgreSQL has ended");
            }
        });
        client.batch_execute(&self.set_up(role)).await?;
        Ok((client, driver))
    }

    /// A connection that its caller drives, for whoever wants what the server sends unasked. Nothing is set up.
    pub(super) async fn open_link(&self) -> Result<(Client, Link)> {
        let opened = timeout(OPEN, self.config.connect(self.tls.clone()));
        opened.await.map_err(|_| silent())?.map_err(Error::from)
    }

    fn set_up(&self, role: Role) -> String {
        let statement = self.statement.as_millis();
        // Compiling a plan costs more than any of ours.
        let common = "SET jit = off; SET synchronous_commit = on; SET lock_timeout = 0";
        match role {
            Role::Read => {
                format!("{common}; SET statement_timeout = {statement}; SET default_transaction_read_only = on")
            }
            Role::Write => format!(
                "{common}; SET statement_timeout = {statement}; \
                 SET idle_in_transaction_session_timeout = {statement}"
            ),
            Role::Session => format!("{common}; SET statement_timeout = 0"),
        }
    }
}

impl Connect for Opener {
    fn connect(&self, _: &Config) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), tokio_postgres::Error>> {
        Box::pin(self.connector.open_driven(self.role))
    }
}

impl Pool {
    /// Opens nothing yet.
    pub(super) fn new(connector: Connector, role: Role, limits: Limits) -> Self {
        let lost = Arc::new(Mutex::new(None));
        let config = (*connector.config).clone();
        let manager = Manager::from_connect(config, Opener { connector, role }, ManagerConfig::default());
        let since = Arc::clone(&lost);
        let pool = deadpool_postgres::Pool::builder(manager)
            .max_size(limits.connections.max(1))
            .runtime(Runtime::Tokio1)
            // The newest first: what is left over has died unnoticed or is not needed.
            .queue_mode(deadpool_postgres::QueueMode::Lifo)
            .pre_recycle(Hook::sync_fn(move |client, metrics| {
                let lost = since.lock().unwrap_or_else(PoisonError::into_inner);
                if client.is_closed() || lost.is_some_and(|lost| metrics.created <= lost) {
                    return Err(HookError::message("lost"));
                }
                Ok(())
            }))
            .build()
            .expect("the pool is told its runtime");
        let shares = Arc::new(Shares::new(limits.connections));
        Self { pool, limits, connected: Arc::new(AtomicBool::new(true)), lost, shares, tenant: None }
    }

    /// The same pool for reads of a tenant.
    pub(super) fn of(&self, tenant: TenantId) -> Self {
        Self { tenant: Some(tenant), ..self.clone() }
    }

    /// Gives out no more connections, and closes those that nobody uses.
    pub(super) fn close(&self) {
        self.pool.close();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.pool.is_closed()
    }

    /// Whether the server was there when a connection was last wanted.
    #[cfg(test)]
    pub(super) fn is_connected(&self) -> bool {
        self.connected.load(Relaxed)
    }

    /// How long a client waits for a server that ought to have ended the statement by itself.
    pub(super) fn bound(&self) -> Duration {
        self.limits.statement + GRACE
    }

    /// Reads by one statement, on one snapshot.
    pub(super) async fn query(&self, sql: &str, values: Values<'_>) -> Result<Vec<Row>> {
        match self.run(sql, values).await? {
            Err(error) if is_lost(&error) => {
                tracing::debug!(%error, "a read is tried again on a fresh connection");
                Ok(self.run(sql, values).await??)
            }
            outcome => Ok(outcome?),
        }
    }

    /// As [`Pool::query`], when there is at most one row.
    pub(super) async fn query_opt(&self, sql: &str, values: Values<'_>) -> Result<Option<Row>> {
        Ok(self.query(sql, values).await?.into_iter().next())
    }

    /// As [`Pool::query`], when there is exactly one row.
    pub(super) async fn query_one(&self, sql: &str, values: Values<'_>) -> Result<Row> {
        self.query_opt(sql, values).await?.ok_or_else(|| Error::Damaged("a row was expected and none came".into()))
    }

    /// Runs one statement within the bound of time. It is prepared once per connection: only texts of this crate, of which
    /// there are few, come here.
    async fn run(&self, sql: &str, values: Values<'_>) -> Result<Result<Vec<Row>, tokio_postgres::Error>> {
        let _share = match self.tenant {
            Some(tenant) => {
                let taken = timeout(self.limits.wait, self.shares.take(tenant)).await;
                let busy = "the share of the connections to the database that one tenant may use is busy";
                Some(taken.map_err(|_| Error::Unavailable(busy.into()))??)
            }
            None => None,
        };
        let loan = self.checkout().await?;
        let run = async {
            let statement = loan.prepare_cached(sql).await?;
            loan.query(&statement, values).await
        };
        let outcome = timeout(self.bound(), run).await.map_err(|_| silent())?;
        loan.give_back();
        if outcome.as_ref().is_err_and(is_lost) {
            *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::time::Instant::now());
        }
        Ok(outcome)
    }

    /// A connection for as long as the caller keeps it. Tries until its time is over, as long as trying again may help.
    pub(super) async fn checkout(&self) -> Result<Loan> {
        let deadline = Instant::now() + self.limits.wait;
        let mut pause = FIRST_PAUSE;
        loop {
            let wait = Some(deadline.saturating_duration_since(Instant::now()));
            let timeouts = Timeouts { wait, create: None, recycle: None };
            let error = match timeout_at(deadline + AFTER, self.pool.timeout_get(&timeouts)).await {
                Ok(Ok(client)) => {
                    if Object::metrics(&client).recycle_count == 0 && !self.connected.swap(true, Relaxed) {
                        tracing::info!("PostgreSQL is back");
                    }
                    return Ok(Loan(Some(client)));
                }
                Ok(Err(PoolError::Closed)) => return Err(Error::Unavailable("the journal is closed".into())),
                Ok(Err(PoolError::Timeout(_))) => {
                    let busy = self.pool.status().max_size;
                    return Err(Error::Unavailable(format!("all {busy} connections to the database are busy")));
                }
                Ok(Err(PoolError::Backend(error))) => Error::from(error),
                Ok(Err(error)) => Error::Unavailable(error.to_string()),
                Err(_) => silent(),
            };
            if self.connected.swap(false, Relaxed) {
                tracing::warn!(%error, "PostgreSQL cannot be reached");
            }
            if !matches!(error, Error::Unavailable(_)) || Instant::now() + pause >= deadline {
                return Err(error);
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

impl Loan {
    /// Everything that was asked has been answered.
    pub(super) fn give_back(mut self) {
        drop(self.0.take());
    }
}

impl Deref for Loan {
    type Target = deadpool_postgres::Client;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref().expect("it is there until it is given back")
    }
}

impl DerefMut for Loan {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.0.as_mut().expect("it is there until it is given back")
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(client) = self.0.take() {
            drop(Object::take(client));
        }
    }
}

pub(super) fn silent() -> Error {
    Error::Unavailable("the database does not answer".into())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::net::{TcpListener, TcpStream};
    use tokio_postgres::config::Host;

    use super::{super::testing, *};

    async fn one(pool: &Pool) -> Result<i32> {
        Ok(pool.query("SELECT 1", &[]).await?[0].get(0))
    }

    fn pool(url: &Url, limits: Limits) -> Pool {
        Pool::new(Connector::new(url, &limits).unwrap(), Role::Read, limits)
    }

    /// The same database by way of a port that nobody listens on yet.
    fn detour(url: &Url) -> (Url, SocketAddr, SocketAddr) {
        let (Host::Tcp(host), port) = (&url.config.get_hosts()[0], url.config.get_ports()[0]) else {
            panic!("the tests' server listens on TCP");
        };
        let server: SocketAddr = format!("{host}:{port}").parse().unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (user, name) = (url.config.get_user().unwrap(), url.database().unwrap());
        let url = format!("postgres://{user}@{free}/{name}?sslmode=disable").parse().unwrap();
        (url, free, server)
    }

    #[tokio::test]
    async fn a_read_survives_the_end_of_its_connection() {
        let database = testing::database().await;
        let pool = database.readers();
        for _ in 0..5 {
            assert_eq!(one(&pool).await.unwrap(), 1);
            database.cut().await;
        }
        assert!(pool.is_connected());
        // In the middle of a statement, once: the second attempt has a connection of its own, though others lie idle
        // that have broken too.
        let three = tokio::join!(pool.checkout(), pool.checkout(), pool.checkout());
        assert!(three.0.is_ok() && three.1.is_ok() && three.2.is_ok());
        drop(three);
        assert_eq!(one(&pool).await.unwrap(), 1);
        let slow = pool.query("SELECT 1 FROM pg_sleep(0.5)", &[]);
        let (rows, ()) = tokio::join!(slow, async {
            sleep(Duration::from_millis(200)).await;
            database.cut().await;
        });
        assert_eq!(rows.unwrap().len(), 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn nobody_waits_for_what_somebody_else_has_left() {
        let database = testing::database().await;
        let pool = pool(&database.url, Limits { connections: 4, ..Limits::default() });
        let slow = tokio::spawn({
            let pool = pool.clone();
            async move { pool.query("SELECT 1 FROM pg_sleep(60)", &[]).await }
        });
        let sleeps =
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)%' AND pid <> pg_backend_pid()";
        let client = database.client().await;
        while client.query_one(sleeps, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            sleep(Duration::from_millis(10)).await;
        }
        slow.abort();
        assert!(slow.await.unwrap_err().is_cancelled());
        let read = timeout(Duration::from_secs(30), one(&pool)).await;
        assert_eq!(read.expect("the next one has an answer of its own").unwrap(), 1);
    }

    #[tokio::test]
    async fn statements_are_prepared_once_per_connection() {
        let database = testing::database().await;
        let pool = pool(&database.url, Limits { connections: 1, ..Limits::default() });
        for _ in 0..3 {
            one(&pool).await.unwrap();
        }
        let rows = pool.query("SELECT count(*) FROM pg_prepared_statements WHERE statement = 'SELECT 1'", &[]).await;
        assert_eq!(rows.unwrap()[0].get::<_, i64>(0), 1);
    }

    #[tokio::test]
    async fn who_finds_all_busy_waits_but_not_for_long() {
        let database = testing::database().await;
        let pool =
            pool(&database.url, Limits { connections: 2, wait: Duration::from_millis(300), ..Limits::default() });
        let (first, second) = (pool.checkout().await.unwrap(), pool.checkout().await.unwrap());
        let outcome = one(&pool).await;
        assert!(matches!(&outcome, Err(Error::Unavailable(why)) if why.contains("busy")), "{outcome:?}");
        let (waited, ()) = tokio::join!(one(&pool), async {
            sleep(Duration::from_millis(50)).await;
            drop(first);
        });
        assert_eq!(waited.unwrap(), 1);
        drop(second);
        let mut all = Vec::new();
        for _ in 0..20 {
            let pool = pool.clone();
            all.push(tokio::spawn(async move { one(&pool).await }));
        }
        for read in all {
            read.await.unwrap().unwrap();
        }
        let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                    AND application_name = 'switchboard' AND backend_type = 'client backend'";
        assert_eq!(pool.query(open, &[]).await.unwrap()[0].get::<_, i64>(0), 2);
    }

    #[tokio::test]
    async fn a_lost_server_is_unavailable_until_it_is_back() {
        let database = testing::database().await;
        let (url, free, server) = detour(&database.url);
        let hasty = pool(&url, Limits { wait: Duration::from_millis(200), ..Limits::default() });
        let outcome = one(&hasty).await;
        assert!(matches!(outcome, Err(Error::Unavailable(_))), "{outcome:?}");
        assert!(!hasty.is_connected());
        let patient = pool(&url, Limits::default());
        let back = async {
            sleep(Duration::from_millis(300)).await;
            let listener = TcpListener::bind(free).await.unwrap();
            tokio::spawn(async move {
                while let Ok((mut inbound, _)) = listener.accept().await {
                    let mut outbound = TcpStream::connect(server).await.unwrap();
                    tokio::spawn(async move { tokio::io::copy_bidirectional(&mut inbound, &mut outbound).await });
                }
            });
        };
        let (waited, ()) = tokio::join!(one(&patient), back);
        assert_eq!(waited.unwrap(), 1);
        assert_eq!(one(&hasty).await.unwrap(), 1);
        assert!(hasty.is_connected());
    }

    #[tokio::test]
    async fn readers_cannot_write_and_do_not_run_for_ever() {
        let database = testing::database().await;
        let pool = pool(&database.url, Limits { statement: Duration::from_millis(200), ..Limits::default() });
        let outcome = pool.query("INSERT INTO settings VALUES ('a', '')", &[]).await;
        assert!(matches!(&outcome, Err(Error::Unavailable(why)) if why.contains("25006")), "{outcome:?}");
        let outcome = pool.query("SELECT 1 FROM pg_sleep(5)", &[]).await;
        assert!(matches!(&outcome, Err(Error::Unavailable(why)) if why.contains("57014")), "{outcome:?}");
        let outcome = pool.query("SELECT nothing", &[]).await;
        let Err(error) = outcome else { panic!("{outcome:?}") };
        assert_eq!(error.to_string(), "postgresql: column \"nothing\" does not exist (SQLSTATE 42703)");
        assert!(!error.is_refusal());
        assert_eq!(one(&pool).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_server_that_says_nothing_is_given_up() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: Url = format!("postgres://me@{}/d", silent.local_addr().unwrap()).parse().unwrap();
        let started = Instant::now();
        let outcome = one(&pool(&url, Limits { wait: Duration::from_millis(300), ..Limits::default() })).await;
        assert!(matches!(outcome, Err(Error::Unavailable(_))), "{outcome:?}");
        assert!(started.elapsed() < Duration::from_secs(3));
    }

    #[tokio::test]
    async fn what_will_not_get_better_is_said_at_once() {
        let database = testing::database().await;
        let started = Instant::now();
        let outcome = one(&pool(&database.url.with_database("sb_nowhere"), Limits::default())).await;
        let Err(Error::Postgres(error)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("3D000"));
        assert!(started.elapsed() < Duration::from_secs(3));
    }
}
