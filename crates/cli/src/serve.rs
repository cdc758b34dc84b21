//! `sb serve`: everything wired together, from the configuration to the last connection.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use agents::{
    AgentFiles, KINDS, Reader,
    command::Quarters,
    guard::{self, Guard},
    mind::Maker,
    model::{self, Models},
    remote::Remotes,
};
use exchange::{Agents, Entry, Exchange, own::MadeBy, push::KeyError};
use server::Server;
use store::{InstanceId, Presence};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{
    admin_token, banner,
    bootstrap::bootstrap,
    config::{self, Config, Layer, Settings, Token, process_environment},
    courier,
    failure::Failure,
    findings, journal,
    local::PrivateFile,
    logging, relay,
    servers::{Entry as Registration, Servers},
    trust,
};

/// How long running turns have to finish once the server is told to stop.
const GRACE: Duration = Duration::from_secs(10);

/// `sb serve …`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Layer,
    /// The configuration file [env: SB_CONFIG] [default: switchboard/switchboard.toml in the XDG config directory]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Args {
    /// The configuration that these flags make, together with what stands elsewhere.
    pub(crate) fn settings(&self) -> Result<Settings, Failure> {
        config::load(self.flags.clone(), self.config.as_deref(), &process_environment)
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let settings = args.settings()?;
    let mut config = settings.check(&process_environment)?;
    // Who cannot listen has not started: it says so before it says or makes anything else.
    check_listening(&config)?;
    config.remotes.trust = trust::configured(&settings)?;
    logging::start(Some(&config.keys.log()), "info", config.keys.log_format())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed("cannot start").caused_by(&error))?;
    let result = runtime.block_on(serve(config));
    // Whatever still runs has had its grace.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

async fn serve(config: Config) -> Result<(), Failure> {
    let mut signals = Signals::new()?;

    // What is wrong with a file is said before anything is made: the next start is still the first one.
    config.check_certificate()?;
    let push = courier::options(&config)?;
    // A migration may have to wait for others.
    let store = tokio::select! {
        opened = journal::open(&config.location, config.open.clone()) => opened?,
        name = signals.next() => return Err(Failure::failed(format!("stopped by {name} before the journal was open"))),
    };
    let _presence = announce_instance(&config, store.instance())?;
    let bootstrap_token = config.keys.bootstrap_token.clone().map(Token::expose);
    let bootstrap = bootstrap(store.as_ref(), &config.data_dir, bootstrap_token).await?;
    let admin_token = config.keys.admin_token.clone().map(Token::expose);
    admin_token::ensure(store.as_ref(), &config.data_dir, admin_token).await?;

    let instance = store.instance().to_string();
    let _guard = guard_programs(&config, &instance)?;
    let agents = Agents::default();
    let remotes = Remotes::new(config.remotes.clone(), agents.clone());
    let models = Models::new(model::Options { file: config.models.clone(), ..model::Options::default() });
    let maker = Maker::new(models.clone(), remotes.clone());
    let quarters = Quarters {
        mark: instance.as_str().into(),
        data: Some(config.data_dir.clone()),
        configuration: config
            .agents_dir
            .iter()
            .flat_map(|agents| agents.ancestors().take(2))
            .map(Path::to_owned)
            .collect(),
        ..Quarters::launched()
    };
    let reader = Reader::new(KINDS, instance).with_quarters(quarters.clone());
    let reader = reader.with_remotes(remotes.clone()).with_models(models.clone());
    let _files = load_agents(&config, &agents, reader, maker.index())?;
    models.start();
    remotes.start();
    warn_of_default(&config, &agents);

    let options = exchange::Options {
        push,
        relay: relay::start(&config)?,
        remotes: Some(exchange::remotes::Known(Arc::new(remotes))),
        maker: Some(MadeBy(Arc::new(maker))),
        ..config.exchange.clone()
    };
    let exchange = Exchange::start(store, agents, options).await.map_err(|error| match &error {
        KeyError::Wrapped | KeyError::OtherKey => {
            Failure::usage("cannot open the keys for notifications").because(error.to_string()).hint(
                "give the file by --key-file, SB_KEY_FILE or `key_file`, and the one before it by `key_file_previous` where it was \
                 replaced; without it only `push.enabled = false` starts",
            )
        }
        _ => Failure::failed("cannot start").caused_by(&error),
    })?;

    let options = server::Options { drain: GRACE, ..config.edge.clone() };
    let server = match Server::bind(exchange.clone(), options).await {
        Ok(server) => server,
        Err(error) => {
            exchange.shut_down(Duration::ZERO).await;
            return Err(bind_failure(&config, config.edge.listen, ("--listen", ""), &error));
        }
    };

    for problem in config.edge.certificate_problems() {
        let (url, hint) = (server.base_url(), findings::CERTIFICATE_HINT);
        tracing::warn!(url, hint, "callers refuse the certificate at the URL on the cards: {problem}");
    }
    // It is set once, before anybody is called who might call back.
    let _ = config.remotes.base.set(server.base_url().to_owned());
    let mut local = bootstrap.local;
    let reached_at = server.reached_at();
    local.url = Some(reached_at.clone());
    local.admin_url = server.admin_url();
    local.agents.clone_from(&config.agents_dir);
    local.save(&config.data_dir)?;
    let registration = Registration::new(&reached_at, server.admin_url(), config.agents_dir.clone());
    let grpc_port = server.grpc_addr().map(|address| address.port());
    let registration = registration.with_public_url(server.base_url()).with_grpc_port(grpc_port);
    let registered = registration.register(&config.data_dir, exchange.store().instance())?;
    banner::announce(&server, &config, exchange.agents(), bootstrap.fresh.as_deref());

    tracing::info!(
        version = env!("CARGO_PKG_VERSION"), url = server.base_url(), instance.id = %exchange.store().instance(),
        store = %config.location, "started"
    );

    let stop = CancellationToken::new();
    let mut running = tokio::spawn(server.run(stop.clone()));
    let name = tokio::select! {
        name = signals.next() => name,
        ended = &mut running => {
            exchange.shut_down(Duration::ZERO).await;
            let failure = Failure::failed("the server has stopped by itself");
            return Err(ended.err().map_or(failure, |error| Failure::failed("the server broke").caused_by(&error)));
        }
    };
    tracing::info!(signal = name, "stopping; a second signal ends at once");
    // Whoever looks for a server from here on finds another one.
    drop(registered);
    let drain = async {
        stop.cancel();
        let (_, ended) = tokio::join!(exchange.shut_down(GRACE), running);
        quarters.close().await;
        ended
    };
    let ended = tokio::select! {
        ended = drain => ended,
        name = signals.next() => {
            return Err(Failure::failed(format!("stopped at once by a second {name}"))
                .hint("turns that were running go on with the next start"));
        }
    };
    ended.map_err(|error| Failure::failed("the server ended badly").caused_by(&error))?;
    let store = Arc::clone(exchange.store());
    drop(exchange);
    journal::close(store).await;
    tracing::info!("stopped");
    Ok(())
}

/// Programs of agents end with the server: a guard sees to it, and what a server and its guard both left
/// behind is ended here.
fn guard_programs(config: &Config, instance: &str) -> Result<Option<Guard>, Failure> {
    if store::fault::is_on("no-guard") {
        return Ok(None);
    }
    for dead in store::dead_instances(&config.data_dir) {
        let programs = guard::sweep(&dead.to_string());
        if programs > 0 {
            tracing::info!(programs, "ended programs of a server that is gone");
        }
        if !journal_is_here(config) {
            // Where the journal is, its store forgets the dead when their work was taken over.
            store::bury(&config.data_dir, dead);
        }
    }
    guard::start(instance)
        .map(Some)
        .map_err(|error| Failure::failed("cannot start the guard of programs").caused_by(&error))
}

/// The agent that routes, the demo agents and those of the configuration directory, which is watched from here on.
fn load_agents(config: &Config, agents: &Agents, reader: Reader, index: Entry) -> Result<Option<AgentFiles>, Failure> {
    let mut builtins = if config.keys.demo_agents() { agents::demo() } else { Vec::new() };
    builtins.push(index);
    let Some(directory) = &config.agents_dir else {
        builtins.into_iter().for_each(|entry| agents.insert(entry));
        return Ok(None);
    };
    match AgentFiles::start(directory, agents, agents::Options { builtins, reader }) {
        Ok(files) => Ok(Some(files)),
        Err(error) => Err(Failure::failed(format!("cannot read the agents in `{}`", directory.display()))
            .caused_by(&error)
            .hint("check that the directory can be read, or name another configuration with --config")),
    }
}

/// Says that whoever is to answer messages that name nobody is not there. They may come yet.
fn warn_of_default(config: &Config, agents: &Agents) {
    if let Some(id) = &config.exchange.default_agent
        && agents.kind_of(id).is_none()
    {
        let hint = findings::missing_default(id, &agents.open());
        tracing::warn!(agent.name = %id, hint, "there is no agent `{id}`, which is `default_agent`");
    }
}

/// Whether the journal lies in the data directory, and with it what says that this instance lives.
fn journal_is_here(config: &Config) -> bool {
    config.location.directory() == Some(config.data_dir.as_path())
}

/// Says in the data directory that this instance lives, if the journal does not.
fn announce_instance(config: &Config, instance: InstanceId) -> Result<Option<Presence>, Failure> {
    if journal_is_here(config) {
        return Ok(None);
    }
    let directory = config.data_dir.display();
    store::announce(&config.data_dir, instance).map(Some).map_err(|error| {
        Failure::failed(format!("cannot use the data directory `{directory}`"))
            .caused_by(&error)
            .hint("check that it can be written and has room, or choose another with --data-dir")
    })
}

/// Says whether something else listens where this server is to.
fn check_listening(config: &Config) -> Result<(), Failure> {
    let edge = &config.edge;
    let grpc = edge.grpc_port.map(|port| SocketAddr::new(edge.listen.ip(), port));
    let places = [
        (Some(edge.listen), "--listen", ""),
        (grpc, "--grpc-port", " for gRPC"),
        (edge.admin_listen, "admin.listen", " for administration"),
    ];
    for (address, key, purpose) in places {
        let Some(address) = address else { continue };
        drop(TcpListener::bind(address).map_err(|error| bind_failure(config, address, (key, purpose), &error))?);
    }
    Ok(())
}

/// Why nobody can listen there, what for, and which setting says where.
fn bind_failure(config: &Config, address: SocketAddr, (key, purpose): (&str, &str), error: &io::Error) -> Failure {
    let failure = Failure::failed(format!("cannot listen on {address}{purpose}")).caused_by(error);
    match error.kind() {
        io::ErrorKind::AddrInUse => match who_listens(config, address) {
            Some(pid) => failure.because(format!("a server of this data directory listens there: process {pid}")).hint(
                format!("commands such as `sb send` find it; for a second one choose another {key}, whose port 0 picks a free one"),
            ),
            None => failure
                .hint(format!("stop what listens there, or choose another {key}: port 0 picks a free one")),
        },
        io::ErrorKind::PermissionDenied => failure.hint("ports below 1024 need privileges: choose a higher one"),
        io::ErrorKind::AddrNotAvailable => failure.hint("this machine does not have that address"),
        _ => failure,
    }
}

/// The process of a server of this data directory at that address, as far as its URL tells.
fn who_listens(config: &Config, address: SocketAddr) -> Option<u32> {
    let servers = Servers::of(&config.data_dir).ok()?;
    let at_port =
        |url: &str| client::parse_url(url).is_ok_and(|url| url.port_or_known_default() == Some(address.port()));
    let there = servers.all().iter().find(|entry| at_port(&entry.url) || at_port(entry.administered_at()))?;
    Some(there.pid).filter(|pid| *pid != 0)
}

/// The signals that end a process which runs until it is told.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// When SIGTERM was last given to the caller.
    terminated: Option<Instant>,
}

/// How soon after a SIGTERM another one is the same request. `timeout` sends it to its child and again to the group that the child is in.
/// SIGINT has no such time: pressing Ctrl-C twice means to end at once.
const SAME_REQUEST: Duration = Duration::from_secs(1);

impl Signals {
    pub(crate) fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::failed("cannot listen to signals").caused_by(&error));
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            terminated: None,
        })
    }

    pub(crate) async fn next(&mut self) -> &'static str {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return "SIGINT",
                _ = self.terminate.recv() => {}
            }
            if self.terminated.is_none_or(|before| before.elapsed() >= SAME_REQUEST) {
                self.terminated = Some(Instant::now());
                return "SIGTERM";
            }
        }
    }
}
