"""`rebalancer config`: check, show, describe and translate settings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rebalancer.cli import options
from rebalancer.cli.commands.files.config_descheduler import from_descheduler
from rebalancer.cli.exits import ExitCode

app = typer.Typer(
    help="Check, show, describe and translate settings.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

app.command()(from_descheduler)


@app.command()
def validate(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="The settings to check; default: --config.")
    ] = None,
    config: options.ConfigFile = None,
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Check a settings file and the environment.

    Every mistake is shown with its place.
    """
    from rebalancer.settings import SettingsError, load_settings

    chosen = file or config
    try:
        load_settings(chosen)
    except SettingsError as e:
        for problem in e.problems:
            print(f"error: {problem}", file=sys.stderr)
        raise typer.Exit(ExitCode.ERROR) from e
    print(f"{chosen or 'environment'}: valid")


@app.command()
def show(
    config: options.ConfigFile = None,
    defaults: Annotated[
        bool,
        typer.Option("--defaults", help="Show the default and the meaning of every setting instead."),
    ] = False,
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Show the settings in effect as YAML."""
    from rebalancer.settings import Settings, load_settings
    from rebalancer.settings.reference import to_yaml

    sys.stdout.write(
        to_yaml(Settings.defaults(), comments=True) if defaults else to_yaml(load_settings(config))
    )


@app.command()
def schema(debug: options.Debug = False) -> None:  # noqa: ARG001
    """Show the JSON Schema of the settings file, for editors."""
    import json

    from rebalancer.settings.reference import schema as settings_schema

    print(json.dumps(settings_schema(), indent=2))
