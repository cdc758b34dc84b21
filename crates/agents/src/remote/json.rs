//! `a2a_agents.json`: remotes by name, each with a URL and a bearer token. What is wrong in it is wrong as a whole.

use std::{collections::BTreeMap, time::Duration};

use client::Secret;
use serde::Deserialize;

use super::spec::{Auth, Registry, Sees, Spec, Value};

#[derive(Deserialize)]
struct File {
    agents: BTreeMap<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    auth: Option<Token>,
}

#[derive(Deserialize)]
struct Token {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    token_env: Option<String>,
    #[serde(default)]
    token_file: Option<String>,
}

/// Reads the file's text. An error says what is wrong, and with which agent.
pub(super) fn read(text: &str, timeout: Duration) -> Result<Vec<Spec>, String> {
    let file: File = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let one = |(name, entry): (String, serde_json::Value)| {
        spec(&name, entry, timeout).map_err(|why| format!("agent `{name}`: {why}"))
    };
    file.agents.into_iter().map(one).collect()
}

fn spec(name: &str, entry: serde_json::Value, timeout: Duration) -> Result<Spec, String> {
    if name.is_empty() || name.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("a name has no spaces and is not empty".to_owned());
    }
    let entry: Entry = serde_json::from_value(entry).map_err(|error| error.to_string())?;
    let url = entry.url.filter(|url| !url.is_empty()).ok_or("`url` is required")?;
    let url = client::parse_url(&url).map_err(|error| error.to_string())?;
    let auth = match entry.auth {
        None => Auth::None,
        Some(Token { kind: Some(kind), .. }) if kind != "bearer" => {
            return Err(format!("`auth.type` is `{kind}`, and only \"bearer\" is supported"));
        }
        Some(Token { token: Some(token), .. }) if !token.is_empty() => Auth::Bearer(Value::Inline(Secret::new(token))),
        Some(Token { token_env: Some(name), .. }) => Auth::Bearer(Value::Variable(name)),
        Some(Token { token_file: Some(path), .. }) => Auth::Bearer(Value::file("auth.token_file", &path)?),
        Some(_) => Auth::None,
    };
    Ok(Spec {
        name: name.to_owned(),
        registry: Registry::Json,
        url: Ok(url),
        card: None,
        follows_card: false,
        auth,
        headers: Vec::new(),
        streaming: false,
        binding: None,
        timeout,
        skills: Vec::new(),
        sees: Sees::Text,
        tenants: None,
    }
    .at_card())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_one(text: &str) -> Result<Vec<Spec>, String> {
        read(text, Duration::from_secs(1))
    }

    #[test]
    fn s1_4_to_8_the_sample_is_read() {
        let specs = read_one(
            r#"{"agents": {
              "weatherbot": {"url": "https://weather.example.com/v1/a2a/agents/weather",
                             "auth": {"type": "bearer", "token_env": "SB_TEST_UNSET_WEATHERBOT"}},
              "rfc-reviewer": {"url": "https://rfc.example.com/a2a/reviewer", "auth": {"token": "atr_1", "token_env": "X"}},
              "open": {"url": "http://127.0.0.1:1"}}}"#,
        )
        .unwrap();
        let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(names, ["open", "rfc-reviewer", "weatherbot"]);
        assert!(matches!(specs[0].auth, Auth::None));
        assert!(matches!(&specs[1].auth, Auth::Bearer(Value::Inline(token)) if token.expose() == "atr_1"));
        assert_eq!(specs[2].auth.missing().unwrap(), "the variable SB_TEST_UNSET_WEATHERBOT is not set");
        assert!(specs[2].auth.credential().is_none(), "it stays, without a token");
        let card = "https://rfc.example.com/a2a/reviewer/agent-card.json";
        assert_eq!(specs[1].card_places().iter().map(|url| url.as_str()).collect::<Vec<_>>(), [card]);
    }

    #[test]
    fn s1_3_5_6_what_is_wrong_is_named() {
        for (text, why) in [
            ("{", "EOF"),
            (r#"{"agents": []}"#, "map"),
            ("[]", "File"),
            (r#"{"agents": {"a": {}}}"#, "agent `a`: `url` is required"),
            (r#"{"agents": {"a": {"url": "ftp://x"}}}"#, "agent `a`"),
            (r#"{"agents": {"a": {"url": "http://x", "auth": {"type": "basic"}}}}"#, "`basic`"),
            (r#"{"agents": {"a": {"url": "http://x", "auth": {"token_file": "token"}}}}"#, "`auth.token_file`"),
            (r#"{"agents": {"a b": {"url": "http://x"}}}"#, "agent `a b`"),
        ] {
            let refused = read_one(text).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }

    #[test]
    fn a_host_is_known_in_urls_and_addresses_and_not_in_names() {
        let entry = serde_json::json!({"url": "http://weather.internal:8080/a2a"});
        let spec = spec("weather", entry, Duration::from_secs(1)).unwrap();
        for (text, is_host) in [
            ("http://weather.internal:8080/a2a", true),
            ("https://weather.internal/other", true),
            ("weather.internal:50051", true),
            ("weather.internal", false),
            ("weather.internal: the forecast", false),
            ("http://weather.example.org/a2a", false),
            ("", false),
        ] {
            assert_eq!(spec.names_host(text), is_host, "{text}");
        }
    }
}
