//! Replies from a file: a provider for tests, for demonstrations and for machines without a network.
//!
//! The file is read when it changes, never for a call: an instant reply costs what looking through the list costs.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwapOption;
use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::{
    Content, Message, Piece, Request, Role, Stop, Usage,
    ask::Attempt,
    error::{Error, ErrorKind, Failure},
    status::{self, Told},
};
use crate::units::Span;

/// Stands for the last words of the user in a reply.
const INPUT: &str = "{{input}}";
/// The most that is read of the file.
const LARGEST: u64 = 64 << 20;

/// A file of replies.
pub(super) struct Script {
    path: PathBuf,
    loaded: ArcSwapOption<Loaded>,
    last: Mutex<(Option<Stamp>, Option<String>)>,
}

/// What changes when a file does.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    inode: u64,
}

/// A file that was read without fault.
pub(super) struct Loaded {
    replies: Vec<Reply>,
    /// Which replies have been given that are given only once.
    used: Vec<AtomicBool>,
    log: Option<Mutex<fs::File>>,
    calls: AtomicU64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Replies {
    replies: Vec<Reply>,
    log: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reply {
    #[serde(rename = "match")]
    matches: Option<String>,
    model: Option<String>,
    text: Option<Text>,
    #[serde(default)]
    echo: bool,
    delay: Option<Span>,
    stop: Option<String>,
    error: Option<Refusal>,
    usage: Option<Figures>,
    #[serde(default)]
    once: bool,
}

/// An error as a provider would answer it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Refusal {
    status: u16,
    /// In seconds.
    retry_after: Option<u64>,
    message: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figures {
    #[serde(default)]
    input_tokens: u64,
    #[serde(default)]
    output_tokens: u64,
}

/// One piece or several.
struct Text(Vec<String>);

/// A reply that is being said.
pub(super) struct Saying {
    provider: String,
    model: String,
    pieces: std::vec::IntoIter<String>,
    delay: Option<Duration>,
    /// When the next piece comes. Kept, so that whoever stops waiting and waits again does not wait longer.
    due: Option<Instant>,
    error: Option<Refusal>,
    stop: Stop,
    usage: Usage,
    loaded: Arc<Loaded>,
    call: u64,
}

impl Script {
    /// A file that is to be read.
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), loaded: ArcSwapOption::empty(), last: Mutex::default() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What it says, once it has been read without fault.
    pub(super) fn loaded(&self) -> Option<Arc<Loaded>> {
        self.loaded.load_full()
    }

    /// What is wrong with it.
    pub(super) fn error(&self) -> Option<String> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Reads it again if it has changed.
    pub(super) fn look(&self) {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = fs::metadata(&self.path).ok().map(|meta| Stamp {
            modified: meta.modified().ok(),
            bytes: meta.len(),
            inode: meta.ino(),
        });
        if stamp == last.0 && (stamp.is_some() || last.1.is_some()) {
            return;
        }
        let read = store::read_regular(&self.path, LARGEST).map_err(|error| format!("cannot be read: {error}"));
        let read = read.and_then(|bytes| String::from_utf8(bytes).map_err(|_| "is not UTF-8 text".to_owned()));
        let directory = self.path.parent().unwrap_or(Path::new(""));
        let error = match read.and_then(|text| Loaded::parse(&text, directory)) {
            Ok(loaded) => {
                self.loaded.store(Some(Arc::new(loaded)));
                None
            }
            Err(why) => {
                let error = format!("`{name}`: {why}");
                tracing::error!(path = %self.path.display(), error, "the file of replies is broken; what it said last counts");
                Some(error)
            }
        };
        *last = (stamp, error);
    }
}

impl Loaded {
    fn parse(text: &str, directory: &Path) -> Result<Self, String> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let file: Replies = serde_path_to_error::deserialize(&mut reader)
            .map_err(|error| format!("`{}`: {}", error.path(), error.inner()))?;
        reader.end().map_err(|error| error.to_string())?;
        for (n, reply) in file.replies.iter().enumerate() {
            let says = reply.text.is_some() || reply.echo || reply.error.is_some();
            if !says || (reply.text.is_some() && reply.echo) {
                return Err(format!(
                    "`replies[{n}]`: one of `text`, `echo` and `error` is required, and `text` may come before `error`"
                ));
            }
        }
        let log = file.log.map(|path| {
            let path = directory.join(path);
            let opened = OpenOptions::new().create(true).append(true).open(&path);
            opened.map(Mutex::new).map_err(|error| format!("`log`: {} cannot be opened: {error}", path.display()))
        });
        let used = file.replies.iter().map(|_| AtomicBool::new(false)).collect();
        Ok(Self { replies: file.replies, used, log: log.transpose()?, calls: AtomicU64::new(0) })
    }

    /// The first reply that fits.
    fn choose(&self, model: &str, input: &str) -> Option<&Reply> {
        self.replies.iter().zip(&self.used).find_map(|(reply, used)| {
            let fits = reply.matches.as_ref().is_none_or(|text| input.contains(text.as_str()))
                && reply.model.as_ref().is_none_or(|name| name == model);
            // Only one of those who come at once gets what is said once.
            (fits && (!reply.once || !used.swap(true, Relaxed))).then_some(reply)
        })
    }

    fn note(&self, line: impl FnOnce() -> Value) {
        let Some(log) = &self.log else { return };
        let mut line = line().to_string();
        line.push('\n');
        let mut file = log.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(line.as_bytes()) {
            tracing::warn!(%error, "the log of scripted replies cannot be written");
        }
    }

    /// Begins to answer.
    pub(super) fn ask(self: &Arc<Self>, provider: &str, model: &str, request: &Request) -> Result<Saying, Failure> {
        let call = self.calls.fetch_add(1, Relaxed) + 1;
        let said = || request.messages.iter().map(shown).collect::<Vec<_>>();
        self.note(
            || json!({"event": "begun", "call": call, "model": model, "system": request.system, "messages": said()}),
        );
        let last = request.messages.iter().rev().find(|message| message.role == Role::User);
        let input = last.map(Message::text).unwrap_or_default();
        let Some(reply) = self.choose(model, &input) else {
            let error = Error::new(
                ErrorKind::Invalid,
                provider,
                format!("no scripted reply fits model `{model}` and what was said"),
            );
            return Err(error.never());
        };
        let pieces: Vec<String> = match &reply.text {
            Some(Text(pieces)) => pieces.iter().map(|piece| piece.replace(INPUT, &input)).collect(),
            None if reply.echo => vec![input],
            None => Vec::new(),
        };
        let usage = reply.usage.map_or_else(
            || Usage { input_tokens: words_of(request), output_tokens: pieces.iter().map(|piece| words(piece)).sum() },
            |given| Usage { input_tokens: given.input_tokens, output_tokens: given.output_tokens },
        );
        let stop = match reply.stop.as_deref() {
            None | Some("done") => Stop::Done,
            Some("length") => Stop::Length,
            Some(other) => Stop::Other(other.to_owned()),
        };
        Ok(Saying {
            provider: provider.to_owned(),
            model: model.to_owned(),
            pieces: pieces.into_iter(),
            delay: reply.delay.map(|delay| delay.0),
            due: None,
            error: reply.error.clone(),
            stop,
            usage,
            loaded: Arc::clone(self),
            call,
        })
    }
}

impl Saying {
    /// The next piece. Cancel-safe.
    pub(super) async fn next(&mut self) -> Attempt<Piece> {
        loop {
            // An error comes where the piece after the last would have come.
            if let Some(delay) = self.delay.filter(|_| self.pieces.len() > 0 || self.error.is_some()) {
                sleep_until(*self.due.get_or_insert_with(|| Instant::now() + delay)).await;
                self.due = None;
            }
            match self.pieces.next() {
                Some(text) if text.is_empty() => {}
                Some(text) => return Ok(Piece::Text(text)),
                None => break,
            }
        }
        let (call, model) = (self.call, &self.model);
        if let Some(refusal) = &self.error {
            self.loaded.note(|| json!({"event": "failed", "call": call, "model": model, "status": refusal.status}));
            let wait = refusal.retry_after.map(Duration::from_secs);
            let message = refusal.message.clone().unwrap_or_else(|| "a scripted error".to_owned());
            let told = Told { message, ..Told::default() };
            return Err(status::failure(&self.provider, Some(refusal.status), wait, &told, None));
        }
        let (stop, usage) = (&self.stop, self.usage);
        self.loaded.note(|| {
            let usage = json!({"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens});
            json!({"event": "completed", "call": call, "model": model, "stop": stop.as_str(), "usage": usage})
        });
        Ok(Piece::End { stop: stop.clone(), usage })
    }
}

/// A message as the log has it: pictures are told by their kind.
fn shown(message: &Message) -> Value {
    let content = message.content.iter().map(|content| match content {
        Content::Text(text) => json!({"text": text}),
        Content::Image { media_type, data } => json!({"image": media_type, "bytes": data.len()}),
        Content::ImageUrl(url) => json!({"image_url": url}),
    });
    json!({"role": message.role.as_str(), "content": content.collect::<Vec<_>>()})
}

fn words(text: &str) -> u64 {
    text.split_ascii_whitespace().count() as u64
}

fn words_of(request: &Request) -> u64 {
    let mut sum = words(&request.system);
    for content in request.messages.iter().flat_map(|message| &message.content) {
        if let Content::Text(text) = content {
            sum += words(text);
        }
    }
    sum
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pieces;

        impl<'de> Visitor<'de> for Pieces {
            type Value = Text;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a text or a list of texts")
            }

            fn visit_str<E>(self, text: &str) -> Result<Text, E> {
                Ok(Text(vec![text.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Text, A::Error> {
                let mut pieces = Vec::new();
                while let Some(piece) = seq.next_element()? {
                    pieces.push(piece);
                }
                Ok(Text(pieces))
            }
        }

        deserializer.deserialize_any(Pieces)
    }
}
