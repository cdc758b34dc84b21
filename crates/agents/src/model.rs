//! Models: which there are, and asking one of them.
//!
//! [`Models`] knows the providers, those of the environment and those of `models.toml`, and finds the [`Model`] that a name means.
//! [`Model::ask`] gives an [`Answer`] whose pieces come as the provider says them. It promises that an answer ends with one
//! [`Piece::End`] or with an [`Error`], that whoever drops it ends the call, and that keys are in no message, log or `Debug`.
//! Retries and the circuit breaker are inside, and only until something has arrived: nothing is said twice.
//!
//! What is asked and what comes of it is not known here: there is no A2A in it.

mod ask;
mod choose;
mod error;
mod known;
mod local;
mod models;
mod provider;
mod scripted;
mod settings;
mod status;
mod wire;

use bytes::Bytes;

pub use self::{
    ask::{Answer, Model},
    choose::Unset,
    error::{Error, ErrorKind},
    local::Local,
    models::{Environment, Models, Options, State},
    provider::ProviderState,
    settings::Api,
};

/// What a model is asked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Request {
    /// Who it is and what it must do; may be empty.
    pub system: String,
    /// What was said so far, oldest first. The last is mostly a user's.
    pub messages: Vec<Message>,
    /// The longest answer.
    pub max_tokens: u32,
    /// How freely it chooses its words, where the caller cares.
    pub temperature: Option<f64>,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Who said it.
    pub role: Role,
    /// What was said.
    pub content: Vec<Content>,
}

/// Who said something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Whoever asks.
    User,
    /// The model.
    Assistant,
}

/// Part of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Text.
    Text(String),
    /// A picture, for models that take them ([`Model::takes_images`]).
    Image {
        /// `image/png` and the like.
        media_type: String,
        /// The file's bytes.
        data: Bytes,
    },
    /// A picture that the provider fetches.
    ImageUrl(String),
}

/// Part of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    /// More text; never empty.
    Text(String),
    /// That was all.
    End {
        /// Why it ended.
        stop: Stop,
        /// What it cost, as far as the provider says.
        usage: Usage,
    },
}

/// Why an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The model had said what it wanted.
    Done,
    /// It was as long as it may be.
    Length,
    /// Something else, in the provider's own word.
    Other(String),
}

/// What was used.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of what was asked, those read from a cache included.
    pub input_tokens: u64,
    /// Tokens of what was answered.
    pub output_tokens: u64,
}

impl Message {
    /// A user's words.
    pub fn user(text: impl Into<String>) -> Self {
        Self { role: Role::User, content: vec![Content::Text(text.into())] }
    }

    /// The model's words.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self { role: Role::Assistant, content: vec![Content::Text(text.into())] }
    }

    /// Its text, without pictures.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for content in &self.content {
            if let Content::Text(more) = content {
                if !text.is_empty() {
                    text.push('\n');
                }
                text.push_str(more);
            }
        }
        text
    }
}

impl Role {
    /// As all providers call it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

impl Stop {
    /// In a word.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Done => "done",
            Self::Length => "length",
            Self::Other(word) => word,
        }
    }
}
