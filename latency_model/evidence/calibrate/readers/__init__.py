"""One module per file format; a file is recognised by what it holds, not by its name.

Each module has ``NAME``, ``recognises(text)`` and ``read(text, source)``; routing traces may also be binary.
"""

from __future__ import annotations

import stat
from importlib import import_module
from pathlib import Path

from latency_model.errors import InputError, shorten
from latency_model.evidence.calibrate.observations import Reading
from latency_model.evidence.calibrate.readers import routing_file

__all__ = ["FORMATS", "read_file"]

#: Modules of this package, the most telling marks first.
FORMATS = (
    "prometheus",
    "vllm_log",
    "sglang_log",
    "llama_cpp",
    "sglang_bench",
    "vllm_bench",
    "guidellm",
    "trtllm",
    "routing_file",
    "points_csv",
)
LARGEST_FILE = 1 << 30  # bytes


def read_file(path: str | Path) -> Reading:
    """Read a benchmark file of any known format.

    Parameters
    ----------
    path
        File to read.

    Returns
    -------
    Reading
        Its timings, counts or routing trace, and notes.

    Raises
    ------
    InputError
        When the file cannot be read, is of no known format, or something in it is wrong.
    """
    file = Path(path)
    content = _content(file)
    if routing_file.is_binary(content):
        return routing_file.read_binary(file, content)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: neither text nor a known binary format (byte {error.start}); {_known()}") from None
    if not text.strip():
        raise InputError(f"{file}: the file is empty")
    for name in FORMATS:
        module = import_module(f"{__name__}.{name}")
        if module.recognises(text):
            try:
                reading: Reading = module.read(text, file.name)
            except InputError as error:
                raise InputError(f"{file}: {error}") from None
            return reading
    raise InputError(f"{file}: no known format begins with {shorten(text.strip()[:200])}; {_known()}")


def _content(file: Path) -> bytes:
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{file} is not a regular file")
        if status.st_size > LARGEST_FILE:
            raise InputError(f"{file} has {status.st_size} bytes; at most {LARGEST_FILE} are read")
        return file.read_bytes()
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _known() -> str:
    names = [import_module(f"{__name__}.{name}").NAME for name in FORMATS]
    return f"known: {', '.join(names)}"
