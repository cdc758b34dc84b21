//! Who is told of a task: what is owed, who may tell, and what nobody else notices of it.

use std::{sync::Arc, time::Duration};

use a2a::{Dialect, TaskState};

use super::world::*;
use store::{
    Accept, Attempt, Error, Letter, MOST_CONFIGS, NewPush, Next, Place, PushClaim, PushConfig, PushFilter, PushLease,
    PushRecord, PushState, Replay, Settlement, Store, TaskId, TenantId, Term,
};

impl World {
    async fn put(&self, task: TaskId, id: &str) {
        self.store.put_push(self.tenant, task, push(id, "receiver:443")).await.unwrap();
    }

    async fn push(&self, task: TaskId, id: &str) -> PushConfig {
        self.store.push(self.tenant, task, id).await.unwrap().unwrap()
    }

    fn push_claim(&self, slots: usize) -> PushClaim {
        let term = Term { holder: self.me(), lasts: MINUTE };
        PushClaim { term, slots, per_tenant: 100, per_receiver: 100, busy: Vec::new(), silent: Vec::new(), after: None }
    }

    /// Leases whatever is due.
    async fn tell(&self) -> Vec<PushLease> {
        self.store.claim_pushes(self.push_claim(100)).await.unwrap().leases
    }

    async fn tell_one(&self) -> PushLease {
        let mut leased = self.tell().await;
        assert_eq!(leased.len(), 1, "{leased:?}");
        leased.remove(0)
    }

    /// Says that everything up to the event was told.
    async fn told(&self, lease: &PushLease, seq: u64, next: Next) -> store::Result<()> {
        self.store.settle_push(lease, settlement(lease, seq, next)).await
    }
}

fn push(id: &str, receiver: &str) -> NewPush {
    NewPush {
        id: id.into(),
        url: format!("https://{receiver}/hook"),
        receiver: receiver.into(),
        scheme: "Bearer".into(),
        sealed: vec![0, 255, 7],
        dialect: Dialect::V1,
        chunks: false,
    }
}

fn settlement(lease: &PushLease, seq: u64, next: Next) -> Settlement {
    let record = lease.config.record.clone();
    Settlement { told: Place { seq, part: 0 }, state: PushState::Active, attempt: 0, record, next }
}

fn with_push(accept: Accept, id: &str) -> Accept {
    Accept { push: Some(push(id, "receiver:443")), ..accept }
}

pub(super) async fn a_task_without_configurations_owes_nothing(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    for n in 0..10 {
        let (task, lease) = world.running(&n.to_string()).await;
        world.append(&lease, vec![artifact(task, "a", "one", false)]).await.unwrap();
        world.end(&lease, TaskState::Completed, None).await.unwrap();
    }
    assert_eq!(world.store.stats().owed, 0);
    assert_eq!(world.store.next_push().await.unwrap().1, None);
    let (task, lease) = world.running("told").await;
    world.put(task, "a").await;
    assert_eq!(world.store.stats().owed, 0, "making one owes nothing");
    world.end(&lease, TaskState::Completed, None).await.unwrap();
    assert_eq!(world.store.stats().owed, 1);
}

pub(super) async fn a_configuration_is_told_what_comes_after_it(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    world.put(task, "a").await;
    let made = world.push(task, "a").await;
    assert_eq!((made.config.clone(), made.told.seq, made.owed), (push("a", "receiver:443"), 2, 2));
    assert!(made.due.is_none() && world.tell().await.is_empty(), "what was logged before it is not owed");
    let seq = world.append(&lease, vec![status(task, TaskState::Working, Some("soon"))]).await.unwrap().seq;
    let told = world.tell_one().await;
    assert_eq!((told.config.task, told.config.tenant, told.config.owed), (task, world.tenant, seq));
    assert!(world.tell().await.is_empty(), "one at a time");
    world.told(&told, seq, Next::Idle).await.unwrap();
    assert!(world.tell().await.is_empty(), "it was told");
    world.end(&lease, TaskState::Completed, None).await.unwrap();
    assert_eq!(world.tell_one().await.config.told.seq, seq);
}

pub(super) async fn a_configuration_comes_with_its_message(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, accept) = world.begin("hello");
    let accepted = world.accept(world.leased(with_push(accept, "a"))).await.unwrap();
    let first = world.tell_one().await;
    assert_eq!((first.config.task, first.config.told.seq, first.config.owed), (task, 0, 2));
    world.told(&first, 2, Next::Idle).await.unwrap();
    world.end(&accepted.lease.unwrap(), TaskState::InputRequired, Some("which?")).await.unwrap();
    world.told(&world.tell_one().await, 3, Next::Idle).await.unwrap();
    // And with a further message, the begin of its own turn included.
    world.accept(world.leased(with_push(world.more(task, "this"), "b"))).await.unwrap();
    let mut both = world.tell().await;
    both.sort_by(|one, other| one.config.config.id.cmp(&other.config.config.id));
    assert_eq!(both.iter().map(|lease| lease.config.told.seq).collect::<Vec<_>>(), [3, 3]);
    // A message that was known already makes nothing.
    let (other, accept) = world.begin("twice");
    world.accept(keyed(accept.clone(), 1, 1)).await.unwrap();
    world.accept(with_push(keyed(accept, 1, 1), "c")).await.unwrap();
    assert!(world.store.push(world.tenant, other, "c").await.unwrap().is_none());
}

pub(super) async fn a_held_task_owes_from_its_showing_on(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    for shows in [true, false] {
        let (task, accept) = world.begin(&format!("hold {shows}"));
        let accepted = world.accept(held(world.leased(with_push(accept, "a")))).await.unwrap();
        let lease = accepted.lease.unwrap();
        world.append(&lease, vec![note()]).await.unwrap();
        assert!(world.tell().await.is_empty(), "what nobody sees is not told");
        assert!(world.store.push(world.tenant, task, "a").await.unwrap().is_none());
        let all = PushFilter { task: Some(task), limit: 10, ..PushFilter::default() };
        assert!(world.store.pushes(world.tenant, all).await.unwrap().is_empty());
        if shows {
            world.store.reveal(world.tenant, task).await.unwrap();
            let told = world.tell_one().await;
            assert_eq!((told.config.told.seq, told.config.owed), (0, 4));
            world.told(&told, 4, Next::Idle).await.unwrap();
            world.end(&lease, TaskState::Completed, None).await.unwrap();
            world.told(&world.tell_one().await, 5, Next::Idle).await.unwrap();
        } else {
            world.finish(&lease, reply(task, "hi")).await.unwrap();
            assert!(world.tell().await.is_empty(), "a direct reply is for the caller alone");
        }
    }
}

pub(super) async fn a_direct_reply_takes_its_configurations_along(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let mut used = Vec::new();
    for told in [false, true] {
        let before = world.store.usage(world.tenant).await.unwrap().bytes;
        let (task, accept) = world.begin("same");
        let accept = if told { with_push(accept, "a") } else { accept };
        let lease = world.accept(held(world.leased(accept))).await.unwrap().lease.unwrap();
        world.finish(&lease, reply(task, "hi")).await.unwrap();
        used.push(world.store.usage(world.tenant).await.unwrap().bytes - before);
    }
    assert_eq!(used[0], used[1], "nothing of it is left");
}

pub(super) async fn only_those_who_asked_are_told_of_chunks(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    world.put(task, "whole").await;
    let chunks = NewPush { chunks: true, ..push("chunks", "receiver:443") };
    world.store.put_push(world.tenant, task, chunks).await.unwrap();
    let seq = world.append(&lease, vec![artifact(task, "a", "one", false)]).await.unwrap().seq;
    let told = world.tell_one().await;
    assert_eq!((told.config.config.id.as_str(), told.config.owed), ("chunks", seq));
    world.told(&told, seq, Next::Idle).await.unwrap();
    // Nothing but the log's end changes here, which is another way to write.
    let text = a2a::Artifact { artifact_id: "a".into(), parts: vec![a2a::Part::text("x")], ..Default::default() };
    let last = store::Draft::artifact(task, CONTEXT, text, true, true, None, store::clock::now()).unwrap();
    world.append(&lease, vec![last]).await.unwrap();
    assert_eq!(world.tell().await.len(), 2, "a finished artifact is for everyone");
}

pub(super) async fn a_configuration_is_leased_once(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    for n in 0..5 {
        world.put(task, &n.to_string()).await;
    }
    world.end(&lease, TaskState::Completed, None).await.unwrap();
    let claims = (0..8).map(|_| {
        let (store, claim) = (Arc::clone(&world.store), world.push_claim(3));
        tokio::spawn(async move { store.claim_pushes(claim).await.unwrap().leases })
    });
    let mut ids = Vec::new();
    for claim in claims.collect::<Vec<_>>() {
        ids.extend(claim.await.unwrap().into_iter().map(|lease| lease.config.config.id));
    }
    ids.extend(world.tell().await.into_iter().map(|lease| lease.config.config.id));
    ids.sort_unstable();
    assert_eq!(ids, ["0", "1", "2", "3", "4"]);
}

pub(super) async fn a_stale_holder_settles_nothing(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    world.put(task, "a").await;
    world.end(&lease, TaskState::Completed, None).await.unwrap();
    let first = world.tell_one().await;
    world.told(&first, 2, Next::Keep).await.unwrap();
    world.told(&first, 2, Next::After(NOTHING)).await.unwrap();
    assert!(matches!(world.told(&first, 3, Next::Idle).await, Err(Error::LeaseLost)), "it was given back");
    let second = world.tell_one().await;
    assert!(second.generation > first.generation);
    assert!(matches!(world.told(&first, 3, Next::Idle).await, Err(Error::LeaseLost)), "somebody else has it");
    let stranger = PushLease { term: Term { holder: store::Holder::worker("x"), lasts: MINUTE }, ..second.clone() };
    assert!(matches!(world.told(&stranger, 3, Next::Idle).await, Err(Error::LeaseLost)), "it is not theirs");
    assert_eq!(world.push(task, "a").await.told.seq, 2);
    world.told(&second, 3, Next::Idle).await.unwrap();
}

pub(super) async fn what_is_logged_while_it_is_told_is_owed(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    world.put(task, "a").await;
    let first = world.append(&lease, vec![status(task, TaskState::Working, None)]).await.unwrap().seq;
    let told = world.tell_one().await;
    let second = world.append(&lease, vec![status(task, TaskState::Working, None)]).await.unwrap().seq;
    world.told(&told, first, Next::Idle).await.unwrap();
    let told = world.tell_one().await;
    assert_eq!((told.config.told.seq, told.config.owed), (first, second));
    // The same when both come at once, many times.
    world.told(&told, second, Next::Idle).await.unwrap();
    for _ in 0..20 {
        let end = world.append(&lease, vec![status(task, TaskState::Working, None)]).await.unwrap().seq;
        let held = world.tell_one().await;
        let (more, settled) = tokio::join!(
            world.append(&lease, vec![status(task, TaskState::Working, None)]),
            world.told(&held, end, Next::Idle)
        );
        let more = more.unwrap().seq;
        settled.unwrap();
        let held = world.tell_one().await;
        assert_eq!((held.config.told.seq, held.config.owed), (end, more));
        world.told(&held, more, Next::Idle).await.unwrap();
    }
}

pub(super) async fn a_configuration_that_was_put_off_waits(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    world.put(task, "a").await;
    world.append(&lease, vec![status(task, TaskState::Working, None)]).await.unwrap();
    let held = world.tell_one().await;
    let mut record = held.config.record.clone();
    record.remember(Attempt { place: Place { seq: 3, part: 0 }, at: 5, ms: 7, status: Some(500), outcome: "x".into() });
    let put_off = Settlement { attempt: 1, record, ..settlement(&held, 2, Next::After(Duration::from_millis(300))) };
    world.store.settle_push(&held, put_off).await.unwrap();
    let (now, next) = world.store.next_push().await.unwrap();
    assert!(next.unwrap().since(now) > Duration::from_millis(100));
    world.end(&lease, TaskState::Completed, None).await.unwrap();
    assert!(world.tell().await.is_empty(), "what comes meanwhile does not make it come sooner");
    tokio::time::sleep(Duration::from_millis(320)).await;
    let again = world.tell_one().await;
    assert_eq!((again.config.attempt, again.config.owed), (1, 4));
    assert_eq!(again.config.record.attempts[0].status, Some(500));
    // Nobody has to wait who does not want to.
    let put_off = Settlement { attempt: 2, ..settlement(&again, 2, Next::After(MINUTE)) };
    world.store.settle_push(&again, put_off).await.unwrap();
    assert!(world.tell().await.is_empty());
    assert_eq!(world.store.replay_pushes(world.tenant, task, "a", Replay::All).await.unwrap(), 0);
    world.tell_one().await;
}

pub(super) async fn a_configuration_that_rests_is_not_due(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    world.put(task, "a").await;
    world.append(&lease, vec![status(task, TaskState::Working, None)]).await.unwrap();
    let held = world.tell_one().await;
    let gone = Settlement { state: PushState::Gone, ..settlement(&held, 2, Next::Rest) };
    world.store.settle_push(&held, gone).await.unwrap();
    world.end(&lease, TaskState::Completed, None).await.unwrap();
    assert!(world.tell().await.is_empty());
    let config = world.push(task, "a").await;
    assert_eq!((config.state, config.owed, config.told.seq), (PushState::Gone, 4, 2), "it is known what it missed");
    assert!(config.is_troubled());
    assert_eq!(world.store.replay_pushes(world.tenant, task, "a", Replay::All).await.unwrap(), 0);
    assert_eq!(world.tell_one().await.config.told.seq, 2, "it goes on where it stopped");
}

pub(super) async fn a_lease_to_tell_runs_out(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    world.put(task, "a").await;
    world.end(&lease, TaskState::Completed, None).await.unwrap();
    let term = Term { holder: store::Holder::worker("gone"), lasts: NOTHING };
    let lost = world.store.claim_pushes(PushClaim { term, ..world.push_claim(1) }).await.unwrap().leases.remove(0);
    let taken = world.tell_one().await;
    assert_eq!(taken.config.told, lost.config.told);
    assert!(matches!(world.told(&lost, 3, Next::Idle).await, Err(Error::LeaseLost)));
    world.told(&taken, 3, Next::Idle).await.unwrap();
}

pub(super) async fn a_replaced_configuration_goes_on(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    world.put(task, "a").await;
    world.append(&lease, vec![status(task, TaskState::Working, None)]).await.unwrap();
    let held = world.tell_one().await;
    world.store.put_push(world.tenant, task, push("a", "elsewhere:443")).await.unwrap();
    assert!(matches!(world.told(&held, 3, Next::Idle).await, Err(Error::LeaseLost)));
    assert!(world.tell().await.is_empty(), "whoever was telling it has its time");
    let config = world.push(task, "a").await;
    assert_eq!((config.config.receiver.as_str(), config.told.seq, config.owed), ("elsewhere:443", 2, 3));
    // One that waits for another attempt need not wait any more.
    world.put(task, "b").await;
    world.append(&lease, vec![status(task, TaskState::Working, None)]).await.unwrap();
    let held = world.tell_one().await;
    world.told(&held, 3, Next::After(MINUTE)).await.unwrap();
    world.store.put_push(world.tenant, task, push("b", "elsewhere:443")).await.unwrap();
    assert_eq!(world.tell_one().await.config.config.url, "https://elsewhere:443/hook");
}

/// Who sets the same again, with every message perhaps, disturbs nobody, and has its new secrets used.
pub(super) async fn a_configuration_that_is_set_again_is_the_same(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    world.put(task, "a").await;
    world.append(&lease, vec![status(task, TaskState::Working, None)]).await.unwrap();
    let held = world.tell_one().await;
    let again = NewPush { sealed: vec![9; 20], ..push("a", "receiver:443") };
    world.store.put_push(world.tenant, task, again.clone()).await.unwrap();
    world.told(&held, 3, Next::Idle).await.unwrap();
    assert_eq!(world.push(task, "a").await.config, again);
    // One that waits goes on waiting; one that had stopped tells again.
    world.append(&lease, vec![status(task, TaskState::Working, None)]).await.unwrap();
    world.told(&world.tell_one().await, 3, Next::After(MINUTE)).await.unwrap();
    world.store.put_push(world.tenant, task, again.clone()).await.unwrap();
    assert!(world.tell().await.is_empty());
    world.store.replay_pushes(world.tenant, task, "a", Replay::All).await.unwrap();
    world.put(task, "b").await;
    world.end(&lease, TaskState::Completed, None).await.unwrap();
    let held = world.tell_one().await;
    assert_eq!(held.config.config.id, "b");
    let gone = Settlement { state: PushState::Gone, ..settlement(&held, 4, Next::Rest) };
    world.store.settle_push(&held, gone).await.unwrap();
    world.put(task, "b").await;
    assert_eq!(world.tell_one().await.config.state, PushState::Active);
}

/// Two changes while somebody tells it: that one still has its time.
pub(super) async fn nobody_tells_beside_a_holder(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    world.put(task, "a").await;
    world.end(&lease, TaskState::Completed, None).await.unwrap();
    world.tell_one().await;
    for receiver in ["one:443", "two:443", "three:443"] {
        world.store.put_push(world.tenant, task, push("a", receiver)).await.unwrap();
        world.store.replay_pushes(world.tenant, task, "a", Replay::All).await.unwrap();
        assert!(world.tell().await.is_empty(), "{receiver}");
    }
}

pub(super) async fn one_that_is_made_again_is_another(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    world.put(task, "a").await;
    world.append(&lease, vec![status(task, TaskState::Working, None)]).await.unwrap();
    let stale = world.tell_one().await;
    world.store.remove_push(world.tenant, task, "a").await.unwrap();
    world.put(task, "a").await;
    world.end(&lease, TaskState::Completed, None).await.unwrap();
    let held = world.tell_one().await;
    let gone = Settlement { state: PushState::Gone, ..settlement(&stale, 2, Next::Rest) };
    assert!(matches!(world.store.settle_push(&stale, gone).await, Err(Error::LeaseLost)));
    assert_eq!((held.config.told.seq, world.push(task, "a").await.told.seq), (3, 3), "it is told what comes after it");
    world.told(&held, 4, Next::Idle).await.unwrap();
}

/// Changes of one id at the same time, which may be one transaction: what each leaves is what the next one finds.
pub(super) async fn changes_that_come_together_add_up(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    for n in 0..10 {
        let (task, lease) = world.running(&n.to_string()).await;
        world.put(task, "a").await;
        world.append(&lease, vec![status(task, TaskState::Working, None)]).await.unwrap();
        let (removed, put) = tokio::join!(
            world.store.remove_push(world.tenant, task, "a"),
            world.store.put_push(world.tenant, task, push("a", "receiver:443"))
        );
        put.unwrap();
        let there = world.store.push(world.tenant, task, "a").await.unwrap();
        assert!(removed.unwrap());
        if let Some(config) = there {
            assert_eq!(config.told.seq, 3, "made anew, after the event");
        }
        let (task, accept) = world.begin("both");
        world.accept(world.leased(accept)).await.unwrap();
        let (one, other) = tokio::join!(
            world.accept(with_push(world.more(task, "one"), "b")),
            world.accept(with_push(world.more(task, "other"), "b"))
        );
        let first = one.unwrap().seq.min(other.unwrap().seq);
        assert!(world.push(task, "b").await.told.seq < first, "nothing of the first message is passed over");
    }
}

pub(super) async fn a_removed_configuration_is_gone(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    world.put(task, "a").await;
    world.put(task, "b").await;
    world.append(&lease, vec![status(task, TaskState::Working, None)]).await.unwrap();
    let mut held = world.tell().await;
    held.sort_by(|one, other| one.config.config.id.cmp(&other.config.config.id));
    assert!(world.store.remove_push(world.tenant, task, "a").await.unwrap());
    assert!(!world.store.remove_push(world.tenant, task, "a").await.unwrap(), "twice is as good");
    assert!(world.store.push(world.tenant, task, "a").await.unwrap().is_none());
    assert!(matches!(world.told(&held[0], 3, Next::Idle).await, Err(Error::LeaseLost)));
    world.told(&held[1], 3, Next::Idle).await.unwrap();
    assert!(world.store.remove_push(world.tenant, task, "b").await.unwrap());
    let owed = world.store.stats().owed;
    world.end(&lease, TaskState::Completed, None).await.unwrap();
    assert_eq!(world.store.stats().owed, owed, "a task that has none left pays nothing");
}

pub(super) async fn a_task_has_only_so_many_configurations(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let task = world.asking("which?").await;
    for n in 0..MOST_CONFIGS {
        world.put(task, &n.to_string()).await;
    }
    let refused = world.store.put_push(world.tenant, task, push("more", "receiver:443")).await;
    assert!(matches!(refused, Err(Error::TooManyPushes { limit: MOST_CONFIGS })), "{refused:?}");
    let before = world.events(task).await;
    let refused = world.accept(with_push(world.more(task, "more"), "more")).await;
    assert!(matches!(refused, Err(Error::TooManyPushes { .. })), "{refused:?}");
    assert_eq!(world.events(task).await, before, "a message that is refused changes nothing");
    world.accept(with_push(world.more(task, "more"), "3")).await.unwrap();
}

pub(super) async fn what_does_not_answer_holds_up_nobody_else(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let other = world.other().await;
    for (world, n) in [(&world, 6), (&other, 1)] {
        for m in 0..n {
            let (task, lease) = world.running(&m.to_string()).await;
            world.store.put_push(world.tenant, task, push("slow", "slow:443")).await.unwrap();
            if m == 5 || world.tenant == other.tenant {
                world.store.put_push(world.tenant, task, push("quick", "quick:443")).await.unwrap();
            }
            world.end(&lease, TaskState::Completed, None).await.unwrap();
        }
    }
    let claim = PushClaim { per_receiver: 2, per_tenant: 3, ..world.push_claim(100) };
    // What one of them leaves of its share the others get with the next claim. Whoever is busy takes no more of the same.
    let mut taken: Vec<PushLease> = Vec::new();
    loop {
        let busy = taken.iter().map(|it| (it.config.tenant, it.config.config.receiver.clone())).collect();
        let more = world.store.claim_pushes(PushClaim { busy, ..claim.clone() }).await.unwrap().leases;
        if more.is_empty() {
            break;
        }
        taken.extend(more);
    }
    let count = |tenant: TenantId, id: &str| {
        taken.iter().filter(|it| it.config.tenant == tenant && it.config.config.id == id).count()
    };
    assert_eq!((count(world.tenant, "slow"), count(world.tenant, "quick")), (2, 1));
    assert_eq!((count(other.tenant, "slow"), count(other.tenant, "quick")), (1, 1));
    // Who does not answer has one place, and all such together half of their tenant's.
    for lease in &taken {
        world.store.settle_push(lease, settlement(lease, 2, Next::After(NOTHING))).await.unwrap();
    }
    let silent = vec![(world.tenant, "slow:443".to_owned())];
    let some = world.store.claim_pushes(PushClaim { silent, ..claim.clone() }).await.unwrap().leases;
    let slow = some.iter().filter(|it| it.config.tenant == world.tenant && it.config.config.id == "slow").count();
    assert_eq!(slow, 1);
    let taken = some;
    // With room for one the tenant after the last is served.
    for lease in &taken {
        world.store.settle_push(lease, settlement(lease, 2, Next::After(NOTHING))).await.unwrap();
    }
    for (after, first) in [(world.tenant, other.tenant), (other.tenant, world.tenant)] {
        let claim = PushClaim { slots: 1, after: Some((after, "zzz".into())), ..claim.clone() };
        let one = world.store.claim_pushes(claim).await.unwrap().leases;
        assert_eq!(one.iter().map(|it| it.config.tenant).collect::<Vec<_>>(), [first]);
    }
}

/// More receivers than one claim visits: the next one goes on, and after a round all were visited.
pub(super) async fn a_claim_visits_only_so_many_receivers(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let other = world.other().await;
    let most = store::push::VISITS + 20;
    let mut tasks = Vec::new();
    for n in 0..most.div_ceil(10) {
        let (task, lease) = world.running(&n.to_string()).await;
        for m in 0..10 {
            let to = format!("{:04}.example:443", n * 10 + m);
            world.store.put_push(world.tenant, task, push(&m.to_string(), &to)).await.unwrap();
        }
        tasks.push((world.tenant, lease));
    }
    let (task, lease) = other.running("other").await;
    other.put(task, "a").await;
    tasks.push((other.tenant, lease));
    for (_, lease) in &tasks {
        world.end(lease, TaskState::Completed, None).await.unwrap();
    }
    let (mut after, mut found) = (None, Vec::new());
    for _ in 0..4 {
        let claimed = world
            .store
            .claim_pushes(PushClaim { after, per_tenant: 10_000, ..world.push_claim(10_000) })
            .await
            .unwrap();
        assert!(claimed.leases.len() <= store::push::VISITS);
        found.extend(claimed.leases);
        after = claimed.after;
    }
    assert_eq!(found.len(), most.div_ceil(10) * 10 + 1);
    assert!(found.iter().any(|lease| lease.config.tenant == other.tenant));
}

pub(super) async fn a_dead_letter_is_sent_again(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    world.put(task, "a").await;
    world.end(&lease, TaskState::Completed, None).await.unwrap();
    let held = world.tell_one().await;
    let letter =
        |seq| Letter { place: Place { seq, part: 0 }, at: 5, attempts: 9, outcome: "500".into(), replay: false };
    let record = PushRecord { letters: vec![letter(3), letter(9)], attempts: Vec::new() };
    world.store.settle_push(&held, Settlement { record, ..settlement(&held, 3, Next::Idle) }).await.unwrap();
    assert!(world.tell().await.is_empty());
    let (store, tenant) = (&world.store, world.tenant);
    assert!(world.push(task, "a").await.is_troubled());
    assert_eq!(store.replay_pushes(tenant, task, "a", Replay::Event(7)).await.unwrap(), 0);
    assert!(world.tell().await.is_empty());
    assert_eq!(store.replay_pushes(tenant, task, "a", Replay::Event(3)).await.unwrap(), 1);
    let again = world.tell_one().await;
    let replayed: Vec<bool> = again.config.record.letters.iter().map(|letter| letter.replay).collect();
    assert_eq!(replayed, [true, false]);
    // A replay while somebody tells it: that one has its time, and what it would settle is void.
    assert_eq!(store.replay_pushes(tenant, task, "a", Replay::All).await.unwrap(), 2);
    assert!(matches!(world.told(&again, 3, Next::Idle).await, Err(Error::LeaseLost)));
    assert!(world.tell().await.is_empty());
    let missing = store.replay_pushes(tenant, task, "b", Replay::All).await;
    assert!(matches!(missing, Err(Error::NotFound)));
}

pub(super) async fn configurations_are_listed_in_pages(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let mut all = Vec::new();
    let mut troubled = Vec::new();
    for n in 0..3 {
        let (task, lease) = world.running(&n.to_string()).await;
        for id in ["a", "b"] {
            world.put(task, id).await;
            all.push((task, id.to_owned()));
        }
        if n == 1 {
            world.end(&lease, TaskState::Completed, None).await.unwrap();
            for held in world.tell().await.iter().filter(|held| held.config.config.id == "b") {
                let stopped = Settlement { state: PushState::Stopped, ..settlement(held, 2, Next::Rest) };
                world.store.settle_push(held, stopped).await.unwrap();
                troubled.push((task, "b".to_owned()));
            }
        }
    }
    let list = |filter: PushFilter| {
        let (store, tenant) = (Arc::clone(&world.store), world.tenant);
        async move {
            let found = store.pushes(tenant, filter).await.unwrap();
            found.into_iter().map(|config| (config.task, config.config.id)).collect::<Vec<_>>()
        }
    };
    let mut paged = Vec::new();
    while let page = list(PushFilter { after: paged.last().cloned(), limit: 4, ..PushFilter::default() }).await
        && !page.is_empty()
    {
        paged.extend(page);
    }
    assert_eq!(paged, all);
    assert_eq!(list(PushFilter { troubled: true, limit: 10, ..PushFilter::default() }).await, troubled);
    assert_eq!(list(PushFilter { task: Some(all[2].0), limit: 10, ..PushFilter::default() }).await, all[2..4]);
    assert!(list(PushFilter { task: Some(TaskId::mint()), limit: 10, ..PushFilter::default() }).await.is_empty());
}

pub(super) async fn others_configurations_do_not_exist(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let other = world.other().await;
    let (task, lease) = world.running("secret").await;
    world.put(task, "a").await;
    let (store, tenant) = (&other.store, other.tenant);
    assert!(store.push(tenant, task, "a").await.unwrap().is_none());
    assert!(store.pushes(tenant, PushFilter { limit: 10, ..PushFilter::default() }).await.unwrap().is_empty());
    let mine = PushFilter { task: Some(task), limit: 10, ..PushFilter::default() };
    assert!(store.pushes(tenant, mine).await.unwrap().is_empty());
    assert!(matches!(store.put_push(tenant, task, push("a", "x:1")).await, Err(Error::NotFound)));
    assert!(matches!(store.remove_push(tenant, task, "a").await, Err(Error::NotFound)));
    assert!(matches!(store.replay_pushes(tenant, task, "a", Replay::All).await, Err(Error::NotFound)));
    let hidden = world.held("hidden").await.0;
    assert!(matches!(world.store.put_push(world.tenant, hidden, push("a", "x:1")).await, Err(Error::NotFound)));
    world.end(&lease, TaskState::Completed, None).await.unwrap();
    let held = world.tell_one().await;
    let stolen = PushLease { config: PushConfig { tenant, ..held.config.clone() }, ..held.clone() };
    assert!(matches!(world.told(&stolen, 3, Next::Idle).await, Err(Error::LeaseLost)));
    assert_eq!(world.push(task, "a").await.config, push("a", "receiver:443"));
    world.told(&held, 3, Next::Idle).await.unwrap();
}

pub(super) async fn configurations_count_as_stored(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, _lease) = world.running("hello").await;
    let before = world.store.usage(world.tenant).await.unwrap().bytes;
    let used = |world: &World| {
        let (store, tenant) = (Arc::clone(&world.store), world.tenant);
        async move { store.usage(tenant).await.unwrap().bytes }
    };
    world.put(task, "a").await;
    let one = used(&world).await;
    assert!(one > before);
    world.put(task, "a").await;
    assert_eq!(used(&world).await, one, "what is replaced does not count any more");
    world.store.put_push(world.tenant, task, push("a", "a.longer.name:443")).await.unwrap();
    assert!(used(&world).await > one);
    world.store.remove_push(world.tenant, task, "a").await.unwrap();
    assert_eq!(used(&world).await, before);
}
