//! What the machine gives: a directory, room, a disk that keeps what it was given, a journal, a clock.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

#[cfg(target_os = "linux")]
use agents::launch::{self, Walls};
use store::{clock, sqlite};

use crate::findings::Finding;

/// How many writes the disk is timed with.
const WRITES: usize = 20;
/// What one of them holds: a page of the journal.
const PAGE: [u8; 4096] = [0x5b; 4096];
/// A commit waits for the disk, so that a send waits at least twice this long.
const SLOW_SYNC: Duration = Duration::from_millis(20);

const SCARCE_BYTES: u64 = 1 << 30;
const TOO_FEW_BYTES: u64 = 100 << 20;

/// The first SQLite whose log cannot be corrupted by a reset beside a checkpoint.
const MIN_SQLITE: i32 = 3_051_003;

/// 2025-01-01. A clock before it was never set.
const EARLIEST_MS: i64 = 1_735_689_600_000;

pub(super) fn data_directory(directory: &Path) -> Finding {
    let subject = "data directory";
    let place = directory.display();
    let metadata = match fs::metadata(directory) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let above = existing(directory);
            return match probe(&above) {
                Ok(_) => Finding::ok(subject, format!("{place} is not there yet; `sb serve` makes it")),
                Err(error) => Finding::fail(
                    subject,
                    format!("{place} is not there and cannot be made: {}: {error}", above.display()),
                    "choose another with --data-dir, or make it and give it to the user who runs the server",
                ),
            };
        }
        Err(error) => {
            return Finding::fail(subject, format!("{place}: {error}"), "choose another with --data-dir");
        }
    };
    if !metadata.is_dir() {
        return Finding::fail(subject, format!("{place} is not a directory"), "choose another with --data-dir");
    }
    if let Err(error) = probe(directory) {
        let owner = metadata.uid();
        return Finding::fail(
            subject,
            format!("{place} cannot be written: {error}"),
            format!("run as its owner (user {owner}), or change its permissions"),
        );
    }
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Finding::warn(
            subject,
            format!("{place} is open to others ({mode:o}); it holds tokens and everything that was said"),
            format!("chmod 700 {place}"),
        );
    }
    Finding::ok(subject, format!("{place} ({mode:o}, writable)"))
}

/// The files with secrets that group or others can read or write, if there are any.
pub(super) fn secret_files(files: &[PathBuf]) -> Option<Finding> {
    let mode = |file: &Path| fs::metadata(file).map(|metadata| metadata.permissions().mode() & 0o777);
    let is_open = |file: &&PathBuf| mode(file.as_path()).is_ok_and(|mode| mode & 0o066 != 0);
    let open: Vec<&PathBuf> = files.iter().filter(is_open).collect();
    if open.is_empty() {
        return None;
    }
    let shown = |file: &&PathBuf| format!("{} ({:o})", file.display(), mode(file).unwrap_or_default());
    let detail: Vec<String> = open.iter().map(shown).collect();
    let names: Vec<String> = open.iter().map(|file| file.display().to_string()).collect();
    let command = shlex::try_join(["chmod", "600"].into_iter().chain(names.iter().map(String::as_str)));
    let (subject, detail) = ("secret files", format!("group or others have access to {}", detail.join(", ")));
    Some(Finding::warn(subject, detail, command.unwrap_or_else(|_| "let only their owner read them".to_owned())))
}

pub(super) fn disk(directory: &Path) -> Finding {
    let subject = "disk";
    let free = match rustix::fs::statvfs(existing(directory)) {
        Ok(disk) => disk.f_bavail.saturating_mul(disk.f_frsize),
        Err(error) => {
            return Finding::warn(subject, format!("cannot tell how much is free: {error}"), "look with `df`");
        }
    };
    let detail = format!("{} MiB free", free >> 20);
    match free {
        free if free < TOO_FEW_BYTES => Finding::fail(subject, detail, "make room: the journal cannot grow"),
        free if free < SCARCE_BYTES => Finding::warn(subject, detail, "make room before the journal needs it"),
        _ => Finding::ok(subject, detail),
    }
}

/// How long the disk takes to promise that it keeps a write. Nothing where there is no directory yet.
pub(super) fn fsync(directory: &Path) -> Option<Finding> {
    let subject = "fsync";
    let (path, file) = probe_file(directory).ok()?;
    let timed = time_writes(file);
    // It was only there to be timed.
    let _ = fs::remove_file(&path);
    let mut times = match timed {
        Ok(times) => times,
        Err(error) => {
            let hint = "the disk does not keep what it is given: replace it, or use another --data-dir";
            return Some(Finding::fail(subject, format!("a write could not be made durable: {error}"), hint));
        }
    };
    times.sort_unstable();
    let middle = times[times.len() / 2];
    let late = times[times.len() - 1];
    let detail = format!("p50 {}, p99 {} over {WRITES} writes", shown(middle), shown(late));
    Some(if middle > SLOW_SYNC {
        Finding::warn(subject, detail, "every commit waits this long: put the data directory on a faster disk")
    } else {
        Finding::ok(subject, detail)
    })
}

pub(super) fn sqlite() -> Finding {
    let version = sqlite::version();
    if sqlite::version_number() < MIN_SQLITE {
        return Finding::fail("sqlite", format!("{version} is too old"), "build with SQLite 3.51.3 or newer");
    }
    Finding::ok("sqlite", version)
}

pub(super) fn journal(directory: &Path) -> Finding {
    let subject = "journal";
    let found = match sqlite::inspect(directory) {
        Ok(Some(found)) => found,
        Ok(None) => {
            return match fs::symlink_metadata(directory.join(sqlite::FILE)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    let hint = "be the user that runs the server, or name another directory with --data-dir";
                    Finding::fail(subject, format!("cannot look whether there is one: {error}"), hint)
                }
                _ => Finding::ok(subject, "none yet; the first start makes it"),
            };
        }
        Err(error) => {
            let hint = "check that nothing but Switchboard writes there; restore a backup if the file is damaged";
            return Finding::fail(subject, error.to_string(), hint);
        }
    };
    let (schema, known) = (found.schema, found.known_schema);
    let detail = format!("{}, schema {schema}, {} KiB", found.journal_mode, found.bytes >> 10);
    if schema > known {
        let hint = "run the version that wrote it, or use another --data-dir";
        return Finding::fail(subject, format!("{detail}: a newer version wrote it (this one knows {known})"), hint);
    }
    let log_mib = (found.log_bytes >= sqlite::WARN_LOG_BYTES).then_some(found.log_bytes >> 20);
    if schema < known {
        let mut detail = format!("{detail}: the next start brings it to {known}");
        let mut hint = "`sb backup FILE` copies it as it is: do that first if you may want to go back".to_owned();
        if let Some(log_mib) = log_mib {
            detail.push_str(&format!("; {}", large_log(log_mib)));
            hint.push_str(&format!("; {LARGE_LOG}"));
        }
        return Finding::warn(subject, detail, hint);
    }
    if !found.journal_mode.eq_ignore_ascii_case("wal") {
        let hint = "the next start sets it; if it stays, the file system does not support WAL: use a local disk";
        return Finding::warn(subject, format!("{detail}: the mode should be wal"), hint);
    }
    if let Some(log_mib) = log_mib {
        return Finding::warn(subject, format!("{detail}: {}", large_log(log_mib)), LARGE_LOG);
    }
    match found.synchronous {
        Some(2) => Finding::ok(subject, format!("{detail}, synchronous FULL")),
        other => Finding::fail(
            subject,
            format!("{detail}: synchronous is {other:?}, not FULL"),
            "this build does not keep its promises: use another",
        ),
    }
}

/// Advice about a large log. A server cuts its log once no reader needs it any more.
const LARGE_LOG: &str = "a backup, an export or another program holds the log while it reads: let it finish or end it; a running server then \
                         cuts the log within seconds";

fn large_log(mib: u64) -> String {
    format!("its write-ahead log has grown to {mib} MiB")
}

/// `server` is what the running server's answer said the time was, in milliseconds since the epoch.
pub(super) async fn clock(server: Option<i64>) -> Finding {
    let subject = "clock";
    let hint = "set the clock, and keep it set with NTP";
    let (wall, steady) = (clock::now().as_millis(), Instant::now());
    tokio::time::sleep(Duration::from_millis(50)).await;
    let gone = i64::try_from(steady.elapsed().as_millis()).unwrap_or(i64::MAX);
    let now = clock::now();
    let drift = (now.as_millis() - wall - gone).abs();
    if now.as_millis() < EARLIEST_MS {
        return Finding::fail(subject, format!("it says {now}, which is long gone"), hint);
    }
    if drift > 1000 {
        return Finding::warn(subject, format!("it jumped by {drift} ms within {gone} ms"), hint);
    }
    let Some(server) = server else {
        return Finding::ok(subject, now.to_string());
    };
    // The server's header has whole seconds.
    let apart = ((now.as_millis() - server).abs() - 1000).max(0) / 1000;
    match apart {
        0..=5 => Finding::ok(subject, format!("{now}, as the server's")),
        6..=300 => Finding::warn(subject, format!("{apart} s from the server's"), hint),
        _ => Finding::fail(subject, format!("{apart} s from the server's"), hint),
    }
}

/// How far programs of agents can be kept from the rest of this machine.
#[cfg(target_os = "linux")]
pub(super) fn programs() -> Vec<Finding> {
    let launcher = launch::launcher();
    let subject = "programs: basic";
    let basic = match launch::try_walls(&launcher) {
        Ok(Walls::Signals) => Finding::ok(
            subject,
            "no new rights; they can neither look into other processes of their user nor signal them, but can change their priority \
             and their limits (renice, prlimit), which `isolation = \"strict\"` and a `uid` keep them from",
        ),
        Ok(Walls::Looks) => Finding::warn(
            subject,
            "no new rights; they cannot look into other processes of their user, but can signal them",
            "Linux 6.12 or later keeps them from that too; or write `isolation = \"strict\"`",
        ),
        Ok(Walls::None) => Finding::warn(
            subject,
            "no new rights; this system has no Landlock that would keep them from other processes of their user",
            "use a kernel with Landlock, or write `isolation = \"strict\"`",
        ),
        Err(error) => Finding::fail(subject, error.to_string(), "programs cannot be started: check this installation"),
    };
    let subject = "programs: strict";
    let strict = match launch::try_world(&launcher, None) {
        Ok(()) => Finding::ok(subject, "they can have a world of their own"),
        Err(why) => Finding::warn(
            subject,
            format!("not to be had: {why}"),
            "agents that want it are not loaded; let users have namespaces (user.max_user_namespaces, AppArmor), or run them elsewhere",
        ),
    };
    vec![basic, strict, processes()]
}

/// Whether the number of a program's processes can be bounded.
#[cfg(target_os = "linux")]
fn processes() -> Finding {
    let subject = "programs: processes";
    if !launch::is_exempt() {
        return Finding::ok(subject, "their number is bounded by a limit of their user");
    }
    match launch::try_group() {
        Some(place) => Finding::ok(subject, format!("their number is bounded by cgroups below {}", place.display())),
        None => Finding::warn(
            subject,
            "their number has no bound: root is exempt from limits, and no cgroup that counts processes can be made here",
            "run the server as another user, give its programs a `uid`, or delegate a cgroup (systemd: `Delegate=pids` and \
             `DelegateSubgroup=server`)",
        ),
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn programs() -> Vec<Finding> {
    let hint = "run agents that you do not trust on Linux";
    vec![Finding::warn("programs", "they are neither bounded nor isolated on this system", hint)]
}

/// The directory, or the nearest one above it that is there.
fn existing(directory: &Path) -> PathBuf {
    let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let there = absolute.ancestors().find(|path| path.exists());
    there.unwrap_or_else(|| Path::new("/")).to_owned()
}

/// Whether a file can be made there.
fn probe(directory: &Path) -> io::Result<()> {
    let (path, _file) = probe_file(directory)?;
    fs::remove_file(path)
}

fn probe_file(directory: &Path) -> io::Result<(PathBuf, File)> {
    let path = directory.join(format!(".doctor.{}.tmp", std::process::id()));
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    Ok((path, file))
}

fn time_writes(mut file: File) -> io::Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(WRITES);
    for _ in 0..WRITES {
        let since = Instant::now();
        file.write_all(&PAGE)?;
        file.sync_data()?;
        times.push(since.elapsed());
    }
    Ok(times)
}

fn shown(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Level;

    #[test]
    fn a_directory_is_judged() {
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(data_directory(home.path()).level, Level::Ok);
        assert_eq!(data_directory(&home.path().join("not/yet")).level, Level::Ok);
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(data_directory(home.path()).level, Level::Warn);
        let file = home.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(data_directory(&file).level, Level::Fail);
        assert_eq!(data_directory(&file.join("below")).level, Level::Fail);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "nothing is left behind");
    }

    #[test]
    fn secrets_that_others_can_read_are_named() {
        let home = tempfile::tempdir().unwrap();
        let (closed, open) = (home.path().join("closed"), home.path().join("open"));
        for (file, mode) in [(&closed, 0o600), (&open, 0o640)] {
            fs::write(file, "secret").unwrap();
            fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
        }
        assert!(secret_files(&[closed.clone(), home.path().join("not there")]).is_none());
        let finding = secret_files(&[closed.clone(), open.clone()]).unwrap();
        assert_eq!(finding.level, Level::Warn);
        assert!(finding.detail.contains("open (640)") && !finding.detail.contains("closed"), "{}", finding.detail);
        assert_eq!(finding.hint.unwrap(), format!("chmod 600 {}", open.display()));
    }

    #[test]
    fn the_disk_is_timed_and_left_clean() {
        let home = tempfile::tempdir().unwrap();
        let finding = fsync(home.path()).unwrap();
        assert!(finding.detail.contains("p50") && finding.detail.contains("p99"), "{}", finding.detail);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
        assert!(fsync(&home.path().join("nowhere")).is_none());
    }

    #[test]
    fn a_journal_from_the_future_is_bad() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(journal(home.path()).level, Level::Ok);
        drop(sqlite::open(home.path(), sqlite::Options::default()).unwrap());
        let finding = journal(home.path());
        assert_eq!(finding.level, Level::Ok, "{}", finding.detail);
        assert!(finding.detail.starts_with("wal") && finding.detail.ends_with("FULL"), "{}", finding.detail);
        // The log of a journal that is open is looked at by its size.
        let store = sqlite::open(home.path(), sqlite::Options::default()).unwrap();
        let log = fs::File::options().write(true).open(home.path().join("switchboard.db-wal")).unwrap();
        log.set_len(sqlite::WARN_LOG_BYTES).unwrap();
        let finding = journal(home.path());
        assert_eq!(finding.level, Level::Warn);
        assert!(finding.detail.ends_with("its write-ahead log has grown to 256 MiB"), "{}", finding.detail);
        drop(store);
        fs::write(home.path().join("switchboard.db"), "this is no database, however long it may be").unwrap();
        assert_eq!(journal(home.path()).level, Level::Fail);
    }

    #[test]
    fn an_old_journal_is_to_be_backed_up_and_its_large_log_is_seen() {
        let home = tempfile::tempdir().unwrap();
        let store = sqlite::open(home.path(), sqlite::Options::default()).unwrap();
        let known = sqlite::inspect(home.path()).unwrap().unwrap().known_schema;
        let file = home.path().join("switchboard.db");
        testkit::temp_store::alter(&file, &format!("PRAGMA user_version = {}", known - 1));
        let finding = journal(home.path());
        assert_eq!(finding.level, Level::Warn);
        assert!(finding.detail.ends_with(&format!("the next start brings it to {known}")), "{}", finding.detail);
        let hint = finding.hint.unwrap();
        assert!(hint.starts_with("`sb backup FILE` copies it as it is"), "{hint}");
        let log = fs::File::options().write(true).open(home.path().join("switchboard.db-wal")).unwrap();
        log.set_len(sqlite::WARN_LOG_BYTES).unwrap();
        let finding = journal(home.path());
        assert!(finding.detail.ends_with("its write-ahead log has grown to 256 MiB"), "{}", finding.detail);
        let hint = finding.hint.unwrap();
        assert!(hint.contains("`sb backup FILE`") && hint.contains("then cuts the log"), "{hint}");
        drop(store);
    }

    #[tokio::test]
    async fn clocks_are_compared() {
        let now = clock::now().as_millis();
        assert_eq!(clock(None).await.level, Level::Ok);
        assert_eq!(clock(Some(now)).await.level, Level::Ok);
        assert_eq!(clock(Some(now - 30_000)).await.level, Level::Warn);
        assert_eq!(clock(Some(now + 3_600_000)).await.level, Level::Fail);
    }
}
