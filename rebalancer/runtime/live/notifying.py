"""Settings → who is told of cycles by webhook and chat."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rebalancer.runtime.live.configured import cluster_name
from rebalancer.runtime.observers.notices import SLACK, WEBHOOK, NoticeObserver
from rebalancer.settings import Settings
from rebalancer.telemetry.webhooks import Mailboxes, Receiver


def receivers(settings: Settings) -> tuple[Receiver, ...]:
    """Those that have a URL."""
    n = settings.notifications
    files = {WEBHOOK: n.webhook.url_file, SLACK: n.slack.url_file}
    return tuple(Receiver(name, file, n.timeout) for name, file in files.items() if file)


def templates(settings: Settings) -> dict[str, str]:
    """Templates by receiver."""
    n = settings.notifications
    return {WEBHOOK: n.webhook.template, SLACK: n.slack.template}


class Notifying:
    """The observer that tells, and the mailboxes that it fills."""

    def __init__(self, settings: Settings, *, context: str = "") -> None:
        self.mailboxes = Mailboxes(receivers(settings))
        self.observer = NoticeObserver(
            self.mailboxes.put, cluster=cluster_name(settings, context), templates=templates(settings)
        )

    def change(self, settings: Settings) -> None:
        """Takes over settings that have changed while it runs."""
        self.mailboxes.change(receivers(settings))
        self.observer.templates = templates(settings)


@contextmanager
def notifying(settings: Settings, *, context: str = "") -> Iterator[Notifying]:
    """Tells while the block runs; at its end, what is queued has two seconds and a half."""
    it = Notifying(settings, context=context)
    try:
        yield it
    except Exception as e:
        it.observer.on_error(e)
        raise
    finally:
        it.mailboxes.close()
