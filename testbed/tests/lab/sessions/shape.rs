//! Compares what is printed with what a page shows: words and shape have to agree, while figures, times and addresses differ from run to run.

/// What stands for any lines if it is a line, and for any words if it is a word.
const ANYTHING: [&str; 2] = ["…", "[...]"];

/// Units of measured values, each with those that a faster or slower machine has in its place.
const UNITS: [(&str, &[&str]); 4] = [
    ("TIME", &["ns", "us", "µs", "ms", "s", "sec"]),
    ("RATE", &["bits/sec", "Kbits/sec", "Mbits/sec", "Gbits/sec"]),
    ("SIZE", &["Bytes", "KBytes", "MBytes", "GBytes"]),
    ("SIZE/s", &["KB/s", "MB/s", "GB/s"]),
];

/// Returns the first line that differs: its index in `shown`, or how many lines are shown if more is printed.
pub fn first_difference(shown: &[String], printed: &[String]) -> Option<usize> {
    // The states in which lines are compared: with the first lines of what is shown used up.
    let skip = |mut states: Vec<usize>| {
        let mut index = 0;
        while let Some(&state) = states.get(index) {
            if shown.get(state).is_some_and(|line| ANYTHING.contains(&line.trim())) && !states.contains(&(state + 1)) {
                states.push(state + 1);
            }
            index += 1;
        }
        states
    };
    let mut states = skip(vec![0]);
    for line in printed {
        let mut next = Vec::new();
        for &state in &states {
            let Some(pattern) = shown.get(state) else { continue };
            let to = match ANYTHING.contains(&pattern.trim()) {
                true => state,
                false if is_alike(pattern, line) => state + 1,
                false => continue,
            };
            if !next.contains(&to) {
                next.push(to);
            }
        }
        if next.is_empty() {
            return states.into_iter().max();
        }
        states = skip(next);
    }
    (!states.contains(&shown.len())).then(|| states.into_iter().max().unwrap_or(0))
}

/// Whether a printed line has the words and the shape of one that is shown.
fn is_alike(shown: &str, printed: &str) -> bool {
    alike(&words(shown), &words(printed))
}

fn alike(shown: &[String], printed: &[String]) -> bool {
    match (shown, printed) {
        ([], []) => true,
        ([first, rest @ ..], _) if ANYTHING.contains(&first.as_str()) => {
            (0..=printed.len()).any(|skipped| alike(rest, &printed[skipped..]))
        }
        ([first, shown @ ..], [word, printed @ ..]) => is_word_alike(first, word) && alike(shown, printed),
        _ => false,
    }
}

/// Compares words, of which a shown one may have a part that stands for anything.
fn is_word_alike(shown: &str, printed: &str) -> bool {
    match shown.split_once('…') {
        None => shown == printed,
        Some((start, end)) => printed.strip_prefix(start).is_some_and(|rest| rest.ends_with(end)),
    }
}

/// Returns the words of a line with what differs between runs taken out of them.
fn words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let word = general(word);
        let is_behind_figure = words.last().is_some_and(|last| last.ends_with('#'));
        let bare = word.trim_end_matches([',', ';', ':', '.', ')']);
        let unit = UNITS
            .iter()
            .find(|(_, units)| is_behind_figure && units.contains(&bare));
        words.push(unit.map_or_else(|| word.clone(), |(name, _)| format!("{name}{}", &word[bare.len()..])));
    }
    words
}

/// Digits behind the point of what a program computes, as against what is measured.
const RESULT_DECIMALS: usize = 6;

/// Replaces addresses, hashes and figures of a word. A figure that is a part of a name, as in `n1`, stays, and so do a share, as in
/// `0% packet loss`, and a result with six digits behind the point, which is the same on every machine.
fn general(word: &str) -> String {
    let chars: Vec<char> = word.chars().collect();
    let mut text = String::new();
    let mut at = 0;
    while at < chars.len() {
        let before = at.checked_sub(1).map(|before| chars[before]);
        let is_start = before.is_none_or(|before| !before.is_alphanumeric() && before != '_');
        if is_start {
            if let Some(len) = address_len(&chars[at..]).or_else(|| hash_len(&chars[at..])) {
                text.push('#');
                at += len;
                continue;
            }
            if chars[at].is_ascii_digit() {
                let figure: String = chars[at..]
                    .iter()
                    .take_while(|letter| letter.is_ascii_digit() || **letter == '.')
                    .collect();
                let figure = figure.trim_end_matches('.');
                at += figure.len();
                let is_result = figure
                    .split_once('.')
                    .is_some_and(|(_, decimals)| decimals.len() >= RESULT_DECIMALS && !decimals.contains('.'));
                if is_result || chars.get(at) == Some(&'%') {
                    text.push_str(figure);
                } else {
                    text.push('#');
                }
                // A time or a size in one word, such as `38ms`: the unit goes with the figure.
                let rest: String = chars[at..].iter().take_while(|letter| letter.is_alphabetic()).collect();
                if let Some((name, _)) = UNITS.iter().find(|(_, units)| units.contains(&rest.as_str())) {
                    text.push_str(name);
                    at += rest.chars().count();
                }
                continue;
            }
        }
        text.push(chars[at]);
        at += 1;
    }
    text
}

/// Returns the length of an Ethernet address at the start of these letters.
fn address_len(chars: &[char]) -> Option<usize> {
    const LEN: usize = 17;
    let address = chars.get(..LEN)?;
    let is_part = |(index, letter): (usize, &char)| match index % 3 {
        2 => *letter == ':',
        _ => letter.is_ascii_hexdigit(),
    };
    address.iter().enumerate().all(is_part).then_some(LEN)
}

/// Returns the length of a hash, such as that of a build, at the start of these letters.
fn hash_len(chars: &[char]) -> Option<usize> {
    let hash: Vec<_> = chars.iter().take_while(|letter| letter.is_alphanumeric()).collect();
    let is_hex = |letter: &&char| letter.is_ascii_digit() || ('a'..='f').contains(*letter);
    (hash.len() >= 8 && hash.iter().all(is_hex) && hash.iter().any(|letter| letter.is_ascii_digit()))
        .then_some(hash.len())
}

#[cfg(test)]
mod tests {
    use super::first_difference;

    fn difference(shown: &str, printed: &str) -> Option<usize> {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        first_difference(&lines(shown), &lines(printed))
    }

    #[test]
    fn figures_times_and_addresses_may_differ_and_words_may_not() {
        for (shown, printed) in [
            ("rtt 0.4/1.5 ms", "rtt 12.9/3.25 ms"),
            ("took 38ms", "took 1.5s"),
            ("17.4 MBytes  151 Mbits/sec", "1.1 GBytes  1.06 Gbits/sec"),
            ("mac 52:54:00:00:01:01 of n1", "mac fa:c2:97:46:5c:ff of n1"),
            ("(build 50c7654626f7, process 31924)", "(build c139b0254270, process 7)"),
            ("a      b", "a b"),
        ] {
            assert_eq!(difference(shown, printed), None, "{shown} {printed}");
        }
        for (shown, printed) in [
            ("n1 is ready", "n2 is ready"),
            ("0% packet loss", "33% packet loss"),
            ("3 frames", "3 frames more"),
            ("LINK  RATE", "LINK  DELAY"),
            ("loss gemodel 1% 25%", "loss gemodel 1% 75%"),
            ("10 Mbit", "10 ms"),
            ("mean temperature 0.158303", "mean temperature 0.158304"),
        ] {
            assert_eq!(difference(shown, printed), Some(0), "{shown} {printed}");
        }
    }

    #[test]
    fn lines_that_are_missing_or_too_many_are_found() {
        assert_eq!(difference("a\nb", "a"), Some(1));
        assert_eq!(difference("a", "a\nb"), Some(1));
        assert_eq!(difference("", "a"), Some(0));
        assert_eq!(difference("a\n\nb", "a\nb"), Some(1));
        assert_eq!(difference("a\nb\nc", "a\nx\nc"), Some(1));
    }

    #[test]
    fn an_ellipsis_stands_for_any_lines_or_words_or_a_part_of_one() {
        for (shown, printed) in [
            ("…", ""),
            ("…\nb", "x\ny\nb"),
            ("a\n[...]\nc", "a\nc"),
            ("a … z", "a b c z"),
            ("in /…/file.rs", "in /home/user/file.rs"),
        ] {
            assert_eq!(difference(shown, printed), None, "{shown} {printed}");
        }
        assert_eq!(difference("…\nb", "x\ny"), Some(1));
        assert_eq!(difference("in /…/file.rs", "in /home/other.rs"), Some(0));
    }
}
