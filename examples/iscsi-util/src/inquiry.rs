//! Shows what a unit reports about itself: INQUIRY (SPC-4 §6.6).

mod page;

use bytes::Bytes;
use clap::Args;
use iscsi_examples_common::help::heading;
use iscsi_initiator::LogicalUnit;
use iscsi_pdu::scsi::vpd::SupportedPages;
use serde_json::json;

use self::page::Page;
use crate::connector::Connector;
use crate::error::Error;
use crate::report::Report;

/// The options of `inquiry`.
#[derive(Clone, Debug, Args)]
pub struct Inquiry {
    /// Unit: iscsi://HOST/TARGET/LUN.
    pub url: String,
    /// Show a page of vital product data, by its hexadecimal code.
    ///
    /// In place of the standard data. 0, 80, 83, b0, b1 and b2 are decoded; other pages are shown as bytes.
    #[arg(long, value_name = "PAGE", value_parser = parse_page, conflicts_with = "all", help_heading = heading::OUTPUT)]
    pub page: Option<u8>,
    /// Show the standard data, and all pages that the unit lists.
    #[arg(long, help_heading = heading::OUTPUT)]
    pub all: bool,
}

impl Inquiry {
    /// Reads the pages from the unit.
    ///
    /// # Errors
    /// If the unit does not respond, or does not have the page.
    pub async fn run(&self, connector: &Connector) -> Result<Report, Error> {
        let work = async |unit: &_| connector.unless(self.pages(unit)).await?;
        let pages = connector.unit(&self.url, work).await?;
        let text: Vec<_> = pages.iter().map(ToString::to_string).collect();
        let members = json!({ "pages": pages.iter().map(Page::to_json).collect::<Vec<_>>() });
        Ok(Report::new(text.join("\n"), members))
    }

    async fn pages(&self, unit: &LogicalUnit) -> Result<Vec<Page>, Error> {
        let standard = Page::standard(&unit.check_present().await?);
        if let Some(page) = self.page {
            return Ok(vec![vital(unit, page).await?]);
        }
        let mut pages = vec![standard];
        if self.all {
            let list = ask(unit, SupportedPages::PAGE).await?;
            let codes = SupportedPages::decode(&list).map_err(page::unreadable)?.pages;
            for code in codes {
                pages.push(match vital(unit, code).await {
                    // A unit may list a page that it does not have.
                    Err(error) if unit.session().is_open() => Page::missing(code, &error),
                    result => result?,
                });
            }
        }
        Ok(pages)
    }
}

/// Reads a page of vital product data.
async fn vital(unit: &LogicalUnit, page: u8) -> Result<Page, Error> {
    Ok(Page::vital(page, &ask(unit, page).await?)?)
}

async fn ask(unit: &LogicalUnit, page: u8) -> Result<Bytes, Error> {
    unit.vital_product_data(page).await.map_err(|cause| match cause.sense() {
        Some(_) => Error::Page { page, cause },
        None => cause.into(),
    })
}

fn parse_page(text: &str) -> Result<u8, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let is_hexadecimal = digits.chars().all(|digit| digit.is_ascii_hexdigit());
    let page = u8::from_str_radix(digits, 16).ok().filter(|_| is_hexadecimal);
    page.ok_or_else(|| "write a page code in hexadecimal, 0 to ff".to_owned())
}
