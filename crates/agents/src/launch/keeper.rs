//! The process that stays beside a program: it passes on what the server asks for, and leaves nothing behind when it goes.
//!
//! SIGTERM is passed on to the program. SIGINT, the end of the program and the end of the server mean the end of everything.

use std::{
    ffi::OsString,
    fs, io,
    os::fd::OwnedFd,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    process::{
        Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process, kill_process_group,
        pidfd_open, set_child_subreaper, set_parent_process_death_signal, wait,
    },
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    signal::unix::{SignalKind, signal},
};

use super::{
    Order, Stage,
    group::{self, Group},
    next, refuse, world,
};

/// How long what does not die is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait until what was killed is gone.
const MOMENT: Duration = Duration::from_millis(2);

pub(super) fn run(order: &Order, program: &[OsString]) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    // Its file has no name that would say it.
    let _ = rustix::thread::set_name(c"sb-keeper");
    // Before it leaves the world that has the groups.
    let bounded = order.stage == Stage::Keeper && order.bounds.processes > 0 && group::is_exempt();
    let group = bounded.then(|| Group::make(order.bounds.processes)).flatten();
    let order =
        &Order { group: group.as_ref().map(|group| group.path().to_owned()).or(order.group.clone()), ..order.clone() };
    let kept = match (prepare(order), runtime) {
        (Ok(server), Ok(runtime)) => runtime.block_on(keep(order, server, program)),
        (Err(failed), _) => Err(failed),
        (_, Err(error)) => Err(("start".to_owned(), error)),
    };
    if let Some(group) = group {
        group.remove();
    }
    match kept {
        Ok(status) => end_as(order, status),
        Err((what, error)) => refuse(&what, &error),
    }
}

/// Becomes whom orphans come back to, in the world that is wanted. Gives what tells of the server's end.
fn prepare(order: &Order) -> Result<Option<OwnedFd>, (String, io::Error)> {
    let fail = |what: &str| {
        let what = what.to_owned();
        move |error: Errno| (what, io::Error::from(error))
    };
    if order.stage == Stage::First {
        // Orphans of a world come to its first process by themselves, and with it everything ends.
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(fail("tie the world to its keeper"))?;
        if let Some(group) = &order.group {
            group::join(group).map_err(|error| ("join the cgroup".to_owned(), error))?;
        }
        if let Some(world) = &order.world {
            world.furnish()?;
        }
        return Ok(None);
    }
    set_child_subreaper(Some(getpid())).map_err(fail("keep orphans"))?;
    let server = order.server.map(watched).transpose().map_err(fail("find the server"))?;
    if let Some(world) = &order.world {
        world::enter(world)?;
    }
    Ok(server)
}

/// What tells of the server's end.
fn watched(server: i32) -> rustix::io::Result<OwnedFd> {
    let server = Pid::from_raw(server).ok_or(Errno::SRCH)?;
    let descriptor = pidfd_open(server, PidfdFlags::empty())?;
    // It was the server if it is the parent still.
    if getppid() == Some(server) { Ok(descriptor) } else { Err(Errno::SRCH) }
}

async fn keep(
    order: &Order,
    server: Option<OwnedFd>,
    program: &[OsString],
) -> Result<Option<WaitStatus>, (String, io::Error)> {
    let fail = |error: io::Error| ("watch the program".to_owned(), error);
    let mut ask = signal(SignalKind::terminate()).map_err(fail)?;
    let mut end = signal(SignalKind::interrupt()).map_err(fail)?;
    let mut ended = signal(SignalKind::child()).map_err(fail)?;
    let server = server.map(watch).transpose().map_err(fail)?;
    let stage = if order.stage == Stage::Keeper && order.world.is_some() { Stage::First } else { Stage::Last };
    let child = next(order, stage, program).and_then(|mut command| command.spawn());
    let child = child.map_err(|error| ("start a process".to_owned(), error))?;
    let main = Pid::from_raw(child.id().cast_signed()).ok_or_else(|| fail(Errno::SRCH.into()))?;
    let_go();

    let status = loop {
        tokio::select! {
            _ = ended.recv() => if let Some(status) = reap(main) { break Some(status) },
            _ = ask.recv() => {
                // The program may be gone this moment.
                let _ = kill_process_group(main, Signal::TERM);
            }
            _ = end.recv() => break None,
            () = gone(server.as_ref()) => break None,
        }
    };
    // At once after it was reaped: its number is not given out again while the group has members.
    let _ = kill_process_group(main, Signal::KILL);
    if order.stage == Stage::Keeper {
        end_all();
    }
    Ok(status)
}

/// The pipes are the program's alone: their ends are its ends. What is said about a failed start has been said.
fn let_go() {
    if let Ok(nothing) = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        let _ = rustix::stdio::dup2_stdin(&nothing);
        let _ = rustix::stdio::dup2_stdout(&nothing);
        let _ = rustix::stdio::dup2_stderr(&nothing);
    }
}

#[expect(deprecated, reason = "it is unsound only for what gives out other descriptors, which an owned one does not")]
fn watch(server: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(server, Interest::READABLE)
}

async fn gone(server: Option<&AsyncFd<OwnedFd>>) {
    match server {
        // What cannot be watched any more counts as gone.
        Some(server) => drop(server.readable().await),
        None => std::future::pending().await,
    }
}

/// Reaps whoever has ended. Gives the status of the main one, if it is among them.
fn reap(main: Pid) -> Option<WaitStatus> {
    let mut status = None;
    while let Ok(Some((pid, its))) = wait(WaitOptions::NOHANG) {
        if pid == main {
            status = Some(its);
        }
    }
    status
}

/// Kills children until there are none: the children of who was killed are the next ones.
fn end_all() {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        for child in children() {
            let _ = kill_process(child, Signal::KILL);
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        thread::sleep(MOMENT);
    }
}

fn children() -> Vec<Pid> {
    let pid = |text: &str| text.parse().ok().and_then(Pid::from_raw);
    if let Ok(list) = fs::read_to_string("/proc/thread-self/children") {
        return list.split_whitespace().filter_map(pid).collect();
    }
    // Not every system has the list.
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let own = getpid().as_raw_nonzero().to_string();
    let is_own = |pid: &Pid| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        // The name, which is in brackets, may hold anything.
        stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)) == Some(&own)
    };
    processes.flatten().filter_map(|process| pid(process.file_name().to_str()?)).filter(is_own).collect()
}

/// Ends as the program did.
fn end_as(order: &Order, status: Option<WaitStatus>) -> ExitCode {
    let Some(status) = status else { return ExitCode::FAILURE };
    if let Some(code) = status.exit_status() {
        return ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX));
    }
    let number = status.terminating_signal().unwrap_or(Signal::KILL.as_raw());
    // Nothing that a first process does to itself ends it, and these two are caught here.
    let is_own = [Signal::TERM, Signal::INT].iter().any(|signal| signal.as_raw() == number);
    if let (Stage::Keeper, false, Some(signal)) = (order.stage, is_own, Signal::from_named_raw(number)) {
        let _ = kill_process(getpid(), signal);
    }
    ExitCode::from(u8::try_from(128 + number).unwrap_or(u8::MAX))
}
