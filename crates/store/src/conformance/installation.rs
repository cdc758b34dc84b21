//! What belongs to the installation: settings, tenants, tokens, readiness.

use std::{collections::HashSet, sync::Arc};

use super::world::*;
use crate::{Error, NewToken, Store, TenantId};

pub(super) async fn one_value_of_a_setting_wins(store: Arc<dyn Store>) {
    let calls: Vec<_> = (0..10u8)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.setting("key", vec![n; 4]).await.unwrap() })
        })
        .collect();
    let mut values = HashSet::new();
    for call in calls {
        values.insert(call.await.unwrap());
    }
    assert_eq!(values.len(), 1);
    assert!(values.contains(&store.setting("key", vec![99]).await.unwrap()));
    assert_eq!(store.setting("other", vec![99]).await.unwrap(), [99]);
}

pub(super) async fn tenants_have_names_of_their_own(store: Arc<dyn Store>) {
    assert!(store.tenants().await.unwrap().is_empty());
    let beta = store.create_tenant("beta").await.unwrap();
    let alpha = store.create_tenant("alpha").await.unwrap();
    assert_ne!(alpha.id, beta.id);
    assert!(alpha.enabled);
    assert!(matches!(store.create_tenant("beta").await, Err(Error::Exists)));
    assert_eq!(store.tenants().await.unwrap(), [alpha, beta]);
}

pub(super) async fn tokens_live_until_they_expire(store: Arc<dyn Store>) {
    let tenant = store.create_tenant("first").await.unwrap().id;
    let new = |hash: u8, expires| NewToken { tenant, hash: [hash; 32], name: "laptop".into(), expires };
    let token = store.add_token(new(1, None)).await.unwrap();
    assert_eq!((token.tenant, token.hash, token.name.as_str()), (tenant, [1; 32], "laptop"));
    assert_eq!(store.token(&[1; 32]).await.unwrap(), Some(token));
    assert!(matches!(store.add_token(new(1, None)).await, Err(Error::Exists)));
    store.add_token(new(2, Some(past()))).await.unwrap();
    assert_eq!(store.token(&[2; 32]).await.unwrap(), None);
    let live = store.add_token(new(3, Some(later(60_000)))).await.unwrap();
    assert_eq!(store.token(&[3; 32]).await.unwrap(), Some(live));
    assert_eq!(store.token(&[9; 32]).await.unwrap(), None);
    let nobody = NewToken { tenant: TenantId(tenant.0 + 1000), ..new(4, None) };
    assert!(matches!(store.add_token(nobody).await, Err(Error::NotFound)));
}

pub(super) async fn writing_can_be_proven(store: Arc<dyn Store>) {
    store.ping().await.unwrap();
    let once = store.stats().commits;
    for _ in 0..10 {
        store.ping().await.unwrap();
    }
    assert!(store.stats().commits <= once + 1, "a young commit is proof enough");
}
