//! Reflection, for callers with a token: which services there are, and the protos that they are made of.

use a2a::{Error, grpc};
use axum::{body::Body, response::Response};
use exchange::Caller;
use futures_util::{StreamExt, stream};
use http::{Request, request::Parts};
use http_body_util::{BodyExt, StreamBody};
use tokio::time::timeout;
use tonic_reflection::server::Builder;
use tower::ServiceExt;

use super::call;
use crate::surface::{Surface, Visit};

/// Its one method, in either of the versions that clients ask for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reflection {
    V1,
    V1Alpha,
}

/// What is asked for is a name.
const LONGEST: usize = 4096;

impl Reflection {
    pub(crate) const PATHS: [&'static str; 2] =
        ["/grpc.reflection.v1.ServerReflection", "/grpc.reflection.v1alpha.ServerReflection"];

    async fn serve(self, request: Request<Body>) -> Result<Response, Error> {
        // Made for each call: they are few.
        let builder = Builder::configure()
            .register_encoded_file_descriptor_set(grpc::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
        let broken = |error| Error::internal(format!("the descriptors cannot be read: {error}"));
        let answered = match self {
            Self::V1 => builder.build_v1().map_err(broken)?.max_decoding_message_size(LONGEST).oneshot(request).await,
            Self::V1Alpha => {
                builder.build_v1alpha().map_err(broken)?.max_decoding_message_size(LONGEST).oneshot(request).await
            }
        };
        let Ok(response) = answered;
        Ok(response.map(Body::new))
    }
}

impl Surface for Reflection {
    type Caller = Caller;

    fn at(segments: &[&str]) -> Option<Self> {
        match segments {
            ["grpc.reflection.v1.ServerReflection", "ServerReflectionInfo"] => Some(Self::V1),
            ["grpc.reflection.v1alpha.ServerReflection", "ServerReflectionInfo"] => Some(Self::V1Alpha),
            _ => None,
        }
    }

    fn allow(&self) -> &'static str {
        "POST, OPTIONS"
    }

    async fn answer(self, mut visit: Visit<'_, Caller>) -> Result<Response, Error> {
        call::check(visit.parts)?;
        // The caller asks as long as it likes, within the time that any body has and until the server stops.
        let pause = visit.app.bounds.pause;
        let asked = stream::unfold(visit.take_body(), move |mut body| async move {
            let frame = timeout(pause, body.frame()).await.ok()??;
            Some((frame, body))
        });
        let asked = asked.take_until(visit.app.exchange.draining().clone().cancelled_owned());
        let asked = asked.take_until(visit.caller.pass.ended().clone().cancelled_owned());
        let request = Request::from_parts(visit.parts.clone(), Body::new(StreamBody::new(asked)));
        self.serve(request).await
    }

    fn refuse(parts: &Parts, error: &Error) -> Response {
        call::refuse(parts, error)
    }
}
