//! Turns what an agent says into events: fills in ids, joins pieces of text, writes the reply.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use a2a::{Artifact, JsonObject, Message, Part, PartContent, Role, TaskState};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use store::{Draft, Lease, TaskId, Tokens, TurnEnd, clock};
use tokio::sync::oneshot;

use crate::{
    Note, Outcome, ReplyText, Said,
    chat::REMOTE_FAILED,
    kept::{self, Base, Sealed},
};

/// Pieces of text are joined up to this size; more is worth a commit of its own.
const JOIN_BYTES: usize = 2 << 10;
/// A reply that repeats the turn's text in the status message does so up to this size.
const REPLY_BYTES: usize = 64 << 10;

/// The reason in the message that asks whether to run an interrupted turn again.
pub(crate) const INTERRUPTED: &str = "INTERRUPTED";

/// The reason in the metadata of a failure that the operator has to mend: something is not set.
pub const NOT_CONFIGURED: &str = "NOT_CONFIGURED";

/// How far a turn has come: what the ids of things to come go on from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Progress {
    pub(crate) turn: u32,
    pub(crate) attempt: u32,
    messages: u32,
    artifacts: u32,
    last_artifact: String,
    /// Its id was filled in.
    #[serde(default)]
    last_is_unnamed: bool,
    /// The artifacts that it has made, in the order in which they appeared.
    pub(crate) made: Vec<String>,
    /// Those whose last chunk has not been said to be the last.
    #[serde(default)]
    open: Vec<Open>,
    /// Whether the agent has ever kept anything.
    has_state: bool,
    /// The number of the last call of a worker that it covers.
    #[serde(default)]
    told: u64,
}

/// An artifact that may go on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Open {
    artifact: String,
    /// The media type of the text that it ends with, if it does.
    text: Option<String>,
}

impl Progress {
    /// The same, with or without a state of the agent beside it.
    pub(crate) fn with_state(&self, has_state: bool) -> Self {
        Self { has_state, ..self.clone() }
    }

    pub(crate) fn has_state(&self) -> bool {
        self.has_state
    }
}

/// The scribe of one turn.
pub(crate) struct Scribe {
    task: TaskId,
    context: Arc<str>,
    reply_text: ReplyText,
    pending: Vec<Said>,
    /// Who waits until that is committed.
    flushed: Vec<oneshot::Sender<()>>,
    /// Whether anything of this turn was committed or is about to be that callers see.
    spoken: bool,
    /// Whether there is anything of that which the kept state does not cover.
    unkept: bool,
    /// Whether what is pending may not wait.
    urgent: bool,
    progress: Progress,
    /// What the agent last kept.
    state: Option<Bytes>,
    /// Whether what is kept says that a cancel is owed at any end; nothing where the agent has not said it.
    owes: Option<bool>,
    /// What a state that is kept may refer to.
    base: Option<Base>,
    /// Whether states are kept whole all the same.
    keeps_whole: Arc<AtomicBool>,
    /// What it may refer to once what is pending is written.
    pending_base: Option<(Bytes, u32)>,
    /// The same once what was given to be written is, and how many drafts follow it.
    next_base: Option<(usize, (Bytes, u32))>,
    /// What was used of models by what is pending.
    tokens: Tokens,
    /// The ids and the text of the turn's artifacts, where the reply repeats it; `None` also when there is too much of it.
    texts: Option<Vec<(String, String)>>,
}

impl Scribe {
    pub(crate) fn new(task: TaskId, context: Arc<str>, turn: u32, attempt: u32, reply_text: ReplyText) -> Self {
        Self {
            task,
            context,
            reply_text,
            pending: Vec::new(),
            flushed: Vec::new(),
            spoken: false,
            unkept: false,
            urgent: false,
            progress: Progress { turn, attempt, ..Progress::default() },
            state: None,
            owes: None,
            base: None,
            keeps_whole: Arc::default(),
            pending_base: None,
            next_base: None,
            tokens: Tokens::default(),
            texts: (reply_text == ReplyText::Both).then(Vec::new),
        }
    }

    /// The scribe of a turn under this lease, for ends that need nothing of its agent.
    pub(crate) fn of(lease: &Lease, turn: u32) -> Self {
        Self::new(lease.task, Arc::clone(&lease.context), turn, lease.attempt, ReplyText::default())
    }

    /// Knows what was kept before, and what a state that is kept may refer to.
    pub(crate) fn set_state(&mut self, state: Option<Bytes>, base: Option<Base>) {
        (self.state, self.base) = (state, base);
    }

    /// While this is set a state that is kept refers to no other: an instance of an older version may have to read it.
    pub(crate) fn set_keeps_whole(&mut self, keeps_whole: Arc<AtomicBool>) {
        self.keeps_whole = keeps_whole;
    }

    /// The body of an event that keeps the state.
    fn sealed(&self) -> store::Result<Sealed> {
        let base = self.base.as_ref().filter(|_| !self.keeps_whole.load(Relaxed));
        kept::seal(&self.progress, self.state.as_ref(), base)
    }

    /// Goes on where the turn last kept its state, with what it had made until then. A new attempt says that again as it
    /// stands: readers may have seen more.
    pub(crate) fn resume(&mut self, progress: Progress, artifacts: Vec<Artifact>) -> store::Result<()> {
        let is_new_attempt = progress.attempt != self.progress.attempt;
        // A worker counts anew for each attempt.
        let told = if is_new_attempt { 0 } else { progress.told };
        self.progress = Progress { attempt: self.progress.attempt, told, ..progress };
        self.spoken = self.progress.messages > 0 || !self.progress.made.is_empty();
        for artifact in artifacts {
            self.note_text(&artifact, false);
            if is_new_attempt {
                // What was finished comes again as that.
                let last_chunk = !self.progress.open.iter().any(|open| open.artifact == artifact.artifact_id);
                self.pending.push(Said::Artifact { artifact, append: false, last_chunk, metadata: None });
            }
        }
        if is_new_attempt {
            // What was said again counts as made before the state was kept.
            let sealed = self.sealed()?;
            self.pending_base = sealed.base;
            self.pending.push(Said::Keep(sealed.body));
        }
        Ok(())
    }

    /// The turn that it writes for.
    pub(crate) fn turn(&self) -> u32 {
        self.progress.turn
    }

    /// The attempt at it.
    pub(crate) fn attempt(&self) -> u32 {
        self.progress.attempt
    }

    /// The number of the last call of a worker that was written.
    pub(crate) fn told(&self) -> u64 {
        self.progress.told
    }

    /// What is taken from here on is that of a worker's call of this number.
    pub(crate) fn tell(&mut self, number: u64) {
        self.progress.told = number;
    }

    /// How many artifacts the turn has made.
    pub(crate) fn made(&self) -> usize {
        self.progress.made.len()
    }

    /// What the agent last kept.
    pub(crate) fn state(&self) -> Option<&Bytes> {
        self.state.as_ref()
    }

    /// The turn is about to rest: whoever goes on with it must know how far it has come.
    pub(crate) fn rest(&mut self) {
        if self.unkept {
            self.keep();
        }
    }

    /// All that was pending is durable. Its last event has this number, where that is known.
    pub(crate) fn committed(&mut self, last: Option<u64>) {
        if let Some((follow, base)) = self.next_base.take()
            && let Some(seq) = last.and_then(|last| last.checked_sub(follow as u64))
        {
            self.base = Some(Base::new(seq, base));
        }
        for waiting in self.flushed.drain(..) {
            // Whoever asked may have been dropped.
            let _ = waiting.send(());
        }
    }

    fn keep(&mut self) {
        // It is numbers and names: it has a JSON form.
        if let Ok(sealed) = self.sealed() {
            self.pending_base = sealed.base;
            self.pending.push(Said::Keep(sealed.body));
            self.unkept = false;
            self.urgent = true;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// Takes what was said, with its ids filled in.
    pub(crate) fn take(&mut self, mut said: Said) {
        match &mut said {
            Said::Status { message, .. } => {
                if let Some(message) = message {
                    self.progress.messages += 1;
                    let id = self.task.progress_id(self.progress.turn, self.progress.messages);
                    self.sign(message, id);
                }
            }
            Said::Artifact { artifact, append, last_chunk, .. } => {
                self.name(artifact, append);
                self.note_text(artifact, *append);
                self.note_open(artifact, *last_chunk);
            }
            Said::Note(note) => {
                if let Note::Usage { input_tokens, output_tokens, .. } = note {
                    self.tokens = self.tokens.plus(Tokens { input: *input_tokens, output: *output_tokens });
                }
                self.urgent = true;
                return self.pending.push(said);
            }
            Said::Keep(state) => {
                self.state = Some(std::mem::take(state));
                return self.keep();
            }
            Said::Owes(owes) => {
                self.owes = Some(*owes);
                return;
            }
            Said::Flush(_) => {
                let Said::Flush(waiting) = said else { return };
                self.flushed.push(waiting);
                if self.pending.is_empty() {
                    self.committed(None);
                }
                self.urgent = !self.pending.is_empty();
                return;
            }
        }
        self.unkept = true;
        let is_delta = matches!(&said, Said::Artifact { artifact, append: true, .. } if is_text(artifact));
        // What is made waits for more of it, or for the end of the turn: the last chunk is to say that it is that, and whoever
        // answers in one piece is to be heard in one. Everything else goes out at once.
        self.urgent |= !matches!(said, Said::Artifact { .. });
        self.spoken = true;
        match self.pending.last_mut() {
            Some(last) if is_delta => {
                if let Some(said) = join(last, said) {
                    self.pending.push(said);
                }
            }
            _ => self.pending.push(said),
        }
        if let Some(Said::Artifact { artifact, .. }) = self.pending.last() {
            self.urgent |= text_len(artifact) >= JOIN_BYTES;
        }
    }

    /// The events of what was said since the last call.
    pub(crate) fn drafts(&mut self) -> store::Result<Vec<Draft>> {
        self.urgent = false;
        let mut drafts = Vec::with_capacity(self.pending.len());
        for said in self.pending.drain(..) {
            let at = clock::now();
            drafts.push(match said {
                Said::Status { auth_required, message, metadata } => {
                    let state = if auth_required { TaskState::AuthRequired } else { TaskState::Working };
                    Draft::status(self.task, &self.context, state, message, metadata, at)?
                }
                Said::Artifact { artifact, append, last_chunk, metadata } => {
                    Draft::artifact(self.task, &self.context, artifact, append, last_chunk, metadata, at)?
                }
                Said::Note(note) => Draft::note(serde_json::to_vec(&note)?.into(), at),
                Said::Keep(body) => match self.owes {
                    Some(owes) => Draft::kept_owing(body, owes, at),
                    None => Draft::kept(body, at),
                },
                // They are never pending.
                Said::Owes(_) | Said::Flush(_) => continue,
            });
        }
        let follow = drafts.iter().rev().position(Draft::is_kept);
        self.next_base = follow.zip(self.pending_base.take());
        Ok(drafts)
    }

    /// What was used of models by what [`Scribe::drafts`] has given: both are written together, or neither is.
    pub(crate) fn spent(&mut self) -> Tokens {
        std::mem::take(&mut self.tokens)
    }

    /// The end of the turn. [`Outcome::Retry`] and its kin here are ones without another attempt.
    pub(crate) fn end(&mut self, outcome: Outcome) -> store::Result<TurnEnd> {
        if !matches!(outcome, Outcome::Parked { .. }) {
            for open in std::mem::take(&mut self.progress.open) {
                self.close(open);
            }
        }
        let (state, parts) = match outcome {
            Outcome::Completed(parts) if parts.is_empty() => (TaskState::Completed, self.reply_text()),
            Outcome::Completed(parts) => (TaskState::Completed, parts),
            Outcome::InputRequired(parts) => (TaskState::InputRequired, parts),
            Outcome::AuthRequired(parts) => (TaskState::AuthRequired, parts),
            Outcome::Rejected(parts) => (TaskState::Rejected, parts),
            Outcome::Failed(parts) => (TaskState::Failed, parts),
            Outcome::Canceled => (TaskState::Canceled, Vec::new()),
            Outcome::Retry(why) | Outcome::Crashed(why) | Outcome::Displaced(why) => {
                (TaskState::Failed, vec![Part::text(why)])
            }
            Outcome::Broken(why) => return self.fail(why, "INVALID_AGENT_RESPONSE"),
            Outcome::RemoteFailed(why) => return self.fail(why, REMOTE_FAILED),
            Outcome::Unset(why) => return self.fail(why, NOT_CONFIGURED),
            Outcome::Interrupted => {
                let mut message = self.message(vec![Part::text("interrupted, reply to run again")]);
                message.metadata = JsonObject::from_value(&serde_json::json!({ "reason": INTERRUPTED }));
                return Ok(TurnEnd::Status(self.status(TaskState::InputRequired, Some(message))?));
            }
            Outcome::Message(message) => return self.reply(message),
            Outcome::Parked { at_most } => {
                self.rest();
                return Ok(TurnEnd::Park { at_most });
            }
        };
        let message = (!parts.is_empty()).then(|| self.message(parts));
        Ok(TurnEnd::Status(self.status(state, message)?))
    }

    /// A direct reply, and the status that it becomes where a task was already shown.
    fn reply(&mut self, mut message: Message) -> store::Result<TurnEnd> {
        if message.message_id.is_empty() {
            message.message_id = self.reply_id();
        }
        message.role = Role::Agent;
        message.context_id = self.context.to_string();
        message.task_id = String::new();
        let within = Message { task_id: self.task.to_string(), ..message.clone() };
        let otherwise = self.status(TaskState::Completed, Some(within))?;
        if self.spoken {
            return Ok(TurnEnd::Status(otherwise));
        }
        Ok(TurnEnd::Reply { reply: Draft::reply(message, clock::now())?, otherwise })
    }

    /// A failure that is not a word of the agent's.
    fn fail(&self, why: String, reason: &str) -> store::Result<TurnEnd> {
        let mut message = self.message(vec![Part::text(why)]);
        message.metadata = JsonObject::from_value(&serde_json::json!({ "reason": reason }));
        Ok(TurnEnd::Status(self.status(TaskState::Failed, Some(message))?))
    }

    fn status(&self, state: TaskState, message: Option<Message>) -> store::Result<Draft> {
        Draft::status(self.task, &self.context, state, message, None, clock::now())
    }

    /// The turn's text, for the status message of a completed task that repeats it: a line end between artifacts.
    fn reply_text(&mut self) -> Vec<Part> {
        let texts = self.texts.take().unwrap_or_default();
        let said: Vec<String> = texts.into_iter().map(|(_, text)| text).filter(|text| !text.is_empty()).collect();
        if said.is_empty() { Vec::new() } else { vec![Part::text(said.join("\n"))] }
    }

    fn message(&self, parts: Vec<Part>) -> Message {
        let mut message = Message { parts, ..Message::default() };
        self.sign(&mut message, self.reply_id());
        message
    }

    fn reply_id(&self) -> String {
        self.task.reply_id(self.progress.turn)
    }

    /// Fills in what an agent leaves out of its message.
    fn sign(&self, message: &mut Message, id: String) {
        if message.message_id.is_empty() {
            message.message_id = id;
        }
        message.role = Role::Agent;
        message.context_id = self.context.to_string();
        message.task_id = self.task.to_string();
    }

    /// Fills in an artifact's id by its position in the turn, so that a second attempt replaces the first.
    fn name(&mut self, artifact: &mut Artifact, append: &mut bool) {
        let is_unnamed = artifact.artifact_id.is_empty();
        if is_unnamed {
            let progress = &self.progress;
            if *append && !progress.last_artifact.is_empty() {
                artifact.artifact_id.clone_from(&progress.last_artifact);
            } else {
                *append = false;
                let kind = match artifact.parts.first().map(|part| &part.content) {
                    Some(PartContent::Data(_)) => "data",
                    Some(PartContent::Raw(_) | PartContent::Url(_)) => "file",
                    Some(PartContent::Text(_)) | None => "text",
                };
                artifact.artifact_id = match progress.turn {
                    0 | 1 => format!("{}-{kind}-{}", self.task, progress.artifacts),
                    turn => format!("{}-t{turn}-{kind}-{}", self.task, progress.artifacts),
                };
            }
        }
        let progress = &mut self.progress;
        if artifact.artifact_id != progress.last_artifact {
            // One that the agent has not named itself can only be continued before the next begins.
            let before = progress.open.iter().position(|open| open.artifact == progress.last_artifact);
            if let Some(before) = before
                && progress.last_is_unnamed
            {
                let open = progress.open.remove(before);
                self.close(open);
            }
            let progress = &mut self.progress;
            progress.artifacts += 1;
            progress.last_is_unnamed = is_unnamed;
            progress.last_artifact.clone_from(&artifact.artifact_id);
            if !progress.made.contains(&artifact.artifact_id) {
                progress.made.push(artifact.artifact_id.clone());
            }
        }
    }

    /// Knows which artifacts may go on.
    fn note_open(&mut self, artifact: &Artifact, last_chunk: bool) {
        let open = &mut self.progress.open;
        let place = open.iter().position(|open| open.artifact == artifact.artifact_id);
        if last_chunk {
            place.map(|place| open.remove(place));
            return;
        }
        let text = artifact.parts.last().filter(|part| part.as_text().is_some()).map(|part| part.media_type.clone());
        match place {
            Some(place) => open[place].text = text,
            None => open.push(Open { artifact: artifact.artifact_id.clone(), text }),
        }
    }

    /// Says of the last chunk of an artifact that it is that. One that is out already is followed by an empty text, which
    /// leaves the artifact as it is. So is one that the reply repeats: there are clients that keep every chunk which is the last
    /// (google-adk), and would keep its text twice.
    fn close(&mut self, open: Open) {
        let is_repeated = self.reply_text == ReplyText::Both && open.text.is_some();
        let of_it =
            |said: &&mut Said| matches!(said, Said::Artifact { artifact, .. } if artifact.artifact_id == open.artifact);
        let pending = self.pending.iter_mut().rev().find(of_it).filter(|_| !is_repeated);
        if let Some(Said::Artifact { last_chunk, .. }) = pending {
            *last_chunk = true;
        } else {
            // A2A requires parts of every artifact. The journal adds nothing to an artifact for an empty text.
            let parts = vec![Part { media_type: open.text.unwrap_or_default(), ..Part::text("") }];
            let artifact = Artifact { artifact_id: open.artifact, parts, ..Artifact::default() };
            self.pending.push(Said::Artifact { artifact, append: true, last_chunk: true, metadata: None });
        }
    }

    /// Collects the turn's text, artifact by artifact: pieces of one as they come, and one that is said anew in its own place.
    fn note_text(&mut self, artifact: &Artifact, append: bool) {
        let Some(texts) = &mut self.texts else { return };
        match texts.iter_mut().find(|(id, _)| *id == artifact.artifact_id) {
            Some((_, text)) if append => text.extend(artifact.parts.iter().filter_map(Part::as_text)),
            Some((_, text)) => *text = artifact.parts.iter().filter_map(Part::as_text).collect(),
            None => {
                let text = artifact.parts.iter().filter_map(Part::as_text).collect();
                texts.push((artifact.artifact_id.clone(), text));
            }
        }
        if texts.iter().map(|(_, text)| text.len()).sum::<usize>() > REPLY_BYTES {
            self.texts = None;
        }
    }
}

/// Why a message was said that is not its agent's own word.
pub(crate) fn reason_of(message: &Message) -> Option<String> {
    #[derive(Deserialize)]
    struct Metadata {
        reason: String,
    }
    let metadata: Metadata = serde_json::from_str(message.metadata.as_ref()?.get()).ok()?;
    Some(metadata.reason)
}

/// Whether an artifact is one plain piece of text and nothing else.
fn is_text(artifact: &Artifact) -> bool {
    let [part] = artifact.parts.as_slice() else { return false };
    matches!(part.content, PartContent::Text(_))
        && part.metadata.is_none()
        && part.filename.is_empty()
        && artifact.metadata.is_none()
        && artifact.extensions.is_empty()
}

fn text_len(artifact: &Artifact) -> usize {
    match artifact.parts.as_slice() {
        [Part { content: PartContent::Text(text), .. }] => text.len(),
        _ => 0,
    }
}

/// Joins a piece of text to what was said just before, or gives it back.
fn join(last: &mut Said, said: Said) -> Option<Said> {
    let (
        Said::Artifact { artifact: before, last_chunk: before_last, metadata: before_metadata, .. },
        Said::Artifact { artifact, append, last_chunk, metadata },
    ) = (last, &said)
    else {
        return Some(said);
    };
    let joinable = *append
        && !*before_last
        && before.artifact_id == artifact.artifact_id
        && before_metadata == metadata
        && is_text(before)
        && before.parts[0].media_type == artifact.parts[0].media_type
        && text_len(before) < JOIN_BYTES;
    if !joinable {
        return Some(said);
    }
    if let (PartContent::Text(text), PartContent::Text(more)) =
        (&mut before.parts[0].content, &artifact.parts[0].content)
    {
        text.push_str(more);
    }
    *before_last = *last_chunk;
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(text: &str, append: bool) -> Said {
        let artifact = Artifact { parts: vec![Part::text(text)], ..Artifact::default() };
        Said::Artifact { artifact, append, last_chunk: false, metadata: None }
    }

    fn scribe() -> Scribe {
        Scribe::new(TaskId::mint(), "ctx".into(), 1, 1, ReplyText::Artifact)
    }

    fn repeating() -> Scribe {
        Scribe::new(TaskId::mint(), "ctx".into(), 1, 1, ReplyText::Both)
    }

    fn texts(scribe: &Scribe) -> Vec<String> {
        let text = |said: &Said| match said {
            Said::Artifact { artifact, .. } => crate::text_of(&artifact.parts),
            _ => String::new(),
        };
        scribe.pending.iter().map(text).collect()
    }

    #[test]
    fn words_wait_for_company_and_nothing_else_does() {
        let mut scribe = scribe();
        scribe.take(chunk("a", false));
        assert!(!scribe.is_urgent());
        scribe.take(chunk("b", true));
        assert_eq!(texts(&scribe), ["ab"], "pieces are joined");
        scribe.take(Said::Status { auth_required: false, message: None, metadata: None });
        assert!(scribe.is_urgent());
        scribe.drafts().unwrap();
        scribe.take(chunk("c", true));
        assert!(!scribe.is_urgent());
        scribe.take(chunk(&"x".repeat(JOIN_BYTES), true));
        assert!(scribe.is_urgent(), "enough for a commit");
    }

    #[test]
    fn what_was_said_is_logged_in_that_order() {
        let mut scribe = scribe();
        scribe.take(chunk("a", false));
        scribe.take(Said::Status { auth_required: false, message: None, metadata: None });
        scribe.take(chunk("b", true));
        assert_eq!(texts(&scribe), ["a", "", "b"], "a status has no text");
    }

    #[test]
    fn a_new_artifact_is_not_joined() {
        let mut scribe = scribe();
        scribe.take(chunk("a", false));
        scribe.take(chunk("b", false));
        scribe.take(chunk("c", true));
        assert_eq!(texts(&scribe), ["a", "bc"]);
    }

    #[test]
    fn ids_are_positional() {
        let task = TaskId::mint();
        let ids = |turn| {
            let mut scribe = Scribe::new(task, "ctx".into(), turn, 1, ReplyText::Artifact);
            scribe.take(chunk("a", true));
            scribe.take(chunk("b", false));
            let id = |said: &Said| match said {
                Said::Artifact { artifact, append, .. } => (artifact.artifact_id.clone(), *append),
                other => unreachable!("only artifacts were said, not {other:?}"),
            };
            scribe.pending.iter().map(id).collect::<Vec<_>>()
        };
        assert_eq!(ids(1), [(format!("{task}-text-0"), false), (format!("{task}-text-1"), false)]);
        assert_eq!(ids(2)[0].0, format!("{task}-t2-text-0"));
    }

    /// The ids, texts and marks of what is pending.
    fn chunks(scribe: &Scribe) -> Vec<(&str, String, bool, bool)> {
        let chunk = |said| match said {
            &Said::Artifact { ref artifact, append, last_chunk, .. } => {
                (artifact.artifact_id.as_str(), crate::text_of(&artifact.parts), append, last_chunk)
            }
            other => unreachable!("only artifacts were said, not {other:?}"),
        };
        scribe.pending.iter().map(chunk).collect()
    }

    fn named(id: &str, text: &str, append: bool) -> Said {
        let artifact = Artifact { artifact_id: id.into(), parts: vec![Part::text(text)], ..Artifact::default() };
        Said::Artifact { artifact, append, last_chunk: false, metadata: None }
    }

    #[test]
    fn x_10_the_last_chunk_of_each_artifact_says_so_and_no_other() {
        let mut scribe = scribe();
        for said in [named("a", "one", false), named("b", "other", false), named("a", " two", true)] {
            scribe.take(said);
        }
        scribe.end(Outcome::Completed(Vec::new())).unwrap();
        let expected = [("a", "one", false, false), ("b", "other", false, true), ("a", " two", true, true)];
        assert_eq!(chunks(&scribe), expected.map(|(id, text, append, last)| (id, text.to_owned(), append, last)));
    }

    #[test]
    fn x_10_a_chunk_that_is_out_already_is_followed_by_an_empty_one() {
        let mut scribe = scribe();
        let artifact = Artifact {
            artifact_id: "a".into(),
            parts: vec![Part { media_type: "text/markdown".into(), ..Part::text("# one") }],
            ..Artifact::default()
        };
        scribe.take(Said::Artifact { artifact, append: false, last_chunk: false, metadata: None });
        scribe.take(named("whole", "said so itself", false));
        if let Some(Said::Artifact { last_chunk, artifact, .. }) = scribe.pending.last_mut() {
            *last_chunk = true;
            let artifact = artifact.clone();
            scribe.note_open(&artifact, true);
        }
        let data = Artifact {
            artifact_id: "data".into(),
            parts: vec![serde_json::from_str(r#"{"data": 1}"#).unwrap()],
            ..Artifact::default()
        };
        scribe.take(Said::Artifact { artifact: data, append: false, last_chunk: false, metadata: None });
        scribe.drafts().unwrap();
        scribe.end(Outcome::Failed(Vec::new())).unwrap();
        assert_eq!(chunks(&scribe), [("a", String::new(), true, true), ("data", String::new(), true, true)]);
        let parts: Vec<&[Part]> = scribe
            .pending
            .iter()
            .map(|said| match said {
                Said::Artifact { artifact, .. } => artifact.parts.as_slice(),
                other => unreachable!("only artifacts were said, not {other:?}"),
            })
            .collect();
        assert_eq!(parts[0][0].media_type, "text/markdown", "it adds nothing to the text before");
        assert_eq!(parts[1], [Part::text("")], "A2A requires parts of every artifact");
    }

    #[test]
    fn x_10_what_the_reply_repeats_is_not_kept_twice() {
        let mut scribe = repeating();
        scribe.take(named("a", "one", false));
        scribe.end(Outcome::Completed(Vec::new())).unwrap();
        assert_eq!(chunks(&scribe), [("a", "one".to_owned(), false, false), ("a", String::new(), true, true)]);
    }

    #[test]
    fn x_10_a_text_without_a_name_ends_when_the_next_begins() {
        let mut scribe = scribe();
        scribe.take(chunk("one", false));
        scribe.drafts().unwrap();
        scribe.take(chunk(" two", true));
        scribe.take(chunk("three", false));
        scribe.drafts().unwrap();
        scribe.take(named("report", "four", false));
        let found: Vec<_> = chunks(&scribe).into_iter().map(|(_, text, append, last)| (text, append, last)).collect();
        assert_eq!(found, [(String::new(), true, true), ("four".to_owned(), false, false)]);
    }

    #[test]
    fn x_10_a_turn_that_rests_ends_nothing() {
        let mut scribe = scribe();
        scribe.take(named("a", "one", false));
        scribe.end(Outcome::Parked { at_most: None }).unwrap();
        let Some(Said::Keep(kept)) = scribe.pending.last() else { unreachable!("it was kept") };
        let progress = kept::progress(kept).unwrap();
        let mut later = Scribe::new(scribe.task, "ctx".into(), 1, 1, ReplyText::Artifact);
        later.resume(progress, Vec::new()).unwrap();
        later.end(Outcome::Completed(Vec::new())).unwrap();
        assert_eq!(chunks(&later), [("a", String::new(), true, true)]);
    }

    #[test]
    fn the_reply_is_the_text_of_the_turn() {
        let mut scribe = repeating();
        for (text, append) in [("one ", false), ("two", true), ("three", false)] {
            scribe.take(chunk(text, append));
        }
        assert_eq!(scribe.reply_text(), [Part::text("one two\nthree")]);
    }

    #[test]
    fn what_is_said_anew_takes_its_place_in_the_reply() {
        let mut scribe = repeating();
        for (id, text, append) in
            [("a", "draft", false), ("b", "other", false), ("a", "final", false), ("a", " text", true)]
        {
            scribe.take(named(id, text, append));
        }
        assert_eq!(scribe.reply_text(), [Part::text("final text\nother")]);
    }
}
