//! A server that stands still for longer than its lease.

use std::time::{Duration, Instant};

use super::{
    http::{artifact_text, is_terminal, state, to_at_once},
    sse::Frame,
};
use crate::{
    chaos::{Fault, Installation, Instances, Passage, attempts},
    harness::{Home, PATIENCE, Server, TOKEN},
};

/// The first server is stopped in its turn; the second takes the task over. The first wakes up when its turn is over and
/// it wants to complete the task. Returns the task's state just after that, and all frames.
async fn sleep_through_the_lease(installation: Installation, names: [&str; 2]) -> (String, Vec<Frame>) {
    let installation = installation.with_config("lease = \"2s\"\n");
    let (first, second) = (installation.start(names[0]).await, installation.start(names[1]).await);
    // The first to accept a message runs it.
    let task = first.api().send(&to_at_once("slow", "2500")).await;
    let id = task["id"].as_str().expect("a task has an id").to_owned();
    tokio::time::sleep(Duration::from_millis(300)).await;
    stop_between_commits(&first, &installation).await;
    let begun = Instant::now();
    let mut stream = second.api().subscribe(&id, Some(0)).await;
    let mut seen = Vec::new();
    while attempts(&seen) < 2 {
        seen.push(stream.next().await.expect("the task is taken over"));
    }
    // By now the first one's two and a half seconds are over.
    tokio::time::sleep(Duration::from_millis(2800).saturating_sub(begun.elapsed())).await;
    first.signal("CONT");
    tokio::time::sleep(Duration::from_millis(400)).await;
    let after_waking = state(&second.api().task(&id).await).to_owned();
    seen.extend(stream.rest().await);
    let of_the_sleeper = first.api().subscribe(&id, Some(0)).await.rest().await;
    assert_eq!(seen, of_the_sleeper, "the sleeper shows the same log");
    (after_waking, seen)
}

/// Stops the server, but not in the middle of a commit: it would hold SQLite's lock while it sleeps, and nobody could
/// write until it wakes.
async fn stop_between_commits(server: &Server, installation: &Installation) {
    let journal = installation.journal().await;
    for n in 0..10 {
        server.signal("STOP");
        let name = format!("probe-{n}");
        if tokio::time::timeout(Duration::from_millis(300), journal.create_tenant(&name)).await.is_ok() {
            return;
        }
        server.signal("CONT");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the server was always in the middle of a commit");
}

async fn cannot_write(installation: Installation, names: [&str; 2]) {
    let (after_waking, frames) = sleep_through_the_lease(installation, names).await;
    assert_eq!(after_waking, "WORKING", "the second attempt is still at work");
    assert_eq!(frames.iter().filter(|frame| frame.is_end()).count(), 1, "{frames:#?}");
    assert!(frames.last().is_some_and(Frame::is_end), "{frames:#?}");
}

#[tokio::test]
async fn a_server_that_slept_through_its_lease_cannot_write() {
    // Two servers on one file share its data directory.
    tokio::join!(
        cannot_write(Installation::on_sqlite(), ["a", "a"]),
        cannot_write(Installation::on_postgres(), ["a", "b"])
    );
}

#[tokio::test]
async fn control_a_sleeper_without_a_fence_is_noticed() {
    let broken = |installation: Installation| installation.breaking("no-fence");
    let ((on_sqlite, _), (on_postgres, _)) = tokio::join!(
        sleep_through_the_lease(broken(Installation::on_sqlite()), ["a", "a"]),
        sleep_through_the_lease(broken(Installation::on_postgres()), ["a", "b"])
    );
    assert_eq!([on_sqlite, on_postgres], ["COMPLETED"; 2], "a sleeper without a fence ends what it has lost");
}

/// Waits until this holds.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The first instance is stopped after it has kept that it is about to send a message to another Switchboard, and before
/// it does. The second takes the task over and sends the message with its key. The first wakes up while the other
/// Switchboard works, and sends it too.
#[tokio::test]
async fn an_instance_that_stood_still_before_it_sent_a_message_has_the_work_done_once() {
    let elsewhere = Home::on_sqlite();
    let mut serving = elsewhere.serving(&[], &[]);
    serving.env("SB_BOOTSTRAP_TOKEN", TOKEN);
    let far = elsewhere.start(&mut serving).await;
    let entry = format!(
        "agents:\n  - name: next\n    url: {}/a2a/agents/stream\n    auth: {{scheme: bearer, credentialsEnv: SB_BOOTSTRAP_TOKEN}}\n",
        far.url
    );
    let installation =
        Installation::on_postgres().with_config("lease = \"1s\"\n[outbound]\npoll = \"200ms\"\n").breaking("slow-send");
    installation.home.write(".config/switchboard/agents.yaml", &entry);
    let mut instances = Instances::start_with_networks(installation, 1).await;
    instances.installation.keep_promises();
    let far_tasks = || {
        let rows = elsewhere.scratch.look(&["SELECT state FROM a2a_tasks"]);
        rows[0].iter().map(|row| row[0].clone().unwrap_or_default()).collect::<Vec<_>>()
    };

    // The first to accept a message runs it.
    let task = instances[0].api().send(&to_at_once("next", "40 chunks, 100 ms apart")).await;
    let id = task["id"].as_str().expect("a task has an id").to_owned();
    until("it keeps that it is about to send", || instances[0].log().contains("a message is about to be sent")).await;
    instances[0].signal("STOP");
    assert_eq!(far_tasks().len(), 0, "it has not sent yet");
    let second = instances.installation.start("b").await;
    until("the second sends", || far_tasks().len() == 1).await;
    // It does not hear that its lease is lost before it has sent.
    instances.apply(&Fault::Network(Passage::Silent), 0).await;
    instances[0].signal("CONT");
    tokio::time::sleep(Duration::from_millis(1500)).await;
    instances.apply(&Fault::Network(Passage::Open), 0).await;
    let is_lost = |log: &str| log.contains("no longer this worker's") || log.contains("has taken the task over");
    until("the first hears that its lease is lost", || is_lost(&instances[0].log())).await;

    let done = second.api().task_when(&id, is_terminal).await;
    let whole: String = (1..=40).map(|n| format!("chunk {n} of 40\n")).collect();
    assert_eq!((state(&done), artifact_text(&done)), ("COMPLETED", whole), "{done:#}");
    let log = instances[0].api().subscribe(&id, Some(0)).await.rest().await;
    assert_eq!(log.iter().filter(|frame| frame.is_end()).count(), 1, "{log:#?}");
    // A cancel that is owed would be told by now.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(far_tasks(), ["completed"], "the work is done once, and is not canceled");
}
