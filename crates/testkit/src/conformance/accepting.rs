//! Messages that come in: new tasks, repetitions, continuations, the inbox.

use std::sync::Arc;

use a2a::TaskState::{Canceled, Completed, InputRequired, Submitted, Working};

use super::world::*;
use store::{Error, IdempotencyKey, Store, Target, TurnEnd};

pub(super) async fn a_new_task_is_submitted_and_due(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, accept) = world.begin("hello");
    let accepted = world.accept(accept).await.unwrap();
    assert_eq!((accepted.task, accepted.seq, accepted.turn, accepted.ahead), (task, 1, 1, 0));
    assert!(accepted.lease.is_none() && !accepted.duplicate);
    assert_eq!(world.kinds(task).await, [CREATED]);
    let snapshot = world.task(task).await;
    assert_eq!(snapshot.state, Submitted);
    assert_eq!(bytes_say(&snapshot.history), ["hello"]);
    let due = world.lease_one().await;
    assert_eq!((due.lease.task, due.lease.attempt, due.interrupted), (task, 1, false));
    assert_eq!((turn_says(&due.turn), due.turn.number), ("hello".into(), 1));
    assert_eq!(world.kinds(task).await, [CREATED, STARTED]);
}

pub(super) async fn a_leased_task_is_working_at_once(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, accept) = world.begin("hello");
    let accepted = world.accept(world.leased(accept)).await.unwrap();
    let lease = accepted.lease.unwrap();
    assert_eq!((accepted.seq, accepted.turn, lease.attempt), (2, 1, 1));
    assert_eq!((lease.task, lease.tenant, &*lease.context), (task, world.tenant, CONTEXT));
    assert_eq!(world.kinds(task).await, [CREATED, STARTED]);
    assert_eq!(world.task(task).await.state, Working);
    assert!(world.lease().await.is_empty(), "it is leased already");
}

pub(super) async fn a_repeated_key_finds_the_first_task(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, accept) = world.begin("hello");
    world.accept(keyed(world.leased(accept), 1, 1)).await.unwrap();
    let commits = world.store.stats();
    let (_, again) = world.begin("hello");
    let again = world.accept(keyed(world.leased(again), 1, 1)).await.unwrap();
    assert!(again.duplicate && again.lease.is_none());
    assert_eq!((again.task, again.seq, again.turn), (task, 2, 1));
    assert_eq!(world.store.stats(), commits, "a repetition writes nothing");
    assert_eq!(world.total().await, 1);
}

pub(super) async fn a_key_with_other_content_is_a_conflict(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (_, accept) = world.begin("hello");
    world.accept(keyed(accept, 1, 1)).await.unwrap();
    let (task, other) = world.begin("other");
    let refused = world.accept(keyed(other, 1, 2)).await;
    assert!(matches!(refused, Err(Error::IdempotencyConflict)), "{refused:?}");
    assert!(matches!(world.store.head(world.tenant, task).await, Err(Error::NotFound)));
}

pub(super) async fn a_key_is_its_tenants_own(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let other = world.other().await;
    let (_, accept) = world.begin("hello");
    world.accept(keyed(accept, 1, 1)).await.unwrap();
    let (_, accept) = other.begin("hello");
    assert!(!other.accept(keyed(accept, 1, 1)).await.unwrap().duplicate);
}

pub(super) async fn an_expired_key_is_forgotten(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let key = |keep| Some(IdempotencyKey { key: [1; 32], fingerprint: [1; 32], keep: Some(keep) });
    let (_, mut accept) = world.begin("hello");
    accept.idempotency = key(NOTHING);
    world.accept(accept).await.unwrap();
    let (second, mut accept) = world.begin("hello");
    accept.idempotency = key(MINUTE);
    assert!(!world.accept(accept).await.unwrap().duplicate);
    let (_, mut accept) = world.begin("hello");
    accept.idempotency = key(MINUTE);
    let third = world.accept(accept).await.unwrap();
    assert!(third.duplicate);
    assert_eq!(third.task, second);
}

pub(super) async fn ten_at_once_with_one_key_make_one_task(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let (_, accept) = world.begin("hello");
            let accept = keyed(world.leased(accept), 1, 1);
            let (store, tenant) = (Arc::clone(&world.store), world.tenant);
            tokio::spawn(async move { store.accept(tenant, accept).await.unwrap() })
        })
        .collect();
    let mut accepted = Vec::new();
    for call in calls {
        accepted.push(call.await.unwrap());
    }
    assert_eq!(accepted.iter().filter(|a| !a.duplicate).count(), 1);
    assert_eq!(accepted.iter().filter(|a| a.lease.is_some()).count(), 1);
    assert!(accepted.iter().all(|a| a.task == accepted[0].task));
    assert_eq!(world.total().await, 1);
}

pub(super) async fn a_repetition_is_answered_after_the_end(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let task = world.asking("which?").await;
    let first = world.accept(keyed(world.leased(world.more(task, "that")), 1, 1)).await.unwrap();
    let end = world.end(&first.lease.unwrap(), Completed, None).await.unwrap();
    let again = world.accept(keyed(world.more(task, "that"), 1, 1)).await.unwrap();
    assert!(again.duplicate);
    assert_eq!((again.task, again.seq, again.turn), (task, end.seq, 2));
}

pub(super) async fn a_repeated_continuation_is_written_once(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, _lease) = world.running("hello").await;
    let first = world.accept(keyed(world.more(task, "more"), 1, 1)).await.unwrap();
    let again = world.accept(keyed(world.more(task, "more"), 1, 1)).await.unwrap();
    assert_eq!((first.turn, first.ahead, first.duplicate), (2, 1, false));
    assert_eq!((again.turn, again.ahead, again.duplicate), (2, 1, true));
    assert_eq!(bytes_say(&world.task(task).await.history), ["hello", "more"]);
}

pub(super) async fn a_continuation_answers_a_question(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let task = world.asking("which?").await;
    let accepted = world.accept(world.leased(world.more(task, "that"))).await.unwrap();
    let lease = accepted.lease.unwrap();
    assert_eq!((accepted.turn, accepted.ahead, accepted.seq, lease.attempt), (2, 0, 5, 1));
    assert_eq!(world.kinds(task).await, [CREATED, STARTED, ends(InputRequired), INPUT, STARTED]);
    let snapshot = world.task(task).await;
    assert_eq!(bytes_say(&snapshot.history), ["go", "which?", "that"]);
    assert_eq!((snapshot.state, snapshot.status_message), (Working, None));
    world.end(&lease, Completed, Some("done")).await.unwrap();
}

pub(super) async fn a_continuation_without_a_lease_is_due(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let task = world.asking("which?").await;
    let accepted = world.accept(world.more(task, "that")).await.unwrap();
    assert_eq!((accepted.turn, accepted.ahead), (2, 0));
    assert!(accepted.lease.is_none());
    let kinds = world.kinds(task).await;
    assert_eq!(kinds[3..], [INPUT, is(Submitted)]);
    assert_eq!(bytes_say(&world.task(task).await.history), ["go", "which?", "that"]);
    let due = world.lease_one().await;
    assert_eq!((turn_says(&due.turn), due.turn.number, due.lease.attempt), ("that".into(), 2, 1));
    assert!(!due.interrupted);
}

pub(super) async fn a_continuation_of_an_ended_task_is_refused(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    world.end(&lease, Completed, None).await.unwrap();
    let before = world.events(task).await;
    let refused = world.accept(world.more(task, "more")).await;
    assert!(matches!(refused, Err(Error::Terminal(Completed))), "{refused:?}");
    assert_eq!(world.events(task).await, before);
    let (unknown, _) = world.begin("never sent");
    let refused = world.accept(world.more(unknown, "more")).await;
    assert!(matches!(refused, Err(Error::NotFound)), "{refused:?}");

    let canceled = world.waiting("hello").await;
    world.store.mark_cancel(world.tenant, canceled).await.unwrap();
    let refused = world.accept(world.more(canceled, "more")).await;
    assert!(matches!(refused, Err(Error::Terminal(Canceled))), "{refused:?}");
}

pub(super) async fn the_inbox_is_bounded(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    let bounded = |says: &str| {
        let mut accept = world.more(task, says);
        if let Target::Continue { max_waiting, .. } = &mut accept.target {
            *max_waiting = 2;
        }
        accept
    };
    assert_eq!(world.accept(bounded("one")).await.unwrap().ahead, 1);
    assert_eq!(world.accept(bounded("two")).await.unwrap().ahead, 2);
    let refused = world.accept(bounded("three")).await;
    assert!(matches!(refused, Err(Error::InboxFull)), "{refused:?}");
    // One has begun, so that there is room again.
    world.end(&lease, Completed, None).await.unwrap();
    assert_eq!(world.accept(bounded("three")).await.unwrap().turn, 4);
}

pub(super) async fn a_message_waits_behind_one_that_is_due(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let task = world.waiting("one").await;
    let second = world.accept(world.leased(world.more(task, "two"))).await.unwrap();
    assert!(second.lease.is_none(), "the first has not run yet");
    assert_eq!((second.turn, second.ahead), (2, 1));
    let due = world.lease_one().await;
    assert_eq!(turn_says(&due.turn), "one");
    // Waiting for another attempt is running, too.
    world.finish(&due.lease, TurnEnd::Retry { after: NOTHING, error: "no luck".to_owned() }).await.unwrap();
    let third = world.accept(world.leased(world.more(task, "three"))).await.unwrap();
    assert!(third.lease.is_none());
    assert_eq!((third.turn, third.ahead), (3, 2));
    let due = world.lease_one().await;
    assert_eq!((turn_says(&due.turn), due.lease.attempt), ("one".into(), 2));
}
