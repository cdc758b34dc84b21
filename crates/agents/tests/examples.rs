//! The examples of `docs/agents.md`, run as they stand. They need python3, sh and node.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod rig;

use std::{fs, path::Path};

use a2a::{PartContent, TaskState};
use rig::{Rig, message, reply_to, status, text};

/// A rig with one folder of examples copied into its agents' directory.
async fn with(folder: &str) -> Rig {
    let rig = Rig::new().await;
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/agents").join(folder);
    for file in fs::read_dir(&from).unwrap() {
        let path = file.unwrap().path();
        fs::copy(&path, rig.dir.join(path.file_name().unwrap())).unwrap();
        if path.extension().is_some_and(|ending| ending == "toml") {
            let state = agents::Reader::default().state(&path);
            assert_eq!((state.error, state.warnings), (None, vec![]));
        }
    }
    rig.files.refresh();
    rig
}

#[tokio::test]
async fn python() {
    let rig = with("python").await;
    let task = rig.say("count", " ").await;
    assert_eq!(status(&task), (TaskState::InputRequired, "Which text shall I count?".to_owned()));
    let task = rig.send("count", reply_to(&task, "to be or not to be")).await;
    assert_eq!(status(&task), (TaskState::Completed, "6 words, 4 different ones".to_owned()));
    assert_eq!(text(&task), "2 to\n2 be\n1 or\n1 not\n");
    assert_eq!((task.artifacts.len(), task.artifacts[0].name.as_str()), (1, "counts"));
}

#[tokio::test]
async fn shell() {
    let rig = with("shell").await;
    let task = rig.say("upper", "shout, please").await;
    assert_eq!((task.status.state, text(&task)), (TaskState::Completed, "SHOUT, PLEASE\n".to_owned()));
}

#[tokio::test]
async fn node() {
    let rig = with("node").await;
    let task = rig.say("stats", "one two\nthree").await;
    assert_eq!(status(&task), (TaskState::Completed, "3 words".to_owned()));
    let PartContent::Data(data) = &task.artifacts[0].parts[0].content else { panic!("no data") };
    assert_eq!(data.get(), r#"{"characters":13,"words":3,"lines":2}"#);
    let mut empty = message("");
    empty.parts = vec![a2a::Part::text(" ")];
    assert_eq!(rig.send("stats", empty).await.status.state, TaskState::Rejected);
}
