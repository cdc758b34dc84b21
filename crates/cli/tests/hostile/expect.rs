//! What an answer has to be. An expectation is a line of words, a dash where nothing is asked for:
//!
//! - `rest STATUS REASON FIELD`: a google.rpc.Status body, its reason, and the field that it names.
//! - `rpc CODE REASON FIELD`: HTTP 200 and a JSON-RPC error with details; `rpc/415 …` the same under another status.
//! - `v03 CODE - FIELD`: a JSON-RPC error as 0.3 has it, without details; its message names the field.
//! - `request 404`: the answer of the native requests to a cancel that finds nothing.
//! - `bare STATUS`: no body; the bytes were no HTTP that anybody would answer more kindly.
//! - `closed`: no answer, or a bare one of the 400s.
//! - `frames`: what HTTP/2 says to somebody who does not speak it.
//! - `empty`: a list of tasks that holds none and counts none.
//! - `ok STATUS`: a success that holds nothing of the attacker's.
//!
//! Beyond that every answer is small, is JSON in one object, holds no secret and no control characters, and blames no server error.

use serde_json::Value;

use testkit::raw_http::RawReply;

use super::rig::Rig;

/// The word that stands for an attacker's host in the corpus.
const EVIL: &str = "evil.example";
/// More than any error needs to say. What is longer repeats its input.
const ANSWER_BYTES: usize = 4096;

/// Says what is wrong with an answer.
pub(crate) fn judge(expect: &str, id: &Value, answer: Option<&RawReply>) -> Result<(), String> {
    let words: Vec<&str> = expect.split(' ').collect();
    let word = |at: usize| words.get(at).copied().filter(|word| *word != "-");
    let form = words[0];
    let Some(answer) = answer else {
        return if form == "closed" { Ok(()) } else { Err("the connection was closed".to_owned()) };
    };
    let secrets = Rig::secrets_in(&answer.raw);
    check(secrets.is_empty(), "the answer holds a token")?;
    check(answer.status < 500, "a server error")?;
    let number = word(1).and_then(|word| word.parse::<i64>().ok());
    let status = i64::from(answer.status);
    match form {
        "closed" => return check((400..500).contains(&status) && answer.body.is_empty(), "neither closed nor bare"),
        "frames" => return check(answer.status == 0, "not HTTP/2"),
        "empty" => {
            let body = answer.json()?;
            return check(
                status == 200 && body["tasks"] == Value::Array(Vec::new()) && body["totalSize"] == 0,
                "not empty",
            );
        }
        "bare" => return check(Some(status) == number && answer.body.is_empty(), "not bare"),
        "ok" => {
            check(Some(status) == number, "not that status")?;
            return check(!String::from_utf8_lossy(&answer.raw).contains(EVIL), "the attacker's host is in the answer");
        }
        _ => {}
    }
    check(answer.body.len() <= ANSWER_BYTES, "the answer is too long")?;
    check(answer.header("content-type") == Some("application/json"), "not application/json")?;
    let text = std::str::from_utf8(&answer.body).map_err(|_| "the body is not UTF-8 text")?;
    check(!text.chars().any(char::is_control), "a control character in the body")?;
    let body = answer.json()?;
    match form {
        "rest" => {
            check(Some(status) == number, "not that status")?;
            let error = only(&body, "error")?;
            check(error["code"].as_i64() == number, "code is not the status")?;
            check(error["status"].as_str().is_some_and(|status| !status.is_empty()), "no status")?;
            said(error)?;
            detailed(&error["details"], word(2), word(3))?;
            check((status == 405) == answer.header("allow").is_some(), "Allow belongs to 405")
        }
        "request" => {
            check(Some(status) == number, "not that status")?;
            check(body["cancelled"] == false && body["error"]["code"] == status, "not the native shape")
        }
        "v03" | "rpc" | "rpc/415" => {
            let wanted = if form == "rpc/415" { 415 } else { 200 };
            check(status == wanted, "not that status")?;
            check(body.as_object().is_some_and(|object| object.len() == 3), "not three members")?;
            check(body["jsonrpc"] == "2.0", "not JSON-RPC 2.0")?;
            check(body["id"] == *id, "not that id")?;
            let error = &body["error"];
            check(error["code"].as_i64() == number, "not that code")?;
            said(error)?;
            if form == "v03" {
                check(error.get("data").is_none(), "0.3 has no details")?;
                let names = |field: &str| error["message"].as_str().is_some_and(|message| message.contains(field));
                return check(word(3).is_none_or(names), "the message does not name the field");
            }
            detailed(&error["data"], word(2), word(3))
        }
        other => Err(format!("no such form: {other}")),
    }
}

fn said(error: &Value) -> Result<(), String> {
    check(error["message"].as_str().is_some_and(|message| !message.is_empty()), "no message")
}

fn only<'a>(body: &'a Value, name: &str) -> Result<&'a Value, String> {
    check(body.as_object().is_some_and(|object| object.len() == 1), "not one member")?;
    body.get(name).ok_or_else(|| format!("no {name}"))
}

fn detailed(details: &Value, reason: Option<&str>, field: Option<&str>) -> Result<(), String> {
    let details = details.as_array().ok_or("no details")?;
    let of =
        |kind: &str| details.iter().find(|detail| detail["@type"] == format!("type.googleapis.com/google.rpc.{kind}"));
    let info = of("ErrorInfo").ok_or("no ErrorInfo")?;
    check(info["domain"] == "a2a-protocol.org", "not that domain")?;
    check(reason.is_none_or(|reason| info["reason"] == reason), "not that reason")?;
    let Some(field) = field else { return Ok(()) };
    let named = of("BadRequest").and_then(|detail| detail["fieldViolations"][0]["field"].as_str());
    if named == Some(field) { Ok(()) } else { Err(format!("names {named:?}, not {field}")) }
}

fn check(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.to_owned()) }
}
