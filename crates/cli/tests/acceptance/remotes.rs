//! Remote agents as agents of this server: how they are called here, what survives a crash, and the routes and verbs that look
//! after them.

mod agents;
mod chat;
mod delivery;
mod durable;
mod guards;
mod registry;

use serde_json::{Value, json};

use crate::harness::remote::{Answer, Remote, card_03, task_03};

/// An agent of 0.3 that completes whatever it gets with this text.
async fn completing(text: &str) -> Remote {
    let remote = Remote::with_card(card_03).await;
    remote.says("message/send", Answer::Result(task_03("rt-1", "rc-1", "completed", text)));
    remote
}

/// The card of an agent of 0.3 that streams.
fn streaming_card(url: &str) -> Value {
    let mut card = card_03(url);
    card["capabilities"]["streaming"] = json!(true);
    card
}

/// A status of 0.3, of the task `rt-1`.
fn status(state: &str, is_final: bool) -> Value {
    json!({"kind": "status-update", "taskId": "rt-1", "contextId": "rc-1", "status": {"state": state}, "final": is_final})
}

/// A piece of an artifact of 0.3, of the task `rt-1`.
fn chunk(words: &str, append: bool, last: bool) -> Value {
    let artifact = json!({"artifactId": "a-1", "parts": [{"kind": "text", "text": words}]});
    json!({"kind": "artifact-update", "taskId": "rt-1", "contextId": "rc-1", "artifact": artifact, "append": append, "lastChunk": last})
}
