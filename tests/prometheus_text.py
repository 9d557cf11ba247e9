"""Reads Prometheus's text format as strictly as the textfile collector."""

import re
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\n"])*)"(,|$)')
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


@dataclass
class Family:
    """A metric family. samples: sorted labels -> value."""

    kind: str = ""
    told: str = ""
    samples: dict[tuple[tuple[str, str], ...], float] = field(default_factory=dict)


def read(text):
    """Returns name -> Family. AssertionError on bad syntax or a repeated series."""
    assert text.endswith("\n")
    families, current = {}, ""
    for line in text[:-1].split("\n"):
        if line.startswith("# "):
            _, what, name, rest = line.split(" ", 3)
            assert re.fullmatch(_NAME, name), line
            if what == "HELP":
                assert name not in families, f"{name} twice"
                families[name] = Family(told=rest)
            else:
                assert what == "TYPE", line
                assert name == current, "HELP and TYPE belong together"
                assert families[name] == Family(told=families[name].told), line
                families[name].kind = rest
            current = name
            continue
        found = _SAMPLE.fullmatch(line)
        assert found, line
        assert found[1] == current, "the samples of a family stand together"
        assert families[current].kind == "gauge", line
        labels = _labels(found[2])
        assert labels not in families[current].samples, f"{line} twice"
        families[current].samples[labels] = float(found[3])
    return families


def _labels(text):
    pairs, rest = [], text or ""
    while rest:
        found = _LABEL.match(rest)
        assert found, rest
        pairs.append((found[1], re.sub(r"\\.", lambda m: _ESCAPES[m[0]], found[2])))
        rest = rest[found.end() :]
    assert len({name for name, _ in pairs}) == len(pairs), text
    return tuple(sorted(pairs))
