//! gRPC as any client could speak it: messages are made of JSON and become JSON by an implementation of protobuf that is not the
//! product's, and frames and trailers are looked at one by one.

use std::{pin::pin, sync::OnceLock};

use base64::Engine;
use http_body_util::BodyExt;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, SerializeOptions, prost::Message};
use reqwest::{Method, header::HeaderMap};
use serde_json::{Value, json};
use tokio::time::timeout;
use tonic_types::pb::{BadRequest, ErrorInfo, RetryInfo, Status};

use crate::{PATIENCE, TOKEN};

pub const A2A: &str = "lf.a2a.v1.A2AService";
pub const GATEWAY: &str = "secondbrain.a2a.A2AGateway";

/// A caller with its metadata.
#[derive(Clone)]
pub struct Grpc {
    http: reqwest::Client,
    base: String,
    metadata: Vec<(String, String)>,
}

/// What came back of a call.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub messages: Vec<Value>,
    /// Those at the end, or the headers where there is nothing else.
    pub trailers: HeaderMap,
}

/// A stream that is being read.
pub struct Messages {
    status: u16,
    headers: HeaderMap,
    body: reqwest::Body,
    buffer: Vec<u8>,
    message: Option<MessageDescriptor>,
    trailers: Option<HeaderMap>,
}

/// The services of the product and the well-known ones beside them.
fn pool() -> &'static DescriptorPool {
    static POOL: OnceLock<DescriptorPool> = OnceLock::new();
    POOL.get_or_init(|| DescriptorPool::decode(a2a::grpc::DESCRIPTORS).unwrap())
}

fn types(service: &str, method: &str) -> Option<(MessageDescriptor, MessageDescriptor)> {
    let service = pool().get_service_by_name(service)?;
    let method = service.methods().find(|found| found.name() == method)?;
    Some((method.input(), method.output()))
}

/// The bytes of a message that says this.
#[track_caller]
pub fn encoded(service: &str, method: &str, request: &Value) -> Vec<u8> {
    let (input, _) = types(service, method).unwrap_or_else(|| panic!("{service} has no {method}"));
    DynamicMessage::deserialize(input, request).unwrap().encode_to_vec()
}

/// What a method answers, written as protobuf would: the same for everything that means the same.
#[track_caller]
pub fn canonical(service: &str, method: &str, answer: &Value) -> Value {
    let (_, output) = types(service, method).unwrap_or_else(|| panic!("{service} has no {method}"));
    let message =
        DynamicMessage::deserialize(output.clone(), answer).unwrap_or_else(|error| panic!("{error}: {answer:#}"));
    shown(&DynamicMessage::decode(output, message.encode_to_vec().as_slice()).unwrap())
}

fn shown(message: &DynamicMessage) -> Value {
    let mut serializer = serde_json::Serializer::new(Vec::new());
    message.serialize_with_options(&mut serializer, &SerializeOptions::new()).unwrap();
    serde_json::from_slice(&serializer.into_inner()).unwrap()
}

/// A message in its frame.
pub fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap();
    [&[0][..], &length.to_be_bytes(), message].concat()
}

impl Grpc {
    /// A caller of `http://host:port`, with the token that most suites start their servers with.
    pub fn new(base: &str) -> Self {
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).http2_prior_knowledge().build().unwrap();
        Self { http, base: base.to_owned(), metadata: Vec::new() }
            .with("a2a-version", "1.0")
            .with("authorization", &format!("Bearer {TOKEN}"))
    }

    /// The same with one more piece of metadata, or another one.
    pub fn with(&self, name: &str, value: &str) -> Self {
        let mut other = self.without(name);
        other.metadata.push((name.to_owned(), value.to_owned()));
        other
    }

    pub fn without(&self, name: &str) -> Self {
        let mut other = self.clone();
        other.metadata.retain(|(known, _)| known != name);
        other
    }

    /// A request with these bytes as its body.
    pub fn raw(&self, path: &str, body: Vec<u8>) -> reqwest::RequestBuilder {
        let mut request = self.http.request(Method::POST, format!("{}/{path}", self.base)).body(body);
        request = request.header("content-type", "application/grpc").header("te", "trailers");
        for (name, value) in &self.metadata {
            request = request.header(name, value);
        }
        request
    }

    /// Begins a call.
    pub async fn open(&self, service: &str, method: &str, request: &Value) -> Messages {
        let body = framed(&encoded(service, method, request));
        let output = types(service, method).map(|(_, output)| output);
        Messages::of(self.raw(&format!("{service}/{method}"), body), output).await
    }

    /// A whole call.
    pub async fn call(&self, service: &str, method: &str, request: &Value) -> Answer {
        self.open(service, method, request).await.finish().await
    }

    /// The answer of a call that works.
    pub async fn ok(&self, service: &str, method: &str, request: &Value) -> Value {
        self.call(service, method, request).await.ok()
    }
}

impl Messages {
    /// Sends a request and waits for the head of its answer. Messages are taken apart if it is known what they are.
    pub async fn of(request: reqwest::RequestBuilder, message: Option<MessageDescriptor>) -> Self {
        let response = timeout(PATIENCE, request.send()).await.expect("an answer comes in time").unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Self { status, headers, body: response.into(), buffer: Vec::new(), message, trailers: None }
    }

    /// The next message, or none at the end.
    pub async fn next(&mut self) -> Option<Value> {
        timeout(PATIENCE, self.read()).await.expect("a message or the end comes in time")
    }

    /// Reads to the end.
    pub async fn finish(mut self) -> Answer {
        let mut messages = Vec::new();
        while let Some(message) = self.next().await {
            messages.push(message);
        }
        let trailers = self.trailers.unwrap_or_else(|| self.headers.clone());
        Answer { status: self.status, headers: self.headers, messages, trailers }
    }

    async fn read(&mut self) -> Option<Value> {
        loop {
            if let Some(message) = self.take() {
                return Some(message);
            }
            // A connection that breaks has no trailers, and no status then.
            let Some(Ok(frame)) = pin!(self.body.frame()).await else { return None };
            match frame.into_data() {
                Ok(data) => self.buffer.extend_from_slice(&data),
                Err(frame) => self.trailers = frame.into_trailers().ok(),
            }
        }
    }

    fn take(&mut self) -> Option<Value> {
        // What is not answered as gRPC has no frames.
        let message = self.message.clone().filter(|_| self.status == 200)?;
        let head = self.buffer.get(..5)?;
        assert_eq!(head[0], 0, "nobody asked for compression");
        let length = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize;
        if self.buffer.len() < 5 + length {
            return None;
        }
        let rest = self.buffer.split_off(5 + length);
        let frame = std::mem::replace(&mut self.buffer, rest);
        Some(shown(&DynamicMessage::decode(message, &frame[5..]).unwrap()))
    }
}

impl Answer {
    /// The status of gRPC, if it told one.
    pub fn code(&self) -> Option<i32> {
        self.trailers.get("grpc-status")?.to_str().ok()?.parse().ok()
    }

    /// The one message of a success.
    #[track_caller]
    pub fn ok(mut self) -> Value {
        assert_eq!((self.status, self.code()), (200, Some(0)), "{self:?}");
        assert_eq!(self.headers["content-type"], "application/grpc");
        assert_eq!(self.messages.len(), 1, "{self:?}");
        self.messages.remove(0)
    }

    /// The error, with its details as the other bindings have them.
    #[track_caller]
    pub fn error(&self, code: i32) -> Value {
        assert_eq!((self.status, self.code()), (200, Some(code)), "{self:?}");
        assert_eq!(self.headers["content-type"], "application/grpc");
        let status = Status::decode(self.details().as_slice()).unwrap();
        assert_eq!(status.code, code);
        let mut details = Vec::new();
        for any in &status.details {
            let mut detail = match any.type_url.rsplit('.').next().unwrap() {
                "ErrorInfo" => {
                    let info = ErrorInfo::decode(any.value.as_slice()).unwrap();
                    json!({"reason": info.reason, "domain": info.domain, "metadata": info.metadata})
                }
                "BadRequest" => {
                    let request = BadRequest::decode(any.value.as_slice()).unwrap();
                    let violations = request.field_violations.into_iter();
                    let shown = violations.map(|found| json!({"field": found.field, "description": found.description}));
                    json!({"fieldViolations": shown.collect::<Vec<_>>()})
                }
                "RetryInfo" => {
                    let retry = RetryInfo::decode(any.value.as_slice()).unwrap();
                    json!({"retryDelay": format!("{}s", retry.retry_delay.unwrap().seconds)})
                }
                other => panic!("a detail nobody asked for: {other}"),
            };
            detail["@type"] = json!(any.type_url);
            details.push(detail);
        }
        json!({"code": code, "message": status.message, "details": details})
    }

    fn details(&self) -> Vec<u8> {
        let value = self.trailers.get("grpc-status-details-bin").unwrap_or_else(|| panic!("no details: {self:?}"));
        let text = value.to_str().unwrap().trim_end_matches('=');
        base64::engine::general_purpose::STANDARD_NO_PAD.decode(text).unwrap()
    }
}
