//! The messages of the gRPC binding, and conversions between them and the types of this crate.
//!
//! JSON never passes through protobuf types: whoever speaks gRPC converts here, at the edge. What a sender left out or got
//! wrong is told with the same kinds of errors and the same paths as [`crate::decode`] tells it. [`Struct`] and [`Value`] are kept as
//! bytes: no tree is built out of what callers send.
//!
//! `google.protobuf.Value` has one kind of number, a double. A number that is whole becomes JSON without a fraction; of
//! JSON's own numbers, those that a double cannot hold are rounded, and what is beyond its range becomes the largest one.

mod convert;
mod dynamic;
mod field;

use bytes::Bytes;
use prost::Message;

use crate::{Error, ErrorKind};

pub use self::dynamic::{Struct, Value};
use self::field::Field;

/// The messages as `prost` makes them of the proto.
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]
pub mod wire {
    include!(concat!(env!("OUT_DIR"), "/lf.a2a.v1.rs"));
}

/// The service of the protocol.
pub const SERVICE: &str = "lf.a2a.v1.A2AService";
/// The service of the custom binding whose messages are `google.protobuf.Struct`.
pub const STRUCT_SERVICE: &str = "secondbrain.a2a.A2AGateway";
/// Both services and what they are made of, as a `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

const NO_MESSAGE: &str = "not a message of the method that was called";

/// Where, in the metadata of an event, its number stands for whoever activated the extension.
pub fn sequence_key() -> String {
    format!("{}/sequence", crate::RESUME_CURSOR)
}

/// A type that travels as a message of the gRPC binding.
pub trait Wire: Sized {
    /// The message.
    type Message: Message + Default;

    /// Reads a message. What the types alone require and the message lacks is InvalidParams.
    fn from_message(message: Self::Message) -> Result<Self, Error>;

    /// Writes it as a message.
    fn into_message(self) -> Self::Message;
}

/// Reads the bytes of a message. What is no such message is a ParseError.
pub fn decode<T: Wire>(bytes: Bytes) -> Result<T, Error> {
    T::from_message(parse(bytes)?)
}

/// Reads the bytes of any message of protobuf.
pub fn parse<M: Message + Default>(bytes: Bytes) -> Result<M, Error> {
    M::decode(bytes).map_err(|_| Error::new(ErrorKind::ParseError, NO_MESSAGE))
}

/// How many entries a repeated field of messages has, by the numbers of the fields that lead to it, without making any of them.
pub fn entries(mut bytes: &[u8], path: &[u32]) -> usize {
    use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
    let [wanted, rest @ ..] = path else { return 1 };
    let mut found = 0;
    while !bytes.is_empty() {
        let Ok((number, kind)) = decode_key(&mut bytes) else { break };
        if kind != WireType::LengthDelimited || number != *wanted {
            if skip_field(kind, number, &mut bytes, DecodeContext::default()).is_err() {
                break;
            }
            continue;
        }
        let length = decode_varint(&mut bytes).ok().and_then(|length| usize::try_from(length).ok());
        let Some((entry, after)) = length.and_then(|length| bytes.split_at_checked(length)) else { break };
        found += entries(entry, rest);
        bytes = after;
    }
    found
}

/// The bytes of a message.
pub fn encode<T: Wire>(value: T) -> Vec<u8> {
    value.into_message().encode_to_vec()
}

/// Lets types whose conversion is that of a field be read and written by themselves.
macro_rules! messages {
    ($( $name:ident = $wire:ident, )*) => {
        $( impl Wire for crate::$name {
            type Message = wire::$wire;

            fn from_message(message: wire::$wire) -> Result<Self, Error> {
                Self::read(message).map_err(field::Misfit::into_error)
            }

            fn into_message(self) -> wire::$wire {
                self.write()
            }
        } )*
    };
}

messages! {
    AgentCard = AgentCard,
    CancelTaskRequest = CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest = DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest = GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest = GetTaskPushNotificationConfigRequest,
    GetTaskRequest = GetTaskRequest,
    ListTaskPushNotificationConfigsRequest = ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse = ListTaskPushNotificationConfigsResponse,
    ListTasksRequest = ListTasksRequest,
    ListTasksResponse = ListTasksResponse,
    SendMessageRequest = SendMessageRequest,
    SendMessageResponse = SendMessageResponse,
    StreamResponse = StreamResponse,
    SubscribeToTaskRequest = SubscribeToTaskRequest,
    Task = Task,
    TaskPushNotificationConfig = TaskPushNotificationConfig,
}

/// `google.protobuf.Empty`, which DeleteTaskPushNotificationConfig answers.
impl Wire for () {
    type Message = ();

    fn from_message(_message: ()) -> Result<Self, Error> {
        Ok(())
    }

    fn into_message(self) {}
}
