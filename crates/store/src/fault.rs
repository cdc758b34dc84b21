//! Faults for negative controls: `SB_FAULT=<name>` breaks one promise, so that the tests of that promise can
//! show that they would notice. Debug builds only.

use std::sync::LazyLock;

static FAULT: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("SB_FAULT").ok());

/// Whether this promise is to be broken. The names in use:
/// - `ack-before-commit`: callers are answered before what they are told is durable,
/// - `no-fence`: a write under a lease that was taken over goes through,
/// - `skip-one`: a stream that resumes begins one event too late,
/// - `no-guard`: programs of agents are not ended when the server is killed.
pub fn is_on(name: &str) -> bool {
    cfg!(debug_assertions) && FAULT.as_deref() == Some(name)
}
