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
    : [ arch awk base64 basename break bzip2 c++ cal cat cc cd chmod chown chrome chromedriver chromium cksum clang
    clear cmp column comm continue convert cp createdb cut date dd df diff dirname dmesg done dot dpkg dropdb du echo
    egrep esac espeak exit export expr false fc-list fc-match ffmpeg ffprobe fgrep fi file find firefox fmt fold for
    free g++ gawk gcc geckodriver getconf getent git google-chrome gpg grep groups gs gunzip gzip hdfs head hexdump hg
    hostname iconv id identify ifconfig inkscape ip join jq kill kubectl latexmk ld ldconfig ldd less libreoffice ln
    local locale ls lsb_release lscpu lsof lualatex magick md5sum mkdir mkfifo mktemp mongosh more mv mysql mysqldump
    netstat nl nm nproc numfmt nvidia-smi objdump od openssl pandoc paste patch pbcopy pbpaste pdfinfo pdflatex
    pdftoppm pdftotext pg_dump pg_restore pgrep ping pip printenv printf ps psql pwd qpdf read readlink realpath
    redis-cli return rg rm rmdir rsync ruff say scp sed selenium-manager seq set sftp sha1sum sha256sum shift shuf
    sleep soffice sort sox split sqlcmd sqlite3 ss stat strings strip stty svn sw_vers sysctl system_profiler tail tar
    tee tesseract test touch tput tr trap tree true tsort tty type umask uname uniq unlink unset unzip uptime vm_stat
    wait wc weasyprint which who whoami wkhtmltopdf xclip xelatex xxd xz yes yq zcat zip zstd }
"""
HARMLESS_PROGRAMS = frozenset(_HARMLESS.split())
_BROWSER_DRIVER = "playwright/driver"  # a Node of its own
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash"})
# They run the program that their arguments name, and nothing else.
LAUNCHERS = frozenset({"env", "nice", "nohup", "timeout", "time", "stdbuf", "uv", "poetry", "pipenv", "hatch", "pdm"})
INTERPRETERS = SHELLS | {"node", "nodejs", "deno", "bun", "npx", "java", "ruby", "perl", "php", "pwsh", "docker"}
_ABOUT_ITSELF = (["--version"], ["--help"])  # by these arguments a program prints that, and ends
_PREFIXES = frozenset({"if", "elif", "while", "until", "then", "else", "do", "{", "!", "time"})  # a command follows
_PYTHON = re.compile(r"(python[\d.]*w?|pypy[\d.]*)(\.exe)?")
# What `multiprocessing` starts beside its processes. Nobody waits for it, so it may not have begun when a run is over.
_RESOURCE_TRACKER = re.compile(r"from multiprocessing\.resource_tracker import main;main\(\d+\)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*")


def get_name(word: str) -> str:
    """Return the name of a program without its folder."""
    return os.path.basename(word.replace("\\", "/")).removesuffix(".exe")


def describe_command(words: Sequence[str], patterns: Iterable[str] = ()) -> str:
    """Return what a command is known by: its program, with the script where an interpreter runs one; of several
    commands of a shell the first that is not harmless."""
    commands = [unwrap(command) for command in list_commands(words)]
    return name_command(next((command for command in commands if not is_harmless(command, patterns)), commands[0]))


def name_command(words: Sequence[str]) -> str:
    """Return the name of a command's program, with its script where it is an interpreter."""
    name = get_name(words[0]) if words else ""
    script = next((word for word in words[1:] if not word.startswith("-")), None)
    is_script = (name in INTERPRETERS or is_python(words[:1])) and script is not None and "-c" not in words
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
            elif commands[-1] or not (token in _PREFIXES or _ASSIGNMENT.fullmatch(token)):
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
    known_as = (name, name_command(words), line)
    if any(fnmatch(text, pattern) or fnmatch(line, f"{pattern} *") for pattern in patterns for text in known_as):
        return True
    commands = [unwrap(command) for command in list_commands(words)]
    if commands != [list(words)]:
        return all(is_harmless(command, patterns) for command in commands)
    if len(words) > 2 and is_python(words) and words[-2] == "-c" and _RESOURCE_TRACKER.fullmatch(words[-1]):
        return True
    is_about_itself = list(words[1:]) in _ABOUT_ITSELF and name not in SHELLS
    return is_about_itself or name in HARMLESS_PROGRAMS or (bool(words) and _BROWSER_DRIVER in words[0])
