//! What the integration tests share: our proto, compiled, and our types by the names of their messages.

pub(crate) mod arbitrary;
pub(crate) mod types;

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

/// A test for each kind of message that goes over the wire by itself: `check` is called with its name and any value of it.
#[allow(unused_macros, reason = "not every test of this crate wants it")]
macro_rules! of_every_message {
    ($check:ident) => {
        proptest! {
            #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

            #[test]
            fn tasks(value in arbitrary::task()) {
                $check("Task", &value);
            }

            #[test]
            fn stream_responses(value in arbitrary::stream_response()) {
                $check("StreamResponse", &value);
            }

            #[test]
            fn send_requests(value in arbitrary::send_request()) {
                $check("SendMessageRequest", &value);
            }

            #[test]
            fn list_requests(value in arbitrary::list_request()) {
                $check("ListTasksRequest", &value);
            }

            #[test]
            fn list_responses(value in arbitrary::list_response()) {
                $check("ListTasksResponse", &value);
            }

            #[test]
            fn push_configs(value in arbitrary::push_config()) {
                $check("TaskPushNotificationConfig", &value);
            }

            #[test]
            fn get_push_requests(value in arbitrary::get_push_request()) {
                $check("GetTaskPushNotificationConfigRequest", &value);
            }

            #[test]
            fn delete_push_requests(value in arbitrary::delete_push_request()) {
                $check("DeleteTaskPushNotificationConfigRequest", &value);
            }

            #[test]
            fn list_push_requests(value in arbitrary::list_push_request()) {
                $check("ListTaskPushNotificationConfigsRequest", &value);
            }

            #[test]
            fn list_push_responses(value in arbitrary::list_push_response()) {
                $check("ListTaskPushNotificationConfigsResponse", &value);
            }

            #[test]
            fn cards(value in arbitrary::card()) {
                $check("AgentCard", &value);
            }
        }
    };
}
#[allow(unused_imports, reason = "as above")]
pub(crate) use of_every_message;
