//! The tables `[limits]` and `[cors]`: bounds of everything that callers send, and which web pages may call.

use std::{fmt, ops::RangeInclusive, str::FromStr, time::Duration};

use agents::units::{Size, Span};
use serde::{
    Deserialize, Deserializer,
    de::{self, SeqAccess, Visitor},
};
use server::{Cors, Rate};

use super::{Environment, variable};
use crate::failure::Failure;

/// A number; where nothing else is said, 0 is no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Count(u64);

/// A list of origins, or `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origins(Vec<String>);

/// A table of the configuration: its keys, and what of them is in the file or the environment.
macro_rules! table {
    ($(#[$doc:meta])* $table:ident, $name:literal: $($key:ident: $type:ty),+ $(,)?) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $table {
            $($key: Option<$type>,)+
        }

        impl $table {
            pub(super) const KEYS: &'static [&'static str] = &[$(stringify!($key)),+];

            /// This table, and where it is silent the one below.
            pub(super) fn over(self, below: Self) -> Self {
                Self { $($key: self.$key.or(below.$key),)+ }
            }

            /// `SB_LIMITS_TASKS` is `limits.tasks`.
            pub(super) fn from_environment(environment: Environment<'_>) -> Result<Self, Failure> {
                let name = |key: &str| format!("SB_{}_{}", $name, key).to_uppercase();
                Ok(Self { $($key: variable(environment, &name(stringify!($key)), str::parse)?,)+ })
            }
        }
    };
}

table! {
    /// `[limits]`
    Limits, "limits":
    body_bytes: Size,
    json_depth: Count,
    parts: Count,
    id_bytes: Size,
    metadata_bytes: Size,
    header_timeout: Span,
    body_timeout: Span,
    connections: Count,
    requests_per_second: Count,
    request_burst: Count,
    failed_auth_per_second: Count,
    failed_auth_burst: Count,
    tasks: Count,
    stored_bytes: Size,
    streams: Count,
}

table! {
    /// `[cors]`
    CorsTable, "cors":
    origins: Origins,
}

/// The bounds, checked.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    message: a2a::Limits,
    quota: store::Quota,
    streams: Option<usize>,
    body: usize,
    header_timeout: Duration,
    body_timeout: Duration,
    connections: usize,
    requests: Rate,
    failed_auth: Rate,
}

/// More than any machine has to spare for one request.
const MAX_BYTES: u64 = 256 << 20;
/// Ids that are made here have 36 characters and must come back.
const MIN_ID: u64 = 64;
/// A reader of JSON goes 128 levels deep, and the request around a value needs some of them.
const MAX_DEPTH: u64 = 120;
const MANY: u64 = 1_000_000;

impl Limits {
    pub(super) fn check(self) -> Result<Bounds, Failure> {
        let edge = server::Options::new(([127, 0, 0, 1], 0).into());
        let inside = exchange::Options::default();
        let message = inside.limits;
        let size = |size: Option<Size>| size.map(|size| size.0);
        let count = |count: Option<Count>| count.map(|count| count.0);
        Ok(Bounds {
            message: a2a::Limits {
                id_bytes: within("id_bytes", size(self.id_bytes), message.id_bytes, MIN_ID..=65_536)?,
                metadata_bytes: within(
                    "metadata_bytes",
                    size(self.metadata_bytes),
                    message.metadata_bytes,
                    2..=MAX_BYTES,
                )?,
                parts: within("parts", count(self.parts), message.parts, 1..=MANY)?,
                json_depth: within("json_depth", count(self.json_depth), message.json_depth, 1..=MAX_DEPTH)?,
            },
            quota: store::Quota {
                tasks: bound(count(self.tasks), inside.quota.tasks),
                bytes: bound(size(self.stored_bytes), inside.quota.bytes),
            },
            streams: match self.streams {
                None => inside.max_streams,
                Some(Count(0)) => None,
                Some(Count(streams)) => Some(usize::try_from(streams).unwrap_or(usize::MAX)),
            },
            body: within("body_bytes", size(self.body_bytes), edge.body_limit, 1024..=MAX_BYTES)?,
            header_timeout: self.header_timeout.map_or(edge.header_timeout, |span| span.0),
            body_timeout: self.body_timeout.map_or(edge.body_timeout, |span| span.0),
            connections: within("connections", count(self.connections), edge.max_connections, 1..=MANY)?,
            requests: rate("request", self.requests_per_second, self.request_burst, edge.request_rate)?,
            failed_auth: rate(
                "failed_auth",
                self.failed_auth_per_second,
                self.failed_auth_burst,
                edge.failed_auth_rate,
            )?,
        })
    }
}

impl CorsTable {
    pub(super) fn check(&self) -> Result<Cors, Failure> {
        let origins = self.origins.as_ref().map_or(&[][..], |origins| &origins.0);
        Cors::parse(origins).map_err(|reason| Failure::usage("cannot use `cors.origins`").because(reason))
    }
}

impl Bounds {
    /// The defaults of the exchange, with these bounds.
    pub(crate) fn exchange(&self) -> exchange::Options {
        exchange::Options {
            limits: self.message.clone(),
            quota: self.quota,
            max_streams: self.streams,
            ..exchange::Options::default()
        }
    }

    /// Sets the bounds of the edge.
    pub(crate) fn apply(&self, options: &mut server::Options) {
        options.body_limit = self.body;
        options.header_timeout = self.header_timeout;
        options.body_timeout = self.body_timeout;
        options.max_connections = self.connections;
        options.request_rate = self.requests;
        options.failed_auth_rate = self.failed_auth;
    }
}

/// A value that has to be in a range.
fn within(key: &str, given: Option<u64>, default: usize, range: RangeInclusive<u64>) -> Result<usize, Failure> {
    let Some(given) = given else {
        return Ok(default);
    };
    if !range.contains(&given) {
        return Err(Failure::usage(format!("`limits.{key}` cannot be {given}")).because(format!(
            "it has to be {} to {}",
            range.start(),
            range.end()
        )));
    }
    Ok(usize::try_from(given).unwrap_or(usize::MAX))
}

/// A value that is no bound when it is 0.
fn bound(given: Option<u64>, default: Option<u64>) -> Option<u64> {
    given.map_or(default, |given| (given > 0).then_some(given))
}

/// A rate whose burst, unless given, is in the same proportion to it as the default's.
fn rate(name: &str, per_second: Option<Count>, burst: Option<Count>, default: Rate) -> Result<Rate, Failure> {
    let number = |key: String, given: Option<Count>, default: u32, least: u64| -> Result<u32, Failure> {
        let default = usize::try_from(default).unwrap_or(usize::MAX);
        let number = within(&key, given.map(|given| given.0), default, least..=MANY)?;
        Ok(u32::try_from(number).unwrap_or(u32::MAX))
    };
    let plural = if name == "request" { "requests" } else { name };
    let per_second = number(format!("{plural}_per_second"), per_second, default.per_second, 0)?;
    let proportion = default.burst / default.per_second.max(1);
    let burst = number(format!("{name}_burst"), burst, per_second.saturating_mul(proportion).max(1), 1)?;
    Ok(Rate { per_second, burst })
}

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self).map_err(|_| "it has to be a whole number of 0 or more".to_owned())
    }
}

impl FromStr for Origins {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let origins = text.split(',').map(str::trim).filter(|origin| !origin.is_empty());
        Ok(Self(origins.map(str::to_owned).collect()))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(text: &str) -> Limits {
        toml::from_str(text).unwrap()
    }

    fn edge(bounds: &Bounds) -> server::Options {
        let mut options = server::Options::new(([127, 0, 0, 1], 0).into());
        bounds.apply(&mut options);
        options
    }

    #[test]
    fn nothing_given_is_the_default() {
        let bounds = Limits::default().check().unwrap();
        let (edge, inside) = (edge(&bounds), bounds.exchange());
        assert_eq!((edge.body_limit, edge.max_connections), (10 << 20, 10_000));
        assert_eq!(edge.request_rate, Rate { per_second: 50_000, burst: 100_000 });
        assert_eq!(edge.failed_auth_rate, Rate { per_second: 20, burst: 100 });
        assert_eq!((inside.quota.tasks, inside.quota.bytes), (Some(10_000), None));
        assert_eq!(inside.max_streams, Some(10_000));
    }

    #[test]
    fn every_key_arrives() {
        let text = r#"
            body_bytes = "1MiB"
            json_depth = 7
            parts = 8
            id_bytes = 128
            metadata_bytes = "2KiB"
            header_timeout = "1s"
            body_timeout = "2s"
            connections = 9
            requests_per_second = 10
            request_burst = 11
            failed_auth_per_second = 12
            failed_auth_burst = 13
            tasks = 14
            stored_bytes = "1GiB"
            streams = 15
        "#;
        for key in Limits::KEYS {
            assert!(text.contains(key), "{key} is not in this test");
        }
        let bounds = limits(text).check().unwrap();
        let (edge, inside) = (edge(&bounds), bounds.exchange());
        assert_eq!((edge.body_limit, edge.max_connections), (1 << 20, 9));
        assert_eq!((edge.header_timeout, edge.body_timeout), (Duration::from_secs(1), Duration::from_secs(2)));
        assert_eq!(edge.request_rate, Rate { per_second: 10, burst: 11 });
        assert_eq!(edge.failed_auth_rate, Rate { per_second: 12, burst: 13 });
        let message = inside.limits;
        assert_eq!((message.json_depth, message.parts), (7, 8));
        assert_eq!((message.id_bytes, message.metadata_bytes), (128, 2048));
        assert_eq!((inside.quota.tasks, inside.quota.bytes), (Some(14), Some(1 << 30)));
        assert_eq!(inside.max_streams, Some(15));
    }

    #[test]
    fn zero_is_no_bound_where_that_makes_sense() {
        let text = "tasks = 0\nstored_bytes = 0\nstreams = 0\nrequests_per_second = 0\n";
        let bounds = limits(text).check().unwrap();
        let inside = bounds.exchange();
        assert_eq!((inside.quota, inside.max_streams), (store::Quota::default(), None));
        assert_eq!(edge(&bounds).request_rate.per_second, 0);
        for text in
            ["body_bytes = 0", "json_depth = 0", "json_depth = 121", "parts = 0", "id_bytes = 8", "connections = 0"]
        {
            let failure = limits(text).check().unwrap_err();
            let key = text.split(' ').next().unwrap();
            assert!(failure.error.contains(&format!("`limits.{key}`")), "{failure:?}");
            assert_eq!(failure.exit as u8, 2);
        }
    }

    #[test]
    fn a_burst_follows_its_rate() {
        let bounds = limits("requests_per_second = 5\nfailed_auth_per_second = 1\n").check().unwrap();
        let edge = edge(&bounds);
        assert_eq!((edge.request_rate.burst, edge.failed_auth_rate.burst), (10, 5));
    }

    #[test]
    fn origins_are_a_list_or_a_star() {
        let cors = |text: &str| toml::from_str::<CorsTable>(text).unwrap().check();
        assert_eq!(cors("").unwrap(), Cors::Nobody);
        assert_eq!(cors("origins = \"*\"").unwrap(), Cors::Everybody);
        assert_eq!(cors("origins = [\"*\"]").unwrap(), Cors::Everybody);
        assert_eq!(cors("origins = [\"https://a\"]").unwrap(), Cors::Only(vec!["https://a".to_owned()]));
        let failure = cors("origins = [\"a\"]").unwrap_err();
        assert!(failure.error.contains("cors.origins") && failure.causes[0].contains("`a`"), "{failure:?}");
        assert!(toml::from_str::<CorsTable>("origins = 5").is_err());
        let listed: Origins = "https://a, https://b".parse().unwrap();
        assert_eq!(listed.0, ["https://a", "https://b"]);
    }
}
