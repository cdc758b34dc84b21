//! The methods of 0.3 under `/a2a`, for real 0.3 clients: parameters go up, results and events come down. Nothing else
//! is different there.

use a2a::{
    AgentCard, Error, GetTaskPushNotificationConfigRequest, ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse, Method, SendMessageRequest,
    v03::{
        self, DeleteTaskPushNotificationConfigParams, GetTaskPushNotificationConfigParams, MessageSendParams,
        TaskIdParams, TaskPushNotificationConfig, TaskQueryParams,
    },
};
use axum::response::Response;
use bytes::Bytes;
use exchange::Call;
use serde::{Serialize, de::DeserializeOwned};

use super::{Asked, success};
use crate::{
    app::App,
    encode,
    events::{self, End, Events, Told},
    operation::{Operation, Performed},
    reply,
    sse::{Envelope, EventStream, Record},
};

/// Answers a request of 0.3.
pub(super) async fn answer(app: &App, call: &Call, asked: &Asked<'_>, params: Bytes) -> Result<Response, Error> {
    let id = &asked.id;
    let operation = app.reading(params.len(), || operation(app, asked, &params))?;
    drop(params);
    let operation = match operation {
        Operation::ListPush(request) => {
            let all = every_push(app, call, request).await?;
            return Ok(success(id, &json(&v03::list_configs_result(&all)?)?));
        }
        Operation::GetPush(request) if request.id.is_empty() => Operation::GetPush(named(app, call, request).await?),
        other => other,
    };
    Ok(match app.perform(call, operation).await? {
        Performed::Sent(sent) => {
            let response = sent.reply.response().map_err(|cause| encode::unreadable(&cause))?;
            let result = json(&v03::send_result(&response))?;
            reply::with_extensions_of_03(success(id, &result), &sent.extensions)
        }
        Performed::Task(snapshot) => success(id, &json(&v03::Task::from(encode::typed(&snapshot)?))?),
        Performed::Push(config, extensions) => {
            let result = json(&TaskPushNotificationConfig::from(*config))?;
            reply::with_extensions_of_03(success(id, &result), &extensions)
        }
        Performed::Done => success(id, b"null"),
        // No name of 0.3 asks for a page.
        Performed::Listing(_) | Performed::Pushes(_) => {
            return Err(a2a::jsonrpc::method_not_found(&asked.name));
        }
        Performed::Card(card) => {
            let card: AgentCard = ours(&card.bytes)?;
            success(id, &app.cards.in_03(&card).await?.bytes)
        }
        Performed::Stream(frames) => {
            let extensions = frames.extensions.clone();
            let records = events::records(Events::new(*frames, End::AsItIs), |Told { seq, event, .. }| {
                let body = events::json(&v03::stream_result(&event))?;
                Ok(vec![Record { id: Some(seq.into()), event: "", body }])
            });
            let events = EventStream::over(records, Envelope::jsonrpc(id), app.keep_alive);
            reply::with_extensions_of_03(reply::stream(events), &extensions)
        }
    })
}

fn operation(app: &App, asked: &Asked<'_>, params: &[u8]) -> Result<Operation, Error> {
    let message = || -> Result<Box<SendMessageRequest>, Error> {
        let params: MessageSendParams = a2a::decode(params)?;
        Ok(Box::new(params.try_into()?))
    };
    Ok(match asked.method {
        Method::SendMessage => Operation::Send(message()?),
        Method::SendStreamingMessage => Operation::Stream(message()?),
        Method::GetTask => Operation::Get(a2a::decode::<TaskQueryParams>(params)?.into()),
        Method::CancelTask => Operation::Cancel(a2a::decode::<TaskIdParams>(params)?.into()),
        Method::SubscribeToTask => Operation::Subscribe(a2a::decode::<TaskIdParams>(params)?.into(), asked.cursor()?),
        Method::CreateTaskPushNotificationConfig => {
            let params: TaskPushNotificationConfig = a2a::decode(params)?;
            Operation::CreatePush(Box::new(params.try_into()?))
        }
        Method::GetTaskPushNotificationConfig => {
            Operation::GetPush(a2a::decode::<GetTaskPushNotificationConfigParams>(params)?.into())
        }
        Method::ListTaskPushNotificationConfigs => Operation::ListPush(a2a::decode::<TaskIdParams>(params)?.into()),
        Method::DeleteTaskPushNotificationConfig => {
            Operation::DeletePush(a2a::decode::<DeleteTaskPushNotificationConfigParams>(params)?.into())
        }
        Method::GetExtendedAgentCard => {
            Operation::ExtendedCard { tenant: String::new(), base: app.local_base(asked.parts) }
        }
        // No name of 0.3 stands for it.
        Method::ListTasks => return Err(a2a::jsonrpc::method_not_found(&asked.name)),
    })
}

/// All configurations of a task: 0.3 has no pages.
async fn every_push(
    app: &App,
    call: &Call,
    mut request: ListTaskPushNotificationConfigsRequest,
) -> Result<ListTaskPushNotificationConfigsResponse, Error> {
    let mut all = ListTaskPushNotificationConfigsResponse::default();
    loop {
        let page = app.exchange.list_push(call, request.clone()).await?;
        all.configs.extend(page.configs);
        if page.next_page_token.is_empty() {
            return Ok(all);
        }
        request.page_token = page.next_page_token;
    }
}

/// A request that names a configuration, where its sender left that out: the one that is called as its task is, as servers of 0.3
/// name one that has no name, else the first. Where there is none the exchange says so, as of any other that is unknown.
async fn named(
    app: &App,
    call: &Call,
    mut request: GetTaskPushNotificationConfigRequest,
) -> Result<GetTaskPushNotificationConfigRequest, Error> {
    let list = ListTaskPushNotificationConfigsRequest { task_id: request.task_id.clone(), ..Default::default() };
    let all = every_push(app, call, list).await?;
    let same = all.configs.iter().find(|config| config.id == request.task_id);
    let found = same.or_else(|| all.configs.first()).map(|config| config.id.clone());
    request.id = found.unwrap_or_else(|| request.task_id.clone());
    Ok(request)
}

/// Reads what this server wrote.
fn ours<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|cause| {
        tracing::error!(error = %cause, "an answer cannot be read back");
        Error::internal("the answer cannot be read")
    })
}

fn json(result: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(result).map_err(|_| Error::internal("the result cannot be written as JSON"))
}
