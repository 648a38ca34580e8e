//! `.npy`: a magic string, a Python literal, one array (numpy, "numpy.lib.format").
//!
//! ```text
//!  0          6       8          10 (12)                      a multiple of 64
//!  +----------+-------+----------+----------------------------+-----------+
//!  | \x93NUMPY| 1|2|3 | length   | literal, spaces, newline   | elements  |
//!  +----------+-------+----------+----------------------------+-----------+
//! ```
//! The length is a u16 in version 1 and a u32 in 2 and 3. numpy's source calls alignments from 16 to 4096 plausible; a view takes 4096.

use crate::description::{Contents, Description, Details, Payload};
use crate::limits::{NPY_HEADER_BYTES_MAX, RANK_MAX};
use crate::presentation::{AllWanted, Presentation, WHO_HAS_BLOCKS};
use crate::source::{self, u32_at};
use crate::{ByteSource, Dtype, Format, FormatError};

/// What the file begins with.
pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";
/// Digits that numpy leaves room for behind the growing dimension ("GROWTH_AXIS_MAX_DIGITS").
const GROWTH_DIGITS: usize = 21;

/// What a rewritten header keeps of the old one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Header {
    version: u8,
    fortran_order: bool,
    /// Where the elements end. What follows them, numpy does not read.
    data_end: u64,
}

/// The dictionary of the header.
#[derive(Debug, PartialEq)]
struct Literal {
    /// `None` for a list: a structured type.
    descr: Option<String>,
    fortran_order: bool,
    shape: Vec<u64>,
}

pub(crate) fn describe(source: &dyn ByteSource) -> Result<Description, FormatError> {
    let (head, _) = source::head::<12>(source)?;
    let malformed = |offset, why: String| FormatError::malformed(Format::Npy, offset, why);
    let version = head[6];
    let (literal_offset, literal_bytes) = match (version, head[7]) {
        (1, 0) => (10, u64::from(u16::from_le_bytes([head[8], head[9]]))),
        (2 | 3, 0) => (12, u64::from(u32_at(&head, 8))),
        (major, minor) => {
            return Err(malformed(6, format!("version {major}.{minor} is unknown")));
        }
    };
    let literal = source::range(
        source,
        Format::Npy,
        literal_offset,
        literal_bytes,
        NPY_HEADER_BYTES_MAX,
    )?;
    let literal = parse(&literal)
        .map_err(|(at, why)| malformed(literal_offset + at as u64, why.to_owned()))?;
    let data_offset = literal_offset + literal_bytes;
    let there = source.bytes().saturating_sub(data_offset);
    let dtype = match known_type(literal.descr.as_deref()) {
        Ok(dtype) => dtype,
        Err(reason) => return Ok(Description::opaque(Format::Npy, source.bytes(), reason)),
    };
    let elements = literal
        .shape
        .iter()
        .try_fold(1u64, |product, dim| product.checked_mul(*dim));
    let bytes = elements
        .and_then(|elements| dtype.bytes_of(elements))
        .filter(|bytes| *bytes <= there)
        .ok_or_else(|| {
            let why = format!(
                "{dtype} of shape {:?} does not fit the {there} bytes behind the header",
                literal.shape
            );
            malformed(data_offset, why)
        })?;
    let header = Header {
        version,
        fortran_order: literal.fortran_order,
        data_end: data_offset + bytes,
    };
    let payload = Payload {
        name: String::new(),
        offset: data_offset,
        bytes,
        contents: Contents::Elements(dtype),
        shape: literal.shape,
    };
    let mut description = Description::typed(
        Format::Npy,
        source.bytes(),
        vec![payload],
        Details::Npy(header),
    );
    description.alignment = 64;
    if bytes < there {
        description.notes.push(format!(
            "{} bytes behind the array are kept as they are",
            there - bytes
        ));
    }
    Ok(description)
}

/// The type of a `descr`, or why its elements are not touched.
fn known_type(descr: Option<&str>) -> Result<Dtype, String> {
    let Some(descr) = descr else {
        return Err("its elements are records of several fields".to_owned());
    };
    if let Some(dtype) = Dtype::from_numpy(descr) {
        return Ok(dtype);
    }
    Err(match descr.as_bytes() {
        [b'>', ..] => format!("its elements are big-endian ({descr})"),
        [_, b'O', ..] => "it holds pickled Python objects".to_owned(),
        _ => format!("its elements are {descr}, which is no plain number"),
    })
}

impl Header {
    pub(crate) fn present(
        &self,
        description: &Description,
        wanted: &AllWanted<'_>,
        alignment: u64,
    ) -> Result<Presentation, FormatError> {
        let mut view = Presentation::default();
        for wanted in &wanted.0 {
            let descr = match wanted.dtype() {
                Some(dtype) => numpy_name(dtype)?,
                None => continue,
            };
            view.push_new(&self.bytes(descr, &wanted.payload.shape, alignment)?);
            view.push(wanted);
        }
        let behind = description.file_bytes.saturating_sub(self.data_end);
        view.push_source(self.data_end, behind);
        Ok(view)
    }

    /// The header as numpy writes it (`_write_array_header`), padded to a multiple of `alignment`, at least 64.
    fn bytes(&self, descr: &str, shape: &[u64], alignment: u64) -> Result<Vec<u8>, FormatError> {
        let order = if self.fortran_order { "True" } else { "False" };
        let dims: Vec<String> = shape.iter().map(u64::to_string).collect();
        let comma = if shape.len() == 1 { "," } else { "" };
        let mut text = format!(
            "{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({}{comma}), }}",
            dims.join(", ")
        );
        let growing = if self.fortran_order {
            dims.last()
        } else {
            dims.first()
        };
        if let Some(growing) = growing {
            let room = GROWTH_DIGITS.saturating_sub(growing.len());
            text.extend(std::iter::repeat_n(' ', room));
        }
        let prefix_bytes = if self.version == 1 { 10 } else { 12 };
        // As numpy has it: where nothing is missing, a whole alignment is added.
        let filled = prefix_bytes + text.len() + 1;
        let align = usize::try_from(alignment.max(64)).unwrap_or(64);
        let padding = align - filled % align;
        text.extend(std::iter::repeat_n(' ', padding));
        text.push('\n');
        let mut bytes = MAGIC.to_vec();
        bytes.extend([self.version, 0]);
        let literal_bytes = text.len();
        let too_long = || FormatError::Limit {
            format: Format::Npy,
            what: "bytes of rewritten header",
            found: literal_bytes as u64,
            max: NPY_HEADER_BYTES_MAX,
        };
        if literal_bytes as u64 > NPY_HEADER_BYTES_MAX {
            return Err(too_long());
        }
        if self.version == 1 {
            let length = u16::try_from(literal_bytes).map_err(|_| too_long())?;
            bytes.extend(length.to_le_bytes());
        } else {
            let length = u32::try_from(literal_bytes).map_err(|_| too_long())?;
            bytes.extend(length.to_le_bytes());
        }
        bytes.extend(text.into_bytes());
        Ok(bytes)
    }
}

/// The `descr` of a type, or the way out.
fn numpy_name(dtype: Dtype) -> Result<&'static str, FormatError> {
    dtype.row().numpy.ok_or_else(|| {
        let why = match dtype {
            Dtype::Q8_0 => format!("numpy has no {dtype}; {}", WHO_HAS_BLOCKS),
            _ => format!(
                "numpy has no {dtype}, so a reader would see raw bytes (|V2); present f16 or f32, or put the array into a safetensors file"
            ),
        };
        FormatError::refused(".npy", why)
    })
}

/// Reads the header's dictionary: the three keys in any order, as `ast.literal_eval` would; on failure where and why.
fn parse(text: &[u8]) -> Result<Literal, (usize, &'static str)> {
    let mut parser = Parser { text, at: 0 };
    let (mut descr, mut fortran_order, mut shape) = (None, None, None);
    parser.expect(b'{')?;
    while !parser.accept(b'}') {
        let key_at = parser.at;
        let key = parser.string()?;
        parser.expect(b':')?;
        let first = match key.as_str() {
            "descr" => descr.replace(parser.descr()?).is_none(),
            "fortran_order" => fortran_order.replace(parser.boolean()?).is_none(),
            "shape" => shape.replace(parser.shape()?).is_none(),
            _ => false,
        };
        if !first {
            return Err((key_at, "a key that is unknown, or comes twice"));
        }
        if !parser.accept(b',') {
            parser.expect(b'}')?;
            break;
        }
    }
    parser.space();
    if parser.at != text.len() {
        return Err((parser.at, "something stands behind the dictionary"));
    }
    match (descr, fortran_order, shape) {
        (Some(descr), Some(fortran_order), Some(shape)) => Ok(Literal {
            descr,
            fortran_order,
            shape,
        }),
        _ => Err((0, "descr, fortran_order and shape belong there")),
    }
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

type Parsed<T> = Result<T, (usize, &'static str)>;

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    fn accept(&mut self, byte: u8) -> bool {
        self.space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Parsed<()> {
        if self.accept(byte) {
            return Ok(());
        }
        Err((self.at, "this is not the dictionary that numpy writes"))
    }

    /// A string in either quotes, as it is written: escapes stay, and letters are Latin-1 or UTF-8 by the file's version. What is asked of it has neither.
    fn string(&mut self) -> Parsed<String> {
        self.space();
        let start = self.at;
        // Python 2 wrote u'<f4'.
        self.at += usize::from(matches!(self.peek(), Some(b'u' | b'U')));
        let quote = self
            .peek()
            .filter(|quote| matches!(quote, b'\'' | b'"'))
            .ok_or((start, "a string belongs there"))?;
        self.at += 1;
        let inside = self.at;
        loop {
            match self.peek() {
                None | Some(b'\n') => return Err((start, "a string that does not end")),
                Some(b'\\') => self.at += 2,
                Some(byte) if byte == quote => break,
                Some(_) => self.at += 1,
            }
        }
        let text = self.text.get(inside..self.at).unwrap_or_default();
        self.at += 1;
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    /// A string, or a list, which is gone over.
    fn descr(&mut self) -> Parsed<Option<String>> {
        self.space();
        if self.peek() != Some(b'[') {
            return self.string().map(Some);
        }
        let start = self.at;
        let mut depth = 0usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'\'' | b'"' => {
                    self.string()?;
                    continue;
                }
                b'[' | b'(' => depth += 1,
                b']' | b')' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Ok(None);
            }
        }
        Err((start, "a list that does not end"))
    }

    fn boolean(&mut self) -> Parsed<bool> {
        self.space();
        let rest = self.text.get(self.at..).unwrap_or_default();
        for (name, value) in [(&b"True"[..], true), (b"False", false)] {
            if rest.starts_with(name) {
                self.at += name.len();
                return Ok(value);
            }
        }
        Err((self.at, "True or False belongs there"))
    }

    fn shape(&mut self) -> Parsed<Vec<u64>> {
        let mut shape = Vec::new();
        self.expect(b'(')?;
        while !self.accept(b')') {
            if shape.len() == RANK_MAX {
                return Err((self.at, "more than 64 dimensions"));
            }
            shape.push(self.number()?);
            if !self.accept(b',') {
                self.expect(b')')?;
                break;
            }
        }
        Ok(shape)
    }

    fn number(&mut self) -> Parsed<u64> {
        self.space();
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        let digits = self.text.get(start..self.at).unwrap_or_default();
        // Python 2 wrote 3L.
        self.at += usize::from(self.peek() == Some(b'L'));
        str::from_utf8(digits)
            .ok()
            .and_then(|digits| digits.parse().ok())
            .ok_or((start, "a dimension belongs there"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dictionary_is_read_as_python_reads_it() {
        let text = b"{'shape': (3L, 4), \"fortran_order\": True,'descr':'<f4'} \n";
        assert_eq!(
            parse(text),
            Ok(Literal {
                descr: Some("<f4".to_owned()),
                fortran_order: true,
                shape: vec![3, 4]
            })
        );
        let scalar = b"{'descr': [('a', '<f4'), ('b]', '<i2', (2,))], 'fortran_order': False, 'shape': (), }";
        assert_eq!(
            parse(scalar).map(|l| (l.descr, l.shape)),
            Ok((None, vec![]))
        );
    }

    /// As `np.save` writes names of fields in version 1.0, and Python 2's numpy a type.
    #[test]
    fn strings_with_prefixes_escapes_and_letters_are_read() {
        let records = b"{'descr': [('gr\xf6\xdfe', '<f4'), ('it\\'s \"q\" \\\\', '<f4'), ((u\"x'\", 'y'), '<i2')], 'fortran_order': False, 'shape': (2,), }";
        assert_eq!(
            parse(records).map(|l| (l.descr, l.shape)),
            Ok((None, vec![2]))
        );
        let old = b"{'descr': u'<f4', u'fortran_order': False, 'shape': (3L,), }";
        assert_eq!(
            parse(old).map(|l| (l.descr, l.shape)),
            Ok((Some("<f4".to_owned()), vec![3]))
        );
        assert_eq!(
            known_type(Some("<f4\\x41")),
            Err("its elements are <f4\\x41, which is no plain number".to_owned())
        );
    }

    #[test]
    fn what_python_would_not_read_is_refused_with_its_place() {
        for (text, place) in [
            (&b""[..], 0),
            (b"{'descr': '<f4', 'fortran_order': False}", 0),
            (b"{'descr': '<f4', 'descr': '<f4'}", 17),
            (b"{'descr': '<f4', 'shape': (1", 28),
            (b"{'descr': '<f4', 'shape': (-1,)", 27),
            (b"{'descr': '<f4', 'shape': (99999999999999999999,)", 27),
            (b"{'descr': [('a', '<f4'", 10),
            (b"{'descr': ]", 10),
            (b"{'descr': '<f4\\", 10),
            (b"{'descr': '<f4\\'", 10),
            (b"{'descr': '<f4\n'", 10),
            (b"{'descr': b'<f4'", 10),
            (b"{'fortran_order': 1}", 18),
            (
                b"{'descr': '<f4', 'fortran_order': False, 'shape': ()} 1",
                54,
            ),
        ] {
            let (at, _) = parse(text).unwrap_err();
            assert_eq!(at, place, "{}", String::from_utf8_lossy(text));
        }
    }
}
