//! A look at a journal from outside, for whoever asks whether all is well. Nothing is written and nothing migrated.

use std::path::Path;

use super::{FILE, checkpoint, schema};
use crate::Result;

/// What the journal's file says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// The schema's version.
    pub schema: i64,
    /// The schema that this program brings a file to.
    pub known_schema: i64,
    /// `wal`, unless somebody changed it.
    pub journal_mode: String,
    /// What the writer's connection has, 2 being FULL. `None` where opening it would change the schema.
    pub synchronous: Option<i64>,
    /// The size of the database without its log.
    pub bytes: u64,
    /// The size of the write-ahead log beside it.
    pub log_bytes: u64,
}

/// The version of SQLite that is built in.
pub fn version() -> &'static str {
    rusqlite::version()
}

/// The same as a number: 3051003 is 3.51.3.
pub fn version_number() -> i32 {
    rusqlite::version_number()
}

/// Looks at the journal in `dir`. `None` when there is none.
pub fn inspect(dir: &Path) -> Result<Option<Inspection>> {
    let file = dir.join(FILE);
    // An empty file is one that somebody is about to set up.
    if std::fs::metadata(&file).map_or(0, |metadata| metadata.len()) == 0 {
        return Ok(None);
    }
    let log_bytes = std::fs::metadata(checkpoint::log_of(&file)).map_or(0, |metadata| metadata.len());
    let conn = schema::open_reader(&file, 1024)?;
    let found = schema::version(&conn)?;
    let number = |name: &str| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let bytes = number("page_count")?.saturating_mul(number("page_size")?);
    let journal_mode = conn.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    let known_schema = schema::known();
    let synchronous = if found == known_schema {
        let writer = schema::open_writer(&file, 1024)?;
        Some(writer.pragma_query_value(None, "synchronous", |row| row.get(0))?)
    } else {
        None
    };
    let bytes = u64::try_from(bytes).unwrap_or_default();
    Ok(Some(Inspection { schema: found, known_schema, journal_mode, synchronous, bytes, log_bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_looked_at_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(inspect(dir.path()).unwrap(), None);
        let store = crate::sqlite::open(dir.path(), crate::sqlite::Options::default()).unwrap();
        assert!(inspect(dir.path()).unwrap().unwrap().log_bytes > 0);
        drop(store);
        let found = inspect(dir.path()).unwrap().unwrap();
        assert_eq!((found.journal_mode.as_str(), found.synchronous), ("wal", Some(2)));
        assert_eq!(found.schema, found.known_schema);
        assert!(found.bytes > 0);
        assert_eq!(found.log_bytes, 0, "the last connection has put it into the database");
        assert!(version_number() >= 3_051_003, "{}", version());
    }
}
