//! `sb agent logs`: what the programs of an agent wrote to standard error, as the server on this machine keeps it.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use agents::command::{log_before, log_of};
use serde_json::json;
use store::AgentId;

use super::{Common, files::meant};
use crate::{
    config::process_environment,
    failure::Failure,
    output::{self, Format},
};

/// How often the log is looked at while it is followed.
const PERIOD: Duration = Duration::from_millis(200);

#[derive(Debug, clap::Args)]
pub(super) struct Logs {
    /// The agent
    id: String,
    /// Print new lines as they come
    #[arg(short, long)]
    follow: bool,
    /// How many of the last lines to print
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    lines: usize,
    #[command(flatten)]
    common: Common,
}

/// A log that is read as it grows.
struct Reader {
    path: PathBuf,
    /// The file that was read last, and how far.
    inode: Option<u64>,
    at: u64,
}

pub(super) fn run(args: &Logs) -> Result<(), Failure> {
    let id: AgentId = args
        .id
        .parse()
        .map_err(|why: &str| Failure::usage(format!("`{}` is not an agent id", args.id)).because(why))?;
    let settings = args.common.target.settings(&process_environment)?;
    let data_dir = settings.data_dir(&process_environment)?;
    let mut reader = Reader { path: log_of(&data_dir, &id), inode: None, at: 0 };
    let cannot = |error: io::Error| {
        Failure::failed(format!("cannot read the log of agent `{id}`, `{}`", log_of(&data_dir, &id).display()))
            .caused_by(&error)
    };
    let before = read(&log_before(&reader.path)).map_err(cannot)?.unwrap_or_default();
    let now = reader.more().map_err(cannot)?;
    let is_known = || args.common.directory().is_ok_and(|agents| agents.path(&args.id).exists());
    if now.is_none() && !(args.follow && is_known()) {
        let failure = Failure::failed(format!("there is no log of agent `{id}` below `{}`", data_dir.display()));
        return Err(failure.hint(match args.common.directory().ok().filter(|_| !is_known()) {
            Some(agents) => meant(&args.id, &agents.ids()),
            None => "an agent has one once its programs have written to standard error on this machine".to_owned(),
        }));
    }
    let all = before + &now.unwrap_or_default();
    let lines: Vec<&str> = all.lines().collect();
    let mut shown = print(&lines[lines.len().saturating_sub(args.lines)..], args.common.output);
    // What can no longer be printed is not followed.
    while args.follow && shown.is_ok() {
        std::thread::sleep(PERIOD);
        let more = reader.more().map_err(cannot)?.unwrap_or_default();
        shown = print(&more.lines().collect::<Vec<_>>(), args.common.output);
    }
    Ok(())
}

impl Reader {
    /// What was added since the last look; `None` while there is no file.
    fn more(&mut self) -> io::Result<Option<String>> {
        let mut more = String::new();
        let Some(file) = open(&self.path)? else { return Ok(None) };
        let inode = file.metadata()?.ino();
        if self.inode.is_some_and(|known| known != inode) {
            // The rest of the one that was full.
            let before = open(&log_before(&self.path))?
                .filter(|file| file.metadata().is_ok_and(|found| Some(found.ino()) == self.inode));
            if let Some(before) = before {
                more.push_str(&rest(before, self.at)?.0);
            }
            self.at = 0;
        }
        let (text, at) = rest(file, self.at)?;
        more.push_str(&text);
        (self.inode, self.at) = (Some(inode), at);
        Ok(Some(more))
    }
}

/// What stands in a file behind a place, up to the end of its last whole line, and where that is.
fn rest(mut file: File, at: u64) -> io::Result<(String, u64)> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(at))?;
    file.read_to_end(&mut bytes)?;
    bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
    let at = at + bytes.len() as u64;
    Ok((String::from_utf8_lossy(&bytes).into_owned(), at))
}

fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A file's text; `None` where there is no file.
fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn print(lines: &[&str], format: Format) -> io::Result<()> {
    let mut text = String::new();
    for line in lines {
        match format {
            Format::Text => text.push_str(&output::harmless(line)),
            Format::Json => {
                let mut words = line.splitn(3, ' ');
                let mut next = || words.next().unwrap_or_default();
                let (time, task, line) = (next(), next(), next());
                let task = Some(task).filter(|task| *task != "-");
                text.push_str(&json!({"time": time, "task": task, "line": line}).to_string());
            }
        }
        text.push('\n');
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
}
