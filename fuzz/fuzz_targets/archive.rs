//! The lines of an archive. They stand behind a first line that is right, or nothing would come past its sum.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};
use store::archive::{Terms, read_through};

static FIRST: LazyLock<String> = LazyLock::new(|| {
    let header = r#"{"archive":1,"created_at":1,"source":"fuzz"}"#;
    let sum: String = Sha256::digest(header).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{{\"switchboard\":{header},\"sha256\":\"{sum}\"}}\n")
});

fuzz_target!(|bytes: &[u8]| {
    for credentials in [false, true] {
        let terms = Terms { credentials, signed_by: None };
        let archive = [FIRST.as_bytes(), bytes].concat();
        let _ = read_through(&mut archive.as_slice(), &terms);
    }
    let _ = read_through(&mut &*bytes, &Terms::default());
});
