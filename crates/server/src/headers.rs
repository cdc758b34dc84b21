//! The request headers that mean something to the protocol: version, media type, extensions, conditional requests.

use a2a::{Error, ErrorKind, PROTOCOL_VERSION};
use exchange::Origin;
use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::query::Query;

/// The version of the protocol that a request or a response speaks.
pub(crate) const A2A_VERSION: HeaderName = HeaderName::from_static("a2a-version");
/// The extensions that a caller asks for, and those that an answer used.
pub(crate) const A2A_EXTENSIONS: HeaderName = HeaderName::from_static("a2a-extensions");
/// What 0.3 calls [`A2A_EXTENSIONS`].
pub(crate) const X_A2A_EXTENSIONS: HeaderName = HeaderName::from_static("x-a2a-extensions");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const AFTER_SEQUENCE: HeaderName = HeaderName::from_static("after_sequence");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// How many extensions a request may name.
const MAX_EXTENSIONS: usize = 32;

/// Refuses a request that does not speak 1.0. Without a version it speaks 0.3 (A2A 1.0.1, section 3.6.2).
pub(crate) fn check_version(headers: &HeaderMap, query: &Query) -> Result<(), Error> {
    if names_version_1(headers, query) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::VersionNotSupported, "the request must carry the header A2A-Version: 1.0")
        .with_metadata("supported", PROTOCOL_VERSION))
}

/// Whether a request says that it speaks 1.0 and nothing else.
pub(crate) fn names_version_1(headers: &HeaderMap, query: &Query) -> bool {
    let versions = versions(headers, Some(query));
    !versions.is_empty() && versions.into_iter().all(is_version_1)
}

/// Refuses a request with a method of 0.3 that names another version. In 1.0 there is no such method.
pub(crate) fn check_version_of_03(headers: &HeaderMap, query: &Query) -> Result<(), Error> {
    let versions = versions(headers, Some(query));
    if versions.iter().all(|version| is_version_03(version)) {
        return Ok(());
    }
    if versions.into_iter().all(is_version_1) {
        let why = "A2A 1.0 has no such method: leave A2A-Version out, or say 0.3";
        return Err(Error::new(ErrorKind::MethodNotFound, why));
    }
    Err(Error::new(ErrorKind::VersionNotSupported, "A2A-Version must be 0.3 for this method, or left out")
        .with_metadata("supported", "0.3, 1.0"))
}

/// Refuses a request under `/v1/a2a` that names another version than 1.0, in the header, whatever is in its body.
pub(crate) fn check_version_of_v1(headers: &HeaderMap) -> Result<(), Error> {
    if versions(headers, None).into_iter().all(is_version_1) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::VersionNotSupported, "A2A-Version must be 1.0, or left out")
        .with_metadata("supported", PROTOCOL_VERSION))
}

/// The versions that a request names: in its headers, else in its query. Empty ones are none.
fn versions<'a>(headers: &'a HeaderMap, query: Option<&'a Query>) -> Vec<&'a [u8]> {
    let given = |value: &&[u8]| !value.is_empty();
    let named: Vec<&[u8]> =
        headers.get_all(A2A_VERSION).iter().map(|value| value.as_bytes().trim_ascii()).filter(given).collect();
    if !named.is_empty() {
        return named;
    }
    let in_query = query.and_then(|query| query.any("A2A-Version", "a2a-version"));
    in_query.map(|value| value.as_bytes().trim_ascii()).filter(given).into_iter().collect()
}

/// `1`, `1.0` and `1.0.x`: patch numbers never count.
fn is_version_1(value: &[u8]) -> bool {
    value == b"1" || is_minor(value, b"1.0")
}

/// `0.3` and `0.3.x`.
fn is_version_03(value: &[u8]) -> bool {
    is_minor(value, b"0.3")
}

fn is_minor(value: &[u8], minor: &[u8]) -> bool {
    match value.strip_prefix(minor) {
        Some([]) => true,
        Some([b'.', patch @ ..]) => !patch.is_empty() && patch.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// The media types that a request's body can have for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Media {
    /// `application/json`
    Json,
    /// `application/a2a+json`
    A2aJson,
    /// Something else, or nothing.
    Other,
}

/// The media type of a body without its parameters, and nothing where none is said.
pub(crate) fn media_type(headers: &HeaderMap) -> &[u8] {
    let value = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    value.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii()
}

impl Media {
    /// Reads `Content-Type`; parameters are not looked at.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let essence = media_type(headers);
        if essence.eq_ignore_ascii_case(b"application/json") {
            Self::Json
        } else if essence.eq_ignore_ascii_case(b"application/a2a+json") {
            Self::A2aJson
        } else {
            Self::Other
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::A2aJson => "application/a2a+json",
            Self::Other => "something else",
        }
    }
}

/// Refuses a body of another media type than these.
pub(crate) fn require_media(headers: &HeaderMap, media: &[Media]) -> Result<(), Error> {
    if media.contains(&Media::of(headers)) {
        return Ok(());
    }
    let names: Vec<&str> = media.iter().map(|media| media.name()).collect();
    let message = format!("the request body must be {}", names.join(" or "));
    Err(Error::new(ErrorKind::UnsupportedMediaType, &message).with_violation("Content-Type", &message))
}

/// The extensions that the caller asks for, each once, in order. Those that are named twice count twice.
pub(crate) fn extensions(headers: &HeaderMap) -> Result<Vec<String>, Error> {
    let lists = headers.get_all(A2A_EXTENSIONS).iter().chain(headers.get_all(X_A2A_EXTENSIONS));
    let named = lists.filter_map(|value| value.to_str().ok()).flat_map(|list| list.split(',')).map(str::trim);
    let mut wanted: Vec<String> = Vec::new();
    for (n, uri) in named.filter(|uri| !uri.is_empty()).enumerate() {
        if n == MAX_EXTENSIONS {
            let message = format!("must name {MAX_EXTENSIONS} extensions at most");
            return Err(Error::invalid("A2A-Extensions", &message));
        }
        if !wanted.iter().any(|known| known == uri) {
            wanted.push(uri.to_owned());
        }
    }
    Ok(wanted)
}

/// The response header that names the extensions in use; none for none.
pub(crate) fn extensions_in_use(extensions: &[String]) -> Option<HeaderValue> {
    if extensions.is_empty() {
        return None;
    }
    HeaderValue::try_from(extensions.join(", ")).ok()
}

/// The `Idempotency-Key`.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Error> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(Error::invalid("Idempotency-Key", "must be given once"));
    }
    match std::str::from_utf8(value.as_bytes()) {
        Ok(key) if key.trim().is_empty() => Ok(None),
        Ok(key) => Ok(Some(key.trim().to_owned())),
        Err(_) => Err(Error::invalid("Idempotency-Key", "must be UTF-8 text")),
    }
}

/// What a caller says of where its request comes from.
pub(crate) fn origin(headers: &HeaderMap) -> Origin {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    Origin::of_headers(text("x-correlation-id"), text("x-parent-id"), text("traceparent"))
}

/// The cursor of a stream that is taken up again: `afterSequence` in the query, else `Last-Event-ID`.
///
/// A `Last-Event-ID` that is no number is somebody else's and means no cursor; an `afterSequence` that is no number is
/// the caller's mistake.
pub(crate) fn cursor(headers: &HeaderMap, query: &Query) -> Result<Option<u64>, Error> {
    if let Some(text) = query.one_of("afterSequence", &["afterSequence", "after_sequence", "since_seq"])? {
        return match text.parse() {
            Ok(sequence) => Ok(Some(sequence)),
            Err(_) => Err(Error::invalid("afterSequence", "must be a whole number of 0 or more")),
        };
    }
    let id = headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok());
    Ok(id.and_then(|id| id.trim().parse().ok()))
}

/// The same in the metadata of gRPC, where there is no query.
pub(crate) fn cursor_in_metadata(headers: &HeaderMap) -> Result<Option<u64>, Error> {
    let mut given = headers.get_all(AFTER_SEQUENCE).iter();
    let Some(value) = given.next() else {
        return cursor(headers, &Query::default());
    };
    match value.to_str().ok().and_then(|text| text.trim().parse().ok()) {
        Some(sequence) if given.next().is_none() => Ok(Some(sequence)),
        _ => Err(Error::invalid("afterSequence", "must be a whole number of 0 or more, given once")),
    }
}

/// Whether the caller already has what carries this entity tag (`If-None-Match`; compared weakly, RFC 9110, 13.1.2).
pub(crate) fn none_match(headers: &HeaderMap, etag: &str) -> bool {
    let opaque = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let ours = opaque(etag);
    for value in headers.get_all(header::IF_NONE_MATCH) {
        let Ok(list) = value.to_str() else { continue };
        if list.split(',').any(|tag| tag.trim() == "*" || opaque(tag) == ours) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        map
    }

    fn query(text: &str) -> Query {
        Query::parse(Some(text)).unwrap()
    }

    #[test]
    fn x_2_x_38_versions() {
        for good in ["1", "1.0", "1.0.0", "1.0.17", " 1.0 "] {
            assert!(check_version(&headers(&[("a2a-version", good)]), &query("")).is_ok(), "{good}");
        }
        for bad in ["", "0.3", "0.3.0", "2.0", "1.1", "1.0.", "1.0.x", "10", "1.0,0.3", "v1.0"] {
            let error = check_version(&headers(&[("a2a-version", bad)]), &query("")).unwrap_err();
            assert_eq!(error.kind, ErrorKind::VersionNotSupported, "{bad}");
            assert_eq!(error.metadata, [("supported", "1.0".to_owned())]);
        }
        assert!(check_version(&HeaderMap::new(), &query("")).is_err());
        for text in ["A2A-Version=1.0", "a2a-version=1", "x=y&A2A-Version=1.0.2"] {
            assert!(check_version(&HeaderMap::new(), &query(text)).is_ok(), "{text}");
        }
        assert!(check_version(&headers(&[("a2a-version", "0.3")]), &query("A2A-Version=1.0")).is_err());
        assert!(check_version(&headers(&[("a2a-version", "")]), &query("A2A-Version=1.0")).is_ok());
        let two = headers(&[("a2a-version", "1.0"), ("a2a-version", "0.3")]);
        assert!(check_version(&two, &query("")).is_err());
    }

    #[test]
    fn x_2_x_38_versions_of_the_older_dialect() {
        let v03 = |value| check_version_of_03(&headers(&[("a2a-version", value)]), &query(""));
        for good in ["", "0.3", "0.3.0", "0.3.17"] {
            assert!(v03(good).is_ok(), "{good}");
        }
        for newer in ["1", "1.0", "1.0.2"] {
            assert_eq!(v03(newer).unwrap_err().kind, ErrorKind::MethodNotFound, "{newer}");
        }
        for bad in ["0.2", "0.30", "0.3.", "1.1", "2.0", "abc"] {
            assert_eq!(v03(bad).unwrap_err().kind, ErrorKind::VersionNotSupported, "{bad}");
        }
        assert!(check_version_of_03(&HeaderMap::new(), &query("A2A-Version=2.0")).is_err());
        let v1 = |value| check_version_of_v1(&headers(&[("a2a-version", value)]));
        assert!(check_version_of_v1(&HeaderMap::new()).is_ok());
        for good in ["", "1", "1.0", "1.0.1"] {
            assert!(v1(good).is_ok(), "{good}");
        }
        for bad in ["0.3", "2.0", "abc", "1.1", "1.0, 0.3"] {
            assert!(v1(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn media_types() {
        for (value, media) in [
            ("application/json", Media::Json),
            ("Application/JSON; charset=utf-8", Media::Json),
            ("application/a2a+json;charset=utf-8", Media::A2aJson),
            ("text/plain", Media::Other),
            ("application/jsonx", Media::Other),
            ("", Media::Other),
        ] {
            assert_eq!(Media::of(&headers(&[("content-type", value)])), media, "{value}");
        }
        assert_eq!(Media::of(&HeaderMap::new()), Media::Other);
    }

    #[test]
    fn extension_lists() {
        let map =
            headers(&[("a2a-extensions", "urn:a, urn:b,"), ("a2a-extensions", "urn:a"), ("x-a2a-extensions", "urn:c")]);
        assert_eq!(extensions(&map).unwrap(), ["urn:a", "urn:b", "urn:c"]);
        assert_eq!(extensions_in_use(&["urn:a".into(), "urn:b".into()]).unwrap(), "urn:a, urn:b");
        assert_eq!(extensions_in_use(&[]), None);
    }

    #[test]
    fn a_long_list_of_extensions_is_refused_wherever_it_stands() {
        let list = |count: usize| HeaderValue::try_from(vec!["urn:a"; count].join(",")).unwrap();
        let mut map = HeaderMap::new();
        map.insert(A2A_EXTENSIONS, list(30));
        map.insert(X_A2A_EXTENSIONS, list(2));
        assert_eq!(extensions(&map).unwrap(), ["urn:a"]);
        map.append(X_A2A_EXTENSIONS, list(1));
        assert_eq!(extensions(&map).unwrap_err().violations[0].field, "A2A-Extensions");
    }

    #[test]
    fn idempotency_keys() {
        assert_eq!(idempotency_key(&HeaderMap::new()).unwrap(), None);
        assert_eq!(idempotency_key(&headers(&[("idempotency-key", " k 1 ")])).unwrap().as_deref(), Some("k 1"));
        assert_eq!(idempotency_key(&headers(&[("idempotency-key", "")])).unwrap(), None);
        assert!(idempotency_key(&headers(&[("idempotency-key", "a"), ("idempotency-key", "b")])).is_err());
    }

    #[test]
    fn cursors() {
        let none = HeaderMap::new();
        assert_eq!(cursor(&none, &query("")).unwrap(), None);
        assert_eq!(cursor(&none, &query("afterSequence=0")).unwrap(), Some(0));
        assert_eq!(cursor(&none, &query("after_sequence=3")).unwrap(), Some(3));
        assert_eq!(cursor(&none, &query("since_seq=4")).unwrap(), Some(4));
        for bad in ["afterSequence=x", "afterSequence=-1", "afterSequence=1&since_seq=1", "afterSequence=1.5"] {
            assert!(cursor(&none, &query(bad)).is_err(), "{bad}");
        }
        assert_eq!(cursor(&headers(&[("last-event-id", "7")]), &query("")).unwrap(), Some(7));
        assert_eq!(cursor(&headers(&[("last-event-id", "7")]), &query("afterSequence=2")).unwrap(), Some(2));
        for foreign in ["", "abc", "-1", "5f0c"] {
            assert_eq!(cursor(&headers(&[("last-event-id", foreign)]), &query("")).unwrap(), None, "{foreign}");
        }
    }

    #[test]
    fn cursors_in_metadata() {
        let cursor = |pairs| cursor_in_metadata(&headers(pairs));
        assert_eq!(cursor(&[]).unwrap(), None);
        assert_eq!(cursor(&[("after_sequence", "0")]).unwrap(), Some(0));
        assert_eq!(cursor(&[("last-event-id", "7")]).unwrap(), Some(7));
        assert_eq!(cursor(&[("last-event-id", "7"), ("after_sequence", "2")]).unwrap(), Some(2));
        for bad in [&[("after_sequence", "x")][..], &[("after_sequence", "-1")], &[("after_sequence", "")]] {
            assert!(cursor(bad).is_err(), "{bad:?}");
        }
        assert!(cursor(&[("after_sequence", "1"), ("after_sequence", "1")]).is_err());
    }

    #[test]
    fn entity_tags() {
        let etag = "W/\"abc\"";
        for hit in ["W/\"abc\"", "\"abc\"", "\"x\", W/\"abc\"", "*"] {
            assert!(none_match(&headers(&[("if-none-match", hit)]), etag), "{hit}");
        }
        for miss in ["\"abd\"", "abc", ""] {
            assert!(!none_match(&headers(&[("if-none-match", miss)]), etag), "{miss}");
        }
    }
}
