"""People in the places where sessions show them, and the names that belong to no person."""

from __future__ import annotations

import pytest

from composer_hub.records import Message, Trace
from composer_hub.redact import Redactor
from composer_hub.redact.persons import words_among

# The value between the signs « » goes; the rest of the text stays.
GONE = {
    "a ticket": "Reported by: «Ottoline Marchbanks» on Tuesday",
    "an on-call list": "on call: «Ignatius Okoro»\n",
    "a YAML contact": "contact:\n  name: «Ragnhild Solberg»\n  phone: «+47 22 86 44 00»\n",
    "a CSV": "id,first_name,last_name,dob,city\n7,«Quirin»,«Abendroth»,«1984-11-02»,Graz\n",
    "a CSV with quotes": 'id,name,street,email\n7,"«Maren Holt»","«Deichweg 12»",«m.holt@deichpost.de»\n',
    "a psql table": " id |     name      |     phone\n----+---------------+----------------\n  3 | «Fenna Dijkstra» | «06-51223344»\n",  # noqa: E501
    "a Markdown table": "| Patient | Birth date | Insurance no |\n|---|---|---|\n| «Edvard Lunde» | «04.07.1961» | «A123456780» |\n",  # noqa: E501
    "an SQL insert": "INSERT INTO staff (id, full_name, mobile) VALUES (4, '«Giacinta Bellomo»', '«+39 347 118 2290»');",  # noqa: E501
    "a Python dict": "{'accountHolder': '«Odile Varenne»', 'acct': '«7741-208-3359»'}",
    "a JS object": "const u = { firstName: '«Pilar»', lastName: '«Echeverría»', plate: '«4821 KTM»' }",
    "an XML element": "<Kunde><Vorname>«Traudl»</Vorname><Strasse>«Lindenstr. 4»</Strasse></Kunde>",
    "an HTML form": '<input name="last_name" value="«Achterberg»">',
    "a vCard": "BEGIN:VCARD\nFN:«Anselm Brückner»\nTEL;TYPE=cell:«+49 171 5550 918»\nBDAY:«1979-03-14»\nEND:VCARD",
    "a form in prose": "Name: «Ysolde Kerbrat»\nGeburtsdatum: «12.03.1984»\nReisepass: «C01X00T47»\nSteuernummer: «21/815/08150»\n",  # noqa: E501
    "a Spanish form": "Nombre completo: «Remedios Iturralde»\nDNI: «12345678Z»\nMóvil: «612 904 771»\n",
    "a Japanese form": "氏名：«山田太郎»\n電話：«03-3581-4321»\n",  # noqa: RUF001
    "a license plate": "Kennzeichen: «B-KL 4821»",
    "a position": '{"lat": "«52.52437»", "lng": "«13.41053»"}',
    "a name of prose": "the customer behind it is «Traudl Hinterleitner», she will call",
    "a name with a title": "please ask Frau «Obermüller-Lindt» today, or Dr. «Anneke Visser»",
    "a person of another script": "автор: «Игнат Верещагин»\n",
    "a mention": "can you ask «Wojciech Lis» to revoke it",
    "an address": "send it to «14 Lychgate Row, Tewkesbury GL20 5RZ» please",
    "a German address": "Lieferung an «Schäftlarnstr. 44, 81371 München»",
    "an Iberian address": "morada: «Rua das Amoreiras 112, 3.º Esq.»\n",
    "an American address": "lives near «2418 Prairie Clover Ln»",
    "a machine": "ssh from «svenake-thinkpad» works",
    "an ARN": "arn:aws:iam::123456789012:user/«dariusz.wrobel»\n",
    "a table that spaces align": "id    patient_name        dob        arm\nS-014 «Thusnelda Quistorp»  «1949-10-27» verum\n",  # noqa: E501
    "a number beside a name": "Obermeister Traudl Hinterleitner <«traudl@hinterleitner-bau.at»>, «0664 41 80 552»\n",
    "a login beside a password": "machine git.nordhafen.io login «leiv.h» password «Sildesalat22_juni»\n",
    "a particle in a name": "| aanvrager |\n|---|\n| «Liesbeth van der Hoeven-Tak» |\n",
    "a phone's address": 'From: "«Odalys Brandstetter»" <sip:«214@pbx.kontor-ruhr.de»>\n',
    "the owner of a folder": "/docs/   @«maritsol» @fjordkode/docs\n",
    "a login behind a program": "wandb: Currently logged in as: «zebedee-marchetti» (fjelltek).\n",
    "a share": "/volume1/homes/«ingeborg.thal»\n",
    "LDAP": "dn: uid=«hlindroos»,ou=people,dc=uni\n",
    "a network": '#define WIFI_SSID "«FamilieSchröter-5G»"\n',
}  # fmt: skip
KEPT = [
    "Copyright (C) 1995-2024 Jean-loup Gailly and Mark Adler\n  jloup@gzip.org  madler@alumni.caltech.edu",
    "Linus Torvalds wrote git; Grace Hopper found the moth; John Doe is a placeholder",
    "name: Release Build\non: push\njobs:\n  test:\n    name: Unit Tests\n    runs-on: ubuntu-latest",
    '{"name": "left-pad", "author": "Platform Team", "license": "MIT"}',
    "| Name | Type | Address |\n|---|---|---|\n| server | string | 127.0.0.1:8080 |",
    "Visual Studio Code, Google Cloud Platform, Amazon Web Services, Apache Kafka, Claude Code",
    "Message-ID: <CAF=1nQLJvRkTwmfN3HnYHVSA54TmPSog7@mail.gmail.com>",
    "phone_type: mobile\naddress_id: 12345678\npassport.js 0.7.0",
    "RFC 2818 and RFC 6125 say so; see section 12345 on page 99",
    "user: postgres\nowner: root\nlogin: admin\nusername: ci-runner",
    "docker-desktop and github-desktop are installed, my-laptop is not",
    "def test_phone(phone: str = '555-0100') -> None: ...",
    "lat = layer.attention(x); lng = 3; location: eu-west-1",
    "Bernoulli Distribution, Jaccard Similarity, Travis CI, Jenkins Pipeline, Ruby Gems",
    "Step 12 Easy Way, 10 Table Row, Version 3 Stable Lane",
]


def redacted(text: str) -> str:
    trace = Trace("t", "x", "s", (Message("user", text.replace("«", "").replace("»", "")),), ())
    return Redactor(b"salt").trace(trace).messages[0].content


@pytest.mark.parametrize("text", GONE.values(), ids=GONE)
def test_personal_data_goes_where_sessions_show_it(text: str) -> None:
    values = [part.partition("»")[0] for part in text.split("«")[1:]]
    after = redacted(text)
    assert [value for value in values if value in after] == []


@pytest.mark.parametrize("text", KEPT)
def test_what_is_no_person_stays(text: str) -> None:
    assert redacted(text) == text


def test_a_name_goes_in_all_its_spellings() -> None:
    text = "From: Annegret Voß <a.voss@nordpost.de>\nVoss, then annegret.voss and avoss; VOSS, Annegret; Frau Voß; voss-web"  # noqa: E501
    after = redacted(text)
    assert not any(part in after for part in ("Annegret", "Voß", "annegret.voss", "avoss"))


def test_a_part_of_a_name_that_the_session_also_uses_as_a_word_stays() -> None:
    after = redacted("Reviewed by Annegret Baker <ab@nordpost.de>. The baker service calls Baker again.")
    assert "The baker service calls Baker again." in after
    assert "Annegret" not in after


def test_a_name_that_is_also_a_word_is_one_in_capitals_too():
    assert words_among({"Sommer", "SOMMER", "Krause"}, ["im sommer"]) == {"Sommer", "SOMMER"}
