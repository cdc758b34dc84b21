//! The lines between the server and a program that stays: each names its turn.
//!
//! In go turns, `{"id": "t9f…", "message": …}`, and `{"cancel": "t9f…"}`. Out come the words of [`exchange::words`] with an `id` beside
//! them, and `{"id": "t9f…", "end": true}`, which says what an exit with 0 says of a program that is started for each turn.

use std::collections::BTreeMap;

use a2a::Limits;
use exchange::words::{self, Word};
use serde_json::value::RawValue;

use crate::random;

/// What a program says of one turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Saying {
    /// Of which.
    pub(super) id: String,
    /// The word itself, without the id; nothing where it only says that the turn is over.
    pub(super) word: Vec<u8>,
    /// It says that the turn is over.
    pub(super) end: bool,
}

/// The id of a new turn. It cannot be guessed, so that text which a program passes on from one turn is never an answer for another.
pub(super) fn new_id() -> String {
    // A letter first: nothing takes it for a number.
    format!("t{}", random::word(16))
}

/// The line that asks a program to end a turn.
pub(super) fn cancel(id: &str) -> Vec<u8> {
    format!("{{\"cancel\":\"{id}\"}}\n").into_bytes()
}

/// Reads a line of a program; nothing where it is blank. An error says why nobody knows which turn it is about.
pub(super) fn read(line: &[u8]) -> Result<Option<Saying>, String> {
    if line.trim_ascii().is_empty() {
        return Ok(None);
    }
    let members: Result<BTreeMap<String, Box<RawValue>>, _> = serde_json::from_slice(line);
    let Ok(mut members) = members else { return Err("not an object in JSON".to_owned()) };
    let Some(id) = members.remove("id") else { return Err("no `id`".to_owned()) };
    let id = match serde_json::from_str::<String>(id.get()) {
        Ok(id) => id,
        // Some languages make a number of what looks like one.
        Err(_) => id.get().to_owned(),
    };
    let end = match members.remove("end") {
        Some(end) if end.get() == "true" && members.is_empty() => true,
        // It is read as a word, and that says what is wrong with it.
        Some(end) => {
            members.insert("end".to_owned(), end);
            false
        }
        None => false,
    };
    let word = if end { Vec::new() } else { serde_json::to_vec(&members).map_err(|error| error.to_string())? };
    Ok(Some(Saying { id, word, end }))
}

impl Saying {
    /// Whether the turn is over with it.
    pub(super) fn is_last(&self) -> bool {
        self.end || matches!(words::read(&self.word, &Limits::default()), Ok(Word::End { .. } | Word::Message(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> Saying {
        read(line.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn a_line_names_its_turn() {
        let line = r#"{"id":"7","message":{"parts":[{"text":"hi"}],"metadata":{"n":1.50}}}"#;
        let saying = said(line);
        assert_eq!(saying.id, "7");
        assert_eq!(saying.word, br#"{"message":{"parts":[{"text":"hi"}],"metadata":{"n":1.50}}}"#);
        assert!(saying.is_last());
        assert_eq!(said(r#"{"keep":1,"id":7}"#), Saying { id: "7".into(), word: br#"{"keep":1}"#.into(), end: false });
        assert!(!said(r#"{"keep":1,"id":7}"#).is_last());
        assert_eq!(read(b"  \t").unwrap(), None);
    }

    #[test]
    fn an_end_stands_alone() {
        assert_eq!(said(r#"{"id":"7","end":true}"#), Saying { id: "7".into(), word: Vec::new(), end: true });
        for line in [r#"{"id":"7","end":false}"#, r#"{"id":"7","end":true,"keep":1}"#] {
            let saying = said(line);
            assert!(!saying.is_last() && words::read(&saying.word, &Limits::default()).is_err(), "{line}");
        }
    }

    #[test]
    fn what_names_no_turn_is_an_error() {
        for (line, why) in [
            ("loading…", "not an object"),
            ("[]", "not an object"),
            ("{}", "no `id`"),
            (r#"{"id":"7""#, "not an object"),
        ] {
            assert!(read(line.as_bytes()).unwrap_err().starts_with(why), "{line}");
        }
    }

    #[test]
    fn a_cancel_is_a_line() {
        assert_eq!(cancel("t7"), b"{\"cancel\":\"t7\"}\n");
    }

    #[test]
    fn ids_are_random() {
        let ids: std::collections::BTreeSet<String> = (0..1000).map(|_| new_id()).collect();
        assert_eq!(ids.len(), 1000);
        // Neighbors share no more than chance gives: of 32 digits about two are equal, and never the first half.
        let ids: Vec<String> = (0..1000).map(|_| new_id()).collect();
        assert!(ids.iter().all(|id| id.len() == 33 && id.starts_with('t')));
        assert!(ids.windows(2).all(|pair| pair[0][..17] != pair[1][..17] && pair[0][17..] != pair[1][17..]));
    }
}
