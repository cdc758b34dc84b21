//! Archives and backups: what is exported comes back, from either store into either, and nothing else is let in.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    io::Cursor,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use a2a::{Artifact, Dialect, Message, Part, Role, TaskState, Timestamp};
use store::{
    Accept, AgentId, Append, Claim, Draft, Holder, IdempotencyKey, Lease, Location, NewAdminToken, NewPush, NewToken,
    Prune, PruneStep, PruneWalk, Quota, Reach, Room, Scope, Store, Target, TaskId, TenantId, Term, TurnEnd, View,
    Whose,
    archive::{self, Error, Imported, Kind, Sums, Terms},
    clock, sqlite,
};
use testkit::postgres::Database;

const CONTEXT: &str = "context";

fn agent() -> AgentId {
    "echo".parse().unwrap()
}

fn quiet(_: archive::Phase, _: u64) {}

/// Everything, whoever has made it.
fn all() -> Terms {
    Terms { credentials: true, signed_by: None }
}

fn later(millis: i64) -> Timestamp {
    Timestamp::from_millis(clock::now().as_millis() + millis)
}

fn message(id: &str, role: Role, says: &str) -> Message {
    Message { message_id: id.into(), role, parts: vec![Part::text(says)], ..Message::default() }
}

fn status(task: TaskId, state: TaskState, says: Option<&str>) -> Draft {
    let message = says.map(|says| message(&task.reply_id(1), Role::Agent, says));
    Draft::status(task, CONTEXT, state, message, None, clock::now()).unwrap()
}

fn key(n: u8) -> IdempotencyKey {
    let keep = n.is_multiple_of(2).then_some(Duration::from_secs(3600));
    IdempotencyKey { key: [n; 32], fingerprint: [n ^ 255; 32], keep }
}

/// Of somebody who is gone when the journal is read again.
fn term() -> Term {
    Term { holder: Holder::worker("test"), lasts: Duration::from_secs(60) }
}

fn begin(task: TaskId, n: u8, leased: bool) -> Accept {
    Accept {
        target: Target::New {
            task,
            agent: agent(),
            context: CONTEXT.into(),
            created: format!("{{\"task\": {{ \"n\":{n}.0 }}}}").into(),
            hold: n % 5 == 4,
            remembers: n.is_multiple_of(3),
            post: store::Post::default(),
            origin: None,
            tells_cancel: false,
        },
        message_id: format!("m-{n}"),
        message: serde_json::to_vec(&message("m", Role::User, "héllo\n\"quoted\"\u{1}")).unwrap().into(),
        idempotency: Some(key(n)),
        lease: leased.then(term),
        working: status(task, TaskState::Working, None),
        push: None,
        quota: Quota::default(),
        parent: None,
        request: None,
        at: clock::now(),
    }
}

fn push(id: &str, n: u8) -> NewPush {
    NewPush {
        id: id.into(),
        url: format!("https://receiver/{n}"),
        receiver: "receiver:443".into(),
        scheme: "Bearer".into(),
        sealed: vec![n, 0, 255],
        dialect: if id == "a" { Dialect::V1 } else { Dialect::V03 },
        chunks: n == 1,
    }
}

async fn end(store: &dyn Store, lease: &Lease, state: TaskState) {
    let said = TurnEnd::Status(status(lease.task, state, Some("that is all")));
    store.append(lease, Append { drafts: Vec::new(), end: Some(said), ..Append::default() }).await.unwrap();
}

/// A store with something of everything: tasks that wait, run, ask, are hidden and have ended.
async fn fill(store: &dyn Store) -> (TenantId, Vec<TaskId>) {
    let tenant = store.create_tenant("first").await.unwrap().id;
    let other = store.create_tenant("second").await.unwrap().id;
    for (n, tenant) in [(1, tenant), (2, other), (3, tenant)] {
        let token = NewToken {
            tenant,
            hash: [n; 32],
            name: format!("t{n}"),
            expires: (n > 1).then(|| later(1000)),
            reach: Reach::default(),
        };
        store.add_token(token).await.unwrap();
    }
    let reach = Reach { scopes: [Scope::Read].into_iter().collect(), agents: vec![agent()] };
    let bound = NewToken { tenant, hash: [4; 32], name: "bound".into(), expires: None, reach };
    store.add_token(bound).await.unwrap();
    for (hash, name, expires) in [([5; 32], "ops", None), ([6; 32], "ci", Some(later(1000)))] {
        store.add_admin_token("system", NewAdminToken { hash, name: name.into(), expires }).await.unwrap();
    }
    store.revoke_admin_token("system", 2).await.unwrap();
    store.setting("page-token-key", vec![0, 159, 146, 150]).await.unwrap();
    store.set_setting("system", "text", b"plain".to_vec()).await.unwrap();
    store.put_card(tenant, &agent(), br#"{"name":"caf\u00e9"}"#.to_vec(), 10).await.unwrap();
    store.put_card(other, &agent(), br#"[ 1.0, "\u0000" ]"#.to_vec(), 10).await.unwrap();
    store.create_agent(tenant, &agent(), br#"{ "id":"echo", "x":1.0 }"#.to_vec(), 10).await.unwrap();
    store.replace_agent(tenant, &agent(), b"{\"role\":\"caf\xc3\xa9\"}".to_vec()).await.unwrap();
    store.create_agent(other, &agent(), vec![0xff, 0], 10).await.unwrap();
    store.ping().await.unwrap();
    let mut tasks = Vec::new();
    for n in 0..20 {
        let task = TaskId::mint();
        let leased = n % 4 != 0;
        let accepted = store.accept(tenant, begin(task, n, leased)).await.unwrap();
        tasks.push(task);
        if [1, 7, 13].contains(&n) {
            for id in ["a", "b"] {
                store.put_push(tenant, task, push(id, n)).await.unwrap();
            }
        }
        let Some(lease) = accepted.lease else { continue };
        if n % 5 != 4 {
            let artifact = Artifact {
                artifact_id: "a".into(),
                parts: vec![Part::text(format!("piece {n}"))],
                ..Artifact::default()
            };
            let drafts = vec![
                Draft::artifact(task, CONTEXT, artifact.clone(), false, false, None, clock::now()).unwrap(),
                Draft::artifact(task, CONTEXT, artifact, true, true, None, clock::now()).unwrap(),
            ];
            let tokens = store::Tokens { input: n.into(), output: 7 };
            store.append(&lease, Append { drafts, tokens, ..Append::default() }).await.unwrap();
        }
        match n % 4 {
            1 => end(store, &lease, TaskState::Completed).await,
            2 if n % 5 != 4 => end(store, &lease, TaskState::InputRequired).await,
            // Given back on purpose.
            3 if n == 19 => {
                store
                    .append(
                        &lease,
                        Append { drafts: Vec::new(), end: Some(TurnEnd::Release { begun: true }), ..Append::default() },
                    )
                    .await
                    .unwrap();
            }
            // Runs on.
            _ => {}
        }
    }
    (tenant, tasks)
}

async fn exported(location: &Location) -> (Vec<u8>, Sums) {
    let mut bytes = Vec::new();
    let sums = archive::export(location, &mut bytes, None, &quiet).await.unwrap();
    (bytes, sums)
}

async fn imported(location: &Location, bytes: &[u8]) -> Result<Imported, Error> {
    archive::import(location, &mut Cursor::new(bytes), &all(), &quiet).await
}

/// All lines but the first, which tells when and where from.
fn records(bytes: &[u8]) -> &[u8] {
    let first = bytes.iter().position(|byte| *byte == b'\n').unwrap();
    &bytes[first + 1..]
}

fn count(sums: &Sums, kind: Kind) -> u64 {
    sums.kinds.iter().find(|sum| sum.kind == kind).unwrap().count
}

fn raw(dir: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(dir.join(sqlite::FILE)).unwrap()
}

/// A journal on SQLite with something of everything, also bytes that are no text. Nobody has it open.
async fn source() -> (tempfile::TempDir, Location, TenantId, Vec<TaskId>) {
    let dir = tempfile::tempdir().unwrap();
    let store = sqlite::open(dir.path(), sqlite::Options::default()).unwrap();
    let (tenant, tasks) = fill(store.as_ref()).await;
    drop(store);
    // Agents may call their artifacts anything.
    let odd = "UPDATE a2a_artifacts SET artifact_id = 'a' || char(0) || 'b' WHERE pos % 3 = 0";
    raw(dir.path()).execute(odd, ()).unwrap();
    let location = Location::Sqlite(dir.path().to_owned());
    (dir, location, tenant, tasks)
}

/// An empty database, and where it is.
fn database() -> (Database, Location) {
    let database = Database::empty();
    let location = Location::parse(database.url()).unwrap();
    (database, location)
}

/// What is left of a task whose log is gone is moved like any other, and is the same there.
#[tokio::test]
async fn tasks_without_their_logs_are_moved_too() {
    let (dir, from, tenant, tasks) = source().await;
    let store = sqlite::open(dir.path(), sqlite::Options::default()).unwrap();
    let mut walk = PruneWalk::default();
    let mut events = 0;
    loop {
        let (whose, what, older_than) = (Whose::AllBut(Vec::new()), Prune::Events, Duration::ZERO);
        let pruned = store.prune(PruneStep { tenant, whose, what, older_than, walk, size: 1 }).await.unwrap();
        events += pruned.events;
        walk = pruned.walk;
        if !pruned.more {
            break;
        }
    }
    assert!(events > 0);
    let usage = store.usage(tenant).await.unwrap();
    drop(store);
    let (bytes, _) = exported(&from).await;
    let (database, to) = database();
    imported(&to, &bytes).await.unwrap();
    let (moved, _) = exported(&to).await;
    assert!(records(&moved) == records(&bytes));
    let back = tempfile::tempdir().unwrap();
    imported(&Location::Sqlite(back.path().to_owned()), &moved).await.unwrap();
    for store in [
        sqlite::open(back.path(), sqlite::Options::default()).unwrap(),
        store::postgres::open(&database.url().parse().unwrap(), store::postgres::Options::default()).await.unwrap(),
    ] {
        assert_eq!(store.usage(tenant).await.unwrap(), usage);
        // The fifth has ended and nobody is told of it.
        assert!(matches!(store.events(tenant, tasks[5], 0, 10).await, Err(store::Error::Pruned)));
        assert!(store.task(tenant, tasks[5], View::FULL).await.unwrap().seq > 0);
        let (whose, what, older_than) = (Whose::AllBut(Vec::new()), Prune::Tasks, Duration::ZERO);
        let pruned =
            store.prune(PruneStep { tenant, whose, what, older_than, walk: PruneWalk::default(), size: 1 }).await;
        let pruned = pruned.unwrap();
        assert!(pruned.tasks > 0);
        assert_eq!(store.usage(tenant).await.unwrap().bytes, usage.bytes - pruned.bytes);
        store.close().await;
    }
}

#[tokio::test]
async fn what_goes_through_sqlite_is_the_same_again() {
    let (dir, from, tenant, tasks) = source().await;
    raw(dir.path()).execute("UPDATE a2a_events SET kind = 99, body = x'ff00fe' WHERE pos % 7 = 0", ()).unwrap();
    let (first, sums) = exported(&from).await;
    assert_eq!(count(&sums, Kind::Tenant), 2);
    assert_eq!(count(&sums, Kind::Token), 4);
    assert_eq!(count(&sums, Kind::Admin), 2);
    assert_eq!(count(&sums, Kind::Setting), 2, "the heartbeat is not one");
    assert_eq!(count(&sums, Kind::Card), 2);
    assert_eq!(count(&sums, Kind::Push), 6);
    assert_eq!(count(&sums, Kind::Agent), 2);
    assert_eq!(count(&sums, Kind::Task), 20);
    assert_eq!(count(&sums, Kind::Key), 20);
    assert!(count(&sums, Kind::Event) > 60 && count(&sums, Kind::Artifact) > 15 && count(&sums, Kind::Audit) > 4);

    let target = tempfile::tempdir().unwrap();
    let to = Location::Sqlite(target.path().join("new/dir"));
    let imported = imported(&to, &first).await.unwrap();
    assert_eq!((&imported.archive, &imported.stored), (&sums, &sums));
    let (second, again) = exported(&to).await;
    assert_eq!(records(&first), records(&second));
    assert_eq!(again, sums);
    let mode = |path: &str| fs::metadata(target.path().join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("new/dir"), mode("new/dir/switchboard.db")), (0o700, 0o600));

    // The same counts and usage as where it came from, though they are not in the archive.
    let before = sqlite::open(dir.path(), sqlite::Options::default()).unwrap();
    let after = sqlite::open(&target.path().join("new/dir"), sqlite::Options::default()).unwrap();
    assert_same(before.as_ref(), after.as_ref(), tenant, &tasks).await;
}

/// What callers see is the same on both.
async fn assert_same(before: &dyn Store, after: &dyn Store, tenant: TenantId, tasks: &[TaskId]) {
    for id in [tenant, TenantId(tenant.0 + 1)] {
        // Events that were made odd by hand are counted where they are, not where they were made.
        assert_eq!(before.usage(id).await.unwrap().tasks, after.usage(id).await.unwrap().tasks);
    }
    let filter = || store::Filter {
        agent: None,
        among: Vec::new(),
        context: None,
        state: None,
        since: None,
        after: None,
        limit: 100,
        view: View::FULL,
    };
    let (old, new) = (before.list(tenant, filter()).await.unwrap(), after.list(tenant, filter()).await.unwrap());
    assert_eq!((old.total, old.tasks), (new.total, new.tasks));
    for task in tasks {
        let (old, new) = (before.head(tenant, *task).await.unwrap(), after.head(tenant, *task).await.unwrap());
        assert_eq!(old, new);
        let events = |store: Vec<store::Event>| store.into_iter().map(|e| (e.seq, e.kind, e.body)).collect::<Vec<_>>();
        let old = before.events(tenant, *task, 0, 1000).await.unwrap();
        assert!(old.iter().map(|event| event.seq).eq(1..=old.len() as u64));
        assert_eq!(events(old), events(after.events(tenant, *task, 0, 1000).await.unwrap()));
    }
    assert_eq!(before.tokens(tenant).await.unwrap(), after.tokens(tenant).await.unwrap());
    assert_eq!(before.admin_tokens().await.unwrap(), after.admin_tokens().await.unwrap());
    assert_eq!(before.all_agents().await.unwrap().1, after.all_agents().await.unwrap().1);
    assert_eq!(before.audit(None, 100).await.unwrap(), after.audit(None, 100).await.unwrap());
    // A repetition finds its task.
    let again = after.accept(tenant, begin(TaskId::mint(), 7, false)).await.unwrap();
    assert_eq!((again.task, again.duplicate), (tasks[7], true));
    // New rows do not collide with old ones.
    let more = after.create_tenant("third").await.unwrap();
    assert!(more.id.0 > tenant.0 + 1);
}

#[tokio::test]
async fn usage_is_counted_again() {
    let (dir, from, tenant, _) = source().await;
    let (bytes, _) = exported(&from).await;
    let before = sqlite::open(dir.path(), sqlite::Options::default()).unwrap();
    let target = tempfile::tempdir().unwrap();
    imported(&Location::Sqlite(target.path().to_owned()), &bytes).await.unwrap();
    let after = sqlite::open(target.path(), sqlite::Options::default()).unwrap();
    assert_eq!(before.usage(tenant).await.unwrap(), after.usage(tenant).await.unwrap());
}

#[tokio::test]
async fn running_work_is_due_and_known_as_interrupted() {
    let (_dir, from, _, tasks) = source().await;
    let target = tempfile::tempdir().unwrap();
    let (bytes, _) = exported(&from).await;
    imported(&Location::Sqlite(target.path().to_owned()), &bytes).await.unwrap();
    let store = sqlite::open(target.path(), sqlite::Options::default()).unwrap();
    let leased = store.claim(Claim::new(term(), vec![Room::new(agent(), 100)])).await.unwrap();
    let ran: Vec<_> = leased.iter().filter(|turn| turn.interrupted).map(|turn| turn.lease.task).collect();
    let waited = leased.iter().filter(|turn| !turn.interrupted).count();
    assert_eq!(waited, 5, "every fourth was never leased");
    assert!(ran.contains(&tasks[3]) && ran.contains(&tasks[11]) && ran.contains(&tasks[19]), "{ran:?}");
    for turn in leased.iter().filter(|turn| turn.interrupted) {
        assert_eq!((turn.lease.generation, turn.lease.attempt), (2, 2), "an attempt was lost");
        assert_eq!(turn.lease.tries, if turn.lease.task == tasks[19] { 1 } else { 2 });
        end(store.as_ref(), &turn.lease, TaskState::Completed).await;
    }
}

#[tokio::test]
async fn a_conversation_goes_on_where_it_was_moved_to() {
    let (_dir, from, tenant, tasks) = source().await;
    let target = tempfile::tempdir().unwrap();
    let (bytes, _) = exported(&from).await;
    imported(&Location::Sqlite(target.path().to_owned()), &bytes).await.unwrap();
    let store = sqlite::open(target.path(), sqlite::Options::default()).unwrap();
    let task = tasks[2];
    let before = store.task(tenant, task, View::FULL).await.unwrap();
    assert_eq!(before.state, TaskState::InputRequired);
    let answer = Accept {
        target: Target::Continue { task, max_waiting: 8, submitted: status(task, TaskState::Submitted, None) },
        message_id: "answer".into(),
        message: serde_json::to_vec(&message("answer", Role::User, "42")).unwrap().into(),
        idempotency: None,
        ..begin(task, 2, true)
    };
    let lease = store.accept(tenant, answer).await.unwrap().lease.unwrap();
    assert_eq!(lease.generation, 2);
    end(store.as_ref(), &lease, TaskState::Completed).await;
    let after = store.task(tenant, task, View::FULL).await.unwrap();
    assert_eq!((after.state, after.seq), (TaskState::Completed, before.seq + 3));
    assert_eq!(after.history[..before.history.len()], before.history[..], "what was said stays in its order");
    let said = store.history(tenant, task, u64::MAX).await.unwrap();
    let said: Vec<&str> = said.iter().map(|message| message.message_id.as_str()).collect();
    let reply = task.reply_id(1);
    assert_eq!(said, ["m", &reply, "answer", &reply]);
}

/// Its last line does not speak of kinds that came later; one that has some of them must.
#[tokio::test]
async fn an_archive_of_before_there_was_a_kind_is_taken() {
    let without = |bytes: &[u8], kinds_gone: &[&str]| {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let (records, last) = text.trim_end().rsplit_once('\n').unwrap();
        let mut last: serde_json::Value = serde_json::from_str(last).unwrap();
        let kinds = last["end"]["kinds"].as_array_mut().unwrap();
        for gone in kinds_gone {
            assert_eq!(kinds.pop().unwrap()["kind"], *gone);
        }
        format!("{records}\n{last}\n").into_bytes()
    };
    let (dir, from, ..) = source().await;
    let (bytes, _) = exported(&from).await;
    let target = tempfile::tempdir().unwrap();
    let to = Location::Sqlite(target.path().to_owned());
    // The last first.
    let kinds = ["admins", "agents", "pushes", "cards", "keys"];
    for most in 1..=5 {
        let gone = &kinds[..most];
        assert!(matches!(imported(&to, &without(&bytes, gone)).await, Err(Error::Altered(_))), "{gone:?}");
    }
    raw(dir.path())
        .execute_batch(
            "DELETE FROM push_configs; UPDATE a2a_tasks SET pushes = 0; DELETE FROM cards; DELETE FROM tenant_agents;
             DELETE FROM admin_tokens",
        )
        .unwrap();
    let (bytes, sums) = exported(&from).await;
    for most in 1..=4 {
        let gone = &kinds[..most];
        let target = tempfile::tempdir().unwrap();
        let to = Location::Sqlite(target.path().to_owned());
        assert_eq!(imported(&to, &without(&bytes, gone)).await.unwrap().stored, sums, "{gone:?}");
    }
}

#[tokio::test]
async fn an_archive_that_was_changed_leaves_nothing() {
    let (_dir, from, _, _) = source().await;
    let (bytes, _) = exported(&from).await;
    let target = tempfile::tempdir().unwrap();
    let to = Location::Sqlite(target.path().join("data"));
    let journal = target.path().join("data/switchboard.db");
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let mut wrong: Vec<(&str, Vec<u8>)> = vec![
        ("empty", Vec::new()),
        ("something else", b"{\"other\":1}\n".to_vec()),
        ("cut in a line", bytes[..bytes.len() / 2].to_vec()),
        ("cut between lines", lines[..lines.len() / 2].concat()),
        ("without its last line", lines[..lines.len() - 1].concat()),
        ("last line without its end", bytes[..bytes.len() - 1].to_vec()),
        ("with more behind it", [&bytes[..], b"\n"].concat()),
        ("without its first line", lines[1..].concat()),
        ("a line twice", [&lines[..3], &lines[2..]].concat().concat()),
    ];
    let mut swapped = lines.clone();
    swapped.swap(1, 2);
    wrong.push(("two lines swapped", swapped.concat()));
    let mut without = lines.clone();
    without.remove(lines.len() / 2);
    wrong.push(("a line left out", without.concat()));
    for (what, bytes) in &wrong {
        let error = imported(&to, bytes).await.unwrap_err();
        assert!(!journal.exists(), "{what}: {error}");
    }
    // Any bit of any byte, here of some; each is refused, and most only at the last line.
    let step = bytes.len() / 97;
    for at in (0..bytes.len()).step_by(step).chain(bytes.len() - 40..bytes.len()) {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        let error = imported(&to, &bytes).await.unwrap_err();
        assert!(!journal.exists(), "byte {at}: {error}");
    }
    imported(&to, &bytes).await.unwrap();
}

#[tokio::test]
async fn a_later_format_is_refused_by_its_number() {
    let target = tempfile::tempdir().unwrap();
    for (program, made_by) in
        [(r#""9.8.7""#, "made by `sb` 9.8.7"), (r#""x\u001b[1m""#, "made by a newer version"), ("1", "a newer")]
    {
        let header = format!(r#"{{"archive":9,"created_at":1,"source":"x","program":{program},"more":true}}"#);
        let bytes = with_header(&header, "");
        let error = imported(&Location::Sqlite(target.path().to_owned()), bytes.as_bytes()).await.unwrap_err();
        assert!(matches!(error, Error::FromTheFuture { found: 9, .. }), "{error}");
        assert!(error.to_string().contains(made_by), "{error}");
    }
}

/// An archive with another first line.
fn with_header(header: &str, rest: &str) -> String {
    let sum = sha2::Digest::finalize(<sha2::Sha256 as sha2::Digest>::new_with_prefix(header));
    format!("{{\"switchboard\":{header},\"sha256\":\"{sum:x}\"}}\n{rest}")
}

#[tokio::test]
async fn archives_of_the_first_format_are_still_read() {
    let (_dir, from, _, _) = source().await;
    let (bytes, _) = exported(&from).await;
    let text = String::from_utf8(bytes).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    assert!(first.contains(r#""archive":2,"#) && first.contains(r#""program":""#), "{first}");
    let target = tempfile::tempdir().unwrap();
    let old = with_header(r#"{"archive":1,"created_at":1,"source":"sqlite 7"}"#, rest);
    imported(&Location::Sqlite(target.path().to_owned()), old.as_bytes()).await.unwrap();
}

/// The last version of the program that wrote each earlier format, beginning with the first.
const LAST_WRITERS: [&str; 1] = ["0.1.0"];

#[tokio::test]
async fn a_format_names_a_program_that_wrote_no_earlier_format() {
    let (_dir, from, _, _) = source().await;
    let (bytes, _) = exported(&from).await;
    let first = bytes.split(|byte| *byte == b'\n').next().unwrap();
    let first: serde_json::Value = serde_json::from_slice(first).unwrap();
    let (format, program) = (&first["switchboard"]["archive"], first["switchboard"]["program"].as_str().unwrap());
    assert_eq!(program, env!("CARGO_PKG_VERSION"));
    assert_eq!(*format, LAST_WRITERS.len() + 1, "name the version that wrote the format before, and raise this one's");
    // An importer that does not know the format names the program as the one to install.
    let numbers = |version: &str| version.split('.').map(|n| n.parse().unwrap()).collect::<Vec<u32>>();
    assert!(LAST_WRITERS.iter().all(|last| numbers(last) < numbers(program)), "{program} wrote an earlier format");
}

#[tokio::test]
async fn a_target_in_use_or_with_content_is_refused() {
    let (_dir, from, _, _) = source().await;
    let (bytes, _) = exported(&from).await;
    let target = tempfile::tempdir().unwrap();
    let to = Location::Sqlite(target.path().to_owned());
    let store = sqlite::open(target.path(), sqlite::Options::default()).unwrap();
    assert!(matches!(imported(&to, &bytes).await.unwrap_err(), Error::InUse));
    store.create_tenant("here").await.unwrap();
    drop(store);
    let error = imported(&to, &bytes).await.unwrap_err();
    assert!(matches!(&error, Error::NotEmpty(_)) && error.to_string().contains("1 tenants"), "{error}");
    let store = sqlite::open(target.path(), sqlite::Options::default()).unwrap();
    assert_eq!(store.tenants().await.unwrap().len(), 1, "it is as it was");
    drop(store);
    // A journal that was only opened is empty.
    let target = tempfile::tempdir().unwrap();
    drop(sqlite::open(target.path(), sqlite::Options::default()).unwrap());
    imported(&Location::Sqlite(target.path().to_owned()), &bytes).await.unwrap();
    let nothing = tempfile::tempdir().unwrap();
    let error = archive::export(&Location::Sqlite(nothing.path().to_owned()), &mut Vec::new(), None, &quiet).await;
    assert!(matches!(error.unwrap_err(), Error::NoJournal(_)));
    assert_eq!(fs::read_dir(nothing.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_backup_comes_back_whole() {
    let (dir, from, tenant, tasks) = source().await;
    let (_, sums) = exported(&from).await;
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("a%20b?c#.db");
    assert_eq!(archive::backup(dir.path(), &file, &quiet).unwrap(), sums);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "nothing is left beside it");
    assert!(archive::backup(dir.path(), &file, &quiet).is_err(), "what is there is not overwritten");

    let target = place.path().join("target");
    let to = Location::Sqlite(target.clone());
    let restored = archive::restore(&to, &file, &all(), &quiet).await.unwrap();
    assert_eq!((&restored.archive, &restored.stored), (&sums, &sums));
    let left: Vec<_> = fs::read_dir(&target).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["switchboard.db"]);
    assert_eq!(fs::metadata(target.join("switchboard.db")).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(archive::restore(&to, &file, &all(), &quiet).await.unwrap_err(), Error::NotEmpty(_)));
    let before = sqlite::open(dir.path(), sqlite::Options::default()).unwrap();
    let after = sqlite::open(&target, sqlite::Options::default()).unwrap();
    assert_same(before.as_ref(), after.as_ref(), tenant, &tasks).await;
    assert!(matches!(archive::restore(&to, &file, &all(), &quiet).await.unwrap_err(), Error::InUse));

    // A damaged page is found, and nothing is put in place.
    let mut bytes = fs::read(&file).unwrap();
    let page = bytes.len() / 2 / 4096 * 4096;
    bytes[page..page + 4096].fill(0x55);
    fs::write(&file, bytes).unwrap();
    let other = place.path().join("other");
    let error = archive::restore(&Location::Sqlite(other.clone()), &file, &all(), &quiet).await.unwrap_err();
    assert!(matches!(error, Error::BadBackup(_)), "{error}");
    assert!(!other.exists());
}

/// While others write, both are of one moment: each task's log is as long as its row says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exports_and_backups_are_of_one_moment() {
    let dir = tempfile::tempdir().unwrap();
    let store = sqlite::open(dir.path(), sqlite::Options::default()).unwrap();
    let tenant = store.create_tenant("t").await.unwrap().id;
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for _ in 0..8 {
        let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
        writers.push(tokio::spawn(async move {
            let mut done = Vec::new();
            while !stop.load(Relaxed) {
                let task = TaskId::mint();
                let mut accept = begin(task, 1, true);
                accept.idempotency = None;
                let lease = store.accept(tenant, accept).await.unwrap().lease.unwrap();
                end(store.as_ref(), &lease, TaskState::Completed).await;
                done.push(task);
                // Enough to be in the way of a copy, not so much that the test is about it.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            done
        }));
    }
    let location = Location::Sqlite(dir.path().to_owned());
    let place = tempfile::tempdir().unwrap();
    for n in 0..3 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let (bytes, sums) = exported(&location).await;
        let to = place.path().join(format!("export-{n}"));
        imported(&Location::Sqlite(to.clone()), &bytes).await.unwrap();
        assert_whole(&to, count(&sums, Kind::Task));
        let file = place.path().join(format!("backup-{n}.db"));
        let sums = archive::backup(dir.path(), &file, &quiet).unwrap();
        let to = place.path().join(format!("restore-{n}"));
        archive::restore(&Location::Sqlite(to.clone()), &file, &all(), &quiet).await.unwrap();
        assert_whole(&to, count(&sums, Kind::Task));
    }
    stop.store(true, Relaxed);
    let mut written = 0;
    for writer in writers {
        written += writer.await.unwrap().len() as u64;
    }
    let (_, sums) = exported(&location).await;
    assert_eq!(count(&sums, Kind::Task), written);
}

fn assert_whole(dir: &Path, tasks: u64) {
    let conn = raw(dir);
    let number = |sql: &str| conn.query_row(sql, (), |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(number("SELECT count(*) FROM a2a_tasks"), i64::try_from(tasks).unwrap());
    let broken = number(
        "SELECT count(*) FROM a2a_tasks t WHERE seq <> (SELECT count(*) FROM a2a_events WHERE task = t.pk)
           OR seq <> (SELECT max(seq) FROM a2a_events WHERE task = t.pk)",
    );
    assert_eq!(broken, 0, "logs end where their tasks say");
}

#[tokio::test]
async fn between_the_stores_nothing_changes() {
    let (dir, from, tenant, tasks) = source().await;
    let (first, sums) = exported(&from).await;
    let (_database, there) = database();
    let error = archive::export(&there, &mut Vec::new(), None, &quiet).await.unwrap_err();
    assert!(matches!(error, Error::NoJournal(_)), "{error}");
    let stored = imported(&there, &first).await.unwrap().stored;
    assert_eq!(stored, sums);
    let (second, _) = exported(&there).await;
    assert_eq!(records(&first), records(&second));
    let target = tempfile::tempdir().unwrap();
    let back = Location::Sqlite(target.path().to_owned());
    imported(&back, &second).await.unwrap();
    assert_eq!(records(&exported(&back).await.0), records(&first));
    let error = imported(&there, &first).await.unwrap_err();
    assert!(matches!(error, Error::NotEmpty(_)), "{error}");

    let before = sqlite::open(dir.path(), sqlite::Options::default()).unwrap();
    let after = store::open(&there, store::OpenOptions::default()).await.unwrap();
    assert_eq!(before.usage(tenant).await.unwrap(), after.usage(tenant).await.unwrap());
    assert_same(before.as_ref(), after.as_ref(), tenant, &tasks).await;
    assert!(matches!(imported(&there, &first).await.unwrap_err(), Error::InUse));
    drop(after);
}

#[tokio::test]
async fn a_changed_archive_leaves_a_database_empty() {
    let (_dir, from, _, _) = source().await;
    let (mut bytes, _) = exported(&from).await;
    let (_database, there) = database();
    let good = bytes.clone();
    let at = bytes.len() * 9 / 10;
    bytes[at] ^= 1;
    imported(&there, &bytes).await.unwrap_err();
    imported(&there, &good[..good.len() * 9 / 10]).await.unwrap_err();
    imported(&there, &good).await.unwrap();
}

#[tokio::test]
async fn a_backup_of_sqlite_can_go_to_postgres() {
    let (dir, from, _, _) = source().await;
    let (first, sums) = exported(&from).await;
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("backup.db");
    archive::backup(dir.path(), &file, &quiet).unwrap();
    let (_database, there) = database();
    let restored = archive::restore(&there, &file, &all(), &quiet).await.unwrap();
    assert_eq!((&restored.archive, &restored.stored), (&sums, &sums));
    assert_eq!(records(&exported(&there).await.0), records(&first));
    assert!(matches!(archive::restore(&there, &file, &all(), &quiet).await.unwrap_err(), Error::NotEmpty(_)));
}

#[tokio::test]
async fn artifacts_of_before_and_after_an_upgrade_go_to_sqlite_together() {
    let (database, location) = database();
    let url = database.url().parse().unwrap();
    let store = store::postgres::open(&url, store::postgres::Options::default()).await.unwrap();
    let tenant = store.create_tenant("first").await.unwrap().id;
    let task = TaskId::mint();
    let lease = store.accept(tenant, begin(task, 1, true)).await.unwrap().lease.unwrap();
    for n in 0..4 {
        let artifact = Artifact { artifact_id: format!("a{n}"), parts: vec![Part::text("x")], ..Artifact::default() };
        let drafts = vec![Draft::artifact(task, CONTEXT, artifact, false, false, None, clock::now()).unwrap()];
        store.append(&lease, Append { drafts, end: None, ..Append::default() }).await.unwrap();
    }
    end(store.as_ref(), &lease, TaskState::Completed).await;
    store.close().await;
    let (client, link) = tokio_postgres::connect(database.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(link);
    // An instance of before does not say which event brought an artifact.
    client.batch_execute("UPDATE a2a_artifacts SET seq = 0 WHERE seq > 3").await.unwrap();
    let (bytes, _) = exported(&location).await;
    let target = tempfile::tempdir().unwrap();
    let here = Location::Sqlite(target.path().join("data"));
    imported(&here, &bytes).await.unwrap();
    let store = sqlite::open(&target.path().join("data"), sqlite::Options::default()).unwrap();
    let task = store.task(tenant, task, View::FULL).await.unwrap().to_task().unwrap();
    let ids: Vec<&str> = task.artifacts.iter().map(|artifact| artifact.artifact_id.as_str()).collect();
    assert_eq!(ids, ["a0", "a1", "a2", "a3"]);
}
