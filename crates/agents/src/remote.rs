//! Agents elsewhere: who they are, whether they answer, and turns that are taken by them.
//!
//! Two registries say who there is, each with its own idea of what a remote may know ([`Sees`]): `a2a_agents.json` and `agents.yaml` with
//! `agents.d`. The files are looked at twice a second; one that breaks keeps its last good version. A remote of the second is an agent of this
//! server; one of the first is known to those who call it by `/a2a` or in a chat.

mod call;
mod directory;
mod files;
mod follow;
mod json;
mod peer;
mod security;
mod share;
mod spec;
mod state;
mod tool;
mod yaml;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::Duration,
};

use a2a::{AgentSkill, Part};
use arc_swap::ArcSwap;
use async_trait::async_trait;
use bytes::Bytes;
use client::egress::for_tenant;
use exchange::{Agent, Agents, Caller, Delivery, Elsewhere, Entry, Errands, OnCrash, Outcome, Output, Profile, Turn};
use futures_util::future::join_all;
use store::{AgentId, TaskId, TenantId};
use url::Host;

use self::files::Files;
pub use self::{
    peer::Peer,
    spec::{Registry, Sees, Spec},
    tool::Session,
    yaml::Entry as RemoteEntry,
};
use crate::{
    file::{Table, keys_of},
    kind::{Built, Context, Kind},
};

/// Remotes, described by the table `[remote]`.
pub const KIND: Kind = Kind { name: "remote", moved: &[], keys: keys_of::<RemoteEntry>, prepare, build };

/// How often the files are looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How long all looks together may take.
const LOOK_TIME: Duration = Duration::from_secs(15);
/// How long to wait between the first attempts at a card.
const FIRST_WAITS: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(10), Duration::from_secs(30)];
/// How long a turn rests whose remote is not known at the moment.
const REST: Duration = Duration::from_secs(30);
/// How many turns of a remote are followed at once. Each costs a connection and no more.
const CONCURRENCY: usize = 256;
/// So often a turn may be taken up after a crash.
const ATTEMPTS: u32 = 20;

/// What remotes are called with.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether anybody is called.
    pub enabled: bool,
    /// `a2a_agents.json`.
    pub json: Option<PathBuf>,
    /// `agents.yaml`.
    pub yaml: Option<PathBuf>,
    /// `agents.d`.
    pub directory: Option<PathBuf>,
    /// How often cards are asked for again.
    pub card_refresh: Duration,
    /// How often is looked whether somebody is there.
    pub probe: Duration,
    /// How long a call may take where the remote's entry does not say.
    pub timeout: Duration,
    /// After so long without anything new a task that is followed is parked.
    pub quiet: Duration,
    /// How long a parked task rests at first.
    pub poll: Duration,
    /// How long it is tried to deliver a message to a remote that is away or refuses it for the moment.
    pub deliver_for: Duration,
    /// How long a task is followed in all.
    pub track_for: Duration,
    /// The longest answer.
    pub body_bytes: usize,
    /// The longest event.
    pub event_bytes: usize,
    /// The most that may come in one turn.
    pub turn_bytes: usize,
    /// Whose cards are believed.
    pub trust: client::Trust,
    /// Where the names of remotes have led.
    pub names: Arc<client::egress::Steady>,
    /// Where remotes reach this server, once that is known.
    pub base: Arc<OnceLock<String>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            enabled: true,
            json: None,
            yaml: None,
            directory: None,
            card_refresh: Duration::from_secs(600),
            probe: Duration::from_secs(60),
            timeout: Duration::from_secs(300),
            quiet: Duration::from_secs(20),
            poll: Duration::from_secs(5),
            deliver_for: Duration::from_secs(600),
            track_for: Duration::from_secs(86_400),
            body_bytes: 8 << 20,
            event_bytes: 4 << 20,
            turn_bytes: 64 << 20,
            trust: client::Trust::default(),
            names: Arc::default(),
            base: Arc::default(),
        }
    }
}

impl Options {
    /// Where a remote can say that something has happened, if it can reach this server: what is only reached on this machine is no place for
    /// others.
    fn callback(&self, spec: &Spec) -> Option<String> {
        let base = self.base.get()?;
        let local = |url: &url::Url| match url.host() {
            Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => true,
        };
        let ours = url::Url::parse(base).ok()?;
        let theirs = spec.url.as_ref().ok()?;
        (!local(&ours) || local(theirs)).then(|| base.trim_end_matches('/').to_owned())
    }
}

/// The remotes of an instance. Cheap to clone; with the last clone the looking ends.
#[derive(Clone)]
pub struct Remotes {
    inner: Arc<Inner>,
}

struct Inner {
    options: Options,
    agents: Agents,
    peers: ArcSwap<Peers>,
    files: Mutex<Files>,
    /// Those of agent files, which live as long as their agents.
    own: Mutex<Vec<Weak<Peer>>>,
    /// One change of what is offered at a time.
    changing: Mutex<()>,
}

/// Who there is.
#[derive(Default, Clone)]
struct Peers {
    /// Of `agents.yaml` and `agents.d`.
    listed: BTreeMap<String, Arc<Peer>>,
    /// Of `a2a_agents.json`.
    json: BTreeMap<String, Arc<Peer>>,
}

/// An agent whose turns are taken elsewhere.
struct RemoteAgent {
    inner: Weak<Inner>,
    options: Options,
    source: Source,
}

enum Source {
    /// Whoever has this name in a registry when it is called.
    Named(String, Option<Registry>),
    Own(Arc<Peer>),
}

impl Remotes {
    /// Remotes that are to be read. Nothing happens before [`Remotes::start`].
    pub fn new(options: Options, agents: Agents) -> Self {
        let inner = Inner {
            files: Mutex::new(Files::new(&options)),
            options,
            agents,
            peers: ArcSwap::default(),
            own: Mutex::default(),
            changing: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Reads the files, and keeps looking at them and at the remotes. Nobody is waited for.
    pub fn start(&self) {
        self.inner.look();
        tokio::spawn(watch(Arc::downgrade(&self.inner)));
        tokio::spawn(every(Arc::downgrade(&self.inner), self.inner.options.card_refresh, Look::Card));
        tokio::spawn(every(Arc::downgrade(&self.inner), self.inner.options.probe, Look::Presence));
    }

    /// Whether anybody is called.
    pub fn is_enabled(&self) -> bool {
        self.inner.options.enabled
    }

    /// Whoever has this name: `a2a_agents.json` first.
    pub fn find(&self, name: &str) -> Option<Arc<Peer>> {
        self.inner.find(name, None)
    }

    /// Those that a caller sees, by name.
    fn visible_to(&self, caller: &Caller) -> Vec<Arc<Peer>> {
        let mut all = self.inner.all();
        all.retain(|_, peer| tool::sees(peer, caller));
        all.into_values().collect()
    }
}

/// The names of all remotes that the files describe now, for whoever only wants to check something.
pub fn names(options: &Options) -> Vec<String> {
    let listed = Files::new(options).look(options.timeout);
    let (listed, json) = listed.unwrap_or_default();
    listed.iter().chain(&json).map(|spec| spec.name.clone()).collect()
}

/// What is looked at.
#[derive(Clone, Copy)]
enum Look {
    Card,
    Presence,
}

/// Looks at the files.
async fn watch(inner: Weak<Inner>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(inner) = inner.upgrade() else { return };
        // Reading a file may wait for a disk.
        let looked = tokio::task::spawn_blocking(move || inner.look()).await;
        if looked.is_err() {
            tracing::error!("the files of remotes cannot be looked at");
        }
    }
}

/// Looks at the remotes, all at once, again and again.
async fn every(inner: Weak<Inner>, period: Duration, look: Look) {
    loop {
        tokio::time::sleep(period.max(Duration::from_millis(50))).await;
        let Some(inner) = inner.upgrade() else { return };
        if inner.options.enabled {
            let watched = inner.watched();
            let looks = watched.iter().map(|peer| async {
                match look {
                    Look::Card => drop(peer.refresh().await),
                    Look::Presence => {
                        peer.probe().await;
                        // Who was away when its card was asked for is asked again.
                        if peer.card().is_none() && peer.is_reachable() {
                            drop(peer.refresh().await);
                        }
                    }
                }
            });
            // One that hangs keeps nobody waiting for long.
            let looks = looks.map(|look| tokio::time::timeout(LOOK_TIME, look));
            join_all(looks).await;
            inner.offer();
        }
    }
}

impl Inner {
    fn find(&self, name: &str, of: Option<Registry>) -> Option<Arc<Peer>> {
        let peers = self.peers.load();
        let json = peers.json.get(name).filter(|_| of.is_none_or(|of| of == Registry::Json));
        let listed = peers.listed.get(name).filter(|_| of != Some(Registry::Json));
        json.or(listed).cloned()
    }

    /// Everybody, by name.
    fn all(&self) -> BTreeMap<String, Arc<Peer>> {
        let peers = self.peers.load();
        let mut all = peers.listed.clone();
        all.extend(peers.json.clone());
        all
    }

    /// Those that are looked at without being called.
    fn watched(&self) -> Vec<Arc<Peer>> {
        let mut watched: Vec<Arc<Peer>> = self.peers.load().listed.values().cloned().collect();
        let mut own = lock(&self.own);
        own.retain(|peer| peer.strong_count() > 0);
        watched.extend(own.iter().filter_map(Weak::upgrade));
        watched
    }

    /// Looks at the files. Who is new is looked at, and offered.
    fn look(self: &Arc<Self>) {
        let _one = lock(&self.changing);
        let changes = lock(&self.files).look(self.options.timeout);
        if let Some((listed, json)) = changes {
            let before = self.peers.load_full();
            let peers = |specs: Vec<Arc<Spec>>, before: &BTreeMap<String, Arc<Peer>>| {
                let mut peers = BTreeMap::new();
                for spec in specs {
                    let same = before.get(&spec.name).filter(|peer| Arc::ptr_eq(&peer.spec, &spec)).cloned();
                    let peer = same.unwrap_or_else(|| {
                        let peer = Peer::new(Arc::clone(&spec), &self.options);
                        before.get(&spec.name).inspect(|known| peer.adopt(known));
                        Arc::new(peer)
                    });
                    peers.insert(spec.name.clone(), peer);
                }
                peers
            };
            let now = Peers { listed: peers(listed, &before.listed), json: peers(json, &before.json) };
            let fresh: Vec<Arc<Peer>> = now
                .listed
                .values()
                .filter(|peer| before.listed.get(&peer.spec.name).is_none_or(|known| !Arc::ptr_eq(known, peer)))
                .cloned()
                .collect();
            let gone: Vec<String> = before
                .listed
                .keys()
                .chain(before.json.keys())
                .filter(|name| !now.listed.contains_key(*name) && !now.json.contains_key(*name))
                .cloned()
                .collect();
            self.peers.store(Arc::new(now));
            for name in gone {
                tracing::info!(agent.name = name, "removed remote `{name}`");
                if let Ok(id) = name.parse::<AgentId>()
                    && self.agents.kind_of(&id) == Some(KIND_OF_REMOTES)
                {
                    self.agents.remove(&id);
                }
            }
            for peer in fresh {
                tracing::info!(
                    agent.name = peer.spec.name,
                    registry = peer.spec.registry.as_str(),
                    "loaded remote `{}`",
                    peer.spec.name
                );
                if self.options.enabled {
                    let inner = Arc::downgrade(self);
                    let first = async move {
                        let mut refused = peer.refresh().await;
                        if let Err(refused) = &refused {
                            tracing::warn!(agent.name = peer.spec.name, error = %refused, "the card of remote `{}` cannot be had", peer.spec.name);
                        }
                        // Who starts at the same time may be there a moment later.
                        for wait in FIRST_WAITS {
                            if refused.is_ok() {
                                break;
                            }
                            tokio::time::sleep(wait).await;
                            if inner.strong_count() == 0 {
                                return;
                            }
                            refused = peer.refresh().await;
                        }
                        drop(peer);
                        if let Some(inner) = inner.upgrade() {
                            inner.offer();
                        }
                    };
                    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                        runtime.spawn(first);
                    }
                }
            }
        }
        self.offer_now();
    }

    /// Makes agents of remotes, as their cards describe them by now.
    fn offer(self: &Arc<Self>) {
        let _one = lock(&self.changing);
        self.offer_now();
    }

    /// Makes agents of remotes, as their cards describe them by now. Who is there under the same id stays.
    fn offer_now(self: &Arc<Self>) {
        let peers = self.peers.load();
        let named = |registry: Registry, peers: &BTreeMap<String, Arc<Peer>>| {
            peers.values().map(|peer| (registry, Arc::clone(peer))).collect::<Vec<_>>()
        };
        let json = named(Registry::Json, &peers.json)
            .into_iter()
            .filter(|(_, peer)| !peers.listed.contains_key(&peer.spec.name));
        for (registry, peer) in named(Registry::Yaml, &peers.listed).into_iter().chain(json) {
            let Ok(id) = peer.spec.name.parse::<AgentId>() else { continue };
            match self.agents.kind_of(&id) {
                None | Some(KIND_OF_REMOTES) => {}
                Some(kind) => {
                    if peer.hide() {
                        tracing::warn!(agent.name = %id, "remote `{id}` is hidden by an agent of kind {kind} with the same id");
                    }
                    continue;
                }
            }
            let profile = profile(id, &peer, registry == Registry::Json);
            if self.agents.has(&profile) {
                continue;
            }
            let agent = RemoteAgent {
                inner: Arc::downgrade(self),
                options: self.options.clone(),
                source: Source::Named(peer.spec.name.clone(), Some(registry)),
            };
            self.agents.insert(Entry::new(profile, Arc::new(agent)));
        }
    }
}

/// What listings call an agent of a registry.
const KIND_OF_REMOTES: &str = "a2a";

/// A remote as an agent of this server: our own words about it, with what it says of itself.
fn profile(id: AgentId, peer: &Peer, unlisted: bool) -> Profile {
    let mut profile = Profile::new(id, KIND_OF_REMOTES);
    prepare(&mut profile);
    let card = peer.card();
    let card = card.as_ref().map(|card| &card.found.card);
    let say = |text: Option<&String>, otherwise: String| {
        text.map(|text| crate::frame::clean(text)).filter(|text| !text.is_empty()).unwrap_or(otherwise)
    };
    profile.name = say(card.map(|card| &card.name), peer.spec.name.clone());
    profile.description = say(card.map(|card| &card.description), format!("The remote agent {}.", peer.spec.name));
    profile.version = say(card.map(|card| &card.version), "1.0.0".to_owned());
    let skill = |skill: exchange::remotes::Skill| AgentSkill {
        description: if skill.description.is_empty() { skill.name.clone() } else { skill.description },
        tags: vec![skill.id.clone()],
        name: skill.name,
        id: skill.id,
        ..AgentSkill::default()
    };
    profile.skills = peer.skills().into_iter().map(skill).collect();
    if profile.skills.is_empty() {
        let (id, name) = (profile.id.to_string(), profile.name.clone());
        let (tags, description) = (vec![id.clone()], profile.description.clone());
        profile.skills.push(AgentSkill { id, name, description, tags, ..AgentSkill::default() });
    }
    profile.input_modes = vec!["text/*".to_owned()];
    let gives = card.map(|card| card.default_output_modes.clone()).filter(|modes| !modes.is_empty());
    profile.output_modes =
        gives.map_or_else(|| vec!["text/plain".to_owned()], |modes| modes.into_iter().take(20).collect());
    profile.tenants = peer.spec.tenants.clone();
    profile.unlisted = unlisted;
    profile
}

/// What every agent of this kind has, unless its file says otherwise.
fn prepare(profile: &mut Profile) {
    profile.on_crash = OnCrash::Resume;
    profile.tells_cancel = true;
    profile.concurrency = CONCURRENCY;
    profile.max_attempts = ATTEMPTS;
}

/// The table `[remote]` of a file: whose name it is, or an entry of its own.
fn build(table: Table<'_>, context: &Context) -> Result<Built, String> {
    let mut entry: RemoteEntry = table.read()?;
    let mut warnings = Vec::new();
    let remotes = context.remotes.as_ref();
    let options = remotes.map_or_else(Options::default, |remotes| remotes.inner.options.clone());
    let source = match (entry.name.take(), &entry.url) {
        (Some(_), Some(_)) => return Err("`remote`: either `name`, of one in a registry, or `url`".to_owned()),
        (None, None) => return Err("`remote`: `url` is required, or the `name` of one in a registry".to_owned()),
        (Some(name), None) => Source::Named(name, None),
        (None, Some(_)) => {
            entry.name = Some(context.id.to_string());
            entry.tenants = entry.tenants.or_else(|| context.tenants.clone());
            let (spec, warned) = yaml::spec(entry, Registry::File, options.timeout)?;
            warnings.extend(warned);
            let peer = Arc::new(Peer::new(Arc::new(spec), &options));
            if let Some(remotes) = remotes {
                lock(&remotes.inner.own).push(Arc::downgrade(&peer));
            }
            Source::Own(peer)
        }
    };
    let inner = remotes.map(|remotes| Arc::downgrade(&remotes.inner)).unwrap_or_default();
    let agent = Arc::new(RemoteAgent { inner, options, source });
    Ok(Built { agent, delivery: Delivery::Run, described: None, warnings })
}

impl RemoteAgent {
    fn peer(&self) -> Option<Arc<Peer>> {
        match &self.source {
            Source::Own(peer) => Some(Arc::clone(peer)),
            Source::Named(name, of) => self.inner.upgrade()?.find(name, *of),
        }
    }

    fn name(&self) -> &str {
        match &self.source {
            Source::Own(peer) => &peer.spec.name,
            Source::Named(name, _) => name,
        }
    }
}

#[async_trait]
impl Agent for RemoteAgent {
    async fn run(&self, turn: Turn, out: Output) -> Outcome {
        let peer = self.peer().filter(|_| self.options.enabled);
        match peer {
            Some(peer) => {
                let tenant = turn.tenant();
                let run = Box::pin(follow::run(&peer, &self.options, turn, out));
                match tenant {
                    Some(tenant) => for_tenant(tenant.0, run).await,
                    None => run.await,
                }
            }
            // Somebody works on it, and can be asked when they are known again.
            None if follow::is_under_way(&turn) => follow::wait_for_remote(&turn, &out, &self.options, REST).await,
            None if !self.options.enabled => {
                Outcome::Failed(vec![Part::text("A2A unavailable in this context: `outbound.enabled` is false")])
            }
            None => Outcome::RemoteFailed(format!("no remote agent named '{}'", self.name())),
        }
    }

    async fn canceled(&self, _: TaskId, state: Bytes, _: &Errands) -> Result<(), String> {
        if !self.options.enabled {
            return Err("`outbound.enabled` is false".to_owned());
        }
        let peer = self.peer().ok_or_else(|| format!("no remote agent named '{}'", self.name()))?;
        call::cancel(&peer, &state::State::read(Some(&state))).await
    }

    fn is_ready(&self, tenant: TenantId) -> bool {
        self.peer().is_some_and(|peer| peer.is_ready(Some(tenant)))
    }

    fn elsewhere(&self, state: &Bytes) -> Option<Elsewhere> {
        Some(state::State::read(Some(state)).elsewhere())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
