//! The two readers of the setting `load`: that of the configuration, and that of whoever starts a
//! child.

use sojourn_abi::starts;
use sojourn_session::config;

#[test]
fn both_readers_of_load_take_a_word_alike() {
    for word in ["auto", "1", "on", "true", "yes", "0", "off", "false", "no"] {
        for word in [word.to_owned(), word.to_ascii_uppercase()] {
            let load: config::Load = word.parse().unwrap();
            let of_children = match starts::Load::read(Some(word.as_bytes())) {
                starts::Load::Auto => config::Load::Auto,
                starts::Load::On => config::Load::On,
                starts::Load::Off => config::Load::Off,
            };
            assert_eq!(of_children, load, "{word}");
        }
    }
}
