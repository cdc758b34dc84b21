//! The table against the specification, and the encodings.

use serde_json::{Value, json};

use super::*;

#[test]
fn the_table_is_that_of_the_specification() {
    // Kind, JSON-RPC code, HTTP status, gRPC status: A2A 1.0.1 sections 5.4 and 9.5; below the line, HTTP's own.
    let table = [
        (ErrorKind::ParseError, -32700, 400, "INVALID_ARGUMENT", 3, "PARSE_ERROR"),
        (ErrorKind::InvalidRequest, -32600, 400, "INVALID_ARGUMENT", 3, "INVALID_REQUEST"),
        (ErrorKind::MethodNotFound, -32601, 404, "UNIMPLEMENTED", 12, "METHOD_NOT_FOUND"),
        (ErrorKind::InvalidParams, -32602, 400, "INVALID_ARGUMENT", 3, "INVALID_PARAMS"),
        (ErrorKind::Internal, -32603, 500, "INTERNAL", 13, "INTERNAL"),
        (ErrorKind::TaskNotFound, -32001, 404, "NOT_FOUND", 5, "TASK_NOT_FOUND"),
        (ErrorKind::TaskNotCancelable, -32002, 400, "FAILED_PRECONDITION", 9, "TASK_NOT_CANCELABLE"),
        (
            ErrorKind::PushNotificationNotSupported,
            -32003,
            400,
            "FAILED_PRECONDITION",
            9,
            "PUSH_NOTIFICATION_NOT_SUPPORTED",
        ),
        (ErrorKind::UnsupportedOperation, -32004, 400, "FAILED_PRECONDITION", 9, "UNSUPPORTED_OPERATION"),
        (ErrorKind::ContentTypeNotSupported, -32005, 400, "INVALID_ARGUMENT", 3, "CONTENT_TYPE_NOT_SUPPORTED"),
        (ErrorKind::InvalidAgentResponse, -32006, 500, "INTERNAL", 13, "INVALID_AGENT_RESPONSE"),
        (
            ErrorKind::ExtendedAgentCardNotConfigured,
            -32007,
            400,
            "FAILED_PRECONDITION",
            9,
            "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
        ),
        (ErrorKind::ExtensionSupportRequired, -32008, 400, "FAILED_PRECONDITION", 9, "EXTENSION_SUPPORT_REQUIRED"),
        (ErrorKind::VersionNotSupported, -32009, 400, "FAILED_PRECONDITION", 9, "VERSION_NOT_SUPPORTED"),
        (ErrorKind::AgentNotFound, -32602, 404, "NOT_FOUND", 5, "AGENT_NOT_FOUND"),
        (ErrorKind::Unauthenticated, -32000, 401, "UNAUTHENTICATED", 16, "UNAUTHENTICATED"),
        (ErrorKind::PermissionDenied, -32000, 403, "PERMISSION_DENIED", 7, "PERMISSION_DENIED"),
        (ErrorKind::NotFound, -32601, 404, "NOT_FOUND", 5, "NOT_FOUND"),
        (ErrorKind::MethodNotAllowed, -32600, 405, "UNIMPLEMENTED", 12, "METHOD_NOT_ALLOWED"),
        (ErrorKind::RequestTimeout, -32000, 408, "DEADLINE_EXCEEDED", 4, "REQUEST_TIMEOUT"),
        (ErrorKind::AlreadyExists, -32000, 409, "ALREADY_EXISTS", 6, "ALREADY_EXISTS"),
        (ErrorKind::Conflict, -32000, 409, "FAILED_PRECONDITION", 9, "CONFLICT"),
        (ErrorKind::PayloadTooLarge, -32600, 413, "RESOURCE_EXHAUSTED", 8, "PAYLOAD_TOO_LARGE"),
        (ErrorKind::UnsupportedMediaType, -32005, 415, "INVALID_ARGUMENT", 3, "UNSUPPORTED_MEDIA_TYPE"),
        (ErrorKind::ResourceExhausted, -32000, 429, "RESOURCE_EXHAUSTED", 8, "RESOURCE_EXHAUSTED"),
        (ErrorKind::Unavailable, -32603, 503, "UNAVAILABLE", 14, "UNAVAILABLE"),
        (ErrorKind::BadGateway, -32000, 502, "UNAVAILABLE", 14, "REMOTE_FAILED"),
    ];
    let kinds: Vec<ErrorKind> = table.iter().map(|row| row.0).collect();
    assert_eq!(kinds, ErrorKind::ALL);
    for (kind, jsonrpc, http, status, number, reason) in table {
        let codes = kind.codes();
        assert_eq!(
            (codes.jsonrpc, codes.http, codes.grpc.as_str(), codes.grpc.number(), codes.reason),
            (jsonrpc, http, status, number, reason)
        );

        let error = Error::new(kind, "text");
        let details =
            json!([{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": DOMAIN}]);
        assert_eq!(
            serde_json::to_value(error.jsonrpc_object()).unwrap(),
            json!({"code": jsonrpc, "message": "text", "data": details})
        );
        assert_eq!(
            serde_json::from_slice::<Value>(&error.status_body()).unwrap(),
            json!({"error": {"code": http, "status": status, "message": "text", "details": details}})
        );
    }
}

#[test]
fn the_name_of_a_specified_error_is_its_reason() {
    for kind in ErrorKind::ALL {
        if (-32009..=-32001).contains(&kind.codes().jsonrpc) && kind != ErrorKind::UnsupportedMediaType {
            let name = format!("{kind:?}");
            let reason: String = name
                .char_indices()
                .map(|(at, c)| if at > 0 && c.is_uppercase() { format!("_{c}") } else { c.to_uppercase().to_string() })
                .collect();
            assert_eq!(kind.codes().reason, reason);
        }
    }
}

#[test]
fn details_carry_context() {
    let error = Error::invalid("message.parts", "must not be empty")
        .with_reason("EMPTY_MESSAGE")
        .with_metadata("agent", "echo")
        .with_retry_after(3);
    assert_eq!(error.to_string(), "invalid parameters: message.parts: must not be empty");
    assert_eq!(
        serde_json::to_value(error.details()).unwrap(),
        json!([
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "EMPTY_MESSAGE",
                "domain": "a2a-protocol.org",
                "metadata": {"agent": "echo"}
            },
            {
                "@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": [{"field": "message.parts", "description": "must not be empty"}]
            },
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3s"}
        ])
    );
}

#[test]
fn input_is_cut_and_escaped() {
    let error = Error::task_not_found(&"x".repeat(5000));
    assert_eq!(error.message.matches('x').count(), EXCERPT_CHARS);
    assert_eq!(error.metadata[0].1.matches('x').count(), EXCERPT_CHARS);
    let error = Error::task_not_found("a\r\n\u{1b}[31m\u{202e}b");
    assert_eq!(error.message, r"task not found: a\r\n\u{1b}[31m\u{202e}b");
    assert!(Error::internal("y".repeat(5000)).message.chars().count() <= MESSAGE_CHARS + 1);
}

#[test]
fn kinds_are_found_again() {
    for kind in ErrorKind::ALL {
        let codes = kind.codes();
        let found = ErrorKind::from_jsonrpc(codes.jsonrpc.into(), Some(codes.reason));
        assert_eq!(found, Some(kind));
        assert_eq!(ErrorKind::from_http(codes.http, Some(codes.reason)), Some(kind));
    }
    assert_eq!(ErrorKind::from_jsonrpc(-32001, None), Some(ErrorKind::TaskNotFound));
    assert_eq!(ErrorKind::from_jsonrpc(-32602, None), Some(ErrorKind::InvalidParams));
    assert_eq!(ErrorKind::from_jsonrpc(-32602, Some("SOMETHING")), Some(ErrorKind::InvalidParams));
    assert_eq!(ErrorKind::from_jsonrpc(17, None), None);
    assert_eq!(ErrorKind::from_http(404, None), Some(ErrorKind::NotFound));
    assert_eq!(ErrorKind::from_http(418, None), None);
}

#[test]
fn a_remote_error_is_read_from_both_encodings() {
    let error = Error::task_not_found("t-1").with_violation("id", "unknown").with_retry_after(1);

    let object = serde_json::to_vec(&error.jsonrpc_object()).unwrap();
    let remote: RemoteError = serde_json::from_slice(&object).unwrap();
    assert_eq!(remote.code, -32001);
    assert_eq!(remote.kind(), Some(ErrorKind::TaskNotFound));
    assert_eq!(remote.metadata.get("taskId").map(String::as_str), Some("t-1"));
    assert_eq!(remote.violations, error.violations);

    let remote = RemoteError::from_status_body(404, &error.status_body());
    assert_eq!(remote.code, 404);
    assert_eq!(remote.kind(), Some(ErrorKind::TaskNotFound));
    assert_eq!(remote.message, error.message);
    assert_eq!(remote.into_error().kind, ErrorKind::TaskNotFound);
}

#[test]
fn a_remote_error_of_any_shape_is_read() {
    for body in [&b"<html>bad gateway</html>"[..], b"", b"[]", b"{\"error\":\"text\"}", b"\xff\xfe"] {
        let remote = RemoteError::from_status_body(503, body);
        assert_eq!(remote.kind(), Some(ErrorKind::Unavailable));
        assert_eq!(remote.reason, None);
    }
    let remote: RemoteError = serde_json::from_str(r#"{"code":-32603,"message":"m","data":"not a list"}"#).unwrap();
    assert_eq!((remote.kind(), remote.message.as_str()), (Some(ErrorKind::Internal), "m"));
    let remote: RemoteError = serde_json::from_str(r#"{"code":1}"#).unwrap();
    assert_eq!(remote.into_error().kind, ErrorKind::InvalidAgentResponse);
}

#[test]
fn a_remote_error_is_parsed_up_to_64_kib() {
    let body = |size: usize| {
        let start = r#"{"error":{"code":404,"message":"no such task"},"more":""#;
        format!("{start}{}\"}}", "x".repeat(size - start.len() - 2)).into_bytes()
    };
    assert_eq!(RemoteError::from_status_body(404, &body(64 << 10)).message, "no such task");
    let remote = RemoteError::from_status_body(404, &body((64 << 10) + 1));
    assert!(remote.message.starts_with("HTTP status 404: {"), "{}", remote.message);
    assert_eq!(remote.kind(), Some(ErrorKind::NotFound));
}
