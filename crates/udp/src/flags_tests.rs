//! Tests of the command line.
use super::*;

#[test]
fn the_manual_page_and_completions_know_every_option() {
    let printed = |words: &[&str]| {
        let flags = Flags::parse_from(["sojourn-udpd"].iter().chain(words));
        String::from_utf8(flags.printed().unwrap().unwrap()).unwrap().replace("\\-", "-")
    };
    let (man, bash) = (printed(&["--man"]), printed(&["--completions", "bash"]));
    for option in Flags::command().get_arguments().filter_map(|option| option.get_long()) {
        let option = format!("--{option}");
        assert!(man.contains(&option) && bash.contains(&option), "{option}");
    }
    assert!(man.contains("sojourn-udpd 8"), "{man}");
    assert!(Flags::parse_from(["sojourn-udpd"]).printed().unwrap().is_none());
    Flags::command().debug_assert();
}
