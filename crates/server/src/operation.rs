//! The operations as the bindings ask for them, and what comes back before it has a form.
//!
//! A binding makes an [`Operation`] of a request and an answer of what was [`Performed`]. What an operation means is the exchange's.

use a2a::{
    CancelTaskRequest, Error, ErrorKind, GetTaskRequest, ListTasksRequest, SendMessageRequest, SubscribeToTaskRequest,
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
    /// Any of the four operations on push notification configurations.
    PushConfig,
    /// The extended card of the agent that is named, or the gateway's.
    ExtendedCard {
        tenant: String,
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
            Operation::PushConfig => {
                exchange.target(call, "")?;
                Err(Error::new(ErrorKind::PushNotificationNotSupported, "push notifications are not supported"))
            }
            Operation::ExtendedCard { .. } if !self.cards.are_extended() => Err(Error::new(
                ErrorKind::UnsupportedOperation,
                "nobody authenticates here, so there is no extended card; the public ones say it all",
            )),
            Operation::ExtendedCard { tenant } => {
                let card = match exchange.target(call, &tenant)? {
                    Some(entry) => self.cards.agent(&entry.profile).await?,
                    None => self.cards.extended(exchange.agents(), &call.caller).await?,
                };
                Ok(Performed::Card(card))
            }
        }
    }
}
