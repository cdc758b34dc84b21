//! The query string of a list. The decoder is no part of the server's interface; its file is compiled in here.

#![no_main]

#[expect(dead_code, reason = "the server uses the rest of it")]
#[path = "../../crates/server/src/query.rs"]
mod query;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match query::Query::parse(Some(text)).and_then(|query| query.list_tasks()) {
        Ok(list) => {
            let text = serde_json::to_vec(&list).expect("wire types serialise");
            assert_eq!(a2a::decode::<a2a::ListTasksRequest>(&text).as_ref(), Ok(&list));
        }
        Err(error) => assert!(!error.violations[0].field.is_empty(), "{error:?}"),
    }
});
