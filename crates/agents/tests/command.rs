//! Programs as agents: what they print, how they end, and that nothing of them stays.

use crate::rig;

use std::time::{Duration, Instant};

use a2a::{PartContent, SendMessageResponse, TaskState};
use rig::{Rig, alive, appears, dies, message, reply_to, status, text};

const EVENTS: &str = "command.output = \"events\"";

#[tokio::test]
async fn text_is_one_artifact() {
    let rig = Rig::new().await;
    rig.shell(
        "up",
        "",
        "tr a-z A-Z | grep -o '\"TEXT\":\"[^\"]*\"' | head -1\nprintf 'h\\303'; sleep 0.1; printf '\\251!\\377'",
    );
    let task = rig.say("up", "hello").await;
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(task.artifacts.len(), 1);
    assert_eq!(text(&task), "\"TEXT\":\"HELLO\"\nhé!\u{fffd}");
}

#[tokio::test]
async fn no_output_is_no_artifact() {
    let rig = Rig::new().await;
    rig.shell("quiet", "", "exit 0");
    let task = rig.say("quiet", "x").await;
    assert_eq!((task.status.state, task.artifacts.len(), task.status.message), (TaskState::Completed, 0, None));
}

#[tokio::test]
async fn big_text_arrives_whole() {
    let rig = Rig::new().await;
    rig.python("big", "", "import sys\nsys.stdout.write(''.join(f'line {n} é\\n' for n in range(20000)))");
    let task = rig.say("big", "x").await;
    let expected: String = (0..20000).map(|n| format!("line {n} é\n")).collect();
    assert!(text(&task) == expected, "{} of {} bytes", text(&task).len(), expected.len());
}

#[tokio::test]
async fn events_say_all_that_an_agent_can() {
    let rig = Rig::new().await;
    rig.shell(
        "all",
        EVENTS,
        r#"
        cat > /dev/null
        echo '{"statusUpdate":{"status":{"state":"TASK_STATE_WORKING","message":{"parts":[{"text":"thinking"}]}},"metadata":{"step":1}}}'
        echo
        echo '{"artifactUpdate":{"artifact":{"name":"story","parts":[{"text":"once "}]}}}'
        echo '{"artifactUpdate":{"artifact":{"parts":[{"text":"upon"}]},"append":true,"lastChunk":true}}'
        echo '{"artifactUpdate":{"artifact":{"artifactId":"table","parts":[{"data":{"n":1.50}}]}}}'
        echo '{"artifact_update":{"artifact":{"parts":[{"raw":"aGk=","filename":"hi.txt","mediaType":"text/plain"}]}}}'
        printf '{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED","message":{"role":"ROLE_AGENT","parts":[{"text":"done"}]}}}}'
        "#,
    );
    let task = rig.say("all", "x").await;
    assert_eq!(status(&task), (TaskState::Completed, "done".to_owned()));
    assert_eq!(task.artifacts.len(), 3);
    assert_eq!(task.artifacts[0].name, "story");
    assert_eq!(text(&task), "once upon");
    assert_eq!(task.artifacts[1].artifact_id, "table");
    assert!(matches!(&task.artifacts[1].parts[0].content, PartContent::Data(data) if data.get() == r#"{"n":1.50}"#));
    assert!(matches!(&task.artifacts[2].parts[0].content, PartContent::Raw(bytes) if bytes.as_ref() == b"hi"));
    let log = rig.log(&task.id).await;
    let thinking = log.iter().find(|event| event["statusUpdate"]["metadata"]["step"] == 1).unwrap();
    let said = &thinking["statusUpdate"]["status"]["message"];
    assert_eq!((&said["parts"][0]["text"], &said["role"]), (&"thinking".into(), &"ROLE_AGENT".into()));
    assert!(!said["messageId"].as_str().unwrap().is_empty() && said["taskId"] == task.id.as_str());
}

#[tokio::test]
async fn what_a_program_keeps_it_is_given_next_time() {
    let script = r#"
        state=$(sed -n 's/.*"state":\({[^}]*}\).*/\1/p')
        echo '{"keep": {"n" : 1}}'
        echo "{\"statusUpdate\":{\"status\":{\"state\":\"TASK_STATE_INPUT_REQUIRED\",\"message\":{\"parts\":[{\"data\":[${state:-0}]}]}}}}"
    "#;
    let rig = Rig::new().await;
    rig.shell("keep", EVENTS, script);
    let data = |task: &a2a::Task| match &task.status.message.as_ref().unwrap().parts[0].content {
        PartContent::Data(data) => data.get().to_owned(),
        other => panic!("{other:?}"),
    };
    let first = rig.say("keep", "go").await;
    assert_eq!(data(&first), "[0]");
    let second = rig.send("keep", reply_to(&first, "more")).await;
    assert_eq!(data(&second), r#"[{"n" : 1}]"#, "to the letter");
    for (id, line) in [("beside", r#"{"keep":1,"more":2}"#), ("nothing", r#"{"keep"}"#), ("list", "[42]")] {
        rig.shell(id, EVENTS, &format!("cat > /dev/null\necho '{line}'"));
        assert_eq!(status(&rig.say(id, "go").await).0, TaskState::Failed, "{line}");
    }
}

#[tokio::test]
async fn a_program_names_its_end() {
    let rig = Rig::new().await;
    rig.shell(
        "end",
        EVENTS,
        r#"
        state=$(grep -o 'TASK_STATE_[A-Z_]*' | head -1)
        echo "{\"statusUpdate\":{\"status\":{\"state\":\"$state\",\"message\":{\"parts\":[{\"text\":\"because\"}]}}}}"
        exit 7
        "#,
    );
    for state in [TaskState::Completed, TaskState::Failed, TaskState::Rejected, TaskState::InputRequired] {
        let task = rig.say("end", state.as_str()).await;
        assert_eq!(status(&task), (state, "because".to_owned()), "the exit code does not matter any more");
    }
    assert_eq!(rig.say("end", TaskState::Canceled.as_str()).await.status.state, TaskState::Canceled);
    let (state, text) = status(&rig.say("end", TaskState::Submitted.as_str()).await);
    assert_eq!(state, TaskState::Failed);
    assert!(text.starts_with("line 1: TASK_STATE_SUBMITTED is not for a program to say: {"), "{text}");
}

#[tokio::test]
async fn a_direct_message() {
    let rig = Rig::new().await;
    rig.shell("direct", EVENTS, r#"echo '{"message":{"parts":[{"text":"hi"}]}}'"#);
    let SendMessageResponse::Message(reply) = rig.try_send("direct", message("x")).await else { panic!("a task") };
    assert_eq!((reply.text(), reply.role), ("hi".to_owned(), a2a::Role::Agent));
    assert!(!reply.message_id.is_empty() && !reply.context_id.is_empty());
    rig.write("task.toml", "kind = \"command\"\n[command]\nargv = [\"sh\", \"direct.script\"]\noutput = \"events\"\n");
    rig.files.refresh();
    assert_eq!(
        status(&rig.say("task", "x").await),
        (TaskState::Completed, "hi".to_owned()),
        "it answers with tasks only"
    );
}

#[tokio::test]
async fn a_question_and_its_answer() {
    let rig = Rig::new().await;
    rig.python(
        "ask",
        EVENTS,
        r#"
import json, sys
turn = json.load(sys.stdin)
assert sorted(turn) == ["agent", "attempt", "context", "context_history", "history", "message", "task"], turn
assert turn["agent"] == "ask" and turn["attempt"] == 1
texts = [part["text"] for message in turn["history"] for part in message["parts"]]
assert turn["history"][-1] == turn["message"], turn
assert turn["message"]["taskId"] == turn["task"] and turn["message"]["contextId"] == turn["context"]
state = "TASK_STATE_INPUT_REQUIRED" if len(texts) == 1 else "TASK_STATE_COMPLETED"
said = " / ".join(texts)
print(json.dumps({"statusUpdate": {"status": {"state": state, "message": {"parts": [{"text": said}]}}}}))
"#,
    );
    let task = rig.say("ask", "first").await;
    assert_eq!(status(&task), (TaskState::InputRequired, "first".to_owned()));
    let ended = rig.send("ask", reply_to(&task, "second")).await;
    assert_eq!(ended.id, task.id);
    assert_eq!(status(&ended), (TaskState::Completed, "first / first / second".to_owned()));
}

#[tokio::test]
async fn authorization_is_seen_at_once() {
    let rig = Rig::new().await;
    let auth = r#"echo '{"statusUpdate":{"status":{"state":"TASK_STATE_AUTH_REQUIRED","message":{"parts":[{"text":"log in"}]}}}}'"#;
    rig.shell("ends", EVENTS, auth);
    assert_eq!(status(&rig.say("ends", "x").await), (TaskState::AuthRequired, "log in".to_owned()));
    rig.shell(
        "goes-on",
        EVENTS,
        &format!("{auth}\nwhile [ ! -e go ]; do sleep 0.02; done\necho '{{\"artifactUpdate\":{{\"artifact\":{{\"parts\":[{{\"text\":\"in\"}}]}}}}}}'"),
    );
    let id = rig.start("goes-on", "x").await;
    rig.until(&id, |task| task.status.state == TaskState::AuthRequired).await;
    rig.write("go", "");
    let task = rig.until(&id, |task| task.status.state.is_terminal()).await;
    assert_eq!((task.status.state, text(&task)), (TaskState::Completed, "in".to_owned()));
    rig.shell("breaks", EVENTS, &format!("{auth}\nexit 1"));
    // A blocking send may answer at the first AUTH_REQUIRED; the turn goes on behind it.
    let id = rig.start("breaks", "x").await;
    let task = rig.until(&id, |task| task.status.state.is_terminal()).await;
    assert_eq!(status(&task), (TaskState::Failed, "exit code 1".to_owned()));
}

#[tokio::test]
async fn a_failing_exit_shows_the_end_of_stderr_to_callers_that_may_see_it() {
    let rig = Rig::new().await;
    rig.shell(
        "fails",
        "command.stderr = \"caller\"",
        "echo partial\nfor n in $(seq 2000); do echo \"noise $n\" >&2; done\necho 'no such word' >&2\nexit 3",
    );
    let task = rig.say("fails", "x").await;
    let (state, said) = status(&task);
    assert_eq!(state, TaskState::Failed);
    assert!(said.starts_with("exit code 3: ") && said.ends_with("noise 2000\nno such word"), "{said}");
    assert!(said.len() < 4200);
    assert_eq!(text(&task), "partial\n");
    rig.shell("discreet", "", "echo 'no such word' >&2\nexit 3");
    let told = "exit code 3; its operator finds what it said in the log".to_owned();
    assert_eq!(status(&rig.say("discreet", "x").await), (TaskState::Failed, told));
    rig.shell("dies", EVENTS, "kill -9 $$");
    assert_eq!(status(&rig.say("dies", "x").await), (TaskState::Failed, "killed by signal 9".to_owned()));
}

#[tokio::test]
async fn a_malformed_line_breaks_that_task_only() {
    let rig = Rig::new().await;
    rig.shell(
        "bad",
        EVENTS,
        r#"
        n=$(grep -o 'case[0-9]*' | head -1)
        echo '{"artifactUpdate":{"artifact":{"parts":[{"text":"kept"}]}}}'
        echo
        case $n in
        case1) echo 'Traceback: boom' ;;
        case2) echo '{"nothing":1}' ;;
        case3) echo '{"statusUpdate":{"status":{"state":"TASK_STATE_DONE"}}}' ;;
        case4) printf '{"message":{"parts":[{"text":"\377"}]}}\n' ;;
        case5) echo '{"artifactUpdate":{"artifact":{"parts":[]}}}' ;;
        case6) echo '{"statusUpdate":{"status":{"state":"TASK_STATE_FAILED"}}}'; echo '{"message":{"parts":[{"text":"a"}]}}' ;;
        case7) echo '{"task":{"id":"a","status":{"state":"TASK_STATE_WORKING"}}}' ;;
        case8) printf '{"message"' ;;
        case9) exit 0 ;;
        esac
        sleep 30
        "#,
    );
    for (case, said) in [
        ("case1", "line 3: not valid JSON: "),
        ("case2", "line 3: StreamResponse needs one of task, message, statusUpdate, artifactUpdate: {\"nothing\":1}"),
        ("case3", "line 3: statusUpdate.status.state "),
        ("case4", "line 3: not UTF-8 text: {\"message\""),
        ("case5", "line 3: artifactUpdate.artifact.parts must hold at least one part: {\"art"),
        ("case6", "line 4: nothing may follow TASK_STATE_FAILED: {\"message\""),
        ("case7", "line 3: a program says statusUpdate, artifactUpdate or message, not task: "),
    ] {
        let begun = Instant::now();
        let task = rig.say("bad", case).await;
        let (state, text) = status(&task);
        assert_eq!(state, TaskState::Failed, "{case}");
        assert!(text.starts_with(said), "{case}: {text}");
        assert_eq!(rig::text(&task), "kept");
        assert!(begun.elapsed() < Duration::from_secs(10), "the program was killed");
    }
    assert_eq!(rig.say("bad", "case9").await.status.state, TaskState::Completed);
}

#[tokio::test]
async fn output_is_capped() {
    let rig = Rig::new().await;
    rig.python("line", EVENTS, "import time\nprint('{\"x\": \"' + 'y' * (1 << 20), flush=True)\ntime.sleep(30)");
    let (state, text) = status(&rig.say("line", "x").await);
    assert_eq!(state, TaskState::Failed);
    assert!(text.starts_with("line 1: longer than 1048576 bytes: {\"x\": \"yyy") && text.ends_with('…'), "{text}");
    rig.shell("much", "command.max_output = \"100KiB\"", "yes");
    assert_eq!(
        status(&rig.say("much", "x").await),
        (TaskState::Failed, "the program printed more than 102400 bytes".to_owned())
    );
}

#[tokio::test]
async fn cancel_is_a_sigterm() {
    let rig = Rig::new().await;
    rig.shell(
        "polite",
        "",
        "trap 'echo bye; echo term > termed; exit 0' TERM\necho $$ > pid\nwhile :; do sleep 0.02; done",
    );
    let id = rig.start("polite", "x").await;
    let pid = appears(&rig.dir.join("pid")).await;
    let task = rig.cancel(&id).await;
    assert_eq!(task.status.state, TaskState::Canceled);
    assert_eq!(appears(&rig.dir.join("termed")).await, "term");
    assert_eq!(text(&rig.get(&id).await), "bye\n", "its last words are journaled");
    dies(&pid).await;
}

#[tokio::test]
async fn who_ignores_sigterm_is_killed() {
    let rig = Rig::new().await;
    rig.shell(
        "stubborn",
        "command.grace = \"200ms\"",
        "trap '' TERM\nsleep 60 & echo $! > child\necho $$ > pid\nwhile :; do sleep 0.02; done",
    );
    let id = rig.start("stubborn", "x").await;
    let (pid, child) = (appears(&rig.dir.join("pid")).await, appears(&rig.dir.join("child")).await);
    let begun = Instant::now();
    assert_eq!(rig.cancel(&id).await.status.state, TaskState::Canceled);
    assert!(begun.elapsed() >= Duration::from_millis(200) && begun.elapsed() < Duration::from_secs(4));
    dies(&pid).await;
    dies(&child).await;
}

#[tokio::test]
async fn a_timeout_kills_the_whole_group() {
    let rig = Rig::new().await;
    rig.shell("slow", "timeout = \"500ms\"", "sh -c 'sleep 60 & echo $! > grandchild; wait' &\necho $$ > pid\nwait");
    let task = rig.say("slow", "x").await;
    assert_eq!(status(&task), (TaskState::Failed, "timed out after 500ms".to_owned()));
    dies(&appears(&rig.dir.join("pid")).await).await;
    dies(&appears(&rig.dir.join("grandchild")).await).await;
}

#[tokio::test]
async fn a_released_turn_takes_its_program_along() {
    let rig = Rig::new().await;
    rig.shell("long", "", "echo $$ > pid\nsleep 60");
    rig.start("long", "x").await;
    let pid = appears(&rig.dir.join("pid")).await;
    rig.exchange.shut_down(Duration::from_millis(50)).await;
    dies(&pid).await;
}

#[tokio::test]
async fn the_environment_is_cleared() {
    let rig = Rig::new().await;
    rig.shell(
        "env",
        "command.env = { LANG = \"C\", GREETING = \"hello\" }\ncommand.pass_env = [\"CARGO_PKG_NAME\", \"NOT_SET\"]",
        "env; pwd",
    );
    let task = rig.say("env", "x").await;
    let said = text(&task);
    // PWD, SHLVL and _ are the shell's own.
    for line in said.lines().filter(|line| line.contains('=')) {
        let name = line.split('=').next().unwrap();
        let expected = [
            "PATH",
            "HOME",
            "LANG",
            "TZ",
            "TMPDIR",
            "GREETING",
            "CARGO_PKG_NAME",
            "SB_GUARD",
            "PWD",
            "OLDPWD",
            "SHLVL",
            "_",
        ];
        assert!(expected.contains(&name), "{line}");
    }
    for line in ["LANG=C", "GREETING=hello", "CARGO_PKG_NAME=agents", rig.dir.to_str().unwrap()] {
        assert!(said.lines().any(|found| found == line), "{line} in {said}");
    }
}

#[tokio::test]
async fn a_program_need_not_read_its_input() {
    let rig = Rig::new().await;
    rig.shell("deaf", "", "echo fine");
    let task = rig.say("deaf", &"x".repeat(1 << 20)).await;
    assert_eq!((task.status.state, text(&task)), (TaskState::Completed, "fine\n".to_owned()));
    rig.shell("late", "", "head -c 200000 /dev/zero | tr '\\0' 'y'; wc -c");
    let said = text(&rig.say("late", &"x".repeat(1 << 20)).await);
    assert!(said.trim_start_matches('y').trim().parse::<usize>().unwrap() > 2 << 20, "message and history");
}

#[tokio::test]
async fn nobody_waits_for_a_grandchild() {
    let rig = Rig::new().await;
    rig.shell("leaves", "", "echo done\nsleep 60 & echo $! > child");
    let begun = Instant::now();
    let task = rig.say("leaves", "x").await;
    assert_eq!((task.status.state, text(&task)), (TaskState::Completed, "done\n".to_owned()));
    dies(&appears(&rig.dir.join("child")).await).await;
    rig.shell(
        "escapes",
        "",
        "setsid sh -c 'echo $$ > escaped; exec sleep 8' & while [ ! -s escaped ]; do sleep 0.01; done; echo done",
    );
    let task = rig.say("escapes", "x").await;
    assert_eq!((task.status.state, text(&task)), (TaskState::Completed, "done\n".to_owned()));
    assert!(begun.elapsed() < Duration::from_secs(6), "the pipe it holds open is not waited for");
    assert!(alive(&appears(&rig.dir.join("escaped")).await), "the guard's business");
}

#[tokio::test]
async fn the_context_is_remembered() {
    let rig = Rig::new().await;
    rig.python(
        "memory",
        "",
        "import json, sys\nturn = json.load(sys.stdin)\nprint([(m['role'], m['parts'][0]['text']) for m in turn['context_history']], end='')",
    );
    let first = rig.say("memory", "one").await;
    assert_eq!(text(&first), "[]");
    let mut next = message("two");
    next.context_id = first.context_id.clone();
    let second = rig.send("memory", next).await;
    assert_ne!(second.id, first.id);
    assert_eq!(text(&second), "[('ROLE_USER', 'one'), ('ROLE_AGENT', '[]')]");
}

#[tokio::test]
async fn concurrency_is_respected() {
    let rig = Rig::new().await;
    rig.shell("two", "concurrency = 2", "mkdir run.$$; ls -d run.* | wc -l; sleep 0.3; rmdir run.$$");
    let mut ids = Vec::new();
    for _ in 0..6 {
        ids.push(rig.start("two", "x").await);
    }
    for id in ids {
        let task = rig.until(&id, |task| task.status.state.is_terminal()).await;
        assert_eq!(task.status.state, TaskState::Completed);
        assert!(text(&task).trim().parse::<usize>().unwrap() <= 2, "{}", text(&task));
    }
}

#[tokio::test]
async fn a_program_that_does_not_start() {
    let rig = Rig::new().await;
    for (id, command, said) in [
        ("none", "argv = [\"no-such-program\"]", "cannot start `no-such-program`: no such program"),
        ("near", "argv = [\"./none\"]", "cannot start `./none`: no such program"),
        ("plain", "argv = [\"./plain.toml\"]", "cannot start `./plain.toml`: it is not executable"),
        ("lost", "argv = [\"true\"]\ncwd = \"gone\"", "cannot start `true`: its directory "),
    ] {
        rig.write(&format!("{id}.toml"), &format!("kind = \"command\"\n[command]\n{command}\n"));
        rig.files.refresh();
        let (state, text) = status(&rig.say(id, "x").await);
        assert_eq!(state, TaskState::Failed);
        assert!(text.starts_with(said), "{text}");
    }
}
