//! How long a command waits for an agent: until its time is over or somebody interrupts it, and through times in which the server is away.

use std::{pin::pin, time::Duration};

use a2a::StreamResponse;
use client::{Error, EventStream, Outage, Received, Resume};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, sleep, sleep_until},
};

use crate::{failure::Failure, output, waiting::Waiting};

/// The pause before something is tried again; doubled each time.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Longer than anybody waits.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Why a wait was given up.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Its time is over.
    Late,
    /// Ctrl-C.
    Interrupted,
    /// What no further attempt would mend.
    Broken(Error),
    /// It has not even begun.
    Failed(Failure),
}

/// What is left of it.
pub(crate) struct Patience {
    limit: Duration,
    deadline: Instant,
    interrupts: Signal,
    away: Away,
    waiting: Waiting,
    /// The spinner would not run into a line of the answer.
    pub(super) at_line_start: bool,
}

/// Whether the server is away or refuses calls for now, as far as that was said.
#[derive(Debug, Default)]
pub(crate) struct Away {
    lost: Option<Outage>,
}

/// Streams are taken up again for as long as their command waits: it is the command that gives up.
pub(crate) fn resume() -> Resume {
    Resume { attempts: u32::MAX, max_backoff: LONGEST_PAUSE, ..Resume::default() }
}

impl Patience {
    /// For this long, from now on. From now on Ctrl-C ends the wait and not the process.
    pub(crate) fn new(limit: Duration) -> Result<Self, Failure> {
        let interrupts = signal(SignalKind::interrupt())
            .map_err(|error| Failure::failed("cannot listen to signals").caused_by(&error))?;
        let deadline = Instant::now() + limit.min(FOR_EVER);
        let waiting = Waiting::new(None);
        Ok(Self { limit, deadline, interrupts, away: Away::default(), waiting, at_line_start: true })
    }

    /// Shows a spinner with this text while nothing comes.
    pub(crate) fn spin(&mut self, text: &str) {
        self.waiting = Waiting::new(Some(text));
    }

    /// How long it was from the start.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Why the server could not be reached, or refused calls, in the end.
    pub(crate) fn lost(&self) -> Option<&Outage> {
        self.away.lost.as_ref()
    }

    /// Work to its end, or until there is no more patience.
    pub(crate) async fn bear<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Stop> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                () = self.waiting.tick() => self.waiting.show(self.at_line_start),
                () = sleep_until(self.deadline) => return Err(Stop::Late),
                _ = self.interrupts.recv() => return Err(Stop::Interrupted),
            }
        }
    }

    /// Asks until there is an answer that will not change by itself.
    pub(crate) async fn ask<T>(&mut self, mut call: impl AsyncFnMut() -> Result<T, Error>) -> Result<T, Stop> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.bear(call()).await? {
                Err(error) if error.is_passing() => self.rest(&error, &mut pause).await?,
                answered => {
                    self.notice(None);
                    return answered.map_err(Stop::Broken);
                }
            }
        }
    }

    /// Waits before another attempt.
    pub(crate) async fn rest(&mut self, error: &Error, pause: &mut Duration) -> Result<(), Stop> {
        self.notice(Some(error.into()));
        self.bear(sleep(*pause)).await?;
        *pause = (*pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }

    /// The next event of a stream.
    pub(crate) async fn next(&mut self, stream: &mut EventStream) -> Result<Option<Received<StreamResponse>>, Stop> {
        let mut lost = stream.lost();
        let mut next = pin!(stream.next());
        loop {
            let noticed = tokio::select! {
                event = &mut next => {
                    // An error says by itself what there is to say.
                    if matches!(event, Some(Ok(_))) {
                        self.notice(None);
                        self.waiting.heard();
                    }
                    return event.transpose().map_err(Stop::Broken);
                }
                Ok(()) = lost.changed() => lost.borrow_and_update().clone(),
                () = self.waiting.tick() => {
                    self.waiting.show(self.at_line_start);
                    continue;
                }
                () = sleep_until(self.deadline) => return Err(Stop::Late),
                _ = self.interrupts.recv() => return Err(Stop::Interrupted),
            };
            self.notice(noticed);
        }
    }

    /// Says it when the server is away or refuses calls, and when that is over.
    pub(crate) fn notice(&mut self, lost: Option<Outage>) {
        self.away.notice(lost);
    }
}

impl Away {
    /// Says it when that changes.
    pub(crate) fn notice(&mut self, lost: Option<Outage>) {
        let was_answered = self.lost.as_ref().map(|before| before.is_answered);
        match (was_answered, &lost) {
            (Some(before), Some(now)) if before == now.is_answered => {}
            (_, Some(Outage { reason, is_answered: true })) => {
                output::error_line("note", &format!("the server cannot take this now ({reason}); trying again"));
            }
            (_, Some(Outage { reason, is_answered: false })) => {
                output::error_line("note", &format!("the server is away ({reason}); trying again"));
            }
            (Some(true), None) => output::error_line("note", "the server takes it again"),
            (Some(false), None) => output::error_line("note", "the server is back"),
            (None, None) => {}
        }
        self.lost = lost;
    }
}
