//! Programs never outlive the server, not even after kill -9 of it.
//!
//! Each program carries [`MARK`] with the id of the server's instance and the number of its run in its environment. A second
//! process, the guard, waits for the end of a pipe that only the server holds; when the server is gone, in
//! whatever way, it kills whoever carries the mark. The guard has a process group of its own, so that what
//! is sent to the server's terminal or group does not reach it.

use std::{
    io::{self, Read},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// The variable that marks the programs of an instance.
pub const MARK: &str = "SB_GUARD";

/// How often marked processes are looked for once the server is gone.
const PERIOD: Duration = Duration::from_millis(25);
/// A program that was being started when the server died shows its mark only after a while.
const QUIET: Duration = Duration::from_secs(1);
const AT_MOST: Duration = Duration::from_secs(10);
/// How long a guard that keeps dying is left alone before the next one is started.
const RESTART: Duration = Duration::from_secs(1);

/// Holds the guard's pipe. Dropping it, or the death of this process, sets the guard off.
#[derive(Debug)]
pub struct Guard {
    pipe: Arc<Mutex<Option<ChildStdin>>>,
}

/// Starts a guard for this instance: `<this program> guard <instance>`, which must call [`run`].
#[cfg(target_os = "linux")]
pub fn start(instance: &str) -> io::Result<Guard> {
    let (child, stdin) = spawn(instance)?;
    let guard = Guard { pipe: Arc::new(Mutex::new(Some(stdin))) };
    let pipe = Arc::clone(&guard.pipe);
    let instance = instance.to_owned();
    thread::Builder::new().name("guard".to_owned()).spawn(move || watch(child, &pipe, &instance))?;
    Ok(guard)
}

/// There is no guard on this system: programs may outlive a server that was killed.
#[cfg(not(target_os = "linux"))]
pub fn start(_instance: &str) -> io::Result<Guard> {
    tracing::info!("no guard on this system: programs may outlive a server that is killed");
    Ok(Guard { pipe: Arc::default() })
}

/// The guard itself: waits for the end of standard input, then ends what the instance has left behind.
pub fn run(instance: &str) -> io::Result<()> {
    // Bytes mean nothing, only the end does.
    let mut stdin = io::stdin().lock();
    let mut ignored = [0; 64];
    loop {
        match stdin.read(&mut ignored) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let begun = Instant::now();
    let mut last_found = begun;
    while last_found.elapsed() < QUIET && begun.elapsed() < AT_MOST {
        if sweep(instance) > 0 {
            last_found = Instant::now();
        }
        thread::sleep(PERIOD);
    }
    Ok(())
}

/// Kills once whoever carries the mark of this instance; how many there were.
#[cfg(target_os = "linux")]
pub fn sweep(instance: &str) -> usize {
    linux::sweep(instance)
}

/// Does nothing on this system.
#[cfg(not(target_os = "linux"))]
pub fn sweep(_instance: &str) -> usize {
    0
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.pipe.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there is no guard on this system"))]
fn spawn(instance: &str) -> io::Result<(Child, ChildStdin)> {
    use std::os::unix::process::CommandExt;

    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["guard", instance])
        // It needs nothing, least of all what is secret. A server that is itself somebody's program has a mark, which its guard
        // must survive for a moment.
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        // Whoever reads the server's output waits for its end, and must not wait for the guard's.
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    let mut child = command.spawn()?;
    let Some(stdin) = child.stdin.take() else {
        return Err(io::Error::other("the guard has no pipe"));
    };
    Ok((child, stdin))
}

/// Reaps the guard, and starts another one if it ended while it was still needed.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there is no guard on this system"))]
fn watch(mut child: Child, pipe: &Mutex<Option<ChildStdin>>, instance: &str) {
    loop {
        let status = child.wait();
        thread::sleep(RESTART);
        let mut pipe = pipe.lock().unwrap_or_else(PoisonError::into_inner);
        if pipe.is_none() {
            return;
        }
        tracing::warn!(status = ?status, "the guard of programs is gone; starting another one");
        match spawn(instance) {
            Ok((next, stdin)) => {
                child = next;
                *pipe = Some(stdin);
            }
            Err(error) => {
                tracing::error!(error = %error, "no guard can be started: programs may outlive a server that is killed");
                return;
            }
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    //! Finding and killing by `/proc`.

    use std::fs;

    use rustix::process::{
        Pid, PidfdFlags, Signal, getpgid, getpid, kill_process_group, pidfd_open, pidfd_send_signal,
    };

    pub(super) fn sweep(instance: &str) -> usize {
        let mark = format!("{}={instance}", super::MARK);
        let Ok(processes) = fs::read_dir("/proc") else { return 0 };
        let mut found = 0;
        for process in processes.flatten() {
            let pid = process.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            let Some(pid) = pid.filter(|pid| *pid != getpid()) else { continue };
            // The descriptor first: what is killed is then what was looked at, whatever becomes of the number.
            let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
            if !carries(pid, &mark) {
                continue;
            }
            found += 1;
            // Its group goes with it, members that have lost the mark included, if its leader is one of ours.
            if let Ok(group) = getpgid(Some(pid))
                && carries(group, &mark)
            {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = pidfd_send_signal(&descriptor, Signal::KILL);
        }
        found
    }

    fn carries(pid: Pid, mark: &str) -> bool {
        let path = format!("/proc/{}/environ", pid.as_raw_nonzero());
        // A process of somebody else's, or one that is gone.
        let Ok(environment) = fs::read(path) else { return false };
        // A mark may go on with the number of a run.
        let is_mark = |rest: &[u8]| rest.first().is_none_or(|next| *next == b'/');
        environment.split(|byte| *byte == 0).any(|variable| variable.strip_prefix(mark.as_bytes()).is_some_and(is_mark))
    }
}
