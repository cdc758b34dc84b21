//! Small pure functions between the protocol and the store.

use a2a::{Error, ErrorKind, Message, Part, PartContent};
use sha2::{Digest, Sha256};
use store::TaskId;

/// When trying again makes sense, in seconds: tasks end all the time, storage is made free by people.
const RETRY_TASKS: u32 = 5;
const RETRY_STORED: u32 = 300;

/// A store error as a caller may see it. Internals go to the log, not over the wire.
pub(crate) fn store_error(error: &store::Error) -> Error {
    match error {
        store::Error::Terminal(state) => {
            Error::new(ErrorKind::UnsupportedOperation, format!("the task has already ended as {}", state.as_str()))
        }
        store::Error::IdempotencyConflict => Error::new(
            ErrorKind::InvalidParams,
            "this idempotency key or message id was used before with other content",
        )
        .with_reason("IDEMPOTENCY_CONFLICT"),
        store::Error::InboxFull => Error::new(
            ErrorKind::ResourceExhausted,
            "too many messages are waiting for this task; wait for a turn to end",
        )
        .with_retry_after(RETRY_TASKS),
        store::Error::TooManyTasks { limit } => Error::new(
            ErrorKind::ResourceExhausted,
            format!("{limit} tasks have not ended, as many as there may be; wait for one to end, or cancel one"),
        )
        .with_metadata("limitTasks", limit.to_string())
        .with_retry_after(RETRY_TASKS),
        store::Error::TooMuchStored { limit } => {
            Error::new(ErrorKind::ResourceExhausted, format!("the {limit} bytes that may be stored are used up"))
                .with_metadata("limitStoredBytes", limit.to_string())
                .with_retry_after(RETRY_STORED)
        }
        store::Error::Unavailable(why) => {
            tracing::warn!(error = %why, "the journal refused a call");
            Error::new(ErrorKind::Unavailable, "the journal cannot take this now; try again")
        }
        other => {
            tracing::error!(error = %other, "a store call failed");
            Error::new(ErrorKind::Internal, "internal error")
        }
    }
}

/// The same, where "not found" means this task.
pub(crate) fn task_error(error: &store::Error, id: &str) -> Error {
    match error {
        store::Error::NotFound => Error::task_not_found(id),
        other => store_error(other),
    }
}

/// A caller's task id, or the not-found that any unknown id gets.
pub(crate) fn task_id(text: &str) -> Result<TaskId, Error> {
    TaskId::parse(text).ok_or_else(|| Error::task_not_found(text))
}

/// Hashes fields so that no two lists of fields give the same bytes.
pub(crate) fn digest(fields: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for field in fields {
        hash.update(u64::try_from(field.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(field);
    }
    hash.finalize().into()
}

/// A hash of what a message says, whatever its spelling: key order, white space and the names a
/// binding allows do not count.
pub(crate) fn fingerprint(agent: &str, message: &Message) -> Result<[u8; 32], Error> {
    let internal = |_| Error::new(ErrorKind::Internal, "internal error");
    // A `Value` keeps its keys sorted, so that this is canonical.
    let bytes = serde_json::to_vec(message).map_err(internal)?;
    let canonical = match serde_json::from_slice::<serde_json::Value>(&bytes) {
        Ok(value) => serde_json::to_vec(&value).map_err(internal)?,
        // A number that no double can hold: only the same spelling counts as the same message.
        Err(_) => bytes,
    };
    Ok(digest(&[agent.as_bytes(), &canonical]))
}

/// The media type of a part, said or implied.
fn media_type(part: &Part) -> &str {
    if !part.media_type.is_empty() {
        return &part.media_type;
    }
    match part.content {
        PartContent::Text(_) => "text/plain",
        PartContent::Data(_) => "application/json",
        PartContent::Raw(_) | PartContent::Url(_) => "application/octet-stream",
    }
}

/// Checks that an agent takes every part.
pub(crate) fn check_modes(parts: &[Part], modes: &[String]) -> Result<(), Error> {
    for (n, part) in parts.iter().enumerate() {
        let given = media_type(part);
        if !modes.iter().any(|mode| mode_matches(mode, given)) {
            let mut error = Error::new(
                ErrorKind::ContentTypeNotSupported,
                format!("the agent takes {}, not {given}", modes.join(", ")),
            );
            error.violations.push(a2a::FieldViolation {
                field: format!("message.parts[{n}].mediaType"),
                description: "media type is not among the agent's input modes".to_owned(),
            });
            return Err(error);
        }
    }
    Ok(())
}

/// Whether a mode such as `text/*` covers a media type; parameters do not count.
fn mode_matches(mode: &str, given: &str) -> bool {
    let essence = |text: &str| text.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    let (mode, given) = (essence(mode), essence(given));
    if mode == "*/*" || mode == given {
        return true;
    }
    match mode.strip_suffix("/*") {
        Some(kind) => given.split('/').next() == Some(kind),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_understand_wildcards_and_parameters() {
        assert!(mode_matches("*/*", "image/png"));
        assert!(mode_matches("text/*", "text/markdown; charset=utf-8"));
        assert!(mode_matches("text/plain", "TEXT/PLAIN"));
        assert!(!mode_matches("text/*", "textual/plain"));
        assert!(!mode_matches("text/plain", "application/json"));
    }

    #[test]
    fn a_fingerprint_looks_at_what_is_said_and_not_at_its_spelling() {
        let fingerprint = |json: &str| super::fingerprint("echo", &serde_json::from_str(json).unwrap()).unwrap();
        let data = |data: &str| format!(r#"{{"messageId":"m","role":"ROLE_USER","parts":[{{"data":{data}}}]}}"#);
        assert_eq!(fingerprint(&data(r#"{"a":1,"b":2}"#)), fingerprint(&data(r#"{ "b": 2, "a": 1 }"#)));
        assert_ne!(fingerprint(&data("1")), fingerprint(&data("2")));
        assert_eq!(fingerprint(&data("1e999")), fingerprint(&data("1e999")), "beyond a double");
        assert_ne!(fingerprint(&data("1e999")), fingerprint(&data("2e999")));
    }

    #[test]
    fn digests_keep_fields_apart() {
        assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"a", b"bc"]));
    }
}
