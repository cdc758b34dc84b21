//! What an agent is told of earlier turns: the messages, and where a turn's reply is in its artifacts alone, that as a message.

use std::{collections::BTreeMap, sync::Arc};

use a2a::{Artifact, Message, Part, Role};

use crate::{Result, TaskId};

/// So much of a turn's text is told.
const TOLD_BYTES: usize = 64 << 10;
/// A longer chunk is a file and no text for anybody to remember.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;
/// So much is read of what one turn has made.
pub(crate) const READ_BYTES: usize = 1 << 20;

/// The conversation of one task.
pub(crate) struct Talk {
    task: TaskId,
    context: Arc<str>,
    turns: BTreeMap<u32, Said>,
}

#[derive(Default)]
struct Said {
    messages: Vec<Message>,
    /// One of the messages is the agent's last word.
    has_reply: bool,
    /// The ids and texts of artifacts.
    made: Vec<(String, String)>,
    read: usize,
}

impl Talk {
    pub(crate) fn new(task: TaskId, context: &Arc<str>) -> Self {
        Self { task, context: Arc::clone(context), turns: BTreeMap::new() }
    }

    /// Adds a message to those of a turn.
    pub(crate) fn hear(&mut self, turn: u32, body: &[u8]) -> Result<()> {
        let message: Message = serde_json::from_slice(body)?;
        let said = self.turns.entry(turn).or_default();
        said.has_reply |= message.role == Role::Agent && message.message_id == self.task.reply_id(turn);
        said.messages.push(message);
        Ok(())
    }

    /// Whether what a turn has made matters, or any more of it.
    pub(crate) fn wants_made(&self, turn: u32) -> bool {
        self.turns.get(&turn).is_some_and(|said| !said.has_reply && said.read < READ_BYTES)
    }

    /// Adds a chunk of an artifact. All messages have been heard.
    pub(crate) fn make(&mut self, turn: u32, artifact_id: &str, body: &[u8]) -> Result<()> {
        if body.len() > CHUNK_BYTES {
            return Ok(());
        }
        let said = self.turns.entry(turn).or_default();
        said.read += body.len();
        let artifact: Artifact = serde_json::from_slice(body)?;
        let texts = artifact.parts.iter().filter_map(Part::as_text);
        match said.made.iter_mut().find(|(id, _)| id == artifact_id) {
            Some((_, text)) => text.extend(texts),
            None => said.made.push((artifact_id.to_owned(), texts.collect())),
        }
        Ok(())
    }

    /// All messages, oldest first.
    pub(crate) fn finish(self) -> Vec<Message> {
        let mut messages = Vec::new();
        for (turn, said) in self.turns {
            messages.extend(said.messages);
            let texts: Vec<String> = said.made.into_iter().map(|(_, text)| text).filter(|it| !it.is_empty()).collect();
            let mut text = texts.join("\n");
            if said.has_reply || text.is_empty() {
                continue;
            }
            let end = (0..=TOLD_BYTES.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
            text.truncate(end.unwrap_or(0));
            messages.push(Message {
                message_id: self.task.reply_id(turn),
                role: Role::Agent,
                parts: vec![Part::text(text)],
                context_id: self.context.to_string(),
                task_id: self.task.to_string(),
                ..Message::default()
            });
        }
        messages
    }
}
