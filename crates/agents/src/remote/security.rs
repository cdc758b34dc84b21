//! How a remote wants its callers to authenticate, in the words of this server.

use a2a::{AgentCard, SecurityScheme};

use crate::frame::clean;

/// The longest list that is told.
const MOST: usize = 16;

/// The credentials that a card demands or accepts.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Security {
    /// The ways to authenticate, any one of which is enough.
    pub(super) ways: Vec<String>,
    /// The kind of the first of them where one is required: `bearer`, `apiKey`, or `other`.
    pub(super) required: Option<&'static str>,
}

impl Security {
    pub(super) fn of(card: &AgentCard) -> Self {
        let schemes = &card.security_schemes;
        let requirements = &card.security_requirements;
        if requirements.is_empty() {
            // A card may list its schemes and demand none.
            let ways = schemes.iter().take(MOST).map(|(name, scheme)| spoken(name, Some(scheme))).collect();
            return Self { ways, required: None };
        }
        let way = |names: Vec<&String>| {
            let together: Vec<String> =
                names.into_iter().take(MOST).map(|name| spoken(name, schemes.get(name))).collect();
            together.join(" with ")
        };
        let named = requirements.iter().map(|requirement| requirement.schemes.keys().collect::<Vec<_>>());
        let ways = named.filter(|names| !names.is_empty()).take(MOST).map(way).collect();
        let is_optional = requirements.iter().any(|requirement| requirement.schemes.is_empty());
        let first = requirements.first().and_then(|requirement| requirement.schemes.keys().next());
        let kind = match first.and_then(|name| schemes.get(name)) {
            Some(SecurityScheme::ApiKey(key)) if key.location == "header" => "apiKey",
            Some(SecurityScheme::HttpAuth(http)) if http.scheme.eq_ignore_ascii_case("bearer") => "bearer",
            Some(SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_)) => "bearer",
            _ => "other",
        };
        Self { ways, required: (!is_optional).then_some(kind) }
    }
}

/// A scheme in a few words.
fn spoken(name: &str, scheme: Option<&SecurityScheme>) -> String {
    match scheme {
        Some(SecurityScheme::ApiKey(key)) => {
            format!("an API key in the {} {}", clean(&key.location), clean(&key.name))
        }
        Some(SecurityScheme::HttpAuth(http)) if http.scheme.eq_ignore_ascii_case("bearer") => {
            "a bearer token".to_owned()
        }
        Some(SecurityScheme::HttpAuth(http)) => format!("HTTP authentication `{}`", clean(&http.scheme)),
        Some(SecurityScheme::OAuth2(_)) => "a token of OAuth 2.0".to_owned(),
        Some(SecurityScheme::OpenIdConnect(_)) => "a token of OpenID Connect".to_owned(),
        Some(SecurityScheme::MutualTls(_)) => "a client certificate".to_owned(),
        Some(SecurityScheme::Unspecified) | None => format!("the unknown scheme `{}`", clean(name)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn security(schemes: &Value, requirements: &Value) -> Security {
        let card = AgentCard {
            security_schemes: serde_json::from_value(schemes.clone()).unwrap(),
            security_requirements: serde_json::from_value(requirements.clone()).unwrap(),
            ..AgentCard::default()
        };
        Security::of(&card)
    }

    #[test]
    fn a_demand_is_told_in_words() {
        let schemes = json!({
            "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}},
            "token": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
            "tls": {"mtlsSecurityScheme": {}},
        });
        let requirement = |names: &[&str]| {
            let schemes: serde_json::Map<String, Value> =
                names.iter().map(|name| ((*name).to_owned(), json!({"list": []}))).collect();
            json!({ "schemes": schemes })
        };
        let made = security(&schemes, &json!([requirement(&["token"]), requirement(&["key", "tls"])]));
        assert_eq!(made.ways, ["a bearer token", "an API key in the header X-Key with a client certificate"]);
        assert_eq!(made.required, Some("bearer"));
        assert_eq!(security(&schemes, &json!([requirement(&["key"])])).required, Some("apiKey"));
        assert_eq!(security(&schemes, &json!([requirement(&["tls"])])).required, Some("other"));
        assert_eq!(security(&schemes, &json!([requirement(&["token"]), {}])).required, None, "it may be left out");
        assert_eq!(security(&schemes, &json!([])).required, None);
        assert_eq!(security(&schemes, &json!([])).ways.len(), 3);
        assert_eq!(security(&json!({}), &json!([requirement(&["x"])])).ways, ["the unknown scheme `x`"]);
        assert_eq!(security(&json!({}), &json!([])), Security::default());
    }
}
