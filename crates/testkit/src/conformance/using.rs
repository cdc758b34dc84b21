//! What tenants use, and what happens at the bounds of it.

use std::sync::Arc;

use a2a::TaskState::{Completed, Failed, InputRequired};

use super::world::*;
use store::{Accept, Error, Quota, Store, TaskId, Usage};

impl World {
    async fn usage(&self) -> Usage {
        self.store.usage(self.tenant).await.unwrap()
    }

    /// The bytes of what is stored of a task.
    async fn stored(&self, task: TaskId) -> u64 {
        let mut bytes: usize = self.events(task).await.iter().map(|event| event.body.len()).sum();
        let snapshot = self.task(task).await;
        bytes +=
            snapshot.history.iter().chain(snapshot.artifacts.iter().flatten()).map(|body| body.len()).sum::<usize>();
        bytes as u64
    }
}

fn within(accept: Accept, tasks: Option<u64>, bytes: Option<u64>) -> Accept {
    Accept { quota: Quota { tasks, bytes }, ..accept }
}

pub(super) async fn usage_is_the_sum_of_what_is_stored(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let other = world.other().await;
    assert_eq!(world.usage().await, Usage::default());
    let (first, lease) = world.running("hello").await;
    let chunks = vec![artifact(first, "a", "one", false), artifact(first, "a", "two", true)];
    world.append(&lease, chunks).await.unwrap();
    let waiting = world.waiting("later").await;
    assert_eq!(world.usage().await.tasks, 2);
    assert_eq!(world.usage().await.bytes, world.stored(first).await + world.stored(waiting).await);

    // What is replaced is not stored twice; what was said moves into the history.
    world.append(&lease, vec![artifact(first, "a", "three", false)]).await.unwrap();
    world.end(&lease, InputRequired, Some("which?")).await.unwrap();
    world.accept(world.leased(world.more(first, "this"))).await.unwrap();
    assert_eq!(world.usage().await.tasks, 2);
    assert_eq!(world.usage().await.bytes, world.stored(first).await + world.stored(waiting).await);

    world.store.mark_cancel(world.tenant, waiting).await.unwrap();
    assert_eq!(world.usage().await.tasks, 1);
    assert_eq!(world.usage().await.bytes, world.stored(first).await + world.stored(waiting).await);
    assert_eq!(other.usage().await, Usage::default());
}

pub(super) async fn another_attempt_does_not_count_the_last_ones_artifacts(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, accept) = world.begin("go");
    let accepted = world.accept(world.leased_for(accept, NOTHING)).await.unwrap();
    world.append(&accepted.lease.unwrap(), vec![artifact(task, "a", "lost", false)]).await.unwrap();
    let again = world.lease_one().await;
    assert_eq!(world.usage().await, Usage { tasks: 1, bytes: world.stored(task).await });
    world.end(&again.lease, Failed, None).await.unwrap();
    assert_eq!(world.usage().await, Usage { tasks: 0, bytes: world.stored(task).await });
}

pub(super) async fn a_tenant_has_no_more_tasks_than_it_may(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let other = world.other().await;
    let (_, accept) = world.begin("one");
    world.accept(keyed(within(accept, Some(2), None), 1, 1)).await.unwrap();
    let (_, held_lease) = world.held("two").await;

    let (refused, accept) = world.begin("three");
    let outcome = world.accept(within(accept.clone(), Some(2), None)).await;
    assert!(matches!(outcome, Err(Error::TooManyTasks { limit: 2 })), "{outcome:?}");
    assert!(matches!(world.store.head(world.tenant, refused).await, Err(Error::NotFound)));
    let (_, again) = world.begin("one");
    assert!(world.accept(keyed(within(again, Some(2), None), 1, 1)).await.unwrap().duplicate, "it is no new task");
    let (_, elsewhere) = other.begin("three");
    other.accept(within(elsewhere, Some(2), None)).await.unwrap();

    // A direct reply ends a task like any other end.
    world.finish(&held_lease, reply(held_lease.task, "done")).await.unwrap();
    world.accept(within(accept, Some(2), None)).await.unwrap();
    assert_eq!(world.usage().await.tasks, 2);
}

pub(super) async fn many_at_once_do_not_pass_the_bound(store: Arc<dyn Store>) {
    let world = Arc::new(World::new(store).await);
    let mut senders = Vec::new();
    for n in 0..50 {
        let world = Arc::clone(&world);
        senders.push(tokio::spawn(async move {
            let (_, accept) = world.begin(&n.to_string());
            world.accept(within(accept, Some(7), None)).await.is_ok()
        }));
    }
    let mut accepted = 0;
    for sender in senders {
        accepted += usize::from(sender.await.unwrap());
    }
    assert_eq!((accepted, world.usage().await.tasks, world.total().await), (7, 7, 7));
}

pub(super) async fn a_tenant_stores_no_more_than_it_may(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("go").await;
    let asking = world.asking("which?").await;
    let limit = Some(world.usage().await.bytes);
    for accept in [world.begin("more").1, world.more(asking, "this")] {
        let outcome = world.accept(within(accept, None, limit)).await;
        assert!(matches!(outcome, Err(Error::TooMuchStored { .. })), "{outcome:?}");
    }
    assert_eq!(world.kinds(asking).await.last(), Some(&ends(InputRequired)));
    // What runs goes on.
    world.append(&lease, vec![artifact(task, "a", "made", false)]).await.unwrap();
    world.end(&lease, Completed, Some("done")).await.unwrap();
    assert_eq!(world.state(task).await, Completed);
    world.store.mark_cancel(world.tenant, asking).await.unwrap();
}
