//! What a task came from: the trace that it is part of, and the chain of delegations.
//!
//! It is stored with the task where a caller said anything of it, so that what the task causes, now or after a restart, belongs to the
//! same trace. A task whose caller said nothing is the begin of a trace of its own, which is made of the task's id.

use std::borrow::Cow;

use a2a::JsonObject;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use store::{LeaseTime, TaskId};

use crate::{
    delegation::{Deadline, Delegation, span},
    page_token::Key,
};

/// Under this key of a request's metadata one Switchboard tells another how far a delegation has come.
pub const DELEGATION: &str = "urn:switchboard:a2a:delegation:v1";

/// Members of a request's metadata that trace it.
pub(crate) const TRACING: [&str; 3] = ["correlationId", "parentId", DELEGATION];

/// The longest id that is taken over from a caller.
const LONGEST: usize = 128;

/// What a task came from. Nothing of it has to be there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Origin {
    /// What everything that belongs together has in common.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation: Option<String>,
    /// What caused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The caller's `traceparent`, as W3C has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// Which skill is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skill: Option<String>,
    /// Nothing caused it, not even its own message.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub root: bool,
    /// Its caller waits for a quick verdict: a remote that cannot be called now fails the turn instead of suspending it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub prompt: bool,
    /// How far it has been delegated.
    #[serde(skip_serializing_if = "Delegation::is_first")]
    pub delegation: Delegation,
    /// The deadline of the delegation by the store's clock, while it stands in the journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<LeaseTime>,
}

/// The ids under which something that a task causes is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// What everything that belongs together has in common.
    pub correlation: String,
    /// What caused the task, if anybody said.
    pub parent: Option<String>,
    /// A `traceparent` for what the task's turn causes.
    pub traceparent: String,
}

/// What a request's metadata may say of where it comes from.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Said<'a> {
    #[serde(borrow)]
    skill_hint: Option<&'a RawValue>,
    #[serde(borrow)]
    correlation_id: Option<&'a RawValue>,
    #[serde(borrow)]
    parent_id: Option<&'a RawValue>,
    #[serde(rename = "urn:switchboard:a2a:delegation:v1", borrow)]
    delegation: Option<&'a RawValue>,
}

impl Origin {
    /// What headers say. What could not stand in one, or is no `traceparent`, was not said.
    pub fn of_headers(correlation: Option<&str>, parent: Option<&str>, trace: Option<&str>) -> Self {
        Self {
            correlation: correlation.and_then(id),
            parent: parent.and_then(id),
            trace: trace.filter(|text| parse(text).is_some()).map(str::to_owned),
            ..Self::default()
        }
    }

    /// What metadata say beside that: headers count first.
    pub(crate) fn hear(&mut self, metadata: Option<&JsonObject>) {
        let Some(said) = metadata.and_then(|it| serde_json::from_str::<Said<'_>>(it.get()).ok()) else { return };
        let text =
            |value: Option<&RawValue>| serde_json::from_str::<Cow<'_, str>>(value?.get()).ok().and_then(|it| id(&it));
        self.correlation = self.correlation.take().or_else(|| text(said.correlation_id));
        self.parent = self.parent.take().or_else(|| text(said.parent_id));
        self.skill = self.skill.take().or_else(|| text(said.skill_hint));
        if let Some(delegation) = said.delegation.and_then(|value| serde_json::from_str(value.get()).ok()) {
            self.delegation.join(Delegation::bounded(delegation));
        }
    }

    /// Takes over how far the work was handed on where the caller's span is one of this installation's: its work has come back. The number
    /// of calls in a span is rounded, so one that was told counts instead.
    pub(crate) fn join_own_span(&mut self, key: &Key) {
        let given = self.trace.as_deref().and_then(parse);
        let Some(mut known) = given.and_then(|(trace, span)| Delegation::of_span(key, trace, span)) else { return };
        known.calls = known.calls.filter(|_| self.delegation.calls.is_none());
        self.delegation.join(known);
    }

    /// As it is stored; nothing where there is nothing to store. `now` is the time of the store, which is needed where there is a deadline.
    pub(crate) fn stored(mut self, now: Option<LeaseTime>) -> Option<String> {
        if self == Self::default() {
            return None;
        }
        if let (Some(deadline), Some(now)) = (self.delegation.deadline, now) {
            self.until = Some(now.after(deadline.left()));
            self.delegation.deadline = None;
        }
        serde_json::to_string(&self).ok()
    }

    /// Whether the time of the store is needed to know how long is left.
    pub(crate) fn has_stored_deadline(&self) -> bool {
        self.until.is_some()
    }

    /// Measures the deadline that was stored by this process's steady clock from now on. `now` is the time of the store.
    pub(crate) fn start_deadline(&mut self, now: LeaseTime) {
        if let Some(until) = self.until.take() {
            self.delegation.deadline = Some(Deadline::after(until.since(now)));
        }
    }

    /// What was stored. One that cannot be read says nothing.
    pub(crate) fn read(stored: Option<&str>) -> Self {
        stored.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default()
    }

    /// The ids for what a turn of the task causes. They are the same at each attempt. `cause` is the message of the turn. With `hands_on`, the
    /// installation recognizes the span and knows how far the work was handed on.
    pub(crate) fn trace(
        &self,
        task: TaskId,
        turn: u32,
        cause: Option<&str>,
        hands_on: Option<(&Key, &Delegation)>,
    ) -> Trace {
        let own = task.to_string();
        let given = self.trace.as_deref().and_then(parse);
        let trace = given.map_or_else(|| own.replace('-', ""), |(trace, _)| trace.to_owned());
        let correlation = match (&self.correlation, given) {
            (Some(correlation), _) => correlation.clone(),
            (None, Some((trace, _))) => trace.to_owned(),
            (None, None) => own.clone(),
        };
        let cause = cause.filter(|_| !self.root).and_then(id);
        let parent = self.parent.clone().or_else(|| given.map(|(_, span)| span.to_owned())).or(cause);
        let turn = format!("{own} {turn}");
        let span = match hands_on {
            Some((key, delegation)) => span(key, &trace, &turn, delegation),
            None => Sha256::digest(turn).iter().take(8).map(|byte| format!("{byte:02x}")).collect(),
        };
        Trace { correlation, parent, traceparent: format!("00-{trace}-{span}-01") }
    }
}

/// An id of a caller's: short, and fit for a header.
fn id(text: &str) -> Option<String> {
    let text = text.trim();
    let usable = !text.is_empty() && text.len() <= LONGEST && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    usable.then(|| text.to_owned())
}

/// The trace and the span of a `traceparent`.
fn parse(text: &str) -> Option<(&str, &str)> {
    let mut fields = text.split('-');
    let (version, trace, span, flags) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let is_hex = |field: &str, length: usize| {
        field.len() == length && field.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_set = |field: &str| field.bytes().any(|byte| byte != b'0');
    // A later version may have more fields.
    let ends = version != "00" || fields.next().is_none();
    let known = is_hex(version, 2) && version != "ff" && is_hex(trace, 32) && is_hex(span, 16) && is_hex(flags, 2);
    (known && ends && is_set(trace) && is_set(span)).then_some((trace, span))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn x_48_ids_come_from_headers_then_from_the_trace_and_are_made_otherwise() {
        let task = TaskId::mint();
        let said = Origin::of_headers(Some("c-1"), Some("p-1"), Some(TRACE)).trace(task, 1, None, None);
        assert_eq!((said.correlation.as_str(), said.parent.as_deref()), ("c-1", Some("p-1")));
        assert!(said.traceparent.starts_with("00-0af7651916cd43dd8448eb211c80319c-"), "{}", said.traceparent);
        let traced = Origin::of_headers(None, None, Some(TRACE)).trace(task, 1, None, None);
        assert_eq!(traced.correlation, "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(traced.parent.as_deref(), Some("b7ad6b7169203331"));
        let own = Origin::default().trace(task, 1, None, None);
        assert_eq!((own.correlation, own.parent), (task.to_string(), None));
        let caused = Origin::default().trace(task, 1, Some("m-1"), None);
        assert_eq!(caused.parent.as_deref(), Some("m-1"), "S4-10: the message is what caused it");
        let chat = Origin { root: true, ..Origin::default() }.trace(task, 1, Some("m-1"), None);
        assert_eq!(chat.parent, None, "S4-7: what nobody caused has no parent");
        assert!(parse(&own.traceparent).is_some(), "{}", own.traceparent);
        assert_eq!(Origin::default().trace(task, 1, None, None).traceparent, own.traceparent, "retries link");
        assert_ne!(Origin::default().trace(task, 2, None, None).traceparent, own.traceparent);
    }

    #[test]
    fn what_is_no_trace_was_not_said() {
        for wrong in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
        ] {
            assert_eq!(Origin::of_headers(None, None, Some(wrong)), Origin::default(), "{wrong}");
        }
        let later = "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more";
        assert!(Origin::of_headers(None, None, Some(later)).trace.is_some());
        let long = "x".repeat(129);
        for wrong in ["", " ", "a\nb", "ö", long.as_str()] {
            assert_eq!(Origin::of_headers(Some(wrong), Some(wrong), None), Origin::default());
        }
    }

    #[test]
    fn metadata_say_what_headers_do_not() {
        let metadata: JsonObject =
            serde_json::from_str(r#"{"skillHint":"s","correlationId":"c","parentId":7,"other":{}}"#).unwrap();
        let mut origin = Origin::of_headers(Some("header"), None, None);
        origin.hear(Some(&metadata));
        assert_eq!((origin.correlation.as_deref(), origin.skill.as_deref()), (Some("header"), Some("s")));
        assert_eq!(origin.parent, None);
        assert_eq!(Origin::read(origin.clone().stored(None).as_deref()), origin);
        assert_eq!(Origin::default().stored(None), None, "a plain message stores nothing");
        assert_eq!(Origin::read(Some("{")), Origin::default());
    }

    #[test]
    fn work_that_comes_back_with_a_span_of_this_installation_goes_on_from_there() {
        let key = Key([7; 32]);
        let given = Delegation { depth: 3, calls: Some(100), ..Delegation::default() };
        let sent = Origin::of_headers(None, None, Some(TRACE)).trace(TaskId::mint(), 1, None, Some((&key, &given)));
        let back = |trace: &str, calls| {
            let mut origin = Origin::of_headers(None, None, Some(trace));
            origin.delegation.calls = calls;
            origin.join_own_span(&key);
            (origin.delegation.depth, origin.delegation.calls)
        };
        assert_eq!(back(&sent.traceparent, None), (3, Some(63)));
        assert_eq!(back(&sent.traceparent, Some(99)), (3, Some(99)), "what is told is exact");
        assert_eq!(back(TRACE, None), (0, None), "a trace has any number of messages");
    }
}
