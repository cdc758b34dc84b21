//! The agent NAME. It reads one JSON object, and all that it prints is the answer; stderr is for the log.
//!
//! It needs no crates. With `serde_json` in Cargo.toml, `text_of` is `turn["message"]["parts"][0]["text"]`.

use std::io::{self, Read, Write};

fn main() -> io::Result<()> {
    let mut turn = String::new();
    io::stdin().read_to_string(&mut turn)?;
    let text = text_of(&turn).unwrap_or_default();
    let mut out = io::stdout().lock();
    write!(out, "You said: {text}")?;
    out.flush()
}

/// The first text of the message, which comes before the history.
fn text_of(turn: &str) -> Option<String> {
    let message = turn.split_once("\"message\":")?.1;
    let mut rest = message.split_once("\"text\":\"")?.1.chars();
    let mut text = String::new();
    loop {
        match rest.next()? {
            '"' => return Some(text),
            '\\' => match rest.next()? {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                'b' => text.push('\u{8}'),
                'f' => text.push('\u{c}'),
                // The server writes characters as they are; only those that control a terminal come like this.
                'u' => {
                    let digits: String = rest.by_ref().take(4).collect();
                    text.extend(u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32));
                }
                other => text.push(other),
            },
            other => text.push(other),
        }
    }
}
