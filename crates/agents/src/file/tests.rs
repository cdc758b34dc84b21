//! What an agent file may hold, and what is said about one that may not.

use std::time::Duration;

use super::*;

fn good(text: &str) -> AgentFile {
    parse(Path::new("/etc/sb/agents/count.toml"), text).unwrap_or_else(|error| panic!("{error}"))
}

fn problem(text: &str) -> String {
    match parse(Path::new("/etc/sb/agents/count.toml"), text) {
        Err(Error::Invalid { problem, .. }) => problem,
        other => panic!("{other:?}"),
    }
}

const SMALL: &str = "kind = \"command\"\n[command]\nargv = [\"cat\"]\n";

#[test]
fn a_small_file_gets_the_defaults() {
    let AgentFile { profile, command } = good(SMALL);
    assert_eq!((profile.id.as_str(), profile.name.as_str(), profile.kind), ("count", "count", "command"));
    assert_eq!(profile.skills.len(), 1);
    assert_eq!((profile.skills[0].id.as_str(), profile.skills[0].tags.len()), ("count", 1));
    assert_eq!((profile.input_modes, profile.output_modes), (vec!["text/plain".into()], vec!["text/plain".into()]));
    assert_eq!((profile.reply, profile.on_crash), (ReplyMode::Task, OnCrash::Retry));
    assert_eq!((profile.timeout, profile.tenants), (None, None));
    assert_eq!(command.cwd, Path::new("/etc/sb/agents"));
    assert_eq!(command.output, OutputMode::Text);
    assert_eq!((command.grace, command.max_output), (Duration::from_secs(2), 64 << 20));
}

#[test]
fn every_key_arrives() {
    let AgentFile { profile, command } = good(
        r#"
        name = "Word counter"
        description = "Counts words"
        version = "2.1"
        input_modes = ["text/*"]
        output_modes = ["application/json"]
        kind = "command"
        reply = "auto"
        tenants = ["default", "acme"]
        [[skills]]
        id = "count"
        name = "Count"
        description = "Counts"
        tags = ["text"]
        examples = ["count this"]
        [[extensions]]
        uri = "https://example.com/e"
        description = "E"
        required = true
        [command]
        argv = ["python3", "count.py"]
        cwd = "work"
        output = "events"
        timeout = "60s"
        grace = "500ms"
        concurrency = 3
        max_attempts = 5
        max_output = "1MiB"
        on_crash = "ask"
        env = { LANG = "C" }
        pass_env = ["API_KEY"]
        "#,
    );
    assert_eq!((profile.name.as_str(), profile.description.as_str()), ("Word counter", "Counts words"));
    assert_eq!(profile.version, "2.1");
    assert_eq!((&profile.input_modes[0][..], &profile.output_modes[0][..]), ("text/*", "application/json"));
    assert_eq!((profile.reply, profile.on_crash), (ReplyMode::Auto, OnCrash::Ask));
    assert_eq!(profile.tenants.unwrap().into_iter().collect::<Vec<_>>(), ["acme", "default"]);
    assert_eq!((profile.skills[0].name.as_str(), profile.skills[0].examples.len()), ("Count", 1));
    assert!(profile.extensions[0].required && profile.extensions[0].uri.ends_with("/e"));
    assert_eq!(profile.timeout, Some(Duration::from_secs(60)));
    assert_eq!((profile.concurrency, profile.max_attempts), (3, 5));
    assert_eq!(command.argv, ["python3", "count.py"]);
    assert_eq!(command.cwd, Path::new("/etc/sb/agents/work"));
    assert_eq!(command.output, OutputMode::Events);
    assert_eq!((command.grace, command.max_output), (Duration::from_millis(500), 1 << 20));
    assert_eq!((command.env["LANG"].as_str(), command.pass_env[0].as_str()), ("C", "API_KEY"));
}

#[test]
fn a_wrong_key_is_named_with_the_right_one() {
    for (text, said) in [
        (
            "kind = \"command\"\ncomand = {}\n[command]\nargv=[\"x\"]",
            "line 2: unknown key `comand`; did you mean `command`?",
        ),
        ("kind = \"command\"\n[command]\nagrv = [\"x\"]", "line 3: unknown key `agrv`; did you mean `argv`?"),
        (
            "kind = \"command\"\n[command]\nargv = [\"x\"]\ncolour = 1",
            "line 4: unknown key `colour`; keys are: argv, cwd",
        ),
        (
            "kind = \"command\"\n[[skills]]\nid=\"a\"\ntag=[]\n[command]\nargv=[\"x\"]",
            "line 4: unknown key `tag`; did you mean `tags`?",
        ),
    ] {
        let problem = problem(text);
        assert!(problem.starts_with(said), "{problem}\n{said}");
    }
}

#[test]
fn what_is_wrong_is_said() {
    for (text, said) in [
        ("", "`kind` is missing; kinds are: \"command\""),
        ("kind = \"llm\"\nrole = \"x\"", "there is no kind \"llm\"; kinds are: \"command\""),
        ("kind = \"command\"", "missing key `command`"),
        ("kind = \"command\"\n[command]", "missing key `argv`"),
        ("kind = \"command\"\n[command]\nargv = []", "`command.argv` needs a program"),
        ("kind = \"command\"\n[command]\nargv = \"cat\"", "line 3: invalid type"),
        ("kind = \"command\"\n[command\n", "line 2: "),
        ("kind = \"command\"\nname = \" \"\n[command]\nargv=[\"x\"]", "`name` is empty"),
        ("kind = \"command\"\nreply = \"tsk\"\n[command]\nargv=[\"x\"]", "did you mean `task`?"),
        ("kind = \"command\"\ninput_modes = [\"text\"]\n[command]\nargv=[\"x\"]", "`text` is not a media type"),
        ("kind = \"command\"\n[command]\nargv=[\"x\"]\ntimeout = \"60\"", "line 4: `60` is not a duration"),
        ("kind = \"command\"\n[command]\nargv=[\"x\"]\ntimeout = 60", "line 4: invalid type"),
        ("kind = \"command\"\n[command]\nargv=[\"x\"]\nconcurrency = 0", "`command.concurrency` must be at least 1"),
        ("kind = \"command\"\n[command]\nargv=[\"x\"]\nmax_attempts = 0", "`command.max_attempts` must be at least 1"),
        ("kind = \"command\"\n[command]\nargv=[\"x\"]\nmax_output = \"64MB\"", "is not a size"),
        ("kind = \"command\"\n[command]\nargv=[\"x\"]\nmax_output = 0", "`command.max_output` must be at least 1"),
        ("kind = \"command\"\n[command]\nargv=[\"x\"]\non_crash = \"resume\"", "expected one of"),
        ("kind = \"command\"\n[command]\nargv=[\"x\"]\npass_env = [\"A=B\"]", "`A=B` is not a name"),
    ] {
        let problem = problem(text);
        assert!(problem.contains(said), "{text}\n{problem}");
    }
}

#[test]
fn the_file_name_is_the_id() {
    assert!(matches!(parse(Path::new("tasks.toml"), SMALL), Err(Error::Invalid { .. })));
    assert!(matches!(parse(Path::new("a b.toml"), SMALL), Err(Error::Invalid { .. })));
    let error = load(Path::new("/nowhere/x.toml")).unwrap_err();
    assert!(error.to_string().starts_with("cannot read /nowhere/x.toml: "), "{error}");
}

#[test]
fn check_finds_what_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.toml");
    let write = |text: &str| fs::write(&path, text).unwrap();
    write(SMALL);
    assert_eq!(check(&path).unwrap().warnings, Vec::<String>::new());
    write("kind = \"command\"\n[command]\nargv = [\"no-such-program-here\"]\n");
    assert_eq!(check(&path).unwrap().warnings, ["the program `no-such-program-here` is not in PATH"]);
    write("kind = \"command\"\n[command]\nargv = [\"./run\"]\ncwd = \"gone\"\n");
    let warnings = check(&path).unwrap().warnings;
    assert!(warnings[0].contains("is not a directory") && warnings[1].contains("./run"), "{warnings:?}");
}
