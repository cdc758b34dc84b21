//! The gRPC surfaces: the protocol's own service, the custom one with `google.protobuf.Struct`, health and reflection.
//!
//! They are surfaces like the others: admission, rates and bounds of a body are the skeleton's, and what comes out of a
//! message is an [`Operation`](crate::operation::Operation). Only framing and errors have another form, see [`call`].

mod answer;
mod call;
mod gateway;
mod health;
mod operations;
mod reflection;
mod stream;

pub(crate) use self::{gateway::Gateway, health::Health, operations::Operations, reflection::Reflection};
