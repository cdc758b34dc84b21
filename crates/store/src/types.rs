//! What goes into the store and comes out of it, in plain data.

use std::{sync::Arc, time::Duration};

use a2a::{TaskState, Timestamp};
use bytes::Bytes;

use crate::{AgentId, Draft, Lease, NewPush, Reach, Result, TaskId, TenantId, Term, TurnEnd, ops::requests};

/// One entry of a task's log.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its number in the task, from 1, without gaps. Also the SSE id and the resume cursor.
    pub seq: u64,
    /// When it was written.
    pub at: Timestamp,
    /// What it is.
    pub kind: EventKind,
    /// A 1.0 `StreamResponse` as JSON, the wire bytes themselves, if the kind [has a frame](EventKind::has_frame); for
    /// [`EventKind::Input`] a `Message`, for [`EventKind::Note`] a JSON object.
    pub body: Bytes,
}

/// What an event is, readable without its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The task came to be. The body holds the whole task.
    Created {
        /// It is kept out of sight until a reply is logged, which keeps it so, or a status, an artifact or
        /// [`EventKind::Revealed`], which show it.
        held: bool,
    },
    /// A turn begins: the task is WORKING.
    Started(Start),
    /// A task that was held is shown although nothing was said yet. It has no 1.0 frame, and no content.
    Revealed,
    /// A caller's further message. It has no 1.0 frame.
    Input,
    /// A part of an artifact.
    Artifact,
    /// What an agent did on the way: a call of a tool, what it used, a step of another agent. It has no 1.0 frame.
    Note,
    /// What the agent needs to go on, and nobody else reads. It has no 1.0 frame.
    Kept,
    /// A direct reply: the end of a task that callers never see.
    Reply,
    /// A new status.
    Status {
        /// The state from here on.
        state: TaskState,
        /// Whether a turn ended with it.
        ends_turn: bool,
    },
    /// Something that only a newer version knows, by its number. It changes nothing that this version can read, and has no
    /// 1.0 frame.
    Other(u16),
}

/// How a turn begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// For the first time.
    First,
    /// Anew: what the attempt before made is gone.
    Again,
    /// Where the attempt before last kept its state: what it made after that is gone; all of it, if it kept none.
    Resumed,
}

impl EventKind {
    /// The state that a task has from here on, if the event says so.
    pub fn state(self) -> Option<TaskState> {
        match self {
            Self::Status { state, .. } => Some(state),
            Self::Started(_) => Some(TaskState::Working),
            Self::Created { .. } | Self::Artifact | Self::Reply => None,
            Self::Revealed | Self::Input | Self::Note | Self::Kept | Self::Other(_) => None,
        }
    }

    /// Whether a task that was held is shown from here on.
    pub fn shows_task(self) -> bool {
        matches!(self, Self::Revealed | Self::Artifact | Self::Status { .. })
    }

    /// Whether its body is a 1.0 `StreamResponse`. What is not has no place in a stream.
    pub fn has_frame(self) -> bool {
        !matches!(self, Self::Revealed | Self::Input | Self::Note | Self::Kept | Self::Other(_))
    }

    /// Whether a tenant's feed has it. A task that was held is in the feed from the event on that shows it.
    pub fn is_fed(self) -> bool {
        match self {
            Self::Created { held } => !held,
            Self::Revealed | Self::Started(_) | Self::Artifact | Self::Status { .. } => true,
            Self::Reply | Self::Input | Self::Note | Self::Kept | Self::Other(_) => false,
        }
    }

    /// Whether it says more than its kind does. A task's first event repeats its message.
    pub fn is_fed_with_body(self) -> bool {
        matches!(self, Self::Artifact | Self::Status { .. })
    }

    /// Whether nothing follows it.
    pub fn ends_task(self) -> bool {
        self == Self::Reply || self.state().is_some_and(TaskState::is_terminal)
    }
}

impl Event {
    /// What it says, typed, if it [has a frame](EventKind::has_frame).
    pub fn response(&self) -> Result<a2a::StreamResponse> {
        Ok(serde_json::from_slice(&self.body)?)
    }
}

/// A place in the log of all tasks: what [`Journal::tail`](crate::Journal::tail) has given so far. The default is the
/// beginning. It means something only to the store that it comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The transaction that wrote the last event, where positions alone do not tell what is still to come.
    pub(crate) transaction: u64,
    /// The last event's position.
    pub(crate) pos: i64,
}

impl Position {
    /// As bytes, for a cursor that somebody else keeps.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.transaction.to_be_bytes());
        bytes[8..].copy_from_slice(&self.pos.to_be_bytes());
        bytes
    }

    /// The reverse of [`Position::to_bytes`].
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let [transaction, pos] = [0, 8].map(|at| std::array::from_fn(|n| bytes[at + n]));
        Self { transaction: u64::from_be_bytes(transaction), pos: i64::from_be_bytes(pos) }
    }
}

/// How much one read of a tenant's feed takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedLimit {
    /// How many events of the log it looks at, those of other tenants included.
    pub scanned: usize,
    /// How many of the tenant's own it gives. What is more by itself is [`Error::Heavy`](crate::Error::Heavy).
    pub most: Most,
}

/// A part of a tenant's feed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FeedPage {
    /// In the order of the log.
    pub events: Vec<FeedEvent>,
    /// Where the next part begins.
    pub position: Position,
    /// A limit was met: there may be more behind it already.
    pub more: bool,
}

/// An event of a tenant's feed.
#[derive(Debug, Clone, PartialEq)]
pub struct FeedEvent {
    /// Its place in the log.
    pub position: Position,
    /// Its task.
    pub task: TaskId,
    /// The task's agent.
    pub agent: AgentId,
    /// The task's context.
    pub context: Arc<str>,
    /// What the task came from, as JSON.
    pub origin: Option<Arc<str>>,
    /// The event. Its body is there where [`EventKind::is_fed_with_body`] says so.
    pub event: Event,
}

/// An event of the log of all tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct Tailed {
    /// Whose.
    pub tenant: TenantId,
    /// Of which task.
    pub task: TaskId,
    /// The event.
    pub event: Event,
}

/// A message to take in.
#[derive(Debug, Clone)]
pub struct Accept {
    /// For whom it is.
    pub target: Target,
    /// The sender's message id.
    pub message_id: String,
    /// The message as 1.0 JSON, its task and context filled in.
    pub message: Bytes,
    /// Makes a repetition of the same message find the first one's task.
    pub idempotency: Option<IdempotencyKey>,
    /// Lease the turn on these terms, if nothing else of the task runs or waits.
    pub lease: Option<Term>,
    /// The WORKING status, used when the lease is given.
    pub working: Draft,
    /// Who is to be told of the task from here on.
    pub push: Option<NewPush>,
    /// What its tenant may use; checked in the transaction that would use it.
    pub quota: Quota,
    /// The lease of the turn that hands this on as a new task, if one does. When that turn is not running under it any more, or its task
    /// carries a cancel mark, no task begins: [`Error::LeaseLost`](crate::Error::LeaseLost). Not together with [`Post::replays`].
    pub parent: Option<Lease>,
    /// What came with the message beside it, as a JSON object. It is logged as an [`EventKind::Note`] behind the message.
    pub request: Option<Bytes>,
    /// Now, as events tell it to people.
    pub at: Timestamp,
}

impl Accept {
    /// About how many bytes it writes: the message stands in the log and in the history.
    pub(crate) fn bytes(&self) -> usize {
        let logged = match &self.target {
            Target::New { created, .. } => created.len(),
            Target::Continue { .. } => self.message.len(),
        };
        let request = self.request.as_ref().map_or(0, Bytes::len);
        logged + self.message.len() + request + self.push.as_ref().map_or(0, |push| push.size())
    }
}

/// What a tenant may use. The default has no bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    /// Tasks that have not ended. Over it no message begins another one; what there is goes on.
    pub tasks: Option<u64>,
    /// Bytes of messages, artifacts and events. Over it no message is taken in; turns that run may still write.
    pub bytes: Option<u64>,
}

/// What a tenant uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Its tasks that have not ended, those that are not shown included.
    pub tasks: u64,
    /// The bytes of its messages, artifacts and events. The projections count beside the log.
    pub bytes: u64,
}

/// What an accepted message belongs to.
#[derive(Debug, Clone)]
pub enum Target {
    /// A task that this message begins.
    New {
        /// Its id, minted by the caller.
        task: TaskId,
        /// Its agent.
        agent: AgentId,
        /// Its context.
        context: Arc<str>,
        /// The first event: a `StreamResponse` with the whole task.
        created: Bytes,
        /// Keep the task out of sight until its first output: it may be a direct reply.
        hold: bool,
        /// Its turns are told what was said before in the context.
        remembers: bool,
        /// How it waits.
        post: Post,
        /// What it came from, as JSON, for its turns to know.
        origin: Option<Arc<str>>,
        /// Its agent hands work on, and has to end that when the task ends otherwise than as COMPLETED, see
        /// [`Journal::owed_cancels`](crate::Journal::owed_cancels).
        tells_cancel: bool,
    },
    /// A task that exists.
    Continue {
        /// Its id.
        task: TaskId,
        /// How many messages may wait behind a running turn.
        max_waiting: u32,
        /// The SUBMITTED status, used when the turn is not leased at once and none runs.
        submitted: Draft,
    },
}

/// How a task waits for its turns. The default is run by instances as soon as one can.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Post {
    /// It waits in the queue for whoever asks for it.
    pub queued: bool,
    /// Who has published it.
    pub from: Arc<str>,
    /// Of two that wait the higher one comes first.
    pub priority: u8,
    /// How often it may be tried, where that is its own affair.
    pub max_attempts: Option<u32>,
    /// How long nobody gets it, unless by its id.
    pub delay: Duration,
    /// The dead letter that it repeats, which is none from then on. [`Error::NotDead`](crate::Error::NotDead) when it is none.
    pub replays: Option<TaskId>,
}

impl Target {
    /// The task that it is about.
    pub fn task(&self) -> TaskId {
        match self {
            Self::New { task, .. } | Self::Continue { task, .. } => *task,
        }
    }
}

/// Who repeats what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// Hash of what makes the key.
    pub key: [u8; 32],
    /// Hash of what must be equal.
    pub fingerprint: [u8; 32],
    /// How long the key is remembered; as long as its task when nothing is said.
    pub keep: Option<Duration>,
}

/// The outcome of [`Journal::accept`](crate::Journal::accept).
#[derive(Debug, Clone)]
pub struct Accepted {
    /// The task the message belongs to; for a repetition the first one's.
    pub task: TaskId,
    /// The log's end right after this message was taken in (for a repetition: the log's end now).
    pub seq: u64,
    /// The message was known already; nothing was written.
    pub duplicate: bool,
    /// How many turns must end before this message's own: those that run and wait.
    pub ahead: u32,
    /// The lease, when one was asked for and given.
    pub lease: Option<Lease>,
    /// The number of this message's turn, from 1.
    pub turn: u32,
    /// The event with what came with the message beside it; see [`Turn::request`].
    pub request: Option<u64>,
}

/// One message to work on.
#[derive(Debug, Clone)]
pub struct Turn {
    /// The message; empty where it is `unread`.
    pub message: a2a::Message,
    /// Its number in the task, from 1.
    pub number: u32,
    /// The bytes of a message that does not come with the lease: [`turn_message`](crate::Journal::turn_message) reads it. 0 where it does.
    pub unread: u64,
    /// The event with what came with the message beside it, if anything did.
    pub request: Option<u64>,
}

impl Turn {
    /// The most bytes of a message that comes with the lease, except for entries of a queue.
    pub const WITH_LEASE: usize = 64 << 10;
}

/// What a turn has produced since its last commit.
#[derive(Debug, Clone, Default)]
pub struct Append {
    /// In order.
    pub drafts: Vec<Draft>,
    /// The end of the turn.
    pub end: Option<TurnEnd>,
    /// What must still be so; else it is [`Error::Moved`](crate::Error::Moved).
    pub only: Only,
    /// What it has used of models since then. It is added to what its task has used before.
    pub tokens: Tokens,
}

impl Append {
    /// About how many bytes it writes: what is said stands in the log and in the task.
    pub(crate) fn bytes(&self) -> usize {
        let said = |draft: &Draft| draft.body.len() * 2;
        let end = match &self.end {
            Some(TurnEnd::Status(status) | TurnEnd::GiveUp { status, .. }) => said(status),
            Some(TurnEnd::Reply { reply, otherwise }) => said(reply).max(said(otherwise)),
            Some(TurnEnd::Retry { .. } | TurnEnd::Release { .. } | TurnEnd::Park { .. }) | None => 0,
        };
        self.drafts.iter().map(said).sum::<usize>() + end
    }
}

/// What was used of models.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tokens {
    /// What they have read.
    pub input: u64,
    /// What they have written.
    pub output: u64,
}

impl Tokens {
    /// Both together; what is too much to be counted is as much as can be.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        // Columns of a database have a sign.
        let sum = |a: u64, b: u64| a.saturating_add(b).min(i64::MAX.unsigned_abs());
        Self { input: sum(self.input, more.input), output: sum(self.output, more.output) }
    }
}

/// What a write under a lease may want to be so when it is made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Only {
    /// Nothing but that the lease holds.
    #[default]
    Held,
    /// This is the event with which the turn's state was last kept: nobody else has written under the same lease.
    Kept(u64),
    /// The lease has run out: its holder has not come back.
    Lapsed,
}

/// The outcome of [`Journal::append`](crate::Journal::append).
#[derive(Debug, Clone)]
pub struct Appended {
    /// The log's end.
    pub seq: u64,
    /// The task's state now.
    pub state: TaskState,
    /// The next turn, under the same lease, when a message was waiting at the end of this one.
    pub next: Option<Turn>,
}

/// The outcome of [`Journal::mark_cancel`](crate::Journal::mark_cancel).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelMark {
    /// It is CANCELED, by this call or an earlier one.
    Canceled {
        /// It was so before this call.
        already: bool,
    },
    /// A turn runs; it has to be told, and the task will end as CANCELED.
    Running,
    /// It has ended otherwise.
    NotCancelable(TaskState),
}

/// How many tasks are searched for the sub-tasks of a task.
pub const CHILDREN_SCANNED: i64 = 20_000;

/// A task without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskHead {
    /// Its agent.
    pub agent: AgentId,
    /// Its context.
    pub context: Arc<str>,
    /// Its state.
    pub state: TaskState,
    /// Its log's end.
    pub seq: u64,
    /// It is not shown: its reply is, or may become, a direct message.
    pub hidden: bool,
    /// The current or last turn, from 1; zero before the first.
    pub turn: u32,
    /// The event with which its agent last kept its state; zero for none.
    pub kept: u64,
    /// What it came from, as JSON.
    pub origin: Option<Arc<str>>,
}

impl TaskHead {
    /// The event with what came beside the message of its current or last turn; see [`Turn::request`].
    pub fn request(&self) -> Option<u64> {
        requests::of(self.origin.as_deref(), self.turn)
    }
}

/// A task that has ended otherwise than as COMPLETED, and whose agent has not ended yet what others do for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwedCancel {
    /// Whose it is.
    pub tenant: TenantId,
    /// The task.
    pub task: TaskId,
    /// Its agent.
    pub agent: AgentId,
    /// The event with which the last attempt kept its state; zero when it kept none, or what it kept was undone.
    pub kept: u64,
    /// Which of the task's debts it is: another one is owed under a higher generation.
    pub generation: u64,
}

/// How much of a task to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// The last so many messages; all of them when `None`.
    pub history: Option<u32>,
    /// With artifacts.
    pub artifacts: bool,
    /// Up to so many bytes of content: a list is shorter then, and what is more by itself is [`Error::Heavy`](crate::Error::Heavy).
    pub most: u64,
}

impl View {
    /// Everything.
    pub const FULL: Self = Self { history: None, artifacts: true, most: u64::MAX };
}

/// How much of a log to read at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most {
    /// So many events.
    pub events: usize,
    /// So many bytes of them. What is more by itself is [`Error::Heavy`](crate::Error::Heavy).
    pub bytes: u64,
}

/// A task as of one sequence number, in stored bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// Its id.
    pub task: TaskId,
    /// Its agent.
    pub agent: AgentId,
    /// Its context.
    pub context: Arc<str>,
    /// Its state.
    pub state: TaskState,
    /// Since when.
    pub status_at: Timestamp,
    /// The status message, as JSON.
    pub status_message: Option<Bytes>,
    /// The log's end that this is the sum of.
    pub seq: u64,
    /// Messages as JSON, oldest first.
    pub history: Vec<Bytes>,
    /// Artifacts as JSON in order of appearance: the artifact, then the chunks appended to it, each
    /// itself an `Artifact`. Chunks of one artifact are adjacent.
    pub artifacts: Vec<Vec<Bytes>>,
    /// The turn that made each of them.
    pub made_in: Vec<u32>,
    /// What its turns have used of models, all attempts together.
    pub tokens: Tokens,
}

impl Snapshot {
    /// About how long its JSON will be.
    pub fn size_hint(&self) -> usize {
        let stored = |list: &[Bytes]| list.iter().map(Bytes::len).sum::<usize>();
        let said = stored(&self.history) + self.status_message.as_ref().map_or(0, Bytes::len);
        said + self.artifacts.iter().map(|a| stored(a)).sum::<usize>() + 384
    }

    /// The 1.0 task as JSON. Stored bytes are spliced; only chunked artifacts are parsed.
    pub fn to_json(&self) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(self.size_hint());
        self.write_json(&mut out)?;
        Ok(out)
    }

    /// The same, at the end of `out`.
    pub fn write_json(&self, mut out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(b"{\"id\":\"");
        out.extend_from_slice(self.task.hyphenated(&mut [0; TaskId::LENGTH]).as_bytes());
        out.extend_from_slice(b"\",\"contextId\":");
        serde_json::to_writer(&mut out, self.context.as_ref())?;
        out.extend_from_slice(b",\"status\":{\"state\":\"");
        out.extend_from_slice(self.state.as_str().as_bytes());
        out.extend_from_slice(b"\"");
        if let Some(message) = &self.status_message {
            out.extend_from_slice(b",\"message\":");
            out.extend_from_slice(message);
        }
        out.extend_from_slice(b",\"timestamp\":");
        serde_json::to_writer(&mut out, &self.status_at)?;
        out.push(b'}');
        if !self.artifacts.is_empty() {
            out.extend_from_slice(b",\"artifacts\":[");
            for (n, chunks) in self.artifacts.iter().enumerate() {
                if n > 0 {
                    out.push(b',');
                }
                match chunks.as_slice() {
                    [whole] => out.extend_from_slice(whole),
                    chunks => serde_json::to_writer(&mut out, &merge_chunks(chunks)?)?,
                }
            }
            out.push(b']');
        }
        if !self.history.is_empty() {
            out.extend_from_slice(b",\"history\":[");
            for (n, message) in self.history.iter().enumerate() {
                if n > 0 {
                    out.push(b',');
                }
                out.extend_from_slice(message);
            }
            out.push(b']');
        }
        out.push(b'}');
        Ok(())
    }

    /// The 1.0 `StreamResponse` that shows the task, as JSON: the body of the event with which it came to be.
    pub fn created(&self) -> Result<Bytes> {
        let mut out = Vec::with_capacity(self.size_hint() + 9);
        out.extend_from_slice(b"{\"task\":");
        self.write_json(&mut out)?;
        out.push(b'}');
        Ok(out.into())
    }

    /// The 1.0 task, typed.
    pub fn to_task(&self) -> Result<a2a::Task> {
        Ok(serde_json::from_slice(&self.to_json()?)?)
    }
}

/// An artifact in one piece: its first chunk and those that were appended to it, each itself an `Artifact` as JSON.
pub fn merge_chunks(chunks: &[Bytes]) -> Result<a2a::Artifact> {
    let mut merged: Option<a2a::Artifact> = None;
    for chunk in chunks {
        let next: a2a::Artifact = serde_json::from_slice(chunk)?;
        match &mut merged {
            None => merged = Some(next),
            Some(artifact) => append_chunk(artifact, next),
        }
    }
    merged.ok_or_else(|| crate::Error::Damaged("artifact without chunks".into()))
}

/// Appends a chunk: its parts, and whatever of its description the artifact does not have yet.
/// Adjacent plain text is joined, so that a streamed answer reads as one part.
fn append_chunk(artifact: &mut a2a::Artifact, chunk: a2a::Artifact) {
    for part in chunk.parts {
        // What only says that nothing follows adds nothing.
        if !artifact.parts.is_empty()
            && part.as_text() == Some("")
            && part.metadata.is_none()
            && part.filename.is_empty()
        {
            continue;
        }
        if let (Some(last), a2a::PartContent::Text(more)) = (artifact.parts.last_mut(), &part.content) {
            let same_shape =
                last.metadata == part.metadata && last.filename == part.filename && last.media_type == part.media_type;
            if let (a2a::PartContent::Text(text), true) = (&mut last.content, same_shape) {
                text.push_str(more);
                continue;
            }
        }
        artifact.parts.push(part);
    }
    if artifact.name.is_empty() {
        artifact.name = chunk.name;
    }
    if artifact.description.is_empty() {
        artifact.description = chunk.description;
    }
    if chunk.metadata.is_some() {
        artifact.metadata = chunk.metadata;
    }
}

/// Which tasks to list.
#[derive(Debug, Clone)]
pub struct Filter {
    /// Of this agent only.
    pub agent: Option<AgentId>,
    /// Of these agents only; of all when none is named.
    pub among: Vec<AgentId>,
    /// Of this context only.
    pub context: Option<String>,
    /// In this state only.
    pub state: Option<TaskState>,
    /// Whose status is this old or newer.
    pub since: Option<Timestamp>,
    /// Those after this one.
    pub after: Option<PageKey>,
    /// At most so many.
    pub limit: u32,
    /// How much of each.
    pub view: View,
}

/// Where a page ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageKey {
    /// The last task's status time.
    pub status_at: Timestamp,
    /// The last task.
    pub task: TaskId,
}

/// One page.
#[derive(Debug, Clone)]
pub struct Page {
    /// Newest status first.
    pub tasks: Vec<Snapshot>,
    /// Where the next page begins, if there is more.
    pub next: Option<PageKey>,
    /// How many tasks the filter matches in all; [`MOST_COUNTED`] at most where it names a context or a time.
    pub total: u64,
}

/// How far the tasks of a context, and those since a time, are counted. Without either the number is known.
pub const MOST_COUNTED: u64 = 10_000;

/// An owner of tasks and tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Its id.
    pub id: TenantId,
    /// Its name, unique.
    pub name: String,
    /// Whether its tokens are honoured.
    pub enabled: bool,
    /// Since when it exists.
    pub created_at: Timestamp,
}

/// A token to add.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// Whose.
    pub tenant: TenantId,
    /// SHA-256 of the token.
    pub hash: [u8; 32],
    /// What people call it.
    pub name: String,
    /// When it ends.
    pub expires: Option<Timestamp>,
    /// How far it reaches.
    pub reach: Reach,
}

/// A card that a tenant keeps of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCard {
    /// Of which.
    pub agent: AgentId,
    /// The card in 1.0 JSON, as it was given.
    pub card: Vec<u8>,
    /// Since when it is this one.
    pub updated_at: Timestamp,
}

/// An agent that a tenant has defined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAgent {
    /// Whose.
    pub tenant: TenantId,
    /// Its id.
    pub id: AgentId,
    /// What defines it, byte for byte as it came.
    pub definition: Vec<u8>,
    /// Since when there is one of that id.
    pub created_at: Timestamp,
    /// Since when it is this one. It grows with every change.
    pub updated_at: Timestamp,
}

/// A token as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Its number.
    pub id: i64,
    /// Whose.
    pub tenant: TenantId,
    /// SHA-256 of the token.
    pub hash: [u8; 32],
    /// What people call it.
    pub name: String,
    /// When it ends.
    pub expires: Option<Timestamp>,
    /// Since when it exists.
    pub created_at: Timestamp,
    /// Since when it is not honoured any more.
    pub revoked_at: Option<Timestamp>,
    /// When it was last seen, to the minute or so.
    pub used_at: Option<Timestamp>,
    /// How far it reaches.
    pub reach: Reach,
}

impl Token {
    /// Whether it opens anything at this time, as far as it is up to the token.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires.is_none_or(|end| end > now)
    }
}

/// A change of tenants and tokens, for [`Registry::administer`](crate::Registry::administer).
#[derive(Debug, Clone)]
pub enum Change {
    /// A new tenant.
    CreateTenant {
        /// Its name.
        name: String,
        /// SHA-256 of its first token, which is called `first`; without one it has no token yet.
        hash: Option<[u8; 32]>,
    },
    /// Whether a tenant's tokens are honoured.
    SetEnabled {
        /// Whose.
        tenant: TenantId,
        /// From now on.
        enabled: bool,
    },
    /// One more token.
    AddToken(NewToken),
    /// The end of a token.
    RevokeToken {
        /// Whose.
        tenant: TenantId,
        /// Which.
        token: i64,
    },
    /// The end of all the tenant's live tokens, and one new token.
    Rotate(NewToken),
    /// The end of a tenant that has no tasks any more: it goes with its tokens, cards and agents.
    DeleteTenant(TenantId),
}

/// What a [`Change`] left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// The tenant concerned.
    pub tenant: Tenant,
    /// The token that was added or revoked.
    pub token: Option<Token>,
}

/// An entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// Its number, rising.
    pub id: i64,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: String,
    /// What was done, such as `create_tenant`.
    pub action: String,
    /// To what, and what changed, as a JSON object. It never holds a token or a hash.
    pub detail: String,
}

/// What has happened since the store was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Transactions that wrote.
    pub commits: u64,
    /// Events appended.
    pub events: u64,
    /// How often a batch had to take a tenant's lock because the tenant came near a bound.
    pub quota_locks: u64,
    /// How often a task made its push configurations due. Tasks that have none never do.
    pub owed: u64,
    /// What turns have used of models.
    pub tokens: Tokens,
}
