//! One task and everybody who follows it: how many frames a second reach them, or how many stay when none come.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::{Duration, Instant},
};

use client::load::{Prepared, Unread, Work};
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinSet,
};

use super::{
    Mode, Run, closed_loop,
    report::{Report, Subscribers, Tally, kind},
};
use crate::failure::Failure;

/// How many attach at once: more would measure the queue of the listening socket.
const ATTACHING: usize = 128;

/// How long attaching may take for each of them.
const ATTACH_LIMIT: Duration = Duration::from_secs(30);

/// Frames whose first arrival is remembered.
const REMEMBERED: usize = 1 << 16;

/// What the followers share.
struct Crowd {
    subscribe: Prepared,
    doors: Semaphore,
    /// Attached or failed.
    settled: Cell<usize>,
    attached: Cell<usize>,
    /// Attached, and their stream is open.
    open: Cell<usize>,
    /// Their stream broke.
    broken: Cell<usize>,
    changed: Notify,
    /// When the first follower had the frame with this id.
    first_seen: RefCell<Vec<Option<Instant>>>,
    last_frame: Cell<Option<Instant>>,
}

pub(super) async fn measure(run: &Rc<Run>) -> Result<Report, Failure> {
    let start = run.prepare(Work::SendAndGo(&run.text))?;
    let mut lane = run.target.connect().await?;
    let task = closed_loop::send_one(&mut lane, &start, 0).await?;
    let crowd = Rc::new(Crowd {
        subscribe: run.prepare(Work::Subscribe(&task))?,
        doors: Semaphore::new(ATTACHING),
        settled: Cell::new(0),
        attached: Cell::new(0),
        open: Cell::new(0),
        broken: Cell::new(0),
        changed: Notify::new(),
        first_seen: RefCell::new(vec![None; REMEMBERED]),
        last_frame: Cell::new(None),
    });
    let begun = Instant::now();
    let mut followers = JoinSet::new();
    for _ in 0..run.concurrency {
        followers.spawn_local(follow(run.clone(), crowd.clone()));
    }
    while crowd.settled.get() < run.concurrency {
        crowd.changed.notified().await;
    }
    let attach = begun.elapsed();

    // What came while they attached is not measured; why some could not attach is.
    let errors = std::mem::take(&mut run.tally.borrow_mut().errors);
    run.tally.replace(Tally { errors, ..Tally::default() });
    let measured = Instant::now();
    let all_ended = async {
        while crowd.open.get() > 0 {
            crowd.changed.notified().await;
        }
    };
    let _ = tokio::time::timeout(run.duration, all_ended).await;
    let attached = crowd.attached.get();
    let is_over = crowd.open.get() == 0 && attached > 0;
    // Whoever came too late says so as an error of its own; together with an early end they tell what went wrong.
    if is_over && (attached < run.concurrency || run.tally.borrow().frames == 0) {
        return Err(Failure::failed("the task ended before all subscribers had attached")
            .hint("name an agent that works longer with --agent, or tell it to with --text"));
    }
    let unit = if run.mode == Mode::Idle { "subscriber" } else { "frame" };
    // A task that ended early must not thin out what came before.
    let end = match crowd.last_frame.get() {
        Some(last) if crowd.open.get() == 0 && last > measured => last,
        _ => Instant::now(),
    };
    let mut report = run.report(unit, end - measured);
    let ended_well = attached - crowd.open.get() - crowd.broken.get();
    let stayed = if run.mode == Mode::Idle { crowd.open.get() } else { crowd.open.get() + ended_well };
    let asked = run.concurrency;
    report.subscribers = Some(Subscribers { asked, attached, stayed, attach });
    report.tally.done = if run.mode == Mode::Idle { stayed as u64 } else { report.tally.frames };

    followers.abort_all();
    let cancel = run.prepare(Work::Cancel(&task))?;
    // The task may be over, and nothing depends on it.
    let _ = tokio::time::timeout(ATTACH_LIMIT, lane.call(&cancel, 0)).await;
    Ok(report)
}

/// Attaches and reads until the stream ends.
async fn follow(run: Rc<Run>, crowd: Rc<Crowd>) {
    let attached = tokio::time::timeout(ATTACH_LIMIT, attach(&run, &crowd)).await;
    crowd.settled.set(crowd.settled.get() + 1);
    let (_lane, mut answer) = match attached {
        Ok(Ok(attached)) => attached,
        failed => {
            let kind = failed.map_or_else(|_| "timeout".to_owned(), |result| result.err().unwrap_or_default());
            run.tally.borrow_mut().failed(kind);
            crowd.changed.notify_one();
            return;
        }
    };
    crowd.attached.set(crowd.attached.get() + 1);
    crowd.open.set(crowd.open.get() + 1);
    crowd.changed.notify_one();
    let result = read(&run, &crowd, &mut answer).await;
    crowd.open.set(crowd.open.get() - 1);
    if let Err(kind) = result {
        crowd.broken.set(crowd.broken.get() + 1);
        run.tally.borrow_mut().failed(kind);
    }
    crowd.changed.notify_one();
}

async fn attach(run: &Run, crowd: &Crowd) -> Result<(client::load::Lane, Unread), String> {
    // It is never closed.
    let _door = crowd.doors.acquire().await.map_err(|error| error.to_string())?;
    let mut lane = run.target.connect().await.map_err(|error| kind(&error))?;
    let mut answer = lane.call(&crowd.subscribe, 0).await.map_err(|error| kind(&error))?;
    run.tally.borrow_mut().sent_bytes += crowd.subscribe.body_bytes() as u64;
    if answer.is_stream {
        return Ok((lane, answer));
    }
    let mut body = Vec::new();
    answer.read(&mut body).await.map_err(|error| kind(&error))?;
    match answer.decode(&body) {
        Ok(_) => Err("not a stream".to_owned()),
        Err(error) => Err(kind(&error)),
    }
}

async fn read(run: &Run, crowd: &Crowd, answer: &mut Unread) -> Result<(), String> {
    let mut parser = run.target.events();
    let mut events = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| kind(&error))? {
        parser.feed(&chunk, &mut events).map_err(|_| "malformed".to_owned())?;
        let mut tally = run.tally.borrow_mut();
        tally.received_bytes += chunk.len() as u64;
        if events.is_empty() {
            continue;
        }
        let now = Instant::now();
        crowd.last_frame.set(Some(now));
        tally.frames += events.len() as u64;
        tally.done += events.len() as u64;
        for event in events.drain(..) {
            if let Some(lag) = event.id.and_then(|id| crowd.lag(&id, now)) {
                tally.latency.record(lag);
            }
        }
    }
    Ok(())
}

impl Crowd {
    /// How long after the first follower this one has a frame. Only servers that number their frames can be asked.
    fn lag(&self, id: &str, now: Instant) -> Option<Duration> {
        let number: usize = id.parse().ok()?;
        let mut seen = self.first_seen.borrow_mut();
        let first = seen.get_mut(number)?.get_or_insert(now);
        Some(now.saturating_duration_since(*first))
    }
}
