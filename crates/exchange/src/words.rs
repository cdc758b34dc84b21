//! What an agent says in JSON: an A2A 1.0 `StreamResponse`, or `{"keep": …}`. It is read and checked here, once, whether
//! it comes from a program's output or over the wire.
//!
//! Ids may be left out; the exchange fills them in. One word is looked at on its own: what may follow what is for whoever
//! reads several.

use std::collections::BTreeMap;

use a2a::{
    Artifact, JsonObject, Limits, Message, Part, StreamResponse, TaskArtifactUpdateEvent, TaskState,
    TaskStatusUpdateEvent,
};
use serde_json::value::RawValue;

use crate::{Outcome, Said};

/// One thing that an agent says in JSON.
#[derive(Debug)]
pub enum Word {
    /// Something on the way: a status, an artifact or a state to keep. AUTH_REQUIRED is one of these, since the turn may go
    /// on; whether it is an end only its place among the others can say.
    Said(Said),
    /// The end of the turn.
    End {
        /// The state that it names.
        state: TaskState,
        /// What that means.
        outcome: Outcome,
    },
    /// A message, which is the end of the turn too.
    Message(Message),
}

/// Reads one word. An error says what is wrong with it, for people.
pub fn read(json: &[u8], limits: &Limits) -> Result<Word, String> {
    if std::str::from_utf8(json).is_err() {
        return Err("not UTF-8 text".to_owned());
    }
    if let Ok(mut members) = serde_json::from_slice::<BTreeMap<String, Box<RawValue>>>(json)
        && let Some(state) = members.remove("keep")
    {
        if !members.is_empty() {
            return Err("`keep` stands alone on its line".to_owned());
        }
        if a2a::Json::from_text(state.get()).map_or(true, |state| state.depth() > limits.json_depth) {
            return Err("`keep` nests too deep".to_owned());
        }
        return Ok(Word::Said(Said::Keep(Box::<str>::from(state).into_boxed_bytes().into())));
    }
    match a2a::decode(json).map_err(|error| describe(&error))? {
        StreamResponse::Task(_) => Err("a program says statusUpdate, artifactUpdate or message, not task".to_owned()),
        StreamResponse::Message(message) => {
            check_message("message", &message, limits)?;
            Ok(Word::Message(message))
        }
        StreamResponse::ArtifactUpdate(update) => {
            let TaskArtifactUpdateEvent { artifact, append, last_chunk, metadata, .. } = update;
            check_artifact("artifactUpdate.artifact", &artifact, limits)?;
            check_object("artifactUpdate.metadata", metadata.as_ref(), limits)?;
            Ok(Word::Said(Said::Artifact { artifact, append, last_chunk, metadata }))
        }
        StreamResponse::StatusUpdate(update) => status(update, limits),
    }
}

fn status(update: TaskStatusUpdateEvent, limits: &Limits) -> Result<Word, String> {
    let TaskStatusUpdateEvent { status, metadata, .. } = update;
    check_object("statusUpdate.metadata", metadata.as_ref(), limits)?;
    if let Some(message) = &status.message {
        check_message("statusUpdate.status.message", message, limits)?;
    }
    let (state, message) = (status.state, status.message);
    if let TaskState::Working | TaskState::AuthRequired = state {
        return Ok(Word::Said(Said::Status { auth_required: state == TaskState::AuthRequired, message, metadata }));
    }
    let parts = message.map(|message| message.parts).unwrap_or_default();
    let outcome = match state {
        TaskState::Completed => Outcome::Completed(parts),
        TaskState::InputRequired => Outcome::InputRequired(parts),
        TaskState::Rejected => Outcome::Rejected(parts),
        TaskState::Failed => Outcome::Failed(parts),
        TaskState::Canceled => Outcome::Canceled,
        TaskState::Unspecified => return Err("statusUpdate.status.state is required".to_owned()),
        TaskState::Submitted | TaskState::Working | TaskState::AuthRequired => {
            return Err(format!("{state} is not for a program to say"));
        }
    };
    Ok(Word::End { state, outcome })
}

/// Whether an artifact can be kept and given to whoever asks.
pub fn check_artifact(path: &str, artifact: &Artifact, limits: &Limits) -> Result<(), String> {
    check_parts(&format!("{path}.parts"), &artifact.parts, limits)?;
    check_object(&format!("{path}.metadata"), artifact.metadata.as_ref(), limits)
}

/// The same for a message.
pub fn check_message(path: &str, message: &Message, limits: &Limits) -> Result<(), String> {
    check_parts(&format!("{path}.parts"), &message.parts, limits)?;
    check_object(&format!("{path}.metadata"), message.metadata.as_ref(), limits)
}

fn check_parts(path: &str, parts: &[Part], limits: &Limits) -> Result<(), String> {
    a2a::validate::validate_parts(path, parts, limits).map_err(|error| describe(&error))
}

/// What goes into the journal must come out of it again: deeper nesting than readers allow stays outside.
pub fn check_object(path: &str, object: Option<&JsonObject>, limits: &Limits) -> Result<(), String> {
    match object {
        Some(object) if object.depth() > limits.json_depth => Err(format!("{path} nests too deep")),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Word, String> {
        super::read(json.as_bytes(), &Limits::default())
    }

    fn status(state: &str) -> Result<Word, String> {
        let message = r#"{"parts":[{"text":"so"}]}"#;
        read(&format!(r#"{{"statusUpdate":{{"status":{{"state":"TASK_STATE_{state}","message":{message}}}}}}}"#))
    }

    #[test]
    fn every_state_is_on_the_way_or_an_end_or_not_for_a_program() {
        let said = || vec![Part::text("so")];
        for (state, outcome) in [
            ("COMPLETED", Outcome::Completed(said())),
            ("FAILED", Outcome::Failed(said())),
            ("REJECTED", Outcome::Rejected(said())),
            ("INPUT_REQUIRED", Outcome::InputRequired(said())),
            ("CANCELED", Outcome::Canceled),
        ] {
            let Ok(Word::End { outcome: found, state: named }) = status(state) else {
                panic!("{state} ends a turn");
            };
            assert_eq!((found, named.to_string()), (outcome, format!("TASK_STATE_{state}")));
        }
        for (state, asks) in [("WORKING", false), ("AUTH_REQUIRED", true)] {
            let Ok(Word::Said(Said::Status { auth_required, message, .. })) = status(state) else {
                panic!("{state} leaves the turn going");
            };
            assert_eq!((auth_required, message.unwrap().parts), (asks, said()));
        }
        assert_eq!(status("SUBMITTED").unwrap_err(), "TASK_STATE_SUBMITTED is not for a program to say");
    }

    #[test]
    fn what_is_kept_stands_alone_and_keeps_its_spelling() {
        let kept = read(r#"{"keep": {"b": 1e3, "a": [ ]}}"#);
        assert!(
            matches!(&kept, Ok(Word::Said(Said::Keep(state))) if &state[..] == br#"{"b": 1e3, "a": [ ]}"#),
            "{kept:?}"
        );
        assert_eq!(read(r#"{"keep":1,"message":{}}"#).unwrap_err(), "`keep` stands alone on its line");
    }

    #[test]
    fn artifacts_and_messages_are_checked() {
        let chunk = read(r#"{"artifactUpdate":{"artifact":{"parts":[{"text":"a"}]},"append":true}}"#);
        assert!(matches!(chunk, Ok(Word::Said(Said::Artifact { append: true, last_chunk: false, .. }))), "{chunk:?}");
        assert!(matches!(read(r#"{"message":{"parts":[{"text":"a"}]}}"#), Ok(Word::Message(_))));
        for (json, why) in [
            (r#"{"artifactUpdate":{"artifact":{"parts":[]}}}"#, "artifactUpdate.artifact.parts"),
            (r#"{"message":{"parts":[]}}"#, "message.parts"),
            (r#"{"task":{"id":"t","status":{"state":"TASK_STATE_WORKING"}}}"#, "a program says"),
            ("[]", ""),
            ("", ""),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.starts_with(why), "{json}: {error}");
        }
        let deep = format!(
            r#"{{"message":{{"parts":[{{"text":"a"}}],"metadata":{{"a":{}1{}}}}}}}"#,
            "[".repeat(105),
            "]".repeat(105)
        );
        assert_eq!(read(&deep).unwrap_err(), "message.metadata nests too deep");
        assert_eq!(super::read(b"\xff", &Limits::default()).unwrap_err(), "not UTF-8 text");
    }
}
