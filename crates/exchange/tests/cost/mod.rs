//! What a message costs, by count: allocations, and how often its content is written out again. A change
//! that makes any of them grow fails here, on any machine. Each runs in a process of its own, as nextest does it. What the
//! counts are worth in time is `sb bench`'s to say.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::alloc::System;

use a2a::{Artifact, Part};
use exchange::{Outcome, Output, Turn};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use crate::rig::{Rig, agent, event, message};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const SENDS: usize = 200;

/// Measured (119 to 121), with a little room for what timing changes: which thread grows which buffer.
const ALLOCATIONS: f64 = 122.0;
const COPIES: f64 = 19.5;

/// What the demo agent of that name does.
async fn echo(turn: Turn, out: Output) -> Outcome {
    let artifact = Artifact { name: "echo".to_owned(), parts: turn.message.parts.clone(), ..Artifact::default() };
    out.artifact(artifact, false, true, None).await;
    Outcome::Completed(turn.message.parts)
}

/// Allocations and allocated bytes of a blocking send, on the average of many, one after the other.
async fn cost_of(rig: &Rig, text: &str) -> (f64, f64) {
    for _ in 0..SENDS / 4 {
        rig.send("echo", message(text)).await.unwrap();
    }
    let before = ALLOCATOR.stats();
    for _ in 0..SENDS {
        rig.send("echo", message(text)).await.unwrap();
    }
    let spent = ALLOCATOR.stats() - before;
    let each = |n: usize| n as f64 / SENDS as f64;
    let bytes = usize::try_from(spent.bytes_reallocated).unwrap_or_default() + spent.bytes_allocated;
    (each(spent.allocations + spent.reallocations), each(bytes))
}

#[tokio::test]
async fn a_blocking_send_allocates_so_often_and_no_more() {
    let rig = Rig::new(vec![agent("echo", echo)]).await;
    let (allocations, bytes) = cost_of(&rig, "hello").await;
    println!("{allocations} allocations, {bytes} bytes a send");
    assert!(allocations <= ALLOCATIONS, "{allocations} allocations a send, at most {ALLOCATIONS} are ours");
}

#[tokio::test]
async fn a_message_is_written_out_so_often_and_no_more() {
    let rig = Rig::new(vec![agent("echo", echo)]).await;
    const SIZE: usize = 100_000;
    let (_, small) = cost_of(&rig, "").await;
    let (_, large) = cost_of(&rig, &"x".repeat(SIZE)).await;
    let copies = (large - small) / SIZE as f64;
    println!("{copies} copies");
    assert!(copies <= COPIES, "a message's text is copied {copies} times, at most {COPIES} are ours");
}

#[tokio::test]
async fn the_bytes_of_an_event_are_shared_by_all_who_follow() {
    let rig = Rig::new(vec![agent("parts", |turn: Turn, out: Output| async move {
        let go = turn.cancel.clone();
        out.text("first", true).await;
        go.cancelled().await;
        Outcome::Completed(vec![Part::text("done")])
    })])
    .await;
    let id = rig.start("parts", message("go")).await;
    let mut followers = Vec::new();
    for _ in 0..8 {
        let mut frames = rig.frames(&id, 0).await;
        frames.next().await.unwrap().unwrap();
        followers.push(frames);
    }
    rig.cancel(&id).await.unwrap();
    let mut places = Vec::new();
    for frames in &mut followers {
        while let Some(frame) = frames.next().await {
            let frame = frame.unwrap();
            let event = event(&frame);
            if event.kind.ends_task() {
                places.push(event.body.as_ptr());
            }
        }
    }
    assert_eq!(places.len(), 8);
    places.dedup();
    assert_eq!(places.len(), 1, "one buffer for everybody");
}
