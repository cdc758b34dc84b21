//! Agents that tenants define: whose they are, how they share slots, how they come and go, and what tasks have used of models.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::rig;

use std::{sync::Arc, time::Duration};

use a2a::{Part, TaskState, Timestamp};
use exchange::{
    Call, Caller, Entry, Error, Exchange, Luggage, Note, Options, Outcome, Output, Profile, Reply, Turn,
    own::{MOST_AGENTS, MOST_BYTES, MadeBy, Maker},
};
use rig::{Place, Rig, agent, message, state_of, task_of};
use serde_json::{Value, json};
use store::{AgentId, TaskId, Tokens};

/// Makes agents that do what their definitions say: `says` a text, or `waits` until it is canceled, or `asks`.
struct Toys;

impl Maker for Toys {
    fn make(&self, id: &AgentId, definition: &[u8], updated_at: Timestamp) -> Result<Entry, a2a::Error> {
        let does: Value = serde_json::from_slice(definition).map_err(|_| a2a::Error::invalid("", "is no JSON"))?;
        if does["from"] == "the future" {
            return Err(a2a::Error::invalid("from", "is not understood"));
        }
        let concurrency = does["slots"].as_u64().map_or(4, |slots| usize::try_from(slots).unwrap());
        let does = Arc::new(does);
        let toy = agent(id.as_str(), move |turn, out| run(Arc::clone(&does), turn, out));
        let profile = Profile { concurrency, version: updated_at.to_string(), ..toy.profile.clone() };
        Ok(Entry::new(profile, toy.agent))
    }

    fn builtin(&self, id: &str) -> Option<Value> {
        (id == "index").then(|| json!({"id": "index"}))
    }
}

async fn run(does: Arc<Value>, turn: Turn, out: Output) -> Outcome {
    if does["waits"] == true {
        turn.cancel.cancelled().await;
        return Outcome::Canceled;
    }
    if does["asks"] == true {
        return Outcome::InputRequired(vec![Part::text("which?")]);
    }
    let (input_tokens, output_tokens) = (does["reads"].as_u64().unwrap_or(0), does["writes"].as_u64().unwrap_or(0));
    if input_tokens + output_tokens > 0 {
        out.note(Note::Usage { model: "toy".into(), input_tokens, output_tokens }).await;
        out.note(Note::File { path: "usage".into(), media_type: "text/plain".into(), size: 1 }).await;
    }
    if does["fails"].as_u64().is_some_and(|times| u64::from(turn.attempt) <= times) {
        return Outcome::Retry("not yet".into());
    }
    out.text(does["says"].as_str().unwrap_or_default(), true).await;
    Outcome::Completed(Vec::new())
}

fn options() -> Options {
    Options { maker: Some(MadeBy(Arc::new(Toys))), ..Options::default() }
}

/// Leases that run out soon: on PostgreSQL nobody's death is proven at once.
fn short() -> Options {
    Options { lease: Duration::from_millis(1500), ..options() }
}

async fn rig(agents: Vec<Entry>) -> Rig {
    Rig::with(options(), agents).await
}

impl Rig {
    fn me(&self) -> &Caller {
        &self.call.caller
    }

    async fn define(&self, id: &str, definition: Value) -> store::StoredAgent {
        define(&self.exchange, self.me(), id, definition).await.unwrap()
    }

    /// What an agent answers to whoever calls.
    async fn hears(&self, call: &Call, agent: &str) -> Result<String, Error> {
        let sent = self.exchange.send(call, self.request(agent, message("hello"))).await?;
        Ok(task_of(&sent).artifacts.iter().map(|made| exchange::text_of(&made.parts)).collect())
    }
}

async fn define(exchange: &Exchange, caller: &Caller, id: &str, it: Value) -> Result<store::StoredAgent, Error> {
    exchange.define_agent(caller, id, it.to_string().into_bytes()).await
}

/// Until it is so, on every instance.
async fn soon(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..400 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("{what} has not come to be");
}

#[tokio::test]
async fn an_own_agent_is_its_tenants_and_nobody_elses() {
    let rig = rig(vec![agent("echo", async |_, _| Outcome::Completed(vec![]))]).await;
    let other = rig.other_tenant().await;
    rig.define("poet", json!({"says": "mine"})).await;
    assert_eq!(rig.hears(&rig.call, "poet").await.unwrap(), "mine");
    let error = rig.hears(&other, "poet").await.unwrap_err();
    assert_eq!(error.to_string(), rig.hears(&other, "poem").await.unwrap_err().to_string().replace("poem", "poet"));
    let agents = rig.exchange.agents();
    assert!(agents.find(rig.me(), "poet").is_some_and(|entry| !entry.is_open()) && agents.find_open("poet").is_none());
    let seen = |caller: &Caller| -> Vec<String> {
        agents.visible(caller).iter().map(|entry| entry.profile.id.to_string()).collect()
    };
    assert_eq!((seen(rig.me()), seen(&other.caller)), (vec!["echo".into(), "poet".into()], vec!["echo".to_owned()]));
    // Another tenant's agent of the same id is another agent.
    define(&rig.exchange, &other.caller, "poet", json!({"says": "theirs"})).await.unwrap();
    assert_eq!(rig.hears(&other, "poet").await.unwrap(), "theirs");
    assert_eq!(rig.hears(&rig.call, "poet").await.unwrap(), "mine");
    assert_eq!(rig.exchange.defined_agents(rig.me(), &Luggage::default()).await.unwrap().len(), 1);
    rig.exchange.undefine_agent(&other.caller, "poet").await.unwrap();
    assert_eq!(rig.hears(&rig.call, "poet").await.unwrap(), "mine");
    assert!(rig.hears(&other, "poet").await.is_err());
}

#[tokio::test]
async fn what_is_kept_is_what_came_and_a_change_is_there_at_once() {
    let rig = rig(vec![]).await;
    let odd = b"{ \"says\":\"one\",\n\"x\": 1.0, \"x\":2 }";
    let first = rig.exchange.define_agent(rig.me(), "poet", odd.to_vec()).await.unwrap();
    assert_eq!(first.definition, odd);
    assert_eq!(rig.exchange.defined_agent(rig.me(), "poet").await.unwrap(), first);
    assert_eq!(rig.hears(&rig.call, "poet").await.unwrap(), "one");
    let version = || rig.exchange.agents().find(rig.me(), "poet").unwrap().profile.version.clone();
    assert_eq!(version(), first.updated_at.to_string());
    let second = rig.exchange.redefine_agent(rig.me(), "poet", br#"{"says":"two"}"#.to_vec()).await.unwrap();
    assert!(second.updated_at > first.updated_at && second.created_at == first.created_at);
    assert_eq!((rig.hears(&rig.call, "poet").await.unwrap(), version()), ("two".into(), second.updated_at.to_string()));
    // What is wrong changes nothing.
    let bad = rig.exchange.redefine_agent(rig.me(), "poet", br#"{"from":"the future"}"#.to_vec()).await.unwrap_err();
    assert_eq!(a2a::Error::from(bad).violations[0].field, "from");
    assert_eq!(rig.exchange.defined_agent(rig.me(), "poet").await.unwrap(), second);
    assert_eq!(rig.hears(&rig.call, "poet").await.unwrap(), "two");
}

#[tokio::test]
async fn what_cannot_be_defined_is_refused_and_says_why() {
    let rig = rig(vec![agent("echo", async |_, _| Outcome::Completed(vec![]))]).await;
    let (me, other) = (rig.me(), rig.other_tenant().await.caller);
    let define = async |id: &str, it: Value| define(&rig.exchange, me, id, it).await;
    rig.define("poet", json!({"says": "hi"})).await;
    for (id, it, says) in [
        ("poet", json!({}), "there is an agent 'poet' already"),
        ("echo", json!({}), "there is an agent 'echo' already"),
        ("index", json!({}), "id: 'index' is built in, and cannot be created, changed or deleted"),
        ("tasks", json!({}), "id: this agent id is reserved"),
        ("a:b", json!({}), "id: an agent id has only letters, digits, '.', '_' and '-'"),
        ("x", json!({"from": "the future"}), "from: is not understood"),
        ("x", json!({"says": "x".repeat(MOST_BYTES)}), "a definition has at most 65536 bytes"),
    ] {
        let said = define(id, it).await.unwrap_err().to_string();
        assert!(said.ends_with(says), "{id}: {said}");
    }
    for id in ["nobody", "a:b", &"x".repeat(200)] {
        let said = format!("no agent '{}' for this tenant", &id[..id.len().min(64)]);
        assert_eq!(rig.exchange.redefine_agent(me, id, b"{}".to_vec()).await.unwrap_err().to_string(), said);
        assert_eq!(rig.exchange.undefine_agent(me, id).await.unwrap_err().to_string(), said);
        assert_eq!(rig.exchange.defined_agent(me, id).await.unwrap_err().to_string(), said);
    }
    let theirs = rig.exchange.undefine_agent(&other, "poet").await.unwrap_err();
    assert_eq!(theirs.to_string(), "no agent 'poet' for this tenant");
    for id in ["index", "echo"] {
        let error = a2a::Error::from(rig.exchange.undefine_agent(me, id).await.unwrap_err());
        assert_eq!((error.kind, error.violations[0].field.as_str()), (a2a::ErrorKind::InvalidParams, "id"), "{id}");
        assert!(rig.exchange.redefine_agent(me, id, b"{}".to_vec()).await.is_err());
    }
    for n in 1..MOST_AGENTS {
        rig.define(&format!("n{n}"), json!({})).await;
    }
    let many = a2a::Error::from(define("more", json!({})).await.unwrap_err());
    assert_eq!(many.kind, a2a::ErrorKind::ResourceExhausted);
    assert_eq!(many.message, "200 agents are defined, as many as there may be; delete one");
}

#[tokio::test]
async fn nobody_defines_anything_where_nobody_makes_agents() {
    let rig = Rig::new(vec![]).await;
    let error = define(&rig.exchange, rig.me(), "poet", json!({})).await.unwrap_err();
    assert_eq!(error.to_string(), "this server does not take agents that tenants define");
    assert!(rig.exchange.defined_agents(rig.me(), &Luggage::default()).await.unwrap().is_empty());
}

#[tokio::test]
async fn agents_of_one_id_do_not_wait_for_each_other() {
    let rig = rig(vec![]).await;
    let other = rig.other_tenant().await;
    rig.define("one", json!({"waits": true, "slots": 1})).await;
    define(&rig.exchange, &other.caller, "one", json!({"says": "theirs", "slots": 1})).await.unwrap();
    let first = rig.start("one", message("hold the slot")).await;
    let second = rig.start("one", message("wait for it")).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(rig.get(&second).await.status.state, TaskState::Submitted, "a tenant's own slots are as many as it has");
    assert_eq!(rig.hears(&other, "one").await.unwrap(), "theirs");
    // A common one of that id has slots of its own too.
    let third = rig.store.create_tenant("third").await.unwrap().id;
    let third = Call::new(Caller::new(third, "third"));
    rig.exchange.agents().insert(agent("one", async |_, out: Output| {
        out.text("everybody's", true).await;
        Outcome::Completed(vec![])
    }));
    assert_eq!(rig.hears(&third, "one").await.unwrap(), "everybody's");
    assert_eq!(rig.hears(&other, "one").await.unwrap(), "theirs");
    // A definition that is changed brings no slots of its own.
    rig.exchange.redefine_agent(rig.me(), "one", br#"{"waits":true,"slots":1}"#.to_vec()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(rig.get(&second).await.status.state, TaskState::Submitted);
    rig.cancel(&first).await.unwrap();
    soon("the turn that waited", async || rig.get(&second).await.status.state == TaskState::Working).await;
    rig.cancel(&second).await.unwrap();
}

#[tokio::test]
async fn an_own_agent_stands_before_a_common_one_that_comes_later() {
    let rig = rig(vec![]).await;
    let other = rig.other_tenant().await;
    rig.define("poet", json!({"says": "mine"})).await;
    let common = agent("poet", async |_, out: Output| {
        out.text("everybody's", true).await;
        Outcome::Completed(vec![])
    });
    rig.exchange.agents().insert(common);
    assert_eq!(rig.hears(&rig.call, "poet").await.unwrap(), "mine");
    assert_eq!(rig.hears(&other, "poet").await.unwrap(), "everybody's");
    assert_eq!(rig.exchange.agents().visible(rig.me()).len(), 1);
    rig.exchange.undefine_agent(rig.me(), "poet").await.unwrap();
    assert_eq!(rig.hears(&rig.call, "poet").await.unwrap(), "everybody's");
    // What the common one does from then on is not the other's.
    rig.exchange.agents().insert(agent("asks", async |_, _| Outcome::InputRequired(vec![Part::text("which?")])));
    let asked = task_of(&rig.send("asks", message("hello")).await.unwrap()).id;
    rig.exchange.agents().remove(&"asks".parse().unwrap());
    rig.define("asks", json!({"asks": true})).await;
    let mine = task_of(&rig.send("asks", message("hello")).await.unwrap()).id;
    rig.exchange.agents().insert(agent("asks", async |_, _| Outcome::InputRequired(vec![Part::text("which?")])));
    rig.exchange.undefine_agent(rig.me(), "asks").await.unwrap();
    let later = task_of(&rig.send("asks", message("hello")).await.unwrap()).id;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let state = async |id: &str| rig.get(id).await.status.state;
    assert_eq!((state(&mine).await, state(&later).await), (TaskState::Canceled, TaskState::InputRequired));
    assert_eq!(state(&asked).await, TaskState::Canceled, "it was the own one's when that stood before the other");
    assert!(matches!(rig.exchange.undefine_agent(rig.me(), "poet").await, Err(Error::Request(_))));
}

#[tokio::test]
async fn whoever_removes_an_agent_cancels_what_it_has_not_ended() {
    let rig = rig(vec![]).await;
    let other = rig.other_tenant().await;
    rig.define("busy", json!({"waits": true, "slots": 2})).await;
    define(&rig.exchange, &other.caller, "busy", json!({"asks": true})).await.unwrap();
    let mut tasks = Vec::new();
    // More than there are slots, and than a page has.
    for n in 0..40 {
        tasks.push(rig.start("busy", message(&n.to_string())).await);
    }
    rig.define("asks", json!({"asks": true})).await;
    let asked = task_of(&rig.send("asks", message("hello")).await.unwrap());
    assert_eq!(asked.status.state, TaskState::InputRequired);
    let begun = std::time::Instant::now();
    rig.exchange.undefine_agent(rig.me(), "busy").await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(4), "a turn that heeds the cancel is not waited for: {begun:?}");
    for id in &tasks {
        assert_eq!(rig.get(id).await.status.state, TaskState::Canceled);
    }
    assert_eq!(rig.get(&asked.id).await.status.state, TaskState::InputRequired, "another agent's");
    let theirs = rig.exchange.send(&other, rig.request("busy", message("hello"))).await.unwrap();
    assert_eq!(state_of(&theirs), TaskState::InputRequired, "another tenant's");
    rig.exchange.undefine_agent(rig.me(), "asks").await.unwrap();
    assert_eq!(rig.get(&asked.id).await.status.state, TaskState::Canceled);
    // Another agent of that id is another agent, and what it has is not canceled.
    rig.define("asks", json!({"asks": true})).await;
    let again = task_of(&rig.send("asks", message("hello")).await.unwrap());
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(rig.get(&again.id).await.status.state, TaskState::InputRequired);
}

#[tokio::test]
async fn every_instance_hears_of_what_is_defined_at_another() {
    let place = Place::new();
    let here = Rig::at(&place, options(), vec![]).await;
    let there = Rig::at(&place, options(), vec![]).await;
    here.define("poet", json!({"says": "one"})).await;
    let says = async |text: &str| there.hears(&there.call, "poet").await.is_ok_and(|said| said == text);
    soon("the agent", async || says("one").await).await;
    here.exchange.redefine_agent(here.me(), "poet", br#"{"says":"two"}"#.to_vec()).await.unwrap();
    soon("the change", async || says("two").await).await;
    // What is removed there while it is at work here is canceled here.
    here.define("busy", json!({"waits": true})).await;
    let task = here.start("busy", message("hello")).await;
    soon("the other agent", async || there.exchange.agents().find(there.me(), "busy").is_some()).await;
    there.exchange.undefine_agent(there.me(), "busy").await.unwrap();
    assert_eq!(here.get(&task).await.status.state, TaskState::Canceled);
    soon("the end", async || here.exchange.agents().find(here.me(), "busy").is_none()).await;
    assert!(matches!(here.send("busy", message("hello")).await, Err(Error::AgentNotFound(_))));
}

#[tokio::test]
async fn what_is_due_of_an_own_agent_is_run_after_a_start() {
    let place = Place::new();
    let id: AgentId = "poet".parse().unwrap();
    let tenant = {
        let rig = Rig::at(&place, short(), vec![]).await;
        rig.define("poet", json!({"says": "still here"})).await;
        rig.exchange.shut_down(Duration::ZERO).await;
        rig.store.close().await;
        rig.call.caller.tenant
    };
    let task = Rig::abandon(&place, "poet", message("hello"), Duration::from_millis(200)).await;
    // A definition that this version does not understand is left out, and stays.
    let store = place.scratch.open().await;
    let strange = "strange".parse().unwrap();
    store.create_agent(tenant, &strange, br#"{"from":"the future"}"#.to_vec(), 9).await.unwrap();
    assert_eq!(store.own_agents(tenant, u64::MAX).await.unwrap()[0].id, id);
    store.close().await;
    let rig = Rig::at(&place, short(), vec![]).await;
    assert_eq!(rig.until_terminal(&task).await.status.state, TaskState::Completed);
    assert!(rig.exchange.agents().find(rig.me(), "strange").is_none());
    assert_eq!(rig.exchange.defined_agents(rig.me(), &Luggage::default()).await.unwrap().len(), 2);
    rig.exchange.redefine_agent(rig.me(), "strange", br#"{"says":"hi"}"#.to_vec()).await.unwrap();
    assert_eq!(rig.hears(&rig.call, "strange").await.unwrap(), "hi");
}

/// Another instance, of a newer version, may make what this one cannot.
#[tokio::test]
async fn a_turn_whose_agent_cannot_be_made_here_rests() {
    let place = Place::new();
    let task = Rig::abandon(&place, "poet", message("hello"), Duration::from_millis(200)).await;
    let store = place.scratch.open().await;
    let tenant = store.tenants().await.unwrap()[0].id;
    let poet = "poet".parse().unwrap();
    store.create_agent(tenant, &poet, br#"{"from":"the future","says":"hi"}"#.to_vec(), 9).await.unwrap();
    store.close().await;
    let rig = Rig::at(&place, short(), vec![]).await;
    let other = rig.other_tenant().await;
    define(&rig.exchange, &other.caller, "poet", json!({"says": "theirs"})).await.unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(rig.get(&task).await.status.state, TaskState::Working);
    rig.exchange.redefine_agent(rig.me(), "poet", br#"{"says":"mine"}"#.to_vec()).await.unwrap();
    rig.store.wake(tenant, TaskId::parse(&task).unwrap()).await.unwrap();
    let ended = rig.until_terminal(&task).await;
    assert_eq!(exchange::text_of(&ended.artifacts[0].parts), "mine");
}

/// Its id is offered by another tenant's agent: it must not wait behind that for ever, and never be run by it.
#[tokio::test]
async fn a_turn_whose_agent_is_gone_fails() {
    let place = Place::new();
    let task = Rig::abandon(&place, "poet", message("hello"), Duration::from_millis(200)).await;
    let rig = Rig::at(&place, short(), vec![]).await;
    let other = rig.other_tenant().await;
    define(&rig.exchange, &other.caller, "poet", json!({"says": "theirs"})).await.unwrap();
    let failed = rig.until_terminal(&task).await;
    assert_eq!(failed.status.state, TaskState::Failed);
    let said = exchange::text_of(&failed.status.message.unwrap().parts);
    assert!(said.starts_with("there is no agent 'poet' any more"), "{said}");
    assert_eq!(rig.hears(&other, "poet").await.unwrap(), "theirs");
}

#[tokio::test]
async fn a_task_tells_what_it_has_used_of_models() {
    let rig = rig(vec![]).await;
    rig.define("model", json!({"says": "hi", "reads": 100, "writes": 7})).await;
    let stored = async |id: &str| {
        let task = TaskId::parse(id).unwrap();
        rig.store.task(rig.me().tenant, task, store::View::FULL).await.unwrap().tokens
    };
    // What a caller hears is the sum of what it has seen; nothing was read back for it.
    let sent = rig.send("model", message("hello")).await.unwrap();
    let Reply::Task(snapshot) = &sent.reply else { panic!("{sent:?}") };
    assert_eq!(snapshot.tokens, Tokens { input: 100, output: 7 });
    assert_eq!(stored(&task_of(&sent).id).await, snapshot.tokens);
    // Every attempt costs.
    rig.define("tries", json!({"says": "hi", "reads": 10, "writes": 1, "fails": 1})).await;
    let sent = rig.send("tries", message("hello")).await.unwrap();
    let Reply::Task(snapshot) = &sent.reply else { panic!("{sent:?}") };
    assert_eq!(snapshot.tokens, Tokens { input: 20, output: 2 });
    assert_eq!(stored(&task_of(&sent).id).await, snapshot.tokens);
}
