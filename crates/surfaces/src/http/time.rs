//! Instants as people and other systems read them: RFC 3339 in UTC, with milliseconds.
//!
//! The core counts milliseconds; calendars belong to the surfaces.

use std::fmt::Write as _;

use standfast_core::time::Timestamp;

const DAY_MS: i64 = 86_400_000;

/// An instant in the form `2026-11-15T11:32:00.000Z`.
#[must_use]
pub fn rfc3339(at: Timestamp) -> String {
    let (days, ms) = (at.0.div_euclid(DAY_MS), at.0.rem_euclid(DAY_MS));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    let mut text = String::with_capacity(24);
    let written =
        write!(text, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000);
    debug_assert!(written.is_ok(), "a text takes everything");
    text
}

/// An instant as HTTP's own headers have it: `Sun, 15 Nov 2026 11:32:00 GMT`.
#[must_use]
pub fn http_date(at: Timestamp) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, seconds) = (at.0.div_euclid(DAY_MS), at.0.rem_euclid(DAY_MS) / 1000);
    let (year, month, day) = civil(days);
    let named = |names: &[&'static str], index: i64| {
        usize::try_from(index).ok().and_then(|index| names.get(index).copied()).unwrap_or_default()
    };
    let (weekday, month) = (named(&DAYS, days.rem_euclid(7)), named(&MONTHS, month - 1));
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// The instant that a text in this form means: in UTC, with any number of digits behind the second; none when it is
/// anything else.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    let is_digits = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let fits = (1..=12).contains(&month) && hour < 24 && minute < 60 && second < 60 && is_digits;
    let days = days_of(year, month, day);
    // A day that the month does not have is another day when it is written again.
    if !fits || civil(days) != (year, month, day) {
        return None;
    }
    let ms: i64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    Some(Timestamp(days * DAY_MS + (hour * 3600 + minute * 60 + second) * 1000 + ms))
}

fn numbers(text: &str, between: char, widths: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(between);
    let mut numbers = [0; 3];
    for (number, width) in numbers.iter_mut().zip(widths) {
        let part = parts.next().filter(|part| part.len() == width)?;
        *number = part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())??;
    }
    parts.next().is_none().then_some(numbers)
}

/// The day counted from 1970-01-01: `civil` the other way round.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468
}

/// Year, month and day of a day counted from 1970-01-01: the well-known algorithm over eras of 400 years, in which
/// the year begins in March.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_as_dates() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_762_000_000_123, "2025-11-01T12:26:40.123Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(rfc3339(Timestamp(ms)), text);
            assert_eq!(parse_rfc3339(text), Some(Timestamp(ms)));
        }
    }

    #[test]
    fn headers_have_dates_of_their_own() {
        for (ms, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777_000, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400_000, "Tue, 29 Feb 2000 00:00:00 GMT"),
        ] {
            assert_eq!(http_date(Timestamp(ms)), text);
        }
    }

    #[test]
    fn only_instants_in_utc_are_read() {
        assert_eq!(parse_rfc3339("1970-01-01T00:00:01Z"), Some(Timestamp(1000)));
        assert_eq!(parse_rfc3339("1970-01-01T00:00:01.5Z"), Some(Timestamp(1500)));
        assert_eq!(parse_rfc3339("1970-01-01T00:00:01.123456789Z"), Some(Timestamp(1123)));
        for text in [
            "",
            "Z",
            "now",
            "1970-01-01",
            "1970-01-01T00:00:01",
            "1970-01-01T00:00:01+00:00",
            "1970-02-30T00:00:00Z",
            "1970-13-01T00:00:00Z",
            "1970-00-01T00:00:00Z",
            "1970-01-00T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:60:00Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00.xZ",
            "-970-01-01T00:00:00Z",
            "1970-1-1T00:00:00Z",
            "1970-01-01T00:00:00:00Z",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }
}
