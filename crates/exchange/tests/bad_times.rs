//! Turns in bad times: agents that never wait, shutdowns, queues that others push into.

use crate::rig;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use a2a::{Message, Part, TaskState};
use exchange::{OnCrash, Options, Outcome, ReplyMode};
use rig::{Place, Rig, agent, message, state_of, task_of};

/// Says something without end, and never waits for anything but the journal.
async fn chatter(_turn: exchange::Turn, out: exchange::Output) -> Outcome {
    let mut first = true;
    loop {
        out.text("bla ", first).await;
        first = false;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_never_waits_obeys_its_timeout() {
    let mut entry = agent("chatter", chatter);
    entry.profile.timeout = Some(Duration::from_millis(200));
    let rig = Rig::new(vec![entry]).await;
    let id = rig.start("chatter", message("go")).await;
    let task = rig.until_terminal(&id).await;
    assert_eq!(task.status.state, TaskState::Failed);
    assert_eq!(task.status.message.unwrap().parts, [Part::text("timed out after 200ms")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_never_waits_has_one_grace_after_a_cancel() {
    // The exchange would force the cancel by itself after the same time; the turn has to end on its own.
    let options = Options { cancel_grace: Duration::from_millis(200), ..Options::default() };
    let mut entry = agent("chatter", chatter);
    entry.profile.concurrency = 1;
    let rig = Rig::with(options, vec![entry, agent("echo", |_, _| async { Outcome::Completed(Vec::new()) })]).await;
    let id = rig.start("chatter", message("go")).await;
    assert_eq!(rig.cancel(&id).await.unwrap().status.state, TaskState::Canceled);
    // Its slot is free again: another turn begins.
    let next = rig.start("chatter", message("go")).await;
    let task = rig.until(&next, |state| state == TaskState::Working).await;
    assert_eq!(task.status.state, TaskState::Working);
    rig.cancel(&next).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_never_waits_is_given_back_at_a_shutdown() {
    let place = Place::new();
    let rig = Rig::at(&place, Options::default(), vec![agent("chatter", chatter)]).await;
    let id = rig.start("chatter", message("go")).await;
    rig.exchange.shut_down(Duration::from_millis(100)).await;
    let next = Rig::at(
        &place,
        Options::default(),
        vec![agent("chatter", |_, _| async { Outcome::Completed(vec![Part::text("calmly")]) })],
    )
    .await;
    assert_eq!(next.until_terminal(&id).await.status.state, TaskState::Completed);
}

#[tokio::test]
async fn a_stop_on_purpose_obeys_the_policy_of_a_crash() {
    for (policy, expected, attempts) in [
        (OnCrash::Retry, TaskState::Completed, 2),
        (OnCrash::Fail, TaskState::Failed, 1),
        (OnCrash::Ask, TaskState::InputRequired, 1),
    ] {
        let place = Place::new();
        let starts = Arc::new(Mutex::new(0));
        let entries = |wait: bool| {
            let starts = Arc::clone(&starts);
            let mut entry = agent("long", move |_, _| {
                *starts.lock().unwrap() += 1;
                async move {
                    if wait {
                        std::future::pending::<()>().await;
                    }
                    Outcome::Completed(Vec::new())
                }
            });
            entry.profile.on_crash = policy;
            vec![entry]
        };
        let first = Rig::at(&place, Options::default(), entries(true)).await;
        let id = first.start("long", message("x")).await;
        first.until(&id, |state| state == TaskState::Working).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        first.exchange.shut_down(Duration::ZERO).await;
        let second = Rig::at(&place, Options::default(), entries(false)).await;
        let task = second.until(&id, |state| state == expected).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(*starts.lock().unwrap(), attempts, "{policy:?}");
        let told = task.status.message.map(|message| exchange::text_of(&message.parts)).unwrap_or_default();
        assert_eq!(told.contains("interrupted"), policy != OnCrash::Retry, "{policy:?} says {told:?}");
    }
}

#[tokio::test]
async fn a_release_does_not_use_up_attempts() {
    let place = Place::new();
    let entries = |wait: bool| {
        let mut entry = agent("long", move |turn, _| async move {
            if wait {
                std::future::pending::<()>().await;
            }
            Outcome::Completed(vec![Part::text(format!("attempt {}", turn.attempt))])
        });
        entry.profile.max_attempts = 1;
        vec![entry]
    };
    let first = Rig::at(&place, Options::default(), entries(true)).await;
    let id = first.start("long", message("x")).await;
    first.exchange.shut_down(Duration::ZERO).await;
    for _ in 0..3 {
        let next = Rig::at(&place, Options::default(), entries(true)).await;
        next.until(&id, |state| state == TaskState::Working).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        next.exchange.shut_down(Duration::ZERO).await;
    }
    let last = Rig::at(&place, Options::default(), entries(false)).await;
    let task = last.until_terminal(&id).await;
    assert_eq!(task.status.message.unwrap().parts, [Part::text("attempt 5")]);
}

#[tokio::test]
async fn who_only_confirms_gets_the_interrupted_message_run_again() {
    let entries = || {
        let mut entry = agent("careful", |turn: exchange::Turn, _| async move {
            Outcome::Completed(vec![Part::text(format!("did {}", turn.text()))])
        });
        entry.profile.on_crash = OnCrash::Ask;
        vec![entry]
    };
    for (answers, expected) in [(vec!["yes"], "did the original"), (vec!["only half of it"], "did only half of it")] {
        let place = Place::new();
        let id = Rig::abandon(&place, "careful", message("the original"), Duration::from_millis(1)).await;
        // Where a death is not proven at once, a short lease ends the wait.
        let options = Options { lease: Duration::from_secs(2), ..Options::default() };
        let rig = Rig::at(&place, options, entries()).await;
        let asked = rig.until(&id, |state| state == TaskState::InputRequired).await;
        assert!(exchange::text_of(&asked.status.message.unwrap().parts).contains("interrupted"));
        for answer in answers {
            let reply = Message { task_id: id.clone(), ..message(answer) };
            let task = task_of(&rig.send("careful", reply).await.unwrap());
            assert_eq!(exchange::text_of(&task.status.message.unwrap().parts), expected);
        }
    }
}

/// Writes down whose turns begin in which order.
fn diary(slots: usize) -> (exchange::Entry, Arc<Mutex<Vec<String>>>) {
    let diary = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&diary);
    let mut entry = agent("busy", move |turn: exchange::Turn, _| {
        kept.lock().expect("nobody panics with it").push(turn.text());
        async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            Outcome::Completed(Vec::new())
        }
    });
    entry.profile.concurrency = slots;
    (exchange::Entry::new(entry.profile, entry.agent), diary)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_with_one_task_does_not_wait_for_anothers_hundred() {
    let (entry, diary) = diary(2);
    let rig = Rig::new(vec![entry]).await;
    let other = rig.other_tenant().await;
    let mut many = Vec::new();
    for n in 0..100 {
        many.push(rig.start("busy", message(&format!("many {n}"))).await);
    }
    let already = diary.lock().unwrap().len();
    let one = rig.exchange.send(&other, rig.request("busy", message("one"))).await.unwrap();
    assert_eq!(state_of(&one), TaskState::Completed);
    let begun = diary.lock().unwrap().clone();
    let before = begun.iter().position(|text| text == "one").unwrap() - already;
    assert!(before < 20, "{before} of the other's came first");
    for id in many {
        rig.until_terminal(&id).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_arrivals_do_not_overtake_the_queue_for_ever() {
    let (entry, diary) = diary(1);
    let rig = Rig::new(vec![entry]).await;
    let mut waiting = Vec::new();
    for n in 0..30 {
        waiting.push(rig.start("busy", message(&format!("old {n}"))).await);
    }
    // They come one after the other, each as soon as a slot may be free.
    let pushing = {
        let rig = rig.clone();
        tokio::spawn(async move {
            for n in 0..300 {
                rig.start("busy", message(&format!("new {n}"))).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
    };
    for id in &waiting {
        rig.until_terminal(id).await;
    }
    let begun = diary.lock().unwrap().clone();
    pushing.abort();
    let last_old = begun.iter().rposition(|text| text.starts_with("old")).unwrap();
    let overtaking = begun[..last_old].iter().filter(|text| text.starts_with("new")).count();
    assert!(overtaking <= 3, "{overtaking} of those who came later went first");
}

#[tokio::test]
async fn nothing_of_an_exchange_is_left_after_its_shutdown() {
    let rig = Rig::new(vec![agent("echo", |_, _| async { Outcome::Completed(Vec::new()) })]).await;
    rig.send("echo", message("hello")).await.unwrap();
    let Rig { exchange, store, .. } = rig;
    exchange.shut_down(Duration::from_secs(1)).await;
    let left = Arc::downgrade(&store);
    drop((exchange, store));
    assert!(left.upgrade().is_none(), "somebody still has the store");
}

#[tokio::test]
async fn a_held_task_whose_caller_is_gone_is_shown_and_can_be_canceled() {
    let mut entry = agent("silent", |turn: exchange::Turn, _| async move {
        turn.cancel.cancelled().await;
        Outcome::Canceled
    });
    entry.profile.reply = ReplyMode::Auto;
    entry.profile.reveal_after = Duration::from_millis(100);
    let rig = Rig::new(vec![entry]).await;
    let keyed = Message { context_id: "its-own".into(), ..message("go") };
    let sending = {
        let (rig, keyed) = (rig.clone(), keyed.clone());
        tokio::spawn(async move { rig.send("silent", keyed).await })
    };
    tokio::time::sleep(Duration::from_millis(30)).await;
    sending.abort();
    assert_eq!(rig.total().await, 0, "it is held");
    // A repetition that streams gets the task when it is shown.
    let mut frames = rig.exchange.stream(&rig.call, rig.request("silent", keyed)).await.unwrap();
    let frame = tokio::time::timeout(Duration::from_secs(5), frames.next()).await.unwrap().unwrap().unwrap();
    let a2a::StreamResponse::Task(task) = frame.response().unwrap() else { panic!("{frame:?}") };
    let id = task.id;
    assert_eq!(rig.total().await, 1, "it is shown");
    assert_eq!(rig.cancel(&id).await.unwrap().status.state, TaskState::Canceled);
}

#[tokio::test]
async fn a_repetition_of_a_held_message_waits_for_the_same_answer() {
    let mut entry = agent("auto", |_, _| async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        Outcome::Message(Message { parts: vec![Part::text("directly")], ..Message::default() })
    });
    entry.profile.reply = ReplyMode::Auto;
    let rig = Rig::new(vec![entry]).await;
    let keyed = Message { context_id: "its-own".into(), ..message("go") };
    let sending = {
        let (rig, keyed) = (rig.clone(), keyed.clone());
        tokio::spawn(async move { rig.send("auto", keyed).await })
    };
    tokio::time::sleep(Duration::from_millis(30)).await;
    sending.abort();
    let mut frames = rig.exchange.stream(&rig.call, rig.request("auto", keyed.clone())).await.unwrap();
    let blocking = rig.send("auto", keyed).await.unwrap();
    let blocking = rig::direct(&blocking);
    assert!(String::from_utf8_lossy(&blocking).contains("directly"));
    let frame = frames.next().await.unwrap().unwrap();
    assert_eq!(rig::event(&frame).body, blocking);
    assert!(frames.next().await.is_none(), "a direct reply is all there is");
    assert_eq!(rig.total().await, 0);
}

#[tokio::test]
async fn a_stop_leaves_messages_that_wait_to_the_next_instance() {
    let place = Place::new();
    let said = Arc::new(Mutex::new(Vec::new()));
    let entries = |wait: bool| {
        let said = Arc::clone(&said);
        let mut entry = agent("careful", move |turn: exchange::Turn, _| {
            said.lock().expect("nobody panics with it").push(turn.text());
            async move {
                if wait {
                    std::future::pending::<()>().await;
                }
                Outcome::Completed(Vec::new())
            }
        });
        entry.profile.on_crash = OnCrash::Ask;
        vec![entry]
    };
    let first = Rig::at(&place, Options::default(), entries(true)).await;
    let id = first.start("careful", message("one")).await;
    first.until(&id, |state| state == TaskState::Working).await;
    for text in ["two", "three"] {
        first.start("careful", Message { task_id: id.clone(), ..message(text) }).await;
    }
    first.until_told(&id, 2).await;
    first.exchange.shut_down(Duration::ZERO).await;
    let second = Rig::at(&place, Options::default(), entries(false)).await;
    second.until_terminal(&id).await;
    assert_eq!(*said.lock().unwrap(), ["one", "two", "three"], "the first was cut off, the others had not begun");
}
