//! The journal's own rate, without a server around it: tasks that are accepted with a lease and completed with an artifact,
//! as an instant agent's are, one line for each number of tasks under way; and tasks that wait, claimed and completed, with
//! and without an agent beside it that takes one at a time.
//!
//! `cargo bench -p store --bench journal -- sqlite:DIR`, or with a PostgreSQL URL; a directory beside the build by default.

use std::{
    error::Error,
    io::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use a2a::{Artifact, Message, Part, Role, StreamResponse, Task, TaskState, TaskStatus};
use store::{
    Accept, AgentId, Append, Claim, Draft, Lease, Location, OpenOptions, Quota, Room, Store, Target, TaskId, TenantId,
    Term, TurnEnd, clock,
};

const CONTEXT: &str = "bench";
const TEXT_BYTES: usize = 256;
const DURATION: Duration = Duration::from_secs(5);
/// How many large tasks are under way at once, and how large their texts are.
const LARGE: usize = 6;
const LARGE_BYTES: usize = 10 << 20;
const LEASE: Duration = Duration::from_secs(60);

/// How many tasks wait to be claimed, and of how many tenants.
const WAITING: usize = 20_000;
const TENANTS: usize = 8;
/// An agent that runs so many at once, and one that runs one.
const MANY: &str = "many";
const SLOTS: usize = 32;
const ONE: &str = "one";

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
    for with_one in [false, true] {
        claims(&store, with_one).await?;
    }
    beside_large(&store, tenant).await
}

/// Small tasks of one tenant, one after the other, while another tenant has six large ones under way.
#[expect(clippy::print_stdout, reason = "the line is what this is for")]
async fn beside_large(store: &Arc<dyn Store>, tenant: TenantId) -> Outcome<()> {
    let other = store.create_tenant(&format!("bench-{}", TaskId::mint())).await?.id;
    // Made once: this is about the journal. Its bodies are not looked at.
    let (accept, append) = (begin(TaskId::mint(), "echo", LARGE_BYTES)?, end(TaskId::mint(), LARGE_BYTES)?);
    let start = Instant::now();
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..LARGE {
        let store = Arc::clone(store);
        let (accept, append) = (accept.clone(), append.clone());
        workers.spawn(async move {
            let mut done = 0_u64;
            while start.elapsed() < DURATION {
                let term = Term { holder: store.instance().into(), lasts: LEASE };
                let mut accept = Accept { lease: Some(term), ..accept.clone() };
                if let Target::New { task, .. } = &mut accept.target {
                    *task = TaskId::mint();
                }
                let lease = store.accept(other, accept).await?.lease.ok_or("a new task is leased")?;
                store.append(&lease, append.clone()).await?;
                done += 1;
            }
            Outcome::Ok(done)
        });
    }
    let mut times = Vec::new();
    while start.elapsed() < DURATION {
        let asked = Instant::now();
        one_task(store.as_ref(), tenant).await?;
        times.push(asked.elapsed());
    }
    let mut large = 0;
    while let Some(worker) = workers.join_next().await {
        large += worker??;
    }
    times.sort();
    println!(
        "beside {LARGE} of {} MiB: {:.1?} a task (median), {:.1?} at worst, of {}; {:.1} large ones/s",
        LARGE_BYTES >> 20,
        times[times.len() / 2],
        times[times.len() - 1],
        times.len(),
        large as f64 / start.elapsed().as_secs_f64()
    );
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
    let task = TaskId::mint();
    let term = Term { holder: store.instance().into(), lasts: LEASE };
    let accept = Accept { lease: Some(term), ..begin(task, "echo", TEXT_BYTES)? };
    let lease = store.accept(tenant, accept).await?.lease.ok_or("a new task is leased")?;
    complete(store, &lease).await
}

fn message(task: TaskId, bytes: usize) -> Message {
    Message {
        message_id: task.to_string(),
        task_id: task.to_string(),
        context_id: CONTEXT.to_owned(),
        role: Role::User,
        parts: vec![Part::text("x".repeat(bytes))],
        ..Message::default()
    }
}

/// A message that begins a task, not leased.
fn begin(task: TaskId, agent: &str, bytes: usize) -> Outcome<Accept> {
    let at = clock::now();
    let message = message(task, bytes);
    let created = StreamResponse::Task(Task {
        id: task.to_string(),
        context_id: CONTEXT.to_owned(),
        status: TaskStatus { state: TaskState::Submitted, message: None, timestamp: Some(at) },
        history: vec![message.clone()],
        ..Task::default()
    });
    Ok(Accept {
        target: Target::New {
            task,
            agent: name(agent)?,
            context: task.to_string().into(),
            created: serde_json::to_vec(&created)?.into(),
            hold: false,
            remembers: true,
            post: store::Post::default(),
            origin: None,
            tells_cancel: false,
        },
        message_id: message.message_id.clone(),
        message: serde_json::to_vec(&message)?.into(),
        idempotency: None,
        lease: None,
        working: Draft::status(task, CONTEXT, TaskState::Working, None, None, at)?,
        push: None,
        quota: Quota::default(),
        parent: None,
        request: None,
        at,
    })
}

fn name(agent: &str) -> Outcome<AgentId> {
    Ok(agent.parse().map_err(|_| "the agent's name is a good one")?)
}

async fn complete(store: &dyn Store, lease: &Lease) -> Outcome<()> {
    store.append(lease, end(lease.task, TEXT_BYTES)?).await?;
    Ok(())
}

/// The end of a turn that made an artifact.
fn end(task: TaskId, bytes: usize) -> Outcome<Append> {
    let at = clock::now();
    let text = Part::text("x".repeat(bytes));
    let artifact = Artifact { artifact_id: "a".to_owned(), parts: vec![text], ..Artifact::default() };
    let drafts = vec![Draft::artifact(task, CONTEXT, artifact, false, true, None, at)?];
    let reply = Message { role: Role::Agent, message_id: format!("{task}-r"), ..message(task, TEXT_BYTES) };
    let end = TurnEnd::Status(Draft::status(task, CONTEXT, TaskState::Completed, Some(reply), None, at)?);
    Ok(Append { drafts, end: Some(end), ..Append::default() })
}

/// Tasks that wait for [`MANY`], over several tenants; the same for [`ONE`], if that is claimed for as well.
async fn fill(store: &Arc<dyn Store>, tenants: &[TenantId], with_one: bool) -> Outcome<()> {
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..64 {
        let (store, tenants) = (Arc::clone(store), tenants.to_vec());
        workers.spawn(async move {
            for n in (worker..WAITING).step_by(64) {
                let tenant = tenants[n % tenants.len()];
                store.accept(tenant, begin(TaskId::mint(), MANY, TEXT_BYTES)?).await?;
                // As many as there will be claims.
                if with_one && n % SLOTS == 0 {
                    store.accept(tenant, begin(TaskId::mint(), ONE, TEXT_BYTES)?).await?;
                }
            }
            Outcome::Ok(())
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    Ok(())
}

/// Claims as much as there is room for, completes it, and claims again, until there is no more.
#[expect(clippy::print_stdout, reason = "the line is what this is for")]
async fn claims(store: &Arc<dyn Store>, with_one: bool) -> Outcome<()> {
    let mut tenants = Vec::new();
    for _ in 0..TENANTS {
        tenants.push(store.create_tenant(&format!("bench-{}", TaskId::mint())).await?.id);
    }
    fill(store, &tenants, with_one).await?;
    let mut rooms = vec![Room::new(name(MANY)?, SLOTS)];
    if with_one {
        rooms.push(Room::new(name(ONE)?, 1));
    }
    let (before, start) = (store.stats(), Instant::now());
    let (mut started, mut claims, mut claiming) = (0_u64, 0_u64, Duration::ZERO);
    loop {
        let term = Term { holder: store.instance().into(), lasts: LEASE };
        let asked = Instant::now();
        let turns = store.claim(Claim::new(term, rooms.clone())).await?;
        claiming += asked.elapsed();
        if turns.is_empty() {
            break;
        }
        claims += 1;
        started += turns.len() as u64;
        let mut workers = tokio::task::JoinSet::new();
        for turn in turns {
            for room in rooms.iter_mut().filter(|room| room.agent == turn.lease.agent) {
                room.after = Some(turn.lease.tenant);
            }
            let store = Arc::clone(store);
            workers.spawn(async move { complete(store.as_ref(), &turn.lease).await });
        }
        while let Some(worker) = workers.join_next().await {
            worker??;
        }
    }
    let per_second = started as f64 / start.elapsed().as_secs_f64();
    let commits = (store.stats().commits - before.commits) as f64 / claims as f64;
    let each = claiming / u32::try_from(claims.max(1))?;
    let beside = if with_one { ", beside one of 1 slot" } else { "" };
    println!(
        "claims, {SLOTS} slots{beside}: {per_second:>8.0} turns/s started, {:.1} turns and {commits:.2} commits a claim, \
         {each:.1?} a claim",
        started as f64 / claims as f64
    );
    Ok(())
}
