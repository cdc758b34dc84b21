//! What only the journal on SQLite promises: group commit, several processes on one file, crashes, the schema.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::HashSet,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use a2a::{Message, Part, Role, TaskState};
use store::{
    Accept, Append, CancelMark, Claim, Draft, Error, Filter, Holder, Lease, LeasedTurn, Prune, PruneStep, PruneWalk,
    Recent, Removal, Room, Store, Target, TaskId, TenantId, Term, TurnEnd, View, Whose, clock, sqlite,
};
use testkit::conformance::{self, Damage};
use tokio::time::timeout;

const CONTEXT: &str = "context";
const TENANT: TenantId = TenantId(1);

fn open(dir: &Path) -> Arc<dyn Store> {
    sqlite::open(dir, sqlite::Options::default()).unwrap()
}

fn raw(dir: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(dir.join(sqlite::FILE)).unwrap()
}

fn agents() -> [store::AgentId; 1] {
    ["echo".parse().unwrap()]
}

fn status(task: TaskId, state: TaskState, says: Option<&str>) -> Draft {
    let message = says.map(|says| Message {
        message_id: "reply".into(),
        role: Role::Agent,
        parts: vec![Part::text(says)],
        ..Message::default()
    });
    Draft::status(task, CONTEXT, state, message, None, clock::now()).unwrap()
}

const MINUTE: Duration = Duration::from_secs(60);

fn term(store: &dyn Store, lasts: Duration) -> Term {
    Term { holder: store.instance().into(), lasts }
}

/// So many turns, for this instance.
async fn claim(store: &dyn Store, slots: usize) -> Vec<LeasedTurn> {
    let [agent] = agents();
    store.claim(Claim::new(term(store, MINUTE), vec![Room::new(agent, slots)])).await.unwrap()
}

/// A message that begins a task, not leased.
fn begin(task: TaskId) -> Accept {
    let message =
        Message { message_id: "m".into(), role: Role::User, parts: vec![Part::text("hello")], ..Message::default() };
    Accept {
        target: Target::New {
            task,
            agent: agents()[0].clone(),
            context: CONTEXT.into(),
            created: "{}".into(),
            hold: false,
            remembers: true,
            post: store::Post::default(),
            origin: None,
            tells_cancel: false,
        },
        message_id: "m".into(),
        message: serde_json::to_vec(&message).unwrap().into(),
        idempotency: None,
        lease: None,
        working: status(task, TaskState::Working, None),
        push: None,
        quota: store::Quota::default(),
        parent: None,
        request: None,
        at: clock::now(),
    }
}

/// The same, leased to this instance.
fn leased(store: &dyn Store, task: TaskId) -> Accept {
    Accept { lease: Some(term(store, MINUTE)), ..begin(task) }
}

async fn running(store: &dyn Store) -> Lease {
    store.accept(TENANT, leased(store, TaskId::mint())).await.unwrap().lease.unwrap()
}

async fn end(store: &dyn Store, lease: &Lease, state: TaskState, says: Option<&str>) {
    let end = Some(TurnEnd::Status(status(lease.task, state, says)));
    store.append(lease, Append { drafts: vec![], end, ..Append::default() }).await.unwrap();
}

async fn total(store: &dyn Store) -> u64 {
    let view = View { history: Some(0), artifacts: false, ..View::FULL };
    let all =
        Filter { agent: None, among: Vec::new(), context: None, state: None, since: None, after: None, limit: 1, view };
    store.list(TENANT, all).await.unwrap().total
}

#[tokio::test]
async fn one_accept_is_one_commit_and_reading_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let before = store.stats();
    let lease = running(&*store).await;
    assert_eq!(store.stats().commits, before.commits + 1);
    assert_eq!(store.stats().events, before.events + 2);
    end(&*store, &lease, TaskState::Completed, Some("done")).await;
    let after = store.stats();
    assert_eq!(after.commits, before.commits + 2, "a send to an instant agent is two commits");

    store.task(TENANT, lease.task, View::FULL).await.unwrap();
    store.events(TENANT, lease.task, 0, 10).await.unwrap();
    store.tenants().await.unwrap();
    total(&*store).await;
    // Neither do writes that find nothing to write.
    assert!(claim(&*store, 10).await.is_empty());
    assert_eq!(store.renew(std::slice::from_ref(&lease), MINUTE).await.unwrap().len(), 1);
    assert_eq!(store.reclaim_dead().await.unwrap(), 0);
    assert!(matches!(store.mark_cancel(TENANT, lease.task).await, Ok(CancelMark::NotCancelable(_))));
    assert!(store.mark_cancel(TENANT, TaskId::mint()).await.is_err());
    assert_eq!(store.stats(), after);
}

#[tokio::test]
async fn what_waits_together_is_committed_together() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let before = store.stats().commits;
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { running(&*store).await })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    let commits = store.stats().commits - before;
    assert!((1..=25).contains(&commits), "100 accepts took {commits} commits");
    assert_eq!(total(&*store).await, 100);
}

#[tokio::test]
async fn a_failing_operation_fails_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let taken = TaskId::mint();
    store.accept(TENANT, leased(&*store, taken)).await.unwrap();
    let calls: Vec<_> = (0..50)
        .map(|n| {
            let store = Arc::clone(&store);
            // A task id that exists breaks a constraint of the database in the middle of the operation.
            let task = if n % 10 == 5 { taken } else { TaskId::mint() };
            tokio::spawn(async move { (task, store.accept(TENANT, leased(&*store, task)).await) })
        })
        .collect();
    for call in calls {
        let (task, outcome) = call.await.unwrap();
        if task == taken {
            assert!(matches!(outcome, Err(Error::Sqlite(_))), "{outcome:?}");
        } else {
            outcome.unwrap();
            assert_eq!(store.events(TENANT, task, 0, 10).await.unwrap().len(), 2);
        }
    }
    assert_eq!(store.events(TENANT, taken, 0, 10).await.unwrap().len(), 2);
    assert_eq!(total(&*store).await, 46);
}

#[tokio::test]
async fn a_full_queue_makes_callers_wait() {
    let dir = tempfile::tempdir().unwrap();
    let options = sqlite::Options { queue: 2, readers: 1, ..sqlite::Options::default() };
    let store = sqlite::open(dir.path(), options).unwrap();
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let lease = running(&*store).await;
                store.head(TENANT, lease.task).await.unwrap();
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(total(&*store).await, 50);
}

#[tokio::test]
async fn everything_is_there_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let tenant = store.create_tenant("first").await.unwrap();
    let lease = running(&*store).await;
    let task = lease.task;
    end(&*store, &lease, TaskState::InputRequired, Some("which?")).await;
    let setting = store.setting("key", vec![1]).await.unwrap();
    let before = (
        store.task(TENANT, task, View::FULL).await.unwrap(),
        store.events(TENANT, task, 0, 100).await.unwrap(),
        total(&*store).await,
    );
    drop(store);
    let store = open(dir.path());
    let after = (
        store.task(TENANT, task, View::FULL).await.unwrap(),
        store.events(TENANT, task, 0, 100).await.unwrap(),
        total(&*store).await,
    );
    assert_eq!(after, before);
    assert_eq!(store.tenants().await.unwrap(), [tenant]);
    assert_eq!(store.setting("key", vec![2]).await.unwrap(), setting);
}

#[tokio::test]
async fn two_instances_hear_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (open(dir.path()), open(dir.path()));
    assert_ne!(one.instance(), two.instance());
    let lease = running(&*one).await;
    let mut watch = two.hub().watch(lease.task);
    let mut due = two.hub().due();
    due.mark_unchanged();

    end(&*one, &lease, TaskState::InputRequired, Some("which?")).await;
    timeout(Duration::from_secs(2), watch.changed()).await.unwrap();
    timeout(Duration::from_secs(2), due.changed()).await.unwrap().unwrap();
    let Recent::Events(events) = watch.recent(2) else { panic!("nothing was published") };
    assert_eq!(events.iter().map(|e| e.seq).collect::<Vec<_>>(), [3]);

    // A write of its own comes after those of the other that it has not heard of yet.
    let again = begin(TaskId::mint());
    let submitted = status(lease.task, TaskState::Submitted, None);
    let target = Target::Continue { task: lease.task, max_waiting: 8, submitted };
    one.accept(TENANT, Accept { target, ..again }).await.unwrap();
    assert_eq!(two.mark_cancel(TENANT, lease.task).await.unwrap(), CancelMark::Canceled { already: false });
    let Recent::Events(events) = watch.recent(3) else { panic!("an event was skipped") };
    let published: Vec<_> = events.iter().map(|event| (**event).clone()).collect();
    assert_eq!(published, one.events(TENANT, lease.task, 3, 10).await.unwrap());
    assert_eq!(published.len(), 3, "input, submitted, canceled");
}

#[tokio::test]
async fn one_of_two_instances_gets_the_work() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (open(dir.path()), open(dir.path()));
    for _ in 0..30 {
        one.accept(TENANT, begin(TaskId::mint())).await.unwrap();
    }
    let take = |store: Arc<dyn Store>| tokio::spawn(async move { claim(&*store, 20).await });
    let (a, b) = (take(Arc::clone(&one)), take(Arc::clone(&two)));
    let (a, b) = (a.await.unwrap(), b.await.unwrap());
    assert_eq!(a.len() + b.len(), 30);
    let tasks: HashSet<_> = a.iter().chain(&b).map(|turn| turn.lease.task).collect();
    assert_eq!(tasks.len(), 30);
}

#[tokio::test]
async fn a_lease_is_its_holders_whoever_writes() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (open(dir.path()), open(dir.path()));
    // The holder is a worker: whichever instance it is connected to writes for it.
    let worker = Holder::worker("w");
    let accept = Accept { lease: Some(Term { holder: worker.clone(), lasts: MINUTE }), ..begin(TaskId::mint()) };
    let lease = one.accept(TENANT, accept).await.unwrap().lease.unwrap();
    for (store, seq) in [(&one, 3), (&two, 4), (&one, 5)] {
        let drafts = vec![status(lease.task, TaskState::Working, Some("on it"))];
        assert_eq!(store.append(&lease, Append { drafts, end: None, ..Append::default() }).await.unwrap().seq, seq);
        assert_eq!(store.renew(std::slice::from_ref(&lease), MINUTE).await.unwrap(), []);
    }
    // The right generation is of no use to anybody else.
    let stolen = Lease { holder: two.instance().into(), ..lease.clone() };
    let stolen_ones = std::slice::from_ref(&stolen);
    for store in [&one, &two] {
        assert!(matches!(store.append(&stolen, Append::default()).await, Err(Error::LeaseLost)));
        assert_eq!(store.renew(stolen_ones, MINUTE).await.unwrap(), stolen_ones);
    }
    assert_eq!(two.mark_cancel(TENANT, lease.task).await.unwrap(), CancelMark::Running);
    for store in [&one, &two] {
        assert_eq!(store.marked(std::slice::from_ref(&worker)).await.unwrap(), [lease.task]);
        assert!(store.marked(&[store.instance().into()]).await.unwrap().is_empty());
    }
    end(&*two, &lease, TaskState::Completed, None).await;
    assert_eq!(one.head(TENANT, lease.task).await.unwrap().state, TaskState::Canceled);
}

#[tokio::test]
async fn stores_on_one_file_have_one_clock() {
    let dir = tempfile::tempdir().unwrap();
    let tick = Arc::new(AtomicI64::new(500_000));
    let open = || {
        let tick = Arc::clone(&tick);
        let ticks = sqlite::Ticks::new(move || tick.load(Relaxed));
        sqlite::open(dir.path(), sqlite::Options { ticks, ..sqlite::Options::default() }).unwrap()
    };
    let pass = |millis: i64| tick.fetch_add(millis, Relaxed);
    let one = open();
    pass(7000);
    let two = open();
    let now = async |store: &dyn Store| store.next_due(&agents()).await.unwrap().now;
    let begin_time = now(&*one).await;
    assert_eq!(now(&*two).await, begin_time);

    let accept = Accept { lease: Some(term(&*one, Duration::from_millis(10))), ..begin(TaskId::mint()) };
    let lease = one.accept(TENANT, accept).await.unwrap().lease.unwrap();
    // The clock stands still, and wall time does not matter.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(claim(&*two, 10).await.is_empty());
    pass(9);
    assert!(claim(&*two, 10).await.is_empty(), "not yet");
    // Each renews by the same clock, whichever store it goes through.
    assert!(two.renew(std::slice::from_ref(&lease), Duration::from_millis(10)).await.unwrap().is_empty());
    pass(9);
    assert!(claim(&*two, 10).await.is_empty(), "not yet");
    assert_eq!(now(&*one).await, begin_time.after(Duration::from_millis(18)));
    pass(1);
    assert!(claim(&*two, 10).await.is_empty(), "its holder has a last call");
    pass(60_000);
    let turns = claim(&*two, 10).await;
    assert_eq!(turns.len(), 1);
    assert!(turns[0].interrupted);
    assert!(matches!(one.append(&lease, Append::default()).await, Err(Error::LeaseLost)));

    // It goes on where it was, also when the machine was started anew and counts from the beginning.
    pass(3_600_000);
    let end_time = now(&*two).await;
    one.close().await;
    two.close().await;
    tick.store(3, Relaxed);
    let three = open();
    assert_eq!(now(&*three).await, end_time);
    pass(5);
    let four = open();
    assert_eq!((now(&*three).await, now(&*four).await), (end_time.after(Duration::from_millis(5)), now(&*three).await));
}

#[tokio::test]
async fn only_the_dead_lose_their_leases() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (open(dir.path()), open(dir.path()));
    let task = running(&*one).await.task;
    assert_eq!(two.reclaim_dead().await.unwrap(), 0, "it lives");
    assert!(claim(&*two, 10).await.is_empty());

    let id = one.instance();
    drop(one);
    // As a crash leaves it: the row and the file are there, the lock is free.
    raw(dir.path()).execute("INSERT INTO instances (id, started_at) VALUES (?1, 0)", [id.to_string()]).unwrap();
    let file = dir.path().join("instances").join(format!("{id}.lock"));
    std::fs::write(&file, "").unwrap();

    assert_eq!(two.reclaim_dead().await.unwrap(), 1);
    assert_eq!(two.reclaim_dead().await.unwrap(), 0);
    assert!(!file.exists());
    let left: i64 = raw(dir.path()).query_row("SELECT count(*) FROM instances", (), |row| row.get(0)).unwrap();
    assert_eq!(left, 1, "itself");
    let turns = claim(&*two, 10).await;
    assert_eq!(turns.len(), 1);
    assert!(turns[0].interrupted);
    assert_eq!((turns[0].lease.task, turns[0].lease.attempt), (task, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_closes_has_committed_what_waited_and_signed_off() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (open(dir.path()), open(dir.path()));
    let held = running(&*one).await;
    let calls: Vec<_> = (0..300)
        .map(|_| {
            let (store, task) = (Arc::clone(&one), TaskId::mint());
            tokio::spawn(async move { (task, store.accept(TENANT, begin(task)).await) })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(3)).await;
    one.close().await;
    let known = |id: store::InstanceId| {
        let count = "SELECT count(*) FROM instances WHERE id = ?1";
        let row: i64 = raw(dir.path()).query_row(count, [id.to_string()], |row| row.get(0)).unwrap();
        (row == 1, dir.path().join("instances").join(format!("{id}.lock")).exists())
    };
    assert_eq!((known(one.instance()), known(two.instance())), ((false, false), (true, true)));
    for call in calls {
        let (task, outcome) = call.await.unwrap();
        let there = two.head(TENANT, task).await;
        match outcome {
            Ok(_) => assert_eq!(there.unwrap().seq, 1),
            Err(error) => {
                assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
                assert!(matches!(there, Err(Error::NotFound)), "what was refused is not there");
            }
        }
    }
    // What it still held is free at once, although the process lives and has the store in its hands.
    assert_eq!(two.reclaim_dead().await.unwrap(), 1);
    let turns = claim(&*two, 1000).await;
    assert!(turns.iter().any(|turn| turn.lease.task == held.task && turn.interrupted));
    two.close().await;
    assert!(!sqlite::is_open(dir.path()));
    assert_eq!(known(two.instance()), (false, false));
}

#[tokio::test]
async fn what_cannot_be_read_blocks_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let conn = raw(dir.path());
    let damage = |task: TaskId, damage: Damage| {
        let sql = match damage {
            Damage::Message => {
                "UPDATE messages SET body = '{' WHERE task = (SELECT pk FROM a2a_tasks WHERE task_id = ?1)"
            }
            Damage::NoMessage => "DELETE FROM messages WHERE task = (SELECT pk FROM a2a_tasks WHERE task_id = ?1)",
            Damage::State => "UPDATE a2a_tasks SET state = 'dreaming' WHERE task_id = ?1",
            Damage::Agent => "UPDATE a2a_tasks SET agent_id = 'No Agent!' WHERE task_id = ?1",
            Damage::Ended => "UPDATE a2a_tasks SET state = 'completed' WHERE task_id = ?1",
            Damage::Newer => {
                "UPDATE a2a_events SET kind = 99
                 WHERE kind = 9 AND task = (SELECT pk FROM a2a_tasks WHERE task_id = ?1)"
            }
            Damage::StatusMessage => "UPDATE a2a_tasks SET status_message = '{' WHERE task_id = ?1",
        };
        assert!(conn.execute(sql, [task.to_string()]).unwrap() > 0, "{damage:?}");
    };
    conformance::run_damaged(store, damage).await;
    // What could not be read is looked at again in an hour.
    let aside = "SELECT count(*) FROM a2a_tasks WHERE state = 'dreaming'
                   AND due_at BETWEEN (SELECT seen FROM lease_clock) + 3000000 AND (SELECT seen FROM lease_clock) + 3700000";
    assert_eq!(conn.query_row(aside, (), |row| row.get::<_, i64>(0)).unwrap(), 2);
}

#[tokio::test]
async fn a_database_from_the_future_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    raw(dir.path()).pragma_update(None, "user_version", 99).unwrap();
    let refused = sqlite::open(dir.path(), sqlite::Options::default());
    assert!(matches!(refused, Err(Error::FromTheFuture { found: 99, .. })), "{:?}", refused.err());
    let version: i64 = raw(dir.path()).pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, 99);
}

#[tokio::test]
async fn s0_45_tables_have_the_names_operators_know() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let lease = running(&*store).await;
    end(&*store, &lease, TaskState::Failed, Some("it broke")).await;
    let asking = running(&*store).await;
    end(&*store, &asking, TaskState::InputRequired, Some("which?")).await;

    let conn = raw(dir.path());
    let row = |task: TaskId| {
        let sql = "SELECT tenant_id, agent_id, context_id, state, created_at > 0, updated_at > 0,
                     final_message_json, error_message FROM a2a_tasks WHERE task_id = ?1";
        conn.query_row(sql, [task.to_string()], |row| {
            assert_eq!(row.get::<_, i64>(0)?, TENANT.0);
            assert_eq!(row.get::<_, String>(1)?, "echo");
            assert_eq!(row.get::<_, String>(2)?, CONTEXT);
            assert!(row.get::<_, bool>(4)? && row.get::<_, bool>(5)?);
            Ok((row.get::<_, String>(3)?, row.get::<_, String>(6)?, row.get::<_, String>(7)?))
        })
        .unwrap()
    };
    let (state, last, error) = row(lease.task);
    assert_eq!((state.as_str(), error.as_str()), ("failed", "it broke"));
    assert!(serde_json::from_str::<Message>(&last).is_ok(), "{last}");
    assert_eq!(row(asking.task), ("input-required".into(), String::new(), String::new()));
    let key: String =
        conn.query_row("SELECT name FROM pragma_table_info('a2a_tasks') WHERE pk = 1", (), |row| row.get(0)).unwrap();
    assert_eq!(key, "task_id");
    let statuses: Vec<String> = conn
        .prepare("SELECT DISTINCT status FROM messages WHERE role = 'user'")
        .unwrap()
        .query_map((), |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(statuses, ["acked"]);
}

#[cfg(unix)]
#[tokio::test]
async fn the_files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("new/data");
    let store = open(&data);
    running(&*store).await;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&data), 0o700);
    for file in ["switchboard.db", "switchboard.db-wal", "switchboard.db-shm"] {
        assert_eq!(mode(&data.join(file)), 0o600, "{file}");
    }
}

/// The other half of the crash tests: a process that accepts tasks and prints each one that was acknowledged.
#[tokio::test]
async fn child_that_accepts_until_it_is_killed() {
    let Ok(dir) = std::env::var("SB_TEST_JOURNAL") else {
        return;
    };
    let store = open(Path::new(&dir));
    loop {
        println!("acknowledged {}", running(&*store).await.task);
    }
}

/// Kills a process right after its n-th acknowledgement; returns what it acknowledged.
fn accept_and_kill(dir: &Path, n: usize, fault: Option<&str>) -> Vec<TaskId> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "journal::child_that_accepts_until_it_is_killed", "--nocapture"]);
    command.env("SB_TEST_JOURNAL", dir).env_remove("SB_FAULT").stdout(Stdio::piped()).stderr(Stdio::null());
    if let Some(fault) = fault {
        command.env("SB_FAULT", fault);
    }
    let mut child = command.spawn().unwrap();
    let mut acknowledged = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        // The first one shares its line with the test harness.
        if let Some((_, task)) = line.unwrap().split_once("acknowledged ") {
            acknowledged.push(TaskId::parse(task).unwrap());
        }
        if acknowledged.len() == n {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(acknowledged.len(), n);
    acknowledged
}

async fn lost(store: &dyn Store, tasks: &[TaskId]) -> usize {
    let mut lost = 0;
    for task in tasks {
        match store.events(TENANT, *task, 0, 10).await {
            Ok(events) => assert_eq!(events.iter().map(|e| e.seq).collect::<Vec<_>>(), [1, 2]),
            Err(_) => lost += 1,
        }
    }
    lost
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = Vec::new();
    for n in [1, 20, 150] {
        acknowledged.extend(accept_and_kill(dir.path(), n, None));
    }
    let store = open(dir.path());
    assert_eq!(lost(&*store, &acknowledged).await, 0);
    let reclaimed = store.reclaim_dead().await.unwrap();
    assert!(reclaimed >= acknowledged.len(), "the dead held {reclaimed} leases");
    let turns = claim(&*store, 1000).await;
    assert_eq!(turns.len(), reclaimed);
    assert!(turns.iter().all(|turn| turn.interrupted && turn.lease.attempt == 2));
}

/// The negative control: the test above can fail.
#[cfg(debug_assertions)]
#[tokio::test]
async fn what_is_acknowledged_too_early_is_lost() {
    for _ in 0..5 {
        let dir = tempfile::tempdir().unwrap();
        let acknowledged = accept_and_kill(dir.path(), 3, Some("ack-before-commit"));
        if lost(&*open(dir.path()), &acknowledged).await > 0 {
            return;
        }
    }
    panic!("a journal that acknowledges before it commits has lost nothing");
}

fn step(what: Prune) -> PruneStep {
    PruneStep {
        tenant: TENANT,
        whose: Whose::AllBut(Vec::new()),
        what,
        older_than: Duration::ZERO,
        walk: PruneWalk::default(),
        size: 1,
    }
}

/// Removes all that has ended; how many tasks that were.
async fn prune(store: &dyn Store) -> u64 {
    // What ended in this very millisecond is not older than nothing.
    tokio::time::sleep(Duration::from_millis(2)).await;
    let (mut step, mut tasks) = (step(Prune::Tasks), 0);
    loop {
        let pruned = store.prune(step.clone()).await.unwrap();
        tasks += pruned.tasks;
        step.walk = pruned.walk;
        if !pruned.more {
            return tasks;
        }
    }
}

fn artifact(task: TaskId, text: String) -> Draft {
    let artifact = a2a::Artifact { artifact_id: "a".into(), parts: vec![Part::text(text)], ..Default::default() };
    Draft::artifact(task, CONTEXT, artifact, false, true, None, clock::now()).unwrap()
}

#[tokio::test]
async fn what_goes_makes_room_for_what_comes() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut pages = Vec::new();
    for _ in 0..6 {
        for n in 0..100 {
            let lease = running(&*store).await;
            let drafts = vec![artifact(lease.task, "x".repeat(3000 + 50 * n))];
            store.append(&lease, Append { drafts, end: None, ..Append::default() }).await.unwrap();
            end(&*store, &lease, TaskState::Completed, Some("done")).await;
        }
        assert_eq!(prune(&*store).await, 100);
        let count: i64 = raw(dir.path()).query_row("PRAGMA page_count", (), |row| row.get(0)).unwrap();
        pages.push(count);
    }
    assert!(pages[5] <= pages[1] + pages[1] / 20, "the file grows: {pages:?}");
    let free: i64 = raw(dir.path()).query_row("PRAGMA freelist_count", (), |row| row.get(0)).unwrap();
    assert!(free > pages[5] / 2, "{free} of {pages:?} are free");
}

/// The number of the newest task that went is that of the next one.
#[tokio::test]
async fn a_number_that_comes_again_finds_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let number = |task: TaskId| -> i64 {
        let find = "SELECT pk FROM a2a_tasks WHERE task_id = ?1";
        raw(dir.path()).query_row(find, [task.to_string()], |row| row.get(0)).unwrap()
    };
    let key = |key: u8| Some(store::IdempotencyKey { key: [key; 32], fingerprint: [7; 32], keep: None });
    let mut numbers = Vec::new();
    for at_once in [false, true] {
        let first = TaskId::mint();
        let accept = Accept { idempotency: key(1), ..leased(&*store, first) };
        let lease = store.accept(TENANT, accept).await.unwrap().lease.unwrap();
        let push = store::NewPush {
            id: "hook".into(),
            url: "https://receiver/".into(),
            receiver: "receiver:443".into(),
            scheme: String::new(),
            sealed: Vec::new(),
            dialect: a2a::Dialect::V1,
            chunks: false,
        };
        store.put_push(TENANT, first, push).await.unwrap();
        store.remove_push(TENANT, first, "hook").await.unwrap();
        store
            .append(&lease, Append { drafts: vec![artifact(first, "one".into())], ..Append::default() })
            .await
            .unwrap();
        end(&*store, &lease, TaskState::Completed, Some("done")).await;
        numbers.push(number(first));
        let mut watch = store.hub().watch(first);
        if at_once {
            store.delete(TENANT, "test", Removal::Task(first), 1).await.unwrap();
        } else {
            assert_eq!(prune(&*store).await, 1);
        }
        for table in ["a2a_tasks", "a2a_events", "messages", "a2a_artifacts", "idempotency", "push_configs"] {
            let count = format!("SELECT count(*) FROM {table}");
            let count: i64 = raw(dir.path()).query_row(&count, (), |row| row.get(0)).unwrap();
            assert_eq!(count, 0, "{table}");
        }
        let position = store.tail(&store::Position::default(), 100).await.unwrap().1;

        let second = TaskId::mint();
        let accepted = store.accept(TENANT, Accept { idempotency: key(1), ..begin(second) }).await.unwrap();
        assert_eq!((accepted.task, accepted.duplicate), (second, false), "the key is free");
        assert_eq!(number(second), numbers[0], "the number comes again");
        let task = store.task(TENANT, second, View::FULL).await.unwrap();
        assert_eq!((task.history.len(), task.artifacts.len(), task.seq), (1, 0, 1));
        assert!(store.pushes(TENANT, store::PushFilter { limit: 9, ..Default::default() }).await.unwrap().is_empty());
        assert!(matches!(store.head(TENANT, first).await, Err(Error::NotFound)));
        assert!(matches!(watch.recent(4), Recent::Events(events) if events.is_empty()), "watchers go by ids");
        let (tailed, _) = store.tail(&position, 100).await.unwrap();
        assert_eq!(
            tailed.iter().map(|tailed| tailed.task).collect::<Vec<_>>(),
            [second],
            "places are never used again"
        );
        store.mark_cancel(TENANT, second).await.unwrap();
        assert_eq!(prune(&*store).await, 1);
    }
}
