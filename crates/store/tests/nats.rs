//! Wake-ups by NATS, against a real server, and against one that talks nonsense.
//!
//! Two stores with journals of their own pretend to be one installation: whatever one hears of the other came by NATS.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use nkeys::KeyPair;
use store::{Accept, Draft, Quota, Recent, Store, Target, TaskId, TenantId, Wake, clock, postgres, sqlite, wake};
use tempfile::TempDir;
use testkit::{certificates::certify, nats::Nats, postgres::Database};
use tokio::{io::AsyncWriteExt, time::timeout};

const PATIENCE: Duration = Duration::from_secs(20);

/// An instance of the installation `name`.
struct Instance {
    store: Arc<dyn Store>,
    tenant: TenantId,
    _dir: Option<TempDir>,
}

impl Instance {
    async fn start(name: &str, url: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = sqlite::open(dir.path(), sqlite::Options::default()).unwrap();
        store.set_setting("test", "installation", name.as_bytes().to_vec()).await.unwrap();
        let tenant = store.create_tenant("default").await.unwrap().id;
        let wake: Wake = url.parse().unwrap();
        wake::join(store.as_ref(), &wake).await.unwrap();
        Self { store, tenant, _dir: Some(dir) }
    }

    /// Commits a new task, whose log ends at 1.
    async fn write(&self, task: TaskId) {
        let at = clock::now();
        let accept = Accept {
            target: Target::New {
                task,
                agent: "echo".parse().unwrap(),
                context: "ctx".into(),
                created: "{}".into(),
                hold: false,
                remembers: true,
                post: store::Post::default(),
                origin: None,
                tells_cancel: false,
            },
            message_id: task.to_string(),
            message: "{}".into(),
            idempotency: None,
            lease: None,
            working: Draft::status(task, "ctx", a2a::TaskState::Working, None, None, at).unwrap(),
            push: None,
            quota: Quota::default(),
            parent: None,
            request: None,
            at,
        };
        assert_eq!(self.store.accept(self.tenant, accept).await.unwrap().seq, 1);
    }

    /// Whether it hears, within `patience`, that a task which `other` writes has grown, and that work is due.
    async fn hears(&self, other: &Self, patience: Duration) -> bool {
        let task = TaskId::mint();
        let mut watch = self.store.hub().watch(task);
        let mut due = self.store.hub().due();
        other.write(task).await;
        timeout(patience, async {
            watch.changed().await;
            due.changed().await.unwrap();
        })
        .await
        .is_ok()
            && matches!(watch.recent(0), Recent::Behind)
    }

    /// Waits until it hears the other: both are connected then. What is told before is lost, and may be.
    async fn will_hear(&self, other: &Self) {
        let since = Instant::now();
        while !self.hears(other, Duration::from_millis(300)).await {
            assert!(since.elapsed() < PATIENCE, "nothing is heard");
        }
    }
}

async fn pair(url: &str) -> (Instance, Instance) {
    let pair = (Instance::start("one", url).await, Instance::start("one", url).await);
    pair.0.will_hear(&pair.1).await;
    pair.1.will_hear(&pair.0).await;
    // Both have greeted; what that made them look at is past.
    tokio::time::sleep(Duration::from_millis(100)).await;
    pair
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_hear_each_other() {
    let server = Nats::start(&[]);
    let url = server.url();
    let (a, b) = pair(&url).await;
    let stranger = Instance::start("two", &url).await;
    for _ in 0..20 {
        assert!(a.hears(&b, PATIENCE).await);
        assert!(b.hears(&a, PATIENCE).await);
    }
    // Only what is watched is heard of, only once, and only in the same installation.
    let (watched, other) = (TaskId::mint(), TaskId::mint());
    let mut watch = a.store.hub().watch(watched);
    let foreign = stranger.store.hub().watch(watched);
    b.write(other).await;
    b.write(watched).await;
    timeout(PATIENCE, watch.changed()).await.unwrap();
    assert!(matches!(watch.recent(0), Recent::Behind));
    assert!(matches!(watch.recent(0), Recent::Events(events) if events.is_empty()));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!watch.has_changed() && !foreign.has_changed());
}

/// On PostgreSQL NATS takes the place of NOTIFY, and the database names the installation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_on_one_database_hear_each_other() {
    let server = Nats::start(&[]);
    let database = Database::create();
    let mut instances = Vec::new();
    for _ in 0..2 {
        let wake: Wake = server.url().parse().unwrap();
        let options = postgres::Options { wake: wake.clone(), ..postgres::Options::default() };
        let store: Arc<dyn Store> = postgres::open(&database.url().parse().unwrap(), options).await.unwrap();
        wake::join(store.as_ref(), &wake).await.unwrap();
        let tenant = match store.tenants().await.unwrap().first() {
            Some(tenant) => tenant.id,
            None => store.create_tenant("default").await.unwrap().id,
        };
        instances.push(Instance { store, tenant, _dir: None });
    }
    let (a, b) = (&instances[0], &instances[1]);
    a.will_hear(b).await;
    b.will_hear(a).await;
    for _ in 0..20 {
        assert!(a.hears(b, PATIENCE).await);
        assert!(b.hears(a, PATIENCE).await);
    }
    // Without NATS nobody says anything: it was not NOTIFY.
    drop(server);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!a.hears(b, Duration::from_millis(300)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_back_makes_everyone_look() {
    let mut server = Nats::start(&[]);
    let (a, b) = pair(&server.url()).await;
    for _ in 0..2 {
        server.kill9();
        let task = TaskId::mint();
        let mut watch = a.store.hub().watch(task);
        // Far more than the queue holds: nobody waits for a server that is gone.
        let since = Instant::now();
        for _ in 0..1100 {
            b.write(TaskId::mint()).await;
        }
        b.write(task).await;
        assert!(since.elapsed() < PATIENCE);
        assert!(timeout(Duration::from_millis(300), watch.changed()).await.is_err(), "heard from nowhere");
        server.start_again();
        timeout(PATIENCE, watch.changed()).await.unwrap();
        assert!(matches!(watch.recent(0), Recent::Behind), "what was missed is looked for");
        a.will_hear(&b).await;
        b.will_hear(&a).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_may_ask_who_is_there() {
    let named = Nats::start(&["--user", "me", "--pass", "p:ss w@rd"]);
    let port = named.port();
    let (a, b) = pair(&format!("nats://me:p%3ass%20w%40rd@127.0.0.1:{port}")).await;
    assert!(a.hears(&b, PATIENCE).await);
    for url in [format!("nats://me:wrong@127.0.0.1:{port}"), format!("nats://127.0.0.1:{port}")] {
        let refused = Instance::start("one", &url).await;
        assert!(!refused.hears(&a, Duration::from_secs(1)).await, "{url}");
        assert!(!a.hears(&refused, Duration::from_millis(300)).await, "{url}");
    }

    let token = Nats::start(&["--auth", "s3cret"]);
    let (a, b) = pair(&format!("nats://s3cret@127.0.0.1:{}", token.port())).await;
    assert!(b.hears(&a, PATIENCE).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_may_ask_for_a_key() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| {
        let file = dir.path().join(name).to_string_lossy().into_owned();
        std::fs::write(&file, text).unwrap();
        file
    };
    let (user, stranger) = (KeyPair::new_user(), KeyPair::new_user());
    let known = write("known", format!("{}\n", user.seed().unwrap()));
    let unknown = write("unknown", stranger.seed().unwrap());
    let users = format!("authorization {{ users: [ {{ nkey: {} }} ] }}", user.public_key());
    let server = Nats::start(&["-c", &write("keys.conf", users)]);
    let (a, b) = pair(&format!("{}?nkey={known}", server.url())).await;
    assert!(a.hears(&b, PATIENCE).await);
    let refused = Instance::start("one", &format!("{}?nkey={unknown}", server.url())).await;
    assert!(!refused.hears(&a, Duration::from_secs(1)).await);

    // The same key with a claim that an account has signed, which an operator has signed.
    let (operator, account) = (KeyPair::new_operator(), KeyPair::new_account());
    let server = Nats::start(&[
        "-c",
        &write(
            "claims.conf",
            format!(
                "operator: {}\nresolver: MEMORY\nresolver_preload: {{ {}: {} }}\n",
                claim("operator", &operator, &operator),
                account.public_key(),
                claim("account", &account, &operator)
            ),
        ),
    ]);
    let credentials = write(
        "creds",
        format!(
            "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            claim("user", &user, &account),
            user.seed().unwrap()
        ),
    );
    let (a, b) = pair(&format!("{}?creds={credentials}", server.url())).await;
    assert!(a.hears(&b, PATIENCE).await);
}

/// What `by` says of `who`, as NATS's own tools sign it.
fn claim(kind: &str, who: &KeyPair, by: &KeyPair) -> String {
    let limits = r#""subs":-1,"data":-1,"payload":-1,"imports":-1,"exports":-1,"conn":-1,"leaf":-1"#;
    let nats = match kind {
        "account" => format!(r#"{{"type":"account","version":2,"limits":{{{limits},"wildcards":true}}}}"#),
        "user" => format!(r#"{{"type":"user","version":2,{limits}}}"#),
        other => format!(r#"{{"type":"{other}","version":2}}"#),
    };
    let (sub, iss) = (who.public_key(), by.public_key());
    let claims = format!(r#"{{"jti":"1","iat":1,"iss":"{iss}","name":"{kind}","sub":"{sub}","nats":{nats}}}"#);
    let header = URL_SAFE_NO_PAD.encode(r#"{"typ":"JWT","alg":"ed25519-nkey"}"#);
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims));
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(by.sign(signed.as_bytes()).unwrap()))
}

/// A server's certificate is checked by its authority and its name, and whoever names an authority speaks TLS.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_hear_each_other_by_tls() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    certify(dir.path(), "ca", None);
    certify(dir.path(), "other", None);
    certify(dir.path(), "server", Some("ca"));
    let server = Nats::start(&["--tls", "--tlscert", &file("server.pem"), "--tlskey", &file("server.key")]);
    let (port, ca, other) = (server.port(), file("ca.pem"), file("other.pem"));
    let (a, b) = pair(&format!("tls://localhost:{port}?ca={ca}")).await;
    let c = Instance::start("one", &format!("nats://localhost:{port}?ca={ca}")).await;
    c.will_hear(&a).await;
    assert!(a.hears(&b, PATIENCE).await && b.hears(&c, PATIENCE).await);
    let plain = Nats::start(&[]);
    for (url, why) in [
        (format!("tls://localhost:{port}?ca={other}"), "another authority"),
        (format!("tls://localhost:{port}"), "the system's authorities"),
        (format!("tls://127.0.0.1:{port}?ca={ca}"), "another name"),
        (format!("tls://localhost:{}?ca={ca}", plain.port()), "a server without TLS"),
    ] {
        let (one, two) = (Instance::start("one", &url).await, Instance::start("one", &url).await);
        assert!(!one.hears(&two, Duration::from_secs(1)).await, "{why}");
        assert!(!a.hears(&one, Duration::from_millis(300)).await, "{why}");
    }
}

#[tokio::test]
async fn a_file_that_is_not_there_is_told_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = sqlite::open(dir.path(), sqlite::Options::default()).unwrap();
    for setting in ["ca", "nkey", "creds"] {
        let wake: Wake = format!("tls://h?{setting}=/nowhere/file").parse().unwrap();
        let error = wake::join(store.as_ref(), &wake).await.unwrap_err().to_string();
        assert!(error.contains("/nowhere/file: No such file"), "{error}");
    }
}

/// Whoever connects is let in and never heard of again: the instance commits at its usual pace, for as long as it lasts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_answer_delays_nobody() {
    for hello in ["", "INFO {}\r\n", "INFO {}\r\nPONG\r\n"] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("nats://127.0.0.1:{}", listener.local_addr().unwrap().port());
        let instance = Instance::start("one", &url).await;
        let (mut stream, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        stream.write_all(hello.as_bytes()).await.unwrap();
        let since = Instant::now();
        for _ in 0..1500 {
            instance.write(TaskId::mint()).await;
        }
        assert!(since.elapsed() < PATIENCE, "{hello:?}");
        timeout(Duration::from_secs(1), instance.store.close()).await.unwrap();
    }
}

/// Whatever a server says, the instance lives, commits, and hears a real one that comes after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_from_a_server_harms_nothing() {
    let nonsense: [Vec<u8>; 12] = [
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        b"INFO not json\r\n".to_vec(),
        b"INFO {\"tls_required\":true}\r\n".to_vec(),
        b"-ERR 'go away'\r\n".to_vec(),
        b"-ERR\r\n".to_vec(),
        b"INFO {}\r\nPONG\r\n-ERR\r\n".to_vec(),
        format!("INFO {{}}\r\nPONG\r\nMSG a 1 {}\r\nabc\r\n", usize::MAX).into_bytes(),
        b"INFO {}\r\nMSG a 1 99999999999999999999\r\n".to_vec(),
        b"INFO {}\r\nPONG\r\nMSG a 1 5\r\nsb1 x\r\nMSG a 1 4\r\n\xff\xfe\x00\x01\r\nMSG a 1 3\r\nabcde\r\n".to_vec(),
        b"\xff".repeat(200_000),
        b"INFO {".repeat(40_000),
        Vec::new(),
    ];
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("nats://127.0.0.1:{port}");
    let (a, b) = (Instance::start("one", &url).await, Instance::start("one", &url).await);
    // Each piece to whoever connects.
    for piece in nonsense {
        let (mut stream, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        // The client may hang up first.
        let _ = stream.write_all(&piece).await;
        let _ = stream.flush().await;
        a.write(TaskId::mint()).await;
    }
    drop(listener);
    let _server = Nats::start_on(port, &[]);
    a.will_hear(&b).await;
    b.will_hear(&a).await;
}
