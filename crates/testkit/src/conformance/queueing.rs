//! The queue: who gets which entry, what becomes of attempts that fail, and dead letters.

use std::{collections::HashSet, sync::Arc, time::Duration};

use a2a::TaskState::{self, Canceled, Completed, Failed, InputRequired, Submitted, Working};

use super::world::*;
use store::{
    Accept, AgentId, Append, CancelMark, Claim, Error, Holder, Lease, LeaseTime, LeasedTurn, Letters, Only, Post, Room,
    Store, Target, TaskId, TenantId, Term, TurnEnd, Wish,
};

impl World {
    /// A new entry.
    async fn post(&self, says: &str, post: Post) -> TaskId {
        let (task, accept) = self.begin(says);
        self.accept(posted(accept, Post { queued: true, ..post })).await.unwrap();
        tick().await;
        task
    }

    async fn queued(&self, says: &str) -> TaskId {
        self.post(says, Post::default()).await
    }

    /// What somebody gets who asks for entries of this tenant.
    async fn consume(&self, worker: &str, slots: usize) -> Vec<LeasedTurn> {
        self.consume_of(Some(self.tenant), worker, slots).await
    }

    async fn consume_of(&self, tenant: Option<TenantId>, worker: &str, slots: usize) -> Vec<LeasedTurn> {
        let room = Room::new(self.agent.clone(), slots);
        self.store.claim(Claim::of_queue(term(worker), tenant, room)).await.unwrap()
    }

    async fn consume_one(&self, worker: &str) -> Lease {
        let mut leased = self.consume(worker, 1).await;
        assert_eq!(leased.len(), 1, "{leased:?}");
        leased.remove(0).lease
    }

    async fn retry(&self, lease: &Lease, error: &str) {
        self.finish(lease, TurnEnd::Retry { after: NOTHING, error: error.to_owned() }).await.unwrap();
    }

    async fn give_up(&self, lease: &Lease, error: &str) {
        let status = status(lease.task, Failed, Some(error));
        self.finish(lease, TurnEnd::GiveUp { status, error: error.to_owned(), dead: true }).await.unwrap();
    }

    async fn letters(&self) -> Vec<TaskId> {
        let letters = Letters { limit: 100, ..Letters::default() };
        self.store.dead_letters(self.tenant, letters).await.unwrap().iter().map(|entry| entry.task).collect()
    }

    async fn lapsed(&self, agent: Option<AgentId>) -> Vec<Lease> {
        self.store.lapsed(agent, LeaseTime::default(), 10).await.unwrap().1
    }

    /// A new dead letter.
    async fn letter(&self, says: &str) -> TaskId {
        let task = self.queued(says).await;
        self.give_up(&self.consume_one("w").await, "no").await;
        task
    }
}

fn posted(mut accept: Accept, new: Post) -> Accept {
    if let Target::New { post, .. } = &mut accept.target {
        *post = new;
    }
    accept
}

fn term(worker: &str) -> Term {
    Term { holder: Holder::worker(worker), lasts: MINUTE }
}

fn ids(leased: &[LeasedTurn]) -> Vec<TaskId> {
    leased.iter().map(|turn| turn.lease.task).collect()
}

pub(super) async fn entries_wait_for_whoever_asks(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let entry = world.queued("go").await;
    assert!(world.lease().await.is_empty(), "no instance runs it by itself");
    let plain = world.waiting("run me").await;
    let leased = world.consume("w", 10).await;
    assert_eq!(ids(&leased), [entry], "what instances run is not handed out");
    assert_eq!(leased[0].lease.holder.name(), "w");
    assert_eq!(turn_says(&leased[0].turn), "go");
    assert_eq!(ids(&world.lease().await), [plain]);
    assert!(world.consume("other", 10).await.is_empty());
    world.end(&leased[0].lease, Completed, None).await.unwrap();
    assert_eq!(world.kinds(entry).await, [CREATED, STARTED, ends(Completed)]);
    assert_eq!(world.store.next_due(std::slice::from_ref(&world.agent)).await.unwrap().agents, []);
}

pub(super) async fn the_higher_comes_first_then_the_older(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let low = world.queued("a").await;
    let low_too = world.queued("b").await;
    let high = world.post("c", Post { priority: 9, ..Post::default() }).await;
    let middle = world.post("d", Post { priority: 4, ..Post::default() }).await;
    let high_too = world.post("e", Post { priority: 9, ..Post::default() }).await;
    assert_eq!(ids(&world.consume("w", 2).await), [high, high_too]);
    assert_eq!(ids(&world.consume("w", 2).await), [middle, low]);
    assert_eq!(ids(&world.consume("w", 2).await), [low_too]);
}

pub(super) async fn a_delay_is_kept_unless_the_entry_is_named(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let late = world.post("late", Post { delay: MINUTE, priority: 9, ..Post::default() }).await;
    let now = world.queued("now").await;
    let wish = Wish { agent: world.agent.clone(), tenant: Some(world.tenant) };
    let any = Wish { agent: world.agent.clone(), tenant: None };
    let none = Wish { agent: agent("nobody"), tenant: None };
    let (at, times) = world.store.next_queued(&[wish.clone(), none.clone(), any.clone()]).await.unwrap();
    assert!(times[0] <= Some(at) && times[0].is_some() && times[1].is_none() && times[2] == times[0]);
    assert_eq!(ids(&world.consume("w", 5).await), [now]);
    let entry = world.store.entry(Some(world.tenant), late).await.unwrap();
    assert!(entry.due_in.unwrap() > MINUTE / 2);
    let leased = world.store.claim_task(world.tenant, late, term("w"), false).await.unwrap();
    assert_eq!(leased.lease.task, late);
    let (at, times) = world.store.next_queued(&[wish, none, any]).await.unwrap();
    assert!(times[0].unwrap().since(at) > MINUTE / 2, "the next lease to run out: {times:?}");
}

pub(super) async fn an_entry_is_claimed_once_by_its_id(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (first, second) = (world.queued("a").await, world.queued("b").await);
    let leased = world.store.claim_task(world.tenant, second, term("w"), false).await.unwrap();
    let again = world.store.claim_task(world.tenant, second, term("x"), false).await;
    assert!(matches!(again, Err(Error::NotWaiting)), "{again:?}");
    assert_eq!(world.state(first).await, Submitted);
    let other = world.other().await;
    let foreign = world.store.claim_task(other.tenant, first, term("w"), false).await;
    assert!(matches!(foreign, Err(Error::NotFound)), "{foreign:?}");
    let plain = world.waiting("run me").await;
    let refused = world.store.claim_task(world.tenant, plain, term("w"), false).await;
    assert!(matches!(refused, Err(Error::NotWaiting)), "{refused:?}");
    world.end(&leased.lease, InputRequired, Some("?")).await.unwrap();
    let asks = world.store.claim_task(world.tenant, second, term("w"), false).await;
    assert!(matches!(asks, Err(Error::NotWaiting)), "{asks:?}");
    world.accept(world.more(second, "!")).await.unwrap();
    let leased = world.store.claim_task(world.tenant, second, term("w"), false).await.unwrap();
    assert_eq!((leased.turn.number, leased.lease.turn), (2, 2));
    world.end(&leased.lease, Completed, None).await.unwrap();
    let ended = world.store.claim_task(world.tenant, second, term("w"), false).await;
    assert!(matches!(ended, Err(Error::Terminal(Completed))), "{ended:?}");
}

pub(super) async fn twenty_at_once_get_each_entry_once(store: Arc<dyn Store>) {
    let world = Arc::new(World::new(store).await);
    let mut all = HashSet::new();
    for n in 0..10 {
        all.insert(world.queued(&n.to_string()).await);
    }
    let mut asking = tokio::task::JoinSet::new();
    for n in 0..20 {
        let world = Arc::clone(&world);
        asking.spawn(async move { world.consume(&n.to_string(), 1).await });
    }
    let mut taken = Vec::new();
    while let Some(leased) = asking.join_next().await {
        taken.extend(ids(&leased.unwrap()));
    }
    assert_eq!(taken.len(), 10);
    assert_eq!(taken.into_iter().collect::<HashSet<_>>(), all);
}

pub(super) async fn entries_are_shared_among_tenants_only_by_who_serves_all(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let other = world.other().await;
    let mine = [world.queued("a").await, world.queued("b").await];
    let theirs = other.queued("c").await;
    assert_eq!(ids(&other.consume("w", 5).await), [theirs], "a tenant gets its own");
    let theirs = other.queued("d").await;
    let leased = world.consume_of(None, "operator", 2).await;
    assert_eq!(ids(&leased), [mine[0], theirs], "one of each in turn");
    assert_eq!(leased[1].lease.tenant, other.tenant);
    assert_eq!(ids(&world.consume_of(None, "operator", 5).await), [mine[1]]);
}

pub(super) async fn an_attempt_that_failed_waits_again_and_says_why(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let task = world.post("go", Post { max_attempts: Some(7), from: "me".into(), ..Post::default() }).await;
    let first = world.consume_one("one").await;
    assert_eq!((first.attempt, first.tries, first.max_attempts), (1, 1, Some(7)));
    world.append(&first, vec![artifact(task, "a", "half", false)]).await.unwrap();
    world.retry(&first, "broken").await;
    assert_eq!(world.state(task).await, Submitted, "it is pending again");
    let late = world.end(&first, Completed, None).await;
    assert!(matches!(late, Err(Error::LeaseLost)), "{late:?}");

    let second = world.consume_one("two").await;
    assert_eq!((second.attempt, second.tries), (2, 2));
    assert!(world.task(task).await.artifacts.is_empty(), "the new attempt begins anew");
    world.finish(&second, TurnEnd::Release { begun: false }).await.unwrap();
    let third = world.consume_one("three").await;
    assert_eq!((third.attempt, third.tries), (3, 2), "what was given back does not count");

    let entry = world.store.entry(Some(world.tenant), task).await.unwrap();
    assert_eq!((entry.state, entry.from.as_ref(), entry.attempts), (Working, "me", 2));
    assert_eq!(entry.lease.as_ref(), Some(&third));
    assert_eq!(entry.errors.len(), 1);
    let failed = &entry.errors[0];
    assert_eq!((failed.attempt, failed.worker.as_str(), failed.error.as_str()), (1, "one", "broken"));
    let kinds = world.kinds(task).await;
    let expected = [CREATED, STARTED, ARTIFACT, is(Submitted), AGAIN, is(Submitted), AGAIN];
    assert_eq!(kinds, expected);
}

pub(super) async fn a_lease_that_ran_out_is_seen_and_nobody_is_called(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let task = world.queued("go").await;
    let lease = world.consume_one("gone").await;
    assert!(world.lapsed(None).await.is_empty());
    world.run_out(&lease).await;
    assert!(world.consume("other", 5).await.is_empty(), "what somebody holds is not in the queue");
    assert_eq!(world.lapsed(Some(agent("nobody"))).await, []);
    assert_eq!(world.lapsed(Some(world.agent.clone())).await, std::slice::from_ref(&lease));
    let lapsed = world.lapsed(None).await;
    let lapse = || {
        let end = Some(TurnEnd::Retry { after: NOTHING, error: "the lease ran out".to_owned() });
        world.store.append(&lapsed[0], Append { end, only: Only::Lapsed, ..Append::default() })
    };
    world.store.renew(std::slice::from_ref(&lease), MINUTE).await.unwrap();
    assert!(matches!(lapse().await, Err(Error::Moved)), "its holder came back in time");
    world.run_out(&lease).await;
    lapse().await.unwrap();
    let entry = world.store.entry(Some(world.tenant), task).await.unwrap();
    assert!(entry.generation > lease.generation, "who let it run out has no part in it any more");
    let next = world.consume_one("other").await;
    assert_eq!((next.task, next.attempt), (task, 2));
    let late = world.end(&lease, Completed, None).await;
    assert!(matches!(late, Err(Error::LeaseLost)), "a paused worker cannot end it: {late:?}");
    assert_eq!(world.store.renew(std::slice::from_ref(&lease), MINUTE).await.unwrap(), [lease]);
}

pub(super) async fn a_lease_that_a_step_of_the_clock_ended_is_prolonged_once(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (one, other) = (world.queued("one").await, world.queued("other").await);
    let (lease, kept) = (world.consume_one("one").await, world.consume_one("other").await);
    assert_eq!((lease.task, kept.task), (one, other));
    world.run_out(&lease).await;
    assert_eq!(world.store.prolong_lapsed(NOTHING).await.unwrap(), 0, "it would have run out without a step as well");
    assert_eq!(world.store.prolong_lapsed(MINUTE).await.unwrap(), 1, "the other one has not run out");
    assert!(world.lapsed(None).await.is_empty());
    let entry = world.store.entry(Some(world.tenant), one).await.unwrap();
    assert!(entry.due_in.is_some_and(|due| due > MINUTE / 2 && due <= MINUTE), "{:?}", entry.due_in);
    assert_eq!(entry.lease, Some(lease.clone()), "it is the same lease");
    assert_eq!(world.store.prolong_lapsed(MINUTE).await.unwrap(), 0, "it runs again");
    // Its holder is heard of, and may be cut off by another step.
    world.run_out(&lease).await;
    assert_eq!(world.store.prolong_lapsed(MINUTE).await.unwrap(), 1);
}

pub(super) async fn a_claim_takes_no_more_bytes_than_it_has_room_for(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let text = "x".repeat(50_000);
    let (one, two, small) = (world.queued(&text).await, world.queued(&text).await, world.queued("small").await);
    let claim = async |most_bytes| {
        let room = Room { most_bytes, ..Room::new(world.agent.clone(), 10) };
        world.store.claim(Claim::of_queue(term("w"), Some(world.tenant), room)).await
    };
    let Err(Error::Heavy { bytes }) = claim(1000).await else { panic!("the first is too long") };
    let entry = world.store.entry(Some(world.tenant), one).await.unwrap();
    assert_eq!((bytes, entry.message_bytes), (entry.first_bytes, entry.first_bytes));
    assert_eq!((entry.state, entry.generation), (Submitted, 0), "nothing was taken");
    let first = world.store.first_message(world.tenant, one).await.unwrap();
    assert_eq!(first.len() as u64, bytes);
    let taken = claim(bytes).await.unwrap();
    assert_eq!(taken.iter().map(|leased| leased.lease.task).collect::<Vec<_>>(), [one]);
    let entry = world.store.entry(Some(world.tenant), two).await.unwrap();
    assert_eq!((entry.state, entry.generation), (Submitted, 0), "the next waits");
    let taken = claim(bytes + 1000).await.unwrap();
    assert_eq!(taken.iter().map(|leased| leased.lease.task).collect::<Vec<_>>(), [two, small]);
    let other = world.other().await;
    assert!(matches!(other.store.first_message(other.tenant, one).await, Err(Error::NotFound)));
}

pub(super) async fn a_queue_may_have_a_bound_on_what_is_held(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    for n in 0..5 {
        world.queued(&n.to_string()).await;
    }
    let claim = |slots| {
        let room = Room { most_held: Some(3), ..Room::new(world.agent.clone(), slots) };
        Claim::of_queue(term("w"), Some(world.tenant), room)
    };
    let first = world.store.claim(claim(2)).await.unwrap();
    assert_eq!(first.len(), 2);
    assert_eq!(world.store.claim(claim(2)).await.unwrap().len(), 1);
    assert!(world.store.claim(claim(2)).await.unwrap().is_empty());
    world.end(&first[0].lease, Completed, None).await.unwrap();
    assert_eq!(world.store.claim(claim(2)).await.unwrap().len(), 1);
}

pub(super) async fn many_at_once_do_not_hold_more_than_they_may(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    for n in 0..20 {
        world.queued(&n.to_string()).await;
    }
    let claim = |n: usize| {
        let room = Room { most_held: Some(3), ..Room::new(world.agent.clone(), 2) };
        world.store.claim(Claim::of_queue(term(&n.to_string()), Some(world.tenant), room))
    };
    let publish = |n: usize| {
        let (_, accept) = world.begin(&n.to_string());
        world.store.accept(world.tenant, posted(accept, Post { queued: true, ..Post::default() }))
    };
    let claims = futures_util::future::join_all((0..20).map(claim));
    let published = futures_util::future::join_all((20..30).map(publish));
    let (claimed, published) = tokio::join!(claims, published);
    assert!(published.into_iter().all(|accepted| accepted.is_ok()));
    let held: usize = claimed.into_iter().map(|leased| leased.unwrap().len()).sum();
    assert_eq!(held, 3);
}

pub(super) async fn a_message_behind_an_entry_waits_for_whoever_asks_next(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let task = world.queued("one").await;
    let lease = world.consume_one("w").await;
    world.accept(world.leased(world.more(task, "two"))).await.unwrap();
    let appended = world.end(&lease, Completed, Some("first")).await.unwrap();
    assert!(appended.next.is_none(), "its holder is done with it");
    assert_eq!(appended.state, Submitted);
    assert!(matches!(world.end(&lease, Completed, None).await, Err(Error::LeaseLost)));
    let leased = world.consume("other", 5).await;
    assert_eq!((turn_says(&leased[0].turn).as_str(), leased[0].turn.number), ("two", 2));
    world.end(&leased[0].lease, InputRequired, Some("?")).await.unwrap();
    let accepted = world.accept(world.leased(world.more(task, "three"))).await.unwrap();
    assert!(accepted.lease.is_none(), "no instance takes it, whatever room it has");
    assert_eq!(world.state(task).await, Submitted);
    world.end(&world.consume_one("w").await, Completed, None).await.unwrap();
    assert_eq!(world.state(task).await, Completed);
}

pub(super) async fn who_has_tried_too_often_is_a_dead_letter(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let task = world.queued("poison").await;
    world.retry(&world.consume_one("w").await, "first").await;
    world.give_up(&world.consume_one("w").await, "second").await;
    let entry = world.store.entry(Some(world.tenant), task).await.unwrap();
    assert_eq!((entry.state, entry.dead, entry.queued), (Failed, true, true));
    let why: Vec<&str> = entry.errors.iter().map(|failed| failed.error.as_str()).collect();
    assert_eq!(why, ["first", "second"]);
    // Whoever runs it: a turn of an instance becomes one by the same rule.
    let (run, lease) = world.running("poison").await;
    world.give_up(&lease, "no").await;
    assert_eq!(world.letters().await, [task, run]);
    // One that failed without that is none.
    let (plain, lease) = world.running("fails").await;
    world.end(&lease, Failed, Some("so be it")).await.unwrap();
    assert!(!world.letters().await.contains(&plain));
    let other = world.other().await;
    assert_eq!(other.letters().await, []);
    assert!(matches!(world.store.entry(Some(other.tenant), task).await, Err(Error::NotFound)));
    assert_eq!(world.store.entry(None, task).await.unwrap().tenant, world.tenant);
}

pub(super) async fn a_canceled_entry_is_no_dead_letter(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let task = world.queued("go").await;
    let lease = world.consume_one("w").await;
    assert_eq!(world.store.mark_cancel(world.tenant, task).await.unwrap(), CancelMark::Running);
    assert_eq!(world.store.marked(std::slice::from_ref(&lease.holder)).await.unwrap(), [task]);
    assert!(world.store.entry(Some(world.tenant), task).await.unwrap().canceled);
    world.give_up(&lease, "no").await;
    assert_eq!(world.state(task).await, Canceled);
    assert_eq!(world.letters().await, []);
    let waiting = world.queued("waits").await;
    assert_eq!(world.store.mark_cancel(world.tenant, waiting).await.unwrap(), CancelMark::Canceled { already: false });
    assert!(world.consume("w", 5).await.is_empty());
    let again = world.queued("again").await;
    let lease = world.consume_one("w").await;
    world.store.mark_cancel(world.tenant, again).await.unwrap();
    world.retry(&lease, "no").await;
    assert_eq!(world.state(again).await, Canceled, "there is no other attempt after a cancel");
}

pub(super) async fn a_dead_letter_is_replayed_once_as_a_new_entry(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let letter = world.letter("poison").await;
    let replay = |world: &World| {
        let (task, accept) = world.begin("poison");
        (task, posted(accept, Post { queued: true, replays: Some(letter), ..Post::default() }))
    };
    let other = world.other().await;
    assert!(matches!(other.accept(replay(&other).1).await, Err(Error::NotFound)));
    let (task, accept) = replay(&world);
    world.accept(accept).await.unwrap();
    assert_eq!(world.letters().await, []);
    let entry = world.store.entry(Some(world.tenant), task).await.unwrap();
    assert_eq!((entry.replays, entry.state), (Some(letter), Submitted));
    let again = world.accept(replay(&world).1).await;
    assert!(matches!(again, Err(Error::NotDead)), "{again:?}");
    assert_eq!(world.state(letter).await, Failed, "what has ended stays as it ended");
    assert_eq!(ids(&world.consume("w", 5).await), [task]);
}

pub(super) async fn dead_letters_come_in_pages_by_age(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let mut all = Vec::new();
    for n in 0..5 {
        all.push(world.letter(&n.to_string()).await);
        tick().await;
    }
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = world.store.dead_letters(world.tenant, Letters { agent: None, after, limit: 2 }).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some((last.status_at, last.task));
        found.extend(page.iter().map(|entry| entry.task));
    }
    assert_eq!(found, all);
    let of = |name: &str| Letters { agent: Some(agent(name)), after: None, limit: 10 };
    assert_eq!(world.store.dead_letters(world.tenant, of("echo")).await.unwrap().len(), 5);
    assert!(world.store.dead_letters(world.tenant, of("other")).await.unwrap().is_empty());
}

pub(super) async fn the_queue_tells_how_it_stands(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    assert_eq!(world.store.agent_queues(world.tenant).await.unwrap(), []);
    world.letter("poison").await;
    world.queued("a").await;
    let waits = world.queued("b").await;
    let first = world.consume_one("w").await;
    world.end(&first, Completed, None).await.unwrap();
    world.agent = agent("other");
    world.waiting("c").await;
    let queues = world.store.agent_queues(world.tenant).await.unwrap();
    assert_eq!(queues.len(), 2);
    let count = |n: usize, state: TaskState| {
        queues[n].counts.iter().find(|(of, _)| *of == state).map_or(0, |(_, count)| *count)
    };
    assert_eq!((queues[0].agent.as_str(), queues[1].agent.as_str()), ("echo", "other"));
    assert_eq!((count(0, Submitted), count(0, Completed), count(0, Failed), queues[0].dead), (1, 1, 1, 1));
    assert_eq!((count(1, Submitted), queues[1].dead), (1, 0));
    let since = world.store.entry(Some(world.tenant), waits).await.unwrap().status_at;
    assert_eq!(queues[0].oldest_waiting, Some(since));
    assert!(queues[0].oldest_dead.is_some() && queues[1].oldest_dead.is_none());
}

pub(super) async fn a_write_may_say_what_it_goes_on_from(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let task = world.queued("go").await;
    let lease = world.consume_one("w").await;
    let write = |drafts, kept| {
        let (store, lease) = (Arc::clone(&world.store), lease.clone());
        async move { store.append(&lease, Append { drafts, only: Only::Kept(kept), ..Append::default() }).await }
    };
    let seq = write(vec![kept("1")], 0).await.unwrap().seq;
    let overtaken = write(vec![kept("2")], 0).await;
    assert!(matches!(overtaken, Err(Error::Moved)), "{overtaken:?}");
    assert_eq!(world.store.entry(Some(world.tenant), task).await.unwrap().lease.unwrap().kept, seq);
    write(vec![kept("2")], seq).await.unwrap();
    assert_eq!(world.kinds(task).await, [CREATED, STARTED, KEPT, KEPT]);
}

pub(super) async fn a_lease_of_the_queue_is_prolonged_by_its_holder(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    world.queued("go").await;
    let lease = world.consume_one("w").await;
    let short = Duration::from_millis(1);
    assert_eq!(world.store.renew(std::slice::from_ref(&lease), short).await.unwrap(), []);
    tick().await;
    assert_eq!(world.lapsed(None).await.len(), 1);
    assert_eq!(world.store.renew(std::slice::from_ref(&lease), MINUTE).await.unwrap(), [], "late, and still its own");
    assert_eq!(world.lapsed(None).await, []);
    let forged = Lease { holder: Holder::worker("x"), ..lease.clone() };
    assert_eq!(world.store.renew(std::slice::from_ref(&forged), MINUTE).await.unwrap(), [forged]);
}
