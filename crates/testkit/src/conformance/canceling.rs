//! Canceling: the mark decides, whoever comes first.

use std::sync::Arc;

use a2a::TaskState::{AuthRequired, Canceled, Completed, Failed, InputRequired, Rejected, Working};

use super::world::*;
use store::{Accept, CancelMark, Draft, Error, Lease, OwedCancel, Store, Target, TaskId, TurnEnd, clock};

pub(super) async fn a_cancel_ends_an_idle_task(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let asking = world.asking("which?").await;
    let waiting = world.waiting("hello").await;
    for task in [asking, waiting] {
        let mark = |task| world.store.mark_cancel(world.tenant, task);
        assert_eq!(mark(task).await.unwrap(), CancelMark::Canceled { already: false });
        let events = world.events(task).await;
        assert_eq!(events.last().map(|e| e.kind), Some(ends(Canceled)));
        assert_eq!(mark(task).await.unwrap(), CancelMark::Canceled { already: true });
        world.store.force_cancel(world.tenant, task).await.unwrap();
        assert_eq!(world.events(task).await, events);
    }
    assert_eq!(bytes_say(&world.task(asking).await.history), ["go", "which?"], "nothing said is lost");
    assert!(world.lease().await.is_empty());
}

pub(super) async fn a_cancel_marks_a_running_task(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    assert!(world.store.marked(&[world.me()]).await.unwrap().is_empty());
    let early = world.store.force_cancel(world.tenant, task).await;
    assert!(matches!(early, Err(Error::Illegal(Canceled))), "{early:?}");
    for _ in 0..2 {
        let mark = world.store.mark_cancel(world.tenant, task).await.unwrap();
        assert_eq!(mark, CancelMark::Running);
    }
    assert_eq!(world.store.marked(&[world.me()]).await.unwrap(), [task]);
    assert_eq!(world.state(task).await, Working);
    // The turn may still speak before it ends.
    world.append(&lease, vec![artifact(task, "a", "x", false)]).await.unwrap();
    world.end(&lease, Canceled, None).await.unwrap();
    assert!(world.store.marked(&[world.me()]).await.unwrap().is_empty());

    let (done, lease) = world.running("hello").await;
    world.end(&lease, Completed, None).await.unwrap();
    let mark = world.store.mark_cancel(world.tenant, done).await.unwrap();
    assert_eq!(mark, CancelMark::NotCancelable(Completed));
    let late = world.store.force_cancel(world.tenant, done).await;
    assert!(matches!(late, Err(Error::Terminal(Completed))), "{late:?}");
}

pub(super) async fn the_mark_overrules_every_end(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    for state in [Completed, Failed, Rejected, InputRequired, AuthRequired, Canceled] {
        let (task, lease) = world.running("hello").await;
        world.accept(world.more(task, "more")).await.unwrap();
        world.store.mark_cancel(world.tenant, task).await.unwrap();
        let appended = world.end(&lease, state, Some("words")).await.unwrap();
        assert_eq!((appended.state, appended.next.is_none()), (Canceled, true));
        let snapshot = world.task(task).await;
        assert_eq!((snapshot.state, bytes_say(snapshot.status_message.as_slice())), (Canceled, vec!["words".into()]));
        assert_eq!(bytes_say(&snapshot.history), ["hello", "more"]);
        let last: a2a::StreamResponse = serde_json::from_slice(&world.events(task).await.last().unwrap().body).unwrap();
        assert!(matches!(last, a2a::StreamResponse::StatusUpdate(u) if u.status.state == Canceled));
    }
}

pub(super) async fn the_mark_ends_released_and_due_work(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    for end in [TurnEnd::Release { begun: true }, TurnEnd::Retry { after: MINUTE, error: "no luck".to_owned() }] {
        let (task, lease) = world.running("hello").await;
        world.store.mark_cancel(world.tenant, task).await.unwrap();
        assert_eq!(world.finish(&lease, end).await.unwrap().state, Canceled);
        assert_eq!(world.kinds(task).await, [CREATED, STARTED, ends(Canceled)]);
    }
    // Its owner vanished after the mark: whoever finds it ends it.
    let (task, lease) = world.running("hello").await;
    world.store.mark_cancel(world.tenant, task).await.unwrap();
    world.run_out(&lease).await;
    assert!(world.lease().await.is_empty());
    assert_eq!(world.kinds(task).await, [CREATED, STARTED, ends(Canceled)]);
    assert!(matches!(world.end(&lease, Completed, None).await, Err(Error::LeaseLost)));
}

pub(super) async fn a_forced_cancel_voids_the_lease(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    world.store.mark_cancel(world.tenant, task).await.unwrap();
    world.store.force_cancel(world.tenant, task).await.unwrap();
    world.store.force_cancel(world.tenant, task).await.unwrap();
    assert_eq!(world.kinds(task).await, [CREATED, STARTED, ends(Canceled)]);
    let late = world.end(&lease, Completed, None).await;
    assert!(matches!(late, Err(Error::LeaseLost)), "{late:?}");
    assert_eq!(world.store.renew(std::slice::from_ref(&lease), MINUTE).await.unwrap(), [lease]);
    assert!(world.store.marked(&[world.me()]).await.unwrap().is_empty());
}

pub(super) async fn cancel_and_completion_race_to_one_end(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    for _ in 0..20 {
        let (task, lease) = world.running("hello").await;
        let (mark, end) = tokio::join!(world.store.mark_cancel(world.tenant, task), world.end(&lease, Completed, None));
        let (mark, end) = (mark.unwrap(), end.unwrap());
        match mark {
            CancelMark::Running => assert_eq!(end.state, Canceled),
            CancelMark::NotCancelable(state) => {
                assert_eq!((state, end.state), (Completed, Completed))
            }
            CancelMark::Canceled { .. } => panic!("it was running"),
        }
        assert_eq!(world.events(task).await.len(), 3);
        assert_eq!(world.state(task).await, end.state);
    }
}

/// A running task whose agent tells others when it is canceled.
pub(super) async fn telling(world: &World) -> (TaskId, Lease) {
    let (task, mut accept) = world.begin("hello");
    if let Accept { target: Target::New { tells_cancel, origin, .. }, .. } = &mut accept {
        *tells_cancel = true;
        *origin = Some(r#"{"a":1}"#.into());
    }
    let lease = world.accept(world.leased(accept)).await.unwrap().lease.unwrap();
    (task, lease)
}

pub(super) async fn a_cancel_is_owed_to_others_until_it_is_told(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let agents = [world.agent.clone()];
    let owed = async || world.store.owed_cancels(&agents, 10).await.unwrap();
    // By the turn itself, by force, and where nobody runs it.
    let (by_turn, lease) = telling(&world).await;
    assert_eq!(lease.origin.as_deref(), Some(r#"{"a":1}"#));
    world.append(&lease, vec![kept("1")]).await.unwrap();
    world.store.mark_cancel(world.tenant, by_turn).await.unwrap();
    assert_eq!(owed().await, [], "it has not ended");
    world.end(&lease, Completed, None).await.unwrap();
    let (by_force, lease) = telling(&world).await;
    world.append(&lease, vec![kept("2")]).await.unwrap();
    world.store.mark_cancel(world.tenant, by_force).await.unwrap();
    world.store.force_cancel(world.tenant, by_force).await.unwrap();
    let (asking, lease) = telling(&world).await;
    world.append(&lease, vec![kept("3")]).await.unwrap();
    world.end(&lease, InputRequired, None).await.unwrap();
    world.store.mark_cancel(world.tenant, asking).await.unwrap();
    // Who has not begun, has ended otherwise or has nobody to tell owes nothing.
    let (silent, lease) = telling(&world).await;
    world.store.mark_cancel(world.tenant, silent).await.unwrap();
    world.end(&lease, Canceled, None).await.unwrap();
    let (completed, lease) = telling(&world).await;
    world.append(&lease, vec![kept("4")]).await.unwrap();
    world.end(&lease, Completed, None).await.unwrap();
    let (plain, lease) = world.running("hello").await;
    world.append(&lease, vec![kept("5")]).await.unwrap();
    world.store.mark_cancel(world.tenant, plain).await.unwrap();
    world.end(&lease, Canceled, None).await.unwrap();

    let ids = |owed: Vec<OwedCancel>| owed.into_iter().map(|owed| owed.task).collect::<Vec<_>>();
    let mut all = ids(owed().await);
    all.sort_by_key(ToString::to_string);
    let mut expected = vec![by_turn, by_force, asking];
    expected.sort_by_key(ToString::to_string);
    assert_eq!(all, expected);
    let first = owed().await.remove(0);
    assert_eq!((first.tenant, &first.agent), (world.tenant, &world.agent));
    let state = world.store.events(world.tenant, first.task, first.kept - 1, 1).await.unwrap().remove(0);
    assert_eq!(state.kind, KEPT);
    assert_eq!(world.store.owed_cancels(&agents, 1).await.unwrap().len(), 1);
    assert_eq!(world.store.owed_cancels(&[agent("other")], 10).await.unwrap(), []);

    let other = world.other().await;
    assert!(matches!(other.store.settle_cancel(other.tenant, asking, 0).await, Err(Error::NotFound)));
    let before = world.events(asking).await;
    let debt = async |task| owed().await.into_iter().find(|owed| owed.task == task).unwrap().generation;
    let settled = debt(asking).await;
    for _ in 0..2 {
        world.store.settle_cancel(world.tenant, asking, settled).await.unwrap();
        assert_eq!(ids(owed().await).len(), 2);
    }
    assert_eq!(world.events(asking).await, before, "that is no event");

    // A turn that did not know of the end may have handed work on after that.
    assert!(matches!(other.store.owe_cancel(other.tenant, asking).await, Err(Error::NotFound)));
    for _ in 0..2 {
        world.store.owe_cancel(world.tenant, asking).await.unwrap();
        assert_eq!(ids(owed().await).len(), 3);
    }
    // What was told before is not what is owed since, be it that it was owed still.
    let read = debt(asking).await;
    world.store.owe_cancel(world.tenant, asking).await.unwrap();
    for stale in [settled, read] {
        world.store.settle_cancel(world.tenant, asking, stale).await.unwrap();
        assert_eq!(ids(owed().await).len(), 3);
    }
    world.store.settle_cancel(world.tenant, asking, debt(asking).await).await.unwrap();
    assert_eq!(ids(owed().await).len(), 2);
    world.store.owe_cancel(world.tenant, asking).await.unwrap();
    world.store.owe_cancel(world.tenant, completed).await.unwrap();
    let (running, lease) = telling(&world).await;
    world.append(&lease, vec![kept("6")]).await.unwrap();
    world.store.owe_cancel(world.tenant, running).await.unwrap();
    assert_eq!(ids(owed().await).len(), 3, "only a task that was cut short owes anything");
}

pub(super) async fn any_end_but_completion_is_owed_to_others(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let agents = [world.agent.clone()];
    let owed = async || world.store.owed_cancels(&agents, 10).await.unwrap();
    let mut expected = Vec::new();
    for state in [Failed, Rejected] {
        let (task, lease) = telling(&world).await;
        world.append(&lease, vec![kept("1")]).await.unwrap();
        world.end(&lease, state, None).await.unwrap();
        expected.push(task);
    }
    // A dead letter, of a queue too.
    let (task, mut accept) = world.begin("hello");
    if let Accept { target: Target::New { tells_cancel, post, .. }, .. } = &mut accept {
        (*tells_cancel, post.queued) = (true, true);
    }
    world.accept(accept).await.unwrap();
    let term = world.leased(world.begin("x").1).lease.unwrap();
    let lease = world.store.claim_task(world.tenant, task, term, false).await.unwrap().lease;
    world.append(&lease, vec![kept("2")]).await.unwrap();
    let failed = status(task, Failed, None);
    world
        .finish(&lease, TurnEnd::GiveUp { status: failed, error: "no more attempts".into(), dead: true })
        .await
        .unwrap();
    expected.push(task);
    // One whose last attempt has kept nothing, and undone what the one before had kept.
    let (task, lease) = telling(&world).await;
    world.append(&lease, vec![kept("3")]).await.unwrap();
    world.finish(&lease, TurnEnd::Release { begun: true }).await.unwrap();
    let again = world.lease_one().await;
    assert_eq!((again.lease.task, again.lease.kept), (task, 0));
    world.end(&again.lease, Failed, None).await.unwrap();
    expected.push(task);
    // Nothing was ever kept, or all is done.
    let (_, lease) = telling(&world).await;
    world.end(&lease, Failed, None).await.unwrap();
    let (_, lease) = telling(&world).await;
    world.append(&lease, vec![kept("4")]).await.unwrap();
    world.end(&lease, Completed, None).await.unwrap();

    let all = owed().await;
    let mut found: Vec<TaskId> = all.iter().map(|owed| owed.task).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    for owed in all {
        world.store.settle_cancel(world.tenant, owed.task, owed.generation).await.unwrap();
    }
    assert_eq!(owed().await, []);
}

pub(super) async fn completion_is_owed_to_others_where_the_agent_says_so(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let agents = [world.agent.clone()];
    let saying = |state: &'static str, owes: bool| Draft::kept_owing(state.into(), owes, clock::now());
    let owing = |state: &'static str| saying(state, true);
    let (plain, lease) = telling(&world).await;
    // A state that says nothing of it changes nothing.
    world.append(&lease, vec![owing("1"), kept("1")]).await.unwrap();
    world.end(&lease, Completed, None).await.unwrap();
    // Another attempt begins anew. What the one before handed on is owed all the same.
    let (undone, lease) = telling(&world).await;
    world.append(&lease, vec![owing("2")]).await.unwrap();
    world.finish(&lease, TurnEnd::Release { begun: true }).await.unwrap();
    world.end(&world.lease_one().await.lease, Completed, None).await.unwrap();
    // A later state takes it back.
    let (_, lease) = telling(&world).await;
    world.append(&lease, vec![owing("3"), saying("4", false)]).await.unwrap();
    world.end(&lease, Completed, None).await.unwrap();
    // An agent that tells nobody owes nothing.
    let (_, lease) = world.running("hello").await;
    world.append(&lease, vec![owing("5")]).await.unwrap();
    world.end(&lease, Completed, None).await.unwrap();

    let owed = world.store.owed_cancels(&agents, 10).await.unwrap();
    let mut found: Vec<TaskId> = owed.into_iter().map(|owed| owed.task).collect();
    found.sort();
    let mut expected = vec![plain, undone];
    expected.sort();
    assert_eq!(found, expected);
}

pub(super) async fn a_task_begins_for_a_turn_only_while_that_runs(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let begin = async |parent: &Lease| {
        let (task, accept) = world.begin("child");
        let accepted = world.accept(Accept { parent: Some(parent.clone()), ..accept }).await;
        (task, accepted)
    };
    let refused = async |parent: &Lease| {
        let (task, accepted) = begin(parent).await;
        assert!(matches!(accepted, Err(Error::LeaseLost)), "{accepted:?}");
        assert!(matches!(world.store.head(world.tenant, task).await, Err(Error::NotFound)));
    };
    let (_, lease) = world.running("hello").await;
    let (task, accepted) = begin(&lease).await;
    assert_eq!(accepted.unwrap().task, task);
    refused(&Lease { generation: lease.generation + 1, ..lease.clone() }).await;
    refused(&Lease { task: TaskId::mint(), ..lease.clone() }).await;
    world.end(&lease, Failed, None).await.unwrap();
    refused(&lease).await;
    let (task, lease) = world.running("hello").await;
    world.store.mark_cancel(world.tenant, task).await.unwrap();
    refused(&lease).await;
    world.store.force_cancel(world.tenant, task).await.unwrap();
    refused(&lease).await;
    // The same message as one that began a task finds it, whatever has become of the turn.
    let (_, lease) = world.running("hello").await;
    let (task, accept) = world.begin("child");
    let accept = Accept { parent: Some(lease.clone()), ..keyed(accept, 7, 7) };
    world.accept(accept.clone()).await.unwrap();
    world.end(&lease, Completed, None).await.unwrap();
    let again = world.accept(accept).await.unwrap();
    assert!(again.duplicate && again.task == task);
    // A tenant's task does not begin for another tenant's turn.
    let other = world.other().await;
    let (_, lease) = other.running("hello").await;
    refused(&lease).await;
}
