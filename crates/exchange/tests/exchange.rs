//! The exchange over a real journal: what operations promise, seen from inside one process.

use crate::rig;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use a2a::{Artifact, ErrorKind, GetTaskRequest, Message, Part, TaskState};
use exchange::{OnCrash, Options, Outcome, Output, ReplyMode, Rules};
use rig::{Place, Rig, agent, message, state_of, task_of};

#[tokio::test]
async fn a_blocking_echo_waits_for_two_commits() {
    let rig = Rig::new(vec![agent("echo", |turn, out| async move {
        out.text(turn.text(), true).await;
        Outcome::Completed(Vec::new())
    })])
    .await;
    rig.send("echo", message("warm up")).await.unwrap();
    let before = rig.store.stats().commits;
    let task = task_of(&rig.send("echo", message("hello")).await.unwrap());
    assert_eq!(rig.store.stats().commits - before, 2, "accept and lease is one, the whole turn another");
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(task.status.message, None, "X-10: the reply is in the artifacts");
    assert_eq!(task.artifacts[0].parts, [Part::text("hello")]);
    assert_eq!(task.artifacts[0].name, "response");
}

/// An agent that says what its message lists: `s` a status with a message, `a` an artifact, `+` a chunk of the last one,
/// `b` an artifact that is replaced each time; then `c` completes, `i` asks, `f` fails.
async fn says(turn: exchange::Turn, out: exchange::Output) -> Outcome {
    let text = turn.text();
    for (n, what) in text.char_indices() {
        let part = vec![Part::text(format!("{what}{n}"))];
        match what {
            's' => out.status(Some(Message { parts: part, ..Message::default() }), None).await,
            'a' => out.artifact(Artifact { parts: part, ..Artifact::default() }, false, false, None).await,
            '+' => out.artifact(Artifact { parts: part, ..Artifact::default() }, true, false, None).await,
            'b' => {
                let artifact = Artifact { artifact_id: "b".to_owned(), parts: part, ..Artifact::default() };
                out.artifact(artifact, false, true, None).await;
            }
            'i' => return Outcome::InputRequired(part),
            'f' => return Outcome::Failed(part),
            _ => return Outcome::Completed(part),
        }
        // What follows is a commit of its own.
        tokio::task::yield_now().await;
    }
    Outcome::Completed(Vec::new())
}

#[tokio::test]
async fn the_answer_to_a_send_is_the_task_as_it_is_stored() {
    let rig = Rig::new(vec![agent("says", says)]).await;
    for text in ["c", "", "ac", "a+c", "aa+c", "sc", "ssac", "bsbc", "ab+bac", "si", "asf", "bb+bsi", "a+++sa+c"] {
        let sent = rig.send("says", message(text)).await.unwrap();
        let answered = task_of(&sent);
        assert_eq!(answered, rig.get(&answered.id).await, "after {text:?}");
    }
}

#[tokio::test]
async fn a_cancel_racing_a_completion_leaves_one_terminal_state() {
    let rig = Rig::new(vec![agent("quick", |turn, _out| async move {
        let micros = turn.text().parse().unwrap_or(0);
        tokio::select! {
            () = tokio::time::sleep(Duration::from_micros(micros)) => Outcome::Completed(Vec::new()),
            () = turn.cancel.cancelled() => Outcome::Canceled,
        }
    })])
    .await;
    let mut ends = std::collections::HashMap::new();
    let mut races = tokio::task::JoinSet::new();
    for n in 0..1000_u64 {
        let rig = rig.clone();
        races.spawn(async move {
            // A cancel takes as long as the journal does: some turns are as quick as that, some are slower.
            let micros = (n * 7 % 3000) * [1, 30][usize::from(n % 2 == 0)];
            let mut request = rig.request("quick", message(&micros.to_string()));
            request.configuration =
                Some(a2a::SendMessageConfiguration { return_immediately: true, ..Default::default() });
            let task = task_of(&rig.exchange.send(&rig.call, request).await.unwrap());
            let canceled = rig.cancel(&task.id).await;
            let mut frames = rig.frames(&task.id, 0).await;
            let mut last = TaskState::Unspecified;
            let mut terminals = 0;
            let mut seq = 0;
            while let Some(frame) = frames.next().await {
                let frame = frame.unwrap();
                assert_eq!(frame.seq(), seq + 1, "gapless");
                seq = frame.seq();
                if let store::EventKind::Status { state, .. } = rig::event(&frame).kind {
                    terminals += u32::from(state.is_terminal());
                    last = state;
                }
            }
            assert_eq!(terminals, 1);
            let got = rig.get(&task.id).await;
            assert_eq!(got.status.state, last, "a reader and a follower see the same end");
            match canceled {
                Ok(task) => {
                    assert_eq!(task.status.state, TaskState::Canceled);
                    assert_eq!(last, TaskState::Canceled, "a cancel that answered canceled has decided");
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::TaskNotCancelable);
                    assert_eq!(last, TaskState::Completed);
                }
            }
            last
        });
        if races.len() >= 50 {
            *ends.entry(races.join_next().await.unwrap().unwrap()).or_insert(0) += 1;
        }
    }
    while let Some(end) = races.join_next().await {
        *ends.entry(end.unwrap()).or_insert(0) += 1;
    }
    assert_eq!(ends.values().sum::<u32>(), 1000);
    assert!(ends.contains_key(&TaskState::Canceled), "the race was never won by the cancel: {ends:?}");
}

#[tokio::test]
async fn x_35_an_agent_that_ignores_the_cancel_is_overruled() {
    let options = Options { cancel_grace: Duration::from_millis(100), ..Options::default() };
    let rig = Rig::with(
        options,
        vec![agent("deaf", |_turn, _out| async move {
            tokio::time::sleep(Duration::from_millis(400)).await;
            Outcome::Completed(Vec::new())
        })],
    )
    .await;
    let id = rig.start("deaf", message("x")).await;
    assert_eq!(rig.cancel(&id).await.unwrap().status.state, TaskState::Canceled);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(rig.get(&id).await.status.state, TaskState::Canceled);
}

#[tokio::test]
async fn messages_to_a_running_task_wait_for_their_turn() {
    let all_in = Arc::new(tokio::sync::Semaphore::new(0));
    let gate = Arc::clone(&all_in);
    let rig = Rig::new(vec![agent("slow", move |turn, out| {
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire().await.unwrap().forget();
            out.text(format!("{}:{}", turn.number, turn.text()), true).await;
            Outcome::Completed(Vec::new())
        }
    })])
    .await;
    let id = rig.start("slow", message("one")).await;
    let to = |text: &str| Message { task_id: id.clone(), ..message(text) };
    let (two, three, ()) = tokio::join!(
        rig.send("slow", to("two")),
        async {
            rig.until_told(&id, 1).await;
            rig.send("slow", to("three")).await
        },
        async {
            rig.until_told(&id, 2).await;
            all_in.add_permits(3);
        }
    );
    let two = task_of(&two.unwrap());
    assert!(two.artifacts.iter().any(|a| a.parts == [Part::text("2:two")]), "a blocking send waits for its own turn");
    let three = task_of(&three.unwrap());
    assert_eq!(three.status.state, TaskState::Completed);
    let texts: Vec<_> = three.artifacts.iter().map(|a| a.parts[0].clone()).collect();
    assert_eq!(texts, ["1:one", "2:two", "3:three"].map(Part::text));
    let users = three.history.iter().filter(|m| m.role == a2a::Role::User).count();
    assert_eq!(users, 3);
}

#[tokio::test]
async fn a_failed_turn_ends_the_task_and_keeps_waiting_messages_in_its_history() {
    let rig = Rig::new(vec![agent("doomed", |_turn, _out| async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        Outcome::Failed(vec![Part::text("no")])
    })])
    .await;
    let id = rig.start("doomed", message("one")).await;
    let waiting = Message { task_id: id.clone(), ..message("two") };
    let task = task_of(&rig.send("doomed", waiting).await.unwrap());
    assert_eq!(task.status.state, TaskState::Failed);
    assert_eq!(task.history.len(), 2);
}

#[tokio::test]
async fn a_retry_is_tried_again_and_replaces_what_the_first_attempt_said() {
    let tries = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&tries);
    let rig = Rig::new(vec![agent("flaky", move |turn, out| {
        let tries = Arc::clone(&counter);
        async move {
            tries.fetch_add(1, Ordering::SeqCst);
            out.text(format!("attempt {}", turn.attempt), true).await;
            if turn.attempt < 2 { Outcome::Retry("try again".into()) } else { Outcome::Completed(Vec::new()) }
        }
    })])
    .await;
    let task = task_of(&rig.send("flaky", message("x")).await.unwrap());
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(tries.load(Ordering::SeqCst), 2);
    assert_eq!(task.artifacts.len(), 1);
    assert_eq!(task.artifacts[0].parts, [Part::text("attempt 2")]);
}

#[tokio::test]
async fn attempts_run_out() {
    let mut hopeless = agent("hopeless", |_turn, _out| async move { Outcome::Retry("still broken".into()) });
    hopeless.profile.max_attempts = 2;
    let rig = Rig::new(vec![hopeless]).await;
    let task = task_of(&rig.send("hopeless", message("x")).await.unwrap());
    assert_eq!(task.status.state, TaskState::Failed);
    assert_eq!(task.status.message.unwrap().parts, [Part::text("still broken; gave up after 2 attempts")]);
}

#[tokio::test]
async fn a_panic_fails_its_task_and_nothing_else() {
    let rig = Rig::new(vec![
        agent("panics", |_turn, _out| async move { panic!("on purpose") }),
        agent("echo", |_turn, _out| async move { Outcome::Completed(Vec::new()) }),
    ])
    .await;
    let task = task_of(&rig.send("panics", message("x")).await.unwrap());
    assert_eq!(task.status.state, TaskState::Failed);
    let task = task_of(&rig.send("echo", message("x")).await.unwrap());
    assert_eq!(task.status.state, TaskState::Completed);
}

#[tokio::test]
async fn a_timeout_fails_the_turn() {
    let mut late = agent("late", |_turn, _out| std::future::pending());
    late.profile.timeout = Some(Duration::from_millis(50));
    let rig = Rig::new(vec![late]).await;
    let task = task_of(&rig.send("late", message("x")).await.unwrap());
    assert_eq!(task.status.state, TaskState::Failed);
}

#[tokio::test]
async fn x_51_a_required_extension_is_enforced_and_known_ones_are_activated() {
    let mut strict = agent("strict", |_turn, _out| async move { Outcome::Completed(Vec::new()) });
    strict.profile.extensions =
        vec![a2a::AgentExtension { uri: "urn:x:needed".into(), required: true, ..Default::default() }];
    let rig = Rig::new(vec![strict]).await;
    let refused = rig.send("strict", message("x")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ExtensionSupportRequired);

    let mut call = rig.call.clone();
    call.extensions = vec!["urn:x:needed".into(), "urn:x:unknown".into()];
    let sent = rig.exchange.send(&call, rig.request("strict", message("x"))).await.unwrap();
    assert_eq!(sent.extensions, ["urn:x:needed"]);

    // not on sends alone, whether the agent is named or only its task.
    let id = task_of(&sent).id;
    for tenant in ["", "strict"] {
        let get = a2a::GetTaskRequest { tenant: tenant.into(), id: id.clone(), ..Default::default() };
        assert_eq!(
            rig.exchange.get(&rig.call, get.clone()).await.unwrap_err().kind(),
            ErrorKind::ExtensionSupportRequired
        );
        rig.exchange.get(&call, get).await.unwrap();
    }
    assert_eq!(rig.cancel(&id).await.unwrap_err().kind(), ErrorKind::ExtensionSupportRequired);
    let list = a2a::ListTasksRequest { tenant: "strict".into(), ..Default::default() };
    assert_eq!(rig.exchange.list(&rig.call, list).await.unwrap_err().kind(), ErrorKind::ExtensionSupportRequired);
    let subscribe = a2a::SubscribeToTaskRequest { id, ..Default::default() };
    let refused = rig.exchange.subscribe(&rig.call, subscribe, Some(0)).await;
    assert_eq!(refused.err().unwrap().kind(), ErrorKind::ExtensionSupportRequired);
}

#[tokio::test]
async fn x_11_parts_are_checked_against_the_agents_modes() {
    let rig = Rig::new(vec![agent("text", |_turn, _out| async move { Outcome::Completed(Vec::new()) })]).await;
    let mut picture = message("x");
    picture.parts.push(Part { media_type: "image/png".into(), ..Part::raw("png".as_bytes()) });
    let refused = rig.send("text", picture).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ContentTypeNotSupported);
    assert_eq!(a2a::Error::from(refused).violations[0].field, "message.parts[1].mediaType");
}

#[tokio::test]
async fn a_direct_reply_is_no_task() {
    let reply = |turn: exchange::Turn| Outcome::Message(Message { parts: turn.message.parts, ..Default::default() });
    let mut direct = agent("direct", move |turn, _out| async move { reply(turn) });
    direct.profile.reply = ReplyMode::Auto;
    let rig = Rig::new(vec![direct]).await;

    let mut keyed = message("hi");
    keyed.context_id = "ctx".into();
    let first = rig::direct(&rig.send("direct", keyed.clone()).await.unwrap());
    assert!(first.starts_with(b"{\"message\":"), "{first:?}");
    let again = rig::direct(&rig.send("direct", keyed).await.unwrap());
    assert_eq!(first, again, "a repetition gets the same reply");
    assert_eq!(rig.total().await, 0, "the record stays out of the list");
}

#[tokio::test]
async fn a_surface_may_want_a_task_for_every_message_and_one_cancel_for_each() {
    let mut direct = agent("direct", |turn, _out| async move {
        if turn.text() == "wait" {
            turn.cancel.cancelled().await;
            return Outcome::Canceled;
        }
        Outcome::Message(Message { parts: turn.message.parts, ..Default::default() })
    });
    direct.profile.reply = ReplyMode::Auto;
    let mut rig = Rig::new(vec![direct]).await;
    rig.call.rules =
        Rules { always_task: true, idempotent: false, cancel_once: true, remembers: false, all_events: true };
    rig.call.idempotency_key = Some("key".into());

    let mut keyed = message("hi");
    keyed.context_id = "ctx".into();
    let first = task_of(&rig.send("direct", keyed.clone()).await.unwrap());
    assert_eq!(first.status.state, TaskState::Completed);
    assert_eq!(first.status.message.unwrap().parts, [Part::text("hi")]);
    let again = task_of(&rig.send("direct", keyed).await.unwrap());
    assert_ne!(first.id, again.id, "nothing is a repetition");

    let id = rig.start("direct", message("wait")).await;
    assert_eq!(rig.cancel(&id).await.unwrap().status.state, TaskState::Canceled);
    assert_eq!(rig.cancel(&id).await.unwrap_err().kind(), ErrorKind::TaskNotCancelable);
}

#[tokio::test]
async fn an_auto_agent_that_speaks_otherwise_makes_a_task() {
    let mut auto = agent("auto", |_turn, out| async move {
        out.text("not direct", true).await;
        Outcome::Completed(Vec::new())
    });
    auto.profile.reply = ReplyMode::Auto;
    let rig = Rig::new(vec![auto]).await;
    let mut frames = rig.exchange.stream(&rig.call, rig.request("auto", message("x"))).await.unwrap();
    let mut seqs = Vec::new();
    while let Some(frame) = frames.next().await {
        let frame = frame.unwrap();
        if seqs.is_empty() {
            assert!(matches!(frame, exchange::Frame::Task(_)), "{frame:?}");
        }
        seqs.push(frame.seq());
    }
    assert_eq!(seqs, [1, 2, 3, 4]);
    assert_eq!(rig.total().await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x_39_a_surface_may_want_every_event_of_a_turn_however_soon_it_came() {
    let mut rig = Rig::new(vec![agent("asks", |turn, out| async move {
        if turn.number == 1 {
            return Outcome::InputRequired(vec![Part::text("which?")]);
        }
        out.text("this", true).await;
        Outcome::Completed(Vec::new())
    })])
    .await;
    rig.call.rules.all_events = true;
    for _ in 0..20 {
        let asked = task_of(&rig.send("asks", message("go")).await.unwrap());
        let answer = Message { task_id: asked.id, ..message("this one") };
        let mut frames = rig.exchange.stream(&rig.call, rig.request("asks", answer)).await.unwrap();
        assert!(matches!(frames.next().await, Some(Ok(exchange::Frame::Task(_)))));
        let mut events = Vec::new();
        while let Some(frame) = frames.next().await {
            events.push(frame.unwrap().response().unwrap());
        }
        let [.., a2a::StreamResponse::ArtifactUpdate(made), a2a::StreamResponse::StatusUpdate(end)] = events.as_slice()
        else {
            panic!("the turn is not whole: {events:#?}");
        };
        assert_eq!(end.status.state, TaskState::Completed);
        assert_eq!(exchange::text_of(&made.artifact.parts), "this");
    }
}

#[tokio::test]
async fn a_send_that_outlasts_the_cap_returns_the_working_task() {
    let options = Options { blocking_cap: Duration::from_millis(50), ..Options::default() };
    let rig = Rig::with(
        options,
        vec![agent("slow", |_turn, _out| async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            Outcome::Completed(Vec::new())
        })],
    )
    .await;
    let task = task_of(&rig.send("slow", message("x")).await.unwrap());
    assert_eq!(task.status.state, TaskState::Working);
    assert_eq!(rig.until_terminal(&task.id).await.status.state, TaskState::Completed);
}

#[tokio::test]
async fn a_full_agent_queues_and_then_runs_everything() {
    let mut narrow = agent("narrow", |_turn, _out| async move {
        tokio::time::sleep(Duration::from_millis(5)).await;
        Outcome::Completed(Vec::new())
    });
    narrow.profile.concurrency = 2;
    let rig = Rig::new(vec![narrow]).await;
    let sends = (0..20).map(|_| rig.send("narrow", message("x")));
    for sent in futures_util::future::join_all(sends).await {
        assert_eq!(state_of(&sent.unwrap()), TaskState::Completed);
    }
}

#[tokio::test]
async fn a_shutdown_gives_back_what_does_not_end_and_the_next_instance_runs_it() {
    let runs = Arc::new(AtomicU32::new(0));
    let place = Place::new();
    let make = |runs: &Arc<AtomicU32>| {
        let runs = Arc::clone(runs);
        vec![agent("long", move |turn, _out| {
            let run = runs.fetch_add(1, Ordering::SeqCst);
            async move {
                assert_eq!(turn.attempt, run + 1, "another attempt says so");
                if run == 0 {
                    std::future::pending::<()>().await;
                }
                Outcome::Completed(Vec::new())
            }
        })]
    };
    let first = Rig::at(&place, Options::default(), make(&runs)).await;
    let id = first.start("long", message("x")).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    first.exchange.shut_down(Duration::from_millis(50)).await;
    let refused = first.send("long", message("y")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);

    let second = Rig::at(&place, Options::default(), make(&runs)).await;
    assert_eq!(second.until_terminal(&id).await.status.state, TaskState::Completed);
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn crash_policies_decide_what_happens_to_an_interrupted_turn() {
    for (policy, expected) in [
        (OnCrash::Retry, TaskState::Completed),
        (OnCrash::Fail, TaskState::Failed),
        (OnCrash::Ask, TaskState::InputRequired),
    ] {
        let place = Place::new();
        let options =
            Options { lease: Duration::from_millis(300), poll: Duration::from_millis(50), ..Options::default() };
        let make = |first: bool| {
            let mut agent = agent("fragile", move |turn, _out| async move {
                if first {
                    std::future::pending::<()>().await;
                }
                Outcome::Completed(vec![Part::text(format!("attempt {}", turn.attempt))])
            });
            agent.profile.on_crash = policy;
            vec![agent]
        };
        // The crash: a lease that nobody renews, taken by a store whose exchange never started.
        let id = Rig::abandon(&place, "fragile", message("x"), Duration::from_millis(300)).await;
        let rig = Rig::at(&place, options, make(false)).await;
        let task = rig.until(&id, |state| state.is_terminal() || state.is_interrupted()).await;
        assert_eq!(task.status.state, expected, "{policy:?}");
        if policy == OnCrash::Ask {
            let reply = Message { task_id: id.clone(), ..message("again") };
            assert_eq!(state_of(&rig.send("fragile", reply).await.unwrap()), TaskState::Completed);
        }
    }
}

#[tokio::test]
async fn what_belongs_to_someone_else_does_not_exist() {
    let rig = Rig::new(vec![agent("echo", |_turn, _out| async move { Outcome::Completed(Vec::new()) })]).await;
    let task = task_of(&rig.send("echo", message("x")).await.unwrap());
    let other = rig.other_tenant().await;
    let theirs = GetTaskRequest { id: task.id.clone(), ..Default::default() };
    let nobodys = GetTaskRequest { id: store::TaskId::mint().to_string(), ..Default::default() };
    let a = rig.exchange.get(&other, theirs).await.unwrap_err();
    let b = rig.exchange.get(&other, nobodys).await.unwrap_err();
    let (a, b) = (a2a::Error::from(a), a2a::Error::from(b));
    assert_eq!((a.kind, &a.reason), (b.kind, &b.reason));
    assert_eq!(a.kind, ErrorKind::TaskNotFound);
}

#[tokio::test]
async fn x_10_an_agent_is_told_its_own_replies() {
    let rig = Rig::new(vec![agent("recall", |turn, out| async move {
        let (history, mut told) = turn.past().await.unwrap();
        told.extend(history.into_owned());
        let told: Vec<String> = told.iter().map(|message| exchange::text_of(&message.parts)).collect();
        out.text(format!("[{}]", told.join(" ")), true).await;
        if turn.text() == "ask" {
            Outcome::InputRequired(vec![Part::text("well?")])
        } else {
            Outcome::Completed(vec![])
        }
    })])
    .await;
    let said = |text: &str| Message { context_id: "ctx".into(), ..message(text) };
    let first = task_of(&rig.send("recall", said("one")).await.unwrap());
    assert_eq!(first.history.len(), 1, "the task has what was sent, and no more");
    let second = task_of(&rig.send("recall", said("ask")).await.unwrap());
    let answer = Message { task_id: second.id.clone(), ..said("two") };
    let second = task_of(&rig.send("recall", answer).await.unwrap());
    let last = exchange::text_of(&second.artifacts[1].parts);
    assert_eq!(last, "[one [one] ask well? two]", "a turn that ends with a message of its own has said it there");
    let third = task_of(&rig.send("recall", said("three")).await.unwrap());
    assert_eq!(exchange::text_of(&third.artifacts[0].parts), format!("[one [one] ask well? two {last} three]"));
    let history: Vec<String> = second.history.iter().map(|message| exchange::text_of(&message.parts)).collect();
    assert_eq!(history, ["ask", "well?", "two"]);
}

#[tokio::test]
async fn x_10_text_that_ends_with_its_turn_is_one_chunk_that_says_so() {
    let mut both = agent("both", |_, out| async move {
        out.text("all of it", true).await;
        Outcome::Completed(vec![])
    });
    both.profile.reply_text = exchange::ReplyText::Both;
    let short = agent("short", |_, out| async move {
        out.text("all ", true).await;
        out.text("of it", false).await;
        // A program that has said its last word takes a moment to be gone.
        tokio::time::sleep(Duration::from_millis(3)).await;
        Outcome::Completed(vec![])
    });
    let long = agent("long", |_, out| async move {
        out.text("all ", true).await;
        out.flush().await;
        tokio::time::sleep(Duration::from_millis(60)).await;
        out.text("of it", false).await;
        tokio::time::sleep(Duration::from_millis(60)).await;
        Outcome::Completed(vec![])
    });
    let rig = Rig::new(vec![both, short, long]).await;
    let chunks = async |agent: &str| {
        let task = task_of(&rig.send(agent, message("go")).await.unwrap());
        let mut frames = rig.frames(&task.id, 0).await;
        let mut events = Vec::new();
        while let Some(frame) = frames.next().await {
            events.push(frame.unwrap().response().unwrap());
        }
        let chunk = |event: &a2a::StreamResponse| match event {
            a2a::StreamResponse::ArtifactUpdate(it) => {
                Some((exchange::text_of(&it.artifact.parts), it.append, it.last_chunk))
            }
            _ => None,
        };
        let said = match events.last() {
            Some(a2a::StreamResponse::StatusUpdate(it)) => it.status.message.clone().map(|it| it.text()),
            _ => None,
        };
        (events.iter().filter_map(chunk).collect::<Vec<_>>(), said)
    };
    let chunk = |text: &str, append, last| (text.to_owned(), append, last);
    assert_eq!(chunks("short").await, (vec![chunk("all of it", false, true)], None));
    let expected = vec![chunk("all ", false, false), chunk("of it", true, false), chunk("", true, true)];
    assert_eq!(chunks("long").await, (expected, None));
    let expected = vec![chunk("all of it", false, false), chunk("", true, true)];
    assert_eq!(chunks("both").await, (expected, Some("all of it".to_owned())));
}

#[tokio::test]
async fn a_surface_without_memory_tells_the_agent_nothing_of_the_context() {
    let mut rig = Rig::new(vec![agent("recall", |turn, _out| async move {
        let (_, told) = turn.past().await.unwrap();
        Outcome::Completed(vec![Part::text(told.len().to_string())])
    })])
    .await;
    let said = |text: &str| Message { context_id: "ctx".into(), ..message(text) };
    let told = async |rig: &Rig, text: &str| {
        let task = task_of(&rig.send("recall", said(text)).await.unwrap());
        task.status.message.unwrap().parts[0].as_text().map(ToOwned::to_owned)
    };
    assert_eq!(told(&rig, "one").await.as_deref(), Some("0"));
    assert_eq!(told(&rig, "two").await.as_deref(), Some("2"), "the first message and its reply");
    rig.call.rules.remembers = false;
    assert_eq!(told(&rig, "three").await.as_deref(), Some("0"));
}

#[tokio::test]
async fn x_49_who_does_not_wait_hears_of_a_direct_reply_or_of_the_task_soon() {
    let mut quick = agent("quick", |_turn, _out| async {
        Outcome::Message(a2a::Message { parts: vec![Part::text("hi")], ..a2a::Message::default() })
    });
    quick.profile.reply = exchange::ReplyMode::Auto;
    let mut slow = agent("slow", |_turn, _out| std::future::pending());
    slow.profile.reply = exchange::ReplyMode::Auto;
    slow.profile.reveal_after = Duration::from_millis(50);
    let rig = Rig::new(vec![quick, slow]).await;
    let at_once = |agent: &str| {
        let mut request = rig.request(agent, message("go"));
        request.configuration = Some(a2a::SendMessageConfiguration { return_immediately: true, ..Default::default() });
        rig.exchange.send(&rig.call, request)
    };
    assert!(String::from_utf8_lossy(&rig::direct(&at_once("quick").await.unwrap())).contains("hi"));
    assert_eq!(rig.total().await, 0);
    let task = task_of(&at_once("slow").await.unwrap());
    assert_eq!(task.status.state, TaskState::Working);
    assert_eq!(rig.get(&task.id).await.id, task.id, "it is shown");
}

#[tokio::test]
async fn the_time_that_a_turn_waits_for_others_is_not_counted_against_its_timeout() {
    let entry = |id: &str, waits: bool| {
        let mut entry = agent(id, move |_, out: Output| async move {
            let waiting = waits.then(|| out.waits());
            tokio::time::sleep(Duration::from_millis(600)).await;
            drop(waiting);
            Outcome::Completed(Vec::new())
        });
        entry.profile.timeout = Some(Duration::from_millis(300));
        entry
    };
    let rig = Rig::new(vec![entry("works", false), entry("waits", true)]).await;
    assert_eq!(state_of(&rig.send("works", message("go")).await.unwrap()), TaskState::Failed);
    assert_eq!(state_of(&rig.send("waits", message("go")).await.unwrap()), TaskState::Completed);
}
