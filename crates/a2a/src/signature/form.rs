//! The canonical forms of a card: what a signature is over.
//!
//! The specification (8.4.1) leaves room, and signers use it. What a card says can be lost between two forms, so each form
//! knows what of the card it does not cover.

use std::fmt;

use serde::Serialize;

use super::canonical::{Malformed, Node, Spelling};
use crate::{AgentCard, v03};

/// Which canonical form of a card a signature is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// The specification's text: the fields of 1.0, each present or absent as the proto says, in RFC 8785.
    Spec,
    /// Everything that was received but the signatures, in RFC 8785.
    Plain,
    /// As the official SDKs do it: the form of the specification without empty strings, lists and objects and without null.
    Sdk,
    /// As the official Python SDK did it before 1.2: the same, with what is not ASCII escaped, members in the order of code points.
    SdkEscaped,
    /// As the official JavaScript SDK does it with a card that it has parsed itself: security schemes are lost on the way.
    SdkParsed,
    /// As the official Python SDK of the 0.3 line does it: the fields of 0.3 that are not empty and not their default.
    Sdk03,
}

/// One form of one card.
pub(super) struct Canonical {
    pub(super) form: Form,
    /// What the signature is over.
    pub(super) payload: String,
    pub(super) content: Node,
}

/// A card in all of its forms, each payload once: where two forms agree the first of them stands for both.
pub(super) struct Forms {
    plain: Node,
    pub(super) list: Vec<Canonical>,
}

impl Form {
    /// Its name, as people and programs read it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spec => "spec",
            Self::Plain => "plain",
            Self::Sdk => "sdk",
            Self::SdkEscaped => "sdk-escaped",
            Self::SdkParsed => "sdk-parsed",
            Self::Sdk03 => "sdk-0.3",
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Forms {
    /// Every form that somebody may verify: for signing.
    pub(super) fn to_sign(card: &[u8]) -> Result<Self, Malformed> {
        Self::of(card, true)
    }

    /// The forms that cover what a reader takes from the card. One that lists `supportedInterfaces` is read as 1.0, so that a
    /// signature over its 0.3 fields says nothing about it.
    pub(super) fn to_verify(card: &[u8]) -> Result<Self, Malformed> {
        Self::of(card, false)
    }

    fn of(card: &[u8], all: bool) -> Result<Self, Malformed> {
        let text = std::str::from_utf8(card).map_err(|_| Malformed("it is not UTF-8".to_owned()))?;
        let mut plain = Node::read(text)?;
        if !matches!(plain, Node::Object(_)) {
            return Err(Malformed("it is not an object".to_owned()));
        }
        plain.remove("signatures");
        let is_new = plain.get("supportedInterfaces").or_else(|| plain.get("supported_interfaces")).is_some();
        let is_old = plain.get("url").is_some();

        let mut forms = Self { plain: plain.clone(), list: Vec::new() };
        if is_new {
            let spec = spec(card)?;
            let sdk = cleaned(&spec).unwrap_or(Node::Object(Vec::new()));
            let mut parsed = sdk.clone();
            parsed.remove("securitySchemes");
            forms.add(Form::Spec, spec, Spelling::Jcs);
            forms.add(Form::Plain, plain, Spelling::Jcs);
            forms.add(Form::Sdk, sdk.clone(), Spelling::Jcs);
            forms.add(Form::SdkEscaped, sdk, Spelling::Ascii);
            forms.add(Form::SdkParsed, parsed, Spelling::Jcs);
        } else {
            forms.add(Form::Plain, plain, Spelling::Jcs);
        }
        if is_old && (all || !is_new) {
            forms.add(Form::Sdk03, old(card)?, Spelling::Ascii);
        }
        Ok(forms)
    }

    fn add(&mut self, form: Form, content: Node, spelling: Spelling) {
        let payload = content.write(spelling);
        if self.list.iter().all(|known| known.payload != payload) {
            self.list.push(Canonical { form, payload, content });
        }
    }

    /// The places of the card that a form says nothing about.
    pub(super) fn uncovered(&self, by: &Canonical) -> Vec<String> {
        let mut places = Vec::new();
        compare("", &self.plain, &by.content, &mut places);
        places
    }
}

/// What is in `whole` and is not the same in `part`, by the shortest path that says it.
fn compare(path: &str, whole: &Node, part: &Node, places: &mut Vec<String>) {
    match (whole, part) {
        (Node::Object(members), Node::Object(_)) => {
            for (name, value) in members {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match part.get(name) {
                    Some(covered) => compare(&path, value, covered, places),
                    None => places.push(path),
                }
            }
        }
        (Node::List(elements), Node::List(covered)) if elements.len() == covered.len() => {
            for (index, (element, covered)) in elements.iter().zip(covered).enumerate() {
                compare(&format!("{path}[{index}]"), element, covered, places);
            }
        }
        _ if whole == part => {}
        _ => places.push(path.to_owned()),
    }
}

/// The types of this crate are printed by the rules of the proto, and drop what they do not know.
fn spec(card: &[u8]) -> Result<Node, Malformed> {
    let mut card: AgentCard = crate::decode(card).map_err(|error| Malformed(error.message))?;
    card.signatures.clear();
    written(&card)
}

fn old(card: &[u8]) -> Result<Node, Malformed> {
    let mut card: v03::AgentCard = crate::decode(card).map_err(|error| Malformed(error.message))?;
    card.signatures.clear();
    // What is the default there is not in the form.
    if card.protocol_version == v03::PROTOCOL_VERSION {
        card.protocol_version.clear();
    }
    if card.preferred_transport == "JSONRPC" {
        card.preferred_transport.clear();
    }
    for scheme in card.security_schemes.values_mut() {
        scheme.scheme_type.clear();
    }
    Ok(cleaned(&written(&card)?).unwrap_or(Node::Object(Vec::new())))
}

fn written(card: &impl Serialize) -> Result<Node, Malformed> {
    Node::read(&serde_json::to_string(card)?)
}

/// Without empty strings, lists and objects and without null, at every depth; nothing when nothing is left.
fn cleaned(node: &Node) -> Option<Node> {
    match node {
        Node::Null => None,
        Node::Text(text) if text.is_empty() => None,
        Node::List(elements) => {
            let left: Vec<Node> = elements.iter().filter_map(cleaned).collect();
            (!left.is_empty()).then_some(Node::List(left))
        }
        Node::Object(members) => {
            let left: Vec<(String, Node)> =
                members.iter().filter_map(|(name, value)| Some((name.clone(), cleaned(value)?))).collect();
            (!left.is_empty()).then_some(Node::Object(left))
        }
        other => Some(other.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(card: &str, form: Form) -> String {
        let forms = Forms::to_sign(card.as_bytes()).unwrap();
        let found = forms.list.iter().find(|canonical| canonical.form == form);
        found.unwrap_or_else(|| panic!("{form} is one of its own")).payload.clone()
    }

    /// The example of section 8.4.1, with the required fields that it leaves out.
    #[test]
    fn the_example_of_the_specification_comes_out() {
        let card = r#"{"supportedInterfaces":[],"name":"Example Agent","description":"",
            "capabilities":{"streaming":false,"pushNotifications":false,"extensions":[]},"skills":[]}"#;
        assert_eq!(
            payload(card, Form::Spec),
            r#"{"capabilities":{"pushNotifications":false,"streaming":false},"defaultInputModes":[],"defaultOutputModes":[],"description":"","name":"Example Agent","skills":[],"supportedInterfaces":[],"version":""}"#
        );
        assert_eq!(
            payload(card, Form::Sdk),
            r#"{"capabilities":{"pushNotifications":false,"streaming":false},"name":"Example Agent"}"#
        );
    }

    #[test]
    fn forms_that_agree_are_one() {
        let card = r#"{"supportedInterfaces":[{"url":"u","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"name":"n",
            "description":"d","version":"1","capabilities":{"streaming":true},"defaultInputModes":["a/b"],"defaultOutputModes":["a/b"],
            "skills":[{"id":"s","name":"s","description":"s","tags":["t"]}]}"#;
        let names = |card: &str| -> Vec<Form> {
            Forms::to_sign(card.as_bytes()).unwrap().list.iter().map(|canonical| canonical.form).collect()
        };
        assert_eq!(names(card), [Form::Spec]);
        assert_eq!(names(&card.replace("\"d\"", "\"dé\"")), [Form::Spec, Form::SdkEscaped]);
        let scheme = r#","securitySchemes":{"k":{"apiKeySecurityScheme":{"location":"header","name":"x"}}}}"#;
        let secured = format!("{}{scheme}", card.strip_suffix('}').unwrap());
        assert_eq!(names(&secured), [Form::Spec, Form::SdkParsed]);
        let required = secured.replace(r#""skills""#, r#""securityRequirements":[{"schemes":{"k":{}}}],"skills""#);
        assert_eq!(names(&required), [Form::Spec, Form::Sdk, Form::SdkParsed]);
        let old = required.replace(r#""name":"n""#, r#""name":"n","url":"u""#);
        assert_eq!(names(&old), [Form::Spec, Form::Plain, Form::Sdk, Form::SdkParsed, Form::Sdk03]);
        let to_verify = Forms::to_verify(old.as_bytes()).unwrap();
        assert!(to_verify.list.iter().all(|canonical| canonical.form != Form::Sdk03), "the card is read as 1.0");
    }

    #[test]
    fn a_form_says_what_it_does_not_cover() {
        let card = r#"{"supportedInterfaces":[{"url":"u","protocolBinding":"JSONRPC","protocolVersion":"1.0","more":1}],
            "name":"n","url":"u","securityRequirements":[{"schemes":{"k":{}}}]}"#;
        let forms = Forms::to_verify(card.as_bytes()).unwrap();
        let uncovered = |form: Form| forms.uncovered(forms.list.iter().find(|one| one.form == form).unwrap());
        assert_eq!(uncovered(Form::Plain), [""; 0]);
        assert_eq!(uncovered(Form::Spec), ["supportedInterfaces[0].more", "url"]);
        assert_eq!(uncovered(Form::Sdk), ["supportedInterfaces[0].more", "url", "securityRequirements"]);
    }

    #[test]
    fn a_card_of_0_3_has_the_forms_of_0_3() {
        let card = r#"{"protocolVersion":"0.3.0","name":"é","description":"","url":"http://h","preferredTransport":"JSONRPC","version":"1",
            "capabilities":{},"securitySchemes":{"b":{"type":"http","scheme":"bearer"}},"defaultInputModes":[],"defaultOutputModes":[],"skills":[]}"#;
        assert_eq!(
            payload(card, Form::Sdk03),
            r#"{"name":"\u00e9","securitySchemes":{"b":{"scheme":"bearer"}},"url":"http://h","version":"1"}"#
        );
        assert!(payload(card, Form::Plain).contains(r#""preferredTransport":"JSONRPC""#));
    }

    #[test]
    fn what_is_no_card_has_no_form() {
        for text in ["", "[]", "1", "{", r#"{"name":"a","name":"b"}"#, r#"{"supportedInterfaces":1}"#] {
            assert!(Forms::to_verify(text.as_bytes()).is_err(), "{text}");
        }
        assert!(Forms::to_verify(b"\xff").is_err());
    }
}
