"""Programs that a case starts: which of them ask no model, and which are Python, so that the guard runs inside them.

The standard library alone: guarded child processes load this file by its path, without evalkit.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch

# Programs that ask no model and call none of the agent's functions, whatever their arguments.
_HARMLESS = """
    : [ arch awk base64 basename bzip2 cal cat cd chmod chown cksum clear cmp column comm cp cut date dd df diff dirname
    dot dpkg du echo egrep exit export expr false ffmpeg ffprobe fgrep file find fmt fold free gawk git gpg grep
    groups gs gunzip gzip head hexdump hg hostname iconv id identify join jq kill ldconfig ldd less ln locale ls
    lsb_release lscpu lsof md5sum mkdir mkfifo mktemp more mv nl nproc numfmt nvidia-smi od openssl pandoc paste patch
    pdfinfo pdftoppm pdftotext pgrep ping pip printenv printf ps pwd qpdf readlink realpath rg rm rmdir sed seq set
    sha1sum sha256sum shuf sleep soffice sort split sqlite3 stat strings stty svn sysctl tail tar tee test tesseract
    touch tput tr trap tree true tsort tty type umask uname uniq unlink unzip uptime wait wc weasyprint which who whoami
    wkhtmltopdf xxd xz yes yq zcat zip zstd
"""
HARMLESS_PROGRAMS = frozenset(_HARMLESS.split())
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash"})
# They run the program that their arguments name, and nothing else.
LAUNCHERS = frozenset({"env", "nice", "nohup", "timeout", "time", "stdbuf", "uv", "poetry", "pipenv", "hatch", "pdm"})
INTERPRETERS = SHELLS | {"node", "nodejs", "deno", "bun", "npx", "java", "ruby", "perl", "php", "pwsh", "docker"}
_PYTHON = re.compile(r"(python[\d.]*w?|pypy[\d.]*)(\.exe)?")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*")


def get_name(word: str) -> str:
    """Return the name of a program without its folder."""
    return os.path.basename(word.replace("\\", "/")).removesuffix(".exe")


def describe_command(words: Sequence[str], patterns: Iterable[str] = ()) -> str:
    """Return what a command is known by: its program, with the script where an interpreter runs one; of several
    commands of a shell the first that is not harmless."""
    commands = [unwrap(command) for command in list_commands(words)]
    first, *rest = next((command for command in commands if not is_harmless(command, patterns)), commands[0]) or [""]
    name = get_name(first)
    script = next((word for word in rest if not word.startswith("-")), None)
    is_script = (name in INTERPRETERS or is_python([first])) and script is not None and "-c" not in rest
    return f"{name} {script}" if is_script else name


def unwrap(words: Sequence[str]) -> list[str]:
    """Return the command that a launcher runs: ``python x.py`` of ``timeout 5 python x.py``."""
    words = list(words)
    while words and (name := get_name(words[0])) in LAUNCHERS:
        rest = [word for word in words[1:] if not (word.startswith("-") or _ASSIGNMENT.fullmatch(word))]
        if not rest:
            break
        words = rest[1:] if rest[0] == "run" or (name == "timeout" and len(rest) > 1) else rest
    return words


def is_python(words: Sequence[str]) -> bool:
    """Return whether a command runs Python, and so the guard: not without the folder of `sitecustomize`."""
    if not words or not _PYTHON.fullmatch(get_name(words[0])):
        return False
    flags = [word for word in words[1:] if word.startswith("-") and not word.startswith("--")]
    return not any(letter in flag for flag in flags[:1] for letter in "SIE")


def list_commands(words: Sequence[str]) -> list[list[str]]:
    """List the commands that a command consists of: those of a shell's text, else itself."""
    if words and get_name(words[0]) in SHELLS and len(words) > 2 and "c" in words[1] and words[1].startswith("-"):
        return split_shell(words[2]) or [list(words)]
    return [list(words)]


def split_shell(text: str) -> list[list[str]]:
    """Split a shell's text into its commands; [] where that takes a shell."""
    if re.search(r"`|\$\(|<\(", text):
        return []
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()<>\n")
    lexer.whitespace = " \t"
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    is_file = False
    try:
        for token in lexer:
            if token and set(token) <= set("<>&") and set(token) & set("<>"):
                is_file = True
            elif token and set(token) <= set(";&|()\n"):
                commands.append([])
            elif is_file:
                is_file = False
            elif commands[-1] or not _ASSIGNMENT.fullmatch(token):
                commands[-1].append(token)
    except ValueError:
        return []
    return [command for command in commands if command]


def is_harmless(words: Sequence[str], patterns: Iterable[str] = ()) -> bool:
    """Return whether a command asks no model: its program is known for that, or the project says so.

    A pattern names a program ("convert"), or the words that a command begins with ("node build.js").
    """
    name = get_name(words[0]) if words else ""
    line = " ".join([name, *words[1:]])
    if any(fnmatch(name, pattern) or fnmatch(line, pattern) or fnmatch(line, f"{pattern} *") for pattern in patterns):
        return True
    commands = [unwrap(command) for command in list_commands(words)]
    if commands != [list(words)]:
        return all(is_harmless(command, patterns) for command in commands)
    return name in HARMLESS_PROGRAMS
