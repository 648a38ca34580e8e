//! JSON as it stands in a file: the members of an object in their order, where each value lies, and edits that leave every other
//! byte as it was. Numbers are not read as floats, and a name that comes twice is refused, as safetensors' README wants it.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use serde::Deserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A member of an object: its name, and its value as it is written.
pub(crate) type Member<'a> = (String, &'a RawValue);

/// The members of the object that `text` is.
pub(crate) fn members(text: &str) -> Result<Vec<Member<'_>>, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let members = reader.deserialize_map(InOrder)?;
    reader.end()?;
    Ok(members)
}

struct InOrder;

impl<'de> Visitor<'de> for InOrder {
    type Value = Vec<Member<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        let mut names = HashSet::new();
        while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format_args!("{name:?} comes twice")));
            }
            members.push((name, value));
        }
        Ok(members)
    }
}

/// The value of the member `name`.
pub(crate) fn member<'a>(members: &[Member<'a>], name: &str) -> Option<&'a RawValue> {
    members
        .iter()
        .find(|(found, _)| found == name)
        .map(|(_, value)| *value)
}

/// The string that `value` is, if it is one.
pub(crate) fn string(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

/// The members of the object that `value` is; none when it is something else.
pub(crate) fn inner<'a>(value: &'a RawValue) -> Vec<Member<'a>> {
    members(value.get()).unwrap_or_default()
}

/// `text` as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Replacements of values in a text.
pub(crate) struct Edits<'a> {
    text: &'a str,
    edits: Vec<(Range<usize>, String)>,
}

impl<'a> Edits<'a> {
    pub(crate) fn new(text: &'a str) -> Edits<'a> {
        Edits {
            text,
            edits: Vec::new(),
        }
    }

    /// Puts `new` where `value` stands. `value` is a part of the text: one that is not is left alone.
    pub(crate) fn replace(&mut self, value: &RawValue, new: String) {
        let start = (value.get().as_ptr() as usize).wrapping_sub(self.text.as_ptr() as usize);
        let range = start..start.saturating_add(value.get().len());
        debug_assert_eq!(self.text.get(range.clone()), Some(value.get()));
        if self.text.get(range.clone()) == Some(value.get()) {
            self.edits.push((range, new));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// The text with every replacement made.
    pub(crate) fn apply(mut self) -> String {
        self.edits.sort_by_key(|(range, _)| range.start);
        let mut edited = String::with_capacity(self.text.len());
        let mut position = 0;
        for (range, new) in &self.edits {
            edited.push_str(self.text.get(position..range.start).unwrap_or_default());
            edited.push_str(new);
            position = range.end;
        }
        edited.push_str(self.text.get(position..).unwrap_or_default());
        edited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_changes_its_value_and_nothing_else() {
        let text = "{ \"a\" : [1,  2.50],\n\t\"b\": {\"c\": \"x\"} , \"d\":1e400 }\n";
        let all = members(text).unwrap();
        let mut edits = Edits::new(text);
        let inside = inner(member(&all, "b").unwrap());
        edits.replace(member(&inside, "c").unwrap(), quoted("y\""));
        edits.replace(member(&all, "a").unwrap(), "null".to_owned());
        assert_eq!(
            edits.apply(),
            "{ \"a\" : null,\n\t\"b\": {\"c\": \"y\\\"\"} , \"d\":1e400 }\n"
        );
    }

    #[test]
    fn what_is_no_plain_object_is_refused() {
        for text in ["", "[]", "{\"a\":1}x", "{\"a\":1,\"a\":2}", "{\"a\":}"] {
            assert!(members(text).is_err(), "{text}");
        }
        let twice = members("{\"a\":1,\"\\u0061\":2}").unwrap_err();
        assert!(twice.to_string().starts_with("\"a\" comes twice"));
    }
}
