"""Texts in other encodings than UTF-8: the message names the encoding, and what to do."""

import gzip

import pytest

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.data.text_encoding import describe_encoding, to_nfc
from mu2mpi.execution.plan import open_source

TEXT = "größe,label\n" + "0.5,jä\n0.25,nein\n" * 20


def message(path, content):
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        open_source(Experiment(data=str(path)))
    assert str(caught.value).startswith(f"{path} ")
    return str(caught.value)


ENCODINGS = {
    "UTF-16": (b"a\0,\0b\0\n\0", TEXT.encode("utf-16"), TEXT.encode("utf-16-le"), TEXT.encode("utf-16-be")),
    "Latin-1": (TEXT.encode("latin-1"),),
    "Windows-1252": (TEXT.replace("nein", "„nein“").encode("cp1252"),),
    "gzip": (gzip.compress(TEXT.encode()),),
    "another kind of file": (TEXT.encode() + b"\x01\xff\xfe\x80", b"PK\x03\x04\x14" + bytes(range(256))),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_encoding_of_a_text_is_said(tmp_path, encoding):
    for content in ENCODINGS[encoding]:
        text = message(tmp_path / "a.csv", content)
        assert encoding in text
        fix = {"gzip": "Add .gz", "another kind of file": "not text in UTF-8"}.get(encoding, "UTF-8.")
        assert fix in text
        assert encoding in message(tmp_path / "a.csv.gz", gzip.compress(content))
    if encoding in ("UTF-16", "gzip"):
        assert encoding in message(tmp_path / "a.svm", ENCODINGS[encoding][0])


def test_pieces_of_text():
    assert "Latin-1" in describe_encoding("é".encode("latin-1"))
    assert to_nfc("e\u0301") == "\u00e9"
