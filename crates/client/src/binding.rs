//! The operations as a binding has to carry them, and which binding and dialect a card leads to.

use a2a::{
    AgentInterface, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, Dialect, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest, ListTasksRequest,
    SendMessageRequest, SubscribeToTaskRequest, TaskPushNotificationConfig,
};
use http::Method;
use serde_json::value::RawValue;
use url::Url;

use crate::{Discovered, Error, discovery::same_host, grpc, rest, rpc, same_origin, v03};

/// A way to carry the operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// JSON-RPC 2.0 over HTTP.
    JsonRpc,
    /// HTTP+JSON.
    Rest,
    /// gRPC.
    Grpc,
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
    CreatePush(&'a TaskPushNotificationConfig),
    GetPush(&'a GetTaskPushNotificationConfigRequest),
    ListPush(&'a ListTaskPushNotificationConfigsRequest),
    DeletePush(&'a DeleteTaskPushNotificationConfigRequest),
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
    pub(crate) dialect: Dialect,
    /// What `A2A-Version` says. An old server whose card does not say 0.3 is not told a version that it may refuse.
    pub(crate) version: Option<&'static str>,
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
            Self::Grpc => "GRPC",
        }
    }

    /// The result in a whole answer. One of gRPC was turned into JSON before.
    pub(crate) fn decode(self, status: u16, body: &[u8]) -> Result<Box<RawValue>, Error> {
        match self {
            Self::JsonRpc => rpc::decode(status, body),
            Self::Rest => rest::decode(status, body),
            Self::Grpc => grpc::decode(body),
        }
    }

    /// Whether an operation that has nothing to tell went well. Servers differ in how they write nothing.
    pub(crate) fn acknowledged(self, status: u16, body: &[u8]) -> Result<(), Error> {
        match self {
            Self::JsonRpc => rpc::acknowledged(status, body),
            Self::Rest => rest::acknowledged(status, body),
            Self::Grpc => grpc::decode(body).map(|_| ()),
        }
    }

    /// The result in one event of a stream.
    pub(crate) fn decode_frame(self, data: &str) -> Result<Box<RawValue>, Error> {
        self.decode(200, data.as_bytes())
    }
}

impl Endpoint {
    /// Whether it is where the card is. gRPC may have a port of its own there.
    pub(crate) fn is_at(&self, card: &Url) -> bool {
        match self.binding {
            Binding::Grpc => same_host(card, &self.url),
            Binding::JsonRpc | Binding::Rest => same_origin(card, &self.url),
        }
    }

    pub(crate) fn encode(&self, operation: Operation<'_>) -> Result<Outbound, Error> {
        match (self.dialect, self.binding) {
            (Dialect::V03, _) => v03::encode(&self.url, operation),
            (Dialect::V1, Binding::JsonRpc) => rpc::encode(&self.url, operation),
            (Dialect::V1, Binding::Rest) => rest::encode(&self.url, operation),
            (Dialect::V1, Binding::Grpc) => Ok(grpc::encode(&self.url, operation)),
        }
    }
}

/// The interface to use: 1.0 before 0.3, JSON-RPC before HTTP+JSON, unless the caller wants one of them. gRPC is for those who
/// want it.
pub(crate) fn choose(found: &Discovered, wanted: Option<Binding>) -> Result<Endpoint, Error> {
    let order = match wanted {
        Some(binding) => vec![binding],
        None => vec![Binding::JsonRpc, Binding::Rest],
    };
    // A card of the old shape speaks 0.3, whatever version it claims.
    let old_shape = found.protocol_version.is_some();
    for &binding in &order {
        let speaks = |interface: &AgentInterface| !old_shape && speaks_1_0(&interface.protocol_version);
        if let Some(interface) = interface(found, binding, speaks) {
            return endpoint(found, interface, binding, Dialect::V1, Some(a2a::PROTOCOL_VERSION));
        }
    }
    let speaks = |interface: &AgentInterface| old_shape || speaks_0_3(&interface.protocol_version);
    match interface(found, Binding::JsonRpc, speaks) {
        Some(interface) if order.contains(&Binding::JsonRpc) => {
            let said = found.protocol_version.as_deref().unwrap_or(&interface.protocol_version);
            let version = speaks_0_3(said).then_some("0.3");
            endpoint(found, interface, Binding::JsonRpc, Dialect::V03, version)
        }
        _ if wanted == Some(Binding::Grpc) => Err(Error::NoGrpc),
        _ => Err(Error::NoInterface),
    }
}

fn interface(
    found: &Discovered,
    binding: Binding,
    speaks: impl Fn(&AgentInterface) -> bool,
) -> Option<&AgentInterface> {
    let mut interfaces = found.card.supported_interfaces.iter();
    interfaces.find(|interface| interface.protocol_binding == binding.as_str() && speaks(interface))
}

fn endpoint(
    found: &Discovered,
    interface: &AgentInterface,
    binding: Binding,
    dialect: Dialect,
    version: Option<&'static str>,
) -> Result<Endpoint, Error> {
    let url = match binding {
        Binding::Grpc => grpc::url(&interface.url, &found.url)?,
        Binding::JsonRpc | Binding::Rest => crate::parse_url(&interface.url)?,
    };
    Ok(Endpoint { binding, dialect, version, url, tenant: interface.tenant.clone() })
}

/// `1`, `1.0` and `1.0.x` are 1.0: patch numbers never count.
fn speaks_1_0(version: &str) -> bool {
    matches!(version, "1" | "1.0") || version.starts_with("1.0.")
}

fn speaks_0_3(version: &str) -> bool {
    version == "0.3" || version.starts_with("0.3.")
}

#[cfg(test)]
mod tests {
    use a2a::AgentCard;

    use super::*;

    fn found(protocol_version: Option<&str>, interfaces: &[(&str, &str, &str)]) -> Discovered {
        let supported_interfaces = interfaces
            .iter()
            .map(|(binding, version, url)| AgentInterface {
                url: (*url).to_owned(),
                protocol_binding: (*binding).to_owned(),
                protocol_version: (*version).to_owned(),
                tenant: String::new(),
            })
            .collect();
        Discovered {
            url: crate::parse_url("http://a/card.json").unwrap(),
            card: AgentCard { supported_interfaces, ..AgentCard::default() },
            protocol_version: protocol_version.map(str::to_owned),
            json: bytes::Bytes::new(),
        }
    }

    #[test]
    fn json_rpc_is_preferred() {
        let card = found(None, &[("HTTP+JSON", "1.0", "http://a/rest"), ("JSONRPC", "1.0", "http://a/rpc")]);
        assert_eq!(choose(&card, None).unwrap().binding, Binding::JsonRpc);
        assert_eq!(choose(&card, Some(Binding::Rest)).unwrap().url.as_str(), "http://a/rest");
    }

    #[test]
    fn the_newer_dialect_is_preferred() {
        let interfaces =
            [("JSONRPC", "0.3", "http://a/old"), ("GRPC", "1.0", "a:1"), ("HTTP+JSON", "1.0.1", "http://a/r")];
        let card = found(None, &interfaces);
        let chosen = choose(&card, None).unwrap();
        assert_eq!((chosen.url.as_str(), chosen.dialect), ("http://a/r", Dialect::V1));
        let chosen = choose(&card, Some(Binding::JsonRpc)).unwrap();
        assert_eq!((chosen.url.as_str(), chosen.dialect, chosen.version), ("http://a/old", Dialect::V03, Some("0.3")));
    }

    #[test]
    fn a_version_is_told_only_to_those_who_say_it() {
        for (said, version) in
            [("0.3.0", Some("0.3")), ("0.3", Some("0.3")), ("0.2.6", None), ("", None), ("1.0", None)]
        {
            let card = found(Some(said), &[("GRPC", "0.3.0", "a:1"), ("JSONRPC", "1.0", "http://a/rpc")]);
            let chosen = choose(&card, None).unwrap();
            assert_eq!((chosen.dialect, chosen.version), (Dialect::V03, version), "{said}");
        }
    }

    #[test]
    fn grpc_is_for_those_who_want_it() {
        let card = found(None, &[("GRPC", "1.0", "a:1"), ("HTTP+JSON", "1.0", "http://a/r")]);
        assert_eq!(choose(&card, None).unwrap().binding, Binding::Rest);
        let chosen = choose(&card, Some(Binding::Grpc)).unwrap();
        assert_eq!((chosen.binding, chosen.url.as_str()), (Binding::Grpc, "http://a:1/"));
        assert!(chosen.is_at(&card.url), "a port of its own on the same host");
        assert!(!chosen.is_at(&crate::parse_url("http://b/card.json").unwrap()));
        let plain = found(None, &[("HTTP+JSON", "1.0", "http://a/r")]);
        assert!(matches!(choose(&plain, Some(Binding::Grpc)), Err(Error::NoGrpc)));
    }

    #[test]
    fn what_nobody_speaks_is_no_interface() {
        for (said, interfaces) in [
            (None, vec![("JSONRPC", "2.0", "http://a/x"), ("GRPC", "1.0", "a:1"), ("HTTP+JSON", "0.3", "http://a/y")]),
            (Some("0.3.0"), vec![("GRPC", "0.3.0", "a:1"), ("HTTP+JSON", "0.3.0", "http://a/y")]),
            (None, vec![]),
        ] {
            assert!(matches!(choose(&found(said, &interfaces), None), Err(Error::NoInterface)), "{interfaces:?}");
        }
        let old = found(Some("0.3.0"), &[("JSONRPC", "0.3.0", "http://a/x")]);
        assert!(matches!(choose(&old, Some(Binding::Rest)), Err(Error::NoInterface)));
    }
}
