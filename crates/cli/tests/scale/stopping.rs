//! A server that is told to stop while programs run that do not end in time, and what a server leaves behind.

use std::path::Path;

use serde_json::Value;
use testkit::{postgres::Database, temp_store::TempStore};

use super::{
    http::{Api, answer, artifact_text, is_terminal, state, text, to_at_once},
    postgres::connect,
    programs::{Job, POLICIES, Programs, begin},
    rig::{Server, Setting},
};

/// How many tasks of each policy run when the server is told to stop.
const EACH: usize = 3;

/// What became of a task.
#[derive(Debug, PartialEq)]
struct Account {
    state: String,
    /// Its status says that it was interrupted.
    interrupted: bool,
    /// The messages that its program was given, at each of its starts.
    given: Vec<String>,
    /// The numbers of the attempts that its log speaks of.
    attempts: Vec<u64>,
    /// The message that the program whose output is the task's result was given.
    result: Option<String>,
}

impl Account {
    /// As it should be.
    fn new(state: &str, given: &[&str], attempts: &[u64]) -> Self {
        let given: Vec<String> = given.iter().map(|&message| message.to_owned()).collect();
        let is_completed = state == "COMPLETED";
        let result = given.last().filter(|_| is_completed).cloned();
        Self { state: state.to_owned(), interrupted: !is_completed, given, attempts: attempts.to_vec(), result }
    }

    /// Waits until a task is over or asks something, and takes a look at it.
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

/// Stops a server under programs that take much longer than it waits for them, and starts it again. Gives what became of their
/// tasks, and what the agents' policies say about that.
async fn stop_under_load(setting: Setting) -> (Vec<Account>, Vec<Account>) {
    let programs = Programs::of_each_policy(&setting, 60.0);
    programs.add("line", "fail", 1, 60.0);
    let mut server = setting.start("a").await;
    let api = server.api();
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
    // Who ran is cut off, who waited in line is not.
    for message in ["first", "second"] {
        jobs.push(begin(&api, "line", message).await);
    }
    expected.extend([Account::new("FAILED", &["first"], &[1]), Account::new("COMPLETED", &["second"], &[1])]);
    programs.have_started(jobs.len() - 1).await;
    assert!(server.ends_well().await, "a stop is no failure");

    POLICIES.into_iter().chain(["line"]).for_each(|agent| programs.set_pace(agent, 0.2));
    let server = setting.start("a").await;
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
async fn a_stop_obeys_the_policy_of_each_agent_on_sqlite() {
    let (found, expected) = stop_under_load(Setting::on_a_file()).await;
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_stop_obeys_the_policy_of_each_agent_on_postgres() {
    let database = Database::create();
    let (found, expected) = stop_under_load(Setting::on(database.url())).await;
    assert_eq!(found, expected);
}

#[tokio::test]
async fn control_a_stop_after_which_everything_runs_again_is_noticed() {
    let (found, expected) = stop_under_load(Setting::on_a_file().with_fault(Some("release-again"))).await;
    assert_ne!(found, expected);
    assert!(found.iter().any(|account| account.given.len() > 1 && account.given[0].starts_with("fail")), "{found:#?}");
}

/// The proofs of life in a data directory.
fn locks_in(data_dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(data_dir.join("instances")).expect("every server makes it");
    let names = entries.map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(".lock")).collect()
}

/// Restarts each server while it has something to do, and stops all. What was sent is done.
async fn restart_and_stop_all<const N: usize>(setting: &Setting) {
    let mut servers: [Server; N] = setting.start_all().await;
    let mut sent = Vec::new();
    for n in 0..N {
        for server in &servers {
            sent.push(text(&server.api().send(&to_at_once("slow", "300")).await, "/id").to_owned());
        }
        assert!(servers[n].ends_well().await, "a stop is no failure");
        servers[n] = setting.start(["a", "b", "c"][n]).await;
    }
    for id in &sent {
        let ended = servers[0].api().task_when(id, is_terminal).await;
        assert_eq!(state(&ended), "COMPLETED", "{ended:#}");
    }
    for server in &mut servers {
        assert!(server.ends_well().await, "a stop is no failure");
    }
}

#[tokio::test]
async fn servers_that_are_stopped_leave_nothing_of_themselves_on_sqlite() {
    let setting = Setting::on_a_file();
    restart_and_stop_all::<1>(&setting).await;
    let data_dir = setting.data_dir("a");
    assert_eq!(TempStore::file(&data_dir).look(&["SELECT id FROM instances"]), [const { Vec::<Vec<_>>::new() }]);
    assert_eq!(locks_in(&data_dir), [""; 0]);
}

#[tokio::test]
async fn servers_that_are_stopped_leave_nothing_of_themselves_on_postgres() {
    let database = Database::create();
    let setting = Setting::on(database.url());
    restart_and_stop_all::<3>(&setting).await;
    let left = connect(database.url()).await.query("SELECT id FROM instances", &[]).await.expect("it can be asked");
    assert_eq!(left.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>(), [""; 0]);
    for name in ["a", "b", "c"] {
        assert_eq!(locks_in(&setting.data_dir(name)), [""; 0], "{name}");
    }
}
