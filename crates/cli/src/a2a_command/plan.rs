//! `sb a2a plan`: an ordered list of steps, each a piece of work for an agent with what earlier steps have given.
//!
//! A step is an entry of the queue like any other. Where the server runs its agent it is carried out at once; otherwise it waits for a worker.
//! Each is published under a key made of the plan's id and its own, so that a plan that was cut off goes on where it was when it is run
//! again under the same id.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use a2a::{PartContent, Task, error::RemoteError};
use client::Error;
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};
use uuid::Uuid;

use crate::{
    failure::Failure,
    output::{self, Format},
    routes::{RouteArgs, decode},
    send::verdict,
};

/// How often a step that waits for a worker is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Who publishes steps.
const FROM: &str = "plan";

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Run the steps of a file one after the other
    #[command(after_help = "The file is JSON:\n  \
                            {\"steps\": [{\"id\": \"notes\", \"agent\": \"researcher\", \"text\": \"Collect the release notes\"},\n             \
                            {\"id\": \"sum\", \"agent\": \"writer\", \"text\": \"Summarize them\", \"input_from\": \"notes\"}]}")]
    Run(Run),
}

#[derive(Debug, clap::Args)]
pub(super) struct Run {
    /// The plan
    file: PathBuf,
    /// Goes on with a plan that was cut off [default: a new id]
    #[arg(long, value_name = "ID")]
    plan_id: Option<String>,
    /// Leave when a step has to wait for a worker, instead of waiting with it
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    common: RouteArgs,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    id: String,
    /// There is one kind of step.
    #[serde(default, rename = "type")]
    kind: Kind,
    agent: String,
    text: String,
    #[serde(default)]
    input_from: Sources,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    #[default]
    A2aDelegate,
}

/// The steps whose results a step is given: none, one or several.
#[derive(Debug, Default, Deserialize)]
#[serde(untagged)]
enum Sources {
    #[default]
    None,
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize)]
struct Published {
    id: String,
}

/// What became of a step.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Done {
    id: String,
    agent: String,
    message_id: String,
    state: &'static str,
    result: Box<RawValue>,
}

impl Verb {
    pub(super) fn routes(&mut self) -> &mut RouteArgs {
        let Self::Run(run) = self;
        &mut run.common
    }

    pub(super) async fn perform(self) -> Result<(), Failure> {
        let Self::Run(run) = self;
        let text = fs::read_to_string(&run.file)
            .map_err(|error| Failure::usage(format!("cannot read {}", run.file.display())).caused_by(&error))?;
        let plan =
            read(&text).map_err(|why| Failure::usage(format!("{} is no plan", run.file.display())).because(why))?;
        let id = run.plan_id.clone().unwrap_or_else(|| Uuid::now_v7().to_string());
        output::error_line("plan", &output::harmless(&id));
        let mut results: BTreeMap<&str, Box<RawValue>> = BTreeMap::new();
        for step in &plan.steps {
            let Some(done) = carry_out(&run, &id, step, &results).await? else { return Ok(()) };
            match run.common.format() {
                Format::Json => run.common.print(&done, ""),
                Format::Text => {
                    let said = serde_json::from_str(done.result.get()).unwrap_or_else(|_| done.result.to_string());
                    output::print_foreign(&format!("{}: {said}\n", step.id));
                }
            }
            results.insert(&step.id, done.result);
        }
        Ok(())
    }
}

/// Reads a plan. Each step has an id of its own, and is given what earlier ones have made.
fn read(text: &str) -> Result<Plan, String> {
    let plan: Plan = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut known: Vec<&str> = Vec::new();
    for step in &plan.steps {
        let Step { id, kind: Kind::A2aDelegate, .. } = step;
        if id.is_empty() || known.contains(&id.as_str()) {
            return Err(format!("each step needs an id of its own, and `{id}` is none"));
        }
        if let Some(missing) = step.input_from.names().iter().find(|name| !known.contains(&name.as_str())) {
            return Err(format!("the step `{id}` wants the result of `{missing}`, which is no earlier step"));
        }
        known.push(id);
    }
    if plan.steps.is_empty() {
        return Err("it has no steps".to_owned());
    }
    Ok(plan)
}

impl Sources {
    fn names(&self) -> &[String] {
        match self {
            Self::None => &[],
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }
}

/// A step from its begin to its end. `None` when it waits for a worker and nobody wants to wait with it.
async fn carry_out(
    run: &Run,
    plan: &str,
    step: &Step,
    results: &BTreeMap<&str, Box<RawValue>>,
) -> Result<Option<Done>, Failure> {
    let inputs: BTreeMap<&str, &RawValue> = step
        .input_from
        .names()
        .iter()
        .filter_map(|name| Some((name.as_str(), results.get(name.as_str())?.as_ref())))
        .collect();
    let mut body = json!({"from": FROM, "to": step.agent, "text": step.text, "correlationId": plan});
    if !inputs.is_empty() {
        body["payload"] = json!({ "input": inputs });
    }
    let key = format!("plan/{plan}/{}", step.id);
    let body = Some(body.to_string().into_bytes());
    let published = run.common.answer(Method::POST, &["v1", "queue", "publish"], &[], body, Some(&key)).await?;
    let published: Published = decode(&published?)?;
    let path = ["v1", "queue", "messages", &published.id, "execute"];
    let task = match run.common.answer(Method::POST, &path, &[], None, None).await? {
        Ok(answer) => task(&answer)?,
        // Somebody else runs it, has run it, or will.
        Err(Error::Protocol(error)) if is_elsewhere(&error) => {
            let mut task = look(run, &published.id).await?;
            if !task.status.state.is_terminal() && !task.status.state.is_interrupted() {
                let said = format!("{} waits in the queue of {} as {}", step.id, step.agent, published.id);
                output::error_line("step", &output::harmless(&said));
                if run.no_wait {
                    return Ok(None);
                }
            }
            while !task.status.state.is_terminal() && !task.status.state.is_interrupted() {
                tokio::time::sleep(LOOK).await;
                task = look(run, &published.id).await?;
            }
            task
        }
        Err(error) => return Err(error.into()),
    };
    if task.status.state.is_interrupted() {
        let why = format!("the step {} waits for an answer as task {}", step.id, task.id);
        return Err(Failure::failed(why).hint(format!("answer it, then go on with --plan-id {plan}")));
    }
    verdict(&task.id, &task.status)?;
    let result = result_of(&task);
    let state = task.status.state.as_str();
    Ok(Some(Done { id: step.id.clone(), agent: step.agent.clone(), message_id: published.id, state, result }))
}

/// Whether the server does not run a step because of how things stand.
fn is_elsewhere(error: &RemoteError) -> bool {
    matches!(error.reason.as_deref(), Some("AGENT_NOT_RUN_HERE" | "NOT_WAITING"))
}

/// The task of a step.
async fn look(run: &Run, id: &str) -> Result<Task, Failure> {
    let query = [("A2A-Version", "1.0")];
    task(&run.common.answer(Method::GET, &["a2a", "tasks", id], &query, None, None).await??)
}

fn task(answer: &[u8]) -> Result<Task, Failure> {
    a2a::decode(answer).map_err(|error| Failure::failed("malformed answer").because(error.message))
}

/// What a step has made: the data of its artifacts, else their text, else what it said last.
fn result_of(task: &Task) -> Box<RawValue> {
    let parts = || task.artifacts.iter().flat_map(|artifact| &artifact.parts);
    let data = parts().find_map(|part| match &part.content {
        PartContent::Data(data) => serde_json::from_str::<Box<RawValue>>(data.get()).ok(),
        _ => None,
    });
    let text = || {
        let made: Vec<&str> = parts().filter_map(a2a::Part::as_text).collect();
        match &task.status.message {
            Some(message) if made.is_empty() => message.text(),
            _ => made.join("\n"),
        }
    };
    data.unwrap_or_else(|| serde_json::value::to_raw_value(&text()).unwrap_or_else(|_| RawValue::NULL.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_names_earlier_steps_only() {
        let plan = r#"{"steps":[{"id":"a","agent":"x","text":"1"},
            {"id":"b","type":"a2a_delegate","agent":"y","text":"2","input_from":["a"]}]}"#;
        assert_eq!(read(plan).unwrap().steps.len(), 2);
        for (wrong, why) in [
            (r#"{"steps":[]}"#, "no steps"),
            (r#"{"steps":[{"id":"","agent":"x","text":"1"}]}"#, "id of its own"),
            (r#"{"steps":[{"id":"a","agent":"x","text":"1"},{"id":"a","agent":"x","text":"1"}]}"#, "id of its own"),
            (r#"{"steps":[{"id":"a","agent":"x","text":"1","input_from":"b"}]}"#, "no earlier step"),
            (r#"{"steps":[{"id":"a","agent":"x","text":"1","type":"shell"}]}"#, "unknown variant"),
            (r#"{"steps":[{"id":"a","agent":"x","text":"1","then":"b"}]}"#, "unknown field"),
        ] {
            assert!(read(wrong).unwrap_err().contains(why), "{wrong}: {:?}", read(wrong));
        }
    }
}
