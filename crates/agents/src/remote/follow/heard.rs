//! What is heard of a remote, said here in our words: whole, once, and only what can be kept.

use a2a::{
    Artifact, JsonObject, Limits, Message, Part, Role, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent,
};
use exchange::{Note, Outcome, words};

use super::{Follow, broken};
use crate::remote::state::{LONGEST_ID, Phase, Pieces, in_short, is_over, repeats, text_of};

/// So many artifacts a turn may have.
const MOST_ARTIFACTS: usize = 1000;
/// With so many artifacts what is known of a turn is short, and kept with each status.
const FEW: usize = 16;
/// So much text of an artifact is remembered, to be compared with a message that may repeat it.
const LONGEST_TEXT: usize = 1 << 20;

/// An artifact that has come in this run.
#[derive(Default)]
pub(super) struct Made {
    id: String,
    pieces: Pieces,
    /// Its text; nothing when there is too much of it.
    text: Option<String>,
}

impl Follow<'_> {
    /// A direct message is a whole answer.
    pub(super) fn message(&mut self, message: Message) -> Outcome {
        if let Err(why) = check(&message) {
            return broken(why);
        }
        let _ = self.state.meet(&message.task_id, &message.context_id);
        self.state.ended = true;
        self.begun = true;
        Outcome::Message(message)
    }

    /// A task as it stands there. Gives the end of the turn, if it is over.
    pub(super) async fn task(&mut self, task: Task, first: bool) -> Result<Option<Outcome>, Outcome> {
        // A stream that continues a task shows it as it stood before, and so are its artifacts.
        let is_before = first && self.state.task.is_some() && !task.status.state.is_terminal();
        self.meet(&task.id, &task.context_id).map_err(broken)?;
        if self.state.phase != Phase::Working {
            self.state.phase = Phase::Working;
            let note = Note::Step {
                agent: self.peer.spec.name.clone(),
                task: self.state.task.clone(),
                text: "works on it".to_owned(),
            };
            self.out.note(note).await;
            self.keep().await;
        }
        if is_before {
            task.artifacts.iter().for_each(|artifact| self.state.remember_whole(artifact));
            return Ok(None);
        }
        for artifact in &task.artifacts {
            match self.rest_of(artifact) {
                _ if self.state.has(artifact) => {}
                Some(rest) => self.say(rest, true, false, None).await?,
                None => self.say(artifact.clone(), false, true, None).await?,
            }
        }
        if is_over(&task) {
            let texts: Vec<String> = task.artifacts.iter().map(|artifact| text_of(&artifact.parts)).collect();
            let words = last_words(&task);
            return Ok(Some(self.end(task.status.state, task.status.message, Some(texts), words)));
        }
        self.working(task.status.state, task.status.message, None).await?;
        Ok(None)
    }

    pub(super) async fn status(&mut self, update: TaskStatusUpdateEvent) -> Result<Option<Outcome>, Outcome> {
        self.meet(&update.task_id, &update.context_id).map_err(broken)?;
        let status = update.status;
        if status.state.is_terminal() || status.state == TaskState::InputRequired {
            let texts = self.made.iter().map(|made| made.text.clone()).collect();
            return Ok(Some(self.end(status.state, status.message, texts, Vec::new())));
        }
        self.state.phase = Phase::Working;
        self.working(status.state, status.message, update.metadata).await?;
        Ok(None)
    }

    /// The remote is at work, and may say something about it.
    async fn working(
        &mut self,
        state: TaskState,
        message: Option<Message>,
        metadata: Option<JsonObject>,
    ) -> Result<(), Outcome> {
        if let Some(message) = &message {
            check(message).map_err(broken)?;
        }
        words::check_object("metadata", metadata.as_ref(), &Limits::default()).map_err(|why| broken(unkept(&why)))?;
        let is_auth = state == TaskState::AuthRequired;
        let changed = std::mem::replace(&mut self.state.auth, is_auth) != is_auth;
        if let Some(message) = &message {
            let text = || exchange::text_of(&message.parts);
            let id = in_short(&if message.message_id.is_empty() { text() } else { message.message_id.clone() });
            if std::mem::replace(&mut self.state.said, id.clone()) == id && !changed {
                return Ok(());
            }
        } else if !changed {
            return Ok(());
        }
        if is_auth {
            self.out.auth_required(message, metadata).await;
        } else {
            self.out.status(message, metadata).await;
        }
        // It is a commit of its own, and not said again after a crash.
        self.dirty = true;
        if self.state.heard.len() <= FEW {
            self.keep().await;
        }
        Ok(())
    }

    pub(super) async fn artifact(&mut self, update: TaskArtifactUpdateEvent) -> Result<(), Outcome> {
        self.meet(&update.task_id, &update.context_id).map_err(broken)?;
        self.state.phase = Phase::Working;
        self.say(update.artifact, update.append, update.last_chunk, update.metadata).await
    }

    /// Says an artifact or a piece of one, and remembers what it is by now.
    async fn say(
        &mut self,
        mut artifact: Artifact,
        append: bool,
        last_chunk: bool,
        metadata: Option<JsonObject>,
    ) -> Result<(), Outcome> {
        if artifact.artifact_id.is_empty() {
            artifact.artifact_id = if append { self.last_artifact() } else { self.next_artifact() };
        }
        if artifact.artifact_id.len() > LONGEST_ID {
            return Err(broken(unkept("an artifact's id is too long")));
        }
        words::check_artifact("artifact", &artifact, &Limits::default())
            .and_then(|()| words::check_object("metadata", metadata.as_ref(), &Limits::default()))
            .map_err(|why| broken(unkept(&why)))?;
        let id = artifact.artifact_id.clone();
        let known = self.made.iter().position(|made| made.id == id);
        let is_heard = known.is_some() || self.state.heard.iter().any(|heard| heard.id == id);
        if !is_heard && self.state.heard.len() >= MOST_ARTIFACTS {
            return Err(broken(format!("the remote made more than {MOST_ARTIFACTS} artifacts")));
        }
        // What continues nothing begins.
        let append = append && is_heard;
        let digest = match known {
            Some(at) => {
                if !append {
                    self.made[at] = Made { id: id.clone(), text: Some(String::new()), ..Made::default() };
                }
                self.made[at].add(&artifact.parts)
            }
            // It goes on with what came before this run.
            None if append => String::new(),
            None => {
                let mut made = Made { id: id.clone(), text: Some(String::new()), ..Made::default() };
                let digest = made.add(&artifact.parts);
                self.made.push(made);
                digest
            }
        };
        self.state.remember(&id, digest);
        self.dirty = true;
        self.out.artifact(artifact, append, last_chunk, metadata).await;
        Ok(())
    }

    /// What is new of an artifact that has only grown since it was heard.
    fn rest_of(&self, artifact: &Artifact) -> Option<Artifact> {
        let heard = self.made.iter().find(|made| made.id == artifact.artifact_id)?.text.as_ref()?;
        let [first, others @ ..] = artifact.parts.as_slice() else { return None };
        let is_plain =
            |part: &Part| part.as_text().is_some() && part.metadata.is_none() && part.media_type == first.media_type;
        if heard.is_empty() || !is_plain(first) || !others.iter().all(is_plain) {
            return None;
        }
        let text = text_of(&artifact.parts);
        let rest = text.strip_prefix(heard.as_str())?;
        let part = Part { media_type: first.media_type.clone(), ..Part::text(rest) };
        let artifact_id = artifact.artifact_id.clone();
        Some(Artifact { artifact_id, parts: vec![part], ..Artifact::default() })
    }

    fn next_artifact(&self) -> String {
        format!("artifact-{}-{}", self.turn.number, self.state.heard.len() + 1)
    }

    fn last_artifact(&self) -> String {
        self.state.heard.last().map_or_else(|| self.next_artifact(), |heard| heard.id.clone())
    }

    pub(super) fn meet(&mut self, task: &str, context: &str) -> Result<(), String> {
        self.state.meet(task, context)?;
        if self.state.task.is_some() {
            self.named.notify_one();
        }
        Ok(())
    }

    /// The end of the remote's turn, in our words. `texts` is what its artifacts say, where that is known, and `words` what it said last,
    /// should there be nothing else.
    fn end(
        &mut self,
        state: TaskState,
        message: Option<Message>,
        texts: Option<Vec<String>>,
        words: Vec<Part>,
    ) -> Outcome {
        if let Some(Err(why)) = message.as_ref().map(check) {
            return broken(why);
        }
        self.state.ended = state.is_terminal();
        let text = message.as_ref().map(|message| exchange::text_of(&message.parts)).unwrap_or_default();
        let parts = message.map(|message| message.parts).unwrap_or_default();
        let made = texts.map(|texts| texts.join("\n"));
        match state {
            // Many repeat in the message what their artifacts say.
            TaskState::Completed if made.as_ref().is_some_and(|made| repeats(made, &text)) => {
                Outcome::Completed(Vec::new())
            }
            TaskState::Completed if parts.is_empty() && self.state.heard.is_empty() && self.state.said.is_empty() => {
                Outcome::Completed(words)
            }
            TaskState::Completed => Outcome::Completed(parts),
            TaskState::InputRequired => Outcome::InputRequired(parts),
            TaskState::Rejected => Outcome::Rejected(parts),
            TaskState::Canceled => Outcome::Canceled,
            _ if parts.is_empty() => Outcome::Failed(vec![Part::text("the remote says that it failed, and not why")]),
            _ => Outcome::Failed(parts),
        }
    }
}

impl Made {
    /// Adds what comes. Gives what it holds by now, in short.
    fn add(&mut self, parts: &[Part]) -> String {
        self.pieces.add(parts);
        if let Some(text) = &mut self.text {
            text.push_str(&text_of(parts));
        }
        self.text.take_if(|text| text.len() > LONGEST_TEXT);
        self.pieces.digest()
    }
}

/// What an agent said last in a task's history.
fn last_words(task: &Task) -> Vec<Part> {
    let said = task.history.iter().rfind(|message| message.role == Role::Agent);
    said.map(|message| message.parts.clone()).unwrap_or_default()
}

/// Whether a message can be kept and given to whoever asks.
fn check(message: &Message) -> Result<(), String> {
    words::check_message("message", message, &Limits::default()).map_err(|why| unkept(&why))
}

fn unkept(why: &str) -> String {
    format!("the remote's answer cannot be kept: {why}")
}
