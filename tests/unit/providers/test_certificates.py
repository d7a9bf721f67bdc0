"""The authorities to trust are read once, and again when they have changed."""

import shutil
import ssl
from pathlib import Path

import pytest

from turnlog.providers.certificates import tls_context


@pytest.fixture
def authorities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Name a file of authorities."""
    file = tmp_path / "authorities.pem"
    certificates = [ssl.DER_cert_to_PEM_cert(each) for each in tls_context().get_ca_certs(binary_form=True)[:2]]
    file.write_text(certificates[0])
    (tmp_path / "two.pem").write_text("".join(certificates))
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    return file


def test_a_file_of_authorities_is_read_again_when_it_has_changed(authorities: Path) -> None:
    """Until then all clients share what was read of it."""
    first = tls_context()
    assert len(first.get_ca_certs()) == 1
    assert first.verify_mode is ssl.CERT_REQUIRED
    assert first.check_hostname
    assert tls_context() is first
    shutil.copy(authorities.parent / "two.pem", authorities)
    assert len(tls_context().get_ca_certs()) == 2


def test_another_file_of_authorities_is_read(authorities: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as the environment names it."""
    first = tls_context()
    monkeypatch.setenv("SSL_CERT_FILE", str(authorities.parent / "two.pem"))
    assert tls_context() is not first
    assert len(tls_context().get_ca_certs()) == 2
