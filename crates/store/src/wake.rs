//! Wake-ups between instances: what one tells the others after a commit, and by which channel.
//!
//! A wake-up is a hint and nothing else. It names tasks whose log has grown, never what is in it, and whoever hears it
//! reads the log. One that is lost, late, doubled or forged costs time or one read of the log: a cursor looks at the
//! log by itself every few seconds, and the workers do the same for work that is due. So nothing here is retried, and
//! nothing here may ever make a commit wait.

use std::{collections::HashMap, fmt, path::PathBuf, str::FromStr};

use url::Url;
use uuid::Uuid;

use crate::{Error, Hub, InstanceId, Result, Store, TaskId, nats};

/// How long a payload may get. PostgreSQL takes less than 8,000 bytes with a NOTIFY.
pub(crate) const MAX_PAYLOAD: usize = 7_900;

/// The channel of LISTEN and NOTIFY.
pub(crate) const CHANNEL: &str = "switchboard_wake";

/// The first word of a payload: the format and its version.
const FORMAT: &str = "sb1";

/// The setting that names the installation: what instances of one store have in common, and no others.
const INSTALLATION: &str = "installation";

/// Where a NATS server listens when nothing else is said.
const PORT: u16 = 4222;

/// How instances, and the tasks inside one, are woken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wake {
    /// Not at all, not even inside a process: everything is found by looking. To prove that it is.
    Off,
    /// Inside this process only. On SQLite processes see each other's commits by looking at the file.
    Local,
    /// By PostgreSQL's NOTIFY.
    Notify,
    /// By a NATS server.
    Nats(NatsUrl),
}

/// Where a NATS server is, and what opens it. `Debug` and `Display` do not show secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct NatsUrl {
    /// Without the login: whatever prints it prints no secret.
    pub(crate) address: Url,
    pub(crate) login: Login,
    /// Trust these authorities alone; those of the system when there is none.
    pub(crate) authority: Option<PathBuf>,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Login {
    None,
    Token(String),
    User {
        name: String,
        password: String,
    },
    /// A file with the seed of a key.
    Nkey(PathBuf),
    /// A file with a signed claim and the seed of its key, as NATS's own tools write it.
    Credentials(PathBuf),
}

/// Why a text names no wake-up channel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WakeError {
    /// It is none of the words.
    #[error("a wake-up channel is off, local, notify, nats://host[:port] or tls://host[:port]")]
    Unknown,
    /// It begins with `nats://` or `tls://` and goes on wrongly.
    #[error(
        "not a NATS address: {0}; write nats://[user:password@|token@]host[:port], or tls:// and the same, and behind it \
         ?ca=FILE, ?nkey=FILE or ?creds=FILE where needed"
    )]
    Nats(String),
}

/// What a commit means for others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct News {
    /// The tasks whose log has grown, and where it ends now.
    pub tasks: Vec<(TaskId, u64)>,
    /// More tasks than can be named: look at everything that is watched.
    pub everything: bool,
    /// Work may be due, or a cancel mark may have been set.
    pub due: bool,
}

/// A payload that is no news of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Foreign {
    /// Another version of this program tells something that this one does not understand.
    Version,
    Garbage,
}

impl News {
    /// The news of a commit. Of several events of one task the last one counts.
    pub fn of(events: impl IntoIterator<Item = (TaskId, u64)>, due: bool) -> Self {
        let mut tasks: Vec<(TaskId, u64)> = Vec::new();
        let mut places: HashMap<TaskId, usize> = HashMap::new();
        for (task, seq) in events {
            let place = *places.entry(task).or_insert(tasks.len());
            match tasks.get_mut(place) {
                Some((_, end)) => *end = seq.max(*end),
                None => tasks.push((task, seq)),
            }
        }
        Self { tasks, everything: false, due }
    }

    /// All that there may be: said after a silence.
    pub fn all() -> Self {
        Self { tasks: Vec::new(), everything: true, due: true }
    }

    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty() && !self.everything && !self.due
    }

    /// The payload: `sb1 <sender> <d|-> <tasks>`. Tasks are `*` for everything, or `<id>:<seq>` separated by commas,
    /// the id's 128 bits as 22 digits of base 64.
    pub fn encode(&self, me: InstanceId) -> String {
        let due = if self.due { 'd' } else { '-' };
        let head = format!("{FORMAT} {me} {due} ");
        if self.everything {
            return head + "*";
        }
        let mut text = head.clone();
        for (n, (task, seq)) in self.tasks.iter().enumerate() {
            if n > 0 {
                text.push(',');
            }
            push_id(&mut text, *task);
            text.push(':');
            text.push_str(&seq.to_string());
            if text.len() > MAX_PAYLOAD {
                return head + "*";
            }
        }
        text
    }

    /// Reads a payload: who says it, and what. Total on all bytes.
    pub(crate) fn decode(payload: &[u8]) -> Result<(InstanceId, Self), Foreign> {
        if payload.len() > MAX_PAYLOAD {
            return Err(Foreign::Garbage);
        }
        let text = std::str::from_utf8(payload).map_err(|_| Foreign::Garbage)?;
        let mut words = text.split(' ');
        let mut word = || words.next().ok_or(Foreign::Garbage);
        let format = word()?;
        if format != FORMAT {
            let version = format.strip_prefix("sb").filter(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
            return Err(if version.is_some() { Foreign::Version } else { Foreign::Garbage });
        }
        let from = InstanceId::parse(word()?).ok_or(Foreign::Garbage)?;
        let due = match word()? {
            "d" => true,
            "-" => false,
            _ => return Err(Foreign::Garbage),
        };
        let list = word()?;
        if words.next().is_some() {
            return Err(Foreign::Garbage);
        }
        let mut news = Self { tasks: Vec::new(), everything: list == "*", due };
        if !news.everything && !list.is_empty() {
            for entry in list.split(',') {
                news.tasks.push(entry_of(entry).ok_or(Foreign::Garbage)?);
            }
        }
        Ok((from, news))
    }
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// 22 digits of 6 bits hold 132: the first one is below 4.
const TOP: u32 = 126;

fn push_id(text: &mut String, task: TaskId) {
    let number = task.as_u128();
    for shift in (0..=TOP).rev().step_by(6) {
        text.push(char::from(DIGITS[usize::from((number >> shift) as u8 & 63)]));
    }
}

fn entry_of(entry: &str) -> Option<(TaskId, u64)> {
    let (id, seq) = entry.split_once(':')?;
    if id.len() != 22 || seq.is_empty() || !seq.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut number: u128 = 0;
    for (n, byte) in id.bytes().enumerate() {
        let digit = DIGITS.iter().position(|digit| *digit == byte)?;
        if n == 0 && digit > 3 {
            return None;
        }
        number = number << 6 | digit as u128;
    }
    Some((TaskId::from_u128(number), seq.parse().ok()?))
}

impl Hub {
    /// Takes in a payload that came over a channel. What this instance said itself is passed over, and so is what nobody
    /// here said: a channel may be open to others.
    pub(crate) fn hear(&self, me: InstanceId, payload: &[u8]) {
        match News::decode(payload) {
            Ok((from, _)) if from == me => {}
            Ok((_, news)) => self.take(&news),
            // During an upgrade: what it says is not understood, that it says something is.
            Err(Foreign::Version) => self.take(&News::all()),
            Err(Foreign::Garbage) => {
                tracing::debug!(bytes = payload.len(), "a wake-up that is none was passed over");
            }
        }
    }

    /// Believes the news.
    pub(crate) fn take(&self, news: &News) {
        if news.everything {
            self.announce_all();
        }
        for (task, seq) in &news.tasks {
            self.announce(*task, *seq);
        }
        if news.due {
            self.poke();
        }
    }
}

/// Joins the store to the channel that goes beside it. Only NATS does: the others are the store's own. Needs a runtime;
/// the server need not be there yet, and may go and come back.
pub async fn join(store: &dyn Store, wake: &Wake) -> Result<()> {
    let Wake::Nats(url) = wake else { return Ok(()) };
    let name = store.setting(INSTALLATION, Uuid::new_v4().simple().to_string().into_bytes()).await?;
    let name = String::from_utf8(name).unwrap_or_default();
    if name.is_empty() || name.len() > 64 || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Err(Error::Damaged(format!("the setting `{INSTALLATION}` is not a name")));
    }
    let (hub, me) = (store.hub(), store.instance());
    hub.tell_through(nats::start(url, format!("switchboard.{name}.wake"), me, hub.inward())?);
    Ok(())
}

impl FromStr for Wake {
    type Err = WakeError;

    fn from_str(text: &str) -> Result<Self, WakeError> {
        match text {
            "off" => Ok(Self::Off),
            "local" => Ok(Self::Local),
            "notify" => Ok(Self::Notify),
            _ if text.starts_with("nats://") || text.starts_with("tls://") => {
                NatsUrl::parse(text).map(Self::Nats).map_err(WakeError::Nats)
            }
            _ => Err(WakeError::Unknown),
        }
    }
}

impl fmt::Display for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Local => f.write_str("local"),
            Self::Notify => f.write_str("notify"),
            Self::Nats(url) => url.fmt(f),
        }
    }
}

impl NatsUrl {
    /// Says what is wrong, without repeating a secret.
    fn parse(text: &str) -> Result<Self, String> {
        let mut url: Url = text.parse().map_err(|error: url::ParseError| error.to_string())?;
        if url.host_str().is_none_or(str::is_empty) || url.port() == Some(0) {
            return Err("the host or the port is missing".into());
        }
        if url.authority().contains(',') || !matches!(url.path(), "" | "/") || url.fragment().is_some() {
            return Err("only a host and a port may follow".into());
        }
        let mut login = match (unescape(url.username())?, url.password()) {
            (name, None) if name.is_empty() => Login::None,
            (token, None) => Login::Token(token),
            (name, Some(_)) if name.is_empty() => return Err("the user is missing".into()),
            (name, Some(password)) => Login::User { name, password: unescape(password)? },
        };
        let mut authority = None;
        for pair in url.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let file = PathBuf::from(unescape(value)?);
            match name {
                "ca" => authority = Some(file),
                "nkey" | "creds" if login != Login::None => return Err("there is more than one way to log in".into()),
                "nkey" => login = Login::Nkey(file),
                "creds" => login = Login::Credentials(file),
                // It may be the rest of a password with a '?' in it, so it is not told.
                _ => return Err("only ca, nkey and creds may follow a '?'".into()),
            }
        }
        // A scheme with a host can have all of these.
        let _ = (url.set_username(""), url.set_password(None), url.set_port(url.port().or(Some(PORT))));
        Ok(Self { address: url, login, authority })
    }
}

/// Percent escapes, as in every URL.
fn unescape(text: &str) -> Result<String, String> {
    let text = percent_encoding::percent_decode_str(text).decode_utf8();
    text.map(Into::into).map_err(|_| "a percent escape is not text".into())
}

impl fmt::Display for NatsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut url = self.address.clone();
        let _ = match &self.login {
            Login::Token(_) => url.set_username("***"),
            Login::User { name, .. } => url.set_username(name).and_then(|()| url.set_password(Some("***"))),
            Login::None | Login::Nkey(_) | Login::Credentials(_) => Ok(()),
        };
        url.fmt(f)
    }
}

impl fmt::Debug for NatsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_travel_as_text() {
        let me = InstanceId::mint();
        let (a, b) = (TaskId::mint(), TaskId::mint());
        let cases = [
            News::default(),
            News::all(),
            News::of([], true),
            News::of([(a, 1), (b, u64::MAX)], false),
            News::of([(TaskId::from_u128(0), 0), (TaskId::from_u128(u128::MAX), 1)], true),
        ];
        for news in cases {
            let text = news.encode(me);
            assert_eq!(News::decode(text.as_bytes()), Ok((me, news)), "{text}");
        }
    }

    #[test]
    fn the_last_event_of_a_task_counts() {
        let (a, b) = (TaskId::mint(), TaskId::mint());
        let news = News::of([(a, 1), (b, 7), (a, 2), (a, 3)], false);
        assert_eq!(news.tasks, [(a, 3), (b, 7)]);
    }

    #[test]
    fn too_many_tasks_are_everything() {
        let me = InstanceId::mint();
        let many = |n: usize| News::of((0..n).map(|_| (TaskId::mint(), 100)), false);
        // What a batch of some hundred sends needs.
        let text = many(280).encode(me);
        assert!(text.len() <= MAX_PAYLOAD && !text.ends_with('*'), "{}", text.len());
        let (_, news) = News::decode(many(5000).encode(me).as_bytes()).unwrap();
        assert_eq!(news, News { tasks: vec![], everything: true, due: false });
    }

    #[test]
    fn foreign_bytes_are_refused() {
        let me = InstanceId::mint();
        let good = News::of([(TaskId::mint(), 12)], true).encode(me);
        for n in 0..good.len() {
            let mut bytes = good.clone().into_bytes();
            for byte in [0, b' ', b',', b':', b'*', 0xff] {
                bytes[n] = byte;
                // Whatever it is read as, reading it ends well.
                let _ = News::decode(&bytes);
            }
            // Without its end a list may still be one, with a smaller number; never another task.
            if let Ok((from, cut)) = News::decode(&good.as_bytes()[..n]) {
                assert_eq!(from, me);
                assert!(cut.tasks.iter().all(|(task, seq)| good.contains(&task_text(*task)) && *seq <= 12));
            }
        }
        let id = me.to_string();
        for bad in [
            "",
            " ",
            "sb",
            "sbx",
            "hello world",
            "sb1",
            "sb1 x d *",
            &format!("sb1 {id} x *"),
            &format!("sb1 {id} d"),
            &format!("sb1 {id} d * *"),
            &format!("sb1 {id} d ,"),
            &format!("sb1 {id} d A:1"),
            &format!("sb1 {id} d {}:-1", "A".repeat(22)),
            &format!("sb1 {id} d {}:+1", "A".repeat(22)),
            &format!("sb1 {id} d {}:99999999999999999999", "A".repeat(22)),
            &format!("sb1 {id} d {}:1", "_".repeat(22)),
            &format!("sb1 {id} d {}", "A".repeat(9000)),
        ] {
            assert_eq!(News::decode(bad.as_bytes()), Err(Foreign::Garbage), "{bad}");
        }
        assert_eq!(News::decode(b"sb2 anything at all"), Err(Foreign::Version));
    }

    fn task_text(task: TaskId) -> String {
        let mut text = String::new();
        push_id(&mut text, task);
        text
    }

    #[test]
    fn an_instance_does_not_listen_to_itself() {
        let hub = Hub::default();
        let (me, other, task) = (InstanceId::mint(), InstanceId::mint(), TaskId::mint());
        let mut watch = hub.watch(task);
        let mut due = hub.due();
        let news = News::of([(task, 3)], true);
        hub.hear(me, news.encode(me).as_bytes());
        hub.hear(me, b"garbage");
        assert!(!watch.has_changed() && !due.has_changed().unwrap());
        hub.hear(me, news.encode(other).as_bytes());
        assert!(watch.has_changed() && due.has_changed().unwrap());
        assert!(matches!(watch.recent(0), crate::Recent::Behind));
        due.borrow_and_update();
        hub.hear(me, b"sb2 something new");
        assert!(watch.has_changed() && due.has_changed().unwrap(), "a newer version says something");
    }

    #[test]
    fn channels_are_named_as_on_the_command_line() {
        assert_eq!("off".parse(), Ok(Wake::Off));
        assert_eq!("local".parse(), Ok(Wake::Local));
        assert_eq!("notify".parse(), Ok(Wake::Notify));
        let user = |name: &str, password: &str| Login::User { name: name.into(), password: password.into() };
        for (text, address, login) in [
            ("nats://queue", "nats://queue:4222", Login::None),
            ("nats://10.0.0.1:42/", "nats://10.0.0.1:42/", Login::None),
            ("tls://[::1]", "tls://[::1]:4222", Login::None),
            ("nats://[::1]:7", "nats://[::1]:7", Login::None),
            ("nats://s3cr%40t@h", "nats://h:4222", Login::Token("s3cr@t".into())),
            ("nats://me:p%3aw@h:1", "nats://h:1", user("me", "p:w")),
            ("tls://h?nkey=/a+b%20c", "tls://h:4222?nkey=/a+b%20c", Login::Nkey("/a+b c".into())),
            ("nats://h/?creds=x", "nats://h:4222/?creds=x", Login::Credentials("x".into())),
        ] {
            let url = NatsUrl { address: address.parse().unwrap(), login, authority: None };
            assert_eq!(text.parse(), Ok(Wake::Nats(url)), "{text}");
        }
        let Ok(Wake::Nats(url)) = "tls://t@h?ca=/ca.pem".parse() else { panic!("a file of authorities is refused") };
        assert!(url.authority == Some("/ca.pem".into()) && url.login == Login::Token("t".into()));
        for bad in ["", "OFF", "on", "nats", "http://h", "nats:/h"] {
            assert_eq!(bad.parse::<Wake>(), Err(WakeError::Unknown), "{bad}");
        }
        for bad in [
            "nats://",
            "tls://:hush@h",
            "nats://h:0",
            "nats://h:x",
            "nats://h:70000",
            "nats://h/x",
            "nats://h#x",
            "nats://[::1",
            "nats://[::1]x",
            "nats://a,b",
            "nats://%ff@h",
            "nats://a b",
            "tls://h?cas=/ca.pem",
            "tls://hush@h?creds=/x",
            "tls://h?creds=/x&nkey=/y",
            "nats://hu?sh@h",
            "nats://me:hush?@h",
            "nats://me:hush/@h",
        ] {
            let Err(WakeError::Nats(why)) = bad.parse::<Wake>() else { panic!("{bad} is taken") };
            assert!(!why.contains("sh"), "{bad}: {why}");
        }
    }

    #[test]
    fn secrets_do_not_show() {
        for (text, shown) in [
            ("nats://hush@h", "nats://***@h:4222"),
            ("nats://me:hush@h:1", "nats://me:***@h:1"),
            ("tls://[::1]?ca=/ca.pem", "tls://[::1]:4222?ca=/ca.pem"),
        ] {
            let wake: Wake = text.parse().unwrap();
            assert_eq!(wake.to_string(), shown);
            assert!(!format!("{wake:?}").contains("hush"));
        }
    }
}
