//! The two enums of the protocol. Both are written by name and read by name or number; a name or a number that the
//! protocol does not define is refused.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::wire::value;

/// Where a task is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TaskState {
    #[default]
    Unspecified,
    Submitted,
    Working,
    Completed,
    Failed,
    Canceled,
    InputRequired,
    Rejected,
    AuthRequired,
}

/// Who wrote a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Role {
    #[default]
    Unspecified,
    User,
    Agent,
}

impl TaskState {
    /// Every state, in the order of its number.
    pub const ALL: [Self; 9] = [
        Self::Unspecified,
        Self::Submitted,
        Self::Working,
        Self::Completed,
        Self::Failed,
        Self::Canceled,
        Self::InputRequired,
        Self::Rejected,
        Self::AuthRequired,
    ];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unspecified => "TASK_STATE_UNSPECIFIED",
            Self::Submitted => "TASK_STATE_SUBMITTED",
            Self::Working => "TASK_STATE_WORKING",
            Self::Completed => "TASK_STATE_COMPLETED",
            Self::Failed => "TASK_STATE_FAILED",
            Self::Canceled => "TASK_STATE_CANCELED",
            Self::InputRequired => "TASK_STATE_INPUT_REQUIRED",
            Self::Rejected => "TASK_STATE_REJECTED",
            Self::AuthRequired => "TASK_STATE_AUTH_REQUIRED",
        }
    }

    /// The number in the proto.
    pub const fn number(self) -> i32 {
        self as i32
    }

    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.number() == number)
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Whether the task has ended for good.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled | Self::Rejected)
    }

    /// Whether the task waits for its caller.
    pub const fn is_interrupted(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }
}

impl Role {
    /// Every role, in the order of its number.
    pub const ALL: [Self; 3] = [Self::Unspecified, Self::User, Self::Agent];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unspecified => "ROLE_UNSPECIFIED",
            Self::User => "ROLE_USER",
            Self::Agent => "ROLE_AGENT",
        }
    }

    /// The number in the proto.
    pub const fn number(self) -> i32 {
        self as i32
    }

    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.number() == number)
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for TaskState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl Serialize for Role {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for TaskState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Enum {
            expected: "a task state, by name or number",
            from_name: Self::from_name,
            from_number: Self::from_number,
        })
    }
}

impl<'de> Deserialize<'de> for Role {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Enum {
            expected: "a role, by name or number",
            from_name: Self::from_name,
            from_number: Self::from_number,
        })
    }
}

value!(TaskState);
value!(Role);

struct Enum<T> {
    expected: &'static str,
    from_name: fn(&str) -> Option<T>,
    from_number: fn(i32) -> Option<T>,
}

impl<T> Visitor<'_> for Enum<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<T, E> {
        (self.from_name)(name).ok_or_else(|| E::invalid_value(de::Unexpected::Str(name), &self))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        i32::try_from(number)
            .ok()
            .and_then(self.from_number)
            .ok_or_else(|| E::invalid_value(de::Unexpected::Signed(number), &self))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        i32::try_from(number)
            .ok()
            .and_then(self.from_number)
            .ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(number), &self))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        if number.fract() == 0.0 && number.abs() <= f64::from(i32::MAX) {
            // Exact: the value is integral and in range.
            return self.visit_i64(number as i64);
        }
        Err(E::invalid_value(de::Unexpected::Float(number), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_inverse() {
        for (index, state) in TaskState::ALL.into_iter().enumerate() {
            assert_eq!(state.number(), i32::try_from(index).unwrap());
            assert_eq!(TaskState::from_number(state.number()), Some(state));
            assert_eq!(TaskState::from_name(state.as_str()), Some(state));
            assert_eq!(serde_json::from_str::<TaskState>(&format!("{index}")).unwrap(), state);
            assert_eq!(serde_json::from_str::<TaskState>(&format!("\"{state}\"")).unwrap(), state);
            assert!(!(state.is_terminal() && state.is_interrupted()));
        }
        for (index, role) in Role::ALL.into_iter().enumerate() {
            assert_eq!(role.number(), i32::try_from(index).unwrap());
            assert_eq!(serde_json::from_str::<Role>(&format!("{index}.0")).unwrap(), role);
            assert_eq!(serde_json::from_str::<Role>(&format!("\"{role}\"")).unwrap(), role);
        }
    }

    #[test]
    fn what_is_not_defined_is_refused() {
        for bad in ["9", "-1", "1.5", "\"WORKING\"", "\"1\"", "true", "[]", "99999999999"] {
            assert!(serde_json::from_str::<TaskState>(bad).is_err(), "{bad}");
        }
        assert!(serde_json::from_str::<Role>("3").is_err());
    }

    #[test]
    fn four_states_are_terminal_and_two_interrupted() {
        let terminal: Vec<_> = TaskState::ALL.into_iter().filter(|state| state.is_terminal()).collect();
        assert_eq!(terminal, [TaskState::Completed, TaskState::Failed, TaskState::Canceled, TaskState::Rejected]);
        let interrupted: Vec<_> = TaskState::ALL.into_iter().filter(|state| state.is_interrupted()).collect();
        assert_eq!(interrupted, [TaskState::InputRequired, TaskState::AuthRequired]);
    }
}
