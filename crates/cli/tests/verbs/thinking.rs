//! Agents run by models as people see them: `sb send`, `sb task`, `sb chat`, with and without a terminal.

use serde_json::{Value, json};

use super::{
    rig::{Home, eventually, failed, text, worked},
    terminal::Terminal,
};

const MODELS: &str = "default = \"script/m\"\n[providers.script]\napi = \"scripted\"\nfile = \"replies.json\"\n";

/// A home whose models answer like that, with an agent `helper`.
fn thinking(replies: &Value) -> Home {
    let home = Home::new();
    home.write(".config/switchboard/models.toml", MODELS);
    home.write(".config/switchboard/replies.json", json!({ "replies": replies }).to_string());
    home.add_agent("helper.toml", "kind = \"llm\"\n[llm]\nrole = \"analyst\"\n");
    home
}

/// A model that uses all that is shown beside an answer.
fn busy() -> Home {
    let commands = "Let me ask.\n/agent helper go\n/agent nobody go\n/write notes.md\nnine byte\n/endwrite\n";
    thinking(&json!([
        {"match": "[END TOOL RESULTS]", "text": ["It is ", "done."]},
        {"match": "QUERY", "text": commands},
        {"text": format!("first line\nsecond {}", "x".repeat(200))},
    ]))
}

const ASIDES: [&str; 5] = [
    "· helper: first line second xxx",
    "· agent:helper\n",
    "· agent:nobody failed\n",
    "· file notes.md (9 bytes)\n",
    "· write:notes.md\n",
];

#[track_caller]
fn shows_asides(text: &str) {
    for line in ASIDES {
        assert_eq!(text.matches(line).count(), 1, "{line:?} in {text}");
    }
}

#[test]
fn what_is_beside_an_answer_is_not_in_it() {
    let home = busy();
    let _server = home.serve();
    for args in [&["send", "--agent", "index", "go"][..], &["send", "--stream", "--agent", "index", "go"]] {
        let output = home.run(args);
        assert_eq!(worked(&output), "Let me ask.\nIt is done.\n", "{args:?}");
        shows_asides(&text(&output.stderr));
    }
    let tasks = home.json(&["task", "list", "--agent", "index"]);
    let id = tasks[0]["id"].as_str().unwrap();
    let output = home.run(&["task", "get", id]);
    let shown = worked(&output);
    assert!(shown.ends_with("\n\nLet me ask.\nIt is done.\n"), "{shown}");
    shows_asides(&text(&output.stderr));
    for args in [&["task", "subscribe", id][..], &["task", "subscribe", id, "--after", "0"]] {
        let output = home.run(args);
        assert_eq!(worked(&output), "Let me ask.\nIt is done.\n");
        shows_asides(&text(&output.stderr));
    }
    let whole = home.json(&["send", "--agent", "index", "go"]).remove(0);
    let artifacts = whole["task"]["artifacts"].as_array().unwrap();
    assert_eq!(artifacts.iter().filter(|artifact| artifact["name"] == "tool_call").count(), 3, "programs see all");

    let output = home.pipe(&["chat", "index"], "go\n");
    assert_eq!(worked(&output), "Let me ask.\nIt is done.\n");
    shows_asides(&text(&output.stderr));
}

#[test]
fn on_a_terminal_they_are_dim_lines_in_the_order_in_which_they_happen() {
    let home = busy();
    let _server = home.serve();
    let mut terminal = Terminal::start(&mut home.command(&["send", "--stream", "--agent", "index", "go"]));
    let (code, screen) = terminal.ends();
    assert_eq!(code, Some(0), "{screen}");
    let dim = |line: &str| format!("\u{1b}[2m{line}\u{1b}[0m\n");
    let begin = format!("Let me ask.\n\u{1b}[2m{}", ASIDES[0]);
    let end = format!(
        "{}{}{}{}It is done.\ntask: ",
        dim("· agent:helper"),
        dim("· agent:nobody failed"),
        dim("· file notes.md (9 bytes)"),
        dim("· write:notes.md")
    );
    assert!(screen.starts_with(&begin) && screen.contains(&end), "{screen:?}");

    let mut command = home.command(&["send", "--agent", "index", "go"]);
    let (_, screen) = Terminal::start(command.env("NO_COLOR", "1")).ends();
    assert!(
        !screen.contains('\u{1b}') && screen.contains("· write:notes.md\nLet me ask.\nIt is done.\ntask: "),
        "{screen:?}"
    );
}

#[test]
fn a_file_is_an_answer_and_silence_is_told() {
    let home = thinking(&json!([
        {"match": "[END TOOL RESULTS]", "text": ""},
        {"match": "write", "text": "/write a.txt\nx\n/endwrite\n"},
        {"text": "/help\n"},
    ]));
    let _server = home.serve();
    let output = home.run(&["send", "--agent", "index", "write"]);
    assert_eq!(worked(&output), "");
    let said = text(&output.stderr);
    assert!(said.starts_with("· file a.txt (1 byte)\n· write:a.txt\ntask: ") && said.lines().count() == 3, "{said}");
    for args in [&["send", "--agent", "index", "x"][..], &["send", "--stream", "--agent", "index", "x"]] {
        let said = text(&home.run(args).stderr);
        assert!(said.starts_with("· help\n") && said.contains("said nothing"), "{said}");
    }
}

#[test]
fn without_a_model_the_server_says_so_and_its_operator_finds_out_what_to_set() {
    let home = Home::new();
    let _server = home.serve();
    for args in [&["send", "--agent", "index", "x"][..], &["chat", "index"]] {
        let said = failed(&home.pipe(args, "x\n"), 1);
        assert!(
            said.contains("there is no default: `sb doctor`, run by the operator of this server, says what to set"),
            "{said}"
        );
    }
    let found = text(&home.run(&["doctor"]).stdout);
    assert!(found.contains("ANTHROPIC_API_KEY") && found.contains("models.toml"), "{found}");
}

#[test]
fn a_conversation_on_a_terminal() {
    let home = thinking(&json!([
        {"match": "how many", "text": "Two so far."},
        {"match": "slowly", "text": ["at ", "last"], "delay": "1500ms"},
        {"match": "for ever", "text": ["never"], "delay": "60s"},
        {"text": "Hello there."},
    ]));
    let _server = home.serve();
    let mut terminal = Terminal::start(&mut home.command(&["chat", "index"]));
    let note = terminal.shows("> ");
    assert!(note.contains("this is index") && note.contains("/help") && note.contains("Ctrl-C"), "{note}");
    terminal.types("hi");
    terminal.shows("Hello there.\n");
    terminal.shows("> ");

    terminal.types("slowly");
    terminal.shows("· thinking…");
    terminal.shows("at last\n");
    terminal.shows("> ");

    terminal.types("for ever");
    terminal.shows("thinking");
    terminal.interrupt();
    terminal.shows("note: canceling; the conversation goes on");
    terminal.shows("note: canceled; the conversation goes on");
    terminal.shows("> ");
    let canceled = home.json(&["task", "list", "--state", "canceled"]);
    assert_eq!(canceled.len(), 1);
    let context = canceled[0]["contextId"].as_str().unwrap();

    terminal.types("/history");
    terminal.shows("> hi");
    terminal.shows("Hello there.");
    terminal.shows("> slowly");
    terminal.shows("at last");
    terminal.shows("> for ever");
    terminal.shows("· canceled");
    terminal.shows("> ");
    terminal.interrupt();
    let (code, screen) = terminal.ends();
    assert_eq!(code, Some(0));
    assert!(
        screen.ends_with(&format!("note: `sb chat index --context {context}` goes on with this conversation\n")),
        "{screen}"
    );

    let mut terminal = Terminal::start(&mut home.command(&["chat", "index", "--context", context]));
    terminal.shows("> hi");
    terminal.shows("Hello there.");
    terminal.shows("at last");
    terminal.shows("· canceled");
    terminal.shows("> ");
    terminal.types("how many");
    terminal.shows("Two so far.");
    assert_eq!(home.json(&["task", "list", "--context", context]).len(), 4);
    terminal.shows("> ");
    // What is gone by now is told shortly.
    terminal.types("/quit");
    assert_eq!(terminal.ends().0, Some(0));
    let mut terminal = Terminal::start(&mut home.command(&["chat", "index", "--session", context]));
    let before = terminal.shows("> for ever");
    assert!(before.contains("/history shows all") && !before.contains("> hi"), "{before}");
    terminal.types("/quit");
    terminal.ends();
}

#[test]
fn a_second_ctrl_c_leaves() {
    let home = Home::new();
    let stubborn = "argv = [\"sh\", \"-c\", \"trap '' TERM; sleep 60; sleep 60\"]\ngrace = \"20s\"\n";
    home.add_agent("stubborn.toml", &format!("kind = \"command\"\n[command]\n{stubborn}"));
    let _server = home.serve();
    let mut terminal = Terminal::start(&mut home.command(&["chat", "stubborn"]));
    terminal.shows("> ");
    terminal.types("x");
    terminal.shows("thinking");
    terminal.interrupt();
    terminal.shows("note: canceling");
    terminal.interrupt();
    let (code, screen) = terminal.ends();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("left before the turn was over") && screen.contains("sb task get "), "{screen}");
    assert!(screen.contains("`sb chat stubborn --context "), "{screen}");
}

#[test]
fn history_is_told_in_a_pipe_as_well() {
    let home = thinking(&json!([{"text": "Hello."}]));
    let _server = home.serve();
    let output = home.pipe(&["chat", "index"], "/history\nhi\n/history\n");
    assert_eq!(worked(&output), "Hello.\n> hi\nHello.\n");
    assert_eq!(text(&output.stderr), "note: nothing was said yet\n");
}

#[test]
fn who_talks_without_naming_anybody_talks_with_the_one_that_routes() {
    let home = thinking(&json!([{"text": "Routed."}]));
    let _server = home.serve();
    assert_eq!(worked(&home.pipe(&["chat"], "hi\n")), "Routed.\n");
    eventually("its task is there", || home.json(&["task", "list", "--agent", "index"]).len() == 1);
    let without = Home::new();
    let _server = without.serve();
    assert_eq!(worked(&without.pipe(&["chat"], "hi\n")), "hi\n", "nobody could think");
}

#[test]
fn the_last_task_is_the_one_that_was_sent_and_no_sub_task_of_it() {
    let home = busy();
    let _server = home.serve();
    let sent = home.json(&["send", "--agent", "index", "go"]).remove(0);
    let id = sent["task"]["id"].as_str().unwrap().to_owned();
    eventually("its sub-task is there", || home.json(&["task", "list"]).len() == 2);
    assert_eq!(home.json(&["task", "get", "last"])[0]["id"], *id);
    // Among the tasks of one agent there may be nothing but sub-tasks.
    let of_helper = home.json(&["task", "get", "last", "--agent", "helper"]).remove(0);
    assert_eq!((&of_helper["agent"], &of_helper["parent"]["id"]), (&json!("helper"), &json!(id)));
    assert!(home.ok(&["task", "delete", "last"]).contains(&id));
}
