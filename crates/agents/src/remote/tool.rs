//! The tool `/a2a` of agents that think: what remotes there are, what they can do, and calling one. What comes back is framed, and nothing
//! inside can end the frame.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use a2a::{CancelTaskRequest, GetTaskRequest, SendMessageRequest, SendMessageResponse, Task, TaskState};
use client::{Client, Error};
use exchange::{Caller, Ledger};
use tokio::time::Instant;

use super::{
    Remotes,
    call::said,
    peer::{Peer, Refused, told},
};
use crate::frame::{self, clean};

/// How long between two looks at a task that is under way.
const LOOK: Duration = Duration::from_millis(250);
const LONGEST_LOOK: Duration = Duration::from_secs(5);
/// How long a remote that nobody waits for any more may take to hear of it.
const CANCEL_TIME: Duration = Duration::from_secs(10);

/// One request of an agent: within it the card of a remote is asked for at most once.
pub struct Session<'a> {
    remotes: &'a Remotes,
    caller: &'a Caller,
    asked: BTreeSet<String>,
    ledger: Ledger,
}

impl<'a> Session<'a> {
    /// A request of an agent of this caller's, which may hand on so much.
    pub fn new(remotes: &'a Remotes, caller: &'a Caller, ledger: Ledger) -> Self {
        Self { remotes, caller, asked: BTreeSet::new(), ledger }
    }

    /// What is left to hand on.
    pub fn ledger(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// What an agent is told when it says this line: `list`, `card NAME` or `call NAME TEXT`, with or without `/a2a` before it.
    pub async fn run(&mut self, line: &str) -> String {
        let line = line.trim();
        let args = line.strip_prefix("/a2a").map_or(line, str::trim);
        let body = self.answer(args).await.unwrap_or_else(|error| format!("ERR: {error}"));
        frame::framed(&format!("/a2a {args}"), "A2A", &body)
    }

    async fn answer(&mut self, args: &str) -> Result<String, String> {
        if !self.remotes.is_enabled() {
            return Err("A2A unavailable in this context".to_owned());
        }
        let (verb, rest) = args.split_once(char::is_whitespace).unwrap_or((args, ""));
        let rest = rest.trim();
        match verb {
            "list" | "" => Ok(self.list().await),
            "card" if !rest.is_empty() => self.card(rest).await,
            "call" => match rest.split_once(char::is_whitespace) {
                Some((name, text)) if !text.trim().is_empty() => self.call(name, text.trim()).await,
                _ => Err("usage: /a2a call <name> <message>".to_owned()),
            },
            "card" => Err("usage: /a2a card <name>".to_owned()),
            other => Err(format!(
                "no such command `{}`: /a2a list, /a2a card <name>, /a2a call <name> <message>",
                clean(other)
            )),
        }
    }

    async fn list(&mut self) -> String {
        let peers = self.remotes.visible_to(self.caller);
        if peers.is_empty() {
            return "no remote agents configured".to_owned();
        }
        let looks = peers.iter().map(|peer| ensure(peer, !self.asked.contains(&peer.spec.name)));
        let cards = futures_util::future::join_all(looks).await;
        let mut lines = Vec::new();
        for (peer, card) in peers.iter().zip(cards) {
            self.asked.insert(peer.spec.name.clone());
            lines.push(match card {
                Ok(()) => line_of(peer),
                Err(refused) => format!("{} — (card unavailable: {})", peer.spec.name, refused.said()),
            });
        }
        lines.join("\n")
    }

    async fn card(&mut self, name: &str) -> Result<String, String> {
        let peer = self.find(name)?;
        self.look_at(&peer).await.map_err(|refused| format!("card fetch failed: {}", refused.said()))?;
        let Some(card) = peer.card() else { return Err("card fetch failed: there is none".to_owned()) };
        let card = &card.found.card;
        // What stands behind a question mark may be a secret.
        let bare = |url: &url::Url| {
            let mut url = url.clone();
            url.set_query(None);
            url.to_string()
        };
        let url = peer.spec.url.as_ref().map_or_else(|_| "not known".to_owned(), bare);
        let mut lines = vec![
            format!("name: {}", clean(&card.name)),
            format!("description: {}", clean(&card.description)),
            format!("version: {}", clean(&card.version)),
            format!("url: {url}"),
            "skills:".to_owned(),
        ];
        for skill in peer.skills() {
            lines.push(format!(
                "  {} — {}",
                skill.id,
                if skill.description.is_empty() { &skill.name } else { &skill.description }
            ));
        }
        Ok(lines.join("\n"))
    }

    async fn call(&mut self, name: &str, text: &str) -> Result<String, String> {
        let peer = self.find(name)?;
        if self.remotes.is_here(&peer) {
            // What is said to a remote says nothing of who has handed it on: a circle would have no end.
            return Err(format!("'{}' is this server: its agents are asked with /agent", clean(name)));
        }
        self.ledger.delegate(None).map_err(|refusal| refusal.to_string())?;
        let share = peer.share(Some(self.caller.tenant));
        let begun = std::time::Instant::now();
        if !share.breaker.admit() {
            return Err(format!("circuit breaker a2a:{name}: circuit OPEN — call rejected"));
        }
        if let Err(refused) = self.look_at(&peer).await {
            // Whoever is refused the card for want of a token will be refused the call.
            if let Refused::Card(error) = &refused
                && matches!(**error, Error::Auth(_))
            {
                return Err(said(error));
            }
            if peer.card().is_none() && !peer.is_watched() {
                return Err(match &refused {
                    Refused::Card(error) if error.http_status().is_none() && error.is_passing() => {
                        peer.broke(&share, begun, &told(error));
                        format!("transport: {}", said(error))
                    }
                    refused => format!("card fetch failed: {}", refused.said()),
                });
            }
        }
        let Ok(_place) = share.calls.try_acquire() else {
            return Err(format!("{name} has as many calls as it may have at once: try again"));
        };
        let client = peer.client().map_err(|refused| format!("card fetch failed: {}", refused.said()))?;
        let request = client::user_message(uuid(), text);
        match tokio::time::timeout(peer.spec.timeout, converse(&client, request)).await {
            Ok(Ok(answer)) => {
                peer.worked(&share);
                answer
            }
            Ok(Err(error)) => {
                let why = told(&error);
                match &error {
                    Error::Protocol(_) | Error::Auth(_) => {
                        if error.http_status().is_some_and(|status| status >= 500) {
                            peer.broke(&share, begun, &why)
                        } else {
                            peer.worked(&share)
                        }
                        Err(said(&error))
                    }
                    _ => {
                        peer.broke(&share, begun, &why);
                        Err(format!("transport: {}", said(&error)))
                    }
                }
            }
            Err(_) => {
                let why = format!("no answer within {} s", peer.spec.timeout.as_secs_f64());
                peer.broke(&share, begun, &why);
                Err(format!("transport: {why}"))
            }
        }
    }

    fn find(&self, name: &str) -> Result<Arc<Peer>, String> {
        let found = self.remotes.find(name).filter(|peer| sees(peer, self.caller));
        found.ok_or_else(|| format!("no remote agent named '{}'", clean(name)))
    }

    async fn look_at(&mut self, peer: &Peer) -> Result<(), Refused> {
        let first = self.asked.insert(peer.spec.name.clone());
        ensure(peer, first).await
    }
}

impl Remotes {
    /// Whether a remote is this very server.
    fn is_here(&self, peer: &Peer) -> bool {
        let ours = self.inner.options.base.get().and_then(|base| url::Url::parse(base).ok());
        matches!((ours, &peer.spec.url), (Some(ours), Ok(theirs)) if ours.origin() == theirs.origin())
    }

    /// The names of those that this caller sees.
    pub(crate) fn names(&self, caller: &Caller) -> Vec<String> {
        self.visible_to(caller).iter().map(|peer| peer.spec.name.clone()).collect()
    }
}

/// The part of a prompt that tells which remotes there are; nothing where there are none.
pub fn roster(remotes: &Remotes, caller: &Caller) -> Option<String> {
    let peers = remotes.visible_to(caller);
    if peers.is_empty() || !remotes.is_enabled() {
        return None;
    }
    let mut lines = vec![
        "REMOTE A2A AGENTS — delegate with /a2a call <name> <message> (distinct trust boundary; no shared memory):"
            .to_owned(),
    ];
    lines.extend(peers.iter().map(|peer| format!("  {}", line_of(peer))));
    Some(lines.join("\n"))
}

/// Makes sure that a card is known, fresh if it was not asked for in this request.
async fn ensure(peer: &Peer, first: bool) -> Result<(), Refused> {
    peer.ensure_card(first && !peer.is_watched()).await.map(drop)
}

fn line_of(peer: &Peer) -> String {
    let description = peer.description();
    let skills: Vec<String> = peer.skills().into_iter().map(|skill| skill.id).collect();
    // It stands before what the user asks, where nobody else's words may look like ours.
    frame::disarmed(&format!("{} — {description} (skills: {})", peer.spec.name, skills.join(", ")))
}

pub(super) fn sees(peer: &Peer, caller: &Caller) -> bool {
    let is_theirs = peer.spec.tenants.as_ref().is_none_or(|names| names.contains(caller.name.as_ref()));
    is_theirs && caller.covers(&peer.spec.name)
}

/// Sends a message and waits for the whole answer.
async fn converse(client: &Client, request: SendMessageRequest) -> Result<Result<String, String>, Error> {
    let mut task = match client.send(request).await?.value {
        SendMessageResponse::Message(message) => {
            let answer = SendMessageResponse::Message(message);
            return Ok(Ok(
                client::reply_text(&answer).unwrap_or_else(|| "(the remote answered without words)".to_owned())
            ));
        }
        SendMessageResponse::Task(task) => task,
    };
    let mut watched = Watched { client: client.clone(), task: task.id.clone() };
    let mut wait = LOOK;
    while matches!(task.status.state, TaskState::Submitted | TaskState::Working | TaskState::Unspecified) {
        if task.id.is_empty() {
            break;
        }
        let end = Instant::now() + wait;
        tokio::time::sleep_until(end).await;
        wait = (wait * 2).min(LONGEST_LOOK);
        let request = GetTaskRequest { id: task.id.clone(), ..GetTaskRequest::default() };
        match client.get(request).await {
            Ok(now) => task = now.value,
            Err(error) if error.is_passing() => {}
            Err(error) => {
                return Err(error);
            }
        }
    }
    watched.task.clear();
    Ok(verdict(task))
}

/// A task elsewhere that somebody waits for. Whoever stops waiting before it has ended has it canceled, as far as that can be said.
struct Watched {
    client: Client,
    /// Empty once nobody has to be told.
    task: String,
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.task.is_empty() {
            return;
        }
        let (client, id) = (self.client.clone(), std::mem::take(&mut self.task));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let request = CancelTaskRequest { id, ..CancelTaskRequest::default() };
                let _ = tokio::time::timeout(CANCEL_TIME, client.cancel(request)).await;
            });
        }
    }
}

fn verdict(task: Task) -> Result<String, String> {
    let state = task.status.state;
    let name = a2a::v03::TaskState(state).as_str();
    let text = client::task_text(&task);
    match state {
        TaskState::Failed | TaskState::Rejected | TaskState::Canceled => {
            Err(format!("remote task {name}: {}", text.unwrap_or_else(|| "no reason given".to_owned())))
        }
        TaskState::InputRequired | TaskState::AuthRequired => Ok(format!("[{name}] {}", text.unwrap_or_default())),
        _ => Ok(text.unwrap_or_else(|| format!("(remote agent returned no message; state={name})"))),
    }
}

/// An id for a message that nobody asks for again.
fn uuid() -> String {
    store::TaskId::mint().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1_19_20_the_roster_is_there_when_somebody_is() {
        let home = tempfile::tempdir().unwrap();
        let yaml = home.path().join("agents.yaml");
        let options = super::super::Options { yaml: Some(yaml.clone()), ..Default::default() };
        let remotes = Remotes::new(options, exchange::Agents::default());
        let caller = |name: &str| Caller::new(store::TenantId(1), name);
        remotes.inner.look();
        assert_eq!(roster(&remotes, &caller("acme")), None);
        let entry = "  - {name: far, url: \"http://127.0.0.1:1/a2a\", skills: [one, two], tenants: [acme]}\n";
        std::fs::write(&yaml, format!("agents:\n{entry}")).unwrap();
        remotes.inner.look();
        let head =
            "REMOTE A2A AGENTS — delegate with /a2a call <name> <message> (distinct trust boundary; no shared memory):";
        let text = roster(&remotes, &caller("acme")).unwrap();
        assert_eq!(text, format!("{head}\n  far —  (skills: one, two)"));
        assert_eq!(roster(&remotes, &caller("other")), None, "who does not see one has none");
    }
}
