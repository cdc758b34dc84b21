//! The agents that tenants define: kept as they came, seen by their tenant alone, callable everywhere at once.

use std::{sync::Arc, time::Duration};

use a2a::{Error, Part, Timestamp};
use async_trait::async_trait;
use exchange::{
    Agent, Entry, Note, Outcome, Output, Profile, Turn,
    own::{MadeBy, Maker},
};
use serde_json::{Value, json};
use store::AgentId;

use crate::edge::support::{Fixture, OTHER_TOKEN, envelope, message};

const ONE: &str = "/v1/agents/poet";

/// Makes agents that say their `role`, and tell that a model took 142 tokens to say 218.
struct Toys;

struct Toy(Value);

impl Maker for Toys {
    fn make(&self, id: &AgentId, definition: &[u8], updated_at: Timestamp) -> Result<Entry, Error> {
        let does: Value = a2a::decode(definition)?;
        if does["temperature"].as_f64().is_some_and(|temperature| temperature > 2.0) {
            return Err(Error::invalid("temperature", "must be at most 2"));
        }
        let mut profile = Profile::new(id.clone(), "llm");
        profile.version = updated_at.to_string();
        if let Some(name) = does["name"].as_str() {
            name.clone_into(&mut profile.name);
        }
        Ok(Entry::new(profile, Arc::new(Toy(does))))
    }

    fn builtin(&self, id: &str) -> Option<Value> {
        (id == "index").then(|| json!({"id": "index", "name": "index", "role": "orchestrator"}))
    }
}

#[async_trait]
impl Agent for Toy {
    async fn run(&self, turn: Turn, out: Output) -> Outcome {
        if self.0["role"] == "waits" {
            turn.cancel.cancelled().await;
            return Outcome::Canceled;
        }
        out.note(Note::Usage { model: "toy".into(), input_tokens: 142, output_tokens: 218 }).await;
        Outcome::Completed(vec![Part::text(self.0["role"].as_str().unwrap_or_default())])
    }
}

async fn fixture() -> Fixture {
    let fixture = Fixture::in_exchange(|options| options.maker = Some(MadeBy(Arc::new(Toys)))).await;
    let index = Profile::new("index".parse().expect("an id"), "llm");
    fixture.exchange.agents().insert(Entry::new(index, Arc::new(Toy(json!({"role": "master"})))));
    fixture
}

async fn define(fixture: &Fixture, definition: Value) {
    let reply = fixture.post("/v1/agents", &definition).await;
    assert_eq!(reply.status, 201, "{reply:?}");
}

#[tokio::test]
async fn what_comes_is_kept_and_comes_back() {
    let fixture = fixture().await;
    let odd = "{ \"id\":\"poet\",\t\"temperature\" : 1.0, \"role\":\"p\\u006fet\", \"memory\":{ \"x\":[1E2] } }";
    let made = fixture.ask("POST", "/v1/agents").header("Content-Type", "application/json").body(odd).send().await;
    assert_eq!((made.status, made.header("cache-control")), (201, Some("no-store")));
    let members = odd.trim_start_matches('{').trim_end_matches('}').trim();
    assert!(made.body.starts_with(&format!("{{{members},\"created_at\":")), "{}", made.body);
    let record = fixture.get(ONE).await;
    assert_eq!((record.status, &record.body), (200, &made.body));
    let times = record.json();
    let now = store::clock::now().as_millis() / 1000;
    assert!(times["created_at"].as_i64().is_some_and(|at| (now - 10..=now).contains(&at)), "{times}");
    assert_eq!(times["created_at"], times["updated_at"]);
    // Whoever gets it and sends it back loses nothing.
    let json = ("Content-Type", "application/json");
    let again = fixture.ask("PATCH", ONE).header(json.0, json.1).body(record.body.clone()).send().await;
    assert_eq!(again.status, 200, "{again:?}");
    for member in ["\"temperature\":1.0", "\"role\":\"p\\u006fet\"", "\"memory\":{ \"x\":[1E2] }", "\"id\":\"poet\""] {
        assert!(again.body.contains(member), "{member} {}", again.body);
    }
    assert_eq!(again.json()["created_at"], times["created_at"]);
    // It is replaced wholly, also without its id, also wrapped.
    let other = fixture.ask("PATCH", ONE).json(&json!({"agent_def": {"role": "painter"}})).send().await;
    assert_eq!(other.status, 200);
    let record = fixture.get(ONE).await.body;
    assert!(record.starts_with(r#"{"id":"poet","role":"painter","created_at":"#), "{record}");
    let made = fixture.post("/v1/agents", &json!({"agent_def": {"id": "wrapped"}})).await;
    assert_eq!((made.status, made.json()["id"].clone()), (201, json!("wrapped")));
    let gone = fixture.ask("DELETE", ONE).send().await;
    assert_eq!((gone.status, gone.json()), (200, json!({"deleted": true})));
    for method in ["GET", "DELETE", "PATCH"] {
        let reply = fixture.ask(method, ONE).json(&json!({})).send().await;
        let told = reply.json()["error"]["message"].clone();
        assert_eq!((reply.status, told), (404, json!("no agent 'poet' for this tenant")), "{method}");
    }
}

#[tokio::test]
async fn the_list_has_what_a_tenant_can_call() {
    let fixture = fixture().await;
    for id in ["zoo", "bee"] {
        define(&fixture, json!({"id": id, "kind": "mine", "source": "me"})).await;
    }
    let list = fixture.get("/v1/agents").await.json();
    let told: Vec<_> = list["agents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|agent| ["id", "kind", "source"].map(|member| agent[member].as_str().unwrap_or("-").to_owned()).join(" "))
        .collect();
    let expected =
        ["index llm builtin", "bee mine me", "zoo mine me", "direct test file", "echo test file", "slow test file"];
    assert_eq!((told.as_slice(), &list["count"]), (expected.map(str::to_owned).as_slice(), &json!(6)));
    assert_eq!(list["agents"][0]["role"], "orchestrator");
    assert_eq!(fixture.get("/v1/agents/index").await.json(), list["agents"][0]);
    assert_eq!(fixture.get("/v1/agents/echo").await.json(), list["agents"][4]);
    let theirs = fixture.ask_as(OTHER_TOKEN, "GET", "/v1/agents").send().await.json();
    let ids: Vec<_> = theirs["agents"].as_array().unwrap().iter().map(|agent| agent["id"].clone()).collect();
    assert_eq!(ids, ["index", "direct", "echo", "secret", "slow"]);
}

#[tokio::test]
async fn what_cannot_be_is_refused_with_the_field() {
    let fixture = fixture().await;
    define(&fixture, json!({"id": "poet", "role": "poet"})).await;
    for (id, existing) in [
        ("poet", fixture.get(ONE).await.json()),
        ("echo", json!({"id": "echo", "name": "echo", "description": "", "kind": "test", "source": "file"})),
    ] {
        let taken = fixture.post("/v1/agents", &json!({"id": id})).await;
        assert_eq!((taken.status, taken.reason()), (409, "ALREADY_EXISTS".into()));
        assert_eq!(taken.json()["error"]["message"], format!("there is an agent '{id}' already"));
        assert_eq!(taken.json()["existing"], existing);
    }
    // What bob alone sees is no agent for alice.
    define(&fixture, json!({"id": "secret"})).await;
    let field = |reply: &crate::edge::wire::Reply| {
        let details = reply.json()["error"]["details"].as_array().cloned().unwrap_or_default();
        let of = details.iter().find_map(|it| it["fieldViolations"][0]["field"].as_str().map(str::to_owned));
        (reply.status, of.unwrap_or_default())
    };
    for (body, wrong) in [
        (json!({}), "id"),
        (json!({"role": "x"}), "id"),
        (json!({"id": 7}), "id"),
        (json!({"id": ""}), "id"),
        (json!({"id": "a/b"}), "id"),
        (json!({"id": "tasks"}), "id"),
        (json!({"id": "index"}), "id"),
        (json!({"id": "x", "temperature": 99}), "temperature"),
        (json!({"agent_def": 1}), "agent_def"),
        (json!({"agent_def": {"id": "x"}, "agent": "y"}), "agent"),
        (json!({"id": "x", "role": "x".repeat(65_536)}), ""),
    ] {
        let reply = fixture.post("/v1/agents", &body).await;
        assert_eq!(field(&reply), (400, wrong.to_owned()), "{} {}", body.to_string().len(), reply.body);
    }
    for (method, path, body, wrong) in [
        ("PATCH", ONE, json!({"id": "other"}), "id"),
        ("PATCH", ONE, json!({"temperature": 99}), "temperature"),
        ("PATCH", "/v1/agents/index", json!({}), "id"),
        ("DELETE", "/v1/agents/index", json!({}), "id"),
        ("PATCH", "/v1/agents/echo", json!({}), "id"),
        ("DELETE", "/v1/agents/echo", json!({}), "id"),
    ] {
        let reply = fixture.ask(method, path).json(&body).send().await;
        assert_eq!(field(&reply), (400, wrong.to_owned()), "{method} {path} {}", reply.body);
    }
    for (body, kind) in [("", "text/plain"), ("{", "application/json"), ("[]", "application/json")] {
        let reply = fixture.ask("POST", "/v1/agents").header("Content-Type", kind).body(body).send().await;
        assert!(matches!(reply.status, 400 | 415), "{body} {reply:?}");
    }
    assert_eq!(fixture.get(ONE).await.json()["role"], "poet", "nothing has changed");
}

#[tokio::test]
async fn nobody_else_learns_of_an_own_agent() {
    let fixture = fixture().await;
    define(&fixture, json!({"id": "poet", "name": "The Poet"})).await;
    let card = "/a2a/agents/poet/.well-known/agent-card.json";
    let mine = fixture.get(card).await;
    assert_eq!((mine.status, mine.json()["name"].clone()), (200, json!("The Poet")));
    assert_eq!(mine.header("cache-control"), Some("private, max-age=60"));
    assert!(fixture.get("/a2a/extendedAgentCard").await.body.contains("poet"));
    for path in [
        card,
        "/v1/a2a/agents/poet/.well-known/agent-card.json",
        "/v1/a2a/agents/poet/agent-card.json",
        ONE,
        "/v1/cards/poet",
        "/a2a/agents/poet/tasks",
    ] {
        let never = path.replace("poet", "nope");
        for token in [Some(OTHER_TOKEN), None] {
            let ask = |path: &str| match token {
                Some(token) => fixture.ask_as(token, "GET", path),
                None => fixture.bare("GET", path),
            };
            let (there, not) = (ask(path).send().await, ask(&never).send().await);
            assert_eq!((there.status, there.body), (not.status, not.body.replace("nope", "poet")), "{path} {token:?}");
        }
    }
    let sent =
        fixture.ask_as(OTHER_TOKEN, "POST", "/a2a/agents/poet/message:send").json(&message("hello")).send().await;
    assert_eq!(sent.reason(), "AGENT_NOT_FOUND");
    assert!(!fixture.bare("GET", "/.well-known/agent-card.json").send().await.body.contains("oet"));
    // It may have one of its own, which changes nothing for anybody else.
    let theirs = fixture.ask_as(OTHER_TOKEN, "POST", "/v1/agents").json(&json!({"id": "poet", "name": "Bob's"}));
    assert_eq!(theirs.send().await.status, 201);
    assert_eq!(fixture.get(card).await.json()["name"], "The Poet");
    assert_eq!(fixture.ask_as(OTHER_TOKEN, "GET", card).send().await.json()["name"], "Bob's");
    assert_eq!(fixture.ask_as(OTHER_TOKEN, "DELETE", ONE).send().await.status, 200);
    assert_eq!(fixture.get(ONE).await.status, 200);
}

#[tokio::test]
async fn an_own_agent_is_called_like_any_other_and_its_tokens_are_told() {
    let fixture = fixture().await;
    define(&fixture, json!({"id": "poet", "role": "roses are red"})).await;
    let version = |card: &crate::edge::wire::Reply| card.json()["version"].as_str().unwrap().to_owned();
    let card = fixture.get("/v1/a2a/agents/poet/agent-card.json").await;
    let sent = fixture.post("/a2a/agents/poet/message:send", &message("hello")).await.json();
    assert_eq!(sent["task"]["status"]["message"]["parts"][0]["text"], "roses are red");
    let params = json!({"message": {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}});
    let sent = fixture.post("/v1/a2a/agents/poet", &envelope("message/send", params)).await.json();
    let used = |task: &Value| {
        let of = |name: &str| task["metadata"][format!("x-arbiter.{name}")].clone();
        (of("input_tokens"), of("output_tokens"))
    };
    let told = (json!(142), json!(218));
    assert_eq!(used(&sent["result"]), told, "{sent}");
    let id = sent["result"]["id"].as_str().unwrap();
    let got = fixture.post("/v1/a2a/agents/poet", &envelope("tasks/get", json!({"id": id}))).await.json();
    assert_eq!(used(&got["result"]), told, "{got}");
    let request = fixture.get(&format!("/v1/requests/{id}")).await.json()["request"].clone();
    assert_eq!((request["input_tokens"].clone(), request["output_tokens"].clone()), told, "{request}");
    let listed = fixture.get("/v1/requests").await.json();
    assert!(listed["requests"].as_array().unwrap().iter().all(|it| it["output_tokens"] == 218), "{listed}");
    let events = fixture.get(&format!("/v1/requests/{id}/events")).await;
    let done: Value =
        serde_json::from_str(events.body.lines().rev().find_map(|it| it.strip_prefix("data: ")).unwrap()).unwrap();
    assert_eq!((done["input_tokens"].clone(), done["output_tokens"].clone()), told, "{done}");
    // A change is there with the next call, and the card says so.
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(fixture.ask("PATCH", ONE).json(&json!({"role": "violets are blue"})).send().await.status, 200);
    let sent = fixture.post("/a2a/agents/poet/message:send", &message("hello")).await.json();
    assert_eq!(sent["task"]["status"]["message"]["parts"][0]["text"], "violets are blue");
    assert_ne!(version(&fixture.get("/v1/a2a/agents/poet/agent-card.json").await), version(&card));
}

#[tokio::test]
async fn what_an_agent_has_not_ended_goes_with_it() {
    let fixture = fixture().await;
    define(&fixture, json!({"id": "poet", "role": "waits"})).await;
    let sent = fixture.post("/a2a/agents/poet/message:send", &crate::edge::support::at_once("hello")).await.json();
    let id = sent["task"]["id"].as_str().unwrap();
    assert_eq!(fixture.ask("DELETE", ONE).send().await.status, 200);
    let task = fixture.get(&format!("/a2a/tasks/{id}")).await.json();
    assert_eq!(task["status"]["state"], "TASK_STATE_CANCELED");
    let sent = fixture.post("/a2a/agents/poet/message:send", &message("hello")).await;
    assert_eq!(sent.reason(), "AGENT_NOT_FOUND");
}

#[tokio::test]
async fn without_whoever_makes_agents_there_is_a_list_and_nothing_else() {
    let fixture = Fixture::start().await;
    let list = fixture.get("/v1/agents").await.json();
    assert_eq!((list["count"].clone(), list["agents"][1]["id"].clone()), (json!(3), json!("echo")));
    let refused = fixture.post("/v1/agents", &json!({"id": "poet"})).await;
    assert_eq!((refused.status, refused.reason()), (400, "UNSUPPORTED_OPERATION".into()));
    assert_eq!(refused.json()["error"]["message"], "this server does not take agents that tenants define");
    assert_eq!(fixture.ask("DELETE", ONE).send().await.status, 404);
    assert_eq!(fixture.get(ONE).await.status, 404);
}
