//! SQLite's write lock in the hands of another process: a backup, a vacuum, a person with a shell.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

/// Holds the write lock of a SQLite file until its input ends.
const HOLD: &str = r#"import sqlite3, sys
file = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=10)
file.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
file.execute("COMMIT")
"#;

/// The write lock of a file, held by another process.
pub(crate) struct WriteLock(Child);

impl WriteLock {
    pub(crate) fn take(file: &Path) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", HOLD]).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 is there");
        let mut printed = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut printed).expect("it can be read");
        assert_eq!(printed, "held\n");
        Self(child)
    }

    pub(crate) fn release(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().is_ok_and(|status| status.success()), "the lock was held to the end");
    }
}

impl Drop for WriteLock {
    fn drop(&mut self) {
        // After a release it has ended already.
        let _ = self.0.kill();
    }
}
