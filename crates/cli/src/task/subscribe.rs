//! `sb task subscribe`: a task followed to its end.

use a2a::{ErrorKind, GetTaskRequest, SubscribeToTaskRequest, Task};
use client::Client;

use super::{Where, ids};
use crate::{
    failure::Failure,
    output::{self, Format},
    send::{Heard, Patience, Place, Show, Stop, Stopped, print_heard, waits},
};

#[derive(Debug, clap::Args)]
pub(super) struct Subscribe {
    /// The task: its id, the first characters of it, or `last`
    id: String,
    /// Only what came after this event; 0 is everything from the start
    #[arg(long, value_name = "SEQUENCE")]
    after: Option<u64>,
    #[command(flatten)]
    pub(super) place: Where,
}

pub(super) async fn subscribe(mut args: Subscribe) -> Result<(), Failure> {
    let mut patience = Patience::new(args.place.target.timeout.0)?;
    let mut followed = Followed { show: Show::whole(args.place.output), heard: Heard::brief(), cursor: None };
    let place = Place::of(args.place.url.as_deref(), &args.place.target);
    if let Err(stop) = followed.follow(&mut args, &mut patience).await {
        let heard = &mut followed.heard;
        heard.task = heard.task.take().or_else(|| nameless(&args.id, &stop));
        return Err(place.stopped(Stopped::by(stop, &patience), heard, followed.cursor.as_deref()));
    }
    match &followed.heard.task {
        Some(task) => {
            place.say(task);
            place.verdict(task)
        }
        // There was nothing after the event that was named.
        None => Ok(()),
    }
}

/// A task of which nothing was heard: whoever gave up waiting has its id, and where it cannot be had there is none.
pub(super) fn nameless(id: &str, stop: &Stop) -> Option<Task> {
    (!matches!(stop, Stop::Broken(_) | Stop::Failed(_))).then(|| Task { id: id.to_owned(), ..Task::default() })
}

/// A task that is followed.
struct Followed {
    show: Show,
    heard: Heard,
    cursor: Option<String>,
}

impl Followed {
    async fn follow(&mut self, args: &mut Subscribe, patience: &mut Patience) -> Result<(), Stop> {
        let client = patience.bear(args.place.client()).await?.map_err(Stop::Failed)?;
        args.id = patience.bear(ids::task(&client, &args.id, args.place.native())).await?.map_err(Stop::Failed)?;
        let request = || SubscribeToTaskRequest { id: args.id.clone(), ..SubscribeToTaskRequest::default() };
        let after = args.after.map(|sequence| sequence.to_string());
        let mut stream = match patience.ask(async || client.subscribe(request(), after.clone()).await).await {
            Ok(stream) => stream,
            // It has ended, and by the protocol there is nothing to subscribe to: how it ended is the answer.
            Err(Stop::Broken(client::Error::Protocol(remote)))
                if remote.kind() == Some(ErrorKind::UnsupportedOperation) =>
            {
                return self.last(&client, args, patience).await;
            }
            Err(stop) => return Err(stop),
        };
        while let Some(event) = self.show.ended_by(patience.next(&mut stream).await)? {
            let heard = self.show.event(&event).and_then(|()| self.heard.add(&event));
            self.show.ended_by(heard.map_err(Stop::Broken))?;
            self.cursor = stream.last_id().map(str::to_owned);
            if waits(&event.value) {
                break;
            }
        }
        patience.bear(self.show.finish(&stream)).await
    }

    async fn last(&mut self, client: &Client, args: &Subscribe, patience: &mut Patience) -> Result<(), Stop> {
        let request = || GetTaskRequest { id: args.id.clone(), ..GetTaskRequest::default() };
        let task = patience.ask(async || client.get(request()).await).await?;
        self.heard.task = Some(task.value);
        match args.place.output {
            Format::Json => output::line(&format!("{{\"task\":{}}}", output::one_line(task.json.get()))),
            Format::Text => print_heard(&self.heard),
        }
        Ok(())
    }
}
