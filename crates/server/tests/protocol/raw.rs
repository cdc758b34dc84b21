//! Tables of HTTP requests as they stand on the wire, and how each is answered.

use reqwest::{Method, RequestBuilder};
use serde_json::Value;

use super::http::{Api, Reply, reason, violations};

/// A request: the method and the path, and a line for each header beside version and credential. A header without a value is
/// left out.
pub(crate) fn request(api: &Api, head: &str) -> RequestBuilder {
    let mut lines = head.lines();
    let (method, path) = lines.next().unwrap().split_once(' ').unwrap();
    let mut headers = vec![("a2a-version".to_owned(), "1.0".to_owned())];
    headers.extend(api.token().map(|token| ("authorization".to_owned(), format!("Bearer {token}"))));
    for line in lines {
        let (name, value) = line.split_once(':').unwrap();
        let (name, value) = (name.to_lowercase(), value.trim().to_owned());
        headers.retain(|(known, _)| *known != name);
        headers.push((name, value));
    }
    let request = api.bare(Method::from_bytes(method.as_bytes()).unwrap(), path);
    headers
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .fold(request, |request, (name, value)| request.header(name, value))
}

pub(crate) async fn call(api: &Api, head: &str, body: impl Into<Vec<u8>>) -> Reply {
    let body = body.into();
    let request = request(api, head);
    api.call(if body.is_empty() { request } else { request.body(body) }).await
}

/// Sends requests, each with a JSON body unless it names another media type, and compares what is said to them: a status of
/// HTTP or, below zero, a code of JSON-RPC, then the reason of an error and the fields that it names.
pub(crate) async fn say<'a, B: Into<Vec<u8>>>(api: &Api, requests: impl IntoIterator<Item = (&'a str, B, &'a str)>) {
    let mut wrong = Vec::new();
    for (head, body, expected) in requests {
        let body: Vec<u8> = body.into();
        let shown = format!("{head} {}", String::from_utf8_lossy(&body[..body.len().min(120)]));
        let mut request = request(api, head);
        let is_typed = head.lines().skip(1).any(|line| line.to_lowercase().starts_with("content-type:"));
        if !body.is_empty() && !is_typed {
            request = request.header("content-type", "application/json");
        }
        let reply = api.call(if body.is_empty() { request } else { request.body(body) }).await;
        let told = told(&reply);
        if told != expected {
            wrong.push(format!("{shown}\n  is told {told}\n  and not {expected}: {}", reply.shown()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What a reply says, in a line.
pub(crate) fn told(reply: &Reply) -> String {
    if reply.status == 200 || reply.status == 204 || reply.status == 304 {
        let error = match reply.media_type() {
            "application/json" => reply.json().get("error").cloned(),
            _ => None,
        };
        let Some(error) = error else { return reply.status.to_string() };
        let envelope = reply.json();
        assert_eq!(envelope["jsonrpc"], "2.0", "{}", reply.shown());
        assert!(!error["message"].as_str().unwrap_or_default().is_empty(), "{}", reply.shown());
        if error.get("data").is_none() {
            return error["code"].to_string();
        }
        return line(&error["code"].to_string(), &error);
    }
    let error = reply.error(reply.status);
    // It is told which methods there are, and no framework says so in its own words.
    assert_eq!(reply.header("allow").is_some_and(|allow| !allow.is_empty()), reply.status == 405, "{}", reply.shown());
    line(&reply.status.to_string(), &error)
}

/// The code, the reason, and the fields that are named; a request that is wrong as a whole has no name.
fn line(code: &str, error: &Value) -> String {
    let fields = violations(error).join(" ");
    format!("{code} {} {fields}", reason(error)).trim_end().to_owned()
}
