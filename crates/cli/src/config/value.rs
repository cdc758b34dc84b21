//! What keys of the configuration can hold: how it is read from a flag or a variable, and how it is shown.

use std::{fmt, path::PathBuf};

use agents::units::{Size, Span};
use clap::{Arg, ArgMatches, ValueEnum, builder::EnumValueParser, value_parser};
use serde::{
    Deserialize, Deserializer,
    de::{self, SeqAccess, Visitor},
};
use serde_json::json;

use super::masked::Masked;

/// What a key can hold.
pub(crate) trait Value: Clone + Send + Sync + 'static {
    /// Whether it may stand in a file.
    const IN_FILE: bool = true;

    /// Reads what a flag or a variable says.
    fn read(text: &str) -> Result<Self, String>;

    /// As people would write it; no secret is in it.
    fn text(&self) -> String;

    fn json(&self) -> serde_json::Value {
        self.text().into()
    }

    /// What can be compared with a range.
    fn number(&self) -> Option<u64> {
        None
    }

    /// Says what a flag takes.
    fn argument(argument: Arg) -> Arg {
        argument.value_parser(Self::read)
    }
}

/// A value as it is shown.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    pub(crate) text: String,
    pub(crate) json: serde_json::Value,
}

/// The value of any key, which may be unset.
pub(crate) trait Held {
    /// Sets what a variable says.
    fn read(&mut self, text: &str) -> Result<(), String>;

    /// Sets what a flag says, if it was given.
    fn take(&mut self, matches: &ArgMatches, flag: &str);

    fn shown(&self) -> Option<Shown>;
    fn number(&self) -> Option<u64>;

    /// Says what a flag takes.
    fn argument(&self, argument: Arg) -> Arg;
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people
    Human,
    /// One JSON object a line
    Json,
}

/// An older version of the protocol that cards can be made readable for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ValueEnum)]
pub(crate) enum Compat {
    #[serde(rename = "0.3")]
    #[value(name = "0.3")]
    V03,
    #[serde(rename = "none")]
    None,
}

/// A list of origins, or `*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Origins(pub(super) Vec<String>);

/// What somebody authenticates with: not for files, which are shown around, nor for command lines.
#[derive(Clone, Deserialize)]
pub(crate) struct Token(String);

impl Shown {
    pub(super) fn of<T: Value>(value: &T) -> Self {
        Self { text: value.text(), json: value.json() }
    }
}

impl<T: Value> Held for Option<T> {
    fn read(&mut self, text: &str) -> Result<(), String> {
        *self = Some(T::read(text)?);
        Ok(())
    }

    fn take(&mut self, matches: &ArgMatches, flag: &str) {
        *self = matches.get_one::<T>(flag).cloned();
    }

    fn shown(&self) -> Option<Shown> {
        self.as_ref().map(Shown::of)
    }

    fn number(&self) -> Option<u64> {
        self.as_ref().and_then(Value::number)
    }

    fn argument(&self, argument: Arg) -> Arg {
        T::argument(argument)
    }
}

/// What says itself how it is read and written.
macro_rules! written {
    ($($type:ty),+) => {$(
        impl Value for $type {
            fn read(text: &str) -> Result<Self, String> {
                text.parse().map_err(|reason| format!("{reason}"))
            }

            fn text(&self) -> String {
                self.to_string()
            }
        }
    )+};
}

written!(String, Masked, Span);

impl Value for PathBuf {
    fn read(text: &str) -> Result<Self, String> {
        Ok(Self::from(text))
    }

    fn text(&self) -> String {
        self.display().to_string()
    }

    fn argument(argument: Arg) -> Arg {
        argument.value_parser(value_parser!(Self))
    }
}

impl Value for Token {
    const IN_FILE: bool = false;

    fn read(text: &str) -> Result<Self, String> {
        Ok(Self(text.to_owned()))
    }

    fn text(&self) -> String {
        "***".to_owned()
    }
}

impl Value for bool {
    fn read(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "1" | "true" | "yes" | "on" => Ok(true),
            "0" | "false" | "no" | "off" => Ok(false),
            _ => Err("it has to be true or false".to_owned()),
        }
    }

    fn text(&self) -> String {
        self.to_string()
    }

    fn json(&self) -> serde_json::Value {
        json!(self)
    }

    /// `--flag` alone says yes.
    fn argument(argument: Arg) -> Arg {
        argument.value_parser(Self::read).num_args(0..=1).require_equals(true).default_missing_value("true")
    }
}

impl Value for u64 {
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "it has to be a whole number of 0 or more".to_owned())
    }

    fn text(&self) -> String {
        self.to_string()
    }

    fn json(&self) -> serde_json::Value {
        json!(self)
    }

    fn number(&self) -> Option<u64> {
        Some(*self)
    }
}

impl Value for Size {
    fn read(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn text(&self) -> String {
        self.to_string()
    }

    fn json(&self) -> serde_json::Value {
        json!(self.0)
    }

    fn number(&self) -> Option<u64> {
        Some(self.0)
    }
}

impl Value for Origins {
    fn read(text: &str) -> Result<Self, String> {
        let origins = text.split(',').map(str::trim).filter(|origin| !origin.is_empty());
        Ok(Self(origins.map(str::to_owned).collect()))
    }

    fn text(&self) -> String {
        if self.0.is_empty() { "-".to_owned() } else { self.0.join(", ") }
    }

    fn json(&self) -> serde_json::Value {
        json!(self.0)
    }
}

/// A choice of names.
macro_rules! choice {
    ($($type:ty),+) => {$(
        impl Value for $type {
            fn read(text: &str) -> Result<Self, String> {
                Self::from_str(text, true)
            }

            fn text(&self) -> String {
                self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
            }

            fn argument(argument: Arg) -> Arg {
                argument.value_parser(EnumValueParser::<Self>::new())
            }
        }
    )+};
}

choice!(LogFormat, Compat);

impl Token {
    /// The token itself.
    pub(crate) fn expose(self) -> String {
        self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl<'de> Deserialize<'de> for Origins {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Lists;

        impl<'de> Visitor<'de> for Lists {
            type Value = Origins;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of origins, or \"*\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Origins, E> {
                Ok(Origins(vec![text.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Origins, A::Error> {
                let mut origins = Vec::new();
                while let Some(origin) = list.next_element()? {
                    origins.push(origin);
                }
                Ok(Origins(origins))
            }
        }

        deserializer.deserialize_any(Lists)
    }
}
