//! Programs that stay: several turns in one process, and what becomes of them when it does not behave.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use crate::rig;

use std::{collections::BTreeSet, fs, time::Duration};

use a2a::{SendMessageResponse, Task, TaskState};
use futures_util::future::join_all;
use rig::{Rig, alive, dies, message, reply_to, status, text};

/// Takes turns as fast as they come, each in a thread, and does what its message says.
const SERVER: &str = r#"
import json, os, sys, threading, time

turns, lock = {}, threading.Lock()

def say(line):
    with lock:
        sys.stdout.write((line if isinstance(line, str) else json.dumps(line)) + "\n")
        sys.stdout.flush()

def answer(turn, text):
    say({"id": turn["id"], "artifactUpdate": {"artifact": {"parts": [{"text": text}]}}})

def end(turn, state, text=None):
    message = {"message": {"parts": [{"text": text}]}} if text else {}
    say({"id": turn["id"], "statusUpdate": {"status": {"state": "TASK_STATE_" + state, **message}}})

def work(turn, canceled):
    words = turn["message"]["parts"][0]["text"].split()
    verb = words[0]
    with open("trace", "a") as trace:
        trace.write(json.dumps({"verb": verb, "pid": os.getpid(), "attempt": turn["attempt"], "task": turn["task"], "id": turn["id"]}) + "\n")
    if verb == "pid":
        answer(turn, str(os.getpid()))
        say({"id": turn["id"], "end": True})
    elif verb == "direct":
        say({"id": turn["id"], "message": {"parts": [{"text": "hi"}]}})
    elif verb == "auth":
        end(turn, "AUTH_REQUIRED", "who are you?")
        say({"id": turn["id"], "end": True})
    elif verb == "meet":
        # Comes to an end when as many as it says are here at once.
        while len(turns) < int(words[1]):
            time.sleep(0.01)
        answer(turn, "met")
        time.sleep(0.2)
        end(turn, "COMPLETED")
    elif verb == "state":
        answer(turn, json.dumps(turn.get("state")))
        say({"id": turn["id"], "keep": {"n": 1}})
        end(turn, "INPUT_REQUIRED", "more?")
    elif verb == "wait":
        answer(turn, "waiting")
        canceled.wait()
        end(turn, "CANCELED")
    elif verb == "deaf":
        answer(turn, "waiting")
        time.sleep(3600)
    elif verb == "late":
        canceled.wait()
        time.sleep(0.6)
        answer(turn, "too late")
        end(turn, "COMPLETED")
    elif verb == "exit":
        answer(turn, "going")
        os._exit(int(words[1]))
    elif verb == "once":
        if turn["attempt"] == 1:
            os._exit(3)
        answer(turn, "attempt %d" % turn["attempt"])
        end(turn, "COMPLETED")
    elif verb == "again":
        if turn["attempt"] == 1:
            time.sleep(3600)
        answer(turn, "attempt %d" % turn["attempt"])
        end(turn, "COMPLETED")
    elif verb == "nap":
        time.sleep(float(words[1]))
        end(turn, "COMPLETED")
    elif verb == "say":
        say(turn["message"]["parts"][0]["text"].split(" ", 1)[1].replace("ID", turn["id"]))
        end(turn, "COMPLETED")
    elif verb == "guess":
        # Ends every turn whose id could be told from its own.
        own, text = turn["id"], turn["message"]["parts"][0]["text"]
        near = [own[:1] + format(int(own[1:], 16) + d, "0%dx" % (len(own) - 1)) for d in range(-40, 41) if d]
        plain = [str(n) for n in range(40)] + ["t%d" % n for n in range(40)] + ["t" + "0" * 31 + "%x" % n for n in range(16)]
        for other in near + plain + text.split()[1:]:
            say({"id": other, "statusUpdate": {"status": {"state": "TASK_STATE_FAILED"}}})
        end(turn, "COMPLETED")
    elif verb == "flood":
        for n in range(int(words[1])):
            answer(turn, "x" * 1000)
        end(turn, "COMPLETED")
    with lock:
        turns.pop(turn["id"], None)

for line in sys.stdin:
    turn = json.loads(line)
    if "cancel" in turn:
        if turn["cancel"] in turns:
            turns[turn["cancel"]].set()
        continue
    canceled = turns[turn["id"]] = threading.Event()
    threading.Thread(target=work, args=(turn, canceled), daemon=True).start()
with open("trace", "a") as trace:
    trace.write(json.dumps({"verb": "closed", "pid": os.getpid()}) + "\n")
"#;

const SERVE: &str = "command.mode = \"serve\"";

async fn server(more: &str) -> Rig {
    let rig = Rig::new().await;
    rig.python("it", &format!("{SERVE}\n{more}"), SERVER);
    rig
}

impl Rig {
    /// What the program has begun, each as a line of its trace.
    fn trace(&self, verb: &str) -> Vec<serde_json::Value> {
        let all = fs::read_to_string(self.dir.join("trace")).unwrap_or_default();
        let all = all.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        all.filter(|line| line["verb"] == verb).collect()
    }

    async fn pid(&self) -> String {
        text(&self.say("it", "pid").await)
    }

    /// Waits until so many turns of this verb were begun.
    async fn begun(&self, verb: &str, count: usize) {
        for _ in 0..500 {
            if self.trace(verb).len() >= count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{} of {count} `{verb}` were begun", self.trace(verb).len());
    }

    async fn ended(&self, id: &str) -> Task {
        self.until(id, |task| task.status.state.is_terminal()).await
    }
}

#[tokio::test]
async fn one_process_takes_turn_after_turn() {
    let rig = server("").await;
    let first = rig.pid().await;
    assert_eq!(rig.pid().await, first);
    let SendMessageResponse::Message(reply) = rig.try_send("it", message("direct")).await else { panic!("a task") };
    assert_eq!(reply.text(), "hi");
    let asked = rig.say("it", "auth").await;
    assert_eq!(status(&asked), (TaskState::AuthRequired, "who are you?".to_owned()), "an end leaves it at that");
    assert_eq!(rig.pid().await, first);
}

#[tokio::test]
async fn an_id_that_is_guessed_ends_no_other_turn() {
    let rig = server("concurrency = 8").await;
    let before = rig.start("it", "wait").await;
    rig.begun("wait", 1).await;
    // Ids of turns that are over were seen by those who had them.
    rig.pid().await;
    let seen = rig.trace("pid")[0]["id"].as_str().unwrap().to_owned();
    let guess = rig.start("it", &format!("guess {seen} {before}")).await;
    let after = rig.start("it", "wait").await;
    assert_eq!(rig.ended(&guess).await.status.state, TaskState::Completed);
    rig.begun("wait", 2).await;
    // All that it said has been read when what was said after it is.
    rig.pid().await;
    for id in [&before, &after] {
        assert_eq!(rig.get(id).await.status.state, TaskState::Working);
        assert_eq!(rig.cancel(id).await.status.state, TaskState::Canceled);
    }
    let ids: Vec<String> = ["wait", "pid", "guess"]
        .iter()
        .flat_map(|verb| rig.trace(verb))
        .map(|line| line["id"].as_str().unwrap().to_owned())
        .collect();
    // The first half of an id says nothing of another's.
    let halves: BTreeSet<&str> = ids.iter().map(|id| &id[..id.len() / 2]).collect();
    assert_eq!((ids.len(), halves.len()), (5, 5), "{ids:?}");
}

#[tokio::test]
async fn several_turns_run_in_one_process_at_once() {
    let rig = server("concurrency = 4").await;
    let tasks = join_all((0..4).map(|_| rig.say("it", "meet 4"))).await;
    for task in &tasks {
        assert_eq!((task.status.state, text(task)), (TaskState::Completed, "met".to_owned()));
    }
    let pids: BTreeSet<String> = rig.trace("meet").iter().map(|line| line["pid"].to_string()).collect();
    assert_eq!(pids.len(), 1);
}

#[tokio::test]
async fn as_many_processes_as_the_file_says_share_the_turns() {
    let rig = server("concurrency = 4\ncommand.processes = 2").await;
    let tasks = join_all((0..4).map(|_| rig.say("it", "meet 2"))).await;
    assert!(tasks.iter().all(|task| task.status.state == TaskState::Completed));
    let mut pids: Vec<String> = rig.trace("meet").iter().map(|line| line["pid"].to_string()).collect();
    pids.sort();
    assert_eq!(pids.chunk_by(|a, b| a == b).map(<[_]>::len).collect::<Vec<_>>(), [2, 2]);
}

#[tokio::test]
async fn what_is_kept_comes_back() {
    let rig = server("").await;
    let first = rig.say("it", "state").await;
    assert_eq!(text(&first), "null");
    let second = rig.send("it", reply_to(&first, "state")).await;
    assert!(text(&second).contains(r#"{"n": 1}"#), "{}", text(&second));
}

#[tokio::test]
async fn a_cancel_is_told_and_the_process_lives_on() {
    let rig = server("").await;
    let pid = rig.pid().await;
    let heeds = rig.start("it", "wait").await;
    rig.begun("wait", 1).await;
    assert_eq!(rig.cancel(&heeds).await.status.state, TaskState::Canceled);
    assert_eq!(rig.pid().await, pid);
}

#[tokio::test]
async fn a_program_that_does_not_heed_a_cancel_gets_no_more_turns_and_ends_when_nobody_uses_it() {
    let rig = server("command.grace = \"100ms\"\nconcurrency = 8").await;
    let pid = rig.pid().await;
    let other = rig.start("it", "wait").await;
    rig.begun("wait", 1).await;
    let deaf = rig.start("it", "deaf").await;
    rig.begun("deaf", 1).await;
    assert_eq!(rig.cancel(&deaf).await.status.state, TaskState::Canceled);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(alive(&pid), "no caller can end what others use");
    assert_ne!(rig.pid().await, pid, "whoever comes now does not wait behind it");
    rig.cancel(&other).await;
    dies(&pid).await;

    let late = rig.start("it", "late").await;
    rig.begun("late", 1).await;
    assert_eq!(rig.cancel(&late).await.status.state, TaskState::Canceled);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!text(&rig.get(&late).await).contains("too late"), "what comes late is passed over");
}

#[tokio::test]
async fn a_turn_that_times_out_and_is_not_let_go_ends_its_process_and_costs_others_no_attempt() {
    let rig = server("timeout = \"4s\"\nmax_attempts = 1\ncommand.grace = \"500ms\"\nconcurrency = 4").await;
    let pid = rig.pid().await;
    let deaf = rig.start("it", "deaf").await;
    rig.begun("deaf", 1).await;
    // Its own time is not over when the other's is.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let innocent = rig.start("it", "again").await;
    rig.begun("again", 1).await;
    assert_eq!(status(&rig.ended(&deaf).await), (TaskState::Failed, "timed out after 4s".to_owned()));
    dies(&pid).await;
    let task = rig.ended(&innocent).await;
    assert_eq!((task.status.state, text(&task)), (TaskState::Completed, "attempt 2".to_owned()));
    assert_eq!((rig.trace("deaf").len(), rig.trace("again").len()), (1, 2));
}

#[tokio::test]
async fn a_turn_that_times_out_and_is_let_go_leaves_the_process_alone() {
    let rig = server("timeout = \"4s\"\ncommand.grace = \"1s\"").await;
    let pid = rig.pid().await;
    let (state, said) = status(&rig.say("it", "wait").await);
    assert_eq!((state, said.as_str()), (TaskState::Failed, "timed out after 4s"));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(alive(&pid));
    assert_eq!(rig.pid().await, pid);
}

#[tokio::test]
async fn a_death_interrupts_all_turns_and_the_policy_says_what_follows() {
    let rig = server("concurrency = 4").await;
    let tasks = join_all((0..4).map(|_| rig.say("it", "once"))).await;
    for task in &tasks {
        assert_eq!(task.status.state, TaskState::Completed);
        assert_eq!(text(task), "attempt 2", "what was said before is replaced");
    }
    assert!(rig.trace("once").len() <= 8);
    for (policy, expected) in [("fail", TaskState::Failed), ("ask", TaskState::InputRequired)] {
        rig.python("it", &format!("{SERVE}\non_crash = \"{policy}\""), SERVER);
        let task = rig.say("it", "exit 3").await;
        assert_eq!(task.status.state, expected, "{policy}");
    }
}

#[tokio::test]
async fn a_turn_that_kills_its_process_is_tried_no_more_often_than_it_may() {
    let rig = server("max_attempts = 2").await;
    let (state, said) = status(&rig.say("it", "exit 3").await);
    assert_eq!((state, said.as_str()), (TaskState::Failed, "the program died: exit code 3; gave up after 2 attempts"));
    assert_eq!(rig.trace("exit").len(), 2);
    assert!(!rig.pid().await.is_empty(), "the next one is served");
}

#[tokio::test]
async fn who_kills_every_process_takes_others_with_it_twice_at_most() {
    // A turn that runs apart waits for those before it for longer than it may take.
    let rig = server("concurrency = 8\nmax_attempts = 3\ntimeout = \"10s\"").await;
    // Each is at work for as long as it takes until the killer has come.
    let innocents = join_all((0..6).map(|_| rig.start("it", "nap 3"))).await;
    rig.begun("nap", 6).await;
    let killer = rig.start("it", "exit 3").await;
    for id in &innocents {
        let task = rig.ended(id).await;
        assert_eq!(status(&task), (TaskState::Completed, String::new()), "{:?}", rig.trace("nap"));
    }
    let (state, said) = status(&rig.ended(&killer).await);
    assert_eq!((state, said.as_str()), (TaskState::Failed, "the program died: exit code 3; gave up after 3 attempts"));
    assert_eq!(rig.trace("exit").len(), 3);
    let last: Vec<_> = rig.trace("exit").iter().map(|line| line["pid"].clone()).collect();
    let with_last = rig.trace("nap").iter().filter(|line| line["pid"] == last[2]).count();
    assert_eq!(with_last, 0, "its last attempt was apart");
    assert!(!rig.pid().await.is_empty());
}

#[tokio::test]
async fn what_names_no_turn_ends_the_process_and_what_is_wrong_with_a_turn_only_that() {
    let rig = server("max_attempts = 1").await;
    let pid = rig.pid().await;
    for (line, why) in [
        (r#"{"id":"ID","artifactUpdate":{}}"#, "line 1: "),
        (r#"{"id":"ID","task":{"id":"t","status":{"state":"TASK_STATE_WORKING"}}}"#, "line 1: a program says"),
    ] {
        let (state, said) = status(&rig.say("it", &format!("say {line}")).await);
        assert!(state == TaskState::Failed && said.starts_with(why), "{line}: {said}");
    }
    // Blank lines, and turns that it does not have, are passed over.
    for line in ["", r#"{"id":"999","end":true}"#, r#"{"id":"1","end":true}"#] {
        assert_eq!(rig.say("it", &format!("say {line}")).await.status.state, TaskState::Completed, "{line}");
    }
    assert_eq!(rig.pid().await, pid);
    let names_none = "the program printed something that names no turn; its operator finds it in the log";
    let long = format!("say {{\"id\":\"ID\",\"keep\":\"{}\"}}", "x".repeat(1 << 20));
    for line in ["say loading…", "say {}", "say [1]", &long] {
        let before = rig.pid().await;
        assert_eq!(status(&rig.say("it", line).await), (TaskState::Failed, names_none.to_owned()));
        dies(&before).await;
    }
}

#[tokio::test]
async fn a_program_that_dies_at_once_is_started_less_and_less_often() {
    let rig = Rig::new().await;
    rig.shell("it", &format!("{SERVE}\nmax_attempts = 2\nconcurrency = 8"), "echo start >> starts\nexit 3");
    let tasks = join_all((0..8).map(|_| rig.say("it", "x"))).await;
    for task in &tasks {
        let (state, said) = status(task);
        assert_eq!(
            (state, said.as_str()),
            (TaskState::Failed, "the program died: exit code 3; gave up after 2 attempts")
        );
    }
    let starts = fs::read_to_string(rig.dir.join("starts")).unwrap().lines().count();
    assert!(starts <= 16, "{starts} starts for 16 attempts");
}

/// After four deaths for nothing the next process is started two seconds later.
#[tokio::test]
async fn a_turn_is_not_charged_for_the_time_that_it_waits_for_a_process() {
    let rig = server("timeout = \"1500ms\"\nconcurrency = 1\nmax_attempts = 1").await;
    for _ in 0..4 {
        assert_eq!(rig.say("it", "exit 3").await.status.state, TaskState::Failed);
    }
    let waited = std::time::Instant::now();
    let task = rig.say("it", "nap 0").await;
    assert_eq!(task.status.state, TaskState::Completed, "{task:?}");
    assert!(waited.elapsed() > Duration::from_millis(1500), "it did not have to wait");
}

#[tokio::test]
async fn a_program_that_cannot_start_says_why() {
    let rig = Rig::new().await;
    rig.shell("it", SERVE, "exit 0");
    rig.write("it.toml", &format!("kind = \"command\"\n{SERVE}\ncommand.argv = [\"/no/such/program\"]\n"));
    rig.files.refresh();
    let (state, said) = status(&rig.say("it", "x").await);
    assert_eq!((state, said.as_str()), (TaskState::Failed, "cannot start `/no/such/program`: no such program"));
}

#[tokio::test]
async fn who_has_nothing_to_do_is_asked_to_go() {
    let rig = server("command.idle = \"300ms\"").await;
    let pid = rig.pid().await;
    dies(&pid).await;
    assert_eq!(rig.trace("closed").len(), 1, "it was asked by the end of its input");
    assert_ne!(rig.pid().await, pid);
}

#[tokio::test]
async fn a_changed_file_drains_the_old_process() {
    let rig = server("").await;
    let pid = rig.pid().await;
    let id = rig.start("it", "meet 2").await;
    rig.begun("meet", 1).await;
    rig.python("it", &format!("{SERVE}\ndescription = \"another\""), SERVER);
    let other = rig.pid().await;
    assert!(other != pid && alive(&pid), "its turn goes on");
    // Only the old process has its turn.
    assert_eq!(rig.get(&id).await.status.state, TaskState::Working);
    rig.cancel(&id).await;
    dies(&pid).await;
    fs::remove_file(rig.dir.join("it.toml")).unwrap();
    rig.files.refresh();
    dies(&other).await;
}

#[tokio::test]
async fn a_touched_file_replaces_the_process_and_turns_that_run_end_in_the_old_one() {
    let rig = server("").await;
    let pid = rig.pid().await;
    let id = rig.start("it", "meet 2").await;
    rig.begun("meet", 1).await;
    touch(&rig.dir.join("it.toml"));
    rig.files.refresh();
    let other = rig.pid().await;
    assert!(other != pid && alive(&pid), "its turn goes on");
    rig.cancel(&id).await;
    dies(&pid).await;
    assert_eq!(rig.pid().await, other);
    // The program alone is another matter.
    touch(&rig.dir.join("it.script"));
    rig.files.refresh();
    assert_eq!(rig.pid().await, other);
}

#[tokio::test]
async fn a_watched_program_that_changes_replaces_its_process() {
    let rig = server("command.watch = true").await;
    let pid = rig.pid().await;
    rig.files.refresh();
    assert_eq!(rig.pid().await, pid, "nothing has changed");
    let script = rig.dir.join("it.script");
    fs::write(&script, SERVER.replace("str(os.getpid())", "'new ' + str(os.getpid())")).unwrap();
    rig.files.refresh();
    let changed = rig.pid().await;
    assert!(changed.starts_with("new "), "{changed}");
    dies(&pid).await;
    // One that is gone for a moment, as some editors write files, comes back.
    fs::remove_file(&script).unwrap();
    rig.files.refresh();
    fs::write(&script, SERVER).unwrap();
    rig.files.refresh();
    assert!(!rig.pid().await.starts_with("new "));
}

/// Makes a file look as if it had just been written.
fn touch(path: &std::path::Path) {
    let file = fs::OpenOptions::new().append(true).open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.set_modified(modified + Duration::from_secs(1)).unwrap();
}

#[tokio::test]
async fn what_a_turn_may_print_is_bounded() {
    let rig = server("command.max_output = \"64KiB\"\nconcurrency = 4").await;
    let (flooded, met) = tokio::join!(rig.say("it", "flood 500"), rig.say("it", "pid"));
    assert_eq!(status(&flooded), (TaskState::Failed, "the program printed more than 65536 bytes".to_owned()));
    assert_eq!(met.status.state, TaskState::Completed);
}

#[tokio::test]
async fn a_flood_arrives_whole_beside_others() {
    let rig = server("concurrency = 4").await;
    let floods = join_all((0..2).map(|_| rig.say("it", "flood 3000")));
    let (floods, met) = tokio::join!(floods, rig.say("it", "pid"));
    for task in &floods {
        assert_eq!((task.status.state, text(task).len()), (TaskState::Completed, 3_000_000));
    }
    assert_eq!(met.status.state, TaskState::Completed);
}

#[tokio::test]
async fn keys_that_do_not_fit_are_said() {
    let rig = Rig::new().await;
    rig.shell("it", "", "exit 0");
    for (more, problem) in [
        ("mode = \"serve\"\noutput = \"text\"", "`command.output`: with `mode = \"serve\"` each line is an event"),
        ("mode = \"serve\"\nstderr = \"caller\"", "`command.stderr`: with `mode = \"serve\"` nobody knows"),
        ("mode = \"stay\"", "`command.mode`: unknown value `stay`; values are: turn, serve"),
        ("mode = \"serve\"\nprocesses = 0", "`command.processes`"),
    ] {
        rig.write("it.toml", &format!("kind = \"command\"\n[command]\nargv = [\"sh\"]\n{more}\n"));
        rig.files.refresh();
        let state = rig.files.snapshot().into_iter().find(|state| state.id == "it").unwrap();
        let error = state.error.unwrap_or_default();
        assert!(error.contains(problem), "{more}: {error}");
    }
    rig.write("it.toml", "kind = \"command\"\n[command]\nargv = [\"sh\"]\nidle = \"1m\"\nprocesses = 2\n");
    rig.files.refresh();
    let state = rig.files.snapshot().into_iter().find(|state| state.id == "it").unwrap();
    assert_eq!(state.warnings.len(), 2, "{state:?}");
    rig.write("it.toml", "kind = \"command\"\n[command]\nargv = [\"sh\"]\npass_env = [\"NOT_SET\", \"PATH\"]\n");
    rig.files.refresh();
    let state = rig.files.snapshot().into_iter().find(|state| state.id == "it").unwrap();
    assert_eq!(state.warnings, ["`command.pass_env`: `NOT_SET` is not set here, so the program does not get it"]);
}
