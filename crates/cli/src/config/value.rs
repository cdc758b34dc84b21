//! What keys of the configuration can hold: how it is read from a flag or a variable, and how it is shown.

use std::{collections::BTreeMap, fmt, path::PathBuf, str::FromStr};

use agents::units::{self, Size, Span};
use clap::{Arg, ArgMatches, ValueEnum, builder::EnumValueParser, value_parser};
use serde::{
    Deserialize, Deserializer,
    de::{self, SeqAccess, Visitor},
};
use serde_json::json;
use server::Network;

use super::masked::Masked;

/// An age that nothing reaches.
const NEVER: &str = "never";

/// What a key can hold.
pub(crate) trait Value: Clone + Send + Sync + 'static {
    /// Whether it may stand in a file.
    const IN_FILE: bool = true;

    /// Whether it may hold a secret, which can be given by a file or a credential too.
    const SECRET: bool = false;

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
    fn is_secret(&self) -> bool;

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

/// What becomes of a card that no trusted key has signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CardTrust {
    /// Nobody looks
    Ignore,
    /// It is used, with a warning
    Prefer,
    /// It is refused
    Require,
}

/// Files with keys, each with the origin that they speak for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KeyFiles(pub(crate) Vec<KeyFile>);

/// A file with keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyFile {
    /// `https://agents.example.org`, as URLs are compared.
    pub(crate) origin: String,
    pub(crate) file: PathBuf,
}

/// Addresses, and ranges of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Networks(pub(crate) Vec<Network>);

/// A list of ports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ports(pub(crate) Vec<u16>);

/// How long something is kept: a duration, or `never` for what never goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Age(pub(crate) Option<Span>);

/// How long what is kept of some agents or tenants, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Ages(pub(crate) BTreeMap<String, AgesOf>);

/// How long what of one of them is kept, where that differs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgesOf {
    pub(crate) tasks: Option<Age>,
    pub(crate) events: Option<Age>,
}

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

    fn is_secret(&self) -> bool {
        T::SECRET
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

written!(String, Span, Age);

impl Value for Masked {
    const SECRET: bool = true;

    fn read(text: &str) -> Result<Self, String> {
        Ok(Self::new(text.to_owned()))
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

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
    const SECRET: bool = true;

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

impl Value for Networks {
    fn read(text: &str) -> Result<Self, String> {
        Self::parse(text.split(',').map(str::trim).filter(|entry| !entry.is_empty()))
    }

    fn text(&self) -> String {
        let entries: Vec<String> = self.0.iter().map(Network::to_string).collect();
        if entries.is_empty() { "-".to_owned() } else { entries.join(", ") }
    }

    fn json(&self) -> serde_json::Value {
        self.0.iter().map(Network::to_string).collect()
    }
}

impl Networks {
    fn parse<'a>(entries: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        entries.map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl Value for Ports {
    fn read(text: &str) -> Result<Self, String> {
        let port = |entry: &str| entry.trim().parse().map_err(|_| format!("`{}` is no port", entry.trim()));
        text.split(',').filter(|entry| !entry.trim().is_empty()).map(port).collect::<Result<_, _>>().map(Self)
    }

    fn text(&self) -> String {
        let entries: Vec<String> = self.0.iter().map(u16::to_string).collect();
        if entries.is_empty() { "-".to_owned() } else { entries.join(", ") }
    }

    fn json(&self) -> serde_json::Value {
        self.0.clone().into()
    }
}

impl Value for KeyFiles {
    fn read(text: &str) -> Result<Self, String> {
        Self::parse(text.split(',').map(str::trim).filter(|entry| !entry.is_empty()))
    }

    fn text(&self) -> String {
        let entries: Vec<String> = self.0.iter().map(KeyFile::to_string).collect();
        if entries.is_empty() { "-".to_owned() } else { entries.join(", ") }
    }

    fn json(&self) -> serde_json::Value {
        self.0.iter().map(KeyFile::to_string).collect()
    }
}

impl KeyFiles {
    fn parse<'a>(entries: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        entries.map(KeyFile::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl KeyFile {
    fn parse(entry: &str) -> Result<Self, String> {
        let refusal =
            |why: &str| format!("`{entry}` has to be ORIGIN=FILE, such as https://agents.example.org=keys.json: {why}");
        let (origin, file) = entry.split_once('=').ok_or_else(|| refusal("there is no ="))?;
        let url = client::parse_url(origin.trim()).map_err(|error| refusal(&error.to_string()))?;
        if url.path() != "/" || url.query().is_some() {
            return Err(refusal("an origin has no path"));
        }
        Ok(Self { origin: client::origin(&url), file: PathBuf::from(file.trim()) })
    }
}

impl fmt::Display for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.origin, self.file.display())
    }
}

impl FromStr for Age {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim().eq_ignore_ascii_case(NEVER) {
            return Ok(Self(None));
        }
        text.parse().map(|span| Self(Some(span))).map_err(|reason: String| format!("{reason}, or `{NEVER}`"))
    }
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(span) => span.fmt(f),
            None => f.write_str(NEVER),
        }
    }
}

impl<'de> Deserialize<'de> for Age {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(units::Text)?.parse().map_err(de::Error::custom)
    }
}

impl Value for Ages {
    fn read(text: &str) -> Result<Self, String> {
        let mut ages = Self::default();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let refusal = || format!("`{entry}` has to be NAME.tasks=AGE or NAME.events=AGE, such as echo.tasks=30d");
            let (place, age) = entry.split_once('=').ok_or_else(refusal)?;
            // Names may have full stops in them.
            let (name, what) = place.trim().rsplit_once('.').ok_or_else(refusal)?;
            let of = ages.0.entry(name.to_owned()).or_default();
            let age = Some(age.parse()?);
            match what {
                "tasks" => of.tasks = age,
                "events" => of.events = age,
                _ => return Err(refusal()),
            }
        }
        Ok(ages)
    }

    fn text(&self) -> String {
        let mut entries = Vec::new();
        for (name, of) in &self.0 {
            entries.extend(of.tasks.map(|age| format!("{name}.tasks={age}")));
            entries.extend(of.events.map(|age| format!("{name}.events={age}")));
        }
        if entries.is_empty() { "-".to_owned() } else { entries.join(", ") }
    }

    fn json(&self) -> serde_json::Value {
        let shown = |age: Option<Age>| age.map(|age| age.to_string());
        let of = |(name, of): (&String, &AgesOf)| {
            (name.clone(), json!({"tasks": shown(of.tasks), "events": shown(of.events)}))
        };
        serde_json::Value::Object(self.0.iter().map(of).collect())
    }
}

/// A choice of names.
macro_rules! choice {
    ($($type:ty),+) => {$(
        impl Value for $type {
            fn read(text: &str) -> Result<Self, String> {
                <Self as ValueEnum>::from_str(text, true)
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

choice!(LogFormat, Compat, CardTrust);

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
        deserializer.deserialize_any(List("a list of origins, or \"*\"")).map(Self)
    }
}

impl<'de> Deserialize<'de> for Networks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entries = deserializer.deserialize_any(List("a list of addresses and ranges of them"))?;
        Self::parse(entries.iter().map(String::as_str)).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self)
    }
}

impl<'de> Deserialize<'de> for KeyFiles {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entries = deserializer.deserialize_any(List("a list of ORIGIN=FILE"))?;
        Self::parse(entries.iter().map(String::as_str)).map_err(de::Error::custom)
    }
}

/// A list of texts, or one text alone; it says what is expected.
struct List(&'static str);

impl<'de> Visitor<'de> for List {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<String>, E> {
        Ok(vec![text.to_owned()])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<String>, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = list.next_element()? {
            texts.push(text);
        }
        Ok(texts)
    }
}
