//! Programs that leave a trace: how often each was started and with which message, and what its task's log says.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    http::{Api, is_terminal, state, text, to_at_once},
    rig::{PATIENCE, Setting},
    sse::Frame,
};

/// What can be done about a turn that was cut off. An agent of this policy has its name.
pub(crate) const POLICIES: [&str; 3] = ["retry", "fail", "ask"];

/// Says that it was started, and with what, waits, and gives back what it was given.
const SCRIPT: &str = r#"input=$(cat)
seconds=$(cat "$2")
printf '%s\n' "$input" >> "$1"
sleep "$seconds"
printf '%s' "$input"
"#;

/// The programs of one installation.
pub(crate) struct Programs {
    agents: PathBuf,
    dir: PathBuf,
}

/// A task of a program.
pub(crate) struct Job {
    pub(crate) id: String,
    agent: String,
}

impl Programs {
    /// None yet. Files that programs write are not among those that the server watches.
    pub(crate) fn of(setting: &Setting) -> Self {
        let agents = setting.agents_dir();
        let dir = agents.with_file_name("programs");
        for dir in [&agents, &dir] {
            std::fs::create_dir_all(dir).expect("a directory can be made");
        }
        write(&dir.join("program.sh"), SCRIPT);
        let programs = Self { agents, dir };
        write(&programs.starts_file(), "");
        programs
    }

    /// One agent of each policy, whose program takes so many seconds.
    pub(crate) fn of_each_policy(setting: &Setting, seconds: f32) -> Self {
        let programs = Self::of(setting);
        for policy in POLICIES {
            programs.add(policy, policy, 32, seconds);
        }
        programs
    }

    /// An agent.
    pub(crate) fn add(&self, name: &str, policy: &str, concurrency: usize, seconds: f32) {
        self.set_pace(name, seconds);
        let (script, starts) = (self.dir.join("program.sh"), self.starts_file());
        let argv = [Path::new("sh"), &script, &starts, &self.pace_file(name)];
        let argv: Vec<String> = argv.iter().map(|argument| format!("{:?}", argument.display().to_string())).collect();
        let file = format!(
            "kind = \"command\"\non_crash = \"{policy}\"\nconcurrency = {concurrency}\n[command]\nargv = [{}]\n",
            argv.join(", ")
        );
        write(&self.agents.join(format!("{name}.toml")), &file);
    }

    /// From its next start on the program of this agent takes so many seconds.
    pub(crate) fn set_pace(&self, name: &str, seconds: f32) {
        write(&self.pace_file(name), &seconds.to_string());
    }

    /// What each start was given, in their order.
    pub(crate) fn starts(&self) -> Vec<Value> {
        let all = std::fs::read_to_string(self.starts_file()).expect("it is there");
        all.lines().map(|line| serde_json::from_str(line).expect("a turn is JSON")).collect()
    }

    /// The texts of the messages that the starts of this task were given.
    pub(crate) fn starts_of(&self, job: &Job) -> Vec<String> {
        let starts = self.starts();
        let starts = starts.iter().filter(|start| start["task"] == *job.id);
        starts.map(|start| text(start, "/message/parts/0/text").to_owned()).collect()
    }

    /// Waits until so many were started in all.
    pub(crate) async fn have_started(&self, count: usize) {
        let begun = Instant::now();
        while self.starts().len() < count {
            assert!(begun.elapsed() < PATIENCE, "{} of {count} were started", self.starts().len());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits for each of these to come to an end, or to a question, and says what happened to it that should not happen
    /// to a turn that nobody has ended: another start, another attempt, another end than its own.
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
        self.dir.join("starts")
    }

    fn pace_file(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.seconds"))
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of `{}`", self.id, self.agent)
    }
}

/// Sends a program a message.
pub(crate) async fn begin(api: &Api, agent: &str, message: &str) -> Job {
    let task = api.send(&to_at_once(agent, message)).await;
    Job { id: text(&task, "/id").to_owned(), agent: agent.to_owned() }
}

/// How often a turn was begun, by the log of its task.
pub(crate) fn attempts(log: &[Frame]) -> usize {
    log.iter().filter(|frame| frame.state() == Some("WORKING")).count()
}

fn write(file: &Path, text: &str) {
    std::fs::write(file, text).expect("a file can be written");
}
