//! Workers that ask, wait for the answer and ask again.

use std::{
    cell::Cell,
    rc::Rc,
    time::{Duration, Instant},
};

use client::{
    Error,
    load::{Lane, Prepared, Unread, Work},
};
use serde::Deserialize;
use tokio::task::JoinSet;

use super::{
    Mode, Run,
    report::{Report, Tally, kind},
};
use crate::failure::Failure;

/// An answer that takes longer is none.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// How long a worker that lost its connection waits, so that a dead server is not flooded.
pub(super) const PAUSE: Duration = Duration::from_millis(10);

/// How many tasks are made to be asked for.
const SAMPLES: u64 = 32;

/// What the workers take their next request from.
struct Queue {
    prepared: Vec<Prepared>,
    next: Cell<u64>,
    limit: Option<u64>,
}

/// An operation that worked.
#[derive(Default)]
struct Done {
    first_frame: Option<Duration>,
    frames: u64,
    received: u64,
}

/// Why an operation did not work.
pub(super) struct Broken {
    pub(super) kind: String,
    /// The connection may be of no use.
    pub(super) is_cut: bool,
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self { kind: kind(&error), is_cut: matches!(error, Error::Unreachable { .. }) }
    }
}

/// What counts of an answer: whether it is a message or a task, and in which state.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Told {
    task: Option<Stated>,
    status_update: Option<Stated>,
    message: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Stated {
    #[serde(default)]
    id: String,
    status: Status,
}

#[derive(Deserialize)]
struct Status {
    state: String,
}

pub(super) async fn measure(run: &Rc<Run>) -> Result<Report, Failure> {
    let prepared = match run.mode {
        Mode::Get => {
            let mut prepared = Vec::new();
            for id in sample_tasks(run).await? {
                prepared.push(run.prepare(Work::Get(&id))?);
            }
            prepared
        }
        Mode::List => {
            sample_tasks(run).await?;
            vec![run.prepare(Work::List)?]
        }
        Mode::Stream => vec![run.prepare(Work::Stream(&run.text))?],
        Mode::Send | Mode::Fanout | Mode::Idle | Mode::Queue => vec![run.prepare(Work::Send(&run.text))?],
    };
    let queue = Rc::new(Queue { prepared, next: Cell::new(SAMPLES), limit: run.requests.map(|n| n + SAMPLES) });
    let mut commits = run.commits().await;
    let mut begun = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..run.concurrency {
        workers.spawn_local(work(run.clone(), queue.clone()));
    }
    if run.requests.is_some() {
        while workers.join_next().await.is_some() {}
    } else {
        tokio::time::sleep(run.warmup).await;
        commits = run.commits().await;
        run.tally.replace(Tally::default());
        begun = Instant::now();
        tokio::time::sleep(run.duration).await;
    }
    // What is still under way belongs to no measurement.
    let mut report = run.report("operation", begun.elapsed());
    let now = run.commits().await;
    workers.abort_all();
    if let (Some(commits), Some(now)) = (commits, now) {
        report.commits = now.checked_sub(commits);
    }
    Ok(report)
}

async fn work(run: Rc<Run>, queue: Rc<Queue>) {
    let mut lane = None;
    let mut buffer = Vec::new();
    while let Some(number) = queue.take() {
        let index = usize::try_from(number).unwrap_or(0) % queue.prepared.len();
        let prepared = &queue.prepared[index];
        let begun = Instant::now();
        let asked = ask(&run, &mut lane, &mut buffer, prepared, number, begun);
        let result = match tokio::time::timeout(PATIENCE, asked).await {
            Ok(result) => result,
            Err(_) => Err(Broken { kind: "timeout".to_owned(), is_cut: true }),
        };
        let is_cut = {
            let mut tally = run.tally.borrow_mut();
            tally.sent_bytes += prepared.body_bytes() as u64;
            match result {
                Ok(done) => {
                    tally.done += 1;
                    tally.latency.record(begun.elapsed());
                    if let Some(first) = done.first_frame {
                        tally.first.record(first);
                    }
                    tally.frames += done.frames;
                    tally.received_bytes += done.received;
                    false
                }
                Err(broken) => {
                    tally.failed(broken.kind);
                    broken.is_cut
                }
            }
        };
        if is_cut {
            lane = None;
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl Queue {
    /// The number of the next request, unless all have been made.
    fn take(&self) -> Option<u64> {
        let number = self.next.get();
        if self.limit.is_some_and(|limit| number >= limit) {
            return None;
        }
        self.next.set(number + 1);
        Some(number)
    }
}

async fn ask(
    run: &Run,
    lane: &mut Option<Lane>,
    buffer: &mut Vec<u8>,
    prepared: &Prepared,
    number: u64,
    begun: Instant,
) -> Result<Done, Broken> {
    let connected = match lane {
        Some(connected) => connected,
        None => lane.insert(run.target.connect().await?),
    };
    let mut answer = connected.call(prepared, number).await?;
    if run.mode == Mode::Stream && answer.is_stream {
        return follow(run, &mut answer, begun).await;
    }
    answer.read(buffer).await?;
    let json = answer.decode(buffer)?;
    match run.mode {
        Mode::Send => completed(json.get())?,
        Mode::Stream => return Err(Broken::plain("not a stream")),
        _ => {}
    }
    Ok(Done { received: buffer.len() as u64, ..Done::default() })
}

/// Reads a stream to its end, which has to be that of a turn.
async fn follow(run: &Run, answer: &mut Unread, begun: Instant) -> Result<Done, Broken> {
    let mut parser = run.target.events();
    let mut events = Vec::new();
    let mut last = None;
    let mut done = Done::default();
    while let Some(chunk) = answer.chunk().await? {
        done.received += chunk.len() as u64;
        parser.feed(&chunk, &mut events).map_err(|_| Broken::plain("malformed"))?;
        done.frames += events.len() as u64;
        if done.first_frame.is_none() && !events.is_empty() {
            done.first_frame = Some(begun.elapsed());
        }
        if let Some(event) = events.pop() {
            last = Some(event.data);
        }
        events.clear();
    }
    let last = last.ok_or_else(|| Broken::plain("empty stream"))?;
    completed(answer.decode_event(&last)?.get())?;
    Ok(done)
}

/// Whether the agent has done what it was asked for.
pub(super) fn completed(json: &str) -> Result<(), Broken> {
    let said: Told = serde_json::from_str(json).map_err(|_| Broken::plain("malformed"))?;
    if said.message.is_some() {
        return Ok(());
    }
    let stated = said.task.or(said.status_update).ok_or_else(|| Broken::plain("cut"))?;
    match stated.status.state.as_str() {
        "TASK_STATE_COMPLETED" => Ok(()),
        other => Err(Broken::plain(other)),
    }
}

impl Broken {
    pub(super) fn plain(kind: &str) -> Self {
        Self { kind: kind.to_owned(), is_cut: false }
    }
}

/// Tasks to ask for, one after the other, before anything is measured.
async fn sample_tasks(run: &Run) -> Result<Vec<String>, Failure> {
    let prepared = run.prepare(Work::Send(&run.text))?;
    let mut lane = run.target.connect().await?;
    let mut ids = Vec::new();
    for number in 0..SAMPLES {
        ids.push(send_one(&mut lane, &prepared, number).await?);
    }
    Ok(ids)
}

/// Sends one message and gives the id of its task.
pub(super) async fn send_one(lane: &mut Lane, prepared: &Prepared, number: u64) -> Result<String, Failure> {
    let mut buffer = Vec::new();
    let mut answer = lane.call(prepared, number).await?;
    answer.read(&mut buffer).await?;
    let json = answer.decode(&buffer)?;
    let said: Told = serde_json::from_str(json.get())
        .map_err(|error| Failure::failed("the answer to a message cannot be read").caused_by(&error))?;
    match said.task {
        Some(task) if !task.id.is_empty() => Ok(task.id),
        _ => Err(Failure::failed("the agent answered with a message where a task was needed")
            .hint("name an agent that makes tasks with --agent")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(json: &str) -> String {
        completed(json).map_or_else(|broken| broken.kind, |()| "done".to_owned())
    }

    #[test]
    fn only_completed_work_counts() {
        assert_eq!(verdict(r#"{"task":{"id":"t","status":{"state":"TASK_STATE_COMPLETED"}}}"#), "done");
        assert_eq!(verdict(r#"{"statusUpdate":{"taskId":"t","status":{"state":"TASK_STATE_COMPLETED"}}}"#), "done");
        assert_eq!(verdict(r#"{"message":{"parts":[]}}"#), "done");
        assert_eq!(verdict(r#"{"task":{"id":"t","status":{"state":"TASK_STATE_FAILED"}}}"#), "TASK_STATE_FAILED");
        assert_eq!(verdict(r#"{"artifactUpdate":{}}"#), "cut");
        assert_eq!(verdict("[]"), "cut");
        assert_eq!(verdict("{"), "malformed");
    }

    #[test]
    fn a_queue_gives_each_number_once() {
        let queue = Queue { prepared: Vec::new(), next: Cell::new(3), limit: Some(5) };
        assert_eq!((queue.take(), queue.take(), queue.take()), (Some(3), Some(4), None));
    }
}
