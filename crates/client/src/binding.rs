//! The operations as a binding has to carry them, and which binding a card leads to.

use a2a::{
    AgentCard, CancelTaskRequest, GetExtendedAgentCardRequest, GetTaskRequest, ListTasksRequest, SendMessageRequest,
    SubscribeToTaskRequest,
};
use http::Method;
use serde_json::value::RawValue;
use url::Url;

use crate::{Error, rest, rpc};

/// A way to carry the operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// JSON-RPC 2.0 over HTTP.
    JsonRpc,
    /// HTTP+JSON.
    Rest,
}

/// One operation with its request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operation<'a> {
    Send(&'a SendMessageRequest),
    Stream(&'a SendMessageRequest),
    Get(&'a GetTaskRequest),
    List(&'a ListTasksRequest),
    Cancel(&'a CancelTaskRequest),
    Subscribe(&'a SubscribeToTaskRequest),
    ExtendedCard(&'a GetExtendedAgentCardRequest),
}

/// An operation as HTTP.
#[derive(Debug)]
pub(crate) struct Outbound {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) media_type: Option<&'static str>,
    pub(crate) body: Option<Vec<u8>>,
}

/// Where a card says the agent is, in a binding we speak.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub(crate) binding: Binding,
    pub(crate) url: Url,
    /// What goes into the `tenant` field of every request.
    pub(crate) tenant: String,
}

impl Binding {
    /// The name on cards.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::JsonRpc => "JSONRPC",
            Self::Rest => "HTTP+JSON",
        }
    }

    pub(crate) fn encode(self, endpoint: &Url, operation: Operation<'_>) -> Result<Outbound, Error> {
        match self {
            Self::JsonRpc => rpc::encode(endpoint, operation),
            Self::Rest => rest::encode(endpoint, operation),
        }
    }

    /// The result in a whole answer.
    pub(crate) fn decode(self, status: u16, body: &[u8]) -> Result<Box<RawValue>, Error> {
        match self {
            Self::JsonRpc => rpc::decode(status, body),
            Self::Rest => rest::decode(status, body),
        }
    }

    /// The result in one event of a stream.
    pub(crate) fn decode_frame(self, data: &str) -> Result<Box<RawValue>, Error> {
        self.decode(200, data.as_bytes())
    }
}

/// The interface to use: JSON-RPC before HTTP+JSON, unless the caller wants one of them.
pub(crate) fn choose(card: &AgentCard, wanted: Option<Binding>) -> Result<Endpoint, Error> {
    let order = match wanted {
        Some(binding) => vec![binding],
        None => vec![Binding::JsonRpc, Binding::Rest],
    };
    for binding in order {
        for interface in &card.supported_interfaces {
            if interface.protocol_binding != binding.as_str() || !speaks_1_0(&interface.protocol_version) {
                continue;
            }
            let url = crate::parse_url(&interface.url)?;
            return Ok(Endpoint { binding, url, tenant: interface.tenant.clone() });
        }
    }
    Err(Error::NoInterface)
}

/// `1`, `1.0` and `1.0.x` are 1.0: patch numbers never count.
fn speaks_1_0(version: &str) -> bool {
    matches!(version, "1" | "1.0") || version.starts_with("1.0.")
}

#[cfg(test)]
mod tests {
    use a2a::AgentInterface;

    use super::*;

    fn card(interfaces: &[(&str, &str, &str)]) -> AgentCard {
        let supported_interfaces = interfaces
            .iter()
            .map(|(binding, version, url)| AgentInterface {
                url: (*url).to_owned(),
                protocol_binding: (*binding).to_owned(),
                protocol_version: (*version).to_owned(),
                tenant: String::new(),
            })
            .collect();
        AgentCard { supported_interfaces, ..AgentCard::default() }
    }

    #[test]
    fn json_rpc_is_preferred() {
        let card = card(&[("HTTP+JSON", "1.0", "http://a/rest"), ("JSONRPC", "1.0", "http://a/rpc")]);
        assert_eq!(choose(&card, None).unwrap().binding, Binding::JsonRpc);
        assert_eq!(choose(&card, Some(Binding::Rest)).unwrap().url.as_str(), "http://a/rest");
    }

    #[test]
    fn other_versions_and_bindings_are_passed_over() {
        let card =
            card(&[("JSONRPC", "0.3", "http://a/old"), ("GRPC", "1.0", "a:1"), ("HTTP+JSON", "1.0.1", "http://a/r")]);
        assert_eq!(choose(&card, None).unwrap().url.as_str(), "http://a/r");
        assert!(matches!(choose(&card, Some(Binding::JsonRpc)), Err(Error::NoInterface)));
    }
}
