//! OpenAI's chat completions, and those who do it alike.

use agents::model::{Content, ErrorKind, Message, Piece, Request, Role, Stop, Usage};
use bytes::Bytes;
use serde_json::json;

use crate::models::rig::{Rig, hear, request};
use testkit::http_server::{HttpServer, Step, chunk, head, json as json_answer, stream};

fn toml(server: &HttpServer) -> String {
    let url = &server.url;
    format!(
        "default = \"gateway/vendor/model-1\"\n[providers.gateway]\napi = \"openai\"\nurl = \"{url}/v1\"\nkey_env = \"GATEWAY_KEY\"\nimages = true\ntimeout = \"2s\"\n"
    )
}

fn rig(server: &HttpServer) -> Rig {
    Rig::new(&toml(server), &[("GATEWAY_KEY", "sk-gateway-0123456789")])
}

fn data(json: &str) -> String {
    format!("data: {json}\n\n")
}

fn delta(text: &str) -> String {
    data(&format!(
        r#"{{"id":"c","object":"chat.completion.chunk","choices":[{{"index":0,"delta":{{"content":"{text}"}},"finish_reason":null}}]}}"#
    ))
}

fn finish(reason: &str) -> String {
    data(&format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}],"usage":null}}"#))
}

fn usage() -> String {
    data(r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}"#)
}

fn done() -> String {
    data("[DONE]")
}

fn whole() -> Vec<String> {
    vec![
        data(r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#),
        delta("Hel"),
        delta("lo."),
        finish("stop"),
        usage(),
        done(),
    ]
}

#[tokio::test]
async fn an_answer_is_streamed_with_its_stop_and_its_usage() {
    let server = HttpServer::start([stream(whole())]);
    let rig = rig(&server);
    let image = Content::Image { media_type: "image/png".to_owned(), data: Bytes::from_static(b"png") };
    let messages = vec![Message { role: Role::User, content: vec![Content::Text("hi".to_owned()), image] }];
    let request = Request { system: "Be kind.".to_owned(), messages, max_tokens: 77, temperature: Some(0.5) };
    let model = rig.model("");
    assert_eq!((model.name(), model.takes_images()), ("gateway/vendor/model-1", true));
    let heard = hear(model.ask(&request).await.unwrap()).await.unwrap();
    assert_eq!((heard.pieces, heard.stop), (vec!["Hel".to_owned(), "lo.".to_owned()], Stop::Done));
    assert_eq!(heard.usage, Usage { input_tokens: 9, output_tokens: 4 });
    let seen = &server.received()[0];
    assert_eq!(seen.line, "POST /v1/chat/completions HTTP/1.1");
    assert_eq!(seen.header("authorization").as_deref(), Some("Bearer sk-gateway-0123456789"));
    assert_eq!((&seen.json()["model"], &seen.json()["max_tokens"]), (&json!("vendor/model-1"), &json!(77)));
    assert_eq!(seen.json()["stream_options"]["include_usage"], true);
    assert_eq!(seen.json()["messages"][1]["content"][1]["image_url"]["url"], "data:image/png;base64,cG5n");
}

#[tokio::test]
async fn servers_end_a_stream_in_many_ways() {
    let server = HttpServer::start([
        // Without a last word.
        stream([delta("a"), finish("length"), usage()]),
        // Without an end at all: the model has ended, and nobody waits for long.
        vec![head(), chunk(delta("a")), chunk(finish("stop")), Step::AwaitClose],
        // With a cut.
        vec![head(), chunk(delta("a")), chunk(finish("content_filter")), Step::Close],
        // Without a reason.
        stream([delta("a"), done()]),
        // With a usage that grows with each event, as some servers count, and a comment now and then.
        stream([
            ": OPENROUTER PROCESSING\n\n".to_owned(),
            data(
                r#"{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":9,"completion_tokens":1}}"#,
            ),
            data(
                r#"{"choices":[{"index":0,"delta":{"content":null},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2}}"#,
            ),
            done(),
        ]),
    ]);
    let rig = rig(&server);
    let mut stops = Vec::new();
    let mut used = Vec::new();
    for _ in 0..5 {
        let heard = rig.ask("x").await.unwrap();
        assert_eq!(heard.text(), "a");
        stops.push(heard.stop.as_str().to_owned());
        used.push(heard.usage.output_tokens);
    }
    assert_eq!(stops, ["length", "done", "content_filter", "done", "done"]);
    assert_eq!(used, [4, 0, 0, 0, 2]);
    assert_eq!(server.received().len(), 5);
}

#[tokio::test]
async fn an_answer_in_one_body_is_read_too() {
    let server = HttpServer::start([
        json_answer(
            200,
            r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"Whole."},"finish_reason":"length"}],"usage":{"prompt_tokens":2,"completion_tokens":3}}"#,
        ),
        json_answer(
            200,
            r#"{"choices":[{"index":0,"message":{"content":[{"type":"thinking","thinking":[]},{"type":"text","text":"Parts."}],"refusal":null},"finish_reason":"stop"}]}"#,
        ),
        json_answer(200, r#"{"choices":[{"message":{"content":null,"refusal":"No."},"finish_reason":"stop"}]}"#),
        json_answer(200, r#"{"object":"list"}"#),
        json_answer(200, r#"{"error":{"message":"Model overloaded","code":400}}"#),
    ]);
    let rig = rig(&server);
    let heard = rig.ask("x").await.unwrap();
    assert_eq!((heard.text().as_str(), &heard.stop, heard.usage.output_tokens), ("Whole.", &Stop::Length, 3));
    assert_eq!(rig.ask("x").await.unwrap().text(), "Parts.");
    assert_eq!(rig.ask("x").await.unwrap().text(), "No.");
    let error = rig.ask("x").await.unwrap_err();
    assert_eq!(error.to_string(), "gateway: the answer makes no sense: it has no `choices`: {\"object\":\"list\"}");
    let error = rig.ask("x").await.unwrap_err();
    assert_eq!(error.to_string(), "gateway: the request was refused: Model overloaded");
}

#[tokio::test]
async fn what_a_server_does_not_take_is_left_out_and_remembered() {
    let server = HttpServer::start([
        json_answer(
            400,
            r#"{"error":{"message":"Unrecognized request argument supplied: stream_options","type":"invalid_request_error","param":null}}"#,
        ),
        json_answer(
            400,
            r#"{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","type":"invalid_request_error","param":"max_tokens","code":"unsupported_parameter"}}"#,
        ),
        json_answer(
            400,
            r#"{"error":{"message":"Unsupported value: 'temperature' does not support 0.2 with this model.","param":"temperature","code":"unsupported_value"}}"#,
        ),
        stream(whole()),
        stream(whole()),
        stream(whole()),
        json_answer(400, r#"{"error":{"message":"stream_options again"}}"#),
    ]);
    let rig = rig(&server);
    let request = Request { temperature: Some(0.2), ..request("x") };
    for _ in 0..2 {
        hear(rig.model("").ask(&request).await.unwrap()).await.unwrap();
    }
    hear(rig.model("gateway/another").ask(&request).await.unwrap()).await.unwrap();
    let error = rig.model("").ask(&request).await.err().unwrap();
    assert_eq!(error.kind, ErrorKind::Invalid, "nobody asks for ever");
    let seen = server.received();
    let shape = |n: usize| {
        ["stream_options", "max_tokens", "max_completion_tokens", "temperature"]
            .map(|key| seen[n].json().get(key).is_some())
    };
    assert_eq!(shape(0), [true, true, false, true]);
    assert_eq!(shape(1), [false, true, false, true]);
    assert_eq!(shape(2), [false, false, true, true]);
    assert_eq!(shape(3), [false, false, true, false]);
    assert_eq!(shape(4), shape(3), "it is remembered");
    assert_eq!(shape(5), shape(0), "and only of this model");
    assert_eq!(seen.len(), 7);
}

#[tokio::test]
async fn an_error_inside_a_stream_is_one() {
    let server = HttpServer::start([
        stream([data(
            r#"{"error":{"code":502,"message":"Provider disconnected"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}"#,
        )]),
        stream(["event: error\ndata: {\"message\":\"slow down\",\"type\":\"rate_limit_error\"}\n\n"]),
        stream(whole()),
        stream([delta("half"), data(r#"{"error":{"message":"The server had an error","type":"server_error"}}"#)]),
        stream([data(r#"{"error":"model 'x' not found"}"#)]),
    ]);
    let rig = rig(&server);
    assert_eq!(rig.ask("x").await.unwrap().text(), "Hello.", "the first two passed");
    let mut answer = rig.model("").ask(&request("x")).await.unwrap();
    assert_eq!(answer.next().await.unwrap(), Some(Piece::Text("half".to_owned())));
    assert_eq!(
        answer.next().await.unwrap_err().to_string(),
        "gateway: the provider cannot answer: The server had an error"
    );
}

#[tokio::test]
async fn errors_are_told_by_what_can_be_done_about_them() {
    let server = HttpServer::start([
        json_answer(
            401,
            r#"{"error":{"message":"Incorrect API key provided: sk-gatew**********6789. You can find yours at https://o.example.","type":"invalid_request_error","code":"invalid_api_key"}}"#,
        ),
        json_answer(
            429,
            r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
        ),
        json_answer(
            400,
            r#"{"error":{"message":"This model's maximum context length is 8192 tokens.","code":"context_length_exceeded"}}"#,
        ),
        json_answer(404, r#"{"error":"model 'nope' not found, try pulling it first"}"#),
        json_answer(402, r#"{"error":{"message":"Insufficient credits","code":402}}"#),
    ]);
    let rig = rig(&server);
    for (kind, said) in [
        (
            ErrorKind::Auth,
            "gateway: the key was refused (401): Incorrect API key provided: sk-… You can find yours at https://o.example.",
        ),
        (ErrorKind::Auth, "gateway: the account cannot pay for this (429): You exceeded your current quota"),
        (
            ErrorKind::TooLarge,
            "gateway: the request is too long for the model (400): This model's maximum context length is 8192 tokens.",
        ),
        (
            ErrorKind::NotFound,
            "gateway: there is no such model, or nothing at this URL (404): model 'nope' not found, try pulling it first",
        ),
        (ErrorKind::Auth, "gateway: the account cannot pay for this (402): Insufficient credits"),
    ] {
        let error = rig.ask("x").await.unwrap_err();
        assert_eq!((error.kind, error.to_string().as_str()), (kind, said));
    }
    assert_eq!(server.received().len(), 5);
}

#[tokio::test]
async fn pictures_are_refused_where_nobody_sees_them() {
    let server = HttpServer::start([]);
    let toml = toml(&server).replace("images = true\n", "");
    let rig = Rig::new(&toml, &[("GATEWAY_KEY", "k")]);
    assert!(!rig.model("").takes_images());
    let messages = vec![Message { role: Role::User, content: vec![Content::ImageUrl("https://i.example".to_owned())] }];
    let error = rig.model("").ask(&Request { messages, ..request("") }).await.err().unwrap();
    assert_eq!(
        error.to_string(),
        "gateway: `gateway/vendor/model-1` takes no images; `images = true` says that it does"
    );
}
