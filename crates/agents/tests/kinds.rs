//! What an agent file may hold, what is said about one that may not, older forms, and a kind that nobody knew before.

use crate::rig;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use a2a::TaskState;
use agents::{
    AgentFile, KINDS, Reader, command,
    file::{self, Table},
    kind::{Built, Context, Kind},
};
use async_trait::async_trait;
use exchange::{Agent, OnCrash, Outcome, Output, Profile, ReplyMode, Turn};
use rig::{Rig, status, text};
use serde::Deserialize;

/// A kind of a test: it says a word, and warns of long ones.
const TOY: Kind = Kind { name: "toy", moved: &[], keys: file::keys_of::<Toy>, prepare: |_| {}, build: toy };
const WITH_TOY: &[Kind] = &[command::KIND, TOY];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Toy {
    #[serde(default)]
    word: String,
    path: Option<PathBuf>,
}

fn toy(table: Table<'_>, context: &Context) -> Result<Built, String> {
    let mut toy: Toy = table.read()?;
    if toy.word == "never" {
        return Err("`toy.word` is never said".to_owned());
    }
    if let Some(path) = &toy.path {
        toy.word = context.resolve(path).display().to_string();
    }
    let warnings = if toy.word.len() > 30 { vec!["it talks too much".to_owned()] } else { vec![] };
    Ok(Built { agent: Arc::new(toy), delivery: exchange::Delivery::Run, described: None, warnings })
}

#[async_trait]
impl Agent for Toy {
    async fn run(&self, _turn: Turn, out: Output) -> Outcome {
        out.text(&self.word, true).await;
        Outcome::Completed(Vec::new())
    }
}

fn parse(text: &str) -> Result<AgentFile, file::Error> {
    Reader::new(WITH_TOY, "").parse(Path::new("/etc/sb/agents/count.toml"), text)
}

fn good(text: &str) -> AgentFile {
    parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn profile(text: &str) -> Profile {
    good(text).entry.profile
}

fn problem(text: &str) -> String {
    match parse(text) {
        Err(file::Error::Invalid { problem, .. }) => problem,
        _ => panic!("there is nothing wrong with\n{text}"),
    }
}

#[test]
fn a_small_file_gets_the_defaults() {
    let profile = profile("kind = \"toy\"");
    assert_eq!((profile.id.as_str(), profile.name.as_str(), profile.kind), ("count", "count", "toy"));
    assert_eq!((profile.description.as_str(), profile.version.as_str()), ("count", "1.0.0"));
    assert_eq!(profile.skills.len(), 1);
    assert_eq!((profile.skills[0].id.as_str(), profile.skills[0].tags.len()), ("count", 1));
    assert_eq!((profile.input_modes, profile.output_modes), (vec!["text/plain".into()], vec!["text/plain".into()]));
    assert_eq!((profile.reply, profile.on_crash), (ReplyMode::Task, OnCrash::Retry));
    assert_eq!((profile.timeout, profile.reveal_after), (None, Duration::from_secs(1)));
    assert_eq!((profile.concurrency, profile.max_attempts), (8, 3));
    assert!(profile.tenants.is_none() && profile.extensions.is_empty());
}

#[test]
fn every_common_key_arrives() {
    let profile = profile(
        r#"
        name = "Word counter"
        description = "Counts words"
        version = "2.1"
        input_modes = ["text/*"]
        output_modes = ["application/json"]
        kind = "toy"
        reply = "auto"
        reveal_after = "3s"
        timeout = "60s"
        concurrency = 3
        max_attempts = 5
        on_crash = "ask"
        tenants = ["default", "acme"]
        directory = "/srv"
        [[skills]]
        id = "count"
        name = "Count"
        description = "Counts"
        tags = ["text"]
        examples = ["count this"]
        [[skills]]
        id = "guess"
        [[extensions]]
        uri = "https://example.com/e"
        description = "E"
        required = true
        [toy]
        word = "hello"
        "#,
    );
    assert_eq!((profile.name.as_str(), profile.description.as_str()), ("Word counter", "Counts words"));
    assert_eq!(profile.version, "2.1");
    assert_eq!((&profile.input_modes[0][..], &profile.output_modes[0][..]), ("text/*", "application/json"));
    assert_eq!((profile.reply, profile.reveal_after), (ReplyMode::Auto, Duration::from_secs(3)));
    assert_eq!((profile.timeout, profile.on_crash), (Some(Duration::from_secs(60)), OnCrash::Ask));
    assert_eq!((profile.concurrency, profile.max_attempts), (3, 5));
    assert_eq!(profile.tenants.unwrap().into_iter().collect::<Vec<_>>(), ["acme", "default"]);
    let [count, guess] = &profile.skills[..] else { panic!("{:?}", profile.skills) };
    assert_eq!((count.name.as_str(), count.description.as_str(), count.examples.len()), ("Count", "Counts", 1));
    assert_eq!(
        (guess.name.as_str(), guess.description.as_str(), &guess.tags[0][..]),
        ("guess", "Counts words", "guess")
    );
    assert!(profile.extensions[0].required && profile.extensions[0].uri.ends_with("/e"));
    for (word, policy) in [("retry", OnCrash::Retry), ("fail", OnCrash::Fail), ("ask", OnCrash::Ask)] {
        assert_eq!(self::profile(&format!("kind = \"toy\"\non_crash = \"{word}\"")).on_crash, policy);
    }
}

#[test]
fn what_is_wrong_is_said() {
    let top = "kind, toy, name, description, version, skills, input_modes, output_modes, extensions, tenants, reply, \
               reply_text, reveal_after, timeout, concurrency, per_tenant, max_attempts, on_crash, directory";
    let own = "argv, cwd, mode, processes, idle, watch, input, output, grace, max_output, env, pass_env, isolation, network, readable, uid, gid, limits, stderr";
    for (text, said) in [
        ("", "missing key `kind`; kinds are: command, toy"),
        ("kind = 1", "line 1: `kind` is not a text"),
        ("kind = \"llm\"\nrole = \"x\"", "unknown kind `llm`; kinds are: command, toy"),
        ("kind = \"comand\"", "unknown kind `comand`; did you mean `command`? kinds are: command, toy"),
        ("kind = \"toy\"\ntoy = 1", "line 2: `toy` is not a table: write `[toy]`"),
        ("kind = \"toy\"\n[[toy]]", "line 2: `toy` is not a table: write `[toy]`"),
        ("kind = \"toy\"\nnmae = \"x\"", &format!("line 2: unknown key `nmae`; did you mean `name`? keys are: {top}")),
        (
            "kind = \"toy\"\n\n[command]\n",
            "line 3: the table `[command]` is for files with `kind = \"command\"`, and this one has `kind = \"toy\"`",
        ),
        (
            "kind = \"toy\"\ntoi.word = \"x\"",
            &format!("line 2: unknown key `toi`; did you mean `toy`? keys are: {top}"),
        ),
        ("kind = \"toy\"\n[toy]\nwords = 1", "line 3: unknown key `words`; did you mean `word`? keys are: word, path"),
        (
            "kind = \"toy\"\n[toy]\ntimeout = \"1s\"",
            "line 3: `timeout` stands at the top of the file, above all tables",
        ),
        ("kind = \"toy\"\n[toy]\nword = 1", "line 3: `toy.word` must be a string, not the number 1"),
        ("kind = \"toy\"\n[toy]\nword = \"never\"", "`toy.word` is never said"),
        ("kind = \"toy\"\nname = \" \"", "line 2: `name`: must not be empty"),
        ("kind = \"toy\"\ndescription = \"\"", "line 2: `description`: must not be empty"),
        ("kind = \"toy\"\nversion = 2", "line 2: `version` must be a string, not the number 2"),
        ("kind = \"toy\"\ninput_modes = []", "`input_modes`: must not be empty"),
        (
            "kind = \"toy\"\noutput_modes = [\"text\"]",
            "`output_modes`: `text` is not a media type such as \"text/plain\"",
        ),
        ("kind = \"toy\"\n[[skills]]\nname = \"x\"", "line 2: missing key `skills[0].id`"),
        ("kind = \"toy\"\n[[skills]]\nid = \"\"", "line 3: `skills[0].id`: must not be empty"),
        (
            "kind = \"toy\"\n[[skills]]\nid = \"a\"\ntag = []",
            "line 4: unknown key `tag`; did you mean `tags`? keys are: id, name, description, tags, examples",
        ),
        ("kind = \"toy\"\nskills = [{ id = \"a\" }, { id = \"a\" }]", "two skills have the id `a`"),
        ("kind = \"toy\"\n[[extensions]]\nuri = \"\"", "line 3: `extensions[0].uri`: must not be empty"),
        (
            "kind = \"toy\"\ntenants = \"acme\"",
            "line 2: `tenants` must be a list of strings, e.g. [\"default\"], not the string \"acme\"",
        ),
        (
            "kind = \"toy\"\nreply = \"tsk\"",
            "line 2: `reply`: unknown value `tsk`; did you mean `task`? values are: task, auto",
        ),
        (
            "kind = \"toy\"\non_crash = \"cry\"",
            "line 2: `on_crash`: unknown value `cry`; values are: retry, fail, ask, resume",
        ),
        (
            "kind = \"toy\"\ntimeout = \"60\"",
            "line 2: `timeout`: `60` is not a duration: write a number and a unit: 500ms, 120s, 2m, 1h or 30d",
        ),
        (
            "kind = \"toy\"\ntimeout = 60",
            "line 2: `timeout` must be a duration in quotes, e.g. \"60s\", not the number 60",
        ),
        ("kind = \"toy\"\nreveal_after = \"0s\"", "line 2: `reveal_after`: `0s` is out of range: 1ms to 3650d"),
        (
            "kind = \"toy\"\nreveal_after = \"9999999h\"",
            "line 2: `reveal_after`: `9999999h` is out of range: 1ms to 3650d",
        ),
        (
            "kind = \"toy\"\nconcurrency = 0",
            "line 2: `concurrency`: invalid value: integer `0`, expected a nonzero usize",
        ),
        (
            "kind = \"toy\"\nmax_attempts = -1",
            "line 2: `max_attempts`: invalid value: integer `-1`, expected a nonzero u32",
        ),
        ("kind = \"toy\"\ndirectory = \"here\"", "`directory` must be an absolute path"),
        ("kind = \"toy\"\nkind = \"toy\"", "line 2: duplicate key"),
        ("kind = \"command\"", "missing key `command.argv`"),
        ("kind = \"command\"\n[command]\ncwd = \"x\"", "line 2: missing key `command.argv`"),
        ("kind = \"command\"\n[command]\nargv = []", "`command.argv` needs a program"),
        ("kind = \"command\"\n[command]\nargv = [\"\"]", "`command.argv` needs a program"),
        ("kind = \"command\"\n[command]\nargv = [\"a\\u0000\"]", "`command.argv` holds a NUL character"),
        (
            "kind = \"command\"\n[command]\nargv = \"cat\"",
            "line 3: `command.argv` must be a list of strings, e.g. [\"python3\", \"main.py\"], not the string \"cat\"",
        ),
        (
            "kind = \"command\"\n[command]\nagrv = [\"x\"]",
            &format!("line 3: unknown key `agrv`; did you mean `argv`? keys are: {own}"),
        ),
        (
            "kind = \"command\"\n[command]\nargv = [\"x\"]\ncolour = 1",
            &format!("line 4: unknown key `colour`; keys are: {own}"),
        ),
        (
            "kind = \"command\"\n[command]\nargv = [\"x\"]\noutput = \"event\"",
            "line 4: `command.output`: unknown value `event`; did you mean `events`? values are: text, events",
        ),
        (
            "kind = \"command\"\n[command]\nargv = [\"x\"]\nmax_output = \"64MB\"",
            "line 4: `command.max_output`: `64MB` is not a size: write a number of bytes, or one with a unit, such as 10MiB",
        ),
        (
            "kind = \"command\"\n[command]\nargv = [\"x\"]\ngrace = \"0s\"",
            "line 4: `command.grace`: `0s` is out of range: 1ms to 3650d",
        ),
        (
            "kind = \"command\"\n[command]\nargv = [\"x\"]\npass_env = [\"A=B\"]",
            "`A=B` is not a name of an environment variable",
        ),
        (
            "kind = \"command\"\n[command]\nargv = [\"x\"]\nenv = { A = \"\\u0000\" }",
            "`command.env.A` holds a NUL character",
        ),
        (
            "kind = \"command\"\ntimeout = \"1s\"\n[command]\nargv = [\"x\"]\ntimeout = \"2s\"",
            "line 5: `command.timeout` is there already as `timeout`; remove one of them",
        ),
        (
            "kind = \"command\"\n[command]\nargv = [\"x\"]\ntimeout = \"2\"",
            "line 4: `timeout`: `2` is not a duration: write a number and a unit: 500ms, 120s, 2m, 1h or 30d",
        ),
    ] {
        assert_eq!(problem(text), said, "{text}");
    }
    assert!(problem("kind = \"command\"\n[command\n").starts_with("line 2: "));
}

#[test]
fn what_the_operator_should_know_is_said() {
    let long = "x".repeat(31);
    for (text, said) in [
        ("kind = \"toy\"", vec![]),
        (&format!("kind = \"toy\"\ntoy.word = \"{long}\""), vec!["it talks too much"]),
        ("kind = \"toy\"\nreveal_after = \"2s\"", vec!["`reveal_after` does nothing without `reply = \"auto\"`"]),
        ("kind = \"toy\"\nreveal_after = \"2s\"\nreply = \"auto\"", vec![]),
        ("kind = \"command\"\n[command]\nargv = [\"cat\"]\ncwd = \"/\"", vec![]),
        (
            "kind = \"command\"\n[command]\nargv = [\"no-such-program-here\"]\ncwd = \"/\"",
            vec!["tasks will fail: the program `no-such-program-here` is not in PATH"],
        ),
        (
            "kind = \"command\"\n[command]\nargv = [\"./run\"]\ncwd = \"gone\"",
            vec![
                "tasks will fail: `/etc/sb/agents/gone` is not a directory",
                "tasks will fail: the program `./run` is not there",
            ],
        ),
        (
            "kind = \"command\"\n[command]\nargv = [\"cat\"]\ncwd = \"/\"\non_crash = 'ask' # on purpose\ntimeout = \"1s\"",
            vec![
                "`[command]` has keys that now stand at the top of the file, above all tables: `timeout = \"1s\"`, \
                 `on_crash = 'ask'`",
            ],
        ),
        (
            "kind = \"command\"\ncommand = { argv = [\"cat\"], cwd = \"/\", concurrency = 0x10, max_attempts = 2 }",
            vec![
                "`[command]` has keys that now stand at the top of the file, above all tables: `concurrency = 0x10`, \
                 `max_attempts = 2`",
            ],
        ),
    ] {
        assert_eq!(good(text).warnings, said, "{text}");
    }
}

#[test]
fn the_file_name_is_the_id() {
    let reader = Reader::default();
    for (path, said) in [
        ("tasks.toml", "tasks.toml: the file's name gives the agent's id, and `tasks` is none: "),
        ("a b.toml", "a b.toml: the file's name gives the agent's id, and `a b` is none: "),
    ] {
        let error = reader.parse(Path::new(path), "kind = \"toy\"").err().unwrap().to_string();
        assert!(error.starts_with(said), "{error}");
    }
    let error = reader.load(Path::new("/nowhere/x.toml")).err().unwrap().to_string();
    assert!(error.starts_with("cannot read /nowhere/x.toml: "), "{error}");
    let state = reader.state(Path::new("/nowhere/x.toml"));
    assert_eq!((state.id.as_str(), state.error.as_deref()), ("x", Some(error.as_str())));
}

#[test]
fn an_older_file_reads_as_its_new_form() {
    let keys = "timeout = \"2m\"\nconcurrency = 3\nmax_attempts = 7\non_crash = \"fail\"\n";
    let command = "argv = [\"cat\"]\ncwd = \"/\"\n";
    let new = good(&format!("kind = \"command\"\n{keys}[command]\n{command}"));
    let old = good(&format!("kind = \"command\"\n[command]\n{command}{keys}"));
    assert_eq!(format!("{:?}", old.entry.profile), format!("{:?}", new.entry.profile));
    assert_eq!((new.entry.profile.max_attempts, new.entry.profile.on_crash), (7, OnCrash::Fail));
    // The lines that the warning shows are the new form.
    let [warning] = &old.warnings[..] else { panic!("{:?}", old.warnings) };
    let lines: Vec<&str> = warning.split('`').filter(|line| line.contains(" = ")).collect();
    let shown = good(&format!("kind = \"command\"\n{}\n[command]\n{command}", lines.join("\n")));
    assert_eq!(format!("{:?}", shown.entry.profile), format!("{:?}", new.entry.profile));
    assert!(new.warnings.is_empty() && shown.warnings.is_empty());
}

#[tokio::test]
async fn an_older_file_behaves_as_its_new_form() {
    let rig = Rig::new().await;
    let argv = "argv = [\"sh\", \"-c\", \"echo begun; sleep 60\"]";
    rig.write("new.toml", &format!("kind = \"command\"\ntimeout = \"500ms\"\n[command]\n{argv}\n"));
    rig.write("old.toml", &format!("kind = \"command\"\n[command]\n{argv}\ntimeout = \"500ms\"\n"));
    rig.files.refresh();
    let warned: Vec<(String, usize)> =
        rig.files.snapshot().into_iter().map(|state| (state.id, state.warnings.len())).collect();
    assert_eq!(warned, [("new".to_owned(), 0), ("old".to_owned(), 1)]);
    let begun = Instant::now();
    let (new, old) = (rig.say("new", "x").await, rig.say("old", "x").await);
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!((status(&old), text(&old)), (status(&new), text(&new)));
    assert_eq!((new.status.state, text(&new)), (TaskState::Failed, "begun\n".to_owned()));
}

#[tokio::test]
async fn a_new_kind_is_one_entry_of_the_list() {
    let rig = Rig::of(WITH_TOY, exchange::Options::default()).await;
    rig.write("greeter.toml", "kind = \"toy\"\ntoy.word = \"hello\"\n");
    rig.write("place.toml", "kind = \"toy\"\ntoy.path = \"x\"\n");
    rig.write("other.toml", "kind = \"command\"\ncommand.argv = [\"echo\", \"-n\", \"hello\"]\n");
    rig.files.refresh();
    let kinds: Vec<_> = rig.files.snapshot().into_iter().map(|state| (state.id, state.kind.unwrap())).collect();
    assert_eq!(kinds, [("greeter".into(), "toy"), ("other".into(), "command"), ("place".into(), "toy")]);
    assert_eq!(text(&rig.say("greeter", "x").await), "hello");
    assert_eq!(text(&rig.say("other", "x").await), "hello");
    assert_eq!(text(&rig.say("place", "x").await), rig.dir.join("x").display().to_string());

    assert!(Reader::default().load(&rig.dir.join("greeter.toml")).is_err(), "it is not in the server's list");
    assert!(KINDS.iter().all(|kind| kind.name != "toy"));
}

#[test]
fn paths_are_meant_from_the_directory() {
    for (text, relative) in [
        ("kind = \"toy\"", false),
        ("kind = \"toy\"\ntoy.path = \"/x\"", false),
        ("kind = \"toy\"\ntoy.path = \"x\"", true),
        ("kind = \"toy\"\ndirectory = \"/srv\"\ntoy.path = \"x\"", false),
        ("kind = \"command\"\ncommand.argv = [\"cat\"]", true),
        ("kind = \"command\"\ndirectory = \"/srv\"\ncommand.argv = [\"cat\"]", false),
    ] {
        assert_eq!(good(text).relative, relative, "{text}");
    }
    let warnings =
        good("kind = \"command\"\ndirectory = \"/nowhere\"\n[command]\nargv = [\"cat\"]\ncwd = \"x\"").warnings;
    assert_eq!(warnings, ["tasks will fail: `/nowhere/x` is not a directory"]);
}
