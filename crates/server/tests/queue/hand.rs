//! Somebody who publishes to the queue, works on it or looks at it, over HTTP.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{
    PATIENCE,
    http::{Api, Reply, array, reason, state, text},
};

/// Somebody who publishes, works or looks.
#[derive(Clone)]
pub(crate) struct Hand {
    pub(crate) api: Api,
}

/// An entry in a worker's hands.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) id: String,
    pub(crate) lease: String,
    /// As it was handed out.
    pub(crate) entry: Value,
}

impl Hand {
    /// The same server with another token.
    pub(crate) fn with_token(&self, token: &str) -> Self {
        Self { api: self.api.with_token(Some(token)) }
    }

    /// A new entry; gives its id.
    pub(crate) async fn publish(&self, to: &str, says: &str) -> String {
        let entry = self.publish_all(&json!({"from": "planner", "to": to, "text": says})).await;
        text(&entry, "/id").to_owned()
    }

    /// A new entry of which everything is said; gives it as it is shown.
    pub(crate) async fn publish_all(&self, body: &Value) -> Value {
        let reply = self.api.post("/v1/queue/publish", body).await;
        assert_eq!(reply.status, 201, "{}", reply.shown());
        reply.json()
    }

    /// What there is of an agent's, with these wishes.
    pub(crate) async fn consume(&self, agent: &str, wishes: &Value) -> Vec<Held> {
        let handed = self.api.post(&format!("/v1/queue/{agent}/consume"), wishes).await.ok();
        array(&handed, "/messages").iter().map(Held::of).collect()
    }

    /// The one entry that there is.
    pub(crate) async fn take(&self, agent: &str) -> Held {
        self.take_for(agent, 60.0).await
    }

    /// The same, for so many seconds.
    pub(crate) async fn take_for(&self, agent: &str, seconds: f64) -> Held {
        let mut handed = self.consume(agent, &json!({"lease": seconds, "worker": "tests"})).await;
        assert_eq!(handed.len(), 1, "{handed:?}");
        handed.remove(0)
    }

    /// A verb on an entry.
    pub(crate) async fn on(&self, id: &str, verb: &str, body: &Value) -> Reply {
        self.api.post(&format!("/v1/queue/messages/{id}/{verb}"), body).await
    }

    /// A verb on an entry under its lease.
    pub(crate) async fn under(&self, held: &Held, verb: &str, body: &Value) -> Reply {
        let mut body = body.clone();
        body["lease"] = json!(held.lease);
        self.on(&held.id, verb, &body).await
    }

    /// Reports events.
    pub(crate) async fn report(&self, held: &Held, events: &[Value]) -> Value {
        self.under(held, "progress", &json!({"events": events})).await.ok()
    }

    /// The entry as the queue shows it.
    pub(crate) async fn entry(&self, id: &str) -> Value {
        self.api.get(&format!("/v1/queue/messages/{id}")).await.ok()
    }

    /// How the queue and the protocol call where an entry stands.
    pub(crate) async fn stands(&self, id: &str) -> (String, String) {
        let (entry, task) = (self.entry(id).await, self.api.task(id).await);
        (text(&entry, "/status").to_owned(), state(&task).to_owned())
    }

    /// Waits until an entry has this status.
    pub(crate) async fn becomes(&self, id: &str, status: &str) -> Value {
        let begun = Instant::now();
        loop {
            let entry = self.entry(id).await;
            if entry["status"] == status {
                return entry;
            }
            assert!(begun.elapsed() < PATIENCE, "still {entry:#}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn letters(&self) -> Vec<Value> {
        array(&self.api.get("/v1/queue/dlq").await.ok(), "/messages").clone()
    }

    /// A dead letter.
    pub(crate) async fn letter(&self, agent: &str, says: &str) -> String {
        let body = json!({"from": "planner", "to": agent, "text": says, "maxAttempts": 1});
        let id = text(&self.publish_all(&body).await, "/id").to_owned();
        let held = self.take(agent).await;
        assert_eq!(held.id, id);
        let entry = self.under(&held, "nack", &json!({"error": "no"})).await.ok();
        assert_eq!(entry["status"], "dlq", "{entry:#}");
        id
    }
}

impl Held {
    pub(crate) fn of(entry: &Value) -> Self {
        Self { id: text(entry, "/id").to_owned(), lease: text(entry, "/lease").to_owned(), entry: entry.clone() }
    }
}

/// A status as workers report it.
pub(crate) fn status(state: &str, says: &str) -> Value {
    let message = json!({"parts": [{"text": says}]});
    json!({"statusUpdate": {"status": {"state": format!("TASK_STATE_{state}"), "message": message}}})
}

/// A piece of text as workers report it.
pub(crate) fn piece(says: &str, append: bool) -> Value {
    json!({"artifactUpdate": {"artifact": {"parts": [{"text": says}]}, "append": append}})
}

/// Checks that a reply says the lease is lost.
#[track_caller]
pub(crate) fn is_lost(reply: &Reply) {
    assert_eq!(reason(&reply.error(409)), "LEASE_LOST", "{}", reply.shown());
}
