//! Publishers, workers and kills, and what is left when all of them have stopped.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use reqwest::Method;
use serde_json::{Value, json};
use store::{Store, TaskId, TenantId};
use testkit::postgres::Database;
use tokio::{
    sync::watch,
    task::{JoinHandle, JoinSet},
};

use super::{
    http::{array, reason, text},
    notes::Published,
    random::Random,
    rig::{Server, Setting},
    site::Site,
    verdict::{Ending, Evidence, Verdict},
    worker::Worker,
};
use crate::scale::caller::Doors;

const PUBLISHERS: usize = 4;
const WORKERS: usize = 14;

/// One load is all that there is, and it is no business of a quota.
const CONFIG: &str = "[limits]\ntasks = 0\n";

/// When nothing has ended for so long, nothing will: leases and waits are shorter.
const SILENCE: Duration = Duration::from_secs(7);

pub(crate) struct Storm {
    /// How many entries are published, and in which time.
    pub(crate) entries: usize,
    pub(crate) lasts: Duration,
    /// Milliseconds between two kills, at least and at most.
    pub(crate) every: (u64, u64),
    /// One is on a file, several are on PostgreSQL.
    pub(crate) instances: usize,
    /// How many of a hundred good entries a worker sleeps over.
    pub(crate) sleepers: u64,
    pub(crate) fault: Option<&'static str>,
}

/// All workers of a storm, and whoever kills them.
struct Crew {
    site: Arc<Site>,
    random: Random,
    workers: Vec<JoinHandle<()>>,
    /// How many there have been.
    lives: usize,
    stopped: watch::Receiver<bool>,
}

impl Storm {
    pub(crate) async fn run(self) -> Verdict {
        let database = (self.instances > 1).then(Database::create);
        let setting = match &database {
            Some(database) => Setting::on(database.url()),
            None => Setting::on_a_file(),
        };
        self.run_on(&setting.with_config(CONFIG).with_fault(self.fault)).await
    }

    async fn run_on(&self, setting: &Setting) -> Verdict {
        let begun = Instant::now();
        let mut random = Random::new();
        let mut instances = Vec::new();
        for name in self.names() {
            instances.push(setting.start(name).await);
        }
        let doors = Doors::default();
        doors.open(instances.iter().map(|instance| instance.url.clone()));
        let site = Arc::new(Site::new(doors, self.entries, self.sleepers));
        let (stop, stopped) = watch::channel(false);
        let crew = Crew { site: Arc::clone(&site), random: random.fork(), workers: Vec::new(), lives: 0, stopped };
        let crew = tokio::spawn(crew.run());
        let mut publishers = JoinSet::new();
        // Each waits for half of this or one and a half times as long between two of its entries.
        let pace = self.lasts.as_millis() as u64 * PUBLISHERS as u64 / self.entries as u64;
        for publisher in 0..PUBLISHERS {
            publishers.spawn(publish(Arc::clone(&site), publisher, random.fork(), pace));
        }
        let kills = self.kill_while_there_is_more(setting, &mut instances, &site, &mut random).await;
        publishers.join_all().await;

        let journal = setting.journal().await;
        let tenant = journal.tenants().await.expect("tenants can be read")[0].id;
        settle(&site, &mut random).await;
        let published = site.notes().published.clone();
        let mut endings = endings(journal.as_ref(), tenant, &published).await;
        site.be_kind();
        let (replays, mut troubles) = replay(&site, &mut random).await;
        if !replays.is_empty() {
            settle(&site, &mut random).await;
        }
        endings.extend(self::endings(journal.as_ref(), tenant, &replays).await);
        stop.send_replace(true);
        crew.await.expect("whoever was told what nobody should be told has panicked");

        let listed = list(&site, &mut random).await;
        let mut notes = std::mem::take(&mut *site.notes());
        notes.published.extend(replays);
        let mut verdict = Verdict::on(&Evidence { notes: &notes, endings: &endings, listed: &listed });
        (verdict.kills, verdict.attempts) = (kills, site.requests.load(Ordering::Relaxed));
        verdict.not_replayed += troubles.len();
        troubles.drain(..).for_each(|trouble| verdict.say("a replay:", &trouble));
        eprintln!("{verdict}; {:.1} s", begun.elapsed().as_secs_f32());
        verdict
    }

    fn names(&self) -> &'static [&'static str] {
        &["a", "b", "c"][..self.instances]
    }

    /// Kills an instance now and then while there is more to publish; says how often.
    async fn kill_while_there_is_more(
        &self,
        setting: &Setting,
        instances: &mut [Server],
        site: &Site,
        random: &mut Random,
    ) -> usize {
        let mut kills = 0;
        loop {
            let pause = self.every.0 + random.below(self.every.1 - self.every.0);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            if site.all_are_published() {
                return kills;
            }
            let victim = random.index(instances.len());
            instances[victim].kill9();
            instances[victim] = setting.start(self.names()[victim]).await;
            site.doors.replace(victim, &instances[victim].url);
            kills += 1;
        }
    }
}

impl Crew {
    /// Replaces those who died, and kills one now and then, at whatever it is doing.
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
            if !self.site.is_kind() {
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
        self.site.notes().killed += 1;
    }

    fn hire(&mut self) -> JoinHandle<()> {
        self.lives += 1;
        let name = format!("worker-{}", self.lives);
        let worker = Worker { site: Arc::clone(&self.site), name, random: self.random.fork() };
        tokio::spawn(worker.work(self.stopped.clone()))
    }
}

async fn publish(site: Arc<Site>, publisher: usize, mut random: Random, pace: u64) {
    let from = format!("publisher-{publisher}");
    while site.publish(&mut random, &from).await {
        tokio::time::sleep(Duration::from_millis(pace / 2 + random.below(pace + 1))).await;
    }
}

/// Waits until nothing waits and nobody holds anything, or nothing happens any more.
async fn settle(site: &Site, random: &mut Random) {
    let mut before = Value::Null;
    let mut since = Instant::now();
    loop {
        let mut status = site.get(random, "/v1/queue/status").await;
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

/// What became of these entries.
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

/// Replays the first dead letter by its name and then all others at once. Gives the new entries, and what went wrong.
async fn replay(site: &Site, random: &mut Random) -> (Vec<Published>, Vec<String>) {
    let mut troubles = Vec::new();
    let mut letters = Vec::new();
    let mut after = String::new();
    loop {
        let page = site.get(random, &format!("/v1/queue/dlq?limit=7{after}")).await;
        letters.extend(array(&page, "/messages").iter().map(|letter| text(letter, "/id").to_owned()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    let Some(first) = letters.first() else { return (Vec::new(), troubles) };
    let one = json!({"messageId": first});
    let mut replays: Vec<Published> = Vec::new();
    for body in [&one, &json!({})] {
        let answered = site.insist(random, Method::POST, "/v1/queue/dlq/replay", Some(body), "").await;
        if answered.status != 200 {
            troubles.push(format!("{} {}", answered.status, answered.body));
            continue;
        }
        for replayed in array(&answered.body, "/replayed") {
            let letter = text(replayed, "/messageId").to_owned();
            let id = text(replayed, "/newMessageId").to_owned();
            // It belongs to what the letter belongs to.
            let original = site.notes().published.iter().find(|entry| entry.id == letter).cloned();
            let context = original.map(|entry| entry.context).unwrap_or_default();
            let (sent, letter) = (answered.sent, Some(letter));
            replays.push(Published { id, context, is_poisonous: false, sent, retried: false, replays: letter });
        }
    }
    let mut replayed: Vec<&str> = replays.iter().filter_map(|entry| entry.replays.as_deref()).collect();
    replayed.sort_unstable();
    letters.sort_unstable();
    if replayed != letters {
        troubles.push(format!("{replayed:?} were replayed of {letters:?}"));
    }
    let again = site.insist(random, Method::POST, "/v1/queue/dlq/replay", Some(&one), "").await;
    if again.status != 409 || reason(&again.body["error"]) != "NOT_A_DEAD_LETTER" {
        troubles.push(format!("once more: {} {}", again.status, again.body));
    }
    let left = site.get(random, "/v1/queue/dlq").await;
    if !array(&left, "/messages").is_empty() {
        troubles.push(format!("still dead: {left}"));
    }
    (replays, troubles)
}

/// All tasks, by id, with their artifacts.
async fn list(site: &Site, random: &mut Random) -> HashMap<String, Value> {
    let mut all = HashMap::new();
    let mut token = String::new();
    loop {
        let path = format!("/a2a/tasks?pageSize=100&historyLength=0&includeArtifacts=true&pageToken={token}");
        let page = site.get(random, &path).await;
        all.extend(array(&page, "/tasks").iter().map(|task| (text(task, "/id").to_owned(), task.clone())));
        match page["nextPageToken"].as_str() {
            Some(next) if !next.is_empty() => next.clone_into(&mut token),
            _ => return all,
        }
    }
}
