//! The time of day as chat templates ask for it, in the formats of C's `strftime`.

use web_time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// A moment in the calendar, in UTC.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    year: u64,
    /// From 1.
    month: u64,
    /// Of the month, from 1.
    day: u64,
    /// Of the year, from 1.
    day_of_year: u64,
    /// From Sunday, 0.
    weekday: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

impl Moment {
    /// Now; 1970 on a clock that is set to a time before.
    pub(super) fn now() -> Self {
        Self::from_unix(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
    }

    /// The moment that many seconds after the beginning of 1970.
    fn from_unix(seconds: u64) -> Self {
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        // Howard Hinnant's `civil_from_days`: years begin in March, so that leap days end them, in eras of 400 years.
        let shifted = days + 719_468;
        let (era, day) = (shifted / 146_097, shifted % 146_097);
        let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let from_march = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * from_march + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = 400 * era + year_of_era + u64::from(month <= 2);
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let before_march = 59 + u64::from(is_leap);
        Self {
            year,
            month,
            day: from_march - (153 * month_from_march + 2) / 5 + 1,
            day_of_year: if month > 2 { from_march + before_march + 1 } else { from_march - 305 },
            weekday: (days + 4) % 7,
            hour: second / 3600,
            minute: second / 60 % 60,
            second: second % 60,
        }
    }

    /// The text of a format in English, or what stands behind a `%` and isn't known.
    pub(super) fn format(&self, format: &str) -> Result<String, String> {
        let mut text = String::new();
        let mut rest = format.chars();
        while let Some(next) = rest.next() {
            if next != '%' {
                text.push(next);
                continue;
            }
            let mut field = rest.next();
            // Without zeros or spaces before the number.
            let is_bare = matches!(field, Some('-' | '#'));
            if is_bare {
                field = rest.next();
            }
            let value = field.and_then(|field| self.field(field));
            let Some(value) = value else { return Err(field.map(String::from).unwrap_or_default()) };
            let bare = value.trim_start_matches(['0', ' ']);
            text.push_str(if !is_bare {
                &value
            } else if bare.is_empty() {
                "0"
            } else {
                bare
            });
        }
        Ok(text)
    }

    fn field(&self, field: char) -> Option<String> {
        let Self { year, month, day, day_of_year, weekday, hour, minute, second } = *self;
        let name = |names: &[&str], at: u64, letters: usize| -> Option<String> {
            names.get(at as usize).map(|name| name.chars().take(letters).collect())
        };
        Some(match field {
            'Y' => year.to_string(),
            'y' => format!("{:02}", year % 100),
            'm' => format!("{month:02}"),
            'B' => name(&MONTHS, month - 1, usize::MAX)?,
            'b' | 'h' => name(&MONTHS, month - 1, 3)?,
            'd' => format!("{day:02}"),
            'e' => format!("{day:2}"),
            'j' => format!("{day_of_year:03}"),
            'A' => name(&DAYS, weekday, usize::MAX)?,
            'a' => name(&DAYS, weekday, 3)?,
            'w' => weekday.to_string(),
            'H' => format!("{hour:02}"),
            'I' => format!("{:02}", (hour + 11) % 12 + 1),
            'p' => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            'M' => format!("{minute:02}"),
            'S' => format!("{second:02}"),
            'Z' => "UTC".to_owned(),
            'z' => "+0000".to_owned(),
            'F' => format!("{year}-{month:02}-{day:02}"),
            'D' => format!("{month:02}/{day:02}/{:02}", year % 100),
            'T' => format!("{hour:02}:{minute:02}:{second:02}"),
            'R' => format!("{hour:02}:{minute:02}"),
            '%' => "%".to_owned(),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds and texts as `date --utc --date=@SECONDS +FORMAT` has them.
    #[test]
    fn moments_are_those_of_date() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00 Thu 001 12 AM"),
            (951_782_400, "2000-02-29 00:00:00 Tue 060 12 AM"),
            (1_077_926_399, "2004-02-27 23:59:59 Fri 058 11 PM"),
            (1_709_251_199, "2024-02-29 23:59:59 Thu 060 11 PM"),
            (1_735_646_400, "2024-12-31 12:00:00 Tue 366 12 PM"),
            (1_795_449_600, "2026-11-23 16:00:00 Mon 327 04 PM"),
            (4_107_542_399, "2100-02-28 23:59:59 Sun 059 11 PM"),
            (4_107_542_400, "2100-03-01 00:00:00 Mon 060 12 AM"),
        ] {
            assert_eq!(Moment::from_unix(seconds).format("%F %T %a %j %I %p").as_deref(), Ok(expected));
        }
    }

    #[test]
    fn formats_are_those_of_strftime() {
        // 2026-02-03 04:05:06, a Tuesday.
        let moment = Moment::from_unix(1_770_091_506);
        let format = |format| moment.format(format);
        assert_eq!(format("%d %b %Y").as_deref(), Ok("03 Feb 2026"));
        assert_eq!(format("%A, %B %-d, %y").as_deref(), Ok("Tuesday, February 3, 26"));
        assert_eq!(format("%e|%H:%M:%S|%R|%D|%w%%é").as_deref(), Ok(" 3|04:05:06|04:05|02/03/26|2%é"));
        assert_eq!(Moment::from_unix(0).format("%-H %Z %z").as_deref(), Ok("0 UTC +0000"));
        assert_eq!(format("%Q"), Err("Q".to_owned()));
        assert_eq!(format("100%"), Err(String::new()));
    }
}
