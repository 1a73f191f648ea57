//! When the master did what, by the lines of its log.

/// A log's text.
pub struct Journal(pub String);

impl Journal {
    /// What the master has to log for it.
    pub const FILTER: &'static str = "warn,ebb_master::raid=debug";

    /// The times of lines with all these words, in seconds since 1970.
    pub fn times(&self, words: &[&str]) -> Vec<f64> {
        let lines = self.0.lines().filter(|line| words.iter().all(|word| line.contains(word)));
        lines.filter_map(|line| time_of(line.split_whitespace().next()?)).collect()
    }

    /// How often it is said.
    pub fn count(&self, words: &[&str]) -> usize {
        self.times(words).len()
    }
}

/// Seconds since 1970 of a time such as `2026-11-30T04:50:36.123456Z`.
fn time_of(text: &str) -> Option<f64> {
    let (date, time) = text.trim_end_matches('Z').split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut time = time.splitn(3, ':').map(|part| part.parse::<f64>().ok());
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    // Years begin in March, so that the day of a leap year is the last one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469;
    Some(days as f64 * 86_400.0 + hour * 3600.0 + minute * 60.0 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(time_of("1970-01-01T00:00:00Z"), Some(0.0));
        assert_eq!(time_of("2026-11-30T04:50:36.5Z"), Some(1_796_014_236.5));
        let next = time_of("2028-03-01T00:00:00Z").unwrap() - time_of("2028-02-29T00:00:00Z").unwrap();
        assert_eq!((next, time_of("now")), (86_400.0, None));
    }

    #[test]
    fn lines_are_found_by_their_words() {
        let log =
            "2026-11-30T00:00:01Z  INFO a: sealed raid_set=rs1\n2026-11-30T00:00:03Z  INFO a: sealed raid_set=rs2\nx\n";
        let journal = Journal(log.to_owned());
        let times = journal.times(&["sealed"]);
        assert_eq!((times[1] - times[0], journal.count(&["sealed", "rs2"])), (2.0, 1));
    }
}
