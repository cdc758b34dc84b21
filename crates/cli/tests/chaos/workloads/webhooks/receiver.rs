//! A receiver of notifications that behaves badly and writes down all that arrives.

use std::{
    collections::{BTreeSet, HashMap},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::random::Random;

/// How long a receiver that hangs says nothing; longer than an attempt may take.
const HANGS: Duration = Duration::from_millis(1600);

/// How long a late receiver takes for an answer.
const LATE: Duration = Duration::from_millis(800);

/// The number of requests after which a webhook that leaves answers 410.
const LEAVES_AFTER: usize = 2;

/// How a receiver behaves during the run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manners {
    /// Answers as it should, after a little while, so that kills find requests on their way.
    Slow,
    /// Every trouble there is.
    Moody,
    /// As [`Manners::Slow`], and from time to time its port is closed.
    Away,
    /// Answers as it should, after most of a second.
    Late,
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Answered with 2xx.
    Accepted,
    /// Received as well, but the connection was reset instead of an answer.
    Swallowed,
    /// Not received: answered with 500, or with 429 and a time to wait.
    PutOff,
    /// Not received: no answer before the sender gave up.
    Hung,
    /// Not received: the connection was reset.
    Reset,
    /// Answered with 410.
    Gone,
}

/// A request that arrived.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    /// The path of the URL, which no other webhook has.
    pub(crate) hook: String,
    /// The `webhook-id`.
    pub(crate) id: String,
    /// When all of it was there.
    pub(crate) at: Instant,
    /// When it was answered or cut off.
    pub(crate) until: Instant,
    pub(crate) fate: Fate,
    pub(crate) body: Vec<u8>,
    /// The `a2a-version`.
    pub(crate) version: String,
    /// The signature is that of the tenant's secret over what arrived, and the token is that of the webhook.
    pub(crate) is_genuine: bool,
}

/// Everything that arrived at all receivers of a run, in that order.
#[derive(Clone, Default)]
pub(crate) struct Notebook(Arc<Mutex<Notes>>);

#[derive(Default)]
struct Notes {
    arrivals: Vec<Arrival>,
    /// The key of signatures.
    secret: Vec<u8>,
    /// The webhooks that answer 410 after a while, and how often they were called.
    leavers: HashMap<String, usize>,
    /// Those that have said so.
    left: BTreeSet<String>,
    /// Connections that were reset before anything was read.
    refused: usize,
}

/// One address of its own.
pub(crate) struct Receiver {
    address: SocketAddr,
    manners: Manners,
    /// Its behavior at the moment; without one it answers as it should.
    behaves: watch::Sender<Option<Manners>>,
    /// Whether its port is open.
    open: watch::Sender<bool>,
}

impl Notebook {
    fn lock(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Signatures are checked with this from now on, as `/v1/push/secret` shows it.
    pub(crate) fn set_secret(&self, secret: &str) {
        let secret = secret.strip_prefix("whsec_").expect("a secret of the Standard Webhooks says what it is");
        self.lock().secret = STANDARD.decode(secret).expect("it is base64");
    }

    /// This webhook says after a while that it is gone.
    pub(crate) fn leaves(&self, hook: &str) {
        self.lock().leavers.insert(hook.to_owned(), 0);
    }

    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        self.lock().arrivals.clone()
    }

    pub(crate) fn refused(&self) -> usize {
        self.lock().refused
    }

    /// The webhooks that have said that they are gone.
    pub(crate) fn left(&self) -> BTreeSet<String> {
        self.lock().left.clone()
    }

    /// Writes down what arrived, and decides what becomes of it.
    fn write(&self, request: Request, manners: Option<Manners>, random: &mut Random) -> (Fate, Instant) {
        let mut notes = self.lock();
        let left = notes.leavers.get_mut(&request.hook).is_some_and(|calls| {
            *calls += 1;
            *calls > LEAVES_AFTER
        });
        if left {
            notes.left.insert(request.hook.clone());
        }
        let fate = if left { Fate::Gone } else { fate(manners, random) };
        let is_genuine = request.is_genuine(&notes.secret);
        let pause = match (fate, manners) {
            (Fate::Hung, _) => HANGS,
            (Fate::Swallowed | Fate::Reset, _) | (_, None) => Duration::ZERO,
            (_, Some(Manners::Late)) => LATE,
            _ => Duration::from_millis(random.below(120)),
        };
        let at = Instant::now();
        let until = at + pause;
        let Request { hook, id, version, body, .. } = request;
        notes.arrivals.push(Arrival { hook, id, at, until, fate, body, version, is_genuine });
        (fate, until)
    }
}

fn fate(manners: Option<Manners>, random: &mut Random) -> Fate {
    match manners {
        None | Some(Manners::Late) => Fate::Accepted,
        Some(Manners::Slow | Manners::Away) => match random.below(100) {
            0..6 => Fate::Swallowed,
            _ => Fate::Accepted,
        },
        Some(Manners::Moody) => match random.below(100) {
            0..50 => Fate::Accepted,
            50..64 => Fate::Swallowed,
            64..82 => Fate::PutOff,
            82..88 => Fate::Hung,
            _ => Fate::Reset,
        },
    }
}

impl Receiver {
    /// Listens on a port of its own.
    pub(crate) async fn start(notebook: &Notebook, manners: Manners, random: &mut Random) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let address = listener.local_addr().expect("it listens somewhere");
        let (behaves, how) = watch::channel(Some(manners));
        let (open, is_open) = watch::channel(true);
        tokio::spawn(listen(listener, address, notebook.clone(), how, is_open, random.fork()));
        Self { address, manners, behaves, open }
    }

    /// The URL of a webhook here.
    pub(crate) fn url(&self, hook: &str) -> String {
        format!("http://{}/{hook}", self.address)
    }

    /// Closes the port, or opens it again.
    pub(crate) fn set_open(&self, open: bool) {
        self.open.send_replace(open);
    }

    /// Its behavior during the run.
    pub(crate) fn manners(&self) -> Manners {
        self.manners
    }

    /// Answers as it should from now on.
    pub(crate) fn be_good(&self) {
        self.behaves.send_replace(None);
        self.set_open(true);
    }
}

async fn listen(
    first: TcpListener,
    address: SocketAddr,
    notebook: Notebook,
    manners: watch::Receiver<Option<Manners>>,
    mut open: watch::Receiver<bool>,
    mut random: Random,
) {
    let mut listener = Some(first);
    loop {
        let Some(listening) = &listener else {
            if open.wait_for(|open| *open).await.is_err() {
                return;
            }
            listener = Some(TcpListener::bind(address).await.expect("nobody else takes the port"));
            continue;
        };
        tokio::select! {
            accepted = listening.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let talk = talk(stream, notebook.clone(), manners.clone(), open.clone(), random.fork());
                tokio::spawn(talk);
            }
            changed = open.changed() => {
                if changed.is_err() {
                    return;
                }
                if !*open.borrow_and_update() {
                    listener = None;
                }
            }
        }
    }
}

/// Serves a connection until it ends, the port is closed, or it is reset.
async fn talk(
    mut stream: TcpStream,
    notebook: Notebook,
    manners: watch::Receiver<Option<Manners>>,
    mut open: watch::Receiver<bool>,
    mut random: Random,
) {
    // A connection that is closed from this side is reset.
    let _ = stream.set_zero_linger();
    // Only at its beginning: later the reset could overtake an answer.
    if *manners.borrow() == Some(Manners::Moody) && random.below(10) == 0 {
        notebook.lock().refused += 1;
        return;
    }
    let mut buffer = Vec::new();
    loop {
        // A request that was read is answered before the port is closed, so that what is noted as accepted was.
        let request = tokio::select! {
            _ = open.wait_for(|open| !*open) => None,
            request = Request::read(&mut stream, &mut buffer) => request,
        };
        let Some(request) = request else { return };
        let how = *manners.borrow();
        let (fate, until) = notebook.write(request, how, &mut random);
        tokio::time::sleep_until(until.into()).await;
        let reply: &[u8] = match fate {
            Fate::Accepted => b"HTTP/1.1 204 No Content\r\n\r\n",
            Fate::PutOff if random.below(2) == 0 => {
                b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-length: 4\r\n\r\nlate"
            }
            Fate::PutOff => b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 4\r\n\r\noops",
            Fate::Gone => b"HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n",
            Fate::Hung | Fate::Swallowed | Fate::Reset => return,
        };
        if stream.write_all(reply).await.is_err() {
            return;
        }
        if !*open.borrow() {
            // The answer goes first.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// A notification on the wire.
struct Request {
    hook: String,
    id: String,
    timestamp: String,
    signature: String,
    token: String,
    version: String,
    body: Vec<u8>,
}

impl Request {
    /// The next one of a connection; `None` at its end.
    async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Self> {
        let head = loop {
            if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break buffer.drain(..end + 4).collect::<Vec<u8>>();
            }
            if stream.read_buf(buffer).await.ok()? == 0 {
                return None;
            }
        };
        let head = String::from_utf8(head).expect("a head is ASCII");
        let mut lines = head.lines();
        let target = lines.next()?.strip_prefix("POST /")?.split(' ').next()?.to_owned();
        let headers: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(": ")).collect();
        let header = |name: &str| {
            let found = headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
            found.map(|(_, value)| (*value).to_owned()).unwrap_or_default()
        };
        let length: usize = header("content-length").parse().expect("a notification says how long it is");
        while buffer.len() < length {
            if stream.read_buf(buffer).await.ok()? == 0 {
                return None;
            }
        }
        Some(Self {
            hook: target,
            id: header("webhook-id"),
            timestamp: header("webhook-timestamp"),
            signature: header("webhook-signature"),
            token: header("x-a2a-notification-token"),
            version: header("a2a-version"),
            body: buffer.drain(..length).collect(),
        })
    }

    /// By the Standard Webhooks: HMAC-SHA256 over the id, the time and the body, and a time that is not far from now.
    fn is_genuine(&self, secret: &[u8]) -> bool {
        let signature = self.signature.split(' ').find_map(|one| one.strip_prefix("v1,"));
        let Some(signature) = signature.and_then(|text| STANDARD.decode(text).ok()) else { return false };
        let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key may have any length");
        mac.update(format!("{}.{}.", self.id, self.timestamp).as_bytes());
        mac.update(&self.body);
        let now = store::clock::now().as_millis() / 1000;
        let is_recent = self.timestamp.parse::<i64>().is_ok_and(|then| (now - then).abs() < 300);
        mac.verify_slice(&signature).is_ok() && is_recent && self.token == token(&self.hook)
    }
}

/// The token that a webhook's notifications must bring.
pub(crate) fn token(hook: &str) -> String {
    format!("token-of-{hook}")
}
