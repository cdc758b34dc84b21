//! The corpus, run: one request after the other, and after each of them a look at the journal.

use serde_json::json;

use testkit::raw_http::RawReply;

use super::{
    corpus::{self, Names},
    expect,
    rig::{Rig, TENANTS},
    wire,
};

/// The issue asks for that many at least; the tables of wrong values come on top.
const AT_LEAST: usize = 150;

#[test]
fn s3_91_hostile_requests_get_their_errors_and_change_nothing() {
    let rig = Rig::start();
    let names = set_up(&rig);
    let cases = corpus::read(&names, rig.address());
    let mut seen = std::collections::BTreeSet::new();
    for case in &cases {
        assert!(seen.insert(case.name.as_str()), "two cases are called {}", case.name);
    }
    let by_table = cases.iter().filter(|case| case.name.starts_with("wrong:")).count();
    assert!(cases.len() - by_table >= AT_LEAST, "{} cases", cases.len());

    let mut failures = Vec::new();
    let mut before = rig.fingerprint();
    for case in &cases {
        let answer = wire::send(rig.address(), case.bytes.clone(), case.and_close);
        let judged = match &answer {
            Ok(answer) => expect::judge(&case.expect, &case.id, answer.as_ref()),
            Err(error) => Err(error.clone()),
        };
        if let Err(why) = judged {
            let got = answer.ok().flatten().map_or_else(|| "nothing".to_owned(), |answer| answer.shown());
            failures.push(format!("{}\n    expected {}\n    got      {got}\n    {why}", case.name, case.expect));
        }
        let after = rig.fingerprint();
        if after != before {
            failures.push(format!("{}\n    changed {}", case.name, after.changed_since(&before).join(", ")));
            before = after;
        }
    }
    if let Err(why) = rig.is_well() {
        failures.push(format!("the server is not well afterwards: {why}"));
    }
    let log = rig.log();
    let secrets = Rig::secrets_in(log.as_bytes());
    assert!(!log.is_empty(), "there is a log to look at");
    if !secrets.is_empty() {
        failures.push(format!("the log holds the token of {secrets:?}"));
    }
    if log.contains("panicked") {
        failures.push("something panicked, says the log".to_owned());
    }
    println!("{} hostile requests, {by_table} of them from tables of wrong values", cases.len());
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

/// JSON has numbers that no double holds. They may be refused or kept as they came, with and without a key; in no case is
/// that an error of the server's.
#[test]
fn a_number_beyond_a_double_is_refused_or_kept() {
    let rig = Rig::start();
    for (n, (special, key)) in [
        (r#""parts":[{"data":1e999}]"#, None),
        (r#""parts":[{"data":1e999}],"contextId":"c""#, None),
        (r#""parts":[{"data":[-1e999]}]"#, Some("k-1")),
        (r#""parts":[{"text":"x"}],"metadata":{"n":1e999}"#, Some("k-2")),
    ]
    .into_iter()
    .enumerate()
    {
        let body = format!(r#"{{"message":{{"messageId":"m-{n}","role":"ROLE_USER",{special}}}}}"#);
        let mut request = rig.request(0, "POST", "/a2a/message:send").header("Content-Type", "application/json");
        request.body = body.clone().into_bytes();
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        let before = rig.fingerprint();
        let first = rig.send(&request);
        match first.status {
            200 if key.is_some() || special.contains("contextId") => {
                // The answer holds the number too, so most JSON readers refuse it.
                let id = |reply: &RawReply| {
                    let text = String::from_utf8_lossy(&reply.body).into_owned();
                    text.strip_prefix(r#"{"task":{"id":""#).map(|rest| rest[..36].to_owned())
                };
                let again = rig.send(&request);
                assert_eq!(again.status, 200, "{body}: {}", again.shown());
                assert!(id(&first).is_some(), "{body}: {}", first.shown());
                assert_eq!(id(&again), id(&first), "{body}");
            }
            200 => {}
            400 => assert_eq!(rig.fingerprint(), before, "{body}"),
            _ => panic!("{body}: {}", first.shown()),
        }
    }
}

/// What the corpus speaks of: two tasks of the caller, two of another tenant, a page token of each.
fn set_up(rig: &Rig) -> Names {
    let text = |value: &serde_json::Value| value.as_str().expect("an id is text").to_owned();
    let (caller, other) = (0, 1);
    let finished = rig.task(caller, "echo", &json!({}));
    let open = rig.task(caller, "ask", &json!({}));
    let theirs = rig.task(other, "echo", &json!({}));
    rig.task(other, "ask", &json!({"contextId": theirs["contextId"]}));
    let page = |tenant| text(&rig.ok(&rig.request(tenant, "GET", "/a2a/tasks?pageSize=1"))["nextPageToken"]);
    let names = vec![
        ("$TASK", text(&finished["id"])),
        ("$CONTEXT", text(&finished["contextId"])),
        ("$OPEN", text(&open["id"])),
        ("$THEIRS", text(&theirs["id"])),
        ("$THEIR_CONTEXT", text(&theirs["contextId"])),
        ("$PAGE", page(caller)),
        ("$THEIR_PAGE", page(other)),
        ("$UNKNOWN", "01890a5d-ac96-774b-bcce-b302099a8057".to_owned()),
        ("$TOKEN", TENANTS[caller].1.to_owned()),
        ("$THEIR_TOKEN", TENANTS[other].1.to_owned()),
        ("$HOST", rig.address().to_owned()),
    ];
    assert!(names.iter().all(|(_, value)| !value.is_empty()), "{names:?}");
    names
}
