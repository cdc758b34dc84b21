//! What the log says of attempts that did not go well: one line of WARN for each, with its agent, its task, which attempt it was and the
//! cause. It is said when what follows is durable, by whoever has written it, so that two instances never both say it.

use a2a::{Part, PartContent, TaskState};
use store::{Lease, TurnEnd};

use crate::Outcome;

/// So much of a cause is told.
const LONGEST: usize = 500;

/// What became of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Its task has failed.
    Failed,
    /// The same, since it took too long.
    TimedOut,
    /// The same, since the agent did not say what agents may say.
    Broken,
    /// Another attempt follows.
    Again,
    /// There was no other attempt left.
    Dead,
    /// Whoever ran it is gone, and another attempt begins.
    CutOff,
    /// Whoever ran it is gone, and the caller is asked what to do.
    Asked,
    /// What the agent said cannot be kept, and its task has failed.
    Unkept,
}

/// An attempt, as the log names it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt<'a> {
    pub(crate) lease: &'a Lease,
    pub(crate) turn: u32,
    /// Counted from 1.
    pub(crate) number: u32,
}

impl Trouble {
    /// What an outcome is worth telling, and its cause.
    pub(crate) fn of(outcome: &Outcome) -> Option<(Self, String)> {
        match outcome {
            Outcome::Failed(parts) => Some((Self::Failed, text(parts))),
            Outcome::Broken(why) => Some((Self::Broken, why.clone())),
            Outcome::RemoteFailed(why)
            | Outcome::Unset(why)
            | Outcome::Retry(why)
            | Outcome::Crashed(why)
            | Outcome::Displaced(why) => Some((Self::Failed, why.clone())),
            Outcome::Interrupted => Some((Self::Asked, "interrupted".to_owned())),
            Outcome::Completed(_)
            | Outcome::InputRequired(_)
            | Outcome::AuthRequired(_)
            | Outcome::Rejected(_)
            | Outcome::Message(_)
            | Outcome::Canceled
            | Outcome::Parked { .. } => None,
        }
    }

    /// What the end of an attempt of a worker is worth telling.
    pub(crate) fn of_end(end: &TurnEnd) -> Option<Self> {
        match end {
            TurnEnd::Retry { .. } => Some(Self::Again),
            TurnEnd::GiveUp { dead: true, .. } => Some(Self::Dead),
            TurnEnd::GiveUp { dead: false, .. } => Some(Self::Failed),
            TurnEnd::Status(_) | TurnEnd::Reply { .. } | TurnEnd::Release { .. } | TurnEnd::Park { .. } => None,
        }
    }

    /// What is left of it when the journal has had its say: a task that was canceled meanwhile has not failed.
    pub(crate) fn in_state(self, state: TaskState) -> Option<Self> {
        (state != TaskState::Canceled).then_some(self)
    }

    const fn says(self) -> &'static str {
        match self {
            Self::Failed => "a turn failed",
            Self::TimedOut => "a turn timed out",
            Self::Broken => "a turn broke its protocol",
            Self::Again => "a turn will be tried again",
            Self::Dead => "a task is a dead letter",
            Self::CutOff => "a turn was cut off and runs again",
            Self::Asked => "a turn was cut off and its caller is asked whether it runs again",
            Self::Unkept => "a turn failed: what its agent said cannot be kept",
        }
    }
}

impl<'a> Attempt<'a> {
    /// The one that a lease was given for.
    pub(crate) fn of(lease: &'a Lease) -> Self {
        Self { lease, turn: lease.turn, number: lease.attempt }
    }

    /// Says it. Others' words are shown as one value, and cannot look like a line of the log.
    pub(crate) fn tell(self, trouble: Trouble, cause: &str) {
        let Self { lease, turn, number } = self;
        let says = trouble.says();
        let cause = cut(cause);
        tracing::warn!(
            agent.name = %lease.agent, task.id = %lease.task, tenant.id = lease.tenant.0, turn, attempt = number, cause, "{says}"
        );
    }
}

fn text(parts: &[Part]) -> String {
    let mut texts = Vec::new();
    for part in parts {
        if let PartContent::Text(text) = &part.content {
            texts.push(text.as_str());
        }
    }
    if texts.is_empty() { "the agent gave no reason".to_owned() } else { texts.join("\n") }
}

fn cut(cause: &str) -> &str {
    match cause.char_indices().nth(LONGEST) {
        Some((end, _)) => &cause[..end],
        None => cause,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_well_is_not_told() {
        let failed = Outcome::Failed(vec![Part::text("one"), Part::raw(vec![1]), Part::text("two")]);
        assert_eq!(Trouble::of(&failed), Some((Trouble::Failed, "one\ntwo".to_owned())));
        let silent = Outcome::Failed(Vec::new());
        assert_eq!(Trouble::of(&silent), Some((Trouble::Failed, "the agent gave no reason".to_owned())));
        for well in [Outcome::Completed(Vec::new()), Outcome::Rejected(Vec::new()), Outcome::Canceled] {
            assert_eq!(Trouble::of(&well), None);
        }
        assert_eq!(Trouble::Again.in_state(TaskState::Canceled), None);
        assert_eq!(Trouble::Failed.in_state(TaskState::Failed), Some(Trouble::Failed));
        assert_eq!(cut(&"ä".repeat(600)).chars().count(), LONGEST);
    }
}
