"""Settings of who is told of a cycle besides logs and metrics."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from rebalancer.settings.field_types import Duration
from rebalancer.settings.groups.base import Group


def _parse_template(text: str) -> str:
    if text:
        # Only who writes a template pays for the import.
        from jinja2 import TemplateSyntaxError
        from jinja2.sandbox import SandboxedEnvironment

        try:
            SandboxedEnvironment().from_string(text)
        except TemplateSyntaxError as e:
            raise ValueError(f"line {e.lineno} is no valid Jinja template: {e.message}") from e
    return text


Template = Annotated[str, AfterValidator(_parse_template)]
"""A Jinja template, checked."""


class Webhook(Group):
    """A webhook of your own. It gets a POST with a JSON document."""

    url_file: str = ""
    """File that holds the URL, such as a mounted Secret. It is read for each message, because secrets are
    renewed. Empty = nothing is sent."""
    template: Template = ""
    """Jinja template of the body, over the names of the JSON document; `tojson` quotes. Empty = the document
    itself."""


class Slack(Group):
    """A webhook that understands Slack's messages: Slack, Mattermost, Rocket.Chat, and Teams by a bridge."""

    url_file: str = ""
    """File that holds the URL of the incoming webhook. Empty = nothing is sent."""
    template: Template = ""
    """Jinja template of the message's text, over the names of the JSON document. Empty = the verdict, and a
    line for each of the first ten pods."""


class Notifications(Group):
    """Messages about cycles that evicted something, failed, or are stuck; a quiet cycle sends none, and one
    that is stuck as the last one was sends none either. No cycle waits for a receiver."""

    webhook: Webhook = Webhook()
    """A webhook of your own."""
    slack: Slack = Slack()
    """A chat."""
    timeout: Duration = Field(default=5.0, gt=0, le=60)
    """How long one request may take. One that fails is sent twice more."""
