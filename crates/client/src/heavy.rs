//! Work on large data, so that a thread that serves others is not held.

use tokio::runtime::{Handle, RuntimeFlavor};

/// From this size on, reading data takes long enough to be noticed by others.
const LARGE: usize = 64 << 10;

/// Works on so many bytes. Where that takes long, another thread takes over the tasks of this one meanwhile.
pub(crate) fn heavy<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let may_block = || Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::MultiThread);
    if bytes > LARGE && may_block() { tokio::task::block_in_place(work) } else { work() }
}
