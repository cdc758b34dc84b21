//! Our protobuf against an independent implementation, and against our own JSON: a message says the same in both.

use crate::common;
use crate::common::arbitrary;

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
        let _ = grpc::Struct::decode_json(&bytes);
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

/// A message as the types of the binding keep it.
fn as_kept<T: prost::Message + Default>(message: &impl prost::Message) -> T {
    T::decode(message.encode_to_vec().as_slice()).expect("it is the same message")
}

/// A `Struct` or a `Value` is kept as bytes, and read when its JSON is made.
#[test]
fn broken_values_are_no_message_of_the_method() {
    // A part whose data is a text that is not UTF-8.
    let part = [&[0x22, 4, 0x1a, 2][..], b"\xff\xfe"].concat();
    let message = [&[0x2a, part.len() as u8][..], &part].concat();
    let request = [&[0x12, message.len() as u8][..], &message].concat();
    let error = grpc::decode::<a2a::SendMessageRequest>(request.into()).unwrap_err();
    assert_eq!(error.kind, a2a::ErrorKind::ParseError);
}

/// A message that is there twice is one: its fields are merged, and of entries with the same name the last counts.
#[test]
fn metadata_that_comes_twice_is_merged() {
    let metadata = |json: &str| {
        [
            &[0x22, grpc::Struct::from_text(json.to_owned()).encoded_len() as u8][..],
            &grpc::Struct::from_text(json.to_owned()).encode_to_vec(),
        ]
        .concat()
    };
    let message = [&[0x12, 0][..], &metadata(r#"{"a":1,"b":{"x":1}}"#), &metadata(r#"{"b":{"y":2}}"#)].concat();
    let request = grpc::decode::<a2a::SendMessageRequest>(message.into()).unwrap();
    assert_eq!(request.metadata.unwrap().get(), r#"{"a":1,"b":{"y":2}}"#);
    // An empty object is not the same as none.
    let request = grpc::decode::<a2a::SendMessageRequest>(vec![0x12, 0, 0x22, 0].into()).unwrap();
    assert_eq!(request.metadata.unwrap().get(), "{}");
    assert!(grpc::decode::<a2a::SendMessageRequest>(vec![0x12, 0].into()).unwrap().metadata.is_none());
}

#[test]
fn what_is_wrong_is_named_as_in_json() {
    let part = || wire::Part { content: Some(wire::part::Content::Text("a".into())), ..Default::default() };
    let message = || wire::Message { parts: vec![part()], ..Default::default() };
    let request = |message| wire::SendMessageRequest { message: Some(message), ..Default::default() };
    let endless = prost_types::Value { kind: Some(prost_types::value::Kind::NumberValue(f64::INFINITY)) };
    let content = Some(wire::part::Content::Data(as_kept(&endless)));
    let metadata = Some(as_kept(&prost_types::Struct { fields: [("n".to_owned(), endless)].into() }));
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
    let error = grpc::Struct::decode_json(&deep.encode_to_vec()).unwrap_err();
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
