//! Faults: kill -9 under load and workers that sleep through their lease.
//!
//! Each promise has a negative control: the same test against a server that breaks the promise on purpose
//! (`SB_FAULT`, debug builds only) must find something. `SB_LONG=1` runs the long form; `SB_SEED` repeats a run. What
//! was found is in `docs/faults.md`.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use reqwest::Method;
use serde_json::Value;
use store::{Store, TaskId, TenantId};
use tokio::{
    sync::{Mutex, watch},
    task::JoinSet,
};

use super::{
    http::{Api, is_terminal, state, to_at_once, with_json},
    log::{has_frame, is_whole},
    random::Random,
    rig::Rig,
    sse::{Frame, Sse},
};

/// A program that takes a second and a half and says what it does.
const WORKER: &str = r#"
kind = "command"
description = "Counts slowly"
concurrency = 48
max_attempts = 50
[command]
argv = ["sh", "$DIR/worker.sh"]
output = "text"
"#;
const WORKER_SCRIPT: &str = "i=0\nwhile [ $i -lt 15 ]; do echo \"line $i\"; i=$((i+1)); sleep 0.1; done\n";

/// A program that says nothing for a while, so that a closed pipe does not end it.
const SILENT: &str = r#"
kind = "command"
description = "Waits"
concurrency = 48
max_attempts = 50
[command]
argv = ["sh", "$DIR/worker-silent.sh"]
output = "text"
"#;
const SILENT_SCRIPT: &str = "i=0\nwhile [ $i -lt 50 ]; do i=$((i+1)); sleep 0.1; done\n";

/// How long everything that was acknowledged may take to end after the last kill.
const TO_THE_END: Duration = Duration::from_secs(120);

/// What is done to the server.
#[derive(Clone, Copy)]
struct Storm {
    kills: u32,
    /// Tasks that run when a kill comes.
    tasks: usize,
    /// Streams that follow some of them.
    followers: usize,
    fault: Option<&'static str>,
}

/// What was found afterwards. The names are those of a Jepsen report.
#[derive(Debug, Default, PartialEq, Eq)]
struct Findings {
    acknowledged: usize,
    /// Acknowledged and gone.
    lost: usize,
    /// Never ended.
    unfinished: usize,
    /// Not acknowledged, but there: the answer died with the server.
    recovered: u64,
    /// Logs with a gap or not exactly one end.
    broken_logs: usize,
    followed: usize,
    /// Streams that differ from their log.
    wrong_streams: usize,
    /// Programs that outlived their server.
    survivors: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_loses_nothing_that_was_acknowledged() {
    let kills = if std::env::var_os("SB_LONG").is_some() { 20 } else { 3 };
    let found = Storm { kills, tasks: 200, followers: 50, fault: None }.run().await;
    eprintln!("{kills} kills: {found:?}");
    assert!(found.acknowledged >= 200 * kills as usize, "{found:?}");
    let clean = Findings {
        acknowledged: found.acknowledged,
        recovered: found.recovered,
        followed: found.followed,
        ..Findings::default()
    };
    assert_eq!(found, clean);
    assert!(found.followed >= 50 * kills as usize, "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_an_answer_before_the_commit_is_noticed() {
    let found = Storm { kills: 2, tasks: 40, followers: 0, fault: Some("ack-before-commit") }.run().await;
    assert!(found.lost > 0, "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_a_stream_that_skips_an_event_is_noticed() {
    let found = Storm { kills: 1, tasks: 20, followers: 20, fault: Some("skip-one") }.run().await;
    assert!(found.wrong_streams > 0, "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_a_program_that_outlives_its_server_is_noticed() {
    let found = Storm { kills: 1, tasks: 20, followers: 0, fault: Some("no-guard") }.run().await;
    assert!(found.survivors > 0, "{found:?}");
}

/// Two servers on one journal. The first is stopped in its turn for longer than its lease; the second takes the
/// task over. What the first says when it wakes must not count. Returns the log's length and state just after it
/// woke, and at the end.
async fn sleep_through_the_lease(fault: Option<&'static str>) -> (String, Vec<Value>) {
    let mut rig = Rig::start_with_agents("lease = \"2s\"\n", &[], fault).await;
    let second = rig.second().await;
    // The first to accept a message runs it.
    let task = rig.api().send(&to_at_once("slow", "2500")).await;
    let id = task["id"].as_str().expect("a task has an id").to_owned();
    tokio::time::sleep(Duration::from_millis(300)).await;
    stop_between_commits(&rig).await;
    let begun = Instant::now();
    let attempts = |frames: &[Frame]| frames.iter().filter(|frame| frame.state() == Some("WORKING")).count();
    let mut stream = second.api().subscribe(&id, Some(0)).await;
    // The second attempt says WORKING again.
    let mut seen = Vec::new();
    while attempts(&seen) < 2 {
        seen.push(stream.next().await.expect("the task is taken over"));
    }
    // By now the first one's two and a half seconds are over: it wakes up and wants to complete the task.
    tokio::time::sleep(Duration::from_millis(2800).saturating_sub(begun.elapsed())).await;
    rig.server.signal("CONT");
    tokio::time::sleep(Duration::from_millis(400)).await;
    let after_waking = state(&second.api().task(&id).await).to_owned();
    let frames: Vec<Value> = seen.into_iter().chain(stream.rest().await).map(|frame| frame.body).collect();
    (after_waking, frames)
}

/// Stops the server, but not in the middle of a commit: it would take the file's lock into its sleep, and nobody could
/// write until it wakes.
async fn stop_between_commits(rig: &Rig) {
    let journal = rig.journal().await;
    for n in 0..10 {
        rig.server.signal("STOP");
        let name = format!("probe-{n}");
        if tokio::time::timeout(Duration::from_millis(300), journal.create_tenant(&name)).await.is_ok() {
            return;
        }
        rig.server.signal("CONT");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the server was always in the middle of a commit");
}

#[tokio::test]
async fn a_worker_that_slept_through_its_lease_cannot_write() {
    let (after_waking, frames) = sleep_through_the_lease(None).await;
    assert_eq!(after_waking, "WORKING", "the second attempt is still at work");
    let ends = frames.iter().filter(|frame| is_end(frame)).count();
    assert_eq!(ends, 1, "{frames:#?}");
    assert!(frames.last().is_some_and(is_end), "{frames:#?}");
}

#[tokio::test]
async fn control_a_lease_without_a_fence_is_noticed() {
    let (after_waking, _) = sleep_through_the_lease(Some("no-fence")).await;
    assert_eq!(after_waking, "COMPLETED", "without a fence the sleeper ends what is no longer its own");
}

fn is_end(body: &Value) -> bool {
    body.pointer("/statusUpdate/status/state")
        .and_then(Value::as_str)
        .is_some_and(|state| is_terminal(state.trim_start_matches("TASK_STATE_")))
}

impl Storm {
    async fn run(self) -> Findings {
        let mut random = Random::new();
        let agents = [
            ("worker.toml", WORKER),
            ("worker.sh", WORKER_SCRIPT),
            ("silent.toml", SILENT),
            ("worker-silent.sh", SILENT_SCRIPT),
        ];
        let mut rig = Rig::start_with_agents("", &agents, self.fault).await;
        let mut found = Findings::default();
        let acknowledged = Arc::new(Mutex::new(Vec::new()));
        let (server, current) = watch::channel(rig.api());
        let mut followers: JoinSet<(String, Vec<Frame>)> = JoinSet::new();

        for _ in 0..self.kills {
            let started = start_tasks(&rig.api(), self.tasks).await;
            for id in started.iter().take(self.followers) {
                followers.spawn(follow(current.clone(), id.clone()));
            }
            acknowledged.lock().await.extend(started);
            let stragglers = keep_sending(&rig.api(), &acknowledged);
            tokio::time::sleep(Duration::from_millis(random.below(1200))).await;
            rig.kill9();
            drop(stragglers.join_all().await);
            found.survivors += survivors(&rig.agents_dir()).await;
            rig.restart().await;
            server.send_replace(rig.api());
        }

        let acknowledged = std::mem::take(&mut *acknowledged.lock().await);
        found.acknowledged = acknowledged.len();
        let journal = rig.journal().await;
        let tenant = journal.tenants().await.expect("tenants can be read")[0].id;
        let mut logs = BTreeMap::new();
        let begun = Instant::now();
        for id in acknowledged {
            let task = TaskId::parse(&id).expect("the server's ids are ids");
            match wait_for_the_end(journal.as_ref(), tenant, task, begun).await {
                Ended::Log(log) => {
                    found.broken_logs += usize::from(!is_whole(&log));
                    logs.insert(id, log);
                }
                Ended::Never => found.unfinished += 1,
                Ended::Missing => found.lost += 1,
            }
        }
        let all = rig.api().get("/a2a/tasks?pageSize=1").await.ok()["totalSize"].as_u64().expect("a number");
        found.recovered = all - logs.len() as u64 - found.unfinished as u64;
        // Whoever follows a task that was lost waits in vain.
        if found.lost > 0 {
            followers.abort_all();
        }
        while let Some(Ok((id, frames))) = followers.join_next().await {
            found.followed += 1;
            let log = logs.get(&id).map(Vec::as_slice).unwrap_or_default();
            found.wrong_streams += usize::from(!is_same(&frames, log));
        }
        found
    }
}

/// Starts tasks of all kinds; the ids of those that were acknowledged.
async fn start_tasks(api: &Api, count: usize) -> Vec<String> {
    let mut sends = JoinSet::new();
    let mut started = Vec::new();
    for n in 0..count {
        let api = api.clone();
        sends.spawn(async move {
            let request = match n % 8 {
                0 | 1 => to_at_once("stream", "30 50"),
                2 | 3 => to_at_once("slow", "1500"),
                4 => to_at_once("worker", "count"),
                5 => to_at_once("silent", "wait"),
                _ => to_at_once("stream", "200 5"),
            };
            api.send(&request).await["id"].as_str().expect("a task has an id").to_owned()
        });
        if sends.len() >= 16 {
            started.extend(sends.join_next().await.map(|id| id.expect("a send does not fail before the kill")));
        }
    }
    started.extend(sends.join_all().await);
    started
}

/// Senders that go on until the server dies, so that a kill always finds something on its way.
fn keep_sending(api: &Api, acknowledged: &Arc<Mutex<Vec<String>>>) -> JoinSet<()> {
    let mut senders = JoinSet::new();
    for _ in 0..4 {
        let api = api.clone();
        let acknowledged = Arc::clone(acknowledged);
        senders.spawn(async move {
            loop {
                let request = with_json(api.request(Method::POST, "/a2a/message:send"), &to_at_once("stream", "2 10"));
                let Ok(response) = request.send().await else { return };
                let Ok(body) = response.bytes().await else { return };
                let reply: Value = serde_json::from_slice(&body).expect("an answer is JSON");
                let id = reply.pointer("/task/id").and_then(Value::as_str).expect("a send is answered with a task");
                acknowledged.lock().await.push(id.to_owned());
            }
        });
    }
    senders
}

/// Follows a task to its end, across every death of the server.
async fn follow(mut server: watch::Receiver<Api>, id: String) -> (String, Vec<Frame>) {
    let mut frames: Vec<Frame> = Vec::new();
    loop {
        let api = server.borrow_and_update().clone();
        let after = frames.last().map_or(0, |frame| frame.id);
        let path = format!("/a2a/tasks/{id}:subscribe");
        let request = api.request(Method::POST, &path).header("Last-Event-ID", after.to_string());
        // The patience of a request ends its stream as well; this one is to last.
        let opened = request.timeout(TO_THE_END * 2).send().await;
        if let Ok(response) = opened
            && response.status().as_u16() == 200
        {
            let mut stream = Sse::of(response);
            while let Some(frame) = stream.next_however_long().await {
                frames.push(frame);
            }
            if frames.last().is_some_and(Frame::is_end) {
                return (id, frames);
            }
        }
        // Cut off: the next server goes on from the cursor.
        let _ = tokio::time::timeout(Duration::from_millis(200), server.changed()).await;
    }
}

enum Ended {
    Log(Vec<store::Event>),
    Never,
    Missing,
}

async fn wait_for_the_end(journal: &dyn Store, tenant: TenantId, task: TaskId, begun: Instant) -> Ended {
    loop {
        let Ok(head) = journal.head(tenant, task).await else { return Ended::Missing };
        if head.state.is_terminal() {
            return Ended::Log(journal.events(tenant, task, 0, 100_000).await.expect("the log can be read"));
        }
        if begun.elapsed() > TO_THE_END {
            return Ended::Never;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Whether a follower saw exactly what was written.
fn is_same(frames: &[Frame], log: &[store::Event]) -> bool {
    let written: Vec<Frame> = log
        .iter()
        .filter(|event| has_frame(event.kind))
        .map(|event| Frame { id: event.seq, body: serde_json::from_slice(&event.body).expect("events are JSON") })
        .collect();
    frames == written
}

/// How many programs of this directory still run a while after their server was killed. They are ended here.
async fn survivors(directory: &Path) -> usize {
    let mark = directory.display().to_string();
    let begun = Instant::now();
    loop {
        let running = running_programs(&mark);
        if running.is_empty() || begun.elapsed() > Duration::from_secs(3) {
            for pid in &running {
                let _ = std::process::Command::new("kill").args(["-s", "KILL", pid]).status();
            }
            return running.len();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn running_programs(mark: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("there is /proc").flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        let Ok(command) = std::fs::read(entry.path().join("cmdline")) else { continue };
        if pid.bytes().all(|b| b.is_ascii_digit())
            && String::from_utf8_lossy(&command).contains(&format!("{mark}/worker"))
        {
            found.push(pid);
        }
    }
    found
}
