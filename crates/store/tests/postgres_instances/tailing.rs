//! The log of all tasks, when transactions commit in another order than they began.

use std::{collections::HashSet, sync::Arc, time::Duration};

use a2a::TaskState::Completed;
use store::{Position, Store, TaskId};
use testkit::postgres::Database;
use tokio::time::Instant;

use crate::postgres_instances::rig::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tail_waits_for_transactions_that_are_out_of_order() {
    let database = Database::create();
    let store = open(database.url()).await;
    let task = running(&*store).await.task;
    let (_, position) = follow(&*store, Position::default(), 2).await;

    // A transaction that takes its position first and commits last.
    let slow = raw(&database).await;
    slow.batch_execute("BEGIN").await.unwrap();
    let insert = format!("INSERT INTO a2a_events (task, seq, at, kind, body) VALUES ('{task}', 3, 0, 18, '{{}}')");
    slow.batch_execute(&insert).await.unwrap();
    let fast = running(&*store).await.task;
    let (early, same) = store.tail(&position, 10).await.unwrap();
    assert_eq!((early.len(), same), (0, position), "whoever goes past the slow one now never meets it");
    slow.batch_execute("COMMIT").await.unwrap();

    let (met, end) = follow(&*store, position, 3).await;
    assert_eq!(met, [(task, 3), (fast, 1), (fast, 2)]);
    assert_eq!(store.tail(&end, 10).await.unwrap(), (vec![], end));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_tail_over_two_instances_meets_every_event_once() {
    let (_database, one, two) = two().await;
    let mut writers = Vec::new();
    for n in 0..8 {
        let store = Arc::clone(if n % 2 == 0 { &one } else { &two });
        writers.push(tokio::spawn(async move {
            for _ in 0..15 {
                let lease = running(&*store).await;
                say(&*store, &lease).await.unwrap();
                end(&*store, &lease, Completed).await.unwrap();
            }
        }));
    }
    let (met, end) = follow(&*two, Position::default(), 8 * 15 * 4).await;
    for writer in writers {
        writer.await.unwrap();
    }
    let different: HashSet<(TaskId, u64)> = met.iter().copied().collect();
    assert_eq!(different.len(), met.len(), "an event came twice");
    assert_eq!(one.tail(&end, 1).await.unwrap().0, []);
}

/// Tails the log until so many events have come. Transactions of other tests on the same server may hold it up.
async fn follow(store: &dyn Store, mut position: Position, n: usize) -> (Vec<(TaskId, u64)>, Position) {
    let since = Instant::now();
    let mut met = Vec::new();
    while met.len() < n {
        assert!(since.elapsed() < Duration::from_secs(30), "{} of {n} events have come", met.len());
        let (more, next) = store.tail(&position, 11).await.unwrap();
        if more.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        met.extend(more.iter().map(|tailed| (tailed.task, tailed.event.seq)));
        position = next;
    }
    (met, position)
}
