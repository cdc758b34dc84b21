//! Programs as agents: a program is handed one JSON object a turn, and what it prints is journaled.
//!
//! It is started for each turn ([`once`]), and then it never outlives it: when the turn's future ends or is dropped, the program is
//! killed with all that it started ([`crate::launch`]). Or it stays and takes one turn after the other, several at once
//! ([`serve`]), and then it never outlives its agent. Either way it runs in a cage ([`cage`]): with a cleared environment, a home of
//! its own, limits and capped output.

mod cage;
mod events;
mod input;
mod log_writer;
mod once;
mod process;
mod quarters;
mod serve;
mod text;

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use exchange::{Agent, Delivery, Profile};
use serde::Deserialize;
use store::AgentId;

pub use self::{
    cage::{Isolation, Limits, Stderr},
    quarters::{Quarters, Staff, log_before, log_of, record_of},
};
use self::{once::OnceAgent, serve::ServeAgent};
use crate::{
    environment,
    file::{Table, keys_of},
    kind::{Built, Context, Kind},
    units::{Size, Span},
};

/// Programs, described by the table `[command]`.
pub const KIND: Kind = Kind {
    name: "command",
    moved: &["timeout", "concurrency", "max_attempts", "on_crash"],
    keys: keys_of::<Program>,
    prepare,
    build,
};

/// How long a turn may take, unless the file says.
const TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// How long a program that stays has nothing to do before it is ended, unless the file says.
const IDLE: Duration = Duration::from_secs(5 * 60);

/// Interpreters, with options that take no argument and leave it to the next one to be the script.
const INTERPRETERS: [(&str, &[&str]); 8] = [
    ("python", &["-u", "-B", "-E", "-I", "-O", "-OO", "-q", "-s", "-S"]),
    ("node", &["--enable-source-maps", "--experimental-strip-types", "--no-warnings"]),
    ("sh", &["-e", "-eu", "-u", "-x"]),
    ("bash", &["-e", "-eu", "-u", "-x"]),
    ("dash", &["-e", "-eu", "-u", "-x"]),
    ("perl", &["-w"]),
    ("ruby", &["-w"]),
    ("php", &[]),
];

/// What to run and how: the table `[command]` of a file, or one that was made without a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// The program, which is always there, and its arguments.
    pub argv: Vec<String>,
    /// Where it runs; an absolute path once the file's directory is known.
    #[serde(default)]
    pub cwd: PathBuf,
    /// Whether it is started for each turn.
    #[serde(default)]
    pub mode: Mode,
    /// How many of it there are at most, where it stays.
    #[serde(default)]
    pub processes: Option<NonZeroUsize>,
    /// How long it has nothing to do before it is ended, where it stays.
    #[serde(default)]
    pub idle: Option<Span>,
    /// Whether its processes are replaced when the program changes, where it stays.
    #[serde(default)]
    pub watch: Option<bool>,
    /// What it reads on standard input.
    #[serde(default)]
    pub input: InputMode,
    /// What its output means; what stays says events.
    #[serde(default)]
    pub output: Option<OutputMode>,
    /// How long it has between being asked to end and being made to.
    #[serde(default = "default_grace")]
    pub grace: Span,
    /// How many bytes it may print in one turn.
    #[serde(default = "default_max_output")]
    pub max_output: Size,
    /// Variables it gets.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Names of this process's variables that it gets.
    #[serde(default)]
    pub pass_env: Vec<String>,
    /// How it is kept from the rest of the machine.
    #[serde(default)]
    pub isolation: Isolation,
    /// Whether it has the machine's network, under strict isolation.
    #[serde(default)]
    pub network: Option<bool>,
    /// What it may read beside the system and its own, under strict isolation.
    #[serde(default)]
    pub readable: Vec<PathBuf>,
    /// The user that runs it, where the server is root.
    #[serde(default)]
    pub uid: Option<u32>,
    /// The group of that user, if it has not the same number.
    #[serde(default)]
    pub gid: Option<u32>,
    /// What it may use up.
    #[serde(default)]
    pub limits: Limits,
    /// Who gets what it complains.
    #[serde(default)]
    pub stderr: Stderr,
}

/// Whether a program is started for each turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It is, and exits when it has done it.
    #[default]
    Turn,
    /// It is started once and takes one turn after the other, several at once.
    Serve,
}

/// What a program reads on standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InputMode {
    /// The turn as a JSON object.
    #[default]
    Json,
    /// The text of the message.
    Text,
}

/// What a program's output means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputMode {
    /// All of it is the text of one artifact.
    #[default]
    Text,
    /// Each line is an event.
    Events,
}

fn default_grace() -> Span {
    Span(Duration::from_secs(2))
}

fn default_max_output() -> Size {
    Size(64 << 20)
}

fn prepare(profile: &mut Profile) {
    profile.timeout = Some(TIMEOUT);
}

fn build(table: Table<'_>, context: &Context) -> Result<Built, String> {
    let mut program: Program = table.read()?;
    let own_world = program.isolation == Isolation::Strict && program.cwd.as_os_str().is_empty();
    // The file's directory has the files of other agents.
    program.cwd = match context.quarters.home_of(&context.id).filter(|_| own_world) {
        Some(home) => home,
        None => context.resolve(&program.cwd),
    };
    if program.watch == Some(true) {
        context.watched.borrow_mut().extend(program.executable().into_iter().chain(program.script()));
    }
    program.into_agent(context.id.clone(), context.quarters.clone())
}

impl Program {
    /// A program in a directory, with the defaults of the table `[command]`.
    pub fn new(argv: Vec<String>, cwd: PathBuf) -> Self {
        Self {
            argv,
            cwd,
            mode: Mode::default(),
            processes: None,
            idle: None,
            watch: None,
            input: InputMode::default(),
            output: None,
            grace: default_grace(),
            max_output: default_max_output(),
            env: BTreeMap::new(),
            pass_env: Vec::new(),
            isolation: Isolation::default(),
            network: None,
            readable: Vec::new(),
            uid: None,
            gid: None,
            limits: Limits::default(),
            stderr: Stderr::default(),
        }
    }

    /// Makes an agent of it, which lives there.
    pub fn into_agent(self, id: AgentId, quarters: Quarters) -> Result<Built, String> {
        self.check()?;
        let mut warnings = self.check_mode()?;
        warnings.extend(self.check_cage(&id, &quarters)?);
        warnings.extend(self.problems(quarters.home_of(&id).as_deref()));
        let agent: Arc<dyn Agent> = match self.mode {
            Mode::Turn => Arc::new(OnceAgent { id, program: self, quarters }),
            Mode::Serve => Arc::new(ServeAgent::new(id, self, quarters)),
        };
        Ok(Built { agent, delivery: Delivery::Run, described: None, warnings })
    }

    fn check(&self) -> Result<(), String> {
        if self.argv.first().is_none_or(String::is_empty) {
            return Err("`command.argv` needs a program".to_owned());
        }
        if self.argv.iter().any(|argument| argument.contains('\0')) {
            return Err("`command.argv` holds a NUL character".to_owned());
        }
        let is_name = |name: &&String| !name.is_empty() && !name.contains(['=', '\0']);
        if let Some(name) = self.env.keys().chain(&self.pass_env).find(|name| !is_name(name)) {
            return Err(format!("`{}` is not a name of an environment variable", name.escape_default()));
        }
        if let Some((name, _)) = self.env.iter().find(|(_, value)| value.contains('\0')) {
            return Err(format!("`command.env.{name}` holds a NUL character"));
        }
        if self.max_output.0 == 0 {
            return Err("`command.max_output`: must be more than zero".to_owned());
        }
        Ok(())
    }

    /// Whether what the file says fits whether the program stays.
    fn check_mode(&self) -> Result<Vec<String>, String> {
        if self.mode == Mode::Turn {
            let unused = [
                ("processes", self.processes.is_some()),
                ("idle", self.idle.is_some()),
                ("watch", self.watch.is_some()),
            ];
            let unused = unused.into_iter().filter(|(_, given)| *given);
            return Ok(unused
                .map(|(key, _)| format!("`command.{key}` does nothing without `mode = \"serve\"`"))
                .collect());
        }
        if self.input == InputMode::Text {
            return Err(
                "`command.input`: with `mode = \"serve\"` each line is a turn: write \"json\", or leave it out"
                    .to_owned(),
            );
        }
        if self.output == Some(OutputMode::Text) {
            return Err(
                "`command.output`: with `mode = \"serve\"` each line is an event: write \"events\", or leave it out"
                    .to_owned(),
            );
        }
        if self.stderr == Stderr::Caller {
            // What it complains about one caller's turn is not for another's.
            return Err("`command.stderr`: with `mode = \"serve\"` nobody knows for whom a complaint is: write \"log\", or leave it out".to_owned());
        }
        Ok(Vec::new())
    }

    /// What will go wrong when it is run: a program, a directory or a variable that is not there.
    fn problems(&self, home: Option<&Path>) -> Vec<String> {
        let mut problems = Vec::new();
        // Its home is there when it is needed.
        if !self.cwd.is_dir() && home != Some(&self.cwd) {
            problems.push(format!("tasks will fail: `{}` is not a directory", self.cwd.display()));
        }
        let found = self.found();
        if !found.iter().any(|file| is_executable(file)) {
            let what = match (found.is_empty(), self.path().is_absolute()) {
                (false, _) => "executable: `chmod +x` makes it so",
                (true, true) => "there",
                (true, false) => "in PATH",
            };
            problems.push(format!("tasks will fail: the program `{}` is not {what}", self.argv[0]));
        }
        if let Some(script) = self.script().filter(|script| self.cwd.is_dir() && !script.exists()) {
            problems.push(format!("tasks will fail: the script `{}` is not there", script.display()));
        }
        for name in &self.pass_env {
            if environment::variable_os(name).is_none() && !self.env.contains_key(name) {
                problems.push(format!("`command.pass_env`: `{name}` is not set here, so the program does not get it"));
            }
        }
        problems
    }

    /// The file that is started, where it is there.
    fn executable(&self) -> Option<PathBuf> {
        let found = self.found();
        found.iter().find(|file| is_executable(file)).or(found.first()).cloned()
    }

    /// The files that may be started, in the order in which they are tried.
    fn found(&self) -> Vec<PathBuf> {
        let program = self.path();
        let mut files = if program.is_absolute() {
            vec![program]
        } else {
            let path =
                self.env.get("PATH").map(Into::into).or_else(|| environment::variable_os("PATH")).unwrap_or_default();
            std::env::split_paths(&path).map(|directory| directory.join(&program)).collect()
        };
        files.retain(|file| file.is_file());
        files
    }

    /// The script that a well-known interpreter is given, be it there or not. `None` where it is given something else, or options that
    /// are not known here.
    fn script(&self) -> Option<PathBuf> {
        let (program, arguments) = self.argv.split_first()?;
        let name = Path::new(program).file_name()?.to_str()?;
        let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        let (_, flags) = INTERPRETERS.iter().find(|(known, _)| *known == name)?;
        let argument = arguments.iter().find(|argument| !flags.contains(&argument.as_str()))?;
        (!argument.starts_with('-')).then(|| self.cwd.join(argument))
    }

    /// The program's own: as it stands when PATH is to be searched, and otherwise seen from `cwd`.
    fn path(&self) -> PathBuf {
        let program = Path::new(&self.argv[0]);
        if program.components().count() > 1 { self.cwd.join(program) } else { program.to_owned() }
    }
}

/// Whether anybody may execute it.
fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_table_gets_the_defaults() {
        let spec: Program = toml::from_str("argv = [\"cat\"]").unwrap();
        assert_eq!((spec.argv, spec.cwd, spec.output), (vec!["cat".to_owned()], PathBuf::new(), None));
        assert_eq!((spec.grace, spec.max_output), (Span(Duration::from_secs(2)), Size(64 << 20)));
        assert!(spec.env.is_empty() && spec.pass_env.is_empty());
    }

    #[test]
    fn the_script_of_an_interpreter_is_known() {
        for (argv, script) in [
            (&["python3", "main.py", "x"][..], Some("/a/main.py")),
            (&["/usr/bin/python3.12", "-u", "-B", "main.py"], Some("/a/main.py")),
            (&["node", "--no-warnings", "/b/x.js"], Some("/b/x.js")),
            (&["python3", "-m", "http.server"], None),
            (&["python3", "-c", "pass"], None),
            (&["python3", "-X", "dev", "main.py"], None),
            (&["sh", "-c", "cat"], None),
            (&["cat", "main.py"], None),
            (&["python3"], None),
        ] {
            let argv: Vec<String> = argv.iter().map(|argument| (*argument).to_owned()).collect();
            let found = Program::new(argv.clone(), PathBuf::from("/a")).script();
            assert_eq!(found, script.map(PathBuf::from), "{argv:?}");
        }
    }
}
