//! Checks of the section `[log]`.

use std::path::Path;

use super::{
    LogFormat, LogLevel,
    file::LogSection,
    problem::{Problem, problem},
};
use relay::transfer_log::{TransferLogFormat, TransferLogSettings};

/// Returns the settings of the transfer log, if the section names its file.
pub(super) fn transfer_log(
    section: &LogSection,
    folder: &Path,
) -> Result<Option<TransferLogSettings>, Problem> {
    let format = match &section.transfer_log_format {
        None => TransferLogFormat::default(),
        Some(name) => match name.get_ref().as_str() {
            "json" => TransferLogFormat::Json,
            "xferlog" => TransferLogFormat::Xferlog,
            other => {
                let message = format!(
                    "unknown transfer_log_format {other:?}, expected \"json\" or \"xferlog\""
                );
                return Err(problem(name, message));
            }
        },
    };
    match (&section.transfer_log, &section.transfer_log_format) {
        (None, Some(name)) => Err(problem(name, "transfer_log_format needs transfer_log")),
        (path, _) => Ok(path.as_ref().map(|path| TransferLogSettings {
            path: folder.join(path),
            format,
        })),
    }
}

/// Returns the log level of the section, or the default level if the section names none.
pub(super) fn level(section: &LogSection) -> Result<LogLevel, Problem> {
    let Some(name) = &section.level else {
        return Ok(LogLevel::default());
    };
    let all = [
        LogLevel::Error,
        LogLevel::Warn,
        LogLevel::Info,
        LogLevel::Debug,
    ];
    let found = all.into_iter().find(|level| level.name() == name.get_ref());
    found.ok_or_else(|| {
        let message = format!(
            "unknown level {:?}, expected \"error\", \"warn\", \"info\" or \"debug\"",
            name.get_ref()
        );
        problem(name, message)
    })
}

/// Returns the format of log messages, or the default format if the section names none.
pub(super) fn format(section: &LogSection) -> Result<LogFormat, Problem> {
    let Some(name) = &section.format else {
        return Ok(LogFormat::default());
    };
    match name.get_ref().as_str() {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        "journald" => Ok(LogFormat::Journald),
        other => {
            let message =
                format!("unknown format {other:?}, expected \"text\", \"json\" or \"journald\"");
            Err(problem(name, message))
        }
    }
}
