//! Programs that run outside the exchange: made without a file, given a turn that was told, heard through a channel.

use std::{path::PathBuf, sync::Arc};

use a2a::{Message, Part};
use agents::command::{OutputMode, Program, Quarters};
use exchange::{Outcome, Output, Past, Said, Turn};
use store::TaskId;
use tokio_util::sync::CancellationToken;

fn agent() -> store::AgentId {
    "outside".parse().expect("an id")
}

fn program(script: &str) -> Program {
    Program::new(["sh", "-c", script].map(str::to_owned).to_vec(), PathBuf::from("/"))
}

fn turn(cancel: CancellationToken) -> Turn {
    let said = |text: &str| Message { parts: vec![Part::text(text)], ..Message::default() };
    Turn {
        agent: "outside".parse().expect("an agent's id"),
        task: TaskId::mint(),
        context: Arc::from("ctx"),
        message: said("now"),
        attempt: 2,
        tries: 2,
        number: 1,
        state: Some(r#"{"done":3}"#.into()),
        resumed: false,
        cancel,
        past: Past::told(vec![said("first"), said("now")], vec![said("long ago")]),
        origin: exchange::Origin::default(),
        request: exchange::RequestOptions::default(),
        ledger: exchange::Ledger::default(),
        errands: None,
    }
}

async fn run(program: Program, cancel: CancellationToken) -> (Outcome, Vec<Said>) {
    let quarters = Quarters { mark: Arc::from("an-instance"), ..Quarters::default() };
    let agents::kind::Built { agent, warnings, .. } = program.into_agent(agent(), quarters).expect("a program");
    assert!(warnings.is_empty(), "{warnings:?}");
    let (output, mut receiver) = Output::channel(1);
    let heard = async {
        let mut heard = Vec::new();
        while let Some(said) = receiver.recv().await {
            heard.push(said);
        }
        heard
    };
    tokio::join!(agent.run(turn(cancel), output), heard)
}

#[tokio::test]
async fn a_program_without_a_file_is_told_its_turn_and_heard() {
    let (outcome, said) = run(program("cat"), CancellationToken::new()).await;
    assert_eq!(outcome, Outcome::Completed(Vec::new()));
    let mut text = String::new();
    for (n, said) in said.iter().enumerate() {
        let Said::Artifact { artifact, append, .. } = said else { panic!("text is an artifact: {said:?}") };
        assert_eq!(*append, n > 0);
        text += &exchange::text_of(&artifact.parts);
    }
    let input: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&input["agent"], &input["context"], &input["attempt"]), (&"outside".into(), &"ctx".into(), &2.into()));
    assert_eq!(input["history"][1]["parts"][0]["text"], "now");
    assert_eq!(input["context_history"][0]["parts"][0]["text"], "long ago");
    assert_eq!(input["state"]["done"], 3);
}

#[tokio::test]
async fn its_lines_are_words_and_its_environment_is_what_was_given() {
    let script = r#"printf '{"keep":"%s"}\n' "$GIVEN $CARGO_MANIFEST_DIR $SB_GUARD"
        echo '{"statusUpdate":{"status":{"state":"TASK_STATE_INPUT_REQUIRED","message":{"parts":[{"text":"which?"}]}}}}'"#;
    let given = Program {
        output: Some(OutputMode::Events),
        env: [("GIVEN".to_owned(), "yes".to_owned())].into(),
        ..program(script)
    };
    let (outcome, said) = run(given, CancellationToken::new()).await;
    assert_eq!(outcome, Outcome::InputRequired(vec![Part::text("which?")]));
    let [Said::Keep(state)] = &said[..] else { panic!("it keeps something: {said:?}") };
    // The mark goes on with the number of the run.
    assert!(state.starts_with(b"\"yes  an-instance/"), "{said:?}");
}

#[tokio::test]
async fn a_cancel_ends_it_and_a_program_that_is_not_there_is_known_before_it_runs() {
    let cancel = CancellationToken::new();
    cancel.cancel();
    assert_eq!(run(program("sleep 60"), cancel).await.0, Outcome::Canceled);
    let missing = Program::new(vec!["no-such-program-anywhere".to_owned()], PathBuf::from("/"));
    let agents::kind::Built { warnings, .. } = missing.into_agent(agent(), Quarters::default()).unwrap();
    assert_eq!(warnings, ["tasks will fail: the program `no-such-program-anywhere` is not in PATH"]);
    assert!(Program::new(Vec::new(), PathBuf::from("/")).into_agent(agent(), Quarters::default()).is_err());
}
