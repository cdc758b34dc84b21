//! Every decoder that takes bytes from outside: whatever comes in, there is a value that survives being written and read
//! again, or an error that says where it is wrong. Never a panic.

use crate::common::arbitrary;

use a2a::jsonrpc::{self, Request};
use a2a::{ErrorKind, v03};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// No message is longer: little of what came in goes out again.
const MESSAGE_CHARS: usize = 1100;

/// Names that the protocol has, in both generations and both spellings, so that noise gets past the first field.
const NAMES: [&str; 44] = [
    "tenant",
    "message",
    "configuration",
    "metadata",
    "messageId",
    "message_id",
    "contextId",
    "context_id",
    "taskId",
    "task_id",
    "role",
    "parts",
    "text",
    "raw",
    "url",
    "data",
    "mediaType",
    "filename",
    "extensions",
    "referenceTaskIds",
    "acceptedOutputModes",
    "historyLength",
    "returnImmediately",
    "taskPushNotificationConfig",
    "authentication",
    "scheme",
    "id",
    "pageSize",
    "pageToken",
    "status",
    "statusTimestampAfter",
    "includeArtifacts",
    "kind",
    "file",
    "bytes",
    "uri",
    "blocking",
    "pushNotificationConfig",
    "schemes",
    "jsonrpc",
    "method",
    "params",
    "result",
    "error",
];

/// Values that the protocol has, and some that only look like it.
const WORDS: [&str; 20] = [
    "",
    "x",
    "ROLE_USER",
    "ROLE_AGENT",
    "user",
    "agent",
    "text",
    "data",
    "file",
    "message",
    "TASK_STATE_WORKING",
    "working",
    "aGk=",
    "2026-03-01T12:00:00Z",
    "2026-03-01T12:00:60+99:99",
    "2.0",
    "SendMessage",
    "message/send",
    "1",
    "\u{0}\r\n\u{202e}",
];

fn near_miss() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(WORDS.to_vec()).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 6, |inner| {
        let entry = (prop::sample::select(NAMES.to_vec()), inner.clone());
        prop_oneof![
            1 => prop::collection::vec(inner, 0..4).prop_map(Value::from),
            4 => prop::collection::vec(entry, 0..6).prop_map(|entries| {
                Value::Object(entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
            }),
        ]
    })
}

/// What is done to bytes on their way.
#[derive(Debug, Clone)]
enum Damage {
    Nothing,
    Change(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index, prop::sample::Index),
    Cut(prop::sample::Index),
    Twice,
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        2 => Just(Damage::Nothing),
        3 => (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Change(at, byte)),
        2 => (any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 1..4))
            .prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        2 => (any::<prop::sample::Index>(), any::<prop::sample::Index>()).prop_map(|(from, to)| Damage::Remove(from, to)),
        1 => any::<prop::sample::Index>().prop_map(Damage::Cut),
        1 => Just(Damage::Twice),
    ]
}

impl Damage {
    fn done_to(&self, value: &impl Serialize) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(value).expect("wire types serialise");
        let length = bytes.len();
        match self {
            Self::Nothing => {}
            Self::Change(at, byte) => bytes[at.index(length)] = *byte,
            Self::Insert(at, inserted) => {
                let at = at.index(length);
                bytes.splice(at..at, inserted.iter().copied());
            }
            Self::Remove(from, to) => {
                let (from, to) = (from.index(length), to.index(length));
                bytes.drain(from.min(to)..from.max(to));
            }
            Self::Cut(at) => bytes.truncate(at.index(length)),
            Self::Twice => bytes.extend_from_within(..),
        }
        bytes
    }
}

/// An error that a caller can do something with.
fn is_helpful(error: &a2a::Error) {
    assert!(!error.message.is_empty() && error.message.chars().count() <= MESSAGE_CHARS, "{error:?}");
    assert!(!error.message.chars().any(char::is_control), "{error:?}");
    match error.kind {
        ErrorKind::ParseError => assert!(error.message.contains(" line "), "where? {error:?}"),
        ErrorKind::InvalidParams => {
            let [violation] = error.violations.as_slice() else { panic!("one violation: {error:?}") };
            assert!(!violation.description.is_empty(), "{error:?}");
            assert!(!violation.field.chars().any(char::is_control), "{error:?}");
        }
        ErrorKind::InvalidRequest => {}
        other => panic!("{other:?} is no error of a decoder: {error:?}"),
    }
    serde_json::from_slice::<Value>(&error.status_body()).expect("an error is JSON");
}

/// A value that was read is written and read again as what it was.
fn is_sound<T: DeserializeOwned + Serialize>(bytes: &[u8]) -> Option<T> {
    match a2a::decode::<T>(bytes) {
        Ok(value) => {
            let text = serde_json::to_vec(&value).expect("wire types serialise");
            let again: T =
                a2a::decode(&text).unwrap_or_else(|error| panic!("{}: {error}", String::from_utf8_lossy(&text)));
            assert_eq!(serde_json::to_vec(&again).expect("wire types serialise"), text, "what we write we read");
            Some(value)
        }
        Err(error) => {
            is_helpful(&error);
            None
        }
    }
}

/// All request messages of both generations, and what they become.
fn all_are_sound(bytes: &[u8]) {
    let limits = a2a::Limits::default();
    if let Some(request) = is_sound::<a2a::SendMessageRequest>(bytes) {
        let _ = a2a::validate::validate_send(&request, &limits).map_err(|error| is_helpful(&error));
    }
    if let Some(request) = is_sound::<a2a::ListTasksRequest>(bytes) {
        let _ = a2a::validate::validate_list(&request, &limits).map_err(|error| is_helpful(&error));
    }
    is_sound::<a2a::GetTaskRequest>(bytes);
    is_sound::<a2a::CancelTaskRequest>(bytes);
    is_sound::<a2a::SubscribeToTaskRequest>(bytes);
    is_sound::<a2a::TaskPushNotificationConfig>(bytes);
    is_sound::<a2a::GetTaskPushNotificationConfigRequest>(bytes);
    is_sound::<a2a::ListTaskPushNotificationConfigsRequest>(bytes);
    is_sound::<a2a::DeleteTaskPushNotificationConfigRequest>(bytes);
    is_sound::<a2a::GetExtendedAgentCardRequest>(bytes);
    is_sound::<v03::TaskQueryParams>(bytes);
    is_sound::<v03::TaskIdParams>(bytes);
    is_sound::<v03::GetTaskPushNotificationConfigParams>(bytes);
    is_sound::<v03::DeleteTaskPushNotificationConfigParams>(bytes);
    if let Some(params) = is_sound::<v03::MessageSendParams>(bytes) {
        match a2a::SendMessageRequest::try_from(params) {
            Ok(request) => {
                let text = serde_json::to_vec(&request).expect("wire types serialise");
                assert_eq!(a2a::decode::<a2a::SendMessageRequest>(&text).as_ref(), Ok(&request));
            }
            Err(error) => is_helpful(&error),
        }
    }
    if let Some(config) = is_sound::<v03::TaskPushNotificationConfig>(bytes) {
        let _ = a2a::TaskPushNotificationConfig::try_from(config).map_err(|error| is_helpful(&error));
    }
}

/// The envelope of a request, and the answer that a bad one gets.
fn envelope_is_sound(bytes: &[u8]) {
    let request = match Request::decode(bytes) {
        Ok(request) => request,
        Err(rejected) => {
            is_helpful(&rejected.error);
            let answer: Value = serde_json::from_slice(&jsonrpc::failure(&rejected.id, &rejected.error)).expect("JSON");
            assert_eq!(answer["id"], serde_json::from_str::<Value>(rejected.id.get()).expect("an id is JSON"));
            return;
        }
    };
    let text = jsonrpc::encode_request(&request.id, &request.method, &request.params).expect("an envelope serialises");
    let again = Request::decode(&text).expect("what we write we read");
    assert_eq!((&again.id, &again.method), (&request.id, &request.method));
    assert_eq!(again.params.map(|it| it.get()), request.params.map(|it| it.get()));
    if let Some(params) = request.params {
        all_are_sound(params.get().as_bytes());
    }
}

/// What a remote answers.
fn answer_is_sound(bytes: &[u8]) {
    match jsonrpc::decode_response(bytes) {
        Ok(response) => {
            if let Ok(result) = response.result {
                let text = jsonrpc::success_raw(&response.id, result.get().as_bytes());
                let again = jsonrpc::decode_response(&text).expect("what we write we read");
                assert_eq!(again.result.expect("a result").get(), result.get());
            }
        }
        Err(error) => assert_eq!(error.kind, ErrorKind::InvalidAgentResponse, "{error:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), text in any::<String>()) {
        for input in [bytes.as_slice(), text.as_bytes()] {
            all_are_sound(input);
            envelope_is_sound(input);
            answer_is_sound(input);
        }
    }

    #[test]
    fn what_looks_like_a_request_is_read_or_refused(value in near_miss(), damage in damage()) {
        let bytes = damage.done_to(&value);
        all_are_sound(&bytes);
        envelope_is_sound(&bytes);
        answer_is_sound(&bytes);
    }

    #[test]
    fn a_damaged_request_is_read_or_refused(value in arbitrary::send_request(), damage in damage()) {
        all_are_sound(&damage.done_to(&value));
    }

    #[test]
    fn a_damaged_list_is_read_or_refused(value in arbitrary::list_request(), damage in damage()) {
        all_are_sound(&damage.done_to(&value));
    }

    #[test]
    fn a_damaged_request_of_0_3_is_read_or_refused(value in arbitrary::send_request(), damage in damage()) {
        let mut value = value;
        value.tenant.clear();
        value.configuration = None;
        let down = v03::MessageSendParams::try_from(value).expect("nothing is left that 0.3 cannot say");
        all_are_sound(&damage.done_to(&down));
    }

    #[test]
    fn a_damaged_envelope_is_read_or_refused(
        value in arbitrary::send_request(),
        method in prop::sample::select(WORDS.to_vec()),
        id in prop_oneof![any::<i64>().prop_map(Value::from), any::<String>().prop_map(Value::from), Just(Value::Null)],
        damage in damage(),
    ) {
        let envelope = serde_json::json!({"jsonrpc": "2.0", "id": id, "method": method, "params": value});
        let bytes = damage.done_to(&envelope);
        envelope_is_sound(&bytes);
        if matches!(damage, Damage::Nothing) {
            let request = Request::decode(&bytes).expect("it is a request");
            prop_assert_eq!(&*request.method, method);
            prop_assert_eq!(serde_json::from_str::<Value>(request.id.get()).expect("an id is JSON"), id);
        }
    }

    #[test]
    fn a_time_is_read_or_refused(text in "[0-9TZtz:.+ -]{0,40}", noise in any::<String>(), millis in any::<i64>()) {
        for text in [text.as_str(), &noise] {
            if let Ok(time) = text.parse::<a2a::Timestamp>() {
                let written = time.to_string();
                prop_assert_eq!(written.parse::<a2a::Timestamp>().expect("what we write we read"), time, "{}", written);
            }
        }
        let _ = a2a::Timestamp::from_millis(millis).to_string();
    }
}
