//! Remotes as the edges see them: looked at by callers, changed by the operator.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Arc,
};

use async_trait::async_trait;
use bytes::Bytes;
use client::{FetchedCard, parse_url};
use exchange::{
    Caller, Ledger,
    remotes::{Error, Remote, Remotes as Edge},
};
use serde_json::{Value, json};
use store::AgentId;
use url::Url;

use super::{
    Peer, Registry, RemoteEntry, Remotes, Session, lock,
    peer::{endpoint, told},
    security::Security,
    tool::sees,
    yaml,
};
use crate::frame::clean;

/// So many lines of the tool are one request.
const MOST_LINES: usize = 16;
/// Names that routes have.
const RESERVED: [&str; 2] = ["a2a", "probe"];

/// A card without the URLs of the host at which the operator finds the remote. Signatures do not cover what is left then.
fn without_place(json: Bytes, peer: &Peer) -> Bytes {
    let Ok(mut card) = serde_json::from_slice::<Value>(&json) else { return json };
    if hide_place(&mut card, peer) == 0 {
        return json;
    }
    if let Value::Object(members) = &mut card {
        members.remove("signatures");
    }
    Bytes::from(card.to_string())
}

/// Puts the remote's name in the place of each such URL. Says how many there were.
fn hide_place(value: &mut Value, peer: &Peer) -> usize {
    match value {
        Value::String(text) if peer.spec.names_host(text) => {
            *text = format!("remote:{}", peer.spec.name);
            1
        }
        Value::Array(items) => items.iter_mut().map(|item| hide_place(item, peer)).sum(),
        Value::Object(members) => members.values_mut().map(|item| hide_place(item, peer)).sum(),
        _ => 0,
    }
}

#[async_trait]
impl Edge for Remotes {
    fn list(&self, caller: Option<&Caller>) -> Vec<Remote> {
        let mut all = self.inner.all();
        for peer in self.inner.watched() {
            all.entry(peer.spec.name.clone()).or_insert(peer);
        }
        all.retain(|_, peer| caller.is_none_or(|caller| sees(peer, caller)));
        let tenant = caller.map(|caller| caller.tenant);
        all.values().map(|peer| peer.state(tenant)).collect()
    }

    async fn card(&self, caller: Option<&Caller>, name: &str, refresh: bool) -> Result<Bytes, Error> {
        let peer = self.known(caller, name)?;
        self.allowed()?;
        let fetched = if refresh { peer.refresh().await } else { peer.ensure_card(!peer.is_watched()).await };
        match fetched {
            Ok(card) if caller.is_some() => Ok(without_place(card.found.json, &peer)),
            Ok(card) => Ok(card.found.json),
            // Why is the operator's business.
            Err(_) if caller.is_some() => Err(Error::Broken(format!("the card of `{name}` cannot be had"))),
            Err(refused) => Err(Error::Broken(format!("card fetch failed: {refused}"))),
        }
    }

    async fn probe(&self, name: &str) -> Result<Remote, Error> {
        let peer = self.known(None, name)?;
        self.allowed()?;
        let _ = peer.refresh().await;
        self.inner.offer();
        Ok(peer.state(None))
    }

    async fn look(&self, url: &str) -> Result<Value, Error> {
        self.allowed()?;
        let url = parse_url(url).map_err(|error| Error::Invalid { field: "url".to_owned(), why: error.to_string() })?;
        let entry =
            RemoteEntry { name: Some("probe".to_owned()), url: Some(url.to_string()), ..RemoteEntry::default() };
        Ok(match self.discover(entry, &url).await {
            Ok(card) => {
                let found = &card.found;
                let skills: Vec<Value> = found.card.skills.iter().take(200).map(|skill| json!({"id": clean(&skill.id), "name": clean(&skill.name), "description": clean(&skill.description)})).collect();
                let security = Security::of(&found.card);
                json!({
                    "security": security.ways, "missingCredential": security.required,
                    "reachable": true, "cardUrl": found.url.as_str(), "name": clean(&found.card.name),
                    "description": clean(&found.card.description), "version": clean(&found.card.version), "skills": skills,
                    "streaming": found.card.capabilities.streaming == Some(true),
                    "pushNotifications": found.card.capabilities.push_notifications == Some(true),
                })
            }
            Err(error) => json!({"reachable": error.http_status().is_some(), "error": told(&error), "skills": []}),
        })
    }

    async fn add(&self, entry: Value) -> Result<Remote, Error> {
        let invalid = |field: &str, why: String| Error::Invalid { field: field.to_owned(), why };
        let mut entry: RemoteEntry =
            serde_json::from_value(entry).map_err(|error| invalid("body", error.to_string()))?;
        let (spec, _) = yaml::spec(entry.clone(), Registry::Directory, self.inner.options.timeout)
            .map_err(|why| invalid(field_of(&why), why.clone()))?;
        let id: AgentId = spec.name.parse().map_err(|why: &str| invalid("name", why.to_owned()))?;
        let taken = self.inner.all().contains_key(&spec.name)
            || self.inner.agents.kind_of(&id).is_some()
            || RESERVED.contains(&id.as_str());
        if taken {
            return Err(Error::Conflict(format!("there is an agent named `{id}` already")));
        }
        let directory = self.inner.options.directory.clone();
        let directory = directory.ok_or_else(|| {
            Error::Failed("there is no configuration directory to keep it in: name one with --agents-d".to_owned())
        })?;
        // Whoever gives the address of a host means the agent there.
        if let Ok(url) = &spec.url
            && entry.card.is_none()
            && self.is_enabled()
            && let Ok(card) = self.discover(entry.clone(), url).await
        {
            let places = client::card_well_known(url);
            if !places.contains(&card.found.url) {
                entry.card = Some(card.found.url.to_string());
            }
            if matches!(url.path(), "" | "/")
                && let Some(there) = endpoint(&card, url)
            {
                entry.url = Some(there.to_string());
                entry.card = Some(card.found.url.to_string());
            }
        }
        let text = yaml::write(&entry).map_err(Error::Failed)?;
        let path = directory.join(format!("{id}.yaml"));
        write(&directory, &path, &text).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                Error::Conflict(format!("there is a file for `{id}` already: {}", path.display()))
            }
            _ => Error::Failed(format!("cannot write {}: {error}", path.display())),
        })?;
        self.look_now().await;
        let peer = self.known(None, id.as_str())?;
        if self.is_enabled() {
            let _ = peer.ensure_card(false).await;
        }
        self.inner.offer();
        Ok(peer.state(None))
    }

    async fn remove(&self, name: &str) -> Result<(), Error> {
        let path = lock(&self.inner.files).entry(name).or_else(|| self.broken_file(name));
        let Some(path) = path else {
            let place = self.known(None, name)?.spec.registry.as_str();
            return Err(Error::Conflict(format!("`{name}` stands in {place}: remove it there")));
        };
        std::fs::remove_file(&path)
            .map_err(|error| Error::Failed(format!("cannot remove {}: {error}", path.display())))?;
        self.look_now().await;
        Ok(())
    }

    async fn command(&self, caller: &Caller, line: &str) -> String {
        let mut session = Session::new(self, caller, Ledger::default());
        let mut told = Vec::new();
        for line in line.lines().filter(|line| !line.trim().is_empty()).take(MOST_LINES) {
            told.push(session.run(line).await);
        }
        told.join("\n")
    }
}

impl Remotes {
    fn known(&self, caller: Option<&Caller>, name: &str) -> Result<Arc<Peer>, Error> {
        let own = || self.inner.watched().into_iter().find(|peer| peer.spec.name == name);
        let peer = self.find(name).or_else(own);
        let seen = peer.filter(|peer| caller.is_none_or(|caller| sees(peer, caller)));
        seen.ok_or_else(|| Error::Unknown(name.chars().take(64).collect()))
    }

    /// The file of one that is not known because it is broken.
    fn broken_file(&self, name: &str) -> Option<std::path::PathBuf> {
        let _: AgentId = name.parse().ok()?;
        let path = self.inner.options.directory.as_ref()?.join(format!("{name}.yaml"));
        (self.find(name).is_none() && path.is_file()).then_some(path)
    }

    fn allowed(&self) -> Result<(), Error> {
        let off = || Error::Conflict("nobody is called: `outbound.enabled` is false".to_owned());
        if self.is_enabled() { Ok(()) } else { Err(off()) }
    }

    /// Looks at the files, twice: what is gone is believed at the second look.
    async fn look_now(&self) {
        let inner = Arc::clone(&self.inner);
        let looked = tokio::task::spawn_blocking(move || {
            inner.look();
            inner.look();
        });
        // A look that panicked is repeated soon.
        let _ = looked.await;
    }

    /// The card of whoever is at a URL, wherever cards are kept.
    async fn discover(&self, entry: RemoteEntry, url: &Url) -> Result<FetchedCard, client::Error> {
        let mut places = client::card_well_known(url);
        places.extend(client::card_beside(url));
        let mut host = url.clone();
        host.set_path("/");
        host.set_query(None);
        places.extend(client::card_well_known(&host));
        if url.path().ends_with(".json") {
            places.insert(0, url.clone());
        }
        let (spec, _) = yaml::spec(entry, Registry::Directory, self.inner.options.timeout)
            .map_err(|why| client::Error::Url { url: url.to_string(), reason: why })?;
        if let Some(card) = &spec.card {
            places.insert(0, card.clone());
        }
        places.dedup();
        Peer::new(Arc::new(spec), &self.inner.options).fetch_from(&places).await
    }
}

/// The field that a complaint begins with.
fn field_of(why: &str) -> &str {
    let named = why.strip_prefix('`').and_then(|rest| rest.split_once('`')).map(|(field, _)| field);
    named.filter(|field| !field.contains("://")).unwrap_or("body")
}

/// Writes a file that is not there yet. Its headers may be secrets.
fn write(directory: &Path, path: &Path, text: &str) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
