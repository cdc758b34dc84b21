//! The demo agents: one for each thing an A2A caller has to cope with, so that a client can be tried
//! against all of them without a model or a key.

use std::sync::Arc;

use a2a::{AgentSkill, Artifact, Message, Part, Role};
use async_trait::async_trait;
use exchange::{Agent, Entry, Outcome, Output, Profile, ReplyMode, Turn};

use crate::numbers::{chunks, milliseconds, numbers};

/// All demo agents, ready to be registered.
pub fn demo() -> Vec<Entry> {
    let mut echo = profile("echo", "Echo", "Gives every part of the message back as an artifact.", &["hello"]);
    echo.input_modes = vec!["*/*".to_owned()];
    echo.output_modes = vec!["*/*".to_owned()];
    let stream = profile(
        "stream",
        "Stream",
        "Streams text: the first number is how many chunks (5), the second the milliseconds between them (50), the third \
         how many of them make one artifact (all).",
        &["5 chunks, 50 ms apart", "100 10", "20 chunks, 100 ms apart, 4 an artifact"],
    );
    let slow = profile(
        "slow",
        "Slow",
        "Works for as many milliseconds as the first number says (2000), then completes. Can be canceled.",
        &["2000", "wait 500 ms"],
    );
    let ask = profile("ask", "Ask", "Asks a question back, then completes with the answer.", &["start"]);
    let auth =
        profile("auth", "Auth", "Asks for authorization first and completes when the next message comes.", &["start"]);
    let fail = profile("fail", "Fail", "Fails every task.", &["anything"]);
    let reject = profile("reject", "Reject", "Rejects every task.", &["anything"]);
    let mut message =
        profile("message", "Message", "Answers with a direct message instead of a task.", &["how are you?"]);
    message.reply = ReplyMode::Auto;

    vec![
        Entry::new(echo, Arc::new(Echo)),
        Entry::new(stream, Arc::new(Stream)),
        Entry::new(slow, Arc::new(Slow)),
        Entry::new(ask, Arc::new(Ask)),
        Entry::new(auth, Arc::new(Auth)),
        Entry::new(fail, Arc::new(Fail)),
        Entry::new(reject, Arc::new(Reject)),
        Entry::new(message, Arc::new(Direct)),
    ]
}

struct Echo;
struct Stream;
struct Slow;
struct Ask;
struct Auth;
struct Fail;
struct Reject;
struct Direct;

#[async_trait]
impl Agent for Echo {
    async fn run(&self, turn: Turn, out: Output) -> Outcome {
        let artifact = Artifact { name: "echo".to_owned(), parts: turn.message.parts, ..Artifact::default() };
        out.artifact(artifact, false, true, None).await;
        Outcome::Completed(Vec::new())
    }
}

#[async_trait]
impl Agent for Stream {
    async fn run(&self, turn: Turn, out: Output) -> Outcome {
        let numbers = numbers(&turn.text());
        let (count, pause) = chunks(&numbers);
        let together = numbers.get(2).copied().unwrap_or(count).max(1);
        for n in 1..=count {
            // The first chunk comes at once: whoever measures the time to it measures the server.
            if n > 1 && !pause.is_zero() {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = turn.cancel.cancelled() => return Outcome::Canceled,
                }
            } else if turn.cancel.is_cancelled() {
                return Outcome::Canceled;
            }
            out.text(format!("chunk {n} of {count}\n"), (n - 1) % together == 0).await;
        }
        Outcome::Completed(Vec::new())
    }
}

#[async_trait]
impl Agent for Slow {
    async fn run(&self, turn: Turn, out: Output) -> Outcome {
        let time = milliseconds(&numbers(&turn.text()), 0, 2000);
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = turn.cancel.cancelled() => return Outcome::Canceled,
        }
        out.text(format!("done after {} ms", time.as_millis()), true).await;
        Outcome::Completed(Vec::new())
    }
}

#[async_trait]
impl Agent for Ask {
    async fn run(&self, turn: Turn, out: Output) -> Outcome {
        if turn.number == 1 {
            return Outcome::InputRequired(vec![Part::text("What is your answer?")]);
        }
        out.text(turn.text(), true).await;
        Outcome::Completed(Vec::new())
    }
}

#[async_trait]
impl Agent for Auth {
    async fn run(&self, turn: Turn, out: Output) -> Outcome {
        if turn.number == 1 {
            return Outcome::AuthRequired(vec![Part::text("Authorize this task, then send another message.")]);
        }
        out.text("authorized", true).await;
        Outcome::Completed(Vec::new())
    }
}

#[async_trait]
impl Agent for Fail {
    async fn run(&self, _turn: Turn, _out: Output) -> Outcome {
        Outcome::Failed(vec![Part::text("this agent fails every task")])
    }
}

#[async_trait]
impl Agent for Reject {
    async fn run(&self, _turn: Turn, _out: Output) -> Outcome {
        Outcome::Rejected(vec![Part::text("this agent rejects every task")])
    }
}

#[async_trait]
impl Agent for Direct {
    async fn run(&self, turn: Turn, _out: Output) -> Outcome {
        Outcome::Message(Message {
            // The same id on every attempt: a retried turn gives the same reply.
            message_id: format!("{}-reply", turn.task),
            context_id: turn.context.to_string(),
            role: Role::Agent,
            parts: vec![Part::text(turn.text())],
            ..Message::default()
        })
    }
}

/// A built-in agent with one skill. Demo agents hold no resources while they wait, so many turns may run.
fn profile(id: &'static str, name: &str, description: &str, examples: &[&str]) -> Profile {
    let agent = id.parse().expect("the demo agents' ids are valid");
    let mut profile = Profile::new(agent, "builtin");
    profile.name = name.to_owned();
    profile.description = description.to_owned();
    profile.version = env!("CARGO_PKG_VERSION").to_owned();
    profile.concurrency = 1024;
    profile.skills = vec![AgentSkill {
        id: id.to_owned(),
        name: name.to_owned(),
        description: description.to_owned(),
        tags: vec!["demo".to_owned(), id.to_owned()],
        examples: examples.iter().map(|&example| example.to_owned()).collect(),
        ..AgentSkill::default()
    }];
    profile
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_demo_agent_describes_itself() {
        let entries = demo();
        let ids: Vec<&str> = entries.iter().map(|entry| entry.profile.id.as_str()).collect();
        assert_eq!(ids, ["echo", "stream", "slow", "ask", "auth", "fail", "reject", "message"]);
        for entry in &entries {
            let profile = &entry.profile;
            assert!(!profile.description.is_empty() && !profile.version.is_empty(), "{}", profile.id);
            assert_eq!(profile.concurrency, 1024);
            assert_eq!(profile.skills.len(), 1);
            assert!(!profile.skills[0].tags.is_empty() && !profile.skills[0].examples.is_empty());
        }
    }

    #[test]
    fn only_message_answers_directly() {
        for entry in demo() {
            let direct = entry.profile.reply == ReplyMode::Auto;
            assert_eq!(direct, entry.profile.id.as_str() == "message");
        }
    }
}
