//! Archives and backups that mean no good: changed, made up, signed by somebody else, with rights or with code in them.
//!
//! Who makes a file can make its sums as well, so most of what is tried here is whole: [`Archive::sealed`] does what `sb export` does. What
//! is refused must leave nothing behind, and what is taken must bring no rights that were not asked for.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, fmt, fs, path::Path, process::Command};

use a2a::signature::{Algorithm, SigningKey, encode_keys, sign_other};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use testkit::{postgres::Database, temp_store::alter};

use crate::harness::{Home, Server, http::with_json, wait_for};

/// The lines of an archive without its first and its last.
struct Archive {
    header: Fields,
    records: Vec<Record>,
}

/// A record, its members in the order in which they stand: another order is another line.
#[derive(Clone)]
struct Record {
    kind: String,
    fields: Fields,
}

#[derive(Clone)]
struct Fields(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    fields.push(entry);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members: Vec<String> = self.0.iter().map(|(name, value)| format!("{}:{value}", json!(name))).collect();
        write!(f, "{{{}}}", members.join(","))
    }
}

impl Fields {
    fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    fn set(&mut self, name: &str, value: Value) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, was)) => *was = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }
}

/// The kinds in their order, as records and as the last line call them.
const KINDS: [(&str, &str); 13] = [
    ("tenant", "tenants"),
    ("token", "tokens"),
    ("setting", "settings"),
    ("audit", "audit"),
    ("task", "tasks"),
    ("message", "messages"),
    ("artifact", "artifacts"),
    ("event", "events"),
    ("key", "keys"),
    ("card", "cards"),
    ("push", "pushes"),
    ("agent", "agents"),
    ("admin", "admins"),
];

fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(text: &str) -> String {
    hex(Sha256::digest(text))
}

impl Archive {
    fn read(bytes: &[u8]) -> Self {
        let text = std::str::from_utf8(bytes).unwrap();
        let (first, rest) = text.split_once('\n').unwrap();
        let (header, _) = first.strip_prefix("{\"switchboard\":").unwrap().rsplit_once(",\"sha256\"").unwrap();
        let rest = rest.lines().map(|line| serde_json::from_str::<BTreeMap<String, Fields>>(line).unwrap());
        let records = rest.map(|line| line.into_iter().next().unwrap()).map(|(kind, fields)| Record { kind, fields });
        let records = records.filter(|record| record.kind != "end" && record.kind != "signature").collect();
        Self { header: serde_json::from_str(header).unwrap(), records }
    }

    /// The first record of a kind.
    fn first(&mut self, kind: &str) -> &mut Fields {
        let found = self.records.iter_mut().find(|record| record.kind == kind);
        &mut found.unwrap_or_else(|| panic!("there is no {kind}")).fields
    }

    /// Adds a record behind those of its kind and before those of the next.
    fn add(&mut self, kind: &str, fields: Fields) {
        let order = |kind: &str| KINDS.iter().position(|(name, _)| *name == kind).unwrap();
        let behind = self.records.iter().position(|other| order(&other.kind) > order(kind));
        self.records.insert(behind.unwrap_or(self.records.len()), Record { kind: kind.to_owned(), fields });
    }

    /// The same, as text.
    fn add_text(&mut self, kind: &str, text: &str) {
        self.add(kind, serde_json::from_str(text).unwrap());
    }

    /// With sums that are right.
    fn sealed(&self) -> Vec<u8> {
        let header = self.header.to_string();
        let line = |record: &Record| format!("{{\"{}\":{}}}\n", record.kind, record.fields);
        let lines: Vec<String> = self.records.iter().map(line).collect();
        let mut sums = Vec::new();
        for (kind, name) in KINDS {
            let of_kind = lines.iter().zip(&self.records).filter(|(_, record)| record.kind == kind);
            let of_kind: Vec<&str> = of_kind.map(|(line, _)| line.as_str()).collect();
            sums.push(json!({"kind": name, "count": of_kind.len(), "sha256": sha256(&of_kind.concat())}));
        }
        let last = json!({"end": {"kinds": sums, "sha256": sha256(&lines.concat())}});
        let first = format!("{{\"switchboard\":{header},\"sha256\":\"{}\"}}\n", sha256(&header));
        format!("{first}{}{last}\n", lines.concat()).into_bytes()
    }
}

/// What attackers have: an archive and a backup of an installation that has worked, and its keys as everybody sees them.
struct Loot {
    home: Home,
    archive: Vec<u8>,
    signed: Vec<u8>,
    backup: Vec<u8>,
    /// The token of the tenant `default` there.
    token: String,
    admin: String,
}

impl Loot {
    fn new() -> Self {
        let home = Home::on_sqlite();
        let server = home.serve();
        let (token, admin) = (home.token(), home.admin_token());
        assert_eq!(send(&server, &token), 200);
        fs::write(home.path("jwks.json"), get(&server, "/.well-known/jwks.json", None).1).unwrap();
        server.stop();
        for (verb, file) in [("export", "archive"), ("backup", "backup.db")] {
            home.ok(&[verb, home.path(file).to_str().unwrap()]);
        }
        home.ok(&["export", "--sign", home.path("signed").to_str().unwrap()]);
        let read = |name: &str| fs::read(home.path(name)).unwrap();
        let (archive, signed, backup) = (read("archive"), read("signed"), read("backup.db"));
        Self { home, archive, signed, backup, token, admin }
    }

    fn open(&self) -> Archive {
        Archive::read(&self.archive)
    }

    /// The archive with one thing changed, and sums that are right.
    fn with(&self, change: impl FnOnce(&mut Archive)) -> Vec<u8> {
        let mut archive = self.open();
        change(&mut archive);
        archive.sealed()
    }

    /// The archive with this value in the first record of a kind.
    fn with_value(&self, kind: &str, name: &str, value: Value) -> Vec<u8> {
        self.with(|archive| archive.first(kind).set(name, value))
    }

    /// The backup after somebody has been at it.
    fn altered(&self, sql: &str) -> Vec<u8> {
        let file = self.home.path("altered.db");
        fs::write(&file, &self.backup).unwrap();
        alter(&file, sql);
        fs::read(file).unwrap()
    }

    fn command(&self, verb: &str, bytes: &[u8], target: &str, more: &[&str]) -> Command {
        let file = self.home.write("crafted", bytes);
        self.home.command(&[&[verb, &file, "--store", target], more].concat())
    }

    /// A server on what was taken in.
    fn serve(&self, data: &str) -> Server {
        let directory = self.home.path(data);
        self.home.serve_with(&[], &[("SB_DATA_DIR", directory.to_str().unwrap())])
    }
}

fn get(server: &Server, path: &str, token: Option<&str>) -> (u16, Vec<u8>) {
    let api = server.api().with_token(token);
    let reply = wait_for(api.call(api.request("GET".parse().unwrap(), path)));
    (reply.status, reply.body.to_vec())
}

fn send(server: &Server, token: &str) -> u16 {
    let api = server.api().with_token(Some(token));
    let message = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}});
    let request = with_json(api.request("POST".parse().unwrap(), "/a2a/message:send"), &message);
    wait_for(api.call(request)).status
}

/// A file that must not be taken in.
struct Attempt {
    name: &'static str,
    file: Vec<u8>,
    /// What else is said to the command.
    more: Vec<String>,
    /// What the refusal says.
    says: &'static str,
}

fn attempt(name: &'static str, file: Vec<u8>, says: &'static str) -> Attempt {
    Attempt { name, file, more: Vec::new(), says }
}

/// Tries each on an empty store, which must stay one, and that what was not tampered with is taken there at last.
fn refuse_all(loot: &Loot, verb: &str, attempts: &[Attempt], good: &[u8]) {
    let database = Database::empty();
    let directory = loot.home.path("new");
    let here = format!("sqlite:{}", directory.display());
    for target in [here.as_str(), database.url()] {
        for Attempt { name, file, more, says } in attempts {
            let more: Vec<&str> = more.iter().map(String::as_str).collect();
            let output = loot.command(verb, file, target, &more).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{name}: {said}");
            assert!(said.contains(says) && said.contains("hint: "), "{name}: {said}");
            assert!(!said.contains("defect"), "{name}: {said}");
            let left: Vec<_> = fs::read_dir(&directory).map(Iterator::collect).unwrap_or_default();
            assert!(left.is_empty(), "{name}: {left:?}");
        }
        let output = loot.command(verb, good, target, &["--with-credentials"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // For the other target.
        let _ = fs::remove_dir_all(&directory);
    }
}

#[test]
fn crafted_archives_are_refused_and_leave_nothing() {
    let loot = Loot::new();
    let good = loot.archive.clone();
    let lines: Vec<&[u8]> = good.split_inclusive(|byte| *byte == b'\n').collect();
    let but_last = lines[..lines.len() - 1].concat();
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    let mut later = loot.open();
    later.header.set("archive", json!(9));
    let mut reversed = loot.open();
    reversed.records.reverse();
    let mut twice = loot.open();
    let task = twice.first("task").clone();
    twice.add("task", task);
    let deep = format!("{{\"task\":{}{}}}\n", "[".repeat(100_000), "]".repeat(100_000));
    let injected = "{\"statusUpdate\":{}}\n\nevent: message\ndata: {\"task\":{\"id\":\"forged\"}}";
    let attempts = [
        attempt("cut in the middle of a line", good[..good.len() / 2].to_vec(), "was cut off"),
        attempt("without its last line", but_last.clone(), "was cut off"),
        attempt("one bit changed", flipped, "was not taken in"),
        attempt("empty", Vec::new(), "not an archive"),
        attempt("compressed", b"\x1f\x8b\x08\0\0\0\0\0".to_vec(), "not an archive"),
        attempt("a line too deep", [lines[0], deep.as_bytes()].concat(), "no record that this version knows"),
        attempt("of a later format", later.sealed(), "format 9"),
        attempt("something behind it", [&good[..], b"{\"token\":{}}\n"].concat(), "something follows"),
        attempt("two archives in one", [&good[..], &good[..]].concat(), "something follows"),
        attempt("out of order", reversed.sealed(), "of the archive is damaged"),
        attempt(
            "an unknown kind",
            loot.with(|a| a.records.push(Record { kind: "code".into(), fields: Fields(Vec::new()) })),
            "no record that this version knows",
        ),
        attempt(
            "an unknown field",
            loot.with_value("tenant", "admin", json!(true)),
            "no record that this version knows",
        ),
        attempt("a tenant below nothing", loot.with_value("tenant", "id", json!(-1)), "out of range"),
        attempt("a number beyond 64 bits", loot.with_value("tenant", "id", json!(1e30)), "no record"),
        attempt(
            "a tenant's name that steers terminals",
            loot.with_value("tenant", "name", json!("\u{1b}[2J")),
            "line 2",
        ),
        attempt(
            "a tenant twice",
            loot.with(|archive| {
                let again = archive.first("tenant").clone();
                archive.add("tenant", again);
            }),
            "there is such a tenant already",
        ),
        attempt("a task twice", twice.sealed(), "contradict"),
        attempt("a task of nobody", loot.with_value("task", "tenant", json!(99)), "no such tenant"),
        attempt("a task with a path for an agent", loot.with_value("task", "agent", json!("../../x")), "no agent id"),
        attempt("a task that is none", loot.with_value("task", "id", json!("1")), "no task id"),
        attempt("a task in a state of its own", loot.with_value("task", "state", json!("admin")), "no state"),
        attempt("a log that ends before it begins", loot.with_value("task", "seq", json!(-5)), "out of range"),
        attempt(
            "more attempts than there can be",
            loot.with_value("task", "attempt", json!(1_i64 << 40)),
            "out of range",
        ),
        attempt("a time after all times", loot.with_value("task", "created_at", json!(i64::MAX)), "out of range"),
        attempt(
            "an event that ends its frame",
            loot.with_value("event", "body", json!(injected)),
            "not JSON on one line",
        ),
        attempt("an event before the first", loot.with_value("event", "seq", json!(0)), "out of range"),
        attempt("a message that is no JSON", loot.with_value("message", "body", json!("}{")), "not JSON on one line"),
        attempt("a message by nobody", loot.with_value("message", "role", json!("system")), "no role"),
        attempt("a token without a hash", loot.with_value("token", "hash", json!("00")), "no hash of a token"),
        attempt("a token of nobody", loot.with_value("token", "tenant", json!(99)), "no such tenant"),
    ];
    refuse_all(&loot, "import", &attempts, &good);
}

#[test]
fn signatures_that_do_not_fit_are_refused() {
    let loot = Loot::new();
    let signed = &loot.signed;
    let text = std::str::from_utf8(signed).unwrap();
    let (body, signature) = text.trim_end().rsplit_once('\n').unwrap();
    let unsigned = format!("{body}\n").into_bytes();
    let mut changed = Archive::read(signed);
    changed.first("audit").set("actor", json!("somebody else"));
    let changed = changed.sealed();
    let mut earlier = Archive::read(signed);
    earlier.header.set("created_at", json!(1));
    let behind = |archive: &[u8], signature: &str| [archive, signature.as_bytes(), b"\n"].concat();
    // Somebody with a key of their own signs what they have changed.
    let key = SigningKey::generate(Algorithm::EdDsa).unwrap();
    let by = |archive: &[u8], key: &SigningKey, kind: &str| {
        let lines: Vec<&[u8]> = archive.split_inclusive(|byte| *byte == b'\n').collect();
        let made = sign_other(kind, &[lines[0], lines[lines.len() - 1]].concat(), key).unwrap();
        let line =
            json!({"signature": {"key": key.public().jwk(), "protected": made.protected, "signature": made.signature}});
        behind(archive, &line.to_string())
    };
    let mut claimed: Value = serde_json::from_str(signature).unwrap();
    claimed["signature"]["key"] = key.public().jwk();
    let mut named = SigningKey::generate(Algorithm::Es256).unwrap().public();
    named.kid = "the installation's".into();
    let strangers = loot.home.write("strangers.json", encode_keys([&named]));
    let ours = loot.home.path("jwks.json").to_str().unwrap().to_owned();
    let verify = |name, file, says, keys: &str| {
        let more = vec!["--verify".to_owned(), keys.to_owned()];
        Attempt { more, ..attempt(name, file, says) }
    };
    let attempts = [
        attempt("what was signed was changed", behind(&changed, signature), "does not fit"),
        attempt("its date was changed", behind(&earlier.sealed(), signature), "does not fit"),
        attempt("another key is claimed", behind(&unsigned, &claimed.to_string()), "does not fit"),
        attempt("a signature of something else", by(&unsigned, &key, "JOSE"), "does not fit"),
        attempt("no signature at all in its place", behind(&unsigned, "{\"signature\":{}}"), "does not fit"),
        attempt("two signatures", behind(signed, signature), "something follows"),
        attempt("half a signature", signed[..signed.len() - 2].to_vec(), "was cut off"),
        verify("the signature was taken away", unsigned.clone(), "not signed", &ours),
        verify("signed by somebody else", by(&changed, &key, "switchboard-archive"), "none of the given keys", &ours),
        verify("checked with the keys of somebody else", signed.clone(), "none of the given keys", &strangers),
    ];
    refuse_all(&loot, "import", &attempts, signed);

    // And the right one is taken with the right keys, from a backup too.
    let here = format!("sqlite:{}", loot.home.path("new").display());
    let file = loot.home.path("signed.backup");
    loot.home.ok(&["backup", "--sign", file.to_str().unwrap()]);
    let report = loot.home.json(&["restore", file.to_str().unwrap(), "--store", &here, "--verify", &ours]).remove(0);
    assert!(fs::read_to_string(&ours).unwrap().contains(report["signed_by"].as_str().unwrap()), "{report}");
}

/// Whoever knows a token, or has written one into a file, is let in only where the operator has said so.
#[test]
fn rights_come_only_with_credentials() {
    let loot = Loot::new();
    let (token, admin) = ("sb_a-token-that-somebody-has-made-up-00000000", "sba_an-admin-token-that-somebody-made-up");
    let further = "sba_a-further-admin-token-that-somebody-made-up";
    let crafted = loot.with(|archive| {
        let tenant = archive.first("tenant").get("id").unwrap().clone();
        let mut made = archive.first("token").clone();
        made.set("id", json!(77));
        made.set("hash", json!(sha256(token)));
        archive.add("token", made);
        let definition = json!({"id": "mole", "name": "mole", "role": "worker"}).to_string();
        let definition = json!(definition);
        archive.add_text(
            "agent",
            &format!(r#"{{"tenant":{tenant},"id":"mole","definition":{definition},"created_at":1,"updated_at":1}}"#),
        );
        let further = sha256(further);
        archive.add_text(
            "admin",
            &format!(r#"{{"id":7,"hash":"{further}","name":"mole","created_at":1,"expires":null,"revoked_at":null}}"#),
        );
        let hash: Vec<u8> = Sha256::digest(admin).to_vec();
        for record in &mut archive.records {
            if record.fields.get("name") == Some(&json!("admin.token")) {
                record.fields.set("value", json!({"base64": STANDARD.encode(&hash)}));
            }
        }
    });
    let place = |name: &str| format!("sqlite:{}", loot.home.path(name).display());
    for (verb, file, name) in
        [("import", &crafted, "imported"), ("restore", &crafted, "restored"), ("restore", &loot.backup, "from-backup")]
    {
        let output = loot.command(verb, file, &place(name), &[]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.contains("--with-credentials"), "{name}: {said}");
        let server = loot.serve(name);
        for (what, status) in [
            ("a token of before", get(&server, "/a2a/tasks", Some(&loot.token)).0),
            ("a token that was made up", get(&server, "/a2a/tasks", Some(token)).0),
            ("the admin token of before", get(&server, "/v1/admin/tenants", Some(&loot.admin)).0),
            ("an admin token that was made up", get(&server, "/v1/admin/tenants", Some(admin)).0),
            ("a further one", get(&server, "/v1/admin/tenants", Some(further)).0),
        ] {
            assert_eq!(status, 401, "{name}: {what}");
        }
        let own = loot.home.stored(&format!("{name}/cli.json"), "token");
        let (status, tasks) = get(&server, "/a2a/tasks", Some(&own));
        let tasks: Value = serde_json::from_slice(&tasks).unwrap();
        assert_eq!((status, &tasks["totalSize"]), (200, &json!(1)), "{name}: what was said is there: {tasks}");
        let agent = get(&server, "/a2a/agents/mole/.well-known/agent-card.json", Some(&own)).0;
        assert_eq!(agent, 404, "{name}: an agent came along");
        let keys = fs::read_to_string(loot.home.path("jwks.json")).unwrap();
        let now = String::from_utf8(get(&server, "/.well-known/jwks.json", None).1).unwrap();
        assert_ne!(keys, now, "{name}: the keys that sign came along");
        server.stop();
    }
    // With the flag they do, or nothing of the above would be shown.
    let output = loot.command("restore", &crafted, &place("all"), &["--with-credentials"]).output().unwrap();
    assert!(output.status.success());
    let server = loot.serve("all");
    assert_eq!(get(&server, "/a2a/tasks", Some(&loot.token)).0, 200);
    assert_eq!(get(&server, "/a2a/tasks", Some(token)).0, 200);
    assert_eq!(get(&server, "/v1/admin/tenants", Some(admin)).0, 200);
    assert_eq!(get(&server, "/v1/admin/tenants", Some(further)).0, 200);
}

#[test]
fn crafted_databases_are_refused_and_leave_nothing() {
    let loot = Loot::new();
    let mut damaged = loot.backup.clone();
    let page = damaged.len() / 2 / 4096 * 4096;
    damaged[page..page + 4096].fill(0x55);
    let stand_in = "ALTER TABLE tokens RENAME TO others; CREATE VIEW tokens AS SELECT * FROM others";
    let made_up = "DROP TABLE tokens; CREATE VIRTUAL TABLE tokens USING fts5(id, tenant_id, hash)";
    let keys = loot.home.path("jwks.json").to_str().unwrap().to_owned();
    let attempts = [
        attempt("cut off", loot.backup[..loot.backup.len() / 2].to_vec(), "damaged"),
        attempt("its first bytes alone", b"SQLite format 3\0".to_vec(), "was not taken in"),
        attempt("a damaged page", damaged, "damaged"),
        attempt("a view where a table belongs", loot.altered(stand_in), "is no table"),
        attempt("a table that a module makes up", loot.altered(made_up), "is no table"),
        attempt("a table is missing", loot.altered("DROP TABLE cards"), "is no table"),
        attempt("a column is missing", loot.altered("ALTER TABLE tokens DROP COLUMN name"), "damaged"),
        attempt("of a later version", loot.altered("PRAGMA user_version = 9999"), "newer"),
        // One store brings it up to date and fails, the other does not try.
        attempt("a version that lies", loot.altered("PRAGMA user_version = 3"), ""),
        attempt("of no version", loot.altered("PRAGMA user_version = -1"), "schema version"),
        attempt("a text for a number", loot.altered("UPDATE a2a_tasks SET turn = 'one'"), "damaged"),
        attempt("a number below nothing", loot.altered("UPDATE a2a_tasks SET seq = -1"), "out of range"),
        attempt("a number beyond all", loot.altered("UPDATE tenants SET created_at = 1e300"), "damaged"),
        attempt("bytes that are no text", loot.altered("UPDATE tenants SET name = CAST(x'ff' AS TEXT)"), "damaged"),
        attempt("a name that is none", loot.altered("UPDATE tenants SET name = 'a/../b'"), "tenant's name"),
        attempt(
            "a frame that ends early",
            loot.altered("UPDATE a2a_events SET body = x'7b7d0a0a'"),
            "not JSON on one line",
        ),
        attempt("no state", loot.altered("UPDATE a2a_tasks SET state = 'root'"), "no state"),
        Attempt {
            more: vec!["--verify".to_owned(), keys],
            ..attempt("a signature is asked for", loot.backup.clone(), "not signed")
        },
    ];
    refuse_all(&loot, "restore", &attempts, &loot.backup);
}

/// What a file of SQLite has beside its records stays where it is.
#[test]
fn code_in_a_database_of_sqlite_does_not_come_along() {
    let loot = Loot::new();
    let token = "sb_a-token-that-a-trigger-makes-0000000000000";
    let insert = format!(
        "INSERT INTO tokens (tenant_id, hash, name, created_at) VALUES (1, x'{}', hex(randomblob(4)), 1)",
        sha256(token)
    );
    let attempts = [
        ("a trigger at a task", format!("CREATE TRIGGER a AFTER INSERT ON a2a_tasks BEGIN {insert}; END")),
        ("a trigger at a setting", format!("CREATE TRIGGER a AFTER INSERT ON settings BEGIN {insert}; END")),
        ("a trigger at a tenant", format!("CREATE TRIGGER a AFTER UPDATE ON tenants BEGIN {insert}; END")),
        (
            "a trigger instead of a view",
            format!("CREATE TRIGGER a INSTEAD OF UPDATE ON a2a_messages BEGIN {insert}; END"),
        ),
        ("a view", "CREATE VIEW extra AS SELECT * FROM settings".to_owned()),
        ("a table", "CREATE TABLE extra (x); INSERT INTO extra VALUES (1)".to_owned()),
        ("an index over an expression", "CREATE INDEX extra ON tenants (lower(name) || abs(id))".to_owned()),
        ("a column", "ALTER TABLE tenants ADD COLUMN extra TEXT DEFAULT 'x'".to_owned()),
        ("a made up column", "ALTER TABLE tenants ADD COLUMN extra AS (hex(zeroblob(9)))".to_owned()),
        ("another log beside it", String::new()),
    ];
    for (n, (name, sql)) in attempts.iter().enumerate() {
        let file = loot.altered(sql);
        let crafted = loot.home.path("crafted-wal");
        if sql.is_empty() {
            fs::write(&crafted, vec![7; 40_000]).unwrap();
        }
        let target = loot.home.path(&format!("new-{n}"));
        let store = format!("sqlite:{}", target.display());
        let output = loot.command("restore", &file, &store, &["--with-credentials"]).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let _ = fs::remove_file(crafted);
        assert_eq!(objects(&target), objects(&loot.home.path("data")), "{name}");
        let server = loot.serve(&format!("new-{n}"));
        assert_eq!(send(&server, &loot.token), 200, "{name}");
        assert_eq!(get(&server, "/a2a/tasks", Some(token)).0, 401, "{name}");
        server.stop();
    }
}

/// Everything that a journal's schema has.
fn objects(directory: &Path) -> Vec<testkit::temp_store::Rows> {
    testkit::temp_store::TempStore::file(directory).look(&["SELECT type, name, sql FROM sqlite_schema ORDER BY 1, 2"])
}
