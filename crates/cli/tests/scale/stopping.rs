//! A server that is told to stop while programs run that do not end in time, and what stopped servers leave behind.

use std::{path::Path, time::Duration};

use serde_json::Value;
use testkit::{postgres::Database, temp_store::TempStore};

use super::http::{Api, answer, artifact_text, is_terminal, state, text, to_at_once};
use crate::chaos::{Fault, Installation, Instances, Job, POLICIES, Programs, begin, connect};

/// How many tasks of each policy run when the server is told to stop.
const EACH: usize = 3;

/// The history of a task.
#[derive(Debug, PartialEq)]
struct Account {
    state: String,
    /// Its status says that it was interrupted.
    interrupted: bool,
    /// The messages that its program was given, at each of its starts.
    given: Vec<String>,
    /// The numbers of the attempts in its log.
    attempts: Vec<u64>,
    /// The message that the program whose output is the task's result was given.
    result: Option<String>,
}

impl Account {
    /// The history that is promised.
    fn new(state: &str, given: &[&str], attempts: &[u64]) -> Self {
        let given: Vec<String> = given.iter().map(|&message| message.to_owned()).collect();
        let is_completed = state == "COMPLETED";
        let result = given.last().filter(|_| is_completed).cloned();
        Self { state: state.to_owned(), interrupted: !is_completed, given, attempts: attempts.to_vec(), result }
    }

    /// Waits until a task has ended or asks something, and reads its history.
    async fn of(job: &Job, programs: &Programs, api: &Api) -> Self {
        let task = api.task_when(&job.id, |state| is_terminal(state) || state == "INPUT_REQUIRED").await;
        let state = state(&task).to_owned();
        let log = api.subscribe(&job.id, Some(0)).await.until(|frame| frame.state() == Some(&state)).await;
        let begun = log.iter().filter(|frame| frame.state() == Some("WORKING"));
        let attempt = |body: &Value| body.pointer("/statusUpdate/metadata/attempt").map_or(Some(1), Value::as_u64);
        let reason = task.pointer("/status/message/parts/0/text").and_then(Value::as_str).unwrap_or_default();
        let printed = serde_json::from_str(&artifact_text(&task)).ok();
        Self {
            state,
            interrupted: reason.starts_with("interrupted"),
            given: programs.starts_of(job),
            attempts: begun.map(|frame| attempt(&frame.body).expect("an attempt is a number")).collect(),
            result: printed.map(|turn: Value| text(&turn, "/message/parts/0/text").to_owned()),
        }
    }
}

/// Stops a server under programs that take much longer than it waits for them, and starts it again. Returns the histories of
/// their tasks, and those that the agents' policies promise.
async fn stop_under_load(installation: Installation) -> (Vec<Account>, Vec<Account>) {
    let programs = Programs::of_each_policy(&installation, 60.0, ("one-slot", "fail", 1, 60.0));
    let mut instances = Instances::start(installation, 1).await;
    let api = instances[0].api();
    let mut jobs = Vec::new();
    let mut expected = Vec::new();
    for policy in POLICIES {
        for n in 0..EACH {
            let message = format!("{policy} {n}");
            jobs.push(begin(&api, policy, &message).await);
            expected.push(match policy {
                "retry" => Account::new("COMPLETED", &[&message, &message], &[1, 2]),
                "fail" => Account::new("FAILED", &[&message], &[1]),
                _ => Account::new("INPUT_REQUIRED", &[&message], &[1]),
            });
        }
    }
    // The task that runs is cut off, the one that waits for the slot is not.
    for message in ["first", "second"] {
        jobs.push(begin(&api, "one-slot", message).await);
    }
    expected.extend([Account::new("FAILED", &["first"], &[1]), Account::new("COMPLETED", &["second"], &[1])]);
    programs.have_started(jobs.len() - 1).await;
    // The programs of the next start are short.
    POLICIES.into_iter().chain(["one-slot"]).for_each(|agent| programs.set_pace(agent, 0.2));
    instances.apply(&Fault::Stop { away: Duration::ZERO }, 0).await;
    let server = &instances[0];
    let mut found = Vec::new();
    for job in &jobs {
        found.push(Account::of(job, &programs, &server.api()).await);
    }
    if found == expected {
        // A yes means the message that was cut off, anything else means itself.
        for (n, reply, meant) in [(6, "yes", "ask 0"), (7, "something else", "something else")] {
            server.api().send(&answer(&jobs[n].id, reply)).await;
            found.push(Account::of(&jobs[n], &programs, &server.api()).await);
            expected.push(Account::new("COMPLETED", &[&format!("ask {}", n - 6), meant], &[1, 1]));
        }
    }
    (found, expected)
}

#[tokio::test]
async fn a_stop_obeys_the_policy_of_each_agent() {
    // What the stores do at a stop is proven in process, by `exchange`, suite `bad_times`.
    let (found, expected) = stop_under_load(Installation::on_sqlite()).await;
    assert_eq!(found, expected);
}

#[tokio::test]
async fn control_a_stop_after_which_everything_runs_again_is_noticed() {
    let (found, expected) = stop_under_load(Installation::on_sqlite().breaking("release-again")).await;
    assert_ne!(found, expected);
    assert!(found.iter().any(|account| account.given.len() > 1 && account.given[0].starts_with("fail")), "{found:#?}");
}

/// The lock files by which others know that an instance lives.
fn locks_in(data_dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(data_dir.join("instances")).expect("every server makes it");
    let names = entries.map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(".lock")).collect()
}

/// Restarts each instance while it has something to do, and stops all. What was sent is done.
async fn restart_and_stop_all(installation: Installation, count: usize) -> Installation {
    let mut instances = Instances::start(installation, count).await;
    let mut sent = Vec::new();
    for n in 0..count {
        for server in instances.servers() {
            sent.push(text(&server.api().send(&to_at_once("slow", "300")).await, "/id").to_owned());
        }
        instances.apply(&Fault::Stop { away: Duration::ZERO }, n).await;
    }
    for id in &sent {
        let ended = instances[0].api().task_when(id, is_terminal).await;
        assert_eq!(state(&ended), "COMPLETED", "{ended:#}");
    }
    instances.stop_all().await
}

#[tokio::test]
async fn servers_that_are_stopped_leave_nothing_behind_on_sqlite() {
    let installation = restart_and_stop_all(Installation::on_sqlite(), 1).await;
    let data_dir = installation.data_dir("a");
    assert_eq!(TempStore::file(&data_dir).look(&["SELECT id FROM instances"]), [const { Vec::<Vec<_>>::new() }]);
    assert_eq!(locks_in(&data_dir), [""; 0]);
}

#[tokio::test]
async fn servers_that_are_stopped_leave_nothing_behind_on_postgres() {
    let database = Database::create();
    let installation = restart_and_stop_all(Installation::on(database.url()), 3).await;
    let left = connect(database.url()).await.query("SELECT id FROM instances", &[]).await.expect("it can be asked");
    assert_eq!(left.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>(), [""; 0]);
    for name in ["a", "b", "c"] {
        assert_eq!(locks_in(&installation.data_dir(name)), [""; 0], "{name}");
    }
}
