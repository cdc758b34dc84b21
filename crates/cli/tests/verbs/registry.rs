//! The card registry: `sb a2a card-upsert` and its sisters, and `/v1/cards`.

use serde_json::{Value, json};

use super::rig::{Home, eventually, line_value};

#[test]
fn s3_20_s3_21_s3_34_x_29_a_card_is_kept_from_the_command_line() {
    let home = Home::new();
    let _server = home.serve();
    let arguments = ["a2a", "card-upsert", "agent.research.v1", "Research Agent"];
    let capabilities = ["--capabilities-json", r#"["summarize","retrieve"]"#, "--endpoint", "internal://a2a/research"];
    assert_eq!(home.ok(&[&arguments[..], &capabilities].concat()), "kept the card of agent.research.v1\n");

    // S3-21: what a stored card carries, in the spelling of A2A.
    let card = home.json(&["a2a", "card-show", "agent.research.v1"]).remove(0);
    assert_eq!(card["name"], "Research Agent");
    let skills: Vec<_> = card["skills"].as_array().unwrap().iter().map(|skill| skill["name"].clone()).collect();
    assert_eq!(skills, ["summarize", "retrieve"]);
    for member in ["supportedInterfaces", "capabilities", "skills", "defaultInputModes", "defaultOutputModes"] {
        assert!(card.get(member).is_some(), "{member}: {card}");
    }
    // S3-22, X-29.
    assert_eq!(
        card["supportedInterfaces"],
        json!([{"protocolBinding": "SECOND_BRAIN_LOCAL", "protocolVersion": "local-queue", "url": "internal://a2a/research"}])
    );

    // S3-20: the second one replaces the first.
    home.ok(&["a2a", "card-upsert", "agent.research.v1", "Research Agent II"]);
    let kept = home.json(&["a2a", "card-list"]);
    let kept: Vec<&Value> = kept.iter().filter(|entry| entry["source"] == "stored").collect();
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0]["card"]["name"], "Research Agent II");
    assert_eq!(kept[0]["card"]["supportedInterfaces"][0]["url"], "internal://a2a/agent.research.v1");
    assert!(kept[0]["updatedAt"].as_str().unwrap().ends_with('Z'));
    let text = home.ok(&["a2a", "card-list"]);
    assert!(text.starts_with("ID") && text.contains("Research Agent II") && text.contains("served"), "{text}");

    assert_eq!(home.ok(&["a2a", "card-remove", "agent.research.v1"]), "forgot the card of agent.research.v1\n");
    assert!(home.fails(&["a2a", "card-show", "agent.research.v1"], 1).contains("agent.research.v1"));
    home.fails(&["a2a", "card-remove", "agent.research.v1"], 1);
}

#[test]
fn s3_23_only_targets_of_the_queue_say_so() {
    let home = Home::new();
    let server = home.serve();
    let token = home.token();
    home.ok(&["a2a", "card-upsert", "review", "Review", "--endpoint", "https://agents.example.org/a2a"]);
    home.ok(&["a2a", "card-upsert", "local", "Local"]);
    let (status, list) = server.http("GET", "/v1/cards", Some(&token), None);
    assert_eq!(status, 200);
    for entry in list["cards"].as_array().unwrap() {
        for interface in entry["card"]["supportedInterfaces"].as_array().unwrap() {
            let is_local = interface["protocolBinding"] == "SECOND_BRAIN_LOCAL";
            // X-44: no agent that is served.
            assert_eq!(is_local, entry["agentId"] == "local", "{entry}");
            assert_eq!(is_local, interface["url"].as_str().unwrap().starts_with("internal://a2a/"), "{entry}");
        }
    }
    for (endpoint, binding) in [
        ("https://agents.example.org", "SECOND_BRAIN_LOCAL"),
        ("internal://a2a/x", "JSONRPC"),
        ("internal://x", ""),
        ("ftp://x", ""),
    ] {
        let arguments = ["a2a", "card-upsert", "bad", "Bad", "--endpoint", endpoint, "--endpoint-binding", binding];
        assert!(home.fails(&arguments, 1).contains("supportedInterfaces[0].url"), "{endpoint}");
    }
    assert!(home.fails(&["a2a", "card-upsert", "bad", "Bad", "--capabilities-json", "7"], 2).contains("list"));
    assert!(home.fails(&["a2a", "card-upsert", "agents", "Bad"], 1).contains("id"));
    assert!(home.fails(&["a2a", "card-upsert", "echo", "Mine"], 1).contains("served here"));
    assert_eq!(home.json(&["a2a", "card-show", "echo"])[0]["name"], "Echo");
}

#[test]
fn s3_35_agents_of_files_are_in_the_registry() {
    let home = Home::new();
    home.add_agent("none.txt", "");
    let server = home.serve();
    let token = home.token();
    let get = || server.http("GET", "/v1/cards/count", Some(&token), None);
    assert_eq!(get().0, 404);
    // A card that was kept before gives way to the agent that is served.
    home.ok(&["a2a", "card-upsert", "count", "Stored"]);
    home.add_agent("count.toml", "kind = \"command\"\nname = \"Counter\"\n[command]\nargv = [\"wc\", \"-c\"]\n");
    eventually("the agent has its card", || get().1["source"] == "served");
    let (status, entry) = get();
    assert_eq!((status, &entry["card"]["name"]), (200, &json!("Counter")));
    assert!(entry["card"]["signatures"].is_array(), "what is ours is signed");
    assert_eq!(home.json(&["a2a", "card-list"]).iter().filter(|entry| entry["agentId"] == "count").count(), 1);
}

#[test]
fn cards_over_http_are_each_tenants_own() {
    let home = Home::new();
    let server = home.serve();
    let token = home.token();
    let other = line_value(&home.ok(&["tenant", "add", "other"]), "token").to_owned();
    let card = json!({"name": "Mine", "supportedInterfaces": [{"url": "https://h.example"}], "more": 1});
    let put = |token: &str, body: &Value| server.http("PUT", "/v1/cards/mine", Some(token), Some(body));
    assert_eq!(put(&token, &card).0, 201);
    let (status, entry) = put(&token, &card);
    assert_eq!((status, &entry["agentId"], &entry["source"]), (200, &json!("mine"), &json!("stored")));
    assert!(entry["card"].get("more").is_none() && entry["card"].get("signatures").is_none(), "{entry}");
    assert_eq!(put(&other, &json!({"name": "Theirs"})).0, 201);
    assert_eq!(server.http("GET", "/v1/cards/mine", Some(&other), None).1["card"]["name"], "Theirs");
    assert_eq!(server.http("DELETE", "/v1/cards/mine", Some(&other), None).0, 200);
    assert_eq!(server.http("GET", "/v1/cards/mine", Some(&token), None).1["card"]["name"], "Mine");
    let theirs = server.http("GET", "/v1/cards/mine", Some(&other), None);
    let nobodys = server.http("GET", "/v1/cards/none", Some(&other), None);
    assert_eq!((theirs.0, nobodys.0), (404, 404));
    assert_eq!(theirs.1.to_string().replace("mine", "none"), nobodys.1.to_string());

    assert_eq!(server.http("GET", "/v1/cards", None, None).0, 401);
    assert_eq!(server.http("PUT", "/v1/cards/mine", None, Some(&card)).0, 401);
    for wrong in [json!([]), json!({}), json!({"name": 1}), json!({"name": "x".repeat(70_000)})] {
        assert_eq!(put(&token, &wrong).0, 400, "{}", wrong.to_string().chars().take(50).collect::<String>());
    }
    assert_eq!(server.http("PUT", "/v1/cards/a%20b", Some(&token), Some(&card)).0, 400);
    assert_eq!(server.http("POST", "/v1/cards/mine", Some(&token), Some(&card)).0, 405);
}
