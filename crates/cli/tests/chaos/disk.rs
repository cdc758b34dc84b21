//! A small disk: a file system in memory, mounted for one process and gone with it.

use std::{io::Write, path::PathBuf};

/// A file on a small disk, which takes all the room there is.
pub(crate) struct Disk(PathBuf);

impl Disk {
    /// The disk that the process `pid` sees at `directory`.
    pub(crate) fn of(pid: u32, directory: &str) -> Self {
        Self(PathBuf::from(format!("/proc/{pid}/root{directory}/filler")))
    }

    pub(crate) fn fill(&self) {
        let mut file = std::fs::File::create(&self.0).expect("a file can be made");
        for size in [1 << 20, 1 << 12] {
            let bytes = vec![0; size];
            while file.write_all(&bytes).is_ok() {}
        }
    }

    pub(crate) fn make_room(&self) {
        std::fs::remove_file(&self.0).expect("it is there");
    }
}

/// The command that runs a program in a mount namespace of its own with a file system of so many MiB at `at`, and `then`
/// done there.
pub(crate) fn with_small_disk(at: &str, mebibytes: usize, then: &str) -> Vec<String> {
    let script = format!(
        "mkdir -p {at} && mount -t tmpfs -o size={mebibytes}m,mode=0777 tmpfs {at} && cd / && {{ {then}; }} && exec \"$@\""
    );
    // Without root a user namespace allows mounts that only its processes see.
    let unshare: &[&str] = if rustix::process::geteuid().is_root() {
        &["unshare", "--mount"]
    } else {
        &["unshare", "--user", "--map-current-user", "--keep-caps", "--mount"]
    };
    let shell = ["sh", "-c", &script, "sh"];
    unshare.iter().chain(&shell).map(|&argument| argument.to_owned()).collect()
}
