//! Work that takes a while and does not wait: it leaves the threads on which everybody else is served.

use tokio::runtime::{Handle, RuntimeFlavor};

/// From so many bytes on, reading or writing them takes long enough to be noticed by others.
const LARGE: usize = 64 << 10;

/// Does something with so many bytes.
pub fn heavy<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let may_block = || Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::MultiThread);
    if bytes > LARGE && may_block() { tokio::task::block_in_place(work) } else { work() }
}
