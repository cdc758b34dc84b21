//! What a turn of a model costs the journal.

use serde_json::{Value, json};

use super::rig::Thinker;

#[tokio::test]
async fn an_answer_at_once_costs_as_many_commits_as_an_echo() {
    let thinker = Thinker::start(&json!([{"text": "at once"}])).await;
    let home = &thinker.caller.home;
    for agent in ["echo", "index"] {
        let arguments = [
            "bench",
            "--url",
            &thinker.caller.server.url,
            "--agent",
            agent,
            "--requests",
            "50",
            "--concurrency",
            "1",
            "-o",
            "json",
        ];
        let output = home.command(&arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(result["errors"]["count"], 0, "{result}");
        // One accepts and leases, one is the whole turn; a few more are the server's own.
        assert!(result["commits_per_send"].as_f64().unwrap() <= 2.2, "{agent}: {result}");
    }
}
