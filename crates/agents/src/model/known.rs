//! Providers that everybody knows: they need no more than a variable, or their name in the file.

use super::settings::Api;

/// What is known of a provider by its name.
#[derive(Debug)]
pub(super) struct WellKnown {
    pub(super) name: &'static str,
    pub(super) api: Api,
    /// Where it is.
    pub(super) url: &'static str,
    /// The variable that has its key. Those without one are on this machine and need none.
    pub(super) key: Option<&'static str>,
    /// The variable that says that it is somewhere else.
    pub(super) base: Option<&'static str>,
    /// What is asked where nobody names a model.
    pub(super) model: Option<&'static str>,
    /// Whether its models see pictures, as far as one can say that of all of them.
    pub(super) images: bool,
}

/// By which comes first where nobody names a model.
pub(super) const WELL_KNOWN: &[WellKnown] = &[
    WellKnown {
        name: "anthropic",
        api: Api::Anthropic,
        url: "https://api.anthropic.com",
        key: Some("ANTHROPIC_API_KEY"),
        base: Some("ANTHROPIC_BASE_URL"),
        model: Some("claude-sonnet-5"),
        images: true,
    },
    WellKnown {
        name: "openai",
        api: Api::Openai,
        url: "https://api.openai.com/v1",
        key: Some("OPENAI_API_KEY"),
        base: Some("OPENAI_BASE_URL"),
        model: Some("gpt-5"),
        images: true,
    },
    WellKnown {
        name: "openrouter",
        api: Api::Openai,
        url: "https://openrouter.ai/api/v1",
        key: Some("OPENROUTER_API_KEY"),
        base: None,
        model: Some("anthropic/claude-sonnet-5"),
        images: true,
    },
    WellKnown {
        name: "ollama",
        api: Api::Openai,
        url: "http://127.0.0.1:11434/v1",
        key: None,
        base: Some("OLLAMA_HOST"),
        model: Some("llama3.2"),
        images: false,
    },
    WellKnown {
        name: "vllm",
        api: Api::Openai,
        url: "http://127.0.0.1:8000/v1",
        key: None,
        base: None,
        model: None,
        images: false,
    },
    WellKnown {
        name: "lmstudio",
        api: Api::Openai,
        url: "http://127.0.0.1:1234/v1",
        key: None,
        base: None,
        model: None,
        images: false,
    },
];

/// Whoever has this name.
pub(super) fn well_known(name: &str) -> Option<&'static WellKnown> {
    WELL_KNOWN.iter().find(|known| known.name == name)
}

/// Who makes a model whose name does not say whose it is.
pub(super) fn maker(model: &str) -> Option<&'static str> {
    let is_numbered = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    if model.starts_with("claude-") {
        Some("anthropic")
    } else if model.starts_with("gpt-")
        || model.starts_with("chatgpt-")
        || model.strip_prefix('o').is_some_and(is_numbered)
    {
        Some("openai")
    } else {
        None
    }
}

/// The URL that `OLLAMA_HOST` means: it may be an address without a port, or the one that Ollama listens at.
pub(super) fn ollama_url(host: &str) -> String {
    let host = host.trim().trim_end_matches('/');
    let (scheme, rest) = host.split_once("://").unwrap_or(("http", host));
    let (place, path) = rest.split_once('/').map_or((rest, ""), |(place, path)| (place, path));
    // An IPv6 address has colons of its own.
    let has_port = place.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let (name, port) = match place.rsplit_once(':') {
        Some((name, port)) if has_port => (name, port),
        _ if host.contains("://") && scheme == "https" => (place, "443"),
        _ => (place, "11434"),
    };
    let name = if matches!(name, "0.0.0.0" | "" | "[::]") { "127.0.0.1" } else { name };
    let path = path.trim_end_matches('/');
    let path = if path.is_empty() { "v1".to_owned() } else { path.to_owned() };
    format!("{scheme}://{name}:{port}/{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ollama_is_where_its_own_tools_look_for_it() {
        for (host, url) in [
            ("127.0.0.1", "http://127.0.0.1:11434/v1"),
            ("0.0.0.0:11434", "http://127.0.0.1:11434/v1"),
            (":5000", "http://127.0.0.1:5000/v1"),
            ("gpu.example", "http://gpu.example:11434/v1"),
            ("http://gpu.example:8080/", "http://gpu.example:8080/v1"),
            ("https://gpu.example/v1", "https://gpu.example:443/v1"),
            ("https://gpu.example/ollama/v1/", "https://gpu.example:443/ollama/v1"),
            ("[::1]:11434", "http://[::1]:11434/v1"),
            ("[::1]", "http://[::1]:11434/v1"),
        ] {
            assert_eq!(ollama_url(host), url, "{host}");
        }
    }

    #[test]
    fn a_bare_name_tells_who_makes_it() {
        for (model, name) in [
            ("claude-sonnet-5", Some("anthropic")),
            ("gpt-5", Some("openai")),
            ("o3-mini", Some("openai")),
            ("olmo", None),
            ("llama3.2", None),
        ] {
            assert_eq!(maker(model), name, "{model}");
        }
    }
}
