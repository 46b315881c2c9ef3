"""The error that is meant for the person at the terminal."""

from __future__ import annotations


class UserError(Exception):
    """Something the user can mend. Shown as one line, `error: <message>; <remedy>`, without a traceback.

    `message` names what was wrong and where (file, position, field); `remedy` says what to do, "" if the
    message says it already.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        """The message and the remedy in one line."""
        return f"{self.message}; {self.remedy}" if self.remedy else self.message
