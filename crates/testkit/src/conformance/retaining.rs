//! What goes when its time has come, what goes at once, and what stays.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use a2a::{
    Dialect,
    TaskState::{self, Completed, Failed, InputRequired},
};

use super::{canceling::telling, world::*};
use store::{
    AuditEntry, Change, Deleted, Error, IdempotencyKey, Lease, Letter, Letters, NewPush, NewToken, Next, Place,
    Position, Prune, PruneStep, PruneWalk, Pruned, PushClaim, PushFilter, PushState, Reach, Removal, Replay,
    Settlement, Store, Target, TaskId, Term, TurnEnd, Usage, View, Whose,
};

/// More steps than any case needs.
const MANY: usize = 1000;

impl World {
    fn step(&self, what: Prune) -> PruneStep {
        PruneStep {
            tenant: self.tenant,
            whose: Whose::AllBut(Vec::new()),
            what,
            older_than: NOTHING,
            walk: PruneWalk::default(),
            size: 1,
        }
    }

    /// Steps until nothing is left; what they removed together, and how many there were.
    async fn walk(&self, mut step: PruneStep) -> (Pruned, usize) {
        let mut sum = Pruned::default();
        // What ended in this very millisecond is not older than nothing.
        tick().await;
        for steps in 1..MANY {
            let pruned = self.store.prune(step.clone()).await.unwrap();
            sum.tasks += pruned.tasks;
            sum.events += pruned.events;
            sum.bytes += pruned.bytes;
            step.walk = pruned.walk.clone();
            if !pruned.more {
                sum.walk = pruned.walk;
                return (sum, steps);
            }
        }
        panic!("a walk has no end");
    }

    async fn prune_all(&self, what: Prune) -> Pruned {
        self.walk(self.step(what)).await.0
    }

    /// A task that has done a bit of everything and has ended.
    async fn ended(&self, says: &str) -> TaskId {
        let (task, lease) = self.running(says).await;
        self.complete(&lease).await;
        task
    }

    async fn complete(&self, lease: &Lease) {
        let task = lease.task;
        let made = vec![
            status(task, TaskState::Working, Some("soon")),
            artifact(task, "a", "one", false),
            artifact(task, "a", "two", true),
        ];
        self.append(lease, made).await.unwrap();
        self.end(lease, Completed, Some("done")).await.unwrap();
    }

    async fn dead_letter(&self, says: &str) -> TaskId {
        let (task, lease) = self.running(says).await;
        let end = TurnEnd::GiveUp { status: status(task, Failed, Some("no")), error: "broken".into(), dead: true };
        self.finish(&lease, end).await.unwrap();
        task
    }

    async fn direct(&self, says: &str) -> TaskId {
        let (task, lease) = self.held(says).await;
        self.finish(&lease, reply(task, "hi")).await.unwrap();
        task
    }

    /// A task that has ended with a configuration, which has told so much of it.
    async fn with_config(&self, id: &str, chunks: bool) -> TaskId {
        let (task, lease) = self.running(id).await;
        let push = NewPush {
            id: id.into(),
            url: "https://receiver/hook".into(),
            receiver: "receiver:443".into(),
            scheme: String::new(),
            sealed: Vec::new(),
            dialect: Dialect::V1,
            chunks,
        };
        self.store.put_push(self.tenant, task, push).await.unwrap();
        self.complete(&lease).await;
        task
    }

    /// Tells the one configuration that is due: all of it, or none with this outcome.
    async fn settle(&self, letters: usize, state: PushState, told_all: bool) {
        let term = Term { holder: self.me(), lasts: MINUTE };
        let (busy, silent, after) = (Vec::new(), Vec::new(), None);
        let claim = PushClaim { term, slots: 1, per_tenant: 1, per_receiver: 1, busy, silent, after };
        let lease = self.store.claim_pushes(claim).await.unwrap().leases.remove(0);
        let mut record = lease.config.record.clone();
        for seq in 1..=letters as u64 {
            let place = Place { seq, part: 0 };
            record.letters.push(Letter { place, at: 1, attempts: 1, outcome: "HTTP 400".into(), replay: false });
        }
        let told = if told_all { Place { seq: lease.config.owed, part: 0 } } else { lease.config.told };
        let next = if state == PushState::Active { Next::Idle } else { Next::Rest };
        self.store.settle_push(&lease, Settlement { told, state, attempt: 0, record, next }).await.unwrap();
    }

    async fn is_there(&self, task: TaskId) -> bool {
        match self.store.head(self.tenant, task).await {
            Ok(_) => true,
            Err(Error::NotFound) => false,
            Err(error) => panic!("{error}"),
        }
    }

    async fn log_is_there(&self, task: TaskId) -> bool {
        match self.store.events(self.tenant, task, 0, 1000).await {
            Ok(events) => {
                assert_eq!(events.len() as u64, self.store.head(self.tenant, task).await.unwrap().seq, "all of it");
                true
            }
            Err(Error::Pruned) => false,
            Err(error) => panic!("{error}"),
        }
    }

    async fn used(&self) -> Usage {
        self.store.usage(self.tenant).await.unwrap()
    }

    async fn delete(&self, removal: Removal) -> store::Result<Deleted> {
        self.store.delete(self.tenant, "tester", removal, 1).await
    }

    async fn last_entry(&self) -> AuditEntry {
        self.store.audit(None, 1).await.unwrap().remove(0)
    }
}

pub(super) async fn a_task_goes_with_all_that_is_its_own(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, accept) = world.begin("hello");
    let lease = world.accept(keyed(world.leased(accept), 1, 1)).await.unwrap().lease.unwrap();
    world.end(&lease, InputRequired, Some("which?")).await.unwrap();
    let lease = world.accept(keyed(world.leased(world.more(task, "this")), 2, 2)).await.unwrap().lease.unwrap();
    let push = NewPush {
        id: "a".into(),
        url: "https://receiver/hook".into(),
        receiver: "receiver:443".into(),
        scheme: "Bearer".into(),
        sealed: vec![1, 2, 3],
        dialect: Dialect::V1,
        chunks: false,
    };
    world.store.put_push(world.tenant, task, push).await.unwrap();
    world.complete(&lease).await;
    world.settle(0, PushState::Active, true).await;
    let before = world.used().await;
    let events = world.events(task).await.len() as u64;

    let pruned = world.prune_all(Prune::Tasks).await;
    assert_eq!((pruned.tasks, pruned.events, pruned.bytes), (1, events, before.bytes));
    assert_eq!(world.used().await, Usage::default(), "all of it is given back");
    let (store, tenant) = (&world.store, world.tenant);
    assert!(matches!(store.head(tenant, task).await, Err(Error::NotFound)));
    assert!(matches!(store.task(tenant, task, View::FULL).await, Err(Error::NotFound)));
    assert!(matches!(store.events(tenant, task, 0, 10).await, Err(Error::NotFound)));
    assert!(matches!(world.accept(world.more(task, "more")).await, Err(Error::NotFound)));
    assert!(matches!(store.replay_pushes(tenant, task, "a", Replay::All).await, Err(Error::NotFound)));
    let all = PushFilter { limit: 10, ..PushFilter::default() };
    assert!(store.pushes(tenant, all).await.unwrap().is_empty());
    assert!(store.tail(&Position::default(), 10).await.unwrap().0.is_empty());
    let page = store.list(tenant, everything()).await.unwrap();
    assert_eq!((page.tasks.len(), page.total), (0, 0));
    assert!(store.agent_queues(tenant).await.unwrap().is_empty());
    assert!(
        store.context_history(tenant, &world.agent, CONTEXT, TaskId::mint(), 10, u64::MAX).await.unwrap().is_empty()
    );
    assert!(store.audit(None, 10).await.unwrap().iter().all(|entry| entry.actor == "system"), "nobody did it");
    assert_eq!(world.prune_all(Prune::Tasks).await.tasks, 0);
}

pub(super) async fn a_log_goes_before_its_task(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, accept) = world.begin("hello");
    let accepted = world.accept(keyed(world.leased(accept.clone()), 1, 1)).await.unwrap();
    world.complete(&accepted.lease.unwrap()).await;
    let snapshot = world.task(task).await;
    let kept: usize = snapshot.history.iter().chain(snapshot.artifacts.iter().flatten()).map(|body| body.len()).sum();

    let pruned = world.prune_all(Prune::Events).await;
    assert_eq!((pruned.tasks, pruned.events), (0, snapshot.seq));
    assert_eq!(world.used().await, Usage { tasks: 0, bytes: kept as u64 });
    assert_eq!(world.task(task).await, snapshot, "the task stands as it ended");
    assert_eq!(world.store.head(world.tenant, task).await.unwrap().seq, snapshot.seq);
    for after in [0, 1, snapshot.seq - 1] {
        assert!(matches!(world.store.events(world.tenant, task, after, 10).await, Err(Error::Pruned)), "{after}");
    }
    assert!(world.store.events(world.tenant, task, snapshot.seq, 10).await.unwrap().is_empty(), "nothing is missing");
    assert!(world.accept(keyed(accept, 1, 1)).await.unwrap().duplicate, "a repetition finds it");
    assert_eq!(world.prune_all(Prune::Events).await.events, 0);
    let pruned = world.prune_all(Prune::Tasks).await;
    assert_eq!((pruned.tasks, pruned.events, pruned.bytes), (1, 0, kept as u64));
    assert_eq!(world.used().await, Usage::default());
}

pub(super) async fn what_somebody_needs_stays(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let waiting = world.waiting("later").await;
    let asking = world.asking("which?").await;
    let (held, _lease) = world.held("hold").await;
    let letter = world.dead_letter("dead").await;
    let mut told = Vec::new();
    for (name, chunks, letters, state, told_all) in [
        ("owed", false, 0, None, false),
        ("letters", false, 1, Some(PushState::Active), true),
        ("stopped", false, 100, Some(PushState::Stopped), false),
        ("chunks", true, 0, None, false),
        ("told", false, 0, Some(PushState::Active), true),
        ("gone", false, 0, Some(PushState::Gone), false),
    ] {
        let task = world.with_config(name, chunks).await;
        if let Some(state) = state {
            world.settle(letters, state, told_all).await;
        } else {
            // Somebody has it, so that it is not claimed again.
            let term = Term { holder: world.me(), lasts: MINUTE };
            let (busy, silent, after) = (Vec::new(), Vec::new(), None);
            let claim = PushClaim { term, slots: 1, per_tenant: 1, per_receiver: 1, busy, silent, after };
            assert_eq!(world.store.claim_pushes(claim).await.unwrap().leases.len(), 1);
        }
        told.push((name, task, matches!(name, "told" | "gone")));
    }
    let direct = world.direct("direct").await;

    world.prune_all(Prune::Events).await;
    for task in [waiting, asking, held, letter, direct] {
        assert!(world.log_is_there(task).await);
    }
    for (name, task, goes) in &told {
        assert_eq!(world.log_is_there(*task).await, !goes, "{name}");
    }
    let pruned = world.prune_all(Prune::Tasks).await;
    assert_eq!(pruned.tasks, 3);
    for task in [waiting, asking, held, letter] {
        assert!(world.is_there(task).await && world.log_is_there(task).await);
    }
    assert!(!world.is_there(direct).await, "its time has come");
    for (name, task, goes) in &told {
        assert_eq!(world.is_there(*task).await, !goes, "{name}");
    }
    let letters = Letters { agent: None, after: None, limit: 10 };
    assert_eq!(world.store.dead_letters(world.tenant, letters.clone()).await.unwrap().len(), 1);

    // What was replayed is as any other, and what was passed over is found by a walk that begins anew.
    let (again, mut accept) = world.begin("again");
    if let Target::New { post, .. } = &mut accept.target {
        post.replays = Some(letter);
    }
    world.accept(accept).await.unwrap();
    let walked = PruneStep { walk: pruned.walk, ..world.step(Prune::Tasks) };
    assert_eq!(world.walk(walked).await.0.tasks, 0, "a walk does not look back");
    assert_eq!(world.prune_all(Prune::Tasks).await.tasks, 1);
    assert!(!world.is_there(letter).await && world.is_there(again).await);
}

pub(super) async fn a_task_that_owes_a_cancel_stays_until_others_are_told(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = telling(&world).await;
    world.append(&lease, vec![kept("others")]).await.unwrap();
    world.end(&lease, Failed, None).await.unwrap();
    let other = world.other().await;
    let removals = [Removal::Task(task), Removal::Context(CONTEXT.to_owned()), Removal::Tenant];
    let owes = async || {
        let mut owes = Vec::new();
        for removal in &removals {
            owes.push(world.store.owes_cancels(world.tenant, removal.clone()).await.unwrap());
            assert!(!other.store.owes_cancels(other.tenant, removal.clone()).await.unwrap());
        }
        owes
    };
    assert_eq!(owes().await, [true; 3]);
    let elsewhere = [Removal::Task(TaskId::mint()), Removal::Context("elsewhere".to_owned())];
    for removal in &elsewhere {
        assert!(!world.store.owes_cancels(world.tenant, removal.clone()).await.unwrap());
    }
    assert_eq!(world.prune_all(Prune::Events).await.events, 0, "what is to be canceled stands in the log");
    assert_eq!(world.prune_all(Prune::Tasks).await.tasks, 0);
    assert!(world.log_is_there(task).await);
    let owed = world.store.owed_cancels(std::slice::from_ref(&world.agent), 1).await.unwrap().remove(0);
    world.store.settle_cancel(world.tenant, task, owed.generation).await.unwrap();
    assert_eq!(owes().await, [false; 3]);
    assert_ne!(world.prune_all(Prune::Events).await.events, 0);
    assert_eq!(world.prune_all(Prune::Tasks).await.tasks, 1);
}

pub(super) async fn what_is_young_stays(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let other = world.other().await;
    let young = world.ended("young").await;
    for what in [Prune::Events, Prune::Tasks] {
        let step = PruneStep { older_than: MINUTE, ..world.step(what) };
        assert_eq!(world.walk(step).await.0, Pruned { walk: PruneWalk::default(), ..Pruned::default() });
    }
    assert!(world.log_is_there(young).await);
    // What is somebody else's is not seen: another tenant's, another agent's.
    let theirs = other.ended("theirs").await;
    world.agent = agent("count");
    let counted = world.ended("counted").await;
    let of = |whose: Whose| PruneStep { whose, ..world.step(Prune::Tasks) };
    assert_eq!(world.walk(of(Whose::Agent(agent("nobody")))).await.0.tasks, 0);
    assert_eq!(world.walk(of(Whose::Agent(agent("count")))).await.0.tasks, 1);
    assert!(!world.is_there(counted).await && world.is_there(young).await);
    assert_eq!(world.walk(of(Whose::AllBut(vec![agent("echo")]))).await.0.tasks, 0);
    assert_eq!(world.walk(of(Whose::AllBut(vec![agent("count")]))).await.0.tasks, 1);
    assert!(!world.is_there(young).await && other.log_is_there(theirs).await);
    assert_eq!((world.used().await.bytes, world.total().await, other.total().await), (0, 0, 1));
}

pub(super) async fn a_step_is_small(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    for n in 0..210 {
        world.ended(&n.to_string()).await;
    }
    tick().await;
    let first = world.store.prune(world.step(Prune::Tasks)).await.unwrap();
    assert!((1..=50).contains(&first.tasks) && first.events <= 600 && first.more, "{first:?}");
    assert_eq!(world.total().await, 210 - first.tasks);
    // One that is to be larger is that, and bounded like others.
    let larger = PruneStep { size: 2, ..world.step(Prune::Tasks) };
    let larger = world.store.prune(larger).await.unwrap();
    assert!((51..=100).contains(&larger.tasks) && larger.more, "{larger:?}");
    let (rest, steps) = world.walk(world.step(Prune::Tasks)).await;
    assert_eq!((first.tasks + larger.tasks + rest.tasks, world.total().await), (210, 0));
    assert!(steps >= 2, "{steps}");
    assert_eq!(world.used().await, Usage::default());

    // A long log goes in pieces, from its begin.
    let (task, lease) = world.running("long").await;
    for _ in 0..12 {
        world.append(&lease, (0..100).map(|_| note()).collect()).await.unwrap();
    }
    world.end(&lease, Completed, None).await.unwrap();
    tick().await;
    let first = world.store.prune(world.step(Prune::Events)).await.unwrap();
    assert!((1..=500).contains(&first.events) && first.more, "{first:?}");
    let left = world.store.events(world.tenant, task, first.events, 10_000).await.unwrap();
    assert_eq!((left[0].seq, left.len() as u64), (first.events + 1, 1203 - first.events), "the rest has no gap");
    assert!(matches!(world.store.events(world.tenant, task, first.events - 1, 1).await, Err(Error::Pruned)));
    let walk = PruneStep { walk: first.walk, ..world.step(Prune::Events) };
    let (rest, _) = world.walk(walk).await;
    assert_eq!(first.events + rest.events, 1203);
    assert_eq!(world.prune_all(Prune::Tasks).await.tasks, 1);
    assert_eq!(world.used().await, Usage::default());
}

pub(super) async fn a_key_is_free_when_its_task_went(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    for (key, at_once) in [(1, false), (2, true)] {
        let (first, accept) = world.begin("once");
        let mut accept = keyed(world.leased(accept), key, 1);
        // One that expires by itself goes all the same.
        accept.idempotency = accept.idempotency.map(|key| IdempotencyKey { keep: Some(MINUTE), ..key });
        let lease = world.accept(accept).await.unwrap().lease.unwrap();
        world.complete(&lease).await;
        if at_once {
            world.delete(Removal::Task(first)).await.unwrap();
        } else {
            assert_eq!(world.prune_all(Prune::Tasks).await.tasks, 1);
        }
        let (second, accept) = world.begin("another");
        let accepted = world.accept(keyed(accept, key, 2)).await.unwrap();
        assert_eq!((accepted.task, accepted.duplicate), (second, false));
        assert_ne!(first, second);
    }
}

pub(super) async fn a_task_is_deleted_at_once(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let other = world.other().await;
    let stays = world.ended("stays").await;
    let kept = world.used().await.bytes;
    let (running, lease) = world.running("running").await;
    let refused = world.delete(Removal::Task(running)).await;
    assert!(matches!(refused, Err(Error::NotEnded(TaskState::Working))), "{refused:?}");
    world.complete(&lease).await;
    let entries = world.store.audit(None, 100).await.unwrap().len();
    for (by, task) in [(&other, running), (&world, TaskId::mint()), (&world, world.direct("direct").await)] {
        let refused = by.delete(Removal::Task(task)).await;
        assert!(matches!(refused, Err(Error::NotFound)), "{refused:?}");
    }
    assert_eq!(world.store.audit(None, 100).await.unwrap().len(), entries, "what was refused is not written down");
    world.prune_all(Prune::Events).await;
    assert!(world.is_there(running).await);

    let owing = world.with_config("owed", false).await;
    let letter = world.dead_letter("dead").await;
    for task in [running, owing, letter] {
        let before = world.used().await.bytes;
        let deleted = world.delete(Removal::Task(task)).await.unwrap();
        assert_eq!((deleted.tasks, deleted.more), (1, false));
        assert_eq!(world.used().await.bytes, before - deleted.bytes);
        assert!(!world.is_there(task).await);
        let entry = world.last_entry().await;
        assert_eq!((entry.actor.as_str(), entry.action.as_str()), ("tester", "task_deleted"));
        assert!(entry.detail.contains(&task.to_string()) && entry.detail.contains(&deleted.bytes.to_string()));
        assert!(!entry.detail.contains("done") && !entry.detail.contains("broken"), "nothing that was said");
        assert!(matches!(world.delete(Removal::Task(task)).await, Err(Error::NotFound)), "only once");
    }
    assert!(world.store.next_push().await.unwrap().1.is_none(), "nobody is told of what is gone");
    world.delete(Removal::Context(CONTEXT.into())).await.unwrap();
    assert!(!world.is_there(stays).await && kept > 0);
    assert_eq!(world.used().await, Usage::default());
}

pub(super) async fn a_context_is_deleted_with_all_its_tasks(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let other = world.other().await;
    let theirs = other.ended("theirs").await;
    let context = || Removal::Context(CONTEXT.into());
    assert!(matches!(world.delete(context()).await, Err(Error::NotFound)));
    let direct = world.direct("direct").await;
    let (held, held_lease) = world.held("hold").await;
    let asking = world.asking("which?").await;
    for n in 0..60 {
        world.ended(&n.to_string()).await;
    }
    let before = world.used().await;
    let refused = world.delete(context()).await;
    assert!(matches!(refused, Err(Error::NotEnded(_))), "{refused:?}");
    assert_eq!(world.used().await, before, "a refusal changes nothing");
    let mut unfinished = world.store.unfinished(world.tenant, CONTEXT, 10).await.unwrap();
    unfinished.sort();
    let mut expected = vec![held, asking];
    expected.sort();
    assert_eq!(unfinished, expected);
    assert!(world.store.unfinished(other.tenant, CONTEXT, 10).await.unwrap().is_empty());
    world.finish(&held_lease, reply(held, "hi")).await.unwrap();
    world.store.mark_cancel(world.tenant, asking).await.unwrap();

    let before = world.used().await.bytes;
    let first = world.delete(context()).await.unwrap();
    assert!(first.more && first.tasks <= 50);
    let entry = world.last_entry().await;
    assert_eq!(entry.action, "context_deleted");
    assert!(entry.detail.contains(CONTEXT) && entry.detail.contains(&first.bytes.to_string()), "{}", entry.detail);
    let second = world.delete(context()).await.unwrap();
    assert_eq!((first.tasks + second.tasks, first.bytes + second.bytes), (63, before));
    assert!(!second.more && matches!(world.delete(context()).await, Err(Error::NotFound)));
    assert!(!world.is_there(direct).await && other.log_is_there(theirs).await);
    assert_eq!((world.used().await, world.total().await), (Usage::default(), 0));
}

pub(super) async fn a_tenant_is_deleted_with_all_that_is_its_own(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let other = world.other().await;
    let theirs = other.ended("theirs").await;
    let token =
        |tenant, hash| NewToken { tenant, hash: [hash; 32], name: "t".into(), expires: None, reach: Reach::default() };
    world.store.add_token(token(world.tenant, 1)).await.unwrap();
    world.store.add_token(token(other.tenant, 2)).await.unwrap();
    world.store.put_card(world.tenant, &world.agent, b"{}".to_vec(), 8).await.unwrap();
    world.store.create_agent(world.tenant, &world.agent, b"{}".to_vec(), 8).await.unwrap();
    let signing = |tenant: store::TenantId| format!("push.signing.{}", tenant.0);
    for tenant in [world.tenant, other.tenant] {
        world.store.set_setting("tester", &signing(tenant), b"secret".to_vec()).await.unwrap();
    }
    let (begun, accept) = world.begin("slow");
    let lease = world.accept(keyed(world.leased(accept), 1, 1)).await.unwrap().lease.unwrap();
    world.direct("direct").await;
    for n in 0..60 {
        world.ended(&n.to_string()).await;
    }
    let delete_tenant = async || world.store.administer("tester", Change::DeleteTenant(world.tenant)).await;
    let refused = delete_tenant().await;
    assert!(refused.as_ref().is_err_and(Error::is_refusal), "it has tasks: {refused:?}");
    assert_eq!(world.store.unfinished_of(world.tenant, 10).await.unwrap(), [begun]);
    let before = world.used().await;
    assert!(matches!(world.delete(Removal::Tenant).await, Err(Error::NotEnded(_))));
    assert_eq!(world.used().await, before, "a refusal changes nothing");
    world.end(&lease, Completed, None).await.unwrap();

    let first = world.delete(Removal::Tenant).await.unwrap();
    assert!(first.more && first.tasks <= 50);
    assert_eq!(world.last_entry().await.action, "tenant_tasks_deleted");
    let second = world.delete(Removal::Tenant).await.unwrap();
    assert_eq!((first.tasks + second.tasks, second.more), (62, false));
    assert!(matches!(world.delete(Removal::Tenant).await, Err(Error::NotFound)));
    let revision = world.store.credentials_revision().await.unwrap();
    assert_eq!(delete_tenant().await.unwrap().tenant.id, world.tenant);
    assert!(world.store.credentials_revision().await.unwrap() > revision, "instances look at tokens again");
    let entry = world.last_entry().await;
    assert_eq!((entry.actor.as_str(), entry.action.as_str()), ("tester", "delete_tenant"));
    assert!(entry.detail.contains("first"), "{}", entry.detail);

    assert!(matches!(delete_tenant().await, Err(Error::NotFound)), "only once");
    assert_eq!(world.store.tenants().await.unwrap().len(), 1);
    assert!(world.store.token(&[1; 32]).await.unwrap().is_none());
    assert!(world.store.token(&[2; 32]).await.unwrap().is_some());
    assert!(world.store.cards(world.tenant, u64::MAX).await.unwrap().is_empty());
    assert!(world.store.all_agents().await.unwrap().1.is_empty());
    assert!(world.store.find_setting(&signing(world.tenant)).await.unwrap().is_none());
    assert!(world.store.find_setting(&signing(other.tenant)).await.unwrap().is_some());
    assert_eq!(world.used().await, Usage::default());
    assert!(other.log_is_there(theirs).await);
    // Its name is free, its number is not.
    let again = world.store.create_tenant("first").await.unwrap();
    assert_ne!(again.id, world.tenant);
}

pub(super) async fn a_step_of_a_tenants_deletion_looks_only_at_what_it_removes(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    for n in 0..170 {
        world.ended(&n.to_string()).await;
    }
    // Its id is the highest, so that it is among the last.
    let (unfinished, lease) = world.running("slow").await;
    let first = world.delete(Removal::Tenant).await.unwrap();
    assert!(first.more && first.tasks == 50, "{first:?}");
    let larger = world.store.delete(world.tenant, "tester", Removal::Tenant, 2).await.unwrap();
    assert!(larger.more && larger.tasks == 100, "{larger:?}");
    let before = world.used().await;
    assert!(matches!(world.delete(Removal::Tenant).await, Err(Error::NotEnded(_))));
    assert_eq!(world.used().await, before, "a refusal changes nothing");
    assert!(world.is_there(unfinished).await);
    world.end(&lease, Completed, None).await.unwrap();
    let second = world.delete(Removal::Tenant).await.unwrap();
    assert_eq!((second.tasks, second.more), (21, false));
}

pub(super) async fn a_lease_of_a_deleted_task_is_void(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("slow").await;
    world.append(&lease, vec![artifact(task, "a", "one", false)]).await.unwrap();
    world.store.mark_cancel(world.tenant, task).await.unwrap();
    world.store.force_cancel(world.tenant, task).await.unwrap();
    world.delete(Removal::Task(task)).await.unwrap();
    // Its turn does not know that yet.
    let late = world.append(&lease, vec![artifact(task, "a", "two", true)]).await;
    assert!(late.is_err_and(|error| error.is_refusal()));
    let late = world.end(&lease, Completed, Some("done")).await;
    assert!(late.is_err_and(|error| error.is_refusal()));
    assert_eq!(world.store.renew(std::slice::from_ref(&lease), MINUTE).await.unwrap(), [lease]);
    assert_eq!((world.used().await, world.total().await), (Usage::default(), 0));
    let next = world.ended("next").await;
    assert_eq!(world.task(next).await.artifacts.len(), 1, "and it is nobody else's");
}

pub(super) async fn writing_goes_on_while_tasks_go(store: Arc<dyn Store>) {
    let world = Arc::new(World::new(store).await);
    let done = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for writer in 0..4 {
        let world = Arc::clone(&world);
        writers.push(tokio::spawn(async move {
            for n in 0..30 {
                world.ended(&format!("{writer} {n}")).await;
            }
            world.asking("which?").await
        }));
    }
    let mut removers = Vec::new();
    for what in [Prune::Tasks, Prune::Events] {
        let (world, done) = (Arc::clone(&world), Arc::clone(&done));
        removers.push(tokio::spawn(async move {
            let mut tasks = 0;
            while !done.load(Relaxed) {
                tasks += world.prune_all(what).await.tasks;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tasks
        }));
    }
    let mut asking = Vec::new();
    for writer in writers {
        asking.push(writer.await.unwrap());
    }
    done.store(true, Relaxed);
    let mut removed = 0;
    for remover in removers {
        removed += remover.await.unwrap();
    }
    // Those that were locked at the moment are found by another walk.
    removed += world.prune_all(Prune::Tasks).await.tasks;
    assert_eq!((removed, world.total().await), (120, 4));
    let mut bytes = 0;
    for task in asking {
        let log: usize = world.events(task).await.iter().map(|event| event.body.len()).sum();
        let history: usize = world.task(task).await.history.iter().map(|body| body.len()).sum();
        bytes += (log + history) as u64;
    }
    assert_eq!(world.used().await, Usage { tasks: 4, bytes });
}
