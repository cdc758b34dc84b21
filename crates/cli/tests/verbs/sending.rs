//! `sb send`: what a message can be made of, what is printed, and what the exit code says.

use std::net::TcpListener;

use super::{
    rig::{Home, failed, text, worked},
    terminal::Terminal,
};

#[test]
fn a_message_has_text_files_data_and_metadata() {
    let home = Home::new();
    let _server = home.serve();
    let picture = home.write("a picture.png", [0x89, b'P', 0, 1]);
    let notes = home.write("notes.md", "# Notes\n");
    let data = home.write("data.json", "{\"n\": 1.0, \"big\": 12345678901234567890}");
    let at_data = format!("@{data}");
    let args = [
        "send",
        "--agent",
        "echo",
        "--file",
        &picture,
        "--file",
        &notes,
        "--data",
        &at_data,
        "--data",
        "null",
        "--metadata",
        "{\"k\":[1]}",
        "look",
    ];
    let reply = home.json(&args).remove(0);
    let parts = &reply["task"]["artifacts"][0]["parts"];
    assert_eq!(parts[0]["text"], "look");
    assert_eq!(parts[1]["raw"], "iVAAAQ==");
    assert_eq!((&parts[1]["filename"], &parts[1]["mediaType"]), (&"a picture.png".into(), &"image/png".into()));
    assert_eq!(parts[2]["mediaType"], "text/markdown");
    assert!(parts[4].as_object().unwrap().contains_key("data") && parts[4]["data"].is_null());
    assert_eq!(reply["task"]["history"][0]["metadata"]["k"][0], 1);
    // As text: what cannot be shown is named, and JSON of others keeps its digits.
    let shown = home.ok(&args);
    assert!(
        shown.contains("[a picture.png, image/png, 4 bytes]") && shown.contains("\"big\": 12345678901234567890"),
        "{shown}"
    );

    assert_eq!(home.ok(&["send", "--agent", "echo", "--data", "[1.0]"]), "[1.0]\n", "text is optional beside parts");
    assert_eq!(worked(&home.pipe(&["send", "--agent", "echo", "-"], "two\nlines\n")), "two\nlines\n");
}

#[test]
fn a_message_that_cannot_be_made_is_a_usage_error() {
    let home = Home::new();
    for args in [
        &["send"][..],
        &["send", "--file", "/nowhere/x"],
        &["send", "--data", "{"],
        &["send", "--data", "@/nowhere/x"],
        &["send", "--metadata", "[1]", "x"],
        &["send", "--metadata", "{", "x"],
    ] {
        failed(&home.run(args), 2);
    }
    assert!(failed(&home.pipe(&["send", "-"], "\n"), 2).contains("stdin"));
}

#[test]
fn tasks_and_contexts_are_continued() {
    let home = Home::new();
    let _server = home.serve();
    let asked = home.json(&["send", "--agent", "ask", "--context", "c-1", "start"]).remove(0);
    assert_eq!(asked["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    assert_eq!(asked["task"]["contextId"], "c-1");
    let id = asked["task"]["id"].as_str().unwrap();
    let events = home.json(&["send", "--stream", "--agent", "ask", "--task", id, "42"]);
    assert!(events[0]["task"].is_object(), "a stream is one object a line, the task first");
    // A turn that was over before the task was read is all in that.
    let last = events.last().unwrap();
    let status = if events.len() > 1 { &last["statusUpdate"]["status"] } else { &last["task"]["status"] };
    assert_eq!(status["state"], "TASK_STATE_COMPLETED");
}

#[test]
fn text_has_no_control_codes_and_json_keeps_them() {
    let home = Home::new();
    let _server = home.serve();
    let said = "a\u{1b}[31mred\u{7}\r\nb\u{202e}c";
    for mode in [&["send"][..], &["send", "--stream"]] {
        let shown = worked(&home.run(&[mode, &["--agent", "echo", said]].concat()));
        assert_eq!(shown, "a\\u{1b}[31mred\\u{7}\nb\\u{202e}c\n");
    }
    let reply = home.json(&["send", "--agent", "echo", said]).remove(0);
    assert_eq!(reply["task"]["artifacts"][0]["parts"][0]["text"], said);
}

#[test]
fn every_exit_code_has_its_case() {
    let home = Home::new();
    let server = home.serve();
    home.ok(&["send", "--agent", "echo", "x"]);
    for mode in [&["send"][..], &["send", "--stream"]] {
        let failing = |args: &[&str], code| failed(&home.run(&[mode, args].concat()), code);
        assert!(failing(&["--agent", "fail", "x"], 1).contains("the task failed"));
        failing(&["--agent", "nobody", "x"], 2);
        let said = failing(&["--agent", "ehco", "x"], 2);
        assert!(said.contains("did you mean `echo`?") && said.contains("sb agent list"), "{said}");
        let said = failing(&["--agent", "ehco", "-o", "json", "x"], 2);
        assert!(said.contains("A2ACLI_ERR_USAGE"), "{said}");
        failing(&["--url", "nonsense", "x"], 2);
        failing(&["--timeout", "soon", "x"], 2);
        assert!(failing(&["--token", "sb_wrong", "x"], 4).contains("hint: "));
        let slow = failing(&["--agent", "slow", "--timeout", "300ms", "5000"], 5);
        assert!(slow.contains("300ms") && slow.contains("hint: "), "{slow}");
    }
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    assert!(home.fails(&["send", "--url", &nobody, "x"], 3).contains("hint: "));
    assert!(home.fails(&["send", "--stream", "--url", &nobody, "x"], 3).contains("cannot reach"));
    drop(server);
    home.fails(&["send", "x"], 3);
    assert_eq!(text(&home.run(&["send", "x"]).stdout), "", "errors are not on stdout");
}

#[test]
fn what_is_piped_in_is_said() {
    let home = Home::new();
    let _server = home.serve();
    assert_eq!(worked(&home.pipe(&["send", "--agent", "echo"], "hi\n")), "hi\n");
    assert!(failed(&home.pipe(&["send", "--agent", "echo"], ""), 2).contains("stdin"));
    let shown = worked(&home.pipe(&["send", "--agent", "echo", "--data", "-", "look"], "{\"n\": 1}"));
    assert_eq!(shown, "look\n{\"n\": 1}\n");
}

#[test]
fn spellings_of_a2a_cli_are_understood() {
    let home = Home::new();
    let server = home.serve();
    let card = format!("{}/a2a/agents/ask", server.url);
    let token = home.token();
    let place =
        ["--agent-card", &card, "--bearer", &token, "--svc-param", "x-trace-id:abc", "--transport", "HTTP+JSON"];
    let send = |args: &[&str]| home.json(&[&["send"], &place[..], args].concat()).remove(0);
    assert_eq!(home.ok(&["card", "get", "-a", &card, "-o", "json"]), home.ok(&["card", "get", &card, "-o", "json"]));
    let asked = send(&["--context-id", "c-1", "--text", "start"]);
    assert_eq!(asked["task"]["contextId"], "c-1");
    let id = asked["task"]["id"].as_str().unwrap();
    assert_eq!(send(&["--task-id", id, "--wait", "42"])["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(home.json(&["task", "list", "--status", "TASK_STATE_COMPLETED", "--context-id", "c-1"]).len(), 1);
    let taken = home.json(&["send", "--agent", "slow", "--async", "500"]).remove(0);
    assert!(taken["task"]["id"].is_string());
    assert_eq!(home.run(&["send", "--svc-param", "nothing", "x"]).status.code(), Some(2));
}

#[test]
fn debug_shows_the_wire_and_no_secret() {
    let home = Home::new();
    let server = home.serve();
    let token = home.token();
    let output = home.run(&["send", "--debug", "--agent", "echo", "--svc-param", "x-other-secret:hush-hush", &token]);
    assert!(worked(&output).starts_with("sb_"));
    let said = text(&output.stderr);
    assert!(said.contains("> GET ") && said.contains("> POST ") && said.contains("< 200 OK"), "{said}");
    assert!(said.contains("SendStreamingMessage") && said.contains("artifactUpdate"), "{said}");
    assert!(said.contains("authorization: ***") && said.contains("x-other-secret: ***"), "{said}");
    assert!(!said.contains(&token) && !said.contains("hush-hush"), "{said}");
    drop(server);
}

#[test]
fn for_programs_errors_are_objects() {
    let home = Home::new();
    let _server = home.serve();
    let error = |args: &[&str], code: i32| {
        let output = home.run(args);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(code), ""), "{output:?}");
        let error: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(error["error"]["exitCode"], code);
        error["error"].clone()
    };
    let missing = error(&["task", "get", "-o", "json", "0197c5a2-0000-7000-8000-000000000000"], 1);
    assert_eq!(missing["code"], "TaskNotFoundError");
    assert!(missing["message"].as_str().unwrap().contains("not found") && missing["a2aCode"].is_i64());
    assert_eq!(error(&["send", "-o", "json", "--token", "sb_wrong", "x"], 4)["code"], "A2ACLI_ERR_AUTH_FAILED");
    assert_eq!(error(&["send", "-o", "json", "--url", "http://127.0.0.1:1", "x"], 3)["code"], "A2ACLI_ERR_UNREACHABLE");
    let usage = error(&["send", "-o", "json", "--no-such-flag", "x"], 2);
    assert_eq!(usage["code"], "A2ACLI_ERR_USAGE");
    assert!(usage["message"].as_str().unwrap().contains("--no-such-flag"), "{usage}");
    // A task that failed was told as a task, and its verdict as an error.
    let output = home.run(&["send", "-o", "json", "--agent", "fail", "x"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("TASK_STATE_FAILED") && text(&output.stderr).contains("\"error\""));
}

/// Says something on the way, makes two files of text, repeats one of them at its end or says something else.
const TALKER: &str = r#"
read -r line
echo '{"statusUpdate":{"status":{"state":"TASK_STATE_WORKING","message":{"parts":[{"text":"halfway"}]}}}}'
echo '{"artifactUpdate":{"artifact":{"artifactId":"a","name":"summary","parts":[{"text":"in short"}]},"lastChunk":true}}'
echo '{"artifactUpdate":{"artifact":{"artifactId":"b","name":"details","parts":[{"text":"at length"}]},"lastChunk":true}}'
case "$line" in *again*) end="at length" ;; *) end="that is all" ;; esac
echo "{\"statusUpdate\":{\"status\":{\"state\":\"TASK_STATE_COMPLETED\",\"message\":{\"parts\":[{\"text\":\"$end\"}]}}}}"
"#;

#[test]
fn everything_that_an_agent_says_is_shown_once() {
    let home = Home::new();
    home.write(".config/switchboard/agents/talker.sh", TALKER);
    home.add_agent(
        "talker.toml",
        "kind = \"command\"\n[command]\nargv = [\"sh\", \"./talker.sh\"]\noutput = \"events\"\n",
    );
    let _server = home.serve();
    for mode in [&["send"][..], &["send", "--stream"]] {
        let output = home.run(&[mode, &["--agent", "talker", "go"]].concat());
        assert_eq!(worked(&output), "in short\nat length\nthat is all\n", "{mode:?}");
        let said = text(&output.stderr);
        assert!(said.contains("· halfway\n") && said.contains("· artifact details\n"), "{said}");
        let output = home.run(&[mode, &["--agent", "talker", "again"]].concat());
        assert_eq!(worked(&output), "in short\nat length\n", "{mode:?}: what was said is not said again");
    }
}

#[test]
fn a_text_of_several_words_needs_no_quotes() {
    let home = Home::new();
    let _server = home.serve();
    assert_eq!(home.ok(&["send", "hello", "wide", "world"]), "hello wide world\n");
}

#[test]
fn an_address_is_a_url() {
    let home = Home::new();
    let server = home.serve();
    assert_eq!(home.ok(&["send", "--url", server.address(), "hello"]), "hello\n");
    let mut command = home.command(&["send", "hello"]);
    let by_variable = command.env("SB_URL", server.address()).env("SB_TOKEN", home.token()).output().unwrap();
    assert_eq!(worked(&by_variable), "hello\n");
    assert!(home.fails(&["send", "--url", "nonsense", "x"], 2).contains("http://"));
}

#[test]
fn a_variable_that_nothing_reads_is_told() {
    let home = Home::new();
    let _server = home.serve();
    let said = |args: &[&str], name: &str| text(&home.command(args).env(name, "x").output().unwrap().stderr);
    let warning = said(&["send", "hello"], "SB_TOKNE");
    assert!(
        warning.contains("warning: unknown environment variable `SB_TOKNE`: did you mean `SB_TOKEN`?"),
        "{warning}"
    );
    assert!(!said(&["send", "hello"], "SB_TOKEN_FILE").contains("unknown"));
    // Others may have variables of such a name.
    assert!(!said(&["send", "hello"], "SB_WEATHER").contains("unknown"));
    assert!(said(&["config", "show"], "SB_WEATHER").contains("unknown environment variable `SB_WEATHER`"));
}

#[test]
fn a_queue_that_nobody_works_on_is_told() {
    let home = Home::new();
    home.add_agent("review.toml", "kind = \"queue\"\n");
    let _server = home.serve();
    for mode in [&["send"][..], &["send", "--stream"]] {
        let late = failed(&home.run(&[mode, &["--agent", "review", "--timeout", "6s", "x"]].concat()), 5);
        assert!(late.contains("no worker has taken the task from the queue of `review`"), "{late}");
        assert!(late.contains("sb a2a work review"), "{late}");
    }
    let slow = home.run(&["send", "--agent", "slow", "4000"]);
    assert!(!text(&slow.stderr).contains("worker"), "{}", text(&slow.stderr));
}

#[test]
fn a_wait_is_shown_on_a_terminal_and_cleared() {
    let home = Home::new();
    let _server = home.serve();
    let mut command = home.command(&["send", "--agent", "slow", "2500"]);
    let (code, screen) = Terminal::start(command.env("TERM", "xterm")).ends();
    assert_eq!(code, Some(0));
    let at = screen.find("waiting for slow… 1 s").unwrap_or_else(|| panic!("{screen:?}"));
    let after = &screen[at..];
    let answer = after.find("done after").unwrap();
    assert!(after[..answer].ends_with("\r\u{1b}[K"), "{screen:?}");
    let dumb = Terminal::start(home.command(&["send", "--agent", "slow", "1500"]).env("TERM", "dumb")).ends().1;
    assert!(!dumb.contains("waiting") && !dumb.contains('\u{1b}'), "{dumb:?}");
}
