//! What publishers and workers asked for and were told. Times are milliseconds of the wall clock, which the servers share.

use store::clock;

/// An entry that was acknowledged.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    pub(crate) id: String,
    /// What it belongs to, which no other entry has but one that repeats it.
    pub(crate) context: String,
    /// Every worker fails on it.
    pub(crate) is_poisonous: bool,
    /// When the request was sent that was answered, and whether others had been sent before.
    pub(crate) sent: i64,
    pub(crate) retried: bool,
    /// The dead letter that it repeats.
    pub(crate) replays: Option<String>,
}

/// An entry in the hands of a worker.
#[derive(Debug, Clone)]
pub(crate) struct Hold {
    pub(crate) entry: String,
    pub(crate) worker: String,
    /// Each lease of an entry is an attempt of its own, so this tells them apart as the generation does inside.
    pub(crate) attempt: u32,
    /// When the worker had it.
    pub(crate) got: i64,
    /// Until when the lease lasts at least, if it is not renewed.
    pub(crate) sure_until: i64,
    /// What the worker wrote, in order.
    pub(crate) writes: Vec<Write>,
}

/// Something that a worker told the queue about what it holds.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) verb: Verb,
    /// The result of an ack, the error of a nack.
    pub(crate) says: String,
    /// The worker had been shown that the lease is not its own any more.
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

/// What a worker knows of something that it wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Whoever was asked is gone, or the worker is.
    Unknown,
    Accepted,
    /// The lease is lost, and was when this was said for the first time.
    Refused,
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) published: Vec<Published>,
    pub(crate) holds: Vec<Hold>,
    /// What nobody should ever be told.
    pub(crate) unexpected: Vec<String>,
    /// Workers that were killed, and those that went away before their request for work was answered.
    pub(crate) killed: usize,
    pub(crate) hung_up: usize,
}

pub(crate) fn now() -> i64 {
    clock::now().as_millis()
}

impl Verb {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Heartbeat => "heartbeat",
            Self::Ack => "ack",
            Self::Nack | Self::Release => "nack",
        }
    }

    /// Whether the hold is over with it.
    pub(crate) fn is_end(self) -> bool {
        self != Self::Heartbeat
    }
}

impl Write {
    /// One that is about to be sent.
    pub(crate) fn new(verb: Verb, says: &str, knew: bool) -> Self {
        let sent = now();
        Self { verb, says: says.to_owned(), knew, sent, answered: sent, outcome: Outcome::Unknown }
    }
}

impl Hold {
    /// Whatever the server knows: this may have ended it.
    pub(crate) fn may_have_ended_by(&self, at: i64) -> bool {
        let may_end = |write: &Write| write.verb.is_end() && write.outcome != Outcome::Refused && write.sent <= at;
        self.writes.iter().any(may_end)
    }
}
