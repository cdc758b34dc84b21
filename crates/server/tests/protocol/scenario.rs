//! The steps of a scenario: an operation, its request, and what its answer has to be.
//!
//! `$task`, `$context`, `$page` and `$config` in a request or an expectation stand for what the last answer had there, other
//! names for what a step kept under them. A pointer is one of JSON; into a stream it begins with the number of an event, from
//! the end where it is negative.

use serde_json::{Value, json};

/// How operations travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    JsonRpc,
    Rest,
    Grpc,
    Struct,
    /// JSON-RPC as clients of 0.3 speak it, at the address of the agent that is meant. What 0.3 has no method for is called in 1.0.
    V03,
}

/// Those of 1.0.
pub(crate) const CURRENT: [Binding; 4] = [Binding::JsonRpc, Binding::Rest, Binding::Grpc, Binding::Struct];

/// Those of 1.0 that carry any JSON.
pub(crate) const UNTYPED: [Binding; 3] = [Binding::JsonRpc, Binding::Rest, Binding::Struct];

pub(crate) const EVERY: [Binding; 5] = [Binding::JsonRpc, Binding::Rest, Binding::Grpc, Binding::Struct, Binding::V03];

pub(crate) const CREATE_PUSH: &str = "CreateTaskPushNotificationConfig";
pub(crate) const GET_PUSH: &str = "GetTaskPushNotificationConfig";
pub(crate) const LIST_PUSH: &str = "ListTaskPushNotificationConfigs";
pub(crate) const DELETE_PUSH: &str = "DeleteTaskPushNotificationConfig";

/// An id that no task has.
pub(crate) const UNKNOWN: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

/// Whose credential a step has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// The tenant that the play is for.
    Own,
    /// Another tenant.
    Other,
    Nobody,
}

pub(crate) type Check = Box<dyn Fn(&Value)>;

/// What the answer has to be.
pub(crate) enum Want {
    /// This value stands there.
    Is(String, Value),
    /// Something stands there that is not empty.
    Has(String),
    Lacks(String),
    Count(String, usize),
    /// The state of the task that is shown, or of the last event.
    State(&'static str),
    /// The operation is refused for this reason, with these fields named.
    Refused(&'static str, Vec<&'static str>),
    /// Whatever else, of the answer or of the array of events.
    Check(Check),
}

pub(crate) struct Step {
    pub(crate) method: &'static str,
    pub(crate) request: Value,
    pub(crate) who: Who,
    /// Service parameters beside version and credential; an empty value takes one away.
    pub(crate) parameters: Vec<(&'static str, &'static str)>,
    pub(crate) wants: Vec<Want>,
    pub(crate) keeps: Vec<(&'static str, &'static str)>,
    /// It is repeated until this stands there.
    pub(crate) until: Option<(&'static str, Value)>,
    /// It goes on while the next steps are taken, and is joined under this name.
    pub(crate) aside: Option<&'static str>,
    /// The plays of different bindings may see different things here.
    pub(crate) varies: bool,
}

/// Joins what was begun aside.
pub(crate) const JOIN: &str = "";

pub(crate) fn step(method: &'static str, request: Value) -> Step {
    Step {
        method,
        request,
        who: Who::Own,
        parameters: Vec::new(),
        wants: Vec::new(),
        keeps: Vec::new(),
        until: None,
        aside: None,
        varies: false,
    }
}

/// The answer of what was begun aside, once it is whole.
pub(crate) fn join(name: &'static str) -> Step {
    Step { aside: Some(name), ..step(JOIN, json!({})) }
}

/// A caller's message, with the same id in every play.
pub(crate) fn said(text: &str) -> Value {
    json!({"messageId": format!("m of {text}"), "role": "ROLE_USER", "parts": [{"text": text}]})
}

/// A message of an agent's caller with other members.
pub(crate) fn message(agent: &str, message: Value) -> Value {
    json!({"tenant": agent, "message": message})
}

pub(crate) fn send(agent: &str, text: &str) -> Step {
    step("SendMessage", message(agent, said(text)))
}

/// A send that is answered at once.
pub(crate) fn begin(agent: &str, text: &str) -> Step {
    send(agent, text).and(json!({"configuration": {"returnImmediately": true}}))
}

/// A message to the task.
pub(crate) fn answer(text: &str) -> Step {
    step("SendMessage", json!({"message": said(text)})).and(json!({"message": {"taskId": "$task"}}))
}

pub(crate) fn stream(agent: &str, text: &str) -> Step {
    step("SendStreamingMessage", message(agent, said(text)))
}

pub(crate) fn get() -> Step {
    step("GetTask", json!({"id": "$task"}))
}

pub(crate) fn get_with(length: i64) -> Step {
    step("GetTask", json!({"id": "$task", "historyLength": length}))
}

pub(crate) fn cancel() -> Step {
    step("CancelTask", json!({"id": "$task"}))
}

pub(crate) fn subscribe() -> Step {
    step("SubscribeToTask", json!({"id": "$task"}))
}

/// A subscription with a cursor.
pub(crate) fn resume(after: &'static str) -> Step {
    subscribe().with("after_sequence", after)
}

pub(crate) fn list(request: Value) -> Step {
    step("ListTasks", request)
}

impl Step {
    /// With more in its request.
    pub(crate) fn and(mut self, more: Value) -> Self {
        merge(&mut self.request, more);
        self
    }

    /// As a stream instead of an answer.
    pub(crate) fn streamed(self) -> Self {
        Self { method: "SendStreamingMessage", ..self }
    }

    pub(crate) fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.parameters.push((name, value));
        self
    }

    pub(crate) fn by(self, who: Who) -> Self {
        Self { who, ..self }
    }

    pub(crate) fn is(self, pointer: &str, value: impl Into<Value>) -> Self {
        self.want(Want::Is(pointer.to_owned(), value.into()))
    }

    /// The whole answer, or the array of events.
    pub(crate) fn answers(self, value: impl Into<Value>) -> Self {
        self.is("", value)
    }

    pub(crate) fn has(self, pointer: &str) -> Self {
        self.want(Want::Has(pointer.to_owned()))
    }

    pub(crate) fn lacks(self, pointer: &str) -> Self {
        self.want(Want::Lacks(pointer.to_owned()))
    }

    pub(crate) fn count(self, pointer: &str, count: usize) -> Self {
        self.want(Want::Count(pointer.to_owned(), count))
    }

    pub(crate) fn state(self, state: &'static str) -> Self {
        self.want(Want::State(state))
    }

    pub(crate) fn refused(self, reason: &'static str) -> Self {
        self.want(Want::Refused(reason, Vec::new()))
    }

    /// Refused because of this field.
    pub(crate) fn wrong(self, field: &'static str) -> Self {
        self.refused_at("INVALID_PARAMS", field)
    }

    /// The same for another reason.
    pub(crate) fn refused_at(self, reason: &'static str, field: &'static str) -> Self {
        self.want(Want::Refused(reason, vec![field]))
    }

    pub(crate) fn check(self, check: impl Fn(&Value) + 'static) -> Self {
        self.want(Want::Check(Box::new(check)))
    }

    /// Keeps what stands there under a name.
    pub(crate) fn keep(mut self, name: &'static str, pointer: &'static str) -> Self {
        self.keeps.push((name, pointer));
        self
    }

    pub(crate) fn until(self, pointer: &'static str, value: impl Into<Value>) -> Self {
        Self { until: Some((pointer, value.into())), ..self }
    }

    pub(crate) fn aside(self, name: &'static str) -> Self {
        Self { aside: Some(name), ..self }
    }

    pub(crate) fn varies(self) -> Self {
        Self { varies: true, ..self }
    }

    fn want(mut self, want: Want) -> Self {
        self.wants.push(want);
        self
    }
}

/// What stands at a pointer.
pub(crate) fn found<'a>(value: &'a Value, pointer: &str) -> Option<&'a Value> {
    let Value::Array(events) = value else { return value.pointer(pointer) };
    if pointer.is_empty() {
        return Some(value);
    }
    let (first, rest) = pointer.get(1..)?.split_once('/').unwrap_or((pointer.get(1..)?, ""));
    let at = first.parse::<isize>().ok()?;
    let at = if at < 0 { events.len().checked_sub(at.unsigned_abs())? } else { at.unsigned_abs() };
    let event = events.get(at)?;
    if rest.is_empty() { Some(event) } else { event.pointer(&format!("/{rest}")) }
}

fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}
