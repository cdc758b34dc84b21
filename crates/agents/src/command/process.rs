//! One run of a program: its process group, its pipes and the end of what it complained.

use std::{
    io,
    os::{fd::AsFd, unix::process::ExitStatusExt},
    process::{ExitStatus, Stdio},
    sync::Arc,
};

use a2a::Part;
use exchange::{Outcome, Turn};
use rustix::process::{Pid, Signal, kill_process_group};
use store::{AgentId, TaskId};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::Program;
use crate::guard;

/// The variables of this process that every program gets.
const INHERITED: [&str; 5] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR"];
/// How much of stderr is kept.
const TAIL_BYTES: usize = 4 << 10;

/// A running program. Dropping it kills its group.
pub(super) struct Process {
    child: Child,
    /// The group, until its leader was reaped: after that the number may be somebody else's.
    group: Option<Pid>,
}

/// The last words on stderr.
pub(super) struct Tail {
    bytes: Vec<u8>,
    cut: bool,
    /// A line that is not complete yet, for the log.
    line: Vec<u8>,
    agent: AgentId,
    task: TaskId,
}

impl Process {
    /// Starts the program.
    pub(super) fn spawn(program: &Program, instance: &Arc<str>) -> io::Result<Self> {
        let mut command = Command::new(program.path());
        command
            .args(program.argv.get(1..).unwrap_or_default())
            .current_dir(&program.cwd)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        for name in INHERITED.into_iter().chain(program.pass_env.iter().map(String::as_str)) {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.envs(&program.env).env(guard::MARK, instance.as_ref());
        let child = command.spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        Ok(Self { child, group })
    }

    pub(super) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// The three pipes; once.
    pub(super) fn pipes(&mut self) -> Option<(ChildStdin, ChildStdout, ChildStderr)> {
        Some((self.child.stdin.take()?, self.child.stdout.take()?, self.child.stderr.take()?))
    }

    /// Returns when the program has exited, with what is left of its group killed.
    pub(super) async fn exited(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        // At once after the leader was reaped: its number is not given out again while the group has members.
        self.kill();
        self.group = None;
        status
    }

    /// Asks the group to end.
    pub(super) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Ends the group.
    pub(super) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // A group without members is what was wanted.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Before the child itself is dropped: until then its number cannot be reused. The runtime reaps it.
        self.kill();
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
    pub(super) fn new(turn: &Turn) -> Self {
        Self { bytes: Vec::new(), cut: false, line: Vec::new(), agent: turn.agent.clone(), task: turn.task }
    }

    /// Keeps the end and logs whole lines.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > TAIL_BYTES {
            self.cut = true;
            self.bytes.drain(..self.bytes.len() - TAIL_BYTES);
        }
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        for byte in bytes {
            if *byte != b'\n' && self.line.len() < TAIL_BYTES {
                self.line.push(*byte);
                continue;
            }
            let line = String::from_utf8_lossy(&self.line);
            tracing::debug!(agent.name = %self.agent, task.id = %self.task, "stderr: {line}");
            self.line.clear();
        }
    }

    /// How the program ended, with its last words.
    pub(super) fn explain(&self, status: ExitStatus) -> String {
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => status.to_string(),
        };
        // A cut may have split a character.
        let start = if self.cut { self.bytes.iter().take_while(|byte| **byte & 0xc0 == 0x80).count() } else { 0 };
        let text = String::from_utf8_lossy(&self.bytes[start..]);
        match text.trim() {
            "" => how,
            text => format!("{how}: {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail() -> Tail {
        Tail { bytes: Vec::new(), cut: false, line: Vec::new(), agent: "a".parse().unwrap(), task: TaskId::mint() }
    }

    #[test]
    fn the_end_of_stderr_is_kept() {
        let mut tail = tail();
        assert_eq!(tail.explain(ExitStatus::from_raw(3 << 8)), "exit code 3");
        tail.take("é".repeat(TAIL_BYTES).as_bytes());
        tail.take(b"!\n");
        let text = tail.explain(ExitStatus::from_raw(9));
        assert!(text.starts_with("killed by signal 9: é") && text.ends_with("é!"), "{text}");
        assert!(!text.contains('\u{fffd}'));
        assert!(text.len() < TAIL_BYTES + 40);
    }
}
