use super::*;
pub(super) fn authenticate(_rig: &mut Rig) {}
