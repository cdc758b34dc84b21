//! Plain JSON over HTTP, for what a Switchboard server offers beside the protocol.

use a2a::error::RemoteError;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, header};
use url::Url;

use crate::{Connector, Credential, Error, egress::Request};

/// Calls a URL and gives the body of a successful answer. An error answer is an [`Error`] with what it says.
/// What is called twice under one key, the server does once.
pub async fn call_json(
    connector: &Connector,
    method: Method,
    url: &Url,
    credential: Option<&Credential>,
    body: Option<Vec<u8>>,
    key: Option<&str>,
) -> Result<Bytes, Error> {
    let mut headers = vec![(header::ACCEPT, HeaderValue::from_static("application/json"))];
    if body.is_some() {
        headers.push((header::CONTENT_TYPE, HeaderValue::from_static("application/json")));
    }
    if let Some(key) = key {
        let value =
            HeaderValue::from_str(key).map_err(|_| Error::Malformed("the key cannot stand in a header".into()))?;
        headers.push((HeaderName::from_static("idempotency-key"), value));
    }
    if let Some(credential) = credential {
        headers.push(credential.header(connector).await?);
    }
    let request = Request { method, url, token: None, headers, body, streaming: false, http2: false };
    let response = connector.send(request).await?;
    let status = response.status.as_u16();
    let bytes = response.bytes().await?;
    check_answer(status, &bytes)?;
    Ok(bytes)
}

/// The error that an answer is, unless its status says that it worked.
fn check_answer(status: u16, body: &[u8]) -> Result<(), Error> {
    if (200..300).contains(&status) {
        return Ok(());
    }
    Err(Error::told(status, RemoteError::from_status_body(status, body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_success_is_no_error() {
        assert!(check_answer(201, b"{}").is_ok());
        assert!(matches!(check_answer(401, b"{}"), Err(Error::Auth(_))));
        let told = check_answer(409, br#"{"error":{"message":"taken"}}"#).unwrap_err();
        assert_eq!(told.to_string(), "taken (409)");
        assert!(matches!(check_answer(302, b""), Err(Error::Protocol(_))));
    }
}
