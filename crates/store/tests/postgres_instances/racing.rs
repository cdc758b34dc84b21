//! Two instances that write to the same things at the same time.

use std::{sync::Arc, time::Duration};

use a2a::TaskState::{Canceled, Completed, InputRequired};
use store::{Accept, CancelMark, Error, EventKind, Quota, Recent, TaskId};
use testkit::postgres::Database;
use tokio::time::timeout;

use crate::postgres_instances::{
    proxy::{Loss, Proxy},
    rig::*,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_two_instances_wins_a_key() {
    let (database, one, two) = two().await;
    for round in 0..40 {
        let mut calls = Vec::new();
        for n in 0..8 {
            let store = Arc::clone(if n % 2 == 0 { &one } else { &two });
            calls.push(tokio::spawn(async move {
                let accept = keyed(leased(&*store, TaskId::mint()), round);
                store.accept(TENANT, accept).await.unwrap()
            }));
        }
        let mut accepted = Vec::new();
        for call in calls {
            accepted.push(call.await.unwrap());
        }
        let first: Vec<_> = accepted.iter().filter(|accepted| !accepted.duplicate).collect();
        assert_eq!(first.len(), 1, "{accepted:?}");
        assert!(accepted.iter().all(|accepted| accepted.task == first[0].task && accepted.turn == 1));
        assert!(accepted.iter().filter(|accepted| accepted.duplicate).all(|accepted| accepted.lease.is_none()));
    }
    assert_eq!(one.usage(TENANT).await.unwrap().tasks, 40);
    check_sums(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_refused_operation_leaves_its_key_free() {
    let (database, one, two) = two().await;
    let nothing = keyed(more(TaskId::mint()), 1);
    assert!(matches!(one.accept(TENANT, nothing).await, Err(Error::NotFound)));
    // Together with one that is not refused, so that the batch is committed.
    let (refused, good) =
        tokio::join!(one.accept(TENANT, keyed(more(TaskId::mint()), 2)), one.accept(TENANT, begin(TaskId::mint())));
    assert!(matches!(refused, Err(Error::NotFound)));
    good.unwrap();
    for key in [1, 2] {
        assert!(!two.accept(TENANT, keyed(begin(TaskId::mint()), key)).await.unwrap().duplicate);
    }
    let lease = running(&*two).await;
    let first = one.accept(TENANT, keyed(more(lease.task), 3)).await.unwrap();
    let again = two.accept(TENANT, keyed(more(lease.task), 3)).await.unwrap();
    assert!(again.duplicate && !first.duplicate);
    assert_eq!((again.turn, again.task), (first.turn, first.task), "it is remembered as what it became");
    check_sums(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_appends_leave_no_gap() {
    let (database, one, two) = two().await;
    let lease = running(&*one).await;
    // Each goes on when its last one is committed, so that there are many small batches that overlap.
    let mut writers = Vec::new();
    for writer in 0..3 {
        let (one, two, lease) = (Arc::clone(&one), Arc::clone(&two), lease.clone());
        writers.push(tokio::spawn(async move {
            let mut seqs = Vec::new();
            for _ in 0..20 {
                seqs.push(match writer {
                    0 => say(&*one, &lease).await.unwrap().seq,
                    1 => one.accept(TENANT, more(lease.task)).await.unwrap().seq,
                    _ => two.accept(TENANT, more(lease.task)).await.unwrap().seq,
                });
            }
            seqs
        }));
    }
    let mut seqs = Vec::new();
    for writer in writers {
        seqs.extend(writer.await.unwrap());
    }
    seqs.sort_unstable();
    seqs.dedup();
    assert_eq!(seqs.len(), 60, "each has a number of its own");
    let kinds = checked_log(&*two, lease.task).await;
    assert_eq!(kinds.len(), 62);
    assert_eq!(kinds.iter().filter(|kind| **kind == EventKind::Input).count(), 40);

    // All of them get their turn, in the order of their numbers.
    for turn in 2..=41 {
        let next = end(&*one, &lease, Completed).await.unwrap().next.unwrap();
        assert_eq!(next.number, turn);
    }
    assert!(end(&*one, &lease, Completed).await.unwrap().next.is_none());
    checked_log(&*one, lease.task).await;
    check_sums(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn continuation_and_cancel_race_to_one_end() {
    let (database, one, two) = two().await;
    for _ in 0..25 {
        let lease = running(&*one).await;
        end(&*one, &lease, InputRequired).await.unwrap();
        let task = lease.task;
        let (more_one, more_two, cancel_one, cancel_two) = tokio::join!(
            one.accept(TENANT, more(task)),
            two.accept(TENANT, more(task)),
            one.mark_cancel(TENANT, task),
            two.mark_cancel(TENANT, task),
        );
        for outcome in [more_one, more_two] {
            assert!(matches!(outcome, Ok(_) | Err(Error::Terminal(Canceled))), "{outcome:?}");
        }
        let mut ended = 0;
        for outcome in [cancel_one, cancel_two] {
            let CancelMark::Canceled { already } = outcome.unwrap() else { panic!("nobody runs it") };
            ended += usize::from(!already);
        }
        assert_eq!(ended, 1);
        let kinds = checked_log(&*two, task).await;
        assert!(matches!(kinds.last(), Some(EventKind::Status { state: Canceled, ends_turn: true })));
    }
    check_sums(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn instances_that_write_the_same_tasks_do_not_deadlock() {
    let (database, one, two) = two().await;
    let mut leases = Vec::new();
    for _ in 0..12 {
        leases.push(running(&*one).await);
    }
    // First the tasks alone, then with keys, which are locked before them and would hide a wrong order of tasks.
    for with_keys in [false, true] {
        let mut calls = Vec::new();
        for n in 0..600_usize {
            let store = Arc::clone(if n % 2 == 0 { &one } else { &two });
            // The two go through the tasks in opposite directions.
            let lease = leases[if n % 2 == 0 { n } else { 600 - n } / 2 % leases.len()].clone();
            calls.push(tokio::spawn(async move {
                match n % 10 {
                    0 | 1 => drop(claim(&*store, 3).await),
                    2 | 3 => drop(store.renew(std::slice::from_ref(&lease), MINUTE).await.unwrap()),
                    _ if with_keys => {
                        drop(store.accept(TENANT, keyed(more(lease.task), n as u64 / 4)).await.unwrap());
                    }
                    _ => drop(store.accept(TENANT, more(lease.task)).await.unwrap()),
                }
            }));
            if n % 20 == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        for call in calls {
            call.await.unwrap();
        }
    }
    for lease in &leases {
        checked_log(&*one, lease.task).await;
    }
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(raw(&database).await.query_one(deadlocks, &[]).await.unwrap().get::<_, i64>(0), 0);
    check_sums(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn instances_do_not_pass_a_bound_together() {
    let (database, one, two) = two().await;
    let mut calls = Vec::new();
    for n in 0..60 {
        let store = Arc::clone(if n % 2 == 0 { &one } else { &two });
        calls.push(tokio::spawn(async move {
            let accept = Accept { quota: Quota { tasks: Some(7), bytes: None }, ..begin(TaskId::mint()) };
            match store.accept(TENANT, accept).await {
                Ok(_) => true,
                Err(Error::TooManyTasks { limit: 7 }) => false,
                Err(error) => panic!("{error}"),
            }
        }));
    }
    let mut accepted = 0;
    for call in calls {
        accepted += usize::from(call.await.unwrap());
    }
    assert_eq!((accepted, one.usage(TENANT).await.unwrap().tasks), (7, 7));
    check_sums(&database).await;
}

fn within(task: TaskId, tasks: u64) -> Accept {
    Accept { quota: Quota { tasks: Some(tasks), bytes: None }, ..begin(task) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn far_from_its_bound_a_tenant_needs_no_lock() {
    let (database, one, two) = two().await;
    // A batch that begins a large part of what a tenant may have takes the lock in any case: these do not.
    for _ in 0..6 {
        let mut calls = Vec::new();
        for n in 0..50 {
            let store = Arc::clone(if n % 2 == 0 { &one } else { &two });
            calls.push(tokio::spawn(async move { store.accept(TENANT, within(TaskId::mint(), 10_000)).await }));
        }
        for call in calls {
            call.await.unwrap().unwrap();
        }
    }
    assert_eq!((one.stats().quota_locks, two.stats().quota_locks), (0, 0));
    assert_eq!(one.usage(TENANT).await.unwrap().tasks, 300);

    // Near it every batch does, and the bound is exact.
    for _ in 0..4 {
        one.accept(TENANT, within(TaskId::mint(), 304)).await.unwrap();
    }
    assert_eq!(one.stats().quota_locks, 4);
    let refused = two.accept(TENANT, within(TaskId::mint(), 304)).await;
    assert!(matches!(refused, Err(Error::TooManyTasks { limit: 304 })), "{refused:?}");
    assert_eq!(two.stats().quota_locks, 1);
    check_sums(&database).await;
}

/// It has found the tenant far from its bound, and commits when others have brought it there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_instance_does_not_pass_a_bound() {
    let database = Database::create();
    let proxy = Proxy::start(&database).await;
    let (slow, fast) = (open(&proxy.url(&database)).await, open(database.url()).await);
    for n in 1..=30 {
        let store = if n % 2 == 0 { &slow } else { &fast };
        store.accept(TENANT, within(TaskId::mint(), 64)).await.unwrap();
    }
    proxy.lose(Loss::Time);
    let late = {
        let slow = Arc::clone(&slow);
        tokio::spawn(async move { slow.accept(TENANT, within(TaskId::mint(), 64)).await })
    };
    while proxy.lost() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let filling = {
        let fast = Arc::clone(&fast);
        tokio::spawn(async move {
            let mut begun = 0;
            while fast.accept(TENANT, within(TaskId::mint(), 64)).await.is_ok() {
                begun += 1;
            }
            begun
        })
    };
    tokio::time::sleep(Duration::from_millis(1000)).await;
    proxy.go_on();
    let late = late.await.unwrap();
    assert!(matches!(late, Ok(_) | Err(Error::TooManyTasks { .. })), "{late:?}");
    let begun = filling.await.unwrap();
    assert_eq!(30 + begun + u64::from(late.is_ok()), 64);
    assert_eq!(fast.usage(TENANT).await.unwrap().tasks, 64);
    check_sums(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_instances_hear_each_other() {
    let (_database, one, two) = two().await;
    assert_ne!(one.instance(), two.instance());
    let lease = running(&*one).await;
    let mut watch = two.hub().watch(lease.task);
    let mut due = two.hub().due();
    // What was announced before is behind it.
    tokio::time::sleep(Duration::from_millis(100)).await;
    watch.recent(2);
    due.mark_unchanged();
    end(&*one, &lease, InputRequired).await.unwrap();
    timeout(Duration::from_secs(2), watch.changed()).await.unwrap();
    assert!(matches!(watch.recent(2), Recent::Behind), "it is told that there is more");
    assert_eq!(two.events(TENANT, lease.task, 2, 10).await.unwrap().len(), 1);
    one.accept(TENANT, more(lease.task)).await.unwrap();
    timeout(Duration::from_secs(2), due.changed()).await.unwrap().unwrap();
    assert_eq!(claim(&*two, 10).await.len(), 1);
}
