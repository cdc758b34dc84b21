//! Two stores, one story: the same calls with the same contents, made by chance from a seed, have the same outcomes on
//! SQLite and on PostgreSQL, and everything that can be read afterwards is the same.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{sync::Arc, time::Duration};

use a2a::{Artifact, Message, Part, Role, TaskState, Timestamp};
use store::{
    Accept, Append, Draft, EventKind, Filter, Holder, IdempotencyKey, Lease, PageKey, Quota, Store, Target, TaskId,
    TenantId, Term, TurnEnd, View, postgres, sqlite,
};
use testkit::{postgres::Database, rng::Random};

const AGENTS: [&str; 2] = ["echo", "other"];
const CONTEXTS: [&str; 3] = ["one", "two", "three \u{1F310}"];
const STEPS: usize = 250;

/// A story on one store: what was told so far and what came of it.
struct Story {
    store: Arc<dyn Store>,
    tenants: Vec<TenantId>,
    rng: Random,
    step: usize,
    /// Minted before, so that both stories have the same.
    ids: Vec<TaskId>,
    tasks: Vec<(TenantId, TaskId)>,
    leases: Vec<Lease>,
    outcomes: Vec<String>,
}

fn message(task: TaskId, role: Role, text: String) -> Message {
    let part = Part::text(text.clone());
    Message { message_id: text, task_id: task.to_string(), role, parts: vec![part], ..Message::default() }
}

impl Story {
    async fn new(store: Arc<dyn Store>, ids: Vec<TaskId>, seed: u64) -> Self {
        let mut tenants = Vec::new();
        for name in ["first", "second"] {
            tenants.push(store.create_tenant(name).await.unwrap().id);
        }
        let (tasks, leases, outcomes) = (Vec::new(), Vec::new(), Vec::new());
        Self { store, tenants, rng: Random::seeded(seed), step: 0, ids, tasks, leases, outcomes }
    }

    /// Time passes with the steps, but some share a millisecond.
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_000_000 + i64::try_from(self.step / 3).unwrap())
    }

    /// What an agent says may hold what no column of text can.
    fn status(&mut self, task: TaskId, state: TaskState) -> Draft {
        let said = (self.rng.index(2) == 0).then(|| message(task, Role::Agent, format!("says \0 {}", self.step)));
        Draft::status(task, "one", state, said, None, self.now()).unwrap()
    }

    fn accept(&mut self, task: TaskId, target: Target) -> Accept {
        let said = message(task, Role::User, format!("asks {}", self.step));
        let idempotency = (self.rng.index(4) == 0).then(|| IdempotencyKey {
            key: [u8::try_from(self.rng.index(8)).unwrap(); 32],
            fingerprint: [u8::try_from(self.rng.index(2)).unwrap(); 32],
            keep: None,
        });
        let tasks = (self.rng.index(8) == 0).then_some(3);
        Accept {
            target,
            message_id: said.message_id.clone(),
            message: serde_json::to_vec(&said).unwrap().into(),
            idempotency,
            lease: (self.rng.index(4) != 0).then(|| Term { holder: Holder::worker("one"), lasts: Duration::MAX }),
            working: Draft::status(task, "one", TaskState::Working, None, None, self.now()).unwrap(),
            push: None,
            quota: Quota { tasks, bytes: None },
            parent: None,
            request: None,
            at: self.now(),
        }
    }

    async fn begin(&mut self) {
        let task = self.ids[self.step];
        let agent = self.rng.pick(&AGENTS).parse().unwrap();
        let context = (*self.rng.pick(&CONTEXTS)).into();
        let created = format!("{{\"task\":{{\"id\":\"{task}\"}}}}").into();
        let hold = self.rng.index(4) == 0;
        let accept = self.accept(
            task,
            Target::New {
                task,
                agent,
                context,
                created,
                hold,
                remembers: true,
                post: store::Post::default(),
                origin: None,
                tells_cancel: false,
            },
        );
        let tenant = *self.rng.pick(&self.tenants);
        let outcome = self.store.accept(tenant, accept).await;
        if let Ok(accepted) = &outcome {
            if !accepted.duplicate {
                self.tasks.push((tenant, task));
            }
            self.leases.extend(accepted.lease.clone());
        }
        self.outcomes.push(format!("begin {outcome:?}"));
    }

    async fn go_on(&mut self) {
        if self.tasks.is_empty() {
            return;
        }
        let (tenant, task) = *self.rng.pick(&self.tasks);
        let submitted = Draft::status(task, "one", TaskState::Submitted, None, None, self.now()).unwrap();
        let accept = self.accept(task, Target::Continue { task, max_waiting: 2, submitted });
        let outcome = self.store.accept(tenant, accept).await;
        if let Ok(accepted) = &outcome {
            self.leases.extend(accepted.lease.clone());
        }
        self.outcomes.push(format!("go on {outcome:?}"));
    }

    async fn say(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let lease = self.rng.pick(&self.leases).clone();
        let mut drafts = Vec::new();
        for _ in 0..self.rng.index(3) {
            let text = Part::text(format!("made {}", self.step));
            let artifact_id = (*self.rng.pick(&["a", "b", "c\0"])).to_owned();
            let artifact = Artifact { artifact_id, parts: vec![text], ..Artifact::default() };
            let append = self.rng.index(2) == 0;
            drafts.push(Draft::artifact(lease.task, "one", artifact, append, false, None, self.now()).unwrap());
        }
        if self.rng.index(3) == 0 {
            drafts.push(self.status(lease.task, TaskState::Working));
        }
        let end = match self.rng.index(8) {
            0..4 => None,
            4 => {
                let said = message(lease.task, Role::Agent, format!("replies {}", self.step));
                let completed = TaskState::Completed;
                let otherwise =
                    Draft::status(lease.task, "one", completed, Some(said.clone()), None, self.now()).unwrap();
                Some(TurnEnd::Reply { reply: Draft::reply(said, self.now()).unwrap(), otherwise })
            }
            _ => {
                let state = *self.rng.pick(&[
                    TaskState::Completed,
                    TaskState::Failed,
                    TaskState::InputRequired,
                    TaskState::InputRequired,
                    TaskState::Rejected,
                ]);
                Some(TurnEnd::Status(self.status(lease.task, state)))
            }
        };
        let outcome = self.store.append(&lease, Append { drafts, end, ..Append::default() }).await;
        self.outcomes.push(format!("say {outcome:?}"));
    }

    async fn show(&mut self) {
        if self.tasks.is_empty() {
            return;
        }
        let (tenant, task) = *self.rng.pick(&self.tasks);
        let outcome = self.store.reveal(tenant, task).await;
        self.outcomes.push(format!("show {outcome:?}"));
    }

    async fn tell(&mut self) {
        while self.step < STEPS {
            match self.rng.index(10) {
                0..2 => self.begin().await,
                2..5 => self.go_on().await,
                9 => self.show().await,
                _ => self.say().await,
            }
            self.step += 1;
        }
    }

    /// Everything that can be read, in lines.
    async fn read(&self) -> Vec<String> {
        let mut lines = self.outcomes.clone();
        for &tenant in &self.tenants {
            lines.push(format!("usage {:?}", self.store.usage(tenant).await));
            for &(owner, task) in &self.tasks {
                self.read_task(tenant, task, &mut lines).await;
                assert!(owner == tenant || self.store.head(tenant, task).await.is_err(), "another tenant's task");
            }
            self.read_lists(tenant, &mut lines).await;
            for agent in AGENTS {
                for context in CONTEXTS {
                    for (before, limit) in [(STEPS - 1, 1000), (STEPS / 2, 7), (STEPS - 1, 3)] {
                        let (agent, before) = (agent.parse().unwrap(), self.ids[before]);
                        let told = self.store.context_history(tenant, &agent, context, before, limit, u64::MAX).await;
                        lines.push(format!("context {agent} {context} {before} {limit} {told:?}"));
                    }
                }
            }
        }
        lines
    }

    async fn read_task(&self, tenant: TenantId, task: TaskId, lines: &mut Vec<String>) {
        let store = &self.store;
        lines.push(format!("head {task} {:?}", store.head(tenant, task).await));
        lines.push(format!("history {task} {:?}", store.history(tenant, task, u64::MAX).await));
        for (after, limit) in [(0, 1000), (2, 3), (1000, 5), (0, 0), (u64::MAX, usize::MAX)] {
            let events = store.events(tenant, task, after, limit).await.map(|mut events| {
                // What the store says by itself it says at its own time.
                events
                    .iter_mut()
                    .filter(|event| event.kind == EventKind::Revealed)
                    .for_each(|event| event.at = self.now());
                events
            });
            lines.push(format!("events {task} {after} {events:?}"));
        }
        for history in [None, Some(0), Some(2), Some(u32::MAX)] {
            for artifacts in [true, false] {
                let read = store.task(tenant, task, View { history, artifacts, ..View::FULL }).await;
                lines.push(format!("task {task} {history:?} {artifacts} {read:?}"));
            }
        }
    }

    async fn read_lists(&self, tenant: TenantId, lines: &mut Vec<String>) {
        let middle = Timestamp::from_millis(1_000_000 + i64::try_from(STEPS / 6).unwrap());
        for agent in [None, Some("echo")] {
            for context in [None, Some("one")] {
                for state in [None, Some(TaskState::Completed), Some(TaskState::Working)] {
                    for since in [None, Some(middle)] {
                        for limit in [1, 4, 1000] {
                            let mut after: Option<PageKey> = None;
                            for page in 0.. {
                                assert!(page < STEPS, "the pages go round in circles");
                                let filter = Filter {
                                    among: Vec::new(),
                                    agent: agent.map(|agent: &str| agent.parse().unwrap()),
                                    context: context.map(str::to_owned),
                                    state,
                                    since,
                                    after,
                                    limit,
                                    view: View { history: Some(1), artifacts: limit == 4, ..View::FULL },
                                };
                                let page = self.store.list(tenant, filter).await.unwrap();
                                lines.push(format!("list {agent:?} {context:?} {state:?} {since:?} {page:?}"));
                                after = page.next;
                                if after.is_none() {
                                    break;
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

async fn told(store: Arc<dyn Store>, ids: &[TaskId], seed: u64) -> Vec<String> {
    let mut story = Story::new(store, ids.to_vec(), seed).await;
    story.tell().await;
    story.read().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_stores_tell_the_same_story() {
    for seed in 1..=3 {
        let ids: Vec<TaskId> = (0..STEPS).map(|_| TaskId::mint()).collect();
        let dir = tempfile::tempdir().unwrap();
        let on_sqlite = told(sqlite::open(dir.path(), sqlite::Options::default()).unwrap(), &ids, seed).await;
        let database = Database::create();
        let url = database.url().parse().unwrap();
        let on_postgres = told(postgres::open(&url, postgres::Options::default()).await.unwrap(), &ids, seed).await;
        for (expected, found) in on_sqlite.iter().zip(&on_postgres) {
            assert_eq!(found, expected, "seed {seed}");
        }
        assert_eq!(on_postgres.len(), on_sqlite.len(), "seed {seed}");
        for what in
            ["begin Ok", "duplicate: true", "IdempotencyConflict", "TooManyTasks", "InboxFull", "Terminal", "LeaseLost"]
        {
            assert!(on_sqlite.iter().any(|line| line.contains(what)), "seed {seed}: nothing about {what}");
        }
    }
}
