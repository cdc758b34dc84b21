//! Load on one agent: prepared requests over bare keep-alive connections, for `sb bench`.
//!
//! A load generator shares its machine with what it measures, so every cycle it saves is one it does not take from the
//! result: requests are encoded once and only their message id changes, and there is no pool, no redirect and
//! no TLS. It belongs beside [`crate::egress`] because outbound connections are opened in this crate alone; the
//! product's own calls never go this way.

use std::net::SocketAddr;

use a2a::{
    CancelTaskRequest, GetTaskRequest, ListTasksRequest, SendMessageConfiguration, SendMessageRequest,
    SubscribeToTaskRequest, error::RemoteError,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header, request};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json, value::RawValue};
use tokio::net::TcpStream;

use crate::{
    Binding, Connector, Dialect, Discovered, Error, Limits, Secret,
    binding::{Choice, Endpoint, Operation, Outbound, choose},
    client::version_header,
    egress, grpc,
    sse::Event,
    stream::Reader,
    user_message,
};

/// How many digits of a message id count the messages of a run.
const DIGITS: usize = 16;

/// An agent to put load on.
#[derive(Debug)]
pub struct Target {
    endpoint: Endpoint,
    token: Option<Secret>,
    address: SocketAddr,
    authority: HeaderValue,
}

/// What to ask for, again and again.
#[derive(Debug, Clone, Copy)]
pub enum Work<'a> {
    /// Send a text and wait for the end of the turn.
    Send(&'a str),
    /// Send a text and have the task at once.
    SendAndGo(&'a str),
    /// Send a text and follow the turn.
    Stream(&'a str),
    /// Get a task by its id.
    Get(&'a str),
    /// The first page of the caller's tasks.
    List,
    /// Follow a task.
    Subscribe(&'a str),
    /// Cancel a task.
    Cancel(&'a str),
    /// Put a text into a queue of a Switchboard.
    Publish {
        /// Whose.
        queue: &'a str,
        /// What.
        text: &'a str,
    },
    /// Take an entry of a queue, as soon as there is one.
    Consume {
        /// Whose.
        queue: &'a str,
        /// For how many seconds to wait.
        wait: u32,
    },
    /// Say that an entry is done.
    Ack {
        /// Which.
        entry: &'a str,
        /// The lease that came with it.
        lease: &'a str,
        /// What came of it.
        result: &'a str,
    },
}

/// A request that is encoded but for the number of its message.
#[derive(Debug)]
pub struct Prepared {
    head: request::Parts,
    body: Vec<u8>,
    /// Where the digits of the message's number are.
    digits_at: Option<usize>,
    /// It is answered with a stream.
    streams: bool,
    /// What comes of it is looked at.
    sends: bool,
    /// How it is answered.
    binding: Binding,
}

/// One keep-alive connection.
#[derive(Debug)]
pub struct Lane {
    sender: Sender,
    origin: String,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// Takes the events of a stream apart.
#[derive(Debug)]
pub struct Events(Reader);

/// An answer whose body has not been read.
#[derive(Debug)]
pub struct Unread {
    /// The status.
    pub status: StatusCode,
    /// Its body is a stream of events.
    pub is_stream: bool,
    binding: Binding,
    sends: bool,
    headers: HeaderMap,
    trailers: HeaderMap,
    body: Incoming,
    origin: String,
}

impl Target {
    /// The agent that a card describes, if it speaks A2A 1.0 over plain HTTP.
    pub async fn new(
        connector: &Connector,
        found: &Discovered,
        binding: Option<Binding>,
        token: Option<Secret>,
        allow_foreign_interface: bool,
    ) -> Result<Self, Error> {
        let mut endpoint = choose(found, Choice { binding, ..Choice::default() })?;
        connector.localize(&found.url, &mut endpoint);
        let shown = egress::shown(&endpoint.url);
        if !allow_foreign_interface && !endpoint.is_at(&found.url) {
            return Err(Error::ForeignInterface { card: egress::shown(&found.url), interface: shown });
        }
        let refuse = |reason: &str| Error::Url { url: shown.clone(), reason: reason.to_owned() };
        if endpoint.dialect != Dialect::V1 {
            return Err(Error::NoInterface);
        }
        if endpoint.url.scheme() != "http" {
            return Err(refuse("load is put on plain http:// only, so that it does not measure TLS"));
        }
        let (Some(host), Some(port)) = (endpoint.url.host_str(), endpoint.url.port_or_known_default()) else {
            return Err(refuse("it has no host"));
        };
        let host = host.to_owned();
        let authority =
            HeaderValue::from_str(&format!("{host}:{port}")).map_err(|_| refuse("its host is no header"))?;
        let origin = endpoint.url.origin().ascii_serialization();
        let unreachable = |source: std::io::Error| Error::Unreachable { origin: origin.clone(), source: source.into() };
        let mut addresses =
            tokio::net::lookup_host((host.trim_matches(['[', ']']), port)).await.map_err(unreachable)?;
        let address = addresses.next().ok_or_else(|| refuse("its host has no address"))?;
        Ok(Self { endpoint, token, address, authority })
    }

    /// The binding in use.
    pub fn binding(&self) -> Binding {
        self.endpoint.binding
    }

    /// Who is called, for people.
    pub fn shown(&self) -> String {
        egress::shown(&self.endpoint.url)
    }

    /// Encodes a request once. `run` makes the message ids of this run differ from those of every other.
    pub fn prepare(&self, run: &str, work: Work<'_>) -> Result<Prepared, Error> {
        let tenant = self.endpoint.tenant.clone();
        let placeholder = format!("{run}-{:0DIGITS$}", 0);
        let message = |text: &str, return_immediately: bool| {
            let configuration =
                return_immediately.then(|| SendMessageConfiguration { return_immediately, ..Default::default() });
            SendMessageRequest { tenant: tenant.clone(), configuration, ..user_message(placeholder.clone(), text) }
        };
        let outbound = match work {
            Work::Send(text) => self.endpoint.encode(Operation::Send(&message(text, false))),
            Work::SendAndGo(text) => self.endpoint.encode(Operation::Send(&message(text, true))),
            Work::Stream(text) => self.endpoint.encode(Operation::Stream(&message(text, false))),
            Work::Get(id) => {
                let request = GetTaskRequest { tenant, id: id.to_owned(), history_length: None };
                self.endpoint.encode(Operation::Get(&request))
            }
            Work::List => {
                let request = ListTasksRequest { tenant, page_size: Some(50), ..ListTasksRequest::default() };
                self.endpoint.encode(Operation::List(&request))
            }
            Work::Subscribe(id) => {
                let request = SubscribeToTaskRequest { tenant, id: id.to_owned() };
                self.endpoint.encode(Operation::Subscribe(&request))
            }
            Work::Cancel(id) => {
                let request = CancelTaskRequest { tenant, id: id.to_owned(), ..CancelTaskRequest::default() };
                self.endpoint.encode(Operation::Cancel(&request))
            }
            Work::Publish { queue, text } => {
                self.queue(&["publish"], &json!({ "from": format!("bench-{run}"), "to": queue, "text": text }))
            }
            Work::Consume { queue, wait } => self.queue(&[queue, "consume"], &json!({ "wait": wait })),
            Work::Ack { entry, lease, result } => {
                self.queue(&["messages", entry, "ack"], &json!({ "lease": lease, "result": result }))
            }
        }?;
        let accept = match work {
            Work::Stream(_) | Work::Subscribe(_) => "text/event-stream",
            _ => "application/json, application/a2a+json",
        };
        let body = outbound.body.unwrap_or_default();
        let digits_at = body
            .windows(placeholder.len())
            .position(|window| window == placeholder.as_bytes())
            .map(|start| start + placeholder.len() - DIGITS);
        let path = &outbound.url[url::Position::BeforePath..url::Position::AfterQuery];
        // The queue has routes of its own, which are plain HTTP and JSON whatever the agent speaks.
        let is_of_queue = matches!(work, Work::Publish { .. } | Work::Consume { .. } | Work::Ack { .. });
        let binding = if is_of_queue { Binding::Rest } else { self.endpoint.binding };
        let mut request = http::Request::builder().method(outbound.method);
        if binding == Binding::Grpc {
            request = request.uri(outbound.url.as_str());
            for (name, value) in grpc::metadata(Dialect::V1) {
                request = request.header(name, value);
            }
        } else {
            let host = self.authority.clone();
            request = request.uri(path).header(header::HOST, host).header(header::ACCEPT, accept);
        }
        if let Some(media_type) = outbound.media_type {
            request = request.header(header::CONTENT_TYPE, media_type);
        }
        if let Some((name, value)) = self.endpoint.version.map(version_header) {
            request = request.header(name, value);
        }
        if let Some(token) = &self.token {
            let bearer = HeaderValue::from_str(&format!("Bearer {}", token.expose())).map_err(|_| Error::Token)?;
            request = request.header(header::AUTHORIZATION, bearer);
        }
        let (head, ()) = request.body(()).map_err(|error| Error::Setup(Box::new(error)))?.into_parts();
        let streams = matches!(work, Work::Stream(_) | Work::Subscribe(_));
        let sends = matches!(work, Work::Send(_) | Work::SendAndGo(_));
        Ok(Prepared { head, body, digits_at, streams, sends, binding })
    }

    /// A call of the queue, which is where the agent is.
    fn queue(&self, path: &[&str], body: &Value) -> Result<Outbound, Error> {
        if self.endpoint.binding == Binding::Grpc {
            return Err(Error::NoInterface);
        }
        let mut url = self.endpoint.url.clone();
        url.set_query(None);
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.clear().extend(["v1", "queue"]).extend(path);
        }
        let media_type = Some("application/json");
        Ok(Outbound { method: Method::POST, url, media_type, body: Some(body.to_string().into_bytes()) })
    }

    /// Opens a connection.
    pub async fn connect(&self) -> Result<Lane, Error> {
        let origin = self.endpoint.url.origin().ascii_serialization();
        let unreachable = |source: std::io::Error| Error::Unreachable { origin: origin.clone(), source: source.into() };
        let stream = TcpStream::connect(self.address).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let (io, binding) = (TokioIo::new(egress::Bounded::new(stream)), self.endpoint.binding);
        // What breaks a connection is told to whoever waits for an answer.
        let sender = if binding == Binding::Grpc {
            let opened = http2::handshake(TokioExecutor::new(), io).await;
            let (sender, connection) = opened.map_err(|error| broken(error, &origin))?;
            tokio::spawn(connection);
            Sender::Http2(sender)
        } else {
            let (sender, connection) = http1::handshake(io).await.map_err(|error| broken(error, &origin))?;
            tokio::spawn(connection);
            Sender::Http1(sender)
        };
        Ok(Lane { sender, origin })
    }

    /// What takes the streams of this agent apart.
    pub fn events(&self) -> Events {
        Events(Reader::of(self.endpoint.binding, self.endpoint.dialect, Limits::default().event_cap))
    }
}

impl Prepared {
    /// How many bytes its body has.
    pub fn body_bytes(&self) -> usize {
        self.body.len()
    }

    fn request(&self, number: u64) -> http::Request<Full<Bytes>> {
        let mut body = self.body.clone();
        if let Some(start) = self.digits_at {
            let mut rest = number;
            for digit in body[start..start + DIGITS].iter_mut().rev() {
                *digit = b"0123456789"[(rest % 10) as usize];
                rest /= 10;
            }
        }
        http::Request::from_parts(self.head.clone(), Full::new(Bytes::from(body)))
    }
}

impl Lane {
    /// Sends a request with the message of this number, and waits for the answer's headers.
    pub async fn call(&mut self, prepared: &Prepared, number: u64) -> Result<Unread, Error> {
        let request = prepared.request(number);
        let sent = match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await.map_err(|error| broken(error, &self.origin))?;
                sender.send_request(request).await
            }
            Sender::Http2(sender) => {
                sender.ready().await.map_err(|error| broken(error, &self.origin))?;
                sender.send_request(request).await
            }
        };
        let (head, body) = sent.map_err(|error| broken(error, &self.origin))?.into_parts();
        let media_type = head.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
        let is_stream = head.status.is_success()
            && match prepared.binding {
                Binding::Grpc => prepared.streams && !head.headers.contains_key("grpc-status"),
                Binding::JsonRpc | Binding::Rest => media_type.starts_with(b"text/event-stream"),
            };
        Ok(Unread {
            status: head.status,
            is_stream,
            binding: prepared.binding,
            sends: prepared.sends,
            headers: head.headers,
            trailers: HeaderMap::new(),
            body,
            origin: self.origin.clone(),
        })
    }
}

impl Unread {
    /// The next piece of the body. `None` at its end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| broken(error, &self.origin))?;
            match frame.into_data() {
                Ok(data) => return Ok(Some(data)),
                Err(frame) => self.trailers.extend(frame.into_trailers().unwrap_or_default()),
            }
        }
        // Only gRPC says at the end whether it worked.
        if self.binding == Binding::Grpc && self.status.is_success() {
            grpc::verdict(&self.headers, &self.trailers)?;
        }
        Ok(None)
    }

    /// Reads the whole body into a buffer, in place of what was there.
    pub async fn read(&mut self, buffer: &mut Vec<u8>) -> Result<(), Error> {
        buffer.clear();
        while let Some(chunk) = self.chunk().await? {
            buffer.extend_from_slice(&chunk);
        }
        Ok(())
    }

    /// The result in a whole answer, or the error that it is.
    pub fn decode(&self, body: &[u8]) -> Result<Box<RawValue>, Error> {
        let status = self.status.as_u16();
        if self.binding != Binding::Grpc {
            return self.binding.decode(status, body);
        }
        if !self.status.is_success() {
            return Err(Error::told(status, RemoteError::from_status_body(status, body)));
        }
        // Of what is not looked at it is enough that it came.
        let json = if self.sends { grpc::outline(body)? } else { "{}".to_owned() };
        self.binding.decode(status, json.as_bytes())
    }

    /// The result in one event of a stream.
    pub fn decode_event(&self, data: &str) -> Result<Box<RawValue>, Error> {
        self.binding.decode_frame(data)
    }
}

impl Events {
    /// Reads a chunk and adds the events that it completes to `events`.
    pub fn feed(&mut self, chunk: &[u8], events: &mut Vec<Event>) -> Result<(), Error> {
        self.0.feed(chunk, events)
    }
}

fn broken(error: hyper::Error, origin: &str) -> Error {
    Error::Unreachable { origin: origin.to_owned(), source: Box::new(error) }
}

#[cfg(test)]
mod tests {
    use a2a::{AgentCard, AgentInterface};

    use super::*;
    use crate::Policy;

    async fn target(binding: Binding, url: &str) -> Result<Target, Error> {
        let interface = AgentInterface {
            url: url.to_owned(),
            protocol_binding: binding.as_str().to_owned(),
            protocol_version: "1.0".to_owned(),
            tenant: String::new(),
        };
        let found = Discovered {
            url: crate::parse_url(url).unwrap(),
            card: AgentCard { supported_interfaces: vec![interface], ..AgentCard::default() },
            protocol_version: None,
            json: Bytes::new(),
        };
        Target::new(&Connector::new(Policy::Operator, Limits::default()), &found, Some(binding), None, false).await
    }

    async fn body(prepared: &Prepared, number: u64) -> String {
        let bytes = prepared.request(number).into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn only_the_number_of_the_message_changes() {
        let target = target(Binding::JsonRpc, "http://127.0.0.1:1/rpc").await.unwrap();
        let prepared = target.prepare("run", Work::Send("hello")).unwrap();
        let (first, last) = (body(&prepared, 7).await, body(&prepared, 9_999_999_999_999_999).await);
        assert!(first.contains(r#""messageId":"run-0000000000000007""#), "{first}");
        assert_eq!(first.replace("run-0000000000000007", "run-9999999999999999"), last);
        assert_eq!(prepared.head.uri.path(), "/rpc");
        assert_eq!(prepared.head.headers[header::HOST], "127.0.0.1:1");
    }

    #[tokio::test]
    async fn other_requests_are_sent_as_they_are() {
        let target = target(Binding::Rest, "http://127.0.0.1:1/a2a").await.unwrap();
        let prepared = target.prepare("run", Work::Get("t-1")).unwrap();
        assert_eq!(prepared.head.uri, "/a2a/tasks/t-1");
        assert_eq!(body(&prepared, 3).await, "");
        let listed = target.prepare("run", Work::List).unwrap();
        assert_eq!(listed.head.uri, "/a2a/tasks?pageSize=50");
    }

    #[tokio::test]
    async fn the_queue_is_where_the_agent_is() {
        let target = target(Binding::JsonRpc, "http://127.0.0.1:1/a2a/jsonrpc?x=y").await.unwrap();
        let publish = target.prepare("run", Work::Publish { queue: "jobs", text: "hello" }).unwrap();
        assert_eq!(publish.head.uri, "/v1/queue/publish");
        assert_eq!(body(&publish, 3).await, r#"{"from":"bench-run","text":"hello","to":"jobs"}"#);
        let consume = target.prepare("run", Work::Consume { queue: "jobs", wait: 5 }).unwrap();
        assert_eq!(
            (consume.head.uri.path(), body(&consume, 3).await.as_str()),
            ("/v1/queue/jobs/consume", r#"{"wait":5}"#)
        );
        let ack = target.prepare("run", Work::Ack { entry: "e-1", lease: "l", result: "x" }).unwrap();
        assert_eq!(ack.head.uri, "/v1/queue/messages/e-1/ack");
        assert_eq!(body(&ack, 3).await, r#"{"lease":"l","result":"x"}"#);
    }

    #[tokio::test]
    async fn tls_is_not_measured() {
        assert!(matches!(target(Binding::JsonRpc, "https://127.0.0.1:1/").await, Err(Error::Url { .. })));
    }
}
