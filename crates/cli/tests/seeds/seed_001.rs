//! Seed 001, calling out: the agents of `a2a_agents.json`, what they get to see, and what `/a2a` says to an agent that asks for them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{
    TOKEN,
    remote::{
        Answer, Asked, BESIDE, Caller, LEGACY, Remote, Setup, WELL_KNOWN, card_03, card_10, task_03, task_10, unframed,
    },
};

/// What a remote of this registry may be told in headers.
const HEADERS: [&str; 9] = [
    "host",
    "content-type",
    "content-length",
    "accept",
    "accept-encoding",
    "user-agent",
    "connection",
    "authorization",
    "a2a-version",
];

/// The card that Arbiter has: labelled 1.0, in the form of 0.3.
fn arbiters_card(url: &str) -> Value {
    let mut card = card_03(url);
    card["protocolVersion"] = json!("1.0");
    card
}

/// A remote that answers every message with this text.
async fn answering(text: &str) -> Remote {
    let remote = Remote::with_card(arbiters_card).await;
    remote.says("message/send", Answer::Result(task_03("t-1", "c-1", "completed", text)));
    remote
}

fn bot(remote: &Remote) -> Value {
    json!({"weatherbot": {"url": remote.agent(), "auth": {"token": "tok-inline"}}})
}

/// A server that has this remote in its registry and has done what it does by itself.
async fn caller_of(remote: &Remote) -> Caller {
    let caller = Setup::new().json(&bot(remote)).start().await;
    caller.remote_when("weatherbot", |remote| remote["registry"] == "a2a_agents.json").await;
    caller
}

#[tokio::test]
async fn s1_1_s1_4_x_31_the_registry_is_a_file_that_can_be_moved() {
    let remote = answering("sunny").await;
    let registry = json!({"agents": {"weatherbot": {"url": remote.agent()}}}).to_string();
    for by_flag in [true, false] {
        let setup = Setup::new();
        let moved = setup.home().write("elsewhere/remotes.json", &registry);
        let setup = match by_flag {
            true => setup.argument("--a2a-agents").argument(&moved),
            false => setup.env("SB_A2A_AGENTS", &moved),
        };
        let caller = setup.start().await;
        assert!(caller.a2a("list").await.contains("weatherbot"), "by a flag: {by_flag}");
    }
    // Its place is beside the configuration where nobody says otherwise.
    let caller = Setup::new().file("a2a_agents.json", &registry).start().await;
    assert_eq!(caller.a2a("call weatherbot hello").await, "sunny");
}

#[tokio::test]
async fn s1_2_without_a_file_there_are_no_remote_agents() {
    let caller = Setup::new().start().await;
    assert_eq!(caller.a2a("list").await, "no remote agents configured");
    let empty = Setup::new().json(&json!({})).start().await;
    assert_eq!(empty.a2a("list").await, "no remote agents configured");
}

#[tokio::test]
async fn s1_3_s1_5_s1_6_what_is_wrong_with_the_file_is_in_the_log_and_requests_are_served() {
    let entry = |entry: Value| json!({"agents": {"weatherbot": entry}}).to_string();
    let url = "http://127.0.0.1:9/a2a";
    for (content, words) in [
        ("{\"agents\": {".to_owned(), vec!["a2a_agents.json"]),
        ("[]".to_owned(), vec!["a2a_agents.json"]),
        (entry(json!({"auth": {"token": "x"}})), vec!["a2a_agents.json", "weatherbot", "url"]),
        (entry(json!({"url": 7})), vec!["a2a_agents.json", "weatherbot"]),
        (entry(json!({"url": "ftp://example.com/"})), vec!["a2a_agents.json", "weatherbot"]),
        (entry(json!({"url": url, "auth": {"type": "basic"}})), vec!["a2a_agents.json", "weatherbot", "basic"]),
    ] {
        let caller = Setup::new().file("a2a_agents.json", &content).start().await;
        caller.logs(&[&["ERROR"], &words[..]].concat()).await;
        assert!(!caller.a2a("list").await.contains("weatherbot"), "{content}");
        assert_eq!(caller.asks("echo", "still here").await["response"], "still here", "{content}");
    }
}

#[tokio::test]
async fn s1_3_an_edit_is_read_and_a_broken_one_keeps_the_last_good_version() {
    let remote = answering("sunny").await;
    let caller = caller_of(&remote).await;
    caller.edit("a2a_agents.json", "{\"agents\": {\"weatherbot\": ");
    caller.logs(&["ERROR", "a2a_agents.json"]).await;
    assert_eq!(caller.a2a("call weatherbot hello").await, "sunny");
    caller.edit("a2a_agents.json", &json!({"agents": {"other": {"url": remote.agent()}}}).to_string());
    caller.remote_when("other", |_| true).await;
    assert_eq!(caller.a2a("call other hello").await, "sunny");
    assert!(caller.a2a("call weatherbot hello").await.starts_with("ERR: no remote agent named 'weatherbot'"));
}

#[tokio::test]
async fn s1_6_s1_7_s1_8_the_token_is_that_of_the_registry() {
    let remote = answering("sunny").await;
    let (url, base) = (remote.agent(), Setup::new().env("BOT_TOKEN", "tok-of-env"));
    let caller = base
        .json(&json!({
            "by_env": {"url": url, "auth": {"type": "bearer", "token_env": "BOT_TOKEN"}},
            "inline": {"url": url, "auth": {"type": "bearer", "token": "tok-inline"}},
            "untyped": {"url": url, "auth": {"token": "tok-untyped"}},
            "both": {"url": url, "auth": {"token": "tok-wins", "token_env": "BOT_TOKEN"}},
            "open": {"url": url},
        }))
        .start()
        .await;
    for (name, token) in [
        ("by_env", Some("Bearer tok-of-env")),
        ("inline", Some("Bearer tok-inline")),
        ("untyped", Some("Bearer tok-untyped")),
        ("both", Some("Bearer tok-wins")),
        ("open", None),
    ] {
        assert_eq!(caller.a2a(&format!("call {name} hello")).await, "sunny", "{name}");
        let call = remote.calls().pop().unwrap();
        assert_eq!(call.header("authorization"), token, "{name}");
    }
    assert!(!caller.server.log().contains("tok-"), "a token is nothing for the log");
}

#[tokio::test]
async fn s1_9_a_variable_that_is_not_set_warns_and_keeps_the_agent() {
    let remote = answering("sunny").await;
    remote.says("message/send", Answer::status(401, "who are you?"));
    let caller = Setup::new()
        .json(&json!({"weatherbot": {"url": remote.agent(), "auth": {"type": "bearer", "token_env": "NOT_SET"}}}))
        .start()
        .await;
    caller.logs(&["WARN", "NOT_SET"]).await;
    assert!(caller.a2a("list").await.contains("weatherbot"));
    let said = caller.a2a("call weatherbot hello").await;
    assert!(said.starts_with("ERR: HTTP 401: "), "{said}");
    assert!(said.contains("remote weatherbot demands a credential"), "{said}");
    for asked in remote.asked() {
        assert_eq!(asked.header("authorization"), None, "{asked:?}");
    }
}

#[tokio::test]
async fn s1_10_s1_32_the_card_is_beside_the_agent_with_or_without_a_slash() {
    for slash in ["", "/"] {
        let remote = answering("sunny").await;
        let url = format!("{}{slash}", remote.agent());
        let caller = Setup::new().json(&json!({"weatherbot": {"url": url}})).start().await;
        let card = caller.a2a("card weatherbot").await;
        assert!(card.contains("Looks after pull requests."), "{card}");
        assert_eq!(caller.a2a("call weatherbot hello").await, "sunny");
        assert!(remote.looked_at().iter().all(|path| path == BESIDE), "{:?}", remote.looked_at());
        assert_eq!(remote.only_call().path.trim_end_matches('/'), "/a2a");
    }
}

#[tokio::test]
async fn s1_11_there_is_no_other_place_for_a_card() {
    let remote = Remote::start().await;
    let card = arbiters_card(&remote.agent());
    for path in [WELL_KNOWN, LEGACY, "/a2a/agent.json", "/a2a/.well-known/agent-card.json"] {
        remote.says(path, Answer::json(&card));
    }
    let caller = caller_of(&remote).await;
    let said = caller.a2a("card weatherbot").await;
    assert!(said.starts_with("ERR: card fetch failed: "), "{said}");
    assert!(!remote.looked_at().is_empty());
    assert!(remote.looked_at().iter().all(|path| path == BESIDE), "{:?}", remote.looked_at());
}

#[tokio::test]
async fn s1_12_the_list_has_descriptions_and_skills_and_says_who_is_not_there() {
    let remote = answering("sunny").await;
    let mut card = arbiters_card(&remote.agent());
    card["skills"] = json!([
        {"id": "chat", "name": "Chat", "description": "Talks.", "tags": []},
        {"id": "fetch-url", "name": "Fetch", "description": "Fetches.", "tags": []},
    ]);
    remote.has_card(&card);
    let agents = json!({"weatherbot": {"url": remote.agent()}, "dead": {"url": "http://127.0.0.1:9/a2a"}});
    let caller = Setup::new().json(&agents).start().await;
    let begun = Instant::now();
    let list = caller.a2a("list").await;
    assert!(begun.elapsed() < Duration::from_secs(10), "one that is dead delays nobody");
    let line = list.lines().find(|line| line.contains("weatherbot")).unwrap_or_else(|| panic!("{list}"));
    assert!(line.contains("Looks after pull requests."), "{list}");
    assert!(list.contains("chat") && list.contains("fetch-url"), "{list}");
    let dead = list.lines().find(|line| line.contains("dead")).unwrap_or_else(|| panic!("{list}"));
    assert!(dead.contains("(card unavailable"), "{list}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_13_the_card_is_shown_in_detail() {
    let remote = answering("sunny").await;
    let caller = caller_of(&remote).await;
    let card = caller.a2a("card weatherbot").await;
    for part in ["Looks after pull requests.", "2.7.1", "url: ", "weatherbot", "pr_review", "As the card has it."] {
        assert!(card.contains(part), "{part} is missing in {card}");
    }
    // The card of an internal remote names the operator's own URL for it, which is not for tenants.
    assert!(!card.contains("127.0.0.1"), "{card}");
    let path = "/v1/remotes/weatherbot/card";
    let shown = caller.api().get(path).await.ok();
    assert!(shown["skills"].is_array() && !shown.to_string().contains("127.0.0.1"), "{shown}");
    assert!(caller.home.ok(&["remote", "card", "weatherbot"]).contains(&remote.agent()), "it is for the administrator");
    // It is the one that the remote gives to everybody, not the one that the operator has for it.
    remote.has_card(&arbiters_card("https://weather.example.org/a2a?key=1"));
    let card = caller.a2a("card weatherbot").await;
    assert!(card.contains("url: https://weather.example.org/a2a\n"), "{card}");
    assert!(!card.contains(&remote.agent()) && !card.contains("key=1"), "{card}");
}

#[tokio::test]
async fn s1_14_s1_15_a_call_waits_and_gives_the_reply_in_its_frame() {
    let remote = answering("sunny, 21 degrees").await;
    let caller = caller_of(&remote).await;
    let line = "call weatherbot what's the weather like in SF tomorrow?";
    assert_eq!(caller.a2a(line).await, "sunny, 21 degrees");
    let call = remote.only_call();
    assert_eq!((call.rpc(), call.path.as_str()), ("message/send", "/a2a"));
    assert_eq!(call.message()["parts"][0]["text"], "what's the weather like in SF tomorrow?");
    for line in ["dance", "call", "call weatherbot", "card"] {
        let said = caller.a2a(line).await;
        assert!(said.starts_with("ERR: ") && said.contains("/a2a c"), "{line}: {said}");
    }
    assert_eq!(remote.calls().len(), 1);
}

#[tokio::test]
async fn s1_16_a_reply_is_cut_at_16_kilobytes() {
    let remote = answering(&"x".repeat(20_000)).await;
    let caller = caller_of(&remote).await;
    let body = caller.a2a("call weatherbot hello").await;
    let kept = body.strip_suffix("... [truncated]").unwrap_or_else(|| panic!("{}", &body[body.len() - 40..]));
    assert_eq!(kept.trim_end_matches('\n'), "x".repeat(16_384));
    // What fits is whole.
    remote.says("message/send", Answer::Result(task_03("t-2", "c-2", "completed", &"y".repeat(16_384))));
    assert_eq!(caller.a2a("call weatherbot hello").await, "y".repeat(16_384));
    // A letter is not cut in two.
    remote.says("message/send", Answer::Result(task_03("t-3", "c-3", "completed", &"€".repeat(10_000))));
    let body = caller.a2a("call weatherbot hello").await;
    let kept = body.strip_suffix("... [truncated]").unwrap().trim_end_matches('\n');
    assert!(kept.chars().all(|letter| letter == '€') && (16_382..=16_384).contains(&kept.len()), "{}", kept.len());
}

#[tokio::test]
async fn s0_50_s1_21_s1_22_a_remote_sees_the_text_and_its_own_token_and_nothing_else() {
    let remote = answering("sunny").await;
    let caller = caller_of(&remote).await;
    let api = caller.api();
    let mut request = api.request(reqwest::Method::POST, "/v1/remotes/a2a");
    for (name, value) in [
        ("X-Correlation-Id", "corr-of-caller"),
        ("X-Parent-Id", "parent-of-caller"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("Cookie", "session=of-caller"),
        ("X-API-Key", TOKEN),
    ] {
        request = request.header(name, value);
    }
    let line = json!({"line": "call weatherbot hello there"});
    api.call(crate::harness::http::with_json(request, &line)).await.ok();
    caller.chat(&json!({"agent": "weatherbot", "message": "hello there", "skill": "pr_review"})).await.ok();
    assert_eq!(remote.calls().len(), 2);
    for call in remote.calls() {
        assert_eq!(call.header("authorization"), Some("Bearer tok-inline"));
        only_what_it_may_see(&call);
        let params = call.params().as_object().unwrap();
        assert!(params.keys().all(|key| key == "message" || key == "configuration"), "{params:?}");
        let message = call.message().as_object().unwrap();
        let known = ["kind", "messageId", "role", "parts"];
        assert!(message.keys().all(|key| known.contains(&key.as_str())), "{message:?}");
        assert_eq!(call.message()["parts"], json!([{"kind": "text", "text": "hello there"}]));
        assert_eq!(call.message()["role"], "user");
    }
    for asked in remote.asked() {
        only_what_it_may_see(&asked);
    }
}

#[track_caller]
fn only_what_it_may_see(asked: &Asked) {
    for name in asked.headers.keys() {
        assert!(HEADERS.contains(&name.as_str()), "{name} in {asked:#?}");
    }
    let everything = asked.everything();
    for secret in [TOKEN, "of-caller", "0af7651916cd43dd8448eb211c80319c", "echo", "skillHint", "correlationId"] {
        assert!(!everything.contains(secret), "{secret} in {everything}");
    }
}

#[tokio::test]
async fn s1_23_who_is_not_in_the_registry_has_no_name() {
    let remote = answering("sunny").await;
    let caller = caller_of(&remote).await;
    for line in ["card ghost", "call ghost hello"] {
        let said = caller.a2a(line).await;
        assert!(said.starts_with("ERR: no remote agent named 'ghost'"), "{said}");
    }
    assert!(remote.calls().is_empty());
}

#[tokio::test]
async fn s1_24_a_card_that_cannot_be_had_is_an_error_with_its_reason() {
    let remote = answering("sunny").await;
    let caller = caller_of(&remote).await;
    for (answer, reason) in [
        (Answer::status(500, "out of order"), "500"),
        (Answer::status(404, "not here"), "404"),
        (Answer::json(&json!([])), ""),
        (Answer::json(&json!({"name": 7})), ""),
        (Answer::json(&json!("card")), ""),
        (Answer::status(200, "<html>welcome</html>"), ""),
    ] {
        remote.says(BESIDE, answer.clone());
        let said = caller.a2a("card weatherbot").await;
        assert!(said.starts_with("ERR: card fetch failed: ") && said.contains(reason), "{answer:?}: {said}");
    }
    // It is back when it is back.
    remote.has_card(&arbiters_card(&remote.agent()));
    assert!(caller.a2a("card weatherbot").await.contains("pr_review"));
}

#[tokio::test]
async fn s1_25_s1_26_s1_28_a_network_that_fails_is_an_error_that_is_not_remembered() {
    let remote = answering("sunny").await;
    let caller = caller_of(&remote).await;
    let works = Answer::Result(task_03("t-1", "c-1", "completed", "sunny"));
    // The remote dies in the middle of the call, and the caller lives.
    remote.on("message/send", [Answer::closes(), works.clone()]);
    let said = caller.a2a("call weatherbot hello").await;
    assert!(said.starts_with("ERR: transport: "), "{said}");
    let sent = || remote.calls().iter().filter(|call| call.rpc() == "message/send").count();
    assert_eq!(sent(), 1, "nobody knows whether it was done, so it is not sent again");
    assert_eq!(caller.a2a("call weatherbot hello").await, "sunny", "the same again goes out again");
    assert_eq!(sent(), 2);
    // Nobody listens, then somebody does.
    let base = remote.base.clone();
    drop(remote);
    let said = caller.a2a("call weatherbot hello").await;
    assert!(said.starts_with("ERR: transport: ") || said.starts_with("ERR: card fetch failed: "), "{said}");
    let remote = Remote::again(&base).await;
    remote.has_card(&arbiters_card(&remote.agent()));
    remote.says("message/send", works);
    assert_eq!(caller.a2a("call weatherbot hello").await, "sunny");
}

#[tokio::test]
async fn s1_25_one_that_is_not_there_is_a_transport_error() {
    let caller = Setup::new().json(&json!({"dead": {"url": "http://127.0.0.1:9/a2a"}})).start().await;
    let said = caller.a2a("call dead hello").await;
    assert!(said.starts_with("ERR: transport: "), "{said}");
}

#[tokio::test]
async fn s1_27_what_the_remote_refuses_is_told_with_its_status() {
    let remote = answering("sunny").await;
    let caller = caller_of(&remote).await;
    for status in [401, 403, 429, 500, 503] {
        remote.says("message/send", Answer::status(status, "no and no"));
        let said = caller.a2a("call weatherbot hello").await;
        assert!(said.starts_with(&format!("ERR: HTTP {status}: ")), "{said}");
        // So many failures must not open the circuit while this is about what they say.
        remote.says("message/send", Answer::Result(task_03("t-1", "c-1", "completed", "sunny")));
        assert_eq!(caller.a2a("call weatherbot hello").await, "sunny");
    }
    remote.says("message/send", Answer::Refused(-32603, "the wheel came off"));
    let said = caller.a2a("call weatherbot hello").await;
    assert!(said.starts_with("ERR: ") && said.contains("-32603") && said.contains("the wheel came off"), "{said}");
}

#[tokio::test]
async fn s1_29_s1_30_x_43_a_card_is_fetched_at_most_once_a_request_and_not_while_it_is_fresh() {
    let remote = answering("sunny").await;
    let caller = caller_of(&remote).await;
    caller.a2a("call weatherbot hello").await;
    // The next request looks again, since the remote says nothing of how long its card is good.
    let before = remote.looked_at().len();
    for times in 1..=3 {
        caller.a2a("card weatherbot").await;
        assert_eq!(remote.looked_at().len() - before, times, "{:?}", remote.looked_at());
    }
    let before = remote.looked_at().len();
    caller.a2a("call weatherbot hello").await;
    assert!(remote.looked_at().len() - before <= 1, "{:?}", remote.looked_at());
    // Two calls in one request make one look.
    let before = remote.looked_at().len();
    let twice = json!({"line": "call weatherbot one\n/a2a call weatherbot two"});
    let framed = caller.api().post("/v1/remotes/a2a", &twice).await.ok();
    let framed = framed["text"].as_str().unwrap();
    let (first, second) = framed.split_at(framed.find("[/a2a call weatherbot two").unwrap());
    assert_eq!(unframed("call weatherbot one", first), "sunny");
    assert_eq!(unframed("call weatherbot two", second), "sunny");
    assert_eq!(remote.looked_at().len() - before, 1, "{:?}", remote.looked_at());
    // A card that says how long it is good is good so long.
    let card = arbiters_card(&remote.agent()).to_string();
    let headers = vec![("content-type", "application/json".to_owned()), ("cache-control", "max-age=600".to_owned())];
    remote.says(BESIDE, Answer::Plain(200, headers, card.into_bytes()));
    caller.a2a("card weatherbot").await;
    let before = remote.looked_at().len();
    for line in ["card weatherbot", "list", "call weatherbot hello", "card weatherbot"] {
        caller.a2a(line).await;
    }
    assert_eq!(remote.looked_at().len(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_31_a_card_is_fetched_again_when_it_is_asked_for() {
    let remote = answering("sunny").await;
    let mut card = arbiters_card(&remote.agent());
    let fresh = |card: &Value| {
        let headers =
            vec![("content-type", "application/json".to_owned()), ("cache-control", "max-age=600".to_owned())];
        Answer::Plain(200, headers, card.to_string().into_bytes())
    };
    remote.says(BESIDE, fresh(&card));
    let caller = caller_of(&remote).await;
    let path = "/v1/remotes/weatherbot/card";
    let told = caller.home.json(&["remote", "card", "weatherbot"]).remove(0);
    assert_eq!(told, card, "as it came");
    assert_eq!(caller.api().get(path).await.ok()["skills"], card["skills"]);
    card["version"] = json!("3.0.0");
    remote.says(BESIDE, fresh(&card));
    let before = remote.looked_at().len();
    assert_eq!(caller.api().get(path).await.ok()["version"], "2.7.1");
    assert_eq!(remote.looked_at().len(), before);
    assert_eq!(caller.api().get(&format!("{path}?refresh=true")).await.ok()["version"], "3.0.0");
    assert_eq!(remote.looked_at().len(), before + 1);
    assert!(caller.a2a("card weatherbot").await.contains("3.0.0"));
}

#[tokio::test]
async fn s1_33_the_label_is_1_0_and_the_body_that_of_0_3() {
    let remote = answering("sunny").await;
    let caller = caller_of(&remote).await;
    assert_eq!(caller.a2a("call weatherbot hello").await, "sunny");
    let call = remote.only_call();
    assert_eq!((call.rpc(), call.header("a2a-version")), ("message/send", Some("1.0")));
    assert_eq!((&call.body["jsonrpc"], call.message()["role"].as_str()), (&json!("2.0"), Some("user")));
    assert!(!call.body["id"].is_null() && !call.message()["messageId"].as_str().unwrap().is_empty(), "{}", call.body);
    // Arbiter answers with a message in the status and without artifacts.
    let mut task = task_03("t-1", "c-1", "completed", "");
    task["status"]["message"] =
        json!({"kind": "message", "messageId": "m", "role": "agent", "parts": [{"kind": "text", "text": "cloudy"}]});
    remote.says("message/send", Answer::Result(task));
    assert_eq!(caller.a2a("call weatherbot hello").await, "cloudy");
}

#[tokio::test]
async fn s1_33_a_card_that_is_1_0_in_earnest_is_called_so() {
    let remote = Remote::with_card(card_10).await;
    remote.says("SendMessage", Answer::Result(json!({"task": task_10("t-1", "c-1", "COMPLETED", "sunny")})));
    let caller = caller_of(&remote).await;
    assert_eq!(caller.a2a("call weatherbot hello").await, "sunny");
    let call = remote.only_call();
    assert_eq!((call.rpc(), call.header("a2a-version")), ("SendMessage", Some("1.0")));
    assert_eq!(call.message()["parts"][0]["text"], "hello");
    assert!(call.params().get("metadata").is_none() && call.message().get("metadata").is_none(), "{}", call.body);
}

#[tokio::test]
async fn s1_34_nothing_is_left_of_a_call_when_it_is_over() {
    let remote = answering("sunny").await;
    let caller = caller_of(&remote).await;
    for _ in 0..2 {
        caller.a2a("call weatherbot hello").await;
    }
    let calls = remote.calls();
    for call in &calls {
        let body = call.body.to_string();
        assert!(!body.contains("contextId") && !body.contains("taskId"), "no conversation goes on: {body}");
    }
    assert_ne!(calls[0].message()["messageId"], calls[1].message()["messageId"]);
    // The registry of the next request is the file of then.
    let other = answering("rain").await;
    caller.edit("a2a_agents.json", &json!({"agents": bot(&other)}).to_string());
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(caller.a2a("call weatherbot hello").await, "rain");
    assert_eq!(remote.calls().len(), 2);
}
