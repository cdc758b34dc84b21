//! Against the trees of `prost_types`, which are the reference.

use std::collections::BTreeMap;

use proptest::prelude::*;
use prost::Message as _;
use prost_types::{ListValue, value};
use serde_json::Value as Tree;

use super::*;

type TreeValue = prost_types::Value;
type TreeStruct = prost_types::Struct;

fn of(kind: value::Kind) -> TreeValue {
    TreeValue { kind: Some(kind) }
}

/// The JSON of a tree; `None` where it has a number that is not finite.
fn json_of(value: &TreeValue) -> Option<Tree> {
    Some(match &value.kind {
        None | Some(value::Kind::NullValue(_)) => Tree::Null,
        Some(value::Kind::BoolValue(flag)) => (*flag).into(),
        Some(value::Kind::StringValue(text)) => text.as_str().into(),
        Some(value::Kind::NumberValue(number)) if !number.is_finite() => return None,
        Some(value::Kind::NumberValue(number)) if number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0 => {
            (*number as i64).into()
        }
        Some(value::Kind::NumberValue(number)) => (*number).into(),
        Some(value::Kind::ListValue(list)) => Tree::Array(list.values.iter().map(json_of).collect::<Option<_>>()?),
        Some(value::Kind::StructValue(object)) => object_of(object)?,
    })
}

fn object_of(object: &TreeStruct) -> Option<Tree> {
    let members = object.fields.iter().map(|(name, value)| Some((name.clone(), json_of(value)?)));
    Some(Tree::Object(members.collect::<Option<_>>()?))
}

fn read_value(wire: &[u8]) -> Result<Json, Misfit> {
    read::value(wire)
}

fn text_of(wire: &[u8]) -> String {
    read_value(wire).unwrap().get().to_owned()
}

fn wire_of(json: &str) -> Vec<u8> {
    Value::from_text(json.to_owned()).encode_to_vec()
}

/// The bytes of a tree, and what we make of them.
fn arbitrary_tree() -> impl Strategy<Value = TreeValue> {
    let number = prop_oneof![
        any::<f64>(),
        any::<i32>().prop_map(f64::from),
        Just(9_007_199_254_740_993.0),
        Just(-0.0),
        Just(f64::NAN)
    ];
    let leaf = prop_oneof![
        Just(TreeValue { kind: None }),
        any::<i32>().prop_map(|number| of(value::Kind::NullValue(number))),
        any::<bool>().prop_map(|flag| of(value::Kind::BoolValue(flag))),
        number.prop_map(|number| of(value::Kind::NumberValue(number))),
        any::<String>().prop_map(|text| of(value::Kind::StringValue(text))),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6)
                .prop_map(|values| of(value::Kind::ListValue(ListValue { values }))),
            prop::collection::btree_map("[a-c\u{e9}]{0,2}", inner, 0..6)
                .prop_map(|fields| of(value::Kind::StructValue(TreeStruct { fields }))),
        ]
    })
}

/// A field by its key, with its length where it is a message.
fn field(key: u8, inside: &[u8]) -> Vec<u8> {
    let mut bytes = vec![key];
    if key & 7 == 2 {
        encode_varint(inside.len() as u64, &mut bytes);
    }
    bytes.extend_from_slice(inside);
    bytes
}

/// Wire bytes as no encoder writes them: fields in any order, several times, unknown ones between them.
fn arbitrary_wire() -> impl Strategy<Value = Vec<u8>> {
    let scalar = prop_oneof![
        Just(field(0x08, &[0])),
        any::<bool>().prop_map(|flag| field(0x20, &[u8::from(flag)])),
        any::<i16>().prop_map(|number| field(0x11, &f64::from(number).to_le_bytes())),
        "[a-b\u{e9}]{0,2}".prop_map(|text| field(0x1a, text.as_bytes())),
        // Unknown fields: a number, bytes, a group.
        Just(field(0x38, &[1])),
        Just(field(0x42, b"xy")),
        Just(vec![0x4b, 0x08, 0x01, 0x4c]),
    ];
    scalar.prop_recursive(5, 80, 5, |value| {
        let values = || prop::collection::vec(value.clone(), 0..4).prop_map(|fields| fields.concat());
        let name = || "[a-b]{0,1}".prop_map(|name| field(0x0a, name.as_bytes()));
        let entry = prop_oneof![
            (name(), values()).prop_map(|(name, value)| [name, field(0x12, &value)].concat()),
            (name(), values()).prop_map(|(name, value)| [field(0x12, &value), name].concat()),
            (name(), name(), values(), values()).prop_map(|(one, two, value, more)| {
                [one, field(0x12, &value), two, field(0x38, &[9]), field(0x12, &more)].concat()
            }),
        ];
        let entries = || {
            prop::collection::vec(entry.clone(), 0..5)
                .prop_map(|entries| entries.iter().flat_map(|entry| field(0x0a, entry)).collect::<Vec<u8>>())
        };
        let list = || {
            prop::collection::vec(values(), 0..4)
                .prop_map(|items| items.iter().flat_map(|item| field(0x0a, item)).collect::<Vec<u8>>())
        };
        prop_oneof![
            2 => entries().prop_map(|entries| field(0x2a, &entries)),
            2 => list().prop_map(|list| field(0x32, &list)),
            1 => (entries(), entries()).prop_map(|(one, two)| [field(0x2a, &one), field(0x2a, &two)].concat()),
            1 => (list(), list()).prop_map(|(one, two)| [field(0x32, &one), field(0x32, &two)].concat()),
            1 => (entries(), list(), entries()).prop_map(|(one, list, two)| {
                [field(0x2a, &one), field(0x32, &list), field(0x2a, &two)].concat()
            }),
        ]
    })
}

fn arbitrary_json() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        Just(Tree::Null),
        any::<bool>().prop_map(Tree::from),
        any::<i64>().prop_map(Tree::from),
        any::<u64>().prop_map(Tree::from),
        any::<i8>().prop_map(Tree::from),
        any::<f64>().prop_map(Tree::from),
        any::<String>().prop_map(Tree::from),
        prop::collection::vec(prop::char::any(), 100..300).prop_map(|text| text.into_iter().collect::<String>().into()),
    ];
    leaf.prop_recursive(6, 80, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Tree::from),
            prop::collection::btree_map(any::<String>(), inner, 0..6)
                .prop_map(|members| Tree::Object(members.into_iter().collect())),
        ]
    })
}

/// The tree that JSON stands for.
fn tree_of(json: &Tree) -> TreeValue {
    of(match json {
        Tree::Null => value::Kind::NullValue(0),
        Tree::Bool(flag) => value::Kind::BoolValue(*flag),
        Tree::Number(number) => value::Kind::NumberValue(number.as_f64().unwrap()),
        Tree::String(text) => value::Kind::StringValue(text.clone()),
        Tree::Array(list) => value::Kind::ListValue(ListValue { values: list.iter().map(tree_of).collect() }),
        Tree::Object(members) => value::Kind::StructValue(TreeStruct {
            fields: members.iter().map(|(name, value)| (name.clone(), tree_of(value))).collect(),
        }),
    })
}

/// Reads bytes both ways. Entries of a `Struct` have to be messages, which `prost` does not look at.
fn same_as_trees(wire: &[u8]) -> Result<(), TestCaseError> {
    let ours = read_value(wire);
    match TreeValue::decode(wire) {
        Ok(tree) => match (json_of(&tree), ours) {
            (Some(json), Ok(ours)) => prop_assert_eq!(ours.get(), json.to_string()),
            (Some(_), Err(misfit)) => prop_assert!(misfit.is_malformed(), "refused: {misfit:?}"),
            (None, Err(_)) => {}
            (None, Ok(ours)) => prop_assert!(false, "not finite, and read as {}", ours.get()),
        },
        Err(_) => prop_assert!(ours.is_err_and(|misfit| misfit.is_malformed())),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_is_read_as_its_json(tree in arbitrary_tree()) {
        let wire = tree.encode_to_vec();
        let ours = read_value(&wire).ok().map(|json| json.get().to_owned());
        prop_assert_eq!(ours, json_of(&tree).map(|json| json.to_string()));
    }

    #[test]
    fn any_order_of_fields_is_read_as_by_prost(wire in arbitrary_wire()) {
        let tree = TreeValue::decode(wire.as_slice()).expect("it is a message");
        prop_assert_eq!(text_of(&wire), json_of(&tree).expect("its numbers are finite").to_string());
    }

    #[test]
    fn cut_and_changed_bytes_are_refused_as_by_prost(
        wire in arbitrary_wire(), cut in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        if !wire.is_empty() {
            same_as_trees(&wire[..cut.index(wire.len())])?;
            let mut wire = wire.clone();
            let at = at.index(wire.len());
            wire[at] = byte;
            same_as_trees(&wire)?;
        }
    }

    #[test]
    fn noise_is_read_or_refused_as_by_prost(wire in prop::collection::vec(any::<u8>(), 0..60)) {
        same_as_trees(&wire)?;
    }

    #[test]
    fn json_is_written_as_prost_writes_its_tree(json in arbitrary_json()) {
        // The doubles that are read of the text.
        let text = json.to_string();
        let json: Tree = serde_json::from_str(&text).unwrap();
        let wire = wire_of(&text);
        prop_assert_eq!(&wire, &tree_of(&json).encode_to_vec());
        prop_assert_eq!(Value::from_text(text.clone()).encoded_len(), wire.len());
        if json.is_object() {
            let object = Struct::from_text(text);
            prop_assert_eq!(object.encoded_len(), object.encode_to_vec().len());
            let Some(value::Kind::StructValue(tree)) = tree_of(&json).kind else { unreachable!() };
            prop_assert_eq!(object.encode_to_vec(), tree.encode_to_vec());
            // A message that was decoded is encoded as it came.
            prop_assert_eq!(Struct::decode(tree.encode_to_vec().as_slice()).unwrap().encode_to_vec(), tree.encode_to_vec());
        }
    }

    #[test]
    fn a_message_within_others_is_kept_as_it_came(wire in arbitrary_wire()) {
        let value = Value::decode(wire.as_slice()).expect("it is a message");
        let json = value.read().unwrap();
        prop_assert_eq!(json.get(), text_of(&wire));
    }
}

fn there_and_back(text: &str) -> String {
    Struct::decode_json(&Struct::from_text(text.to_owned()).encode_to_vec()).unwrap().get().to_owned()
}

#[test]
fn whole_numbers_stay_whole() {
    for text in [r#"{"n":0}"#, r#"{"n":-7}"#, r#"{"n":9007199254740992}"#, r#"{"n":0.5}"#, r#"{"n":1e+300}"#] {
        assert_eq!(there_and_back(text), text);
    }
    assert_eq!(there_and_back(r#"{"n":1.0,"m":1e2}"#), r#"{"m":100,"n":1}"#);
}

#[test]
fn numbers_beyond_a_double_become_the_nearest() {
    assert_eq!(there_and_back(r#"{"n":18446744073709551617}"#), r#"{"n":1.8446744073709552e+19}"#);
    let text = r#"{"a\"1e999":["1e999",true,null,{"n":1e999}, 2 ],"n":-1e999}"#;
    let back: Tree = serde_json::from_str(&there_and_back(text)).unwrap();
    assert_eq!(back["a\"1e999"][3]["n"], f64::MAX);
    assert_eq!(back["n"], f64::MIN);
    assert_eq!(back["a\"1e999"][0], "1e999");
    assert_eq!(back["a\"1e999"][4], 2);
}

#[test]
fn numbers_that_are_not_finite_are_refused_and_an_unset_value_is_null() {
    let object = |kind| TreeStruct { fields: BTreeMap::from([("n".to_owned(), TreeValue { kind })]) }.encode_to_vec();
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let error = Struct::decode_json(&object(Some(value::Kind::NumberValue(number)))).unwrap_err();
        assert_eq!(error.kind, crate::ErrorKind::InvalidParams, "{number}");
    }
    assert_eq!(Struct::decode_json(&object(None)).unwrap().get(), r#"{"n":null}"#);
}

#[test]
fn of_a_name_that_is_there_twice_the_last_counts() {
    assert_eq!(there_and_back(r#"{"n":1,"m":3,"n":2}"#), r#"{"m":3,"n":2}"#);
    let many: Vec<String> = (0..1000).map(|n| format!(r#""{}":{n}"#, n % 7)).collect();
    let back = there_and_back(&format!("{{{}}}", many.join(",")));
    assert_eq!(back, r#"{"0":994,"1":995,"2":996,"3":997,"4":998,"5":999,"6":993}"#);
}

#[test]
fn what_is_too_deep_for_readers_stands_in_a_text() {
    let lists = |levels: usize| format!("{}1, 2{}", "[".repeat(levels), "]".repeat(levels));
    let rest = format!("\"{}\"", lists(60 - write::LEVELS));
    let expected = format!("{}{rest}{}", "[".repeat(write::LEVELS), "]".repeat(write::LEVELS));
    assert_eq!(text_of(&wire_of(&lists(60))), expected);
    assert_eq!(text_of(&wire_of(&lists(write::LEVELS))), lists(write::LEVELS).replace(' ', ""));
    // Scalars at that level are what they are.
    let mixed = format!("{}1e999,\"x\",null,[]{}", "[".repeat(write::LEVELS), "]".repeat(write::LEVELS));
    let text = text_of(&wire_of(&mixed));
    assert!(text.contains(r#"[1.7976931348623157e+308,"x",null,"[]"]"#), "{text}");
}

#[test]
fn depth_is_bounded_as_by_prost() {
    let mut bytes = Vec::new();
    for level in 1..=105 {
        bytes = if level % 2 == 1 { field(0x32, &bytes) } else { field(0x0a, &bytes) };
        if level % 2 == 1 {
            let theirs = TreeValue::decode(bytes.as_slice());
            assert_eq!(read_value(&bytes).is_ok(), theirs.is_ok(), "{level}");
        }
    }
    assert!(read_value(&bytes).is_err());
}

/// The error for bytes that hold no JSON. They are checked before they are kept, so it does not occur.
#[test]
fn text_that_is_no_json_is_null() {
    assert_eq!(text_of(&wire_of("[1,")), "null");
    assert_eq!(there_and_back("[1]"), "{}");
    assert_eq!(there_and_back("{"), "{}");
}

#[test]
fn a_member_is_taken_out() {
    let mut object = Struct::from_text(r#"{"a":1,"n":3,"b":[2],"n":7}"#.to_owned());
    assert_eq!(object.take_number("n"), Some(7.0));
    assert_eq!(object.clone().read().unwrap().get(), r#"{"a":1,"b":[2]}"#);
    assert_eq!(object.take_number("b"), None);
    assert_eq!(object.take_number("n"), None);
    assert_eq!(object.read().unwrap().get(), r#"{"a":1}"#);
    let mut single = Struct::from_text(r#"{"n":7}"#.to_owned());
    assert_eq!(single.take_number("n"), Some(7.0));
    assert!(single.is_empty());
}
