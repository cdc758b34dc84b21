//! The variables that this process was given. What may be secret is taken out of the environment when a server starts, so that
//! neither the system nor a child shows it; it is asked for here.
//!
//! A variable can also be given by a file, whose path is in the variable of the same name with `_FILE` behind it, or by a credential
//! of systemd that has the variable's name.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock, PoisonError},
};

/// Behind the name of a variable: where its value is.
const FILE: &str = "_FILE";
/// Where systemd puts credentials.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";
/// The largest secret that is read from a file.
const LARGEST: u64 = 64 << 10;

/// What libraries and the system look up by themselves, and what is no secret and useful to see.
const KEPT: [&str; 14] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "TERM",
    "NO_COLOR",
    "COLUMNS",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "SB_GUARD",
];
const KEPT_PREFIXES: [&str; 6] = ["LC_", "XDG_", "RUST_", "LD_", "MIMALLOC_", "LLVM_"];

/// What was taken out of the environment.
static TAKEN: OnceLock<BTreeMap<OsString, OsString>> = OnceLock::new();

/// Whose files are wrong: they are looked at again and again.
static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// A variable, wherever it is by now.
pub fn variable_os(name: impl AsRef<OsStr>) -> Option<OsString> {
    let name = name.as_ref();
    TAKEN.get().and_then(|taken| taken.get(name).cloned()).or_else(|| env::var_os(name))
}

/// A variable that is a text and not empty.
pub fn variable(name: &str) -> Option<String> {
    variable_os(name)?.into_string().ok().filter(|value| !value.is_empty())
}

/// A secret: a variable, the file that is named by the variable with `_FILE` behind it, or a credential of systemd. An error
/// says what is wrong with the file.
pub fn secret_from(name: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<String>, String> {
    let from = format!("{name}{FILE}");
    let file = variable(&from).map(PathBuf::from);
    match (variable(name), file) {
        (Some(_), Some(_)) => Err(format!("{name} and {from} are both set: one of them is enough")),
        (Some(value), None) => Ok(Some(value)),
        (None, Some(file)) => {
            read(&file).map(Some).map_err(|why| format!("{from}: cannot use `{}`: {why}", file.display()))
        }
        (None, None) => {
            let Some(credential) = variable(CREDENTIALS).map(|directory| Path::new(&directory).join(name)) else {
                return Ok(None);
            };
            if !credential.is_file() {
                return Ok(None);
            }
            read(&credential).map(Some).map_err(|why| format!("cannot use the credential `{name}`: {why}"))
        }
    }
}

/// A secret of this process. What is wrong with its file is logged, once.
pub fn secret(name: &str) -> Option<String> {
    secret_from(name, &variable).unwrap_or_else(|why| {
        if TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned()) {
            tracing::warn!("{why}");
        }
        None
    })
}

/// Takes what may be secret over from the process that this one was before, see [`hidden`].
pub fn take_over(bytes: &[u8]) {
    let mut taken = BTreeMap::new();
    for entry in bytes.split(|byte| *byte == 0) {
        let mut parts = entry.splitn(2, |byte| *byte == b'=');
        if let (Some(name), Some(value)) = (parts.next(), parts.next()) {
            taken.insert(OsString::from_vec(name.to_vec()), OsString::from_vec(value.to_vec()));
        }
    }
    // It is done once, at the start.
    let _ = TAKEN.set(taken);
}

/// What of the environment must not be seen, as [`take_over`] reads it, and the names of it.
pub fn hidden() -> (Vec<u8>, Vec<OsString>) {
    let (mut bytes, mut names) = (Vec::new(), Vec::new());
    for (name, value) in env::vars_os() {
        if is_kept(&name) {
            continue;
        }
        bytes.extend_from_slice(name.as_encoded_bytes());
        bytes.push(b'=');
        bytes.extend_from_slice(value.as_encoded_bytes());
        bytes.push(0);
        names.push(name);
    }
    (bytes, names)
}

fn is_kept(name: &OsStr) -> bool {
    // What tests steer a server with is read by the store itself.
    let for_tests = ["SB_CLOCK", "SB_FAULT"];
    let known = |kept: &[&str]| kept.iter().any(|kept| name == *kept);
    let begins = |prefix: &&str| name.as_encoded_bytes().starts_with(prefix.as_bytes());
    known(&KEPT) || known(&for_tests) || KEPT_PREFIXES.iter().any(begins)
}

/// The secret in a regular file, without the end of its line.
pub(crate) fn secret_in(path: &Path) -> Result<String, String> {
    store::read_regular(path, LARGEST).map_err(|error| error.to_string()).and_then(text_of)
}

fn read(path: &Path) -> Result<String, String> {
    let (file, found) = store::open_given(path).map_err(|error| error.to_string())?;
    if found.len() > LARGEST {
        return Err("it is too large for a secret".to_owned());
    }
    store::read_opened(file, LARGEST).map_err(|error| error.to_string()).and_then(text_of)
}

fn text_of(bytes: Vec<u8>) -> Result<String, String> {
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
    let text = text.trim_end_matches(['\n', '\r']);
    if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_secret_comes_from_a_variable_a_file_or_a_credential() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        fs::write(at("file"), "of-a-file\n").unwrap();
        fs::write(at("KEY"), "of-systemd").unwrap();
        fs::write(at("empty"), "\n").unwrap();
        let given = |variables: &[(&str, String)]| {
            let variables: BTreeMap<String, String> =
                variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
            secret_from("KEY", &move |name| variables.get(name).cloned())
        };
        let value = |text: &str| Ok(Some(text.to_owned()));
        let credentials = (CREDENTIALS, at(""));
        assert_eq!(given(&[]), Ok(None));
        assert_eq!(given(&[("KEY", "plain".to_owned()), credentials.clone()]), value("plain"));
        assert_eq!(given(&[("KEY_FILE", at("file")), credentials.clone()]), value("of-a-file"));
        assert_eq!(given(&[credentials]), value("of-systemd"));
        assert!(given(&[("KEY", "plain".to_owned()), ("KEY_FILE", at("file"))]).unwrap_err().contains("both"));
        assert!(given(&[("KEY_FILE", at("nowhere"))]).unwrap_err().contains("nowhere"));
        assert!(given(&[("KEY_FILE", at("empty"))]).unwrap_err().contains("empty"));
    }

    #[test]
    fn what_libraries_look_up_stays() {
        for name in ["PATH", "LC_ALL", "RUST_LOG", "SSL_CERT_FILE"] {
            assert!(is_kept(OsStr::new(name)), "{name}");
        }
        for name in ["SB_ADMIN_TOKEN", "OPENAI_API_KEY", "SB_STORE", "CREDENTIALS_DIRECTORY"] {
            assert!(!is_kept(OsStr::new(name)), "{name}");
        }
    }
}
