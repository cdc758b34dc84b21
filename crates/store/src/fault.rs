//! Faults for negative controls: `SB_FAULT=<name>` breaks one promise, so that the tests of that promise can
//! show that they would notice. Debug builds only.

use std::sync::LazyLock;

static FAULT: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("SB_FAULT").ok());

/// Whether this promise is to be broken. The names in use:
/// - `ack-before-commit`: callers are answered before what they are told is durable,
/// - `no-fence`: a write under a lease that was taken over goes through,
/// - `skip-one`: a stream that resumes begins one event too late,
/// - `no-guard`: programs of agents are not ended when the server is killed,
/// - `takes-own`: an instance claims what it runs itself when the lease has run out, and tells nobody,
/// - `wall-leases`: leases of SQLite are measured by wall clocks,
/// - `takeover-at-once`: a lease that has run out is taken over without a last call to its holder,
/// - `release-again`: a turn that is given back on purpose runs again, whatever its agent's policy,
/// - `stay-held`: a task that is held for a direct reply is not shown when that takes long,
/// - `push-settles-first`: a notification is settled before it is sent,
/// - `push-forgets`: a notification whose attempt failed counts as told,
/// - `push-new-id`: a notification that is sent again has another id,
/// - `keep-whole`: a state that grows is written anew each time it is kept,
/// - `queue-forgets`: an entry of the queue whose attempt failed is never due again,
/// - `remote-forgets`: a turn of a remote does not keep that it is about to send, and sends no key,
/// - `slow-send`: breaks nothing; two seconds pass after a turn of a remote has kept that it is about to send.
pub fn is_on(name: &str) -> bool {
    cfg!(debug_assertions) && FAULT.as_deref() == Some(name)
}
