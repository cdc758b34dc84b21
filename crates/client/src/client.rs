//! The operations of an agent that was found by its card.

use a2a::grpc::Wire;
use a2a::{
    AgentCard, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse, ListTasksRequest, ListTasksResponse, Message, Part, Role,
    SendMessageRequest, SendMessageResponse, SubscribeToTaskRequest, Task, TaskPushNotificationConfig,
};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::value::RawValue;
use url::Url;

pub use a2a::Dialect;

pub use crate::binding::{Binding, Order};
use crate::{
    Connector, Credential, Discovered, Error, EventStream, Resume, Trust,
    binding::{Choice, Endpoint, Form, Operation, Outbound, choose},
    discovery, egress,
    egress::{Request, Response},
    grpc,
    heavy::heavy,
    stream::{Reader, Until, as_answer},
    v03::{self, FromV03},
};

/// How to call an agent.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// What to authenticate with.
    pub credential: Option<Credential>,
    /// Said with every call. A header of these takes the place of one that the client would say by itself, `A2A-Version` for example.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The extensions to ask for, by their URIs.
    pub extensions: Vec<String>,
    /// This binding and no other.
    pub binding: Option<Binding>,
    /// Which of a card's interfaces is taken.
    pub order: Order,
    /// Where the agent is, whatever its card says: the operator's word. A JSON-RPC interface is called at exactly this URL, one of HTTP+JSON
    /// at its path there, one of gRPC at its port there.
    pub at: Option<Url>,
    /// Follow a card to another origin. The token goes there, too. With `at` no card leads anywhere else.
    pub allow_foreign_interface: bool,
    /// How a cut stream is taken up again.
    pub resume: Resume,
    /// Whose cards are believed.
    pub trust: Trust,
}

/// An agent to call. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    connector: Connector,
    endpoint: Endpoint,
    streams: bool,
    pushes: bool,
    resumes: bool,
    options: Options,
}

/// An answer, as a value and as it came.
#[derive(Debug, Clone)]
pub struct Received<T> {
    /// What it says.
    pub value: T,
    /// The JSON as the other side wrote it.
    pub json: Box<RawValue>,
}

/// A request with one text message from a user.
pub fn user_message(message_id: impl Into<String>, text: impl Into<String>) -> SendMessageRequest {
    let message = Message {
        message_id: message_id.into(),
        role: Role::User,
        parts: vec![Part::text(text)],
        ..Message::default()
    };
    SendMessageRequest { tenant: String::new(), message, configuration: None, metadata: None }
}

impl Client {
    /// Finds the agent at `url` and prepares to call it.
    pub async fn connect(connector: Connector, url: &Url, options: Options) -> Result<Self, Error> {
        let found = options.trust.admit(discovery::discover_with(&connector, url, &options).await?)?;
        Self::from_card(connector, &found, options)
    }

    /// Prepares to call the agent that a card describes.
    pub fn from_card(connector: Connector, found: &Discovered, options: Options) -> Result<Self, Error> {
        let choice = Choice { binding: options.binding, order: options.order, at: options.at.as_ref() };
        let mut endpoint = choose(found, choice)?;
        connector.localize(&found.url, &mut endpoint);
        if options.at.is_none() && !options.allow_foreign_interface && !endpoint.is_at(&found.url) {
            return Err(Error::ForeignInterface {
                card: egress::shown(&found.url),
                interface: egress::shown(&endpoint.url),
            });
        }
        let can = &found.card.capabilities;
        let streams = can.streaming == Some(true);
        let pushes = can.push_notifications == Some(true);
        let resumes = can.extensions.iter().any(|extension| extension.uri == a2a::RESUME_CURSOR);
        Ok(Self { connector, endpoint, streams, pushes, resumes, options })
    }

    /// An agent whose card could not be had: JSON-RPC at this URL, in this dialect. Of an agent of 0.3 nobody knows then which versions it
    /// refuses, so that it is told one only by the headers of `options`.
    pub fn without_card(connector: Connector, at: Url, dialect: Dialect, options: Options) -> Self {
        let version = (dialect == Dialect::V1).then_some(a2a::PROTOCOL_VERSION);
        let endpoint = Endpoint { binding: Binding::JsonRpc, dialect, version, url: at, tenant: String::new() };
        Self { connector, endpoint, streams: false, pushes: false, resumes: false, options }
    }

    /// The same agent, called with further headers. One that is said already is said anew.
    #[must_use]
    pub fn with_headers(&self, more: Vec<(HeaderName, HeaderValue)>) -> Self {
        let mut client = self.clone();
        set(&mut client.options.headers, more);
        client
    }

    /// The same agent, asked to activate further extensions.
    #[must_use]
    pub fn with_extensions(&self, uris: &[String]) -> Self {
        let mut client = self.clone();
        let known = &mut client.options.extensions;
        known.extend(uris.iter().filter(|uri| !self.options.extensions.contains(uri)).cloned());
        client
    }

    /// The binding in use.
    pub fn binding(&self) -> Binding {
        self.endpoint.binding
    }

    /// The generation of the protocol that the agent speaks.
    pub fn dialect(&self) -> Dialect {
        self.endpoint.dialect
    }

    /// Whether the card says that the agent streams.
    pub fn streams(&self) -> bool {
        self.streams
    }

    /// Whether the card says that the agent notifies webhooks.
    pub fn pushes(&self) -> bool {
        self.pushes
    }

    /// Whether the card says that events have numbers to take up a stream after: it is a server like ours.
    pub fn resumes(&self) -> bool {
        self.resumes
    }

    /// Sends a message and waits for the answer.
    pub async fn send(&self, mut request: SendMessageRequest) -> Result<Received<SendMessageResponse>, Error> {
        self.fill(&mut request.tenant);
        self.call(Operation::Send(&request)).await
    }

    /// Sends a message and follows what happens. A cut stream is taken up again as [`Resume`] says.
    pub async fn stream(&self, mut request: SendMessageRequest) -> Result<EventStream, Error> {
        self.fill(&mut request.tenant);
        let response = self.open(Operation::Stream(&request), None).await?;
        Ok(EventStream::new(self.clone(), response, Until::TurnEnds, String::new(), None))
    }

    /// A task as it is.
    pub async fn get(&self, mut request: GetTaskRequest) -> Result<Received<Task>, Error> {
        self.fill(&mut request.tenant);
        self.call(Operation::Get(&request)).await
    }

    /// A task as it is, as the answer to a message that it might have been.
    pub async fn answer(&self, request: GetTaskRequest) -> Result<Received<SendMessageResponse>, Error> {
        let task = self.get(request).await?;
        let json = as_answer(self.form(), task.json)?;
        Ok(Received { value: SendMessageResponse::Task(task.value), json })
    }

    /// A page of the caller's tasks.
    pub async fn list(&self, mut request: ListTasksRequest) -> Result<Received<ListTasksResponse>, Error> {
        self.fill(&mut request.tenant);
        self.call(Operation::List(&request)).await
    }

    /// Cancels a task.
    pub async fn cancel(&self, mut request: CancelTaskRequest) -> Result<Received<Task>, Error> {
        self.fill(&mut request.tenant);
        self.call(Operation::Cancel(&request)).await
    }

    /// Follows a task until it ends, after the event with the id `after` when there is one.
    pub async fn subscribe(
        &self,
        request: SubscribeToTaskRequest,
        after: Option<String>,
    ) -> Result<EventStream, Error> {
        let task = request.id.clone();
        let response = self.resubscribe(request, after.as_deref()).await?;
        Ok(EventStream::new(self.clone(), response, Until::TaskEnds, task, after))
    }

    /// Asks for notifications about a task at a webhook. The answer has the configuration's id; whether it repeats the secrets is
    /// the other side's choice.
    pub async fn create_push(
        &self,
        mut config: TaskPushNotificationConfig,
    ) -> Result<Received<TaskPushNotificationConfig>, Error> {
        self.fill(&mut config.tenant);
        self.call(Operation::CreatePush(&config)).await
    }

    /// A push notification configuration. To agents that speak 0.3 an empty id means the task's only one.
    pub async fn get_push(
        &self,
        mut request: GetTaskPushNotificationConfigRequest,
    ) -> Result<Received<TaskPushNotificationConfig>, Error> {
        self.fill(&mut request.tenant);
        self.call(Operation::GetPush(&request)).await
    }

    /// A page of a task's push notification configurations; all of them, from an agent that speaks 0.3.
    pub async fn list_push(
        &self,
        mut request: ListTaskPushNotificationConfigsRequest,
    ) -> Result<Received<ListTaskPushNotificationConfigsResponse>, Error> {
        self.fill(&mut request.tenant);
        self.call(Operation::ListPush(&request)).await
    }

    /// Ends notifications: deletes a push notification configuration.
    pub async fn delete_push(&self, mut request: DeleteTaskPushNotificationConfigRequest) -> Result<(), Error> {
        self.fill(&mut request.tenant);
        let response = self.exchange(Operation::DeletePush(&request), None, false).await?;
        if self.endpoint.binding == Binding::Grpc {
            return grpc::read(response).await;
        }
        let status = response.status.as_u16();
        self.endpoint.binding.acknowledged(status, &response.bytes().await?)
    }

    /// The card for callers who have authenticated.
    pub async fn extended_card(&self) -> Result<Received<AgentCard>, Error> {
        let mut request = GetExtendedAgentCardRequest { tenant: String::new() };
        self.fill(&mut request.tenant);
        self.call(Operation::ExtendedCard(&request)).await
    }

    pub(crate) fn resume(&self) -> &Resume {
        &self.options.resume
    }

    pub(crate) fn form(&self) -> Form {
        self.endpoint.form()
    }

    /// What takes the streams of this agent apart.
    pub(crate) fn reader(&self) -> Reader {
        Reader::of(self.endpoint.binding, self.endpoint.dialect, self.connector.limits().event_cap)
    }

    /// Who is called, for people.
    pub(crate) fn origin(&self) -> String {
        self.endpoint.url.origin().ascii_serialization()
    }

    pub(crate) async fn resubscribe(
        &self,
        mut request: SubscribeToTaskRequest,
        after: Option<&str>,
    ) -> Result<Response, Error> {
        self.fill(&mut request.tenant);
        self.open(Operation::Subscribe(&request), after).await
    }

    /// A request that names no tenant means the one of the interface.
    fn fill(&self, tenant: &mut String) {
        if tenant.is_empty() {
            self.endpoint.tenant.clone_into(tenant);
        }
    }

    async fn call<T: FromV03 + Wire + Serialize>(&self, operation: Operation<'_>) -> Result<Received<T>, Error> {
        let response = self.exchange(operation, None, false).await?;
        let malformed = |error: serde_json::Error| Error::Malformed(error.to_string());
        let json = match (self.endpoint.binding, self.endpoint.dialect) {
            (Binding::Grpc, Dialect::V1) => {
                let value: T = grpc::read(response).await?;
                let json = serde_json::value::to_raw_value(&value).map_err(malformed)?;
                return Ok(Received { value, json });
            }
            (Binding::Grpc, Dialect::V03) => {
                let json = v03::grpc::answer(operation, grpc::message(response).await?)?;
                RawValue::from_string(json).map_err(malformed)?
            }
            (Binding::JsonRpc | Binding::Rest, _) => {
                let status = response.status.as_u16();
                let body = response.bytes().await?;
                heavy(body.len(), || self.endpoint.binding.decode(status, &body))?
            }
        };
        read(self.endpoint.form(), json)
    }

    /// Opens a stream. Whatever is not one is an error.
    async fn open(&self, operation: Operation<'_>, after: Option<&str>) -> Result<Response, Error> {
        let response = self.exchange(operation, after, true).await?;
        if self.endpoint.binding == Binding::Grpc {
            return grpc::opened(response).await;
        }
        if response.status.is_success() && response.media_type() == "text/event-stream" {
            return Ok(response);
        }
        let status = response.status.as_u16();
        let media_type = response.media_type();
        // It is no stream, and has no more time than any other answer.
        let read = response.bytes();
        let body = match self.connector.limits().total_timeout {
            Some(after) => match tokio::time::timeout(after, read).await {
                Ok(body) => body?,
                Err(_) => return Err(Error::Timeout { origin: self.origin(), after }),
            },
            None => read.await?,
        };
        self.endpoint.binding.decode(status, &body)?;
        Err(Error::Malformed(format!("expected text/event-stream, got `{}`", a2a::error::excerpt(&media_type))))
    }

    async fn exchange(
        &self,
        operation: Operation<'_>,
        after: Option<&str>,
        streaming: bool,
    ) -> Result<Response, Error> {
        let outbound = self.endpoint.encode(operation)?;
        let is_grpc = self.endpoint.binding == Binding::Grpc;
        let accept = if streaming { "text/event-stream" } else { "application/json, application/a2a+json" };
        let mut headers = vec![(header::ACCEPT, HeaderValue::from_static(accept))];
        headers.extend(self.endpoint.version.map(version_header));
        if is_grpc {
            headers = grpc::metadata(self.endpoint.dialect);
            headers.extend(self.endpoint.version.map(version_header));
        }
        if let Some(media_type) = outbound.media_type {
            headers.push((header::CONTENT_TYPE, HeaderValue::from_static(media_type)));
        }
        // A URI that no header can carry is nobody's.
        let wanted = self.options.extensions.join(", ");
        if let Some(wanted) = HeaderValue::from_str(&wanted).ok().filter(|wanted| !wanted.is_empty()) {
            let name = if self.endpoint.dialect == Dialect::V03 { "x-a2a-extensions" } else { "a2a-extensions" };
            headers.push((HeaderName::from_static(name), wanted));
        }
        // An id that no header can carry is one that cannot be resumed from.
        if let Some(id) = after.and_then(|id| HeaderValue::from_str(id).ok()) {
            let name = if is_grpc { "after_sequence" } else { "last-event-id" };
            headers.push((HeaderName::from_static(name), id));
        }
        let Outbound { method, url, body, .. } = outbound;
        let request = Request { method, url: &url, token: None, headers, body, streaming, http2: is_grpc };
        authorized(&self.connector, request, &self.options).await
    }
}

/// Sends a request with the headers and the credential of `options`. A token that was asked for and is refused is asked for once more.
pub(crate) async fn authorized(
    connector: &Connector,
    mut request: Request<'_>,
    options: &Options,
) -> Result<Response, Error> {
    set(&mut request.headers, options.headers.clone());
    let Some(credential) = &options.credential else { return connector.send(request).await };
    let (name, value) = credential.header(connector).await?;
    let again = credential.is_renewable().then(|| request.clone());
    set(&mut request.headers, vec![(name, value.clone())]);
    let response = connector.send(request).await?;
    let Some(mut again) = again.filter(|_| is_refused(&response)) else { return Ok(response) };
    credential.forget(&value).await;
    let renewed = credential.header(connector).await?;
    set(&mut again.headers, vec![renewed]);
    connector.send(again).await
}

/// Puts headers in the place of those with the same names.
fn set(headers: &mut Vec<(HeaderName, HeaderValue)>, newer: Vec<(HeaderName, HeaderValue)>) {
    headers.retain(|(name, _)| !newer.iter().any(|(known, _)| known == name));
    headers.extend(newer);
}

/// Whether the agent does not take the credential. gRPC says so in a status of its own.
fn is_refused(response: &Response) -> bool {
    let is_grpc = response.headers.get("grpc-status").is_some_and(|status| status == "16");
    response.status == StatusCode::UNAUTHORIZED || is_grpc
}

/// Reads JSON as a type of the protocol and keeps it.
pub(crate) fn read<T: FromV03>(form: Form, json: Box<RawValue>) -> Result<Received<T>, Error> {
    let bytes = json.get().as_bytes();
    let value = heavy(bytes.len(), || {
        let strict = match form {
            Form::V1 => a2a::decode(bytes),
            Form::V03 => T::read_v03(bytes),
            Form::V03Proto => T::read_proto(bytes),
        };
        T::mend(bytes, strict).map_err(|error| Error::Malformed(error.to_string()))
    })?;
    Ok(Received { value, json })
}

pub(crate) fn version_header(version: &'static str) -> (HeaderName, HeaderValue) {
    (HeaderName::from_static("a2a-version"), HeaderValue::from_static(version))
}
