//! What goes: `sb task delete`, `sb context delete`, their routes, and what is old by itself.

use serde_json::{Value, json};

use super::rig::{Home, Server, eventually, line_value, text};
use crate::harness::wait_for;

/// Sends a message; gives its task as it is then.
fn send(server: &Server, token: &str, agent: &str, context: &str, says: &str) -> Value {
    let name: String = says.chars().take(64).collect();
    let body = json!({
        "message": {"messageId": name, "contextId": context, "role": "ROLE_USER", "parts": [{"text": says}]},
        "configuration": {"returnImmediately": agent == "slow"},
    });
    let path = format!("/a2a/agents/{agent}/message:send");
    let (status, answer) = server.http("POST", &path, Some(token), Some(&body));
    assert_eq!(status, 200, "{answer}");
    answer["task"].clone()
}

fn id(task: &Value) -> String {
    task["id"].as_str().unwrap().to_owned()
}

/// What a path answers, as text: a stream to its end.
fn read(server: &Server, path: &str, token: &str) -> String {
    let api = server.api().with_token(Some(token));
    let reply = wait_for(api.call(api.request("GET".parse().unwrap(), path)));
    assert_eq!(reply.status, 200, "{path}");
    text(&reply.body)
}

fn is_there(server: &Server, token: &str, task: &str) -> bool {
    match server.http("GET", &format!("/a2a/tasks/{task}"), Some(token), None).0 {
        200 => true,
        404 => false,
        status => panic!("{status}"),
    }
}

#[test]
fn tasks_are_deleted_at_once_and_the_audit_log_says_who_did_it() {
    let home = Home::new();
    let server = home.serve();
    let token = home.token();
    let secret = "something that nobody else may read";
    let (first, second) =
        (id(&send(&server, &token, "echo", "c", secret)), id(&send(&server, &token, "echo", "c", "b")));
    let (status, answer) = server.http("DELETE", &format!("/v1/requests/{first}"), Some(&token), None);
    assert_eq!((status, &answer["deleted"]), (200, &json!(1)), "{answer}");
    assert!(answer["bytes"].as_u64().unwrap() > secret.len() as u64, "{answer}");
    assert!(!is_there(&server, &token, &first) && is_there(&server, &token, &second));
    let (status, answer) = server.http("DELETE", &format!("/v1/requests/{first}"), Some(&token), None);
    assert_eq!((status, &answer["error"]["details"][0]["reason"]), (404, &json!("TASK_NOT_FOUND")), "only once");
    assert_eq!(server.http("DELETE", "/v1/requests/nothing", Some(&token), None).0, 404);
    assert_eq!(server.http("DELETE", &format!("/v1/requests/{second}"), None, None).0, 401);
    let (status, answer) = server.http("DELETE", &format!("/v1/requests/{second}?cancel=maybe"), Some(&token), None);
    assert_eq!(status, 400, "{answer}");

    let said = home.ok(&["task", "delete", &second]);
    assert!(said.starts_with(&format!("deleted task {second}, ")), "{said}");
    let more: Vec<String> = ["x", "y"].iter().map(|says| id(&send(&server, &token, "echo", "c", says))).collect();
    // What is not there keeps nobody from deleting the rest.
    let output = home.run(&["task", "delete", &more[0], &first, &more[1], "-o", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let deleted: Vec<Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(deleted.iter().map(|line| line["task"].as_str().unwrap()).collect::<Vec<_>>(), more);
    assert!(deleted.iter().all(|line| line["deleted"] == 1 && line["bytes"].as_u64() > Some(0)));
    assert!(text(&output.stderr).contains("task not found"), "{}", text(&output.stderr));
    assert_eq!(home.json(&["task", "list"]).len(), 0);
    assert_eq!(home.run(&["task", "delete"]).status.code(), Some(2), "it has to be said which");

    let entries = home.json(&["audit"]);
    let of_tasks: Vec<&Value> = entries.iter().filter(|entry| entry["action"] == "task_deleted").collect();
    assert_eq!(of_tasks.len(), 4);
    assert!(of_tasks.iter().all(|entry| entry["actor"] == "tenant default token:1" && entry["target_kind"] == "task"));
    assert_eq!(of_tasks[3]["target_id"], first.as_str());
    assert!(home.ok(&["audit"]).contains("task_deleted"));
    assert!(!entries.iter().any(|entry| entry.to_string().contains(secret)), "what was said is gone");
}

#[test]
fn what_has_not_ended_is_deleted_only_when_it_may_be_canceled() {
    let home = Home::new();
    let server = home.serve();
    let token = home.token();
    let running = id(&send(&server, &token, "slow", "c", "60000"));
    let path = format!("/v1/requests/{running}");
    let (status, answer) = server.http("DELETE", &path, Some(&token), None);
    assert_eq!((status, &answer["error"]["details"][0]["reason"]), (409, &json!("TASK_NOT_ENDED")), "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("cancel it first"), "{answer}");
    let said = home.fails(&["task", "delete", &running], 1);
    assert!(said.contains("not ended") && said.contains("--cancel"), "{said}");
    assert!(is_there(&server, &token, &running));
    let (status, answer) = server.http("DELETE", &format!("{path}?cancel=true"), Some(&token), None);
    assert_eq!((status, &answer["deleted"]), (200, &json!(1)), "{answer}");
    assert!(!is_there(&server, &token, &running));
    let asking = id(&send(&server, &token, "ask", "c", "x"));
    assert_eq!(home.json(&["task", "delete", "--cancel", &asking])[0]["deleted"], 1);
    assert!(!is_there(&server, &token, &asking));
}

#[test]
fn a_context_is_deleted_with_all_its_tasks() {
    let home = Home::new();
    let server = home.serve();
    let token = home.token();
    for (agent, context) in [("echo", "chat/1"), ("stream", "chat/1"), ("fail", "chat/1"), ("echo", "other")] {
        send(&server, &token, agent, context, &format!("1 {agent} {context}"));
    }
    let running = id(&send(&server, &token, "slow", "chat/1", "60000"));
    let (status, answer) = server.http("DELETE", "/v1/contexts/chat%2F1", Some(&token), None);
    assert_eq!(status, 409, "{answer}");
    assert_eq!(home.json(&["task", "list", "--context", "chat/1"]).len(), 4, "a refusal deletes nothing");
    assert!(home.fails(&["context", "delete", "chat/1"], 1).contains("--cancel"));
    let said = home.ok(&["context", "delete", "chat/1", "--cancel"]);
    assert!(said.starts_with("deleted 4 tasks of the context chat/1, "), "{said}");
    assert!(!is_there(&server, &token, &running));
    let left = home.json(&["task", "list"]);
    assert_eq!((left.len(), left[0]["contextId"].as_str()), (1, Some("other")));
    home.fails(&["context", "delete", "chat/1"], 1);
    assert_eq!(home.json(&["context", "delete", "other", "--yes"])[0]["deleted"], 1);
    let (status, answer) = server.http("DELETE", "/v1/contexts/other", Some(&token), None);
    assert_eq!((status, &answer["error"]["details"][0]["reason"]), (404, &json!("NOT_FOUND")), "{answer}");
    assert_eq!(server.http("GET", "/v1/contexts/other", Some(&token), None).0, 405);
    let entries = home.json(&["audit"]);
    let entry = entries.iter().find(|entry| entry["target_id"] == "chat/1").unwrap();
    assert_eq!((entry["action"].as_str(), entry["after"]["deleted"].as_u64()), (Some("context_deleted"), Some(4)));
    assert!(entry["after"]["tasks"].to_string().contains(&running), "{entry}");
}

#[test]
fn what_is_another_tenants_cannot_be_deleted() {
    let home = Home::new();
    let server = home.serve();
    let token = home.token();
    let other = line_value(&home.ok(&["tenant", "add", "other"]), "token").to_owned();
    let task = id(&send(&server, &token, "echo", "c", "mine"));
    for cancel in ["", "?cancel=true"] {
        assert_eq!(server.http("DELETE", &format!("/v1/requests/{task}{cancel}"), Some(&other), None).0, 404);
        assert_eq!(server.http("DELETE", &format!("/v1/contexts/c{cancel}"), Some(&other), None).0, 404);
    }
    home.fails(&["task", "delete", &task, "--token", &other], 1);
    assert!(is_there(&server, &token, &task));
    assert!(!home.ok(&["audit"]).contains("_deleted"), "what was refused is not written down");
    // The same context of the other tenant is another one.
    send(&server, &other, "echo", "c", "theirs");
    assert_eq!(server.http("DELETE", "/v1/contexts/c", Some(&other), None).1["deleted"], 1);
    assert!(is_there(&server, &token, &task));
}

#[test]
fn what_is_old_goes_by_itself() {
    let home = Home::new();
    home.configure(
        "[retention]\ntasks = \"1s\"\nevery = \"1s\"\n[retention.agents.stream]\ntasks = \"never\"\n\
         [retention.tenants.patient]\ntasks = \"1d\"\n",
    );
    let server = home.serve();
    let token = home.token();
    let patient = line_value(&home.ok(&["tenant", "add", "patient"]), "token").to_owned();
    let kept = id(&send(&server, &token, "stream", "c", "2 chunks"));
    let theirs = id(&send(&server, &patient, "echo", "c", "theirs"));
    let goes = id(&send(&server, &token, "echo", "c", "goes"));
    let running = id(&send(&server, &token, "slow", "c", "60000"));
    eventually("it goes", || !is_there(&server, &token, &goes));
    assert!(is_there(&server, &token, &kept) && is_there(&server, &patient, &theirs));
    assert!(is_there(&server, &token, &running), "what has not ended stays");
    eventually("the round is over, which is told", || server.log().contains("removed 1 tasks and"));
    assert!(!home.ok(&["audit"]).contains("_deleted"), "nobody deleted it");
    let shown = home.ok(&["config", "show"]);
    assert!(shown.contains("stream.tasks=never") && shown.contains("patient.tasks=1d"), "{shown}");
    server.stop();
}

#[test]
fn a_log_that_went_is_told_from_its_task() {
    let home = Home::new();
    home.configure("[retention]\nevents = \"1s\"\nevery = \"1s\"\n");
    let server = home.serve();
    let token = home.token();
    let task = id(&send(&server, &token, "stream", "c", "3 chunks, 1 ms apart"));
    let before = home.json(&["task", "get", &task]);
    let log = |after: &str| home.json(&["task", "subscribe", &task, "--after", after]);
    eventually("its log goes", || log("0").len() == 1);
    assert_eq!(home.json(&["task", "get", &task]), before, "the task stands as it ended");
    for after in ["0", "1"] {
        let frames = log(after);
        assert_eq!(frames.len(), 1);
        assert_eq!((&frames[0]["task"]["id"], &frames[0]["task"]["status"]), (&before[0]["id"], &before[0]["status"]));
    }
    let end = read(&server, &format!("/v1/requests/{task}"), &token);
    let end = serde_json::from_str::<Value>(&end).unwrap()["request"]["last_seq"].as_u64().unwrap();
    assert!(log(&end.to_string()).is_empty(), "nothing is missing after the last");
    // The native stream tells the whole of it once more, whatever its reader had seen.
    for since in ["0", "2"] {
        let told = read(&server, &format!("/v1/requests/{task}/events?since_seq={since}"), &token);
        let kinds: Vec<&str> = told.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
        assert_eq!(
            (kinds[0], kinds[kinds.len() - 2], kinds[kinds.len() - 1]),
            ("request_received", "stream_end", "done")
        );
        assert!(kinds.contains(&"text") && told.contains("chunk 3 of 3"), "{told}");
        assert!(told.contains(&format!("id: {end}\n")), "{told}");
    }
    // 0.3 has the task too.
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/resubscribe", "params": {"id": task}});
    for path in ["/a2a/agents/stream/jsonrpc", "/v1/a2a/agents/stream"] {
        let (status, _) = server.http("POST", &format!("{path}?afterSequence=0"), Some(&token), Some(&call));
        assert_eq!(status, 200, "{path}");
    }
    // What was exported without its log is taken in again.
    server.stop();
    let archive = home.path("archive");
    home.ok(&["export", archive.to_str().unwrap()]);
    let there = format!("sqlite:{}", home.path("there").display());
    home.ok(&["import", archive.to_str().unwrap(), "--store", &there, "--with-credentials"]);
    // The doctor may worry about the machine, not about the journal.
    let doctor = text(&home.run(&["doctor"]).stdout);
    let journal = doctor.lines().find(|line| line.contains(" journal ")).unwrap_or_default();
    assert!(journal.starts_with("ok "), "{doctor}");
}

#[test]
fn a_tenant_at_its_quota_can_send_again_when_it_has_deleted() {
    let home = Home::new();
    let server = home.serve_with(&[], &[("SB_LIMITS_STORED_BYTES", "4KiB")]);
    let token = home.token();
    let large = id(&send(&server, &token, "echo", "c", &"x".repeat(4096)));
    let body = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "more"}]}});
    let more = || server.http("POST", "/a2a/agents/echo/message:send", Some(&token), Some(&body)).0;
    assert_eq!(more(), 429);
    home.ok(&["task", "delete", &large]);
    assert_eq!(more(), 200);
}
