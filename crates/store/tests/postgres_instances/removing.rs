//! Instances that remove what others write to, repeat and tell at the same time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use a2a::TaskState::Completed;
use store::{Error, Prune, PruneStep, PruneWalk, Removal, Store, TaskId, Whose};
use testkit::postgres::Database;
use tokio_postgres::Client;

use crate::postgres_instances::rig::*;

fn step(what: Prune) -> PruneStep {
    let (whose, older_than, walk) = (Whose::AllBut(Vec::new()), Duration::ZERO, PruneWalk::default());
    PruneStep { tenant: TENANT, whose, what, older_than, walk, size: 1 }
}

/// Steps until nothing is left; how many tasks went.
async fn prune(store: &dyn Store, what: Prune) -> u64 {
    let (mut step, mut tasks) = (step(what), 0);
    loop {
        let pruned = store.prune(step.clone()).await.unwrap();
        tasks += pruned.tasks;
        step.walk = pruned.walk;
        if !pruned.more {
            return tasks;
        }
    }
}

async fn rows(client: &Client, table: &str) -> i64 {
    client.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.unwrap().get(0)
}

async fn deadlocks(database: &Database) -> i64 {
    // What is counted arrives a little later.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let sql = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    raw(database).await.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_two_instances_remove_leaves_nothing() {
    let (database, one, two) = two().await;
    for n in 0..130 {
        let store = if n % 2 == 0 { &one } else { &two };
        let task = TaskId::mint();
        let lease = store.accept(TENANT, keyed(leased(&**store, task), n)).await.unwrap().lease.unwrap();
        say(&**store, &lease).await.unwrap();
        end(&**store, &lease, Completed).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(5)).await;
    let (first, second) = tokio::join!(prune(&*one, Prune::Tasks), prune(&*two, Prune::Tasks));
    // What the other had locked was passed over.
    let rest = prune(&*one, Prune::Tasks).await;
    assert_eq!(first + second + rest, 130);
    let client = raw(&database).await;
    for table in ["a2a_tasks", "a2a_events", "messages", "a2a_artifacts", "idempotency", "push_configs"] {
        assert_eq!(rows(&client, table).await, 0, "{table}");
    }
    check_sums(&database).await;
    assert_eq!(two.usage(TENANT).await.unwrap(), store::Usage::default());
}

/// Writers lock a key and then its task; whoever removes has both to lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn instances_that_delete_and_repeat_do_not_deadlock() {
    let (database, one, two) = two().await;
    let done = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for writer in 0..4u64 {
        let store = Arc::clone(if writer % 2 == 0 { &one } else { &two });
        writers.push(tokio::spawn(async move {
            for n in 0..60u64 {
                // All of them have the same keys: the first begins a task, the others join it, until it is gone.
                let accepted = store.accept(TENANT, keyed(leased(&*store, TaskId::mint()), n % 6)).await.unwrap();
                if let Some(lease) = accepted.lease {
                    let ended = end(&*store, &lease, Completed).await;
                    assert!(ended.is_ok(), "{ended:?}");
                }
                // A message for a task that may be gone by now.
                match store.accept(TENANT, keyed(more(accepted.task), 100 + n % 6)).await {
                    Ok(_) | Err(Error::NotFound | Error::Terminal(_) | Error::IdempotencyConflict) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }));
    }
    let mut removers = Vec::new();
    for remover in 0..3 {
        let store = Arc::clone(if remover % 2 == 0 { &one } else { &two });
        let done = Arc::clone(&done);
        removers.push(tokio::spawn(async move {
            let mut removed = 0;
            while !done.load(Relaxed) {
                if remover == 0 {
                    removed += prune(&*store, Prune::Tasks).await;
                    continue;
                }
                match store.delete(TENANT, "test", Removal::Context(CONTEXT.into()), 1).await {
                    Ok(deleted) => removed += deleted.tasks,
                    Err(Error::NotFound | Error::NotEnded(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            removed
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    done.store(true, Relaxed);
    let mut removed = 0;
    for remover in removers {
        removed += remover.await.unwrap();
    }
    assert!(removed > 5, "{removed} tasks went");
    check_sums(&database).await;
    let client = raw(&database).await;
    let orphans = "(SELECT FROM idempotency i WHERE NOT EXISTS (SELECT FROM a2a_tasks t WHERE t.task_id = i.task)) o";
    assert_eq!(rows(&client, orphans).await, 0, "no key is left of what is gone");
    let orphans = "(SELECT FROM a2a_events e WHERE NOT EXISTS (SELECT FROM a2a_tasks t WHERE t.task_id = e.task)) o";
    assert_eq!(rows(&client, orphans).await, 0);
    assert_eq!(deadlocks(&database).await, 0);
}

/// A key that somebody is about to answer from keeps its task for this time; a step does not wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_step_waits_for_nobody() {
    let (database, one, _two) = two().await;
    let mut tasks = Vec::new();
    for n in 0..3 {
        let accepted = one.accept(TENANT, keyed(leased(&*one, TaskId::mint()), n)).await.unwrap();
        end(&*one, &accepted.lease.unwrap(), Completed).await.unwrap();
        tasks.push(accepted.task);
    }
    tokio::time::sleep(Duration::from_millis(5)).await;
    let mut client = raw(&database).await;
    let other = client.transaction().await.unwrap();
    let lock = "SELECT FROM idempotency WHERE task = $1::text::uuid FOR UPDATE";
    other.query(lock, &[&tasks[0].to_string()]).await.unwrap();
    let lock = "SELECT FROM a2a_tasks WHERE task_id = $1::text::uuid FOR UPDATE";
    other.query(lock, &[&tasks[1].to_string()]).await.unwrap();
    let pruned = tokio::time::timeout(Duration::from_secs(5), prune(&*one, Prune::Tasks)).await;
    assert_eq!(pruned.expect("nobody is waited for"), 1);
    assert_eq!(prune(&*one, Prune::Events).await, 0);
    other.rollback().await.unwrap();
    assert_eq!(prune(&*one, Prune::Tasks).await, 2);
    check_sums(&database).await;
}
