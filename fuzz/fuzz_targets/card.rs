//! Cards with signatures, and sets of keys: what is signed verifies, whatever the card says otherwise.

#![no_main]

use std::sync::LazyLock;

use a2a::signature::{Algorithm, SigningKey, Trusted, decode_keys, sign, verify};
use libfuzzer_sys::fuzz_target;

static KEY: LazyLock<SigningKey> = LazyLock::new(|| SigningKey::generate(Algorithm::EdDsa).expect("there are keys"));

fuzz_target!(|bytes: &[u8]| {
    let trusted = [Trusted { key: KEY.public(), origin: None }];
    assert!(verify(bytes, &trusted, None, 1).is_err(), "nobody has signed this");
    // What is signed is verified, unless more signatures are there than anybody looks at.
    if bytes.len() < 4096
        && let Ok(signed) = sign(bytes, &KEY, None)
    {
        let verified = verify(&signed, &trusted, None, 1);
        assert!(verified.is_ok(), "{:?}: {}", verified.err(), String::from_utf8_lossy(&signed));
    }
    if let Ok(keys) = decode_keys(bytes) {
        assert!(!keys.is_empty());
    }
});
