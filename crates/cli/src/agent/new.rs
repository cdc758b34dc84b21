//! `sb agent new`: a first agent from a few questions, or a program in some language ([`program`]).
//!
//! Every question has a flag. On a terminal what is missing is asked for, and what is wrong is said in the words of the file and asked for
//! again; without one what is missing is named.

use std::{
    io::{self, BufRead, IsTerminal},
    path::PathBuf,
};

use agents::{Reader, file, mind::INDEX, model::Models};
use serde_json::json;
use store::AgentId;

use super::{
    Common, checked_json,
    files::Directory,
    program::{self, Language},
    warn,
};
use crate::{
    failure::Failure,
    output::{self, Format, Style},
};

/// The commands that there are something for here, and what each lets an agent do.
const COMMANDS: [(&str, &str); 4] = [
    ("/agent", "hand work to another agent"),
    ("/parallel", "to several at once"),
    ("/a2a", "call remote agents"),
    ("/write", "give files to whoever asked"),
];
/// Who may use this may use no other one: everybody may.
const NO_COMMAND: &str = "/help";

#[derive(Debug, clap::Args)]
pub(super) struct New {
    /// The agent's id: what it is called by
    #[arg(value_name = "ID")]
    named: Option<String>,
    /// Make a program in this language instead of an agent run by a model: a directory with all that it needs
    #[arg(long, value_name = "LANGUAGE", value_enum, requires = "named",
          conflicts_with_all = ["name", "role", "goal", "model", "capabilities", "replace", "yes"])]
    lang: Option<Language>,
    /// With --lang: where to make it [default: a directory of the agent's id, here]
    #[arg(long, value_name = "DIR", requires = "lang")]
    dir: Option<PathBuf>,
    /// The same as ID
    #[arg(long, value_name = "ID", conflicts_with = "named")]
    id: Option<String>,
    /// Its name, for people [default: the id]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// What it is, in a few words: `research analyst`
    #[arg(long, value_name = "TEXT")]
    role: Option<String>,
    /// What it is there for: `find what was decided, and by whom`
    #[arg(long, value_name = "TEXT")]
    goal: Option<String>,
    /// The model that it thinks with, `PROVIDER/MODEL` [default: the server's default model]
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// A command that it may use, such as `/agent`; may be given again; `none` for no command [default: all]
    #[arg(long = "capability", value_name = "COMMAND", value_delimiter = ',')]
    capabilities: Vec<String>,
    /// Take the place of a file that is there
    #[arg(long)]
    replace: bool,
    /// Ask nothing: what is not given has its default
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    common: Common,
}

/// What is known of the agent so far.
#[derive(Debug, Clone, Default)]
struct Draft {
    id: String,
    name: String,
    role: String,
    goal: String,
    /// Empty for the server's default.
    model: String,
    /// Empty for all.
    capabilities: Vec<String>,
}

pub(super) fn run(args: &mut New) -> Result<(), Failure> {
    if let (Some(language), Some(id)) = (args.lang, &args.named) {
        return program::run(id, language, args.dir.as_deref(), args.common.output);
    }
    args.id = args.id.take().or_else(|| args.named.take());
    let args = &*args;
    let directory = args.common.directory()?;
    let models = args.common.models()?;
    let mut maker = Maker { reader: Reader::default(), models, directory, draft: Draft::default() };
    let asks = !args.yes && io::stdin().is_terminal() && io::stdout().is_terminal();
    let replace = if asks { maker.ask(args)? } else { maker.take(args)? };
    let text = maker.draft.text();
    let Maker { reader, models, directory, draft } = maker;
    let made = directory.create(&reader.with_models(models), &draft.id, &text, replace)?;
    match args.common.output {
        Format::Json => {
            let mut shown = checked_json(&made);
            shown["talk"] = json!(format!("sb chat {}", made.id));
            output::line(&shown.to_string());
        }
        Format::Text => {
            output::line(&format!("made agent {} as {}", made.id, made.path.display()));
            output::line(&format!("talk to it: sb chat {}", made.id));
        }
    }
    warn(&made.id, &made.warnings);
    Ok(())
}

/// Who puts the answers together.
struct Maker {
    reader: Reader,
    models: Models,
    directory: Directory,
    draft: Draft,
}

impl Maker {
    /// From the flags alone.
    fn take(&mut self, args: &New) -> Result<bool, Failure> {
        let needed = [("--id", &args.id), ("--role", &args.role), ("--goal", &args.goal)];
        let missing: Vec<&str> = needed.iter().filter(|(_, given)| given.is_none()).map(|(flag, _)| *flag).collect();
        if !missing.is_empty() {
            return Err(Failure::usage(format!("there is nobody to ask, and these are missing: {}", missing.join(", ")))
                .hint("sb agent new --id notes --role 'note taker' --goal 'keep what was decided'; --model and --capability have defaults"));
        }
        self.draft = Draft {
            id: args.id.clone().unwrap_or_default(),
            name: args.name.clone().unwrap_or_default(),
            role: args.role.clone().unwrap_or_default(),
            goal: args.goal.clone().unwrap_or_default(),
            model: args.model.clone().unwrap_or_default(),
            capabilities: capabilities(&args.capabilities),
        };
        self.check_id(&self.draft.id, args.replace).map_err(|why| Failure::usage("no agent was made").because(why))?;
        self.problem_of(&self.draft).map_err(|why| Failure::usage("no agent was made").because(why))?;
        Ok(args.replace)
    }

    /// From the flags, and what is asked for on the terminal. Says whether a file that is there goes.
    fn ask(&mut self, args: &New) -> Result<bool, Failure> {
        output::line("An agent run by a model, in a few questions. Enter takes what stands in brackets; Ctrl-C ends.");
        let mut replace = args.replace;
        let named = args.name.as_deref().map(slug).filter(|id| !id.is_empty());
        self.draft.id = answer(args.id.as_deref(), "id, which it is called by", named.as_deref(), |id| {
            if id.is_empty() {
                return Err("an agent needs an id, such as `notes`".to_owned());
            }
            match self.check_id(id, true) {
                Ok(()) if !replace && self.directory.path(id).exists() => {
                    let question = format!("there is an agent file `{id}.toml` already; replace it?");
                    replace = confirm(&question, false).map_err(|failure| failure.error)?;
                    if replace { Ok(()) } else { Err("choose another id".to_owned()) }
                }
                checked => checked,
            }
        })?;
        let id = self.draft.id.clone();
        // Who names only the id wants no more of it.
        if args.name.is_some() || args.id.is_none() {
            self.answer(args.name.as_deref(), "name, for people", Some(&id), |draft, name| {
                draft.name = if name == id { String::new() } else { name };
            })?;
        }
        self.answer(args.role.as_deref(), "role: what it is, in a few words", Some("assistant"), |draft, role| {
            draft.role = role;
        })?;
        self.answer(args.goal.as_deref(), "goal: what it is there for", None, |draft, goal| draft.goal = goal)?;
        let default = self.models.default_model();
        if args.model.is_none() && default.is_none() {
            output::aside("no model is set for the server yet; `sb doctor` says how to set one");
        }
        let shown = default.as_deref().unwrap_or("the server's default");
        self.answer(args.model.as_deref(), "model", Some(shown), |draft, model| {
            draft.model = if model == shown { String::new() } else { model };
        })?;
        if args.capabilities.is_empty() {
            for (command, does) in COMMANDS {
                output::aside(&format!("{command:<9}  {does}"));
            }
        }
        let given = (!args.capabilities.is_empty()).then(|| args.capabilities.join(" "));
        self.answer(given.as_deref(), "commands that it may use, or `none`", Some("all"), |draft, words| {
            draft.capabilities = capabilities(&[words]);
        })?;
        output::line("");
        output::print(&self.draft.text());
        output::line("");
        let path = self.directory.path(&id);
        if !confirm(&format!("write this to {}?", path.display()), true)? {
            return Err(Failure::failed("no agent was made"));
        }
        Ok(replace)
    }

    /// An answer that the file can have, put where it belongs. What is given by a flag is not asked for.
    fn answer(
        &mut self,
        given: Option<&str>,
        question: &str,
        default: Option<&str>,
        put: impl Fn(&mut Draft, String),
    ) -> Result<(), Failure> {
        let mut draft = self.draft.clone();
        let text = answer(given, question, default, |text| {
            put(&mut draft, text.to_owned());
            self.problem_of(&draft)
        })?;
        put(&mut self.draft, text);
        Ok(())
    }

    fn check_id(&self, id: &str, replace: bool) -> Result<(), String> {
        if id == INDEX {
            return Err(format!("`{INDEX}` is built in: it hands work to all others"));
        }
        // A path of several parts would have the last one's id.
        id.parse::<AgentId>().map_err(|why| format!("`{id}` is not an agent id: {why}"))?;
        if !replace && self.directory.path(id).exists() {
            let path = self.directory.path(id);
            return Err(format!(
                "there is an agent file `{}` already; --replace puts the new one in its place",
                path.display()
            ));
        }
        Ok(())
    }

    /// Whether the server would take it, in the words that it would use.
    fn problem_of(&self, draft: &Draft) -> Result<(), String> {
        let read = self.reader.parse(&self.directory.path(&draft.id), &draft.text());
        read.map(drop).map_err(|error| problem(&error))
    }
}

fn problem(error: &file::Error) -> String {
    match error {
        file::Error::Invalid { problem, .. } => problem.clone(),
        file::Error::Read { .. } => error.to_string(),
    }
}

impl Draft {
    /// The file.
    fn text(&self) -> String {
        let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
        let mut lines = vec![
            "# An agent run by a model. docs/agents.md has every key; a change counts as soon as the file is saved."
                .to_owned(),
            "kind = \"llm\"".to_owned(),
            String::new(),
            "[llm]".to_owned(),
        ];
        for (key, text) in [("name", &self.name), ("role", &self.role), ("goal", &self.goal), ("model", &self.model)] {
            if !text.is_empty() {
                lines.push(format!("{key} = {}", quoted(text)));
            }
        }
        if !self.capabilities.is_empty() {
            let names: Vec<String> = self.capabilities.iter().map(|name| quoted(name)).collect();
            lines.push(format!("capabilities = [{}]", names.join(", ")));
        }
        lines.join("\n") + "\n"
    }
}

/// The commands that somebody has named, with or without their slash. None of them is all of them.
fn capabilities(given: &[String]) -> Vec<String> {
    let words = given.iter().flat_map(|words| words.split([',', ' '])).filter(|word| !word.is_empty());
    let mut names = Vec::new();
    for word in words {
        let name = match word {
            "all" => continue,
            "none" => NO_COMMAND.to_owned(),
            word => format!("/{}", word.trim_start_matches('/')),
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// A name as an id.
fn slug(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

/// What was given by a flag, which has to be right, or what is answered, until it is.
fn answer(
    given: Option<&str>,
    question: &str,
    default: Option<&str>,
    mut check: impl FnMut(&str) -> Result<(), String>,
) -> Result<String, Failure> {
    if let Some(given) = given {
        check(given).map_err(|why| Failure::usage("no agent was made").because(why))?;
        return Ok(given.to_owned());
    }
    loop {
        let shown = default.map_or_else(String::new, |default| format!(" [{default}]"));
        let line = read(&format!("{question}{shown}: "))?;
        let text = if line.is_empty() { default.unwrap_or_default() } else { &line };
        match check(text) {
            Ok(()) => return Ok(text.to_owned()),
            Err(why) => output::error_line("note", &why),
        }
    }
}

fn confirm(question: &str, default: bool) -> Result<bool, Failure> {
    let choice = if default { "Y/n" } else { "y/N" };
    loop {
        match read(&format!("{question} [{choice}] "))?.to_lowercase().as_str() {
            "" => return Ok(default),
            "y" | "yes" => return Ok(true),
            "n" | "no" => return Ok(false),
            _ => output::error_line("note", "yes or no?"),
        }
    }
}

/// A line from the terminal.
fn read(prompt: &str) -> Result<String, Failure> {
    output::print(&output::styled(Style::Bold, prompt));
    let mut line = String::new();
    let count = io::stdin().lock().read_line(&mut line);
    match count {
        Ok(0) => Err(Failure::failed("no agent was made").because("there was no answer")),
        Ok(_) => Ok(line.trim().to_owned()),
        Err(error) => Err(Failure::failed("cannot read from stdin").caused_by(&error)),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn draft(capability: &str) -> Draft {
        Draft {
            id: "notes".to_owned(),
            role: "note \"taker\"".to_owned(),
            goal: "keep what was decided\nand by whom".to_owned(),
            capabilities: capabilities(&[capability.to_owned()]),
            ..Draft::default()
        }
    }

    #[test]
    fn every_command_is_one_that_the_file_can_have() {
        for (command, _) in COMMANDS.into_iter().chain([("none", ""), ("all", ""), ("agent,write", "")]) {
            let draft = draft(command);
            let read = Reader::default().parse(Path::new("notes.toml"), &draft.text());
            let file = read.unwrap_or_else(|error| panic!("{command}: {error}"));
            assert_eq!(file.entry.profile.commands, draft.capabilities);
        }
        assert_eq!(capabilities(&["agent, /write".to_owned(), "/agent".to_owned()]), ["/agent", "/write"]);
        assert!(Reader::default().parse(Path::new("notes.toml"), &draft("serch").text()).is_err());
    }

    #[test]
    fn a_name_is_nearly_an_id() {
        assert_eq!(slug("Research  Helper, 2nd"), "research-helper-2nd");
        assert_eq!(slug("…"), "");
    }
}
