"""What is said of a PostgreSQL server that takes no connection, as libpq tells of it."""

import psycopg
import pytest

from turnlog.store.postgres.errors import is_refused, may_come, open_error, store_error

AT = 'connection failed: connection to server at "127.0.0.1", port 5432 failed: '
AUTHORITY = "; sslrootcert=… in its URL names the file of the authority that the server's certificate is of"
NAME = "; write the host in its URL as the server's certificate has it"
VALID = (
    "; the server is to show a certificate that is valid now, of an authority in the file that sslrootcert=… in its "
    "URL names"
)
KEY = (
    "; sslkey=… in its URL names the key of the certificate that sslcert=… names, in a file that only its owner may "
    "read (chmod 600)"
)
CLIENT = "; sslcert=… and sslkey=… in its URL name a certificate that the server takes for this role, and its key"


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ('root certificate file "/root/.postgresql/root.crt" does not exist', AUTHORITY),
        ('could not read root certificate file "ca.crt": no certificate or crl found', AUTHORITY),
        ("SSL error: certificate verify failed: certificate has expired", VALID),
        ("SSL error: certificate verify failed: unable to get local issuer certificate", VALID),
        ('server certificate for "db.example.org" does not match host name "localhost"', NAME),
        ('server certificate for "a" (and 1 other name) does not match host name "localhost"', NAME),
        ("host name must be specified for a verified SSL connection", NAME),
        ('certificate present, but not private key file "me.key"', KEY),
        (
            'private key file "me.key" has group or world access; file must have permissions u=rw (0600) or less if '
            "owned by the current user, or permissions u=rw,g=r (0640) or less if owned by root",
            KEY,
        ),
        ('could not load private key file "me.key": no start line', KEY),
        ('certificate does not match private key file "me.key": key values mismatch', KEY),
        ('could not open certificate file "me.crt": Permission denied', CLIENT),
        ('could not read certificate file "me.crt": no start line', CLIENT),
        ("FATAL: connection requires a valid client certificate", CLIENT),
        ('FATAL: certificate authentication failed for user "me"', CLIENT),
        ("SSL error: sslv3 alert certificate expired", CLIENT),
        ("SSL error: tlsv13 alert certificate required", CLIENT),
        ("SSL error: tlsv1 alert unknown ca", CLIENT),
    ],
)
def test_certificate_that_does_not_do_is_told_of(said: str, advice: str) -> None:
    """Not that the server may not run, nor to try again: waiting does not help."""
    error = psycopg.OperationalError(f"{AT}{said}")
    assert is_refused(error)
    assert not may_come(error, servers=2)
    assert str(open_error(error, "p")) == f"store 'p' cannot be opened: {AT}{said}{advice}"
    assert str(store_error(error, "p")) == f"store 'p' cannot be reached ({AT}{said}): {advice[2:]}"


def test_each_server_of_a_url_says_the_whole_reason() -> None:
    """Of what libpq says all is told, where it has more than one failure in it."""
    said = "SSL error: certificate verify failed: certificate has expired"
    each = "\n".join(f"- host: 'h{at}', port: '5432', hostaddr: '127.0.0.{at}': {AT}{said}" for at in (1, 2))
    error = psycopg.OperationalError(f"{said}\nMultiple connection attempts failed. All failures were:\n{each}")
    assert str(open_error(error, "p")) == f"store 'p' cannot be opened: h1:5432: {said}; h2:5432: {said}{VALID}"
