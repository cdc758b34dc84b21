//! Remote agents, and a server that calls them.

mod caller;

use std::time::Duration;

use serde_json::json;
pub(crate) use testkit::fake_agent::*;

pub(crate) use self::caller::{Caller, Setup, unframed};
use crate::harness::{
    PATIENCE,
    http::{Api, text},
};

#[tokio::test]
async fn a_script_is_followed_and_what_was_asked_is_kept() {
    let remote = Remote::with_card(card_03).await;
    let api = Api::new(&remote.base, Some("token"));
    assert_eq!(text(&api.get(WELL_KNOWN).await.ok(), "/url"), remote.agent());
    assert_eq!(api.get(LEGACY).await.status, 404);
    remote.on("message/send", [Answer::Result(json!("first")), Answer::Refused(-32603, "last")]);
    for expected in ["/result", "/error/message", "/error/message"] {
        let said = api.rpc_at("/a2a", "message/send", &json!({"x": 1})).await;
        assert!(said.pointer(expected).is_some(), "{said:#}");
    }
    assert_eq!(api.rpc_at("/a2a", "unheard/of", &json!({})).await["error"]["code"], -32601);
    let call = &remote.calls()[0];
    assert_eq!((call.rpc(), call.path.as_str(), call.params()), ("message/send", "/a2a", &json!({"x": 1})));
    assert_eq!(call.header("authorization"), Some("Bearer token"));
    assert_eq!(remote.looked_at(), [WELL_KNOWN, LEGACY]);

    remote.says("message/stream", Answer::slow_events([json!(1), json!(2)], Duration::from_millis(10)));
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "message/stream"});
    let streamed = api.post("/a2a", &call).await;
    assert_eq!(streamed.media_type(), "text/event-stream");
    let body = String::from_utf8(streamed.body).unwrap();
    assert_eq!(body.matches("\"id\":7").count(), 2, "{body}");
    // Whoever does not read to the end is noticed.
    remote.says("/endless", Answer::body_of("text/plain", vec![Step::Forever(vec![b'x'; 1_000], Duration::ZERO)]));
    let mut endless = api.request(reqwest::Method::GET, "/endless").send().await.unwrap();
    assert!(endless.chunk().await.unwrap().is_some());
    assert!(remote.open() >= 1 && remote.said() > 1_000);
    drop((endless, api));
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while remote.open() > 0 {
        assert!(tokio::time::Instant::now() < deadline, "a connection stays open");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
