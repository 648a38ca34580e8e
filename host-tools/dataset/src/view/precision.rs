//! Which precisions a disk presents, as they are asked for.

use std::fmt;
use std::str::FromStr;

use formats::FormatError;
use formats::rules::Rules;

use super::SOURCE;

/// A precision that a disk presents: a name, and the types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Precision {
    /// What its directory is called.
    pub name: String,
    /// Which type each payload has; `None` for the sources' exact bytes.
    pub rules: Option<Rules>,
}

/// The precisions of a disk: one is its root, several have a directory each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Precisions(pub Vec<Precision>);

impl Default for Precisions {
    fn default() -> Precisions {
        Precisions(vec![Precision {
            name: SOURCE.to_owned(),
            rules: None,
        }])
    }
}

/// `source`, types, or one set of rules, with a name before it: `source,bf16`; `small:*norm*=keep,*@2+=bf16`.
impl FromStr for Precisions {
    type Err = String;

    fn from_str(text: &str) -> Result<Precisions, String> {
        if text.contains('=') {
            return Ok(Precisions(vec![rules(text)?]));
        }
        let mut list: Vec<Precision> = Vec::new();
        for name in text.split(',') {
            if list.iter().any(|before| before.name == name) {
                return Err(format!("{name} is there twice"));
            }
            let rules = match name {
                SOURCE => None,
                name => {
                    let rules: Rules = name.parse().map_err(|e: FormatError| e.to_string())?;
                    Some(rules)
                }
            };
            let name = name.to_owned();
            list.push(Precision { name, rules });
        }
        Ok(Precisions(list))
    }
}

fn rules(text: &str) -> Result<Precision, String> {
    let (name, text) = match text.split_once(':') {
        Some((name, rules)) if is_name(name) => (name, rules),
        _ => ("view", text),
    };
    if name == SOURCE {
        return Err(format!("{SOURCE} is the name of the sources' exact bytes"));
    }
    check_is_rules(text)?;
    let rules: Rules = text.parse().map_err(|e: FormatError| e.to_string())?;
    Ok(Precision {
        name: name.to_owned(),
        rules: Some(rules),
    })
}

/// A type alone fits everything, so that it is the last rule: one with others behind it is meant for a list of types.
fn check_is_rules(text: &str) -> Result<(), String> {
    let last = text.rsplit(',').next();
    let mut types = text.split(',').filter(|item| !item.contains('='));
    let found = types.find(|item| *item == SOURCE || Some(*item) != last);
    found.map_or(Ok(()), |item| {
        Err(format!(
            "'{item}' and rules in one list: a list is either types ('source,bf16') or the rules of one view, a type alone the last ('NAME:*norm*=keep,bf16'); \
             give --present-as once for each"
        ))
    })
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(plain)
}

impl Precisions {
    /// These and those, each name once.
    ///
    /// # Errors
    /// A name that comes twice.
    pub fn joined(all: &[Precisions]) -> Result<Precisions, String> {
        let mut list: Vec<Precision> = Vec::new();
        for precision in all.iter().flat_map(|some| &some.0) {
            if list.iter().any(|before| before.name == precision.name) {
                return Err(format!("{} is there twice", precision.name));
            }
            list.push(precision.clone());
        }
        if list.is_empty() {
            return Ok(Precisions::default());
        }
        Ok(Precisions(list))
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_types_or_rules() {
        for (text, item) in [
            ("source,mix:m@1=f16,*@2+=bf16", "source"),
            ("mix:m@1=f16,source", "source"),
            ("bf16,f16:*=f16", "bf16"),
            ("mix:f16,a=bf16", "f16"),
        ] {
            let why = text.parse::<Precisions>().unwrap_err();
            let begin = format!("'{item}' and rules in one list: ");
            assert!(why.starts_with(&begin), "{text}: {why}");
        }
        let both = ["source", "mix:*norm*=keep,bf16"].map(|it| it.parse().unwrap());
        let both = Precisions::joined(&both).unwrap();
        let names: Vec<_> = both.0.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, [SOURCE, "mix"]);
    }
}
