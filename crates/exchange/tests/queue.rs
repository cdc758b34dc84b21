//! The queue's verbs: who waits is served one by one, calls stand for themselves, and failed attempts come to an end.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::rig;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use a2a::{ErrorKind, TaskState};
use bytes::Bytes;
use exchange::{
    Call, Caller, Delivery, Entry, Error, Luggage, OnCrash, Options, Outcome,
    queue::{Ack, Consume, Handed, Nack, Publish, Relay, RelayTo, Report, Worker},
    words::{self, Word},
};
use rig::{Place, Rig, agent, message, task_of};
use serde_json::Value;
use store::{Letters, QueueEntry, sqlite::Ticks};

fn queue_agent(id: &str, change: impl FnOnce(&mut Entry)) -> Entry {
    let mut entry = agent(id, |_, _| async { unreachable!("workers do it") });
    entry.profile.delivery = Delivery::Queue { most_held: None };
    change(&mut entry);
    entry
}

fn echo() -> Entry {
    agent("echo", |turn, out| async move {
        out.text(turn.text(), true).await;
        Outcome::Completed(Vec::new())
    })
}

fn work(to: &str, text: &str) -> Publish {
    Publish {
        from: "tests".into(),
        to: to.into(),
        text: text.into(),
        payload: None,
        correlation_id: None,
        delay: Duration::ZERO,
        priority: 0,
        max_attempts: None,
    }
}

fn word(json: &Value) -> Word {
    words::read(json.to_string().as_bytes(), &a2a::Limits::default()).unwrap()
}

fn chunk(text: &str, append: bool) -> Word {
    word(&serde_json::json!({"artifactUpdate": {"artifact": {"parts": [{"text": text}]}, "append": append}}))
}

/// How an operation is refused.
fn kind(error: &Error) -> (ErrorKind, String) {
    (error.kind(), error.to_string())
}

struct Shop {
    rig: Rig,
    worker: Worker,
}

impl Shop {
    async fn new(agents: Vec<Entry>) -> Self {
        Self::of(Rig::with(quick(), agents).await)
    }

    fn of(rig: Rig) -> Self {
        let worker = Worker::Tenant(rig.call.caller.clone());
        Self { rig, worker }
    }

    async fn publish(&self, to: &str, text: &str) -> QueueEntry {
        self.rig.exchange.publish(&self.rig.call, work(to, text)).await.unwrap().entry
    }

    async fn consume(&self, agent: &str) -> Vec<Handed> {
        self.rig.exchange.consume(&self.worker, agent, Consume::default(), &Luggage::default()).await.unwrap()
    }

    async fn one(&self, agent: &str) -> Handed {
        let mut handed = self.consume(agent).await;
        assert_eq!(handed.len(), 1);
        handed.remove(0)
    }

    async fn ack(&self, handed: &Handed, ack: Ack) -> Result<TaskState, Error> {
        let id = handed.entry.task.to_string();
        self.rig.exchange.ack(&self.worker, &id, Some(&handed.ticket), ack, &Luggage::default()).await
    }

    async fn nack(&self, handed: &Handed, error: &str) -> QueueEntry {
        let id = handed.entry.task.to_string();
        let nack = Nack { error: error.into(), delay: Some(Duration::ZERO), ..Nack::default() };
        self.rig.exchange.nack(&self.worker, &id, Some(&handed.ticket), nack, &Luggage::default()).await.unwrap().entry
    }

    async fn say(&self, handed: &Handed, number: Option<u64>, words: Vec<Word>) -> Result<TaskState, Error> {
        let id = handed.entry.task.to_string();
        self.rig
            .exchange
            .progress(
                &self.worker,
                &id,
                Some(&handed.ticket),
                Report { number, words, ends: false },
                &Luggage::default(),
            )
            .await
    }

    async fn entry(&self, entry: &QueueEntry) -> QueueEntry {
        self.rig.exchange.queue_entry(&self.worker, &entry.task.to_string(), &Luggage::default()).await.unwrap().entry
    }

    async fn letters(&self) -> Vec<QueueEntry> {
        let letters = Letters { limit: 10, ..Letters::default() };
        let page = self.rig.exchange.dead_letters(&self.rig.call.caller, letters, &Luggage::default()).await.unwrap();
        page.letters.into_iter().map(|letter| letter.entry).collect()
    }
}

fn quick() -> Options {
    Options { poll: Duration::from_millis(50), cancel_grace: Duration::from_millis(200), ..Options::default() }
}

fn artifacts(task: &a2a::Task) -> Vec<(String, String)> {
    let made = |artifact: &a2a::Artifact| (artifact.artifact_id.clone(), exchange::text_of(&artifact.parts));
    task.artifacts.iter().map(made).collect()
}

#[tokio::test]
async fn what_several_calls_say_is_one_turn_whoever_writes_it() {
    let place = Place::new();
    let one = Shop::of(Rig::at(&place, quick(), vec![]).await);
    let two = Shop::of(Rig::at(&place, quick(), vec![]).await);
    let entry = one.publish("far", "go").await;
    let handed = two.one("far").await;
    one.say(&handed, None, vec![chunk("a", false)]).await.unwrap();
    two.say(&handed, None, vec![chunk("b", true), chunk("second", false)]).await.unwrap();
    one.say(&handed, None, vec![chunk(" artifact", true), word(&serde_json::json!({"keep": {"n": 1}}))]).await.unwrap();
    assert_eq!(
        two.ack(&handed, Ack { text: Some("done".into()), ..Ack::default() }).await.unwrap(),
        TaskState::Completed
    );
    let task = one.rig.get(&entry.task.to_string()).await;
    let id = entry.task;
    let expected = [(format!("{id}-text-0"), "ab".to_owned()), (format!("{id}-text-1"), "second artifact".to_owned())];
    assert_eq!(artifacts(&task), expected);
    assert_eq!(exchange::text_of(&task.status.message.unwrap().parts), "done");
}

#[tokio::test]
async fn calls_at_once_under_one_lease_do_not_mix_up_the_turn() {
    let shop = Arc::new(Shop::new(vec![]).await);
    let entry = shop.publish("far", "go").await;
    let handed = Arc::new(shop.one("far").await);
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..8 {
        let (shop, handed) = (Arc::clone(&shop), Arc::clone(&handed));
        calls.spawn(async move { shop.say(&handed, None, vec![chunk(&n.to_string(), false)]).await });
    }
    while let Some(said) = calls.join_next().await {
        said.unwrap().unwrap();
    }
    let task = shop.rig.get(&entry.task.to_string()).await;
    let mut ids: Vec<String> = artifacts(&task).into_iter().map(|(id, _)| id).collect();
    ids.sort();
    let expected: Vec<String> = (0..8).map(|n| format!("{}-text-{n}", entry.task)).collect();
    assert_eq!(ids, expected, "each has a place of its own");
}

#[tokio::test]
async fn a_call_whose_answer_was_lost_can_be_repeated() {
    let shop = Shop::new(vec![]).await;
    let entry = shop.publish("far", "go").await;
    let handed = shop.one("far").await;
    for _ in 0..2 {
        shop.say(&handed, Some(1), vec![chunk("one", false)]).await.unwrap();
    }
    for _ in 0..2 {
        shop.say(&handed, Some(2), vec![chunk(" two", true)]).await.unwrap();
    }
    for _ in 0..2 {
        assert_eq!(shop.ack(&handed, Ack::default()).await.unwrap(), TaskState::Completed, "so is the end");
    }
    let task = shop.rig.get(&entry.task.to_string()).await;
    assert_eq!(artifacts(&task).into_iter().map(|(_, text)| text).collect::<Vec<_>>(), ["one two"]);
    let failing = word(&serde_json::json!({"statusUpdate": {"status": {"state": "TASK_STATE_FAILED"}}}));
    let other_end = shop.say(&handed, None, vec![failing]).await.unwrap_err();
    assert_eq!(other_end.kind(), ErrorKind::Conflict, "another end is none: {other_end}");
}

#[tokio::test]
async fn who_was_paused_cannot_end_it_late() {
    let shop = Shop::new(vec![]).await;
    let entry = shop.publish("far", "go").await;
    let short = Consume { lease: Some(Duration::from_millis(30)), worker: Some("slow".into()), ..Consume::default() };
    let mut slow = shop.rig.exchange.consume(&shop.worker, "far", short, &Luggage::default()).await.unwrap();
    let slow = slow.remove(0);
    tokio::time::sleep(Duration::from_millis(60)).await;
    let next = shop.one("far").await;
    assert_eq!((next.entry.task, next.attempt), (entry.task, 2));
    let late = shop.ack(&slow, Ack::default()).await.unwrap_err();
    assert!(matches!(late, Error::LeaseLost(_)), "{late}");
    let errors = shop.entry(&entry).await.errors;
    assert_eq!((errors.len(), errors[0].worker.as_str()), (1, "slow"));
    assert!(errors[0].error.contains("ran out"), "{errors:?}");
    shop.ack(&next, Ack::default()).await.unwrap();
    // The same before anybody has taken it: who let it run out has failed.
    let again = shop.publish("far", "again").await;
    let short = Consume { lease: Some(Duration::from_millis(30)), ..Consume::default() };
    let slow = shop.rig.exchange.consume(&shop.worker, "far", short, &Luggage::default()).await.unwrap().remove(0);
    for _ in 0..200 {
        if shop.entry(&again).await.state == TaskState::Submitted {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(shop.entry(&again).await.state, TaskState::Submitted, "nobody has to ask for that");
    assert!(matches!(shop.ack(&slow, Ack::default()).await, Err(Error::LeaseLost(_))));
}

#[tokio::test]
async fn leases_that_a_step_of_the_clock_ended_stay_with_their_workers() {
    const HOUR: i64 = 3_600_000;
    let place = Place::new();
    let now = Arc::new(AtomicI64::new(HOUR));
    let ticks = Ticks::new({
        let now = Arc::clone(&now);
        move || now.load(Relaxed)
    });
    let clock = place.scratch.virtual_clock();
    // A file's clock begins at wall time; from there on it goes by these ticks.
    let set = |millis: i64| {
        now.store(millis, Relaxed);
        if let Some(set) = &clock {
            set(millis);
        }
    };
    set(HOUR);
    let store = place.scratch.opening(None, Duration::from_secs(1), ticks).await;
    let once = queue_agent("once", |entry| entry.profile.max_attempts = 1);
    let shop = Shop::of(Rig::over(store, quick(), vec![once]).await);
    let (kept, lost) = (shop.publish("once", "kept").await, shop.publish("once", "lost").await);
    let held = (shop.one("once").await, shop.one("once").await);
    assert_eq!((held.0.entry.task, held.1.entry.task), (kept.task, lost.task));
    // Leases that have run out are looked for, and none has.
    tokio::time::sleep(quick().poll * 4).await;

    set(2 * HOUR);
    tokio::time::sleep(quick().poll * 6).await;
    for entry in [&kept, &lost] {
        let entry = shop.entry(entry).await;
        assert_eq!((entry.state, entry.dead), (TaskState::Working, false), "{:?}", entry.errors);
        assert!(entry.due_in > Some(Duration::from_secs(299)), "it has lost no time: {:?}", entry.due_in);
    }
    assert_eq!(shop.ack(&held.0, Ack::default()).await.unwrap(), TaskState::Completed);

    // A worker that is not heard of even then is gone.
    set(2 * HOUR + 301_000);
    for _ in 0..200 {
        if shop.entry(&lost).await.dead {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(shop.entry(&lost).await.dead);
    assert!(matches!(shop.ack(&held.1, Ack::default()).await, Err(Error::LeaseLost(_))));
}

#[tokio::test]
async fn a_server_that_was_frozen_takes_nothing_from_its_workers() {
    let shop = Shop::new(vec![]).await;
    // Leases that have run out are looked for.
    tokio::time::sleep(quick().poll * 4).await;
    let entry = shop.publish("far", "go").await;
    let lease = |millis| Consume { lease: Some(Duration::from_millis(millis)), ..Consume::default() };
    let consume = async |lease| {
        shop.rig.exchange.consume(&shop.worker, "far", lease, &Luggage::default()).await.unwrap().remove(0)
    };
    let held = consume(lease(500)).await;
    // The runtime has one thread: nothing of the server runs meanwhile.
    std::thread::sleep(Duration::from_millis(1700));
    // The worker comes back a little later than the server.
    tokio::time::sleep(quick().poll * 6).await;
    let entry = shop.entry(&entry).await;
    assert_eq!((entry.state, entry.errors.len()), (TaskState::Working, 0), "{:?}", entry.errors);
    assert_eq!(shop.ack(&held, Ack::default()).await.unwrap(), TaskState::Completed);

    // Leases that run out after the pause are seen as before.
    let next = shop.publish("far", "next").await;
    consume(lease(30)).await;
    for _ in 0..200 {
        if shop.entry(&next).await.state == TaskState::Submitted {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(shop.entry(&next).await.state, TaskState::Submitted);
}

#[tokio::test]
async fn an_agents_policy_holds_for_leases_that_ran_out() {
    let fails = queue_agent("fails", |entry| entry.profile.on_crash = OnCrash::Fail);
    let asks = queue_agent("asks", |entry| entry.profile.on_crash = OnCrash::Ask);
    let once = queue_agent("once", |entry| entry.profile.max_attempts = 1);
    let shop = Shop::new(vec![fails, asks, once]).await;
    for (agent, state, dead) in [
        ("fails", TaskState::Failed, false),
        ("asks", TaskState::InputRequired, false),
        ("once", TaskState::Failed, true),
    ] {
        let entry = shop.publish(agent, "go").await;
        let short = Consume { lease: Some(Duration::from_millis(20)), ..Consume::default() };
        assert_eq!(shop.rig.exchange.consume(&shop.worker, agent, short, &Luggage::default()).await.unwrap().len(), 1);
        for _ in 0..200 {
            if shop.entry(&entry).await.state != TaskState::Working {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let entry = shop.entry(&entry).await;
        assert_eq!((entry.state, entry.dead), (state, dead), "{agent}");
    }
}

#[tokio::test]
async fn s3_28_attempts_come_to_an_end_and_a_dead_letter_is_replayed() {
    let shop = Shop::new(vec![echo()]).await;
    let publish = Publish { max_attempts: Some(2), correlation_id: Some("c-1".into()), ..work("far", "poison") };
    let entry = shop.rig.exchange.publish(&shop.rig.call, publish).await.unwrap().entry;
    assert_eq!(shop.nack(&shop.one("far").await, "first").await.state, TaskState::Submitted);
    let dead = shop.nack(&shop.one("far").await, "second").await;
    assert!(dead.dead);
    assert_eq!(shop.letters().await.len(), 1);
    let id = entry.task.to_string();
    let replayed = shop.rig.exchange.replay_letter(&shop.rig.call, &id, Some("echo")).await.unwrap();
    assert_eq!((replayed.entry.agent.as_str(), replayed.entry.replays), ("echo", Some(entry.task)));
    assert_eq!(replayed.entry.context.as_ref(), "c-1");
    assert!(shop.letters().await.is_empty());
    let again = shop.rig.exchange.replay_letter(&shop.rig.call, &id, None).await.unwrap_err();
    assert!(matches!(again, Error::NotDead(_)), "{again}");
    let task = shop.rig.exchange.execute(&shop.rig.call, &replayed.entry.task.to_string()).await.unwrap();
    let task = task.to_task().unwrap();
    assert_eq!((task.status.state, artifacts(&task)[0].1.as_str()), (TaskState::Completed, "poison"));
    assert_eq!(task.history[0].reference_task_ids, [id], "it names the one that it repeats");
}

#[tokio::test]
async fn a_turn_that_an_instance_gave_up_is_a_dead_letter_too() {
    let mut poison = agent("poison", |_, _| async { Outcome::Retry("no luck".into()) });
    poison.profile.max_attempts = 2;
    let shop = Shop::new(vec![poison]).await;
    let sent = shop.rig.send("poison", message("go")).await.unwrap();
    let task = task_of(&sent);
    assert_eq!(task.status.state, TaskState::Failed);
    let letters = shop.letters().await;
    assert_eq!(letters.len(), 1);
    let why: Vec<&str> = letters[0].errors.iter().map(|failed| failed.error.as_str()).collect();
    assert_eq!(why, ["no luck", "no luck"]);
    let replayed = shop.rig.exchange.replay_letter(&shop.rig.call, &task.id, None).await.unwrap();
    assert!(!replayed.entry.queued, "an instance runs it again by itself");
}

#[tokio::test]
async fn s3_33_what_nobody_runs_is_not_executed() {
    let shop = Shop::new(vec![echo(), queue_agent("far", |_| {})]).await;
    for to in ["nobody", "far"] {
        let entry = shop.publish(to, "go").await;
        let id = entry.task.to_string();
        let refused = shop.rig.exchange.execute(&shop.rig.call, &id).await.unwrap_err();
        assert!(matches!(refused, Error::NotRun(_)), "{refused}");
        assert_eq!(shop.entry(&entry).await.state, TaskState::Submitted);
    }
    let sent = shop.rig.send("echo", message("by itself")).await.unwrap();
    let refused = shop.rig.exchange.execute(&shop.rig.call, &task_of(&sent).id).await.unwrap_err();
    assert!(matches!(refused, Error::NotWaiting(_)), "{refused}");
}

#[tokio::test]
async fn one_entry_wakes_one_of_those_who_wait() {
    let shop = Arc::new(Shop::new(vec![]).await);
    let mut waiting = tokio::task::JoinSet::new();
    for n in 0..5 {
        let shop = Arc::clone(&shop);
        waiting.spawn(async move {
            let patient =
                Consume { wait: Duration::from_millis(1500), worker: Some(n.to_string()), ..Consume::default() };
            shop.rig.exchange.consume(&shop.worker, "far", patient, &Luggage::default()).await.unwrap().len()
        });
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = shop.rig.store.stats().commits;
    let entry = shop.publish("far", "go").await;
    assert_eq!(waiting.join_next().await.unwrap().unwrap(), 1);
    assert!(shop.entry(&entry).await.lease.is_some());
    let commits = shop.rig.store.stats().commits - before;
    assert_eq!(commits, 2, "it was published and claimed, and nobody else has asked");
    let mut others = 0;
    while let Some(got) = waiting.join_next().await {
        others += got.unwrap();
    }
    assert_eq!(others, 0);
}

/// Two of these do not fit into what one call reads.
fn long() -> String {
    "x".repeat(1200 << 10)
}

#[tokio::test]
async fn a_call_takes_no_more_bytes_than_it_reads_and_leaves_the_rest_alone() {
    let shop = Shop::new(vec![queue_agent("far", |entry| entry.profile.max_attempts = 1)]).await;
    let mut entries = Vec::new();
    for text in ["short", "also short", &long(), &long()] {
        entries.push(shop.publish("far", text).await);
    }
    let many = || Consume { max: Some(100), ..Consume::default() };
    let got = |handed: &[Handed]| handed.iter().map(|handed| handed.entry.task).collect::<Vec<_>>();
    let first = shop.rig.exchange.consume(&shop.worker, "far", many(), &Luggage::default()).await.unwrap();
    assert_eq!(got(&first), [entries[0].task, entries[1].task], "what is next does not fit beside them");
    let second = shop.rig.exchange.consume(&shop.worker, "far", many(), &Luggage::default()).await.unwrap();
    assert_eq!(got(&second), [entries[2].task], "one there is in any case");
    let left = shop.entry(&entries[3]).await;
    assert_eq!((left.state, left.generation), (TaskState::Submitted, 0), "it was never taken");
    let patient = Consume { wait: Duration::from_secs(20), ..many() };
    let third = shop.rig.exchange.consume(&shop.worker, "far", patient, &Luggage::default()).await.unwrap();
    assert_eq!(exchange::text_of(&third[0].message.parts), long());

    for handed in first.iter().chain(&second).chain(&third) {
        assert!(shop.nack(handed, "no").await.dead);
    }
    let page = async |after| {
        let letters = Letters { after, limit: 25, ..Letters::default() };
        shop.rig.exchange.dead_letters(&shop.rig.call.caller, letters, &Luggage::default()).await.unwrap()
    };
    let one = page(None).await;
    let two = page(one.next).await;
    assert_eq!((one.letters.len(), two.letters.len(), two.next), (3, 1, None));
    assert_eq!(exchange::text_of(&two.letters[0].first.parts), long());
}

#[tokio::test]
async fn who_waits_is_handed_what_has_to_have_room_first() {
    let shop = Arc::new(Shop::new(vec![]).await);
    let waiting = {
        let shop = Arc::clone(&shop);
        let patient = Consume { wait: Duration::from_secs(30), ..Consume::default() };
        tokio::spawn(async move {
            shop.rig.exchange.consume(&shop.worker, "far", patient, &Luggage::default()).await.unwrap()
        })
    };
    tokio::time::sleep(Duration::from_millis(100)).await;
    let entry = shop.publish("far", &long()).await;
    assert_eq!(waiting.await.unwrap()[0].entry.task, entry.task);
}

#[tokio::test]
async fn what_is_refused_for_want_of_room_was_not_taken() {
    let shop = Shop::new(vec![]).await;
    let (one, other) = (shop.publish("far", &long()).await, shop.publish("other", &long()).await);
    let held = shop.one("far").await;
    let shop = &shop;
    let caller = &shop.rig.call.caller;
    let exchange = &shop.rig.exchange;
    let full = exchange.flight().take(caller.tenant, u64::MAX).await.unwrap();
    let none = Luggage::default();
    let (id, held_id) = (other.task.to_string(), held.entry.task.to_string());
    let nack = Nack { error: "no".into(), ..Nack::default() };
    let (consumed, claimed, shown, nacked) = tokio::join!(
        exchange.consume(&shop.worker, "other", Consume::default(), &none),
        exchange.claim_entry(&shop.worker, &id, Consume::default(), &none),
        exchange.queue_entry(&shop.worker, &id, &none),
        exchange.nack(&shop.worker, &held_id, Some(&held.ticket), nack, &none),
    );
    for refused in [consumed.unwrap_err(), claimed.unwrap_err(), shown.unwrap_err(), nacked.unwrap_err()] {
        assert_eq!(refused.kind(), ErrorKind::ResourceExhausted, "{refused}");
    }
    drop(full);
    let entry = shop.entry(&other).await;
    assert_eq!((entry.state, entry.attempts, entry.generation), (TaskState::Submitted, 0, 0));
    assert!(shop.entry(&one).await.lease.is_some(), "its worker still has it");
    assert_eq!(shop.one("other").await.entry.task, other.task);
}

/// The parts of an entry beside its message: the earlier messages of its context, and the state that was kept.
#[tokio::test]
async fn what_belongs_to_an_entry_has_room_before_it_is_read() {
    let shop = Shop::new(vec![queue_agent("keeps", |_| {})]).await;
    let in_context = |text: &str| Publish { correlation_id: Some("c".into()), ..work("talks", text) };
    shop.rig.exchange.publish(&shop.rig.call, in_context(&long())).await.unwrap();
    shop.ack(&shop.one("talks").await, Ack::default()).await.unwrap();
    let talks = shop.rig.exchange.publish(&shop.rig.call, in_context("hello")).await.unwrap().entry;
    let mut keeps = Vec::new();
    for _ in 0..3 {
        let entry = shop.publish("keeps", "hello").await;
        let asks = serde_json::json!({"statusUpdate": {"status": {"state": "TASK_STATE_INPUT_REQUIRED"}}});
        let said = vec![word(&serde_json::json!({"keep": {"n": long()}})), word(&asks)];
        shop.say(&shop.one("keeps").await, None, said).await.unwrap();
        keeps.push(entry);
    }
    for entry in &keeps {
        let more = a2a::Message { task_id: entry.task.to_string(), ..message("more") };
        shop.rig.start("keeps", more).await;
    }
    let all = [&keeps[..], std::slice::from_ref(&talks)].concat();
    let mut attempts = Vec::new();
    for entry in &all {
        attempts.push(shop.entry(entry).await.attempts);
    }
    let exchange = &shop.rig.exchange;
    let none = Luggage::default();
    let full = exchange.flight().take(shop.rig.call.caller.tenant, u64::MAX).await.unwrap();
    let id = talks.task.to_string();
    let (told, kept, claimed) = tokio::join!(
        exchange.consume(&shop.worker, "talks", Consume::default(), &none),
        exchange.consume(&shop.worker, "keeps", Consume { max: Some(100), ..Consume::default() }, &none),
        exchange.claim_entry(&shop.worker, &id, Consume::default(), &none),
    );
    let refused: Vec<ErrorKind> =
        [told.err(), kept.err(), claimed.err()].into_iter().flatten().map(|error| error.kind()).collect();
    // One of the two that asked for the same entry has had it while the other looked.
    assert!(refused.contains(&ErrorKind::ResourceExhausted), "{refused:?}");
    assert_eq!(refused.len(), 3, "{refused:?}");
    drop(full);
    for (entry, attempts) in all.iter().zip(attempts) {
        let entry = shop.entry(entry).await;
        assert!(entry.lease.is_none(), "it was given back before the answer");
        assert_eq!((entry.state, entry.attempts), (TaskState::Submitted, attempts), "no attempt that counts");
    }
    assert_eq!(shop.one("talks").await.context_history.len(), 1);
    let luggage = Luggage::default();
    let many = Consume { max: Some(100), ..Consume::default() };
    let handed = exchange.consume(&shop.worker, "keeps", many, &luggage).await.unwrap();
    assert_eq!(handed.len(), 1, "two states of this length are more than one call reads");
    assert!(handed[0].state.is_some() && !luggage.is_empty());
}

#[tokio::test]
async fn what_has_acted_is_answered_and_not_refused_for_want_of_room() {
    let shop = Arc::new(Shop::new(vec![echo(), queue_agent("far", |entry| entry.profile.max_attempts = 1)]).await);
    let (caller, exchange) = (&shop.rig.call.caller, &shop.rig.exchange);
    let mut dead = Vec::new();
    for text in ["small", &long(), "small too"] {
        let entry = shop.publish("far", text).await;
        assert!(shop.nack(&shop.one("far").await, "no").await.dead);
        dead.push(entry.task.to_string());
    }
    let replay = async |id: &String| exchange.replay_letter(&shop.rig.call, id, Some("echo")).await.unwrap().entry;
    let (small, large) = (replay(&dead[0]).await, replay(&dead[1]).await);
    for text in [&long(), "small"] {
        shop.publish("far", text).await;
        assert!(shop.nack(&shop.one("far").await, "no").await.dead);
    }
    assert_eq!(shop.letters().await.len(), 3);

    let full = exchange.flight().take(caller.tenant, u64::MAX).await.unwrap();
    let execute = |entry: &QueueEntry| {
        let (shop, id) = (Arc::clone(&shop), entry.task.to_string());
        tokio::spawn(async move { shop.rig.exchange.execute(&shop.rig.call, &id).await })
    };
    let executing = execute(&small);
    let (refused, replayed) = tokio::join!(execute(&large), exchange.replay_letters(&shop.rig.call, None));
    let refused = refused.unwrap().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ResourceExhausted, "{refused}");
    // The oldest letter is small and the next one has no room.
    assert_eq!(replayed.unwrap().len(), 1);
    assert!(!executing.is_finished(), "it waits for room for its answer");
    drop(full);
    assert_eq!(executing.await.unwrap().unwrap().state, TaskState::Completed);
    assert_eq!((shop.entry(&large).await.state, shop.letters().await.len()), (TaskState::Submitted, 2));
}

/// A worker's report is refused before any of it is written.
#[tokio::test]
async fn a_report_without_room_for_the_state_changes_nothing() {
    let shop = Shop::new(vec![]).await;
    let entry = shop.publish("far", "go").await;
    let handed = shop.one("far").await;
    shop.say(&handed, None, vec![word(&serde_json::json!({"keep": {"n": long()}}))]).await.unwrap();
    let full = shop.rig.exchange.flight().take(shop.rig.call.caller.tenant, u64::MAX).await.unwrap();
    let before = shop.entry(&entry).await;
    let (said, acked) =
        tokio::join!(shop.say(&handed, None, vec![chunk("more", false)]), shop.ack(&handed, Ack::default()));
    for refused in [said.unwrap_err(), acked.unwrap_err()] {
        assert_eq!(refused.kind(), ErrorKind::ResourceExhausted, "{refused}");
    }
    drop(full);
    let after = shop.entry(&entry).await;
    assert_eq!((after.state, after.status_at), (TaskState::Working, before.status_at));
    assert!(after.lease.is_some());
    shop.ack(&handed, Ack::default()).await.unwrap();
}

#[tokio::test]
async fn a_tenant_has_so_many_calls_that_wait() {
    let options = Options { max_streams: Some(2), ..quick() };
    let shop = Arc::new(Shop::of(Rig::with(options, vec![]).await));
    let call = |wait| {
        let shop = Arc::clone(&shop);
        let patient = Consume { wait: Duration::from_secs(wait), ..Consume::default() };
        tokio::spawn(async move {
            let handed = shop.rig.exchange.consume(&shop.worker, "far", patient, &Luggage::default()).await;
            handed.map(|handed| handed.len())
        })
    };
    let waiting = [call(30), call(30)];
    tokio::time::sleep(Duration::from_millis(200)).await;
    let refused = call(30).await.unwrap().unwrap_err();
    assert!(matches!(refused, Error::TooManyLongPolls { limit: 2 }), "{refused}");
    assert!(refused.to_string().contains("limits.streams"), "{refused}");
    assert_eq!(call(0).await.unwrap().unwrap(), 0, "one that does not wait takes no place");
    let second = shop.rig.store.create_tenant("second").await.unwrap().id;
    let others = Worker::Tenant(Caller::new(second, "second"));
    let short = Consume { wait: Duration::from_millis(20), ..Consume::default() };
    let handed = shop.rig.exchange.consume(&others, "far", short, &Luggage::default()).await.unwrap();
    assert_eq!(handed.len(), 0, "another tenant has places of its own");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    for wait in waiting {
        let _ = wait.await;
    }
    let held = shop.publish("far", "go").await;
    let handed = shop.one("far").await;
    assert_eq!(handed.entry.task, held.task);
    let again = [call(1), call(1)];
    tokio::time::sleep(Duration::from_millis(200)).await;
    let id = held.task.to_string();
    let wait = Duration::from_millis(10);
    let beat = shop.rig.exchange.heartbeat(&shop.worker, &id, Some(&handed.ticket), None, wait).await;
    assert!(matches!(beat, Err(Error::TooManyLongPolls { .. })), "{beat:?}");
    for wait in again {
        wait.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn who_hangs_up_gets_nothing_and_keeps_nothing() {
    let shop = Arc::new(Shop::new(vec![]).await);
    let patient = Consume { wait: Duration::from_secs(30), ..Consume::default() };
    let gone = {
        let shop = Arc::clone(&shop);
        tokio::spawn(async move {
            shop.rig.exchange.consume(&shop.worker, "far", patient, &Luggage::default()).await.map(|got| got.len())
        })
    };
    tokio::time::sleep(Duration::from_millis(100)).await;
    gone.abort();
    let _ = gone.await;
    let entry = shop.publish("far", "go").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let handed = shop.one("far").await;
    assert_eq!((handed.entry.task, handed.entry.errors.len()), (entry.task, 0));
}

#[tokio::test]
async fn whoever_serves_all_tenants_goes_round_them() {
    let shop = Shop::new(vec![]).await;
    let id = shop.rig.store.create_tenant("second").await.unwrap().id;
    let second = Call::new(Caller::new(id, "second"));
    for n in 0..3 {
        shop.publish("far", &n.to_string()).await;
        shop.rig.exchange.publish(&second, work("far", &n.to_string())).await.unwrap();
    }
    let mut served = Vec::new();
    for _ in 0..6 {
        let handed =
            shop.rig.exchange.consume(&Worker::Operator, "far", Consume::default(), &Luggage::default()).await.unwrap();
        served.push(handed[0].entry.tenant);
    }
    let first = shop.rig.call.caller.tenant;
    assert_eq!(served, [first, id, first, id, first, id]);
}

#[tokio::test]
async fn a_cancel_is_heard_at_once_by_who_waits_for_it() {
    let shop = Arc::new(Shop::new(vec![queue_agent("far", |_| {})]).await);
    let entry = shop.publish("far", "go").await;
    let handed = shop.one("far").await;
    let id = entry.task.to_string();
    let beating = {
        let (shop, id, ticket) = (Arc::clone(&shop), id.clone(), handed.ticket.clone());
        tokio::spawn(async move {
            let begin = std::time::Instant::now();
            let wait = Duration::from_secs(20);
            let beat = shop.rig.exchange.heartbeat(&shop.worker, &id, Some(&ticket), None, wait).await.unwrap();
            (beat.canceled, begin.elapsed())
        })
    };
    tokio::time::sleep(Duration::from_millis(100)).await;
    let canceled = shop.rig.cancel(&id).await.unwrap();
    assert_eq!(canceled.status.state, TaskState::Canceled);
    let (heard, after) = beating.await.unwrap();
    assert!(heard && after < Duration::from_secs(10), "{after:?}");
    let lost = shop.ack(&handed, Ack::default()).await.unwrap_err();
    assert!(lost.to_string().contains("CANCELED"), "it is told why: {lost}");
}

#[tokio::test]
async fn a_lease_is_of_one_entry_and_nobody_makes_one_up() {
    let shop = Shop::new(vec![]).await;
    let first = shop.publish("far", "a").await;
    shop.publish("far", "b").await;
    let (mine, other) = (shop.one("far").await, shop.one("far").await);
    let id = first.task.to_string();
    for wrong in [other.ticket.as_str(), "", "nonsense", &mine.ticket[..mine.ticket.len() - 2]] {
        let refused = shop
            .rig
            .exchange
            .ack(&shop.worker, &id, Some(wrong), Ack::default(), &Luggage::default())
            .await
            .unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidParams, "{wrong}: {:?}", kind(&refused));
    }
    let tenant = shop.rig.store.create_tenant("thief").await.unwrap().id;
    let thief = Worker::Tenant(Caller::new(tenant, "thief"));
    for ticket in [Some(mine.ticket.as_str()), None] {
        let refused =
            shop.rig.exchange.ack(&thief, &id, ticket, Ack::default(), &Luggage::default()).await.unwrap_err();
        assert!(matches!(refused, Error::TaskNotFound(_)), "{refused}");
    }
    assert_eq!(shop.entry(&first).await.state, TaskState::Working, "nothing has changed");
    let operator = shop.rig.exchange.ack(&shop.worker, &id, None, Ack::default(), &Luggage::default()).await.unwrap();
    assert_eq!(operator, TaskState::Completed, "without a lease whoever holds it is meant");
}

#[tokio::test]
async fn published_twice_under_one_key_is_published_once() {
    let shop = Shop::new(vec![]).await;
    let call = Call { idempotency_key: Some("k".into()), ..shop.rig.call.clone() };
    let first = shop.rig.exchange.publish(&call, work("far", "go")).await.unwrap().entry;
    let second = shop.rig.exchange.publish(&call, work("far", "go")).await.unwrap().entry;
    assert_eq!(first.task, second.task);
    let other = shop.rig.exchange.publish(&call, work("far", "something else")).await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::InvalidParams, "{other}");
    assert_eq!(shop.consume("far").await.len(), 1);
    assert!(shop.consume("far").await.is_empty());
}

#[tokio::test]
async fn s3_37_a_relay_is_told_of_the_message_and_its_task() {
    #[derive(Default)]
    struct Told(Mutex<Vec<Value>>);
    impl Relay for Told {
        fn forward(&self, body: Bytes) {
            self.0.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
        }
    }
    let told = Arc::new(Told::default());
    let relay = Some(RelayTo(Arc::clone(&told) as Arc<dyn Relay>));
    let shop = Shop::of(Rig::with(Options { relay, ..quick() }, vec![]).await);
    let entry = shop.publish("far", "go").await;
    let told = told.0.lock().unwrap();
    let id = entry.task.to_string();
    assert_eq!(told.len(), 1);
    assert_eq!((told[0]["message"]["messageId"].as_str(), told[0]["task"]["id"].as_str()), (Some(&*id), Some(&*id)));
    assert_eq!(told[0]["task"]["status"]["state"], "TASK_STATE_SUBMITTED");
    assert_eq!(told[0]["message"], told[0]["task"]["history"][0]);
}
