//! Job files in fio's ini form: sections, `option=value` lines, comments.

use crate::limits;

/// One section, with what `[global]` sections before it said put first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// Where it begins, from 1.
    pub line: usize,
    /// Its options in order; a later one wins.
    pub settings: Vec<Setting>,
}

/// One option line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The option.
    pub name: String,
    /// What stands behind the first '='; `None` for a bare option.
    pub value: Option<String>,
    /// Where, from 1.
    pub line: usize,
    /// Whether it stands in `[global]`.
    pub global: bool,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where, from 1.
    pub line: usize,
    /// What, and what would be right.
    pub why: String,
}

/// Reads the text of a job file. Comments are lines that begin with `#` or `;`, and what follows ` #` or ` ;` on a line.
///
/// # Errors
/// A line that is neither section, option, comment nor empty; an option before the first section; no section but `[global]`.
pub fn parse(text: &str) -> Result<Vec<Section>, Fault> {
    let mut global = Vec::new();
    let mut sections: Vec<Section> = Vec::new();
    let mut within = Within::Nothing;
    for (at, raw) in text.lines().enumerate() {
        let line = at + 1;
        let content = without_comment(raw).trim();
        if content.is_empty() {
            continue;
        }
        if let Some(rest) = content.strip_prefix('[') {
            let name = section_name(rest).ok_or_else(|| Fault {
                line,
                why: format!("'{content}' is no section; write [name]"),
            })?;
            within = if name == "global" {
                Within::Global
            } else {
                sections.push(Section {
                    name: name.to_owned(),
                    line,
                    settings: global.clone(),
                });
                Within::Section
            };
            continue;
        }
        let mut setting = setting(content, line)?;
        setting.global = matches!(within, Within::Global);
        match (within, sections.last_mut()) {
            (Within::Global, _) => global.push(setting),
            (Within::Section, Some(section)) => section.settings.push(setting),
            _ => {
                return Err(Fault {
                    line,
                    why: format!(
                        "'{content}' stands before the first section; begin with [global] or [name]"
                    ),
                });
            }
        }
    }
    match sections.len() {
        0 => Err(Fault {
            line: text.lines().count().max(1),
            why: "there is no job here; a job begins with [name]".to_owned(),
        }),
        jobs if jobs > limits::JOBS_MAX => Err(Fault {
            line: text.lines().count(),
            why: format!(
                "there are {jobs} jobs here; {} is the limit",
                limits::JOBS_MAX
            ),
        }),
        _ => Ok(sections),
    }
}

#[derive(Clone, Copy)]
enum Within {
    Nothing,
    Global,
    Section,
}

/// A value with what stands for `${NAME}` in it; `variable` knows the environment.
///
/// # Errors
/// A name that is not closed, or not known.
pub fn expanded(value: &str, variable: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = value;
    while let Some((before, behind)) = rest.split_once("${") {
        let (name, after) = behind
            .split_once('}')
            .ok_or_else(|| format!("'{value}' has a '${{' without its '}}'"))?;
        text += before;
        text += &variable(name).ok_or_else(|| format!("the environment has no {name}"))?;
        rest = after;
    }
    Ok(text + rest)
}

fn section_name(rest: &str) -> Option<&str> {
    let name = rest.strip_suffix(']')?.trim();
    (!name.is_empty() && !name.contains(['[', ']'])).then_some(name)
}

fn setting(content: &str, line: usize) -> Result<Setting, Fault> {
    let (name, value) = match content.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim().to_owned())),
        None => (content, None),
    };
    let well_formed =
        |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    if name.is_empty() || !name.chars().all(well_formed) {
        return Err(Fault {
            line,
            why: format!("'{content}' is no option; write name=value"),
        });
    }
    if value.as_deref() == Some("") {
        return Err(Fault {
            line,
            why: format!("{name} has no value behind its '='"),
        });
    }
    Ok(Setting {
        name: name.to_owned(),
        value,
        line,
        global: false,
    })
}

/// A comment begins the line, or follows white space: a file name may hold either character.
fn without_comment(line: &str) -> &str {
    let mut before = ' ';
    for (at, letter) in line.char_indices() {
        if matches!(letter, '#' | ';') && before.is_whitespace() {
            return line.get(..at).unwrap_or(line);
        }
        before = letter;
    }
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(section: &Section) -> Vec<(&str, Option<&str>, usize)> {
        section
            .settings
            .iter()
            .map(|setting| {
                (
                    setting.name.as_str(),
                    setting.value.as_deref(),
                    setting.line,
                )
            })
            .collect()
    }

    #[test]
    fn sections_inherit_what_global_said_so_far() {
        let text = "; all\n[global]\nbs=4k ; small\n\n[a]\nrw = read\nstonewall\n[global]\ndirect=1\n[b]\nfilename=/x#y;z\n";
        let sections = parse(text).unwrap();
        assert_eq!(sections.len(), 2);
        assert_eq!((sections[0].name.as_str(), sections[0].line), ("a", 5));
        assert_eq!(
            names(&sections[0]),
            [
                ("bs", Some("4k"), 3),
                ("rw", Some("read"), 6),
                ("stonewall", None, 7)
            ]
        );
        assert_eq!(
            names(&sections[1]),
            [
                ("bs", Some("4k"), 3),
                ("direct", Some("1"), 9),
                ("filename", Some("/x#y;z"), 11)
            ]
        );
    }

    #[test]
    fn what_global_said_is_known_as_such() {
        let sections = parse("[global]\nbs=4k\n[a]\nrw=read\n").unwrap();
        let globals: Vec<bool> = sections[0].settings.iter().map(|one| one.global).collect();
        assert_eq!(globals, [true, false]);
    }

    #[test]
    fn variables_stand_for_what_the_environment_has() {
        let known = |name: &str| (name == "SIZE").then(|| "4m".to_owned());
        let expand = |value| expanded(value, known);
        assert_eq!(expand("${SIZE}").unwrap(), "4m");
        assert_eq!(expand("a$SIZE ${SIZE}${SIZE}}").unwrap(), "a$SIZE 4m4m}");
        assert_eq!(expand("plain").unwrap(), "plain");
        assert_eq!(expand("${NOT}").unwrap_err(), "the environment has no NOT");
        assert!(expand("${SIZE").unwrap_err().contains("without its '}'"));
    }

    #[test]
    fn each_fault_has_its_line() {
        for (text, line) in [
            ("bs=4k\n[a]\n", 1),
            ("[a]\n\n=4k\n", 3),
            ("[a]\nbs=\n", 2),
            ("[a\n", 1),
            ("[]\n", 1),
            ("[a]\nb s=3\n", 2),
            ("[global]\nbs=4k\n", 2),
            ("", 1),
        ] {
            assert_eq!(parse(text).unwrap_err().line, line, "{text:?}");
        }
    }

    fn a_setting() -> impl Strategy<Value = (String, Option<String>)> {
        (
            "[a-z_]{1,12}",
            proptest::option::of("[a-zA-Z0-9/:,.%-]{1,12}"),
        )
    }

    proptest! {
        /// What is written in fio's form, with any comments and blanks between, is read as it was meant.
        #[test]
        fn what_is_printed_is_read_again(
            global in prop::collection::vec(a_setting(), 0..4),
            jobs in prop::collection::vec(("[a-z][a-z0-9 -]{0,6}[a-z0-9]", prop::collection::vec(a_setting(), 0..5)), 1..5),
            noise in prop::collection::vec(prop::sample::select(vec!["", "# no", "  ; [x]", "\t"]), 0..4),
        ) {
            prop_assume!(jobs.iter().all(|(name, _)| name != "global"));
            let noise = noise.join("\n");
            let print = |settings: &[(String, Option<String>)]| settings.iter().map(|(name, value)| match value {
                Some(value) => format!("{noise}\n  {name} = {value} ; why\n"),
                None => format!("{name}\n"),
            }).collect::<String>();
            let mut text = format!("[global]\n{}", print(&global));
            for (name, settings) in &jobs {
                text += &format!("[{name}]\n{}", print(settings));
            }
            let sections = parse(&text).unwrap();
            prop_assert_eq!(sections.len(), jobs.len());
            for (section, (name, settings)) in sections.iter().zip(&jobs) {
                prop_assert_eq!(&section.name, name);
                let found: Vec<_> = section.settings.iter().map(|one| (one.name.clone(), one.value.clone())).collect();
                prop_assert_eq!(found, [&global[..], &settings[..]].concat());
                for one in &section.settings {
                    prop_assert!(text.lines().nth(one.line - 1).unwrap().contains(&one.name));
                }
            }
        }

        /// Any text gives sections or a fault within it.
        #[test]
        fn no_text_makes_it_panic(text in "[\\[\\]a-z=#; \n]{0,200}") {
            if let Err(fault) = parse(&text) {
                prop_assert!(fault.line >= 1 && fault.line <= text.lines().count().max(1));
            }
        }
    }
}
