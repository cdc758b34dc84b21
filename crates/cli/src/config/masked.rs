//! Texts that may hold a password: where the journal is, how instances wake each other. None is ever printed.

use std::{convert::Infallible, fmt, str::FromStr};

use serde::Deserialize;

/// A text that may hold a password and does not print it.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Masked(String);

impl Masked {
    pub(super) fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl FromStr for Masked {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Masked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&masked(&self.0))
    }
}

impl fmt::Debug for Masked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", masked(&self.0))
    }
}

/// A text with the logins of all URLs in it hidden, whatever else is wrong with them.
pub(super) fn masked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(found) = rest.find("://") {
        let (before, url) = rest.split_at(found + 3);
        out.push_str(before);
        // A password may hold what no URL may hold, except the end of its line.
        let end = url.find('\n').unwrap_or(url.len());
        let (line, after) = url.split_at(end);
        let login = line.rfind('@').unwrap_or(0);
        match line[..login].strip_suffix(":***") {
            // Hidden before, by someone who knows which part is the user's name.
            Some(user) if !user.contains([':', '@', '/']) => out.push_str(&line[..login]),
            _ if login > 0 => out.push_str("***"),
            _ => {}
        }
        out.push_str(&without_password(&line[login..]));
        rest = after;
    }
    out.push_str(rest);
    out
}

/// A URL's end with its `password=` hidden.
fn without_password(text: &str) -> String {
    const NAME: &str = "password=";
    let Some(found) = text.to_ascii_lowercase().find(NAME) else {
        return text.to_owned();
    };
    let (before, value) = text.split_at(found + NAME.len());
    let end = value.find(['&', '"', '\'', '`']).unwrap_or(value.len());
    format!("{before}***{}", without_password(&value[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_login_is_shown() {
        for (text, shown) in [
            ("postgres://u:p@h/d", "postgres://***@h/d"),
            ("postgres://u:***@h/d", "postgres://u:***@h/d"),
            ("postgres://u:p@:***@h/d", "postgres://***@h/d"),
            ("postgres://u:p/@?w@h/d", "postgres://***@h/d"),
            ("postgres://h/d?PassWord=x&a=b", "postgres://h/d?PassWord=***&a=b"),
            ("nats://token@h:4222", "nats://***@h:4222"),
            ("sqlite:/data", "sqlite:/data"),
            ("1 | store = \"postgres://u:p@h\n  | ^ here @\n", "1 | store = \"postgres://***@h\n  | ^ here @\n"),
        ] {
            assert_eq!(masked(text), shown);
            assert_eq!(format!("{:?}", Masked::new(text.to_owned())), format!("{shown:?}"));
        }
    }
}
