//! The first start: the tenant `default` and one token for it, so that there is something to call with.
//!
//! The token is written to the data directory before the store hears of its hash. A start that is
//! interrupted anywhere in between is finished by the next one.

use std::path::Path;

use exchange::admin::{TOKEN_PREFIX, hash, mint};
use store::{NewToken, Reach, Store, TenantId};

use crate::{
    failure::{Exit, Failure},
    local::{Local, PrivateFile},
};

/// The tenant that exists from the start.
const TENANT: &str = "default";

/// The setting that holds the hash of the first token: whose hash it is may add its token.
const CLAIM: &str = "bootstrap.token";

/// The shortest token that is accepted from outside.
const MIN_TOKEN: usize = 16;

/// What the first steps left.
pub(crate) struct Bootstrap {
    /// For the local command line.
    pub(crate) local: Local,
    /// The token, when it was made just now and has to be shown.
    pub(crate) fresh: Option<String>,
}

/// Makes sure that there is a tenant and a token. `given` is SB_BOOTSTRAP_TOKEN.
pub(crate) async fn bootstrap(
    store: &dyn Store,
    directory: &Path,
    given: Option<String>,
) -> Result<Bootstrap, Failure> {
    let tenant = default_tenant(store).await?;
    match given {
        Some(token) => with_given(store, directory, tenant, token).await,
        None => with_own(store, directory, tenant).await,
    }
}

async fn with_given(
    store: &dyn Store,
    directory: &Path,
    tenant: TenantId,
    token: String,
) -> Result<Bootstrap, Failure> {
    check_given("SB_BOOTSTRAP_TOKEN", &token)?;
    let hash = hash(&token);
    // With the claim taken no later start makes a token of its own beside this one.
    store.setting(CLAIM, hash.to_vec()).await.map_err(store_failure)?;
    let known = async || store.token(&hash).await.map_err(store_failure).map(|token| token.is_some());
    // Another instance may add it between the look and the attempt.
    if !known().await? && !add(store, tenant, hash).await? && !known().await? {
        return Err(Failure::new(Exit::Failed, "SB_BOOTSTRAP_TOKEN is a token that was revoked")
            .hint("set another one, or unset it"));
    }
    // It stays with whoever gave it. An older file may hold it still.
    let mut local = Local::load(directory)?;
    local.token.take_if(|written| *written == token);
    Ok(Bootstrap { local, fresh: None })
}

async fn with_own(store: &dyn Store, directory: &Path, tenant: TenantId) -> Result<Bootstrap, Failure> {
    let mut local = Local::load(directory)?;
    let kept = local.token.is_some();
    if !kept {
        let candidate = Local { token: Some(mint(TOKEN_PREFIX)?), ..local.clone() };
        local = if local.url.is_some() {
            // The file is there without a token: an earlier start found that the claim is another's.
            candidate
        } else {
            candidate.create(directory)?
        };
    }
    let Some(token) = local.token.clone() else {
        return Ok(Bootstrap { local, fresh: None });
    };
    let hash = hash(&token);
    let claim = store.setting(CLAIM, hash.to_vec()).await.map_err(store_failure)?;
    if claim == hash {
        let fresh = add(store, tenant, hash).await?;
        return Ok(Bootstrap { local, fresh: fresh.then_some(token) });
    }
    if !kept {
        // Somebody else's token was first, and this one opens nothing.
        local.token = None;
        tracing::warn!("the first token was made elsewhere or its file is gone; SB_BOOTSTRAP_TOKEN adds one");
    }
    Ok(Bootstrap { local, fresh: None })
}

async fn default_tenant(store: &dyn Store) -> Result<TenantId, Failure> {
    // Twice, since another instance may create it between the look and the attempt.
    for _ in 0..2 {
        let tenants = store.tenants().await.map_err(store_failure)?;
        if let Some(tenant) = tenants.into_iter().find(|tenant| tenant.name == TENANT) {
            return Ok(tenant.id);
        }
        match store.create_tenant(TENANT).await {
            Ok(tenant) => return Ok(tenant.id),
            Err(store::Error::Exists) => {}
            Err(error) => return Err(store_failure(error)),
        }
    }
    Err(Failure::failed("the tenant `default` comes and goes"))
}

/// Adds a token; `false` when its hash is known already, be it revoked.
async fn add(store: &dyn Store, tenant: TenantId, hash: [u8; 32]) -> Result<bool, Failure> {
    let token = NewToken { tenant, hash, name: "bootstrap".to_owned(), expires: None, reach: Reach::default() };
    match store.add_token(token).await {
        Ok(_) => Ok(true),
        Err(store::Error::Exists) => Ok(false),
        Err(error) => Err(store_failure(error)),
    }
}

/// Refuses what is too easy to guess, or cannot stand in a header. `variable` is where it comes from.
pub(crate) fn check_given(variable: &str, token: &str) -> Result<(), Failure> {
    let usable = token.len() >= MIN_TOKEN && token.bytes().all(|byte| byte.is_ascii_graphic());
    if usable {
        return Ok(());
    }
    Err(Failure::usage(format!("{variable} cannot be a token"))
        .because(format!("a token has at least {MIN_TOKEN} characters, all of them visible ASCII")))
}

fn store_failure(error: store::Error) -> Failure {
    Failure::failed("cannot set up the first tenant and token").caused_by(&error)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    async fn start(store: &Arc<dyn Store>, directory: &Path, given: Option<&str>) -> Bootstrap {
        let started = bootstrap(store.as_ref(), directory, given.map(str::to_owned)).await;
        let started = started.unwrap_or_else(|failure| panic!("{failure:?}"));
        started.local.save(directory).unwrap();
        started
    }

    fn open(directory: &Path) -> Arc<dyn Store> {
        store::sqlite::open(directory, store::sqlite::Options::default()).unwrap()
    }

    #[tokio::test]
    async fn instances_that_start_at_once_share_a_given_token() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path());
        let homes: Vec<_> = (0..8).map(|_| tempfile::tempdir().unwrap()).collect();
        let starts = homes.iter().map(|home| start(&store, home.path(), Some("a-token-for-all-of-them")));
        for begun in futures_util::future::join_all(starts).await {
            assert_eq!(begun.local.token, None, "what is given is not written");
        }
        assert_eq!(store.tokens(store.tenants().await.unwrap()[0].id).await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn the_token_is_fresh_once() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path());
        let first = start(&store, directory.path(), None).await;
        let token = first.fresh.unwrap();
        assert!(store.token(&hash(&token)).await.unwrap().is_some());
        let second = start(&store, directory.path(), None).await;
        assert!(second.fresh.is_none());
        assert_eq!(second.local.token, Some(token));
    }

    #[tokio::test]
    async fn an_interrupted_first_start_is_finished() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path());
        // The file was written, the claim made, and then the power went.
        let token = mint(TOKEN_PREFIX).unwrap();
        Local { token: Some(token.clone()), ..Local::default() }.create(directory.path()).ok().unwrap();
        store.setting(CLAIM, hash(&token).to_vec()).await.unwrap();
        assert_eq!(start(&store, directory.path(), None).await.fresh, Some(token));
    }

    #[tokio::test]
    async fn a_lost_file_makes_no_second_token() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path());
        start(&store, directory.path(), None).await;
        std::fs::remove_file(directory.path().join("cli.json")).unwrap();
        for _ in 0..2 {
            let again = start(&store, directory.path(), None).await;
            assert!(again.fresh.is_none() && again.local.token.is_none());
        }
    }

    #[tokio::test]
    async fn a_given_token_is_used_and_not_shown() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path());
        let given = "a-token-from-outside";
        for _ in 0..2 {
            let started = start(&store, directory.path(), Some(given)).await;
            assert!(started.fresh.is_none());
            assert_eq!(started.local.token, None, "what is given is not written");
        }
        assert!(store.token(&hash(given)).await.unwrap().is_some());
        let later = start(&store, directory.path(), None).await;
        assert!(later.fresh.is_none());
        for bad in ["short", "a token with spaces in it", "ein-tökenchen-von-draußen"] {
            assert!(bootstrap(store.as_ref(), directory.path(), Some(bad.to_owned())).await.is_err());
        }
    }
}
