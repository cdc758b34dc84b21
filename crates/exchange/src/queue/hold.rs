//! What a worker says of an entry that it holds. Each call stands for itself: it knows what its ticket says and what the journal has kept.

use std::{sync::Arc, time::Duration};

use a2a::{Part, TaskState};
use store::{Append, Lease, Most, Only, TurnEnd, View};
use tokio::sync::oneshot;

use super::{
    Ack, Beat, LONGEST_DELAY, Nack, Report, Shown, Worker, check_lease, check_wait, data_part,
    lapse::{failed, tell},
    ticket, why_not,
};
use crate::{
    Error, Exchange, Luggage, Outcome, ReplyText, Said, convert, errand,
    intake::answered,
    kept,
    scribe::Scribe,
    trouble::Trouble,
    turn::{self, Left},
    words::Word,
};

/// The most events of one call.
const MOST_EVENTS: usize = 256;
/// The most artifacts of one turn: how far it has come is written with each call, and names them.
const MOST_ARTIFACTS: usize = 1000;
/// The longest name that a worker may give one, for the same reason.
const LONGEST_ARTIFACT_ID: usize = 256;
/// A state of so many bytes is read before there is room for it.
const STATE: u64 = 4 << 10;
/// How often a write is tried again that another one under the same lease has overtaken.
const MOVES: usize = 16;

impl Exchange {
    /// Prolongs a lease, and says whether its task is canceled: at once with `wait`, as soon as it is.
    pub async fn heartbeat(
        &self,
        worker: &Worker,
        id: &str,
        ticket: Option<&str>,
        lasts: Option<Duration>,
        wait: Duration,
    ) -> Result<Beat, Error> {
        check_wait(wait)?;
        let lasts = check_lease(lasts)?;
        if wait >= lasts {
            return Err(Error::invalid("wait", "must be shorter than the lease"));
        }
        let lease = self.lease(worker, id, ticket).await?;
        let _place = (!wait.is_zero()).then(|| self.inner.long_polls.wait(worker.counts_for())).transpose()?;
        let lost = answered(self.inner.store.renew(std::slice::from_ref(&lease), lasts)).await?;
        if !lost.is_empty() {
            return Err(self.lost(&lease).await);
        }
        let watching = self.inner.desk.watch(lease.task, &lease.holder);
        let mut entry = self.entry(worker, lease.task).await?;
        if !entry.canceled && !wait.is_zero() {
            tokio::select! {
                () = watching.canceled.cancelled() => {}
                () = tokio::time::sleep(wait) => {}
                () = self.inner.draining.cancelled() => {}
            }
            entry = self.entry(worker, lease.task).await?;
        }
        if entry.lease.as_ref().is_none_or(|now| now.generation != lease.generation) {
            return Err(self.lost(&lease).await);
        }
        Ok(Beat { canceled: entry.canceled, lasts: entry.due_in.unwrap_or_default() })
    }

    /// Writes the events of a report; the last of them may end the turn.
    pub async fn progress(
        &self,
        worker: &Worker,
        id: &str,
        ticket: Option<&str>,
        report: Report,
        luggage: &Luggage,
    ) -> Result<TaskState, Error> {
        let Report { number, words, ends } = report;
        let longest = self.inner.options.limits.id_bytes.min(LONGEST_ARTIFACT_ID);
        if words.len() > MOST_EVENTS {
            return Err(Error::invalid("events", format!("must be at most {MOST_EVENTS} in one call")));
        }
        let mut said: Vec<Said> = Vec::with_capacity(words.len());
        let mut outcome = None;
        let mut auth = None;
        for (n, word) in words.into_iter().enumerate() {
            if outcome.is_some() {
                return Err(Error::invalid(&format!("events[{n}]"), "nothing may follow the end of the turn"));
            }
            auth = None;
            match word {
                Word::Said(one) => {
                    if let Said::Artifact { artifact, .. } = &one
                        && artifact.artifact_id.len() > longest
                    {
                        let field = format!("events[{n}].artifactUpdate.artifact.artifactId");
                        return Err(Error::invalid(&field, format!("must have at most {longest} bytes")));
                    }
                    if let Said::Status { auth_required: true, message, .. } = &one {
                        auth = Some(message.as_ref().map(|message| message.parts.clone()).unwrap_or_default());
                    }
                    // What is kept last is what counts, and all of a call is written together.
                    if matches!(one, Said::Keep(_)) {
                        said.retain(|before| !matches!(before, Said::Keep(_)));
                    }
                    said.push(one);
                }
                Word::End { outcome: end, .. } => outcome = Some(end),
                Word::Message(message) => outcome = Some(Outcome::Completed(message.parts)),
            }
        }
        if ends && outcome.is_none() {
            let Some(parts) = auth else {
                return Err(Error::invalid("end", "there is no event that ends the turn"));
            };
            outcome = Some(Outcome::AuthRequired(parts));
        }
        if said.is_empty() && outcome.is_none() {
            return Err(Error::invalid("events", "there is nothing in it"));
        }
        self.write(worker, id, ticket, Written { said, outcome, number }, luggage).await
    }

    /// Ends an entry's turn as done.
    pub async fn ack(
        &self,
        worker: &Worker,
        id: &str,
        ticket: Option<&str>,
        ack: Ack,
        luggage: &Luggage,
    ) -> Result<TaskState, Error> {
        let mut said = Vec::new();
        if let Some(result) = ack.result {
            let part = match serde_json::from_str::<String>(result.get()) {
                Ok(text) => Part { media_type: "text/plain".to_owned(), ..Part::text(text) },
                Err(_) => data_part(result),
            };
            let parts = vec![part];
            a2a::validate::validate_parts("result", &parts, &self.inner.options.limits)?;
            let artifact = a2a::Artifact { name: "result".to_owned(), parts, ..a2a::Artifact::default() };
            said.push(Said::Artifact { artifact, append: false, last_chunk: true, metadata: None });
        }
        let parts = ack.text.filter(|text| !text.is_empty()).map(Part::text).into_iter().collect();
        let written = Written { said, outcome: Some(Outcome::Completed(parts)), number: None };
        self.write(worker, id, ticket, written, luggage).await
    }

    /// Ends an attempt that did not work: another one follows, or the entry is a dead letter.
    pub async fn nack(
        &self,
        worker: &Worker,
        id: &str,
        ticket: Option<&str>,
        nack: Nack,
        luggage: &Luggage,
    ) -> Result<Shown, Error> {
        if nack.delay.is_some_and(|delay| delay > LONGEST_DELAY) {
            return Err(Error::invalid("delay", format!("must be at most {} seconds", LONGEST_DELAY.as_secs())));
        }
        if nack.release && (nack.fatal || nack.delay.is_some()) {
            return Err(Error::invalid("release", "goes with neither `delay` nor `fatal`: it waits again at once"));
        }
        let lease = self.lease(worker, id, ticket).await?;
        // Room for the answer is there before anything is done.
        let bytes = self.entry(worker, lease.task).await?.first_bytes;
        self.make_room(worker, bytes, luggage).await?;
        let error = if nack.error.is_empty() { "the worker gave it back" } else { &nack.error };
        let end = if nack.release {
            TurnEnd::Release { begun: false }
        } else {
            failed(&self.inner, &lease, error, nack.delay, nack.fatal)?
        };
        let trouble = Trouble::of_end(&end);
        match answered(self.inner.store.append(&lease, Append { end: Some(end), ..Append::default() })).await {
            Ok(appended) => tell(&lease, trouble, appended.state, error),
            Err(store::Error::LeaseLost | store::Error::Terminal(_)) => return Err(self.lost(&lease).await),
            Err(error) => return Err(Error::of_task(error, lease.task)),
        }
        self.inner.desk.look();
        self.show(self.entry(worker, lease.task).await?).await
    }

    /// The lease that a worker has shown; without one, whoever's it is now.
    async fn lease(&self, worker: &Worker, id: &str, ticket: Option<&str>) -> Result<Lease, Error> {
        worker.may_work()?;
        let task = convert::task_id(id)?;
        let Some(ticket) = ticket else {
            let entry = self.entry(worker, task).await?;
            let Some(lease) = entry.lease.clone().filter(|_| entry.queued) else {
                return Err(Error::NotWaiting(format!("nobody holds the entry: {}", why_not(&entry))));
            };
            return Ok(lease);
        };
        let wrong = || Error::invalid("lease", "is not a lease of this entry: use the one that came with it");
        let lease = ticket::open(&self.inner.page_key, ticket).ok_or_else(wrong)?;
        if lease.task != task {
            return Err(wrong());
        }
        if worker.tenant().is_some_and(|tenant| tenant != lease.tenant) || !worker.covers(&lease.agent) {
            return Err(Error::TaskNotFound(task.to_string()));
        }
        Ok(lease)
    }

    /// What to tell a worker that no longer holds its entry.
    async fn lost(&self, lease: &Lease) -> Error {
        match self.inner.store.entry(Some(lease.tenant), lease.task).await {
            Ok(entry) => Error::LeaseLost(format!("the lease is lost: {}", why_not(&entry))),
            Err(error) => Error::of_task(error, lease.task),
        }
    }

    /// Whoever writes for this lease, with what was kept before.
    pub(super) async fn scribe(&self, lease: &Lease) -> Result<Scribe, Error> {
        let entry = self.inner.agents.get(lease.tenant, &lease.agent);
        let reply_text = entry.map_or(ReplyText::default(), |entry| entry.profile.reply_text);
        let mut scribe = Scribe::new(lease.task, Arc::clone(&lease.context), lease.turn, lease.attempt, reply_text);
        turn::take_up(&self.inner, lease, &mut scribe, &mut Left::Stored).await?;
        Ok(scribe)
    }

    /// Takes room for what a turn goes on from, which a call reads and writes again: the state that was kept, and the artifacts.
    async fn make_room_for_state(&self, worker: &Worker, lease: &Lease, luggage: &Luggage) -> Result<(), Error> {
        if lease.kept == 0 {
            return Ok(());
        }
        let store = &self.inner.store;
        let wrong = |error| Error::of_task(error, lease.task);
        let most = Most { events: 1, bytes: STATE };
        let (kept, read) = match store.read(lease.tenant, lease.task, lease.kept - 1, most).await {
            Err(store::Error::Heavy { bytes }) => {
                self.make_room(worker, bytes, luggage).await?;
                (store.events(lease.tenant, lease.task, lease.kept - 1, 1).await.map_err(wrong)?, bytes)
            }
            read => (read.map_err(wrong)?.0, 0),
        };
        let length = kept.first().map_or(Ok(0), kept::length).map_err(wrong)?;
        // What has no room at all is not read: the answer is how long it is.
        let view = View { history: Some(0), artifacts: true, most: 0 };
        let made = match store.task(lease.tenant, lease.task, view).await {
            Ok(_) => 0,
            Err(store::Error::Heavy { bytes }) => bytes,
            Err(error) => return Err(wrong(error)),
        };
        self.make_room(worker, length.saturating_sub(read).saturating_add(made), luggage).await
    }

    /// Writes what a worker says. Of several calls under one lease each sees what those before it have written.
    async fn write(
        &self,
        worker: &Worker,
        id: &str,
        ticket: Option<&str>,
        written: Written,
        luggage: &Luggage,
    ) -> Result<TaskState, Error> {
        let mut lease = self.lease(worker, id, ticket).await?;
        self.make_room_for_state(worker, &lease, luggage).await?;
        for _ in 0..MOVES {
            match self.try_write(&lease, &written).await {
                Err(Error::Store(store::Error::Moved)) => {
                    let now = self.entry(worker, lease.task).await?.lease;
                    let same = |now: &Lease| now.generation == lease.generation && now.holder == lease.holder;
                    let Some(now) = now.filter(same) else { return Err(self.lost(&lease).await) };
                    // The ticket is from before the state was kept that is read now.
                    if now.kept != lease.kept {
                        self.make_room_for_state(worker, &now, luggage).await?;
                    }
                    lease = now;
                }
                Err(Error::Store(store::Error::LeaseLost | store::Error::Terminal(_))) => {
                    return match self.has_ended(&lease, written.outcome.as_ref()).await? {
                        Some(state) => Ok(state),
                        None => Err(self.lost(&lease).await),
                    };
                }
                Err(Error::Store(error)) => return Err(Error::of_task(error, lease.task)),
                outcome => {
                    if let (Some(end), Ok(state)) = (&written.outcome, &outcome) {
                        if let Some((trouble, cause)) = Trouble::of(end) {
                            tell(&lease, Some(trouble), *state, &cause);
                        }
                        errand::wake_parent_of(&self.inner, lease.tenant, lease.task).await;
                    }
                    // There may be room for one more of an agent that has a bound.
                    if written.outcome.is_some() && self.most_held(&lease.agent).is_some() {
                        self.inner.desk.look();
                    }
                    return outcome;
                }
            }
        }
        Err(Error::Store(store::Error::Unavailable("too many calls write to this entry at once".into())))
    }

    /// The state of a task that has ended so under this very lease: a worker that has not heard the answer says it again.
    async fn has_ended(&self, lease: &Lease, outcome: Option<&Outcome>) -> Result<Option<TaskState>, Error> {
        let ends_as = match outcome {
            Some(Outcome::Completed(_)) => TaskState::Completed,
            Some(Outcome::Failed(_)) => TaskState::Failed,
            Some(Outcome::Rejected(_)) => TaskState::Rejected,
            Some(Outcome::Canceled) => TaskState::Canceled,
            Some(Outcome::InputRequired(_)) => TaskState::InputRequired,
            Some(Outcome::AuthRequired(_)) => TaskState::AuthRequired,
            _ => return Ok(None),
        };
        let entry = self.inner.store.entry(Some(lease.tenant), lease.task).await;
        let entry = entry.map_err(|error| Error::of_task(error, lease.task))?;
        let is_so = entry.lease.is_none()
            && entry.generation == lease.generation
            && (entry.state == ends_as || entry.state == TaskState::Canceled)
            && !entry.dead;
        Ok(is_so.then_some(entry.state))
    }

    async fn try_write(&self, lease: &Lease, written: &Written) -> Result<TaskState, Error> {
        let mut scribe = self.scribe(lease).await?;
        if let Some(number) = written.number {
            if number <= scribe.told() {
                let entry = self.inner.store.entry(Some(lease.tenant), lease.task).await?;
                let is_held = entry.lease.as_ref().is_some_and(|now| now.generation == lease.generation);
                return if is_held { Ok(entry.state) } else { Err(store::Error::LeaseLost.into()) };
            }
            scribe.tell(number);
        }
        for said in &written.said {
            scribe.take(copy(said));
        }
        if scribe.made() > MOST_ARTIFACTS {
            return Err(Error::invalid("events", format!("a turn makes at most {MOST_ARTIFACTS} artifacts here")));
        }
        let end = match &written.outcome {
            Some(outcome) => Some(scribe.end(outcome.clone())?),
            None => {
                scribe.rest();
                None
            }
        };
        let append = Append { drafts: scribe.drafts()?, end, only: Only::Kept(lease.kept), tokens: scribe.spent() };
        Ok(answered(self.inner.store.append(lease, append)).await?.state)
    }
}

/// What a call writes.
struct Written {
    said: Vec<Said>,
    outcome: Option<Outcome>,
    /// Which call it is, where the worker counts them.
    number: Option<u64>,
}

/// What was said, once more: a call may have to say it again.
fn copy(said: &Said) -> Said {
    match said {
        Said::Status { auth_required, message, metadata } => {
            Said::Status { auth_required: *auth_required, message: message.clone(), metadata: metadata.clone() }
        }
        Said::Artifact { artifact, append, last_chunk, metadata } => Said::Artifact {
            artifact: artifact.clone(),
            append: *append,
            last_chunk: *last_chunk,
            metadata: metadata.clone(),
        },
        Said::Note(note) => Said::Note(note.clone()),
        Said::Keep(state) => Said::Keep(state.clone()),
        Said::Owes(owes) => Said::Owes(*owes),
        // Nobody waits here: a call is answered when all of it is durable.
        Said::Flush(_) => Said::Flush(oneshot::channel().0),
    }
}
