//! Makes a drawing as text: elements one after the other, on a white background.

/// A drawing in progress.
#[derive(Clone, Debug)]
pub(super) struct Svg {
    width: f64,
    height: f64,
    body: String,
}

/// A position in the drawing, x from the left and y from the top.
pub(super) type At = (f64, f64);

const FONTS: &str =
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";

impl Svg {
    /// Returns an empty drawing.
    pub(super) fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    /// Adds a straight line.
    pub(super) fn line(&mut self, from: At, to: At, attributes: &str) {
        let (x1, y1, x2, y2) = (number(from.0), number(from.1), number(to.0), number(to.1));
        self.element(&format!(r#"<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" {attributes}/>"#));
    }

    /// Adds a line through several positions, or the border of an area if `closed`.
    pub(super) fn path(&mut self, positions: &[At], closed: bool, attributes: &str) {
        let positions: Vec<_> =
            positions.iter().map(|(x, y)| format!("{} {}", number(*x), number(*y))).collect();
        let end = if closed { "Z" } else { "" };
        self.element(&format!(r#"<path d="M{}{end}" {attributes}/>"#, positions.join("L")));
    }

    /// Adds a circle.
    pub(super) fn circle(&mut self, (x, y): At, radius: f64, attributes: &str) {
        let (x, y, radius) = (number(x), number(y), number(radius));
        self.element(&format!(r#"<circle cx="{x}" cy="{y}" r="{radius}" {attributes}/>"#));
    }

    /// Adds a rectangle, by its upper left corner and its size.
    pub(super) fn rectangle(&mut self, (x, y): At, size: (f64, f64), attributes: &str) {
        let (x, y, width, height) = (number(x), number(y), number(size.0), number(size.1));
        self.element(&format!(
            r#"<rect x="{x}" y="{y}" width="{width}" height="{height}" {attributes}/>"#
        ));
    }

    /// Adds a line of text.
    pub(super) fn text(&mut self, (x, y): At, text: &str, attributes: &str) {
        let (x, y, text) = (number(x), number(y), escape(text));
        self.element(&format!(r#"<text x="{x}" y="{y}" {attributes}>{text}</text>"#));
    }

    /// Returns the file. The title is for screen readers.
    pub(super) fn finish(self, title: &str) -> String {
        let Self { width, height, body } = self;
        let title = escape(title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\" font-family=\"{FONTS}\">\n\
             <title>{title}</title>\n\
             <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#ffffff\"/>\n\
             {body}</svg>\n"
        )
    }

    fn element(&mut self, element: &str) {
        self.body.push_str(element);
        self.body.push('\n');
    }
}

/// Formats a coordinate with a precision of 0.1 pixels.
fn number(value: f64) -> String {
    // Adding zero turns a negative zero into zero.
    format!("{}", (value * 10.0).round() / 10.0 + 0.0)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        let mut svg = Svg::new(10.0, 10.0);
        svg.text((1.0, 2.04), "a<b>&c", "");
        let file = svg.finish("<x>");
        assert!(file.contains(r#"<text x="1" y="2" >a&lt;b&gt;&amp;c</text>"#));
        assert!(file.contains("<title>&lt;x&gt;</title>"));
    }

    #[test]
    fn coordinates_are_short() {
        assert_eq!([1.0, 2.349, -0.01].map(number), ["1", "2.3", "0"]);
    }
}
