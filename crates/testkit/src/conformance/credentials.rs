//! Who may call, and how far: what a look at a token finds, tokens of administrators, and the number that every change raises.

use std::sync::Arc;

use super::world::*;
use store::{Change, Error, Filter, NewAdminToken, NewToken, Reach, Scope, Store, TaskId, TenantId, Token};

/// The token with a hash, as a caller is recognised by it.
pub(super) async fn recognised(store: &Arc<dyn Store>, hash: u8) -> Option<Token> {
    store.token(&[hash; 32]).await.unwrap().filter(|found| found.tenant.enabled).map(|found| found.token)
}

fn new(tenant: TenantId, hash: u8, reach: Reach) -> NewToken {
    NewToken { tenant, hash: [hash; 32], name: format!("token {hash}"), expires: None, reach }
}

pub(super) async fn one_look_finds_a_token_its_tenant_and_its_reach(store: Arc<dyn Store>) {
    let tenant = store.create_tenant("acme").await.unwrap();
    let all = store.add_token(new(tenant.id, 1, Reach::default())).await.unwrap();
    let reach =
        Reach { scopes: [Scope::Read, Scope::Cancel].into_iter().collect(), agents: vec![agent("a"), agent("b.c")] };
    let bound = store.add_token(new(tenant.id, 2, reach.clone())).await.unwrap();
    assert_eq!((&all.reach, &bound.reach), (&Reach::default(), &reach));
    for (hash, expected) in [(1, &all), (2, &bound)] {
        let found = store.token(&[hash; 32]).await.unwrap().unwrap();
        assert_eq!((&found.token, &found.tenant), (expected, &tenant));
    }
    assert_eq!(store.tokens(tenant.id).await.unwrap(), [all, bound]);
    let rotated = store.administer("admin", Change::Rotate(new(tenant.id, 3, reach.clone()))).await.unwrap();
    assert_eq!(rotated.token.unwrap().reach, reach);
    let told = store.audit(None, 2).await.unwrap().pop().unwrap().detail;
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["after"]["scopes"], serde_json::json!(["read", "cancel"]));
    assert_eq!(told["after"]["agents"], serde_json::json!(["a", "b.c"]));
}

pub(super) async fn of_many_tokens_those_that_live_are_told(store: Arc<dyn Store>) {
    let tenant = store.create_tenant("acme").await.unwrap().id;
    let other = store.create_tenant("other").await.unwrap().id;
    let mut ids = Vec::new();
    for (hash, tenant, expires) in
        [(1, tenant, None), (2, tenant, Some(past())), (3, tenant, Some(later(60_000))), (4, other, None)]
    {
        let token = NewToken { expires, ..new(tenant, hash, Reach::default()) };
        ids.push(store.add_token(token).await.unwrap().id);
    }
    let live = async || {
        let mut live = store.live_tokens(&[&ids[..], &[9999]].concat()).await.unwrap();
        live.sort_unstable();
        live
    };
    assert_eq!(live().await, [ids[0], ids[2], ids[3]]);
    store.administer("admin", Change::RevokeToken { tenant, token: ids[0] }).await.unwrap();
    assert_eq!(live().await, [ids[2], ids[3]]);
    store.administer("admin", Change::SetEnabled { tenant: other, enabled: false }).await.unwrap();
    assert_eq!(live().await, [ids[2]]);
    assert!(store.live_tokens(&[]).await.unwrap().is_empty());
}

pub(super) async fn every_change_of_who_may_call_raises_a_number(store: Arc<dyn Store>) {
    let mut last = store.credentials_revision().await.unwrap();
    let mut raised = async || {
        let now = store.credentials_revision().await.unwrap();
        let grown = now > last;
        last = now;
        grown
    };
    let tenant = store.create_tenant("acme").await.unwrap().id;
    assert!(raised().await);
    let id = store.add_token(new(tenant, 1, Reach::default())).await.unwrap().id;
    assert!(raised().await);
    store.touch_token(id).await.unwrap();
    store.ping().await.unwrap();
    assert!(!raised().await, "being used is no change");
    for change in [
        Change::SetEnabled { tenant, enabled: false },
        Change::SetEnabled { tenant, enabled: true },
        Change::RevokeToken { tenant, token: id },
        Change::Rotate(new(tenant, 2, Reach::default())),
    ] {
        store.administer("admin", change.clone()).await.unwrap();
        assert!(raised().await, "{change:?}");
    }
    store.administer("admin", Change::RevokeToken { tenant, token: id }).await.unwrap();
    assert!(!raised().await, "it was revoked before");
    store.set_setting("system", "admin.token", vec![1]).await.unwrap();
    assert!(raised().await);
    let admin = NewAdminToken { hash: [7; 32], name: "ops".into(), expires: None };
    let admin = store.add_admin_token("admin", admin).await.unwrap();
    assert!(raised().await);
    store.revoke_admin_token("admin", admin.id).await.unwrap();
    assert!(raised().await);
}

pub(super) async fn administrators_have_tokens_of_their_own(store: Arc<dyn Store>) {
    let new = |hash: u8, name: &str, expires| NewAdminToken { hash: [hash; 32], name: name.into(), expires };
    assert!(store.admin_tokens().await.unwrap().is_empty());
    let ops = store.add_admin_token("admin", new(1, "ops", None)).await.unwrap();
    let ended = store.add_admin_token("admin:ops", new(2, "ci", Some(past()))).await.unwrap();
    assert!(ops.is_live(later(0)) && !ended.is_live(later(0)));
    for taken in [new(1, "other", None), new(3, "ops", None)] {
        assert!(matches!(store.add_admin_token("admin", taken).await, Err(Error::Exists)));
    }
    let revoked = store.revoke_admin_token("admin:ops", ops.id).await.unwrap();
    assert!(revoked.revoked_at.is_some() && !revoked.is_live(later(0)));
    assert_eq!(store.revoke_admin_token("admin", ops.id).await.unwrap(), revoked, "once is enough");
    assert!(matches!(store.revoke_admin_token("admin", 9999).await, Err(Error::NotFound)));
    assert!(
        matches!(store.add_admin_token("admin", new(3, "ops", None)).await, Err(Error::Exists)),
        "a name stays taken"
    );
    assert_eq!(store.admin_tokens().await.unwrap(), [revoked, ended]);
    // Neither is a tenant's.
    assert_eq!(recognised(&store, 1).await, None);
    let told: Vec<_> = store.audit(None, 10).await.unwrap().into_iter().map(|it| (it.actor, it.action)).collect();
    let is = |actor: &str, action: &str| (actor.to_owned(), action.to_owned());
    let expected = [
        is("admin:ops", "revoke_admin_token"),
        is("admin:ops", "create_admin_token"),
        is("admin", "create_admin_token"),
    ];
    assert_eq!(told, expected);
}

pub(super) async fn lists_can_be_of_some_agents(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let first = world.waiting("one").await;
    tick().await;
    world.agent = agent("second");
    let second = world.waiting("two").await;
    tick().await;
    world.agent = agent("third");
    let third = world.waiting("three").await;
    let list = |filter: Filter| async {
        let page = world.store.list(world.tenant, filter).await.unwrap();
        let tasks: Vec<TaskId> = page.tasks.iter().map(|task| task.task).collect();
        assert_eq!(page.total, tasks.len() as u64, "the total is that of the filter");
        tasks
    };
    let among = |names: &[&str]| Filter { among: names.iter().map(|name| agent(name)).collect(), ..everything() };
    assert_eq!(list(among(&[])).await, [third, second, first]);
    assert_eq!(list(among(&["echo", "third"])).await, [third, first]);
    assert_eq!(list(among(&["nobody"])).await, []);
    assert_eq!(list(Filter { agent: Some(agent("second")), ..among(&["echo"]) }).await, []);
    let context = Some(CONTEXT.to_owned());
    assert_eq!(list(Filter { context, ..among(&["echo", "second"]) }).await, [second, first]);
    assert_eq!(list(Filter { since: Some(past()), ..among(&["second"]) }).await, [second]);
}
