//! Numbers that a person gives by environment variables.

use std::env::VarError;
use std::fmt::Display;
use std::str::FromStr;

/// The number that an environment variable has, if there is one of this name.
///
/// # Errors
/// What is wrong with its text.
pub fn number<T: FromStr<Err: Display>>(variable: &str) -> Result<Option<T>, String> {
    parsed(variable, std::env::var(variable))
}

fn parsed<T: FromStr<Err: Display>>(
    variable: &str,
    text: Result<String, VarError>,
) -> Result<Option<T>, String> {
    match text {
        Ok(text) => text.parse().map(Some).map_err(|error| format!("{variable} is {text:?}: {error}")),
        Err(VarError::NotPresent) => Ok(None),
        Err(error) => Err(format!("{variable}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_told() {
        let of = |text: &str| parsed::<u32>("SEED", Ok(text.to_owned()));
        assert_eq!(of("17"), Ok(Some(17)));
        assert_eq!(parsed::<u32>("SEED", Err(VarError::NotPresent)), Ok(None));
        for text in ["", "x", "-1", "1.5", " 1", "4294967296"] {
            let error = of(text).expect_err(text);
            assert!(error.starts_with(&format!("SEED is {text:?}: ")), "{error}");
        }
        assert!(parsed::<u32>("SEED", Err(VarError::NotUnicode("\u{fffd}".into()))).is_err());
    }
}
