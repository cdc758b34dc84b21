//! JSON in one spelling: keys in order, no white space, numbers as a double or a whole number has them.
//!
//! It is written while it is read. No tree of the values is built, since that takes many times the room of the text.

use std::{borrow::Cow, fmt, ops::Range};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// The text of `json` in one spelling. An error where a number is beyond a double, or where it is no JSON.
pub(crate) fn spelled(json: &[u8]) -> serde_json::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(json.len());
    let mut reader = serde_json::Deserializer::from_slice(json);
    Writer(&mut out).deserialize(&mut reader)?;
    reader.end()?;
    Ok(out)
}

/// Writes what it reads.
struct Writer<'a>(&'a mut Vec<u8>);

/// A member of an object as it was written.
struct Member {
    /// The key, as JSON.
    key: Range<usize>,
    /// The key, a colon and the value.
    whole: Range<usize>,
}

impl Writer<'_> {
    fn write<E: Error>(self, value: impl serde::Serialize) -> Result<(), E> {
        serde_json::to_writer(self.0, &value).map_err(E::custom)
    }
}

impl<'de> DeserializeSeed<'de> for Writer<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Writer<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.write(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.write(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.write(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.write(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.write(value)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.write(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let out = self.0;
        let start = out.len();
        out.push(b'[');
        while list.next_element_seed(Writer(out))?.is_some() {
            out.push(b',');
        }
        close(out, start, b']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let out = self.0;
        let start = out.len();
        out.push(b'{');
        let mut members: Vec<Member> = Vec::new();
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            let begin = out.len();
            serde_json::to_writer(&mut *out, &key).map_err(A::Error::custom)?;
            let end = out.len();
            out.push(b':');
            map.next_value_seed(Writer(out))?;
            members.push(Member { key: begin..end, whole: begin..out.len() });
            out.push(b',');
        }
        // They mostly come in order.
        if !members.is_sorted_by(|one, next| name(out, one) < name(out, next)) {
            arrange(out, start + 1, members);
        }
        close(out, start, b'}');
        Ok(())
    }
}

/// Ends a list or an object in the place of its last comma, if it has one.
fn close(out: &mut Vec<u8>, start: usize, end: u8) {
    if out.len() > start + 1 {
        out.pop();
    }
    out.push(end);
}

/// A key without its quotes. What is escaped in it stands escaped, the same way for the same character.
fn name<'a>(out: &'a [u8], member: &Member) -> &'a [u8] {
    &out[member.key.start + 1..member.key.end - 1]
}

/// Puts members in order. Of those with the same name the last one counts.
fn arrange(out: &mut Vec<u8>, first: usize, mut members: Vec<Member>) {
    members.reverse();
    members.sort_by(|one, next| name(out, one).cmp(name(out, next)));
    members.dedup_by(|later, kept| name(out, later) == name(out, kept));
    let mut ordered = Vec::with_capacity(out.len() - first);
    for member in members {
        ordered.extend_from_slice(&out[member.whole]);
        ordered.push(b',');
    }
    out.truncate(first);
    out.extend_from_slice(&ordered);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spell(text: &str) -> String {
        String::from_utf8(spelled(text.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn a_spelling_is_that_of_a_tree_with_sorted_keys() {
        for text in [
            "null",
            " [ ] ",
            "{}",
            "[1,-2,3.0,1e2,18446744073709551615,-0.0,true,null,\"a\\u00e9\\n\\\"\"]",
            r#"{"b":1,"a":{"d":[{"z":0,"y":1}],"c":2},"ab":3,"":4}"#,
            r#"{"a":1,"b":2,"a":3}"#,
            r#"{"é":1,"e":2,"z":3}"#,
            r#"[[[],[{}]],{"k":[]}]"#,
        ] {
            let tree: serde_json::Value = serde_json::from_str(text).unwrap();
            assert_eq!(spell(text), tree.to_string(), "{text}");
        }
    }

    #[test]
    fn what_is_no_json_is_an_error() {
        for text in ["", "[1,]", "{\"a\":1,}", "1 2", "1e999", "[1"] {
            assert!(spelled(text.as_bytes()).is_err(), "{text}");
        }
    }
}
