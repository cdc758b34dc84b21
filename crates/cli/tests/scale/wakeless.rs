//! Without wake-ups, and with wake-ups that come and go, everything still arrives.

use std::time::Duration;

use testkit::postgres::Database;

use super::{
    crossing::{cancel_elsewhere, continue_elsewhere, follow_across_a_takeover, repeat_elsewhere},
    http::{text, to_at_once},
    nats::Nats,
    rig::{Server, Setting},
    sse::Frame,
};

#[tokio::test]
async fn everything_arrives_without_wake_ups() {
    let database = Database::create();
    let setting = Setting::on(database.url()).with_wake("off");
    let [a, b]: [Server; 2] = setting.start_all().await;
    let (from_a, from_b) = (a.api(), b.api());
    cancel_elsewhere(&from_a, &from_b, Duration::from_secs(20)).await;
    repeat_elsewhere(&from_a, &from_b).await;
    continue_elsewhere(&from_a, &from_b).await;
    drop((a, b));
    follow_across_a_takeover(&setting).await;
}

#[tokio::test]
async fn everything_arrives_while_nats_comes_and_goes() {
    let database = Database::create();
    let mut nats = Nats::start(&[]);
    let setting = Setting::on(database.url()).with_wake(&nats.url());
    let [a, b]: [Server; 2] = setting.start_all().await;
    let (from_a, from_b) = (a.api(), b.api());
    cancel_elsewhere(&from_a, &from_b, Duration::from_secs(20)).await;
    repeat_elsewhere(&from_a, &from_b).await;

    // It is killed in the middle of a stream, and comes back in the middle of it.
    let task = from_a.send(&to_at_once("stream", "150 40")).await;
    let id = text(&task, "/id");
    let mut stream = from_b.subscribe(id, Some(0)).await;
    let mut frames = stream.until(|frame| !frame.artifact_text().is_empty()).await;
    nats.kill9();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    continue_elsewhere(&from_a, &from_b).await;
    nats.start_again();
    frames.extend(stream.rest().await);
    assert!(frames.last().is_some_and(Frame::is_end));
    assert_eq!(frames, from_a.subscribe(id, Some(0)).await.rest().await);

    nats.kill9();
    for instance in [&a, &b] {
        assert_eq!(instance.readiness().await, 200, "without NATS an instance is as ready as with it");
    }
    drop((a, b));
    nats.start_again();
    follow_across_a_takeover(&setting).await;
}
