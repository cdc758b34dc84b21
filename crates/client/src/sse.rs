//! Server-sent events, read incrementally: bytes in, events out, no I/O.
//!
//! Follows the WHATWG event stream format: LF, CR and CRLF end lines, however the bytes were cut into
//! chunks; comments are skipped; an event without data is not one; what the stream's end interrupts is lost.

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The id in effect: this event's or the last one before it that had one.
    pub id: Option<String>,
    /// Its name; `message` when it has none.
    pub name: String,
    /// Its data lines, joined by LF.
    pub data: String,
}

/// A line or an event's data is longer than the cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than {cap} bytes")]
pub struct TooLong {
    /// The cap.
    pub cap: usize,
}

/// The parser's state between two chunks.
#[derive(Debug)]
pub struct Parser {
    cap: usize,
    line: Vec<u8>,
    /// The last byte was a CR: an LF that follows belongs to it.
    after_cr: bool,
    /// No line has been read: a byte order mark may come.
    at_start: bool,
    id: Option<String>,
    name: String,
    data: String,
    has_data: bool,
    retry_ms: Option<u64>,
}

impl Default for Parser {
    fn default() -> Self {
        Self::new(16 * 1024 * 1024)
    }
}

impl Parser {
    /// A parser at the start of a stream, for events up to `cap` bytes.
    pub fn new(cap: usize) -> Self {
        Self {
            cap,
            line: Vec::new(),
            after_cr: false,
            at_start: true,
            id: None,
            name: String::new(),
            data: String::new(),
            has_data: false,
            retry_ms: None,
        }
    }

    /// The id in effect, also when no event has carried it yet.
    pub fn last_id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The reconnection time that the stream asked for, in milliseconds.
    pub fn retry_ms(&self) -> Option<u64> {
        self.retry_ms
    }

    /// How many bytes are worked through when this chunk is read: only at the end of a line is what came before it read again.
    pub fn work(&self, chunk: &[u8]) -> usize {
        let ends_a_line = chunk.iter().any(|byte| matches!(byte, b'\n' | b'\r'));
        chunk.len() + if ends_a_line { self.line.len() + self.data.len() } else { 0 }
    }

    /// Reads a chunk and adds the events that it completes to `events`. After an error the stream is of no use.
    pub fn feed(&mut self, chunk: &[u8], events: &mut Vec<Event>) -> Result<(), TooLong> {
        let mut rest = chunk;
        if self.after_cr && !rest.is_empty() {
            self.after_cr = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.extend_line(&rest[..end])?;
            let ended_by_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if ended_by_cr {
                match rest.first() {
                    Some(b'\n') => rest = &rest[1..],
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
            self.end_line(events)?;
        }
        self.extend_line(rest)
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if self.line.len() + bytes.len() > self.cap {
            return Err(TooLong { cap: self.cap });
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, events: &mut Vec<Event>) -> Result<(), TooLong> {
        let mut bytes = std::mem::take(&mut self.line);
        let result = self.read_line(&bytes, events);
        // The buffer is kept: a stream is many lines of about the same length.
        bytes.clear();
        self.line = bytes;
        result
    }

    fn read_line(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), TooLong> {
        let bytes = if self.at_start { bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes) } else { bytes };
        self.at_start = false;
        if bytes.is_empty() {
            self.dispatch(events);
            return Ok(());
        }
        let line = String::from_utf8_lossy(bytes);
        let (field, value) = match line.split_once(':') {
            Some((field, value)) => (field, value.strip_prefix(' ').unwrap_or(value)),
            None => (line.as_ref(), ""),
        };
        match field {
            "data" => {
                if self.data.len() + value.len() + 1 > self.cap {
                    return Err(TooLong { cap: self.cap });
                }
                if self.has_data {
                    self.data.push('\n');
                }
                self.data.push_str(value);
                self.has_data = true;
            }
            "event" => value.clone_into(&mut self.name),
            "id" if !value.contains('\0') => self.id = Some(value.to_owned()).filter(|id| !id.is_empty()),
            "retry" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.retry_ms = value.parse().ok();
            }
            // Comments (an empty field name) and fields of the future.
            _ => {}
        }
        Ok(())
    }

    fn dispatch(&mut self, events: &mut Vec<Event>) {
        let mut name = std::mem::take(&mut self.name);
        let data = std::mem::take(&mut self.data);
        if !std::mem::take(&mut self.has_data) {
            return;
        }
        if name.is_empty() {
            "message".clone_into(&mut name);
        }
        events.push(Event { id: self.id.clone(), name, data });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(stream: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        Parser::default().feed(stream, &mut events).unwrap();
        events
    }

    fn event(id: Option<&str>, name: &str, data: &str) -> Event {
        Event { id: id.map(str::to_owned), name: name.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn fields_make_an_event() {
        assert_eq!(
            parse(b": hello\nid: 7\nevent: x\ndata: a\ndata:b\nfuture: y\n\ndata\n\n"),
            [event(Some("7"), "x", "a\nb"), event(Some("7"), "message", "")]
        );
    }

    #[test]
    fn all_line_ends_are_equal() {
        let expected = [event(Some("1"), "message", "a"), event(Some("2"), "message", "b")];
        assert_eq!(parse(b"id: 1\ndata: a\n\nid: 2\ndata: b\n\n"), expected);
        assert_eq!(parse(b"id: 1\rdata: a\r\rid: 2\rdata: b\r\r"), expected);
        assert_eq!(parse(b"id: 1\r\ndata: a\r\n\r\nid: 2\r\ndata: b\r\n\r\n"), expected);
    }

    #[test]
    fn one_space_after_the_colon_goes() {
        assert_eq!(parse(b"data:  a\n\n"), [event(None, "message", " a")]);
    }

    #[test]
    fn an_event_without_data_is_none_but_its_id_counts() {
        let mut parser = Parser::default();
        let mut events = Vec::new();
        parser.feed(b"id: 3\n\nevent: x\n\n: keep-alive\n\n", &mut events).unwrap();
        assert_eq!(events, []);
        assert_eq!(parser.last_id(), Some("3"));
        parser.feed(b"data: d\n\n", &mut events).unwrap();
        assert_eq!(events, [event(Some("3"), "message", "d")], "the name of an event without data is forgotten");
    }

    #[test]
    fn what_the_end_interrupts_is_lost() {
        assert_eq!(parse(b"data: a\n\ndata: b\n"), [event(None, "message", "a")]);
    }

    #[test]
    fn marks_ids_and_retry() {
        let mut parser = Parser::default();
        let mut events = Vec::new();
        parser.feed(b"\xef\xbb\xbfdata: a\nid: x\0y\nretry: 250\nretry: 2x\n\n", &mut events).unwrap();
        assert_eq!(events, [event(None, "message", "a")]);
        assert_eq!(parser.retry_ms(), Some(250));
    }

    #[test]
    fn a_line_and_an_event_have_a_cap() {
        let mut events = Vec::new();
        assert!(Parser::new(8).feed(b"data: 12345", &mut events).is_err());
        assert!(Parser::new(8).feed(b"data:123\ndata:456\ndata:789\n", &mut events).is_err());
        assert!(Parser::new(8).feed(b"data:123\n\ndata:456\n\ndata:789\n\n", &mut events).is_ok());
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_events(
            pieces in prop::collection::vec(
                prop::sample::select(vec![
                    &b"\n"[..], b"\r", b"\r\n", b"data: x", b"data:\xc3\xa4", b"id: 1", b"event: e", b":c",
                    b"\xef\xbb\xbf", b"\xff", b"retry: 5",
                ]),
                0..40,
            ),
            cuts in prop::collection::vec(1_usize..5, 0..60),
        ) {
            let stream = pieces.concat();
            let mut parser = Parser::default();
            let mut events = Vec::new();
            let mut rest = &stream[..];
            for cut in cuts {
                let (chunk, next) = rest.split_at(cut.min(rest.len()));
                parser.feed(chunk, &mut events).unwrap();
                rest = next;
            }
            parser.feed(rest, &mut events).unwrap();
            prop_assert_eq!(events, parse(&stream));
        }
    }
}
