//! Programs that stay, when they or their server are killed in the middle of turns: nothing is lost, no turn is begun more often
//! than its agent allows, and no process is left over.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    http::{artifact_text, is_terminal, state, text, to_at_once},
    rig::{PATIENCE, Rig},
};

/// Says which turns it begins, works on each for a while in a thread, and gives its text back.
const PROGRAM: &str = r#"
import json, os, sys, threading, time

lock = threading.Lock()

def trace(what, turn={}):
    with lock, open(sys.argv[1], "a") as file:
        file.write(json.dumps({"what": what, "pid": os.getpid(), "task": turn.get("task"), "attempt": turn.get("attempt")}) + "\n")

def say(turn, word):
    with lock:
        sys.stdout.write(json.dumps({"id": turn["id"], **word}) + "\n")
        sys.stdout.flush()

def work(turn):
    trace("begun", turn)
    text = turn["message"]["parts"][0]["text"]
    say(turn, {"artifactUpdate": {"artifact": {"parts": [{"text": text[:2]}]}}})
    time.sleep(float(text.split()[1]))
    say(turn, {"artifactUpdate": {"artifact": {"parts": [{"text": text[2:]}]}, "append": True}})
    say(turn, {"end": True})

trace("started")
for line in sys.stdin:
    turn = json.loads(line)
    if "cancel" not in turn:
        threading.Thread(target=work, args=(turn,), daemon=True).start()
trace("closed")
"#;

/// A server whose agent `stay` is such a program, with more lines for its file.
async fn start(more: &str) -> Rig {
    let file = format!(
        "kind = \"command\"\n{more}\n[command]\nmode = \"serve\"\nprocesses = 2\nargv = [\"python3\", \"stay.py\", \"$DIR/trace\"]\n"
    );
    Rig::start_with_agents("lease = \"5s\"\n", &[("stay.py", PROGRAM), ("stay.toml", &file)], None).await
}

impl Rig {
    /// What programs have said of themselves, by what they say.
    fn traces(&self, what: &str) -> Vec<Value> {
        let all = fs::read_to_string(self.agents_dir().join("trace")).unwrap_or_default();
        // A line may be half there, when its program was killed while it wrote.
        let lines = all.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["what"] == what).collect()
    }

    /// How often each task was begun.
    fn begun(&self) -> BTreeMap<String, usize> {
        let mut begun = BTreeMap::new();
        for line in self.traces("begun") {
            *begun.entry(text(&line, "/task").to_owned()).or_default() += 1;
        }
        begun
    }

    fn pids(&self) -> BTreeSet<u64> {
        self.traces("started").iter().filter_map(|line| line["pid"].as_u64()).collect()
    }

    async fn send_many(&self, count: usize, seconds: &str) -> Vec<String> {
        let mut ids = Vec::new();
        for number in 0..count {
            let task = self.api().send(&to_at_once("stay", &format!("t{number} {seconds}"))).await;
            ids.push(text(&task, "/id").to_owned());
        }
        ids
    }

    /// Waits until so many turns were begun in all.
    async fn begins(&self, count: usize) {
        let begun = Instant::now();
        while self.traces("begun").len() < count {
            assert!(begun.elapsed() < PATIENCE, "{} of {count} were begun", self.traces("begun").len());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits for the ends of these tasks; each has to be whole, and what it says has to be its own.
    async fn all_complete(&self, ids: &[String], seconds: &str) {
        let api = self.api();
        for (number, id) in ids.iter().enumerate() {
            let task = api.task_when(id, is_terminal).await;
            assert_eq!(state(&task), "COMPLETED", "{task:#}");
            assert_eq!(artifact_text(&task), format!("t{number} {seconds}"), "said once, and by whom it was asked");
            let events = api.subscribe(id, Some(0)).await.rest().await;
            let numbers: Vec<u64> = events.iter().map(|frame| frame.id).collect();
            assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>());
            assert_eq!(events.iter().filter(|frame| frame.is_end()).count(), 1);
        }
    }
}

fn is_alive(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

async fn all_die(pids: &BTreeSet<u64>) {
    let begun = Instant::now();
    while let Some(pid) = pids.iter().find(|pid| is_alive(**pid)) {
        assert!(begun.elapsed() < PATIENCE, "process {pid} is left over");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_program_that_is_killed_loses_no_turn_and_begins_none_too_often() {
    let mut rig = start("concurrency = 8\nmax_attempts = 5").await;
    let ids = rig.send_many(24, "0.4").await;
    for kill in 0..3 {
        // Some are in the middle of their work each time.
        rig.begins((kill + 1) * 6).await;
        let pid = rig.traces("begun").pop().unwrap()["pid"].as_u64().unwrap();
        let killed = Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
        assert!(killed.success());
    }
    rig.all_complete(&ids, "0.4").await;
    let begun = rig.begun();
    assert_eq!(begun.len(), ids.len());
    assert!(begun.values().all(|times| *times <= 4), "once for each kill, and once more: {begun:?}");
    assert!(begun.values().any(|times| *times > 1), "no turn was interrupted: nothing is proven");
    assert!(rig.server.ends_well().await);
    all_die(&rig.pids()).await;
}

#[tokio::test]
async fn a_turn_that_may_be_tried_once_is_begun_once() {
    let rig = start("concurrency = 8\nmax_attempts = 1").await;
    let ids = rig.send_many(16, "0.6").await;
    rig.begins(8).await;
    let pids = rig.pids();
    for pid in &pids {
        assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
    }
    let mut failed = 0;
    for id in &ids {
        let task = rig.api().task_when(id, is_terminal).await;
        match state(&task) {
            "COMPLETED" => {}
            "FAILED" => {
                assert_eq!(text(&task, "/status/message/parts/0/text"), "the program died: killed by signal 9");
                failed += 1;
            }
            other => panic!("{other}: {task:#}"),
        }
    }
    assert!(failed >= 1, "no turn was interrupted: nothing is proven");
    assert!(failed <= 8, "those that waited are run by the next process: {failed}");
    assert!(rig.begun().values().all(|times| *times == 1), "{:?}", rig.begun());
}

#[tokio::test]
async fn a_server_that_is_killed_loses_no_turn_of_a_program_that_stays() {
    let mut rig = start("concurrency = 8\nmax_attempts = 3").await;
    let ids = rig.send_many(16, "1.5").await;
    rig.begins(8).await;
    let before = rig.pids();
    rig.kill9();
    all_die(&before).await;
    rig.restart().await;
    rig.all_complete(&ids, "1.5").await;
    let begun = rig.begun();
    assert_eq!(begun.len(), ids.len());
    assert!(begun.values().all(|times| *times <= 2), "once for the kill, and once more: {begun:?}");
    assert!(begun.values().filter(|times| **times == 2).count() >= 1, "no turn was interrupted: nothing is proven");
    let after = rig.pids();
    assert!(rig.server.ends_well().await);
    all_die(&after).await;
}

#[tokio::test]
async fn a_server_that_stops_asks_its_programs_kindly() {
    let mut rig = start("").await;
    let ids = rig.send_many(2, "0.1").await;
    rig.all_complete(&ids, "0.1").await;
    let pids = rig.pids();
    assert!(!pids.is_empty() && pids.iter().all(|pid| is_alive(*pid)));
    assert!(rig.server.ends_well().await);
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "they are gone when the server is");
    let closed: BTreeSet<u64> = rig.traces("closed").iter().filter_map(|line| line["pid"].as_u64()).collect();
    assert_eq!(closed, pids, "each came to the end of its input: {}", json!(rig.traces("closed")));
}
