//! What the audit log says, whichever store writes it down.

use serde_json::{Value, json};

use crate::{Tenant, Token};

/// Who did what nobody asked for.
pub(crate) const SYSTEM: &str = "system";

/// A change of something that has a number.
pub(crate) fn detail(kind: &str, id: i64, before: Value, after: Value) -> Value {
    json!({"target_kind": kind, "target_id": id, "before": before, "after": after})
}

/// A change of a setting. Its value may be a secret.
pub(crate) fn of_setting(name: &str) -> Value {
    json!({"target_kind": "setting", "target_id": name, "before": null, "after": null})
}

pub(crate) fn tenant_state(tenant: &Tenant) -> Value {
    json!({"name": tenant.name, "disabled": !tenant.enabled})
}

pub(crate) fn token_state(token: &Token) -> Value {
    json!({"tenant_id": token.tenant.0, "name": token.name, "revoked": token.revoked_at.is_some()})
}
