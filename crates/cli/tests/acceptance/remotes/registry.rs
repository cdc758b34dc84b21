//! The registries by HTTP and by the command line: what is listed and to whom, what is added and removed, and files that change.

use reqwest::Method;
use serde_json::{Value, json};

use super::completing;
use crate::harness::{
    http::{artifact_text, state, text},
    remote::{Answer, BESIDE, Caller, Remote, Setup, WELL_KNOWN, card_03, task_03},
};

async fn delete(caller: &Caller, path: &str) -> crate::harness::http::Reply {
    let admin = caller.admin();
    admin.call(admin.request(Method::DELETE, path)).await
}

#[tokio::test]
async fn remotes_are_listed_with_their_health_and_addresses_are_for_the_operator() {
    let remote = completing("done").await;
    let yaml = format!(
        "agents:\n  - {{name: quinn, url: \"{}\"}}\n  - {{name: dead, url: \"http://127.0.0.1:9/a2a\"}}\n",
        remote.agent()
    );
    let caller = Setup::new().yaml(&yaml).json(&json!({"weatherbot": {"url": remote.agent()}})).start().await;
    caller.knows("quinn").await;
    let dead = caller.remote_when("dead", |remote| remote["reachable"] == false).await;
    assert!(!text(&dead, "/error").is_empty() && dead["cardAvailable"] == false, "{dead:#}");
    let quinn = caller.remote("quinn").await;
    assert_eq!(
        (&quinn["reachable"], &quinn["streaming"], &quinn["pushNotifications"]),
        (&json!(true), &json!(false), &json!(false))
    );
    assert!(quinn["latencyMs"].is_number() && quinn["lastProbedAt"].is_string(), "{quinn:#}");
    assert_eq!((&quinn["binding"], &quinn["breaker"]), (&json!("JSONRPC"), &json!("closed")), "{quinn:#}");
    assert!(text(&quinn, "/protocolVersion").starts_with("0.3"), "{quinn:#}");
    assert_eq!((&quinn["url"], &quinn["description"]), (&json!(remote.agent()), &json!("Looks after pull requests.")));
    for name in ["quinn", "dead", "weatherbot"] {
        let seen = caller.api().get(&format!("/v1/remotes/{name}")).await.ok();
        assert!(seen.get("url").is_none() && seen.get("error").is_none(), "{seen:#}");
        assert_eq!((&seen["name"], &seen["type"]), (&json!(name), &json!("a2a")));
    }
    caller.api().get("/v1/remotes/ghost").await.error(404);
    caller.api().with_token(None).get("/v1/remotes").await.error(401);
}

#[tokio::test]
async fn a_remote_is_added_survives_a_restart_and_is_removed() {
    let remote = completing("done").await;
    let yaml = format!("agents:\n  - {{name: mine, url: \"{}\"}}\n", remote.agent());
    let ours = "kind = \"command\"\n[command]\nargv = [\"echo\", \"ours\"]\n";
    let setup = Setup::new().yaml(&yaml).file("agents/ours.toml", ours);
    let mut caller = setup.env("KEY", "key-1").start().await;
    let entry = json!({"name": "quinn", "url": remote.agent(), "apiKeyEnv": "KEY", "skills": [{"name": "triage"}]});
    let made = caller.admin().post("/v1/remotes", &entry).await;
    assert_eq!(made.status, 201, "{}", made.shown());
    caller.admin().post("/v1/remotes", &entry).await.error(409);
    caller.admin().post("/v1/remotes", &json!({"name": "mine", "url": remote.agent()})).await.error(409);
    caller.admin().post("/v1/remotes", &json!({"name": "ours", "url": remote.agent()})).await.error(409);
    for wrong in [
        json!({}),
        json!({"name": "x"}),
        json!({"url": remote.agent()}),
        json!({"name": "../x", "url": remote.agent()}),
        json!({"name": "a b", "url": remote.agent()}),
        json!({"name": "x", "url": "nonsense"}),
        json!({"name": "x", "url": "ftp://example.com/"}),
        json!({"name": "x", "url": remote.agent(), "apiKeyENV": "K"}),
        json!([]),
    ] {
        caller.admin().post("/v1/remotes", &wrong).await.error(400);
    }
    for refused in
        [caller.api().post("/v1/remotes", &entry).await, caller.api().post_empty("/v1/remotes/quinn/probe").await]
    {
        assert!(matches!(refused.status, 401 | 403), "{}", refused.shown());
    }
    for _ in 0..2 {
        let known = caller.knows("quinn").await;
        assert_eq!(known["registry"], "agents.d", "{known:#}");
        assert_eq!(caller.asks("quinn", "work").await["response"], "done");
        assert_eq!(remote.calls().pop().unwrap().header("x-api-key"), Some("key-1"));
        caller.restart().await;
    }
    assert_eq!(delete(&caller, "/v1/remotes/quinn").await.status, 200);
    delete(&caller, "/v1/remotes/quinn").await.error(404);
    delete(&caller, "/v1/remotes/mine").await.error(409);
    caller.chat(&json!({"agent": "quinn", "message": "work"})).await.error(404);
}

#[tokio::test]
async fn a_probe_says_what_is_there() {
    let remote = completing("done").await;
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let state = caller.admin().post_empty("/v1/remotes/quinn/probe").await.ok();
    assert_eq!((&state["name"], &state["reachable"]), (&json!("quinn"), &json!(true)), "{state:#}");
    caller.admin().post_empty("/v1/remotes/ghost/probe").await.error(404);
    let found = caller.admin().post("/v1/remotes/probe", &json!({"url": remote.agent()})).await.ok();
    assert_eq!((&found["reachable"], &found["name"]), (&json!(true), &json!("Quinn")), "{found:#}");
    assert_eq!(found["cardUrl"], format!("{}{WELL_KNOWN}", remote.base), "{found:#}");
    assert_eq!(
        (&found["description"], &found["skills"][0]["id"]),
        (&json!("Looks after pull requests."), &json!("pr_review"))
    );
    let nobody = caller.admin().post("/v1/remotes/probe", &json!({"url": "http://127.0.0.1:9/a2a"})).await.ok();
    assert_eq!(nobody["reachable"], false, "{nobody:#}");
    caller.admin().post("/v1/remotes/probe", &json!({"url": "nonsense"})).await.error(400);
}

#[tokio::test]
async fn a_probe_notices_who_comes_and_goes() {
    let remote = completing("done").await;
    let yaml = format!("agents:\n  - {{name: quinn, url: \"{}\"}}\n", remote.agent());
    let caller = Setup::new().yaml(&yaml).env("SB_OUTBOUND_PROBE", "1s").start().await;
    caller.remote_when("quinn", |remote| remote["reachable"] == true).await;
    let base = remote.base.clone();
    drop(remote);
    caller.remote_when("quinn", |remote| remote["reachable"] == false).await;
    let remote = Remote::again(&base).await;
    remote.has_card(&card_03(&remote.agent()));
    caller.remote_when("quinn", |remote| remote["reachable"] == true).await;
}

#[tokio::test]
async fn files_are_read_again_and_a_broken_edit_keeps_the_last_good_version() {
    let (one, two) = (completing("one").await, completing("two").await);
    let yaml = |url: &str| format!("agents:\n  - {{name: quinn, url: \"{url}\"}}\n");
    let caller = Setup::new().yaml(&yaml(&one.agent())).start().await;
    assert_eq!(caller.asks("quinn", "work").await["response"], "one");
    caller.edit("agents.yaml", "agents:\n  - name: [");
    caller.logs(&["ERROR", "agents.yaml"]).await;
    assert_eq!(caller.asks("quinn", "work").await["response"], "one");
    caller.edit("agents.yaml", &yaml(&two.agent()));
    caller.remote_when("quinn", |remote| remote["url"] == two.agent()).await;
    assert_eq!(caller.asks("quinn", "work").await["response"], "two");
    // A file of its own comes before the list.
    caller.edit("agents.d/quinn.yaml", &format!("name: quinn\nurl: \"{}\"\n", one.agent()));
    let known = caller.remote_when("quinn", |remote| remote["url"] == one.agent()).await;
    assert_eq!(known["registry"], "agents.d");
    caller.edit("agents.d/other.yaml.example", "name: other\nurl: http://127.0.0.1:9/\n");
    caller.edit("agents.d/broken.yaml", "name: [");
    caller.logs(&["ERROR", "broken.yaml"]).await;
    assert_eq!(caller.asks("quinn", "work").await["response"], "one");
    caller.admin().get("/v1/remotes/other").await.error(404);
}

#[tokio::test]
async fn an_entry_that_takes_the_name_of_an_agent_of_ours_does_not_take_its_place() {
    let remote = completing("stolen").await;
    let yaml = format!("agents:\n  - {{name: echo, url: \"{0}\"}}\n  - {{name: mine, url: \"{0}\"}}\n", remote.agent());
    let mine = "kind = \"command\"\n[command]\nargv = [\"echo\", \"ours\"]\n";
    let caller = Setup::new().yaml(&yaml).file("agents/mine.toml", mine).start().await;
    let outcome = caller.asks("mine", "work").await;
    assert_eq!(outcome["response"].as_str().unwrap().trim(), "ours");
    caller.logs(&["mine"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_url_of_a_card_stands_for_its_agent_in_every_registry() {
    let remote = Remote::start().await;
    let paths = [WELL_KNOWN, BESIDE, "/deep/.well-known/agent.json"];
    for path in paths {
        remote.says(path, Answer::json(&card_03(&remote.agent())));
    }
    remote.says("message/send", Answer::Result(task_03("rt-1", "rc-1", "completed", "done")));
    for path in paths {
        let card = format!("{}{path}", remote.base);
        let caller = Setup::new()
            .yaml(&format!("agents:\n  - {{name: of_yaml, url: \"{card}\"}}\n"))
            .json(&json!({"of_json": {"url": card}}))
            .file("agents/of_json.toml", "kind = \"remote\"\n[remote]\nname = \"of_json\"\n")
            .file("agents/of_file.toml", &format!("kind = \"remote\"\n[remote]\nurl = \"{card}\"\n"))
            .start()
            .await;
        caller.home.ok(&["remote", "add", "added", &card]);
        for agent in ["of_yaml", "of_json", "of_file", "added"] {
            caller.remote_when(agent, |_| true).await;
            let task = caller.sends(agent, "work").await;
            assert_eq!((state(&task), artifact_text(&task).as_str()), ("COMPLETED", "done"), "{agent} at {card}");
            assert_eq!(remote.calls().pop().unwrap().path, "/a2a", "{agent} at {card}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sb_remote_lists_adds_shows_probes_and_removes() {
    let remote = completing("done").await;
    let caller = Setup::new().env("KEY", "key-1").start().await;
    let home = &caller.home;
    let one = |args: &[&str]| -> Value { home.json(args).remove(0) };
    home.ok(&["remote", "add", "quinn", &remote.agent(), "--api-key-env", "KEY"]);
    home.fails(&["remote", "add", "quinn", &remote.agent()], 1);
    caller.knows("quinn").await;
    let listed = home.ok(&["remote", "list"]);
    assert!(listed.contains("quinn") && listed.contains("a2a"), "{listed}");
    let listed = home.json(&["remote", "list"]);
    assert!(listed.iter().any(|value| value.to_string().contains("\"quinn\"")), "{listed:#?}");
    assert_eq!(one(&["remote", "card", "quinn"])["name"], "Quinn");
    let mut card = card_03(&remote.agent());
    card["version"] = json!("3.0.0");
    remote.says(WELL_KNOWN, Answer::json(&card));
    assert_eq!(one(&["remote", "card", "quinn", "--refresh"])["version"], "3.0.0");
    assert_eq!(one(&["remote", "probe", "quinn"])["reachable"], true);
    assert_eq!(one(&["remote", "probe", &remote.agent()])["reachable"], true);
    assert_eq!(home.ok(&["send", "--agent", "quinn", "work"]), "done\n");
    assert_eq!(remote.calls().pop().unwrap().header("x-api-key"), Some("key-1"));
    home.ok(&["remote", "remove", "quinn"]);
    home.fails(&["remote", "remove", "quinn"], 1);
    home.fails(&["remote", "card", "quinn"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_url_that_a_card_of_ours_names_leads_to_that_card() {
    let far = Setup::new().start().await;
    let card = far.api().get("/a2a/agents/echo/.well-known/agent-card.json").await.ok();
    let gateway = far.api().get("/.well-known/agent-card.json").await.ok();
    let urls = |card: &Value| -> Vec<String> {
        let interfaces = card["supportedInterfaces"].as_array().unwrap().iter();
        interfaces.map(|interface| text(interface, "/url").to_owned()).collect()
    };
    assert_eq!(urls(&card).len(), 2);
    let arbiters = format!("{}/v1/a2a/agents/echo", far.server.url);
    for (wanted, urls) in [("Echo", [urls(&card), vec![arbiters]].concat()), ("Switchboard", urls(&gateway))] {
        for url in urls {
            let below = url.strip_prefix(&far.server.url).unwrap();
            for place in ["agent-card.json", ".well-known/agent-card.json"] {
                let reply = far.api().get(&format!("{below}/{place}")).await;
                assert_eq!(reply.ok()["name"], wanted, "{url}/{place}");
            }
            let caller = Setup::new()
                .env("KEY", crate::harness::TOKEN)
                .yaml(&format!(
                    "agents:\n  - name: listed\n    url: \"{url}\"\n    auth: {{scheme: bearer, credentialsEnv: KEY}}\n"
                ))
                .json(&json!({"told": {"url": url, "auth": {"token": crate::harness::TOKEN}}}))
                .start()
                .await;
            caller.knows("listed").await;
            caller.home.ok(&["remote", "add", "added", &url, "--bearer-env", "KEY"]);
            caller.knows("added").await;
            for name in ["listed", "told", "added"] {
                assert_eq!(
                    caller.api().get(&format!("/v1/remotes/{name}/card")).await.ok()["name"],
                    wanted,
                    "{name} at {url}"
                );
            }
            if wanted == "Echo" {
                assert_eq!(caller.asks("added", "hello").await["response"], "hello", "{url}");
                assert_eq!(caller.a2a("call told hello").await, "hello", "{url}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_in_a_file_is_read_again_for_each_call() {
    let remote = completing("done").await;
    let setup = Setup::new();
    let (url, path) = (remote.agent(), setup.home().write("tokens/far", "first\n"));
    let path = path.as_str();
    let file = format!(
        "kind = \"remote\"\n[remote]\nurl = \"{url}\"\nauth = {{ scheme = \"bearer\", credentials_file = \"{path}\" }}\n"
    );
    let caller = setup
        .json(&json!({"bot": {"url": url, "auth": {"type": "bearer", "token_file": path}}}))
        .file("agents/filed.toml", &file)
        .start()
        .await;
    caller.home.ok(&["remote", "add", "added", &url, "--bearer-file", path]);
    for value in ["first", "second"] {
        caller.home.write("tokens/far", format!("{value}\n"));
        for name in ["bot", "filed", "added"] {
            assert_eq!(caller.asks(name, "work").await["response"], "done", "{name}");
            let bearer = format!("Bearer {value}");
            assert_eq!(remote.calls().pop().unwrap().header("authorization"), Some(bearer.as_str()), "{name}");
        }
    }
    let shown = caller.home.ok(&["remote", "list", "-o", "json"]);
    assert!(!shown.contains("second") && !caller.server.log().contains("second"), "a token is shown");
    // A file that is gone, or no regular file, gives no token and says why to the operator.
    std::fs::remove_file(path).unwrap();
    std::fs::create_dir(path).unwrap();
    caller.asks("added", "work").await;
    assert_eq!(remote.calls().pop().unwrap().header("authorization"), None);
    let error = caller.remote("added").await["error"].to_string();
    assert!(error.contains("regular file") && error.contains(path), "{error}");
    let both = ["remote", "add", "x", &url, "--bearer-file", path, "--bearer-env", "KEY"];
    caller.home.fails(&both, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adding_and_probing_say_what_the_card_demands() {
    let remote = completing("done").await;
    let url = remote.agent();
    let caller = Setup::new().env("KEY", "key-1").start().await;
    let setup = |arguments: &[&str]| {
        let ran = caller.home.run(arguments);
        assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&ran.stdout), text(&ran.stderr))
    };
    let (shown, noted) = setup(&["remote", "add", "open", &url]);
    assert!(
        !shown.contains("demands") && !shown.contains("accepts") && !noted.contains("credential"),
        "{shown}{noted}"
    );
    let mut card = card_03(&url);
    card["securitySchemes"] = json!({
        "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}, "token": {"type": "http", "scheme": "bearer"},
    });
    card["security"] = json!([{"token": []}, {"key": []}]);
    remote.has_card(&card);
    let (shown, noted) = setup(&["remote", "add", "bare", &url]);
    let line = "a bearer token, or an API key in the header X-API-Key";
    assert!(shown.lines().any(|said| said.starts_with("demands:") && said.ends_with(line)), "{shown}");
    assert!(noted.contains("no credential") && noted.contains("--bearer-file"), "{noted}");
    let (shown, noted) = setup(&["remote", "add", "keyed", &url, "--bearer-env", "KEY"]);
    assert!(shown.contains(&format!("accepts:     {line}")) && noted.is_empty(), "{shown}{noted}");
    card["security"] = json!([{"key": []}]);
    remote.has_card(&card);
    for whom in [url.as_str(), "bare"] {
        let (shown, noted) = setup(&["remote", "probe", whom]);
        assert!(shown.contains("an API key in the header X-API-Key"), "{shown}");
        assert!(noted.contains("--api-key-env"), "{noted}");
    }
    assert!(setup(&["remote", "probe", "keyed"]).1.is_empty(), "it has a credential");
}

#[tokio::test]
async fn errors_name_the_remote_and_not_where_it_is() {
    let remote = completing("done").await;
    let url = remote.agent();
    let file = |auth: &str| format!("kind = \"remote\"\n[remote]\nurl = \"{url}\"\n{auth}");
    let caller = Setup::new()
        .json(&json!({"bot": {"url": url, "auth": {"token": "tok"}}, "bare": {"url": url}}))
        .file("agents/filed.toml", &file("auth = { scheme = \"bearer\", credentials_env = \"KEY\" }\n"))
        .file("agents/open.toml", &file(""))
        .env("KEY", "key-1")
        .start()
        .await;
    let port = remote.base.rsplit_once(':').unwrap().1.to_owned();
    let asks = async |name: &str| {
        let said =
            text(&caller.chat(&json!({"agent": name, "message": "work"})).await.error(502), "/message").to_owned();
        assert!(!said.contains(&port), "callers are not told where it is: {said}");
        said
    };
    remote.says("message/send", Answer::status(401, "who are you?"));
    for name in ["bot", "filed"] {
        let text = format!("remote {name} refused this server's token (HTTP 401)");
        assert_eq!(asks(name).await, text);
    }
    for name in ["bare", "open"] {
        let text = format!("remote {name} demands a credential, and this server has none for it (HTTP 401)");
        assert_eq!(asks(name).await, text);
    }
    let said = caller.a2a("call bot hello").await;
    assert_eq!(said, "ERR: HTTP 401: Unauthorized (remote bot refused this server's token)");
    remote.says("message/send", Answer::status(403, "not you"));
    assert_eq!(asks("filed").await, "remote filed does not allow this server to do this (HTTP 403)");
    remote.says("message/send", Answer::status(400, "what?"));
    assert_eq!(asks("bot").await, "remote bot answered HTTP 400: Bad Request");
    remote.says("message/send", Answer::Refused(-32602, "no such skill"));
    assert_eq!(asks("filed").await, "remote filed answered: no such skill (-32602)");
    drop(remote);
    let said = asks("bot").await;
    assert!(said.contains("remote bot cannot be reached"), "{said}");
}

#[tokio::test]
async fn a_remote_that_is_away_for_a_while_is_no_attempt_that_was_cut_off() {
    let remote = completing("done").await;
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let base = remote.base.clone();
    drop(remote);
    let mut command = caller.home.command(&["send", "--agent", "quinn", "work"]);
    let sending = tokio::task::spawn_blocking(move || command.output().unwrap());
    let begun = std::time::Instant::now();
    while caller.api().get("/v1/requests").await.ok()["requests"] == json!([]) {
        assert!(begun.elapsed() < crate::harness::PATIENCE, "the message is not accepted");
        tokio::time::sleep(std::time::Duration::from_millis(30)).await;
    }
    let remote = Remote::again(&base).await;
    remote.has_card(&card_03(&remote.agent()));
    remote.says("message/send", Answer::Result(crate::harness::remote::task_03("t", "c", "completed", "done")));
    let ran = sending.await.unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "done\n", "{said}");
    assert!(!said.contains("attempt"), "{said}");
}

#[tokio::test]
async fn a_server_that_cannot_take_a_message_is_not_called_away() {
    let remote = Remote::with_card(crate::harness::remote::card_10).await;
    let done = json!({"task": crate::harness::remote::task_10("t", "c", "COMPLETED", "done")});
    let full = Answer::status(503, "the journal cannot be written");
    remote.on("SendMessage", [full.clone(), full, Answer::Result(done)]);
    let home = crate::harness::Home::new();
    let mut command = home.command(&["send", "--url", &remote.base, "work"]);
    let ran = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "done\n", "{said}");
    assert!(said.contains("cannot take this now") && said.contains("takes it again"), "{said}");
    assert!(!said.contains("away"), "{said}");
}

#[tokio::test]
async fn outbound_calls_can_be_switched_off() {
    let remote = completing("done").await;
    let yaml = format!("agents:\n  - {{name: quinn, url: \"{}\"}}\n", remote.agent());
    let caller = Setup::new().yaml(&yaml).env("SB_OUTBOUND_ENABLED", "false").start().await;
    let said = caller.a2a("list").await;
    assert!(said.starts_with("ERR: A2A unavailable in this context"), "{said}");
    let outcome = caller.asks("quinn", "work").await;
    assert_eq!(outcome["taskState"], "failed", "{outcome:#}");
    assert!(outcome["response"].as_str().unwrap().contains("A2A unavailable"), "{outcome:#}");
    assert!(remote.asked().is_empty(), "nobody was called: {:#?}", remote.asked());
}
