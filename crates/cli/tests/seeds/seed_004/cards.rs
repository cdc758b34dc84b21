//! Entries and cards: where an agent is found, what it can do by its card and by its entry, and who is asked for a skill.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::completing;
use crate::harness::{
    http::text,
    remote::{Answer, Caller, LEGACY, Remote, Setup, WELL_KNOWN, card_03, task_03},
};

/// The entry of the seed, word for word.
const SAMPLE: &str = r#"agents:
  - name: quinn
    url: "${QUINN_BASE_URL}/a2a"
    skills:
      - name: pr_review
        description: Review PRs and submit formal APPROVE/REQUEST_CHANGES
      - name: bug_triage
        description: Triage bugs and file on the board
      - name: security_triage
        description: CVE/vulnerability triage and escalation

  - name: protomaker
    url: "${AVA_BASE_URL}/a2a"
    apiKeyEnv: AVA_API_KEY
    skills:
      - name: sitrep
      - name: board_health
      - name: manage_feature
      - name: bug_triage
"#;

/// The skills of a remote, with their descriptions and where each is from.
fn skills(remote: &Value) -> Vec<(String, String, String)> {
    let skills = remote["skills"].as_array().into_iter().flatten();
    let of = |skill: &Value, key: &str| skill[key].as_str().unwrap_or_default().to_owned();
    skills.map(|skill| (of(skill, "id"), of(skill, "description"), of(skill, "source"))).collect()
}

fn has_skill(remote: &Value, id: &str) -> bool {
    skills(remote).iter().any(|skill| skill.0 == id)
}

fn card_with(url: &str, ids: &[&str]) -> Value {
    let mut card = card_03(url);
    let skill = |id: &&str| json!({"id": id, "name": id, "description": "As the card has it.", "tags": []});
    card["skills"] = ids.iter().map(skill).collect();
    card
}

#[tokio::test]
async fn s4_37_s4_38_the_sample_of_the_seed_is_read() {
    let (quinn, ava) = (completing("by quinn").await, completing("by ava").await);
    let caller = Setup::new()
        .yaml(SAMPLE)
        .env("QUINN_BASE_URL", &quinn.base)
        .env("AVA_BASE_URL", &ava.base)
        .env("AVA_API_KEY", "key-of-ava")
        .start()
        .await;
    let known = caller.knows("quinn").await;
    let ours: Vec<String> = skills(&known).into_iter().filter(|skill| skill.2 == "yaml").map(|skill| skill.0).collect();
    assert_eq!(ours, ["pr_review", "bug_triage", "security_triage"], "{known:#}");
    let known = caller.knows("protomaker").await;
    for id in ["sitrep", "board_health", "manage_feature", "bug_triage"] {
        assert!(has_skill(&known, id), "{known:#}");
    }
    assert_eq!(known["url"], ava.agent(), "as it is called");
    assert_eq!(caller.asks("quinn", "work").await["response"], "by quinn");
    assert_eq!(quinn.only_call().path, "/a2a");
    assert_eq!(caller.asks("protomaker", "work").await["response"], "by ava");
    assert_eq!(ava.only_call().header("x-api-key"), Some("key-of-ava"));
}

#[tokio::test]
async fn s4_37_a_skill_may_be_a_name_alone() {
    let remote = completing("done").await;
    let yaml =
        format!("agents:\n  - name: quinn\n    url: \"{}\"\n    skills: [sitrep, {{name: plan}}]\n", remote.agent());
    let caller = Setup::new().yaml(&yaml).start().await;
    let known = caller.knows("quinn").await;
    assert!(has_skill(&known, "sitrep") && has_skill(&known, "plan"), "{known:#}");
}

#[tokio::test]
async fn s4_38_a_variable_that_is_not_set_is_a_warning_and_one_agent_less() {
    let ava = completing("by ava").await;
    let caller = Setup::new().yaml(SAMPLE).env("AVA_BASE_URL", &ava.base).start().await;
    caller.logs(&["WARN", "QUINN_BASE_URL"]).await;
    assert_eq!(caller.asks("protomaker", "work").await["response"], "by ava");
    assert_ne!(caller.remote("quinn").await["reachable"], true);
    caller.chat(&json!({"agent": "quinn", "message": "work"})).await.error(502);
}

#[tokio::test]
async fn s4_31_the_card_is_looked_for_at_the_begin_at_the_well_known_place() {
    for (path, expected) in [
        ("/a2a", WELL_KNOWN.to_owned()),
        ("/a2a/", WELL_KNOWN.to_owned()),
        ("/quinn/a2a", format!("/quinn{WELL_KNOWN}")),
        ("/other", format!("/other{WELL_KNOWN}")),
    ] {
        let remote = Remote::start().await;
        let url = format!("{}{path}", remote.base);
        remote.says(&expected, Answer::json(&card_03(&url)));
        let caller = Caller::knowing("quinn", &url).await;
        assert_eq!(remote.looked_at()[0], expected, "{path}");
        assert_eq!(caller.remote("quinn").await["reachable"], true);
    }
}

#[tokio::test]
async fn s4_32_x_15_the_legacy_place_is_looked_at_where_the_other_has_nothing() {
    let remote = Remote::start().await;
    remote.says(LEGACY, Answer::json(&card_with(&remote.agent(), &["only_there"])));
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    assert_eq!(remote.looked_at()[..2], [WELL_KNOWN, LEGACY]);
    assert!(has_skill(&caller.remote("quinn").await, "only_there"));
}

#[tokio::test]
async fn s4_33_a_skill_of_the_card_alone_can_be_asked_for() {
    let remote = completing("done").await;
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    assert_eq!(
        skills(&caller.remote("quinn").await),
        [("pr_review".into(), "As the card has it.".into(), "card".into())]
    );
    let outcome = caller.chat(&json!({"skill": "pr_review", "message": "work"})).await.ok();
    assert_eq!((&outcome["response"], &outcome["agent"]), (&json!("done"), &json!("quinn")));
    assert_eq!(remote.only_call().params()["metadata"]["skillHint"], "pr_review");
    caller.chat(&json!({"skill": "unheard_of", "message": "work"})).await.error(404);
}

#[tokio::test]
async fn s4_34_s4_35_s4_36_skills_come_and_go_with_the_card_and_those_of_the_entry_stay() {
    let remote = completing("done").await;
    let url = remote.agent();
    remote.has_card(&card_with(&url, &["pr_review", "old"]));
    let yaml = format!(
        "agents:\n  - name: quinn\n    url: \"{url}\"\n    skills:\n      - {{name: pr_review, description: As the entry has it.}}\n"
    );
    let caller = Setup::new().yaml(&yaml).env("SB_OUTBOUND_CARD_REFRESH", "1s").start().await;
    let known = caller.remote_when("quinn", |remote| has_skill(remote, "old")).await;
    let ours = ("pr_review".to_owned(), "As the entry has it.".to_owned(), "yaml".to_owned());
    assert!(skills(&known).contains(&ours), "{known:#}");
    assert_eq!(skills(&known).len(), 2, "{known:#}");

    remote.has_card(&card_with(&url, &["new"]));
    let known = caller.remote_when("quinn", |remote| has_skill(remote, "new")).await;
    assert!(skills(&known).contains(&ours), "the entry's stays: {known:#}");
    assert!(!has_skill(&known, "old"), "{known:#}");
    assert_eq!(caller.chat(&json!({"skill": "new", "message": "work"})).await.ok()["response"], "done");
    caller.chat(&json!({"skill": "old", "message": "work"})).await.error(404);

    // A look that fails changes nothing.
    let looked = remote.looked_at().len();
    remote.says(WELL_KNOWN, Answer::status(500, "out of order"));
    remote
        .until("two more looks", |asked| asked.iter().filter(|asked| asked.method == "GET").count() > looked + 2)
        .await;
    assert!(has_skill(&caller.remote("quinn").await, "new"));
}

#[tokio::test]
async fn s4_39_the_target_decides_and_without_one_always_the_same() {
    let (quinn, ava) = (completing("by quinn").await, completing("by ava").await);
    let caller =
        Setup::new().yaml(SAMPLE).env("QUINN_BASE_URL", &quinn.base).env("AVA_BASE_URL", &ava.base).start().await;
    caller.knows("quinn").await;
    caller.knows("protomaker").await;
    for (agent, response) in [("quinn", "by quinn"), ("protomaker", "by ava")] {
        let chat = json!({"agent": agent, "skill": "bug_triage", "message": "work"});
        assert_eq!(caller.chat(&chat).await.ok()["response"], response);
    }
    let mut answered = Vec::new();
    for _ in 0..5 {
        let outcome = caller.chat(&json!({"skill": "bug_triage", "message": "work"})).await.ok();
        answered.push(text(&outcome, "/agent").to_owned());
    }
    answered.dedup();
    assert_eq!(answered.len(), 1, "{answered:?}");
    assert_eq!(caller.chat(&json!({"skill": "sitrep", "message": "work"})).await.ok()["response"], "by ava");
}

#[tokio::test]
async fn s4_41_who_is_not_there_delays_nobody() {
    let remote = completing("done").await;
    let silent = Remote::start().await;
    for path in [WELL_KNOWN, LEGACY] {
        silent.says(path, Answer::hangs());
    }
    silent.says("message/send", Answer::hangs());
    let yaml = format!(
        "agents:\n  - {{name: dead, url: \"http://127.0.0.1:9/a2a\"}}\n  - {{name: silent, url: \"{}\"}}\n  - {{name: nowhere, url: \"http://nowhere.invalid/a2a\"}}\n  - {{name: quinn, url: \"{}\"}}\n",
        silent.agent(),
        remote.agent()
    );
    let begun = Instant::now();
    let caller = Setup::new().yaml(&yaml).start().await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(caller.asks("quinn", "work").await["response"], "done");
    assert_eq!(caller.asks("echo", "hello").await["response"], "hello");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let dead = caller.remote_when("dead", |remote| remote["reachable"] == false).await;
    assert!(!text(&dead, "/error").is_empty(), "{dead:#}");
    let reply = caller.chat(&json!({"agent": "dead", "message": "work"})).await;
    reply.error(502);
}

#[tokio::test]
async fn s4_30_what_the_card_asks_for_is_given() {
    let remote = Remote::start().await;
    let mut card = card_03(&remote.agent());
    card["securitySchemes"] = json!({"apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"}});
    card["security"] = json!([{"apiKey": []}]);
    remote.has_card(&card);
    remote.says("message/send", Answer::Result(task_03("rt-1", "rc-1", "completed", "done")));
    let yaml = format!("agents:\n  - {{name: quinn, url: \"{}\", apiKeyEnv: QUINN_KEY}}\n", remote.agent());
    let caller = Setup::new().yaml(&yaml).env("QUINN_KEY", "key-of-quinn").start().await;
    caller.knows("quinn").await;
    assert_eq!(caller.asks("quinn", "work").await["response"], "done");
    assert_eq!(remote.only_call().header("x-api-key"), Some("key-of-quinn"));
}

#[tokio::test]
async fn s4_46_the_url_of_the_entry_holds_whatever_the_card_says() {
    let remote = Remote::start().await;
    remote.has_card(&card_03("http://127.0.0.1:1/a2a"));
    remote.says("message/send", Answer::Result(task_03("rt-1", "rc-1", "completed", "done")));
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    assert_eq!(caller.asks("quinn", "work").await["response"], "done");
    assert_eq!(remote.only_call().path, "/a2a");
}
