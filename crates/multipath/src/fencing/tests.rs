//! Tests of the state of a disk's registrations, of each procedure with each result of each of its commands,
//! and of a disk with a model of a unit.

mod end;
mod join;
mod model;
mod owner;
mod register;
mod script;
mod world;
