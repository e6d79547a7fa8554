//! RON text as a tree whose every node knows its byte offset.
//!
//! The `ron` crate does all lexing and syntax checking; this module only peels one layer at a time through
//! `RawValue` slices, which borrow from the text, so that a slice's address gives its place. It never
//! interprets a value. Start reading at [`parse`].

use std::fmt;

use ron::value::RawValue;
use serde::de::{self, Deserializer as _, MapAccess, SeqAccess, Visitor};

/// A value and where it starts.
pub(super) struct Node<'a> {
    /// Byte offset of its first character, comments and blanks skipped.
    pub offset: usize,
    /// The identifier in front, e.g. `pair` in `pair(0, 1, Host)`; bare words have one too.
    pub name: Option<&'a str>,
    pub shape: Shape<'a>,
}

pub(super) enum Shape<'a> {
    /// `(a: 1, b: 2)`, with or without a name.
    Fields(Vec<Field<'a>>),
    /// `[1, 2]`, `(1, 2)` or `name(1, 2)`.
    Items(Vec<Node<'a>>),
    /// A bare word such as `Host`, or `()`.
    Word,
    Bool(bool),
    /// A whole number.
    Whole(i64),
    /// Any other number.
    Real(f64),
    Text(String),
    /// `None` or `Some(..)`.
    Optional(Option<Box<Node<'a>>>),
    /// Something no descriptor uses, in words.
    Other(&'static str),
}

pub(super) struct Field<'a> {
    /// Byte offset of the field's name.
    pub offset: usize,
    pub name: &'a str,
    pub value: Node<'a>,
}

impl Node<'_> {
    /// The value in words, for "expected this, found that".
    pub(super) fn describe(&self) -> String {
        match (&self.shape, self.name) {
            (Shape::Fields(_) | Shape::Items(_), Some(name)) => format!("`{name}(..)`"),
            (Shape::Fields(_), None) => "a struct".into(),
            (Shape::Items(_), None) => "a list".into(),
            (Shape::Word, Some(name)) => format!("`{name}`"),
            (Shape::Word, None) => "`()`".into(),
            (Shape::Bool(b), _) => format!("`{b}`"),
            (Shape::Whole(n), _) => format!("{n}"),
            (Shape::Real(x), _) => format!("{x:?}"),
            (Shape::Text(text), _) => format!("{:?}", text.chars().take(40).collect::<String>()),
            (Shape::Optional(None), _) => "`None`".into(),
            (Shape::Optional(Some(_)), _) => "`Some(..)`".into(),
            (Shape::Other(what), _) => (*what).into(),
        }
    }
}

/// Reads the whole text, or says at which byte it stops being RON.
pub(super) fn parse(text: &str) -> Result<Node<'_>, (usize, String)> {
    let start = trivia(text);
    if text[start..].starts_with('#') {
        return Err((
            start,
            "attributes such as `#![enable(..)]` are not used in descriptors".into(),
        ));
    }
    RawValue::from_ron(text).map_err(|error| place(text, &error))?;
    node(text, text)
}

fn node<'a>(text: &'a str, slice: &'a str) -> Result<Node<'a>, (usize, String)> {
    let slice = &slice[trivia(slice)..];
    let offset = offset_in(text, slice);
    let layer = ron::Deserializer::from_str(slice)
        .and_then(|mut de| de.deserialize_any(OneLayer).map_err(|error| de.span_error(error)))
        .map_err(|error| {
            let (at, message) = place(slice, &error);
            (offset + at, message)
        })?;
    let shape = match layer {
        Layer::Fields(fields) => Shape::Fields(
            fields
                .into_iter()
                .map(|(name, raw)| {
                    let value = node(text, raw.get_ron())?;
                    Ok(Field {
                        offset: offset_in(text, name),
                        name,
                        value,
                    })
                })
                .collect::<Result<_, _>>()?,
        ),
        Layer::Items(items) => Shape::Items(
            items
                .into_iter()
                .map(|raw| node(text, raw.get_ron()))
                .collect::<Result<_, _>>()?,
        ),
        Layer::Some(raw) => Shape::Optional(Some(Box::new(node(text, raw.get_ron())?))),
        Layer::Leaf(shape) => shape,
    };
    let name = match shape {
        Shape::Fields(_) | Shape::Items(_) | Shape::Word => word(slice),
        _ => None,
    };
    Ok(Node { offset, name, shape })
}

/// `part` is always a slice of `text`, so the distance of their addresses is its offset.
fn offset_in(text: &str, part: &str) -> usize {
    (part.as_ptr() as usize)
        .saturating_sub(text.as_ptr() as usize)
        .min(text.len())
}

fn word(slice: &str) -> Option<&str> {
    let end = slice
        .find(|c: char| !(c.is_alphanumeric() || c == '_'))
        .unwrap_or(slice.len());
    (end > 0 && !slice.starts_with(|c: char| c.is_ascii_digit())).then(|| &slice[..end])
}

/// Length of the blanks and comments in front.
fn trivia(text: &str) -> usize {
    let mut rest = text.trim_start();
    loop {
        let after = if let Some(comment) = rest.strip_prefix("//") {
            comment.find('\n').map_or("", |end| &comment[end..])
        } else if rest.starts_with("/*") {
            block_comment_end(rest)
        } else {
            return text.len() - rest.len();
        };
        rest = after.trim_start();
    }
}

/// RON block comments nest.
fn block_comment_end(text: &str) -> &str {
    let (mut depth, mut rest) = (0_usize, text);
    while let Some(at) = rest.find(['/', '*']) {
        rest = &rest[at..];
        if let Some(inner) = rest.strip_prefix("/*") {
            (depth, rest) = (depth + 1, inner);
        } else if let Some(outer) = rest.strip_prefix("*/") {
            (depth, rest) = (depth - 1, outer);
            if depth == 0 {
                return rest;
            }
        } else {
            rest = &rest[1..];
        }
    }
    ""
}

/// Byte offset and text of an error that `ron` placed by line and column.
fn place(slice: &str, error: &ron::error::SpannedError) -> (usize, String) {
    let mut start = 0;
    for _ in 1..error.span.start.line {
        start += slice[start..].find('\n').map_or(0, |end| end + 1);
    }
    let columns = slice[start..]
        .char_indices()
        .nth(error.span.start.col.saturating_sub(1));
    let at = columns.map_or(slice.len(), |(at, _)| start + at);
    // The crate's own words are for programmers.
    if error.code == ron::Error::ExceededRecursionLimit {
        return (at, "nested deeper than a descriptor needs".into());
    }
    (at, format!("not valid RON: {}", error.code))
}

enum Layer<'a> {
    Fields(Vec<(&'a str, &'a RawValue)>),
    Items(Vec<&'a RawValue>),
    Some(&'a RawValue),
    Leaf(Shape<'a>),
}

struct OneLayer;

impl<'a> Visitor<'a> for OneLayer {
    type Value = Layer<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a RON value")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Layer<'a>, A::Error> {
        let mut fields = Vec::new();
        while let Some(FieldName(name)) = map.next_key()? {
            fields.push((name, map.next_value()?));
        }
        Ok(Layer::Fields(fields))
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<Layer<'a>, A::Error> {
        let mut items = Vec::new();
        while let Some(raw) = seq.next_element()? {
            items.push(raw);
        }
        Ok(Layer::Items(items))
    }

    fn visit_some<D: de::Deserializer<'a>>(self, de: D) -> Result<Layer<'a>, D::Error> {
        de::Deserialize::deserialize(de).map(Layer::Some)
    }

    fn visit_none<E: de::Error>(self) -> Result<Layer<'a>, E> {
        Ok(Layer::Leaf(Shape::Optional(None)))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Layer<'a>, E> {
        Ok(Layer::Leaf(Shape::Word))
    }

    fn visit_bool<E: de::Error>(self, b: bool) -> Result<Layer<'a>, E> {
        Ok(Layer::Leaf(Shape::Bool(b)))
    }

    fn visit_i64<E: de::Error>(self, n: i64) -> Result<Layer<'a>, E> {
        Ok(Layer::Leaf(Shape::Whole(n)))
    }

    fn visit_u64<E: de::Error>(self, n: u64) -> Result<Layer<'a>, E> {
        Ok(Layer::Leaf(
            i64::try_from(n).map_or(Shape::Real(n as f64), Shape::Whole),
        ))
    }

    fn visit_f64<E: de::Error>(self, x: f64) -> Result<Layer<'a>, E> {
        Ok(Layer::Leaf(Shape::Real(x)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Layer<'a>, E> {
        Ok(Layer::Leaf(Shape::Text(text.to_owned())))
    }

    fn visit_char<E: de::Error>(self, _: char) -> Result<Layer<'a>, E> {
        Ok(Layer::Leaf(Shape::Other("a character")))
    }

    fn visit_bytes<E: de::Error>(self, _: &[u8]) -> Result<Layer<'a>, E> {
        Ok(Layer::Leaf(Shape::Other("a byte string")))
    }
}

/// A field name, borrowed so that its address is its place.
struct FieldName<'a>(&'a str);

impl<'a> de::Deserialize<'a> for FieldName<'a> {
    fn deserialize<D: de::Deserializer<'a>>(de: D) -> Result<Self, D::Error> {
        struct Borrowed;
        impl<'a> Visitor<'a> for Borrowed {
            type Value = FieldName<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a field name")
            }

            fn visit_borrowed_str<E: de::Error>(self, name: &'a str) -> Result<FieldName<'a>, E> {
                Ok(FieldName(name))
            }
        }
        de.deserialize_identifier(Borrowed)
    }
}
