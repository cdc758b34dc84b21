//! Callers that send messages in all ways there are to any instance, and repeat at another one what fails.

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use reqwest::Method;
use serde_json::{Value, json};
use store::{Event, Store, TaskId, TenantId};
use tokio::{sync::watch, task::JoinSet};

use super::{
    Installation, Instances, Report, Workload,
    client::{Answered, Client, call},
    http::{artifact_text, is_terminal, state, text},
    log::is_whole,
    random::Random,
    report::is_same,
    sse::Frame,
};

/// How long everything that was acknowledged may take to end when the callers have stopped.
const SETTLING: Duration = Duration::from_secs(60);

const VIOLATIONS: &[(&str, &str)] = &[
    ("unexpected", "an answer that no caller should ever get"),
    ("lost", "acknowledged and not there"),
    ("unfinished", "acknowledged and not ended in time"),
    ("duplicates", "two tasks of one message"),
    ("broken logs", "a log with a gap, or without exactly one end"),
    ("wrong streams", "a stream that differs from its log"),
    ("wrong results", "a completed task whose artifacts are not those of one attempt"),
    ("given up", "a task that did not complete"),
    ("survivors", "a program that outlived its server"),
];

/// Programs that may be interrupted as often as it takes: one prints all the while, one is silent.
const PROGRAM: &str = "concurrency = 64\nmax_attempts = 100";
const PRINTING: &str = "i=0\nwhile [ $i -lt 15 ]; do echo \"line $i\"; i=$((i+1)); sleep 0.1; done\n";
const SILENT: &str = "i=0\nwhile [ $i -lt 30 ]; do i=$((i+1)); sleep 0.1; done\necho done\n";

pub(crate) struct Tasks {
    callers: usize,
    senders: usize,
    has_programs: bool,
    may_interrupt: bool,
    lease: &'static str,
    running: JoinSet<Vec<Item>>,
    stop: watch::Sender<bool>,
    items: Vec<Item>,
}

/// A caller with one message at a time.
struct Caller {
    name: String,
    client: Client,
    random: Random,
    has_programs: bool,
    /// It sends one message after the other and waits for none, so that a kill always finds some on their way.
    only_sends: bool,
}

/// One message, and what became of it.
#[derive(Default)]
struct Item {
    /// No other message has it: two tasks with it are one too many.
    context: String,
    task: Option<String>,
    /// When the request was sent that was answered, and whether one before may have arrived.
    answered: i64,
    is_doubtful: bool,
    unexpected: Option<String>,
    /// The frames of its streams, across all reconnects.
    frames: Vec<Frame>,
    /// The text of the artifacts when it completes.
    result: String,
}

#[derive(Clone, Copy)]
enum Binding {
    Rpc,
    Rest,
}

/// How a message is sent, and what follows.
enum Way {
    Blocking,
    Streaming,
    AtOnce,
    /// To be answered at once, and followed by a stream.
    Followed,
    /// A question, and an answer that continues its task.
    Continued,
}

impl Tasks {
    pub(crate) fn new(callers: usize) -> Self {
        let (running, stop, items) = (JoinSet::new(), watch::Sender::new(false), Vec::new());
        Self { callers, senders: 0, has_programs: false, may_interrupt: false, lease: "30s", running, stop, items }
    }

    /// So many callers more send one message after the other and wait for none.
    pub(crate) fn with_senders(self, senders: usize) -> Self {
        Self { senders, ..self }
    }

    /// Callers send messages to programs, too.
    pub(crate) fn with_programs(self) -> Self {
        Self { has_programs: true, ..self }
    }

    /// Kills may come so fast that a turn is interrupted in all of its attempts, and its task fails with that reason.
    pub(crate) fn with_frequent_kills(self) -> Self {
        Self { may_interrupt: true, ..self }
    }

    /// Leases last so long.
    pub(crate) fn with_lease(self, lease: &'static str) -> Self {
        Self { lease, ..self }
    }
}

impl Workload for Tasks {
    fn config(&self) -> String {
        format!("lease = \"{}\"\n", self.lease)
    }

    fn prepare(&self, installation: &Installation) {
        if self.has_programs {
            installation.add_script("printing", PROGRAM, PRINTING);
            installation.add_script("silent", PROGRAM, SILENT);
        }
    }

    async fn start(&mut self, instances: &Instances, random: &mut Random) {
        let client = instances.client();
        for n in 0..self.callers + self.senders {
            let (name, client, random) = (format!("caller-{n}"), client.clone(), random.fork());
            let (has_programs, only_sends) = (self.has_programs, n >= self.callers);
            let caller = Caller { name, client, random, has_programs, only_sends };
            self.running.spawn(caller.go_on(self.stop.subscribe()));
        }
    }

    async fn drain(&mut self, _instances: &Instances, _random: &mut Random) {
        self.stop.send_replace(true);
        while let Some(items) = self.running.join_next().await {
            self.items.extend(items.expect("a caller does not panic"));
        }
    }

    async fn check(self, instances: &Instances, random: &mut Random) -> Report {
        let mut report = Report::new(VIOLATIONS);
        let (journal, tenant) = instances.installation.journal_and_tenant().await;
        let begun = Instant::now();
        let mut logs = HashMap::new();
        for item in &self.items {
            report.count("messages", 1);
            match &item.unexpected {
                Some(what) => report.violate("unexpected", what),
                None => report.count("ok", 1),
            }
            let Some(id) = &item.task else { continue };
            match log_of_ended(journal.as_ref(), tenant, id, begun).await {
                Ok(log) => _ = logs.insert(id.clone(), log),
                Err(violation) => report.violate(violation, format!("{id} of {}", item.context)),
            }
        }
        let shown = instances.client().tasks(random).await;
        for item in &self.items {
            let Some(log) = item.task.as_ref().and_then(|id| logs.get(id)) else { continue };
            match item.task.as_ref().and_then(|id| shown.get(id)) {
                Some(shown) if self.may_interrupt && is_interrupted(shown) => report.count("interrupted", 1),
                Some(shown) => item.check(&mut report, shown, log),
                None => report.violate("lost", format!("{:?} is not shown", item.task)),
            }
        }
        // Every message has a context of its own, so a context with two tasks is a message that ran twice, acknowledged or not.
        let mut contexts = BTreeSet::new();
        for task in shown.values() {
            if !contexts.insert(text(task, "/contextId")) {
                report.violate("duplicates", text(task, "/contextId"));
            }
        }
        for _ in 0..instances.survivors() {
            report.violate("survivors", "a program");
        }
        report
    }
}

/// The log of a task, as soon as it has ended; else the violation.
async fn log_of_ended(
    journal: &dyn Store,
    tenant: TenantId,
    id: &str,
    begun: Instant,
) -> Result<Vec<Event>, &'static str> {
    let task = TaskId::parse(id).expect("the server's ids are ids");
    loop {
        let head = journal.head(tenant, task).await.map_err(|_| "lost")?;
        if head.state.is_terminal() {
            return Ok(journal.events(tenant, task, 0, 100_000).await.expect("the log can be read"));
        }
        if begun.elapsed() > SETTLING {
            return Err("unfinished");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn is_interrupted(shown: &Value) -> bool {
    let reason = shown.pointer("/status/message/parts/0/text").and_then(Value::as_str);
    state(shown) == "FAILED" && reason.is_some_and(|reason| reason.starts_with("interrupted"))
}

impl Item {
    fn check(&self, report: &mut Report, shown: &Value, log: &[Event]) {
        let id = text(shown, "/id");
        if !is_whole(log) {
            report.violate("broken logs", id);
        }
        // It was made by a request whose answer never came.
        let is_recovered = self.is_doubtful && log.first().is_some_and(|first| first.at.as_millis() < self.answered);
        report.count("recovered", usize::from(is_recovered));
        if !self.frames.is_empty() {
            report.count("followed", 1);
            if self.unexpected.is_none() && !is_same(&self.frames, log) {
                report.violate("wrong streams", id);
            }
        }
        if state(shown) != "COMPLETED" {
            report.violate("given up", format!("{id} is {}", state(shown)));
        } else if artifact_text(shown) != self.result {
            report.violate("wrong results", format!("{id}: {:?}, not {:?}", artifact_text(shown), self.result));
        }
    }
}

impl Caller {
    async fn go_on(mut self, stopped: watch::Receiver<bool>) -> Vec<Item> {
        let mut items = Vec::new();
        while !*stopped.borrow() {
            let mut item = Item { context: format!("{}-{}", self.name, items.len()), ..Item::default() };
            item.unexpected = self.one_message(&mut item).await.err();
            items.push(item);
            let pause = if self.only_sends { 20 } else { 300 };
            tokio::time::sleep(Duration::from_millis(self.random.below(pause))).await;
        }
        items
    }

    /// Sends one message in one of the ways there are, and sees it through.
    async fn one_message(&mut self, item: &mut Item) -> Result<(), String> {
        let binding = if self.random.below(2) == 0 { Binding::Rpc } else { Binding::Rest };
        let kinds = if self.has_programs { 9 } else { 6 };
        let (way, agent, text, result) = match self.random.below(kinds) {
            _ if self.only_sends => (Way::AtOnce, "stream", "2 10", chunks(2)),
            0 => (Way::Blocking, "echo", "hello", "hello".to_owned()),
            1 => (Way::Blocking, "stream", "4 30", chunks(4)),
            2 | 3 => (Way::Streaming, "stream", "12 60", chunks(12)),
            4 => (Way::Followed, "slow", "250", "done after 250 ms".to_owned()),
            5 => (Way::Continued, "ask", "start", "my answer".to_owned()),
            6 | 7 => (Way::Followed, "printing", "count", (0..15).map(|n| format!("line {n}\n")).collect()),
            _ => (Way::Followed, "silent", "wait", "done\n".to_owned()),
        };
        item.result = result;
        // With a context of its own, a message is known by its id.
        let mut message = json!({"messageId": "first", "role": "ROLE_USER", "parts": [{"text": text}]});
        message["contextId"] = json!(item.context);
        let mut request = json!({"tenant": agent, "message": message});
        match way {
            Way::Blocking => expect_state(&self.send(item, binding, &request).await?, is_terminal),
            Way::Streaming => {
                let (path, body) = match binding {
                    Binding::Rpc => ("/a2a/jsonrpc", call("SendStreamingMessage", &request)),
                    Binding::Rest => ("/a2a/message:stream", request),
                };
                let opened = self.client.open_stream(&mut self.random, path, &body, &mut item.frames).await?;
                (item.answered, item.is_doubtful) = opened;
                item.task = item.frames.first().map(|first| first.task_id().to_owned());
                self.follow(item).await
            }
            Way::AtOnce | Way::Followed => {
                request["configuration"] = json!({"returnImmediately": true});
                self.send(item, binding, &request).await?;
                if matches!(way, Way::Followed) { self.follow(item).await } else { Ok(()) }
            }
            Way::Continued => {
                let asked = self.send(item, binding, &request).await?;
                expect_state(&asked, |state| state == "INPUT_REQUIRED" || is_terminal(state))?;
                if expect_state(&asked, is_terminal).is_ok() {
                    // Interrupted so often that it was given up; that is counted elsewhere.
                    return Ok(());
                }
                let mut answer = json!({"messageId": "second", "role": "ROLE_USER", "parts": [{"text": "my answer"}]});
                answer["taskId"] = asked["id"].clone();
                expect_state(&self.send(item, binding, &json!({"message": answer})).await?, is_terminal)
            }
        }
    }

    async fn follow(&mut self, item: &mut Item) -> Result<(), String> {
        let task = item.task.as_deref().expect("it was acknowledged");
        if !item.frames.last().is_some_and(Frame::is_end) {
            self.client.follow(&mut self.random, task, &mut item.frames).await?;
        }
        Ok(())
    }

    /// Sends a request until an instance answers it with a task.
    async fn send(&mut self, item: &mut Item, binding: Binding, request: &Value) -> Result<Value, String> {
        let (path, body) = match binding {
            Binding::Rpc => ("/a2a/jsonrpc", &call("SendMessage", request)),
            Binding::Rest => ("/a2a/message:send", request),
        };
        let post = |random: &mut Random| self.client.request(random, &Method::POST, path, Some(body));
        let answered = self.client.insist(&mut self.random, post).await?;
        let (sent, is_doubtful) = (answered.sent, answered.is_doubtful);
        let mut answer = Answered::ok(answered)?;
        let task = match binding {
            Binding::Rpc => answer["result"]["task"].take(),
            Binding::Rest => answer["task"].take(),
        };
        let Some(id) = task["id"].as_str() else { return Err(format!("no task: {answer}")) };
        match &item.task {
            None => (item.task, item.answered, item.is_doubtful) = (Some(id.to_owned()), sent, is_doubtful),
            Some(known) if known != id => return Err(format!("{id} continues {known}")),
            Some(_) => {}
        }
        Ok(task)
    }
}

/// What the agent `stream` says in so many pieces.
fn chunks(count: u64) -> String {
    (1..=count).map(|n| format!("chunk {n} of {count}\n")).collect()
}

fn expect_state(task: &Value, wanted: impl Fn(&str) -> bool) -> Result<(), String> {
    let state = task.pointer("/status/state").and_then(Value::as_str).unwrap_or_default();
    if wanted(state.trim_start_matches("TASK_STATE_")) {
        return Ok(());
    }
    Err(format!("a blocking send was answered with {state}"))
}
