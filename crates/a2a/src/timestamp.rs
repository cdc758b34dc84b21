//! A point in time with millisecond precision: read with any RFC 3339 offset, written in UTC with three decimals.
//!
//! In what others answer the offset may be missing, as several servers leave it out; that is read as UTC. In what they ask for
//! it may not: there it would be anybody's guess.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::wire::value;

/// Milliseconds since 1970-01-01T00:00:00Z, within the years 1 to 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

const DAY_MILLIS: i64 = 86_400_000;
const DAYS_OF_400_YEARS: i64 = 146_097;
/// From the first of March of the year 0 to 1970-01-01.
const DAYS_BEFORE_1970: i64 = 719_468;

/// A point in time in a request, whose offset has to be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Zoned(pub Timestamp);

/// The text was not an RFC 3339 date and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedTimestamp;

impl Timestamp {
    /// 0001-01-01T00:00:00.000Z
    const MIN: i64 = -62_135_596_800_000;
    /// 9999-12-31T23:59:59.999Z
    const MAX: i64 = 253_402_300_799_999;

    /// The point in time so many milliseconds after the epoch, held within the years that can be written.
    pub const fn from_millis(millis: i64) -> Self {
        if millis < Self::MIN {
            return Self(Self::MIN);
        }
        if millis > Self::MAX {
            return Self(Self::MAX);
        }
        Self(millis)
    }

    pub const fn as_millis(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date_of(self.0.div_euclid(DAY_MILLIS));
        let millis = self.0.rem_euclid(DAY_MILLIS);
        let (hour, minute, second) = (millis / 3_600_000, millis / 60_000 % 60, millis / 1000 % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", millis % 1000)
    }
}

impl FromStr for Timestamp {
    type Err = MalformedTimestamp;

    fn from_str(text: &str) -> Result<Self, MalformedTimestamp> {
        read(text.as_bytes()).ok_or(MalformedTimestamp)
    }
}

/// Reads `YYYY-MM-DDThh:mm:ss[.fraction](Z|±hh:mm)`. What is finer than a millisecond is cut off.
fn read(text: &[u8]) -> Option<Timestamp> {
    let (date_and_time, rest) = text.split_at_checked(19)?;
    let [_, _, _, _, b'-', _, _, b'-', _, _, b'T' | b't', _, _, b':', _, _, b':', _, _] = date_and_time else {
        return None;
    };
    let year = digits(&text[0..4])?;
    let month = digits(&text[5..7])?;
    let day = digits(&text[8..10])?;
    let hour = digits(&text[11..13])?;
    let minute = digits(&text[14..16])?;
    let second = digits(&text[17..19])?;
    // RFC 3339 writes a leap second as 60; it is the first moment of the next minute here.
    let in_range = year >= 1 && (1..=12).contains(&month) && hour < 24 && minute < 60 && second <= 60;
    if !in_range || day < 1 || day > days_in(year, month) {
        return None;
    }

    let (fraction, offset) = match rest {
        [b'.', rest @ ..] => {
            let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if length == 0 {
                return None;
            }
            rest.split_at(length)
        }
        rest => (&[][..], rest),
    };
    let mut millis = 0;
    for place in 0..3 {
        millis = millis * 10 + fraction.get(place).map_or(0, |digit| i64::from(digit - b'0'));
    }
    let offset_minutes = match offset {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), hours @ .., b':', m1, m2] if hours.len() == 2 => {
            let (hours, minutes) = (digits(hours)?, digits(&[*m1, *m2])?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let total = hours * 60 + minutes;
            if *sign == b'-' { -total } else { total }
        }
        _ => return None,
    };

    let minutes = hour * 60 + minute - offset_minutes;
    let total = days_to(year, month, day) * DAY_MILLIS + minutes * 60_000 + second * 1000 + millis;
    (Timestamp::MIN..=Timestamp::MAX).contains(&total).then_some(Timestamp(total))
}

fn digits(text: &[u8]) -> Option<i64> {
    let mut number = 0;
    for byte in text {
        if !byte.is_ascii_digit() {
            return None;
        }
        number = number * 10 + i64::from(byte - b'0');
    }
    Some(number)
}

fn days_in(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. Years are counted from March, so that the leap day is the
/// last of its year and months have lengths that follow one formula.
fn days_to(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let months_since_march = (month + 9) % 12;
    let day_of_year = (153 * months_since_march + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - DAYS_BEFORE_1970
}

/// The inverse of [`days_to`].
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + DAYS_BEFORE_1970;
    let era = days.div_euclid(DAYS_OF_400_YEARS);
    let day_of_era = days.rem_euclid(DAYS_OF_400_YEARS);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (year_of_era * 365 + year_of_era / 4 - year_of_era / 100);
    let months_since_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * months_since_march + 2) / 5 + 1;
    let month = (months_since_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era;
    (if month <= 2 { year + 1 } else { year }, month, day)
}

impl fmt::Display for MalformedTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an RFC 3339 date and time")
    }
}

impl std::error::Error for MalformedTimestamp {}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Reader { needs_offset: false })
    }
}

impl Serialize for Zoned {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Zoned {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Reader { needs_offset: true }).map(Self)
    }
}

value!(Timestamp);
value!(Zoned);

struct Reader {
    needs_offset: bool,
}

impl Visitor<'_> for Reader {
    type Value = Timestamp;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an RFC 3339 date and time")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Timestamp, E> {
        let read = text.parse().ok().or_else(|| (!self.needs_offset).then(|| format!("{text}Z").parse().ok())?);
        read.ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read_and_utc_is_written() {
        for (text, written) in [
            ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000Z"),
            ("2026-03-01T12:00:00.5+01:00", "2026-03-01T11:00:00.500Z"),
            ("2026-03-01t12:00:00.123999999-05:30", "2026-03-01T17:30:00.123Z"),
            ("1969-12-31T23:59:59.9999z", "1969-12-31T23:59:59.999Z"),
            ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000Z"),
            ("2024-02-29T23:59:60Z", "2024-03-01T00:00:00.000Z"),
            ("2000-02-29T00:00:00.01-00:00", "2000-02-29T00:00:00.010Z"),
        ] {
            assert_eq!(text.parse::<Timestamp>().unwrap().to_string(), written, "{text}");
        }
    }

    #[test]
    fn an_answer_may_leave_the_offset_out_and_a_request_may_not() {
        for (text, lenient, strict) in [
            (r#""2026-03-01T12:00:00.5Z""#, true, true),
            (r#""2026-03-01T12:00:00.5""#, true, false),
            (r#""2026-03-01""#, false, false),
            (r#""2026-03-01T12:00:00+""#, false, false),
        ] {
            let answer = serde_json::from_str::<Timestamp>(text);
            assert_eq!(answer.is_ok(), lenient, "{text}");
            if let Ok(timestamp) = answer {
                assert_eq!(timestamp.to_string(), "2026-03-01T12:00:00.500Z");
            }
            assert_eq!(serde_json::from_str::<Zoned>(text).is_ok(), strict, "{text}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        for text in [
            "",
            "now",
            "2026-03-01",
            "2026-03-01T12:00:00",
            "2026-03-01 12:00:00Z",
            "2026-13-01T12:00:00Z",
            "2026-03-01T12:00:00Z[UTC]",
            "2026-03-01T12:00:00,5Z",
            "20260301T120000Z",
            "2026-03-01T12:00:00+0100",
            "+002026-03-01T12:00:00Z",
            "2026-03-01T12:00:00é+01:0",
            "2026-02-29T12:00:00Z",
            "1900-02-29T12:00:00Z",
            "2026-04-31T12:00:00Z",
            "2026-03-01T24:00:00Z",
            "2026-03-01T12:00:00.Z",
            "2026-03-01T12:00:00+24:00",
            "2026-03-01T12:00:00Zjunk",
            "0001-01-01T00:00:00+01:00",
            "9999-12-31T23:59:59-01:00",
        ] {
            assert_eq!(text.parse::<Timestamp>(), Err(MalformedTimestamp), "{text}");
        }
    }

    #[test]
    fn every_day_of_the_calendar_is_its_own_inverse() {
        let first = Timestamp::MIN / DAY_MILLIS;
        let last = Timestamp::MAX / DAY_MILLIS;
        let (mut year, mut month, mut day) = (1, 1, 1);
        for days in first..=last {
            assert_eq!(date_of(days), (year, month, day));
            assert_eq!(days_to(year, month, day), days);
            day += 1;
            if day > days_in(year, month) {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month) = (year + 1, 1);
            }
        }
        assert_eq!(year, 10_000);
    }

    #[test]
    fn the_range_is_held() {
        assert_eq!(Timestamp::from_millis(i64::MAX).to_string(), "9999-12-31T23:59:59.999Z");
        assert_eq!(Timestamp::from_millis(i64::MIN).to_string(), "0001-01-01T00:00:00.000Z");
        assert_eq!(Timestamp::from_millis(1_700_000_000_123).to_string(), "2023-11-14T22:13:20.123Z");
        assert_eq!(Timestamp::from_millis(-1).to_string().parse(), Ok(Timestamp::from_millis(-1)));
    }
}
