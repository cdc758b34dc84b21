//! The journal's own rate: tasks that are accepted with a lease and completed with an artifact, as an instant agent's are,
//! without a server around it. Prints one line for each number of tasks under way.
//!
//! `cargo bench -p store --bench journal -- sqlite:DIR`, or with a PostgreSQL URL; a directory beside the build by default.

use std::{
    error::Error,
    io::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use a2a::{Artifact, Message, Part, Role, StreamResponse, Task, TaskState, TaskStatus, Timestamp};
use store::{Accept, Append, Draft, Location, OpenOptions, Quota, Store, Target, TaskId, TenantId, TurnEnd, clock};

const CONTEXT: &str = "bench";
const TEXT_BYTES: usize = 256;
const DURATION: Duration = Duration::from_secs(5);

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(measure())
}

#[expect(clippy::print_stdout, reason = "the lines are what this is for")]
async fn measure() -> Outcome<()> {
    let given = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let location = match given {
        Some(text) => Location::parse(&text)?,
        None => Location::Sqlite(place.path().to_owned()),
    };
    println!("one sync of 4 KiB: {:?} (median of 500)", sync(place.path())?);
    let store = store::open(&location, OpenOptions::default()).await?;
    let tenant = store.create_tenant(&format!("bench-{}", TaskId::mint())).await?.id;
    for at_once in [1, 64, 256] {
        let before = store.stats();
        let start = Instant::now();
        let mut workers = tokio::task::JoinSet::new();
        for _ in 0..at_once {
            let store = Arc::clone(&store);
            workers.spawn(async move {
                let mut done = 0_u64;
                while start.elapsed() < DURATION {
                    one_task(store.as_ref(), tenant).await?;
                    done += 1;
                }
                Outcome::Ok(done)
            });
        }
        let mut done = 0;
        while let Some(worker) = workers.join_next().await {
            done += worker??;
        }
        let seconds = start.elapsed().as_secs_f64();
        let after = store.stats();
        let per_second = done as f64 / seconds;
        let commits = (after.commits - before.commits) as f64 / done as f64;
        println!("{at_once:>4} at once: {per_second:>8.0} tasks/s, {commits:.3} commits a task");
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// How long the disk takes to make one page durable.
fn sync(dir: &std::path::Path) -> Outcome<Duration> {
    let mut file = std::fs::File::create(dir.join("sync"))?;
    file.write_all(&vec![0; 500 * 4096])?;
    file.sync_all()?;
    let mut times = Vec::new();
    for n in 0..500 {
        let start = Instant::now();
        std::os::unix::fs::FileExt::write_all_at(&file, &[1; 4096], n * 4096)?;
        file.sync_data()?;
        times.push(start.elapsed());
    }
    times.sort();
    Ok(times[times.len() / 2])
}

async fn one_task(store: &dyn Store, tenant: TenantId) -> Outcome<()> {
    let at = clock::now();
    let task = TaskId::mint();
    let text = Part::text("x".repeat(TEXT_BYTES));
    let message = Message {
        message_id: task.to_string(),
        task_id: task.to_string(),
        context_id: CONTEXT.to_owned(),
        role: Role::User,
        parts: vec![text.clone()],
        ..Message::default()
    };
    let created = StreamResponse::Task(Task {
        id: task.to_string(),
        context_id: CONTEXT.to_owned(),
        status: TaskStatus { state: TaskState::Submitted, message: None, timestamp: Some(at) },
        history: vec![message.clone()],
        ..Task::default()
    });
    let accept = Accept {
        target: Target::New {
            task,
            agent: "echo".parse().map_err(|_| "the agent's name is a good one")?,
            context: task.to_string().into(),
            created: serde_json::to_vec(&created)?.into(),
            hold: false,
            remembers: true,
        },
        message_id: message.message_id.clone(),
        message: serde_json::to_vec(&message)?.into(),
        idempotency: None,
        lease_until: Some(Timestamp::from_millis(at.as_millis() + 60_000)),
        working: Draft::status(task, CONTEXT, TaskState::Working, None, None, at)?,
        quota: Quota::default(),
        at,
    };
    let lease = store.accept(tenant, accept).await?.lease.ok_or("a new task is leased")?;
    let artifact = Artifact { artifact_id: "a".to_owned(), parts: vec![text], ..Artifact::default() };
    let drafts = vec![Draft::artifact(task, CONTEXT, artifact, false, true, None, at)?];
    let reply = Message { role: Role::Agent, message_id: format!("{task}-r"), ..message };
    let end = TurnEnd::Status(Draft::status(task, CONTEXT, TaskState::Completed, Some(reply), None, at)?);
    store.append(&lease, Append { drafts, end: Some(end) }).await?;
    Ok(())
}
