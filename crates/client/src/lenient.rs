//! Reading what agents answer although it is not quite what the protocol says.
//!
//! An answer is first read as its dialect has it, which keeps what the agent wrote to the byte. Only what cannot be read so is put into
//! the words of 1.0 here and read again: objects that do not say what they are, or say it in the words of the other dialect, text where
//! a message or a part belongs, and small things that nobody needs and nobody can read. What is left out is made up for either way: ids
//! of artifacts, the role of whoever answers, and the text of an answer that stands beside its task.
//!
//! Only callers are so patient. What a server is asked is read strictly.

mod words;

use a2a::{Error as ProtocolError, Message, Role, SendMessageResponse, StreamResponse, Task};
use serde::{
    Deserialize,
    de::{self, DeserializeOwned},
};
use serde_json::{Value, value::RawValue};

pub(crate) use self::words::Place;
use crate::reply::artifacts_text;

/// The answer to a message.
pub(crate) fn response(
    json: &[u8],
    strict: Result<SendMessageResponse, ProtocolError>,
) -> Result<SendMessageResponse, ProtocolError> {
    let mut response = strict.or_else(|error| again(json, Place::Answer).ok_or(error))?;
    match &mut response {
        SendMessageResponse::Task(task) => complete(task, json),
        SendMessageResponse::Message(message) => speak(message),
    }
    Ok(response)
}

/// An event of a stream.
pub(crate) fn event(
    json: &[u8],
    strict: Result<StreamResponse, ProtocolError>,
) -> Result<StreamResponse, ProtocolError> {
    let mut event = strict.or_else(|error| again(json, Place::Stream).ok_or(error))?;
    match &mut event {
        StreamResponse::Task(task) => complete(task, json),
        StreamResponse::Message(message) => speak(message),
        StreamResponse::StatusUpdate(update) => update.status.message.iter_mut().for_each(speak),
        // Its id depends on what came before.
        StreamResponse::ArtifactUpdate(_) => {}
    }
    Ok(event)
}

/// A task.
pub(crate) fn task(json: &[u8], strict: Result<Task, ProtocolError>) -> Result<Task, ProtocolError> {
    let mut task = strict.or_else(|error| match again(json, Place::Answer) {
        Some(StreamResponse::Task(task)) => Ok(task),
        _ => Err(error),
    })?;
    complete(&mut task, json);
    Ok(task)
}

/// The id of an artifact that has none: the same in a task and in the stream that made it.
pub(crate) fn artifact_id(number: usize) -> String {
    format!("artifact-{number}")
}

/// Makes up for what a task leaves out.
fn complete(task: &mut Task, json: &[u8]) {
    for (index, artifact) in task.artifacts.iter_mut().enumerate() {
        if artifact.artifact_id.is_empty() {
            artifact.artifact_id = artifact_id(index + 1);
        }
    }
    if task.status.message.is_none() && artifacts_text(task).is_none() {
        task.status.message = beside(json);
    }
    task.status.message.iter_mut().for_each(speak);
}

/// Who answers and does not say who it is, is the agent.
fn speak(message: &mut Message) {
    if message.role == Role::Unspecified {
        message.role = Role::Agent;
    }
}

/// A message that stands beside the members of a task.
fn beside(json: &[u8]) -> Option<Message> {
    #[derive(Deserialize)]
    struct Beside<'a> {
        #[serde(borrow)]
        message: Option<&'a RawValue>,
    }
    let found: Beside<'_> = serde_json::from_slice(json).ok()?;
    let found = tree(found.message?.get().as_bytes()).ok()?;
    serde_json::from_value(words::message(&found)?).ok()
}

/// How many values a tree may have. One takes up to 700 bytes, whatever it takes as text.
const MOST_VALUES: usize = 100_000;

/// The JSON of others as a tree, if it has no more values than may stand in one.
pub(crate) fn tree(json: &[u8]) -> Result<Value, serde_json::Error> {
    if values(json) > MOST_VALUES {
        return Err(de::Error::custom(format!("more than {MOST_VALUES} values, which are not put into other words")));
    }
    serde_json::from_slice(json)
}

/// How many values there are in some JSON, names not counted.
fn values(json: &[u8]) -> usize {
    let (mut values, mut in_string, mut is_escaped) = (1, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            // Each value but the first of all follows one of these.
            b',' | b'[' | b'{' if !in_string => values += 1,
            _ => {}
        }
    }
    values
}

fn again<T: DeserializeOwned>(json: &[u8], place: Place) -> Option<T> {
    let found = tree(json).ok()?;
    serde_json::from_value(words::of(&found, place)?).ok()
}

#[cfg(test)]
mod tests {
    use a2a::TaskState;
    use serde_json::json;

    use super::*;
    use crate::{Error, Received, binding::Form, client::read, reply_text};

    const DIALECTS: [Form; 2] = [Form::V03, Form::V1];

    fn answered(dialect: Form, json: &Value) -> Result<SendMessageResponse, Error> {
        let json = serde_json::value::to_raw_value(json).unwrap();
        read(dialect, json).map(|received: Received<SendMessageResponse>| received.value)
    }

    fn streamed(dialect: Form, json: &Value) -> StreamResponse {
        let json = serde_json::value::to_raw_value(json).unwrap();
        read(dialect, json).map(|received: Received<StreamResponse>| received.value).unwrap()
    }

    fn task_of(dialect: Form, json: &Value) -> Task {
        match answered(dialect, json).unwrap() {
            SendMessageResponse::Task(task) => task,
            SendMessageResponse::Message(message) => panic!("a message: {message:?}"),
        }
    }

    #[test]
    fn a_tree_has_a_bound() {
        assert_eq!(values(br#"{"a[,":[1,"\",{"],{}]}"#), 6);
        let list = |count: usize| format!("[{}]", vec![r#"{"":null}"#; count].join(","));
        assert!(tree(list(MOST_VALUES / 2 - 1).as_bytes()).is_ok());
        let many = list(MOST_VALUES);
        assert!(tree(many.as_bytes()).is_err());
        // What can be read as it is needs no tree.
        let task = format!(
            r#"{{"task":{{"id":"t","contextId":"c","status":{{"state":"TASK_STATE_COMPLETED"}},
            "artifacts":[{{"artifactId":"a","parts":[{{"data":{many}}}]}}]}}}}"#
        );
        let json = RawValue::from_string(task).unwrap();
        assert!(read(Form::V1, json).is_ok_and(|received: Received<SendMessageResponse>| matches!(
            received.value,
            SendMessageResponse::Task(_)
        )));
    }

    #[test]
    fn a_task_does_not_have_to_say_what_it_is() {
        let found = json!({
            "id": "t", "contextId": "c", "status": {"state": "completed"},
            "artifacts": [{"artifactId": "a", "parts": [{"kind": "text", "text": "hello"}]}],
        });
        for dialect in DIALECTS {
            let task = task_of(dialect, &found);
            assert_eq!((task.id.as_str(), task.context_id.as_str()), ("t", "c"));
            assert_eq!(task.status.state, TaskState::Completed);
            assert_eq!(reply_text(&SendMessageResponse::Task(task)).as_deref(), Some("hello"));
        }
    }

    #[test]
    fn a_task_may_be_written_in_the_words_of_the_other_dialect() {
        let old = json!({
            "kind": "task", "id": "t", "contextId": "c", "status": {"state": "TASK_STATE_INPUT_REQUIRED"},
            "history": [{"kind": "message", "messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}],
        });
        let new = json!({"task": {
            "id": "t", "context_id": "c", "status": {"state": "input-required"},
            "history": [{"messageId": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]}],
        }});
        for dialect in DIALECTS {
            for found in [&old, &new] {
                let task = task_of(dialect, found);
                assert_eq!((task.id.as_str(), task.status.state), ("t", TaskState::InputRequired), "{found}");
                assert_eq!((task.history[0].role, task.history[0].text().as_str()), (Role::User, "hi"));
            }
        }
    }

    #[test]
    fn every_state_is_read_in_every_spelling() {
        for state in TaskState::ALL {
            let old = a2a::v03::TaskState(state).as_str();
            for word in [old.to_owned(), old.to_uppercase(), old.replace('-', "_"), state.as_str().to_owned()] {
                for dialect in DIALECTS {
                    let task = task_of(dialect, &json!({"kind": "task", "id": "t", "status": {"state": word}}));
                    assert_eq!(task.status.state, state, "{word}");
                }
            }
        }
        let task = task_of(Form::V03, &json!({"id": "t", "status": "cancelled"}));
        assert_eq!(task.status.state, TaskState::Canceled);
        let unknown = json!({"id": "t", "status": {"state": "on-holiday"}});
        let error = answered(Form::V03, &unknown).unwrap_err().to_string();
        assert!(error.contains("on-holiday"), "what the dialect misses is told: {error}");
    }

    #[test]
    fn a_message_beside_a_task_is_its_answer_unless_there_is_another() {
        let said = |message: Value| json!({"id": "t", "status": {"state": "completed"}, "message": message});
        let message = json!({"role": "agent", "parts": [{"kind": "text", "text": "hello"}]});
        for dialect in DIALECTS {
            for message in [json!("hello"), message.clone(), json!({"role": "agent", "content": "hello"})] {
                let task = task_of(dialect, &said(message.clone()));
                let reply = task.status.message.clone().unwrap();
                assert_eq!((reply.text().as_str(), reply.role), ("hello", Role::Agent), "{message}");
            }
            let mut found = said(json!("hello"));
            found["artifacts"] = json!([{"parts": [{"text": "made"}]}]);
            assert_eq!(task_of(dialect, &found).status.message, None);
            found = said(json!("hello"));
            found["status"]["message"] = message.clone();
            found["status"]["message"]["parts"][0]["text"] = json!("status");
            assert_eq!(task_of(dialect, &found).status.message.unwrap().text(), "status");
            found = said(json!("hello"));
            found["history"] = json!([{"role": "agent", "parts": [{"text": "earlier"}]}]);
            let reply = reply_text(&SendMessageResponse::Task(task_of(dialect, &found)));
            assert_eq!(reply.as_deref(), Some("hello"), "it comes before the history");
        }
    }

    #[test]
    fn a_message_may_stand_for_the_whole_answer() {
        for dialect in DIALECTS {
            for found in [
                json!("hello"),
                json!({"message": "hello"}),
                json!({"message": {"role": "agent", "parts": [{"kind": "text", "text": "hello"}]}}),
                json!({"role": "agent", "parts": [{"text": "hello"}]}),
                json!({"kind": "message", "role": "assistant", "content": "hello"}),
                json!({"messageId": "m", "parts": ["hello"]}),
            ] {
                let response = answered(dialect, &found).unwrap();
                let SendMessageResponse::Message(message) = &response else { panic!("{found}") };
                assert_eq!(message.role, Role::Agent, "{found}");
                assert_eq!(reply_text(&response).as_deref(), Some("hello"), "{found}");
            }
            let task = task_of(dialect, &json!({"id": "t", "message": "hello"}));
            assert_eq!((task.id.as_str(), task.status.state), ("t", TaskState::Completed), "a task that says no state");
        }
    }

    #[test]
    fn parts_are_read_by_what_they_hold() {
        let found = json!({"id": "t", "status": {"state": "completed"}, "artifacts": [
            {"parts": [
                {"type": "text", "text": "a"},
                {"kind": "file", "file": {"bytes": "aGk=", "name": "n", "mimeType": "text/plain"}},
                {"file": {"fileWithUri": "https://h/x"}},
                {"kind": "file", "file": {"bytes": "!"}},
                {"data": {"k": [1]}},
                {"kind": "nothing"},
            ]},
            {"artifactId": "own", "parts": "b"},
        ]});
        for dialect in DIALECTS {
            let task = task_of(dialect, &found);
            let ids: Vec<&str> = task.artifacts.iter().map(|artifact| artifact.artifact_id.as_str()).collect();
            assert_eq!(ids, ["artifact-1", "own"]);
            let parts = serde_json::to_value(&task.artifacts[0].parts).unwrap();
            let expected = json!([
                {"text": "a"},
                {"raw": "aGk=", "filename": "n", "mediaType": "text/plain"},
                {"url": "https://h/x"},
                {"data": {"k": [1]}},
            ]);
            assert_eq!(parts, expected, "a part that cannot be read does not spoil the others");
            assert_eq!(reply_text(&SendMessageResponse::Task(task)).as_deref(), Some("a\nb"));
        }
    }

    #[test]
    fn what_nobody_needs_does_not_spoil_an_answer() {
        let found = json!({"id": "t", "contextId": null, "status": {"state": "completed", "timestamp": "yesterday"},
            "metadata": [], "artifacts": {"parts": [{"kind": "text", "text": "x", "metadata": 1}]}});
        for dialect in DIALECTS {
            let task = task_of(dialect, &found);
            assert_eq!((task.artifacts.len(), task.status.timestamp, task.context_id.as_str()), (1, None, ""));
        }
    }

    #[test]
    fn events_are_read_by_what_they_hold() {
        for dialect in DIALECTS {
            let status = json!({"taskId": "t", "status": {"state": "working", "message": "thinking"}, "final": false});
            let StreamResponse::StatusUpdate(update) = streamed(dialect, &status) else { panic!("{status}") };
            assert_eq!((update.task_id.as_str(), update.status.message.unwrap().text().as_str()), ("t", "thinking"));
            let chunk = json!({"task_id": "t", "artifact": {"parts": [{"text": "x"}]}, "append": true});
            let StreamResponse::ArtifactUpdate(update) = streamed(dialect, &chunk) else { panic!("{chunk}") };
            assert!(update.append && !update.last_chunk);
            let task = json!({"id": "t", "status": {"state": "Completed"}});
            assert!(matches!(streamed(dialect, &task), StreamResponse::Task(_)));
            let message = json!({"parts": [{"text": "x"}]});
            assert!(matches!(streamed(dialect, &message), StreamResponse::Message(_)));
        }
        let wrapped = json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "completed"}}});
        assert!(matches!(streamed(Form::V03, &wrapped), StreamResponse::StatusUpdate(_)));
        let named = json!({"kind": "artifact-update", "taskId": "t", "artifact": {"parts": []}});
        assert!(matches!(streamed(Form::V1, &named), StreamResponse::ArtifactUpdate(_)));
    }

    #[test]
    fn what_says_nothing_is_no_answer() {
        for dialect in DIALECTS {
            for found in [json!(null), json!(7), json!([]), json!({}), json!({"ok": true}), json!({"id": "t"})] {
                assert!(answered(dialect, &found).is_err(), "{found}");
            }
        }
    }

    #[test]
    fn what_can_be_read_is_kept_to_the_byte() {
        let text =
            r#"{"kind":"task","id":"t","contextId":"c","status":{"state":"completed"},"metadata":{"n":1.0,"m":1e400}}"#;
        let json = RawValue::from_string(text.to_owned()).unwrap();
        let task: Received<Task> = read(Form::V03, json).unwrap();
        assert_eq!(task.value.metadata.unwrap().get(), r#"{"n":1.0,"m":1e400}"#);
        assert_eq!(task.json.get(), text);
    }
}
