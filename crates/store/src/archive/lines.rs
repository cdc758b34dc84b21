//! The lines of an archive: written and read with the sums that prove them whole.

use std::io::{self, BufRead, Read, Write};

use a2a::{
    AgentCardSignature,
    signature::{PublicKey, SigningKey, sign_other, verifies_other},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::{
    Error, Kind, Phase, Progress, Result, Terms,
    check::Checker,
    record::{Record, hex},
};
use crate::clock;

/// The format's version. A reader refuses a higher one, so that what it does not know is not taken for damage. It is raised by a
/// new kind of record, which the assertion below sees, and by a new form of what records hold, which it does not: a state that
/// adds to another one (`exchange::kept`) would be taken in and fail its turn later.
pub(super) const VERSION: u32 = 2;

const _: () = assert!(Kind::ALL.len() == 13 && VERSION == 2, "a new kind of record raises the format's version");

/// What an archive begins with, whatever its version.
pub(super) const MAGIC: &[u8] = b"{\"switchboard\":";

/// What a signature of an archive says that it is of.
const SIGNED_AS: &str = "switchboard-archive";

/// No line is longer: far beyond what a message can be, near enough that a file of something else ends the read.
const MAX_LINE: u64 = 1 << 30;

/// The first line: `{"switchboard":…,"sha256":"…"}`, the sum being that of the text before it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct First<'a> {
    #[serde(borrow)]
    switchboard: &'a RawValue,
    sha256: String,
}

/// Where an archive comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    /// The format's version.
    archive: u32,
    /// When it was made, in milliseconds since the epoch.
    created_at: i64,
    /// The kind of database it was made from and its schema's version, such as `sqlite 7`.
    source: String,
    /// The version of this program. Archives of the first version do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    program: Option<String>,
}

/// The line with the sums.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Last {
    end: End,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    kinds: Vec<OfKind>,
    /// Of all lines between the first and the last.
    sha256: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfKind {
    kind: String,
    count: u64,
    sha256: String,
}

/// The line behind it, of an archive that is signed. The key is there so that a change is noticed by those who do not know it; whether it
/// is to be believed it cannot say itself.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Signed {
    signature: Signature,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Signature {
    key: serde_json::Value,
    protected: String,
    signature: String,
}

impl Signature {
    fn make(payload: &[u8], key: &SigningKey) -> Result<Self> {
        let made = sign_other(SIGNED_AS, payload, key).map_err(|error| Error::NotSigned(error.to_string()))?;
        Ok(Self { key: key.public().jwk(), protected: made.protected, signature: made.signature })
    }

    /// The name of the key that has signed this, which is one of those that are trusted if there are any.
    fn check(self, payload: &[u8], trusted: Option<&[PublicKey]>) -> Result<String> {
        let own = PublicKey::from_jwk(&self.key).map_err(|_| Error::BadSignature("it has no key"))?;
        let signed = AgentCardSignature { protected: self.protected, signature: self.signature, header: None };
        if !verifies_other(SIGNED_AS, payload, &signed, &own) {
            return Err(Error::BadSignature("the archive is not what was signed"));
        }
        let Some(trusted) = trusted else { return Ok(own.kid) };
        let signer = trusted.iter().find(|key| verifies_other(SIGNED_AS, payload, &signed, key));
        signer.map(|key| key.kid.clone()).ok_or(Error::BadSignature("none of the given keys has made it"))
    }
}

/// What an archive was found to hold, when its last line was right.
pub(super) struct Proven {
    /// All of it.
    pub(super) archive: Sums,
    /// What was not left out.
    pub(super) taken: Sums,
    /// The key that has signed it.
    pub(super) signer: Option<String>,
}

/// How many records of a kind there are, and the SHA-256 of their lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sum {
    /// Which kind.
    pub kind: Kind,
    /// How many.
    pub count: u64,
    /// Of their lines, in order, as hexadecimal digits.
    pub sha256: String,
}

/// What an archive or a store holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sums {
    /// One for each kind, in their order.
    pub kinds: Vec<Sum>,
    /// Of everything.
    pub sha256: String,
}

impl Sums {
    /// How many records there are in all.
    pub fn records(&self) -> u64 {
        self.kinds.iter().map(|sum| sum.count).sum()
    }

    fn last(&self) -> Last {
        let kinds = self.kinds.iter().map(|sum| OfKind {
            kind: sum.kind.name().to_owned(),
            count: sum.count,
            sha256: sum.sha256.clone(),
        });
        Last { end: End { kinds: kinds.collect(), sha256: self.sha256.clone() } }
    }
}

/// Sums of lines as they come.
struct Tally {
    kinds: [(u64, Sha256); Kind::ALL.len()],
    all: Sha256,
    /// The kind that came last; none before it may come again.
    at: Kind,
}

impl Tally {
    fn new() -> Self {
        Self { kinds: std::array::from_fn(|_| (0, Sha256::new())), all: Sha256::new(), at: Kind::Tenant }
    }

    /// Counts a line, its end included. `false` when it is out of order.
    fn add(&mut self, kind: Kind, line: &[u8]) -> bool {
        if kind < self.at {
            return false;
        }
        self.at = kind;
        let (count, sum) = &mut self.kinds[kind as usize];
        *count += 1;
        sum.update(line);
        self.all.update(line);
        true
    }

    fn sums(self) -> Sums {
        let kinds = Kind::ALL.into_iter().zip(self.kinds);
        let kinds = kinds.map(|(kind, (count, sum))| Sum { kind, count, sha256: hex(&sum.finalize()) });
        Sums { kinds: kinds.collect(), sha256: hex(&self.all.finalize()) }
    }
}

/// Writes an archive, or only sums one when its `out` throws everything away.
pub(super) struct Writer<'a> {
    out: &'a mut dyn Write,
    /// The first line, which is signed with the last.
    first: Vec<u8>,
    tally: Tally,
    line: Vec<u8>,
    records: u64,
    phase: Phase,
    progress: Progress<'a>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(out: &'a mut dyn Write, source: String, phase: Phase, progress: Progress<'a>) -> Result<Self> {
        let header = Header {
            archive: VERSION,
            created_at: clock::now().as_millis(),
            source,
            program: Some(env!("CARGO_PKG_VERSION").to_owned()),
        };
        let body = serde_json::value::to_raw_value(&header).map_err(io::Error::from)?;
        let sha256 = hex(&Sha256::digest(body.get().as_bytes()));
        let mut first = serde_json::to_vec(&First { switchboard: &body, sha256 }).map_err(io::Error::from)?;
        first.push(b'\n');
        out.write_all(&first)?;
        Ok(Self { out, first, tally: Tally::new(), line: Vec::new(), records: 0, phase, progress })
    }

    /// The next record; they come in the order of their kinds.
    pub(super) fn write(&mut self, record: &Record) -> Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, record).map_err(io::Error::from)?;
        self.line.push(b'\n');
        if !self.tally.add(record.kind(), &self.line) {
            return Err(Error::Altered("records are out of order".into()));
        }
        self.out.write_all(&self.line)?;
        self.records += 1;
        (self.progress)(self.phase, self.records);
        Ok(())
    }

    /// The line with the sums, and the signature if it is to have one.
    pub(super) fn finish(self, signer: Option<&SigningKey>) -> Result<Sums> {
        let sums = self.tally.sums();
        let mut last = serde_json::to_vec(&sums.last()).map_err(io::Error::from)?;
        last.push(b'\n');
        self.out.write_all(&last)?;
        if let Some(key) = signer {
            let signature = Signature::make(&[self.first, last].concat(), key)?;
            serde_json::to_writer(&mut *self.out, &Signed { signature }).map_err(io::Error::from)?;
            self.out.write_all(b"\n")?;
        }
        self.out.flush()?;
        Ok(sums)
    }
}

/// Reads an archive, and proves it when it has come to its end.
pub(super) struct Reader<'a> {
    input: &'a mut dyn BufRead,
    terms: &'a Terms,
    checker: Checker,
    tally: Tally,
    /// Of what is not left out.
    taken: Tally,
    line: Vec<u8>,
    lines: u64,
    progress: Progress<'a>,
    /// The first line, and later the last as well: what a signature is over.
    signed: Vec<u8>,
    /// What the last line said, once it was read.
    end: Option<Last>,
    signature: Option<Signature>,
}

impl<'a> Reader<'a> {
    /// Reads the first line.
    pub(super) fn new(input: &'a mut dyn BufRead, terms: &'a Terms, progress: Progress<'a>) -> Result<Self> {
        let mut reader = Self {
            input,
            terms,
            checker: Checker::default(),
            tally: Tally::new(),
            taken: Tally::new(),
            line: Vec::new(),
            lines: 0,
            progress,
            signed: Vec::new(),
            end: None,
            signature: None,
        };
        if !reader.read_line()? {
            return Err(Error::NotAnArchive("it is empty".into()));
        }
        if !reader.line.starts_with(MAGIC) {
            return Err(Error::NotAnArchive("it does not begin as one".into()));
        }
        let altered = || Error::Altered("its first line is damaged".into());
        let first: First<'_> = serde_json::from_slice(&reader.line).map_err(|_| altered())?;
        if hex(&Sha256::digest(first.switchboard.get().as_bytes())) != first.sha256 {
            return Err(altered());
        }
        // A later version may say more in its header, and is refused by its number.
        let version: serde_json::Value = serde_json::from_str(first.switchboard.get()).map_err(|_| altered())?;
        let found = version["archive"].as_u64().ok_or_else(altered)?;
        if !(1..=u64::from(VERSION)).contains(&found) {
            let is_plain = |program: &&str| program.bytes().all(|b| b.is_ascii_alphanumeric() || b".-+".contains(&b));
            let program = version["program"].as_str().filter(|program| program.len() <= 64).filter(is_plain);
            let made_by =
                program.map_or_else(|| "a newer version of `sb`".to_owned(), |version| format!("`sb` {version}"));
            return Err(Error::FromTheFuture { found, known: VERSION, made_by });
        }
        let _: Header = serde_json::from_str(first.switchboard.get()).map_err(|_| altered())?;
        reader.signed.extend_from_slice(&reader.line);
        Ok(reader)
    }

    /// The next record that is not left out; `None` after the last.
    pub(super) fn next(&mut self) -> Result<Option<Record>> {
        while self.end.is_none() {
            let Some(record) = self.read()? else { break };
            if self.terms.credentials || !record.gives_rights() {
                self.taken.add(record.kind(), &self.line);
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    fn read(&mut self) -> Result<Option<Record>> {
        if !self.read_line()? || !self.line.ends_with(b"\n") {
            return Err(Error::Truncated { lines: self.lines });
        }
        if self.line.starts_with(b"{\"end\":") {
            self.end = Some(serde_json::from_slice(&self.line).map_err(|error| self.damaged(&error))?);
            self.signed.extend_from_slice(&self.line);
            if self.read_line()? {
                self.read_signature()?;
            }
            return Ok(None);
        }
        let record: Record = serde_json::from_slice(&self.line).map_err(|error| self.damaged(&error))?;
        self.checker.check(&record).map_err(|why| Error::Damaged { line: self.lines, why: why.into() })?;
        if !self.tally.add(record.kind(), &self.line) {
            return Err(Error::Damaged { line: self.lines, why: "it is out of order".into() });
        }
        (self.progress)(Phase::Copying, self.lines);
        Ok(Some(record))
    }

    fn read_signature(&mut self) -> Result<()> {
        let follows = || Error::Altered("something follows its last line".into());
        if !self.line.starts_with(b"{\"signature\":") {
            return Err(follows());
        }
        if !self.line.ends_with(b"\n") {
            return Err(Error::Truncated { lines: self.lines });
        }
        let Signed { signature } =
            serde_json::from_slice(&self.line).map_err(|_| Error::BadSignature("it cannot be read"))?;
        self.signature = Some(signature);
        if self.read_line()? { Err(follows()) } else { Ok(()) }
    }

    /// What was read, if it is what the last line says, and signed by whom it has to be.
    pub(super) fn finish(self) -> Result<Proven> {
        let Some(last) = self.end else {
            return Err(Error::Truncated { lines: self.lines });
        };
        let sums = self.tally.sums();
        let told = last.end;
        // What was written before there was a kind does not speak of it.
        let spoken_of = told.kinds.len();
        let is_known = (Kind::OLDEST..=sums.kinds.len()).contains(&spoken_of);
        if !is_known || sums.kinds[spoken_of..].iter().any(|later| later.count > 0) {
            return Err(Error::Altered("its last line has other kinds".into()));
        }
        for (sum, told) in sums.kinds.iter().zip(&told.kinds) {
            let name = sum.kind.name();
            if told.kind != name {
                return Err(Error::Altered(format!("its last line has `{}` where {name} belong", told.kind)));
            }
            if told.count != sum.count {
                let why = format!("it has {} {name}, its last line says {}", sum.count, told.count);
                return Err(Error::Altered(why));
            }
            if told.sha256 != sum.sha256 {
                return Err(Error::Altered(format!("the sum of its {name} is not what its last line says")));
            }
        }
        if told.sha256 != sums.sha256 {
            return Err(Error::Altered("its sum is not what its last line says".into()));
        }
        let trusted = self.terms.signed_by.as_deref();
        let signer = match self.signature {
            Some(signature) => Some(signature.check(&self.signed, trusted)?),
            None if trusted.is_some() => return Err(Error::Unsigned),
            None => None,
        };
        Ok(Proven { archive: sums, taken: self.taken.sums(), signer })
    }

    /// `false` at the end.
    fn read_line(&mut self) -> Result<bool> {
        self.line.clear();
        let read = (&mut self.input).take(MAX_LINE).read_until(b'\n', &mut self.line)?;
        if read as u64 == MAX_LINE {
            return Err(Error::Damaged { line: self.lines + 1, why: "it is too long".into() });
        }
        self.lines += u64::from(read > 0);
        Ok(read > 0)
    }

    fn damaged(&self, error: &serde_json::Error) -> Error {
        // Only what kind of error: a line may hold what nobody should read in a terminal.
        let why = match error.classify() {
            serde_json::error::Category::Data => "it is no record that this version knows",
            _ => "it is not JSON",
        };
        Error::Damaged { line: self.lines, why: why.into() }
    }
}
