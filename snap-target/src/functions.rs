//! PCIe functions for virtual machines, as the configuration names them.

use anyhow::{Context as _, Result};
use frontend_nvme::Admin;

use crate::config::FunctionConfig;

/// The desk knows what it listens at by a number: functions count down from the last one, listeners of hosts up from the first.
const LAST_NUMBER: u16 = u16::MAX;

/// Makes each of them. What a start would have to say is returned, a line each.
///
/// # Errors
/// The first that cannot be made.
pub fn start(admin: &Admin, functions: &[FunctionConfig]) -> Result<String> {
    let mut said = String::new();
    for (function, number) in functions.iter().zip((0..=LAST_NUMBER).rev()) {
        let (name, path) = (function.name, function.socket.display());
        let port = frontend_vfio_user::bind(&function.socket, function.subsystem.clone())
            .with_context(|| format!("the PCIe function {name} at {path}: take a path that nobody uses, in a folder that can be written"))?;
        admin
            .add_listener(number, Box::new(port))
            .with_context(|| format!("the PCIe function {name} at {path}"))?;
        said += &format!("function {name} vfio-user {path}: {}\n", function.subsystem);
    }
    Ok(said)
}
