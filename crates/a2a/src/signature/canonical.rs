//! JSON in one spelling: RFC 8785 (JCS), and the older one of Python's `json.dumps`.
//!
//! Text is read here and not by way of [`serde_json::Value`], for three things that a signature depends on: a member that
//! appears twice is refused instead of one of the two being picked, numbers are the nearest double and not one beside it,
//! and nesting has a bound.

use std::collections::HashSet;
use std::fmt::{self, Write};

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::excerpt;

/// The deepest nesting that has a canonical form; the official Python SDK has the same bound.
const MAX_DEPTH: usize = 128;

/// A JSON value, its members in the order in which they came.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

/// Why something has no canonical form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed(pub(super) String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Malformed {}

impl From<serde_json::Error> for Malformed {
    fn from(error: serde_json::Error) -> Self {
        Self(excerpt(&error.to_string()))
    }
}

/// How text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// RFC 8785: UTF-8, members in the order of UTF-16 code units.
    Jcs,
    /// `json.dumps(…, sort_keys=True)`: ASCII, members in the order of code points. Numbers are written as in RFC 8785, which is
    /// the same for integers and for decimals of ordinary size.
    Ascii,
}

/// The members of an object, as they came.
pub(super) struct Members<'a>(pub(super) Vec<(String, &'a RawValue)>);

impl Node {
    pub(super) fn read(text: &str) -> Result<Self, Malformed> {
        Self::read_at(text, 1)
    }

    fn read_at(text: &str, depth: usize) -> Result<Self, Malformed> {
        let text = text.trim_ascii();
        let is_container = text.starts_with(['{', '[']);
        if is_container && depth > MAX_DEPTH {
            return Err(Malformed(format!("it is nested deeper than {MAX_DEPTH} levels")));
        }
        if text.starts_with('{') {
            let Members(members) = serde_json::from_str(text)?;
            let read = |(name, value): (String, &RawValue)| Ok((name, Self::read_at(value.get(), depth + 1)?));
            return Ok(Self::Object(members.into_iter().map(read).collect::<Result<_, Malformed>>()?));
        }
        if text.starts_with('[') {
            let elements: Vec<&RawValue> = serde_json::from_str(text)?;
            let read = |element: &RawValue| Self::read_at(element.get(), depth + 1);
            return Ok(Self::List(elements.into_iter().map(read).collect::<Result<_, Malformed>>()?));
        }
        if text.starts_with('"') {
            return Ok(Self::Text(serde_json::from_str(text)?));
        }
        match text {
            "null" => Ok(Self::Null),
            "true" => Ok(Self::Bool(true)),
            "false" => Ok(Self::Bool(false)),
            _ => number(text),
        }
    }

    /// The member of an object.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(members) = self else { return None };
        members.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Takes a member out of an object.
    pub(super) fn remove(&mut self, name: &str) -> Option<Self> {
        let Self::Object(members) = self else { return None };
        let at = members.iter().position(|(known, _)| known == name)?;
        Some(members.remove(at).1)
    }

    pub(super) fn write(&self, spelling: Spelling) -> String {
        let mut out = String::new();
        self.write_to(&mut out, spelling);
        out
    }

    fn write_to(&self, out: &mut String, spelling: Spelling) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(value) => write_number(out, *value),
            Self::Text(text) => write_text(out, text, spelling),
            Self::List(elements) => {
                out.push('[');
                for (index, element) in elements.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    element.write_to(out, spelling);
                }
                out.push(']');
            }
            Self::Object(members) => {
                let mut sorted: Vec<&(String, Self)> = members.iter().collect();
                match spelling {
                    Spelling::Jcs => {
                        sorted.sort_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()))
                    }
                    Spelling::Ascii => sorted.sort_by(|(one, _), (other, _)| one.cmp(other)),
                }
                out.push('{');
                for (index, (name, value)) in sorted.into_iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write_text(out, name, spelling);
                    out.push(':');
                    value.write_to(out, spelling);
                }
                out.push('}');
            }
        }
    }
}

fn number(text: &str) -> Result<Node, Malformed> {
    // The grammar is JSON's, the value is that of the standard library, which is exact.
    let grammatical: &RawValue = serde_json::from_str(text)?;
    match grammatical.get().parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(Node::Number(value)),
        _ => Err(Malformed(format!("{} is not a number that a double can hold", excerpt(text)))),
    }
}

/// As `Number::toString` of ECMAScript: the shortest digits that read back as the same double.
fn write_number(out: &mut String, value: f64) {
    if value == 0.0 {
        out.push('0');
        return;
    }
    if value < 0.0 {
        out.push('-');
    }
    // The standard library rounds a tie upwards where ECMAScript wants the even digit; the writer of serde_json does as it does.
    let written = serde_json::to_string(&value.abs()).unwrap_or_default();
    let (mantissa, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('0');
    let leading = length(&all) - length(digits);
    let digits = digits.trim_end_matches('0');
    let count = length(digits);
    // The place of the decimal point, counted from the first digit: `n` of ECMA-262.
    let point = exponent.parse::<i32>().unwrap_or(0) + length(whole) - leading;
    let zeros = |number: i32| "0".repeat(usize::try_from(number).unwrap_or(0));
    match point {
        _ if count <= point && point <= 21 => {
            out.push_str(digits);
            out.push_str(&zeros(point - count));
        }
        1..=21 => {
            let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or(0));
            out.push_str(whole);
            out.push('.');
            out.push_str(fraction);
        }
        -5..=0 => {
            out.push_str("0.");
            out.push_str(&zeros(-point));
            out.push_str(digits);
        }
        _ => {
            let (first, rest) = digits.split_at(1);
            out.push_str(first);
            if !rest.is_empty() {
                out.push('.');
                out.push_str(rest);
            }
            out.push('e');
            out.push(if point > 0 { '+' } else { '-' });
            out.push_str(&(point - 1).unsigned_abs().to_string());
        }
    }
}

fn length(text: &str) -> i32 {
    i32::try_from(text.len()).unwrap_or(i32::MAX)
}

fn write_text(out: &mut String, text: &str, spelling: Spelling) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if character < ' ' => escape(out, character),
            _ if spelling == Spelling::Ascii && character > '~' => escape(out, character),
            _ => out.push(character),
        }
    }
    out.push('"');
}

fn escape(out: &mut String, character: char) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        // Writing to a string does not fail.
        let _ = write!(out, "\\u{unit:04x}");
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut names = HashSet::new();
                let mut members = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
                    if !names.insert(name.clone()) {
                        return Err(de::Error::custom(format_args!("the member `{}` appears twice", excerpt(&name))));
                    }
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn jcs(text: &str) -> String {
        Node::read(text).unwrap().write(Spelling::Jcs)
    }

    /// Appendix B of RFC 8785.
    #[test]
    fn numbers_are_written_as_the_rfc_lists_them() {
        for (bits, text) in [
            (0x0000_0000_0000_0000, "0"),
            (0x8000_0000_0000_0000, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0x8000_0000_0000_0001, "-5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0xc340_0000_0000_0000, "-9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0x41b3_de43_5555_5554, "333333333.33333325"),
            (0x41b3_de43_5555_5555, "333333333.3333333"),
            (0x41b3_de43_5555_5556, "333333333.3333334"),
            (0x41b3_de43_5555_5557, "333333333.33333343"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
            (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
        ] {
            let mut out = String::new();
            write_number(&mut out, f64::from_bits(bits));
            assert_eq!(out, text);
        }
    }

    /// The examples of RFC 8785, sections 3.2.2 and 3.2.3.
    #[test]
    fn the_examples_of_the_rfc_come_out() {
        assert_eq!(
            jcs(r#"{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
                "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}"#),
            "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\
             \"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}"
        );
        let sorted = jcs(r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh",
            "1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#);
        let order: Vec<usize> = ["Carriage", "One", "Control", "Latin", "Euro", "Emoji", "Hebrew"]
            .iter()
            .map(|name| sorted.find(name).unwrap())
            .collect();
        assert!(order.is_sorted(), "{sorted}");
    }

    #[test]
    fn the_older_spelling_of_python_escapes_and_sorts_by_code_point() {
        let node = Node::read(r#"{"\ufb33":1,"\ud83d\ude00":"é\u007f\n"}"#).unwrap();
        assert_eq!(node.write(Spelling::Ascii), r#"{"\ufb33":1,"\ud83d\ude00":"\u00e9\u007f\n"}"#);
        assert!(node.write(Spelling::Jcs).starts_with("{\"\u{1f600}\""), "there the order is of UTF-16");
    }

    #[test]
    fn what_is_ambiguous_has_no_canonical_form() {
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(Node::read(&deep(MAX_DEPTH)).is_ok());
        for text in [
            r#"{"a":1,"a":2}"#,
            r#"[{"a":{"b":1,"\u0062":1}}]"#,
            "1e999",
            "01",
            "nul",
            "",
            "{} {}",
            "NaN",
            "+1",
            "\"\\ud800\"",
        ] {
            assert!(Node::read(text).is_err(), "{text}");
        }
        assert!(Node::read(&deep(MAX_DEPTH + 1)).is_err());
        assert!(Node::read(&deep(100_000)).is_err());
    }

    fn any_node() -> impl Strategy<Value = Node> {
        let leaf = prop_oneof![
            Just(Node::Null),
            any::<bool>().prop_map(Node::Bool),
            any::<f64>()
                .prop_filter("JSON has no others", |value| value.is_finite())
                .prop_map(|v| Node::Number(v + 0.0)),
            any::<String>().prop_map(Node::Text),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Node::List),
                prop::collection::btree_map(any::<String>(), inner, 0..4)
                    .prop_map(|members| Node::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn both_spellings_say_the_same_and_say_it_once(node in any_node()) {
            let text = node.write(Spelling::Jcs);
            let again = Node::read(&text).unwrap();
            prop_assert_eq!(again.write(Spelling::Jcs), text.clone());
            let ascii = node.write(Spelling::Ascii);
            prop_assert!(ascii.is_ascii());
            prop_assert_eq!(Node::read(&ascii).unwrap().write(Spelling::Jcs), text);
        }

        #[test]
        fn numbers_read_back_as_they_were(value in any::<f64>().prop_filter("finite", |v| v.is_finite())) {
            let mut out = String::new();
            write_number(&mut out, value);
            prop_assert_eq!(out.parse::<f64>().unwrap(), value);
            prop_assert_eq!(Node::read(&out).unwrap(), Node::Number(value));
        }
    }
}
