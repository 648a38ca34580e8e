//! Rings against a driver: every chain once, whatever the order; kills between any two stores; drivers that break the rules.

mod driver;
mod hostile;
mod killed;
mod model;
mod ram;
