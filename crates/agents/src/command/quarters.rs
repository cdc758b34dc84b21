//! Where the programs of an installation live: what starts them, the home of each agent's, and the record of what they complained.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use rustix::fs::OFlags;
use store::{AgentId, TaskId};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::log_writer;

/// How many tasks of an agent have a record; older ones go.
const RECORDS: usize = 200;
/// How large a record may become; what would make it larger takes its place.
const RECORD_BYTES: u64 = 256 << 10;

/// The size of the log of an agent's programs from which on a new one is begun. The one before it is kept.
const LOG_BYTES: u64 = 1 << 20;
/// Where records and logs are, below the data directory.
const RECORD_DIRECTORY: &str = "stderr";
const LOG_DIRECTORY: &str = "logs/agents";

/// How long programs that stay are waited for, whatever their own grace.
const CLOSING: Duration = Duration::from_secs(10);

/// What an installation gives to its programs. The default gives nothing: programs then run as what they are.
#[derive(Debug, Clone, Default)]
pub struct Quarters {
    /// Marks the programs of this instance, see [`crate::guard`].
    pub mark: Arc<str>,
    /// The binary that starts programs, see [`crate::launch`]. Without it they are neither bounded nor isolated.
    pub launcher: Option<PathBuf>,
    /// The installation's own, where there is one: homes and records are below it.
    pub data: Option<PathBuf>,
    /// Where the configuration and the agent files are.
    pub configuration: Vec<PathBuf>,
    /// Those who look after programs that stay.
    pub staff: Staff,
}

/// Those who look after programs that stay: they can be told that all is over, and waited for.
#[derive(Debug, Clone, Default)]
pub struct Staff {
    pub(super) at_work: TaskTracker,
    pub(super) closing: CancellationToken,
}

impl Quarters {
    /// Programs are started by this binary, whose `main` must know [`crate::launch`].
    pub fn launched() -> Self {
        #[cfg(target_os = "linux")]
        let launcher = Some(crate::launch::launcher());
        #[cfg(not(target_os = "linux"))]
        let launcher = None;
        Self { launcher, ..Self::default() }
    }

    /// Asks all programs that stay to end, and waits until they have. Whoever is not gone by then goes with this process.
    pub async fn close(&self) {
        self.staff.closing.cancel();
        self.staff.at_work.close();
        if tokio::time::timeout(CLOSING, self.staff.at_work.wait()).await.is_err() {
            tracing::warn!(programs = self.staff.at_work.len(), "programs do not end");
        }
        self.written().await;
    }

    /// The home of an agent's programs, which nobody else's are given. It is there from the first time on.
    pub(super) fn home(&self, agent: &AgentId) -> io::Result<Option<PathBuf>> {
        let Some(home) = self.home_of(agent) else { return Ok(None) };
        private_directory(&home)?;
        let tmp = home.join("tmp");
        // Its programs can put anything in its place, and none of them is to end all later ones.
        if fs::symlink_metadata(&tmp).is_ok_and(|found| !found.is_dir()) {
            fs::remove_file(&tmp)?;
        }
        private_directory(&tmp)?;
        Ok(Some(home))
    }

    /// Where the home of an agent's programs is, be it there or not.
    pub(super) fn home_of(&self, agent: &AgentId) -> Option<PathBuf> {
        // Programs are told, and go elsewhere.
        let data = std::path::absolute(self.data.as_ref()?).ok()?;
        Some(data.join("programs").join(agent.as_str()))
    }

    /// Adds the standard error of a program to the record of a task, soon: see [`Self::written`].
    pub(super) fn record(&self, agent: &AgentId, name: String, complaint: Vec<u8>) {
        if let Some(data) = &self.data {
            log_writer::record(data, agent, name, complaint);
        }
    }

    /// Adds lines to the log of an agent's programs, see [`log_of`], soon: see [`Self::written`].
    pub(super) fn log(&self, agent: &AgentId, lines: &str) {
        if let Some(data) = &self.data {
            log_writer::log(data, agent, lines);
        }
    }

    /// Returns once all logs and records up to now are written, or the disk takes too long.
    pub(super) async fn written(&self) {
        if self.data.is_some() {
            log_writer::written().await;
        }
    }

    /// What of the installation would be seen by a program of this agent's that may read this.
    pub(super) fn shown_by(&self, path: &Path, agent: &AgentId) -> Option<&Path> {
        let path = resolved(path);
        let is_home = self.home_of(agent).is_some_and(|home| path.starts_with(resolved(&home)));
        let data = self.data.as_deref().filter(|_| !is_home);
        let in_data = data.filter(|data| path.starts_with(resolved(data)));
        let all = data.into_iter().chain(self.configuration.iter().map(PathBuf::as_path));
        in_data.or_else(|| all.into_iter().find(|own| resolved(own).starts_with(&path)))
    }
}

/// The log of an agent's programs, below a data directory: each line that they wrote to standard error behind its time and its task, or
/// `-` where the program takes many turns. It may not be there.
pub fn log_of(data: &Path, agent: &AgentId) -> PathBuf {
    data.join(LOG_DIRECTORY).join(format!("{agent}.log"))
}

/// Where a log is once it was full.
pub fn log_before(log: &Path) -> PathBuf {
    log.with_extension("log.1")
}

/// The record of the standard error of a task's program, if there is one below a data directory.
pub fn record_of(data: &Path, task: TaskId) -> Option<PathBuf> {
    let agents = fs::read_dir(data.join(RECORD_DIRECTORY)).ok()?;
    agents.flatten().map(|agent| agent.path().join(format!("{task}.log"))).find(|record| record.is_file())
}

/// Writes to the record of a task. Programs cannot be given this place, so no link in it is theirs.
pub(super) fn write_record(data: &Path, agent: &AgentId, name: &str, complaint: &[u8]) -> io::Result<()> {
    let directory = data.join(RECORD_DIRECTORY).join(agent.as_str());
    private_directory(&directory)?;
    let path = directory.join(format!("{name}.log"));
    let full = fs::metadata(&path).is_ok_and(|found| found.len() > RECORD_BYTES);
    let mut options = private_file();
    let mut file = if full { options.write(true).truncate(true) } else { options.append(true) }.open(&path)?;
    file.write_all(complaint)?;
    if complaint.last() != Some(&b'\n') {
        file.write_all(b"\n")?;
    }
    forget_oldest(&directory)
}

/// Writes to the log of an agent's programs. A full one takes the place of the one before it first, so that one thread at a time does this.
pub(super) fn write_log(data: &Path, agent: &AgentId, lines: &str) -> io::Result<()> {
    private_directory(&data.join(LOG_DIRECTORY))?;
    let path = log_of(data, agent);
    if fs::metadata(&path).is_ok_and(|found| found.len() + lines.len() as u64 > LOG_BYTES) {
        fs::rename(&path, log_before(&path))?;
    }
    private_file().append(true).open(&path)?.write_all(lines.as_bytes())
}

/// A file that its owner alone can read, and no link.
fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options
}

/// Where a path leads to, as far as it is there.
fn resolved(path: &Path) -> PathBuf {
    let known = path.ancestors().find_map(|above| Some((above, fs::canonicalize(above).ok()?)));
    match known {
        Some((above, real)) => path.strip_prefix(above).map_or_else(|_| path.to_owned(), |below| real.join(below)),
        None => path.to_owned(),
    }
}

fn private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn forget_oldest(directory: &Path) -> io::Result<()> {
    let mut records: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(directory)?.flatten() {
        let changed = entry.metadata().and_then(|found| found.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        records.push((changed, entry.path()));
    }
    let surplus = records.len().saturating_sub(RECORDS);
    records.sort();
    for (_, path) in &records[..surplus] {
        // Another turn of the agent may be doing the same.
        let _ = fs::remove_file(path);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn records_are_private_and_bounded() {
        let data = tempfile::tempdir().unwrap();
        let agent: AgentId = "count".parse().unwrap();
        for _ in 0..2 {
            write_record(data.path(), &agent, "first", b"no such word").unwrap();
        }
        let path = data.path().join("stderr/count/first.log");
        assert_eq!(fs::read_to_string(&path).unwrap(), "no such word\nno such word\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for number in 0..RECORDS + 5 {
            write_record(data.path(), &agent, &number.to_string(), b"x").unwrap();
        }
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), RECORDS);
    }

    #[test]
    fn logs_are_private_and_bounded() {
        let data = tempfile::tempdir().unwrap();
        let agent: AgentId = "count".parse().unwrap();
        let path = log_of(data.path(), &agent);
        let line = format!("{}\n", "x".repeat(999));
        for _ in 0..2500 {
            write_log(data.path(), &agent, &line).unwrap();
        }
        for path in [&path, &log_before(&path)] {
            let found = fs::metadata(path).unwrap();
            assert!(found.len() <= LOG_BYTES && found.permissions().mode() & 0o777 == 0o600, "{found:?}");
        }
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 2);
    }

    #[test]
    fn homes_are_private() {
        let data = tempfile::tempdir().unwrap();
        let quarters = Quarters { data: Some(data.path().to_owned()), ..Quarters::default() };
        let agent: AgentId = "count".parse().unwrap();
        let home = quarters.home(&agent).unwrap().unwrap();
        assert_eq!(fs::metadata(&home).unwrap().permissions().mode() & 0o777, 0o700);
        let shown = |path: &Path| quarters.shown_by(path, &agent).is_some();
        for path in ["..", "", "programs", "programs/other", "stderr", "logs"] {
            assert!(shown(&data.path().join(path)), "{path}");
        }
        assert!(!shown(&home) && !shown(&home.join("tmp")) && !shown(Path::new("/usr")));
        let link = home.join("link");
        std::os::unix::fs::symlink(data.path(), &link).unwrap();
        assert!(shown(&link), "a link is what it leads to");
    }
}
