//! Every key by every way, and what is refused.

use std::time::Duration;

use clap::{Args, FromArgMatches};

use super::*;

fn environment(pairs: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
    let pairs: Vec<(String, String)> =
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    move |name| pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
}

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("switchboard.toml");
    std::fs::write(&path, text).unwrap();
    (directory, path)
}

/// The configuration of a file, and nothing else but a home.
fn check_file(text: &str) -> Result<Config, Failure> {
    let (_keep, path) = file(text);
    let home = environment(&[("HOME", "/h")]);
    load(Layer::default(), Some(&path), &home)?.check(&home)
}

#[test]
fn flags_win_over_environment_over_file_over_defaults() {
    let (_keep, path) = file("listen = \"127.0.0.1:3\"\nblocking_cap = \"3s\"\nlease = \"3s\"\n");
    let variables = environment(&[("SB_LISTEN", "127.0.0.1:2"), ("SB_BLOCKING_CAP", "2s"), ("SB_DATA_DIR", "/data")]);
    let flags = Layer { listen: Some("127.0.0.1:1".to_owned()), ..Layer::default() };
    let config = load(flags, Some(&path), &variables).unwrap().check(&variables).unwrap();
    assert_eq!(config.edge.listen.port(), 1, "flag");
    assert_eq!(config.exchange.blocking_cap, Duration::from_secs(2), "environment");
    assert_eq!(config.exchange.lease, Duration::from_secs(3), "file");
    assert_eq!(config.exchange.cancel_grace, Duration::from_secs(5), "default");
}

#[test]
fn nothing_given_is_the_default() {
    let config = check_file("").unwrap();
    let echo = "echo".parse().ok();
    let exchange = exchange::Options { default_agent: echo, ..exchange::Options::default() };
    assert_eq!(format!("{:?}", config.exchange), format!("{exchange:?}"));
    let edge = server::Options::new(([127, 0, 0, 1], 8765).into());
    assert_eq!(format!("{:?}", config.edge), format!("{edge:?}"));
}

/// Every key, a value as a variable or a flag has it, and as the file has it.
const SAMPLES: [(&str, &str, &str); 82] = [
    ("listen", "127.0.0.1:1", "\"127.0.0.1:1\""),
    ("grpc_port", "2", "2"),
    ("data_dir", "/d", "\"/d\""),
    ("store", "postgres://u@h/d", "\"postgres://u@h/d\""),
    ("store_connections", "3", "3"),
    ("wake", "off", "\"off\""),
    ("public_url", "https://h", "\"https://h\""),
    ("tls_cert", "/c.pem", "\"/c.pem\""),
    ("tls_key", "/k.pem", "\"/k.pem\""),
    ("hsts", "no", "false"),
    ("trusted_proxies", "10.0.0.0/8, ::1", "[\"10.0.0.0/8\", \"::1\"]"),
    ("key_file", "/w.key", "\"/w.key\""),
    ("key_file_previous", "/v.key", "\"/v.key\""),
    ("no_auth", "yes", "true"),
    ("demo_agents", "0", "false"),
    ("default_agent", "research", "\"research\""),
    ("a2a_agents", "/a.json", "\"/a.json\""),
    ("agents_yaml", "/a.yaml", "\"/a.yaml\""),
    ("agents_d", "/a.d", "\"/a.d\""),
    ("models", "/m.toml", "\"/m.toml\""),
    ("blocking_cap", "60s", "\"1m\""),
    ("chat_wait", "20s", "\"20s\""),
    ("cancel_grace", "500ms", "\"500ms\""),
    ("lease", "10s", "\"10s\""),
    ("log", "debug", "\"debug\""),
    ("log_format", "json", "\"json\""),
    ("bootstrap_token", "a-token-from-outside", ""),
    ("admin_token", "a-token-from-outside", ""),
    ("admin.listen", "127.0.0.1:3", "\"127.0.0.1:3\""),
    ("cards.public", "false", "false"),
    ("cards.compat", "0.3", "\"0.3\""),
    ("push.enabled", "false", "false"),
    ("push.timeout", "3s", "\"3s\""),
    ("push.attempts", "4", "4"),
    ("push.first_wait", "5s", "\"5s\""),
    ("push.longest_wait", "6s", "\"6s\""),
    ("egress.allow", "127.0.0.0/8, ::1", "[\"127.0.0.0/8\", \"::1\"]"),
    ("egress.ports", "443, 8443", "[443, 8443]"),
    ("relay.url", "https://relay.example", "\"https://relay.example\""),
    ("outbound.enabled", "false", "false"),
    ("outbound.card_refresh", "31s", "\"31s\""),
    ("outbound.probe", "32s", "\"32s\""),
    ("outbound.timeout", "33s", "\"33s\""),
    ("outbound.quiet", "34s", "\"34s\""),
    ("outbound.poll", "35s", "\"35s\""),
    ("outbound.deliver_for", "46s", "\"46s\""),
    ("outbound.track_for", "36s", "\"36s\""),
    ("outbound.body_bytes", "37KiB", "\"37KiB\""),
    ("outbound.event_bytes", "38KiB", "\"38KiB\""),
    ("outbound.turn_bytes", "39KiB", "\"39KiB\""),
    ("delegation.depth", "40", "40"),
    ("delegation.fan_out", "41", "41"),
    ("delegation.calls", "42", "42"),
    ("delegation.time", "43s", "\"43s\""),
    ("limits.body_bytes", "1048576", "\"1MiB\""),
    ("limits.json_depth", "7", "7"),
    ("limits.parts", "8", "8"),
    ("limits.id_bytes", "128", "128"),
    ("limits.metadata_bytes", "2KiB", "\"2048B\""),
    ("limits.header_timeout", "1s", "\"1s\""),
    ("limits.body_timeout", "2s", "\"2s\""),
    ("limits.body_rate", "3KiB", "\"3KiB\""),
    ("limits.connections", "9", "9"),
    ("limits.connections_per_address", "5", "5"),
    ("limits.unauthenticated_timeout", "6s", "\"6s\""),
    ("limits.stall_timeout", "7s", "\"7s\""),
    ("limits.requests_per_second", "10", "10"),
    ("limits.request_burst", "11", "11"),
    ("limits.failed_auth_per_second", "12", "12"),
    ("limits.failed_auth_burst", "13", "13"),
    ("limits.tasks", "14", "14"),
    ("limits.stored_bytes", "1GiB", "\"1GiB\""),
    ("limits.bytes_in_flight", "3MiB", "\"3MiB\""),
    ("limits.streams", "15", "15"),
    ("retention.tasks", "never", "\"never\""),
    ("retention.events", "24h", "\"1d\""),
    ("retention.every", "60s", "\"1m\""),
    (
        "retention.agents",
        "agent.v1.tasks=30d, echo.tasks=never, echo.events=1h",
        "{ \"agent.v1\" = { tasks = \"30d\" }, echo = { tasks = \"never\", events = \"60m\" } }",
    ),
    ("retention.tenants", "acme.events=2d", "{ acme = { events = \"48h\" } }"),
    ("cors.origins", "https://a, https://b", "[\"https://a\", \"https://b\"]"),
    ("trust.cards", "require", "\"require\""),
    ("trust.keys", "https://a=/a.json, https://b:8443=/b.json", "[\"https://a=/a.json\", \"https://b:8443=/b.json\"]"),
];

#[test]
fn every_key_says_the_same_wherever_it_stands() {
    assert_eq!(keys().iter().map(|key| key.name).collect::<Vec<_>>(), SAMPLES.map(|(name, ..)| name));
    for (key, (name, text, in_file)) in keys().iter().zip(SAMPLES) {
        let value = |mut settings: Settings| {
            let source = settings.source(key);
            let slot = settings.keys.slots().into_iter().find(|slot| slot.key.name == name).unwrap();
            (slot.value.shown().unwrap().json, source)
        };
        let pairs = [(key.variable.as_str(), text)];
        let (given, source) = value(load(Layer::default(), None, &environment(&pairs)).unwrap());
        assert_eq!(source, key.variable);
        assert_ne!(Some(&given), key.default.as_ref().map(|default| &default.json), "{name} is the default");
        let (_keep, path) = file(&format!("{name} = {}\n", if key.in_file { in_file } else { "\"x\"" }));
        let loaded = load(Layer::default(), Some(&path), &environment(&[]));
        if key.in_file {
            assert_eq!(value(loaded.unwrap()), (given.clone(), path.display().to_string()), "{name}");
        } else {
            assert_eq!(loaded.unwrap_err().hint.unwrap(), format!("set {}", key.variable));
        }
        if let Some(flag) = key.flag() {
            let command = Layer::augment_args(clap::Command::new("sb"));
            let matches = command.get_matches_from(["sb".to_owned(), format!("--{flag}={text}")]);
            let flags = Layer::from_arg_matches(&matches).unwrap();
            let (_keep, path) = file("");
            let loaded = load(flags, Some(&path), &environment(&[])).unwrap();
            assert_eq!(value(loaded), (given, format!("--{flag}")), "{name}");
        }
    }
}

#[test]
fn every_key_arrives() {
    let (_keep, path) = file("");
    let mut pairs: Vec<(String, &str)> =
        keys().into_iter().map(|key| key.variable).zip(SAMPLES.map(|(_, text, _)| text)).collect();
    pairs.retain(|(name, _)| name != "SB_STORE");
    let variables = |name: &str| pairs.iter().find(|(known, _)| known == name).map(|(_, value)| (*value).to_owned());
    let config = load(Layer::default(), Some(&path), &variables).unwrap().check(&variables).unwrap();
    assert_eq!(config.data_dir, Path::new("/d"));
    assert_eq!(config.location.to_string(), "sqlite:/d");
    assert_eq!((config.open.connections, config.open.wake), (3, Some(Wake::Off)));
    assert_eq!(config.agents_dir, path.parent().map(|directory| directory.join("agents")));
    let exchange = exchange::Options {
        blocking_cap: Duration::from_secs(60),
        cancel_grace: Duration::from_millis(500),
        lease: Duration::from_secs(10),
        default_agent: "research".parse().ok(),
        limits: a2a::Limits { id_bytes: 128, metadata_bytes: 2048, parts: 8, json_depth: 7 },
        quota: store::Quota { tasks: Some(14), bytes: Some(1 << 30) },
        max_streams: Some(15),
        bytes_in_flight: Some(3 << 20),
        chat_wait: Duration::from_secs(20),
        delegation: exchange::DelegationLimits {
            depth: 40,
            fan_out: 41,
            calls: 42,
            time: Some(Duration::from_secs(43)),
        },
        retention: RetentionRules {
            tasks: Keep::Forever,
            events: Keep::For(Duration::from_secs(86_400)),
            every: Duration::from_secs(60),
            agents: BTreeMap::from([
                (
                    "agent.v1".parse().unwrap(),
                    RetentionRule { tasks: Some(Keep::For(Duration::from_secs(30 * 86_400))), events: None },
                ),
                (
                    "echo".parse().unwrap(),
                    RetentionRule { tasks: Some(Keep::Forever), events: Some(Keep::For(Duration::from_secs(3600))) },
                ),
            ]),
            tenants: BTreeMap::from([(
                "acme".to_owned(),
                RetentionRule { tasks: None, events: Some(Keep::For(Duration::from_secs(2 * 86_400))) },
            )]),
        },
        ..exchange::Options::default()
    };
    assert_eq!(format!("{:?}", config.exchange), format!("{exchange:?}"));
    let edge = server::Options {
        grpc_port: Some(2),
        public_url: Some("https://h".to_owned()),
        hsts: false,
        tls: Some(server::TlsFiles { cert: "/c.pem".into(), key: "/k.pem".into() }),
        trusted_proxies: vec!["10.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()],
        auth: false,
        public_cards: false,
        compat: server::Compat::All,
        body_limit: 1 << 20,
        header_timeout: Duration::from_secs(1),
        body_timeout: Duration::from_secs(2),
        body_rate: 3072,
        max_connections: 9,
        max_connections_per_address: 5,
        unauthenticated_timeout: Duration::from_secs(6),
        stall: Duration::from_secs(7),
        admin_listen: Some(([127, 0, 0, 1], 3).into()),
        request_rate: Rate { per_second: 10, burst: 11 },
        failed_auth_rate: Rate { per_second: 12, burst: 13 },
        cors: Cors::Only(vec!["https://a".to_owned(), "https://b".to_owned()]),
        ..server::Options::new(([127, 0, 0, 1], 1).into())
    };
    assert_eq!(format!("{:?}", config.edge), format!("{edge:?}"));
    assert!(!config.keys.demo_agents() && config.keys.log_format() == LogFormat::Json);
    assert_eq!(config.keys.admin_token.unwrap().expose(), "a-token-from-outside");
    let remotes = agents::remote::Options {
        enabled: false,
        json: Some("/a.json".into()),
        yaml: Some("/a.yaml".into()),
        directory: Some("/a.d".into()),
        card_refresh: Duration::from_secs(31),
        probe: Duration::from_secs(32),
        timeout: Duration::from_secs(33),
        quiet: Duration::from_secs(34),
        poll: Duration::from_secs(35),
        deliver_for: Duration::from_secs(46),
        track_for: Duration::from_secs(36),
        body_bytes: 37 << 10,
        event_bytes: 38 << 10,
        turn_bytes: 39 << 10,
        names: config.remotes.names.clone(),
        ..agents::remote::Options::default()
    };
    assert_eq!(format!("{:?}", config.remotes), format!("{remotes:?}"));
    let push = &config.keys.push;
    assert!(!push.enabled());
    assert_eq!((push.timeout().0.as_secs(), push.attempts()), (3, 4));
    assert_eq!((push.first_wait().0.as_secs(), push.longest_wait().0.as_secs()), (5, 6));
    assert_eq!(config.keys.egress.allow().0, ["127.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()]);
    assert_eq!(config.keys.egress.ports.unwrap().0, [443, 8443]);
    assert_eq!(config.keys.key_file.as_deref(), Some(Path::new("/w.key")));
    assert_eq!(config.keys.key_file_previous.as_deref(), Some(Path::new("/v.key")));
    assert_eq!(config.keys.trust.cards(), CardTrust::Require);
    let trusted: Vec<_> = config.keys.trust.keys().0.iter().map(|entry| entry.origin.clone()).collect();
    assert_eq!(trusted, ["https://a", "https://b:8443"]);
}

#[test]
fn paths_in_the_file_are_meant_from_there() {
    let (_keep, path) = file(
        "data_dir = \"data\"\nkey_file = \"push.key\"\nstore = \"sqlite:journal\"\ntrust.keys = \"https://a=keys/a.json\"\n",
    );
    let config = load(Layer::default(), Some(&path), &environment(&[])).unwrap();
    let config = config.check(&environment(&[])).unwrap();
    assert_eq!(config.data_dir, path.parent().unwrap().join("data"));
    assert_eq!(config.keys.key_file, Some(path.parent().unwrap().join("push.key")));
    assert_eq!(config.location.directory(), Some(path.parent().unwrap().join("journal").as_path()));
    assert_eq!(config.keys.trust.keys().0[0].file, path.parent().unwrap().join("keys/a.json"));
}

#[test]
fn zero_is_no_bound_where_that_makes_sense() {
    let text = "[limits]\ntasks = 0\nstored_bytes = 0\nstreams = 0\nrequests_per_second = 0\n";
    let Config { exchange, edge, .. } = check_file(text).unwrap();
    assert_eq!((exchange.quota, exchange.max_streams), (store::Quota::default(), None));
    assert_eq!(edge.request_rate.per_second, 0);
    for (key, value, range) in [
        ("limits.body_bytes", "0", "1KiB to 256MiB"),
        ("limits.json_depth", "0", "1 to 120"),
        ("limits.json_depth", "121", "1 to 120"),
        ("limits.id_bytes", "8", "64B to 64KiB"),
        ("limits.connections", "0", "2 to 1000000"),
        ("limits.connections", "1", "2 to 1000000"),
        ("store_connections", "1001", "1 to 1000"),
    ] {
        let failure = check_file(&format!("{key} = {value}")).unwrap_err();
        assert_eq!(failure.error, format!("`{key}` cannot be {value}"));
        assert_eq!(failure.causes, [format!("it has to be {range}")]);
        assert_eq!(failure.exit as u8, 2);
    }
}

#[test]
fn an_address_has_a_share_of_the_connections_and_never_all() {
    for (connections, share) in [(2, 1), (3, 1), (9, 4), (50, 25), (64, 32), (128, 64), (200, 64), (10_000, 2500)] {
        let edge = check_file(&format!("limits.connections = {connections}")).unwrap().edge;
        assert_eq!(edge.max_connections_per_address, share, "{connections}");
    }
    let all = check_file("limits.connections = 9\nlimits.connections_per_address = 9").unwrap().edge;
    assert_eq!(all.max_connections_per_address, 9, "it can be said");
    let failure = check_file("limits.connections = 9\nlimits.connections_per_address = 10").unwrap_err();
    assert_eq!(failure.error, "`limits.connections_per_address` cannot be 10");
    assert_eq!(failure.causes, ["it has to be at most `limits.connections`, which is 9"]);
    assert_eq!(failure.exit as u8, 2);
}

#[test]
fn what_is_kept_is_said_in_tables() {
    let text = "[retention]\ntasks = \"30d\"\n[retention.agents.\"agent.v1\"]\nevents = \"never\"\n\
                [retention.tenants.acme]\ntasks = \"1h\"\n";
    let rules = check_file(text).unwrap().exchange.retention;
    assert_eq!(
        (rules.tasks, rules.events),
        (Keep::For(Duration::from_secs(30 * 86_400)), Keep::For(Duration::from_secs(7 * 86_400)))
    );
    assert_eq!(rules.agents.values().next().unwrap().events, Some(Keep::Forever));
    assert_eq!(rules.tenants["acme"].tasks, Some(Keep::For(Duration::from_secs(3600))));
    for text in [
        "retention.tasks = \"sometimes\"",
        "retention.tasks = 90",
        "retention.agents.echo.task = \"1d\"",
        "retention.agents.tasks.events = \"1d\"",
        "retention.tenants.\"a b\".tasks = \"1d\"",
        "retention.agent.echo.tasks = \"1d\"",
    ] {
        assert_eq!(check_file(text).unwrap_err().exit as u8, 2, "{text}");
    }
    for text in ["echo=1d", "echo.age=1d", "echo.tasks", "echo.tasks=soon"] {
        assert!(load(Layer::default(), None, &environment(&[("SB_RETENTION_AGENTS", text)])).is_err(), "{text}");
    }
}

#[test]
fn a_burst_follows_its_rate() {
    let config = check_file("[limits]\nrequests_per_second = 5\nfailed_auth_per_second = 1\n").unwrap();
    assert_eq!((config.edge.request_rate.burst, config.edge.failed_auth_rate.burst), (10, 5));
    assert_eq!(config.keys.limits.request_burst, Some(10), "and is shown");
}

#[test]
fn origins_are_a_list_or_a_star() {
    let cors = |text: &str| check_file(text).map(|config| config.edge.cors);
    assert_eq!(cors("").unwrap(), Cors::Nobody);
    assert_eq!(cors("cors.origins = \"*\"").unwrap(), Cors::Everybody);
    assert_eq!(cors("cors.origins = [\"*\"]").unwrap(), Cors::Everybody);
    let failure = cors("cors.origins = [\"a\"]").unwrap_err();
    assert!(failure.error.contains("cors.origins") && failure.causes[0].contains("`a`"), "{failure:?}");
    assert!(cors("cors.origins = 5").is_err());
}

#[test]
fn an_unknown_key_is_an_error_with_a_suggestion() {
    for (key, meant) in [("lisen", "listen"), ("public-url", "public_url"), ("demo_agent", "demo_agents")] {
        let (_keep, path) = file(&format!("{key} = 1\n"));
        let failure = load(Layer::default(), Some(&path), &environment(&[])).unwrap_err();
        assert_eq!(failure.causes, [format!("unknown key `{key}`")]);
        assert_eq!(failure.hint.unwrap(), format!("did you mean `{meant}`?"));
    }
    for (text, unknown, meant) in [
        ("[limits]\nbody-byte = 1\n", "limits.body-byte", "limits.body_bytes"),
        ("[limits]\nstored_byte = 1\n", "limits.stored_byte", "limits.stored_bytes"),
        ("cors.origin = \"*\"\n", "cors.origin", "cors.origins"),
    ] {
        let (_keep, path) = file(text);
        let failure = load(Layer::default(), Some(&path), &environment(&[])).unwrap_err();
        assert_eq!(failure.causes, [format!("unknown key `{unknown}`")]);
        assert_eq!(failure.hint.unwrap(), format!("did you mean `{meant}`?"));
    }
    for (text, meant) in [
        ("[limits]\ntimeot = \"3s\"\n", "`timeout` in `[push]` or `timeout` in `[outbound]`"),
        ("timeot = \"3s\"\n", "`timeout` in `[push]` or `timeout` in `[outbound]`"),
        ("[limits]\npublic_url = \"x\"\n", "`public_url` above all tables"),
        ("[outbund]\ntimeout = \"3s\"\n", "the table `[outbound]`"),
        ("[crads]\npublic = false\n", "the table `[cards]`"),
    ] {
        let (_keep, path) = file(text);
        let failure = load(Layer::default(), Some(&path), &environment(&[])).unwrap_err();
        assert_eq!(failure.hint.unwrap(), format!("did you mean {meant}?"), "{text}");
    }
    let (_keep, path) = file("zzz = 1\n");
    let failure = load(Layer::default(), Some(&path), &environment(&[])).unwrap_err();
    assert_eq!(failure.hint.unwrap(), "`sb config docs` prints all keys");
}

#[test]
fn missing_and_superfluous_quotes_are_told() {
    for (text, right) in [
        ("listen = 127.0.0.1:80 # here\n", "listen = \"127.0.0.1:80\""),
        ("demo_agents = true\nblocking_cap = 2m\n", "blocking_cap = \"2m\""),
        ("default_agent = echo\n", "default_agent = \"echo\""),
        ("blocking_cap = 120\n", "blocking_cap = \"120s\""),
        ("[retention]\ntasks = 90 # days\n", "tasks = \"90s\""),
        ("demo_agents = \"true\"\n", "demo_agents = true"),
        ("[limits]\ntasks = \"5\"\n", "tasks = 5"),
    ] {
        let (_keep, path) = file(text);
        let failure = load(Layer::default(), Some(&path), &environment(&[])).unwrap_err();
        assert_eq!(failure.hint.unwrap_or_default(), format!("write `{right}`"), "{text}: {:?}", failure.causes);
    }
    for text in ["listen = \"127\n", "listen = 5\n", "listen\n"] {
        let (_keep, path) = file(text);
        assert_eq!(load(Layer::default(), Some(&path), &environment(&[])).unwrap_err().hint, None, "{text}");
    }
}

#[test]
fn bad_values_are_usage_errors() {
    for text in ["listen = 5", "lease = \"5\"", "log_format = \"xml\"", "listen = ", "limits = 5"] {
        let (_keep, path) = file(text);
        let failure = load(Layer::default(), Some(&path), &environment(&[])).unwrap_err();
        assert_eq!(failure.exit as u8, 2, "{text}");
    }
    for (name, value) in
        [("SB_NO_AUTH", "maybe"), ("SB_LEASE", "soon"), ("SB_LOG_FORMAT", "xml"), ("SB_STORE_CONNECTIONS", "many")]
    {
        let failure = load(Layer::default(), None, &environment(&[(name, value)])).unwrap_err();
        assert!(failure.error.contains(name));
    }
}

#[test]
fn the_journal_is_where_it_is_said_to_be() {
    let location = |store: &str, wake: &str| {
        let pairs = [("SB_STORE", store), ("SB_WAKE", wake), ("SB_DATA_DIR", "/data")];
        let given = environment(&pairs);
        let variables = |name: &str| given(name).filter(|value| !value.is_empty());
        let config = load(Layer::default(), None, &variables)?.check(&variables)?;
        Ok::<_, Failure>((config.location.to_string(), config.open.wake.unwrap().to_string()))
    };
    let is = |store: &str, wake: &str| (store.to_owned(), wake.to_owned());
    assert_eq!(location("", "").unwrap(), is("sqlite:/data", "local"));
    assert_eq!(location("sqlite:/x", "off").unwrap(), is("sqlite:/x", "off"));
    assert_eq!(location("postgres://u:secret@h/d", "").unwrap(), is("postgres://u:***@h/d", "notify"));
    assert_eq!(location("postgresql://h/d", "local").unwrap(), is("postgresql://h/d", "local"));
    for (store, wake) in [
        ("postgres://u:secret@h:x/d", ""),
        ("postgres://u:secret@h/d?zzz=1", ""),
        ("postgress://u:sec/ret@h/d", ""),
        ("mysql://u@h/d?password=secret", ""),
        ("sqlite:", ""),
        ("", "notify"),
        ("", "nats://user:secret@"),
        ("", "tls://user:secret@h?zzz=1"),
        ("", "sometimes"),
    ] {
        let failure = location(store, wake).unwrap_err();
        assert_eq!(failure.exit as u8, 2);
        assert!(failure.hint.is_some());
        let said = format!("{failure:?}");
        assert!(!said.contains("sec"), "{said}");
    }
}

#[test]
fn a_broken_file_does_not_tell_its_password() {
    for text in [
        "store = \"postgres://u:secret@h/d",
        "store = \"postgres://u:secret@h/d\" x",
        "store = [\"postgres://h/d?password=secret\"]",
    ] {
        let (_keep, path) = file(text);
        let said = format!("{:?}", load(Layer::default(), Some(&path), &environment(&[])).unwrap_err());
        assert!(said.contains("postgres://") && !said.contains("secret"), "{said}");
    }
    let layer = Layer { store: Some(Masked::new("postgres://u:secret@h/d".into())), ..Layer::default() };
    assert!(!format!("{layer:?}").contains("secret"));
}

#[test]
fn tables_are_layered_key_by_key() {
    let (_keep, path) = file("[limits]\ntasks = 3\nstreams = 3\nbody_bytes = \"3MiB\"\n");
    let variables = environment(&[
        ("SB_LIMITS_STREAMS", "2"),
        ("SB_CORS_ORIGINS", "https://a, https://b"),
        ("SB_DATA_DIR", "/data"),
    ]);
    let config = load(Layer::default(), Some(&path), &variables).unwrap().check(&variables).unwrap();
    assert_eq!((config.exchange.quota.tasks, config.exchange.max_streams), (Some(3), Some(2)));
    assert_eq!(config.edge.cors, Cors::Only(vec!["https://a".to_owned(), "https://b".to_owned()]));
    for (name, value) in [("SB_LIMITS_TASKS", "many"), ("SB_LIMITS_BODY_BYTES", "10MB")] {
        let failure = load(Layer::default(), None, &environment(&[(name, value)])).unwrap_err();
        assert!(failure.error.contains(name));
    }
}

#[test]
fn a_missing_file_matters_only_when_it_was_named() {
    assert!(load(Layer::default(), None, &environment(&[("XDG_CONFIG_HOME", "/nowhere")])).is_ok());
    assert!(load(Layer::default(), Some(Path::new("/nowhere/x.toml")), &environment(&[])).is_err());
    assert!(load(Layer::default(), None, &environment(&[("SB_CONFIG", "/nowhere/x.toml")])).is_err());
}

#[test]
fn the_data_directory_follows_xdg() {
    let at = |pairs: &[(&str, &str)]| {
        load(Layer::default(), None, &environment(pairs)).unwrap().data_dir(&environment(pairs)).ok()
    };
    assert_eq!(at(&[("XDG_DATA_HOME", "/x"), ("HOME", "/h")]), Some("/x/switchboard".into()));
    assert_eq!(at(&[("XDG_DATA_HOME", "x"), ("HOME", "/h")]), Some("/h/.local/share/switchboard".into()));
    assert_eq!(at(&[]), None);
}

#[test]
fn x_31_registries_and_agent_files_lie_beside_the_configuration() {
    let (_keep, path) = file("");
    let home = environment(&[("HOME", "/h")]);
    let config = load(Layer::default(), Some(&path), &home).unwrap().check(&home).unwrap();
    let beside = |name: &str| path.parent().map(|directory| directory.join(name));
    assert_eq!(config.remotes.json, beside("a2a_agents.json"));
    assert_eq!(config.remotes.yaml, beside("agents.yaml"));
    assert_eq!(config.remotes.directory, beside("agents.d"));
    assert_eq!(config.agents_dir, beside("agents"));
}

#[test]
fn x_25_what_is_not_safe_is_refused() {
    let home = environment(&[("HOME", "/h")]);
    let check = |listen: &str, no_auth: bool, public_url: Option<&str>| {
        let layer = Layer {
            listen: Some(listen.to_owned()),
            no_auth: Some(no_auth),
            public_url: public_url.map(str::to_owned),
            ..Layer::default()
        };
        load(layer, None, &home).and_then(|settings| settings.check(&home)).map_err(|failure| failure.exit as u8)
    };
    let url = Some("https://agents.example.org");
    assert!(check("127.0.0.1:0", true, None).is_ok());
    assert!(check("[::1]:0", true, None).is_ok());
    assert_eq!(check("0.0.0.0:0", true, url).unwrap_err(), 2);
    assert_eq!(check("192.0.2.1:0", true, None).unwrap_err(), 2);
    assert_eq!(check("0.0.0.0:0", false, None).unwrap_err(), 2);
    assert_eq!(check("[::]:0", false, None).unwrap_err(), 2);
    assert!(check("0.0.0.0:0", false, url).is_ok());
    assert_eq!(check("8765", false, None).unwrap_err(), 2);
    assert_eq!(check("127.0.0.1:0", false, Some("agents.example.org")).unwrap_err(), 2);
    assert_eq!(check("127.0.0.1:0", false, Some("https://h/?a=b")).unwrap_err(), 2);
}
