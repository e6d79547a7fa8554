//! Prints a manifest as static data of `topoforge::registry`'s types.
//!
//! Reads the manifest that the crate's build script left in `OUT_DIR`. Start at [`families`].

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{format_ident, quote};
use std::path::PathBuf;
use syn::LitStr;
use topoforge_codegen::lower::{Element, Partials, Protocol, RankPorts};
use topoforge_codegen::manifest::{FamilyEntry, KernelEntry, Manifest, VariantEntry};
use topoforge_codegen::toolkit::sha256;

fn error(span: Span, text: &str) -> TokenStream {
    let text = Literal::string(text);
    quote::quote_spanned!(span => ::core::compile_error!(#text))
}

/// The manifest of the crate that is being compiled.
pub(crate) fn manifest() -> Result<Manifest, String> {
    let out = std::env::var_os("OUT_DIR")
        .ok_or("this crate has no build script: add a build.rs that calls topoforge_codegen::Forge::new().topologies(\"topologies\").compile()")?;
    Manifest::read(&PathBuf::from(out)).map_err(|e| e.to_string())
}

pub(crate) fn families(folder: &LitStr) -> TokenStream {
    match manifest() {
        Ok(manifest) => {
            let changed = manifest.families.iter().filter_map(changed).collect();
            print(&manifest, changed, folder)
        }
        Err(e) => error(folder.span(), &e),
    }
}

/// The set, or one error for each fault of the build and each of `more`.
fn print(manifest: &Manifest, more: Vec<String>, folder: &LitStr) -> TokenStream {
    if manifest.topologies != folder.value() {
        let text = format!(
            "build.rs compiled the descriptors of \"{}\", not of \"{}\": name the same folder in both",
            manifest.topologies,
            folder.value()
        );
        return error(folder.span(), &text);
    }
    let faults = manifest.faults.iter().map(|f| f.text.clone()).chain(more);
    let errors: Vec<TokenStream> = faults.map(|text| error(folder.span(), &text)).collect();
    if !errors.is_empty() {
        return quote!({ #(#errors;)* });
    }
    let kernels = manifest.kernels.iter().map(|k| kernel(k, manifest.host));
    let externs = manifest.kernels.iter().filter(|_| manifest.host).map(|k| {
        let symbol = format_ident!("{}", k.kernel.symbol);
        quote!(fn #symbol(thread: *mut ::core::ffi::c_void, params: *const ::core::ffi::c_void);)
    });
    let externs = if manifest.host {
        quote!(#[allow(unsafe_code)] unsafe extern "C" { #(#externs)* })
    } else {
        TokenStream::new()
    };
    let families = manifest.families.iter().map(family);
    let build = build_info(manifest);
    quote!({
        use ::topoforge::registry::{BuildInfo, Element, Family, FamilySet, Kernel, Memory, Partials, Protocol, PutPort, RankPorts, Variant};
        #externs
        #(#kernels)*
        static BUILD: BuildInfo = #build;
        static SET: FamilySet = FamilySet { build: &BUILD, families: &[#(#families),*] };
        &SET
    })
}

/// A descriptor that changed after the build script ran means that cargo was not told to watch it.
fn changed(family: &FamilyEntry) -> Option<String> {
    let path = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?).join(&family.path);
    match std::fs::read(&path) {
        Ok(bytes) if sha256::hex(&bytes) == family.descriptor => None,
        Ok(_) => Some(format!(
            "{}:1:1: changed since the build script ran: build again",
            family.file
        )),
        Err(e) => Some(format!(
            "{}:1:1: was compiled but cannot be read now ({e}): build again",
            family.file
        )),
    }
}

fn build_info(m: &Manifest) -> TokenStream {
    let (version, set, archs, toolkits) = (&m.version, &m.kernel_set, &m.archs, &m.toolkits);
    let ptx = match m.ptx {
        Some(arch) => quote!(::core::option::Option::Some(#arch)),
        None => quote!(::core::option::Option::None),
    };
    let left_out = m.left_out.iter().map(|(arch, reason)| quote!((#arch, #reason)));
    let sets = &m.sets;
    let elements = m.elements.iter().map(|e| element(*e));
    quote!(BuildInfo {
        version: #version,
        elements: &[#(#elements),*],
        sets: &[#(#sets),*],
        archs: &[#(#archs),*],
        ptx: #ptx,
        left_out: &[#(#left_out),*],
        toolkits: &[#(#toolkits),*],
        kernel_set: #set,
    })
}

fn kernel_name(hash: &str) -> Ident {
    format_ident!("KERNEL_{}", hash)
}

fn kernel(entry: &KernelEntry, host: bool) -> TokenStream {
    let k = &entry.kernel;
    let (name, hash, symbol) = (kernel_name(&k.hash), &k.hash, &k.symbol);
    let (puts, gets, inputs, tables) = (k.puts, k.gets, k.inputs, k.tables);
    let protocol = protocol(k.protocol);
    let images = entry.images.iter().map(|file| {
        let file = format!("/{file}");
        quote!(::topoforge::image!(concat!(env!("OUT_DIR"), #file)))
    });
    let function = format_ident!("{}", k.symbol);
    let host = if host {
        quote!(::core::option::Option::Some(#function))
    } else {
        quote!(::core::option::Option::None)
    };
    quote!(
        #[allow(non_upper_case_globals)]
        static #name: Kernel = Kernel {
            hash: #hash,
            symbol: #symbol,
            protocol: #protocol,
            puts: #puts,
            gets: #gets,
            inputs: #inputs,
            tables: #tables,
            images: &[#(#images),*],
            host: #host,
        };
    )
}

fn protocol(p: Protocol) -> TokenStream {
    match p {
        Protocol::Packet => quote!(Protocol::Packet),
        Protocol::Sentinel => quote!(Protocol::Sentinel),
        Protocol::Packet128 => quote!(Protocol::Packet128),
        Protocol::Flag => quote!(Protocol::Flag),
        Protocol::Pull => quote!(Protocol::Pull),
    }
}

fn element(e: Element) -> TokenStream {
    match e {
        Element::F16 => quote!(Element::F16),
        Element::Bf16 => quote!(Element::Bf16),
        Element::F32 => quote!(Element::F32),
    }
}

fn family(f: &FamilyEntry) -> TokenStream {
    let (name, file, path, hash) = (&f.name, &f.file, &f.path, &f.hash);
    let descriptor = if std::path::Path::new(path).is_absolute() {
        quote!(include_str!(#path))
    } else {
        let path = format!("/{path}");
        quote!(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), #path)))
    };
    let variants = f.variants.iter().map(variant);
    let aliases = &f.aliases;
    let alltoallv = match &f.alltoallv {
        Some(catalogue) => {
            let file = format!("/{}", catalogue.file);
            quote!(::core::option::Option::Some(include_bytes!(
                concat!(env!("OUT_DIR"), #file)
            )))
        }
        None => quote!(::core::option::Option::None),
    };
    quote!(Family {
        name: #name,
        aliases: &[#(#aliases),*],
        file: #file,
        descriptor: #descriptor,
        hash: #hash,
        variants: &[#(#variants),*],
        alltoallv: #alltoallv,
    })
}

fn variant(v: &VariantEntry) -> TokenStream {
    let (name, schedule, chunks, stages, planes) = (&v.name, &v.schedule, v.chunks, v.stages, v.planes);
    let kernel = kernel_name(&v.kernel);
    let protocol = protocol(v.protocol);
    let memory = if v.staged {
        quote!(Memory::Host)
    } else {
        quote!(Memory::Peer)
    };
    let element = element(v.element);
    let partials = v.partials.iter().map(|p| match p {
        Partials::Element => quote!(Partials::Element),
        Partials::F32 => quote!(Partials::F32),
    });
    let ranks = v.ranks.iter().map(rank_ports);
    let (expressions, expression_of, classes) = (&v.expressions, &v.expression_of, &v.classes);
    quote!(Variant {
        name: #name,
        schedule: #schedule,
        protocol: #protocol,
        memory: #memory,
        element: #element,
        partials: &[#(#partials),*],
        kernel: &#kernel,
        chunks: #chunks,
        stages: #stages,
        planes: #planes,
        ranks: &[#(#ranks),*],
        expressions: &[#(#expressions),*],
        expression_of: &[#(#expression_of),*],
        classes: &[#(#classes),*],
    })
}

fn rank_ports(r: &RankPorts) -> TokenStream {
    let (program, gets, tables) = (r.program, &r.gets, &r.tables);
    let puts = r.puts.iter().map(|p| {
        let (peer, region) = (p.peer, p.region);
        quote!(PutPort { peer: #peer, region: #region })
    });
    quote!(RankPorts { program: #program, puts: &[#(#puts),*], gets: &[#(#gets),*], tables: &[#(#tables),*] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use topoforge_codegen::manifest::{FORMAT, FaultEntry};

    fn faulty(faults: &[&str]) -> Manifest {
        Manifest {
            format: FORMAT,
            version: "0".into(),
            topologies: "topologies".into(),
            host: false,
            elements: vec![],
            sets: vec![],
            archs: vec![],
            ptx: None,
            left_out: vec![],
            toolkits: vec![],
            kernel_set: "0".into(),
            kernels: vec![],
            families: vec![],
            faults: faults.iter().map(|f| FaultEntry { text: (*f).into() }).collect(),
        }
    }

    fn folder(name: &str) -> LitStr {
        LitStr::new(name, Span::call_site())
    }

    #[test]
    fn every_fault_is_a_compile_error_that_begins_with_its_place() {
        let texts = [
            "topologies/x.ron:12:5: rank 9 is out of range",
            "topologies/y.ron:1:1: empty",
        ];
        let tokens = print(
            &faulty(&texts),
            vec!["topologies/z.ron:1:1: changed".into()],
            &folder("topologies"),
        )
        .to_string();
        assert_eq!(tokens.matches("compile_error").count(), 3, "{tokens}");
        for text in texts {
            assert!(tokens.contains(&format!("(\"{text}")), "{tokens}");
        }
    }

    #[test]
    fn another_folder_than_the_build_scripts_is_an_error() {
        let tokens = print(&faulty(&[]), vec![], &folder("elsewhere")).to_string();
        assert!(tokens.contains("name the same folder in both"), "{tokens}");
    }

    #[test]
    fn a_build_without_faults_is_a_set() {
        let tokens = print(&faulty(&[]), vec![], &folder("topologies")).to_string();
        assert!(
            tokens.contains("static SET : FamilySet") && !tokens.contains("compile_error"),
            "{tokens}"
        );
    }
}
