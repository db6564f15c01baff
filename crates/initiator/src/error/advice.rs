//! Defines the advice: what can be done about an error.

use std::fmt;

/// Defines [`Advice`], the list of all variants, and the text of each, so that no variant can lack a text or
/// a place in the list.
macro_rules! advices {
    ($($name:ident => $text:literal,)*) => {
        /// Remedy for an [`Error`](crate::Error).
        ///
        /// The text is a part of a sentence, in terms of this crate, for programmers. A program whose users
        /// know it by its options can match on some variants and print its own text for them, and print this
        /// text for all others.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[non_exhaustive]
        pub enum Advice {
            $(
                #[doc = concat!("Says: `", $text, "`.")]
                $name,
            )*
        }

        impl Advice {
            /// Lists every advice.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the text of the advice.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

advices! {
    // Advice about URLs.
    WriteUrl => "write iscsi://host/target/lun",
    NameTarget => "write iscsi://host/target/lun, or list the targets with Initiator::discover",
    AddLun => "add its number, as in iscsi://host/target/0",
    OmitIser => "use an iscsi:// URL without the option iser",
    WritePortal => "write host, host:port or [ipv6]:port",
    EscapeAt => "write one in a user name or password as %40",
    EscapeQuestionMark => "write ? in a user name or password as %3F, and @ in an option as %40",
    EscapeAmpersand => "check its spelling, and write & in a password as %26",
    UseLunRange => "use 0 to 16383",
    OmitRest => "remove it",
    CheckSpelling => "check its spelling",
    OmitRepetition => "leave one of them out",
    AskForTls => "write iscsis://HOST:PORT/..., or add tls=yes",
    NamePort => "write the one at which TLS is spoken, as in iscsis://HOST:PORT/...",
    OmitPinOrName => "use one of the two",
    GiveBoth => "name both, or none",
    // Advice about names and passwords.
    ChooseInitiatorName => "choose another name for the initiator",
    NameUser => "write iscsi://USER@HOST/...",
    NameUserOrOmitPassword => "name the user as in iscsi://USER@HOST/..., or in the variable LIBISCSI_CHAP_USERNAME, or remove the password",
    GiveOwnUser => "name the user as in iscsi://USER@HOST/..., or in the variable LIBISCSI_CHAP_USERNAME",
    GivePassword => "set Url::password, or the variable LIBISCSI_CHAP_PASSWORD",
    GiveTargetPassword => "set Url::target_password, or the variable LIBISCSI_CHAP_TARGET_PASSWORD",
    GiveCredentials => "name the user as in iscsi://USER@HOST/..., and set Url::password, or the variable LIBISCSI_CHAP_PASSWORD",
    CheckCredentials => "check both",
    EnableChap => "have the target ask for a password, or omit user and password here",
    AllowAlgorithm => "allow one of them at the target",
    CheckTargetPassword => "check the user and the password of the target (mutual CHAP), here and there",
    ChooseUser => "choose another user name, here and on the target",
    LongerPassword => "choose 12 to 16 random bytes, here and on the target",
    TwoPasswords => "choose two",
    AdmitInitiator => "add it to the target's access list or use another initiator name",
    CheckCertificate => "check the certificate of the peer, and tls_ca, tls_name or tls_pin in the URL",
    CheckTlsPort => "check that TLS is spoken at that port: a target itself speaks none, only a tunnel before it",
    CheckTlsFiles => "check tls_ca, tls_cert and tls_key in the URL",
    ProvideTls => "set Options::with_tls, for example to that of the crate iscsi-tls",
    // Advice about the network path to the target.
    CheckHostName => "check its spelling and the name service",
    CheckPort => "check the port, and that the target is running, or wait for it (Options::with_open_timeout)",
    CheckRoute => "check the address and the route",
    CheckFirewall => "check the address, the route and the firewall, or wait for the target (Options::with_open_timeout)",
    WaitForTarget => "try again later, or wait for it (Options::with_open_timeout)",
    NamePortal => "name that portal in the URL if it is the right one",
    AllowRedirect => "if it is, have it prove that (mutual CHAP), or allow it by redirects=any in the URL",
    CorrectPortal => "correct the address that the target names",
    ListTargets => "list its targets with Initiator::discover",
    CheckListener => "check that an iSCSI target listens there",
    CheckTarget => "check that an iSCSI target listens there and is well",
    CheckNetwork => "connect again, and check the network if that goes on",
    Reconnect => "connect again",
    ReadTargetLog => "look at the log of the target",
    ReportTarget => "the target does not keep to the standard: look at its log, and report that to its maker",
    MoreTime => "look at the log of the target, or allow more time by timeout=SECONDS in the URL",
    EndSessions => "end some of them",
    // Advice about the unit.
    ListUnits => "list its units with Session::report_luns",
    ChooseDisk => "choose a disk",
    CheckLun => "check the LUN",
    CheckSerialNumber => "check the URL, and the serial number that its option force_usn names",
    RestoreUnit => "bring it back there, and open it again",
    OneUnit => "name only portals of one unit, and open it again",
    Reopen => "open it again",
    AskForLess => "ask for what it has, or open it again",
    CheckMedium => "see which one is there, and open it again",
    UseOtherPortal => "another portal may serve the unit",
    MakeWritable => "make it writable on the target",
    MakeRoom => "make room on the target, then write again",
    MakeRoomInStore => "the target cannot write to the store of the unit, mostly because that is full: make room there, or look at the target's log",
    CheckStore => "the target does not reach the store of the unit: look at the target's log",
    ReadElsewhere => "what lies there is lost, and other blocks may be well",
    TryLater => "try again later",
    TryWithLess => "try later, or with fewer requests in flight",
    // Advice about writes of a lost session.
    WriteAgain => "write again",
    WriteLater => "write them when the target has dropped that session",
    WriteNothing => "write nothing there before the target has dropped that session",
    // Advice about reservations.
    FindHolder => "Disk::reservation reports which one",
    GiveKey => "open it with one, as in ?reservation_key=0x1a2b",
    CheckOtherHosts => "make sure that none uses it, and open the disk again",
    ReleaseAgain => "release it again when a session is back there, or preempt the key, by a disk that is opened with another one",
    PreemptKey => "open the disk again with that key and preempt it, or have another host do so",
    StopOtherHost => "stop it first; if it is gone, end its registration with PREEMPT (Disk::preempt)",
    // Advice for the calling program.
    UseOtherClass => "open the disk in another one",
    UseRuntime => "call it from one, or use iscsi_initiator::blocking",
    Await => "await the async form, or make the call in spawn_blocking",
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
