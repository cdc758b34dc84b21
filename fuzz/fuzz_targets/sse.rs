//! A stream of server-sent events. The first byte says how long the chunks are.

#![no_main]

use client::sse::Parser;
use libfuzzer_sys::fuzz_target;

/// Small, so that a short input can reach it.
const CAP: usize = 256;

fuzz_target!(|bytes: &[u8]| {
    let Some((length, stream)) = bytes.split_first() else { return };
    let mut at_once = Vec::new();
    let whole = Parser::new(CAP).feed(stream, &mut at_once);
    let mut parser = Parser::new(CAP);
    let mut events = Vec::new();
    let mut outcome = Ok(());
    for chunk in stream.chunks(usize::from(*length).max(1)) {
        outcome = parser.feed(chunk, &mut events);
        if outcome.is_err() {
            break;
        }
    }
    assert_eq!(outcome.is_ok(), whole.is_ok());
    assert_eq!(events, at_once);
});
