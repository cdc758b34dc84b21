//! From bytes to a wire type, with an error that says which field is wrong.

use serde::de::DeserializeOwned;
use serde_json::error::Category;

use crate::error::{Error, ErrorKind, clean};

/// A path and a description together repeat at most [`crate::error::EXCERPT_CHARS`] characters of input.
const PATH_CHARS: usize = 80;
const DESCRIPTION_CHARS: usize = 120;

/// Reads a whole JSON text. What is not JSON is a ParseError; what is not a `T` is InvalidParams, with a violation whose
/// field is spelled as the sender spelled it.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    // Following the path costs an allocation for each key, so that it waits for an error.
    match serde_json::from_slice(bytes) {
        Ok(value) => Ok(value),
        Err(error) => Err(explain::<T>(bytes, &error)),
    }
}

fn explain<T: DeserializeOwned>(bytes: &[u8], error: &serde_json::Error) -> Error {
    // A type error may hide a syntax error that comes after it.
    let syntax = match error.classify() {
        Category::Data => serde_json::from_slice::<serde::de::IgnoredAny>(bytes).err(),
        Category::Syntax | Category::Eof | Category::Io => return not_json(error),
    };
    if let Some(syntax) = syntax {
        return not_json(&syntax);
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let Err(located) = serde_path_to_error::deserialize::<_, T>(&mut deserializer) else {
        return Error::invalid("", clean(&without_position(error), DESCRIPTION_CHARS));
    };
    let mut path = located.path().to_string();
    if path == "." {
        path.clear();
    }
    let description = without_position(located.inner());
    // The path of a missing field ends at the object that lacks it.
    let missing = description.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
    if let Some(name) = missing {
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(name);
        return Error::invalid(clean(&path, PATH_CHARS), "is required");
    }
    Error::invalid(clean(&path, PATH_CHARS), clean(&description, DESCRIPTION_CHARS))
}

fn not_json(error: &serde_json::Error) -> Error {
    Error::new(ErrorKind::ParseError, format!("not valid JSON: {}", clean(&error.to_string(), DESCRIPTION_CHARS)))
}

/// serde_json ends its messages with a line and a column. Beside a path they say nothing, and for parameters they would
/// not count from the start of the body.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SendMessageRequest, Task};

    fn violation(text: &str) -> (String, String) {
        let error = decode::<SendMessageRequest>(text.as_bytes()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidParams, "{error}");
        let [violation] = error.violations.as_slice() else { panic!("one violation") };
        (violation.field.clone(), violation.description.clone())
    }

    #[test]
    fn paths_are_spelled_as_the_sender_did() {
        for (text, field) in [
            (r#"{"message":{"messageId":5}}"#, "message.messageId"),
            (r#"{"message":{"message_id":5}}"#, "message.message_id"),
            (r#"{"message":{"parts":[{"text":"a"},{"text":1}]}}"#, "message.parts[1].text"),
            (r#"{"message":{"parts":[{"data":[1],"metadata":[]}]}}"#, "message.parts[0].metadata"),
            (r#"{"message":{"parts":[{}]}}"#, "message.parts[0]"),
            (r#"{"message":{"parts":{}}}"#, "message.parts"),
            (r#"{"message":{},"configuration":{"historyLength":"x"}}"#, "configuration.historyLength"),
            (r#"{"message":{"role":"user"}}"#, "message.role"),
            (r#"{"metadata":{}}"#, "message"),
            (r#"{"message":null}"#, "message"),
            ("[]", ""),
        ] {
            assert_eq!(violation(text).0, field, "{text}");
        }
    }

    #[test]
    fn descriptions_say_what_is_wrong() {
        assert_eq!(violation(r#"{"metadata":{}}"#).1, "is required");
        assert_eq!(
            violation(r#"{"message":{"parts":[{"text":"a","url":"b"}]}}"#).1,
            "more than one member of the oneof of Part is set"
        );
        assert_eq!(violation(r#"{"message":{"messageId":"a","message_id":"b"}}"#).1, "duplicate field `messageId`");
        assert_eq!(violation(r#"{"message":{"metadata":[]}}"#).1, "invalid type: sequence, expected an object");
    }

    #[test]
    fn a_missing_field_is_named_below_its_object() {
        let error = decode::<crate::StreamResponse>(br#"{"statusUpdate":{"taskId":"t"}}"#).unwrap_err();
        assert_eq!(error.violations[0].field, "statusUpdate.status");
    }

    #[test]
    fn what_is_not_json_is_a_parse_error() {
        for bytes in
            [&b""[..], b"{", b"{\"id\":1,}", b"[1,", b"\xff", b"{\"id\":\"\xff\"}", b"{} {}", br#"{"id":"\ud800"}"#]
        {
            assert_eq!(decode::<Task>(bytes).unwrap_err().kind, ErrorKind::ParseError, "{bytes:?}");
        }
    }

    #[test]
    fn little_of_the_input_is_repeated() {
        let long = "x".repeat(100_000);
        for text in [format!(r#"{{"message":{{"role":"{long}"}}}}"#), format!(r#"{{"message":{{"parts":"{long}"}}}}"#)]
        {
            let error = decode::<SendMessageRequest>(text.as_bytes()).unwrap_err();
            assert!(error.message.matches('x').count() <= crate::error::EXCERPT_CHARS);
        }
    }

    #[test]
    fn deep_nesting_does_not_exhaust_the_stack() {
        let deep = format!(r#"{{"unknown":{}1{}}}"#, "[".repeat(200_000), "]".repeat(200_000));
        assert!(decode::<crate::GetTaskRequest>(deep.as_bytes()).is_ok());
        let deep = deep.replace("unknown", "metadata");
        assert!(decode::<crate::CancelTaskRequest>(deep.as_bytes()).is_err());
    }
}
