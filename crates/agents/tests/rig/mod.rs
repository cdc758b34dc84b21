//! An exchange over a fresh journal whose agents are files and scripts of a temporary directory.

#![expect(clippy::unwrap_used, reason = "a test rig")]

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use a2a::{
    CancelTaskRequest, GetTaskRequest, Message, Part, Role, SendMessageRequest, SendMessageResponse,
    SubscribeToTaskRequest, Task, TaskState,
};
use agents::{AgentFiles, KINDS, Options, Reader, kind::Kind};
use exchange::{Agents, Call, Caller, Exchange};
use store::TaskId;
use testkit::temp_store::TempStore;

pub(crate) struct Rig {
    pub(crate) exchange: Exchange,
    pub(crate) files: AgentFiles,
    pub(crate) call: Call,
    pub(crate) dir: PathBuf,
    _scratch: TempStore,
    _temp: tempfile::TempDir,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        Self::with(exchange::Options::default()).await
    }

    pub(crate) async fn with(options: exchange::Options) -> Self {
        Self::of(KINDS, options).await
    }

    pub(crate) async fn of(kinds: &'static [Kind], options: exchange::Options) -> Self {
        Self::read_by(Reader::new(kinds, TaskId::mint().to_string()), options).await
    }

    pub(crate) async fn read_by(reader: Reader, options: exchange::Options) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("agents");
        fs::create_dir(&dir).unwrap();
        let scratch = TempStore::new(temp.path());
        let store = scratch.open().await;
        let tenant = store.create_tenant("default").await.unwrap().id;
        let agents = Agents::default();
        let builtins = agents::demo();
        let files = AgentFiles::start(&dir, &agents, Options { builtins, reader }).unwrap();
        let exchange = Exchange::start(store, agents, options).await.unwrap();
        let call = Call::new(Caller::new(tenant, "default"));
        Self { exchange, files, call, dir, _scratch: scratch, _temp: temp }
    }

    /// Writes a file of the agents' directory.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// An agent that runs this shell script, with more lines for its file.
    pub(crate) fn shell(&self, id: &str, more: &str, script: &str) {
        self.program(id, "sh", more, script);
    }

    pub(crate) fn python(&self, id: &str, more: &str, script: &str) {
        self.program(id, "python3", more, script);
    }

    fn program(&self, id: &str, interpreter: &str, more: &str, script: &str) {
        self.write(&format!("{id}.script"), script);
        let argv = format!("command.argv = [\"{interpreter}\", \"{id}.script\"]");
        self.write(&format!("{id}.toml"), &format!("kind = \"command\"\nreply = \"auto\"\n{argv}\n{more}\n"));
        self.files.refresh();
        let state = self.files.snapshot().into_iter().find(|state| state.id == id).unwrap();
        assert_eq!(state.error, None);
        // Variables that are not set are some tests' own matter.
        let warnings: Vec<_> = state.warnings.iter().filter(|said| !said.contains("pass_env")).collect();
        assert!(warnings.is_empty(), "{warnings:?}");
    }

    pub(crate) async fn try_send(&self, agent: &str, message: Message) -> SendMessageResponse {
        let request = SendMessageRequest { tenant: agent.to_owned(), message, ..SendMessageRequest::default() };
        let sent = self.exchange.send(&self.call, request).await.unwrap();
        sent.reply.response().unwrap()
    }

    /// Sends, waits for the end of the turn; the task.
    pub(crate) async fn send(&self, agent: &str, message: Message) -> Task {
        match self.try_send(agent, message).await {
            SendMessageResponse::Task(task) => task,
            SendMessageResponse::Message(message) => panic!("a direct reply: {message:?}"),
        }
    }

    pub(crate) async fn say(&self, agent: &str, text: &str) -> Task {
        self.send(agent, message(text)).await
    }

    /// Sends without waiting; the task's id.
    pub(crate) async fn start(&self, agent: &str, text: &str) -> String {
        let request = SendMessageRequest {
            tenant: agent.to_owned(),
            message: message(text),
            configuration: Some(a2a::SendMessageConfiguration { return_immediately: true, ..Default::default() }),
            ..SendMessageRequest::default()
        };
        let sent = self.exchange.send(&self.call, request).await.unwrap();
        match sent.reply.response().unwrap() {
            SendMessageResponse::Task(task) => task.id,
            SendMessageResponse::Message(message) => panic!("a direct reply: {message:?}"),
        }
    }

    pub(crate) async fn get(&self, id: &str) -> Task {
        let request = GetTaskRequest { id: id.to_owned(), ..GetTaskRequest::default() };
        self.exchange.get(&self.call, request).await.unwrap().to_task().unwrap()
    }

    pub(crate) async fn cancel(&self, id: &str) -> Task {
        let request = CancelTaskRequest { id: id.to_owned(), ..CancelTaskRequest::default() };
        self.exchange.cancel(&self.call, request).await.unwrap().to_task().unwrap()
    }

    /// Everything the journal holds of a task, as the JSON of its events.
    pub(crate) async fn log(&self, id: &str) -> Vec<serde_json::Value> {
        let request = SubscribeToTaskRequest { id: id.to_owned(), ..SubscribeToTaskRequest::default() };
        let mut frames = self.exchange.subscribe(&self.call, request, Some(0)).await.unwrap();
        let mut log = Vec::new();
        while let Some(frame) = frames.next().await {
            log.push(serde_json::to_value(frame.unwrap().response().unwrap()).unwrap());
        }
        log
    }

    pub(crate) async fn until(&self, id: &str, reached: impl Fn(&Task) -> bool) -> Task {
        for _ in 0..2000 {
            let task = self.get(id).await;
            if reached(&task) {
                return task;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the task never got there: {:?}", self.get(id).await);
    }
}

pub(crate) fn message(text: &str) -> Message {
    Message {
        message_id: TaskId::mint().to_string(),
        role: Role::User,
        parts: vec![Part::text(text)],
        ..Message::default()
    }
}

/// The next message of a task.
pub(crate) fn reply_to(task: &Task, text: &str) -> Message {
    Message { task_id: task.id.clone(), context_id: task.context_id.clone(), ..message(text) }
}

/// The text of all artifacts.
pub(crate) fn text(task: &Task) -> String {
    task.artifacts.iter().flat_map(|artifact| &artifact.parts).filter_map(Part::as_text).collect()
}

/// The text of the status message.
pub(crate) fn status(task: &Task) -> (TaskState, String) {
    (task.status.state, task.status.message.as_ref().map(Message::text).unwrap_or_default())
}

/// Waits for a file that a script writes.
pub(crate) async fn appears(path: &Path) -> String {
    for _ in 0..500 {
        if let Ok(text) = fs::read_to_string(path)
            && text.ends_with('\n')
        {
            return text.trim().to_owned();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{} never appeared", path.display());
}

/// Whether a process lives; a zombie does not.
pub(crate) fn alive(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !matches!(stat.rsplit(')').next().map(|rest| rest.trim_start().chars().next()), Some(Some('Z' | 'X')))
    })
}

pub(crate) async fn dies(pid: &str) {
    for _ in 0..250 {
        if !alive(pid) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("process {pid} lives on");
}
