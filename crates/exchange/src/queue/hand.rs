//! Handing entries out: to whoever asks for an agent's, or for one, and to the agent itself.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use a2a::{Message, PartContent, TaskState};
use store::{
    AgentId, Append, Claim, Event, EventKind, Holder, Lease, LeasedTurn, Most, Room, Snapshot, TaskId, TenantId, Term,
    View, Wish,
};
use tokio::{sync::oneshot, time::Instant};
use uuid::Uuid;

use super::{
    COPIES, Consume, Handed, LONGEST_WAIT, MOST_AT_ONCE, MOST_BYTES, MOST_TOLD, Worker, check_lease, check_name,
    check_wait,
    desk::{Promise, Undelivered},
    lapse::{failed, requeue_lapsed, tell},
    local_context, ticket, why_not,
};
use crate::{
    Call, Error, Exchange, Luggage, OnCrash, RequestOptions, convert,
    intake::answered,
    kept,
    trouble::Trouble,
    worker::{self, Begin},
};

/// How long messages that are taken without counting them may be together: their answer is as small as what is not counted elsewhere.
const LITTLE: u64 = 4 << 10;

/// About how long a message is as JSON.
fn length(message: &Message) -> u64 {
    let long = |part: &a2a::Part| match &part.content {
        PartContent::Text(text) | PartContent::Url(text) => text.len(),
        PartContent::Data(data) => data.get().len(),
        PartContent::Raw(raw) => raw.len().div_ceil(3) * 4,
    };
    message.parts.iter().map(|part| long(part) as u64).sum::<u64>() + LITTLE / 4
}

impl Exchange {
    /// Hands out what waits for an agent, the higher first, then the older. There is room for all of it before anything is taken.
    pub async fn consume(
        &self,
        worker: &Worker,
        agent: &str,
        consume: Consume,
        luggage: &Luggage,
    ) -> Result<Vec<Handed>, Error> {
        worker.may_work()?;
        let inner = &self.inner;
        let id: AgentId = agent.parse().map_err(|why| Error::invalid("agent", format!("is no agent's id: {why}")))?;
        if !worker.covers(&id) {
            return Err(Error::agent_not_found(id.as_str()));
        }
        let max = consume.max.unwrap_or(1);
        if max == 0 || max > MOST_AT_ONCE {
            return Err(Error::invalid("max", format!("must be from 1 to {MOST_AT_ONCE}")));
        }
        check_wait(consume.wait)?;
        if inner.draining.is_cancelled() {
            return Err(Error::Stopping);
        }
        let term = term(consume.worker, consume.lease)?;
        let lasts = term.lasts;
        let asked = Instant::now();
        let mut leased;
        let mut was_too_long = false;
        loop {
            let after = inner.desk.served(&id);
            let room = Room { most_held: self.most_held(&id), after, ..Room::new(id.clone(), max) };
            let claim = Claim::of_queue(term.clone(), worker.tenant(), room);
            let mut claimed = self.claim_within_room(worker, claim.clone(), luggage).await;
            if matches!(&claimed, Ok(leased) if leased.is_empty()) && requeue_lapsed(inner, Some(id.clone())).await? > 0
            {
                claimed = self.claim_within_room(worker, claim.clone(), luggage).await;
            }
            // Whoever waits behind it has waited for this.
            if was_too_long {
                inner.desk.look();
            }
            leased = claimed?;
            if worker.tenant().is_none() {
                inner.desk.serve_after(&leased);
            }
            let left = consume.wait.saturating_sub(asked.elapsed());
            if !leased.is_empty() || left.is_zero() {
                break;
            }
            let _place = inner.long_polls.wait(worker.counts_for())?;
            let wish = Wish { agent: id.clone(), tenant: worker.tenant() };
            let claim = with_room(claim, LITTLE);
            let waited = tokio::select! {
                biased;
                waited = Promise::later(inner, wish, claim).within(left) => waited,
                () = inner.draining.cancelled() => Ok(Vec::new()),
            };
            match waited {
                // There is something, for which room has to be taken first.
                Err(store::Error::Heavy { .. }) => was_too_long = true,
                waited => {
                    leased = waited?;
                    break;
                }
            }
        }
        self.hand_all(worker, leased, lasts, luggage).await
    }

    /// Claims as much as there is room for, which is taken first.
    async fn claim_within_room(
        &self,
        worker: &Worker,
        claim: Claim,
        luggage: &Luggage,
    ) -> Result<Vec<LeasedTurn>, Error> {
        let slots = claim.room.iter().map(|room| room.slots as u64).sum::<u64>();
        let mut most = slots.saturating_mul(LITTLE).min(MOST_BYTES);
        loop {
            let room = most.saturating_mul(COPIES);
            let mut load = self.inner.flight.take(worker.counts_for(), room).await?;
            match self.claim_now(with_room(claim.clone(), most)).await {
                Err(store::Error::Heavy { bytes }) => most = bytes,
                Err(error) => return Err(error.into()),
                Ok(leased) => {
                    load.keep(leased.iter().map(|leased| length(&leased.turn.message)).sum::<u64>() * COPIES);
                    luggage.put(load);
                    return Ok(leased);
                }
            }
        }
    }

    async fn claim_now(&self, claim: Claim) -> store::Result<Vec<LeasedTurn>> {
        let store = Arc::clone(&self.inner.store);
        answered(Promise::now(&self.inner, async move { store.claim(claim).await }).within(LONGEST_WAIT)).await
    }

    /// Hands out one entry by its id, whatever stands before it.
    pub async fn claim_entry(
        &self,
        worker: &Worker,
        id: &str,
        consume: Consume,
        luggage: &Luggage,
    ) -> Result<Handed, Error> {
        worker.may_work()?;
        let task = convert::task_id(id)?;
        let term = term(consume.worker, consume.lease)?;
        let lasts = term.lasts;
        let bytes = self.entry(worker, task).await?.message_bytes.min(MOST_TOLD);
        self.make_room(worker, bytes, luggage).await?;
        let leased = self.take(worker, task, term, false).await?;
        self.hand_all(worker, vec![leased], lasts, luggage).await?.pop().ok_or_else(|| unreadable(task))
    }

    /// Reads the entries for a worker. Until it knows of all of them they are given back when it goes away, or when something cannot be
    /// read; one that never can be is an attempt that failed, and keeps nobody from the others. The first entry may be as long as it is, once
    /// there is room for it; the others may only fill up the answer. Those that do not fit wait for the next call.
    async fn hand_all(
        &self,
        worker: &Worker,
        leased: Vec<LeasedTurn>,
        lasts: Duration,
        luggage: &Luggage,
    ) -> Result<Vec<Handed>, Error> {
        let mut promised = Undelivered::new(&self.inner, leased.iter().map(|leased| leased.lease.clone()).collect());
        let mut handed: Vec<Handed> = Vec::new();
        let mut bytes = 0;
        for turn in leased {
            let (task, lease) = (turn.lease.task, turn.lease.clone());
            let most = if handed.is_empty() { u64::MAX } else { MOST_BYTES.saturating_sub(bytes) };
            let mut beside = Beside { exchange: self, tenant: worker.counts_for(), most, luggage };
            match beside.hand(turn, lasts).await {
                Ok(entry) => {
                    bytes += entry.bytes() as u64;
                    handed.push(entry);
                }
                Err(Error::Store(store::Error::Heavy { .. })) => break,
                Err(Error::Store(error)) if error.is_permanent() => {
                    tracing::error!(task.id = %task, %error, "an entry cannot be read");
                    promised.leases.retain(|lease| lease.task != task);
                    let why = "the entry cannot be read";
                    let end = failed(&self.inner, &lease, why, None, false)?;
                    let trouble = Trouble::of_end(&end);
                    let append = Append { end: Some(end), ..Append::default() };
                    tell(&lease, trouble, self.inner.store.append(&lease, append).await?.state, why);
                }
                Err(error) if !handed.is_empty() => {
                    // The caller learns of those that it has; the next call fails with the error if it lasts.
                    match error {
                        Error::Store(error) => {
                            tracing::warn!(task.id = %task, %error, "an entry cannot be read now and is given back")
                        }
                        error => tracing::debug!(task.id = %task, %error, "an entry is given back"),
                    }
                    break;
                }
                Err(error) => {
                    // A caller that tries again after the error finds them.
                    promised.give_back().await;
                    return Err(error);
                }
            }
        }
        promised.leases.retain(|lease| !handed.iter().any(|entry| entry.entry.task == lease.task));
        Ok(handed)
    }

    /// Leases an entry by its id.
    async fn take(&self, worker: &Worker, task: TaskId, term: Term, resumes: bool) -> Result<LeasedTurn, Error> {
        let entry = self.entry(worker, task).await?;
        if entry.lease.is_some() && entry.due_in == Some(Duration::ZERO) {
            requeue_lapsed(&self.inner, Some(entry.agent.clone())).await?;
        }
        let (store, tenant) = (Arc::clone(&self.inner.store), entry.tenant);
        let claiming = async move { store.claim_task(tenant, task, term, resumes).await.map(|leased| vec![leased]) };
        match answered(Promise::now(&self.inner, claiming).within(LONGEST_WAIT)).await {
            Ok(leased) => leased.into_iter().next().ok_or(Error::Stopping),
            Err(store::Error::NotWaiting | store::Error::Terminal(_)) => {
                Err(Error::NotWaiting(why_not(&self.entry(worker, task).await?)))
            }
            Err(error) => Err(Error::of_task(error, task)),
        }
    }

    /// Runs an entry here and now, by the agent that it is for, and waits for the end of its turn, up to the cap.
    pub async fn execute(&self, call: &Call, id: &str) -> Result<Snapshot, Error> {
        let inner = &self.inner;
        let task = convert::task_id(id)?;
        let worker = Worker::Tenant(call.caller.clone());
        worker.may_work()?;
        let entry = self.entry(&worker, task).await?;
        if !entry.queued || entry.state.is_terminal() {
            return Err(Error::NotWaiting(why_not(&entry)));
        }
        let runs = inner.agents.find(&call.caller, entry.agent.as_str()).filter(|agent| agent.is_run());
        let Some(agent) = runs else { return Err(Error::NotRun(entry.agent.to_string())) };
        let slot =
            tokio::time::timeout(inner.options.blocking_cap, Arc::clone(&agent.lane.slots).acquire_owned()).await;
        let others = !agent.is_own() && inner.has_tenants.load(Relaxed);
        let Some(Ok(slot)) = slot.ok().filter(|_| agent.lane.may_have(call.caller.tenant, others)) else {
            return Err(Error::NotWaiting(format!("the agent `{}` has no slot free; try again", entry.agent)));
        };
        let slot = agent.lane.give(slot, call.caller.tenant);
        let head = self.head(call, task).await?;
        // A tenant that has no room for an answer is told so before anything is done.
        let room = inner.flight.take(call.caller.tenant, call.luggage.room(entry.message_bytes)).await?;
        let mut cursor = inner.cursor(call.caller.tenant, task, head.seq);
        // On a task of its own: whoever asked may go away, and the entry is run all the same.
        let (reply, started) = oneshot::channel();
        let here = self.clone();
        inner.tracker.spawn(async move {
            let inner = &here.inner;
            let asked = Instant::now();
            let starting = inner.workers.starting(task);
            let term = Term { holder: inner.holder.clone(), lasts: inner.options.lease };
            let resumes = agent.profile.on_crash == OnCrash::Resume;
            let leased = match here.take(&worker, task, term, resumes).await {
                Ok(leased) => leased,
                Err(error) => return drop(reply.send(Err(error))),
            };
            let running = inner.workers.register(leased.lease);
            drop(starting);
            let _ = reply.send(Ok(()));
            let begin = Begin { turn: leased.turn, interrupted: false, rested: false, asked };
            worker::run(Arc::clone(inner), agent, running, begin, slot).await;
        });
        started.await.unwrap_or(Err(Error::Stopping))?;
        drop(room);
        let ended = async {
            let mut has_begun = false;
            loop {
                match cursor.next().await?.kind {
                    EventKind::Started(_) => has_begun = true,
                    EventKind::Status { state, ends_turn }
                        if has_begun && (ends_turn || state == TaskState::Submitted) =>
                    {
                        return Ok::<(), store::Error>(());
                    }
                    _ => {}
                }
            }
        };
        tokio::select! {
            biased;
            ended = ended => ended?,
            () = tokio::time::sleep(inner.options.blocking_cap) => {}
            () = inner.workers.released() => {}
        }
        self.patient_snapshot(call, task, View::FULL).await
    }
}

/// Reads what belongs to an entry beside its message. Room for it is taken before it is read.
struct Beside<'a> {
    exchange: &'a Exchange,
    tenant: TenantId,
    /// How many bytes it may be; [`store::Error::Heavy`] when it is more.
    most: u64,
    luggage: &'a Luggage,
}

impl Beside<'_> {
    /// The answer to a worker about an entry that it holds.
    async fn hand(&mut self, leased: LeasedTurn, lasts: Duration) -> Result<Handed, Error> {
        let LeasedTurn { lease, turn, .. } = leased;
        let inner = &self.exchange.inner;
        let (store, tenant, task) = (&inner.store, lease.tenant, lease.task);
        let entry = store.entry(Some(tenant), task).await?;
        let history = match turn.number {
            1 => Vec::new(),
            _ => self.read(|most| store.history(tenant, task, most)).await?,
        };
        let limit = if lease.remembers { inner.options.context_limit } else { 0 };
        let context_history = if limit == 0 || *lease.context == *local_context(task) {
            Vec::new()
        } else {
            let (agent, context) = (&lease.agent, &lease.context);
            self.read(|most| store.context_history(tenant, agent, context, task, limit, most)).await?
        };
        let request = match turn.request {
            None => RequestOptions::default(),
            Some(seq) => RequestOptions::read(&self.logged(&lease, seq).await?)?,
        };
        let state = match lease.kept {
            0 => None,
            seq => {
                let kept = self.logged(&lease, seq).await?;
                let event = kept.first().ok_or_else(|| unreadable(task))?;
                // An event that continues an earlier one is shorter than the state.
                self.make_room(kept::length(event)?.saturating_sub(event.body.len() as u64)).await?;
                kept::read_event(&*inner.journal(), tenant, task, event).await?.state
            }
        };
        let ticket = ticket::seal(&inner.page_key, &lease);
        let (number, attempt) = (turn.number, lease.attempt);
        let message = turn.message;
        Ok(Handed { entry, ticket, lasts, message, request, turn: number, attempt, history, context_history, state })
    }

    /// Reads with a limit of bytes, which is raised to what is needed once there is room for that.
    async fn read<T, Reading: Future<Output = store::Result<T>>>(
        &mut self,
        read: impl Fn(u64) -> Reading,
    ) -> Result<T, Error> {
        let mut room = LITTLE;
        loop {
            match read(room).await {
                Err(store::Error::Heavy { bytes }) => {
                    self.make_room(bytes.saturating_sub(if room == LITTLE { 0 } else { room })).await?;
                    room = bytes;
                }
                read => return Ok(read?),
            }
        }
    }

    /// One event of a task's log.
    async fn logged(&mut self, lease: &Lease, seq: u64) -> Result<Vec<Event>, Error> {
        let (store, before) = (&self.exchange.inner.store, seq.saturating_sub(1));
        self.read(|bytes| async move {
            store.read(lease.tenant, lease.task, before, Most { events: 1, bytes }).await.map(|(events, _)| events)
        })
        .await
    }

    async fn make_room(&mut self, bytes: u64) -> Result<(), Error> {
        if bytes > self.most {
            return Err(store::Error::Heavy { bytes }.into());
        }
        self.most -= bytes;
        self.exchange.inner.flight.take_more(self.tenant, bytes.saturating_mul(COPIES), self.luggage).await
    }
}

impl Handed {
    /// About how many bytes it has as JSON.
    pub fn bytes(&self) -> usize {
        let told = self.history.iter().chain(&self.context_history);
        let beside = self.request.metadata.as_ref().map_or(0, |metadata| metadata.get().len())
            + self.state.as_ref().map_or(0, |state| state.len());
        usize::try_from(length(&self.message) + told.map(length).sum::<u64>())
            .unwrap_or(usize::MAX)
            .saturating_add(beside)
    }
}

/// A claim of entries that have so many bytes together at most.
fn with_room(mut claim: Claim, most: u64) -> Claim {
    claim.room.iter_mut().for_each(|room| room.most_bytes = most);
    claim
}

/// An entry that was taken and cannot be told of.
fn unreadable(task: TaskId) -> Error {
    Error::Store(store::Error::Damaged(format!("the entry {task} cannot be read")))
}

/// For whom a lease is. Who does not say is told apart all the same.
fn term(name: Option<String>, lasts: Option<Duration>) -> Result<Term, Error> {
    let name = match name {
        Some(name) => {
            check_name("worker", &name)?;
            name
        }
        None => Uuid::now_v7().to_string(),
    };
    Ok(Term { holder: Holder::worker(&name), lasts: check_lease(lasts)? })
}
