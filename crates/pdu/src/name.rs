#[derive(Clone, Debug, Eq, PartialEq, Hash)] pub struct IscsiName(String);
impl IscsiName { pub fn parse(s: &str) -> Result<Self, ()> { Ok(Self(s.into())) } pub fn as_str(&self) -> &str { &self.0 } }
