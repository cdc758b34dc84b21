//! `sb a2a`: the verbs of the queue, plans, and the same verbs inside of a conversation.

use std::{
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::rig::{Home, Server, eventually, failed, line_value, text, worked};
use crate::harness::http;

/// An id that nobody has.
const UNKNOWN: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

/// An installation, and whoever sits at its command line.
struct Rig {
    // Dropped in this order: the database goes when its server is gone.
    server: Server,
    home: Home,
}

impl Rig {
    fn new() -> Self {
        let home = Home::new();
        Self { server: home.serve(), home }
    }

    /// What `sb a2a …` prints when it works.
    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        self.home.ok(&[&["a2a"], args].concat())
    }

    /// The objects that `sb a2a … --json` prints, one a line.
    #[track_caller]
    fn json(&self, args: &[&str]) -> Vec<Value> {
        let printed = self.ok(&[args, &["--json"]].concat());
        printed.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
    }

    /// The one object that it prints.
    #[track_caller]
    fn one(&self, args: &[&str]) -> Value {
        let mut printed = self.json(args);
        assert_eq!(printed.len(), 1, "{printed:?}");
        printed.remove(0)
    }

    /// What `sb a2a …` says when it fails.
    #[track_caller]
    fn fails(&self, args: &[&str], code: i32) -> String {
        self.home.fails(&[&["a2a"], args].concat(), code)
    }

    #[track_caller]
    fn publish(&self, to: &str, says: &str) -> String {
        self.ok(&["publish", "planner", to, says]).trim().to_owned()
    }

    #[track_caller]
    fn status_of(&self, id: &str) -> String {
        http::text(&self.one(&["show", id]), "/status").to_owned()
    }

    #[track_caller]
    fn task(&self, id: &str) -> Value {
        self.home.json(&["task", "get", id]).remove(0)
    }

    /// How many entries there are, wherever they stand.
    fn entries(&self) -> usize {
        self.home.scratch.look(&["SELECT message_id FROM a2a_messages"])[0].len()
    }

    /// A command that goes on beside the test.
    fn beside(&self, args: &[&str]) -> Child {
        let mut command = self.home.command(&[&["a2a"], args].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts")
    }

    /// What a conversation prints that these lines are typed into, all of which work.
    #[track_caller]
    fn chat(&self, lines: &str) -> String {
        worked(&self.home.pipe(&["chat", "--session", "s1"], lines))
    }
}

/// Whether a heartbeat was told that it has prolonged the lease, in tenths of a second.
#[track_caller]
fn is_kept(said: &str) {
    let left = said.trim_end().strip_prefix("yours for ").and_then(|rest| rest.strip_suffix(" s"));
    let left = left.unwrap_or_else(|| panic!("no time left in {said}"));
    assert_eq!(left.split_once('.').map(|(_, tenths)| tenths.len()), Some(1), "{said}");
    let seconds: f64 = left.parse().expect("it is a number");
    assert!(seconds > 290.0 && seconds <= 300.0, "{said}");
}

#[test]
fn s3_1_s3_6_publish_prints_the_id_that_every_verb_knows() {
    let mut rig = Rig::new();
    let payload = ["--payload-json", r#"{"topic":"release-notes"}"#];
    let arguments = ["publish", "planner", "researcher", "Summarize latest release notes"];
    let printed = rig.ok(&[&arguments[..], &payload].concat());
    let id = printed.strip_suffix('\n').expect("a line").to_owned();
    assert_eq!((id.len(), id.lines().count()), (36, 1), "{id}");
    assert_eq!(rig.one(&["status"])["pending"], 1);
    rig.server.kill9();
    rig.server = rig.home.serve();
    assert_eq!(rig.one(&["status"])["pending"], 1);
    let entry = rig.one(&["show", &id]);
    for name in ["id", "messageId", "taskId"] {
        assert_eq!(entry[name], json!(id), "{name}");
    }
    assert_eq!((&entry["payload"], &entry["status"]), (&json!({"topic": "release-notes"}), &json!("pending")));
    let mut task = rig.task(&id);
    assert_eq!((&task["id"], &task["contextId"]), (&json!(id), &entry["contextId"]));
    // The command line says more than the protocol does.
    for member in ["agent", "attempts", "usage", "parent", "children"] {
        assert!(task.as_object_mut().unwrap().remove(member).is_some(), "{member}");
    }
    let (status, over_http) = rig.server.http("GET", &format!("/a2a/tasks/{id}"), Some(&rig.home.token()), None);
    assert_eq!((status, &over_http), (200, &task));
    let shown = rig.ok(&["show", &id]);
    assert_eq!((line_value(&shown, "status").trim(), line_value(&shown, "from").trim()), ("pending", "planner"));

    let options = ["--correlation-id", "c-1", "--priority", "7", "--delay", "2h", "--max-attempts", "5"];
    let entry = rig.one(&[&["publish", "cron", "report", "monthly"], &options[..]].concat());
    assert_eq!((&entry["contextId"], &entry["priority"], &entry["maxAttempts"]), (&json!("c-1"), &json!(7), &json!(5)));
    assert!(entry["availableInSeconds"].as_f64().unwrap() > 7000.0, "{entry}");
    // Numbers stay what they are.
    let entry = rig.one(&["publish", "a", "b", "c", "--payload-json", "[12345678901234567890, 1.10]"]);
    assert_eq!(entry["payload"].to_string(), "[12345678901234567890,1.1]");
}

#[test]
fn s3_24_consume_prints_an_entry_and_nothing_when_there_is_none() {
    let rig = Rig::new();
    let ids = [rig.publish("researcher", "one"), rig.publish("researcher", "two")];
    let first = rig.one(&["consume", "researcher", "--lease", "60", "--worker", "me"]);
    assert_eq!(
        (&first["id"], &first["status"], &first["claimedBy"]),
        (&json!(ids[0]), &json!("in_progress"), &json!("me"))
    );
    assert_eq!((&first["leaseSeconds"], &first["message"]["parts"][0]["text"]), (&json!(60.0), &json!("one")));
    let second = rig.ok(&["consume", "researcher"]);
    assert_eq!((line_value(&second, "id").trim(), line_value(&second, "text").trim()), (ids[1].as_str(), "two"));
    assert!(!line_value(&second, "lease").trim().is_empty(), "X-45: the lease is printed");
    assert_eq!(rig.ok(&["consume", "researcher"]), "");
    assert_eq!(rig.ok(&["consume", "researcher", "--json"]), "");
    for n in 0..3 {
        rig.publish("researcher", &n.to_string());
    }
    assert_eq!(rig.json(&["consume", "researcher", "--max", "10"]).len(), 3, "one a line");
}

#[test]
fn consume_waits_if_it_is_told_to() {
    let rig = Rig::new();
    let begun = Instant::now();
    assert_eq!(rig.ok(&["consume", "researcher", "--wait=1"]), "", "for so long");
    assert!(begun.elapsed() > Duration::from_millis(900), "{:?}", begun.elapsed());
    for patience in ["--wait", "--wait=30"] {
        let mut waiting = rig.beside(&["consume", "researcher", "--json", patience]);
        std::thread::sleep(Duration::from_millis(700));
        assert!(waiting.try_wait().unwrap().is_none(), "it still waits");
        let id = rig.publish("researcher", "x");
        let output = waiting.wait_with_output().unwrap();
        let entry: Value = serde_json::from_str(&worked(&output)).unwrap();
        assert_eq!(entry["id"], json!(id));
    }
    assert_eq!(rig.ok(&["consume", "researcher", "--wait", "--timeout", "2s"]), "", "for as long as the verb may take");
}

#[test]
fn s3_26_s3_27_an_entry_is_claimed_kept_talked_about_and_acknowledged() {
    let rig = Rig::new();
    let (first, second) = (rig.publish("researcher", "A"), rig.publish("researcher", "B"));
    let claimed = rig.one(&["claim", &second, "--worker", "me"]);
    let lease = http::text(&claimed, "/lease").to_owned();
    assert_eq!(claimed["id"], json!(second));
    assert!(rig.fails(&["claim", &second], 1).contains("me holds it"));
    assert_eq!(rig.status_of(&first), "pending");

    let beat = rig.one(&["heartbeat", &second, "--lease", &lease, "--seconds", "120"]);
    let left = beat["leaseSeconds"].as_f64().unwrap();
    assert!(beat["canceled"] == json!(false) && left > 110.0 && left <= 120.0, "{beat}");
    is_kept(&rig.ok(&["heartbeat", &second]));
    assert_eq!(rig.ok(&["progress", &second, "--lease", &lease, "--text", "halfway"]), "in_progress\n");
    let piece = r#"{"artifactUpdate":{"artifact":{"name":"log","parts":[{"text":"one"}]}}}"#;
    let written = rig.one(&["progress", &second, "--event-json", piece]);
    assert_eq!((&written["id"], &written["status"]), (&json!(second), &json!("in_progress")));
    let acked = ["ack", &second, "--lease", &lease, "--result-json", r#"{"status":"done"}"#, "--text", "fine"];
    assert_eq!(rig.ok(&acked), "acked\n");
    let task = rig.task(&second);
    assert_eq!(
        (http::state(&task), &task["artifacts"][1]["parts"][0]["data"]),
        ("COMPLETED", &json!({"status": "done"}))
    );
    assert_eq!(http::text(&task, "/status/message/parts/0/text"), "fine");
    assert_eq!(rig.ok(&acked), "acked\n", "who has not heard it says it again");
    assert_eq!(rig.task(&second), task, "and nothing is written twice");
    assert!(rig.fails(&["nack", &second, "--lease", &lease], 1).contains("lease is lost"));
    assert!(rig.fails(&["ack", &second], 1).contains("nobody holds the entry"));

    // X-45: without a lease whoever holds the entry is meant.
    rig.ok(&["consume", "researcher"]);
    let acked = rig.one(&["ack", &first]);
    assert_eq!((&acked["id"], &acked["status"]), (&json!(first), &json!("acked")));
    assert_eq!(rig.task(&first).get("artifacts"), None, "S3-10: no result, no artifact");
}

#[test]
fn s3_19_an_entry_waits_for_authorization_when_its_worker_says_that_this_is_all() {
    let rig = Rig::new();
    let id = rig.publish("researcher", "x");
    rig.ok(&["consume", "researcher"]);
    let event = r#"{"statusUpdate":{"status":{"state":"TASK_STATE_AUTH_REQUIRED"}}}"#;
    assert_eq!(rig.ok(&["progress", &id, "--event-json", event, "--end"]), "auth_required\n");
    assert_eq!(http::state(&rig.task(&id)), "AUTH_REQUIRED");
    assert!(rig.fails(&["ack", &id], 1).contains("nobody holds the entry"));
}

#[test]
fn a_worker_at_the_command_line_hears_of_a_cancel() {
    let rig = Rig::new();
    let id = rig.publish("researcher", "x");
    rig.ok(&["consume", "researcher"]);
    let waiting = rig.beside(&["heartbeat", &id, "--wait", "30"]);
    std::thread::sleep(Duration::from_millis(500));
    let canceling = rig.home.command(&["task", "cancel", &id]).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let said = worked(&waiting.wait_with_output().unwrap());
    assert!(said.contains("the task is canceled"), "{said}");
    assert_eq!(rig.ok(&["nack", &id]), "canceled\n");
    assert!(canceling.unwrap().wait().unwrap().success());
}

#[test]
fn s3_28_s3_29_s3_30_s3_31_attempts_run_out_and_a_dead_letter_is_repeated() {
    let rig = Rig::new();
    let id = rig.publish("researcher", "Summarize latest release notes");
    for attempt in 1..=3 {
        let entry = rig.one(&["claim", &id]);
        assert_eq!(entry["attempt"], attempt);
        let error = format!("broken {attempt}");
        let printed = rig.ok(&["nack", &id, "--error", &error]);
        if attempt < 3 {
            assert!(printed.starts_with("pending, again in "), "{printed}");
        } else {
            assert_eq!(printed, "dlq\n");
        }
    }
    let letters: Vec<Value> = serde_json::from_str(&rig.ok(&["dlq", "--json"])).expect("one list");
    let [letter] = letters.as_slice() else { panic!("{letters:?}") };
    let seen = ["id", "agent", "attempts", "error"].map(|name| letter[name].clone());
    assert_eq!(seen, [json!(id), json!("researcher"), json!(3), json!("broken 3")]);
    let listed = rig.ok(&["dlq"]);
    assert!(listed.starts_with("ID") && listed.contains(&id) && listed.contains("broken 3"), "{listed}");
    assert_eq!(rig.ok(&["dlq", "--agent", "other", "--json"]), "[]\n");
    let shown = rig.ok(&["show", &id]);
    assert!(shown.contains("failed attempts") && shown.contains("broken 1"), "{shown}");
    let status = rig.one(&["status"]);
    assert_eq!((&status["dlq"], &status["failed"], &status["agents"][0]["dlq"]), (&json!(1), &json!(0), &json!(1)));
    let listed = rig.ok(&["status"]);
    let row: Vec<&str> = listed.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..6], ["researcher", "0", "0", "0", "0", "1"], "{listed}");

    let replay = ["replay-dlq", "--message-id", &id, "--to-agent", "researcher_retry"];
    let replayed = rig.one(&replay);
    let one = &replayed["replayed"][0];
    assert_eq!((&one["messageId"], &one["toAgent"]), (&json!(id), &json!("researcher_retry")));
    assert_eq!(rig.ok(&["dlq", "--json"]), "[]\n");
    let entry = rig.one(&["consume", "researcher_retry"]);
    assert_eq!((&entry["id"], &entry["replays"], &entry["attempt"]), (&one["newMessageId"], &json!(id), &json!(1)));
    assert_eq!(entry["text"], "Summarize latest release notes");
    assert!(rig.fails(&replay, 1).contains("no dead letter"));

    // The text of it, and all at once.
    let new = http::text(&entry, "/id");
    rig.ok(&["nack", new, "--fatal", "--error", "no"]);
    assert_eq!(rig.status_of(new), "failed", "what is final is no dead letter");
    let id = rig.ok(&["publish", "planner", "researcher", "y", "--max-attempts", "1"]).trim().to_owned();
    rig.ok(&["claim", &id]);
    rig.ok(&["nack", &id, "--release"]);
    assert_eq!(rig.status_of(&id), "pending", "what was given back does not count");
    rig.ok(&["claim", &id]);
    rig.ok(&["nack", &id]);
    let said = rig.ok(&["replay-dlq"]);
    assert!(said.starts_with(&format!("{id} is repeated as ")) && said.ends_with(" for researcher\n"), "{said}");
    assert_eq!(rig.ok(&["replay-dlq"]), "", "there is none left");
    assert_eq!(rig.one(&["replay-dlq"]), json!({"replayed": []}));
}

#[test]
fn s3_32_execute_runs_an_entry_and_prints_the_result() {
    let rig = Rig::new();
    let (first, second) = (rig.publish("echo", "first"), rig.publish("echo", "second"));
    assert_eq!(rig.ok(&["execute", &second]), "second\n");
    let task = rig.task(&second);
    assert_eq!((http::state(&task), http::artifact_text(&task).as_str()), ("COMPLETED", "second"));
    assert_eq!(rig.status_of(&second), "acked");
    assert_eq!(rig.status_of(&first), "pending", "S3-26: the older one waits");
    let task = rig.one(&["execute", &first]);
    assert_eq!((&task["id"], http::state(&task)), (&json!(first), "COMPLETED"));
    assert!(rig.fails(&["execute", &first], 1).contains("has ended"));
    let failing = rig.publish("fail", "x");
    assert!(rig.fails(&["execute", &failing], 1).contains("the task failed"));
    let asking = rig.publish("ask", "x");
    assert_eq!(rig.ok(&["execute", &asking]), "What is your answer?\n");
}

#[test]
fn s3_33_execute_refuses_what_nobody_runs() {
    let home = Home::new();
    home.add_agent("review.toml", "kind = \"queue\"\n");
    let rig = Rig { server: home.serve(), home };
    for agent in ["unknown", "review"] {
        let id = rig.publish(agent, "x");
        assert!(rig.fails(&["execute", &id], 1).contains(&format!("no agent `{agent}` is run here")));
        assert_eq!(rig.status_of(&id), "pending");
    }
}

#[test]
fn what_does_not_work_has_its_exit_code_and_changes_nothing() {
    let rig = Rig::new();
    assert_eq!(rig.ok(&["status"]), "");
    assert_eq!(rig.one(&["status"])["agents"], json!([]));
    let id = rig.publish("researcher", "x");
    let verbs: [&[&str]; 8] = [
        &["claim", UNKNOWN],
        &["heartbeat", UNKNOWN],
        &["progress", UNKNOWN, "--text", "x"],
        &["ack", UNKNOWN, "--result-json", "1"],
        &["nack", UNKNOWN],
        &["execute", UNKNOWN],
        &["show", UNKNOWN],
        &["replay-dlq", "--message-id", UNKNOWN],
    ];
    for verb in verbs {
        for json in [&[][..], &["--json"]] {
            assert!(rig.fails(&[verb, json].concat(), 1).contains("not found"), "{verb:?}");
        }
    }
    assert!(rig.fails(&["ack", &id], 1).contains("nobody holds the entry"));
    assert!(rig.fails(&["ack", &id, "--lease", "forged"], 1).contains("lease"));
    assert!(rig.fails(&["publish", "planner", "a b", "x"], 1).contains("to"));
    assert!(rig.fails(&["publish", "planner", "researcher", ""], 1).contains("text"));
    let usage: [&[&str]; 9] = [
        &["publish", "planner", "researcher", "x", "--payload-json", "{"],
        &["publish", "planner", "researcher", "x", "--delay", "soon"],
        &["publish", "planner", "researcher"],
        &["ack", &id, "--result-json", "nonsense"],
        &["progress", &id],
        &["nack", &id, "--fatal", "--release"],
        &["nack", &id, "--release", "--delay", "1"],
        &["consume"],
        &["consume", "researcher", "--json", "-o", "text"],
    ];
    for usage in usage {
        assert_eq!(rig.home.run(&[&["a2a"], usage].concat()).status.code(), Some(2), "{usage:?}");
    }
    rig.fails(&["status", "--token", "sb_wrong"], 4);
    rig.fails(&["status", "--url", "http://127.0.0.1:1"], 3);
    let entry = rig.one(&["show", &id]);
    assert_eq!((&entry["status"], &entry["attempts"], rig.entries()), (&json!("pending"), &json!(0), 1));
}

#[test]
fn s3_36_a_plan_is_carried_out_at_once_where_its_agents_are_run() {
    let rig = Rig::new();
    let plan = json!({"steps": [
        {"id": "notes", "type": "a2a_delegate", "agent": "echo", "text": "Collect"},
        {"id": "more", "agent": "echo", "text": "Collect more"},
        {"id": "sum", "agent": "echo", "text": "Summarize", "input_from": ["notes", "more"]},
    ]});
    let file = rig.home.write("plan.json", plan.to_string());
    let steps = rig.json(&["plan", "run", &file, "--plan-id", "p-1"]);
    let results: Vec<(&Value, &Value)> = steps.iter().map(|step| (&step["id"], &step["result"])).collect();
    let input = json!({"input": {"more": "Collect more", "notes": "Collect"}});
    assert_eq!(
        results,
        [(&json!("notes"), &json!("Collect")), (&json!("more"), &json!("Collect more")), (&json!("sum"), &input)]
    );
    for step in &steps {
        // A step's result is its artifact.
        let task = rig.task(http::text(step, "/messageId"));
        assert_eq!((http::state(&task), &task["contextId"]), ("COMPLETED", &json!("p-1")));
        assert_eq!(http::array(&task, "/artifacts").len(), 1);
        assert_eq!(step["agent"], "echo");
    }
    // What was done is not done again.
    assert_eq!(rig.json(&["plan", "run", &file, "--plan-id", "p-1"]), steps);
    assert_eq!(rig.entries(), 3);
    let printed = rig.ok(&["plan", "run", &file]);
    assert!(printed.starts_with("notes: Collect\nmore: Collect more\nsum: "), "{printed}");
    assert_eq!(rig.entries(), 6, "without an id it is a new plan");
}

#[test]
fn s3_36_a_step_that_nobody_runs_waits_for_a_worker_and_the_plan_goes_on_after_it() {
    let rig = Rig::new();
    let plan = json!({"steps": [
        {"id": "first", "agent": "echo", "text": "one"},
        {"id": "second", "agent": "unregistered", "text": "two", "input_from": "first"},
        {"id": "third", "agent": "echo", "text": "three", "input_from": "second"},
    ]});
    let file = rig.home.write("plan.json", plan.to_string());
    let run = ["plan", "run", &file, "--plan-id", "p-1", "--json"];
    let mut waiting = String::new();
    for _ in 0..2 {
        let output = rig.home.run(&[&["a2a"], &run[..], &["--no-wait"]].concat());
        assert_eq!(worked(&output).lines().count(), 1, "the first step is done");
        let said = text(&output.stderr);
        assert!(said.contains("second waits in the queue of unregistered as "), "{said}");
        let note = said.lines().find(|line| line.contains("waits")).unwrap();
        let note: Value = serde_json::from_str(note).unwrap();
        waiting = note["step"].as_str().unwrap().rsplit(' ').next().unwrap().to_owned();
        assert_eq!((rig.entries(), rig.status_of(&waiting).as_str()), (2, "pending"), "nothing is published twice");
    }
    let mut patient = rig.beside(&run);
    std::thread::sleep(Duration::from_millis(700));
    assert!(patient.try_wait().unwrap().is_none(), "it waits with the step");
    let entry = rig.one(&["consume", "unregistered"]);
    assert_eq!((&entry["id"], &entry["payload"]), (&json!(waiting), &json!({"input": {"first": "one"}})));
    rig.ok(&["ack", &waiting, "--result-json", r#"{"n":2}"#]);
    let printed = worked(&patient.wait_with_output().unwrap());
    let steps: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&steps[1]["messageId"], &steps[1]["result"]), (&json!(waiting), &json!({"n": 2})));
    assert_eq!((steps.len(), &steps[2]["result"]), (3, &json!({"input": {"second": {"n": 2}}})));
    assert_eq!(rig.json(&run[..5]), steps, "and it has been carried out once");
    assert_eq!(rig.entries(), 3);
}

#[test]
fn s3_36_a_plan_ends_where_a_step_fails_and_goes_on_after_an_answer() {
    let rig = Rig::new();
    let write = |name: &str, agent: &str| {
        let steps = json!([{"id": "a", "agent": agent, "text": "x"}, {"id": "b", "agent": "echo", "text": "y", "input_from": "a"}]);
        rig.home.write(name, json!({ "steps": steps }).to_string())
    };
    let failing = write("failing.json", "fail");
    assert!(rig.fails(&["plan", "run", &failing], 1).contains("the task failed"));
    assert_eq!(rig.entries(), 1, "what follows is not begun");

    let asking = write("asking.json", "ask");
    let run = ["plan", "run", &asking, "--plan-id", "p-1"];
    for _ in 0..2 {
        let said = rig.fails(&run, 1);
        assert!(said.contains("waits for an answer") && said.contains("--plan-id p-1"), "{said}");
    }
    let task = rig.home.json(&["task", "list", "--agent", "ask"]).remove(0);
    let answer = json!({"message": {"messageId": "m", "taskId": task["id"], "role": "ROLE_USER", "parts": [{"text": "42"}]},
        "configuration": {"returnImmediately": true}});
    let (status, answered) = rig.server.http("POST", "/a2a/message:send", Some(&rig.home.token()), Some(&answer));
    assert_eq!(status, 200, "{answered}");
    let steps = rig.json(&run);
    assert_eq!((&steps[0]["messageId"], &steps[0]["result"]), (&task["id"], &json!("42")));
    assert_eq!(steps[1]["result"], json!({"input": {"a": "42"}}));

    let nonsense = rig.home.write("nonsense.json", r#"{"steps": [{"id": "a"}]}"#);
    rig.fails(&["plan", "run", &nonsense], 2);
    rig.fails(&["plan", "run", "no-such-file.json"], 2);
}

/// An entry without what time alone changes.
fn timeless(mut entry: Value) -> Value {
    for name in ["availableInSeconds", "leaseLeftSeconds"] {
        entry.as_object_mut().expect("an entry is an object").remove(name);
    }
    entry
}

#[test]
fn s3_38_the_verbs_of_queue_and_cards_work_in_a_conversation() {
    let rig = Rig::new();
    let publish =
        r#"/a2a publish planner researcher "Summarize it" --payload-json '{"topic": "notes"}' --max-attempts 1"#;
    let id = rig.chat(&format!("{publish}\n")).trim().to_owned();
    let entry = rig.one(&["show", &id]);
    assert_eq!((&entry["text"], &entry["payload"]), (&json!("Summarize it"), &json!({"topic": "notes"})));
    let shown: Value = serde_json::from_str(&rig.chat(&format!("/a2a show {id} --json\n"))).unwrap();
    assert_eq!(timeless(shown), timeless(entry));

    let status: Value = serde_json::from_str(&rig.chat("/a2a status --json\n")).unwrap();
    assert_eq!(status["pending"], 1);
    let taken: Value =
        serde_json::from_str(&rig.chat("/a2a consume researcher --json\n/a2a consume researcher\n")).unwrap();
    assert_eq!(taken["id"], json!(id));
    let lease = http::text(&taken, "/lease");
    let lines = [
        format!("/a2a heartbeat {id} --lease {lease}"),
        format!("/a2a progress {id} --text 'half way'"),
        format!("/a2a nack {id} --error broken"),
        "/a2a dlq --json".to_owned(),
    ];
    let said = rig.chat(&(lines.join("\n") + "\n"));
    let said: Vec<&str> = said.lines().collect();
    is_kept(said[0]);
    assert_eq!(said[1..3], ["in_progress", "dlq"]);
    assert_eq!(said[3], rig.ok(&["dlq", "--json"]).trim());
    let replayed = rig.chat(&format!("/a2a replay-dlq --message-id {id} --to-agent echo --json\n"));
    let replayed: Value = serde_json::from_str(&replayed).unwrap();
    let new = http::text(&replayed, "/replayed/0/newMessageId");
    assert_eq!(rig.chat(&format!("/a2a execute {new}\n")), "Summarize it\n{\"topic\": \"notes\"}\n");
    let third = rig.chat("/a2a publish a b c\n").trim().to_owned();
    let lines = format!("/a2a claim {third} --json\n/a2a ack {third} --result-json '{{\"n\": 1}}'\n/a2a status\n");
    let said = rig.chat(&lines);
    assert_eq!(said.lines().nth(1), Some("acked"));
    assert!(said.ends_with(&rig.ok(&["status"])), "{said}");

    let upsert = r#"/a2a card-upsert agent.research.v1 "Research Agent" --capabilities-json '["summarize","retrieve"]' --endpoint internal://a2a/research"#;
    assert_eq!(rig.chat(&format!("{upsert}\n")), "kept the card of agent.research.v1\n");
    let card = "card-show agent.research.v1 --json";
    assert_eq!(rig.chat(&format!("/a2a {card}\n")), rig.ok(&card.split(' ').collect::<Vec<_>>()));
    assert_eq!(rig.chat("/a2a card-list\n"), rig.ok(&["card-list"]));
    assert!(rig.chat("/a2a --help\n").contains("replay-dlq"));
}

#[test]
fn s3_38_what_does_not_work_in_a_conversation_is_told_and_counted() {
    let rig = Rig::new();
    for (line, code, why) in [
        (format!("/a2a ack {UNKNOWN}"), 1, "not found"),
        ("/a2a nonsense".to_owned(), 2, "nonsense"),
        ("/a2a publish 'a b c".to_owned(), 2, "quote"),
        ("/a2a work researcher -- true".to_owned(), 2, "program of its own"),
        ("/agent run".to_owned(), 2, "required"),
        ("/agent run nobody-ever hello".to_owned(), 1, "nobody-ever"),
        ("/agent run echo hello --json nonsense".to_owned(), 2, "--json"),
        ("/agent run fail hello --wait".to_owned(), 1, "the task failed"),
    ] {
        let output = rig.home.pipe(&["chat", "--session", "s1"], &format!("{line}\n/a2a status --json\n"));
        let said = failed(&output, code);
        assert!(said.contains(why) && said.contains("1 of 2 messages did not work"), "{line}: {said}");
        assert!(text(&output.stdout).contains("\"agents\""), "{line}: what follows is carried out");
    }
}

#[test]
fn s3_39_s3_40_s3_41_agent_run_sends_text_and_json_in_the_sessions_context() {
    let rig = Rig::new();
    let said = rig.chat(
        "/agent run echo hello there --wait\n/agent run echo \"with more\" --json '{\"n\": 1}' --wait\nand plainly\n",
    );
    assert_eq!(said, "hello there\nwith more\n{\"n\": 1}\nand plainly\n");
    // The newest comes first.
    let tasks = rig.home.json(&["task", "list", "--agent", "echo"]);
    assert_eq!(tasks.len(), 3);
    let parts: Vec<Value> = tasks
        .iter()
        .map(|task| {
            assert_eq!(task["contextId"], "s1");
            let task = rig.task(http::text(task, "/id"));
            assert_eq!(http::array(&task, "/history")[0]["role"], "ROLE_USER");
            task["history"][0]["parts"].clone()
        })
        .collect();
    assert_eq!(parts[2], json!([{"text": "hello there"}]));
    assert_eq!(parts[1], json!([{"text": "with more"}, {"data": {"n": 1}, "mediaType": "application/json"}]));

    // Without a session there is one, and all of it is in that.
    worked(&rig.home.pipe(&["chat"], "/agent run ask one --wait\n/agent run ask two --wait\n"));
    let tasks = rig.home.json(&["task", "list", "--agent", "ask"]);
    assert!(!http::text(&tasks[0], "/contextId").is_empty());
    assert_eq!(tasks[0]["contextId"], tasks[1]["contextId"]);
}

#[test]
fn s3_42_agent_run_goes_on_with_a_task_in_place() {
    let rig = Rig::new();
    assert_eq!(rig.chat("/agent run ask start --wait\n"), "What is your answer?\n");
    let asked = rig.home.json(&["task", "list", "--agent", "ask"]).remove(0);
    let id = http::text(&asked, "/id");
    let user_messages = || {
        let task = rig.task(id);
        http::array(&task, "/history").iter().filter(|message| message["role"] == "ROLE_USER").count()
    };
    assert_eq!(user_messages(), 1);
    assert_eq!(rig.chat(&format!("/agent run ask 42 --task-id {id} --wait\n")), "42\n");
    assert_eq!(user_messages(), 2, "one more was said");
    assert_eq!(http::state(&rig.task(id)), "COMPLETED");
    assert_eq!(rig.home.json(&["task", "list", "--agent", "ask"]).len(), 1, "it is the same task");
}

#[test]
fn s3_43_agent_run_waits_only_if_it_is_told_to() {
    let rig = Rig::new();
    let output = rig.home.pipe(&["chat", "--session", "s1"], "/agent run slow 3000\n");
    assert_eq!(worked(&output), "", "there is nothing yet");
    let said = text(&output.stderr);
    assert!(said.contains("TASK_STATE_WORKING") || said.contains("TASK_STATE_SUBMITTED"), "{said}");
    let task = rig.home.json(&["task", "list", "--agent", "slow"]).remove(0);
    assert!(said.contains(http::text(&task, "/id")), "{said}");
    eventually("it is done without anybody waiting", || {
        http::state(&rig.task(http::text(&task, "/id"))) == "COMPLETED"
    });

    let output = rig.home.pipe(&["chat", "--session", "s1"], "/agent run slow 500 --wait\n");
    assert_eq!(worked(&output), "done after 500 ms\n");
    assert!(text(&output.stderr).contains("TASK_STATE_COMPLETED"), "{}", text(&output.stderr));
    let output = rig.home.pipe(&["chat", "--session", "s1", "-o", "json"], "/agent run slow 100 --wait\n");
    let reply: Value = serde_json::from_str(&worked(&output)).unwrap();
    assert_eq!(http::state(&reply["task"]), "COMPLETED");
}
