//! Lost connections and lost answers: nothing is lost, nothing is doubled, and it goes on by itself.

use std::{sync::Arc, time::Duration};

use a2a::TaskState::Completed;
use store::{
    Append, Draft, Error, EventKind, TaskId, View, clock,
    postgres::{self, Options},
};
use testkit::postgres::Database;
use tokio::time::{Instant, timeout};

use crate::postgres_instances::{
    proxy::{Loss, Proxy},
    rig::*,
};

async fn behind_a_proxy() -> (Database, Proxy, Instance) {
    let database = Database::create();
    let proxy = Proxy::start(&database).await;
    let store = open(&proxy.url(&database)).await;
    // The writer has its connection.
    running(&*store).await;
    (database, proxy, store)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_not_repeated() {
    let (database, proxy, store) = behind_a_proxy().await;
    for round in 1..=5 {
        let lease = running(&*store).await;
        let mut watch = store.hub().watch(lease.task);
        proxy.lose(Loss::Answer);
        say(&*store, &lease).await.unwrap();
        assert_eq!(proxy.lost(), round * 2 - 1, "the answer was lost");
        timeout(Duration::from_secs(1), watch.changed()).await.expect("what was committed is published");
        // Said twice it would have two.
        assert_eq!(checked_log(&*store, lease.task).await.len(), 3);

        proxy.lose(Loss::Answer);
        assert_eq!(end(&*store, &lease, Completed).await.unwrap().state, Completed, "it knows that it was its own end");
        assert_eq!(proxy.lost(), round * 2, "the answer was lost");
        assert_eq!(checked_log(&*store, lease.task).await.len(), 4);
    }
    check_sums(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_never_arrived_is_repeated() {
    let (database, proxy, store) = behind_a_proxy().await;
    for round in 1..=5 {
        let lease = running(&*store).await;
        proxy.lose(Loss::Commit);
        say(&*store, &lease).await.unwrap();
        assert_eq!(proxy.lost(), round, "the commit was lost");
        assert_eq!(checked_log(&*store, lease.task).await.len(), 3);
    }
    check_sums(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn connections_that_break_at_any_commit_lose_and_double_nothing() {
    let (database, proxy, store) = behind_a_proxy().await;
    let mut workers = Vec::new();
    for worker in 0..16 {
        let store = Arc::clone(&store);
        workers.push(tokio::spawn(async move {
            let mut tasks = Vec::new();
            for n in 0..20 {
                let task = TaskId::mint();
                let accept = keyed(leased(&*store, task), worker * 1000 + n);
                let accepted = store.accept(TENANT, accept.clone()).await.unwrap();
                assert!(!accepted.duplicate && accepted.task == task, "it met itself");
                let lease = accepted.lease.unwrap();
                say(&*store, &lease).await.unwrap();
                end(&*store, &lease, Completed).await.unwrap();
                tasks.push(task);
            }
            tasks
        }));
    }
    let losses = [Loss::Both, Loss::Answer, Loss::Commit];
    let begun = Instant::now();
    for (n, loss) in losses.into_iter().cycle().enumerate() {
        // On a busy machine few commits come by in a while, and each loss needs one.
        if n >= 12 && (proxy.lost() >= 3 || begun.elapsed() > Duration::from_secs(10)) {
            break;
        }
        proxy.lose(loss);
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    proxy.lose(Loss::Nothing);
    for worker in workers {
        for task in worker.await.unwrap() {
            assert_eq!(checked_log(&*store, task).await.len(), 4);
        }
    }
    assert!(proxy.lost() >= 3, "{} were lost", proxy.lost());
    check_sums(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_database_refuses_and_recovers() {
    let database = Database::create();
    let proxy = Proxy::start(&database).await;
    let options = Options { patience: Duration::from_secs(1), ..Options::default() };
    let store = open_with(&proxy.url(&database), options).await;
    let lease = running(&*store).await;
    proxy.cut();
    let before = Instant::now();
    let refused = TaskId::mint();
    let outcomes =
        tokio::join!(store.accept(TENANT, begin(refused)), store.accept(TENANT, begin(refused)), say(&*store, &lease),);
    assert!(before.elapsed() < Duration::from_secs(5), "{:?}", before.elapsed());
    assert!(matches!(outcomes.0, Err(Error::Unavailable(_))), "{:?}", outcomes.0);
    assert!(matches!(outcomes.1, Err(Error::Unavailable(_))), "{:?}", outcomes.1);
    assert!(matches!(outcomes.2, Err(Error::Unavailable(_))), "{:?}", outcomes.2);
    // The last commit is no proof any more.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(matches!(timeout(Duration::from_secs(20), store.ping()).await, Ok(Err(Error::Unavailable(_)))));

    proxy.mend();
    let waited = Instant::now();
    while say(&*store, &lease).await.is_err() {
        assert!(waited.elapsed() < Duration::from_secs(10), "it does not recover");
    }
    store.ping().await.unwrap();
    // What was refused does not turn up later.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(matches!(store.head(TENANT, refused).await, Err(Error::NotFound)));
    assert_eq!(checked_log(&*store, lease.task).await.len(), 3);
    check_sums(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_survives_a_short_outage() {
    let (database, proxy, store) = behind_a_proxy().await;
    let lease = running(&*store).await;
    proxy.cut();
    let saying = {
        let (store, lease) = (Arc::clone(&store), lease.clone());
        tokio::spawn(async move { say(&*store, &lease).await })
    };
    tokio::time::sleep(Duration::from_millis(700)).await;
    proxy.mend();
    saying.await.unwrap().unwrap();
    let kinds = checked_log(&*store, lease.task).await;
    assert_eq!(kinds.iter().filter(|kind| matches!(kind, EventKind::Status { .. })).count(), 1, "it is said once");
    check_sums(&database).await;
}

#[tokio::test]
async fn a_failing_operation_fails_alone() {
    let database = Database::create();
    let store = open(database.url()).await;
    let taken = TaskId::mint();
    store.accept(TENANT, leased(&*store, taken)).await.unwrap();
    let calls: Vec<_> = (0..50)
        .map(|n| {
            let store = Arc::clone(&store);
            // A task id that exists breaks a constraint of the database when the batch is written.
            let task = if n % 10 == 5 { taken } else { TaskId::mint() };
            tokio::spawn(async move { (task, store.accept(TENANT, leased(&*store, task)).await) })
        })
        .collect();
    for call in calls {
        let (task, outcome) = call.await.unwrap();
        if task == taken {
            assert!(matches!(outcome, Err(Error::Postgres(_))), "{outcome:?}");
        } else {
            outcome.unwrap();
            assert_eq!(checked_log(&*store, task).await.len(), 2);
        }
    }
    assert_eq!(checked_log(&*store, taken).await.len(), 2);
    check_sums(&database).await;
}

/// As an instance that was stopped in the middle of a transaction: one locked row must not keep the rest from going on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_someone_holds_stops_only_its_own_operations() {
    let database = Database::create();
    let store = open_with(database.url(), Options { patience: Duration::from_secs(20), ..Options::default() }).await;
    let stuck = running(&*store).await;
    let holder = raw(&database).await;
    holder.batch_execute("BEGIN").await.unwrap();
    let lock = format!("SELECT 1 FROM a2a_tasks WHERE task_id = '{}' FOR UPDATE", stuck.task);
    holder.batch_execute(&lock).await.unwrap();
    let mut calls = Vec::new();
    for n in 0..30 {
        let (store, stuck) = (Arc::clone(&store), stuck.clone());
        calls.push(tokio::spawn(async move {
            if n == 15 {
                return say(&*store, &stuck).await.map(drop);
            }
            let lease = running(&*store).await;
            say(&*store, &lease).await.map(drop)
        }));
    }
    for (n, call) in calls.into_iter().enumerate() {
        let outcome = call.await.unwrap();
        assert_eq!(matches!(outcome, Err(Error::Unavailable(_))), n == 15, "{outcome:?}");
        assert_eq!(outcome.is_ok(), n != 15);
    }
    holder.batch_execute("ROLLBACK").await.unwrap();
    say(&*store, &stuck).await.unwrap();
    assert_eq!(checked_log(&*store, stuck.task).await.len(), 3);
}

#[tokio::test]
async fn one_accept_is_one_commit_and_reading_is_none() {
    let database = Database::create();
    let store = open(database.url()).await;
    let before = store.stats();
    let lease = running(&*store).await;
    assert_eq!(store.stats().commits, before.commits + 1);
    assert_eq!(store.stats().events, before.events + 2);
    end(&*store, &lease, Completed).await.unwrap();
    let after = store.stats();
    assert_eq!(after.commits, before.commits + 2, "a send to an instant agent is two commits");
    // Writes that find nothing to write are none, on the server too.
    let commits = "SELECT count(*) FROM commits";
    let client = raw(&database).await;
    let written: i64 = client.query_one(commits, &[]).await.unwrap().get(0);
    assert!(claim(&*store, 10).await.is_empty());
    assert!(store.mark_cancel(TENANT, TaskId::mint()).await.is_err());
    assert!(store.mark_cancel(TENANT, lease.task).await.is_ok());
    assert_eq!(store.stats(), after);
    assert_eq!(client.query_one(commits, &[]).await.unwrap().get::<_, i64>(0), written);
}

#[tokio::test]
async fn what_waits_together_is_committed_together() {
    let database = Database::create();
    let store = open(database.url()).await;
    let before = store.stats().commits;
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { running(&*store).await })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    let commits = store.stats().commits - before;
    assert!((1..=25).contains(&commits), "100 accepts took {commits} commits");
    check_sums(&database).await;
}

#[tokio::test]
async fn ids_may_hold_what_text_cannot() {
    let database = Database::create();
    let store = open(database.url()).await;
    let lease = running(&*store).await;
    let made = |text: &str, append| {
        let artifact =
            a2a::Artifact { artifact_id: "a\0b".into(), parts: vec![a2a::Part::text(text)], ..Default::default() };
        Draft::artifact(lease.task, CONTEXT, artifact, append, false, None, clock::now()).unwrap()
    };
    let drafts = vec![made("one", false), made("two", false)];
    store.append(&lease, Append { drafts, end: None, ..Append::default() }).await.unwrap();
    let drafts = vec![made("three", false), made(" and more", true)];
    store.append(&lease, Append { drafts, end: None, ..Append::default() }).await.unwrap();
    let task = store.task(TENANT, lease.task, View::FULL).await.unwrap().to_task().unwrap();
    assert_eq!((task.artifacts.len(), task.artifacts[0].artifact_id.as_str()), (1, "a\0b"));
    assert_eq!(task.artifacts[0].parts[0].as_text(), Some("three and more"));
    check_sums(&database).await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error() {
    let outcome = postgres::open(&"postgres://nobody@127.0.0.1:1/none".parse().unwrap(), Options::default()).await;
    assert!(matches!(outcome, Err(Error::Unavailable(_))));
}
