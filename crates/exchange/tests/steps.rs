//! Agents that go step by step: they keep their state, wait until it is durable, rest without a slot, and go on after a
//! crash where they were.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::rig;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use a2a::{Artifact, Part, Task, TaskState};
use exchange::{Entry, Note, OnCrash, Options, Outcome, Output, ReplyMode, ReplyText, Turn};
use rig::{Place, Rig, agent, direct, message, state_of};
use serde_json::json;
use store::{Draft, Event, EventKind, TaskId, clock};

/// What agents have done to the world, and cannot take back.
#[derive(Clone, Default)]
struct Effects(Arc<Mutex<Vec<String>>>);

impl Effects {
    fn add(&self, effect: impl Into<String>) {
        self.0.lock().unwrap().push(effect.into());
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

fn state_as_text(turn: &Turn) -> Option<&str> {
    turn.state.as_ref().map(|state| std::str::from_utf8(state).unwrap())
}

/// Leases that run out soon: on PostgreSQL nobody's death is proven at once.
fn short() -> Options {
    Options { lease: Duration::from_millis(1500), ..Options::default() }
}

/// An instance that can be killed: what it runs stops in the middle, and nobody is told.
struct Mortal {
    runtime: tokio::runtime::Runtime,
    rig: Rig,
}

impl Mortal {
    fn start(place: &Arc<Place>, agents: impl FnOnce() -> Vec<Entry> + Send + 'static) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (place, handle) = (Arc::clone(place), runtime.handle().clone());
        let started = std::thread::spawn(move || handle.block_on(Rig::at(&place, short(), agents())));
        Self { rig: started.join().unwrap(), runtime }
    }

    fn kill(self) {
        self.runtime.shutdown_background();
    }
}

/// Takes three steps. Each has an effect, says a word and what it did, and keeps how far it came before the next one begins. In
/// the middle of the third it says too much, and `stays` there.
fn careful(effects: &Effects, stays: bool) -> Entry {
    let effects = effects.clone();
    let mut entry = agent("careful", move |turn: Turn, out: Output| {
        let effects = effects.clone();
        async move {
            let done: usize = state_as_text(&turn).map_or(0, |state| state.parse().unwrap());
            assert_eq!(turn.resumed, done > 0);
            for step in done..3 {
                out.note(Note::ToolCall { id: step.to_string(), name: "word".into(), arguments: json!({}) }).await;
                if step == 2 && stays {
                    out.text("a word that is never finished", false).await;
                    out.artifact(file("draft"), false, true, None).await;
                    out.flush().await;
                    effects.add("stays");
                    std::future::pending::<()>().await;
                }
                effects.add(format!("step {step} of attempt {}", turn.attempt));
                out.text(["one ", "two ", "three"][step], step == 0).await;
                out.keep((step + 1).to_string()).await;
                out.flush().await;
            }
            out.artifact(file("final"), false, true, None).await;
            Outcome::Completed(Vec::new())
        }
    });
    entry.profile.on_crash = OnCrash::Resume;
    entry.profile.reply_text = ReplyText::Both;
    entry
}

fn file(name: &str) -> Artifact {
    Artifact { name: name.into(), parts: vec![Part::text(name)], ..Artifact::default() }
}

async fn until(what: impl Fn() -> bool) {
    for _ in 0..1000 {
        if what() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it never happened");
}

async fn log(rig: &Rig, id: &str) -> Vec<Event> {
    rig.store.events(rig.call.caller.tenant, TaskId::parse(id).unwrap(), 0, 1000).await.unwrap()
}

/// The artifacts that a reader has at the end of a stream who knows A2A and nothing else: names, texts.
fn assembled(log: &[Event]) -> Vec<(String, String)> {
    let mut seen: Vec<Artifact> = Vec::new();
    for event in log.iter().filter(|event| event.kind.has_frame()) {
        if let a2a::StreamResponse::ArtifactUpdate(update) = event.response().unwrap() {
            let known = seen.iter_mut().find(|artifact| artifact.artifact_id == update.artifact.artifact_id);
            match known {
                Some(known) if update.append => known.parts.extend(update.artifact.parts),
                Some(known) => *known = update.artifact,
                None => seen.push(update.artifact),
            }
        }
    }
    seen.iter().map(read).collect()
}

fn made(task: &Task) -> Vec<(String, String)> {
    task.artifacts.iter().map(read).collect()
}

fn read(artifact: &Artifact) -> (String, String) {
    (artifact.name.clone(), artifact.parts.iter().filter_map(Part::as_text).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_goes_on_after_a_crash_where_it_kept_its_state() {
    let place = Arc::new(Place::new());
    let effects = Effects::default();
    let theirs = effects.clone();
    let first = Mortal::start(&place, move || vec![careful(&theirs, true)]);
    let rig = first.rig.clone();
    let id = first.runtime.spawn(async move { rig.start("careful", message("go")).await }).await.unwrap();
    until(|| effects.all().contains(&"stays".to_owned())).await;
    first.kill();

    let second = Rig::at(&place, short(), vec![careful(&effects, false)]).await;
    let task = second.until_terminal(&id).await;
    assert_eq!(task.status.state, TaskState::Completed);
    let expected = ["step 0 of attempt 1", "step 1 of attempt 1", "stays", "step 2 of attempt 2"];
    assert_eq!(effects.all(), expected, "no step is taken twice");
    let response = ("response".to_owned(), "one two three".to_owned());
    assert_eq!(made(&task), [response.clone(), ("final".into(), "final".into())]);
    let log = log(&second, &id).await;
    assert!(log.iter().any(|event| event.kind == EventKind::Started(store::Start::Resumed)));
    // The second artifact of the turn took the place of what was left of the crash.
    assert_eq!(assembled(&log), made(&task), "a reader of the stream has the same");
    let notes: Vec<Note> = log
        .iter()
        .filter(|event| event.kind == EventKind::Note)
        .map(|event| serde_json::from_slice(&event.body).unwrap())
        .collect();
    assert_eq!(notes.len(), 4, "{notes:?}");
    assert_eq!(task.status.message.unwrap().parts, [Part::text("one two three\nfinal")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_on_purpose_is_gone_on_from_too() {
    let place = Place::new();
    let effects = Effects::default();
    let first = Rig::at(&place, short(), vec![careful(&effects, true)]).await;
    let id = first.start("careful", message("go")).await;
    until(|| effects.all().contains(&"stays".to_owned())).await;
    first.exchange.shut_down(Duration::ZERO).await;
    let second = Rig::at(&place, short(), vec![careful(&effects, false)]).await;
    let task = second.until_terminal(&id).await;
    assert_eq!(effects.all().last().unwrap(), "step 2 of attempt 2");
    assert_eq!(made(&task)[0].1, "one two three");
}

#[tokio::test]
async fn what_was_flushed_is_in_the_journal() {
    let place = Place::new();
    let looks = place.scratch.open().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let found = Arc::clone(&seen);
    let tenant = Rig::at(&place, Options::default(), Vec::new()).await.call.caller.tenant;
    let rig = Rig::at(
        &place,
        Options::default(),
        vec![agent("flush", move |turn: Turn, out: Output| {
            let (looks, found) = (Arc::clone(&looks), Arc::clone(&found));
            async move {
                out.flush().await;
                out.text("said", true).await;
                out.flush().await;
                let log = looks.events(tenant, turn.task, 0, 10).await.unwrap();
                found.lock().unwrap().extend(log.into_iter().map(|event| event.kind));
                Outcome::Completed(Vec::new())
            }
        })],
    )
    .await;
    rig.send("flush", message("go")).await.unwrap();
    assert_eq!(seen.lock().unwrap().last(), Some(&EventKind::Artifact));
}

/// Says a word, rests until it is woken or for so long, and says another.
fn sleeper(effects: &Effects, at_most: Option<Duration>) -> Entry {
    let effects = effects.clone();
    let mut entry = agent("sleeper", move |turn: Turn, out: Output| {
        let effects = effects.clone();
        async move {
            if turn.text() == "quick" {
                return Outcome::Completed(vec![Part::text("done")]);
            }
            if turn.cancel.is_cancelled() {
                effects.add("told others");
                return Outcome::Canceled;
            }
            if !turn.resumed {
                out.text("before ", true).await;
                effects.add("rests");
                return Outcome::Parked { at_most };
            }
            effects.add(format!("awake in attempt {}", turn.attempt));
            out.text("after", false).await;
            Outcome::Completed(Vec::new())
        }
    });
    entry.profile.concurrency = 1;
    entry
}

#[tokio::test]
async fn a_parked_turn_takes_no_slot_and_outlives_its_instance() {
    let place = Place::new();
    let effects = Effects::default();
    let rig = Rig::at(&place, Options::default(), vec![sleeper(&effects, None)]).await;
    let id = rig.start("sleeper", message("go")).await;
    until(|| effects.all() == ["rests"]).await;
    // Its agent has one slot, which is free.
    assert_eq!(state_of(&rig.send("sleeper", message("quick")).await.unwrap()), TaskState::Completed);
    assert_eq!(rig.get(&id).await.status.state, TaskState::Working);
    rig.exchange.shut_down(Duration::from_secs(5)).await;

    let next = Rig::at(&place, Options::default(), vec![sleeper(&effects, None)]).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(effects.all(), ["rests"]);
    assert!(next.store.wake(next.call.caller.tenant, TaskId::parse(&id).unwrap()).await.unwrap());
    let task = next.until_terminal(&id).await;
    assert_eq!(effects.all(), ["rests", "awake in attempt 1"]);
    assert_eq!(made(&task), [("response".into(), "before after".into())]);
    let started = |event: &Event| matches!(event.kind, EventKind::Started(_));
    assert_eq!(log(&next, &id).await.iter().filter(|event| started(event)).count(), 1, "a rest is no news");
}

#[tokio::test]
async fn a_parked_turn_goes_on_when_its_time_has_come() {
    let effects = Effects::default();
    let rig = Rig::new(vec![sleeper(&effects, Some(Duration::from_millis(50)))]).await;
    let task = rig::task_of(&rig.send("sleeper", message("go")).await.unwrap());
    assert_eq!(made(&task), [("response".into(), "before after".into())]);
}

#[tokio::test]
async fn a_parked_turn_hears_of_its_cancel() {
    let effects = Effects::default();
    let rig = Rig::new(vec![sleeper(&effects, None)]).await;
    let id = rig.start("sleeper", message("go")).await;
    until(|| effects.all() == ["rests"]).await;
    assert_eq!(rig.cancel(&id).await.unwrap().status.state, TaskState::Canceled);
    assert_eq!(effects.all(), ["rests", "told others"]);
}

#[tokio::test]
async fn what_is_kept_and_noted_leaves_a_reply_direct() {
    let mut entry = agent("direct", |turn: Turn, out: Output| async move {
        out.note(Note::Usage { model: "m".into(), input_tokens: 1, output_tokens: 2 }).await;
        out.keep("state").await;
        out.flush().await;
        assert!(!turn.resumed);
        Outcome::Message(a2a::Message { parts: vec![Part::text("hi")], ..a2a::Message::default() })
    });
    entry.profile.reply = ReplyMode::Auto;
    let rig = Rig::new(vec![entry]).await;
    let sent = rig.send("direct", message("go")).await.unwrap();
    assert!(String::from_utf8_lossy(&direct(&sent)).contains("hi"));
}

#[tokio::test]
async fn a_turn_has_what_the_one_before_kept() {
    let entry = agent("counter", |turn: Turn, out: Output| async move {
        let before: u32 = state_as_text(&turn).map_or(0, |state| state.parse().unwrap());
        out.keep((before + 1).to_string()).await;
        match before {
            0 | 1 => Outcome::InputRequired(vec![Part::text("more?")]),
            n => Outcome::Completed(vec![Part::text(n.to_string())]),
        }
    });
    let rig = Rig::new(vec![entry]).await;
    let first = rig::task_of(&rig.send("counter", message("a")).await.unwrap());
    let more = || a2a::Message { task_id: first.id.clone(), ..message("b") };
    rig.send("counter", more()).await.unwrap();
    let last = rig::task_of(&rig.send("counter", more()).await.unwrap());
    assert_eq!(last.status.message.unwrap().parts, [Part::text("2")]);
}

/// Keeps a state that grows, three times.
fn growing() -> Entry {
    agent("growing", |_turn: Turn, out: Output| async move {
        for n in 1..=3 {
            out.keep("x".repeat(40_000 + n)).await;
            out.flush().await;
        }
        Outcome::Completed(Vec::new())
    })
}

impl Rig {
    /// How many of the states that a task of it has kept are written whole, and how many as what they add to another.
    async fn kept_states(&self) -> (usize, usize) {
        let task = rig::task_of(&self.send("growing", message("go")).await.unwrap());
        let task = TaskId::parse(&task.id).unwrap();
        let events = self.store.events(self.call.caller.tenant, task, 0, 100).await.unwrap();
        let kept: Vec<_> = events.iter().filter(|event| event.kind == EventKind::Kept).collect();
        let whole = kept.iter().filter(|event| event.body.len() > 40_000).count();
        (whole, kept.len() - whole)
    }
}

#[tokio::test]
async fn states_are_kept_whole_while_there_is_an_instance_of_an_older_version() {
    let place = Place::new();
    place.scratch.open().await.close().await;
    place.scratch.add_older_instance();
    let rig = Rig::at(&place, Options::default(), vec![growing()]).await;
    assert!(rig.store.has_older_instances().await.unwrap());
    for _ in 0..3 {
        assert_eq!(rig.kept_states().await, (3, 0));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    // Without one it is so until the store was asked.
    let rig = Rig::new(vec![growing()]).await;
    assert!(!rig.store.has_older_instances().await.unwrap());
    let mut found = rig.kept_states().await;
    for _ in 0..100 {
        if found == (1, 2) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        found = rig.kept_states().await;
    }
    assert_eq!(found, (1, 2));
}

#[tokio::test]
async fn what_was_replaced_after_the_state_was_kept_is_back() {
    let place = Place::new();
    let stays = Effects::default();
    let entries = || {
        let stays = stays.clone();
        let mut entry = agent("rewriter", move |turn: Turn, out: Output| {
            let stays = stays.clone();
            async move {
                let sum =
                    |text: &str| Artifact { artifact_id: "sum".into(), parts: vec![Part::text(text)], ..file("") };
                if turn.resumed {
                    out.artifact(sum(" and more"), true, true, None).await;
                    return Outcome::Completed(vec![Part::text("done")]);
                }
                out.artifact(sum("draft"), false, false, None).await;
                out.artifact(sum("one"), false, false, None).await;
                out.keep("state").await;
                out.artifact(sum("two"), false, false, None).await;
                out.flush().await;
                stays.add("stays");
                std::future::pending().await
            }
        });
        entry.profile.on_crash = OnCrash::Resume;
        vec![entry]
    };
    let first = Rig::at(&place, short(), entries()).await;
    let id = first.start("rewriter", message("go")).await;
    until(|| !stays.all().is_empty()).await;
    first.exchange.shut_down(Duration::ZERO).await;
    let second = Rig::at(&place, short(), entries()).await;
    let task = second.until_terminal(&id).await;
    assert_eq!(made(&task), [(String::new(), "one and more".to_owned())]);
    assert_eq!(assembled(&log(&second, &id).await), made(&task));
}

#[tokio::test]
async fn who_rests_although_it_is_canceled_is_canceled() {
    let runs = Effects::default();
    let entry = agent("deaf", {
        let runs = runs.clone();
        move |_: Turn, out: Output| {
            let runs = runs.clone();
            async move {
                runs.add("run");
                out.keep("state").await;
                Outcome::Parked { at_most: None }
            }
        }
    });
    let rig = Rig::new(vec![entry]).await;
    let id = rig.start("deaf", message("go")).await;
    until(|| runs.all().len() == 1).await;
    // Whoever cancels does not wait for what becomes of it.
    let _ = tokio::time::timeout(Duration::from_millis(100), rig.cancel(&id)).await;
    assert_eq!(rig.until_terminal(&id).await.status.state, TaskState::Canceled);
    assert!(runs.all().len() <= 3, "{:?}", runs.all());
}

/// What it says in each of five rounds.
fn reply(round: usize) -> String {
    format!("{round}").repeat(400 << 10)
}

#[tokio::test]
async fn a_state_that_grows_is_written_once() {
    const RESULTS: usize = 20;
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let mut entry = agent("grows", {
        let seen = Arc::clone(&seen);
        move |turn: Turn, out: Output| {
            let seen = Arc::clone(&seen);
            async move {
                let mut state = state_as_text(&turn).unwrap_or_default().to_owned();
                seen.lock().unwrap().push(state.clone());
                // It rests once, and begins another attempt once.
                let first = match seen.lock().unwrap().len() {
                    1 => 0,
                    2 => 2,
                    3 => 4,
                    _ => return Outcome::Completed(Vec::new()),
                };
                for round in first..(first + 2).min(5) {
                    state.push_str(&reply(round));
                    out.keep(format!("{state}open")).await;
                    out.flush().await;
                    for result in 0..RESULTS {
                        state.push_str(&format!("result {result} "));
                        out.keep(format!("{state}open")).await;
                        out.flush().await;
                    }
                }
                out.keep(state).await;
                match first {
                    0 => Outcome::Parked { at_most: Some(Duration::ZERO) },
                    _ => Outcome::Retry("once more".into()),
                }
            }
        }
    });
    entry.profile.on_crash = OnCrash::Resume;
    entry.profile.max_attempts = 5;
    let rig = Rig::new(vec![entry]).await;
    let id = rig.start("grows", message("go")).await;
    let task = rig.until_terminal(&id).await;
    assert_eq!(task.status.state, TaskState::Completed, "{:?}", task.status);

    let results: String = (0..RESULTS).map(|result| format!("result {result} ")).collect();
    let after = |rounds: usize| (0..rounds).map(|round| reply(round) + &results).collect::<String>();
    let expected = [String::new(), after(2), after(4), after(5)];
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    assert!(seen.iter().eq(&expected), "{:?}", seen.iter().map(String::len).collect::<Vec<_>>());
    let kept: Vec<_> = log(&rig, &id).await.into_iter().filter(|event| event.kind == EventKind::Kept).collect();
    let written: usize = kept.iter().map(|event| event.body.len()).sum();
    let once = after(5).len();
    assert!(kept.len() > 5 * RESULTS, "{} events", kept.len());
    assert!(written < once + once / 4, "{written} bytes were written of a state of {once}");
}

#[tokio::test]
async fn a_state_that_an_earlier_version_kept_is_gone_on_from() {
    let mut entry = agent("on", |turn: Turn, _: Output| async move {
        Outcome::Completed(vec![Part::text(format!("{:?} {}", state_as_text(&turn), turn.resumed))])
    });
    entry.profile.on_crash = OnCrash::Resume;
    let place = Place::new();
    let kept = r#"{"turn":1,"attempt":1,"messages":0,"artifacts":0,"last_artifact":"","made":[],"has_state":true}"#;
    let kept = Draft::kept(format!("{kept}\nas it was").into(), clock::now());
    let id = Rig::abandon_at(&place, "on", message("go"), Duration::from_millis(200), vec![kept]).await;
    let rig = Rig::at(&place, short(), vec![entry]).await;
    let task = rig.until_terminal(&id).await;
    let said = exchange::text_of(&task.status.message.unwrap().parts);
    assert_eq!((task.status.state, said.as_str()), (TaskState::Completed, r#"Some("as it was") true"#));
}
