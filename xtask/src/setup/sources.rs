//! Rewrites the machine's own apt sources to ask the distribution's archive for one more component.
//!
//! Pure text in, text out. Only entries of the distribution itself are kept, told by its code name: other vendors'
//! archives have no such component, and which host serves the archive stays the machine's business.

/// The entries of `files` (name, text) that serve the distribution `codename`, asking for `component` only.
/// One-line `.list` entries and `.sources` paragraphs both come out as paragraphs. Empty when there are none.
pub fn for_component(files: &[(String, String)], codename: &str, component: &str) -> String {
    let mut out = Vec::new();
    for (name, text) in files {
        let entries = if name.ends_with(".sources") {
            paragraphs(text)
        } else {
            text.lines().filter_map(one_line).collect()
        };
        for entry in entries {
            if let Some(kept) = keep(&entry, codename, component)
                && !out.contains(&kept)
            {
                out.push(kept);
            }
        }
    }
    out.join("\n")
}

type Field = (String, String);

fn keep(entry: &[Field], codename: &str, component: &str) -> Option<String> {
    let field = |name: &str| {
        let found = entry.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    };
    if field("Enabled").is_some_and(|value| value.eq_ignore_ascii_case("no"))
        || !field("Types")?.split_whitespace().any(|word| word == "deb")
        || !field("Components")?.split_whitespace().any(|word| word == "main")
    {
        return None;
    }
    let ours = |suite: &&str| {
        let base = suite.split(['-', '/']).next().unwrap_or_default();
        base == codename || ["stable", "testing", "unstable", "sid"].contains(&base)
    };
    let suites: Vec<&str> = field("Suites")?.split_whitespace().filter(ours).collect();
    if suites.is_empty() {
        return None;
    }
    let mut text = format!(
        "Types: deb\nURIs: {}\nSuites: {}\nComponents: {component}\n",
        field("URIs")?,
        suites.join(" ")
    );
    for kept in ["Signed-By", "Trusted", "Architectures"] {
        if let Some(value) = field(kept) {
            text.push_str(&format!("{kept}: {value}\n"));
        }
    }
    Some(text)
}

/// `.sources` paragraphs, with continuation lines (an inline key) kept as they are.
fn paragraphs(text: &str) -> Vec<Vec<Field>> {
    let mut all: Vec<Vec<Field>> = vec![Vec::new()];
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if line.trim().is_empty() {
            all.push(Vec::new());
        } else if let Some(entry) = all.last_mut() {
            if line.starts_with([' ', '\t']) {
                if let Some((_, value)) = entry.last_mut() {
                    value.push('\n');
                    value.push_str(line);
                }
            } else if let Some((key, value)) = line.split_once(':') {
                entry.push((key.trim().to_owned(), value.trim().to_owned()));
            }
        }
    }
    all.retain(|entry| !entry.is_empty());
    all
}

/// `deb [signed-by=/k arch=amd64] uri suite component...`
fn one_line(line: &str) -> Option<Vec<Field>> {
    let line = line.split('#').next()?.trim();
    let rest = line.strip_prefix("deb")?;
    if !rest.starts_with([' ', '\t']) {
        return None;
    }
    let (options, rest) = match rest.trim().strip_prefix('[') {
        Some(inner) => inner.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace();
    let mut entry = vec![
        ("Types".to_owned(), "deb".to_owned()),
        ("URIs".to_owned(), words.next()?.to_owned()),
        ("Suites".to_owned(), words.next()?.to_owned()),
        ("Components".to_owned(), words.collect::<Vec<_>>().join(" ")),
    ];
    for (key, value) in options.split_whitespace().filter_map(|word| word.split_once('=')) {
        let name = match key {
            "signed-by" => "Signed-By",
            "trusted" => "Trusted",
            "arch" => "Architectures",
            _ => continue,
        };
        entry.push((name.to_owned(), value.replace(',', " ")));
    }
    Some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewrite(name: &str, text: &str) -> String {
        for_component(&[(name.to_owned(), text.to_owned())], "bookworm", "non-free")
    }

    #[test]
    fn a_paragraph_keeps_place_suites_and_key_and_asks_for_the_component_only() {
        let text = "Types: deb deb-src\n# note\nURIs: mirror://archive/debian\nSuites: bookworm bookworm-updates\n\
                    Components: main contrib\nSigned-By: /k.gpg\n";
        assert_eq!(
            rewrite("debian.sources", text),
            "Types: deb\nURIs: mirror://archive/debian\nSuites: bookworm bookworm-updates\nComponents: non-free\n\
             Signed-By: /k.gpg\n"
        );
    }

    #[test]
    fn a_line_becomes_a_paragraph() {
        let text = "# deb mirror://old/debian bookworm main\n\
                    deb [arch=amd64,arm64 signed-by=/k.gpg] mirror://a/debian bookworm main non-free-firmware # x\n\
                    deb-src mirror://a/debian bookworm main\n";
        assert_eq!(
            rewrite("sources.list", text),
            "Types: deb\nURIs: mirror://a/debian\nSuites: bookworm\nComponents: non-free\nSigned-By: /k.gpg\n\
             Architectures: amd64 arm64\n"
        );
    }

    #[test]
    fn other_vendors_and_switched_off_entries_are_left_out() {
        for text in [
            "Types: deb\nURIs: mirror://vendor/\nSuites: nodistro\nComponents: main\n",
            "Types: deb\nURIs: mirror://a/\nSuites: bookworm\nComponents: stable\n",
            "Enabled: no\nTypes: deb\nURIs: mirror://a/\nSuites: bookworm\nComponents: main\n",
            "Types: deb-src\nURIs: mirror://a/\nSuites: bookworm\nComponents: main\n",
        ] {
            assert_eq!(rewrite("x.sources", text), "", "{text}");
        }
    }

    #[test]
    fn an_inline_key_survives_and_doubles_are_dropped() {
        let one =
            "Types: deb\nURIs: mirror://a/\nSuites: bookworm\nComponents: main\nSigned-By:\n -----BEGIN\n .\n abc\n";
        let out = rewrite("x.sources", &format!("{one}\n{one}"));
        assert!(out.ends_with("Signed-By: \n -----BEGIN\n .\n abc\n"), "{out}");
        assert_eq!(out.matches("URIs").count(), 1);
    }
}
