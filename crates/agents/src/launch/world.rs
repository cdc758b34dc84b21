//! A world of its own for a program under strict isolation: its own processes, its own files, its own network or none.
//!
//! The keeper leaves the namespaces that it was born into ([`enter`]); the first process of the new ones builds a file
//! system of what a program may see ([`World::furnish`]). None of it takes root where the system lets users have namespaces.

use std::{
    ffi::CStr,
    fs, io,
    os::unix::fs::{DirBuilderExt, symlink},
    path::{Component, Path, PathBuf},
};

use rustix::{
    io::Errno,
    mount::{
        MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change, mount_remount,
        unmount,
    },
    process::{chdir, getgid, getuid, pivot_root},
    thread::{CapabilitySet, UnshareFlags, capabilities, configure_capability_in_ambient_set, set_capabilities},
};
use serde::{Deserialize, Serialize};

/// What a program sees of the machine under strict isolation, beside the system itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct World {
    /// What it may write to.
    pub home: PathBuf,
    /// What it may read.
    pub readable: Vec<PathBuf>,
    /// Where it begins.
    pub cwd: PathBuf,
    /// Whether it has the machine's network.
    pub network: bool,
}

type Failed = (String, io::Error);

/// The system, as far as it is the same for everybody.
const SYSTEM: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"];
/// What programs look up in `/etc`. The rest may be somebody's secret.
const ETC: [&str; 26] = [
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "fonts",
    "group",
    "host.conf",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "locale.conf",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "perl",
    "pki/ca-trust",
    "pki/tls/certs",
    "protocols",
    "resolv.conf",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
];
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];
/// Where `/etc/resolv.conf` often leads to.
const RESOLVER: &str = "/run/systemd/resolve";
/// Where the machine's files are while the new ones are put together.
const OLD: &str = "/.old";
const OWN: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// Leaves the namespaces that this process was born into; the next process that it starts is the first of the new ones.
pub(super) fn enter(world: &World) -> Result<(), Failed> {
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    let mut spaces = UnshareFlags::NEWUSER
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS;
    if !world.network {
        spaces |= UnshareFlags::NEWNET;
    }
    unshare(spaces).map_err(fail("make namespaces"))?;
    let write = |file: &str, text: String| {
        fs::write(format!("/proc/self/{file}"), text).map_err(|error| (format!("write {file}"), error))
    };
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("{user} {user} 1"))?;
    write("gid_map", format!("{group} {group} 1"))?;
    // What may be done in the namespaces would be lost with the next exec of anybody but root.
    let mut sets = capabilities(None).map_err(fail("read rights"))?;
    sets.inheritable = sets.permitted;
    set_capabilities(None, sets).map_err(fail("keep rights"))?;
    for capability in [CapabilitySet::SYS_ADMIN, CapabilitySet::SETPCAP, CapabilitySet::SYS_CHROOT] {
        configure_capability_in_ambient_set(capability, true).map_err(fail("keep rights"))?;
    }
    Ok(())
}

#[expect(deprecated, reason = "it is unsafe only for tables of files, which are not among what is left here")]
fn unshare(spaces: UnshareFlags) -> rustix::io::Result<()> {
    rustix::thread::unshare(spaces)
}

impl World {
    /// Puts the file system together, as the first process of the new namespaces, and goes to where the program begins.
    pub(super) fn furnish(&self) -> Result<(), Failed> {
        // Nothing that is mounted from here on is seen outside.
        let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
        mount_change("/", private).map_err(fail("part from the machine's mounts"))?;
        // On top of a directory that is there on every system; below it the machine's own comes to light again.
        mount("tmpfs", "/tmp", "tmpfs", OWN, c"mode=0755,size=1m").map_err(fail("mount a root"))?;
        make_directory(Path::new("/tmp/.old"))?;
        chdir("/tmp").map_err(fail("enter the root"))?;
        pivot_root(".", ".old").map_err(fail("change the root"))?;
        chdir("/").map_err(fail("enter the root"))?;

        for path in SYSTEM {
            show(Path::new(path))?;
        }
        for name in ETC {
            show(&Path::new("/etc").join(name))?;
        }
        if self.network {
            show(Path::new(RESOLVER))?;
        }
        // What is its own comes first: what it may read can lie below it.
        self.mount_own()?;
        for path in &self.readable {
            show(path)?;
        }
        let has_place = self.cwd.starts_with(&self.home) || self.cwd == Path::new("/");
        if !has_place {
            show(&self.cwd)?;
        }
        bind(&self.home)?;

        unmount(OLD, UnmountFlags::DETACH).map_err(fail("leave the machine's files"))?;
        fs::remove_dir(OLD).map_err(|error| ("leave the machine's files".to_owned(), error))?;
        mount_remount("/", OWN | MountFlags::BIND | MountFlags::RDONLY, c"").map_err(fail("close the root"))?;
        chdir(&self.cwd).map_err(fail("enter its directory"))
    }

    /// What is nobody else's: processes, devices, and places for what does not last.
    fn mount_own(&self) -> Result<(), Failed> {
        let place = |path: &str, kind: &str, flags, data: &CStr| {
            make_directory(Path::new(path))?;
            mount(kind, path, kind, flags, data).map_err(fail(&format!("mount {path}")))
        };
        // What can be set there is the whole machine's, and root's to set without any further right.
        place("/proc", "proc", OWN | MountFlags::NOEXEC | MountFlags::RDONLY, c"")?;
        make_directory(Path::new("/dev"))?;
        // Their modes and times are the machine's, and root's to change.
        for device in DEVICES {
            show(&Path::new("/dev").join(device))?;
        }
        place("/dev/shm", "tmpfs", OWN | MountFlags::NOEXEC, c"mode=1777,size=64m")?;
        for (name, to) in [
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
        ] {
            symlink(to, Path::new("/dev").join(name)).map_err(|error| ("make /dev".to_owned(), error))?;
        }
        place("/tmp", "tmpfs", OWN, c"mode=1777,size=256m")
    }
}

/// Shows something of the machine's at its own place, to be read. What is not there is left out.
fn show(path: &Path) -> Result<(), Failed> {
    let old = old(path);
    let Ok(found) = fs::symlink_metadata(&old) else { return Ok(()) };
    if found.is_symlink() {
        if let Some(parent) = path.parent() {
            make_directory(parent)?;
        }
        let to = fs::read_link(&old).map_err(|error| (format!("read {}", path.display()), error))?;
        return match symlink(to, path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err((format!("link {}", path.display()), error))
            }
            _ => Ok(()),
        };
    }
    bind(path)?;
    for (place, flags) in mounts_below(path)? {
        let flags = flags | MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID;
        mount_remount(&place, flags, c"").map_err(fail(&format!("close {}", place.display())))?;
    }
    Ok(())
}

/// Puts something of the machine's at its own place, with what is mounted below it.
fn bind(path: &Path) -> Result<(), Failed> {
    let old = old(path);
    let fail_here = |error| (format!("make {}", path.display()), error);
    let is_directory = fs::metadata(&old).map_err(fail_here)?.is_dir();
    if is_directory {
        make_directory(path)?;
    } else {
        if let Some(parent) = path.parent() {
            make_directory(parent)?;
        }
        fs::OpenOptions::new().append(true).create(true).open(path).map_err(fail_here)?;
    }
    mount_bind_recursive(&old, path).map_err(fail(&format!("show {}", path.display())))
}

/// Where something of the machine's is for now.
fn old(path: &Path) -> PathBuf {
    let below: PathBuf = path.components().filter(|part| !matches!(part, Component::RootDir)).collect();
    Path::new(OLD).join(below)
}

fn make_directory(path: &Path) -> Result<(), Failed> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(path);
    made.map_err(|error| (format!("make {}", path.display()), error))
}

/// The mounts at a place and below it, with the flags that a remount has to keep.
fn mounts_below(path: &Path) -> Result<Vec<(PathBuf, MountFlags)>, Failed> {
    // Before there is a `/proc` here, the machine's has the table of this process under the number that it has there.
    let table = fs::read_to_string("/.old/proc/thread-self/mountinfo")
        .or_else(|_| fs::read_to_string("/.old/proc/self/mountinfo"))
        .map_err(|error| ("read the mounts".to_owned(), error))?;
    let mut found = Vec::new();
    for line in table.lines() {
        let mut fields = line.split(' ');
        let (Some(place), Some(options)) = (fields.nth(4), fields.next()) else { continue };
        let place = PathBuf::from(unescaped(place));
        if place.starts_with(path) {
            found.push((place, options.split(',').fold(MountFlags::empty(), |flags, option| flags | flag(option))));
        }
    }
    Ok(found)
}

fn flag(option: &str) -> MountFlags {
    match option {
        "ro" => MountFlags::RDONLY,
        "nosuid" => MountFlags::NOSUID,
        "nodev" => MountFlags::NODEV,
        "noexec" => MountFlags::NOEXEC,
        "noatime" => MountFlags::NOATIME,
        "nodiratime" => MountFlags::NODIRATIME,
        "relatime" => MountFlags::RELATIME,
        _ => MountFlags::empty(),
    }
}

/// The table writes blanks and the like as three octal digits.
pub(super) fn unescaped(text: &str) -> String {
    let mut made = text.to_owned();
    for (written, meant) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        made = made.replace(written, meant);
    }
    made
}

fn fail(what: &str) -> impl FnOnce(Errno) -> Failed {
    let what = what.to_owned();
    move |error| (what, io::Error::from(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_below_the_old_root() {
        assert_eq!(old(Path::new("/usr/lib")), Path::new("/.old/usr/lib"));
        assert_eq!(unescaped("/a\\040b"), "/a b");
    }
}
