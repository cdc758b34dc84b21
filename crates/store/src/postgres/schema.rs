//! The tables: how they come up to date, however many instances start at once.

use tokio_postgres::Client;

use crate::{Error, Result};

/// In order; the number of those applied is in `schema_version`. Never edit one that was released.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001_journal.sql"),
    include_str!("migrations/0002_leases.sql"),
    include_str!("migrations/0003_turns.sql"),
    include_str!("migrations/0004_queue_view.sql"),
    include_str!("migrations/0005_cards.sql"),
    include_str!("migrations/0006_push.sql"),
    include_str!("migrations/0007_queue.sql"),
    include_str!("migrations/0008_retention.sql"),
    include_str!("migrations/0009_outbound.sql"),
    include_str!("migrations/0010_minds.sql"),
    include_str!("migrations/0011_credentials.sql"),
];

/// The advisory lock under which migrations run. Any number will do; all versions of this program use this one.
const LOCK: i64 = 0x5357_4954_4348_0001;

/// The first server with 64-bit transaction ids in SQL.
const OLDEST_SERVER: i32 = 130_000;

/// Brings the schema up to date. Who comes while another is at it waits and finds it done.
pub(crate) async fn migrate(client: &mut Client) -> Result<()> {
    refuse_old_server(client).await?;
    let found = version(client).await?;
    refuse_future(found)?;
    if found == Some(known()) {
        return Ok(());
    }
    let tx = client.transaction().await?;
    tx.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
    // The version is read again under the lock: another instance may have been first.
    tx.batch_execute("CREATE TABLE IF NOT EXISTS schema_version (version integer NOT NULL)").await?;
    let row = tx.query_opt("SELECT version FROM schema_version", &[]).await?;
    let found = row.map(|row| row.try_get::<_, i32>(0)).transpose()?.map(i64::from);
    refuse_future(found)?;
    let applied = usize::try_from(found.unwrap_or(0)).unwrap_or(0);
    for migration in &MIGRATIONS[applied..] {
        tx.batch_execute(migration).await?;
    }
    if found != Some(known()) {
        let known = i32::try_from(known()).unwrap_or(i32::MAX);
        tx.execute("DELETE FROM schema_version", &[]).await?;
        tx.execute("INSERT INTO schema_version (version) VALUES ($1)", &[&known]).await?;
    }
    tx.commit().await?;
    Ok(())
}

/// The version of the schema; `None` in a database that has none yet.
pub(crate) async fn version(client: &Client) -> Result<Option<i64>> {
    let exists = client.query_one("SELECT to_regclass('schema_version') IS NOT NULL", &[]).await?;
    if !exists.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let row = client.query_opt("SELECT version FROM schema_version", &[]).await?;
    Ok(row.map(|row| row.try_get::<_, i32>(0)).transpose()?.map(i64::from))
}

pub(crate) fn known() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

fn refuse_future(found: Option<i64>) -> Result<()> {
    match found {
        Some(found) if found > known() => Err(Error::FromTheFuture { found, known: known() }),
        _ => Ok(()),
    }
}

async fn refuse_old_server(client: &Client) -> Result<()> {
    let settings = "SELECT current_setting('server_version_num')::integer, current_setting('server_version')";
    let row = client.query_one(settings, &[]).await?;
    if row.try_get::<_, i32>(0)? >= OLDEST_SERVER {
        return Ok(());
    }
    let version: String = row.try_get(1)?;
    Err(Error::Unavailable(format!("PostgreSQL 13 or newer is needed, this is {version}")))
}

#[cfg(test)]
mod tests {
    use super::{super::testing, *};

    #[tokio::test(flavor = "multi_thread")]
    async fn many_may_migrate_a_new_database_at_once() {
        let database = testing::empty_database();
        let starts: Vec<_> = (0..8)
            .map(|_| {
                let connector = database.connector();
                tokio::spawn(async move {
                    let mut client = connector.open(super::super::pool::Role::Session).await?;
                    migrate(&mut client).await
                })
            })
            .collect();
        for start in starts {
            start.await.unwrap().unwrap();
        }
        let client = database.client().await;
        assert_eq!(version(&client).await.unwrap(), Some(known()));
        let rows: i64 = client.query_one("SELECT count(*) FROM schema_version", &[]).await.unwrap().get(0);
        assert_eq!(rows, 1);
    }

    #[tokio::test]
    async fn a_newer_schema_is_left_alone() {
        let database = testing::database().await;
        let mut client = database.client().await;
        client.batch_execute("UPDATE schema_version SET version = 99").await.unwrap();
        let outcome = migrate(&mut client).await;
        assert!(matches!(outcome, Err(Error::FromTheFuture { found: 99, .. })), "{outcome:?}");
        assert_eq!(version(&client).await.unwrap(), Some(99));
    }

    #[tokio::test]
    async fn a_failed_task_shows_its_error_whatever_its_message_holds() {
        let database = testing::database().await;
        let client = database.client().await;
        let deep =
            format!(r#"{{"parts":[{{"text":"deep"}}],"metadata":{}{}}}"#, "[".repeat(50_000), "]".repeat(50_000));
        for (message, error) in [
            (r#"{"parts":[{"text":"no luck"}]}"#, "no luck"),
            (r#"{"parts":[{"text":"half \ud800"}]}"#, ""),
            (r#"{"parts":[{"text":"nul \u0000"}]}"#, ""),
            (r#"{"parts":[{"text":"not nul \\u0000"}]}"#, r"not nul \u0000"),
            (r#"{"parts":[]}"#, ""),
            (&deep, ""),
        ] {
            let row = client
                .query_one(
                    "INSERT INTO a2a_tasks (task_id, tenant_id, created_at, updated_at, status_at, seq, agent_id, state,
                       status_message)
                     VALUES (gen_random_uuid(), 1, 1, 1, 1, 1, 'echo', 'failed', $1)
                     RETURNING error_message, final_message_json",
                    &[&message],
                )
                .await
                .unwrap();
            assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), (error, message));
        }
    }
}
