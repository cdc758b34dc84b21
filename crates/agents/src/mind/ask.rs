//! Asking other agents of the installation: who may be asked, which tasks that makes, and waiting for their answers, at work for a moment and at
//! rest after that.

use std::time::Duration;

use a2a::{ErrorKind, TaskState};
use exchange::{Answer, Delegation, Errand, Error, Handed, Outcome};
use futures_util::future::join_all;
use store::TaskId;

use super::{
    INDEX, prompt,
    think::{Ends, Thinking},
};
use crate::frame::clean;

/// How long others are waited for before the turn rests.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long it rests at first where nobody wakes it; longer each time, up to sixteen times as long.
const REST: Duration = Duration::from_secs(10);
/// How long it rests when something that passes is in the way.
const PAUSE: Duration = Duration::from_secs(3);

/// Work for another agent.
pub(super) struct Job<'a> {
    pub(super) agent: &'a str,
    pub(super) task: &'a str,
}

impl Thinking<'_> {
    /// Has other agents do something, all at once. Rests where that takes longer. The tasks that it makes are kept before the first of them is
    /// there: whoever cancels this one cancels them too, and whoever goes on with it finds them.
    pub(super) async fn ask(
        &mut self,
        id: &str,
        jobs: &[Job<'_>],
        parallel: bool,
    ) -> Result<Vec<Result<String, String>>, Ends> {
        let again = !self.state.children.is_empty();
        let admitted: Vec<Result<Delegation, String>> = jobs.iter().map(|job| self.admit(job)).collect();
        if !again {
            let child =
                |admitted: &Result<_, _>| if admitted.is_ok() { TaskId::mint().to_string() } else { String::new() };
            self.state.children = admitted.iter().map(child).collect();
            if let Some(step) = self.state.steps.last_mut() {
                step.begun = true;
            }
            self.keep().await;
            self.out.flush().await;
        }
        let mut handed = Vec::with_capacity(jobs.len());
        for (at, (job, admitted)) in jobs.iter().zip(admitted).enumerate() {
            let task = self.state.children.get(at).and_then(|id| TaskId::parse(id));
            let key = format!("{id}.{at}");
            handed.push(match (task, admitted) {
                (None, admitted) => Err(admitted.err().unwrap_or_else(|| "it could not be asked".to_owned())),
                (Some(task), admitted) => self.hand_on(&key, job, task, admitted, parallel, again).await?,
            });
        }
        // Who comes back only looks: those who wait must not take the slots of those who work.
        let only_looks = self.state.rests > 0;
        let waits = handed.iter().map(|handed| async {
            match handed {
                Ok(handed) if only_looks => handed.look().await.map(|answer| answer.map(Ok)),
                Ok(handed) => handed.wait(PATIENCE).await.map(|answer| answer.map(Ok)),
                Err(why) => Ok(Some(Err(why.clone()))),
            }
        });
        let heard = join_all(waits).await;
        let mut answers = Vec::with_capacity(jobs.len());
        for ((job, handed), heard) in jobs.iter().zip(&handed).zip(heard) {
            answers.push(match heard {
                Ok(Some(Ok(answer))) => {
                    if answer.state.is_interrupted()
                        && let Ok(handed) = handed
                    {
                        // Nobody will answer what it asks.
                        let _ = self.errands.cancel(self.caller, handed.task()).await;
                    }
                    verdict(job.agent, answer)
                }
                Ok(Some(Err(why))) => Err(why),
                Ok(None) if self.is_late() => {
                    self.dismiss().await;
                    Err("the deadline has passed; it was canceled".to_owned())
                }
                Ok(None) => return Err(self.rest().await),
                Err(error) if is_passing(&error) => return Err(parked(PAUSE)),
                Err(error) => Err(a2a::Error::from(error).message),
            });
        }
        Ok(answers)
    }

    /// Whether somebody may be asked, and how far that hands the work on.
    fn admit(&mut self, job: &Job<'_>) -> Result<Delegation, String> {
        if job.agent == INDEX {
            return Err("index hands work on, and nobody hands work to it".to_owned());
        }
        if self.errands.agent(self.caller, job.agent).is_none() {
            return Err(format!("no agent '{}'", clean(job.agent)));
        }
        let name = self.errands.name_of(job.agent);
        self.session.ledger().delegate(Some(&name)).map_err(|refusal| refusal.to_string())
    }

    /// Hands a job on as this task, unless it was before.
    async fn hand_on(
        &self,
        key: &str,
        job: &Job<'_>,
        task: TaskId,
        admitted: Result<Delegation, String>,
        parallel: bool,
        again: bool,
    ) -> Result<Result<Handed, String>, Ends> {
        let (errands, caller, turn) = (self.errands, self.caller, self.turn);
        if again {
            match errands.has(task).await {
                Ok(true) => return Ok(Ok(errands.handed(caller, task))),
                Ok(false) => {}
                Err(error) if is_passing(&error) => return Err(parked(PAUSE)),
                Err(error) => return Ok(Err(a2a::Error::from(error).message)),
            }
        }
        let (delegation, entry) = match (admitted, errands.agent(caller, job.agent)) {
            (Ok(delegation), Some(entry)) => (delegation, entry),
            (Err(why), _) => return Ok(Err(why)),
            (_, None) => return Ok(Err(format!("no agent '{}'", clean(job.agent)))),
        };
        let mut text = job.task.to_owned();
        if entry.profile.kind == super::KIND.name {
            let asked = turn.text();
            let asked = prompt::undelegated(&asked);
            let context = prompt::delegated(self.mind.id.as_str(), asked, delegation.depth, parallel, task);
            text = format!("{context}\n\n{text}");
        }
        let errand = Errand {
            task,
            agent: job.agent.to_owned(),
            text,
            key: format!("errand:{}:{key}", turn.task),
            parent: turn.task,
            trace: turn.trace(),
            delegation,
        };
        match errands.hand_on(caller, errand).await {
            Ok(handed) => Ok(Ok(handed)),
            Err(error) if is_passing(&error) => Err(parked(PAUSE)),
            Err(error) => Ok(Err(a2a::Error::from(error).message)),
        }
    }

    /// Has those who were asked stop.
    pub(super) async fn dismiss(&mut self) {
        let cancels = self.state.children().map(|child| self.errands.cancel(self.caller, child));
        for canceled in join_all(cancels).await {
            if let Err(error) = canceled {
                tracing::info!(task.id = %self.turn.task, %error, "a task that was made for this one cannot be canceled");
            }
        }
    }

    /// Whether nobody waits for this turn any more.
    fn is_late(&self) -> bool {
        self.turn.origin.delegation.time_left().is_some_and(|left| left.is_zero())
    }

    async fn rest(&mut self) -> Ends {
        let rest = REST * (1 << self.state.rests.min(4));
        self.state.rests += 1;
        self.keep().await;
        parked(self.turn.origin.delegation.time_left().map_or(rest, |left| left.min(rest)))
    }
}

fn parked(at_most: Duration) -> Ends {
    Box::new(Outcome::Parked { at_most: Some(at_most) })
}

/// Whether the turn rests and tries again. A turn that is over cannot rest either, and ends with that.
fn is_passing(error: &Error) -> bool {
    matches!(error, Error::LeaseLost(_)) || matches!(error.kind(), ErrorKind::Unavailable)
}

/// What an agent's end means for the one that asked it.
fn verdict(agent: &str, answer: Answer) -> Result<String, String> {
    let state = a2a::v03::TaskState(answer.state).as_str();
    match answer.state {
        TaskState::Completed => Ok(answer.text),
        TaskState::InputRequired | TaskState::AuthRequired => Ok(format!("[{state}] {}", answer.text)),
        _ => Err(format!("agent '{}' {state}: {}", clean(agent), answer.text)),
    }
}
