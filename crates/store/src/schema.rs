//! Which versions of the schema a program can work with.
//!
//! A program opens a journal of its own version only, after it has brought it there. While it runs a newer program may
//! migrate the journal. Whether the older one can go on is what only the newer one knows: it leaves a mark.

use crate::{Error, Result};

/// The setting with the oldest version of the schema whose programs can work with the schema as it is. Settings whose names
/// begin with `journal.` are of a journal, not of an installation: no archive has them.
pub(crate) const COMPATIBLE_FROM: &str = "journal.compatible_from";

/// Refuses a schema whose mark does not say that a program which knows `known` can work with it.
pub(crate) fn check(found: i64, known: i64, mark: Option<&[u8]>) -> Result<()> {
    let oldest = mark.and_then(|mark| std::str::from_utf8(mark).ok()?.parse::<i64>().ok());
    if found <= known || oldest.is_some_and(|oldest| oldest <= known) {
        return Ok(());
    }
    Err(Error::FromTheFuture { found, known })
}
