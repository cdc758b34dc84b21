//! Which provider a model's name means, and what is said when there is none.

use std::{collections::BTreeMap, fmt, sync::Arc};

use client::Secret;

use super::{
    known::{WELL_KNOWN, maker, well_known},
    local::Local,
    provider::Provider,
};
use crate::{breaker::Breaker, units::nearest};

/// Why no model can be asked. Its text is for operators, and says what to set. Callers are told [`Unset::told`], which names no variable, no
/// file and no provider that they have not named themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unset(Box<Missing>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Missing {
    problem: Problem,
    /// Providers that can be asked.
    set: Vec<String>,
    /// Something is wrong with the file. What, is the operator's business.
    broken: bool,
    /// The file's name.
    file: String,
    local: Option<Local>,
}

/// The reason why a model cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Problem {
    told: String,
    /// The same with what the operator can do about it.
    detail: String,
}

/// What can be asked.
#[derive(Clone, Default)]
pub(super) struct Known {
    pub(super) default: Option<String>,
    pub(super) fallback: bool,
    pub(super) providers: BTreeMap<String, Arc<Provider>>,
    /// The file's name, for people.
    pub(super) file: String,
    /// What is wrong with the file; what it said before counts.
    pub(super) error: Option<String>,
}

/// A provider and what it calls the model.
pub(super) struct Chosen {
    pub(super) provider: Arc<Provider>,
    pub(super) model: String,
    pub(super) key: Option<Secret>,
    /// Whether whoever asks may call it now.
    pub(super) circuit: Arc<Breaker>,
}

impl Known {
    /// Whose model this is. An empty name is the default model's.
    pub(super) fn choose(&self, model: &str, tenant: &str) -> Result<Chosen, Unset> {
        let model = model.trim();
        let chosen = match (model, &self.default) {
            // Its name is the operator's choice, and no caller has said it.
            ("", Some(default)) => self
                .find(default, tenant)
                .map_err(|problem| Problem { told: "the default model cannot be asked".to_owned(), ..problem }),
            ("", None) => Err(self.nothing()),
            // Not where there is a provider whose key is missing, or that does not offer this: that would be another's money.
            (model, Some(default)) if self.fallback && !self.has_provider_of(model) => {
                self.find(model, tenant).or_else(|why| self.find(default, tenant).map_err(|_| why))
            }
            (model, _) => self.find(model, tenant),
        };
        chosen.map_err(|problem| {
            let usable = self.providers.values().filter(|provider| provider.is_usable_by(tenant));
            Unset(Box::new(Missing {
                problem,
                set: usable.map(|provider| provider.spec.name.clone()).collect(),
                broken: self.error.is_some(),
                file: self.file.clone(),
                local: None,
            }))
        })
    }

    fn has_provider_of(&self, name: &str) -> bool {
        let first = name.split_once('/').map_or(name, |(first, _)| first);
        self.providers.contains_key(first) || maker(name).is_some_and(|maker| self.providers.contains_key(maker))
    }

    fn find(&self, name: &str, tenant: &str) -> Result<Chosen, Problem> {
        let (first, rest) = name.split_once('/').map_or((name, None), |(first, rest)| (first, Some(rest)));
        if let Some(provider) = self.providers.get(first) {
            let Some(model) = rest.filter(|model| !model.is_empty()) else {
                let why = format!("model `{name}` names a provider and no model: write `{first}/MODEL`");
                return Err(Problem { told: why.clone(), detail: why });
            };
            return self.take(provider, model, name, tenant);
        }
        if rest.is_none()
            && let Some(provider) = maker(name).and_then(|maker| self.providers.get(maker))
        {
            return self.take(provider, name, name, tenant);
        }
        // Its ids look like that: `anthropic/claude-sonnet-5`. What is on this machine is none of them.
        let is_local = well_known(first).is_some_and(|known| known.key.is_none());
        if let Some(provider) = self.providers.get("openrouter").filter(|_| !is_local) {
            let whole = match maker(name).filter(|_| rest.is_none()) {
                Some(maker) => format!("{maker}/{name}"),
                None => name.to_owned(),
            };
            return self.take(provider, &whole, name, tenant);
        }
        Err(self.missing(name, first, rest))
    }

    fn take(&self, provider: &Arc<Provider>, model: &str, name: &str, tenant: &str) -> Result<Chosen, Problem> {
        let whose = &provider.spec.name;
        let unusable = |why: String| Problem {
            told: unusable(name),
            detail: format!("model `{name}` needs the provider `{whose}`, which cannot be asked: {why}"),
        };
        if let Some(offered) = provider.spec.models.as_ref().filter(|_| !provider.spec.offers(model)) {
            let offered = offered.join(", ");
            let told = format!("model `{name}` may not be asked here");
            let detail = format!("{told}: of `{whose}` there are {offered}");
            return Err(Problem { told, detail });
        }
        let key = provider.spec.key_for(tenant).map_err(unusable)?;
        if let Some(script) = provider.script.as_ref().filter(|script| script.loaded().is_none()) {
            return Err(unusable(script.error().unwrap_or_else(|| "its file is not read yet".to_owned())));
        }
        let circuit = provider.learnt.circuit(tenant);
        Ok(Chosen { provider: Arc::clone(provider), model: model.to_owned(), key, circuit })
    }

    fn nothing(&self) -> Problem {
        let variables: Vec<&str> = WELL_KNOWN.iter().filter_map(|known| known.key.or(known.base)).collect();
        let file = &self.file;
        let told = "no model is named, and there is no default".to_owned();
        if self.providers.is_empty() {
            let variables = variables.join(", ");
            let detail = format!(
                "no model provider is set: set one of {variables} in the server's environment, or describe one in `{file}`"
            );
            Problem { told, detail }
        } else {
            let detail = format!(
                "no model is named and there is no default: add the line `default = \"PROVIDER/MODEL\"` to `{file}`"
            );
            Problem { told, detail }
        }
    }

    fn missing(&self, name: &str, first: &str, rest: Option<&str>) -> Problem {
        let file = &self.file;
        let whose = if rest.is_some() { Some(first) } else { maker(name) };
        let Some(whose) = whose else {
            // Whoever is there already is the likeliest.
            let whose = self.providers.keys().next().map_or("ollama", String::as_str);
            let told = format!("model `{name}` does not say whose it is: write PROVIDER/MODEL");
            let detail = format!("{told}, such as `{whose}/{name}`");
            return Problem { told, detail };
        };
        let needs = format!("model `{name}` needs the provider `{whose}`");
        let detail = match well_known(whose) {
            Some(known) => match known.key.or(known.base) {
                Some(variable) => format!(
                    "{needs}: set {variable} in the server's environment, or add `[providers.{whose}]` to `{file}`"
                ),
                None => format!("{needs}: add `[providers.{whose}]` to `{file}`"),
            },
            None => {
                let names = self.providers.keys().map(String::as_str).chain(WELL_KNOWN.iter().map(|known| known.name));
                let meant = nearest(whose, &names.collect::<Vec<_>>());
                let meant = meant.map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"));
                format!(
                    "{needs}, which nobody has described{meant}: add `[providers.{whose}]` with `api` and `url` to `{file}`"
                )
            }
        };
        Problem { told: unusable(name), detail }
    }
}

/// A caller cannot tell a provider that is not there from one that is not set up.
fn unusable(name: &str) -> String {
    format!("model `{name}` cannot be asked")
}

impl Unset {
    /// The sentence for callers.
    pub fn told(&self) -> String {
        format!("{}: `sb doctor`, run by the operator of this server, says what to set", self.0.problem.told)
    }

    /// With what was seen on this machine.
    #[must_use]
    pub(super) fn with_local(mut self, local: Option<Local>) -> Self {
        self.0.local = local;
        self
    }
}

impl fmt::Display for Unset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.problem.detail)?;
        if self.0.broken {
            write!(f, "; `{}` is broken, and its operator finds how in the log and by `sb doctor`", self.0.file)?;
        }
        if !self.0.set.is_empty() {
            write!(f, "; providers that are set: {}", self.0.set.join(", "))?;
        }
        if let Some(local) = &self.0.local {
            write!(f, "; Ollama answers at {}: add the line `{}` to `{}`", local.url, local.line(), self.0.file)?;
            if local.models.is_empty() {
                f.write_str(" after `ollama pull llama3.2`")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Unset {}
