//! Entries of a queue: as many messages to the agent first, for comparison, then all entries are published, then workers take
//! and acknowledge them one by one.
//!
//! The queue is the run's own, so that nothing else is in it; no agent has to be there for it.

use std::{
    cell::Cell,
    rc::Rc,
    time::{Duration, Instant},
};

use client::load::{Lane, Prepared, Work};
use serde::Deserialize;
use tokio::task::JoinSet;

use super::{
    Run,
    closed_loop::{Broken, PATIENCE, PAUSE, completed},
    report::{Latencies, Phase, Report},
};
use crate::failure::Failure;

/// How many entries there are when nobody says.
const ENTRIES: u64 = 10_000;

/// How long a worker waits for an entry, in seconds. There is one for each time that it asks.
const WAIT: u32 = 5;

/// What is done once for each entry.
#[derive(Clone, Copy)]
enum Step {
    Send,
    Publish,
    /// Take an entry and acknowledge it.
    Work,
}

/// What the workers of a phase share.
struct Shift {
    run: Rc<Run>,
    step: Step,
    /// What the step begins with.
    prepared: Prepared,
    next: Cell<u64>,
    count: u64,
}

#[derive(Deserialize)]
struct Handed {
    messages: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    id: String,
    lease: String,
}

pub(super) async fn measure(run: &Rc<Run>) -> Result<Report, Failure> {
    let entries = run.requests.unwrap_or(ENTRIES);
    let queue = format!("bench-{}", run.name);
    let mut phases = Vec::new();
    phases.push(phase(run, Step::Send, run.prepare(Work::Send(&run.text))?, entries).await);
    let publish = run.prepare(Work::Publish { queue: &queue, text: &run.text })?;
    phases.push(phase(run, Step::Publish, publish, entries).await);
    // Of what was not published there is nothing to take.
    let published = phases.last().map_or(0, |phase| phase.done);
    let consume = run.prepare(Work::Consume { queue: &queue, wait: WAIT })?;
    let work = phase(run, Step::Work, consume, published).await;
    let mut report = run.report("operation", work.elapsed);
    phases.push(work);
    report.phases = phases;
    Ok(report)
}

/// Does the step so often, and counts it. Errors and bytes of all phases add up.
async fn phase(run: &Rc<Run>, step: Step, prepared: Prepared, count: u64) -> Phase {
    {
        let mut tally = run.tally.borrow_mut();
        tally.done = 0;
        tally.latency = Latencies::default();
    }
    let before = run.commits().await;
    let shift = Rc::new(Shift { run: run.clone(), step, prepared, next: Cell::new(0), count });
    let begun = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..run.concurrency {
        workers.spawn_local(shift.clone().work());
    }
    while workers.join_next().await.is_some() {}
    let elapsed = begun.elapsed();
    let after = run.commits().await;
    let commits = before.zip(after).and_then(|(before, after)| after.checked_sub(before));
    let tally = run.tally.borrow();
    Phase { name: step.name(), elapsed, done: tally.done, latency: tally.latency.clone(), commits }
}

impl Step {
    const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Publish => "publish",
            Self::Work => "consume+ack",
        }
    }
}

impl Shift {
    async fn work(self: Rc<Self>) {
        let mut lane = None;
        let mut buffer = Vec::new();
        while self.next.get() < self.count {
            let number = self.next.get();
            self.next.set(number + 1);
            let begun = Instant::now();
            let result = match tokio::time::timeout(PATIENCE, self.step(&mut lane, &mut buffer, number)).await {
                Ok(result) => result,
                Err(_) => Err(Broken { kind: "timeout".to_owned(), is_cut: true }),
            };
            let is_cut = self.count(result, begun.elapsed());
            if is_cut {
                lane = None;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Says whether the connection is of no use any more.
    fn count(&self, result: Result<(), Broken>, took: Duration) -> bool {
        let mut tally = self.run.tally.borrow_mut();
        match result {
            Ok(()) => {
                tally.done += 1;
                tally.latency.record(took);
                false
            }
            Err(broken) => {
                tally.failed(broken.kind);
                broken.is_cut
            }
        }
    }

    async fn step(&self, lane: &mut Option<Lane>, buffer: &mut Vec<u8>, number: u64) -> Result<(), Broken> {
        let connected = match lane {
            Some(connected) => connected,
            None => lane.insert(self.run.target.connect().await?),
        };
        let json = self.call(connected, &self.prepared, buffer, number).await?;
        match self.step {
            Step::Send => completed(&json),
            Step::Publish => Ok(()),
            Step::Work => {
                let handed: Handed = serde_json::from_str(&json).map_err(|_| Broken::plain("malformed"))?;
                let entry = handed.messages.first().ok_or_else(|| Broken::plain("nothing to take"))?;
                let done = Work::Ack { entry: &entry.id, lease: &entry.lease, result: &self.run.text };
                let ack = self.run.target.prepare(&self.run.name, done)?;
                self.call(connected, &ack, buffer, number).await.map(|_| ())
            }
        }
    }

    async fn call(
        &self,
        lane: &mut Lane,
        prepared: &Prepared,
        buffer: &mut Vec<u8>,
        number: u64,
    ) -> Result<String, Broken> {
        let mut answer = lane.call(prepared, number).await?;
        answer.read(buffer).await?;
        let mut tally = self.run.tally.borrow_mut();
        tally.sent_bytes += prepared.body_bytes() as u64;
        tally.received_bytes += buffer.len() as u64;
        Ok(answer.decode(buffer)?.get().to_owned())
    }
}
