//! The JSON-RPC envelope, of requests and of answers.

#![no_main]

use a2a::jsonrpc::{self, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match Request::decode(bytes) {
        Ok(request) => {
            let text = jsonrpc::encode_request(&request.id, &request.method, &request.params).expect("it serialises");
            let again = Request::decode(&text).expect("what we write we read");
            assert_eq!((&again.id, &again.method), (&request.id, &request.method));
            assert_eq!(again.params.map(|it| it.get()), request.params.map(|it| it.get()));
        }
        Err(rejected) => {
            let body = jsonrpc::failure(&rejected.id, &rejected.error);
            serde_json::from_slice::<serde_json::Value>(&body).expect("an answer is JSON");
        }
    }
    if let Ok(response) = jsonrpc::decode_response(bytes)
        && let Ok(result) = response.result
    {
        let text = jsonrpc::success_raw(&response.id, result.get().as_bytes());
        jsonrpc::decode_response(&text).expect("what we write we read");
    }
});
