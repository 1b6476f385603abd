//! Kernels made up in memory, whole and damaged; and those of this machine, where there are any.

use super::*;

/// For measuring on real kernels: RBT_KERNEL_FILES names folders of unpacked packages, RBT_KERNEL_OUT where to write what was found.
#[test]
#[ignore = "reads what RBT_KERNEL_FILES names"]
fn real_ones() {
    let out = std::env::var("RBT_KERNEL_OUT").unwrap();
    for dir in std::env::var("RBT_KERNEL_FILES").unwrap().split(':') {
        let start = std::time::Instant::now();
        let contents =
            if Path::new(dir).is_dir() { from_package(Path::new(dir), &mut |_| {}) } else { from_vmlinux(Path::new(dir), &mut |_| {}) };
        let contents = contents.unwrap();
        println!("{} {} {} in {:?}", contents.about.release, contents.about.machine, contents.about.build_id, start.elapsed());
        println!(
            "  btf {} functions {:?} untraceable {:?} err {:?} config {:?}",
            contents.btf.len(),
            contents.functions.as_ref().map(Functions::count),
            contents.untraceable.as_ref().map(Vec::len),
            contents.error_injectable.as_ref().map(Vec::len),
            contents.config.as_ref().map(String::len)
        );
        println!("  unknown {:?}", unknown(&contents));
        let base = format!("{out}/{}", contents.about.release);
        std::fs::create_dir_all(&base).unwrap();
        std::fs::write(format!("{base}/functions"), contents.functions.as_ref().map_or("", |f| f.lines())).unwrap();
        let events = contents.events.unwrap_or_default();
        println!("  events {}", events.len());
        let text: String = events.iter().map(|e| format!("=== {}/{}\n{}", e.category, e.name, e.format)).collect();
        std::fs::write(format!("{base}/formats"), text).unwrap();
        std::fs::write(format!("{base}/errinj"), contents.error_injectable.unwrap_or_default().join("\n")).unwrap();
    }
}
