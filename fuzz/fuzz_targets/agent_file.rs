//! Agent files, and the agents that tenants define.

#![no_main]

use std::path::Path;

use agents::{KINDS, Reader, mind::Constitution};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let path = Path::new("/nowhere/agent.toml");
    let reader = Reader::new(KINDS, "fuzz");
    if let Err(error) = reader.parse(path, text) {
        assert!(!error.to_string().is_empty());
    }
    if let Err(wrong) = Constitution::parse(text.as_bytes()) {
        assert!(!wrong.problem.is_empty());
    }
});
