//! Wake-ups by way of NATS, for those who have a server and would rather not use NOTIFY.
//!
//! It does one thing: publish on one subject and hear what others publish there. It never makes the writer wait: what
//! is told goes into a short queue, and is forgotten when that is full. It connects again for ever. While it was away it
//! may have missed anything, and others may have missed it, so after every connect it tells everyone to look at
//! everything. What it publishes comes back to it: when that word does, its subscription stands, and it looks itself.

use std::{convert::Infallible, panic::AssertUnwindSafe, time::Duration};

use async_nats::{ConnectOptions, Event, ServerAddr};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    task::JoinHandle,
    time::sleep,
};

use crate::{
    Error, Hub, InstanceId, Result,
    wake::{Login, NatsUrl, News},
};

/// How many payloads may wait for the server.
const QUEUE: usize = 1024;
/// How many may wait to be taken in; taking one in waits for nothing.
const INBOX: usize = 256;
/// How long the server may take to connect and to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a silent server is asked whether it is there. The third question without an answer is the last.
const PING: Duration = Duration::from_secs(8);
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// How much of an error are logged.
const MAX_ERROR: usize = 300;

/// The way to tell others. Dropping it ends the connection.
pub(crate) struct NatsHandle {
    queue: Sender<Bytes>,
    me: InstanceId,
    task: JoinHandle<()>,
}

/// Connects in the background and stays connected. What comes in goes to the hub. Fails when a file cannot be read.
pub(crate) fn start(url: &NatsUrl, subject: String, me: InstanceId, hub: Hub) -> Result<NatsHandle> {
    let failed = |error: std::io::Error| Error::Unavailable(format!("cannot use the wake-up channel {url}: {error}"));
    let server = ServerAddr::from_url(url.address.clone()).map_err(failed)?;
    let options = options(url).map_err(failed)?;
    let (queue, told) = mpsc::channel(QUEUE);
    let client = Client { shown: url.to_string(), server, options, subject, me, hub };
    Ok(NatsHandle { queue, me, task: tokio::spawn(client.run(told)) })
}

fn options(url: &NatsUrl) -> std::io::Result<ConnectOptions> {
    let read = |file: &std::path::Path| {
        std::fs::read_to_string(file)
            .map_err(|error| std::io::Error::new(error.kind(), format!("{}: {error}", file.display())))
    };
    // Only the server that was named is connected to, whatever others it names, and once more when it is lost: what lasts
    // longer is our own to wait for and to tell of.
    let mut options = ConnectOptions::new()
        .name("switchboard")
        .connection_timeout(PATIENCE)
        .ping_interval(PING)
        .subscription_capacity(INBOX)
        .ignore_discovered_servers()
        .max_reconnects(1);
    if let Some(file) = &url.authority {
        // It is read again at each connect; a missing one is better told now.
        read(file)?;
        options = options.add_root_certificates(file.clone()).require_tls(true);
    }
    Ok(match &url.login {
        Login::None => options,
        Login::Token(token) => options.token(token.clone()),
        Login::User { name, password } => options.user_and_password(name.clone(), password.clone()),
        Login::Nkey(file) => options.nkey(read(file)?.trim().to_owned()),
        Login::Credentials(file) => options.credentials(&read(file)?)?,
    })
}

impl NatsHandle {
    /// Tells others, soon. Never waits.
    pub(crate) fn tell(&self, news: &News) {
        if !news.is_empty() {
            // When the queue is full the server is away or late, and nobody counts on being told.
            let _ = self.queue.try_send(news.encode(self.me).into());
        }
    }
}

impl Drop for NatsHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Client {
    shown: String,
    server: ServerAddr,
    options: ConnectOptions,
    subject: String,
    me: InstanceId,
    hub: Hub,
}

impl Client {
    async fn run(self, mut told: Receiver<Bytes>) {
        let mut wait = FIRST_WAIT;
        let mut warned = false;
        loop {
            let mut connected = false;
            // The library panics at some things that no server should say, such as an error without a text.
            let session = AssertUnwindSafe(self.session(&mut told, &mut connected)).catch_unwind();
            let error = match session.await {
                // It may repeat what the server said, at any length.
                Ok(Err(error)) => error.to_string().chars().take(MAX_ERROR).collect(),
                Err(_) => "the server says what cannot be understood".to_owned(),
            };
            if connected {
                wait = FIRST_WAIT;
            }
            // Once for each outage: it may last, and everything works without.
            if connected || !warned {
                tracing::warn!(server = self.shown, error, "no wake-ups by NATS; trying again");
                warned = true;
            } else {
                tracing::debug!(server = self.shown, error, "still no wake-ups by NATS");
            }
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// One connection, until it fails. It is `connected` when it was seen to carry something there and back.
    async fn session(
        &self,
        told: &mut Receiver<Bytes>,
        connected: &mut bool,
    ) -> std::result::Result<Infallible, async_nats::Error> {
        let (sender, mut events) = mpsc::channel(16);
        let options = self.options.clone().event_callback(move |event| {
            // Whoever does not read them is busy with the end of the session.
            let _ = sender.try_send(event);
            std::future::ready(())
        });
        let client = options.connect(&self.server).await?;
        let mut heard = client.subscribe(self.subject.clone()).await?;
        let greeting = Bytes::from(News::all().encode(self.me));
        // What waited for a server is part of everything.
        while told.try_recv().is_ok() {}
        loop {
            tokio::select! {
                message = heard.next() => match message {
                    Some(message) if message.payload == greeting => {
                        if !std::mem::replace(connected, true) {
                            tracing::info!(server = self.shown, "wake-ups by NATS");
                        }
                        self.hub.take(&News::all());
                    }
                    Some(message) => self.hub.hear(self.me, &message.payload),
                    None => return Err("the connection was lost".into()),
                },
                Some(event) = events.recv() => match event {
                    Event::Connected => client.publish(self.subject.clone(), greeting.clone()).await?,
                    Event::SlowConsumer(_) => self.hub.take(&News::all()),
                    Event::ServerError(error) => return Err(error.to_string().into()),
                    _ => {}
                },
                Some(payload) = told.recv() => client.publish(self.subject.clone(), payload).await?,
            }
        }
    }
}
