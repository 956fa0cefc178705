"""A thread that looks again and again, and does not die in silence."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod

from spark_eos.checker.reader import CannotCheck

END_S = 60


class Watcher(ABC):
    """Calls `look` in a thread of its own from `start` on. What `look` opens, `close` closes, in the same thread."""

    name: str

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    @abstractmethod
    def look(self) -> None:
        """Look once, within seconds. Brokers that do not answer are no error."""

    @abstractmethod
    def close(self) -> None:
        """Close the clients."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; called again it does nothing."""
        self._stopping.set()
        self._thread.join(END_S)

    def ended(self) -> None:
        """End the thread, if it runs, and see that it ran until now.

        Raises:
            CannotCheck: it died, or hangs: nothing is known of what happened since.
        """
        self.stop()
        if self._thread.is_alive():
            raise CannotCheck(f"the {self.name} hangs")
        if self._failed is not None:
            raise CannotCheck(f"the {self.name} died while it watched: {self._failed!r}") from self._failed

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self.look()
        except BaseException as error:  # raised by ended(), in the thread that asks
            self._failed = error
        finally:
            self.close()
