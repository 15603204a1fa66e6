//! The comparison of transcripts.
//!
//! What differs between two plain runs is not compared. Of what does not differ there, these
//! answers are not compared either, or not exactly (`docs/use/linux-differences.md`):
//!
//! * `SIOCOUTQ`: bytes in a ring count as handed over.
//! * `epoll_wait`: an edge may be told once more than the kernel tells it.

/// The first step that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The step's number in its script.
    pub step: usize,
    /// The answer of the plain run.
    pub plain: String,
    /// The answer under Sojourn.
    pub under: String,
}

/// Answers by step; the last has the end of the run, if that is not the ordinary one.
pub type Answers = Vec<String>;

/// Splits a transcript into answers, for a script of `count` steps.
#[must_use]
pub fn answers(transcript: &str, count: usize) -> Answers {
    let mut answers = vec![String::new(); count + 1];
    for line in transcript.lines() {
        let (number, rest) = line.split_once(' ').unwrap_or((line, ""));
        match number.parse::<usize>() {
            Ok(step) if step < count => answers[step] = rest.to_owned(),
            _ if line == "over" => answers[count] = line.to_owned(),
            _ => answers[count] += line,
        }
    }
    answers
}

/// Returns the first step whose answers differ.
#[must_use]
pub fn difference(steps: &[String], plain: [&Answers; 2], under: &Answers) -> Option<Difference> {
    let find = |step: &usize| {
        let [first, second] = plain.map(|answers| &answers[*step]);
        let call = steps.get(*step).map_or("", String::as_str);
        first == second && !is_alike(call, first, &under[*step])
    };
    let step = (0..under.len()).find(find)?;
    Some(Difference { step, plain: plain[0][step].clone(), under: under[step].clone() })
}

fn is_alike(call: &str, plain: &str, under: &str) -> bool {
    if call.contains(" SIOCOUTQ") {
        return plain.starts_with("-1") == under.starts_with("-1");
    }
    if call.contains(" epoll_wait ") && plain.starts_with("events") {
        return has_events(under, plain);
    }
    plain == under
}

/// Returns true if `all` has each event of `some`.
fn has_events(all: &str, some: &str) -> bool {
    all.starts_with("events")
        && some.split(' ').all(|event| all.split(' ').any(|other| other == event))
}
