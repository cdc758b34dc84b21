//! Asking again, and not asking any more.

use std::{
    sync::Arc,
    time::{Duration, Instant, UNIX_EPOCH},
};

use agents::model::{ErrorKind, Options};

use crate::models::rig::{Rig, hear, request};
use testkit::http_server::{HttpServer, Step, answer, stream};

fn rig(server: &HttpServer, circuit: Duration) -> Rig {
    let toml = format!("default = \"p/m\"\n[providers.p]\napi = \"openai\"\nurl = \"{}\"\n", server.url);
    Rig::with(&toml, &[], |options| Options { circuit, ..options })
}

fn fine() -> Vec<Step> {
    stream(["data: {\"choices\":[{\"delta\":{\"content\":\"fine\"}}]}\n\ndata: [DONE]\n\n"])
}

fn refused(status: u16, headers: &str) -> Vec<Step> {
    answer(status, headers, "<html><head><title>Oops</title></head></html>")
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn what_passes_is_asked_up_to_four_times() {
    for status in [429, 500, 502, 503, 504, 529] {
        let server = HttpServer::start([refused(status, ""), refused(status, ""), refused(status, ""), fine()]);
        assert_eq!(rig(&server, LONG).ask("x").await.unwrap().text(), "fine", "{status}");
        assert_eq!(server.received().len(), 4);
        let server = HttpServer::start((0..5).map(|_| refused(status, "")));
        let error = rig(&server, LONG).ask("x").await.unwrap_err();
        assert_eq!((server.received().len(), error.status()), (4, Some(status)));
        assert!(
            error.to_string().ends_with(&format!("({status}): an HTML page with the title `Oops` (after 4 attempts)")),
            "{error}"
        );
        assert_eq!(error.kind, if status == 429 { ErrorKind::RateLimited } else { ErrorKind::Unavailable });
    }
}

#[tokio::test]
async fn the_provider_says_when_to_come_back() {
    let server =
        HttpServer::start([refused(429, "retry-after: 1\r\n"), refused(503, "retry-after-ms: 300\r\n"), fine()]);
    let begun = Instant::now();
    rig(&server, LONG).ask("x").await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(1300), "{:?}", begun.elapsed());

    // A date has whole seconds, so that two of them are at least one.
    let now = UNIX_EPOCH + Duration::from_millis(store::clock::now().as_millis().unsigned_abs());
    let date = |seconds| format!("retry-after: {}\r\n", httpdate::fmt_http_date(now + Duration::from_secs(seconds)));
    let server = HttpServer::start([refused(429, &date(2)), fine(), refused(429, &date(3600))]);
    let begun = Instant::now();
    let rig = rig(&server, LONG);
    rig.ask("x").await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
    let error = rig.ask("x").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::RateLimited);
    assert!(error.to_string().contains("it wants to be asked again in 35"), "{error}");
    assert!(error.retry_after().unwrap() > Duration::from_secs(3500));
    assert_eq!(server.received().len(), 3, "nobody waits for an hour");
}

#[tokio::test]
async fn whoever_fails_too_often_is_left_alone_for_a_while() {
    let circuit = Duration::from_millis(1500);
    let mut plays: Vec<Vec<Step>> = (0..5).map(|_| refused(500, "")).collect();
    plays.extend([refused(500, ""), fine(), fine()]);
    let server = HttpServer::start(plays);
    let rig = rig(&server, circuit);
    assert_eq!(rig.ask("x").await.unwrap_err().kind, ErrorKind::Unavailable);
    let error = rig.ask("x").await.unwrap_err();
    assert_eq!(
        (error.kind, server.received().len()),
        (ErrorKind::Unavailable, 5),
        "the fifth failure ends the attempts"
    );
    let error = rig.ask("x").await.unwrap_err();
    assert_eq!((error.kind, error.kind.code(), server.received().len()), (ErrorKind::CircuitOpen, "circuit_open", 5));
    assert!(error.to_string().starts_with("p: too many calls have failed"), "{error}");
    assert_eq!(rig.models.providers()[0].circuit, "open");
    tokio::time::sleep(circuit).await;
    assert_eq!(rig.ask("x").await.unwrap_err().kind, ErrorKind::Unavailable, "one tries");
    assert_eq!((rig.ask("x").await.unwrap_err().kind, server.received().len()), (ErrorKind::CircuitOpen, 6));
    tokio::time::sleep(circuit).await;
    assert_eq!(rig.ask("x").await.unwrap().text(), "fine");
    assert_eq!(rig.models.providers()[0].circuit, "closed");
    rig.ask("x").await.unwrap();
}

#[tokio::test]
async fn who_breaks_a_provider_closes_nobody_elses_way_to_it() {
    let mut plays: Vec<Vec<Step>> = (0..5).map(|_| refused(500, "")).collect();
    plays.push(fine());
    let server = HttpServer::start(plays);
    let rig = rig(&server, LONG);
    rig.ask("x").await.unwrap_err();
    rig.ask("x").await.unwrap_err();
    assert_eq!(rig.ask("x").await.unwrap_err().kind, ErrorKind::CircuitOpen);
    assert_eq!(rig.models.providers()[0].circuit, "open");
    let other = rig.models.find("", "another").unwrap();
    assert_eq!(hear(other.ask(&request("x")).await.unwrap()).await.unwrap().text(), "fine");
}

#[tokio::test]
async fn whoever_refuses_is_there() {
    let server = HttpServer::start((0..8).map(|_| refused(400, "")));
    let rig = rig(&server, LONG);
    for _ in 0..8 {
        assert_eq!(rig.ask("x").await.unwrap_err().kind, ErrorKind::Invalid);
    }
    assert_eq!(rig.models.providers()[0].circuit, "closed");
}

#[tokio::test]
async fn many_are_asked_at_once() {
    let server = HttpServer::start((0..40).map(|_| fine()));
    let rig = Arc::new(rig(&server, LONG));
    let asks: Vec<_> = (0..40)
        .map(|_| {
            let model = rig.model("");
            tokio::spawn(async move { crate::models::rig::hear(model.ask(&request("x")).await?).await })
        })
        .collect();
    for ask in asks {
        assert_eq!(ask.await.unwrap().unwrap().text(), "fine");
    }
}
