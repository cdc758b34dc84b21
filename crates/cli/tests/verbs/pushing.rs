//! The key file of webhooks. `pushing.md` has the verbs.

use std::{process::Stdio, time::Duration};

use super::rig::Home;

/// Starts a server with these key files, reads the tenant's signing secret and stops it.
fn secret_with(home: &Home, key: &str, previous: Option<&str>) -> String {
    let mut args = vec!["--key-file", key];
    args.extend(previous.iter().flat_map(|previous| ["--key-file-previous", previous]));
    let server = home.serve_with(&args, &[]);
    let secret = home.ok(&["push", "secret"]);
    server.stop();
    secret
}

#[test]
fn a_key_file_is_replaced_and_a_start_killed_in_the_middle_loses_nothing() {
    let home = Home::new();
    let keys = ["one", "two", "three"].map(|name| home.write(&format!("{name}.key"), format!("{name:-<40}")));
    let [one, two, three] = [0, 1, 2].map(|n| keys[n].as_str());
    let secret = secret_with(&home, one, None);
    assert!(secret.starts_with("whsec_"), "{secret}");
    assert_eq!(secret_with(&home, one, Some(two)), secret, "prepared: nothing changes");
    assert_eq!(secret_with(&home, two, Some(one)), secret, "replaced");
    assert_eq!(secret_with(&home, two, None), secret, "the old file is not needed any more");
    let refused = home.fails(&["serve", "--listen", "127.0.0.1:0", "--key-file", one], 2);
    assert!(refused.contains("not the one that wraps"), "{refused}");

    // Killed before, while and after the keys are wrapped anew: they are wrapped by the one file or by the other.
    let args = ["--key-file", three, "--key-file-previous", two];
    for wait in [0, 20, 60, 120, 200, 300] {
        let mut command = home.serving(&[], &args);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert_eq!(secret_with(&home, three, Some(two)), secret, "whatever the kills have left");
    assert_eq!(secret_with(&home, three, None), secret);
}
