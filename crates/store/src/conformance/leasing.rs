//! Who runs what: due work, takeover, fencing, attempts, and the announcements.

use std::{collections::HashSet, sync::Arc, time::Duration};

use a2a::TaskState::{Completed, Failed, InputRequired, Working};
use tokio::time::timeout;

use super::world::*;
use crate::{Error, Recent, Store, TaskId, TurnEnd, View};

pub(super) async fn due_work_is_leased_once(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let mut tasks = HashSet::new();
    for _ in 0..20 {
        tasks.insert(world.waiting("hello").await);
    }
    let takers: Vec<_> = (0..5)
        .map(|_| {
            let (store, agent) = (Arc::clone(&world.store), world.agent.clone());
            tokio::spawn(async move { store.lease(later(60_000), &[agent], 7).await.unwrap() })
        })
        .collect();
    let mut leased: Vec<TaskId> = Vec::new();
    for taker in takers {
        let turns = taker.await.unwrap();
        assert!(turns.len() <= 7);
        leased.extend(turns.iter().map(|turn| turn.lease.task));
    }
    assert_eq!(leased.len(), 20);
    assert_eq!(leased.into_iter().collect::<HashSet<_>>(), tasks);
}

pub(super) async fn only_ones_own_agents_are_leased(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    world.waiting("hello").await;
    assert!(world.store.lease(later(60_000), &[agent("other")], 10).await.unwrap().is_empty());
    assert!(world.store.lease(later(60_000), &[], 10).await.unwrap().is_empty());
    world.agent = agent("other");
    world.waiting("hello").await;
    let both = world.store.lease(later(60_000), &[agent("echo"), agent("other")], 10).await.unwrap();
    assert_eq!(both.len(), 2);
}

pub(super) async fn the_next_due_time_is_known(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let next = || world.store.next_due(std::slice::from_ref(&world.agent));
    assert_eq!(next().await.unwrap(), None, "nothing waits");
    world.waiting("hello").await;
    assert!(next().await.unwrap().is_some_and(|due| due <= crate::clock::now()), "it could run now");
    assert_eq!(world.store.next_due(&[agent("other")]).await.unwrap(), None);
    let until = later(60_000);
    let leased = world.store.lease(until, std::slice::from_ref(&world.agent), 1).await.unwrap();
    assert_eq!(next().await.unwrap(), Some(until), "when its lease ends");
    world.end(&leased[0].lease, Completed, None).await.unwrap();
    assert_eq!(next().await.unwrap(), None, "it is over");
}

pub(super) async fn a_lease_that_ran_out_is_taken_over(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, old) = world.running("hello").await;
    world.append(&old, vec![status(task, Working, Some("on it"))]).await.unwrap();
    assert!(world.store.renew(std::slice::from_ref(&old), past()).await.unwrap().is_empty());
    // Nobody has taken it yet: it is still good.
    world.append(&old, vec![artifact(task, "a", "x", false)]).await.unwrap();
    let new = world.lease_one().await;
    assert!(new.interrupted);
    assert_eq!((new.lease.attempt, turn_says(&new.turn), new.turn.number), (2, "hello".into(), 1));
    assert!(new.lease.generation > old.generation);
    let events = world.events(task).await;
    let last: a2a::StreamResponse = serde_json::from_slice(&events.last().unwrap().body).unwrap();
    let a2a::StreamResponse::StatusUpdate(update) = last else { panic!("{last:?}") };
    assert_eq!(update.metadata.map(|m| m.get().to_owned()), Some("{\"attempt\":2}".into()));
    assert_eq!(bytes_say(&world.task(task).await.history), ["hello", "on it"]);
    world.end(&new.lease, Completed, None).await.unwrap();
}

pub(super) async fn a_stale_lease_writes_nothing(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, old) = world.running("hello").await;
    world.store.renew(std::slice::from_ref(&old), past()).await.unwrap();
    let new = world.lease_one().await;
    let before = (world.task(task).await, world.events(task).await);
    let refused = world.append(&old, vec![artifact(task, "a", "stale", false)]).await;
    assert!(matches!(refused, Err(Error::LeaseLost)), "{refused:?}");
    let ends = [
        TurnEnd::Status(status(task, Completed, None)),
        TurnEnd::Release,
        TurnEnd::Retry { due: past() },
        reply(task, "stale"),
    ];
    for end in ends {
        let refused = world.finish(&old, end).await;
        assert!(matches!(refused, Err(Error::LeaseLost)), "{refused:?}");
    }
    let both = [old.clone(), new.lease.clone()];
    assert_eq!(world.store.renew(&both, later(60_000)).await.unwrap(), [old]);
    assert_eq!((world.task(task).await, world.events(task).await), before);
}

pub(super) async fn a_renewed_lease_lives_on(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (_, accept) = world.begin("hello");
    let accept = crate::Accept { lease_until: Some(later(50)), ..accept };
    let lease = world.accept(accept).await.unwrap().lease.unwrap();
    assert!(world.store.renew(std::slice::from_ref(&lease), later(60_000)).await.unwrap().is_empty());
    tokio::time::sleep(Duration::from_millis(80)).await;
    assert!(world.lease(later(60_000)).await.is_empty());
    world.end(&lease, Completed, None).await.unwrap();
}

pub(super) async fn a_retry_waits_until_it_is_due(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    let appended = world.finish(&lease, TurnEnd::Retry { due: later(150) }).await.unwrap();
    assert_eq!((appended.state, appended.seq), (Working, 2), "another attempt is no event");
    assert!(matches!(world.append(&lease, vec![]).await, Err(Error::LeaseLost)));
    assert!(world.lease(later(60_000)).await.is_empty());
    tokio::time::sleep(Duration::from_millis(200)).await;
    let again = world.lease_one().await;
    assert!(!again.interrupted);
    assert_eq!((again.lease.attempt, again.turn.number), (2, 1));
    world.finish(&again.lease, TurnEnd::Retry { due: past() }).await.unwrap();
    let third = world.lease_one().await;
    assert_eq!(third.lease.attempt, 3);
    world.end(&third.lease, Failed, Some("enough")).await.unwrap();
    assert_eq!(world.kinds(task).await[2..], [is(Working), is(Working), ends(Failed)]);
}

pub(super) async fn a_release_does_not_count(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    world.finish(&lease, TurnEnd::Release).await.unwrap();
    let again = world.lease_one().await;
    assert_eq!((again.lease.attempt, again.turn.number, again.interrupted), (1, 1, false));
    assert_eq!(turn_says(&again.turn), "hello");
    assert!(again.lease.generation > lease.generation);
    world.end(&again.lease, Completed, None).await.unwrap();
    assert_eq!(world.state(task).await, Completed);
}

pub(super) async fn an_attempt_clears_the_artifacts_of_the_last(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    world.append(&lease, vec![artifact(task, "a", "half", false), artifact(task, "b", "gone", false)]).await.unwrap();
    world.finish(&lease, TurnEnd::Retry { due: past() }).await.unwrap();
    let again = world.lease_one().await;
    assert!(world.task(task).await.artifacts.is_empty());
    world.append(&again.lease, vec![artifact(task, "a", "whole", true)]).await.unwrap();
    assert_eq!(artifacts_say(&world.task(task).await), [("a".into(), "whole".into())]);
}

pub(super) async fn the_last_attempt_keeps_earlier_turns(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("one").await;
    world.append(&lease, vec![artifact(task, "a", "first", false)]).await.unwrap();
    world.end(&lease, InputRequired, Some("and?")).await.unwrap();
    let second = world.accept(leased(world.more(task, "two"))).await.unwrap().lease.unwrap();
    world.append(&second, vec![artifact(task, "b", "second", false)]).await.unwrap();
    world.finish(&second, TurnEnd::Release).await.unwrap();
    let again = world.lease_one().await;
    assert_eq!((again.turn.number, turn_says(&again.turn)), (2, "two".into()));
    assert_eq!(artifacts_say(&world.task(task).await), [("a".into(), "first".into())]);
}

pub(super) async fn watchers_see_committed_events(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, accept) = world.begin("hello");
    let mut watch = world.store.hub().watch(task);
    let lease = world.accept(leased(accept)).await.unwrap().lease.unwrap();
    world.end(&lease, Completed, Some("done")).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 3 {
        timeout(Duration::from_secs(5), watch.changed()).await.unwrap();
        let Recent::Events(events) = watch.recent(seen.len() as u64) else { panic!("the ring was too short") };
        seen.extend(events.iter().map(|event| (**event).clone()));
    }
    assert_eq!(seen, world.events(task).await, "what is published is what is stored");
    assert!(world.store.task(world.tenant, task, View::FULL).await.is_ok());
}

pub(super) async fn work_that_becomes_due_is_announced(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let mut due = world.store.hub().due();
    due.mark_unchanged();
    let task = world.waiting("hello").await;
    timeout(Duration::from_secs(5), due.changed()).await.unwrap().unwrap();
    let turn = world.lease_one().await;
    due.mark_unchanged();
    world.store.mark_cancel(world.tenant, task).await.unwrap();
    timeout(Duration::from_secs(5), due.changed()).await.unwrap().unwrap();
    world.end(&turn.lease, Completed, None).await.unwrap();
    let (_, lease) = world.running("hello").await;
    due.mark_unchanged();
    world.finish(&lease, TurnEnd::Release).await.unwrap();
    timeout(Duration::from_secs(5), due.changed()).await.unwrap().unwrap();
}
