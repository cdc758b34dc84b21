//! A webhook that is deleted and made again under the same name while it is being told: what becomes of the old one must
//! not become of the new one.

use std::time::{Duration, Instant};

use testkit::postgres::Database;
use tokio::sync::watch;

use super::{
    load::{Hook, message},
    random::Random,
    receiver::Manners,
    rig::{PATIENCE, Setting},
    storm,
    verdict::Verdict,
};

const CONFIG: &str = "[push]\ntimeout = \"10s\"\n[egress]\nallow = [\"127.0.0.0/8\"]\n";

/// Makes a webhook, and while its receiver takes its time with the first notification another one with the same id.
async fn make_again(setting: Setting) -> Verdict {
    let setting = setting.with_config(CONFIG);
    let instances = [setting.start("a").await];
    let mut random = Random::new();
    // Nobody is killed here.
    let (_kill, kills) = watch::channel(Vec::new());
    let site = storm::open(&setting, &instances, &[Manners::Late], &mut random, kills).await;
    let hook = |name: &str| Hook { chunks: true, id: "same".to_owned(), ..Hook::named(name) };
    let said = message("first", "context", "20 100");
    // It is owed more than one thing from its first moment.
    let (task, old) = site.begin(&mut random, "stream", &said, Some((hook("old"), 0))).await;
    let old = old.expect("it was asked for");
    let begun = Instant::now();
    while site.notebook.arrivals().is_empty() {
        assert!(begun.elapsed() < PATIENCE, "the old one is never told");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    site.delete(&mut random, &old).await;
    site.create(&mut random, &task, (hook("new"), 0)).await;
    site.wait_for_the_end(&mut random, &task).await;
    // Whatever is told late is told now.
    tokio::time::sleep(Duration::from_secs(2)).await;
    site.receivers[0].be_good();
    let verdict = storm::end(&site, &mut random).await;
    eprintln!("{verdict}");
    verdict
}

fn is_as_if_nothing_had_been_there_before(verdict: &Verdict) -> bool {
    verdict.is_clean() && verdict.needless == 0 && verdict.told > 3
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_is_made_again_knows_nothing_of_the_one_before_on_sqlite() {
    let verdict = make_again(Setting::on_a_file()).await;
    assert!(is_as_if_nothing_had_been_there_before(&verdict), "{verdict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_is_made_again_knows_nothing_of_the_one_before_on_postgres() {
    let database = Database::create();
    let verdict = make_again(Setting::on(database.url())).await;
    assert!(is_as_if_nothing_had_been_there_before(&verdict), "{verdict}");
}
