//! The operations as the bindings ask for them, and what comes back before it has a form.
//!
//! A binding makes an [`Operation`] of a request and an answer of an [`Answer`]. What an operation means is the exchange's.

use a2a::{
    CancelTaskRequest, Error, ErrorKind, GetTaskRequest, ListTasksRequest, SendMessageRequest, SubscribeToTaskRequest,
};
use bytes::Bytes;
use exchange::{Call, Frames};

use crate::{
    app::App,
    reply::{self, Tagged},
};

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
pub(crate) enum Answer {
    /// The JSON of the protocol's response message.
    Json { body: Bytes, extensions: Vec<String> },
    /// Events.
    Stream(Box<Frames>),
    /// A card.
    Card(Tagged),
}

impl App {
    /// Carries an operation out.
    pub(crate) async fn perform(&self, call: &Call, operation: Operation) -> Result<Answer, Error> {
        let exchange = &self.exchange;
        let plain = |body: Bytes| Answer::Json { body, extensions: Vec::new() };
        match operation {
            Operation::Send(request) => {
                let sent = exchange.send(call, *request).await?;
                Ok(Answer::Json { body: sent.body, extensions: sent.extensions })
            }
            Operation::Stream(request) => Ok(Answer::Stream(Box::new(exchange.stream(call, *request).await?))),
            Operation::Get(request) => Ok(plain(reply::task_json(&exchange.get(call, request).await?)?)),
            Operation::List(request) => Ok(plain(exchange.list(call, *request).await?.body)),
            Operation::Cancel(request) => Ok(plain(reply::task_json(&exchange.cancel(call, request).await?)?)),
            Operation::Subscribe(request, after) => {
                Ok(Answer::Stream(Box::new(exchange.subscribe(call, request, after).await?)))
            }
            Operation::PushConfig => {
                exchange.target(call, "")?;
                Err(Error::new(ErrorKind::PushNotificationNotSupported, "push notifications are not supported"))
            }
            Operation::ExtendedCard { tenant } => {
                let card = match exchange.target(call, &tenant)? {
                    Some(entry) => self.cards.agent(&entry.profile)?,
                    None => self.cards.extended(exchange.agents(), &call.caller)?,
                };
                Ok(Answer::Card(card))
            }
        }
    }
}
