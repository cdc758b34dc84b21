//! What people are shown of events while they come. The answer is on stdout; what is beside it has lines of its own.

use std::collections::BTreeMap;

use a2a::{Artifact, StreamResponse, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent};
use client::{Error, EventStream, Received};

use super::{
    heard::{Heard, MAX_KEPT, PER_ARTIFACT, attempt},
    patience::Stop,
    text::{artifact_text, last_said, message_text, print_reply, repeats, say_silence, task_text, title},
};
use crate::{
    aside::Aside,
    output::{self, Format, Style},
};

/// What is seen of events while they come.
pub(crate) enum Show {
    /// The answer while it is made.
    Text(Printer),
    /// Every event as a line of JSON.
    Lines,
    /// Only what is beside the answer.
    Beside,
    /// Nothing.
    Nothing,
}

impl Show {
    /// Of a stream that is printed while it comes, or of one whose end is what counts.
    pub(crate) fn new(format: Format, live: bool) -> Self {
        match (format, live) {
            (Format::Text, true) => Self::Text(Printer::default()),
            (Format::Json, true) => Self::Lines,
            (Format::Text, false) => Self::Beside,
            (Format::Json, false) => Self::Nothing,
        }
    }

    /// Of a subscription: what was there before belongs to it.
    pub(crate) fn whole(format: Format) -> Self {
        match format {
            Format::Text => Self::Text(Printer { from_start: true, ..Printer::default() }),
            Format::Json => Self::Lines,
        }
    }

    /// Whether the answer is printed while it comes.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self, Self::Text(_) | Self::Lines)
    }

    /// Whether a line of something else can be shown.
    pub(crate) fn is_at_line_start(&self) -> bool {
        !matches!(self, Self::Text(printer) if !printer.is_at_line_start())
    }

    pub(crate) fn event(&mut self, event: &Received<StreamResponse>) -> Result<(), Error> {
        match (self, &event.value) {
            (Self::Text(printer), value) => return printer.event(value),
            (Self::Lines, _) => output::line(&output::one_line(event.json.get())),
            (Self::Beside, StreamResponse::StatusUpdate(update)) => {
                if let Some(number) = attempt(update) {
                    say_attempt(number);
                } else if let Some(text) = progress(update) {
                    output::aside(&text);
                }
            }
            (Self::Beside | Self::Nothing, _) => {}
        }
        Ok(())
    }

    /// Passes on what came; before bad news a line that is open is ended.
    pub(crate) fn ended_by<T>(&mut self, next: Result<T, Stop>) -> Result<T, Stop> {
        if let (Self::Text(printer), Err(_)) = (self, &next) {
            printer.end();
        }
        next
    }

    /// What there is to say at the end of a stream.
    pub(crate) async fn finish(&mut self, stream: &EventStream) {
        if let Self::Text(printer) = self {
            printer.finish(stream).await;
        }
    }

    /// An answer that came in one piece where a stream was wanted.
    pub(crate) fn answer(&mut self, json: &str, heard: &Heard) {
        match self {
            Self::Lines => output::line(json),
            Self::Text(_) => print_heard(heard),
            Self::Beside | Self::Nothing => {}
        }
    }
}

/// Prints the answer of a turn for people.
pub(crate) fn print_heard(heard: &Heard) {
    match (&heard.message, &heard.task) {
        (Some(message), _) => super::text::print_text(&message_text(message)),
        (None, Some(task)) => {
            if !print_reply(task) && task.status.state == TaskState::Completed {
                say_silence();
            }
        }
        (None, None) => {}
    }
}

/// What an artifact is about as far as it was printed.
struct Made {
    id: String,
    text: String,
    /// It belongs to what is printed here, and not to an earlier turn.
    shown: bool,
}

/// What has been printed of a stream.
#[derive(Default)]
pub(crate) struct Printer {
    /// The artifacts, in the order of their begin.
    made: Vec<Made>,
    /// The one that is being written.
    artifact: Option<String>,
    printed: bool,
    completed: bool,
    /// A task or an event has come.
    begun: bool,
    /// What was there before the first event is printed, too.
    from_start: bool,
    /// What was shown beside the answer, by artifact: what a stream says again after a cut is not shown again.
    asides: BTreeMap<String, Aside>,
    /// The last thing printed did not end its line.
    open_line: bool,
    /// A line was ended for something beside the answer, whose own line break may be the next thing to come.
    cut_line: bool,
    /// What an attempt has printed that was cut off, while the next attempt says the same.
    replay: Option<Replay>,
}

/// The output of an attempt that was cut off. What is in a file or a pipe cannot be taken back, so the next attempt prints
/// nothing for as long as it repeats that output.
struct Replay {
    /// The attempt that repeats it.
    attempt: u64,
    text: String,
    /// How much of the text was repeated.
    at: usize,
}

impl Printer {
    /// Prints an event, unless there is too much to remember of those before.
    pub(crate) fn event(&mut self, event: &StreamResponse) -> Result<(), Error> {
        if self.kept() > MAX_KEPT {
            self.end();
            return Err(Error::TooLarge { cap: MAX_KEPT });
        }
        match event {
            StreamResponse::Message(message) => self.line(&message_text(message)),
            StreamResponse::ArtifactUpdate(update) => self.chunk(update),
            StreamResponse::StatusUpdate(update) => self.update(update),
            StreamResponse::Task(task) => self.task(task),
        }
        self.begun = true;
        Ok(())
    }

    /// Bytes of what is remembered of artifacts.
    fn kept(&self) -> usize {
        let texts: usize = self.made.iter().map(|made| made.text.len()).sum();
        texts + (self.made.len() + self.asides.len()) * PER_ARTIFACT
    }

    /// The task as it stands: the first of a stream, or what some servers give in the place of the events that a cut has cost.
    fn task(&mut self, task: &Task) {
        if !self.begun && !self.from_start && !task.status.state.is_terminal() {
            // What earlier turns have made is not this one's.
            for artifact in &task.artifacts {
                let (id, text) = (artifact.artifact_id.clone(), artifact_text(artifact));
                self.made.push(Made { id, text, shown: false });
            }
            return;
        }
        for artifact in &task.artifacts {
            self.whole(artifact);
        }
        self.status(&task.status);
        if self.completed
            && !self.printed
            && let Some(text) = last_said(task)
        {
            self.line(&text);
        }
    }

    /// An artifact of which some may have been printed.
    fn whole(&mut self, artifact: &Artifact) {
        if self.aside(artifact) {
            return;
        }
        let text = artifact_text(artifact);
        let known = self.made.iter_mut().find(|made| made.id == artifact.artifact_id);
        let rest = match known {
            Some(made) if text.starts_with(&made.text) => {
                let rest = text[made.text.len()..].to_owned();
                made.text = text;
                if rest.is_empty() {
                    return;
                }
                made.shown = true;
                if self.artifact.as_ref() != Some(&artifact.artifact_id) {
                    self.begin(artifact);
                }
                rest
            }
            _ => {
                self.begin(artifact);
                self.remember(artifact, &text);
                text
            }
        };
        self.print(&rest);
    }

    fn chunk(&mut self, update: &TaskArtifactUpdateEvent) {
        let artifact = &update.artifact;
        if !update.append && self.aside(artifact) {
            return;
        }
        let text = artifact_text(artifact);
        let printed = self.made.iter().find(|made| made.shown && made.id == artifact.artifact_id);
        if let Some(printed) = printed.filter(|_| !update.append) {
            // It is sent anew: only what is new of it is printed.
            if text.starts_with(&printed.text) {
                return self.whole(artifact);
            }
            let name = title(artifact).unwrap_or_else(|| "the answer".to_owned());
            self.mark(&format!("{name} was replaced"));
        }
        let goes_on = self.artifact.as_ref() == Some(&artifact.artifact_id) && update.append;
        if !goes_on {
            self.begin(artifact);
        }
        match self.made.iter_mut().find(|made| made.id == artifact.artifact_id).filter(|_| update.append) {
            Some(made) => {
                made.text.push_str(&text);
                made.shown = true;
            }
            None => self.remember(artifact, &text),
        }
        let was_cut = std::mem::take(&mut self.cut_line);
        let text = if goes_on && was_cut { text.strip_prefix('\n').unwrap_or(&text) } else { &text };
        self.print(text);
    }

    /// Begins a line for an artifact. Where there are several, each but the first has its name above it.
    fn begin(&mut self, artifact: &Artifact) {
        self.end();
        let is_other = self.artifact.is_some() && self.artifact.as_ref() != Some(&artifact.artifact_id);
        if is_other && self.printed && self.replay.is_none() {
            title(artifact).iter().for_each(|title| output::aside(title));
        }
        self.artifact = Some(artifact.artifact_id.clone());
    }

    fn remember(&mut self, artifact: &Artifact, text: &str) {
        self.made.retain(|made| made.id != artifact.artifact_id);
        self.made.push(Made { id: artifact.artifact_id.clone(), text: text.to_owned(), shown: true });
    }

    /// What is beside the answer has a line of its own among it. Where the answer stands alone nothing of it changes.
    fn aside(&mut self, artifact: &Artifact) -> bool {
        let Some(aside) = Aside::of(artifact) else { return false };
        if self.asides.get(&artifact.artifact_id) != Some(&aside) {
            self.make_room();
            aside.print();
            self.asides.insert(artifact.artifact_id.clone(), aside);
        }
        true
    }

    /// Ends a line for one beside the answer, where both are seen together.
    fn make_room(&mut self) {
        if output::is_watched() {
            self.cut_line |= self.open_line;
            self.end();
        }
    }

    /// Whether something else can be shown without running into a line.
    pub(crate) fn is_at_line_start(&self) -> bool {
        !self.open_line
    }

    fn update(&mut self, update: &TaskStatusUpdateEvent) {
        if let Some(number) = attempt(update) {
            self.restart(number);
            say_attempt(number);
            return;
        }
        if let Some(text) = progress(update) {
            self.make_room();
            output::aside(&text);
        }
        self.status(&update.status);
    }

    /// Begins the output of another attempt. On a terminal it is printed below what there is of the one before.
    fn restart(&mut self, attempt: u64) {
        let before = self.replay.take();
        if output::is_watched() {
            self.end();
            self.asides.clear();
        } else {
            // If the attempt before has repeated less than it found, that is still what stands there.
            let text = match before {
                Some(replay) => replay.text,
                None => self.shown_text(),
            };
            self.replay = (!text.is_empty()).then_some(Replay { attempt, text, at: 0 });
        }
        self.open_line &= self.replay.is_none();
        self.artifact = None;
        self.printed = false;
        self.cut_line = false;
        self.made.retain(|made| !made.shown);
    }

    /// The artifacts that were printed, as they stand there: each begins a line.
    fn shown_text(&self) -> String {
        let mut text = String::new();
        for made in self.made.iter().filter(|made| made.shown) {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&made.text);
        }
        text
    }

    /// The text of a status is the answer when the turn is over, unless it repeats what was printed.
    fn status(&mut self, status: &TaskStatus) {
        self.completed = status.state == TaskState::Completed;
        if !self.completed && !status.state.is_interrupted() {
            return;
        }
        let Some(message) = &status.message else { return };
        let text = message_text(message);
        let shown: Vec<&str> = self.made.iter().filter(|made| made.shown).map(|made| made.text.as_str()).collect();
        if !repeats(&text, &shown) {
            self.line(&text);
        }
    }

    /// What a completed task said in none of its events may stand in the task itself.
    pub(crate) async fn finish(&mut self, stream: &EventStream) {
        if self.completed
            && !self.printed
            && let Ok(task) = stream.whole().await
        {
            self.line(&task_text(&task.value));
            if !self.printed && !self.asides.values().any(Aside::is_file) {
                say_silence();
            }
        }
        if self.replay.as_ref().is_some_and(|replay| replay.at < replay.text.len()) {
            // This attempt has said less.
            self.differ();
        }
        self.end();
    }

    fn line(&mut self, text: &str) {
        self.end();
        self.print(text);
        self.end();
    }

    fn print(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.printed = true;
        self.emit(text);
        self.open_line = !text.ends_with('\n');
    }

    /// Prints a text, except what is there already from an attempt that was cut off.
    fn emit(&mut self, text: &str) {
        let Some(replay) = &mut self.replay else { return output::print_foreign(text) };
        let rest = &replay.text[replay.at..];
        if rest.starts_with(text) {
            replay.at += text.len();
        } else if let Some(new) = text.strip_prefix(rest) {
            let new = new.to_owned();
            self.replay = None;
            output::print_foreign(&new);
        } else {
            self.differ();
            output::print_foreign(text);
        }
    }

    /// Says that this attempt is not as the one before, and prints what it has said so far.
    fn differ(&mut self) {
        let Some(Replay { attempt, text, at }) = self.replay.take() else { return };
        self.open_line = !text.ends_with('\n');
        self.mark(&format!("attempt {attempt} starts the answer again"));
        output::print_foreign(&text[..at]);
        self.open_line = !text[..at].ends_with('\n') && at > 0;
    }

    /// A line of its own where the answer is, for those who read nothing else.
    fn mark(&mut self, text: &str) {
        self.end();
        output::line(&output::styled(Style::Dim, &format!("· {}", output::single_line(text))));
    }

    pub(crate) fn end(&mut self) {
        if self.open_line {
            self.emit("\n");
            self.open_line = false;
        }
    }
}

/// What an agent says on the way to its answer.
fn progress(update: &TaskStatusUpdateEvent) -> Option<String> {
    let is_underway = matches!(update.status.state, TaskState::Submitted | TaskState::Working);
    let message = update.status.message.as_ref().filter(|_| is_underway)?;
    Some(message_text(message)).filter(|text| !text.is_empty())
}

fn say_attempt(number: u64) {
    output::error_line("note", &format!("attempt {number}: the previous attempt did not end the turn"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_of_an_answer_has_a_bound() {
        let mut printer = Printer::default();
        let made = |bytes: usize| Made { id: "a".to_owned(), text: "x".repeat(bytes), shown: true };
        printer.made.push(made(MAX_KEPT - PER_ARTIFACT));
        let update = StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
            artifact: Artifact {
                artifact_id: "a".to_owned(),
                parts: vec![a2a::Part::text("x")],
                ..Artifact::default()
            },
            append: true,
            ..TaskArtifactUpdateEvent::default()
        });
        assert!(printer.event(&update).is_ok());
        assert!(matches!(printer.event(&update), Err(Error::TooLarge { cap: MAX_KEPT })));
        let mut many = Printer::default();
        many.made.extend((0..=MAX_KEPT / PER_ARTIFACT).map(|_| made(0)));
        assert!(many.event(&update).is_err());
    }
}
