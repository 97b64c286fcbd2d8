"""Run what files and users give in a process of its own, with a limit of time and memory.

    parent    one line of JSON: [name of the function, *arguments]           child    one line of JSON: [result, error]

A chat template, a regular expression or a JSON schema of a few characters can ask for hours and terabytes, within a
library's call that nothing else can end. The process starts with the first question and answers all that follow; a
question that takes too much ends it. This file is also the child's script, so it imports nothing of keras_seq.
"""

import atexit
import base64
import contextlib
import datetime
import functools
import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from array import array

MAX_SECONDS = 2  # of processor time for an answer
MAX_BYTES = 2 << 30  # of address space
MAX_STATES = 1 << 15  # of a regular expression's automaton
ANCHORS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^]\\])*\]|[$^]", re.DOTALL)  # or an escaped character, or a class
END = "\U0010ffff"  # marks the end of a text; it is no character and never will be one


class OutOfBounds(ValueError):
    """A question took too much time or memory."""


class _Process:
    """The child and the pipes to it; another one is started once it has ended, and in a fork of the parent."""

    def __init__(self):
        self.lock, self.process, self.owner = threading.Lock(), None, None

    def ask(self, name, *arguments):
        request = json.dumps([name, *arguments]) + "\n"
        with self.lock:
            if self.process is None or self.owner != os.getpid() or self.process.poll() is not None:
                self.end()
                self.start()
            try:
                self.process.stdin.write(request.encode())
                self.process.stdin.flush()
                line = self.process.stdout.readline()
            except BrokenPipeError:
                line = b""
            except BaseException:  # interrupted: an answer that is on its way is not that of the next question
                self.end()
                raise
            if not line:
                self.end()
                raise OutOfBounds(f"it takes more than {MAX_SECONDS} seconds or {MAX_BYTES >> 30} GiB of memory")
        result, error = json.loads(line)
        if error is not None:
            raise ValueError(error)
        return result

    def start(self):
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self.process = subprocess.Popen(
            [sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the parent
            env={**os.environ, "PYTHONPATH": path},
        )
        self.owner = os.getpid()

    def end(self):
        if self.process is not None and self.owner == os.getpid():
            self.process.kill()
            with contextlib.suppress(BrokenPipeError):  # of what was not sent
                self.process.communicate()
        self.process = None


_PROCESS = _Process()
atexit.register(_PROCESS.end)


def render_chat_template(template: str, messages: list, add_generation_prompt: bool, special_tokens: dict) -> str:
    """Return the text of a chat template."""
    return _PROCESS.ask("_render_chat_template", template, messages, add_generation_prompt, special_tokens)


def regex_automaton(pattern: str) -> tuple[bytes, list[int]]:
    """Return the finite automaton of a regular expression over bytes."""
    table, finals = _PROCESS.ask("_regex_automaton", pattern)
    return base64.b64decode(table), finals


def json_schema_pattern(schema: str) -> str:
    """Return the regular expression of a JSON schema, as outlines-core makes it, without white space."""
    return _PROCESS.ask("_json_schema_pattern", schema)


@functools.cache
def _jinja_template(text):
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}`: what a model writes, which training tells from the rest; here it is its text."""

        tags = frozenset({"generation"})

        def parse(self, parser):
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(["name:endgeneration"], drop_needle=True), lineno=line)

    def raise_exception(message):
        raise ValueError(f"the template says: {message}")

    def tojson(x, ensure_ascii=False, **options):  # jinja2's own escapes what HTML does not allow
        return json.dumps(x, ensure_ascii=ensure_ascii, **options)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment.from_string(text)


def _render_chat_template(template, messages, add_generation_prompt, special_tokens):
    """Return the text with the names and filters that transformers gives to a template."""
    names = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": add_generation_prompt}
    return _jinja_template(template).render(**special_tokens, **names)


def _regex_automaton(pattern):
    from outlines_core import Index, Vocabulary

    anchors = [part for part in ANCHORS.findall(pattern) if part in ("$", "^", r"\A", r"\z")]
    if anchors:
        raise ValueError(f"it has the anchor {anchors[0]}; expected none, because a whole text has to match")
    vocabulary = Vocabulary(256, {bytes([n]): [n] for n in range(256)})
    Index(pattern, vocabulary)  # refuses what is no pattern by itself, such as a)|(b
    # An index has no way from a whole match through texts that are none to a longer match. So all matches end with a
    # mark here, and the texts that may end are those that it can follow.
    index = Index(f"(?:{pattern}){END}", vocabulary)
    transitions, start = index.get_transitions(), index.get_initial_state()
    states = [start, *(state for state in transitions if state != start)]
    states += sorted(index.get_final_states() - {*states})
    if len(states) > MAX_STATES:
        raise ValueError(f"it has {len(states)} states; expected at most {MAX_STATES}")
    number = {state: n for n, state in enumerate(states)}
    table = array("i", [-1]) * (256 * len(states))
    for state, row in transitions.items():
        for byte, following in row.items():
            if byte < 256 and following in number:
                table[256 * number[state] + byte] = number[following]
    ends = range(len(states))
    for byte in END.encode():
        ends = [table[256 * state + byte] if state >= 0 else -1 for state in ends]
    ended = {number[state] for state in index.get_final_states()}
    finals = [state for state, end in enumerate(ends) if end in ended]
    return base64.b64encode(table.tobytes()).decode(), finals


def _json_schema_pattern(schema):
    from outlines_core.json_schema import build_regex_from_schema

    return build_regex_from_schema(schema, "")


def _limit(which, soft, hard=None):
    """Set a limit of this process, where the system has it."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        number = getattr(resource, which)
        resource.setrlimit(number, (soft, resource.getrlimit(number)[1] if hard is None else hard))


def _answer(line):
    name, *arguments = json.loads(line)
    try:
        return [globals()[name](*arguments), None]
    except MemoryError:
        raise
    except RecursionError:
        return [None, "it is nested too deeply"]
    except Exception as error:
        reason = str(error).split("Make sure it is valid")[0]  # outlines-core's advice
        if "Found no transitions" in reason:
            reason = "no text matches it, or a part of it"
        return [None, " ".join(reason.split()).rstrip(".") or type(error).__name__]


def _serve():
    _limit("RLIMIT_CORE", 0, 0)
    _limit("RLIMIT_AS", MAX_BYTES)
    for line in sys.stdin.buffer:
        _limit("RLIMIT_CPU", math.ceil(time.process_time()) + MAX_SECONDS)  # at it the system ends the process
        sys.stdout.buffer.write(json.dumps(_answer(line)).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _serve()
