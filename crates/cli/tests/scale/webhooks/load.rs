//! Tasks with webhooks of every kind, made by callers who do not give up when a server dies.

use std::{
    fmt::Write as _,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use store::{Store, TaskId, TenantId};
use tokio::sync::watch;

use super::{
    http::{is_terminal, state},
    receiver::{Manners, Notebook, Receiver, token},
    rig::{PATIENCE, Setting, TOKEN},
    sse::{Frame, Sse},
};
use crate::scale::{caller::Doors, random::Random};

/// How long a caller goes on with one request.
const PERSISTENCE: Duration = Duration::from_secs(60);

/// A program that talks for a second and may be interrupted as often as it pleases.
const WORKER: &str = "kind = \"command\"\nconcurrency = 32\nmax_attempts = 100\n[command]\noutput = \"text\"\n";
const WORKER_SCRIPT: &str = "i=0\nwhile [ $i -lt 10 ]; do echo \"line $i\"; i=$((i+1)); sleep 0.1; done\n";

/// A webhook of the storm.
#[derive(Debug, Clone)]
pub(crate) struct Hook {
    /// The path of its URL, which no other has.
    pub(crate) name: String,
    /// What it is called in its task.
    pub(crate) id: String,
    pub(crate) task: String,
    /// Made in 0.3.
    pub(crate) is_old: bool,
    pub(crate) chunks: bool,
    /// How long the log was before somebody asked for it, and when that was answered: it was made in between.
    pub(crate) after: (u64, u64),
    /// When its deletion was answered.
    pub(crate) deleted: Option<Instant>,
    /// When the server had shown that it knows that its receiver is gone.
    pub(crate) gone: Option<Instant>,
}

/// A task that was followed: its id, what was seen, and how often the stream ended although nobody was killed.
pub(crate) struct Followed {
    pub(crate) task: String,
    pub(crate) frames: Vec<Frame>,
    pub(crate) cuts: usize,
}

/// What all callers of a storm share.
pub(crate) struct Site {
    pub(crate) doors: Doors,
    pub(crate) receivers: Vec<Receiver>,
    pub(crate) notebook: Notebook,
    pub(crate) journal: Arc<dyn Store>,
    pub(crate) tenant: TenantId,
    pub(crate) kills: watch::Receiver<Vec<Instant>>,
    http: reqwest::Client,
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
    /// A plain one of 1.0 that nobody has asked for yet.
    pub(crate) fn named(name: &str) -> Self {
        let (name, id) = (name.to_owned(), format!("id-of-{name}"));
        Self { name, id, task: String::new(), is_old: false, chunks: false, after: (0, 0), deleted: None, gone: None }
    }

    /// The version of the protocol that it is told in.
    pub(crate) fn version(&self) -> &'static str {
        if self.is_old { "0.3" } else { "1.0" }
    }

    /// What a request says of it.
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

/// Adds the agent whose program talks.
pub(crate) fn add_worker(setting: &Setting) {
    let agents = setting.agents_dir();
    let programs = agents.with_file_name("programs");
    for dir in [&agents, &programs] {
        std::fs::create_dir_all(dir).expect("a directory can be made");
    }
    let script = programs.join("worker.sh");
    std::fs::write(&script, WORKER_SCRIPT).expect("a file can be written");
    let mut file = WORKER.to_owned();
    writeln!(file, "argv = [\"sh\", {:?}]", script.display().to_string()).expect("a string takes it");
    std::fs::write(agents.join("worker.toml"), file).expect("a file can be written");
}

impl Site {
    pub(crate) fn new(
        doors: Doors,
        receivers: Vec<Receiver>,
        notebook: Notebook,
        journal: Arc<dyn Store>,
        tenant: TenantId,
        kills: watch::Receiver<Vec<Instant>>,
    ) -> Self {
        let http = reqwest::Client::builder().no_proxy().build().expect("the client needs nothing special");
        let (names, made) = (AtomicUsize::new(0), Mutex::default());
        Self { doors, receivers, notebook, journal, tenant, kills, http, names, made }
    }

    pub(crate) fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a task's log is.
    async fn length(&self, task: &str) -> u64 {
        let task = TaskId::parse(task).expect("the server's ids are ids");
        self.journal.head(self.tenant, task).await.expect("what was acknowledged is there").seq
    }

    fn request(&self, base: &str, method: Method, path: &str, body: Option<&Value>) -> RequestBuilder {
        let request = self.http.request(method, format!("{base}{path}")).timeout(PATIENCE).bearer_auth(TOKEN);
        match body {
            Some(body) => request.header("Content-Type", "application/json").body(body.to_string()),
            None => request,
        }
    }

    /// A request of 1.0.
    fn new_request(&self, base: &str, method: Method, path: &str, body: Option<&Value>) -> RequestBuilder {
        self.request(base, method, path, body).header("A2A-Version", "1.0")
    }

    /// What the server says, as soon as there is one.
    pub(crate) async fn get(&self, random: &mut Random, path: &str) -> Value {
        self.ask(random, |base| self.new_request(base, Method::GET, path, None)).await
    }

    /// Sends a request until it is answered. A server that is not there or has no time is none; anything else than success is
    /// something that nobody should be told.
    async fn ask(&self, random: &mut Random, request: impl Fn(&str) -> RequestBuilder) -> Value {
        let begun = Instant::now();
        loop {
            let sent = request(&self.doors.any(random)).send().await;
            if let Ok(response) = sent {
                let status = response.status().as_u16();
                if let Ok(body) = response.bytes().await {
                    let said = String::from_utf8_lossy(&body).into_owned();
                    let is_error = said.contains("\"error\":{");
                    match status {
                        200 | 201 | 204 if !is_error => return serde_json::from_slice(&body).unwrap_or_default(),
                        200 | 503 if said.contains("UNAVAILABLE") => {}
                        _ => panic!("nobody should be told {status} {said}"),
                    }
                }
            }
            assert!(begun.elapsed() < PERSISTENCE, "nobody has answered for too long");
            tokio::time::sleep(Duration::from_millis(50 + random.below(200))).await;
        }
    }

    /// A webhook that nobody has asked for yet, and who receives it.
    fn imagine(&self, random: &mut Random, is_old: bool) -> (Hook, usize) {
        let name = format!("hook-{}", self.names.fetch_add(1, Ordering::Relaxed));
        let receiver = random.index(self.receivers.len());
        let chunks = !is_old && random.below(3) == 0;
        // Who is away for a while may not hear that somebody left.
        if self.receivers[receiver].manners() == Manners::Slow && random.below(4) == 0 {
            self.notebook.leaves(&name);
        }
        (Hook { is_old, chunks, ..Hook::named(&name) }, receiver)
    }

    /// Sends a message that begins a task or continues one, with a webhook; the id of the task.
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
            (format!("/a2a/agents/{agent}"), call("message/send", params), "/result/id")
        } else {
            let mut configuration = json!({"returnImmediately": true});
            if let Some(config) = config {
                configuration["taskPushNotificationConfig"] = config;
            }
            let params = json!({"tenant": agent, "message": message, "configuration": configuration});
            match random.below(2) {
                0 => ("/a2a/jsonrpc".to_owned(), call("SendMessage", params), "/result/task/id"),
                _ => ("/a2a/message:send".to_owned(), params, "/task/id"),
            }
        };
        let answer = self
            .ask(random, |base| match is_old {
                true => self.request(base, Method::POST, &path, Some(&body)),
                false => {
                    let request = self.new_request(base, Method::POST, &path, Some(&body));
                    asking_for_chunks(request, with.is_some_and(|(hook, _)| hook.chunks))
                }
            })
            .await;
        let id = answer.pointer(pointer).and_then(Value::as_str);
        id.unwrap_or_else(|| panic!("a send is answered with a task: {answer}")).to_owned()
    }

    /// Makes a webhook of a task that runs.
    pub(crate) async fn create(&self, random: &mut Random, task: &str, (mut hook, receiver): (Hook, usize)) -> Hook {
        let config = hook.config(&self.receivers[receiver]);
        let before = self.length(task).await;
        if hook.is_old {
            let params = json!({"taskId": task, "pushNotificationConfig": config});
            let body = call("tasks/pushNotificationConfig/set", params);
            self.ask(random, |base| self.request(base, Method::POST, "/a2a/jsonrpc", Some(&body))).await;
        } else {
            let path = format!("/a2a/tasks/{task}/pushNotificationConfigs");
            let chunks = hook.chunks;
            self.ask(random, |base| {
                asking_for_chunks(self.new_request(base, Method::POST, &path, Some(&config)), chunks)
            })
            .await;
        }
        hook.after = (before, self.length(task).await);
        task.clone_into(&mut hook.task);
        self.made().hooks.push(hook.clone());
        hook
    }

    pub(crate) async fn delete(&self, random: &mut Random, hook: &Hook) {
        let path = format!("/a2a/tasks/{}/pushNotificationConfigs/{}", hook.task, hook.id);
        self.ask(random, |base| self.new_request(base, Method::DELETE, &path, None)).await;
        let now = Instant::now();
        self.made().change(&hook.name, |hook| hook.deleted = Some(now));
    }

    /// Makes a task, with a webhook if there is to be one, which may have no id yet; gives the task's id.
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
            _ => ("worker", "talk"),
        };
        let inline = (random.below(4) > 0).then(|| {
            let is_old = random.below(4) == 0;
            let mut imagined = self.imagine(random, is_old);
            // Without a name of its own it has its task's.
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

    /// Deletes one of a task's webhooks; half of them are made again, with the same name and another URL.
    async fn replace_one(&self, random: &mut Random, hooks: &[Hook]) {
        let hook = &hooks[random.index(hooks.len())];
        self.delete(random, hook).await;
        if random.below(2) == 0 {
            let (mut again, receiver) = self.imagine(random, hook.is_old);
            hook.id.clone_into(&mut again.id);
            self.create(random, &hook.task, (again, receiver)).await;
        }
    }

    /// Answers a question, and asks to be told of what follows.
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
        while !wanted(state(&self.get(random, &path).await)) {
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    }

    /// Follows a task to its end, from server to server.
    async fn follow(&self, random: &mut Random, task: String) -> Followed {
        let mut followed = Followed { task, frames: Vec::new(), cuts: 0 };
        let path = format!("/a2a/tasks/{}:subscribe", followed.task);
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < PERSISTENCE, "{} does not end", followed.task);
            let kills = self.kills.borrow().len();
            let after = followed.frames.last().map_or(0, |frame| frame.id);
            let request = self.new_request(&self.doors.any(random), Method::POST, &path, None);
            let opened = request.header("Last-Event-ID", after.to_string()).timeout(PERSISTENCE).send().await;
            if let Ok(response) = opened
                && response.status().as_u16() == 200
            {
                let mut stream = Sse::of(response);
                while let Some(frame) = stream.next_however_long().await {
                    followed.frames.push(frame);
                }
                if followed.frames.last().is_some_and(Frame::is_end) {
                    return followed;
                }
                followed.cuts += usize::from(self.kills.borrow().len() == kills);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

pub(crate) fn message(id: &str, context: &str, text: &str) -> Value {
    let mut message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]});
    if !context.is_empty() {
        message["contextId"] = json!(context);
    }
    message
}

fn call(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

fn asking_for_chunks(request: RequestBuilder, chunks: bool) -> RequestBuilder {
    if chunks { request.header("A2A-Extensions", "urn:switchboard:a2a:push-chunks:v1") } else { request }
}
