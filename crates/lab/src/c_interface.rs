//! A crate's C interface as its users have it: installed below one folder, found by pkg-config,
//! compiled against by plain `cc`.
//!
//! Not here: what the C programs do, which stands in each crate's `tests/c`.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a crate says of its C interface.
#[derive(Clone, Copy, Debug)]
pub struct CInterface {
    /// The crate's folder, with `include` and the template of the pkg-config file.
    pub folder: &'static str,
    /// A folder for the installation: cargo's for a crate's tests.
    pub target: &'static str,
    /// The version for the pkg-config file.
    pub version: &'static str,
    /// The name behind `libsojourn_`, `sojourn-` (pkg-config) and `sojourn/` (header).
    pub name: &'static str,
    /// The same of the library that cargo builds.
    pub built_name: &'static str,
}

/// An installed C interface: `include`, `lib`, `lib/pkgconfig` below one folder.
#[derive(Debug)]
pub struct Installed {
    interface: CInterface,
    prefix: PathBuf,
}

impl CInterface {
    /// Installs the header, the pkg-config file and the libraries that were built along with the
    /// running test. What an earlier run left goes.
    ///
    /// # Errors
    /// Those of files, with their names.
    pub fn install(self) -> Result<Installed> {
        let prefix = Path::new(self.target).join(format!("{}-prefix", self.name));
        let _ = std::fs::remove_dir_all(&prefix);
        std::fs::create_dir_all(prefix.join("lib/pkgconfig"))?;
        let link = |target: &Path, name: String| {
            std::os::unix::fs::symlink(target, prefix.join(&name)).context(name)
        };
        let name = format!("libsojourn_{}", self.name);
        link(&Path::new(self.folder).join("include"), "include".to_owned())?;
        let shared = self.built("so")?.context("no shared library was built along")?;
        link(&shared, format!("lib/{name}.so.0"))?;
        link(Path::new(&format!("{name}.so.0")), format!("lib/{name}.so"))?;
        if let Some(archive) = self.built("a")? {
            link(&archive, format!("lib/{name}.a"))?;
        }
        let template = format!("{}/sojourn-{}.pc.in", self.folder, self.name);
        let template = std::fs::read_to_string(&template).context(template)?;
        let at = prefix.to_str().context("a folder whose name is not UTF-8")?;
        let filled = template.replace("@prefix@", at).replace("@version@", self.version);
        std::fs::write(prefix.join(format!("lib/pkgconfig/sojourn-{}.pc", self.name)), filled)?;
        Ok(Installed { interface: self, prefix })
    }

    /// Returns the newest library of that kind that was built along with this test; cargo may have
    /// put a hash into its name.
    fn built(&self, extension: &str) -> Result<Option<PathBuf>> {
        let here = std::env::current_exe()?;
        let stem = format!("libsojourn_{}", self.built_name);
        let is_ours = |path: &PathBuf| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let rest = name.strip_prefix(&stem);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
                && path.extension().is_some_and(|found| found == extension)
        };
        let modified = |path: &PathBuf| path.metadata().and_then(|file| file.modified()).ok();
        let deps = std::fs::read_dir(here.parent().context("a program in no folder")?)?;
        let deps = deps.filter_map(|entry| Some(entry.ok()?.path()));
        Ok(deps.filter(is_ours).max_by_key(modified))
    }

    fn header(&self) -> String {
        format!("{}/include/sojourn/{}.h", self.folder, self.name)
    }

    /// Has a C++ compiler read the header, without a warning.
    ///
    /// # Errors
    /// What the compiler says.
    pub fn check_as_cpp(&self) -> Result<()> {
        for standard in ["-std=c++11", "-std=c++20"] {
            run(Command::new("g++")
                .args([standard, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++"])
                .arg(self.header()))?;
        }
        Ok(())
    }
}

impl Installed {
    /// Returns a path below the folder of the installation.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.prefix.join(name)
    }

    /// Compiles files of the crate's `tests/c` to a program, with the flags that pkg-config gives.
    ///
    /// # Errors
    /// What pkg-config or the compiler says.
    pub fn compile(&self, program: &str, sources: &[&str]) -> Result<PathBuf> {
        let flags = run(self
            .with_pkg_config(&mut Command::new("pkg-config"))
            .args(["--cflags", "--libs"])
            .arg(format!("sojourn-{}", self.interface.name)))?;
        let flags: Vec<&str> = flags.split_whitespace().collect();
        self.compile_with(program, sources, &flags)
    }

    /// Compiles files of the crate's `tests/c` to a program, against the archive.
    ///
    /// # Errors
    /// What the compiler says.
    pub fn compile_static(&self, program: &str, sources: &[&str]) -> Result<PathBuf> {
        let archive = self.path(&format!("lib/libsojourn_{}.a", self.interface.name));
        let include = self.path("include");
        let flags = [&archive, &include].map(|path| path.to_string_lossy().into_owned());
        let [archive, include] = &flags;
        let flags = ["-I", include, archive, "-lgcc_s", "-lpthread", "-lm", "-ldl"];
        self.compile_with(&format!("{program}-static"), sources, &flags)
    }

    fn compile_with(&self, program: &str, sources: &[&str], flags: &[&str]) -> Result<PathBuf> {
        let target = self.path(program);
        let source = |name: &&str| format!("{}/tests/c/{name}.c", self.interface.folder);
        run(Command::new("cc")
            .args(["-Wall", "-Wextra", "-Werror", "-std=c11", "-O1", "-o"])
            .arg(&target)
            .args(sources.iter().map(source))
            .args(flags))?;
        Ok(target)
    }

    /// Returns the command of a program that finds the shared library.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.path("lib"));
        command
    }

    /// Has a build find the installation by pkg-config.
    pub fn with_pkg_config<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("PKG_CONFIG_PATH", self.path("lib/pkgconfig"))
    }

    /// Checks that the shared library exports the header's functions and no others, under its
    /// soname.
    ///
    /// # Errors
    /// The difference.
    pub fn check_exports(&self) -> Result<()> {
        let name = format!("libsojourn_{}.so", self.interface.name);
        let library = self.path("lib").join(&name);
        let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(&library))?;
        let mut exported: Vec<&str> =
            symbols.lines().filter_map(|line| line.split(' ').next_back()).collect();
        exported.sort_unstable();
        let header = std::fs::read_to_string(self.interface.header())?;
        let mut declared: Vec<&str> = header
            .lines()
            .filter(|line| line.ends_with(");") && !line.starts_with([' ', '/', '*']))
            .filter_map(|line| line.split('(').next()?.split([' ', '*']).next_back())
            .collect();
        declared.sort_unstable();
        if exported != declared {
            bail!("exported: {exported:?}\ndeclared: {declared:?}");
        }
        let dynamic = run(Command::new("readelf").arg("-d").arg(&library))?;
        if !dynamic.contains(&format!("[{name}.0]")) {
            bail!("its soname is not {name}.0: {dynamic}");
        }
        Ok(())
    }
}

/// Runs a command to its end; returns its standard output.
///
/// # Errors
/// If it fails: the command, with what it has written to its standard error.
pub fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{command:?}: {}\n{errors}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
