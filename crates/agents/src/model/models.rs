//! The models of an instance: what the environment and `models.toml` say, looked at twice a second.
//!
//! A file that breaks keeps its last good version, and so does a file of replies. What was learnt of a provider stays when the file
//! changes.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use arc_swap::ArcSwap;
use client::{Connector, Limits, Policy};

use super::{
    ask::{Model, Way},
    choose::{Known, Unset},
    local::{self, Local, Look},
    provider::{Learnt, Provider, ProviderState},
    scripted::Script,
    settings::{File, Settings},
};
use crate::settled;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_millis(500);
/// The file's name where nobody says another.
const FILE: &str = "models.toml";

/// Gives the value of a variable.
pub type Environment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What models are asked with.
#[derive(Clone)]
pub struct Options {
    /// `models.toml`, which may not be there.
    pub file: Option<PathBuf>,
    /// Where variables come from.
    pub environment: Environment,
    /// Where Ollama is looked for when nothing is set; nowhere if `None`.
    pub local: Option<String>,
    /// How long to wait before the second attempt, at most; it doubles with each.
    pub backoff: Duration,
    /// How long a provider that has failed too often is not called.
    pub circuit: Duration,
}

/// The models of an instance. Cheap to clone; with the last clone the looking ends.
#[derive(Clone)]
pub struct Models {
    inner: Arc<Inner>,
}

/// How the file stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Where it is looked for.
    pub file: Option<PathBuf>,
    /// Whether it is there.
    pub exists: bool,
    /// What is wrong with it; what it said before counts.
    pub error: Option<String>,
}

struct Inner {
    options: Options,
    way: Way,
    known: ArcSwap<Known>,
    files: Mutex<Files>,
    look: Look,
}

/// What was read last.
#[derive(Default)]
struct Files {
    text: Option<String>,
    /// It was gone or empty when it was last looked at, as a file is while somebody writes it anew.
    doubtful: bool,
    parsed: File,
    settings: Settings,
    error: Option<String>,
    looked: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            file: None,
            environment: Arc::new(crate::environment::secret),
            local: Some(local::USUAL.to_owned()),
            backoff: Duration::from_millis(500),
            circuit: Duration::from_secs(30),
        }
    }
}

impl Models {
    /// Reads the file, if there is one, and what it names. What is wrong with it is logged and kept ([`Models::state`]).
    pub fn new(options: Options) -> Self {
        // How long an answer may take is each provider's own matter.
        let connector = Connector::new(Policy::Operator, Limits::default());
        let inner = Inner {
            way: Way { connector, backoff: options.backoff },
            known: ArcSwap::default(),
            files: Mutex::default(),
            look: Look::new(options.local.as_deref()),
            options,
        };
        inner.look();
        Self { inner: Arc::new(inner) }
    }

    /// Keeps looking at the files, and once at whether there is a provider on this machine. Nobody is waited for.
    pub fn start(&self) {
        tokio::spawn(watch(Arc::downgrade(&self.inner)));
        self.look_soon();
    }

    /// The model of a name, as a tenant may ask it. An empty name is the default model's.
    pub fn find(&self, model: &str, tenant: &str) -> Result<Model, Unset> {
        let known = self.inner.known.load();
        let chosen = known.choose(model, tenant).map_err(|unset| {
            self.look_soon();
            unset.with_local(self.inner.look.last().filter(|_| !known.providers.contains_key("ollama")))
        })?;
        Ok(Model::new(chosen, self.inner.way.clone()))
    }

    /// The same; whoever has to hear that there is none also hears what is on this machine now, which may take 200 ms.
    pub async fn find_or_look(&self, model: &str, tenant: &str) -> Result<Model, Unset> {
        if let Ok(found) = self.find(model, tenant) {
            return Ok(found);
        }
        self.local().await;
        self.find(model, tenant)
    }

    /// What answers on this machine although nobody has set it. Looks if nobody has for a moment, and takes 200 ms at most.
    pub async fn local(&self) -> Option<Local> {
        let found = self.inner.look.now().await;
        found.filter(|_| !self.inner.known.load().providers.contains_key("ollama"))
    }

    /// The providers, by name.
    pub fn providers(&self) -> Vec<ProviderState> {
        self.inner.known.load().providers.values().map(|provider| provider.state()).collect()
    }

    /// What an empty name means.
    pub fn default_model(&self) -> Option<String> {
        self.inner.known.load().default.clone()
    }

    /// How the file stands.
    pub fn state(&self) -> State {
        let files = self.inner.files();
        State { file: self.inner.options.file.clone(), exists: files.text.is_some(), error: files.error.clone() }
    }

    /// Looks at the files now, as is otherwise done twice a second.
    pub fn look(&self) {
        self.inner.look();
    }

    fn look_soon(&self) {
        if self.inner.look.is_stale()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let inner = Arc::clone(&self.inner);
            runtime.spawn(async move { inner.look.now().await });
        }
    }
}

/// Looks at the files.
async fn watch(inner: Weak<Inner>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(inner) = inner.upgrade() else { return };
        // Reading a file may wait for a disk.
        let looked = tokio::task::spawn_blocking(move || inner.look()).await;
        if looked.is_err() {
            tracing::error!("the files of models cannot be looked at");
        }
    }
}

impl Inner {
    fn look(&self) {
        let mut files = self.files();
        let name = self.options.file.as_deref().and_then(Path::file_name);
        let name = name.map_or_else(|| FILE.to_owned(), |name| name.to_string_lossy().into_owned());
        let before = files.error.clone();
        files.read(self.options.file.as_deref());
        if let Some(error) = files.error.as_ref().filter(|error| before.as_ref() != Some(error)) {
            let path = self.options.file.as_deref().unwrap_or(Path::new(FILE));
            tracing::error!(path = %path.display(), error, "`{name}` is broken; what it said last counts");
        }
        let directory = self.options.file.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        // Keys in files may have changed although the file has not.
        let settings = files.parsed.resolve(&*self.options.environment, directory);
        let known = self.known.load();
        if !std::mem::replace(&mut files.looked, true) || settings != files.settings || before != files.error {
            let providers = settings.providers.values().map(|spec| {
                let same = known.providers.get(&spec.name);
                let same_place = same.filter(|same| same.spec.url == spec.url && same.spec.api == spec.api);
                let learnt = same_place.map(|same| Arc::clone(&same.learnt));
                let script = spec.script.as_ref().map(|path| {
                    let same = same.and_then(|same| same.script.as_ref()).filter(|script| script.path() == path);
                    same.map_or_else(|| Arc::new(Script::new(path)), Arc::clone)
                });
                let learnt = learnt.unwrap_or_else(|| Arc::new(Learnt::new(self.options.circuit)));
                (spec.name.clone(), Arc::new(Provider { spec: spec.clone(), learnt, script }))
            });
            let providers: BTreeMap<String, Arc<Provider>> = providers.collect();
            for provider in providers.values() {
                let state = provider.state();
                if let Some(error) = state.error.filter(|_| provider.script.is_none()) {
                    tracing::warn!(
                        provider.name = state.name,
                        error,
                        "provider `{}` cannot be used by all",
                        state.name
                    );
                }
            }
            self.known.store(Arc::new(Known {
                default: settings.default.clone(),
                fallback: settings.fallback,
                providers,
                file: name,
                error: files.error.clone(),
            }));
            files.settings = settings;
        }
        for provider in self.known.load().providers.values() {
            if let Some(script) = &provider.script {
                script.look();
            }
        }
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    /// Reads the file again if it has changed.
    fn read(&mut self, path: Option<&Path>) {
        let Some(path) = path else { return };
        let text = match settled::read_to_string(path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                self.error = Some(format!("it cannot be read: {error}"));
                return;
            }
        };
        if text == self.text {
            self.doubtful = false;
            return;
        }
        let is_nothing = text.as_ref().is_none_or(|text| text.trim().is_empty());
        if is_nothing && self.text.is_some() && !std::mem::replace(&mut self.doubtful, true) {
            return;
        }
        self.doubtful = false;
        match File::parse(text.as_deref().unwrap_or_default()) {
            Ok(file) => {
                self.parsed = file;
                self.error = None;
            }
            Err(problem) => self.error = Some(problem),
        }
        self.text = text;
    }
}
