//! Who brings notifications to webhooks: over the guarded connector, with what the configuration allows.

use std::{
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use agents::settled;
use async_trait::async_trait;
use client::{
    Error,
    egress::{Connector, Guard, Limits, Policy, Request, for_tenant},
};
use exchange::push::{Answer, Carrier, Parcel, PushOptions};
use http::{HeaderName, HeaderValue, Method, header};
use store::TenantId;
use tokio::runtime::{Builder, Runtime};
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use crate::{config::Config, failure::Failure};

/// A key file has to be as hard to guess as the keys that it wraps.
const KEY_BYTES: usize = 32;

struct Courier {
    connector: Connector,
}

/// Strangers are called on a thread of its own: what they answer costs whoever reads it, and that must not be the threads that serve.
fn runtime() -> Result<&'static Runtime, String> {
    static RUNTIME: OnceLock<Result<Runtime, String>> = OnceLock::new();
    let made = RUNTIME.get_or_init(|| {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).thread_name("courier").enable_all().build().map_err(|error| error.to_string())
    });
    made.as_ref().map_err(Clone::clone)
}

/// Does something there; when nobody waits for it any more, it ends.
async fn apart<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Result<T, String> {
    AbortOnDropHandle::new(runtime()?.spawn(work)).await.map_err(|error| error.to_string())
}

/// How notifications are sent, if they are.
pub(crate) fn options(config: &Config) -> Result<Option<PushOptions>, Failure> {
    let (push, egress) = (&config.keys.push, &config.keys.egress);
    if !push.enabled() {
        return Ok(None);
    }
    let guard = Guard { allow: egress.allow().0, ports: egress.ports.clone().map(|ports| ports.0), ..Guard::default() };
    let timeout = push.timeout().0;
    // Of an answer nothing is read but its head.
    let limits = Limits { connect_timeout: timeout, total_timeout: Some(timeout), ..Limits::default() };
    let connector = Connector::new(Policy::Tenant(Arc::new(guard)), limits);
    Ok(Some(PushOptions {
        timeout,
        attempts: u32::try_from(push.attempts()).unwrap_or(u32::MAX),
        waits: (push.first_wait().0, push.longest_wait().0),
        key_file: config.keys.key_file.as_deref().map(read_key).transpose()?,
        key_file_previous: config.keys.key_file_previous.as_deref().map(read_key).transpose()?,
        ..PushOptions::new(Arc::new(Courier { connector }))
    }))
}

/// The content of a key file.
fn read_key(file: &Path) -> Result<Vec<u8>, Failure> {
    let failure = || Failure::usage(format!("cannot use the key file {}", file.display()));
    let hint = "it is given by --key-file, SB_KEY_FILE or `key_file`; make one with `head -c 32 /dev/urandom > FILE`";
    let content = settled::read_once(file).map_err(|error| failure().caused_by(&error).hint(hint))?;
    if content.len() < KEY_BYTES {
        return Err(failure().because(format!("it has fewer than {KEY_BYTES} bytes")).hint(hint));
    }
    Ok(content)
}

#[async_trait]
impl Carrier for Courier {
    async fn receiver(&self, tenant: TenantId, url: &str) -> Result<String, String> {
        // A parser of URLs drops some of them without a word.
        if url.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err("must not have spaces or control characters".to_owned());
        }
        let parsed = Url::parse(url).map_err(|_| "is not a URL".to_owned())?;
        // Nothing of a stranger's is read here, and nobody who sends a message waits for those who read that.
        let check = for_tenant(tenant.0, self.connector.check_url(&parsed));
        check.await.map_err(|error| match error {
            Error::Url { reason, .. } => reason,
            // The same words whatever is there.
            _ => "this address may not be called; whoever runs this server decides that by `egress.allow` and `egress.ports`".to_owned(),
        })?;
        let host = parsed.host_str().unwrap_or_default();
        Ok(format!("{host}:{}", parsed.port_or_known_default().unwrap_or_default()))
    }

    async fn carry(&self, parcel: Parcel) -> Result<Answer, String> {
        // Silent name servers of one tenant delay no notification of another.
        let tenant = parcel.tenant.0;
        apart(for_tenant(tenant, post(self.connector.clone(), parcel))).await?
    }
}

async fn post(connector: Connector, parcel: Parcel) -> Result<Answer, String> {
    let Parcel { url, headers, body, .. } = parcel;
    let url = Url::parse(&url).map_err(|error| error.to_string())?;
    let header = |(name, value): (&'static str, String)| {
        let mut value = HeaderValue::from_str(&value).ok()?;
        value.set_sensitive(true);
        Some((HeaderName::from_static(name), value))
    };
    let headers = headers.into_iter().map(header).collect::<Option<_>>().ok_or("a header cannot be sent")?;
    let request = Request {
        method: Method::POST,
        url: &url,
        token: None,
        headers,
        body: Some(body.into()),
        streaming: false,
        http2: false,
    };
    let response = connector.send(request).await.map_err(|error| {
        let mut said = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(next) = cause {
            said = format!("{said}: {next}");
            cause = next.source();
        }
        said
    })?;
    let seconds = response.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    Ok(Answer { status: response.status.as_u16(), retry_after: seconds.map(Duration::from_secs) })
}

#[cfg(test)]
mod tests {
    use std::{io, net::IpAddr};

    use client::egress::{Lookups, Resolve};

    use super::*;

    /// Nobody answers for names that begin with `silent`. All others are this machine.
    #[derive(Debug)]
    struct Names;

    #[async_trait]
    impl Resolve for Names {
        async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
            match host.starts_with("silent") {
                true => std::future::pending().await,
                false => Ok(vec![IpAddr::from([127, 0, 0, 1])]),
            }
        }
    }

    #[tokio::test]
    async fn silent_names_of_one_tenant_delay_no_registration_of_another() {
        let guard = Guard { resolver: Arc::new(Lookups::new(Arc::new(Names))), ..Guard::default() };
        let connector = Connector::new(Policy::Tenant(Arc::new(guard)), Limits::default());
        let courier = Arc::new(Courier { connector });
        for n in 0..100 {
            let courier = Arc::clone(&courier);
            tokio::spawn(async move { courier.receiver(TenantId(1), &format!("https://silent{n}.test/")).await });
        }
        tokio::task::yield_now().await;
        // A name that is not looked up in time passes here.
        let refused = courier.receiver(TenantId(2), "https://there.test/").await;
        assert!(refused.is_err_and(|why| why.contains("may not be called")));
    }
}
