//! Programs that write down each of their starts, and a check that a fault has disturbed none of them.

use std::{
    fmt,
    path::PathBuf,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    Installation, PATIENCE,
    http::{Api, is_terminal, state, text, to_at_once},
    sse::Frame,
};

/// What an agent can do about a turn that was cut off (`on_crash`).
pub(crate) const POLICIES: [&str; 3] = ["retry", "fail", "ask"];

/// Writes down its input, waits, and prints its input.
const SCRIPT: &str = r#"input=$(cat)
seconds=$(cat "$0.seconds")
printf '%s\n' "$input" >> "$(dirname "$0")/starts"
sleep "$seconds"
printf '%s' "$input"
"#;

/// The programs of one installation, and the directory that they write to.
pub(crate) struct Programs(PathBuf);

/// A task of a program.
pub(crate) struct Job {
    pub(crate) id: String,
    agent: String,
}

impl Programs {
    /// Adds agents of these names and policies, of which so many run at once and take so many seconds.
    pub(crate) fn of(installation: &Installation, agents: &[(&str, &str, usize, f32)]) -> Self {
        // The server does not watch this directory.
        let programs = Self(installation.home.path(".config/switchboard/programs"));
        for (name, policy, concurrency, seconds) in agents {
            let settings = format!("on_crash = \"{policy}\"\nconcurrency = {concurrency}");
            installation.add_script(name, &settings, SCRIPT);
            programs.set_pace(name, *seconds);
        }
        std::fs::write(programs.starts_file(), "").expect("a file can be written");
        programs
    }

    /// Adds an agent of each policy with its name, whose program takes so many seconds, and another one.
    pub(crate) fn of_each_policy(installation: &Installation, seconds: f32, other: (&str, &str, usize, f32)) -> Self {
        let [retry, fail, ask] = POLICIES.map(|policy| (policy, policy, 32, seconds));
        Self::of(installation, &[retry, fail, ask, other])
    }

    /// Sets how many seconds the program takes from its next start on.
    pub(crate) fn set_pace(&self, name: &str, seconds: f32) {
        std::fs::write(self.0.join(format!("{name}.sh.seconds")), seconds.to_string()).expect("it can be written");
    }

    /// The input of each start, in their order.
    pub(crate) fn starts(&self) -> Vec<Value> {
        let all = std::fs::read_to_string(self.starts_file()).expect("it is there");
        all.lines().map(|line| serde_json::from_str(line).expect("a turn is JSON")).collect()
    }

    /// The text of the message of each start of this task.
    pub(crate) fn starts_of(&self, job: &Job) -> Vec<String> {
        let starts = self.starts();
        let starts = starts.iter().filter(|start| start["task"] == *job.id);
        starts.map(|start| text(start, "/message/parts/0/text").to_owned()).collect()
    }

    /// Waits until there were so many starts in all.
    pub(crate) async fn have_started(&self, count: usize) {
        let begun = Instant::now();
        while self.starts().len() < count {
            assert!(begun.elapsed() < PATIENCE, "{} of {count} were started", self.starts().len());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits for the end of each task, or for its question. Returns all that must not happen to a turn that was not ended on
    /// purpose: another start, another attempt, another end than that of its program.
    pub(crate) async fn disturbances(&self, api: &Api, jobs: &[Job]) -> Vec<String> {
        let mut found = Vec::new();
        for job in jobs {
            let ended = api.task_when(&job.id, |state| is_terminal(state) || state == "INPUT_REQUIRED").await;
            if state(&ended) == "COMPLETED" {
                let log = api.subscribe(&job.id, Some(0)).await.rest().await;
                let attempts = attempts(&log);
                if attempts != 1 {
                    found.push(format!("{job} was begun {attempts} times"));
                }
                if log.iter().any(|frame| frame.body.to_string().to_lowercase().contains("interrupted")) {
                    found.push(format!("{job} was interrupted"));
                }
            } else {
                found.push(format!("{job} is {} ({})", state(&ended), ended["status"]["message"]["parts"]));
            }
            let starts = self.starts_of(job).len();
            if starts != 1 {
                found.push(format!("{job}: its program was started {starts} times"));
            }
        }
        found
    }

    fn starts_file(&self) -> PathBuf {
        self.0.join("starts")
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of `{}`", self.id, self.agent)
    }
}

/// Sends a message to a program.
pub(crate) async fn begin(api: &Api, agent: &str, message: &str) -> Job {
    let task = api.send(&to_at_once(agent, message)).await;
    Job { id: text(&task, "/id").to_owned(), agent: agent.to_owned() }
}

/// The number of attempts in the log of a task.
pub(crate) fn attempts(log: &[Frame]) -> usize {
    log.iter().filter(|frame| frame.state() == Some("WORKING")).count()
}
