//! `sb chat` and what asks for secrets, in a real terminal: the editor, its history, pasting, Ctrl-C, and the way back.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::Value;

use super::{
    rig::{Home, eventually},
    tmux::Shell,
};

/// What was sent to an agent, oldest first.
fn sent(home: &Home) -> Vec<String> {
    let tasks = home.json(&["task", "list"]);
    let ids: Vec<&str> = tasks.iter().rev().map(|task| task["id"].as_str().unwrap()).collect();
    let mut sent = Vec::new();
    for id in ids {
        let task = home.json(&["task", "get", id]).remove(0);
        let history = task["history"].as_array().unwrap();
        sent.extend(history.iter().map(|message| message["parts"][0]["text"].as_str().unwrap().to_owned()));
    }
    sent
}

/// The command between backticks that goes on with a conversation.
fn resuming(screen: &str) -> String {
    let line = screen.lines().rev().find(|line| line.contains("goes on with this conversation")).unwrap();
    line.split('`').nth(1).unwrap().to_owned()
}

fn mode(home: &Home, below: &str) -> u32 {
    fs::metadata(home.path(below)).unwrap().permissions().mode() & 0o777
}

const HISTORY: &str = ".local/state/switchboard/chat_history";

#[test]
fn a_message_has_the_lines_that_were_meant() {
    let home = Home::new();
    let _server = home.serve();
    let shell = Shell::start(&home);
    shell.enters("sb chat echo");
    shell.prompts(">");
    shell.enters("hello");
    shell.shows("> hello\nhello\n>");
    // What is pasted waits for Enter, however many lines it has.
    shell.pastes("one \\\ntwo\nthree");
    shell.last_line_is("three");
    assert_eq!(sent(&home), ["hello"]);
    shell.presses(&["Enter"]);
    shell.shows("three\none \\\ntwo\nthree\n>");
    shell.enters("four\\");
    shell.enters("five");
    shell.shows("five\nfour\nfive\n>");
    shell.types("six");
    shell.presses(&["M-Enter"]);
    shell.types("seven");
    shell.presses(&["Enter"]);
    shell.shows("seven\nsix\nseven\n>");
    assert_eq!(sent(&home), ["hello", "one \\\ntwo\nthree", "four\nfive", "six\nseven"]);
    shell.presses(&["C-d"]);
    shell.prompts("$");
}

#[test]
fn what_begins_with_a_slash_is_not_sent_by_mistake() {
    let home = Home::new();
    let _server = home.serve();
    let shell = Shell::start(&home);
    shell.enters("sb chat echo");
    shell.prompts(">");
    shell.enters("/hepl");
    shell.shows("error: `/hepl` is no command, and was not sent\nhint: did you mean `/help`?");
    shell.prompts(">");
    shell.enters("/help");
    shell.shows("/attach [FILE|-]");
    shell.prompts(">");
    shell.enters("//help me");
    shell.shows("> //help me\n/help me\n>");
    assert_eq!(sent(&home), ["/help me"]);
    // Tab knows the commands.
    shell.types("/hist");
    shell.presses(&["Tab"]);
    shell.last_line_is("> /history");
    shell.presses(&["Enter"]);
    shell.shows("> /history \n> /help me\n/help me\n>");
    shell.enters("/quit");
    shell.prompts("$");
}

#[test]
fn what_was_typed_comes_back() {
    let home = Home::new();
    let _server = home.serve();
    let shell = Shell::start(&home);
    shell.enters("sb chat echo");
    shell.prompts(">");
    for line in ["the first", "another", " not kept"] {
        shell.enters(line);
        shell.shows(&format!("> {line}\n{}\n>", line.trim()));
    }
    shell.presses(&["Up"]);
    shell.last_line_is("> another");
    shell.presses(&["C-c"]);
    shell.prompts(">");
    shell.presses(&["C-r"]);
    shell.types("fir");
    shell.last_line_is("(reverse-i-search)`fir': the first");
    shell.presses(&["Enter"]);
    eventually("it is sent again", || sent(&home).last().unwrap() == "the first");
    assert_eq!(mode(&home, HISTORY), 0o600);
    shell.prompts(">");
    shell.enters("/quit");
    shell.prompts("$");

    // In another conversation as well, and not in one that is to know of nothing.
    shell.enters("sb chat --no-history message");
    shell.prompts(">");
    shell.presses(&["Up"]);
    shell.enters("a secret");
    shell.shows("> a secret\na secret\n>");
    shell.enters("/quit");
    shell.prompts("$");
    shell.enters("sb chat message");
    shell.prompts(">");
    shell.presses(&["Up", "Up"]);
    shell.last_line_is("> the first");
    shell.presses(&["C-c"]);
    shell.prompts(">");
    shell.presses(&["C-d"]);
    shell.prompts("$");
    let kept = fs::read_to_string(home.path(HISTORY)).unwrap();
    assert_eq!(kept, "#V2\nthe first\nanother\nthe first\n/quit\n");
}

#[test]
fn an_answer_that_did_not_get_there_is_still_one() {
    let home = Home::new();
    let server = home.serve();
    let listen = server.address().to_owned();
    let shell = Shell::start(&home);
    shell.enters("sb chat ask");
    shell.prompts(">");
    shell.enters("start");
    shell.prompts("answer>");
    shell.enters(&format!("/attach {}", home.write("a.txt", "a")));
    shell.shows("file a.txt (1 byte) goes with the next message");
    shell.prompts("answer>");
    drop(server);
    shell.enters("42");
    shell.shows("error: cannot reach");
    shell.prompts("answer>");
    let _server = home.serve_with(&["--listen", &listen], &[]);
    shell.presses(&["Up", "Enter"]);
    shell.prompts(">");
    let tasks = home.json(&["task", "list"]);
    assert_eq!((tasks.len(), &tasks[0]["status"]["state"]), (1, &"TASK_STATE_COMPLETED".into()));
    let task = home.json(&["task", "get", tasks[0]["id"].as_str().unwrap()]).remove(0);
    let answer = task["history"].as_array().unwrap().iter().rfind(|message| message["role"] == "ROLE_USER").unwrap();
    assert_eq!(answer["parts"].as_array().unwrap().len(), 2, "the file as well: {answer}");
    shell.presses(&["C-d"]);
    shell.prompts("$");
}

#[test]
fn a_turn_goes_on_when_the_server_is_back() {
    let home = Home::new();
    let mut server = home.serve();
    let listen = server.address().to_owned();
    let shell = Shell::start(&home);
    shell.enters("sb chat stream");
    shell.prompts(">");
    shell.enters("12 chunks, 500 ms apart");
    shell.shows("chunk 2 of 12");
    server.kill9();
    shell.shows("the server is away");
    let _server = home.serve_with(&["--listen", &listen], &[]);
    shell.shows("the server is back");
    shell.shows("chunk 12 of 12");
    shell.prompts(">");
    shell.presses(&["C-d"]);
    shell.prompts("$");
}

#[test]
fn questions_are_asked_again_and_can_be_left() {
    let home = Home::new();
    let shell = Shell::start(&home);
    shell.enters("sb agent new; echo \"code $?\"");
    shell.shows("id, which it is called by:");
    shell.enters("index");
    shell.shows("note: `index` is built in");
    shell.until("the question again", |screen| screen.matches("id, which it is called by:").count() == 2);
    shell.presses(&["C-c"]);
    shell.prompts("$");
    assert!(!home.agents().exists(), "nothing was made");
}

#[test]
fn what_is_typed_ahead_is_said_next() {
    let home = Home::new();
    let _server = home.serve();
    let shell = Shell::start(&home);
    shell.enters("sb chat slow");
    shell.prompts(">");
    shell.enters("1500");
    shell.shows("· thinking…");
    // Both at once: the second waits behind the first.
    shell.enters("20");
    shell.enters("30");
    shell.shows("done after 1500 ms");
    shell.shows("done after 20 ms");
    shell.shows("done after 30 ms");
    shell.prompts(">");
    assert_eq!(sent(&home), ["1500", "20", "30"]);
    shell.presses(&["C-d"]);
    shell.prompts("$");
}

#[test]
fn a_terminal_that_can_do_nothing_is_enough() {
    let home = Home::new();
    let _server = home.serve();
    let shell = Shell::start(&home);
    shell.enters("TERM=dumb sb chat echo; echo \"code $?\"");
    shell.prompts(">");
    shell.enters("hello");
    shell.shows("> hello\nhello\n>");
    shell.enters("/quit");
    shell.shows("code 0");
}

#[test]
fn ctrl_c_clears_cancels_and_leaves() {
    let home = Home::new();
    let _server = home.serve();
    let shell = Shell::start(&home);
    shell.enters("sb chat slow; echo \"code $?\"");
    shell.prompts(">");
    shell.types("not this");
    shell.presses(&["C-c"]);
    shell.prompts(">");
    shell.enters("60000");
    shell.shows("· thinking…");
    shell.presses(&["C-c"]);
    shell.shows("note: canceling; the conversation goes on");
    shell.shows("note: canceled; the conversation goes on");
    shell.prompts(">");
    assert_eq!(sent(&home), ["60000"]);
    let task = home.json(&["task", "list", "--state", "canceled"]).remove(0);
    // Its line is still there to be changed.
    shell.presses(&["Up", "BSpace", "BSpace", "BSpace", "Enter"]);
    shell.shows("done after 60 ms");
    shell.prompts(">");
    shell.presses(&["C-c"]);
    let screen = shell.shows("code 0");
    let context = task["contextId"].as_str().unwrap();
    assert_eq!(resuming(&screen), format!("sb chat slow --context {context}"));
}

#[test]
fn a_second_ctrl_c_leaves_a_task_that_does_not_end() {
    let home = Home::new();
    let stubborn = "argv = [\"sh\", \"-c\", \"trap '' TERM; sleep 60; sleep 60\"]\ngrace = \"20s\"\n";
    home.add_agent("stubborn.toml", &format!("kind = \"command\"\n[command]\n{stubborn}"));
    let _server = home.serve();
    let shell = Shell::start(&home);
    shell.enters("sb chat stubborn; echo \"code $?\"");
    shell.prompts(">");
    shell.enters("x");
    shell.shows("· thinking…");
    shell.presses(&["C-c"]);
    shell.shows("note: canceling");
    shell.presses(&["C-c"]);
    let screen = shell.shows("code 0");
    assert!(screen.contains("error: left before the turn was over\nhint: `sb task get "), "{screen}");
    assert!(resuming(&screen).starts_with("sb chat stubborn --context "), "{screen}");
}

#[test]
fn the_way_back_leads_to_the_same_server_and_conversation() {
    let home = Home::new();
    let elsewhere = home.path("else where").display().to_string();
    let _server = home.serve_with(&["--data-dir", &elsewhere], &[]);
    let shell = Shell::start(&home);
    shell.enters("sb chat ask --data-dir 'else where'");
    shell.prompts(">");
    shell.enters("start");
    shell.shows("What is your answer?");
    shell.prompts("answer>");
    shell.presses(&["C-d"]);
    let screen = shell.shows("goes on with this conversation");
    shell.prompts("$");
    let command = resuming(&screen);
    assert!(command.starts_with(&format!("sb chat ask --data-dir '{elsewhere}' --context ")), "{command}");
    // From wherever it is typed. The question is still to be answered.
    shell.runs("cd /");
    shell.enters(&command);
    shell.shows("> start\nWhat is your answer?");
    shell.prompts("answer>");
    shell.enters("42");
    shell.prompts(">");
    shell.enters("/task");
    shell.shows("state:   completed");
    let tasks = home.json(&["task", "list", "--data-dir", &elsewhere]);
    assert_eq!(tasks.len(), 1, "it was the same task: {tasks:?}");
    shell.enters("/quit");
    shell.prompts("$");
}

#[test]
fn whatever_ends_it_the_terminal_is_as_it_was() {
    let home = Home::new();
    let _server = home.serve();
    let shell = Shell::start(&home);
    let before = shell.runs("stty -g");
    for (signal, code) in [("TERM", 1), ("HUP", 1), ("INT", 0)] {
        shell.enters(&format!("sb chat echo; echo \"code $? after {signal}\""));
        shell.prompts(">");
        shell.types("half a line");
        shell.last_line_is("> half a line");
        let chat = pid_of(&shell);
        let sent = std::process::Command::new("kill").args(["-s", signal, &chat]).status().unwrap();
        assert!(sent.success());
        shell.shows(&format!("code {code} after {signal}"));
        assert_eq!(shell.runs("stty -g"), before, "after SIG{signal}");
    }
}

/// The process that the shell has started.
fn pid_of(shell: &Shell) -> String {
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", shell.pid())).unwrap();
    children.trim().to_owned()
}

#[test]
fn a_token_is_asked_for_and_not_shown() {
    let home = Home::new();
    let server = home.serve();
    let shell = Shell::start(&home);
    let before = shell.runs("stty -g");
    shell.enters(&format!("sb profile add work --url {}; echo \"code $?\"", server.url));
    shell.shows("token (not shown; Enter for none):");
    shell.presses(&["C-c"]);
    shell.shows("code 1");
    assert_eq!(shell.runs("stty -g"), before);
    assert!(!home.path(".config/switchboard/profiles.json").exists());

    shell.enters(&format!("sb profile add work --url {} --agent message", server.url));
    shell.until("the second question", |screen| screen.matches("Enter for none):").count() == 2);
    shell.enters(&home.token());
    shell.shows(&format!("profile work is {}\n", server.url));
    shell.prompts("$");
    assert_eq!(shell.runs("stty -g"), before);
    assert!(!shell.screen().contains(&home.token()), "{}", shell.screen());
    assert_eq!(shell.runs("SB_DATA_DIR=/nowhere sb send --profile work hi"), "hi\n");
    assert_eq!(mode(&home, ".config/switchboard/profiles.json"), 0o600);
    let kept: Value =
        serde_json::from_slice(&fs::read(home.path(".config/switchboard/profiles.json")).unwrap()).unwrap();
    assert_eq!(kept["profiles"]["work"]["token"], home.token());
}

#[test]
fn a_shell_completes_what_the_server_knows() {
    let home = Home::new();
    home.add_agent("counter.toml", "kind = \"command\"\n[command]\nargv = [\"true\"]\n");
    let server = home.serve();
    home.ok(&["profile", "add", "work", "--url", &server.url]);
    let shell = Shell::start(&home);
    shell.runs("source <(sb completion bash)");
    for (typed, completed) in [
        ("sb send --agent counte", "sb send --agent counter"),
        ("sb chat counte", "sb chat counter"),
        ("sb agent show counte", "sb agent show counter"),
        ("sb task list --state compl", "sb task list --state completed"),
        ("sb send --profile wo", "sb send --profile work"),
        ("sb profile use wo", "sb profile use work"),
        ("sb conf", "sb config"),
        ("sb send --allow", "sb send --allow-other-origin"),
    ] {
        shell.types(typed);
        shell.last_line_is(&format!("$ {typed}"));
        shell.presses(&["Tab"]);
        shell.last_line_is(&format!("$ {completed}"));
        shell.presses(&["C-u"]);
        shell.prompts("$");
    }
    // What is no command for people is not offered.
    for typed in ["sb gua", "sb laun"] {
        shell.types(typed);
        shell.presses(&["Tab"]);
        shell.types("!");
        shell.last_line_is(&format!("$ {typed}!"));
        shell.presses(&["C-u"]);
        shell.prompts("$");
    }
}
