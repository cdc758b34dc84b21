//! The callers: tasks with webhooks of every kind, sent again to another instance when one is killed.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use store::{Store, TaskId, TenantId};

use super::{
    Answered, Client, call,
    http::{is_terminal, state},
    random::Random,
    receiver::{Manners, Notebook, Receiver, token},
    sse::Frame,
};

/// A webhook of a run.
#[derive(Debug, Clone)]
pub(crate) struct Hook {
    /// The path of its URL, which no other has.
    pub(crate) name: String,
    /// Its id in its task.
    pub(crate) id: String,
    pub(crate) task: String,
    /// Made in 0.3.
    pub(crate) is_old: bool,
    pub(crate) chunks: bool,
    /// The length of the log before it was asked for, and when that was answered: it was made in between.
    pub(crate) after: (u64, u64),
    /// When its deletion was answered.
    pub(crate) deleted: Option<Instant>,
    /// When the server had shown that its receiver is gone.
    pub(crate) gone: Option<Instant>,
}

/// A task that was followed, its frames, and how often the stream ended although no instance was killed.
pub(crate) struct Followed {
    pub(crate) task: String,
    pub(crate) frames: Vec<Frame>,
    pub(crate) cuts: usize,
}

/// What all callers of a run share.
pub(crate) struct Load {
    pub(crate) client: Client,
    pub(crate) receivers: Vec<Receiver>,
    pub(crate) notebook: Notebook,
    pub(crate) journal: Arc<dyn Store>,
    pub(crate) tenant: TenantId,
    names: AtomicUsize,
    made: Mutex<Made>,
}

/// What callers have made.
#[derive(Default)]
pub(crate) struct Made {
    pub(crate) hooks: Vec<Hook>,
    pub(crate) tasks: Vec<String>,
    pub(crate) followed: Vec<Followed>,
}

impl Hook {
    /// A webhook of 1.0 that is not asked for yet.
    pub(crate) fn named(name: &str) -> Self {
        let (name, id) = (name.to_owned(), format!("id-of-{name}"));
        Self { name, id, task: String::new(), is_old: false, chunks: false, after: (0, 0), deleted: None, gone: None }
    }

    /// The version of the protocol of its notifications.
    pub(crate) fn version(&self) -> &'static str {
        if self.is_old { "0.3" } else { "1.0" }
    }

    /// Its configuration in a request.
    fn config(&self, receiver: &Receiver) -> Value {
        let mut config = json!({"url": receiver.url(&self.name), "token": token(&self.name)});
        if !self.id.is_empty() {
            config["id"] = json!(self.id);
        }
        config
    }
}

impl Made {
    /// Notes something about a webhook.
    pub(crate) fn change(&mut self, name: &str, change: impl FnOnce(&mut Hook)) {
        change(self.hooks.iter_mut().find(|hook| hook.name == name).expect("it was made"));
    }
}

impl Load {
    pub(crate) fn new(
        client: Client,
        receivers: Vec<Receiver>,
        notebook: Notebook,
        journal: Arc<dyn Store>,
        tenant: TenantId,
    ) -> Self {
        Self { client, receivers, notebook, journal, tenant, names: AtomicUsize::new(0), made: Mutex::default() }
    }

    pub(crate) fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The length of a task's log.
    async fn length(&self, task: &str) -> u64 {
        let task = TaskId::parse(task).expect("the server's ids are ids");
        self.journal.head(self.tenant, task).await.expect("what was acknowledged is there").seq
    }

    /// Sends a request until it succeeds. Any other answer fails the run.
    async fn ask(&self, random: &mut Random, request: impl Fn(&mut Random) -> RequestBuilder) -> Value {
        let answered = self.client.insist(random, request).await.and_then(Answered::ok);
        answered.unwrap_or_else(|what| panic!("no caller should ever get {what}"))
    }

    async fn post(&self, random: &mut Random, path: &str, body: &Value, hook: Option<&Hook>) -> Value {
        let (is_old, chunks) = hook.map_or((false, false), |hook| (hook.is_old, hook.chunks));
        self.ask(random, |random| {
            if is_old {
                return self.client.unversioned(random, &Method::POST, path, Some(body));
            }
            let request = self.client.request(random, &Method::POST, path, Some(body));
            if chunks { request.header("A2A-Extensions", "urn:switchboard:a2a:push-chunks:v1") } else { request }
        })
        .await
    }

    /// A webhook that is not asked for yet, and its receiver.
    fn imagine(&self, random: &mut Random, is_old: bool) -> (Hook, usize) {
        let name = format!("hook-{}", self.names.fetch_add(1, Ordering::Relaxed));
        let receiver = random.index(self.receivers.len());
        let chunks = !is_old && random.below(3) == 0;
        // A receiver that is away for a while could not say that it left.
        if self.receivers[receiver].manners() == Manners::Slow && random.below(4) == 0 {
            self.notebook.leaves(&name);
        }
        (Hook { is_old, chunks, ..Hook::named(&name) }, receiver)
    }

    /// Sends a message that begins or continues a task, with a webhook; returns the id of the task.
    async fn send(&self, random: &mut Random, agent: &str, message: &Value, with: Option<&(Hook, usize)>) -> String {
        let is_old = with.is_some_and(|(hook, _)| hook.is_old);
        let config = with.map(|(hook, receiver)| hook.config(&self.receivers[*receiver]));
        let mut message = message.clone();
        let (path, body, pointer) = if is_old {
            message["kind"] = json!("message");
            message["role"] = json!("user");
            message["parts"][0]["kind"] = json!("text");
            let configuration = json!({"blocking": false, "pushNotificationConfig": config});
            let params = json!({"message": message, "configuration": configuration});
            (format!("/a2a/agents/{agent}"), call("message/send", &params), "/result/id")
        } else {
            let mut configuration = json!({"returnImmediately": true});
            if let Some(config) = config {
                configuration["taskPushNotificationConfig"] = config;
            }
            let params = json!({"tenant": agent, "message": message, "configuration": configuration});
            match random.below(2) {
                0 => ("/a2a/jsonrpc".to_owned(), call("SendMessage", &params), "/result/task/id"),
                _ => ("/a2a/message:send".to_owned(), params, "/task/id"),
            }
        };
        let answer = self.post(random, &path, &body, with.map(|(hook, _)| hook)).await;
        let id = answer.pointer(pointer).and_then(Value::as_str);
        id.unwrap_or_else(|| panic!("a send is answered with a task: {answer}")).to_owned()
    }

    /// Makes a webhook of a task that runs.
    pub(crate) async fn create(&self, random: &mut Random, task: &str, (mut hook, receiver): (Hook, usize)) -> Hook {
        let config = hook.config(&self.receivers[receiver]);
        let before = self.length(task).await;
        if hook.is_old {
            let params = json!({"taskId": task, "pushNotificationConfig": config});
            let body = call("tasks/pushNotificationConfig/set", &params);
            self.post(random, "/a2a/jsonrpc", &body, Some(&hook)).await;
        } else {
            let path = format!("/a2a/tasks/{task}/pushNotificationConfigs");
            self.post(random, &path, &config, Some(&hook)).await;
        }
        hook.after = (before, self.length(task).await);
        task.clone_into(&mut hook.task);
        self.made().hooks.push(hook.clone());
        hook
    }

    pub(crate) async fn delete(&self, random: &mut Random, hook: &Hook) {
        let path = format!("/a2a/tasks/{}/pushNotificationConfigs/{}", hook.task, hook.id);
        self.ask(random, |random| self.client.request(random, &Method::DELETE, &path, None)).await;
        let now = Instant::now();
        self.made().change(&hook.name, |hook| hook.deleted = Some(now));
    }

    /// Makes a task, with a webhook if one is given, which may have no id yet; returns the task's id.
    pub(crate) async fn begin(
        &self,
        random: &mut Random,
        agent: &str,
        message: &Value,
        with: Option<(Hook, usize)>,
    ) -> (String, Option<Hook>) {
        let task = self.send(random, agent, message, with.as_ref()).await;
        let mut made = self.made();
        made.tasks.push(task.clone());
        let hook = with.map(|(mut hook, _)| {
            task.clone_into(&mut hook.task);
            if hook.id.is_empty() {
                task.clone_into(&mut hook.id);
            }
            hook
        });
        made.hooks.extend(hook.clone());
        (task, hook)
    }

    pub(crate) async fn wait_for_the_end(&self, random: &mut Random, task: &str) {
        self.wait(random, task, is_terminal).await;
    }

    /// Makes a task with one to three webhooks, and sees it through to its end.
    pub(crate) async fn one_task(&self, random: &mut Random, context: &str) {
        let (agent, text) = match random.below(6) {
            0 => ("echo", "hello"),
            1 => ("stream", "8 120"),
            2 => ("stream", "12 60 4"),
            3 => ("slow", "700"),
            4 => ("ask", "start"),
            _ => ("printing", "count"),
        };
        let inline = (random.below(4) > 0).then(|| {
            let is_old = random.below(4) == 0;
            let mut imagined = self.imagine(random, is_old);
            // Without an id of its own it has its task's.
            if random.below(3) == 0 {
                imagined.0.id.clear();
            }
            imagined
        });
        let (task, first) = self.begin(random, agent, &message("first", context, text), inline).await;
        let mut hooks = Vec::from_iter(first);
        for _ in 0..random.below(3).max(u64::from(hooks.is_empty())) {
            tokio::time::sleep(Duration::from_millis(random.below(400))).await;
            let is_old = random.below(4) == 0;
            let imagined = self.imagine(random, is_old);
            hooks.push(self.create(random, &task, imagined).await);
        }
        if random.below(5) == 0 {
            tokio::time::sleep(Duration::from_millis(random.below(400))).await;
            self.replace_one(random, &hooks).await;
        }
        if agent == "ask" {
            self.wait(random, &task, |state| state == "INPUT_REQUIRED" || is_terminal(state)).await;
            self.answer(random, &task).await;
        }
        if random.below(3) == 0 {
            let followed = self.follow(random, task).await;
            self.made().followed.push(followed);
        } else {
            self.wait_for_the_end(random, &task).await;
        }
    }

    /// Deletes one of a task's webhooks; half of them are made again, with the same id and another URL.
    async fn replace_one(&self, random: &mut Random, hooks: &[Hook]) {
        let hook = &hooks[random.index(hooks.len())];
        self.delete(random, hook).await;
        if random.below(2) == 0 {
            let (mut again, receiver) = self.imagine(random, hook.is_old);
            hook.id.clone_into(&mut again.id);
            self.create(random, &hook.task, (again, receiver)).await;
        }
    }

    /// Answers a question, with a webhook for what follows.
    async fn answer(&self, random: &mut Random, task: &str) {
        let mut message = message("second", "", "my answer");
        message["taskId"] = json!(task);
        let (mut hook, receiver) = self.imagine(random, false);
        let before = self.length(task).await;
        let with = (hook.clone(), receiver);
        self.send(random, "ask", &message, Some(&with)).await;
        hook.after = (before, self.length(task).await);
        task.clone_into(&mut hook.task);
        self.made().hooks.push(hook);
    }

    async fn wait(&self, random: &mut Random, task: &str, wanted: impl Fn(&str) -> bool) {
        let path = format!("/a2a/tasks/{task}?historyLength=0");
        while !wanted(state(&self.client.get(random, &path).await)) {
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    }

    /// Follows a task to its end, on any instance.
    async fn follow(&self, random: &mut Random, task: String) -> Followed {
        let mut frames = Vec::new();
        let cuts = self.client.follow(random, &task, &mut frames).await;
        let cuts = cuts.unwrap_or_else(|what| panic!("{task}: {what}"));
        Followed { task, frames, cuts }
    }
}

pub(crate) fn message(id: &str, context: &str, text: &str) -> Value {
    let mut message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]});
    if !context.is_empty() {
        message["contextId"] = json!(context);
    }
    message
}
