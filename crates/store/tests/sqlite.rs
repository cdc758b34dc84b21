//! The journal on SQLite: the conformance suite, one test a case.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use store::sqlite;
use testkit::conformance;

async fn run(name: &str) {
    let dir = tempfile::tempdir().unwrap();
    let store = sqlite::open(dir.path(), sqlite::Options::default()).unwrap();
    conformance::run_case(name, Arc::clone(&store) as Arc<dyn store::Store>).await;
}

macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                run(stringify!($name)).await;
            }
        )*
    };
}

testkit::for_each_conformance_case!(tests);
