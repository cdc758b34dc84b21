//! A turn of a model: it is asked, what it says is passed on while it arrives, what it commands is carried out, and it is asked again with
//! what that brought, until it answers without commands.
//!
//! A reply with commands is kept before the first of them is carried out, what a command with an effect elsewhere brought before the next
//! one begins, and all of it with the end of the step: a turn that was cut off goes on there. What was handed on to another agent is found
//! again by its key. What was said to a remote and not answered is not said twice.

use a2a::{Artifact, Part};
use exchange::{Caller, Errands, Note, Outcome, Output, Turn};

use super::{
    Mind, prompt,
    state::{State, Step},
    writ::Reader,
};
use crate::{
    frame,
    model::{Error, ErrorKind, Message, Model, Piece, Request, Role, Stop},
    remote::Session,
};

/// So often a model is asked in a turn.
const MOST_STEPS: usize = 6;
/// So often a reply that was cut off for its length goes on.
const MOST_CONTINUED: u32 = 3;
/// So much of a reply is read.
const LONGEST_REPLY: usize = 512 << 10;
/// So many commands of one reply are carried out.
const MOST_COMMANDS: usize = 32;
/// So much of what the commands of one reply brought is told.
const RESULTS: usize = 32 << 10;
/// How long a reply may be where the agent does not say.
const MAX_TOKENS: u32 = 1024;

/// Said to a model whose reply was cut off.
const CONTINUE: &str =
    "Your reply was cut off for its length. Go on exactly where it ended, without repeating anything.";
/// Said with the results that are the last ones.
const LAST: &str = "This was the last round of commands: answer now, without any.";

/// One turn.
pub(super) struct Thinking<'a> {
    pub(super) mind: &'a Mind,
    pub(super) turn: &'a Turn,
    pub(super) out: &'a Output,
    pub(super) errands: &'a Errands,
    pub(super) caller: &'a Caller,
    pub(super) session: Session<'a>,
    pub(super) state: State,
}

/// Whom a turn thinks with, and of what.
struct Context {
    model: Model,
    system: String,
    conversation: Vec<Message>,
}

/// How a turn ends that does not complete.
pub(super) type Ends = Box<Outcome>;

impl Thinking<'_> {
    pub(super) async fn run(mut self) -> Outcome {
        match self.think().await {
            Ok(()) => Outcome::Completed(Vec::new()),
            Err(ends) => {
                if matches!(*ends, Outcome::Failed(_) | Outcome::Unset(_)) {
                    self.dismiss().await;
                }
                *ends
            }
        }
    }

    async fn think(&mut self) -> Result<(), Ends> {
        let mut context = None;
        loop {
            let reader = self.reply(&mut context).await?;
            let at = self.state.steps.len().saturating_sub(1);
            let writs = reader.writs();
            if writs.is_empty() {
                return Ok(());
            }
            if self.state.steps.len() >= MOST_STEPS {
                self.say("\n(stopped here: there were commands in each of its replies)").await;
                return Ok(());
            }
            let first = self.state.steps[at].results.len();
            if first == 0 && !self.state.steps[at].begun {
                self.keep().await;
                self.out.flush().await;
            }
            for (number, writ) in writs.iter().enumerate().skip(first).take(MOST_COMMANDS.saturating_sub(first)) {
                self.carry_out(at, number, writ).await?;
                // What has no effect elsewhere is simply done again: the whole state is not written for each.
                if matches!(writ.verb.name, "/agent" | "/parallel" | "/a2a") {
                    self.keep().await;
                }
            }
            if writs.len() > MOST_COMMANDS {
                let more = writs.len() - MOST_COMMANDS;
                let why =
                    format!("ERR: {more} more were not carried out: {MOST_COMMANDS} commands in a reply is the limit");
                self.state.steps[at].results.push(why);
            }
            // What is not told is not kept either.
            fit(&mut self.state.steps[at].results);
            // What was cut away was carried out all the same: that the step is over is kept with it.
            self.state.steps.push(Step::default());
            self.keep().await;
        }
    }

    /// The last step's reply, asked for as far as it is not there yet.
    async fn reply(&mut self, context: &mut Option<Context>) -> Result<Reader, Ends> {
        if self.state.steps.is_empty() {
            self.state.steps.push(Step::default());
        }
        let at = self.state.steps.len() - 1;
        let mut reader = Reader::default();
        // What was said before it was cut off was passed on then.
        let _ = reader.feed(&self.state.steps[at].said);
        if self.state.steps[at].whole {
            let _ = reader.end(self.state.steps[at].cut);
            return Ok(reader);
        }
        // Who only looks whether others have answered needs none of it.
        let context = match context {
            Some(known) => known,
            none => none.insert(self.context().await?),
        };
        let model = &context.model;
        loop {
            let request = Request {
                system: context.system.clone(),
                messages: self.messages(&context.conversation),
                max_tokens: self.mind.constitution.max_tokens.unwrap_or(MAX_TOKENS),
                temperature: self.mind.constitution.temperature,
            };
            let mut has_begun = false;
            let mut answer = model.ask(&request).await.map_err(|error| self.failure(&error, false))?;
            let stop = loop {
                match answer.next().await.map_err(|error| self.failure(&error, has_begun))? {
                    Some(Piece::Text(piece)) => {
                        has_begun = true;
                        let said = reader.feed(&piece);
                        self.state.steps[at].said.push_str(&piece);
                        self.say(&said).await;
                        if self.state.steps[at].said.len() > LONGEST_REPLY {
                            return Err(failed(format!("the model's reply is longer than {LONGEST_REPLY} bytes")));
                        }
                    }
                    Some(Piece::End { stop, usage }) => {
                        let (input_tokens, output_tokens) = (usage.input_tokens, usage.output_tokens);
                        let model = model.name().to_owned();
                        self.out.note(Note::Usage { model, input_tokens, output_tokens }).await;
                        break stop;
                    }
                    None => break Stop::Done,
                }
            };
            let step = &mut self.state.steps[at];
            if stop == Stop::Length && step.continued < MOST_CONTINUED && has_begun {
                step.continued += 1;
                self.keep().await;
                continue;
            }
            step.whole = true;
            step.cut = stop != Stop::Done;
            let rest = reader.end(step.cut);
            self.say(&rest).await;
            return Ok(reader);
        }
    }

    /// Whom it thinks with, and of what.
    async fn context(&mut self) -> Result<Context, Ends> {
        let constitution = &self.mind.constitution;
        let found = self.mind.models.find_or_look(&constitution.model, &self.caller.name).await;
        let model = found.map_err(|unset| {
            // What is missing is for the operator to know.
            tracing::warn!(agent.name = %self.mind.id, task.id = %self.turn.task, cause = %unset, "no model can be asked");
            Box::new(Outcome::Unset(unset.told()))
        })?;
        let conversation = self.conversation(&model).await?;
        Ok(Context { system: prompt::system(self.mind.id.as_str(), constitution), model, conversation })
    }

    /// What came before this turn, and its message.
    async fn conversation(&mut self, model: &Model) -> Result<Vec<Message>, Ends> {
        let turn = self.turn;
        let unread =
            |error: store::Error| Box::new(Outcome::Retry(format!("what was said before cannot be read: {error}")));
        let mut messages = Vec::new();
        let (own, mut past) = turn.past().await.map_err(unread)?;
        if turn.number > 1 {
            let mut own = own.into_owned();
            // Others may have its id: there are clients that count anew in every turn.
            if let Some(last) = own.iter().rposition(|message| message.message_id == turn.message.message_id) {
                own.truncate(last);
            }
            past.append(&mut own);
        }
        for message in &past {
            prompt::push(&mut messages, prompt::spoken(message, model.takes_images()));
        }
        // A conversation begins with the user, whatever is left of it.
        let first = messages.iter().position(|message| message.role == Role::User).unwrap_or(messages.len());
        messages.drain(..first);
        let mut query = prompt::spoken(&turn.message, model.takes_images());
        if let Some(accepted) = prompt::accepted(&turn.request.accepted_output_modes) {
            prompt::introduce(&mut query, &accepted);
        }
        if self.mind.routes() {
            let is_new = !self.turn.resumed && self.state.rests == 0;
            let roster = self.session.roster(is_new).await;
            let preamble =
                prompt::preamble(self.mind.id.as_str(), self.errands, self.caller, &self.mind.remotes, roster);
            prompt::introduce(&mut query, &format!("{preamble}\n\nQUERY: "));
        }
        prompt::push(&mut messages, query);
        Ok(messages)
    }

    /// The conversation and the steps so far, the last one as far as it has come.
    fn messages(&self, conversation: &[Message]) -> Vec<Message> {
        let mut messages = conversation.to_vec();
        for (number, step) in self.state.steps.iter().enumerate() {
            if !step.said.is_empty() {
                prompt::push(&mut messages, prompt::text(Role::Assistant, &step.said));
            }
            if !step.results.is_empty() {
                let is_last = number + 2 >= MOST_STEPS;
                prompt::push(&mut messages, prompt::text(Role::User, results(&step.results, is_last)));
            } else if !step.said.is_empty() {
                prompt::push(&mut messages, prompt::text(Role::User, CONTINUE));
            }
        }
        messages
    }

    /// What becomes of the turn when its model has failed. Where something would be lost, another attempt begins behind the last step that was
    /// kept.
    fn failure(&self, error: &Error, has_begun: bool) -> Ends {
        let has_steps = self.state.steps.len() > 1 || self.turn.resumed;
        match error.kind {
            ErrorKind::Auth | ErrorKind::NotFound => Box::new(Outcome::Unset(error.to_string())),
            kind if (has_begun || has_steps) && kind.is_passing() => Box::new(Outcome::Retry(error.to_string())),
            _ => failed(error.to_string()),
        }
    }

    /// Passes a piece of text on.
    async fn say(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let state = &mut self.state;
        // Each reply begins on a line of its own.
        let opens = state.mid_line && state.steps.last().is_some_and(|step| !step.spoke);
        let text = if opens { format!("\n{text}") } else { text.to_owned() };
        if let Some(step) = state.steps.last_mut() {
            step.spoke = true;
        }
        state.mid_line = !text.ends_with('\n');
        let artifact = Artifact {
            artifact_id: format!("{}-text-{}", self.turn.task, self.turn.number - 1),
            name: if state.spoken { String::new() } else { "response".to_owned() },
            parts: vec![Part::text(text)],
            ..Artifact::default()
        };
        let append = std::mem::replace(&mut state.spoken, true);
        self.out.artifact(artifact, append, false, None).await;
    }

    /// Keeps how far it has come, together with all that was said.
    pub(super) async fn keep(&mut self) {
        self.out.owes_cancel(!self.state.calls.is_empty()).await;
        self.out.keep(self.state.seal()).await;
    }
}

/// What the commands of a reply brought, as the model is told.
fn results(results: &[String], is_last: bool) -> String {
    let mut text = results.join("\n\n");
    text.push_str("\n\n[END TOOL RESULTS]");
    if is_last {
        text.push('\n');
        text.push_str(LAST);
    }
    text
}

/// Cuts results to what may be told of them all.
fn fit(results: &mut Vec<String>) {
    let mut left = RESULTS;
    for at in 0..results.len() {
        if results[at].len() > left {
            // What is cut off keeps its end: without it all that follows would be others' words.
            let (body, end) = results[at].rsplit_once('\n').unwrap_or((&results[at], ""));
            let cut = format!("{}\n{end}\n[TOOL RESULTS TRUNCATED: budget exhausted]", frame::cut(body, left));
            results[at] = cut;
            results.truncate(at + 1);
            return;
        }
        left -= results[at].len();
    }
}

pub(super) fn failed(why: String) -> Ends {
    Box::new(Outcome::Failed(vec![Part::text(why)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_a_budget() {
        let one = |length: usize| format!("{}\n[END A2A #w]", "x".repeat(length));
        let mut three = vec![one(16 << 10), one(15 << 10), one(2 << 10), one(1)];
        fit(&mut three);
        let text = results(&three, false);
        assert!(text.len() <= RESULTS + 200, "{}", text.len());
        assert!(text.ends_with(
            "... [truncated]\n[END A2A #w]\n[TOOL RESULTS TRUNCATED: budget exhausted]\n\n[END TOOL RESULTS]"
        ));
        assert!(results(&[one(3)], true).ends_with(&format!("[END TOOL RESULTS]\n{LAST}")));
    }
}
