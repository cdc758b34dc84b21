//! Tasks with webhooks of every kind at receivers that behave badly in every way there is.
//!
//! Callers make the [`load`]; [`receiver`]s in this process write down all that arrives. What each webhook is [`owed`] is
//! read from the log of its task, and the [`check`] compares the two.

mod check;
mod load;
mod owed;
mod receiver;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;
use store::{Event, TaskId};
use tokio::{
    sync::watch,
    task::{JoinHandle, JoinSet},
};

use super::{
    Installation, Instances, Report, Workload,
    client::{Answered, Client, call},
    http, random,
    random::Random,
    report::is_same,
    sse,
};
use check::Evidence;
pub(crate) use load::{Hook, Load, message};
pub(crate) use receiver::Manners;
use receiver::{Notebook, Receiver};

const CONFIG: &str = r#"
[push]
timeout = "1s"
first_wait = "100ms"
longest_wait = "1s"
attempts = 10000

[egress]
allow = ["127.0.0.0/8"]
"#;

/// A program that prints for a second and may be interrupted as often as it takes.
const PROGRAM: &str = "concurrency = 32\nmax_attempts = 100";
const SCRIPT: &str = "i=0\nwhile [ $i -lt 10 ]; do echo \"line $i\"; i=$((i+1)); sleep 0.1; done\n";

/// Receivers with every trouble there is.
const RECEIVERS: &[Manners] = &[Manners::Slow, Manners::Slow, Manners::Moody, Manners::Moody, Manners::Away];

/// How many callers there are for each instance, each with one task at a time. A caller of a task on an instance that was
/// killed waits until another one takes the task over.
const CALLERS: usize = 8;

/// How long everything may take to arrive when receivers are good and servers live.
const SETTLING: Duration = Duration::from_secs(40);

/// How long to wait for notifications that should not come any more.
const SILENCE: Duration = Duration::from_millis(1500);

pub(crate) struct Webhooks {
    receivers: &'static [Manners],
    callers: JoinSet<()>,
    stop: watch::Sender<bool>,
    load: Option<Arc<Load>>,
    secret: String,
    absences: Option<JoinHandle<()>>,
    leavers: Option<JoinHandle<()>>,
}

impl Webhooks {
    pub(crate) fn new() -> Self {
        Self::to(RECEIVERS)
    }

    /// With these receivers.
    pub(crate) fn to(receivers: &'static [Manners]) -> Self {
        let (callers, stop) = (JoinSet::new(), watch::Sender::new(false));
        Self { receivers, callers, stop, load: None, secret: String::new(), absences: None, leavers: None }
    }

    fn load(&self) -> &Arc<Load> {
        self.load.as_ref().expect("it was started")
    }
}

impl Workload for Webhooks {
    fn config(&self) -> String {
        CONFIG.to_owned()
    }

    fn prepare(&self, installation: &Installation) {
        installation.add_script("printing", PROGRAM, SCRIPT);
    }

    async fn start(&mut self, instances: &Instances, random: &mut Random) {
        let load = Arc::new(open(instances, self.receivers, random).await);
        self.secret = secret(&load, random).await;
        for caller in 0..CALLERS * instances.len() {
            self.callers.spawn(go_on(Arc::clone(&load), caller, random.fork(), self.stop.subscribe()));
        }
        self.leavers = Some(tokio::spawn(watch_leavers(Arc::clone(&load), random.fork())));
        self.absences = Some(tokio::spawn(come_and_go(Arc::clone(&load))));
        self.load = Some(load);
    }

    async fn drain(&mut self, _instances: &Instances, _random: &mut Random) {
        self.absences.take().expect("it was started").abort();
        self.stop.send_replace(true);
        while let Some(caller) = self.callers.join_next().await {
            caller.expect("a caller gets no answer that it should not get");
        }
        self.load().receivers.iter().for_each(Receiver::be_good);
    }

    async fn check(self, _instances: &Instances, random: &mut Random) -> Report {
        let load = self.load();
        let report = settle_and_check(load, random).await;
        self.leavers.as_ref().expect("it was started").abort();
        assert_eq!(secret(load, random).await, self.secret, "a secret outlives its servers");
        report
    }
}

/// Starts receivers, for callers of these instances.
pub(crate) async fn open(instances: &Instances, receivers: &[Manners], random: &mut Random) -> Load {
    let notebook = Notebook::default();
    let mut started = Vec::new();
    for manners in receivers {
        started.push(Receiver::start(&notebook, *manners, random).await);
    }
    let (journal, tenant) = instances.installation.journal_and_tenant().await;
    let load = Load::new(instances.client(), started, notebook, journal, tenant);
    load.notebook.set_secret(&secret(&load, random).await);
    load
}

/// Waits until everything is delivered that will be, and compares.
pub(crate) async fn settle_and_check(load: &Load, random: &mut Random) -> Report {
    let unsettled = settle(load, random).await;
    tokio::time::sleep(SILENCE).await;
    let mut report = compare(load).await;
    unsettled.into_iter().for_each(|config| report.violate("unsettled", config));
    report
}

async fn secret(load: &Load, random: &mut Random) -> String {
    let answer = load.client.get(random, "/v1/push/secret").await;
    answer["secret"].as_str().expect("there is a secret").to_owned()
}

async fn go_on(load: Arc<Load>, caller: usize, mut random: Random, stopped: watch::Receiver<bool>) {
    let mut number = 0;
    while !*stopped.borrow() {
        load.one_task(&mut random, &format!("caller-{caller}-{number}")).await;
        number += 1;
        tokio::time::sleep(Duration::from_millis(random.below(300))).await;
    }
}

/// Closes the receivers that are away at times for three seconds out of six.
async fn come_and_go(load: Arc<Load>) {
    let mut open = true;
    loop {
        tokio::time::sleep(Duration::from_secs(3)).await;
        open = !open;
        for receiver in load.receivers.iter().filter(|receiver| receiver.manners() == Manners::Away) {
            receiver.set_open(open);
        }
    }
}

/// Notes when the server shows that a receiver has left.
async fn watch_leavers(load: Arc<Load>, mut random: Random) {
    let mut known = BTreeSet::new();
    loop {
        for name in load.notebook.left().difference(&known.clone()) {
            // A webhook that came with its message may have left before the message was acknowledged.
            let Some(hook) = load.made().hooks.iter().find(|hook| hook.name == *name).cloned() else { continue };
            if hook.deleted.is_some() {
                // Nothing is shown of it, or another webhook with its id.
                known.insert(name.clone());
                continue;
            }
            let list = load.client.get(&mut random, &format!("/v1/push?task={}", hook.task)).await;
            let now = Instant::now();
            let shown =
                list["configs"].as_array().into_iter().flatten().find(|config| config["id"] == hook.id.as_str());
            if shown.is_some_and(|config| config["state"] == "gone") {
                load.made().change(name, |hook| hook.gone = Some(now));
                known.insert(name.clone());
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until the server shows of every webhook that all is delivered; returns those of which it does not.
async fn settle(load: &Load, random: &mut Random) -> Vec<String> {
    let begun = Instant::now();
    loop {
        let mut open = Vec::new();
        let mut after = String::new();
        loop {
            let page = load.client.get(random, &format!("/v1/push?after={after}")).await;
            for config in page["configs"].as_array().into_iter().flatten() {
                let is_delivered = config["told"].as_u64() >= config["owed"].as_u64();
                if config["state"] != "gone" && !(config["state"] == "active" && is_delivered) {
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

async fn compare(load: &Load) -> Report {
    let made = std::mem::take(&mut *load.made());
    let mut logs: HashMap<&str, Vec<Event>> = HashMap::new();
    for id in &made.tasks {
        let task = TaskId::parse(id).expect("the server's ids are ids");
        let log = load.journal.events(load.tenant, task, 0, 100_000).await.expect("the log can be read");
        logs.insert(id, log);
    }
    let owed = |hook: &Hook| (hook.name.clone(), owed::owed(&logs[hook.task.as_str()], hook.chunks));
    let (arrivals, kills) = (load.notebook.arrivals(), load.client.kills());
    let owed = made.hooks.iter().map(owed).collect();
    let mut report = Evidence { hooks: &made.hooks, arrivals: &arrivals, kills: &kills, owed: &owed }.check();
    report.count("tasks", made.tasks.len());
    report.count("refused", load.notebook.refused());
    report.count("followed", made.followed.len());
    for id in &made.tasks {
        let last = logs[id.as_str()].last().map(|event| String::from_utf8_lossy(&event.body).into_owned());
        if !last.as_ref().is_some_and(|last| last.contains("TASK_STATE_COMPLETED")) {
            report.violate("given up", format!("{id} ends with {last:?}"));
        }
    }
    for followed in &made.followed {
        if followed.cuts > 0 {
            report.violate("cut", format!("{} times: {}", followed.cuts, followed.task));
        }
        if !is_same(&followed.frames, &logs[followed.task.as_str()]) {
            report.violate("wrong streams", &followed.task);
        }
    }
    report
}
