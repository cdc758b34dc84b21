//! Verbs as transcripts: each page beside this file is a session with one shell, and every command of it has to end as it
//! is shown, with its output behind it. CONTRIBUTING.md says how a transcript is written.
//!
//! `SB_UPDATE=1` writes what is printed into the transcripts.

use std::{fs, path::PathBuf};

use serde_json::Value;
use testkit::temp_store::TempStore;

use crate::pages::{
    output,
    page::{self, Action, Step},
    place::Place,
    repository,
    shell::Shell,
};

/// A test for each transcript, and the list of them.
macro_rules! transcripts {
    ($($name:ident)*) => {
        const TRANSCRIPTS: &[&str] = &[$(stringify!($name)),*];

        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*
    };
}

transcripts! {
    agents
    chatting
    checking_on_sqlite
    profiles
    programs
    pushing
    queueing
    registry
    retaining
    sending
    serving
    signing
    tasks
    tenants
    thinking
    tokens
}

/// What `sb … | pick PATH…` prints of each object.
const PICK: &str = " | pick ";

fn directory() -> PathBuf {
    repository().join("crates/cli/tests/verbs")
}

#[test]
fn every_transcript_has_a_test() {
    let names = fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter_map(|name| Some(name.strip_suffix(".md")?.to_owned())).collect();
    names.sort();
    assert_eq!(names, TRANSCRIPTS, "add it to the list in crates/cli/tests/verbs/transcripts.rs");
}

/// Runs a transcript from its beginning to its end.
fn check(name: &str) {
    let file = directory().join(format!("{name}.md"));
    let text = fs::read_to_string(&file).unwrap();
    let steps = page::read(&text).unwrap_or_else(|wrong| panic!("{}:{wrong}", file.display()));
    every_heading_has_commands(&text, &steps).unwrap_or_else(|wrong| panic!("{}:{wrong}", file.display()));
    let place = Place::new(&repository());
    let data = place.path("home/.local/share/switchboard");
    let journal = if name.ends_with("_on_sqlite") { TempStore::file(&data) } else { TempStore::new(&data) };
    let variables: Vec<_> = journal.url().map(|url| ("SB_STORE", url)).into_iter().collect();
    let mut session = Session { shell: Shell::open_with(&place, &variables), place, names: Vec::new() };
    session.shell.run("set -o pipefail", 0).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let count = lines.len();
    let mut sections = lines.clone().into_iter().zip(1..).filter(|(line, _)| line.starts_with("## ")).peekable();
    for step in &steps {
        if sections.next_if(|(_, line)| *line < step.line).is_some() {
            session.names.clear();
        }
        let wrong = match session.carry_out(step) {
            Ok(None) => continue,
            Ok(Some(found)) if std::env::var_os("SB_UPDATE").is_some() => {
                let begin = step.line - 1 + lines.len() - count;
                lines.splice(begin..begin + found.length, found.lines);
                fs::write(&file, lines.join("\n") + "\n").unwrap();
                continue;
            }
            Ok(Some(found)) => found.wrong,
            Err(wrong) => wrong,
        };
        panic!("{}:{}: {wrong}{}", file.display(), step.line, session.shell.end_of_logs());
    }
    session.shell.close().unwrap_or_else(|wrong| panic!("{name}.md: {wrong}"));
}

/// A heading names what the commands below it prove, so that there have to be some.
fn every_heading_has_commands(text: &str, steps: &[Step]) -> Result<(), String> {
    let is_command = |step: &&Step| matches!(step.action, Action::Command { .. });
    let mut commands = steps.iter().filter(is_command).map(|step| step.line).peekable();
    let mut headings = text.lines().zip(1..).filter(|(line, _)| line.starts_with("## ")).peekable();
    while let Some((heading, begin)) = headings.next() {
        let end = headings.peek().map_or(usize::MAX, |(_, line)| *line);
        while commands.next_if(|line| *line < begin).is_some() {}
        if commands.peek().is_none_or(|line| *line > end) {
            return Err(format!("{begin}: no command stands below `{heading}`"));
        }
    }
    Ok(())
}

struct Session {
    shell: Shell,
    place: Place,
    /// What differs from run to run, with its name below this heading.
    names: Vec<(String, String)>,
}

/// What a command did instead of what is shown: in words, and as the lines that would show it in place of so many.
struct Difference {
    wrong: String,
    length: usize,
    lines: Vec<String>,
}

impl Session {
    fn carry_out(&mut self, step: &Step) -> Result<Option<Difference>, String> {
        match &step.action {
            Action::Skip { .. } => {}
            Action::File { path, content } => self.place.write(path, content),
            Action::Setup { command } => {
                self.shell.run(&self.actual(command), 0).map_err(|wrong| format!("`{command}` {wrong}"))?;
            }
            Action::Command { command, .. } if self.place.lacks(command).is_some() => {}
            Action::Command { command, exit, output } => {
                let run = self.actual(command);
                match output {
                    Some(shown) if *exit != 0 || !Shell::goes_on(&run) => return self.compare(command, *exit, shown),
                    _ => self.shell.run(&run, *exit).map_err(|wrong| format!("`{command}` {wrong}"))?,
                };
            }
        }
        Ok(None)
    }

    /// Runs a command and compares its exit code, what it prints, and behind `! ` what it prints on standard error.
    fn compare(&mut self, command: &str, exit: i32, shown: &str) -> Result<Option<Difference>, String> {
        let (run, paths) = match command.split_once(PICK) {
            Some((run, paths)) => (run, Some(paths.split(" # ").next().unwrap_or_default())),
            None => (command, None),
        };
        let ended = self.shell.end_apart(&self.actual(run));
        let (code, mut printed, errors) = ended.map_err(|wrong| format!("`{command}` {wrong}"))?;
        if let Some(paths) = paths {
            printed = picked(&printed, paths).map_err(|wrong| format!("`{command}`: {wrong}\n{errors}"))?;
        }
        let errors: String = errors.lines().map(|line| format!("! {line}\n")).collect();
        let mut found = self.named(&printed);
        found.extend(self.named(&errors));
        let shown = output::masked(shown, &mut |_, text| text.to_owned());
        let same = output::compare_lines(&shown, &found);
        if code == exit.to_string() && same.is_ok() {
            return Ok(None);
        }
        let same = same.err().unwrap_or_default();
        let wrong = format!("`{command}` ends with exit code {code}, shown is {exit}, and {same}");
        // A line with `…` stays where it still fits. Lengths of time are not
        // written, unless the command has them.
        let open = |line: &String| match shown.iter().find(|it| *it != "…" && output::line_fits(it, line)) {
            Some(pattern) => pattern.clone(),
            None => output::masked(line, &mut |kind, text| {
                let number = text.trim_end_matches(|character: char| !character.is_ascii_digit());
                let is_open = ["LENGTH", "SIZE"].contains(&kind) && !command.contains(number);
                if is_open { "…".to_owned() } else { text.to_owned() }
            })
            .concat(),
        };
        let session = "$ ".to_owned() + &with_exit(command, &code);
        let lines = session.lines().map(str::to_owned).chain(found.iter().map(open)).collect();
        Ok(Some(Difference { wrong, length: command.lines().count() + shown.len(), lines }))
    }

    /// A command with what its names stand for here.
    fn actual(&self, command: &str) -> String {
        let mut made = String::new();
        let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
        let mut rest = command;
        while let Some(begin) = rest.find(is_part) {
            let end = rest[begin..].find(|character| !is_part(character)).map_or(rest.len(), |length| begin + length);
            let word = &rest[begin..end];
            let named = self.names.iter().find(|(name, _)| name == word);
            made = made + &rest[..begin] + named.map_or(word, |(_, actual)| actual);
            rest = &rest[end..];
        }
        self.place.command(&(made + rest))
    }

    /// The lines of what was printed, in the words of the transcript.
    fn named(&mut self, printed: &str) -> Vec<String> {
        let names = &mut self.names;
        output::masked(&self.place.translate_back(printed), &mut |kind, text| match kind {
            "LENGTH" | "SIZE" => text.to_owned(),
            "TIME" => kind.to_owned(),
            _ => {
                let begin = text.trim_end_matches('…');
                if let Some((name, _)) = names.iter().find(|(_, actual)| actual.starts_with(begin)) {
                    return name.clone() + &text[begin.len()..];
                }
                let number = names.iter().filter(|(name, _)| name.starts_with(kind)).count() + 1;
                names.push((format!("{kind}{number}"), text.to_owned()));
                format!("{kind}{number}")
            }
        })
    }
}

/// A command with the comment that says how it ends.
fn with_exit(command: &str, code: &str) -> String {
    let (command, why) = match command.rsplit_once(" # ") {
        Some((command, comment)) => {
            let shown =
                comment.strip_prefix("exit ").map(|rest| rest.trim_start_matches(|it: char| it.is_ascii_digit()));
            (command, shown.map_or(comment, |rest| rest.trim_start_matches(": ")))
        }
        None => (command, ""),
    };
    match (code, why) {
        ("0", "") => command.to_owned(),
        ("0", why) => format!("{command} # {why}"),
        (code, "") => format!("{command} # exit {code}"),
        (code, why) => format!("{command} # exit {code}: {why}"),
    }
}

/// Of each object in JSON, a line with what stands at these paths. In a path `*` is every item of a list, `count` their number.
fn picked(printed: &str, paths: &str) -> Result<String, String> {
    fn find(value: &Value, path: &[&str]) -> Value {
        match (path.split_first(), value) {
            (None, _) => value.clone(),
            (Some((&"count", _)), Value::Array(list)) => list.len().into(),
            (Some((&"*", rest)), Value::Array(list)) => list.iter().map(|one| find(one, rest)).collect(),
            (Some((name, rest)), Value::Array(list)) => {
                name.parse().ok().and_then(|at: usize| list.get(at)).map_or(Value::Null, |one| find(one, rest))
            }
            (Some((name, rest)), _) => value.get(name).map_or(Value::Null, |one| find(one, rest)),
        }
    }
    let mut lines = String::new();
    for line in printed.lines() {
        let value: Value = serde_json::from_str(line).map_err(|error| format!("{error} in {line}"))?;
        let found = paths.split_whitespace().map(|path| match find(&value, &path.split('/').collect::<Vec<_>>()) {
            Value::Null => "-".to_owned(),
            Value::String(text) => text,
            other => other.to_string(),
        });
        lines += &(found.collect::<Vec<_>>().join("  ") + "\n");
    }
    Ok(lines)
}
