//! What is old goes by itself. `retaining.md` has what is deleted.

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
