//! The processes between the server and a program: they bound what it can do, and end all that it leaves behind.
//!
//! Each is this binary again, called as `sb launch ORDER PROGRAM ARGUMENT…`, so that nothing has to be done between a fork and
//! an exec. The *keeper* stays beside its program for as long as that runs. Whatever the program started, be it a daemon in a
//! session of its own, comes back to the keeper when its parent ends, and ends with the program, with the turn, or with the
//! server, whose death the keeper sees. The *last* one takes the bounds upon itself and becomes the program. Under strict
//! isolation there is a third in between: the *first* process of a world of its own ([`world`]).

mod bounds;
mod group;
mod keeper;
mod world;

use std::{
    env,
    ffi::OsString,
    io::{self, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use rustix::{io::Errno, process::getpid};
use serde::{Deserialize, Serialize};

pub use self::{
    bounds::{Bounds, Walls},
    group::{is_exempt, remove_group, remove_groups_left, try_group},
    world::World,
};
use crate::guard;

/// What the command line calls it.
pub const VERB: &str = "launch";

/// In the place of an order: says by its exit code which walls this system has.
const WALLS: &str = "walls";

/// Begins what is said on standard error by whoever could not become the program. No text begins so.
const REFUSAL: &[u8] = b"\0launch ";
/// The exit code of who could not become the program.
const REFUSED: u8 = 126;

/// What is to be started, and how.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    /// Who is to do it.
    pub stage: Stage,
    /// The process that it must not outlive; always there, but for the fault `no-guard`.
    pub server: Option<i32>,
    /// The mark of what is started, see [`guard`]. Keepers have none: they outlive the server for a moment.
    pub mark: String,
    /// What it may use up.
    pub bounds: Bounds,
    /// Whether it is kept from others of the same user, and from more rights than it has.
    pub walled: bool,
    /// The world that it sees, where that is not everybody's.
    pub world: Option<World>,
    /// The cgroup that bounds the number of its processes, once its keeper has made one.
    pub group: Option<PathBuf>,
}

/// Which of the processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Stays beside the program.
    Keeper,
    /// Begins a world of its own.
    First,
    /// Becomes the program.
    Last,
}

/// Why a program was not started.
#[derive(Debug)]
pub struct Refusal {
    /// What could not be done; nothing where it is the start of the program itself.
    pub what: String,
    /// What the system said.
    pub error: io::Error,
}

/// `sb launch …`, with what follows that word.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.collect();
    if arguments.first().is_some_and(|first| first == WALLS) {
        return bounds::walls().map_or(ExitCode::FAILURE, |walls| ExitCode::from(walls.code()));
    }
    let order = arguments.first().and_then(|order| serde_json::from_str::<Order>(order.to_str()?).ok());
    let (Some(order), Some(program)) = (order, arguments.get(1)) else {
        return refuse("read the order", &io::ErrorKind::InvalidInput.into());
    };
    match order.stage {
        Stage::Keeper | Stage::First => keeper::run(&order, &arguments[1..]),
        Stage::Last => {
            if let Err((what, error)) = bounds::take(&order) {
                return refuse(what, &error);
            }
            let error = Command::new(program).args(&arguments[2..]).exec();
            refuse("", &error)
        }
    }
}

/// A command that starts the program as ordered. Its environment and its pipes are the caller's to set.
pub fn command(launcher: &Path, order: &Order, program: &Path, arguments: &[String]) -> io::Result<Command> {
    let mut command = Command::new(launcher);
    command.arg(VERB).arg(serde_json::to_string(order)?).arg(program).args(arguments);
    Ok(command)
}

/// What the end of a launched program says about its begin: `None` if it was begun.
pub fn refusal(code: Option<i32>, complaint: &[u8]) -> Option<Refusal> {
    if code != Some(REFUSED.into()) {
        return None;
    }
    let said = String::from_utf8_lossy(complaint.strip_prefix(REFUSAL)?).into_owned();
    let (number, what) = said.split_once(' ')?;
    Some(Refusal { what: what.trim().to_owned(), error: io::Error::from_raw_os_error(number.parse().ok()?) })
}

/// The next stage of an order, as a process of its own process group.
fn next(order: &Order, stage: Stage, program: &[OsString]) -> io::Result<Command> {
    let order = Order { stage, ..order.clone() };
    let mut command = Command::new(launcher());
    command.arg(VERB).arg(serde_json::to_string(&order)?).args(program).env(guard::MARK, &order.mark).process_group(0);
    Ok(command)
}

fn refuse(what: &str, error: &io::Error) -> ExitCode {
    let number = error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error());
    let mut said = REFUSAL.to_vec();
    said.extend_from_slice(format!("{number} {what}\n").as_bytes());
    // Whoever reads it is gone if it cannot be said.
    let _ = io::stderr().write_all(&said);
    ExitCode::from(REFUSED)
}

/// The binary that launches programs: this one, found again whatever became of its name, and in whichever world.
pub fn launcher() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// Which walls a program can have on this system.
pub fn try_walls(launcher: &Path) -> io::Result<Walls> {
    let mut command = Command::new(launcher);
    command.args([VERB, WALLS]).env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let code = command.status()?.code();
    let known = [Walls::Signals, Walls::Looks, Walls::None];
    known
        .into_iter()
        .find(|walls| code == Some(walls.code().into()))
        .ok_or_else(|| io::Error::other("it cannot be tried"))
}

/// Whether a program can have a world of its own, run by this user and group if they are others. An error says what is missing.
pub fn try_world(launcher: &Path, user: Option<(u32, u32)>) -> Result<(), String> {
    let world = World { home: env::temp_dir(), readable: Vec::new(), cwd: PathBuf::from("/"), network: false };
    let order = Order {
        stage: Stage::Keeper,
        server: Some(getpid().as_raw_nonzero().get()),
        mark: String::new(),
        bounds: Bounds { memory: 0, processes: 0, files: 0, file_size: 0, cpu_seconds: 0 },
        walled: true,
        world: Some(world),
        group: None,
    };
    let tried = command(launcher, &order, &self::launcher(), &["--version".to_owned()]).and_then(|mut command| {
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        if let Some((user, group)) = user {
            command.uid(user).gid(group);
        }
        command.output()
    });
    let ended = tried.map_err(|error| error.to_string())?;
    match refusal(ended.status.code(), &ended.stderr) {
        Some(Refusal { what, error }) => Err(format!("cannot {what}: {error}")),
        None if ended.status.success() => Ok(()),
        None => Err(format!("a program did not run there: {}", ended.status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_could_not_begin_refuses() {
        let refused = refusal(Some(126), b"\0launch 2 \n").unwrap();
        assert_eq!((refused.what.as_str(), refused.error.kind()), ("", io::ErrorKind::NotFound));
        let refused = refusal(Some(126), b"\0launch 1 mount /proc\n").unwrap();
        assert_eq!((refused.what.as_str(), refused.error.kind()), ("mount /proc", io::ErrorKind::PermissionDenied));
        for (code, said) in
            [(Some(1), &b"\0launch 2 \n"[..]), (Some(126), b"permission denied"), (None, b""), (Some(126), b"\0launch")]
        {
            assert!(refusal(code, said).is_none());
        }
    }
}
