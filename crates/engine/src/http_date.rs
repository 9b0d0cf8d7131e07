//! `Retry-After`: seconds, or a date as HTTP writes it (`Sun, 06 Nov 1994 08:49:37 GMT`).
//!
//! The two older forms of dates are for readers of the last century; whoever sends one is asked again as if it had said
//! nothing.

use standfast_core::time::{Millis, Timestamp};

/// How long to wait from now.
pub fn retry_after(text: &str, now: Timestamp) -> Option<Millis> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return (0.0..1e9).contains(&seconds).then(|| Millis((seconds * 1000.0).ceil() as i64));
    }
    let at = date(text)?;
    Some(Millis(at.saturating_sub(now.0).max(0)))
}

/// Milliseconds since 1970.
fn date(text: &str) -> Option<i64> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [_, day, month, year, time, "GMT"] = words.as_slice() else { return None };
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|name| name == month)? as i64;
    let (day, year): (i64, i64) = (day.parse().ok()?, year.parse().ok()?);
    let mut clock = time.split(':').map(|part| part.parse::<i64>().ok());
    let (hours, minutes, seconds) = (clock.next()??, clock.next()??, clock.next()??);
    if !(1970..=9999).contains(&year) || !(1..=31).contains(&day) {
        return None;
    }
    // Years begin in March here, so that the day that some years have more is their last one.
    let (year, month) = if month < 2 { (year - 1, month + 10) } else { (year, month - 2) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some((days * 86_400 + hours * 3600 + minutes * 60 + seconds) * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates() {
        let at = Timestamp(784_111_777_000);
        for (text, expected) in [
            ("0", Some(0)),
            ("7", Some(7_000)),
            (" 1.5 ", Some(1_500)),
            ("-1", None),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(0)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30_000)),
            ("Sat, 05 Nov 1994 08:49:37 GMT", Some(0)),
            ("Wed, 06 Mar 2024 00:00:00 GMT", Some(1_709_683_200_000 - 784_111_777_000)),
            ("tomorrow", None),
            ("Sun Nov  6 08:49:37 1994", None),
        ] {
            assert_eq!(retry_after(text, at), expected.map(Millis), "{text}");
        }
    }
}
