//! Anthropic's Messages, streamed: what is sent, and what the events say.

use base64::{Engine, engine::general_purpose::STANDARD};
use client::sse;
use serde_json::{Value, json};

use super::{Fault, Progress, json};
use crate::model::{Content, Request, Role, Stop, Usage, provider::Quirks, status::Told};

/// What is sent.
pub(super) fn body(request: &Request, model: &str, quirks: Quirks) -> Value {
    let mut messages: Vec<Value> = Vec::new();
    let last = request.messages.len().saturating_sub(1);
    for (n, message) in request.messages.iter().enumerate() {
        let ends = n == last && message.role == Role::Assistant;
        let blocks: Vec<Value> = message.content.iter().filter_map(|content| block(content, ends)).collect();
        // What is empty is refused.
        if !blocks.is_empty() {
            messages.push(json!({"role": message.role.as_str(), "content": blocks}));
        }
    }
    let mut body =
        json!({"model": model, "max_tokens": request.max_tokens.max(1), "messages": messages, "stream": true});
    if !request.system.trim().is_empty() {
        body["system"] = json!(request.system);
    }
    if let Some(temperature) = request.temperature.filter(|_| !quirks.no_temperature) {
        // Others go up to two.
        body["temperature"] = json!(temperature.clamp(0.0, 1.0));
    }
    body
}

/// A part of a message. The words that the model is to go on from must not end with a space.
fn block(content: &Content, ends: bool) -> Option<Value> {
    match content {
        Content::Text(text) => {
            let text = if ends { text.trim_end() } else { text };
            (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text}))
        }
        Content::Image { media_type, data } => {
            let source = json!({"type": "base64", "media_type": media_type, "data": STANDARD.encode(data)});
            Some(json!({"type": "image", "source": source}))
        }
        Content::ImageUrl(url) => Some(json!({"type": "image", "source": {"type": "url", "url": url}})),
    }
}

/// Takes one event. Kinds that are not known, and blocks that are no text, are passed over.
pub(super) fn read(event: &sse::Event, progress: &mut Progress) -> Result<(), Fault> {
    if event.data.trim().is_empty() {
        return Ok(());
    }
    let value = json(event)?;
    match value["type"].as_str().unwrap_or(&event.name) {
        "message_start" => count(&value["message"]["usage"], &mut progress.usage),
        "content_block_start" => say(&value["content_block"], progress),
        "content_block_delta" => say(&value["delta"], progress),
        "message_delta" => {
            count(&value["usage"], &mut progress.usage);
            if let Some(reason) = value["delta"]["stop_reason"].as_str() {
                progress.stop = Some(stop(reason));
            }
        }
        "message_stop" => progress.ended = true,
        "error" => return Err(Fault::Told(Told::of(&value).unwrap_or_default())),
        _ => {}
    }
    Ok(())
}

/// Takes a whole answer.
pub(super) fn read_whole(value: &Value, progress: &mut Progress) -> Result<(), Fault> {
    let Some(blocks) = value["content"].as_array() else {
        return Err(Fault::Garbled(format!("it has no `content`: {value}")));
    };
    for block in blocks {
        say(block, progress);
    }
    count(&value["usage"], &mut progress.usage);
    progress.stop = value["stop_reason"].as_str().map(stop);
    Ok(())
}

fn say(block: &Value, progress: &mut Progress) {
    if matches!(block["type"].as_str(), Some("text" | "text_delta")) {
        progress.say(block["text"].as_str().unwrap_or_default());
    }
}

/// Figures are sums so far, and are repeated by some events and left out by others.
fn count(usage: &Value, sum: &mut Usage) {
    let number = |key: &str| usage[key].as_u64().unwrap_or(0);
    let input = number("input_tokens")
        .saturating_add(number("cache_creation_input_tokens"))
        .saturating_add(number("cache_read_input_tokens"));
    sum.input_tokens = sum.input_tokens.max(input);
    sum.output_tokens = sum.output_tokens.max(number("output_tokens"));
}

fn stop(reason: &str) -> Stop {
    match reason {
        "end_turn" | "stop_sequence" => Stop::Done,
        "max_tokens" => Stop::Length,
        other => Stop::Other(other.chars().take(100).collect()),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::model::Message;

    #[test]
    fn what_is_sent_has_nothing_empty_and_no_space_at_its_end() {
        let image = Content::Image { media_type: "image/png".to_owned(), data: Bytes::from_static(b"\x89PNG") };
        let messages = vec![
            Message {
                role: Role::User,
                content: vec![
                    Content::Text("look".to_owned()),
                    image,
                    Content::ImageUrl("https://i.example/a".to_owned()),
                ],
            },
            Message::assistant("  "),
            Message::user("on"),
            Message::assistant("I see \n"),
        ];
        let request = Request { system: "Be brief.".to_owned(), messages, max_tokens: 9, temperature: Some(1.5) };
        assert_eq!(
            body(&request, "claude-x", Quirks::default()),
            json!({
                "model": "claude-x", "max_tokens": 9, "stream": true, "system": "Be brief.", "temperature": 1.0,
                "messages": [
                    {"role": "user", "content": [
                        {"type": "text", "text": "look"},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}},
                        {"type": "image", "source": {"type": "url", "url": "https://i.example/a"}},
                    ]},
                    {"role": "user", "content": [{"type": "text", "text": "on"}]},
                    {"role": "assistant", "content": [{"type": "text", "text": "I see"}]},
                ],
            })
        );
        let bare = body(&Request::default(), "m", Quirks { no_temperature: true, ..Quirks::default() });
        assert_eq!(bare, json!({"model": "m", "max_tokens": 1, "stream": true, "messages": []}));
    }
}
