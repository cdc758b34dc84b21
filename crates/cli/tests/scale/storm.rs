//! Three instances, many callers, and blows at something that they all need.

use std::time::{Duration, Instant};

use tokio::{sync::watch, task::JoinSet};

use super::{
    caller::{Caller, Doors, Item},
    postgres::Postgres,
    random::Random,
    rig::{Server, Setting},
    verdict::Verdict,
};

/// What is struck.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blow {
    /// Kill -9 of an instance, which is started again at once.
    Kill,
    /// An instance stands still for longer than its leases last.
    Pause,
    /// Kill -9 of PostgreSQL. It is started again when every instance has said that it is not ready.
    Database,
}

pub(crate) struct Storm {
    pub(crate) blow: Blow,
    /// Milliseconds between two blows, at least and at most.
    pub(crate) every: (u64, u64),
    pub(crate) lasts: Duration,
    pub(crate) callers: usize,
    pub(crate) fault: Option<&'static str>,
}

impl Storm {
    /// On a database of the tests' server.
    pub(crate) async fn run(self) -> Verdict {
        let database = testkit::postgres::Database::create();
        self.run_on(database.url(), None).await
    }

    /// On a PostgreSQL of its own.
    pub(crate) async fn run_on_its_own(self) -> Verdict {
        let postgres = Postgres::start();
        self.run_on(postgres.url(), Some(&postgres)).await
    }

    async fn run_on(self, url: &str, postgres: Option<&Postgres>) -> Verdict {
        let mut random = Random::new();
        let config = if self.blow == Blow::Pause { "lease = \"1s\"\n" } else { "" };
        let setting = Setting::on(url).with_config(config).with_fault(self.fault);
        let mut instances: [Server; 3] = setting.start_all().await;
        let doors = Doors::default();
        doors.open(instances.iter().map(|instance| instance.url.to_owned()));

        let (stop, stopped) = watch::channel(false);
        let mut callers = JoinSet::new();
        for n in 0..self.callers {
            let http = reqwest::Client::builder().no_proxy().build().expect("the client needs nothing special");
            let name = format!("caller-{n}");
            let caller = Caller { name, doors: doors.clone(), http, random: random.fork() };
            callers.spawn(go_on(caller, stopped.clone()));
        }

        let mut blows = 0;
        let begun = Instant::now();
        loop {
            let pause = self.every.0 + random.below(self.every.1 - self.every.0 + 1);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            if begun.elapsed() > self.lasts && blows >= 2 {
                break;
            }
            self.strike(&setting, &mut instances, &doors, postgres, &mut random).await;
            blows += 1;
        }
        stop.send_replace(true);
        let items: Vec<Item> = callers.join_all().await.into_iter().flatten().collect();
        for instance in &instances {
            instance.becomes(200, Duration::from_secs(20)).await;
        }
        let journal = setting.journal().await;
        let verdict = Verdict::on(&items, blows, journal.as_ref(), &instances[0].api()).await;
        eprintln!("{verdict}");
        verdict
    }

    async fn strike(
        &self,
        setting: &Setting,
        instances: &mut [Server; 3],
        doors: &Doors,
        postgres: Option<&Postgres>,
        random: &mut Random,
    ) {
        let victim = random.index(instances.len());
        match self.blow {
            Blow::Kill => {
                instances[victim].kill9();
                instances[victim] = setting.start(["a", "b", "c"][victim]).await;
                doors.replace(victim, &instances[victim].url);
            }
            Blow::Pause => {
                instances[victim].signal("STOP");
                tokio::time::sleep(Duration::from_millis(1700)).await;
                instances[victim].signal("CONT");
            }
            Blow::Database => {
                let postgres = postgres.expect("it is struck where it is one's own");
                postgres.kill9();
                for instance in instances.iter() {
                    instance.becomes(503, Duration::from_secs(15)).await;
                }
                postgres.start_again();
                for instance in instances.iter() {
                    instance.becomes(200, Duration::from_secs(15)).await;
                }
            }
        }
    }
}

async fn go_on(mut caller: Caller, stopped: watch::Receiver<bool>) -> Vec<Item> {
    let mut items = Vec::new();
    while !*stopped.borrow() {
        items.push(caller.send(items.len()).await);
        tokio::time::sleep(Duration::from_millis(caller.random.below(300))).await;
    }
    items
}
