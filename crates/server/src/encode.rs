//! What the exchange gives, as A2A 1.0 JSON: the one encoder of the 1.0 bindings. Stored bytes are spliced, never rebuilt.

use a2a::{Error, ListTaskPushNotificationConfigsResponse, TaskPushNotificationConfig};
use bytes::Bytes;
use exchange::{Frame, Listing, Reply};
use serde::Serialize;
use store::Snapshot;

/// A `Task`.
pub(crate) fn task(snapshot: &Snapshot) -> Result<Bytes, Error> {
    snapshot.to_json().map(Bytes::from).map_err(|cause| unreadable(&cause))
}

/// A `SendMessageResponse`.
pub(crate) fn reply(reply: &Reply) -> Result<Bytes, Error> {
    match reply {
        Reply::Task(snapshot) => shown(snapshot),
        Reply::Direct(event) => Ok(event.body.clone()),
    }
}

/// A `StreamResponse`.
pub(crate) fn frame(frame: &Frame) -> Result<Bytes, Error> {
    match frame {
        Frame::Task(snapshot) => shown(snapshot),
        Frame::Event(event) => Ok(event.body.clone()),
    }
}

/// A `ListTasksResponse`.
pub(crate) fn listing(listing: &Listing) -> Result<Bytes, Error> {
    let Listing { tasks, next_page_token, page_size, total, with_artifacts } = listing;
    let size: usize = tasks.iter().map(|task| task.size_hint() + 1).sum();
    let mut body = Vec::with_capacity(size + 128);
    body.extend_from_slice(b"{\"tasks\":[");
    for (n, task) in tasks.iter().enumerate() {
        if n > 0 {
            body.push(b',');
        }
        task.write_json(&mut body).map_err(|cause| unreadable(&cause))?;
        // Artifacts that were asked for are there when there are none, too (A2A 1.0.1 section 3.1.4).
        if *with_artifacts && task.artifacts.is_empty() {
            body.pop();
            body.extend_from_slice(b",\"artifacts\":[]}");
        }
    }
    // The token is base64url: it needs no escaping.
    let rest = format!("],\"nextPageToken\":\"{next_page_token}\",\"pageSize\":{page_size},\"totalSize\":{total}}}");
    body.extend_from_slice(rest.as_bytes());
    Ok(body.into())
}

/// A `TaskPushNotificationConfig`.
pub(crate) fn push(config: &TaskPushNotificationConfig) -> Result<Bytes, Error> {
    json(config)
}

/// A `ListTaskPushNotificationConfigsResponse`. The list is there when it is empty, too: who counts its entries need not ask first.
pub(crate) fn pushes(page: &ListTaskPushNotificationConfigsResponse) -> Result<Bytes, Error> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Page<'a> {
        configs: &'a [TaskPushNotificationConfig],
        #[serde(skip_serializing_if = "str::is_empty")]
        next_page_token: &'a str,
    }
    json(&Page { configs: &page.configs, next_page_token: &page.next_page_token })
}

fn json(value: &impl Serialize) -> Result<Bytes, Error> {
    match serde_json::to_vec(value) {
        Ok(bytes) => Ok(bytes.into()),
        Err(_) => Err(Error::internal("the answer cannot be written as JSON")),
    }
}

/// A task, typed, for dialects that make something else of it.
pub(crate) fn typed(snapshot: &Snapshot) -> Result<a2a::Task, Error> {
    snapshot.to_task().map_err(|cause| unreadable(&cause))
}

/// `{"task": …}`, which answers a send and begins a stream.
fn shown(snapshot: &Snapshot) -> Result<Bytes, Error> {
    snapshot.created().map_err(|cause| unreadable(&cause))
}

/// What is stored cannot be read back.
pub(crate) fn unreadable(cause: &store::Error) -> Error {
    tracing::error!(error = %cause, "what is stored cannot be read");
    Error::internal("what is stored cannot be read")
}
