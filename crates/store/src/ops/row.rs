//! A task's row while an operation changes it: loaded, changed in memory together with its log, written once.

use std::sync::Arc;

use a2a::{TaskState, Timestamp};
use bytes::Bytes;

use super::{NewMessage, Tx, requests};
use crate::{
    AgentId, Draft, Error, Event, EventKind, Holder, Lease, LeaseTime, QueueEntry, Result, TaskId, TenantId, Term,
    Tokens, Turn, attempts, clock, codec,
    draft::{Content, Owing},
    lease::holder_name,
    machine,
    queue::Lengths,
};

/// Whether callers see a task (`a2a_tasks.hidden`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hidden {
    /// They do.
    No = 0,
    /// Its first output decides.
    Undecided = 1,
    /// It was answered by a direct reply.
    Direct = 2,
}

impl Hidden {
    /// As it is stored.
    pub(crate) fn from_code(code: i64) -> Self {
        match code {
            0 => Self::No,
            1 => Self::Undecided,
            _ => Self::Direct,
        }
    }
}

/// Whether a turn rests, held by nobody, until something happens (`a2a_tasks.parking`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parking {
    No = 0,
    Parked = 1,
    /// It runs, and something happened that it might be about to wait for.
    Woken = 2,
}

impl Parking {
    /// As it is stored.
    pub(crate) fn from_code(code: i64) -> Self {
        match code {
            1 => Self::Parked,
            2 => Self::Woken,
            _ => Self::No,
        }
    }
}

/// Whether a task has failed for good after its attempts, and what became of that (`a2a_tasks.dead`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dead {
    No = 0,
    /// It stays until somebody decides.
    Letter = 1,
    /// Another task repeats it.
    Replayed = 2,
}

impl Dead {
    /// As it is stored.
    pub(crate) fn from_code(code: i64) -> Self {
        match code {
            1 => Self::Letter,
            2 => Self::Replayed,
            _ => Self::No,
        }
    }
}

/// Whether an agent is asked, after its task has ended, to end what others do for it (`a2a_tasks.aftermath`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aftermath {
    No = 0,
    /// It is, once it has kept a state: without one it has handed nothing on.
    IfKept = 1,
    /// The task has ended, and the agent has not been asked yet.
    Owed = 2,
    /// It has kept a state. That holds even when another attempt has undone the attempt that kept it.
    IfEnded = 3,
    /// The same, and others are at work who have to be told even when the task has ended as COMPLETED.
    AtAnyEnd = 4,
}

impl Aftermath {
    /// As it is stored.
    pub(crate) fn from_code(code: i64) -> Self {
        match code {
            1 => Self::IfKept,
            2 => Self::Owed,
            3 => Self::IfEnded,
            4 => Self::AtAnyEnd,
            _ => Self::No,
        }
    }
}

/// What a task's push configurations have to tell of, from nothing to everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owes {
    Nothing,
    /// A piece of an artifact, which only those are told who asked for every one.
    Chunks,
    All,
}

/// A row of `a2a_tasks`.
#[derive(Debug, Clone)]
pub(crate) struct TaskRow {
    /// The backend's own key of the row; a backend whose key is the task's id has no use for it.
    pub(crate) pk: i64,
    pub(crate) task: TaskId,
    pub(crate) tenant: TenantId,
    pub(crate) agent: AgentId,
    pub(crate) context: Arc<str>,
    pub(crate) state: TaskState,
    pub(crate) created_at: i64,
    pub(crate) updated_at: i64,
    pub(crate) status_at: i64,
    pub(crate) status_message: Option<Bytes>,
    pub(crate) status_turn: u32,
    pub(crate) seq: u64,
    pub(crate) hidden: Hidden,
    pub(crate) due_at: Option<i64>,
    pub(crate) owner: Option<String>,
    pub(crate) generation: u64,
    /// At the current turn.
    pub(crate) attempt: u32,
    /// How many of the attempts were given back on purpose.
    pub(crate) releases: u32,
    /// The attempt before was cut off, and whoever made it is known to be gone.
    pub(crate) interrupted: bool,
    /// The lease has run out, and its holder had a last call.
    pub(crate) overdue: bool,
    pub(crate) parking: Parking,
    /// The event with which its agent last kept its state; zero for none.
    pub(crate) kept: u64,
    /// The same at the begin of the current turn.
    pub(crate) kept_before: u64,
    pub(crate) turn: u32,
    pub(crate) waiting: u32,
    pub(crate) cancel_mark: bool,
    pub(crate) remembers: bool,
    /// It waits for whoever asks for it; no instance runs it by itself.
    pub(crate) queued: bool,
    /// Who has published it.
    pub(crate) from: Arc<str>,
    pub(crate) priority: u8,
    /// How often it may be tried, where that is its own affair.
    pub(crate) max_attempts: Option<u32>,
    /// The dead letter that it repeats.
    pub(crate) replays: Option<String>,
    /// What it came from, as JSON.
    pub(crate) origin: Option<Arc<str>>,
    pub(crate) dead: Dead,
    /// Why attempts failed, as JSON.
    pub(crate) errors: Option<String>,
    pub(crate) aftermath: Aftermath,
    /// What its turns have used of models.
    pub(crate) tokens: Tokens,
    /// How many push configurations it has.
    pub(crate) pushes: u32,
    /// What of that which was logged is to be told.
    owes: Owes,
    /// As what it stands in `task_counts`.
    counted: Option<TaskState>,
    /// Whether it stands in its tenant's usage as a task that has not ended.
    live: bool,
    /// The bytes of messages, artifacts and events that were written, less those removed.
    written: i64,
    /// Only the log's end has changed.
    touched_only: bool,
}

impl TaskRow {
    /// A task that is about to be.
    pub(crate) fn new(
        pk: i64,
        task: TaskId,
        tenant: TenantId,
        agent: AgentId,
        context: Arc<str>,
        hidden: Hidden,
        at: Timestamp,
    ) -> Self {
        let at = at.as_millis();
        Self {
            pk,
            task,
            tenant,
            agent,
            context,
            state: TaskState::Submitted,
            created_at: at,
            updated_at: at,
            status_at: at,
            status_message: None,
            status_turn: 0,
            seq: 0,
            hidden,
            due_at: None,
            owner: None,
            generation: 0,
            attempt: 0,
            releases: 0,
            interrupted: false,
            overdue: false,
            parking: Parking::No,
            kept: 0,
            kept_before: 0,
            turn: 0,
            waiting: 0,
            cancel_mark: false,
            remembers: true,
            queued: false,
            from: Arc::default(),
            priority: 0,
            max_attempts: None,
            replays: None,
            origin: None,
            dead: Dead::No,
            errors: None,
            aftermath: Aftermath::No,
            tokens: Tokens::default(),
            pushes: 0,
            owes: Owes::Nothing,
            counted: None,
            live: false,
            written: 0,
            touched_only: false,
        }
    }

    /// Says that the columns are as they are stored: what changes from here on is a change.
    pub(crate) fn stored(mut self) -> Self {
        self.counted = (self.hidden == Hidden::No).then_some(self.state);
        self.live = !self.state.is_terminal();
        self.written = 0;
        self.touched_only = true;
        self.owes = Owes::Nothing;
        self
    }

    /// The row, if callers see the task.
    pub(crate) fn visible(self) -> Result<Self> {
        if self.hidden == Hidden::No { Ok(self) } else { Err(Error::NotFound) }
    }

    /// A turn rests. An older version that has taken it since knows nothing of that.
    pub(super) fn is_parked(&self) -> bool {
        self.parking == Parking::Parked && self.owner.is_none() && self.due_at.is_some()
    }

    /// A turn runs, waits to start or waits to run again.
    pub(super) fn is_due_or_running(&self) -> bool {
        self.due_at.is_some()
    }

    /// As the queue sees it.
    pub(crate) fn into_entry(self, lengths: Lengths, now: LeaseTime) -> Result<QueueEntry> {
        let lease = self.lease();
        Ok(QueueEntry {
            task: self.task,
            tenant: self.tenant,
            state: self.state,
            queued: self.queued,
            dead: self.dead == Dead::Letter,
            priority: self.priority,
            turn: self.turn,
            attempts: self.attempt.saturating_sub(self.releases),
            max_attempts: self.max_attempts,
            errors: attempts::read(self.errors.as_deref()),
            replays: self.replays.as_deref().map(codec::parse_task).transpose()?,
            created_at: codec::time(self.created_at),
            status_at: codec::time(self.status_at),
            due_in: self.due_at.map(|due| LeaseTime(due).since(now)),
            generation: self.generation,
            lease,
            canceled: self.cancel_mark,
            first_bytes: lengths.first,
            message_bytes: lengths.all,
            agent: self.agent,
            context: self.context,
            from: self.from,
        })
    }

    /// What the machine says to `step`.
    pub(super) fn next(&self, step: machine::Step) -> Result<TaskState> {
        step_from(self.state, step)
    }

    /// Gives a new lease of it, in the place of any other.
    pub(super) fn lease_to(&mut self, term: &Term, now: LeaseTime) {
        self.touched_only = false;
        self.generation += 1;
        self.owner = Some(term.holder.as_str().to_owned());
        self.due_at = Some(now.after(term.lasts).0);
        self.interrupted = false;
        self.overdue = false;
        self.parking = Parking::No;
    }

    /// Gives whoever holds it until then to renew a lease that has run out.
    pub(super) fn call_holder(&mut self, until: LeaseTime) {
        self.touched_only = false;
        self.overdue = true;
        self.due_at = Some(until.0);
    }

    /// Its holder is heard of: when the lease has run out it is called anew.
    pub(super) fn answer_call(&mut self) {
        self.touched_only = false;
        self.overdue = false;
    }

    /// The lease of it, if somebody has one.
    pub(crate) fn lease(&self) -> Option<Lease> {
        let holder = Holder::stored(self.owner.as_deref()?);
        Some(Lease {
            holder,
            task: self.task,
            tenant: self.tenant,
            agent: self.agent.clone(),
            context: Arc::clone(&self.context),
            generation: self.generation,
            turn: self.turn,
            attempt: self.attempt,
            tries: self.attempt.saturating_sub(self.releases),
            max_attempts: self.max_attempts,
            remembers: self.remembers,
            kept: self.kept,
            origin: self.origin.clone(),
        })
    }

    /// Whether this lease of it is the current one. A task that has ended has none.
    pub(super) fn is_held_under(&self, lease: &Lease) -> bool {
        self.generation == lease.generation && self.owner.as_deref() == Some(lease.holder.as_str())
    }

    /// Takes the event that was just logged as the state that its agent keeps.
    pub(super) fn keep(&mut self, owing: Owing) {
        self.touched_only = false;
        self.kept = self.seq;
        self.aftermath = match (self.aftermath, owing) {
            (Aftermath::No | Aftermath::Owed, _) => self.aftermath,
            (_, Some(true)) => Aftermath::AtAnyEnd,
            (_, Some(false)) | (Aftermath::IfKept, None) => Aftermath::IfEnded,
            (_, None) => self.aftermath,
        };
    }

    /// Appends an event to the log.
    pub(super) fn log(&mut self, tx: &mut impl Tx, at: Timestamp, kind: EventKind, body: Bytes) -> Result<()> {
        self.seq += 1;
        self.updated_at = at.as_millis();
        self.wrote(body.len());
        self.owe(match kind {
            EventKind::Artifact => Owes::Chunks,
            kind if kind.has_frame() => Owes::All,
            _ => Owes::Nothing,
        });
        tx.log(self, Event { seq: self.seq, at, kind, body })
    }

    /// Takes on the status of `draft`, logged as `kind`. The message of the status before goes into the history.
    pub(super) fn set_status(&mut self, tx: &mut impl Tx, draft: &Draft, kind: EventKind) -> Result<()> {
        let Content::Status { state, message } = &draft.content else {
            return Err(Error::Damaged("a status was expected".into()));
        };
        self.touched_only = false;
        self.retire_status_message(tx, draft.at)?;
        self.state = *state;
        if state.is_terminal() {
            // An agent that completes its work has nothing under way, unless it says so. Any other end may have come over it in the middle.
            let is_cut_short = *state != TaskState::Completed;
            let is_owed = match self.aftermath {
                Aftermath::AtAnyEnd => true,
                Aftermath::IfEnded => is_cut_short,
                Aftermath::IfKept => is_cut_short && self.kept > 0,
                Aftermath::No | Aftermath::Owed => false,
            };
            self.aftermath = if is_owed { Aftermath::Owed } else { Aftermath::No };
        }
        self.status_at = draft.at.as_millis();
        self.status_message.clone_from(message);
        self.status_turn = self.turn;
        self.log(tx, draft.at, kind, draft.body.clone())
    }

    /// Moves the status message into the history; the status is about to be replaced.
    pub(super) fn retire_status_message(&mut self, tx: &mut impl Tx, at: Timestamp) -> Result<()> {
        let Some(message) = self.status_message.take() else {
            return Ok(());
        };
        // One that is damaged is kept as it is: it keeps nobody from going on.
        let id = serde_json::from_slice(&message).map_or_else(|_| String::new(), |said: a2a::Message| said.message_id);
        let (id, turn) = (id.as_str(), self.status_turn);
        tx.add_message(self, NewMessage { id, role: "agent", status: "sent", turn, body: &message, at })?;
        self.wrote(message.len());
        Ok(())
    }

    /// Adds a caller's message, to the inbox or as the running turn's own.
    pub(super) fn add_input(
        &mut self,
        tx: &mut impl Tx,
        id: &str,
        body: &Bytes,
        turn: u32,
        status: &'static str,
        at: Timestamp,
    ) -> Result<()> {
        tx.add_message(self, NewMessage { id, role: "user", status, turn, body, at })?;
        self.wrote(body.len());
        Ok(())
    }

    /// Logs what came with the message of a turn beside it, and remembers where that stands.
    pub(super) fn add_request(&mut self, tx: &mut impl Tx, request: &Bytes, turn: u32, at: Timestamp) -> Result<()> {
        self.touched_only = false;
        self.log(tx, at, EventKind::Note, request.clone())?;
        self.origin = Some(requests::with(self.origin.as_deref(), self.turn, turn, self.seq)?);
        Ok(())
    }

    /// The event with what came with the message of a turn beside it.
    pub(super) fn request(&self, turn: u32) -> Option<u64> {
        requests::of(self.origin.as_deref(), turn)
    }

    /// Something that was logged is to be told to those whom it concerns.
    pub(super) fn owe(&mut self, owes: Owes) {
        self.owes = self.owes.max(owes);
    }

    /// Makes its push configurations due, if they have something to tell. What is not shown is not told; with the showing all
    /// that was logged before is owed.
    fn make_due(&self, tx: &mut impl Tx) -> Result<()> {
        if self.pushes == 0 || self.owes == Owes::Nothing || self.hidden != Hidden::No {
            return Ok(());
        }
        tx.owe(self, self.owes)
    }

    /// Counts bytes that were written.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.written = self.written.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Counts bytes that were removed.
    pub(super) fn removed(&mut self, bytes: i64) {
        self.written -= bytes;
    }

    /// The turn that has not ended.
    pub(super) fn current_turn(&self, tx: &mut impl Tx) -> Result<Option<Turn>> {
        tx.current_message(self)?.map(|message| message.into_turn(self.turn, self.request(self.turn))).transpose()
    }

    /// The turn of the inbox's oldest message.
    pub(super) fn waiting_turn(&self, tx: &mut impl Tx) -> Result<Option<Turn>> {
        let number = self.turn + 1;
        tx.waiting_message(self)?.map(|message| message.into_turn(number, self.request(number))).transpose()
    }

    /// Begins the turn that [`TaskRow::waiting_turn`] found.
    pub(super) fn begin_turn(&mut self, tx: &mut impl Tx) -> Result<()> {
        self.next_turn();
        self.waiting = self.waiting.saturating_sub(1);
        tx.begin_turn(self)
    }

    /// Counts on to the next turn, whose message is at hand.
    pub(super) fn next_turn(&mut self) {
        self.touched_only = false;
        self.turn += 1;
        self.attempt = 1;
        self.releases = 0;
        self.kept_before = self.kept;
    }

    /// The current turn's message has been dealt with.
    pub(super) fn end_turn(&mut self, tx: &mut impl Tx) -> Result<()> {
        self.touched_only = false;
        tx.end_turn(self)
    }

    /// Nobody holds it, and it may run (again) at `due_at`.
    pub(super) fn release(&mut self, due_at: Option<i64>) {
        self.touched_only = false;
        self.owner = None;
        self.interrupted = false;
        self.overdue = false;
        self.parking = Parking::No;
        self.due_at = due_at;
    }

    /// Remembers why an attempt failed.
    pub(super) fn failed(&mut self, error: &str, at: Timestamp) {
        self.touched_only = false;
        let holder = self.owner.as_deref().map_or("", holder_name);
        self.errors = Some(attempts::with(self.errors.as_deref(), self.attempt, holder, error, at));
    }

    /// Nobody holds it, and the same attempt goes on at `due`.
    pub(super) fn park(&mut self, due: LeaseTime) {
        self.release(Some(due.0));
        self.parking = Parking::Parked;
    }

    /// Ends it as CANCELED, with a status of the store's own making.
    pub(super) fn cancel(&mut self, tx: &mut impl Tx, at: Timestamp) -> Result<()> {
        let state = self.next(machine::Step::Cancel)?;
        let draft = Draft::status(self.task, &self.context, state, None, None, at)?;
        self.set_status(tx, &draft, EventKind::Status { state, ends_turn: true })?;
        self.end_turn(tx)?;
        self.release(None);
        Ok(())
    }

    /// Ends it with a direct reply. Callers never see the task, so the status is only what the context remembers.
    pub(super) fn reply(&mut self, tx: &mut impl Tx, reply: &Draft, status: &Draft) -> Result<()> {
        let Content::Status { state, message } = &status.content else {
            return Err(Error::Damaged("a status was expected".into()));
        };
        self.touched_only = false;
        self.retire_status_message(tx, reply.at)?;
        self.state = *state;
        self.status_at = reply.at.as_millis();
        self.status_message.clone_from(message);
        self.status_turn = self.turn;
        self.hidden = Hidden::Direct;
        self.log(tx, reply.at, EventKind::Reply, reply.body.clone())
    }

    /// From now on callers see it, although nothing was said.
    pub(super) fn reveal(&mut self, tx: &mut impl Tx) -> Result<()> {
        self.show();
        self.log(tx, clock::now(), EventKind::Revealed, Bytes::from_static(b"{}"))
    }

    /// From now on callers see it.
    pub(super) fn show(&mut self) {
        self.touched_only = false;
        self.hidden = Hidden::No;
        self.owe(Owes::All);
    }

    /// Counts what was used of models.
    pub(super) fn spend(&mut self, tokens: Tokens) {
        if tokens != Tokens::default() {
            self.touched_only = false;
            self.tokens = self.tokens.plus(tokens);
        }
    }

    /// Says that columns were changed directly.
    pub(super) fn changed(&mut self) {
        self.touched_only = false;
    }

    /// Writes the new row.
    pub(super) fn insert(mut self, tx: &mut impl Tx) -> Result<()> {
        self.count(tx);
        self.make_due(tx)?;
        tx.insert(self)
    }

    /// Writes what has changed.
    pub(super) fn save(mut self, tx: &mut impl Tx) -> Result<()> {
        self.make_due(tx)?;
        if self.touched_only {
            tx.add_usage(self.tenant, 0, self.written);
            return tx.touch(self);
        }
        self.count(tx);
        tx.save(self)
    }

    fn count(&mut self, tx: &mut impl Tx) {
        let live = !self.state.is_terminal();
        tx.add_usage(self.tenant, i64::from(live) - i64::from(self.live), self.written);
        let now = (self.hidden == Hidden::No).then_some(self.state);
        if now == self.counted {
            return;
        }
        if let Some(state) = self.counted {
            tx.count(self.tenant, &self.agent, state, -1);
        }
        if let Some(state) = now {
            tx.count(self.tenant, &self.agent, state, 1);
        }
    }
}

/// The state after `step`, a refusal as an error of the store.
pub(super) fn step_from(state: TaskState, step: machine::Step) -> Result<TaskState> {
    machine::next(state, step).map_err(|refusal| match refusal {
        machine::Refusal::Terminal(state) => Error::Terminal(state),
        machine::Refusal::Illegal(state) => Error::Illegal(state),
    })
}
