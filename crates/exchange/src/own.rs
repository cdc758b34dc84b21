//! The agents that tenants define for themselves. What a definition says, and how an agent is made of it, is the business of whoever
//! implements [`Maker`].

use std::{fmt, sync::Arc};

use a2a::Timestamp;
use serde_json::Value;
use store::AgentId;

use crate::Entry;

/// Makes agents of what tenants define.
pub trait Maker: Send + Sync + 'static {
    /// An agent of a definition, or what is wrong with it.
    fn make(&self, id: &AgentId, definition: &[u8], updated_at: Timestamp) -> Result<Entry, a2a::Error>;

    /// What a list says of an agent that is built in, in the words of a definition, if it is one of these.
    fn builtin(&self, id: &str) -> Option<Value>;
}

/// Somebody who is a [`Maker`].
#[derive(Clone)]
pub struct MadeBy(pub Arc<dyn Maker>);

impl fmt::Debug for MadeBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MadeBy(…)")
    }
}
