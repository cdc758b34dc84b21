//! A program that is started for each turn: it is fed, read until it has exited, and nothing of it stays.

use std::{pin::pin, process::ExitStatus};

use a2a::Part;
use async_trait::async_trait;
use exchange::{Agent, Outcome, Output, Turn};
use store::AgentId;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::ChildStdin,
    time::Instant,
};

use super::{
    InputMode, OutputMode, Program, Quarters,
    events::Events,
    input::{Input, input, text_input},
    process::{self, Process, Tail, at, refused, unread},
    text::Text,
};
use crate::units::Size;

/// Bytes taken from the program at once.
const READ_BYTES: usize = 16 << 10;

/// A program that takes one turn and exits.
pub(super) struct OnceAgent {
    pub(super) id: AgentId,
    pub(super) program: Program,
    pub(super) quarters: Quarters,
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

#[async_trait]
impl Agent for OnceAgent {
    async fn run(&self, mut turn: Turn, out: Output) -> Outcome {
        let input = match self.program.input {
            InputMode::Text => text_input(&mut turn, &self.quarters),
            InputMode::Json => input(&mut turn, None, &self.quarters).await,
        };
        let input = match input {
            Ok(input) => input,
            Err(why) => return Outcome::Retry(why),
        };
        let mut process = match Process::spawn(&self.program, &self.id, &self.quarters) {
            Ok(process) => process,
            Err(error) => return refused(&self.program, &error),
        };
        tracing::debug!(agent.name = %turn.agent, task.id = %turn.task, pid = process.id(), "started a program");
        let mut reader = match self.program.output.unwrap_or_default() {
            OutputMode::Text => Reader::Text(Text::default()),
            OutputMode::Events => Reader::Events(Events::default()),
        };
        let mut tail = Tail::of_turn(&turn, &self.quarters);
        let end = self.attend(&mut process, input, &mut reader, &mut tail, &turn, &out).await;
        if let End::Exited(status) = &end
            && let Some(error) = process.refusal(*status, &tail)
        {
            return refused(&self.program, &error);
        }
        tail.record();
        self.quarters.written().await;
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

impl OnceAgent {
    /// Feeds the program and reads it until it has exited and all that it printed is read.
    async fn attend(
        &self,
        process: &mut Process,
        input: Input,
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

/// Writes the input and closes the pipe. A program that does not read it is within its rights.
async fn feed(mut stdin: ChildStdin, input: Input) {
    let _ = input.write_to(&mut stdin).await;
    let _ = stdin.shutdown().await;
}
