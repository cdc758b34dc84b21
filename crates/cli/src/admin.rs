//! The way of administrative commands: to the server with the admin token, or to the journal when none runs.
//!
//! Both ways lead to the same operations, [`exchange::admin`]: over HTTP they are called by their routes, here directly.

use std::{path::PathBuf, sync::Arc, time::Duration};

use agents::units::Span;
use client::{Connector, Credential, Limits, call_json, parse_url};
use exchange::admin::{
    AdminToken, Administration, AuditEntry, CreateAdminToken, CreateTenant, CreateToken, DeletedTenant, Error, Key,
    RotateKey, SignCard, SignedCard, Stats, Tenant, Token, UpdateTenant,
};
use http::Method;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use store::{Location, OpenOptions, Store, TenantId, postgres, sqlite};
use url::Url;

use crate::{
    config::{self, Layer, LogFormat, Masked, process_environment},
    credentials,
    failure::{Exit, Failure},
    journal,
    local::{AdminFile, PrivateFile},
    logging,
    output::{self, Format},
    profile,
    servers::Servers,
    target::{self, run_within},
};

/// Who did it, in the audit log, when it was done on the journal itself.
const ACTOR: &str = "local";

/// How long a stored server has to say that it is there.
const PROBE: Duration = Duration::from_secs(5);

/// The options that all administrative commands share.
#[derive(Debug, clap::Args)]
pub(crate) struct AdminArgs {
    /// The server [env: SB_URL] [default: the local one; its journal when it does not run]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// How to print the result: `json` is one object a line
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    pub(crate) output: Format,
    /// How long the command may take
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    timeout: Span,
    /// Where the local server keeps its files [env: SB_DATA_DIR]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Where the journal is [env: SB_STORE] [default: SQLite in the data directory]
    #[arg(long, value_name = "URL")]
    store: Option<Masked>,
    /// The configuration file [env: SB_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Somebody who may administer.
pub(crate) struct Admin {
    way: Way,
    /// The data directory, when it is the local installation that is administered.
    pub(crate) data_dir: Option<PathBuf>,
}

enum Way {
    Server(Server),
    Journal(Arc<dyn Store>),
}

struct Server {
    connector: Connector,
    base: Url,
    token: Credential,
}

impl AdminArgs {
    /// Runs an administrative command to its end. With `may_create` a journal that is not there yet is made.
    pub(crate) fn run(
        &self,
        log: Option<&str>,
        may_create: bool,
        work: impl AsyncFnOnce(&Admin) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        logging::start(log, "warn", LogFormat::Human)?;
        let hint = "give it more time with --timeout; it may have been done all the same";
        run_within(self.timeout.0, hint, async {
            let admin = self.admin(may_create).await?;
            let outcome = work(&admin).await;
            if let Way::Journal(store) = admin.way {
                journal::close(store).await;
            }
            outcome
        })
    }

    async fn admin(&self, may_create: bool) -> Result<Admin, Failure> {
        let flags = Layer { data_dir: self.data_dir.clone(), store: self.store.clone(), ..Layer::default() };
        let layer = config::load(flags, self.config.as_deref(), &process_environment)?;
        let data_dir = layer.data_dir(&process_environment);
        if let Some(named) = self.url.clone().or_else(|| process_environment("SB_URL")) {
            return named_server(&named, data_dir.ok());
        }
        let data_dir = data_dir?;
        self.say_whom(&data_dir)?;
        if let Some(way) = stored_server(&data_dir).await? {
            return Ok(Admin { way, data_dir: Some(data_dir) });
        }
        let location = layer.location(&process_environment)?;
        if !may_create && !has_journal(&location).await? {
            return Err(Failure::usage(format!("there is no journal in `{location}`"))
                .because("no server has started with this store")
                .hint("start one with `sb serve`, or name one with --url, --store or --data-dir"));
        }
        // What is done here others find by looking: a command has no time to join a channel.
        let options = OpenOptions { connections: 1, wake: None };
        let store = journal::open(&location, options).await?;
        Ok(Admin { way: Way::Journal(store), data_dir: Some(data_dir) })
    }
}

impl AdminArgs {
    /// The names of the tenants, for a shell that asks what fits: by a server that runs. A journal is not opened for that.
    pub(crate) async fn tenant_names(&self) -> Result<Vec<String>, Failure> {
        if self.store.is_some() {
            return Ok(Vec::new());
        }
        let flags = Layer { data_dir: self.data_dir.clone(), ..Layer::default() };
        let data_dir =
            config::load(flags, self.config.as_deref(), &process_environment)?.data_dir(&process_environment);
        let admin = match self.url.clone().or_else(|| process_environment("SB_URL")) {
            Some(named) => named_server(&named, data_dir.ok())?,
            None => {
                let data_dir = data_dir?;
                let Some(way) = stored_server(&data_dir).await? else { return Ok(Vec::new()) };
                Admin { way, data_dir: Some(data_dir) }
            }
        };
        Ok(admin.tenants().await?.into_iter().map(|tenant| tenant.name).collect())
    }

    /// Says that the installation of this machine is meant, when a profile in use is of another server.
    fn say_whom(&self, data_dir: &std::path::Path) -> Result<(), Failure> {
        let is_named = self.data_dir.is_some() || self.store.is_some();
        let Some(profile) = profile::chosen(None, is_named, &process_environment)? else { return Ok(()) };
        let url = parse_url(&profile.url)?;
        if !runs_here(data_dir, &url)? {
            let note = format!(
                "this administers the installation in `{}`, not the server of the profile `{}`; name that with `--url {url}` \
                 and its token with SB_ADMIN_TOKEN",
                data_dir.display(),
                profile.name,
            );
            output::error_line("note", &note);
        }
        Ok(())
    }
}

/// Whether a URL is that of a server which runs with this data directory.
pub(crate) fn runs_here(data_dir: &std::path::Path, url: &Url) -> Result<bool, Failure> {
    Ok(Servers::of(data_dir)?.at(url).is_some_and(|server| server.runs))
}

/// The way to a server by its address, when its admin token is known here.
pub(crate) fn of_server(base: &str, data_dir: Option<PathBuf>) -> Option<Admin> {
    let layer = config::load(Layer { data_dir, ..Layer::default() }, None, &process_environment).ok()?;
    let data_dir = layer.data_dir(&process_environment).ok();
    named_server(base, data_dir).ok()
}

/// Whether there is a journal already. Looking makes none.
async fn has_journal(location: &Location) -> Result<bool, Failure> {
    match location {
        Location::Sqlite(directory) => Ok(directory.join(sqlite::FILE).is_file()),
        Location::Postgres(url) => match postgres::inspect(url).await {
            Ok(found) => Ok(found.schema.is_some()),
            Err(error) => Err(journal::failure(location, &error)),
        },
    }
}

/// A server that the caller names. The stored token goes to the server that it belongs to only, and so does the variable.
fn named_server(named: &str, data_dir: Option<PathBuf>) -> Result<Admin, Failure> {
    let servers = data_dir.as_deref().map(Servers::of).transpose()?.unwrap_or_else(Servers::none);
    let mut base = servers.resolve(crate::target::server_url(named)?);
    let given = credentials::variable("SB_ADMIN_TOKEN", &base, &servers, &process_environment)?;
    let here = servers.at(&base);
    if given.is_none() && here.is_some_and(|here| !here.runs) {
        return Err(target::gone(named));
    }
    let here = here.filter(|here| here.runs);
    let data_dir = data_dir.filter(|_| here.is_some());
    // Who names a local server means the address at which it is administered.
    if let Some(admin) = here.and_then(|here| parse_url(here.admin_url.as_deref()?).ok()) {
        base = admin;
    }
    let stored = match &data_dir {
        Some(directory) if given.is_none() => AdminFile::load(directory)?.token,
        _ => None,
    };
    let token = given.or(stored).ok_or_else(|| {
        Failure::new(Exit::Auth, format!("no admin token is known for {base}"))
            .hint(hint("give it with SB_ADMIN_TOKEN"))
    })?;
    Ok(Admin { way: server(&servers, base, token), data_dir })
}

/// A server of the data directory, if one runs and there is a token for it. Whoever can read the directory can do without.
async fn stored_server(data_dir: &std::path::Path) -> Result<Option<Way>, Failure> {
    if !sqlite::is_open(data_dir) {
        return Ok(None);
    }
    let servers = Servers::of(data_dir)?;
    let connector = servers.connector(Limits { total_timeout: Some(PROBE), ..Limits::default() });
    for known in servers.all().iter().filter(|known| known.runs) {
        let base = parse_url(known.administered_at())?;
        let given = credentials::variable("SB_ADMIN_TOKEN", &base, &servers, &process_environment)?;
        let token = match given {
            Some(token) => Some(token),
            None => AdminFile::load(data_dir)?.token,
        };
        let Some(token) = token else { return Ok(None) };
        if call_json(&connector, Method::GET, &at(&base, "/healthz"), None, None, None).await.is_ok() {
            return Ok(Some(server(&servers, base, token)));
        }
    }
    Ok(None)
}

impl Admin {
    pub(crate) async fn tenants(&self) -> Result<Vec<Tenant>, Failure> {
        match &self.way {
            Way::Server(server) => server.list("/tenants", "tenants").await,
            Way::Journal(store) => Ok(on(store).tenants().await?),
        }
    }

    /// Calls a route of the server that takes the admin token; `path` may have a query.
    pub(crate) async fn route<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, Failure> {
        match &self.way {
            Way::Server(server) => server.call_at(method, path, body).await,
            Way::Journal(_) => Err(Failure::new(Exit::Unreachable, "no server runs here")
                .hint("start one with `sb serve`, or name one with --url")),
        }
    }

    pub(crate) async fn create_tenant(&self, request: CreateTenant) -> Result<Tenant, Failure> {
        match &self.way {
            Way::Server(server) => server.call(Method::POST, "/tenants", Some(&request)).await,
            Way::Journal(store) => Ok(on(store).create_tenant(request).await?),
        }
    }

    pub(crate) async fn update_tenant(&self, id: TenantId, request: UpdateTenant) -> Result<Tenant, Failure> {
        match &self.way {
            Way::Server(server) => server.call(Method::PATCH, &format!("/tenants/{}", id.0), Some(&request)).await,
            Way::Journal(store) => Ok(on(store).update_tenant(id, &request).await?),
        }
    }

    pub(crate) async fn delete_tenant(&self, id: TenantId, force: bool) -> Result<DeletedTenant, Failure> {
        match &self.way {
            Way::Server(server) => {
                server.call(Method::DELETE, &format!("/tenants/{}?force={force}", id.0), NOTHING).await
            }
            Way::Journal(store) => Ok(on(store).delete_tenant(id, force).await?),
        }
    }

    pub(crate) async fn rotate(&self, id: TenantId, request: CreateToken) -> Result<Tenant, Failure> {
        match &self.way {
            Way::Server(server) => {
                server.call(Method::POST, &format!("/tenants/{}/rotate-token", id.0), Some(&request)).await
            }
            Way::Journal(store) => Ok(on(store).rotate(id, request).await?),
        }
    }

    pub(crate) async fn tokens(&self, tenant: TenantId) -> Result<Vec<Token>, Failure> {
        match &self.way {
            Way::Server(server) => server.list(&format!("/tenants/{}/tokens", tenant.0), "tokens").await,
            Way::Journal(store) => Ok(on(store).tokens(tenant).await?),
        }
    }

    pub(crate) async fn create_token(&self, tenant: TenantId, request: CreateToken) -> Result<Token, Failure> {
        match &self.way {
            Way::Server(server) => {
                server.call(Method::POST, &format!("/tenants/{}/tokens", tenant.0), Some(&request)).await
            }
            Way::Journal(store) => Ok(on(store).create_token(tenant, request).await?),
        }
    }

    pub(crate) async fn revoke_token(&self, tenant: TenantId, id: i64) -> Result<Token, Failure> {
        match &self.way {
            Way::Server(server) => {
                server.call(Method::DELETE, &format!("/tenants/{}/tokens/{id}", tenant.0), NOTHING).await
            }
            Way::Journal(store) => Ok(on(store).revoke_token(tenant, id).await?),
        }
    }

    pub(crate) async fn admin_tokens(&self) -> Result<Vec<AdminToken>, Failure> {
        match &self.way {
            Way::Server(server) => server.list("/tokens", "tokens").await,
            Way::Journal(store) => Ok(on(store).admin_tokens().await?),
        }
    }

    pub(crate) async fn create_admin_token(&self, request: CreateAdminToken) -> Result<AdminToken, Failure> {
        match &self.way {
            Way::Server(server) => server.call(Method::POST, "/tokens", Some(&request)).await,
            Way::Journal(store) => Ok(on(store).create_admin_token(request).await?),
        }
    }

    pub(crate) async fn revoke_admin_token(&self, id: i64) -> Result<AdminToken, Failure> {
        match &self.way {
            Way::Server(server) => server.call(Method::DELETE, &format!("/tokens/{id}"), NOTHING).await,
            Way::Journal(store) => Ok(on(store).revoke_admin_token(id).await?),
        }
    }

    pub(crate) async fn keys(&self) -> Result<Vec<Key>, Failure> {
        match &self.way {
            Way::Server(server) => server.list("/keys", "keys").await,
            Way::Journal(store) => Ok(on(store).keys().await?),
        }
    }

    pub(crate) async fn rotate_key(&self, request: RotateKey) -> Result<Vec<Key>, Failure> {
        match &self.way {
            Way::Server(server) => listed(server.call(Method::POST, "/keys/rotate", Some(&request)).await?, "keys"),
            Way::Journal(store) => Ok(on(store).rotate_key(request).await?),
        }
    }

    pub(crate) async fn sign_card(&self, request: SignCard) -> Result<SignedCard, Failure> {
        match &self.way {
            Way::Server(server) => server.call(Method::POST, "/cards/sign", Some(&request)).await,
            Way::Journal(store) => Ok(on(store).sign_card(&request).await?),
        }
    }

    pub(crate) async fn audit(&self, before: Option<i64>, limit: usize) -> Result<Vec<AuditEntry>, Failure> {
        match &self.way {
            Way::Server(server) => {
                let before = before.map(|id| format!("&before_id={id}")).unwrap_or_default();
                server.list(&format!("/audit?limit={limit}{before}"), "entries").await
            }
            Way::Journal(store) => Ok(on(store).audit(before, Some(limit)).await?),
        }
    }

    pub(crate) async fn stats(&self) -> Result<Stats, Failure> {
        match &self.way {
            Way::Server(server) => server.call(Method::GET, "/stats", NOTHING).await,
            Way::Journal(store) => Ok(on(store).stats()),
        }
    }

    /// The tenant with this name.
    pub(crate) async fn tenant_named(&self, name: &str) -> Result<TenantId, Failure> {
        match self.tenants().await?.into_iter().find(|tenant| tenant.name == name) {
            Some(tenant) => Ok(TenantId(tenant.id)),
            None => Err(Failure::failed(format!("there is no tenant `{name}`")).hint("`sb tenant list` shows them")),
        }
    }
}

/// No body.
const NOTHING: Option<&()> = None;

impl Server {
    /// The list that stands under this name.
    async fn list<T: DeserializeOwned>(&self, path: &str, name: &str) -> Result<Vec<T>, Failure> {
        listed(self.call(Method::GET, path, NOTHING).await?, name)
    }

    /// Calls a route below `/v1/admin`; `path` may have a query.
    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, Failure> {
        self.call_at(method, &format!("/v1/admin{path}"), body).await
    }

    async fn call_at<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, Failure> {
        // Plain data always serialises.
        let body = body.map(|body| serde_json::to_vec(body).unwrap_or_default());
        let url = at(&self.base, path);
        let answer = call_json(&self.connector, method, &url, Some(&self.token), body, None).await.map_err(refused)?;
        serde_json::from_slice(&answer).map_err(|error| malformed(&error))
    }
}

fn listed<T: DeserializeOwned>(mut answer: Value, name: &str) -> Result<Vec<T>, Failure> {
    serde_json::from_value(answer[name].take()).map_err(|error| malformed(&error))
}

fn malformed(error: &serde_json::Error) -> Failure {
    Failure::failed("malformed answer").caused_by(error)
}

fn server(servers: &Servers, base: Url, token: String) -> Way {
    let connector = servers.connector(Limits::default());
    Way::Server(Server { connector, base, token: credentials::bearer(token) })
}

/// The operations on a journal that is open here.
fn on(store: &Arc<dyn Store>) -> Administration<'_> {
    Administration::new(store.as_ref(), ACTOR)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let failure = Self::failed(error.to_string());
        match std::error::Error::source(&error) {
            Some(cause) => failure.caused_by(cause),
            None => failure,
        }
    }
}

/// Prints what a change left: an object as JSON, or a line for people and the token that came with it.
pub(crate) fn print_change(format: Format, left: &impl Serialize, token: Option<&str>, text: &str) {
    match format {
        Format::Json => print_json(std::slice::from_ref(left)),
        Format::Text => {
            output::line(&output::harmless(text));
            if let Some(token) = token {
                output::line(&format!("token: {token}"));
                output::error_line("note", "the token is shown only this once");
            }
        }
    }
}

/// Prints one object a line.
pub(crate) fn print_json(list: &[impl Serialize]) {
    for object in list {
        // Plain data always serialises.
        output::line(&serde_json::to_string(object).unwrap_or_default());
    }
}

fn at(base: &Url, path: &str) -> Url {
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let mut url = base.clone();
    url.set_path(&format!("{}{path}", base.path().trim_end_matches('/')));
    url.set_query(query);
    url
}

/// The hint about an admin token, and why the variable was not used if it was not.
fn hint(what: &str) -> String {
    let kept = format!("{what}; the server keeps it in `admin.json` in its data directory");
    credentials::withheld().map_or(kept.clone(), |why| format!("{kept}; {why}"))
}

/// A token that is not good enough is the admin token here, not a tenant's.
fn refused(error: client::Error) -> Failure {
    let failure = Failure::from(error);
    if failure.exit != Exit::Auth {
        return failure;
    }
    Failure::new(Exit::Auth, "the server does not accept the admin token").hint(hint("set SB_ADMIN_TOKEN"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_stand_below_the_server() {
        let at = |base: &str, path: &str| at(&parse_url(base).unwrap(), path).to_string();
        assert_eq!(at("http://h", "/v1/admin/tenants"), "http://h/v1/admin/tenants");
        assert_eq!(at("http://h/base/", "/v1/admin/audit?limit=1"), "http://h/base/v1/admin/audit?limit=1");
    }
}
