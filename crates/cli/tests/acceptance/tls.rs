//! TLS at the server's own door: both versions of HTTP, gRPC, certificates that change, and what is said when they are no use.

use std::{fs, path::Path, time::Duration};

use reqwest::{Client, Version, tls::Certificate};
use serde_json::{Value, json};
use testkit::certificates::{certify, certify_expired, certify_for};

use super::{
    http::{message, state},
    rig::TOKEN,
};
use crate::harness::{Home, Server};

/// A home with an authority and a certificate of `localhost` by it.
fn certified() -> Home {
    let home = Home::new();
    certify(&home.path(""), "ca", None);
    certify(&home.path(""), "server", Some("ca"));
    home
}

async fn serve(home: &Home, args: &[&str]) -> (Server, String) {
    let file = |name: &str| home.path(name).display().to_string();
    let tls = ["--tls-cert", &file("server.pem"), "--tls-key", &file("server.key")];
    let mut command = home.serving(&[], &[&tls, args].concat());
    let server = home.start(command.env("SB_BOOTSTRAP_TOKEN", TOKEN)).await;
    let port = server.url.strip_prefix("https://127.0.0.1:").expect("it says https").to_owned();
    (server, format!("https://localhost:{port}"))
}

/// Who believes this authority and no other.
fn client(ca: &Path, http2: bool) -> Client {
    let ca = fs::read(ca).expect("the authority was made");
    let ca = Certificate::from_pem(&ca).expect("it is a certificate");
    let builder = Client::builder().tls_certs_only([ca]).no_proxy().timeout(Duration::from_secs(10));
    if http2 { builder } else { builder.http1_only() }.build().expect("a client")
}

async fn send(client: &Client, base: &str) -> reqwest::Result<(Version, Value)> {
    let request = client.post(format!("{base}/a2a/message:send")).header("A2A-Version", "1.0").bearer_auth(TOKEN);
    let body = json!({"message": message("hello")}).to_string();
    let response = request.header("Content-Type", "application/json").body(body).send().await?;
    let version = response.version();
    Ok((version, serde_json::from_slice(&response.bytes().await?).expect("JSON")))
}

#[tokio::test]
async fn tls_is_spoken_in_both_versions_of_http() {
    let home = certified();
    // The certificate is that of a name, so cards have to say the name.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (listen, public) = (format!("127.0.0.1:{port}"), format!("https://localhost:{port}"));
    let (_server, base) = serve(&home, &["--listen", &listen, "--public-url", &public]).await;
    assert_eq!(base, public);
    for (http2, expected) in [(false, Version::HTTP_11), (true, Version::HTTP_2)] {
        let (version, sent) = send(&client(&home.path("ca.pem"), http2), &base).await.unwrap();
        assert_eq!(version, expected);
        assert_eq!(state(&sent["task"]), "COMPLETED");
    }
    let card = client(&home.path("ca.pem"), true).get(format!("{base}/.well-known/agent-card.json"));
    let card: Value = serde_json::from_slice(&card.send().await.unwrap().bytes().await.unwrap()).unwrap();
    assert_eq!(card["supportedInterfaces"][0]["url"], format!("{base}/a2a/jsonrpc"));

    // gRPC is HTTP/2 all the same: an empty message to the health service.
    let health = client(&home.path("ca.pem"), true).post(format!("{base}/grpc.health.v1.Health/Check"));
    let health = health.header("Content-Type", "application/grpc").header("TE", "trailers").body(vec![0; 5]);
    let health = health.send().await.unwrap();
    assert_eq!(
        (health.version(), &health.headers()["content-type"]),
        (Version::HTTP_2, &"application/grpc".parse().unwrap())
    );
    assert_eq!(health.bytes().await.unwrap()[5..], [8, 1], "it serves");

    // Whoever does not believe the authority, or speaks without TLS, gets nothing, and disturbs nobody.
    certify(&home.path(""), "other", None);
    assert!(send(&client(&home.path("other.pem"), true), &base).await.is_err());
    let plain = Client::builder().no_proxy().build().unwrap();
    assert!(plain.get(base.replace("https", "http")).send().await.is_err());
    assert!(send(&client(&home.path("ca.pem"), true), &base).await.is_ok());

    // Our own command line, told whom to believe. The local one calls the listen address and knows the certificate's name.
    for args in [&["send", "hello"][..], &["send", "--url", &listening(&base), "hello"], &["tenant", "list"]] {
        let mut command = home.command(args);
        let output = command.env("SSL_CERT_FILE", home.path("ca.pem")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let mut command = home.command(&["send", "--url", &base, "--token", TOKEN, "hello"]);
    let output = command.env("SSL_CERT_FILE", home.path("ca.pem")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\n");
}

#[tokio::test]
async fn a_certificate_is_read_again_when_it_changes() {
    let home = certified();
    let (server, base) = serve(&home, &[]).await;
    let old = client(&home.path("ca.pem"), true);
    assert!(send(&old, &base).await.is_ok());

    // Half of a change, and nonsense, are not used.
    certify(&home.path(""), "other", None);
    certify(&home.path(""), "next", Some("other"));
    fs::copy(home.path("next.pem"), home.path("server.pem")).unwrap();
    until(|| server.log().contains("the one before stays")).await;
    assert!(send(&client(&home.path("ca.pem"), true), &base).await.is_ok(), "the old pair still greets");

    fs::copy(home.path("next.key"), home.path("server.key")).unwrap();
    until(|| server.log().contains("the certificate was read again")).await;
    assert!(send(&client(&home.path("other.pem"), true), &base).await.is_ok());
    assert!(send(&client(&home.path("ca.pem"), true), &base).await.is_err());
    assert!(send(&old, &base).await.is_ok(), "who is connected stays so");

    // A pipe without a writer is refused, and does not stop the next change.
    pipe(&home.path("pipe"));
    fs::rename(home.path("pipe"), home.path("server.pem")).unwrap();
    until(|| server.log().contains("not a regular file")).await;
    certify(&home.path(""), "third", None);
    certify(&home.path(""), "last", Some("third"));
    fs::rename(home.path("last.key"), home.path("server.key")).unwrap();
    fs::rename(home.path("last.pem"), home.path("server.pem")).unwrap();
    until(|| server.log().matches("the certificate was read again").count() == 2).await;
    assert!(send(&client(&home.path("third.pem"), true), &base).await.is_ok());
}

fn pipe(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().is_ok_and(|status| status.success()));
}

/// The same server by its address.
fn listening(base: &str) -> String {
    base.replace("localhost", "127.0.0.1")
}

async fn until(what: impl Fn() -> bool) {
    for _ in 0..300 {
        if what() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it does not happen");
}

#[tokio::test]
async fn a_certificate_that_is_no_use_is_said_before_anything_is_made() {
    let home = certified();
    let file = |name: &str| home.path(name).display().to_string();
    fs::write(home.path("empty.pem"), "").unwrap();
    certify(&home.path(""), "stranger", Some("ca"));
    pipe(&home.path("pipe"));
    std::os::unix::fs::symlink("/dev/zero", home.path("zero")).unwrap();
    for (cert, key, said) in [
        ("none.pem", "server.key", "none.pem"),
        ("empty.pem", "server.key", "no certificate"),
        ("server.pem", "empty.pem", "no private key"),
        ("server.pem", "stranger.key", "does not go with the certificate"),
        ("pipe", "server.key", "not a regular file"),
        ("server.pem", "pipe", "not a regular file"),
        ("zero", "server.key", "not a regular file"),
    ] {
        let stderr = home.fails(&["serve", "--tls-cert", &file(cert), "--tls-key", &file(key)], 2);
        assert!(stderr.contains(said) && stderr.contains("hint"), "{cert} {key}: {stderr}");
        assert!(!stderr.contains("PRIVATE KEY-----\n"), "{stderr}");
    }
    assert!(home.fails(&["serve", "--tls-cert", &file("server.pem")], 2).contains("--tls-key"));
    assert!(!home.path("data/cli.json").exists());
}

#[tokio::test]
async fn browsers_are_told_to_come_back_by_tls_where_the_public_url_is_https() {
    let said = async |args: &[&str], host: &str| {
        let home = certified();
        let (_server, base) = serve(&home, args).await;
        let client = client(&home.path("ca.pem"), false);
        let mut told = Vec::new();
        for path in ["/.well-known/agent-card.json", "/a2a/tasks", "/nothing"] {
            let response = client.get(format!("{base}{path}")).header("Host", host).send().await.unwrap();
            told.push(
                response.headers().get("strict-transport-security").map(|value| value.to_str().unwrap().to_owned()),
            );
        }
        told.dedup();
        told
    };
    let public = ["--public-url", "https://sb.example"];
    assert_eq!(said(&public, "sb.example").await, [Some("max-age=31536000".to_owned())]);
    for host in ["localhost", "localhost:8765", "127.0.0.1:8765", "[::1]:8765"] {
        assert_eq!(said(&public, host).await, [None], "the header is about all ports of {host}");
    }
    assert_eq!(said(&[&public[..], &["--hsts=false"]].concat(), "sb.example").await, [None]);
    assert_eq!(said(&[], "sb.example").await, [None], "without a public URL nobody knows by which name it is called");
}

/// A command that believes the authority of the home, or none but another one.
fn call(home: &Home, ca: &str, args: &[&str]) -> (i32, String, Duration) {
    let begun = std::time::Instant::now();
    let output = home.command(args).env("SSL_CERT_FILE", home.path(ca)).output().expect("the command runs");
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned(), begun.elapsed())
}

/// Fails at once, says one cause and what to do, and logs nothing.
#[track_caller]
fn fails_at_once(home: &Home, ca: &str, args: &[&str], cause: &str, hint: &str) {
    let (code, said, took) = call(home, ca, args);
    assert_eq!(code, 3, "{args:?}: {said}");
    assert!(said.contains(cause) && said.contains(hint), "{args:?}: {said}");
    let lines = |begin: &str| said.lines().filter(|line| line.starts_with(begin)).count();
    assert_eq!((lines("error: "), lines("cause: "), lines("hint: ")), (1, 1, 1), "{args:?}: {said}");
    assert_eq!(said.lines().count(), 3, "{args:?}: {said}");
    assert!(took < Duration::from_secs(20), "{args:?}: {took:?}");
}

#[tokio::test]
async fn errors_of_certificates_and_of_protocols_are_final() {
    let home = certified();
    certify(&home.path(""), "other", None);
    let (_server, base) = serve(&home, &[]).await;
    let (named, by_address) = (format!("{base}/a2a/agents/echo"), listening(&base));
    let call = |url: &str, verb: &[&str]| -> Vec<String> {
        let flags = ["--url", url, "--token", TOKEN, "--timeout", "60s"];
        [verb, &flags].concat().into_iter().map(str::to_owned).collect()
    };
    let check = |url: &str, ca: &str, cause: &str, hint: &str| {
        for verb in
            [&["send", "hello"][..], &["send", "--stream", "hello"], &["task", "list"], &["task", "list", "--watch"]]
        {
            let args = call(url, verb);
            fails_at_once(&home, ca, &args.iter().map(String::as_str).collect::<Vec<_>>(), cause, hint);
        }
    };
    check(&by_address, "ca.pem", "its certificate is for localhost, not for 127.0.0.1", "--public-url");
    check(&named, "other.pem", "does not trust", "SSL_CERT_FILE=ca.pem");
    // The reverse: an http URL of a port that speaks TLS.
    let plain = base.replace("https://", "http://");
    check(&plain, "ca.pem", "it speaks TLS at this port", &format!("use {base}"));
    let worker = ["a2a", "work", "q", "--url", &by_address, "--token", TOKEN, "--", "true"];
    let (code, said, took) = self::call(&home, "ca.pem", &worker);
    assert!(code != 0 && said.contains("not for 127.0.0.1") && !said.contains("ERROR"), "{code} {said}");
    assert!(took < Duration::from_secs(20), "{took:?}");
    let (code, said, _) = self::call(&home, "ca.pem", &["chat", &by_address, "--token", TOKEN]);
    assert!(code != 0 && said.contains("not for 127.0.0.1") && !said.contains("ERROR"), "{code} {said}");

    // gRPC without TLS at the same port.
    let args = ["send", "--url", &plain, "--token", TOKEN, "--binding", "grpc", "--timeout", "60s", "hello"];
    fails_at_once(&home, "ca.pem", &args, "it speaks TLS at this port", &format!("use {base}"));
}

#[tokio::test]
async fn https_at_a_plain_port_names_the_url_to_use() {
    let home = certified();
    let server = home.start(home.serving(&[], &[]).env("SB_BOOTSTRAP_TOKEN", TOKEN)).await;
    let secure = server.url.replace("http://", "https://");
    let (cause, hint) = ("it speaks plain HTTP at this port", format!("use {}", server.url));
    for verb in [&["send", "hello"][..], &["send", "--stream", "hello"], &["task", "list"]] {
        let args = [verb, &["--url", &secure, "--token", TOKEN, "--timeout", "60s"]].concat();
        fails_at_once(&home, "ca.pem", &args, cause, &hint);
    }
}

#[tokio::test]
async fn an_expired_certificate_is_said_to_callers_and_at_the_start() {
    let home = certified();
    certify_expired(&home.path(""), "server", "ca");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (listen, public) = (format!("127.0.0.1:{port}"), format!("https://localhost:{port}"));
    let (server, base) = serve(&home, &["--listen", &listen, "--public-url", &public]).await;
    let args = ["send", "--url", &base, "--token", TOKEN, "--timeout", "60s", "hello"];
    let expired = "its certificate has expired on 2020-01-02T00:00:00.000Z";
    fails_at_once(&home, "ca.pem", &args, expired, "clock");
    let log = server.log();
    assert!(log.contains("WARN") && log.contains("it has expired on 2020-01-02"), "{log}");
    assert!(!log.contains("not valid for name"), "{log}");
}

#[tokio::test]
async fn a_certificate_that_does_not_cover_the_url_is_warned_of() {
    let home = certified();
    let file = |name: &str| home.path(name).display().to_string();
    let configure = |more: &str| {
        home.configure(&format!("tls_cert = \"{}\"\ntls_key = \"{}\"\n{more}", file("server.pem"), file("server.key")));
    };
    configure("");
    let server = home.start(&mut home.serving(&[], &[])).await;
    let log = server.log();
    assert!(log.contains("WARN") && log.contains("127.0.0.1") && log.contains("public_url"), "{log}");
    for command in [&["config", "check"][..], &["doctor"]] {
        let said = String::from_utf8_lossy(&home.command(command).output().unwrap().stdout).into_owned();
        let line = said.lines().find(|line| line.contains("certificate")).unwrap_or_else(|| panic!("{said}"));
        assert!(line.contains("warn") && line.contains("localhost"), "{said}");
    }
    configure("public_url = \"https://localhost\"\n");
    let said = home.ok(&["config", "check"]);
    let line = said.lines().find(|line| line.contains("certificate")).unwrap_or_else(|| panic!("{said}"));
    assert!(line.starts_with("ok"), "{said}");
}

#[tokio::test]
async fn local_verbs_accept_a_certificate_of_the_public_name_or_of_the_address() {
    for names in ["DNS:agents.example.com", "IP:127.0.0.1"] {
        let home = certified();
        certify_for(&home.path(""), "server", Some("ca"), names);
        let grpc = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        let args = ["--public-url", "https://agents.example.com", "--grpc-port", &grpc];
        let (_server, _) = serve(&home, &args).await;
        for args in [&["send", "hello"][..], &["send", "--binding", "grpc", "hello"], &["tenant", "list"]] {
            let (code, said, _) = call(&home, "ca.pem", &[args, &["--timeout", "20s"]].concat());
            assert_eq!(code, 0, "{names} {args:?}: {said}");
        }
    }
    // One of neither is refused.
    let home = certified();
    certify_for(&home.path(""), "server", Some("ca"), "DNS:elsewhere.example.com");
    let (_server, _) = serve(&home, &["--public-url", "https://agents.example.com"]).await;
    let cause = "its certificate is for elsewhere.example.com, not for agents.example.com";
    fails_at_once(&home, "ca.pem", &["send", "hello"], cause, "--public-url");
}
