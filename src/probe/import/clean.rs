//! A pasted line without what terminals, logs and mark-up put around it.
//!
//! It takes away colour codes and odd blanks only; prefixes and bullets are skipped by `table`, which knows what a row
//! looks like. Start at [`line`].

/// The line as plain text; blanks stay where they are, since wrapped cells are joined by them.
pub(super) fn line(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw.trim_end_matches(['\r', '\n']);
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = match c {
            '\u{1b}' => escape(after),
            // What is left when a mail program or a lossy decoding ate the escape byte.
            '\u{fffd}' | '\u{241b}' => escape(after),
            '[' => match colour(rest) {
                Some(end) => end,
                None => {
                    out.push(c);
                    after
                }
            },
            '<' => match tag(after) {
                Some(end) => end,
                None => {
                    out.push(c);
                    after
                }
            },
            '\u{feff}' | '\u{200b}' | '\u{200c}' | '\u{200d}' | '\r' | '\u{8}' | '\0' => after,
            '|' | '│' | '┃' | '\u{a0}' | '\u{3000}' => {
                out.push(' ');
                after
            }
            c => {
                out.push(c);
                after
            }
        };
    }
    out
}

/// Behind an escape byte: a control sequence, a title, or one character.
fn escape(text: &str) -> &str {
    if let Some(sequence) = text.strip_prefix('[') {
        let end = sequence.find(|c: char| ('@'..='~').contains(&c));
        return end.map_or("", |end| &sequence[end + 1..]);
    }
    if let Some(title) = text.strip_prefix(']') {
        let end = title.find(['\u{7}', '\\']);
        return end.map_or("", |end| &title[end + 1..]);
    }
    // Character sets, e.g. `(B`.
    if let Some(set) = text.strip_prefix('(') {
        return set.get(1..).unwrap_or("");
    }
    text
}

/// `[4m`, `[0m`, `[1;31m` without their escape byte: what stands behind.
fn colour(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('[')?;
    let end = inner.find(|c: char| !(c.is_ascii_digit() || c == ';'))?;
    inner[end..].strip_prefix('m')
}

/// `pre>`, `/code>`, `br/>`: what stands behind.
fn tag(text: &str) -> Option<&str> {
    let (name, rest) = text.split_once('>')?;
    let word = name.trim_matches('/');
    ["pre", "code", "br", "p", "div", "td", "tr", "summary", "details"]
        .contains(&word)
        .then_some(rest)
}

/// Whether a line says that something failed.
pub(super) fn is_error(text: &str) -> bool {
    let text = text.to_lowercase();
    const SIGNS: [&str; 14] = [
        "error",
        "failed",
        "failure",
        "couldn't",
        "could not",
        "cannot",
        "unable to",
        "no devices were found",
        "not found",
        "is lost",
        "segmentation fault",
        "permission denied",
        "insufficient permissions",
        "has fallen off",
    ];
    SIGNS.iter().any(|sign| text.contains(sign))
}

/// The tool of another maker that a line is of.
pub(super) fn foreign(text: &str) -> Option<&'static str> {
    const MAKERS: [(&str, &str); 10] = [
        ("xgmi", "an AMD"),
        ("rocm", "an AMD"),
        ("amd-smi", "an AMD"),
        ("instinct", "an AMD"),
        ("hops between two", "an AMD"),
        ("weight between two", "an AMD"),
        ("xpu-smi", "an Intel"),
        ("hccs", "a Huawei"),
        ("npu0", "a Huawei"),
        ("mxlink", "a MetaX"),
    ];
    let text = text.to_lowercase();
    MAKERS
        .iter()
        .find(|(sign, _)| text.contains(sign))
        .map(|(_, maker)| *maker)
}

/// At most 80 characters of a line, for messages.
pub(super) fn quote(text: &str) -> String {
    let text = text.trim();
    let mut out: String = text.chars().filter(|c| !c.is_control()).take(80).collect();
    if text.chars().count() > 80 {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_codes_go_with_or_without_their_escape_byte() {
        for raw in [
            "\u{1b}[4mGPU0\u{1b}[0m",
            "[4mGPU0[0m",
            "\u{fffd}[4mGPU0\u{fffd}[0m",
            "\u{1b}(BGPU0\r\n",
        ] {
            assert_eq!(line(raw), "GPU0", "{raw:?}");
        }
        assert_eq!(line("[12:00] GPU0"), "[12:00] GPU0");
    }
}
