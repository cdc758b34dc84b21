//! Waking a parked task from outside, by a token that only this installation can make.
//!
//! Whoever works for a task elsewhere can have it with them and say that something has happened. It is a hint and no more: the task looks
//! for itself what that was, so that nothing has to be believed.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use store::{TaskId, TenantId};
use tokio::time::Instant;

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

/// How often a task is woken at most.
const EVERY: Duration = Duration::from_secs(1);
/// So many tasks are remembered.
const MOST: usize = 10_000;

/// Which tasks were woken lately, and which are about to be.
#[derive(Default)]
pub(crate) struct Wakes(Mutex<HashMap<TaskId, (Instant, bool)>>);

impl Wakes {
    /// How long to wait before a task is woken; nothing when somebody waits for that already.
    fn enter(&self, task: TaskId) -> Option<Duration> {
        let mut wakes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if wakes.len() >= MOST {
            wakes.retain(|_, (at, waits)| *waits || now.duration_since(*at) < EVERY);
        }
        match wakes.get_mut(&task) {
            Some((_, true)) => None,
            Some((at, waits)) if now.duration_since(*at) < EVERY => {
                *waits = true;
                Some(EVERY - now.duration_since(*at))
            }
            _ => {
                wakes.insert(task, (now, false));
                Some(Duration::ZERO)
            }
        }
    }

    fn leave(&self, task: TaskId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(task, (Instant::now(), false));
    }
}

impl Exchange {
    /// Lets the task of a [token](crate::Turn::wake_token) go on, if it is parked. `false` for whatever is no such token; a task that has
    /// ended is not disturbed.
    pub async fn wake_by(&self, token: &str) -> Result<bool, Error> {
        let Some((tenant, task)) = open(&self.inner.page_key, token) else { return Ok(false) };
        // Whoever calls often is heard once in a while.
        let Some(wait) = self.inner.wakes.enter(task) else { return Ok(true) };
        if wait.is_zero() {
            self.wake(tenant, task).await?;
            return Ok(true);
        }
        let exchange = self.clone();
        self.inner.tracker.spawn(async move {
            tokio::select! {
                biased;
                () = exchange.inner.draining.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
            exchange.inner.wakes.leave(task);
            if let Err(error) = exchange.wake(tenant, task).await {
                tracing::warn!(task.id = %task, %error, "a task cannot be woken");
            }
        });
        Ok(true)
    }

    async fn wake(&self, tenant: TenantId, task: TaskId) -> Result<(), Error> {
        match self.inner.store.wake(tenant, task).await {
            Ok(_) | Err(store::Error::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
