//! Every key of the configuration, declared once. The flags of `sb serve`, the variables, the file, the defaults, `sb
//! config show` and `docs/config.md` are all made from these declarations.

use std::{ops::RangeInclusive, path::PathBuf};

use agents::units::{Size, Span};
use clap::{Arg, ArgMatches, Command};
use serde::Deserialize;

use super::{
    masked::Masked,
    value::{Age, Ages, CardTrust, Compat, Held, KeyFiles, LogFormat, Networks, Origins, Ports, Shown, Token, Value},
};

/// What is declared about a key.
#[derive(Debug)]
pub(crate) struct Key {
    /// As in the file; a table's name stands before its keys.
    pub(crate) name: &'static str,
    pub(crate) variable: String,
    /// What its flag takes, if it has one.
    pub(crate) takes: Option<&'static str>,
    /// Whether it may stand in the file.
    pub(crate) in_file: bool,
    pub(crate) default: Option<Shown>,
    /// What counts when nothing is given and there is no value to write down.
    pub(crate) otherwise: Option<&'static str>,
    pub(crate) range: Option<Range>,
    about: &'static str,
}

/// The numbers that a key may have.
#[derive(Debug)]
pub(crate) struct Range {
    pub(crate) numbers: RangeInclusive<u64>,
    pub(crate) text: String,
}

/// A key and its value in one layer.
pub(crate) struct Slot<'a> {
    pub(crate) key: Key,
    pub(crate) value: &'a mut dyn Held,
}

/// Declares a table of the configuration. For each key: its sentence; its name, and what its flag takes if it has one;
/// its type; its default or, behind `else`, what counts instead; behind `in` what a number may be. A key without another
/// variable behind `as` has `SB_` and its name in upper case.
macro_rules! table {
    ($(#[$about:meta])* $table:ident, $prefix:literal:
        $($(#[doc = $doc:literal])+ $key:ident $(($takes:literal))? $(as $variable:literal)?: $type:ty
            $(= $default:expr)? $(, else $otherwise:literal)? $(, in $range:expr)?;)+
        $([$below:ident]: $below_type:ident;)*
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Default, Deserialize)]
        pub(crate) struct $table {
            $($(#[doc = $doc])+ pub(crate) $key: Option<$type>,)+
            $(#[serde(default)] pub(crate) $below: $below_type,)*
        }

        impl $table {
            $($(
                /// What was given, or the default.
                pub(crate) fn $key(&self) -> $type {
                    self.$key.clone().unwrap_or_else(|| $default)
                }
            )?)+

            /// This layer, and where it is silent the one below.
            pub(super) fn over(self, below: Self) -> Self {
                Self {
                    $($key: self.$key.or(below.$key),)+
                    $($below: self.$below.over(below.$below),)*
                }
            }

            /// Every key with its place in this layer.
            pub(crate) fn slots(&mut self) -> Vec<Slot<'_>> {
                let own: Vec<Slot<'_>> = vec![$(Slot {
                    key: Key {
                        name: concat!($prefix, stringify!($key)),
                        variable: optional!($($variable.to_owned())?)
                            .unwrap_or_else(|| variable(concat!($prefix, stringify!($key)))),
                        takes: optional!($($takes)?),
                        in_file: <$type as Value>::IN_FILE,
                        default: optional!($(Shown::of::<$type>(&$default))?),
                        otherwise: optional!($($otherwise)?),
                        range: optional!($(Range::of::<$type>($range))?),
                        about: concat!($($doc),+),
                    },
                    value: &mut self.$key,
                }),+];
                [own, $(self.$below.slots()),*].into_iter().flatten().collect()
            }
        }
    };
}

macro_rules! optional {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}

/// More than any machine has to spare for one request.
const MAX_BYTES: u64 = 256 << 20;
const MANY: u64 = 1_000_000;

table! {
    /// One source of configuration, or all of them as one.
    Layer, "":
    /// Where to listen; port 0 picks a free one.
    listen("HOST:PORT"): String = "127.0.0.1:8765".to_owned();
    /// A further port, for gRPC alone; 0 picks a free one. With it the gateway's card and extended cards name gRPC.
    grpc_port("PORT"): u64, else "gRPC is answered where everything is", in 0..=65_535;
    /// Where the server keeps its files.
    data_dir("DIR"): PathBuf, else "`switchboard` in the XDG data directory";
    /// Where the journal is: `postgres://USER@HOST/DATABASE` or `sqlite:DIR`.
    store("URL"): Masked, else "SQLite in the data directory";
    /// How many connections to PostgreSQL read the journal; with SQLite at most 4 threads do. A read that finds none free
    /// waits up to 5 seconds and is then answered with 503.
    store_connections("NUMBER"): u64 = 8, in 1..=1000;
    /// How instances wake each other: `off`, `local`, `notify`, `nats://HOST` or `tls://HOST`.
    wake("CHANNEL"): Masked, else "`notify` on PostgreSQL, `local` on SQLite";
    /// What the URLs on agent cards begin with.
    public_url("URL"): String, else "the listen address";
    /// A certificate to speak TLS with: PEM, the server's own first. It is read again when it changes.
    tls_cert("FILE"): PathBuf, else "no TLS";
    /// The key of that certificate, as PEM.
    tls_key("FILE"): PathBuf, else "no TLS";
    /// Tell browsers to come back by TLS only (`Strict-Transport-Security`), where there is `tls_cert` and `public_url` is https.
    hsts("BOOL"): bool = true;
    /// The proxies whose `X-Forwarded-For` is believed: addresses and ranges; a list in the file, with commas elsewhere.
    trusted_proxies("RANGES"): Networks = Networks::default(), else "none";
    /// A file that only the operator has, of 32 bytes or more: it wraps the keys with which the secrets of webhooks are sealed.
    key_file("FILE"): PathBuf, else "the keys lie in the store as they are";
    /// The key file before `key_file`. A start wraps anew what it has wrapped.
    key_file_previous("FILE"): PathBuf, else "none";
    /// Serve without tokens; on a loopback address only.
    no_auth("BOOL"): bool = false;
    /// Offer the agents that come with the server.
    demo_agents("BOOL"): bool = true;
    /// Who answers a message that names no agent.
    default_agent("ID"): String, else "`echo` if there are demo agents";
    /// Remotes that agents call by `/a2a`: a file of A2A agents with their tokens.
    a2a_agents("FILE"): PathBuf, else "`a2a_agents.json` beside the configuration file";
    /// Remotes that are agents of this server: a file of A2A agents with their skills and keys.
    agents_yaml("FILE"): PathBuf, else "`agents.yaml` beside the configuration file";
    /// Further remotes, one a file; those that are added by `sb remote add` are kept there.
    agents_d("DIR"): PathBuf, else "`agents.d` beside the configuration file";
    /// Which models there are and with which keys.
    models("FILE"): PathBuf, else "`models.toml` beside the configuration file";
    /// How long a blocking send waits before it returns the working task.
    blocking_cap("DURATION"): Span = Span::seconds(120);
    /// How long `/v1/chat` waits for an answer before it says where to ask for it.
    chat_wait("DURATION"): Span = Span::seconds(30);
    /// How long a canceled turn has to end by itself.
    cancel_grace("DURATION"): Span = Span::seconds(5);
    /// How long an instance may be silent before others take its work over.
    lease("DURATION"): Span = Span::seconds(30);
    /// What to log: a level or `target=level,…`; with `json` among them log lines are JSON.
    log("FILTER") as "RUST_LOG": String = "info".to_owned();
    /// How log lines look: `human`, or `json` for one object a line.
    log_format("FORMAT"): LogFormat = LogFormat::Human;
    /// The first token of the tenant `default`, instead of one that the first start makes.
    bootstrap_token: Token, else "made by the first start";
    /// The token for administration, in the place of any other.
    admin_token: Token, else "made by the first start";
    [admin]: Admin;
    [cards]: Cards;
    [push]: Push;
    [egress]: Egress;
    [relay]: Relay;
    [outbound]: Outbound;
    [delegation]: Delegated;
    [limits]: Limits;
    [retention]: Retained;
    [cors]: CrossOrigin;
    [trust]: Trust;
}

table! {
    /// Where the server is administered.
    Admin, "admin.":
    /// An address for administration alone, `HOST:PORT`. With it `/v1/admin` is answered nowhere else.
    listen: String, else "where everything is";
}

table! {
    /// What agent cards say.
    Cards, "cards.":
    /// Whether the card of an agent that every tenant sees can be read without a token.
    public: bool = true;
    /// Who can read cards: `0.3` adds the fields of A2A 0.3 to the gateway's card too, `none` leaves them off those of agents.
    compat: Compat, else "0.3 on agents' cards, unless the request says `A2A-Version: 1.0`";
}

table! {
    /// How webhooks are told of tasks.
    Push, "push.":
    /// Whether push notifications are offered at all.
    enabled: bool = true;
    /// How long one attempt may take.
    timeout: Span = Span::seconds(10);
    /// How often a notification is tried before it is a dead letter.
    attempts: u64 = 30, in 1..=10_000;
    /// How long to wait before the second attempt; each further wait is twice as long.
    first_wait: Span = Span::seconds(1);
    /// The longest wait between two attempts.
    longest_wait: Span = Span::seconds(300);
}

table! {
    /// What URLs that tenants give may lead to.
    Egress, "egress.":
    /// Addresses and ranges that may be called although they are not public; a list in the file, with commas in the variable.
    allow: Networks = Networks::default(), else "none";
    /// The only ports that may be called.
    ports: Ports, else "80, 443, 8080 and 8443; at addresses in `egress.allow` also those from 1024 up";
}

table! {
    /// Who is told of what is published to the queue.
    Relay, "relay.":
    /// Where each message that is published is posted to, with its task, as A2A JSON. The operator's own: tenants have webhooks.
    url: String, else "nowhere";
}

table! {
    /// How remote agents are called.
    Outbound, "outbound.":
    /// Whether anybody is called.
    enabled: bool = true;
    /// How often the cards of remotes are asked for again.
    card_refresh: Span = Span::seconds(600);
    /// How often is looked whether they are there.
    probe: Span = Span::seconds(60);
    /// How long a call may take, unless the remote's entry says.
    timeout: Span = Span::seconds(300);
    /// After so long without anything new a remote task is not followed any more, but looked at now and then.
    quiet: Span = Span::seconds(20);
    /// How long until it is looked at; each further time is twice as long, up to a minute.
    poll: Span = Span::seconds(5);
    /// How long it is tried to deliver a message to a remote that is away, or refuses it for the moment.
    deliver_for: Span = Span::seconds(600);
    /// How long a remote task is tracked in all.
    track_for: Span = Span::seconds(86_400);
    /// The size of an answer.
    body_bytes: Size = Size(8 << 20), in 1024..=MAX_BYTES;
    /// The size of one event of a stream.
    event_bytes: Size = Size(4 << 20), in 1024..=MAX_BYTES;
    /// The size of everything that comes in one turn.
    turn_bytes: Size = Size(64 << 20), in 1024..=(4 * MAX_BYTES);
}

table! {
    /// How far agents may hand work on.
    Delegated, "delegation.":
    /// How many agents may stand behind each other.
    depth: u64 = 8, in 1..=64;
    /// How many calls one turn may make.
    fan_out: u64 = 32, in 1..=MANY;
    /// How many calls may come of one task in all.
    calls: u64 = 1000, in 0..=MANY;
    /// How long what is handed on may take.
    time: Span, else "no bound";
}

table! {
    /// Bounds of everything that callers send, keep and cause.
    Limits, "limits.":
    /// The size of a request's body.
    body_bytes: Size = Size(10 << 20), in 1024..=MAX_BYTES;
    // A reader of JSON goes 128 levels deep, and the request around a value needs some of them.
    /// How deep `metadata` and `data` may nest.
    json_depth: u64 = 100, in 1..=120;
    /// How many parts a message may have, and entries each of its other lists.
    parts: u64 = 1000, in 1..=MANY;
    // Ids that are made here have 36 characters and must come back.
    /// The size of an id, a file name or a media type.
    id_bytes: Size = Size(1 << 10), in 64..=65_536;
    /// The size of each `metadata` object.
    metadata_bytes: Size = Size(1 << 20), in 2..=MAX_BYTES;
    /// How long a request's head may take.
    header_timeout: Span = Span::seconds(10);
    /// How long a request's body may stand still.
    body_timeout: Span = Span::seconds(30);
    /// How much of a body has to come in a second, on average, once it has lasted longer than that; 0 is no bound.
    body_rate: Size = Size(1 << 10), in 0..=MAX_BYTES;
    /// How many connections may be open. When all are taken, the longest idle one gives way to the next; besides them a few are kept for health and administration.
    connections: u64 = 10_000, in 2..=MANY;
    /// How many of them one address may have, at most all; behind a trusted proxy, how many requests with a token it may have under way.
    connections_per_address: u64, else "a quarter of `connections`, or 64 if that is more, but at most half", in 1..=MANY;
    /// How long a connection may be idle on which nobody has authenticated yet.
    unauthenticated_timeout: Span = Span::seconds(10);
    /// How long a client may take nothing of an answer, on a connection or on one stream of HTTP/2.
    stall_timeout: Span = Span::seconds(60);
    /// How many requests a tenant may send; 0 is no bound.
    requests_per_second: u64 = 50_000, in 0..=MANY;
    /// How many of them at once.
    request_burst: u64, else "twice `requests_per_second`", in 1..=MANY;
    /// How many requests without a valid token may come from one address; 0 is no bound.
    failed_auth_per_second: u64 = 20, in 0..=MANY;
    /// How many of them at once.
    failed_auth_burst: u64, else "five times `failed_auth_per_second`", in 1..=MANY;
    /// How many tasks of a tenant may be under way; 0 is no bound.
    tasks: u64 = 10_000;
    /// How much of a tenant is stored; 0 is no bound.
    stored_bytes: Size = Size(10 << 30);
    // A tenant has half of it.
    /// How many bytes of requests and of answers that are not read yet may be in memory, of which a tenant may have half; messages of turns that
    /// run, and what was said before them, have as many each; 0 is no bound.
    bytes_in_flight: Size = Size(64 << 20);
    /// How many streams of a tenant may be open, and how many of its calls of the queue may wait; 0 is no bound.
    streams: u64 = 1000;
}

table! {
    /// How long what has ended is kept.
    Retained, "retention.":
    /// How long a task is kept after its end, or `never` to remove none. Dead letters stay, and so does what webhooks are still to be told of.
    tasks: Age = Age(Some(Span::seconds(90 * 86_400)));
    /// How long the log of a task is kept after its end: streams can be resumed that long.
    events: Age = Age(Some(Span::seconds(7 * 86_400)));
    /// How often is looked for what may go.
    every: Span = Span::seconds(600);
    /// The same for some agents: tables `[retention.agents.NAME]` with `tasks` and `events` in the file, `NAME.tasks=AGE` with commas in the variable.
    agents: Ages = Ages::default(), else "none";
    /// The same for some tenants, which counts before what is said of agents: tables `[retention.tenants.NAME]`.
    tenants: Ages = Ages::default(), else "none";
}

table! {
    /// Which web pages may call.
    CrossOrigin, "cors.":
    /// The origins whose web pages may call, or `*`; a list in the file, with commas in the variable.
    origins: Origins = Origins::default(), else "none";
}

table! {
    /// Whose agent cards the commands that call others believe.
    Trust, "trust.":
    /// What becomes of a card that no trusted key has signed: `ignore` does not look, `prefer` warns where there are keys for its origin, `require` refuses it.
    cards: CardTrust = CardTrust::Prefer;
    /// Whose keys are trusted: `ORIGIN=FILE`, where the file is a JSON Web Key Set; a list in the file, with commas in the variable.
    keys: KeyFiles = KeyFiles::default(), else "none";
}

/// `SB_LIMITS_TASKS` is `limits.tasks`.
fn variable(name: &str) -> String {
    format!("SB_{}", name.replace('.', "_").to_uppercase())
}

/// Every key, in the order of their declaration.
pub(crate) fn keys() -> Vec<Key> {
    Layer::default().slots().into_iter().map(|slot| slot.key).collect()
}

impl Key {
    /// What it is, in full sentences.
    pub(crate) fn about(&self) -> &'static str {
        self.about.trim_start()
    }

    /// The flag that `sb serve` has for it.
    pub(crate) fn flag(&self) -> Option<String> {
        self.takes.map(|_| self.name.replace('_', "-"))
    }

    /// What counts when nothing is given.
    pub(crate) fn fallback(&self) -> &str {
        self.otherwise.or(self.default.as_ref().map(|default| default.text.as_str())).unwrap_or("none")
    }
}

impl Range {
    fn of<T: Value + From<u64>>(numbers: RangeInclusive<u64>) -> Self {
        let text = format!("{} to {}", T::from(*numbers.start()).text(), T::from(*numbers.end()).text());
        Self { numbers, text }
    }
}

impl clap::Args for Layer {
    fn augment_args(command: Command) -> Command {
        let mut layer = Self::default();
        layer.slots().into_iter().fold(command, |command, Slot { key, value }| {
            let Some(flag) = key.flag() else { return command };
            let about = key.about().trim_end_matches('.');
            let help = format!("{about} [env: {}] [default: {}]", key.variable, key.fallback());
            command
                .arg(value.argument(Arg::new(key.name).long(flag).value_name(key.takes.unwrap_or_default()).help(help)))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Layer {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut layer = Self::default();
        layer.update_from_arg_matches(matches)?;
        Ok(layer)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for Slot { key, value } in self.slots() {
            if key.takes.is_some() {
                value.take(matches, key.name);
            }
        }
        Ok(())
    }
}
