//! The operations as the bindings ask for them, and what comes back before it has a form.
//!
//! A binding makes an [`Operation`] of a request and an answer of what was [`Performed`]. What an operation means is the exchange's.

use a2a::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, Error, ErrorKind, GetTaskPushNotificationConfigRequest,
    GetTaskRequest, ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse, ListTasksRequest,
    PUSH_CHUNKS, SendMessageRequest, SubscribeToTaskRequest, TaskPushNotificationConfig,
};
use bytes::Bytes;
use exchange::{Call, Frames, Listing, Sent};
use store::Snapshot;

use crate::{app::App, encode, reply::Tagged};

/// What is asked for.
#[derive(Debug)]
pub(crate) enum Operation {
    Send(Box<SendMessageRequest>),
    Stream(Box<SendMessageRequest>),
    Get(GetTaskRequest),
    List(Box<ListTasksRequest>),
    Cancel(CancelTaskRequest),
    Subscribe(SubscribeToTaskRequest, Option<u64>),
    CreatePush(Box<TaskPushNotificationConfig>),
    GetPush(GetTaskPushNotificationConfigRequest),
    ListPush(ListTaskPushNotificationConfigsRequest),
    DeletePush(DeleteTaskPushNotificationConfigRequest),
    /// The extended card of the agent that is named, or the gateway's.
    ExtendedCard {
        tenant: String,
        /// What its URLs begin with, where that is not the configured one.
        base: Option<String>,
    },
}

/// What comes back.
pub(crate) enum Performed {
    /// Of a send.
    Sent(Box<Sent>),
    /// Of whatever is about one task.
    Task(Box<Snapshot>),
    /// Of a list.
    Listing(Listing),
    /// Events.
    Stream(Box<Frames>),
    /// A push notification configuration, and the extensions that it was made with.
    Push(Box<TaskPushNotificationConfig>, Vec<String>),
    /// A page of them.
    Pushes(ListTaskPushNotificationConfigsResponse),
    /// Nothing to tell but that it is done.
    Done,
    /// A card.
    Card(Tagged),
}

/// An answer that is one piece of JSON, or not.
pub(crate) enum Encoded {
    /// A response message of the protocol, and the extensions that are active.
    Json(Bytes, Vec<String>),
    Stream(Box<Frames>),
    Card(Tagged),
}

impl Performed {
    /// The answer in 1.0.
    pub(crate) fn encode(self) -> Result<Encoded, Error> {
        Ok(match self {
            Self::Sent(sent) => Encoded::Json(encode::reply(&sent.reply)?, sent.extensions),
            Self::Task(snapshot) => Encoded::Json(encode::task(&snapshot)?, Vec::new()),
            Self::Listing(listing) => Encoded::Json(encode::listing(&listing)?, Vec::new()),
            Self::Stream(frames) => Encoded::Stream(frames),
            Self::Push(config, extensions) => Encoded::Json(encode::push(&config)?, extensions),
            Self::Pushes(page) => Encoded::Json(encode::pushes(&page)?, Vec::new()),
            Self::Done => Encoded::Json(Bytes::from_static(b"{}"), Vec::new()),
            Self::Card(card) => Encoded::Card(card),
        })
    }
}

impl App {
    /// Carries an operation out.
    pub(crate) async fn perform(&self, call: &Call, operation: Operation) -> Result<Performed, Error> {
        let exchange = &self.exchange;
        match operation {
            Operation::Send(request) => Ok(Performed::Sent(Box::new(exchange.send(call, *request).await?))),
            Operation::Stream(request) => Ok(Performed::Stream(Box::new(exchange.stream(call, *request).await?))),
            Operation::Get(request) => Ok(Performed::Task(Box::new(exchange.get(call, request).await?))),
            Operation::List(request) => Ok(Performed::Listing(exchange.list(call, *request).await?)),
            Operation::Cancel(request) => Ok(Performed::Task(Box::new(exchange.cancel(call, request).await?))),
            Operation::Subscribe(request, after) => {
                Ok(Performed::Stream(Box::new(exchange.subscribe(call, request, after).await?)))
            }
            Operation::CreatePush(config) => {
                let config = exchange.create_push(call, *config).await?;
                // The one extension that means something to a configuration.
                let extensions = call.extensions.iter().filter(|uri| *uri == PUSH_CHUNKS).cloned().collect();
                Ok(Performed::Push(Box::new(config), extensions))
            }
            Operation::GetPush(request) => {
                Ok(Performed::Push(Box::new(exchange.get_push(call, request).await?), Vec::new()))
            }
            Operation::ListPush(request) => Ok(Performed::Pushes(exchange.list_push(call, request).await?)),
            Operation::DeletePush(request) => {
                exchange.delete_push(call, request).await?;
                Ok(Performed::Done)
            }
            Operation::ExtendedCard { .. } if !self.cards.are_extended() => Err(Error::new(
                ErrorKind::UnsupportedOperation,
                "nobody authenticates here, so there is no extended card; the public ones say it all",
            )),
            Operation::ExtendedCard { tenant, base } => {
                let cards = self.cards.reached_at(base);
                let card = match exchange.target(call, &tenant)? {
                    Some(entry) => cards.agent(&entry.profile).await?,
                    None => cards.extended(exchange.agents(), &call.caller).await?,
                };
                Ok(Performed::Card(card))
            }
        }
    }
}
