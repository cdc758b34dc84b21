//! A story: callers who want things, and somebody who meddles.

use std::{sync::Arc, time::Duration};

use a2a::{
    CancelTaskRequest, GetTaskRequest, Message, Part, Role, SendMessageConfiguration, SendMessageRequest,
    StreamResponse, SubscribeToTaskRequest, TaskState,
};
use exchange::{Call, Frame, Frames, Reply};
use testkit::rng::Random;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::simulation::{
    agents::{AGENTS, script},
    line::Weather,
    world::{INSTANCES, Instance, World},
};

/// How long things go wrong.
const STORY: Duration = Duration::from_secs(100);
/// How long a caller goes on with one message.
const PERSISTENCE: Duration = Duration::from_secs(7200);
const CALLERS: usize = 14;

/// What a caller was told.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) tenant: usize,
    pub(crate) context: String,
    /// The task, when it was told one.
    pub(crate) task: Option<String>,
    /// A direct reply was given.
    pub(crate) direct: bool,
    /// Its cancel was answered with a canceled task.
    pub(crate) canceled: bool,
    /// What a follower saw from the first event to the last: numbers and bodies.
    pub(crate) followed: Option<Vec<(u64, serde_json::Value)>>,
    /// What nobody should be told.
    pub(crate) unexpected: Vec<String>,
}

/// Plays a story to the end of its faults and callers. Gives what the callers were told.
pub(crate) async fn play(world: &Arc<World>, rng: &mut Random) -> Vec<Told> {
    let mut callers = JoinSet::new();
    for number in 0..CALLERS {
        let (world, rng) = (Arc::clone(world), rng.fork());
        callers.spawn(async move { Customer { world, rng, number }.go().await });
    }
    meddle(world, rng.fork()).await;
    world.mend().await;
    let mut told = Vec::new();
    while let Some(done) = callers.join_next().await {
        told.push(done.expect("a caller does not panic"));
    }
    told
}

/// Does one thing after the other to the instances.
async fn meddle(world: &Arc<World>, mut rng: Random) {
    let end = Instant::now() + STORY;
    let mut doings = JoinSet::new();
    while Instant::now() < end {
        sleep(Duration::from_millis(rng.between(500, 8000))).await;
        let up = world.up();
        if up.is_empty() {
            continue;
        }
        let fine = up.iter().filter(|instance| instance.line.weather() == Weather::Fine).cloned().collect::<Vec<_>>();
        // What happens to all of them happens to all of them at once.
        if fine.len() == INSTANCES && rng.percent(35) {
            let (weather, longest) = *rng.pick(&[
                (Weather::Cut, 60_000),
                (Weather::Stuck, 60_000),
                (Weather::Stopped, 60_000),
                (Weather::Stopped, 3_600_000),
            ]);
            for instance in &fine {
                instance.line.set(weather);
            }
            sleep(Duration::from_millis(rng.between(1000, longest))).await;
            for instance in &fine {
                instance.line.set(Weather::Fine);
                sleep(Duration::from_millis(rng.below(1500))).await;
            }
            continue;
        }
        if fine.is_empty() {
            continue;
        }
        let victim = rng.pick(&fine).clone();
        doings.spawn(disturb(Arc::clone(world), victim, rng.fork()));
    }
    while let Some(done) = doings.join_next().await {
        done.expect("nobody panics while meddling");
    }
}

/// Does something to one instance.
async fn disturb(world: Arc<World>, victim: Instance, mut rng: Random) {
    let from = world.steady.seconds();
    match rng.below(5) {
        0 => {
            world.take_down(victim.place);
            victim.line.kill().await;
            world.note(victim.number, "killed", from);
            sleep(Duration::from_millis(rng.below(20_000))).await;
            world.start(victim.place).await;
        }
        1 => {
            world.take_down(victim.place);
            victim.exchange.shut_down(Duration::from_millis(rng.below(3000))).await;
            store::Installation::close(victim.line.as_ref()).await;
            world.note(victim.number, "stopped", from);
            sleep(Duration::from_millis(rng.below(5000))).await;
            world.start(victim.place).await;
        }
        what => {
            let (weather, name) = [(Weather::Stopped, "paused"), (Weather::Cut, "cut off"), (Weather::Slow, "slow")]
                [usize::try_from(what - 2).unwrap_or(0)];
            victim.line.set(weather);
            sleep(Duration::from_millis(rng.between(1000, 40_000))).await;
            if victim.line.weather() == weather {
                victim.line.set(Weather::Fine);
            }
            // What waited before it was made comes up to so much later.
            if weather == Weather::Slow {
                sleep(Duration::from_secs(24)).await;
            }
            world.note(victim.number, name, from);
        }
    }
}

struct Customer {
    world: Arc<World>,
    rng: Random,
    number: usize,
}

/// What came back from one try.
enum Try {
    Task(Box<a2a::Task>),
    Direct,
    Nothing,
    Refused(exchange::Error),
}

impl Customer {
    async fn go(mut self) -> Told {
        sleep(Duration::from_millis(self.rng.below(90_000))).await;
        let tenant = usize::from(self.rng.percent(30));
        let mut told = Told {
            tenant,
            context: format!("context-{}", self.number),
            task: None,
            direct: false,
            canceled: false,
            followed: None,
            unexpected: Vec::new(),
        };
        let agent = self.rng.pick(&AGENTS).0;
        let end = match agent {
            "auto" => *self.rng.pick(&['m', 'm', 'c', 'r']),
            _ => *self.rng.pick(&['c', 'c', 'c', 'i', 'f', 'r', 'n']),
        };
        let pieces = if end == 'm' { 0 } else { self.rng.below(5) };
        let text = script(pieces, self.rng.between(1, 6000), end);
        let message = Message {
            message_id: "first".into(),
            context_id: told.context.clone(),
            role: Role::User,
            parts: vec![Part::text(text)],
            ..Message::default()
        };
        self.send(&mut told, agent, message).await;
        let Some(task) = told.task.clone() else { return told };
        if self.rng.percent(20) {
            self.say_more(&mut told, agent, &task).await;
        }
        if self.rng.percent(15) {
            sleep(Duration::from_millis(self.rng.below(10_000))).await;
            self.cancel(&mut told, &task).await;
        } else if self.rng.percent(60) {
            self.answer(&mut told, agent, &task).await;
        }
        if self.rng.percent(70) {
            self.follow(&mut told, &task).await;
        }
        told
    }

    fn call(&self, told: &Told) -> Call {
        self.world.call(told.tenant)
    }

    /// Sends a message, to one instance after the other, until somebody says what became of it.
    async fn send(&mut self, told: &mut Told, agent: &str, message: Message) {
        let give_up = Instant::now() + PERSISTENCE;
        while Instant::now() < give_up {
            match self.try_send(told, agent, &message).await {
                Try::Task(task) => {
                    match &told.task {
                        Some(known) if *known != task.id => {
                            told.unexpected.push(format!("two tasks: {known}, {}", task.id))
                        }
                        _ => told.task = Some(task.id),
                    }
                    return;
                }
                Try::Direct => {
                    told.direct = true;
                    return;
                }
                Try::Refused(error) if error.kind() == a2a::ErrorKind::Unavailable => {}
                // It ended before the answer to its question came.
                Try::Refused(error) if error.kind() == a2a::ErrorKind::UnsupportedOperation && told.task.is_some() => {
                    return;
                }
                Try::Refused(error) => {
                    told.unexpected.push(format!("{:?}: {error}", error.kind()));
                    return;
                }
                Try::Nothing => {}
            }
            sleep(Duration::from_millis(self.rng.between(50, 4000))).await;
        }
        told.unexpected.push("nobody ever answered".into());
    }

    async fn try_send(&mut self, told: &mut Told, agent: &str, message: &Message) -> Try {
        let up = self.world.up();
        if up.is_empty() {
            return Try::Nothing;
        }
        let Instance { exchange, line, .. } = self.rng.pick(&up).clone();
        let (changes, begun) = (line.changes(), Instant::now());
        let call = self.call(told);
        let mut request =
            SendMessageRequest { tenant: agent.to_owned(), message: message.clone(), ..SendMessageRequest::default() };
        // Some have no patience, and go away in the middle.
        let patience = Duration::from_millis(if self.rng.percent(30) { self.rng.below(3000) } else { 60_000 });
        match self.rng.below(3) {
            0 => match timeout(patience, exchange.stream(&call, request)).await {
                Ok(Ok(mut frames)) => {
                    let first = timeout(patience, frames.next()).await;
                    let calm = line.weather() == Weather::Fine && line.changes() == changes;
                    // The hub of another instance is heard by looking.
                    if calm && begun.elapsed() > Duration::from_secs(5) {
                        told.unexpected.push(format!("left without an id for {:?}", begun.elapsed()));
                    }
                    match first {
                        Ok(Some(Ok(frame))) => shown(&frame),
                        _ => Try::Nothing,
                    }
                }
                Ok(Err(error)) => Try::Refused(error),
                Err(_) => Try::Nothing,
            },
            way => {
                let return_immediately = way == 1;
                request.configuration =
                    Some(SendMessageConfiguration { return_immediately, ..SendMessageConfiguration::default() });
                match timeout(patience, exchange.send(&call, request)).await {
                    Ok(Ok(sent)) => read(&sent.reply),
                    Ok(Err(error)) => Try::Refused(error),
                    Err(_) => Try::Nothing,
                }
            }
        }
    }

    async fn cancel(&mut self, told: &mut Told, task: &str) {
        for _ in 0..20 {
            if let Some(instance) = self.any() {
                let request = CancelTaskRequest { id: task.to_owned(), ..CancelTaskRequest::default() };
                let call = self.call(told);
                match timeout(Duration::from_secs(30), instance.exchange.cancel(&call, request)).await {
                    Ok(Ok(snapshot)) => {
                        if snapshot.state != TaskState::Canceled {
                            told.unexpected.push(format!("a cancel was answered with {:?}", snapshot.state));
                        }
                        told.canceled = true;
                        return;
                    }
                    Ok(Err(error)) if error.kind() == a2a::ErrorKind::TaskNotCancelable => return,
                    Ok(Err(error)) if error.kind() == a2a::ErrorKind::Unavailable => {}
                    Ok(Err(error)) => {
                        told.unexpected.push(format!("cancel: {:?}: {error}", error.kind()));
                        return;
                    }
                    Err(_) => {}
                }
            }
            sleep(Duration::from_secs(3)).await;
        }
    }

    /// Says something more while the task may still run: it waits for its turn.
    async fn say_more(&mut self, told: &mut Told, agent: &str, task: &str) {
        for n in 0..2 {
            let message = Message {
                message_id: format!("more-{n}"),
                context_id: told.context.clone(),
                task_id: task.to_owned(),
                role: Role::User,
                parts: vec![Part::text(script(1, 300, 'c'))],
                ..Message::default()
            };
            self.send(told, agent, message).await;
        }
    }

    /// Answers the questions of a task.
    async fn answer(&mut self, told: &mut Told, agent: &str, task: &str) {
        for round in 0..3 {
            let Some(state) =
                self.wait_for(told, task, |state| state.is_terminal() || state == TaskState::InputRequired).await
            else {
                return;
            };
            if state.is_terminal() {
                return;
            }
            let text = if self.rng.percent(50) { "yes".to_owned() } else { script(2, 500, 'c') };
            let message = Message {
                message_id: format!("answer-{round}"),
                context_id: told.context.clone(),
                task_id: task.to_owned(),
                role: Role::User,
                parts: vec![Part::text(text)],
                ..Message::default()
            };
            self.send(told, agent, message).await;
        }
    }

    async fn wait_for(&mut self, told: &Told, task: &str, reached: impl Fn(TaskState) -> bool) -> Option<TaskState> {
        for _ in 0..2000 {
            if let Some(instance) = self.any() {
                let request = GetTaskRequest { id: task.to_owned(), ..GetTaskRequest::default() };
                let call = self.call(told);
                if let Ok(Ok(snapshot)) = timeout(Duration::from_secs(5), instance.exchange.get(&call, request)).await
                    && reached(snapshot.state)
                {
                    return Some(snapshot.state);
                }
            }
            sleep(Duration::from_secs(4)).await;
        }
        None
    }

    /// Follows a task from its first event to its end, across whatever happens to the instances.
    async fn follow(&mut self, told: &mut Told, task: &str) {
        let mut seen: Vec<(u64, serde_json::Value)> = Vec::new();
        for _ in 0..400 {
            let after = seen.last().map_or(0, |(seq, _)| *seq);
            if let Some(mut frames) = self.subscribe(told, task, after).await {
                let patience = Duration::from_millis(self.rng.between(1000, 60_000));
                let mut over = false;
                let _ = timeout(patience, async {
                    while let Some(frame) = frames.next().await {
                        let Ok(frame) = frame else { return };
                        let response = frame.response().expect("frames are readable");
                        let body = serde_json::to_value(response).expect("frames are JSON");
                        let state = body.pointer("/statusUpdate/status/state").and_then(|state| state.as_str());
                        over = state.is_some_and(is_terminal);
                        seen.push((frame.seq(), body));
                    }
                })
                .await;
                if over {
                    told.followed = Some(seen);
                    return;
                }
            }
            // A task that waits for an answer that nobody gives is left alone.
            if self.wait_for_end(told, task).await == Some(TaskState::InputRequired) {
                return;
            }
            sleep(Duration::from_millis(self.rng.between(100, 3000))).await;
        }
        told.unexpected.push("a follower never saw the end".into());
    }

    async fn wait_for_end(&mut self, told: &Told, task: &str) -> Option<TaskState> {
        let instance = self.any()?;
        let request = GetTaskRequest { id: task.to_owned(), ..GetTaskRequest::default() };
        let call = self.call(told);
        let snapshot = timeout(Duration::from_secs(5), instance.exchange.get(&call, request)).await;
        snapshot.ok()?.ok().map(|snapshot| snapshot.state)
    }

    async fn subscribe(&mut self, told: &Told, task: &str, after: u64) -> Option<Frames> {
        let instance = self.any()?;
        let request = SubscribeToTaskRequest { id: task.to_owned(), ..SubscribeToTaskRequest::default() };
        let call = self.call(told);
        let frames = instance.exchange.subscribe(&call, request, Some(after));
        timeout(Duration::from_secs(5), frames).await.ok()?.ok()
    }

    fn any(&mut self) -> Option<Instance> {
        let up = self.world.up();
        (!up.is_empty()).then(|| self.rng.pick(&up).clone())
    }
}

fn is_terminal(state: &str) -> bool {
    ["COMPLETED", "FAILED", "CANCELED", "REJECTED"].iter().any(|end| state == format!("TASK_STATE_{end}"))
}

/// What the answer to a send says.
fn read(reply: &Reply) -> Try {
    match reply {
        Reply::Task(snapshot) => Try::Task(Box::new(snapshot.to_task().expect("tasks are readable"))),
        Reply::Direct(_) => Try::Direct,
    }
}

/// What the first frame of a stream says.
fn shown(frame: &Frame) -> Try {
    match frame.response().expect("frames are readable") {
        StreamResponse::Task(task) => Try::Task(Box::new(task)),
        _ => Try::Direct,
    }
}
