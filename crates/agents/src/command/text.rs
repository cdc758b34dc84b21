//! Output as text: bytes in any cut become pieces of one artifact, with characters kept whole.

use exchange::Output;

/// Reads a program whose output is the text of one artifact.
#[derive(Debug, Default)]
pub(super) struct Text {
    /// The beginning of a character whose rest has not come yet; at most three bytes.
    rest: Vec<u8>,
    begun: bool,
}

impl Text {
    pub(super) async fn take(&mut self, bytes: &[u8], out: &Output) {
        let text = self.decode(bytes);
        self.say(text, out).await;
    }

    pub(super) async fn finish(&mut self, out: &Output) {
        if !self.rest.is_empty() {
            self.rest.clear();
            self.say("\u{fffd}".to_owned(), out).await;
        }
    }

    async fn say(&mut self, text: String, out: &Output) {
        if !text.is_empty() {
            out.text(text, !self.begun).await;
            self.begun = true;
        }
    }

    /// The whole characters so far. What is no UTF-8 becomes U+FFFD.
    fn decode(&mut self, bytes: &[u8]) -> String {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        let mut text = String::with_capacity(all.len());
        let mut left = all.as_slice();
        loop {
            let error = match std::str::from_utf8(left) {
                Ok(valid) => {
                    text.push_str(valid);
                    return text;
                }
                Err(error) => error,
            };
            let (valid, after) = left.split_at(error.valid_up_to());
            text.push_str(&String::from_utf8_lossy(valid));
            let Some(invalid) = error.error_len() else {
                self.rest = after.to_vec();
                return text;
            };
            text.push('\u{fffd}');
            left = &after[invalid..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_cut_gives_the_same_text() {
        let bytes = "aé€😀z".as_bytes();
        for first in 0..bytes.len() {
            for second in first..bytes.len() {
                let mut text = Text::default();
                let mut all = text.decode(&bytes[..first]);
                all += &text.decode(&bytes[first..second]);
                all += &text.decode(&bytes[second..]);
                assert_eq!(all, "aé€😀z");
                assert!(text.rest.is_empty());
            }
        }
    }

    #[test]
    fn what_is_no_text_is_replaced() {
        let mut text = Text::default();
        assert_eq!(text.decode(b"a\xffb\xc3"), "a\u{fffd}b");
        assert_eq!(text.decode(b"x"), "\u{fffd}x");
    }
}
