//! Aligned columns for people. Nothing in a cell can break its line or steer a terminal.

use a2a::Timestamp;

use crate::output;

/// Columns are not cut to less than this.
const NARROWEST: usize = 12;
/// Spaces between two columns.
const GAP: usize = 2;
/// The columns that are left out of a table that is too wide, the first of them first.
const SPARED: [&str; 2] = ["CONTEXT", "INPUT"];
/// The columns whose cells have colors.
const STATES: [&str; 2] = ["STATE", "RESULT"];

/// Lines of cells below their headings, no longer than the terminal is wide. Elsewhere nothing is cut.
pub(crate) fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    table_within(output::width(), headings, rows)
}

/// The same for a given width.
fn table_within(width: Option<usize>, headings: &[&str], rows: &[Vec<String>]) -> String {
    let mut lines: Vec<Vec<String>> = vec![headings.iter().map(|&heading| heading.to_owned()).collect()];
    for row in rows {
        lines.push(row.iter().map(|text| cell(text)).collect());
    }
    let widest = |at: usize| lines.iter().filter_map(|line| line.get(at)).map(|text| text.chars().count()).max();
    let mut columns: Vec<(usize, usize)> = (0..headings.len()).map(|at| (at, widest(at).unwrap_or_default())).collect();
    if let Some(width) = width {
        fit(headings, &mut columns, width);
    }
    let mut out = String::new();
    for (number, line) in lines.iter().enumerate() {
        let texts: Vec<_> =
            columns.iter().map(|&(at, width)| (headings[at], line.get(at).map_or("", String::as_str), width)).collect();
        let last = texts.iter().rposition(|(_, text, _)| !text.is_empty()).unwrap_or_default();
        let mut room = width.unwrap_or(usize::MAX);
        for (place, (heading, content, width)) in texts.into_iter().enumerate().take(last + 1) {
            let content = cut(content, width.min(room));
            let length = content.chars().count();
            room -= length;
            // Without trailing blanks.
            let padding = if place == last || room <= width - length + GAP { 0 } else { width - length + GAP };
            let is_state = number > 0 && STATES.contains(&heading);
            out.push_str(&if is_state { output::state(&content) } else { content });
            out.extend(std::iter::repeat_n(' ', padding));
            if place < last && padding == 0 {
                break;
            }
            room -= padding;
        }
        out.push('\n');
    }
    out
}

/// Takes from the widest columns, the last of them first, until a line fits or all of them are narrow; then leaves columns out. The
/// first column stays: it says what a line is about.
fn fit(headings: &[&str], columns: &mut Vec<(usize, usize)>, most: usize) {
    let mut left = columns.clone();
    let mut spared = SPARED.iter();
    while !shrink(columns, most) {
        let Some(name) = spared.next() else { return };
        left.retain(|&(at, _)| at == 0 || headings[at] != *name);
        // Those that stay may have more room now.
        columns.clone_from(&left);
    }
}

/// Takes from the widest columns. Returns whether a line fits now.
fn shrink(columns: &mut [(usize, usize)], most: usize) -> bool {
    let gaps = GAP * columns.len().saturating_sub(1);
    while columns.iter().map(|(_, width)| width).sum::<usize>() + gaps > most {
        let widest = columns.iter_mut().max_by_key(|(_, width)| *width).filter(|(_, width)| *width > NARROWEST);
        let Some((_, widest)) = widest else { return false };
        *widest -= 1;
    }
    true
}

/// A text with a sign where some of it is left out.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    format!("{}…", text.chars().take(width.saturating_sub(1)).collect::<String>().trim_end())
}

/// Names and values, one a line, the values aligned. Those without a value are left out.
pub(crate) fn fields(pairs: &[(&str, Option<String>)]) -> String {
    let shown: Vec<(&str, String)> =
        pairs.iter().filter_map(|(name, value)| Some((*name, cell(value.as_deref()?)))).collect();
    let width = shown.iter().map(|(name, _)| name.len() + 1).max().unwrap_or_default();
    let mut out = String::new();
    for (name, value) in shown {
        let value = if name == "state" { output::state(&value) } else { value };
        let name = format!("{name}:");
        out.push_str(&format!("{name:<width$} {value}\n"));
    }
    out
}

/// A time for people, to the second; `-` for none.
pub(crate) fn time(seconds: Option<i64>) -> String {
    match seconds {
        Some(seconds) => timestamp(Timestamp::from_millis(seconds.saturating_mul(1000))),
        None => "-".to_owned(),
    }
}

/// A point in time for people, to the second.
pub(crate) fn timestamp(at: Timestamp) -> String {
    let text = at.to_string();
    match text.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => text,
    }
}

/// How long ago it was, in the largest unit that fits.
pub(crate) fn age(at: Timestamp) -> String {
    let seconds = (store::clock::now().as_millis() - at.as_millis()).max(0) / 1000;
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

fn cell(text: &str) -> String {
    output::single_line(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_end_with_text() {
        let rows = [vec!["1".to_owned(), "a\nb\u{1b}[2J".to_owned(), "x".to_owned()], vec!["200".into(), "é".into()]];
        let text = table(&["ID", "NAME", "STATE"], &rows);
        assert_eq!(text, "ID   NAME           STATE\n1    a\\nb\\u{1b}[2J  x\n200  é\n");
    }

    #[test]
    fn the_widest_columns_give_way() {
        let rows = [vec!["1".to_owned(), "a long story about nothing".to_owned()], vec!["2".into(), "short".into()]];
        let text = table_within(Some(16), &["ID", "STORY"], &rows);
        assert_eq!(text, "ID  STORY\n1   a long stor…\n2   short\n");
        let ids = [vec!["0197c5a2-1f3e-7c4d-8000-000000000000".to_owned(); 2]];
        let text = table_within(Some(40), &["TASK", "CONTEXT"], &ids);
        assert_eq!(text, "TASK                 CONTEXT\n0197c5a2-1f3e-7c4d…  0197c5a2-1f3e-7c4d…\n");
        let whole = table_within(None, &["ID", "STORY"], &rows);
        assert!(whole.contains("a long story about nothing"), "{whole}");
        assert_eq!(table_within(Some(5), &["ID", "STORY"], &rows).lines().nth(1), Some("1   …"));
    }

    #[test]
    fn a_narrow_table_leaves_columns_out_and_cuts_its_lines() {
        let headings = ["TASK", "AGENT", "STATE", "AGE", "CONTEXT", "INPUT"];
        let id = "0197c5a2-1f3e-7c4d-8000-000000000000";
        let rows = [[id, "echo", "completed", "5s", id, "hello there, whoever you are"].map(str::to_owned).to_vec()];
        let within = |width| table_within(Some(width), &headings, &rows);
        for width in 1..120 {
            let text = within(width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
        }
        assert_eq!(
            within(50),
            "TASK           AGENT  STATE      AGE  INPUT\n0197c5a2-1f3…  echo   completed  5s   hello there…\n"
        );
        assert_eq!(within(40), "TASK               AGENT  STATE      AGE\n0197c5a2-1f3e-7c…  echo   completed  5s\n");
        assert_eq!(within(20), "TASK          AGENT\n0197c5a2-1f…  echo\n");
        let contexts = table_within(Some(5), &["CONTEXT", "TASKS"], &[vec![id.to_owned(), "1".to_owned()]]);
        assert!(contexts.starts_with("CONT…"), "the first column says what a line is about: {contexts}");
    }

    #[test]
    fn ages_are_short() {
        let ago = |seconds: i64| age(Timestamp::from_millis(store::clock::now().as_millis() - seconds * 1000 - 500));
        assert_eq!((ago(5), ago(125), ago(7300), ago(200_000)), ("5s".into(), "2m".into(), "2h".into(), "2d".into()));
        assert_eq!(ago(-100), "0s", "clocks differ");
    }

    #[test]
    fn fields_without_a_value_are_left_out() {
        let text = fields(&[("id", Some("1".into())), ("error", None), ("state", Some("up".into()))]);
        assert_eq!(text, "id:    1\nstate: up\n");
    }

    #[test]
    fn times_have_seconds() {
        assert_eq!(time(Some(0)), "1970-01-01T00:00:00Z");
        assert_eq!(time(None), "-");
    }
}
