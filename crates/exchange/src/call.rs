//! Who calls, and what came with the call beside the request itself.

use std::sync::Arc;

use store::TenantId;

/// The owner of the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Its id.
    pub tenant: TenantId,
    /// Its name.
    pub name: Arc<str>,
}

/// A call's surroundings, the same for every binding.
#[derive(Debug, Clone)]
pub struct Call {
    /// Who calls.
    pub caller: Caller,
    /// The agent that the URL names. A request's `tenant` field must agree with it.
    pub agent: Option<String>,
    /// The protocol extensions the caller wants.
    pub extensions: Vec<String>,
    /// The `Idempotency-Key` header.
    pub idempotency_key: Option<String>,
}

impl Call {
    /// A call with nothing beside its caller.
    pub fn new(caller: Caller) -> Self {
        Self { caller, agent: None, extensions: Vec::new(), idempotency_key: None }
    }
}
