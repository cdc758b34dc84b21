//! What an operator's agents need beyond a URL and a token: cards that are kept, credentials that are asked for, headers, and a place that no
//! card overrules.

use std::{sync::Arc, time::Duration};

use client::{
    Client, ClientCredentials, Connector, Credential, Dialect, Error, FetchedCard, Limits, Options, Order, Policy,
    Secret, card_beside, card_well_known, fetch_card, parse_url, reply_text, user_message,
};
use http::{HeaderName, HeaderValue};

use crate::client::script::{Script, connector, held, json, options, rpc};

const DONE: &str = r#"{"task":{"id":"t","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"a","parts":[{"text":"done"}]}]}}"#;

fn card(url: &str) -> String {
    let card = serde_json::json!({
        "name": "n", "description": "d", "version": "1",
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"pushNotifications": true, "extensions": [{"uri": a2a::RESUME_CURSOR}]},
        "defaultInputModes": [], "defaultOutputModes": [], "skills": [],
    });
    card.to_string()
}

/// An answer with further headers.
fn with(answer: &str, headers: &str) -> String {
    answer.replacen("\r\n", &format!("\r\n{headers}\r\n"), 1)
}

async fn fetch(script: &Script, before: Option<&FetchedCard>) -> Result<FetchedCard, Error> {
    let places = card_well_known(&parse_url(&script.url).unwrap());
    fetch_card(&connector(), &places, &options(), before).await
}

fn header(name: &'static str, value: &'static str) -> (HeaderName, HeaderValue) {
    (HeaderName::from_static(name), HeaderValue::from_static(value))
}

#[tokio::test]
async fn a_card_is_kept_as_http_says() {
    let script = Script::start(|url| {
        vec![
            with(
                &json(200, &card(url)),
                "etag: \"1\"\r\nlast-modified: Sun, 06 Nov 1994 08:49:37 GMT\r\ncache-control: max-age=60",
            ),
            with(&json(304, ""), "cache-control: no-cache"),
            with(&json(304, ""), "etag: \"2\""),
            with(&json(200, &card(url)), "cache-control: no-store\r\netag: \"3\""),
            json(200, &card(url)),
        ]
    });
    let first = fetch(&script, None).await.unwrap();
    assert!(first.is_fresh());
    let second = fetch(&script, Some(&first)).await.unwrap();
    assert!(!second.is_fresh(), "an answer that it still holds says for how long");
    assert_eq!(second.found.card, first.found.card);
    let third = fetch(&script, Some(&second)).await.unwrap();
    let fourth = fetch(&script, Some(&third)).await.unwrap();
    assert!(!fourth.is_fresh());
    fetch(&script, Some(&fourth)).await.unwrap();
    let tags: Vec<Option<String>> = script.received().iter().map(|seen| seen.header("if-none-match")).collect();
    let tag = |text: &str| Some(text.to_owned());
    assert_eq!(tags, [None, tag("\"1\""), tag("\"1\""), tag("\"2\""), None]);
    assert_eq!(script.received()[1].header("if-modified-since").as_deref(), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
}

#[tokio::test]
async fn a_card_is_looked_for_in_one_place_after_the_other() {
    let script = Script::start(|url| vec![json(404, "{}"), json(200, &card(url)), json(404, "{}"), json(200, "[]")]);
    let found = fetch(&script, None).await.unwrap();
    assert!(found.found.url.as_str().ends_with("/.well-known/agent.json"), "{}", found.found.url);
    assert!(!found.is_fresh(), "nothing was said about keeping it");
    let error = fetch(&script, None).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("agent-card.json: ") && text.contains("agent.json: malformed"), "{text}");
    assert_eq!(error.http_status(), Some(404));
    let lines: Vec<String> = script.received().iter().map(|seen| seen.line.clone()).collect();
    assert!(lines[0].starts_with("GET /.well-known/agent-card.json"), "{lines:?}");
    assert!(lines[1].starts_with("GET /.well-known/agent.json"), "{lines:?}");

    let beside = Script::start(|_| vec![json(500, "{}")]);
    let places = card_beside(&parse_url(&beside.url).unwrap());
    let error = fetch_card(&connector(), &places, &options(), None).await.unwrap_err();
    assert!(matches!(&error, Error::Protocol(_)) && error.http_status() == Some(500), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_asked_once() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let places = card_well_known(&parse_url(&format!("http://{closed}/a2a")).unwrap());
    let error = fetch_card(&connector(), &places, &options(), None).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }) && error.never_sent() && error.is_passing(), "{error}");
}

#[tokio::test]
async fn an_agent_is_called_where_the_operator_says() {
    let script = Script::start(|_| vec![json(200, &card("http://192.0.2.1:1/elsewhere")), json(200, &rpc(DONE))]);
    let at = parse_url(&format!("{}/a2a/x?k=1", script.url)).unwrap();
    let options = Options { at: Some(at), order: Order::Card, ..options() };
    let client = script.client(options).await.unwrap();
    assert!(client.pushes() && client.resumes() && !client.streams());
    let reply = client.send(user_message("m", "hi")).await.unwrap();
    assert_eq!(reply_text(&reply.value).as_deref(), Some("done"));
    assert!(script.received()[1].line.starts_with("POST /a2a/x?k=1 "), "{}", script.received()[1].line);
}

#[tokio::test]
async fn headers_are_said_with_every_call_and_once() {
    let script = Script::start(|url| vec![json(200, &card(url)), json(200, &rpc(DONE)), json(200, &rpc(DONE))]);
    let options = Options {
        credential: Some(Credential::Header { name: HeaderName::from_static("x-api-key"), value: Secret::new("k-1") }),
        headers: vec![header("x-team", "a"), header("x-correlation-id", "old"), header("x-api-key", "wrong")],
        ..options()
    };
    let client = script.client(options).await.unwrap();
    let more = vec![header("x-correlation-id", "c-1"), header("a2a-version", "7")];
    client.with_headers(more).send(user_message("m", "hi")).await.unwrap();
    client.send(user_message("m", "hi")).await.unwrap();
    let seen = script.received();
    for (number, version, correlation) in [(0, "1.0", "old"), (1, "7", "c-1"), (2, "1.0", "old")] {
        let one = |name: &str| seen[number].header(name).unwrap();
        assert_eq!((one("x-team").as_str(), one("x-api-key").as_str()), ("a", "k-1"), "{}", seen[number].headers);
        assert_eq!((one("a2a-version").as_str(), one("x-correlation-id").as_str()), (version, correlation));
        assert_eq!(seen[number].headers.matches("x-api-key").count(), 1, "{}", seen[number].headers);
        assert_eq!(seen[number].headers.matches("a2a-version").count(), 1, "{}", seen[number].headers);
        assert_eq!(seen[number].header("authorization"), None);
    }
}

#[tokio::test]
async fn an_agent_without_a_card_is_called_in_the_dialect_that_is_given() {
    let task = r#"{"kind":"task","id":"t","contextId":"c","status":{"state":"completed"}}"#;
    let script = Script::start(|_| vec![json(200, &rpc(task)), json(200, &rpc(task)), json(200, &rpc(DONE))]);
    let at = parse_url(&format!("{}/rpc", script.url)).unwrap();
    let options = options();
    let old = Client::without_card(connector(), at.clone(), Dialect::V03, options.clone());
    old.send(user_message("m", "hi")).await.unwrap();
    old.with_headers(vec![header("a2a-version", "1.0")]).send(user_message("m", "hi")).await.unwrap();
    let new = Client::without_card(connector(), at, Dialect::V1, options);
    new.send(user_message("m", "hi")).await.unwrap();
    assert!(!old.streams() && !old.pushes() && !old.resumes());
    let seen = script.received();
    let versions: Vec<Option<String>> = seen.iter().map(|seen| seen.header("a2a-version")).collect();
    assert_eq!(versions, [None, Some("1.0".to_owned()), Some("1.0".to_owned())]);
    for (number, method) in [(0, "message/send"), (1, "message/send"), (2, "SendMessage")] {
        assert!(seen[number].line.starts_with("POST /rpc ") && seen[number].body.contains(method));
    }
}

/// Servers call agents from many threads.
#[test]
fn calls_can_be_made_on_any_thread() {
    fn is_send<T: Send>(_: &T) {}
    let url = parse_url("http://127.0.0.1:1").unwrap();
    let client = Client::without_card(connector(), url.clone(), Dialect::V1, options());
    is_send(&client.send(user_message("m", "hi")));
    is_send(&async { client.stream(user_message("m", "hi")).await.unwrap().next().await });
    is_send(&fetch_card(&connector(), &[url], &options(), None));
}

fn granting(script: &Script) -> Options {
    let url = parse_url(&format!("{}/token", script.url)).unwrap();
    let credentials = ClientCredentials::new(url, "id".to_owned(), Secret::new("secret"), Some("a b".to_owned()));
    Options { credential: Some(Credential::ClientCredentials(Arc::new(credentials))), ..options() }
}

fn grant(token: &str) -> String {
    json(200, &format!(r#"{{"access_token":"{token}","token_type":"Bearer","expires_in":3600}}"#))
}

fn without_card(script: &Script, options: Options) -> Client {
    Client::without_card(connector(), parse_url(&script.url).unwrap(), Dialect::V1, options)
}

#[tokio::test]
async fn a_token_is_asked_for_once() {
    let done = || json(200, &rpc(DONE));
    let script = Script::start(|_| vec![grant("t-1"), done(), done(), done()]);
    let client = without_card(&script, granting(&script));
    let send = || async { client.send(user_message("m", "hi")).await.unwrap() };
    tokio::join!(send(), send(), send());
    let seen = script.received();
    assert!(seen[0].line.starts_with("POST /token ") && seen[0].body == "grant_type=client_credentials&scope=a+b");
    assert_eq!(seen[0].header("authorization").as_deref(), Some("Basic aWQ6c2VjcmV0"));
    for call in &seen[1..] {
        assert_eq!(call.header("authorization").as_deref(), Some("Bearer t-1"));
    }
    assert_eq!(seen.len(), 4);
}

#[tokio::test]
async fn a_token_that_is_refused_is_asked_for_once_more() {
    let refused = || json(401, "{}");
    let script = Script::start(|_| {
        vec![grant("t-1"), refused(), grant("t-2"), json(200, &rpc(DONE)), refused(), grant("t-3"), refused()]
    });
    let client = without_card(&script, granting(&script));
    client.send(user_message("m", "hi")).await.unwrap();
    let error = client.send(user_message("m", "hi")).await.unwrap_err();
    assert!(matches!(error, Error::Auth(_)) && error.http_status() == Some(401) && !error.never_sent(), "{error}");
    let seen = script.received();
    let tokens: Vec<String> = seen.iter().filter_map(|seen| seen.header("authorization")).collect();
    let basic = "Basic aWQ6c2VjcmV0";
    let calls = ["Bearer t-1", basic, "Bearer t-2", "Bearer t-2", basic, "Bearer t-3"];
    assert_eq!(tokens[1..], calls);
}

#[tokio::test]
async fn a_token_that_is_not_granted_is_an_error_of_its_own() {
    let script = Script::start(|_| vec![json(401, r#"{"error":"invalid_client"}"#), json(503, "{}")]);
    let client = without_card(&script, granting(&script));
    let error = client.send(user_message("m", "hi")).await.unwrap_err();
    assert!(matches!(error, Error::Grant { .. }) && error.never_sent() && !error.is_passing(), "{error}");
    let error = client.send(user_message("m", "hi")).await.unwrap_err();
    assert!(error.never_sent() && error.is_passing(), "{error}");
}

#[tokio::test]
async fn the_answer_of_a_token_endpoint_is_bounded() {
    let long = format!(r#"{{"access_token":"t","error":"no","more":"{}"}}"#, "x".repeat(64 << 10));
    let script = Script::start(|_| vec![json(200, &long), json(503, &long)]);
    let client = without_card(&script, granting(&script));
    let error = client.send(user_message("m", "hi")).await.unwrap_err();
    let Error::Grant { source, .. } = &error else { panic!("{error}") };
    assert!(matches!(**source, Error::TooLarge { cap: 65536 }) && !error.is_passing(), "{error}");
    let error = client.send(user_message("m", "hi")).await.unwrap_err();
    assert!(matches!(error, Error::Grant { .. }) && error.is_passing(), "{error}");
    assert!(!error.chain().contains("xxx"), "{error}");
}

#[tokio::test]
async fn a_body_that_drips_and_an_event_that_is_too_long_are_cut_off() {
    let drip = with(&json(200, "{}").replace("content-length: 2", "content-length: 9"), "x-held: yes");
    let script = Script::start(|_| vec![drip, held(&[format!("data: {}\n\n", "x".repeat(600))])]);
    let limits = Limits { idle_timeout: Some(Duration::from_millis(300)), event_cap: 500, ..Limits::default() };
    let connector = Connector::new(Policy::Operator, limits);
    let client = Client::without_card(connector, parse_url(&script.url).unwrap(), Dialect::V1, options());
    let error = client.send(user_message("m", "hi")).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }) && !error.never_sent(), "{error}");
    let mut stream = client.stream(user_message("m", "hi")).await.unwrap();
    assert!(matches!(stream.next().await, Some(Err(Error::TooLarge { cap: 500 }))));
}
