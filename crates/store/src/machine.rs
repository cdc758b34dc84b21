//! The state machine: what may follow what. Nothing else decides a task's state.

use a2a::TaskState;

/// Something that wants to change a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A caller's message. `running` when a turn holds the task.
    Message {
        /// A turn runs or waits to run again.
        running: bool,
    },
    /// A worker takes the task.
    Start,
    /// The running turn reports a state without ending.
    Report(TaskState),
    /// The running turn ends.
    End {
        /// As the agent wants it.
        state: TaskState,
        /// The durable cancel mark is set.
        canceled: bool,
        /// Another message waits.
        waiting: bool,
    },
    /// The running turn is to be tried again by whoever asks next.
    Requeue,
    /// A cancel that finds no running turn, or whose grace is over.
    Cancel,
}

/// A step that cannot be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The task has ended.
    Terminal(TaskState),
    /// A turn cannot say this.
    Illegal(TaskState),
}

/// The state after `step`, or why it cannot be taken.
pub fn next(state: TaskState, step: Step) -> Result<TaskState, Refusal> {
    use TaskState::{AuthRequired, Canceled, Failed, Rejected, Submitted, Unspecified, Working};

    if state.is_terminal() {
        return Err(Refusal::Terminal(state));
    }
    match step {
        Step::Message { running: true } => Ok(state),
        Step::Message { running: false } => Ok(Submitted),
        Step::Start => Ok(Working),
        // AUTH_REQUIRED may be passed through: the agent can go on when the credential arrives elsewhere.
        Step::Report(to @ (Working | AuthRequired)) => Ok(to),
        Step::Report(to) => Err(Refusal::Illegal(to)),
        Step::End { state: to @ (Unspecified | Submitted | Working), .. } => Err(Refusal::Illegal(to)),
        Step::End { canceled: true, .. } => Ok(Canceled),
        Step::End { state: to @ (Failed | Rejected | Canceled), .. } => Ok(to),
        Step::End { waiting: true, .. } => Ok(Working),
        Step::End { state: to, .. } => Ok(to),
        Step::Requeue => Ok(Submitted),
        Step::Cancel => Ok(Canceled),
    }
}

#[cfg(test)]
mod tests {
    use TaskState::*;

    use super::*;

    const ALL: [TaskState; 9] =
        [Unspecified, Submitted, Working, Completed, Failed, Canceled, InputRequired, Rejected, AuthRequired];

    fn steps() -> Vec<Step> {
        let mut steps =
            vec![Step::Message { running: true }, Step::Message { running: false }, Step::Start, Step::Cancel];
        for state in ALL {
            steps.push(Step::Report(state));
            for canceled in [false, true] {
                for waiting in [false, true] {
                    steps.push(Step::End { state, canceled, waiting });
                }
            }
        }
        steps
    }

    #[test]
    fn nothing_follows_a_terminal_state() {
        for state in ALL.into_iter().filter(|s| s.is_terminal()) {
            for step in steps() {
                assert_eq!(next(state, step), Err(Refusal::Terminal(state)), "{step:?}");
            }
        }
    }

    #[test]
    fn x_35_a_cancel_mark_leaves_one_end() {
        for state in ALL {
            for waiting in [false, true] {
                let end = next(Working, Step::End { state, canceled: true, waiting });
                assert!(matches!(end, Ok(Canceled) | Err(Refusal::Illegal(_))), "{state:?} {end:?}");
            }
        }
    }

    #[test]
    fn a_waiting_message_keeps_the_task_open() {
        let end = |state| next(Working, Step::End { state, canceled: false, waiting: true });
        assert_eq!(end(Completed), Ok(Working));
        assert_eq!(end(InputRequired), Ok(Working));
        assert_eq!(end(AuthRequired), Ok(Working));
        assert_eq!(end(Failed), Ok(Failed));
        assert_eq!(end(Rejected), Ok(Rejected));
    }

    #[test]
    fn a_turn_cannot_report_an_end() {
        for state in [Unspecified, Submitted, Completed, Failed, Canceled, InputRequired, Rejected] {
            assert_eq!(next(Working, Step::Report(state)), Err(Refusal::Illegal(state)));
        }
    }
}
