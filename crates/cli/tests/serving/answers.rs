//! Answers that say what was meant: a name that is nearly right, a default agent that is not there, a tenant that is disabled.

use serde_json::Value;

use crate::harness::{Home, Server, eventually, text, wait_for};

const ONLY_ACME: &str = "kind = \"command\"\ntenants = [\"acme\"]\n[command]\nargv = [\"true\"]\n";

/// What a caller with this token is told of an agent's card.
fn told(server: &Server, token: Option<&str>, agent: &str) -> (u16, String) {
    let api = server.api().with_token(token);
    let reply = wait_for(api.get(&format!("/a2a/agents/{agent}/.well-known/agent-card.json")));
    let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    (reply.status, body["error"]["message"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_name_that_is_nearly_right_is_put_right() {
    let home = Home::new();
    home.add_agent("secret-plans.toml", ONLY_ACME);
    let server = home.serve();
    let said = home.fails(&["send", "--agent", "ech", "hello"], 2);
    assert!(said.contains("no agent `ech`: did you mean `echo`?"), "{said}");
    let said = home.fails(&["send", "--agent", "nobody", "hello"], 2);
    assert!(said.contains("no agent `nobody`") && !said.contains("did you mean"), "{said}");

    // Only who sees an agent is told its name.
    let made = home.ok(&["tenant", "add", "acme"]);
    let acme = made.split_whitespace().find(|word| word.starts_with("sb_")).unwrap().to_owned();
    let own = home.token();
    let near = "secret-plan";
    assert_eq!(told(&server, Some(&own), near), (404, "no agent `secret-plan`".to_owned()));
    assert_eq!(told(&server, None, near), (404, "no agent `secret-plan`".to_owned()));
    assert_eq!(told(&server, None, "ech"), (404, "no agent `ech`".to_owned()), "a stranger is told no names");
    let said = told(&server, Some(&acme), near);
    assert_eq!(said, (404, "no agent `secret-plan`: did you mean `secret-plans`?".to_owned()));
}

#[test]
fn a_default_agent_that_is_not_there_is_found() {
    let home = Home::new();
    home.configure("default_agent = \"ehco\"\n");
    let checked = home.run(&["config", "check"]);
    assert_eq!(checked.status.code(), Some(2));
    let found = text(&checked.stdout);
    assert!(found.contains("fail  default agent") && found.contains("did you mean `echo`?"), "{found}");
    let found = text(&home.run(&["doctor"]).stdout);
    assert!(found.contains("fail  default agent"), "{found}");
    let server = home.serve();
    let log = server.log();
    assert!(log.contains("there is no agent `ehco`") && log.contains("did you mean `echo`?"), "{log}");
    drop(server);

    // Agents of files and remotes are there as well.
    home.configure("default_agent = \"mine\"\n");
    home.add_agent("mine.toml", "kind = \"command\"\n[command]\nargv = [\"true\"]\n");
    assert!(home.ok(&["config", "check"]).contains("ok    default agent  mine"));
    home.configure("default_agent = \"far\"\n");
    home.write(".config/switchboard/agents.yaml", "agents:\n  - name: far\n    url: http://127.0.0.1:9\n");
    let found = text(&home.run(&["config", "check"]).stdout);
    assert!(found.contains("ok    default agent  far"), "{found}");
}

#[test]
fn a_disabled_tenant_is_told_from_a_wrong_token() {
    let home = Home::new();
    let server = home.serve();
    home.ok(&["send", "hello"]);
    home.ok(&["tenant", "disable", "default"]);
    let token = home.token();
    let call = |token: &str| {
        let api = server.api().with_token(Some(token));
        let reply = wait_for(api.get("/a2a/tasks"));
        let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        (reply.status, body["error"].clone())
    };
    eventually("the token is refused", || call(&token).0 == 401);
    let (_, error) = call(&token);
    assert_eq!(error["message"], "the tenant of this token is disabled");
    assert_eq!(error["details"][0]["reason"], "TENANT_DISABLED", "{error}");
    let (status, error) = call("sb_wrong");
    assert_eq!((status, &error["details"][0]["reason"]), (401, &Value::from("UNAUTHENTICATED")), "{error}");
    assert!(!error["message"].as_str().unwrap().contains("disabled"), "{error}");
    let said = home.fails(&["send", "hello"], 4);
    assert!(said.contains("is disabled") && said.contains("sb tenant enable"), "{said}");

    home.ok(&["tenant", "enable", "default"]);
    eventually("it is let in again", || call(&token).0 == 200);
}

#[test]
fn a_demo_agent_is_not_replaced_without_a_word() {
    let home = Home::new();
    home.add_agent("echo.toml", "kind = \"command\"\n[command]\nargv = [\"true\"]\n");
    let found = home.ok(&["config", "check"]);
    assert!(
        found.contains("warn  agent echo") && found.contains("takes the place of the demo agent `echo`"),
        "{found}"
    );
    let server = home.serve();
    assert!(server.log().contains("agent `echo` takes the place of the built-in one"), "{}", server.log());
    drop(server);
    let quiet = Home::new();
    quiet.configure("demo_agents = false\n");
    quiet.add_agent("echo.toml", "kind = \"command\"\n[command]\nargv = [\"true\"]\n");
    assert!(quiet.ok(&["config", "check"]).contains("ok    agent echo"));
}

#[test]
fn what_is_wrong_with_models_is_said_once() {
    let home = Home::new();
    home.write(".config/switchboard/models.toml", "defalt = \"x\"\n");
    for name in ["one", "two"] {
        home.add_agent(&format!("{name}.toml"), "kind = \"llm\"\n[llm]\nmodel = \"gpt-5\"\n");
    }
    let found = text(&home.run(&["doctor"]).stdout);
    assert_eq!(found.matches("defalt").count(), 1, "{found}");

    // A provider on this machine that does not answer is no good one.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    home.write(".config/switchboard/models.toml", format!("[providers.ollama]\nurl = \"http://127.0.0.1:{port}\"\n"));
    let found = text(&home.run(&["doctor"]).stdout);
    assert!(found.contains("warn  provider ollama") && found.contains("nothing answers there"), "{found}");
}
