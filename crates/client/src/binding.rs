//! The operations as a binding has to carry them, and which binding and dialect a card leads to.

use a2a::{
    AgentInterface, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, Dialect, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest, ListTasksRequest,
    SendMessageRequest, SubscribeToTaskRequest, TaskPushNotificationConfig, error::excerpt,
};
use http::Method;
use serde_json::value::RawValue;
use url::Url;

use crate::{Discovered, Error, discovery::same_host, grpc, rest, rpc, same_origin, v03};

/// Below it are the ports of a system's own services.
const FIRST_FREE_PORT: u16 = 1024;
/// Those of the web are among them.
const WEB_PORTS: [u16; 2] = [80, 443];

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

/// Which of a card's interfaces is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// 1.0 before 0.3, JSON-RPC before HTTP+JSON. gRPC is for those who ask for it.
    #[default]
    Ours,
    /// The first that we speak, gRPC included.
    Card,
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

/// What an interface is chosen by.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Choice<'a> {
    /// This binding and no other.
    pub(crate) binding: Option<Binding>,
    pub(crate) order: Order,
    /// Where the agent is, whatever the card says.
    pub(crate) at: Option<&'a Url>,
}

/// An interface in a binding and a dialect that we speak.
#[derive(Debug, Clone, Copy)]
struct Spoken<'a> {
    interface: &'a AgentInterface,
    binding: Binding,
    dialect: Dialect,
    version: Option<&'static str>,
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
        match self {
            Self::JsonRpc => rpc::decode_frame(data),
            Self::Rest => rest::decode_frame(data),
            Self::Grpc => grpc::decode(data.as_bytes()),
        }
    }
}

/// How answers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// In the JSON of 1.0, one for all bindings.
    V1,
    /// In the JSON of 0.3.
    V03,
    /// In the JSON of 0.3's proto.
    V03Proto,
}

impl Endpoint {
    pub(crate) fn form(&self) -> Form {
        match (self.dialect, self.binding) {
            (Dialect::V1, _) => Form::V1,
            (Dialect::V03, Binding::JsonRpc) => Form::V03,
            (Dialect::V03, Binding::Rest | Binding::Grpc) => Form::V03Proto,
        }
    }

    /// Whether it is where the card is. gRPC may have a port of its own there.
    pub(crate) fn is_at(&self, card: &Url) -> bool {
        match self.binding {
            Binding::Grpc => same_host(card, &self.url),
            Binding::JsonRpc | Binding::Rest => same_origin(card, &self.url),
        }
    }

    pub(crate) fn encode(&self, operation: Operation<'_>) -> Result<Outbound, Error> {
        match (self.dialect, self.binding) {
            (Dialect::V03, Binding::JsonRpc) => v03::encode(&self.url, operation),
            (Dialect::V03, Binding::Rest) => v03::rest::encode(&self.url, operation),
            (Dialect::V03, Binding::Grpc) => v03::grpc::encode(&self.url, operation),
            (Dialect::V1, Binding::JsonRpc) => rpc::encode(&self.url, operation),
            (Dialect::V1, Binding::Rest) => rest::encode(&self.url, operation),
            (Dialect::V1, Binding::Grpc) => Ok(grpc::encode(&self.url, operation)),
        }
    }
}

/// The interface to use: in the order that is asked for, but one that is where the agent is said to be before the others.
pub(crate) fn choose(found: &Discovered, choice: Choice<'_>) -> Result<Endpoint, Error> {
    let all: Vec<Spoken<'_>> =
        found.card.supported_interfaces.iter().filter_map(|interface| Spoken::of(found, interface)).collect();
    let mut spoken: Vec<&Spoken<'_>> = all.iter().filter(|spoken| choice.admits(spoken)).collect();
    if spoken.is_empty() {
        // Who speaks nothing else is called where it listens, unless that is a place of the system's own services.
        spoken = all.iter().filter(|spoken| choice.bears(spoken)).collect();
    }
    if choice.order == Order::Ours {
        spoken.sort_by_key(|spoken| (spoken.dialect == Dialect::V03, spoken.binding != Binding::JsonRpc));
    }
    let here = choice.at.and_then(|at| spoken.iter().find(|spoken| spoken.has_path_of(at)));
    match here.or(spoken.first()) {
        Some(spoken) => spoken.endpoint(&found.url, choice.at),
        None if choice.binding == Some(Binding::Grpc) => Err(Error::NoGrpc),
        None => Err(Error::NoInterface),
    }
}

impl Choice<'_> {
    fn admits(&self, spoken: &Spoken<'_>) -> bool {
        match (self.binding, self.order, self.at) {
            (Some(wanted), ..) => spoken.binding == wanted,
            // A card does not choose the port that is called at the operator's host.
            (None, Order::Card, Some(at)) => spoken.binding != Binding::Grpc || spoken.is_on_port_of(at),
            (None, Order::Card, None) => true,
            (None, Order::Ours, _) => spoken.binding != Binding::Grpc,
        }
    }

    fn bears(&self, spoken: &Spoken<'_>) -> bool {
        let at = self.at.filter(|_| self.binding.is_none() && self.order == Order::Card);
        at.is_some_and(|at| spoken.binding == Binding::Grpc && spoken.is_on_free_port(at))
    }
}

impl<'a> Spoken<'a> {
    fn of(found: &Discovered, interface: &'a AgentInterface) -> Option<Self> {
        let bindings = [Binding::JsonRpc, Binding::Rest, Binding::Grpc];
        let binding = bindings.into_iter().find(|binding| interface.protocol_binding == binding.as_str())?;
        let spoken = |dialect, version| Some(Self { interface, binding, dialect, version });
        // A card of the old shape speaks 0.3, whatever version it claims.
        let is_old = found.protocol_version.is_some();
        if !is_old && speaks_1_0(&interface.protocol_version) {
            return spoken(Dialect::V1, Some(a2a::PROTOCOL_VERSION));
        }
        let says_0_3 = speaks_0_3(found.protocol_version.as_deref().unwrap_or(&interface.protocol_version));
        if is_old || says_0_3 { spoken(Dialect::V03, says_0_3.then_some("0.3")) } else { None }
    }

    /// Whether it is what the agent's URL leads to. An address of gRPC has no path.
    fn is_on_free_port(&self, at: &Url) -> bool {
        let said = grpc::url(&self.interface.url, at).ok();
        said.and_then(|said| said.port_or_known_default())
            .is_some_and(|port| port >= FIRST_FREE_PORT || WEB_PORTS.contains(&port))
    }

    fn is_on_port_of(&self, at: &Url) -> bool {
        let said = grpc::url(&self.interface.url, at);
        said.is_ok_and(|said| said.port_or_known_default() == at.port_or_known_default())
    }

    fn has_path_of(&self, at: &Url) -> bool {
        let bare = |url: &Url| url.path().trim_end_matches('/').to_owned();
        self.binding != Binding::Grpc && at.join(&self.interface.url).is_ok_and(|url| bare(&url) == bare(at))
    }

    /// Where it is: with `at` never anywhere else than there, whatever the card says.
    fn endpoint(&self, card: &Url, at: Option<&Url>) -> Result<Endpoint, Error> {
        let said = &self.interface.url;
        let url = match (self.binding, at) {
            (Binding::Grpc, None) => grpc::url(said, card)?,
            (Binding::JsonRpc | Binding::Rest, None) => crate::parse_url(said)?,
            (Binding::JsonRpc, Some(at)) => at.clone(),
            (Binding::Rest, Some(at)) => {
                let mut url = at.clone();
                let refuse = |error: url::ParseError| Error::Url { url: excerpt(said), reason: error.to_string() };
                url.set_path(at.join(said).map_err(refuse)?.path());
                url
            }
            (Binding::Grpc, Some(at)) => {
                let said = grpc::url(said, at)?;
                let mut url = at.clone();
                url.set_path("");
                url.set_query(None);
                // None of these fails for a URL with a host. A card can ask for TLS but cannot do away with it.
                if said.scheme() == "https" {
                    let _ = url.set_scheme("https");
                }
                let _ = url.set_port(said.port_or_known_default());
                url
            }
        };
        let Self { binding, dialect, version, interface } = *self;
        Ok(Endpoint { binding, dialect, version, url, tenant: interface.tenant.clone() })
    }
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

    fn only(binding: Binding) -> Choice<'static> {
        Choice { binding: Some(binding), ..Choice::default() }
    }

    /// What is taken of these interfaces when the agent is said to be at `at`.
    fn taken(order: Order, at: &str, interfaces: &[(&str, &str, &str)]) -> (Binding, String) {
        let at = crate::parse_url(at).unwrap();
        let choice = Choice { order, at: Some(&at), ..Choice::default() };
        let chosen = choose(&found(None, interfaces), choice).unwrap();
        (chosen.binding, chosen.url.to_string())
    }

    #[test]
    fn json_rpc_is_preferred() {
        let card = found(None, &[("HTTP+JSON", "1.0", "http://a/rest"), ("JSONRPC", "1.0", "http://a/rpc")]);
        assert_eq!(choose(&card, Choice::default()).unwrap().binding, Binding::JsonRpc);
        assert_eq!(choose(&card, only(Binding::Rest)).unwrap().url.as_str(), "http://a/rest");
    }

    #[test]
    fn the_newer_dialect_is_preferred() {
        let interfaces =
            [("JSONRPC", "0.3", "http://a/old"), ("GRPC", "1.0", "a:1"), ("HTTP+JSON", "1.0.1", "http://a/r")];
        let card = found(None, &interfaces);
        let chosen = choose(&card, Choice::default()).unwrap();
        assert_eq!((chosen.url.as_str(), chosen.dialect), ("http://a/r", Dialect::V1));
        let chosen = choose(&card, only(Binding::JsonRpc)).unwrap();
        assert_eq!((chosen.url.as_str(), chosen.dialect, chosen.version), ("http://a/old", Dialect::V03, Some("0.3")));
    }

    #[test]
    fn a_version_is_told_only_to_those_who_say_it() {
        for (said, version) in
            [("0.3.0", Some("0.3")), ("0.3", Some("0.3")), ("0.2.6", None), ("", None), ("1.0", None)]
        {
            let card = found(Some(said), &[("GRPC", "0.3.0", "a:1"), ("JSONRPC", "1.0", "http://a/rpc")]);
            let chosen = choose(&card, Choice::default()).unwrap();
            assert_eq!((chosen.dialect, chosen.version), (Dialect::V03, version), "{said}");
        }
    }

    #[test]
    fn grpc_is_for_those_who_want_it() {
        let card = found(None, &[("GRPC", "1.0", "a:1"), ("HTTP+JSON", "1.0", "http://a/r")]);
        assert_eq!(choose(&card, Choice::default()).unwrap().binding, Binding::Rest);
        let chosen = choose(&card, only(Binding::Grpc)).unwrap();
        assert_eq!((chosen.binding, chosen.url.as_str()), (Binding::Grpc, "http://a:1/"));
        assert!(chosen.is_at(&card.url), "a port of its own on the same host");
        assert!(!chosen.is_at(&crate::parse_url("http://b/card.json").unwrap()));
        let plain = found(None, &[("HTTP+JSON", "1.0", "http://a/r")]);
        assert!(matches!(choose(&plain, only(Binding::Grpc)), Err(Error::NoGrpc)));
    }

    #[test]
    fn the_first_of_the_card_is_for_those_who_want_it() {
        let interfaces = [
            ("SOAP", "1.0", "http://a/soap"),
            ("GRPC", "1.0", "a:1"),
            ("JSONRPC", "0.3", "http://a/old"),
            ("JSONRPC", "1.0", "http://a/new"),
        ];
        let first = |interfaces: &[_]| {
            let choice = Choice { order: Order::Card, ..Choice::default() };
            let chosen = choose(&found(None, interfaces), choice).unwrap();
            (chosen.binding, chosen.dialect)
        };
        assert_eq!(first(&interfaces), (Binding::Grpc, Dialect::V1));
        assert_eq!(first(&interfaces[2..]), (Binding::JsonRpc, Dialect::V03));
        assert_eq!(first(&interfaces[3..]), (Binding::JsonRpc, Dialect::V1));
    }

    #[test]
    fn the_agent_is_where_the_operator_says() {
        let rpc = ("JSONRPC", "1.0", "http://127.0.0.1:1/rpc");
        let rest = ("HTTP+JSON", "1.0", "http://127.0.0.1:1/rest");
        let grpc = ("GRPC", "1.0", "127.0.0.1:50051");
        let at = "https://h:9/a2a?k=1";
        assert_eq!(taken(Order::Card, at, &[rpc, rest]), (Binding::JsonRpc, at.to_owned()));
        assert_eq!(taken(Order::Card, at, &[rest, rpc]), (Binding::Rest, "https://h:9/rest?k=1".to_owned()));
        assert_eq!(
            taken(Order::Card, at, &[grpc, rpc]),
            (Binding::JsonRpc, at.to_owned()),
            "a port is not the card's to choose"
        );
        assert_eq!(
            taken(Order::Card, at, &[grpc]),
            (Binding::Grpc, "https://h:50051/".to_owned()),
            "there is nothing else"
        );
        let system = found(None, &[("GRPC", "1.0", "127.0.0.1:22")]);
        let url = Url::parse(at).unwrap();
        let choice = Choice { order: Order::Card, at: Some(&url), ..Choice::default() };
        assert!(matches!(choose(&system, choice), Err(Error::NoInterface)));
        let here = ("GRPC", "1.0", "127.0.0.1:9");
        assert_eq!(taken(Order::Card, at, &[here, rpc]), (Binding::Grpc, "https://h:9/".to_owned()));
        let wanted = Choice { binding: Some(Binding::Grpc), order: Order::Card, at: Some(&url) };
        let chosen = choose(&found(None, &[rpc, grpc]), wanted).unwrap();
        assert_eq!(chosen.url.as_str(), "https://h:50051/", "who asks for gRPC gets it where it is");
        for said in ["", "not a url", "http://u:p@inside/", "/relative"] {
            assert_eq!(taken(Order::Ours, at, &[("JSONRPC", "1.0", said)]).1, at, "{said}");
        }
        assert_eq!(taken(Order::Ours, at, &[("HTTP+JSON", "1.0", "/relative")]).1, "https://h:9/relative?k=1");
        let tls = ("GRPC", "1.0", "https://inside");
        assert_eq!(taken(Order::Card, "http://h:8080/x", &[tls]).1, "https://h/");
        let plain = ("GRPC", "1.0", "http://inside:80");
        assert_eq!(taken(Order::Card, at, &[plain]).1, "https://h:80/", "a card cannot do away with TLS");
    }

    #[test]
    fn an_interface_at_that_path_is_what_is_meant() {
        let rpc = ("JSONRPC", "1.0", "http://127.0.0.1:1/rpc");
        let rest = ("HTTP+JSON", "1.0", "http://127.0.0.1:1/rest/");
        for order in [Order::Ours, Order::Card] {
            let expected = (Binding::Rest, "http://h/rest/".to_owned());
            assert_eq!(taken(order, "http://h/rest", &[rpc, rest]), expected);
            assert_eq!(taken(order, "http://h/rpc/", &[rest, rpc]).0, Binding::JsonRpc);
        }
    }

    #[test]
    fn the_old_dialect_has_three_bindings() {
        let interfaces =
            [("GRPC", "0.3.0", "a:1"), ("HTTP+JSON", "0.3.0", "http://a/y"), ("JSONRPC", "0.3.0", "http://a/x")];
        for said in [None, Some("0.3.0")] {
            let card = found(said, &interfaces);
            let form =
                |choice: Choice<'_>| choose(&card, choice).map(|chosen| (chosen.binding, chosen.form())).unwrap();
            assert_eq!(form(Choice::default()), (Binding::JsonRpc, Form::V03));
            assert_eq!(form(only(Binding::Rest)), (Binding::Rest, Form::V03Proto));
            assert_eq!(form(only(Binding::Grpc)), (Binding::Grpc, Form::V03Proto));
            let card_order = Choice { order: Order::Card, ..Choice::default() };
            assert_eq!(form(card_order), (Binding::Grpc, Form::V03Proto));
        }
    }

    #[test]
    fn what_nobody_speaks_is_no_interface() {
        for (said, interfaces) in [
            (None, vec![("JSONRPC", "2.0", "http://a/x"), ("GRPC", "1.0", "a:1"), ("HTTP+JSON", "0.2", "http://a/y")]),
            (Some("0.3.0"), vec![("GRPC", "0.3.0", "a:1"), ("SOAP", "0.3.0", "http://a/y")]),
            (None, vec![]),
        ] {
            assert!(
                matches!(choose(&found(said, &interfaces), Choice::default()), Err(Error::NoInterface)),
                "{interfaces:?}"
            );
        }
        let old = found(Some("0.3.0"), &[("JSONRPC", "0.3.0", "http://a/x")]);
        assert!(matches!(choose(&old, only(Binding::Rest)), Err(Error::NoInterface)));
    }
}
