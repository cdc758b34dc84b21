//! The A2A surface, `/a2a`: both bindings of the protocol, at the gateway and at each agent.

use a2a::{Error, PROTOCOL_VERSION};
use axum::response::Response;
use exchange::Caller;
use http::{HeaderMap, HeaderValue};

use crate::{
    headers,
    path::{Place, Resource},
    rest,
    rpc::{self, Contract},
    surface::{Surface, Visit},
};

impl Surface for Place {
    type Caller = Caller;

    fn at(segments: &[&str]) -> Option<Self> {
        Self::at(segments)
    }

    fn allow(&self) -> &'static str {
        self.resource.allow()
    }

    async fn answer(self, visit: Visit<'_, Caller>) -> Result<Response, Error> {
        match self.resource {
            Resource::JsonRpc => rpc::answer(visit, Contract::A2a, self.agent).await,
            resource => rest::answer(visit, self.agent, resource).await,
        }
    }

    fn mark(headers: &mut HeaderMap) {
        // What answers in another version has said so.
        headers.entry(headers::A2A_VERSION).or_insert(HeaderValue::from_static(PROTOCOL_VERSION));
    }
}
