//! Numbers in sentences for people.

/// A number and its noun: `1 copy`, `3 copies`.
#[must_use]
pub fn counted(count: u64, noun: &str) -> String {
    if let (Some(stem), true) = (noun.strip_suffix('y'), count != 1) {
        return format!("{count} {stem}ies");
    }
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// Bytes in powers of 1024, with one decimal: `1.5 GiB`.
#[must_use]
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_nouns() {
        assert_eq!([1, 0, 3].map(|count| counted(count, "copy")), ["1 copy", "0 copies", "3 copies"]);
        assert_eq!(counted(2, "metablock"), "2 metablocks");
    }

    #[test]
    fn bytes_for_people() {
        assert_eq!(human_bytes(999), "999 B");
        assert_eq!(human_bytes(1536 << 20), "1.5 GiB");
    }
}
