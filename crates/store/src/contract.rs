//! The contract: what every store does, by who uses it.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::{
    Accept, Accepted, AdminToken, AgentId, AgentQueue, Append, Appended, AuditEntry, Bearer, CancelMark, Change,
    Changed, Claim, Claimed, Deleted, Due, Error, Event, FeedLimit, FeedPage, Filter, Holder, Hub, InstanceId, Lease,
    LeaseTime, LeasedTurn, Letters, Most, NewAdminToken, NewPush, NewToken, OwedCancel, Page, Position, PruneStep,
    Pruned, PushClaim, PushConfig, PushFilter, PushLease, QueueEntry, Removal, Replay, Result, Settlement, Snapshot,
    Stats, StoredAgent, StoredCard, Tailed, TaskHead, TaskId, Tenant, TenantId, Term, Token, Usage, View, Wish,
};

/// Who did what nobody asked for, in the audit log.
const SYSTEM: &str = "system";

/// All of it: the journal and everything that lives beside it.
///
/// What every implementation promises:
/// - **Durable first.** A call that returns `Ok` is on disk. What a [`Hub`] publishes is on disk.
/// - **Gapless.** The events of a task are numbered 1, 2, 3, …; one call's events are adjacent. What was pruned of a log was its begin.
/// - **One terminal event.** After a terminal state nothing is appended to a task, ever.
/// - **Fenced.** A write under a lease whose generation is no longer current changes nothing and is
///   [`Error::LeaseLost`].
/// - **Scoped.** A task of another tenant is [`Error::NotFound`], as is one that never existed.
/// - **All or nothing.** A call that returns `Err` has changed nothing.
pub trait Store: Journal + Queue + Outbox + Retention + Registry + Installation {}

impl<T: Journal + Queue + Outbox + Retention + Registry + Installation> Store for T {}

/// Tasks: what callers, workers and readers do with them.
#[async_trait]
pub trait Journal: Send + Sync + 'static {
    /// Accepts a message: a new task or the continuation of one, with its idempotency record, its
    /// first events and, when asked for and possible, a lease, in one transaction.
    ///
    /// Races it names: [`Error::NotFound`] (continuation of nothing), [`Error::Terminal`] (it ended
    /// before this message came), [`Error::IdempotencyConflict`] (same key, other content),
    /// [`Error::LeaseLost`] (the turn that hands it on is over), [`Error::InboxFull`], [`Error::TooManyTasks`] and [`Error::TooMuchStored`] (the quota). A repeated key with the same content is `Ok` with `duplicate` set, whatever
    /// the task's state is by now, and nothing is written.
    async fn accept(&self, tenant: TenantId, accept: Accept) -> Result<Accepted>;

    /// Appends what a turn has produced and, when the turn is over, its end.
    ///
    /// The machine has the last word on the end: with a cancel mark every end becomes CANCELED; with a
    /// waiting message an end that is not FAILED or REJECTED becomes WORKING, the lease is kept and the
    /// next turn is returned. What a turn cannot say is [`Error::Illegal`].
    async fn append(&self, lease: &Lease, append: Append) -> Result<Appended>;

    /// Leases turns that are due and that the claimer may have, see [`lease`]: at most what there is room for of each
    /// agent, shared among the tenants whose work is due, oldest first of each tenant. Of each agent they come in the order
    /// in which tenants were served: the last one's tenant is what [`Room::after`] wants to know. Each is journaled as
    /// started; the attempt is counted. A due task that cannot be run (its message is not readable) fails; a row that cannot be read steps aside.
    /// Of a queue a claim takes no more bytes of messages than [`Room::most_bytes`]; [`Error::Heavy`] when the first entry alone has more,
    /// and then nothing is taken.
    async fn claim(&self, claim: Claim) -> Result<Vec<LeasedTurn>>;

    /// When the next turn of these agents is, or was, due, and what time it is. Costs no commit.
    async fn next_due(&self, agents: &[AgentId]) -> Result<Due>;

    /// Prolongs leases by `lasts` from now on; returns those that are lost, so that their turns can stop.
    async fn renew(&self, leases: &[Lease], lasts: Duration) -> Result<Vec<Lease>>;

    /// Makes the leases of instances that are proven dead due at once. Returns how many there were.
    async fn reclaim_dead(&self) -> Result<usize>;

    /// Writes the durable cancel mark, the moment that decides. A task that nobody runs ends as CANCELED
    /// in the same transaction.
    async fn mark_cancel(&self, tenant: TenantId, task: TaskId) -> Result<CancelMark>;

    /// Ends a marked task as CANCELED although its turn has not answered; its lease is void after that.
    /// `Ok` also when it has ended as CANCELED in the meantime; [`Error::Terminal`] when it has ended
    /// otherwise, [`Error::Illegal`] when it carries no mark.
    async fn force_cancel(&self, tenant: TenantId, task: TaskId) -> Result<()>;

    /// Which of the tasks that these holders have carry a cancel mark.
    async fn marked(&self, holders: &[Holder]) -> Result<Vec<TaskId>>;

    /// Up to `limit` tasks of these agents that have ended as CANCELED, FAILED or REJECTED and whose agents have not ended yet what others
    /// do for them: those with [`tells_cancel`](crate::Target::New::tells_cancel) that had kept a state in any attempt, and COMPLETED ones
    /// whose last state [owes that](crate::Draft::kept_owing). The oldest are the first. That is owed from the transaction that ends the task.
    async fn owed_cancels(&self, agents: &[AgentId], limit: usize) -> Result<Vec<OwedCancel>>;

    /// Says that what others did for a task that has ended was ended too, or never can be. Nothing happens if the cancel was owed once more
    /// since it was read ([`OwedCancel::generation`]).
    async fn settle_cancel(&self, tenant: TenantId, task: TaskId, generation: u64) -> Result<()>;

    /// Says that others may have begun work for a task after it had ended otherwise than as COMPLETED: its cancel is owed once more. Nothing
    /// happens to a task that has not ended so.
    async fn owe_cancel(&self, tenant: TenantId, task: TaskId) -> Result<()>;

    /// Shows a task whose first output was held back for a direct reply that did not come in time.
    /// [`Error::Terminal`] when the reply came after all; the task stays hidden.
    async fn reveal(&self, tenant: TenantId, task: TaskId) -> Result<()>;

    /// Lets a turn that is parked go on now; one that runs and parks itself next goes on at once. Says whether there was
    /// such a turn.
    async fn wake(&self, tenant: TenantId, task: TaskId) -> Result<bool>;

    /// Visible tasks of the tenant whose origin names this task as their parent, oldest first and at most `limit`. Nothing
    /// indexes origins: only the next [`CHILDREN_SCANNED`] tasks that began after it are searched.
    async fn children(&self, tenant: TenantId, task: TaskId, limit: usize) -> Result<Vec<TaskId>>;

    /// What is needed to decide about a task, without its content. Hidden tasks are found.
    async fn head(&self, tenant: TenantId, task: TaskId) -> Result<TaskHead>;

    /// The task as of one sequence number. Hidden tasks are not found. [`Error::Heavy`] when it has more bytes than the view takes.
    async fn task(&self, tenant: TenantId, task: TaskId, view: View) -> Result<Snapshot>;

    /// One page of the tenant's visible tasks, newest status first, with the exact total of the filter. It is shorter than asked for where
    /// there would be more bytes than the view takes; [`Error::Heavy`] when the first task alone has more.
    async fn list(&self, tenant: TenantId, filter: Filter) -> Result<Page>;

    /// Up to `limit` events after `after`, in order. Hidden tasks are found (their sender follows them). [`Error::Pruned`] when the
    /// first of them is gone: whoever reads a log misses none without being told.
    async fn events(&self, tenant: TenantId, task: TaskId, after: u64, limit: usize) -> Result<Vec<Event>> {
        let (events, _) = self.read(tenant, task, after, Most { events: limit, bytes: u64::MAX }).await?;
        Ok(events)
    }

    /// The same, and no more bytes of them than that; and whether there are more. [`Error::Heavy`] when the first alone has more bytes:
    /// whoever then asks for as many gets it.
    async fn read(&self, tenant: TenantId, task: TaskId, after: u64, most: Most) -> Result<(Vec<Event>, bool)>;

    /// Up to `limit` events of all tasks and tenants after a place in the log, and the place after them. Whoever
    /// goes on from there misses none and meets none twice.
    ///
    /// Two events of one task may come in another order than their numbers when two instances wrote them at about
    /// the same time. Events may come late, never out of the cursor's reach: fewer than `limit` does not say that there
    /// are no more, only that no more can be given yet.
    async fn tail(&self, after: &Position, limit: usize) -> Result<(Vec<Tailed>, Position)>;

    /// The events of one tenant after a place in the log of all tasks, in the order of the log: those that its feed
    /// [has](crate::EventKind::is_fed), of visible tasks of these agents, of all agents when none is named.
    ///
    /// The log has no order by tenant, so a read looks at a bounded number of places and may come back without an event
    /// and with a place further on. [`Error::Heavy`] when the next event has more bytes than may be read.
    async fn feed(&self, tenant: TenantId, agents: &[AgentId], after: &Position, limit: FeedLimit) -> Result<FeedPage>;

    /// A place in the log behind everything that can be given now.
    async fn log_end(&self) -> Result<Position>;

    /// The task's messages, oldest first: what its current turn and those before it said and were told. A reply that an
    /// earlier turn gave in artifacts alone is there as a message, its text.
    /// [`Error::Heavy`] when they have more than `most` bytes.
    async fn history(&self, tenant: TenantId, task: TaskId, most: u64) -> Result<Vec<a2a::Message>>;

    /// The message that a turn works on, while it does.
    async fn turn_message(&self, tenant: TenantId, task: TaskId, turn: u32) -> Result<a2a::Message>;

    /// The last `limit` messages of other, older tasks of the same agent and context, oldest first,
    /// the replies that ended them included, direct ones and those in artifacts too. [`Error::Heavy`] as in [`history`](Self::history).
    async fn context_history(
        &self,
        tenant: TenantId,
        agent: &AgentId,
        context: &str,
        before: TaskId,
        limit: usize,
        most: u64,
    ) -> Result<Vec<a2a::Message>>;

    /// The newest other task of the same agent and context that has kept its state, and the event with which it last did, if that is
    /// still there.
    async fn context_state(
        &self,
        tenant: TenantId,
        agent: &AgentId,
        context: &str,
        before: TaskId,
    ) -> Result<Option<(TaskId, Event)>>;

    /// Where committed events are announced.
    fn hub(&self) -> &Hub;
}

/// Tasks that wait for whoever asks for them. They are claimed by [`Journal::claim`] with [`Line::Queue`](crate::Line::Queue); see
/// [`crate::lease`] for what their leases mean.
#[async_trait]
pub trait Queue: Send + Sync + 'static {
    /// Leases one entry by its id, whatever stands before it and although its time has not come. [`Error::NotWaiting`] when it cannot be had,
    /// [`Error::Terminal`] when it has ended. `resumes` says whether an attempt goes on where the one before last kept its state.
    async fn claim_task(&self, tenant: TenantId, task: TaskId, term: Term, resumes: bool) -> Result<LeasedTurn>;
    /// Up to `limit` leases of entries that have run out after that moment, of one agent or of all, and the time by which they have.
    async fn lapsed(&self, agent: Option<AgentId>, since: LeaseTime, limit: usize) -> Result<(LeaseTime, Vec<Lease>)>;
    /// Prolongs by `step` the leases of entries that have run out only because the clock stepped forward by that much. A lease is
    /// prolonged like this once, until its holder is heard of. Returns how many were.
    async fn prolong_lapsed(&self, step: Duration) -> Result<usize>;
    /// What time it is, and when the next entry for each of these wishes is, or was, due, or the lease of one runs out.
    async fn next_queued(&self, wishes: &[Wish]) -> Result<(LeaseTime, Vec<Option<LeaseTime>>)>;
    /// A task as the queue sees it, any that callers see. Without a tenant whoever's it is. None of its messages is read.
    async fn entry(&self, tenant: Option<TenantId>, task: TaskId) -> Result<QueueEntry>;
    /// The message that began a task, as JSON; empty when it is gone. [`QueueEntry::first_bytes`] is its length.
    async fn first_message(&self, tenant: TenantId, task: TaskId) -> Result<Bytes>;
    /// A tenant's dead letters, the oldest first. None of their messages is read.
    async fn dead_letters(&self, tenant: TenantId, letters: Letters) -> Result<Vec<QueueEntry>>;
    /// How many tasks of each agent stand where, and since when.
    async fn agent_queues(&self, tenant: TenantId) -> Result<Vec<AgentQueue>>;
}

/// Notifications: who is to be told of a task, and how far that has come. See [`crate::push`] for what all of it promises.
#[async_trait]
pub trait Outbox: Send + Sync + 'static {
    /// Makes a configuration of a task, or replaces the one with its id, which goes on where that one stood, dead letters included, and
    /// tells again if that one had stopped. One whose secrets alone are new disturbs nobody; otherwise it is another generation, and a lease keeps its time.
    /// [`Error::NotFound`] for a task that callers do not see, [`Error::TooManyPushes`] when it has [`MOST_CONFIGS`](crate::MOST_CONFIGS).
    async fn put_push(&self, tenant: TenantId, task: TaskId, new: NewPush) -> Result<()>;
    /// Removes a configuration; says whether there was one. Whoever is telling it finds its lease lost.
    async fn remove_push(&self, tenant: TenantId, task: TaskId, id: &str) -> Result<bool>;
    /// A configuration of a task that callers see.
    async fn push(&self, tenant: TenantId, task: TaskId, id: &str) -> Result<Option<PushConfig>>;
    /// A tenant's configurations of tasks that callers see, by task and id.
    async fn pushes(&self, tenant: TenantId, filter: PushFilter) -> Result<Vec<PushConfig>>;

    /// Leases configurations that are due or whose lease has run out, the claimer's own included, oldest first of each receiver, shared among
    /// tenants and receivers as the claim says. It visits only so many pairs of them: who wants all goes round.
    async fn claim_pushes(&self, claim: PushClaim) -> Result<Claimed>;
    /// When the next configuration is due, or was, or when the next lease of one runs out, and what time it is.
    async fn next_push(&self) -> Result<(LeaseTime, Option<LeaseTime>)>;
    /// Writes how far a holder has come; [`Error::LeaseLost`] when somebody else holds it or it was changed. One that comes late is as good.
    async fn settle_push(&self, lease: &PushLease, settlement: Settlement) -> Result<()>;
    /// Has dead letters sent again, a configuration that had stopped go on, and one that waits for another attempt be tried now; whoever tells it has its time. Says how many letters;
    /// [`Error::NotFound`] when there is no such configuration.
    async fn replay_pushes(&self, tenant: TenantId, task: TaskId, id: &str, which: Replay) -> Result<usize>;
}

/// What goes when its time has come, or at once. See [`crate::retention`] for what that is and what stays.
#[async_trait]
pub trait Retention: Send + Sync + 'static {
    /// One small step: removes some of what ended long enough ago and may go, in one short transaction. Repeated, it finds what is left.
    async fn prune(&self, step: PruneStep) -> Result<Pruned>;

    /// Removes a task, or some tasks of a context or a tenant, whatever they owe, and writes down who did it in the same transaction. One call
    /// removes at most `size` times 50 tasks, where `size` is as in [`PruneStep::size`]; some may be left ([`Deleted::more`]).
    ///
    /// [`Error::NotFound`] for a task that callers do not see and for a context or a tenant without tasks, [`Error::NotEnded`] when the task, any
    /// of the context, or one of those of the tenant that would be removed has not ended.
    async fn delete(&self, tenant: TenantId, actor: &str, removal: Removal, size: u64) -> Result<Deleted>;

    /// Whether a task that would be removed owes a cancel to others, see [`Journal::owed_cancels`].
    async fn owes_cancels(&self, tenant: TenantId, removal: Removal) -> Result<bool>;

    /// Up to `limit` tasks of the tenant that have not ended, hidden ones included.
    async fn unfinished_of(&self, tenant: TenantId, limit: usize) -> Result<Vec<TaskId>>;

    /// Up to `limit` tasks of a context that have not ended, hidden ones included.
    async fn unfinished(&self, tenant: TenantId, context: &str, limit: usize) -> Result<Vec<TaskId>>;
}

/// Who may call: tenants, their tokens, what they use, and who has changed any of that.
#[async_trait]
pub trait Registry: Send + Sync + 'static {
    /// Creates a tenant. [`Error::Exists`] when the name is taken. In the audit log the system did it.
    async fn create_tenant(&self, name: &str) -> Result<Tenant> {
        let create = Change::CreateTenant { name: name.to_owned(), hash: None };
        Ok(self.administer(SYSTEM, create).await?.tenant)
    }
    /// All tenants, by name.
    async fn tenants(&self) -> Result<Vec<Tenant>>;
    /// Adds a token (its hash; the token itself is never stored). [`Error::Exists`] for a known hash. In the
    /// audit log the system did it.
    async fn add_token(&self, token: NewToken) -> Result<Token> {
        self.administer(SYSTEM, Change::AddToken(token)).await?.token.ok_or(Error::NotFound)
    }
    /// The token with this hash, if it is neither revoked nor expired, and its tenant, which may be disabled: whoever asks looks. It has a reader of its own, as the next two
    /// have: whatever else is read, and however slowly, does not keep anybody from being recognised.
    async fn token(&self, hash: &[u8; 32]) -> Result<Option<Bearer>>;
    /// Those of these tokens that are live, of tenants that are enabled.
    async fn live_tokens(&self, tokens: &[i64]) -> Result<Vec<i64>>;
    /// A number that grows with every change of who may call: of tenants, tokens, tokens of administrators and settings.
    async fn credentials_revision(&self) -> Result<i64>;
    /// A tenant's tokens, oldest first, those that are revoked or expired included.
    async fn tokens(&self, tenant: TenantId) -> Result<Vec<Token>>;
    /// Notes that a token was used just now. Not audited; a token that is gone is no error.
    async fn touch_token(&self, token: i64) -> Result<()>;

    /// Changes tenants and tokens, and writes down who did it in the same transaction.
    ///
    /// [`Error::NotFound`] for a tenant that does not exist or a token that is not that tenant's,
    /// [`Error::Exists`] for a name or hash that is taken. A change to what is so already is `Ok`, and
    /// neither changes nor audits anything: a token that was revoked stays revoked since then.
    async fn administer(&self, actor: &str, change: Change) -> Result<Changed>;

    /// The tokens of administrators, oldest first, those that are revoked or expired included. The one that is a setting is not among
    /// them.
    async fn admin_tokens(&self) -> Result<Vec<AdminToken>>;
    /// Adds a token of an administrator, and writes down who did it. [`Error::Exists`] when its name or its hash is taken.
    async fn add_admin_token(&self, actor: &str, token: NewAdminToken) -> Result<AdminToken>;
    /// Ends a token of an administrator, and writes down who did it; one that was ended stays so since then. [`Error::NotFound`] when there is
    /// none of that number.
    async fn revoke_admin_token(&self, actor: &str, token: i64) -> Result<AdminToken>;

    /// Up to `limit` entries of the audit log, newest first, those before the entry `before` if that is given.
    async fn audit(&self, before: Option<i64>, limit: usize) -> Result<Vec<AuditEntry>>;

    /// Keeps a card of an agent, in the place of the one that was there, and says whether it is new.
    /// [`Error::TooManyCards`] for a new one when the tenant has `most` already, [`Error::NotFound`] when there is no such
    /// tenant.
    async fn put_card(&self, tenant: TenantId, agent: &AgentId, card: Vec<u8>, most: u64)
    -> Result<(StoredCard, bool)>;
    /// A tenant's cards, by agent. [`Error::Heavy`] when they are more than so many bytes.
    async fn cards(&self, tenant: TenantId, most_bytes: u64) -> Result<Vec<StoredCard>>;
    /// A tenant's card of an agent.
    async fn card(&self, tenant: TenantId, agent: &AgentId) -> Result<Option<StoredCard>>;
    /// Forgets a card; says whether there was one.
    async fn remove_card(&self, tenant: TenantId, agent: &AgentId) -> Result<bool>;

    /// Keeps a new agent of a tenant, and what defines it byte for byte. [`Error::Exists`] when the tenant has one of that id,
    /// [`Error::TooManyAgents`] when it has `most` already, [`Error::NotFound`] when there is no such tenant.
    async fn create_agent(&self, tenant: TenantId, id: &AgentId, definition: Vec<u8>, most: u64)
    -> Result<StoredAgent>;
    /// Replaces what defines an agent of a tenant, wholly. Its time grows, whatever the clock says. [`Error::NotFound`] when the
    /// tenant has none of that id.
    async fn replace_agent(&self, tenant: TenantId, id: &AgentId, definition: Vec<u8>) -> Result<StoredAgent>;
    /// Forgets an agent of a tenant; says whether there was one.
    async fn remove_agent(&self, tenant: TenantId, id: &AgentId) -> Result<bool>;
    /// A tenant's agents, by id. [`Error::Heavy`] when their definitions are more than so many bytes.
    async fn own_agents(&self, tenant: TenantId, most_bytes: u64) -> Result<Vec<StoredAgent>>;
    /// A tenant's agent of that id.
    async fn own_agent(&self, tenant: TenantId, id: &AgentId) -> Result<Option<StoredAgent>>;
    /// The agents of all tenants, and the [revision](Registry::agents_revision) that they are of.
    async fn all_agents(&self) -> Result<(i64, Vec<StoredAgent>)>;
    /// A number that grows by one with every agent that is created, replaced or removed, whosever it is. It costs next to nothing to
    /// ask for.
    async fn agents_revision(&self) -> Result<i64>;

    /// What a tenant uses now.
    async fn usage(&self, tenant: TenantId) -> Result<Usage>;
}

/// What all instances share, and this one's part in it.
#[async_trait]
pub trait Installation: Send + Sync + 'static {
    /// A value of the installation, created by the first who asks: all instances get the same one.
    async fn setting(&self, name: &str, create: Vec<u8>) -> Result<Vec<u8>>;

    /// A value of the installation, if there is one.
    async fn find_setting(&self, name: &str) -> Result<Option<Vec<u8>>>;

    /// Replaces a value of the installation. The audit log tells its name and who did it.
    async fn set_setting(&self, actor: &str, name: &str, value: Vec<u8>) -> Result<()>;

    /// Replaces a value of the installation if it is still `was`, and says whether it did: of two who read the same value and
    /// change it, one has to look again. The audit log tells its name and who did it.
    async fn replace_setting(&self, actor: &str, name: &str, was: Vec<u8>, value: Vec<u8>) -> Result<bool>;

    /// Proves that the journal can be written (for readiness).
    async fn ping(&self) -> Result<()>;

    /// Whether this program can go on with the schema that the journal has now: [`Error::FromTheFuture`] when a newer program
    /// has changed it in a way that this one does not know.
    async fn check_schema(&self) -> Result<()>;

    /// Whether an instance that is registered is of an older version, by the schema that it knows. Until it has gone, what is
    /// written has to be such that it can be read by it. None starts any more: an older program refuses a newer schema.
    async fn has_older_instances(&self) -> Result<bool>;

    /// Commits and events since start, for tests and `sb bench`.
    fn stats(&self) -> Stats;

    /// This process, which may hold leases until the store is closed.
    fn instance(&self) -> InstanceId;

    /// Commits what waits, signs off and gives the journal back. Leases that are still held are void after that, as if this
    /// process had ended. Any other call is [`Error::Unavailable`] from here on.
    async fn close(&self);
}
