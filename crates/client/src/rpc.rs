//! The JSON-RPC binding, as a caller.

use std::fmt;

use a2a::{Method, error::RemoteError, jsonrpc};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;
use url::Url;

use crate::{
    Error,
    binding::{Operation, Outbound},
};

/// The members that tell an envelope from what is in it.
const ENVELOPE: [&str; 3] = ["jsonrpc", "result", "error"];

pub(crate) fn encode(endpoint: &Url, operation: Operation<'_>) -> Result<Outbound, Error> {
    let body = match operation {
        Operation::Send(request) => call(Method::SendMessage, request),
        Operation::Stream(request) => call(Method::SendStreamingMessage, request),
        Operation::Get(request) => call(Method::GetTask, request),
        Operation::List(request) => call(Method::ListTasks, request),
        Operation::Cancel(request) => call(Method::CancelTask, request),
        Operation::Subscribe(request) => call(Method::SubscribeToTask, request),
        Operation::CreatePush(config) => call(Method::CreateTaskPushNotificationConfig, config),
        Operation::GetPush(request) => call(Method::GetTaskPushNotificationConfig, request),
        Operation::ListPush(request) => call(Method::ListTaskPushNotificationConfigs, request),
        Operation::DeletePush(request) => call(Method::DeleteTaskPushNotificationConfig, request),
        Operation::ExtendedCard(request) => call(Method::GetExtendedAgentCard, request),
    }?;
    let url = endpoint.clone();
    Ok(Outbound { method: http::Method::POST, url, media_type: Some("application/json"), body: Some(body) })
}

fn call(method: Method, params: &impl Serialize) -> Result<Vec<u8>, Error> {
    // One call per HTTP request, so that one id serves them all.
    jsonrpc::encode_request(&jsonrpc::Id::number(1), method.as_str(), params)
        .map_err(|error| Error::Malformed(format!("the request cannot be written: {error}")))
}

pub(crate) fn decode(status: u16, body: &[u8]) -> Result<Box<RawValue>, Error> {
    match jsonrpc::decode_response(body) {
        Ok(response) => match response.result {
            Ok(result) => Ok(result.to_owned()),
            Err(remote) => Err(Error::told(status, remote)),
        },
        Err(error) => bare(status, body).ok_or_else(|| unreadable(status, body, error)),
    }
}

/// The result in an event of a stream. Some agents leave the envelope away there.
pub(crate) fn decode_frame(data: &str) -> Result<Box<RawValue>, Error> {
    decode(200, data.as_bytes()).or_else(|error| match &error {
        Error::Malformed(_) if is_bare_object(data) => RawValue::from_string(data.to_owned()).map_err(|_| error),
        _ => Err(error),
    })
}

/// Whether the text is a JSON object without a member of an envelope. The values are skipped, not kept.
fn is_bare_object(text: &str) -> bool {
    struct Bare;
    impl<'de> Visitor<'de> for Bare {
        type Value = bool;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<bool, A::Error> {
            let mut is_bare = true;
            while let Some(name) = members.next_key::<String>()? {
                is_bare &= !ENVELOPE.contains(&name.as_str());
                members.next_value::<IgnoredAny>()?;
            }
            Ok(is_bare)
        }
    }
    let mut json = serde_json::Deserializer::from_str(text);
    json.deserialize_map(Bare).is_ok_and(|is_bare| is_bare && json.end().is_ok())
}

/// The result in an envelope that does not say that it is one of JSON-RPC.
fn bare(status: u16, body: &[u8]) -> Option<Box<RawValue>> {
    #[derive(Deserialize)]
    struct Bare<'a> {
        jsonrpc: Option<IgnoredAny>,
        #[serde(borrow)]
        result: &'a RawValue,
        error: Option<IgnoredAny>,
    }
    let found: Bare<'_> = serde_json::from_slice(body).ok()?;
    let is_result = (200..300).contains(&status) && found.jsonrpc.is_none() && found.error.is_none();
    is_result.then(|| found.result.to_owned())
}

pub(crate) fn acknowledged(status: u16, body: &[u8]) -> Result<(), Error> {
    match jsonrpc::decode_acknowledgement(body) {
        Ok(result) => result.map_err(|remote| Error::told(status, remote)),
        Err(error) => Err(unreadable(status, body, error)),
    }
}

/// Whatever answers before the envelope is read (a proxy, an authenticator) speaks plain HTTP.
fn unreadable(status: u16, body: &[u8], error: a2a::Error) -> Error {
    if (200..300).contains(&status) {
        return Error::Malformed(error.message);
    }
    Error::told(status, RemoteError::from_status_body(status, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_errors_are_told_apart() {
        assert_eq!(decode(200, br#"{"jsonrpc":"2.0","id":1,"result":{"a":1.0}}"#).unwrap().get(), r#"{"a":1.0}"#);
        let error = decode(200, br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"no"}}"#).unwrap_err();
        assert!(matches!(error, Error::Protocol(remote) if remote.code == -32001));
        assert!(matches!(decode(401, b"{}"), Err(Error::Auth(_))));
        assert!(matches!(decode(502, b"<html>"), Err(Error::Protocol(_))));
        assert!(matches!(decode(200, b"<html>"), Err(Error::Malformed(_))));
    }

    #[test]
    fn a_frame_without_an_envelope_is_kept_as_its_bytes() {
        // A number that no value in memory holds shows that none is made.
        for frame in [r#"{"task":{"metadata":{"n":1e999}}}"#, r#" {"statusUpdate":{"taskId":"t"}}"#, "{}"] {
            assert_eq!(decode_frame(frame).unwrap().get(), frame.trim(), "{frame}");
        }
        for frame in [r#"{"jsonrpc":null,"task":{}}"#, r#"{"task":{},"error":null}"#, "[]", "1", r#"{"task":{}}}"#, "{"]
        {
            assert!(matches!(decode_frame(frame), Err(Error::Malformed(_))), "{frame}");
        }
    }

    #[test]
    fn nothing_is_written_in_several_ways() {
        for result in ["", r#","result":null"#, r#","result":{}"#] {
            assert!(acknowledged(200, format!(r#"{{"jsonrpc":"2.0","id":1{result}}}"#).as_bytes()).is_ok(), "{result}");
        }
        let error =
            acknowledged(200, br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"no"}}"#).unwrap_err();
        assert!(matches!(error, Error::Protocol(remote) if remote.code == -32001));
        assert!(matches!(acknowledged(502, b"<html>"), Err(Error::Protocol(_))));
        assert!(matches!(acknowledged(200, b""), Err(Error::Malformed(_))));
    }
}
