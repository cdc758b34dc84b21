//! Which origin a credential is sent to, and what a shell offers of what a server says.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::Output,
    sync::{Arc, Mutex},
    thread,
};

use serde_json::{Value, json};

use super::rig::{Home, failed, text, worked};

/// A server that keeps the heads of its requests.
struct Recorder {
    url: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    /// Answers each request with this status and body.
    fn start(status: u16, body: &'static str) -> Self {
        Self::start_at("127.0.0.1:0", status, body)
    }

    fn start_at(address: &str, status: u16, body: &'static str) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let seen = Arc::clone(&seen);
                thread::spawn(move || answer(stream, &seen, status, body));
            }
        });
        Self { url, heads }
    }

    /// Refuses every caller.
    fn refusing() -> Self {
        Self::refusing_at("127.0.0.1:0")
    }

    fn refusing_at(address: &str) -> Self {
        Self::start_at(address, 401, r#"{"error":{"code":401,"status":"UNAUTHENTICATED","message":"no"}}"#)
    }

    /// The heads of the requests since the last call.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.heads.lock().unwrap())
    }
}

fn answer(stream: TcpStream, heads: &Mutex<Vec<String>>, status: u16, body: &str) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = |line: &str| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse::<usize>().ok();
    let mut sent = vec![0; head.lines().find_map(length).unwrap_or_default()];
    reader.read_exact(&mut sent).ok()?;
    heads.lock().unwrap().push(head);
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    (&stream).write_all(answer.as_bytes()).ok()
}

const SECRETS: [(&str, &str); 3] =
    [("SB_TOKEN", "canary-of-a-token"), ("SB_API_KEY", "canary-of-a-key"), ("SB_ADMIN_TOKEN", "canary-of-an-admin")];

/// Runs a command with every secret variable and these.
fn run(home: &Home, args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = home.command(args);
    command.envs(SECRETS).envs(variables.iter().copied()).output().unwrap()
}

#[test]
fn a_variable_is_sent_only_to_the_origin_of_sb_url() {
    let home = Home::on_sqlite();
    let (work, evil) = (Recorder::refusing(), Recorder::refusing());
    home.ok(&["profile", "add", "evil", "--url", &evil.url]);
    let named = [("SB_URL", work.url.as_str())];
    let by_profile = [("SB_PROFILE", "evil")];
    type Attempt<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)]);
    let attempts: [Attempt; 12] = [
        (&["send", "--url", &evil.url, "hi"], &named),
        (&["send", "--profile", "evil", "hi"], &named),
        (&["card", "get", &evil.url], &named),
        (&["card", "verify", &evil.url], &named),
        (&["task", "list", "--url", &evil.url], &named),
        (&["agent", "list", "--url", &evil.url], &named),
        (&["a2a", "card-list", "--url", &evil.url], &named),
        (&["chat", &evil.url], &named),
        (&["bench", "--url", &evil.url, "--duration", "1s"], &named),
        (&["send", "hi"], &by_profile),
        (&["send", "--url", &evil.url, "hi"], &[]),
        (&["card", "get", &evil.url], &[]),
    ];
    for (args, variables) in attempts {
        let output = run(&home, args, variables);
        assert!(!output.status.success(), "{args:?}");
        let said = text(&output.stderr);
        for head in evil.take() {
            assert!(!head.contains("canary"), "{args:?} {variables:?}: {head}");
            assert!(said.contains("SB_TOKEN") && said.contains("not sent"), "{args:?} says why: {said}");
        }
        assert!(work.take().is_empty(), "{args:?}");
    }
    // Administration is refused before anything is sent, and says which variable was not taken.
    for (args, variables) in
        [(["tenant", "list", "--url", &evil.url], &named[..]), (["audit", "-o", "json", "--url"], &[])]
    {
        let args: Vec<&str> = if args[0] == "audit" { vec!["audit", "--url", &evil.url] } else { args.to_vec() };
        let said = failed(&run(&home, &args, variables), 4);
        assert!(said.contains("SB_ADMIN_TOKEN was not sent"), "{said}");
        assert!(evil.take().iter().all(|head| !head.contains("canary")), "{args:?}");
    }
    // They go where they belong.
    for (args, canary) in [
        (&["send", "hi"][..], "canary-of-a-key"),
        (&["send", "--url", &format!("{}/a2a/agents/x", work.url), "hi"], "canary-of-a-key"),
        (&["tenant", "list"], "canary-of-an-admin"),
    ] {
        failed(&run(&home, args, &named), 4);
        assert!(work.take().iter().any(|head| head.contains(canary)), "{args:?}");
    }
}

#[test]
fn a_flag_is_sent_to_the_target_of_its_command() {
    let home = Home::on_sqlite();
    let (work, evil) = (Recorder::refusing(), Recorder::refusing());
    for flag in ["--token", "--api-key"] {
        for args in [&["send", "hi"][..], &["task", "list"], &["card", "get"], &["a2a", "card-list"]] {
            let flags = [flag, "canary-of-a-flag"];
            let args = [args, &flags].concat();
            let args = if args[0] == "card" {
                [&args[..], &[evil.url.as_str()]].concat()
            } else {
                [&args[..], &["--url", &evil.url]].concat()
            };
            failed(&run(&home, &args, &[("SB_URL", &work.url)]), 4);
            let heads = evil.take();
            assert!(heads.iter().any(|head| head.contains("canary-of-a-flag")), "{args:?}: {heads:?}");
            assert!(heads.iter().all(|head| !head.contains("canary-of-a-token")), "{args:?}");
        }
    }
}

#[test]
fn a_flag_does_not_follow_a_conversation_to_another_server() {
    let home = Home::on_sqlite();
    let server = home.serve();
    let evil = Recorder::refusing();
    let token = home.token();
    let lines = format!("/agent {0}\n/a2a agents --url {0}\n/a2a consume x --url {0}\n/agent run {0} hi\n", evil.url);
    let params = ["--svc-param", "Authorization: Bearer canary-of-a-param"];
    let args = [&["chat", "echo", "--url", &server.url, "--token", &token][..], &params].concat();
    home.pipe(&args, &lines);
    let heads = evil.take();
    assert!(!heads.is_empty());
    for head in heads {
        assert!(!head.contains(&token) && !head.contains("canary"), "{head}");
    }
}

#[test]
fn local_verbs_call_the_listen_address_and_never_the_public_url() {
    let home = Home::new();
    let public = Recorder::refusing();
    home.configure(&format!("public_url = \"{}\"\ndefault_agent = \"echo\"\n", public.url));
    let server = home.serve();
    assert_eq!(home.ok(&["send", "hi"]), "hi\n");
    assert_eq!(home.ok(&["send", "--stream", "--agent", "echo", "hi"]), "hi\n");
    assert_eq!(home.ok(&["send", "--url", &server.url, "--binding", "jsonrpc", "hi"]), "hi\n");
    assert_eq!(worked(&home.pipe(&["chat"], "hi\n")).trim(), "hi");
    assert!(home.ok(&["task", "list"]).contains("completed"));
    assert!(home.ok(&["agent", "list"]).contains("running"));
    assert!(home.ok(&["agent", "show", "echo"]).contains("echo"));
    assert!(home.ok(&["tenant", "list"]).contains("default"));
    assert!(home.ok(&["a2a", "card-list"]).contains("echo"));
    assert!(
        home.ok(&["card", "get", "--agent", "echo"]).contains(&server.url),
        "a card names the address it is fetched by"
    );
    home.ok(&["bench", "--duration", "100ms", "--warmup", "0s"]);
    assert_eq!(public.take(), Vec::<String>::new());
    let doctor = text(&home.run(&["doctor"]).stdout);
    assert!(doctor.contains(&format!("answers at {}", server.url)), "{doctor}");
    public.take();
    // The stored token is for the listen address alone.
    home.run(&["send", "--url", &public.url, "hi"]);
    let heads = public.take();
    assert!(!heads.is_empty() && heads.iter().all(|head| !head.contains(&home.token())), "{heads:?}");
    let stored: serde_json::Value =
        serde_json::from_slice(&std::fs::read(home.path("data/cli.json")).unwrap()).unwrap();
    assert_eq!(stored["url"], server.url.as_str());
}

/// Any user of a machine may listen on another loopback address at the port of a server.
#[test]
fn another_loopback_address_is_another_origin() {
    let home = Home::new();
    let server = home.serve();
    let port = server.url.rsplit(':').next().unwrap();
    let neighbor = Recorder::refusing_at(&format!("127.0.0.2:{port}"));
    home.pipe(&["profile", "add", "home", "--url", &server.url, "--token-file", "-"], "canary-of-a-profile");
    let (token, admin) = (home.token(), home.admin_token());
    let named = [("SB_URL", server.url.as_str())];
    let sends = ["send", "--url", &neighbor.url, "hi"];
    for output in [
        home.run(&sends),
        home.command(&sends).env("SB_PROFILE", "home").output().unwrap(),
        run(&home, &sends, &named),
        run(&home, &["tenant", "list", "--url", &neighbor.url], &named),
        home.run(&["tenant", "list", "--url", &neighbor.url]),
    ] {
        assert!(!output.status.success());
        for head in neighbor.take() {
            assert!(![&token, &admin, "canary"].iter().any(|secret| head.contains(*secret)), "{head}");
        }
    }
    // `localhost` is the server, at the address that it listens on.
    let url = format!("http://localhost:{port}");
    assert_eq!(home.ok(&["send", "--url", &url, "hi"]), "hi\n");
    assert!(home.ok(&["tenant", "list", "--url", &url]).contains("default"));
    let sent = home.command(&["send", "hi"]).env("SB_URL", &url).env("SB_TOKEN", &token).output().unwrap();
    assert_eq!(worked(&sent), "hi\n");
    assert_eq!(neighbor.take(), Vec::<String>::new());
}

#[test]
fn a_shell_is_offered_plain_ids_only() {
    const HOSTILE: &[&str] = &[
        "$(touch${IFS}x)",
        "`id`",
        "a;b",
        "a b",
        "a\nb",
        "a'b",
        "a*",
        "~root",
        "--help",
        "é",
        "",
        "..",
        "a\u{202e}b",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    ];
    const SAID: &str = "$(touch x)\n\u{202e}\u{1b}[2J";
    let listed = |member: &str, one: &dyn Fn(&str, &str) -> Value| {
        let all = HOSTILE.iter().map(|id| one(id, "n")).chain([one("good-1.x_Y", SAID)]);
        json!({member: all.collect::<Vec<_>>()}).to_string()
    };
    let agents = listed("agents", &|id, name| json!({"id": id, "name": name}));
    let tasks = listed("requests", &|id, name| json!({"request_id": id, "agent_id": name, "state": name}));
    let contexts = listed("requests", &|id, name| json!({"context_id": id, "agent_id": name, "state": name}));
    let home = Home::on_sqlite();
    for (body, line) in [
        (&agents, &["send", "--agent", ""][..]),
        (&agents, &["agent", "show", ""]),
        (&tasks, &["task", "get", ""]),
        (&tasks, &["task", "delete", ""]),
        (&tasks, &["send", "--task", ""]),
        (&contexts, &["send", "--context", ""]),
        (&contexts, &["context", "delete", ""]),
    ] {
        let server = Recorder::start(200, body.clone().leak());
        for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
            let (verb, value) = line.split_at(line.len() - 1);
            let place = ["--url", server.url.as_str()];
            // The value of an option follows it.
            let at = if verb.last().is_some_and(|word| word.starts_with("--")) { verb.len() - 1 } else { verb.len() };
            let words = [&["--", "sb"], &verb[..at], &place, &verb[at..], value].concat();
            let mut asking = home.command(&words);
            let index = (words.len() - 2).to_string();
            let asked = asking.env("SB_COMPLETE", shell).env("_CLAP_COMPLETE_INDEX", index).output().unwrap();
            let offered = worked(&asked);
            assert!(!server.take().is_empty(), "{shell} {line:?} asks");
            // What else fits, options for example, is none of the server's.
            assert_eq!(offered.matches("good-1.x_Y").count(), 1, "{shell} {line:?}: {offered}");
            for bad in ["IFS", "id`", "a;b", "a b", "a'b", "a*", "~root", "é", "\u{202e}", "\u{1b}", "xxxx"] {
                assert!(!offered.contains(bad), "{shell} {line:?} offers {bad}: {offered}");
            }
            let values = offered.split(['\n', '\u{b}']).map(|value| value.trim().trim_matches('"'));
            assert!(values.clone().all(|value| value != "b" && value != "a"), "{shell} {line:?}: {offered:?}");
        }
    }
}

#[test]
fn a_card_is_fetched_without_the_variables() {
    let home = Home::on_sqlite();
    let server = Recorder::refusing();
    let named = [("SB_URL", server.url.as_str())];
    for verb in ["get", "verify"] {
        let key = home.write("key.jwks", r#"{"keys":[]}"#);
        let args = ["card", verb, &server.url];
        let args =
            if verb == "verify" { [&args[..], &["--mode", "prefer", "--key", &key]].concat() } else { args.to_vec() };
        let output = run(&home, &args, &named);
        assert!(!output.status.success(), "{args:?}");
        assert!(server.take().iter().all(|head| !head.contains("canary")), "{args:?}");
    }
    for args in [&["card", "get", &server.url][..], &["card", "get"]] {
        let said = failed(&run(&home, args, &named), 4);
        let heads = server.take();
        assert!(!heads.is_empty() && heads.iter().all(|head| !head.contains("canary")), "{args:?}: {heads:?}");
        assert!(said.contains("SB_API_KEY and SB_TOKEN were not sent") && said.contains("--token"), "{said}");
    }
    failed(&run(&home, &["card", "get", &server.url, "--token", "canary-of-a-flag"], &named), 4);
    assert!(server.take().iter().any(|head| head.contains("canary-of-a-flag")), "a flag is meant");
}

#[test]
fn names_of_others_steer_no_terminal_and_break_no_line() {
    let home = Home::on_sqlite();
    for (sign, shown) in [
        ("\u{202e}", "\\u{202e}"),
        ("\u{2066}", "\\u{2066}"),
        ("\u{1b}[2J", "\\u{1b}"),
        ("\u{7}", "\\u{7}"),
        ("\r", ""),
        ("\n", ""),
        ("\u{85}", ""),
        ("\u{2028}", ""),
    ] {
        let name = format!("begin{sign}FAKE end");
        let remote = json!({
            "name": name, "registry": name, "description": name, "reachable": false, "error": name, "url": name,
            "breaker": "closed", "skills": [],
        });
        let skill = json!({"id": name, "name": name, "description": name, "tags": []});
        let interface = json!({"url": "http://127.0.0.1:9/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"});
        let card = json!({
            "name": name, "description": name, "version": name, "supportedInterfaces": [interface], "capabilities": {},
            "defaultInputModes": [], "defaultOutputModes": [], "skills": [skill], "provider": {"organization": name, "url": name},
        });
        // JSON escapes control characters by itself, and no others.
        for (body, args) in [
            (json!({"remotes": [remote]}), &["remote", "list"][..]),
            (card.clone(), &["agent", "list"]),
            (card.clone(), &["card", "get"]),
        ] {
            let server = Recorder::start(200, body.to_string().leak());
            let flag = if args[0] == "card" { &[server.url.as_str()][..] } else { &["--url", server.url.as_str()] };
            let said = worked(&run(&home, &[args, flag].concat(), &[("SB_URL", &server.url)]));
            assert!(said.contains("FAKE end"), "{args:?} {sign:?}: {said}");
            assert!(!said.contains(sign) || sign == "\n", "{args:?} {sign:?}: {said:?}");
            assert!(!said.lines().any(|line| line.trim_start().starts_with("FAKE")), "{args:?} {sign:?}: {said:?}");
            let is_escaped_by_json = args[0] == "card" && sign.starts_with(|sign: char| sign < ' ');
            assert!(is_escaped_by_json || said.contains(shown), "{args:?} {sign:?}: {said:?}");
        }
    }
}
