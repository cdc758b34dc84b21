//! Replies from a file.

use std::{
    fs,
    time::{Duration, Instant},
};

use agents::model::{ErrorKind, Message, Piece, Request, Stop, Usage};

use crate::models::rig::{Rig, hear, request};

#[tokio::test]
async fn the_first_reply_that_fits_answers() {
    let rig = Rig::scripted(
        r#"{"replies": [
            {"match": "weather", "model": "small", "text": "too small"},
            {"match": "weather", "text": ["Sunny", "", " in {{input}}"]},
            {"match": "long", "text": "and", "stop": "length", "usage": {"input_tokens": 7, "output_tokens": 8}},
            {"match": "odd", "text": "", "stop": "refusal"},
            {"match": "again", "echo": true}
        ]}"#,
    );
    let heard = rig.ask("the weather").await.unwrap();
    assert_eq!(heard.pieces, ["Sunny", " in the weather"]);
    assert_eq!((heard.stop, heard.usage), (Stop::Done, Usage { input_tokens: 2, output_tokens: 4 }));
    let small = rig.model("offline/small").ask(&request("the weather")).await.unwrap();
    assert_eq!(hear(small).await.unwrap().text(), "too small");
    let heard = rig.ask("long").await.unwrap();
    assert_eq!((heard.stop, heard.usage), (Stop::Length, Usage { input_tokens: 7, output_tokens: 8 }));
    let heard = rig.ask("odd").await.unwrap();
    assert_eq!((heard.pieces.len(), heard.stop), (0, Stop::Other("refusal".to_owned())));
    assert_eq!(rig.ask("again and again").await.unwrap().text(), "again and again");
    let error = rig.ask("nothing that fits").await.unwrap_err();
    assert_eq!((error.kind, error.kind.is_passing()), (ErrorKind::Invalid, false));
    assert_eq!(error.to_string(), "offline: no scripted reply fits model `any` and what was said");
}

#[tokio::test]
async fn the_last_words_of_the_user_count() {
    let rig = Rig::scripted(r#"{"replies": [{"match": "second", "text": "2"}, {"text": "1"}]}"#);
    let messages = vec![Message::user("first"), Message::assistant("second"), Message::user("third")];
    let request = Request { messages, ..request("") };
    assert_eq!(hear(rig.model("").ask(&request).await.unwrap()).await.unwrap().text(), "1");
}

#[tokio::test]
async fn a_delay_comes_before_each_piece_and_whoever_waits_twice_waits_once() {
    let rig = Rig::scripted(r#"{"replies": [{"text": ["a", "b"], "delay": "500ms"}]}"#);
    let begun = Instant::now();
    let mut answer = rig.model("").ask(&request("x")).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(500), "the first piece is waited for");
    assert_eq!(answer.next().await.unwrap(), Some(Piece::Text("a".to_owned())));
    let again = Instant::now();
    let impatient = tokio::time::timeout(Duration::from_millis(400), answer.next()).await;
    assert!(impatient.is_err());
    assert_eq!(answer.next().await.unwrap(), Some(Piece::Text("b".to_owned())));
    assert!(again.elapsed() < Duration::from_millis(850), "{:?}", again.elapsed());
}

#[tokio::test]
async fn errors_are_tried_again_like_those_of_others() {
    let rig = Rig::scripted(
        r#"{"log": "asked.jsonl", "replies": [
            {"match": "busy", "once": true, "error": {"status": 429, "retry_after": 0}},
            {"match": "busy", "once": true, "error": {"status": 503}},
            {"match": "busy", "text": "at last"},
            {"match": "key", "error": {"status": 401, "message": "who are you"}},
            {"match": "cut", "text": "half", "error": {"status": 500}}
        ]}"#,
    );
    assert_eq!(rig.ask("busy").await.unwrap().text(), "at last");
    let error = rig.ask("key").await.unwrap_err();
    assert_eq!(error.to_string(), "offline: the key was refused (401): who are you");
    assert_eq!((error.kind, error.status(), error.kind.code()), (ErrorKind::Auth, Some(401), "auth_failed"));
    let mut answer = rig.model("").ask(&request("cut")).await.unwrap();
    assert_eq!(answer.next().await.unwrap(), Some(Piece::Text("half".to_owned())));
    assert_eq!(answer.next().await.unwrap_err().kind, ErrorKind::Unavailable, "what was said is not said again");
    assert_eq!(answer.next().await.unwrap(), None);
    let log = fs::read_to_string(rig.dir.join("asked.jsonl")).unwrap();
    let log: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let count = |event: &str| log.iter().filter(|line| line["event"] == event).count();
    assert_eq!((count("begun"), count("completed"), count("failed")), (5, 1, 4));
    assert_eq!(log[0]["messages"][0]["content"][0]["text"], "busy");
}

#[tokio::test]
async fn the_file_is_read_when_it_changes_and_stays_when_it_breaks() {
    let rig = Rig::scripted(r#"{"replies": [{"text": "one"}]}"#);
    assert_eq!(rig.ask("x").await.unwrap().text(), "one");
    rig.write("replies.json", r#"{"replies": [{"text": "two, and longer"}]}"#);
    assert_eq!(rig.ask("x").await.unwrap().text(), "two, and longer");
    rig.write("replies.json", r#"{"replies": [{"txt": "three"}]}"#);
    assert_eq!(rig.ask("x").await.unwrap().text(), "two, and longer");
    let said = rig.models.providers()[0].error.clone().unwrap();
    assert!(said.starts_with("`replies.json`: `replies[0].txt`: unknown field `txt`"), "{said}");
    rig.write("replies.json", r#"{"replies": [{"echo": true, "text": "both"}]}"#);
    let said = rig.models.providers()[0].error.clone().unwrap();
    assert_eq!(
        said,
        "`replies.json`: `replies[0]`: one of `text`, `echo` and `error` is required, and `text` may come before `error`"
    );
}

#[tokio::test]
async fn a_file_that_is_not_there_is_told_to_whoever_asks() {
    let rig =
        Rig::new("default = \"offline/any\"\n[providers.offline]\napi = \"scripted\"\nfile = \"replies.json\"\n", &[]);
    assert_eq!(
        rig.unset(""),
        "model `offline/any` needs the provider `offline`, which cannot be asked: `replies.json`: cannot be read: \
         No such file or directory (os error 2)"
    );
    rig.write("replies.json", r#"{"replies": [{"text": "here"}]}"#);
    assert_eq!(rig.ask("x").await.unwrap().text(), "here");
}

#[tokio::test]
async fn the_files_are_watched() {
    let rig = Rig::scripted(r#"{"replies": [{"text": "one"}]}"#);
    rig.models.start();
    fs::write(rig.dir.join("replies.json"), r#"{"replies": [{"text": "another"}]}"#).unwrap();
    let begun = Instant::now();
    while rig.ask("x").await.unwrap().text() != "another" {
        assert!(begun.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_instant_reply_costs_microseconds() {
    let rig = Rig::scripted(r#"{"replies": [{"match": "no", "text": "no"}, {"text": "Hello {{input}}."}]}"#);
    let request = Request { system: "You are somebody. ".repeat(50), ..request("there") };
    let begun = Instant::now();
    const CALLS: u32 = 10_000;
    for _ in 0..CALLS {
        let heard = hear(rig.model("").ask(&request).await.unwrap()).await.unwrap();
        assert_eq!(heard.pieces.len(), 1);
    }
    // A debug build on a busy machine; what is asserted is that nothing is read and nobody sleeps.
    assert!(begun.elapsed() / CALLS < Duration::from_micros(500), "{:?} a call", begun.elapsed() / CALLS);
}
