//! Three loops: one looks for due work and claims it, one renews the leases of what runs, one buries the dead.
//!
//! What may be claimed is argued in [`store::lease`]. **Nobody overtakes for ever:** while work of an agent waits in the journal
//! ([`Lane::has_backlog`]), a message that comes in does not take a free slot by itself but joins the queue, and
//! claims go through the queue tenant by tenant.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use store::{AgentId, Claim, Room, Shares, TenantId, Tenants, Term, fault};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use crate::{
    Entry, Errands, Inner,
    registry::{Lane, Offer},
    worker::{self, Begin},
};

/// How often owners of leases are looked at for being dead.
const RECLAIM: Duration = Duration::from_secs(5);
/// How long running turns have when the journal's schema has become too new.
const RETIREMENT: Duration = Duration::from_secs(10);
/// How many turns of an agent are claimed at once.
const CLAIM: usize = 32;

/// What the loop that claims remembers.
#[derive(Default)]
struct Rounds {
    /// Whom each agent has served last.
    served: HashMap<AgentId, TenantId>,
    /// When this loop last renewed what runs here.
    renewed: Option<Instant>,
}

/// Starts the loops.
pub(crate) fn start(inner: &Arc<Inner>) {
    let loops = &inner.workers.loops;
    loops.spawn(look_for_work(Arc::clone(inner)));
    loops.spawn(keep_leases(Arc::clone(inner)));
    loops.spawn(bury_the_dead(Arc::clone(inner)));
}

/// Claims what is due, for agents that have a free slot.
async fn look_for_work(inner: Arc<Inner>) {
    let mut due = inner.store.hub().due();
    let mut rounds = Rounds::default();
    // What runs out is found soon, whatever the lease.
    let poll = inner.options.poll.min(inner.options.lease / 4).max(Duration::from_millis(1));
    loop {
        let wait = match claim_due(&inner, &mut rounds).await {
            Ok(wait) => wait.unwrap_or(poll).min(poll),
            Err(error) => {
                tracing::warn!(error = %error, "due work cannot be claimed");
                poll
            }
        };
        match inner.store.marked(std::slice::from_ref(&inner.holder)).await {
            Ok(marked) => marked.into_iter().for_each(|task| inner.workers.cancel(task)),
            Err(error) => tracing::warn!(error = %error, "cancel marks cannot be read"),
        }
        tokio::select! {
            biased;
            () = inner.draining.cancelled() => return,
            _ = due.changed() => {}
            () = inner.workers.freed.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Claims all that is due now; says how long it is until something will be.
async fn claim_due(inner: &Arc<Inner>, rounds: &mut Rounds) -> store::Result<Option<Duration>> {
    let lease = inner.options.lease;
    loop {
        if inner.draining.is_cancelled() {
            return Ok(None);
        }
        // A look first: slots that are held while nothing is due would be missing for messages that come in.
        let offers = inner.agents.offers();
        let mut ids: Vec<_> = offers.iter().map(|offer| offer.id.clone()).collect();
        ids.sort_unstable();
        ids.dedup();
        let due = inner.store.next_due(&ids).await?;
        let ahead = due.next.map(|next| next.since(due.now));
        if ahead.is_none_or(|ahead| ahead > Duration::ZERO) {
            for offer in offers.iter() {
                offer.lane.set_backlog(false);
                offer.lane.settle(inner.has_tenants.load(Relaxed));
            }
            return Ok(ahead);
        }
        // Slots are taken before the work is: what is claimed can run. Agents that have nothing due keep theirs.
        let mut slots: Vec<(&Offer, Vec<OwnedSemaphorePermit>)> = Vec::new();
        let due_now: HashSet<&AgentId> = due.agents.iter().collect();
        for offer in offers.iter() {
            if !due_now.contains(&offer.id) {
                offer.lane.set_backlog(false);
                offer.lane.settle(inner.has_tenants.load(Relaxed));
                continue;
            }
            let permits = free_slots(&offer.lane);
            if !permits.is_empty() {
                slots.push((offer, permits));
            }
        }
        if slots.is_empty() {
            return Ok(None);
        }
        // What runs here is never claimed, and is renewed before anything is, unless that was done just now.
        let renewed_just_now = rounds.renewed.is_some_and(|at| at.elapsed() <= lease / 6);
        if !renewed_just_now && !fault::is_on("takes-own") {
            renew(inner).await?;
            rounds.renewed = Some(Instant::now());
        }
        let room = |(offer, permits): &(&Offer, Vec<_>)| Room {
            agent: offer.id.clone(),
            slots: permits.len(),
            after: rounds.served.get(&offer.id).copied(),
            resumes: offer.resumes,
            tenants: offer.tenants.clone(),
            shares: shares(inner, offer),
            most_held: None,
            most_bytes: u64::MAX,
        };
        let claim = Claim {
            term: Term { holder: inner.holder.clone(), lasts: lease },
            room: slots.iter().map(room).collect(),
            running: if fault::is_on("takes-own") { Vec::new() } else { inner.workers.tasks() },
            line: store::Line::Running,
        };
        let asked = Instant::now();
        let leased = inner.store.claim(claim).await?;
        let mut more = false;
        let mut begun = vec![false; slots.len()];
        // Which room a turn has come to.
        let mut places: HashMap<AgentId, Vec<usize>> = HashMap::new();
        for (place, (offer, _)) in slots.iter().enumerate() {
            places.entry(offer.id.clone()).or_default().push(place);
        }
        for leased_turn in leased {
            let lease = leased_turn.lease;
            let of_agent = places.get(&lease.agent).into_iter().flatten().copied();
            let place = of_agent.into_iter().find(|place| slots[*place].0.tenants.have(lease.tenant));
            let Some(place) = place else { continue };
            let (offer, permits) = &mut slots[place];
            let Some(permit) = permits.pop() else { continue };
            if offer.tenants != Tenants::Only(lease.tenant) {
                rounds.served.insert(lease.agent.clone(), lease.tenant);
            }
            begun[place] = true;
            // Whose turn it is says which agent of that id is meant.
            let entry = inner.agents.get(lease.tenant, &lease.agent).filter(|entry| entry.is_run());
            // One that was withdrawn from the tenant is gone for it, with what waits for it.
            let entry = match entry {
                Some(entry) if is_withdrawn(inner, &entry, lease.tenant).await => None,
                entry => entry,
            };
            let entry = entry.unwrap_or_else(|| {
                let is_elsewhere = inner.agents.is_aside(lease.tenant, &lease.agent);
                let stands_in = if is_elsewhere { Entry::unmade } else { Entry::gone };
                Arc::new(stands_in(&lease.agent, &offer.lane))
            });
            let (interrupted, rested) = (leased_turn.interrupted, leased_turn.rested);
            let begin = Begin { turn: leased_turn.turn, interrupted, rested, asked };
            let tenant = lease.tenant;
            let running = inner.workers.register(lease);
            if leased_turn.canceled {
                running.cancel.cancel();
            }
            let slot = offer.lane.give(permit, tenant);
            inner.tracker.spawn(worker::run(Arc::clone(inner), entry, running, begin, slot));
        }
        for ((offer, unused), begun) in slots.iter().zip(begun) {
            let all_used = unused.is_empty() && begun;
            offer.lane.set_backlog(all_used);
            if !all_used {
                offer.lane.settle(inner.has_tenants.load(Relaxed));
            }
            more |= all_used;
        }
        if !more {
            return Ok(None);
        }
    }
}

/// What one tenant may have of an agent. Who has one of its own has all of it.
fn shares(inner: &Inner, offer: &Offer) -> Shares {
    match offer.tenants {
        Tenants::Only(_) => Shares::default(),
        Tenants::AllBut(_) => {
            Shares { each: offer.lane.each(inner.has_tenants.load(Relaxed)), running: offer.lane.running() }
        }
    }
}

/// Whether an agent that not all tenants may see is none that this one may.
async fn is_withdrawn(inner: &Arc<Inner>, entry: &Entry, tenant: TenantId) -> bool {
    if entry.is_own() || entry.is_open() {
        return false;
    }
    match Errands::new(inner, tenant).caller().await {
        Ok(caller) => !entry.visible_to(&caller),
        Err(error) => {
            tracing::warn!(%error, "the name of a tenant cannot be read");
            false
        }
    }
}

fn free_slots(lane: &Lane) -> Vec<OwnedSemaphorePermit> {
    let mut permits = Vec::new();
    while permits.len() < CLAIM
        && let Ok(permit) = Arc::clone(&lane.slots).try_acquire_owned()
    {
        permits.push(permit);
    }
    permits
}

/// Renews the leases of the turns that run, for as long as any does. A renewal that fails is tried again soon: a
/// store that was away for a moment must not cost anyone a lease, and a last call is to be heard in time.
async fn keep_leases(inner: Arc<Inner>) {
    let period = inner.options.lease / 3;
    let mut wait = period;
    loop {
        tokio::select! {
            biased;
            () = inner.workers.over() => return,
            () = tokio::time::sleep(wait) => {}
        }
        wait = match renew(&inner).await {
            Ok(()) => period,
            Err(error) => {
                tracing::warn!(error = %error, "leases cannot be renewed");
                period / 8
            }
        };
    }
}

/// Renews what runs here, and tells those that have lost their lease.
async fn renew(inner: &Inner) -> store::Result<()> {
    let leases = inner.workers.leases();
    if !leases.is_empty() {
        let lost = inner.store.renew(&leases, inner.options.lease).await?;
        inner.workers.lose(&lost);
    }
    Ok(())
}

/// Ends the work of an instance whose journal a newer program has migrated: what it would write may no longer fit.
fn retire(inner: &Arc<Inner>, error: &store::Error) {
    tracing::error!(
        error = %error,
        hint = "stop this instance and start the version that migrated the journal",
        "this version cannot go on with the journal; it takes no more work"
    );
    inner.outdated.store(true, Relaxed);
    let inner = Arc::clone(inner);
    // Beside the loops, whose end it waits for.
    tokio::spawn(async move { worker::shut_down(&inner, RETIREMENT).await });
}

/// Looks whether there are several tenants. They come and go.
async fn look_for_tenants(inner: &Inner) {
    if let Ok(tenants) = inner.store.tenants().await {
        inner.has_tenants.store(tenants.len() > 1, Relaxed);
    }
}

/// Makes the work of dead instances due at once, instead of when their leases run out.
async fn bury_the_dead(inner: Arc<Inner>) {
    loop {
        look_for_tenants(&inner).await;
        match inner.store.reclaim_dead().await {
            Ok(0) => {}
            Ok(turns) => tracing::info!(turns, "took over turns of an instance that is gone"),
            Err(error) => tracing::warn!(error = %error, "dead instances cannot be looked for"),
        }
        match inner.store.check_schema().await {
            Ok(()) => {}
            Err(error @ store::Error::FromTheFuture { .. }) => return retire(&inner, &error),
            Err(error) => tracing::debug!(error = %error, "the version of the schema cannot be read"),
        }
        match inner.store.has_older_instances().await {
            Ok(has_older) => inner.has_older_instances.store(has_older, Relaxed),
            Err(error) => tracing::debug!(error = %error, "the versions of other instances cannot be read"),
        }
        tokio::select! {
            biased;
            () = inner.draining.cancelled() => return,
            () = tokio::time::sleep(RECLAIM) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use store::Change;
    use testkit::temp_store::TempStore;

    use super::*;
    use crate::{Agents, Exchange, Options};

    async fn until_several(inner: &Inner, several: bool) {
        for _ in 0..200 {
            // The loop of the exchange may look at the same time, and may have looked before.
            look_for_tenants(inner).await;
            if inner.has_tenants.load(Relaxed) == several {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("has_tenants is still {}", !several);
    }

    #[tokio::test]
    async fn the_last_tenant_shares_its_slots_with_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let store = TempStore::new(dir.path()).open().await;
        let exchange = Exchange::start(Arc::clone(&store), Agents::default(), Options::default()).await.unwrap();
        store.create_tenant("first").await.unwrap();
        let second = store.create_tenant("second").await.unwrap().id;
        until_several(&exchange.inner, true).await;
        store.administer("test", Change::DeleteTenant(second)).await.unwrap();
        until_several(&exchange.inner, false).await;
        exchange.shut_down(Duration::ZERO).await;
    }
}
