//! The sign that somebody is thinking while nothing comes. Only where somebody watches: it is written over and over, and gone when there is
//! something to read.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::output::{self, Style};

/// What comes sooner needs no sign.
const QUIET: Duration = Duration::from_millis(600);
/// How often it shows that time goes on.
const TICK: Duration = Duration::from_secs(1);

/// Since when nothing has come, and what is shown of that.
pub(super) struct Waiting {
    wanted: bool,
    since: Instant,
    next: Instant,
    /// How many columns the sign takes now.
    shown: usize,
}

impl Waiting {
    /// From now on. Nothing is ever shown unless it is wanted.
    pub(super) fn new(wanted: bool) -> Self {
        let since = Instant::now();
        Self { wanted, since, next: since + QUIET, shown: 0 }
    }

    /// The next time at which the sign changes; never where none is wanted.
    pub(super) async fn tick(&self) {
        if self.wanted { sleep_until(self.next).await } else { std::future::pending().await }
    }

    /// Shows the sign, unless it would run into a line.
    pub(super) fn show(&mut self, at_line_start: bool) {
        self.next = Instant::now() + TICK;
        if !at_line_start {
            return;
        }
        self.hide();
        let seconds = self.since.elapsed().as_secs();
        let sign = if seconds == 0 { "· thinking…".to_owned() } else { format!("· thinking… {seconds} s") };
        output::print(&output::styled(Style::Dim, &sign));
        self.shown = sign.chars().count();
    }

    /// Something has come.
    pub(super) fn heard(&mut self) {
        self.hide();
        self.since = Instant::now();
        self.next = self.since + QUIET;
    }

    /// Takes the sign away.
    pub(super) fn hide(&mut self) {
        let columns = std::mem::take(&mut self.shown);
        if columns > 0 {
            output::print(&format!("\r{}\r", " ".repeat(columns)));
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.hide();
    }
}
