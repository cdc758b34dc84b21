//! Whether a command printed what its page shows. What differs from run to run is not compared: ids, times, lengths of
//! time, numbers of bytes, tokens and names of keys, and whatever `…` stands for in the page.

/// Compares; an error says what was printed instead.
pub(crate) fn compare(shown: &str, printed: &str) -> Result<(), String> {
    let lines = |text: &str| masked(text, &mut |kind, _| kind.to_owned());
    compare_lines(&lines(shown), &lines(printed))
}

/// Compares lines in which nothing differs from run to run.
pub(crate) fn compare_lines(shown: &[String], printed: &[String]) -> Result<(), String> {
    if fits(shown, printed) {
        return Ok(());
    }
    Err(format!("prints something else:\n{}", difference(shown, printed)))
}

/// The lines of a text with words in place of what differs from run to run, and columns that are as wide as in any other
/// run. `word` gives a word for something of a kind, from the kind and the text of it.
pub(crate) fn masked(text: &str, word: &mut Word<'_>) -> Vec<String> {
    text.trim_end().lines().map(|line| masked_line(line, word)).collect()
}

pub(crate) type Word<'a> = dyn FnMut(&'static str, &str) -> String + 'a;

/// The lines that are shown behind `-` and those that are printed behind `+`, without those that begin and end both.
fn difference(shown: &[String], printed: &[String]) -> String {
    let same = |(shown, printed): &(&String, &String)| line_fits(shown, printed);
    let begin = shown.iter().zip(printed).take_while(same).count();
    let end = shown[begin..].iter().rev().zip(printed[begin..].iter().rev()).take_while(same).count();
    let marked = |mark: char, lines: &[String]| lines.iter().map(|line| format!("{mark} {line}\n")).collect::<String>();
    marked(' ', &shown[..begin])
        + &marked('-', &shown[begin..shown.len() - end])
        + &marked('+', &printed[begin..printed.len() - end])
        + &marked(' ', &shown[shown.len() - end..])
}

/// A line that is `…` stands for any number of lines.
fn fits(shown: &[String], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((any, rest)) if any == "…" => (0..=printed.len()).any(|taken| fits(rest, &printed[taken..])),
        Some((first, rest)) => match printed.split_first() {
            Some((line, more)) => line_fits(first, line) && fits(rest, more),
            None => false,
        },
    }
}

/// Inside of a line `…` stands for any text, or none.
pub(crate) fn line_fits(shown: &str, printed: &str) -> bool {
    let Some((begin, rest)) = shown.split_once('…') else { return shown == printed };
    let Some(mut left) = printed.strip_prefix(begin) else { return false };
    let pieces: Vec<&str> = rest.split('…').collect();
    let (end, middle) = pieces.split_last().expect("a split gives one piece at least");
    for piece in middle {
        let Some(at) = left.find(piece) else { return false };
        left = &left[at + piece.len()..];
    }
    left.ends_with(end)
}

fn masked_line(line: &str, word: &mut Word<'_>) -> String {
    let mut masked = String::new();
    let mut rest = line.trim_end();
    let mut before = ' ';
    while let Some(next) = rest.chars().next() {
        let found = if before.is_alphanumeric() { None } else { MASKS.iter().find_map(|mask| mask(rest)) };
        let taken = match found {
            Some((length, kind)) => {
                masked.push_str(&word(kind, &rest[..length]));
                length
            }
            None if rest.starts_with("  ") => {
                masked.push_str("  ");
                rest.len() - rest.trim_start_matches(' ').len()
            }
            None => {
                masked.push(next);
                next.len_utf8()
            }
        };
        before = rest[..taken].chars().next_back().unwrap_or(' ');
        rest = &rest[taken..];
    }
    masked
}

/// Finds something at the begin of a text: how long it is, and the word for it.
type Mask = fn(&str) -> Option<(usize, &'static str)>;

const MASKS: [Mask; 7] = [id, time, token, lease, key, length_of_time, size];

/// A UUID, or its begin and `…`.
fn id(text: &str) -> Option<(usize, &'static str)> {
    let length = [shape(text, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"), shape(text, "xxxxxxxx-…")];
    length.into_iter().flatten().next().map(|length| (length, "ID"))
}

/// `2026-11-16T06:53:59.216Z`, with or without parts of seconds.
fn time(text: &str) -> Option<(usize, &'static str)> {
    let length = shape(text, "dddd-dd-ddTdd:dd:dd")?;
    let parts = text[length..].trim_start_matches(|character: char| character == '.' || character.is_ascii_digit());
    let zone = usize::from(parts.starts_with('Z'));
    Some((text.len() - parts.len() + zone, "TIME"))
}

/// What a token or a secret begins with, and then itself or `…`.
fn token(text: &str) -> Option<(usize, &'static str)> {
    let prefix = ["sb_", "sba_", "whsec_"].into_iter().find(|prefix| text.starts_with(prefix))?;
    let secret = &text[prefix.len()..];
    if secret.starts_with('…') {
        return Some((prefix.len() + '…'.len_utf8(), "TOKEN"));
    }
    let is_part = |character: char| character.is_ascii_alphanumeric() || "_-+/=".contains(character);
    let length = secret.find(|character| !is_part(character)).unwrap_or(secret.len());
    (length >= 20).then_some((prefix.len() + length, "TOKEN"))
}

/// The token of a lease, which is an object in base64.
fn lease(text: &str) -> Option<(usize, &'static str)> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
    let length = text.find(|character| !is_part(character)).unwrap_or(text.len());
    (text.starts_with("eyJ") && length > 100).then_some((length, "LEASE"))
}

/// The name of a key: 32 bytes in base64.
fn key(text: &str) -> Option<(usize, &'static str)> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
    let length = text.find(|character| !is_part(character)).unwrap_or(text.len());
    let has = |kind: fn(&char) -> bool| text[..length].chars().any(|character| kind(&character));
    let is_key = length == 43 && has(char::is_ascii_uppercase) && has(char::is_ascii_lowercase);
    is_key.then_some((length, "KEY"))
}

/// `12 ms`, `1.5s`, `3m`.
fn length_of_time(text: &str) -> Option<(usize, &'static str)> {
    let number = text.find(|character: char| !character.is_ascii_digit() && character != '.').filter(|at| *at > 0)?;
    let unit = text[number..].strip_prefix(' ').unwrap_or(&text[number..]);
    let letters = unit.find(|character: char| !character.is_alphanumeric()).unwrap_or(unit.len());
    let is_unit = ["us", "µs", "ms", "s", "m", "h", "d"].contains(&&unit[..letters]);
    is_unit.then_some((text.len() - unit.len() + letters, "LENGTH"))
}

/// `856 bytes`.
fn size(text: &str) -> Option<(usize, &'static str)> {
    let number = text.find(|character: char| !character.is_ascii_digit()).filter(|at| *at > 0)?;
    text[number..].starts_with(" bytes").then_some((number, "SIZE"))
}

/// How long the begin of the text is that has this shape: `x` is a hexadecimal digit, `d` a digit, all else itself.
fn shape(text: &str, shape: &str) -> Option<usize> {
    let mut characters = text.chars();
    let mut length = 0;
    for wanted in shape.chars() {
        let found = characters.next()?;
        let fits = match wanted {
            'x' => found.is_ascii_hexdigit(),
            'd' => found.is_ascii_digit(),
            other => found == other,
        };
        if !fits {
            return None;
        }
        length += found.len_utf8();
    }
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_run_to_run_is_not_compared() {
        let same = [
            ("task 0197c5a2-…  5s", "task 01a1ecbf-688f-709e-a27c-400697723d28     12s\n"),
            ("at 2026-11-16T06:53:59Z", "at 2026-11-18T03:42:10.457Z"),
            ("token: sb_…", "token: sb_0123456789abcdefghij-_x"),
            ("took 3 ms, then", "took 1.25 ms, then"),
            ("1337 bytes", "856 bytes"),
            ("_lh9y9kddDSY7QziYehSbB8C7NYIc8p4qr-Nar88WVo  -", "qR7LSHyR5sSdHFaKUw8SVqwWaj9iZ3TVi_CashMaldw  -"),
            ("a … c", "a b c"),
            ("first\n…\nlast", "first\nlast\n"),
            ("first\n…\nlast", "first\n1\n2\nlast\n"),
            ("NAME  STATE", "NAME      STATE   \n"),
        ];
        for (shown, printed) in same {
            compare(shown, printed).unwrap();
        }
    }

    #[test]
    fn what_is_said_is_compared() {
        let other = [
            ("hello", "hell"),
            ("hello", "hello\nmore"),
            ("hello\nmore", "hello"),
            ("task 0197c5a2-… completed", "task 01a1ecbf-688f-709e-a27c-400697723d28 failed"),
            ("task 0197c5a2-…", "task none"),
            ("a … c", "a b d"),
            ("5 chunks", "6 chunks"),
            ("3 ms", "3 kg"),
            ("token: sb_…", "token: sb_short"),
            ("first\n…\nlast", "first\n1\n2"),
            ("", "something"),
        ];
        for (shown, printed) in other {
            assert!(compare(shown, printed).is_err(), "{printed:?} is taken for {shown:?}");
        }
    }
}
