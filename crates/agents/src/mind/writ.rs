//! The commands in a model's reply: a line that begins with one of the verbs, outside of fences. They are found while the reply arrives, so
//! that everything else can be passed on at once, and nothing of a command ever is.

/// A verb that a reply may have.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verb {
    /// As it is written.
    pub(crate) name: &'static str,
    /// Which capability grants it: any verb of the same bundle. Nothing has to grant what has none.
    pub(crate) bundle: &'static str,
    /// What its frame ends with.
    pub(crate) end: &'static str,
    /// With what its block ends, where it has one.
    closes: Option<&'static str>,
}

const fn verb_of(name: &'static str, bundle: &'static str, end: &'static str) -> Verb {
    Verb { name, bundle, end, closes: None }
}

/// All of them, those for which there is nothing here yet included: they are known, and refused with a reason.
pub(crate) const VERBS: [Verb; 19] = [
    verb_of("/help", "", "HELP"),
    verb_of("/agent", "delegation", "AGENT"),
    Verb { closes: Some("/endparallel"), ..verb_of("/parallel", "delegation", "PARALLEL") },
    verb_of("/a2a", "a2a", "A2A"),
    Verb { closes: Some("/endwrite"), ..verb_of("/write", "write", "WRITE") },
    verb_of("/read", "read", "READ"),
    verb_of("/list", "read", "LIST"),
    verb_of("/map", "read", "MAP"),
    verb_of("/fetch", "web", "FETCH"),
    verb_of("/search", "web", "SEARCH"),
    verb_of("/browse", "web", "BROWSE"),
    verb_of("/exec", "exec", "EXEC"),
    verb_of("/mem", "mem", "MEMORY"),
    verb_of("/mcp", "mcp", "MCP"),
    verb_of("/advise", "advise", "ADVISE"),
    verb_of("/todo", "todos", "TODO"),
    verb_of("/schedule", "schedule", "SCHEDULE"),
    verb_of("/lesson", "lessons", "LESSON"),
    verb_of("/pane", "delegation", "PANE"),
];

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Writ {
    pub(crate) verb: &'static Verb,
    /// What stands behind the verb.
    pub(crate) args: String,
    /// The lines of its block, if its verb has one.
    pub(crate) body: Option<Vec<String>>,
    /// Whether the block was closed.
    pub(crate) closed: bool,
    /// The reply was cut off in the middle of it.
    pub(crate) cut: bool,
}

impl Writ {
    /// Its first line, as it was written.
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.verb.name, self.args).trim_end().to_owned()
    }
}

/// The verb of a line and what stands behind it, if it is a command.
pub(crate) fn verb(line: &str) -> Option<(&'static Verb, &str)> {
    let line = line.trim_end();
    let (name, args) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    VERBS.iter().find(|verb| verb.name == name).map(|verb| (verb, args.trim()))
}

/// Reads a reply as it arrives.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    writs: Vec<Writ>,
    /// The character of the fence that is open, and how many of them.
    fence: Option<(char, usize)>,
    /// The line that has begun, as far as it has come.
    line: String,
    /// Nothing of that line was passed on.
    holds: bool,
    /// A block is open: the last command's.
    in_block: bool,
}

impl Reader {
    /// Takes the next piece of a reply; gives what may be passed on.
    pub(crate) fn feed(&mut self, piece: &str) -> String {
        let mut said = String::with_capacity(piece.len());
        for part in piece.split_inclusive('\n') {
            let starts = self.line.is_empty();
            self.line.push_str(part);
            if starts {
                self.holds = true;
            }
            if self.holds {
                if self.may_be_command() {
                    if part.ends_with('\n') {
                        self.finish(&mut said);
                    }
                    continue;
                }
                self.holds = false;
                said.push_str(&self.line);
            } else {
                said.push_str(part);
            }
            if part.ends_with('\n') {
                self.finish(&mut said);
            }
        }
        said
    }

    /// The reply is over. Gives what was held back and is no command. A command that was `cut` off is known as that.
    pub(crate) fn end(&mut self, cut: bool) -> String {
        let mut said = String::new();
        let (before, was_in_block) = (self.writs.len(), self.in_block);
        if !self.line.is_empty() {
            self.finish(&mut said);
        }
        let is_last = self.writs.len() > before || was_in_block;
        if let Some(writ) = self.writs.last_mut().filter(|_| cut && is_last) {
            writ.cut = true;
        }
        self.in_block = false;
        said
    }

    /// The commands so far, in order.
    pub(crate) fn writs(&self) -> &[Writ] {
        &self.writs
    }

    /// Whether nothing of the line that has begun may be passed on yet.
    fn may_be_command(&self) -> bool {
        if self.in_block {
            return true;
        }
        if self.fence.is_some() || !self.line.starts_with('/') {
            return false;
        }
        match self.line.split_once(char::is_whitespace) {
            Some((name, _)) => VERBS.iter().any(|verb| verb.name == name) || CLOSERS.contains(&name),
            None => VERBS.iter().map(|verb| verb.name).chain(CLOSERS).any(|name| name.starts_with(&self.line)),
        }
    }

    /// A line has ended.
    fn finish(&mut self, said: &mut String) {
        let line = std::mem::take(&mut self.line);
        let bare = line.trim_end_matches(['\n', '\r']);
        if self.in_block {
            if let Some(writ) = self.writs.last_mut() {
                if writ.verb.closes.is_some_and(|closes| bare.trim_end() == closes) {
                    writ.closed = true;
                    self.in_block = false;
                } else if let Some(body) = &mut writ.body {
                    // What would end the block is written with a backslash.
                    let escaped = bare.strip_prefix('\\').filter(|rest| rest.starts_with("/end"));
                    body.push(escaped.unwrap_or(bare).to_owned());
                }
            }
            return;
        }
        self.fence = fence_after(self.fence, bare);
        if !self.holds {
            return;
        }
        if CLOSERS.contains(&bare.trim_end()) {
            return;
        }
        match verb(bare).filter(|_| self.fence.is_none()) {
            Some((verb, args)) => {
                self.in_block = verb.closes.is_some();
                let body = verb.closes.map(|_| Vec::new());
                self.writs.push(Writ { verb, args: args.to_owned(), closed: body.is_none(), cut: false, body });
            }
            None => said.push_str(&line),
        }
    }
}

/// The fence that is open behind a line, as CommonMark has it: one is closed by at least as many of its own character, and nothing behind them.
fn fence_after(open: Option<(char, usize)>, line: &str) -> Option<(char, usize)> {
    let text = line.trim_start_matches(' ');
    let Some(mark) = text.chars().next().filter(|c| matches!(c, '`' | '~') && line.len() - text.len() < 4) else {
        return open;
    };
    let count = text.chars().take_while(|c| *c == mark).count();
    let behind = text.trim_start_matches(mark);
    match open {
        Some((of, least)) if of == mark && count >= least && behind.trim().is_empty() => None,
        None if count >= 3 && !(mark == '`' && behind.contains('`')) => Some((mark, count)),
        open => open,
    }
}

/// What ends a block says nothing where none is open.
const CLOSERS: [&str; 5] = ["/endparallel", "/endwrite", "/endmem", "/endtodo", "/endlesson"];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(reply: &str, pieces: usize) -> (String, Vec<Writ>) {
        let mut reader = Reader::default();
        let mut said = String::new();
        let chars: Vec<char> = reply.chars().collect();
        for piece in chars.chunks(pieces.max(1)) {
            said += &reader.feed(&piece.iter().collect::<String>());
        }
        said += &reader.end(false);
        (said, reader.writs().to_vec())
    }

    #[test]
    fn commands_are_lines_that_begin_with_a_verb() {
        let reply = "I ask.\n/agent research find it\n /agent no\n/agentx no\n/path/to no\nsee /agent\n/help";
        for pieces in [1, 2, 3, 7, 1000] {
            let (said, writs) = read(reply, pieces);
            assert_eq!(said, "I ask.\n /agent no\n/agentx no\n/path/to no\nsee /agent\n", "{pieces}");
            let lines: Vec<String> = writs.iter().map(Writ::line).collect();
            assert_eq!(lines, ["/agent research find it", "/help"], "{pieces}");
        }
    }

    #[test]
    fn a_fence_has_no_commands_and_a_block_has_no_fences() {
        let reply = "```\n/agent a b\n```\n/write x.md\n```\n/agent is text here\n\\/endwrite\n/endwrite\n~~~\n/help\n";
        let (said, writs) = read(reply, 4);
        assert_eq!(said, "```\n/agent a b\n```\n~~~\n/help\n");
        assert_eq!(writs.len(), 1);
        assert_eq!(writs[0].body.as_deref().unwrap(), ["```", "/agent is text here", "/endwrite"]);
        assert!(writs[0].closed);
        let (_, writs) = read("/write x\nhalf", 3);
        assert!(!writs[0].closed);
        assert_eq!(writs[0].body.as_deref().unwrap(), ["half"]);
    }

    #[test]
    fn fences_are_those_of_commonmark() {
        for fenced in [
            "````\n```\n/agent a b\n```\n/agent a b\n````\n",
            "```md\n```js\n/agent a b\n```\n",
            "  ```\n/agent a b\n  ```\n",
            "~~~\n```\n/agent a b\n~~~\n",
        ] {
            assert_eq!(read(fenced, 5).1, [], "{fenced}");
        }
        assert_eq!(read("    ```\n/agent a b\n", 5).1.len(), 1, "that is no fence");
        assert_eq!(read("```x``` is code\n/agent a b\n", 5).1.len(), 1, "nor is that");
    }

    #[test]
    fn text_is_passed_on_as_it_comes() {
        let mut reader = Reader::default();
        assert_eq!(reader.feed("Hel"), "Hel");
        assert_eq!(reader.feed("lo\n/"), "lo\n");
        assert_eq!(reader.feed("ag"), "");
        assert_eq!(reader.feed("es ago"), "/ages ago", "what can be no verb any more is not held");
        assert_eq!(reader.feed("\n/agent"), "\n");
        assert_eq!(reader.feed(" x y"), "");
        assert_eq!(reader.end(false), "");
        assert_eq!(reader.writs()[0].line(), "/agent x y");
    }

    #[test]
    fn a_command_that_was_cut_off_is_known_as_that() {
        let cut = |reply: &str| {
            let mut reader = Reader::default();
            reader.feed(reply);
            reader.end(true);
            reader.writs().iter().map(|writ| writ.cut).collect::<Vec<_>>()
        };
        assert_eq!(cut("/help\n/agent a do the fol"), [false, true]);
        assert_eq!(cut("/help\n/write a\nhalf"), [false, true]);
        assert_eq!(cut("/agent a b\n"), [false]);
        assert_eq!(cut("/agent a b\nand tex"), [false]);
    }

    proptest! {
        /// However a reply is cut into pieces, the same is said and the same commanded, and no line that is said is a command.
        #[test]
        fn pieces_make_no_difference(
            lines in prop::collection::vec(prop::sample::select(vec![
                "/agent a b", "/agents", "text", "/write f", "/endwrite", "```", "~~~x", "/parallel", "/endparallel", "", " /help",
                "/help\r", "\\/endwrite", "/a2a call x y", "/", "ä/agent",
            ]), 0..12),
            pieces in 1usize..9,
            ended in any::<bool>(),
        ) {
            let reply = lines.join("\n") + if ended { "\n" } else { "" };
            let whole = read(&reply, usize::MAX);
            prop_assert_eq!(read(&reply, pieces), whole.clone());
            let mut fenced = None;
            for line in whole.0.lines() {
                fenced = fence_after(fenced, line);
                prop_assert!(fenced.is_some() || verb(line).is_none(), "{}", line);
            }
        }
    }
}
