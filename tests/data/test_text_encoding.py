"""Texts in other encodings than UTF-8 are refused, and the message says what to do."""

import gzip

import pytest

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.data.redaction import NOT_UTF8, to_nfc
from mu2mpi.execution.plan import open_source

TEXT = "größe,label\n" + "0.5,jä\n0.25,nein\n" * 20
CONTENTS = {
    "plain letters in UTF-16": b"a\0,\0b\0\n\0",
    "UTF-16": TEXT.encode("utf-16"),
    "UTF-16 without a mark": TEXT.encode("utf-16-be"),
    "Latin-1": TEXT.encode("latin-1"),
    "Windows-1252": TEXT.replace("nein", "„nein“").encode("cp1252"),
    "gzip": gzip.compress(TEXT.encode()),
    "another kind of file": b"PK\x03\x04\x14" + bytes(range(256)),
}


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.svm"])
@pytest.mark.parametrize("content", CONTENTS)
def test_another_encoding_is_refused(tmp_path, content, name):
    path, stored = tmp_path / name, CONTENTS[content]
    path.write_bytes(gzip.compress(stored) if name.endswith(".gz") else stored)
    with pytest.raises(InputError) as caught:
        open_source(Experiment(data=str(path)))
    # scikit-learn parses bytes.
    is_refused_by_line = name == "a.svm" and "UTF-16" not in content
    expected = "each line needs one label" if is_refused_by_line else NOT_UTF8
    assert expected in str(caught.value)


def test_composed_letters():
    assert to_nfc("e\u0301") == "\u00e9"
