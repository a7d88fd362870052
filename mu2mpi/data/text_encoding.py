"""Unicode forms and encodings of text in data files."""

import re
import unicodedata


def to_nfc(text: str) -> str:
    """Text in Unicode's composed form, in which an accented letter is one character (NFC)."""
    return unicodedata.normalize("NFC", text)


def is_utf16(content: bytes) -> bool:
    """Whether bytes begin with a byte order mark of UTF-16, or have as many zeros as plain letters in it."""
    return content.startswith((b"\xff\xfe", b"\xfe\xff")) or 3 * content.count(0) > len(content)


def describe_encoding(content: bytes) -> str:
    """Rest of a message about a file that is not in UTF-8, by the part of its content that is invalid."""
    if content.startswith(b"\x1f\x8b"):
        return "is compressed with gzip. Add .gz to its name, or unpack it."
    if not is_utf16(content) and re.search(rb"[\x00-\x08\x0e-\x1f\x7f]", content):
        return "is damaged or another kind of file: it is not text in UTF-8."
    one_byte = "Windows-1252" if re.search(rb"[\x80-\x9f]", content) else "Latin-1"
    encoding = "UTF-16" if is_utf16(content) else one_byte
    return f"is not in UTF-8, but probably in {encoding}. Save it as UTF-8."
