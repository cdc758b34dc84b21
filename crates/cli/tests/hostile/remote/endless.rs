//! Interim responses without end, for the server and for the command line, and answers without end for the command line.

use std::{
    process::Output,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{MEMORY, Rig, SOON, TAKEN};
use crate::harness::{
    Home, failed,
    http::{state, text},
    remote::{Answer, BESIDE, Caller, Remote, Setup, Step, WELL_KNOWN, card_03, task_03},
};

/// Interim responses as fast as they are read.
fn flood() -> Answer {
    Answer::Raw(vec![Step::Forever(b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1000), Duration::ZERO)])
}

#[tokio::test]
async fn interim_responses_without_an_end_fail_the_call() {
    let rig = Rig::answering(flood()).await;
    let said = rig.task_fails("a message").await;
    assert!(said.contains("interim responses (1xx)"), "{said}");
    let said = rig.tool_fails("/a2a").await;
    assert!(said.contains("interim responses (1xx)"), "{said}");
    rig.lives("interim responses").await;
}

/// What calls with endless interim responses come to, and the longest time that an echo takes beside them.
async fn beside_echoes<T>(caller: &Caller, calls: impl Future<Output = T>) -> (T, Duration) {
    let mut longest = Duration::ZERO;
    let mut calls = std::pin::pin!(calls);
    let mut others = Box::pin(async {
        loop {
            let begun = Instant::now();
            caller.asks("echo", "hello").await;
            longest = longest.max(begun.elapsed());
        }
    });
    let done = tokio::select! {
        done = &mut calls => done,
        () = &mut others => unreachable!("they go on for ever"),
    };
    drop(others);
    (done, longest)
}

/// Cards are read on the threads that serve everybody.
#[tokio::test]
async fn a_card_behind_interim_responses_without_an_end_delays_nobody() {
    let remote = Remote::start().await;
    for path in [WELL_KNOWN, BESIDE] {
        remote.says(path, flood());
    }
    let rig = Rig::of(remote).await;
    let fetches = join_all((0..4).map(|_| rig.caller.a2a("card tool")));
    let (fetched, longest) = beside_echoes(&rig.caller, fetches).await;
    assert!(fetched.iter().all(|said| said.contains("interim responses (1xx)")), "{fetched:?}");
    assert!(longest < Duration::from_secs(5), "another call took {longest:?}");
    rig.server_lives("cards behind interim responses").await;
}

#[tokio::test]
async fn turns_of_a_remote_that_answers_with_interim_responses_without_an_end_fail_and_delay_nobody() {
    let rig = Rig::answering(flood()).await;
    let begun = Instant::now();
    let turns = join_all((0..4).map(|_| rig.caller.sends("bad", "work")));
    let (tasks, longest) = beside_echoes(&rig.caller, turns).await;
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    for task in tasks {
        assert_eq!(state(&task), "FAILED", "{task:#}");
        assert!(text(&task, "/status/message/parts/0/text").contains("interim responses (1xx)"), "{task:#}");
    }
    assert!(longest < Duration::from_secs(5), "another call took {longest:?}");
    rig.server_lives("turns behind interim responses").await;
}

#[tokio::test]
async fn turns_of_a_model_behind_interim_responses_without_an_end_fail_and_delay_nobody() {
    let provider = Remote::start().await;
    provider.says("/v1/chat/completions", flood());
    let models = format!(
        "default = \"gateway/m\"\n[providers.gateway]\napi = \"openai\"\nurl = \"{}/v1\"\nkey_env = \"GATEWAY_KEY\"\ntimeout = \"2s\"\n",
        provider.base
    );
    let helper = "kind = \"llm\"\n[llm]\nrole = \"helper\"\ngoal = \"help\"\n";
    let setup = Setup::new().file("models.toml", &models).file("agents/helper.toml", helper);
    let caller = setup.env("GATEWAY_KEY", "sk-gateway-0123456789").start().await;
    let before = caller.peak_memory();
    let begun = Instant::now();
    let turns = join_all((0..4).map(|_| caller.sends("helper", "work")));
    let (tasks, longest) = beside_echoes(&caller, turns).await;
    assert!(begun.elapsed() < SOON * 2, "{:?}", begun.elapsed());
    for task in tasks {
        assert_eq!(state(&task), "FAILED", "{task:#}");
        assert!(text(&task, "/status/message/parts/0/text").contains("interim responses (1xx)"), "{task:#}");
    }
    assert!(provider.calls().iter().any(|call| call.path == "/v1/chat/completions"), "{:?}", provider.calls());
    assert!(longest < Duration::from_secs(5), "another call took {longest:?}");
    let grown = caller.peak_memory().saturating_sub(before);
    assert!(grown < MEMORY, "the server has grown by {} MiB", grown >> 20);
}

/// A command against a remote that means no good. It gives up by itself, long before its timeout.
fn run(remote: &Remote, args: &[&str]) -> Output {
    let (home, url) = (Home::on_sqlite(), remote.base.as_str());
    let args = [args, &["--url", url, "--timeout", "30s"]].concat();
    tokio::task::block_in_place(|| home.run(&args))
}

#[tokio::test(flavor = "multi_thread")]
async fn interim_responses_without_an_end_fail_a_command() {
    let remote = Remote::with_card(card_03).await;
    remote.says("message/send", flood());
    let said = failed(&run(&remote, &["send", "hello"]), 1);
    assert!(said.contains("interim responses (1xx)"), "{said}");
    assert!(remote.said() < TAKEN, "{} MiB were listened to", remote.said() >> 20);
}

/// The size of a chunk has no bound of its own, and its digits are no body.
#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_size_without_an_end_does_not_outlast_the_timeout() {
    let remote = Remote::with_card(card_03).await;
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let digits = Step::Forever(vec![b'0'; 64 << 10], Duration::ZERO);
    remote.says("message/send", Answer::Raw(vec![Step::Bytes(head.to_vec()), digits]));
    let (home, url) = (Home::on_sqlite(), remote.base.as_str());
    let args = ["send", "hello", "--url", url, "--timeout", "2s"];
    failed(&tokio::task::block_in_place(|| home.run(&args)), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_an_end_fails_a_command() {
    let streaming = |url: &str| -> Value {
        let mut card = card_03(url);
        card["capabilities"]["streaming"] = json!(true);
        card
    };
    let remote = Remote::with_card(streaming).await;
    let artifact = json!({"artifactId": "a-1", "parts": [{"kind": "text", "text": "x".repeat(1 << 20)}]});
    let more =
        json!({"kind": "artifact-update", "taskId": "rt-1", "contextId": "rc-1", "artifact": artifact, "append": true});
    let begin = Step::Event(task_03("rt-1", "rc-1", "working", ""));
    let endless = || Answer::Stream(vec![begin.clone(), Step::Events(more.clone(), 1, Duration::ZERO)]);
    for args in [&["send", "hello"][..], &["send", "--stream", "hello"]] {
        remote.says("message/stream", endless());
        let said = failed(&run(&remote, args), 1);
        assert!(said.contains("the answer is larger than 67108864 bytes"), "{args:?}: {said}");
    }
    remote.says("message/stream", endless());
    let (home, url) = (Home::on_sqlite(), remote.base.as_str());
    let chatted = tokio::task::block_in_place(|| home.pipe(&["chat", "--url", url, "--timeout", "30s"], "hello\n"));
    let said = [chatted.stdout, chatted.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("the answer is larger than 67108864 bytes"), "{:.2000}", said.replace("xx", ""));
}
