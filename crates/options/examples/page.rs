//! Prints the table of socket options as a page.

fn main() {
    print!("{}", sojourn_options::page());
}
