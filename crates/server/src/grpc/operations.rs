//! The service of the protocol, `lf.a2a.v1.A2AService`: its eleven operations.

use a2a::{
    AgentCard, Error, GetExtendedAgentCardRequest, Limits, ListTasksResponse, Method, SendMessageRequest,
    SendMessageResponse,
    grpc::{self, Wire},
};
use axum::response::Response;
use bytes::Bytes;
use exchange::{Caller, Listing, Reply, Sent, heavy};
use http::{HeaderMap, request::Parts};
use store::Snapshot;

use super::{answer, call, stream};
use crate::{
    app::App,
    encode, headers,
    operation::{Operation, Performed},
    reply,
    surface::{Surface, Visit},
};

/// One of its methods.
pub(crate) struct Operations(Method);

impl Operations {
    pub(crate) const PATH: &'static str = "/lf.a2a.v1.A2AService";
}

impl Surface for Operations {
    type Caller = Caller;

    const WEIGHT: u64 = call::WEIGHT;

    fn promised(first: &[u8]) -> Option<usize> {
        call::promised(first)
    }

    fn at(segments: &[&str]) -> Option<Self> {
        match segments {
            [grpc::SERVICE, name] => Method::from_name(name).map(Self),
            _ => None,
        }
    }

    fn allow(&self) -> &'static str {
        "POST, OPTIONS"
    }

    async fn answer(self, mut visit: Visit<'_, Caller>) -> Result<Response, Error> {
        let Self(method) = self;
        // Who reads a card may not know yet which versions there are.
        let call = call::open(&visit, method != Method::GetExtendedAgentCard)?;
        let message = call::message(&mut visit).await?;
        let limits = visit.app.exchange.limits();
        let operation =
            visit.app.reading(message.len(), || operation(visit.app, method, message.clone(), visit.parts, limits))?;
        drop(message);
        let numbered = stream::is_numbered(&call);
        Ok(match visit.app.perform(&call, operation).await? {
            Performed::Sent(sent) => {
                let Sent { reply, extensions } = *sent;
                let size = match &reply {
                    Reply::Task(snapshot) => snapshot.size_hint(),
                    Reply::Direct(event) => event.body.len(),
                };
                let answer = heavy(size, || Ok::<_, Error>(answer::message(&sent_of(reply)?.into_message())))?;
                reply::with_extensions(answer, &extensions)
            }
            Performed::Task(snapshot) => heavy(snapshot.size_hint(), || {
                let task = encode::typed(&snapshot)?;
                drop(snapshot);
                Ok::<_, Error>(answer::message(&task.into_message()))
            })?,
            Performed::Listing(found) => {
                let size = found.tasks.iter().map(Snapshot::size_hint).sum();
                heavy(size, || Ok::<_, Error>(answer::message(&listing(found)?.into_message())))?
            }
            Performed::Stream(frames) => {
                let extensions = frames.extensions.clone();
                reply::with_extensions(stream::events(*frames, numbered), &extensions)
            }
            Performed::Push(config, extensions) => {
                reply::with_extensions(answer::message(&config.into_message()), &extensions)
            }
            Performed::Pushes(page) => answer::message(&page.into_message()),
            Performed::Done => answer::message(&()),
            Performed::Card(card) => {
                let card: AgentCard = a2a::decode(&card.bytes)?;
                answer::message(&card.into_message())
            }
        })
    }

    fn mark(headers: &mut HeaderMap) {
        answer::mark(headers);
    }

    fn refuse(parts: &Parts, error: &Error) -> Response {
        call::refuse(parts, error)
    }
}

/// The lists of a message to send, and the numbers of the fields that lead to them.
const LISTS: [(&str, &[u32]); 4] = [
    ("message.parts", &[2, 5]),
    ("message.extensions", &[2, 7]),
    ("message.referenceTaskIds", &[2, 8]),
    ("configuration.acceptedOutputModes", &[3, 1]),
];

/// A message to send. Its lists are counted before they are made: of two bytes each, more would fit than there is memory for.
fn sent(message: Bytes, limits: &Limits) -> Result<SendMessageRequest, Error> {
    for (path, numbers) in LISTS {
        a2a::validate::validate_count(path, grpc::entries(&message, numbers), limits)?;
    }
    grpc::decode(message)
}

fn operation(app: &App, method: Method, message: Bytes, parts: &Parts, limits: &Limits) -> Result<Operation, Error> {
    Ok(match method {
        Method::SendMessage => Operation::Send(Box::new(sent(message, limits)?)),
        Method::SendStreamingMessage => Operation::Stream(Box::new(sent(message, limits)?)),
        Method::GetTask => Operation::Get(grpc::decode(message)?),
        Method::ListTasks => Operation::List(Box::new(grpc::decode(message)?)),
        Method::CancelTask => Operation::Cancel(grpc::decode(message)?),
        Method::SubscribeToTask => {
            Operation::Subscribe(grpc::decode(message)?, headers::cursor_in_metadata(&parts.headers)?)
        }
        Method::CreateTaskPushNotificationConfig => Operation::CreatePush(Box::new(grpc::decode(message)?)),
        Method::GetTaskPushNotificationConfig => Operation::GetPush(grpc::decode(message)?),
        Method::ListTaskPushNotificationConfigs => Operation::ListPush(grpc::decode(message)?),
        Method::DeleteTaskPushNotificationConfig => Operation::DeletePush(grpc::decode(message)?),
        Method::GetExtendedAgentCard => {
            let request: GetExtendedAgentCardRequest = grpc::decode(message)?;
            Operation::ExtendedCard { tenant: request.tenant, base: app.local_base(parts) }
        }
    })
}

fn sent_of(reply: Reply) -> Result<SendMessageResponse, Error> {
    Ok(match reply {
        Reply::Task(snapshot) => SendMessageResponse::Task(encode::typed(&snapshot)?),
        Reply::Direct(event) => {
            let event = event.response().map_err(|cause| encode::unreadable(&cause))?;
            SendMessageResponse::Message(stream::direct(event)?)
        }
    })
}

fn listing(found: Listing) -> Result<ListTasksResponse, Error> {
    Ok(ListTasksResponse {
        // Each goes when it has been read.
        tasks: found.tasks.into_iter().map(|task| encode::typed(&task)).collect::<Result<_, _>>()?,
        next_page_token: found.next_page_token,
        page_size: found.page_size,
        total_size: i32::try_from(found.total).unwrap_or(i32::MAX),
    })
}
