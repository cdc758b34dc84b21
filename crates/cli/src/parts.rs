//! What a message is made of on the command line: text, files, data and metadata.

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};

use a2a::{Json, JsonObject, Message, Part};

use crate::failure::Failure;

/// The options that make a message.
#[derive(Debug, clap::Args)]
pub(crate) struct PartArgs {
    /// What to say; `-` reads it from stdin
    #[arg(required_unless_present_any = ["file", "data"])]
    text: Option<String>,
    /// A file to send along, several times if need be; its media type follows from its name
    #[arg(long, value_name = "PATH")]
    file: Vec<PathBuf>,
    /// Structured data to send along: JSON, or @PATH of a file with JSON
    #[arg(long, value_name = "JSON|@PATH")]
    data: Vec<String>,
    /// The message's metadata: a JSON object, or @PATH of a file with one
    #[arg(long, value_name = "JSON|@PATH")]
    metadata: Option<String>,
}

impl PartArgs {
    /// Puts everything into a message: the text, then the files, then the data.
    pub(crate) fn fill(&self, message: &mut Message) -> Result<(), Failure> {
        message.parts.clear();
        match self.text.as_deref() {
            Some("-") => message.parts.push(Part::text(stdin()?)),
            Some(text) => message.parts.push(Part::text(text)),
            None => {}
        }
        for path in &self.file {
            message.parts.push(file(path)?);
        }
        for given in &self.data {
            let text = json_text("--data", given)?;
            let data = Json::from_text(&text).map_err(|error| not_json("--data", given).caused_by(&error))?;
            message.parts.push(Part::data(data));
        }
        if let Some(given) = &self.metadata {
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

pub(crate) fn file(path: &Path) -> Result<Part, Failure> {
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

    use super::*;

    fn args(data: &[&str], metadata: Option<&str>) -> PartArgs {
        PartArgs {
            text: Some("hello".to_owned()),
            file: Vec::new(),
            data: data.iter().map(|&text| text.to_owned()).collect(),
            metadata: metadata.map(str::to_owned),
        }
    }

    #[test]
    fn everything_becomes_a_part() {
        let directory = tempfile::tempdir().unwrap();
        let picture = directory.path().join("a.PNG");
        std::fs::write(&picture, [0, 1]).unwrap();
        let json = directory.path().join("d.json");
        std::fs::write(&json, "{\"n\": 1.0}").unwrap();
        let mut args = args(&["[1]", &format!("@{}", json.display())], Some("{\"k\":1}"));
        args.file = vec![picture];
        let mut message = Message::default();
        args.fill(&mut message).unwrap();
        assert_eq!(message.parts.len(), 4);
        assert_eq!(message.parts[0].as_text(), Some("hello"));
        assert_eq!((message.parts[1].filename.as_str(), message.parts[1].media_type.as_str()), ("a.PNG", "image/png"));
        assert!(matches!(&message.parts[1].content, PartContent::Raw(bytes) if bytes[..] == [0, 1]));
        assert!(matches!(&message.parts[3].content, PartContent::Data(data) if data.get() == "{\"n\": 1.0}"));
        assert_eq!(message.metadata.unwrap().get(), "{\"k\":1}");
    }

    #[test]
    fn what_cannot_be_sent_is_a_usage_error() {
        let mut missing = args(&[], None);
        missing.file = vec!["/nowhere/x".into()];
        for args in [missing, args(&["{"], None), args(&["@/nowhere/x"], None), args(&[], Some("[1]"))] {
            let failure = args.fill(&mut Message::default()).unwrap_err();
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
