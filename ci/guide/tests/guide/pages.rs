//! Runs the commands of each page.

use crate::folder;
use crate::shell::run;

macro_rules! pages {
    ($($test:ident: $name:literal,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                run($name, &folder::page($name)).await;
            }
        )*

        #[test]
        fn every_page_is_run() {
            let mut run = vec![$($name.to_owned()),*];
            run.sort_unstable();
            assert_eq!(folder::names(), run);
        }
    };
}

pages! {
    tutorial: "tutorial",
    long_link: "long-link",
    resume: "resume",
    rate: "rate",
    backup: "backup",
    live: "live",
    serve: "serve",
    multipath: "multipath",
    stripe: "stripe",
    credentials: "credentials",
    changes: "changes",
    containers: "containers",
    troubleshooting: "troubleshooting",
    targets: "targets",
    messages: "messages",
}
