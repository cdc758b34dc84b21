//! Lists of a tenant that has a million tasks: how long each filter takes, and how long the list of another tenant takes while sixteen
//! callers ask for what has changed.
//!
//! `cargo bench -p store --bench lists -- sqlite:DIR`, or with the URL of an empty PostgreSQL database, and the number of tasks if it is
//! to be another one; a directory beside the build by default. The rows are written in bulk, and not by way of the journal.

use std::{
    error::Error,
    sync::Arc,
    time::{Duration, Instant},
};

use a2a::{TaskState, Timestamp};
use store::{Filter, Location, OpenOptions, PageKey, Store, TaskId, TenantId, View};

const TASKS: i64 = 1_000_000;
/// The tenant beside it has so many.
const FEW: i64 = 1000;
/// A task a second, up to now.
const EACH_MS: i64 = 1000;
const POLLERS: usize = 16;
const ROUNDS: usize = 31;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(measure())
}

#[expect(clippy::print_stdout, reason = "the lines are what this is for")]
async fn measure() -> Outcome<()> {
    let mut given = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let url = given.next().unwrap_or_else(|| format!("sqlite:{}", place.path().display()));
    let tasks = given.next().map_or(Ok(TASKS), |text| text.parse())?;
    let location = Location::parse(&url)?;
    let store = store::open(&location, OpenOptions::default()).await?;
    let many = store.create_tenant(&format!("bench-{}", TaskId::mint())).await?.id;
    let few = store.create_tenant(&format!("bench-{}", TaskId::mint())).await?.id;
    let now = store::clock::now().as_millis();
    for (tenant, tasks) in [(many, tasks), (few, FEW)] {
        let first = now - tasks * EACH_MS;
        match location.directory() {
            Some(dir) => fill_sqlite(&dir.join(store::sqlite::FILE), tenant, tasks, first)?,
            None => fill_postgres(&url, tenant, tasks, first).await?,
        }
    }
    let time = |ago: i64| Timestamp::from_millis(now - ago * EACH_MS);
    let plain = Filter {
        agent: None,
        among: Vec::new(),
        context: None,
        state: None,
        since: None,
        after: None,
        limit: 50,
        view: View { history: Some(0), artifacts: false, most: 8 << 20 },
    };
    let with = |change: &dyn Fn(&mut Filter)| {
        let mut filter = plain.clone();
        change(&mut filter);
        filter
    };
    let echo: store::AgentId = "echo".parse().map_err(|_| "a good name")?;
    let rare: store::AgentId = "rare".parse().map_err(|_| "a good name")?;
    let after = PageKey { status_at: time(tasks / 2), task: TaskId::mint() };
    let filters = [
        ("none", plain.clone()),
        ("an agent that has most", with(&|f| f.agent = Some(echo.clone()))),
        ("an agent that has few", with(&|f| f.agent = Some(rare.clone()))),
        ("a state that most have", with(&|f| f.state = Some(TaskState::Completed))),
        ("a state that few have", with(&|f| f.state = Some(TaskState::Failed))),
        ("the context of most", with(&|f| f.context = Some("most".into()))),
        ("a context of ten", with(&|f| f.context = Some("c7".into()))),
        (
            "the context of most, a state that few have",
            with(&|f| {
                f.context = Some("most".into());
                f.state = Some(TaskState::Failed);
            }),
        ),
        ("since ten tasks ago", with(&|f| f.since = Some(time(10)))),
        ("since a thousand tasks ago", with(&|f| f.since = Some(time(1000)))),
        ("since half of them ago", with(&|f| f.since = Some(time(tasks / 2)))),
        ("since the first", with(&|f| f.since = Some(time(tasks)))),
        (
            "since the first, an agent that has few",
            with(&|f| {
                f.since = Some(time(tasks));
                f.agent = Some(rare.clone());
            }),
        ),
        (
            "the context of most, since the first",
            with(&|f| {
                f.context = Some("most".into());
                f.since = Some(time(tasks));
            }),
        ),
        ("a page in the middle", with(&|f| f.after = Some(after))),
        (
            "a page in the middle, since the first",
            with(&|f| {
                f.since = Some(time(tasks));
                f.after = Some(after);
            }),
        ),
    ];
    let mut times = vec![Vec::new(); filters.len()];
    for _ in 0..ROUNDS {
        for ((_, filter), times) in filters.iter().zip(&mut times) {
            times.push(list(&store, many, filter).await?);
        }
    }
    let base = median(&mut times[0]);
    for ((name, _), times) in filters.iter().zip(&mut times) {
        let median = median(times);
        println!("{name:<45} {median:>10.2?} {:>8.2} times", median.as_secs_f64() / base.as_secs_f64());
    }
    println!("another tenant, alone: {}", others(&store, few, &plain).await?);
    for (name, ago) in [("ten tasks ago", 10), ("the first", tasks)] {
        let since = with(&|f| f.since = Some(time(ago)));
        let mut pollers = tokio::task::JoinSet::new();
        for _ in 0..POLLERS {
            let (store, since) = (Arc::clone(&store), since.clone());
            pollers.spawn(async move { while list(&store, many, &since).await.is_ok() {} });
        }
        println!("another tenant, beside {POLLERS} that poll since {name}: {}", others(&store, few, &plain).await?);
        pollers.shutdown().await;
    }
    Ok(())
}

async fn list(store: &Arc<dyn Store>, tenant: TenantId, filter: &Filter) -> Outcome<Duration> {
    let start = Instant::now();
    store.list(tenant, filter.clone()).await?;
    Ok(start.elapsed())
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

async fn others(store: &Arc<dyn Store>, tenant: TenantId, filter: &Filter) -> Outcome<String> {
    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        times.push(list(store, tenant, filter).await?);
    }
    let median = median(&mut times);
    Ok(format!("{median:.2?} a list (median), {:.2?} at worst, of {}", times[times.len() - 1], times.len()))
}

/// The agent, the context and the state of the `n`th task: nine of ten are of one agent and of one context.
const AGENT: &str = "CASE WHEN n % 50000 = 7 THEN 'rare' WHEN n % 10 = 0 THEN 'slow' ELSE 'echo' END";
const STATE: &str = "CASE WHEN n % 20000 = 3 THEN 'failed' WHEN n % 1000 = 1 THEN 'working' ELSE 'completed' END";

fn fill_sqlite(file: &std::path::Path, tenant: TenantId, tasks: i64, first: i64) -> Outcome<()> {
    let conn = rusqlite::Connection::open(file)?;
    conn.execute_batch(&format!(
        "BEGIN IMMEDIATE;
         WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {tasks}),
           base (pk) AS (SELECT coalesce(max(pk), 0) FROM a2a_tasks)
         INSERT INTO a2a_tasks (task_id, pk, tenant_id, agent_id, context_id, state, created_at, updated_at, status_at, seq, turn)
         SELECT printf('%08x-0000-7000-8000-%012x', {tenant}, n), pk + n, {tenant}, {AGENT},
           CASE WHEN n % 10 = 1 THEN 'c' || (n / 100) ELSE 'most' END, {STATE},
           {first} + n * {EACH_MS}, {first} + n * {EACH_MS}, {first} + n * {EACH_MS}, 3, 1
         FROM numbers CROSS JOIN base;
         INSERT INTO task_counts SELECT tenant_id, agent_id, state, count(*) FROM a2a_tasks
           WHERE tenant_id = {tenant} GROUP BY agent_id, state;
         COMMIT;",
        tenant = tenant.0
    ))?;
    Ok(())
}

async fn fill_postgres(url: &str, tenant: TenantId, tasks: i64, first: i64) -> Outcome<()> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    client
        .batch_execute(&format!(
            "INSERT INTO a2a_tasks (task_id, tenant_id, agent_id, context_id, state, created_at, updated_at, status_at, seq, turn)
             SELECT gen_random_uuid(), {tenant}, {AGENT}, CASE WHEN n % 10 = 1 THEN 'c' || (n / 100) ELSE 'most' END,
               {STATE}, {first} + n * {EACH_MS}, {first} + n * {EACH_MS}, {first} + n * {EACH_MS}, 3, 1
             FROM generate_series(1, {tasks}) n;
             INSERT INTO task_counts (tenant_id, shard, agent_id, state, n)
               SELECT tenant_id, 1, agent_id, state, count(*) FROM a2a_tasks WHERE tenant_id = {tenant}
               GROUP BY tenant_id, agent_id, state;
             ANALYZE;",
            tenant = tenant.0
        ))
        .await?;
    Ok(())
}
