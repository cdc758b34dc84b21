//! The fifteen rules of ProtoJSON that others get wrong, by name, on a SendMessageRequest as it arrives and leaves.

use a2a::{Error, ErrorKind, Role, SendMessageRequest, TaskStatus, decode};

const HEAD: &str = r#""messageId":"m","role":"ROLE_USER""#;

/// What we write after reading a text.
fn pass(text: &str) -> String {
    let request: SendMessageRequest = decode(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
    serde_json::to_string(&request).expect("wire types serialise")
}

fn refuse(text: &str) -> Error {
    let error = decode::<SendMessageRequest>(text.as_bytes()).expect_err(text);
    assert_eq!(error.kind, ErrorKind::InvalidParams, "{text}");
    error
}

fn with_part(part: &str) -> String {
    format!(r#"{{"message":{{{HEAD},"parts":[{part}]}}}}"#)
}

fn with_message(fields: &str) -> String {
    format!(r#"{{"message":{{{HEAD},"parts":[{{"text":"a"}}]{fields}}}}}"#)
}

#[test]
fn row_01_snake_case_names_are_accepted() {
    let text = r#"{"message":{"message_id":"m","context_id":"c","role":"ROLE_USER","parts":[{"text":"a","media_type":"t"}],
        "reference_task_ids":["r"]},"configuration":{"history_length":1,"return_immediately":true}}"#;
    assert_eq!(
        pass(text),
        r#"{"message":{"messageId":"m","contextId":"c","role":"ROLE_USER","parts":[{"text":"a","mediaType":"t"}],"referenceTaskIds":["r"]},"configuration":{"historyLength":1,"returnImmediately":true}}"#
    );
}

#[test]
fn row_02_enums_are_accepted_as_integers() {
    for role in ["1", "1.0", r#""ROLE_USER""#] {
        let text = format!(r#"{{"message":{{"messageId":"m","role":{role},"parts":[{{"text":"a"}}]}}}}"#);
        assert_eq!(decode::<SendMessageRequest>(text.as_bytes()).unwrap().message.role, Role::User);
        assert_eq!(pass(&text), with_message(""));
    }
    for role in ["17", "-1", r#""user""#, "0.5"] {
        let error = refuse(&format!(r#"{{"message":{{"messageId":"m","role":{role},"parts":[]}}}}"#));
        assert_eq!(error.violations[0].field, "message.role");
    }
}

#[test]
fn row_03_null_is_an_unset_scalar() {
    assert_eq!(pass(&with_message(r#","contextId":null,"taskId":null,"metadata":null"#)), with_message(""));
    let text = r#"{"tenant":null,"message":{"messageId":null,"role":null,"parts":[]},"configuration":{"historyLength":null,"returnImmediately":null}}"#;
    assert_eq!(pass(text), r#"{"message":{"messageId":"","role":"ROLE_UNSPECIFIED","parts":[]},"configuration":{}}"#);
}

#[test]
fn row_04_null_is_an_empty_list() {
    assert_eq!(pass(&with_message(r#","extensions":null,"referenceTaskIds":null"#)), with_message(""));
    assert_eq!(
        pass(r#"{"message":{"messageId":"m","role":1,"parts":null},"configuration":null}"#),
        with_message("").replace(r#"{"text":"a"}"#, "")
    );
    refuse(&with_message(r#","extensions":[null]"#));
}

#[test]
fn row_05_unknown_fields_are_ignored() {
    let text = with_message(r#","kind":"message","futureField":{"deep":[1,{"x":null}]}"#);
    assert_eq!(pass(&text), with_message(""));
    assert_eq!(pass(&with_part(r#"{"kind":"text","text":"a"}"#)), with_message(""));
}

#[test]
fn row_06_two_members_of_a_oneof_are_refused() {
    for part in [r#"{"text":"a","url":"b"}"#, r#"{"data":null,"text":""}"#, r#"{"raw":"","data":{}}"#] {
        assert_eq!(refuse(&with_part(part)).violations[0].field, "message.parts[0]");
    }
    assert!(decode::<a2a::StreamResponse>(br#"{"task":{"id":"t","status":{}},"message":{}}"#).is_err());
    assert!(decode::<a2a::SecurityScheme>(br#"{"apiKeySecurityScheme":{},"mtlsSecurityScheme":{}}"#).is_err());
}

#[test]
fn row_07_a_part_without_content_is_refused() {
    for part in ["{}", r#"{"mediaType":"text/plain"}"#, r#"{"text":null}"#, r#"{"file":{"bytes":""}}"#, "[]", "null"] {
        refuse(&with_part(part));
    }
}

#[test]
fn row_08_base64url_is_accepted() {
    for raw in ["-_8", "-_8=", "+/8", "+/8="] {
        assert_eq!(pass(&with_part(&format!(r#"{{"raw":"{raw}"}}"#))), with_part(r#"{"raw":"+/8="}"#));
    }
}

#[test]
fn row_09_data_null_is_kept() {
    assert_eq!(pass(&with_part(r#"{"data":null}"#)), with_part(r#"{"data":null}"#));
}

#[test]
fn row_10_integers_in_data_and_metadata_stay_integers() {
    let text = with_part(r#"{"data":{"i":1,"f":1.0,"e":1e2},"metadata":{"z":-0,"a":[3]}}"#);
    assert_eq!(pass(&text), text);
}

#[test]
fn row_11_integers_beyond_double_precision_are_exact() {
    let text = with_part(r#"{"data":[9007199254740993,18446744073709551616,123456789012345678901234567890]}"#);
    assert_eq!(pass(&text), text);
}

#[test]
fn row_12_integers_are_accepted_as_strings() {
    for length in ["5", r#""5""#, "5.0", r#""5.0""#, "0.5e1", r#""5e0""#] {
        let text = format!(
            r#"{{"message":{{"messageId":"m","role":1,"parts":[]}},"configuration":{{"historyLength":{length}}}}}"#
        );
        assert!(pass(&text).ends_with(r#""configuration":{"historyLength":5}}"#), "{text}");
    }
    for length in ["5.5", r#""""#, r#""five""#, r#"" 5""#, "2147483648", r#""-2147483649""#, "true", r#""inf""#, "[]"] {
        let text = format!(r#"{{"message":{{}},"configuration":{{"historyLength":{length}}}}}"#);
        assert_eq!(refuse(&text).violations[0].field, "configuration.historyLength");
    }
}

#[test]
fn row_13_what_looks_like_a_timestamp_in_metadata_is_untouched() {
    let text = with_message(r#","metadata":{"timestamp":"2026-01-01T00:00:00+00:00"}"#);
    assert_eq!(pass(&text), text);
}

#[test]
fn row_14_metadata_must_be_an_object() {
    for metadata in ["[]", "[{}]", "1", r#""{}""#, "true"] {
        let error = refuse(&with_message(&format!(r#","metadata":{metadata}"#)));
        assert_eq!(error.violations[0].field, "message.metadata");
    }
}

#[test]
fn row_15_offsets_of_timestamps_are_normalised() {
    for (timestamp, written) in [
        ("2026-01-01T01:00:00+01:00", "2026-01-01T00:00:00.000Z"),
        ("2025-12-31T19:00:00.25-05:00", "2026-01-01T00:00:00.250Z"),
        ("2026-01-01T00:00:00.123456789Z", "2026-01-01T00:00:00.123Z"),
    ] {
        let text = format!(r#"{{"state":"TASK_STATE_WORKING","timestamp":"{timestamp}"}}"#);
        let status: TaskStatus = decode(text.as_bytes()).unwrap();
        assert_eq!(
            serde_json::to_string(&status).unwrap(),
            format!(r#"{{"state":"TASK_STATE_WORKING","timestamp":"{written}"}}"#)
        );
    }
    assert!(decode::<TaskStatus>(br#"{"timestamp":"yesterday"}"#).is_err());
    assert!(decode::<TaskStatus>(br#"{"timestamp":1}"#).is_err());
}

#[test]
fn known_fields_appear_once() {
    for text in [
        with_message(r#","taskId":"a","taskId":"a""#),
        with_message(r#","taskId":"a","task_id":"b""#),
        with_message(r#","metadata":null,"metadata":{}"#),
        r#"{"message":{},"message":{}}"#.to_owned(),
    ] {
        let error = refuse(&text);
        assert!(error.message.contains("duplicate field"), "{error}");
    }
    assert!(decode::<a2a::SecurityRequirement>(br#"{"schemes":{"a":{},"a":{}}}"#).is_err());
}

#[test]
fn messages_are_objects_and_not_positional_arrays() {
    for text in [r#"["",{}]"#, r#"{"message":["m"]}"#, r#"{"message":{},"configuration":[]}"#, r#"{"message":"m"}"#] {
        refuse(text);
    }
}

#[test]
fn a_written_event_is_one_line() {
    let text = with_message(",\n\"metadata\":\n{\n\t\"a\":\r\n1}\n");
    assert_eq!(pass(&text), with_message(r#","metadata":{"a":1}"#));
}
