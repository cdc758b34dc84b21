//! What a webhook is told of a task's log: pure functions of its events.
//!
//! A status is told as it stands in the log. Of an artifact the whole is told once, when its last chunk came; one that never says so
//! is finished with its turn. Who asked for chunks is told each as it comes. In 0.3 every notification is the task as it stood at that
//! event.
//!
//! What an event is told by depends on the log up to it and on nothing else: the same place has the same words whenever and by
//! whomever it is told.

use std::collections::HashSet;

use a2a::{Artifact, Dialect, StreamResponse, TaskState, Timestamp, v03};
use bytes::Bytes;
use store::{Event, EventKind, Place, PushConfig, Snapshot, TaskId, merge_chunks};

use crate::fold::{Made, Piece, status_message};

/// One thing to tell.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Notice {
    /// Which, for its id.
    pub(super) place: Place,
    /// How far the configuration has come once it was told.
    pub(super) then: Place,
    /// The payload.
    pub(super) body: Bytes,
}

/// Goes through a log and says what there is to tell.
pub(super) struct Teller {
    task: TaskId,
    dialect: Dialect,
    chunks: bool,
    /// How far it was told before.
    told: Place,
    made: Made,
    /// The artifacts whose end was told.
    finished: HashSet<String>,
    /// The task as it stands, where whole tasks are told.
    sum: Option<Snapshot>,
    /// No turn runs: what comes next answers the status.
    idle: bool,
}

impl Teller {
    pub(super) fn new(config: &PushConfig, told: Place) -> Self {
        Self {
            task: config.task,
            dialect: config.config.dialect,
            chunks: config.config.chunks,
            told,
            made: Made::default(),
            finished: HashSet::new(),
            sum: None,
            idle: false,
        }
    }

    /// The event after which it has to see the log.
    pub(super) fn reads_after(&self) -> u64 {
        match (self.dialect, self.chunks) {
            (Dialect::V1, true) => self.told.seq.saturating_sub(u64::from(self.told.part > 0)),
            _ => 0,
        }
    }

    /// Adds the next event; gives what of it was not told yet.
    pub(super) fn add(&mut self, event: &Event) -> store::Result<Vec<Notice>> {
        let unfinished = match event.kind {
            EventKind::Status { ends_turn: true, .. } if !self.chunks => self.unfinished(),
            _ => Vec::new(),
        };
        self.made.add(event)?;
        self.sum_up(event)?;
        let mut bodies = Vec::new();
        match event.kind {
            EventKind::Created { .. } => bodies.push(event.body.clone()),
            EventKind::Started(_) => bodies.push(event.body.clone()),
            EventKind::Status { .. } => {
                for id in unfinished {
                    bodies.push(self.whole(&id)?);
                    self.finished.insert(id);
                }
                bodies.push(event.body.clone());
            }
            EventKind::Artifact if self.chunks => bodies.push(event.body.clone()),
            EventKind::Artifact => {
                let piece = Piece::of(event)?;
                if piece.last {
                    bodies.push(if piece.append { self.whole(&piece.id)? } else { event.body.clone() });
                    self.finished.insert(piece.id);
                } else {
                    self.finished.remove(&piece.id);
                }
            }
            // A direct reply was for its caller, and the others have no place in a stream either.
            EventKind::Reply
            | EventKind::Revealed
            | EventKind::Input
            | EventKind::Note
            | EventKind::Kept
            | EventKind::Other(_) => {}
        }
        if event.seq < self.told.seq || (event.seq == self.told.seq && self.told.part == 0) {
            return Ok(Vec::new());
        }
        let skip = if event.seq == self.told.seq { self.told.part } else { 0 };
        self.notices(event.seq, bodies, skip)
    }

    fn notices(&self, seq: u64, bodies: Vec<Bytes>, skip: u32) -> store::Result<Vec<Notice>> {
        let count = bodies.len();
        let mut notices = Vec::new();
        for (body, number) in bodies.into_iter().zip(1..).skip(skip as usize) {
            let part = if count == 1 { 0 } else { number };
            let is_last = number as usize == count;
            let body = if self.dialect == Dialect::V03 { self.task()? } else { body };
            let then = Place { seq, part: if is_last { 0 } else { number } };
            notices.push(Notice { place: Place { seq, part }, then, body });
        }
        Ok(notices)
    }

    /// The artifacts of the turn whose end nobody has said.
    fn unfinished(&self) -> Vec<String> {
        self.made.of_turn().into_iter().filter(|id| !self.finished.contains(id)).collect()
    }

    /// An artifact in one piece.
    fn whole(&self, id: &str) -> store::Result<Bytes> {
        let artifact: Artifact = merge_chunks(&self.made.artifact(id))?;
        let update = a2a::TaskArtifactUpdateEvent {
            task_id: self.task.to_string(),
            context_id: self.context().to_owned(),
            artifact,
            append: false,
            last_chunk: true,
            metadata: None,
        };
        Ok(serde_json::to_vec(&StreamResponse::ArtifactUpdate(update))?.into())
    }

    fn context(&self) -> &str {
        self.sum.as_ref().map_or("", |sum| &sum.context)
    }

    /// The task as of the last event, in 0.3.
    fn task(&self) -> store::Result<Bytes> {
        let Some(sum) = &self.sum else {
            return Err(store::Error::Damaged("the log does not begin with its task".into()));
        };
        let artifacts = self.made.artifacts();
        let made_in = vec![1; artifacts.len()];
        let task = Snapshot { artifacts, made_in, ..sum.clone() }.to_task()?;
        Ok(serde_json::to_vec(&v03::Task::from(task))?.into())
    }

    fn sum_up(&mut self, event: &Event) -> store::Result<()> {
        if let EventKind::Created { .. } = event.kind {
            self.sum = Some(newborn(self.task, event)?);
            return Ok(());
        }
        let Some(sum) = &mut self.sum else { return Ok(()) };
        sum.seq = event.seq;
        let keeps_history = self.dialect == Dialect::V03;
        if event.kind == EventKind::Input && keeps_history {
            // The answer comes after the question.
            if self.idle {
                sum.history.extend(sum.status_message.take());
            }
            sum.history.push(event.body.clone());
        }
        if let Some(state) = event.kind.state() {
            let said = sum.status_message.take();
            if keeps_history {
                sum.history.extend(said);
            }
            sum.status_message = status_message(event)?;
            sum.state = state;
            sum.status_at = event.at;
            self.idle =
                matches!(event.kind, EventKind::Status { ends_turn: true, state } if state != TaskState::Working);
        }
        Ok(())
    }
}

/// The task as it was born.
fn newborn(task: TaskId, event: &Event) -> store::Result<Snapshot> {
    let StreamResponse::Task(born) = event.response()? else {
        return Err(store::Error::Damaged("the log does not begin with its task".into()));
    };
    let history = born.history.iter().map(|said| Ok(Bytes::from(serde_json::to_vec(said)?)));
    Ok(Snapshot {
        task,
        // Not told.
        agent: "task".parse().map_err(|_| store::Error::Damaged("no agent".into()))?,
        context: born.context_id.as_str().into(),
        state: born.status.state,
        status_at: born.status.timestamp.unwrap_or(Timestamp::from_millis(0)),
        status_message: None,
        seq: event.seq,
        history: history.collect::<store::Result<_>>()?,
        artifacts: Vec::new(),
        made_in: Vec::new(),
    })
}
