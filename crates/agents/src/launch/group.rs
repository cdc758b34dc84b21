//! A cgroup for the processes of one program, where root runs it: the system exempts root from `RLIMIT_NPROC`.
//!
//! The keeper makes the group below its own place in the hierarchy that counts processes, its child joins it before anything of the
//! program runs, and the keeper removes it when all of them have ended. From a world of its own it has no right to: the server removes it too.

use std::{
    fs,
    io::{self, Write},
    path::{Component, Path, PathBuf},
    thread,
    time::Duration,
};

use rustix::process::{getpid, getuid};

use super::world::unescaped;

/// What the name of a group begins with; the number of its keeper follows.
const NAME: &str = "sb-program-";
/// What systemd writes to the directory of a group that it leaves to a service.
const DELEGATED: &str = "trusted.delegate";
/// How often, and after what time, the removal of a group is tried again whose processes are about to go.
const TRIES: u32 = 100;
const MOMENT: Duration = Duration::from_millis(5);

/// A group that exists.
pub(super) struct Group(PathBuf);

/// Whether limits on processes do not hold for programs that this process starts as its own user.
pub fn is_exempt() -> bool {
    getuid().is_root()
}

/// Whether this process can make a group; where.
pub fn try_group() -> Option<PathBuf> {
    let group = Group::make(1)?;
    let place = group.0.parent().map(Path::to_owned);
    group.remove();
    place
}

/// Removes the group of a keeper that could not do so itself.
pub fn remove_group(keeper: i32) {
    for place in places() {
        Group(place.join(format!("{NAME}{keeper}"))).remove();
    }
}

/// Removes the groups whose keepers are gone.
pub fn remove_groups_left() {
    for entry in places().iter().filter_map(|place| fs::read_dir(place).ok()).flatten().flatten() {
        let name = entry.file_name();
        let keeper = name.to_str().and_then(|name| name.strip_prefix(NAME));
        if keeper.is_some_and(|keeper| !Path::new("/proc").join(keeper).exists()) {
            // One that has processes stays.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Moves this process into a group.
pub(super) fn join(group: &Path) -> io::Result<()> {
    write(&group.join("cgroup.procs"), "0")
}

impl Group {
    /// Makes a group of at most so many processes and threads for this keeper. `None` where no place for one can be written to.
    pub(super) fn make(processes: u64) -> Option<Self> {
        let name = format!("{NAME}{}", getpid().as_raw_nonzero());
        places().into_iter().find_map(|place| {
            let group = Self(place.join(&name));
            match fs::create_dir(&group.0) {
                Ok(()) => {}
                // One that had this number was killed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(_) => return None,
            }
            let limit = group.0.join("pids.max");
            if !limit.exists() {
                // Version 2 counts only where that was asked for.
                let _ = write(&place.join("cgroup.subtree_control"), "+pids");
            }
            let bounded = write(&limit, &processes.to_string());
            if bounded.is_err() {
                group.remove();
                return None;
            }
            Some(group)
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Removes it. Processes that were killed may take a moment to leave.
    pub(super) fn remove(&self) {
        for _ in 0..TRIES {
            match fs::remove_dir(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => thread::sleep(MOMENT),
                _ => return,
            }
        }
    }
}

/// The directories of groups below which this process may make others: its own, and one above that was delegated to its service.
fn places() -> Vec<PathBuf> {
    let (Ok(mounts), Ok(groups)) =
        (fs::read_to_string("/proc/self/mountinfo"), fs::read_to_string("/proc/self/cgroup"))
    else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for mount in mounts.lines() {
        let Some((own, first)) = place(mount, &groups) else { continue };
        if let Some(above) = own.parent().filter(|above| !first && is_delegated(above)) {
            found.push(above.to_owned());
        }
        found.push(own);
    }
    found
}

/// The group of this process below a mount, by a line of the table of mounts, where that counts processes. Says too whether it is of version 1.
fn place(mount: &str, groups: &str) -> Option<(PathBuf, bool)> {
    let (left, right) = mount.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let (root, at) = (unescaped(left.next()?), unescaped(left.next()?));
    let mut right = right.split(' ');
    let (kind, options) = (right.next()?, right.nth(1)?);
    let counts = |list: &str| list.split(',').any(|name| name == "pids");
    let first = match kind {
        "cgroup" if counts(options) => true,
        "cgroup2" => false,
        _ => return None,
    };
    let own = groups.lines().find_map(|line| {
        let (number, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let is_it = if first { counts(controllers) } else { number == "0" && controllers.is_empty() };
        is_it.then_some(path)
    })?;
    let below = Path::new(own).strip_prefix(root).ok()?;
    // What is outside of what this process sees is not its own.
    let is_below = below.components().all(|part| matches!(part, Component::Normal(_)));
    is_below.then(|| (Path::new(&at).join(below), first))
}

fn is_delegated(group: &Path) -> bool {
    let mut value = [0; 1];
    rustix::fs::getxattr(group, DELEGATED, &mut value[..]).is_ok_and(|length| length == 1 && value == *b"1")
}

/// Writes to a file of the system's, which is not made where it is missing.
fn write(path: &Path, text: &str) -> io::Result<()> {
    fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_in_both_versions() {
        const FIRST: &str = "36 32 0:31 / /sys/fs/cgroup/pids rw,relatime shared:9 - cgroup cgroup rw,pids";
        const OTHER: &str = "37 32 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory";
        const SECOND: &str = "30 24 0:26 /system.slice /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate";
        let both = "9:name=systemd:/x\n8:pids:/a b\n4:memory:/m\n0::/system.slice/sb.service/server\n";
        assert_eq!(place(FIRST, both), Some((PathBuf::from("/sys/fs/cgroup/pids/a b"), true)));
        assert_eq!(place(SECOND, both), Some((PathBuf::from("/sys/fs/cgroup/sb.service/server"), false)));
        for (mount, groups) in [
            (OTHER, both),
            (FIRST, "0::/"),
            (FIRST, "8:pids:/../other"),
            (SECOND, "0::/user.slice/x"),
            ("no mount", both),
            ("", ""),
        ] {
            assert_eq!(place(mount, groups), None, "{mount}");
        }
    }
}
