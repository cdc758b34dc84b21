//! Small pure functions between the protocol and the store.

use a2a::{ErrorKind, Message, Part, PartContent};
use sha2::{Digest, Sha256};
use store::TaskId;

use crate::{Error, canonical};

/// A caller's task id, or the not-found that any unknown id gets.
pub(crate) fn task_id(text: &str) -> Result<TaskId, Error> {
    TaskId::parse(text).ok_or_else(|| Error::TaskNotFound(text.to_owned()))
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
    let bytes = serde_json::to_vec(message).map_err(store::Error::from)?;
    // A number that no double can hold: only the same spelling counts as the same message.
    let spelled = canonical::spelled(&bytes).unwrap_or(bytes);
    Ok(digest(&[agent.as_bytes(), &spelled]))
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
            let mut error = a2a::Error::new(
                ErrorKind::ContentTypeNotSupported,
                format!("the agent takes {}, not {given}", modes.join(", ")),
            );
            error.violations.push(a2a::FieldViolation {
                field: format!("message.parts[{n}].mediaType"),
                description: "media type is not among the agent's input modes".to_owned(),
            });
            return Err(error.into());
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
