//! Output as events: one JSON object a line, in the shapes of an A2A 1.0 StreamResponse, or `{"keep": …}`: what the program
//! wants to be given when it is started again.
//!
//! Ids may be left out; the exchange fills them in. A state that ends the turn is kept until the program
//! exits, and nothing may follow it. Whatever does not fit is an error that names the line.

use std::collections::BTreeMap;

use a2a::{
    JsonObject, Limits, Message, Part, StreamResponse, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent,
};
use exchange::{Outcome, Output};
use serde_json::value::RawValue;

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

/// What a line says.
enum Line {
    Response(Box<StreamResponse>),
    Keep(Box<RawValue>),
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
        let result = match self.read(line) {
            Ok(Line::Response(event)) => self.act(*event, out).await,
            Ok(Line::Keep(state)) => {
                out.keep(Box::<str>::from(state).into_boxed_bytes()).await;
                Ok(())
            }
            Err(why) => Err(why),
        };
        result.map_err(|why| format!("line {}: {why}: {}", self.lines, excerpt(line)))
    }

    fn read(&self, line: &[u8]) -> Result<Line, String> {
        match &self.ending {
            Ending::Said(_, state) => return Err(format!("nothing may follow {state}")),
            Ending::Message(_) => return Err("nothing may follow a message".to_owned()),
            Ending::Open | Ending::Auth(_) => {}
        }
        if std::str::from_utf8(line).is_err() {
            return Err("not UTF-8 text".to_owned());
        }
        if let Ok(mut members) = serde_json::from_slice::<BTreeMap<String, Box<RawValue>>>(line)
            && let Some(state) = members.remove("keep")
        {
            let alone = members.is_empty();
            return alone.then_some(Line::Keep(state)).ok_or_else(|| "`keep` stands alone on its line".to_owned());
        }
        a2a::decode(line).map(|event| Line::Response(Box::new(event))).map_err(|error| describe(&error))
    }

    async fn act(&mut self, event: StreamResponse, out: &Output) -> Result<(), String> {
        match event {
            StreamResponse::Task(_) => {
                return Err("a program says statusUpdate, artifactUpdate or message, not task".to_owned());
            }
            StreamResponse::Message(message) => {
                check_message("message", &message)?;
                self.ending = Ending::Message(message);
            }
            StreamResponse::ArtifactUpdate(update) => {
                let TaskArtifactUpdateEvent { artifact, append, last_chunk, metadata, .. } = update;
                check_parts("artifactUpdate.artifact.parts", &artifact.parts)?;
                check_object("artifactUpdate.artifact.metadata", artifact.metadata.as_ref())?;
                check_object("artifactUpdate.metadata", metadata.as_ref())?;
                self.ending = Ending::Open;
                out.artifact(artifact, append, last_chunk, metadata).await;
            }
            StreamResponse::StatusUpdate(update) => self.status(update, out).await?,
        }
        Ok(())
    }

    async fn status(&mut self, update: TaskStatusUpdateEvent, out: &Output) -> Result<(), String> {
        let TaskStatusUpdateEvent { status, metadata, .. } = update;
        check_object("statusUpdate.metadata", metadata.as_ref())?;
        if let Some(message) = &status.message {
            check_message("statusUpdate.status.message", message)?;
        }
        let message = status.message;
        let parts = || message.as_ref().map(|message| message.parts.clone()).unwrap_or_default();
        let outcome = match status.state {
            TaskState::Working => {
                self.ending = Ending::Open;
                out.status(message, metadata).await;
                return Ok(());
            }
            TaskState::AuthRequired => {
                self.ending = Ending::Auth(parts());
                out.auth_required(message, metadata).await;
                return Ok(());
            }
            TaskState::Completed => Outcome::Completed(parts()),
            TaskState::InputRequired => Outcome::InputRequired(parts()),
            TaskState::Rejected => Outcome::Rejected(parts()),
            TaskState::Failed => Outcome::Failed(parts()),
            TaskState::Canceled => Outcome::Canceled,
            TaskState::Unspecified => return Err("statusUpdate.status.state is required".to_owned()),
            TaskState::Submitted => return Err(format!("{} is not for a program to say", status.state)),
        };
        self.ending = Ending::Said(outcome, status.state);
        Ok(())
    }
}

fn check_message(path: &str, message: &Message) -> Result<(), String> {
    check_parts(&format!("{path}.parts"), &message.parts)?;
    check_object(&format!("{path}.metadata"), message.metadata.as_ref())
}

fn check_parts(path: &str, parts: &[Part]) -> Result<(), String> {
    a2a::validate::validate_parts(path, parts, &Limits::default()).map_err(|error| describe(&error))
}

/// What goes into the journal must come out of it again: deeper nesting than readers allow stays outside.
fn check_object(path: &str, object: Option<&JsonObject>) -> Result<(), String> {
    match object {
        Some(object) if object.depth() > Limits::default().json_depth => Err(format!("{path} nests too deep")),
        _ => Ok(()),
    }
}

fn describe(error: &a2a::Error) -> String {
    match error.violations.first() {
        Some(violation) if violation.field.is_empty() => violation.description.clone(),
        Some(violation) => format!("{} {}", violation.field, violation.description),
        None => error.message.clone(),
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
