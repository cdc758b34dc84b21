//! What this process knows stays with it: nobody of the same user looks into its memory, and its environment shows no secrets.

use std::{
    env,
    ffi::OsStr,
    io::{self, Read},
    os::unix::process::CommandExt,
    process::Command,
};

use agents::environment;

use crate::failure::Failure;

/// Says that what was hidden comes on standard input.
const HIDDEN: &str = "SB_HIDDEN";
/// How many milliseconds the allocator keeps free memory before it returns it to the system. Its own default is a second, after
/// which it waits for the next allocation to do so.
#[cfg(target_os = "linux")]
const PURGE_DELAY: &str = "MIMALLOC_PURGE_DELAY";

/// Other processes of the same user cannot look into this one from here on, it leaves no image of its memory on a disk, and nothing
/// that it was given open is open in what it starts.
pub(crate) fn close() {
    close_fds::set_fds_cloexec(3, &[]);
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
        // Neither can fail for a process that asks it of itself.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    }
}

/// Takes everything that may be secret out of the environment. The system shows the environment that a process was started with
/// for as long as it runs, so it is started once more, as the same process, without it, and with the allocator's option.
pub(crate) fn hide_environment() -> Result<(), Failure> {
    let failure = |error: &io::Error| Failure::failed("cannot hide the environment").caused_by(error);
    if env::var_os(HIDDEN).is_some_and(|hidden| hidden == "stdin") {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).map_err(|error| failure(&error))?;
        environment::take_over(&bytes);
        let nothing = std::fs::File::open("/dev/null").map_err(|error| failure(&error))?;
        return rustix::stdio::dup2_stdin(&nothing).map_err(|error| failure(&error.into()));
    }
    start_again().map_err(|error| failure(&error))
}

#[cfg(target_os = "linux")]
fn start_again() -> io::Result<()> {
    use std::io::{Seek, Write};

    use rustix::fs::{MemfdFlags, memfd_create};

    let (bytes, names) = environment::hidden();
    let purge_delay = env::var_os(PURGE_DELAY);
    if names.is_empty() && purge_delay.is_some() {
        return Ok(());
    }
    let mut memory = std::fs::File::from(memfd_create("environment", MemfdFlags::CLOEXEC)?);
    memory.write_all(&bytes)?;
    memory.rewind()?;
    rustix::stdio::dup2_stdin(&memory)?;
    // By its name, which people look for; the name may be gone, or another program's.
    let program = env::current_exe().ok().filter(|path| path.is_file()).unwrap_or_else(agents::launch::launcher);
    let mut arguments = env::args_os();
    let mut command = Command::new(program);
    command.arg0(arguments.next().as_deref().unwrap_or(OsStr::new("sb"))).args(arguments).env(HIDDEN, "stdin");
    // The allocator reads its options before `main` begins.
    command.env(PURGE_DELAY, purge_delay.unwrap_or_else(|| "0".into()));
    for name in names {
        command.env_remove(name);
    }
    Err(command.exec())
}

#[cfg(not(target_os = "linux"))]
fn start_again() -> io::Result<()> {
    Ok(())
}
