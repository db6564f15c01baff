//! Feeds any text as URLs of units and exports. The text of a URL without its passwords must be the same URL, and
//! neither it nor an error may show a password.
#![no_main]

use std::fmt::Display;
use std::str::FromStr;

use iscsi_copy::{DirtyBitmap, NbdUri};
use iscsi_fuzz::with_text;
use iscsi_initiator::Url;
use libfuzzer_sys::fuzz_target;

/// The password of URLs in the corpus.
const PASSWORD: &str = "hunter2hunter2";

fuzz_target!(|data: &[u8]| with_text(data, |text| {
    unit(text);
    drop(text.parse::<NbdUri>());
    check_printed::<DirtyBitmap>(text);
}));

/// Returns whether the text has the password once, where a password is. With escapes, it could have it elsewhere as well.
fn has_password(text: &str) -> bool {
    let (address, options) = text.split_once('?').unwrap_or((text, ""));
    let before_host = [":hunter2hunter2@", "%hunter2hunter2@"];
    (address.starts_with("iscsi://") || address.starts_with("iscsis://"))
        && text.matches(PASSWORD).count() == 1
        && !text.replacen("%hunter2hunter2@", "", 1).contains('%')
        && (before_host.iter().any(|place| address.contains(place))
            || options.split('&').any(|option| option == "target_password=hunter2hunter2"))
}

fn unit(text: &str) {
    let shown = Url::without_passwords(text);
    let parsed = Url::parse(text);
    let printed = match &parsed {
        Ok(url) => format!("{url} {url:?}"),
        Err(error) => format!("{error} {error:?}"),
    };
    if has_password(text) {
        assert!(!shown.contains(PASSWORD), "a password is shown: {shown}");
        assert!(!printed.contains(PASSWORD), "a password is shown: {printed}");
    }
    let Ok(url) = parsed else { return };
    check_printed::<Url>(text);
    let again = Url::parse(&shown).unwrap_or_else(|error| panic!("{shown}: {error}"));
    assert_eq!((url.portal, url.target, url.lun), (again.portal, again.target, again.lun));
    assert_eq!((url.user, url.target_user), (again.user, again.target_user));
    assert_eq!((url.portals, url.all_portals), (again.portals, again.all_portals));
    assert_eq!((url.tls, url.serial_number), (again.tls, again.serial_number));
    assert_eq!(url.parameters, again.parameters);
}

/// Checks that what a value is printed as can be read, and is printed the same again.
fn check_printed<T: FromStr + Display>(text: &str) {
    let Ok(value) = text.parse::<T>() else { return };
    let printed = value.to_string();
    let Ok(again) = printed.parse::<T>() else { panic!("it cannot be read again: {printed}") };
    assert_eq!(printed, again.to_string());
}
