//! A provider as it stands: what is said of it, and what was learnt of it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::Serialize;

use super::{
    scripted::Script,
    settings::{Api, Source, Spec},
};
use crate::breaker::Breaker;

/// So many tenants have circuits of their own; those beyond share one.
const MOST_CIRCUITS: usize = 10_000;
/// So many models are remembered for what they do not take; their names come from whoever writes agents.
const MOST_QUIRKS: usize = 1000;

/// A provider.
pub(super) struct Provider {
    pub(super) spec: Spec,
    pub(super) learnt: Arc<Learnt>,
    /// Where its replies come from, if that is a file.
    pub(super) script: Option<Arc<Script>>,
}

/// What stays when the file changes.
#[derive(Debug)]
pub(super) struct Learnt {
    /// By tenant: who asks for what breaks a provider closes nobody else's way to it.
    circuits: Mutex<BTreeMap<String, Arc<Breaker>>>,
    open: Duration,
    /// By model.
    quirks: Mutex<BTreeMap<String, Quirks>>,
}

/// What a model does not take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Quirks {
    /// `stream_options`.
    pub(super) no_stream_options: bool,
    /// `max_tokens`; it wants `max_completion_tokens`.
    pub(super) completion_tokens: bool,
    /// `temperature`.
    pub(super) no_temperature: bool,
}

/// What people may know of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProviderState {
    /// Its name.
    pub name: String,
    /// How it is spoken to.
    pub api: Api,
    /// Where it is; the file, where replies come from one.
    pub url: Option<String>,
    /// Whether everybody may use it, by a key that is there or because none is needed.
    pub usable: bool,
    /// Where its key is, if it needs one. Never the key.
    pub key: Option<String>,
    /// Tenants with a key of their own.
    pub tenants: Vec<String>,
    /// Whether it is shown pictures.
    pub images: bool,
    /// `closed`, `open` or `half-open`: whether it is called; for whom that stands worst.
    pub circuit: &'static str,
    /// What is wrong.
    pub error: Option<String>,
}

impl Provider {
    /// Whether whoever has no key of its own can use it.
    pub(super) fn is_usable_by(&self, tenant: &str) -> bool {
        self.spec.key_for(tenant).is_ok() && self.script.as_ref().is_none_or(|script| script.loaded().is_some())
    }

    pub(super) fn state(&self) -> ProviderState {
        let spec = &self.spec;
        let url = match &spec.url {
            Some(Ok(url)) => Some(url.to_string()),
            Some(Err(_)) => None,
            None => spec.script.as_ref().map(|file| file.display().to_string()),
        };
        let tenants = spec.tenants.iter();
        let of_tenants =
            tenants.clone().find_map(|(tenant, key)| Some(format!("tenant {tenant}: {}", key.value.as_ref().err()?)));
        let error = spec.url.as_ref().and_then(|url| url.as_ref().err().cloned());
        ProviderState {
            name: spec.name.clone(),
            api: spec.api,
            url,
            usable: self.is_usable_by(""),
            key: Some(&spec.key.from).filter(|from| **from != Source::Nowhere).map(ToString::to_string),
            tenants: tenants.map(|(tenant, _)| tenant.clone()).collect(),
            images: spec.images,
            circuit: self.learnt.circuit_name(),
            error: error
                .or_else(|| spec.key.value.as_ref().err().cloned())
                .or_else(|| self.script.as_ref().and_then(|script| script.error()))
                .or(of_tenants),
        }
    }
}

impl Learnt {
    pub(super) fn new(open: Duration) -> Self {
        Self { circuits: Mutex::default(), open, quirks: Mutex::default() }
    }

    /// The circuit of a tenant.
    pub(super) fn circuit(&self, tenant: &str) -> Arc<Breaker> {
        let mut circuits = self.circuits();
        let tenant = if circuits.len() < MOST_CIRCUITS || circuits.contains_key(tenant) { tenant } else { "" };
        match circuits.get(tenant) {
            Some(circuit) => Arc::clone(circuit),
            None => Arc::clone(circuits.entry(tenant.to_owned()).or_insert_with(|| Arc::new(Breaker::new(self.open)))),
        }
    }

    /// How the worst of the circuits stands.
    fn circuit_name(&self) -> &'static str {
        let circuits = self.circuits();
        let names = || circuits.values().map(|circuit| circuit.name());
        let found = |name: &'static str| names().find(|one| *one == name);
        found("open").or_else(|| found("half-open")).unwrap_or("closed")
    }

    fn circuits(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Breaker>>> {
        self.circuits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn quirks(&self, model: &str) -> Quirks {
        let quirks = self.quirks.lock().unwrap_or_else(PoisonError::into_inner);
        quirks.get(model).copied().unwrap_or_default()
    }

    pub(super) fn remember(&self, model: &str, learnt: Quirks) {
        let mut quirks = self.quirks.lock().unwrap_or_else(PoisonError::into_inner);
        if quirks.len() >= MOST_QUIRKS {
            quirks.clear();
        }
        quirks.insert(model.to_owned(), learnt);
    }
}
