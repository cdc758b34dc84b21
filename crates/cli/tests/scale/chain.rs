//! A server that calls a server that calls a server, while one of them is killed: each message is worked on once, at the end of the chain,
//! and its answer comes back whole. A remote that is restarted while many send to it costs none of their tasks.

use std::{
    collections::BTreeMap,
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
    http::{Api, array, artifact_text, fresh, is_terminal, state, text, to, to_at_once, with_json},
    random::Random,
    rig::{Server, TOKEN},
};
use crate::harness::Home;

/// A server of the chain, which keeps its address.
struct Link {
    home: Home,
    listen: String,
    fault: Option<&'static str>,
    server: Option<Server>,
}

/// What came of a run.
#[derive(Debug)]
struct Verdict {
    kills: usize,
    /// Those that did not end well, and how.
    wrong: Vec<String>,
    /// Messages that arrived at the end more than once, or never.
    not_once: Vec<String>,
}

impl Link {
    /// One that calls the agent `next` of the server at this URL, or the last one.
    async fn new(next: Option<&str>, fault: Option<&'static str>) -> Self {
        let home = Home::on_sqlite();
        if let Some(next) = next {
            home.configure("[outbound]\npoll = \"200ms\"\n");
            let entry = format!(
                "agents:\n  - name: next\n    url: {next}\n    auth: {{scheme: bearer, credentialsEnv: SB_BOOTSTRAP_TOKEN}}\n"
            );
            home.write(".config/switchboard/agents.yaml", entry);
        }
        let mut link = Self { home, listen: "127.0.0.1:0".to_owned(), fault, server: None };
        link.start().await;
        link.listen = link.server().address().to_owned();
        link
    }

    async fn start(&mut self) {
        let mut command = self.home.serving(&[], &[]);
        command.env("SB_LISTEN", &self.listen).env("SB_BOOTSTRAP_TOKEN", TOKEN);
        command.envs(self.fault.map(|fault| ("SB_FAULT", fault)));
        let log = self.home.path("server.log");
        self.server = Some(Server::start(&mut command, log).await.unwrap_or_else(|ended| panic!("{ended:?}")));
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    /// Ends it without a warning, and starts it again a moment later.
    async fn kill(&mut self, pause: Duration) {
        self.server = None;
        tokio::time::sleep(pause).await;
        self.start().await;
    }

    /// Ends it as it ends on SIGTERM, and starts it again a moment later.
    async fn stop(&mut self, pause: Duration) {
        let mut server = self.server.take().expect("it runs");
        assert!(server.ends_well().await, "{}", server.log());
        tokio::time::sleep(pause).await;
        self.start().await;
    }

    /// How many tasks it has.
    fn tasks(&self) -> usize {
        let rows = self.home.scratch.look(&["SELECT count(*) FROM a2a_tasks"]);
        rows[0][0][0].as_deref().and_then(|count| count.parse().ok()).expect("a number")
    }

    /// Waits until its remote is known.
    async fn knows_next(&self) {
        let api = self.server().api();
        for _ in 0..200 {
            let remotes = api.get("/v1/remotes").await.ok();
            if remotes["remotes"][0]["cardAvailable"] == true {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the remote is not known: {}", self.server().log());
    }
}

/// How many messages are on their way, and how long each takes.
const MESSAGES: usize = 10;

/// Sends messages through three servers and kills the one with this place in the chain now and then.
async fn storm(killed: usize, kills: usize, fault: Option<&'static str>) -> Verdict {
    let random = &mut Random::new();
    let last = Link::new(None, None).await;
    let stream = format!("{}/a2a/agents/stream", last.server().url);
    let middle = Link::new(Some(&stream), fault).await;
    middle.knows_next().await;
    let next = format!("{}/a2a/agents/next", middle.server().url);
    let first = Link::new(Some(&next), fault).await;
    first.knows_next().await;
    let mut chain = [first, middle, last];

    let api = chain[0].server().api();
    let mut sent = BTreeMap::new();
    for n in 0..MESSAGES {
        let said = format!("{} chunks, 60 ms apart", 50 + n);
        let task = api.send(&to_at_once("next", &said)).await;
        sent.insert(said, (text(&task, "/id").to_owned(), 50 + n));
    }
    for _ in 0..kills {
        tokio::time::sleep(Duration::from_millis(300 + random.below(900))).await;
        let pause = Duration::from_millis(random.below(400));
        chain[killed].kill(pause).await;
    }

    let mut verdict = Verdict { kills, wrong: Vec::new(), not_once: Vec::new() };
    let api = chain[0].server().api();
    for (said, (id, chunks)) in &sent {
        let task = api.task_when(id, is_terminal).await;
        let whole: String = (1..=*chunks).map(|n| format!("chunk {n} of {chunks}\n")).collect();
        if state(&task) != "COMPLETED" || artifact_text(&task) != whole {
            verdict.wrong.push(format!("{said}: {} {:?}", state(&task), task["status"]));
        }
    }
    // Whoever asks whether to send again has not sent twice.
    let page = chain[2].server().api().get("/a2a/tasks?pageSize=100&includeArtifacts=false").await.ok();
    let mut arrived: BTreeMap<String, usize> = BTreeMap::new();
    for task in array(&page, "/tasks") {
        let said = task["history"][0]["parts"][0]["text"].as_str().unwrap_or_default().to_owned();
        *arrived.entry(said).or_default() += 1;
    }
    for said in sent.keys() {
        let times = arrived.get(said).copied().unwrap_or(0);
        if times != 1 {
            verdict.not_once.push(format!("{said}: {times} times"));
        }
    }
    verdict
}

fn kills() -> usize {
    if is_long() { 12 } else { 4 }
}

impl Verdict {
    fn is_clean(&self) -> bool {
        self.wrong.is_empty() && self.not_once.is_empty()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chain_of_three_survives_kills_of_the_one_in_the_middle() {
    let verdict = storm(1, kills(), None).await;
    assert!(verdict.is_clean(), "{verdict:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chain_of_three_survives_kills_of_the_first() {
    let verdict = storm(0, kills(), None).await;
    assert!(verdict.is_clean(), "{verdict:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chain_of_three_survives_kills_of_the_last() {
    // Its agent is an ordinary one, and tried three times.
    let verdict = storm(2, 2, None).await;
    assert!(verdict.is_clean(), "{verdict:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_a_turn_that_does_not_keep_what_it_has_sent_is_noticed() {
    let verdict = storm(0, 4, Some("remote-forgets")).await;
    assert!(!verdict.is_clean(), "{} kills, and nothing of it was seen", verdict.kills);
}

/// A stream that somebody reads goes on over a kill of the server behind it, without a gap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_goes_on_while_the_server_behind_it_is_killed() {
    let last = Link::new(None, None).await;
    let stream = format!("{}/a2a/agents/stream", last.server().url);
    let mut middle = Link::new(Some(&stream), None).await;
    middle.knows_next().await;
    let next = format!("{}/a2a/agents/next", middle.server().url);
    let first = Link::new(Some(&next), None).await;
    first.knows_next().await;
    let request = json!({"tenant": "next", "message": super::http::message("40 chunks, 60 ms apart")});
    let api = first.server().api();
    let mut sse = api.stream("/a2a/message:stream", &request).await;
    let mut said = String::new();
    let mut killed = false;
    let mut ended: Option<Value> = None;
    while let Some(frame) = sse.next().await {
        let body = &frame.body;
        if let Some(update) = body.get("artifactUpdate") {
            // What is said anew takes the place of what was said before.
            if update["append"] != true {
                said.clear();
            }
            said.push_str(&frame.artifact_text());
        }
        if !killed && said.contains("chunk 5 ") {
            killed = true;
            middle.kill(Duration::from_millis(200)).await;
        }
        if frame.is_end() {
            ended = Some(body.clone());
            break;
        }
    }
    assert!(killed);
    let ended = ended.expect("it ends");
    assert_eq!(ended.pointer("/statusUpdate/status/state").and_then(Value::as_str), Some("TASK_STATE_COMPLETED"));
    let whole: String = (1..=40).map(|n| format!("chunk {n} of 40\n")).collect();
    assert_eq!(said, whole);
}

fn is_long() -> bool {
    std::env::var_os("SB_LONG").is_some()
}

/// What senders saw.
#[derive(Debug, Default)]
struct Sent {
    tasks: usize,
    /// Tasks that did not end well, and how.
    wrong: Vec<String>,
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

/// Reads a task until it has ended, from a server that may be away.
async fn ended(api: &Api, id: &str, patience: Duration) -> Value {
    let begun = Instant::now();
    loop {
        let get = api.request(Method::GET, &format!("/a2a/tasks/{id}"));
        let mut last = Value::Null;
        if let Ok(answer) = get.send().await
            && let Ok(body) = answer.bytes().await
            && let Ok(task) = serde_json::from_slice::<Value>(&body)
        {
            if task["status"].is_object() && is_terminal(state(&task)) {
                return task;
            }
            last = task;
        }
        assert!(begun.elapsed() < patience, "still {last:#}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Sends `tasks` messages through three servers, from as many senders at once as `senders` says, while each of the servers is killed or stopped
/// at random: so many `kills` and `stops` in all.
async fn storm_of_all(tasks: usize, senders: usize, kills: usize, stops: usize) {
    let random = &mut Random::new();
    let last = Link::new(None, None).await;
    let stream = format!("{}/a2a/agents/stream", last.server().url);
    let middle = Link::new(Some(&stream), None).await;
    middle.knows_next().await;
    let next = format!("{}/a2a/agents/next", middle.server().url);
    let first = Link::new(Some(&next), None).await;
    first.knows_next().await;
    let mut chain = [first, middle, last];
    let patience = Duration::from_secs(if is_long() { 300 } else { 60 });

    let blows = kills + stops;
    // The messages are spread over the time that the blows take.
    let pause = 1_500 * blows as u64 * senders as u64 / tasks as u64;
    let api = chain[0].server().api();
    let mut sending = JoinSet::new();
    for sender in 0..senders {
        let (api, mut random) = (api.clone(), random.fork());
        let share = tasks / senders + usize::from(sender < tasks % senders);
        sending.spawn(async move {
            let mut sent = Vec::new();
            for n in 0..share {
                let chunks = 3 + n % 5;
                let request = to_at_once("next", &format!("{chunks} chunks, 60 ms apart"));
                let task = send_until_acknowledged(&api, &request).await;
                sent.push((text(&task, "/id").to_owned(), chunks));
                tokio::time::sleep(Duration::from_millis(random.below(2 * pause + 1))).await;
            }
            sent
        });
    }
    let mut order: Vec<bool> = std::iter::repeat_n(true, kills).chain(std::iter::repeat_n(false, stops)).collect();
    while !order.is_empty() {
        tokio::time::sleep(Duration::from_millis(200 + random.below(800))).await;
        let kill = order.swap_remove(random.index(order.len()));
        let (hit, pause) = (random.index(chain.len()), Duration::from_millis(random.below(600)));
        if kill {
            chain[hit].kill(pause).await;
        } else {
            chain[hit].stop(pause).await;
        }
    }
    let begun = Instant::now();
    let mut all = Sent::default();
    while let Some(sent) = sending.join_next().await {
        for (id, chunks) in sent.expect("a sender sends") {
            let task = ended(&api, &id, patience).await;
            let whole: String = (1..=chunks).map(|n| format!("chunk {n} of {chunks}\n")).collect();
            all.tasks += 1;
            if state(&task) != "COMPLETED" || artifact_text(&task) != whole {
                all.wrong.push(format!("{id}: {} {:?} {}", state(&task), task["status"], artifact_text(&task)));
            }
        }
    }
    let arrived: Vec<usize> = chain.iter().map(Link::tasks).collect();
    eprintln!(
        "{} tasks, {kills} kills, {stops} stops: {} ended badly, {arrived:?} arrived, the last ended {:?} after the last blow",
        all.tasks,
        all.wrong.len(),
        begun.elapsed()
    );
    assert!(all.wrong.is_empty(), "{all:#?}");
    // Each of them has ended well, so that each has arrived at least once.
    assert_eq!(arrived, [tasks; 3], "none is doubled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chain_of_three_survives_kills_and_stops_of_any() {
    if is_long() {
        storm_of_all(500, 12, 14, 11).await;
    } else {
        storm_of_all(30, 6, 3, 2).await;
    }
}

/// Restarts a remote again and again while `senders` send to it, one message after the other each, and wait for their answers.
async fn restart_under(senders: usize, restarts: usize) -> (Sent, usize) {
    let random = &mut Random::new();
    let mut remote = Link::new(None, None).await;
    let first = Link::new(Some(&format!("{}/a2a/agents/echo", remote.server().url)), None).await;
    first.knows_next().await;
    let api = first.server().api();
    let stop = Arc::new(AtomicBool::new(false));
    let mut sending = JoinSet::new();
    for _ in 0..senders {
        let (api, stop) = (api.clone(), Arc::clone(&stop));
        sending.spawn(async move {
            let mut sent = Sent::default();
            while !stop.load(Ordering::Relaxed) {
                let task = send_until_acknowledged(&api, &to("next", "hello")).await;
                sent.tasks += 1;
                if state(&task) != "COMPLETED" || artifact_text(&task) != "hello" {
                    sent.wrong.push(format!("{}: {:?}", state(&task), task["status"]));
                }
            }
            sent
        });
    }
    for n in 0..restarts {
        tokio::time::sleep(Duration::from_millis(300 + random.below(700))).await;
        let pause = Duration::from_millis(random.below(500));
        if n % 2 == 0 {
            remote.kill(pause).await;
        } else {
            remote.stop(pause).await;
        }
    }
    // What waits for a circuit goes on soon after the remote is back.
    tokio::time::sleep(Duration::from_millis(500)).await;
    stop.store(true, Ordering::Relaxed);
    let mut all = Sent::default();
    while let Some(sent) = sending.join_next().await {
        let sent = sent.expect("a sender sends");
        all.tasks += sent.tasks;
        all.wrong.extend(sent.wrong);
    }
    (all, remote.tasks())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_task_fails_while_its_remote_is_restarted() {
    let restarts = if is_long() { 30 } else { 3 };
    let (sent, arrived) = restart_under(12, restarts).await;
    let wrong = sent.wrong.len();
    eprintln!("{} tasks of 12 senders, {restarts} restarts: {wrong} ended badly, {arrived} arrived", sent.tasks);
    assert!(sent.wrong.is_empty(), "{:#?}", &sent.wrong[..wrong.min(20)]);
    assert_eq!(arrived, sent.tasks, "none is doubled");
}
