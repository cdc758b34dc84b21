//! The examples of `--help` can be typed: none of them has a flag, a verb or a value that the command line does not know.
//! There is no server, so that each ends soon.

use std::process::Command;

use super::{place::Place, repository, shell::Shell};
use crate::harness::text;

/// What a command line that is not understood is answered with.
const NOT_UNDERSTOOD: &str = "For more information, try '--help'";

/// What does not end without a server either.
const ENDLESS: [&str; 2] = ["sb serve", "sb a2a work"];

/// Fewer would mean that they were not found.
const AT_LEAST: usize = 60;

#[test]
fn the_examples_of_help_can_be_typed() {
    let place = Place::new(&repository());
    let mut shell = Shell::open(&place);
    let mut examples = Vec::new();
    collect(&[], &mut examples);
    assert!(examples.len() >= AT_LEAST, "{examples:#?}");
    for example in &examples {
        assert!(example.contains("sb "), "`{example}` is the end of a line that was too long for the help");
        if ENDLESS.iter().any(|endless| example.contains(endless)) || place.lacks(example).is_some() {
            continue;
        }
        let (_, printed) =
            shell.end_of(&place.translate(example)).unwrap_or_else(|wrong| panic!("`{example}` {wrong}"));
        assert!(!printed.contains(NOT_UNDERSTOOD), "`{example}` is no command:\n{printed}");
    }
    eprintln!("{} examples:\n{}", examples.len(), examples.join("\n"));
}

/// The examples of a command and of those below it.
fn collect(command: &[&str], examples: &mut Vec<String>) {
    let output = Command::new(env!("CARGO_BIN_EXE_sb")).args(command).arg("--help").env_clear().output().unwrap();
    let help = text(&output.stdout);
    assert!(output.status.success(), "sb {command:?}: {}", text(&output.stderr));
    let mut commands = section(&help, "Commands:");
    commands.retain(|line| !line.starts_with(' ') && !line.starts_with("help"));
    for line in commands {
        let name = line.split(' ').next().unwrap_or_default();
        collect(&[command, &[name]].concat(), examples);
    }
    for heading in ["Examples:", "Example:"] {
        let mut goes_on = false;
        for line in section(&help, heading) {
            match examples.last_mut() {
                Some(last) if goes_on => *last = format!("{last}\n{line}"),
                _ => examples.push(line.to_owned()),
            }
            goes_on = line.ends_with('\\');
        }
    }
}

/// The lines below a heading, until one that is empty.
fn section<'a>(help: &'a str, heading: &str) -> Vec<&'a str> {
    let lines = help.lines().skip_while(|line| *line != heading).skip(1);
    lines.map_while(|line| line.strip_prefix("  ")).collect()
}
