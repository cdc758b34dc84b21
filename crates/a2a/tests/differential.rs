//! Our JSON against an independent implementation of ProtoJSON, in both directions: it reads what we write, we read what it
//! writes in every style it has, and nothing is lost or changed on the way.

use crate::common;
use crate::common::arbitrary;

use std::fmt::Debug;

use proptest::prelude::*;
use prost_reflect::prost::Message as _;
use prost_reflect::{DynamicMessage, SerializeOptions};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// All numbers as doubles and all keys sorted: what two ProtoJSON texts of one value have in common.
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

fn read_by_other(name: &str, json: &str) -> DynamicMessage {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let message = DynamicMessage::deserialize(common::message(name), &mut deserializer)
        .unwrap_or_else(|error| panic!("the other implementation refuses {json}: {error}"));
    // Through the binary form, as the gRPC binding goes. It also takes away defaults that were written out.
    DynamicMessage::decode(common::message(name), message.encode_to_vec().as_slice())
        .expect("protobuf reads what it wrote")
}

fn written_by_other(message: &DynamicMessage, options: &SerializeOptions) -> String {
    let mut serializer = serde_json::Serializer::new(Vec::new());
    message.serialize_with_options(&mut serializer, options).expect("the other implementation writes");
    String::from_utf8(serializer.into_inner()).expect("JSON is UTF-8")
}

fn check<T>(name: &str, original: &T)
where
    T: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let ours = serde_json::to_string(original).expect("wire types serialise");
    assert!(!ours.contains(['\n', '\r']), "an event is one line");
    let back: T = a2a::decode(ours.as_bytes()).expect("we read what we write");
    assert_eq!(&back, original);

    let other = read_by_other(name, &ours);
    for options in [
        SerializeOptions::new(),
        SerializeOptions::new().use_proto_field_name(true),
        SerializeOptions::new().use_enum_numbers(true),
        SerializeOptions::new().skip_default_fields(false),
    ] {
        let theirs = written_by_other(&other, &options);
        let read: T = a2a::decode(theirs.as_bytes())
            .unwrap_or_else(|error| panic!("we refuse what the other implementation wrote: {theirs}: {error}"));
        assert_eq!(semantic(&read), semantic(original), "{theirs}");
        let again = read_by_other(name, &serde_json::to_string(&read).expect("wire types serialise"));
        assert!(again == other, "the message changed on its way: {theirs}");
    }
}

common::of_every_message!(check);

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parts(value in arbitrary::part()) {
        check("Part", &value);
    }

    #[test]
    fn messages(value in arbitrary::message()) {
        check("Message", &value);
    }

    /// No bytes make the readers panic, and what they read they can write.
    #[test]
    fn noise_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "[{}\\[\\]\":,a-z0-9\\\\ ]{0,60}") {
        for input in [bytes.as_slice(), text.as_bytes()] {
            let _ = a2a::jsonrpc::decode_request(input);
            let _ = a2a::jsonrpc::decode_response(input);
            let _ = a2a::decode::<a2a::StreamResponse>(input);
            if let Ok(json) = a2a::decode::<a2a::Json>(input) {
                prop_assert!(!json.get().contains(['\n', '\r', '\t']));
            }
        }
    }

    /// A valid request with one byte changed never panics.
    #[test]
    fn a_changed_byte_is_read_or_refused(value in arbitrary::send_request(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = serde_json::to_vec(&value).expect("wire types serialise");
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(read) = a2a::decode::<a2a::SendMessageRequest>(&bytes) {
            let _ = a2a::validate::validate_send(&read, &a2a::Limits::default());
        }
    }
}
