//! SendMessage and SendStreamingMessage: what a message that was taken in is answered with. Taking it in is [`crate::intake`].

use std::sync::Arc;

use a2a::{ErrorKind, SendMessageRequest, TaskState};
use store::{Event, EventKind, Scope, Snapshot, TaskId, View};

use crate::{
    Call, Error, Exchange, Frame, Frames, Reply, Sent,
    cursor::{Cursor, HEAD_START, Until},
    fold::Fold,
    intake::Taken,
};

/// How a wait for a turn ended.
pub(crate) enum Waited {
    TurnEnded,
    Reply(Arc<Event>),
    NotYet,
}

impl Exchange {
    /// SendMessage.
    pub async fn send(&self, call: &Call, request: SendMessageRequest) -> Result<Sent, Error> {
        call.caller.needs(Scope::Send)?;
        let immediate = request.configuration.as_ref().is_some_and(|c| c.return_immediately);
        let mut taken = self.take_in(call, request).await?;
        let extensions = std::mem::take(&mut taken.extensions);

        let is_hidden = taken.held || (taken.accepted.duplicate && self.is_direct(call, &taken).await?);
        if !immediate {
            match self.wait(call, &mut taken).await? {
                Waited::Reply(event) => return Ok(Sent { reply: Reply::Direct(event), extensions }),
                Waited::TurnEnded => {}
                Waited::NotYet => {
                    taken.newborn = None;
                    if let Some(event) = self.reveal(call, &mut taken).await? {
                        return Ok(Sent { reply: Reply::Direct(event), extensions });
                    }
                }
            }
        }
        if immediate && is_hidden {
            taken.newborn = None;
            if let Some(event) = self.first_output(call, &mut taken).await? {
                return Ok(Sent { reply: Reply::Direct(event), extensions });
            }
        }
        let snapshot = match taken.newborn.take() {
            Some(known) => cut_history(known, taken.history),
            None => {
                let view = View { history: taken.history, artifacts: true, ..View::FULL };
                self.shown(call, taken.accepted.task, view).await?
            }
        };
        Ok(Sent { reply: Reply::Task(snapshot), extensions })
    }

    /// The task of a message that was taken in. Where there is no room for all of it, it is shown without its messages and artifacts: whoever
    /// sent it must not be told to send it again.
    async fn shown(&self, call: &Call, task: TaskId, view: View) -> Result<Snapshot, Error> {
        match self.snapshot(call, task, view).await {
            Err(error) if matches!(error.kind(), ErrorKind::ResourceExhausted | ErrorKind::Unavailable) => {
                self.snapshot(call, task, View { history: Some(0), artifacts: false, ..View::FULL }).await
            }
            read => read,
        }
    }

    /// SendStreamingMessage.
    pub async fn stream(&self, call: &Call, request: SendMessageRequest) -> Result<Frames, Error> {
        call.caller.needs(Scope::Send)?;
        let place = self.inner.streams.enter(&call.caller)?;
        let mut taken = self.take_in(call, request).await?;
        let extensions = std::mem::take(&mut taken.extensions);
        let draining = self.inner.draining.clone();
        let patience = taken.reveal_after;

        if taken.accepted.duplicate && self.is_direct(call, &taken).await? {
            // The log from its beginning, held back until it is decided what it is.
            let cursor = self.inner.cursor(call.caller.tenant, taken.accepted.task, 0);
            let frames = Frames::new(Vec::new(), Some(cursor), Until::TurnEnd, draining).hold(patience);
            return Ok(frames.with_extensions(extensions).in_place(place));
        }

        let mut frames = match taken.newborn.take() {
            Some(newborn) => {
                let newborn = cut_history(newborn, taken.history);
                // The log's first event is the task as it was submitted; what followed is read from it.
                let born = Snapshot { state: TaskState::Submitted, seq: 1, ..newborn };
                let mut cursor = taken.cursor;
                cursor.skip_to(1);
                Frames::new(vec![Frame::Task(born)], Some(cursor), Until::TurnEnd, draining)
            }
            None => {
                let view = View { history: taken.history, artifacts: true, ..View::FULL };
                let snapshot = self.shown(call, taken.accepted.task, view).await?;
                let mut cursor = taken.cursor;
                let from = if call.rules.all_events { taken.accepted.seq } else { snapshot.seq };
                cursor.skip_to(from);
                let over = !call.rules.all_events && Until::TurnEnd.is_over_at(snapshot.state);
                let first = vec![Frame::Task(snapshot)];
                Frames::new(first, (!over).then_some(cursor), Until::TurnEnd, draining)
            }
        };
        if taken.held {
            frames = frames.hold(patience);
        }
        Ok(frames.with_extensions(extensions).with_luggage(&call.luggage).in_place(place))
    }

    /// Whether a repeated message's answer was, or may become, a direct reply.
    async fn is_direct(&self, call: &Call, taken: &Taken) -> Result<bool, Error> {
        Ok(self.inner.store.head(call.caller.tenant, taken.accepted.task).await?.hidden)
    }

    /// Waits for the end of the message's own turn, or until the cap.
    pub(crate) async fn wait(&self, call: &Call, taken: &mut Taken) -> Result<Waited, Error> {
        let cap = self.inner.options.blocking_cap;
        let followed = async {
            if taken.accepted.duplicate {
                return self.join(call, taken.accepted.task, &mut taken.cursor).await;
            }
            taken.cursor.skip_to(taken.accepted.seq);
            // The turns ahead of this message's own, and its own.
            let mut turns = taken.accepted.ahead + 1;
            let mut fold = taken.newborn.take().map(Fold::new);
            loop {
                let event = match taken.cursor.next().await {
                    // The turn has ended so long ago that its log is gone; the task says how.
                    Err(store::Error::Pruned) => return Ok(Waited::TurnEnded),
                    event => event?,
                };
                fold = fold.and_then(|fold| fold.add(&event));
                match event.kind {
                    EventKind::Reply => return Ok(Waited::Reply(event)),
                    EventKind::Status { state, ends_turn } => {
                        turns -= u32::from(ends_turn);
                        let interrupted = turns == 1 && state == TaskState::AuthRequired;
                        if state.is_terminal() || turns == 0 || interrupted {
                            taken.newborn = fold.map(Fold::finish);
                            return Ok(Waited::TurnEnded);
                        }
                    }
                    _ => {}
                }
            }
        };
        tokio::select! {
            biased;
            waited = followed => waited,
            () = tokio::time::sleep(cap) => Ok(Waited::NotYet),
            () = self.inner.workers.released() => Ok(Waited::NotYet),
        }
    }

    /// Waits until it is decided whether a task is shown: by its agent's first output, or because that takes too long. Gives
    /// the direct reply, if that is what it is.
    async fn first_output(&self, call: &Call, taken: &mut Taken) -> Result<Option<Arc<Event>>, Error> {
        let patience = taken.reveal_after + HEAD_START;
        if taken.accepted.duplicate {
            // What the first of them has waited for may be there already.
            taken.cursor = self.inner.cursor(call.caller.tenant, taken.accepted.task, 0);
        } else {
            taken.cursor.skip_to(taken.accepted.seq);
        }
        let decided = async {
            loop {
                let event = match taken.cursor.next().await {
                    // Only the log of a task that is shown goes before its task.
                    Err(store::Error::Pruned) => return Ok(None),
                    event => event?,
                };
                match event.kind {
                    EventKind::Reply => return Ok(Some(event)),
                    kind if kind.shows_task() => return Ok(None),
                    _ => {}
                }
            }
        };
        match tokio::time::timeout(patience, decided).await {
            Ok(decided) => decided,
            Err(_) => self.reveal(call, taken).await,
        }
    }

    /// Shows a task whose direct reply did not come in time, unless it came just now.
    async fn reveal(&self, call: &Call, taken: &mut Taken) -> Result<Option<Arc<Event>>, Error> {
        if !taken.held && !taken.accepted.duplicate {
            return Ok(None);
        }
        match self.inner.store.reveal(call.caller.tenant, taken.accepted.task).await {
            Ok(()) => Ok(None),
            Err(store::Error::Terminal(_)) => match self.join(call, taken.accepted.task, &mut taken.cursor).await? {
                Waited::Reply(reply) => Ok(Some(reply)),
                Waited::TurnEnded | Waited::NotYet => Ok(None),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// A repeated message joins the task as it stands. The cursor is of this task, and older than this call.
    pub(crate) async fn join(&self, call: &Call, task: TaskId, cursor: &mut Cursor) -> Result<Waited, Error> {
        let tenant = call.caller.tenant;
        let head = self.inner.store.head(tenant, task).await?;
        if head.hidden && head.state.is_terminal() {
            let last = self.inner.store.events(tenant, task, head.seq - 1, 1).await;
            let last = last?;
            if let Some(event) = last.into_iter().find(|event| event.kind == EventKind::Reply) {
                return Ok(Waited::Reply(Arc::new(event)));
            }
        }
        if head.state.is_terminal() || head.state.is_interrupted() {
            return Ok(Waited::TurnEnded);
        }
        cursor.skip_to(head.seq);
        loop {
            let event = match cursor.next().await {
                Err(store::Error::Pruned) => return Ok(Waited::TurnEnded),
                event => event?,
            };
            match event.kind {
                EventKind::Reply => return Ok(Waited::Reply(event)),
                EventKind::Status { state, .. } if state.is_terminal() || state.is_interrupted() => {
                    return Ok(Waited::TurnEnded);
                }
                _ => {}
            }
        }
    }
}

fn cut_history(mut snapshot: Snapshot, history: Option<u32>) -> Snapshot {
    if let Some(n) = history {
        let keep = usize::try_from(n).unwrap_or(usize::MAX).min(snapshot.history.len());
        snapshot.history.drain(..snapshot.history.len() - keep);
    }
    snapshot
}
