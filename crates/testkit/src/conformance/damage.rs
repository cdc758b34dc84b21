//! Work that cannot be read. How a store is damaged only its own tests know; what must come of it is said here.

use std::{collections::HashSet, sync::Arc};

use a2a::TaskState::{Completed, Failed};

use super::world::*;
use store::{Error, EventKind, Room, Store, TaskId, TurnEnd};

/// What can be wrong with a task that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// The bodies of its messages are no JSON.
    Message,
    /// Its messages are gone.
    NoMessage,
    /// Its state has no name that is known.
    State,
    /// Its agent has a name that no agent can have.
    Agent,
    /// Its state is COMPLETED, and it is due all the same.
    Ended,
    /// The message of its status is no JSON.
    StatusMessage,
    /// Nothing: its notes (kind 9 in the log) are of a kind that only a newer version knows, 99.
    Newer,
}

/// Damages tasks by `damage`, one after the other, and sees to it that work goes on around them.
pub async fn run_damaged(store: Arc<dyn Store>, damage: impl Fn(TaskId, Damage)) {
    let world = World::new(store).await;
    let mut failing = Vec::new();
    for wrong in [Damage::Message, Damage::NoMessage] {
        let waiting = world.waiting("hello").await;
        let (unseen, accept) = world.begin("hello");
        world.accept(held(accept)).await.unwrap();
        let (running, lease) = world.running("hello").await;
        world.append(&lease, vec![artifact(running, "a", "x", false)]).await.unwrap();
        world.run_out(&lease).await;
        let (released, lease) = world.running("hello").await;
        world.finish(&lease, TurnEnd::Release { begun: true }).await.unwrap();
        for task in [waiting, unseen, running, released] {
            damage(task, wrong);
            failing.push(task);
        }
        tick().await;
    }
    let mut aside = Vec::new();
    for wrong in [Damage::State, Damage::Agent, Damage::Ended] {
        let task = world.waiting("hello").await;
        damage(task, wrong);
        aside.push(task);
        let (task, lease) = world.running("hello").await;
        damage(task, wrong);
        aside.push(task);
        // What is damaged does not know its lease any more.
        let _ = world.store.renew(std::slice::from_ref(&lease), NOTHING).await;
        tick().await;
    }
    let (talking, lease) = world.running("hello").await;
    world.append(&lease, vec![status(talking, a2a::TaskState::Working, Some("on it"))]).await.unwrap();
    world.finish(&lease, TurnEnd::Retry { after: NOTHING, error: "no luck".to_owned() }).await.unwrap();
    damage(talking, Damage::StatusMessage);
    tick().await;
    let (newer, lease) = world.running("hello").await;
    let said = vec![note(), artifact(newer, "a", "x", false), note()];
    world.append(&lease, said).await.unwrap();
    damage(newer, Damage::Newer);
    world.end(&lease, Completed, None).await.unwrap();
    let unknown = EventKind::Other(99);
    assert_eq!(world.kinds(newer).await, [CREATED, STARTED, unknown, ARTIFACT, unknown, ends(Completed)]);
    assert_eq!(artifacts_say(&world.task(newer).await), [("a".into(), "x".into())]);
    let good = world.waiting("hello").await;

    // One at a time: whatever stands first in line for ever would be all that is ever looked at.
    let mut taken = HashSet::new();
    for _ in 0..30 {
        let room = vec![Room::new(world.agent.clone(), 1)];
        for turn in world.store.claim(world.claim(room)).await.unwrap() {
            taken.insert(turn.lease.task);
            world.end(&turn.lease, Completed, None).await.unwrap();
        }
    }
    assert!(taken.contains(&good), "what is not damaged runs");
    assert!(taken.is_subset(&HashSet::from([good, talking])), "{taken:?}");

    for task in failing {
        assert_eq!(world.state(task).await, Failed);
        let kinds = world.kinds(task).await;
        assert_eq!(kinds.last(), Some(&ends(Failed)), "{kinds:?}");
        let snapshot = world
            .store
            .task(world.tenant, task, store::View { history: Some(0), artifacts: true, ..store::View::FULL })
            .await;
        let said = bytes_say(snapshot.unwrap().status_message.as_slice());
        assert_eq!(said.len(), 1, "it says why");
        let refused = world.accept(world.more(task, "more")).await;
        assert!(matches!(refused, Err(Error::Terminal(Failed))), "{refused:?}");
    }
    // Nothing was made of what could not be read.
    for task in aside {
        match world.store.events(world.tenant, task, 0, 10).await {
            Ok(events) => assert!(events.iter().all(|event| matches!(event.kind, CREATED | STARTED)), "{events:?}"),
            Err(error) => assert!(matches!(error, Error::Damaged(_)), "{error}"),
        }
    }
    assert!(taken.contains(&talking), "what it said last is damaged, and not what it has to do");
}
