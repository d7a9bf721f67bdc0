"""What a shell is to a command: the process that a terminal belongs to, so that Ctrl-C reaches the command.

It stays when the command ends. When the process that a terminal belongs to ends, Linux hangs it up, and what was not
read of it by then can be lost.

As a program it starts Python anew for the command: `leading.py TERMINAL TELLING HELD ARGUMENT…`.
"""

import fcntl
import os
import signal
import sys
import termios

_TYPED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGHUP)
"""What reaches a process by its terminal."""


def lead(terminal: int, telling: int, held: int) -> None:
    """Take the terminal, and return in a copy of this process, which is to be the command. This one does not return.

    Args:
        terminal: one of the three streams, which is the terminal. This process begins a session.
        telling: where the command's process id is written, and its exit status when it has ended, a line each.
        held: is read before this process ends.
    """
    for number in _TYPED:
        signal.signal(number, signal.SIG_IGN)
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    command = os.fork()
    if not command:
        for number in _TYPED:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # as Python begins
        os.close(telling)
        os.close(held)
        return
    for stream in range(3):
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    os.write(telling, b"%d\n" % command)
    _, status = os.waitpid(command, 0)
    os.write(telling, b"%d\n" % os.waitstatus_to_exitcode(status))
    os.read(held, 1)
    os._exit(0)


if __name__ == "__main__":
    lead(*map(int, sys.argv[1:4]))
    os.execv(sys.executable, [sys.executable, "-m", "turnlog", *sys.argv[4:]])
