//! Agents that tenants define at `/v1/agents`: kept as they came, made at once, and nobody else's.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::rig::{Thinker, answer, said, setup};
use crate::harness::http::{Api, Reply, array, is_terminal, message, state, text, with_json};

const OTHER: &str = "sb_test_of_another_tenant";

async fn change(api: &Api, method: Method, id: &str, body: Option<&Value>) -> Reply {
    let request = api.request(method, &format!("/v1/agents/{id}"));
    api.call(match body {
        Some(body) => with_json(request, body),
        None => request,
    })
    .await
}

async fn patch(api: &Api, id: &str, body: &Value) -> Reply {
    change(api, Method::PATCH, id, Some(body)).await
}

fn research() -> Value {
    json!({"id": "research", "name": "Research", "role": "research analyst", "goal": "extract decisions", "model": "script/m",
        "capabilities": ["/fetch", "/search", "/mem"], "temperature": 0.3, "rules": ["be brief"],
        "advisor": {"model": "x", "mode": "gate"}, "memory": {"auto_tag": true}, "event_types": ["sensor.*"]})
}

async fn thinker() -> Thinker {
    Thinker::start(&json!([{"match": "[END TOOL RESULTS]", "text": "{{input}}"}, {"match": "QUERY", "text": "/agent research look\n"}, {"text": "found"}])).await
}

#[tokio::test]
async fn s0_1_s0_31_an_agent_that_is_defined_can_be_called_and_changed() {
    let thinker = thinker().await;
    let api = thinker.api();
    let made = api.post("/v1/agents", &research()).await;
    assert_eq!(made.status, 201, "{}", made.shown());
    let record = made.json();
    for (key, value) in research().as_object().unwrap() {
        assert_eq!(&record[key], value, "it is kept as it came");
    }
    assert!(record["created_at"].is_i64() && record["updated_at"].is_i64());
    assert_eq!(api.get("/v1/agents/research").await.ok(), record);

    assert_eq!(answer(&thinker.sends("research", "hello").await), "found");
    let sent = thinker.seed("research", "message/send", &said("hello")).await;
    assert_eq!(text(&sent, "/result/status/message/parts/0/text"), "found");
    assert!(thinker.asked()[0].system.contains("GOAL: extract decisions"));
    // Index knows of it, and hands work on to it.
    assert!(answer(&thinker.sends("index", "go").await).contains("]\nfound\n[END AGENT #"));
    assert!(
        thinker
            .asked()
            .iter()
            .any(|asked| asked.last().contains("  research (Research) [research analyst] m — extract decisions"))
    );

    // What was read can be written back, and loses nothing.
    let mut changed = record.clone();
    changed["goal"] = json!("extract risks");
    let patched = patch(&api, "research", &changed).await.ok();
    assert_eq!(
        (&patched["goal"], &patched["advisor"], &patched["memory"]),
        (&json!("extract risks"), &record["advisor"], &record["memory"])
    );
    thinker.sends("research", "hello").await;
    assert!(thinker.asked().last().unwrap().system.contains("GOAL: extract risks"));
    // Wholly: what is not said is gone.
    let patched = patch(&api, "research", &json!({"role": "analyst"})).await.ok();
    assert!(patched.get("goal").is_none() && patched.get("capabilities").is_none(), "{patched}");
}

#[tokio::test]
async fn s0_22_s0_23_s0_25_s0_28_s0_31_the_card_follows() {
    let thinker = thinker().await;
    let api = thinker.api();
    api.post("/v1/agents", &research()).await;
    let path = "/v1/a2a/agents/research/agent-card.json";
    let card = api.get(path).await.ok();
    assert_eq!(
        (&card["name"], &card["description"]),
        (&json!("Research"), &json!("research analyst — extract decisions"))
    );
    let skills: Vec<(&str, &str)> =
        array(&card, "/skills").iter().map(|skill| (text(skill, "/id"), text(skill, "/tags/0"))).collect();
    assert_eq!(skills, [("chat", "chat"), ("fetch-url", "/fetch"), ("web-search", "/search"), ("memory", "/mem")]);
    let version = text(&card, "/version").to_owned();
    assert!(version.parse::<u64>().is_ok(), "{version}");
    tokio::time::sleep(Duration::from_millis(5)).await;
    patch(&api, "research", &json!({"role": "analyst"})).await.ok();
    let card = api.get(path).await.ok();
    assert_eq!((&card["name"], &card["description"]), (&json!("research"), &json!("analyst")));
    assert_ne!(text(&card, "/version"), version);
    assert_eq!(array(&card, "/skills").len(), 1);
    // Nobody but its tenant has it.
    assert_eq!(api.with_token(None).get("/a2a/agents/research/.well-known/agent-card.json").await.status, 404);
}

#[tokio::test]
async fn s0_44_agents_belong_to_one_tenant() {
    let thinker = thinker().await;
    thinker.caller.home.add_tenant("other", OTHER).await;
    let (mine, theirs) = (thinker.api(), thinker.api().with_token(Some(OTHER)));
    mine.post("/v1/agents", &research()).await;
    for path in [
        "/v1/agents/research",
        "/v1/a2a/agents/research/agent-card.json",
        "/a2a/agents/research/.well-known/agent-card.json",
    ] {
        assert_eq!(theirs.get(path).await.status, 404, "{path}");
    }
    assert_eq!(patch(&theirs, "research", &json!({})).await.status, 404);
    assert_eq!(change(&theirs, Method::DELETE, "research", None).await.status, 404);
    let sent = theirs.post("/a2a/agents/research/message:send", &json!({"message": message("x")})).await;
    assert_eq!(sent.status, 404);
    // Each may have one of that name, and gets its own.
    let made = theirs.post("/v1/agents", &json!({"id": "research", "goal": "theirs"})).await;
    assert_eq!(made.status, 201, "{}", made.shown());
    let task = theirs.post("/a2a/agents/research/message:send", &json!({"message": message("x")})).await.task();
    assert_eq!(state(&task), "COMPLETED");
    assert!(thinker.asked().last().unwrap().system.contains("GOAL: theirs"));
    thinker.sends("research", "x").await;
    assert!(thinker.asked().last().unwrap().system.contains("GOAL: extract decisions"));
    let listed =
        |body: &Value| array(body, "/agents").iter().map(|agent| text(agent, "/id").to_owned()).collect::<Vec<_>>();
    assert_eq!(listed(&mine.get("/v1/agents").await.ok())[..2], ["index", "research"]);
}

#[tokio::test]
async fn what_is_wrong_is_said_and_nothing_is_kept() {
    let thinker = thinker().await;
    let api = thinker.api();
    for (body, word) in [
        (json!({"role": "x"}), "id"),
        (json!({"id": "a b"}), "id"),
        (json!({"id": "x1", "temperature": 99}), "temperature"),
        (json!({"id": "x1", "capabilities": ["research"]}), "capabilities[0]"),
        (json!({"id": "x1", "temprature": 1}), "did you mean `temperature`"),
        (json!({"id": "x1", "brevity": "short"}), "brevity"),
        (json!({"id": "x1", "max_tokens": 0}), "max_tokens"),
        (json!({"id": "index", "role": "x"}), "built in"),
        (json!([1]), "object"),
    ] {
        let refused = api.post("/v1/agents", &body).await;
        assert_eq!(refused.status, 400, "{body}: {}", refused.shown());
        assert!(String::from_utf8_lossy(&refused.body).contains(word), "{body}: {}", refused.shown());
    }
    assert_eq!(api.get("/v1/agents/x1").await.status, 404);
    assert_eq!(api.post("/v1/agents", &json!({"id": "x1"})).await.status, 201, "only its id has to be there");
    let again = api.post("/v1/agents", &json!({"agent_def": {"id": "x1", "role": "y"}})).await;
    assert_eq!((again.status, &again.json()["existing"]["id"]), (409, &json!("x1")));
    assert_eq!(api.post("/v1/agents", &json!({"id": "echo"})).await.status, 409, "there is one of that name");
    for (id, status) in [("index", 400), ("nobody", 404)] {
        assert_eq!(patch(&api, id, &json!({"role": "x"})).await.status, status, "{id}");
        assert_eq!(change(&api, Method::DELETE, id, None).await.status, status, "{id}");
    }
    assert_eq!(patch(&api, "x1", &json!({"id": "x2"})).await.status, 400, "another id");
}

#[tokio::test]
async fn an_agent_that_is_deleted_leaves_nothing_running() {
    let thinker = Thinker::start(&json!([{"text": ["a", "b", "c", "d"], "delay": "2s"}])).await;
    let api = thinker.api();
    api.post("/v1/agents", &json!({"id": "brief"})).await;
    let mut request = json!({"message": message("x")});
    request["configuration"] = json!({"returnImmediately": true});
    let task = api.post("/a2a/agents/brief/message:send", &request).await.task();
    thinker.until_asked(1).await;
    let deleted = change(&api, Method::DELETE, "brief", None).await;
    assert_eq!(deleted.ok(), json!({"deleted": true}));
    let ended = api.task_when(text(&task, "/id"), is_terminal).await;
    assert_eq!(state(&ended), "CANCELED");
    assert_eq!(api.get("/v1/agents/brief").await.status, 404);
    assert_eq!(api.post("/a2a/agents/brief/message:send", &request).await.status, 404);
}

#[tokio::test]
async fn s0_54_definitions_survive_a_restart_and_their_turns_go_on() {
    let replies = json!([{"match": "[END TOOL RESULTS]", "text": "done"}, {"text": ["one\n", "/agent slow 1500\n"], "delay": "100ms"}]);
    let mut thinker = Thinker { caller: setup(&replies).start().await };
    let made = thinker.api().post("/v1/agents", &json!({"id": "steady", "capabilities": ["/agent"]})).await;
    assert_eq!(made.status, 201);
    let mut request = json!({"message": message("x")});
    request["configuration"] = json!({"returnImmediately": true});
    let task = thinker.api().post("/a2a/agents/steady/message:send", &request).await.task();
    thinker.until_asked(1).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    thinker.caller.restart().await;
    let ended = thinker.api().task_when(text(&task, "/id"), is_terminal).await;
    assert_eq!((state(&ended), answer(&ended).as_str()), ("COMPLETED", "one\ndone"), "{ended:#}");
    assert_eq!(thinker.answered(), 2);
    assert_eq!(thinker.api().get("/v1/agents/steady").await.status, 200);
}

#[tokio::test]
async fn a_task_is_shown_with_the_tasks_that_it_began() {
    let thinker = thinker().await;
    thinker.api().post("/v1/agents", &research()).await;
    let parent = thinker.sends("index", "go").await;
    let id = text(&parent, "/id").to_owned();
    let request = thinker.api().get(&format!("/v1/requests/{id}?children=true")).await.ok()["request"].clone();
    assert_eq!(
        (&request["agent_id"], &request["parent"], &request["attempts"]),
        (&json!("index"), &Value::Null, &json!(1))
    );
    let plain = thinker.api().get(&format!("/v1/requests/{id}")).await.ok();
    assert!(plain["request"].get("children").is_none(), "they are looked for only when they are asked for");
    let children = array(&request, "/children");
    assert_eq!(
        (children.len(), &children[0]["agent_id"], &children[0]["state"]),
        (1, &json!("research"), &json!("completed"))
    );
    let child = text(&children[0], "/request_id").to_owned();
    let below = thinker.api().get(&format!("/v1/requests/{child}?children=true")).await.ok()["request"].clone();
    assert_eq!((&below["parent"]["request_id"], &below["children"]), (&json!(id), &json!([])));

    let home = &thinker.caller.home;
    let shown = home.ok(&["task", "get", &child]);
    let tree = format!("\n{id}  index  completed\n  {child}  research  completed\n");
    assert!(shown.contains(&tree), "{shown}");
    assert!(home.ok(&["task", "show", &id]).contains(&tree), "the same from above");
    let told = home.json(&["task", "get", &child]).remove(0);
    assert_eq!((&told["parent"]["id"], &told["agent"]), (&json!(id), &json!("research")));
    assert!(told["usage"]["inputTokens"].as_u64().unwrap() > 0 && shown.contains("tokens:   "), "{told} {shown}");

    let stats = thinker.caller.admin().get("/v1/admin/stats").await.ok();
    let counted = |name: &str| stats["tokens"][name].as_u64().unwrap_or_else(|| panic!("{stats:#}"));
    assert!(counted("input") >= told["usage"]["inputTokens"].as_u64().unwrap() && counted("output") > 0, "{stats:#}");

    // Another tenant sees none of it, even if its own task names this one as its parent.
    home.add_tenant("other", OTHER).await;
    let other = thinker.api().with_token(Some(OTHER));
    let mut send = json!({"message": message("hello")});
    send["message"]["metadata"] = json!({"parentId": id});
    send["metadata"] = json!({"parentId": id});
    let made = other.post("/a2a/agents/echo/message:send", &send).await.ok();
    let own = text(&made, "/task/id").to_owned();
    let own = other.get(&format!("/v1/requests/{own}")).await.ok()["request"].clone();
    assert_eq!(own["parent"], Value::Null);
    let request = thinker.api().get(&format!("/v1/requests/{id}?children=true")).await.ok()["request"].clone();
    assert_eq!(array(&request, "/children").len(), 1);
}
