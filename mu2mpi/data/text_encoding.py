"""Unicode form and encoding of text in data files."""

import unicodedata

# End of a message about a file of text in another encoding
NOT_UTF8 = "is not text in UTF-8. Save it as UTF-8, or add .gz to its name if it is compressed with gzip."


def to_nfc(text: str) -> str:
    """Text in Unicode's composed form, in which an accented letter is one character (NFC)."""
    return unicodedata.normalize("NFC", text)
