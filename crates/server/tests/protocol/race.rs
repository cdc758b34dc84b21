//! A cancel against a completion: whoever wins, everyone is told the same.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use serde_json::json;
use tokio::{sync::Semaphore, task::JoinSet};

use super::{
    http::{Api, array, fresh, is_terminal, reason, state, text, to_at_once},
    server::TestServer,
};

/// One race: the cancel is sent at once, the turn takes so long. Gives the state that won.
async fn race(api: Api, run_ms: u64) -> &'static str {
    let context = format!("race-{}", fresh());
    let mut request = to_at_once("slow", &run_ms.to_string());
    request["message"]["contextId"] = json!(context);
    let id = text(&api.send(&request).await, "/id").to_owned();
    let reader = {
        let (api, id) = (api.clone(), id.clone());
        tokio::spawn(async move { api.subscribe(&id, Some(0)).await.rest().await })
    };
    let reply = api.post_empty(&format!("/a2a/tasks/{id}:cancel")).await;
    let told = if reply.status == 200 {
        let task = reply.ok();
        assert_eq!(state(&task), "CANCELED", "a cancel that answers has won: {task:#}");
        "CANCELED"
    } else {
        assert_eq!(reason(&reply.error(400)), "TASK_NOT_CANCELABLE");
        "COMPLETED"
    };

    let got = api.task(&id).await;
    assert_eq!(state(&got), told);
    let frames = reader.await.expect("the reader does not panic");
    let ends: Vec<_> = frames.iter().filter_map(|frame| frame.state()).filter(|state| is_terminal(state)).collect();
    assert_eq!(ends, [told], "one end, the last event: {frames:#?}");
    assert!(frames.last().is_some_and(|frame| frame.is_end()));
    let ids: Vec<u64> = frames.iter().map(|frame| frame.id).collect();
    assert_eq!(ids, (1..=frames.len() as u64).collect::<Vec<_>>());
    let page = api.get(&format!("/a2a/tasks?contextId={context}&status={}", text(&got, "/status/state"))).await.ok();
    assert_eq!(array(&page, "/tasks").len(), 1);
    assert_eq!(page["tasks"][0]["id"], id);
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s2_25_x_35_a_cancel_racing_a_completion_has_one_winner() {
    let races: u64 = if std::env::var_os("SB_LONG").is_some() { 20_000 } else { 1_000 };
    let server = TestServer::start().await;
    let api = server.api();
    let slots = Arc::new(Semaphore::new(32));
    // How long a cancel takes depends on the machine and its load. Turns get longer when they win and
    // shorter when they lose, so that both sides keep arriving together.
    let run_ms = Arc::new(AtomicU64::new(3));
    let mut running = JoinSet::new();
    for n in 0..races {
        let permit = Arc::clone(&slots).acquire_owned().await.unwrap();
        let (api, run_ms) = (api.clone(), Arc::clone(&run_ms));
        running.spawn(async move {
            let won = race(api, run_ms.load(Ordering::Relaxed) + n % 4).await;
            if won == "CANCELED" {
                let _ = run_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |ms| ms.checked_sub(1));
            } else {
                run_ms.fetch_add(1, Ordering::Relaxed);
            }
            drop(permit);
            won
        });
    }
    let mut canceled = 0;
    while let Some(won) = running.join_next().await {
        canceled += u64::from(won.unwrap() == "CANCELED");
    }
    println!("{canceled} of {races} races were won by the cancel");
    assert!((races / 10..races - races / 10).contains(&canceled), "only {canceled} of {races}: that is no race");
    for won in ["CANCELED", "COMPLETED"] {
        let page = api.get(&format!("/a2a/tasks?status=TASK_STATE_{won}")).await.ok();
        let expected = if won == "CANCELED" { canceled } else { races - canceled };
        assert_eq!(page["totalSize"], expected, "the counters agree");
    }
}
