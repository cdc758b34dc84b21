//! A database of its own for each test, on the server that `SB_TEST_POSTGRES` names.

use super::{
    pool::{Connector, Limits, Pool, Role},
    url::Url,
};

pub(super) struct Database {
    pub(super) url: Url,
    /// Held for its end: then the database is dropped.
    _database: testkit::postgres::Database,
}

/// With the tables.
pub(super) async fn database() -> Database {
    of(testkit::postgres::Database::create())
}

pub(super) fn empty_database() -> Database {
    of(testkit::postgres::Database::empty())
}

fn of(database: testkit::postgres::Database) -> Database {
    Database { url: database.url().parse().unwrap(), _database: database }
}

impl Database {
    pub(super) fn connector(&self) -> Connector {
        Connector::new(&self.url, &Limits::default()).unwrap()
    }

    pub(super) async fn client(&self) -> tokio_postgres::Client {
        self.connector().open(Role::Session).await.unwrap()
    }

    pub(super) fn readers(&self) -> Pool {
        Pool::new(self.connector(), Role::Read, Limits::default())
    }

    pub(super) fn writers(&self) -> Pool {
        Pool::new(self.connector(), Role::Write, Limits { connections: 2, ..Limits::default() })
    }

    /// Ends every other connection to the database, as a crash of the server would.
    pub(super) async fn cut(&self) {
        let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";
        self.client().await.batch_execute(cut).await.unwrap();
    }
}
