//! Where a store is: URLs of PostgreSQL and NATS, and what is shown of them. No password is.

#![no_main]

use libfuzzer_sys::fuzz_target;
use store::{Location, Wake};

fuzz_target!(|text: &str| {
    let _ = Location::parse(text);
    let _ = text.parse::<Wake>();
    // Whatever else the URL has, its password is between the first colon of its user and the last at sign.
    if !text.contains("geheim") && !text.contains(['@', '/', '?', '#', ':']) {
        let url = format!("postgres://{text}:geheim@host/database");
        if let Ok(location) = Location::parse(&url) {
            assert!(!location.to_string().contains("geheim") && !format!("{location:?}").contains("geheim"));
        }
    }
    let _ = store::postgres::masked(text);
});
