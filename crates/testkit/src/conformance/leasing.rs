//! Who runs what: due work, takeover, fencing, attempts, and the announcements.

use std::{collections::HashSet, sync::Arc, time::Duration};

use a2a::TaskState::{Completed, Failed, InputRequired, Working};
use tokio::time::timeout;

use super::world::*;
use store::{Claim, Error, Event, Recent, Room, Store, Target, TaskId, Term, TurnEnd, View};

pub(super) async fn due_work_is_leased_once(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let mut tasks = HashSet::new();
    for _ in 0..20 {
        tasks.insert(world.waiting("hello").await);
    }
    let takers: Vec<_> = (0..5)
        .map(|_| {
            let (store, agent) = (Arc::clone(&world.store), world.agent.clone());
            let claim = world.claim(vec![Room::new(agent, 7)]);
            tokio::spawn(async move { store.claim(claim).await.unwrap() })
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
    let me = world.me();
    let claim = |agents: &[&str]| {
        let room = agents.iter().map(|name| Room::new(agent(name), 10)).collect();
        Claim::new(Term { holder: me.clone(), lasts: MINUTE }, room)
    };
    assert!(world.store.claim(claim(&["other"])).await.unwrap().is_empty());
    assert!(world.store.claim(claim(&[])).await.unwrap().is_empty());
    world.agent = agent("other");
    world.waiting("hello").await;
    let both = world.store.claim(claim(&["echo", "other"])).await.unwrap();
    assert_eq!(both.len(), 2);
}

pub(super) async fn the_next_due_time_is_known(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let next = || world.store.next_due(std::slice::from_ref(&world.agent));
    assert_eq!(next().await.unwrap().next, None, "nothing waits");
    world.waiting("hello").await;
    let due = next().await.unwrap();
    assert!(due.next.is_some_and(|next| next <= due.now), "it could run now");
    assert_eq!(world.store.next_due(&[agent("other")]).await.unwrap().next, None);
    let earliest = due.now.after(MINUTE);
    let leased = world.lease_one().await;
    let due = next().await.unwrap();
    let latest = due.now.after(MINUTE);
    assert!(due.next.is_some_and(|next| earliest <= next && next <= latest), "when its lease ends");
    // The earliest of several, of whichever tenant and agent.
    let (mut other, soon) = (world.other().await, Duration::from_secs(5));
    other.agent = agent("other");
    let (_, accept) = other.begin("hello");
    other.accept(other.leased_for(accept, soon)).await.unwrap();
    let due = world.store.next_due(&[world.agent.clone(), agent("other")]).await.unwrap();
    assert!(due.next.is_some_and(|next| next > due.now && next.since(due.now) <= soon), "{due:?}");
    world.end(&leased.lease, Completed, None).await.unwrap();
    assert_eq!(next().await.unwrap().next, None, "it is over");
}

/// Tenants may define thousands of agents, of which a few have work.
pub(super) async fn of_many_agents_those_with_work_are_found(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let many: Vec<_> = (0..500).map(|n| agent(&format!("agent-{n}"))).collect();
    assert_eq!(world.store.next_due(&many).await.unwrap().next, None);
    for name in ["agent-0", "agent-250", "agent-499", "nobodys", "A"] {
        world.agent = agent(name);
        for _ in 0..3 {
            world.waiting("hello").await;
        }
    }
    world.agent = agent("agent-7");
    let (task, lease) = world.running("hello").await;
    world.append(&lease, vec![kept("state")]).await.unwrap();
    let due = world.store.next_due(&many).await.unwrap();
    let mut names: Vec<_> = due.agents.iter().map(ToString::to_string).collect();
    names.sort();
    assert_eq!(names, ["agent-0", "agent-250", "agent-499"]);
    assert!(due.next.is_some_and(|next| next <= due.now));
    let without: Vec<_> = many.iter().filter(|id| !due.agents.contains(*id)).cloned().collect();
    let due = world.store.next_due(&without).await.unwrap();
    assert!(due.agents.is_empty() && due.next.is_some_and(|next| next > due.now), "one runs: {due:?}");
    // The same of those whose cancels are owed.
    world.store.mark_cancel(world.tenant, task).await.unwrap();
    world.store.force_cancel(world.tenant, task).await.unwrap();
    assert_eq!(world.store.owed_cancels(&many, 9).await.unwrap(), [], "nobody has to be told of it");
    let (task, mut accept) = world.begin("hello");
    let Target::New { tells_cancel, .. } = &mut accept.target else { panic!("a new task") };
    *tells_cancel = true;
    let lease = world.accept(world.leased(accept)).await.unwrap().lease.unwrap();
    world.append(&lease, vec![kept("state")]).await.unwrap();
    world.store.mark_cancel(world.tenant, task).await.unwrap();
    world.store.force_cancel(world.tenant, task).await.unwrap();
    let owed = world.store.owed_cancels(&many, 9).await.unwrap();
    assert_eq!(owed.iter().map(|owed| (owed.task, &owed.agent)).collect::<Vec<_>>(), [(task, &world.agent)]);
    assert_eq!(world.store.owed_cancels(&without[8..], 9).await.unwrap(), []);
}

pub(super) async fn a_lease_that_ran_out_is_taken_over(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, old) = world.running("hello").await;
    world.append(&old, vec![status(task, Working, Some("on it"))]).await.unwrap();
    world.run_out(&old).await;
    // Nobody has taken it yet: it is still good.
    world.append(&old, vec![artifact(task, "a", "x", false)]).await.unwrap();
    let new = world.lease_one().await;
    assert!(new.interrupted);
    assert_eq!((new.lease.attempt, turn_says(&new.turn), new.turn.number), (2, "hello".into(), 1));
    assert!(new.lease.generation > old.generation);
    let events = world.events(task).await;
    let last = events.last().unwrap();
    assert_eq!((last.kind, attempt_of(last)), (AGAIN, Some(2)));
    assert_eq!(bytes_say(&world.task(task).await.history), ["hello", "on it"]);
    world.end(&new.lease, Completed, None).await.unwrap();
}

pub(super) async fn a_stale_lease_writes_nothing(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, old) = world.running("hello").await;
    world.run_out(&old).await;
    let new = world.lease_one().await;
    let before = (world.task(task).await, world.events(task).await);
    let refused = world.append(&old, vec![artifact(task, "a", "stale", false)]).await;
    assert!(matches!(refused, Err(Error::LeaseLost)), "{refused:?}");
    let ends = [
        TurnEnd::Status(status(task, Completed, None)),
        TurnEnd::Release { begun: true },
        TurnEnd::Retry { after: NOTHING, error: "no luck".to_owned() },
        reply(task, "stale"),
    ];
    for end in ends {
        let refused = world.finish(&old, end).await;
        assert!(matches!(refused, Err(Error::LeaseLost)), "{refused:?}");
    }
    let both = [old.clone(), new.lease.clone()];
    assert_eq!(world.store.renew(&both, MINUTE).await.unwrap(), [old]);
    assert_eq!((world.task(task).await, world.events(task).await), before);
}

pub(super) async fn a_renewed_lease_lives_on(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (_, accept) = world.begin("hello");
    let lease = world.accept(world.leased_for(accept, Duration::from_millis(50))).await.unwrap().lease.unwrap();
    assert!(world.store.renew(std::slice::from_ref(&lease), MINUTE).await.unwrap().is_empty());
    tokio::time::sleep(Duration::from_millis(80)).await;
    assert!(world.lease().await.is_empty());
    world.end(&lease, Completed, None).await.unwrap();
}

pub(super) async fn no_length_of_time_is_too_long(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let ever = Duration::MAX;
    let (task, accept) = world.begin("hello");
    let mut accept = keyed(world.leased_for(accept, ever), 1, 1);
    accept.idempotency.as_mut().unwrap().keep = Some(ever);
    let lease = world.accept(accept.clone()).await.unwrap().lease.unwrap();
    assert!(world.accept(accept).await.unwrap().duplicate);
    assert!(world.store.renew(std::slice::from_ref(&lease), ever).await.unwrap().is_empty());
    assert!(world.lease().await.is_empty());
    world.finish(&lease, TurnEnd::Retry { after: ever, error: "no luck".to_owned() }).await.unwrap();
    assert!(world.lease().await.is_empty());
    let due = world.store.next_due(std::slice::from_ref(&world.agent)).await.unwrap();
    assert!(due.next.is_some_and(|next| next.since(due.now) > MINUTE));
    world.store.mark_cancel(world.tenant, task).await.unwrap();
}

pub(super) async fn a_retry_waits_until_it_is_due(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    let appended = world
        .finish(&lease, TurnEnd::Retry { after: Duration::from_millis(150), error: "no luck".to_owned() })
        .await
        .unwrap();
    assert_eq!((appended.state, appended.seq), (Working, 2), "another attempt is no event");
    assert!(matches!(world.append(&lease, vec![]).await, Err(Error::LeaseLost)));
    assert!(world.lease().await.is_empty());
    tokio::time::sleep(Duration::from_millis(200)).await;
    let again = world.lease_one().await;
    assert!(!again.interrupted);
    assert_eq!((again.lease.attempt, again.turn.number), (2, 1));
    world.finish(&again.lease, TurnEnd::Retry { after: NOTHING, error: "no luck".to_owned() }).await.unwrap();
    let third = world.lease_one().await;
    assert_eq!(third.lease.attempt, 3);
    world.end(&third.lease, Failed, Some("enough")).await.unwrap();
    assert_eq!(world.kinds(task).await[2..], [AGAIN, AGAIN, ends(Failed)]);
}

pub(super) async fn a_release_is_an_attempt_that_is_not_counted(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    assert_eq!((lease.attempt, lease.tries), (1, 1));
    world.append(&lease, vec![artifact(task, "a", "half", false)]).await.unwrap();
    let released = world.finish(&lease, TurnEnd::Release { begun: true }).await.unwrap();
    assert_eq!((released.state, released.seq), (Working, 3), "a release is no event");
    assert!(matches!(world.append(&lease, vec![]).await, Err(Error::LeaseLost)));
    assert_eq!(artifacts_say(&world.task(task).await), [("a".into(), "half".into())], "until it begins anew");

    // What the agent's policy about crashes needs is there: it was cut off, and this is another attempt.
    let again = world.lease_one().await;
    assert_eq!((again.lease.attempt, again.lease.tries, again.interrupted), (2, 1, true));
    assert_eq!((again.turn.number, turn_says(&again.turn)), (1, "hello".into()));
    assert!(again.lease.generation > lease.generation);
    assert!(world.task(task).await.artifacts.is_empty());
    let last = world.events(task).await.pop().unwrap();
    assert_eq!((last.kind, attempt_of(&last)), (AGAIN, Some(2)));

    // Attempts of every kind are told; only those that were not given back are tries.
    world.finish(&again.lease, TurnEnd::Retry { after: NOTHING, error: "no luck".to_owned() }).await.unwrap();
    let third = world.lease_one().await;
    assert_eq!((third.lease.attempt, third.lease.tries, third.interrupted), (3, 2, false));
    world.finish(&third.lease, TurnEnd::Release { begun: true }).await.unwrap();
    let fourth = world.lease_one().await;
    assert_eq!((fourth.lease.attempt, fourth.lease.tries, fourth.interrupted), (4, 2, true));
    world.run_out(&fourth.lease).await;
    let fifth = world.lease_one().await;
    assert_eq!((fifth.lease.attempt, fifth.lease.tries, fifth.interrupted), (5, 3, true));

    // The next turn begins at one.
    world.accept(world.more(task, "more")).await.unwrap();
    world.end(&fifth.lease, InputRequired, None).await.unwrap();
    world.finish(&fifth.lease, TurnEnd::Release { begun: true }).await.unwrap();
    let next = world.lease_one().await;
    assert_eq!((next.turn.number, next.lease.attempt, next.lease.tries), (2, 2, 1));
    world.end(&next.lease, Completed, None).await.unwrap();
    assert_eq!(world.state(task).await, Completed);
}

/// What the event's metadata say about the attempt.
fn attempt_of(event: &Event) -> Option<u64> {
    let body: serde_json::Value = serde_json::from_slice(&event.body).unwrap();
    body["statusUpdate"]["metadata"]["attempt"].as_u64()
}

pub(super) async fn an_attempt_clears_the_artifacts_of_the_last(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    world.append(&lease, vec![artifact(task, "a", "half", false), artifact(task, "b", "gone", false)]).await.unwrap();
    world.finish(&lease, TurnEnd::Retry { after: NOTHING, error: "no luck".to_owned() }).await.unwrap();
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
    let second = world.accept(world.leased(world.more(task, "two"))).await.unwrap().lease.unwrap();
    world.append(&second, vec![artifact(task, "b", "second", false)]).await.unwrap();
    world.finish(&second, TurnEnd::Release { begun: true }).await.unwrap();
    let again = world.lease_one().await;
    assert_eq!((again.turn.number, turn_says(&again.turn)), (2, "two".into()));
    assert_eq!(artifacts_say(&world.task(task).await), [("a".into(), "first".into())]);
}

pub(super) async fn watchers_see_committed_events(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, accept) = world.begin("hello");
    let mut watch = world.store.hub().watch(task);
    let lease = world.accept(world.leased(accept)).await.unwrap().lease.unwrap();
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
    world.finish(&lease, TurnEnd::Release { begun: true }).await.unwrap();
    timeout(Duration::from_secs(5), due.changed()).await.unwrap().unwrap();
}
