//! A table of an agent file that still knows its place in the text, so that what is wrong can be said with the line.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::{
    Spanned,
    de::{DeTable, DeValue, Deserializer, Error},
};

use crate::units::{DURATION, nearest};

/// A table of a file, not yet read: the top of the file, or what a kind has to itself.
pub struct Table<'a> {
    text: &'a str,
    /// What it is called, with a full stop; empty at the top.
    prefix: String,
    rows: Spanned<DeTable<'a>>,
    /// Keys that it has although they are not in the rows any more.
    taken: Vec<&'static str>,
    /// Where keys stand that belong to the other table of the file, and which they are.
    other: Option<(String, Vec<String>)>,
}

/// The keys that a table of this type may have.
pub fn keys_of<T: DeserializeOwned>() -> Vec<String> {
    // The words of serde name all of them when one is wrong.
    let words = toml::from_str::<T>("\"\" = 0").err().map(|error| error.message().to_owned()).unwrap_or_default();
    words.split('`').skip(3).step_by(2).map(str::to_owned).collect()
}

impl<'a> Table<'a> {
    /// The top of a file.
    pub(crate) fn parse(text: &'a str) -> Result<Self, String> {
        let rows = DeTable::parse(text).map_err(|error| {
            let problem = explain(text, "", &[], None, &error);
            match quotes(text, error.span(), error.message()) {
                Some(line) => format!("{problem}; write `{line}`"),
                None => problem,
            }
        })?;
        Ok(Self { text, prefix: String::new(), rows, taken: Vec::new(), other: None })
    }

    /// Says where keys of the other table stand: who writes one here is told so.
    pub(super) fn beside(&mut self, place: String, keys: Vec<String>) {
        self.other = Some((place, keys));
    }

    /// Takes a text out of it.
    pub(super) fn text(&mut self, key: &'static str) -> Result<Option<String>, String> {
        match self.take(key).map(|value| (value.span().start, value.into_inner())) {
            Some((_, DeValue::String(text))) => Ok(Some(text.into_owned())),
            Some((at, _)) => Err(format!("line {}: `{key}` is not a text", line(self.text, at))),
            None => Ok(None),
        }
    }

    /// Takes a table out of it, an empty one if it has none of this name.
    pub(super) fn table(&mut self, name: &'static str) -> Result<Self, String> {
        let value = self.take(name).unwrap_or_else(|| Spanned::new(0..0, DeValue::Table(DeTable::new())));
        let span = value.span();
        let DeValue::Table(rows) = value.into_inner() else {
            return Err(format!("line {}: `{name}` is not a table: write `[{name}]`", line(self.text, span.start)));
        };
        Ok(Self {
            text: self.text,
            prefix: format!("{name}."),
            rows: Spanned::new(span, rows),
            taken: Vec::new(),
            other: None,
        })
    }

    /// The line of the key of this name, where there is one.
    pub(super) fn line_of(&self, key: &str) -> Option<usize> {
        let (name, _) = self.rows.get_ref().get_key_value(key)?;
        Some(line(self.text, name.span().start))
    }

    /// Moves these keys here from a table where older files have them. Gives the warning that shows the new form.
    pub(super) fn adopt(&mut self, keys: &[&str], from: &mut Self) -> Result<Option<String>, String> {
        let mut lines = Vec::new();
        for &key in keys {
            let Some((name, value)) = from.rows.get_mut().remove_entry(key) else { continue };
            if self.rows.get_ref().contains_key(key) {
                let (place, line) = (&from.prefix, line(self.text, name.span().start));
                return Err(format!("line {line}: `{place}{key}` is there already as `{key}`; remove one of them"));
            }
            lines.push(format!("`{key} = {}`", self.text.get(value.span()).unwrap_or_default()));
            self.rows.get_mut().insert(name, value);
        }
        let (place, lines) = (from.prefix.trim_end_matches('.'), lines.join(", "));
        let warning =
            || format!("`[{place}]` has keys that now stand at the top of the file, above all tables: {lines}");
        Ok((!lines.is_empty()).then(warning))
    }

    /// Reads it.
    pub fn read<T: DeserializeOwned>(self) -> Result<T, String> {
        serde_path_to_error::deserialize(Deserializer::from(self.rows)).map_err(|error| {
            // What was taken belongs to this table, not to those inside of it.
            let inside = error.path().iter().len() > 1;
            let taken = if inside { &[][..] } else { &self.taken };
            let other = self.other.as_ref().filter(|_| !inside);
            // The path of the table itself is a full stop.
            let path = error.path().to_string();
            let path = format!("{}{}", self.prefix, path.trim_start_matches('.'));
            explain(self.text, path.trim_end_matches('.'), taken, other, error.inner())
        })
    }

    fn take(&mut self, key: &'static str) -> Option<Spanned<DeValue<'a>>> {
        self.taken.push(key);
        self.rows.get_mut().remove(key)
    }
}

/// What is said of a name that does not exist: the one that was probably meant, and all there are.
pub(super) fn unknown(what: &str, wrong: &str, known: &[&str]) -> String {
    let meant = nearest(wrong, known).map_or_else(String::new, |name| format!(" did you mean `{name}`?"));
    format!("unknown {what} `{wrong}`;{meant} {what}s are: {}", known.join(", "))
}

/// What is said of a key that does not exist where it stands, and does in the other table of the file, or nearly.
fn elsewhere(wrong: &str, known: &[&str], other: Option<&(String, Vec<String>)>) -> Option<String> {
    let (place, keys) = other?;
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    if keys.contains(&wrong) {
        return Some(format!("`{wrong}` stands {place}"));
    }
    if nearest(wrong, known).is_some() {
        return None;
    }
    let meant = nearest(wrong, &keys)?;
    Some(format!("unknown key `{wrong}`; did you mean `{meant}`, which stands {place}?"))
}

/// The parser's own words with the line and the key.
fn explain(text: &str, key: &str, taken: &[&str], other: Option<&(String, Vec<String>)>, error: &Error) -> String {
    let message = error.message().trim_end().replace('\n', ", ");
    // The words of serde: "unknown field `a`, expected one of `b`, `c`".
    let mut names = message.split('`').skip(1).step_by(2);
    let problem = if message.starts_with("unknown field") {
        let wrong = names.next().unwrap_or_default();
        let known: Vec<&str> = taken.iter().copied().chain(names).collect();
        elsewhere(wrong, &known, other).unwrap_or_else(|| unknown("key", wrong, &known))
    } else if message.starts_with("unknown variant") {
        let wrong = names.next().unwrap_or_default();
        format!("`{key}`: {}", unknown("value", wrong, &names.collect::<Vec<_>>()))
    } else if message.starts_with("missing field") {
        let dot = if key.is_empty() { "" } else { "." };
        format!("missing key `{key}{dot}{}`", names.next().unwrap_or_default())
    } else if let Some(mistyped) = mistyped(key, &message) {
        mistyped
    } else if key.is_empty() {
        message
    } else {
        format!("`{key}`: {message}")
    };
    // A table that is not there has no place.
    match error.span().filter(|span| span.end > 0) {
        Some(span) => format!("line {}: {problem}", line(text, span.start)),
        None => problem,
    }
}

/// The line with an error as it would be right, if quotes are what is wrong: a text without them, or another value with them.
pub fn quotes(text: &str, span: Option<Range<usize>>, message: &str) -> Option<String> {
    let at = span?.start.min(text.len());
    let begin = text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
    let (key, value) = text.get(begin..)?.lines().next()?.split_once('=')?;
    let (key, value) = (key.trim(), value.trim());
    let plain = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    match plain {
        Some(plain) if message.starts_with("invalid type: string") => {
            let is_value = matches!(plain, "true" | "false") || plain.parse::<i64>().is_ok();
            is_value.then(|| format!("{key} = {plain}"))
        }
        Some(_) => None,
        None => {
            // What begins with one of these is meant to be something else, or has a quote too few.
            let value = value.split(" #").next().unwrap_or(value).trim_end();
            let truth = match value.to_ascii_lowercase().as_str() {
                "yes" | "on" | "true" => Some(true),
                "no" | "off" | "false" => Some(false),
                _ => None,
            };
            if let Some(truth) = truth {
                return Some(format!("{key} = {truth}")).filter(|line| !line.ends_with(value));
            }
            if message.ends_with(DURATION) && value.parse::<u64>().is_ok() {
                return Some(format!("{key} = \"{value}s\""));
            }
            let is_text = !value.is_empty() && !value.contains(['"', '\'', '[', '{', '\\']);
            (is_text && value.parse::<f64>().is_err()).then(|| format!("{key} = \"{value}\""))
        }
    }
}

/// What values are to look like that are no plain ones, by the last part of their key.
const SHAPES: [(&str, &str); 16] = [
    ("argv", r#"a list of strings, e.g. ["python3", "main.py"]"#),
    ("skills", r#"tables, each under a line `[[skills]]`, e.g. with id = "count""#),
    ("extensions", r#"tables, each under a line `[[extensions]]`, e.g. with uri = "https://example.org/x""#),
    ("tags", r#"a list of strings, e.g. ["text"]"#),
    ("examples", r#"a list of strings, e.g. ["the quick brown fox"]"#),
    ("input_modes", r#"a list of strings, e.g. ["text/plain"]"#),
    ("output_modes", r#"a list of strings, e.g. ["text/plain"]"#),
    ("tenants", r#"a list of strings, e.g. ["default"]"#),
    ("pass_env", r#"a list of strings, e.g. ["OPENAI_API_KEY"]"#),
    ("env", r#"a table of strings, e.g. { LANG = "C" }"#),
    ("readable", r#"a list of strings, e.g. ["/srv/models"]"#),
    ("timeout", DURATION),
    ("reveal_after", DURATION),
    ("grace", DURATION),
    ("idle", DURATION),
    ("cpu_time", DURATION),
];

/// What is said of a value of a wrong type: what the key wants, in the words of the file.
fn mistyped(key: &str, message: &str) -> Option<String> {
    // The words of serde: "invalid type: string \"a\", expected a sequence".
    let (found, expected) = message.strip_prefix("invalid type: ")?.rsplit_once(", expected ")?;
    let name = key.rsplit('.').next().unwrap_or(key);
    let (list, of_list) = name.split_once('[').map_or((name, false), |(list, _)| (list, true));
    let shape = SHAPES.iter().find(|(known, _)| *known == list).map(|(_, shape)| *shape);
    let wanted = match (expected, shape) {
        // What stands in a list of tables is the list's matter.
        (expected, Some(shape)) if !of_list || expected.starts_with("struct ") => shape,
        ("a sequence", _) => "a list",
        ("a map", _) => "a table",
        (expected, _) if expected.starts_with("struct ") => "a table",
        ("a boolean", _) => "true or false",
        (expected, _) if ["u8", "u16", "u32", "u64", "usize", "i64"].contains(&expected) => "a whole number",
        (expected, _) if expected.starts_with("a nonzero ") => "a whole number from 1 on",
        (expected, _) => expected,
    };
    let found = match found.split_once(' ') {
        Some(("string", text)) => format!("the string {text}"),
        Some(("integer" | "floating", number)) => {
            format!("the number {}", number.replace("point ", "").replace('`', ""))
        }
        Some(("boolean", value)) => value.replace('`', ""),
        _ if found == "map" => "a table".to_owned(),
        _ if found == "sequence" => "a list".to_owned(),
        _ => found.to_owned(),
    };
    let key =
        if shape.is_some() && expected.starts_with("struct ") { key.split('[').next().unwrap_or(key) } else { key };
    Some(format!("`{key}` must be {wanted}, not {found}"))
}

fn line(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or(text).matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_named_in_the_words_of_the_file() {
        #[derive(Debug, serde::Deserialize)]
        #[expect(dead_code, reason = "it is only read")]
        struct Top {
            argv: Option<Vec<String>>,
            skills: Option<Vec<Skill>>,
            concurrency: Option<std::num::NonZeroUsize>,
            network: Option<bool>,
            name: Option<String>,
            env: Option<std::collections::BTreeMap<String, String>>,
        }
        #[derive(Debug, serde::Deserialize)]
        #[expect(dead_code, reason = "it is only read")]
        struct Skill {
            id: String,
            tags: Option<Vec<String>>,
        }
        for (text, said) in [
            (
                "argv = \"sh -c\"",
                r#"line 1: `argv` must be a list of strings, e.g. ["python3", "main.py"], not the string "sh -c""#,
            ),
            ("argv = [\"sh\", 3]", "line 1: `argv[1]` must be a string, not the number 3"),
            (
                "[skills]\nid = \"a\"",
                r#"line 1: `skills` must be tables, each under a line `[[skills]]`, e.g. with id = "count", not a table"#,
            ),
            (
                "skills = [\"a\"]",
                r#"line 1: `skills` must be tables, each under a line `[[skills]]`, e.g. with id = "count", not the string "a""#,
            ),
            ("[[skills]]\nid = 7", "line 2: `skills[0].id` must be a string, not the number 7"),
            (
                "[[skills]]\nid = \"a\"\ntags = \"b\"",
                r#"line 3: `skills[0].tags` must be a list of strings, e.g. ["text"], not the string "b""#,
            ),
            (
                "concurrency = \"four\"",
                r#"line 1: `concurrency` must be a whole number from 1 on, not the string "four""#,
            ),
            ("network = \"yes\"", r#"line 1: `network` must be true or false, not the string "yes""#),
            ("name = true", "line 1: `name` must be a string, not true"),
            ("env = [\"A=b\"]", r#"line 1: `env` must be a table of strings, e.g. { LANG = "C" }, not a list"#),
            ("env = { A = 1.5 }", "line 1: `env.A` must be a string, not the number 1.5"),
        ] {
            assert_eq!(Table::parse(text).unwrap().read::<Top>().unwrap_err(), said);
        }
    }

    #[test]
    fn what_was_meant_is_near() {
        let known = ["argv", "cwd", "env", "concurrency"];
        for (wrong, meant) in [("agrv", "argv"), ("concurency", "concurrency")] {
            let said = unknown("key", wrong, &known);
            assert_eq!(
                said,
                format!("unknown key `{wrong}`; did you mean `{meant}`? keys are: argv, cwd, env, concurrency")
            );
        }
        for wrong in ["colour", "id", ""] {
            assert!(unknown("key", wrong, &known).ends_with("`; keys are: argv, cwd, env, concurrency"), "{wrong}");
        }
    }
}
