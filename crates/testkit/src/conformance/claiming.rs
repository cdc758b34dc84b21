//! Who gets what of the work that is due: room, fairness, and whose leases are left alone.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use a2a::TaskState::Completed;

use super::world::*;
use store::{
    Accept, Append, Claim, Error, Holder, Lease, LeasedTurn, Room, Shares, Store, TaskId, TenantId, Tenants, Term,
    TurnEnd,
};

impl World {
    /// The same store for one more tenant.
    async fn neighbour(&self, name: &str) -> Self {
        let tenant = self.store.create_tenant(name).await.unwrap().id;
        Self { store: Arc::clone(&self.store), tenant, agent: self.agent.clone() }
    }

    /// So many tasks that wait, the oldest first.
    async fn line(&self, n: usize) -> Vec<TaskId> {
        let mut tasks = Vec::new();
        for _ in 0..n {
            tasks.push(self.waiting("hello").await);
            tick().await;
        }
        tasks
    }

    /// Leases what there is room for, the tenant after `after` first.
    async fn take(&self, slots: usize, after: Option<TenantId>) -> Vec<LeasedTurn> {
        let room = Room { after, ..Room::new(self.agent.clone(), slots) };
        self.store.claim(self.claim(vec![room])).await.unwrap()
    }

    /// A claim of everything that is due, by this instance.
    fn claim_of(&self, slots: usize) -> Claim {
        self.claim(vec![Room::new(self.agent.clone(), slots)])
    }
}

fn tasks(turns: &[LeasedTurn]) -> Vec<TaskId> {
    turns.iter().map(|turn| turn.lease.task).collect()
}

fn tasks_of(turns: &[LeasedTurn], tenant: TenantId) -> Vec<TaskId> {
    turns.iter().filter(|turn| turn.lease.tenant == tenant).map(|turn| turn.lease.task).collect()
}

/// Leased to somebody else, whose lease has run out.
fn forsaken(accept: Accept, by: &Holder) -> Accept {
    Accept { lease: Some(Term { holder: by.clone(), lasts: NOTHING }), ..accept }
}

pub(super) async fn each_agent_has_room_of_its_own(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let echo = world.line(3).await;
    world.agent = agent("other");
    world.line(8).await;
    let claim = |echo: usize, other: usize| {
        let room = vec![Room::new(agent("echo"), echo), Room::new(agent("other"), other)];
        world.store.claim(world.claim(room))
    };
    let count = |turns: &[LeasedTurn], name: &str| turns.iter().filter(|turn| turn.lease.agent == agent(name)).count();
    let first = claim(1, 20).await.unwrap();
    assert_eq!((count(&first, "echo"), count(&first, "other")), (1, 8));
    assert!(tasks(&first).contains(&echo[0]), "the oldest");
    assert!(claim(0, 20).await.unwrap().is_empty(), "no room is no room");
    let rest = claim(5, 0).await.unwrap();
    assert_eq!(tasks(&rest), echo[1..]);
}

pub(super) async fn a_backlog_holds_up_nobody_else(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let oldest = world.line(9).await;
    let mut rest = Vec::new();
    for _ in 0..191 {
        let (_, accept) = world.begin("hello");
        let (store, tenant) = (Arc::clone(&world.store), world.tenant);
        rest.push(tokio::spawn(async move { store.accept(tenant, accept).await.unwrap().task }));
    }
    for call in rest {
        call.await.unwrap();
    }
    let other = world.other().await;
    let last = other.waiting("hello").await;

    let turns = world.take(4, None).await;
    assert_eq!(tasks_of(&turns, other.tenant), [last], "it came last, and is among the first");
    assert_eq!(tasks_of(&turns, world.tenant), oldest[..3], "oldest first");
    // What one has no use for the other gets.
    assert_eq!(tasks(&world.take(6, None).await), oldest[3..]);
    let mut seen: HashSet<TaskId> = HashSet::new();
    loop {
        let turns = world.take(50, None).await;
        if turns.is_empty() {
            break;
        }
        assert!(turns.len() <= 50);
        assert!(tasks(&turns).iter().all(|task| seen.insert(*task)), "one was given twice");
    }
    assert_eq!(seen.len(), 191);
}

pub(super) async fn what_a_tenant_leaves_the_others_get(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let other = world.other().await;
    let third = world.neighbour("third").await;
    let (one, two, three) = (world.line(1).await, other.line(7).await, third.line(2).await);
    let turns = world.take(8, None).await;
    assert_eq!(tasks_of(&turns, world.tenant), one);
    assert_eq!(tasks_of(&turns, other.tenant), two[..5]);
    assert_eq!(tasks_of(&turns, third.tenant), three);
}

pub(super) async fn tenants_are_served_in_turn(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let worlds = [world.neighbour("second").await, world.neighbour("third").await, world];
    let world = &worlds[2];
    let mut waiting = Vec::new();
    for world in &worlds {
        waiting.push((world.tenant, world.line(3).await));
    }
    waiting.sort_unstable_by_key(|(tenant, _)| *tenant);
    let mut after = None;
    for round in 0..3 {
        for (tenant, line) in &waiting {
            let turns = world.take(1, after).await;
            assert_eq!(tasks(&turns), [line[round]], "round {round}");
            assert_eq!(turns[0].lease.tenant, *tenant);
            after = Some(*tenant);
        }
    }
    assert!(world.take(1, after).await.is_empty());

    // Nor is the odd slot always the same one's.
    let mut served: HashMap<TenantId, usize> = HashMap::new();
    for world in &worlds {
        world.line(8).await;
    }
    for _ in 0..3 {
        let turns = world.take(4, after).await;
        assert_eq!(turns.len(), 4);
        // Whoever comes last was served last.
        after = turns.last().map(|turn| turn.lease.tenant);
        turns.iter().for_each(|turn| *served.entry(turn.lease.tenant).or_default() += 1);
    }
    assert_eq!(served.into_values().collect::<Vec<_>>(), [4, 4, 4]);
}

pub(super) async fn what_one_runs_is_never_claimed(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    let free = world.waiting("hello").await;
    world.run_out(&lease).await;
    let all = || world.claim(vec![Room::new(world.agent.clone(), 10)]);
    let turns = world.store.claim(Claim { running: vec![task], ..all() }).await.unwrap();
    assert_eq!(tasks(&turns), [free], "it is at work on the other one");
    world.append(&lease, vec![artifact(task, "a", "x", false)]).await.unwrap();
    // A renewal that comes late is still a renewal.
    assert!(world.store.renew(std::slice::from_ref(&lease), MINUTE).await.unwrap().is_empty());
    assert!(world.store.claim(all()).await.unwrap().is_empty());
    assert_eq!(world.kinds(task).await, [CREATED, STARTED, ARTIFACT]);

    // One's own that one does not work on: the answer that gave it never came. Nobody has to be called for that.
    world.run_out(&lease).await;
    let turns = world.store.claim(world.claim_of(10)).await.unwrap();
    assert_eq!(tasks(&turns), [task]);
    assert_eq!((turns[0].interrupted, turns[0].lease.attempt, turns[0].lease.tries), (true, 2, 2));
    assert!(matches!(world.append(&lease, vec![]).await, Err(Error::LeaseLost)));
    world.end(&turns[0].lease, Completed, None).await.unwrap();
}

pub(super) async fn a_holder_has_a_last_call(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let other = Holder::worker("x");
    let lease_of = |accept| async { world.accept(forsaken(accept, &other)).await.unwrap().lease.unwrap() };
    let expired = lease_of(world.begin("expired").1).await;
    let released = lease_of(world.begin("released").1).await;
    let retried = lease_of(world.begin("retried").1).await;
    world.finish(&released, TurnEnd::Release { begun: true }).await.unwrap();
    world.finish(&retried, TurnEnd::Retry { after: NOTHING, error: "no luck".to_owned() }).await.unwrap();
    let never = world.waiting("never").await;
    let claim = |lasts| {
        let term = Term { holder: world.me(), lasts };
        let claim = Claim::new(term, vec![Room::new(world.agent.clone(), 10)]);
        async { world.store.claim(claim).await.unwrap() }
    };

    let turns = claim(MINUTE).await;
    let taken: HashSet<(TaskId, bool)> = turns.iter().map(|turn| (turn.lease.task, turn.interrupted)).collect();
    assert_eq!(taken, HashSet::from([(released.task, true), (retried.task, false), (never, false)]));
    // The holder has half a minute now, and heeds the call.
    assert!(claim(MINUTE).await.is_empty());
    world.append(&expired, vec![]).await.unwrap();
    assert!(world.store.renew(std::slice::from_ref(&expired), NOTHING).await.unwrap().is_empty());
    // The next time it does not.
    assert!(claim(Duration::from_millis(20)).await.is_empty(), "whoever renews has a call again");
    tokio::time::sleep(Duration::from_millis(50)).await;
    world.append(&expired, vec![artifact(expired.task, "a", "alive", false)]).await.unwrap();
    assert!(claim(Duration::from_millis(20)).await.is_empty(), "and whoever writes");
    tokio::time::sleep(Duration::from_millis(50)).await;
    let turns = claim(MINUTE).await;
    assert_eq!(tasks(&turns), [expired.task]);
    assert!(turns[0].interrupted);
    assert_eq!((&turns[0].lease.holder, turns[0].lease.attempt), (&world.me(), 2));
    assert!(matches!(world.append(&expired, vec![]).await, Err(Error::LeaseLost)));
    // A call is nothing that readers of the log see.
    assert_eq!(world.kinds(expired.task).await, [CREATED, STARTED, ARTIFACT, AGAIN]);
}

/// What nobody may take stands in no one's way, however little room there is.
pub(super) async fn what_may_not_be_claimed_is_passed_over(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let other = world.other().await;
    let third = world.neighbour("third").await;
    let mut running = Vec::new();
    for world in [&world, &other] {
        for _ in 0..3 {
            let (task, lease) = world.running("mine").await;
            world.run_out(&lease).await;
            running.push(task);
        }
    }
    let (mine, theirs) = (world.line(1).await[0], third.line(2).await);
    let mut after = None;
    let mut taken = Vec::new();
    for _ in 0..3 {
        let room = Room { after, ..Room::new(world.agent.clone(), 1) };
        let claim = Claim { running: running.clone(), ..world.claim(vec![room]) };
        let turns = world.store.claim(claim).await.unwrap();
        assert_eq!(turns.len(), 1, "{taken:?} were taken, and there is more");
        after = Some(turns[0].lease.tenant);
        taken.push(turns[0].lease.task);
    }
    assert_eq!(taken, [mine, theirs[0], theirs[1]]);
    let claim = Claim { running: running.clone(), ..world.claim_of(10) };
    assert!(world.store.claim(claim).await.unwrap().is_empty());
    assert_eq!(world.lease().await.len(), 6, "who does not run them takes them over");
}

pub(super) async fn a_lease_belongs_to_its_holder(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (worker, other) = (Holder::worker("one"), Holder::worker("two"));
    let term = Term { holder: worker.clone(), lasts: MINUTE };
    let (task, accept) = world.begin("hello");
    let lease = world.accept(Accept { lease: Some(term), ..accept }).await.unwrap().lease.unwrap();
    assert_eq!(lease.holder, worker);
    let before = (world.task(task).await, world.events(task).await);
    for holder in [other.clone(), world.me()] {
        let stolen = Lease { holder, ..lease.clone() };
        let stolen_ones = std::slice::from_ref(&stolen);
        let append = Append { drafts: vec![artifact(task, "a", "stolen", false)], end: None, ..Append::default() };
        let refused = world.store.append(&stolen, append).await;
        assert!(matches!(refused, Err(Error::LeaseLost)), "{refused:?}");
        let refused = world.end(&stolen, Completed, None).await;
        assert!(matches!(refused, Err(Error::LeaseLost)), "{refused:?}");
        assert_eq!(world.store.renew(stolen_ones, NOTHING).await.unwrap(), stolen_ones);
    }
    assert_eq!((world.task(task).await, world.events(task).await), before);

    // This instance is not the holder, and writes for it.
    world.append(&lease, vec![artifact(task, "a", "made", false)]).await.unwrap();
    world.store.mark_cancel(world.tenant, task).await.unwrap();
    assert_eq!(world.store.marked(std::slice::from_ref(&worker)).await.unwrap(), [task]);
    assert!(world.store.marked(std::slice::from_ref(&other)).await.unwrap().is_empty());
    assert!(world.store.marked(&[world.me()]).await.unwrap().is_empty());
    world.end(&lease, Completed, None).await.unwrap();

    // A worker claims as an instance does.
    let waiting = world.waiting("hello").await;
    let term = Term { holder: other.clone(), lasts: MINUTE };
    let claim = Claim::new(term, vec![Room::new(world.agent.clone(), 1)]);
    let turn = world.store.claim(claim).await.unwrap().remove(0);
    assert_eq!((turn.lease.task, &turn.lease.holder), (waiting, &other));
    assert_eq!(world.store.reclaim_dead().await.unwrap(), 0, "nobody knows that a worker is dead");
    world.end(&turn.lease, Completed, None).await.unwrap();
}

pub(super) async fn a_tenant_has_no_more_than_its_share(store: Arc<dyn Store>) {
    let first = World::new(store).await;
    let (second, third) = (first.neighbour("second").await, first.neighbour("third").await);
    first.line(9).await;
    second.line(1).await;
    third.line(9).await;
    let take = async |slots: usize, each: usize, running: &[(TenantId, usize)]| {
        let shares = Shares { each: Some(each), running: running.to_vec() };
        let room = Room { shares, ..Room::new(first.agent.clone(), slots) };
        let taken = first.store.claim(first.claim(vec![room])).await.unwrap();
        [&first, &second, &third].map(|world| tasks_of(&taken, world.tenant).len())
    };
    // Of what one leaves the others get no more than they may.
    assert_eq!(take(20, 3, &[]).await, [3, 1, 3]);
    assert_eq!(take(20, 3, &[(first.tenant, 3), (third.tenant, 2)]).await, [0, 0, 1]);
    assert_eq!(take(20, 3, &[(first.tenant, 7), (third.tenant, 3)]).await, [0, 0, 0]);
    assert_eq!(take(2, 3, &[]).await, [1, 0, 1]);
    assert_eq!(take(20, 20, &[]).await, [5, 0, 4]);
}

pub(super) async fn room_can_be_for_one_tenant_or_for_all_but_some(store: Arc<dyn Store>) {
    let first = World::new(store).await;
    let second = first.other().await;
    let (mine, theirs) = (first.waiting("mine").await, second.waiting("theirs").await);
    let room = |tenants: Tenants| Room { tenants, ..Room::new(first.agent.clone(), 10) };
    let claimed = async |rooms: Vec<Room>| {
        let leased = first.store.claim(first.claim(rooms)).await.unwrap();
        leased.into_iter().map(|turn| turn.lease.task).collect::<Vec<_>>()
    };
    let nobody = TenantId(first.tenant.0 + 1000);
    assert!(claimed(vec![room(Tenants::Only(nobody))]).await.is_empty());
    assert!(claimed(vec![room(Tenants::AllBut(vec![first.tenant, second.tenant]))]).await.is_empty());
    assert_eq!(claimed(vec![room(Tenants::AllBut(vec![first.tenant]))]).await, [theirs]);
    assert!(claimed(vec![room(Tenants::Only(second.tenant))]).await.is_empty(), "it is taken");
    assert_eq!(claimed(vec![room(Tenants::Only(first.tenant))]).await, [mine]);
    // Two rooms of one agent in one claim: each gives what is its own.
    let (mine, theirs) = (first.waiting("mine").await, second.waiting("theirs").await);
    first.waiting("too many").await;
    let one = Room { slots: 1, resumes: true, ..room(Tenants::Only(first.tenant)) };
    let mut both = claimed(vec![one, room(Tenants::AllBut(vec![first.tenant]))]).await;
    both.sort_unstable();
    let mut expected = vec![mine, theirs];
    expected.sort_unstable();
    assert_eq!(both, expected);
}
