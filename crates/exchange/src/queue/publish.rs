//! Making entries: new ones, and those that repeat a dead letter.

use std::{sync::Arc, time::Duration};

use a2a::{Message, Part, Role, TaskState};
use bytes::Bytes;
use store::{Accept, AgentId, Draft, IdempotencyKey, Letters, Post, Scope, Snapshot, Target, TaskId, clock};

use super::{
    LONGEST_DELAY, MOST_TOLD, Publish, Replayed, Shown, Worker, check_name, correlation_id, data_part, local_context,
};
use crate::{
    Call, Error, Exchange, Luggage, RequestOptions, convert, heavy,
    intake::{KEEP_KEYS, answered, newborn_snapshot},
};

/// The most dead letters that one call replays, and how many are read at once.
const MOST_REPLAYS: usize = 1000;
const LETTERS: usize = 25;
/// The most attempts that an entry can ask for.
const MOST_ATTEMPTS: u32 = 1000;

impl Exchange {
    /// Makes an entry, durable before this returns.
    pub async fn publish(&self, call: &Call, publish: Publish) -> Result<Shown, Error> {
        call.caller.needs(Scope::Send)?;
        let Publish { from, to, text, payload, correlation_id, delay, priority, max_attempts } = publish;
        let agent: AgentId = to.parse().map_err(|why| Error::invalid("to", format!("is no agent's id: {why}")))?;
        if !call.caller.covers(agent.as_str()) {
            return Err(Error::agent_not_found(agent.as_str()));
        }
        check_name("from", &from)?;
        if text.is_empty() && payload.is_none() {
            return Err(Error::invalid("text", "is required, unless there is a payload"));
        }
        if priority > store::queue::HIGHEST {
            return Err(Error::invalid("priority", format!("must be at most {}", store::queue::HIGHEST)));
        }
        if max_attempts.is_some_and(|most| most == 0 || most > MOST_ATTEMPTS) {
            return Err(Error::invalid("maxAttempts", format!("must be from 1 to {MOST_ATTEMPTS}")));
        }
        if delay > LONGEST_DELAY {
            return Err(Error::invalid("delay", format!("must be at most {} seconds", LONGEST_DELAY.as_secs())));
        }
        let mut parts = Vec::new();
        if !text.is_empty() {
            parts.push(Part { media_type: "text/plain".to_owned(), ..Part::text(text) });
        }
        if let Some(payload) = payload {
            parts.push(data_part(payload));
        }
        let post = Post { queued: true, from: from.into(), priority, max_attempts, delay, replays: None };
        self.post(call, agent, parts, correlation_id, None, post).await
    }

    /// Takes a new entry in.
    async fn post(
        &self,
        call: &Call,
        agent: AgentId,
        parts: Vec<Part>,
        correlation_id: Option<String>,
        request: Option<Bytes>,
        post: Post,
    ) -> Result<Shown, Error> {
        let inner = &self.inner;
        if inner.draining.is_cancelled() {
            return Err(Error::Stopping);
        }
        let task = TaskId::mint();
        let context: Arc<str> = match correlation_id {
            Some(given) => given.into(),
            None => local_context(task).into(),
        };
        let message = Message {
            message_id: task.to_string(),
            role: Role::User,
            context_id: context.to_string(),
            parts,
            reference_task_ids: post.replays.iter().map(TaskId::to_string).collect(),
            ..Message::default()
        };
        let send = a2a::SendMessageRequest { message, ..a2a::SendMessageRequest::default() };
        a2a::validate::validate_send(&send, &inner.options.limits).map_err(of_publish)?;
        let message = Message { task_id: task.to_string(), ..send.message };
        let idempotency = match &call.idempotency_key {
            Some(key) => {
                let anonymous = Message { message_id: String::new(), task_id: String::new(), ..message.clone() };
                let anonymous = if message.context_id == local_context(task) {
                    Message { context_id: String::new(), ..anonymous }
                } else {
                    anonymous
                };
                let key = convert::digest(&[b"publish", key.as_bytes()]);
                let said = convert::fingerprint(agent.as_str(), &anonymous)?;
                let how = format!("{:?} {:?} {:?}", post.priority, post.max_attempts, post.delay);
                let fingerprint = convert::digest(&[&said, post.from.as_bytes(), how.as_bytes()]);
                Some(IdempotencyKey { key, fingerprint, keep: Some(KEEP_KEYS) })
            }
            None => None,
        };
        let at = clock::now();
        let body = Bytes::from(serde_json::to_vec(&message).map_err(store::Error::from)?);
        let newborn = newborn_snapshot(task, &agent, &context, at, &body);
        let created = newborn.created()?;
        let replays = post.replays;
        let target = Target::New {
            task,
            agent: agent.clone(),
            context: Arc::clone(&context),
            created,
            hold: false,
            remembers: true,
            post,
            origin: call.origin.clone().stored(None).map(Into::into),
            tells_cancel: inner.agents.get(call.caller.tenant, &agent).is_some_and(|entry| entry.profile.tells_cancel),
        };
        let accept = Accept {
            target,
            message_id: message.message_id.clone(),
            message: body,
            idempotency,
            lease: None,
            working: Draft::status(task, &context, TaskState::Working, None, None, at)?,
            push: None,
            quota: inner.options.quota,
            parent: None,
            request,
            at,
        };
        let accepted = answered(inner.store.accept(call.caller.tenant, accept)).await;
        let accepted = accepted.map_err(|error| match (error, replays) {
            (store::Error::NotDead, Some(letter)) => Error::NotDead(letter.to_string()),
            (error, letter) => Error::of_task(error, letter.unwrap_or(task)),
        })?;
        if let Some(relay) = inner.options.relay.as_ref().filter(|_| !accepted.duplicate) {
            relay.0.forward(relayed(&newborn)?);
        }
        // One that is repeated says the same.
        let entry = self.entry(&Worker::Tenant(call.caller.clone()), accepted.task).await?;
        Ok(Shown { entry, first: message })
    }

    /// Repeats the tenant's dead letters, the oldest first, as many as one call may: fewer when one of them cannot be repeated now.
    pub async fn replay_letters(&self, call: &Call, to: Option<&str>) -> Result<Vec<Replayed>, Error> {
        call.caller.needs(Scope::Send)?;
        let mut replayed = Vec::new();
        let mut after = None;
        while replayed.len() < MOST_REPLAYS {
            let letters = Letters { after, limit: LETTERS, ..Letters::default() };
            let letters = self.letters(&call.caller, letters).await?;
            let Some(last) = letters.last() else { break };
            after = Some((last.status_at, last.task));
            for letter in letters {
                match self.replay_letter(call, &letter.task.to_string(), to).await {
                    Ok(done) => replayed.push(done),
                    // Somebody else was faster, or deleted it.
                    Err(Error::NotDead(_) | Error::TaskNotFound(_)) => {}
                    Err(error) if replayed.is_empty() => return Err(error),
                    // The caller learns what has been done; the next call says why it does not go on.
                    Err(error) => {
                        tracing::warn!(task.id = %letter.task, %error, replayed = replayed.len(), "the replay of dead letters stops early");
                        return Ok(replayed);
                    }
                }
            }
        }
        Ok(replayed)
    }

    /// Repeats a dead letter as a new task that names it, for its own agent or another one. The letter is none from then on.
    pub async fn replay_letter(&self, call: &Call, id: &str, to: Option<&str>) -> Result<Replayed, Error> {
        call.caller.needs(Scope::Send)?;
        let letter = convert::task_id(id)?;
        let entry = self.entry(&Worker::Tenant(call.caller.clone()), letter).await?;
        if !entry.dead {
            return Err(Error::NotDead(letter.to_string()));
        }
        let agent = match to {
            Some(to) => to.parse().map_err(|why| Error::invalid("toAgent", format!("is no agent's id: {why}")))?,
            None => entry.agent.clone(),
        };
        if !call.caller.covers(agent.as_str()) {
            return Err(Error::agent_not_found(agent.as_str()));
        }
        let luggage = Luggage::default();
        let message: Message = if entry.turn > 1 {
            // What failed was said later.
            self.make_room(&Worker::Tenant(call.caller.clone()), entry.message_bytes.min(MOST_TOLD), &luggage).await?;
            let history = self.inner.store.history(entry.tenant, letter, u64::MAX).await?;
            history.into_iter().rev().find(|message| message.role == Role::User).unwrap_or_default()
        } else {
            self.make_room(&Worker::Tenant(call.caller.clone()), entry.first_bytes, &luggage).await?;
            let body = self.inner.store.first_message(entry.tenant, letter).await;
            let body = body.map_err(|error| Error::of_task(error, letter))?;
            heavy(body.len(), || serde_json::from_slice(&body)).map_err(store::Error::from)?
        };
        let head = self.head(call, letter).await?;
        let said = RequestOptions::of(&*self.inner.store, entry.tenant, letter, head.request()).await;
        let said = said.map_err(|error| Error::of_task(error, letter))?.logged()?;
        let is_run = self.inner.agents.find(&call.caller, agent.as_str()).is_some_and(|agent| agent.is_run());
        let correlation = correlation_id(&entry).map(str::to_owned);
        let post = Post {
            queued: entry.queued || !is_run,
            from: entry.from,
            priority: entry.priority,
            max_attempts: entry.max_attempts,
            delay: Duration::ZERO,
            replays: Some(letter),
        };
        // The key of a call that replays several would be used up by the first of them.
        let call = Call { idempotency_key: None, ..call.clone() };
        let posted = self.post(&call, agent, message.parts, correlation, said, post).await?;
        Ok(Replayed { letter, entry: posted.entry })
    }
}

/// What a relay is told: the message and its task.
fn relayed(newborn: &Snapshot) -> store::Result<Bytes> {
    let mut body = br#"{"message":"#.to_vec();
    newborn.history.iter().for_each(|message| body.extend_from_slice(message));
    body.extend_from_slice(br#","task":"#);
    newborn.write_json(&mut body)?;
    body.push(b'}');
    Ok(body.into())
}

/// The fields of what is published are not those of a message.
fn of_publish(mut error: a2a::Error) -> Error {
    for violation in &mut error.violations {
        violation.field = match violation.field.as_str() {
            "message.contextId" => "correlationId".to_owned(),
            field if field.starts_with("message.parts[0]") => "text".to_owned(),
            field if field.starts_with("message.parts") => "payload".to_owned(),
            field => field.to_owned(),
        };
    }
    error.into()
}
