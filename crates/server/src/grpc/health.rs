//! The standard health service, open to everybody: what `/readyz` says, in gRPC.

use std::{sync::Arc, time::Duration};

use a2a::{Error, ErrorKind, grpc};
use axum::response::Response;
use futures_util::{Stream, stream};
use http::request::Parts;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus};

use super::{answer, call};
use crate::{
    limits::gave_way,
    open::Readiness,
    surface::{Anybody, Surface, Visit},
};

/// How often a watched status is looked at.
const LOOK: Duration = Duration::from_secs(5);

/// One of its methods.
pub(crate) enum Health {
    Check,
    Watch,
}

impl Health {
    pub(crate) const PATH: &'static str = "/grpc.health.v1.Health";
}

impl Surface for Health {
    type Caller = Anybody;

    fn at(segments: &[&str]) -> Option<Self> {
        match segments {
            ["grpc.health.v1.Health", "Check"] => Some(Self::Check),
            ["grpc.health.v1.Health", "Watch"] => Some(Self::Watch),
            _ => None,
        }
    }

    fn allow(&self) -> &'static str {
        "POST, OPTIONS"
    }

    async fn answer(self, mut visit: Visit<'_, Anybody>) -> Result<Response, Error> {
        call::check(visit.parts)?;
        let request: HealthCheckRequest = grpc::parse(call::short_message(&mut visit).await?)?;
        let is_known = ["", grpc::SERVICE, grpc::STRUCT_SERVICE].contains(&request.service.as_str());
        Ok(match (self, is_known) {
            (Self::Check, true) => answer::message(&said(status(&visit.app.readiness).await)),
            (Self::Check, false) => {
                let error = Error::new(ErrorKind::NotFound, "there is no such service");
                return Err(error.with_reason("SERVICE_NOT_FOUND"));
            }
            (Self::Watch, is_known) => {
                answer::stream(watch(Arc::clone(&visit.app.readiness), is_known, visit.evicted()))
            }
        })
    }

    fn refuse(parts: &Parts, error: &Error) -> Response {
        call::refuse(parts, error)
    }
}

/// How far a watch has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watch {
    Begins,
    Told(ServingStatus),
    Over,
}

async fn status(readiness: &Readiness) -> ServingStatus {
    match readiness.unready().await {
        None => ServingStatus::Serving,
        Some(_) => ServingStatus::NotServing,
    }
}

/// The status, and again whenever it is another one, until the server stops or the request has to give way to a newer one.
fn watch(
    readiness: Arc<Readiness>,
    is_known: bool,
    evicted: CancellationToken,
) -> impl Stream<Item = Result<HealthCheckResponse, Status>> + Send + 'static {
    stream::unfold(Watch::Begins, move |last| {
        let (readiness, evicted) = (Arc::clone(&readiness), evicted.clone());
        async move {
            if last == Watch::Over {
                return None;
            }
            let draining = readiness.draining();
            loop {
                if evicted.is_cancelled() {
                    return Some((Err(answer::status(&gave_way())), Watch::Over));
                }
                let is_over = draining.is_cancelled();
                let now = if is_known { status(&readiness).await } else { ServingStatus::ServiceUnknown };
                if last != Watch::Told(now) {
                    return Some((Ok(said(now)), Watch::Told(now)));
                }
                if is_over {
                    return None;
                }
                tokio::select! {
                    _ = timeout(LOOK, draining.cancelled()) => {}
                    () = evicted.cancelled() => {}
                }
            }
        }
    })
}

fn said(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}
