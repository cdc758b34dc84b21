//! Output as events: one JSON object a line, which [`exchange::words`] reads.
//!
//! A state that ends the turn is kept until the program exits, or at once where it stays, and nothing may follow it. Whatever
//! does not fit is an error that names the line.

use a2a::{Limits, Message, Part, TaskState};
use exchange::{
    Outcome, Output, Said,
    words::{self, Word},
};

/// The longest line.
const LINE_BYTES: usize = 1 << 20;
/// How much of a faulty line is repeated.
const EXCERPT_CHARS: usize = 80;

/// Cuts what a program prints into lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// A line whose end has not come yet.
    line: Vec<u8>,
    /// How many lines have come.
    count: u64,
}

/// Reads a program whose output is events.
#[derive(Debug, Default)]
pub(super) struct Events {
    lines: Lines,
    /// How many lines were heard.
    heard: u64,
    /// What the program has said about the turn's end.
    ending: Ending,
}

#[derive(Debug, Default)]
enum Ending {
    #[default]
    Open,
    /// AUTH_REQUIRED was the last word so far: the end of the turn, unless the program goes on.
    Auth(Vec<Part>),
    Said(Outcome, TaskState),
    Message(Message),
}

impl Lines {
    /// The next whole line, taken from what has come; nothing when its end is not there yet.
    pub(super) fn next(&mut self, come: &mut &[u8]) -> Result<Option<Vec<u8>>, String> {
        let end = come.iter().position(|byte| *byte == b'\n');
        let (piece, rest) = come.split_at(end.unwrap_or(come.len()));
        if self.line.len() + piece.len() > LINE_BYTES {
            let shown = excerpt(if self.line.is_empty() { piece } else { &self.line });
            return Err(format!("line {}: longer than {LINE_BYTES} bytes: {shown}", self.count + 1));
        }
        self.line.extend_from_slice(piece);
        *come = rest.get(1..).unwrap_or_default();
        if end.is_none() {
            return Ok(None);
        }
        self.count += 1;
        Ok(Some(std::mem::take(&mut self.line)))
    }

    /// How many lines have come.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// A last line without its end.
    fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.line)
    }

    /// The allocation of a line that was heard serves the next one.
    fn reuse(&mut self, mut line: Vec<u8>) {
        if self.line.is_empty() {
            line.clear();
            self.line = line;
        }
    }
}

impl Events {
    pub(super) async fn take(&mut self, bytes: &[u8], out: &Output) -> Result<(), String> {
        let mut come = bytes;
        while let Some(line) = self.lines.next(&mut come)? {
            self.hear(&line, out).await?;
            self.lines.reuse(line);
        }
        Ok(())
    }

    /// Reads a last line without its end. The outcome, if the program named one.
    pub(super) async fn finish(&mut self, out: &Output) -> Result<Option<Outcome>, String> {
        let line = self.lines.rest();
        self.hear(&line, out).await?;
        Ok(match std::mem::take(&mut self.ending) {
            Ending::Open => None,
            Ending::Auth(parts) => Some(Outcome::AuthRequired(parts)),
            Ending::Said(outcome, _) => Some(outcome),
            Ending::Message(message) => Some(Outcome::Message(message)),
        })
    }

    /// Whether the program has said how the turn ends, and nothing may follow.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.ending, Ending::Said(..) | Ending::Message(_))
    }

    /// Reads one line.
    pub(super) async fn hear(&mut self, line: &[u8], out: &Output) -> Result<(), String> {
        self.heard += 1;
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let word = self.read(line).map_err(|why| format!("line {}: {why}: {}", self.heard, excerpt(line)))?;
        match word {
            Word::Said(said) => {
                match &said {
                    Said::Status { auth_required: true, message, .. } => {
                        let parts = message.as_ref().map(|message| message.parts.clone());
                        self.ending = Ending::Auth(parts.unwrap_or_default());
                    }
                    // What is kept says nothing about the turn.
                    Said::Keep(_) | Said::Owes(_) => {}
                    _ => self.ending = Ending::Open,
                }
                out.say(said).await;
            }
            Word::End { state, outcome } => self.ending = Ending::Said(outcome, state),
            Word::Message(message) => self.ending = Ending::Message(message),
        }
        Ok(())
    }

    fn read(&self, line: &[u8]) -> Result<Word, String> {
        match &self.ending {
            Ending::Said(_, state) => Err(format!("nothing may follow {state}")),
            Ending::Message(_) => Err("nothing may follow a message".to_owned()),
            Ending::Open | Ending::Auth(_) => words::read(line, &Limits::default()),
        }
    }
}

/// The beginning of a line, for people.
pub(super) fn excerpt(line: &[u8]) -> String {
    let line = String::from_utf8_lossy(&line[..line.len().min(EXCERPT_CHARS * 4)]);
    let shown: String = line.trim().chars().take(EXCERPT_CHARS).flat_map(char::escape_debug).collect();
    let cut = line.trim().chars().count() > EXCERPT_CHARS;
    // Escaping quotes would only make JSON hard to read.
    format!("{}{}", shown.replace("\\\"", "\""), if cut { "…" } else { "" })
}
