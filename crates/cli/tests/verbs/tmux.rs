//! A terminal as people have one: a shell in tmux, typed to key by key and looked at as a screen.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant},
};

use super::rig::Home;
use crate::harness::{PATIENCE, text};

/// A shell of its own tmux, which ends with this.
pub(crate) struct Shell {
    directory: PathBuf,
}

/// What the shell asks with.
const PROMPT: &str = "$";

impl Shell {
    /// A shell in this home, in which `sb` is the built binary.
    pub(crate) fn start(home: &Home) -> Self {
        let shell = Self { directory: home.path("") };
        let binaries = Path::new(env!("CARGO_BIN_EXE_sb")).parent().unwrap().display().to_string();
        let path = format!("PATH={binaries}:{}", std::env::var("PATH").unwrap());
        let mut words = vec!["env".to_owned(), "-i".to_owned()];
        let command = home.command(&[]);
        for (name, value) in command.get_envs().filter(|(name, _)| *name != "PATH") {
            words.push(format!("{}={}", name.to_str().unwrap(), value.unwrap().to_str().unwrap()));
        }
        words.extend([path, format!("PS1={PROMPT} "), "TERM=tmux-256color".to_owned(), "LANG=C.UTF-8".to_owned()]);
        words.extend(["bash", "--norc", "--noprofile", "-i"].map(str::to_owned));
        let line = shlex::try_join(words.iter().map(String::as_str)).unwrap();
        let directory = shell.directory.to_str().unwrap();
        shell.tmux(&["new-session", "-d", "-x", "180", "-y", "60", "-c", directory, &line]);
        shell.prompts(PROMPT);
        shell
    }

    /// Keys by their names: `Enter`, `C-c`, `M-Enter`.
    pub(crate) fn presses(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys", "-t", "0"], keys].concat());
    }

    /// Text, without Enter.
    pub(crate) fn types(&self, text: &str) {
        self.tmux(&["send-keys", "-t", "0", "-l", "--", text]);
    }

    /// A line, with Enter.
    pub(crate) fn enters(&self, line: &str) {
        self.types(line);
        self.presses(&["Enter"]);
    }

    /// Text from a clipboard, as a terminal hands it on.
    pub(crate) fn pastes(&self, text: &str) {
        self.tmux(&["set-buffer", "--", text]);
        self.tmux(&["paste-buffer", "-p", "-t", "0"]);
    }

    /// All that can be seen, scrolled back.
    pub(crate) fn screen(&self) -> String {
        text(&self.tmux(&["capture-pane", "-p", "-J", "-S", "-", "-t", "0"]).stdout)
    }

    /// The last line with something in it.
    pub(crate) fn last_line(&self) -> String {
        let screen = self.screen();
        screen.lines().rev().map(str::trim_end).find(|line| !line.is_empty()).unwrap_or_default().to_owned()
    }

    /// The process of the shell.
    pub(crate) fn pid(&self) -> String {
        text(&self.tmux(&["display-message", "-p", "-t", "0", "#{pane_pid}"]).stdout).trim().to_owned()
    }

    #[track_caller]
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if holds(&screen) {
                return screen;
            }
            assert!(begun.elapsed() < PATIENCE, "in vain: {what}, on a screen with\n{}", screen.trim_end());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[track_caller]
    pub(crate) fn shows(&self, what: &str) -> String {
        self.until(&format!("{what:?}"), |screen| screen.contains(what))
    }

    /// Waits until somebody is asked like that, and nothing was typed yet.
    #[track_caller]
    pub(crate) fn prompts(&self, prompt: &str) {
        self.last_line_is(prompt);
    }

    #[track_caller]
    pub(crate) fn last_line_is(&self, line: &str) {
        self.until(&format!("{line:?} in the last line"), |_| self.last_line() == line);
    }

    /// Runs a command of the shell to its end; gives what it printed.
    #[track_caller]
    pub(crate) fn runs(&self, command: &str) -> String {
        let begin = format!("{PROMPT} {command}\n");
        let before = self.screen().matches(&begin).count();
        self.enters(command);
        let output = |screen: &str| {
            let (_, after) = screen.rsplit_once(&begin).filter(|_| screen.matches(&begin).count() > before)?;
            let output = after.trim_end().strip_suffix(PROMPT)?;
            (output.is_empty() || output.ends_with('\n')).then(|| output.to_owned())
        };
        let screen = self.until(command, |screen| output(screen).is_some());
        output(&screen).unwrap_or_default()
    }

    fn tmux(&self, args: &[&str]) -> Output {
        // Its socket is in a directory of its own, so that no test finds another's.
        let output = Command::new("tmux")
            .args(["-L", "sb", "-f", "/dev/null"])
            .args(args)
            .env("TMUX_TMPDIR", &self.directory)
            .env_remove("TMUX")
            .output()
            .expect("tmux is installed, by scripts/install-servers");
        assert!(output.status.success(), "tmux {args:?}: {}", text(&output.stderr));
        output
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Whatever still runs in it goes with it.
        let mut command = Command::new("tmux");
        let _ = command.args(["-L", "sb", "kill-server"]).env("TMUX_TMPDIR", &self.directory).output();
    }
}
