"""Encodings of text files: one Unicode form of names, and messages about files that are not in UTF-8."""

import re
import unicodedata

# First bytes of files that are no text in UTF-8, and what messages say about them; UTF-32 precedes UTF-16
_FILE_SIGNATURES = {
    b"\x1f\x8b": "is compressed with gzip. Add .gz to its name, or unpack it.",
    b"PK\x03\x04": "is a ZIP archive, perhaps an Excel workbook. Save it as text in UTF-8.",
    b"\xff\xfe\0\0": "is in UTF-32. Save it as UTF-8.",
    b"\0\0\xfe\xff": "is in UTF-32. Save it as UTF-8.",
    b"\xff\xfe": "is in UTF-16. Save it as UTF-8.",
    b"\xfe\xff": "is in UTF-16. Save it as UTF-8.",
}


def to_nfc(text: str) -> str:
    """Text in Unicode's composed form, in which an accented letter is one character (NFC)."""
    return unicodedata.normalize("NFC", text)


def describe_signature(content: bytes) -> str | None:
    """Rest of a message if a text file begins like UTF-16 or a compressed file; None if it may be UTF-8."""
    faults = (fault for start, fault in _FILE_SIGNATURES.items() if content.startswith(start))
    is_utf_16 = 3 * content.count(0) > len(content)  # as in Latin letters, without a byte order mark
    return next(faults, "is in UTF-16. Save it as UTF-8." if is_utf_16 else None)


def describe_encoding(content: bytes) -> str:
    """Rest of a message about the encoding of text, by bytes that are not valid UTF-8."""
    if re.search(rb"[\x00-\x08\x0e-\x1f\x7f]", content):
        return describe_signature(content) or "is damaged or another kind of file: it is not text in UTF-8."
    encoding = "Windows-1252" if re.search(rb"[\x80-\x9f]", content) else "Latin-1"
    return f"is not in UTF-8, but probably in {encoding}. Save it as UTF-8."
