//! The tool `/a2a` of agents that think: what remotes there are, what they can do, and calling one. What comes back is framed, and nothing
//! inside can end the frame.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use a2a::{CancelTaskRequest, GetTaskRequest, SendMessageRequest, SendMessageResponse, Task, TaskState};
use client::{Client, Error, egress::for_tenant};
use exchange::{Caller, Ledger};
use tokio::{task::JoinSet, time::Instant};

use super::{
    Remotes,
    call::{self, Found, Search, find, may_have_arrived, refusal, status_line},
    peer::{Peer, Refused, told},
    state::{Phase, State},
};
use crate::frame::{self, clean};

/// How long between two looks at a task that is under way.
const LOOK: Duration = Duration::from_millis(250);
const LONGEST_LOOK: Duration = Duration::from_secs(5);
/// How long a prompt waits for the cards of all remotes together.
const ROSTER_TIME: Duration = Duration::from_secs(2);
/// How long a prompt does not wait for a remote again whose card could not be fetched.
const ROSTER_PAUSE: Duration = Duration::from_secs(30);
/// The pauses before each look for the task of a message that has not been answered.
const FIND_AFTER: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5)];
/// How long a remote that nobody waits for any more may take to hear of it.
const CANCEL_TIME: Duration = Duration::from_secs(10);

/// One request of an agent: within it the card of a remote is asked for at most once.
pub struct Session<'a> {
    remotes: &'a Remotes,
    caller: &'a Caller,
    asked: BTreeSet<String>,
    ledger: Ledger,
    /// The id of the next message, where somebody has asked for it.
    next: Option<String>,
    /// The remote may still be at work on the last call.
    left_open: bool,
}

impl<'a> Session<'a> {
    /// A request of an agent of this caller's, which may hand on so much.
    pub fn new(remotes: &'a Remotes, caller: &'a Caller, ledger: Ledger) -> Self {
        Self { remotes, caller, asked: BTreeSet::new(), ledger, next: None, left_open: false }
    }

    /// What is left to hand on.
    pub fn ledger(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// Whether the remote may still be at work on the last call, which has ended without an answer.
    pub(crate) fn left_open(&self) -> bool {
        self.left_open
    }

    /// The id that the message of the next call will have.
    pub(crate) fn next_message(&mut self) -> String {
        let message = self.message();
        self.next = Some(message.clone());
        message
    }

    /// An id that no other message has. It says no more than how far the work was handed on.
    fn message(&self) -> String {
        let base = store::TaskId::mint().to_string();
        match self.ledger.clone().delegate(None) {
            Ok(delegation) => exchange::message_id(&base, &delegation),
            Err(_) => base,
        }
    }

    /// The part of a prompt that says which remotes there are; `None` where there are none. `is_new` is whether this is the first prompt of the
    /// request: then a card that is not fresh is fetched again, as a call would do it.
    pub async fn roster(&mut self, is_new: bool) -> Option<String> {
        let peers = self.remotes.visible_to(self.caller);
        if peers.is_empty() || !self.remotes.is_enabled() {
            return None;
        }
        let mut looks = JoinSet::new();
        for peer in peers.iter().filter(|peer| !peer.is_watched() && !peer.failed_within(ROSTER_PAUSE)) {
            let first = self.asked.insert(peer.spec.name.clone()) && is_new;
            let peer = Arc::clone(peer);
            looks.spawn(async move { ensure(&peer, first).await });
        }
        let all = async { while looks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(ROSTER_TIME, all).await;
        // A look that takes longer goes on, and a call of this request shares what it finds.
        looks.detach_all();
        let mut lines = vec![
            "REMOTE A2A AGENTS — delegate with /a2a call <name> <message> (distinct trust boundary; no shared memory):"
                .to_owned(),
        ];
        lines.extend(peers.iter().map(|peer| format!("  {}", line_of(peer))));
        Some(lines.join("\n"))
    }

    /// What an agent is told when it says this line: `list`, `card NAME` or `call NAME TEXT`, with or without `/a2a` before it.
    pub async fn run(&mut self, line: &str) -> String {
        self.left_open = false;
        let line = line.trim();
        let args = line.strip_prefix("/a2a").map_or(line, str::trim);
        let answer = for_tenant(self.caller.tenant.0, self.answer(args)).await;
        let body = answer.unwrap_or_else(|error| format!("ERR: {error}"));
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
                Err(refused) => format!("{} — (card unavailable: {})", peer.spec.name, peer.refusal(&refused)),
            });
        }
        lines.join("\n")
    }

    async fn card(&mut self, name: &str) -> Result<String, String> {
        let peer = self.find(name)?;
        self.look_at(&peer).await.map_err(|refused| format!("card fetch failed: {}", peer.refusal(&refused)))?;
        let Some(card) = peer.card() else { return Err("card fetch failed: there is none".to_owned()) };
        let card = &card.found.card;
        let mut lines = vec![
            format!("name: {}", clean(&card.name)),
            format!("description: {}", clean(&card.description)),
            format!("version: {}", clean(&card.version)),
        ];
        // The URL that the card gives to everybody. Where this server finds the remote is for the operator alone, whoever names it.
        let public = card.supported_interfaces.first().and_then(|interface| url::Url::parse(&interface.url).ok());
        if let Some(mut url) = public {
            // A query may hold a secret.
            url.set_query(None);
            lines.push(match peer.spec.names_host(url.as_str()) {
                true => format!("url: called by its name, {name}"),
                false => format!("url: {}", clean(url.as_str())),
            });
        }
        lines.push("skills:".to_owned());
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
        let message = self.next.take().unwrap_or_else(|| self.message());
        let peer = self.find(name)?;
        self.ledger.delegate(None).map_err(|refusal| refusal.to_string())?;
        let share = peer.share(Some(self.caller.tenant));
        let begun = std::time::Instant::now();
        let Some(_attempt) = share.breaker.attempt() else {
            return Err(format!("circuit breaker a2a:{name}: circuit OPEN — call rejected"));
        };
        if let Err(refused) = self.look_at(&peer).await {
            // Whoever is refused the card for want of a token will be refused the call.
            if let Refused::Card(error) = &refused
                && matches!(**error, Error::Auth(_))
            {
                return Err(answered(&peer, error));
            }
            if peer.card().is_none() && !peer.is_watched() {
                return Err(match &refused {
                    Refused::Card(error) if error.http_status().is_none() && error.is_mendable() => {
                        peer.broke(&share, begun, &told(error));
                        format!("transport: {}", peer.said(error))
                    }
                    refused => format!("card fetch failed: {}", peer.refusal(refused)),
                });
            }
        }
        let Ok(_place) = share.calls.try_acquire() else {
            return Err(format!("{name} has as many calls as it may have at once: try again"));
        };
        let client = peer.client().map_err(|refused| format!("card fetch failed: {}", peer.refusal(&refused)))?;
        let finder = peer.finder().map_err(|refused| format!("card fetch failed: {}", peer.refusal(&refused)))?;
        let request = client::user_message(message, text);
        let sent = State { message: request.message.message_id.clone(), ..State::default() };
        let mut watched = Watched { client: client.clone(), finder, sent: Some(sent) };
        let answer = tokio::time::timeout(peer.spec.timeout, converse(&client, &mut watched, request)).await;
        self.left_open = watched.sent.is_some();
        match answer {
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
                        Err(answered(&peer, &error))
                    }
                    _ => {
                        peer.broke(&share, begun, &why);
                        Err(format!("transport: {}", peer.said(&error)))
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
    /// Cancels what came of a message that was sent to a remote by this caller's agent.
    pub(crate) async fn cancel(&self, caller: &Caller, name: &str, message: &str) -> Result<(), String> {
        if !self.is_enabled() {
            return Err("`outbound.enabled` is false".to_owned());
        }
        // An entry that was removed may come back.
        let peer = self.find(name).filter(|peer| sees(peer, caller));
        let peer = peer.ok_or_else(|| format!("no remote agent named '{}'", clean(name)))?;
        let sent = State { phase: Phase::Sending, message: message.to_owned(), ..State::default() };
        call::cancel(&peer, &sent).await
    }

    /// The names of those that this caller sees.
    pub(crate) fn names(&self, caller: &Caller) -> Vec<String> {
        self.visible_to(caller).iter().map(|peer| peer.spec.name.clone()).collect()
    }
}

/// Makes sure that a card is known, fresh if it was not asked for in this request.
async fn ensure(peer: &Peer, first: bool) -> Result<(), Refused> {
    peer.ensure_card(first && !peer.is_watched()).await.map(drop)
}

/// An error that the remote answered with. Its status stands first: prompts and programs look for it there.
fn answered(peer: &Peer, error: &Error) -> String {
    match (status_line(error), error) {
        (Some(line), Error::Auth(_)) => {
            format!("{line} (remote {} {})", peer.spec.name, refusal(error, peer.has_credential()))
        }
        (Some(line), _) => line,
        (None, _) => peer.said(error),
    }
}

fn line_of(peer: &Peer) -> String {
    let description = peer.description();
    let skills: Vec<String> = peer.skills().into_iter().map(|skill| skill.id).collect();
    // Each of them is clean: in one line nothing looks like a line of ours.
    format!("{} — {description} (skills: {})", peer.spec.name, skills.join(", "))
}

pub(super) fn sees(peer: &Peer, caller: &Caller) -> bool {
    let is_theirs = peer.spec.tenants.as_ref().is_none_or(|names| names.contains(caller.name.as_ref()));
    is_theirs && caller.covers(&peer.spec.name)
}

/// Sends a message and waits for the whole answer.
async fn converse(
    client: &Client,
    watched: &mut Watched,
    request: SendMessageRequest,
) -> Result<Result<String, String>, Error> {
    let answer = client.send(request).await;
    // What was refused, or never left, needs no cancel.
    if answer.as_ref().is_err_and(|error| !may_have_arrived(error)) {
        watched.sent = None;
    }
    let mut task = match answer?.value {
        SendMessageResponse::Message(message) => {
            watched.sent = None;
            let answer = SendMessageResponse::Message(message);
            return Ok(Ok(
                client::reply_text(&answer).unwrap_or_else(|| "(the remote answered without words)".to_owned())
            ));
        }
        SendMessageResponse::Task(task) => task,
    };
    if let Some(sent) = &mut watched.sent {
        sent.task = Some(task.id.clone()).filter(|id| !id.is_empty());
    }
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
            Err(error) if error.is_mendable() => {}
            Err(error) => {
                return Err(error);
            }
        }
    }
    watched.sent = None;
    Ok(verdict(task))
}

/// A message to a remote whose answer is awaited. If the wait is given up before the task there has ended, that task is canceled. While the
/// remote has not answered, its task is looked for by the id of the message.
struct Watched {
    client: Client,
    finder: Client,
    /// `None` once nothing has to be canceled.
    sent: Option<State>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        let Some(sent) = self.sent.take() else { return };
        let (client, finder) = (self.client.clone(), self.finder.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(tokio::time::timeout(CANCEL_TIME, cancel(client, finder, sent)));
        }
    }
}

async fn cancel(client: Client, finder: Client, sent: State) {
    let (mut task, mut search) = (sent.task.clone(), Search::default());
    for wait in FIND_AFTER {
        if task.is_some() {
            break;
        }
        tokio::time::sleep(wait).await;
        match find(&finder, &sent, &mut search).await {
            Found::Yes(found) => task = Some(found.id),
            // It may have to be taken in first.
            Found::No | Found::Unsure | Found::NotNow(_) | Found::TooMany => {}
            Found::Unknown => return,
        }
    }
    if let Some(id) = task {
        let _ = client.cancel(CancelTaskRequest { id, ..CancelTaskRequest::default() }).await;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn s1_19_20_the_roster_is_there_when_somebody_is() {
        let home = tempfile::tempdir().unwrap();
        let yaml = home.path().join("agents.yaml");
        let options = super::super::Options { yaml: Some(yaml.clone()), ..Default::default() };
        let remotes = Remotes::new(options, exchange::Agents::default());
        let caller = |name: &str| Caller::new(store::TenantId(1), name);
        let roster = async |name: &str| {
            let caller = caller(name);
            Session::new(&remotes, &caller, Ledger::default()).roster(true).await
        };
        remotes.inner.look();
        assert_eq!(roster("acme").await, None);
        let entry = "  - {name: far, url: \"http://127.0.0.1:1/a2a\", skills: [one, two], tenants: [acme]}\n";
        std::fs::write(&yaml, format!("agents:\n{entry}")).unwrap();
        remotes.inner.look();
        let head =
            "REMOTE A2A AGENTS — delegate with /a2a call <name> <message> (distinct trust boundary; no shared memory):";
        let text = roster("acme").await.unwrap();
        assert_eq!(text, format!("{head}\n  far —  (skills: one, two)"));
        assert_eq!(roster("other").await, None, "who does not see one has none");
    }
}
