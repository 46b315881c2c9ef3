"""What several tests of the embedded API server need."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from rebalancer.runtime.cycle import gates, releases


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Certificate and key of 127.0.0.1, signed by itself."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    names = ["-subj", "/CN=sandbox", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(folder / "key"), "-out", str(folder / "crt")]
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names, *files],
        check=True,
        capture_output=True,
    )
    return str(folder / "crt"), str(folder / "key")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what follows a release: a look may be as old as a busy machine makes it. That a request is
    not sent after a second is for `test_look_before_each_request.py`, and for those that set it back."""
    monkeypatch.setattr(gates, "FRESH", 30.0)
    monkeypatch.setattr(releases, "FRESH", 30.0)


@pytest.fixture
def within_a_second(patient: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    """As it is, after all."""
    monkeypatch.setattr(gates, "FRESH", 1.0)
    monkeypatch.setattr(releases, "FRESH", 1.0)
