//! `sb a2a work`: programs on this side of HTTP work on a queue, whatever happens to them, to their worker and to the server.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::rig::{Home, Server, eventually, text};
use crate::harness::{PATIENCE, http};

/// An installation with the queue `review`, and whoever publishes to it.
struct Rig {
    home: Home,
    server: Server,
    token: String,
}

/// A running worker. Dropping it is kill -9.
struct Worker {
    child: Child,
    said: PathBuf,
}

impl Rig {
    fn new() -> Self {
        let home = Home::new();
        home.add_agent("review.toml", "kind = \"queue\"\n");
        let server = home.serve();
        let token = home.token();
        Self { home, server, token }
    }

    #[track_caller]
    fn publish(&self, said: &str) -> String {
        self.publish_for(3, said)
    }

    /// An entry that is tried so often at most.
    #[track_caller]
    fn publish_for(&self, attempts: u32, said: &str) -> String {
        let entry = json!({"from": "tests", "to": "review", "text": said, "maxAttempts": attempts});
        let (status, entry) = self.server.http("POST", "/v1/queue/publish", Some(&self.token), Some(&entry));
        assert_eq!(status, 201, "{entry}");
        http::text(&entry, "/id").to_owned()
    }

    /// The entry as the queue shows it.
    #[track_caller]
    fn entry(&self, id: &str) -> Value {
        let (status, entry) = self.server.http("GET", &format!("/v1/queue/messages/{id}"), Some(&self.token), None);
        assert_eq!(status, 200, "{entry}");
        entry
    }

    #[track_caller]
    fn task(&self, id: &str) -> Value {
        let (status, task) = self.server.http("GET", &format!("/a2a/tasks/{id}"), Some(&self.token), None);
        assert_eq!(status, 200, "{task}");
        task
    }

    #[track_caller]
    fn becomes(&self, id: &str, status: &str) {
        eventually(&format!("{id} becomes {status}"), || self.entry(id)["status"] == status);
    }

    fn work(&self, options: &[&str], script: &str) -> Command {
        let program = ["--", "sh", "-c", script];
        self.home.command(&[&["a2a", "work", "review"], options, &program].concat())
    }

    /// Works until nothing waits; gives what the worker said.
    #[track_caller]
    fn work_off(&self, options: &[&str], script: &str) -> String {
        let output = self.work(&[options, &["--once"]].concat(), script).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr)
    }

    /// A worker that stays.
    fn worker(&self, name: &str, options: &[&str], script: &str) -> Worker {
        let said = self.home.path(&format!("{name}.log"));
        let log = fs::File::create(&said).unwrap();
        let child = self.work(&[options, &["--name", name]].concat(), script).stderr(log).stdout(Stdio::null()).spawn();
        Worker { child: child.unwrap(), said }
    }

    /// A file for programs to meet at.
    fn file(&self, name: &str) -> String {
        self.home.path(name).to_str().unwrap().to_owned()
    }

    /// What a program has written there, once it has.
    #[track_caller]
    fn written(&self, name: &str) -> String {
        let path = self.home.path(name);
        eventually(&format!("{name} is written"), || fs::read_to_string(&path).is_ok_and(|it| it.ends_with('\n')));
        fs::read_to_string(path).unwrap().trim().to_owned()
    }
}

impl Worker {
    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success(), "SIG{name} could not be sent");
    }

    #[track_caller]
    fn ended(&mut self) -> ExitStatus {
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(since.elapsed() < PATIENCE, "the worker does not end: {}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the worker said ---\n{}", self.said());
        }
    }
}

#[track_caller]
fn is_gone_soon(pid: &str) {
    eventually("the program has ended", || !PathBuf::from(format!("/proc/{pid}")).exists());
}

#[test]
fn a_program_that_stays_works_on_entry_after_entry() {
    let rig = Rig::new();
    let ids: Vec<String> = (0..4).map(|number| rig.publish(&format!("entry {number}"))).collect();
    let pids = rig.home.path("pids");
    // It answers each line with its own process id.
    let script = format!(
        r#"echo $$ >> {}
        while read -r line; do
            id=$(printf '%s' "$line" | sed 's/^{{"id":"\([0-9a-z]*\)".*/\1/')
            echo "{{\"id\":\"$id\",\"message\":{{\"parts\":[{{\"text\":\"$$\"}}]}}}}"
        done"#,
        pids.display()
    );
    rig.work_off(&["--serve", "--concurrency", "2"], &script);
    let mut said = BTreeSet::new();
    for id in &ids {
        let task = rig.task(id);
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
        said.insert(http::text(&task, "/status/message/parts/0/text").to_owned());
    }
    assert_eq!(said.len(), 1, "one process has answered all: {said:?}");
    assert_eq!(fs::read_to_string(pids).unwrap().lines().count(), 1);
    let output = rig.work(&["--processes", "2", "--once"], "exit 0").output().unwrap();
    assert_eq!(output.status.code(), Some(2), "it is for programs that stay: {}", text(&output.stderr));
}

#[test]
fn a_program_reads_an_entry_and_what_it_prints_is_the_artifact() {
    let rig = Rig::new();
    let id = rig.publish("shout, please");
    let script = r#"grep -o '"text":"[^"]*"' | head -n 1 | cut -d '"' -f 4 | tr a-z A-Z; echo "$GIVEN $NOT_GIVEN""#;
    let said = rig.work_off(&["--env", "GIVEN=yes"], script);
    assert!(said.contains(&format!("taken: {id} attempt 1 of 3")), "{said}");
    assert!(said.contains(&format!("done: {id} completed")), "{said}");
    let entry = rig.entry(&id);
    assert_eq!((&entry["status"], &entry["attempts"]), (&"acked".into(), &1.into()), "{entry}");
    let task = rig.task(&id);
    assert_eq!(http::artifact_text(&task), "SHOUT, PLEASE\nyes \n", "{task}");
    assert_eq!(http::array(&task, "/artifacts").len(), 1);
    // An empty queue is no reason to stay.
    assert_eq!(rig.work_off(&[], "true"), "");
}

#[test]
fn a_program_that_says_nothing_is_done_all_the_same() {
    let rig = Rig::new();
    let id = rig.publish("quietly");
    rig.work_off(&[], "true");
    let task = rig.task(&id);
    assert_eq!(http::state(&task), "COMPLETED");
    assert!(task.get("artifacts").is_none_or(|artifacts| artifacts == &json!([])), "{task}");
}

#[test]
fn a_program_that_fails_fails_its_task_and_is_not_tried_again() {
    let rig = Rig::new();
    let id = rig.publish("x");
    let said = rig.work_off(&[], "echo so far; echo 'no such thing' >&2; exit 3");
    assert!(said.contains(&format!("failed: {id} failed")) && said.contains("exit code 3; its operator"), "{said}");
    assert!(said.contains("stderr: no such thing"), "who runs the worker sees it: {said}");
    let task = rig.task(&id);
    assert_eq!(http::state(&task), "FAILED");
    assert_eq!(
        http::text(&task, "/status/message/parts/0/text"),
        "exit code 3; its operator finds what it said in the log"
    );
    assert_eq!(http::artifact_text(&task), "so far\n");
    assert_eq!(rig.entry(&id)["attempts"], 1);
}

#[test]
fn events_are_progress_and_artifacts_and_a_question_whose_answer_finds_what_was_kept() {
    let rig = Rig::new();
    let id = rig.publish("x");
    let first = r#"
        echo '{"statusUpdate":{"status":{"state":"TASK_STATE_WORKING","message":{"parts":[{"text":"halfway"}]}}}}'
        sleep 0.2
        echo '{"artifactUpdate":{"artifact":{"name":"report","parts":[{"text":"one"}]}}}'
        sleep 0.2
        echo '{"artifactUpdate":{"artifact":{"parts":[{"text":" two"}]},"append":true,"lastChunk":true}}'
        echo '{"artifactUpdate":{"artifact":{"name":"numbers","parts":[{"data":{"n":1}}]}}}'
        echo '{"keep":{"done":3}}'
        echo '{"statusUpdate":{"status":{"state":"TASK_STATE_INPUT_REQUIRED","message":{"parts":[{"text":"which?"}]}}}}'
    "#;
    let said = rig.work_off(&["--events"], first);
    assert!(said.contains(&format!("done: {id} input-required")), "{said}");
    let task = rig.task(&id);
    assert_eq!(http::state(&task), "INPUT_REQUIRED");
    assert_eq!(http::text(&task, "/status/message/parts/0/text"), "which?");
    let artifacts = http::array(&task, "/artifacts");
    assert_eq!(artifacts.len(), 2, "{task}");
    assert_eq!((&artifacts[0]["name"], http::artifact_text(&task)), (&"report".into(), "one two".to_owned()));
    assert_eq!(artifacts[1]["parts"][0]["data"]["n"], 1);
    assert!(task["history"].to_string().contains("halfway"), "{task}");

    let answer = json!({"message": {"messageId": "m-2", "role": "ROLE_USER", "taskId": id, "parts": [{"text": "that"}]},
        "configuration": {"returnImmediately": true}});
    let (status, answered) =
        rig.server.http("POST", "/a2a/agents/review/message:send", Some(&rig.token), Some(&answer));
    assert_eq!(status, 200, "{answered}");
    let turn = rig.file("turn");
    rig.work_off(&["--events"], &format!("cat > {turn}"));
    let turn: Value = serde_json::from_str(&rig.written("turn")).unwrap();
    assert_eq!((&turn["state"]["done"], &turn["message"]["parts"][0]["text"]), (&3.into(), &"that".into()), "{turn}");
    assert!(turn["history"].to_string().contains("which?"), "{turn}");
    assert_eq!(http::state(&rig.task(&id)), "COMPLETED");
}

#[test]
fn a_stray_line_fails_the_task_with_its_number() {
    let rig = Rig::new();
    let id = rig.publish("x");
    let said = rig.work_off(&["--events"], "echo '{\"keep\":1}'; echo stray; sleep 60");
    assert!(said.contains("line 2"), "{said}");
    let task = rig.task(&id);
    assert_eq!(http::state(&task), "FAILED");
    assert!(http::text(&task, "/status/message/parts/0/text").contains("line 2"), "{task}");
}

#[test]
fn as_many_programs_run_at_once_as_there_are_slots() {
    let rig = Rig::new();
    let ids: Vec<String> = (0..3).map(|n| rig.publish(&format!("{n}"))).collect();
    fs::create_dir(rig.home.path("met")).unwrap();
    let met = rig.file("met");
    // Each waits for the others: one after the other they would wait for ever.
    let script = format!("touch {met}/$$; until [ $(ls {met} | wc -l) = 3 ]; do sleep 0.02; done");
    rig.work_off(&["--concurrency", "3"], &script);
    for id in ids {
        assert_eq!(rig.entry(&id)["status"], "acked");
    }
}

#[test]
fn what_is_printed_is_seen_while_the_program_runs() {
    let rig = Rig::new();
    let id = rig.publish("x");
    let go = rig.file("go");
    let mut worker =
        rig.worker("one", &["--once"], &format!("echo one; until [ -e {go} ]; do sleep 0.02; done; echo two"));
    eventually("the first line is there", || http::artifact_text(&rig.task(&id)) == "one\n");
    fs::write(&go, "").unwrap();
    assert!(worker.ended().success());
    assert_eq!(http::artifact_text(&rig.task(&id)), "one\ntwo\n");
}

#[test]
fn a_cancel_ends_the_program_at_once() {
    let rig = Rig::new();
    let id = rig.publish("x");
    let pid = rig.file("pid");
    let worker = rig.worker("one", &[], &format!("echo $$ > {pid}; exec sleep 600"));
    let pid = rig.written("pid");
    // The lease is a minute: what is heard within seconds was not heard because a heartbeat was due.
    std::thread::sleep(Duration::from_millis(500));
    let since = Instant::now();
    let cancel = format!("/a2a/tasks/{id}:cancel");
    let (status, task) = rig.server.http("POST", &cancel, Some(&rig.token), Some(&json!({})));
    assert_eq!(status, 200, "{task}");
    is_gone_soon(&pid);
    rig.becomes(&id, "canceled");
    assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
    eventually("the worker says so", || worker.said().contains(&format!("done: {id} canceled")));
}

#[test]
fn a_worker_that_is_killed_takes_its_program_along_and_another_takes_over_after_the_lease() {
    let rig = Rig::new();
    let id = rig.publish("x");
    let pid = rig.file("pid");
    let script =
        format!("if grep -q '\"attempt\":1[,}}]'; then echo half; echo $$ > {pid}; exec sleep 600; fi; echo whole");
    let mut first = rig.worker("first", &["--lease", "2"], &script);
    let pid = rig.written("pid");
    assert_eq!(rig.entry(&id)["claimedBy"], "first");
    first.child.kill().unwrap();
    first.ended();
    is_gone_soon(&pid);
    let second = rig.worker("second", &["--lease", "2"], &script);
    rig.becomes(&id, "acked");
    assert_eq!(http::artifact_text(&rig.task(&id)), "whole\n");
    assert!(second.said().contains(&format!("taken: {id} attempt 2 of 3")), "{}", second.said());
}

#[test]
fn a_lease_is_kept_for_as_long_as_the_program_runs() {
    let rig = Rig::new();
    let id = rig.publish("x");
    rig.work_off(&["--lease", "1"], "sleep 4; echo done");
    let entry = rig.entry(&id);
    assert_eq!((&entry["status"], &entry["attempts"]), (&"acked".into(), &1.into()), "{entry}");
}

#[test]
fn nothing_is_lost_or_doubled_when_the_server_is_killed_while_a_program_runs() {
    let mut rig = Rig::new();
    let id = rig.publish("x");
    let (go, over) = (rig.file("go"), rig.file("over"));
    let script = format!("echo one; until [ -e {go} ]; do sleep 0.02; done; echo two; echo . > {over}");
    let worker = rig.worker("one", &[], &script);
    eventually("the first line is there", || http::artifact_text(&rig.task(&id)) == "one\n");
    rig.server.kill9();
    fs::write(&go, "").unwrap();
    // The program ends while nobody can be told.
    rig.written("over");
    eventually("the worker notices", || worker.said().contains("away: "));
    // On another port.
    rig.server = rig.home.serve();
    rig.becomes(&id, "acked");
    let task = rig.task(&id);
    assert_eq!(http::artifact_text(&task), "one\ntwo\n", "{task}");
    assert_eq!(rig.entry(&id)["attempts"], 1);
    eventually("the worker says so", || worker.said().contains(&format!("done: {id} completed")));
    let next = rig.publish("and on");
    rig.becomes(&next, "acked");
}

#[test]
fn a_call_that_is_repeated_because_its_answer_was_not_heard_is_written_once() {
    let rig = Rig::new();
    let id = rig.publish("x");
    let post = |path: &str, body: Value| rig.server.http("POST", path, Some(&rig.token), Some(&body));
    let (_, taken) = post("/v1/queue/review/consume", json!({"worker": "by hand"}));
    let lease = taken["messages"][0]["lease"].clone();
    let tell = |sequence: u64, said: &str| {
        let event = json!({"artifactUpdate": {"artifact": {"parts": [{"text": said}]}, "append": true}});
        let body = json!({"lease": lease, "sequence": sequence, "events": [event]});
        post(&format!("/v1/queue/messages/{id}/progress"), body)
    };
    for (sequence, said) in [(1, "one"), (1, "one"), (2, " two"), (2, " two"), (1, "one"), (3, " three")] {
        let (status, told) = tell(sequence, said);
        assert_eq!((status, &told["state"]), (200, &"TASK_STATE_WORKING".into()), "{told}");
    }
    let (status, _) = post(&format!("/v1/queue/messages/{id}/ack"), json!({"lease": lease}));
    assert_eq!(status, 200);
    assert_eq!(http::artifact_text(&rig.task(&id)), "one two three");
    assert_eq!(tell(3, " three").0, 409, "what ended is no longer this worker's");
}

#[test]
fn a_signal_lets_what_runs_come_to_its_end_and_a_second_one_gives_it_back() {
    let rig = Rig::new();
    let (first, go) = (rig.publish("1"), rig.file("go"));
    let mut worker = rig.worker("one", &[], &format!("until [ -e {go} ]; do sleep 0.02; done; echo done"));
    rig.becomes(&first, "in_progress");
    let second = rig.publish_for(1, "2");
    worker.signal("TERM");
    eventually("the worker says so", || worker.said().contains("stopping: SIGTERM"));
    fs::write(&go, "").unwrap();
    assert!(worker.ended().success(), "{}", worker.said());
    assert_eq!(rig.entry(&first)["status"], "acked");
    assert_eq!(rig.entry(&second)["status"], "pending", "nothing more is taken");

    let pid = rig.file("pid");
    let mut worker = rig.worker("two", &[], &format!("echo $$ > {pid}; exec sleep 600"));
    let pid = rig.written("pid");
    worker.signal("INT");
    eventually("the worker says so", || worker.said().contains("stopping: SIGINT"));
    worker.signal("INT");
    assert!(worker.ended().success(), "{}", worker.said());
    assert!(worker.said().contains(&format!("given back: {second}")), "{}", worker.said());
    is_gone_soon(&pid);
    assert_eq!(rig.entry(&second)["status"], "pending");
    // It can be had at once, and the only attempt that it has is still there.
    rig.work_off(&[], "true");
    assert_eq!(rig.entry(&second)["status"], "acked");
}

#[test]
fn two_workers_share_a_queue_and_nothing_is_done_twice() {
    let rig = Rig::new();
    let ids: BTreeSet<String> = (0..50).map(|n| rig.publish(&format!("{n}"))).collect();
    let list = rig.file("list");
    let script = format!(r#"grep -o '"task":"[^"]*"' | head -n 1 | cut -d '"' -f 4 >> {list}"#);
    let mut workers = ["one", "two"].map(|name| rig.worker(name, &["--once", "--concurrency", "4"], &script));
    for worker in &mut workers {
        assert!(worker.ended().success(), "{}", worker.said());
    }
    let done: Vec<String> = rig.written("list").lines().map(str::to_owned).collect();
    assert_eq!(done.len(), 50, "{done:?}");
    assert_eq!(done.into_iter().collect::<BTreeSet<_>>(), ids);
    for id in &ids {
        let entry = rig.entry(id);
        assert_eq!((&entry["status"], &entry["attempts"]), (&"acked".into(), &1.into()), "{entry}");
    }
}

#[test]
fn what_cannot_work_is_said_before_anything_is_taken() {
    let rig = Rig::new();
    let id = rig.publish("x");
    let missing = rig.home.fails(&["a2a", "work", "review", "--", "no-such-program-anywhere"], 2);
    assert!(missing.contains("no-such-program-anywhere"), "{missing}");
    rig.home.fails(&["a2a", "work", "review", "--token", "sb_wrong", "--", "true"], 4);
    rig.home.fails(&["a2a", "work", "review", "--once", "--url", "http://127.0.0.1:1", "--", "true"], 3);
    let entry = rig.entry(&id);
    assert_eq!((&entry["status"], &entry["attempts"]), (&"pending".into(), &0.into()), "{entry}");
}
