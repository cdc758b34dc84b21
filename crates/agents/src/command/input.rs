//! What a program reads: one object a turn, on one line.

use a2a::Message;
use exchange::Turn;
use serde::Serialize;
use serde_json::value::RawValue;

/// What the program reads on its standard input.
#[derive(Serialize)]
struct Input<'a> {
    /// What it answers with, where it stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    agent: &'a str,
    task: String,
    context: &'a str,
    message: &'a Message,
    history: &'a [Message],
    context_history: &'a [Message],
    attempt: u32,
    /// What the program has kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'a RawValue>,
}

/// The object on the program's standard input, on one line. A program that stays is told which turn it is.
pub(super) async fn input(turn: &Turn, id: Option<&str>) -> Result<Vec<u8>, String> {
    let unread = |error| format!("the task's history cannot be read: {error}");
    let history = turn.history().await.map_err(unread)?;
    let context_history = turn.context_history().await.map_err(unread)?;
    let input = Input {
        id,
        agent: turn.agent.as_str(),
        task: turn.task.to_string(),
        context: &turn.context,
        message: &turn.message,
        history: &history,
        context_history: &context_history,
        attempt: turn.attempt,
        // Programs keep JSON.
        state: turn.state.as_ref().and_then(|state| serde_json::from_slice(state).ok()),
    };
    let mut line = serde_json::to_vec(&input).map_err(|error| format!("the message cannot be encoded: {error}"))?;
    line.push(b'\n');
    Ok(line)
}
