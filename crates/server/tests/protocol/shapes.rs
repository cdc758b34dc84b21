//! What does not depend on the store: the form of requests, errors, credentials, versions, cards.

mod auth;
mod cards;
mod errors;
mod rpc;
mod targets;
mod versions;
