//! What a turn says: numbering, artifacts, ends, the next turn, direct replies.

use std::sync::Arc;

use a2a::TaskState::{
    AuthRequired, Canceled, Completed, Failed, InputRequired, Rejected, Submitted, Unspecified, Working,
};

use super::world::*;
use store::{Append, Error, Filter, Store, Tokens, TurnEnd, View};

pub(super) async fn events_are_numbered_without_gaps(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    let drafts = vec![
        status(task, Working, Some("thinking")),
        artifact(task, "a", "one", false),
        artifact(task, "a", "two", true),
    ];
    let appended = world.append(&lease, drafts).await.unwrap();
    assert_eq!((appended.seq, appended.state), (5, Working));
    let end = Append {
        drafts: vec![artifact(task, "b", "three", false)],
        end: Some(TurnEnd::Status(status(task, Completed, Some("done")))),
        ..Append::default()
    };
    let appended = world.store.append(&lease, end).await.unwrap();
    assert_eq!((appended.seq, appended.state), (7, Completed));
    assert!(appended.next.is_none());
    let expected = [CREATED, STARTED, is(Working), ARTIFACT, ARTIFACT, ARTIFACT, ends(Completed)];
    assert_eq!(world.kinds(task).await, expected);
}

pub(super) async fn concurrent_writers_leave_no_gap(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    let mut calls = Vec::new();
    for n in 0..40 {
        let (store, lease) = (Arc::clone(&world.store), lease.clone());
        let (tenant, more) = (world.tenant, world.more(task, "more"));
        calls.push(tokio::spawn(async move {
            if n % 4 == 0 {
                // Most of them find the inbox full.
                let _ = store.accept(tenant, more).await;
            } else {
                let drafts = vec![artifact(task, "a", "x", true), artifact(task, "a", "y", true)];
                store.append(&lease, Append { drafts, end: None, ..Append::default() }).await.unwrap();
            }
        }));
    }
    for call in calls {
        call.await.unwrap();
    }
    let events = world.events(task).await;
    assert_eq!(events.iter().filter(|e| e.kind == ARTIFACT).count(), 60);
    assert_eq!(artifacts_say(&world.task(task).await), [("a".into(), "xy".repeat(30))], "one call's are adjacent");
}

pub(super) async fn what_turns_use_of_models_adds_up(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let used = |input, output| Tokens { input, output };
    let spend = |tokens| Append { tokens, ..Append::default() };
    let (task, lease) = world.running("hello").await;
    assert_eq!(world.task(task).await.tokens, Tokens::default());
    let said = Append { drafts: vec![note(), artifact(task, "a", "x", false)], ..spend(used(10, 1)) };
    world.store.append(&lease, said).await.unwrap();
    assert_eq!(world.task(task).await.tokens, used(10, 1));
    // What nothing is said with counts all the same, and is no event.
    let before = world.events(task).await.len();
    world.store.append(&lease, spend(used(5, 0))).await.unwrap();
    assert_eq!((world.task(task).await.tokens, world.events(task).await.len()), (used(15, 1), before));
    // Another attempt takes back what was made, not what it has cost.
    let again = TurnEnd::Retry { after: NOTHING, error: "no luck".to_owned() };
    world.store.append(&lease, Append { end: Some(again), ..spend(used(1, 1)) }).await.unwrap();
    let second = world.lease_one().await.lease;
    let late = Append { drafts: vec![note()], ..spend(used(1000, 1000)) };
    assert!(matches!(world.store.append(&lease, late).await, Err(Error::LeaseLost)));
    let asks = TurnEnd::Status(status(task, InputRequired, Some("which?")));
    world.store.append(&second, Append { end: Some(asks), ..spend(used(100, 50)) }).await.unwrap();
    assert_eq!(world.task(task).await.tokens, used(116, 52));
    assert_eq!(world.store.stats().tokens, used(116, 52), "what was refused is not counted");
    // So do the turns of a task, up to what can be counted.
    let third = world.accept(world.leased(world.more(task, "this one"))).await.unwrap().lease.unwrap();
    let all = Append { end: Some(TurnEnd::Status(status(task, Completed, None))), ..spend(used(u64::MAX, 8)) };
    world.store.append(&third, all).await.unwrap();
    let most = used(i64::MAX.unsigned_abs(), 60);
    assert_eq!(world.task(task).await.tokens, most);
    let listed = world.store.list(world.tenant, Filter { limit: 5, ..everything() }).await.unwrap();
    assert_eq!(listed.tasks[0].tokens, most);
}

pub(super) async fn artifacts_grow_and_are_replaced(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    let first =
        vec![artifact(task, "a", "one ", false), artifact(task, "b", "other", true), artifact(task, "a", "two", true)];
    world.append(&lease, first).await.unwrap();
    let snapshot = world.task(task).await;
    assert_eq!(artifacts_say(&snapshot), [("a".into(), "one two".into()), ("b".into(), "other".into())]);
    assert_eq!(snapshot.artifacts[0].len(), 2, "chunks are kept as they came");
    world.append(&lease, vec![artifact(task, "b", "new", false)]).await.unwrap();
    let said = artifacts_say(&world.task(task).await);
    assert_eq!(said, [("a".into(), "one two".into()), ("b".into(), "new".into())]);
    let bare = View { history: Some(0), artifacts: false, ..View::FULL };
    let bare = world.store.task(world.tenant, task, bare).await.unwrap();
    assert!(bare.artifacts.is_empty() && bare.history.is_empty());
}

pub(super) async fn replaced_status_messages_become_history(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    world.append(&lease, vec![status(task, Working, Some("one")), status(task, Working, Some("two"))]).await.unwrap();
    let snapshot = world.task(task).await;
    assert_eq!(bytes_say(&snapshot.history), ["hello", "one"]);
    assert_eq!(bytes_say(snapshot.status_message.as_slice()), ["two"]);
    world.end(&lease, Completed, Some("done")).await.unwrap();
    let snapshot = world.task(task).await;
    assert_eq!(bytes_say(&snapshot.history), ["hello", "one", "two"]);
    assert_eq!(bytes_say(snapshot.status_message.as_slice()), ["done"]);
}

pub(super) async fn a_turn_cannot_report_an_end(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    for state in [Unspecified, Submitted, Completed, Failed, Canceled, InputRequired, Rejected] {
        let refused = world.append(&lease, vec![status(task, state, None)]).await;
        assert!(matches!(refused, Err(Error::Illegal(s)) if s == state), "{refused:?}");
    }
    for state in [Unspecified, Submitted, Working] {
        let refused = world.end(&lease, state, None).await;
        assert!(matches!(refused, Err(Error::Illegal(s)) if s == state), "{refused:?}");
    }
    let TurnEnd::Reply { reply, .. } = reply(task, "reply") else { unreachable!() };
    let refused = world.append(&lease, vec![reply]).await;
    assert!(matches!(refused, Err(Error::Illegal(_))), "{refused:?}");
    assert_eq!(world.kinds(task).await, [CREATED, STARTED]);
    world.append(&lease, vec![status(task, AuthRequired, None)]).await.unwrap();
    assert_eq!(world.state(task).await, AuthRequired);
    world.append(&lease, vec![status(task, Working, None)]).await.unwrap();
}

pub(super) async fn a_refused_append_changes_nothing(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    let before = (world.task(task).await, world.events(task).await);
    let drafts = vec![artifact(task, "a", "x", false), status(task, Working, Some("y")), status(task, Failed, None)];
    assert!(world.append(&lease, drafts).await.is_err());
    let bad_end = Append {
        drafts: vec![artifact(task, "a", "x", false)],
        end: Some(TurnEnd::Status(status(task, Submitted, None))),
        ..Append::default()
    };
    assert!(world.store.append(&lease, bad_end).await.is_err());
    assert_eq!((world.task(task).await, world.events(task).await), before);
}

pub(super) async fn nothing_follows_the_end(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    for state in [Completed, Failed, Rejected, Canceled] {
        let (task, lease) = world.running("hello").await;
        world.end(&lease, state, Some("end")).await.unwrap();
        let before = (world.task(task).await, world.events(task).await);
        let refused = world.append(&lease, vec![artifact(task, "a", "late", false)]).await;
        assert!(matches!(refused, Err(Error::LeaseLost)), "{refused:?}");
        let refused = world.end(&lease, Completed, None).await;
        assert!(matches!(refused, Err(Error::LeaseLost)), "{refused:?}");
        let refused = world.accept(world.more(task, "more")).await;
        assert!(matches!(refused, Err(Error::Terminal(s)) if s == state), "{refused:?}");
        world.store.mark_cancel(world.tenant, task).await.unwrap();
        assert!(world.lease().await.is_empty());
        assert_eq!(world.store.renew(std::slice::from_ref(&lease), MINUTE).await.unwrap(), [lease]);
        assert_eq!((world.task(task).await, world.events(task).await), before);
    }
}

pub(super) async fn a_waiting_message_is_the_next_turn(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("one").await;
    world.accept(world.more(task, "two")).await.unwrap();
    world.accept(world.more(task, "three")).await.unwrap();
    for (state, next, number) in [(Completed, "two", 2), (InputRequired, "three", 3)] {
        let appended = world.end(&lease, state, Some("reply")).await.unwrap();
        assert_eq!(appended.state, Working);
        let turn = appended.next.unwrap();
        assert_eq!((turn_says(&turn), turn.number), (next.to_owned(), number));
    }
    let last = world.end(&lease, Completed, Some("last")).await.unwrap();
    assert_eq!((last.state, last.next.is_none()), (Completed, true));
    let expected = [CREATED, STARTED, INPUT, INPUT, ends(Working), ends(Working), ends(Completed)];
    assert_eq!(world.kinds(task).await, expected);
    let history = bytes_say(&world.task(task).await.history);
    assert_eq!(history, ["one", "two", "three", "reply", "reply"]);
}

pub(super) async fn a_failure_ends_a_task_with_waiting_messages(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    for state in [Failed, Rejected] {
        let (task, lease) = world.running("one").await;
        world.accept(world.more(task, "two")).await.unwrap();
        let appended = world.end(&lease, state, Some("no")).await.unwrap();
        assert_eq!((appended.state, appended.next.is_none()), (state, true));
        assert_eq!(bytes_say(&world.task(task).await.history), ["one", "two"]);
        assert!(world.lease().await.is_empty());
    }
}

pub(super) async fn only_one_of_two_ends_wins(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    let (one, two) = tokio::join!(world.end(&lease, Completed, None), world.end(&lease, Failed, None));
    assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
    assert!(matches!(one.and(two), Err(Error::LeaseLost)));
    assert_eq!(world.events(task).await.len(), 3);
}

pub(super) async fn a_held_reply_stays_out_of_sight(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, accept) = world.begin("hello");
    let accepted = world.accept(keyed(held(world.leased(accept)), 1, 1)).await.unwrap();
    let hidden = || async {
        assert!(world.store.head(world.tenant, task).await.unwrap().hidden);
        assert!(matches!(world.store.task(world.tenant, task, View::FULL).await, Err(Error::NotFound)));
        assert!(matches!(world.store.mark_cancel(world.tenant, task).await, Err(Error::NotFound)));
        assert!(matches!(world.accept(world.more(task, "more")).await, Err(Error::NotFound)));
        let page = world.store.list(world.tenant, everything()).await.unwrap();
        assert_eq!((page.tasks.len(), page.total), (0, 0));
    };
    hidden().await;
    let appended = world.finish(&accepted.lease.unwrap(), reply(task, "hi")).await.unwrap();
    assert_eq!((appended.state, appended.seq), (Completed, 3));
    hidden().await;
    assert_eq!(world.kinds(task).await, [HELD, STARTED, REPLY]);
    let (_, again) = world.begin("hello");
    let again = world.accept(keyed(held(world.leased(again)), 1, 1)).await.unwrap();
    assert_eq!((again.task, again.duplicate, again.seq), (task, true, 3));
    let late = world.store.reveal(world.tenant, task).await;
    assert!(matches!(late, Err(Error::Terminal(Completed))), "{late:?}");
}

pub(super) async fn output_shows_a_held_task(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.held("hello").await;
    world.append(&lease, vec![artifact(task, "a", "x", false)]).await.unwrap();
    assert_eq!(world.total().await, 1);
    assert!(!world.store.head(world.tenant, task).await.unwrap().hidden);
    world.finish(&lease, reply(task, "done")).await.unwrap();
    let snapshot = world.task(task).await;
    assert_eq!((snapshot.state, bytes_say(snapshot.status_message.as_slice())), (Completed, vec!["done".into()]));

    let (failing, lease) = world.held("hello").await;
    world.end(&lease, Failed, Some("no")).await.unwrap();
    assert_eq!(world.task(failing).await.state, Failed);

    let (both, lease) = world.held("hello").await;
    let append =
        Append { drafts: vec![artifact(both, "a", "x", false)], end: Some(reply(both, "done")), ..Append::default() };
    world.store.append(&lease, append).await.unwrap();
    assert_eq!(world.task(both).await.state, Completed);
    assert_eq!(world.total().await, 3);
}

pub(super) async fn a_held_task_can_be_revealed(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.held("hello").await;
    world.store.reveal(world.tenant, task).await.unwrap();
    world.store.reveal(world.tenant, task).await.unwrap();
    assert_eq!((world.task(task).await.state, world.total().await), (Working, 1));
    world.finish(&lease, reply(task, "done")).await.unwrap();
    assert_eq!(world.kinds(task).await, [HELD, STARTED, REVEALED, ends(Completed)], "once is enough");
    let revealed = world.events(task).await.swap_remove(2);
    assert_eq!(revealed.body, "{}", "it says nothing");
}

pub(super) async fn a_held_task_that_is_put_off_is_revealed(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    for (end, interrupted) in [
        (TurnEnd::Retry { after: NOTHING, error: "no luck".to_owned() }, false),
        (TurnEnd::Release { begun: true }, true),
    ] {
        let (task, lease) = world.held("hello").await;
        let appended = world.finish(&lease, end).await.unwrap();
        assert_eq!((appended.state, appended.seq), (Working, 3));
        assert_eq!(world.kinds(task).await, [HELD, STARTED, REVEALED], "whoever waits for a reply learns of the task");
        assert_eq!(world.task(task).await.state, Working);
        let again = world.lease_one().await;
        assert_eq!((again.lease.task, again.interrupted), (task, interrupted));
        world.finish(&again.lease, reply(task, "at last")).await.unwrap();
        assert_eq!(world.kinds(task).await[3..], [AGAIN, ends(Completed)], "it is too late for a direct reply");
        assert_eq!(bytes_say(world.task(task).await.status_message.as_slice()), ["at last"]);
    }
    assert_eq!(world.total().await, 2);

    // What is said shows it as well; nothing has to be revealed then.
    let (task, lease) = world.held("hello").await;
    let append = Append {
        drafts: vec![artifact(task, "a", "x", false)],
        end: Some(TurnEnd::Release { begun: true }),
        ..Append::default()
    };
    world.store.append(&lease, append).await.unwrap();
    assert_eq!(world.kinds(task).await, [HELD, STARTED, ARTIFACT]);

    // A lease that ran out reveals nothing: whoever takes over may still reply.
    let (task, lease) = world.held("hello").await;
    world.run_out(&lease).await;
    let turns = world.lease().await;
    let again = turns.iter().find(|turn| turn.lease.task == task).unwrap();
    assert!(world.store.head(world.tenant, task).await.unwrap().hidden);
    world.finish(&again.lease, reply(task, "at last")).await.unwrap();
    assert_eq!(world.kinds(task).await, [HELD, STARTED, AGAIN, REPLY]);
}

pub(super) async fn a_reply_to_a_visible_task_completes_it(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    let appended = world.finish(&lease, reply(task, "hi")).await.unwrap();
    assert_eq!(appended.state, Completed);
    assert_eq!(world.kinds(task).await, [CREATED, STARTED, ends(Completed)]);
    assert_eq!(bytes_say(world.task(task).await.status_message.as_slice()), ["hi"]);
}
