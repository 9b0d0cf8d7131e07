//! Exact decimals: the numbers of rules and arguments, compared and added digit by digit.
//!
//! No float is ever in between: `0.1 + 0.2` is `0.3`, and 9007199254740993 is not 9007199254740992. Knows nothing of rules.

use std::cmp::Ordering;
use std::fmt;

use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// Digits that a number may have when it is written out, so that sums stay small.
const MAX_DIGITS: usize = 400;

/// How far from the decimal point digits may stand.
const MAX_EXPONENT: i64 = 400;

/// Digits up to which a float that a reader of YAML or JSON made is still the number that was written.
const FLOAT_DIGITS: usize = 15;

/// An exact decimal number: an optional minus, digits, and where the point stands.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Decimal {
    is_negative: bool,
    /// Without zeros in front or at the end; empty is zero.
    digits: Vec<u8>,
    /// The power of ten of the last digit.
    exponent: i64,
}

impl Decimal {
    /// Zero.
    #[must_use]
    pub fn zero() -> Decimal {
        Decimal { is_negative: false, digits: Vec::new(), exponent: 0 }
    }

    /// Reads a number as JSON writes it: `-12.50`, `1e3`. None for anything else, and for what is too large to add.
    #[must_use]
    pub fn parse(text: &str) -> Option<Decimal> {
        let (is_negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, power) = match rest.split_once(['e', 'E']) {
            Some((mantissa, power)) => (mantissa, parse_power(power)?),
            None => (rest, 0),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((_, "")) => return None,
            Some(parts) => parts,
            None => (mantissa, ""),
        };
        let has_leading_zero = whole.len() > 1 && whole.starts_with('0');
        let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || has_leading_zero || !is_digits(whole) || !is_digits(fraction) {
            return None;
        }
        if whole.len() + fraction.len() > MAX_DIGITS {
            return None;
        }
        let digits = whole.bytes().chain(fraction.bytes()).map(|byte| byte - b'0').collect();
        let exponent = power.checked_sub(i64::try_from(fraction.len()).ok()?)?;
        let read = Decimal { is_negative, digits, exponent }.normal();
        (read.digits.is_empty() || (read.exponent.abs() <= MAX_EXPONENT && read.top() <= MAX_EXPONENT))
            .then_some(read)
    }

    /// Whether it is below zero.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        self.is_negative
    }

    /// How many digits it has, without zeros in front or at the end.
    #[must_use]
    pub fn significant_digits(&self) -> usize {
        self.digits.len()
    }

    /// The power of ten above the first digit.
    fn top(&self) -> i64 {
        self.exponent.saturating_add(i64::try_from(self.digits.len()).unwrap_or(i64::MAX))
    }

    fn normal(mut self) -> Decimal {
        while self.digits.last() == Some(&0) {
            self.digits.pop();
            self.exponent = self.exponent.saturating_add(1);
        }
        let zeros = self.digits.iter().take_while(|digit| **digit == 0).count();
        self.digits.drain(..zeros);
        if self.digits.is_empty() { Decimal::zero() } else { self }
    }

    /// The digits down to this power of ten, of which it has none smaller.
    fn aligned(&self, exponent: i64) -> Vec<u8> {
        let zeros = usize::try_from(self.exponent.saturating_sub(exponent)).unwrap_or(0);
        let mut digits = self.digits.clone();
        digits.extend(std::iter::repeat_n(0, zeros));
        digits
    }

    /// The same number with the other sign.
    #[must_use]
    pub fn negated(&self) -> Decimal {
        Decimal { is_negative: !self.is_negative && !self.digits.is_empty(), ..self.clone() }
    }

    /// The exact sum.
    #[must_use]
    pub fn plus(&self, other: &Decimal) -> Decimal {
        let exponent = self.exponent.min(other.exponent);
        let (left, right) = (self.aligned(exponent), other.aligned(exponent));
        let is_larger = compare_digits(&left, &right) != Ordering::Less;
        let (large, small) = if is_larger { (left, right) } else { (right, left) };
        let sign = if is_larger { self.is_negative } else { other.is_negative };
        let digits = if self.is_negative == other.is_negative {
            add_digits(&large, &small)
        } else {
            subtract_digits(&large, &small)
        };
        Decimal { is_negative: sign, digits, exponent }.normal()
    }

    /// The exact difference.
    #[must_use]
    pub fn minus(&self, other: &Decimal) -> Decimal {
        self.plus(&other.negated())
    }

    /// The number in the middle.
    #[must_use]
    pub(crate) fn midpoint(&self, other: &Decimal) -> Decimal {
        let sum = self.plus(other);
        let fivefold = (0..5).fold(Decimal::zero(), |total, _| total.plus(&sum));
        // A tenth of five times the sum is half of it.
        Decimal { exponent: fivefold.exponent.saturating_sub(1), ..fivefold }.normal()
    }

    fn compare_size(&self, other: &Decimal) -> Ordering {
        match (self.digits.is_empty(), other.digits.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            // Neither has zeros in front, so the digits compare as text does once the first stand at the same place.
            (false, false) => self.top().cmp(&other.top()).then_with(|| self.digits.cmp(&other.digits)),
        }
    }
}

fn parse_power(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_number =
        !digits.is_empty() && digits.len() <= 6 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let power: i64 = if is_number { digits.parse().ok()? } else { return None };
    Some(if text.starts_with('-') { -power } else { power })
}

fn strip_zeros(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|digit| **digit == 0).count();
    digits.get(zeros..).unwrap_or_default()
}

fn compare_digits(left: &[u8], right: &[u8]) -> Ordering {
    let (left, right) = (strip_zeros(left), strip_zeros(right));
    left.len().cmp(&right.len()).then_with(|| left.cmp(right))
}

fn add_digits(large: &[u8], small: &[u8]) -> Vec<u8> {
    let mut sum = Vec::with_capacity(large.len() + 1);
    let mut carry = 0;
    let mut small = small.iter().rev();
    for digit in large.iter().rev() {
        let total = digit + small.next().unwrap_or(&0) + carry;
        sum.push(total % 10);
        carry = total / 10;
    }
    // What the smaller one has more are zeros in front, or it would be the larger one.
    sum.push(carry);
    sum.reverse();
    sum
}

fn subtract_digits(large: &[u8], small: &[u8]) -> Vec<u8> {
    let mut rest = Vec::with_capacity(large.len());
    let mut borrow = 0;
    let mut small = small.iter().rev();
    for digit in large.iter().rev() {
        let taken = small.next().unwrap_or(&0) + borrow;
        borrow = u8::from(*digit < taken);
        rest.push(digit + 10 * borrow - taken);
    }
    rest.reverse();
    rest
}

impl Ord for Decimal {
    fn cmp(&self, other: &Decimal) -> Ordering {
        match (self.is_negative, other.is_negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => self.compare_size(other),
            (true, true) => other.compare_size(self),
        }
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Decimal) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Plain digits, without an exponent.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.digits.is_empty() {
            return f.write_str("0");
        }
        let mut text: Vec<u8> = self.digits.iter().map(|digit| digit + b'0').collect();
        if let Ok(zeros) = usize::try_from(self.exponent) {
            text.extend(std::iter::repeat_n(b'0', zeros));
        } else {
            let places = usize::try_from(-self.exponent).unwrap_or(0);
            let missing = (places + 1).saturating_sub(text.len());
            text.splice(0..0, std::iter::repeat_n(b'0', missing));
            text.insert(text.len() - places, b'.');
        }
        if self.is_negative {
            f.write_str("-")?;
        }
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

impl fmt::Debug for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<i64> for Decimal {
    fn from(number: i64) -> Decimal {
        Decimal::parse(&number.to_string()).unwrap_or_else(Decimal::zero)
    }
}

/// A number where a reader can keep it, a text otherwise.
impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.to_string().parse::<i64>() {
            Ok(whole) => serializer.serialize_i64(whole),
            Err(_) => serializer.serialize_str(&self.to_string()),
        }
    }
}

/// What a reader of floats made of a number: taken while no digit can have been lost.
pub(crate) fn from_float(number: f64) -> Option<Decimal> {
    let read = Decimal::parse(&number.to_string())?;
    (read.significant_digits() <= FLOAT_DIGITS).then_some(read)
}

/// What to do about a number that a float cannot hold.
pub(crate) const QUOTE_IT: &str = "a number with more than 15 digits needs quotes, so that no digit is lost";

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Decimal, D::Error> {
        struct V;
        impl Visitor<'_> for V {
            type Value = Decimal;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, such as 100 or 99.95")
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Decimal, E> {
                Ok(Decimal::from(number))
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<Decimal, E> {
                self.visit_str(&number.to_string())
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<Decimal, E> {
                from_float(number).ok_or_else(|| E::custom(QUOTE_IT))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Decimal, E> {
                Decimal::parse(text).ok_or_else(|| E::custom(format!("{text:?} is not a decimal number")))
            }
        }
        deserializer.deserialize_any(V)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    #[test]
    fn numbers_are_what_json_calls_one() {
        for text in [
            "", "-", "+1", "01", "1.", ".5", "1e", "0x1", "1_000", " 1", "1 ", "NaN", "--1", "1e9999",
            "1e-9999", "1.2.3", "١",
        ] {
            assert_eq!(Decimal::parse(text), None, "{text:?}");
        }
        for (text, shown) in [
            ("0", "0"),
            ("-0.0", "0"),
            ("1.50", "1.5"),
            ("1e3", "1000"),
            ("-1E-2", "-0.01"),
            ("100", "100"),
            ("0e999999", "0"),
            ("12.5e1", "125"),
        ] {
            assert_eq!(number(text).to_string(), shown, "{text}");
        }
    }

    #[test]
    fn no_digit_is_lost() {
        assert!(number("9007199254740993") > number("9007199254740992"));
        assert_eq!(number("0.1").plus(&number("0.2")), number("0.3"));
        assert!(number("100.00000000000000000000000001") > number("100"));
        assert_eq!(number("1.0"), number("1"));
        assert_eq!(number("1").midpoint(&number("-2.5")), number("-0.75"));
        assert_eq!(number("-1").midpoint(&number("1")), number("0"));
        assert_eq!(serde_json::from_str::<Decimal>("0.1").unwrap(), number("0.1"));
        assert!(
            serde_json::from_str::<Decimal>("0.12345678901234567")
                .unwrap_err()
                .to_string()
                .contains("needs quotes")
        );
        assert_eq!(
            serde_json::from_str::<Decimal>("\"0.12345678901234567890\"").unwrap(),
            number("0.1234567890123456789")
        );
    }

    proptest! {
        #[test]
        fn sums_and_order_are_those_of_integers(a in -1_000_000_000_i64..1_000_000_000, b in -1_000_000_000_i64..1_000_000_000, places in 0_u32..12) {
            let scaled = |n: i64| number(&format!("{n}e-{places}"));
            prop_assert_eq!(scaled(a).plus(&scaled(b)), scaled(a + b));
            prop_assert_eq!(scaled(a).minus(&scaled(b)), scaled(a - b));
            prop_assert_eq!(scaled(a).cmp(&scaled(b)), a.cmp(&b));
            prop_assert_eq!(number(&scaled(a).to_string()), scaled(a));
        }

        #[test]
        fn no_text_is_too_odd(text in "[-+0-9.eE]{0,40}") {
            if let Some(read) = Decimal::parse(&text) {
                prop_assert_eq!(number(&read.to_string()), read);
            }
        }
    }
}
