//! A server under attack: the built binary, three tenants, and the journal read from beside it.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use testkit::raw_http::RawReply;

use super::wire::{self, Request};
use crate::harness::{Home, Server, wait_for};

/// The tenants' names and their tokens. No token may be found anywhere after a run.
pub(crate) const TENANTS: [(&str, &str); 3] = [
    ("default", "sb_canary-of-the-default-tenant-4f1d0c2a"),
    ("second", "sb_canary-of-the-second-tenant-9b7e5d31"),
    ("third", "sb_canary-of-the-third-tenant-c06a8e14"),
];

/// What the journal holds, row for row, except for what time alone changes: leases, instances, a token's last use.
const WATCHED: [(&str, &str); 13] = [
    (
        "a2a_tasks",
        "task_id, tenant_id, agent_id, context_id, state, updated_at, status_message, seq, hidden, turn, waiting, cancel_mark",
    ),
    ("a2a_events", "*"),
    ("messages", "*"),
    ("a2a_artifacts", "*"),
    ("idempotency", "*"),
    ("task_counts", "*"),
    ("settings", "*"),
    ("tenants", "*"),
    ("tokens", "id, tenant_id, hash, name, expires, revoked_at, scopes, agents"),
    ("admin_tokens", "*"),
    ("audit", "*"),
    ("push_configs", "task, config_id, tenant_id, url, sealed, seq, state, letters"),
    ("tenant_agents", "*"),
];

/// A server and its home.
pub(crate) struct Rig {
    // Dropped in this order: the database goes when its server is gone.
    server: Server,
    home: Home,
}

/// What the journal holds: for each table how many rows, and a digest of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fingerprint(Vec<(&'static str, u64, [u8; 32])>);

impl Rig {
    /// Starts a server with everything at its defaults, and makes the tenants.
    pub(crate) fn start() -> Self {
        let home = Home::new();
        let environment = [
            ("SB_BOOTSTRAP_TOKEN", TENANTS[0].1),
            // What is tested here is not how often somebody may ask.
            ("SB_LIMITS_REQUESTS_PER_SECOND", "0"),
            ("SB_LIMITS_FAILED_AUTH_PER_SECOND", "0"),
            // Everything that could give a secret away is written down.
            ("RUST_LOG", "trace"),
        ];
        let server = home.serve_with(&[], &environment);
        for (name, token) in &TENANTS[1..] {
            wait_for(home.add_tenant(name, token));
        }
        Self { server, home }
    }

    pub(crate) fn address(&self) -> &str {
        self.server.address()
    }

    /// A request of one of the tenants, as a well-behaved client makes it.
    pub(crate) fn request(&self, tenant: usize, method: &str, target: &str) -> Request {
        Request::new(method, target)
            .header("A2A-Version", "1.0")
            .header("Authorization", format!("Bearer {}", TENANTS[tenant].1))
    }

    /// Sends a request and reads the whole answer.
    #[track_caller]
    pub(crate) fn send(&self, request: &Request) -> RawReply {
        match wire::send(self.address(), request.bytes(self.address()), false) {
            Ok(Some(answer)) => answer,
            Ok(None) => panic!("no answer to {request:?}"),
            Err(error) => panic!("{error}: {request:?}"),
        }
    }

    /// The body of a request that works.
    #[track_caller]
    pub(crate) fn ok(&self, request: &Request) -> Value {
        let answer = self.send(request);
        assert_eq!(answer.status, 200, "{request:?}: {}", answer.shown());
        answer.json().expect("a success is JSON")
    }

    /// A task of one of the tenants: `message` is what is special about the message.
    #[track_caller]
    pub(crate) fn task(&self, tenant: usize, agent: &str, message: &Value) -> Value {
        let mut whole = json!({"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]});
        for (name, value) in message.as_object().into_iter().flatten() {
            whole[name] = value.clone();
        }
        let body = json!({"tenant": agent, "message": whole});
        self.ok(&self.request(tenant, "POST", "/a2a/message:send").json(&body))["task"].take()
    }

    /// Lets a tenant have an agent of its own, whatever the server makes of it.
    pub(crate) fn define(&self, tenant: usize, id: &str) {
        let definition = json!({"id": id, "role": "tester"}).to_string().into_bytes();
        let id = id.parse().expect("an agent's id");
        wait_for(async {
            let store = self.home.scratch.open().await;
            let tenants = store.tenants().await.expect("tenants are listed");
            let owner = tenants.iter().find(|known| known.name == TENANTS[tenant].0).expect("the tenant is there");
            store.create_agent(owner.id, &id, definition, 9).await.expect("an agent is kept");
        });
    }

    /// What the journal holds now.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let queries = WATCHED.map(|(table, columns)| format!("SELECT {columns} FROM {table}"));
        let found = self.home.scratch.look(&queries.each_ref().map(String::as_str));
        let mut tables = Vec::new();
        for ((table, _), mut rows) in WATCHED.into_iter().zip(found) {
            // The order in which a table is read is its own business.
            rows.sort();
            let mut digest = Sha256::new();
            for value in rows.iter().flatten() {
                let bytes = value.as_deref().unwrap_or("\0").as_bytes();
                digest.update(bytes.len().to_be_bytes());
                digest.update(bytes);
            }
            tables.push((table, rows.len() as u64, digest.finalize().into()));
        }
        Fingerprint(tables)
    }

    /// Whether the server still does what it is there for. The journal is not touched.
    pub(crate) fn is_well(&self) -> Result<(), String> {
        for (target, wanted) in [("/healthz", 200), ("/readyz", 200), ("/.well-known/agent-card.json", 200)] {
            let bytes = Request::new("GET", target).bytes(self.address());
            match wire::send(self.address(), bytes, false)? {
                Some(answer) if answer.status == wanted => {}
                other => return Err(format!("{target} answers {other:?}")),
            }
        }
        Ok(())
    }

    /// What the server has written to its log.
    pub(crate) fn log(&self) -> String {
        self.server.log()
    }

    /// Which tokens stand in a text.
    pub(crate) fn secrets_in(text: &[u8]) -> Vec<&'static str> {
        let holds = |token: &str| text.windows(token.len()).any(|window| window == token.as_bytes());
        TENANTS.iter().filter(|(_, token)| holds(token)).map(|(name, _)| *name).collect()
    }
}

impl Fingerprint {
    /// The tables that are not as they were.
    pub(crate) fn changed_since(&self, before: &Self) -> Vec<String> {
        let pairs = before.0.iter().zip(&self.0).filter(|(before, now)| before != now);
        pairs.map(|((table, before, _), (_, now, _))| format!("{table} ({before} -> {now} rows)")).collect()
    }
}
