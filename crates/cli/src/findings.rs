//! What a check of something found: one line each, well, doubtful or bad, and what to do about it.

use std::{path::PathBuf, time::Duration};

use agents::{
    Reader,
    command::Quarters,
    file, mind,
    model::{self, Api, Models, ProviderState},
    remote,
};
use client::{Connector, Limits, Policy, egress::Request, parse_url};
use exchange::nearest;
use http::Method;
use serde_json::{Value, json};
use store::AgentId;
use url::Host;

use crate::{
    agent::files::Directory,
    config::Config,
    failure::Failure,
    output::{self, Format, Style},
};

/// How long a provider on this machine may take to answer anything.
const PATIENCE: Duration = Duration::from_secs(1);

/// Advice about a certificate that callers refuse.
pub(crate) const CERTIFICATE_HINT: &str =
    "renew it, or set `public_url` (--public-url) to a URL whose host the certificate names";

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Ok,
    Warn,
    Fail,
}

/// Why callers of the URL on the cards would refuse the certificate, if they would.
pub(crate) fn certificate(config: &Config) -> Option<Finding> {
    config.edge.tls.as_ref()?;
    let problems = config.edge.certificate_problems();
    if problems.is_empty() {
        return Some(Finding::ok("certificate", "it is valid for the host of the URL on the cards"));
    }
    let detail = format!("callers refuse it at the URL on the cards: {}", problems.join("; "));
    Some(Finding::warn("certificate", detail, CERTIFICATE_HINT))
}

/// One thing that was looked at.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    pub(crate) subject: String,
    pub(crate) detail: String,
    pub(crate) hint: Option<String>,
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Ok => Style::Good,
            Self::Warn => Style::Doubtful,
            Self::Fail => Style::Bad,
        }
    }
}

impl Finding {
    pub(crate) fn ok(subject: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { level: Level::Ok, subject: subject.into(), detail: detail.into(), hint: None }
    }

    pub(crate) fn warn(subject: impl Into<String>, detail: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { level: Level::Warn, subject: subject.into(), detail: detail.into(), hint: Some(hint.into()) }
    }

    pub(crate) fn fail(subject: impl Into<String>, detail: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { level: Level::Fail, subject: subject.into(), detail: detail.into(), hint: Some(hint.into()) }
    }

    /// What made a whole command fail, as one finding among others.
    pub(crate) fn failure(subject: impl Into<String>, failure: Failure) -> Self {
        let mut detail = failure.error;
        for cause in failure.causes {
            detail.push_str(": ");
            detail.push_str(cause.trim_end());
        }
        Self { level: Level::Fail, subject: subject.into(), detail, hint: failure.hint }
    }

    fn json(&self) -> Value {
        json!({"check": self.subject, "status": self.level.as_str(), "detail": self.detail, "hint": self.hint})
    }
}

/// The worst of them.
pub(crate) fn worst(findings: &[Finding]) -> Level {
    findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
}

/// Prints them: a line each, with what to do below; or one JSON object.
pub(crate) fn print(findings: &[Finding], format: Format) {
    if format == Format::Json {
        let checks: Vec<Value> = findings.iter().map(Finding::json).collect();
        output::line(&json!({"status": worst(findings).as_str(), "checks": checks}).to_string());
        return;
    }
    let width = findings.iter().map(|finding| finding.subject.chars().count()).max().unwrap_or_default();
    for finding in findings {
        let level = output::styled(finding.level.style(), &format!("{:<4}", finding.level.as_str()));
        let detail = output::harmless(&finding.detail).replace('\n', "\n      ");
        let subject = output::single_line(&finding.subject);
        output::line(format!("{level}  {subject:<width$}  {detail}").trim_end());
        if let Some(hint) = &finding.hint {
            output::line(&format!("      {:<width$}  hint: {hint}", ""));
        }
    }
}

/// The models that a server has with this file, if its environment is that of this command.
pub(crate) fn known_models(file: Option<PathBuf>) -> Models {
    Models::new(model::Options { file, ..model::Options::default() })
}

/// What agents can think with: the file, each provider, and the model of those who name none.
pub(crate) async fn models(models: &Models) -> Vec<Finding> {
    let mut findings = Vec::new();
    let state = models.state();
    let file = state.file.as_ref().map(|file| file.display().to_string());
    match (&file, state.error) {
        (Some(file), Some(error)) => {
            let hint = "correct the file; docs/models.md describes it";
            findings.push(Finding::fail("models", format!("{file}: {error}"), hint));
        }
        (Some(file), None) if state.exists => findings.push(Finding::ok("models", file.clone())),
        _ => findings.push(Finding::ok("models", "no models.toml: what the environment names")),
    }
    for state in models.providers() {
        let silent = match &state.url {
            Some(url) if state.key.is_none() && state.error.is_none() => !answers(url).await,
            _ => false,
        };
        findings.push(provider(&state, silent));
    }
    // Nobody knows what a file means that cannot be read, and that it cannot was said.
    if models.state().error.is_some() {
        return findings;
    }
    let subject = "default model";
    let local = models.local().await;
    match models.find_or_look("", "").await {
        Ok(found) => findings.push(Finding::ok(subject, found.name())),
        Err(unset) => {
            let place = file.unwrap_or_else(|| "models.toml".to_owned());
            let hint = match local {
                Some(local) => format!("add the line `{}` to {place}", local.line()),
                None => {
                    "agents run by models, such as `index`, cannot answer until a model can be asked; docs/models.md says how"
                        .to_owned()
                }
            };
            findings.push(Finding::warn(subject, unset.to_string(), hint));
        }
    }
    findings
}

/// Whether anything answers at the address of a provider on this machine. One that is elsewhere is not asked.
async fn answers(url: &str) -> bool {
    let Ok(url) = parse_url(url) else { return true };
    let is_here = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    if !is_here {
        return true;
    }
    let limits = Limits { connect_timeout: PATIENCE, total_timeout: Some(PATIENCE), ..Limits::default() };
    let request = Request {
        method: Method::GET,
        url: &url,
        token: None,
        headers: Vec::new(),
        body: None,
        streaming: false,
        http2: false,
    };
    Connector::new(Policy::Operator, limits).send(request).await.is_ok()
}

/// A provider, without what is secret of it. `silent` is that nothing answers there.
fn provider(state: &ProviderState, silent: bool) -> Finding {
    let subject = format!("provider {}", state.name);
    let mut detail = state.url.clone().unwrap_or_else(|| "nowhere".to_owned());
    match &state.key {
        Some(key) => detail.push_str(&format!(", key from {key}")),
        None => detail.push_str(", no key"),
    }
    if !state.tenants.is_empty() {
        detail.push_str(&format!(", tenants with a key of their own: {}", state.tenants.join(", ")));
    }
    match &state.error {
        None if silent => {
            let hint = format!("start it, or change what models.toml and the environment say of `{}`", state.name);
            Finding::warn(subject, format!("{detail}: nothing answers there"), hint)
        }
        None => Finding::ok(subject, detail),
        Some(error) => {
            let hint = match state.api {
                Api::Scripted => "write the file of replies, or correct it; docs/models.md describes it",
                _ => "set it where the server is started, or change what models.toml says of it",
            };
            Finding::warn(subject, format!("{detail}: {error}"), hint)
        }
    }
}

/// Reads agent files to tell what a server on this machine would make of them.
pub(crate) fn reader() -> Reader {
    Reader::default().with_quarters(Quarters::launched())
}

/// What is said of an agent that has the id of a demo agent.
pub(crate) fn in_place_of_a_demo(id: &str) -> Option<String> {
    let is_demo = agents::demo().iter().any(|entry| entry.profile.id.as_str() == id);
    is_demo.then(|| format!("it takes the place of the demo agent `{id}`"))
}

/// Whether whoever is to answer messages that name no agent is there.
pub(crate) fn default_agent(config: &Config) -> Option<Finding> {
    let subject = "default agent";
    let default = config.exchange.default_agent.as_ref()?;
    let mut known: Vec<AgentId> = vec![mind::INDEX.parse().ok()?];
    if config.keys.demo_agents() {
        known.extend(agents::demo().into_iter().map(|entry| entry.profile.id));
    }
    let files = config.agents_dir.as_deref().and_then(|directory| file::list(directory).ok()).unwrap_or_default();
    // What is wrong with a file is told of the file.
    known.extend(files.iter().filter_map(|path| file::id_of(path).ok()));
    known.extend(remote::names(&config.remotes).iter().filter_map(|name| name.parse().ok()));
    if known.contains(default) {
        return Some(Finding::ok(subject, default.as_str()));
    }
    let detail = format!("there is no agent `{default}`: messages that name no agent will be refused");
    Some(Finding::fail(subject, detail, missing_default(default, &known)))
}

/// What to do about a default agent that is not there.
pub(crate) fn missing_default(default: &AgentId, known: &[AgentId]) -> String {
    match nearest(default.as_str(), known) {
        Some(meant) => format!("did you mean `{meant}`? it is `default_agent` in the configuration"),
        None => "change `default_agent` in the configuration, or add the agent; `sb agent list` shows what there is"
            .to_owned(),
    }
}

/// The agents' files of a directory, each checked as a server with these models would. `demo` is whether there are demo agents.
pub(crate) fn agent_files(directory: Option<PathBuf>, models: &Models, demo: bool) -> Vec<Finding> {
    let subject = "agents";
    let Some(directory) = directory else {
        return vec![Finding::ok(subject, "no directory for agent files: neither --config nor a home is there")];
    };
    let place = directory.display().to_string();
    // What is wrong with the models is told once, and not again of each agent.
    let reader = if models.state().error.is_some() { reader() } else { reader().with_models(models.clone()) };
    let files = match Directory::new(directory).agents(&reader) {
        Ok(files) => files,
        Err(failure) => return vec![Finding::failure(subject, failure)],
    };
    if files.is_empty() {
        return vec![Finding::ok(subject, format!("no agent files in {place}"))];
    }
    let mut findings = Vec::new();
    for mut file in files {
        file.warnings.extend(in_place_of_a_demo(&file.id.to_string()).filter(|_| demo));
        let subject = format!("agent {}", file.id);
        let path = file.path.display();
        findings.push(match file.error {
            Some(problem) => {
                Finding::fail(subject, format!("{path}: {problem}"), "correct the file; docs/agents.md describes it")
            }
            None if !file.warnings.is_empty() => Finding::warn(
                subject,
                format!("{path}: {}", file.warnings.join("; ")),
                "the agent loads all the same; change what the line says",
            ),
            None => Finding::ok(subject, path.to_string()),
        });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_counts() {
        let ok = || Finding::ok("a", "b");
        assert_eq!(worst(&[]), Level::Ok);
        assert_eq!(worst(&[ok(), Finding::warn("a", "b", "c"), ok()]), Level::Warn);
        assert_eq!(worst(&[Finding::fail("a", "b", "c"), ok()]), Level::Fail);
    }

    #[test]
    fn a_failure_is_told_with_its_causes() {
        let failure = Failure::usage("what").because("why\n").hint("do");
        let finding = Finding::failure("configuration", failure);
        assert_eq!(finding.detail, "what: why");
        assert_eq!(finding.hint.as_deref(), Some("do"));
    }
}
