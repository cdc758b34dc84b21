//! Proof of life, and hearing from others: one session of this instance that stays open for as long as it lives.
//!
//! The session holds an advisory lock that follows from the instance's id. The server frees it when the session ends,
//! however that comes about, so a free lock says that the instance has gone, or has lost its session. The second is why
//! the lock proves nothing by itself: **fencing is the guarantee, the lock only removes the wait.** Whoever finds it free,
//! and free again at a second look ([`super::lease::Suspects`]), makes the instance's leases due; if the instance lives after all, its next renewal takes back what nobody has taken
//! over yet, and what was taken over has a new generation, under which its writes are refused (tests:
//! `only_the_dead_lose_their_leases`, `an_instance_that_lost_its_session_is_fenced`).
//!
//! The lock is taken before the instance is named in the table, and taken again after a reconnect.
//!
//! The same session listens for what other instances have committed, if that is the way to hear of it. Whatever was said
//! while it was not connected is made up for by looking at everything that is watched.

use std::{future::poll_fn, time::Duration};

use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_postgres::{AsyncMessage, Client};

use super::{
    pool::{Connector, Link},
    schema,
};
use crate::{Error, Hub, InstanceId, News, Result, clock, wake};

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long setting a session up, or signing off, may take.
const PHASE: Duration = Duration::from_secs(10);

/// A server whose client's machine has vanished notices it after this.
const SET_UP: &str = "SET synchronous_commit = on; SET statement_timeout = 0; SET lock_timeout = '5s';
     SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3";

/// The shards of counters that instances choose from; 0 is left to those who write without being an instance.
const SHARDS: i16 = 16;
const SHARD_LOCKS: i64 = 0x5357_5348_4152_0000;

/// The advisory lock that this instance holds while it lives.
pub(super) fn lock_key(instance: InstanceId) -> i64 {
    let bytes = instance.as_bytes();
    i64::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]])
}

/// Who announces itself.
pub(super) struct Presence {
    pub(super) connector: Connector,
    pub(super) me: InstanceId,
    pub(super) hub: Hub,
    /// Listen for the NOTIFYs of others.
    pub(super) listen: bool,
}

/// A session that holds the lock.
pub(super) struct Announced {
    client: Client,
    /// Ends with the connection.
    link: JoinHandle<()>,
    /// The shard of counters that is this instance's, as long as nobody else has to share it.
    pub(super) shard: i16,
}

impl Presence {
    /// Takes the lock. Only after that may the instance hold leases.
    pub(super) async fn announce(&self) -> Result<Announced> {
        timeout(PHASE, self.set_up()).await.unwrap_or_else(|_| Err(silent()))
    }

    /// Keeps the session up until `ended` is heard, and signs off then.
    pub(super) fn keep(self, first: Announced, mut ended: oneshot::Receiver<()>) -> JoinHandle<()> {
        tokio::spawn(async move {
            let mut session = first;
            loop {
                tokio::select! {
                    // It is never sent; it ends with the writer.
                    _ = &mut ended => return self.sign_off(&session).await,
                    _ = &mut session.link => {}
                }
                tracing::warn!(instance.id = %self.me, "the session that proves this instance's life was lost");
                let mut pause = FIRST_PAUSE;
                session = loop {
                    tokio::select! {
                        _ = &mut ended => return,
                        () = sleep(pause) => {}
                    }
                    match self.announce().await {
                        Ok(session) => break session,
                        Err(error) => tracing::debug!(%error, "no new session yet"),
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                };
            }
        })
    }

    async fn set_up(&self) -> Result<Announced> {
        let (client, link) = self.connector.open_link().await?;
        let link = tokio::spawn(drive(link, self.hub.clone(), self.me));
        client.batch_execute(SET_UP).await?;
        // After a lost connection the old session may still be there; its end is waited for.
        client.execute("SELECT pg_advisory_lock($1)", &[&lock_key(self.me)]).await?;
        let insert = "INSERT INTO instances (id, lock_key, started_at, knows) VALUES ($1, $2, $3, $4)
                      ON CONFLICT (id) DO NOTHING";
        let (id, started_at) = (self.me.to_string(), clock::now().as_millis());
        client.execute(insert, &[&id, &lock_key(self.me), &started_at, &schema::known()]).await?;
        let shard = self.choose_shard(&client).await?;
        if self.listen {
            client.batch_execute(&format!("LISTEN {}", wake::CHANNEL)).await?;
            self.hub.take(&News::all());
        }
        Ok(Announced { client, link, shard })
    }

    /// A shard that no instance has chosen yet, or any.
    async fn choose_shard(&self, client: &Client) -> Result<i16> {
        let mine = i16::try_from(lock_key(self.me).rem_euclid(i64::from(SHARDS))).unwrap_or(0) + 1;
        for n in 0..SHARDS {
            let shard = (mine - 1 + n) % SHARDS + 1;
            let lock = SHARD_LOCKS + i64::from(shard);
            if client.query_one("SELECT pg_try_advisory_lock($1)", &[&lock]).await?.try_get(0)? {
                return Ok(shard);
            }
        }
        Ok(mine)
    }

    async fn sign_off(&self, session: &Announced) {
        let me = self.me.to_string();
        let delete = async { session.client.execute("DELETE FROM instances WHERE id = $1", &[&me]).await };
        // If it fails, others find the lock free.
        if !matches!(timeout(PHASE, delete).await, Ok(Ok(_))) {
            tracing::warn!(instance.id = %self.me, "signing off failed");
        }
    }
}

/// Drives the connection, and passes on what comes unasked.
async fn drive(mut link: Link, hub: Hub, me: InstanceId) {
    while let Some(message) = poll_fn(|cx| link.poll_message(cx)).await {
        match message {
            Ok(AsyncMessage::Notification(heard)) => hub.hear(me, heard.payload().as_bytes()),
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(%error, "the session that listens has ended");
                return;
            }
        }
    }
}

fn silent() -> Error {
    Error::Unavailable("the database does not answer".into())
}
