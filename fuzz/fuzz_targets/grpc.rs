//! The messages of gRPC: what is read is written and read again as the same.

#![no_main]

use a2a::{Limits, SendMessageRequest, StreamResponse, grpc, validate};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let bytes = bytes.to_vec();
    if let Ok(request) = grpc::decode::<SendMessageRequest>(bytes.clone().into()) {
        let again = grpc::decode::<SendMessageRequest>(grpc::encode(request.clone()).into());
        assert_eq!(again.as_ref(), Ok(&request));
        let json = serde_json::to_vec(&request).expect("wire types serialise");
        a2a::decode::<SendMessageRequest>(&json).expect("what was read is JSON of ours");
        let _ = validate::validate_send(&request, &Limits::default());
    }
    if let Ok(object) = grpc::Struct::decode_json(&bytes) {
        // What is deeper than readers follow is a text afterwards, and then stays one.
        let once = grpc::Struct::decode_json(&grpc::Struct::encode_json(String::from(object))).expect("it was an object");
        let twice = grpc::Struct::decode_json(&grpc::Struct::encode_json(String::from(once.clone())));
        assert_eq!(twice.map(|object| object.depth()), Ok(once.depth()));
    }
    if let Ok(event) = grpc::decode::<StreamResponse>(bytes.into()) {
        let json = serde_json::to_string(&event).expect("wire types serialise");
        assert!(!json.contains('\n'), "an event is one line");
        // The JSON of any event of ours as Struct, and back.
        grpc::Struct::decode_json(&grpc::Struct::encode_json(json)).expect("what was JSON is JSON");
    }
});
