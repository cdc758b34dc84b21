//! What a run of load came to: counted while it runs, told when it is over.

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use client::Error;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// How often each latency was seen: nanoseconds, to three digits.
#[derive(Debug, Clone)]
pub(crate) struct Latencies(Histogram<u64>);

/// What has been counted since the measurement began.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Operations that worked; for followers, frames.
    pub(crate) done: u64,
    pub(crate) latency: Latencies,
    /// Until the first frame of a stream.
    pub(crate) first: Latencies,
    pub(crate) frames: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    pub(crate) errors: BTreeMap<String, u64>,
}

/// How the subscribers of a run fared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subscribers {
    pub(crate) asked: usize,
    pub(crate) attached: usize,
    /// Their stream was open when the run ended, or had ended with its task.
    pub(crate) stayed: usize,
    pub(crate) attach: Duration,
}

/// A run that is over.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) mode: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) binding: &'static str,
    pub(crate) url: String,
    pub(crate) concurrency: usize,
    pub(crate) text_bytes: usize,
    pub(crate) elapsed: Duration,
    pub(crate) tally: Tally,
    pub(crate) subscribers: Option<Subscribers>,
    /// How often the server's journal was committed meanwhile, where it tells.
    pub(crate) commits: Option<u64>,
    /// What a run consists of that does several things in turn; the figures of the report are those of the last.
    pub(crate) phases: Vec<Phase>,
}

/// One of several things that a run does in turn.
#[derive(Debug)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) elapsed: Duration,
    pub(crate) done: u64,
    pub(crate) latency: Latencies,
    pub(crate) commits: Option<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self(Histogram::new(3).expect("three digits are among those it can keep"))
    }
}

impl Latencies {
    pub(crate) fn record(&mut self, value: Duration) {
        // It grows with what it is given, and only centuries are too much for it.
        let _ = self.0.record(u64::try_from(value.as_nanos()).unwrap_or(u64::MAX));
    }

    fn json(&self) -> Value {
        if self.0.is_empty() {
            return Value::Null;
        }
        let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
        json!({
            "p50": microseconds(self.0.value_at_quantile(0.5)),
            "p99": microseconds(self.0.value_at_quantile(0.99)),
            "max": microseconds(self.0.max()),
            "mean": self.0.mean() / 1000.0,
        })
    }
}

impl Tally {
    pub(crate) fn failed(&mut self, kind: String) {
        *self.errors.entry(kind).or_default() += 1;
    }

    pub(crate) fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }
}

/// What an error is counted as.
pub(crate) fn kind(error: &Error) -> String {
    match error {
        Error::Unreachable { .. } => "connection".to_owned(),
        Error::Timeout { .. } => "timeout".to_owned(),
        Error::Malformed(_) => "malformed".to_owned(),
        Error::Auth(remote) | Error::Protocol(remote) => match &remote.reason {
            Some(reason) => format!("{} {reason}", remote.code),
            None => remote.code.to_string(),
        },
        _ => "other".to_owned(),
    }
}

fn rate(count: u64, elapsed: Duration) -> f64 {
    let seconds = elapsed.as_secs_f64();
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

impl Phase {
    fn rate(&self) -> f64 {
        rate(self.done, self.elapsed)
    }

    fn commits_each(&self) -> Option<f64> {
        self.commits.filter(|_| self.done > 0).map(|commits| commits as f64 / self.done as f64)
    }

    /// Its rate over that of another one.
    fn ratio(&self, to: &Self) -> Option<f64> {
        (to.done > 0).then(|| self.rate() / to.rate())
    }
}

impl Report {
    fn rate(&self, count: u64) -> f64 {
        rate(count, self.elapsed)
    }

    /// Only a message is a send; a server that does not tell makes it unknown.
    fn commits_per_send(&self) -> Option<f64> {
        let sends = matches!(self.mode, "send" | "stream") && self.tally.done > 0;
        self.commits.filter(|_| sends).map(|commits| commits as f64 / self.tally.done as f64)
    }

    pub(crate) fn json(&self) -> Value {
        let tally = &self.tally;
        let subscribers = self.subscribers.map(|held| {
            json!({
                "asked": held.asked,
                "attached": held.attached,
                "stayed": held.stayed,
                "attach_seconds": held.attach.as_secs_f64(),
            })
        });
        let phases = self.phases.first().map(|first| {
            let phase = |phase: &Phase| {
                json!({
                    "name": phase.name,
                    "seconds": phase.elapsed.as_secs_f64(),
                    "count": phase.done,
                    "per_second": phase.rate(),
                    "ratio": phase.ratio(first),
                    "latency_us": phase.latency.json(),
                    "commits_each": phase.commits_each(),
                })
            };
            self.phases.iter().map(phase).collect::<Vec<Value>>()
        });
        json!({
            "mode": self.mode,
            "unit": self.unit,
            "binding": self.binding,
            "url": self.url,
            "concurrency": self.concurrency,
            "text_bytes": self.text_bytes,
            "seconds": self.elapsed.as_secs_f64(),
            "count": tally.done,
            "per_second": self.rate(tally.done),
            "latency_us": tally.latency.json(),
            "first_frame_us": tally.first.json(),
            "frames": tally.frames,
            "errors": { "count": tally.error_count(), "kinds": tally.errors },
            "bytes": { "sent": tally.sent_bytes, "received": tally.received_bytes },
            "subscribers": subscribers,
            "commits_per_send": self.commits_per_send(),
            "phases": phases,
        })
    }

    pub(crate) fn text(&self) -> String {
        let tally = &self.tally;
        let mut out = String::new();
        let seconds = self.elapsed.as_secs_f64();
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{}  {}  {}  {} at once, {} bytes of text, {seconds:.1} s",
            self.mode, self.binding, self.url, self.concurrency, self.text_bytes
        );
        if let Some(held) = self.subscribers {
            let _ = writeln!(
                out,
                "subscribers  {} of {} attached in {:.2} s, {} stayed",
                held.attached,
                held.asked,
                held.attach.as_secs_f64(),
                held.stayed
            );
        }
        let _ = writeln!(out, "throughput   {:.1} {}s/s  ({} in all)", self.rate(tally.done), self.unit, tally.done);
        if let Some(first) = self.phases.first() {
            for phase in &self.phases {
                let Latencies(histogram) = &phase.latency;
                let (p50, p99) = (shown(histogram.value_at_quantile(0.5)), shown(histogram.value_at_quantile(0.99)));
                let _ = write!(out, "{:<12} {:.1}/s  p50 {p50}  p99 {p99}", phase.name, phase.rate());
                if let Some(commits) = phase.commits_each() {
                    let _ = write!(out, "  {commits:.3} commits each");
                }
                let ratio = phase.ratio(first).unwrap_or_default();
                let _ = writeln!(out, "  {ratio:.2} of {}", first.name);
            }
        }
        for (label, Latencies(histogram)) in [("latency", &tally.latency), ("first frame", &tally.first)] {
            if !histogram.is_empty() {
                let _ = writeln!(
                    out,
                    "{label:<12} p50 {}  p99 {}  max {}",
                    shown(histogram.value_at_quantile(0.5)),
                    shown(histogram.value_at_quantile(0.99)),
                    shown(histogram.max())
                );
            }
        }
        if tally.frames > 0 && self.unit != "frame" {
            let _ = writeln!(out, "frames       {:.1}/s  ({} in all)", self.rate(tally.frames), tally.frames);
        }
        let _ = writeln!(out, "bytes        {} sent  {} received", tally.sent_bytes, tally.received_bytes);
        if let Some(commits) = self.commits_per_send() {
            let _ = writeln!(out, "commits      {commits:.3} a send");
        }
        let _ = writeln!(out, "errors       {}", tally.error_count());
        for (kind, count) in &tally.errors {
            let _ = writeln!(out, "  {count:>8}  {kind}");
        }
        out
    }
}

fn shown(nanoseconds: u64) -> String {
    format!("{:.2} ms", nanoseconds as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use a2a::error::RemoteError;

    use super::*;

    fn report() -> Report {
        let mut tally = Tally { done: 20, sent_bytes: 5, received_bytes: 7, ..Tally::default() };
        tally.latency.record(Duration::from_millis(2));
        tally.failed("timeout".to_owned());
        tally.failed("timeout".to_owned());
        Report {
            mode: "send",
            unit: "operation",
            binding: "JSONRPC",
            url: "http://h/".to_owned(),
            concurrency: 4,
            text_bytes: 256,
            elapsed: Duration::from_secs(2),
            tally,
            subscribers: None,
            commits: None,
            phases: Vec::new(),
        }
    }

    #[test]
    fn phases_are_compared_with_the_first() {
        let phase = |name, done, commits| {
            let (elapsed, latency) = (Duration::from_secs(2), Latencies::default());
            Phase { name, elapsed, done, latency, commits }
        };
        let phases = vec![phase("send", 20, Some(40)), phase("publish", 30, Some(15)), phase("work", 0, None)];
        let report = Report { phases, ..report() };
        let json = report.json();
        assert_eq!(json["phases"][1]["ratio"], 1.5);
        assert_eq!(json["phases"][1]["commits_each"], 0.5);
        assert_eq!((&json["phases"][2]["ratio"], &json["phases"][2]["commits_each"]), (&json!(0.0), &Value::Null));
        let text = report.text();
        assert!(
            text.contains("publish      15.0/s  p50 0.00 ms  p99 0.00 ms  0.500 commits each  1.50 of send"),
            "{text}"
        );
    }

    #[test]
    fn a_report_is_one_object() {
        let json = report().json();
        assert_eq!(json["per_second"], 10.0);
        let max = json["latency_us"]["max"].as_f64().unwrap();
        assert!((1998.0..=2002.0).contains(&max), "{max}");
        assert_eq!(json["first_frame_us"], Value::Null);
        assert_eq!(json["errors"], json!({ "count": 2, "kinds": { "timeout": 2 } }));
        assert_eq!((&json["commits_per_send"], &json["phases"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn quantiles_are_those_of_what_was_recorded() {
        let mut latencies = Latencies::default();
        (1..=1000).for_each(|microseconds| latencies.record(Duration::from_micros(microseconds)));
        latencies.record(Duration::MAX);
        let json = latencies.json();
        for (name, expected) in [("p50", 501.0), ("p99", 991.0)] {
            let found = json[name].as_f64().unwrap();
            assert!((found - expected).abs() <= expected / 1000.0, "{name}: {found}");
        }
    }

    #[test]
    fn a_report_is_readable() {
        let text = report().text();
        assert!(text.contains("throughput   10.0 operations/s  (20 in all)"), "{text}");
        assert!(text.contains("latency      p50 2.00 ms  p99 2.00 ms  max 2.00 ms"), "{text}");
        assert!(text.contains("       2  timeout"), "{text}");
    }

    #[test]
    fn errors_are_counted_by_what_they_are() {
        let remote = RemoteError { code: -32001, reason: Some("TASK_NOT_FOUND".to_owned()), ..RemoteError::default() };
        assert_eq!(kind(&Error::Protocol(remote)), "-32001 TASK_NOT_FOUND");
        assert_eq!(kind(&Error::Auth(RemoteError { code: 401, ..RemoteError::default() })), "401");
        assert_eq!(kind(&Error::Malformed("x".to_owned())), "malformed");
    }
}
