"""Scripted teachers and a loopback server for them, for the demo and for tests.

from composer_hub.replay import fake

with fake.serving(fake.TeacherServer(oracle=fake.oracle_of(traces))) as url: ...
"""

from composer_hub.replay.fake.answers import FAULTS
from composer_hub.replay.fake.scripts import SCRIPTED, Action, Labels, Oracle, ScriptedTeacher, digest_of, oracle_of
from composer_hub.replay.fake.server import ServeError, TeacherServer, listen, serve, serving, tokens_of

__all__ = [
    "FAULTS",
    "SCRIPTED",
    "Action",
    "Labels",
    "Oracle",
    "ScriptedTeacher",
    "ServeError",
    "TeacherServer",
    "digest_of",
    "listen",
    "oracle_of",
    "serve",
    "serving",
    "tokens_of",
]
