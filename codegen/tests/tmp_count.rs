use topoforge_codegen::select::select;
use topoforge_planner::topology::parse_descriptor;
#[test]
fn count() {
    let mut files: Vec<_> = std::fs::read_dir("/tmp/topo")
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    files.sort();
    let mut all = std::collections::BTreeMap::<String, (usize, usize)>::new();
    for f in files {
        let t = parse_descriptor(&std::fs::read_to_string(&f).unwrap(), &f.display().to_string()).unwrap();
        let at = std::time::Instant::now();
        let s = select(&t);
        let before = all.len();
        let mut size = 0;
        for (h, k) in &s.kernels {
            all.insert(h.clone(), (k.text.len(), t.ranks));
            size = size.max(k.text.len());
        }
        let progs = s
            .variants
            .iter()
            .map(|v| v.ranks.iter().map(|r| r.program).max().unwrap() + 1)
            .max()
            .unwrap();
        let one = s
            .variants
            .iter()
            .filter(|v| v.ranks.iter().all(|r| r.program == 0))
            .count();
        println!(
            "{:20} kernels {:3} new {:3} variants {:3} single {:3} max progs {} text {} dropped {} {:?}",
            t.name,
            s.kernels.len(),
            all.len() - before,
            s.variants.len(),
            one,
            progs,
            size,
            s.dropped.len(),
            at.elapsed()
        );
        if std::env::var("V").is_ok() {
            for v in &s.variants {
                println!("    {} {:?} {}", v.name, v.classes, v.kernel);
            }
            for d in &s.dropped {
                println!("   dropped {d}");
            }
        }
    }
    println!(
        "{} kernels, {} bytes",
        all.len(),
        all.values().map(|v| v.0).sum::<usize>()
    );
}
