//! A server as far as its programs go: started with `serve <instance>` it has a guard and a few programs
//! and waits to be killed. The tests of the guard kill it.

use std::{
    io::{self, Write},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["guard", instance] => agents::guard::run(instance),
        ["serve", instance] => serve(instance),
        _ => Err(io::Error::other("guarded serve|guard INSTANCE")),
    }
}

fn serve(instance: &str) -> io::Result<()> {
    let guard = agents::guard::start(instance)?;
    // A process, one that has left its group, and one that has lost its mark but not its group.
    let script = "sleep 60 & echo $!; setsid sh -c 'echo $$; exec sleep 60' & env -i sleep 60 & echo $!; wait";
    let mut command = Command::new("sh");
    command.args(["-c", script]).env(agents::guard::MARK, instance).stdin(Stdio::null());
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let child = command.spawn()?;
    writeln!(io::stdout(), "{}", child.id())?;
    thread::sleep(Duration::from_secs(60));
    drop(guard);
    Ok(())
}
