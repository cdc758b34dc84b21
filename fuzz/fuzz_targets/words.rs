//! What programs and workers say: one word is one JSON object.

#![no_main]

use a2a::Limits;
use exchange::words;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(why) = words::read(bytes, &Limits::default()) {
        assert!(!why.is_empty());
    }
});
