//! Our proto against our types, and against the descriptor of the official Python package.

use crate::common;
use crate::common::types;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use common::{descriptor_set, message, pool};
use prost_reflect::prost_types::field_descriptor_proto::{Label, Type};
use prost_reflect::prost_types::{DescriptorProto, FieldDescriptorProto};
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value, json};
use types::{NAMES, reencode};

const PACKAGE: &str = "lf.a2a.v1";

/// A value for a field that is not its default, as our types print it.
fn filled_field(field: &FieldDescriptor) -> Value {
    let Kind::Message(entry) = field.kind() else {
        return if field.is_list() { json!([filled_scalar(&field.kind())]) } else { filled_scalar(&field.kind()) };
    };
    if field.is_map() {
        return json!({"key": filled_scalar(&entry.map_entry_value_field().kind())});
    }
    if field.is_list() { json!([filled_scalar(&field.kind())]) } else { filled_scalar(&field.kind()) }
}

fn filled_scalar(kind: &Kind) -> Value {
    match kind {
        Kind::String => json!("text"),
        Kind::Bool => json!(true),
        Kind::Int32 => json!(7),
        Kind::Bytes => json!("+/8="),
        Kind::Enum(of) => json!(of.values().last().expect("an enum has values").name()),
        Kind::Message(of) => match of.full_name() {
            "google.protobuf.Struct" => json!({"k": [1, null]}),
            "google.protobuf.Value" => json!({"v": 1.5}),
            "google.protobuf.Timestamp" => json!("2026-03-01T12:00:00.500Z"),
            _ => filled(of).swap_remove(0),
        },
        other => panic!("no field of A2A is of kind {other:?}"),
    }
}

fn default_of(field: &FieldDescriptor) -> Option<Value> {
    if field.is_map() {
        return Some(json!({}));
    }
    if field.is_list() {
        return Some(json!([]));
    }
    match field.kind() {
        Kind::String => Some(json!("")),
        Kind::Bool => Some(json!(false)),
        Kind::Int32 => Some(json!(0)),
        Kind::Enum(of) => Some(json!(of.default_value().name())),
        _ => None,
    }
}

/// Objects with every field set: one, or one for each member of the message's oneof.
fn filled(of: &MessageDescriptor) -> Vec<Value> {
    let (members, plain): (Vec<_>, Vec<_>) = of.fields().partition(is_member);
    let mut object = Map::new();
    for field in plain {
        object.insert(field.json_name().to_owned(), filled_field(&field));
    }
    if members.is_empty() {
        return vec![Value::Object(object)];
    }
    let with = |member: &FieldDescriptor| {
        let mut object = object.clone();
        object.insert(member.json_name().to_owned(), filled_field(member));
        Value::Object(object)
    };
    members.iter().map(with).collect()
}

fn is_member(field: &FieldDescriptor) -> bool {
    field.containing_oneof().is_some_and(|oneof| !oneof.is_synthetic())
}

/// The least that our type reads, which is what it must hold.
fn least(of: &MessageDescriptor) -> Value {
    let mut object = Map::new();
    loop {
        let Err(error) = reencode(of.name(), &Value::Object(object.clone())) else {
            return Value::Object(object);
        };
        let missing = of.fields().find(|field| error.ends_with(&format!("{}: is required", field.json_name())));
        let Some(field) = missing else {
            let member = of.fields().find(is_member).expect("what else is refused needs a member of its oneof");
            object.insert(member.json_name().to_owned(), filled_field(&member));
            continue;
        };
        let Kind::Message(kind) = field.kind() else { panic!("only messages are mandatory: {error}") };
        object.insert(field.json_name().to_owned(), least(&kind));
    }
}

/// The fields that our type prints even when nothing was set.
fn always_printed(of: &MessageDescriptor) -> BTreeSet<String> {
    let printed = reencode(of.name(), &least(of)).expect("the least is enough");
    let object = printed.as_object().expect("a message is an object");
    of.fields()
        .filter(|field| !is_member(field) && object.contains_key(field.json_name()))
        .map(|f| f.name().to_owned())
        .collect()
}

#[test]
fn every_message_has_its_type() {
    let in_proto: BTreeSet<String> = pool()
        .all_messages()
        .filter(|m| m.package_name() == PACKAGE && !m.is_map_entry())
        .map(|m| m.name().to_owned())
        .collect();
    let ours: BTreeSet<String> = NAMES.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(in_proto, ours);
    assert_eq!(ours.len(), 44);
}

#[test]
fn every_field_is_read_by_both_names_and_written_by_one() {
    for name in NAMES {
        let descriptor = message(name);
        for value in filled(&descriptor) {
            assert_eq!(reencode(name, &value).as_ref(), Ok(&value), "{name}");
            let object = value.as_object().unwrap();
            let mut snake = Map::new();
            for field in descriptor.fields() {
                if let Some(value) = object.get(field.json_name()) {
                    snake.insert(field.name().to_owned(), value.clone());
                }
            }
            assert_eq!(reencode(name, &Value::Object(snake)).as_ref(), Ok(&value), "{name}");
        }
    }
}

#[test]
fn every_field_has_the_presence_of_the_proto() {
    for name in NAMES {
        let descriptor = message(name);
        let always = always_printed(&descriptor);
        for field in descriptor.fields().filter(|field| !is_member(field)) {
            let mut object = least(&descriptor).as_object().unwrap().clone();
            object.insert(field.json_name().to_owned(), Value::Null);
            let is_mandatory =
                matches!(field.kind(), Kind::Message(_)) && least(&descriptor).get(field.json_name()).is_some();
            assert_eq!(
                reencode(name, &Value::Object(object.clone())).is_err(),
                is_mandatory,
                "{name}.{} null",
                field.name()
            );

            let Some(default) = default_of(&field) else {
                continue;
            };
            object.insert(field.json_name().to_owned(), default);
            let printed = reencode(name, &Value::Object(object)).unwrap();
            let is_printed = printed.get(field.json_name()).is_some();
            let expected = field.supports_presence() || always.contains(field.name());
            assert_eq!(is_printed, expected, "{name}.{}", field.name());
        }
    }
}

#[test]
fn enums_have_the_numbers_of_the_proto() {
    let values = |name: &str| -> Vec<(String, i32)> {
        let of = pool().get_enum_by_name(&format!("{PACKAGE}.{name}")).unwrap();
        of.values().map(|value| (value.name().to_owned(), value.number())).collect()
    };
    let states: Vec<_> = a2a::TaskState::ALL.iter().map(|state| (state.as_str().to_owned(), state.number())).collect();
    assert_eq!(values("TaskState"), states);
    let roles: Vec<_> = a2a::Role::ALL.iter().map(|role| (role.as_str().to_owned(), role.number())).collect();
    assert_eq!(values("Role"), roles);
}

#[test]
fn methods_are_those_of_the_service() {
    let service = pool().get_service_by_name(&format!("{PACKAGE}.A2AService")).unwrap();
    assert_eq!(service.methods().len(), a2a::Method::ALL.len());
    for rpc in service.methods() {
        let method = a2a::Method::from_name(rpc.name()).expect("the method is one of ours");
        assert_eq!(method.is_streaming(), rpc.is_server_streaming(), "{method}");
    }
}

/// One line for each fact, in the form that descriptor.py prints.
fn facts() -> Vec<String> {
    let set = descriptor_set();
    let file = set.file.iter().find(|file| file.package() == PACKAGE).expect("our file is in the set");
    let mut lines = Vec::new();
    for of in &file.message_type {
        message_facts(of.name(), of, &mut lines);
    }
    for of in &file.enum_type {
        for value in &of.value {
            lines.push(format!("enum {} {} {}", of.name(), value.name(), value.number()));
        }
    }
    for service in &file.service {
        for rpc in &service.method {
            let streams = |on: bool| if on { "stream" } else { "unary" };
            lines.push(format!(
                "rpc {}.{} {} {} {} {}",
                service.name(),
                rpc.name(),
                streams(rpc.client_streaming()),
                rpc.input_type(),
                streams(rpc.server_streaming()),
                rpc.output_type()
            ));
        }
    }
    for name in NAMES {
        for field in always_printed(&message(name)) {
            lines.push(format!("required {name}.{field}"));
        }
    }
    lines.sort();
    lines
}

fn message_facts(path: &str, of: &DescriptorProto, lines: &mut Vec<String>) {
    lines.push(format!("message {path}"));
    for field in &of.field {
        lines.push(format!(
            "field {path}.{} {} {} {} {}",
            field.name(),
            field.number(),
            type_name(field),
            if field.label() == Label::Repeated { "repeated" } else { "singular" },
            presence(of, field)
        ));
    }
    for nested in &of.nested_type {
        message_facts(&format!("{path}.{}", nested.name()), nested, lines);
    }
}

fn type_name(field: &FieldDescriptorProto) -> String {
    match field.r#type() {
        Type::Message | Type::Enum => field.type_name().to_owned(),
        scalar => scalar.as_str_name().trim_start_matches("TYPE_").to_lowercase(),
    }
}

fn presence(of: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    match field.oneof_index {
        _ if field.proto3_optional() => "optional".to_owned(),
        Some(index) => format!("oneof:{}", of.oneof_decl[usize::try_from(index).expect("an index")].name()),
        None => "plain".to_owned(),
    }
}

#[test]
fn descriptor_is_that_of_the_official_package() {
    let Some(python) = std::env::var_os("SB_PYTHON") else {
        assert!(std::env::var_os("CI").is_none(), "SB_PYTHON must name a Python that has a2a-sdk installed");
        eprintln!("not run: SB_PYTHON does not name a Python that has a2a-sdk installed");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("facts.txt");
    std::fs::write(&file, facts().join("\n") + "\n").unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/descriptor.py");
    let output = Command::new(python).arg(script).arg("--compare").arg(&file).output().expect("python runs");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_difference_is_found() {
    let Some(python) = std::env::var_os("SB_PYTHON") else {
        assert!(std::env::var_os("CI").is_none(), "SB_PYTHON must name a Python that has a2a-sdk installed");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("facts.txt");
    let mut lines = facts();
    let removed = lines.remove(lines.len() / 2);
    std::fs::write(&file, lines.join("\n") + "\n").unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/descriptor.py");
    let output = Command::new(python).arg(script).arg("--compare").arg(&file).output().expect("python runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains(&format!("+{removed}")));
}
