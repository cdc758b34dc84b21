//! The files that say which remotes there are, read again when they change.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use super::{Options, json, spec::Spec, yaml};
use crate::{file, settled};

/// The files and what they last said.
pub(super) struct Files {
    json: Option<Text>,
    yaml: Option<Text>,
    directory: Option<PathBuf>,
    json_specs: Vec<Arc<Spec>>,
    yaml_specs: Vec<Arc<Spec>>,
    entries: BTreeMap<PathBuf, (Text, Option<Arc<Spec>>)>,
    looked: bool,
}

/// A file's text when it was last read; nothing when it was not there.
struct Text {
    path: PathBuf,
    was: Option<String>,
    /// That it cannot be read was said.
    unreadable: bool,
    /// It was gone or empty when it was last looked at, as a file is while somebody writes it anew.
    doubtful: bool,
}

impl Text {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), was: None, unreadable: false, doubtful: false }
    }

    /// The text, if it is another one than before.
    fn look(&mut self) -> Option<Option<String>> {
        let now = match settled::read_to_string(&self.path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                if !std::mem::replace(&mut self.unreadable, true) {
                    tracing::error!(path = %self.path.display(), %error, "`{}` cannot be read; what it said last counts", self.name());
                }
                return None;
            }
        };
        self.unreadable = false;
        if now == self.was {
            self.doubtful = false;
            return None;
        }
        let is_nothing = now.as_ref().is_none_or(|text| text.trim().is_empty());
        if is_nothing && self.was.is_some() && !std::mem::replace(&mut self.doubtful, true) {
            return None;
        }
        self.doubtful = false;
        self.was.clone_from(&now);
        Some(now)
    }

    fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn broken(&self, why: &str, was_good: bool) {
        let what = if was_good { "its last good version stays" } else { "its remotes are not known" };
        tracing::error!(path = %self.path.display(), error = why, "`{}` is broken; {what}", self.name());
    }
}

type Listed = (Vec<Arc<Spec>>, Vec<Arc<Spec>>);

impl Files {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            json: options.json.as_deref().map(Text::new),
            yaml: options.yaml.as_deref().map(Text::new),
            directory: options.directory.clone(),
            json_specs: Vec::new(),
            yaml_specs: Vec::new(),
            entries: BTreeMap::new(),
            looked: false,
        }
    }

    /// Looks at the files. Gives all remotes, those of `agents.yaml` and `agents.d` first, if anything has changed.
    pub(super) fn look(&mut self, timeout: Duration) -> Option<Listed> {
        let mut changed = !std::mem::replace(&mut self.looked, true);
        if let Some(file) = &mut self.json
            && let Some(text) = file.look()
        {
            match text.map_or_else(|| Ok(Vec::new()), |text| json::read(&text, timeout)) {
                Ok(specs) => {
                    for spec in &specs {
                        if let Some(missing) = spec.auth.missing() {
                            tracing::warn!(
                                agent.name = spec.name,
                                "remote `{}`: {missing}: calls will fail without a token",
                                spec.name
                            );
                        }
                    }
                    self.json_specs = specs.into_iter().map(Arc::new).collect();
                    changed = true;
                }
                Err(why) => file.broken(&why, !self.json_specs.is_empty()),
            }
        }
        if let Some(file) = &mut self.yaml
            && let Some(text) = file.look()
        {
            match text.map_or_else(|| Ok(yaml::Listed::default()), |text| yaml::read(&text, timeout)) {
                Ok(listed) => {
                    for warning in &listed.warnings {
                        tracing::warn!(path = %file.path.display(), "remote {warning}");
                    }
                    let mut specs: Vec<Arc<Spec>> = listed.specs.into_iter().map(Arc::new).collect();
                    // One that breaks keeps its last good version.
                    let kept = self.yaml_specs.iter().filter(|spec| listed.broken.contains(&spec.name));
                    specs.extend(kept.cloned());
                    self.yaml_specs = specs;
                    changed = true;
                }
                Err(why) => file.broken(&why, !self.yaml_specs.is_empty()),
            }
        }
        changed |= self.look_at_entries(timeout);
        changed.then(|| self.all())
    }

    fn look_at_entries(&mut self, timeout: Duration) -> bool {
        let Some(directory) = &self.directory else { return false };
        // Examples have another ending.
        let Ok(found) = file::list_ending(directory, &["yaml", "yml"]) else { return false };
        let before = self.entries.len();
        self.entries.retain(|path, _| found.contains(path));
        let mut changed = before != self.entries.len();
        for path in found {
            let (text, spec) = self.entries.entry(path.clone()).or_insert_with(|| (Text::new(&path), None));
            let Some(Some(now)) = text.look() else { continue };
            match yaml::read_one(&now, timeout) {
                Ok((read, warnings)) => {
                    for warning in warnings {
                        tracing::warn!(path = %path.display(), "remote `{}`: {warning}", read.name);
                    }
                    *spec = Some(Arc::new(read));
                    changed = true;
                }
                Err(why) => text.broken(&why, spec.is_some()),
            }
        }
        changed
    }

    /// All of them: what `agents.d` says of a name counts before what `agents.yaml` says.
    fn all(&self) -> Listed {
        let entries: Vec<&Arc<Spec>> = self.entries.values().filter_map(|(_, spec)| spec.as_ref()).collect();
        let is_overridden = |spec: &&Arc<Spec>| entries.iter().any(|entry| entry.name == spec.name);
        let mut listed: Vec<Arc<Spec>> = self.yaml_specs.iter().filter(|spec| !is_overridden(spec)).cloned().collect();
        listed.extend(entries.into_iter().cloned());
        (listed, self.json_specs.clone())
    }

    /// Where an entry of `agents.d` stands.
    pub(super) fn entry(&self, name: &str) -> Option<PathBuf> {
        let mut entries = self.entries.iter();
        entries.find(|(_, (_, spec))| spec.as_ref().is_some_and(|spec| spec.name == name)).map(|(path, _)| path.clone())
    }
}
