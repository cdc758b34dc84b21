//! Connections: how one is opened and set up, and a bounded pool of them for reading.
//!
//! A pool opens connections when they are needed and keeps them. Who finds none free waits, but not for long; who
//! finds the server gone tries again with growing pauses for as long as it would have waited, so that a restart of the
//! server is a slow answer and not an error. A read that was under way when its connection broke is tried once more on a
//! fresh one: it changes nothing, so it may run twice. What writes through
//! a pool must be such that twice is as good as once.

use std::{
    collections::HashMap,
    ops::{Deref, DerefMut},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_postgres::{Client, Config, Row, Socket, Statement, types::ToSql};

use super::{
    tls::{self, MakeTls},
    url::Url,
};
use crate::{Error, Result, error::is_lost};

/// The values of a statement.
pub(super) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The half of a connection that must be driven for the other half, a `Client`, to get answers.
pub(super) type Link = tokio_postgres::Connection<Socket, tls::Stream<Socket>>;

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
    tls: MakeTls,
    statement: Duration,
}

/// A bounded set of connections. Cheap to clone.
#[derive(Clone)]
pub(super) struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    connector: Connector,
    role: Role,
    limits: Limits,
    room: Arc<Semaphore>,
    idle: Mutex<Vec<Session>>,
    /// How many there are, idle or not.
    open: Arc<AtomicUsize>,
    /// Whether the last attempt to connect went well.
    connected: AtomicBool,
}

/// A connection and the statements that were prepared on it.
pub(super) struct Session {
    pub(super) client: Client,
    statements: HashMap<String, Statement>,
    _open: Open,
}

/// Counts a connection for as long as it is there.
struct Open(Arc<AtomicUsize>);

/// A connection that is taken out of a pool, and goes back when this is dropped, unless it broke.
pub(super) struct Checkout {
    session: Option<Session>,
    /// The connection broke under a statement, as opposed to having been given up for its silence.
    broke: bool,
    pool: Arc<Inner>,
    _room: OwnedSemaphorePermit,
}

/// The longest that a client waits for a connection to be set up, whatever the URL says about a single host.
const OPEN: Duration = Duration::from_secs(15);

/// The server ends a statement at its bound; a server that does not answer at all is given up this much later.
const GRACE: Duration = Duration::from_secs(5);

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Connector {
    pub(super) fn new(url: &Url, limits: &Limits) -> Result<Self> {
        Ok(Self { config: url.config.clone(), tls: MakeTls::new(&url.tls)?, statement: limits.statement })
    }

    /// A connection that drives itself, set up for its role. One attempt.
    pub(super) async fn open(&self, role: Role) -> Result<Client> {
        let opened = timeout(OPEN, async {
            let (client, link) = self.config.connect(self.tls.clone()).await?;
            tokio::spawn(async move {
                // It ends with an error that whoever uses the client learns too.
                if let Err(error) = link.await {
                    tracing::debug!(%error, "a connection to PostgreSQL has ended");
                }
            });
            client.batch_execute(&self.set_up(role)).await?;
            Ok::<_, tokio_postgres::Error>(client)
        });
        opened.await.map_err(|_| silent())?.map_err(Error::from)
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

impl Pool {
    /// Opens nothing yet.
    pub(super) fn new(connector: Connector, role: Role, limits: Limits) -> Self {
        let connections = limits.connections.max(1);
        let limits = Limits { connections, ..limits };
        let room = Arc::new(Semaphore::new(connections));
        let idle = Mutex::new(Vec::with_capacity(connections));
        let (open, connected) = (Arc::default(), AtomicBool::new(true));
        Self { inner: Arc::new(Inner { connector, role, limits, room, idle, open, connected }) }
    }

    /// Gives out no more connections, and closes those that nobody uses.
    pub(super) fn close(&self) {
        self.inner.room.close();
        self.inner.idle().clear();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.inner.room.is_closed()
    }

    /// Whether the server was there when a connection was last wanted.
    #[cfg(test)]
    pub(super) fn is_connected(&self) -> bool {
        self.inner.connected.load(Relaxed)
    }

    /// Reads by one statement, on one snapshot.
    pub(super) async fn query(&self, sql: &str, values: Values<'_>) -> Result<Vec<Row>> {
        let mut session = self.checkout().await?;
        match session.query(sql, values).await {
            Err(error) if session.broke => {
                drop(session);
                tracing::debug!(%error, "a read is tried again on a fresh connection");
                self.checkout_fresh().await?.query(sql, values).await
            }
            outcome => outcome,
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

    /// A connection for as long as the caller keeps it.
    pub(super) async fn checkout(&self) -> Result<Checkout> {
        let deadline = Instant::now() + self.inner.limits.wait;
        let room = self.room(deadline).await?;
        let session = match self.inner.take_idle() {
            Some(session) => session,
            None => self.inner.connect(deadline).await?,
        };
        Ok(Checkout { session: Some(session), broke: false, pool: Arc::clone(&self.inner), _room: room })
    }

    /// A new connection, for whoever has just seen one break: those that lie idle have most likely broken with it, even if
    /// the news has not arrived.
    async fn checkout_fresh(&self) -> Result<Checkout> {
        let deadline = Instant::now() + self.inner.limits.wait;
        let room = self.room(deadline).await?;
        self.inner.idle().clear();
        let session = self.inner.connect(deadline).await?;
        Ok(Checkout { session: Some(session), broke: false, pool: Arc::clone(&self.inner), _room: room })
    }

    async fn room(&self, deadline: Instant) -> Result<OwnedSemaphorePermit> {
        match timeout_at(deadline, Arc::clone(&self.inner.room).acquire_owned()).await {
            Ok(Ok(room)) => Ok(room),
            Ok(Err(_)) => Err(Error::Unavailable("the journal is closed".into())),
            Err(_) => {
                let busy = self.inner.limits.connections;
                Err(Error::Unavailable(format!("all {busy} connections to the database are busy")))
            }
        }
    }
}

impl Inner {
    fn idle(&self) -> MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_idle(&self) -> Option<Session> {
        let mut idle = self.idle();
        // The newest first: what is left over at the bottom has died unnoticed or is not needed.
        while let Some(session) = idle.pop() {
            if !session.client.is_closed() {
                return Some(session);
            }
        }
        None
    }

    /// Tries until the deadline, as long as trying again may help.
    async fn connect(&self, deadline: Instant) -> Result<Session> {
        let mut pause = FIRST_PAUSE;
        loop {
            let attempt = timeout_at(deadline, self.connector.open(self.role)).await.unwrap_or_else(|_| Err(silent()));
            match attempt {
                Ok(client) => {
                    if !self.connected.swap(true, Relaxed) {
                        tracing::info!("PostgreSQL is back");
                    }
                    let open = Open::count(&self.open);
                    return Ok(Session { client, statements: HashMap::new(), _open: open });
                }
                Err(error) => {
                    if self.connected.swap(false, Relaxed) {
                        tracing::warn!(%error, "PostgreSQL cannot be reached");
                    }
                    if !matches!(error, Error::Unavailable(_)) || Instant::now() + pause >= deadline {
                        return Err(error);
                    }
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

impl Open {
    fn count(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Session {
    /// The statement, prepared once per connection. Only texts of this crate, of which there are few, come here.
    pub(super) async fn statement(&mut self, sql: &str) -> Result<Statement, tokio_postgres::Error> {
        if let Some(known) = self.statements.get(sql) {
            return Ok(known.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }
}

impl Checkout {
    /// Runs one statement within the pool's bound of time.
    pub(super) async fn query(&mut self, sql: &str, values: Values<'_>) -> Result<Vec<Row>> {
        let bound = self.bound();
        let run = async {
            let statement = self.statement(sql).await?;
            self.client.query(&statement, values).await
        };
        match timeout(bound, run).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => {
                if is_lost(&error) {
                    self.broke = true;
                    self.give_up();
                }
                Err(error.into())
            }
            Err(_) => {
                self.give_up();
                Err(silent())
            }
        }
    }

    /// How long a client waits for a server that ought to have ended the statement by itself.
    pub(super) fn bound(&self) -> Duration {
        self.pool.limits.statement + GRACE
    }

    /// The connection is of no use any more; it is closed instead of going back.
    pub(super) fn give_up(&mut self) {
        self.session = None;
    }
}

impl Deref for Checkout {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session.as_ref().expect("nobody uses a connection that was given up")
    }
}

impl DerefMut for Checkout {
    fn deref_mut(&mut self) -> &mut Session {
        self.session.as_mut().expect("nobody uses a connection that was given up")
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        let Some(session) = self.session.take().filter(|session| !session.client.is_closed()) else { return };
        let mut idle = self.pool.idle();
        // Who saw a connection break may have opened one more than there should be.
        if self.pool.open.load(Relaxed) <= self.pool.limits.connections && !self.pool.room.is_closed() {
            idle.push(session);
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
