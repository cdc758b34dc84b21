//! The envelope: what is taken, what is refused with which code and id, and the bytes that go out.

use serde_json::{Value, json};

use super::*;

#[test]
fn requests_are_taken_apart_without_copying() {
    let body = br#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"t"},"extra":[]}"#;
    let request = decode_request(body).unwrap();
    assert_eq!(request.id.get(), "1");
    assert!(matches!(request.method, Cow::Borrowed("GetTask")));
    assert_eq!(request.params.unwrap().get(), r#"{"id":"t"}"#);

    for body in [
        r#"{"jsonrpc":"2.0","method":"GetT\u0061sk"}"#,
        r#"{"jsonrpc":"2.0","method":"GetTask","params":null,"id":null}"#,
    ] {
        let request = decode_request(body.as_bytes()).unwrap();
        assert_eq!((request.method.as_ref(), request.id.is_null(), request.params.is_none()), ("GetTask", true, true));
    }
}

#[test]
fn ids_come_back_as_they_were_written() {
    for id in ["1", "-7", "1.50", "12345678901234567890123", r#""a""#, r#""\u0041\n""#, "null", "1e3"] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
        let request = decode_request(body.as_bytes()).unwrap();
        assert_eq!(success(&request.id, &0), format!(r#"{{"jsonrpc":"2.0","id":{id},"result":0}}"#).into_bytes());
    }
}

#[test]
fn what_is_no_request_is_refused_with_the_id_that_could_be_read() {
    use ErrorKind::{InvalidParams, InvalidRequest, ParseError};
    for (body, kind, id) in [
        ("", ParseError, "null"),
        ("{", ParseError, "null"),
        ("[1,", ParseError, "null"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{]}"#, ParseError, "null"),
        ("{} {}", ParseError, "null"),
        ("[]", InvalidRequest, "null"),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"m"}]"#, InvalidRequest, "null"),
        ("\"x\"", InvalidRequest, "null"),
        ("null", InvalidRequest, "null"),
        ("{}", InvalidRequest, "null"),
        (r#"{"id":"a","method":"m"}"#, InvalidRequest, r#""a""#),
        (r#"{"jsonrpc":"1.0","id":7,"method":"m"}"#, InvalidRequest, "7"),
        (r#"{"jsonrpc":2.0,"id":7,"method":"m"}"#, InvalidRequest, "7"),
        (r#"{"jsonrpc":"2.0","id":7}"#, InvalidRequest, "7"),
        (r#"{"jsonrpc":"2.0","id":7,"method":5}"#, InvalidRequest, "7"),
        (r#"{"jsonrpc":"2.0","id":7,"method":null}"#, InvalidRequest, "7"),
        (r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, InvalidRequest, "null"),
        (r#"{"jsonrpc":"2.0","id":[1],"method":"m"}"#, InvalidRequest, "null"),
        (r#"{"jsonrpc":"2.0","id":true,"method":"m"}"#, InvalidRequest, "null"),
        (r#"{"jsonrpc":"2.0","id":"\ud800","method":"m"}"#, InvalidRequest, "null"),
        (r#"{"jsonrpc":"2.0","id":7,"method":"m","params":"x"}"#, InvalidRequest, "7"),
        (r#"{"jsonrpc":"2.0","id":7,"method":"m","params":3}"#, InvalidRequest, "7"),
        (r#"{"jsonrpc":"2.0","id":7,"method":"m","params":[1]}"#, InvalidParams, "7"),
        (r#"{"jsonrpc":"2.0","id":7,"method":"m","method":"n"}"#, InvalidRequest, "7"),
    ] {
        let rejected = decode_request(body.as_bytes()).expect_err(body);
        assert_eq!((rejected.error.kind, rejected.id.get()), (kind, id), "{body}");
    }
    let long = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"m"}}"#, "x".repeat(2000));
    assert!(decode_request(long.as_bytes()).unwrap_err().id.is_null());
}

#[test]
fn a_frame_is_the_response_in_three_pieces() {
    let id = Id::string("s\"1");
    let event = br#"{"task":{}}"#;
    let mut frame = frame_prefix(&id).to_vec();
    frame.extend_from_slice(event);
    frame.extend_from_slice(FRAME_SUFFIX);
    assert_eq!(frame, success_raw(&id, event));
    assert_eq!(
        serde_json::from_slice::<Value>(&frame).unwrap(),
        json!({"jsonrpc": "2.0", "id": "s\"1", "result": {"task": {}}})
    );
}

#[test]
fn a_failure_has_the_error_object() {
    let body = failure(&Id::number(3), &method_not_found("x/y"));
    assert_eq!(
        serde_json::from_slice::<Value>(&body).unwrap(),
        json!({"jsonrpc": "2.0", "id": 3, "error": {
            "code": -32601,
            "message": "method not found: x/y",
            "data": [{
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "METHOD_NOT_FOUND",
                "domain": "a2a-protocol.org"
            }]
        }})
    );
}

#[test]
fn a_dialect_may_number_its_errors_differently() {
    let error = Error::new(ErrorKind::VersionNotSupported, "no");
    let body: Value = serde_json::from_slice(&failure_with_code(&Id::NULL, &error, -32007)).unwrap();
    assert_eq!((&body["id"], &body["error"]["code"]), (&Value::Null, &json!(-32007)));
    assert_eq!(body["error"]["data"][0]["reason"], "VERSION_NOT_SUPPORTED");
}

#[test]
fn a_result_that_cannot_be_written_is_an_internal_error() {
    let odd = std::collections::BTreeMap::from([((1, 2), 3)]);
    let body = success(&Id::number(1), &odd);
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["error"]["code"], -32603);
}

#[test]
fn a_client_reads_what_a_server_writes() {
    let id = Id::number(9);
    let params = crate::GetTaskRequest { id: "t".into(), ..Default::default() };
    let call = encode_request(&id, "GetTask", &params).unwrap();
    let request = decode_request(&call).unwrap();
    assert_eq!(request.id, id);
    assert_eq!(crate::decode::<crate::GetTaskRequest>(request.params.unwrap().get().as_bytes()).unwrap(), params);

    let body = success(&id, &json!({"a": 1}));
    assert_eq!(decode_response(&body).unwrap().result.unwrap().get(), r#"{"a":1}"#);
    let body = failure(&id, &Error::task_not_found("t"));
    let response = decode_response(&body).unwrap();
    assert_eq!(response.id, id);
    assert_eq!(response.result.unwrap_err().kind(), Some(ErrorKind::TaskNotFound));
}

#[test]
fn what_is_no_response_is_an_invalid_agent_response() {
    for body in [
        "",
        "[]",
        "{}",
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":{},"result":{}}"#,
    ] {
        assert_eq!(decode_response(body.as_bytes()).unwrap_err().kind, ErrorKind::InvalidAgentResponse, "{body}");
    }
    let both = br#"{"jsonrpc":"2.0","id":1,"result":null,"error":null}"#;
    assert_eq!(decode_response(both).unwrap().result.unwrap().get(), "null");
}

#[test]
fn an_acknowledgement_has_whatever_result_or_none() {
    for result in ["", r#","result":null"#, r#","result":{}"#, r#","result":{},"error":null"#] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1{result}}}"#);
        assert_eq!(decode_acknowledgement(body.as_bytes()), Ok(Ok(())), "{body}");
    }
    let told = decode_acknowledgement(&failure(&Id::number(1), &Error::task_not_found("t"))).unwrap();
    assert_eq!(told.unwrap_err().kind(), Some(ErrorKind::TaskNotFound));
    for body in ["", "{}", r#"{"id":1,"result":{}}"#] {
        assert_eq!(
            decode_acknowledgement(body.as_bytes()).unwrap_err().kind,
            ErrorKind::InvalidAgentResponse,
            "{body}"
        );
    }
}

#[test]
fn the_details_of_a_very_long_error_are_not_read() {
    let response = |padding: usize| {
        let info = r#"{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TASK_NOT_FOUND","domain":"a2a-protocol.org"}"#;
        let data = format!(r#"[{info},"{}"]"#, "x".repeat(padding));
        format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":-32001,"message":"no such task","data":{data}}}}}"#)
    };
    for (padding, reason) in [(0, Some("TASK_NOT_FOUND")), (64 << 10, None)] {
        let remote = decode_response(response(padding).as_bytes()).unwrap().result.unwrap_err();
        assert_eq!((remote.code, remote.message.as_str()), (-32001, "no such task"));
        assert_eq!(remote.reason.as_deref(), reason, "{padding}");
    }
}
