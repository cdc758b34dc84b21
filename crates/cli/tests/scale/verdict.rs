//! What was found after a storm, and whether it may be so.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};

use serde_json::Value;
use store::{Store, TaskId, TenantId};

use super::{
    caller::Item,
    http::{Api, artifact_text, state},
    log::{has_frame, is_whole},
    sse::Frame,
};

/// How long everything that was acknowledged may take to end after the last blow.
const SETTLING: Duration = Duration::from_secs(60);

/// The names are those of a Jepsen report.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) blows: usize,
    /// Requests.
    attempts: usize,
    /// Messages that were answered and seen through to their end.
    pub(crate) ok: usize,
    /// Of these, tasks that had been made by a request whose answer never came.
    pub(crate) recovered: usize,
    /// Answers that nobody should ever get, with some of them.
    unexpected: usize,
    samples: Vec<String>,
    /// Acknowledged and gone.
    pub(crate) lost: usize,
    /// Never ended.
    unfinished: usize,
    /// Messages that became more than one task.
    duplicates: usize,
    /// Logs with a gap or not exactly one end.
    broken_logs: usize,
    followed: usize,
    /// Streams that differ from their log.
    wrong_streams: usize,
    /// Completed tasks whose artifacts are not what one attempt has said.
    pub(crate) wrong_results: usize,
    /// Tasks that did not complete: interrupted too often, or by someone who had no right to.
    given_up: usize,
}

impl Verdict {
    /// Looks at everything that was acknowledged.
    pub(crate) async fn on(items: &[Item], blows: usize, journal: &dyn Store, api: &Api) -> Self {
        let mut verdict = Self { blows, ..Self::default() };
        let tenant = journal.tenants().await.expect("tenants can be read")[0].id;
        let begun = Instant::now();
        for item in items {
            verdict.attempts += item.attempts;
            verdict.ok += usize::from(item.done);
            verdict.unexpected += item.unexpected.len();
            verdict.samples.extend(item.unexpected.iter().take(5 - verdict.samples.len().min(5)).cloned());
            if let Some(id) = &item.task {
                verdict.judge(item, id, journal, tenant, begun, api).await;
            }
        }
        verdict.duplicates = count_duplicates(api).await;
        verdict
    }

    /// Nothing that was promised was broken.
    pub(crate) fn is_clean(&self) -> bool {
        let broken = [
            self.unexpected,
            self.lost,
            self.unfinished,
            self.duplicates,
            self.broken_logs,
            self.wrong_streams,
            self.wrong_results,
            self.given_up,
        ];
        self.ok > 0 && broken.into_iter().all(|count| count == 0)
    }

    async fn judge(&mut self, item: &Item, id: &str, journal: &dyn Store, tenant: TenantId, begun: Instant, api: &Api) {
        let task = TaskId::parse(id).expect("the server's ids are ids");
        let log = loop {
            let Ok(head) = journal.head(tenant, task).await else {
                self.lost += 1;
                return;
            };
            if head.state.is_terminal() {
                break journal.events(tenant, task, 0, 100_000).await.expect("the log can be read");
            }
            if begun.elapsed() > SETTLING {
                self.unfinished += 1;
                self.samples.push(format!("{id} of {} is still {}", item.context, head.state.as_str()));
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        self.broken_logs += usize::from(!is_whole(&log));
        let was_there = log.first().is_some_and(|first| item.answered.is_some_and(|at| first.at.as_millis() < at));
        self.recovered += usize::from(item.retried && was_there);
        if !item.frames.is_empty() {
            self.followed += 1;
            self.wrong_streams += usize::from(item.done && !is_same(&item.frames, &log));
        }
        let shown = api.task(id).await;
        if state(&shown) == "COMPLETED" {
            let result = artifact_text(&shown);
            if result != item.result {
                self.wrong_results += 1;
                self.samples.push(format!("{id}: {result:?} instead of {:?}", item.result));
            }
        } else {
            self.given_up += 1;
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "attempts {}, ok {}, recovered {}, unexpected {}, lost {}, kills {}; unfinished {}, duplicates {}, broken logs {}, \
             followed {}, wrong streams {}, wrong results {}, given up {}",
            self.attempts,
            self.ok,
            self.recovered,
            self.unexpected,
            self.lost,
            self.blows,
            self.unfinished,
            self.duplicates,
            self.broken_logs,
            self.followed,
            self.wrong_streams,
            self.wrong_results,
            self.given_up
        )?;
        for sample in &self.samples {
            write!(f, "\n  {sample}")?;
        }
        Ok(())
    }
}

/// Every message has a context of its own, so a context with two tasks is one message that ran twice. This counts the
/// tasks that nobody was told of as well.
async fn count_duplicates(api: &Api) -> usize {
    let mut contexts: BTreeMap<String, usize> = BTreeMap::new();
    let mut token = String::new();
    loop {
        let page = api.get(&format!("/a2a/tasks?pageSize=100&historyLength=0&pageToken={token}")).await.ok();
        for task in page["tasks"].as_array().into_iter().flatten() {
            *contexts.entry(task["contextId"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
        match page["nextPageToken"].as_str() {
            Some(next) if !next.is_empty() => next.clone_into(&mut token),
            _ => return contexts.values().map(|tasks| tasks - 1).sum(),
        }
    }
}

/// Whether a follower saw exactly what was written. A message that is sent again as a stream joins its task: that begins
/// with the task as it stands, and goes on after it.
fn is_same(frames: &[Frame], log: &[store::Event]) -> bool {
    let Some((first, rest)) = frames.split_first() else { return false };
    let joins = first.id > 1 && first.body.get("task").is_some();
    let (seen, after) = if joins { (rest, first.id) } else { (frames, 0) };
    let written = log.iter().filter(|event| event.seq > after && has_frame(event.kind));
    let written: Vec<Frame> = written
        .map(|event| Frame {
            id: event.seq,
            body: serde_json::from_slice::<Value>(&event.body).expect("events are JSON"),
        })
        .collect();
    seen == written
}
