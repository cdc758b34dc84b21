//! Aligned columns for people. Nothing in a cell can break its line or steer a terminal.

use a2a::Timestamp;

use crate::output;

/// Lines of cells below their headings, two spaces apart.
pub(crate) fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let mut lines: Vec<Vec<String>> = vec![headings.iter().map(|&heading| heading.to_owned()).collect()];
    for row in rows {
        lines.push(row.iter().map(|text| cell(text)).collect());
    }
    let mut widths = vec![0; headings.len()];
    for line in &lines {
        for (width, text) in widths.iter_mut().zip(line) {
            *width = (*width).max(text.chars().count());
        }
    }
    let mut out = String::new();
    for line in &lines {
        let mut text = String::new();
        for (content, width) in line.iter().zip(&widths) {
            text.push_str(&format!("{content:<width$}  "));
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

/// Names and values, one a line, the values aligned. Those without a value are left out.
pub(crate) fn fields(pairs: &[(&str, Option<String>)]) -> String {
    let shown: Vec<(&str, String)> =
        pairs.iter().filter_map(|(name, value)| Some((*name, cell(value.as_deref()?)))).collect();
    let width = shown.iter().map(|(name, _)| name.len() + 1).max().unwrap_or_default();
    let mut out = String::new();
    for (name, value) in shown {
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

fn cell(text: &str) -> String {
    output::harmless(text).replace(['\n', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_end_with_text() {
        let rows = [vec!["1".to_owned(), "a\nb\u{1b}[2J".to_owned(), "x".to_owned()], vec!["200".into(), "é".into()]];
        let text = table(&["ID", "NAME", "STATE"], &rows);
        assert_eq!(text, "ID   NAME     STATE\n1    a b\u{fffd}[2J  x\n200  é\n");
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
