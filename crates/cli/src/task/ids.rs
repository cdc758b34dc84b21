//! Tasks and contexts by the first characters of their ids, and the newest task as `last`.

use std::collections::BTreeSet;

use a2a::{ListTasksRequest, Task};
use client::Client;
use serde_json::Value;
use uuid::Uuid;

use crate::{
    failure::Failure,
    output::single_line,
    routes::{self, Native},
};

/// Names the task that was begun last, and for no other task.
pub(crate) const LAST: &str = "last";
/// Shorter ones are not taken for the begin of an id.
const SHORTEST: usize = 4;
/// How many tasks are searched, the last that changed first.
const SEARCHED: usize = 1000;
/// The most tasks of one page, as the protocol has it.
const PAGE: i32 = 100;
/// Maximum number of parents of a task that are followed. A server may name them in a circle.
const DEEPEST: usize = 32;
/// How many ids are shown where several begin alike.
const SHOWN: usize = 5;

/// The id of a task: the id itself, its first characters, or `last`. With `native`, sub-tasks are never the last task.
pub(crate) async fn task(client: &Client, given: &str, native: Option<Native<'_>>) -> Result<String, Failure> {
    if given == LAST {
        let (tasks, _) = page(client, "", "").await?;
        let ids = newest_first(&tasks);
        let newest = *ids.first().ok_or_else(|| Failure::failed("there are no tasks"))?;
        // Other servers have no sub-tasks that could be told apart.
        let Some(native) = native.filter(|_| client.resumes()) else { return Ok(newest.to_owned()) };
        for id in ids {
            if parent(native, id).await.is_none() {
                return Ok(id.to_owned());
            }
        }
        // So many sub-tasks changed since that the task itself is further back.
        let mut id = newest.to_owned();
        for _ in 0..DEEPEST {
            let Some(above) = parent(native, &id).await else { break };
            id = above;
        }
        return Ok(id);
    }
    let Some(begin) = begin_of_id(given) else { return Ok(given.to_owned()) };
    one_of(search(client, &begin, |task| &task.id).await.ids, given, "task")
}

/// The id of a task that is to be changed or deleted. A begin that only some of the tasks were searched for is refused: it may be that
/// of another task as well.
pub(crate) async fn task_to_change(
    client: &Client,
    given: &str,
    native: Option<Native<'_>>,
) -> Result<String, Failure> {
    let Some(begin) = begin_of_id(given) else { return task(client, given, native).await };
    only_of(search(client, &begin, |task| &task.id).await, given, "task")
}

/// The id of a context that is to be deleted, likewise.
pub(crate) async fn context_to_change(client: &Client, given: &str) -> Result<String, Failure> {
    let Some(begin) = begin_of_id(given) else { return Ok(given.to_owned()) };
    if page(client, given, "").await.is_ok_and(|(tasks, _)| !tasks.is_empty()) {
        return Ok(given.to_owned());
    }
    only_of(search(client, &begin, |task| &task.context_id).await, given, "context")
}

/// The id of a context: the id itself or its first characters. Callers choose the ids of contexts, so only ids that servers
/// make are found by their begin.
pub(crate) async fn context(client: &Client, given: &str) -> Result<String, Failure> {
    let Some(begin) = begin_of_id(given) else { return Ok(given.to_owned()) };
    if page(client, given, "").await.is_ok_and(|(tasks, _)| !tasks.is_empty()) {
        return Ok(given.to_owned());
    }
    one_of(search(client, &begin, |task| &task.context_id).await.ids, given, "context")
}

/// Whether a text may stand for the id of another task or context.
pub(crate) fn is_short(text: &str) -> bool {
    text == LAST || begin_of_id(text).is_some()
}

/// The task that a task was begun for, if the server says so.
async fn parent(Native { target, url }: Native<'_>, id: &str) -> Option<String> {
    let one: Value = routes::ask(target, url, &["v1", "requests", id], &[]).await?;
    Some(one["request"]["parent"]["request_id"].as_str()?.to_owned())
}

/// The tasks that changed last, the newest first. Ids of UUIDv7 are in the order in which they were made.
fn newest_first(tasks: &[Task]) -> Vec<&str> {
    let mut ids: Vec<&str> = tasks.iter().map(|task| task.id.as_str()).collect();
    if are_ordered(tasks) {
        ids.sort_unstable_by(|one, other| other.cmp(one));
    }
    ids
}

/// Puts tasks into the order in which they began, where their ids tell it.
pub(crate) fn sort(tasks: &mut [Task]) {
    if are_ordered(tasks) {
        tasks.sort_by(|one, other| one.id.cmp(&other.id));
    }
}

/// Whether the ids of tasks are in the order in which they were made.
fn are_ordered(tasks: &[Task]) -> bool {
    tasks.iter().all(|task| Uuid::parse_str(&task.id).is_ok_and(|id| id.get_version_num() == 7))
}

/// A text as the begin of a UUID, if it can be one. The sign of a cut cell may stand behind it.
fn begin_of_id(text: &str) -> Option<String> {
    let text = text.trim_end_matches('…').to_ascii_lowercase();
    let fits = |(at, c): (usize, u8)| if matches!(at, 8 | 13 | 18 | 23) { c == b'-' } else { c.is_ascii_hexdigit() };
    ((SHORTEST..36).contains(&text.len()) && text.bytes().enumerate().all(fits)).then_some(text)
}

/// The result of a search.
#[derive(Default)]
struct Found {
    ids: BTreeSet<String>,
    /// There are tasks that were not searched.
    is_cut: bool,
}

/// The ids that begin so. Where tasks cannot be listed there are none.
async fn search(client: &Client, begin: &str, id: impl Fn(&Task) -> &str) -> Found {
    let mut found = Found::default();
    let (mut token, mut searched) = (String::new(), 0);
    while let Ok((tasks, next)) = page(client, "", &token).await {
        let ids = tasks.iter().map(&id).filter(|id| id.starts_with(begin) && Uuid::parse_str(id).is_ok());
        found.ids.extend(ids.map(str::to_owned));
        searched += tasks.len();
        token = next;
        if token.is_empty() || tasks.is_empty() {
            break;
        }
        if searched >= SEARCHED {
            found.is_cut = true;
            break;
        }
    }
    found
}

/// The one that was found, if all tasks were searched.
fn only_of(found: Found, given: &str, what: &str) -> Result<String, Failure> {
    if found.is_cut && found.ids.len() == 1 {
        let id = found.ids.into_iter().next().unwrap_or_default();
        return Err(Failure::usage(format!("`{}` may begin the ids of several {what}s", single_line(given)))
            .because(format!("only the last {SEARCHED} tasks that changed were searched; one of them is {id}"))
            .hint("write the whole id"));
    }
    one_of(found.ids, given, what)
}

/// The one that was found; the text itself where there is none, for the server to judge.
fn one_of(found: BTreeSet<String>, given: &str, what: &str) -> Result<String, Failure> {
    if found.len() <= 1 {
        return Ok(found.into_iter().next().unwrap_or_else(|| given.to_owned()));
    }
    let count = found.len();
    let more = if count > SHOWN { ", …" } else { "" };
    let ids: Vec<String> = found.into_iter().take(SHOWN).collect();
    Err(Failure::usage(format!("{count} {what}s begin with `{}`", single_line(given)))
        .because(format!("{}{more}", ids.join(", ")))
        .hint("write more of the id"))
}

/// A page of tasks without their content, and where the next one begins.
pub(crate) async fn page(client: &Client, context: &str, token: &str) -> Result<(Vec<Task>, String), client::Error> {
    let request = ListTasksRequest {
        context_id: context.to_owned(),
        page_size: Some(PAGE),
        page_token: token.to_owned(),
        history_length: Some(0),
        ..ListTasksRequest::default()
    };
    let page = client.list(request).await?.value;
    Ok((page.tasks, page.next_page_token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_begin_an_id_is_searched_for() {
        assert_eq!(begin_of_id("0197C5A2-1f3…").as_deref(), Some("0197c5a2-1f3"));
        for text in ["019", "chat-17", "last", "c-1", "0197c5a21", "0197c5a2-1f3e-7c4d-8000-000000000000"] {
            assert_eq!(begin_of_id(text), None, "{text}");
        }
    }

    #[test]
    fn the_newest_task_is_that_with_the_newest_id() {
        let tasks =
            |ids: &[&str]| ids.iter().map(|id| Task { id: (*id).to_owned(), ..Task::default() }).collect::<Vec<Task>>();
        let (older, newer) = ("0197c5a2-1f3e-7c4d-8000-000000000000", "0197c5a3-1f3e-7c4d-8000-000000000000");
        assert_eq!(newest_first(&tasks(&[older, newer])), [newer, older]);
        assert_eq!(newest_first(&tasks(&["b", "c"])), ["b", "c"], "the last that changed");
        let sorted = |ids: &[&str]| {
            let mut tasks = tasks(ids);
            sort(&mut tasks);
            tasks.into_iter().map(|task| task.id).collect::<Vec<_>>()
        };
        assert_eq!(sorted(&[newer, older]), [older, newer], "a task that changed later began earlier");
        assert_eq!(sorted(&["c", "b"]), ["c", "b"], "others stay as they are");
    }

    #[test]
    fn a_begin_changes_nothing_unless_all_tasks_were_searched() {
        let id = "0197c5a2-1f3e-7c4d-8000-000000000000";
        let found = |is_cut: bool| Found { ids: [id.to_owned()].into(), is_cut };
        assert_eq!(only_of(found(false), "0197c5a2", "task").unwrap(), id);
        let failure = only_of(found(true), "0197c5a2", "task").unwrap_err();
        assert_eq!((failure.exit as u8, failure.hint.as_deref()), (2, Some("write the whole id")));
        assert!(failure.causes[0].contains(id), "{:?}", failure.causes);
        let none = Found { ids: BTreeSet::new(), is_cut: true };
        assert_eq!(only_of(none, "0197c5a2", "task").unwrap(), "0197c5a2", "the server says that there is none");
    }

    #[test]
    fn several_are_told() {
        let found = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(one_of(found(&[]), "0197", "task").unwrap(), "0197");
        assert_eq!(one_of(found(&["a"]), "0197", "task").unwrap(), "a");
        let failure = one_of(found(&["a", "b"]), "0197", "task").unwrap_err();
        assert_eq!(
            (failure.error.as_str(), failure.causes.as_slice()),
            ("2 tasks begin with `0197`", &["a, b".to_owned()][..])
        );
    }
}
