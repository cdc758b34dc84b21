//! A disk that is full: everything that is acknowledged is there later, and when there is room all goes on by itself.

use std::time::Duration;

use super::http::{Api, artifact_text, is_terminal, state, text, to_at_once};
use crate::chaos::{
    Disk, Fault, Installation, Instances, Postgres, attempts, becomes, connect, readiness, with_small_disk,
};

/// How soon an instance notices that there is no room, and that there is room again.
const NOTICED: Duration = Duration::from_secs(20);

/// How soon it is not ready after a message was refused: at the next look.
const REFUSED: Duration = Duration::from_secs(2);

/// Leases that cannot be renewed run out before there is room again.
const CONFIG: &str = "lease = \"2s\"\n";

/// Fills the disk under a server that is at work, and makes room again.
async fn fill_and_make_room(mut instances: Instances) {
    let api = instances[0].api();
    let mut acknowledged = Vec::new();
    for _ in 0..5 {
        acknowledged.push(text(&api.send(&large()).await, "/id").to_owned());
    }
    // A turn that runs: what its agent says in the meantime must not be lost.
    let running = api.send(&to_at_once("stream", "60 50")).await;
    instances.apply(&Fault::FullDisk, 0).await;

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
                    becomes(&instances[0], 503, REFUSED).await;
                }
                refused_in_a_row += 1;
            }
        }
        if refused_in_a_row == 5 {
            break;
        }
    }
    assert_eq!(refused_in_a_row, 5, "the disk does not get full");
    becomes(&instances[0], 503, NOTICED).await;
    // It stays so, whether somebody writes or not.
    for n in 0..30 {
        assert_eq!(readiness(&instances[0]).await, 503);
        if n < 10 {
            acknowledged.extend(send(&api).await);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let count = acknowledged.len();

    instances.apply(&Fault::RoomOnDisk, 0).await;
    becomes(&instances[0], 200, NOTICED).await;
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
    // What is there is what was acknowledged, and nothing that was refused.
    let total = api.get("/a2a/tasks?pageSize=1").await.ok()["totalSize"].as_u64();
    eprintln!("acknowledged {count} before there was no room, {after} after, {total:?} in all with the one that ran");
    assert_eq!(total, Some(acknowledged.len() as u64 + 1));
}

/// A message that needs room. It is acknowledged when it is accepted; a turn that finds no room waits for it.
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
    let installation = Installation::on_sqlite().with_config(CONFIG);
    let data = installation.data_dir("a").display().to_string();
    let instances = Instances::start(installation.under(with_small_disk(&data, 12, "true")), 1).await;
    let disk = Disk::of(instances[0].pid(), &data);
    fill_and_make_room(instances.with_disk(disk)).await;
}

#[tokio::test]
async fn a_full_disk_under_postgres() {
    // The disk has tables alone: a PostgreSQL without room for its own log stops.
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
    let installation = Installation::on(&format!("{server}/small")).with_config(CONFIG);
    let instances = Instances::start(installation, 1).await;
    fill_and_make_room(instances.with_disk(Disk::of(postgres.postmaster(), &disk))).await;
}
