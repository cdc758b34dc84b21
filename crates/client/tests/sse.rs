//! The parser of server-sent events against whatever a remote may send: no bytes make it panic, the cap holds, how the
//! bytes were cut does not matter, and the events it saw can be written and read again.

use client::sse::{Event, Parser};
use proptest::prelude::*;

const CAP: usize = 64;

fn parse(stream: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    Parser::default().feed(stream, &mut events).expect("shorter than the cap");
    events
}

/// A stream that says these events.
fn written(events: &[Event]) -> Vec<u8> {
    let mut stream = String::new();
    for event in events {
        // An empty id takes back the one before it.
        stream.push_str(&format!("id: {}\n", event.id.as_deref().unwrap_or_default()));
        stream.push_str(&format!("event: {}\n", event.name));
        for line in event.data.split('\n') {
            stream.push_str(&format!("data: {line}\n"));
        }
        stream.push('\n');
    }
    stream.into_bytes()
}

/// Bytes that are much like a stream.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        6 => prop::sample::select(vec![
            &b"\n"[..], b"\r", b"\r\n", b"\n\n", b"data: ", b"data:", b"data", b"id: ", b"id:\0", b"id", b"event: ", b"retry: 1",
            b": ", b"\xef\xbb\xbf", b"\xff", b"\xc3", b"{\"a\":1}",
        ]).prop_map(<[u8]>::to_vec),
        2 => "[a-z: ]{0,8}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..8),
    ];
    prop::collection::vec(piece, 0..50).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_seen_can_be_said_again(stream in stream(), noise in prop::collection::vec(any::<u8>(), 0..200)) {
        for bytes in [stream, noise] {
            let events = parse(&bytes);
            prop_assert_eq!(parse(&written(&events)), events);
        }
    }

    #[test]
    fn what_is_said_is_seen(
        said in prop::collection::vec((prop::option::of("[^\\x00\r\n]{1,10}"), "[^\r\n]{1,10}", "[^\r]{0,40}"), 0..10),
    ) {
        let mut events = Vec::new();
        for (id, name, data) in said {
            events.push(Event { id, name, data });
        }
        prop_assert_eq!(parse(&written(&events)), events);
    }

    #[test]
    fn the_cap_holds_however_it_is_cut(stream in stream(), cuts in prop::collection::vec(0_usize..9, 0..80)) {
        let mut events = Vec::new();
        let mut parser = Parser::new(CAP);
        let (mut rest, mut outcome) = (&stream[..], Ok(()));
        for cut in cuts.into_iter().chain([usize::MAX]) {
            let (chunk, next) = rest.split_at(cut.min(rest.len()));
            rest = next;
            outcome = parser.feed(chunk, &mut events);
            if outcome.is_err() {
                break;
            }
        }
        for event in &events {
            // What is no text becomes a replacement character, of three bytes.
            prop_assert!(event.data.len() <= 3 * CAP, "{} bytes", event.data.len());
        }
        let mut whole = Vec::new();
        let at_once = Parser::new(CAP).feed(&stream, &mut whole);
        prop_assert_eq!(outcome.is_ok(), at_once.is_ok());
        prop_assert_eq!(events, whole);
    }
}
