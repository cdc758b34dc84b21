//! What commands print: results on stdout, everything else on stderr. A reader that goes away is no error.

use std::{
    io::{self, IsTerminal, Write},
    str::Chars,
    sync::atomic::{AtomicBool, Ordering},
};

use a2a::{Part, PartContent};
use clap::ValueEnum;

use crate::config::process_environment;

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Text,
    /// The protocol's objects as they came, one a line
    Json,
}

/// A line on stdout.
pub(crate) fn line(text: &str) {
    print(&format!("{text}\n"));
}

/// Text on stdout as it is, at once.
pub(crate) fn print(text: &str) {
    hide_spinner();
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// An agent's text on stdout. No terminal is to be steered by it, not even one at the end of a pipe; `-o json` keeps
/// every character.
pub(crate) fn print_foreign(text: &str) {
    print(&harmless(&text.replace("\r\n", "\n")));
}

/// A colour or weight of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Bold,
    Dim,
    Good,
    Doubtful,
    Bad,
}

/// Text in a style where stdout is a terminal and nobody has set NO_COLOR; elsewhere as it is.
pub(crate) fn styled(style: Style, text: &str) -> String {
    styled_for(&io::stdout(), style, text)
}

fn styled_for(reader: &impl IsTerminal, style: Style, text: &str) -> String {
    if !wants_color(reader) {
        return text.to_owned();
    }
    let code = match style {
        Style::Bold => "1",
        Style::Dim => "2",
        Style::Good => "32",
        Style::Doubtful => "33",
        Style::Bad => "31",
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

/// Whether colors are shown: on a terminal that can show them, unless NO_COLOR is set.
pub(crate) fn wants_color(reader: &impl IsTerminal) -> bool {
    reader.is_terminal() && !is_dumb() && process_environment("NO_COLOR").is_none()
}

fn is_dumb() -> bool {
    process_environment("TERM").as_deref() == Some("dumb")
}

/// A state in the color that says whether it is a good one. What is said of it behind a colon or a comma has none.
pub(crate) fn state(text: &str) -> String {
    let (word, detail) = text.split_at(text.find([':', ',']).unwrap_or(text.len()));
    match style_of(word.trim_end()) {
        Some(style) => styled(style, word) + detail,
        None => text.to_owned(),
    }
}

fn style_of(state: &str) -> Option<Style> {
    match state {
        "completed" | "running" | "active" | "enabled" | "acked" | "ok" | "up" | "reachable" => Some(Style::Good),
        "input-required" | "auth-required" | "stale" | "canceled" | "disabled" | "hidden" | "stopped" | "expired"
        | "warn" => Some(Style::Doubtful),
        "failed" | "rejected" | "broken" | "dead" | "dlq" | "revoked" | "down" | "fail" | "unreachable" => {
            Some(Style::Bad)
        }
        _ => None,
    }
}

/// Whether the spinner is on the terminal now.
static SPINNER: AtomicBool = AtomicBool::new(false);

/// Whether stderr can show a spinner.
pub(crate) fn can_spin() -> bool {
    io::stderr().is_terminal() && !is_dumb() && !is_for_programs()
}

/// Shows the spinner with this text in place of the one before. Whatever is printed next replaces it.
pub(crate) fn spinner(text: &str) {
    let stderr = io::stderr();
    let text: String = match width() {
        // A line that wraps could not be cleared.
        Some(width) => text.chars().take(width.saturating_sub(1)).collect(),
        None => text.to_owned(),
    };
    let text = styled_for(&stderr, Style::Dim, &text);
    let _ = write!(stderr.lock(), "\r\u{1b}[K{text}");
    SPINNER.store(true, Ordering::Relaxed);
}

/// Clears the line of the spinner, if it is there.
pub(crate) fn hide_spinner() {
    if SPINNER.swap(false, Ordering::Relaxed) {
        let _ = write!(io::stderr().lock(), "\r\u{1b}[K");
    }
}

/// Whether somebody reads results while they come, and not a file or another program.
pub(crate) fn is_watched() -> bool {
    io::stdout().is_terminal()
}

/// How many columns stdout has, where it is a terminal.
pub(crate) fn width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// How many lines stdout has, where it is a terminal.
pub(crate) fn height() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_row)).filter(|lines| *lines > 0)
}

/// A line beside an answer: dim among it where somebody watches, and on stderr where the answer has to stand alone.
pub(crate) fn aside(text: &str) {
    let text = format!("· {}", single_line(text));
    if is_watched() {
        line(&styled(Style::Dim, &text));
    } else {
        hide_spinner();
        let stderr = io::stderr();
        let _ = writeln!(stderr.lock(), "{}", styled_for(&stderr, Style::Dim, &text));
    }
}

/// Whether a program reads what the command says: then stderr has one JSON object a line as well.
static FOR_PROGRAMS: AtomicBool = AtomicBool::new(false);

/// From now on stderr is for a program.
pub(crate) fn speak_to_programs() {
    FOR_PROGRAMS.store(true, Ordering::Relaxed);
}

/// Whether stderr is for a program.
pub(crate) fn is_for_programs() -> bool {
    FOR_PROGRAMS.load(Ordering::Relaxed)
}

/// A line such as `error: …` on stderr.
pub(crate) fn error_line(label: &str, text: &str) {
    if is_for_programs() {
        return error_object(&serde_json::json!({ label: text.trim_end() }));
    }
    hide_spinner();
    let text = harmless(text.trim_end());
    let _ = writeln!(io::stderr().lock(), "{label}: {text}");
}

/// An object on stderr.
pub(crate) fn error_object(object: &serde_json::Value) {
    let _ = writeln!(io::stderr().lock(), "{object}");
}

/// Parts as text: text as it is, data as JSON, files by what they are.
pub(crate) fn parts_text(parts: &[Part]) -> String {
    let mut lines = Vec::new();
    for part in parts {
        lines.push(match &part.content {
            PartContent::Text(text) => text.clone(),
            PartContent::Data(data) => data.get().to_owned(),
            PartContent::Url(url) => single_line(url),
            PartContent::Raw(bytes) => {
                let size = format!("{} bytes", bytes.len());
                let known =
                    [part.filename.as_str(), &part.media_type, &size].into_iter().filter(|text| !text.is_empty());
                format!("[{}]", single_line(&known.collect::<Vec<_>>().join(", ")))
            }
        });
    }
    lines.join("\n")
}

/// JSON on one line. Only whitespace between tokens changes.
pub(crate) fn one_line(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut chars = json.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => copy_string(&mut chars, &mut out),
            c if c.is_ascii_whitespace() => {}
            c => out.push(c),
        }
    }
    out
}

/// JSON for reading. Only whitespace between tokens changes, so that nothing of the sender's is lost.
pub(crate) fn indented(json: &str) -> String {
    let compact = one_line(json);
    let mut out = String::with_capacity(compact.len() * 2);
    let mut depth = 0_usize;
    let mut chars = compact.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => copy_string(&mut chars, &mut out),
            '{' | '[' => {
                out.push(c);
                let closing = if c == '{' { '}' } else { ']' };
                if chars.as_str().starts_with(closing) {
                    out.push(closing);
                    chars.next();
                } else {
                    depth += 1;
                    break_line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                break_line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                break_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c => out.push(c),
        }
    }
    out
}

/// Copies a string whose opening quote has been read.
fn copy_string(chars: &mut Chars<'_>, out: &mut String) {
    out.push('"');
    while let Some(c) = chars.next() {
        out.push(c);
        match c {
            '\\' => out.extend(chars.next()),
            '"' => return,
            _ => {}
        }
    }
}

fn break_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

/// A text of others in which nothing steers a terminal or turns a line around. It keeps its lines.
pub(crate) fn harmless(text: &str) -> String {
    a2a::escape_text(text)
}

/// A name or title of others, on one line.
pub(crate) fn single_line(text: &str) -> String {
    a2a::escape_line(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whitespace_changes() {
        let json = "{ \"a\" : [1.0, {} , []],\n\t\"b{\\\"\": \"x: y, \\\\\" }";
        assert_eq!(one_line(json), r#"{"a":[1.0,{},[]],"b{\"":"x: y, \\"}"#);
        assert_eq!(indented(json), "{\n  \"a\": [\n    1.0,\n    {},\n    []\n  ],\n  \"b{\\\"\": \"x: y, \\\\\"\n}");
        assert_eq!(one_line(&indented(json)), one_line(json));
    }

    #[test]
    fn every_part_has_a_text() {
        let mut file = Part::raw(vec![0, 1]);
        file.filename = "a.bin".to_owned();
        file.media_type = "x/y".to_owned();
        let data = Part::data(a2a::Json::from_text("{\"n\":1}").unwrap());
        let parts = [Part::text("hello"), data, Part::url("https://h/x"), Part::raw(vec![0]), file];
        assert_eq!(parts_text(&parts), "hello\n{\"n\":1}\nhttps://h/x\n[1 bytes]\n[a.bin, x/y, 2 bytes]");
    }

    #[test]
    fn escapes_do_not_reach_a_terminal() {
        assert_eq!(harmless("a\u{1b}[2Jb\n\tc\u{202e}"), "a\\u{1b}[2Jb\n\tc\\u{202e}");
        assert_eq!(single_line("a\nb\u{202e}"), "a\\nb\\u{202e}");
    }
}
