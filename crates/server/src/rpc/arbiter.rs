//! The methods of 0.3 under `/v1/a2a`, by the rules of seeds 000 and 002: text only, every message makes a task, results
//! are in the status and in the history, a stream is one text between two statuses, nothing is pushed.

use a2a::{
    Error, ErrorKind, GetTaskRequest, Method, SendMessageRequest, StreamResponse, SubscribeToTaskRequest, Task,
    TaskState,
    v03::{
        self, MessageSendParams, TaskIdParams, TaskQueryParams,
        arbiter::{self, Frame, Stream, Usage},
    },
    validate,
};
use axum::response::Response;
use bytes::Bytes;
use exchange::{Call, Frames, NOT_CONFIGURED, Reply, Rules};
use futures_util::stream;
use store::{Snapshot, Tokens};

use super::{Asked, success};
use crate::{
    app::App,
    encode,
    events::{self, End, Events, Told},
    operation::Operation,
    reply,
    sse::{Envelope, EventStream, Record, Records},
};

const RULES: Rules =
    Rules { always_task: true, idempotent: false, cancel_once: true, remembers: false, all_events: true };

/// Answers a request.
pub(super) async fn answer(app: &App, call: Call, asked: &Asked<'_>, params: Bytes) -> Result<Response, Error> {
    let call = Call { rules: RULES, ..call };
    let Some(entry) = app.exchange.target(&call, "")? else {
        return Err(Error::internal("the path names no agent"));
    };
    let agent = entry.profile.id.as_str();
    let id = &asked.id;
    let exchange = &app.exchange;
    match asked.method {
        Method::SendMessage => {
            let (request, history) = app.reading(params.len(), || message(app, &params))?;
            drop(params);
            let waits = request.configuration.as_ref().is_none_or(|it| !it.return_immediately);
            let sent = exchange.send(&call, request).await?;
            let task = sent_task(&sent.reply)?;
            if waits && let Some(fault) = fault(&task) {
                return Err(fault);
            }
            let response = success(id, &result(&task, agent, used(&sent.reply), history)?);
            Ok(reply::with_extensions_of_03(response, &sent.extensions))
        }
        Method::SendStreamingMessage => {
            let (request, _) = app.reading(params.len(), || message(app, &params))?;
            drop(params);
            let frames = exchange.stream(&call, request).await?;
            let extensions = frames.extensions.clone();
            let response = streamed(app, asked, translated(app, call, frames, None));
            Ok(reply::with_extensions_of_03(response, &extensions))
        }
        Method::GetTask => {
            let params: TaskQueryParams = a2a::decode(&params)?;
            let history = history_length("historyLength", params.history_length)?;
            let request = GetTaskRequest { history_length: None, ..params.into() };
            let snapshot = exchange.get(&call, request).await?;
            Ok(success(id, &result(&typed(&snapshot)?, agent, snapshot.tokens, history)?))
        }
        Method::CancelTask => {
            let params: TaskIdParams = a2a::decode(&params)?;
            let snapshot = exchange.cancel(&call, params.into()).await?;
            Ok(success(id, &result(&typed(&snapshot)?, agent, snapshot.tokens, None)?))
        }
        Method::SubscribeToTask => {
            let params: TaskIdParams = a2a::decode(&params)?;
            Ok(streamed(app, asked, resubscribed(app, call, params.into(), asked.cursor()?).await?))
        }
        Method::CreateTaskPushNotificationConfig
        | Method::GetTaskPushNotificationConfig
        | Method::ListTaskPushNotificationConfigs
        | Method::DeleteTaskPushNotificationConfig => Err(not_pushed()),
        Method::GetExtendedAgentCard => {
            let cards = app.cards.reached_at(app.local_base(asked.parts));
            Ok(success(id, &cards.arbiter(&entry.profile).await.bytes))
        }
        // No name of 0.3 stands for it.
        Method::ListTasks => Err(a2a::jsonrpc::method_not_found(&asked.name)),
    }
}

/// What a method of 1.0 asks for here. Nothing is pushed in that dialect either, whatever the exchange would do.
pub(super) fn operation_of_1_0(app: &App, call: &Call, asked: &Asked<'_>, params: &[u8]) -> Result<Operation, Error> {
    if let Method::CreateTaskPushNotificationConfig
    | Method::GetTaskPushNotificationConfig
    | Method::ListTaskPushNotificationConfigs
    | Method::DeleteTaskPushNotificationConfig = asked.method
    {
        app.exchange.target(call, "")?;
        return Err(not_pushed());
    }
    let operation = super::operation(app, asked, params)?;
    if let Operation::Send(request) | Operation::Stream(request) = &operation {
        refuse_push(app, request)?;
    }
    Ok(operation)
}

/// Refuses a message that brings a webhook. What is wrong with it is told first, as everywhere.
fn refuse_push(app: &App, request: &SendMessageRequest) -> Result<(), Error> {
    let push = request.configuration.as_ref().and_then(|it| it.task_push_notification_config.as_ref());
    if push.is_none() {
        return Ok(());
    }
    validate::validate_send(request, app.exchange.limits())?;
    Err(not_pushed())
}

/// The same words each time: seed 002 wants them stable (S2-32).
fn not_pushed() -> Error {
    Error::new(ErrorKind::PushNotificationNotSupported, "push notifications are not supported")
}

/// A message, and how much of the history its sender wants back.
///
/// The history here is not the task's own, see [`arbiter::task_result`], so that it is cut when it has been made.
fn message(app: &App, params: &[u8]) -> Result<(SendMessageRequest, Option<usize>), Error> {
    let params: MessageSendParams = a2a::decode(params)?;
    arbiter::require_text(&params.message)?;
    let mut request: SendMessageRequest = params.try_into()?;
    refuse_push(app, &request)?;
    let wanted = request.configuration.as_mut().and_then(|it| it.history_length.take());
    Ok((request, history_length("configuration.historyLength", wanted)?))
}

fn history_length(field: &str, wanted: Option<i32>) -> Result<Option<usize>, Error> {
    match wanted.map(usize::try_from) {
        None => Ok(None),
        Some(Ok(length)) => Ok(Some(length)),
        Some(Err(_)) => Err(Error::invalid(field, "must not be negative")),
    }
}

fn sent_task(reply: &Reply) -> Result<Task, Error> {
    match reply {
        Reply::Task(snapshot) => typed(snapshot),
        Reply::Direct(_) => Err(Error::internal("a message was answered without a task")),
    }
}

/// A task with its replies where this surface has them.
fn typed(snapshot: &Snapshot) -> Result<Task, Error> {
    let mut task = encode::typed(snapshot)?;
    arbiter::tell_replies(&mut task, &snapshot.made_in);
    Ok(task)
}

/// The error that a blocking send is answered with when the agent broke its own protocol, or cannot work as it is configured.
fn fault(task: &Task) -> Option<Error> {
    let message = task.status.message.as_ref().filter(|_| task.status.state == TaskState::Failed)?;
    let metadata: serde_json::Value = message.metadata.as_ref()?.parse().ok()?;
    let kind = match metadata.get("reason").and_then(serde_json::Value::as_str)? {
        NOT_CONFIGURED => ErrorKind::Internal,
        reason if reason == ErrorKind::InvalidAgentResponse.codes().reason => ErrorKind::InvalidAgentResponse,
        _ => return None,
    };
    Some(Error::new(kind, message.text()).with_metadata("taskId", &task.id))
}

fn used(reply: &Reply) -> Tokens {
    match reply {
        Reply::Task(snapshot) => snapshot.tokens,
        Reply::Direct(_) => Tokens::default(),
    }
}

fn result(task: &Task, agent: &str, tokens: Tokens, history: Option<usize>) -> Result<Vec<u8>, Error> {
    let usage = Usage { input_tokens: tokens.input, output_tokens: tokens.output };
    let mut result: v03::Task = arbiter::task_result(task, agent, usage);
    if let Some(length) = history {
        let surplus = result.history.len().saturating_sub(length);
        result.history.drain(..surplus);
    }
    serde_json::to_vec(&result).map_err(|_| Error::internal("the result cannot be written as JSON"))
}

fn streamed(app: &App, asked: &Asked<'_>, records: Records) -> Response {
    let envelope = Envelope::jsonrpc(&asked.id);
    reply::stream(EventStream::over(records, envelope, app.keep_alive))
}

/// A task that has ended is its last status. Any other is replayed from its beginning and followed to its end. Whoever
/// brings a cursor gets what came after it, in both cases.
async fn resubscribed(
    app: &App,
    call: Call,
    request: SubscribeToTaskRequest,
    cursor: Option<u64>,
) -> Result<Records, Error> {
    let look = GetTaskRequest { id: request.id.clone(), ..GetTaskRequest::default() };
    let snapshot = app.exchange.get(&call, look).await?;
    // A cursor beyond the log's end is not of this task.
    let cursor = cursor.filter(|after| *after <= snapshot.seq);
    if cursor.is_none() && snapshot.state.is_terminal() {
        let mut stream = Stream::new(snapshot.task.to_string(), &*snapshot.context);
        let records = records(&mut stream, snapshot.seq, StreamResponse::Task(typed(&snapshot)?))?;
        return Ok(Box::pin(stream::iter(records.into_iter().map(Ok))));
    }
    let after = cursor.unwrap_or(0);
    let frames = app.exchange.subscribe(&call, request, Some(after)).await?;
    let stream = match after {
        0 => Stream::new(snapshot.task.to_string(), &*snapshot.context),
        _ => Stream::resumed(&encode::typed(&snapshot)?),
    };
    Ok(translated(app, call, frames, Some(stream)))
}

/// The records of a stream. Without one the frames are those of a message: its task, and then all events after the message.
fn translated(app: &App, call: Call, frames: Frames, mut stream: Option<Stream>) -> Records {
    let events = Events::with_usage(frames, End::WithReply(app.exchange.clone(), call));
    events::records(events, move |Told { seq, event, .. }| match (&mut stream, event) {
        (Some(stream), event) => records(stream, seq, event),
        (stream, StreamResponse::Task(task)) => {
            let (continued, first) = Stream::continued(&task);
            *stream = Some(continued);
            first.into_iter().map(record).collect()
        }
        (None, _) => Err(Error::internal("a stream that follows a message begins with its task")),
    })
}

fn records(stream: &mut Stream, seq: u64, event: StreamResponse) -> Result<Vec<Record>, Error> {
    stream.feed(seq, event).into_iter().map(record).collect()
}

fn record(frame: Frame) -> Result<Record, Error> {
    Ok(Record { id: frame.id.map(Into::into), event: "message", body: events::json(&frame.event)? })
}
