//! Reading paths: their segments, and what stands under `/a2a`, an agent or none and a resource.
//!
//! One agent has two spellings, `/a2a/agents/{id}/…` and the protocol's `/a2a/{tenant}/…`; both mean the same.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// A place under `/a2a`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The agent that the path names.
    pub(crate) agent: Option<String>,
    /// What is asked for.
    pub(crate) resource: Resource,
}

/// What can stand at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Resource {
    JsonRpc,
    SendMessage,
    StreamMessage,
    Tasks,
    Task(String),
    CancelTask(String),
    SubscribeToTask(String),
    /// The push notification configurations of a task.
    PushConfigs(String),
    /// One of them: the task's id, and its own.
    PushConfig(String, String),
    ExtendedCard,
}

/// What a path names, by its decoded segments. `None` is no route.
pub(crate) fn route<T>(path: &str, at: impl FnOnce(&[&str]) -> Option<T>) -> Option<T> {
    let decode = |segment| percent_decode_str(segment).decode_utf8().ok();
    let decoded: Vec<Cow<'_, str>> = path.split('/').skip(1).map(decode).collect::<Option<_>>()?;
    let segments: Vec<&str> = decoded.iter().map(AsRef::as_ref).collect();
    at(&segments)
}

impl Place {
    /// Reads the segments of a path.
    pub(crate) fn at(segments: &[&str]) -> Option<Self> {
        // Who is given only the origin posts there.
        if segments == [""] {
            return Some(Self { agent: None, resource: Resource::JsonRpc });
        }
        let ["a2a", segments @ ..] = segments else { return None };
        if let Some(resource) = Resource::parse(segments) {
            return Some(Self { agent: None, resource });
        }
        let (agent, resource) = match segments {
            ["agents", agent, rest @ ..] => (agent, Resource::parse(rest)?),
            // A bare `/a2a/{tenant}` is no route of the protocol, so an endpoint needs a word after it.
            ["tasks", ..] | [_] | [_, ""] => return None,
            [agent, rest @ ..] => (agent, Resource::parse(rest)?),
            [] => return None,
        };
        (!agent.is_empty()).then(|| Self { agent: Some((*agent).to_owned()), resource })
    }
}

impl Resource {
    fn parse(segments: &[&str]) -> Option<Self> {
        match segments {
            // JSON-RPC answers with and without a trailing slash; nothing else does.
            [] | [""] | ["jsonrpc"] | ["jsonrpc", ""] => Some(Self::JsonRpc),
            ["message:send"] => Some(Self::SendMessage),
            ["message:stream"] => Some(Self::StreamMessage),
            ["extendedAgentCard"] => Some(Self::ExtendedCard),
            ["tasks"] => Some(Self::Tasks),
            ["tasks", task] => Self::task(task),
            ["tasks", task, "pushNotificationConfigs"] if !task.is_empty() => {
                Some(Self::PushConfigs((*task).to_owned()))
            }
            ["tasks", task, "pushNotificationConfigs", config] if !task.is_empty() && !config.is_empty() => {
                Some(Self::PushConfig((*task).to_owned(), (*config).to_owned()))
            }
            _ => None,
        }
    }

    fn task(segment: &str) -> Option<Self> {
        let (id, make): (&str, fn(String) -> Self) = if let Some(id) = segment.strip_suffix(":cancel") {
            (id, Self::CancelTask)
        } else if let Some(id) = segment.strip_suffix(":subscribe") {
            (id, Self::SubscribeToTask)
        } else {
            (segment, Self::Task)
        };
        (!id.is_empty()).then(|| make(id.to_owned()))
    }

    /// The methods that it answers, as the `Allow` header names them.
    pub(crate) fn allow(&self) -> &'static str {
        match self {
            Self::JsonRpc | Self::SendMessage | Self::StreamMessage | Self::CancelTask(_) => "POST, OPTIONS",
            Self::SubscribeToTask(_) => "GET, POST, OPTIONS",
            Self::Tasks | Self::Task(_) | Self::ExtendedCard => "GET, HEAD, OPTIONS",
            Self::PushConfigs(_) => "GET, HEAD, POST, OPTIONS",
            Self::PushConfig(..) => "GET, HEAD, DELETE, OPTIONS",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> Option<(Option<String>, Resource)> {
        route(path, Place::at).map(|place| (place.agent, place.resource))
    }

    #[test]
    fn gateway_routes() {
        for path in ["/", "/a2a", "/a2a/", "/a2a/jsonrpc", "/a2a/jsonrpc/"] {
            assert_eq!(place(path), Some((None, Resource::JsonRpc)), "{path}");
        }
        assert_eq!(place("/a2a/message:send"), Some((None, Resource::SendMessage)));
        assert_eq!(place("/a2a/message%3Astream"), Some((None, Resource::StreamMessage)));
        assert_eq!(place("/a2a/tasks"), Some((None, Resource::Tasks)));
        assert_eq!(place("/a2a/tasks/t-1"), Some((None, Resource::Task("t-1".into()))));
        assert_eq!(place("/a2a/tasks/a%20b:cancel"), Some((None, Resource::CancelTask("a b".into()))));
        assert_eq!(place("/a2a/tasks/t:subscribe"), Some((None, Resource::SubscribeToTask("t".into()))));
        let configs = Resource::PushConfigs("t".into());
        assert_eq!(place("/a2a/tasks/t/pushNotificationConfigs"), Some((None, configs)));
        let config = Resource::PushConfig("t".into(), "c/d".into());
        assert_eq!(place("/a2a/tasks/t/pushNotificationConfigs/c%2Fd"), Some((None, config)));
        assert_eq!(place("/a2a/extendedAgentCard"), Some((None, Resource::ExtendedCard)));
    }

    #[test]
    fn an_agent_has_two_spellings() {
        for prefix in ["/a2a/agents/echo", "/a2a/echo"] {
            let agent = Some("echo".to_owned());
            assert_eq!(place(&format!("{prefix}/message:send")), Some((agent.clone(), Resource::SendMessage)));
            assert_eq!(place(&format!("{prefix}/tasks/t")), Some((agent.clone(), Resource::Task("t".into()))));
            assert_eq!(place(&format!("{prefix}/jsonrpc/")), Some((agent.clone(), Resource::JsonRpc)));
            let configs = Resource::PushConfigs("t".into());
            assert_eq!(place(&format!("{prefix}/tasks/t/pushNotificationConfigs")), Some((agent.clone(), configs)));
            assert_eq!(place(&format!("{prefix}/extendedAgentCard")), Some((agent, Resource::ExtendedCard)));
        }
        let echo = Some("echo".to_owned());
        assert_eq!(place("/a2a/agents/echo"), Some((echo.clone(), Resource::JsonRpc)));
        assert_eq!(place("/a2a/agents/echo/"), Some((echo, Resource::JsonRpc)));
    }

    #[test]
    fn unknown_routes() {
        for path in [
            "/a2ax",
            "/a2a/nope",
            "/a2a/echo",
            "/a2a/tasks/",
            "/a2a/tasks/:cancel",
            "/a2a/tasks/t/",
            "/a2a/tasks/t/nope",
            "/a2a/tasks//pushNotificationConfigs",
            "/a2a/tasks/t/pushNotificationConfigs/",
            "/a2a/tasks/t/pushNotificationConfigs/c/",
            "/a2a/agents",
            "/a2a/agents/",
            "/a2a/agents/echo/nope",
            "/a2a/agents//message:send",
            "/a2a//message:send",
            "/a2a/message:nope",
            "/a2a/message:send/",
            "/a2a/echo/.well-known/agent-card.json",
            "/a2a/tasks/%ff",
        ] {
            assert_eq!(place(path), None, "{path}");
        }
    }

    #[test]
    fn only_what_is_read_answers_head() {
        for (path, allow) in [
            ("/a2a/jsonrpc", "POST, OPTIONS"),
            ("/a2a/tasks", "GET, HEAD, OPTIONS"),
            ("/a2a/tasks/t:subscribe", "GET, POST, OPTIONS"),
            ("/a2a/tasks/t/pushNotificationConfigs", "GET, HEAD, POST, OPTIONS"),
            ("/a2a/tasks/t/pushNotificationConfigs/c", "GET, HEAD, DELETE, OPTIONS"),
        ] {
            assert_eq!(place(path).unwrap().1.allow(), allow, "{path}");
        }
    }
}
