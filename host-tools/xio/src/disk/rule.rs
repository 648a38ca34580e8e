//! What the command line says of some files: `PATTERN=...`.

use std::str::FromStr;

use dataset::Pattern;
use transforms::ElementType;

/// `PATTERN=TYPE`: what the elements of files without a header are.
#[derive(Clone, Debug)]
pub struct Typed {
    pub pattern: Pattern,
    pub element: ElementType,
}

/// `PATTERN=CHAIN`: how files are stored.
#[derive(Clone, Debug)]
pub struct Rule {
    pub pattern: Pattern,
    /// For the elements of the files, whatever they are.
    pub chain: String,
}

impl FromStr for Typed {
    type Err = String;

    fn from_str(text: &str) -> Result<Typed, String> {
        let (pattern, element) = split(text).ok_or("it is PATTERN=TYPE, such as '*.bin=u16'")?;
        let element = element
            .parse()
            .map_err(|error| format!("{element}: {error}"))?;
        Ok(Typed { pattern, element })
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Rule, String> {
        let (pattern, chain) = split(text).ok_or("it is PATTERN=CHAIN, such as '*.bin=u16+lz4'")?;
        let chain = chain.to_owned();
        Ok(Rule { pattern, chain })
    }
}

/// At the last `=`, which neither types nor chains have.
fn split(text: &str) -> Option<(Pattern, &str)> {
    let (pattern, rest) = text.rsplit_once('=')?;
    let Ok(pattern) = pattern.parse();
    (!rest.is_empty()).then_some((pattern, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_say_what_is_wrong_with_them() {
        for text in ["*.bin", "*.bin=", ""] {
            assert!(text.parse::<Rule>().unwrap_err().starts_with("it is "));
            assert!(text.parse::<Typed>().unwrap_err().starts_with("it is "));
        }
        let unknown = "*=u33".parse::<Typed>().unwrap_err();
        assert!(unknown.starts_with("u33: "), "{unknown}");
        let rule: Rule = "a=b/*=u16+lz4".parse().unwrap();
        assert_eq!(rule.pattern.to_string(), "a=b/*");
        assert_eq!(rule.chain, "u16+lz4");
    }
}
