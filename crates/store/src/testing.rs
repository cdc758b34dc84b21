//! Support for the unit tests of this crate, whose types are not those that `testkit` knows.

use crate::{Accept, Draft, Post, Quota, Target, TaskId, clock};

/// A message that begins a task.
pub(crate) fn accept(text: &str) -> Accept {
    let (task, at) = (TaskId::mint(), clock::now());
    Accept {
        target: Target::New {
            task,
            agent: "echo".parse().unwrap(),
            context: task.to_string().into(),
            created: format!("{{\"task\":{{\"id\":\"{task}\"}}}}").into(),
            hold: false,
            remembers: false,
            post: Post::default(),
            origin: None,
            tells_cancel: false,
        },
        message_id: task.to_string(),
        message: format!("{{\"parts\":[{{\"text\":\"{text}\"}}]}}").into(),
        idempotency: None,
        lease: None,
        working: Draft::status(task, "one", a2a::TaskState::Working, None, None, at).unwrap(),
        push: None,
        quota: Quota::default(),
        parent: None,
        request: None,
        at,
    }
}
