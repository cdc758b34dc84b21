//! A task's row while an operation changes it: loaded, changed in memory together with its log, written once.

use std::sync::Arc;

use a2a::{TaskState, Timestamp};
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{codec, writer::Batch};
use crate::{AgentId, Draft, Error, Event, EventKind, Lease, Result, TaskId, TenantId, Turn, draft::Content, machine};

/// Whether callers see a task (`a2a_tasks.hidden`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hidden {
    /// They do.
    No = 0,
    /// Its first output decides.
    Undecided = 1,
    /// It was answered by a direct reply.
    Direct = 2,
}

/// A row of `a2a_tasks`.
pub(super) struct TaskRow {
    pub(super) pk: i64,
    pub(super) task: TaskId,
    pub(super) tenant: TenantId,
    pub(super) agent: AgentId,
    pub(super) context: Arc<str>,
    pub(super) state: TaskState,
    pub(super) created_at: i64,
    pub(super) updated_at: i64,
    pub(super) status_at: i64,
    pub(super) status_message: Option<Bytes>,
    pub(super) status_turn: u32,
    pub(super) seq: u64,
    pub(super) hidden: Hidden,
    pub(super) due_at: Option<i64>,
    pub(super) owner: Option<String>,
    pub(super) generation: u64,
    pub(super) attempt: u32,
    pub(super) turn: u32,
    pub(super) waiting: u32,
    pub(super) cancel_mark: bool,
    pub(super) remembers: bool,
    /// As what it stands in `task_counts`.
    counted: Option<TaskState>,
    /// Whether it stands in its tenant's usage as a task that has not ended.
    live: bool,
    /// The bytes of messages, artifacts and events that were written, less those removed.
    written: i64,
    /// Only the log's end has changed.
    touched_only: bool,
}

/// The columns that [`TaskRow::read`] reads, for every statement that loads rows.
macro_rules! task_columns {
    () => {
        "pk, task_id, tenant_id, agent_id, context_id, state, created_at, updated_at, status_at, status_message, \
         status_turn, seq, hidden, due_at, owner, generation, attempt, turn, waiting, cancel_mark, \
         remembers"
    };
}
pub(super) use task_columns;

const LOAD: &str = concat!("SELECT ", task_columns!(), " FROM a2a_tasks WHERE task_id = ?1 AND tenant_id = ?2");

impl TaskRow {
    /// A task that is about to be.
    pub(super) fn new(
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
            turn: 0,
            waiting: 0,
            cancel_mark: false,
            remembers: true,
            counted: None,
            live: false,
            written: 0,
            touched_only: false,
        }
    }

    /// The tenant's task, hidden or not.
    pub(super) fn load(conn: &Connection, tenant: TenantId, task: TaskId) -> Result<Self> {
        let mut load = conn.prepare_cached(LOAD)?;
        let mut rows = load.query(params![task.to_string(), tenant.0])?;
        match rows.next()? {
            Some(row) => Self::read(row),
            None => Err(Error::NotFound),
        }
    }

    /// A row of a statement that selects `task_columns!()`.
    pub(super) fn read(row: &Row<'_>) -> Result<Self> {
        let text = |n| Ok::<_, Error>(row.get_ref(n)?.as_str().map_err(rusqlite::Error::from)?);
        let state = codec::parse_state(text(5)?)?;
        let hidden = match row.get::<_, i64>(12)? {
            0 => Hidden::No,
            1 => Hidden::Undecided,
            _ => Hidden::Direct,
        };
        Ok(Self {
            pk: row.get(0)?,
            task: codec::parse_task(text(1)?)?,
            tenant: TenantId(row.get(2)?),
            agent: codec::parse_agent(text(3)?)?,
            context: text(4)?.into(),
            state,
            created_at: row.get(6)?,
            updated_at: row.get(7)?,
            status_at: row.get(8)?,
            status_message: row.get::<_, Option<String>>(9)?.map(Bytes::from),
            status_turn: row.get(10)?,
            seq: codec::unsigned(row.get(11)?),
            hidden,
            due_at: row.get(13)?,
            owner: row.get(14)?,
            generation: codec::unsigned(row.get(15)?),
            attempt: row.get(16)?,
            turn: row.get(17)?,
            waiting: row.get(18)?,
            cancel_mark: row.get(19)?,
            remembers: row.get(20)?,
            counted: (hidden == Hidden::No).then_some(state),
            live: !state.is_terminal(),
            written: 0,
            touched_only: true,
        })
    }

    /// The tenant's task, if callers see it.
    pub(super) fn load_visible(conn: &Connection, tenant: TenantId, task: TaskId) -> Result<Self> {
        let row = Self::load(conn, tenant, task)?;
        if row.hidden == Hidden::No { Ok(row) } else { Err(Error::NotFound) }
    }

    /// A turn runs, waits to start or waits to run again.
    pub(super) fn is_due_or_running(&self) -> bool {
        self.due_at.is_some()
    }

    /// What the machine says to `step`.
    pub(super) fn next(&self, step: machine::Step) -> Result<TaskState> {
        step_from(self.state, step)
    }

    /// The lease that its owner holds.
    pub(super) fn lease(&self) -> Lease {
        Lease {
            task: self.task,
            tenant: self.tenant,
            agent: self.agent.clone(),
            context: Arc::clone(&self.context),
            generation: self.generation,
            attempt: self.attempt,
            remembers: self.remembers,
        }
    }

    /// Appends an event to the log.
    pub(super) fn log(&mut self, batch: &mut Batch<'_>, at: Timestamp, kind: EventKind, body: Bytes) -> Result<()> {
        self.seq += 1;
        self.updated_at = at.as_millis();
        self.wrote(body.len());
        batch.log(self.task, self.pk, Event { seq: self.seq, at, kind, body })
    }

    /// Takes on the status of `draft`. The message of the status before goes into the history.
    pub(super) fn set_status(&mut self, batch: &mut Batch<'_>, draft: &Draft, ends_turn: bool) -> Result<()> {
        let Content::Status { state, message } = &draft.content else {
            return Err(Error::Damaged("a status was expected".into()));
        };
        self.touched_only = false;
        self.retire_status_message(batch, draft.at)?;
        self.state = *state;
        self.status_at = draft.at.as_millis();
        self.status_message.clone_from(message);
        self.status_turn = self.turn;
        self.log(batch, draft.at, EventKind::Status { state: *state, ends_turn }, draft.body.clone())
    }

    /// Moves the status message into the history; the status is about to be replaced.
    pub(super) fn retire_status_message(&mut self, batch: &Batch<'_>, at: Timestamp) -> Result<()> {
        let Some(message) = self.status_message.take() else {
            return Ok(());
        };
        let parsed: a2a::Message = serde_json::from_slice(&message)?;
        let said = MessageRow { id: &parsed.message_id, role: "agent", status: "sent", turn: self.status_turn };
        said.insert(batch, self.pk, &message, at)?;
        self.wrote(message.len());
        Ok(())
    }

    /// Adds a caller's message, to the inbox or as the running turn's own.
    pub(super) fn add_input(
        &mut self,
        batch: &Batch<'_>,
        message_id: &str,
        message: &Bytes,
        turn: u32,
        status: &str,
        at: Timestamp,
    ) -> Result<()> {
        MessageRow { id: message_id, role: "user", status, turn }.insert(batch, self.pk, message, at)?;
        self.wrote(message.len());
        Ok(())
    }

    /// Counts bytes that were written.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.written = self.written.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Counts bytes that were removed.
    pub(super) fn removed(&mut self, bytes: i64) {
        self.written -= bytes;
    }

    /// Whether the current turn has not ended.
    pub(super) fn has_current_turn(&self, conn: &Connection) -> Result<bool> {
        Ok(conn
            .prepare_cached("SELECT 1 FROM a2a_messages WHERE task = ?1 AND turn = ?2 AND status = 'in_progress'")?
            .exists(params![self.pk, self.turn])?)
    }

    /// The message that the current turn works on, if the turn has not ended.
    pub(super) fn current_turn(&self, conn: &Connection) -> Result<Option<Turn>> {
        let body: Option<Vec<u8>> = conn
            .prepare_cached("SELECT body FROM a2a_messages WHERE task = ?1 AND turn = ?2 AND status = 'in_progress'")?
            .query_row(params![self.pk, self.turn], |row| row.get(0))
            .optional()?;
        let Some(body) = body else { return Ok(None) };
        Ok(Some(Turn { message: serde_json::from_slice(&body)?, number: self.turn }))
    }

    /// The oldest message of the inbox.
    pub(super) fn waiting_turn(&self, conn: &Connection) -> Result<Option<Turn>> {
        let body: Option<Vec<u8>> = conn
            .prepare_cached(
                "SELECT body FROM a2a_messages WHERE task = ?1 AND status = 'pending' ORDER BY pos LIMIT 1",
            )?
            .query_row([self.pk], |row| row.get(0))
            .optional()?;
        let Some(body) = body else { return Ok(None) };
        Ok(Some(Turn { message: serde_json::from_slice(&body)?, number: self.turn + 1 }))
    }

    /// Begins the turn that [`TaskRow::waiting_turn`] found.
    pub(super) fn begin_turn(&mut self, batch: &Batch<'_>) -> Result<()> {
        self.touched_only = false;
        self.turn += 1;
        self.attempt = 1;
        self.waiting = self.waiting.saturating_sub(1);
        batch
            .conn
            .prepare_cached(
                "UPDATE a2a_messages SET status = 'in_progress' WHERE pos =
                   (SELECT pos FROM a2a_messages WHERE task = ?1 AND status = 'pending' ORDER BY pos LIMIT 1)",
            )?
            .execute([self.pk])?;
        Ok(())
    }

    /// The current turn's message has been dealt with.
    pub(super) fn end_turn(&mut self, batch: &Batch<'_>) -> Result<()> {
        self.touched_only = false;
        batch
            .conn
            .prepare_cached("UPDATE a2a_messages SET status = 'acked' WHERE task = ?1 AND status = 'in_progress'")?
            .execute([self.pk])?;
        Ok(())
    }

    /// Nobody holds it, and it may run (again) at `due_at`.
    pub(super) fn release(&mut self, due_at: Option<i64>) {
        self.touched_only = false;
        self.owner = None;
        self.due_at = due_at;
    }

    /// Ends it as CANCELED, with a status of the store's own making.
    pub(super) fn cancel(&mut self, batch: &mut Batch<'_>, at: Timestamp) -> Result<()> {
        let state = self.next(machine::Step::Cancel)?;
        let draft = Draft::status(self.task, &self.context, state, None, None, at)?;
        self.set_status(batch, &draft, true)?;
        self.end_turn(batch)?;
        self.release(None);
        Ok(())
    }

    /// Ends it with a direct reply. Callers never see the task, so the status is only what the context remembers.
    pub(super) fn reply(&mut self, batch: &mut Batch<'_>, reply: &Draft, status: &Draft) -> Result<()> {
        let Content::Status { state, message } = &status.content else {
            return Err(Error::Damaged("a status was expected".into()));
        };
        self.touched_only = false;
        self.retire_status_message(batch, reply.at)?;
        self.state = *state;
        self.status_at = reply.at.as_millis();
        self.status_message.clone_from(message);
        self.status_turn = self.turn;
        self.hidden = Hidden::Direct;
        self.log(batch, reply.at, EventKind::Reply, reply.body.clone())
    }

    /// From now on callers see it.
    pub(super) fn show(&mut self) {
        self.touched_only = false;
        self.hidden = Hidden::No;
    }

    /// Says that columns were changed directly.
    pub(super) fn changed(&mut self) {
        self.touched_only = false;
    }

    /// Writes the new row.
    pub(super) fn insert(mut self, batch: &mut Batch<'_>) -> Result<()> {
        batch
            .conn
            .prepare_cached(
                "INSERT INTO a2a_tasks (pk, task_id, tenant_id, agent_id, context_id, created_at, state, updated_at,
                   status_at, status_message, status_turn, seq, hidden, due_at, owner, generation, attempt, turn,
                   waiting, cancel_mark, remembers)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20,
                   ?21)",
            )?
            .execute(params![
                self.pk,
                self.task.to_string(),
                self.tenant.0,
                self.agent.as_str(),
                &*self.context,
                self.created_at,
                codec::state_name(self.state),
                self.updated_at,
                self.status_at,
                self.status_message.as_ref().map(codec::text).transpose()?,
                self.status_turn,
                codec::signed(self.seq),
                self.hidden as i64,
                self.due_at,
                self.owner,
                codec::signed(self.generation),
                self.attempt,
                self.turn,
                self.waiting,
                self.cancel_mark,
                self.remembers,
            ])?;
        self.count(batch);
        Ok(())
    }

    /// Writes what has changed.
    pub(super) fn save(mut self, batch: &mut Batch<'_>) -> Result<()> {
        if self.touched_only {
            // What a running turn says changes no indexed column: leave the indexes alone.
            batch
                .conn
                .prepare_cached("UPDATE a2a_tasks SET seq = ?2, updated_at = ?3 WHERE pk = ?1")?
                .execute(params![self.pk, codec::signed(self.seq), self.updated_at])?;
            batch.ledger.add(self.tenant, 0, self.written);
            return Ok(());
        }
        batch
            .conn
            .prepare_cached(
                "UPDATE a2a_tasks SET state = ?2, updated_at = ?3, status_at = ?4, status_message = ?5,
                   status_turn = ?6, seq = ?7, hidden = ?8, due_at = ?9, owner = ?10, generation = ?11,
                   attempt = ?12, turn = ?13, waiting = ?14, cancel_mark = ?15
                 WHERE pk = ?1",
            )?
            .execute(params![
                self.pk,
                codec::state_name(self.state),
                self.updated_at,
                self.status_at,
                self.status_message.as_ref().map(codec::text).transpose()?,
                self.status_turn,
                codec::signed(self.seq),
                self.hidden as i64,
                self.due_at,
                self.owner,
                codec::signed(self.generation),
                self.attempt,
                self.turn,
                self.waiting,
                self.cancel_mark,
            ])?;
        self.count(batch);
        Ok(())
    }

    fn count(&mut self, batch: &mut Batch<'_>) {
        let live = !self.state.is_terminal();
        batch.ledger.add(self.tenant, i64::from(live) - i64::from(self.live), self.written);
        self.live = live;
        self.written = 0;
        let now = (self.hidden == Hidden::No).then_some(self.state);
        if now == self.counted {
            return;
        }
        if let Some(state) = self.counted {
            batch.count(self.tenant, &self.agent, state, -1);
        }
        if let Some(state) = now {
            batch.count(self.tenant, &self.agent, state, 1);
        }
        self.counted = now;
    }
}

/// A row of `a2a_messages`, but for what it says.
struct MessageRow<'a> {
    id: &'a str,
    role: &'a str,
    status: &'a str,
    turn: u32,
}

impl MessageRow<'_> {
    fn insert(&self, batch: &Batch<'_>, pk: i64, body: &Bytes, at: Timestamp) -> Result<()> {
        batch
            .conn
            .prepare_cached(
                "INSERT INTO a2a_messages (task, message_id, role, status, turn, body, created_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![pk, self.id, self.role, self.status, self.turn, &body[..], at.as_millis()])?;
        Ok(())
    }
}

/// The state after `step`, a refusal as an error of the store.
pub(super) fn step_from(state: TaskState, step: machine::Step) -> Result<TaskState> {
    machine::next(state, step).map_err(|refusal| match refusal {
        machine::Refusal::Terminal(state) => Error::Terminal(state),
        machine::Refusal::Illegal(state) => Error::Illegal(state),
    })
}
