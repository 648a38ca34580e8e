//! Which tensors of a model are presented in which type: rules by name and rank, the first that matches decides.
//!
//! A rule is `PATTERN[@RANK]=TYPE`, or `=keep`. The pattern is the tensor's whole name, with `*` for any run of characters and `?` for one;
//! the rank is `N`, `N+` (N and more) or `N-M`. A type alone stands for `*=TYPE`. Rules are separated by commas:
//! `*norm*=keep,*@2+=bf16`.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::description::Payload;
use crate::wildcard::is_match;
use crate::{Conversion, Dtype, FormatError};

/// Rules, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    pattern: String,
    rank: RangeInclusive<usize>,
    /// `None` for `keep`.
    target: Option<Dtype>,
}

impl Rules {
    /// Everything that can become `dtype` does.
    #[must_use]
    pub fn all(dtype: Dtype) -> Rules {
        Rules {
            rules: vec![Rule {
                pattern: "*".to_owned(),
                rank: 0..=usize::MAX,
                target: Some(dtype),
            }],
        }
    }

    /// Whether they are one type for whatever can become it.
    #[must_use]
    pub fn is_for_everything(&self) -> bool {
        matches!(self.rules.as_slice(), [only] if only.pattern == "*" && only.rank == (0..=usize::MAX))
    }

    /// The type that `payload` is to be presented in; `None` for its own.
    ///
    /// A rule changes what can become its type: integers stay integers, floats stay floats, and what has no element type stays as it
    /// is. So `*=bf16` leaves a model's `position_ids` alone.
    #[must_use]
    pub fn target(&self, payload: &Payload) -> Option<Dtype> {
        let (stored, target) = self.asked(payload)?;
        match stored.conversion(target) {
            Ok(Conversion::Checked | Conversion::Widened | Conversion::Rounded) => Some(target),
            Ok(Conversion::Same) | Err(_) => None,
        }
    }

    /// The rules that fit none of `payloads`, but for a type alone.
    pub fn useless<'p>(&self, payloads: impl IntoIterator<Item = &'p Payload>) -> Vec<String> {
        let is_named = |rule: &&Rule| rule.pattern != "*" || rule.rank != (0..=usize::MAX);
        let mut left: Vec<&Rule> = self.rules.iter().filter(is_named).collect();
        for payload in payloads {
            left.retain(|rule| !rule.matches(payload));
        }
        let one = |rule: &Rule| Rules {
            rules: vec![rule.clone()],
        };
        left.into_iter().map(|rule| one(rule).to_string()).collect()
    }

    /// Whether a rule asks for a type of what has this name, whatever it is.
    #[must_use]
    pub fn name(&self, name: &str) -> bool {
        let fits = |rule: &&Rule| is_match(rule.pattern.as_bytes(), name.as_bytes(), Some(b'?'));
        let first = self.rules.iter().find(fits);
        first.is_some_and(|rule| rule.target.is_some())
    }

    /// Whether the rule that decides on `payload` has its name, and no wildcard.
    #[must_use]
    pub fn is_named(&self, payload: &Payload) -> bool {
        let rule = self.rules.iter().find(|rule| rule.matches(payload));
        rule.is_some_and(|rule| !rule.pattern.contains(['*', '?']))
    }

    /// The type that `payload` has and the one that the first rule which matches asks for, whether it can become that or not.
    #[must_use]
    pub fn asked(&self, payload: &Payload) -> Option<(Dtype, Dtype)> {
        let rule = self.rules.iter().find(|rule| rule.matches(payload))?;
        payload.contents.dtype().zip(rule.target)
    }
}

impl Rule {
    fn matches(&self, payload: &Payload) -> bool {
        self.rank.contains(&payload.rank())
            && is_match(self.pattern.as_bytes(), payload.name.as_bytes(), Some(b'?'))
    }
}

impl FromStr for Rules {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Rules, FormatError> {
        let rules = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
        Ok(Rules { rules })
    }
}

impl FromStr for Rule {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Rule, FormatError> {
        let refuse = |why: String| FormatError::Rule {
            rule: text.to_owned(),
            why,
        };
        let (selector, target) = text.rsplit_once('=').unwrap_or(("*", text));
        let target = match target {
            "keep" => None,
            name => Some(Dtype::from_presented(name).map_err(refuse)?),
        };
        let (pattern, rank) = match selector.rsplit_once('@') {
            None => (selector, 0..=usize::MAX),
            Some((pattern, rank)) => {
                let rank = parse_rank(rank)
                    .ok_or_else(|| refuse(format!("{rank:?} is no rank; 2, 2+ and 1-2 are")))?;
                (pattern, rank)
            }
        };
        if pattern.is_empty() {
            return Err(refuse(
                "a name or pattern belongs before the '='".to_owned(),
            ));
        }
        Ok(Rule {
            pattern: pattern.to_owned(),
            rank,
            target,
        })
    }
}

fn parse_rank(text: &str) -> Option<RangeInclusive<usize>> {
    if let Some(from) = text.strip_suffix('+') {
        return Some(from.parse().ok()?..=usize::MAX);
    }
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let range: RangeInclusive<usize> = from.parse().ok()?..=to.parse().ok()?;
    (!range.is_empty()).then_some(range)
}

/// The text that is read back.
impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, rule) in self.rules.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}", rule.pattern)?;
            match (*rule.rank.start(), *rule.rank.end()) {
                (0, usize::MAX) => {}
                (from, usize::MAX) => write!(f, "@{from}+")?,
                (from, to) if from == to => write!(f, "@{from}")?,
                (from, to) => write!(f, "@{from}-{to}")?,
            }
            match rule.target {
                Some(dtype) => write!(f, "={dtype}")?,
                None => write!(f, "=keep")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Contents;

    fn tensor(name: &str, shape: &[u64], dtype: Dtype) -> Payload {
        Payload {
            name: name.to_owned(),
            offset: 0,
            bytes: 0,
            contents: Contents::Elements(dtype),
            shape: shape.to_vec(),
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let rules: Rules = "*norm*=keep,lm_head.weight=f16,*@2+=bf16".parse().unwrap();
        let target = |name, shape: &[u64]| rules.target(&tensor(name, shape, Dtype::F32));
        assert_eq!(target("model.norm.weight", &[8, 8]), None);
        assert_eq!(target("lm_head.weight", &[8, 8]), Some(Dtype::F16));
        assert_eq!(target("model.q.weight", &[8, 8]), Some(Dtype::Bf16));
        assert_eq!(target("model.q.bias", &[8]), None);
        assert_eq!(rules.target(&tensor("ids", &[1, 8], Dtype::I64)), None);
        assert_eq!(rules.target(&tensor("w", &[1, 8], Dtype::Bf16)), None);
        assert_eq!(rules.target(&tensor("w", &[1, 8], Dtype::F8E4m3)), None);
    }

    #[test]
    fn rules_that_fit_nothing_are_named() {
        let rules: Rules = "*norm*=keep,lm_head@3=f16,*@2+=bf16,f16".parse().unwrap();
        let head = [tensor("lm_head", &[8, 8], Dtype::F32)];
        assert_eq!(rules.useless(&head), ["*norm*=keep", "lm_head@3=f16"]);
        let norm = [
            tensor("norm", &[8], Dtype::F32),
            tensor("x", &[8, 8], Dtype::I8),
        ];
        assert_eq!(rules.useless(&norm), ["lm_head@3=f16"]);
        assert_eq!(rules.useless(&[]).len(), 3);
    }

    #[test]
    fn text_and_rules_are_the_same() {
        for text in [
            "*=bf16",
            "*@2+=q8_0",
            "a*b?@2=f16,*@1-3=keep,x@0-4=f32",
            "a=b=f16",
        ] {
            assert_eq!(text.parse::<Rules>().unwrap().to_string(), text);
        }
        assert_eq!("bf16".parse::<Rules>().unwrap(), Rules::all(Dtype::Bf16));
        for text in [
            "",
            "a=",
            "a=f17",
            "=f16",
            "@2=f16",
            "a@=f16",
            "a@2-1=f16",
            "a=f16,",
        ] {
            let error = text.parse::<Rules>().unwrap_err();
            assert!(matches!(error, FormatError::Rule { .. }), "{text}: {error}");
        }
    }
}
