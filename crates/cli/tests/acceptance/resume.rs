//! A program that keeps its state goes on where it was, whatever happens to the server.

use super::{
    http::{artifact_text, is_terminal, state, text, to_at_once},
    rig::Rig,
};

/// Takes three steps, each once. In the middle of the third of its first run it says too much, and waits there.
const SCRIPT: &str = r#"
done=$(sed -n 's/.*"state":{"done":\([0-9]*\)}.*/\1/p')
for step in 1 2 3; do
    if [ "$step" -le "${done:-0}" ]; then continue; fi
    append=false; if [ "$step" -gt 1 ]; then append=true; fi
    if [ "$step" = 3 ] && [ -z "$done" ]; then
        echo '{"artifactUpdate":{"artifact":{"parts":[{"text":"nonsense"}]},"append":true}}'
        echo waiting >> ../steps
        sleep 60
    fi
    echo "$step" >> ../steps
    echo "{\"artifactUpdate\":{\"artifact\":{\"parts\":[{\"text\":\"step $step \"}]},\"append\":$append}}"
    echo "{\"keep\":{\"done\":$step}}"
done
"#;

const AGENT: &str =
    "kind = \"command\"\non_crash = \"resume\"\n[command]\nargv = [\"sh\", \"steps.sh\"]\noutput = \"events\"\n";

async fn interrupted(stop: impl AsyncFnOnce(&mut Rig)) -> (Rig, String) {
    let mut rig = Rig::start_with_agents("", &[("steps.toml", AGENT), ("steps.sh", SCRIPT)], None).await;
    let api = rig.api();
    let task = api.send(&to_at_once("steps", "go")).await;
    let id = text(&task, "/id").to_owned();
    while !artifact_text(&api.task(&id).await).contains("nonsense") {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    stop(&mut rig).await;
    rig.restart().await;
    (rig, id)
}

async fn goes_on(rig: &Rig, id: &str) {
    let done = rig.api().task_when(id, is_terminal).await;
    assert_eq!(state(&done), "COMPLETED", "{done}");
    assert_eq!(artifact_text(&done), "step 1 step 2 step 3 ");
    let steps = std::fs::read_to_string(rig.agents_dir().with_file_name("steps")).expect("it took steps");
    assert_eq!(steps, "1\n2\nwaiting\n3\n", "no step is taken twice");
}

#[tokio::test]
async fn a_program_goes_on_after_kill_9_where_it_kept_its_state() {
    let (rig, id) = interrupted(async |rig| rig.kill9()).await;
    goes_on(&rig, &id).await;
}

#[tokio::test]
async fn a_program_goes_on_after_a_stop_where_it_kept_its_state() {
    let (rig, id) = interrupted(async |rig| assert!(rig.server.ends_well().await)).await;
    goes_on(&rig, &id).await;
}
