//! One run of a program: its process group, its pipes and the end of what it complained.

use std::{
    io,
    os::{
        fd::AsFd,
        unix::process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{
        Once,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use a2a::Part;
use exchange::{Outcome, Turn};
use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};
use store::{AgentId, TaskId};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::{Isolation, Program, Quarters, Stderr};
#[cfg(target_os = "linux")]
use crate::launch;
use crate::{environment, guard};

/// The variables of this process that every program gets.
const INHERITED: [&str; 3] = ["PATH", "LANG", "TZ"];
/// How much of stderr a caller can be told.
const TAIL_BYTES: usize = 4 << 10;
/// The first byte of a launcher's line, which is no complaint of the program.
const REFUSED: &[u8] = b"\0";
/// How much of one turn's stderr is kept for the operator.
const RECORD_BYTES: usize = 16 << 10;
/// How much of one turn's stderr is logged, or of what a program that stays says in each [`PERIOD`].
const LINES: usize = 100;
const PERIOD: Duration = Duration::from_secs(60);
const LINE_BYTES: usize = 1 << 10;
/// How long a keeper has to end everything before it is taken for stopped.
pub(super) const KEEPER: Duration = Duration::from_secs(15);

/// Numbers the runs of programs.
static STARTED: AtomicU64 = AtomicU64::new(0);

/// A running program. Dropping it ends it, with all that it started.
pub(super) struct Process {
    /// The keeper of the program, or the program itself where nothing launches it.
    child: Option<Child>,
    kept: bool,
    /// Until it was reaped: after that the number may be somebody else's.
    pid: Option<Pid>,
    mark: String,
}

/// The last words on stderr.
pub(super) struct Tail {
    bytes: Vec<u8>,
    cut: bool,
    /// A line that is not complete yet, for the log.
    line: Vec<u8>,
    lines: usize,
    agent: AgentId,
    quarters: Quarters,
    of: Whose,
}

/// Whose words they are.
enum Whose {
    Turn {
        task: TaskId,
        attempt: u32,
    },
    /// Those of a program that takes many turns, and when its lines were last counted from the begin.
    Program {
        since: Instant,
    },
}

impl Whose {
    /// A line in the log of the agent's programs.
    fn line(&self, text: &str) -> String {
        let task = match self {
            Self::Turn { task, .. } => task.to_string(),
            Self::Program { .. } => "-".to_owned(),
        };
        format!("{} {task} {text}\n", store::clock::now())
    }
}

impl Process {
    /// Starts the program.
    pub(super) fn spawn(program: &Program, agent: &AgentId, quarters: &Quarters) -> io::Result<Self> {
        let home = quarters.home(agent)?;
        let mark = format!("{}/{}", quarters.mark, STARTED.fetch_add(1, Ordering::Relaxed));
        let (mut command, kept) = begin(program, quarters, home.as_deref(), &mark)?;
        command
            .current_dir(&program.cwd)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(uid) = program.uid {
            command.uid(uid).gid(program.gid.unwrap_or(uid));
        }
        for name in INHERITED.into_iter().chain(program.pass_env.iter().map(String::as_str)) {
            if let Some(value) = environment::variable_os(name) {
                command.env(name, value);
            }
        }
        match &home {
            Some(home) if program.isolation == Isolation::Strict => {
                command.env("HOME", home).env("TMPDIR", "/tmp");
            }
            Some(home) => {
                command.env("HOME", home).env("TMPDIR", home.join("tmp"));
            }
            None => {
                for name in ["HOME", "TMPDIR"] {
                    command.envs(environment::variable_os(name).map(|value| (name, value)));
                }
            }
        }
        if program.env.contains_key("HOME") {
            command.env_remove("TMPDIR");
        }
        command.envs(&program.env);
        if !kept {
            command.env(guard::MARK, &mark);
        }
        let child = Command::from(command).spawn()?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        Ok(Self { child: Some(child), kept, pid, mark })
    }

    pub(super) fn id(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    /// The three pipes; once.
    pub(super) fn pipes(&mut self) -> Option<(ChildStdin, ChildStdout, ChildStderr)> {
        let child = self.child.as_mut()?;
        Some((child.stdin.take()?, child.stdout.take()?, child.stderr.take()?))
    }

    /// Returns when the program has exited, with what it left behind ended.
    pub(super) async fn exited(&mut self) -> io::Result<ExitStatus> {
        let Some(child) = &mut self.child else { return Err(io::ErrorKind::NotFound.into()) };
        let status = child.wait().await;
        if !self.kept {
            // At once after the leader was reaped: its number is not given out again while the group has members.
            self.kill();
        } else if status.as_ref().is_ok_and(|status| status.signal().is_some()) {
            // If it was the keeper who was killed, it has ended nobody. Its number may be somebody else's by now.
            let (mark, keeper) = (self.mark.clone(), self.pid.take());
            // It goes on when this is dropped, since the number is known only once.
            let cleaning = tokio::spawn(async move {
                sweep(&mark).await;
                forget_group(keeper).await;
            });
            let _ = cleaning.await;
        } else {
            forget_group(self.pid.take()).await;
        }
        self.pid = None;
        self.child = None;
        status
    }

    /// Asks the program to end.
    pub(super) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Ends the program.
    pub(super) fn kill(&self) {
        // The keeper knows all that there is to end.
        self.signal(if self.kept { Signal::INT } else { Signal::KILL });
    }

    /// Ends the program although its keeper has not: a program of the same user may have stopped it.
    pub(super) async fn force(&self) {
        if let Some(pid) = self.pid {
            let _ = kill_process(pid, Signal::KILL);
        }
        sweep(&self.mark).await;
    }

    fn signal(&self, signal: Signal) {
        let Some(pid) = self.pid else { return };
        // What is gone already is what was wanted.
        let _ = if self.kept { kill_process(pid, signal) } else { kill_process_group(pid, signal) };
    }

    /// Why the program could not be started, if its launcher says so.
    #[cfg(target_os = "linux")]
    pub(super) fn refusal(&self, status: ExitStatus, tail: &Tail) -> Option<io::Error> {
        let refusal = launch::refusal(status.code().filter(|_| self.kept), &tail.bytes)?;
        if refusal.what.is_empty() {
            return Some(refusal.error);
        }
        tracing::error!(agent.name = %tail.agent, error = %refusal.error, "a program's cage cannot be made: {}", refusal.what);
        Some(io::Error::other("its cage cannot be made; the log says why"))
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn refusal(&self, _status: ExitStatus, _tail: &Tail) -> Option<io::Error> {
        None
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Before the child itself is dropped: until then its number cannot be reused. The runtime reaps it.
        self.kill();
        let (Some(mut child), Ok(runtime)) = (self.child.take(), tokio::runtime::Handle::try_current()) else { return };
        if !self.kept {
            return;
        }
        let (mark, keeper) = (std::mem::take(&mut self.mark), self.pid);
        runtime.spawn(async move {
            if tokio::time::timeout(KEEPER, child.wait()).await.is_err() {
                let _ = child.start_kill();
                sweep(&mark).await;
            }
            forget_group(keeper).await;
        });
    }
}

/// A command that starts the program; whether a keeper stays beside it.
#[cfg(target_os = "linux")]
fn begin(
    program: &Program,
    quarters: &Quarters,
    home: Option<&Path>,
    mark: &str,
) -> io::Result<(std::process::Command, bool)> {
    let Some(launcher) = &quarters.launcher else { return Ok((bare(program), false)) };
    let own = program.env.get("HOME").map(PathBuf::from);
    let home = own.or_else(|| home.map(Path::to_owned)).unwrap_or_else(|| program.cwd.clone());
    let order = launch::Order {
        stage: launch::Stage::Keeper,
        server: (!store::fault::is_on("no-guard")).then(|| getpid().as_raw_nonzero().get()),
        mark: mark.to_owned(),
        bounds: program.limits.bounds(program.mode),
        walled: program.isolation != Isolation::None,
        world: program.world(home),
        group: None,
    };
    if program.limits.processes > 0 && program.uid.unwrap_or(0) == 0 {
        tell_unbounded();
    }
    let arguments = program.argv.get(1..).unwrap_or_default();
    Ok((launch::command(launcher, &order, &program.path(), arguments)?, true))
}

/// Removes the cgroup that a keeper has made: from a world of its own it cannot do that itself. Goes on when this is dropped.
async fn forget_group(keeper: Option<Pid>) {
    #[cfg(target_os = "linux")]
    if let Some(keeper) = keeper.filter(|_| launch::is_exempt()) {
        // It waits for processes that are about to go.
        let _ = tokio::task::spawn_blocking(move || launch::remove_group(keeper.as_raw_nonzero().get())).await;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = keeper;
}

/// Logs once that the number of processes has no bound here.
#[cfg(target_os = "linux")]
fn tell_unbounded() {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        if !launch::is_exempt() {
            return;
        }
        // A server that was killed has removed none of its own.
        launch::remove_groups_left();
        if launch::try_group().is_none() {
            tracing::warn!(
                "programs have no bound on their number of processes: root is exempt from limits, and no cgroup can be made here; \
                 `sb doctor` says what to do"
            );
        }
    });
}

#[cfg(not(target_os = "linux"))]
fn begin(
    program: &Program,
    _quarters: &Quarters,
    _home: Option<&Path>,
    _mark: &str,
) -> io::Result<(std::process::Command, bool)> {
    Ok((bare(program), false))
}

/// The program as it is.
fn bare(program: &Program) -> std::process::Command {
    let mut command = std::process::Command::new(program.path());
    command.args(program.argv.get(1..).unwrap_or_default());
    command
}

/// Kills whoever carries the mark of one run.
async fn sweep(mark: &str) {
    let mark = mark.to_owned();
    // It cannot be waited for when the runtime ends; the guard does the same then.
    let _ = tokio::task::spawn_blocking(move || guard::sweep(&mark)).await;
}

/// Returns at that time, if there is one.
pub(super) async fn at(instant: Option<tokio::time::Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// How many bytes wait in a pipe.
pub(super) fn unread(pipe: &impl AsFd) -> usize {
    rustix::io::ioctl_fionread(pipe).ok().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0)
}

/// What a program that does not start makes of the turn.
pub(super) fn refused(program: &Program, error: &io::Error) -> Outcome {
    let name = program.argv.first().map(String::as_str).unwrap_or_default();
    let failed = |text: String| Outcome::Failed(vec![Part::text(text)]);
    match error.kind() {
        io::ErrorKind::NotFound if !program.cwd.is_dir() => {
            failed(format!("cannot start `{name}`: its directory `{}` is not there", program.cwd.display()))
        }
        io::ErrorKind::NotFound => failed(format!("cannot start `{name}`: no such program")),
        io::ErrorKind::PermissionDenied => failed(format!("cannot start `{name}`: it is not executable")),
        // No processes, no memory, no file descriptors, or a script that is just being written: that passes.
        io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory | io::ErrorKind::ExecutableFileBusy => {
            Outcome::Retry(format!("cannot start `{name}`: {error}"))
        }
        _ if matches!(
            rustix::io::Errno::from_io_error(error),
            Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE)
        ) =>
        {
            Outcome::Retry(format!("cannot start `{name}`: {error}"))
        }
        _ => failed(format!("cannot start `{name}`: {error}")),
    }
}

impl Tail {
    /// The words of a program that was started for one turn.
    pub(super) fn of_turn(turn: &Turn, quarters: &Quarters) -> Self {
        Self::new(turn.agent.clone(), quarters, Whose::Turn { task: turn.task, attempt: turn.attempt })
    }

    /// The words of a program that stays.
    pub(super) fn of_program(agent: AgentId, quarters: &Quarters) -> Self {
        Self::new(agent, quarters, Whose::Program { since: Instant::now() })
    }

    fn new(agent: AgentId, quarters: &Quarters, of: Whose) -> Self {
        let quarters = quarters.clone();
        Self { bytes: Vec::new(), cut: false, line: Vec::new(), lines: 0, agent, quarters, of }
    }

    /// Keeps the end and logs whole lines.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > RECORD_BYTES {
            self.cut = true;
            self.bytes.drain(..self.bytes.len() - RECORD_BYTES);
        }
        let mut lines = String::new();
        for byte in bytes {
            if *byte == b'\n' {
                self.log(&mut lines);
            } else if self.line.len() < LINE_BYTES {
                self.line.push(*byte);
            }
        }
        self.write(&lines);
    }

    /// Adds lines to the log of the agent's programs.
    fn write(&self, lines: &str) {
        if !lines.is_empty() {
            self.quarters.log(&self.agent, lines);
        }
    }

    /// Adds a line of the server's own: why it has ended the program.
    pub(super) fn note(&mut self, text: &str) {
        let mut lines = String::new();
        if !self.line.is_empty() {
            self.bytes.push(b'\n');
            self.log(&mut lines);
        }
        let text = text.replace(char::is_control, "\u{fffd}");
        self.bytes.extend_from_slice(format!("{text}\n").as_bytes());
        lines.push_str(&self.of.line(&text));
        self.write(&lines);
    }

    /// Takes the line that is there for the log of the agent's programs, and for that of the server as long as there are not too many.
    fn log(&mut self, lines: &mut String) {
        let line = std::mem::take(&mut self.line);
        if line.starts_with(REFUSED) {
            return;
        }
        // Nothing that a program says may look like a line of the log, or steer a terminal.
        let line = String::from_utf8_lossy(&line).replace(char::is_control, "\u{fffd}");
        lines.push_str(&self.of.line(&line));
        if let Whose::Program { since } = &mut self.of
            && since.elapsed() >= PERIOD
        {
            *since = Instant::now();
            self.lines = 0;
        }
        self.lines += 1;
        let (task, what) = match &self.of {
            Whose::Turn { task, .. } => (Some(tracing::field::display(task)), "of this turn"),
            Whose::Program { .. } => (None, "of this minute"),
        };
        if self.lines <= LINES {
            tracing::info!(agent.name = %self.agent, task.id = task, "stderr: {line}");
        } else if self.lines == LINES + 1 {
            tracing::info!(agent.name = %self.agent, task.id = task, "stderr: further lines {what} are not logged");
        }
    }

    /// All has been said: the operator finds the end of it in the record of the task.
    pub(super) fn record(&mut self) {
        if !self.line.is_empty() {
            let mut lines = String::new();
            self.log(&mut lines);
            self.write(&lines);
        }
        if let Whose::Turn { task, attempt } = self.of {
            self.record_for(task, attempt);
        }
    }

    /// Puts the end of it into the record of a task.
    pub(super) fn record_for(&self, task: TaskId, attempt: u32) {
        if self.bytes.is_empty() {
            return;
        }
        let mut record = format!("--- attempt {attempt}\n").into_bytes();
        record.extend_from_slice(&self.bytes);
        self.quarters.record(&self.agent, task.to_string(), record);
    }

    /// How the program ended, with its last words if they are for the caller.
    pub(super) fn explain(&self, status: ExitStatus, stderr: Stderr) -> String {
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => status.to_string(),
        };
        if self.bytes.trim_ascii().is_empty() {
            return how;
        }
        if stderr == Stderr::Log {
            return format!("{how}; its operator finds what it said in the log");
        }
        let from = self.bytes.len().saturating_sub(TAIL_BYTES);
        let cut = self.cut || from > 0;
        let bytes = &self.bytes[from..];
        // A cut may have split a character.
        let start = if cut { bytes.iter().take_while(|byte| **byte & 0xc0 == 0x80).count() } else { 0 };
        format!("{how}: {}", String::from_utf8_lossy(&bytes[start..]).trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail() -> Tail {
        Tail::new("a".parse().unwrap(), &Quarters::default(), Whose::Turn { task: TaskId::mint(), attempt: 1 })
    }

    #[test]
    fn the_end_of_stderr_is_kept() {
        let mut tail = tail();
        assert_eq!(tail.explain(ExitStatus::from_raw(3 << 8), Stderr::Caller), "exit code 3");
        tail.take("é".repeat(RECORD_BYTES).as_bytes());
        tail.take(b"!\n");
        let text = tail.explain(ExitStatus::from_raw(9), Stderr::Caller);
        assert!(text.starts_with("killed by signal 9: é") && text.ends_with("é!"), "{text}");
        assert!(!text.contains('\u{fffd}'));
        assert!(text.len() < TAIL_BYTES + 40);
        let text = tail.explain(ExitStatus::from_raw(9), Stderr::Log);
        assert_eq!(text, "killed by signal 9; its operator finds what it said in the log");
    }
}
