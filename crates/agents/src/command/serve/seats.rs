//! Who sits in a process: the turns that run in it, what each is told of, and what became of the process.
//!
//! A turn that leaves before the program has said how it ends tells the program to cancel it. Where the program broke its protocol, that
//! is all, and what the program still says of it is passed over. Else the program has to answer: one that does not within its grace is stuck, and
//! gets no more turns, so that the next is not lost in it too. Where nobody wanted that the turn ends (its time was over, others have taken it over)
//! it is ended at once; the other turns that sat there have done nothing wrong, and the attempt does not count for them. Where a caller has
//! canceled, the others are left in peace, and it is ended when the last of them has gone.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use exchange::{Outcome, Turn};
use store::{AgentId, TaskId};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::wire::{self, Saying};
use crate::command::input::Input;

/// How many lines may wait to be written to a program. Each turn has one, and those that are canceled another.
const LINES: usize = 1024;
/// How many lines of a turn may wait to be journaled, and how many bytes they may have together; more than one line can.
const HEARD: usize = 1024;
const HEARD_BYTES: usize = 4 << 20;
/// How many turns that are over are remembered, so that what a program still says of them is no cause for a warning.
const REMEMBERED: usize = 1024;
/// How long the lines of one turn may keep others from being read. By then the journal has been away for as long as a lease lasts.
const STALL: Duration = Duration::from_secs(30);

/// The seats of one process.
pub(super) struct Seats {
    agent: AgentId,
    company: Company,
    /// What is written to the program.
    lines: mpsc::Sender<Input>,
    /// Set when it is to end: it gets no more turns.
    pub(super) ending: CancellationToken,
    /// Set when it is to be killed.
    pub(super) broken: CancellationToken,
    turns: Mutex<Turns>,
}

/// Who may sit beside whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Company {
    Any,
    /// There is one seat, and it is taken with the start.
    None,
}

struct Turns {
    sitting: HashMap<String, Listener>,
    /// The newest turns that are over.
    over: VecDeque<String>,
    /// The program has brought a turn to its end.
    fruitful: bool,
    /// When the last one left.
    free_since: Instant,
    /// What becomes of those who sit here when the process is gone.
    fate: Option<Outcome>,
    /// It does not answer: nobody else gets a seat.
    silent: bool,
    gone: bool,
}

enum Listener {
    There {
        heard: mpsc::Sender<Heard>,
        room: Arc<Semaphore>,
        /// Its task, and which attempt it is.
        turn: (TaskId, u32),
    },
    /// It has left, and the program owes an answer.
    Left,
}

/// A line for a turn, and the room that it takes until it was dealt with.
pub(super) struct Heard {
    pub(super) saying: Saying,
    _room: OwnedSemaphorePermit,
}

/// A turn's seat.
pub(super) struct Seat {
    seats: Arc<Seats>,
    id: String,
    heard: mpsc::Receiver<Heard>,
    cancel: CancellationToken,
    grace: Duration,
    /// The program knows of the turn.
    given: bool,
    /// The program knows that it is canceled.
    told: bool,
    /// Nothing more is expected of the program.
    settled: bool,
}

/// What became of a line.
pub(super) enum Passed {
    /// It was for a turn that is there, or was.
    On,
    /// The program has no such turn, and had none lately.
    Unknown,
}

impl Seats {
    /// No turns yet, and where the lines for the program arrive.
    pub(super) fn new(
        agent: AgentId,
        ending: CancellationToken,
        company: Company,
    ) -> (Arc<Self>, mpsc::Receiver<Input>) {
        let (lines, written) = mpsc::channel(LINES);
        let turns = Turns {
            sitting: HashMap::new(),
            over: VecDeque::new(),
            fruitful: false,
            free_since: Instant::now(),
            fate: None,
            silent: false,
            gone: false,
        };
        let (broken, turns) = (CancellationToken::new(), Mutex::new(turns));
        (Arc::new(Self { agent, company, lines, ending, broken, turns }), written)
    }

    /// How many sit here; nothing where nobody else may.
    pub(super) fn load(&self) -> Option<usize> {
        let turns = self.turns();
        let is_over = turns.gone || turns.silent || turns.fate.is_some();
        let closed = self.company == Company::None || is_over || self.ending.is_cancelled();
        (!closed).then(|| turns.sitting.len())
    }

    /// A seat for a turn.
    pub(super) fn take(self: &Arc<Self>, turn: &Turn, grace: Duration) -> Seat {
        let id = wire::new_id();
        let (sender, heard) = mpsc::channel(HEARD);
        let room = Arc::new(Semaphore::new(HEARD_BYTES));
        let mut turns = self.turns();
        // Whoever comes after the end has a closed ear.
        if !turns.gone {
            turns.sitting.insert(id.clone(), Listener::There { heard: sender, room, turn: (turn.task, turn.attempt) });
        }
        drop(turns);
        let cancel = turn.cancel.clone();
        Seat { seats: Arc::clone(self), id, heard, cancel, grace, given: false, told: false, settled: false }
    }

    /// The tasks of those who sit here, and which attempts they are.
    pub(super) fn sitting(&self) -> Vec<(TaskId, u32)> {
        let turn = |listener: &Listener| match listener {
            Listener::There { turn, .. } => Some(*turn),
            Listener::Left => None,
        };
        self.turns().sitting.values().filter_map(turn).collect()
    }

    /// Since when nobody sits here; nothing while somebody does.
    pub(super) fn free_since(&self) -> Option<Instant> {
        let turns = self.turns();
        turns.sitting.is_empty().then_some(turns.free_since)
    }

    /// The process is to be killed, and this becomes of those who sit here. The first word counts.
    pub(super) fn break_off(&self, fate: Outcome) {
        self.turns().fate.get_or_insert(fate);
        self.broken.cancel();
    }

    /// The process is gone: this becomes of those who sat here, unless something else was said before. Says how many there were, and
    /// whether it has ever brought a turn to its end.
    pub(super) fn close(&self, fate: Outcome) -> (usize, bool) {
        let mut turns = self.turns();
        turns.gone = true;
        turns.fate.get_or_insert(fate);
        let sat = turns.sitting.drain().filter(|(_, listener)| matches!(listener, Listener::There { .. })).count();
        (sat, turns.fruitful)
    }

    /// Brings what the program says to whom it is about. Who does not take it for too long loses its seat: nobody else is read
    /// meanwhile.
    pub(super) async fn pass_on(&self, saying: Saying) -> Passed {
        let id = saying.id.clone();
        let (heard, room) = {
            let mut turns = self.turns();
            match turns.sitting.get(&id) {
                Some(Listener::There { heard, room, .. }) => (heard.clone(), Arc::clone(room)),
                Some(Listener::Left) => {
                    if saying.is_last() {
                        turns.leave(&id);
                    }
                    return Passed::On;
                }
                None if turns.over.contains(&id) => return Passed::On,
                None => return Passed::Unknown,
            }
        };
        let cost = u32::try_from(saying.word.len().clamp(1, HEARD_BYTES)).unwrap_or(u32::MAX);
        let passing = async {
            // Rooms are not closed, and who has left needs nothing.
            if let Ok(room) = room.acquire_many_owned(cost).await {
                let _ = heard.send(Heard { saying, _room: room }).await;
            }
        };
        tokio::select! {
            biased;
            () = passing => {}
            // Nobody is interested any more.
            () = heard.closed() => {}
            () = self.broken.cancelled() => {}
            () = tokio::time::sleep(STALL) => self.turns().leave(&id),
        }
        Passed::On
    }

    /// Whether the program still owes an answer about a turn that has left. Then it gets no more of them.
    fn is_owed(&self, id: &str) -> bool {
        let mut turns = self.turns();
        let is_owed = !turns.gone && turns.sitting.contains_key(id);
        turns.silent |= is_owed;
        is_owed
    }

    /// Whether somebody sits here who would lose something.
    fn is_anybody_there(&self) -> bool {
        self.turns().sitting.values().any(|listener| matches!(listener, Listener::There { .. }))
    }

    /// Asks the program to end a turn. Where so much waits to be read by it, it would not hear of it either.
    fn tell_cancel(&self, id: &str) {
        let _ = self.lines.try_send(Input::Memory(wire::cancel(id)));
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turns {
    fn leave(&mut self, id: &str) {
        if let Some((id, _)) = self.sitting.remove_entry(id) {
            if self.over.len() >= REMEMBERED {
                self.over.pop_front();
            }
            self.over.push_back(id);
        }
        self.free_since = Instant::now();
    }
}

impl Seat {
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Gives the turn to the program.
    pub(super) async fn give(&mut self, line: Input) {
        self.given = true;
        // A program that is gone is heard of.
        let _ = self.seats.lines.send(line).await;
    }

    /// What the program says next; nothing when it will say no more.
    pub(super) async fn hear(&mut self) -> Option<Heard> {
        self.heard.recv().await
    }

    /// Asks the program to end the turn.
    pub(super) fn ask_to_cancel(&mut self) {
        if self.given && !self.told {
            self.told = true;
            self.seats.tell_cancel(&self.id);
        }
    }

    /// The program has brought the turn to its end.
    pub(super) fn ended(mut self) {
        self.settled = true;
        self.told = true;
        self.seats.turns().fruitful = true;
    }

    /// The turn is over, whatever the program does about it.
    pub(super) fn given_up(mut self) {
        self.settled = true;
    }

    /// What becomes of the turn, when the program says no more.
    pub(super) fn fate(mut self) -> Outcome {
        self.settled = true;
        let turns = self.seats.turns();
        let fate = turns.fate.clone().filter(|_| turns.gone);
        fate.unwrap_or_else(|| Outcome::Crashed("what the program says cannot be kept".to_owned()))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.ask_to_cancel();
        let mut turns = self.seats.turns();
        let owes_answer = self.given && !self.settled && !turns.gone;
        if !owes_answer {
            turns.leave(&self.id);
            return;
        }
        turns.sitting.insert(self.id.clone(), Listener::Left);
        drop(turns);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (seats, id, grace) = (Arc::clone(&self.seats), std::mem::take(&mut self.id), self.grace);
        let was_canceled = self.cancel.is_cancelled();
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(grace).await;
                if !seats.is_owed(&id) {
                    return;
                }
                if was_canceled && seats.is_anybody_there() {
                    continue;
                }
                let agent = &seats.agent;
                tracing::warn!(agent.name = %agent, "the program of agent `{agent}` is ended, since it does not let go of a turn that is over");
                let why = "interrupted: the program did not let go of another turn, and was ended";
                seats.break_off(Outcome::Displaced(why.to_owned()));
                return;
            }
        });
    }
}
