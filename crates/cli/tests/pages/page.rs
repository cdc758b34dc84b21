//! What is to be done with a page: its blocks of commands, and the marks between them that readers do not see.

/// Why a command may be left out. There is no other reason.
pub(crate) const REASONS: &[&str] = &[
    "asks a model that costs money",
    "builds or checks the project itself",
    "is run by interop",
    "needs a container engine",
    "needs a program that is not installed",
    "needs a terminal",
    "needs another machine",
    "needs root",
    "needs systemd",
    "no program has written anything",
    "prints the figures of a benchmark",
];

/// Blocks that are read and not run. A block that is in no list is an error, so that none is overlooked.
const TEXTS: &[&str] = &[
    "haproxy",
    "http",
    "ini",
    "js",
    "json",
    "nginx",
    "python",
    "rust",
    "sql",
    "text",
    "toml",
    "ts",
    "typescript",
    "yaml",
];

const MARK: &str = "<!-- page: ";

/// One thing to do, and where the page says so.
#[derive(Debug, PartialEq)]
pub(crate) struct Step {
    /// From 1.
    pub(crate) line: usize,
    pub(crate) action: Action,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    /// A command of the page. Its output is compared if the page shows it.
    Command { command: String, exit: i32, output: Option<String> },
    /// A command that the page does not show, which has to work.
    Setup { command: String },
    /// A block that the page says to put into a file.
    File { path: String, content: String },
    /// A command that is left out, or a block.
    Skip { reason: String },
}

/// What a mark says about the block behind it.
enum Mark {
    File {
        path: String,
    },
    /// Without a beginning, the block is meant.
    Skip {
        begins: String,
        reason: String,
    },
}

/// A fence, what is inside, and where that begins.
struct Block<'a> {
    language: &'a str,
    /// What stands behind the language; such a block is interop's.
    name: &'a str,
    line: usize,
    lines: Vec<&'a str>,
}

/// Reads a page. An error begins with the number of its line.
pub(crate) fn read(text: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let mut marks: Vec<(usize, Mark)> = Vec::new();
    let mut lines = text.lines().zip(1..);
    while let Some((first, line)) = lines.next() {
        if let Some(rest) = first.strip_prefix(MARK) {
            let mut said = vec![rest];
            while !said.last().is_some_and(|last| last.ends_with("-->")) {
                let Some((more, _)) = lines.next() else { return Err(format!("{line}: this mark does not end")) };
                said.push(more);
            }
            let said = said.join("\n");
            let said = said.trim_end_matches("-->").trim_end();
            if let Some(commands) = said.strip_prefix("setup") {
                let setup = |(line, command)| Step { line, action: Action::Setup { command } };
                steps.extend(split(commands.split('\n'), line)?.into_iter().map(setup));
            } else {
                marks.push((line, mark(said).ok_or_else(|| format!("{line}: `{said}` is no mark"))?));
            }
        } else if first.contains("<!-- page") {
            return Err(format!("{line}: a mark is `{MARK}…` at the begin of a line"));
        } else if let Some(fence) = first.strip_prefix("```") {
            let (language, name) = fence.split_once(' ').unwrap_or((fence, ""));
            let mut block = Block { language, name, line: line + 1, lines: Vec::new() };
            loop {
                match lines.next() {
                    None => return Err(format!("{line}: this block does not end")),
                    Some(("```", _)) => break,
                    Some((inside, _)) => block.lines.push(inside),
                }
            }
            steps.extend(block_steps(&block, std::mem::take(&mut marks))?);
        } else if first.trim_start().starts_with("```") {
            return Err(format!("{line}: a block that is indented is not run; put it at the begin of the line"));
        }
    }
    match marks.first() {
        Some((line, _)) => Err(format!("{line}: there is no block behind this mark")),
        None => Ok(steps),
    }
}

fn mark(said: &str) -> Option<Mark> {
    if let Some(path) = said.strip_prefix("file ") {
        return Some(Mark::File { path: path.to_owned() });
    }
    let (begins, reason) = said.strip_prefix("skip")?.rsplit_once(": ")?;
    let begins = begins.strip_prefix(' ').unwrap_or(begins);
    Some(Mark::Skip { begins: begins.to_owned(), reason: reason.to_owned() })
}

fn block_steps(block: &Block<'_>, marks: Vec<(usize, Mark)>) -> Result<Vec<Step>, String> {
    let mut commands = match block.language {
        "sh" | "bash" => of_script(block)?,
        "console" => of_session(block)?,
        text if TEXTS.contains(&text) => Vec::new(),
        other => return Err(format!("{}: `{other}` is no language that a block may have", block.line - 1)),
    };
    let mut files = Vec::new();
    for (line, mark) in marks {
        match mark {
            Mark::File { path } => {
                let action = Action::File { path, content: block.lines.join("\n") + "\n" };
                files.push(Step { line, action });
                commands.clear();
            }
            Mark::Skip { begins, reason } => {
                let is_interop = reason == "is run by interop";
                if !REASONS.contains(&reason.as_str()) || is_interop && block.name.is_empty() {
                    return Err(format!("{line}: `{reason}` is no reason to leave this out; there are: {REASONS:?}"));
                }
                let mut is_used = false;
                if begins.is_empty() && !commands.is_empty() {
                    commands = vec![Step { line: block.line, action: Action::Skip { reason: reason.clone() } }];
                    is_used = true;
                }
                for step in &mut commands {
                    if matches!(&step.action, Action::Command { command, .. } if command.starts_with(&begins)) {
                        step.action = Action::Skip { reason: reason.clone() };
                        is_used = true;
                    }
                }
                if !is_used {
                    return Err(format!("{line}: no command of the block begins with `{begins}`"));
                }
            }
        }
    }
    files.extend(commands);
    Ok(files)
}

/// The commands of a script: what they print is for whoever runs them.
fn of_script(block: &Block<'_>) -> Result<Vec<Step>, String> {
    let commands = split(block.lines.iter().copied(), block.line)?;
    let step = |(line, command): (usize, String)| {
        let exit = promised_exit(&command);
        Step { line, action: Action::Command { command, exit, output: None } }
    };
    Ok(commands.into_iter().map(step).collect())
}

/// The commands of a session with a shell, each behind `$ ` and followed by what it prints.
fn of_session(block: &Block<'_>) -> Result<Vec<Step>, String> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = block.lines.iter().copied().zip(block.line..);
    let mut next = lines.next();
    while let Some((first, line)) = next {
        let Some(begin) = first.strip_prefix("$ ") else {
            return Err(format!("{line}: a session begins with `$ ` and a command"));
        };
        let mut command = begin.to_owned();
        next = lines.next();
        while !is_whole(&command) {
            let Some((more, _)) = next else { return Err(format!("{line}: this command does not end")) };
            command = format!("{command}\n{}", more.strip_prefix("> ").unwrap_or(more));
            next = lines.next();
        }
        let mut output = String::new();
        while let Some((shown, _)) = next.filter(|(line, _)| !line.starts_with("$ ")) {
            output = output + shown + "\n";
            next = lines.next();
        }
        let exit = promised_exit(&command);
        steps.push(Step { line, action: Action::Command { command, exit, output: Some(output) } });
    }
    Ok(steps)
}

/// A command is a line, and those behind it as long as a quote is open or a backslash is the last of it. The first line is
/// numbered `line`.
fn split<'a>(lines: impl Iterator<Item = &'a str>, line: usize) -> Result<Vec<(usize, String)>, String> {
    let mut commands: Vec<(usize, String)> = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (text, line) in lines.zip(line..) {
        let (begun, command) = match open.take() {
            Some((begun, before)) => (begun, format!("{before}\n{text}")),
            None if text.trim().is_empty() || text.starts_with('#') => continue,
            None => (line, text.to_owned()),
        };
        if is_whole(&command) {
            commands.push((begun, command));
        } else {
            open = Some((begun, command));
        }
    }
    match open {
        Some((line, _)) => Err(format!("{line}: this command does not end")),
        None => Ok(commands),
    }
}

fn is_whole(command: &str) -> bool {
    shlex::split(command).is_some()
}

/// What a command ends with: 0, or what the comment `# exit N` behind it says.
fn promised_exit(command: &str) -> i32 {
    let Some((_, comment)) = command.rsplit_once("# exit ") else { return 0 };
    let digits = comment.find(|character: char| !character.is_ascii_digit()).unwrap_or(comment.len());
    comment[..digits].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: usize, command: &str, exit: i32, output: Option<&str>) -> Step {
        let (command, output) = (command.to_owned(), output.map(str::to_owned));
        Step { line, action: Action::Command { command, exit, output } }
    }

    #[test]
    fn a_page_is_read() {
        let page = "# Page\n\n<!-- page: setup\nsb serve\n-->\n```sh\nsb send \"a\nb\"   # it's\n# nothing\nsb \\\n  x # exit 4: so\n```\n\
            <!-- page: file ~/a.toml -->\n```toml\na = 1\n```\n\
            <!-- page: skip ollama: needs a program that is not installed -->\n```console\n$ ollama pull\npulled\n$ sb x\n\none\n```\n";
        let setup = Step { line: 4, action: Action::Setup { command: "sb serve".to_owned() } };
        let content = "a = 1\n".to_owned();
        let file = Step { line: 13, action: Action::File { path: "~/a.toml".to_owned(), content } };
        let reason = "needs a program that is not installed".to_owned();
        let expected = [
            setup,
            command(7, "sb send \"a\nb\"   # it's", 0, None),
            command(10, "sb \\\n  x # exit 4: so", 4, None),
            file,
            Step { line: 19, action: Action::Skip { reason } },
            command(21, "sb x", 0, Some("\none\n")),
        ];
        assert_eq!(read(page).unwrap(), expected);
    }

    #[test]
    fn what_would_be_overlooked_is_an_error() {
        let wrong = [
            ("a reason of one's own", "<!-- page: skip: takes long -->\n```sh\nsb x\n```"),
            ("interop without a name for it", "<!-- page: skip: is run by interop -->\n```sh\nsb x\n```"),
            ("a command that is not there", "<!-- page: skip sb y: needs root -->\n```sh\nsb x\n```"),
            ("nothing to skip", "<!-- page: skip: needs root -->\n```toml\na = 1\n```"),
            ("no block", "<!-- page: skip: needs root -->\n"),
            ("an unknown mark", "<!-- page: hide -->\n```sh\nsb x\n```"),
            ("a mark in a line", "see <!-- page: skip: needs root -->"),
            ("a mark without an end", "<!-- page: setup\nsb x\n"),
            ("no language", "```\nsb x\n```"),
            ("an unknown language", "```shell-session\n$ sb x\n```"),
            ("an indented block", "- so:\n\n  ```sh\n  sb x\n  ```"),
            ("no end", "```sh\nsb x\n"),
            ("an open quote", "```sh\nsb 'x\n```"),
            ("a session without a command", "```console\nsb x\n```"),
        ];
        for (what, page) in wrong {
            assert!(read(page).is_err(), "{what}");
        }
    }
}
