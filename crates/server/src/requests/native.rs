//! The native event catalogue: what a task's log says, as `GET /v1/requests/{id}/events` tells it. Each event by itself, with
//! nothing kept between two of them, so that a reader may begin anywhere.

use a2a::{Artifact, Error, Json, Message, Part, PartContent, StreamResponse, Task, TaskState, TaskStatus};
use bytes::Bytes;
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::{Value, json, value::RawValue};
use store::Tokens;

use crate::{
    events::{self, Told},
    sse::Record,
};

/// How much of a message `request_received` repeats, in characters.
const EXCERPT: usize = 200;

/// What a status says that a model has used, under [`TOKEN_USAGE`](events::TOKEN_USAGE).
#[derive(Deserialize)]
struct Used {
    #[serde(rename = "x-arbiter.token_usage")]
    used: Option<Box<RawValue>>,
}

/// What an object may say of whose it is.
#[derive(Deserialize)]
struct Said {
    agent: Option<IgnoredAny>,
    stream_id: Option<IgnoredAny>,
    depth: Option<IgnoredAny>,
}

/// The request whose events these are.
pub(super) struct Run {
    pub(super) request: String,
    pub(super) agent: String,
    pub(super) tenant: i64,
    pub(super) tenant_name: String,
    pub(super) started_ms: i64,
}

impl Run {
    /// The records of an event; the last of them carries its number. A task's end is to come as the whole task, and so is what is left of a task
    /// whose log is gone.
    pub(super) fn records(&self, told: Told) -> Result<Vec<Record>, Error> {
        let Told { seq, event, is_snapshot, tokens } = told;
        let mut told = Vec::new();
        match event {
            StreamResponse::Task(task) => {
                let has_ended = task.status.state.is_terminal();
                // What stands in the place of a log tells all of it.
                if is_snapshot || !has_ended {
                    told.push(("request_received", events::json(&self.received(&task))?));
                    for artifact in &task.artifacts {
                        self.artifact(artifact, &mut told)?;
                    }
                }
                if has_ended {
                    self.end(&task, tokens, &mut told)?;
                }
            }
            StreamResponse::StatusUpdate(update) => {
                let used = update.metadata.as_ref().and_then(|it| it.parse::<Used>().ok()).and_then(|it| it.used);
                told.push(match used.and_then(|used| self.spliced(used.get())) {
                    Some(used) => ("token_usage", used),
                    None => self.status(&update.status)?,
                });
            }
            StreamResponse::ArtifactUpdate(update) => self.artifact(&update.artifact, &mut told)?,
            StreamResponse::Message(message) => {
                told.push(("text", self.of_agent(json!({ "delta": message.text() }))?));
            }
        }
        let last = told.len().saturating_sub(1);
        let record = |(at, (event, body))| Record { id: (at == last).then(|| seq.into()), event, body };
        Ok(told.into_iter().enumerate().map(record).collect())
    }

    fn received(&self, task: &Task) -> Value {
        let text = task.history.first().map(Message::text).unwrap_or_default();
        let mut excerpt: String = text.chars().take(EXCERPT).collect();
        if excerpt.len() < text.len() {
            excerpt.push('…');
        }
        json!({
            "request_id": self.request, "agent": self.agent,
            "tenant_id": self.tenant, "tenant": self.tenant_name, "message": excerpt,
        })
    }

    fn status(&self, status: &TaskStatus) -> Result<(&'static str, Bytes), Error> {
        if status.state == TaskState::Working && status.message.is_none() {
            return Ok(("stream_start", self.of_agent(json!({}))?));
        }
        let state = a2a::v03::TaskState(status.state).as_str();
        let text = status.message.as_ref().map(Message::text).unwrap_or_default();
        Ok(("status", self.of_agent(json!({ "state": state, "content": text }))?))
    }

    fn artifact(&self, artifact: &Artifact, told: &mut Vec<(&'static str, Bytes)>) -> Result<(), Error> {
        for part in &artifact.parts {
            told.push(match &part.content {
                PartContent::Text(text) if part.filename.is_empty() => {
                    ("text", self.of_agent(json!({ "delta": text }))?)
                }
                PartContent::Data(data) => {
                    let marked = marked(part).and_then(|event| Some((event, self.spliced(data.get())?)));
                    match marked {
                        Some(marked) => marked,
                        None => ("artifact", self.data(&artifact.name, data)?),
                    }
                }
                _ => ("file", self.of_agent(file(artifact, part))?),
            });
        }
        Ok(())
    }

    /// Data that an agent made, as it made them.
    fn data(&self, name: &str, data: &Json) -> Result<Bytes, Error> {
        #[derive(Serialize)]
        struct Made<'a> {
            agent: &'a str,
            stream_id: u8,
            depth: u8,
            name: &'a str,
            data: &'a Json,
        }
        events::json(&Made { agent: &self.agent, stream_id: 0, depth: 0, name, data })
    }

    /// The JSON of an object that is of the agent, where it does not say otherwise. It is spliced: no tree is made of what may be large.
    fn spliced(&self, object: &str) -> Option<Bytes> {
        let members = object.strip_prefix('{')?;
        let said: Said = serde_json::from_str(object).ok()?;
        let mut out = Vec::with_capacity(object.len() + self.agent.len() + 48);
        out.push(b'{');
        if said.agent.is_none() {
            out.extend_from_slice(format!("\"agent\":{},", json!(self.agent)).as_bytes());
        }
        for (name, said) in [("stream_id", said.stream_id), ("depth", said.depth)] {
            if said.is_none() {
                out.extend_from_slice(format!("\"{name}\":0,").as_bytes());
            }
        }
        // Nothing follows the last comma where there are no members.
        if members.trim_ascii_start().starts_with('}') && out.len() > 1 {
            out.pop();
        }
        out.extend_from_slice(members.as_bytes());
        Some(out.into())
    }

    /// The end of the stream, why it failed, if it did, and the sum of it all.
    fn end(&self, task: &Task, tokens: Tokens, told: &mut Vec<(&'static str, Bytes)>) -> Result<(), Error> {
        let ok = task.status.state == TaskState::Completed;
        let (mut texts, mut files_bytes) = (String::new(), 0);
        for part in task.artifacts.iter().flat_map(|artifact| &artifact.parts) {
            match &part.content {
                PartContent::Text(text) if part.filename.is_empty() => texts.push_str(text),
                PartContent::Text(text) => files_bytes += text.len(),
                PartContent::Raw(bytes) => files_bytes += bytes.len(),
                PartContent::Url(_) | PartContent::Data(_) => {}
            }
        }
        let said = task.status.message.as_ref().map(Message::text);
        let ended_ms = task.status.timestamp.map_or(self.started_ms, a2a::Timestamp::as_millis);
        let mut done = json!({
            "ok": ok,
            "content": if ok { said.clone().unwrap_or(texts) } else { String::new() },
            "input_tokens": tokens.input,
            "output_tokens": tokens.output,
            "files_bytes": files_bytes,
            "tenant_id": self.tenant,
            "request_id": self.request,
            "duration_ms": (ended_ms - self.started_ms).max(0),
        });
        told.push(("stream_end", events::json(&json!({ "agent": self.agent, "stream_id": 0, "ok": ok }))?));
        if let Some((code, default)) = failure(task.status.state) {
            let why = said.unwrap_or_else(|| default.to_owned());
            told.push(("error", events::json(&json!({ "message": why }))?));
            done["error"] = json!(why);
            done["error_code"] = json!(code);
        }
        told.push(("done", events::json(&done)?));
        Ok(())
    }

    /// What the agent itself says is of stream 0 at depth 0; what another one said for it says whose it is.
    fn of_agent(&self, mut data: Value) -> Result<Bytes, Error> {
        for (key, value) in [("agent", json!(self.agent)), ("stream_id", json!(0)), ("depth", json!(0))] {
            if data.get(key).is_none() {
                data[key] = value;
            }
        }
        events::json(&data)
    }
}

/// The event that a part of data is, where it says so.
fn marked(part: &Part) -> Option<&'static str> {
    #[derive(Deserialize)]
    struct Marks {
        #[serde(rename = "x-arbiter.tool_call")]
        tool_call: Option<Box<RawValue>>,
        #[serde(rename = "x-arbiter.sub_agent_response")]
        sub_agent_response: Option<Box<RawValue>>,
    }
    let marks: Marks = part.metadata.as_ref()?.parse().ok()?;
    let is = |mark: Option<Box<RawValue>>| mark.is_some_and(|mark| mark.get() == "true");
    if is(marks.tool_call) {
        return Some("tool_call");
    }
    is(marks.sub_agent_response).then_some("sub_agent_response")
}

/// The code of an end that is none, and what is said when the agent said nothing.
fn failure(state: TaskState) -> Option<(&'static str, &'static str)> {
    match state {
        TaskState::Completed => None,
        TaskState::Canceled => Some(("cancelled", "request cancelled")),
        TaskState::Rejected => Some(("invalid_request", "the agent does not do this")),
        _ => Some(("agent_error", "the agent failed")),
    }
}

fn file(artifact: &Artifact, part: &Part) -> Value {
    let path = [&part.filename, &artifact.name].into_iter().find(|name| !name.is_empty());
    let path = path.unwrap_or(&artifact.artifact_id);
    match &part.content {
        PartContent::Raw(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => json!({ "path": path, "size": bytes.len(), "encoding": "utf-8", "content": text }),
            // The part's own JSON has the bytes in base64.
            Err(_) => {
                let base64 = serde_json::to_value(part).ok().and_then(|part| part.get("raw").cloned());
                json!({ "path": path, "size": bytes.len(), "encoding": "base64", "content": base64 })
            }
        },
        PartContent::Url(url) => json!({ "path": path, "url": url }),
        PartContent::Text(text) => json!({ "path": path, "size": text.len(), "encoding": "utf-8", "content": text }),
        PartContent::Data(data) => json!({ "path": path, "content": data.get() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sse::EventId;

    const TOKENS: Tokens = Tokens { input: 142, output: 218 };

    fn told(event: Value) -> Vec<(Option<u64>, &'static str, Value)> {
        told_as(event, false)
    }

    fn told_as(event: Value, is_snapshot: bool) -> Vec<(Option<u64>, &'static str, Value)> {
        let run = Run {
            request: "R".into(),
            agent: "echo".into(),
            tenant: 1,
            tenant_name: "alice".into(),
            started_ms: 1_700_000_000_000,
        };
        let told = Told { seq: 5, event: serde_json::from_value(event).unwrap(), is_snapshot, tokens: TOKENS };
        let records = run.records(told).unwrap();
        let seq = |id| match id {
            Some(EventId::Seq(seq)) => Some(seq),
            _ => None,
        };
        records.into_iter().map(|it| (seq(it.id), it.event, serde_json::from_slice(&it.body).unwrap())).collect()
    }

    #[test]
    fn files_and_data_have_their_own_events() {
        let parts = json!([
            {"raw": "aGk=", "filename": "a.txt"}, {"raw": "/w==", "filename": "b.bin"},
            {"url": "https://x", "filename": "c"}, {"data": {"n": 1}}, {"text": "t"},
        ]);
        let event = json!({"artifactUpdate": {"taskId": "R", "contextId": "C", "artifact": {"artifactId": "A", "parts": parts}}});
        let told = told(event);
        let kinds: Vec<_> = told.iter().map(|(id, event, _)| (*id, *event)).collect();
        assert_eq!(kinds, [(None, "file"), (None, "file"), (None, "file"), (None, "artifact"), (Some(5), "text")]);
        assert_eq!((&told[0].2["content"], &told[0].2["encoding"]), (&json!("hi"), &json!("utf-8")));
        assert_eq!((&told[1].2["content"], &told[1].2["encoding"]), (&json!("/w=="), &json!("base64")));
        assert_eq!(told[3].2["data"], json!({"n": 1}));
    }

    #[test]
    fn a_long_message_is_cut_and_a_failure_says_why() {
        let long = "ä".repeat(300);
        let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": long}]});
        let task = |state: &str| {
            json!({"task": {"id": "R", "contextId": "C", "history": [message],
                "status": {"state": state, "timestamp": "2023-11-14T22:13:21.500Z"}}})
        };
        let received = told(task("TASK_STATE_SUBMITTED"));
        assert_eq!(received[0].2["message"].as_str().unwrap().chars().count(), 201);
        let ended = told(task("TASK_STATE_CANCELED"));
        let kinds: Vec<_> = ended.iter().map(|(id, event, _)| (*id, *event)).collect();
        assert_eq!(kinds, [(None, "stream_end"), (None, "error"), (Some(5), "done")]);
        assert_eq!(ended[2].2["error_code"], "cancelled");
        assert_eq!(ended[2].2["duration_ms"], 1500);
        assert_eq!((&ended[2].2["input_tokens"], &ended[2].2["output_tokens"]), (&json!(142), &json!(218)));
    }

    #[test]
    fn what_is_left_of_a_log_tells_all_of_it() {
        let task = json!({"task": {"id": "R", "contextId": "C",
            "history": [{"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}],
            "artifacts": [{"artifactId": "A", "parts": [{"text": "one"}]}, {"artifactId": "B", "parts": [{"data": 1}]}],
            "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2023-11-14T22:13:21.500Z"}}});
        let kinds = |is_snapshot| {
            told_as(task.clone(), is_snapshot).into_iter().map(|(id, event, _)| (id, event)).collect::<Vec<_>>()
        };
        let end = [(None, "stream_end"), (Some(5), "done")];
        assert_eq!(kinds(false), end, "the events before it were told");
        assert_eq!(kinds(true)[..3], [(None, "request_received"), (None, "text"), (None, "artifact")]);
        assert_eq!(kinds(true)[3..], end);
    }
}
