//! The methods of 0.3 under `/a2a`, for real 0.3 clients: parameters go up, results and events come down. Nothing else
//! is different there.

use a2a::{
    AgentCard, Error, Method, SendMessageRequest,
    v03::{self, MessageSendParams, TaskIdParams, TaskQueryParams},
};
use axum::response::Response;
use exchange::Call;
use serde::{Serialize, de::DeserializeOwned};

use super::{Asked, success};
use crate::{
    app::App,
    encode,
    events::{self, End, Events},
    operation::{Operation, Performed},
    reply,
    sse::{Envelope, EventStream, Record},
};

/// Answers a request of 0.3.
pub(super) async fn answer(app: &App, call: &Call, asked: &Asked<'_>) -> Result<Response, Error> {
    let id = &asked.request.id;
    let operation = operation(asked)?;
    Ok(match app.perform(call, operation).await? {
        Performed::Sent(sent) => {
            let response = sent.reply.response().map_err(|cause| encode::unreadable(&cause))?;
            let result = json(&v03::send_result(&response))?;
            reply::with_extensions_of_03(success(id, &result), &sent.extensions)
        }
        Performed::Task(snapshot) => success(id, &json(&v03::Task::from(encode::typed(&snapshot)?))?),
        // No name of 0.3 asks for one.
        Performed::Listing(_) => return Err(a2a::jsonrpc::method_not_found(&asked.request.method)),
        Performed::Card(card) => {
            let card: AgentCard = ours(&card.bytes)?;
            success(id, &app.cards.in_03(&card).await?.bytes)
        }
        Performed::Stream(frames) => {
            let extensions = frames.extensions.clone();
            let records = events::records(Events::new(*frames, End::AsItIs), |seq, event| {
                let body = events::json(&v03::stream_result(&event))?;
                Ok(vec![Record { id: Some(seq), event: "", body }])
            });
            let events = EventStream::over(records, Envelope::jsonrpc(id), app.keep_alive);
            reply::with_extensions_of_03(reply::stream(events), &extensions)
        }
    })
}

fn operation(asked: &Asked<'_>) -> Result<Operation, Error> {
    let params = asked.request.params;
    let message = || -> Result<Box<SendMessageRequest>, Error> {
        let params: MessageSendParams = a2a::decode_params(params)?;
        Ok(Box::new(params.try_into()?))
    };
    Ok(match asked.method {
        Method::SendMessage => Operation::Send(message()?),
        Method::SendStreamingMessage => Operation::Stream(message()?),
        Method::GetTask => Operation::Get(a2a::decode_params::<TaskQueryParams>(params)?.into()),
        Method::CancelTask => Operation::Cancel(a2a::decode_params::<TaskIdParams>(params)?.into()),
        Method::SubscribeToTask => {
            Operation::Subscribe(a2a::decode_params::<TaskIdParams>(params)?.into(), asked.cursor()?)
        }
        Method::CreateTaskPushNotificationConfig
        | Method::GetTaskPushNotificationConfig
        | Method::ListTaskPushNotificationConfigs
        | Method::DeleteTaskPushNotificationConfig => Operation::PushConfig,
        Method::GetExtendedAgentCard => Operation::ExtendedCard { tenant: String::new() },
        // No name of 0.3 stands for it.
        Method::ListTasks => return Err(a2a::jsonrpc::method_not_found(&asked.request.method)),
    })
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
