//! The cross-tenant matrix: every operation at every place with every kind of id, of another tenant and of nobody. Both get the
//! same answer, byte for byte but for the id itself, and nothing of anybody's changes.

use serde_json::{Value, json};

use testkit::raw_http::RawReply;

use super::{
    rig::{Rig, TENANTS},
    wire::Request,
};

/// Where an id can stand, in what kind of request.
const GATEWAY: [&str; 3] = ["/a2a", "/a2a/agents/AGENT", "/a2a/AGENT"];
const ENDPOINTS: [&str; 5] =
    ["/a2a/jsonrpc", "/a2a", "/a2a/agents/AGENT/jsonrpc", "/a2a/AGENT/jsonrpc", "/v1/a2a/agents/AGENT"];

/// What one tenant has.
struct Holding {
    finished: Value,
    open: Value,
    context: String,
    page: String,
    /// An entry of the queue that a worker holds, and its lease.
    entry: String,
    lease: String,
    /// The id of an agent that it has defined.
    agent: String,
}

/// A request with a hole in it for an id.
struct Operation {
    name: String,
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, &'static str)>,
    body: Option<Value>,
}

#[test]
fn what_is_another_tenants_is_as_what_never_was() {
    let rig = Rig::start();
    let holdings: Vec<Holding> = (0..TENANTS.len()).map(|tenant| holding(&rig, tenant)).collect();
    let before = rig.fingerprint();
    let lists: Vec<_> = (0..TENANTS.len()).map(|tenant| everything_of(&rig, tenant)).collect();
    let (mut compared, mut failures) = (0, Vec::new());

    for (caller, (name, _)) in TENANTS.iter().enumerate() {
        let own = &holdings[caller];
        for (owner, theirs) in holdings.iter().enumerate().filter(|(owner, _)| *owner != caller) {
            let pair = format!("{name} asks for what is of {}", TENANTS[owner].0);
            for (agent, task) in [("ask", &theirs.open), ("echo", &theirs.finished)] {
                let id = task["id"].as_str().expect("an id is text");
                let unknown = forged(id);
                for operation in on_a_task(agent) {
                    let theirs = operation.send(&rig, caller, id);
                    let nobodys = operation.send(&rig, caller, &unknown);
                    compared += 1;
                    if let Some(why) = difference(&theirs, id, &nobodys, &unknown) {
                        failures.push(format!("{pair}: {}: {why}", operation.name));
                    } else if !operation.is_not_found(&theirs) {
                        failures.push(format!("{pair}: {}: {}", operation.name, theirs.shown()));
                    }
                }
            }
            for id in [&theirs.entry, &text(&theirs.open["id"]), &text(&theirs.finished["id"])] {
                let unknown = forged(id);
                for operation in on_an_entry() {
                    let found = operation.send(&rig, caller, id);
                    let nothing = operation.send(&rig, caller, &unknown);
                    compared += 1;
                    if let Some(why) = difference(&found, id, &nothing, &unknown) {
                        failures.push(format!("{pair}: {}: {why}", operation.name));
                    } else if !operation.is_not_found(&found) {
                        failures.push(format!("{pair}: {}: {}", operation.name, found.shown()));
                    }
                }
            }
            for operation in under_a_lease(&own.entry) {
                let unknown = forged(&theirs.lease);
                let found = operation.send(&rig, caller, &theirs.lease);
                let nothing = operation.send(&rig, caller, &unknown);
                compared += 1;
                let is_refused = found.status == 400 && String::from_utf8_lossy(&found.body).contains("lease");
                if let Some(why) = difference(&found, &theirs.lease, &nothing, &unknown) {
                    failures.push(format!("{pair}: lease: {}: {why}", operation.name));
                } else if !is_refused {
                    failures.push(format!("{pair}: lease: {}: {}", operation.name, found.shown()));
                }
            }
            for (agent, operation) in
                ["ask", "echo"].into_iter().flat_map(|agent| lists_of(agent).map(move |it| (agent, it)))
            {
                let unknown = forged(&theirs.context);
                let found = operation.send(&rig, caller, &theirs.context);
                let nothing = operation.send(&rig, caller, &unknown);
                compared += 1;
                let is_empty = String::from_utf8_lossy(&found.body).contains("\"totalSize\":0");
                if let Some(why) = difference(&found, &theirs.context, &nothing, &unknown) {
                    failures.push(format!("{pair}: context at {agent}: {}: {why}", operation.name));
                } else if !is_empty {
                    failures.push(format!("{pair}: context at {agent}: {}: {}", operation.name, found.shown()));
                }
            }
            for operation in of_a_context() {
                let unknown = forged(&theirs.context);
                let found = operation.send(&rig, caller, &theirs.context);
                let nothing = operation.send(&rig, caller, &unknown);
                compared += 1;
                if let Some(why) = difference(&found, &theirs.context, &nothing, &unknown) {
                    failures.push(format!("{pair}: context: {}: {why}", operation.name));
                } else if found.status != 404 {
                    failures.push(format!("{pair}: context: {}: {}", operation.name, found.shown()));
                }
            }
            for operation in of_an_agent() {
                let unknown = forged(&theirs.agent);
                let found = operation.send(&rig, caller, &theirs.agent);
                let nothing = operation.send(&rig, caller, &unknown);
                compared += 1;
                if let Some(why) = difference(&found, &theirs.agent, &nothing, &unknown) {
                    failures.push(format!("{pair}: agent: {}: {why}", operation.name));
                } else if !operation.is_not_found(&found) && !names_no_agent(&found) {
                    failures.push(format!("{pair}: agent: {}: {}", operation.name, found.shown()));
                }
            }
            for operation in pages() {
                let unknown = forged(&theirs.page);
                let found = operation.send(&rig, caller, &theirs.page);
                let nothing = operation.send(&rig, caller, &unknown);
                compared += 1;
                let is_refused = String::from_utf8_lossy(&found.body).contains("pageToken");
                if let Some(why) = difference(&found, &theirs.page, &nothing, &unknown) {
                    failures.push(format!("{pair}: page: {}: {why}", operation.name));
                } else if !is_refused {
                    failures.push(format!("{pair}: page: {}: {}", operation.name, found.shown()));
                }
            }
        }
    }
    let after = rig.fingerprint();
    if after != before {
        failures.push(format!("something changed: {}", after.changed_since(&before).join(", ")));
    }
    for (tenant, list) in lists.iter().enumerate() {
        if everything_of(&rig, tenant) != *list {
            failures.push(format!("what {} sees changed", TENANTS[tenant].0));
        }
    }
    println!("{compared} pairs of requests compared");
    assert!(compared > 500, "{compared}");
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

/// Keys and contexts are the tenant's own: the same ones in other hands are new, whatever is said under them.
#[test]
fn keys_and_contexts_are_each_tenants_own() {
    let rig = Rig::start();
    let send = |tenant: usize, key: Option<&str>, message: &Value| {
        let mut request = rig.request(tenant, "POST", "/a2a/message:send").json(&json!({"message": message}));
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        rig.ok(&request)["task"]["id"].as_str().expect("a task").to_owned()
    };
    let message = |text: &str| json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]});
    let in_context =
        |text: &str| json!({"messageId": "m", "contextId": "c", "role": "ROLE_USER", "parts": [{"text": text}]});
    let mut tasks = std::collections::BTreeSet::new();
    for tenant in 0..TENANTS.len() {
        // The same content under the key, then another: neither joins a task nor conflicts.
        let text = if tenant == 2 { "other" } else { "same" };
        let keyed = send(tenant, Some("key"), &message(text));
        let by_context = send(tenant, None, &in_context(text));
        assert_eq!(send(tenant, Some("key"), &message(text)), keyed, "one's own key finds one's own task");
        assert_eq!(send(tenant, None, &in_context(text)), by_context);
        assert!(tasks.insert(keyed) && tasks.insert(by_context), "a task of another tenant was joined");
    }
    for (tenant, (name, _)) in TENANTS.iter().enumerate() {
        let list = rig.ok(&rig.request(tenant, "GET", "/a2a/tasks"));
        assert_eq!(list["totalSize"], 2, "{name}");
        let list = rig.ok(&rig.request(tenant, "GET", "/a2a/tasks?contextId=c"));
        assert_eq!(list["totalSize"], 1, "{name}");
        let list = rig.ok(&rig.request(tenant, "GET", "/v1/requests"));
        assert_eq!(list["requests"].as_array().map(Vec::len), Some(2), "{name}");
    }
    assert_eq!(tasks.len(), 6);
}

fn holding(rig: &Rig, tenant: usize) -> Holding {
    let context = format!("context-of-{tenant}");
    let finished = rig.task(tenant, "echo", &json!({"contextId": context}));
    let open = rig.task(tenant, "ask", &json!({"contextId": context}));
    let hooks = format!("/a2a/tasks/{}/pushNotificationConfigs", open["id"].as_str().expect("an id is text"));
    let hook = json!({"id": "c", "url": "https://example.com/"});
    rig.ok(&rig.request(tenant, "POST", &hooks).json(&hook));
    let list = rig.ok(&rig.request(tenant, "GET", "/a2a/tasks?pageSize=1"));
    let page = text(&list["nextPageToken"]);
    let publish = json!({"from": "tests", "to": "researcher", "text": "hello", "correlationId": context});
    let published = rig.send(&rig.request(tenant, "POST", "/v1/queue/publish").json(&publish));
    let entry = text(&published.json().expect("an entry is JSON")["id"]);
    let claim = format!("/v1/queue/messages/{entry}/claim");
    let lease = text(&rig.ok(&rig.request(tenant, "POST", &claim))["lease"]);
    let agent = format!("agent-{tenant}-0x");
    rig.define(tenant, &agent);
    let own = format!("/v1/agents/{agent}");
    assert_eq!(rig.ok(&rig.request(tenant, "GET", &own))["role"], "tester");
    Holding { finished, open, context, page, entry, lease, agent }
}

fn text(value: &Value) -> String {
    value.as_str().expect("it is text").to_owned()
}

/// All that a tenant can list.
fn everything_of(rig: &Rig, tenant: usize) -> (Value, Value) {
    let tasks = rig.ok(&rig.request(tenant, "GET", "/a2a/tasks?includeArtifacts=true"));
    assert_eq!(tasks["totalSize"], 3, "{tasks:#}");
    (tasks, rig.ok(&rig.request(tenant, "GET", "/v1/requests")))
}

/// An id of the same form and length that nobody has.
fn forged(id: &str) -> String {
    let last = id.chars().last().expect("an id is not empty");
    // A page token's last character may hold bits that do not count; the middle always does.
    let middle = id.len() / 2;
    let changed = |at: char| if at == '0' { '1' } else { '0' };
    let mut forged: Vec<char> = id.chars().collect();
    let of_middle = forged[middle];
    if of_middle.is_ascii_alphanumeric() {
        forged[middle] = changed(of_middle);
    }
    let end = forged.len() - 1;
    forged[end] = changed(last);
    forged.into_iter().collect()
}

/// What differs between two answers once the ids are masked.
fn difference(one: &RawReply, id: &str, other: &RawReply, other_id: &str) -> Option<String> {
    let masked = |answer: &RawReply, id: &str| {
        let headers: Vec<_> = answer.headers.iter().filter(|(name, _)| name != "date").cloned().collect();
        (answer.status, headers, String::from_utf8_lossy(&answer.body).replace(id, "ID"))
    };
    let (one, other) = (masked(one, id), masked(other, other_id));
    (one != other).then(|| format!("\n    theirs   {one:?}\n    nobody's {other:?}"))
}

/// Every operation that takes a task's id. `ID` is where it goes.
fn on_a_task(agent: &str) -> Vec<Operation> {
    let mut operations = Vec::new();
    let message =
        json!({"message": {"messageId": "m-9", "taskId": "ID", "role": "ROLE_USER", "parts": [{"text": "x"}]}});
    let old_message = json!({"message": {"messageId": "m-9", "taskId": "ID", "role": "user", "parts": [{"kind": "text", "text": "x"}]}});
    let config = json!({"taskId": "ID", "url": "https://example.com/"});
    let old_config = json!({"taskId": "ID", "pushNotificationConfig": {"id": "c", "url": "https://example.com/"}});
    for scope in GATEWAY {
        let scope = scope.replace("AGENT", agent);
        for (method, path, body) in [
            ("GET", "/tasks/ID", None),
            ("HEAD", "/tasks/ID", None),
            ("GET", "/tasks/ID?historyLength=0", None),
            ("GET", "/tasks/ID:subscribe", None),
            ("POST", "/tasks/ID:subscribe", None),
            ("GET", "/tasks/ID:subscribe?afterSequence=0", None),
            ("GET", "/tasks/ID:subscribe?afterSequence=9999", None),
            ("POST", "/tasks/ID:cancel", None),
            ("POST", "/tasks/ID:cancel", Some(json!({"id": "ID"}))),
            ("POST", "/message:send", Some(message.clone())),
            ("POST", "/message:stream", Some(message.clone())),
            ("POST", "/tasks/ID/pushNotificationConfigs", Some(config.clone())),
            ("POST", "/tasks/ID/pushNotificationConfigs", Some(json!({"id": "c", "url": "https://example.com/"}))),
            ("GET", "/tasks/ID/pushNotificationConfigs", None),
            ("HEAD", "/tasks/ID/pushNotificationConfigs", None),
            ("GET", "/tasks/ID/pushNotificationConfigs?pageSize=1", None),
            ("GET", "/tasks/ID/pushNotificationConfigs/c", None),
            ("DELETE", "/tasks/ID/pushNotificationConfigs/c", None),
        ] {
            operations.push(Operation::new(method, format!("{scope}{path}"), body));
        }
        operations.push(Operation::new("GET", format!("{scope}/tasks/ID:subscribe"), None).with("Last-Event-ID", "1"));
        operations.push(
            Operation::new("POST", format!("{scope}/message:send"), Some(message.clone())).with("Idempotency-Key", "k"),
        );
    }
    for endpoint in ENDPOINTS {
        let endpoint = endpoint.replace("AGENT", agent);
        for (method, params) in [
            ("GetTask", json!({"id": "ID"})),
            ("CancelTask", json!({"id": "ID"})),
            ("SubscribeToTask", json!({"id": "ID"})),
            ("SendMessage", message.clone()),
            ("SendStreamingMessage", message.clone()),
            ("CreateTaskPushNotificationConfig", config.clone()),
            ("GetTaskPushNotificationConfig", json!({"taskId": "ID", "id": "c"})),
            ("ListTaskPushNotificationConfigs", json!({"taskId": "ID"})),
            ("DeleteTaskPushNotificationConfig", json!({"taskId": "ID", "id": "c"})),
            ("tasks/get", json!({"id": "ID"})),
            ("tasks/cancel", json!({"id": "ID"})),
            ("tasks/resubscribe", json!({"id": "ID"})),
            ("message/send", old_message.clone()),
            ("message/stream", old_message.clone()),
            ("tasks/pushNotificationConfig/set", old_config.clone()),
            ("tasks/pushNotificationConfig/get", json!({"id": "ID"})),
            ("tasks/pushNotificationConfig/get", json!({"id": "ID", "pushNotificationConfigId": "c"})),
            ("tasks/pushNotificationConfig/list", json!({"id": "ID"})),
            ("tasks/pushNotificationConfig/delete", json!({"id": "ID", "pushNotificationConfigId": "c"})),
        ] {
            operations.push(Operation::call(&endpoint, method, &params));
        }
        let cursor = format!("{endpoint}?afterSequence=0");
        operations.push(Operation::call(&cursor, "SubscribeToTask", &json!({"id": "ID"})));
        operations.push(Operation::call(&cursor, "tasks/resubscribe", &json!({"id": "ID"})));
        operations
            .push(Operation::call(&endpoint, "tasks/resubscribe", &json!({"id": "ID"})).with("Last-Event-ID", "1"));
    }
    for (method, path) in [
        ("GET", "/v1/requests/ID"),
        ("POST", "/v1/requests/ID/cancel"),
        ("GET", "/v1/requests/ID/events"),
        ("GET", "/v1/requests/ID/events?since_seq=0"),
        ("DELETE", "/v1/requests/ID"),
        ("DELETE", "/v1/requests/ID?cancel=true"),
        ("GET", "/v1/chat/ID"),
        ("GET", "/v1/chat/ID/events"),
    ] {
        operations.push(Operation::new(method, path.to_owned(), None));
    }
    let chat = json!({"agent": "echo", "message": "x", "taskId": "ID"});
    operations.push(Operation::new("POST", "/v1/chat".to_owned(), Some(chat)));
    operations
}

/// Every verb of the queue that takes an entry's id. `ID` is where it goes.
fn on_an_entry() -> Vec<Operation> {
    let mut operations = Vec::new();
    for (method, path, body) in [
        ("GET", "", None),
        ("HEAD", "", None),
        ("POST", "/claim", None),
        ("POST", "/claim", Some(json!({"lease": 60, "worker": "w"}))),
        ("POST", "/heartbeat", None),
        ("POST", "/heartbeat", Some(json!({"seconds": 60}))),
        ("POST", "/progress", Some(json!({"text": "x"}))),
        ("POST", "/ack", None),
        ("POST", "/ack", Some(json!({"result": {"n": 1}}))),
        ("POST", "/nack", None),
        ("POST", "/nack", Some(json!({"fatal": true}))),
        ("POST", "/execute", None),
    ] {
        operations.push(Operation::new(method, format!("/v1/queue/messages/ID{path}"), body));
    }
    for body in [json!({"messageId": "ID"}), json!({"messageId": "ID", "toAgent": "other"})] {
        operations.push(Operation::new("POST", "/v1/queue/dlq/replay".to_owned(), Some(body)));
    }
    operations
}

/// Every verb that takes a lease, on an entry of one's own. `ID` is where the lease goes.
fn under_a_lease(entry: &str) -> Vec<Operation> {
    let verbs = [
        ("heartbeat", json!({"lease": "ID"})),
        ("progress", json!({"lease": "ID", "text": "x"})),
        ("ack", json!({"lease": "ID"})),
        ("nack", json!({"lease": "ID"})),
    ];
    let operation = |(verb, body)| Operation::new("POST", format!("/v1/queue/messages/{entry}/{verb}"), Some(body));
    verbs.map(operation).into()
}

/// Every way to list the tasks of a context.
fn lists_of(agent: &str) -> impl Iterator<Item = Operation> + use<> {
    let mut operations = Vec::new();
    for scope in GATEWAY {
        let scope = scope.replace("AGENT", agent);
        for query in ["contextId=ID", "context_id=ID&includeArtifacts=true", "contextId=ID&pageSize=1&historyLength=1"]
        {
            operations.push(Operation::new("GET", format!("{scope}/tasks?{query}"), None));
        }
    }
    for endpoint in ENDPOINTS {
        let endpoint = endpoint.replace("AGENT", agent);
        operations.push(Operation::call(&endpoint, "ListTasks", &json!({"contextId": "ID"})));
    }
    operations.into_iter()
}

/// Every operation that takes a context's id by itself.
fn of_a_context() -> Vec<Operation> {
    vec![
        Operation::new("DELETE", "/v1/contexts/ID".to_owned(), None),
        Operation::new("DELETE", "/v1/contexts/ID?cancel=true".to_owned(), None),
    ]
}

/// Every operation that takes the id of an agent that a tenant has defined.
fn of_an_agent() -> Vec<Operation> {
    let message = json!({"message": {"messageId": "m-9", "role": "ROLE_USER", "parts": [{"text": "x"}]}});
    let named = json!({"tenant": "ID", "message": message["message"]});
    let old_message =
        json!({"message": {"messageId": "m-9", "role": "user", "parts": [{"kind": "text", "text": "x"}]}});
    let mut operations = vec![
        Operation::call("/a2a/jsonrpc", "SendMessage", &named),
        Operation::call("/a2a/agents/ID/jsonrpc", "SendMessage", &message),
        Operation::call("/v1/a2a/agents/ID", "SendMessage", &message),
        Operation::call("/v1/a2a/agents/ID", "message/send", &old_message),
        Operation::call("/v1/a2a/agents/ID", "tasks/get", &json!({"id": "x"})),
    ];
    for (method, path, body) in [
        ("GET", "/v1/agents/ID", None),
        ("HEAD", "/v1/agents/ID", None),
        ("PATCH", "/v1/agents/ID", Some(json!({"role": "x"}))),
        ("PATCH", "/v1/agents/ID", Some(json!({"agent_def": {"id": "ID"}}))),
        ("DELETE", "/v1/agents/ID", None),
        ("GET", "/v1/cards/ID", None),
        ("GET", "/a2a/agents/ID/.well-known/agent-card.json", None),
        ("GET", "/v1/a2a/agents/ID/.well-known/agent-card.json", None),
        ("GET", "/v1/a2a/agents/ID/agent-card.json", None),
        ("GET", "/a2a/agents/ID/extendedAgentCard", None),
        ("GET", "/a2a/agents/ID/tasks", None),
        ("POST", "/a2a/agents/ID/message:send", Some(message.clone())),
        ("POST", "/a2a/ID/message:stream", Some(message)),
        ("POST", "/a2a/message:send", Some(named)),
        ("POST", "/v1/chat", Some(json!({"agent": "ID", "message": "x"}))),
    ] {
        operations.push(Operation::new(method, path.to_owned(), body));
    }
    operations
}

/// Whether an answer of JSON-RPC says that there is no such agent.
fn names_no_agent(answer: &RawReply) -> bool {
    String::from_utf8_lossy(&answer.body).contains("\"reason\":\"AGENT_NOT_FOUND\"")
}

/// Every way to ask for the next page of what the token was given for.
fn pages() -> Vec<Operation> {
    vec![
        Operation::new("GET", "/a2a/tasks?pageSize=1&pageToken=ID".to_owned(), None),
        Operation::new("GET", "/a2a/agents/ask/tasks?pageSize=1&pageToken=ID".to_owned(), None),
        Operation::call("/a2a/jsonrpc", "ListTasks", &json!({"pageSize": 1, "pageToken": "ID"})),
        Operation::call("/v1/a2a/agents/ask", "ListTasks", &json!({"pageSize": 1, "pageToken": "ID"})),
    ]
}

impl Operation {
    /// Whether an answer says that there is no such task, or, under `/v1/a2a`, that nobody's webhooks are told.
    fn is_not_found(&self, answer: &RawReply) -> bool {
        let body = String::from_utf8_lossy(&answer.body);
        let is_pushless = self.path.starts_with("/v1/a2a") && body.contains("push notifications are not supported");
        answer.status == 404 || body.contains("\"code\":-32001,") || is_pushless
    }

    fn new(method: &'static str, path: String, body: Option<Value>) -> Self {
        Self { name: format!("{method} {path}"), method, path, headers: Vec::new(), body }
    }

    fn call(endpoint: &str, method: &str, params: &Value) -> Self {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        Self { name: format!("{method} at {endpoint}"), ..Self::new("POST", endpoint.to_owned(), Some(call)) }
    }

    fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.name = format!("{} with {name}", self.name);
        self.headers.push((name, value));
        self
    }

    fn send(&self, rig: &Rig, caller: usize, id: &str) -> RawReply {
        let mut request: Request = rig.request(caller, self.method, &self.path.replace("ID", id));
        if let Some(body) = &self.body {
            request = request.json(body);
            if body["method"].as_str().is_some_and(|method| method.contains('/')) {
                // Whoever calls a method of 0.3 names no version.
                request.headers.retain(|(name, _)| name != "A2A-Version");
            }
            // Inside the text, so that the body's length is that of the id.
            request.body = String::from_utf8_lossy(&request.body).replace("\"ID\"", &format!("\"{id}\"")).into_bytes();
        }
        for (name, value) in &self.headers {
            request = request.header(name, *value);
        }
        rig.send(&request)
    }
}
