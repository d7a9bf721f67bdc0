"""What document turns say, as content."""

import msgspec

from turnlog.model import Document, content_bytes, decode_content, document_block, document_content


def test_document_content_is_one_base64_block() -> None:
    """A document turn is rebuilt as one document block, equal to the same block recorded as content."""
    payload = bytes(range(256))
    content = document_content(payload, 'text/x"y')
    [block] = msgspec.json.decode(content)
    assert block["source"]["media_type"] == 'text/x"y'
    assert list(block) == ["type", "source"]
    assert list(block["source"]) == ["type", "media_type", "data"]
    [decoded] = decode_content(content)
    assert isinstance(decoded, Document)
    assert content_bytes([decoded]) == content
    assert decoded == document_block(payload, 'text/x"y')
    assert document_content(b"", "a/b").endswith(b'"data":""}}]')
