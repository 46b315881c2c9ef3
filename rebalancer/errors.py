"""The error whose message is shown to the user."""

from __future__ import annotations


class UserError(Exception):
    """An error that the user can correct. It is shown as one line, `error: <message>; <remedy>`, no
    traceback.

    `message` names what is wrong and where (file, position, field). `remedy` says what to do; "" if the
    message already says it.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        """The message and the remedy in one line."""
        return f"{self.message}; {self.remedy}" if self.remedy else self.message
