"""kubectl as a user has it, on an embedded cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

KUBECTL = shutil.which("kubectl")
needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on PATH")
Kubectl = Callable[..., str]


def kubectl_with(config: Path) -> Kubectl:
    """Runs kubectl with this kubeconfig; gives its output, and fails where kubectl does."""
    environment = {**os.environ, "KUBECONFIG": str(config), "HOME": str(config.parent)}

    def run(*args: str, stdin: str | None = None) -> str:
        done = subprocess.run(
            [str(KUBECTL), *args],
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
