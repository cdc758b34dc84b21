//! What goes over the wire, for whoever looks for a mistake: every request and answer at the level `trace` of the target `client::wire`. What
//! could let somebody in is masked, here and not by whoever reads it, so that no level of detail shows it. Bodies and events are shown when
//! they are whole: a secret that came in two pieces would not be known.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::egress::{Request, shown};

/// What tells this apart from other logs.
const TARGET: &str = "client::wire";
/// So much of a body is shown.
const MOST: usize = 16 << 10;
/// Words in the names of headers that hold what should not be seen.
const SECRET_NAMES: [&str; 7] = ["auth", "token", "key", "secret", "cookie", "password", "credential"];
/// Members of objects and fields of forms that hold it.
const SECRET_FIELDS: [&str; 10] = [
    "token",
    "access_token",
    "refresh_token",
    "id_token",
    "client_secret",
    "secret",
    "password",
    "credentials",
    "api_key",
    "apiKey",
];
/// How our tokens begin.
const TOKENS: [&str; 2] = ["sb_", "sba_"];
/// Shorter than any token of ours.
const SHORT: usize = 12;

pub(crate) fn is_watched() -> bool {
    tracing::enabled!(target: TARGET, tracing::Level::TRACE)
}

pub(crate) fn sent(request: &Request<'_>) {
    if !is_watched() {
        return;
    }
    let mut headers = lines(request.headers.iter().map(|(name, value)| (name, value)));
    if request.token.is_some() {
        headers.push_str("\nauthorization: ***");
    }
    let body = request.body.as_deref().map(body).unwrap_or_default();
    let (method, url) = (&request.method, shown(request.url));
    tracing::trace!(target: TARGET, "> {method} {url}{headers}{body}");
}

pub(crate) fn answered(status: http::StatusCode, headers: &HeaderMap) {
    if is_watched() {
        tracing::trace!(target: TARGET, "< {status}{}", lines(headers.iter()));
    }
}

pub(crate) fn came(bytes: &[u8]) {
    if is_watched() {
        tracing::trace!(target: TARGET, "<{}", body(bytes));
    }
}

fn lines<'a>(headers: impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)>) -> String {
    let mut out = String::new();
    for (name, value) in headers {
        let is_secret = value.is_sensitive() || SECRET_NAMES.iter().any(|word| name.as_str().contains(word));
        // The key of a repetition opens nothing.
        let value = match value.to_str() {
            Ok(_) if is_secret && name != "idempotency-key" => Cow::Borrowed("***"),
            Ok(text) => masked(text),
            Err(_) => Cow::Borrowed("…"),
        };
        out.push_str(&format!("\n{name}: {value}"));
    }
    out
}

/// A body as text, as far as it is one.
fn body(bytes: &[u8]) -> String {
    let most = &bytes[..bytes.len().min(MOST)];
    let text = match std::str::from_utf8(most) {
        Ok(text) => text,
        // The cap may have cut a letter.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&most[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return format!("\n[{} bytes]", bytes.len()),
    };
    let rest = if most.len() < bytes.len() { "…" } else { "" };
    format!("\n{}{rest}", masked(text.trim_end()))
}

/// A text without what opens doors: members of JSON and fields of forms by their names, and our tokens wherever they stand.
fn masked(text: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    for name in SECRET_FIELDS {
        text = hidden(hidden(text, &format!("\"{name}\""), string_behind), &format!("{name}="), field_behind);
    }
    match text {
        Cow::Borrowed(text) => without_tokens(text),
        Cow::Owned(text) => Cow::Owned(without_tokens(&text).into_owned()),
    }
}

/// Where the value of a member begins and ends, in what follows its name.
fn string_behind(rest: &str) -> Option<(usize, usize)> {
    let value = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    let begin = rest.len() - value.len();
    let mut escaped = false;
    for (at, letter) in value.char_indices() {
        match letter {
            '"' if !escaped => return Some((begin, begin + at)),
            _ => escaped = letter == '\\' && !escaped,
        }
    }
    Some((begin, rest.len()))
}

/// The same of a field of a form.
fn field_behind(rest: &str) -> Option<(usize, usize)> {
    let end = rest.find(['&', '"', ' ', '\n']).unwrap_or(rest.len());
    Some((0, end))
}

/// A text without the values behind a name.
fn hidden<'a>(text: Cow<'a, str>, name: &str, value: impl Fn(&str) -> Option<(usize, usize)>) -> Cow<'a, str> {
    if !text.contains(name) {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = &text[..];
    while let Some(at) = rest.find(name) {
        let (before, behind) = rest.split_at(at + name.len());
        out.push_str(before);
        rest = behind;
        if let Some((begin, end)) = value(behind) {
            out.push_str(&behind[..begin]);
            out.push_str("***");
            rest = &behind[end..];
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// A text without our tokens.
fn without_tokens(text: &str) -> Cow<'_, str> {
    if !TOKENS.iter().any(|begin| text.contains(begin)) {
        return Cow::Borrowed(text);
    }
    let is_of_a_token = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|letter| !is_of_a_token(letter)).unwrap_or(rest.len());
        let (word, more) = rest.split_at(end);
        match TOKENS.iter().find(|begin| word.starts_with(**begin) && word.len() >= SHORT) {
            Some(begin) => out.push_str(&format!("{begin}***")),
            None => out.push_str(word),
        }
        let next = more.find(is_of_a_token).unwrap_or(more.len());
        out.push_str(&more[..next]);
        rest = &more[next..];
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_masked_wherever_they_stand() {
        assert_eq!(
            masked("{\"token\":\"sb_0123456789abcdef\"}, sba_0123456789abcdef."),
            "{\"token\":\"***\"}, sba_***."
        );
        let oauth = masked("client_id=me&client_secret=hush&scope=x");
        assert_eq!(oauth, "client_id=me&client_secret=***&scope=x");
        let push = masked("{\"token\" : \"a\\\"b\", \"credentials\":\"c\", \"tokens\": 3, \"text\": \"token\"}");
        assert_eq!(push, "{\"token\" : \"***\", \"credentials\":\"***\", \"tokens\": 3, \"text\": \"token\"}");
        assert_eq!(masked("sb_task and sb_url are words"), "sb_task and sb_url are words");
    }

    #[test]
    fn headers_that_open_doors_are_masked() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer secret"),
            ("x-api-key", "secret"),
            ("x-access-token", "secret"),
            ("cookie", "s=secret"),
            ("idempotency-key", "m-1"),
            ("x-trace-id", "abc"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let text = lines(headers.iter());
        assert!(
            !text.contains("secret") && text.contains("x-trace-id: abc") && text.contains("idempotency-key: m-1"),
            "{text}"
        );
    }

    #[test]
    fn bytes_are_counted() {
        assert_eq!(body(&[0xff, 0xfe]), "\n[2 bytes]");
        assert_eq!(body("né".as_bytes()), "\nné");
    }
}
