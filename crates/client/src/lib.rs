//! Calling A2A agents: discovery, the JSON-RPC, HTTP+JSON and gRPC bindings, agents that still speak 0.3, streams that
//! resume.
//!
//! [`egress`] is the one place of the product that opens outbound connections; everything here goes
//! through it. What a remote says is data: capped, never trusted, and read with patience (`lenient`), since agents differ.
//!
//! ```
//! # async fn example() -> Result<(), client::Error> {
//! use client::{Client, Connector, Options, Policy};
//!
//! let connector = Connector::new(Policy::Operator, client::Limits::default());
//! let url = client::parse_url("http://127.0.0.1:8765")?;
//! let client = Client::connect(connector, &url, Options::default()).await?;
//! let mut stream = client.stream(client::user_message("m-1", "hello")).await?;
//! while let Some(event) = stream.next().await {
//!     println!("{}", event?.json);
//! }
//! # Ok(())
//! # }
//! ```

mod binding;
mod client;
mod credential;
mod discovery;
pub mod egress;
mod error;
mod freshness;
mod grpc;
mod heavy;
mod lenient;
pub mod load;
mod plain;
mod reply;
mod rest;
mod rpc;
mod secret;
pub mod sse;
mod stream;
mod trust;
mod v03;
mod wire;

pub use client::{Binding, Client, Dialect, Options, Order, Received, user_message};
pub use credential::{ClientCredentials, Credential};
pub use discovery::{
    Discovered, FetchedCard, agent_of_card, card_beside, card_well_known, discover, discover_with, fetch_card,
    parse_url, same_origin,
};
pub use egress::{Connector, Limits, Policy};
pub use error::{Error, Outage};
pub use plain::call_json;
pub use reply::{reply_text, task_text};
pub use secret::Secret;
pub use stream::{EventStream, Resume};
pub use trust::{Mode, Trust, origin};
