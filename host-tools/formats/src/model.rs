//! A model view: a directory as a model hub lays it out, presented with other types.
//!
//! ```text
//! config.json                          torch_dtype or dtype follows, where it names the type that most of the weights had
//! model.safetensors.index.json         metadata.total_size follows
//! model-00001-of-00002.safetensors     header rewritten, tensors converted by rules
//! tokenizer.json, ...                  as they are
//! ```
//! The names of a snapshot are symlinks to blobs: the caller follows them, and gives names and bytes.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::value::RawValue;

use crate::description::{Description, Payload};
use crate::limits::JSON_BYTES_MAX;
use crate::presentation::{self, Presentation};
use crate::recognise::describe;
use crate::rules::Rules;
use crate::{ByteSource, Dtype, Format, FormatError, gguf, json};

/// The one file that is known by its name: a hub's readers look for it by that.
pub const CONFIG: &str = "config.json";
/// The members of a configuration that name a type, newest first (transformers 4 and 5).
const DTYPE_KEYS: [&str; 2] = ["dtype", "torch_dtype"];

/// How deep configurations in configurations are looked into.
const CONFIG_DEPTH: u32 = 3;

/// A file of the directory.
#[derive(Clone, Copy)]
pub struct ModelFile<'a> {
    /// Its name, relative to the directory, with `/`.
    pub name: &'a str,
    /// Its bytes.
    pub source: &'a dyn ByteSource,
    /// Whether it stays as it is, whatever the rules say.
    pub is_kept: bool,
}

/// What a model view presents.
#[derive(Debug)]
pub struct Plan {
    /// The files, in the order in which they were given.
    pub files: Vec<PlannedFile>,
    /// Tensors that change, as `f32` to `bf16`: how many, and their bytes in the source.
    pub changes: BTreeMap<(Dtype, Dtype), Changed>,
    /// What a person should know.
    pub notes: Vec<String>,
}

/// Tensors that change alike.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changed {
    /// How many.
    pub tensors: u64,
    /// Their bytes in the source.
    pub bytes: u64,
}

/// A file of the view.
#[derive(Debug)]
pub struct PlannedFile {
    /// Its name, as given.
    pub name: String,
    /// What it is.
    pub description: Description,
    /// What is presented of it.
    pub presentation: Presentation,
    /// Presented bytes of its payloads: all but header and padding.
    pub payload_bytes: u64,
}

/// Plans a view of `files` by `rules`, the data of each rewritten file at a multiple of `alignment` where its format can have it.
///
/// # Errors
/// Whatever a file of weights is refused or malformed for, with its name; an index that does not fit its shards.
pub fn plan(files: &[ModelFile<'_>], rules: &Rules, alignment: u64) -> Result<Plan, FormatError> {
    let mut plan = Plan {
        files: Vec::with_capacity(files.len()),
        changes: BTreeMap::new(),
        notes: Vec::new(),
    };
    let mut weights = Weights::default();
    for file in files {
        let planned = plan_file(file, rules, alignment)
            .map_err(|error| FormatError::refused(file.name, error.to_string()))?;
        if planned.description.pass_through.is_none() {
            let rules = (!file.is_kept).then_some(rules);
            weights.add(&planned.description, rules);
            plan.notes
                .extend(rules.and_then(|rules| left_note(&planned, rules)));
        } else if matches!(planned.description.format, Format::Zip) {
            plan.notes.push(format!(
                "{}: a zip archive, as torch.save writes weights, is passed through; save them as safetensors",
                file.name
            ));
        }
        plan.files.push(planned);
    }
    for (file, index) in files.iter().zip(0..) {
        let is_index =
            plan.files.get(index).map(|f| f.description.format) == Some(Format::SafetensorsIndex);
        let rewritten = match is_index {
            true => rewrite_index(file, &plan)?,
            false if file.name == CONFIG => rewrite_config(file, &weights, &mut plan.notes)?,
            false => None,
        };
        let Some(text) = rewritten else { continue };
        if !file.is_kept {
            if let Some(planned) = plan.files.get_mut(index) {
                planned.presentation = Presentation::new(text.into_bytes());
            }
        } else if is_index {
            let why = "is kept, and says how long the weights are that this view changes: keep them, too, with --keep '*.safetensors', or do not keep the index";
            return Err(FormatError::refused(file.name, why));
        } else {
            let why = "is kept, and names a type that most weights do not have in this view";
            plan.notes.push(format!("{}: {why}", file.name));
        }
    }
    plan.changes = weights.changes;
    Ok(plan)
}

fn plan_file(
    file: &ModelFile<'_>,
    rules: &Rules,
    alignment: u64,
) -> Result<PlannedFile, FormatError> {
    let description = match describe(file.source) {
        Err(FormatError::Malformed { .. } | FormatError::Limit { .. }) if file.is_kept => {
            Description::unexamined(file.source.bytes(), "it is kept")
        }
        described => described?,
    };
    let is_weights = matches!(description.format, Format::Safetensors | Format::Gguf);
    let changes = is_weights && !file.is_kept;
    // Arrays beside a model (a .npy of positions) are not its weights.
    let target = |payload: &Payload| {
        let target = || target(description.format, payload, rules);
        changes.then(target).flatten()
    };
    let presentation = description.present(file.source, &target, alignment)?;
    let payload_bytes = presentation::wanted(&description.payloads, &target)?.bytes();
    Ok(PlannedFile {
        name: file.name.to_owned(),
        description,
        presentation,
        payload_bytes,
    })
}

/// What a tensor becomes. GGUF has few conversions, and llama.cpp wants norms and biases in f32: a pattern leaves what stays, a rule with a tensor's own
/// name is refused.
fn target(format: Format, payload: &Payload, rules: &Rules) -> Option<Dtype> {
    let target = rules.target(payload)?;
    let is_left = stays_in_gguf(format, payload, target) && !rules.is_named(payload);
    (!is_left).then_some(target)
}

fn stays_in_gguf(format: Format, payload: &Payload, target: Dtype) -> bool {
    format == Format::Gguf && !gguf::becomes(payload, target)
}

/// What patterns of several rules leave in a GGUF file. One type for everything leaves the rest as it says.
fn left_note(planned: &PlannedFile, rules: &Rules) -> Option<String> {
    if rules.is_for_everything() {
        return None;
    }
    let description = &planned.description;
    let is_left = |payload: &&Payload| {
        let target = rules.target(payload);
        target.is_some_and(|target| stays_in_gguf(description.format, payload, target))
    };
    let mut left = description.payloads.iter().filter(is_left);
    let first = left.next()?;
    let more = match left.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "{}: {}{more} left as in the file: {}",
        planned.name,
        first.name,
        gguf::WHAT_CHANGES
    ))
}

/// What becomes of the bytes of each stored type.
#[derive(Default)]
struct Weights {
    changes: BTreeMap<(Dtype, Dtype), Changed>,
    stored_bytes: BTreeMap<Dtype, u64>,
}

impl Weights {
    /// What stays has no rules.
    fn add(&mut self, description: &Description, rules: Option<&Rules>) {
        if !matches!(description.format, Format::Safetensors | Format::Gguf) {
            return;
        }
        for payload in &description.payloads {
            let Some(stored) = payload.contents.dtype() else {
                continue;
            };
            *self.stored_bytes.entry(stored).or_default() += payload.bytes;
            let presented = rules.and_then(|rules| target(description.format, payload, rules));
            if let Some(presented) = presented {
                let changed = self.changes.entry((stored, presented)).or_default();
                changed.tensors += 1;
                changed.bytes += payload.bytes;
            }
        }
    }

    /// What most bytes of this type become; `None` when they stay.
    fn most_become(&self, stored: Dtype) -> Option<Dtype> {
        let all = self.stored_bytes.get(&stored).copied().unwrap_or_default();
        self.changes
            .iter()
            .find(|((from, _), changed)| *from == stored && changed.bytes > all / 2)
            .map(|((_, to), _)| *to)
    }
}

/// A JSON document's text; `None` where the file is too long to be one, or no UTF-8.
pub(crate) fn document(source: &dyn ByteSource) -> Result<Option<String>, FormatError> {
    if source.bytes() > JSON_BYTES_MAX {
        return Ok(None);
    }
    let bytes = crate::source::range(source, Format::Unknown, 0, source.bytes(), JSON_BYTES_MAX)?;
    Ok(String::from_utf8(bytes).ok())
}

/// Whether this JSON says which shard holds which tensor.
pub(crate) fn is_index(text: &str) -> bool {
    let members = json::members(text).unwrap_or_default();
    json::member(&members, "weight_map").is_some_and(|map| map.get().starts_with('{'))
}

/// The names of the shards that an index lists, each once, in the order in which they come.
pub(crate) fn listed(text: &str) -> Vec<String> {
    let members = json::members(text).unwrap_or_default();
    let map = json::member(&members, "weight_map").map(json::inner);
    let names = map.unwrap_or_default().into_iter();
    let mut seen = HashSet::new();
    names
        .filter_map(|(_, shard)| json::string(shard))
        .filter(|shard| seen.insert(shard.clone()))
        .collect()
}

/// `metadata.total_size` of an index, moved by what its shards' data became longer or shorter; `None` where nothing changed.
///
/// It counts the tensors' bytes, without headers (huggingface_hub, `split_state_dict_into_shards_factory`).
fn rewrite_index(file: &ModelFile<'_>, plan: &Plan) -> Result<Option<String>, FormatError> {
    let refuse = |why: String| FormatError::refused(file.name, why);
    let text = document(file.source)?.ok_or_else(|| refuse("is no text".to_owned()))?;
    let members = json::members(&text).map_err(|e| refuse(e.to_string()))?;
    let map = json::member(&members, "weight_map").map_or("{}", RawValue::get);
    let map = json::members(map).map_err(|e| refuse(format!("weight_map: {e}")))?;
    // Of shards that stay as they are, the index says what it said.
    let shards = shards_of(file.name, &map, plan)?;
    if shards
        .iter()
        .all(|it| it.file.and_then(PlannedFile::changed_bytes).is_none())
    {
        return Ok(None);
    }
    check_shards(file.name, &shards)?;
    let (mut before, mut after) = (0u64, 0u64);
    for (stored, presented) in shards
        .iter()
        .filter_map(|it| it.file.and_then(PlannedFile::changed_bytes))
    {
        before += stored;
        after += presented;
    }
    if before == after {
        return Ok(None);
    }
    let metadata = json::member(&members, "metadata").map(json::inner);
    let total = json::member(&metadata.unwrap_or_default(), "total_size");
    let Some(total) = total else {
        return Ok(None);
    };
    let stated = serde_json::from_str::<u64>(total.get()).ok();
    let presented = stated
        .and_then(|stated| stated.checked_sub(before)?.checked_add(after))
        .unwrap_or(after);
    let mut edits = json::Edits::new(&text);
    edits.replace(total, presented.to_string());
    Ok(Some(edits.apply()))
}

/// A shard that an index names, and the tensors that are to be in it.
struct Listed<'a> {
    name: String,
    tensors: Vec<&'a str>,
    /// `None` where it is not among the files.
    file: Option<&'a PlannedFile>,
}

impl PlannedFile {
    /// Bytes of its tensors in the source and in the view, where these are not the same tensors.
    fn changed_bytes(&self) -> Option<(u64, u64)> {
        let payloads = self.description.payloads.iter();
        let stored = payloads.map(|payload| payload.bytes).sum();
        (!self.presentation.is_exact(self.description.file_bytes))
            .then_some((stored, self.payload_bytes))
    }
}

/// The shards that an index names, each once.
fn shards_of<'a>(
    name: &str,
    map: &'a [json::Member<'_>],
    plan: &'a Plan,
) -> Result<Vec<Listed<'a>>, FormatError> {
    let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut shards: Vec<Listed<'_>> = Vec::new();
    for (tensor, shard) in map {
        let shard = json::string(shard)
            .ok_or_else(|| FormatError::refused(name, format!("no shard for {tensor:?}")))?;
        let place = *places.entry(shard.clone()).or_insert_with(|| {
            let path = match folder {
                "" => shard.clone(),
                folder => format!("{folder}/{shard}"),
            };
            shards.push(Listed {
                name: shard,
                tensors: Vec::new(),
                file: plan.files.iter().find(|file| file.name == path),
            });
            shards.len() - 1
        });
        if let Some(listed) = shards.get_mut(place) {
            listed.tensors.push(tensor);
        }
    }
    Ok(shards)
}

/// Every shard is there, and holds what the index says, as far as it is looked into.
fn check_shards(name: &str, shards: &[Listed<'_>]) -> Result<(), FormatError> {
    for shard in shards {
        let refuse = |why: &str| {
            let why = format!(
                "names {:?}, {why}: mend that, or leave the weights as they are with --keep '*.safetensors'",
                shard.name
            );
            FormatError::refused(name, why)
        };
        let file = shard.file.ok_or_else(|| refuse("which is not there"))?;
        if file.description.pass_through.is_some() {
            continue;
        }
        let there = file.description.payloads.iter().map(|p| p.name.as_str());
        let there: HashSet<&str> = there.collect();
        if let Some(missing) = shard.tensors.iter().find(|it| !there.contains(*it)) {
            return Err(refuse(&format!("which does not hold {missing:?}")));
        }
    }
    Ok(())
}

/// The configuration with the presented type, where it names the type that most weights had; `None` where it stays.
fn rewrite_config(
    file: &ModelFile<'_>,
    weights: &Weights,
    notes: &mut Vec<String>,
) -> Result<Option<String>, FormatError> {
    let Some(text) = document(file.source)? else {
        return Ok(None);
    };
    let Ok(members) = json::members(&text) else {
        notes.push(format!("{}: no JSON object, left as it is", file.name));
        return Ok(None);
    };
    let mut named = Vec::new();
    types_in(&members, CONFIG_DEPTH, &mut named);
    let mut edits = json::Edits::new(&text);
    for value in named {
        let Some(name) = json::string(value) else {
            continue;
        };
        let Some(stored) = Dtype::from_torch(&name) else {
            continue;
        };
        let presented = weights.most_become(stored);
        if let Some(torch) = presented.and_then(|dtype| dtype.row().torch) {
            let prefix = if name.starts_with("torch.") {
                "torch."
            } else {
                ""
            };
            edits.replace(value, format!("\"{prefix}{torch}\""));
        } else if !weights.changes.is_empty() {
            notes.push(format!(
                "{}: names {name}, which is not what most changed weights had; left as it is",
                file.name
            ));
        }
    }
    Ok((!edits.is_empty()).then(|| edits.apply()))
}

/// The values that name a type, here and in the configurations of a model's parts (`text_config`, `vision_config`).
fn types_in<'a>(members: &[json::Member<'a>], depth: u32, named: &mut Vec<&'a RawValue>) {
    for (name, value) in members {
        if DTYPE_KEYS.contains(&name.as_str()) {
            named.push(value);
        } else if depth > 0 && name.ends_with("_config") && name != "quantization_config" {
            types_in(&json::inner(value), depth - 1, named);
        }
    }
}

/// The tensors of a plan that no rule changed, for a report: file, tensor.
pub fn unchanged<'a>(
    plan: &'a Plan,
    rules: &'a Rules,
) -> impl Iterator<Item = (&'a str, &'a Payload)> {
    plan.files.iter().flat_map(move |file| {
        file.description
            .payloads
            .iter()
            .filter(move |payload| target(file.description.format, payload, rules).is_none())
            .map(move |payload| (file.name.as_str(), payload))
    })
}
