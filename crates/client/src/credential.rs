//! What an agent is shown of who calls it: a token, a key in a header of its choice, or a token that is asked for first.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use a2a::error::{RemoteError, excerpt, parse_error_body};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, header};
use serde_json::Value;
use tokio::sync::Mutex;
use url::{Url, form_urlencoded};

use crate::{Connector, Error, Secret, egress, egress::Request};

/// How long a token is good for when whoever gave it does not say.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(300);
/// So long before its end a token is not used any more: the agent's clock and the way there take their time.
const MARGIN: Duration = Duration::from_secs(30);
/// A lifetime that nobody means.
const LONGEST_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);
/// How long the answer of a token endpoint may be.
const GRANT_BYTES: usize = 64 << 10;

/// What to authenticate with.
#[derive(Clone, Debug)]
pub enum Credential {
    /// `Authorization: Bearer …`.
    Bearer(Secret),
    /// A header that holds a key, such as `X-API-Key`.
    Header {
        /// Which.
        name: HeaderName,
        /// The key.
        value: Secret,
    },
    /// A token that is asked for with an id and a secret.
    ClientCredentials(Arc<ClientCredentials>),
}

/// OAuth 2.0 client credentials (RFC 6749, section 4.4). The token is asked for when it is first needed, by one of those who need it while
/// the others wait, and kept until shortly before it ends.
#[derive(Debug)]
pub struct ClientCredentials {
    token_url: Url,
    client_id: String,
    client_secret: Secret,
    scope: Option<String>,
    // Held while a token is asked for: that is what makes it one question for all who wait.
    held: Mutex<Option<Token>>,
}

#[derive(Debug, Clone)]
struct Token {
    value: Secret,
    until: Instant,
}

impl Credential {
    /// The header that says it.
    pub(crate) async fn header(&self, connector: &Connector) -> Result<(HeaderName, HeaderValue), Error> {
        match self {
            Self::Bearer(token) => Ok((header::AUTHORIZATION, bearer(token)?)),
            Self::Header { name, value } => Ok((name.clone(), sensitive(value.expose())?)),
            Self::ClientCredentials(credentials) => {
                let token = credentials.token(connector).await?;
                Ok((header::AUTHORIZATION, bearer(&token)?))
            }
        }
    }

    /// Whether another one can be had after the agent has refused this one.
    pub(crate) fn is_renewable(&self) -> bool {
        matches!(self, Self::ClientCredentials(_))
    }

    /// Forgets what the agent has refused, unless somebody has a newer one already.
    pub(crate) async fn forget(&self, refused: &HeaderValue) {
        let Self::ClientCredentials(credentials) = self else { return };
        let mut held = credentials.held.lock().await;
        let is_same = |token: &Token| bearer(&token.value).is_ok_and(|value| value == *refused);
        if held.as_ref().is_some_and(is_same) {
            *held = None;
        }
    }
}

impl ClientCredentials {
    /// Who asks, where and for what.
    pub fn new(token_url: Url, client_id: String, client_secret: Secret, scope: Option<String>) -> Self {
        Self { token_url, client_id, client_secret, scope, held: Mutex::new(None) }
    }

    async fn token(&self, connector: &Connector) -> Result<Secret, Error> {
        let mut held = self.held.lock().await;
        if let Some(token) = held.as_ref().filter(|token| Instant::now() < token.until) {
            return Ok(token.value.clone());
        }
        let asked = self.ask(connector).await;
        let token =
            asked.map_err(|error| Error::Grant { url: egress::shown(&self.token_url), source: Box::new(error) })?;
        let value = token.value.clone();
        *held = Some(token);
        Ok(value)
    }

    async fn ask(&self, connector: &Connector) -> Result<Token, Error> {
        let form_type = HeaderValue::from_static("application/x-www-form-urlencoded");
        let headers = vec![
            (header::ACCEPT, HeaderValue::from_static("application/json")),
            (header::CONTENT_TYPE, form_type),
            (header::AUTHORIZATION, self.basic()?),
        ];
        let request = Request {
            method: Method::POST,
            url: &self.token_url,
            token: None,
            headers,
            body: Some(self.form().into_bytes()),
            streaming: false,
            http2: false,
        };
        let response = connector.send(request).await?;
        let status = response.status;
        let body = match response.capped(GRANT_BYTES).bytes().await {
            // The status says enough.
            Err(Error::TooLarge { .. }) if !status.is_success() => Bytes::new(),
            body => body?,
        };
        if !status.is_success() {
            return Err(Error::told(status.as_u16(), refusal(status.as_u16(), &body)));
        }
        granted(&body)
    }

    fn form(&self) -> String {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "client_credentials");
        form.extend_pairs(self.scope.iter().map(|scope| ("scope", scope)));
        form.finish()
    }

    /// The id and the secret are form-encoded before they are joined (RFC 6749, section 2.3.1).
    fn basic(&self) -> Result<HeaderValue, Error> {
        let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let pair = format!("{}:{}", encode(&self.client_id), encode(self.client_secret.expose()));
        sensitive(&format!("Basic {}", STANDARD.encode(pair)))
    }
}

/// A token as it stands in a header.
pub(crate) fn bearer(token: &Secret) -> Result<HeaderValue, Error> {
    sensitive(&format!("Bearer {}", token.expose()))
}

fn sensitive(text: &str) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::from_str(text).map_err(|_| Error::Token)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Reads what a token endpoint grants (RFC 6749, section 5.1).
fn granted(body: &[u8]) -> Result<Token, Error> {
    let malformed = |what: &str| Error::Malformed(what.to_owned());
    let said: Value = serde_json::from_slice(body).map_err(|_| malformed("the grant is not JSON"))?;
    let token = said["access_token"].as_str().filter(|token| !token.is_empty());
    let token = token.ok_or_else(|| malformed("the grant has no access_token"))?;
    if let Some(kind) = said["token_type"].as_str().filter(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return Err(Error::Malformed(format!("the grant is a token of type `{}`, not a bearer's", excerpt(kind))));
    }
    // Some write the number as a string.
    let seconds = match &said["expires_in"] {
        Value::String(text) => text.parse().ok(),
        number => number.as_f64(),
    };
    let lifetime = seconds.filter(|seconds: &f64| seconds.is_finite()).map_or(DEFAULT_LIFETIME, |seconds| {
        Duration::from_secs_f64(seconds.clamp(0.0, LONGEST_LIFETIME.as_secs_f64()))
    });
    Ok(Token { value: Secret::new(token), until: Instant::now() + lifetime.saturating_sub(MARGIN) })
}

/// Reads why a token endpoint refuses (RFC 6749, section 5.2).
fn refusal(status: u16, body: &[u8]) -> RemoteError {
    let mut remote = RemoteError::from_status_body(status, body);
    let said = parse_error_body(body);
    if let (Some(error), Some(why)) = (said["error"].as_str(), said["error_description"].as_str()) {
        remote.message = format!("{}: {}", excerpt(error), excerpt(why));
    }
    remote
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds_left(body: &str) -> u64 {
        let left = granted(body.as_bytes()).unwrap().until.saturating_duration_since(Instant::now());
        left.as_secs_f64().round() as u64
    }

    #[test]
    fn a_grant_says_how_long_it_is_good_for() {
        assert_eq!(seconds_left(r#"{"access_token":"t","token_type":"Bearer","expires_in":3600}"#), 3570);
        assert_eq!(seconds_left(r#"{"access_token":"t","token_type":"bearer","expires_in":"90"}"#), 60);
        assert_eq!(seconds_left(r#"{"access_token":"t"}"#), 270);
        assert_eq!(seconds_left(r#"{"access_token":"t","expires_in":10}"#), 0, "good for the call that asked for it");
        assert_eq!(seconds_left(r#"{"access_token":"t","expires_in":-5}"#), 0);
        assert!(seconds_left(r#"{"access_token":"t","expires_in":1e300}"#) > 0);
    }

    #[test]
    fn what_is_no_bearer_token_is_no_grant() {
        for body in ["", "[]", "{}", r#"{"access_token":""}"#, r#"{"access_token":"t","token_type":"mac"}"#] {
            assert!(matches!(granted(body.as_bytes()), Err(Error::Malformed(_))), "{body}");
        }
    }

    #[test]
    fn a_refusal_is_told_in_its_own_words() {
        let told = refusal(401, br#"{"error":"invalid_client","error_description":"no such client"}"#);
        assert_eq!(told.to_string(), "invalid_client: no such client (401)");
        assert_eq!(refusal(400, br#"{"error":"invalid_scope"}"#).message, "invalid_scope");
    }

    #[test]
    fn an_id_and_a_secret_are_encoded_before_they_are_joined() {
        let url = crate::parse_url("https://h/token").unwrap();
        let credentials = ClientCredentials::new(url, "a:b".to_owned(), Secret::new("c d"), None);
        let basic = credentials.basic().unwrap();
        assert_eq!(basic.to_str().unwrap(), format!("Basic {}", STANDARD.encode("a%3Ab:c+d")));
        assert!(basic.is_sensitive());
        assert!(!format!("{credentials:?}").contains("c d"));
    }
}
