//! How long an event of a task that runs on A takes to a subscriber on B. Asserts that all arrive, and prints the times.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use testkit::postgres::Database;
use tokio::task::JoinSet;

use super::{
    http::{Api, text, to_at_once},
    nats::Nats,
    rig::{Server, Setting},
};

/// When each event of a task came, until its end.
async fn arrivals(api: Api, id: String) -> BTreeMap<u64, Instant> {
    let mut stream = api.subscribe(&id, Some(0)).await;
    let mut arrived = BTreeMap::new();
    while let Some(frame) = stream.next().await {
        arrived.insert(frame.id, Instant::now());
    }
    arrived
}

/// Runs tasks on A, with a subscriber on each instance. An event's time is what it came later to the one on B than to the
/// one on A, who has it from memory as soon as it is committed.
async fn measure(name: &str, wake: &str, tasks: usize) {
    let database = Database::create();
    let [a, b]: [Server; 2] = Setting::on(database.url()).with_wake(wake).start_all().await;
    let (a, b) = (a.api(), b.api());
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let (a, b) = (a.clone(), b.clone());
        running.spawn(async move {
            let task = a.send(&to_at_once("stream", "70 97")).await;
            let id = text(&task, "/id").to_owned();
            tokio::join!(arrivals(a, id.clone()), arrivals(b, id))
        });
        tokio::time::sleep(Duration::from_millis(83)).await;
    }
    let mut times = Vec::new();
    for (on_a, on_b) in running.join_all().await {
        assert!(on_a.keys().eq(on_b.keys()), "{on_a:?} {on_b:?}");
        assert!(on_a.len() > 50, "{on_a:?}");
        // What was there before either of them had subscribed says nothing.
        times.extend(on_a.into_iter().skip(5).map(|(seq, at)| on_b[&seq].saturating_duration_since(at)));
    }
    times.sort_unstable();
    let part = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1000.0;
    let (p50, p99, max) = (part(50), part(99), part(100));
    eprintln!("{name}: {} events from A to B, p50 {p50:.1} ms, p99 {p99:.1} ms, max {max:.1} ms", times.len());
}

fn tasks() -> usize {
    if std::env::var_os("SB_LONG").is_some() { 50 } else { 8 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_reach_the_other_instance_by_notify() {
    measure("notify", "notify", tasks()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_reach_the_other_instance_by_nats() {
    let nats = Nats::start(&[]);
    measure("nats", &nats.url(), tasks()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_reach_the_other_instance_by_looking() {
    measure("poll", "local", tasks()).await;
}
