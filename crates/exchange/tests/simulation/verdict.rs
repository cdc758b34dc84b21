//! What must hold after a story.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use a2a::{PartContent, Task, TaskState};
use store::{Event, EventKind, Filter, Store, TaskId, View};
use tokio::time::sleep;

use crate::simulation::{
    agents::Run,
    story::Told,
    world::{LEASE, Trouble, World},
};

/// What was found. Nothing is what should be.
pub(crate) type Findings = Vec<String>;

/// Waits until all work is done, and looks at everything.
pub(crate) async fn judge(world: &World, told: &[Told]) -> Findings {
    let mut findings = Findings::new();
    for told in told {
        findings.extend(told.unexpected.iter().map(|what| format!("{}: {what}", told.context)));
    }
    let observer = world.observer().await;
    let mut tasks = BTreeMap::new();
    for (n, tenant) in world.tenants.into_iter().enumerate() {
        for (id, task) in settled(observer.as_ref(), tenant, &mut findings).await {
            let log = observer.events(tenant, id, 0, 100_000).await.expect("the log can be read");
            look_at_log(&task, &log, &mut findings);
            look_at_result(&task, &mut findings);
            tasks.insert(id, (n, task, log));
        }
        let usage = observer.usage(tenant).await.expect("usage can be read");
        let open = tasks.values().filter(|(of, task, _)| *of == n && !task.status.state.is_terminal()).count();
        if usage.tasks != open as u64 {
            findings.push(format!("the usage of tenant {n} says {} open tasks, there are {open}", usage.tasks));
        }
    }
    look_at_callers(told, &tasks, &mut findings);
    look_at_runs(world, &tasks, &mut findings);
    observer.close().await;
    look_at_leftovers(world, &mut findings);
    findings
}

/// All visible tasks of a tenant, when nothing runs any more.
async fn settled(store: &dyn Store, tenant: store::TenantId, findings: &mut Findings) -> Vec<(TaskId, Task)> {
    let filter = Filter {
        agent: None,
        among: Vec::new(),
        context: None,
        state: None,
        since: None,
        after: None,
        limit: 1000,
        view: View::FULL,
    };
    for round in 0.. {
        let page = store.list(tenant, filter.clone()).await.expect("tasks can be listed");
        let rests = |state: TaskState| state.is_terminal() || state == TaskState::InputRequired;
        let running = page.tasks.iter().filter(|task| !rests(task.state)).count();
        if running == 0 || round == 150 {
            if running > 0 {
                let names: Vec<String> =
                    page.tasks.iter().filter(|task| !rests(task.state)).map(|t| t.task.to_string()).collect();
                findings.push(format!("never ended: {}", names.join(", ")));
            }
            return page.tasks.iter().map(|task| (task.task, task.to_task().expect("tasks are readable"))).collect();
        }
        sleep(Duration::from_secs(4)).await;
    }
    Vec::new()
}

/// Numbered without a gap; at most one end, and nothing after it.
fn look_at_log(task: &Task, log: &[Event], findings: &mut Findings) {
    if !log.iter().zip(1..).all(|(event, seq)| event.seq == seq) {
        findings.push(format!("{}: its log has a gap", task.id));
    }
    let is_end = |event: &Event| matches!(event.kind, EventKind::Status { state, .. } if state.is_terminal());
    let ends = log.iter().filter(|event| is_end(event)).count();
    let expected = usize::from(task.status.state.is_terminal());
    if ends != expected || (ends == 1 && !log.last().is_some_and(is_end)) {
        findings.push(format!("{}: {ends} ends in its log", task.id));
    }
}

/// A completed task has what one attempt at each turn has said, all of it.
fn look_at_result(task: &Task, findings: &mut Findings) {
    for artifact in &task.artifacts {
        let mut text = String::new();
        for part in &artifact.parts {
            if let PartContent::Text(piece) = &part.content {
                text.push_str(piece);
            }
        }
        if task.status.state != TaskState::Completed {
            // It may have been cut off in the middle of a piece.
            text.truncate(text.rfind(']').map_or(0, |end| end + 1));
        }
        let pieces: Vec<&str> = text.split_inclusive(']').collect();
        let attempts: BTreeSet<&str> = pieces.iter().filter_map(|piece| piece.split(':').next()).collect();
        if attempts.len() > 1 {
            findings.push(format!("{}: two attempts in one artifact: {text}", task.id));
        }
        let numbers: Vec<&str> = pieces.iter().filter_map(|piece| piece.split([':', '/']).nth(1)).collect();
        let of = pieces.last().and_then(|piece| piece.split(['/', ']']).nth(1)).unwrap_or_default();
        let is_whole = numbers.len().to_string() == of;
        // An agent that asks, or fails, when it was cut off leaves what it had made.
        if task.status.state == TaskState::Completed && artifact.name == "response" && !is_whole && !may_be_cut(task) {
            findings.push(format!("{}: it completed with {text}", task.id));
        }
        if numbers.iter().enumerate().any(|(n, number)| *number != n.to_string()) {
            findings.push(format!("{}: pieces are missing or double: {text}", task.id));
        }
    }
}

/// Whether a turn of the task was cut off, and left what it had made.
fn may_be_cut(task: &Task) -> bool {
    task.history.iter().any(|message| message.metadata.as_ref().is_some_and(|it| it.get().contains("INTERRUPTED")))
}

fn look_at_callers(told: &[Told], tasks: &BTreeMap<TaskId, (usize, Task, Vec<Event>)>, findings: &mut Findings) {
    for told in told {
        let of_context: Vec<&str> = tasks
            .values()
            .filter(|(tenant, task, _)| *tenant == told.tenant && task.context_id == told.context)
            .map(|(_, task, _)| task.id.as_str())
            .collect();
        if of_context.len() > 1 {
            findings.push(format!("{} became {of_context:?}", told.context));
        }
        if told.direct && !of_context.is_empty() {
            findings.push(format!("{} got a direct reply, and there is {of_context:?}", told.context));
        }
        let Some(id) = told.task.as_deref() else { continue };
        if told.direct {
            findings.push(format!("{} got a task and a direct reply", told.context));
        }
        let Some((_, task, log)) = TaskId::parse(id).and_then(|id| tasks.get(&id)) else {
            findings.push(format!("{} was told of {id}, which is lost", told.context));
            continue;
        };
        if told.canceled && task.status.state != TaskState::Canceled {
            findings.push(format!("{id} was canceled and is {:?}", task.status.state));
        }
        if let Some(seen) = &told.followed {
            let written: Vec<(u64, serde_json::Value)> =
                log.iter().filter(|event| event.kind.has_frame()).map(|event| (event.seq, typed(event))).collect();
            if *seen != written {
                findings.push(format!("{id}: a follower saw {} frames, {} were written", seen.len(), written.len()));
            }
        }
    }
}

/// An event as a reader of types has it.
fn typed(event: &Event) -> serde_json::Value {
    let response = event.response().expect("events are readable");
    serde_json::to_value(response).expect("events are JSON")
}

/// Nobody is taken for dead who is not, and nothing runs twice that must not.
fn look_at_runs(world: &World, tasks: &BTreeMap<TaskId, (usize, Task, Vec<Event>)>, findings: &mut Findings) {
    let troubles = world.troubles();
    for ((task, turn), runs) in world.runs.all() {
        if !runs.is_sorted_by_key(|run| run.attempt) {
            findings.push(format!("{task}: turn {turn} was begun after it had been taken over: {runs:?}"));
            continue;
        }
        for pair in runs.windows(2) {
            let [first, second] = pair else { continue };
            if first.again {
                // It asked for it.
            } else if first.instance == second.instance && second.attempt == first.attempt + 1 {
                findings.push(format!("{task}: an instance took turn {turn} over from itself: {first:?}, {second:?}"));
            } else if matches!(first.agent.as_str(), "fail" | "ask") {
                findings.push(format!("{task}: turn {turn} of `{}` began twice: {first:?}, {second:?}", first.agent));
            } else if !excuses(first, second.begin, &troubles) {
                findings.push(format!(
                    "{task}: turn {turn} was taken from an instance that was well: {first:?}, {second:?}"
                ));
            }
            let overlap = first.instance == second.instance && first.end.is_none_or(|end| end > second.begin);
            if overlap {
                findings.push(format!("{task}: turn {turn} ran twice at once on one instance: {first:?}, {second:?}"));
            }
        }
        let Some((_, shown, log)) = tasks.get(&task) else { continue };
        // Every message of a completed task had a turn that began.
        if shown.status.state == TaskState::Completed {
            let said = shown.history.iter().filter(|message| message.role == a2a::Role::User).count();
            let begun = world.runs.all().range((task, 0)..=(task, u32::MAX)).count();
            if said != begun && !matches!(runs[0].agent.as_str(), "fail" | "ask") {
                findings.push(format!("{task}: {said} messages, and {begun} turns that began"));
            }
        }
        // The same for turns that did not run again because their agent says so.
        let Some(run) = runs.last().filter(|run| matches!(run.agent.as_str(), "fail" | "ask")) else { continue };
        let cut_off = log.iter().any(|event| {
            let body = String::from_utf8_lossy(&event.body);
            body.contains("interrupted by a crash") || body.contains("INTERRUPTED")
        });
        let is_last = shown.status.state.is_terminal() || shown.status.state == TaskState::InputRequired;
        if cut_off && is_last && runs.len() == 1 && turn == 1 && !excuses(run, f64::MAX, &troubles) {
            findings.push(format!(
                "{task}: `{}` was ended as interrupted on an instance that was well: {run:?}",
                run.agent
            ));
        }
    }
}

/// Whether what was done to the instance of a run is a reason to take the run over by then.
fn excuses(run: &Run, by: f64, troubles: &[Trouble]) -> bool {
    // A renewal may be a third of a lease old when the trouble begins.
    let long_enough = LEASE.as_secs_f64() * 2.0 / 3.0 - 0.5;
    troubles.iter().filter(|trouble| trouble.instance == run.instance).any(|trouble| {
        let overlaps = trouble.from <= by && trouble.to >= run.begin;
        overlaps && (matches!(trouble.what, "killed" | "stopped") || trouble.to - trouble.from >= long_enough)
    })
}

/// Nothing is left of what is over: no lease, no task that is held back for ever, no instance that has signed off.
fn look_at_leftovers(world: &World, findings: &mut Findings) {
    let rows = world.scratch.look(&[
        "SELECT task_id, owner FROM a2a_tasks WHERE owner IS NOT NULL",
        "SELECT task_id, state FROM a2a_tasks WHERE hidden = 1",
        "SELECT task_id, state FROM a2a_tasks WHERE due_at IS NOT NULL",
    ]);
    for (what, rows) in ["is leased", "is held back", "is due"].into_iter().zip(rows) {
        for row in rows {
            findings.push(format!("{row:?} {what} after everything is over"));
        }
    }
}
