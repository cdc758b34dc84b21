//! The requests of 1.0 that hold most, decoded and validated.

#![no_main]

use a2a::{Limits, ListTasksRequest, SendMessageRequest, validate};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = a2a::decode::<SendMessageRequest>(bytes) {
        let text = serde_json::to_vec(&request).expect("wire types serialise");
        assert!(!text.contains(&b'\n'), "an event is one line");
        assert_eq!(a2a::decode::<SendMessageRequest>(&text).as_ref(), Ok(&request));
        let _ = validate::validate_send(&request, &Limits::default());
    }
    if let Ok(request) = a2a::decode::<ListTasksRequest>(bytes) {
        let text = serde_json::to_vec(&request).expect("wire types serialise");
        assert_eq!(a2a::decode::<ListTasksRequest>(&text).as_ref(), Ok(&request));
        let _ = validate::validate_list(&request, &Limits::default());
    }
});
