//! The code that the documentation of this crate shows.

/// Shown by the crate.
#[test]
fn a_message_of_1_0_is_decoded_and_validated() -> Result<(), a2a::Error> {
    let request: a2a::SendMessageRequest =
        a2a::decode(br#"{"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"hello"}]}}"#)?;
    a2a::validate::validate_send(&request, &a2a::validate::Limits::default())?;
    assert_eq!(request.message.parts, [a2a::Part::text("hello")]);
    Ok(())
}

/// Shown by [`a2a::v03`].
#[test]
fn a_message_of_0_3_becomes_one_of_1_0() -> Result<(), a2a::Error> {
    let params: a2a::v03::MessageSendParams =
        a2a::decode(br#"{"message":{"role":"user","messageId":"m-1","parts":[{"kind":"text","text":"hello"}]}}"#)?;
    let request = a2a::SendMessageRequest::try_from(params)?;
    assert_eq!(request.message.parts, [a2a::Part::text("hello")]);
    Ok(())
}

/// Shown by [`a2a::signature`].
#[test]
fn a_signed_card_is_verified_only_for_the_origin_of_its_key() -> Result<(), Box<dyn std::error::Error>> {
    use a2a::signature::{Algorithm, SigningKey, Trusted, sign, verify};

    let card = br#"{"name":"a","supportedInterfaces":[]}"#;
    let key = SigningKey::generate(Algorithm::Es256)?;
    let signed = sign(card, &key, Some("https://agents.example/.well-known/jwks.json"))?;
    let trusted = [Trusted { key: key.public(), origin: Some("https://agents.example".to_owned()) }];
    let verified = verify(&signed, &trusted, Some("https://agents.example"), 1_770_000_000)?;
    assert_eq!(verified.kid, key.kid());
    assert!(verify(&signed, &trusted, Some("https://elsewhere.example"), 1_770_000_000).is_err());
    Ok(())
}
