//! Which agent somebody may have meant who named one that is not there.

use store::AgentId;

/// The nearest of these ids, if it is near: one letter off in a short name, two in a longer one.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a AgentId>) -> Option<&'a AgentId> {
    let wrong = wrong.to_lowercase();
    let letters = wrong.chars().count();
    let most = match letters {
        0..=1 => return None,
        2..=4 => 1,
        _ => 2,
    };
    let mut best: Option<(usize, &AgentId)> = None;
    for id in known {
        // What is so much longer or shorter needs no closer look.
        if id.as_str().len().abs_diff(letters) > most {
            continue;
        }
        let distance = strsim::osa_distance(&wrong, &id.as_str().to_lowercase());
        if distance <= most && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, id));
        }
    }
    best.map(|(_, id)| id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_is_meant() {
        let known: Vec<AgentId> = ["echo", "stream", "weather-report", "ask"].map(|id| id.parse().unwrap()).into();
        let meant = |wrong: &str| nearest(wrong, &known).map(ToString::to_string);
        for (wrong, right) in [
            ("ech", Some("echo")),
            ("Echo", Some("echo")),
            ("ehco", Some("echo")),
            ("steam", Some("stream")),
            ("weather_reprt", Some("weather-report")),
            ("as", Some("ask")),
            ("e", None),
            ("", None),
            ("oh", None),
            ("poet", None),
            (&"x".repeat(5000), None),
        ] {
            assert_eq!(meant(wrong).as_deref(), right, "{wrong}");
        }
    }
}
