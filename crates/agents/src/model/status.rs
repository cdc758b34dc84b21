//! What an error of a provider means, and when it may be asked again: by its HTTP status, by what its body says, by both.

use std::time::Duration;

use client::Secret;
use http::{HeaderMap, header};
use serde_json::Value;
use store::clock;

use super::error::{Again, Error, ErrorKind, Failure, excerpt};

/// Whoever wants to be left alone for longer is not waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The words that providers have for kinds of errors, with the status that means the same.
const WORDS: &[(&str, u16)] = &[
    ("authentication_error", 401),
    ("invalid_api_key", 401),
    ("billing_error", 402),
    ("insufficient_quota", 402),
    ("permission_error", 403),
    ("not_found_error", 404),
    ("model_not_found", 404),
    ("request_too_large", 413),
    ("context_length_exceeded", 413),
    ("rate_limit_error", 429),
    ("rate_limit_exceeded", 429),
    ("overloaded_error", 529),
    ("timeout_error", 504),
    ("server_error", 500),
    ("api_error", 500),
    ("invalid_request_error", 400),
];

/// What the body of an error says.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) message: String,
    /// The status that its own words mean.
    pub(super) status: Option<u16>,
    /// What it names as wrong.
    pub(super) param: Option<String>,
}

impl Told {
    /// The error in a JSON value, in any of the forms that servers have for it. `None` if it has none.
    pub(super) fn of(value: &Value) -> Option<Self> {
        let error = value.get("error").filter(|error| !error.is_null());
        let inner = error.unwrap_or(value);
        let text = |key: &str| inner.get(key).and_then(Value::as_str).map(str::to_owned);
        let message =
            inner.as_str().map(str::to_owned).or_else(|| text("message")).or_else(|| match inner.get("detail")? {
                Value::String(detail) => Some(detail.clone()),
                other => Some(other.to_string()),
            });
        if error.is_none() && message.is_none() {
            return None;
        }
        // The code says more than the type where it says anything.
        let words = ["code", "type"].map(|key| inner.get(key));
        let status = words.iter().flatten().find_map(|word| {
            let number = word.as_u64().or_else(|| word.as_str()?.parse().ok());
            let number = number.and_then(|number| u16::try_from(number).ok()).filter(|n| (400..=599).contains(n));
            number.or_else(|| WORDS.iter().find(|(known, _)| word.as_str() == Some(known)).map(|(_, status)| *status))
        });
        Some(Self { message: message.unwrap_or_default(), status, param: text("param") })
    }

    /// What can be read of the body of an error answer.
    pub(super) fn read(body: &[u8], media_type: &str) -> Self {
        if let Some(told) = serde_json::from_slice(body).ok().as_ref().and_then(Self::of) {
            return told;
        }
        let text = String::from_utf8_lossy(body);
        let message = if media_type == "text/html" || text.trim_start().starts_with('<') {
            page(&text)
        } else {
            text.into_owned()
        };
        Self { message, ..Self::default() }
    }

    /// Whether it says that the conversation does not fit.
    fn is_too_long(&self) -> bool {
        let message = self.message.to_ascii_lowercase();
        self.status == Some(413)
            || ["prompt is too long", "maximum context length", "context window", "context length"]
                .iter()
                .any(|words| message.contains(words))
    }
}

/// A page of HTML in a few words.
pub(super) fn page(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let title = lower.find("<title>").and_then(|from| Some((from + 7, from + 7 + lower[from + 7..].find("</title>")?)));
    match title.and_then(|(from, to)| text.get(from..to)) {
        Some(title) => format!("an HTML page with the title `{}`", title.trim()),
        None => "an HTML page".to_owned(),
    }
}

/// The failure that an HTTP answer is, or an error inside of one that began well (without a `status`).
pub(super) fn failure(
    provider: &str,
    status: Option<u16>,
    wait: Option<Duration>,
    told: &Told,
    key: Option<&Secret>,
) -> Failure {
    // An error of which nobody says what it is may pass.
    let meaning = match (status, told.status) {
        // A status that says no more than that something is wrong gives way.
        (None | Some(400 | 500), Some(told)) => told,
        (Some(429), Some(402)) => 402,
        (Some(status), _) => status,
        (None, None) => 500,
    };
    let (kind, what) = match meaning {
        _ if told.is_too_long() && (400..500).contains(&meaning) => {
            (ErrorKind::TooLarge, "the request is too long for the model")
        }
        401 => (ErrorKind::Auth, "the key was refused"),
        402 => (ErrorKind::Auth, "the account cannot pay for this"),
        403 => (ErrorKind::Auth, "the key is not allowed to do this"),
        404 => (ErrorKind::NotFound, "there is no such model, or nothing at this URL"),
        408 | 500..=599 => (ErrorKind::Unavailable, "the provider cannot answer"),
        413 => (ErrorKind::TooLarge, "the request is too large"),
        429 => (ErrorKind::RateLimited, "too many requests"),
        300..=399 => (ErrorKind::Broken, "the answer is a redirect, and none is followed"),
        _ => (ErrorKind::Invalid, "the request was refused"),
    };
    let mut error = Error::new(kind, provider, what);
    if let Some(status) = status {
        error = error.and(&format!(" ({status})")).with_status(status);
    }
    let said = excerpt(&told.message, key);
    if !said.is_empty() {
        error = error.and(&format!(": {said}"));
    }
    let is_passing = matches!(meaning, 429 | 500 | 502 | 503 | 504 | 529);
    match wait {
        Some(wait) if is_passing && wait > LONGEST_WAIT => {
            error.and(&format!("; it wants to be asked again in {} s", wait.as_secs())).with_retry_after(wait).never()
        }
        Some(wait) if is_passing => Failure { error: error.with_retry_after(wait), again: Again::After(wait) },
        None if is_passing => error.soon(),
        _ => error.never(),
    }
}

/// How long the provider wants to be left alone: in milliseconds, in seconds, or until a time.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let span = |number: f64| Duration::try_from_secs_f64(if number < 0.0 { 0.0 } else { number }).ok();
    if let Some(milliseconds) = text("retry-after-ms").and_then(|value| value.parse::<f64>().ok()) {
        return span(milliseconds / 1000.0);
    }
    let value = text(header::RETRY_AFTER.as_str())?;
    if let Ok(seconds) = value.parse::<f64>() {
        return span(seconds);
    }
    let until = httpdate::parse_http_date(value).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    let now = Duration::from_millis(u64::try_from(clock::now().as_millis()).unwrap_or_default());
    Some(until.saturating_sub(now))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_are_read_in_the_forms_of_all_servers() {
        let told = |value: &Value| Told::of(value).map(|told| (told.message, told.status));
        let cases = [
            (
                json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
                Some(("Overloaded", Some(529))),
            ),
            (
                json!({"error": {"message": "no", "type": "requests", "code": "rate_limit_exceeded"}}),
                Some(("no", Some(429))),
            ),
            (json!({"error": {"message": "bad", "code": 502}}), Some(("bad", Some(502)))),
            (json!({"error": {"message": "bad", "type": "None", "code": "400"}}), Some(("bad", Some(400)))),
            (json!({"error": "model 'x' not found"}), Some(("model 'x' not found", None))),
            (json!({"object": "error", "message": "m", "type": "NotFoundError", "code": 404}), Some(("m", Some(404)))),
            (json!({"detail": "Not Found"}), Some(("Not Found", None))),
            (json!({"detail": [{"msg": "field required"}]}), Some(("[{\"msg\":\"field required\"}]", None))),
            (json!({"choices": [], "error": null}), None),
        ];
        for (value, expected) in cases {
            assert_eq!(told(&value), expected.map(|(message, status)| (message.to_owned(), status)), "{value}");
        }
    }

    #[test]
    fn what_a_status_means() {
        let told = |message: &str, status| Told { message: message.to_owned(), status, param: None };
        for (status, told, kind, again) in [
            (Some(401), told("", None), ErrorKind::Auth, false),
            (Some(404), told("", None), ErrorKind::NotFound, false),
            (
                Some(400),
                told("prompt is too long: 210000 tokens > 200000 maximum", Some(400)),
                ErrorKind::TooLarge,
                false,
            ),
            (Some(400), told("", Some(413)), ErrorKind::TooLarge, false),
            (Some(422), told("", None), ErrorKind::Invalid, false),
            (Some(429), told("", Some(402)), ErrorKind::Auth, false),
            (Some(429), told("", None), ErrorKind::RateLimited, true),
            (Some(500), told("", Some(401)), ErrorKind::Auth, false),
            (Some(501), told("", None), ErrorKind::Unavailable, false),
            (Some(529), told("", None), ErrorKind::Unavailable, true),
            (Some(301), told("", None), ErrorKind::Broken, false),
            (None, told("", None), ErrorKind::Unavailable, true),
            (None, told("", Some(429)), ErrorKind::RateLimited, true),
            (None, told("", Some(400)), ErrorKind::Invalid, false),
        ] {
            let failure = failure("p", status, None, &told, None);
            assert_eq!((failure.error.kind, failure.again == Again::Soon), (kind, again), "{status:?} {told:?}");
        }
    }

    #[test]
    fn a_long_wait_is_told_and_not_waited_for() {
        let wait = |seconds| failure("p", Some(429), Some(Duration::from_secs(seconds)), &Told::default(), None);
        assert_eq!(wait(60).again, Again::After(Duration::from_secs(60)));
        let long = wait(3600);
        assert_eq!(long.again, Again::Never);
        assert_eq!(long.error.to_string(), "p: too many requests (429); it wants to be asked again in 3600 s");
    }

    #[test]
    fn the_wait_is_a_number_or_a_date() {
        let read = |name: &'static str, value: &str| {
            retry_after(&HeaderMap::from_iter([(http::HeaderName::from_static(name), value.parse().unwrap())]))
        };
        assert_eq!(read("retry-after", "7"), Some(Duration::from_secs(7)));
        assert_eq!(read("retry-after", "0.5"), Some(Duration::from_millis(500)));
        assert_eq!(read("retry-after-ms", "250"), Some(Duration::from_millis(250)));
        assert_eq!(read("retry-after", "-3"), Some(Duration::ZERO));
        assert_eq!(read("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO), "that is over");
        assert!(read("retry-after", "Mon, 21 Oct 2115 07:28:00 GMT").unwrap() > Duration::from_secs(1 << 30));
        for nonsense in ["soon", "NaN", "inf", "1e400"] {
            assert_eq!(read("retry-after", nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_page_is_told_by_its_title() {
        assert_eq!(
            Told::read(b"<html><head><TITLE> 502 Bad Gateway</title>", "text/html").message,
            "an HTML page with the title `502 Bad Gateway`"
        );
        assert_eq!(Told::read(b"<!doctype html><p>", "").message, "an HTML page");
        assert_eq!(Told::read(b"upstream down", "text/plain").message, "upstream down");
    }
}
