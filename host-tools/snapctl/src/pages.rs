//! Lists that come in pages, asked for to their end.

use admin_proto::v1::{
    AsOf, ListAnnouncementsResponse, ListControllersResponse, ListFunctionsResponse,
    ListHostsResponse, ListListenersResponse, ListNamespacesResponse, ListReferralsResponse,
    ListSubsystemsResponse, Reason,
};
use tonic::{Code, Response, Status};

use crate::connection::Daemon;
use crate::failure::Failure;

/// What a request says of the page that it wants.
#[derive(Debug)]
pub struct Page {
    /// How many rows; 0: as many as fit.
    pub size: u32,
    /// Where the last page ended; empty: the first.
    pub token: String,
}

/// An answer that comes in pages.
pub trait Paged {
    /// Takes the next page's token; empty at the end.
    fn take_token(&mut self) -> String;
    /// What it is true of.
    fn as_of(&self) -> Option<&AsOf>;
    /// Adds the rows that follow.
    fn append(&mut self, more: Self);
}

macro_rules! paged {
    ($($answer:ident: $rows:ident),* $(,)?) => {
        $(
            impl Paged for $answer {
                fn take_token(&mut self) -> String {
                    std::mem::take(&mut self.next_page_token)
                }

                fn as_of(&self) -> Option<&AsOf> {
                    self.as_of.as_ref()
                }

                fn append(&mut self, mut more: Self) {
                    self.$rows.append(&mut more.$rows);
                }
            }
        )*
    };
}

paged! {
    ListAnnouncementsResponse: announcements,
    ListControllersResponse: controllers,
    ListFunctionsResponse: functions,
    ListHostsResponse: subsystems,
    ListListenersResponse: listeners,
    ListNamespacesResponse: namespaces,
    ListReferralsResponse: referrals,
    ListSubsystemsResponse: subsystems,
}

impl Daemon {
    /// The whole list: the first page, as of which it is true, and the rows of all others.
    pub async fn all<A: Paged, Call>(&self, mut ask: impl FnMut(Page) -> Call) -> Result<A, Failure>
    where
        Call: Future<Output = Result<Response<A>, Status>>,
    {
        let mut page = |token| {
            ask(Page {
                size: self.page_size(),
                token,
            })
        };
        let mut whole = self.answer(page(String::new())).await?;
        let mut token = whole.take_token();
        while !token.is_empty() {
            let more = self.answer(page(token.clone())).await;
            let mut more = more.map_err(|failure| match failure.reason() {
                Reason::PageToken => restarted(),
                _ => failure,
            })?;
            if instance(&more) != instance(&whole) {
                return Err(restarted());
            }
            let next = more.take_token();
            if next == token {
                return Err(Failure::of(
                    Code::Internal,
                    "a fault of snap-target: a page that follows itself",
                ));
            }
            token = next;
            whole.append(more);
        }
        Ok(whole)
    }
}

fn instance(answer: &impl Paged) -> &str {
    answer.as_of().map_or("", |as_of| &as_of.instance)
}

fn restarted() -> Failure {
    Failure::unreachable("snap-target was restarted between two pages of the list: ask again")
}
