//! `/agent run …` in a conversation: a message to any agent with the conversation's context.

use a2a::{Part, PartContent, SendMessageConfiguration, SendMessageResponse};
use clap::Parser;
use client::{Client, user_message};
use uuid::Uuid;

use super::Args;
use crate::{
    failure::Failure,
    output::{self, Format},
    send::{message_text, print_reply, print_text, verdict},
};

/// `/agent …`
#[derive(Debug, Parser)]
#[command(name = "/agent", disable_version_flag = true)]
struct AgentLine {
    #[command(subcommand)]
    verb: AgentVerb,
}

#[derive(Debug, clap::Subcommand)]
enum AgentVerb {
    /// Send a message to an agent, in this conversation's context
    Run(Run),
}

#[derive(Debug, clap::Args)]
struct Run {
    /// The agent's id
    agent: String,
    /// What to say
    #[arg(required = true)]
    text: Vec<String>,
    /// The same for programs: any JSON, as a data part
    #[arg(long, value_name = "JSON")]
    json: Option<String>,
    /// The task to go on with
    #[arg(long, value_name = "TASK")]
    task_id: Option<String>,
    /// Wait for the end of the turn
    #[arg(long)]
    wait: bool,
}

/// Carries out `/agent` with these words behind it.
pub(super) async fn run(words: &[String], args: &Args, context: &mut String) -> Result<(), Failure> {
    let words = std::iter::once("/agent").chain(words.iter().map(String::as_str));
    let AgentVerb::Run(run) = match AgentLine::try_parse_from(words) {
        Ok(line) => line.verb,
        Err(error) if error.use_stderr() => return Err(Failure::usage(error.to_string().trim_end().to_owned())),
        Err(error) => {
            output::print(&error.to_string());
            return Ok(());
        }
    };
    let mut request = user_message(Uuid::new_v4().to_string(), run.text.join(" "));
    if let Some(json) = &run.json {
        let data = a2a::Json::from_text(json).map_err(|error| Failure::usage("cannot use --json").caused_by(&error))?;
        let part = Part { media_type: "application/json".to_owned(), ..Part::new(PartContent::Data(data)) };
        request.message.parts.push(part);
    }
    match run.task_id {
        Some(task) => request.message.task_id = task,
        None => {
            if context.is_empty() {
                *context = Uuid::now_v7().to_string();
            }
            request.message.context_id.clone_from(context);
        }
    }
    request.configuration =
        Some(SendMessageConfiguration { return_immediately: !run.wait, ..SendMessageConfiguration::default() });

    let target = args.target.target(args.url.as_deref(), Some(&run.agent))?;
    let options = args.target.client_options(&target)?;
    let client = Client::connect(args.target.connector(), &target.url, options).await?;
    let reply = args.target.in_time(async { Ok(client.send(request).await?) }).await?;
    if args.output == Format::Json {
        output::line(&output::one_line(reply.json.get()));
    }
    match reply.value {
        SendMessageResponse::Message(message) if args.output == Format::Text => print_text(&message_text(&message)),
        SendMessageResponse::Message(_) => {}
        SendMessageResponse::Task(task) => {
            if args.output == Format::Text {
                print_reply(&task);
                let text = format!("{} {}", task.id, task.status.state.as_str());
                output::error_line("task", &output::single_line(&text));
            }
            if run.wait && !task.status.state.is_interrupted() {
                verdict(&task.id, &task.status)?;
            }
        }
    }
    Ok(())
}
