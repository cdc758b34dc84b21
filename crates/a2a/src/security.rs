//! How an agent wants its callers to authenticate, as its card says it.

use std::collections::BTreeMap;

use crate::wire::{message, oneof};

oneof! {
    pub enum SecurityScheme {
        ApiKey(APIKeySecurityScheme) = api_key_security_scheme "apiKeySecurityScheme",
        HttpAuth(HTTPAuthSecurityScheme) = http_auth_security_scheme "httpAuthSecurityScheme",
        OAuth2(OAuth2SecurityScheme) = oauth2_security_scheme "oauth2SecurityScheme",
        OpenIdConnect(OpenIdConnectSecurityScheme) = open_id_connect_security_scheme "openIdConnectSecurityScheme",
        MutualTls(MutualTlsSecurityScheme) = mtls_security_scheme "mtlsSecurityScheme",
    }
    or
    /// A kind of scheme that this version of the protocol does not know: no reason to refuse the whole card.
    Unspecified
}

message! {
    /// Schemes that are needed together, each with its scopes.
    pub struct SecurityRequirement {
        implicit schemes "schemes": BTreeMap<String, StringList>,
    }
}

message! {
    pub struct StringList {
        implicit list "list": Vec<String>,
    }
}

message! {
    pub struct APIKeySecurityScheme {
        implicit description "description": String,
        /// `query`, `header` or `cookie`.
        always location "location": String,
        always name "name": String,
    }
}

message! {
    pub struct HTTPAuthSecurityScheme {
        implicit description "description": String,
        always scheme "scheme": String,
        implicit bearer_format "bearerFormat": String,
    }
}

message! {
    pub struct OAuth2SecurityScheme {
        implicit description "description": String,
        always flows "flows": OAuthFlows,
        implicit oauth2_metadata_url "oauth2MetadataUrl": String,
    }
}

message! {
    pub struct OpenIdConnectSecurityScheme {
        implicit description "description": String,
        always open_id_connect_url "openIdConnectUrl": String,
    }
}

message! {
    pub struct MutualTlsSecurityScheme {
        implicit description "description": String,
    }
}

oneof! {
    #[derive(Default)]
    pub enum OAuthFlows {
        AuthorizationCode(AuthorizationCodeOAuthFlow) = authorization_code "authorizationCode",
        ClientCredentials(ClientCredentialsOAuthFlow) = client_credentials "clientCredentials",
        Implicit(ImplicitOAuthFlow) = implicit "implicit",
        Password(PasswordOAuthFlow) = password "password",
        DeviceCode(DeviceCodeOAuthFlow) = device_code "deviceCode",
    }
    or
    /// A flow that this version of the protocol does not know.
    #[default]
    Unspecified
}

message! {
    pub struct AuthorizationCodeOAuthFlow {
        always authorization_url "authorizationUrl": String,
        always token_url "tokenUrl": String,
        implicit refresh_url "refreshUrl": String,
        always scopes "scopes": BTreeMap<String, String>,
        implicit pkce_required "pkceRequired": bool,
    }
}

message! {
    pub struct ClientCredentialsOAuthFlow {
        always token_url "tokenUrl": String,
        implicit refresh_url "refreshUrl": String,
        always scopes "scopes": BTreeMap<String, String>,
    }
}

message! {
    pub struct ImplicitOAuthFlow {
        implicit authorization_url "authorizationUrl": String,
        implicit refresh_url "refreshUrl": String,
        implicit scopes "scopes": BTreeMap<String, String>,
    }
}

message! {
    pub struct PasswordOAuthFlow {
        implicit token_url "tokenUrl": String,
        implicit refresh_url "refreshUrl": String,
        implicit scopes "scopes": BTreeMap<String, String>,
    }
}

message! {
    pub struct DeviceCodeOAuthFlow {
        always device_authorization_url "deviceAuthorizationUrl": String,
        always token_url "tokenUrl": String,
        implicit refresh_url "refreshUrl": String,
        always scopes "scopes": BTreeMap<String, String>,
    }
}
