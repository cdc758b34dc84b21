//! What goes by itself and at once, seen from inside one process: when, and what readers and workers notice of it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::rig;

use std::{collections::BTreeMap, time::Duration};

use a2a::{Artifact, ErrorKind, GetTaskRequest, ListTasksRequest, Message, Part, TaskState};
use exchange::{
    Call, Caller, Entry, Frame, Frames, Keep, Options, Outcome, ReplyMode, RetentionRule, RetentionRules, Sent,
    admin::{self, Administration},
};
use rig::{Rig, agent, message, task_of};
use store::{Change, Prune, PruneStep, PruneWalk, Removal, TaskId, Whose};

const SOON: Keep = Keep::For(Duration::from_millis(50));

fn echo() -> Entry {
    agent("echo", |turn, out| async move {
        out.text(turn.text(), true).await;
        Outcome::Completed(Vec::new())
    })
}

/// Makes as many artifacts as its message says.
fn busy() -> Entry {
    agent("busy", |turn, out| async move {
        for n in 0..turn.text().parse().unwrap_or(0) {
            let parts = vec![Part::text(n.to_string())];
            out.artifact(Artifact { parts, ..Artifact::default() }, false, true, None).await;
        }
        Outcome::Completed(Vec::new())
    })
}

/// Ends when it is canceled, and not before.
fn slow() -> Entry {
    agent("slow", |turn, _out| async move {
        turn.cancel.cancelled().await;
        Outcome::Canceled
    })
}

/// Does not even listen to that.
fn deaf() -> Entry {
    agent("deaf", |_turn, out| async move {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            out.text("still here", false).await;
        }
    })
}

fn rules(tasks: Keep, events: Keep) -> Options {
    let retention = RetentionRules { tasks, events, every: Duration::from_millis(20), ..RetentionRules::forever() };
    Options { retention, cancel_grace: Duration::from_millis(300), ..Options::default() }
}

impl Rig {
    async fn is_there(&self, id: &str) -> bool {
        let request = GetTaskRequest { id: id.to_owned(), ..GetTaskRequest::default() };
        match self.exchange.get(&self.call, request).await {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::TaskNotFound => false,
            Err(error) => panic!("{error}"),
        }
    }

    async fn until_gone(&self, id: &str) {
        for _ in 0..500 {
            if !self.is_there(id).await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("it stays");
    }

    async fn has_log(&self, id: &str) -> bool {
        let events = self.store.events(self.call.caller.tenant, TaskId::parse(id).unwrap(), 0, 1).await;
        match events {
            Ok(_) => true,
            Err(store::Error::Pruned) => false,
            Err(error) => panic!("{error}"),
        }
    }

    async fn until_log_is_gone(&self, id: &str) {
        for _ in 0..500 {
            if !self.has_log(id).await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("its log stays");
    }

    async fn done(&self, agent: &str, text: &str) -> String {
        task_of(&self.send(agent, message(text)).await.unwrap()).id
    }

    /// Removes all logs at once.
    async fn remove_logs(&self) {
        let tenant = self.call.caller.tenant;
        let (whose, what, older_than) = (Whose::AllBut(Vec::new()), Prune::Events, Duration::ZERO);
        tokio::time::sleep(Duration::from_millis(5)).await;
        let mut step = PruneStep { tenant, whose, what, older_than, walk: PruneWalk::default(), size: 1 };
        loop {
            let pruned = self.store.prune(step.clone()).await.unwrap();
            step.walk = pruned.walk;
            if !pruned.more {
                return;
            }
        }
    }

    fn in_context(&self, agent: &str, text: &str, context: &str) -> a2a::SendMessageRequest {
        self.request(agent, Message { context_id: context.into(), ..message(text) })
    }
}

async fn rest(frames: &mut Frames) -> (Vec<Frame>, Option<exchange::Error>) {
    let mut all = Vec::new();
    while let Some(frame) = tokio::time::timeout(Duration::from_secs(20), frames.next()).await.expect("it ends") {
        match frame {
            Ok(frame) => all.push(frame),
            Err(error) => return (all, Some(error)),
        }
    }
    (all, None)
}

#[tokio::test]
async fn what_ended_long_ago_goes_by_itself() {
    let rig = Rig::with(rules(SOON, Keep::Forever), vec![echo(), slow()]).await;
    let running = rig.start("slow", message("x")).await;
    let ended = rig.done("echo", "hello").await;
    rig.until_gone(&ended).await;
    assert!(rig.is_there(&running).await && rig.has_log(&running).await, "what has not ended stays");
    rig.cancel(&running).await.unwrap();
    rig.until_gone(&running).await;
    assert_eq!(rig.total().await, 0);
    assert_eq!(rig.store.usage(rig.call.caller.tenant).await.unwrap(), store::Usage::default());
}

#[tokio::test]
async fn agents_and_tenants_have_rules_of_their_own() {
    let mut options = rules(Keep::Forever, Keep::Forever);
    let tasks = |keep| RetentionRule { tasks: Some(keep), events: None };
    options.retention.agents = BTreeMap::from([("echo".parse().unwrap(), tasks(SOON))]);
    options.retention.tenants = BTreeMap::from([("other".to_owned(), tasks(Keep::Forever))]);
    let rig = Rig::with(options, vec![echo(), busy()]).await;
    let mut other = rig.clone();
    other.call = rig.other_tenant().await;
    let (stays, theirs) = (rig.done("busy", "1").await, other.done("echo", "hello").await);
    let goes = rig.done("echo", "hello").await;
    rig.until_gone(&goes).await;
    assert!(rig.is_there(&stays).await && other.is_there(&theirs).await);
}

#[tokio::test]
async fn who_asks_for_events_that_went_gets_the_task() {
    let rig = Rig::with(rules(Keep::Forever, SOON), vec![echo()]).await;
    let id = rig.done("echo", "hello").await;
    rig.until_log_is_gone(&id).await;
    let task = rig.get(&id).await;
    assert_eq!((task.status.state, &task.artifacts[0].parts), (TaskState::Completed, &vec![Part::text("hello")]));
    for after in [0, 1, 2] {
        let (frames, error) = rest(&mut rig.frames(&id, after).await).await;
        let [Frame::Task(snapshot)] = frames.as_slice() else { panic!("{frames:?}") };
        assert_eq!((snapshot.to_task().unwrap(), error.is_none()), (task.clone(), true), "after {after}");
    }
    let end = rig.store.head(rig.call.caller.tenant, TaskId::parse(&id).unwrap()).await.unwrap().seq;
    assert!(rest(&mut rig.frames(&id, end).await).await.0.is_empty(), "nothing is missing");
    // Whoever sends again is answered from the task.
    let mut keyed = message("again");
    keyed.context_id = "ctx".into();
    let first = task_of(&rig.send("echo", keyed.clone()).await.unwrap());
    rig.until_log_is_gone(&first.id).await;
    assert_eq!(task_of(&rig.send("echo", keyed).await.unwrap()), first);
}

#[tokio::test]
async fn a_direct_reply_is_repeated_for_as_long_as_there_is_its_task() {
    let mut direct = agent("direct", |turn, _out| async move {
        Outcome::Message(Message { parts: turn.message.parts, ..Message::default() })
    });
    direct.profile.reply = ReplyMode::Auto;
    let rig = Rig::with(rules(Keep::Forever, SOON), vec![direct, echo()]).await;
    let mut keyed = message("hi");
    keyed.context_id = "ctx".into();
    let first = rig::direct(&rig.send("direct", keyed.clone()).await.unwrap());
    let later = rig.done("echo", "later").await;
    rig.until_log_is_gone(&later).await;
    assert_eq!(rig::direct(&rig.send("direct", keyed.clone()).await.unwrap()), first);
    rig.exchange.delete_context(&rig.call, "ctx", false).await.unwrap();
    let anew = rig::direct(&rig.send("direct", keyed).await.unwrap());
    assert_ne!(anew, first, "it is another reply now");
}

#[tokio::test]
async fn a_reader_that_is_overtaken_ends_cleanly() {
    let rig = Rig::with(rules(Keep::Forever, Keep::Forever), vec![busy()]).await;
    // More than one reading of the log.
    let id = rig.done("busy", "600").await;
    let mut overtaken = rig.frames(&id, 0).await;
    assert_eq!(overtaken.next().await.unwrap().unwrap().seq(), 1);
    let mut of_another = rig.frames(&id, 0).await;
    assert_eq!(of_another.next().await.unwrap().unwrap().seq(), 1);
    rig.remove_logs().await;
    let (frames, error) = rest(&mut overtaken).await;
    assert!(error.is_none() && frames.len() < 600, "{error:?}");
    let (last, events) = frames.split_last().unwrap();
    assert!(events.iter().zip(2..).all(|(frame, seq)| frame.seq() == seq), "what it had read comes without a gap");
    let Frame::Task(snapshot) = last else { panic!("{last:?}") };
    assert_eq!((snapshot.state, snapshot.artifacts.len()), (TaskState::Completed, 600));

    rig.exchange.delete_task(&rig.call, &id, false).await.unwrap();
    let (_, error) = rest(&mut of_another).await;
    assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::TaskNotFound));
}

#[tokio::test]
async fn what_runs_is_deleted_only_when_it_may_be_canceled() {
    let rig = Rig::with(rules(Keep::Forever, Keep::Forever), vec![echo(), slow(), deaf()]).await;
    for name in ["slow", "deaf"] {
        let id = rig.start(name, message("x")).await;
        let refused = rig.exchange.delete_task(&rig.call, &id, false).await.unwrap_err();
        let told = a2a::Error::from(refused);
        assert_eq!((told.kind, told.reason(), told.http_status()), (ErrorKind::Conflict, "TASK_NOT_ENDED", 409));
        let other = rig.other_tenant().await;
        for call in [&other, &rig.call] {
            let id = if call.caller == other.caller { id.clone() } else { TaskId::mint().to_string() };
            let refused = rig.exchange.delete_task(call, &id, true).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::TaskNotFound);
        }
        assert!(rig.is_there(&id).await);
        let deleted = rig.exchange.delete_task(&rig.call, &id, true).await.unwrap();
        assert_eq!(deleted.tasks, 1);
        assert!(!rig.is_there(&id).await);
    }
    // The turn that did not listen writes to nothing.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(rig.store.usage(rig.call.caller.tenant).await.unwrap(), store::Usage::default());
    assert_eq!(rig.done("echo", "hello").await.len(), 36, "and the exchange goes on");
    let entry = rig.store.audit(None, 1).await.unwrap().remove(0);
    assert_eq!((entry.actor.as_str(), entry.action.as_str()), ("tenant default", "task_deleted"));
}

#[tokio::test]
async fn a_context_goes_with_what_nobody_sees_of_it() {
    let mut holding = agent("holding", |turn, _out| async move {
        turn.cancel.cancelled().await;
        Outcome::Canceled
    });
    holding.profile.reply = ReplyMode::Auto;
    holding.profile.reveal_after = Duration::from_secs(60);
    let rig = Rig::with(rules(Keep::Forever, Keep::Forever), vec![echo(), slow(), holding]).await;
    let begun = {
        let (rig, request) = (rig.clone(), rig.in_context("holding", "x", "ctx"));
        tokio::spawn(async move { rig.exchange.send(&rig.call, request).await })
    };
    for (agent, context) in [("echo", "ctx"), ("echo", "ctx"), ("echo", "another")] {
        rig.exchange.send(&rig.call, rig.in_context(agent, "hello", context)).await.unwrap();
    }
    let tenant = rig.call.caller.tenant;
    while rig.store.unfinished(tenant, "ctx", 10).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(rig.total().await, 3, "what is held is not seen");
    let refused = rig.exchange.delete_context(&rig.call, "ctx", false).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert_eq!(rig.total().await, 3, "a refusal removes nothing");
    let deleted = rig.exchange.delete_context(&rig.call, "ctx", true).await.unwrap();
    assert_eq!(deleted.tasks, 3);
    let list = rig.exchange.list(&rig.call, ListTasksRequest::default()).await.unwrap();
    assert_eq!((list.total, &*list.tasks[0].context), (1, "another"));
    // Whoever waited for it has an answer: its end, or that it is gone.
    let _: Result<Sent, exchange::Error> = begun.await.unwrap();
    for context in ["ctx", "never was", ""] {
        let refused = rig.exchange.delete_context(&rig.call, context, true).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotFound, "{context:?}");
    }
    let other: Call = rig.other_tenant().await;
    let refused = rig.exchange.delete_context(&other, "another", true).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound, "somebody else's is as none");
}

#[tokio::test]
async fn a_quota_is_given_back() {
    let mut options = rules(Keep::Forever, Keep::Forever);
    options.quota = store::Quota { tasks: None, bytes: Some(2000) };
    let rig = Rig::with(options, vec![echo()]).await;
    let id = rig.done("echo", &"x".repeat(2000)).await;
    let refused = rig.send("echo", message("more")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ResourceExhausted);
    rig.exchange.delete_task(&rig.call, &id, false).await.unwrap();
    rig.send("echo", message("more")).await.unwrap();
}

#[tokio::test]
async fn a_stop_does_not_wait_for_what_is_old() {
    let rig = Rig::with(rules(SOON, SOON), vec![echo()]).await;
    for n in 0..200 {
        rig.done("echo", &n.to_string()).await;
    }
    let begun = std::time::Instant::now();
    rig.exchange.shut_down(Duration::from_secs(1)).await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    let context = rig.store.delete(rig.call.caller.tenant, "test", Removal::Context("none".into()), 1).await;
    assert!(matches!(context, Err(store::Error::NotFound)), "the store is open");
}

#[tokio::test]
async fn a_tenant_is_kept_whose_work_was_accepted_until_its_tokens_were_refused() {
    let mut rig = Rig::new(vec![slow()]).await;
    let acme = rig.store.create_tenant("acme").await.unwrap().id;
    rig.call = Call::new(Caller::new(acme, "acme"));
    let is_enabled =
        async || rig.store.tenants().await.unwrap().iter().any(|tenant| tenant.id == acme && tenant.enabled);
    let admin = Administration::new(rig.store.as_ref(), "test");
    let accepted = async {
        for _ in 0..1000 {
            if !is_enabled().await {
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        rig.start("slow", message("late")).await
    };
    let (deleted, id) = tokio::join!(admin.delete_tenant(acme, false), accepted);
    assert!(matches!(deleted, Err(admin::Error::TenantAtWork(_))), "{deleted:?}");
    assert!(is_enabled().await, "its tokens are honored again");
    assert!(!rig.get(&id).await.status.state.is_terminal());
}

/// Steps of a deletion take the writer. The pauses between them leave it to others.
#[tokio::test]
async fn the_deletion_of_a_tenant_leaves_the_writer_to_others_between_its_steps() {
    let mut rig = Rig::new(vec![echo()]).await;
    // What the steps keep the store busy for, and what a deletion with pauses takes.
    let (mut busy, mut took) = (Duration::ZERO, Duration::ZERO);
    for name in ["at once", "with pauses"] {
        let tenant = rig.store.create_tenant(name).await.unwrap().id;
        rig.call = Call::new(Caller::new(tenant, name));
        futures_util::future::join_all((0..320).map(|_| rig.done("echo", "hello"))).await;
        rig.store.administer("test", Change::SetEnabled { tenant, enabled: false }).await.unwrap();
        if name == "at once" {
            loop {
                let step = rig.store.delete(tenant, "test", Removal::Tenant, 1).await.unwrap();
                busy += step.took;
                if !step.more {
                    break;
                }
            }
        } else {
            let begun = std::time::Instant::now();
            let deleted = Administration::new(rig.store.as_ref(), "test").delete_tenant(tenant, false).await.unwrap();
            assert!(deleted.done && deleted.tasks == 320, "{deleted:?}");
            took = begun.elapsed();
        }
    }
    assert!(took > busy * 3, "the pauses are many times as long as the steps: {busy:?}, {took:?}");
}
