//! What a webhook is told of a task's log: pure functions of its events.
//!
//! A status is told as it stands in the log. Of an artifact the whole is told once, when its last chunk came; one that never says so
//! is finished with its turn. Who asked for chunks is told each as it comes. In 0.3 every notification is the task as it stood at that
//! event.
//!
//! What an event is told by depends on the log up to it and on what the configuration asked for, and on nothing else: as long as that stays, the same
//! place has the same words whenever and by whomever it is told.

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
            let mut newborn = newborn(self.task, event)?;
            if self.dialect == Dialect::V1 {
                newborn.history.clear();
            }
            self.sum = Some(newborn);
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
            self.idle = matches!(event.kind, EventKind::Status { ends_turn: true, state } if !matches!(state, TaskState::Working | TaskState::Submitted));
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
        tokens: store::Tokens::default(),
    })
}

#[cfg(test)]
mod tests {
    use a2a::{Message, Part, Role, Task, TaskArtifactUpdateEvent, TaskStatus, TaskStatusUpdateEvent};
    use serde_json::Value;
    use store::{NewPush, PushRecord, PushState, Start, TenantId};

    use super::*;

    const CONTEXT: &str = "c";

    /// A log that is written event by event.
    struct Log {
        task: TaskId,
        events: Vec<Event>,
    }

    impl Log {
        fn new() -> Self {
            let task = TaskId::mint();
            let said = Message {
                message_id: "m1".into(),
                role: Role::User,
                parts: vec![Part::text("go")],
                ..Message::default()
            };
            let status =
                TaskStatus { state: TaskState::Submitted, message: None, timestamp: Some(Timestamp::from_millis(1)) };
            let born = Task {
                id: task.to_string(),
                context_id: CONTEXT.into(),
                status,
                history: vec![said],
                ..Task::default()
            };
            let mut log = Self { task, events: Vec::new() };
            log.add(EventKind::Created { held: false }, &StreamResponse::Task(born));
            log
        }

        fn add(&mut self, kind: EventKind, frame: &StreamResponse) {
            let (seq, body) = (self.events.len() as u64 + 1, serde_json::to_vec(frame).unwrap().into());
            self.events.push(Event { seq, at: Timestamp::from_millis(seq.cast_signed()), kind, body });
        }

        fn bare(&mut self, kind: EventKind, body: &'static str) {
            let seq = self.events.len() as u64 + 1;
            self.events.push(Event { seq, at: Timestamp::from_millis(seq.cast_signed()), kind, body: body.into() });
        }

        fn status(&mut self, kind: EventKind, says: Option<&str>) {
            let message = says.map(|says| Message {
                message_id: format!("a-{says}"),
                parts: vec![Part::text(says)],
                ..Message::default()
            });
            let status =
                TaskStatus { state: kind.state().unwrap(), message, timestamp: Some(Timestamp::from_millis(2)) };
            let (task_id, context_id) = (self.task.to_string(), CONTEXT.into());
            let update = TaskStatusUpdateEvent { task_id, context_id, status, metadata: None };
            self.add(kind, &StreamResponse::StatusUpdate(update));
        }

        fn chunk(&mut self, id: &str, text: &str, append: bool, last_chunk: bool) {
            let artifact = Artifact { artifact_id: id.into(), parts: vec![Part::text(text)], ..Artifact::default() };
            let (task_id, context_id) = (self.task.to_string(), CONTEXT.into());
            let update = TaskArtifactUpdateEvent { task_id, context_id, artifact, append, last_chunk, metadata: None };
            self.add(EventKind::Artifact, &StreamResponse::ArtifactUpdate(update));
        }

        fn config(&self, dialect: Dialect, chunks: bool) -> PushConfig {
            PushConfig {
                task: self.task,
                tenant: TenantId(1),
                config: NewPush {
                    id: "p".into(),
                    url: "https://h/".into(),
                    receiver: "h:443".into(),
                    scheme: String::new(),
                    sealed: Vec::new(),
                    dialect,
                    chunks,
                },
                created_at: Timestamp::from_millis(0),
                told: Place::default(),
                owed: 0,
                state: PushState::Active,
                attempt: 0,
                due: None,
                record: PushRecord::default(),
            }
        }

        /// All that is told from a place on.
        fn told(&self, config: &PushConfig, from: Place) -> Vec<Notice> {
            let mut teller = Teller::new(config, from);
            let after = teller.reads_after();
            let events = self.events.iter().filter(|event| event.seq > after);
            events.flat_map(|event| teller.add(event).unwrap()).collect()
        }
    }

    const START: EventKind = EventKind::Started(Start::First);
    const AGAIN: EventKind = EventKind::Started(Start::Again);

    fn ends(state: TaskState) -> EventKind {
        EventKind::Status { state, ends_turn: true }
    }

    /// A turn with everything in it: chunks, a second attempt, an artifact that never says its end, notes; then another turn.
    fn story() -> Log {
        let mut log = Log::new();
        log.status(START, None); // 2
        log.chunk("text", "lost", false, false); // 3
        log.status(AGAIN, None); // 4
        log.chunk("text", "on", false, false); // 5
        log.bare(EventKind::Note, "{}"); // 6
        log.chunk("file", "data", false, false); // 7
        log.status(EventKind::Status { state: TaskState::Working, ends_turn: false }, Some("soon")); // 8
        log.chunk("text", "e", true, true); // 9
        log.chunk("whole", "w", false, true); // 10
        log.chunk("other", "o", false, false); // 11
        log.status(ends(TaskState::InputRequired), Some("which?")); // 12
        log.bare(EventKind::Input, r#"{"messageId":"m2","role":"ROLE_USER","parts":[{"text":"this"}]}"#); // 13
        log.status(START, None); // 14
        log.chunk("other", "ne", true, true); // 15
        log.status(ends(TaskState::Completed), None); // 16
        log
    }

    fn says(notice: &Notice) -> (u64, u32, String) {
        let json: Value = serde_json::from_slice(&notice.body).unwrap();
        let what = match json.as_object().unwrap().keys().next().unwrap().as_str() {
            "task" => "born".to_owned(),
            "statusUpdate" => json["statusUpdate"]["status"]["state"].as_str().unwrap().to_owned(),
            _ => {
                let update = &json["artifactUpdate"];
                assert_eq!((&update["append"], &update["lastChunk"]), (&Value::Null, &Value::Bool(true)), "{json}");
                assert_eq!(update["contextId"], CONTEXT);
                format!(
                    "{}={}",
                    update["artifact"]["artifactId"].as_str().unwrap(),
                    update["artifact"]["parts"][0]["text"].as_str().unwrap()
                )
            }
        };
        (notice.place.seq, notice.place.part, what)
    }

    #[test]
    fn statuses_and_finished_artifacts_are_told() {
        let log = story();
        let config = log.config(Dialect::V1, false);
        let told: Vec<_> = log.told(&config, Place::default()).iter().map(says).collect();
        let expected = [
            (1, 0, "born"),
            (2, 0, "TASK_STATE_WORKING"),
            (4, 0, "TASK_STATE_WORKING"),
            (8, 0, "TASK_STATE_WORKING"),
            (9, 0, "text=one"),
            (10, 0, "whole=w"),
            (12, 1, "file=data"),
            (12, 2, "other=o"),
            (12, 3, "TASK_STATE_INPUT_REQUIRED"),
            (14, 0, "TASK_STATE_WORKING"),
            (15, 0, "other=one"),
            (16, 0, "TASK_STATE_COMPLETED"),
        ];
        assert_eq!(told, expected.map(|(seq, part, what)| (seq, part, what.to_owned())));
    }

    #[test]
    fn whoever_goes_on_tells_what_is_left_and_nothing_else() {
        let log = story();
        for dialect in [Dialect::V1, Dialect::V03] {
            for chunks in [false, true] {
                let config = log.config(dialect, chunks);
                let all = log.told(&config, Place::default());
                for (n, notice) in all.iter().enumerate() {
                    assert_eq!(
                        log.told(&config, notice.then),
                        all[n + 1..],
                        "{dialect:?} {chunks} after {:?}",
                        notice.place
                    );
                }
                assert_eq!(all.last().unwrap().then, Place { seq: 16, part: 0 });
            }
        }
    }

    #[test]
    fn who_asked_for_chunks_is_told_every_event_of_a_stream() {
        let log = story();
        let told = log.told(&log.config(Dialect::V1, true), Place::default());
        let framed: Vec<&Event> = log.events.iter().filter(|event| event.kind.has_frame()).collect();
        assert_eq!(
            told.iter().map(|notice| &notice.body).collect::<Vec<_>>(),
            framed.iter().map(|event| &event.body).collect::<Vec<_>>()
        );
    }

    #[test]
    fn in_03_the_task_is_told_as_it_stood() {
        let log = story();
        let told = log.told(&log.config(Dialect::V03, false), Place::default());
        let at = |seq: u64| -> Value {
            let notice = told.iter().find(|notice| notice.place.seq == seq).unwrap();
            serde_json::from_slice(&notice.body).unwrap()
        };
        let states: Vec<String> =
            [1, 2, 12, 16].map(|seq| at(seq)["status"]["state"].as_str().unwrap().to_owned()).to_vec();
        assert_eq!(states, ["submitted", "working", "input-required", "completed"]);
        let asked = at(12);
        assert_eq!(
            (&asked["kind"], &asked["status"]["message"]["parts"][0]["text"]),
            (&"task".into(), &"which?".into())
        );
        assert_eq!(asked["artifacts"].as_array().unwrap().len(), 4, "{asked}");
        assert!(at(2)["artifacts"].as_array().is_none_or(Vec::is_empty));
        let said: Vec<String> = at(16)["history"]
            .as_array()
            .unwrap()
            .iter()
            .map(|said| said["messageId"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(said, ["m1", "a-soon", "a-which?", "m2"], "the question before its answer");
    }
}
