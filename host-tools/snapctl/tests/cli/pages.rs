//! Lists that come in pages are asked for to their end.

use admin_proto::v1::Reason;
use tonic::{Code, Status};

use super::fake::Fake;
use super::fake::samples::DATA;
use super::support::snapctl;

#[test]
fn a_list_in_pages_is_the_list_in_one() {
    let fake = Fake::start();
    for (list, rows) in [
        (&["subsystem", "list"][..], 2),
        (&["namespace", "list"], 5),
        (&["namespace", "list", DATA], 3),
        (&["host", "list"], 2),
        (&["listener", "list"], 2),
        (&["referral", "list"], 1),
        (&["function", "list"], 2),
        (&["controller", "list"], 2),
        (&["announcement", "list"], 2),
    ] {
        let run = |more: &[&str]| {
            let ran = snapctl(Some(&fake.socket()), &[list, more].concat());
            assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{list:?}");
            (ran.stdout, fake.asked().len())
        };
        for form in [&[][..], &["--json"]] {
            let (whole, calls) = run(form);
            assert_eq!(calls, 1, "{list:?}");
            let in_pages = run(&[form, &["--page-size", "1"]].concat());
            assert_eq!(in_pages, (whole, rows), "{list:?} {form:?}");
        }
    }
}

#[test]
fn a_list_that_cannot_go_on_says_that_it_is_to_be_asked_for_again() {
    let fake = Fake::start();
    let detail = admin_proto::v1::ErrorDetail {
        reason: Reason::PageToken.into(),
        ..Default::default()
    };
    let details = admin_proto::details("", &detail).into();
    let refusal = Status::with_details(Code::InvalidArgument, "page_token: not ours", details);
    // Only the request for the second page has this.
    fake.refuse_only(
        "ListListenersRequest { page_size: 1, page_token: \"1\"",
        refusal,
    );
    let ran = snapctl(
        Some(&fake.socket()),
        &["listener", "list", "--page-size", "1"],
    );
    assert_eq!((ran.status, ran.stdout.as_str()), (7, ""));
    assert_eq!(
        ran.stderr,
        "error: snap-target was restarted between two pages of the list: ask again\n"
    );
}
