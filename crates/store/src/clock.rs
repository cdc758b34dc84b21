//! Wall time, read in one place. It stands in events and audit entries, for people; what is decided by time is decided by
//! the store's own clock (see [`crate::lease`]).

use std::sync::{LazyLock, PoisonError, RwLock};

use a2a::Timestamp;

/// What a test makes of the milliseconds since the epoch.
pub type Bent = fn(i64) -> i64;

static BENT: RwLock<Option<Bent>> = RwLock::new(None);

/// A file with milliseconds to add, read each time.
static FILE: LazyLock<Option<std::ffi::OsString>> = LazyLock::new(|| std::env::var_os("SB_CLOCK"));

/// Milliseconds since the epoch.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
pub fn now() -> Timestamp {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let millis = i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(if cfg!(debug_assertions) { doubtful(millis) } else { millis })
}

/// Puts wall time in doubt for the whole process, in debug builds only. A test of the built binary does the same with
/// `SB_CLOCK`, the name of a file.
pub fn bend(bent: Option<Bent>) {
    *BENT.write().unwrap_or_else(PoisonError::into_inner) = bent;
}

fn doubtful(millis: i64) -> i64 {
    if let Some(bent) = *BENT.read().unwrap_or_else(PoisonError::into_inner) {
        return bent(millis);
    }
    let Some(file) = &*FILE else { return millis };
    let offset = std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse::<i64>().ok());
    millis.saturating_add(offset.unwrap_or(0))
}
