//! What goes: the loop that removes what ended long enough ago, and the operations that remove at once. What may go is the store's to say
//! ([`store::retention`]); here stands how long it is kept, and at what pace it goes.
//!
//! **The pace.** A step of the store is short, and after each there is a pause of ten times as long as the store was busy with it: whoever
//! writes has the journal for itself nine tenths of the time. When that falls behind what comes in, the pauses get shorter, step by step,
//! but never shorter than the step before: half of the time is for others, and none of them waits for more than one step. At the same time
//! steps get larger, up to four times: under load each of them waits for the writer, which takes as long for a large one. Every instance
//! does this; those that share a database find the less to do.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use a2a::{GetTaskRequest, ListTasksRequest, validate};
use store::{
    AgentId, Deleted, LARGEST_STEP, Prune, PruneStep, PruneWalk, Removal, Scope, TaskId, Tenant, TenantId, Whose,
};
use tokio::time::Instant;

use crate::{Call, Error, Exchange, Inner, aftermath, convert, intake::answered};

/// A day.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The first round comes soon after the start, but not into it.
const FIRST: Duration = Duration::from_secs(10);

/// How often walks begin anew, so that what was passed over is looked at again.
const ANEW: Duration = DAY;

/// How much longer than a step the pause after it is, how many steps later it is shorter by one of these and the steps are larger, and how
/// long it is at least.
const PAUSES: u32 = 10;
const STEPS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(2);

/// How many tasks of a context are canceled before it is looked at again, and how often that is.
const CANCELS: usize = 100;
const MOST_ROUNDS: usize = 100;

/// Maximum time for which a deletion waits until others are told of the cancels that the tasks owe.
pub(crate) const TELLING: Duration = Duration::from_secs(10);

/// How long something is kept after its task has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Keep {
    /// So long.
    For(Duration),
    /// Until somebody deletes it.
    Forever,
}

/// How long what is kept, where that is said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct RetentionRule {
    /// Tasks.
    pub tasks: Option<Keep>,
    /// Their logs.
    pub events: Option<Keep>,
}

/// How long tasks and their logs are kept. What is said of a tenant counts before what is said of an agent, and that before the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionRules {
    /// Tasks.
    pub tasks: Keep,
    /// Their logs.
    pub events: Keep,
    /// Of some agents.
    pub agents: BTreeMap<AgentId, RetentionRule>,
    /// Of some tenants, by name.
    pub tenants: BTreeMap<String, RetentionRule>,
    /// How often is looked for what may go.
    pub every: Duration,
}

impl Default for RetentionRules {
    fn default() -> Self {
        Self {
            tasks: Keep::For(90 * DAY),
            events: Keep::For(7 * DAY),
            agents: BTreeMap::new(),
            tenants: BTreeMap::new(),
            every: Duration::from_secs(600),
        }
    }
}

impl RetentionRules {
    /// Rules by which nothing ever goes.
    pub fn forever() -> Self {
        Self { tasks: Keep::Forever, events: Keep::Forever, ..Self::default() }
    }

    /// Whether anything may ever go.
    fn are_any(&self) -> bool {
        let rules = self.agents.values().chain(self.tenants.values());
        let said = rules.flat_map(|rule| [rule.tasks, rule.events]).flatten();
        [self.tasks, self.events].into_iter().chain(said).any(|keep| keep != Keep::Forever)
    }

    fn keep(&self, what: Prune) -> Keep {
        match what {
            Prune::Tasks => self.tasks,
            Prune::Events => self.events,
        }
    }

    /// How long what of a tenant's is kept, by agents: each of them is in one of the groups.
    fn of(&self, tenant: &str, what: Prune) -> Vec<(Whose, Keep)> {
        if let Some(keep) = self.tenants.get(tenant).and_then(|rule| rule.keep(what)) {
            return vec![(Whose::AllBut(Vec::new()), keep)];
        }
        let said = |(agent, rule): (&AgentId, &RetentionRule)| Some((agent.clone(), rule.keep(what)?));
        let agents: Vec<(AgentId, Keep)> = self.agents.iter().filter_map(said).collect();
        let others = Whose::AllBut(agents.iter().map(|(agent, _)| agent.clone()).collect());
        let mut groups: Vec<(Whose, Keep)> =
            agents.into_iter().map(|(agent, keep)| (Whose::Agent(agent), keep)).collect();
        groups.push((others, self.keep(what)));
        groups
    }
}

impl RetentionRule {
    fn keep(self, what: Prune) -> Option<Keep> {
        match what {
            Prune::Tasks => self.tasks,
            Prune::Events => self.events,
        }
    }
}

/// What a round has removed.
#[derive(Debug, Default)]
struct Round {
    tasks: u64,
    events: u64,
    bytes: u64,
}

/// Where the walks stand: a tenant's, of some agents, by what is removed.
type Walks = HashMap<(TenantId, Prune, Whose), PruneWalk>;

/// Starts the loop, if anything may ever go.
pub(crate) fn start(inner: &Arc<Inner>) {
    if inner.options.retention.are_any() {
        inner.workers.loops.spawn(remove_what_is_old(Arc::clone(inner)));
    }
}

async fn remove_what_is_old(inner: Arc<Inner>) {
    let every = inner.options.retention.every;
    let mut wait = every.min(FIRST);
    let (mut walks, mut begun) = (Walks::new(), Instant::now());
    loop {
        tokio::select! {
            biased;
            () = inner.draining.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        wait = every;
        if begun.elapsed() >= ANEW {
            (walks, begun) = (Walks::new(), Instant::now());
        }
        let (started, mut round) = (Instant::now(), Round::default());
        let outcome = tokio::select! {
            biased;
            // A step that is under way is one transaction: it is made or it is not.
            () = inner.draining.cancelled() => return,
            outcome = go_round(&inner, &mut walks, &mut round) => outcome,
        };
        if let Err(error) = outcome {
            tracing::warn!(%error, "what is old cannot be removed");
        }
        let Round { tasks, events, bytes } = round;
        if tasks > 0 || events > 0 {
            let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            tracing::info!(
                tasks,
                events,
                bytes,
                duration_ms,
                "removed {tasks} tasks and {events} events that were old"
            );
        }
    }
}

/// Removes everything that may go now. What cannot be removed of one tenant keeps nothing of the others.
async fn go_round(inner: &Inner, walks: &mut Walks, round: &mut Round) -> store::Result<()> {
    for tenant in inner.store.tenants().await? {
        match go_over(inner, &tenant, walks, round).await {
            Err(error) if error.is_permanent() => {
                tracing::error!(tenant.id = tenant.id.0, %error, "what is old of a tenant cannot be removed");
            }
            gone => gone?,
        }
    }
    Ok(())
}

/// The same of one tenant. Tasks come first: the log of one that goes need not be looked at.
async fn go_over(inner: &Inner, tenant: &Tenant, walks: &mut Walks, round: &mut Round) -> store::Result<()> {
    for what in [Prune::Tasks, Prune::Events] {
        for (whose, keep) in inner.options.retention.of(&tenant.name, what) {
            let Keep::For(older_than) = keep else { continue };
            let walk = walks.entry((tenant.id, what, whose.clone())).or_default();
            for steps in 0_u32.. {
                let (tenant, whose) = (tenant.id, whose.clone());
                let step = PruneStep { tenant, whose, what, older_than, walk: walk.clone(), size: size(steps) };
                let pruned = inner.store.prune(step).await?;
                *walk = pruned.walk;
                round.tasks += pruned.tasks;
                round.events += pruned.events;
                round.bytes += pruned.bytes;
                if !pruned.more {
                    break;
                }
                tokio::time::sleep(pause(pruned.took, steps)).await;
            }
        }
    }
    Ok(())
}

/// The pause after a step that took so long, which so many steps of the same walk went before.
pub(crate) fn pause(step: Duration, steps: u32) -> Duration {
    (step * PAUSES.saturating_sub(steps / STEPS).max(1)).max(PAUSE)
}

/// The size of a step that so many of the same walk went before.
pub(crate) fn size(steps: u32) -> u64 {
    (1 + u64::from(steps / STEPS)).min(LARGEST_STEP)
}

impl Exchange {
    /// Removes a task that has ended, with all that is its own; one that has not is canceled first if the caller says so.
    pub async fn delete_task(&self, call: &Call, id: &str, cancel: bool) -> Result<Deleted, Error> {
        call.caller.needs(Scope::Cancel)?;
        let asked = GetTaskRequest { id: id.to_owned(), ..GetTaskRequest::default() };
        validate::validate_get(&asked, &self.inner.options.limits)?;
        let id = convert::task_id(id)?;
        if !call.caller.bound_to().is_empty() {
            self.head(call, id).await?;
        }
        let until = Instant::now() + TELLING;
        let deleted = match self.delete(call, Removal::Task(id), until).await {
            Err(store::Error::NotEnded(_)) if cancel => {
                self.end(call, id).await?;
                self.delete(call, Removal::Task(id), until).await
            }
            deleted => deleted,
        };
        deleted.map_err(|error| Error::of_task(error, id))
    }

    /// Removes all tasks of a context, whoever their agents are. If one has not ended, nothing is removed, unless the caller says that such are to be
    /// canceled first.
    pub async fn delete_context(&self, call: &Call, context: &str, cancel: bool) -> Result<Deleted, Error> {
        call.caller.needs(Scope::Cancel)?;
        // Whether others have tasks in there must not be told by what is refused: it is, whatever is in there.
        if !call.caller.bound_to().is_empty() {
            return Err(Error::Bound);
        }
        let asked = ListTasksRequest { context_id: context.to_owned(), ..ListTasksRequest::default() };
        validate::validate_list(&asked, &self.inner.options.limits)?;
        let not_found = |error| match error {
            store::Error::NotFound => Error::context_not_found(context),
            error => error.into(),
        };
        let (mut all, mut cancels) = (Deleted::default(), 0);
        let until = Instant::now() + TELLING;
        loop {
            match self.delete(call, Removal::Context(context.to_owned()), until).await {
                Ok(deleted) => {
                    all.tasks += deleted.tasks;
                    all.bytes += deleted.bytes;
                    if !deleted.more {
                        return Ok(all);
                    }
                }
                // Somebody else was faster with the rest.
                Err(store::Error::NotFound) if all.tasks > 0 => return Ok(all),
                // Who goes on sending to a context while it is deleted hears that it has not ended.
                Err(store::Error::NotEnded(_)) if cancel && cancels < MOST_ROUNDS => {
                    cancels += 1;
                    for task in self.inner.store.unfinished(call.caller.tenant, context, CANCELS).await? {
                        self.end(call, task).await?;
                    }
                }
                Err(error) => return Err(not_found(error)),
            }
        }
    }

    /// Removes what has ended, once others were told of the cancels that it owes, or at this time. In the audit log the tenant did it.
    async fn delete(&self, call: &Call, removal: Removal, until: Instant) -> store::Result<Deleted> {
        let (store, tenant) = (&self.inner.store, call.caller.tenant);
        aftermath::until_told(&**store, tenant, &removal, until).await?;
        answered(store.delete(tenant, &call.caller.actor(), removal, 1)).await
    }

    /// Cancels a task that is to be removed, be it that callers do not see it yet. One that has ended meanwhile is as good.
    async fn end(&self, call: &Call, id: TaskId) -> Result<(), Error> {
        let (store, tenant) = (&self.inner.store, call.caller.tenant);
        let stopped = async {
            store.reveal(tenant, id).await?;
            let head = store.head(tenant, id).await?;
            self.stop(tenant, id, head.seq).await
        };
        match stopped.await {
            Ok(_) | Err(store::Error::Terminal(_)) => Ok(()),
            Err(error) => Err(Error::of_task(error, id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str) -> AgentId {
        name.parse().unwrap()
    }

    #[test]
    fn a_tenants_rule_counts_before_an_agents_and_that_before_the_rest() {
        let (hour, minute) = (Keep::For(Duration::from_secs(3600)), Keep::For(Duration::from_secs(60)));
        let rules = RetentionRules {
            agents: BTreeMap::from([
                (agent("echo"), RetentionRule { tasks: Some(hour), events: None }),
                (agent("ask"), RetentionRule { tasks: None, events: Some(Keep::Forever) }),
            ]),
            tenants: BTreeMap::from([("acme".to_owned(), RetentionRule { tasks: Some(minute), events: None })]),
            ..RetentionRules::default()
        };
        let all_but = |agents: &[&str]| Whose::AllBut(agents.iter().map(|name| agent(name)).collect());
        assert_eq!(rules.of("acme", Prune::Tasks), [(all_but(&[]), minute)]);
        let events = [(Whose::Agent(agent("ask")), Keep::Forever), (all_but(&["ask"]), Keep::For(7 * DAY))];
        assert_eq!(rules.of("acme", Prune::Events), events, "what it says nothing of is as for others");
        let tasks = [(Whose::Agent(agent("echo")), hour), (all_but(&["echo"]), Keep::For(90 * DAY))];
        assert_eq!(rules.of("other", Prune::Tasks), tasks);
        assert_eq!(rules.of("other", Prune::Events), events);
    }

    #[test]
    fn pauses_get_shorter_when_there_is_much_to_remove_but_never_shorter_than_the_step() {
        let step = Duration::from_millis(3);
        assert_eq!(pause(step, 0), step * 10);
        assert_eq!(pause(step, STEPS), step * 9);
        assert_eq!(pause(step, STEPS * 9), step);
        assert_eq!(pause(step, u32::MAX), step);
        assert_eq!(pause(Duration::ZERO, 0), PAUSE);
    }

    #[test]
    fn a_backlog_shrinks_beside_three_thousand_sends_a_second() {
        // What a step of the usual size removes, its own work for each of them, and its wait for the writer and the commit.
        let (tasks_of_a_step, of_a_task, waits) = (50, Duration::from_micros(60), Duration::from_millis(25));
        let (arrivals, mut backlog) = (3_000.0, 600_000.0);
        let mut steps = 0;
        while backlog > 0.0 {
            let removed = tasks_of_a_step * size(steps);
            let took = of_a_task * u32::try_from(removed).unwrap();
            backlog += arrivals * (waits + took + pause(took, steps)).as_secs_f64() - removed as f64;
            steps += 1;
            assert!(steps < 20_000, "{backlog} are left and do not get fewer");
        }
    }

    #[test]
    fn nothing_is_looked_for_when_nothing_ever_goes() {
        assert!(RetentionRules::default().are_any());
        let mut rules = RetentionRules::forever();
        assert!(!rules.are_any());
        rules.tenants.insert("acme".into(), RetentionRule { events: Some(Keep::For(DAY)), tasks: None });
        assert!(rules.are_any());
    }
}
