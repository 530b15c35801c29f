//! Numbers as they are printed.

/// With commas between thousands.
///
/// ```
/// assert_eq!(attnscope_graph::figures::thousands(1_174_528), "1,174,528");
/// ```
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Short, with the digits that matter.
pub fn number(x: f64) -> String {
    match x.abs() {
        _ if !x.is_finite() => "–".into(),
        0.0 => "0".into(),
        a if !(1e-3..1e5).contains(&a) => format!("{x:.2e}"),
        a if a >= 1000.0 => format!("{x:.0}"),
        a if a >= 100.0 => format!("{x:.1}"),
        a if a >= 10.0 => format!("{x:.2}"),
        a if a >= 1.0 => format!("{x:.3}"),
        _ => format!("{x:.4}"),
    }
}

/// With so many digits after the point, without zeros at the end.
///
/// ```
/// assert_eq!(attnscope_graph::figures::trimmed(0.25, 4), "0.25");
/// assert_eq!(attnscope_graph::figures::trimmed(100.0, 4), "100");
/// ```
pub fn trimmed(x: f64, digits: usize) -> String {
    let text = format!("{x:.digits$}");
    if digits == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}

/// With enough digits to compare it with a close number.
pub fn exact(x: f64) -> String {
    match x.abs() {
        _ if x.is_nan() => "NaN".into(),
        _ if x.is_infinite() => if x > 0.0 { "∞" } else { "−∞" }.into(),
        0.0 => "0".into(),
        a if !(1e-4..1e7).contains(&a) => format!("{x:.6e}"),
        _ => trimmed(x, 7),
    }
}

/// A fraction of a largest value.
pub fn share(relative: f64) -> String {
    match relative {
        r if r >= 0.1 => format!("{:.0} %", 100.0 * r),
        r if r >= 1e-3 => format!("{:.1} %", 100.0 * r),
        r => format!("{r:.1e}"),
    }
}

/// How many of something.
///
/// ```
/// assert_eq!(attnscope_graph::figures::counted(2, "row"), "2 rows");
/// ```
pub fn counted(n: usize, word: &str) -> String {
    if n == 1 { format!("1 {word}") } else { format!("{n} {word}s") }
}
