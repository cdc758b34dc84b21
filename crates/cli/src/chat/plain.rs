//! A conversation with a remote that the server knows and does not serve: by `/v1/chat`, a text for a text.

use std::time::Duration;

use client::{Connector, call_json};
use http::Method;
use serde_json::{Value, json};

use super::Args;
use crate::{
    failure::Failure,
    output::{self, Format},
    routes::at,
    send::print_text,
    target::Target,
};

/// How long between two looks at an answer that takes long.
const LOOK: Duration = Duration::from_millis(500);

pub(super) struct Plain {
    connector: Connector,
    server: Target,
    agent: String,
    format: Format,
}

/// What came of something that was said.
pub(super) struct Said {
    pub(super) context: String,
    /// The task that waits for an answer; empty when none does.
    pub(super) waiting: String,
    pub(super) verdict: Result<(), Failure>,
}

impl Plain {
    /// The remote of this name, if the server knows one.
    pub(super) async fn find(args: &Args, agent: &str) -> Option<Self> {
        let server = args.target.target(args.url.as_deref(), None).ok()?;
        let plain = Self { connector: args.target.connector(), server, agent: agent.to_owned(), format: args.output };
        plain.call(Method::GET, &["v1", "remotes", agent], None).await.ok()?;
        Some(plain)
    }

    /// Says something and waits for the answer, which is printed.
    pub(super) async fn say(&self, text: &str, context: &str, task: &str) -> Result<Said, Failure> {
        let mut body = json!({ "agent": self.agent, "message": text });
        for (key, value) in [("contextId", context), ("taskId", task)] {
            if !value.is_empty() {
                body[key] = json!(value);
            }
        }
        let mut answer = self.call(Method::POST, &["v1", "chat"], Some(&body)).await?;
        while answer["pending"] == true {
            tokio::time::sleep(LOOK).await;
            let task = answer["taskId"].as_str().unwrap_or_default().to_owned();
            answer = self.call(Method::GET, &["v1", "chat", &task], None).await?;
        }
        let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
        let state = text("taskState");
        let failed = matches!(state.as_str(), "failed" | "rejected" | "canceled");
        match self.format {
            Format::Json => output::line(&answer.to_string()),
            Format::Text if failed => {}
            Format::Text => print_text(&text("response")),
        }
        let verdict = if failed {
            Err(Failure::failed(format!("task {} {state}", text("taskId"))).because(text("response")))
        } else {
            Ok(())
        };
        let waits = matches!(state.as_str(), "input-required" | "auth-required");
        let waiting = if waits { text("taskId") } else { String::new() };
        Ok(Said { context: text("contextId"), waiting, verdict })
    }

    async fn call(&self, method: Method, path: &[&str], body: Option<&Value>) -> Result<Value, Failure> {
        let url = at(self.server.url.clone(), path, &[]);
        let body = body.map(|body| body.to_string().into_bytes());
        let answer = call_json(&self.connector, method, &url, self.server.credential.as_ref(), body, None).await?;
        crate::routes::decode(&answer)
    }
}
