"""One family of errors: every message says what, which value, which rule and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """Give the exit codes of every verb; `status.json` holds them too, because launchers change codes."""

    DONE = 0
    CONFIG = 2
    NO_RESULT = 3
    ENVIRONMENT = 4
    STOPPED = 75  # EX_TEMPFAIL of sysexits.h: "try again later", what batch systems take for a requeue


class OspreyError(Exception):
    """Carry one sentence for the user and the exit code that goes with it.

    is_agreed: all ranks of the launch end with it, so that none waits for another.
    is_said: another rank tells the user.
    """

    exit_code: ExitCode = ExitCode.CONFIG
    is_agreed: bool = False
    is_said: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """Describe one thing that is wrong with a config.

    `where` is "file:line:key" as far as it is known, `message` is the sentence: what, value, rule, nearest key.
    """

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


def _one_line(problem: Problem) -> str:
    return "\\n".join(str(problem).splitlines())


class ConfigError(OspreyError):
    """Report all problems of a config at once, one line each."""

    exit_code = ExitCode.CONFIG

    def __init__(self, problems: Sequence[Problem] | str) -> None:
        self.problems: tuple[Problem, ...] = (
            (Problem("", problems),) if isinstance(problems, str) else tuple(problems)
        )
        # One line each, whatever line ends a key or a value may hold; a single sentence may carry output below it.
        lines = problems if isinstance(problems, str) else "\n".join(map(_one_line, self.problems))
        super().__init__(lines)


class UsageError(OspreyError):
    """Report a command that cannot be carried out as given (a folder in use, a missing run, a wrong option)."""

    exit_code = ExitCode.CONFIG


class FolderInUse(UsageError):
    """Report a run folder that another run holds."""


class EnvironmentFault(OspreyError):
    """Report MPI, a launcher, a library or a device that is not as the run needs it."""

    exit_code = ExitCode.ENVIRONMENT


class RunLost(OspreyError):
    """Report that the root is gone, and with it this life of the run; what is on disk can be resumed."""

    exit_code = ExitCode.STOPPED


class StoppedEarly(OspreyError):
    """Report a signal that came before the run began: nothing was made or changed."""

    exit_code = ExitCode.STOPPED


class StorageError(OspreyError):
    """Report a file that could not be written or read; the run can be resumed once there is room."""

    exit_code = ExitCode.STOPPED


class OutputError(StorageError):
    """Report what a verb shows or exports and cannot write: no run lacks anything, so there is nothing to resume."""

    exit_code = ExitCode.ENVIRONMENT
