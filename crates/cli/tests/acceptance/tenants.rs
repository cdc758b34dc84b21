//! What belongs to someone else does not exist.

use serde_json::json;

use super::{
    http::{answer, reason, state, text, to, to_at_once},
    rig::Rig,
};

#[tokio::test]
async fn x_8_another_tenants_task_does_not_exist() {
    let rig = Rig::start().await;
    let mine = rig.api();
    let token = rig.add_tenant("other").await;
    let theirs = mine.with_token(Some(&token));

    let id = text(&mine.send(&to_at_once("slow", "20000")).await, "/id").to_owned();
    let unknown = "01890a5d-ac96-774b-bcce-b302099a8057";
    for path in [
        "/a2a/tasks/{id}",
        "/a2a/agents/slow/tasks/{id}",
        "/a2a/tasks/{id}:subscribe",
        "/a2a/tasks/{id}:subscribe?afterSequence=0",
    ] {
        let reply = theirs.get(&path.replace("{id}", &id)).await.error(404);
        let nothing = theirs.get(&path.replace("{id}", unknown)).await.error(404);
        // The same error in the same shape, but for the id that was asked for.
        assert_eq!(reply.to_string().replace(&id, unknown), nothing.to_string());
    }
    theirs.post_empty(&format!("/a2a/tasks/{id}:cancel")).await.error(404);
    theirs.post("/a2a/message:send", &answer(&id, "let me in")).await.error(404);
    theirs.rpc_error("GetTask", &json!({"id": id}), -32001).await;
    theirs.rpc_error("CancelTask", &json!({"id": id}), -32001).await;
    assert_eq!(theirs.get("/a2a/tasks").await.ok()["totalSize"], 0);
    // The field `tenant` names an agent, and never an owner.
    for owner in ["default", "other"] {
        let error = theirs.post("/a2a/message:send", &to(owner, "hello")).await.error(404);
        assert_eq!(reason(&error), "AGENT_NOT_FOUND", "{owner}");
    }
    assert_eq!(state(&theirs.send(&to("echo", "hello")).await), "COMPLETED", "the demo agents are everyone's");
    assert_eq!(mine.get("/a2a/tasks").await.ok()["totalSize"], 1);
    let task = mine.post_empty(&format!("/a2a/tasks/{id}:cancel")).await.ok();
    assert_eq!(state(&task), "CANCELED", "and it was still running");
}
