//! Talking to an agent by text: whom a message is for, what it continues, and what was answered, in plain words.

use std::sync::Arc;

use a2a::{Artifact, Message, Part, Role, SendMessageConfiguration, SendMessageRequest, Task, TaskState};
use store::{AgentId, Scope, TaskHead, TaskId, View};
use uuid::Uuid;

use crate::{Call, Elsewhere, Entry, Error, Exchange, Frames, Origin, Rules, convert, kept, scribe::reason_of};

/// The reason in the metadata of a failure that is not the agent's: whoever works for it cannot be reached, or is broken.
pub const REMOTE_FAILED: &str = "REMOTE_FAILED";

/// Something to say to an agent.
#[derive(Debug, Clone, Default)]
pub struct Chat {
    /// To whom. Where nobody is named, who has the skill.
    pub agent: Option<String>,
    /// What.
    pub message: String,
    /// In which context.
    pub context_id: Option<String>,
    /// About which task. One that has ended is followed by another in its context.
    pub task_id: Option<String>,
    /// Which skill is meant.
    pub skill: Option<String>,
    /// Nobody waits for the answer.
    pub return_immediately: bool,
}

/// How a chat stands.
#[derive(Debug, Clone)]
pub struct Chatted {
    /// Its task.
    pub task: TaskId,
    /// Its context.
    pub context: Arc<str>,
    /// Who answers.
    pub agent: AgentId,
    /// The task's state.
    pub state: TaskState,
    /// What was answered. Nothing while the agent works.
    pub response: Option<String>,
    /// What everything that belongs together has in common.
    pub correlation: String,
    /// Where else it is worked on.
    pub elsewhere: Option<Elsewhere>,
    /// Whoever works for the agent cannot be reached, or is broken.
    pub is_broken: bool,
}

impl Chatted {
    /// Whether the agent still works on it.
    pub fn is_pending(&self) -> bool {
        matches!(self.state, TaskState::Submitted | TaskState::Working)
    }
}

impl Exchange {
    /// Says something to an agent, and waits a while for the answer.
    pub async fn chat(&self, call: &Call, chat: Chat) -> Result<Chatted, Error> {
        call.caller.needs(Scope::Send)?;
        if chat.message.trim().is_empty() {
            return Err(Error::invalid("message", "is required"));
        }
        let continued = self.continued(call, &chat).await?;
        let entry = match (&chat.agent, &continued) {
            (Some(agent), _) => {
                let entry = self.inner.agents.find_any(&call.caller, agent);
                entry.ok_or_else(|| self.inner.agents.missing(&call.caller, agent))?
            }
            (None, Some((_, head))) => self
                .inner
                .agents
                .find_any(&call.caller, head.agent.as_str())
                .ok_or_else(|| Error::agent_not_found(head.agent.as_str()))?,
            (None, None) => self.by_skill(call, chat.skill.as_deref())?,
        };
        let mut message = Message {
            message_id: Uuid::now_v7().to_string(),
            role: Role::User,
            parts: vec![Part::text(chat.message)],
            context_id: chat.context_id.unwrap_or_default(),
            ..Message::default()
        };
        if let Some((id, head)) = &continued {
            if head.agent != entry.profile.id {
                return Err(Error::invalid("taskId", "is a task of another agent"));
            }
            message.context_id = head.context.to_string();
            if !head.state.is_terminal() {
                message.task_id = id.to_string();
            }
        }
        let mut call = Call { agent: None, rules: Rules { always_task: true, ..call.rules }, ..call.clone() };
        call.origin.skill = chat.skill.or(call.origin.skill);
        call.origin.root = true;
        call.origin.prompt = !chat.return_immediately;
        let request = SendMessageRequest {
            message,
            configuration: Some(SendMessageConfiguration { return_immediately: true, ..Default::default() }),
            ..SendMessageRequest::default()
        };
        let mut taken = self.take_in_for(&call, request, Some(entry)).await?;
        let (task, turn) = (taken.accepted.task, taken.accepted.turn);
        if !chat.return_immediately {
            let wait = self.inner.options.chat_wait;
            // What is not there by then can be asked for.
            if let Ok(waited) = tokio::time::timeout(wait, self.wait(&call, &mut taken)).await {
                waited?;
            }
        }
        self.chatted(&call, task, Some(turn)).await
    }

    /// How a chat stands.
    pub async fn chat_state(&self, call: &Call, task: &str) -> Result<Chatted, Error> {
        call.caller.needs(Scope::Read)?;
        self.chatted(call, convert::task_id(task)?, None).await
    }

    /// What happens in a chat, from its begin.
    pub async fn chat_events(&self, call: &Call, task: &str) -> Result<Frames, Error> {
        let request = a2a::SubscribeToTaskRequest { id: task.to_owned(), ..Default::default() };
        self.subscribe(&Call { agent: None, ..call.clone() }, request, Some(0)).await
    }

    /// The task that a chat names.
    async fn continued(&self, call: &Call, chat: &Chat) -> Result<Option<(TaskId, TaskHead)>, Error> {
        let Some(id) = chat.task_id.as_deref().filter(|id| !id.is_empty()) else { return Ok(None) };
        let id = convert::task_id(id)?;
        let head = self.head(call, id).await?;
        if chat.context_id.as_deref().is_some_and(|given| !given.is_empty() && given != &*head.context) {
            return Err(Error::invalid("contextId", "is not the context of the task"));
        }
        Ok(Some((id, head)))
    }

    /// Who has a skill. Of several the first by name that can work now, and if none can the first.
    fn by_skill(&self, call: &Call, skill: Option<&str>) -> Result<Arc<Entry>, Error> {
        let Some(skill) = skill.filter(|skill| !skill.is_empty()) else {
            return Err(Error::invalid("agent", "is required, unless a skill is named"));
        };
        let mut able = self.inner.agents.visible(&call.caller);
        able.retain(|entry| entry.profile.skills.iter().any(|has| has.id == skill || has.name == skill));
        let ready = able.iter().find(|entry| entry.agent.is_ready(call.caller.tenant));
        ready.or(able.first()).cloned().ok_or_else(|| Error::NoSkill(skill.chars().take(64).collect()))
    }

    /// How a task stands, as the answer to one of its turns; the last one where none is named.
    pub(crate) async fn chatted(&self, call: &Call, task: TaskId, turn: Option<u32>) -> Result<Chatted, Error> {
        let head = self.head(call, task).await?;
        let snapshot = self.snapshot(call, task, View { history: Some(0), artifacts: true, ..View::FULL }).await?;
        let entry = self.inner.agents.get(call.caller.tenant, &head.agent);
        let elsewhere = match &entry {
            Some(entry) if head.kept > 0 => {
                let kept = kept::read(&*self.inner.journal(), call.caller.tenant, task, head.kept).await;
                kept.ok().and_then(|kept| kept.state).and_then(|state| entry.agent.elsewhere(&state))
            }
            _ => None,
        };
        let mut whole = snapshot.to_task()?;
        let asked = turn.unwrap_or(head.turn);
        let made_in = snapshot.made_in.iter().map(|turn| *turn == asked);
        let mut of_turn = made_in.chain(std::iter::repeat(true));
        whole.artifacts.retain(|_| of_turn.next().unwrap_or(true));
        let origin = Origin::read(head.origin.as_deref());
        // Somebody else's turn has begun meanwhile: this one was answered before.
        let is_passed = asked < head.turn;
        if is_passed {
            whole.status.state = TaskState::Completed;
            whole.status.message = None;
        }
        let state = whole.status.state;
        let is_over = !matches!(state, TaskState::Submitted | TaskState::Working);
        let response = is_over.then(|| {
            answer(&whole).unwrap_or_else(|| placeholder(origin.skill.as_deref(), head.agent.as_str(), state))
        });
        Ok(Chatted {
            task,
            state,
            response,
            correlation: origin.trace(task, 1, None, None).correlation,
            elsewhere,
            is_broken: state == TaskState::Failed && whole.status.message.as_ref().is_some_and(is_broken),
            agent: head.agent,
            context: head.context,
        })
    }
}

/// What a turn has answered: its artifacts, or else its message.
fn answer(task: &Task) -> Option<String> {
    let text = |artifact: &Artifact| artifact.parts.iter().filter_map(Part::as_text).collect::<String>();
    let mut made: Vec<String> = task.artifacts.iter().map(text).collect();
    made.retain(|text| !text.is_empty());
    let said = task.status.message.as_ref().map(|message| crate::text_of(&message.parts));
    let said = said.filter(|said| !said.is_empty());
    // A question and a failure stand in the message, whatever was made before them.
    if made.is_empty() || task.status.state != TaskState::Completed {
        return said.or_else(|| (!made.is_empty()).then(|| made.join("\n")));
    }
    Some(made.join("\n"))
}

/// Stands where an agent said nothing.
fn placeholder(skill: Option<&str>, agent: &str, state: TaskState) -> String {
    let what = skill.map_or_else(|| "message".to_owned(), |skill| format!("Skill \"{skill}\""));
    match state {
        TaskState::Completed => format!("{what} completed by {agent}"),
        TaskState::Failed | TaskState::Rejected | TaskState::Canceled => {
            format!("{what} {} by {agent}", a2a::v03::TaskState(state).as_str())
        }
        _ => format!("{what} accepted by {agent}"),
    }
}

fn is_broken(message: &Message) -> bool {
    reason_of(message).is_some_and(|reason| reason == REMOTE_FAILED)
}
