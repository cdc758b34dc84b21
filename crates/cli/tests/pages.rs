//! The pages are true: every block of commands in README.md and docs/ is run with the built binary, in the order of its
//! page, and where a page shows output it is compared. CONTRIBUTING.md says how a block is written.
//! So are the examples of `--help`, as far as that goes without a server.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod help;
pub(crate) mod output;
pub(crate) mod page;
pub(crate) mod place;
pub(crate) mod shell;

use std::{fs, path::PathBuf};

use page::{Action, Step};
use place::Place;
use shell::Shell;

/// A test for each page, so that a stale one is named, and the list of them.
macro_rules! pages {
    ($($test:ident: $page:literal,)*) => {
        const PAGES: &[&str] = &[$($page),*];

        $(#[test]
        fn $test() {
            check($page);
        })*
    };
}

pages! {
    readme: "README.md",
    agents: "docs/agents.md",
    benchmarks: "docs/benchmarks.md",
    cli: "docs/cli.md",
    clients: "docs/clients.md",
    compatibility: "docs/compatibility.md",
    config: "docs/config.md",
    deploy: "docs/deploy.md",
    faults: "docs/faults.md",
    from_python: "docs/from-python.md",
    from_typescript: "docs/from-typescript.md",
    grpc: "docs/grpc.md",
    limits: "docs/limits.md",
    logs: "docs/logs.md",
    models: "docs/models.md",
    push: "docs/push.md",
    remotes: "docs/remotes.md",
    retention: "docs/retention.md",
    security: "docs/security.md",
    signing: "docs/signing.md",
    workers: "docs/workers.md",
}

/// The directory with README.md.
pub(crate) fn repository() -> PathBuf {
    fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).unwrap()
}

#[test]
fn every_page_has_a_test() {
    let mut names = vec!["README.md".to_owned()];
    for entry in fs::read_dir(repository().join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".md") {
            names.push(format!("docs/{name}"));
        }
    }
    names.sort();
    assert_eq!(names, PAGES, "add the page to the list in crates/cli/tests/pages.rs");
}

/// Runs a page from its beginning to its end.
fn check(name: &str) {
    let text = fs::read_to_string(repository().join(name)).unwrap();
    let steps = page::read(&text).unwrap_or_else(|wrong| panic!("{name}:{wrong}"));
    let place = Place::new(&repository());
    let mut shell = Shell::open(&place);
    let (mut run, mut skipped) = (0, 0);
    for step in &steps {
        match carry_out(step, &place, &mut shell) {
            Ok(Done::Command) => run += 1,
            Ok(Done::Nothing) => {}
            Ok(Done::Skipped(reason)) => {
                skipped += 1;
                eprintln!("{name}:{}: skipped: {reason}", step.line);
            }
            Err(wrong) => panic!("{name}:{}: {wrong}", step.line),
        }
    }
    shell.close().unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
    eprintln!("{name}: {run} commands run, {skipped} skipped");
}

enum Done {
    Command,
    /// Something that the page does not show, or a file.
    Nothing,
    Skipped(String),
}

fn carry_out(step: &Step, place: &Place, shell: &mut Shell) -> Result<Done, String> {
    match &step.action {
        Action::Skip { reason } => Ok(Done::Skipped(reason.clone())),
        Action::File { path, content } => {
            place.write(path, content);
            Ok(Done::Nothing)
        }
        Action::Setup { command } => {
            if place.lacks(command).is_none() {
                shell
                    .run(&place.command(command), 0)
                    .map_err(|wrong| format!("`{command}`, which is hidden: {wrong}"))?;
            }
            Ok(Done::Nothing)
        }
        Action::Command { command, exit, output } => {
            if let Some(reason) = place.lacks(command) {
                return Ok(Done::Skipped(reason.to_owned()));
            }
            let printed = shell.run(&place.command(command), *exit).map_err(|wrong| format!("`{command}` {wrong}"))?;
            if let Some(output) = output {
                let (shown, printed) = (place.translate(output), place.with_tilde(&printed));
                output::compare(&shown, &printed).map_err(|wrong| format!("`{command}` {wrong}"))?;
            }
            Ok(Done::Command)
        }
    }
}
