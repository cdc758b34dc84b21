//! What a token opens: its scopes, and the agents that it is bound to. And the tokens of administrators.

use std::{fmt, str::FromStr};

use a2a::Timestamp;

use crate::{AgentId, Error, Result, Tenant, Token};

/// What a tenant's token may be for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Seeing tasks, and all that belongs to them.
    Read,
    /// Saying something to agents.
    Send,
    /// Ending tasks, and removing what has ended.
    Cancel,
    /// Changing what the tenant itself has: its agents and its cards.
    Admin,
}

/// A set of [`Scope`]s.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Scopes(u8);

/// How far a token reaches. The default is everything that its tenant may do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    /// For what.
    pub scopes: Scopes,
    /// Which agents it can call, and whose tasks it sees; all when none is named.
    pub agents: Vec<AgentId>,
}

/// A live token and its tenant, as one look finds them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bearer {
    /// The token.
    pub token: Token,
    /// Whose it is.
    pub tenant: Tenant,
}

/// A token of an administrator to add.
#[derive(Debug, Clone)]
pub struct NewAdminToken {
    /// SHA-256 of the token.
    pub hash: [u8; 32],
    /// What the audit log calls who has it: no other has the same name, not even one that was revoked.
    pub name: String,
    /// When it ends.
    pub expires: Option<Timestamp>,
}

/// A token of an administrator as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminToken {
    /// Its number.
    pub id: i64,
    /// SHA-256 of the token.
    pub hash: [u8; 32],
    /// What the audit log calls who has it.
    pub name: String,
    /// When it ends.
    pub expires: Option<Timestamp>,
    /// Since when it exists.
    pub created_at: Timestamp,
    /// Since when it is not honoured any more.
    pub revoked_at: Option<Timestamp>,
}

impl Scope {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Read, Self::Send, Self::Cancel, Self::Admin];

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Send => "send",
            Self::Cancel => "cancel",
            Self::Admin => "admin",
        }
    }

    /// Its place in the column. It is never changed.
    fn bit(self) -> u8 {
        match self {
            Self::Read => 1,
            Self::Send => 2,
            Self::Cancel => 4,
            Self::Admin => 8,
        }
    }
}

impl FromStr for Scope {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|scope| scope.name() == text);
        found.ok_or("a scope is one of read, send, cancel and admin")
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Scopes {
    /// Every scope.
    pub const ALL: Self = Self(15);

    /// Whether this one is among them.
    pub fn has(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// Those that there are, in order.
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.has(*scope))
    }

    /// As a column holds them.
    pub(crate) fn bits(self) -> i64 {
        self.0.into()
    }

    /// Of a column. What this version does not know opens nothing.
    pub(crate) fn from_bits(bits: i64) -> Self {
        Self(u8::try_from(bits & i64::from(Self::ALL.0)).unwrap_or(0))
    }
}

impl Default for Scopes {
    fn default() -> Self {
        Self::ALL
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<T: IntoIterator<Item = Scope>>(scopes: T) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | scope.bit()))
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Reach {
    /// The agents as a column holds them: ids have no spaces.
    pub(crate) fn agents_column(&self) -> String {
        let ids: Vec<&str> = self.agents.iter().map(AgentId::as_str).collect();
        ids.join(" ")
    }

    /// Of two columns. One that cannot be read is an error: it must not become a token that opens everything.
    pub(crate) fn of_columns(scopes: i64, agents: &str) -> Result<Self> {
        let damaged = |_| Error::Damaged("a token is bound to what is no agent".into());
        let agents = agents.split_ascii_whitespace().map(|id| id.parse().map_err(damaged)).collect::<Result<_>>()?;
        Ok(Self { scopes: Scopes::from_bits(scopes), agents })
    }
}

impl AdminToken {
    /// Whether it opens anything at this time.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires.is_none_or(|end| end > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_have_names_and_places_of_their_own() {
        for scope in Scope::ALL {
            assert_eq!(scope.name().parse(), Ok(scope));
            assert!(Scopes::ALL.has(scope));
            let alone: Scopes = [scope].into_iter().collect();
            assert_eq!(alone.iter().collect::<Vec<_>>(), [scope]);
            assert_eq!(Scopes::from_bits(alone.bits()), alone);
        }
        for wrong in ["", "Read", "write", "*"] {
            assert!(wrong.parse::<Scope>().is_err(), "{wrong}");
        }
        assert_eq!(Scopes::from_bits(16).iter().count(), 0, "what is not known opens nothing");
        assert_eq!(Scopes::from_bits(-1), Scopes::ALL);
    }

    #[test]
    fn what_a_token_is_bound_to_is_never_lost() {
        let bound = Reach { scopes: Scopes::ALL, agents: vec!["a.b".parse().unwrap(), "c".parse().unwrap()] };
        assert_eq!(Reach::of_columns(15, &bound.agents_column()).unwrap(), bound);
        assert!(Reach::of_columns(15, "").unwrap().agents.is_empty());
        assert!(matches!(Reach::of_columns(15, "a/b"), Err(Error::Damaged(_))));
    }
}
