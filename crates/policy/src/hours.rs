//! Business hours: spans of time that are counted only while people work, in their time zone, over daylight saving.
//!
//! The zones are compiled in, so that every node counts alike. Time comes in as an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use standfast_core::time::{Millis, Timestamp};

/// How many days are looked at before a deadline counts as never: ten years.
const MAX_DAYS: usize = 3_660;

/// When people work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BusinessHours {
    /// The time zone by its name, such as `Europe/Berlin`.
    pub time_zone: Zone,
    /// The hours of each day; a day that is not named is free.
    pub days: BTreeMap<Day, Vec<Shift>>,
    /// Days without work, such as `2026-12-25`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub holidays: BTreeSet<Holiday>,
}

/// A day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Day {
    /// Monday
    Mon,
    /// Tuesday
    Tue,
    /// Wednesday
    Wed,
    /// Thursday
    Thu,
    /// Friday
    Fri,
    /// Saturday
    Sat,
    /// Sunday
    Sun,
}

impl Day {
    fn of(weekday: Weekday) -> Day {
        match weekday {
            Weekday::Monday => Day::Mon,
            Weekday::Tuesday => Day::Tue,
            Weekday::Wednesday => Day::Wed,
            Weekday::Thursday => Day::Thu,
            Weekday::Friday => Day::Fri,
            Weekday::Saturday => Day::Sat,
            Weekday::Sunday => Day::Sun,
        }
    }
}

/// A time zone by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Zone(TimeZone);

/// Hours of one day: `09:00-17:30`; `24:00` is its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Shift {
    from: Time,
    /// None is the end of the day.
    to: Option<Time>,
}

/// A day without work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Holiday(Date);

impl TryFrom<String> for Zone {
    type Error = String;

    fn try_from(name: String) -> Result<Zone, String> {
        TimeZone::get(&name)
            .map(Zone)
            .map_err(|_| format!("{name:?} is not a time zone; write a name such as Europe/Berlin or UTC"))
    }
}

impl From<Zone> for String {
    fn from(zone: Zone) -> String {
        zone.0.iana_name().unwrap_or("UTC").to_owned()
    }
}

impl TryFrom<String> for Shift {
    type Error = String;

    fn try_from(text: String) -> Result<Shift, String> {
        let bad = || format!("{text:?} is not a shift; write it as 09:00-17:00");
        let clock = |part: &str| {
            let (hours, minutes) = part.split_once(':')?;
            let is_clock = hours.len() == 2 && minutes.len() == 2;
            Time::new(hours.parse().ok()?, minutes.parse().ok()?, 0, 0).ok().filter(|_| is_clock)
        };
        let (from, to) = text.split_once('-').ok_or_else(bad)?;
        let from = clock(from).ok_or_else(bad)?;
        let to = if to == "24:00" { None } else { Some(clock(to).ok_or_else(bad)?) };
        if to.is_some_and(|to| to <= from) {
            return Err(format!("{text:?} ends before it begins; write two shifts for hours over midnight"));
        }
        Ok(Shift { from, to })
    }
}

impl fmt::Display for Shift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}-", self.from.hour(), self.from.minute())?;
        match self.to {
            Some(to) => write!(f, "{:02}:{:02}", to.hour(), to.minute()),
            None => f.write_str("24:00"),
        }
    }
}

impl From<Shift> for String {
    fn from(shift: Shift) -> String {
        shift.to_string()
    }
}

impl TryFrom<String> for Holiday {
    type Error = String;

    fn try_from(text: String) -> Result<Holiday, String> {
        text.parse().map(Holiday).map_err(|_| format!("{text:?} is not a day; write it as 2026-12-25"))
    }
}

impl From<Holiday> for String {
    fn from(day: Holiday) -> String {
        day.0.to_string()
    }
}

impl BusinessHours {
    /// What is wrong with it.
    #[must_use]
    pub fn misfit(&self) -> Option<String> {
        if self.days.values().all(Vec::is_empty) {
            return Some("there is no working hour in the week, so that nothing would ever be due".into());
        }
        let overlaps = self.days.iter().find(|(_, shifts)| {
            let mut shifts: Vec<&Shift> = shifts.iter().collect();
            shifts.sort_by_key(|shift| shift.from);
            shifts.windows(2).any(|pair| match pair {
                [one, next] => one.to.is_none_or(|to| to > next.from),
                _ => false,
            })
        });
        overlaps.map(|(day, _)| format!("two shifts of {day:?} overlap"))
    }

    /// The instant at which this much working time has passed; none if that is not within ten years.
    #[must_use]
    pub fn after(&self, start: Timestamp, span: Millis) -> Option<Timestamp> {
        let begin = jiff::Timestamp::from_millisecond(start.0).ok()?;
        let mut left = span.0.max(0);
        let mut date = begin.to_zoned(self.zone()).date();
        for _ in 0..MAX_DAYS {
            for (from, to) in self.shifts(date) {
                // Spans are of real time: a shift over the change of clocks is an hour longer or shorter.
                let from = from.max(start.0);
                let worked = to.saturating_sub(from).max(0);
                // The end of a shift is worked off; a span of nothing is due when the next shift begins.
                if to > from && left <= worked {
                    return Some(Timestamp(from.saturating_add(left)));
                }
                left -= worked;
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    fn zone(&self) -> TimeZone {
        self.time_zone.0.clone()
    }

    /// The shifts of a day in milliseconds since 1970. A time that the clocks skip is as much later as they skip.
    fn shifts(&self, date: Date) -> Vec<(i64, i64)> {
        if self.holidays.contains(&Holiday(date)) {
            return Vec::new();
        }
        let instant = |at: DateTime| {
            let zoned = self.zone().to_ambiguous_zoned(at).compatible().ok()?;
            Some(zoned.timestamp().as_millisecond())
        };
        let shift = |shift: &Shift| {
            let to = match shift.to {
                Some(to) => date.to_datetime(to),
                None => date.tomorrow().ok()?.to_datetime(Time::midnight()),
            };
            Some((instant(date.to_datetime(shift.from))?, instant(to)?))
        };
        let mut shifts: Vec<(i64, i64)> =
            self.days.get(&Day::of(date.weekday())).into_iter().flatten().filter_map(shift).collect();
        shifts.sort_unstable();
        shifts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hours(json: &str) -> BusinessHours {
        serde_json::from_str(json).unwrap()
    }

    fn berlin() -> BusinessHours {
        hours(
            r#"{"time_zone":"Europe/Berlin","days":{"mon":["09:00-17:00"],"tue":["09:00-17:00"],"wed":["09:00-17:00"],
            "thu":["09:00-17:00"],"fri":["09:00-12:00","13:00-17:00"]},"holidays":["2026-12-25"]}"#,
        )
    }

    fn at(text: &str) -> Timestamp {
        Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
    }

    fn due(hours: &BusinessHours, start: &str, span: i64) -> String {
        let due = hours.after(at(start), Millis::hours(span)).unwrap();
        jiff::Timestamp::from_millisecond(due.0).unwrap().to_string()
    }

    #[test]
    fn only_working_time_is_counted() {
        let berlin = berlin();
        // A Monday in winter: 09:00 is 08:00 UTC.
        assert_eq!(due(&berlin, "2026-11-16T08:00:00Z", 4), "2026-11-16T12:00:00Z");
        assert_eq!(due(&berlin, "2026-11-16T15:00:00Z", 2), "2026-11-17T09:00:00Z");
        assert_eq!(
            due(&berlin, "2026-11-20T10:00:00Z", 2),
            "2026-11-20T13:00:00Z",
            "lunch on Friday is not counted"
        );
        assert_eq!(due(&berlin, "2026-11-20T15:30:00Z", 1), "2026-11-23T08:30:00Z", "over the weekend");
        assert_eq!(
            due(&berlin, "2026-12-24T15:00:00Z", 2),
            "2026-12-28T09:00:00Z",
            "over a holiday and a weekend"
        );
        assert_eq!(
            due(&berlin, "2026-11-21T10:00:00Z", 0),
            "2026-11-23T08:00:00Z",
            "at once is when work begins"
        );
        assert_eq!(
            due(&berlin, "2026-11-16T08:00:00Z", 8),
            "2026-11-16T16:00:00Z",
            "a whole day ends with it"
        );
    }

    #[test]
    fn clocks_that_change_move_the_deadline() {
        let berlin = berlin();
        // From Friday afternoon into the Monday after summer time began (29 March) and ended (25 October).
        assert_eq!(due(&berlin, "2026-03-27T15:00:00Z", 2), "2026-03-30T08:00:00Z");
        assert_eq!(due(&berlin, "2026-10-23T14:00:00Z", 2), "2026-10-26T09:00:00Z");
        let night = hours(r#"{"time_zone":"Europe/Berlin","days":{"sun":["00:00-24:00"]}}"#);
        // The Sunday has 23 hours in spring and 25 in autumn, and every one of them counts.
        assert_eq!(due(&night, "2026-03-28T23:00:00Z", 23), "2026-03-29T22:00:00Z");
        assert_eq!(due(&night, "2026-10-24T22:00:00Z", 25), "2026-10-25T23:00:00Z");
        // 02:30 does not exist on that night: the shift begins at 03:30.
        let gap = hours(r#"{"time_zone":"Europe/Berlin","days":{"sun":["02:30-05:00"]}}"#);
        assert_eq!(due(&gap, "2026-03-28T12:00:00Z", 1), "2026-03-29T02:30:00Z");
        let new_york = hours(r#"{"time_zone":"America/New_York","days":{"mon":["09:00-17:00"]}}"#);
        assert_eq!(due(&new_york, "2026-11-01T12:00:00Z", 1), "2026-11-02T15:00:00Z");
    }

    #[test]
    fn what_cannot_be_hours_is_refused() {
        for (json, why) in [
            (r#"{"time_zone":"Berlin","days":{}}"#, "is not a time zone"),
            (r#"{"time_zone":"UTC","days":{"mon":["9-17"]}}"#, "is not a shift"),
            (r#"{"time_zone":"UTC","days":{"mon":["17:00-09:00"]}}"#, "ends before it begins"),
            (r#"{"time_zone":"UTC","days":{"monday":[]}}"#, "unknown variant"),
            (r#"{"time_zone":"UTC","days":{},"holidays":["25.12."]}"#, "is not a day"),
        ] {
            let error = serde_json::from_str::<BusinessHours>(json).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(hours(r#"{"time_zone":"UTC","days":{}}"#).misfit().is_some());
        assert!(
            hours(r#"{"time_zone":"UTC","days":{"mon":["09:00-12:00","11:00-13:00"]}}"#).misfit().is_some()
        );
        assert!(berlin().misfit().is_none());
        let written = serde_json::to_string(&berlin()).unwrap();
        assert_eq!(hours(&written), berlin());
    }

    proptest! {
        /// More time is never due earlier, nothing is due before its start, and what is due is within a shift.
        #[test]
        fn deadlines_are_in_order(start in 1_700_000_000_i64..1_900_000_000, a in 0_i64..500, b in 0_i64..500) {
            let berlin = berlin();
            let start = Timestamp(start * 1000);
            let due = |hours: i64| berlin.after(start, Millis::hours(hours)).unwrap();
            prop_assert!(due(a) >= start);
            prop_assert!(due(a.min(b)) <= due(a.max(b)));
            // Twice is the same as both at once.
            prop_assert!(a == 0 || b == 0 || berlin.after(due(a), Millis::hours(b)).unwrap() == due(a + b));
        }
    }
}
