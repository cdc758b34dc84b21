//! The admin token: made on the first start, kept as a hash in the store and in the clear only in `admin.json`. One that is given
//! stays with whoever gave it: nothing writes it down.
//!
//! The file is written before the store hears of the hash, so that a start that is interrupted in between is
//! finished by the next one.

use std::path::Path;

use exchange::admin::{ADMIN_PREFIX, ADMIN_TOKEN, hash, mint};
use store::Store;

use crate::{
    bootstrap::check_given,
    failure::Failure,
    local::{AdminFile, PrivateFile},
};

/// Who sets the token when a server is started with one.
const ACTOR: &str = "system";

/// Makes sure that there is an admin token. `given` is SB_ADMIN_TOKEN, which takes the place of any other.
pub(crate) async fn ensure(store: &dyn Store, directory: &Path, given: Option<String>) -> Result<(), Failure> {
    if let Some(token) = given {
        check_given("SB_ADMIN_TOKEN", &token)?;
        let hash = hash(&token);
        if store.find_setting(ADMIN_TOKEN).await.map_err(failure)?.as_deref() != Some(&hash) {
            store.set_setting(ACTOR, ADMIN_TOKEN, hash.to_vec()).await.map_err(failure)?;
        }
        // Whatever another start has written there opens nothing any more, or is not ours to keep.
        return AdminFile::remove(directory);
    }
    let known = AdminFile::load(directory)?;
    let fresh = known.token.is_none();
    let file = if fresh {
        if store.find_setting(ADMIN_TOKEN).await.map_err(failure)?.is_some() {
            tracing::warn!("the admin token was made elsewhere or its file is gone; SB_ADMIN_TOKEN sets a new one");
            return Ok(());
        }
        AdminFile { token: Some(mint(ADMIN_PREFIX)?) }.create(directory)?
    } else {
        known
    };
    let Some(token) = file.token else {
        return Ok(());
    };
    let hash = hash(&token);
    let installed = store.setting(ADMIN_TOKEN, hash.to_vec()).await.map_err(failure)?;
    if installed != hash {
        tracing::warn!("`admin.json` holds a token that was replaced; SB_ADMIN_TOKEN sets a new one");
    }
    Ok(())
}

fn failure(error: store::Error) -> Failure {
    Failure::failed("cannot set up the admin token").caused_by(&error)
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt, sync::Arc};

    use store::sqlite;

    use super::*;

    fn open(directory: &Path) -> Arc<dyn Store> {
        sqlite::open(directory, sqlite::Options::default()).unwrap()
    }

    async fn installed(store: &dyn Store) -> Vec<u8> {
        store.find_setting(ADMIN_TOKEN).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn the_first_start_makes_a_token_and_later_ones_keep_it() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path());
        ensure(store.as_ref(), directory.path(), None).await.unwrap();
        let token = AdminFile::load(directory.path()).unwrap().token.unwrap();
        assert!(token.starts_with("sba_"));
        assert_eq!(installed(&*store).await, hash(&token));
        let mode = std::fs::metadata(directory.path().join("admin.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        ensure(store.as_ref(), directory.path(), None).await.unwrap();
        assert_eq!(AdminFile::load(directory.path()).unwrap().token.unwrap(), token);
    }

    #[tokio::test]
    async fn a_given_token_replaces_any_other() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path());
        ensure(store.as_ref(), directory.path(), None).await.unwrap();
        for _ in 0..2 {
            ensure(store.as_ref(), directory.path(), Some("an-admin-token-of-mine".to_owned())).await.unwrap();
        }
        assert_eq!(installed(&*store).await, hash("an-admin-token-of-mine"));
        assert_eq!(store.audit(None, 10).await.unwrap().len(), 1, "setting what is set is no change");
        ensure(store.as_ref(), directory.path(), None).await.unwrap();
        assert_eq!(installed(&*store).await, hash("an-admin-token-of-mine"));
        assert!(AdminFile::load(directory.path()).unwrap().token.is_none(), "what is given is not written");
        assert!(ensure(store.as_ref(), directory.path(), Some("short".to_owned())).await.is_err());
    }

    #[tokio::test]
    async fn a_lost_file_makes_no_second_token() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path());
        ensure(store.as_ref(), directory.path(), None).await.unwrap();
        let before = installed(&*store).await;
        std::fs::remove_file(directory.path().join("admin.json")).unwrap();
        ensure(store.as_ref(), directory.path(), None).await.unwrap();
        assert_eq!(installed(&*store).await, before);
        assert!(AdminFile::load(directory.path()).unwrap().token.is_none());
    }
}
