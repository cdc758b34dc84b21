//! What a program reads: one object a turn, on one line. A large one waits on disk until the program reads it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    sync::Arc,
};

use a2a::{JsonObject, Message};
use exchange::{Turn, heavy, size_of};
use serde::Serialize;
use serde_json::value::RawValue;
use store::TaskId;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::Quarters;

/// The most bytes that wait in memory.
const IN_MEMORY: usize = 64 << 10;
/// Bytes that are read from disk at once.
const CHUNK: usize = 64 << 10;

/// What the program reads on its standard input.
#[derive(Serialize)]
struct Object<'a> {
    /// What it answers with, where it stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    agent: &'a str,
    task: String,
    context: &'a str,
    message: &'a Message,
    history: &'a [Message],
    context_history: &'a [Message],
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a JsonObject>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    accepted_output_modes: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    extensions: &'a [String],
    /// What the program has kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'a RawValue>,
}

/// A line that a program has not read yet.
pub(super) enum Input {
    Memory(Vec<u8>),
    /// A file without a name.
    Disk(Arc<File>),
}

/// A line that is being written.
struct Writer<'a> {
    quarters: &'a Quarters,
    memory: Vec<u8>,
    disk: Option<BufWriter<File>>,
}

/// The object on the program's standard input, on one line. A program that stays is told which turn it is. The turn's message and what was
/// said before it leave the memory with that.
pub(super) async fn input(turn: &mut Turn, id: Option<&str>, quarters: &Quarters) -> Result<Input, String> {
    let input = encode(turn, id, quarters).await?;
    turn.release_message();
    Ok(input)
}

/// The text of the message on the program's standard input, and nothing else.
pub(super) fn text_input(turn: &mut Turn, quarters: &Quarters) -> Result<Input, String> {
    let written = heavy(size_of(&turn.message), || {
        let mut writer = Writer { quarters, memory: Vec::new(), disk: None };
        writer.write_all(turn.text().as_bytes())?;
        writer.finish()
    });
    turn.release_message();
    written.map_err(|error| format!("the message cannot be prepared for the program: {error}"))
}

async fn encode(turn: &Turn, id: Option<&str>, quarters: &Quarters) -> Result<Input, String> {
    let past = turn.past().await;
    let (history, context_history) = past.map_err(|error| format!("the task's history cannot be read: {error}"))?;
    let object = Object {
        id,
        agent: turn.agent.as_str(),
        task: turn.task.to_string(),
        context: &turn.context,
        message: &turn.message,
        history: &history,
        context_history: &context_history,
        attempt: turn.attempt,
        metadata: turn.request.metadata.as_ref(),
        accepted_output_modes: &turn.request.accepted_output_modes,
        extensions: &turn.request.extensions,
        // Programs keep JSON.
        state: turn.state.as_ref().and_then(|state| serde_json::from_slice(state).ok()),
    };
    let bytes = size_of(&turn.message) + history.iter().chain(&context_history).map(size_of).sum::<usize>();
    let written = heavy(bytes, || {
        let mut writer = Writer { quarters, memory: Vec::new(), disk: None };
        serde_json::to_writer(&mut writer, &object)?;
        writer.write_all(b"\n")?;
        writer.finish()
    });
    written.map_err(|error| format!("the message cannot be prepared for the program: {error}"))
}

impl Writer<'_> {
    fn finish(self) -> io::Result<Input> {
        Ok(match self.disk {
            Some(disk) => Input::Disk(Arc::new(disk.into_inner().map_err(io::IntoInnerError::into_error)?)),
            None => Input::Memory(self.memory),
        })
    }
}

impl Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(disk) = &mut self.disk {
            return disk.write(bytes);
        }
        if self.memory.len() + bytes.len() <= IN_MEMORY {
            self.memory.extend_from_slice(bytes);
            return Ok(bytes.len());
        }
        let mut disk = BufWriter::with_capacity(CHUNK, unnamed_file(self.quarters)?);
        disk.write_all(&std::mem::take(&mut self.memory))?;
        self.disk.insert(disk).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.disk.as_mut().map_or(Ok(()), Write::flush)
    }
}

/// A file that goes with its last handle. In the data directory, since elsewhere it may be in memory after all.
fn unnamed_file(quarters: &Quarters) -> io::Result<File> {
    let directory = quarters.data.clone().unwrap_or_else(std::env::temp_dir);
    fs::create_dir_all(&directory)?;
    let path = directory.join(format!(".input-{}", TaskId::mint()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

impl Input {
    /// Writes the line as fast as it is read.
    pub(super) async fn write_to(&self, program: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let file = match self {
            Self::Memory(line) => return program.write_all(line).await,
            Self::Disk(file) => file,
        };
        let (mut chunk, mut at) = (vec![0; CHUNK], 0);
        loop {
            let file = Arc::clone(file);
            let read = tokio::task::spawn_blocking(move || {
                let count = file.read_at(&mut chunk, at);
                (chunk, count)
            });
            let (read, count) = read.await.map_err(io::Error::other)?;
            chunk = read;
            match count? {
                0 => return Ok(()),
                count => {
                    program.write_all(&chunk[..count]).await?;
                    at += count as u64;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(bytes: usize) -> (Input, tempfile::TempDir) {
        let data = tempfile::tempdir().unwrap();
        let quarters = Quarters { data: Some(data.path().to_owned()), ..Quarters::default() };
        let mut writer = Writer { quarters: &quarters, memory: Vec::new(), disk: None };
        for n in 0..bytes {
            writer.write_all(&[b'a' + u8::try_from(n % 26).unwrap()]).unwrap();
        }
        (writer.finish().unwrap(), data)
    }

    #[tokio::test]
    async fn large_input_waits_on_disk_and_is_the_same() {
        for (bytes, on_disk) in [(0, false), (IN_MEMORY, false), (IN_MEMORY + 1, true), (3 * CHUNK + 7, true)] {
            let (input, data) = written(bytes);
            assert_eq!(matches!(input, Input::Disk(_)), on_disk, "{bytes}");
            assert_eq!(std::fs::read_dir(data.path()).unwrap().count(), 0, "the file has no name");
            let mut read = Vec::new();
            input.write_to(&mut read).await.unwrap();
            assert_eq!(read.len(), bytes);
            assert!(read.iter().enumerate().all(|(n, byte)| usize::from(byte - b'a') == n % 26));
        }
    }
}
