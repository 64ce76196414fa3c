"""A test notice: sent once and at once by whoever asks for it, recorded like any other."""

from engine.act.journal import Journal
from engine.notify.delivery import outcome_of
from engine.notify.notices import Notices
from engine.notify.webhook import Answer, Webhook, headers_of, send
from events.clock import SECOND, Clock, Ids

TEXT = "Steno: a test notice. What is told here: {kinds}."


def try_out(journal: Journal, webhook: Webhook, clock: Clock, ids: Ids) -> Answer:
    """Intent, call, outcome; what came back. Nobody else sends a test notice, and it is not sent again."""
    name = ids.new()
    kinds = ", ".join(sorted(webhook.kinds)) or "nothing"
    journal.append(Notices(journal, clock, webhook).batch("test", name, TEXT.format(kinds=kinds), "/", {}))
    (intent,) = journal.record.read(stream=f"notice/{name}", types={"NoticeIntended"})
    body: bytes = intent.data.body  # type: ignore[union-attr]
    status, error = send(webhook.url, body, headers_of(webhook, name, body, clock.now() // SECOND))
    answer = Answer(notice_id=name, attempt=1, status=status, error=error)
    journal.notice(name, outcome_of(answer, final=True))
    return answer
