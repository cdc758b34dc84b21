//! A webhook that is deleted and made again with the same id while a notification of the old one is under way: nothing of the
//! old one holds for the new one.

use std::time::{Duration, Instant};

use super::random::Random;
use crate::{
    chaos::{
        Installation, Instances,
        webhooks::{Hook, Manners, message, open, settle_and_check},
    },
    harness::PATIENCE,
};

const CONFIG: &str = "[push]\ntimeout = \"10s\"\n[egress]\nallow = [\"127.0.0.0/8\"]\n";

async fn make_again(installation: Installation) {
    let instances = Instances::start(installation.with_config(CONFIG), 1).await;
    let mut random = Random::new();
    let load = open(&instances, &[Manners::Late], &mut random).await;
    let hook = |name: &str| Hook { chunks: true, id: "same".to_owned(), ..Hook::named(name) };
    let said = message("first", "context", "20 100");
    // It is owed more than one notification from its first moment.
    let (task, old) = load.begin(&mut random, "stream", &said, Some((hook("old"), 0))).await;
    let old = old.expect("it was asked for");
    let begun = Instant::now();
    while load.notebook.arrivals().is_empty() {
        assert!(begun.elapsed() < PATIENCE, "the old one gets nothing");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    load.delete(&mut random, &old).await;
    load.create(&mut random, &task, (hook("new"), 0)).await;
    load.wait_for_the_end(&mut random, &task).await;
    // Late notifications come now.
    tokio::time::sleep(Duration::from_secs(2)).await;
    load.receivers[0].be_good();
    let report = settle_and_check(&load, &mut random).await;
    report.assert_clean(&[("delivered", 4)]);
    assert_eq!(report.figure("needless"), 0, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_is_made_again_inherits_nothing_on_sqlite() {
    make_again(Installation::on_sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_is_made_again_inherits_nothing_on_postgres() {
    make_again(Installation::on_postgres()).await;
}
