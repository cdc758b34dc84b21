//! The edge's own decoders, of paths, queries and headers, against whatever a client may send: never a panic, and either a value
//! that can be written and read again or an error that names what is wrong.
//!
//! They are no part of the crate's interface; the files themselves are compiled in here.

#[expect(dead_code, reason = "the crate uses the rest of it")]
#[path = "../src/headers.rs"]
mod headers;
#[path = "../src/path.rs"]
mod path;
#[path = "../src/query.rs"]
pub(crate) mod query;

use a2a::{Error, ErrorKind, ListTasksRequest, TaskState, Timestamp};
use headers::Media;
use http::{HeaderMap, HeaderName, HeaderValue};
use path::{Place, Resource, route};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use proptest::prelude::*;
use query::Query;

fn escaped(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// InvalidParams that names its field, without anything that could break a log or a terminal.
fn is_helpful(error: &Error) {
    assert_eq!(error.kind, ErrorKind::InvalidParams, "{error:?}");
    assert!(!error.violations[0].field.is_empty(), "{error:?}");
    assert!(!error.message.chars().any(char::is_control), "{error:?}");
    assert!(error.message.chars().count() < 1100, "{error:?}");
}

/// A list's query, spelled out.
fn written(list: &ListTasksRequest, is_snake: bool) -> String {
    let mut pairs = Vec::new();
    let mut add = |camel: &'static str, snake: &'static str, value: String| {
        if !value.is_empty() {
            pairs.push(format!("{}={}", if is_snake { snake } else { camel }, escaped(&value)));
        }
    };
    let number = |number: Option<i32>| number.map(|it| it.to_string()).unwrap_or_default();
    add("tenant", "tenant", list.tenant.clone());
    add("contextId", "context_id", list.context_id.clone());
    if list.status != TaskState::Unspecified {
        add("status", "status", list.status.as_str().to_owned());
    }
    add("pageSize", "page_size", number(list.page_size));
    add("pageToken", "page_token", list.page_token.clone());
    add("historyLength", "history_length", number(list.history_length));
    let after = list.status_timestamp_after.map(|it| it.0.to_string()).unwrap_or_default();
    add("statusTimestampAfter", "status_timestamp_after", after);
    let artifacts = list.include_artifacts.map(|it| it.to_string()).unwrap_or_default();
    add("includeArtifacts", "include_artifacts", artifacts);
    pairs.join("&")
}

fn list(query: &str) -> Result<ListTasksRequest, Error> {
    Query::parse(Some(query)).and_then(|query| query.list_tasks())
}

/// A place's path, spelled out.
fn path_of(place: &Place) -> String {
    let mut path = "/a2a".to_owned();
    if let Some(agent) = &place.agent {
        path.push_str(&format!("/agents/{}", escaped(agent)));
    }
    let rest = match &place.resource {
        Resource::JsonRpc => "/jsonrpc".to_owned(),
        Resource::SendMessage => "/message:send".to_owned(),
        Resource::StreamMessage => "/message:stream".to_owned(),
        Resource::Tasks => "/tasks".to_owned(),
        Resource::Task(id) => format!("/tasks/{}", escaped(id)),
        Resource::CancelTask(id) => format!("/tasks/{}:cancel", escaped(id)),
        Resource::SubscribeToTask(id) => format!("/tasks/{}:subscribe", escaped(id)),
        Resource::PushConfigs(task) => format!("/tasks/{}/pushNotificationConfigs", escaped(task)),
        Resource::PushConfig(task, config) => {
            format!("/tasks/{}/pushNotificationConfigs/{}", escaped(task), escaped(config))
        }
        Resource::ExtendedCard => "/extendedAgentCard".to_owned(),
    };
    path + &rest
}

fn near_query() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "tenant",
        "contextId",
        "context_id",
        "status",
        "pageSize",
        "page_size",
        "pageToken",
        "historyLength",
        "statusTimestampAfter",
        "status_timestamp_after",
        "includeArtifacts",
        "cancel",
        "afterSequence",
        "since_seq",
        "A2A-Version",
        "x",
    ]);
    let value = prop_oneof![
        prop::sample::select(vec![
            "",
            "1",
            "-1",
            "true",
            "1.0",
            "TASK_STATE_WORKING",
            "2",
            "2026-03-01T12:00:00Z",
            "%",
            "%f",
            "%00",
            "+"
        ])
        .prop_map(str::to_owned),
        "[0-9a-zA-Z%+&=:.-]{0,12}",
        any::<String>(),
    ];
    prop::collection::vec((name, value), 0..5).prop_map(|pairs| {
        let pairs: Vec<String> = pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.join("&")
    })
}

fn near_path() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        4 => prop::sample::select(vec![
            "", "agents", "tasks", "jsonrpc", "message:send", "message:stream", "extendedAgentCard", ".well-known",
            "agent-card.json", "pushNotificationConfigs", "echo", "t:cancel", "t:subscribe", ":cancel", "..", "%2e%2e", "%2F", "%ff",
            "a%3Acancel:cancel", "%00",
        ]).prop_map(str::to_owned),
        2 => "[a-z0-9%:.-]{0,8}",
        1 => any::<String>(),
    ];
    prop::collection::vec(segment, 0..6).prop_map(|segments| format!("/a2a/{}", segments.join("/")))
}

fn near_header() -> impl Strategy<Value = HeaderValue> {
    let text = prop_oneof![
        prop::sample::select(vec![
            "",
            "1",
            "1.0",
            "0.3",
            "1.0.7",
            " 1.0 ",
            "2.0",
            "application/json",
            "application/a2a+json; x=y",
            "urn:a, urn:b",
            "-1",
            "18446744073709551615",
            "18446744073709551616",
            "*",
            "W/\"abc\", \"x\"",
            "k",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..40),
    ];
    text.prop_filter_map("no header", |bytes| HeaderValue::from_bytes(&bytes).ok())
}

fn one(name: HeaderName, value: HeaderValue) -> HeaderMap {
    HeaderMap::from_iter([(name, value)])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_query_is_read_or_refused(near in near_query(), noise in any::<String>()) {
        for text in [near, noise] {
            match list(&text) {
                Ok(read) => {
                    prop_assert_eq!(&list(&written(&read, false)).expect("what we write we read"), &read);
                    prop_assert_eq!(&list(&written(&read, true)).expect("what we write we read"), &read);
                }
                Err(error) => is_helpful(&error),
            }
            if let Err(error) = Query::parse(Some(&text)).and_then(|query| query.cancel().and_then(|_| query.children())) {
                is_helpful(&error);
            }
        }
    }

    #[test]
    fn a_list_that_is_spelled_out_is_read(
        tenant in any::<String>(), context_id in any::<String>(), page_token in any::<String>(),
        status in prop::sample::select(vec![TaskState::Unspecified, TaskState::Working, TaskState::Completed]),
        page_size in any::<Option<i32>>(), history_length in any::<Option<i32>>(), include_artifacts in any::<Option<bool>>(),
        after in prop::option::of(0_i64..4_000_000_000_000), is_snake in any::<bool>(),
    ) {
        let status_timestamp_after = after.map(Timestamp::from_millis).map(a2a::Zoned);
        let asked = ListTasksRequest {
            tenant, context_id, status, page_size, page_token, history_length, status_timestamp_after, include_artifacts,
        };
        prop_assert_eq!(list(&written(&asked, is_snake)).expect("it is right"), asked);
    }

    #[test]
    fn a_path_is_a_place_or_none(near in near_path(), noise in any::<String>()) {
        for text in [near, noise] {
            if let Some(place) = route(&text, Place::at) {
                let path = path_of(&place);
                prop_assert_eq!(route(&path, Place::at), Some(place), "{} {}", text, path);
            }
        }
    }

    #[test]
    fn headers_are_read_or_refused(value in near_header(), other in near_header(), query in near_query()) {
        let names = ["a2a-version", "a2a-extensions", "x-a2a-extensions", "idempotency-key", "last-event-id", "content-type", "if-none-match"];
        let mut map = HeaderMap::new();
        for name in names {
            map.append(name, value.clone());
            map.append(name, other.clone());
        }
        for map in [&map, &one(HeaderName::from_static("idempotency-key"), value.clone()), &one(HeaderName::from_static("last-event-id"), value)] {
            let _ = Media::of(map);
            let _ = headers::none_match(map, "W/\"abc\"");
            let wanted = headers::extensions(map).unwrap_or_default();
            if let Some(in_use) = headers::extensions_in_use(&wanted) {
                let again = one(headers::A2A_EXTENSIONS, in_use);
                prop_assert_eq!(headers::extensions(&again).expect("they were few"), wanted);
            }
            match headers::idempotency_key(map) {
                Ok(Some(key)) => {
                    let again = one(HeaderName::from_static("idempotency-key"), HeaderValue::from_bytes(key.as_bytes()).expect("it was one"));
                    prop_assert_eq!(headers::idempotency_key(&again).expect("it was one"), Some(key));
                }
                Ok(None) => {}
                Err(error) => is_helpful(&error),
            }
            let Ok(query) = Query::parse(Some(&query)) else { continue };
            match headers::cursor(map, &query) {
                Ok(Some(sequence)) => {
                    let again = one(HeaderName::from_static("last-event-id"), HeaderValue::from(sequence));
                    prop_assert_eq!(headers::cursor(&again, &Query::default()).expect("it was one"), Some(sequence));
                }
                Ok(None) => {}
                Err(error) => is_helpful(&error),
            }
            for checked in [headers::check_version(map, &query), headers::check_version_of_03(map, &query), headers::check_version_of_v1(map)] {
                if let Err(error) = checked {
                    prop_assert!(matches!(error.kind, ErrorKind::VersionNotSupported | ErrorKind::MethodNotFound));
                }
            }
        }
    }
}
