//! A command on a terminal of its own, typed to and looked at as a person would.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

use crate::harness::PATIENCE;

pub(crate) struct Terminal {
    child: Child,
    keyboard: File,
    /// All that was ever written to it, control characters included.
    screen: Arc<Mutex<String>>,
    /// How much of it was looked at.
    seen: usize,
}

impl Terminal {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self::start_sized(command, 0, 0)
    }

    /// With so many lines and columns; no size is known where they are zero.
    pub(crate) fn start_sized(command: &mut Command, lines: u16, columns: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        let size = Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let open = || Stdio::from(OpenOptions::new().read(true).write(true).open(&name).unwrap());
        let child = command.stdin(open()).stdout(open()).stderr(open()).spawn().unwrap();
        // The command keeps its end open otherwise, and nobody would see the last of it.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let keyboard = File::from(master);
        let mut output = keyboard.try_clone().unwrap();
        let screen = Arc::new(Mutex::new(String::new()));
        let written = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let mut buffer = [0; 4096];
            // It ends with an error when nobody has the other end open any more.
            while let Ok(count) = output.read(&mut buffer) {
                if count == 0 {
                    return;
                }
                bytes.extend_from_slice(&buffer[..count]);
                *written.lock().unwrap() = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
            }
        });
        Self { child, keyboard, screen, seen: 0 }
    }

    pub(crate) fn types(&mut self, line: &str) {
        self.keyboard.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Ctrl-C.
    pub(crate) fn interrupt(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    }

    pub(crate) fn screen(&self) -> String {
        self.screen.lock().unwrap().clone()
    }

    /// Waits until this is there behind what was looked at; gives what came before it.
    #[track_caller]
    pub(crate) fn shows(&mut self, what: &str) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            let unseen = screen.get(self.seen..).unwrap_or_default();
            if let Some(at) = unseen.find(what) {
                let before = unseen[..at].to_owned();
                self.seen += at + what.len();
                return before;
            }
            assert!(begun.elapsed() < PATIENCE, "no {what:?} in {unseen:?} of {screen:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the end; gives the exit code and the whole screen.
    pub(crate) fn ends(&mut self) -> (Option<i32>, String) {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "it has not ended: {:?}", self.screen());
            std::thread::sleep(Duration::from_millis(10));
        };
        // What it wrote last may still be on its way.
        std::thread::sleep(Duration::from_millis(100));
        (status.code(), self.screen())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It has ended, unless the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
