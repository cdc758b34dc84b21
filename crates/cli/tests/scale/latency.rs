//! The time that an event of a task that runs on A takes to a subscriber on B. Asserts that all arrive, and prints the times.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

use super::{
    http::{Api, text, to_at_once},
    is_long,
};
use crate::{
    chaos::{Installation, Nats},
    harness::Server,
};

/// When each event of a task arrived, until its end.
async fn arrivals(api: Api, id: String) -> BTreeMap<u64, Instant> {
    let mut stream = api.subscribe(&id, Some(0)).await;
    let mut arrived = BTreeMap::new();
    while let Some(frame) = stream.next().await {
        arrived.insert(frame.id, Instant::now());
    }
    arrived
}

/// Runs tasks on A, with a subscriber on each instance. The time of an event is how much later it came to the one on B than
/// to the one on A, which has it from memory as soon as it is committed.
async fn measure(name: &str, wake: &str) {
    let installation = Installation::on_postgres().with_wake(wake);
    let [a, b]: [Server; 2] = installation.start_all().await;
    let (a, b) = (a.api(), b.api());
    // The figures are those of the long form.
    let (tasks, chunks) = if is_long() { (50, 70) } else { (4, 12) };
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let (a, b) = (a.clone(), b.clone());
        running.spawn(async move {
            let task = a.send(&to_at_once("stream", &format!("{chunks} 97"))).await;
            let id = text(&task, "/id").to_owned();
            tokio::join!(arrivals(a, id.clone()), arrivals(b, id))
        });
        tokio::time::sleep(Duration::from_millis(83)).await;
    }
    let mut times = Vec::new();
    for (on_a, on_b) in running.join_all().await {
        assert!(on_a.keys().eq(on_b.keys()), "{on_a:?} {on_b:?}");
        assert!(on_a.len() > chunks * 2 / 3, "{on_a:?}");
        // Events from before the subscriptions say nothing.
        times.extend(on_a.into_iter().skip(5).map(|(seq, at)| on_b[&seq].saturating_duration_since(at)));
    }
    times.sort_unstable();
    let part = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1000.0;
    let (p50, p99, max) = (part(50), part(99), part(100));
    eprintln!("{name}: {} events from A to B, p50 {p50:.1} ms, p99 {p99:.1} ms, max {max:.1} ms", times.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_reach_the_other_instance() {
    let nats = Nats::start(&[]);
    // One after the other: they would disturb each other's figures.
    measure("notify", "notify").await;
    measure("nats", &nats.url()).await;
    measure("poll", "local").await;
}
