//! The agents of a story. A message says what they do; what they did is written down.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use a2a::{Message, Part};
use async_trait::async_trait;
use exchange::{Agent, Entry, OnCrash, Outcome, Output, Profile, ReplyMode, Turn};
use store::TaskId;

use crate::simulation::line::Steady;

/// Their names, and how many turns of each an instance runs at once.
pub(crate) const AGENTS: [(&str, usize); 6] =
    [("retry", 3), ("fail", 3), ("ask", 3), ("auto", 3), ("single", 1), ("resume", 2)];

/// Everything that was begun, by task and turn.
#[derive(Clone, Default)]
pub(crate) struct Runs(Arc<Mutex<Begun>>);

/// By task and turn.
type Begun = BTreeMap<(TaskId, u32), Vec<Run>>;

/// One start of an agent.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) agent: String,
    /// Where, by number of the instance; one that is started again has a new one.
    pub(crate) instance: usize,
    pub(crate) attempt: u32,
    pub(crate) begin: f64,
    pub(crate) end: Option<f64>,
    /// It asked for another attempt, or rested.
    pub(crate) again: bool,
}

struct Actor {
    instance: usize,
    runs: Runs,
    steady: Steady,
}

impl Runs {
    pub(crate) fn all(&self) -> Begun {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn with(&self, key: (TaskId, u32), change: impl FnOnce(&mut Vec<Run>)) {
        change(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default());
    }
}

/// Notes the end of a run, also when it is dropped in the middle.
struct Ending<'a> {
    actor: &'a Actor,
    key: (TaskId, u32),
    index: usize,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let now = self.actor.steady.seconds();
        self.actor.runs.with(self.key, |runs| runs[self.index].end = Some(now));
    }
}

/// What the messages of stories say: so many pieces, with so many milliseconds between them, and then an end.
pub(crate) fn script(pieces: u64, pause: u64, end: char) -> String {
    format!("{pieces} {pause} {end}")
}

/// A piece of what an attempt says.
pub(crate) fn piece(attempt: u32, n: u64, of: u64) -> String {
    format!("[{attempt}:{n}/{of}]")
}

#[async_trait]
impl Agent for Actor {
    async fn run(&self, turn: Turn, out: Output) -> Outcome {
        let key = (turn.task, turn.number);
        let mut index = 0;
        self.runs.with(key, |runs| {
            index = runs.len();
            runs.push(Run {
                agent: turn.agent.to_string(),
                instance: self.instance,
                attempt: turn.attempt,
                begin: self.steady.seconds(),
                end: None,
                again: false,
            });
        });
        let _ending = Ending { actor: self, key, index };
        let text = turn.text();
        let mut words = text.split(' ');
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        let (Some(pieces), Some(pause)) = (number(), number()) else {
            return Outcome::Completed(vec![Part::text(format!("heard {text}"))]);
        };
        let end = words.next().unwrap_or("c");
        if turn.agent.as_str() == "resume" {
            match step_by_step(&turn, &out, pieces, Duration::from_millis(pause)).await {
                Step::Done => {}
                Step::Rest(at_most) => {
                    self.runs.with(key, |runs| runs[index].again = true);
                    return Outcome::Parked { at_most };
                }
                Step::Canceled => return Outcome::Canceled,
            }
        }
        let pieces = if turn.agent.as_str() == "resume" { 0 } else { pieces };
        let work = async {
            if pieces == 0 {
                tokio::time::sleep(Duration::from_millis(pause * 2)).await;
            }
            for n in 0..pieces {
                out.text(piece(turn.attempt, n, pieces), n == 0).await;
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
        };
        tokio::select! {
            biased;
            () = work => {}
            () = turn.cancel.cancelled(), if end != "n" => return Outcome::Canceled,
        }
        match end {
            "i" => Outcome::InputRequired(vec![Part::text("and now?")]),
            "f" => Outcome::Failed(vec![Part::text("by itself")]),
            "r" if turn.attempt == 1 => {
                self.runs.with(key, |runs| runs[index].again = true);
                Outcome::Retry("once more".into())
            }
            "m" => Outcome::Message(Message { parts: vec![Part::text("directly")], ..Message::default() }),
            _ => Outcome::Completed(Vec::new()),
        }
    }
}

/// How far a run of a careful agent came.
enum Step {
    Done,
    Rest(Option<Duration>),
    Canceled,
}

/// Says each piece in two halves, keeps how far it has come after each, and rests after every other one. Whatever happens, each
/// piece is there once in the end.
async fn step_by_step(turn: &Turn, out: &Output, pieces: u64, pause: Duration) -> Step {
    let kept = turn
        .state
        .as_ref()
        .filter(|_| turn.resumed)
        .map_or("0 up", |state| std::str::from_utf8(state).expect("it kept a text"));
    let (done, rested) = kept.split_once(' ').expect("it kept two words");
    let done: u64 = done.parse().expect("it kept a number");
    let mut rested = rested == "rested";
    for n in done..pieces {
        if n % 2 == 1 && !rested {
            out.keep(format!("{n} rested")).await;
            return Step::Rest(Some(pause));
        }
        rested = false;
        let text = piece(0, n, pieces);
        let (first, second) = text.split_at(3);
        out.text(first, n == 0).await;
        tokio::select! {
            biased;
            () = tokio::time::sleep(pause) => {}
            () = turn.cancel.cancelled() => return Step::Canceled,
        }
        out.text(second, false).await;
        out.keep(format!("{} up", n + 1)).await;
        if n == 2 {
            out.flush().await;
        }
    }
    Step::Done
}

/// All agents, for one instance.
pub(crate) fn entries(instance: usize, runs: &Runs, steady: &Steady) -> Vec<Entry> {
    let entry = |(name, slots): (&str, usize)| {
        let mut profile = Profile::new(name.parse().expect("a good name"), "test");
        profile.concurrency = slots;
        profile.max_attempts = 1000;
        profile.timeout = Some(Duration::from_secs(300));
        match name {
            "resume" => profile.on_crash = OnCrash::Resume,
            "fail" => profile.on_crash = OnCrash::Fail,
            "ask" => profile.on_crash = OnCrash::Ask,
            "auto" => profile.reply = ReplyMode::Auto,
            _ => {}
        }
        Entry::new(profile, Arc::new(Actor { instance, runs: runs.clone(), steady: steady.clone() }))
    };
    AGENTS.into_iter().map(entry).collect()
}
