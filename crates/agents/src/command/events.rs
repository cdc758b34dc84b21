//! Output as events: one JSON object a line, which [`exchange::words`] reads.
//!
//! A state that ends the turn is kept until the program exits, and nothing may follow it. Whatever does not fit is an
//! error that names the line.

use a2a::{Limits, Message, Part, TaskState};
use exchange::{
    Outcome, Output, Said,
    words::{self, Word},
};

/// The longest line.
const LINE_BYTES: usize = 1 << 20;
/// How much of a faulty line is repeated.
const EXCERPT_CHARS: usize = 80;

/// Reads a program whose output is events.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// A line whose end has not come yet.
    line: Vec<u8>,
    /// How many lines have come.
    lines: u64,
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

impl Events {
    pub(super) async fn take(&mut self, bytes: &[u8], out: &Output) -> Result<(), String> {
        let mut left = bytes;
        while let Some(end) = left.iter().position(|byte| *byte == b'\n') {
            let (piece, rest) = left.split_at(end);
            left = &rest[1..];
            self.extend(piece)?;
            let line = std::mem::take(&mut self.line);
            self.hear(&line, out).await?;
            // The allocation serves the next line.
            self.line = line;
            self.line.clear();
        }
        self.extend(left)
    }

    /// Reads a last line without its end. The outcome, if the program named one.
    pub(super) async fn finish(&mut self, out: &Output) -> Result<Option<Outcome>, String> {
        let line = std::mem::take(&mut self.line);
        self.hear(&line, out).await?;
        Ok(match std::mem::take(&mut self.ending) {
            Ending::Open => None,
            Ending::Auth(parts) => Some(Outcome::AuthRequired(parts)),
            Ending::Said(outcome, _) => Some(outcome),
            Ending::Message(message) => Some(Outcome::Message(message)),
        })
    }

    fn extend(&mut self, piece: &[u8]) -> Result<(), String> {
        if self.line.len() + piece.len() > LINE_BYTES {
            let shown = excerpt(if self.line.is_empty() { piece } else { &self.line });
            return Err(format!("line {}: longer than {LINE_BYTES} bytes: {shown}", self.lines + 1));
        }
        self.line.extend_from_slice(piece);
        Ok(())
    }

    async fn hear(&mut self, line: &[u8], out: &Output) -> Result<(), String> {
        self.lines += 1;
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let word = self.read(line).map_err(|why| format!("line {}: {why}: {}", self.lines, excerpt(line)))?;
        match word {
            Word::Said(said) => {
                match &said {
                    Said::Status { auth_required: true, message, .. } => {
                        let parts = message.as_ref().map(|message| message.parts.clone());
                        self.ending = Ending::Auth(parts.unwrap_or_default());
                    }
                    // What is kept says nothing about the turn.
                    Said::Keep(_) => {}
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
fn excerpt(line: &[u8]) -> String {
    let line = String::from_utf8_lossy(&line[..line.len().min(EXCERPT_CHARS * 4)]);
    let shown: String = line.trim().chars().take(EXCERPT_CHARS).flat_map(char::escape_debug).collect();
    let cut = line.trim().chars().count() > EXCERPT_CHARS;
    // Escaping quotes would only make JSON hard to read.
    format!("{}{}", shown.replace("\\\"", "\""), if cut { "…" } else { "" })
}
