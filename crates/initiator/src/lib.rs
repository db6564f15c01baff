//! iSCSI initiator.
