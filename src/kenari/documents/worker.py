"""The process that reads one file and ends: `python -m kenari.documents.worker`.

Standard input holds the job (one line of JSON) and the file, standard output gets the reading as JSON. The process takes
its own limits first, so that a bomb or a hang is its own end and nobody else's.
"""

import sys

from kenari.documents.limits import DocumentLimits, Job, Reading
from kenari.documents.readers import read_document
from kenari.wire import jsonx

if sys.platform != "win32":
    import resource


def limit_self(limits: DocumentLimits) -> None:
    """No more memory and no more time of a processor than this, no core file."""
    if sys.platform != "win32":
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (limits.memory, limits.memory))
        seconds = int(limits.timeout) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def main() -> None:
    """Read one job."""
    job = jsonx.read(jsonx.decoder(Job), sys.stdin.buffer.readline())
    data = sys.stdin.buffer.read()
    limit_self(job.limits)
    try:
        reading = read_document(data, job)
        answer = jsonx.encode(reading)
    except MemoryError:
        answer = jsonx.encode(Reading(error="reading it takes more memory than is allowed here"))
    sys.stdout.buffer.write(answer)


if __name__ == "__main__":
    main()
