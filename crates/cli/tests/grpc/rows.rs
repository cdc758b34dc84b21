//! The rows of older systems and the rulings that are about gRPC.

use serde_json::{Value, json};

use super::{
    grpc::{A2A, Answer, GATEWAY, Grpc},
    harness::{Home, Server, TOKEN},
    http::{Api, answer, artifact_text, reason, state, text, to, to_at_once, violations, with_json},
};

/// A home and its server.
pub(super) struct Rig {
    // Dropped in this order: the database goes when its servers are gone.
    pub(super) server: Server,
    pub(super) home: Home,
}

impl Rig {
    pub(super) async fn start(arguments: &[&str]) -> Self {
        Self::start_in(Home::new(), arguments, &[]).await
    }

    /// In a home that was prepared, with these variables.
    pub(super) async fn start_in(home: Home, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = home.serving(&[], arguments);
        let server = home.start(command.env("SB_BOOTSTRAP_TOKEN", TOKEN).envs(variables.iter().copied())).await;
        Self { server, home }
    }

    pub(super) fn grpc(&self) -> Grpc {
        Grpc::new(&self.server.url)
    }

    pub(super) fn api(&self) -> Api {
        self.server.api()
    }

    /// Ends the server without a warning and starts another one on the same data.
    pub(super) async fn restart(&mut self) {
        self.server.kill9();
        let mut command = self.home.serving(&[], &[]);
        self.server = self.home.start(command.env("SB_BOOTSTRAP_TOKEN", TOKEN)).await;
    }
}

#[tokio::test]
async fn s3_79_a_message_is_one_task_over_every_binding_and_across_a_restart() {
    let mut rig = Rig::start(&[]).await;
    let mut request = to("echo", "once");
    request["message"]["contextId"] = json!("a-context");
    let first = rig.api().send(&request).await;
    let id = text(&first, "/id").to_owned();
    for _ in 0..2 {
        assert_eq!(text(&rig.api().rpc_ok("SendMessage", &request).await, "/task/id"), id);
        for service in [A2A, GATEWAY] {
            assert_eq!(text(&rig.grpc().ok(service, "SendMessage", &request).await, "/task/id"), id, "{service}");
        }
        rig.restart().await;
    }
}

#[tokio::test]
async fn s3_79_an_idempotency_key_counts_in_metadata_too() {
    let rig = Rig::start(&[]).await;
    let keyed = rig.grpc().with("idempotency-key", "k-1");
    let request = to("echo", "once");
    let first = keyed.ok(A2A, "SendMessage", &request).await;
    let again = rig
        .api()
        .call(
            rig.api()
                .request(reqwest::Method::POST, "/a2a/message:send")
                .header("Idempotency-Key", "k-1")
                .header("Content-Type", "application/json")
                .body(request.to_string()),
        )
        .await
        .task();
    assert_eq!(text(&first, "/task/id"), text(&again, "/id"));
    let other = keyed.call(A2A, "SendMessage", &to("echo", "twice")).await;
    assert_eq!(reason(&other.error(3)), "IDEMPOTENCY_CONFLICT");
}

#[tokio::test]
async fn s3_100_x_29_the_struct_service_has_the_methods_of_its_card() {
    let rig = Rig::start(&[]).await;
    let grpc = rig.grpc();
    let sent = grpc.ok(GATEWAY, "SendMessage", &to("echo", "hello")).await;
    assert_eq!(artifact_text(&sent["task"]), "hello");
    let id = text(&sent, "/task/id");
    assert_eq!(state(&grpc.ok(GATEWAY, "GetTask", &json!({"id": id})).await), "COMPLETED");
    let listed = grpc.ok(GATEWAY, "ListTasks", &json!({"tenant": "echo", "pageSize": 1})).await;
    assert_eq!((text(&listed, "/tasks/0/id"), listed["totalSize"].as_f64()), (id, Some(1.0)));
    let streamed = grpc.call(GATEWAY, "SendStreamingMessage", &to("stream", "2 chunks, 10 ms apart")).await;
    assert_eq!((streamed.code(), state(&streamed.messages.last().unwrap()["statusUpdate"])), (Some(0), "COMPLETED"));
    let waiting = grpc.ok(GATEWAY, "SendMessage", &to_at_once("stream", "100 chunks, 100 ms apart")).await;
    let id = json!({"id": text(&waiting, "/task/id")});
    let mut following = grpc.open(GATEWAY, "SubscribeToTask", &id).await;
    assert!(following.next().await.unwrap()["task"].is_object());
    assert_eq!(state(&grpc.ok(GATEWAY, "CancelTask", &id).await), "CANCELED");
    let rest = following.finish().await;
    assert_eq!(state(&rest.messages.last().unwrap()["statusUpdate"]), "CANCELED");
    let card = grpc.without("a2a-version").ok(GATEWAY, "GetAgentCard", &json!({"tenant": "echo"})).await;
    assert_eq!(card["name"], "Echo");
    let extended = grpc.without("a2a-version").ok(GATEWAY, "GetExtendedAgentCard", &json!({})).await;
    assert!(extended["skills"].as_array().unwrap().iter().any(|skill| skill["id"] == "echo"), "{extended:#}");
    let config = json!({"taskId": id["id"], "url": "https://example.com/hook"});
    let made = grpc.ok(GATEWAY, "CreateTaskPushNotificationConfig", &config).await;
    let listed = grpc.ok(GATEWAY, "ListTaskPushNotificationConfigs", &json!({"taskId": id["id"]})).await;
    assert_eq!((&made["url"], listed["configs"].as_array().unwrap().len()), (&config["url"], 1), "{listed:#}");
    let unknown = grpc.raw(&format!("{GATEWAY}/GetNothing"), super::grpc::framed(b""));
    let unknown = super::grpc::Messages::of(unknown, None).await.finish().await;
    assert_eq!(reason(&unknown.error(12)), "METHOD_NOT_FOUND");
}

#[tokio::test]
async fn s3_106_x_18_who_does_not_say_who_they_are_is_told_how() {
    let rig = Rig::start(&[]).await;
    let nobody = rig.grpc().without("authorization");
    for caller in [nobody.clone(), nobody.with("x-api-key", "sb_wrong"), nobody.with("authorization", "Basic x")] {
        for service in [A2A, GATEWAY] {
            let refused = caller.call(service, "GetTask", &json!({"id": "t"})).await;
            assert_eq!(reason(&refused.error(16)), "UNAUTHENTICATED");
            assert!(refused.trailers["www-authenticate"].to_str().unwrap().starts_with("Bearer "), "{refused:?}");
            assert!(!refused.trailers["x-sb-token"].is_empty());
        }
    }
}

#[tokio::test]
async fn x_24_every_credential_means_the_same_token() {
    let rig = Rig::start(&[]).await;
    let nobody = rig.grpc().without("authorization");
    let bearer = format!("bearer {TOKEN}");
    for (name, value) in [("authorization", bearer.as_str()), ("x-api-key", TOKEN), ("x-sb-token", TOKEN)] {
        let listed = nobody.with(name, value).ok(A2A, "ListTasks", &json!({})).await;
        assert_eq!(listed["pageSize"], 50, "{name}");
    }
}

#[tokio::test]
async fn x_2_x_3_a_version_is_asked_for_in_metadata() {
    let rig = Rig::start(&[]).await;
    let grpc = rig.grpc().without("a2a-version");
    for good in ["1", "1.0", "1.0.3"] {
        let answer = grpc.with("a2a-version", good).call(A2A, "ListTasks", &json!({})).await;
        assert_eq!(answer.headers["a2a-version"], "1.0");
        answer.ok();
    }
    for bad in [None, Some(""), Some("0.3"), Some("1.1"), Some("abc")] {
        let caller = bad.map_or(grpc.clone(), |version| grpc.with("a2a-version", version));
        for service in [A2A, GATEWAY] {
            let refused = caller.call(service, "ListTasks", &json!({})).await.error(9);
            assert_eq!(reason(&refused), "VERSION_NOT_SUPPORTED", "{bad:?}");
        }
    }
    // Who reads a card may not know yet which versions there are, whatever the binding.
    for version in [None, Some("0.3"), Some("2.0")] {
        let caller = version.map_or(grpc.clone(), |version| grpc.with("a2a-version", version));
        for service in [A2A, GATEWAY] {
            assert_eq!(caller.ok(service, "GetExtendedAgentCard", &json!({"tenant": "echo"})).await["name"], "Echo");
        }
        let api = rig.api();
        let versioned = |request: reqwest::RequestBuilder| {
            let request = request.bearer_auth(TOKEN);
            version.map_or(request.try_clone().unwrap(), |version| request.header("A2A-Version", version))
        };
        let get = versioned(api.bare(reqwest::Method::GET, "/a2a/echo/extendedAgentCard"));
        assert_eq!(api.call(get).await.ok()["name"], "Echo", "{version:?}");
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard", "params": {"tenant": "echo"}});
        let post = with_json(versioned(api.bare(reqwest::Method::POST, "/a2a/jsonrpc")), &call);
        assert_eq!(api.call(post).await.ok()["result"]["name"], "Echo", "{version:?}");
    }
}

#[tokio::test]
async fn x_33_an_agent_that_nobody_knows_is_not_found() {
    let rig = Rig::start(&[]).await;
    for service in [A2A, GATEWAY] {
        let refused = rig.grpc().call(service, "SendMessage", &to("nobody", "hello")).await;
        assert_eq!(reason(&refused.error(5)), "AGENT_NOT_FOUND");
    }
}

#[tokio::test]
async fn x_50_there_is_no_extended_card_where_nobody_authenticates() {
    let rig = Rig::start(&["--no-auth"]).await;
    let refused = rig.grpc().without("authorization").call(A2A, "GetExtendedAgentCard", &json!({})).await;
    assert_eq!(reason(&refused.error(9)), "UNSUPPORTED_OPERATION");
}

#[tokio::test]
async fn names_are_checked_as_on_http_where_nobody_authenticates() {
    let rig = Rig::start(&["--no-auth"]).await;
    let anybody = rig.grpc().without("authorization");
    assert_eq!(state(&anybody.ok(A2A, "SendMessage", &to("echo", "hi")).await["task"]), "COMPLETED");
    let renamed = anybody.with("host", "evil.example").call(A2A, "ListTasks", &json!({})).await;
    assert_eq!((renamed.status, renamed.code()), (403, None), "a client makes PERMISSION_DENIED of it");
}

#[tokio::test]
async fn s3_57_s3_60_webhooks_are_made_read_listed_and_deleted() {
    let rig = Rig::start(&[]).await;
    let grpc = rig.grpc();
    let task = text(&rig.api().send(&to("ask", "what")).await, "/id").to_owned();
    let (create, get) = ("CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig");
    let (list, delete) = ("ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig");
    let secrets = json!({"scheme": "Bearer", "credentials": "secret-4712"});
    let hook = "https://example.com/hook";
    let config = json!({"taskId": task, "url": hook, "token": "secret-4711", "authentication": secrets});
    let made = grpc.ok(A2A, create, &config).await;
    let id = text(&made, "/id").to_owned();
    assert_eq!((text(&made, "/taskId"), text(&made, "/url")), (task.as_str(), hook));
    let named = json!({"taskId": task, "id": id});
    assert_eq!(grpc.ok(A2A, get, &named).await, made);
    let listed = grpc.ok(A2A, list, &json!({"taskId": task})).await;
    assert_eq!(listed, json!({"configs": [made]}));
    assert!(!listed.to_string().contains("secret-47"), "secrets never come back: {listed}");
    let path = format!("/a2a/tasks/{task}/pushNotificationConfigs/{id}");
    assert_eq!(text(&rig.api().get(&path).await.ok(), "/id"), id, "it is the same over HTTP");

    let chunks = grpc.with("a2a-extensions", a2a::PUSH_CHUNKS).call(A2A, create, &config).await;
    assert_eq!(chunks.headers["a2a-extensions"], a2a::PUSH_CHUNKS);
    let page = grpc.ok(A2A, list, &json!({"taskId": task, "pageSize": 1})).await;
    let rest = json!({"taskId": task, "pageSize": 1, "pageToken": text(&page, "/nextPageToken")});
    let rest = grpc.ok(A2A, list, &rest).await;
    assert_ne!(page["configs"][0]["id"], rest["configs"][0]["id"]);
    assert_eq!(rest.get("nextPageToken"), None);

    for _ in 0..2 {
        assert_eq!(grpc.ok(A2A, delete, &named).await, json!({}));
    }
    grpc.call(A2A, get, &named).await.error(5);
    for (method, request) in [
        (create, json!({"taskId": "nothing", "url": hook})),
        (get, json!({"taskId": "nothing", "id": "c"})),
        (list, json!({"taskId": "nothing"})),
        (delete, json!({"taskId": "nothing", "id": "c"})),
    ] {
        assert_eq!(reason(&grpc.call(A2A, method, &request).await.error(5)), "TASK_NOT_FOUND", "{method}");
    }
    let bad = grpc.call(A2A, create, &json!({"taskId": task, "url": "nonsense"})).await;
    assert_eq!(violations(&bad.error(3)), ["url"]);
}

#[tokio::test]
async fn data_and_files_arrive_as_they_were_sent() {
    let rig = Rig::start(&[]).await;
    let mut request = to("echo", "with parts");
    request["message"]["parts"] = json!([
        {"text": "with parts", "metadata": {"n": 7, "deep": {"list": [1.5, null, true, "x"]}}},
        {"raw": "+/8=", "filename": "a.bin", "mediaType": "application/octet-stream"},
        {"url": "https://h/x"},
        {"data": {"whole": 12_345_678, "half": 0.5, "null": null}},
        {"data": null},
    ]);
    let sent = rig.grpc().ok(A2A, "SendMessage", &request).await;
    let stored = rig.api().task(text(&sent, "/task/id")).await;
    assert_eq!(stored["history"][0]["parts"], request["message"]["parts"], "whole numbers stay whole");
}

#[tokio::test]
async fn what_is_wrong_is_named_by_its_field() {
    let rig = Rig::start(&[]).await;
    for (method, request, field) in [
        ("SendMessage", json!({}), "message"),
        ("SendMessage", json!({"message": {"role": "ROLE_USER", "parts": [{"text": "a"}]}}), "message.messageId"),
        ("SendMessage", json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{}]}}), "message.parts[0]"),
        ("GetTask", json!({}), "id"),
        ("ListTasks", json!({"pageSize": -1}), "pageSize"),
    ] {
        let refused: Answer = rig.grpc().call(A2A, method, &request).await;
        let error: Value = refused.error(3);
        assert_eq!((reason(&error), violations(&error)), ("INVALID_PARAMS", vec![field.to_owned()]), "{method}");
    }
    let ended = rig.grpc().ok(A2A, "SendMessage", &to("echo", "done")).await;
    let late = rig.grpc().call(A2A, "SendMessage", &answer(text(&ended, "/task/id"), "more")).await;
    assert_eq!(reason(&late.error(9)), "UNSUPPORTED_OPERATION");
}

#[tokio::test]
async fn s3_99_s3_102_x_30_cards_name_grpc_only_where_it_has_a_port_of_its_own() {
    const STRUCT: &str = "https://secondbrain.local/a2a/bindings/grpc-struct/v1";
    let bindings = |card: &Value| -> Vec<String> {
        card["supportedInterfaces"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| text(one, "/protocolBinding").to_owned())
            .collect()
    };
    let own = "/a2a/agents/echo/.well-known/agent-card.json";
    let paths = ["/.well-known/agent-card.json", "/a2a/agents/echo/extendedAgentCard", "/a2a/extendedAgentCard"];

    let plain = Rig::start(&[]).await;
    for path in paths.into_iter().chain([own]) {
        assert_eq!(bindings(&plain.api().get(path).await.ok()), ["JSONRPC", "HTTP+JSON"], "{path}");
    }
    // It is served there all the same.
    assert_eq!(state(&plain.grpc().ok(A2A, "SendMessage", &to("echo", "hi")).await["task"]), "COMPLETED");

    let rig = Rig::start(&["--grpc-port", "0"]).await;
    // google-adk refuses a card with any interface off its origin, and finds agents by their own cards.
    let card = rig.api().get(own).await.ok();
    assert_eq!(bindings(&card), ["JSONRPC", "HTTP+JSON"]);
    for path in paths {
        let card = rig.api().get(path).await.ok();
        assert_eq!(bindings(&card), ["JSONRPC", "HTTP+JSON", "GRPC", STRUCT], "{path}");
        for (at, service) in [(2, A2A), (3, GATEWAY)] {
            let interface = &card["supportedInterfaces"][at];
            let target = text(interface, "/url");
            assert!(target.strip_prefix("127.0.0.1:").is_some_and(|port| port.parse::<u16>().is_ok()), "{target}");
            assert_ne!(target, rig.server.address());
            let tenant = interface.get("tenant").and_then(Value::as_str).unwrap_or("echo");
            assert_eq!(interface.get("tenant").is_some(), path.contains("agents/echo"), "where no URL names the agent");
            for base in [format!("http://{target}"), rig.server.url.clone()] {
                let sent = Grpc::new(&base).ok(service, "SendMessage", &to(tenant, "hi")).await;
                assert_eq!(state(&sent["task"]), "COMPLETED");
            }
            let other = Api::new(&format!("http://{target}"), Some(TOKEN));
            assert_eq!(other.get("/a2a/tasks").await.status, 404, "nothing else is answered there");
        }
    }
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let home = Home::new();
    let said = home.fails(&["serve", "--listen", "127.0.0.1:0", "--grpc-port", &port], 1);
    assert!(said.contains(&port) && said.contains("gRPC"), "{said}");
}

#[tokio::test]
async fn what_belongs_to_another_tenant_does_not_exist() {
    let rig = Rig::start(&[]).await;
    let running = rig.grpc().ok(A2A, "SendMessage", &to_at_once("slow", "60000")).await;
    let id = text(&running, "/task/id").to_owned();
    rig.home.add_tenant("other", "sb_token-of-another-tenant-00").await;
    let other = rig.grpc().with("authorization", "Bearer sb_token-of-another-tenant-00");
    let unknown = "01980000-0000-7000-8000-000000000000";
    for service in [A2A, GATEWAY] {
        for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
            let theirs = other.call(service, method, &json!({"id": id})).await.error(5);
            let nobodys = other.call(service, method, &json!({"id": unknown})).await.error(5);
            assert_eq!(reason(&theirs), "TASK_NOT_FOUND", "{method}");
            assert_eq!(theirs.to_string().replace(&id, unknown), nobodys.to_string(), "{method}");
        }
        let theirs = other.call(service, "SendMessage", &answer(&id, "more")).await.error(5);
        assert_eq!(reason(&theirs), "TASK_NOT_FOUND");
        assert!(other.ok(service, "ListTasks", &json!({})).await.get("tasks").is_none_or(|tasks| tasks == &json!([])));
    }
    assert_eq!(state(&rig.api().task(&id).await), "WORKING");
}
