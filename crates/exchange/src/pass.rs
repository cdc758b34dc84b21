//! What a caller may do, and for how long: the scopes and agents of its token, and the end of it.
//!
//! Every operation of the exchange says which scope it needs, as its first line ([`Caller::needs`]), so that no binding can forget it.
//! Agents that a token is not bound to are not there for it, and neither are their tasks ([`Caller::covers`]).
//!
//! **A token that ends, ends what it has opened.** Whoever recognises callers gives all callers of one token the same [`Pass`] and ends it when
//! the token is revoked or runs out, or its tenant is disabled; streams and waits look at it.

use std::sync::Arc;

use a2a::Timestamp;
use store::{AgentId, Reach, Scope, TenantId};
use tokio_util::sync::CancellationToken;

use crate::Error;

/// The owner of the token, and what the token opens.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Its id.
    pub tenant: TenantId,
    /// Its name.
    pub name: Arc<str>,
    /// What it came with.
    pub pass: Arc<Pass>,
}

/// What a token opens, until it ends.
#[derive(Debug, Default)]
pub struct Pass {
    /// The token's number, where there is one.
    token: Option<i64>,
    reach: Reach,
    expires: Option<Timestamp>,
    ended: CancellationToken,
}

impl PartialEq for Caller {
    fn eq(&self, other: &Self) -> bool {
        self.tenant == other.tenant && self.name == other.name && self.pass.token == other.pass.token
    }
}

impl Eq for Caller {}

impl Pass {
    /// What a token opens.
    pub fn new(token: i64, reach: Reach, expires: Option<Timestamp>) -> Self {
        Self { token: Some(token), reach, expires, ended: CancellationToken::new() }
    }

    /// What the token of an administrator opens, which is no tenant's business.
    pub fn until(expires: Option<Timestamp>) -> Self {
        Self { expires, ..Self::default() }
    }

    /// The token's number, where there is one.
    pub fn token(&self) -> Option<i64> {
        self.token
    }

    /// Whether its time has run out.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|end| end <= now)
    }

    /// Ends everything that was opened with it.
    pub fn end(&self) {
        self.ended.cancel();
    }

    /// Set when it has ended.
    pub fn ended(&self) -> &CancellationToken {
        &self.ended
    }
}

impl Caller {
    /// A tenant without a token, that may do whatever a tenant may.
    pub fn new(tenant: TenantId, name: impl Into<Arc<str>>) -> Self {
        Self { tenant, name: name.into(), pass: Arc::default() }
    }

    /// Refuses an operation that the token is not for.
    pub fn needs(&self, scope: Scope) -> Result<(), Error> {
        if self.pass.reach.scopes.has(scope) { Ok(()) } else { Err(Error::MissingScope(scope)) }
    }

    /// Whether the token is for this agent.
    pub fn covers(&self, agent: &str) -> bool {
        let agents = &self.pass.reach.agents;
        agents.is_empty() || agents.iter().any(|id| id.as_str() == agent)
    }

    /// The agents that the token is bound to; none is all.
    pub(crate) fn bound_to(&self) -> &[AgentId] {
        &self.pass.reach.agents
    }

    /// Who it is, in the audit log.
    pub(crate) fn actor(&self) -> String {
        match self.pass.token {
            Some(token) => format!("tenant {} token:{token}", self.name),
            None => format!("tenant {}", self.name),
        }
    }
}
