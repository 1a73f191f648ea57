//! Numbers of options: parsed and bounded in one place. Every impossible one is refused with the nearest possible
//! value, whether it is too small, too large, below zero or no number at all.

use std::fmt::Display;

/// A whole number from `least` to `most`; `1e6` is allowed, too.
pub fn whole<T: TryFrom<u64>>(least: u64, most: u64) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync {
    move |text| {
        let number = match text.parse::<u64>() {
            Ok(number) => number,
            Err(_) => match text.parse::<f64>() {
                // Every double from 0 to 2^53 without a fraction is a whole number exactly.
                Ok(real) if real.fract() == 0.0 && (0.0..=9e15).contains(&real) => real as u64,
                Ok(real) => {
                    let nearest = if real.is_nan() { least } else { (real.round() as u64).clamp(least, most) };
                    return Err(refusal("whole number", least, most, nearest));
                }
                Err(_) => return Err(refusal("whole number", least, most, least)),
            },
        };
        if !(least..=most).contains(&number) {
            return Err(refusal("whole number", least, most, number.clamp(least, most)));
        }
        T::try_from(number).map_err(|_| refusal("whole number", least, most, least))
    }
}

/// A number from `least` to `most`.
pub fn real(least: f64, most: f64) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync {
    move |text| match text.parse::<f64>() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        Ok(number) if number > most => Err(refusal("number", least, most, most)),
        _ => Err(refusal("number", least, most, least)),
    }
}

fn refusal<T: Display>(name: &str, least: T, most: T, nearest: T) -> String {
    format!("a {name} from {least} to {most} is wanted; the nearest possible value is {nearest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_nearest() {
        let count = whole::<u32>(1, 1000);
        assert_eq!((count("1"), count("1000"), count("1e3")), (Ok(1), Ok(1000), Ok(1000)));
        for (text, nearest) in
            [("0", "1"), ("-1", "1"), ("NaN", "1"), ("x", "1"), ("1e9", "1000"), ("2.6", "3"), ("inf", "1000")]
        {
            let refusal = count(text).unwrap_err();
            assert!(refusal.ends_with(&format!("the nearest possible value is {nearest}")), "{text}: {refusal}");
        }
        let share = real(0.5, 100.0);
        assert_eq!((share("0.5"), share("1e2")), (Ok(0.5), Ok(100.0)));
        for (text, nearest) in [("0", "0.5"), ("-1e300", "0.5"), ("NaN", "0.5"), ("inf", "100"), ("100.1", "100")] {
            let refusal = share(text).unwrap_err();
            assert!(refusal.ends_with(&format!("is {nearest}")), "{text}: {refusal}");
        }
    }
}
