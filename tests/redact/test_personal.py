"""Personal data by its label, and what only the strict setting takes."""

from __future__ import annotations

import pytest

from composer_hub.redact import Redactor

STANDARD = {
    '"date_of_birth": "1984-03-12"': "BIRTHDATE",
    "born on March 3, 1979": "BIRTHDATE",
    "Passport No: X1234567": "PASSPORT",
    '"tax_id": "98-7654321"': "TAXID",
    "NIF 12345678Z": "TAXID",
    "1600 Maple Avenue, Springfield, IL 62704": "ADDRESS",
    "address: 12 Baker Street": "ADDRESS",
    "see 12 Baker Street": "ADDRESS",
    "Lindenstraße 12, 10969 Berlin": "ADDRESS",
    "12 rue de la Paix, 75002 Paris": "ADDRESS",
    "see 12 Rue de la Paix, Paris": "ADDRESS",
    "see 12 Avenue Foch, 75116 Paris": "ADDRESS",
    "-rw-r--r-- 1 ktanaka staff 120 Jan 2 a.txt": "USER",
    "ktanaka  pts/0   2026-01-02 10:00": "USER",
}
STRICT = {"at 37.77493, -122.41942": "LOCATION", "Name: Jane Roe": "NAME"}


@pytest.mark.parametrize("text", STANDARD)
def test_a_label_or_a_complete_form_gives_personal_data_away(text: str) -> None:
    redactor = Redactor(b"salt")
    assert f"[{STANDARD[text]}_x" in redactor.text(text)
    assert redactor.text(redactor.text(text)) == redactor.text(text)


@pytest.mark.parametrize("text", STRICT)
def test_what_may_be_personal_goes_only_if_asked_for(text: str) -> None:
    assert Redactor(b"salt").text(text) == text
    assert f"[{STRICT[text]}_x" in Redactor(b"salt", strict=True).text(text)


@pytest.mark.parametrize("text", [
    "tin whiskers 1234567 found", "license: Apache-2.0", "date: 2024-01-01", "passport.js 0.7.0 installed",
    "-rw-r--r-- 1 root wheel 120 Jan 2 a.txt", "version 12.3456, 78.9",
    "2 Place Order, then pay",
])  # fmt: skip
def test_what_only_resembles_personal_data_stays(text: str) -> None:
    assert Redactor(b"salt").text(text) == text
