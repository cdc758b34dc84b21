//! What is at the origin for somebody who looks: a page for browsers, and the same as JSON for everybody else. It is the same for all,
//! and names no agent. What is posted there is JSON-RPC, which is [`Place`](crate::path::Place)'s.

use std::sync::LazyLock;

use a2a::Error;
use axum::response::Response;
use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::{
    reply::{self, Status},
    surface::{Anybody, Surface, Visit},
};

const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const REFERRER_POLICY: HeaderName = HeaderName::from_static("referrer-policy");

/// The only thing that a browser may use beside the text.
const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:12vh auto;padding:0 1.5rem;color:#1b1f24;background:#fff}\
h1{font-size:1.6rem;margin-bottom:.2rem}p.version{margin-top:0;color:#59636e}code,pre{font:14px/1.5 ui-monospace,monospace}\
pre{background:#f2f4f6;padding:.8rem 1rem;border-radius:6px;overflow-x:auto}dt{font-weight:600;margin-top:.8rem}dd{margin-left:0}\
@media(prefers-color-scheme:dark){body{color:#e6e9ec;background:#14171a}p.version{color:#98a1aa}pre{background:#20252a}a{color:#7db7ff}}";

/// No script, no image, no frame, no form, and that style alone.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let style = STANDARD.encode(Sha256::digest(STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    // Base64 and the rest of it are visible ASCII.
    HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
});

/// The origin itself.
pub(crate) struct Page;

impl Surface for Page {
    type Caller = Anybody;

    fn at(segments: &[&str]) -> Option<Self> {
        (segments == [""]).then_some(Self)
    }

    fn allow(&self) -> &'static str {
        "GET, HEAD, POST, OPTIONS"
    }

    async fn answer(self, visit: Visit<'_, Anybody>) -> Result<Response, Error> {
        let base = visit.app.cards.base();
        let mut response = if wants_html(&visit.parts.headers) {
            let mut response = reply::body(Status::Ok, HTML, html(base, visit.app.auth.required()));
            response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, POLICY.clone());
            response.headers_mut().insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
            response
        } else {
            reply::json(
                Status::Ok,
                &json!({
                    "name": "Switchboard",
                    "version": env!("CARGO_PKG_VERSION"),
                    "description": "an A2A server: agents that other agents can call",
                    "card": format!("{base}/.well-known/agent-card.json"),
                    "agents": format!("{base}/a2a/agents/{{id}}/.well-known/agent-card.json"),
                    "health": format!("{base}/healthz"),
                }),
            )
        };
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=60"));
        headers.append(header::VARY, HeaderValue::from_static("Accept"));
        Ok(response)
    }
}

/// Whether a browser asks. Programs that take anything are told what programs read.
fn wants_html(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.any(|value| {
        value.split(',').any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let is_html = parts.next().is_some_and(|media| media.eq_ignore_ascii_case("text/html"));
            is_html && !parts.any(|parameter| matches!(parameter, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
        })
    })
}

fn html(base: &str, needs_token: bool) -> String {
    let base = escaped(base);
    let token = if needs_token { " --token TOKEN" } else { "" };
    let who = if needs_token {
        "Callers need a token; <code>sb token add</code> on the server's machine makes one."
    } else {
        "Callers need no token here."
    };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Switchboard</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>Switchboard</h1>\n<p class=\"version\">version {version}</p>\n\
         <p>This is a server of agents that other agents and programs call by the Agent2Agent protocol (A2A). \
         It runs; there is nothing to click here. {who}</p>\n<dl>\n\
         <dt>The card of this server</dt>\n<dd><a href=\".well-known/agent-card.json\">{base}/.well-known/agent-card.json</a></dd>\n\
         <dt>The card of an agent</dt>\n<dd><code>{base}/a2a/agents/<em>id</em>/.well-known/agent-card.json</code></dd>\n\
         <dt>Whether it is well</dt>\n<dd><a href=\"healthz\">{base}/healthz</a></dd>\n</dl>\n\
         <p>From a terminal:</p>\n<pre>sb agent list --url {base}{token}\nsb send --url {base}{token} \"hello\"</pre>\n\
         <p><code>sb --help</code> has the commands, and <code>docs</code> beside the server's source the pages about them.</p>\n\
         </body>\n</html>\n",
        version = env!("CARGO_PKG_VERSION"),
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_are_told_from_programs() {
        for (accept, is_html) in [
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", true),
            ("application/json, Text/HTML;q=0.5", true),
            ("*/*", false),
            ("application/json", false),
            ("text/html;q=0, */*", false),
            ("text/html-like", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(wants_html(&headers), is_html, "{accept}");
        }
        assert!(!wants_html(&HeaderMap::new()));
    }

    #[test]
    fn a_url_cannot_be_markup() {
        let page = html("https://h/\"><script>alert(1)</script>", true);
        assert!(!page.contains("<script"), "{page}");
    }
}
