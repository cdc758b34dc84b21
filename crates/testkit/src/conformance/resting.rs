//! What a turn needs to go on: its state, rests without a holder, and what it says that callers do not see.

use std::sync::Arc;

use a2a::TaskState::{Canceled, Completed, InputRequired, Working};

use super::world::*;
use store::{CancelMark, Error, LeasedTurn, Store, TaskId, TurnEnd};

const PARK: TurnEnd = TurnEnd::Park { at_most: None };

pub(super) async fn what_callers_do_not_see_shows_nothing(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.held("hello").await;
    world.append(&lease, vec![note(), kept("1")]).await.unwrap();
    assert!(matches!(world.store.task(world.tenant, task, store::View::FULL).await, Err(Error::NotFound)));
    let end = store::Append { drafts: vec![note()], end: Some(reply(task, "hi")), ..store::Append::default() };
    world.store.append(&lease, end).await.unwrap();
    assert_eq!(world.kinds(task).await, [HELD, STARTED, NOTE, KEPT, NOTE, REPLY], "it is still a direct reply");
}

pub(super) async fn a_turn_goes_on_from_its_state(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    assert_eq!(lease.kept, 0);
    world.append(&lease, vec![artifact(task, "a", "one", false), kept("first")]).await.unwrap();
    world.append(&lease, vec![artifact(task, "a", "two", true), kept("second")]).await.unwrap();
    let beyond = vec![artifact(task, "a", "lost", true), artifact(task, "b", "lost", false)];
    world.append(&lease, beyond).await.unwrap();
    world.run_out(&lease).await;
    let LeasedTurn { lease: resumed, interrupted, .. } = world.resume().await.remove(0);
    assert!(interrupted);
    assert_eq!((resumed.kept, resumed.attempt), (6, 2));
    let state = world.store.events(world.tenant, task, resumed.kept - 1, 1).await.unwrap().remove(0);
    assert_eq!((state.kind, &state.body[..]), (KEPT, &b"second"[..]));
    assert_eq!(artifacts_say(&world.task(task).await), [("a".into(), "onetwo".into())], "what came after it is gone");
    assert_eq!(world.kinds(task).await.last(), Some(&RESUMED));
    assert!(matches!(world.append(&lease, vec![kept("stale")]).await, Err(Error::LeaseLost)));
    world.append(&resumed, vec![artifact(task, "a", "three", true)]).await.unwrap();
    world.end(&resumed, Completed, None).await.unwrap();
    assert_eq!(artifacts_say(&world.task(task).await), [("a".into(), "onetwothree".into())]);
}

pub(super) async fn a_turn_that_kept_nothing_starts_anew(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    world.append(&lease, vec![kept("of the first turn")]).await.unwrap();
    world.end(&lease, InputRequired, None).await.unwrap();
    let second = world.accept(world.leased(world.more(task, "more"))).await.unwrap().lease.unwrap();
    assert_eq!(second.kept, 3, "what a turn leaves the next one has");
    world.append(&second, vec![artifact(task, "a", "lost", false)]).await.unwrap();
    world.run_out(&second).await;
    let third = world.resume().await.remove(0).lease;
    assert_eq!(third.kept, 3);
    assert_eq!(artifacts_say(&world.task(task).await), []);
    // Whoever starts anew loses what was kept on the way, and no more.
    world.append(&third, vec![kept("of the second turn"), artifact(task, "a", "lost", false)]).await.unwrap();
    world.run_out(&third).await;
    let fourth = world.lease_one().await.lease;
    assert_eq!(fourth.kept, 3);
    assert_eq!(artifacts_say(&world.task(task).await), []);
    assert_eq!(world.kinds(task).await.last(), Some(&AGAIN));
}

pub(super) async fn a_parked_turn_waits_for_a_word(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    let said = vec![artifact(task, "a", "one", false), kept("state")];
    let end = store::Append { drafts: said, end: Some(PARK), ..store::Append::default() };
    let parked = world.store.append(&lease, end).await.unwrap();
    assert_eq!((parked.state, parked.seq), (Working, 4));
    assert!(matches!(world.append(&lease, vec![note()]).await, Err(Error::LeaseLost)), "nobody holds it");
    assert!(world.lease().await.is_empty());
    // A message waits behind it, as behind any turn.
    assert_eq!(world.accept(world.leased(world.more(task, "more"))).await.unwrap().ahead, 1);
    assert!(world.lease().await.is_empty());
    let other = world.other().await;
    assert!(matches!(other.store.wake(other.tenant, task).await, Err(Error::NotFound)));

    assert!(world.store.wake(world.tenant, task).await.unwrap());
    let turn = world.lease_one().await;
    assert_eq!((turn_says(&turn.turn), turn.turn.number), ("hello".to_owned(), 1));
    assert_eq!((turn.lease.attempt, turn.lease.tries, turn.lease.kept), (1, 1, 4), "it is the same attempt");
    assert!(!turn.interrupted && !turn.canceled);
    assert_eq!(world.kinds(task).await, [CREATED, STARTED, ARTIFACT, KEPT, INPUT], "nothing has happened");
    assert_eq!(artifacts_say(&world.task(task).await), [("a".into(), "one".into())]);
    let next = world.end(&turn.lease, Completed, None).await.unwrap().next.unwrap();
    assert_eq!(turn_says(&next), "more");
    world.end(&turn.lease, Completed, None).await.unwrap();
    assert!(!world.store.wake(world.tenant, task).await.unwrap(), "there is nothing left to wake");
}

pub(super) async fn a_parked_turn_goes_on_in_time(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    world.finish(&lease, TurnEnd::Park { at_most: Some(MINUTE) }).await.unwrap();
    let due = world.store.next_due(std::slice::from_ref(&world.agent)).await.unwrap();
    let ahead = due.next.unwrap().since(due.now);
    assert!(ahead <= MINUTE && ahead > MINUTE / 2 && due.agents.is_empty(), "{due:?}");
    world.store.wake(world.tenant, task).await.unwrap();
    let again = world.lease_one().await.lease;
    world.finish(&again, TurnEnd::Park { at_most: Some(NOTHING) }).await.unwrap();
    assert_eq!(world.lease_one().await.lease.attempt, 1);
}

pub(super) async fn a_word_that_comes_early_is_heard(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    assert!(world.store.wake(world.tenant, task).await.unwrap());
    world.append(&lease, vec![note()]).await.unwrap();
    world.finish(&lease, PARK).await.unwrap();
    let again = world.lease_one().await.lease;
    world.finish(&again, PARK).await.unwrap();
    assert!(world.lease().await.is_empty(), "once");
}

pub(super) async fn a_cancel_wakes_what_is_parked(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    world.finish(&lease, PARK).await.unwrap();
    assert_eq!(world.store.mark_cancel(world.tenant, task).await.unwrap(), CancelMark::Running);
    let turn = world.lease_one().await;
    assert!(turn.canceled, "it is told");
    // Who was told and would rest all the same has had its chance.
    world.finish(&turn.lease, PARK).await.unwrap();
    assert_eq!(world.state(task).await, Canceled);

    // Who was marked while it ran, and rests before it heard of it, is told once more.
    let (task, lease) = world.running("hello").await;
    world.store.mark_cancel(world.tenant, task).await.unwrap();
    world.finish(&lease, PARK).await.unwrap();
    let turn = world.lease_one().await;
    assert!(turn.canceled);
    world.end(&turn.lease, Completed, None).await.unwrap();
    assert_eq!(world.state(task).await, Canceled);

    let (task, lease) = world.running("hello").await;
    world.finish(&lease, PARK).await.unwrap();
    world.store.mark_cancel(world.tenant, task).await.unwrap();
    world.store.force_cancel(world.tenant, task).await.unwrap();
    assert_eq!(world.state(task).await, Canceled);
    assert!(world.lease().await.is_empty());
}

pub(super) async fn a_crash_after_a_rest_is_a_crash(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    world.append(&lease, vec![artifact(task, "a", "one", false), kept("state")]).await.unwrap();
    world.finish(&lease, TurnEnd::Park { at_most: Some(NOTHING) }).await.unwrap();
    let again = world.lease_one().await.lease;
    world.run_out(&again).await;
    let turn = world.lease_one().await;
    assert!(turn.interrupted);
    assert_eq!((turn.lease.attempt, turn.lease.kept), (2, 0), "an agent that does not resume starts anew");
    assert_eq!(artifacts_say(&world.task(task).await), []);
}

pub(super) async fn a_wake_and_a_claim_may_come_together(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    for _ in 0..20 {
        let (task, lease) = world.running("hello").await;
        world.finish(&lease, PARK).await.unwrap();
        let (other, _) = world.running("other").await;
        let wake = |task| world.store.wake(world.tenant, task);
        let (first, second, claimed) = tokio::join!(wake(other), wake(task), world.lease());
        assert!(first.unwrap() && second.unwrap());
        assert_eq!(world.state(task).await, Working, "whoever claims it has its message");
        let turn = if claimed.is_empty() { world.lease_one().await } else { claimed.into_iter().next().unwrap() };
        assert_eq!(turn_says(&turn.turn), "hello");
    }
}

pub(super) async fn a_second_wake_costs_nobody_its_place(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    world.finish(&lease, PARK).await.unwrap();
    world.store.wake(world.tenant, task).await.unwrap();
    tick().await;
    let other = world.waiting("other").await;
    tick().await;
    world.store.wake(world.tenant, task).await.unwrap();
    let order: Vec<_> = world.lease().await.iter().map(|turn| turn.lease.task).collect();
    assert_eq!(order, [task, other]);
}

pub(super) async fn a_forced_cancel_ends_what_rests(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    world.finish(&lease, PARK).await.unwrap();
    world.store.mark_cancel(world.tenant, task).await.unwrap();
    world.store.force_cancel(world.tenant, task).await.unwrap();
    assert_eq!(world.store.usage(world.tenant).await.unwrap().tasks, 0);
    assert_eq!(world.kinds(task).await.last(), Some(&ends(Canceled)));
}

pub(super) async fn a_context_has_the_state_of_its_newest_task(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let state = async |world: &World, agent: &str, context: &str, before: TaskId| {
        let event = world.store.context_state(world.tenant, &self::agent(agent), context, before).await.unwrap();
        event.map(|(_, event)| String::from_utf8(event.body.to_vec()).unwrap())
    };
    assert_eq!(state(&world, "echo", CONTEXT, TaskId::mint()).await, None);
    let (first, lease) = world.running("one").await;
    world.append(&lease, vec![kept("first")]).await.unwrap();
    world.append(&lease, vec![kept("of the first, later")]).await.unwrap();
    world.end(&lease, Completed, None).await.unwrap();
    let (second, lease) = world.running("two").await;
    assert_eq!(state(&world, "echo", CONTEXT, second).await.as_deref(), Some("of the first, later"));
    assert_eq!(state(&world, "echo", CONTEXT, first).await, None, "its own is not another's");
    world.append(&lease, vec![kept("second")]).await.unwrap();
    let (third, _lease) = world.running("three").await;
    assert_eq!(state(&world, "echo", CONTEXT, third).await.as_deref(), Some("second"), "one that kept nothing is none");
    assert_eq!(state(&world, "echo", CONTEXT, TaskId::mint()).await.as_deref(), Some("second"));
    assert_eq!(state(&world, "echo", "another", TaskId::mint()).await, None);
    assert_eq!(state(&world, "other", CONTEXT, TaskId::mint()).await, None);
    world = world.other().await;
    assert_eq!(state(&world, "echo", CONTEXT, TaskId::mint()).await, None, "of another tenant there is nothing");
}
