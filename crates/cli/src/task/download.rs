//! `sb task download`: the files that a task has made, saved.
//!
//! A name is an agent's word. It never leads out of the directory, hides a file or takes the place of one that is there.

use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use a2a::{GetTaskRequest, Part, PartContent, Task};
use serde::Serialize;

use super::{Where, ids};
use crate::{
    failure::Failure,
    output::{self, Format},
};

/// The longest name that every file system takes, with room for a number.
const LONGEST: usize = 200;

#[derive(Debug, clap::Args)]
pub(super) struct Download {
    /// The task: its id, the first characters of it, or `last`
    id: String,
    /// Where to put the files; made if it is not there
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Save texts and data without a file name as well
    #[arg(long)]
    all: bool,
    /// Replace files that are there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    pub(super) place: Where,
}

/// Something to save.
struct File<'a> {
    name: String,
    content: &'a [u8],
    part: &'a Part,
}

/// What became of a part.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Saved<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<usize>,
    #[serde(skip_serializing_if = "str::is_empty")]
    media_type: &'a str,
    /// It is elsewhere, and was not fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
}

pub(super) async fn download(args: &Download) -> Result<(), Failure> {
    let client = args.place.client().await?;
    let id = ids::task(&client, &args.id, args.place.native()).await?;
    let request = GetTaskRequest { id, history_length: Some(0), ..GetTaskRequest::default() };
    let task = client.get(request).await?.value;
    let files = files(&task, args.all);
    fs::create_dir_all(&args.dir).map_err(|error| unwritable(&args.dir, &error))?;
    // Before anything is written: half of it would be in the way of the next attempt.
    if let Some(file) = files.iter().find(|file| !args.force && args.dir.join(&file.name).symlink_metadata().is_ok()) {
        let path = args.dir.join(&file.name);
        return Err(Failure::failed(format!("`{}` is there already", path.display()))
            .because("nothing was saved")
            .hint("save it elsewhere with --dir, or replace it with --force"));
    }
    for file in &files {
        let path = args.dir.join(&file.name);
        save(&path, file.content, args.force).map_err(|error| unwritable(&path, &error))?;
        let shown = path.display().to_string();
        let saved = Saved {
            path: Some(shown.clone()),
            bytes: Some(file.content.len()),
            media_type: &file.part.media_type,
            url: None,
        };
        print(args, &saved, &shown);
    }
    let mut links = 0;
    for part in parts(&task) {
        if let PartContent::Url(url) = &part.content {
            links += 1;
            let saved = Saved { path: None, bytes: None, media_type: &part.media_type, url: Some(url) };
            match args.place.output {
                Format::Json => print(args, &saved, ""),
                Format::Text => output::error_line("note", &format!("not fetched: {}", output::single_line(url))),
            }
        }
    }
    if files.is_empty() && links == 0 {
        output::error_line("note", "the task has no files; --all saves texts and data");
    }
    Ok(())
}

fn print(args: &Download, saved: &Saved<'_>, text: &str) {
    match args.place.output {
        // Plain data always serialises.
        Format::Json => output::line(&serde_json::to_string(saved).unwrap_or_default()),
        Format::Text => output::line(&output::single_line(text)),
    }
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot write `{}`", path.display())).caused_by(error).hint("--dir names another directory")
}

/// A file that is in the way is removed, not written through: it may be a link to somewhere else.
fn save(path: &Path, content: &[u8], force: bool) -> io::Result<()> {
    if force
        && let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(content)
}

/// All parts that a task has made.
fn parts(task: &Task) -> impl Iterator<Item = &Part> {
    let said = task.status.message.iter().flat_map(|message| &message.parts);
    task.artifacts.iter().flat_map(|artifact| &artifact.parts).chain(said)
}

/// The files of a task, each with a name of its own.
fn files(task: &Task, all: bool) -> Vec<File<'_>> {
    let mut taken = BTreeSet::new();
    let mut files = Vec::new();
    let artifacts = task.artifacts.iter().map(|artifact| (artifact.name.as_str(), &artifact.parts));
    let said = task.status.message.iter().map(|message| ("message", &message.parts));
    for (number, (name, parts)) in artifacts.chain(said).enumerate() {
        for part in parts {
            let is_file = !part.filename.is_empty();
            let (content, ending) = match &part.content {
                PartContent::Raw(bytes) => (&bytes[..], ""),
                PartContent::Text(text) if is_file || all => (text.as_bytes(), ".txt"),
                PartContent::Data(data) if is_file || all => (data.get().as_bytes(), ".json"),
                PartContent::Text(_) | PartContent::Data(_) | PartContent::Url(_) => continue,
            };
            let wanted = [part.filename.as_str(), name].into_iter().map(safe).find(|name| !name.is_empty());
            let mut wanted = wanted.unwrap_or_else(|| format!("artifact-{}", number + 1));
            if !is_file && !wanted.contains('.') {
                wanted.push_str(ending);
            }
            let name = unique(&wanted, &taken);
            taken.insert(name.to_lowercase());
            files.push(File { name, content, part });
        }
    }
    files
}

/// A name of a file and nothing more: no way to another directory, no hidden file, nothing that steers a terminal.
fn safe(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let plain: String = last.chars().filter(|letter| !":*?\"<>|".contains(*letter)).map(visible).collect();
    let mut plain = plain.trim().trim_start_matches('.').trim_end_matches(['.', ' ']).to_owned();
    while plain.len() > LONGEST {
        // The ending says what it is: the begin goes.
        plain.remove(0);
    }
    plain
}

/// Replaces invisible and direction-changing characters of a name with visible ones.
fn visible(letter: char) -> char {
    if a2a::is_hidden(letter) { '_' } else { letter }
}

/// The name, with a number where it is taken. File systems that do not tell capitals apart are thought of.
fn unique(name: &str, taken: &BTreeSet<String>) -> String {
    let (stem, ending) =
        name.rsplit_once('.').map_or((name, String::new()), |(stem, ending)| (stem, format!(".{ending}")));
    let numbered = (2..).map(|number| format!("{stem}-{number}{ending}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    // There are more numbers than files.
    names.find(|name| !taken.contains(&name.to_lowercase())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use a2a::Artifact;

    use super::*;

    #[test]
    fn a_name_leads_nowhere_else() {
        for (name, expected) in [
            ("a.txt", "a.txt"),
            ("../../etc/passwd", "passwd"),
            ("/etc/passwd", "passwd"),
            ("C:\\x\\y.doc", "y.doc"),
            (".bashrc", "bashrc"),
            ("..", ""),
            ("a/", ""),
            ("a\u{1b}[2J\nb", "a_[2J_b"),
            ("invoice\u{202e}fdp.exe", "invoice_fdp.exe"),
            ("a\u{2028}b\u{200b}.txt", "a_b_.txt"),
            ("\u{feff}.bashrc", "_.bashrc"),
            ("né e.md ", "né e.md"),
        ] {
            assert_eq!(safe(name), expected, "{name:?}");
        }
        let long = safe(&format!("{}.pdf", "é".repeat(300)));
        assert!(long.len() <= LONGEST && long.ends_with("é.pdf"));
    }

    #[test]
    fn every_file_has_a_name_of_its_own() {
        let named = |name: &str| Part { filename: name.to_owned(), ..Part::raw(vec![1]) };
        let task = Task {
            artifacts: vec![
                Artifact {
                    name: "notes".to_owned(),
                    parts: vec![named("a.txt"), named("x/A.TXT"), Part::raw(vec![2]), Part::text("said")],
                    ..Artifact::default()
                },
                Artifact { parts: vec![named(".."), Part::url("https://h/x")], ..Artifact::default() },
            ],
            ..Task::default()
        };
        let names = |all| files(&task, all).into_iter().map(|file| file.name).collect::<Vec<_>>();
        assert_eq!(names(false), ["a.txt", "A-2.TXT", "notes", "artifact-2"]);
        assert_eq!(names(true), ["a.txt", "A-2.TXT", "notes", "notes.txt", "artifact-2"]);
    }
}
