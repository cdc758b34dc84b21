//! The examples of `docs/agents.md`, run as they stand. They need python3, sh and node.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use crate::rig;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use a2a::{PartContent, TaskState};
use agents::{
    KINDS, Reader,
    model::{self, Models},
};
use rig::{Rig, message, reply_to, status, text};
use store::TaskId;

fn examples(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/agents").join(folder)
}

/// A rig with one folder of examples copied into its agents' directory, and with the models that it has beside them.
async fn with(folder: &str) -> Rig {
    // Paths in it are meant from where it stands.
    let models = examples(folder).join("scripted/models.toml");
    let models =
        Models::new(model::Options { file: Some(models), environment: Arc::new(|_| None), ..Default::default() });
    let reader = Reader::new(KINDS, TaskId::mint().to_string()).with_models(models);
    let rig = Rig::read_by(reader, exchange::Options::default()).await;
    for file in fs::read_dir(examples(folder)).unwrap() {
        let path = file.unwrap().path();
        if path.is_dir() {
            continue;
        }
        fs::copy(&path, rig.dir.join(path.file_name().unwrap())).unwrap();
        if path.extension().is_some_and(|ending| ending == "toml") {
            let state = Reader::default().state(&path);
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
    assert_eq!((task.status.state, text(&task)), (TaskState::Completed, "SHOUT, PLEASE".to_owned()));
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

#[tokio::test]
async fn llm() {
    let rig = with("llm").await;
    assert!(rig.files.snapshot().iter().all(|state| state.warnings.is_empty()), "it has a model to think with");
    let task = rig.say("packer", "What shall I take along?").await;
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(text(&task), "Where are you going, and when?");
    let mut more = message("To Lisbon, in May.");
    more.context_id.clone_from(&task.context_id);
    let task = rig.send("packer", more).await;
    let said: Vec<&str> = task.artifacts[0].parts.iter().filter_map(a2a::Part::as_text).collect();
    assert_eq!(said.concat(), "Here is what I would take.\nThree things will do; the list is in packing.md.");
    let file = task.artifacts.iter().find(|artifact| artifact.name == "packing.md").unwrap();
    let PartContent::Raw(bytes) = &file.parts[0].content else { panic!("no file") };
    assert_eq!(&bytes[..], b"- sunglasses\n- a light jacket\n- good shoes");
}
