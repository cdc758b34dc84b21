//! Proof of life: each process holds a lock on a file of its own, which the kernel frees when it dies.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::ErrorKind,
    path::{Path, PathBuf},
};

use crate::{Error, InstanceId, Result};

/// This process's lock. Dropping it says that the process is gone.
pub(crate) struct Presence {
    path: PathBuf,
    /// Held for its lock.
    _file: File,
}

impl Presence {
    /// Takes the lock. Only after that may the instance be named in the database.
    pub(crate) fn announce(dir: &Path, id: InstanceId) -> Result<Self> {
        let failed = |error: std::io::Error| Error::Unavailable(format!("{}: {error}", dir.display()));
        fs::create_dir_all(dir).map_err(failed)?;
        let path = lock_file(dir, &id.to_string());
        let file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed)?;
        file.try_lock().map_err(|error| failed(error.into()))?;
        Ok(Self { path, _file: file })
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        // What stays is found free by others and removed by them.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether the instance is gone for good. When in doubt it lives.
pub(crate) fn is_dead(dir: &Path, id: &str) -> bool {
    match File::open(lock_file(dir, id)) {
        Ok(file) => match file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(error)) => {
                tracing::warn!(instance.id = id, %error, "cannot tell whether an instance lives");
                false
            }
        },
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// The instances that left their lock behind.
pub(super) fn dead(dir: &Path) -> Vec<InstanceId> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut dead = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| name.strip_suffix(".lock")) else { continue };
        if let Some(instance) = InstanceId::parse(id).filter(|_| is_dead(dir, id)) {
            dead.push(instance);
        }
    }
    dead
}

/// Whether any instance lives.
pub(super) fn any_alive(dir: &Path) -> bool {
    let Ok(entries) = fs::read_dir(dir) else { return false };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_suffix(".lock"));
        id.is_some_and(|id| !is_dead(dir, id))
    })
}

/// Removes what a dead instance left.
pub(crate) fn bury(dir: &Path, id: &str) {
    let _ = fs::remove_file(lock_file(dir, id));
}

fn lock_file(dir: &Path, id: &str) -> PathBuf {
    dir.join(format!("{id}.lock"))
}
