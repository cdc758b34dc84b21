//! Where a page is run: a directory with a home in it, ports of its own, and what the names, ports and paths of the page
//! stand for there.

use std::{
    cell::RefCell,
    env,
    ffi::OsString,
    fs,
    net::TcpListener,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use tempfile::TempDir;
use testkit::postgres::Database;

/// The ports that pages name: the server, one elsewhere, a receiver of notifications, gRPC, NATS.
const PORTS: [&str; 5] = ["8765", "9999", "9000", "50051", "4222"];

/// Below the ports that the system gives to whoever wants any.
const FIRST_PORT: u32 = 10_000;
const PLACES: u32 = 2_500;
const PORTS_OF_A_PLACE: u16 = 8;

/// What pages call a directory of the machine is one of the place.
const DIRECTORIES: [&str; 4] = ["/backup", "/etc/ssl", "/etc/switchboard", "/var/lib/switchboard"];

/// What a command names that is about PostgreSQL.
const OF_POSTGRES: [&str; 2] = ["postgres://", "$SB_STORE"];

pub(crate) struct Place {
    directory: TempDir,
    repository: PathBuf,
    first_port: u16,
    /// Each command that names a database gets a new one.
    databases: RefCell<Vec<Database>>,
}

impl Place {
    pub(crate) fn new(repository: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["bin", "home", "work", "backup", "etc/ssl", "etc/switchboard", "var/lib"] {
            fs::create_dir_all(directory.path().join(name)).unwrap();
        }
        let binary = env::var_os("SB_TEST_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_sb").into());
        symlink(binary, directory.path().join("bin/sb")).unwrap();
        // An answer with an error is one of curl, too.
        fs::write(directory.path().join("home/.curlrc"), "fail\n").unwrap();
        let repository = repository.to_owned();
        Self { directory, repository, first_port: free_ports(), databases: RefCell::default() }
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.directory.path().join(below)
    }

    /// The environment of the shell, and all there is of it.
    pub(crate) fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut path = OsString::from(self.path("bin"));
        path.push(":");
        path.push(env::var_os("PATH").unwrap_or_default());
        let mut variables = vec![
            ("PATH", path),
            ("HOME", self.path("home").into()),
            ("SB_LISTEN", format!("127.0.0.1:{}", self.port(0)).into()),
            ("REPOSITORY", self.repository.clone().into()),
        ];
        variables.extend(env::var_os("SB_TEST_NATS_SERVER").map(|program| ("SB_TEST_NATS_SERVER", program)));
        variables
    }

    /// What a command needs that this test run does not have.
    pub(crate) fn lacks(&self, command: &str) -> Option<&'static str> {
        let is_about_postgres = OF_POSTGRES.iter().any(|name| command.contains(name));
        (is_about_postgres && env::var_os("SB_TEST_POSTGRES").is_none())
            .then_some("needs PostgreSQL, and SB_TEST_POSTGRES is not set")
    }

    /// Puts a block into a file, whose path is meant as a command in the page would mean it.
    pub(crate) fn write(&self, path: &str, content: &str) {
        let path = match path.strip_prefix("~/") {
            Some(below) => self.path("home").join(below),
            None => self.path("work").join(self.translate(path)),
        };
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, self.translate(content)).unwrap();
    }

    /// A command as it is run here.
    pub(crate) fn command(&self, text: &str) -> String {
        let text = text.replace("cargo run --release -- ", "sb ");
        with_variables(&self.translate(&text))
    }

    /// A text of the page with the ports, hosts, directories and databases of this place.
    pub(crate) fn translate(&self, text: &str) -> String {
        let mut text = self.with_ports(&self.with_hosts(text));
        for directory in DIRECTORIES {
            text = replace_words(&text, directory, self.path(&directory[1..]).to_str().unwrap());
        }
        for url in ["postgres://switchboard@db/switchboard", "postgres://db/switchboard"] {
            if text.contains(url) {
                let database = Database::empty();
                text = text.replace(url, database.url());
                self.databases.borrow_mut().push(database);
            }
        }
        text
    }

    /// What was printed, with the home as people write it.
    pub(crate) fn with_tilde(&self, printed: &str) -> String {
        printed.replace(self.path("home").to_str().unwrap(), "~")
    }

    /// What was printed, with the ports and directories as they are written in commands.
    pub(crate) fn translate_back(&self, printed: &str) -> String {
        let mut text = self.with_tilde(printed).replace(self.path("").to_str().unwrap(), "/");
        for (index, port) in PORTS.iter().enumerate() {
            text = replace_words(&text, &self.port(index).to_string(), port);
        }
        text
    }

    fn port(&self, index: usize) -> u16 {
        self.first_port + u16::try_from(index).unwrap()
    }

    /// The hosts of examples are servers of this place: `agents.` is its own, all others are the one elsewhere.
    fn with_hosts(&self, text: &str) -> String {
        let mut pieces = text.split("https://");
        let mut made = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let end = piece.find(|character: char| !character.is_ascii_alphanumeric() && !".-".contains(character));
            let (host, mut rest) = piece.split_at(end.unwrap_or(piece.len()));
            if !host.ends_with(".example.com") && !host.ends_with(".example.org") {
                made = made + "https://" + piece;
                continue;
            }
            if let Some(port) = rest.strip_prefix(':') {
                rest = port.trim_start_matches(|character: char| character.is_ascii_digit());
            }
            let port = self.port(usize::from(!host.starts_with("agents.")));
            made += &format!("http://127.0.0.1:{port}{rest}");
        }
        made.replace("nats://nats.example.com", "nats://127.0.0.1:4222")
    }

    fn with_ports(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (index, port) in PORTS.iter().enumerate() {
            text = replace_words(&text, port, &self.port(index).to_string());
        }
        text
    }
}

/// The first of some ports that nobody listens at. Whoever else runs pages now has another process id, or is the next in
/// this process.
fn free_ports() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let slot = process::id().wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(97));
        let first = u16::try_from(FIRST_PORT + slot % PLACES * u32::from(PORTS_OF_A_PLACE)).unwrap();
        if (first..first + PORTS_OF_A_PLACE).all(|port| TcpListener::bind(("0.0.0.0", port)).is_ok()) {
            return first;
        }
    }
}

/// Replaces what stands by itself: no letter, digit or dot beside it.
fn replace_words(text: &str, word: &str, by: &str) -> String {
    let is_part = |character: char| character.is_alphanumeric() || character == '.' || character == '_';
    let mut made = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, behind) = (&rest[..at], &rest[at + word.len()..]);
        let stands_alone = !before.ends_with(is_part) && !behind.starts_with(is_part);
        made = made + before + if stands_alone { by } else { word };
        rest = behind;
    }
    made + rest
}

/// Ids that a page shortens, `0197c5a2-…`, are variables: `$id_0197c5a2`. What the page does not show sets them.
fn with_variables(command: &str) -> String {
    let mut pieces = command.split('…');
    let mut made = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let is_part = |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
        let begin = made.trim_end_matches(is_part).len();
        let name = made[begin..].trim_end_matches(|character: char| "_-".contains(character)).replace('-', "_");
        if name.is_empty() {
            made.push('…');
        } else {
            made.truncate(begin);
            made += &format!("${{id_{name}}}");
        }
        made += piece;
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_pages_mean_this_place() {
        let place = Place::new(Path::new("/"));
        let (own, elsewhere) = (place.port(0), place.port(1));
        let root = place.directory.path().to_str().unwrap();
        let translated = [
            ("curl localhost:8765/x", format!("curl localhost:{own}/x")),
            ("a 18765 8765.5", "a 18765 8765.5".to_owned()),
            ("--public-url https://agents.example.com:8765", format!("--public-url http://127.0.0.1:{own}")),
            (
                "https://other.example.org/a2a https://a.example",
                format!("http://127.0.0.1:{elsewhere}/a2a https://a.example"),
            ),
            ("sb backup /backup/a /x/backup/b", format!("sb backup {root}/backup/a /x/backup/b")),
        ];
        for (text, expected) in translated {
            assert_eq!(place.translate(text), expected);
        }
        assert_eq!(place.command("cargo run --release -- task get 0197c5a2-… '…'"), "sb task get ${id_0197c5a2} '…'");
    }
}
