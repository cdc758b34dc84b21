//! What belongs to the installation: settings, tenants, tokens, the audit log, readiness, and the end.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{credentials::recognised, world::*};
use store::{AgentId, Append, Change, Error, NewToken, Reach, Room, Store, TenantId, View};

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
    let new = |hash: u8, expires| NewToken {
        tenant,
        hash: [hash; 32],
        name: "laptop".into(),
        expires,
        reach: Reach::default(),
    };
    let token = store.add_token(new(1, None)).await.unwrap();
    assert_eq!((token.tenant, token.hash, token.name.as_str()), (tenant, [1; 32], "laptop"));
    assert_eq!(recognised(&store, 1).await, Some(token));
    assert!(matches!(store.add_token(new(1, None)).await, Err(Error::Exists)));
    store.add_token(new(2, Some(past()))).await.unwrap();
    assert_eq!(recognised(&store, 2).await, None);
    let live = store.add_token(new(3, Some(later(60_000)))).await.unwrap();
    assert_eq!(recognised(&store, 3).await, Some(live));
    assert_eq!(recognised(&store, 9).await, None);
    let nobody = NewToken { tenant: TenantId(tenant.0 + 1000), ..new(4, None) };
    assert!(matches!(store.add_token(nobody).await, Err(Error::NotFound)));
}

fn new_token(tenant: TenantId, hash: u8) -> NewToken {
    NewToken { tenant, hash: [hash; 32], name: format!("token {hash}"), expires: None, reach: Reach::default() }
}

async fn actions(store: &Arc<dyn Store>) -> Vec<String> {
    let entries = store.audit(None, 100).await.unwrap();
    entries.into_iter().map(|entry| format!("{} {}", entry.actor, entry.action)).collect()
}

pub(super) async fn settings_can_be_replaced(store: Arc<dyn Store>) {
    assert_eq!(store.find_setting("key").await.unwrap(), None);
    store.setting("key", vec![1]).await.unwrap();
    store.set_setting("admin", "key", vec![2]).await.unwrap();
    store.set_setting("admin", "other", vec![3]).await.unwrap();
    assert_eq!(store.find_setting("key").await.unwrap(), Some(vec![2]));
    assert_eq!(store.setting("other", vec![9]).await.unwrap(), [3]);
    let newest = store.audit(None, 1).await.unwrap().remove(0);
    assert_eq!((newest.actor.as_str(), newest.action.as_str()), ("admin", "set_setting"));
    assert!(newest.detail.contains("other"));
}

pub(super) async fn one_of_two_replaces_a_setting(store: Arc<dyn Store>) {
    assert!(!store.replace_setting("admin", "key", vec![0], vec![1]).await.unwrap(), "there is none");
    store.setting("key", vec![0]).await.unwrap();
    let calls: Vec<_> = (1..=10u8)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.replace_setting("admin", "key", vec![0], vec![n]).await.unwrap() })
        })
        .collect();
    let mut replaced = 0;
    for call in calls {
        replaced += usize::from(call.await.unwrap());
    }
    assert_eq!(replaced, 1);
    assert_ne!(store.find_setting("key").await.unwrap(), Some(vec![0]));
    assert_eq!(actions(&store).await, ["admin set_setting"], "what was not done is not in the log");
}

pub(super) async fn a_tenant_keeps_one_card_of_an_agent(store: Arc<dyn Store>) {
    let one = store.create_tenant("one").await.unwrap().id;
    let other = store.create_tenant("other").await.unwrap().id;
    let agent = |id: &str| id.parse::<AgentId>().unwrap();
    let put = async |tenant, id: &str, card: &str| store.put_card(tenant, &agent(id), card.into(), 2).await;
    assert!(put(one, "a", "first").await.unwrap().1);
    let (second, is_new) = put(one, "a", "second").await.unwrap();
    assert!(!is_new && second.card == b"second");
    assert_eq!(store.card(one, &agent("a")).await.unwrap().as_ref(), Some(&second));
    assert_eq!(store.cards(one, 6).await.unwrap(), [second]);
    assert!(matches!(store.cards(one, 5).await, Err(Error::Heavy { bytes: 6 })));
    // Another tenant has its own, and sees nobody else's.
    assert_eq!(store.card(other, &agent("a")).await.unwrap(), None);
    assert!(!store.remove_card(other, &agent("a")).await.unwrap());
    assert!(put(other, "a", "theirs").await.unwrap().1);
    assert_eq!(store.card(one, &agent("a")).await.unwrap().unwrap().card, b"second");
    // By agent, and not more than there may be; replacing is always possible.
    put(one, "B", "b").await.unwrap();
    let ids: Vec<_> =
        store.cards(one, u64::MAX).await.unwrap().into_iter().map(|card| card.agent.to_string()).collect();
    assert_eq!(ids, ["B", "a"]);
    assert!(matches!(put(one, "c", "c").await, Err(Error::TooManyCards { limit: 2 })));
    put(one, "a", "third").await.unwrap();
    assert!(store.remove_card(one, &agent("B")).await.unwrap() && !store.remove_card(one, &agent("B")).await.unwrap());
    put(one, "c", "c").await.unwrap();
    assert!(matches!(put(TenantId(other.0 + 1000), "a", "x").await, Err(Error::NotFound)));
}

pub(super) async fn a_tenant_defines_agents_of_its_own(store: Arc<dyn Store>) {
    let one = store.create_tenant("one").await.unwrap().id;
    let other = store.create_tenant("other").await.unwrap().id;
    let agent = |id: &str| id.parse::<AgentId>().unwrap();
    let create =
        async |tenant, id: &str, definition: &[u8]| store.create_agent(tenant, &agent(id), definition.into(), 2).await;
    // Whatever it is made of comes back byte for byte.
    let odd = b"{\"id\" : \"a\",\n \"x\":1.0, \"x\":\xff\x00}";
    let first = create(one, "a", odd).await.unwrap();
    assert_eq!((first.tenant, &first.id, first.definition.as_slice()), (one, &agent("a"), odd.as_slice()));
    assert_eq!(first.created_at, first.updated_at);
    assert_eq!(store.own_agents(one, u64::MAX).await.unwrap(), std::slice::from_ref(&first));
    let bytes = odd.len() as u64;
    assert!(matches!(store.own_agents(one, bytes - 1).await, Err(Error::Heavy { bytes: all }) if all == bytes));
    assert_eq!(store.own_agents(one, bytes).await.unwrap(), std::slice::from_ref(&first));
    assert_eq!(store.own_agent(one, &agent("a")).await.unwrap().as_ref(), Some(&first));
    assert_eq!(store.own_agent(other, &agent("a")).await.unwrap(), None);
    assert!(matches!(create(one, "a", b"again").await, Err(Error::Exists)));
    // Its time grows with every change, however fast they come.
    let mut last = first.updated_at;
    for n in 0..5_u8 {
        let changed = store.replace_agent(one, &agent("a"), vec![n]).await.unwrap();
        assert!(changed.updated_at > last && changed.created_at == first.created_at && changed.definition == [n]);
        last = changed.updated_at;
    }
    // Another tenant has its own, and sees nobody else's.
    assert_eq!(store.own_agents(other, u64::MAX).await.unwrap(), []);
    assert!(matches!(store.replace_agent(other, &agent("a"), vec![]).await, Err(Error::NotFound)));
    assert!(!store.remove_agent(other, &agent("a")).await.unwrap());
    let theirs = create(other, "a", b"theirs").await.unwrap();
    assert_eq!(store.own_agents(one, u64::MAX).await.unwrap()[0].definition, [4]);
    // By id, and not more than there may be; replacing is always possible.
    create(one, "B", b"b").await.unwrap();
    let ids: Vec<_> =
        store.own_agents(one, u64::MAX).await.unwrap().into_iter().map(|agent| agent.id.to_string()).collect();
    assert_eq!(ids, ["B", "a"]);
    assert!(matches!(create(one, "c", b"c").await, Err(Error::TooManyAgents { limit: 2 })));
    assert!(matches!(create(one, "a", b"a").await, Err(Error::Exists)));
    store.replace_agent(one, &agent("a"), b"third".to_vec()).await.unwrap();
    assert!(store.remove_agent(one, &agent("B")).await.unwrap());
    assert!(!store.remove_agent(one, &agent("B")).await.unwrap());
    create(one, "c", b"c").await.unwrap();
    assert!(matches!(create(TenantId(other.0 + 1000), "a", b"x").await, Err(Error::NotFound)));
    let (_, all) = store.all_agents().await.unwrap();
    let all: Vec<_> = all.iter().map(|agent| (agent.tenant, agent.id.as_str())).collect();
    assert_eq!(all, [(one, "a"), (one, "c"), (other, "a")]);
    assert_eq!(store.own_agents(other, u64::MAX).await.unwrap(), [theirs]);
}

pub(super) async fn every_change_of_an_agent_raises_the_revision(store: Arc<dyn Store>) {
    let tenant = store.create_tenant("one").await.unwrap().id;
    let agent: AgentId = "a".parse().unwrap();
    let (first, none) = store.all_agents().await.unwrap();
    assert_eq!((store.agents_revision().await.unwrap(), none), (first, vec![]));
    store.create_agent(tenant, &agent, vec![1], 9).await.unwrap();
    assert_eq!(store.agents_revision().await.unwrap(), first + 1);
    store.replace_agent(tenant, &agent, vec![2]).await.unwrap();
    let (revision, all) = store.all_agents().await.unwrap();
    assert_eq!((revision, all.len(), all[0].definition.as_slice()), (first + 2, 1, [2].as_slice()));
    // What changes nothing is no change.
    store.create_agent(tenant, &agent, vec![3], 9).await.unwrap_err();
    store.replace_agent(tenant, &"b".parse().unwrap(), vec![3]).await.unwrap_err();
    assert!(!store.remove_agent(tenant, &"b".parse().unwrap()).await.unwrap());
    assert_eq!(store.agents_revision().await.unwrap(), first + 2);
    assert!(store.remove_agent(tenant, &agent).await.unwrap());
    assert_eq!(store.all_agents().await.unwrap(), (first + 3, vec![]));
    // Many at once are none too few, and of those with one id one is first.
    let calls: Vec<_> = (0..8_u8)
        .map(|n| {
            let (store, agent) = (Arc::clone(&store), agent.clone());
            tokio::spawn(async move { store.create_agent(tenant, &agent, vec![n], 9).await.is_ok() })
        })
        .collect();
    let mut created = 0;
    for call in calls {
        created += usize::from(call.await.unwrap());
    }
    assert_eq!((created, store.agents_revision().await.unwrap()), (1, first + 4));
}

pub(super) async fn a_disabled_tenant_has_no_live_token(store: Arc<dyn Store>) {
    let create = Change::CreateTenant { name: "acme".into(), hash: Some([1; 32]) };
    let created = store.administer("admin", create.clone()).await.unwrap();
    assert!(created.tenant.enabled && created.token.is_some());
    assert_eq!(recognised(&store, 1).await, created.token);
    let set = |enabled| Change::SetEnabled { tenant: created.tenant.id, enabled };
    assert!(!store.administer("admin", set(false)).await.unwrap().tenant.enabled);
    assert_eq!(recognised(&store, 1).await, None);
    let found = store.token(&[1; 32]).await.unwrap().unwrap();
    assert!(!found.tenant.enabled && Some(found.token) == created.token, "whoever has it can be told why");
    assert!(!store.tenants().await.unwrap()[0].enabled);
    assert!(store.administer("admin", set(true)).await.unwrap().tenant.enabled);
    assert_eq!(recognised(&store, 1).await, created.token);
    assert!(matches!(store.administer("admin", create).await, Err(Error::Exists)));
}

pub(super) async fn a_revoked_token_is_gone_for_good(store: Arc<dyn Store>) {
    let tenant = store.create_tenant("acme").await.unwrap().id;
    let other = store.create_tenant("other").await.unwrap().id;
    let one = store.add_token(new_token(tenant, 1)).await.unwrap();
    let two = store.administer("admin", Change::AddToken(new_token(tenant, 2))).await.unwrap().token.unwrap();
    let revoke = |tenant, token| store.administer("admin", Change::RevokeToken { tenant, token });
    let revoked = revoke(tenant, one.id).await.unwrap().token.unwrap();
    assert!(revoked.revoked_at.is_some() && !revoked.is_live(later(0)));
    assert_eq!(recognised(&store, 1).await, None);
    assert_eq!(recognised(&store, 2).await, Some(two.clone()));
    // Once more changes nothing, and another tenant's token does not exist.
    assert_eq!(revoke(tenant, one.id).await.unwrap().token.unwrap(), revoked);
    assert!(matches!(revoke(other, two.id).await, Err(Error::NotFound)));
    assert!(matches!(revoke(tenant, 9999).await, Err(Error::NotFound)));
    assert_eq!(store.tokens(tenant).await.unwrap(), [revoked, two]);
    assert!(store.tokens(other).await.unwrap().is_empty());
    assert!(matches!(store.add_token(new_token(tenant, 1)).await, Err(Error::Exists)), "its hash stays taken");
}

pub(super) async fn rotation_leaves_one_live_token(store: Arc<dyn Store>) {
    let tenant = store.create_tenant("acme").await.unwrap().id;
    let other = store.create_tenant("other").await.unwrap().id;
    store.add_token(new_token(other, 9)).await.unwrap();
    for hash in [1, 2] {
        store.add_token(new_token(tenant, hash)).await.unwrap();
    }
    let rotated = store.administer("admin", Change::Rotate(new_token(tenant, 3))).await.unwrap();
    assert_eq!(recognised(&store, 3).await, rotated.token);
    for hash in [1, 2] {
        assert_eq!(recognised(&store, hash).await, None);
    }
    assert!(recognised(&store, 9).await.is_some(), "another tenant's token lives on");
    // A refused rotation ends nothing.
    assert!(matches!(store.administer("admin", Change::Rotate(new_token(tenant, 9))).await, Err(Error::Exists)));
    assert_eq!(recognised(&store, 3).await, rotated.token);
}

pub(super) async fn a_refused_change_is_not_audited(store: Arc<dyn Store>) {
    let tenant = store.create_tenant("acme").await.unwrap().id;
    store.add_token(new_token(tenant, 1)).await.unwrap();
    let before = actions(&store).await;
    let nobody = TenantId(tenant.0 + 1000);
    for change in [
        Change::CreateTenant { name: "acme".into(), hash: Some([5; 32]) },
        Change::CreateTenant { name: "new".into(), hash: Some([1; 32]) },
        Change::SetEnabled { tenant: nobody, enabled: false },
        Change::AddToken(new_token(nobody, 5)),
        Change::AddToken(new_token(tenant, 1)),
        Change::RevokeToken { tenant: nobody, token: 1 },
        Change::Rotate(new_token(nobody, 5)),
    ] {
        assert!(store.administer("admin", change.clone()).await.is_err(), "{change:?}");
    }
    // What is so already is no change.
    store.administer("admin", Change::SetEnabled { tenant, enabled: true }).await.unwrap();
    assert_eq!(actions(&store).await, before);
    assert_eq!(store.tenants().await.unwrap().len(), 1);
}

pub(super) async fn every_change_is_audited(store: Arc<dyn Store>) {
    let create = Change::CreateTenant { name: "acme".into(), hash: Some([1; 32]) };
    let tenant = store.administer("admin", create).await.unwrap().tenant.id;
    let token = store.administer("local", Change::AddToken(new_token(tenant, 2))).await.unwrap().token.unwrap();
    store.administer("admin", Change::SetEnabled { tenant, enabled: false }).await.unwrap();
    store.administer("admin", Change::RevokeToken { tenant, token: token.id }).await.unwrap();
    store.administer("admin", Change::Rotate(new_token(tenant, 3))).await.unwrap();
    store.create_tenant("other").await.unwrap();
    let expected = [
        "system create_tenant",
        "admin rotate_tenant_token",
        "admin revoke_token",
        "admin update_tenant",
        "local create_token",
        "admin create_tenant",
    ];
    assert_eq!(actions(&store).await, expected);
    let first = store.audit(None, 2).await.unwrap();
    let rest = store.audit(Some(first[1].id), 100).await.unwrap();
    assert_eq!((first.len(), rest.len()), (2, 4));
    assert!(first[1].id > rest[0].id);
    for entry in first.iter().chain(&rest) {
        let detail: serde_json::Value = serde_json::from_str(&entry.detail).unwrap();
        assert!(detail["target_kind"].is_string() && detail.get("after").is_some(), "{detail}");
    }
}

pub(super) async fn a_token_remembers_when_it_was_used(store: Arc<dyn Store>) {
    let tenant = store.create_tenant("acme").await.unwrap().id;
    let token = store.add_token(new_token(tenant, 1)).await.unwrap();
    assert_eq!(token.used_at, None);
    store.touch_token(token.id).await.unwrap();
    store.touch_token(9999).await.unwrap();
    let used = recognised(&store, 1).await.unwrap().used_at;
    assert!(used.is_some_and(|at| at >= token.created_at));
}

pub(super) async fn writing_can_be_proven(store: Arc<dyn Store>) {
    store.ping().await.unwrap();
    let once = store.stats().commits;
    for _ in 0..10 {
        store.ping().await.unwrap();
    }
    assert!(store.stats().commits <= once + 1, "a young commit is proof enough");
}

pub(super) async fn a_closed_store_takes_no_more(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    let world = Arc::new(world);
    let mut callers = Vec::new();
    for _ in 0..64 {
        let world = Arc::clone(&world);
        callers.push(tokio::spawn(async move {
            // It does not know that the end has come until it is told.
            loop {
                match world.accept(world.begin("hello").1).await {
                    Ok(_) => {}
                    Err(error) => return error,
                }
            }
        }));
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    timeout(Duration::from_secs(5), world.store.close()).await.expect("it ends, whoever goes on calling");
    for caller in callers {
        let told = caller.await.unwrap();
        assert!(matches!(told, Error::Unavailable(_)), "{told:?}");
    }
    timeout(Duration::from_secs(1), world.store.close()).await.expect("once is enough");

    let (store, tenant, agents) = (&world.store, world.tenant, std::slice::from_ref(&world.agent));
    macro_rules! refused {
        ($($call:expr),* $(,)?) => {
            $({
                let outcome = timeout(Duration::from_secs(1), $call).await.expect(stringify!($call));
                assert!(matches!(outcome, Err(Error::Unavailable(_))), "{}: {outcome:?}", stringify!($call));
            })*
        };
    }
    refused!(
        store.accept(tenant, world.begin("late").1),
        store.append(&lease, Append::default()),
        store.claim(world.claim(vec![Room::new(world.agent.clone(), 1)])),
        store.renew(std::slice::from_ref(&lease), MINUTE),
        store.next_due(agents),
        store.marked(&[world.me()]),
        store.mark_cancel(tenant, task),
        store.reveal(tenant, task),
        store.reclaim_dead(),
        store.head(tenant, task),
        store.task(tenant, task, View::FULL),
        store.list(tenant, everything()),
        store.events(tenant, task, 0, 10),
        store.usage(tenant),
        store.create_tenant("late"),
        store.tenants(),
        store.set_setting("test", "late", vec![1]),
        store.ping(),
    );
}
