//! How long an answer may be used without asking again, as HTTP says it (RFC 9111), for a cache of one caller.

use std::time::Duration;

use http::{HeaderMap, HeaderName, header};

/// However long an answer says that it is good for.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// What an answer says about being kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// Nothing.
    Nothing,
    /// It may not be kept.
    Never,
    /// It may be used for so long, from when it came.
    For(Duration),
}

/// Reads what the headers say. What cannot be read says that the answer is old.
pub(crate) fn said(headers: &HeaderMap) -> Said {
    let mut max_age = None;
    let mut is_checked = false;
    for value in headers.get_all(header::CACHE_CONTROL) {
        for directive in value.to_str().unwrap_or_default().split(',') {
            let (name, argument) = directive.split_once('=').unwrap_or((directive, ""));
            match name.trim().to_ascii_lowercase().as_str() {
                "no-store" => return Said::Never,
                // With names of fields it is about those fields alone.
                "no-cache" if argument.is_empty() => is_checked = true,
                "max-age" => max_age = Some(seconds(argument.trim().trim_matches('"'))),
                // `s-maxage` is for caches that many share; `private` is what this one is.
                _ => {}
            }
        }
    }
    let lifetime = match (max_age, text(headers, header::EXPIRES)) {
        _ if is_checked => Duration::ZERO,
        (Some(max_age), _) => max_age,
        (None, Some(expires)) => until(expires, text(headers, header::DATE)),
        (None, None) => return Said::Nothing,
    };
    let age = text(headers, header::AGE).map(seconds).unwrap_or_default();
    Said::For(lifetime.saturating_sub(age).min(LONGEST))
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).map(|value| value.to_str().unwrap_or_default().trim())
}

/// The time between the two. They are of one clock, which need not be ours.
fn until(expires: &str, date: Option<&str>) -> Duration {
    let (Ok(expires), Some(Ok(date))) = (httpdate::parse_http_date(expires), date.map(httpdate::parse_http_date))
    else {
        return Duration::ZERO;
    };
    expires.duration_since(date).unwrap_or_default()
}

fn seconds(text: &str) -> Duration {
    // A number that does not fit is larger than any that counts.
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { Duration::from_secs(text.parse().unwrap_or(u64::from(u32::MAX))) } else { Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(lines: &[(&'static str, &'static str)]) -> Said {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        said(&headers)
    }

    fn good_for(seconds: u64) -> Said {
        Said::For(Duration::from_secs(seconds))
    }

    #[test]
    fn an_answer_says_how_long_it_is_good_for() {
        let (date, later) = ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:50:37 GMT");
        for (lines, expected) in [
            (&[][..], Said::Nothing),
            (&[("cache-control", "private, must-revalidate")], Said::Nothing),
            (&[("cache-control", "private, Max-Age=60")], good_for(60)),
            (&[("cache-control", "max-age=\"60\"")], good_for(60)),
            (&[("cache-control", "public"), ("cache-control", "s-maxage=9, max-age=60"), ("age", "20")], good_for(40)),
            (&[("cache-control", "max-age=60"), ("age", "61")], good_for(0)),
            (&[("cache-control", "max-age=60, no-cache")], good_for(0)),
            (&[("cache-control", "max-age=60, no-cache=\"set-cookie\"")], good_for(60)),
            (&[("cache-control", "max-age=60, no-store")], Said::Never),
            (&[("cache-control", "max-age=-1")], good_for(0)),
            (&[("cache-control", "max-age=99999999999999999999999")], good_for(86400)),
            (&[("expires", later), ("date", date)], good_for(60)),
            (&[("expires", date), ("date", later)], good_for(0)),
            (&[("expires", later)], good_for(0)),
            (&[("expires", "0"), ("date", date)], good_for(0)),
            (&[("expires", date), ("date", later), ("cache-control", "max-age=5")], good_for(5)),
        ] {
            assert_eq!(of(lines), expected, "{lines:?}");
        }
    }
}
