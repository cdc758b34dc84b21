//! Callers, receivers and kills, and what is left when all of them have stopped.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;
use store::{Event, TaskId};
use testkit::postgres::Database;
use tokio::{sync::watch, task::JoinSet};

use super::{
    load::{Made, Site, add_worker},
    log::has_frame,
    owed::owed,
    random::Random,
    receiver::{Manners, Notebook, Receiver},
    rig::{Server, Setting},
    sse::Frame,
    verdict::{Evidence, Verdict},
};
use crate::scale::caller::Doors;

const CONFIG: &str = r#"
[push]
timeout = "1s"
first_wait = "100ms"
longest_wait = "1s"
attempts = 10000

[egress]
allow = ["127.0.0.0/8"]
"#;

/// Receivers with every trouble there is.
pub(crate) const RECEIVERS: &[Manners] = &[Manners::Slow, Manners::Slow, Manners::Moody, Manners::Moody, Manners::Away];

/// How many callers there are for each instance, each with one task at a time. Who has one on an instance that was killed
/// waits until another one is sure of that.
const CALLERS: usize = 8;

/// How long everything may take to arrive when receivers are good and servers live.
const SETTLING: Duration = Duration::from_secs(40);

/// How long to wait for what should not come any more.
const SILENCE: Duration = Duration::from_millis(1500);

pub(crate) struct Storm {
    pub(crate) lasts: Duration,
    /// Milliseconds between two kills, at least and at most.
    pub(crate) every: (u64, u64),
    /// One is on a file, several are on PostgreSQL.
    pub(crate) instances: usize,
    /// Who receives.
    pub(crate) receivers: &'static [Manners],
    pub(crate) fault: Option<&'static str>,
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
        let mut random = Random::new();
        add_worker(setting);
        let mut instances = Vec::new();
        for name in names(self.instances) {
            instances.push(setting.start(name).await);
        }
        let (kill, kills) = watch::channel(Vec::new());
        let site = Arc::new(open(setting, &instances, self.receivers, &mut random, kills).await);
        let secret = secret(&site, &mut random).await;

        let (stop, stopped) = watch::channel(false);
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS * self.instances {
            callers.spawn(go_on(Arc::clone(&site), caller, random.fork(), stopped.clone()));
        }
        let watcher = tokio::spawn(watch_leavers(Arc::clone(&site), random.fork()));
        let absences = tokio::spawn(come_and_go(Arc::clone(&site)));
        let begun = Instant::now();
        loop {
            let pause = self.every.0 + random.below(self.every.1 - self.every.0);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            if begun.elapsed() > self.lasts {
                break;
            }
            let victim = random.index(instances.len());
            kill.send_modify(|kills| kills.push(Instant::now()));
            instances[victim].kill9();
            instances[victim] = setting.start(names(self.instances)[victim]).await;
            site.doors.replace(victim, &instances[victim].url);
        }
        absences.abort();
        stop.send_replace(true);
        // A caller that was told what nobody should be told has panicked.
        callers.join_all().await;
        site.receivers.iter().for_each(Receiver::be_good);

        let verdict = end(&site, &mut random).await;
        watcher.abort();
        assert_eq!(self::secret(&site, &mut random).await, secret, "a secret outlives its servers");
        eprintln!("{verdict}; refused {}; {:.1} s", site.notebook.refused(), begun.elapsed().as_secs_f32());
        verdict
    }
}

fn names(count: usize) -> &'static [&'static str] {
    &["a", "b", "c"][..count]
}

/// Receivers of these manners, and a way to the instances for callers.
pub(crate) async fn open(
    setting: &Setting,
    instances: &[Server],
    receive: &[Manners],
    random: &mut Random,
    kills: watch::Receiver<Vec<Instant>>,
) -> Site {
    let doors = Doors::default();
    doors.open(instances.iter().map(|instance| instance.url.clone()));
    let notebook = Notebook::default();
    let mut receivers = Vec::new();
    for manners in receive {
        receivers.push(Receiver::start(&notebook, *manners, random).await);
    }
    let journal = setting.journal().await;
    let tenant = journal.tenants().await.expect("tenants can be read")[0].id;
    let site = Site::new(doors, receivers, notebook, journal, tenant, kills);
    site.notebook.set_secret(&secret(&site, random).await);
    site
}

/// Waits until all is told that will be, and judges.
pub(crate) async fn end(site: &Site, random: &mut Random) -> Verdict {
    let unsettled = settle(site, random).await;
    tokio::time::sleep(SILENCE).await;
    let mut verdict = judge(site).await;
    for hook in unsettled {
        verdict.unsettled += 1;
        verdict.say_of(format!("not settled in time: {hook}"));
    }
    verdict
}

async fn secret(site: &Site, random: &mut Random) -> String {
    let answer = site.get(random, "/v1/push/secret").await;
    answer["secret"].as_str().expect("there is a secret").to_owned()
}

async fn go_on(site: Arc<Site>, caller: usize, mut random: Random, stopped: watch::Receiver<bool>) {
    let mut number = 0;
    while !*stopped.borrow() {
        site.one_task(&mut random, &format!("caller-{caller}-{number}")).await;
        number += 1;
        tokio::time::sleep(Duration::from_millis(random.below(300))).await;
    }
}

/// Nobody listens where somebody is away, for three seconds out of six.
async fn come_and_go(site: Arc<Site>) {
    let mut open = true;
    loop {
        tokio::time::sleep(Duration::from_secs(3)).await;
        open = !open;
        for receiver in site.receivers.iter().filter(|receiver| receiver.manners() == Manners::Away) {
            receiver.set_open(open);
        }
    }
}

/// Finds out when the server has understood that somebody is gone.
async fn watch_leavers(site: Arc<Site>, mut random: Random) {
    let mut known = BTreeSet::new();
    loop {
        for name in site.notebook.left().difference(&known.clone()) {
            // Who is told inline may have left before its task was acknowledged.
            let Some(hook) = site.made().hooks.iter().find(|hook| hook.name == *name).cloned() else { continue };
            if hook.deleted.is_some() {
                // There is nothing to be shown, or another one of the same id.
                known.insert(name.clone());
                continue;
            }
            let list = site.get(&mut random, &format!("/v1/push?task={}", hook.task)).await;
            let now = Instant::now();
            let shown =
                list["configs"].as_array().into_iter().flatten().find(|config| config["id"] == hook.id.as_str());
            if shown.is_some_and(|config| config["state"] == "gone") {
                site.made().change(name, |hook| hook.gone = Some(now));
                known.insert(name.clone());
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until the server says of every webhook that it was told all; gives those of which it does not.
async fn settle(site: &Site, random: &mut Random) -> Vec<String> {
    let begun = Instant::now();
    loop {
        let mut open = Vec::new();
        let mut after = String::new();
        loop {
            let page = site.get(random, &format!("/v1/push?after={after}")).await;
            for config in page["configs"].as_array().into_iter().flatten() {
                let is_told = config["told"].as_u64() >= config["owed"].as_u64();
                if config["state"] != "gone" && !(config["state"] == "active" && is_told) {
                    open.push(config.to_string());
                }
                assert_eq!(config["deadLetters"], Value::Array(Vec::new()), "nothing is given up: {config}");
            }
            match page["next"].as_str() {
                Some(next) => next.clone_into(&mut after),
                None => break,
            }
        }
        if open.is_empty() || begun.elapsed() > SETTLING {
            return open;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn judge(site: &Site) -> Verdict {
    let Made { hooks, tasks, followed } = std::mem::take(&mut *site.made());
    let mut logs: HashMap<&str, Vec<Event>> = HashMap::new();
    for id in &tasks {
        let task = TaskId::parse(id).expect("the server's ids are ids");
        let log = site.journal.events(site.tenant, task, 0, 100_000).await.expect("the log can be read");
        logs.insert(id, log);
    }
    let owed = hooks.iter().map(|hook| (hook.name.clone(), owed(&logs[hook.task.as_str()], hook.chunks))).collect();
    let arrivals = site.notebook.arrivals();
    let kills = site.kills.borrow().clone();
    let mut verdict = Verdict::on(&Evidence { hooks: &hooks, arrivals: &arrivals, kills: &kills, owed: &owed });
    verdict.tasks = tasks.len();
    for id in &tasks {
        let last = logs[id.as_str()].last().map(|event| String::from_utf8_lossy(&event.body).into_owned());
        if !last.as_ref().is_some_and(|last| last.contains("TASK_STATE_COMPLETED")) {
            verdict.given_up += 1;
            verdict.say_of(format!("{id} ends with {last:?}"));
        }
    }
    let cuts = followed.iter().map(|followed| followed.cuts).sum();
    let wrong = followed.iter().filter(|followed| !is_same(&followed.frames, &logs[followed.task.as_str()])).count();
    verdict.follow(followed.len(), cuts, wrong);
    verdict
}

/// Whether a follower saw exactly what was written.
fn is_same(frames: &[Frame], log: &[Event]) -> bool {
    let written = log.iter().filter(|event| has_frame(event.kind));
    let written = written
        .map(|event| Frame { id: event.seq, body: serde_json::from_slice(&event.body).expect("events are JSON") });
    written.eq(frames.iter().cloned())
}
