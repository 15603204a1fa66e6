//! Security modules of the kernel that look at each packet of an established session.
//!
//! SELinux does where its policy says so (`always_check_network`), and where any rule marks packets
//! for it (SECMARK); Smack labels all. AppArmor looks only at packets that a rule has marked, which
//! keeps their session by itself; Landlock, TOMOYO and Yama look at no packets. What programs of
//! the BPF module do cannot be seen. Not here: the rules that mark (`ruleset`, `tables`).

use std::path::Path;

/// The names of active modules, separated by commas; and SELinux's folder, where it is mounted.
const NAMES: &str = "kernel/security/lsm";
const SELINUX: &str = "fs/selinux";
const ALWAYS: &str = "policy_capabilities/always_check_network";

/// The security modules, as far as they look at packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modules {
    has_selinux: bool,
    checks_always: bool,
    has_smack: bool,
}

impl Modules {
    /// Reads what the kernel tells below `/sys`.
    pub(crate) fn read() -> Self {
        Self::below(Path::new("/sys"))
    }

    fn below(sys: &Path) -> Self {
        let text = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let names = text(&sys.join(NAMES));
        let has = |name: &str| names.trim().split(',').any(|one| one == name);
        let selinux = sys.join(SELINUX);
        Self {
            has_selinux: has("selinux") || selinux.join("enforce").exists(),
            checks_always: text(&selinux.join(ALWAYS)).trim() == "1",
            has_smack: has("smack"),
        }
    }

    /// Returns the module that looks at packets of all sessions. `marks` is true if a rule marks
    /// packets for modules.
    pub(crate) fn concerning(self, marks: bool) -> Option<&'static str> {
        let Self { has_selinux, checks_always, has_smack } = self;
        if has_selinux && checks_always {
            return Some("SELinux, whose policy checks all packets (always_check_network)");
        }
        if has_selinux && marks {
            return Some("SELinux, for which rules mark packets (SECMARK)");
        }
        has_smack.then_some("the security module Smack, which labels all packets")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_that_look_at_packets() {
        let sys = std::env::temp_dir().join(format!("sojourn-modules-{}", std::process::id()));
        let put = |path: &str, text: &str| {
            let path = sys.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(Modules::below(&sys), Modules::default());
        put(NAMES, "capability,landlock,yama,apparmor,bpf\n");
        assert_eq!(Modules::below(&sys).concerning(true), None);
        put(NAMES, "capability,selinux");
        assert_eq!(Modules::below(&sys).concerning(false), None);
        assert!(Modules::below(&sys).concerning(true).is_some());
        put("fs/selinux/policy_capabilities/always_check_network", "0");
        assert_eq!(Modules::below(&sys).concerning(false), None);
        put("fs/selinux/policy_capabilities/always_check_network", "1");
        assert!(Modules::below(&sys).concerning(false).is_some());
        put(NAMES, "capability,smack");
        put("fs/selinux/policy_capabilities/always_check_network", "0");
        assert!(Modules::below(&sys).concerning(false).is_some());
        std::fs::remove_dir_all(&sys).unwrap();
    }
}
