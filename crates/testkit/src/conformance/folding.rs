//! The log adds up: whatever can be read of a task follows from its events alone.
//!
//! [`Fold`] is the reference: the rules by which events make a task, in the fewest words. A story made by chance does
//! everything that can be done to tasks, and after every step each task is what its log says.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use a2a::{TaskState, Timestamp};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::world::*;
use crate::rng::Random;
use store::{
    Accept, Append, Claim, Draft, Error, Event, EventKind, Holder, Lease, LeasedTurn, Room, Snapshot, Start, Store,
    TaskId, TenantId, Term, Tokens, TurnEnd, View,
};

/// What a log adds up to.
#[derive(Debug, Clone)]
struct Fold {
    seq: u64,
    state: TaskState,
    status_at: Timestamp,
    status_message: Option<Bytes>,
    history: Vec<Bytes>,
    chunks: Vec<Chunk>,
    /// The turn that runs, or ran last, from 1.
    turn: u32,
    /// The last turn has ended, and no other has begun or waits.
    idle: bool,
    /// The last event with its agent's state, and the last one before the turn.
    kept: u64,
    kept_before: u64,
    sight: Sight,
    tokens: Tokens,
}

/// What is used of models with every note of a story.
const OF_A_NOTE: Tokens = Tokens { input: 3, output: 5 };

/// An artifact, or more of one.
#[derive(Debug, Clone)]
struct Chunk {
    id: String,
    turn: u32,
    seq: u64,
    body: Bytes,
}

/// Whether callers see the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    Seen,
    /// Its first output decides.
    Held,
    /// A direct reply took its place.
    Never,
}

/// The parts of frames that count, as they stand there.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Frame<'a> {
    #[serde(borrow)]
    task: Option<Born<'a>>,
    #[serde(borrow)]
    status_update: Option<StatusUpdate<'a>>,
    #[serde(borrow)]
    artifact_update: Option<ArtifactUpdate<'a>>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Born<'a> {
    #[serde(borrow)]
    history: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct StatusUpdate<'a> {
    #[serde(borrow)]
    status: Status<'a>,
}

#[derive(Deserialize)]
struct Status<'a> {
    state: String,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ArtifactUpdate<'a> {
    #[serde(borrow)]
    artifact: &'a RawValue,
    #[serde(default)]
    append: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    artifact_id: String,
}

fn frame(event: &Event) -> Frame<'_> {
    serde_json::from_slice(&event.body).unwrap()
}

fn bytes(raw: &RawValue) -> Bytes {
    Bytes::copy_from_slice(raw.get().as_bytes())
}

impl Fold {
    /// The first event.
    fn born(event: &Event) -> Self {
        let EventKind::Created { held } = event.kind else { panic!("a log begins with {:?}", event.kind) };
        assert_eq!(event.seq, 1);
        let born = frame(event).task.unwrap();
        Self {
            seq: 1,
            state: TaskState::Submitted,
            status_at: event.at,
            status_message: None,
            history: born.history.into_iter().map(bytes).collect(),
            chunks: Vec::new(),
            turn: 0,
            idle: false,
            kept: 0,
            kept_before: 0,
            sight: if held { Sight::Held } else { Sight::Seen },
            tokens: Tokens::default(),
        }
    }

    /// Any other.
    fn add(&mut self, event: &Event) {
        assert_eq!(event.seq, self.seq + 1, "the log has a gap");
        assert!(!self.state.is_terminal(), "{:?} follows the end", event.kind);
        self.seq = event.seq;
        match event.kind {
            EventKind::Created { .. } => panic!("it is born twice"),
            EventKind::Started(start) => {
                match start {
                    Start::First => self.begin_turn(),
                    Start::Again => {
                        self.kept = self.kept_before;
                        self.chunks.retain(|chunk| chunk.turn != self.turn);
                    }
                    Start::Resumed => {
                        let stays = if self.kept > self.kept_before { self.kept } else { 0 };
                        self.chunks.retain(|chunk| chunk.turn != self.turn || chunk.seq <= stays);
                    }
                }
                self.idle = false;
                self.status(event, TaskState::Working);
            }
            EventKind::Revealed => self.show(),
            EventKind::Input => {
                if self.idle {
                    // The answer comes after the question.
                    self.history.extend(self.status_message.take());
                }
                self.history.push(event.body.clone());
            }
            EventKind::Artifact => {
                self.show();
                self.artifact(event);
            }
            EventKind::Note => self.tokens = self.tokens.plus(OF_A_NOTE),
            EventKind::Other(_) => {}
            EventKind::Kept => self.kept = event.seq,
            EventKind::Reply => {
                assert_eq!(self.sight, Sight::Held, "a reply to what is seen");
                self.sight = Sight::Never;
                self.state = TaskState::Completed;
                self.status_at = event.at;
                assert!(frame(event).message.is_some());
            }
            EventKind::Status { state, ends_turn } => {
                self.show();
                self.status(event, state);
                self.idle = ends_turn && state != TaskState::Working;
                // The next turn has begun with the end of this one.
                if ends_turn && state == TaskState::Working {
                    self.begin_turn();
                }
            }
        }
    }

    fn begin_turn(&mut self) {
        self.turn += 1;
        self.kept_before = self.kept;
    }

    fn show(&mut self) {
        assert_ne!(self.sight, Sight::Never);
        self.sight = Sight::Seen;
    }

    fn status(&mut self, event: &Event, state: TaskState) {
        let frame = frame(event);
        let status = frame.status_update.unwrap().status;
        assert_eq!(status.state, state.as_str(), "the frame says something else than its kind");
        self.history.extend(self.status_message.take());
        self.state = state;
        self.status_at = event.at;
        self.status_message = status.message.map(bytes);
    }

    fn artifact(&mut self, event: &Event) {
        let frame = frame(event);
        let ArtifactUpdate { artifact, append } = frame.artifact_update.unwrap();
        let Named { artifact_id: id } = serde_json::from_str(artifact.get()).unwrap();
        if !append {
            self.chunks.retain(|chunk| chunk.id != id);
        }
        self.chunks.push(Chunk { id, turn: self.turn, seq: event.seq, body: bytes(artifact) });
    }

    /// The chunks of each artifact, in order of first appearance.
    fn artifacts(&self) -> Vec<Vec<Bytes>> {
        let mut artifacts: Vec<(&str, Vec<Bytes>)> = Vec::new();
        for Chunk { id, body, .. } in &self.chunks {
            match artifacts.iter_mut().find(|(known, _)| known == id) {
                Some((_, chunks)) => chunks.push(body.clone()),
                None => artifacts.push((id, vec![body.clone()])),
            }
        }
        artifacts.into_iter().map(|(_, chunks)| chunks).collect()
    }

    /// The task that callers see, if they do.
    fn snapshot(&self, like: &Snapshot) -> Snapshot {
        Snapshot {
            task: like.task,
            agent: like.agent.clone(),
            context: like.context.clone(),
            state: self.state,
            status_at: self.status_at,
            status_message: self.status_message.clone(),
            seq: self.seq,
            history: self.history.clone(),
            artifacts: self.artifacts(),
            made_in: like.made_in.clone(),
            tokens: self.tokens,
        }
    }
}

/// Everything that can be done to tasks, by chance.
struct Story {
    world: World,
    rng: Random,
    step: usize,
    tasks: Vec<TaskId>,
    /// All that were ever given: many of them are lost.
    leases: Vec<Lease>,
    folds: BTreeMap<TaskId, Fold>,
    /// The state that claimed turns are to go on from.
    promised: Vec<(TaskId, u64)>,
    /// What was logged at all, by kind.
    seen: HashSet<String>,
}

impl Story {
    fn new(world: World, seed: u64) -> Self {
        let (tasks, leases, folds) = (Vec::new(), Vec::new(), BTreeMap::new());
        let (promised, seen) = (Vec::new(), HashSet::new());
        Self { world, rng: Random::seeded(seed), step: 0, tasks, leases, folds, promised, seen }
    }

    fn term(&mut self) -> Term {
        let holder = self.rng.pick(&[self.world.me(), Holder::worker("w")]).clone();
        Term { holder, lasts: if self.rng.once_in(4) { NOTHING } else { MINUTE } }
    }

    /// Takes in a message, leased or not.
    async fn accept(&mut self, accept: Accept) {
        let lease = if self.rng.once_in(3) { None } else { Some(self.term()) };
        if let Some(accepted) = allowed(self.world.accept(Accept { lease, ..accept }).await) {
            self.leases.extend(accepted.lease);
        }
    }

    async fn begin(&mut self) {
        let (task, accept) = self.world.begin(&format!("asks {}", self.step));
        self.tasks.push(task);
        let accept = if self.rng.once_in(3) { held(accept) } else { accept };
        self.accept(accept).await;
    }

    async fn go_on(&mut self) {
        let asks = |fold: &Fold| fold.idle && !fold.state.is_terminal();
        let asking: Vec<TaskId> = self.folds.iter().filter(|(_, fold)| asks(fold)).map(|(task, _)| *task).collect();
        let task = if asking.is_empty() || self.rng.once_in(3) { &self.tasks } else { &asking };
        let task = *self.rng.pick(task);
        let more = self.world.more(task, &format!("adds {}", self.step));
        self.accept(more).await;
    }

    /// What a turn might say before its end, and how much of it are notes.
    fn drafts(&mut self, task: TaskId) -> (Vec<Draft>, usize) {
        let (mut drafts, mut notes) = (Vec::new(), 0);
        for n in 0..self.rng.index(4) {
            let text = format!("{} {n}", self.step);
            let state = *self.rng.pick(&[TaskState::Working, TaskState::AuthRequired]);
            let id = *self.rng.pick(&["a", "b", "c"]);
            drafts.push(match self.rng.index(9) {
                6 => {
                    notes += 1;
                    note()
                }
                7 | 8 => kept(&text),
                0 => status(task, state, Some(&text)),
                1 => status(task, state, None),
                2..4 => artifact(task, id, &text, false),
                _ => artifact(task, id, &text, true),
            });
        }
        (drafts, notes)
    }

    fn end(&mut self, task: TaskId) -> TurnEnd {
        let text = format!("ends {}", self.step);
        let said = if self.rng.once_in(3) { None } else { Some(text.as_str()) };
        match self.rng.index(16) {
            14 => TurnEnd::Park { at_most: Some(NOTHING) },
            15 => TurnEnd::Park { at_most: None },
            // Only the first words of a task that is held are one.
            0 | 1 | 10..14 => reply(task, &text),
            2 | 3 => TurnEnd::Retry { after: NOTHING, error: "no luck".to_owned() },
            4 | 5 => TurnEnd::Release { begun: true },
            6 => TurnEnd::Status(status(task, TaskState::Completed, said)),
            7 => {
                let others = [TaskState::Failed, TaskState::Rejected, TaskState::Canceled, TaskState::AuthRequired];
                TurnEnd::Status(status(task, *self.rng.pick(&others), said))
            }
            _ => TurnEnd::Status(status(task, TaskState::InputRequired, said)),
        }
    }

    async fn say(&mut self) {
        // The newer a lease, the more likely it is still good.
        let newest = self.leases.len().saturating_sub(12);
        let Some(lease) = self.leases.get(newest..).filter(|leases| !leases.is_empty()) else { return };
        let lease = self.rng.pick(lease).clone();
        let (drafts, notes) = if self.rng.once_in(2) { (Vec::new(), 0) } else { self.drafts(lease.task) };
        let end = if self.rng.once_in(3) { Some(self.end(lease.task)) } else { None };
        let tokens = (0..notes).fold(Tokens::default(), |sum, _| sum.plus(OF_A_NOTE));
        let append = Append { drafts, end, tokens, ..Append::default() };
        let appended = allowed(self.world.store.append(&lease, append).await);
        if appended.is_some_and(|appended| appended.next.is_some()) {
            // The lease is kept for the next turn.
            self.leases.push(lease);
        }
    }

    async fn claim(&mut self) {
        let mut room = Room::new(self.world.agent.clone(), 1 + self.rng.index(3));
        room.resumes = self.rng.once_in(2);
        let claim = Claim::new(self.term(), vec![room]);
        let turns = self.world.store.claim(claim).await.unwrap();
        for LeasedTurn { lease, .. } in turns {
            self.promised.push((lease.task, lease.kept));
            self.leases.push(lease);
        }
    }

    async fn run_out(&mut self) {
        if !self.leases.is_empty() {
            let lease = self.rng.pick(&self.leases).clone();
            self.world.store.renew(std::slice::from_ref(&lease), NOTHING).await.unwrap();
        }
    }

    async fn do_something(&mut self) {
        if self.tasks.is_empty() {
            return self.begin().await;
        }
        let (store, tenant) = (Arc::clone(&self.world.store), self.world.tenant);
        match self.rng.index(26) {
            0..3 => self.begin().await,
            3..6 => self.go_on().await,
            6..14 => self.say().await,
            14..18 => self.claim().await,
            18 => drop(allowed(store.mark_cancel(tenant, *self.rng.pick(&self.tasks)).await)),
            19 => drop(allowed(store.force_cancel(tenant, *self.rng.pick(&self.tasks)).await)),
            20 | 21 => drop(allowed(store.reveal(tenant, *self.rng.pick(&self.tasks)).await)),
            24 | 25 => drop(allowed(store.wake(tenant, *self.rng.pick(&self.tasks)).await)),
            _ => self.run_out().await,
        }
    }

    /// Adds what is new to the folds, event by event, and compares them with what can be read.
    async fn check(&mut self) {
        let (store, tenant) = (Arc::clone(&self.world.store), self.world.tenant);
        for task in &self.tasks {
            let known = self.folds.get(task).map_or(0, |fold| fold.seq);
            for event in store.events(tenant, *task, known, 1000).await.unwrap() {
                self.seen.insert(format!("{:?}", event.kind));
                match self.folds.get_mut(task) {
                    Some(fold) => fold.add(&event),
                    None => drop(self.folds.insert(*task, Fold::born(&event))),
                }
            }
            let fold = &self.folds[task];
            for (_, kept) in self.promised.extract_if(.., |(of, _)| of == task) {
                assert_eq!(kept, fold.kept, "{task} goes on from there");
            }
            compare(&*store, tenant, *task, fold).await;
        }
    }
}

async fn compare(store: &dyn Store, tenant: TenantId, task: TaskId, fold: &Fold) {
    let head = store.head(tenant, task).await.unwrap();
    assert_eq!((head.seq, head.state, head.hidden), (fold.seq, fold.state, fold.sight != Sight::Seen), "{task}");
    match store.task(tenant, task, View::FULL).await {
        Ok(snapshot) => {
            assert_eq!(fold.sight, Sight::Seen, "{task} is seen");
            assert_eq!(snapshot, fold.snapshot(&snapshot), "{task}");
        }
        Err(Error::NotFound) => assert_ne!(fold.sight, Sight::Seen, "{task} is not seen"),
        Err(error) => panic!("{task}: {error}"),
    }
}

/// What the state of things forbids is a part of the story.
fn allowed<T>(outcome: store::Result<T>) -> Option<T> {
    match outcome {
        Ok(value) => Some(value),
        Err(error) if error.is_refusal() => None,
        Err(error) => panic!("{error}"),
    }
}

pub(super) async fn the_log_adds_up(store: Arc<dyn Store>) {
    let statuses = [
        is(TaskState::Submitted),
        is(TaskState::Working),
        is(TaskState::AuthRequired),
        ends(TaskState::Working),
        ends(TaskState::Completed),
        ends(TaskState::Canceled),
        ends(TaskState::InputRequired),
    ];
    let kinds = [CREATED, HELD, STARTED, AGAIN, RESUMED, REVEALED, INPUT, ARTIFACT, NOTE, KEPT, REPLY]
        .into_iter()
        .chain(statuses);
    let kinds: Vec<String> = kinds.map(|kind| format!("{kind:?}")).collect();
    let mut seen = HashSet::new();
    // Until everything has happened somewhere.
    for seed in 1..=40 {
        let tenant = store.create_tenant(&format!("tenant-{seed}")).await.unwrap().id;
        // Each seed has an agent of its own, so that it claims only what is its own.
        let world = World { store: Arc::clone(&store), tenant, agent: agent(&format!("agent-{seed}")) };
        let mut story = Story::new(world, seed);
        while story.step < 120 {
            story.do_something().await;
            story.check().await;
            story.step += 1;
        }
        seen.extend(story.seen);
        if seed >= 4 && kinds.iter().all(|kind| seen.contains(kind)) {
            return;
        }
    }
    panic!("no story tells of some of {kinds:?}: {seen:?}");
}
