//! Prints the table of socket options as a page in Markdown.

fn main() {
    print!("{}", sojourn_options::page());
}
