//! Programs that mean no good: what they try against the server, its secrets, other programs and the machine.
//!
//! Each attempt is an agent whose program tries something and prints what came of it. All of them run twice where the tests are run by
//! root: once under a server of root's, and once under one of an ordinary user's.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown, lchown},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::harness::{
    Home, PATIENCE, Server,
    http::{Api, artifact_text, is_terminal, state, text, to, to_at_once},
};

/// What the server is given and nobody else may see.
const SECRETS: [(&str, &str); 4] = [
    ("SB_ADMIN_TOKEN", "sba_secret-of-the-administrator-00000"),
    ("SB_BOOTSTRAP_TOKEN", "sb_secret-of-the-first-tenant-0000000"),
    ("OPENAI_API_KEY", "sk-secret-of-a-model"),
    ("SOMEBODYS_PASSWORD", "hunter2-secret-of-somebody"),
];
/// An ordinary user, who is nobody on this machine.
const ORDINARY: u32 = 61_234;

/// Whose server it has to be for an attempt to make sense.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Under {
    Anybody,
    /// The system lets root look at some of it, or exempts root, or root's own processes would be in danger should the wall not hold.
    Ordinary,
}

/// One attempt.
struct Attempt {
    name: &'static str,
    under: Under,
    /// Further lines of the table `[command]`.
    cage: &'static str,
    /// What the program does, in shell. `$SERVER` is the server's process, `$PORT` its port, `$DATA` its data directory.
    tries: &'static str,
    holds: Holds,
}

/// What must hold of what the program prints, or of what becomes of it.
enum Holds {
    /// It prints exactly this.
    Prints(&'static str),
    /// It prints nothing of what is secret.
    NoSecret,
    /// It prints a number that is not more than this.
    AtMost(u64),
    /// What it prints ends so.
    Ends(&'static str),
    /// Its task fails, and says this.
    Fails(&'static str),
    /// Whoever runs with these arguments is gone when its turn is over.
    Leaves(&'static str),
}

use Holds::{AtMost, Fails, Leaves, NoSecret, Prints};
use Under::{Anybody, Ordinary};

const STRICT: &str = "isolation = \"strict\"";

const BASIC: &[Attempt] = &[
    Attempt { name: "own-environment", under: Anybody, cage: "", tries: "env", holds: NoSecret },
    Attempt {
        name: "keeper-environment",
        under: Anybody,
        cage: "",
        tries: "cat /proc/$PPID/environ 2>/dev/null || echo denied",
        holds: NoSecret,
    },
    Attempt { name: "keeper-arguments", under: Anybody, cage: "", tries: "cat /proc/$PPID/cmdline", holds: NoSecret },
    Attempt {
        name: "all-environments",
        under: Anybody,
        cage: "",
        tries: "cat /proc/[0-9]*/environ 2>/dev/null; true",
        holds: NoSecret,
    },
    Attempt {
        name: "all-arguments",
        under: Anybody,
        cage: "",
        tries: "cat /proc/[0-9]*/cmdline 2>/dev/null; true",
        holds: NoSecret,
    },
    Attempt {
        name: "server-environment",
        under: Ordinary,
        cage: "",
        tries: "cat /proc/$SERVER/environ 2>/dev/null || echo denied",
        holds: Prints("denied\n"),
    },
    Attempt {
        name: "server-memory",
        under: Anybody,
        cage: "",
        tries: "(exec 3</proc/$SERVER/mem) 2>/dev/null && echo open || echo denied",
        holds: Prints("denied\n"),
    },
    Attempt {
        name: "server-maps",
        under: Ordinary,
        cage: "",
        tries: "head -c 1 /proc/$SERVER/maps >/dev/null 2>&1 && echo open || echo denied",
        holds: Prints("denied\n"),
    },
    Attempt {
        name: "server-files",
        under: Ordinary,
        cage: "",
        tries: "ls /proc/$SERVER/fd/ >/dev/null 2>&1 && echo open || echo denied",
        holds: Prints("denied\n"),
    },
    Attempt {
        name: "server-root",
        under: Anybody,
        cage: "",
        tries: "ls /proc/$SERVER/root/ >/dev/null 2>&1 && echo open || echo denied",
        holds: Prints("denied\n"),
    },
    Attempt {
        name: "keeper-memory",
        under: Anybody,
        cage: "",
        tries: "(exec 3<>/proc/$PPID/mem) 2>/dev/null && echo open || echo denied",
        holds: Prints("denied\n"),
    },
    Attempt {
        name: "signal-server",
        under: Anybody,
        cage: "",
        tries: "kill -0 $SERVER 2>/dev/null && echo sent || echo denied",
        holds: Prints("denied\n"),
    },
    Attempt {
        name: "kill-server",
        under: Ordinary,
        cage: "",
        tries: "kill -9 $SERVER 2>/dev/null && echo sent || echo denied",
        holds: Prints("denied\n"),
    },
    Attempt {
        name: "stop-keeper",
        under: Anybody,
        cage: "",
        tries: "kill -STOP $PPID 2>/dev/null && echo sent || echo denied",
        holds: Prints("denied\n"),
    },
    Attempt {
        name: "kill-keeper",
        under: Anybody,
        cage: "",
        tries: "kill -9 $PPID 2>/dev/null && echo sent || echo denied",
        holds: Prints("denied\n"),
    },
    Attempt {
        name: "kill-everybody",
        under: Ordinary,
        cage: "",
        tries: "kill -9 -1 2>/dev/null; echo still here",
        holds: Prints("still here\n"),
    },
    Attempt {
        name: "new-rights",
        under: Anybody,
        cage: "",
        tries: "grep NoNewPrivs /proc/self/status",
        holds: Prints("NoNewPrivs:\t1\n"),
    },
    Attempt {
        name: "descriptors",
        under: Anybody,
        cage: "",
        tries: "cd /proc/self/fd && for f in *; do [ $f -gt 2 ] && [ -e $f ] && readlink $f; done; true",
        holds: Prints(""),
    },
    Attempt {
        name: "memory",
        under: Anybody,
        cage: "limits = { memory = \"64MiB\" }",
        tries: "head -c 400000000 /dev/zero | tail -c 300000000 2>/dev/null | wc -c",
        holds: AtMost(64 << 20),
    },
    Attempt {
        name: "file-size",
        under: Anybody,
        cage: "limits = { file_size = \"1MiB\" }",
        tries: "(head -c 9000000 /dev/zero > $HOME/big) 2>/dev/null; stat -c %s $HOME/big; rm $HOME/big",
        holds: AtMost(1 << 20),
    },
    Attempt {
        name: "endless-computing",
        under: Anybody,
        cage: "limits = { cpu_time = \"1s\" }",
        tries: "while :; do :; done",
        holds: Fails("signal"),
    },
    Attempt {
        name: "open-files",
        under: Anybody,
        cage: "limits = { files = 32 }",
        tries: "ulimit -n",
        holds: AtMost(32),
    },
    Attempt {
        name: "higher-limits",
        under: Ordinary,
        cage: "limits = { files = 32 }",
        tries: "ulimit -n 4096 2>/dev/null; ulimit -n",
        holds: AtMost(32),
    },
    Attempt { name: "processes", under: Ordinary, cage: "limits = { processes = 20 }", tries: BOMB, holds: AtMost(25) },
    Attempt { name: "images-of-memory", under: Anybody, cage: "", tries: "ulimit -c", holds: AtMost(0) },
    Attempt {
        name: "leave-session",
        under: Anybody,
        cage: "",
        tries: "setsid -f sleep 71001; echo off",
        holds: Leaves("sleep\u{0}71001"),
    },
    Attempt {
        name: "leave-without-mark",
        under: Anybody,
        cage: "",
        tries: "env -i setsid -f sleep 71002; env -i setsid -f sh -c 'setsid -f sleep 71003; sleep 71002'",
        holds: Leaves("sleep\u{0}71002"),
    },
    Attempt {
        name: "leave-twice",
        under: Anybody,
        cage: "",
        tries: "(env -i setsid sh -c '(setsid sleep 71004 &) &' &) & sleep 0.2",
        holds: Leaves("sleep\u{0}71004"),
    },
    Attempt {
        name: "ignore-signals",
        under: Anybody,
        cage: "",
        tries: "trap '' TERM HUP INT; (trap '' TERM HUP INT; sleep 71005) & echo off",
        holds: Leaves("sleep\u{0}71005"),
    },
    Attempt {
        name: "home-is-its-own",
        under: Anybody,
        cage: "",
        tries: "[ $HOME = $DATA/programs/home-is-its-own ] && [ $TMPDIR = $HOME/tmp ] && stat -c %a $HOME",
        holds: Prints("700\n"),
    },
    Attempt {
        name: "complaints-stay",
        under: Anybody,
        cage: "",
        tries: "echo a-secret-on-stderr >&2; exit 3",
        holds: Fails("exit code 3; its operator finds what it said in the log"),
    },
    Attempt {
        name: "complaints-steer-nothing",
        under: Anybody,
        cage: "",
        tries: "printf 'x\\033[2Jforged\\rline\\n' >&2; echo said",
        holds: Prints("said\n"),
    },
];

const STRICTLY: &[Attempt] = &[
    Attempt {
        name: "strict-environment",
        under: Anybody,
        cage: STRICT,
        tries: "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; true",
        holds: NoSecret,
    },
    Attempt {
        name: "strict-processes",
        under: Anybody,
        cage: STRICT,
        tries: "ls -d /proc/[0-9]* | wc -l",
        holds: AtMost(6),
    },
    Attempt {
        name: "strict-server",
        under: Anybody,
        cage: STRICT,
        tries: "grep -l switchboard /proc/[0-9]*/comm; [ -e /proc/$SERVER/exe ] && readlink /proc/$SERVER/exe; true",
        holds: Prints(""),
    },
    Attempt {
        name: "strict-limits-of-the-server",
        under: Anybody,
        cage: STRICT,
        tries: "prlimit --pid $SERVER --nofile=64:64 2>/dev/null && echo set; renice -n 19 -p $SERVER >/dev/null 2>&1 && echo slowed; echo done",
        holds: Prints("done\n"),
    },
    Attempt {
        name: "strict-data",
        under: Anybody,
        cage: STRICT,
        tries: "ls -A $DATA; ls -A $DATA/programs",
        holds: Prints("programs\nstrict-data\n"),
    },
    Attempt {
        name: "strict-configuration",
        under: Anybody,
        cage: STRICT,
        tries: "ls -A $DATA/../.config 2>/dev/null && echo there || echo gone",
        holds: Prints("gone\n"),
    },
    Attempt {
        name: "strict-device-times",
        under: Anybody,
        cage: STRICT,
        tries: "touch -d @1000000000 /dev/full 2>/dev/null && echo changed || echo kept; echo x > /dev/null && echo writes",
        holds: Prints("kept\nwrites\n"),
    },
    Attempt {
        // What it leaves in its home is no hindrance for the next.
        name: "strict-hindrance",
        under: Anybody,
        cage: STRICT,
        tries: "rm -rf ~/tmp; ln -s /nowhere ~/tmp; echo done",
        holds: Prints("done\n"),
    },
    Attempt {
        name: "strict-shadow",
        under: Anybody,
        cage: STRICT,
        tries: "[ -e /etc/shadow ] && echo there || echo gone",
        holds: Prints("gone\n"),
    },
    Attempt {
        name: "strict-root-home",
        under: Anybody,
        cage: STRICT,
        tries: "ls /root /home 2>/dev/null && echo there || echo gone",
        holds: Prints("gone\n"),
    },
    Attempt {
        name: "strict-writes",
        under: Anybody,
        cage: STRICT,
        tries: "for d in / /usr /usr/bin /etc /dev /proc/sys/kernel; do (: > $d/planted) 2>/dev/null && echo $d; done; (: > $DATA/planted; : > $DATA/../planted) 2>/dev/null; true",
        holds: Prints(""),
    },
    Attempt {
        name: "strict-remount",
        under: Anybody,
        cage: STRICT,
        tries: "mount -o remount,rw /usr >/dev/null 2>&1 && echo done; umount /tmp >/dev/null 2>&1 && echo done; true",
        holds: Prints(""),
    },
    Attempt {
        name: "strict-rights",
        under: Anybody,
        cage: STRICT,
        tries: "grep -h -E 'Cap(Eff|Prm|Bnd|Amb)' /proc/self/status | grep -v 0000000000000000; true",
        holds: Prints(""),
    },
    Attempt {
        name: "strict-own-places",
        under: Anybody,
        cage: STRICT,
        tries: "echo a > $HOME/kept && echo b > /tmp/passing && pwd && cat $HOME/kept /tmp/passing | tr -d '\\n'",
        holds: Holds::Ends("ab"),
    },
    Attempt {
        name: "strict-passing-places",
        under: Anybody,
        cage: STRICT,
        tries: "ls -A /tmp /dev/shm | grep -v -e : -e ^.tmp; true",
        holds: Prints("\n"),
    },
    Attempt {
        name: "strict-loopback",
        under: Anybody,
        cage: STRICT,
        tries: "bash -c 'exec 3<>/dev/tcp/127.0.0.1/'$PORT 2>/dev/null && echo open || echo closed",
        holds: Prints("closed\n"),
    },
    Attempt {
        name: "strict-interfaces",
        under: Anybody,
        cage: STRICT,
        tries: "grep -c : /proc/net/dev",
        holds: AtMost(1),
    },
    Attempt {
        name: "strict-network-wanted",
        under: Anybody,
        cage: "isolation = \"strict\"\nnetwork = true",
        tries: "bash -c 'exec 3<>/dev/tcp/127.0.0.1/'$PORT 2>/dev/null && echo open || echo closed",
        holds: Prints("open\n"),
    },
    Attempt {
        name: "strict-first-process",
        under: Anybody,
        cage: STRICT,
        tries: "kill -9 1 2>/dev/null; cat /proc/1/comm",
        holds: Prints("sb-keeper\n"),
    },
    Attempt {
        name: "strict-kill-everybody",
        under: Anybody,
        cage: STRICT,
        tries: "[ $(cat /proc/1/comm) = sb-keeper ] && kill -9 -1 2>/dev/null; echo still here",
        holds: Prints("still here\n"),
    },
    Attempt {
        name: "strict-devices",
        under: Anybody,
        cage: STRICT,
        tries: "ls /dev | tr '\\n' ' '",
        holds: Prints("fd full null random shm stderr stdin stdout urandom zero "),
    },
    Attempt {
        name: "strict-system",
        under: Anybody,
        cage: STRICT,
        tries: "ls -A /sys /run /var 2>/dev/null; true",
        holds: Prints(""),
    },
    Attempt {
        name: "strict-leave",
        under: Anybody,
        cage: STRICT,
        tries: "env -i setsid -f sleep 72001; (env -i setsid sleep 72001 &) & echo off",
        holds: Leaves("sleep\u{0}72001"),
    },
    Attempt {
        name: "strict-memory-files",
        under: Anybody,
        cage: STRICT,
        tries: "(head -c 900000000 /dev/zero > /tmp/big) 2>/dev/null; stat -c %s /tmp/big",
        holds: AtMost(256 << 20),
    },
    Attempt {
        name: "strict-bomb",
        under: Ordinary,
        cage: "isolation = \"strict\"\nlimits = { processes = 20 }",
        tries: BOMB,
        holds: AtMost(25),
    },
];

/// A server that holds secrets, run by whom it is about.
struct Rig {
    server: Server,
    home: Home,
    api: Api,
}

impl Rig {
    async fn start(ordinary: bool, attempts: &[Attempt]) -> Self {
        let home = Home::on_sqlite();
        for attempt in attempts {
            let file = format!(
                "kind = \"command\"\n[command]\nargv = [\"sh\", \"-c\", {}]\n{}\n",
                Value::from(tries(attempt, &home)),
                attempt.cage
            );
            home.add_agent(&format!("{}.toml", attempt.name), &file);
        }
        let mut command = home.serving(&[], &[]);
        if ordinary && rustix::process::geteuid().is_root() {
            give(&home.path(""), ORDINARY);
            let binary = reachable(&home);
            let mut under = Command::new("setpriv");
            let user = ORDINARY.to_string();
            under.args(["--reuid", &user, "--regid", &user, "--clear-groups"]).arg(binary).arg("serve");
            under.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            command = under;
        }
        let server = home.start(command.envs(SECRETS)).await;
        let api = Api::new(&server.url, Some(SECRETS[1].1));
        Self { server, home, api }
    }

    /// Tries it; says what did not hold.
    async fn play(&self, attempt: &Attempt) -> Result<(), String> {
        let port = self.server.address().rsplit(':').next().unwrap_or_default().to_owned();
        let facts = format!("SERVER={} PORT={port}", self.server.pid());
        let sent = self.api.send(&to_at_once(attempt.name, &facts)).await;
        let task = self.api.task_when(text(&sent, "/id"), is_terminal).await;
        let (ended, said) = (state(&task).to_owned(), artifact_text(&task));
        let told = || format!("{}: {ended}, {:?} {}", attempt.name, said, task["status"]["message"]["parts"]);
        let number = || said.trim().parse::<u64>().map_err(|_| told());
        if let Some((name, _)) = SECRETS.iter().find(|(_, secret)| task.to_string().contains(secret)) {
            return Err(format!("{name} is told by {}", told()));
        }
        let held = match attempt.holds {
            Prints(wanted) => ended == "COMPLETED" && said == wanted,
            Holds::Ends(wanted) => ended == "COMPLETED" && said.ends_with(wanted),
            NoSecret => ended == "COMPLETED" && !said.is_empty(),
            AtMost(most) => ended == "COMPLETED" && number()? <= most,
            Fails(why) => ended == "FAILED" && task["status"]["message"].to_string().contains(why),
            Leaves(arguments) => ended == "COMPLETED" && ends(arguments).await,
        };
        if held { Ok(()) } else { Err(told()) }
    }
}

/// The script of an attempt, which reads what it has to know from its message.
fn tries(attempt: &Attempt, home: &Home) -> String {
    format!(
        "eval $(grep -o 'SERVER=[0-9]* PORT=[0-9]*' | head -n 1)\nDATA={}\n{}",
        home.path("data").display(),
        attempt.tries
    )
}

/// The binary at a place that everybody can reach.
fn reachable(home: &Home) -> PathBuf {
    let place = home.path("sb");
    let binary = Path::new(env!("CARGO_BIN_EXE_sb"));
    if fs::hard_link(binary, &place).is_err() {
        fs::copy(binary, &place).expect("the binary can be copied");
    }
    place
}

/// Gives everything below a directory, and the directory itself, to a user.
fn give(path: &Path, user: u32) {
    if path.is_symlink() {
        return lchown(path, Some(user), Some(user)).expect("root may");
    }
    chown(path, Some(user), Some(user)).expect("root may");
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("it can be read").flatten() {
            give(&entry.path(), user);
        }
    }
}

/// Whether nobody runs with these arguments any more, in any world, within a while.
async fn ends(arguments: &str) -> bool {
    let begun = Instant::now();
    while running(arguments) {
        if begun.elapsed() > PATIENCE {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    true
}

fn running(arguments: &str) -> bool {
    let is_it = |process: fs::DirEntry| {
        fs::read(process.path().join("cmdline")).is_ok_and(|line| line.starts_with(arguments.as_bytes()))
    };
    fs::read_dir("/proc").expect("it is there").flatten().any(is_it)
}

/// What the doctor says of this machine.
fn can(home: &Home, subject: &str) -> bool {
    let told = home.run(&["doctor", "-o", "json"]);
    let told: Value = serde_json::from_slice(&told.stdout).expect("one object");
    let checks = told["checks"].as_array().expect("a list");
    let found = checks.iter().find(|check| check["check"] == subject).expect("it is looked at");
    let can = found["status"] == "ok";
    // The doctor is asked whether there is something to try, and is not believed alone.
    let unshared = || {
        let all = ["--user", "--map-root-user", "--mount", "--pid", "--net", "--fork", "true"];
        std::process::Command::new("unshare").args(all).output().is_ok_and(|ended| ended.status.success())
    };
    let walled = || fs::read_to_string("/sys/kernel/security/lsm").is_ok_and(|modules| modules.contains("landlock"));
    let should = match subject {
        "programs: strict" => unshared(),
        "programs: processes" => may_make_groups(),
        _ => walled(),
    };
    assert!(can || !should, "{subject}: this machine can, and the doctor says {}", found["detail"]);
    if !can {
        eprintln!("{subject}: not tried, since this machine cannot: {}", found["detail"]);
    }
    can
}

/// Whether this machine lets root make cgroups that count processes, in the simplest case.
fn may_make_groups() -> bool {
    let tried = Path::new("/sys/fs/cgroup/pids").join(format!("sb-test-{}", std::process::id()));
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    own.lines().any(|line| line.ends_with(":pids:/"))
        && fs::create_dir(&tried).and_then(|()| fs::remove_dir(&tried)).is_ok()
}

/// The cgroups of programs whose keepers are gone.
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
fn groups_left() -> Vec<PathBuf> {
    let found = Command::new("find").args(["/sys/fs/cgroup", "-name", "sb-program-*", "-type", "d"]).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    let is_left = |group: &&str| {
        let keeper = group.rsplit('-').next().unwrap();
        !Path::new("/proc").join(keeper).exists() && Path::new(group).exists()
    };
    found.lines().filter(is_left).map(PathBuf::from).collect()
}

/// Plays all rows under the servers that they are about; fails with all that did not hold.
async fn play(attempts: &[Attempt]) {
    let mut broken = Vec::new();
    let mut played = 0;
    let is_root = rustix::process::geteuid().is_root();
    for ordinary in [true, false] {
        if !ordinary && !is_root {
            continue;
        }
        let rig = Rig::start(ordinary, attempts).await;
        for attempt in attempts.iter().filter(|attempt| ordinary || attempt.under == Anybody) {
            played += 1;
            if let Err(why) = rig.play(attempt).await {
                broken.push(format!("{} server: {why}", if ordinary { "ordinary" } else { "root's" }));
            }
        }
        assert!(!rig.home.path("data/planted").exists() && !rig.home.path("planted").exists(), "something was planted");
        // Whatever was tried, it is there and works.
        assert_eq!(artifact_text(&rig.api.send(&to("echo", "well?")).await), "well?");
        let log = rig.server.log();
        assert!(!log.contains("forged\rline") && !log.contains("\u{1b}[2J"), "a program steers the terminal");
        for (name, secret) in SECRETS {
            if log.contains(secret) || holds(&rig.home.path("data"), secret) {
                broken.push(format!("{name} is written down"));
            }
        }
    }
    assert!(broken.is_empty(), "{} of {played} did not hold:\n{}", broken.len(), broken.join("\n"));
}

/// Whether a file below a directory holds this.
fn holds(path: &Path, secret: &str) -> bool {
    if path.is_dir() {
        return fs::read_dir(path).expect("it can be read").flatten().any(|entry| holds(&entry.path(), secret));
    }
    fs::read(path).is_ok_and(|bytes| bytes.windows(secret.len()).any(|window| window == secret.as_bytes()))
}

#[tokio::test]
async fn programs_take_nothing_that_is_not_theirs() {
    if can(&Home::on_sqlite(), "programs: basic") {
        play(BASIC).await;
    }
}

#[tokio::test]
async fn programs_under_strict_isolation_see_a_world_of_their_own() {
    if can(&Home::on_sqlite(), "programs: strict") {
        play(STRICTLY).await;
    }
}

/// Starts two hundred processes and prints how many of them began.
const BOMB: &str = "(n=0; while [ $n -lt 200 ]; do sleep 30 & echo x; n=$((n+1)); done) > $HOME/count 2>/dev/null; n=0; while read x; do n=$((n+1)); done < $HOME/count; echo $n";

#[tokio::test]
async fn a_bomb_of_roots_is_bounded_where_cgroups_can_be_made() {
    const BOMBS: &[Attempt] = &[
        Attempt {
            name: "roots-bomb",
            under: Anybody,
            cage: "limits = { processes = 20 }",
            tries: BOMB,
            holds: AtMost(25),
        },
        Attempt {
            name: "roots-strict-bomb",
            under: Anybody,
            cage: "isolation = \"strict\"\nlimits = { processes = 20 }",
            tries: BOMB,
            holds: AtMost(25),
        },
    ];
    let home = Home::on_sqlite();
    if !rustix::process::geteuid().is_root() || !can(&home, "programs: processes") {
        return;
    }
    let bombs = if can(&home, "programs: strict") { BOMBS } else { &BOMBS[..1] };
    let rig = Rig::start(false, bombs).await;
    for bomb in bombs {
        rig.play(bomb).await.unwrap();
    }
    assert!(!rig.server.log().contains("no bound on their number"));
    let begun = Instant::now();
    while !groups_left().is_empty() {
        assert!(begun.elapsed() < PATIENCE, "{:?} are left", groups_left());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_program_of_another_user_cannot_change_limits_and_priority_of_the_server() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    const OTHER: &[Attempt] = &[Attempt {
        name: "of-another-user",
        under: Anybody,
        cage: "uid = 61235\ncwd = \"/\"\nenv = { HOME = \"/\" }",
        tries: "prlimit --pid $SERVER --nofile=64:64 2>/dev/null && echo set; renice -n 19 -p $SERVER >/dev/null 2>&1 && echo slowed; id -u",
        holds: Prints("61235\n"),
    }];
    let rig = Rig::start(false, OTHER).await;
    rig.play(&OTHER[0]).await.unwrap();
}

#[tokio::test]
async fn a_root_without_cgroups_is_told_once_that_processes_have_no_bound() {
    const HIDES: &str = "mount -t tmpfs none /sys/fs/cgroup && exec \"$0\" \"$@\"";
    let under = ["unshare", "-m", "sh", "-c", HIDES].map(str::to_owned);
    let hidden = Command::new("unshare").args(["-m", "sh", "-c", HIDES, "true"]).status();
    if !rustix::process::geteuid().is_root() || !hidden.is_ok_and(|status| status.success()) {
        return;
    }
    let home = Home::on_sqlite();
    home.add_agent("runs.toml", "kind = \"command\"\n[command]\nargv = [\"echo\", \"ran\"]\n");
    let mut command = home.serving(&under, &[]);
    let server = home.start(command.envs(SECRETS)).await;
    let api = Api::new(&server.url, Some(SECRETS[1].1));
    for _ in 0..2 {
        assert_eq!(artifact_text(&api.send(&to("runs", "x")).await), "ran\n");
    }
    assert_eq!(server.log().matches("no bound on their number of processes").count(), 1, "{}", server.log());
    let doctor = Command::new(&under[0])
        .args(&under[1..])
        .args([env!("CARGO_BIN_EXE_sb"), "doctor", "-o", "json"])
        .env("HOME", home.path(""))
        .output()
        .unwrap();
    let told: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let found =
        told["checks"].as_array().unwrap().iter().find(|check| check["check"] == "programs: processes").unwrap();
    assert_eq!(found["status"], "warn", "{found}");
}

#[tokio::test]
async fn what_programs_started_ends_with_a_server_that_is_killed() {
    const LEAVERS: &[Attempt] = &[
        Attempt {
            name: "stays",
            under: Anybody,
            cage: "",
            tries: "env -i setsid -f sleep 73001; sleep 73002",
            holds: Leaves("sleep\u{0}73001"),
        },
        Attempt {
            name: "strict-stays",
            under: Anybody,
            cage: STRICT,
            tries: "env -i setsid -f sleep 73003; sleep 73004",
            holds: Leaves("sleep\u{0}73003"),
        },
    ];
    let strict = can(&Home::on_sqlite(), "programs: strict");
    let leavers = if strict { LEAVERS } else { &LEAVERS[..1] };
    let mut rig = Rig::start(true, leavers).await;
    for attempt in leavers {
        rig.api.send(&to_at_once(attempt.name, "x")).await;
    }
    let all = if strict { &["73001", "73002", "73003", "73004"][..] } else { &["73001", "73002"] };
    let begun = Instant::now();
    while !all.iter().all(|seconds| running(&format!("sleep\u{0}{seconds}"))) {
        assert!(begun.elapsed() < PATIENCE, "they do not start");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    rig.server.kill9();
    for seconds in all {
        assert!(ends(&format!("sleep\u{0}{seconds}")).await, "{seconds} outlives the server");
    }
}

#[tokio::test]
async fn what_a_canceled_program_started_ends_with_it() {
    const LEAVER: &[Attempt] = &[Attempt {
        name: "stays",
        under: Anybody,
        cage: "grace = \"100ms\"",
        tries: "trap '' TERM; env -i setsid -f sleep 74001; sleep 74002; sleep 74002",
        holds: Leaves("sleep\u{0}74001"),
    }];
    let rig = Rig::start(true, LEAVER).await;
    let task = rig.api.send(&to_at_once("stays", "x")).await;
    let begun = Instant::now();
    while !running("sleep\u{0}74002") || !running("sleep\u{0}74001") {
        assert!(begun.elapsed() < PATIENCE, "it does not start");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    rig.api.post_empty(&format!("/a2a/tasks/{}:cancel", text(&task, "/id"))).await;
    assert!(ends("sleep\u{0}74001").await && ends("sleep\u{0}74002").await, "something outlives its turn");
}

#[tokio::test]
async fn neither_the_server_nor_its_guard_shows_what_it_was_given() {
    let rig = Rig::start(false, &[]).await;
    let environment = |pid: &str| fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let server = environment(&rig.server.pid().to_string());
    let mut guards = 0;
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let pid = process.file_name().to_string_lossy().into_owned();
        let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = status.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1).map(str::to_owned));
        if parent == Some(rig.server.pid().to_string()) {
            guards += 1;
            assert_eq!(environment(&pid), b"", "the guard starts with nothing");
        }
    }
    assert_eq!(guards, 1);
    for (name, secret) in SECRETS {
        let seen = server.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!seen, "the server's environment shows {name}");
    }
    // It has them all the same.
    let admin = Api::new(rig.api.base(), Some(SECRETS[0].1));
    assert!(admin.get("/v1/admin/tenants").await.ok().is_object());
}

#[tokio::test]
async fn secrets_come_from_files_and_credentials_and_are_not_written_down() {
    let home = Home::on_sqlite();
    let (admin, tenant) = ("sba_of-a-file-of-the-operator", "sb_of-a-credential-of-systemd");
    let file = home.write("secrets/admin", format!("{admin}\n"));
    let credentials = home.write("credentials/SB_BOOTSTRAP_TOKEN", tenant);
    let directory = Path::new(&credentials).parent().unwrap().to_owned();
    let mut command = home.serving(&[], &[]);
    command.env("SB_ADMIN_TOKEN_FILE", &file).env("CREDENTIALS_DIRECTORY", &directory);
    let server = home.start(&mut command).await;
    let reply = Api::new(&server.url, Some(tenant)).send(&to("echo", "hello")).await;
    assert_eq!(artifact_text(&reply), "hello");
    assert!(Api::new(&server.url, Some(admin)).get("/v1/admin/tenants").await.ok().is_object());
    for secret in [admin, tenant] {
        assert!(!holds(&home.path("data"), secret), "{secret} is written down");
    }
    drop(server);
    let mut both = home.serving(&[], &[]);
    let said = both.env("SB_ADMIN_TOKEN_FILE", &file).env("SB_ADMIN_TOKEN", admin).output().unwrap();
    assert_eq!(said.status.code(), Some(2));
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("both set") && !said.contains(admin), "{said}");
}

#[tokio::test]
async fn complaints_are_kept_for_the_operator() {
    const COMPLAINS: &[Attempt] = &[
        Attempt {
            name: "complains",
            under: Anybody,
            cage: "",
            tries: "echo a-word-for-the-operator >&2; exit 3",
            holds: Fails("exit code 3"),
        },
        Attempt {
            name: "links",
            under: Anybody,
            cage: "",
            tries: "mkdir -p $DATA/stderr/links; echo mine > $HOME/target; for n in $DATA/stderr/links; do ln -s $HOME/target $n/x.log; done; echo a-word >&2; cat $HOME/target",
            holds: Prints("mine\n"),
        },
    ];
    let rig = Rig::start(true, COMPLAINS).await;
    for attempt in COMPLAINS {
        rig.play(attempt).await.unwrap();
    }
    let records = rig.home.path("data/stderr/complains");
    let record = fs::read_dir(&records).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::metadata(&record).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(&record).unwrap().contains("a-word-for-the-operator"));
    assert!(rig.server.log().contains("stderr: a-word-for-the-operator"));
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let home = Home::on_sqlite();
    for (cage, why) in [
        ("isolation = \"strict\"\nreadable = [\"relative\"]", "absolute"),
        ("isolation = \"loose\"", "isolation"),
        ("gid = 5", "uid"),
        ("limits = { memory = \"much\" }", "memory"),
        ("limits = { memmory = 5 }", "memory"),
    ] {
        home.add_agent("caged.toml", &format!("kind = \"command\"\n[command]\nargv = [\"true\"]\n{cage}\n"));
        let said = home.run(&["agent", "check", "caged"]);
        let said = format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
        assert!(said.contains(why) && !said.contains(" ok"), "{cage}: {said}");
    }
}

#[tokio::test]
async fn a_strict_agent_that_would_be_shown_the_installation_is_not_loaded() {
    let home = Home::on_sqlite();
    let shown = [home.path(""), home.path("data"), home.path("data/programs"), home.agents()];
    for (n, path) in shown.iter().enumerate() {
        let path = path.display();
        let file = format!(
            "kind = \"command\"\n[command]\nargv = [\"true\"]\nisolation = \"strict\"\nreadable = [\"{path}\"]\n"
        );
        home.add_agent(&format!("shown-{n}.toml"), &file);
    }
    let server = home.start(&mut home.serving(&[], &[])).await;
    let log = server.log();
    for n in 0..shown.len() {
        assert!(
            log.lines().any(|line| line.contains(&format!("shown-{n}")) && line.contains("would show")),
            "{n}: {log}"
        );
    }
}
