//! The parameters of the 0.3 methods, decoded and converted to 1.0.

#![no_main]

use a2a::{SendMessageRequest, TaskPushNotificationConfig, v03};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(params) = a2a::decode::<v03::MessageSendParams>(bytes) {
        let text = serde_json::to_vec(&params).expect("wire types serialise");
        a2a::decode::<v03::MessageSendParams>(&text).expect("what we write we read");
        if let Ok(request) = SendMessageRequest::try_from(params) {
            let text = serde_json::to_vec(&request).expect("wire types serialise");
            assert_eq!(a2a::decode::<SendMessageRequest>(&text).as_ref(), Ok(&request));
        }
    }
    if let Ok(config) = a2a::decode::<v03::TaskPushNotificationConfig>(bytes) {
        let _ = TaskPushNotificationConfig::try_from(config);
    }
    let _ = a2a::decode::<v03::TaskQueryParams>(bytes);
    let _ = a2a::decode::<v03::TaskIdParams>(bytes);
    let _ = v03::decode_card(bytes);
});
