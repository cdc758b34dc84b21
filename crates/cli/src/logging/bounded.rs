//! How often the log repeats itself: whatever a place in the code says of one agent comes as it is, up to a number of lines, and then at a
//! steady rate. What is left out is counted, and told before the next line that is not.
//!
//! It is the last thing before a line is written, so that nobody who logs has to think of it. Levels below INFO are not bounded: who asks for
//! them wants all of it.

use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tracing::{
    Event, Level, Subscriber,
    callsite::Identifier,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::Writer,
        time::{FormatTime, SystemTime},
    },
    registry::LookupSpan,
};

use crate::config::LogFormat;

/// How many lines come at once, and how long one more takes, of warnings and errors.
const WARNINGS: Rate = Rate { burst: 20, each: Duration::from_secs(1) };
/// The same of what is said in passing.
const NOTES: Rate = Rate { burst: 200, each: Duration::from_millis(50) };

/// So many kinds of lines are told apart.
const KINDS: usize = 1024;

#[derive(Debug, Clone, Copy)]
struct Rate {
    burst: u32,
    each: Duration,
}

/// Writes lines as `inner` does, as many as anybody reads.
pub(super) struct Bounded<F> {
    inner: F,
    format: LogFormat,
    book: Mutex<HashMap<Kind, Told>>,
}

/// What is said in one place of the code, of one agent if it is of any.
type Kind = (Identifier, Option<String>);

#[derive(Debug)]
struct Told {
    /// How many lines may come at once.
    left: u32,
    /// When the last of them was added.
    since: Instant,
    /// How many were left out since the last one that was not.
    silent: u64,
}

impl<F> Bounded<F> {
    pub(super) fn new(inner: F, format: LogFormat) -> Self {
        Self { inner, format, book: Mutex::default() }
    }

    /// Whether a line of this kind is written now, and how many before it were not.
    fn may_tell(&self, kind: Kind, rate: Rate, now: Instant) -> Option<u64> {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        if book.len() >= KINDS && !book.contains_key(&kind) {
            // Who has been quiet for long has nothing to be remembered for; when everybody talks, all begin anew.
            book.retain(|_, told| !told.is_rested(now));
            if book.len() >= KINDS {
                book.clear();
            }
        }
        let told = book.entry(kind).or_insert(Told { left: rate.burst, since: now, silent: 0 });
        told.may_tell(rate, now)
    }
}

impl Told {
    fn may_tell(&mut self, rate: Rate, now: Instant) -> Option<u64> {
        let waited = now.saturating_duration_since(self.since).as_millis() / rate.each.as_millis().max(1);
        let more = u32::try_from(waited).unwrap_or(u32::MAX);
        if more > 0 {
            self.since = if more >= rate.burst { now } else { self.since + rate.each * more };
            self.left = self.left.saturating_add(more).min(rate.burst);
        }
        if self.left == 0 {
            self.silent += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.silent))
    }

    /// Whether it says no more than that all lines may come.
    fn is_rested(&self, now: Instant) -> bool {
        self.silent == 0 && now.saturating_duration_since(self.since) > WARNINGS.each * WARNINGS.burst
    }
}

impl<S, N, F> FormatEvent<S, N> for Bounded<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let metadata = event.metadata();
        let rate = match *metadata.level() {
            Level::ERROR | Level::WARN => WARNINGS,
            Level::INFO => NOTES,
            _ => return self.inner.format_event(context, writer, event),
        };
        let mut fields = Named::default();
        event.record(&mut fields);
        let kind = (metadata.callsite(), fields.agent.clone());
        match self.may_tell(kind, rate, Instant::now()) {
            None => Ok(()),
            Some(0) => self.inner.format_event(context, writer, event),
            Some(silent) => {
                say_silent(self.format, &mut writer, metadata.level(), metadata.target(), &fields, silent)?;
                self.inner.format_event(context, writer, event)
            }
        }
    }
}

/// The line that says how many were left out.
fn say_silent(
    format: LogFormat,
    writer: &mut Writer<'_>,
    level: &Level,
    target: &str,
    fields: &Named,
    silent: u64,
) -> fmt::Result {
    let mut time = String::new();
    SystemTime.format_time(&mut Writer::new(&mut time))?;
    let message = "lines like the next one were left out";
    let like = &fields.message;
    match format {
        LogFormat::Json => {
            let mut line = serde_json::json!({
                "timestamp": time, "level": level.as_str(), "message": message, "suppressed": silent, "like": like, "target": target,
            });
            if let Some(agent) = &fields.agent {
                line["agent.name"] = agent.as_str().into();
            }
            writeln!(writer, "{line}")
        }
        LogFormat::Human => {
            let of = fields.agent.as_ref().map(|agent| format!(" agent.name={agent:?}")).unwrap_or_default();
            writeln!(writer, "{time} {level:>5} {message} suppressed={silent}{of}")
        }
    }
}

/// What a line is about.
#[derive(Default)]
struct Named {
    agent: Option<String>,
    message: String,
}

impl Visit for Named {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "agent.name" => self.agent = Some(value.to_owned()),
            "message" => value.clone_into(&mut self.message),
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if matches!(field.name(), "agent.name" | "message") {
            self.record_str(field, &format!("{value:?}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { burst: 3, each: Duration::from_secs(1) };

    #[test]
    fn a_burst_comes_and_then_a_line_now_and_then() {
        let start = Instant::now();
        let mut told = Told { left: RATE.burst, since: start, silent: 0 };
        let mut at = |millis: u64| told.may_tell(RATE, start + Duration::from_millis(millis));
        assert_eq!([at(0), at(0), at(0)], [Some(0), Some(0), Some(0)]);
        assert_eq!([at(1), at(500), at(999)], [None, None, None]);
        assert_eq!(at(1000), Some(3), "those that were left out are counted");
        assert_eq!([at(1000), at(1999)], [None, None]);
        assert_eq!(at(2000), Some(2));
        assert_eq!(
            [at(60_000), at(60_000), at(60_000), at(60_000)],
            [Some(0), Some(0), Some(0), None],
            "a burst at most"
        );
    }

    #[test]
    fn what_was_waited_for_counts_to_the_millisecond() {
        let start = Instant::now();
        let mut told = Told { left: 0, since: start, silent: 0 };
        let mut at = |millis: u64| told.may_tell(RATE, start + Duration::from_millis(millis)).is_some();
        assert!(at(1900), "one is due since the first second");
        assert!(at(2000), "the rest of the time is not lost");
        assert!(!at(2900));
    }
}
