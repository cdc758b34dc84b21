//! What a turn of a model has come to: its steps. It is kept after each of them, so that a turn that was cut off, or has rested, goes on
//! behind the last one that was finished.

use serde::{Deserialize, Serialize};
use store::TaskId;

/// How far a turn has come. What is counted goes on from turn to turn.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct State {
    /// The turn whose steps these are.
    pub(super) turn: u32,
    pub(super) steps: Vec<Step>,
    /// How many calls were handed on before the command that is under way.
    pub(super) made: u32,
    /// The tasks of others that are under way for this one: one for each who was to be asked, empty for those who could not be.
    pub(super) children: Vec<String>,
    /// The calls of remotes that have not been answered. They are canceled when the task has ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) calls: Vec<RemoteCall>,
    /// How often it has rested for them.
    pub(super) rests: u32,
    /// Something was said in this turn, and ends in the middle of a line.
    pub(super) spoken: bool,
    pub(super) mid_line: bool,
    /// How many calls of tools, files and replies of others there were in all turns.
    pub(super) tools: u32,
    pub(super) files: u32,
    pub(super) replies: u32,
    /// How much was written into files in this turn.
    pub(super) file_bytes: u64,
}

/// A call of a remote by `/a2a`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RemoteCall {
    pub(super) remote: String,
    /// The id of its message.
    pub(super) message: String,
}

/// A reply of the model and what came of its commands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Step {
    /// The reply, word for word.
    pub(super) said: String,
    /// Nothing more of it comes.
    pub(super) whole: bool,
    /// It ends where it was cut off for its length.
    pub(super) cut: bool,
    /// How often it was cut off for its length and went on.
    pub(super) continued: u32,
    /// What the commands brought, in their frames, in order.
    pub(super) results: Vec<String>,
    /// Something of it was passed on.
    pub(super) spoke: bool,
    /// The next command has begun, and may have had an effect that nobody has heard of.
    pub(super) begun: bool,
}

impl State {
    /// What was kept, for a turn. What cannot be read was kept by somebody else.
    pub(super) fn open(kept: Option<&[u8]>, turn: u32) -> Self {
        let mut state: Self = kept.and_then(|kept| serde_json::from_slice(kept).ok()).unwrap_or_default();
        if state.turn != turn {
            let Self { tools, files, replies, calls, .. } = state;
            state = Self { turn, tools, files, replies, calls, ..Self::default() };
        }
        state
    }

    pub(super) fn seal(&self) -> Vec<u8> {
        // It is texts and numbers: it has a JSON form.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The tasks of others that are under way.
    pub(super) fn children(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.children.iter().filter_map(|id| TaskId::parse(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_turn_begins_anew_and_counts_on() {
        let step = Step { said: "a".to_owned(), whole: true, ..Step::default() };
        let calls = vec![RemoteCall { remote: "r".to_owned(), message: "m".to_owned() }];
        let state =
            State { turn: 1, steps: vec![step], tools: 3, spoken: true, calls: calls.clone(), ..State::default() };
        let kept = state.seal();
        assert_eq!(State::open(Some(&kept), 1), state);
        assert_eq!(State::open(Some(&kept), 2), State { turn: 2, tools: 3, calls, ..State::default() });
        assert_eq!(State::open(Some(b"{"), 1), State { turn: 1, ..State::default() });
    }
}
