//! The name under which a controller looks for the progress.

use std::str::FromStr;

use iscsi_examples_common::metrics::{MetricFamily, MetricType};

/// Name of the progress in per cent on the page of metrics, with its labels.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ProgressName {
    /// The name, without the suffix of a counter.
    name: String,
    kind: MetricType,
    /// The labels in their form on the page, or nothing.
    labels: String,
}

impl ProgressName {
    /// Returns the progress, a part from 0 to 1, under this name.
    pub(super) fn family(&self, part: f64) -> MetricFamily {
        // Hundredths: controllers expect digits with a point, and no exponent. Rounded down, so that 100 is the end.
        let percent = (part * 1e4).floor() / 1e2;
        let family = MetricFamily::new(&*self.name, self.kind, "Part that is copied, in per cent.");
        family.with_text(&self.labels, percent)
    }
}

impl FromStr for ProgressName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, labels) = text.find('{').map_or((text, ""), |at| text.split_at(at));
        if !is_name(name, true) || !are_labels(labels) {
            return Err(
                "write NAME or NAME{LABEL=\"VALUE\"}, as import_progress{ownerUID=\"1f0e\"}"
                    .to_owned(),
            );
        }
        let (name, kind) = match name.strip_suffix("_total").filter(|name| !name.is_empty()) {
            Some(name) => (name, MetricType::Counter),
            None => (name, MetricType::Gauge),
        };
        Ok(Self { name: name.to_owned(), kind, labels: labels.to_owned() })
    }
}

/// Returns whether the text is the name of a quantity, or of a label.
fn is_name(text: &str, may_have_colons: bool) -> bool {
    let is_valid =
        |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':' && may_have_colons;
    text.bytes().all(is_valid) && text.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

/// Returns whether the text is empty, or labels in braces with their values.
fn are_labels(text: &str) -> bool {
    if text.is_empty() {
        return true;
    }
    let Some(mut rest) = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) else {
        return false;
    };
    loop {
        let Some((name, value)) = rest.split_once("=\"") else { return false };
        let Some(end) = end_of_value(value) else { return false };
        if !is_name(name, false) {
            return false;
        }
        match value.get(end + 1..).map(|rest| rest.strip_prefix(',').ok_or(rest)) {
            Some(Ok(next)) => rest = next,
            Some(Err("")) => return true,
            Some(Err(_)) | None => return false,
        }
    }
}

/// Returns the position of the quotation mark that ends a value; `None` without one, and for a wrong escape.
fn end_of_value(text: &str) -> Option<usize> {
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return Some(at),
            b'\\' if !matches!(bytes.next()?.1, b'\\' | b'"' | b'n') => return None,
            b'\n' | b'\r' => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use iscsi_initiator::MetricsFormat;
    use regex::Regex;

    use super::*;

    /// Returns the line with the number on a page with the progress `part`.
    fn line(name: &str, part: f64) -> String {
        let page =
            name.parse::<ProgressName>().unwrap().family(part).text(MetricsFormat::Prometheus);
        page.lines().find(|line| !line.starts_with('#')).unwrap().to_owned()
    }

    /// The expressions by which the controllers of Forklift and of KubeVirt's CDI find the progress.
    #[test]
    fn controllers_find_the_number() {
        for (name, expression) in [
            (
                r#"openstack_populator_progress{ownerUID="1f0e-77"}"#,
                r#"progress\{ownerUID="1f0e-77"\} (\d+\.?\d*)"#,
            ),
            (
                r#"kubevirt_cdi_import_progress_total{ownerUID="1f0e-77"}"#,
                r#"kubevirt_cdi_import_progress_total\{ownerUID="1f0e-77"\} (\d{1,3}\.?\d*)"#,
            ),
        ] {
            let expression = Regex::new(&format!("(?-u){expression}")).unwrap();
            for (part, percent) in
                [(0.0, "0"), (0.00001, "0"), (0.4256, "42.56"), (0.99999, "99.99"), (1.0, "100")]
            {
                let line = line(name, part);
                let found = expression.captures(&line).unwrap_or_else(|| panic!("{line}"));
                assert_eq!(&found[1], percent);
            }
        }
    }

    #[test]
    fn names_that_would_break_the_page_are_refused() {
        for name in ["progress", "a:b", r#"p{a="x",b="y \" z"}"#, r#"p{a=""}"#] {
            assert!(name.parse::<ProgressName>().is_ok(), "{name}");
        }
        for name in [
            "",
            "1p",
            "p q",
            "p{}",
            "p{a}",
            "p{a=x}",
            r#"p{a="x"#,
            r#"p{a="x"},"#,
            r#"p{a="x"y="z"}"#,
            r#"p{a="x",}"#,
            r#"p{1a="x"}"#,
            r#"p{a="\q"}"#,
            "p{a=\"x\ny\"}",
            r#"{a="x"}"#,
        ] {
            assert!(name.parse::<ProgressName>().is_err(), "{name}");
        }
    }
}
