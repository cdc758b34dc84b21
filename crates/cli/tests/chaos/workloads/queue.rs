//! Publishers and workers that know each other only by the queue.
//!
//! Workers die, sleep, repeat themselves and hang up. All that anybody was answered is in the [`notes`], which are written before a
//! request is sent, since a worker may be killed before the answer. The [`check`] compares the notes with the journal.

mod check;
mod notes;
mod queue_client;
mod worker;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use reqwest::Method;
use serde_json::{Value, json};
use store::{Store, TaskId, TenantId};
use tokio::{
    sync::watch,
    task::{JoinHandle, JoinSet},
};

use super::{
    Instances, Report, Workload,
    client::{Answer, Answered, Client, now},
    http,
    http::{array, reason, text},
    log, random,
    random::Random,
};
use check::{Ending, Evidence};
use notes::Published;
use queue_client::QueueClient;
use worker::Worker;

const PUBLISHERS: usize = 4;
const WORKERS: usize = 14;

/// The load is one tenant's, and not about quotas.
const CONFIG: &str = "[limits]\ntasks = 0\n";

/// When nothing has ended for so long, nothing will: leases and waits are shorter.
const SILENCE: Duration = Duration::from_secs(7);

pub(crate) struct Queue {
    /// How many entries are published, and in which time. One in 101 is poisonous.
    entries: usize,
    lasts: Duration,
    /// How many of a hundred good entries a worker sleeps over.
    sleepers: u64,
    running: Option<Running>,
}

struct Running {
    queue: Arc<QueueClient>,
    publishers: JoinSet<()>,
    crew: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

/// All workers of a run, and their replacements.
struct Crew {
    queue: Arc<QueueClient>,
    random: Random,
    workers: Vec<JoinHandle<()>>,
    /// How many there have been.
    lives: usize,
    stopped: watch::Receiver<bool>,
}

impl Queue {
    pub(crate) fn new(entries: usize, lasts: Duration) -> Self {
        Self { entries, lasts, sleepers: 3, running: None }
    }

    /// With workers that sleep over so many of a hundred good entries.
    pub(crate) fn with_sleepers(self, sleepers: u64) -> Self {
        Self { sleepers, ..self }
    }
}

impl Workload for Queue {
    fn config(&self) -> String {
        CONFIG.to_owned()
    }

    async fn start(&mut self, instances: &Instances, random: &mut Random) {
        let queue = Arc::new(QueueClient::new(instances.client(), self.entries, self.sleepers));
        let (stop, stopped) = watch::channel(false);
        let crew = Crew { queue: Arc::clone(&queue), random: random.fork(), workers: Vec::new(), lives: 0, stopped };
        let crew = tokio::spawn(crew.run());
        let mut publishers = JoinSet::new();
        // Each waits for half of this or one and a half times as long between two of its entries.
        let pace = self.lasts.as_millis() as u64 * PUBLISHERS as u64 / self.entries as u64;
        for publisher in 0..PUBLISHERS {
            publishers.spawn(publish(Arc::clone(&queue), publisher, random.fork(), pace));
        }
        self.running = Some(Running { queue, publishers, crew, stop });
    }

    fn is_over(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.queue.all_are_published())
    }

    async fn drain(&mut self, _instances: &Instances, random: &mut Random) {
        let running = self.running.as_mut().expect("it was started");
        while let Some(publisher) = running.publishers.join_next().await {
            publisher.expect("a publisher does not panic");
        }
        settle(&running.queue, random).await;
    }

    async fn check(self, instances: &Instances, random: &mut Random) -> Report {
        let Running { queue, crew, stop, .. } = self.running.expect("it was started");
        let (journal, tenant) = instances.installation.journal_and_tenant().await;
        let published = queue.notes().published.clone();
        let mut endings = endings(journal.as_ref(), tenant, &published).await;
        queue.be_kind();
        let (replays, troubles) = replay(&queue, random).await;
        if !replays.is_empty() {
            settle(&queue, random).await;
        }
        endings.extend(self::endings(journal.as_ref(), tenant, &replays).await);
        stop.send_replace(true);
        crew.await.expect("a worker gets no answer that it should not get");

        let listed = queue.client.tasks(random).await;
        let mut notes = std::mem::take(&mut *queue.notes());
        notes.published.extend(replays);
        let mut report = Evidence { notes: &notes, endings: &endings, listed: &listed }.check();
        report.count("attempts", queue.client.requests());
        troubles.iter().for_each(|trouble| report.violate("not replayed", trouble));
        report
    }
}

impl Crew {
    /// Replaces workers that died, and kills one now and then, whatever it is doing.
    async fn run(mut self) {
        for _ in 0..WORKERS {
            let worker = self.hire();
            self.workers.push(worker);
        }
        while !*self.stopped.borrow() {
            tokio::time::sleep(Duration::from_millis(50 + self.random.below(250))).await;
            for place in 0..WORKERS {
                if self.workers[place].is_finished() {
                    self.replace(place).await;
                }
            }
            if !self.queue.is_kind() {
                let victim = self.random.index(WORKERS);
                self.workers[victim].abort();
                self.replace(victim).await;
            }
        }
        for worker in self.workers {
            worker.await.unwrap_or_else(|error| assert!(error.is_cancelled(), "{error}"));
        }
    }

    async fn replace(&mut self, place: usize) {
        let next = self.hire();
        let gone = std::mem::replace(&mut self.workers[place], next);
        gone.await.unwrap_or_else(|error| assert!(error.is_cancelled(), "{error}"));
        self.queue.notes().killed += 1;
    }

    fn hire(&mut self) -> JoinHandle<()> {
        self.lives += 1;
        let name = format!("worker-{}", self.lives);
        let worker = Worker { queue: Arc::clone(&self.queue), name, random: self.random.fork() };
        tokio::spawn(worker.work(self.stopped.clone()))
    }
}

async fn publish(queue: Arc<QueueClient>, publisher: usize, mut random: Random, pace: u64) {
    let from = format!("publisher-{publisher}");
    while queue.publish(&mut random, &from).await {
        tokio::time::sleep(Duration::from_millis(pace / 2 + random.below(pace + 1))).await;
    }
}

/// Waits until no entry waits and none is held, or nothing happens any more.
async fn settle(queue: &QueueClient, random: &mut Random) {
    let mut before = Value::Null;
    let mut since = Instant::now();
    loop {
        let mut status = queue.client.get(random, "/v1/queue/status").await;
        let open = ["pending", "in_progress"].iter().filter_map(|name| status[*name].as_u64()).sum::<u64>();
        if open == 0 {
            return;
        }
        // Times go on by themselves.
        status["agents"] = Value::Null;
        if status != before {
            (before, since) = (status, Instant::now());
        }
        if since.elapsed() > SILENCE {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The ends of these entries, of those that are there.
async fn endings(journal: &dyn Store, tenant: TenantId, published: &[Published]) -> HashMap<String, Ending> {
    let mut endings = HashMap::new();
    for Published { id, .. } in published {
        let task = TaskId::parse(id).expect("the server's ids are ids");
        let Ok(entry) = journal.entry(Some(tenant), task).await else { continue };
        let log = journal.events(tenant, task, 0, 100_000).await.expect("the log can be read");
        let replays = entry.replays.map(|letter| letter.to_string());
        let ending = Ending { state: entry.state, is_letter: entry.dead, errors: entry.errors.clone(), replays, log };
        endings.insert(id.clone(), ending);
    }
    endings
}

/// Replays the first dead letter by its id and then all others at once. Returns the new entries, and what went wrong.
async fn replay(queue: &QueueClient, random: &mut Random) -> (Vec<Published>, Vec<String>) {
    let mut troubles = Vec::new();
    let mut letters = Vec::new();
    let mut after = String::new();
    loop {
        let page = queue.client.get(random, &format!("/v1/queue/dlq?limit=7{after}")).await;
        letters.extend(array(&page, "/messages").iter().map(|letter| text(letter, "/id").to_owned()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    let Some(first) = letters.first() else { return (Vec::new(), troubles) };
    let one = json!({"messageId": first});
    let post = async |random: &mut Random, body: &Value| {
        let path = "/v1/queue/dlq/replay";
        let answer =
            queue.client.insist(random, |random| queue.client.request(random, &Method::POST, path, Some(body)));
        answer.await.unwrap_or_else(|what| panic!("{path}: {what}"))
    };
    let mut replays: Vec<Published> = Vec::new();
    for body in [&one, &json!({})] {
        let Answered { status, body, sent, .. } = post(random, body).await;
        if status != 200 {
            troubles.push(format!("{status} {body}"));
            continue;
        }
        for replayed in array(&body, "/replayed") {
            let letter = text(replayed, "/messageId").to_owned();
            let id = text(replayed, "/newMessageId").to_owned();
            // It has the context of the letter.
            let original = queue.notes().published.iter().find(|entry| entry.id == letter).cloned();
            let context = original.map(|entry| entry.context).unwrap_or_default();
            let (is_poisonous, is_doubtful, replays_letter) = (false, false, Some(letter));
            replays.push(Published { id, context, is_poisonous, sent, is_doubtful, replays: replays_letter });
        }
    }
    let mut replayed: Vec<&str> = replays.iter().filter_map(|entry| entry.replays.as_deref()).collect();
    replayed.sort_unstable();
    letters.sort_unstable();
    if replayed != letters {
        troubles.push(format!("{replayed:?} were replayed of {letters:?}"));
    }
    let again = post(random, &one).await;
    if again.status != 409 || reason(&again.body["error"]) != "NOT_A_DEAD_LETTER" {
        troubles.push(format!("once more: {} {}", again.status, again.body));
    }
    let left = queue.client.get(random, "/v1/queue/dlq").await;
    if !array(&left, "/messages").is_empty() {
        troubles.push(format!("still dead: {left}"));
    }
    (replays, troubles)
}
