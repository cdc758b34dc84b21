//! The outcome of a run: figures of what happened, and violations of what is promised.

use std::fmt;

use store::Event;

use super::{log::has_frame, sse::Frame};

/// Maximum number of violations that are described.
const SAMPLES: usize = 8;

#[derive(Debug)]
pub(crate) struct Report {
    figures: Vec<(&'static str, usize)>,
    violations: Vec<(&'static str, usize)>,
    samples: Vec<String>,
}

impl Report {
    /// A report that knows these kinds of violations, each with its meaning. None has been seen yet.
    pub(crate) fn new(violations: &[(&'static str, &'static str)]) -> Self {
        let violations = violations.iter().map(|(name, _)| (*name, 0)).collect();
        Self { figures: Vec::new(), violations, samples: Vec::new() }
    }

    /// Adds to a figure.
    pub(crate) fn count(&mut self, name: &'static str, count: usize) {
        match self.figures.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += count,
            None => self.figures.push((name, count)),
        }
    }

    /// Counts a violation and keeps a description of the first ones.
    #[track_caller]
    pub(crate) fn violate(&mut self, name: &str, description: impl Into<String>) {
        let known = self.violations.iter_mut().find(|(known, _)| *known == name);
        known.unwrap_or_else(|| panic!("no violation is called {name}")).1 += 1;
        if self.samples.len() < SAMPLES {
            self.samples.push(format!("{name}: {}", description.into()));
        }
    }

    pub(crate) fn figure(&self, name: &str) -> usize {
        self.figures.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
    }

    pub(crate) fn violations(&self, name: &str) -> usize {
        let known = self.violations.iter().find(|(known, _)| *known == name);
        known.unwrap_or_else(|| panic!("no violation is called {name}")).1
    }

    /// The kinds of violations that were seen.
    pub(crate) fn broken(&self) -> Vec<&'static str> {
        self.violations.iter().filter(|(_, count)| *count > 0).map(|(name, _)| *name).collect()
    }

    /// Fails unless no promise was broken and each of these figures is reached: a run in which nothing happened proves
    /// nothing.
    #[track_caller]
    pub(crate) fn assert_clean(&self, least: &[(&str, usize)]) {
        assert!(self.broken().is_empty(), "{self}");
        for (figure, least) in least {
            assert!(self.figure(figure) >= *least, "{figure} must be at least {least}: {self}");
        }
    }

    /// Fails unless one of these promises was broken.
    #[track_caller]
    pub(crate) fn assert_broken(&self, any_of: &[&str]) {
        assert!(any_of.iter().any(|name| self.violations(name) > 0), "none of {any_of:?} was noticed: {self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in &self.figures {
            write!(f, "{name} {count}, ")?;
        }
        write!(f, "violations:")?;
        for (name, count) in &self.violations {
            write!(f, " {name} {count}")?;
        }
        for sample in &self.samples {
            write!(f, "\n  {sample}")?;
        }
        Ok(())
    }
}

/// Whether a stream showed exactly what is in the log. A message that is sent again as a stream joins its task: such a
/// stream begins with the task as it stands and continues after that.
pub(crate) fn is_same(frames: &[Frame], log: &[Event]) -> bool {
    let Some((first, rest)) = frames.split_first() else { return false };
    let joins = first.id > 1 && first.body.get("task").is_some();
    let (seen, after) = if joins { (rest, first.id) } else { (frames, 0) };
    let shown = log.iter().filter(|event| event.seq > after && has_frame(event.kind));
    let shown =
        shown.map(|event| Frame { id: event.seq, body: serde_json::from_slice(&event.body).expect("events are JSON") });
    shown.eq(seen.iter().cloned())
}
