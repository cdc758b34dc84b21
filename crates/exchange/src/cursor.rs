//! Following a task: a cursor over its log, and the frames a stream is made of.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use a2a::{StreamResponse, TaskState};
use store::{Event, EventKind, Journal, Most, Recent, Snapshot, TaskId, TenantId, View, Watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Error, Flight, Load, Luggage, Note, streams::Place};

/// How much one read of the log takes. An event that is more by itself has to find room first.
const BATCH: Most = Most { events: 256, bytes: 64 << 10 };

/// How much longer than a worker others wait before they show a task that is held.
pub(crate) const HEAD_START: Duration = Duration::from_millis(500);

/// A position in one task's log.
pub(crate) struct Cursor {
    store: Arc<dyn Journal>,
    tenant: TenantId,
    task: TaskId,
    after: u64,
    watch: Watch,
    ready: VecDeque<Arc<Event>>,
    read_log: bool,
    flight: Flight,
    /// What its events need room by, if not by themselves.
    luggage: Option<Arc<Luggage>>,
    /// Room for a large event that is to be read next, and how large it is.
    room: Option<(Load, u64)>,
    /// The same of the event that was given last: its reader has it.
    load: Option<Load>,
}

/// One frame of a stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    /// The task as of one moment.
    Task(Snapshot),
    /// The next event, shared by every reader.
    Event(Arc<Event>),
}

/// The frames of one stream, in order. Dropping it costs the task nothing.
pub struct Frames {
    /// The protocol extensions that are active.
    pub extensions: Vec<String>,
    ready: VecDeque<Frame>,
    /// Frames that wait for the agent's first output, which may be a direct reply.
    held: Option<VecDeque<Frame>>,
    /// When they have waited long enough: whoever runs the turn may be in no state to show the task.
    patience: Option<Instant>,
    cursor: Option<Cursor>,
    until: Until,
    draining: CancellationToken,
    is_cut: bool,
    /// What agents do on the way is told too.
    notes: bool,
    /// What its first frame takes while its reader has it.
    luggage: Option<Arc<Luggage>>,
    /// Held for as long as this stream counts. It is over when its caller's token is.
    place: Option<Place>,
}

/// When a stream is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// At a terminal state or INPUT_REQUIRED.
    TurnEnd,
    /// At a terminal state.
    TaskEnd,
}

impl Cursor {
    /// Begins after `after`. Begun before the log is read or the task even exists, it misses nothing.
    pub(crate) fn new(store: Arc<dyn Journal>, flight: Flight, tenant: TenantId, task: TaskId, after: u64) -> Self {
        let watch = store.hub().watch(task);
        Self {
            store,
            tenant,
            task,
            after,
            watch,
            ready: VecDeque::new(),
            read_log: true,
            flight,
            luggage: None,
            room: None,
            load: None,
        }
    }

    /// The same for a task that does not exist yet: the hub will see all of it.
    pub(crate) fn before_birth(self) -> Self {
        Self { read_log: false, ..self }
    }

    /// Moves on to `after`.
    pub(crate) fn skip_to(&mut self, after: u64) {
        self.after = self.after.max(after);
        self.ready.retain(|event| event.seq > after);
    }

    /// The next event. Cancel safe. [`store::Error::Pruned`] when the log does not have it any more.
    pub(crate) async fn next(&mut self) -> store::Result<Arc<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.after = event.seq;
                return Ok(event);
            }
            self.load = None;
            match self.watch.recent(self.after) {
                Recent::Events(events) if !events.is_empty() => {
                    self.room = None;
                    self.ready = events.into();
                    continue;
                }
                Recent::Events(_) if !self.read_log => {
                    // Nothing new that the hub knows of: wait for a word, but not for ever. Wake-ups only make things
                    // faster; without any, everything still arrives.
                    if tokio::time::timeout(self.watch.look(), self.watch.changed()).await.is_err() {
                        self.read_log = true;
                    }
                    continue;
                }
                // The hub says so once. Whoever cancels this call and makes another must still read.
                Recent::Behind => self.read_log = true,
                Recent::Events(_) => {}
            }
            let bytes = self.room.as_ref().map_or(BATCH.bytes, |(_, bytes)| *bytes);
            let (events, more) =
                match self.store.read(self.tenant, self.task, self.after, Most { bytes, ..BATCH }).await {
                    Err(store::Error::Heavy { bytes }) => {
                        self.room = None;
                        let room = self.luggage.as_ref().map_or(bytes, |luggage| luggage.room(bytes));
                        self.room = Some((self.flight.wait(self.tenant, room).await, bytes));
                        continue;
                    }
                    read => read?,
                };
            self.read_log = more;
            self.load = self.room.take().map(|(load, _)| load);
            self.ready = events.into_iter().map(Arc::new).collect();
        }
    }
}

impl Frame {
    /// The sequence number it brings the reader to: the SSE id.
    pub fn seq(&self) -> u64 {
        match self {
            Self::Task(snapshot) => snapshot.seq,
            Self::Event(event) => event.seq,
        }
    }

    /// The protocol's own response, typed.
    pub fn response(&self) -> store::Result<StreamResponse> {
        match self {
            Self::Task(snapshot) => Ok(StreamResponse::Task(snapshot.to_task()?)),
            Self::Event(event) => event.response(),
        }
    }

    /// What an agent did on the way, if it is that: it has no response then.
    pub fn note(&self) -> Option<Note> {
        match self {
            Self::Event(event) if event.kind == EventKind::Note => serde_json::from_slice(&event.body).ok(),
            _ => None,
        }
    }
}

impl Until {
    /// Whether a stream is over after this.
    pub(crate) fn is_over(self, kind: EventKind) -> bool {
        kind.ends_task() || kind.state().is_some_and(|state| self.is_over_at(state))
    }

    /// Whether a stream is over in this state.
    pub(crate) fn is_over_at(self, state: TaskState) -> bool {
        state.is_terminal() || (self == Self::TurnEnd && state == TaskState::InputRequired)
    }
}

impl Frames {
    /// Begins with `first`, then follows the cursor, if there is one.
    pub(crate) fn new(first: Vec<Frame>, cursor: Option<Cursor>, until: Until, draining: CancellationToken) -> Self {
        Self {
            extensions: Vec::new(),
            ready: first.into(),
            held: None,
            patience: None,
            cursor,
            until,
            draining,
            is_cut: false,
            notes: false,
            luggage: None,
            place: None,
        }
    }

    /// Counts as one of its tenant's streams.
    pub(crate) fn in_place(self, place: Place) -> Self {
        Self { place: Some(place), ..self }
    }

    /// Keeps what the call has in flight until its first frames are read.
    pub(crate) fn with_luggage(self, luggage: &Arc<Luggage>) -> Self {
        let cursor = self.cursor.map(|cursor| Cursor { luggage: Some(Arc::clone(luggage)), ..cursor });
        Self { luggage: Some(Arc::clone(luggage)), cursor, ..self }
    }

    pub(crate) fn with_extensions(self, extensions: Vec<String>) -> Self {
        Self { extensions, ..self }
    }

    /// Tells what agents do on the way too, see [`Frame::note`].
    #[must_use]
    pub fn with_notes(self) -> Self {
        Self { notes: true, ..self }
    }

    /// Holds everything back until the agent's first output, and not for much longer than `patience`.
    pub(crate) fn hold(mut self, patience: Duration) -> Self {
        self.held = Some(std::mem::take(&mut self.ready));
        // The worker is to be the first.
        self.patience = Some(Instant::now() + patience + HEAD_START);
        self
    }

    /// Whether it is over because the server drains. There is more to come, to whoever subscribes again.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The next frame; `None` when the stream is over or the server drains. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<Frame, Error>> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(Ok(frame));
            }
            if let Some(luggage) = self.luggage.take() {
                luggage.leave();
            }
            let cursor = self.cursor.as_mut()?;
            let event = tokio::select! {
                biased;
                () = ended(self.place.as_ref()) => {
                    self.cursor = None;
                    return Some(Err(Error::TokenEnded));
                }
                event = cursor.next() => event,
                () = self.draining.cancelled() => return self.drain().await,
                () = until(self.patience.filter(|_| self.held.is_some() && !store::fault::is_on("stay-held"))) => {
                    self.patience = None;
                    // If a direct reply came just now, it is the next event; else this is.
                    match cursor.store.reveal(cursor.tenant, cursor.task).await {
                        Ok(()) | Err(store::Error::Terminal(_)) => continue,
                        Err(error) => Err(error),
                    }
                }
            };
            match event {
                Ok(event) => self.take(event),
                // What comes next is gone: the task has ended long ago, and how it stands takes the place of what is missing.
                Err(store::Error::Pruned) => {
                    let snapshot = cursor.store.task(cursor.tenant, cursor.task, View::FULL).await;
                    let snapshot = snapshot.map_err(|error| Error::of_task(error, cursor.task));
                    self.cursor = None;
                    return Some(snapshot.map(Frame::Task));
                }
                Err(error) => {
                    let error = Error::of_task(error, cursor.task);
                    self.cursor = None;
                    return Some(Err(error));
                }
            }
        }
    }

    fn take(&mut self, event: Arc<Event>) {
        let kind = event.kind;
        if kind == EventKind::Revealed {
            self.ready.extend(self.held.take().into_iter().flatten());
        }
        if self.notes && kind == EventKind::Note && self.held.is_none() {
            return self.ready.push_back(Frame::Event(event));
        }
        if !kind.has_frame() {
            return;
        }
        if self.until.is_over(kind) {
            self.cursor = None;
        }
        let frame = Frame::Event(event);
        match self.held.take() {
            // A direct reply is all that its sender sees.
            Some(_) if kind == EventKind::Reply => self.ready.push_back(frame),
            Some(mut held) => {
                held.push_back(frame);
                if kind.shows_task() {
                    self.ready = held;
                } else {
                    self.held = Some(held);
                }
            }
            None => self.ready.push_back(frame),
        }
    }

    /// The server drains. A reader whose first frame was held back must learn the task's id to resume.
    async fn drain(&mut self) -> Option<Result<Frame, Error>> {
        let mut cursor = self.cursor.take()?;
        self.is_cut = true;
        self.held.as_ref()?;
        match cursor.store.reveal(cursor.tenant, cursor.task).await {
            Ok(()) => self.ready = self.held.take()?,
            // The direct reply came just now: it is among the next events.
            Err(store::Error::Terminal(_)) => {
                self.is_cut = false;
                while self.ready.is_empty() {
                    match cursor.next().await {
                        Ok(event) => self.take(event),
                        Err(error) => return Some(Err(error.into())),
                    }
                }
            }
            Err(error) => return Some(Err(error.into())),
        }
        self.ready.pop_front().map(Ok)
    }
}

/// When whoever follows may not do so any more.
async fn ended(place: Option<&Place>) {
    match place {
        Some(place) => place.pass.ended().cancelled().await,
        None => std::future::pending().await,
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
