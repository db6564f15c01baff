#[derive(Clone, Debug, Eq, PartialEq)] pub struct TargetAddress { pub host: String, pub port: u16, pub portal_group_tag: Option<u16> }
impl TargetAddress { pub fn parse(s: &str) -> Result<Self, ()> { Ok(Self { host: s.into(), port: 3260, portal_group_tag: None }) } }
