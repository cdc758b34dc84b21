//! A table of an agent file that still knows its place in the text, so that what is wrong can be said with the line.

use serde::de::DeserializeOwned;
use toml::{
    Spanned,
    de::{DeTable, DeValue, Deserializer, Error},
};

use crate::units::nearest;

/// A table of a file, not yet read: the top of the file, or what a kind has to itself.
pub struct Table<'a> {
    text: &'a str,
    /// What it is called, with a full stop; empty at the top.
    prefix: String,
    rows: Spanned<DeTable<'a>>,
    /// Keys that it has although they are not in the rows any more.
    taken: Vec<&'static str>,
}

impl<'a> Table<'a> {
    /// The top of a file.
    pub(crate) fn parse(text: &'a str) -> Result<Self, String> {
        let rows = DeTable::parse(text).map_err(|error| explain(text, "", &[], &error))?;
        Ok(Self { text, prefix: String::new(), rows, taken: Vec::new() })
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
        Ok(Self { text: self.text, prefix: format!("{name}."), rows: Spanned::new(span, rows), taken: Vec::new() })
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
            let taken = if error.path().iter().len() > 1 { &[][..] } else { &self.taken };
            // The path of the table itself is a full stop.
            let path = error.path().to_string();
            let path = format!("{}{}", self.prefix, path.trim_start_matches('.'));
            explain(self.text, path.trim_end_matches('.'), taken, error.inner())
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

/// The parser's own words with the line and the key.
fn explain(text: &str, key: &str, taken: &[&str], error: &Error) -> String {
    let message = error.message().trim_end().replace('\n', ", ");
    // The words of serde: "unknown field `a`, expected one of `b`, `c`".
    let mut names = message.split('`').skip(1).step_by(2);
    let problem = if message.starts_with("unknown field") {
        let wrong = names.next().unwrap_or_default();
        unknown("key", wrong, &taken.iter().copied().chain(names).collect::<Vec<_>>())
    } else if message.starts_with("unknown variant") {
        let wrong = names.next().unwrap_or_default();
        format!("`{key}`: {}", unknown("value", wrong, &names.collect::<Vec<_>>()))
    } else if message.starts_with("missing field") {
        let dot = if key.is_empty() { "" } else { "." };
        format!("missing key `{key}{dot}{}`", names.next().unwrap_or_default())
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

fn line(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or(text).matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

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
