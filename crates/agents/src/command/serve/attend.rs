//! Looking after one process that stays: it is fed, read, asked to end when nobody needs it, and made to when it does not.

use std::{io, pin::pin, process::ExitStatus, sync::Arc, time::Duration};

use exchange::Outcome;
use tokio::{io::AsyncReadExt, process::ChildStdin, sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    Pool,
    seats::{Passed, Seats},
    wire,
};
use crate::command::{
    Stderr,
    events::{Lines, excerpt},
    input::Input,
    process::{self, Process, Tail, at, refused, unread},
};

/// Bytes taken from the program at once.
const READ_BYTES: usize = 16 << 10;

/// Who looks after one process.
pub(super) struct Attendant {
    pool: Arc<Pool>,
    seats: Arc<Seats>,
    process: Process,
    lines: Lines,
    tail: Tail,
    /// It was said that the program speaks of turns that it does not have.
    warned: bool,
}

/// How far the program was asked to end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    No,
    /// Its input is closed.
    Kindly,
    Terminated,
    Killed,
}

impl Attendant {
    pub(super) fn new(pool: Arc<Pool>, seats: Arc<Seats>, process: Process) -> Self {
        let tail = Tail::of_program(pool.id.clone(), &pool.quarters);
        Self { pool, seats, process, lines: Lines::default(), tail, warned: false }
    }

    /// Stays until the process is gone, and says what becomes of those who sat there.
    pub(super) async fn attend(mut self, written: mpsc::Receiver<Input>) {
        let pid = self.process.id();
        tracing::info!(agent.name = %self.pool.id, pid, "started the program of agent `{}`, which stays", self.pool.id);
        let (ended, expected) = self.run(written).await;
        self.tail.record();
        let refusal = ended.as_ref().ok().and_then(|status| self.process.refusal(*status, &self.tail));
        let how = match &ended {
            Ok(status) => self.tail.explain(*status, Stderr::Log),
            Err(error) => format!("its end was not seen: {error}"),
        };
        let fate = match &refusal {
            Some(error) => refused(&self.pool.program, error),
            None => Outcome::Crashed(format!("the program died: {how}")),
        };
        if !expected && refusal.is_none() {
            // Before its turns end: whoever hears of that finds the record.
            for (task, attempt) in self.seats.sitting() {
                self.tail.record_for(task, attempt);
            }
        }
        let turns = self.pool.lose(&self.seats, fate, expected || refusal.is_some());
        // Why it was made to has been said.
        if expected || self.seats.broken.is_cancelled() {
            tracing::info!(agent.name = %self.pool.id, pid, turns, "the program of agent `{}` has ended", self.pool.id);
        } else {
            tracing::warn!(agent.name = %self.pool.id, pid, turns, "the program of agent `{}` died: {how}", self.pool.id);
        }
    }

    /// Feeds the program and reads it until it has exited and all that it printed is read. Says how it ended, and whether it was
    /// asked to, for no fault of its own.
    async fn run(&mut self, written: mpsc::Receiver<Input>) -> (io::Result<ExitStatus>, bool) {
        let Some((stdin, mut stdout, mut stderr)) = self.process.pipes() else {
            return (Err(io::Error::other("it has no pipes")), false);
        };
        let (ending, broken) = (self.seats.ending.clone(), self.seats.broken.clone());
        let (grace, idle) = (self.pool.program.grace.0, self.pool.idle);
        let mut feed = pin!(feed(stdin, written, ending.clone()));
        let (mut fed, mut stdout_open, mut stderr_open) = (false, true, true);
        let mut printed = vec![0; READ_BYTES];
        let mut complained = vec![0; READ_BYTES];
        let (mut asked, mut next): (Asked, Option<Instant>) = (Asked::No, None);
        // It does not read any more, or cannot be heard: it is of no use for another turn.
        let mut is_useless = false;
        let mut look_at = Instant::now() + idle;

        let status = loop {
            tokio::select! {
                biased;
                status = self.process.exited() => break status,
                () = broken.cancelled(), if asked != Asked::Killed => {
                    self.process.kill();
                    (asked, next) = (Asked::Killed, Some(Instant::now() + process::KEEPER));
                }
                () = ending.cancelled(), if asked == Asked::No => {
                    (asked, next) = (Asked::Kindly, Some(Instant::now() + grace));
                }
                () = at(next) => (asked, next) = self.press(asked, grace).await,
                () = tokio::time::sleep_until(look_at), if asked == Asked::No => {
                    look_at = self.pool.dismiss_idle(&self.seats);
                }
                () = &mut feed, if !fed => {
                    fed = true;
                    is_useless |= !ending.is_cancelled();
                    ending.cancel();
                }
                read = stdout.read(&mut printed), if stdout_open => {
                    let count = read.unwrap_or(0);
                    stdout_open = count > 0;
                    if !stdout_open {
                        is_useless |= !ending.is_cancelled();
                        ending.cancel();
                    }
                    stdout_open &= self.hear(&printed[..count]).await;
                }
                read = stderr.read(&mut complained), if stderr_open => {
                    let count = read.unwrap_or(0);
                    stderr_open = count > 0;
                    self.tail.take(&complained[..count]);
                }
            }
        };
        // All that the program printed is in the pipes now; see the same place of a program that is started for a turn.
        let mut left = if stdout_open { unread(&stdout) } else { 0 };
        while left > 0 {
            let room = left.min(READ_BYTES);
            let count = stdout.read(&mut printed[..room]).await.unwrap_or(0);
            left = if count == 0 || !self.hear(&printed[..count]).await { 0 } else { left - count };
        }
        let mut left = if stderr_open { unread(&stderr) } else { 0 };
        while left > 0 {
            let room = left.min(READ_BYTES);
            let count = stderr.read(&mut complained[..room]).await.unwrap_or(0);
            self.tail.take(&complained[..count]);
            left = if count == 0 { 0 } else { left - count };
        }
        (status, asked != Asked::No && !is_useless && !broken.is_cancelled())
    }

    /// Asks a program that has not ended once more, and less kindly.
    async fn press(&mut self, asked: Asked, grace: Duration) -> (Asked, Option<Instant>) {
        if asked == Asked::Kindly {
            self.process.terminate();
            return (Asked::Terminated, Some(Instant::now() + grace));
        }
        if asked == Asked::Killed {
            self.process.force().await;
        }
        self.process.kill();
        (Asked::Killed, Some(Instant::now() + process::KEEPER))
    }

    /// Passes on what has come. `false` when nobody can know any more whom the program speaks of.
    async fn hear(&mut self, bytes: &[u8]) -> bool {
        let mut come = bytes;
        loop {
            let line = match self.lines.next(&mut come) {
                Ok(Some(line)) => line,
                Ok(None) => return true,
                Err(why) => return self.break_off(&why),
            };
            let saying = match wire::read(&line) {
                Ok(Some(saying)) => saying,
                Ok(None) => continue,
                Err(why) => {
                    let why = format!("line {}: {why}: {}", self.lines.count(), excerpt(&line));
                    return self.break_off(&why);
                }
            };
            let id = excerpt(saying.id.as_bytes());
            if let Passed::Unknown = self.seats.pass_on(saying).await
                && !std::mem::replace(&mut self.warned, true)
            {
                tracing::warn!(agent.name = %self.pool.id, id, "the program of agent `{}` speaks of a turn that it does not have", self.pool.id);
            }
        }
    }

    /// The program cannot be understood: it goes. What it printed may be about anybody, so that only its operator is told.
    fn break_off(&mut self, why: &str) -> bool {
        tracing::warn!(agent.name = %self.pool.id, pid = self.process.id(), "the program of agent `{}` is ended, since its output names no turn: {why}", self.pool.id);
        self.tail.note(&format!("ended by the server, since its output names no turn: {why}"));
        let fate = "the program printed something that names no turn; its operator finds it in the log";
        self.seats.break_off(Outcome::Crashed(fate.to_owned()));
        false
    }
}

/// Writes lines until the program is to end, and closes its input then. Returns early when the program does not read.
async fn feed(mut stdin: ChildStdin, mut written: mpsc::Receiver<Input>, ending: CancellationToken) {
    loop {
        let line = tokio::select! {
            biased;
            () = ending.cancelled() => return,
            line = written.recv() => line,
        };
        let Some(line) = line else { return };
        tokio::select! {
            biased;
            () = ending.cancelled() => return,
            wrote = line.write_to(&mut stdin) => if wrote.is_err() { return },
        }
    }
}
