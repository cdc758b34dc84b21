//! The thread that writes logs and records of programs, so that nobody else waits for the disk.
//!
//! Each agent has a batch of lines in the queue, which grows until it is written. The batches of all agents take turns, and each is
//! bounded: lines of a program that is faster than the disk are left out and counted.

use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
    sync::{LazyLock, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use store::AgentId;
use tokio::sync::oneshot;

use super::quarters::{write_log, write_record};

/// Bytes of one agent's lines that wait to be written.
const WAITING_BYTES: usize = 256 << 10;
/// Records that wait to be written; further ones are left out.
const WAITING_RECORDS: usize = 256;
/// Longest time that the end of a turn waits for the disk.
const PATIENCE: Duration = Duration::from_secs(5);
/// Shortest time between two warnings of the server's log that the disk refuses.
const WARN_EVERY: Duration = Duration::from_secs(60);

static QUEUE: Mutex<VecDeque<Job>> = Mutex::new(VecDeque::new());

/// Wakes the thread. `None` where it cannot be started.
static WRITER: LazyLock<Option<mpsc::SyncSender<()>>> = LazyLock::new(|| {
    let (wake, woken) = mpsc::sync_channel(1);
    let started = thread::Builder::new().name("program-logs".to_owned()).spawn(move || write_all(&woken));
    if let Err(error) = &started {
        tracing::error!(%error, "cannot start the thread that writes the logs of programs");
    }
    started.is_ok().then_some(wake)
});

enum Job {
    Log {
        data: PathBuf,
        agent: AgentId,
        lines: Lines,
    },
    Record {
        data: PathBuf,
        agent: AgentId,
        name: String,
        complaint: Vec<u8>,
    },
    /// Tells that all jobs before it are done.
    Tell(oneshot::Sender<()>),
}

/// Lines that wait to be written.
#[derive(Default)]
struct Lines {
    text: String,
    left_out: usize,
}

/// Limits warnings to one in [`WARN_EVERY`].
#[derive(Default)]
struct Warnings(Option<Instant>);

/// Adds lines to the log of an agent's programs.
pub(super) fn log(data: &Path, agent: &AgentId, lines: &str) {
    let mut queue = queue();
    let waiting = queue.iter_mut().find_map(|job| match job {
        Job::Log { data: its_data, agent: its_agent, lines } if its_agent == agent && its_data == data => Some(lines),
        _ => None,
    });
    if let Some(waiting) = waiting {
        return waiting.add(lines);
    }
    let mut waiting = Lines::default();
    waiting.add(lines);
    push(queue, Job::Log { data: data.to_owned(), agent: agent.clone(), lines: waiting });
}

/// Adds to the record of a task.
pub(super) fn record(data: &Path, agent: &AgentId, name: String, complaint: Vec<u8>) {
    let queue = queue();
    if queue.iter().filter(|job| matches!(job, Job::Record { .. })).count() >= WAITING_RECORDS {
        return;
    }
    push(queue, Job::Record { data: data.to_owned(), agent: agent.clone(), name, complaint });
}

/// Returns once all that was added before is written, or the disk takes too long.
pub(super) async fn written() {
    let (tell, told) = oneshot::channel();
    {
        let mut queue = queue();
        queue.retain(|job| !matches!(job, Job::Tell(tell) if tell.is_closed()));
        push(queue, Job::Tell(tell));
    }
    let _ = tokio::time::timeout(PATIENCE, told).await;
}

fn queue() -> MutexGuard<'static, VecDeque<Job>> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn push(mut queue: MutexGuard<'static, VecDeque<Job>>, job: Job) {
    let Some(writer) = &*WRITER else { return };
    queue.push_back(job);
    drop(queue);
    // Where it is full, the thread is about to look at the queue.
    let _ = writer.try_send(());
}

/// Does all jobs, the oldest first.
fn write_all(woken: &mpsc::Receiver<()>) {
    let mut warnings = Warnings::default();
    loop {
        // The queue is open to others while a job is done.
        let next = queue().pop_front();
        let Some(job) = next else {
            if woken.recv().is_err() {
                return;
            }
            continue;
        };
        match job {
            Job::Log { data, agent, lines } => {
                let done = write_log(&data, &agent, &lines.finish());
                warnings.tell(&agent, done, "cannot write to the log of the agent's programs");
            }
            Job::Record { data, agent, name, complaint } => {
                let done = write_record(&data, &agent, &name, &complaint);
                warnings.tell(&agent, done, "cannot keep what a program complained");
            }
            Job::Tell(tell) => {
                let _ = tell.send(());
            }
        }
    }
}

impl Lines {
    fn add(&mut self, lines: &str) {
        if self.left_out > 0 || self.text.len() + lines.len() > WAITING_BYTES {
            self.left_out += lines.lines().count();
        } else {
            self.text.push_str(lines);
        }
    }

    fn finish(mut self) -> String {
        if self.left_out > 0 {
            let (now, left_out) = (store::clock::now(), self.left_out);
            self.text.push_str(&format!(
                "{now} - {left_out} lines are left out: they came faster than the disk takes them\n"
            ));
        }
        self.text
    }
}

impl Warnings {
    fn tell(&mut self, agent: &AgentId, done: io::Result<()>, what: &str) {
        if let Err(error) = done
            && self.is_due(Instant::now())
        {
            tracing::warn!(agent.name = %agent, error = %error, "{what}");
        }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.0.is_none_or(|told| now.duration_since(told) >= WARN_EVERY);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        io::{BufRead, BufReader, Read},
    };

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;
    use crate::command::{Quarters, log_of};

    /// A log on a disk that answers only once the log is read.
    struct Stuck {
        data: tempfile::TempDir,
        quarters: Quarters,
        agent: AgentId,
        log: PathBuf,
    }

    impl Stuck {
        fn new() -> Self {
            let data = tempfile::tempdir().unwrap();
            let quarters = Quarters { data: Some(data.path().to_owned()), ..Quarters::default() };
            let agent: AgentId = "count".parse().unwrap();
            let log = log_of(data.path(), &agent);
            fs::create_dir_all(log.parent().unwrap()).unwrap();
            mkfifoat(CWD, &log, Mode::from_raw_mode(0o600)).unwrap();
            Self { data, quarters, agent, log }
        }

        /// Logs from a thread of its own, which has to come to its end.
        fn log(&self, lines: impl Iterator<Item = String> + Send + 'static) {
            let (quarters, agent) = (self.quarters.clone(), self.agent.clone());
            let (said, all_said) = mpsc::channel();
            thread::spawn(move || {
                lines.for_each(|line| quarters.log(&agent, &line));
                said.send(()).unwrap();
            });
            all_said.recv_timeout(Duration::from_secs(10)).expect("nobody waits for the disk");
        }
    }

    #[test]
    fn a_disk_that_does_not_answer_keeps_nobody_and_the_order_of_lines_stays() {
        let stuck = Stuck::new();
        stuck.log((0..100).map(|number| format!("{number}\n")));
        let log = BufReader::new(File::open(&stuck.log).unwrap());
        let lines: Vec<String> = log.lines().map(Result::unwrap).take(100).collect();
        assert_eq!(lines, (0..100).map(|number| number.to_string()).collect::<Vec<_>>());
        assert!(stuck.data.path().exists());
    }

    #[test]
    fn lines_that_wait_are_bounded_and_those_left_out_are_counted() {
        let stuck = Stuck::new();
        let line = format!("{}\n", "x".repeat(1023));
        stuck.log((0..2000).map(move |_| line.clone()));
        let mut text = Vec::new();
        let mut log = File::open(&stuck.log).unwrap();
        let mut piece = vec![0; 64 << 10];
        while !text.ends_with(b"disk takes them\n") {
            let count = log.read(&mut piece).unwrap();
            assert!(count > 0, "it ends without a word of those left out");
            text.extend_from_slice(&piece[..count]);
        }
        let text = String::from_utf8(text).unwrap();
        // One batch is being written, and one waits.
        assert!(text.len() <= 2 * WAITING_BYTES + 200, "{}", text.len());
        let kept = text.lines().filter(|line| line.starts_with('x')).count();
        assert!(
            text.ends_with(&format!(
                "- {} lines are left out: they came faster than the disk takes them\n",
                2000 - kept
            ))
        );
    }

    #[tokio::test]
    async fn all_that_was_said_can_be_read_once_it_is_written() {
        let data = tempfile::tempdir().unwrap();
        let quarters = Quarters { data: Some(data.path().to_owned()), ..Quarters::default() };
        let agents: Vec<AgentId> = ["one", "two"].map(|id| id.parse().unwrap()).into();
        for number in 0..200 {
            for agent in &agents {
                quarters.log(agent, &format!("{number}\n"));
            }
        }
        quarters.record(&agents[0], "task".to_owned(), b"why".to_vec());
        quarters.written().await;
        let all: String = (0..200).map(|number| format!("{number}\n")).collect();
        for agent in &agents {
            assert_eq!(fs::read_to_string(log_of(data.path(), agent)).unwrap(), all);
        }
        assert_eq!(fs::read_to_string(data.path().join("stderr/one/task.log")).unwrap(), "why\n");
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_turn_waits_for_a_disk_that_does_not_answer_only_so_long() {
        let stuck = Stuck::new();
        stuck.log(["first\n".to_owned()].into_iter());
        for number in 0..2 * WAITING_RECORDS {
            stuck.quarters.record(&stuck.agent, number.to_string(), b"why".to_vec());
        }
        for _ in 0..10 {
            stuck.quarters.written().await;
        }
        // The records, the log if the thread has not begun with it, and the last one who waited.
        assert!(queue().len() <= WAITING_RECORDS + 2, "{}", queue().len());
        drop(File::open(&stuck.log).unwrap());
    }

    #[test]
    fn a_full_disk_is_told_of_once_a_minute() {
        let (mut warnings, start) = (Warnings::default(), Instant::now());
        let told = (0..1000).filter(|n| warnings.is_due(start + Duration::from_millis(100) * *n)).count();
        assert_eq!(told, 2);
    }
}
