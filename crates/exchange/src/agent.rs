//! What an agent is: something that takes a turn and says things, and a profile that describes it.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    slice,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use a2a::{AgentExtension, AgentSkill, Artifact, JsonObject, Message, Part};
use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{AgentId, Journal, LeaseTime, TaskId, TenantId};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{
    delegation::Ledger,
    errand::Errands,
    flight::FREE,
    kept,
    origin::{Origin, Trace},
    page_token::Key,
    request::RequestOptions,
    turn_memory::{Budget, Reservation},
    wake,
    working_time::{Waits, WorkingTime},
};

/// Pieces of text wait this long for company, or for the end of the turn, before they are committed.
pub(crate) const COALESCE: Duration = Duration::from_millis(20);

/// Anything that takes a turn.
///
/// `run` is called once per message and attempt. What it says through `out` is journaled while it runs;
/// what it returns ends the turn. The future may be dropped at any await point (lost lease, forced
/// cancel, time, shutdown): whatever it started must end with it. It must not block its thread.
#[async_trait]
pub trait Agent: Send + Sync + 'static {
    /// Takes one turn.
    async fn run(&self, turn: Turn, out: Output) -> Outcome;

    /// Cancels what others do for a task that has ended as CANCELED, FAILED or REJECTED, or in any way if the agent
    /// [owed that](Output::owes_cancel), as far as `state`, which the agent kept, says that there is anything. It is called for agents with [`Profile::tells_cancel`], for every attempt at the task's turns that kept
    /// a state, again and again until it works, and maybe by several instances at once. An attempt that takes too long is dropped. An
    /// error says why it did not work.
    async fn canceled(&self, _task: TaskId, _state: Bytes, _errands: &Errands) -> Result<(), String> {
        Ok(())
    }

    /// What agents that hand work on are told of it beside its id, where its description is not what they need.
    fn introduction(&self) -> Option<String> {
        None
    }

    /// Whether it can work for a tenant now, as far as is known. Among several that have a skill those that can come first.
    fn is_ready(&self, _tenant: TenantId) -> bool {
        true
    }

    /// Under which ids it works elsewhere, by what it has kept, for people who look for it there.
    fn elsewhere(&self, _state: &Bytes) -> Option<Elsewhere> {
        None
    }
}

/// Under which ids a task is worked on elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// The task there.
    pub task: Option<String>,
    /// Its context there.
    pub context: Option<String>,
}

/// What the server knows about an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Its id, in URLs and in the A2A `tenant` field.
    pub id: AgentId,
    /// Its name on the card.
    pub name: String,
    /// Its description on the card.
    pub description: String,
    /// Its version on the card.
    pub version: String,
    /// Its skills on the card.
    pub skills: Vec<AgentSkill>,
    /// The commands that it may use, as its model writes them: `/agent`.
    pub commands: Vec<String>,
    /// Media types it takes; `*/*` and `text/*` are understood.
    pub input_modes: Vec<String>,
    /// Media types it gives.
    pub output_modes: Vec<String>,
    /// Protocol extensions it declares; required ones are enforced.
    pub extensions: Vec<AgentExtension>,
    /// Whether its first output may be a direct message.
    pub reply: ReplyMode,
    /// Where the text of its completed turns stands.
    pub reply_text: ReplyText,
    /// Who does its work.
    pub delivery: Delivery,
    /// How many of its turns run at once on this instance.
    pub concurrency: usize,
    /// How many of them one tenant may have, on each instance; where nothing is said, not all of them once there is more than one tenant.
    pub per_tenant: Option<usize>,
    /// How often a turn is tried.
    pub max_attempts: u32,
    /// What happens to a turn that a crash, or a stop on purpose, interrupted.
    pub on_crash: OnCrash,
    /// With [`ReplyMode::Auto`]: after which the task is shown although nothing was said.
    pub reveal_after: Duration,
    /// How long the first piece of a turn's text waits for company. Most agents that speak have said all of it by then.
    pub first_text: Duration,
    /// After which a run of its turn is ended as failed. Who rests is not at work: the time begins anew after it.
    pub timeout: Option<Duration>,
    /// Others work for it, and have to be told when a task of it ends otherwise than as COMPLETED: see [`Agent::canceled`].
    pub tells_cancel: bool,
    /// It is not called by its name in URLs and stands in no list: it is there for those who know it otherwise.
    pub unlisted: bool,
    /// Names of the tenants that see it; all of them when `None`.
    pub tenants: Option<BTreeSet<String>>,
    /// What kind of agent it is, for people: `builtin`, `command`, ….
    pub kind: &'static str,
}

/// How an agent answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplyMode {
    /// Always with a task.
    #[default]
    Task,
    /// With a direct message when its first output is one.
    Auto,
}

/// Who does an agent's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Delivery {
    /// Instances run it.
    #[default]
    Run,
    /// Workers ask for it: its tasks wait in the queue.
    Queue {
        /// How many of its entries they may hold at once, all together.
        most_held: Option<usize>,
    },
}

/// Where the text of a completed turn stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplyText {
    /// In its artifacts. The status has a message where the agent itself gave one.
    #[default]
    Artifact,
    /// In the message of the status too, for callers that read nothing else.
    Both,
}

/// What happens to a turn that a crash, or a stop on purpose, interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnCrash {
    /// It is run again, up to the agent's attempts.
    #[default]
    Retry,
    /// It fails.
    Fail,
    /// It becomes input-required: the caller decides. A caller that only says yes gets the same message run again.
    Ask,
    /// It goes on where it last [kept its state](Output::keep), with what it had made until then.
    Resume,
}

/// One turn: a message and what an agent may want to know about it.
pub struct Turn {
    /// The agent that is meant.
    pub agent: AgentId,
    /// The task.
    pub task: TaskId,
    /// Its context.
    pub context: Arc<str>,
    /// The message.
    pub message: Message,
    /// Which attempt at this turn it is, from 1.
    pub attempt: u32,
    /// How many of the attempts count, this one included: those that a server gave back when it was stopped do not.
    pub tries: u32,
    /// Which turn of the task it is, from 1.
    pub number: u32,
    /// What its agent last kept, in this turn or in one before. What was kept by an attempt that is not resumed is undone
    /// with it.
    pub state: Option<Bytes>,
    /// It has run before, up to where `state` was kept: it was parked, or is resumed after a crash.
    pub resumed: bool,
    /// Set when the task is canceled. An agent that heeds it returns [`Outcome::Canceled`].
    pub cancel: CancellationToken,
    /// What was said before it.
    pub past: Past,
    /// What its task came from.
    pub origin: Origin,
    /// What the caller said beside the message.
    pub request: RequestOptions,
    /// What it may hand on.
    pub ledger: Ledger,
    /// Who hands it on, where there is an installation to do so.
    pub errands: Option<Errands>,
}

/// What was said before a turn: read from the journal when an agent asks for it, or told by whoever made the turn.
pub struct Past(Source);

enum Source {
    Journal(Journaled),
    Told { history: Vec<Message>, context_history: Vec<Message> },
}

/// A turn's place in the journal.
pub(crate) struct Journaled {
    pub(crate) tenant: TenantId,
    pub(crate) store: Arc<dyn Journal>,
    /// How many messages of other tasks are read at most.
    pub(crate) context_limit: usize,
    pub(crate) key: Key,
    pub(crate) time: WorkingTime,
    /// The memory of the message and the kept state, where those are large.
    pub(crate) held: Option<Arc<Mutex<Reservation>>>,
    /// Where memory for what was said before is taken from, and what was.
    pub(crate) budget: Budget,
    pub(crate) past: Mutex<Option<Reservation>>,
}

/// How a turn ends.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Done. The parts are what it says about that, if anything: what it made is in its artifacts.
    Completed(Vec<Part>),
    /// The caller has to answer.
    InputRequired(Vec<Part>),
    /// The caller has to authenticate somewhere.
    AuthRequired(Vec<Part>),
    /// The agent does not do this.
    Rejected(Vec<Part>),
    /// It failed.
    Failed(Vec<Part>),
    /// It failed in a way that another attempt may cure; the text says how.
    Retry(String),
    /// What ran it has died; the text says how. The agent's policy about crashes says what follows, and the attempt counts.
    Crashed(String),
    /// What ran it was ended for what somebody else did; the text says how. The same policy says what follows, but the attempt
    /// does not count.
    Displaced(String),
    /// A direct message, if nothing was said before and the agent's mode allows it.
    Message(Message),
    /// It heeded the cancel.
    Canceled,
    /// It broke its own protocol; the text says how.
    Broken(String),
    /// Whoever works for it cannot be reached, or is broken; the text says how.
    RemoteFailed(String),
    /// It cannot work before the operator has set something; the text says what.
    Unset(String),
    /// It was cut off, and the caller decides whether it runs again.
    Interrupted,
    /// It rests and takes no slot, until somebody [wakes](store::Journal::wake) its task or the time is over. Then it is run
    /// again as the same attempt, with the state that it kept.
    Parked {
        /// How long at most.
        at_most: Option<Duration>,
    },
}

/// What an agent does on the way. Callers of A2A see none of it; it stands in the log for whoever looks closer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Note {
    /// It calls a tool.
    ToolCall {
        /// What the result refers to.
        id: String,
        /// The tool.
        name: String,
        /// What it is given.
        arguments: Value,
    },
    /// A tool has answered.
    ToolResult {
        /// The call.
        id: String,
        /// Whether it worked.
        ok: bool,
        /// What it said.
        content: Value,
    },
    /// It has used a model.
    Usage {
        /// Which.
        model: String,
        /// How much that read.
        input_tokens: u64,
        /// How much that wrote.
        output_tokens: u64,
    },
    /// It has written a file.
    File {
        /// Where.
        path: String,
        /// What it is.
        media_type: String,
        /// How long it is, in bytes.
        size: u64,
    },
    /// Another agent has done something for it.
    Step {
        /// Which.
        agent: String,
        /// In which task, if it is one of ours or of a remote.
        task: Option<String>,
        /// What, for people.
        text: String,
    },
}

/// Something said during a turn, on the way of an [`Output`] to whoever makes it durable.
#[derive(Debug)]
pub enum Said {
    /// WORKING, or AUTH_REQUIRED while the turn goes on.
    Status {
        /// Which of the two.
        auth_required: bool,
        /// What is said with it.
        message: Option<Message>,
        /// The event's own metadata.
        metadata: Option<JsonObject>,
    },
    /// An artifact or a chunk of one, whose id may be empty: see [`Output::artifact`].
    Artifact {
        /// The artifact.
        artifact: Artifact,
        /// Whether it goes on with one that is there.
        append: bool,
        /// Whether nothing more of it comes.
        last_chunk: bool,
        /// The event's own metadata.
        metadata: Option<JsonObject>,
    },
    /// Something that callers do not see.
    Note(Note),
    /// What the agent needs to go on from here.
    Keep(Bytes),
    /// See [`Output::owes_cancel`].
    Owes(bool),
    /// The agent waits for an answer, which has to come once all that was said before is durable. Whoever receives this must
    /// send one then; where it is dropped instead, the agent stands still until it is dropped too.
    Flush(oneshot::Sender<()>),
}

/// Where an agent says things. Cheap to clone. Waiting in a call is back-pressure from the journal.
#[derive(Debug, Clone)]
pub struct Output {
    sender: mpsc::Sender<Said>,
    time: WorkingTime,
}

impl Output {
    /// An output, and where all that is said there arrives. So many things may be on the way before who speaks has to wait.
    pub fn channel(capacity: usize) -> (Self, mpsc::Receiver<Said>) {
        let (sender, said) = mpsc::channel(capacity);
        (Self { sender, time: WorkingTime::start() }, said)
    }

    /// The turn waits for others to make room, for as long as this is kept: that is not counted against its timeout.
    pub fn waits(&self) -> Waits {
        self.time.wait()
    }

    pub(crate) fn time(&self) -> WorkingTime {
        self.time.clone()
    }

    /// WORKING, with a message for the caller.
    pub async fn status(&self, message: Option<Message>, metadata: Option<JsonObject>) {
        self.say(Said::Status { auth_required: false, message, metadata }).await;
    }

    /// AUTH_REQUIRED while the turn goes on.
    pub async fn auth_required(&self, message: Option<Message>, metadata: Option<JsonObject>) {
        self.say(Said::Status { auth_required: true, message, metadata }).await;
    }

    /// An artifact or a chunk of one. An empty id is filled in: a new one, or with `append` the last one.
    pub async fn artifact(&self, artifact: Artifact, append: bool, last_chunk: bool, metadata: Option<JsonObject>) {
        self.say(Said::Artifact { artifact, append, last_chunk, metadata }).await;
    }

    /// A piece of the reply's text: chunks of one artifact named `response`. `first` begins it.
    pub async fn text(&self, text: impl Into<String>, first: bool) {
        let artifact = Artifact {
            name: if first { "response".to_owned() } else { String::new() },
            parts: vec![Part::text(text)],
            ..Artifact::default()
        };
        self.artifact(artifact, !first, false, None).await;
    }

    /// Something that callers do not see.
    pub async fn note(&self, note: Note) {
        self.say(Said::Note(note)).await;
    }

    /// What this agent needs to go on from here: it is written together with all that was said before, and replaces what was
    /// kept earlier. An agent that is [resumed](OnCrash::Resume) gets it back, and nothing that was said after it
    /// remains.
    pub async fn keep(&self, state: impl Into<Bytes>) {
        self.say(Said::Keep(state.into())).await;
    }

    /// Says whether others work for this agent who have to be told when the task has ended, even as COMPLETED. That holds for what is
    /// [kept](Self::keep) from here on.
    pub async fn owes_cancel(&self, owes: bool) {
        self.say(Said::Owes(owes)).await;
    }

    /// Returns when all that was said before is durable: to be called before something is done that cannot be undone. When
    /// it never will be, because others have taken the turn over, this does not return, and the turn is dropped.
    pub async fn flush(&self) {
        let (sender, flushed) = oneshot::channel();
        self.say(Said::Flush(sender)).await;
        if flushed.await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Something that is in its form already.
    pub async fn say(&self, said: Said) {
        // A closed channel means that the turn is over for the journal; the agent is about to be dropped.
        let _ = self.sender.send(said).await;
    }
}

impl Past {
    /// A past that is known: for turns of agents that run where there is no journal. `history` is the task's messages, ending
    /// with the turn's own; `context_history` is what came before in the context, in other tasks.
    pub fn told(history: Vec<Message>, context_history: Vec<Message>) -> Self {
        Self(Source::Told { history, context_history })
    }

    /// A past that the journal has.
    pub(crate) fn journal(journaled: Journaled) -> Self {
        Self(Source::Journal(journaled))
    }
}

impl Journaled {
    fn hold_past(&self, reservation: Option<Reservation>) {
        *self.past.lock().unwrap_or_else(PoisonError::into_inner) = reservation;
    }
}

impl Turn {
    /// What was said before: this task's messages, ending with this turn's, and what came before in the context, in other tasks, capped;
    /// nothing of the latter where the caller's surface has no memory. Waits until there is memory for both, which is not charged to the
    /// turn, and holds it for as long as the turn goes on.
    pub async fn past(&self) -> store::Result<(Cow<'_, [Message]>, Vec<Message>)> {
        let source = match &self.past.0 {
            Source::Journal(source) => source,
            Source::Told { history, context_history } => return Ok((Cow::Borrowed(history), context_history.clone())),
        };
        let is_first = self.number == 1 && self.attempt == 1 && !self.resumed;
        let mut most = FREE;
        loop {
            let history = async {
                if is_first {
                    return Ok(Cow::Borrowed(slice::from_ref(&self.message)));
                }
                source.store.history(source.tenant, self.task, most).await.map(Cow::Owned)
            };
            let context = async {
                let (agent, context, limit) = (&self.agent, &self.context, source.context_limit);
                if limit == 0 {
                    return Ok(Vec::new());
                }
                source.store.context_history(source.tenant, agent, context, self.task, limit, most).await
            };
            let (history, context) = (history.await, context.await);
            let bytes_of = |error: Option<&store::Error>| match error {
                Some(store::Error::Heavy { bytes }) => *bytes,
                _ => 0,
            };
            let bytes = bytes_of(history.as_ref().err()).saturating_add(bytes_of(context.as_ref().err()));
            if bytes == 0 {
                return Ok((history?, context?));
            }
            drop((history, context));
            // Given back before it is waited for more.
            source.hold_past(None);
            let _waits = source.time.wait();
            // What is small beside what is large is read with it.
            most = bytes.saturating_add(FREE);
            source.hold_past(Some(source.budget.take(source.tenant, most).await));
        }
    }

    /// Drops the content of the message and the kept state, and gives back the memory that they take: the agent needs them no more.
    pub fn release_message(&mut self) {
        self.message.parts = Vec::new();
        self.message.metadata = None;
        let kept = self.state.take().map_or(0, |state| state.len() as u64);
        if let Source::Journal(source) = &mut self.past.0 {
            source.hold_past(None);
            if let Some(held) = &source.held {
                // The state is held for as long as the turn may keep another one.
                held.lock().unwrap_or_else(PoisonError::into_inner).keep(kept);
            }
        }
    }

    /// What this agent last kept in the newest other task of the context.
    pub async fn context_state(&self) -> store::Result<Option<Bytes>> {
        let Source::Journal(source) = &self.past.0 else { return Ok(None) };
        let Journaled { tenant, store, .. } = source;
        let kept = store.context_state(*tenant, &self.agent, &self.context, self.task).await?;
        match kept {
            None => Ok(None),
            Some((task, event)) => match kept::read_event(&**store, *tenant, task, &event).await {
                // What it began with is gone.
                Err(store::Error::Pruned) => Ok(None),
                kept => Ok(kept?.state),
            },
        }
    }

    /// What time it is by the clock of the store; always the same where there is no journal. Costs no commit.
    pub async fn store_time(&self) -> store::Result<LeaseTime> {
        match &self.past.0 {
            Source::Journal(source) => Ok(source.store.next_due(&[]).await?.now),
            Source::Told { .. } => Ok(LeaseTime::default()),
        }
    }

    /// What somebody outside says to [wake](crate::Exchange::wake_by) this task, should it be parked. Nobody can make one up.
    pub fn wake_token(&self) -> Option<String> {
        match &self.past.0 {
            Source::Journal(source) => Some(wake::seal(&source.key, source.tenant, self.task)),
            Source::Told { .. } => None,
        }
    }

    /// The tenant of its task. `None` where there is no journal.
    pub fn tenant(&self) -> Option<TenantId> {
        match &self.past.0 {
            Source::Journal(source) => Some(source.tenant),
            Source::Told { .. } => None,
        }
    }

    /// The ids under which what this turn causes is known.
    pub fn trace(&self) -> Trace {
        // What may not be handed on is not sent.
        let hands_on = self.ledger.clone().delegate(None).ok();
        let hands_on = match &self.past.0 {
            Source::Journal(source) => hands_on.as_ref().map(|delegation| (&source.key, delegation)),
            Source::Told { .. } => None,
        };
        self.origin.trace(self.task, self.number, Some(&self.message.message_id), hands_on)
    }

    /// The text of the message's text parts.
    pub fn text(&self) -> String {
        text_of(&self.message.parts)
    }
}

/// The text of all text parts, joined by line ends.
pub fn text_of(parts: &[Part]) -> String {
    let mut texts = Vec::new();
    for part in parts {
        if let a2a::PartContent::Text(text) = &part.content {
            texts.push(text.as_str());
        }
    }
    texts.join("\n")
}

impl Profile {
    /// A profile with the defaults of a plain text agent.
    pub fn new(id: AgentId, kind: &'static str) -> Self {
        Self {
            name: id.to_string(),
            id,
            description: String::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            skills: Vec::new(),
            commands: Vec::new(),
            input_modes: vec!["text/plain".to_owned()],
            output_modes: vec!["text/plain".to_owned()],
            extensions: Vec::new(),
            reply: ReplyMode::Task,
            reply_text: ReplyText::Artifact,
            delivery: Delivery::Run,
            concurrency: 8,
            per_tenant: None,
            max_attempts: 3,
            on_crash: OnCrash::Retry,
            reveal_after: Duration::from_secs(1),
            first_text: COALESCE,
            timeout: None,
            tells_cancel: false,
            unlisted: false,
            tenants: None,
            kind,
        }
    }
}
