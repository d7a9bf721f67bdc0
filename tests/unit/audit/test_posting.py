"""Posting: what it waits for, what it reads of an answer, and what it says of a server that gives none."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

import pytest

from turnlog.audit.places import Webhook
from turnlog.audit.posting import Answer, post
from turnlog.errors import PlaceError, ProofError

Serve = Callable[[socket.socket, Event], None]


@contextmanager
def served(serve: Serve) -> Iterator[str]:
    """Answer one connection on a thread, and give the URL. Leaving ends it, and fails where it would go on."""
    ending = Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def work() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):  # the other side has given it up
                connection.recv(65536)
                serve(connection, ending)

        thread = Thread(target=work)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            ending.set()
            thread.join()


def dripping(begun: bytes, drop: bytes) -> Serve:
    """Return what begins an answer, and then goes on with a little of it at a time."""

    def serve(connection: socket.socket, ending: Event) -> None:
        connection.sendall(begun)
        while not ending.wait(0.01):
            connection.sendall(drop)

    return serve


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n"
IN_ITS_HEAD = dripping(b"HTTP/1.1 200 OK\r\n", b"x-a: b\r\n")
IN_ITS_BODY = dripping(HEAD, b"1\r\nx\r\n")
BEFORE_IT = dripping(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n")


def posted(url: str, *, answer_bytes: int = 0, timeout_s: float = 30) -> Answer:
    return post(url, b"x", headers={}, failed=ProofError, answer_bytes=answer_bytes, timeout_s=timeout_s)


@pytest.mark.parametrize("serve", [IN_ITS_HEAD, IN_ITS_BODY, BEFORE_IT])
def test_time_is_for_all_of_an_answer(serve: Serve) -> None:
    """One of which a little comes at a time, and never the last of it, is given up."""
    with served(serve) as url, pytest.raises(ProofError, match=r"^no answer within 0.2 s$"):
        posted(url, answer_bytes=1_000_000, timeout_s=0.2)


def test_no_more_is_read_than_is_asked_for() -> None:
    """The rest may be without end."""
    with served(dripping(b"HTTP/1.1 403 No\r\ncontent-type: text/plain\r\n\r\n", b"x" * 65536)) as url:
        assert posted(url, answer_bytes=10) == Answer(status=403, media_type="text/plain", body=b"x" * 10)
    with served(IN_ITS_BODY) as url:
        assert posted(url) == Answer(status=200, media_type="text/plain", body=b"")


def test_a_place_that_takes_for_ever_to_answer_is_given_up() -> None:
    """And one that has answered is not waited for, whatever else it has to say."""
    with served(IN_ITS_HEAD) as url, pytest.raises(PlaceError, match=f"^{url}: .* no answer within 0.2 s$"):
        Webhook(url + "/secret", timeout_s=0.2).write(1, "a note")
    with served(IN_ITS_BODY) as url:
        Webhook(url).write(1, "a note")


def test_an_answer_that_is_none_is_told() -> None:
    """And one that breaks off."""
    for answer in (b"\xff\xff\r\n\r\n", b"", HEAD + b"5\r\nab"):
        with served(lambda connection, _, answer=answer: connection.sendall(answer)) as url, pytest.raises(ProofError):
            posted(url, answer_bytes=10)


@pytest.mark.parametrize("url", ["http://[", "ftp://a", ""])
def test_what_is_no_address_is_not_asked(url: str) -> None:
    """It is said as any other reason."""
    with pytest.raises(ProofError, match="its address is no URL"):
        posted(url)
