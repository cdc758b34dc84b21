//! Administration: tenants, their tokens, the keys that sign cards, the audit log, and what this instance has counted.
//!
//! Each operation is a method of [`Administration`] with a typed request and result; surfaces and the command line only
//! translate. Requests and results have the names that JSON gives them, and times in seconds since 1970. Who may
//! administer is decided before: by the admin token, or by being able to open the journal. A token is shown once, in
//! the result of the call that made it.

use std::time::Duration;

use a2a::{ErrorKind, Timestamp, signature::Algorithm};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use sha2::{Digest, Sha256};
use store::{
    AgentId, Change, Changed, Deleted, NewAdminToken, NewToken, Reach, Removal, Scope, Scopes, Store, TaskId, TenantId,
    check_tenant_name, clock,
};
use tokio::time::Instant;

use crate::{
    aftermath,
    card_keys::{self, CardKey, CardKeys, OVERLAP, seconds_now},
    retention::{self, TELLING},
};

/// The setting that holds the SHA-256 of the admin token.
pub const ADMIN_TOKEN: &str = "admin.token";
/// What a tenant's token begins with, so that scanners for leaked secrets can recognise it.
pub const TOKEN_PREFIX: &str = "sb_";
/// What the admin token begins with.
pub const ADMIN_PREFIX: &str = "sba_";

/// The tenant that every start makes sure of.
pub const DEFAULT_TENANT: &str = "default";

/// How long other instances may take to refuse the tokens of a tenant that was disabled.
const SETTLING: Duration = Duration::from_secs(1);
/// How long one call cancels tasks of a tenant, and how long it deletes them.
const DELETION: Duration = Duration::from_secs(5);
/// Number of tasks that are canceled between two looks, each of which walks over all tasks of the tenant.
const CANCELED_AT_ONCE: usize = 1000;

/// How many entries a page of the audit log has, and can have.
const AUDIT_PAGE: usize = 50;
const AUDIT_MAX: usize = 200;

/// The longest life of a token that ends, ten years.
const MAX_LIFE_SECONDS: u64 = 10 * 365 * 24 * 3600;
/// The longest name of a token, in characters.
const NAME_CHARS: usize = 64;
/// The most agents that a token is bound to.
const MOST_AGENTS: usize = 64;

/// The operations, over a store and in somebody's name.
#[derive(Clone, Copy)]
pub struct Administration<'a> {
    store: &'a dyn Store,
    actor: &'a str,
}

/// A tenant to make.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateTenant {
    /// Its name.
    pub name: String,
}

/// What is to be changed of a tenant.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpdateTenant {
    /// Its tokens are refused.
    pub disabled: bool,
}

/// What of a tenant was deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletedTenant {
    /// Its number.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// How many tasks this call has removed.
    pub tasks: u64,
    /// How many bytes they had.
    pub bytes: u64,
    /// Nothing is left; otherwise the call is to be repeated.
    pub done: bool,
}

/// A token to make; all of it can be left out.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CreateToken {
    /// What to call it.
    pub name: Option<String>,
    /// When it ends; never, when nothing is said.
    pub expires_in_seconds: Option<u64>,
    /// What it is for, of `read`, `send`, `cancel` and `admin`; all of them when none is named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// The agents that it is bound to; none when it is for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
}

/// A token of an administrator to make.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateAdminToken {
    /// What the audit log calls who has it. No other ever has the same.
    pub name: String,
    /// When it ends; never, when nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_seconds: Option<u64>,
}

/// Whose tokens are honoured, or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its number.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Its tokens are refused.
    pub disabled: bool,
    /// Since when it exists.
    pub created_at: i64,
    /// When one of its tokens was last seen.
    pub last_used_at: Option<i64>,
    /// The token that the call made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The number of that token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_id: Option<i64>,
}

/// What is known of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Its number.
    pub id: i64,
    /// Whose.
    pub tenant_id: i64,
    /// What people call it.
    pub name: String,
    /// `live`, `revoked` or `expired`.
    pub state: String,
    /// Since when it exists.
    pub created_at: i64,
    /// When it ends.
    pub expires_at: Option<i64>,
    /// Since when it is not honoured any more.
    pub revoked_at: Option<i64>,
    /// When it was last seen.
    pub last_used_at: Option<i64>,
    /// What it is for.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// The agents that it is bound to; none when it is for all.
    #[serde(default)]
    pub agents: Vec<String>,
    /// The token itself, when the call made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// What is known of a token of an administrator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdminToken {
    /// Its number.
    pub id: i64,
    /// What the audit log calls who has it, behind `admin:`.
    pub name: String,
    /// `live`, `revoked` or `expired`.
    pub state: String,
    /// Since when it exists.
    pub created_at: i64,
    /// When it ends.
    pub expires_at: Option<i64>,
    /// Since when it is not honoured any more.
    pub revoked_at: Option<i64>,
    /// The token itself, when the call made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// A new signing key to make; all of it can be left out.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RotateKey {
    /// `ES256` or `EdDSA`; that of the key before when nothing is said.
    pub alg: Option<String>,
    /// How long the key before is still published and signs; a week when nothing is said.
    pub overlap_seconds: Option<u64>,
}

/// A card to sign.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignCard {
    /// The card; it is kept as it is.
    pub card: Box<RawValue>,
    /// Where the public keys are, for the header of the signatures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jku: Option<String>,
}

/// A card with its signatures.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SignedCard {
    /// The card.
    pub card: Box<RawValue>,
}

/// What is known of a signing key. Its secret is never shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// What signatures call it.
    pub kid: String,
    /// For what.
    pub alg: String,
    /// `active`, `retiring` or `ended`.
    pub state: String,
    /// Since when it exists.
    pub created_at: i64,
    /// When it ends, once it was replaced.
    pub retires_at: Option<i64>,
    /// What verifiers need.
    pub jwk: Value,
}

/// Who did what, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Its number, rising.
    pub id: i64,
    /// When.
    pub ts: i64,
    /// Who.
    pub actor: String,
    /// What was done, such as `create_tenant`.
    pub action: String,
    /// To what kind of thing: `tenant`, `token` or `setting`.
    pub target_kind: Value,
    /// To which: a number, or a name.
    pub target_id: Value,
    /// What it was.
    pub before: Value,
    /// What it is.
    pub after: Value,
}

/// What this instance has counted since it started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Which it is.
    pub instance: String,
    /// Transactions that wrote.
    pub commits: u64,
    /// Events appended.
    pub events: u64,
    /// What turns have used of models.
    #[serde(default)]
    pub tokens: TokenUsage,
    /// Who could not authenticate.
    #[serde(default)]
    pub failed_authentications: FailedAuthentications,
}

/// How many tokens of models were used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    /// Those that models have read.
    pub input: u64,
    /// Those that models have written.
    pub output: u64,
}

/// How many requests could not be authenticated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedAuthentications {
    /// Those that came with no token.
    pub missing: u64,
    /// Those that came with a wrong one.
    pub wrong: u64,
    /// Of both, those that were told that their address fails too often.
    pub refused: u64,
}

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A field of the request is wrong.
    #[error("invalid parameters: {field}: {why}")]
    Invalid {
        /// Which.
        field: &'static str,
        /// What it has to be.
        why: String,
    },
    /// The tenant does not exist.
    #[error("there is no such tenant")]
    NoTenant,
    /// The tenant that every start makes.
    #[error("the tenant `{DEFAULT_TENANT}` cannot be deleted: every start makes it")]
    DefaultTenant,
    /// Some of its tasks have not ended.
    #[error("the tenant `{0}` has tasks that have not ended")]
    TenantAtWork(String),
    /// The token does not exist, or is another tenant's.
    #[error("this tenant has no such token")]
    NoToken,
    /// A token of an administrator does not exist.
    #[error("there is no such admin token")]
    NoSuchAdmin,
    /// The name was an administrator's.
    #[error("there is, or was, an admin token `{0}`")]
    AdminExists(String),
    /// The name is taken.
    #[error("there is a tenant `{0}` already")]
    TenantExists(String),
    /// Nobody can administer over the network yet.
    #[error("no admin token is configured")]
    NoAdminToken,
    /// The system gives no random numbers.
    #[error("the system gives no random numbers: {0}")]
    NoRandomness(getrandom::Error),
    /// There are no signing keys to use.
    #[error(transparent)]
    Keys(#[from] card_keys::Error),
    /// The store does not work.
    #[error("the journal cannot be used at the moment")]
    Store(#[from] store::Error),
}

/// A new token: 256 bits behind a prefix.
pub fn mint(prefix: &str) -> Result<String, Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(Error::NoRandomness)?;
    Ok(format!("{prefix}{}", URL_SAFE_NO_PAD.encode(bytes)))
}

/// What is stored of a token.
pub fn hash(token: impl AsRef<[u8]>) -> [u8; 32] {
    Sha256::digest(token).into()
}

impl<'a> Administration<'a> {
    /// Over this store; the audit log will name the actor.
    pub fn new(store: &'a dyn Store, actor: &'a str) -> Self {
        Self { store, actor }
    }

    /// All tenants, by name.
    pub async fn tenants(&self) -> Result<Vec<Tenant>, Error> {
        let mut tenants = Vec::new();
        for tenant in self.store.tenants().await? {
            tenants.push(self.shown(&tenant).await?);
        }
        Ok(tenants)
    }

    /// One tenant.
    pub async fn tenant(&self, id: TenantId) -> Result<Tenant, Error> {
        self.shown(&self.existing(id).await?).await
    }

    /// Makes a tenant, with its first token.
    pub async fn create_tenant(&self, request: CreateTenant) -> Result<Tenant, Error> {
        let CreateTenant { name } = request;
        check_tenant_name(&name).map_err(|why| invalid("name", why))?;
        let secret = mint(TOKEN_PREFIX)?;
        let create = Change::CreateTenant { name: name.clone(), hash: Some(hash(&secret)) };
        let created = self.change(create, Error::TenantExists(name)).await?;
        Ok(with_token(Tenant::from(&created.tenant), secret, &created))
    }

    /// Disables a tenant, or enables it again.
    pub async fn update_tenant(&self, id: TenantId, request: &UpdateTenant) -> Result<Tenant, Error> {
        let set = Change::SetEnabled { tenant: id, enabled: !request.disabled };
        let changed = self.change(set, Error::NoTenant).await?;
        self.shown(&changed.tenant).await
    }

    /// Deletes a tenant with its tasks, tokens, cards and agents; with `force` also one whose tasks have not ended, which are
    /// canceled first. Others who work for the tasks are told of that for a while. Its tokens are refused from the begin; when a
    /// message came in before all instances refused them, and `force` is not set, they are honored again. Of a tenant with
    /// many tasks some may be left, for another call.
    ///
    /// The steps have the pace of retention (`retention.rs`).
    pub async fn delete_tenant(&self, id: TenantId, force: bool) -> Result<DeletedTenant, Error> {
        let tenant = self.existing(id).await?;
        if tenant.name == DEFAULT_TENANT {
            return Err(Error::DefaultTenant);
        }
        if !force && !self.store.unfinished_of(id, 1).await?.is_empty() {
            return Err(Error::TenantAtWork(tenant.name));
        }
        if tenant.enabled {
            self.change(Change::SetEnabled { tenant: id, enabled: false }, Error::NoTenant).await?;
            // Every instance has looked by then, so that no message comes in any more.
            tokio::time::sleep(SETTLING).await;
        }
        let mut deleted = DeletedTenant { id: id.0, name: tenant.name.clone(), tasks: 0, bytes: 0, done: false };
        if !self.end_tasks(&tenant, force).await? {
            return Ok(deleted);
        }
        aftermath::until_told(self.store, id, &Removal::Tenant, Instant::now() + TELLING).await?;
        let until = Instant::now() + DELETION;
        let mut steps = 0;
        loop {
            match self.delete_some(id, retention::size(steps)).await {
                Ok(step) => {
                    deleted.tasks += step.tasks;
                    deleted.bytes += step.bytes;
                    deleted.done = !step.more;
                    if deleted.done || Instant::now() >= until {
                        return Ok(deleted);
                    }
                    tokio::time::sleep(retention::pause(step.took, steps)).await;
                    steps += 1;
                }
                // It was accepted after the look.
                Err(store::Error::NotEnded(_)) => {
                    if !self.end_tasks(&tenant, force).await? || Instant::now() >= until {
                        return Ok(deleted);
                    }
                }
                Err(store::Error::NotFound) => return Err(Error::NoTenant),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Cancels the tasks of a tenant that have not ended. Says whether all of them have ended then. Without `force` the tenant is
    /// enabled again, if it was before, and the deletion refused.
    async fn end_tasks(&self, tenant: &store::Tenant, force: bool) -> Result<bool, Error> {
        let until = Instant::now() + DELETION;
        loop {
            let unfinished = self.store.unfinished_of(tenant.id, CANCELED_AT_ONCE).await?;
            if unfinished.is_empty() {
                return Ok(true);
            }
            if !force {
                if tenant.enabled {
                    self.change(Change::SetEnabled { tenant: tenant.id, enabled: true }, Error::NoTenant).await?;
                }
                return Err(Error::TenantAtWork(tenant.name.clone()));
            }
            for task in unfinished {
                if Instant::now() >= until {
                    return Ok(false);
                }
                self.cancel(tenant.id, task).await?;
            }
        }
    }

    /// Removes some tasks of a tenant, and the tenant after the last of them.
    async fn delete_some(&self, id: TenantId, size: u64) -> store::Result<Deleted> {
        let step = match self.store.delete(id, self.actor, Removal::Tenant, size).await {
            Err(store::Error::NotFound) => Deleted::default(),
            step => step?,
        };
        if step.more {
            return Ok(step);
        }
        match self.store.administer(self.actor, Change::DeleteTenant(id)).await {
            Ok(_) => Ok(step),
            // They came in after the step.
            Err(store::Error::HasTasks) => Ok(Deleted { more: true, ..step }),
            Err(error) => Err(error),
        }
    }

    /// Ends a task without a word to its agent, whose next write is refused.
    async fn cancel(&self, tenant: TenantId, task: TaskId) -> Result<(), Error> {
        let canceled = async {
            // What callers do not see cannot be canceled.
            self.store.reveal(tenant, task).await?;
            self.store.mark_cancel(tenant, task).await?;
            self.store.force_cancel(tenant, task).await
        };
        match canceled.await {
            Err(store::Error::Terminal(_) | store::Error::NotFound) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends all tokens of a tenant and makes a new one.
    pub async fn rotate(&self, id: TenantId, request: CreateToken) -> Result<Tenant, Error> {
        let (secret, new) = new_token(id, request, "rotated")?;
        let changed = self.change(Change::Rotate(new), Error::NoTenant).await?;
        // The new token is in nobody else's hands: what cannot be read now must not cost it.
        let tenant = self.shown(&changed.tenant).await.unwrap_or_else(|_| Tenant::from(&changed.tenant));
        Ok(with_token(tenant, secret, &changed))
    }

    /// A tenant's tokens, oldest first.
    pub async fn tokens(&self, tenant: TenantId) -> Result<Vec<Token>, Error> {
        self.existing(tenant).await?;
        Ok(self.store.tokens(tenant).await?.iter().map(Token::from).collect())
    }

    /// One token.
    pub async fn token(&self, tenant: TenantId, id: i64) -> Result<Token, Error> {
        let tokens = self.store.tokens(tenant).await?;
        tokens.iter().find(|token| token.id == id).map(Token::from).ok_or(Error::NoToken)
    }

    /// Makes a token.
    pub async fn create_token(&self, tenant: TenantId, request: CreateToken) -> Result<Token, Error> {
        let (secret, new) = new_token(tenant, request, "")?;
        let changed = self.change(Change::AddToken(new), Error::NoTenant).await?;
        Ok(Token { token: Some(secret), ..token_of(&changed)? })
    }

    /// Ends a token. One that has been ended stays as it is.
    pub async fn revoke_token(&self, tenant: TenantId, id: i64) -> Result<Token, Error> {
        token_of(&self.change(Change::RevokeToken { tenant, token: id }, Error::NoToken).await?)
    }

    /// The tokens of administrators, oldest first. The one that the server was started with is not among them.
    pub async fn admin_tokens(&self) -> Result<Vec<AdminToken>, Error> {
        Ok(self.store.admin_tokens().await?.iter().map(AdminToken::from).collect())
    }

    /// One of them.
    pub async fn admin_token(&self, id: i64) -> Result<AdminToken, Error> {
        self.admin_tokens().await?.into_iter().find(|token| token.id == id).ok_or(Error::NoSuchAdmin)
    }

    /// Makes one.
    pub async fn create_admin_token(&self, request: CreateAdminToken) -> Result<AdminToken, Error> {
        let CreateAdminToken { name, expires_in_seconds } = request;
        let wrong = |_| invalid("name", "has 1 to 64 letters, digits, '.', '_' and '-'");
        check_tenant_name(&name).map_err(wrong)?;
        let secret = mint(ADMIN_PREFIX)?;
        let new = NewAdminToken { hash: hash(&secret), name: name.clone(), expires: end_of(expires_in_seconds)? };
        match self.store.add_admin_token(self.actor, new).await {
            Err(store::Error::Exists) => Err(Error::AdminExists(name)),
            created => Ok(AdminToken { token: Some(secret), ..AdminToken::from(&created?) }),
        }
    }

    /// Ends one. One that has been ended stays as it is.
    pub async fn revoke_admin_token(&self, id: i64) -> Result<AdminToken, Error> {
        match self.store.revoke_admin_token(self.actor, id).await {
            Err(store::Error::NotFound) => Err(Error::NoSuchAdmin),
            revoked => Ok(AdminToken::from(&revoked?)),
        }
    }

    /// The keys that sign cards, newest first.
    pub async fn keys(&self) -> Result<Vec<Key>, Error> {
        Ok(shown_keys(&CardKeys::load(self.store).await?))
    }

    /// Makes a new signing key, and gives all of them, the new one first.
    pub async fn rotate_key(&self, request: RotateKey) -> Result<Vec<Key>, Error> {
        let algorithm = match &request.alg {
            None => None,
            Some(name) => Some(Algorithm::named(name).ok_or_else(|| invalid("alg", "must be ES256 or EdDSA"))?),
        };
        let overlap = match request.overlap_seconds {
            None => OVERLAP,
            Some(seconds @ 0..=MAX_LIFE_SECONDS) => Duration::from_secs(seconds),
            Some(_) => return Err(invalid("overlap_seconds", format!("must be 0 to {MAX_LIFE_SECONDS}"))),
        };
        Ok(shown_keys(&CardKeys::rotate(self.store, self.actor, algorithm, overlap).await?))
    }

    /// Signs a card in the name of the installation.
    pub async fn sign_card(&self, request: &SignCard) -> Result<SignedCard, Error> {
        let keys = CardKeys::load(self.store).await?;
        let signed = keys.sign(request.card.get().as_bytes(), request.jku.as_deref(), seconds_now());
        let signed = signed.map_err(|why| invalid("card", why.to_string()))?;
        let text = String::from_utf8(signed).ok().and_then(|text| RawValue::from_string(text).ok());
        Ok(SignedCard { card: text.ok_or_else(|| invalid("card", "is no JSON"))? })
    }

    /// The newest entries of the audit log first, or of those before one.
    pub async fn audit(&self, before: Option<i64>, limit: Option<usize>) -> Result<Vec<AuditEntry>, Error> {
        let limit = limit.unwrap_or(AUDIT_PAGE).min(AUDIT_MAX);
        if limit == 0 {
            return Err(invalid("limit", "must be at least 1"));
        }
        Ok(self.store.audit(before, limit).await?.into_iter().map(AuditEntry::from).collect())
    }

    /// What this instance has counted.
    pub fn stats(&self) -> Stats {
        let stats = self.store.stats();
        Stats {
            instance: self.store.instance().to_string(),
            commits: stats.commits,
            events: stats.events,
            tokens: TokenUsage { input: stats.tokens.input, output: stats.tokens.output },
            failed_authentications: FailedAuthentications::default(),
        }
    }

    /// `refusal` is for what is taken, or not there.
    async fn change(&self, change: Change, refusal: Error) -> Result<Changed, Error> {
        match self.store.administer(self.actor, change).await {
            Err(store::Error::NotFound | store::Error::Exists) => Err(refusal),
            changed => Ok(changed?),
        }
    }

    async fn existing(&self, id: TenantId) -> Result<store::Tenant, Error> {
        self.store.tenants().await?.into_iter().find(|tenant| tenant.id == id).ok_or(Error::NoTenant)
    }

    async fn shown(&self, tenant: &store::Tenant) -> Result<Tenant, Error> {
        let tokens = self.store.tokens(tenant.id).await?;
        let last_used_at = tokens.iter().filter_map(|token| token.used_at).max().map(seconds);
        Ok(Tenant { last_used_at, ..tenant.into() })
    }
}

fn shown_keys(keys: &CardKeys) -> Vec<Key> {
    let now = seconds_now();
    keys.all().map(|key| shown_key(key, now)).collect()
}

fn shown_key(key: &CardKey, now: i64) -> Key {
    let public = key.public();
    let state = match key.retires_at {
        None => "active",
        Some(end) if end > now => "retiring",
        Some(_) => "ended",
    };
    Key {
        kid: public.kid.clone(),
        alg: public.algorithm.name().to_owned(),
        state: state.to_owned(),
        created_at: key.created_at,
        retires_at: key.retires_at,
        jwk: public.jwk(),
    }
}

/// A new token and what is to be stored of it.
fn new_token(tenant: TenantId, request: CreateToken, default_name: &str) -> Result<(String, NewToken), Error> {
    let name = request.name.unwrap_or_else(|| default_name.to_owned());
    if name.chars().count() > NAME_CHARS || name.chars().any(char::is_control) {
        return Err(invalid("name", format!("must have at most {NAME_CHARS} visible characters")));
    }
    let expires = end_of(request.expires_in_seconds)?;
    let reach = reach_of(&request.scopes, &request.agents)?;
    let secret = mint(TOKEN_PREFIX)?;
    let hash = hash(&secret);
    Ok((secret, NewToken { tenant, hash, name, expires, reach }))
}

fn end_of(life_seconds: Option<u64>) -> Result<Option<Timestamp>, Error> {
    match life_seconds {
        None => Ok(None),
        Some(seconds @ 1..=MAX_LIFE_SECONDS) => {
            let millis = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000);
            Ok(Some(Timestamp::from_millis(clock::now().as_millis().saturating_add(millis))))
        }
        Some(_) => Err(invalid("expires_in_seconds", format!("must be 1 to {MAX_LIFE_SECONDS}"))),
    }
}

/// How far a token is to reach. What is not said is not bound.
fn reach_of(scopes: &[String], agents: &[String]) -> Result<Reach, Error> {
    let mut reach = Reach::default();
    if !scopes.is_empty() {
        let scopes: Result<Scopes, &str> = scopes.iter().map(|name| name.parse::<Scope>()).collect();
        reach.scopes = scopes.map_err(|why| invalid("scopes", why))?;
    }
    if agents.len() > MOST_AGENTS {
        return Err(invalid("agents", format!("must be at most {MOST_AGENTS}")));
    }
    for id in agents {
        let id: AgentId = id.parse().map_err(|why: &str| invalid("agents", why))?;
        if !reach.agents.contains(&id) {
            reach.agents.push(id);
        }
    }
    Ok(reach)
}

fn with_token(tenant: Tenant, secret: String, changed: &Changed) -> Tenant {
    Tenant { token: Some(secret), token_id: changed.token.as_ref().map(|token| token.id), ..tenant }
}

fn token_of(changed: &Changed) -> Result<Token, Error> {
    changed.token.as_ref().map(Token::from).ok_or(Error::NoToken)
}

fn invalid(field: &'static str, why: impl Into<String>) -> Error {
    Error::Invalid { field, why: why.into() }
}

fn seconds(at: Timestamp) -> i64 {
    at.as_millis().div_euclid(1000)
}

impl From<&store::Tenant> for Tenant {
    fn from(tenant: &store::Tenant) -> Self {
        Self {
            id: tenant.id.0,
            name: tenant.name.clone(),
            disabled: !tenant.enabled,
            created_at: seconds(tenant.created_at),
            last_used_at: None,
            token: None,
            token_id: None,
        }
    }
}

impl From<&store::Token> for Token {
    fn from(token: &store::Token) -> Self {
        let state = state_of(token.revoked_at, token.is_live(clock::now()));
        Self {
            id: token.id,
            tenant_id: token.tenant.0,
            name: token.name.clone(),
            state: state.to_owned(),
            created_at: seconds(token.created_at),
            expires_at: token.expires.map(seconds),
            revoked_at: token.revoked_at.map(seconds),
            last_used_at: token.used_at.map(seconds),
            scopes: token.reach.scopes.iter().map(|scope| scope.to_string()).collect(),
            agents: token.reach.agents.iter().map(AgentId::to_string).collect(),
            token: None,
        }
    }
}

impl From<&store::AdminToken> for AdminToken {
    fn from(token: &store::AdminToken) -> Self {
        Self {
            id: token.id,
            name: token.name.clone(),
            state: state_of(token.revoked_at, token.is_live(clock::now())).to_owned(),
            created_at: seconds(token.created_at),
            expires_at: token.expires.map(seconds),
            revoked_at: token.revoked_at.map(seconds),
            token: None,
        }
    }
}

fn state_of(revoked_at: Option<Timestamp>, is_live: bool) -> &'static str {
    match revoked_at {
        Some(_) => "revoked",
        None if is_live => "live",
        None => "expired",
    }
}

impl From<store::AuditEntry> for AuditEntry {
    fn from(entry: store::AuditEntry) -> Self {
        let mut detail: Value = serde_json::from_str(&entry.detail).unwrap_or_default();
        let mut of = |key: &str| detail.get_mut(key).map(Value::take).unwrap_or_default();
        Self {
            id: entry.id,
            ts: seconds(entry.at),
            actor: entry.actor,
            action: entry.action,
            target_kind: of("target_kind"),
            target_id: of("target_id"),
            before: of("before"),
            after: of("after"),
        }
    }
}

/// As a caller may see it. Internals go to the log, not over the wire.
impl From<Error> for a2a::Error {
    fn from(error: Error) -> Self {
        let told = |kind| Self::new(kind, error.to_string());
        match &error {
            Error::Invalid { field, why } => Self::invalid(field, why),
            Error::NoTenant | Error::NoToken | Error::NoSuchAdmin => told(ErrorKind::NotFound),
            Error::TenantExists(_) | Error::AdminExists(_) => told(ErrorKind::AlreadyExists),
            Error::DefaultTenant | Error::TenantAtWork(_) => told(ErrorKind::UnsupportedOperation),
            Error::NoAdminToken => told(ErrorKind::Unavailable),
            Error::NoRandomness(_) => {
                tracing::error!(%error, "no token can be made");
                Self::internal("no token can be made")
            }
            Error::Store(cause) | Error::Keys(card_keys::Error::Store(cause)) => {
                tracing::error!(error = %cause, "administration failed");
                told(ErrorKind::Unavailable).with_retry_after(1)
            }
            Error::Keys(card_keys::Error::Overtaken) => told(ErrorKind::Unavailable).with_retry_after(1),
            Error::Keys(cause) => {
                tracing::error!(error = %cause, "cards cannot be signed");
                Self::internal("cards cannot be signed")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_a_prefix_and_256_bits() {
        let token = mint(TOKEN_PREFIX).unwrap();
        assert!(token.starts_with("sb_"));
        assert_eq!(token.len(), 46);
        assert_ne!(token, mint(TOKEN_PREFIX).unwrap());
        assert!(mint(ADMIN_PREFIX).unwrap().starts_with("sba_"));
    }

    #[tokio::test]
    async fn what_is_wrong_is_refused_before_anything_is_changed() {
        let directory = tempfile::tempdir().unwrap();
        let store = store::sqlite::open(directory.path(), store::sqlite::Options::default()).unwrap();
        let admin = Administration::new(store.as_ref(), "test");
        let acme = admin.create_tenant(CreateTenant { name: "acme".into() }).await.unwrap();
        let (id, nobody) = (TenantId(acme.id), TenantId(acme.id + 1));
        let token = |name: &str, life| CreateToken {
            name: Some(name.to_owned()),
            expires_in_seconds: life,
            ..CreateToken::default()
        };

        let mut refused = Vec::new();
        for name in ["acme", "", "a b"] {
            refused.push(admin.create_tenant(CreateTenant { name: name.into() }).await.err());
        }
        let reach = |scopes: &[&str], agents: &[&str]| {
            let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            CreateToken { scopes: all(scopes), agents: all(agents), ..CreateToken::default() }
        };
        for wrong in [reach(&["write"], &[]), reach(&["read", ""], &[]), reach(&[], &["a/b"]), reach(&[], &["a"; 65])] {
            assert!(matches!(admin.create_token(id, wrong).await, Err(Error::Invalid { .. })));
        }
        for wrong in
            [token(&"n".repeat(65), None), token("a\u{1b}", None), token("a", Some(0)), token("a", Some(u64::MAX))]
        {
            refused.push(admin.create_token(id, wrong.clone()).await.err());
            refused.push(admin.rotate(id, wrong).await.err());
        }
        refused.push(admin.create_token(nobody, CreateToken::default()).await.err());
        refused.push(admin.rotate(nobody, CreateToken::default()).await.err());
        refused.push(admin.update_tenant(nobody, &UpdateTenant { disabled: true }).await.err());
        refused.push(admin.revoke_token(nobody, acme.token_id.unwrap()).await.err());
        refused.push(admin.audit(None, Some(0)).await.err());
        let statuses: Vec<u16> =
            refused.into_iter().map(|error| a2a::Error::from(error.expect("it is refused")).http_status()).collect();
        assert_eq!(statuses, [409, 400, 400, 400, 400, 400, 400, 400, 400, 400, 400, 404, 404, 404, 404, 400]);

        assert_eq!(admin.audit(None, None).await.unwrap().len(), 1);
        assert_eq!(admin.tokens(id).await.unwrap()[0].state, "live");
        let shown = serde_json::to_string(&(admin.tenants().await.unwrap(), admin.tokens(id).await.unwrap())).unwrap();
        assert!(!shown.contains("sb_"), "a token is shown once: {shown}");
    }
}
