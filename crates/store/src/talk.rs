//! What an agent is told of earlier turns: the messages, and where a turn's reply is in its artifacts alone, that as a message.
//!
//! It is bounded, newest first, whatever lies in the journal: so much text of a turn, and so much reading for all of it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use a2a::{Artifact, Message, Part, Role};

use crate::{Result, TaskId};

/// So much of a turn's text is told.
const TOLD_BYTES: usize = 64 << 10;
/// So much is read of what one turn has made, and one chunk more.
pub(crate) const TURN_BYTES: usize = 256 << 10;
/// So much is read of what all turns have made, and one chunk more.
pub(crate) const ALL_BYTES: usize = 2 << 20;
/// So much is read of what was said, and one message more.
pub(crate) const SAID_BYTES: u64 = 4 << 20;

/// How much may still be read.
pub(crate) struct Room {
    made: usize,
    said: u64,
    /// The bytes of the messages that are read.
    heard: u64,
}

impl Default for Room {
    fn default() -> Self {
        Self { made: ALL_BYTES, said: SAID_BYTES, heard: 0 }
    }
}

impl Room {
    /// Whether a message of that many bytes is read. The newest come first.
    pub(crate) fn hears(&mut self, bytes: u64) -> bool {
        let has_room = self.said > 0;
        self.said = self.said.saturating_sub(bytes);
        self.heard += if has_room { bytes } else { 0 };
        has_room
    }

    /// The bytes of the messages that are read.
    pub(crate) fn heard(&self) -> u64 {
        self.heard
    }
}

/// The conversation of one task.
pub(crate) struct Talk {
    task: TaskId,
    context: Arc<str>,
    turns: BTreeMap<u32, Said>,
}

#[derive(Default)]
struct Said {
    messages: Vec<Message>,
    /// The texts of artifacts, and which is whose.
    made: Vec<String>,
    places: HashMap<String, usize>,
    read: usize,
    told: usize,
}

impl Talk {
    pub(crate) fn new(task: TaskId, context: &Arc<str>) -> Self {
        Self { task, context: Arc::clone(context), turns: BTreeMap::new() }
    }

    /// Adds a message to those of a turn.
    pub(crate) fn hear(&mut self, turn: u32, body: &[u8]) -> Result<()> {
        self.turns.entry(turn).or_default().messages.push(serde_json::from_slice(body)?);
        Ok(())
    }

    /// The turns up to this one whose agent has not ended them with a message: what they made is their reply. The newest is
    /// the first. All messages have been heard.
    pub(crate) fn silent_turns(&self, last: u32) -> Vec<u32> {
        let replied = |said: &Said| {
            let last = said.messages.iter().rfind(|message| message.role == Role::Agent);
            last.is_some_and(|message| !self.task.is_progress_id(&message.message_id))
        };
        let turns = self.turns.range(..=last).rev();
        turns.filter(|(_, said)| !replied(said)).map(|(turn, _)| *turn).collect()
    }

    /// Adds a chunk of an artifact to what such a turn has made. `false` when no more of it will be told.
    pub(crate) fn make(&mut self, turn: u32, artifact_id: &str, body: &[u8], room: &mut Room) -> Result<bool> {
        let said = self.turns.entry(turn).or_default();
        if said.told >= TOLD_BYTES || said.read >= TURN_BYTES || room.made == 0 {
            return Ok(false);
        }
        said.read = said.read.saturating_add(body.len());
        room.made = room.made.saturating_sub(body.len());
        // A file has none, and may be long.
        if !body.windows(6).any(|window| window == b"\"text\"") {
            return Ok(true);
        }
        let artifact: Artifact = serde_json::from_slice(body)?;
        let place = match said.places.get(artifact_id) {
            Some(place) => *place,
            None => {
                said.places.insert(artifact_id.to_owned(), said.made.len());
                said.made.push(String::new());
                said.made.len() - 1
            }
        };
        for text in artifact.parts.iter().filter_map(Part::as_text) {
            let end = boundary(text, TOLD_BYTES.saturating_sub(said.told));
            said.made[place].push_str(&text[..end]);
            said.told += text.len();
        }
        Ok(true)
    }

    /// All messages, oldest first.
    pub(crate) fn finish(self) -> Vec<Message> {
        let mut messages = Vec::new();
        for (turn, said) in self.turns {
            messages.extend(said.messages);
            let texts: Vec<String> = said.made.into_iter().filter(|text| !text.is_empty()).collect();
            if texts.is_empty() {
                continue;
            }
            messages.push(Message {
                message_id: self.task.reply_id(turn),
                role: Role::Agent,
                parts: vec![Part::text(texts.join("\n"))],
                context_id: self.context.to_string(),
                task_id: self.task.to_string(),
                ..Message::default()
            });
        }
        messages
    }
}

/// The last place up to `at` where a text can be cut.
fn boundary(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}
