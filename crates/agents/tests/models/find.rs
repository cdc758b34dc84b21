//! Which model a name means, and what is said when it means none.

use std::{fs, time::Duration};

use agents::model::{Api, Models, Options};

use crate::models::rig::{Rig, options};
use testkit::http_server::{HttpServer, json};

const KEYS: [(&str, &str); 3] = [("ANTHROPIC_API_KEY", "a"), ("OPENAI_API_KEY", "b"), ("OPENROUTER_API_KEY", "c")];

fn names(rig: &Rig, asked: &[&str]) -> Vec<String> {
    asked
        .iter()
        .map(|name| rig.models.find(name, "t").map_or_else(|_| "-".to_owned(), |model| model.name().to_owned()))
        .collect()
}

#[test]
fn a_name_is_a_provider_and_a_model() {
    let asked = [
        "anthropic/claude-sonnet-5",
        "claude-sonnet-5",
        "gpt-5",
        "openai/gpt-5",
        "meta/llama-4",
        "~openai/gpt-latest",
        "ollama/x",
        "mystery",
        "",
    ];
    let all = Rig::new("", &KEYS);
    assert_eq!(
        names(&all, &asked),
        [
            "anthropic/claude-sonnet-5",
            "anthropic/claude-sonnet-5",
            "openai/gpt-5",
            "openai/gpt-5",
            "openrouter/meta/llama-4",
            "openrouter/~openai/gpt-latest",
            "-",
            "openrouter/mystery",
            "anthropic/claude-sonnet-5"
        ]
    );
    let router = Rig::new("", &KEYS[2..]);
    assert_eq!(
        names(&router, &asked),
        [
            "openrouter/anthropic/claude-sonnet-5",
            "openrouter/anthropic/claude-sonnet-5",
            "openrouter/openai/gpt-5",
            "openrouter/openai/gpt-5",
            "openrouter/meta/llama-4",
            "openrouter/~openai/gpt-latest",
            "-",
            "openrouter/mystery",
            "openrouter/anthropic/claude-sonnet-5"
        ]
    );
    let local = Rig::new("default = \"ollama/llama3.2\"\n", &[]);
    assert_eq!(
        names(&local, &["ollama/qwen3:8b", "ollama/a/b", "", "claude-sonnet-5"]),
        ["ollama/qwen3:8b", "ollama/a/b", "ollama/llama3.2", "-"]
    );
    let fallback = Rig::new("default = \"ollama/llama3.2\"\nfallback = true\n", &[]);
    assert_eq!(
        names(&fallback, &["claude-sonnet-5", "x/y", "ollama/z"]),
        ["ollama/llama3.2", "ollama/llama3.2", "ollama/z"]
    );
}

#[test]
fn what_to_set_is_said() {
    let none = Rig::new("", &[]);
    assert_eq!(
        none.unset(""),
        "no model provider is set: set one of ANTHROPIC_API_KEY, OPENAI_API_KEY, OPENROUTER_API_KEY, OLLAMA_HOST in the server's environment, \
         or describe one in `models.toml`"
    );
    let one = Rig::new("[providers.gateway]\napi = \"openai\"\nurl = \"https://g.example/v1\"\n", &[]);
    for (name, said) in [
        ("", "no model is named and there is no default: add the line `default = \"PROVIDER/MODEL\"` to `models.toml`"),
        (
            "anthropic/claude-sonnet-5",
            "model `anthropic/claude-sonnet-5` needs the provider `anthropic`: set ANTHROPIC_API_KEY in the server's environment, or add `[providers.anthropic]` to `models.toml`",
        ),
        (
            "gpt-5",
            "model `gpt-5` needs the provider `openai`: set OPENAI_API_KEY in the server's environment, or add `[providers.openai]` to `models.toml`",
        ),
        ("vllm/x", "model `vllm/x` needs the provider `vllm`: add `[providers.vllm]` to `models.toml`"),
        (
            "gatway/x",
            "model `gatway/x` needs the provider `gatway`, which nobody has described (did you mean `gateway`?): add `[providers.gatway]` with `api` and `url` to `models.toml`",
        ),
        ("gateway/", "model `gateway/` names a provider and no model: write `gateway/MODEL`"),
        ("llama3.2", "model `llama3.2` does not say whose it is: write PROVIDER/MODEL, such as `gateway/llama3.2`"),
    ] {
        assert_eq!(one.unset(name), format!("{said}; providers that are set: gateway"));
    }
}

#[test]
fn callers_are_told_neither_variables_nor_files_nor_other_providers() {
    let end = "`sb doctor`, run by the operator of this server, says what to set";
    let told = |rig: &Rig, name: &str| rig.models.find(name, "acme").err().unwrap().told();
    let none = Rig::new("", &[]);
    assert_eq!(told(&none, ""), format!("no model is named, and there is no default: {end}"));
    let toml = "default = \"anthropic/claude-sonnet-5\"\n[providers.anthropic]\nkey_env = \"OURS\"\n\
                [providers.gateway]\napi = \"openai\"\nurl = \"https://g.example/v1\"\nkey_file = \"their.key\"\nmodels = [\"x\"]\n";
    let rig = Rig::new(toml, &[]);
    assert_eq!(told(&rig, ""), format!("the default model cannot be asked: {end}"));
    for name in ["anthropic/x", "gateway/x", "openai/x", "vllm/x", "gatway/x"] {
        assert_eq!(told(&rig, name), format!("model `{name}` cannot be asked: {end}"));
    }
    assert_eq!(told(&rig, "gateway/y"), format!("model `gateway/y` may not be asked here: {end}"));
    assert_eq!(
        told(&rig, "llama3.2"),
        format!("model `llama3.2` does not say whose it is: write PROVIDER/MODEL: {end}")
    );
    rig.write("models.toml", "defalt = 1\n");
    assert_eq!(told(&rig, "openai/x"), format!("model `openai/x` cannot be asked: {end}"));
}

#[test]
fn a_tenant_with_a_key_of_its_own_spends_no_other() {
    let toml = "[providers.anthropic]\nkey_env = \"OURS\"\n[providers.anthropic.tenants.acme]\nkey_env = \"THEIRS\"\n[providers.anthropic.tenants.late]\nkey_file = \"late.key\"\n";
    let rig = Rig::new(toml, &[("THEIRS", "k")]);
    assert!(rig.models.find("anthropic/x", "acme").is_ok());
    assert_eq!(
        rig.unset("anthropic/x"),
        "model `anthropic/x` needs the provider `anthropic`, which cannot be asked: the variable OURS is not set"
    );
    let late = rig.models.find("anthropic/x", "late").err().unwrap().to_string();
    assert!(late.contains("the key file `late.key` cannot be read") && !late.contains("acme"), "{late}");
    rig.write("late.key", "k2\n");
    assert!(rig.models.find("anthropic/x", "late").is_ok(), "keys in files are looked at again");
    let state = &rig.models.providers()[0];
    assert_eq!((state.name.as_str(), state.api, state.usable), ("anthropic", Api::Anthropic, false));
    assert_eq!(state.key.as_deref(), Some("the variable OURS"));
    assert_eq!(state.tenants, ["acme", "late"]);
    assert_eq!(state.error.as_deref(), Some("the variable OURS is not set"));
}

#[test]
fn only_what_is_offered_may_be_asked() {
    let toml = "[providers.anthropic]\nkey_env = \"K\"\nmodels = [\"claude-haiku-*\", \"claude-sonnet-5\"]\n";
    let rig = Rig::new(toml, &[("K", "sk-1")]);
    for name in ["anthropic/claude-haiku-4", "anthropic/claude-sonnet-5", "claude-sonnet-5"] {
        assert!(rig.models.find(name, "acme").is_ok(), "{name}");
    }
    let refused = rig.models.find("anthropic/claude-opus-9", "acme").err().unwrap().to_string();
    assert!(
        refused.contains("may not be asked here: of `anthropic` there are claude-haiku-*, claude-sonnet-5"),
        "{refused}"
    );
}

#[test]
fn a_file_that_breaks_keeps_its_last_good_version() {
    let rig = Rig::new("default = \"ollama/one\"\n", &[]);
    assert_eq!(rig.models.default_model().as_deref(), Some("ollama/one"));
    rig.write("models.toml", "default = \"ollama/two\"\nfalback = true\n");
    assert_eq!(rig.models.default_model().as_deref(), Some("ollama/one"));
    let said = "line 2: unknown key `falback`; did you mean `fallback`? keys are: default, fallback, providers";
    assert_eq!(rig.models.state().error.as_deref(), Some(said));
    let told = rig.unset("openai/x");
    assert!(told.contains("; `models.toml` is broken, and its operator finds how in the log"), "{told}");
    assert!(told.contains("; providers that are set: ollama") && !told.contains("falback"), "{told}");
    rig.write("models.toml", "default = \"ollama/two\"\n");
    assert_eq!((rig.models.default_model().as_deref(), rig.models.state().error), (Some("ollama/two"), None));
    // While somebody writes it anew it is empty for a moment.
    rig.write("models.toml", "");
    assert_eq!(rig.models.default_model().as_deref(), Some("ollama/two"));
    rig.models.look();
    assert_eq!(rig.models.default_model(), None);
    fs::remove_file(rig.dir.join("models.toml")).unwrap();
    rig.models.look();
    rig.models.look();
    assert!(!rig.models.state().exists);
}

#[test]
fn what_was_learnt_stays_when_the_file_changes() {
    let rig = Rig::scripted(r#"{"replies": [{"once": true, "text": "first"}, {"text": "then"}]}"#);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert_eq!(runtime.block_on(rig.ask("x")).unwrap().text(), "first");
    rig.write(
        "models.toml",
        "default = \"offline/other\"\n[providers.offline]\napi = \"scripted\"\nfile = \"replies.json\"\n",
    );
    assert_eq!(rig.model("").name(), "offline/other");
    assert_eq!(runtime.block_on(rig.ask("x")).unwrap().text(), "then");
}

#[tokio::test]
async fn ollama_is_found_where_it_usually_is() {
    let mut looks = 0;
    // A busy machine may take longer than anybody waits.
    let (server, rig, said) = loop {
        looks += 1;
        let server = HttpServer::start([json(200, r#"{"models":[{"name":"qwen3:latest"},{"name":"llama3.2:1b"}]}"#)]);
        let url = server.url.clone();
        let rig = Rig::with("", &[], |options| Options { local: Some(url), ..options });
        rig.models.start();
        let said = rig.models.find_or_look("claude-sonnet-5", "t").await.err().unwrap().to_string();
        if said.contains("Ollama") || looks == 5 {
            break (server, rig, said);
        }
    };
    let line = "add the line `default = \"ollama/qwen3\"` to `models.toml`";
    assert!(said.ends_with(&format!("; Ollama answers at {}: {line}", server.url)), "{said}");
    assert_eq!(rig.unset(""), rig.unset(""), "what was seen is kept for a moment");
    assert!(rig.unset("").contains("Ollama answers"));
    assert_eq!(rig.models.local().await.unwrap().models, ["qwen3:latest", "llama3.2:1b"]);
    assert_eq!((server.received().len(), server.received()[0].line.as_str()), (1, "GET /api/tags HTTP/1.1"));
    rig.write("models.toml", "default = \"ollama/qwen3\"\n");
    assert!(!rig.unset("openai/x").contains("Ollama answers"), "it is set by now");
    assert!(rig.models.local().await.is_none());
}

#[tokio::test]
async fn nobody_waits_long_for_what_may_be_there() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", listener.local_addr().unwrap());
    let models = Models::new(Options { local: Some(silent), ..options(&[]) });
    let begun = std::time::Instant::now();
    let said = models.find_or_look("", "t").await.err().unwrap().to_string();
    assert!(!said.contains("Ollama"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}
