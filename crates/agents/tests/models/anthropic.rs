//! Anthropic's Messages.

use std::time::Duration;

use agents::model::{Content, ErrorKind, Message, Piece, Request, Role, Stop, Usage};
use serde_json::json;

use crate::models::rig::{Heard, Rig, hear, request};
use testkit::http_server::{HttpServer, Step, chunk, end, head, json as json_answer, stream};

const KEY: &str = "key-of-anthropic-123";

fn rig(server: &HttpServer) -> Rig {
    Rig::new("default = \"anthropic/claude-x\"\n", &[("ANTHROPIC_API_KEY", KEY), ("ANTHROPIC_BASE_URL", &server.url)])
}

fn event(name: &str, data: &str) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

fn start() -> String {
    event(
        "message_start",
        r#"{"type":"message_start","message":{"id":"msg_1","role":"assistant","content":[],"usage":{"input_tokens":10,"cache_read_input_tokens":5,"cache_creation_input_tokens":1,"output_tokens":1}}}"#,
    )
}

fn delta(text: &str) -> String {
    event(
        "content_block_delta",
        &format!(r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{text}"}}}}"#),
    )
}

fn finish(reason: &str) -> String {
    let last = format!(
        r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}","stop_sequence":null}},"usage":{{"output_tokens":12}}}}"#
    );
    event("message_delta", &last) + &event("message_stop", r#"{"type":"message_stop"}"#)
}

fn whole(reason: &str) -> Vec<String> {
    vec![
        start(),
        event(
            "content_block_start",
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        ),
        event("ping", r#"{"type": "ping"}"#),
        event(
            "content_block_delta",
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}"#,
        ),
        delta("Hel"),
        delta("lo."),
        event("content_block_stop", r#"{"type":"content_block_stop","index":0}"#),
        event("something_new", r#"{"type":"something_new"}"#),
        finish(reason),
    ]
}

#[tokio::test]
async fn an_answer_is_streamed_with_its_stop_and_its_usage() {
    let server = HttpServer::start([stream(whole("end_turn")), stream(whole("max_tokens")), stream(whole("refusal"))]);
    let rig = rig(&server);
    let messages = vec![
        Message {
            role: Role::User,
            content: vec![Content::Text("hi".to_owned()), Content::ImageUrl("https://i.example/a.png".to_owned())],
        },
        Message::assistant("yes?"),
        Message::user("go on"),
    ];
    let request = Request { system: "Be kind.".to_owned(), messages, max_tokens: 77, temperature: Some(0.5) };
    let model = rig.model("");
    assert_eq!((model.name(), model.takes_images()), ("anthropic/claude-x", true));
    let mut stops = Vec::new();
    for _ in 0..3 {
        let heard = hear(model.ask(&request).await.unwrap()).await.unwrap();
        assert_eq!(heard.pieces, ["Hel", "lo."]);
        assert_eq!(heard.usage, Usage { input_tokens: 16, output_tokens: 12 });
        stops.push(heard.stop);
        // The end of the stream is read after the end of the answer.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(stops, [Stop::Done, Stop::Length, Stop::Other("refusal".to_owned())]);
    let seen = server.received();
    assert_eq!(seen[0].line, "POST /v1/messages HTTP/1.1");
    assert_eq!(seen[0].header("x-api-key").as_deref(), Some(KEY));
    assert_eq!(seen[0].header("anthropic-version").as_deref(), Some("2023-06-01"));
    assert_eq!(seen[0].header("authorization"), None);
    assert_eq!(seen[0].json()["messages"][0]["content"][1]["source"]["url"], "https://i.example/a.png");
    assert_eq!(
        (&seen[0].json()["max_tokens"], &seen[0].json()["stream"], &seen[0].json()["model"]),
        (&json!(77), &json!(true), &json!("claude-x"))
    );
    assert_eq!(seen[2].connection, 1, "the connection is used again");
}

#[tokio::test]
async fn a_piece_is_said_while_the_provider_still_thinks_about_the_next() {
    let server = HttpServer::start([vec![
        head(),
        chunk(start()),
        chunk(delta("first")),
        Step::Hold,
        chunk(delta("second") + &finish("end_turn")),
        end(),
    ]]);
    let mut answer = rig(&server).model("").ask(&request("x")).await.unwrap();
    assert_eq!(answer.next().await.unwrap(), Some(Piece::Text("first".to_owned())));
    assert_eq!(answer.usage(), Usage { input_tokens: 16, output_tokens: 1 }, "what is known so far");
    let impatient = tokio::time::timeout(Duration::from_millis(50), answer.next()).await;
    assert!(impatient.is_err());
    server.go_on();
    assert_eq!(hear(answer).await.unwrap().pieces, ["second"], "nothing is lost by not waiting");
}

#[tokio::test]
async fn an_event_that_comes_in_bits_is_one() {
    let bytes = whole("end_turn").concat().replace("Hel", "Hä€😀l").into_bytes();
    let server = HttpServer::start([stream(bytes.chunks(3)), stream(bytes.chunks(1))]);
    let rig = rig(&server);
    for _ in 0..2 {
        assert_eq!(rig.ask("x").await.unwrap().text(), "Hä€😀llo.");
    }
}

#[tokio::test]
async fn an_overload_is_waited_out_before_the_first_piece_and_told_after_it() {
    let overloaded = event("error", r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#);
    let server = HttpServer::start([
        stream([start(), overloaded.clone()]),
        json_answer(529, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#),
        stream(whole("end_turn")),
        stream([start() + &delta("half") + &overloaded]),
    ]);
    let rig = rig(&server);
    assert_eq!(rig.ask("x").await.unwrap().text(), "Hello.");
    assert_eq!(server.received().len(), 3);
    let mut answer = rig.model("").ask(&request("x")).await.unwrap();
    assert_eq!(answer.next().await.unwrap(), Some(Piece::Text("half".to_owned())));
    let error = answer.next().await.unwrap_err();
    assert_eq!(
        (error.kind, error.to_string().as_str()),
        (ErrorKind::Unavailable, "anthropic: the provider cannot answer: Overloaded")
    );
    assert_eq!(answer.next().await.unwrap(), None);
    assert_eq!(answer.usage().input_tokens, 16, "what was used is known all the same");
    assert_eq!(server.received().len(), 4);
}

#[tokio::test]
async fn errors_are_told_by_what_can_be_done_about_them() {
    let error = |kind: &str, message: &str| {
        format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}"}},"request_id":"r"}}"#)
    };
    let server = HttpServer::start([
        json_answer(401, &error("authentication_error", &format!("invalid x-api-key {KEY}"))),
        json_answer(403, &error("permission_error", "not yours")),
        json_answer(404, &error("not_found_error", "model: claude-x")),
        json_answer(400, &error("invalid_request_error", "messages: at least one message is required")),
        json_answer(400, &error("invalid_request_error", "prompt is too long: 300000 tokens > 200000 maximum")),
        json_answer(413, &error("request_too_large", "Request exceeds the maximum size")),
    ]);
    let rig = rig(&server);
    for (kind, said) in [
        (ErrorKind::Auth, "anthropic: the key was refused (401): invalid x-api-key …"),
        (ErrorKind::Auth, "anthropic: the key is not allowed to do this (403): not yours"),
        (ErrorKind::NotFound, "anthropic: there is no such model, or nothing at this URL (404): model: claude-x"),
        (ErrorKind::Invalid, "anthropic: the request was refused (400): messages: at least one message is required"),
        (
            ErrorKind::TooLarge,
            "anthropic: the request is too long for the model (400): prompt is too long: 300000 tokens > 200000 maximum",
        ),
        (
            ErrorKind::TooLarge,
            "anthropic: the request is too long for the model (413): Request exceeds the maximum size",
        ),
    ] {
        let error = rig.ask("x").await.unwrap_err();
        assert_eq!((error.kind, error.to_string().as_str()), (kind, said));
    }
    assert_eq!(server.received().len(), 6, "none of them passes");
}

#[tokio::test]
async fn an_answer_in_one_body_is_read_too_and_a_url_may_end_with_the_version() {
    let server = HttpServer::start([json_answer(
        200,
        r#"{"type":"message","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"One."},{"type":"text","text":" Two."}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":4}}"#,
    )]);
    let toml = format!(
        "default = \"mine/claude-y\"\n[providers.mine]\napi = \"anthropic\"\nurl = \"{}/proxy/v1/\"\n",
        server.url
    );
    let heard = Rig::new(&toml, &[]).ask("x").await.unwrap();
    let usage = Usage { input_tokens: 3, output_tokens: 4 };
    assert_eq!(heard, Heard { pieces: vec!["One.".to_owned(), " Two.".to_owned()], stop: Stop::Done, usage });
    assert_eq!(server.received()[0].line, "POST /proxy/v1/messages HTTP/1.1");
    assert_eq!(server.received()[0].header("x-api-key"), None);
}
