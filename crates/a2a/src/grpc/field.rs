//! How one field becomes another: the conversion that messages are made of, and what is wrong with a field and where.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::{Error, ErrorKind, Json, JsonObject, Role, TaskState, Timestamp, timestamp::Zoned};

use super::dynamic::{Struct, Value};

/// A value of ours that stands in a field of type `P`.
pub(crate) trait Field<P>: Sized {
    fn read(wire: P) -> Result<Self, Misfit>;
    fn write(self) -> P;
}

/// What is wrong with a field. Its path grows from the inside out.
#[derive(Debug)]
pub(crate) struct Misfit {
    path: String,
    description: String,
    /// The bytes are no message at all.
    is_malformed: bool,
}

impl Misfit {
    pub(crate) fn new(description: impl Into<String>) -> Self {
        Self { path: String::new(), description: description.into(), is_malformed: false }
    }

    pub(crate) fn malformed() -> Self {
        Self { is_malformed: true, ..Self::new(super::NO_MESSAGE) }
    }

    pub(crate) fn missing() -> Self {
        Self::new("is required")
    }

    #[cfg(test)]
    pub(crate) fn is_malformed(&self) -> bool {
        self.is_malformed
    }

    /// The same, seen from the message that has the field.
    pub(crate) fn within(mut self, field: &str) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{}{dot}{}", camel(field), self.path);
        self
    }

    fn at(mut self, index: usize) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        self.path = format!("[{index}]{dot}{}", self.path);
        self
    }

    pub(crate) fn into_error(self) -> Error {
        if self.is_malformed {
            return Error::new(ErrorKind::ParseError, self.description);
        }
        Error::invalid(self.path, self.description)
    }
}

/// A field's name as JSON spells it.
fn camel(name: &str) -> String {
    let mut camel = String::with_capacity(name.len());
    let mut upper = false;
    for character in name.chars() {
        if character == '_' {
            upper = true;
        } else {
            camel.push(if upper { character.to_ascii_uppercase() } else { character });
            upper = false;
        }
    }
    camel
}

macro_rules! same {
    ($( $ty:ty, )*) => {
        $( impl Field<$ty> for $ty {
            fn read(wire: $ty) -> Result<Self, Misfit> {
                Ok(wire)
            }

            fn write(self) -> $ty {
                self
            }
        } )*
    };
}

same! { String, bool, i32, Bytes, }

impl<P, T: Field<P>> Field<Option<P>> for Option<T> {
    fn read(wire: Option<P>) -> Result<Self, Misfit> {
        wire.map(T::read).transpose()
    }

    fn write(self) -> Option<P> {
        self.map(T::write)
    }
}

impl<P, T: Field<P>> Field<Vec<P>> for Vec<T> {
    fn read(wire: Vec<P>) -> Result<Self, Misfit> {
        let items = wire.into_iter().enumerate();
        items.map(|(index, item)| T::read(item).map_err(|misfit| misfit.at(index))).collect()
    }

    fn write(self) -> Vec<P> {
        self.into_iter().map(T::write).collect()
    }
}

impl<P, T: Field<P>> Field<BTreeMap<String, P>> for BTreeMap<String, T> {
    fn read(wire: BTreeMap<String, P>) -> Result<Self, Misfit> {
        let read = |(key, value): (String, P)| match T::read(value) {
            Ok(value) => Ok((key, value)),
            Err(misfit) => Err(misfit.within(&key)),
        };
        wire.into_iter().map(read).collect()
    }

    fn write(self) -> BTreeMap<String, P> {
        self.into_iter().map(|(key, value)| (key, value.write())).collect()
    }
}

impl Field<i32> for TaskState {
    fn read(wire: i32) -> Result<Self, Misfit> {
        Self::from_number(wire).ok_or_else(|| Misfit::new(format!("must be a task state, not {wire}")))
    }

    fn write(self) -> i32 {
        self.number()
    }
}

impl Field<i32> for Role {
    fn read(wire: i32) -> Result<Self, Misfit> {
        Self::from_number(wire).ok_or_else(|| Misfit::new(format!("must be a role, not {wire}")))
    }

    fn write(self) -> i32 {
        self.number()
    }
}

impl Field<prost_types::Timestamp> for Timestamp {
    fn read(wire: prost_types::Timestamp) -> Result<Self, Misfit> {
        let millis =
            wire.seconds.checked_mul(1000).and_then(|seconds| seconds.checked_add((wire.nanos / 1_000_000).into()));
        // Held within the years that can be written, another one would come out.
        let timestamp = millis.map(Self::from_millis).filter(|found| Some(found.as_millis()) == millis);
        match timestamp {
            Some(timestamp) if (0..1_000_000_000).contains(&wire.nanos) => Ok(timestamp),
            _ => Err(Misfit::new("must be a time of the years 1 to 9999")),
        }
    }

    fn write(self) -> prost_types::Timestamp {
        let (seconds, millis) = (self.as_millis().div_euclid(1000), self.as_millis().rem_euclid(1000));
        // Less than a thousand.
        prost_types::Timestamp { seconds, nanos: millis as i32 * 1_000_000 }
    }
}

impl Field<prost_types::Timestamp> for Zoned {
    fn read(wire: prost_types::Timestamp) -> Result<Self, Misfit> {
        Field::read(wire).map(Self)
    }

    fn write(self) -> prost_types::Timestamp {
        self.0.write()
    }
}

impl Field<Struct> for JsonObject {
    fn read(wire: Struct) -> Result<Self, Misfit> {
        wire.read()
    }

    fn write(self) -> Struct {
        Struct::from_text(String::from(self))
    }
}

impl Field<Value> for Json {
    fn read(wire: Value) -> Result<Self, Misfit> {
        wire.read()
    }

    fn write(self) -> Value {
        Value::from_text(String::from(self))
    }
}
