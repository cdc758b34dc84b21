//! Words that nobody can guess.

/// A word of so many random bytes, in hexadecimal digits.
///
/// # Panics
///
/// When the system has no randomness. A word that could be guessed would be worse.
pub(crate) fn word(bytes: usize) -> String {
    let mut random = vec![0; bytes];
    if let Err(error) = getrandom::fill(&mut random) {
        panic!("the system has no randomness: {error}");
    }
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}
