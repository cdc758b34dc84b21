//! Push notifications: who is told of a task over HTTP, and the operations on that. How far each has been told is the store's
//! ([`store::push`]); [`notice`] says what is told, [`delivery`] tells it, and a [`Carrier`] opens the connections.

mod delivery;
mod keys;
mod notice;
mod signing;

use std::{fmt, sync::Arc, time::Duration};

use a2a::{
    AuthenticationInfo, DeleteTaskPushNotificationConfigRequest, Dialect, GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse, TaskPushNotificationConfig,
    Timestamp, validate,
};
use async_trait::async_trait;
use bytes::Bytes;
use store::{Installation, NewPush, PushConfig, PushFilter, Replay, Scope, TaskId, TenantId};
use uuid::Uuid;

pub(crate) use self::delivery::start;
pub use self::keys::KeyError;
use self::{
    keys::{Keys, Of, Secrets},
    signing::{Signing, SigningNumbers},
};
use crate::{
    Call, Caller, Error, Exchange,
    card_keys::{OVERLAP, seconds_now},
    convert,
    intake::answered,
    operations::in_scope,
};

/// Opens the connections by which others are told. It alone knows which addresses may be reached.
#[async_trait]
pub trait Carrier: Send + Sync + 'static {
    /// Whether somebody at this URL of a tenant may be told, and the host and port there; else why not, in words that a caller may read.
    async fn receiver(&self, tenant: TenantId, url: &str) -> Result<String, String>;
    /// Posts it. Without an answer it says why, which is for whoever runs the server and not for callers.
    async fn carry(&self, parcel: Parcel) -> Result<Answer, String>;
}

/// What is posted. It may hold secrets and does not print.
pub struct Parcel {
    /// Whose notification it is.
    pub tenant: TenantId,
    /// Where to.
    pub url: String,
    /// Beside those that the connection makes by itself.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Bytes,
}

/// What came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// How long the receiver wants to be left alone.
    pub retry_after: Option<Duration>,
}

/// How notifications are sent.
#[derive(Clone)]
pub struct PushOptions {
    /// Who brings them.
    pub carrier: Arc<dyn Carrier>,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// How often a notification is tried before it is a dead letter.
    pub attempts: u32,
    /// The first wait before another attempt, and the longest.
    pub waits: (Duration, Duration),
    /// How many are sent at once, by this instance.
    pub slots: usize,
    /// How many of them for one tenant.
    pub per_tenant: usize,
    /// How many of those to one receiver.
    pub per_receiver: usize,
    /// What wraps the installation's keys.
    pub key_file: Option<Vec<u8>>,
    /// What wrapped them before.
    pub key_file_previous: Option<Vec<u8>>,
}

impl PushOptions {
    /// The usual ones.
    pub fn new(carrier: Arc<dyn Carrier>) -> Self {
        Self {
            carrier,
            timeout: Duration::from_secs(10),
            attempts: 30,
            waits: (Duration::from_secs(1), Duration::from_secs(300)),
            slots: 128,
            per_tenant: 16,
            per_receiver: 4,
            key_file: None,
            key_file_previous: None,
        }
    }
}

impl fmt::Debug for PushOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushOptions").field("timeout", &self.timeout).field("attempts", &self.attempts).finish()
    }
}

/// What sending takes.
pub(crate) struct Push {
    pub(crate) options: PushOptions,
    keys: Keys,
    signing: SigningNumbers,
}

/// The secret with which a tenant's receivers verify signatures. It does not print.
pub struct PushSecret {
    /// The current one.
    pub secret: String,
    /// Until when the one before counts as well.
    pub previous_until: Option<Timestamp>,
}

impl Push {
    pub(crate) async fn load(store: &dyn Installation, options: PushOptions) -> Result<Self, KeyError> {
        let keys = Keys::load(store, options.key_file.as_deref(), options.key_file_previous.as_deref()).await?;
        Ok(Self { options, keys, signing: SigningNumbers::default() })
    }

    fn secret(&self, caller: &Caller, signing: Signing) -> PushSecret {
        let end = signing.overlap_end(seconds_now());
        PushSecret {
            secret: self.keys.secret(caller.tenant, signing),
            previous_until: end.map(|end| Timestamp::from_millis(end.saturating_mul(1000))),
        }
    }

    /// A configuration as it is kept. The URL is looked at here, and again whenever somebody is told.
    async fn prepare(
        &self,
        call: &Call,
        prefix: &str,
        task: TaskId,
        config: TaskPushNotificationConfig,
    ) -> Result<NewPush, Error> {
        let TaskPushNotificationConfig { id, url, token, authentication, .. } = config;
        let AuthenticationInfo { scheme, credentials } = authentication.unwrap_or_default();
        if id.chars().any(char::is_control) {
            return Err(Error::invalid(&format!("{prefix}id"), "must not have control characters"));
        }
        for (field, value) in [("token", &token), ("authentication.credentials", &credentials)] {
            if !value.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
                return Err(Error::invalid(
                    &format!("{prefix}{field}"),
                    "must be printable ASCII: it is sent as a header",
                ));
            }
        }
        if !scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)) {
            return Err(Error::invalid(
                &format!("{prefix}authentication.scheme"),
                "must be the name of an HTTP scheme",
            ));
        }
        let receiver = self.options.carrier.receiver(call.caller.tenant, &url).await;
        let receiver = receiver.map_err(|why| Error::invalid(&format!("{prefix}url"), why))?;
        let of = Of { tenant: call.caller.tenant, task, id: &id };
        let sealed = self.keys.seal(&of, &Secrets { token, credentials });
        let sealed = sealed.map_err(|_| a2a::Error::internal("the secrets cannot be sealed"))?;
        let chunks = call.extensions.iter().any(|uri| uri == a2a::PUSH_CHUNKS);
        Ok(NewPush { id, url, receiver, scheme, sealed, dialect: call.dialect, chunks })
    }
}

/// The longest time for which two signing secrets count.
const LONGEST_OVERLAP: Duration = Duration::from_secs(365 * 24 * 3600);

/// How long a list of configurations is when nobody says so.
const PAGE: usize = 50;

impl Exchange {
    /// Whether notifications are sent here at all. Cards say so.
    pub fn has_push(&self) -> bool {
        self.inner.push.is_some()
    }

    fn push(&self) -> Result<&Push, Error> {
        self.inner.push.as_ref().ok_or(Error::PushNotSupported)
    }

    /// The same for a request, which has to be for an agent that there is.
    fn push_of(&self, call: &Call, tenant: &str) -> Result<&Push, Error> {
        self.target(call, tenant)?;
        self.push()
    }

    /// The task that a request is about, if the caller sees it there.
    async fn pushed_task(&self, call: &Call, tenant: &str, task: &str) -> Result<TaskId, Error> {
        let target = self.target(call, tenant)?;
        let id = convert::task_id(task)?;
        let head = self.head(call, id).await?;
        in_scope(target.as_deref(), &head.agent, id)?;
        self.require(call, &head.agent)?;
        Ok(id)
    }

    /// CreateTaskPushNotificationConfig. What comes back has no secrets in it.
    pub async fn create_push(
        &self,
        call: &Call,
        mut config: TaskPushNotificationConfig,
    ) -> Result<TaskPushNotificationConfig, Error> {
        call.caller.needs(Scope::Send)?;
        let push = self.push_of(call, &config.tenant)?;
        validate::validate_push_config(&config, &self.inner.options.limits)?;
        let task = self.pushed_task(call, &config.tenant, &config.task_id).await?;
        if config.id.is_empty() {
            // Who speaks 0.3 sets the one that a task has, as its servers did.
            config.id = if call.dialect == Dialect::V03 { task.to_string() } else { Uuid::new_v4().to_string() };
        }
        let new = push.prepare(call, "", task, config).await?;
        let shown = shown(task, &new);
        let put = answered(self.inner.store.put_push(call.caller.tenant, task, new)).await;
        put.map_err(|error| Error::of_task(error, task))?;
        Ok(shown)
    }

    /// The configuration that comes with a message. Without an id of its own it has its task's, so that another one of the same kind
    /// takes its place.
    pub(crate) async fn inline_push(
        &self,
        call: &Call,
        task: TaskId,
        config: Option<TaskPushNotificationConfig>,
    ) -> Result<Option<NewPush>, Error> {
        const PREFIX: &str = "configuration.taskPushNotificationConfig.";
        let Some(mut config) = config else { return Ok(None) };
        let push = self.push()?;
        if !config.task_id.is_empty() && config.task_id != task.to_string() {
            return Err(Error::invalid(&format!("{PREFIX}taskId"), "is not the task of the message"));
        }
        if config.id.is_empty() {
            config.id = task.to_string();
        }
        push.prepare(call, PREFIX, task, config).await.map(Some)
    }

    /// GetTaskPushNotificationConfig.
    pub async fn get_push(
        &self,
        call: &Call,
        request: GetTaskPushNotificationConfigRequest,
    ) -> Result<TaskPushNotificationConfig, Error> {
        call.caller.needs(Scope::Read)?;
        self.push_of(call, &request.tenant)?;
        validate::validate_get_push_config(&request, &self.inner.options.limits)?;
        let task = self.pushed_task(call, &request.tenant, &request.task_id).await?;
        let found = self.inner.store.push(call.caller.tenant, task, &request.id).await?;
        let found = found.ok_or_else(|| Error::push_not_found(&request.id))?;
        Ok(shown(task, &found.config))
    }

    /// ListTaskPushNotificationConfigs.
    pub async fn list_push(
        &self,
        call: &Call,
        request: ListTaskPushNotificationConfigsRequest,
    ) -> Result<ListTaskPushNotificationConfigsResponse, Error> {
        call.caller.needs(Scope::Read)?;
        self.push_of(call, &request.tenant)?;
        validate::validate_list_push_configs(&request, &self.inner.options.limits)?;
        let task = self.pushed_task(call, &request.tenant, &request.task_id).await?;
        let size = usize::try_from(request.page_size).ok().filter(|size| *size > 0).unwrap_or(PAGE);
        let (tenant, key) = (call.caller.tenant, &self.inner.page_key);
        let list = convert::digest(&[b"push", task.to_string().as_bytes()]);
        let after = match request.page_token.as_str() {
            "" => None,
            token => Some((task, key.open_name(tenant, &list, token)?)),
        };
        let filter = PushFilter { task: Some(task), troubled: false, after, limit: size + 1 };
        let mut found = self.inner.store.pushes(tenant, filter).await?;
        let has_more = found.len() > size;
        found.truncate(size);
        let last = found.last().filter(|_| has_more).map(|last| key.seal_name(tenant, &list, &last.config.id));
        Ok(ListTaskPushNotificationConfigsResponse {
            configs: found.iter().map(|config| shown(task, &config.config)).collect(),
            next_page_token: last.unwrap_or_default(),
        })
    }

    /// DeleteTaskPushNotificationConfig. What is not there is gone already.
    pub async fn delete_push(
        &self,
        call: &Call,
        request: DeleteTaskPushNotificationConfigRequest,
    ) -> Result<(), Error> {
        call.caller.needs(Scope::Send)?;
        self.push_of(call, &request.tenant)?;
        validate::validate_delete_push_config(&request, &self.inner.options.limits)?;
        let task = self.pushed_task(call, &request.tenant, &request.task_id).await?;
        let removed = answered(self.inner.store.remove_push(call.caller.tenant, task, &request.id)).await;
        removed.map_err(|error| Error::of_task(error, task))?;
        Ok(())
    }

    /// The caller's configurations, with what happened to them.
    pub async fn outboxes(&self, caller: &Caller, filter: PushFilter) -> Result<Vec<PushConfig>, Error> {
        caller.needs(Scope::Read)?;
        self.push()?;
        if caller.bound_to().is_empty() {
            return Ok(self.inner.store.pushes(caller.tenant, filter).await?);
        }
        // What the token is not for is passed over, and a page is filled with what comes after it.
        let mut seen = Vec::new();
        let mut after = filter.after.clone();
        loop {
            let found = self.inner.store.pushes(caller.tenant, PushFilter { after, ..filter.clone() }).await?;
            let was_last = found.len() < filter.limit;
            after = found.last().map(|last| (last.task, last.config.id.clone()));
            for config in found {
                if self.may_see(caller, config.task).await? {
                    seen.push(config);
                }
            }
            if was_last || seen.len() >= filter.limit {
                seen.truncate(filter.limit);
                return Ok(seen);
            }
        }
    }

    /// One of them.
    pub async fn outbox(&self, caller: &Caller, task: &str, id: &str) -> Result<PushConfig, Error> {
        caller.needs(Scope::Read)?;
        self.outbox_of(caller, task, id).await
    }

    /// Whether the caller's token is for the agent of a task of its tenant.
    async fn may_see(&self, caller: &Caller, task: TaskId) -> Result<bool, Error> {
        match self.head(&Call::new(caller.clone()), task).await {
            Ok(_) => Ok(true),
            Err(Error::TaskNotFound(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn outbox_of(&self, caller: &Caller, task: &str, id: &str) -> Result<PushConfig, Error> {
        self.push()?;
        let not_found = || Error::push_not_found(id);
        let task = TaskId::parse(task).ok_or_else(not_found)?;
        if !caller.bound_to().is_empty() && !self.may_see(caller, task).await? {
            return Err(not_found());
        }
        self.inner.store.push(caller.tenant, task, id).await?.ok_or_else(not_found)
    }

    /// Has dead letters sent again, and one that had stopped go on. Says how many letters.
    pub async fn replay(&self, caller: &Caller, task: &str, id: &str, which: Replay) -> Result<usize, Error> {
        caller.needs(Scope::Send)?;
        let config = self.outbox_of(caller, task, id).await?;
        match self.inner.store.replay_pushes(caller.tenant, config.task, id, which).await {
            Err(store::Error::NotFound) => Err(Error::push_not_found(id)),
            replayed => Ok(replayed?),
        }
    }

    /// What the caller's receivers verify signatures with.
    pub async fn push_secret(&self, caller: &Caller) -> Result<PushSecret, Error> {
        let push = self.for_secrets(caller)?;
        let signing = push.signing.look(self.inner.store.as_ref(), caller.tenant).await.map_err(not_known)?;
        Ok(push.secret(caller, signing))
    }

    /// Makes a new secret the caller's current one. Notifications have signatures of both until `overlap` is over, or until the next
    /// rotation.
    pub async fn rotate_push_secret(&self, caller: &Caller, overlap: Option<Duration>) -> Result<PushSecret, Error> {
        let push = self.for_secrets(caller)?;
        let overlap = overlap.unwrap_or(OVERLAP);
        if overlap > LONGEST_OVERLAP {
            let most = LONGEST_OVERLAP.as_secs();
            return Err(Error::invalid("overlapSeconds", format!("must be at most {most}")));
        }
        let (store, now) = (self.inner.store.as_ref(), seconds_now());
        let rotated = push.signing.rotate(store, &caller.actor(), caller.tenant, (now, overlap)).await;
        Ok(push.secret(caller, rotated.map_err(not_known)?))
    }

    /// The secret speaks to all receivers in the tenant's name, those of other agents included.
    fn for_secrets(&self, caller: &Caller) -> Result<&Push, Error> {
        caller.needs(Scope::Admin)?;
        if !caller.bound_to().is_empty() {
            return Err(Error::Bound);
        }
        self.push()
    }
}

/// Why a signing secret cannot be told or rotated.
fn not_known(error: KeyError) -> Error {
    match error {
        KeyError::Store(error) => error.into(),
        error => a2a::Error::internal(error.to_string()).into(),
    }
}

/// A configuration as callers see it: what was secret in it stays so.
fn shown(task: TaskId, push: &NewPush) -> TaskPushNotificationConfig {
    let authentication = (!push.scheme.is_empty())
        .then(|| AuthenticationInfo { scheme: push.scheme.clone(), credentials: String::new() });
    TaskPushNotificationConfig {
        tenant: String::new(),
        id: push.id.clone(),
        task_id: task.to_string(),
        url: push.url.clone(),
        token: String::new(),
        authentication,
    }
}
