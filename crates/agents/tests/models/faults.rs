//! Providers that are broken, each in its own way.

use std::time::{Duration, Instant};

use agents::model::{Error, ErrorKind, Piece};

use crate::models::rig::{Rig, request};
use testkit::http_server::{HttpServer, Step, answer, chunk, end, head, head_of, stream};

const TIMEOUT: Duration = Duration::from_millis(600);

fn rig(server: &HttpServer) -> Rig {
    rig_at(&server.url)
}

fn rig_at(url: &str) -> Rig {
    let toml = format!(
        "default = \"p/m\"\n[providers.p]\napi = \"openai\"\nurl = \"{url}\"\nkey_env = \"KEY\"\ntimeout = \"600ms\"\n"
    );
    Rig::new(&toml, &[("KEY", "very-secret-key")])
}

fn delta(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
}

fn whole() -> Vec<Vec<u8>> {
    vec![delta("fine").into_bytes(), b"data: [DONE]\n\n".to_vec()]
}

/// What is said of a server that does this.
async fn broken(play: Vec<Step>) -> (Error, usize) {
    let server = HttpServer::start([play]);
    let error = rig(&server).ask("x").await.expect_err("it is broken");
    assert!(!format!("{error:?} {error}").contains("very-secret"), "{error:?}");
    (error, server.received().len())
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_is_broken_and_not_asked_for_again() {
    let page = "<html><head><title>Welcome to nginx!</title></head></html>";
    let mut giant = b"data: ".to_vec();
    giant.resize(5 << 20, b'x');
    let cases: Vec<(Vec<Step>, &str)> = vec![
        (
            answer(200, "content-type: text/html\r\n", page),
            "p: the answer (200) comes as text/html instead of a stream; is the URL right?: an HTML page with the title `Welcome to nginx!`",
        ),
        (
            answer(200, "", "hello"),
            "p: the answer (200) comes without a content type instead of a stream; is the URL right?: hello",
        ),
        (
            answer(200, "content-type: application/octet-stream\r\n", [0xff, 0xfe, 0x00]),
            "p: the answer (200) comes as application/octet-stream instead of a stream; is the URL right?: \u{fffd}\u{fffd}",
        ),
        (
            answer(204, "", ""),
            "p: the answer (204) comes without a content type instead of a stream; is the URL right?",
        ),
        (
            answer(200, "content-type: text/event-stream\r\ncontent-encoding: gzip\r\n", "x"),
            "p: the answer is compressed (gzip) although nobody asked for that",
        ),
        (
            answer(200, "content-type: application/json\r\n", "{\"choices\": ["),
            "p: the answer makes no sense: EOF while parsing a list at line 1 column 13: {\"choices\": [",
        ),
        (
            stream(["data: {\"choices\": [}\n\n"]),
            "p: the answer makes no sense: expected value at line 1 column 14: {\"choices\": [}",
        ),
        (
            stream([&b"data: {\"choices\":[{\"delta\":{\"content\":\"\xc3\x28\"}}]}\n\n"[..]]),
            "p: the answer is not UTF-8 text",
        ),
        (vec![head(), chunk(giant), Step::AwaitClose], "p: an event is larger than 4194304 bytes"),
        (
            answer(302, "location: http://127.0.0.1:9/\r\n", ""),
            "p: the answer is a redirect, and none is followed (302)",
        ),
    ];
    for (play, said) in cases {
        let (error, asked) = broken(play).await;
        assert_eq!((error.kind, error.to_string().as_str(), asked), (ErrorKind::Broken, said, 1));
        assert!(!error.kind.is_passing());
        assert_eq!(error.kind.code(), "provider_error");
    }
}

#[tokio::test]
async fn silence_ends_with_the_timeout_wherever_it_comes() {
    let begun = Instant::now();
    for play in [
        vec![Step::AwaitClose],
        vec![head(), Step::AwaitClose],
        vec![head_of("application/json"), chunk("{"), Step::AwaitClose],
    ] {
        let (error, asked) = broken(play).await;
        assert_eq!((error.to_string().as_str(), asked), ("p: nothing was heard for 600ms", 1));
        assert_eq!(error.kind, ErrorKind::Unavailable);
    }
    assert!(begun.elapsed() >= TIMEOUT * 3);
    let server = HttpServer::start([vec![head(), chunk(delta("half")), chunk(": still here\n\n"), Step::AwaitClose]]);
    let mut answer = rig(&server).model("").ask(&request("x")).await.unwrap();
    assert_eq!(answer.next().await.unwrap(), Some(Piece::Text("half".to_owned())));
    assert_eq!(answer.next().await.unwrap_err().to_string(), "p: nothing was heard for 600ms");
    server.closed().await;
}

#[tokio::test]
async fn whoever_says_something_now_and_then_is_not_silent() {
    let mut slow = vec![head()];
    for n in 0..6 {
        slow.push(Step::Pause(TIMEOUT / 3));
        slow.push(chunk(if n == 5 { delta("fine") } else { ": ping\n\n".to_owned() }));
    }
    slow.extend([chunk("data: [DONE]\n\n"), end()]);
    let server = HttpServer::start([slow]);
    assert_eq!(rig(&server).ask("x").await.unwrap().text(), "fine");
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_asked_for_again_until_something_has_come() {
    let server = HttpServer::start([
        vec![Step::Close],
        vec![head(), Step::Close],
        stream([": nothing\n\n"]),
        stream(whole()),
        vec![head(), chunk(delta("half")), Step::Close],
        stream([delta("half")]),
    ]);
    let rig = rig(&server);
    assert_eq!(rig.ask("x").await.unwrap().text(), "fine");
    assert_eq!(server.received().len(), 4);
    for said in ["p: the connection broke before the answer's end: ", "p: the answer broke off before its end"] {
        let mut answer = rig.model("").ask(&request("x")).await.unwrap();
        assert_eq!(answer.next().await.unwrap(), Some(Piece::Text("half".to_owned())));
        let error = answer.next().await.unwrap_err();
        assert!(error.kind == ErrorKind::Unavailable && error.to_string().starts_with(said), "{error}");
        assert_eq!(answer.next().await.unwrap(), None);
    }
    assert_eq!(server.received().len(), 6);
}

#[tokio::test]
async fn whoever_is_not_there_is_named_with_the_cause() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = rig_at(&url).ask("x").await.unwrap_err();
    let said = error.to_string();
    assert!(said.starts_with("p: cannot be reached: ") && said.contains("refused"), "{said}");
    assert!(!said.contains("127.0.0.1"), "where it is nobody needs to know: {said}");
    assert!(said.ends_with("(after 4 attempts)"), "{said}");
    assert_eq!(error.kind, ErrorKind::Unavailable);
}

#[tokio::test]
async fn whoever_stops_listening_ends_the_call() {
    let server = HttpServer::start([vec![head(), chunk(delta("one")), Step::AwaitClose]]);
    let answer = rig(&server).model("").ask(&request("x")).await.unwrap();
    drop(answer);
    server.closed().await;

    let server = HttpServer::start([vec![Step::AwaitClose]]);
    let model = rig(&server).model("");
    let asked = tokio::time::timeout(TIMEOUT / 2, model.ask(&request("x"))).await;
    assert!(asked.is_err());
    server.closed().await;
}
