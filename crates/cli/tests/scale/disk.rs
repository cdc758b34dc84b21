//! A disk that is full: nothing is acknowledged that is not there later, and when there is room all goes on by itself.
//!
//! The disk is a small file system in memory, mounted for the process that is to find it full and gone with it.

use std::{io::Write, path::PathBuf, time::Duration};

use super::{
    http::{Api, artifact_text, is_terminal, state, text, to_at_once},
    postgres::{Postgres, connect},
    programs::attempts,
    rig::{Server, Setting},
};

/// How soon an instance notices that there is no room, and that there is room again.
const NOTICED: Duration = Duration::from_secs(20);

/// How soon it is not ready after a message was refused: at the next look.
const REFUSED: Duration = Duration::from_secs(2);

/// Leases that cannot be renewed run out before there is room again.
const CONFIG: &str = "lease = \"2s\"\n";

/// What runs a program in a mount namespace of its own with a file system of so many MiB at `at`, and `then` done there.
fn with_small_disk(at: &str, mebibytes: usize, then: &str) -> Vec<String> {
    let script = format!(
        "mkdir -p {at} && mount -t tmpfs -o size={mebibytes}m,mode=0777 tmpfs {at} && cd / && {{ {then}; }} && exec \"$@\""
    );
    // Not everybody is root, but everybody may mount something that only they see.
    let unshare: &[&str] = if rustix::process::geteuid().is_root() {
        &["unshare", "--mount"]
    } else {
        &["unshare", "--user", "--map-current-user", "--keep-caps", "--mount"]
    };
    let shell = ["sh", "-c", &script, "sh"];
    unshare.iter().chain(&shell).map(|&argument| argument.to_owned()).collect()
}

/// A file that takes all the room there is.
struct Filler(PathBuf);

impl Filler {
    /// On a disk as the process `pid` sees it.
    fn new(pid: u32, directory: &str) -> Self {
        Self(PathBuf::from(format!("/proc/{pid}/root{directory}/filler")))
    }

    fn fill(&self) {
        let mut file = std::fs::File::create(&self.0).expect("a file can be made");
        for size in [1 << 20, 1 << 12] {
            let bytes = vec![0; size];
            while file.write_all(&bytes).is_ok() {}
        }
    }

    fn remove(&self) {
        std::fs::remove_file(&self.0).expect("it is there");
    }
}

/// Fills the disk under a server that is at work, and makes room again.
async fn fill_and_make_room(instance: &Server, filler: &Filler) {
    let api = instance.api();
    let mut acknowledged = Vec::new();
    for _ in 0..5 {
        acknowledged.push(text(&api.send(&large()).await, "/id").to_owned());
    }
    // A turn that is under way: what its agent says in the meantime must not be lost.
    let running = api.send(&to_at_once("stream", "60 50")).await;
    filler.fill();

    // Some more may fit into what is allocated already.
    let mut refused_in_a_row = 0;
    for _ in 0..500 {
        match send(&api).await {
            Some(id) => {
                acknowledged.push(id);
                refused_in_a_row = 0;
            }
            None => {
                if refused_in_a_row == 0 {
                    instance.becomes(503, REFUSED).await;
                }
                refused_in_a_row += 1;
            }
        }
        if refused_in_a_row == 5 {
            break;
        }
    }
    assert_eq!(refused_in_a_row, 5, "the disk does not get full");
    instance.becomes(503, NOTICED).await;
    // It does not come and go, whether somebody writes or not.
    for n in 0..30 {
        assert_eq!(instance.readiness().await, 503);
        if n < 10 {
            acknowledged.extend(send(&api).await);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let count = acknowledged.len();

    filler.remove();
    instance.becomes(200, NOTICED).await;
    let mut after = 0;
    for _ in 0..5 {
        after += usize::from(send(&api).await.map(|id| acknowledged.push(id)).is_some());
    }
    assert_eq!(after, 5, "there is room again");
    for id in &acknowledged {
        let ended = api.task_when(id, is_terminal).await;
        assert_eq!(state(&ended), "COMPLETED", "{ended:#}");
    }
    let ended = api.task_when(text(&running, "/id"), is_terminal).await;
    let expected: String = (1..=60).map(|n| format!("chunk {n} of 60\n")).collect();
    assert_eq!(artifact_text(&ended), expected);
    let log = api.subscribe(text(&running, "/id"), Some(0)).await.rest().await;
    assert_eq!(attempts(&log), 1, "it went on, and was not run again: {log:#?}");
    // The control: what is there is what was acknowledged, and at most what was refused with its answer lost, which
    // nobody's was.
    let total = api.get("/a2a/tasks?pageSize=1").await.ok()["totalSize"].as_u64();
    eprintln!("acknowledged {count} before there was no room, {after} after, {total:?} in all with the one that ran");
    assert_eq!(total, Some(acknowledged.len() as u64 + 1));
}

/// A message that needs room. It is acknowledged when it is accepted: its turn may find no room, and then waits for it.
fn large() -> serde_json::Value {
    to_at_once("echo", &"x".repeat(20_000))
}

/// The task, unless the message was refused as it has to be.
async fn send(api: &Api) -> Option<String> {
    let reply = api.post("/a2a/message:send", &large()).await;
    if reply.status == 200 {
        return Some(text(&reply.task(), "/id").to_owned());
    }
    assert_eq!(reply.status, 503, "{}", reply.shown());
    assert!(reply.json().to_string().contains("UNAVAILABLE"), "{}", reply.shown());
    None
}

#[tokio::test]
async fn a_full_disk_under_sqlite() {
    let mut setting = Setting::on_a_file().with_config(CONFIG);
    let data = setting.data_dir("a").display().to_string();
    setting.under = with_small_disk(&data, 12, "true");
    let instance = setting.start("a").await;
    fill_and_make_room(&instance, &Filler::new(instance.pid(), &data)).await;
}

#[tokio::test]
async fn a_full_disk_under_postgres() {
    // Tables alone: a PostgreSQL without room for its log stops, and is a matter of whoever runs it.
    let place = tempfile::Builder::new().prefix("sb-disk.").tempdir_in("/tmp").expect("a directory can be made");
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.path(), permissions).expect("they can be changed");
    let disk = place.path().join("disk").display().to_string();
    let space = format!("{disk}/space");
    let then = format!("mkdir {space} && if [ \"$(id -u)\" = 0 ]; then chown postgres {space}; fi");
    let postgres = Postgres::start_under(&with_small_disk(&disk, 48, &then));
    let client = connect(postgres.url()).await;
    client.batch_execute(&format!("CREATE TABLESPACE small LOCATION '{space}'")).await.expect("it can be made");
    client.batch_execute("CREATE DATABASE small TABLESPACE small").await.expect("it can be made");
    let (server, _) = postgres.url().rsplit_once('/').expect("the URL names a database");
    let instance = Setting::on(&format!("{server}/small")).with_config(CONFIG).start("a").await;
    fill_and_make_room(&instance, &Filler::new(postgres.postmaster(), &disk)).await;
}
