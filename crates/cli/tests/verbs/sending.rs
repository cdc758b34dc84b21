//! `sb send` on a terminal. `sending.md` has what else it does.

use super::{rig::Home, terminal::Terminal};

#[test]
fn a_wait_is_shown_on_a_terminal_and_cleared() {
    let home = Home::new();
    let _server = home.serve();
    let mut command = home.command(&["send", "--agent", "slow", "2500"]);
    let (code, screen) = Terminal::start(command.env("TERM", "xterm")).ends();
    assert_eq!(code, Some(0));
    let at = screen.find("waiting for slow… 1 s").unwrap_or_else(|| panic!("{screen:?}"));
    let after = &screen[at..];
    let answer = after.find("done after").unwrap();
    assert!(after[..answer].ends_with("\r\u{1b}[K"), "{screen:?}");
    let dumb = Terminal::start(home.command(&["send", "--agent", "slow", "1500"]).env("TERM", "dumb")).ends().1;
    assert!(!dumb.contains("waiting") && !dumb.contains('\u{1b}'), "{dumb:?}");
}
