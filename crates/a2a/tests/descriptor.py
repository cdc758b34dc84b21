#!/usr/bin/env python3
"""Prints the facts of the A2A descriptor that the installed a2a-sdk ships, one sorted line each.

With --compare FILE, prints how FILE differs from them and exits with 1 when it does.
"""

import argparse
import difflib
import pathlib
import sys

from a2a.types import a2a_pb2
from google.api import field_behavior_pb2
from google.protobuf import descriptor_pb2

Field = descriptor_pb2.FieldDescriptorProto


def type_name(field):
    if field.type in (Field.TYPE_MESSAGE, Field.TYPE_ENUM):
        return field.type_name
    return Field.Type.Name(field.type).removeprefix("TYPE_").lower()


def presence(message, field):
    if field.proto3_optional:
        return "optional"
    if field.HasField("oneof_index"):
        return f"oneof:{message.oneof_decl[field.oneof_index].name}"
    return "plain"


def message_facts(path, message):
    yield f"message {path}"
    for field in message.field:
        label = "repeated" if field.label == Field.LABEL_REPEATED else "singular"
        yield f"field {path}.{field.name} {field.number} {type_name(field)} {label} {presence(message, field)}"
        if field_behavior_pb2.REQUIRED in field.options.Extensions[field_behavior_pb2.field_behavior]:
            yield f"required {path}.{field.name}"
    for nested in message.nested_type:
        yield from message_facts(f"{path}.{nested.name}", nested)


def facts():
    file = descriptor_pb2.FileDescriptorProto()
    file.ParseFromString(a2a_pb2.DESCRIPTOR.serialized_pb)
    for message in file.message_type:
        yield from message_facts(message.name, message)
    for enum in file.enum_type:
        for value in enum.value:
            yield f"enum {enum.name} {value.name} {value.number}"
    for service in file.service:
        for rpc in service.method:
            sends = "stream" if rpc.client_streaming else "unary"
            answers = "stream" if rpc.server_streaming else "unary"
            yield f"rpc {service.name}.{rpc.name} {sends} {rpc.input_type} {answers} {rpc.output_type}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compare", metavar="FILE", type=pathlib.Path)
    arguments = parser.parse_args()
    official = sorted(facts())
    if arguments.compare is None:
        print("\n".join(official))
        return 0
    ours = sorted(arguments.compare.read_text().splitlines())
    difference = list(difflib.unified_diff(ours, official, "ours", "official", lineterm="", n=0))
    print("\n".join(difference))
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main())
