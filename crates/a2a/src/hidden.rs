//! Characters that steer a terminal, turn a line around or cannot be seen.

/// Whether a character is not what it looks like in a name: a control character, one that changes the direction of text, one that
/// ends a line, or one without a width.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// Whether a hidden character belongs to written language: what joins letters and emoji, or marks a direction without overriding
/// that of others.
fn joins(c: char) -> bool {
    matches!(c, '\u{200c}'..='\u{200f}' | '\u{fe00}'..='\u{fe0f}' | '\u{ad}' | '\u{61c}')
}

/// A text of several lines in which every hidden character is shown escaped, but for line breaks, tabs and what languages need.
pub fn escape_text(text: &str) -> String {
    escape(text, |c| is_hidden(c) && !matches!(c, '\n' | '\t') && !joins(c))
}

/// A text for one line, a name for example, in which every hidden character is shown escaped.
pub fn escape_line(text: &str) -> String {
    escape(text, is_hidden)
}

fn escape(text: &str, is_escaped: impl Fn(char) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_escaped(c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_shown() {
        assert_eq!(escape_line("invoice\u{202e}fdp.exe"), r"invoice\u{202e}fdp.exe");
        assert_eq!(escape_line("a\r\nb\tc\u{1b}[2J\u{9b}1m"), r"a\r\nb\tc\u{1b}[2J\u{9b}1m");
        assert_eq!(
            escape_line("a\u{200b}\u{feff}\u{2066}\u{2028}\u{e0041}b"),
            r"a\u{200b}\u{feff}\u{2066}\u{2028}\u{e0041}b"
        );
        assert_eq!(escape_line("né ß 日本 \u{1f468} \\"), "né ß 日本 \u{1f468} \\");
    }

    #[test]
    fn a_text_keeps_its_lines_and_its_language() {
        assert_eq!(escape_text("a\n\tb\u{1b}]0;x\u{7}"), "a\n\tb\\u{1b}]0;x\\u{7}");
        assert_eq!(escape_text("\u{202e}x\u{2067}y\u{200b}z"), r"\u{202e}x\u{2067}y\u{200b}z");
        let emoji = "\u{1f468}\u{200d}\u{1f469} \u{2764}\u{fe0f} می\u{200c}خواهم";
        assert_eq!(escape_text(emoji), emoji);
    }
}
