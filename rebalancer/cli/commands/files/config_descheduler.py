"""`rebalancer config from-descheduler`: translates a descheduler policy into settings of this tool."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rebalancer.cli import options


def from_descheduler(
    policy: Annotated[
        Path, typer.Argument(metavar="POLICY.yaml", help="A DeschedulerPolicy, or the ConfigMap with it.")
    ],
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Translate a descheduler policy (v1alpha2) into settings.

    Prints a settings file. Comments at its top list what has no counterpart. It does not allow evictions:
    evictions.enabled stays false.
    """
    import yaml

    from rebalancer.settings import SettingsError, load_settings
    from rebalancer.settings.descheduler_policy import read_policy, translate

    made = translate(read_policy(policy))
    try:
        load_settings(env={}, flags=made.settings)
    except SettingsError as e:
        said = [f"{policy}: as {p.removeprefix('command line: ')}" for p in e.problems]
        raise SettingsError(said, "correct the policy, then translate it again") from e
    lines = [f"# Translated from {policy.name}. Nothing is evicted until evictions.enabled is true."]
    if made.notes:
        lines += ["#", "# Without counterpart:"]
        lines += [f"#   {note.path}: {note.text}" for note in made.notes]
    sys.stdout.write("\n".join(lines) + "\n")
    if made.settings:
        sys.stdout.write(yaml.safe_dump(made.settings, sort_keys=False, allow_unicode=True))
