//! `sb agent` with a terminal, and with a certificate that is not trusted. `agents.md` has what else it does.

use std::fs;

use testkit::certificates::certify;

use super::{
    rig::{Home, text, worked},
    terminal::Terminal,
};

const MODELS: &str = "default = \"script/m\"\n[providers.script]\napi = \"scripted\"\nfile = \"replies.json\"\n";
const REPLIES: &str = "{\"replies\":[{\"text\":\"Noted.\"}]}";

/// A home with a model that says one thing.
fn thinking() -> Home {
    let home = Home::new();
    home.write(".config/switchboard/models.toml", MODELS);
    home.write(".config/switchboard/replies.json", REPLIES);
    home
}

#[test]
fn a_first_agent_is_made_from_questions() {
    let home = thinking();
    let mut terminal = Terminal::start(&mut home.command(&["agent", "new"]));
    for (question, answer) in [
        ("id, which it is called by: ", ""),
        ("note: an agent needs an id", "not an id"),
        ("note: `not an id` is not an agent id", "notes"),
        ("name, for people [notes]: ", "Notes of ours"),
        ("role: what it is, in a few words [assistant]: ", ""),
        ("goal: what it is there for: ", "keep what was decided"),
        ("model [script/m]: ", "two words"),
        ("note: `llm.model`: must be a name", ""),
        ("commands that it may use, or `none` [all]: ", "wirte"),
        ("did you mean `/write`?", "write"),
    ] {
        terminal.shows(question);
        terminal.types(answer);
    }
    let shown = terminal.shows("write this to ");
    assert!(shown.contains("name = \"Notes of ours\"\nrole = \"assistant\"\n"), "{shown}");
    terminal.types("");
    let (code, screen) = terminal.ends();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.ends_with("talk to it: sb chat notes\n"), "{screen}");
    let file = fs::read_to_string(home.agents().join("notes.toml")).unwrap();
    assert!(file.contains("capabilities = [\"/write\"]") && !file.contains("model ="), "{file}");

    // Whoever does not want to replace it names another one, or says no in the end.
    let args = ["agent", "new", "--role", "r", "--goal", "g", "--model", "script/m", "--capability", "none"];
    let mut terminal = Terminal::start(&mut home.command(&args));
    for (question, answer) in [
        ("id, which it is called by: ", "notes"),
        ("replace it? [y/N] ", ""),
        ("choose another id", "other"),
        ("name, for people [other]: ", ""),
        ("write this to ", "n"),
    ] {
        terminal.shows(question);
        terminal.types(answer);
    }
    let (code, screen) = terminal.ends();
    assert!(code == Some(1) && screen.contains("no agent was made"), "{screen}");
    assert!(!home.agents().join("other.toml").exists());
    assert_eq!(fs::read_to_string(home.agents().join("notes.toml")).unwrap(), file);
}

#[test]
fn a_running_server_whose_certificate_is_not_trusted_is_not_taken_for_a_stopped_one() {
    let home = Home::new();
    home.add_agent("la.toml", "kind = \"command\"\n[command]\nargv = [\"cat\"]\n");
    certify(&home.path(""), "ca", None);
    certify(&home.path(""), "server", Some("ca"));
    let file = |name: &str| home.path(name).display().to_string();
    let _server = home.serve_with(&["--tls-cert", &file("server.pem"), "--tls-key", &file("server.key")], &[]);
    let said = home.fails(&["agent", "list"], 3);
    assert!(said.contains("SSL_CERT_FILE") && !said.contains("no server is running"), "{said}");
    let restarted = home.run(&["agent", "restart", "la"]);
    assert!(!text(&restarted.stderr).contains("nothing to restart"), "{}", text(&restarted.stderr));
    assert!(worked(&restarted).starts_with("restarted agent la"));
}
