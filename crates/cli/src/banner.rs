//! What a server says when it is ready: where it listens, and on the first start how to call it. Each command in it works as it stands,
//! from another terminal, with the flags that this server was given.

use std::{
    fmt::Write,
    io::{self, IsTerminal},
    path::Path,
};

use exchange::{Agents, Delivery};
use server::Server;

use crate::{
    config::{self, Config, Layer, process_environment},
    local::{Local, PrivateFile},
    output,
};

/// What the words of the first start depend on.
struct Start<'a> {
    base: &'a str,
    /// The data directory, where commands do not find it by themselves.
    data: Option<String>,
    token: Token<'a>,
    /// Whom to try.
    agent: Agent,
    /// Callers see a certificate of whose authority they may not know.
    tls: bool,
}

enum Token<'a> {
    Shown(&'a str),
    /// It stands in this file.
    In(String),
    /// Nobody has to have one.
    Needless(String),
}

#[derive(Debug, PartialEq, Eq)]
enum Agent {
    /// The demo agent that streams, while messages that name nobody are answered too.
    Demo,
    /// Whoever answers messages that name nobody.
    Default,
    Named(String),
    /// There is none that would answer.
    Nobody,
}

/// Says that the server is ready, and on the first start how to call it. `fresh` is the token that was made for it.
pub(crate) fn announce(server: &Server, config: &Config, agents: &Agents, fresh: Option<&str>) {
    if let Some(address) = server.grpc_addr() {
        output::line(&format!("gRPC on {address}"));
    }
    if let Some(url) = server.admin_url() {
        output::line(&format!("administration on {url}"));
    }
    output::line(&format!("listening on {}", server.local_url()));
    let Some(token) = fresh else { return };
    let file = || quoted(&absolute(&config.data_dir.join(Local::NAME)));
    let token = if !config.edge.auth {
        Token::Needless(file())
    } else if io::stdout().is_terminal() {
        Token::Shown(token)
    } else {
        // What is no terminal is a log, and logs are kept and read by others.
        Token::In(file())
    };
    let (reached_at, has_public_name) = (server.reached_at(), config.edge.public_url.is_some());
    let tls = config.edge.tls.is_some();
    let start = Start {
        // A certificate is that of the public name.
        base: if tls && has_public_name { server.base_url() } else { &reached_at },
        data: named_data(config),
        token,
        agent: to_try(config, agents),
        tls: tls && !has_public_name,
    };
    output::print(&start.text());
}

/// The data directory, unless a command without any flag or variable finds it.
fn named_data(config: &Config) -> Option<String> {
    let plain = |name: &str| process_environment(name).filter(|_| !name.starts_with("SB_"));
    let found = config::load(Layer::default(), None, &plain).and_then(|settings| settings.data_dir(&plain)).ok();
    let data = absolute(&config.data_dir);
    (found.as_deref().map(absolute).as_ref() != Some(&data)).then(|| quoted(&data))
}

/// An agent that answers whoever tries it.
fn to_try(config: &Config, agents: &Agents) -> Agent {
    let is_run = |id: &str| agents.find_open(id).is_some_and(|entry| entry.profile.delivery == Delivery::Run);
    let is_demo = agents.find_open("stream").is_some_and(|entry| entry.profile.kind == "builtin");
    let default = config.exchange.default_agent.as_ref().filter(|id| is_run(id.as_str()));
    if default.is_some() && is_demo {
        return Agent::Demo;
    }
    if default.is_some() {
        return Agent::Default;
    }
    let named = agents.open().into_iter().find(|id| id.as_str() != agents::mind::INDEX && is_run(id.as_str()));
    named.map_or(Agent::Nobody, |id| Agent::Named(id.to_string()))
}

impl Start<'_> {
    fn text(&self) -> String {
        let data = self.data.as_ref().map(|data| format!(" --data-dir {data}")).unwrap_or_default();
        let mut out = "\nThis is the first start. ".to_owned();
        // Writing to a string cannot fail.
        let _ = match &self.token {
            Token::Shown(token) => write!(
                out,
                "The token below is shown only this once; the CLI on this machine has it already.\n\n  token: {token}\n"
            ),
            Token::In(file) => write!(
                out,
                "Its token is not printed, since this is no terminal. It is in the file below, which only its owner can \
                 read.\n\n  token file: {file}\n"
            ),
            Token::Needless(file) => write!(
                out,
                "Whoever reaches this server may call it (--no-auth). For when a token is needed, one is in the file below, \
                 which only its owner can read.\n\n  token file: {file}\n"
            ),
        };
        let _ = write!(
            out,
            "\nAdministration on this machine needs none: `sb tenant add NAME{data}`, `sb token add{data}`.\n\n"
        );
        let (ask, path) = match &self.agent {
            Agent::Demo => ("--stream --agent stream \"5 chunks, 200 ms apart\"".to_owned(), "/a2a".to_owned()),
            Agent::Default => ("hello".to_owned(), "/a2a".to_owned()),
            Agent::Named(id) => (format!("--agent {id} hello"), format!("/a2a/agents/{id}")),
            Agent::Nobody => {
                let _ = write!(
                    out,
                    "There is no agent yet that would answer: `sb agent new NAME{data}` makes one, and `sb agent list{data}` \
                     shows what there is.\n\n"
                );
                return out;
            }
        };
        let authorization = match &self.token {
            Token::Shown(token) => format!("\n    -H 'Authorization: Bearer {token}' \\"),
            Token::In(_) => "\n    -H 'Authorization: Bearer TOKEN' \\".to_owned(),
            Token::Needless(_) => String::new(),
        };
        let base = self.base;
        let _ = write!(
            out,
            r#"Try it from another terminal:

  sb send{data} {ask}

  curl -s {base}{path}/message:send \{authorization}
    -H 'A2A-Version: 1.0' -H 'Content-Type: application/json' \
    -d '{{"message":{{"messageId":"m-1","role":"ROLE_USER","parts":[{{"text":"hello"}}]}}}}'

"#
        );
        if self.tls {
            out.push_str(
                "If this machine does not know the certificate's authority, name it: `SSL_CERT_FILE=ca.pem sb send …`, `curl --cacert \
                 ca.pem …`.\n\n",
            );
        }
        out
    }
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// As a shell reads it as one word.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word() {
        assert_eq!(quoted("/var/lib/sb-1"), "/var/lib/sb-1");
        assert_eq!(quoted("/home/o'neil/my data"), r"'/home/o'\''neil/my data'");
        assert_eq!(quoted("/tmp/$(x)"), "'/tmp/$(x)'");
    }
}
