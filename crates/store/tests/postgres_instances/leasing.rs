//! Who works on what, when instances compete, die, or only seem to.

use std::{collections::HashSet, sync::Arc, time::Duration};

use a2a::TaskState::Completed;
use store::{Accept, Append, CancelMark, Claim, Error, Holder, Lease, Room, Store, TaskId, Term};
use testkit::{
    conformance::{self, Damage},
    postgres::Database,
};
use tokio::{runtime::Handle, time::Instant};

use crate::postgres_instances::{
    proxy::{Loss, Proxy},
    rig::*,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_work_is_leased_twice() {
    let (database, one, two) = two().await;
    let mut tasks = HashSet::new();
    for _ in 0..150 {
        tasks.insert(waiting(&*one).await);
    }
    let mut takers = Vec::new();
    for n in 0..6 {
        let store = Arc::clone(if n % 2 == 0 { &one } else { &two });
        takers.push(tokio::spawn(async move {
            let mut leased = Vec::new();
            let mut empty = 0;
            while empty < 3 {
                let turns = claim(&*store, 7).await;
                assert!(turns.len() <= 7);
                empty += usize::from(turns.is_empty());
                for turn in turns {
                    assert_eq!((turn.lease.attempt, turn.interrupted), (1, false));
                    end(&*store, &turn.lease, Completed).await.unwrap();
                    leased.push(turn.lease.task);
                }
            }
            leased
        }));
    }
    let mut leased: Vec<TaskId> = Vec::new();
    for taker in takers {
        leased.extend(taker.await.unwrap());
    }
    assert_eq!(leased.len(), 150);
    assert_eq!(leased.iter().copied().collect::<HashSet<_>>(), tasks);
    for task in tasks {
        assert_eq!(checked_log(&*two, task).await.len(), 3);
    }
    check_sums(&database).await;
}

#[tokio::test]
async fn a_lease_is_its_holders_whoever_writes() {
    let (database, one, two) = two().await;
    // The holder is a worker: whichever instance it is connected to writes for it.
    let worker = Holder::worker("w");
    let term = Term { holder: worker.clone(), lasts: MINUTE };
    let accept = Accept { lease: Some(term), ..begin(TaskId::mint()) };
    let lease = one.accept(TENANT, accept).await.unwrap().lease.unwrap();
    for store in [&one, &two, &one] {
        say(&**store, &lease).await.unwrap();
        assert_eq!(store.renew(std::slice::from_ref(&lease), MINUTE).await.unwrap(), []);
    }
    // The right generation is of no use to anybody else.
    let stolen = Lease { holder: two.instance().into(), ..lease.clone() };
    let stolen_ones = std::slice::from_ref(&stolen);
    for store in [&one, &two] {
        assert!(matches!(store.append(&stolen, Append::default()).await, Err(Error::LeaseLost)));
        assert_eq!(store.renew(stolen_ones, MINUTE).await.unwrap(), stolen_ones);
    }
    assert_eq!(two.mark_cancel(TENANT, lease.task).await.unwrap(), CancelMark::Running);
    for store in [&one, &two] {
        assert_eq!(store.marked(std::slice::from_ref(&worker)).await.unwrap(), [lease.task]);
        assert!(store.marked(&[store.instance().into()]).await.unwrap().is_empty());
    }
    end(&*two, &lease, Completed).await.unwrap();
    assert_eq!(checked_log(&*one, lease.task).await.len(), 6);
    check_sums(&database).await;
}

/// Waits until `two` has found `n` leases of dead instances.
async fn reclaimed(two: &dyn Store, n: usize) {
    let since = Instant::now();
    let mut found = 0;
    while found < n {
        assert!(since.elapsed() < Duration::from_secs(10), "{found} of {n} leases were found");
        found += two.reclaim_dead().await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(found, n);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_dead_lose_their_leases() {
    let database = Database::create();
    let proxy = Proxy::start(&database).await;
    let (one, two) = (open(&proxy.url(&database)).await, open(database.url()).await);
    let lease = running(&*one).await;
    assert_eq!(two.reclaim_dead().await.unwrap(), 0, "it lives");
    assert!(claim(&*two, 10).await.is_empty());

    // As far as the server can tell it is dead now.
    proxy.cut();
    reclaimed(&*two, 1).await;
    assert_eq!(two.reclaim_dead().await.unwrap(), 0);
    let known: i64 = raw(&database).await.query_one("SELECT count(*) FROM instances", &[]).await.unwrap().get(0);
    assert_eq!(known, 1, "only itself");
    let turns = claim(&*two, 10).await;
    assert_eq!(turns.len(), 1);
    assert!(turns[0].interrupted);
    assert_eq!((turns[0].lease.task, turns[0].lease.attempt), (lease.task, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_lost_its_session_is_fenced() {
    let database = Database::create();
    let proxy = Proxy::start(&database).await;
    let (one, two) = (open(&proxy.url(&database)).await, open(database.url()).await);
    let (taken, kept) = (running(&*one).await, running(&*one).await);
    proxy.cut();
    reclaimed(&*two, 2).await;
    // One of the two is taken over before it is back.
    let taken_over = claim(&*two, 1).await;
    let (lost, left) = if taken_over[0].lease.task == taken.task { (taken, kept) } else { (kept, taken) };
    proxy.mend();
    let since = Instant::now();
    let renewed = loop {
        match one.renew(&[lost.clone(), left.clone()], MINUTE).await {
            Ok(lost) => break lost,
            Err(error) => assert!(since.elapsed() < Duration::from_secs(10), "{error}"),
        }
    };
    assert_eq!(renewed, std::slice::from_ref(&lost), "what nobody has taken is its own again");
    assert!(matches!(say(&*one, &lost).await, Err(Error::LeaseLost)));
    say(&*one, &left).await.unwrap();
    end(&*two, &taken_over[0].lease, Completed).await.unwrap();
    checked_log(&*one, lost.task).await;

    // It proves that it lives again.
    while two.reclaim_dead().await.unwrap() > 0 || !knows(&database, &one.instance().to_string()).await {
        assert!(since.elapsed() < Duration::from_secs(10), "it is not announced again");
        one.renew(std::slice::from_ref(&left), MINUTE).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(two.reclaim_dead().await.unwrap(), 0);
    say(&*one, &left).await.unwrap();
    check_sums(&database).await;
}

/// As a stopped process: it is in the middle of a commit, its lease runs out, another instance takes over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_stood_still_cannot_write() {
    let database = Database::create();
    let proxy = Proxy::start(&database).await;
    let (one, two) = (open(&proxy.url(&database)).await, open(database.url()).await);
    let accept = Accept { lease: Some(term(&*one, Duration::from_millis(500))), ..begin(TaskId::mint()) };
    let lease = one.accept(TENANT, accept).await.unwrap().lease.unwrap();
    proxy.lose(Loss::Time);
    let ending = {
        let (one, lease) = (Arc::clone(&one), lease.clone());
        tokio::spawn(async move { end(&*one, &lease, Completed).await })
    };
    let since = Instant::now();
    let turn = loop {
        // What is being written is passed over, until the server ends the session that stands still.
        let room = Room::new("echo".parse().unwrap(), 1);
        let claim = Claim::new(term(&*two, Duration::from_millis(200)), vec![room]);
        if let Some(turn) = two.claim(claim).await.unwrap().pop() {
            break turn;
        }
        assert!(since.elapsed() < Duration::from_secs(15), "it keeps its locks");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(since.elapsed() > Duration::from_secs(2), "it did not stand in the middle of a commit");
    assert!(turn.interrupted);
    proxy.go_on();
    let refused = ending.await.unwrap();
    assert!(matches!(refused, Err(Error::LeaseLost)), "{refused:?}");
    end(&*two, &turn.lease, Completed).await.unwrap();
    assert_eq!(checked_log(&*one, lease.task).await.len(), 4);
    check_sums(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_blocks_nobody() {
    let database = Database::create();
    let (store, client) = (open(database.url()).await, raw(&database).await);
    let damage = |task: TaskId, damage: Damage| {
        let sql = match damage {
            Damage::Message => "UPDATE messages SET body = '\\x7b' WHERE task = $1::text::uuid",
            Damage::NoMessage => "DELETE FROM messages WHERE task = $1::text::uuid",
            Damage::State => "UPDATE a2a_tasks SET state = 'dreaming' WHERE task_id = $1::text::uuid",
            Damage::Agent => "UPDATE a2a_tasks SET agent_id = 'No Agent!' WHERE task_id = $1::text::uuid",
            Damage::Ended => "UPDATE a2a_tasks SET state = 'completed' WHERE task_id = $1::text::uuid",
            Damage::Newer => "UPDATE a2a_events SET kind = 99 WHERE kind = 9 AND task = $1::text::uuid",
            Damage::StatusMessage => "UPDATE a2a_tasks SET status_message = '{' WHERE task_id = $1::text::uuid",
        };
        let task = task.to_string();
        let damaged = async { client.execute(sql, &[&task]).await };
        let damaged = tokio::task::block_in_place(|| Handle::current().block_on(damaged));
        assert!(damaged.unwrap() > 0, "{damage:?}");
    };
    conformance::run_damaged(store, damage).await;
    // What could not be read is looked at again in an hour.
    let aside = "SELECT count(*) FROM a2a_tasks WHERE state = 'dreaming'
                   AND due_at BETWEEN lease_now() + 3500000 AND lease_now() + 3600000";
    assert_eq!(client.query_one(aside, &[]).await.unwrap().get::<_, i64>(0), 2);
}

async fn knows(database: &Database, instance: &str) -> bool {
    let known = raw(database).await.query_one("SELECT count(*) FROM instances WHERE id = $1", &[&instance]).await;
    known.unwrap().get::<_, i64>(0) == 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_that_close_leave_no_trace() {
    let database = Database::create();
    let mut instances = Vec::new();
    for _ in 0..3 {
        let store = open(database.url()).await;
        running(&*store).await;
        instances.push(store);
    }
    let count = "SELECT count(*) FROM instances";
    let client = raw(&database).await;
    assert_eq!(client.query_one(count, &[]).await.unwrap().get::<_, i64>(0), 3);
    // All at once, each with work that waits.
    let mut closing = Vec::new();
    for store in instances {
        closing.push(tokio::spawn(async move {
            let calls: Vec<_> = (0..100)
                .map(|_| {
                    let (store, task) = (Arc::clone(&store), TaskId::mint());
                    tokio::spawn(async move { (task, store.accept(TENANT, begin(task)).await) })
                })
                .collect();
            tokio::time::sleep(Duration::from_millis(3)).await;
            store.close().await;
            let mut outcomes = Vec::new();
            for call in calls {
                outcomes.push(call.await.unwrap());
            }
            (store, outcomes)
        }));
    }
    let mut closed = Vec::new();
    for store in closing {
        closed.push(store.await.unwrap());
    }
    assert_eq!(client.query_one(count, &[]).await.unwrap().get::<_, i64>(0), 0);
    let next = open(database.url()).await;
    for (_, outcomes) in &closed {
        for (task, outcome) in outcomes {
            let there = next.head(TENANT, *task).await;
            match outcome {
                Ok(_) => assert_eq!(there.unwrap().seq, 1),
                Err(error) => {
                    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
                    assert!(matches!(there, Err(Error::NotFound)), "what was refused is not there");
                }
            }
        }
    }
    // What they still held is known to be nobody's, although the stores are still in somebody's hands.
    reclaimed(&*next, 3).await;
    check_sums(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_signs_off() {
    let (database, one, two) = two().await;
    let id = one.instance().to_string();
    let lease = running(&*one).await;
    assert!(knows(&database, &id).await);
    drop(one);
    let since = Instant::now();
    while knows(&database, &id).await {
        assert!(since.elapsed() < Duration::from_secs(10), "it is still there");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Its lease has an owner that nobody knows: a dead one.
    reclaimed(&*two, 1).await;
    assert_eq!(claim(&*two, 10).await[0].lease.task, lease.task);
}

#[tokio::test]
async fn a_forced_cancel_of_what_rests_leaves_no_message_in_progress() {
    let (database, one, _two) = two().await;
    let accept = Accept { lease: Some(Term { holder: one.instance().into(), lasts: MINUTE }), ..begin(TaskId::mint()) };
    let lease = one.accept(TENANT, accept).await.unwrap().lease.unwrap();
    let rests = store::TurnEnd::Park { at_most: None };
    one.append(&lease, Append { drafts: vec![], end: Some(rests), ..Append::default() }).await.unwrap();
    one.mark_cancel(TENANT, lease.task).await.unwrap();
    one.force_cancel(TENANT, lease.task).await.unwrap();
    let row = raw(&database).await.query_one("SELECT status FROM messages", &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), "acked");
}
