//! Models of a temporary directory, with an environment that a test makes up.

#![expect(clippy::unwrap_used, reason = "a test rig")]

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use agents::model::{Answer, Error, Message, Model, Models, Options, Piece, Request, Stop, Usage};

pub(crate) struct Rig {
    pub(crate) models: Models,
    pub(crate) dir: PathBuf,
    _temp: tempfile::TempDir,
}

impl Rig {
    /// With this file and these variables.
    pub(crate) fn new(toml: &str, variables: &[(&'static str, &str)]) -> Self {
        Self::with(toml, variables, |options| options)
    }

    pub(crate) fn with(
        toml: &str,
        variables: &[(&'static str, &str)],
        change: impl FnOnce(Options) -> Options,
    ) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().to_owned();
        let file = dir.join("models.toml");
        if !toml.is_empty() {
            fs::write(&file, toml).unwrap();
        }
        let options = options(variables);
        let models = Models::new(change(Options { file: Some(file), ..options }));
        Self { models, dir, _temp: temp }
    }

    /// A rig whose provider `offline` has these replies.
    pub(crate) fn scripted(replies: &str) -> Self {
        let rig = Self::new(
            "default = \"offline/any\"\n[providers.offline]\napi = \"scripted\"\nfile = \"replies.json\"\n",
            &[],
        );
        rig.write("replies.json", replies);
        rig
    }

    /// Writes a file and looks at it.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.join(name), text).unwrap();
        self.models.look();
    }

    pub(crate) fn model(&self, name: &str) -> Model {
        self.models.find(name, "default").unwrap()
    }

    pub(crate) fn unset(&self, name: &str) -> String {
        self.models.find(name, "default").err().unwrap().to_string()
    }

    /// Asks the default model this.
    pub(crate) async fn ask(&self, text: &str) -> Result<Heard, Error> {
        hear(self.model("").ask(&request(text)).await?).await
    }
}

/// What tests do without: long waits, the real environment and a look at this machine.
pub(crate) fn options(variables: &[(&'static str, &str)]) -> Options {
    let variables: Vec<(&'static str, String)> =
        variables.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Options {
        environment: Arc::new(move |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
        }),
        local: None,
        backoff: Duration::from_millis(5),
        ..Options::default()
    }
}

/// A whole answer.
#[derive(Debug, PartialEq)]
pub(crate) struct Heard {
    pub(crate) pieces: Vec<String>,
    pub(crate) stop: Stop,
    pub(crate) usage: Usage,
}

impl Heard {
    pub(crate) fn text(&self) -> String {
        self.pieces.concat()
    }
}

pub(crate) async fn hear(mut answer: Answer) -> Result<Heard, Error> {
    let mut pieces = Vec::new();
    loop {
        match answer.next().await? {
            Some(Piece::Text(text)) => pieces.push(text),
            Some(Piece::End { stop, usage }) => {
                assert_eq!(answer.next().await.unwrap(), None, "nothing comes after the end");
                assert_eq!(answer.usage(), usage);
                return Ok(Heard { pieces, stop, usage });
            }
            None => panic!("an answer ends"),
        }
    }
}

pub(crate) fn request(text: &str) -> Request {
    Request { messages: vec![Message::user(text)], max_tokens: 100, ..Request::default() }
}
