//! Saves the result file of a run in progress.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::result::{Figure, ResultFile};

/// A result file that is complete on the disk after each figure, even after a crash.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    /// Its content.
    pub file: ResultFile,
}

impl Record {
    /// Writes a new file, and replaces an existing one.
    ///
    /// # Errors
    /// [`Error::File`] if the file cannot be written.
    pub fn begin(path: &Path, file: ResultFile) -> Result<Self, Error> {
        let record = Self { path: path.into(), file };
        record.save()?;
        Ok(record)
    }

    /// Continues the file that an earlier environment of the same run has left, or writes a new one.
    ///
    /// # Errors
    /// [`Error::File`] if the file cannot be read or written, [`Error::Result`] if it is not a result file.
    pub fn resume(path: &Path, file: ResultFile) -> Result<Self, Error> {
        if !path.is_file() {
            return Self::begin(path, file);
        }
        let file_error = |cause| Error::File { path: path.into(), cause };
        let text = fs::read(path).map_err(file_error)?;
        let file = serde_json::from_slice(&text)
            .map_err(|cause| Error::Result { path: path.into(), cause })?;
        Ok(Self { path: path.into(), file })
    }

    /// Adds a figure.
    ///
    /// # Errors
    /// [`Error::File`] if the file cannot be written.
    pub fn add(&mut self, figure: Figure) -> Result<(), Error> {
        self.file.figures.push(figure);
        self.save()
    }

    fn save(&self) -> Result<(), Error> {
        self.replace().map_err(|cause| Error::File { path: self.path.clone(), cause })
    }

    /// Replaces the file atomically: readers see the old file or the new one, and if a guest is killed, one
    /// of the two remains.
    fn replace(&self) -> io::Result<()> {
        let mut text = serde_json::to_string_pretty(&self.file)?;
        text.push('\n');
        let new = self.path.with_extension("json.new");
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        // The new name is in the folder, which has to reach the medium as well.
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_another_environment_left_goes_on() {
        let path = std::env::temp_dir().join(format!("lab-record-{}.json", std::process::id()));
        let file = |title: &str| ResultFile {
            title: title.to_owned(),
            command: String::new(),
            date: String::new(),
            commit: String::new(),
            machine: Default::default(),
            settings: Default::default(),
            figures: Vec::new(),
        };
        Record::resume(&path, file("first")).unwrap();
        let resumed = Record::resume(&path, file("second")).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(resumed.file.title, "first");
    }
}
