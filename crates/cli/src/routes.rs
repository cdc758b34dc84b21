//! Verbs that ask the server itself, by routes of its own and not by the protocol: which server, how to print, and the call.

use bytes::Bytes;
use client::{Client, call_json};
use http::Method;
use serde::{Serialize, de::DeserializeOwned};
use url::Url;

use crate::{
    failure::Failure,
    output::{self, Format},
    target::{Target, TargetArgs},
};

/// The options that they share.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Server and output")]
pub(crate) struct RouteArgs {
    /// The server [env: SB_URL] [default: the local one]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// How to print the result: `json` is one object a line
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
    /// The same as `--output json`
    #[arg(long, conflicts_with = "output")]
    json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

impl RouteArgs {
    /// Calls a route, whose path is given by its segments below the server.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        body: Option<Vec<u8>>,
    ) -> Result<T, Failure> {
        decode(&self.answer(method, path, query, body, None).await??)
    }

    /// The same, and what the server says to it, for those who know what to do about an error. What is called twice under one key is done
    /// once.
    pub(crate) async fn answer(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        body: Option<Vec<u8>>,
        key: Option<&str>,
    ) -> Result<Result<Bytes, client::Error>, Failure> {
        let target = self.server()?;
        let url = at(target.url, path, query);
        Ok(call_json(&self.target.connector(), method, &url, target.credential.as_ref(), body, key).await)
    }

    /// How to print.
    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.output }
    }

    /// Means this server where none is named.
    pub(crate) fn default_to(&mut self, url: Option<&str>, target: &TargetArgs) {
        self.url = self.url.take().or_else(|| url.map(str::to_owned));
        self.target.default_to(target);
    }

    /// Prints a result: itself as JSON, or a text for people.
    pub(crate) fn print(&self, result: &impl Serialize, text: &str) {
        match self.format() {
            // Plain data always serialises.
            Format::Json => output::line(&serde_json::to_string(result).unwrap_or_default()),
            Format::Text => output::line(&output::harmless(text)),
        }
    }

    /// The server as an agent, for what the protocol says.
    pub(crate) async fn client(&self) -> Result<Client, Failure> {
        let target = self.server()?;
        let options = self.target.client_options(&target)?;
        Ok(Client::connect(self.target.connector(), &target.url, options).await?)
    }

    /// The server, for what the protocol has no place for.
    pub(crate) fn native(&self) -> Native<'_> {
        Native { target: &self.target, url: self.url.as_deref() }
    }

    /// The server, for verbs that call it by themselves.
    pub(crate) fn server(&self) -> Result<Target, Failure> {
        self.target.target(self.url.as_deref(), None)
    }
}

/// Which server is asked for what the protocol has no place for.
#[derive(Clone, Copy)]
pub(crate) struct Native<'a> {
    pub(crate) target: &'a TargetArgs,
    pub(crate) url: Option<&'a str>,
}

/// Asks a route of the server for something that can be done without: nothing where it cannot be had.
pub(crate) async fn ask<T: DeserializeOwned>(
    target: &TargetArgs,
    url: Option<&str>,
    path: &[&str],
    query: &[(&str, &str)],
) -> Option<T> {
    let server = target.target(url, None).ok()?;
    let url = at(server.url, path, query);
    let answer =
        call_json(&target.connector(), Method::GET, &url, server.credential.as_ref(), None, None).await.ok()?;
    serde_json::from_slice(&answer).ok()
}

/// What an answer says.
pub(crate) fn decode<T: DeserializeOwned>(answer: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(answer).map_err(|error| Failure::failed("malformed answer").caused_by(&error))
}

/// A route below a server.
pub(crate) fn at(mut base: Url, path: &[&str], query: &[(&str, &str)]) -> Url {
    // Fails only for URLs without a host, which `parse_url` refuses.
    if let Ok(mut segments) = base.path_segments_mut() {
        segments.pop_if_empty().extend(path);
    }
    if !query.is_empty() {
        base.query_pairs_mut().extend_pairs(query);
    }
    base
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_below_the_server() {
        let base = client::parse_url("http://h/base/").unwrap();
        assert_eq!(at(base.clone(), &["v1", "cards"], &[]).as_str(), "http://h/base/v1/cards");
        let one = at(base, &["v1", "push", "t", "a/b"], &[("sequence", "4")]);
        assert_eq!(one.as_str(), "http://h/base/v1/push/t/a%2Fb?sequence=4");
    }
}
