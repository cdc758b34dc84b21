//! The contexts of a tenant, `/v1/contexts`: what there is of one goes when its tenant says so.

use a2a::Error;
use axum::response::Response;
use exchange::{Call, Caller};

use crate::{
    requests::deleted,
    surface::{Surface, Visit},
};

/// A context, by its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route(String);

impl Surface for Route {
    type Caller = Caller;

    fn at(segments: &[&str]) -> Option<Self> {
        match segments {
            ["v1", "contexts", id] if !id.is_empty() => Some(Self((*id).to_owned())),
            _ => None,
        }
    }

    fn allow(&self) -> &'static str {
        "DELETE, OPTIONS"
    }

    async fn answer(self, mut visit: Visit<'_, Caller>) -> Result<Response, Error> {
        let cancel = visit.query()?.cancel()?;
        // Nothing is said in it, but it has to be read before the connection can go on.
        visit.read().await?;
        let exchange = &visit.app.exchange;
        Ok(deleted(&exchange.delete_context(&Call::new(visit.caller), &self.0, cancel).await?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::route;

    #[test]
    fn routes() {
        assert_eq!(route("/v1/contexts/a%2Fb", Route::at), Some(Route("a/b".to_owned())));
        for path in ["/v1/contexts", "/v1/contexts/", "/v1/contexts/a/b"] {
            assert_eq!(route(path, Route::at), None, "{path}");
        }
    }
}
