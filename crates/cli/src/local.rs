//! What the server leaves for the command line on the same machine: where it last was, and tokens for it. Which servers run is in
//! [`crate::servers`].

use std::{
    error::Error,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::failure::Failure;

/// The contents of `cli.json` in the data directory. Only its owner can read it.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Local {
    /// Where the server answered when it last started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
    /// Where it is administered, if that is another address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) admin_url: Option<String>,
    /// A token that the server knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
    /// Where the server looks for agent files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) agents: Option<PathBuf>,
}

/// The contents of `admin.json` in the data directory. Only its owner can read it.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct AdminFile {
    /// The admin token, as far as this instance knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
}

/// A file of the data directory that is private and replaced as a whole.
pub(crate) trait PrivateFile: Clone + Default + Serialize + DeserializeOwned {
    /// Its name.
    const NAME: &'static str;

    /// Reads the file; what is not there is empty.
    fn load(directory: &Path) -> Result<Self, Failure> {
        let path = directory.join(Self::NAME);
        let cannot = |error: &dyn Error| Failure::failed(format!("cannot read `{}`", path.display())).caused_by(error);
        let failure = |error: &dyn Error| {
            cannot(error).hint("repair or remove the file; the server writes a new one when it starts")
        };
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| failure(&error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(cannot(&error).hint(
                "this user may not read it: be the user that runs the server, or name another server with --data-dir or --url",
            )),
            Err(error) => Err(failure(&error)),
        }
    }

    /// Replaces the file.
    fn save(&self, directory: &Path) -> Result<(), Failure> {
        write_private(self, &directory.join(Self::NAME))
    }

    /// Removes the file, if there is one.
    fn remove(directory: &Path) -> Result<(), Failure> {
        let path = directory.join(Self::NAME);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Failure::failed(format!("cannot remove `{}`", path.display())).caused_by(&error))
            }
            _ => Ok(()),
        }
    }

    /// Writes the file unless there is one: of several servers that start at once, one wins.
    /// Gives what is in the file afterwards.
    fn create(self, directory: &Path) -> Result<Self, Failure> {
        let path = directory.join(Self::NAME);
        let beside = write_beside(&self, &path).map_err(|error| not_written(&path, &error))?;
        let linked = fs::hard_link(&beside, &path);
        // The file has its name or is of no use; either way this one goes.
        let _ = fs::remove_file(&beside);
        match linked {
            Ok(()) => Ok(self),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Self::load(directory),
            Err(error) => Err(not_written(&path, &error)),
        }
    }
}

impl PrivateFile for Local {
    const NAME: &'static str = "cli.json";
}

impl PrivateFile for AdminFile {
    const NAME: &'static str = "admin.json";
}

/// Writes a file that only its owner can read, in the place of the one before.
pub(crate) fn write_private(content: &impl Serialize, path: &Path) -> Result<(), Failure> {
    let written = write_beside(content, path).and_then(|beside| fs::rename(&beside, path));
    written.map_err(|error| not_written(path, &error))
}

fn write_beside(content: &impl Serialize, path: &Path) -> io::Result<PathBuf> {
    let beside = path.with_extension(format!("json.{}.tmp", std::process::id()));
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(&serde_json::to_vec_pretty(content)?)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    Ok(beside)
}

pub(crate) fn not_written(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot write `{}`", path.display()))
        .caused_by(error)
        .hint("check the directory's permissions and free space, or choose another with --data-dir")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_saved_is_private_and_comes_back() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Local::load(directory.path()).unwrap().token.is_none());
        let local = Local { url: Some("http://h".to_owned()), token: Some("t".to_owned()), ..Local::default() };
        local.save(directory.path()).unwrap();
        let loaded = Local::load(directory.path()).unwrap();
        assert_eq!((loaded.url.as_deref(), loaded.token.as_deref()), (Some("http://h"), Some("t")));
        let mode = fs::metadata(directory.path().join("cli.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn the_first_to_create_wins() {
        let directory = tempfile::tempdir().unwrap();
        let with = |token: &str| AdminFile { token: Some(token.to_owned()) };
        assert_eq!(with("a").create(directory.path()).unwrap().token.as_deref(), Some("a"));
        assert_eq!(with("b").create(directory.path()).unwrap().token.as_deref(), Some("a"));
    }

    #[test]
    fn a_damaged_file_is_named() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("cli.json"), "{").unwrap();
        let Err(failure) = Local::load(directory.path()) else { panic!("damaged file was read") };
        assert!(failure.error.contains("cli.json"));
    }
}
