//! Whether the process lives and whether it takes work. Public, and nothing else is said.

use std::{sync::Arc, time::Duration};

use axum::{extract::State, response::Response};
use http::{Method, StatusCode};
use tokio::time::timeout;

use crate::{app::App, path::allows, reply};

const ALLOW: &str = "GET, HEAD, OPTIONS";
/// How long a probe waits for the journal.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers as long as the process does.
pub(crate) async fn live(method: Method) -> Response {
    if let Some(response) = other_method(&method) {
        return response;
    }
    reply::body(StatusCode::OK, reply::JSON, r#"{"status":"ok"}"#)
}

/// Says no while the server drains and while the journal cannot be written.
pub(crate) async fn ready(State(app): State<Arc<App>>, method: Method) -> Response {
    if let Some(response) = other_method(&method) {
        return response;
    }
    if app.exchange.draining().is_cancelled() {
        return reply::body(StatusCode::SERVICE_UNAVAILABLE, reply::JSON, r#"{"status":"draining"}"#);
    }
    match timeout(PATIENCE, app.exchange.store().ping()).await {
        Ok(Ok(())) => reply::body(StatusCode::OK, reply::JSON, r#"{"status":"ok"}"#),
        Ok(Err(error)) => {
            tracing::error!(error = %error, "the journal cannot be written");
            reply::body(StatusCode::SERVICE_UNAVAILABLE, reply::JSON, r#"{"status":"unavailable"}"#)
        }
        Err(_elapsed) => {
            tracing::error!("the journal does not answer");
            reply::body(StatusCode::SERVICE_UNAVAILABLE, reply::JSON, r#"{"status":"unavailable"}"#)
        }
    }
}

fn other_method(method: &Method) -> Option<Response> {
    if method == Method::OPTIONS {
        return Some(reply::options(ALLOW));
    }
    (!allows(ALLOW, method)).then(|| reply::wrong_method(ALLOW))
}
