//! `sb backup`, `sb restore`, `sb export` and `sb import`: the whole store as a file, and back.

use std::{
    cell::Cell,
    env,
    fs::{self, File, OpenOptions},
    io::{self, BufReader, BufWriter, Read, Seek, Write},
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use a2a::signature::SigningKey;
use exchange::card_keys::{self, CardKeys};
use serde_json::{Value, json};
use store::{
    Location,
    archive::{self, Error, Imported, Phase, Sums, Terms},
};
use uuid::Uuid;

use crate::{
    config::{self, Layer, LogFormat, Masked, process_environment},
    failure::Failure,
    journal, logging,
    output::{self, Format},
    table::table,
    target::block_on,
    trust,
};

/// The name that stands for standard input or output.
const STANDARD: &str = "-";

/// How often work that takes long says how far it has come.
const TELL: Duration = Duration::from_secs(3);

/// How much is read or written at once.
const BUFFER: usize = 256 * 1024;

/// How many digits of a sum people are shown; JSON has all of them.
const DIGITS: usize = 16;

/// `sb backup FILE …` and `sb export FILE …`
#[derive(Debug, clap::Args)]
pub(crate) struct To {
    /// The file to write, which must not exist; `-` is standard output
    file: PathBuf,
    /// Sign it with the key that signs this installation's cards; of SQLite too it is an archive then
    #[arg(long)]
    sign: bool,
    #[command(flatten)]
    place: Place,
}

/// `sb restore FILE …` and `sb import FILE …`
#[derive(Debug, clap::Args)]
pub(crate) struct From {
    /// The file to read; `-` is standard input
    file: PathBuf,
    /// Also take what gives rights: tokens, the admin token's hash, keys, push configurations and agents of tenants
    #[arg(long)]
    with_credentials: bool,
    /// Take it only if one of the keys in this file has signed it, such as /.well-known/jwks.json has
    #[arg(long, value_name = "KEYS")]
    verify: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
}

/// Which store.
#[derive(Debug, clap::Args)]
struct Place {
    /// Where the journal is [env: SB_STORE] [default: SQLite in the data directory]
    #[arg(long, value_name = "URL")]
    store: Option<Masked>,
    /// Where the server keeps its files [env: SB_DATA_DIR]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The configuration file [env: SB_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How to print what was done
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
}

impl From {
    fn terms(&self) -> Result<Terms, Failure> {
        let keys = self.verify.as_deref().map(|file| trust::read_keys(file, None)).transpose()?;
        let signed_by = keys.map(|keys| keys.into_iter().map(|trusted| trusted.key).collect());
        Ok(Terms { credentials: self.with_credentials, signed_by })
    }
}

impl Place {
    fn location(&self, log: Option<&str>) -> Result<Location, Failure> {
        logging::start(log, "warn", LogFormat::Human)?;
        let flags = Layer { data_dir: self.data_dir.clone(), store: self.store.clone(), ..Layer::default() };
        config::load(flags, self.config.as_deref(), &process_environment)?.location(&process_environment)
    }
}

pub(crate) fn export(args: &To, log: Option<&str>) -> Result<(), Failure> {
    let location = args.place.location(log)?;
    let sums = write_archive(&location, args)?;
    report(&args.place, "exported", &args.file, &location, &sums, None);
    Ok(())
}

pub(crate) fn import(args: &From, log: Option<&str>) -> Result<(), Failure> {
    let location = args.place.location(log)?;
    let mut input = open_input(&args.file)?;
    if archive::is_sqlite(&mut input).map_err(|error| unreadable(&args.file, &error))? {
        return Err(Failure::usage(format!("`{}` is a backup of SQLite, not an archive", args.file.display()))
            .hint("use `sb restore`, which takes both"));
    }
    import_archive(args, &location, &mut input, "imported")
}

pub(crate) fn backup(args: &To, log: Option<&str>) -> Result<(), Failure> {
    let location = args.place.location(log)?;
    let sums = match &location {
        Location::Postgres(_) => write_archive(&location, args)?,
        // A file of SQLite has no place for a signature.
        Location::Sqlite(_) if args.sign => write_archive(&location, args)?,
        Location::Sqlite(_) if is_standard(&args.file) => {
            return Err(Failure::usage("a backup of SQLite is made into a file")
                .hint("name a file, or write an archive with `sb export -`"));
        }
        Location::Sqlite(directory) => {
            let file = NewFile::new(&args.file)?;
            let telling = Telling::new("copied");
            let sums = archive::backup(directory, &file.partial, &|phase, records| telling.tell(phase, records))
                .map_err(|error| failure(&location, &args.file, error))?;
            file.keep()?;
            sums
        }
    };
    report(&args.place, "backed up", &args.file, &location, &sums, None);
    Ok(())
}

pub(crate) fn restore(args: &From, log: Option<&str>) -> Result<(), Failure> {
    let location = args.place.location(log)?;
    let mut input = open_input(&args.file)?;
    if !archive::is_sqlite(&mut input).map_err(|error| unreadable(&args.file, &error))? {
        return import_archive(args, &location, &mut input, "restored");
    }
    if is_standard(&args.file) {
        return Err(Failure::usage("a backup of SQLite is restored from a file").hint("write it to a file first"));
    }
    drop(input);
    let terms = args.terms()?;
    let telling = Telling::new("restored");
    let progress = |phase, records| telling.tell(phase, records);
    let restored = block_on(async {
        let restored = archive::restore(&location, &args.file, &terms, &progress).await;
        restored.map_err(|error| failure(&location, &args.file, error))
    })?;
    taken(args, "restored", &location, &restored);
    Ok(())
}

fn import_archive(args: &From, location: &Location, input: &mut Input, done: &str) -> Result<(), Failure> {
    let terms = args.terms()?;
    let telling = Telling::new(done);
    let progress = |phase, records| telling.tell(phase, records);
    let imported = block_on(async {
        archive::import(location, input, &terms, &progress).await.map_err(|error| failure(location, &args.file, error))
    })?;
    taken(args, done, location, &imported);
    Ok(())
}

/// Says what was taken in, who has signed it, and what was left out.
fn taken(args: &From, done: &str, location: &Location, imported: &Imported) {
    report(&args.place, done, &args.file, location, &imported.archive, Some(imported));
    if let (Some(kid), None) = (&imported.signer, &args.verify) {
        let note =
            format!("signed by the key `{kid}`, which nobody was asked about: --verify KEYS says whom to believe");
        output::error_line("note", &note);
    }
    let left_out = imported.archive.records() - imported.stored.records();
    if left_out > 0 {
        let note = format!(
            "left out {left_out} records that give rights (tokens, settings and keys, push configurations, agents of tenants): \
             --with-credentials takes them too, of a file whose origin is known; otherwise `sb tenant rotate NAME` makes a \
             tenant's new token"
        );
        output::error_line("note", &note);
    }
}

/// The key with which the installation signs.
async fn signing_key(location: &Location, file: &Path) -> Result<SigningKey, Failure> {
    let stored =
        archive::setting(location, card_keys::SETTING).await.map_err(|error| failure(location, file, error))?;
    let Some(stored) = stored else {
        return Err(Failure::failed("this installation has no key yet that signs").hint("`sb key list` makes one"));
    };
    let keys = CardKeys::read(stored).map_err(|error| Failure::failed("cannot sign").caused_by(&error))?;
    Ok(keys.into_active().key)
}

fn write_archive(location: &Location, args: &To) -> Result<Sums, Failure> {
    let file = args.file.as_path();
    let signer = if args.sign { Some(block_on(signing_key(location, file))?) } else { None };
    let telling = Telling::new("exported");
    let progress = |phase, records| telling.tell(phase, records);
    let write = async |out: &mut dyn Write| {
        let mut out = BufWriter::with_capacity(BUFFER, out);
        let exported = archive::export(location, &mut out, signer.as_ref(), &progress).await;
        exported.map_err(|error| failure(location, file, error))
    };
    if is_standard(file) {
        let mut out = io::stdout().lock();
        let broken = |error: io::Error| failure(location, file, Error::Io(error));
        if File::from(out.as_fd().try_clone_to_owned().map_err(broken)?).metadata().map_err(broken)?.is_file() {
            return block_on(async { write(&mut out).await });
        }
        let mut whole = unnamed_file().map_err(|error| no_room(&error))?;
        let sums = block_on(async {
            let mut spool = BufWriter::with_capacity(BUFFER, &whole);
            let exported = archive::export(location, &mut spool, signer.as_ref(), &progress).await;
            exported.map_err(|error| match error {
                Error::Io(error) => no_room(&error),
                error => failure(location, file, error),
            })
        })?;
        whole.rewind().and_then(|()| io::copy(&mut whole, &mut out)).and_then(|_| out.flush()).map_err(broken)?;
        return Ok(sums);
    }
    let new = NewFile::new(file)?;
    let mut out = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new.partial)
        .map_err(|error| unwritable(file, &error))?;
    let sums = block_on(async { write(&mut out).await })?;
    out.sync_all().map_err(|error| unwritable(file, &error))?;
    new.keep()?;
    Ok(sums)
}

/// A file for what goes to a pipe, and goes when it is closed. A reader that takes its time must not keep the export's transaction
/// open: meanwhile SQLite's log grows without bound, and PostgreSQL can neither clean up nor migrate.
fn unnamed_file() -> io::Result<File> {
    let path = env::temp_dir().join(format!(".sb-export.{}", Uuid::new_v4().simple()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

fn no_room(error: &io::Error) -> Failure {
    Failure::failed(format!("cannot write the archive to a temporary file in `{}`", env::temp_dir().display()))
        .caused_by(error)
        .hint("make room there, name another directory with TMPDIR, or export to a file")
}

type Input = BufReader<Box<dyn Read>>;

fn open_input(file: &Path) -> Result<Input, Failure> {
    let input: Box<dyn Read> = if is_standard(file) {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(file).map_err(|error| unreadable(file, &error))?)
    };
    Ok(BufReader::with_capacity(BUFFER, input))
}

fn is_standard(file: &Path) -> bool {
    file.as_os_str() == STANDARD
}

/// A file that gets its name only when it is whole. Until then it has another beside it, which goes when this is
/// dropped.
struct NewFile {
    path: PathBuf,
    partial: PathBuf,
}

impl NewFile {
    fn new(path: &Path) -> Result<Self, Failure> {
        let there = path.try_exists().map_err(|error| unwritable(path, &error))?;
        if there {
            return Err(Failure::usage(format!("`{}` exists", path.display()))
                .hint("choose another name, or remove it if it is not needed any more"));
        }
        let mut partial = path.as_os_str().to_owned();
        partial.push(format!(".{}.partial", std::process::id()));
        Ok(Self { path: path.to_owned(), partial: partial.into() })
    }

    /// Gives the file its name, unless another has taken it meanwhile.
    fn keep(self) -> Result<(), Failure> {
        let kept = fs::hard_link(&self.partial, &self.path).and_then(|()| {
            // The name is durable when the directory is.
            let directory = self.path.parent().filter(|directory| !directory.as_os_str().is_empty());
            File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
        });
        kept.map_err(|error| unwritable(&self.path, &error))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // Under this name nobody misses it.
        let _ = fs::remove_file(&self.partial);
    }
}

/// Tells on stderr how far long work has come.
struct Telling {
    done: String,
    last: Cell<Instant>,
}

impl Telling {
    fn new(done: &str) -> Self {
        Self { done: done.to_owned(), last: Cell::new(Instant::now()) }
    }

    fn tell(&self, phase: Phase, records: u64) {
        // The clock is asked about once in a while only.
        if !records.is_multiple_of(256) || self.last.get().elapsed() < TELL {
            return;
        }
        self.last.set(Instant::now());
        match phase {
            Phase::Copying => output::error_line("note", &format!("{} {records} records so far", self.done)),
            Phase::Verifying => output::error_line("note", &format!("checked {records} records so far")),
        }
    }
}

/// Says what was done: how much of each kind, and its sum. Of what was taken in, also what was read back.
fn report(place: &Place, done: &str, file: &Path, location: &Location, sums: &Sums, imported: Option<&Imported>) {
    let stored = imported.map(|imported| &imported.stored);
    let text = match place.output {
        Format::Json => {
            let kinds: Vec<Value> = sums
                .kinds
                .iter()
                .enumerate()
                .map(|(n, sum)| {
                    let mut kind = json!({"kind": sum.kind.name(), "count": sum.count, "sha256": sum.sha256});
                    if let Some(found) = stored.and_then(|stored| stored.kinds.get(n)) {
                        kind["stored"] = json!({"count": found.count, "sha256": found.sha256});
                    }
                    kind
                })
                .collect();
            let stored = stored.map(|stored| stored.sha256.as_str());
            let signer = imported.and_then(|imported| imported.signer.as_deref());
            let (file, store) = (file.display().to_string(), location.to_string());
            let object = json!({"file": file, "store": store, "records": sums.records(), "kinds": kinds,
                "sha256": sums.sha256, "stored_sha256": stored, "signed_by": signer});
            format!("{object}\n")
        }
        Format::Text => {
            let headings: &[&str] = match stored {
                None => &["KIND", "RECORDS", "SHA-256"],
                Some(_) => &["KIND", "IN FILE", "SHA-256", "IN STORE", "SHA-256"],
            };
            let short = |sum: &str| sum.get(..DIGITS).unwrap_or(sum).to_owned();
            let mut rows = Vec::new();
            for (n, sum) in sums.kinds.iter().enumerate() {
                let mut row = vec![sum.kind.name().to_owned(), sum.count.to_string(), short(&sum.sha256)];
                if let Some(found) = stored.and_then(|stored| stored.kinds.get(n)) {
                    row.extend([found.count.to_string(), short(&found.sha256)]);
                }
                rows.push(row);
            }
            let mut row = vec!["all".to_owned(), sums.records().to_string(), short(&sums.sha256)];
            if let Some(stored) = stored {
                row.extend([stored.records().to_string(), short(&stored.sha256)]);
            }
            rows.push(row);
            let (records, file) = (stored.unwrap_or(sums).records(), named(file, stored.is_some()));
            let way = match stored {
                Some(_) => format!("from {file} into {location}"),
                None => format!("from {location} to {file}"),
            };
            format!("{done} {records} records {way}\n{}", table(headings, &rows))
        }
    };
    if is_standard(file) && stored.is_none() {
        // Standard output has the archive.
        let _ = io::stderr().lock().write_all(text.as_bytes());
    } else {
        output::print(&text);
    }
}

/// A file, as it is found from anywhere.
fn named(file: &Path, is_read: bool) -> String {
    match (is_standard(file), is_read) {
        (true, true) => "standard input".to_owned(),
        (true, false) => "standard output".to_owned(),
        (false, _) => std::path::absolute(file).unwrap_or_else(|_| file.to_owned()).display().to_string(),
    }
}

fn failure(location: &Location, file: &Path, error: Error) -> Failure {
    let name = if is_standard(file) { "the archive".to_owned() } else { format!("`{}`", file.display()) };
    let refused = |error: &Error| Failure::failed(format!("{name} was not taken in")).caused_by(error);
    match &error {
        Error::Store(cause) => journal::failure(location, cause),
        Error::Io(_) => Failure::failed(format!("cannot read or write {name}"))
            .caused_by(std::error::Error::source(&error).unwrap_or(&error))
            .hint("check the path, its permissions and the free space"),
        Error::NotEmpty(_) => refused(&error)
            .because(format!("the target is {location}"))
            .hint("give it an empty data directory (--data-dir) or an empty database (--store)"),
        Error::InUse => refused(&error)
            .because(format!("the target is {location}"))
            .hint("stop the server, or choose another target with --data-dir or --store"),
        Error::NoJournal(_) => Failure::usage(error.to_string())
            .because("no server has started with this store")
            .hint("name another with --store or --data-dir"),
        Error::OldSchema { .. } => Failure::failed(error.to_string()).hint(match location {
            Location::Sqlite(_) => {
                "`sb backup FILE` without --sign copies it as it is; `sb serve` of this version brings it up to date"
            }
            Location::Postgres(_) => {
                "copy it with `pg_dump` or with the `sb` that wrote it; `sb serve` of this version brings it up to date"
            }
        }),
        Error::FromTheFuture { .. } => refused(&error).hint("use the version of `sb` that made it, or a newer one"),
        Error::NotAnArchive(_) => refused(&error).hint("give it a file that `sb export` or `sb backup` has made"),
        Error::Unsigned | Error::BadSignature(_) => refused(&error)
            .hint("nothing was written; use a copy that `sb export --sign` has made, and the keys of who made it"),
        Error::Truncated { .. } | Error::Damaged { .. } | Error::Altered(_) | Error::BadBackup(_) => {
            refused(&error).hint("nothing was written; use another copy of the file")
        }
        _ => refused(&error).hint("nothing was written; this is a defect if it happens again: please report it"),
    }
}

fn unreadable(file: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot read `{}`", file.display()))
        .caused_by(error)
        .hint("check the path and its permissions")
}

fn unwritable(file: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot write `{}`", file.display()))
        .caused_by(error)
        .hint("check the path, its permissions and the free space")
}
