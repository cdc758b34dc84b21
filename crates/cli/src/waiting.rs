//! The spinner that shows that a command waits. Only on a terminal: whatever is printed replaces it.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::output;

/// A wait up to this long shows no spinner.
const QUIET: Duration = Duration::from_millis(600);
/// How often it shows that time goes on.
const TICK: Duration = Duration::from_secs(1);

/// Since when nothing has come, and what the spinner says then.
pub(crate) struct Waiting {
    /// `None` shows nothing.
    text: Option<String>,
    since: Instant,
    next: Instant,
}

impl Waiting {
    /// From now on, with this text where a spinner is wanted.
    pub(crate) fn new(text: Option<&str>) -> Self {
        let since = Instant::now();
        let text = text.filter(|_| output::can_spin()).map(str::to_owned);
        Self { text, since, next: since + QUIET }
    }

    /// The next time at which it changes; never where none is wanted.
    pub(crate) async fn tick(&self) {
        if self.text.is_some() { sleep_until(self.next).await } else { std::future::pending().await }
    }

    /// Shows it, unless that would run into a line.
    pub(crate) fn show(&mut self, at_line_start: bool) {
        self.next = Instant::now() + TICK;
        let Some(text) = self.text.as_ref().filter(|_| at_line_start) else { return };
        match self.since.elapsed().as_secs() {
            0 => output::spinner(&format!("· {text}…")),
            seconds => output::spinner(&format!("· {text}… {seconds} s")),
        }
    }

    /// Something has come.
    pub(crate) fn heard(&mut self) {
        self.hide();
        self.since = Instant::now();
        self.next = self.since + QUIET;
    }

    /// Takes it away.
    pub(crate) fn hide(&mut self) {
        if self.text.is_some() {
            output::hide_spinner();
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.hide();
    }
}
