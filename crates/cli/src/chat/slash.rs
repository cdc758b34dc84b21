//! What the person types: something to say, or a command of the conversation itself. A slash begins a command and is never
//! sent by mistake; two slashes say one.

use agents::units::nearest;

use crate::failure::Failure;

/// A line, read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    Say(&'a str),
    /// A command, and its words.
    Do(Command, Vec<String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Help,
    New,
    Agent,
    Task,
    Cancel,
    Attach,
    Save,
    Context,
    History,
    A2a,
    Quit,
}

struct Entry {
    command: Command,
    name: &'static str,
    /// As it is written in the help.
    usage: &'static str,
    what: &'static str,
    /// How many words it takes at most; those that are read by somebody else take any.
    words: usize,
}

const COMMANDS: [Entry; 12] = [
    entry(Command::Help, "/help", "/help", "shows this", 0),
    entry(Command::New, "/new", "/new", "begins another conversation", 0),
    entry(
        Command::Agent,
        "/agent",
        "/agent [NAME]",
        "says with whom this is, or goes on with another agent",
        usize::MAX,
    ),
    entry(
        Command::Agent,
        "/agent",
        "/agent run NAME TEXT",
        "sends one message to another agent, in this conversation's context",
        usize::MAX,
    ),
    entry(Command::Task, "/task", "/task", "shows the last task and its state", 0),
    entry(Command::Cancel, "/cancel", "/cancel", "cancels it", 0),
    entry(
        Command::Attach,
        "/attach",
        "/attach [FILE|-]",
        "puts a file on the next message, shows what is there, or takes it away",
        1,
    ),
    entry(Command::Save, "/save", "/save FILE [--replace]", "writes the conversation to a file of your own", 2),
    entry(Command::Context, "/context", "/context [ID]", "shows the conversation's id, or goes on with another one", 1),
    entry(Command::History, "/history", "/history", "shows what was said so far", 0),
    entry(Command::A2a, "/a2a", "/a2a VERB …", "is a verb of the queue, as in `sb a2a`", usize::MAX),
    entry(Command::Quit, "/quit", "/quit", "ends, and so does Ctrl-D", 0),
];

/// What people type who come from elsewhere.
const ALIASES: [(&str, &str); 4] = [("/exit", "/quit"), ("/bye", "/quit"), ("/q", "/quit"), ("/?", "/help")];

const fn entry(command: Command, name: &'static str, usage: &'static str, what: &'static str, words: usize) -> Entry {
    Entry { command, name, usage, what, words }
}

/// Reads a line. What begins with a slash and is no command is refused, not sent.
pub(super) fn read(line: &str) -> Result<Line<'_>, Failure> {
    if !line.starts_with('/') {
        return Ok(Line::Say(line));
    }
    if line.starts_with("//") {
        return Ok(Line::Say(&line[1..]));
    }
    let typed = line.split_whitespace().next().unwrap_or(line);
    let name = ALIASES.iter().find(|(alias, _)| *alias == typed).map_or(typed, |(_, name)| name);
    let Some(entry) = COMMANDS.iter().find(|entry| entry.name == name) else {
        return Err(unknown(typed));
    };
    let Some(mut words) = shlex::split(line) else {
        return Err(Failure::usage("a quote is not closed"));
    };
    words.remove(0);
    if words.len() > entry.words {
        return Err(Failure::usage(format!("`{typed}` does not take `{}`", words[entry.words]))
            .hint(format!("it is `{}`; a line that begins with `//` is sent", entry.usage)));
    }
    Ok(Line::Do(entry.command, words))
}

fn unknown(typed: &str) -> Failure {
    let names = names();
    let shown: String = typed.chars().take(40).collect();
    let failure = Failure::usage(format!("`{shown}` is no command, and was not sent"));
    let mut begun = names.iter().copied().filter(|name| name.starts_with(typed));
    let only = begun.next().filter(|_| begun.next().is_none());
    match only.or_else(|| nearest(typed, &names)) {
        Some(meant) => failure.hint(format!("did you mean `{meant}`? `//…` sends a line that begins with a slash")),
        None => failure.hint("/help shows the commands; `//…` sends a line that begins with a slash"),
    }
}

/// The commands.
pub(super) fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = COMMANDS.iter().map(|entry| entry.name).collect();
    names.dedup();
    names
}

/// Those that take a file.
pub(super) fn with_files() -> Vec<&'static str> {
    let takes_file = |entry: &&Entry| matches!(entry.command, Command::Attach | Command::Save);
    COMMANDS.iter().filter(takes_file).map(|entry| entry.name).collect()
}

/// What there is, for people.
pub(super) fn help() -> String {
    let width = COMMANDS.iter().map(|entry| entry.usage.chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    let lines = COMMANDS.iter().map(|entry| (entry.usage, entry.what)).chain([
        ("//…", "sends a line that begins with a slash"),
        ("\\ Enter", "goes on in the next line, and so does Alt-Enter; what is pasted stays one message"),
        ("Ctrl-C", "clears the line, or cancels the task that runs; once more leaves"),
        ("Ctrl-R", "looks for something that was typed before"),
    ]);
    for (usage, what) in lines {
        text.push_str(&format!("{usage:<width$}  {what}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> Option<&str> {
        match read(line) {
            Ok(Line::Say(text)) => Some(text),
            _ => None,
        }
    }

    fn done(line: &str) -> (Command, Vec<String>) {
        match read(line) {
            Ok(Line::Do(command, words)) => (command, words),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_slash_is_a_command_and_two_are_one() {
        assert_eq!(said("hello /help"), Some("hello /help"));
        assert_eq!(said("//help"), Some("/help"));
        assert_eq!(said("///"), Some("//"));
        assert_eq!(done("/help"), (Command::Help, vec![]));
        assert_eq!(done("/bye").0, Command::Quit);
        assert_eq!(done("/attach 'a b.txt'"), (Command::Attach, vec!["a b.txt".to_owned()]));
        assert_eq!(done("/agent run echo a b").1.len(), 4);
    }

    #[test]
    fn what_is_no_command_is_not_sent() {
        for (line, hint) in [
            ("/hepl", "did you mean `/help`?"),
            ("/hlep me", "did you mean `/help`?"),
            ("/hist", "did you mean `/history`?"),
            ("/a", "/help shows"),
            ("/usr/bin/env is broken", "/help shows"),
            ("/", "/help shows"),
            ("/quit now", "`/quit`"),
            ("/attach a b", "/attach [FILE|-]"),
        ] {
            let failure = read(line).unwrap_err();
            assert_eq!(failure.exit as u8, 2, "{line}");
            assert!(failure.hint.as_deref().unwrap_or_default().contains(hint), "{line}: {failure:?}");
        }
        assert!(read("/save 'x").is_err());
    }

    #[test]
    fn every_command_is_in_the_help() {
        let help = help();
        for name in names() {
            assert!(help.lines().any(|line| line.starts_with(name)), "{name} in {help}");
        }
    }
}
