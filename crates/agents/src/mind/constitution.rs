//! What makes an agent of a model: who it is, what it is for, what it may do. It comes as JSON through the API, or as the table `[llm]` of
//! an agent file.

use serde::{Deserialize, Deserializer, de::IgnoredAny};

use super::writ::VERBS;
use crate::{frame::clean, units::nearest};

/// How long a text of it may be, how many things a list may have, and how long each of these.
const LONGEST_TEXT: usize = 32 << 10;
const MOST_ITEMS: usize = 200;
const LONGEST_ITEM: usize = 4 << 10;
/// The most that may be asked for in one reply.
const MOST_TOKENS: u32 = 1_000_000;

/// A constitution. Nothing of it has to be there.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Constitution {
    /// Which agent it is, where that is not said elsewhere.
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) role: String,
    pub(crate) personality: String,
    pub(crate) goal: String,
    /// Whom it thinks with; the default model where it is empty.
    pub(crate) model: String,
    pub(crate) brevity: Brevity,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) temperature: Option<f64>,
    pub(crate) mode: Mode,
    pub(crate) channel: Option<Channel>,
    pub(crate) rules: Vec<String>,
    /// The commands that it may use; all of them where none is named.
    pub(crate) capabilities: Vec<String>,
    event_types: Vec<String>,
    advisor: Option<Advisor>,
    advisor_model: String,
    memory: Option<Memory>,
    intent: Option<Intent>,
    /// The server's own words, which come back when somebody changes what was read.
    created_at: Ignored,
    updated_at: Ignored,
}

/// How long it speaks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Brevity {
    Lite,
    #[default]
    Full,
    Ultra,
}

/// How it speaks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    #[default]
    #[serde(alias = "")]
    Standard,
    Conversational,
    Spoken,
    Writer,
    Planner,
}

/// By what it is heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Channel {
    Text,
    Voice,
}

/// Who looks over its shoulder. Nobody does yet: what is said of it is checked and kept.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
enum Advisor {
    Model(String),
    Whole(AdvisorTable),
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct AdvisorTable {
    model: String,
    prompt: String,
    mode: AdvisorMode,
    max_redirects: Option<u32>,
    malformed_halts: Option<bool>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AdvisorMode {
    Off,
    #[default]
    Consult,
    Gate,
}

/// How it remembers. It has no such memory yet: what is said of it is checked and kept.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Memory {
    search_expand: bool,
    auto_tag: bool,
    auto_supersede: bool,
    intent_routing: Option<bool>,
    age_decay: Option<bool>,
    age_half_life_days: Option<f64>,
    age_floor: Option<f64>,
}

/// How requests are routed before it sees them. Nothing is yet: what is said of it is checked and kept.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Intent {
    mode: Option<IntentMode>,
    min_confidence: Option<f64>,
    apply_routing: Option<bool>,
    model: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum IntentMode {
    Off,
    Heuristic,
    Hybrid,
    Llm,
}

/// Something that says nothing here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Ignored;

impl<'de> Deserialize<'de> for Ignored {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// What is wrong with a constitution, and with which field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// The field; empty when it is all of it.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

impl Constitution {
    /// Reads the JSON of one.
    pub fn parse(json: &[u8]) -> Result<Self, Wrong> {
        // A list of values in order would pass for one.
        if json.trim_ascii_start().first() != Some(&b'{') {
            return Err(Wrong { field: String::new(), problem: "must be a JSON object".to_owned() });
        }
        let mut reader = serde_json::Deserializer::from_slice(json);
        let read = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let path = error.path().to_string();
            let field = if path == "." { String::new() } else { path };
            let text = error.inner().to_string();
            let problem = text.split(" at line ").next().unwrap_or_default().to_owned();
            // The words of serde: "unknown field `a`, expected one of `b`, `c`".
            let mut names = problem.split('`').skip(1).step_by(2);
            let problem = if problem.starts_with("unknown ") {
                let wrong = names.next().unwrap_or_default();
                let known: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
                let meant = nearest(wrong, &known).map_or_else(String::new, |name| format!(" did you mean `{name}`?"));
                format!("`{wrong}` is not known;{meant} there are: {}", known.join(", "))
            } else if problem.starts_with("data did not match any variant") {
                "is neither a model's name nor an advisor with `model`, `prompt`, `mode`, `max_redirects`, `malformed_halts`"
                    .to_owned()
            } else {
                problem
            };
            Wrong { field, problem }
        })?;
        reader.end().map_err(|_| Wrong { field: String::new(), problem: "has something behind its end".to_owned() })?;
        Ok(read)
    }

    /// Says what is wrong with it, if anything is.
    pub fn check(&self) -> Result<(), Wrong> {
        let wrong = |field: &str, problem: String| Err(Wrong { field: field.to_owned(), problem });
        let texts = [
            ("name", &self.name, 200),
            ("role", &self.role, LONGEST_TEXT),
            ("personality", &self.personality, LONGEST_TEXT),
            ("goal", &self.goal, LONGEST_TEXT),
            ("model", &self.model, 200),
            ("advisor_model", &self.advisor_model, 200),
        ];
        for (field, text, longest) in texts {
            if text.len() > longest {
                return wrong(field, format!("must have at most {longest} bytes"));
            }
        }
        if self.model.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return wrong("model", "must be a name such as `anthropic/claude-sonnet-4-5`, without spaces".to_owned());
        }
        for (field, list) in
            [("rules", &self.rules), ("capabilities", &self.capabilities), ("event_types", &self.event_types)]
        {
            if list.len() > MOST_ITEMS {
                return wrong(field, format!("must have at most {MOST_ITEMS} items"));
            }
            if let Some(at) = list.iter().position(|item| item.trim().is_empty() || item.len() > LONGEST_ITEM) {
                return wrong(&format!("{field}[{at}]"), format!("must be a text of 1 to {LONGEST_ITEM} bytes"));
            }
        }
        let known: Vec<&str> = VERBS.iter().map(|verb| verb.name).collect();
        if let Some(at) = self.capabilities.iter().position(|capability| !known.contains(&capability.as_str())) {
            let given = &self.capabilities[at];
            let meant = nearest(given, &known).map_or_else(String::new, |name| format!(" did you mean `{name}`?"));
            return wrong(
                &format!("capabilities[{at}]"),
                format!("`{given}` is no command;{meant} there are: {}", known.join(", ")),
            );
        }
        if self.max_tokens.is_some_and(|tokens| !(1..=MOST_TOKENS).contains(&tokens)) {
            return wrong("max_tokens", format!("must be from 1 to {MOST_TOKENS}"));
        }
        if self.temperature.is_some_and(|temperature| !(0.0..=2.0).contains(&temperature)) {
            return wrong("temperature", "must be from 0 to 2".to_owned());
        }
        Ok(())
    }

    /// One that speaks as in a conversation.
    pub(crate) fn conversational() -> Self {
        Self { mode: Mode::Conversational, brevity: Brevity::Lite, ..Self::default() }
    }

    /// Whether it is there to hand work on: it says so.
    pub(crate) fn delegates(&self) -> bool {
        self.capabilities.iter().any(|name| matches!(name.as_str(), "/agent" | "/parallel" | "/a2a"))
    }

    /// Whether it may use a command of this bundle.
    pub(crate) fn grants(&self, bundle: &str) -> bool {
        let of_bundle = |name: &String| VERBS.iter().any(|verb| verb.bundle == bundle && verb.name == name);
        bundle.is_empty() || self.capabilities.is_empty() || self.capabilities.iter().any(of_bundle)
    }

    /// What other agents are told of it: `[role] model — goal`, behind its name if it has one of its own.
    pub(crate) fn introduction(&self, id: &str) -> String {
        let mut words = Vec::new();
        if !self.name.is_empty() && self.name != id {
            words.push(format!("({})", clean(&self.name)));
        }
        if !self.role.is_empty() {
            words.push(format!("[{}]", clean(&self.role)));
        }
        let model = self.model.rsplit('/').next().unwrap_or_default();
        let model = model.strip_prefix("claude-").unwrap_or(model);
        if !model.is_empty() {
            words.push(model.to_owned());
        }
        if !self.goal.is_empty() {
            words.push(format!("— {}", clean(&self.goal)));
        }
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(json: &str) -> String {
        let wrong = Constitution::parse(json.as_bytes()).and_then(|it| it.check()).unwrap_err();
        format!("{}: {}", wrong.field, wrong.problem)
    }

    #[test]
    fn every_field_is_read() {
        let json = r#"{"id":"researcher","name":"R","role":"analyst","personality":"dry","goal":"extract","model":"anthropic/claude-sonnet-4-6",
            "brevity":"ultra","max_tokens":1024,"temperature":0.3,"mode":"conversational","channel":"voice","rules":["be brief"],
            "capabilities":["/fetch","/mem"],"event_types":["sensor.*"],
            "advisor":{"model":"m","prompt":"p","mode":"gate","max_redirects":2,"malformed_halts":true},"advisor_model":"old",
            "memory":{"search_expand":false,"auto_tag":true,"auto_supersede":false,"intent_routing":true,"age_decay":true,"age_half_life_days":90,"age_floor":0.5},
            "intent":{"mode":"hybrid","min_confidence":0.8,"apply_routing":true,"model":""},"created_at":1,"updated_at":"x"}"#;
        let read = Constitution::parse(json.as_bytes()).unwrap();
        read.check().unwrap();
        assert_eq!(read.introduction("researcher"), "(R) [analyst] sonnet-4-6 — extract");
        assert!(read.grants("web") && read.grants("mem") && read.grants("") && !read.grants("delegation"));
        let empty = Constitution::parse(br#"{"advisor":"model-id","mode":""}"#).unwrap();
        empty.check().unwrap();
        assert!(empty.grants("delegation"), "who names nothing may do everything");
        assert_eq!(empty.introduction("x"), "");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_field() {
        for (json, said) in [
            (r#"{"temprature":1}"#, "`temprature` is not known; did you mean `temperature`?"),
            (r#"{"temperature":99}"#, "temperature: must be from 0 to 2"),
            (r#"{"max_tokens":0}"#, "max_tokens: must be from 1 to 1000000"),
            (r#"{"max_tokens":"many"}"#, "max_tokens: invalid type: string"),
            (r#"{"capabilities":["research"]}"#, "capabilities[0]: `research` is no command;"),
            (
                r#"{"capabilities":["/agent","/serch"]}"#,
                "capabilities[1]: `/serch` is no command; did you mean `/search`?",
            ),
            (r#"{"brevity":"short"}"#, "brevity: `short` is not known; there are: lite, full, ultra"),
            (r#"{"advisor":{"modle":"x"}}"#, "advisor: is neither a model's name nor an advisor"),
            (r#"{"rules":[""]}"#, "rules[0]: must be a text"),
            (r#"{"model":"a b"}"#, "model: must be a name"),
            (r#"{} {}"#, ": has something behind its end"),
            (r#"[]"#, ": must be a JSON object"),
        ] {
            let problem = problem(json);
            assert!(problem.contains(said), "{json}: {problem}");
        }
    }
}
