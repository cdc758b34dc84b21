//! A server that calls a server that calls a server, while they are killed and stopped: each message is worked on once, at the
//! end of the chain, and its answer comes back whole. A remote that is restarted while many send to it costs no task.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{
    http::{Api, artifact_text, fresh, is_terminal, message, state, text, to, to_at_once, with_json},
    is_long,
    random::Random,
};
use crate::chaos::{Fault, Installation, Instances};

/// Starts a server of a chain, which keeps its address. It calls the agent at this URL as its remote `next`.
async fn link(next: Option<&str>, broken_promise: Option<&'static str>) -> Instances {
    let mut installation = Installation::on_sqlite();
    if let Some(promise) = broken_promise {
        installation = installation.breaking(promise);
    }
    if let Some(url) = next {
        installation = installation.with_config("[outbound]\npoll = \"200ms\"\n");
        let auth = "{scheme: bearer, credentialsEnv: SB_BOOTSTRAP_TOKEN}";
        let remotes = format!("agents:\n  - name: next\n    url: {url}\n    auth: {auth}\n");
        installation.home.write(".config/switchboard/agents.yaml", remotes);
    }
    let link = Instances::start_at_one_address(installation).await;
    let begun = Instant::now();
    while next.is_some() && link[0].api().get("/v1/remotes").await.ok()["remotes"][0]["cardAvailable"] != true {
        assert!(begun.elapsed() < Duration::from_secs(10), "the remote is not known: {}", link[0].log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    link
}

/// Three servers: the first sends to the agent `stream` of the last, through the one in the middle.
async fn chain(broken_promise: Option<&'static str>) -> [Instances; 3] {
    let last = link(None, None).await;
    let middle = link(Some(&format!("{}/a2a/agents/stream", last[0].url)), broken_promise).await;
    let first = link(Some(&format!("{}/a2a/agents/next", middle[0].url)), broken_promise).await;
    [first, middle, last]
}

/// How many tasks a server has.
fn tasks(link: &Instances) -> usize {
    let data = testkit::temp_store::TempStore::file(&link.installation.data_dir("a"));
    let rows = data.look(&["SELECT count(*) FROM a2a_tasks"]);
    rows[0][0][0].as_deref().and_then(|count| count.parse().ok()).expect("a number")
}

fn chunks(count: usize) -> String {
    (1..=count).map(|n| format!("chunk {n} of {count}\n")).collect()
}

/// Sends a message until it is acknowledged, always with the same key. Returns the task.
async fn send_until_acknowledged(api: &Api, request: &Value) -> Value {
    let key = format!("key-{}", fresh());
    let begun = Instant::now();
    loop {
        let post = with_json(api.request(Method::POST, "/a2a/message:send"), request).header("Idempotency-Key", &key);
        if let Ok(answer) = post.send().await
            && answer.status().is_success()
            && let Ok(body) = answer.bytes().await
        {
            let mut answer: Value = serde_json::from_slice(&body).expect("an answer is JSON");
            return answer["task"].take();
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "a message is not acknowledged");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Which messages go through a chain, and what happens to its servers meanwhile.
struct Storm {
    /// Messages that are on their way all the while: three seconds each.
    long: usize,
    /// Short messages, and how many senders send them.
    short: usize,
    senders: usize,
    /// The place in the chain of each victim, and the fault. They happen in a random order.
    faults: Vec<(usize, bool)>,
    broken_promise: Option<&'static str>,
}

const KILL: bool = true;
const STOP: bool = false;

impl Storm {
    /// Returns all tasks that did not end well, and how many tasks each server has for each that was sent.
    async fn run(mut self) -> (Vec<String>, [f64; 3]) {
        let random = &mut Random::new();
        let mut chain = chain(self.broken_promise).await;
        let api = chain[0][0].api();
        let mut sent = Vec::new();
        for n in 0..self.long {
            let task = api.send(&to_at_once("next", &format!("{} chunks, 60 ms apart", 50 + n))).await;
            sent.push((text(&task, "/id").to_owned(), 50 + n));
        }
        let mut sending = JoinSet::new();
        // The short messages are spread over the time that the faults take.
        let pause = 1_500 * self.faults.len() as u64 * self.senders as u64 / self.short.max(1) as u64;
        for sender in 0..self.senders {
            let (api, mut random) = (api.clone(), random.fork());
            let share = self.short / self.senders + usize::from(sender < self.short % self.senders);
            sending.spawn(async move {
                let mut sent = Vec::new();
                for n in 0..share {
                    let request = to_at_once("next", &format!("{} chunks, 60 ms apart", 3 + n % 5));
                    let task = send_until_acknowledged(&api, &request).await;
                    sent.push((text(&task, "/id").to_owned(), 3 + n % 5));
                    tokio::time::sleep(Duration::from_millis(random.below(2 * pause + 1))).await;
                }
                sent
            });
        }
        while !self.faults.is_empty() {
            tokio::time::sleep(Duration::from_millis(200 + random.below(800))).await;
            let (victim, is_kill) = self.faults.swap_remove(random.index(self.faults.len()));
            let away = Duration::from_millis(random.below(500));
            let fault = if is_kill { Fault::Kill { away } } else { Fault::Stop { away } };
            chain[victim].apply(&fault, 0).await;
        }
        let begun = Instant::now();
        sent.extend(sending.join_all().await.into_iter().flatten());
        let mut wrong = Vec::new();
        for (id, count) in &sent {
            let task = self.ended(&api, id).await;
            if state(&task) != "COMPLETED" || artifact_text(&task) != chunks(*count) {
                wrong.push(format!("{id}: {:?} {}", task["status"], artifact_text(&task)));
            }
        }
        let arrived = chain.each_ref().map(|link| tasks(link) as f64 / sent.len() as f64);
        let bad = wrong.len();
        eprintln!("{} tasks, {bad} ended badly, the last {:?} after the last fault", sent.len(), begun.elapsed());
        (wrong, arrived)
    }

    /// Reads a task until it has ended.
    async fn ended(&self, api: &Api, id: &str) -> Value {
        let patience = Duration::from_secs(if is_long() { 300 } else { 60 });
        let begun = Instant::now();
        loop {
            let task = api.task(id).await;
            if is_terminal(state(&task)) {
                return task;
            }
            assert!(begun.elapsed() < patience, "still {task:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chain_of_three_survives_kills_and_stops_of_any() {
    let storm = if is_long() {
        let random = &mut Random::new();
        let faults =
            [vec![KILL; 14], vec![STOP; 11]].concat().into_iter().map(|kill| (random.index(3), kill)).collect();
        Storm { long: 10, short: 500, senders: 12, faults, broken_promise: None }
    } else {
        // The agent of the last is an ordinary one, which a kill interrupts: it is tried three times.
        let faults = vec![(0, KILL), (0, KILL), (1, KILL), (1, KILL), (2, KILL), (0, STOP), (1, STOP), (2, STOP)];
        Storm { long: 10, short: 30, senders: 6, faults, broken_promise: None }
    };
    let (wrong, arrived) = storm.run().await;
    assert!(wrong.is_empty(), "{wrong:#?}");
    // Each task has ended well, so each message has arrived at least once.
    assert_eq!(arrived, [1.0; 3], "none is doubled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_a_turn_that_does_not_keep_what_it_has_sent_is_noticed() {
    let broken_promise = Some("remote-forgets");
    let storm = Storm { long: 10, short: 0, senders: 0, faults: vec![(0, KILL); 4], broken_promise };
    let (wrong, arrived) = storm.run().await;
    assert!(!wrong.is_empty() || arrived != [1.0; 3], "four kills, and nothing of it was seen");
}

/// A stream that is read goes on over a kill of the server behind it, without a gap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_goes_on_while_the_server_behind_it_is_killed() {
    let [first, mut middle, _last] = chain(None).await;
    let request = json!({"tenant": "next", "message": message("40 chunks, 60 ms apart")});
    let mut sse = first[0].api().stream("/a2a/message:stream", &request).await;
    let mut said = String::new();
    let mut was_killed = false;
    loop {
        let frame = sse.next_however_long().await.expect("the stream does not end before the task");
        if let Some(update) = frame.body.get("artifactUpdate") {
            // What is said anew replaces what was said before.
            if update["append"] != true {
                said.clear();
            }
            said.push_str(&frame.artifact_text());
        }
        if !was_killed && said.contains("chunk 5 ") {
            was_killed = true;
            middle.apply(&Fault::Kill { away: Duration::from_millis(200) }, 0).await;
        }
        if frame.is_end() {
            assert_eq!(frame.state(), Some("COMPLETED"));
            break;
        }
    }
    assert!(was_killed);
    assert_eq!(said, chunks(40));
}

/// Senders send to a remote, one message after the other each, and wait for the answers, while it is killed and stopped in
/// turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_task_fails_while_its_remote_is_restarted() {
    let restarts = if is_long() { 30 } else { 3 };
    let random = &mut Random::new();
    let mut remote = link(None, None).await;
    let first = link(Some(&format!("{}/a2a/agents/echo", remote[0].url)), None).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut sending = JoinSet::new();
    for _ in 0..12 {
        let (api, stop) = (first[0].api(), Arc::clone(&stop));
        sending.spawn(async move {
            let (mut tasks, mut wrong) = (0, Vec::new());
            while !stop.load(Ordering::Relaxed) {
                let task = send_until_acknowledged(&api, &to("next", "hello")).await;
                tasks += 1;
                if state(&task) != "COMPLETED" || artifact_text(&task) != "hello" {
                    wrong.push(format!("{}: {:?}", state(&task), task["status"]));
                }
            }
            (tasks, wrong)
        });
    }
    for n in 0..restarts {
        tokio::time::sleep(Duration::from_millis(300 + random.below(700))).await;
        let away = Duration::from_millis(random.below(500));
        let fault = if n % 2 == 0 { Fault::Kill { away } } else { Fault::Stop { away } };
        remote.apply(&fault, 0).await;
    }
    // Turns that wait for a circuit breaker go on soon after the remote is back.
    tokio::time::sleep(Duration::from_millis(500)).await;
    stop.store(true, Ordering::Relaxed);
    let sent = sending.join_all().await;
    let count: usize = sent.iter().map(|(tasks, _)| tasks).sum();
    let wrong: Vec<String> = sent.into_iter().flat_map(|(_, wrong)| wrong).collect();
    eprintln!("{count} tasks of 12 senders, {restarts} restarts: {} ended badly", wrong.len());
    assert!(wrong.is_empty(), "{:#?}", &wrong[..wrong.len().min(20)]);
    assert_eq!(tasks(&remote), count, "none is doubled");
}
