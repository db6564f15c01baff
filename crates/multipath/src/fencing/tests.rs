//! The owner, each procedure at each answer to each of its questions, and a disk at the model of a unit.

mod end;
mod join;
mod model;
mod owner;
mod register;
mod script;
mod world;
