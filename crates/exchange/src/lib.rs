//! The heart: the A2A operations, once, and the workers that run turns.
//!
//! A binding decodes a request into a [`Call`] and one of the operations of [`Exchange`], and encodes
//! what comes back. It decides nothing. Whatever a caller can observe was committed before.

pub mod admin;
mod aftermath;
mod agent;
mod attempts;
mod call;
mod canonical;
pub mod card_keys;
pub mod card_registry;
mod chat;
mod convert;
mod cursor;
mod delegation;
mod errand;
mod error;
mod feed;
mod flight;
mod fold;
mod heavy;
mod intake;
mod kept;
mod nearest;
mod operations;
mod origin;
pub mod own;
mod page_token;
mod pass;
pub mod push;
pub mod queue;
mod registry;
pub mod remotes;
mod request;
mod retention;
mod scheduler;
mod scribe;
mod send;
mod streams;
mod trouble;
mod turn;
mod turn_memory;
mod wake;
pub mod words;
mod worker;
mod working_time;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

pub use a2a::RESUME_CURSOR;
pub use agent::{
    Agent, Delivery, Elsewhere, Note, OnCrash, Outcome, Output, Past, Profile, ReplyMode, ReplyText, Said, Turn,
    text_of,
};
pub use call::{Call, Rules};
pub use chat::{Chat, Chatted, REMOTE_FAILED};
pub use cursor::{Frame, Frames};
pub use delegation::{Deadline, Delegation, DelegationLimits, Ledger, Refusal, message_id};
pub use errand::{Answer, Errand, Errands, Handed};
pub use error::Error;
pub use feed::{Fed, FedEvent, Feed, FeedItem};
pub use flight::{Flight, Load, Luggage};
pub use heavy::heavy;
pub use intake::size_of;
pub use nearest::nearest;
pub use operations::{Details, Listing, Relative, Reply, Sent};
pub use origin::{DELEGATION, Origin, Trace};
pub use pass::{Caller, Pass};
pub use registry::{Agents, Entry};
pub use request::RequestOptions;
pub use retention::{Keep, RetentionRule, RetentionRules};
pub use scribe::NOT_CONFIGURED;
use store::{Journal, Store, TaskId, TenantId};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
pub use working_time::Waits;

use crate::cursor::Cursor;

/// Bounds and times.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a blocking send waits before it returns the working task.
    pub blocking_cap: Duration,
    /// How long a canceled turn has to end by itself.
    pub cancel_grace: Duration,
    /// How long a lease lasts without renewal.
    pub lease: Duration,
    /// How often due work is looked for when nobody says that there is some.
    pub poll: Duration,
    /// How many messages may wait behind a running turn.
    pub max_waiting: u32,
    /// How many messages of its context an agent is given.
    pub context_limit: usize,
    /// The agent of a new send that names none.
    pub default_agent: Option<store::AgentId>,
    /// Sizes a message must keep.
    pub limits: a2a::Limits,
    /// What each tenant may use.
    pub quota: store::Quota,
    /// How many streams each tenant may have open, and how many calls of the queue that wait.
    pub max_streams: Option<usize>,
    /// How many bytes of requests and answers may be in memory at once.
    pub bytes_in_flight: Option<u64>,
    /// Who is told of what is published.
    pub relay: Option<queue::RelayTo>,
    /// How notifications are sent; none are when nothing is said.
    pub push: Option<push::PushOptions>,
    /// How long tasks and their logs are kept.
    pub retention: RetentionRules,
    /// How far work may be handed on.
    pub delegation: DelegationLimits,
    /// How long a chat waits for its answer.
    pub chat_wait: Duration,
    /// The remotes that are known; none when nothing is said.
    pub remotes: Option<remotes::Known>,
    /// Who makes agents of what tenants define; tenants define none when nothing is said.
    pub maker: Option<own::MadeBy>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            blocking_cap: Duration::from_secs(120),
            cancel_grace: Duration::from_secs(5),
            lease: Duration::from_secs(30),
            poll: Duration::from_secs(1),
            max_waiting: 32,
            context_limit: 100,
            default_agent: None,
            limits: a2a::Limits::default(),
            quota: store::Quota { tasks: Some(10_000), bytes: Some(10 << 30) },
            max_streams: Some(1000),
            bytes_in_flight: Some(64 << 20),
            relay: None,
            push: None,
            retention: RetentionRules::default(),
            delegation: DelegationLimits::default(),
            chat_wait: Duration::from_secs(30),
            remotes: None,
            maker: None,
        }
    }
}

/// The operations. Cheap to clone.
#[derive(Clone)]
pub struct Exchange {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    /// This instance, as a holder of leases.
    pub(crate) holder: store::Holder,
    pub(crate) agents: Agents,
    pub(crate) options: Options,
    pub(crate) workers: worker::Workers,
    pub(crate) streams: streams::Streams,
    /// Calls of the queue that wait.
    pub(crate) long_polls: streams::Streams,
    pub(crate) flight: Flight,
    pub(crate) turn_memory: turn_memory::TurnMemory,
    /// Whether there is more than one tenant.
    pub(crate) has_tenants: AtomicBool,
    pub(crate) page_key: page_token::Key,
    /// The installation's name in chains of delegations.
    installation: String,
    pub(crate) push: Option<push::Push>,
    pub(crate) desk: queue::Desk,
    pub(crate) wakes: wake::Wakes,
    pub(crate) names: errand::Names,
    pub(crate) own: own::Seen,
    /// A newer program has changed the journal's schema in a way that this one does not know.
    pub(crate) outdated: AtomicBool,
    /// An instance of an older version may take over turns: nothing is written that it could not read. So it is until the store
    /// was asked.
    pub(crate) has_older_instances: Arc<AtomicBool>,
    /// No new work; streams end.
    pub(crate) draining: CancellationToken,
    pub(crate) tracker: TaskTracker,
}

impl Inner {
    /// The part of the store that has the tasks.
    pub(crate) fn journal(&self) -> Arc<dyn Journal> {
        self.store.clone()
    }

    /// Follows a task from after `after` on.
    pub(crate) fn cursor(&self, tenant: TenantId, task: TaskId, after: u64) -> Cursor {
        Cursor::new(self.journal(), self.flight.clone(), tenant, task, after)
    }

    /// What an agent may hand on of a task that came from there.
    pub(crate) fn ledger(&self, agent: &store::AgentId, origin: &Origin) -> Ledger {
        Ledger::new(self.options.delegation, self.name_of(agent.as_str()), origin.delegation.clone())
    }

    /// The name of an agent of this installation in chains of delegations.
    pub(crate) fn name_of(&self, agent: &str) -> String {
        format!("{}/{agent}", self.installation)
    }

    /// What the id of a message, or a key that was made of it, says about how far the work was handed on.
    pub(crate) fn delegation_of(&self, id: &str) -> Option<Delegation> {
        let own = || self.agents.all().into_iter().map(|entry| self.name_of(entry.profile.id.as_str()));
        Delegation::of_message(id, own)
    }
}

impl Exchange {
    /// Starts the workers over a store and a set of agents.
    pub async fn start(store: Arc<dyn Store>, agents: Agents, options: Options) -> Result<Self, push::KeyError> {
        let page_key = page_token::Key::load(store.as_ref()).await?;
        let installation = installation(store.as_ref()).await?;
        let push = match &options.push {
            Some(options) => Some(push::Push::load(store.as_ref(), options.clone()).await?),
            None => None,
        };
        let inner = Arc::new(Inner {
            workers: worker::Workers::default(),
            streams: streams::Streams::new(options.max_streams),
            long_polls: streams::Streams::new(options.max_streams),
            flight: Flight::new(options.bytes_in_flight),
            turn_memory: turn_memory::TurnMemory::new(options.bytes_in_flight),
            has_tenants: AtomicBool::new(false),
            outdated: AtomicBool::new(false),
            has_older_instances: Arc::new(AtomicBool::new(true)),
            draining: CancellationToken::new(),
            tracker: TaskTracker::new(),
            holder: store.instance().into(),
            store,
            agents,
            options,
            page_key,
            installation,
            push,
            desk: queue::Desk::default(),
            wakes: wake::Wakes::default(),
            names: errand::Names::default(),
            own: own::Seen::default(),
        });
        // Before anything runs: what is due must not meet an agent that is only not there yet.
        own::load(&inner).await?;
        scheduler::start(&inner);
        push::start(&inner);
        queue::start(&inner);
        retention::start(&inner);
        aftermath::start(&inner);
        own::start(&inner);
        Ok(Self { inner })
    }

    /// The agents, to read and to change.
    pub fn agents(&self) -> &Agents {
        &self.inner.agents
    }

    /// The remotes that are known.
    pub fn remotes(&self) -> Option<&Arc<dyn remotes::Remotes>> {
        self.inner.options.remotes.as_ref().map(|known| &known.0)
    }

    /// The store, for what is not an operation of the protocol.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// The bounds of what callers send.
    pub fn limits(&self) -> &a2a::Limits {
        &self.inner.options.limits
    }

    /// What of requests and answers is in memory.
    pub fn flight(&self) -> &Flight {
        &self.inner.flight
    }

    /// Set when the exchange takes no more work: streams end, readiness is gone.
    pub fn draining(&self) -> &CancellationToken {
        &self.inner.draining
    }

    /// Whether a newer program has changed the journal's schema, so that this one takes no more work.
    pub fn is_outdated(&self) -> bool {
        self.inner.outdated.load(Relaxed)
    }

    /// Takes no more work, lets running turns finish until `grace` is over and gives back the rest, as their agents'
    /// policies say. Afterwards nothing of the exchange runs any more.
    pub async fn shut_down(&self, grace: Duration) {
        worker::shut_down(&self.inner, grace).await;
    }
}

/// A name that no other installation has, made by the first instance that asks.
async fn installation(store: &dyn Store) -> store::Result<String> {
    let fresh = uuid::Uuid::new_v4().simple().to_string();
    let stored = store.setting("installation-id", fresh.into_bytes()).await?;
    String::from_utf8(stored).map_err(|_| store::Error::Damaged("the installation's id is no text".into()))
}
