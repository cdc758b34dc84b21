//! A database that cannot be reached, is lost, falls silent or is slow.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::{postgres::Database, temp_store::add_tenant};
use tokio::task::JoinSet;

use super::http::{answer, artifact_text, is_terminal, state, text, to, to_at_once};
use crate::{
    chaos::{Fault, Installation, Instances, LastCommit, Passage, Programs, attempts, becomes, connect},
    harness::Ended,
};

/// How long an answer may take when the database does not: an operation waits ten seconds for it.
const ANSWER: Duration = Duration::from_secs(20);

#[tokio::test]
async fn an_unreachable_database_is_said_at_the_start() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let url = format!("postgres://me:secret@{}/switchboard", nobody.expect("a port is free"));
    let begun = Instant::now();
    let Err(Ended { status, said }) = Installation::on(&url).try_to_start("a").await else { panic!("it listens") };
    assert!(begun.elapsed() < ANSWER, "{:?}", begun.elapsed());
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("cannot open the journal") && said.contains("Connection refused"), "{said}");
    assert!(!said.contains("secret"), "{said}");
}

/// Another session holds the row of a task that one tenant continues: a backup, a vacuum, a person with a shell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_one_tenant_waits_for_is_said_to_it_and_holds_up_no_other() {
    let database = Database::create();
    let installation = Installation::on(database.url());
    let instance = installation.start("a").await;
    add_tenant(installation.journal().await.as_ref(), "other", "sb_other").await;
    let (api, other) = (instance.api(), instance.api().with_token(Some("sb_other")));
    let asking = api.send(&to("ask", "a question")).await;
    let id = text(&asking, "/id").to_owned();
    other.send(&to("echo", "hello")).await;

    let holder = connect(database.url()).await;
    let hold = format!("BEGIN; SELECT FROM a2a_tasks WHERE task_id = '{id}' FOR UPDATE");
    holder.batch_execute(&hold).await.expect("the row is there");
    let answered = answer(&id, "an answer");
    let begun = Instant::now();
    let mut refused = std::pin::pin!(api.post("/a2a/message:send", &answered));
    let mut longest = Duration::ZERO;
    let others = async {
        loop {
            let asked = Instant::now();
            other.send(&to("echo", "hello")).await;
            longest = longest.max(asked.elapsed());
        }
    };
    let refused = tokio::select! {
        refused = &mut refused => refused,
        () = others => unreachable!("they go on for ever"),
    };
    assert!(begun.elapsed() >= Duration::from_secs(3), "it is waited for: {:?}", begun.elapsed());
    assert_eq!(refused.status, 503, "{}", refused.shown());
    assert_eq!(refused.json()["error"]["message"], "the journal cannot take this now; try again");
    assert!(longest < Duration::from_secs(1), "another tenant waited {longest:?}");

    holder.batch_execute("ROLLBACK").await.expect("it is held");
    let done = api.send(&answered).await;
    assert_eq!(state(&done), "COMPLETED", "{done:#}");
}

/// The database is lost while a turn runs, for longer than its lease lasts.
async fn lose(loss: Passage) {
    let installation = Installation::on_postgres().with_config("lease = \"3s\"\n");
    let mut instances = Instances::start_with_networks(installation, 1).await;
    let api = instances[0].api();
    let before = api.send(&to("echo", "before")).await;
    let running = api.send(&to_at_once("stream", "40 50")).await;
    instances.apply(&Fault::Network(loss), 0).await;
    becomes(&instances[0], 503, ANSWER).await;
    assert_eq!(api.get("/healthz").await.status, 200, "it lives all the same");
    // Every call is answered, and what cannot be taken is refused.
    let mut calls = JoinSet::new();
    for n in 0..20 {
        let api = api.clone();
        calls.spawn(async move {
            let begun = Instant::now();
            let reply = match n % 2 {
                0 => api.post("/a2a/message:send", &to_at_once("echo", "during")).await,
                _ => api.get("/a2a/tasks?pageSize=1").await,
            };
            (reply.status, begun.elapsed())
        });
    }
    for (status, took) in calls.join_all().await {
        assert_eq!(status, 503);
        assert!(took < ANSWER, "{took:?}");
    }
    instances.apply(&Fault::Network(Passage::Open), 0).await;
    becomes(&instances[0], 200, ANSWER).await;
    assert_eq!(api.task(text(&before, "/id")).await, before);
    let ended = api.task_when(text(&running, "/id"), is_terminal).await;
    assert_eq!(state(&ended), "COMPLETED");
    let expected: String = (1..=40).map(|n| format!("chunk {n} of 40\n")).collect();
    assert_eq!(artifact_text(&ended), expected);
    let log = api.subscribe(text(&running, "/id"), Some(0)).await.rest().await;
    assert_eq!(attempts(&log), 1, "it went on, and was not run again: {log:#?}");
    assert_eq!(state(&api.send(&to("echo", "after")).await), "COMPLETED");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_database_is_waited_for() {
    tokio::join!(lose(Passage::Cut), lose(Passage::Silent));
}

/// The database falls silent at the moment at which a message is committed.
async fn doubt_a_commit(last: LastCommit) {
    let installation = Installation::on_postgres();
    let programs = Programs::of(&installation, &[("once", "fail", 8, 0.2)]);
    let instances = Instances::start_with_networks(installation, 1).await;
    let (api, network) = (instances[0].api(), instances.network(0));
    let mut request = to("once", "a message in doubt");
    request["message"]["contextId"] = json!("doubt");

    network.fall_silent_at_the_commit_of("a message in doubt", last);
    let begun = Instant::now();
    let reply = api.post("/a2a/message:send", &request).await;
    let took = begun.elapsed();
    reply.error(503);
    assert!(took < ANSWER, "{last:?}: {took:?}");
    network.is_silent().await;
    network.set(Passage::Open);

    // Whether it was written or not, a repetition gets the one task that there is.
    let begun = Instant::now();
    let task = loop {
        let reply = api.post("/a2a/message:send", &request).await;
        if reply.status == 200 {
            break reply.task();
        }
        assert_eq!(reply.status, 503, "{last:?}: {}", reply.shown());
        assert!(begun.elapsed() < ANSWER, "{last:?}: still {}", reply.shown());
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(state(&task), "COMPLETED", "{last:?}: {task:#}");
    assert_eq!(api.get("/a2a/tasks?contextId=doubt").await.ok()["totalSize"], 1, "{last:?}");
    assert_eq!(programs.starts().len(), 1, "{last:?}");
    let log = api.subscribe(text(&task, "/id"), Some(0)).await.rest().await;
    assert_eq!(attempts(&log), 1, "{last:?}: {log:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_commit_is_in_doubt_is_answered_and_can_be_sent_again() {
    tokio::join!(doubt_a_commit(LastCommit::Stays), doubt_a_commit(LastCommit::Passes));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_database_is_shared_by_a_bounded_pool() {
    let database = Database::create();
    let instance = Installation::on(database.url()).with_config("store_connections = 2\n").start("a").await;
    let api = instance.api();
    let task = api.send(&to("echo", "hello")).await;
    let id = text(&task, "/id").to_owned();

    let look = connect(database.url()).await;
    let all_at_once = async |count: usize| {
        let mut reads = JoinSet::new();
        for _ in 0..count {
            let (api, id) = (api.clone(), id.clone());
            reads.spawn(async move { api.get(&format!("/a2a/tasks/{id}")).await });
        }
        let mut statuses = Vec::new();
        let mut most = 0;
        while !reads.is_empty() {
            tokio::select! {
                Some(reply) = reads.join_next() => {
                    let reply = reply.expect("a read does not panic");
                    if reply.status == 503 {
                        assert!(reply.json().to_string().contains("UNAVAILABLE"), "{}", reply.shown());
                    }
                    statuses.push(reply.status);
                }
                () = tokio::time::sleep(Duration::from_millis(100)) => {}
            }
            let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                        AND application_name = 'switchboard'";
            let open: i64 = look.query_one(open, &[]).await.expect("it can be asked").get(0);
            most = most.max(open);
        }
        // Two that read, and six more: the writer, two beside it, two for notifications, and the one that proves that the
        // instance lives.
        assert!((1..=8).contains(&most), "{most} connections");
        statuses
    };

    // There are more reads than connections: they queue, and all are answered.
    let statuses = all_at_once(200).await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");

    // The tasks are locked for some seconds. A read that waits longer than the pool allows is refused.
    let locker = connect(database.url()).await;
    locker.batch_execute("BEGIN; LOCK TABLE a2a_tasks IN ACCESS EXCLUSIVE MODE").await.expect("it can be locked");
    let (statuses, ()) = tokio::join!(all_at_once(50), async {
        tokio::time::sleep(Duration::from_secs(8)).await;
        locker.batch_execute("ROLLBACK").await.expect("it can be unlocked");
    });
    let refused = statuses.iter().filter(|status| **status == 503).count();
    assert!(statuses.iter().all(|status| matches!(status, 200 | 503)), "{statuses:?}");
    assert!(
        refused > 0 && refused < statuses.len(),
        "some waited in vain, and who had a connection did not: {statuses:?}"
    );
    assert!(all_at_once(50).await.iter().all(|status| *status == 200), "and then all is well again");
    becomes(&instance, 200, ANSWER).await;
}
