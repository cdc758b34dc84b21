//! Asking a person at a terminal: lines with an editor and a history, and secrets that are not shown.
//!
//! The editor blocks in its reads, so it has a thread of its own. It reads only while it is asked, and the terminal is as
//! it was in between: what is typed meanwhile waits, and Ctrl-C is a signal. Whoever gives up an [`Editor`], or a future
//! that waits for it, finds the terminal as it was before.

use std::{
    fs,
    io::{self, BufRead},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, mpsc as std_mpsc},
    thread,
};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::{
    Cmd, ConditionalEventHandler, Config, Context, Event, EventContext, EventHandler, Helper, KeyCode, KeyEvent,
    Modifiers, Movement, RepeatCount,
    completion::{Completer, FilenameCompleter, Pair},
    config::BellStyle,
    error::ReadlineError,
    highlight::Highlighter,
    hint::Hinter,
    history::FileHistory,
    validate::Validator,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

use crate::{
    failure::Failure,
    output::{self, Style},
    target::block_on,
};

/// So many lines are remembered.
const REMEMBERED: usize = 1000;
/// A line that is longer is not.
const LONGEST: usize = 64 * 1024;

/// What a person did at the prompt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// One message, with as many lines as it has.
    Line(String),
    /// Ctrl-C with nothing typed, or Ctrl-D.
    End,
}

/// What the editor helps with.
pub(crate) struct Words {
    /// The commands, which Tab completes.
    pub(crate) commands: Vec<&'static str>,
    /// Those that take a file.
    pub(crate) with_files: Vec<&'static str>,
}

/// A prompt on the terminal of this process.
pub(crate) struct Editor {
    prompts: std_mpsc::Sender<String>,
    lines: mpsc::Receiver<Result<Heard, Failure>>,
    /// Somebody is being asked: the terminal is the editor's.
    asking: bool,
    _mode: Option<Mode>,
}

/// How the terminal was. It is so again when this goes.
struct Mode(Termios);

impl Editor {
    /// With what was typed in earlier conversations, if this one is to be remembered: the file with it.
    pub(crate) fn start(history: Option<PathBuf>, words: Words) -> Result<Self, Failure> {
        let mode = Mode::current();
        let (prompts, asked) = std_mpsc::channel::<String>();
        let (say, lines) = mpsc::channel(1);
        let mut desk = Desk::new(history, words)?;
        let serve = move || {
            while let Ok(prompt) = asked.recv() {
                if say.blocking_send(desk.read(&prompt)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("editor".to_owned()).spawn(serve).map_err(|error| cannot_read(&error))?;
        Ok(Self { prompts, lines, asking: false, _mode: mode })
    }

    /// Asks, and waits for what comes.
    pub(crate) async fn ask(&mut self, prompt: &str) -> Result<Heard, Failure> {
        if self.prompts.send(prompt.to_owned()).is_err() {
            return Ok(Heard::End);
        }
        self.asking = true;
        let heard = self.lines.recv().await;
        self.asking = false;
        heard.unwrap_or(Ok(Heard::End))
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        if self.asking {
            // No bracketed paste any more, and a line of its own for what comes next.
            output::print("\u{1b}[?2004l\n");
        }
    }
}

impl Mode {
    /// That of standard input, where it is a terminal.
    fn current() -> Option<Self> {
        tcgetattr(rustix::stdio::stdin()).ok().map(Self)
    }

    /// Nothing that is typed is shown from here on.
    fn hide(&self) -> io::Result<()> {
        let mut hidden = self.0.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        Ok(tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &hidden)?)
    }
}

impl Drop for Mode {
    fn drop(&mut self) {
        // A terminal that is gone needs no mode.
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.0);
    }
}

/// Asks for something that is not to be seen.
pub(crate) fn ask_secret(prompt: &str) -> Result<String, Failure> {
    block_on(async {
        // Before anything changes: whoever ends this finds the terminal as it was.
        let listen = |kind| signal(kind).map_err(|error| cannot_read(&error));
        let mut interrupted = listen(SignalKind::interrupt())?;
        let mut terminated = listen(SignalKind::terminate())?;
        let mode = Mode::current();
        if let Some(mode) = &mode {
            mode.hide().map_err(|error| cannot_read(&error))?;
        }
        output::print(prompt);
        let (say, mut said) = mpsc::channel(1);
        let read = move || {
            let mut line = String::new();
            let read = io::stdin().lock().read_line(&mut line);
            // Nobody listens any more after Ctrl-C.
            let _ = say.blocking_send(read.map(|_| line));
        };
        thread::Builder::new().name("stdin".to_owned()).spawn(read).map_err(|error| cannot_read(&error))?;
        let line = tokio::select! {
            line = said.recv() => line,
            _ = interrupted.recv() => None,
            _ = terminated.recv() => None,
        };
        output::print("\n");
        match line {
            Some(Ok(line)) => Ok(line),
            Some(Err(error)) => Err(cannot_read(&error)),
            None => Err(Failure::failed("nothing was kept")),
        }
    })
}

/// The editor itself, on its thread.
struct Desk {
    editor: rustyline::Editor<Help, FileHistory>,
    history: Option<PathBuf>,
    continued: Continued,
}

/// What stood before each line break that was typed behind a backslash.
type Continued = Arc<Mutex<Vec<String>>>;

impl Desk {
    fn new(history: Option<PathBuf>, words: Words) -> Result<Self, Failure> {
        let config = Config::builder()
            .max_history_size(REMEMBERED)
            .and_then(|config| config.history_ignore_dups(true))
            .map_err(|error| cannot_read(&error))?
            .history_ignore_space(true)
            .completion_type(rustyline::CompletionType::List)
            .bell_style(BellStyle::None)
            .build();
        let mut editor = rustyline::Editor::with_config(config).map_err(|error| cannot_read(&error))?;
        editor.set_helper(Some(Help { words, files: FilenameCompleter::new() }));
        editor.bind_sequence(KeyEvent::ctrl('C'), EventHandler::Conditional(Box::new(Clear)));
        let continued = Continued::default();
        for enter in [KeyEvent(KeyCode::Enter, Modifiers::NONE), KeyEvent::ctrl('J')] {
            let handler = Continue(Arc::clone(&continued));
            editor.bind_sequence(enter, EventHandler::Conditional(Box::new(handler)));
        }
        for newline in [Modifiers::ALT, Modifiers::SHIFT] {
            editor.bind_sequence(KeyEvent(KeyCode::Enter, newline), EventHandler::Simple(Cmd::Newline));
        }
        let mut desk = Self { editor, history, continued };
        desk.remember_before();
        Ok(desk)
    }

    fn read(&mut self, prompt: &str) -> Result<Heard, Failure> {
        let styled = output::styled(Style::Bold, prompt);
        loop {
            let read = self.editor.readline(&(prompt, styled.as_str()));
            let continued = std::mem::take(&mut *self.continued.lock().unwrap_or_else(PoisonError::into_inner));
            match read {
                Ok(line) => {
                    let line = without_backslashes(line, continued);
                    self.remember(&line);
                    return Ok(Heard::Line(line));
                }
                Err(ReadlineError::Interrupted | ReadlineError::Eof) => return Ok(Heard::End),
                Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
                    output::error_line("note", "what was typed is not UTF-8");
                }
                Err(error) => return Err(cannot_read(&error)),
            }
        }
    }

    /// Brings back what was typed in earlier conversations.
    fn remember_before(&mut self) {
        let Some(path) = self.history.clone() else { return };
        match self.editor.load_history(&path) {
            Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.forget(&path, &error),
            Ok(()) => {}
        }
    }

    /// At once, so that a terminal that is closed takes nothing with it.
    fn remember(&mut self, line: &str) {
        if line.len() > LONGEST {
            return;
        }
        let kept = self.editor.add_history_entry(line);
        let (Ok(true), Some(path)) = (kept, self.history.clone()) else { return };
        if let Err(error) =
            private_directory(&path).map_err(ReadlineError::from).and_then(|()| self.editor.append_history(&path))
        {
            self.forget(&path, &error);
        }
    }

    /// What cannot be kept is no reason not to talk.
    fn forget(&mut self, path: &Path, error: &ReadlineError) {
        self.history = None;
        let text = format!("what is typed is not kept: cannot use `{}`: {error}", path.display());
        output::error_line("warning", &text);
    }
}

fn private_directory(file: &Path) -> io::Result<()> {
    match file.parent() {
        Some(directory) => fs::DirBuilder::new().recursive(true).mode(0o700).create(directory),
        None => Ok(()),
    }
}

/// Ctrl-C, which clears what is typed. On an empty line it is the editor's own: the end.
struct Clear;

impl ConditionalEventHandler for Clear {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext<'_>) -> Option<Cmd> {
        let is_empty = context.line().is_empty();
        Some(if is_empty { Cmd::Interrupt } else { Cmd::Kill(Movement::WholeBuffer) })
    }
}

/// Enter behind a backslash, which goes on in the next line.
struct Continue(Continued);

impl ConditionalEventHandler for Continue {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext<'_>) -> Option<Cmd> {
        let line = context.line();
        if context.pos() < line.len() || !ends_with_backslash(line) {
            return None;
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
        Some(Cmd::Newline)
    }
}

/// A message without the backslashes that went on in the next line. Those that were pasted stay: they belong to somebody's
/// program.
fn without_backslashes(mut line: String, mut continued: Vec<String>) -> String {
    while let Some(before) = continued.pop() {
        if line.strip_prefix(&before).is_some_and(|after| after.starts_with('\n')) {
            line.remove(before.len() - 1);
        }
    }
    line
}

/// Whether the last character is a backslash that is not itself behind one.
fn ends_with_backslash(line: &str) -> bool {
    line.chars().rev().take_while(|&c| c == '\\').count() % 2 == 1
}

/// What Tab knows.
struct Help {
    words: Words,
    files: FilenameCompleter,
}

impl Helper for Help {}
impl Highlighter for Help {}
impl Validator for Help {}
impl Hinter for Help {
    type Hint = String;
}

impl Completer for Help {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, context: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let begun = &line[..at];
        match begun.split_once(char::is_whitespace) {
            Some((command, _)) if self.words.with_files.contains(&command) => self.files.complete(line, at, context),
            None if begun.starts_with('/') => {
                let fitting = self.words.commands.iter().filter(|command| command.starts_with(begun));
                let pair = |command: &&str| Pair { display: (*command).to_owned(), replacement: format!("{command} ") };
                Ok((0, fitting.map(pair).collect()))
            }
            _ => Ok((at, Vec::new())),
        }
    }
}

fn cannot_read(error: &dyn std::error::Error) -> Failure {
    Failure::failed("cannot read from the terminal").caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_backslashes_that_were_typed_for_it_go() {
        let clean = |line: &str, continued: &[&str]| {
            without_backslashes(line.to_owned(), continued.iter().map(|&before| before.to_owned()).collect())
        };
        assert_eq!(clean("a\\\nb\\\nc", &["a\\", "a\\\nb\\"]), "a\nb\nc");
        assert_eq!(clean("a\\\nb", &[]), "a\\\nb", "it was pasted");
        assert_eq!(clean("A\\\nb", &["a\\"]), "A\\\nb", "it was changed since");
        assert_eq!(clean("a\\", &["a\\"]), "a\\", "and this line break taken back");
    }

    #[test]
    fn a_backslash_goes_on_unless_it_is_behind_one() {
        assert!(ends_with_backslash("a\\") && ends_with_backslash("\\") && ends_with_backslash("a\\\\\\"));
        assert!(!ends_with_backslash("a\\\\") && !ends_with_backslash("") && !ends_with_backslash("\\a"));
    }
}
