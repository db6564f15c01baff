//! Tests of the checkpoint and the digest file: the program does not overwrite another file with them, and
//! takes no other file for them.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use crate::support::{Folder, block_copy, fails, pattern, succeeds};

const LEN: usize = 100_000;

fn quiet<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [arguments, &["--progress", "none"]].concat()
}

/// A file beside the checkpoint or digest file belongs to the user, even if its name looks like a temporary
/// file of the program.
#[test]
fn names_beside_a_kept_file_are_free() {
    for option in ["--checkpoint", "--digests"] {
        let folder = Folder::new();
        let image = folder.file("image", &pattern(LEN));
        // The destination has the name of the checkpoint or digest file, with `.new` added.
        let (kept, copy) = (folder.path("kept"), folder.path("kept.new"));
        succeeds(&block_copy(&quiet(&[&image, &copy, option, &kept, "--verify"])));
        assert!(fs::read(&copy).unwrap() == pattern(LEN), "{option}");
        // The source has the name of the checkpoint or digest file, with `.new` added.
        let (other, copy) = (folder.path("kept"), folder.path("copy"));
        let source = folder.file("other.new", &pattern(LEN));
        fs::remove_file(&other).unwrap();
        succeeds(&block_copy(&quiet(&[&source, &copy, option, &folder.path("other")])));
        assert!([source, copy].iter().all(|file| fs::read(file).unwrap() == pattern(LEN)));
        // A link of the user has the name of the checkpoint or digest file, with `.new` added.
        let (map, victim) = (folder.path("map"), folder.file("victim", b"precious"));
        symlink(&victim, map.clone() + ".new").unwrap();
        succeeds(&block_copy(&quiet(&[&image, &folder.path("third"), option, &map])));
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        assert!(fs::symlink_metadata(map.clone() + ".new").unwrap().is_symlink());
        assert_eq!(fs::metadata(&map).unwrap().mode() & 0o777, 0o600);
    }
    let folder = Folder::new();
    let image = folder.file("image", &pattern(LEN));
    let (copy, map, digests) = (folder.path("copy"), folder.path("x"), folder.path("x.new"));
    let kept = [&*image, &copy, "--checkpoint", &map, "--digests", &digests];
    succeeds(&block_copy(&quiet(&kept)));
    assert!(fs::read_to_string(&map).unwrap().starts_with("# iscsi-copy checkpoint "));
    assert!(fs::read_to_string(&digests).unwrap().starts_with("# iscsi-copy digests "));
    // The program has created no other files.
    let mut names: Vec<_> =
        fs::read_dir(folder.path("")).unwrap().map(|it| it.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["copy", "image", "x", "x.new"]);
}

/// Two names of one file count as one file, which must have one use only.
#[test]
fn a_file_has_one_use_whatever_it_is_called() {
    let folder = Folder::new();
    fs::create_dir(folder.path("deep")).unwrap();
    symlink(folder.path(""), folder.path("deep/back")).unwrap();
    let (image, copy) = (folder.file("image", &pattern(LEN)), folder.path("copy"));
    let again = folder.path("deep/back/copy");
    let (secret, ranges) = (folder.file("secret", b"secret"), folder.file("ranges", b"0 512\n"));
    let hard = folder.path("hard");
    fs::hard_link(&image, &hard).unwrap();
    for more in [
        &["--checkpoint", &*again][..],
        &["--digests", &again],
        &["--digests", &hard],
        &["--checkpoint", &copy.replace("/copy", "/deep/../copy")],
        &["--checkpoint", &folder.path("map"), "--digests", &folder.path("deep/back/map")],
        &["--ranges", &ranges, "--checkpoint", &ranges],
    ] {
        let output = block_copy(&quiet(&[&[&*image, &*copy], more].concat()));
        fails(&output, 2, &["are the same file", "name another one"]);
        assert!(!fs::exists(&copy).unwrap() && !fs::exists(folder.path("map")).unwrap());
    }
    for (destination, option) in [(&secret, "--password-file"), (&ranges, "--ranges")] {
        let before = fs::read(destination).unwrap();
        let output = block_copy(&quiet(&[&image, destination, option, destination]));
        fails(&output, 2, &["destination", option, "are the same file"]);
        assert_eq!(fs::read(destination).unwrap(), before);
    }
    assert!(fs::read(&image).unwrap() == pattern(LEN));
}

/// A job must not write to the job file, nor to the checkpoint or digest file of another job.
#[test]
fn jobs_do_not_write_what_is_kept_of_others() {
    let folder = Folder::new();
    let (image, map) = (folder.file("image", &pattern(LEN)), folder.path("map"));
    let jobs = folder.path("jobs");
    let job = |name: &str, to: &str, more: &str| {
        format!("[[job]]\nname = {name:?}\nsource = {image:?}\ndestination = {to:?}\n{more}")
    };
    let keeps = format!("checkpoint = {map:?}\n");
    let first = job("first", &folder.path("a"), &keeps);
    for (second, parts) in [
        (
            job("second", &folder.path("b"), &keeps),
            &["--checkpoint: it is the --checkpoint of"][..],
        ),
        // The jobs run concurrently, so the second one may have made the file before the first one looks.
        (job("second", &map, ""), &[" as well; name another one", "map: it exists; add --resume"]),
        (job("second", &jobs, ""), &["destination: it is the job file of this run as well"]),
    ] {
        let text = first.clone() + &second;
        fs::write(&jobs, &text).unwrap();
        let output = block_copy(&quiet(&["--jobs", &jobs]));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(parts.iter().any(|part| said.contains(part)), "{said}");
        assert_eq!(fs::read_to_string(&jobs).unwrap(), text);
        for file in ["map", "a", "b"] {
            drop(fs::remove_file(folder.path(file)));
        }
    }
}

/// If the path of the checkpoint is a link, the link stays, and the file that it leads to is replaced. A FIFO
/// is an error, and does not block the program.
#[test]
fn a_link_and_a_pipe_in_the_place_of_a_kept_file() {
    let folder = Folder::new();
    let image = folder.file("image", &pattern(LEN));
    let (link, map, copy) = (folder.path("link"), folder.path("map"), folder.path("copy"));
    symlink(&map, &link).unwrap();
    succeeds(&block_copy(&quiet(&[&image, &copy])));
    for option in ["--checkpoint", "--digests"] {
        let more: &[&str] = if option == "--checkpoint" { &["--resume"] } else { &[] };
        let arguments = [&[&*image, &copy, option, &link], more].concat();
        fails(&block_copy(&quiet(&arguments)), 1, &["it is a link that leads nowhere"]);
        assert!(!fs::exists(&map).unwrap());
        succeeds(&block_copy(&quiet(&[&image, &copy, option, &map])));
        succeeds(&block_copy(&quiet(&arguments)));
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        fs::remove_file(&map).unwrap();
    }
    let pipe = folder.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let complaint = ["is no regular file; name another path"];
    fails(&block_copy(&quiet(&[&image, &copy, "--digests", &pipe])), 2, &complaint);
    let resume = [&*image, &copy, "--checkpoint", &pipe, "--resume"];
    fails(&block_copy(&quiet(&resume)), 2, &complaint);
}
