//! Agents run by models on a terminal. `thinking.md` has what is the same without one.

use serde_json::{Value, json};

use super::{rig::Home, terminal::Terminal};

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
