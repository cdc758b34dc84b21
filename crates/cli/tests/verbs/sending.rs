//! `sb send`: what a message can be made of, what is printed, and what the exit code says.

use std::net::TcpListener;

use super::rig::{Home, failed, text, worked};

#[test]
fn a_message_has_text_files_data_and_metadata() {
    let home = Home::new();
    let _server = home.serve();
    let picture = home.write("a picture.png", [0x89, b'P', 0, 1]);
    let notes = home.write("notes.md", "# Notes\n");
    let data = home.write("data.json", "{\"n\": 1.0, \"big\": 12345678901234567890}");
    let at_data = format!("@{data}");
    let args = [
        "send",
        "--agent",
        "echo",
        "--file",
        &picture,
        "--file",
        &notes,
        "--data",
        &at_data,
        "--data",
        "null",
        "--metadata",
        "{\"k\":[1]}",
        "look",
    ];
    let reply = home.json(&args).remove(0);
    let parts = &reply["task"]["artifacts"][0]["parts"];
    assert_eq!(parts[0]["text"], "look");
    assert_eq!(parts[1]["raw"], "iVAAAQ==");
    assert_eq!((&parts[1]["filename"], &parts[1]["mediaType"]), (&"a picture.png".into(), &"image/png".into()));
    assert_eq!(parts[2]["mediaType"], "text/markdown");
    assert!(parts[4].as_object().unwrap().contains_key("data") && parts[4]["data"].is_null());
    assert_eq!(reply["task"]["history"][0]["metadata"]["k"][0], 1);
    // As text: what cannot be shown is named, and JSON of others keeps its digits.
    let shown = home.ok(&args);
    assert!(shown.contains("[a picture.png, 4 bytes]") && shown.contains("\"big\": 12345678901234567890"), "{shown}");

    assert_eq!(home.ok(&["send", "--agent", "echo", "--data", "[1.0]"]), "[1.0]\n", "text is optional beside parts");
    assert_eq!(worked(&home.pipe(&["send", "--agent", "echo", "-"], "two\nlines\n")), "two\nlines\n");
}

#[test]
fn a_message_that_cannot_be_made_is_a_usage_error() {
    let home = Home::new();
    for args in [
        &["send"][..],
        &["send", "--file", "/nowhere/x"],
        &["send", "--data", "{"],
        &["send", "--data", "@/nowhere/x"],
        &["send", "--metadata", "[1]", "x"],
        &["send", "--metadata", "{", "x"],
    ] {
        failed(&home.run(args), 2);
    }
    assert!(failed(&home.pipe(&["send", "-"], "\n"), 2).contains("stdin"));
}

#[test]
fn tasks_and_contexts_are_continued() {
    let home = Home::new();
    let _server = home.serve();
    let asked = home.json(&["send", "--agent", "ask", "--context", "c-1", "start"]).remove(0);
    assert_eq!(asked["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    assert_eq!(asked["task"]["contextId"], "c-1");
    let id = asked["task"]["id"].as_str().unwrap();
    let events = home.json(&["send", "--stream", "--agent", "ask", "--task", id, "42"]);
    assert!(events[0]["task"].is_object(), "a stream is one object a line, the task first");
    // A turn that was over before the task was read is all in that.
    let last = events.last().unwrap();
    let status = if events.len() > 1 { &last["statusUpdate"]["status"] } else { &last["task"]["status"] };
    assert_eq!(status["state"], "TASK_STATE_COMPLETED");
}

#[test]
fn text_has_no_control_codes_and_json_keeps_them() {
    let home = Home::new();
    let _server = home.serve();
    let said = "a\u{1b}[31mred\u{7}\r\nb";
    for mode in [&["send"][..], &["send", "--stream"]] {
        let shown = worked(&home.run(&[mode, &["--agent", "echo", said]].concat()));
        assert_eq!(shown, "a\u{fffd}[31mred\u{fffd}\nb\n");
    }
    let reply = home.json(&["send", "--agent", "echo", said]).remove(0);
    assert_eq!(reply["task"]["artifacts"][0]["parts"][0]["text"], said);
}

#[test]
fn every_exit_code_has_its_case() {
    let home = Home::new();
    let server = home.serve();
    home.ok(&["send", "--agent", "echo", "x"]);
    for mode in [&["send"][..], &["send", "--stream"]] {
        let failing = |args: &[&str], code| failed(&home.run(&[mode, args].concat()), code);
        assert!(failing(&["--agent", "fail", "x"], 1).contains("the task failed"));
        failing(&["--agent", "nobody", "x"], 1);
        failing(&["--url", "nonsense", "x"], 2);
        failing(&["--timeout", "soon", "x"], 2);
        assert!(failing(&["--token", "sb_wrong", "x"], 4).contains("hint: "));
        let slow = failing(&["--agent", "slow", "--timeout", "300ms", "5000"], 5);
        assert!(slow.contains("300ms") && slow.contains("hint: "), "{slow}");
    }
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    assert!(home.fails(&["send", "--url", &nobody, "x"], 3).contains("hint: "));
    assert!(home.fails(&["send", "--stream", "--url", &nobody, "x"], 3).contains("cannot reach"));
    drop(server);
    home.fails(&["send", "x"], 3);
    assert_eq!(text(&home.run(&["send", "x"]).stdout), "", "errors are not on stdout");
}
