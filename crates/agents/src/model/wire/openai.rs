//! OpenAI's chat completions, streamed, as OpenAI and those who do it alike speak it: what is sent, and what the events say.

use base64::{Engine, engine::general_purpose::STANDARD};
use client::sse;
use serde_json::{Value, json};

use super::{Fault, Progress, json};
use crate::model::{Content, Message, Request, Stop, Usage, provider::Quirks, status::Told};

/// What is sent.
pub(super) fn body(request: &Request, model: &str, quirks: Quirks) -> Value {
    let mut messages: Vec<Value> = Vec::new();
    if !request.system.trim().is_empty() {
        messages.push(json!({"role": "system", "content": request.system}));
    }
    for message in &request.messages {
        if let Some(content) = content(message) {
            messages.push(json!({"role": message.role.as_str(), "content": content}));
        }
    }
    let mut body = json!({"model": model, "messages": messages, "stream": true});
    let longest = if quirks.completion_tokens { "max_completion_tokens" } else { "max_tokens" };
    body[longest] = json!(request.max_tokens.max(1));
    if !quirks.no_stream_options {
        body["stream_options"] = json!({"include_usage": true});
    }
    if let Some(temperature) = request.temperature.filter(|_| !quirks.no_temperature) {
        body["temperature"] = json!(temperature);
    }
    body
}

/// A message's content: a text where it is one, since not every server takes parts; nothing where it is empty.
fn content(message: &Message) -> Option<Value> {
    if message.content.iter().all(|content| matches!(content, Content::Text(_))) {
        let text = message.text();
        return (!text.trim().is_empty()).then(|| json!(text));
    }
    let parts = message.content.iter().filter_map(|content| match content {
        Content::Text(text) => (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text})),
        Content::Image { media_type, data } => {
            let url = format!("data:{media_type};base64,{}", STANDARD.encode(data));
            Some(json!({"type": "image_url", "image_url": {"url": url}}))
        }
        Content::ImageUrl(url) => Some(json!({"type": "image_url", "image_url": {"url": url}})),
    });
    Some(Value::Array(parts.collect()))
}

/// Takes one event.
pub(super) fn read(event: &sse::Event, progress: &mut Progress) -> Result<(), Fault> {
    match event.data.trim() {
        "" => return Ok(()),
        "[DONE]" => {
            progress.ended = true;
            return Ok(());
        }
        _ => {}
    }
    let value = json(event)?;
    let is_error = event.name == "error" || value.get("error").is_some_and(|error| !error.is_null());
    if is_error {
        return Err(Fault::Told(Told::of(&value).unwrap_or_default()));
    }
    count(&value["usage"], &mut progress.usage);
    if let Some(choice) = first(&value) {
        take(choice, &choice["delta"], progress);
    }
    Ok(())
}

/// Takes a whole answer.
pub(super) fn read_whole(value: &Value, progress: &mut Progress) -> Result<(), Fault> {
    let Some(choice) = first(value) else {
        return Err(Fault::Garbled(format!("it has no `choices`: {value}")));
    };
    take(choice, &choice["message"], progress);
    count(&value["usage"], &mut progress.usage);
    Ok(())
}

/// The answer, of which there is one.
fn first(value: &Value) -> Option<&Value> {
    value["choices"].as_array()?.iter().find(|choice| choice["index"].as_u64().unwrap_or(0) == 0)
}

fn take(choice: &Value, said: &Value, progress: &mut Progress) {
    match &said["content"] {
        Value::String(text) => progress.say(text),
        // Some say what they think in parts of another kind.
        Value::Array(parts) => {
            for part in parts {
                progress.say(part["text"].as_str().unwrap_or_default());
            }
        }
        _ => {}
    }
    progress.say(said["refusal"].as_str().unwrap_or_default());
    if let Some(reason) = choice["finish_reason"].as_str() {
        progress.stop = Some(match reason {
            "stop" => Stop::Done,
            "length" => Stop::Length,
            other => Stop::Other(other.chars().take(100).collect()),
        });
    }
}

/// Figures are sums so far; some servers repeat them with each event.
fn count(usage: &Value, sum: &mut Usage) {
    let number = |key: &str| usage[key].as_u64().unwrap_or(0);
    sum.input_tokens = sum.input_tokens.max(number("prompt_tokens"));
    sum.output_tokens = sum.output_tokens.max(number("completion_tokens"));
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::model::Role;

    #[test]
    fn text_is_sent_as_a_text_and_pictures_as_parts() {
        let image = Content::Image { media_type: "image/png".to_owned(), data: Bytes::from_static(b"\x89PNG") };
        let messages = vec![
            Message { role: Role::User, content: vec![Content::Text("a".to_owned()), Content::Text("b".to_owned())] },
            Message::assistant(""),
            Message { role: Role::User, content: vec![Content::Text("look".to_owned()), image] },
        ];
        let request = Request { system: "Be brief.".to_owned(), messages, max_tokens: 9, temperature: Some(0.5) };
        assert_eq!(
            body(&request, "m", Quirks::default()),
            json!({
                "model": "m", "max_tokens": 9, "stream": true, "stream_options": {"include_usage": true}, "temperature": 0.5,
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "a\nb"},
                    {"role": "user", "content": [
                        {"type": "text", "text": "look"},
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
                    ]},
                ],
            })
        );
        let quirks = Quirks { no_stream_options: true, completion_tokens: true, no_temperature: true };
        let bare = body(&Request { temperature: Some(1.0), ..Request::default() }, "m", quirks);
        assert_eq!(bare, json!({"model": "m", "messages": [], "stream": true, "max_completion_tokens": 1}));
    }
}
