//! Tests of the owner, of each procedure with each answer to each of its questions, and of a disk with a model
//! of a unit.

mod end;
mod join;
mod model;
mod owner;
mod register;
mod script;
mod world;
