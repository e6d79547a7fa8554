//! Where the tables of routes lie: a file for a single type of elements, a file a type for several.
//!
//! Reads and names files, decides nothing. Start at [`read`].

use super::{CommError, Options};
use crate::registry::Element;
use crate::routes::Routes;
use std::path::{Path, PathBuf};

/// The file of one type among those asked for. A single type has the path as it is given; of several, each has its name
/// before the extension, e.g. `routes.bf16.ron`.
pub(super) fn path_of(path: &Path, element: Element, elements: &[Element]) -> PathBuf {
    if elements.len() < 2 {
        return path.to_owned();
    }
    match path.extension() {
        Some(extension) => path.with_extension(format!("{element}.{}", extension.to_string_lossy())),
        None => path.with_extension(element.name()),
    }
}

/// The tables that are there, in the order of [`Options::elements`]. Where a type of several has no file of its own, the
/// path as it is given serves if its table is of that type: it may be left from when that was the only one.
pub(super) fn read(options: &Options) -> Result<Vec<Option<Routes>>, CommError> {
    let Some(path) = &options.routes else {
        return Ok(options.elements.iter().map(|_| None).collect());
    };
    let of = |element: &Element| {
        let own = path_of(path, *element, &options.elements);
        if own.exists() {
            return Ok(Some(Routes::read(&own)?));
        }
        if own == *path || !path.exists() {
            return Ok(None);
        }
        let single = Routes::read(path)?;
        Ok((single.identity().element == *element).then_some(single))
    };
    options.elements.iter().map(of).collect()
}

/// All that tables say, for ranks to compare; empty where there is none.
pub(super) fn text<'a>(tables: impl IntoIterator<Item = &'a Routes>) -> String {
    tables.into_iter().map(Routes::to_text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Partials;
    use crate::routes::Identity;

    #[test]
    fn a_single_type_keeps_the_path_and_several_have_their_name_in_it() {
        let both = [Element::F16, Element::Bf16];
        let name = |path: &str, elements: &[Element]| path_of(Path::new(path), Element::Bf16, elements);
        assert_eq!(name("a/routes.ron", &[Element::Bf16]), Path::new("a/routes.ron"));
        assert_eq!(name("a/routes.ron", &both), Path::new("a/routes.bf16.ron"));
        assert_eq!(name("a/routes", &both), Path::new("a/routes.bf16"));
    }

    #[test]
    fn a_table_of_one_type_serves_on_when_others_join_it() {
        let folder = std::env::temp_dir().join(format!("topoforge-tables-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let table = |element| {
            let identity = Identity {
                kernel_set: "k".into(),
                driver: "d".into(),
                nccl: None,
                gpus: vec!["a".into(), "b".into()],
                layout: 1,
                element,
                partials: Partials::F16,
                family: "nvlink-pair".into(),
                placement: vec![0, 1],
            };
            Routes::empty(identity)
        };
        let path = folder.join("routes.ron");
        let options = |elements: &[Element]| Options {
            routes: Some(path.clone()),
            elements: elements.to_vec(),
            ..Options::default()
        };
        let read = |elements: &[Element]| {
            let tables = read(&options(elements)).expect("read");
            tables
                .into_iter()
                .map(|t| t.map(|t| t.identity().element))
                .collect::<Vec<_>>()
        };
        let both = [Element::Bf16, Element::F16];
        assert_eq!(read(&both), [None, None]);
        table(Element::F16).write(&path).expect("written");
        assert_eq!(read(&[Element::F16]), [Some(Element::F16)]);
        assert_eq!(read(&both), [None, Some(Element::F16)]);
        let own = path_of(&path, Element::Bf16, &both);
        table(Element::Bf16).write(&own).expect("written");
        assert_eq!(read(&both), [Some(Element::Bf16), Some(Element::F16)]);
        std::fs::write(&own, "nonsense").expect("written");
        assert!(super::read(&options(&both)).is_err_and(|e| e.to_string().contains("bf16.ron")));
        std::fs::remove_dir_all(folder).expect("removed");
    }
}
