//! What a message is made of on the command line: text, files, data and metadata.

use std::{
    io::{self, IsTerminal, Read},
    path::{Path, PathBuf},
};

use a2a::{Json, JsonObject, Message, Part};
use clap::ArgMatches;

use crate::failure::Failure;

/// The options that make a message, and in which order its parts were given.
#[derive(Debug)]
pub(crate) struct PartArgs {
    given: Given,
    /// Kinds of parts and media types by where they stand on the command line.
    order: Vec<(usize, Kind)>,
}

#[derive(Debug, clap::Args)]
struct Given {
    /// What to say, in one or several words; read from stdin where it is `-`, or where nothing is given and stdin is no
    /// terminal
    text: Vec<String>,
    /// What to say, several times if need be
    #[arg(long = "text", value_name = "TEXT")]
    texts: Vec<String>,
    /// A file to send along, several times if need be; its media type follows from its name. A URL is passed on as such
    #[arg(long, value_name = "PATH|URL")]
    file: Vec<PathBuf>,
    /// Structured data to send along: JSON, or a file with JSON as PATH or @PATH; `-` reads it from stdin
    #[arg(long, value_name = "JSON|PATH")]
    data: Vec<String>,
    /// The media type of the --text, --file or --data before it
    #[arg(long, value_name = "TYPE")]
    media_type: Vec<String>,
    /// The message's metadata: a JSON object, or @PATH of a file with one
    #[arg(long, value_name = "JSON|@PATH")]
    metadata: Option<String>,
}

/// What an option adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    File,
    Data,
    MediaType,
}

impl clap::FromArgMatches for PartArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Self::from_arg_matches_mut(&mut matches.clone())
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, clap::Error> {
        let order = order(matches);
        Ok(Self { given: Given::from_arg_matches_mut(matches)?, order })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.order = order(matches);
        self.given.update_from_arg_matches(matches)
    }
}

impl clap::Args for PartArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        Given::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Given::augment_args_for_update(command)
    }
}

/// Where the parts and their media types stand.
fn order(matches: &ArgMatches) -> Vec<(usize, Kind)> {
    let names = [("texts", Kind::Text), ("file", Kind::File), ("data", Kind::Data), ("media_type", Kind::MediaType)];
    let places = |(name, kind)| matches.indices_of(name).into_iter().flatten().map(move |place| (place, kind));
    let mut order: Vec<(usize, Kind)> = names.into_iter().flat_map(places).collect();
    order.sort_unstable_by_key(|(place, _)| *place);
    order
}

impl PartArgs {
    /// Puts everything into a message: the text, then the parts in the order in which they were given.
    pub(crate) fn fill(&self, message: &mut Message) -> Result<(), Failure> {
        let given = &self.given;
        message.parts.clear();
        match given.text.as_slice() {
            [text] if text == "-" => message.parts.push(Part::text(stdin()?)),
            words @ [_, ..] => message.parts.push(Part::text(words.join(" "))),
            [] if self.order.iter().any(|(_, kind)| *kind != Kind::MediaType) => {}
            [] if io::stdin().is_terminal() => {
                return Err(Failure::usage("there is nothing to send")
                    .hint("write what to say behind `sb send`, or pipe it in; --file and --data send along"));
            }
            [] => message.parts.push(Part::text(stdin()?)),
        }
        let (mut texts, mut files, mut data) = (given.texts.iter(), given.file.iter(), given.data.iter());
        let mut media_types = given.media_type.iter();
        let begin = message.parts.len();
        for (_, kind) in &self.order {
            let part = match kind {
                Kind::Text => texts.next().map(Part::text),
                Kind::File => files.next().map(|path| file(path)).transpose()?,
                Kind::Data => data.next().map(|given| structured(given)).transpose()?,
                Kind::MediaType => {
                    let named = message.parts[begin..].last_mut().zip(media_types.next());
                    let (part, media_type) = named.ok_or_else(|| {
                        Failure::usage("--media-type names the type of nothing")
                            .hint("write it behind a --file, --text or --data")
                    })?;
                    media_type.clone_into(&mut part.media_type);
                    None
                }
            };
            message.parts.extend(part);
        }
        if let Some(given) = &given.metadata {
            let text = json_text("--metadata", given)?;
            let metadata = JsonObject::from_text(&text)
                .map_err(|error| not_json("--metadata", given).caused_by(&error).hint("write a JSON object"))?;
            message.metadata = Some(metadata);
        }
        Ok(())
    }
}

fn stdin() -> Result<String, Failure> {
    let mut text = String::new();
    io::stdin()
        .lock()
        .read_to_string(&mut text)
        .map_err(|error| Failure::failed("cannot read the text from stdin").caused_by(&error))?;
    // The line break at the end is the shell's, not the message's.
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() {
        return Err(Failure::usage("there is no text on stdin").hint("pipe something in, or give the text itself"));
    }
    Ok(text.to_owned())
}

/// What is given to `--data`: JSON, or where it is.
fn structured(given: &str) -> Result<Part, Failure> {
    let is_path = || !given.trim_start().starts_with(['{', '[', '"']) && Path::new(given).is_file();
    let text = match given {
        "-" | "@-" => stdin()?,
        path if is_path() => json_text("--data", &format!("@{path}"))?,
        given => json_text("--data", given)?,
    };
    let data = Json::from_text(&text).map_err(|error| not_json("--data", given).caused_by(&error))?;
    Ok(Part::data(data))
}

pub(crate) fn file(path: &Path) -> Result<Part, Failure> {
    if let Some(url) = path.to_str().filter(|path| path.starts_with("https://") || path.starts_with("http://")) {
        let name = Path::new(url.split(['?', '#']).next().unwrap_or_default());
        let mut part = Part::url(url);
        media_type(name).clone_into(&mut part.media_type);
        return Ok(part);
    }
    let mut part = Part::raw(std::fs::read(path).map_err(|error| unreadable("--file", path, &error))?);
    part.filename = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    media_type(path).clone_into(&mut part.media_type);
    Ok(part)
}

/// The JSON itself, or that of the file behind an `@`.
fn json_text(option: &str, given: &str) -> Result<String, Failure> {
    match given.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(path).map_err(|error| unreadable(option, Path::new(path), &error)),
        None => Ok(given.to_owned()),
    }
}

fn unreadable(option: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("cannot read `{}`", path.display()))
        .caused_by(error)
        .hint(format!("{option} needs a file that can be read"))
}

fn not_json(option: &str, given: &str) -> Failure {
    let shown: String = given.chars().take(80).collect();
    Failure::usage(format!("{option} `{shown}` is not the JSON it has to be"))
}

/// The media type that a file's name stands for; what it does not tell is bytes.
fn media_type(path: &Path) -> &'static str {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let extension = extension.to_ascii_lowercase();
    let known = MEDIA_TYPES.iter().find(|(_, extensions)| extensions.contains(&extension.as_str()));
    known.map_or("application/octet-stream", |(media_type, _)| media_type)
}

/// Media types by the endings that stand for them.
const MEDIA_TYPES: &[(&str, &[&str])] = &[
    ("text/plain", &["txt", "text", "log", "conf", "ini", "diff", "patch"]),
    ("text/markdown", &["md", "markdown"]),
    ("text/html", &["html", "htm"]),
    ("text/css", &["css"]),
    ("text/csv", &["csv"]),
    ("text/tab-separated-values", &["tsv"]),
    ("text/calendar", &["ics"]),
    ("text/javascript", &["js", "mjs"]),
    ("text/x-python", &["py"]),
    ("text/x-rust", &["rs"]),
    ("text/x-go", &["go"]),
    ("text/x-java", &["java"]),
    ("text/x-c", &["c", "h", "cc", "cpp", "hpp"]),
    ("text/x-shellscript", &["sh", "bash"]),
    ("text/x-typescript", &["ts", "tsx"]),
    ("application/json", &["json"]),
    ("application/jsonl", &["jsonl", "ndjson"]),
    ("application/xml", &["xml"]),
    ("application/yaml", &["yaml", "yml"]),
    ("application/toml", &["toml"]),
    ("application/sql", &["sql"]),
    ("application/pdf", &["pdf"]),
    ("application/rtf", &["rtf"]),
    ("application/zip", &["zip"]),
    ("application/gzip", &["gz", "tgz"]),
    ("application/x-tar", &["tar"]),
    ("application/wasm", &["wasm"]),
    ("application/msword", &["doc"]),
    ("application/vnd.ms-excel", &["xls"]),
    ("application/vnd.ms-powerpoint", &["ppt"]),
    ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", &["docx"]),
    ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", &["xlsx"]),
    ("application/vnd.openxmlformats-officedocument.presentationml.presentation", &["pptx"]),
    ("application/vnd.oasis.opendocument.text", &["odt"]),
    ("application/vnd.oasis.opendocument.spreadsheet", &["ods"]),
    ("application/vnd.apache.parquet", &["parquet"]),
    ("image/png", &["png"]),
    ("image/jpeg", &["jpg", "jpeg"]),
    ("image/gif", &["gif"]),
    ("image/webp", &["webp"]),
    ("image/avif", &["avif"]),
    ("image/svg+xml", &["svg"]),
    ("image/bmp", &["bmp"]),
    ("image/tiff", &["tif", "tiff"]),
    ("image/x-icon", &["ico"]),
    ("audio/mpeg", &["mp3"]),
    ("audio/wav", &["wav"]),
    ("audio/ogg", &["ogg", "oga", "opus"]),
    ("audio/flac", &["flac"]),
    ("audio/mp4", &["m4a"]),
    ("video/mp4", &["mp4", "m4v"]),
    ("video/webm", &["webm"]),
    ("video/quicktime", &["mov"]),
];

#[cfg(test)]
mod tests {
    use a2a::PartContent;
    use clap::{Args, FromArgMatches};

    use super::*;

    fn filled(args: &[&str]) -> Result<Message, Failure> {
        let command = PartArgs::augment_args(clap::Command::new("send"));
        let matches = command.try_get_matches_from([&["send"], args].concat()).unwrap();
        let mut message = Message::default();
        PartArgs::from_arg_matches(&matches).unwrap().fill(&mut message)?;
        Ok(message)
    }

    #[test]
    fn everything_becomes_a_part() {
        let directory = tempfile::tempdir().unwrap();
        let picture = directory.path().join("a.PNG");
        std::fs::write(&picture, [0, 1]).unwrap();
        let json = directory.path().join("d.json");
        std::fs::write(&json, "{\"n\": 1.0}").unwrap();
        let (picture, json) = (picture.to_str().unwrap(), json.to_str().unwrap());
        let at_json = format!("@{json}");
        let args = ["hello", "--data", "[1]", "--file", picture, "--data", &at_json, "--metadata", "{\"k\":1}"];
        let message = filled(&args).unwrap();
        assert_eq!(message.parts.len(), 4, "in the order in which they were given");
        assert_eq!(message.parts[0].as_text(), Some("hello"));
        assert!(matches!(&message.parts[1].content, PartContent::Data(data) if data.get() == "[1]"));
        assert_eq!((message.parts[2].filename.as_str(), message.parts[2].media_type.as_str()), ("a.PNG", "image/png"));
        assert!(matches!(&message.parts[2].content, PartContent::Raw(bytes) if bytes[..] == [0, 1]));
        assert!(matches!(&message.parts[3].content, PartContent::Data(data) if data.get() == "{\"n\": 1.0}"));
        assert_eq!(message.metadata.unwrap().get(), "{\"k\":1}");
    }

    #[test]
    fn parts_may_be_spelled_as_others_do() {
        let directory = tempfile::tempdir().unwrap();
        let json = directory.path().join("d.json");
        std::fs::write(&json, "[2]").unwrap();
        let json = json.to_str().unwrap();
        let message = filled(&[
            "--text",
            "one",
            "--media-type",
            "text/markdown",
            "--file",
            "https://h/a.pdf?x=1",
            "--data",
            json,
            "--text",
            "two",
        ])
        .unwrap();
        let types: Vec<&str> = message.parts.iter().map(|part| part.media_type.as_str()).collect();
        assert_eq!(types, ["text/markdown", "application/pdf", "", ""]);
        assert!(matches!(&message.parts[1].content, PartContent::Url(url) if url == "https://h/a.pdf?x=1"));
        assert!(matches!(&message.parts[2].content, PartContent::Data(data) if data.get() == "[2]"));
        assert_eq!(message.parts[3].as_text(), Some("two"));
    }

    #[test]
    fn what_cannot_be_sent_is_a_usage_error() {
        for args in [
            &["x", "--file", "/nowhere/x"][..],
            &["x", "--data", "{"],
            &["x", "--data", "@/nowhere/x"],
            &["x", "--metadata", "[1]"],
            &["x", "--media-type", "text/plain"],
        ] {
            let failure = filled(args).unwrap_err();
            assert_eq!(failure.exit as u8, 2, "{}", failure.error);
        }
    }

    #[test]
    fn an_ending_stands_for_one_media_type() {
        for (path, expected) in
            [("a.txt", "text/plain"), ("b.tar.gz", "application/gzip"), ("c", "application/octet-stream")]
        {
            assert_eq!(media_type(Path::new(path)), expected);
        }
        let mut endings: Vec<&str> = MEDIA_TYPES.iter().flat_map(|(_, endings)| *endings).copied().collect();
        let count = endings.len();
        endings.sort_unstable();
        endings.dedup();
        assert_eq!(endings.len(), count);
    }
}
