//! Describes the targets that a portal has reported, and how to reach them.

use iscsi_pdu::scsi::Lun;
use iscsi_pdu::{IscsiName, TargetAddress};

use crate::url::{TlsOptions, Url};

/// A target that a portal has reported (SendTargets, RFC 7143 Appendix C).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct DiscoveredTarget {
    /// The target's node name.
    pub name: IscsiName,
    /// The portals of the target, in the order of the response. If the list is empty, the target is at the
    /// portal that sent the response.
    pub addresses: Vec<TargetAddress>,
    /// The portal to which SendTargets was sent.
    pub asked: TargetAddress,
    /// How the discovery session was encrypted. The URLs of the target have the same options.
    pub tls: Option<TlsOptions>,
}

impl DiscoveredTarget {
    /// Returns the targets in a response of the portal `asked`.
    pub(crate) fn all(
        targets: Vec<iscsi_session::DiscoveredTarget>,
        asked: &TargetAddress,
        tls: Option<&TlsOptions>,
    ) -> Vec<Self> {
        let of_portal = |target| {
            let iscsi_session::DiscoveredTarget { name, addresses } = target;
            Self { name, addresses, asked: asked.clone(), tls: tls.cloned() }
        };
        targets.into_iter().map(of_portal).collect()
    }

    /// Returns the portals at which the target can be reached, at least one.
    pub fn portals(&self) -> &[TargetAddress] {
        if self.addresses.is_empty() { std::slice::from_ref(&self.asked) } else { &self.addresses }
    }

    /// Returns a URL of the target for each of its [portals](Self::portals). No URL has credentials: set
    /// [`Url::user`] and [`Url::password`] where the target wants them.
    ///
    /// ```no_run
    /// # async fn example(initiator: iscsi_initiator::Initiator) -> Result<(), iscsi_initiator::Error> {
    /// for target in initiator.discover("iscsi://192.0.2.1").await? {
    ///     target.urls().iter().for_each(|url| println!("{url}"));
    ///     let session = initiator.connect(&target.urls()[0]).await?;
    ///     for lun in session.report_luns().await? {
    ///         println!("{}", target.url(lun));
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn urls(&self) -> Vec<Url> {
        self.portals().iter().map(|portal| self.at(portal, None)).collect()
    }

    /// Returns the URL of a logical unit of the target through the first of its [portals](Self::portals), without
    /// credentials. To use the other portals as well, set [`Url::all_portals`].
    pub fn url(&self, lun: Lun) -> Url {
        self.at(self.portals().first().unwrap_or(&self.asked), Some(lun))
    }

    fn at(&self, portal: &TargetAddress, lun: Option<Lun>) -> Url {
        Url { tls: self.tls.clone(), ..Url::of(portal.clone(), self.name.clone(), lun) }
    }
}

#[cfg(test)]
mod tests {
    use iscsi_session::decode_send_targets;

    use super::*;

    fn targets(answer: &str) -> Vec<DiscoveredTarget> {
        let asked = TargetAddress::parse("192.0.2.9:3261,7").unwrap();
        DiscoveredTarget::all(decode_send_targets(answer.as_bytes()).unwrap(), &asked, None)
    }

    fn urls(target: &DiscoveredTarget) -> Vec<String> {
        target.urls().iter().map(Url::to_string).collect()
    }

    #[test]
    fn there_is_a_url_for_each_portal_and_that_of_the_question_without_any() {
        let found = targets(
            "TargetName=iqn.2026-01.a:b\0TargetAddress=10.0.0.5:3260,1\0TargetAddress=[fd00::5]:3261,2\0\
             TargetName=iqn.2026-01.a:c\0",
        );
        let expected =
            ["iscsi://10.0.0.5:3260/iqn.2026-01.a:b", "iscsi://[fd00::5]:3261/iqn.2026-01.a:b"];
        assert_eq!(urls(&found[0]), expected);
        assert_eq!(urls(&found[1]), ["iscsi://192.0.2.9:3261/iqn.2026-01.a:c"]);
        let unit = found[0].url(Lun::new(7).unwrap());
        assert_eq!(unit.to_string(), "iscsi://10.0.0.5:3260/iqn.2026-01.a:b/7");
    }

    /// The URLs of a discovery over TLS use TLS as well.
    #[test]
    fn the_urls_are_encrypted_as_the_question_was() {
        let tls = TlsOptions { name: Some("san.example".to_owned()), ..TlsOptions::default() };
        let answer = "TargetName=iqn.2026-01.a:b\0TargetAddress=10.0.0.5:3261,1\0TargetName=iqn.2026-01.a:c\0";
        let asked = TargetAddress::parse("192.0.2.9:3261").unwrap();
        let list = decode_send_targets(answer.as_bytes()).unwrap();
        let found = DiscoveredTarget::all(list, &asked, Some(&tls));
        for target in &found {
            let unit = target.url(Lun::ZERO);
            for url in target.urls().iter().chain([&unit]) {
                assert_eq!(url.tls.as_ref(), Some(&tls));
                assert!(url.to_string().starts_with("iscsis://"), "{url}");
            }
        }
    }

    /// The portal chooses names and hosts. In the URL of a target they must stay what they are: none may become
    /// a user, an option, or another part of the path.
    #[test]
    fn what_a_portal_names_is_read_back_as_that_and_nothing_else() {
        for (name, host) in [
            ("iqn.2026-01.a:b", "user:secret@storage.example"),
            ("iqn.2026-01.a:x@y/3?auth=md5#%41", "storage.example"),
            ("iqn.2026-01.a:b", "storage.example?timeout=1"),
            ("iqn.2026-01.a:b", "[fe80::5%eth0]:3260"),
            ("iqn.2026-01.a:b", "[fe80::5%2541]:3260"),
            ("iqn.2026-01.a:\u{e9}", "storage.example"),
        ] {
            let answer = format!("TargetName={name}\0TargetAddress={host}\0");
            let [target] = &targets(&answer)[..] else { panic!("{answer:?}") };
            let Some(address) = target.addresses.first() else { continue };
            let url = target.url(Lun::new(3).unwrap());
            let text = url.to_string();
            assert!(!text.contains('@') && !text.contains('?'), "{text}");
            let read = Url::parse(&text).unwrap();
            assert_eq!(read.portal, TargetAddress { portal_group_tag: None, ..address.clone() });
            assert_eq!((&read.target, read.lun), (&Some(target.name.clone()), url.lun), "{text}");
            assert!(read.user.is_none() && read.password.is_none() && !read.all_portals, "{text}");
        }
    }
}
