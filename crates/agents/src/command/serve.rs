//! Programs that stay: a process takes one turn after the other, several at once.
//!
//! Lines go in and out, each with the id of its turn ([`wire`]). Each process has an attendant, which feeds and reads it
//! ([`attend`]); each turn has a seat in one ([`seats`]). A process is started when a turn finds no free one, up to as many as the
//! file says, and is ended when nobody has needed it for a while, with its agent, or with the server. A changed file makes a new
//! agent: turns that run hold the old one, and with the last of them its processes end.
//!
//! When a process dies, its turns were interrupted by a crash, and the agent's policy says what follows. The next turn that needs
//! one starts another. Programs that die before they have brought any turn to its end are started less and less often: turns
//! wait for that, and each costs one of its attempts.
//!
//! Nobody knows which of the turns in a process has killed it. A turn that was interrupted twice has its next attempts in a process of
//! its own beside the others, one such turn at a time. So a turn that kills every process that it is given takes others with it
//! twice, and with three attempts they live.

mod attend;
mod seats;
mod wire;

use std::{
    io,
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use exchange::{Agent, Outcome, Output, Turn};
use store::AgentId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::{
    attend::Attendant,
    seats::{Company, Heard, Seat, Seats},
};
use super::{
    IDLE, Program, Quarters,
    events::Events,
    input::input,
    process::{Process, at, refused},
};
use crate::units::Size;

/// After how long a program that died for nothing is started again: twice as long each time.
const FIRST_BACKOFF: Duration = Duration::from_millis(250);
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);

/// So many attempts a turn has beside others. The journal counts them, so that it holds across restarts of the server.
const SHARED_ATTEMPTS: u32 = 2;
/// How often a turn that is to run apart looks whether it can.
const LOOK: Duration = Duration::from_millis(50);

/// A program that stays and takes turns. Dropping it ends its processes.
pub(super) struct ServeAgent {
    pool: Arc<Pool>,
}

/// The processes of one agent.
struct Pool {
    id: AgentId,
    program: Program,
    quarters: Quarters,
    idle: Duration,
    /// Set when the agent is gone, or the server is about to be.
    ending: CancellationToken,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    processes: Vec<Arc<Seats>>,
    /// How many processes in a row have died for nothing, and when the next one may be started.
    barren: u32,
    not_before: Option<Instant>,
    /// A turn runs apart.
    is_apart: bool,
}

/// A turn in a process of its own. Dropping it ends its process.
struct Apart {
    pool: Arc<Pool>,
    seats: Arc<Seats>,
}

/// Where a turn can go.
enum Place {
    Seat(Seat, Option<Apart>),
    /// Nowhere before that.
    Later(Instant),
    /// Nowhere, and this becomes of it.
    Nowhere(Outcome),
}

impl ServeAgent {
    pub(super) fn new(id: AgentId, program: Program, quarters: Quarters) -> Self {
        let idle = program.idle.map_or(IDLE, |idle| idle.0);
        let ending = quarters.staff.closing.child_token();
        Self { pool: Arc::new(Pool { id, program, quarters, idle, ending, state: Mutex::default() }) }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.seats.ending.cancel();
        self.pool.state().is_apart = false;
    }
}

impl Drop for ServeAgent {
    fn drop(&mut self) {
        self.pool.ending.cancel();
    }
}

#[async_trait]
impl Agent for ServeAgent {
    async fn run(&self, mut turn: Turn, out: Output) -> Outcome {
        let (mut seat, _apart) = tokio::select! {
            biased;
            () = turn.cancel.cancelled() => return Outcome::Canceled,
            seat = async {
                let _waits = out.waits();
                self.pool.seat(&turn).await
            } => match seat {
                Ok(seat) => seat,
                Err(outcome) => return outcome,
            },
        };
        let line = match input(&mut turn, Some(seat.id()), &self.pool.quarters).await {
            Ok(line) => line,
            Err(why) => return Outcome::Retry(why),
        };
        seat.give(line).await;
        let outcome = self.listen(seat, &turn, &out).await;
        if !matches!(outcome, Outcome::Completed(_)) {
            // Whoever hears of it finds in the log what the program said.
            self.pool.quarters.written().await;
        }
        outcome
    }
}

impl ServeAgent {
    /// Hears what the program says of the turn, until it is over.
    async fn listen(&self, mut seat: Seat, turn: &Turn, out: &Output) -> Outcome {
        let mut events = Events::default();
        let mut total = 0;
        let mut give_up_at: Option<Instant> = None;
        loop {
            let heard = tokio::select! {
                biased;
                () = turn.cancel.cancelled(), if give_up_at.is_none() => {
                    seat.ask_to_cancel();
                    give_up_at = Some(Instant::now() + self.pool.program.grace.0);
                    continue;
                }
                () = at(give_up_at) => return Outcome::Canceled,
                heard = seat.hear() => heard,
            };
            let canceled = give_up_at.is_some();
            let Some(Heard { saying, .. }) = &heard else {
                let fate = seat.fate();
                return if canceled { Outcome::Canceled } else { fate };
            };
            total += saying.word.len() as u64;
            let Size(allowed) = self.pool.program.max_output;
            let taken = if total > allowed {
                Err(format!("the program printed more than {allowed} bytes"))
            } else if saying.end {
                Ok(true)
            } else {
                events.hear(&saying.word, out).await.map(|()| events.is_over())
            };
            let ended = match taken {
                Ok(false) => continue,
                Ok(true) => events.finish(out).await,
                Err(why) => Err(why),
            };
            let outcome = match ended {
                Ok(outcome) => {
                    seat.ended();
                    outcome.unwrap_or_else(|| Outcome::Completed(Vec::new()))
                }
                Err(why) => {
                    seat.given_up();
                    Outcome::Broken(why)
                }
            };
            return if canceled { Outcome::Canceled } else { outcome };
        }
    }
}

impl Pool {
    /// A seat in a process, which is started if there is none to spare.
    async fn seat(self: &Arc<Self>, turn: &Turn) -> Result<(Seat, Option<Apart>), Outcome> {
        loop {
            match self.place(turn) {
                Place::Seat(seat, apart) => return Ok((seat, apart)),
                Place::Nowhere(outcome) => return Err(outcome),
                Place::Later(then) => tokio::time::sleep_until(then).await,
            }
        }
    }

    fn place(self: &Arc<Self>, turn: &Turn) -> Place {
        if self.ending.is_cancelled() {
            return Place::Nowhere(Outcome::Displaced("interrupted: the program is not started any more".to_owned()));
        }
        let mut state = self.state();
        let not_before = state.not_before.filter(|then| *then > Instant::now());
        if turn.tries > SHARED_ATTEMPTS {
            return match not_before.or_else(|| state.is_apart.then(|| Instant::now() + LOOK)) {
                Some(then) => Place::Later(then),
                None => self.apart(&mut state, turn),
            };
        }
        let open: Vec<_> = state.processes.iter().filter_map(|seats| Some((seats.load()?, seats))).collect();
        // Those that are about to go take nobody's place.
        let is_full = open.len() >= self.program.processes.map_or(1, NonZeroUsize::get);
        let freest = open.into_iter().min_by_key(|(load, _)| *load).map(|(load, seats)| (load, Arc::clone(seats)));
        let seats = match freest {
            Some((load, seats)) if load == 0 || is_full => seats,
            busy => match (busy, not_before) {
                (_, None) => match self.start(&mut state, Company::Any) {
                    Ok(seats) => seats,
                    Err(error) => return Place::Nowhere(refused(&self.program, &error)),
                },
                (Some((_, seats)), Some(_)) => seats,
                (None, Some(then)) => return Place::Later(then),
            },
        };
        Place::Seat(self.take(&seats, turn), None)
    }

    /// A seat in a process that nobody else is given.
    fn apart(self: &Arc<Self>, state: &mut State, turn: &Turn) -> Place {
        let seats = match self.start(state, Company::None) {
            Ok(seats) => seats,
            Err(error) => return Place::Nowhere(refused(&self.program, &error)),
        };
        tracing::info!(agent.name = %self.id, task.id = %turn.task, "running this turn in its own process after repeated interruptions");
        state.is_apart = true;
        let seat = self.take(&seats, turn);
        Place::Seat(seat, Some(Apart { pool: Arc::clone(self), seats }))
    }

    fn take(&self, seats: &Arc<Seats>, turn: &Turn) -> Seat {
        seats.take(turn, self.program.grace.0)
    }

    fn start(self: &Arc<Self>, state: &mut State, company: Company) -> io::Result<Arc<Seats>> {
        let process = Process::spawn(&self.program, &self.id, &self.quarters)?;
        let (seats, written) = Seats::new(self.id.clone(), self.ending.child_token(), company);
        let attendant = Attendant::new(Arc::clone(self), Arc::clone(&seats), process);
        self.quarters.staff.at_work.spawn(attendant.attend(written));
        state.processes.push(Arc::clone(&seats));
        Ok(seats)
    }

    /// Ends a process that nobody has needed for long enough. Says when to look again.
    fn dismiss_idle(&self, seats: &Arc<Seats>) -> Instant {
        // Whoever takes a seat holds this too.
        let state = self.state();
        let now = Instant::now();
        let due = seats.free_since().map(|since| since + self.idle);
        if due.is_some_and(|due| due <= now) {
            seats.ending.cancel();
        }
        drop(state);
        due.filter(|due| *due > now).unwrap_or(now + self.idle)
    }

    /// A process is gone. Says how many turns sat there.
    fn lose(&self, seats: &Arc<Seats>, fate: Outcome, expected: bool) -> usize {
        let mut state = self.state();
        state.processes.retain(|other| !Arc::ptr_eq(other, seats));
        let (turns, fruitful) = seats.close(fate);
        if fruitful {
            (state.barren, state.not_before) = (0, None);
        } else if !expected {
            let backoff = FIRST_BACKOFF.saturating_mul(1 << state.barren.min(16)).min(LONGEST_BACKOFF);
            state.barren += 1;
            state.not_before = Some(Instant::now() + backoff);
        }
        turns
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
