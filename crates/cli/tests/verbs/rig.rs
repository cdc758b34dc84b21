//! What the verbs are asked for beside their output: plain HTTP to their server, and lines.

use std::time::{Duration, Instant};

use serde_json::Value;

pub(crate) use crate::harness::{Home, Server, eventually, failed, text, worked};
use crate::harness::{http::with_json, wait_for};

/// A token is refused at most so long after it ended.
pub(crate) const REVOKED_WITHIN: Duration = Duration::from_secs(3);

impl Server {
    /// One request; gives the status and the body as JSON.
    pub(crate) fn http(&self, method: &str, path: &str, token: Option<&str>, body: Option<&Value>) -> (u16, Value) {
        let api = self.api().with_token(token);
        let mut request = api.request(method.parse().unwrap(), path);
        if let Some(body) = body {
            request = with_json(request, body);
        }
        let reply = wait_for(api.call(request));
        (reply.status, serde_json::from_slice(&reply.body).unwrap_or_default())
    }

    /// What a caller with this token gets.
    pub(crate) fn status_with(&self, token: &str) -> u16 {
        self.http("GET", "/a2a/extendedAgentCard", Some(token), None).0
    }

    #[track_caller]
    pub(crate) fn refuses_soon(&self, token: &str) {
        let since = Instant::now();
        while self.status_with(token) != 401 {
            assert!(since.elapsed() < REVOKED_WITHIN, "the token is still honoured");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The journal in this directory of the home, as `--store` names it.
pub(crate) fn store(home: &Home, name: &str) -> String {
    format!("sqlite:{}", home.path(name).display())
}

/// A server with this journal, and its other files in this directory of the home.
pub(crate) fn serve(home: &Home, store: &str, data: &str) -> Server {
    let directory = home.path(data);
    home.serve_with(&[], &[("SB_STORE", store), ("SB_DATA_DIR", directory.to_str().unwrap())])
}

/// The token of the command line whose files are in this directory of the home.
pub(crate) fn token(home: &Home, data: &str) -> String {
    home.stored(&format!("{data}/cli.json"), "token")
}

/// The value of the line `name: value`.
#[track_caller]
pub(crate) fn line_value<'a>(text: &'a str, name: &str) -> &'a str {
    let prefix = format!("{name}: ");
    text.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or_else(|| panic!("no {name} in {text}"))
}
