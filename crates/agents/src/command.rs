//! Programs as agents: each turn starts the program, hands it one JSON object and journals what it prints.
//!
//! A program runs in a cage ([`cage`]): with a cleared environment, a home of its own, limits and capped output. It never
//! outlives its turn: when the turn's future ends or is dropped, it is killed with all that it started ([`crate::launch`]).

mod cage;
mod events;
mod process;
mod quarters;
mod text;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    pin::pin,
    process::ExitStatus,
    sync::Arc,
    time::Duration,
};

use a2a::{Message, Part};
use async_trait::async_trait;
use exchange::{Agent, Delivery, Outcome, Output, Profile, Turn};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use store::AgentId;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::ChildStdin,
    time::Instant,
};

pub use self::{
    cage::{Isolation, Limits, Stderr},
    quarters::Quarters,
};
use self::{
    events::Events,
    process::{Process, Tail, refused, unread},
    text::Text,
};
use crate::{
    environment,
    file::Table,
    kind::{Built, Context, Kind},
    units::{Size, Span},
};

/// Programs, described by the table `[command]`.
pub const KIND: Kind =
    Kind { name: "command", moved: &["timeout", "concurrency", "max_attempts", "on_crash"], prepare, build };

/// How long a turn may take, unless the file says.
const TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Bytes taken from the program at once.
const READ_BYTES: usize = 16 << 10;

/// What to run and how: the table `[command]` of a file, or one that was made without a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// The program, which is always there, and its arguments.
    pub argv: Vec<String>,
    /// Where it runs; an absolute path once the file's directory is known.
    #[serde(default)]
    pub cwd: PathBuf,
    /// What its output means.
    #[serde(default)]
    pub output: OutputMode,
    /// How long it has between SIGTERM and SIGKILL.
    #[serde(default = "default_grace")]
    pub grace: Span,
    /// How many bytes it may print in one turn.
    #[serde(default = "default_max_output")]
    pub max_output: Size,
    /// Variables it gets.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Names of this process's variables that it gets.
    #[serde(default)]
    pub pass_env: Vec<String>,
    /// How it is kept from the rest of the machine.
    #[serde(default)]
    pub isolation: Isolation,
    /// Whether it has the machine's network, under strict isolation.
    #[serde(default)]
    pub network: Option<bool>,
    /// What it may read beside the system and its own, under strict isolation.
    #[serde(default)]
    pub readable: Vec<PathBuf>,
    /// The user that runs it, where the server is root.
    #[serde(default)]
    pub uid: Option<u32>,
    /// The group of that user, if it has not the same number.
    #[serde(default)]
    pub gid: Option<u32>,
    /// What it may use up.
    #[serde(default)]
    pub limits: Limits,
    /// Who gets what it complains.
    #[serde(default)]
    pub stderr: Stderr,
}

/// What a program's output means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputMode {
    /// All of it is the text of one artifact.
    #[default]
    Text,
    /// Each line is an event.
    Events,
}

/// A program that takes turns.
struct CommandAgent {
    id: AgentId,
    program: Program,
    quarters: Quarters,
}

/// What the program reads on its standard input.
#[derive(Serialize)]
struct Input<'a> {
    agent: &'a str,
    task: String,
    context: &'a str,
    message: &'a Message,
    history: &'a [Message],
    context_history: &'a [Message],
    attempt: u32,
    /// What the program has kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'a RawValue>,
}

/// Reads what the program prints. An error says how the program broke the protocol.
enum Reader {
    Text(Text),
    Events(Events),
}

/// How the program came to its end.
enum End {
    Exited(ExitStatus),
    Canceled,
    Broken(String),
    Lost(String),
}

fn default_grace() -> Span {
    Span(Duration::from_secs(2))
}

fn default_max_output() -> Size {
    Size(64 << 20)
}

fn prepare(profile: &mut Profile) {
    profile.timeout = Some(TIMEOUT);
}

fn build(table: Table<'_>, context: &Context) -> Result<Built, String> {
    let mut program: Program = table.read()?;
    let own_world = program.isolation == Isolation::Strict && program.cwd.as_os_str().is_empty();
    // The file's directory has the files of other agents.
    program.cwd = match context.quarters.home_of(&context.id).filter(|_| own_world) {
        Some(home) => home,
        None => context.resolve(&program.cwd),
    };
    program.into_agent(context.id.clone(), context.quarters.clone())
}

impl Program {
    /// A program in a directory, with the defaults of the table `[command]`.
    pub fn new(argv: Vec<String>, cwd: PathBuf) -> Self {
        Self {
            argv,
            cwd,
            output: OutputMode::default(),
            grace: default_grace(),
            max_output: default_max_output(),
            env: BTreeMap::new(),
            pass_env: Vec::new(),
            isolation: Isolation::default(),
            network: None,
            readable: Vec::new(),
            uid: None,
            gid: None,
            limits: Limits::default(),
            stderr: Stderr::default(),
        }
    }

    /// Makes an agent of it, which lives there.
    pub fn into_agent(self, id: AgentId, quarters: Quarters) -> Result<Built, String> {
        self.check()?;
        let mut warnings = self.check_cage(&id, &quarters)?;
        warnings.extend(self.problems(quarters.home_of(&id).as_deref()));
        let agent = Arc::new(CommandAgent { id, program: self, quarters });
        Ok(Built { agent, delivery: Delivery::Run, described: None, warnings })
    }

    fn check(&self) -> Result<(), String> {
        if self.argv.first().is_none_or(String::is_empty) {
            return Err("`command.argv` needs a program".to_owned());
        }
        if self.argv.iter().any(|argument| argument.contains('\0')) {
            return Err("`command.argv` holds a NUL character".to_owned());
        }
        let is_name = |name: &&String| !name.is_empty() && !name.contains(['=', '\0']);
        if let Some(name) = self.env.keys().chain(&self.pass_env).find(|name| !is_name(name)) {
            return Err(format!("`{}` is not a name of an environment variable", name.escape_default()));
        }
        if let Some((name, _)) = self.env.iter().find(|(_, value)| value.contains('\0')) {
            return Err(format!("`command.env.{name}` holds a NUL character"));
        }
        if self.max_output.0 == 0 {
            return Err("`command.max_output`: must be more than zero".to_owned());
        }
        Ok(())
    }

    /// What will go wrong when it is run: a program or a directory that is not there.
    fn problems(&self, home: Option<&Path>) -> Vec<String> {
        let mut problems = Vec::new();
        // Its home is there when it is needed.
        if !self.cwd.is_dir() && home != Some(&self.cwd) {
            problems.push(format!("tasks will fail: `{}` is not a directory", self.cwd.display()));
        }
        let program = self.path();
        let (found, place) = if program.is_absolute() {
            (program.is_file(), "there")
        } else {
            let path =
                self.env.get("PATH").map(Into::into).or_else(|| environment::variable_os("PATH")).unwrap_or_default();
            (std::env::split_paths(&path).any(|directory| directory.join(&program).is_file()), "in PATH")
        };
        if !found {
            problems.push(format!("tasks will fail: the program `{}` is not {place}", self.argv[0]));
        }
        problems
    }

    /// The program's own: as it stands when PATH is to be searched, and otherwise seen from `cwd`.
    fn path(&self) -> PathBuf {
        let program = Path::new(&self.argv[0]);
        if program.components().count() > 1 { self.cwd.join(program) } else { program.to_owned() }
    }
}

#[async_trait]
impl Agent for CommandAgent {
    async fn run(&self, turn: Turn, out: Output) -> Outcome {
        let input = match input(&turn).await {
            Ok(input) => input,
            Err(why) => return Outcome::Retry(why),
        };
        let mut process = match Process::spawn(&self.program, &self.id, &self.quarters) {
            Ok(process) => process,
            Err(error) => return refused(&self.program, &error),
        };
        tracing::debug!(agent.name = %turn.agent, task.id = %turn.task, pid = process.id(), "started a program");
        let mut reader = match self.program.output {
            OutputMode::Text => Reader::Text(Text::default()),
            OutputMode::Events => Reader::Events(Events::default()),
        };
        let mut tail = Tail::new(&turn);
        let end = self.attend(&mut process, input, &mut reader, &mut tail, &turn, &out).await;
        if let Some(error) = process.refusal(&end, &tail) {
            return refused(&self.program, &error);
        }
        tail.record(&self.quarters);
        let status = match end {
            End::Canceled => return Outcome::Canceled,
            End::Broken(why) => return Outcome::Broken(why),
            End::Lost(why) => return Outcome::Retry(why),
            End::Exited(status) => status,
        };
        match reader.finish(&out).await {
            Err(why) => Outcome::Broken(why),
            Ok(Some(outcome)) if status.success() || !matches!(outcome, Outcome::AuthRequired(_)) => outcome,
            Ok(None) if status.success() => Outcome::Completed(Vec::new()),
            Ok(_) => Outcome::Failed(vec![Part::text(tail.explain(status, self.program.stderr))]),
        }
    }
}

impl CommandAgent {
    /// Feeds the program and reads it until it has exited and all that it printed is read.
    async fn attend(
        &self,
        process: &mut Process,
        input: Vec<u8>,
        reader: &mut Reader,
        tail: &mut Tail,
        turn: &Turn,
        out: &Output,
    ) -> End {
        let Some((stdin, mut stdout, mut stderr)) = process.pipes() else {
            return End::Lost("the program has no pipes".to_owned());
        };
        let mut feed = pin!(feed(stdin, input));
        let (mut fed, mut stdout_open, mut stderr_open) = (false, true, true);
        let mut printed = vec![0; READ_BYTES];
        let mut complained = vec![0; READ_BYTES];
        let mut total = 0;
        let mut canceled = false;
        let (mut kill_at, mut killed): (Option<Instant>, bool) = (None, false);

        let status = loop {
            tokio::select! {
                biased;
                status = process.exited() => break status,
                () = turn.cancel.cancelled(), if !canceled => {
                    canceled = true;
                    process.terminate();
                    kill_at = Some(Instant::now() + self.program.grace.0);
                }
                () = at(kill_at) => {
                    kill_at = Some(Instant::now() + process::KEEPER);
                    if killed {
                        process.force().await;
                    }
                    process.kill();
                    killed = true;
                }
                () = &mut feed, if !fed => fed = true,
                read = stdout.read(&mut printed), if stdout_open => {
                    let count = read.unwrap_or(0);
                    stdout_open = count > 0;
                    if let Err(why) = self.take(&printed[..count], &mut total, reader, out).await {
                        if !canceled {
                            process.kill();
                            return End::Broken(why);
                        }
                        // What a dying program prints last is nobody's business any more.
                        stdout_open = false;
                    }
                }
                read = stderr.read(&mut complained), if stderr_open => {
                    let count = read.unwrap_or(0);
                    stderr_open = count > 0;
                    tail.take(&complained[..count]);
                }
            }
        };
        // All that the program printed is in the pipes now. The end of the pipes is not waited for: a
        // process that it has left behind may hold them open.
        let mut left = if stdout_open { unread(&stdout) } else { 0 };
        while left > 0 {
            let room = left.min(READ_BYTES);
            let count = stdout.read(&mut printed[..room]).await.unwrap_or(0);
            match self.take(&printed[..count], &mut total, reader, out).await {
                Ok(()) => {}
                Err(_) if canceled => break,
                Err(why) => return End::Broken(why),
            }
            left = if count == 0 { 0 } else { left - count };
        }
        if canceled {
            return End::Canceled;
        }
        let mut left = if stderr_open { unread(&stderr) } else { 0 };
        while left > 0 {
            let room = left.min(READ_BYTES);
            let count = stderr.read(&mut complained[..room]).await.unwrap_or(0);
            tail.take(&complained[..count]);
            left = if count == 0 { 0 } else { left - count };
        }
        match status {
            Ok(status) => End::Exited(status),
            Err(error) => End::Lost(format!("the program's end was not seen: {error}")),
        }
    }

    async fn take(&self, bytes: &[u8], total: &mut u64, reader: &mut Reader, out: &Output) -> Result<(), String> {
        *total += bytes.len() as u64;
        let Size(allowed) = self.program.max_output;
        if *total > allowed {
            return Err(format!("the program printed more than {allowed} bytes"));
        }
        match reader {
            Reader::Text(text) => {
                text.take(bytes, out).await;
                Ok(())
            }
            Reader::Events(events) => events.take(bytes, out).await,
        }
    }
}

impl Reader {
    /// What the program's last words make of the turn; `None` when it left that to its exit code.
    async fn finish(&mut self, out: &Output) -> Result<Option<Outcome>, String> {
        match self {
            Self::Text(text) => {
                text.finish(out).await;
                Ok(None)
            }
            Self::Events(events) => events.finish(out).await,
        }
    }
}

/// The object on the program's standard input, on one line.
async fn input(turn: &Turn) -> Result<Vec<u8>, String> {
    let unread = |error| format!("the task's history cannot be read: {error}");
    let history = turn.history().await.map_err(unread)?;
    let context_history = turn.context_history().await.map_err(unread)?;
    let input = Input {
        agent: turn.agent.as_str(),
        task: turn.task.to_string(),
        context: &turn.context,
        message: &turn.message,
        history: &history,
        context_history: &context_history,
        attempt: turn.attempt,
        // Programs keep JSON.
        state: turn.state.as_ref().and_then(|state| serde_json::from_slice(state).ok()),
    };
    let mut line = serde_json::to_vec(&input).map_err(|error| format!("the message cannot be encoded: {error}"))?;
    line.push(b'\n');
    Ok(line)
}

/// Writes the input and closes the pipe. A program that does not read it is within its rights.
async fn feed(mut stdin: ChildStdin, input: Vec<u8>) {
    let _ = stdin.write_all(&input).await;
    let _ = stdin.shutdown().await;
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_table_gets_the_defaults() {
        let spec: Program = toml::from_str("argv = [\"cat\"]").unwrap();
        assert_eq!((spec.argv, spec.cwd, spec.output), (vec!["cat".to_owned()], PathBuf::new(), OutputMode::Text));
        assert_eq!((spec.grace, spec.max_output), (Span(Duration::from_secs(2)), Size(64 << 20)));
        assert!(spec.env.is_empty() && spec.pass_env.is_empty());
    }
}
