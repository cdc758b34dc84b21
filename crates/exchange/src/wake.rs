//! Waking a parked task from outside, by a token that only this installation can make.
//!
//! Whoever works for a task elsewhere can have it with them and say that something has happened. It is a hint and no more: the task looks
//! for itself what that was, so that nothing has to be believed.

use serde::{Deserialize, Serialize};
use store::{TaskId, TenantId};

use crate::{Error, Exchange, convert, page_token::Key};

#[derive(Serialize, Deserialize)]
struct Sealed {
    #[serde(rename = "o")]
    tenant: i64,
    #[serde(rename = "t")]
    task: String,
}

fn purpose() -> [u8; 32] {
    convert::digest(&[b"a task to wake"])
}

/// The token of a task.
pub(crate) fn seal(key: &Key, tenant: TenantId, task: TaskId) -> String {
    let sealed = Sealed { tenant: tenant.0, task: task.to_string() };
    // Numbers and texts always serialise.
    key.seal_name(TenantId(0), &purpose(), &serde_json::to_string(&sealed).unwrap_or_default())
}

fn open(key: &Key, token: &str) -> Option<(TenantId, TaskId)> {
    let sealed = key.open_name(TenantId(0), &purpose(), token).ok()?;
    let sealed: Sealed = serde_json::from_str(&sealed).ok()?;
    Some((TenantId(sealed.tenant), TaskId::parse(&sealed.task)?))
}

impl Exchange {
    /// Lets the task of a [token](crate::Turn::wake_token) go on, if it is parked. `false` for whatever is no such token; a task that has
    /// ended is not disturbed.
    pub async fn wake_by(&self, token: &str) -> Result<bool, Error> {
        let Some((tenant, task)) = open(&self.inner.page_key, token) else { return Ok(false) };
        match self.inner.store.wake(tenant, task).await {
            Ok(_) | Err(store::Error::NotFound) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}
