//! The verbs, one by one: who gets what, in which order, and what becomes of attempts that fail.

use std::{collections::BTreeSet, time::Duration};

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    Hand, Setup, TestServer, UNKNOWN,
    http::{array, artifact_text, reason, text, to, with_json},
    state,
};

#[tokio::test]
async fn s3_24_the_oldest_comes_first_and_an_empty_queue_is_no_error() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let ids = [hand.publish("researcher", "one").await, hand.publish("researcher", "two").await];
    hand.publish("somebody-else", "three").await;
    for (n, id) in ids.iter().enumerate() {
        let held = hand.take("researcher").await;
        assert_eq!((&held.id, text(&held.entry, "/status")), (id, "in_progress"));
        assert_eq!((&held.entry["attempt"], &held.entry["turn"]), (&json!(1), &json!(1)));
        assert_eq!((text(&held.entry, "/claimedBy"), &held.entry["leaseSeconds"]), ("tests", &json!(60.0)));
        assert_eq!(text(&held.entry, "/message/parts/0/text"), ["one", "two"][n]);
        assert_eq!(array(&held.entry, "/history").len(), 1);
        assert_eq!(text(&hand.entry(id).await, "/status"), "in_progress");
    }
    assert!(hand.consume("researcher", &json!({})).await.is_empty());
    let bare = hand.api.post_empty("/v1/queue/nobody-ever/consume").await.ok();
    assert_eq!(bare, json!({"messages": []}), "nothing has to be said, and nobody has to know the agent");
}

#[tokio::test]
async fn several_are_handed_out_at_once_if_they_are_wanted() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(hand.publish("researcher", &n.to_string()).await);
    }
    let held = hand.consume("researcher", &json!({"max": 3})).await;
    assert_eq!(held.iter().map(|held| &held.id).collect::<Vec<_>>(), ids[..3].iter().collect::<Vec<_>>());
    assert_eq!(held.iter().map(|held| &held.lease).collect::<BTreeSet<_>>().len(), 3, "each has a lease of its own");
    assert_eq!(hand.consume("researcher", &json!({"max": 100})).await.len(), 2);
}

#[tokio::test]
async fn s3_25_twenty_at_once_get_each_of_ten_entries_once() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let mut published = BTreeSet::new();
    for n in 0..10 {
        published.insert(hand.publish("researcher", &n.to_string()).await);
    }
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let hand = hand.clone();
        asking.spawn(async move { hand.consume("researcher", &json!({})).await });
    }
    let handed: Vec<String> = asking.join_all().await.concat().into_iter().map(|held| held.id).collect();
    assert_eq!(handed.len(), 10, "{handed:?}");
    assert_eq!(handed.into_iter().collect::<BTreeSet<_>>(), published);
    for id in &published {
        assert_eq!(hand.entry(id).await["attempts"], 1);
    }
}

#[tokio::test]
async fn s3_26_an_entry_is_claimed_by_its_id_whatever_stands_before_it() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let first = hand.publish("researcher", "A").await;
    let second = hand.publish("researcher", "B").await;
    let claimed = hand.on(&second, "claim", &json!({"lease": 60, "worker": "me"})).await.ok();
    assert_eq!((text(&claimed, "/id"), text(&claimed, "/claimedBy")), (second.as_str(), "me"));
    assert!(!text(&claimed, "/lease").is_empty());
    let error = hand.on(&second, "claim", &json!({})).await.error(409);
    assert_eq!(reason(&error), "NOT_WAITING");
    assert!(text(&error, "/message").contains("me holds it"), "{error:#}");
    assert_eq!(hand.stands(&first).await.0, "pending");
    assert_eq!(hand.take("researcher").await.id, first);

    // The same by an agent that is run here.
    let first = hand.publish("echo", "A").await;
    let second = hand.publish("echo", "B").await;
    let task = hand.api.post_empty(&format!("/v1/queue/messages/{second}/execute")).await.ok();
    assert_eq!((state(&task), artifact_text(&task).as_str()), ("COMPLETED", "B"));
    assert_eq!(hand.stands(&first).await.0, "pending", "the older one still waits, and nobody runs it by itself");
    let error = hand.api.post_empty(&format!("/v1/queue/messages/{second}/execute")).await.error(409);
    assert_eq!(reason(&error), "NOT_WAITING", "it has been run");
    let held = hand.take("echo").await;
    assert_eq!(held.id, first, "a worker may have it instead");
    let error = hand.api.post_empty(&format!("/v1/queue/messages/{first}/execute")).await.error(409);
    assert_eq!(reason(&error), "NOT_WAITING", "and then it is not run");
}

#[tokio::test]
async fn s3_26_of_many_claims_of_one_entry_one_wins() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let id = hand.publish("researcher", "x").await;
    let mut claiming = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let (hand, id) = (hand.clone(), id.clone());
        claiming.spawn(async move { hand.on(&id, "claim", &json!({})).await.status });
    }
    let mut statuses = claiming.join_all().await;
    statuses.sort_unstable();
    assert_eq!(statuses[0], 200);
    assert!(statuses[1..].iter().all(|status| *status == 409), "{statuses:?}");
    assert_eq!(hand.entry(&id).await["attempts"], 1);
}

#[tokio::test]
async fn s3_27_only_what_there_is_can_be_acknowledged_and_only_once() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    for id in [UNKNOWN, "nothing"] {
        for verb in ["claim", "heartbeat", "ack", "nack", "execute"] {
            let error = hand.on(id, verb, &json!({})).await.error(404);
            assert_eq!(reason(&error), "TASK_NOT_FOUND", "{verb} {id}");
        }
        let error = hand.on(id, "progress", &json!({"text": "x"})).await.error(404);
        assert_eq!(reason(&error), "TASK_NOT_FOUND", "{id}");
        hand.api.get(&format!("/v1/queue/messages/{id}")).await.error(404);
        hand.api.post("/v1/queue/dlq/replay", &json!({"messageId": id})).await.error(404);
    }
    let id = hand.publish("researcher", "x").await;
    let error = hand.on(&id, "ack", &json!({"result": 1})).await.error(409);
    assert_eq!(reason(&error), "NOT_WAITING", "nobody works on it");
    let held = hand.take("researcher").await;
    hand.under(&held, "ack", &json!({"result": {"n": 1}})).await.ok();
    let before = rig.rows();
    assert_eq!(hand.under(&held, "ack", &json!({"result": {"n": 2}})).await.ok()["status"], "acked", "it is");
    let error = hand.on(&id, "ack", &json!({"result": {"n": 3}})).await.error(409);
    assert_eq!(reason(&error), "NOT_WAITING", "nobody works on it any more");
    assert_eq!(rig.rows(), before);
    assert_eq!(hand.api.task(&id).await["artifacts"][0]["parts"][0]["data"], json!({"n": 1}));
}

#[tokio::test]
async fn s3_28_s3_29_an_attempt_that_failed_is_followed_by_others_until_there_were_too_many() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let id = hand.publish("researcher", "x").await;
    let mut stream = hand.api.subscribe(&id, Some(0)).await;
    for attempt in 1..=3 {
        let held = hand.take("researcher").await;
        assert_eq!((&held.id, &held.entry["attempt"]), (&id, &json!(attempt)));
        let error = format!("broken {attempt}");
        let entry = hand.under(&held, "nack", &json!({"error": error, "delay": 0})).await.ok();
        let expected = if attempt < 3 { ("pending", "TASK_STATE_SUBMITTED") } else { ("dlq", "TASK_STATE_FAILED") };
        assert_eq!((text(&entry, "/status"), text(&entry, "/state")), expected);
        assert_eq!((&entry["attempts"], text(&entry, "/error")), (&json!(attempt), error.as_str()));
        assert_eq!(hand.letters().await.len(), usize::from(attempt == 3));
    }
    assert!(hand.consume("researcher", &json!({})).await.is_empty());
    let letters = hand.letters().await;
    let letter = &letters[0];
    assert_eq!((text(letter, "/id"), text(letter, "/agent")), (id.as_str(), "researcher"));
    assert_eq!((&letter["attempts"], text(letter, "/error")), (&json!(3), "broken 3"));
    let errors: Vec<(u64, &str, &str)> = array(letter, "/errors")
        .iter()
        .map(|failed| (failed["attempt"].as_u64().expect("a number"), text(failed, "/worker"), text(failed, "/error")))
        .collect();
    assert_eq!(errors, [(1, "tests", "broken 1"), (2, "tests", "broken 2"), (3, "tests", "broken 3")]);

    // Whoever follows the task sees it wait again, and why.
    let frames = stream.rest().await;
    let states: Vec<&str> = frames.iter().filter_map(super::sse::Frame::state).collect();
    assert_eq!(states, ["SUBMITTED", "WORKING", "SUBMITTED", "WORKING", "SUBMITTED", "WORKING", "FAILED"]);
    let again = frames.iter().filter(|frame| frame.kind() == "statusUpdate" && frame.state() == Some("SUBMITTED"));
    let why: Vec<&Value> = again.map(|frame| &frame.body["statusUpdate"]["metadata"]).collect();
    assert_eq!(why, [&json!({"attempt": 1, "error": "broken 1"}), &json!({"attempt": 2, "error": "broken 2"})]);
    let said = hand.api.task(&id).await;
    assert_eq!(text(&said, "/status/message/parts/0/text"), "broken 3; gave up after 3 attempts");
}

#[tokio::test]
async fn s3_28_the_next_attempt_waits_a_while_and_what_was_given_back_does_not_count() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let body = json!({"from": "planner", "to": "researcher", "text": "x", "maxAttempts": 2});
    let id = text(&hand.publish_all(&body).await, "/id").to_owned();
    for _ in 0..4 {
        let held = hand.take("researcher").await;
        let entry = hand.under(&held, "nack", &json!({"release": true})).await.ok();
        assert_eq!((text(&entry, "/status"), entry.get("error")), ("pending", None));
    }
    let held = hand.take("researcher").await;
    let entry = hand.under(&held, "nack", &json!({"error": "busy"})).await.ok();
    let wait = entry["availableInSeconds"].as_f64().expect("it waits");
    assert!(wait > 0.0 && wait <= 1.0, "{entry:#}");
    assert!(hand.consume("researcher", &json!({})).await.is_empty());
    let mut held = hand.consume("researcher", &json!({"wait": 10, "lease": 60})).await;
    assert_eq!(held.len(), 1, "it comes by itself");
    let entry = hand.under(&held.remove(0), "nack", &json!({"error": "busy", "delay": 0})).await.ok();
    assert_eq!((text(&entry, "/id"), text(&entry, "/status")), (id.as_str(), "dlq"), "the second that counts");

    let id = hand.publish("researcher", "x").await;
    let held = hand.take("researcher").await;
    let entry = hand.under(&held, "nack", &json!({"delay": 3600})).await.ok();
    assert!(entry["availableInSeconds"].as_f64().expect("it waits") > 3000.0, "{entry:#}");
    let claimed = hand.on(&id, "claim", &json!({})).await.ok();
    assert_eq!(claimed["attempt"], 2, "who names it need not wait");
}

#[tokio::test]
async fn s3_29_dead_letters_are_listed_by_agent_and_by_pages() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(hand.letter(if n == 4 { "other" } else { "researcher" }, &n.to_string()).await);
    }
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = hand.api.get(&format!("/v1/queue/dlq?limit=2{after}")).await.ok();
        seen.extend(array(&page, "/messages").iter().map(|letter| text(letter, "/id").to_owned()));
        match page.get("next") {
            Some(next) => after = format!("&after={}", next.as_str().expect("a text")),
            None => break,
        }
    }
    assert_eq!(seen, ids, "the oldest first");
    let others = hand.api.get("/v1/queue/dlq?agent=other").await.ok();
    assert_eq!(array(&others, "/messages").len(), 1);
    assert_eq!(text(&others, "/messages/0/id"), ids[4]);
}

#[tokio::test]
async fn s3_30_a_dead_letter_is_repeated_as_a_new_task_that_names_it() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let body = json!({"from": "planner", "to": "researcher", "text": "x", "payload": {"n": 1}, "correlationId": "c-1",
        "priority": 4, "maxAttempts": 1});
    let letter = text(&hand.publish_all(&body).await, "/id").to_owned();
    let held = hand.take("researcher").await;
    hand.under(&held, "nack", &json!({"error": "no"})).await.ok();
    let replay = json!({"messageId": letter, "toAgent": "researcher_retry"});
    let replayed = hand.api.post("/v1/queue/dlq/replay", &replay).await.ok();
    let [one] = array(&replayed, "/replayed").as_slice() else { panic!("{replayed:#}") };
    let new = text(one, "/newMessageId").to_owned();
    assert_eq!((text(one, "/messageId"), text(one, "/toAgent")), (letter.as_str(), "researcher_retry"));
    assert_ne!(new, letter);
    assert!(hand.letters().await.is_empty());
    assert!(hand.consume("researcher", &json!({})).await.is_empty());
    let held = hand.take("researcher_retry").await;
    let seen = ["from", "text", "contextId", "replays"].map(|name| text(&held.entry, &format!("/{name}")));
    assert_eq!(seen, ["planner", "x", "c-1", &letter]);
    assert_eq!((&held.id, &held.entry["payload"], &held.entry["priority"]), (&new, &json!({"n": 1}), &json!(4)));
    assert_eq!(held.entry["attempt"], 1, "it has all its attempts again");
    let task = hand.api.task(&new).await;
    assert_eq!(task["history"][0]["referenceTaskIds"], json!([letter]));
    // What has ended stays as it has ended.
    assert_eq!(hand.stands(&letter).await, ("failed".to_owned(), "FAILED".to_owned()));
    let error = hand.api.post("/v1/queue/dlq/replay", &replay).await.error(409);
    assert_eq!(reason(&error), "NOT_A_DEAD_LETTER", "it is repeated once");
}

#[tokio::test]
async fn s3_30_all_dead_letters_are_repeated_unless_one_is_named() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let ids = [hand.letter("one", "x").await, hand.letter("two", "y").await];
    let replayed = hand.api.post_empty("/v1/queue/dlq/replay").await.ok();
    let old: Vec<&str> = array(&replayed, "/replayed").iter().map(|one| text(one, "/messageId")).collect();
    assert_eq!(old, ids);
    assert!(hand.letters().await.is_empty());
    assert_eq!(text(&hand.take("one").await.entry, "/text"), "x", "each for its own agent");
    assert_eq!(text(&hand.take("two").await.entry, "/text"), "y");
    assert_eq!(hand.api.post_empty("/v1/queue/dlq/replay").await.ok(), json!({"replayed": []}));
    let running = hand.publish("one", "x").await;
    let error = hand.api.post("/v1/queue/dlq/replay", &json!({"messageId": running})).await.error(409);
    assert_eq!(reason(&error), "NOT_A_DEAD_LETTER");
}

#[tokio::test]
async fn s3_31_the_status_counts_what_there_is() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let empty = hand.api.get("/v1/queue/status").await.ok();
    assert_eq!((&empty["pending"], &empty["agents"]), (&json!(0), &json!([])));
    for _ in 0..2 {
        hand.letter("researcher", "x").await;
    }
    for verb in ["ack", "nack"] {
        hand.publish("researcher", "x").await;
        let held = hand.take("researcher").await;
        hand.under(&held, verb, &if verb == "nack" { json!({"fatal": true}) } else { json!({}) }).await.ok();
    }
    for agent in ["ask", "auth", "reject"] {
        hand.api.send(&to(agent, "x")).await;
    }
    let canceled = hand.publish("researcher", "x").await;
    hand.api.post_empty(&format!("/a2a/tasks/{canceled}:cancel")).await.ok();
    hand.publish("other", "x").await;
    hand.take("other").await;
    for _ in 0..3 {
        hand.publish("other", "x").await;
    }
    let status = hand.api.get("/v1/queue/status").await.ok();
    let rows = &rig.look(&["SELECT status, count(*) FROM a2a_messages GROUP BY status"])[0];
    let expected = [
        ("acked", 1),
        ("auth_required", 1),
        ("canceled", 1),
        ("dlq", 2),
        ("failed", 1),
        ("in_progress", 1),
        ("input_required", 1),
        ("pending", 3),
        ("rejected", 1),
    ];
    let mut counted: Vec<(String, u64)> = rows
        .iter()
        .map(|row| (row[0].clone().expect("a status"), row[1].as_ref().and_then(|n| n.parse().ok()).expect("a count")))
        .collect();
    counted.sort();
    assert_eq!(counted, expected.map(|(name, n)| (name.to_owned(), n)), "the rows themselves");
    for (name, n) in expected {
        assert_eq!(status[name], n, "{name}: {status:#}");
        let sum: u64 = array(&status, "/agents").iter().filter_map(|agent| agent[name].as_u64()).sum();
        assert_eq!(sum, n, "{name} of all agents");
    }
    let agent = |id: &str| array(&status, "/agents").iter().find(|agent| agent["agent"] == id).expect("it is listed");
    assert_eq!((&agent("other")["pending"], &agent("other")["in_progress"]), (&json!(3), &json!(1)));
    assert!(agent("other")["oldestPendingSeconds"].as_f64().expect("one waits") < 30.0);
    assert!(agent("researcher")["oldestDlqSeconds"].as_f64().expect("there is one") < 30.0);
    assert_eq!(agent("researcher").get("oldestPendingSeconds"), None, "nothing waits there");
}

#[tokio::test]
async fn s3_33_what_nobody_runs_is_not_executed_and_waits_on() {
    let rig = Setup::new().file("review.toml", "kind = \"queue\"\n").start().await;
    let hand = rig.hand();
    // Neither an agent that nobody knows, nor one whose work is done by workers.
    for agent in ["nobody", "review"] {
        let id = hand.publish(agent, "x").await;
        let before = rig.rows();
        let error = hand.api.post_empty(&format!("/v1/queue/messages/{id}/execute")).await.error(409);
        assert_eq!(reason(&error), "AGENT_NOT_RUN_HERE");
        assert_eq!(rig.rows(), before);
        assert_eq!(hand.stands(&id).await, ("pending".to_owned(), "SUBMITTED".to_owned()));
        assert_eq!(hand.take(agent).await.id, id);
    }
}

#[tokio::test]
async fn x_45_a_lease_is_checked_where_it_is_shown_and_else_whoever_holds_the_entry_is_meant() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let verbs = [
        ("heartbeat", json!({"seconds": 60})),
        ("progress", json!({"text": "halfway"})),
        ("nack", json!({"error": "again", "delay": 0})),
        ("ack", json!({"result": 1})),
    ];
    for with_lease in [true, false] {
        let id = hand.publish("researcher", "x").await;
        let mut held = hand.take("researcher").await;
        for (verb, body) in &verbs {
            let reply = if with_lease { hand.under(&held, verb, body).await } else { hand.on(&id, verb, body).await };
            assert_eq!(reply.status, 200, "{verb}: {}", reply.shown());
            if *verb == "nack" {
                let error = hand.on(&id, "ack", &json!({})).await.error(409);
                assert_eq!(reason(&error), "NOT_WAITING", "nobody holds it now");
                super::is_lost(&hand.under(&held, "ack", &json!({})).await);
                held = hand.take("researcher").await;
                assert_eq!(held.id, id);
            }
        }
        assert_eq!(hand.stands(&id).await.0, "acked");
    }
}

#[tokio::test]
async fn the_higher_priority_comes_first_and_then_the_older() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let mut expected = Vec::new();
    for (says, priority) in [("low", 0), ("low too", 0), ("high", 9), ("middle", 4), ("high too", 9)] {
        let body = json!({"from": "planner", "to": "researcher", "text": says, "priority": priority});
        let entry = hand.publish_all(&body).await;
        assert_eq!(entry["priority"], priority);
        expected.push((9 - priority, expected.len(), says));
    }
    expected.sort_unstable();
    let held = hand.consume("researcher", &json!({"max": 5})).await;
    let found: Vec<&str> = held.iter().map(|held| text(&held.entry, "/text")).collect();
    assert_eq!(found, expected.iter().map(|(_, _, says)| *says).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_delayed_entry_comes_when_its_time_has_come() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let late = json!({"from": "planner", "to": "researcher", "text": "late", "delay": 1.5, "priority": 9});
    let entry = hand.publish_all(&late).await;
    let wait = entry["availableInSeconds"].as_f64().expect("it waits");
    assert!(wait > 0.5 && wait <= 1.5, "{entry:#}");
    assert_eq!(text(&entry, "/status"), "pending");
    let begun = std::time::Instant::now();
    let now = hand.publish("researcher", "now").await;
    assert_eq!(hand.take("researcher").await.id, now, "what can be had comes before what is higher and cannot");
    let held = hand.consume("researcher", &json!({"wait": 20})).await;
    assert_eq!(held.len(), 1, "who waits for it gets it");
    assert_eq!(text(&held[0].entry, "/text"), "late");
    assert!(begun.elapsed() > Duration::from_millis(1200), "not before: {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(8), "and not long after: {:?}", begun.elapsed());
}

#[tokio::test]
async fn an_entry_may_have_as_many_attempts_as_its_publisher_wants() {
    let rig = Setup::new().file("review.toml", "kind = \"queue\"\nmax_attempts = 2\n").start().await;
    let hand = rig.hand();
    for (agent, wish, attempts) in
        [("review", None, 2), ("review", Some(1), 1), ("review", Some(4), 4), ("nobody", None, 3)]
    {
        let mut body = json!({"from": "planner", "to": agent, "text": "x"});
        if let Some(wish) = wish {
            body["maxAttempts"] = json!(wish);
        }
        let id = text(&hand.publish_all(&body).await, "/id").to_owned();
        let mut made = 0;
        while text(&hand.entry(&id).await, "/status") == "pending" {
            let held = hand.take(agent).await;
            hand.under(&held, "nack", &json!({"delay": 0})).await.ok();
            made += 1;
        }
        assert_eq!((made, hand.stands(&id).await.0.as_str()), (attempts, "dlq"), "{body}");
    }
}

#[tokio::test]
async fn x_19_what_is_published_twice_under_one_key_is_one_entry() {
    let mut rig = TestServer::start().await;
    let body = json!({"from": "planner", "to": "researcher", "text": "x", "payload": {"n": 1}});
    let publish = async |hand: &Hand, key: &str, body: &Value| {
        let request = hand.api.request(Method::POST, "/v1/queue/publish").header("Idempotency-Key", key);
        hand.api.call(with_json(request, body)).await
    };
    let hand = rig.hand();
    let mut publishing = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let (hand, body) = (hand.clone(), body.clone());
        publishing.spawn(async move { publish(&hand, "k-1", &body).await.json() });
    }
    let ids: BTreeSet<String> = publishing.join_all().await.iter().map(|entry| text(entry, "/id").to_owned()).collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    rig = rig.restart(Setup::new()).await;
    let hand = rig.hand();
    let held = hand.take("researcher").await;
    assert!(ids.contains(&held.id));
    let again = publish(&hand, "k-1", &body).await;
    assert_eq!((again.status, text(&again.json(), "/status")), (201, "in_progress"), "it is shown as it stands");
    hand.under(&held, "ack", &json!({})).await.ok();
    assert_eq!(text(&publish(&hand, "k-1", &body).await.json(), "/status"), "acked", "also when it is done");
    assert_eq!(rig.look(&["SELECT count(*) FROM a2a_messages"])[0][0][0].as_deref(), Some("1"));

    for (name, value) in
        [("text", json!("y")), ("to", json!("other")), ("payload", json!({"n": 2})), ("correlationId", json!("c"))]
    {
        let mut other = body.clone();
        other[name] = value;
        let error = publish(&hand, "k-1", &other).await.error(400);
        assert_eq!(reason(&error), "IDEMPOTENCY_CONFLICT", "{name}");
    }
    assert_eq!(publish(&hand, "k-2", &body).await.status, 201);
    hand.publish_all(&body).await;
    hand.publish_all(&body).await;
    let count = &rig.look(&["SELECT count(*) FROM a2a_messages"])[0][0][0];
    assert_eq!(count.as_deref(), Some("4"), "another key, and none, is new work");
    // Keys of another tenant are its own.
    let theirs = hand.with_token(&rig.add_tenant("other").await);
    let entry = publish(&theirs, "k-1", &json!({"from": "a", "to": "b", "text": "c"})).await;
    assert_eq!(entry.status, 201, "{}", entry.shown());
}
