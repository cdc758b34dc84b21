//! Our protobuf against an independent implementation, and against our own JSON: a message says the same in both.

#[path = "common/arbitrary.rs"]
mod arbitrary;
mod common;

use std::fmt::Debug;

use a2a::grpc::{self, Wire, wire};
use proptest::prelude::*;
use prost::Message as _;
use prost_reflect::DynamicMessage;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// All numbers as doubles: what JSON and protobuf have in common.
fn semantic(value: &impl Serialize) -> Value {
    fn doubles(value: Value) -> Value {
        match value {
            Value::Number(number) => Value::from(number.as_f64().expect("a number that fits a double")),
            Value::Array(list) => Value::Array(list.into_iter().map(doubles).collect()),
            Value::Object(map) => Value::Object(map.into_iter().map(|(key, value)| (key, doubles(value))).collect()),
            other => other,
        }
    }
    doubles(serde_json::to_value(value).expect("wire types serialise"))
}

fn check<T>(name: &str, original: &T)
where
    T: Wire + Serialize + DeserializeOwned + Clone + PartialEq + Debug,
{
    let bytes = grpc::encode(original.clone());
    let read: T = grpc::decode(bytes.clone().into()).expect("we read what we write");
    assert_eq!(semantic(&read), semantic(original));

    // What we write means to others what our JSON means to them.
    let ours = DynamicMessage::decode(common::message(name), bytes.as_slice()).expect("protobuf reads what we wrote");
    let json = serde_json::to_string(original).expect("wire types serialise");
    let mut deserializer = serde_json::Deserializer::from_str(&json);
    let theirs = DynamicMessage::deserialize(common::message(name), &mut deserializer).expect("others read our JSON");
    let theirs = DynamicMessage::decode(common::message(name), theirs.encode_to_vec().as_slice()).expect("a message");
    assert!(ours == theirs, "{json}: {ours} is not {theirs}");

    // And we read what they write.
    let read: T = grpc::decode(theirs.encode_to_vec().into()).expect("we read what others write");
    assert_eq!(semantic(&read), semantic(original));
}

common::of_every_message!(check);

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// No bytes make the readers panic.
    #[test]
    fn noise_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = grpc::decode::<a2a::SendMessageRequest>(bytes.clone().into());
        let _ = grpc::decode::<a2a::StreamResponse>(bytes.clone().into());
        if let Ok(object) = grpc::parse::<prost_types::Struct>(bytes.into()) {
            let _ = grpc::json_of(&object);
        }
    }

    /// A valid request with one byte changed never panics.
    #[test]
    fn a_changed_byte_is_read_or_refused(value in arbitrary::send_request(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = grpc::encode(value);
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(read) = grpc::decode::<a2a::SendMessageRequest>(bytes.into()) {
            let _ = a2a::validate::validate_send(&read, &a2a::Limits::default());
        }
    }
}

#[test]
fn what_is_wrong_is_named_as_in_json() {
    let part = || wire::Part { content: Some(wire::part::Content::Text("a".into())), ..Default::default() };
    let message = || wire::Message { parts: vec![part()], ..Default::default() };
    let request = |message| wire::SendMessageRequest { message: Some(message), ..Default::default() };
    let endless = prost_types::Value { kind: Some(prost_types::value::Kind::NumberValue(f64::INFINITY)) };
    let content = Some(wire::part::Content::Data(endless.clone()));
    let metadata = Some(prost_types::Struct { fields: [("n".to_owned(), endless)].into() });
    for (request, field) in [
        (wire::SendMessageRequest::default(), "message"),
        (request(wire::Message { role: 9, ..message() }), "message.role"),
        (request(wire::Message { parts: vec![part(), wire::Part::default()], ..message() }), "message.parts[1]"),
        (
            request(wire::Message { parts: vec![wire::Part { content, ..part() }], ..message() }),
            "message.parts[0].data",
        ),
        (request(wire::Message { metadata, ..message() }), "message.metadata"),
    ] {
        let error = a2a::SendMessageRequest::from_message(request).unwrap_err();
        assert_eq!((error.kind, error.violations[0].field.as_str()), (a2a::ErrorKind::InvalidParams, field));
    }
    for (seconds, nanos) in [(i64::MAX, 0), (-62_135_596_801, 0), (253_402_300_800, 0), (0, -1), (0, 1_000_000_000)] {
        let after = Some(prost_types::Timestamp { seconds, nanos });
        let request = wire::ListTasksRequest { status_timestamp_after: after, ..Default::default() };
        let error = a2a::ListTasksRequest::from_message(request).unwrap_err();
        assert_eq!(error.violations[0].field, "statusTimestampAfter", "{seconds} {nanos}");
    }
}

#[test]
fn depth_is_bounded_before_anything_is_made_of_it() {
    let mut value = prost_types::Value { kind: Some(prost_types::value::Kind::BoolValue(true)) };
    for _ in 0..200 {
        let list = prost_types::ListValue { values: vec![value] };
        value = prost_types::Value { kind: Some(prost_types::value::Kind::ListValue(list)) };
    }
    let deep = prost_types::Struct { fields: [("n".to_owned(), value)].into() };
    let error = grpc::parse::<prost_types::Struct>(deep.encode_to_vec().into()).unwrap_err();
    assert_eq!(error.kind, a2a::ErrorKind::ParseError);
}

#[test]
fn the_descriptors_name_both_services() {
    let set = prost_types::FileDescriptorSet::decode(grpc::DESCRIPTORS).unwrap();
    let mut services = Vec::new();
    for file in &set.file {
        services.extend(file.service.iter().map(|service| format!("{}.{}", file.package(), service.name())));
    }
    assert_eq!(services, [grpc::SERVICE, grpc::STRUCT_SERVICE]);
}
