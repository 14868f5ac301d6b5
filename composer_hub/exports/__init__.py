"""Versions and traces in other projects' formats: ATIF (Harbor), STS lines (the Hub's viewer), Parquet for verl, SFT.

from composer_hub import exports, hub

exports.export(hub.load(hub.destination("local"), "me/traces@v1.0.0"), "atif", Path("out"))
"""

from composer_hub.exports.atif import to_atif
from composer_hub.exports.sft import SftError, sft_rows
from composer_hub.exports.sts import to_sts
from composer_hub.exports.write import FORMATS, ExportError, export

__all__ = ["FORMATS", "ExportError", "SftError", "export", "sft_rows", "to_atif", "to_sts"]
