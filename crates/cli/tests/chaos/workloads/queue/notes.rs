//! Everything that publishers and workers sent and were answered. Times are milliseconds of the wall clock, which the servers
//! share.

use super::now;

/// An entry that was acknowledged.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    pub(crate) id: String,
    /// Its context, which no other entry has but one that replays it.
    pub(crate) context: String,
    /// Every worker fails at it.
    pub(crate) is_poisonous: bool,
    /// When the request was sent that was answered, and whether one before may have arrived.
    pub(crate) sent: i64,
    pub(crate) is_doubtful: bool,
    /// The dead letter that it replays.
    pub(crate) replays: Option<String>,
}

/// A lease of an entry, as its worker knows it.
#[derive(Debug, Clone)]
pub(crate) struct Hold {
    pub(crate) entry: String,
    pub(crate) worker: String,
    /// Each lease of an entry is an attempt of its own, so this tells them apart as the generation does inside.
    pub(crate) attempt: u32,
    /// When the worker got it.
    pub(crate) got: i64,
    /// Until when the lease lasts at least, if it is not renewed.
    pub(crate) sure_until: i64,
    /// What the worker wrote, in order.
    pub(crate) writes: Vec<Write>,
}

/// A request about a lease.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) verb: Verb,
    /// The result of an ack, the error of a nack.
    pub(crate) says: String,
    /// The worker had seen that it had lost the lease.
    pub(crate) knew: bool,
    pub(crate) sent: i64,
    pub(crate) answered: i64,
    pub(crate) outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Heartbeat,
    Ack,
    Nack,
    /// Given back: an attempt that does not count.
    Release,
}

/// What a worker knows of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The instance was killed before it answered, or the worker was.
    Unknown,
    Accepted,
    /// The lease is lost, and was when the first such request was sent.
    Refused,
}

/// All notes of a run.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) published: Vec<Published>,
    pub(crate) holds: Vec<Hold>,
    /// Answers that no client should ever get.
    pub(crate) unexpected: Vec<String>,
    /// Workers that were killed, and those that hung up before their request for work was answered.
    pub(crate) killed: usize,
    pub(crate) hung_up: usize,
}

impl Verb {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Heartbeat => "heartbeat",
            Self::Ack => "ack",
            Self::Nack | Self::Release => "nack",
        }
    }

    /// Whether it ends the attempt.
    pub(crate) fn is_end(self) -> bool {
        self != Self::Heartbeat
    }
}

impl Write {
    /// A request that is about to be sent.
    pub(crate) fn new(verb: Verb, says: &str, knew: bool) -> Self {
        let sent = now();
        Self { verb, says: says.to_owned(), knew, sent, answered: sent, outcome: Outcome::Unknown }
    }
}

impl Hold {
    /// Whether the server may have seen its end by then.
    pub(crate) fn may_have_ended_by(&self, at: i64) -> bool {
        let may_end = |write: &Write| write.verb.is_end() && write.outcome != Outcome::Refused && write.sent <= at;
        self.writes.iter().any(may_end)
    }
}
