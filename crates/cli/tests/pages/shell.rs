//! A session with bash, as somebody would have it who follows a page: variables and the directory stay, and a server
//! runs beside it until the page starts another one.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, sync_channel},
    thread,
};

use super::place::Place;
use crate::harness::{PATIENCE, eventually, text};

/// One that leaves ends everything that it has started. For what pages do not show, `field NAME` prints the first member of
/// that name of the JSON that it reads. For transcripts, `soon COMMAND` waits until a command works, and `stop [SIGNAL]` ends
/// the server with the server's exit code.
const BEGIN: &str = r#"set -u; trap 'kill -KILL -- -$$' EXIT; exec 3>&1 >/dev/null 2>&1; SERVER=
field() { grep -o "\"$1\": *\"[^\"]*\"" | head -n 1 | cut -d '"' -f 4; }
soon() { for _ in {1..300}; do eval "$*" >/dev/null 2>&1 && return; sleep 0.05; done; echo "in vain: $*" >&2; return 1; }
stop() { kill -s "${1-TERM}" "$SERVER"; wait "$SERVER" 2>/dev/null; set -- $?; SERVER=; return "$1"; }
"#;

/// What does not come to an end by itself.
const SERVER: &str = "sb serve";
const WORKER: &str = "sb a2a work";

/// How much of the logs is shown when a command does not do what its page says.
const LINES_OF_A_LOG: usize = 20;

/// Dropping it ends all that was started in it.
pub(crate) struct Shell {
    bash: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
    directory: PathBuf,
    /// The server and the workers that run, and how many were started before them.
    server: Option<Beside>,
    workers: Vec<Beside>,
    started: usize,
}

/// A process beside the shell.
struct Beside {
    pid: String,
    log: PathBuf,
}

impl Shell {
    pub(crate) fn open(place: &Place) -> Self {
        Self::open_with(place, &[])
    }

    /// With more variables than a page has.
    pub(crate) fn open_with(place: &Place, more: &[(&str, &str)]) -> Self {
        let mut command = Command::new("bash");
        command.args(["--noprofile", "--norc"]).current_dir(place.path("work")).env_clear().envs(place.environment());
        command.envs(more.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let mut bash = command.spawn().expect("bash is installed");
        let mut orders = bash.stdin.take().unwrap();
        let lines = BufReader::new(bash.stdout.take().unwrap()).lines().map_while(Result::ok);
        let (say, answers) = sync_channel(1);
        thread::spawn(move || lines.for_each(|line| say.send(line).unwrap_or_default()));
        orders.write_all(BEGIN.as_bytes()).unwrap();
        Self { bash, orders, answers, directory: place.path(""), server: None, workers: Vec::new(), started: 0 }
    }

    /// Runs a command, which has to end with this exit code; one that would not end only has to begin. Gives what it
    /// printed, on standard output and on standard error, as a terminal shows it.
    pub(crate) fn run(&mut self, command: &str, exit: i32) -> Result<String, String> {
        let result = if exit != 0 {
            self.await_end(command, exit)
        } else if begins(command, SERVER) {
            self.serve(command)
        } else if Self::goes_on(command) {
            self.work(command)
        } else {
            self.await_end(command, exit)
        };
        result.map_err(|wrong| wrong + &self.end_of_logs())
    }

    /// What was begun and should still run does so.
    pub(crate) fn close(mut self) -> Result<(), String> {
        if self.ask("echo \"$SERVER\" >&3").is_some_and(|pid| pid.is_empty()) {
            self.server = None;
        }
        for beside in self.server.iter().chain(&self.workers) {
            if !lives(&beside.pid) {
                return Err(format!("has begun something that has ended:\n{}", beside.said()));
            }
        }
        Ok(())
    }

    /// Whether a command begins something that runs beside the shell.
    pub(crate) fn goes_on(command: &str) -> bool {
        begins(command, SERVER) || begins(command, WORKER) && !command.contains(" --once ")
    }

    /// Runs a command to its end. Gives its exit code and what it printed.
    pub(crate) fn end_of(&mut self, command: &str) -> Result<(String, String), String> {
        self.eval(command, "&1")
    }

    /// Runs a command to its end. Gives its exit code, and what it printed on standard output and on standard error.
    pub(crate) fn end_apart(&mut self, command: &str) -> Result<(String, String, String), String> {
        let (code, printed) = self.eval(command, "'$PLACE/errors'")?;
        Ok((code, printed, text(&fs::read(self.directory.join("errors")).unwrap_or_default())))
    }

    fn eval(&mut self, command: &str, errors: &str) -> Result<(String, String), String> {
        fs::write(self.directory.join("command"), command).unwrap();
        let order = "eval \"$(<'$PLACE/command')\" >'$PLACE/printed' 2>ERRORS </dev/null; echo \"$?\" >&3";
        let ended = self.ask(&order.replace("ERRORS", errors));
        let printed = text(&fs::read(self.directory.join("printed")).unwrap_or_default());
        ended.map(|code| (code, printed.clone())).ok_or_else(|| format!("does not come to an end:\n{printed}"))
    }

    fn await_end(&mut self, command: &str, exit: i32) -> Result<String, String> {
        let (code, printed) = self.end_of(command)?;
        if code != exit.to_string() {
            return Err(format!("ends with exit code {code} instead of {exit}:\n{printed}"));
        }
        Ok(printed)
    }

    /// Starts a server in place of the one before, and waits until it listens.
    fn serve(&mut self, command: &str) -> Result<String, String> {
        if let Some(before) = self.server.take() {
            let ended = self.ask(&format!("kill {pid}; wait {pid}; echo \"$?\" >&3", pid = before.pid));
            ended.ok_or_else(|| format!("finds a server that does not end:\n{}", before.said()))?;
        }
        let server = self.begin(command, SERVER)?;
        let listens = |server: &Beside| server.said().contains("listening on ");
        eventually("the server listens", || listens(&server) || !lives(&server.pid));
        let said = server.said();
        if !listens(&server) {
            return Err(format!("does not listen:\n{said}"));
        }
        self.ask(&format!("SERVER={} LOG='{}'; echo >&3", server.pid, server.log.display()));
        self.server = Some(server);
        Ok(said)
    }

    /// Starts a worker, which goes on until the end.
    fn work(&mut self, command: &str) -> Result<String, String> {
        let worker = self.begin(command, WORKER)?;
        self.workers.push(worker);
        Ok(String::new())
    }

    /// Starts something beside the shell, which is that process itself and no shell around it.
    fn begin(&mut self, command: &str, program: &str) -> Result<Beside, String> {
        self.started += 1;
        let name = format!("beside-{}", self.started);
        // It is read by the process that it becomes, in its own time: the next one has another name.
        fs::write(self.directory.join(&name), command.replacen(program, &format!("exec {program}"), 1)).unwrap();
        let order = format!("eval \"$(<'$PLACE/{name}')\" >'$PLACE/{name}.log' 2>&1 </dev/null & echo $! >&3");
        let pid = self.ask(&order).ok_or("cannot be started")?;
        let log = self.directory.join(name + ".log");
        Ok(Beside { pid, log })
    }

    /// Has the shell do something and say one line about it.
    fn ask(&mut self, order: &str) -> Option<String> {
        let order = order.replace("$PLACE", self.directory.to_str().unwrap());
        writeln!(self.orders, "{order}").ok()?;
        self.answers.recv_timeout(PATIENCE).ok()
    }

    pub(crate) fn end_of_logs(&self) -> String {
        let mut said = String::new();
        for beside in self.server.iter().chain(&self.workers) {
            let log = beside.said();
            let lines: Vec<&str> = log.lines().collect();
            let end = &lines[lines.len().saturating_sub(LINES_OF_A_LOG)..];
            said += &format!("\n--- the end of what runs beside it says ---\n{}", end.join("\n"));
        }
        said
    }
}

impl Beside {
    fn said(&self) -> String {
        text(&fs::read(&self.log).unwrap_or_default())
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Everything that it started and that has not left its group; it may have ended already.
        let _ = Command::new("kill").args(["-s", "KILL", "--", &format!("-{}", self.bash.id())]).status();
        let _ = self.bash.wait();
    }
}

/// Whether this is the program with variables before it and arguments behind it, and nothing else.
fn begins(command: &str, program: &str) -> bool {
    let words = shlex::split(command).unwrap_or_default();
    let begin = words.iter().take_while(|word| word.contains('=')).count();
    words[begin..].join(" ").starts_with(program) && words.iter().all(|word| !["&", "|", ";"].contains(&word.as_str()))
}

fn lives(pid: &str) -> bool {
    Command::new("kill").args(["-s", "0", pid]).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
