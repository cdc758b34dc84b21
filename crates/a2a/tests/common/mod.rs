//! What the integration tests share: our proto, compiled, and our types by the names of their messages.

use std::path::Path;
use std::sync::OnceLock;

use prost_reflect::prost_types::FileDescriptorSet;
use prost_reflect::{DescriptorPool, MessageDescriptor};

pub(crate) fn descriptor_set() -> FileDescriptorSet {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    protox::compile([folder.join("a2a.proto")], [&folder]).expect("the proto compiles")
}

pub(crate) fn pool() -> &'static DescriptorPool {
    static POOL: OnceLock<DescriptorPool> = OnceLock::new();
    POOL.get_or_init(|| {
        DescriptorPool::from_file_descriptor_set(descriptor_set()).expect("the descriptors are complete")
    })
}

pub(crate) fn message(name: &str) -> MessageDescriptor {
    pool().get_message_by_name(&format!("lf.a2a.v1.{name}")).expect("the message is in the proto")
}
