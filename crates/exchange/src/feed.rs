//! The feed of a tenant: the events of all its tasks, in the order of the journal's log.
//!
//! A feed is a place in the log of all tasks, which its reader moves on: nothing is queued for a slow one. The log has no
//! order by tenant, so a read looks at the events of others as well, a bounded number at a time and never at their bodies.
//! A reader that only meets events of others gets a new place now and then, and begins there when it comes back.

use std::{collections::VecDeque, time::Duration};

use a2a::{StreamResponse, TaskState, Timestamp};
use store::{EventKind, FeedEvent, FeedLimit, Most, Position, Scope, TaskId, TenantId, clock};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use crate::{Call, Error, Exchange, Keep, Load, Origin, retention::RetentionRules, streams::Place};

/// How much one read takes. An event that is more by itself has to find room first.
const PAGE: FeedLimit = FeedLimit { scanned: 2000, most: Most { events: 128, bytes: 64 << 10 } };

/// How many full pages of other tenants' events a reader passes, or for how long, before it is told its new place.
const SILENT_PAGES: u32 = 10;
const SILENCE: Duration = Duration::from_secs(15);

/// How soon the log is looked at again after it has moved, however often it does, and after it seemed to have ended. On
/// PostgreSQL an event that was announced can be given only when all older transactions have ended.
const PACE: Duration = Duration::from_millis(20);
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// How much clocks of instances may differ where a cursor's age is judged.
const SKEW: Duration = Duration::from_secs(60);

/// Something of a feed, and the cursor behind it.
#[derive(Debug, Clone)]
pub struct FeedItem {
    /// Resumes behind this.
    pub cursor: String,
    /// What it is.
    pub what: Fed,
}

/// What a feed tells.
#[derive(Debug, Clone)]
pub enum Fed {
    /// Where it begins.
    Open,
    /// Events behind the cursor that was given may be gone, or were never there. The tasks have to be read anew.
    Reset,
    /// Nothing of this tenant's so far.
    Silence,
    /// An event.
    Event(Box<FedEvent>),
}

/// An event of a task.
#[derive(Debug, Clone)]
pub struct FedEvent {
    /// Its task.
    pub task: TaskId,
    /// The task's agent.
    pub agent: String,
    /// The task's context.
    pub context: String,
    /// What everything that belongs together has in common.
    pub correlation: String,
    /// Its number in the task.
    pub seq: u64,
    /// When it happened.
    pub at: Timestamp,
    /// What it says, where it says more than a state.
    pub response: Option<StreamResponse>,
    /// The task's state from here on, if it says so.
    pub state: Option<TaskState>,
}

/// The feed of a tenant, as one reader follows it. Dropping it costs nothing.
pub struct Feed {
    exchange: Exchange,
    call: Call,
    position: Position,
    /// The time of the last event up to there.
    at: Timestamp,
    ready: VecDeque<FeedItem>,
    log: watch::Receiver<u64>,
    wait: Duration,
    /// Full pages since the reader was told a place, and when that was.
    silent: u32,
    told: Instant,
    /// How many bytes the next event has, if it is a large one.
    bytes: u64,
    /// Room for what was read last.
    load: Option<Load>,
    looked: Instant,
    place: Place,
}

impl Exchange {
    /// The events of all of the caller's tasks: those after a cursor, from the begin of the log for the cursor `0`, and from
    /// now on without one.
    pub async fn feed(&self, call: &Call, after: Option<&str>) -> Result<Feed, Error> {
        call.caller.needs(Scope::Read)?;
        let tenant = call.caller.tenant;
        let given = match after {
            None => None,
            Some("0") => Some((Position::default(), Timestamp::from_millis(0))),
            Some(cursor) => Some(self.inner.page_key.open_cursor(tenant, cursor)?),
        };
        let place = self.inner.streams.enter(&call.caller)?;
        // Listen first, then read, so that nothing falls between.
        let log = self.inner.store.hub().log();
        let end = self.inner.store.log_end().await?;
        let now = clock::now();
        let (position, at, is_whole) = match given {
            None => (end, now, true),
            // Of another journal, or of this one before it was restored.
            Some((position, _)) if position > end => (end, now, false),
            Some((position, at)) => {
                let is_beginning = position == Position::default();
                // Before there was the tenant, nothing of it was written.
                let since = if is_beginning { at.max(self.beginning_of(tenant).await?) } else { at };
                (position, at, self.keeps_since(call, since, now))
            }
        };
        let mut feed = Feed {
            exchange: self.clone(),
            call: call.clone(),
            position,
            at,
            ready: VecDeque::new(),
            log,
            wait: FIRST_WAIT,
            silent: 0,
            told: Instant::now(),
            bytes: 0,
            load: None,
            looked: Instant::now(),
            place,
        };
        let what = if is_whole { Fed::Open } else { Fed::Reset };
        feed.ready.push_back(feed.item(position, what));
        Ok(feed)
    }

    /// The time at which a tenant was created; the earliest there is for one that is unknown.
    async fn beginning_of(&self, tenant: TenantId) -> Result<Timestamp, Error> {
        let tenants = self.inner.store.tenants().await?;
        let created = tenants.iter().find(|known| known.id == tenant).map(|known| known.created_at);
        Ok(created.unwrap_or(Timestamp::from_millis(0)))
    }

    /// Whether nothing that happened after `at` can have been pruned.
    fn keeps_since(&self, call: &Call, at: Timestamp, now: Timestamp) -> bool {
        let Some(shortest) = shortest(&self.inner.options.retention, &call.caller.name) else { return true };
        let age = now.as_millis().saturating_sub(at.as_millis());
        age < i64::try_from(shortest.saturating_sub(SKEW).as_millis()).unwrap_or(i64::MAX)
    }
}

/// How soon something of a tenant may be pruned.
fn shortest(rules: &RetentionRules, tenant: &str) -> Option<Duration> {
    let of_agents = rules.agents.values().flat_map(|rule| [rule.tasks, rule.events]);
    let of_tenant = rules.tenants.get(tenant).into_iter().flat_map(|rule| [rule.tasks, rule.events]);
    let all = [Some(rules.tasks), Some(rules.events)].into_iter().chain(of_agents).chain(of_tenant);
    all.filter_map(|keep| match keep {
        Some(Keep::For(time)) => Some(time),
        Some(Keep::Forever) | None => None,
    })
    .min()
}

impl Feed {
    /// What comes next; `None` when the server drains. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<FeedItem, Error>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(Ok(item));
            }
            let (draining, pass) = (self.exchange.inner.draining.clone(), self.place.pass.clone());
            let read = tokio::select! {
                biased;
                () = pass.ended().cancelled() => return Some(Err(Error::TokenEnded)),
                () = draining.cancelled() => return None,
                read = self.read() => read,
            };
            if let Err(error) = read {
                return Some(Err(error));
            }
        }
    }

    /// Reads a page, or waits for one.
    async fn read(&mut self) -> Result<(), Error> {
        let (tenant, flight) = (self.call.caller.tenant, &self.exchange.inner.flight);
        self.load = None;
        sleep(PACE.saturating_sub(self.looked.elapsed())).await;
        let room = self.bytes.max(PAGE.most.bytes);
        let load = flight.wait(tenant, room).await;
        let limit = FeedLimit { most: Most { bytes: room, ..PAGE.most }, ..PAGE };
        // What is announced from here on is heard.
        self.log.borrow_and_update();
        let store = &self.exchange.inner.store;
        let page = match store.feed(tenant, self.call.caller.bound_to(), &self.position, limit).await {
            Err(store::Error::Heavy { bytes }) => {
                self.bytes = bytes;
                return Ok(());
            }
            page => page?,
        };
        self.bytes = 0;
        self.looked = Instant::now();
        let has_moved = page.position != self.position;
        self.position = page.position;
        if !page.events.is_empty() {
            for fed in page.events {
                self.at = self.at.max(fed.event.at);
                let item = self.event(fed)?;
                self.ready.push_back(item);
            }
            self.load = Some(load);
            (self.silent, self.told, self.wait) = (0, Instant::now(), FIRST_WAIT);
            return Ok(());
        }
        drop(load);
        self.silent += u32::from(page.more);
        if self.silent >= SILENT_PAGES || (has_moved && self.told.elapsed() >= SILENCE) {
            (self.silent, self.told) = (0, Instant::now());
            self.ready.push_back(self.item(self.position, Fed::Silence));
        }
        if !page.more {
            self.wait = if has_moved { FIRST_WAIT } else { self.wait };
            if timeout(self.wait, self.log.changed()).await.is_ok() {
                self.wait = FIRST_WAIT;
            } else {
                self.wait = (self.wait * 2).min(store.hub().look());
            }
        }
        Ok(())
    }

    fn item(&self, position: Position, what: Fed) -> FeedItem {
        let cursor = self.exchange.inner.page_key.seal_cursor(self.call.caller.tenant, position, self.at);
        FeedItem { cursor, what }
    }

    fn event(&self, fed: FeedEvent) -> Result<FeedItem, Error> {
        let FeedEvent { position, task, agent, context, origin, event } = fed;
        let response = match event.body.len() {
            0 => None,
            bytes => Some(crate::heavy(bytes, || event.response())?),
        };
        let state = match event.kind {
            EventKind::Created { .. } => Some(TaskState::Submitted),
            EventKind::Revealed => Some(TaskState::Working),
            kind => kind.state(),
        };
        let event = FedEvent {
            task,
            agent: agent.to_string(),
            context: context.to_string(),
            correlation: Origin::read(origin.as_deref()).trace(task, 1, None, None).correlation,
            seq: event.seq,
            at: event.at,
            response,
            state,
        };
        Ok(self.item(position, Fed::Event(Box::new(event))))
    }
}
